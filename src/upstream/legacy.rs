//! The legacy era on the host's side: what `initialize` agrees on (VER-6), and the words that only this era has, for
//! the sessions of both transports.

use std::borrow::Cow;

use serde::Deserialize;

use crate::gateway::{Failure, Gateway, Offers, Sight};
use crate::ident::Kind;
use crate::protocol::capability::{Capabilities, TASKS, UI};
use crate::protocol::json::{self, Index};
use crate::protocol::level::LogLevel;
use crate::protocol::message::{Part, pick};
use crate::protocol::meta::IMPLEMENTATION;
use crate::protocol::version::{Era, Revision};

#[derive(Deserialize)]
struct Proposed<'a> {
    #[serde(rename = "protocolVersion", borrow)]
    protocol_version: Cow<'a, str>,
}

/// The revision for a host that proposes one in the raw params of `initialize`: its own when it is a legacy one
/// of ours, else our latest. Never a modern one.
pub(super) fn agree(params: &[u8]) -> Option<Revision> {
    let proposed: Proposed<'_> = serde_json::from_slice(params).ok()?;
    let known = Revision::parse(&proposed.protocol_version).filter(|revision| revision.era() == Era::Legacy);
    Some(known.unwrap_or(Revision::LATEST_LEGACY))
}

/// What a host declares in the raw params of `initialize`.
fn capabilities(params: &[u8]) -> Capabilities {
    let declared = json::members(params).find(|entry| entry.is("capabilities"));
    let declared = declared.map(|declared| Capabilities::read(declared.value)).unwrap_or_default();
    // Of the modern era, where each request says it (TSK-9).
    Capabilities { tasks: false, ..declared }
}

/// What an `initialize` agreed on.
pub(super) struct Opened {
    pub(super) revision: Revision,
    pub(super) capabilities: Capabilities,
    /// The members of the answer.
    pub(super) members: String,
}

/// Reads the raw params of an `initialize` and makes the answer.
pub(super) fn open(gateway: &Gateway, sight: Sight, params: &[u8]) -> Result<Opened, Failure> {
    let revision = agree(params).ok_or_else(|| Failure::bad_params("params.protocolVersion must be a string"))?;
    let capabilities = capabilities(params);
    let members = initialize_result(revision, &gateway.offers(sight), &capabilities, &gateway.instructions(sight));
    Ok(Opened { revision, capabilities, members })
}

/// Whether a host may be told of an error without an id; those of 2025-06-18 and before take none (ENV-4).
pub(super) fn takes_errors_without_id(agreed: Option<Revision>) -> bool {
    agreed.is_none_or(|revision| revision > Revision::V2025_06_18)
}

/// The level that a `logging/setLevel` asks for (LOG-2).
pub(super) fn level(line: &[u8], index: &Index, params: Option<Part>) -> Result<LogLevel, Failure> {
    let level = params.and_then(|params| {
        let ([level], _) = pick(line, index, params, ["level"]).ok()?;
        LogLevel::parse(level?.of(line))
    });
    level.ok_or_else(|| Failure::bad_params("an unknown log level"))
}

/// Whose raw id a `notifications/cancelled` names, and why (CAN-1).
pub(super) fn cancelled<'a>(line: &'a [u8], index: &Index, params: Option<Part>) -> Option<(&'a [u8], Cow<'a, str>)> {
    let ([id, reason], _) = pick(line, index, params?, ["requestId", "reason"]).ok()?;
    let reason = reason.and_then(|reason| json::text_of(reason.of(line)));
    Some((id?.of(line), reason.unwrap_or_default()))
}

/// The members of our answer to `initialize`. Apps are offered to a host that shows them itself (§9.1).
fn initialize_result(revision: Revision, offers: &Offers, capabilities: &Capabilities, instructions: &str) -> String {
    let mut text = format!(r#""protocolVersion":"{}","capabilities":"#, revision.as_str());
    push_offers(&mut text, offers, revision, capabilities.ui.is_some());
    text.push_str(",\"serverInfo\":");
    text.push_str(IMPLEMENTATION);
    push_instructions(&mut text, instructions);
    text
}

/// Appends what is offered, in the words of a revision (§9.1, CAP-5).
pub(super) fn push_offers(text: &mut String, offers: &Offers, revision: Revision, ui: bool) {
    let mut members = Vec::new();
    if offers.tools.is_some() {
        members.push(r#""tools":{"listChanged":true}"#.to_owned());
    }
    if offers.prompts.is_some() {
        members.push(r#""prompts":{"listChanged":true}"#.to_owned());
    }
    if offers.resources.is_some() {
        let subscribe = if offers.subscribe { r#""subscribe":true,"# } else { "" };
        members.push(format!(r#""resources":{{{subscribe}"listChanged":true}}"#));
    }
    if offers.completions && revision > Revision::V2024_11_05 {
        members.push(r#""completions":{}"#.to_owned());
    }
    if offers.logging {
        members.push(r#""logging":{}"#.to_owned());
    }
    let ui = offers.ui.as_ref().filter(|_| ui).map(|ui| format!(r#""{UI}":{}"#, String::from_utf8_lossy(ui)));
    let tasks = (offers.tasks && revision.era() == Era::Modern).then(|| format!(r#""{TASKS}":{{}}"#));
    // No other extension is bridged, so none is offered (EXT-2).
    let extensions: Vec<_> = ui.into_iter().chain(tasks).collect();
    if !extensions.is_empty() {
        members.push(format!(r#""extensions":{{{}}}"#, extensions.join(",")));
    }
    text.push('{');
    text.push_str(&members.join(","));
    text.push('}');
}

/// Tells that a list of this kind changed.
pub(super) fn list_changed(kind: Kind) -> Vec<u8> {
    let method = super::modern::list_changed(kind);
    format!(r#"{{"jsonrpc":"2.0","method":"notifications/{method}"}}"#).into_bytes()
}

/// Tells that a resource changed, in the host's spelling.
pub(super) fn updated(uri: &str) -> Vec<u8> {
    format!(r#"{{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{{"uri":{}}}}}"#, quoted(uri))
        .into_bytes()
}

/// A text as a JSON string.
pub(super) fn quoted(text: &str) -> String {
    let mut quoted = Vec::new();
    json::push_string(&mut quoted, text);
    String::from_utf8_lossy(&quoted).into_owned()
}

/// Appends the member `instructions`, when there are any.
pub(super) fn push_instructions(text: &mut String, instructions: &str) {
    if !instructions.is_empty() {
        text.push_str(",\"instructions\":");
        text.push_str(&quoted(instructions));
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
