//! `_meta`: the keys that belong to one leg, and all others, which pass (§6 of the rules, ENV-11).
//!
//! Reads raw objects that were validated with their message.

use std::borrow::Cow;

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
/// Which task of the legacy era something belongs to.
pub const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";
/// The token under which a request wants progress.
pub const PROGRESS_TOKEN: &str = "progressToken";

/// The trace that a request is part of, and what its tracing systems and its services say with it.
const TRACE_PARENT: &str = "traceparent";
const TRACE_STATE: &str = "tracestate";
const BAGGAGE: &str = "baggage";

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
    /// Whether others stand beside them, of which some may pass.
    pub passing: bool,
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
                read.passing |= !entry.is(CLIENT_INFO);
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
    json::members(meta).filter(passes).for_each(|entry| push(out, &entry));
}

fn push(out: &mut Vec<u8>, entry: &Entry<'_>) {
    out.push(b'"');
    out.extend_from_slice(entry.key);
    out.extend_from_slice(b"\":");
    out.extend_from_slice(entry.value);
    out.push(b',');
}

/// The same for the request of a host on its way to a server, whose trace context passes whole or not at all (§6): an
/// invalid `traceparent` does not, and `tracestate` means nothing without it. Where `own` is given, a span of ours is what
/// the server's belong to, and takes the place of the host's. `baggage` may hold anything and is meant for whoever is
/// trusted with it, which no server is marked as.
pub fn push_passing_down(out: &mut Vec<u8>, meta: &[u8], own: Option<&str>) {
    for entry in json::members(meta).filter(passes) {
        let is_parent = entry.is(TRACE_PARENT);
        let of_trace = is_parent || entry.is(TRACE_STATE);
        let replaced = is_parent && own.is_some();
        // Looked for once something of a trace is there.
        if entry.is(BAGGAGE) || replaced || (of_trace && !(entry.value.starts_with(b"\"") && parent(meta).is_some())) {
            continue;
        }
        push(out, &entry);
    }
}

/// Appends the `traceparent` of a span of ours and a comma.
pub fn push_trace_parent(out: &mut Vec<u8>, own: &str) {
    out.push(b'"');
    out.extend_from_slice(TRACE_PARENT.as_bytes());
    out.extend_from_slice(b"\":\"");
    out.extend_from_slice(own.as_bytes());
    out.extend_from_slice(b"\",");
}

/// The trace context of a request, when it has a valid one: its `traceparent`, and its `tracestate` if any.
pub fn trace_of(meta: &[u8]) -> Option<(Cow<'_, str>, Option<Cow<'_, str>>)> {
    let parent = json::text_of(parent(meta)?)?;
    let mut states = json::members(meta).filter(|entry| entry.is(TRACE_STATE));
    let state = match (states.next(), states.next()) {
        (Some(state), None) => json::text_of(state.value),
        _ => None,
    };
    Some((parent, state))
}

/// The raw `traceparent`, where there is one and it is valid.
fn parent(meta: &[u8]) -> Option<&[u8]> {
    let mut parents = json::members(meta).filter(|entry| entry.is(TRACE_PARENT));
    match (parents.next(), parents.next()) {
        (Some(parent), None) if is_trace_parent(parent.value) => Some(parent.value),
        _ => None,
    }
}

/// Whether a raw value is a `traceparent` of the W3C: version, trace, parent and flags in lower-case hex. Of versions
/// to come, more may follow.
fn is_trace_parent(raw: &[u8]) -> bool {
    let Some(text) = json::text_of(raw) else { return false };
    let mut fields = text.splitn(5, '-');
    let mut hex = |length: usize| {
        let is_hex = |field: &str| field.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        fields.next().filter(|field| field.len() == length && is_hex(field))
    };
    let any = |field: Option<&str>| field.is_some_and(|field| field.bytes().any(|b| b != b'0'));
    let version = hex(2);
    let ids = any(hex(32)) && any(hex(16));
    let flags = hex(2).is_some();
    version.is_some_and(|version| version != "ff" && (version != "00" || fields.next().is_none())) && ids && flags
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
    fn d048_a_trace_context_passes_whole_or_not_at_all_and_baggage_never() {
        let down = |meta: &str| {
            let mut out = Vec::new();
            push_passing_down(&mut out, meta.as_bytes(), None);
            String::from_utf8(out).unwrap()
        };
        let (trace, parent) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
        let valid = [format!("00-{trace}-{parent}-01"), format!("cc-{trace}-{parent}-00-more-later")];
        for value in &valid {
            let kept = format!(r#""traceparent":"{value}","tracestate":"a=b","#);
            assert_eq!(down(&format!(r#"{{{kept}"x":1,"baggage":"user=1"}}"#)), format!(r#"{kept}"x":1,"#));
        }
        for value in [
            format!("00-{trace}-{parent}-01-more"),
            format!("ff-{trace}-{parent}-01"),
            format!("00-{}-{parent}-01", "0".repeat(32)),
            format!("00-{trace}-{}-01", "0".repeat(16)),
            format!("00-{}-{parent}-01", trace.to_uppercase()),
            format!("00-{trace}-{parent}"),
            format!("00-{trace}-{parent}-1"),
            format!("00-{trace}é-{parent}-01"),
            String::new(),
        ] {
            assert_eq!(
                down(&format!(r#"{{"tracestate":"a=b","traceparent":"{value}","x":1}}"#)),
                r#""x":1,"#,
                "{value}"
            );
        }
        // Not a string, not there, there twice: none.
        assert_eq!(down(r#"{"traceparent":7,"tracestate":"a=b"}"#), "");
        assert_eq!(down(r#"{"tracestate":"a=b","b\u0061ggage":"x"}"#), "");
        let twice = format!(r#"{{"traceparent":"{0}","tr\u0061ceparent":"{0}"}}"#, valid[0]);
        assert_eq!(down(&twice), "");
        assert_eq!(
            down(&format!(r#"{{"traceparent":"{}","tracestate":[1]}}"#, valid[0])),
            format!(r#""traceparent":"{}","#, valid[0])
        );
    }

    #[test]
    fn obs1_a_span_of_ours_takes_the_place_of_the_hosts() {
        let (host, own) = ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-1-2-01");
        let down = |meta: &str| {
            let mut out = Vec::new();
            push_passing_down(&mut out, meta.as_bytes(), Some(own));
            String::from_utf8(out).unwrap()
        };
        assert_eq!(
            down(&format!(r#"{{"traceparent":"{host}","tracestate":"a=b","x":1}}"#)),
            r#""tracestate":"a=b","x":1,"#
        );
        assert_eq!(down(r#"{"traceparent":"00-1","tracestate":"a=b","x":1}"#), r#""x":1,"#);
        let mut out = Vec::new();
        push_trace_parent(&mut out, own);
        assert_eq!(out, br#""traceparent":"00-1-2-01","#);
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
