//! `_meta`: the keys that belong to one leg, and all others, which pass (§6 of the rules, ENV-11).
//!
//! Reads raw objects that were validated with their message.

use super::capability::Capabilities;
use super::json::{self, Entry};
use super::level::LogLevel;
use super::version::Revision;

/// Keys under this prefix belong to the protocol.
pub const RESERVED: &str = "io.modelcontextprotocol/";
/// The revision of a modern request.
pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// Who sends a modern request: display text, never identity.
pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
/// What the sender of a modern request can do.
pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// Which log messages a modern request wants.
pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
/// Who answers, on modern results.
pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
/// Which `subscriptions/listen` a notification belongs to.
pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
/// The token under which a request wants progress.
pub const PROGRESS_TOKEN: &str = "progressToken";

/// The keys of a request's `_meta` that we act on, raw.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestMeta<'a> {
    /// [`PROTOCOL_VERSION`].
    pub version: Option<&'a [u8]>,
    /// [`CLIENT_CAPABILITIES`].
    pub capabilities: Option<&'a [u8]>,
    /// [`PROGRESS_TOKEN`].
    pub progress_token: Option<&'a [u8]>,
    /// [`LOG_LEVEL`].
    pub log_level: Option<&'a [u8]>,
    /// One of them stands twice (E-23).
    pub twice: bool,
}

impl<'a> RequestMeta<'a> {
    /// Reads the raw `_meta` of a request.
    pub fn read(meta: &'a [u8]) -> Self {
        let mut read = Self::default();
        for entry in json::members(meta) {
            let known = if entry.is(PROGRESS_TOKEN) {
                &mut read.progress_token
            } else if entry.is(PROTOCOL_VERSION) {
                &mut read.version
            } else if entry.is(CLIENT_CAPABILITIES) {
                &mut read.capabilities
            } else if entry.is(LOG_LEVEL) {
                &mut read.log_level
            } else {
                continue;
            };
            read.twice |= known.replace(entry.value).is_some();
        }
        read
    }

    /// What the host of the request can do.
    pub fn host_capabilities(&self) -> Capabilities {
        // Most say `{}`.
        self.capabilities.filter(|raw| *raw != b"{}").map(Capabilities::read).unwrap_or_default()
    }
}

/// Whether a key passes from one leg to the other: all do but the protocol's own and the progress token.
fn passes(entry: &Entry<'_>) -> bool {
    !entry.is(PROGRESS_TOKEN) && entry.name().is_none_or(|name| !name.starts_with(RESERVED))
}

/// Appends the members of `meta` that pass, each followed by a comma.
pub fn push_passing(out: &mut Vec<u8>, meta: &[u8]) {
    for entry in json::members(meta).filter(passes) {
        out.push(b'"');
        out.extend_from_slice(entry.key);
        out.extend_from_slice(b"\":");
        out.extend_from_slice(entry.value);
        out.push(b',');
    }
}

/// Appends the members of a modern request that name its sender: our version, our name, what the host of this
/// request can do as far as we bridge it, and which log messages it wants.
pub fn push_protocol_keys(
    out: &mut Vec<u8>,
    revision: Revision,
    capabilities: &Capabilities,
    log_level: Option<LogLevel>,
) {
    out.push(b'"');
    out.extend_from_slice(PROTOCOL_VERSION.as_bytes());
    out.extend_from_slice(b"\":\"");
    out.extend_from_slice(revision.as_str().as_bytes());
    out.extend_from_slice(b"\",\"");
    out.extend_from_slice(CLIENT_INFO.as_bytes());
    out.extend_from_slice(b"\":");
    out.extend_from_slice(IMPLEMENTATION.as_bytes());
    out.extend_from_slice(b",\"");
    out.extend_from_slice(CLIENT_CAPABILITIES.as_bytes());
    out.extend_from_slice(b"\":");
    capabilities.push(out, revision);
    if let Some(level) = log_level {
        out.extend_from_slice(b",\"");
        out.extend_from_slice(LOG_LEVEL.as_bytes());
        out.extend_from_slice(b"\":\"");
        out.extend_from_slice(level.as_str().as_bytes());
        out.push(b'"');
    }
}

/// The same for what we ask on our own behalf: nothing of any host.
pub fn push_own_keys(out: &mut Vec<u8>, revision: Revision) {
    push_protocol_keys(out, revision, &Capabilities::default(), None);
}

/// Our name and version on either leg.
pub const IMPLEMENTATION: &str = concat!(r#"{"name":"onegate","version":""#, env!("CARGO_PKG_VERSION"), r#""}"#);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d048_only_the_keys_of_a_leg_are_left_out() {
        let meta = br#"{"progressToken":"t","traceparent":"00-1","io.modelcontextprotocol/protocolVersion":"x","acme/x":{"a":[1.0]},"io.modelcontextprotocol/other":1,"k\u0065y":2}"#;
        let mut out = Vec::new();
        push_passing(&mut out, meta);
        assert_eq!(String::from_utf8(out).unwrap(), r#""traceparent":"00-1","acme/x":{"a":[1.0]},"k\u0065y":2,"#);
    }

    #[test]
    fn e23_a_key_that_steers_stands_once() {
        assert!(RequestMeta::read(br#"{"progressToken":1,"progress\u0054oken":2}"#).twice);
        assert!(RequestMeta::read(br#"{"io.modelcontextprotocol/protocolVersion":"a","x":1,"io.modelcontextprotocol/protocolVersion":"a"}"#).twice);
        assert!(!RequestMeta::read(br#"{"x":1,"x":2,"progressToken":1}"#).twice);
    }

    #[test]
    fn the_keys_of_a_request_are_found_raw() {
        let meta = br#"{"progressToken":1.0,"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"roots":{}}}"#;
        let read = RequestMeta::read(meta);
        assert_eq!(read.progress_token, Some(&b"1.0"[..]));
        assert_eq!(read.version, Some(&b"\"2026-07-28\""[..]));
        assert_eq!(read.capabilities, Some(&b"{\"roots\":{}}"[..]));
    }
}
