//! The modern era on the host's side: what a request must carry, discovery, listen streams.

use bytes::Bytes;

use super::legacy::push_instructions;
use crate::caller::Caller;
use crate::gateway::Failure;
use crate::protocol::json;
use crate::protocol::level::LogLevel;
use crate::protocol::meta::{CLIENT_CAPABILITIES, RequestMeta, SUBSCRIPTION_ID};
use crate::protocol::version::{Era, Revision};

/// Checks what a modern request says of itself (VER-4, VER-5); answers its revision.
pub(super) fn check(meta: &RequestMeta<'_>, version: &[u8]) -> Result<Revision, Failure> {
    let date = json::text_of(version).ok_or_else(|| Failure::bad_params("the protocol version must be a string"))?;
    if !meta.capabilities.is_some_and(|capabilities| capabilities.starts_with(b"{")) {
        return Err(Failure::missing_meta(CLIENT_CAPABILITIES));
    }
    Revision::parse(&date)
        .filter(|revision| revision.era() == Era::Modern)
        .ok_or_else(|| Failure::unsupported_version(version))
}

/// Who asks, as the request says (CAP-6, LOG-1); `base` is what its connection says.
pub(super) fn caller(base: Caller, meta: &RequestMeta<'_>, revision: Revision) -> Result<Caller, Failure> {
    let log_level = match meta.log_level {
        None => None,
        Some(raw) => Some(LogLevel::parse(raw).ok_or_else(|| Failure::bad_params("an unknown log level"))?),
    };
    Ok(Caller { revision, capabilities: meta.host_capabilities(), log_level, session: None, ..base })
}

/// The members of our answer to `server/discover` (VER-10, CAP-4). Instructions come and go with their servers,
/// so it holds for a minute.
pub(super) fn discover_result(instructions: &str) -> String {
    let versions: Vec<_> = Revision::ALL.iter().map(|revision| format!("\"{}\"", revision.as_str())).collect();
    let mut text = format!(
        r#""supportedVersions":[{}],"capabilities":{{"tools":{{"listChanged":true}}}},"ttlMs":60000,"cacheScope":"private""#,
        versions.join(",")
    );
    push_instructions(&mut text, instructions);
    text
}

/// A stream of change notifications that a host opened.
pub(super) struct Listen {
    /// The host's id, raw: the name of the stream (SUB-4).
    pub(super) id: Bytes,
    /// Whether it asked for changes of tools.
    pub(super) tools: bool,
}

impl Listen {
    /// Reads the raw params of `subscriptions/listen`; what is not served is left out of the answer (SUB-5).
    pub(super) fn read(id: Bytes, params: &[u8]) -> Result<Self, Failure> {
        let filter = json::members(params)
            .find(|entry| entry.is("notifications"))
            .filter(|entry| entry.value.starts_with(b"{"))
            .ok_or_else(|| Failure::bad_params("params.notifications must be an object"))?;
        let tools = json::members(filter.value).any(|entry| entry.is("toolsListChanged") && entry.value == b"true");
        Ok(Self { id, tools })
    }

    fn tagged(&self, method: &str, params: &str) -> Vec<u8> {
        let mut out = format!(
            "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/{method}\",\"params\":{{{params}\"_meta\":{{\"{SUBSCRIPTION_ID}\":"
        )
        .into_bytes();
        out.extend_from_slice(&self.id);
        out.extend_from_slice(b"}}}");
        out
    }

    /// The first message of the stream: what is honoured (SUB-3).
    pub(super) fn acknowledged(&self) -> Vec<u8> {
        let honoured = if self.tools { "\"toolsListChanged\":true" } else { "" };
        self.tagged("subscriptions/acknowledged", &format!("\"notifications\":{{{honoured}}},"))
    }

    /// Tells that tools changed.
    pub(super) fn tools_changed(&self) -> Vec<u8> {
        self.tagged("tools/list_changed", "")
    }

    /// The members of the result that ends it (SUB-12).
    pub(super) fn ended(&self) -> Vec<u8> {
        let mut out = b"{\"jsonrpc\":\"2.0\",\"id\":".to_vec();
        out.extend_from_slice(&self.id);
        out.extend_from_slice(
            format!(",\"result\":{{\"resultType\":\"complete\",\"_meta\":{{\"{SUBSCRIPTION_ID}\":").as_bytes(),
        );
        out.extend_from_slice(&self.id);
        out.extend_from_slice(b"}}}");
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::code;

    fn checked(meta: &str) -> Result<Revision, i64> {
        let meta = RequestMeta::read(meta.as_bytes());
        check(&meta, meta.version.unwrap()).map_err(|failure| failure.code)
    }

    #[test]
    fn ver4_ver5_what_a_modern_request_must_carry() {
        let version = r#""io.modelcontextprotocol/protocolVersion""#;
        let capabilities = r#""io.modelcontextprotocol/clientCapabilities":{}"#;
        assert_eq!(checked(&format!(r#"{{{version}:"2026-07-28",{capabilities}}}"#)), Ok(Revision::V2026_07_28));
        assert_eq!(checked(&format!(r#"{{{version}:"2026-07-28"}}"#)), Err(code::INVALID_PARAMS));
        assert_eq!(checked(&format!(r#"{{{version}:7,{capabilities}}}"#)), Err(code::INVALID_PARAMS));
        assert_eq!(checked(&format!(r#"{{{version}:"2025-11-25",{capabilities}}}"#)), Err(code::UNSUPPORTED_VERSION));
        assert_eq!(checked(&format!(r#"{{{version}:"2099-01-01",{capabilities}}}"#)), Err(code::UNSUPPORTED_VERSION));
    }

    #[test]
    fn sub3_sub4_a_stream_is_named_by_the_raw_id_of_its_request() {
        let listen = Listen::read(
            Bytes::from_static(b"\"L-1\""),
            br#"{"notifications":{"toolsListChanged":true,"promptsListChanged":true}}"#,
        )
        .unwrap();
        assert_eq!(
            String::from_utf8(listen.acknowledged()).unwrap(),
            r#"{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/subscriptionId":"L-1"}}}"#
        );
        assert!(Listen::read(Bytes::new(), b"{}").is_err());
    }
}
