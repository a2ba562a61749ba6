//! The legacy era on the host's side: `initialize`, `ping`, and which revision was agreed on (VER-6).

use serde::Deserialize;

use crate::protocol::capability::Capabilities;
use crate::protocol::json;
use crate::protocol::meta::IMPLEMENTATION;
use crate::protocol::version::{Era, Revision};

#[derive(Deserialize)]
struct Proposed<'a> {
    #[serde(rename = "protocolVersion", borrow)]
    protocol_version: std::borrow::Cow<'a, str>,
}

/// The revision for a host that proposes one in the raw params of `initialize`: its own when it is a legacy one
/// of ours, else our latest. Never a modern one.
pub(super) fn agree(params: &[u8]) -> Option<Revision> {
    let proposed: Proposed<'_> = serde_json::from_slice(params).ok()?;
    let known = Revision::parse(&proposed.protocol_version).filter(|revision| revision.era() == Era::Legacy);
    Some(known.unwrap_or(Revision::LATEST_LEGACY))
}

/// What a host declares in the raw params of `initialize`.
pub(super) fn capabilities(params: &[u8]) -> Capabilities {
    let declared = json::members(params).find(|entry| entry.is("capabilities"));
    declared.map(|declared| Capabilities::read(declared.value)).unwrap_or_default()
}

/// The members of our answer to `initialize`.
pub(super) fn initialize_result(revision: Revision, instructions: &str) -> String {
    let mut text = format!(
        r#""protocolVersion":"{}","capabilities":{{"tools":{{"listChanged":true}}}},"serverInfo":{IMPLEMENTATION}"#,
        revision.as_str()
    );
    push_instructions(&mut text, instructions);
    text
}

/// Appends the member `instructions`, when there are any.
pub(super) fn push_instructions(text: &mut String, instructions: &str) {
    if !instructions.is_empty() {
        let mut quoted = Vec::new();
        json::push_string(&mut quoted, instructions);
        text.push_str(",\"instructions\":");
        text.push_str(&String::from_utf8_lossy(&quoted));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ver6_a_known_legacy_revision_is_echoed_and_nothing_else() {
        for (proposed, agreed) in [
            ("2024-11-05", "2024-11-05"),
            ("2025-03-26", "2025-03-26"),
            ("2025-06-18", "2025-06-18"),
            ("2025-11-25", "2025-11-25"),
            ("2026-07-28", "2025-11-25"),
            ("1999-01-01", "2025-11-25"),
            ("", "2025-11-25"),
        ] {
            let params = format!(r#"{{"protocolVersion":"{proposed}","x":1}}"#);
            assert_eq!(agree(params.as_bytes()).unwrap().as_str(), agreed);
        }
        assert_eq!(agree(br#"{"protocolVersion":1}"#), None);
        assert_eq!(agree(b"[]"), None);
    }
}
