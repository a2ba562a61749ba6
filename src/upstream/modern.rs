//! The modern era on the host's side: what a request must carry, discovery, listen streams.

use std::borrow::Cow;

use bytes::Bytes;

use super::legacy::{push_instructions, push_offers, quoted};
use super::write;
use crate::caller::Caller;
use crate::gateway::{Failure, Offers, TaskState};
use crate::ident::Kind;
use crate::protocol::json::{self, Index};
use crate::protocol::level::LogLevel;
use crate::protocol::message::{Part, pick};
use crate::protocol::meta::{CLIENT_CAPABILITIES, RequestMeta, SUBSCRIPTION_ID};
use crate::protocol::version::{Era, Revision};

/// The `_meta` of a request and its version, when it is a modern one (VER-1).
pub(super) fn modern_meta<'a>(
    line: &'a Bytes,
    index: &Index,
    params: Option<Part>,
) -> Result<Option<(RequestMeta<'a>, &'a [u8])>, Failure> {
    let Some(params) = params else { return Ok(None) };
    let ([meta], _) = pick(line, index, params, ["_meta"]).map_err(|_| Failure::bad_params("_meta stands twice"))?;
    let Some(meta) = meta else { return Ok(None) };
    let meta = RequestMeta::read(meta.of(line));
    if meta.twice {
        return Err(Failure::bad_params("a key of _meta stands twice"));
    }
    Ok(meta.version.map(|version| (meta, version)))
}

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
pub(super) fn discover_result(offers: &Offers, instructions: &str) -> String {
    let versions: Vec<_> = Revision::ALL.iter().map(|revision| format!("\"{}\"", revision.as_str())).collect();
    let mut text = format!(r#""supportedVersions":[{}],"capabilities":"#, versions.join(","));
    push_offers(&mut text, offers, Revision::LATEST_MODERN, true);
    text.push_str(r#","ttlMs":60000,"cacheScope":"private""#);
    push_instructions(&mut text, instructions);
    text
}

/// A stream of change notifications that a host opened.
pub(super) struct Listen {
    /// The host's id, raw: the name of the stream (SUB-4).
    pub(super) id: Bytes,
    /// The kinds whose lists it asked for; templates come with resources.
    kinds: Vec<Kind>,
    /// The resources it asked for, in its own spelling.
    pub(super) resources: Vec<String>,
    /// The tasks it asked for, by the ids that we gave it.
    pub(super) tasks: Vec<String>,
}

/// The single things of a stream that are told of.
#[derive(Debug, Default)]
pub(super) struct Honoured {
    pub(super) resources: Vec<String>,
    pub(super) tasks: Vec<String>,
}

/// Resources and tasks of one stream, at most (OBS-3).
const MAX_SINGLES: usize = 1024;

impl Listen {
    /// Reads the raw params of `subscriptions/listen`; what is not served is left out of the answer (SUB-5). Tasks are
    /// for hosts that take them (TSK-3).
    pub(super) fn read(id: Bytes, params: &[u8], caller: &Caller) -> Result<Self, Failure> {
        let filter = json::members(params)
            .find(|entry| entry.is("notifications"))
            .filter(|entry| entry.value.starts_with(b"{"))
            .ok_or_else(|| Failure::bad_params("params.notifications must be an object"))?;
        let mut listen = Self { id, kinds: Vec::new(), resources: Vec::new(), tasks: Vec::new() };
        for entry in json::members(filter.value) {
            let kind = KINDS.iter().find(|(_, _, word)| entry.is(word)).map(|(kind, ..)| *kind);
            if let Some(kind) = kind.filter(|kind| entry.value == b"true" && !listen.kinds.contains(kind)) {
                listen.kinds.push(kind);
            } else if entry.is("resourceSubscriptions") && entry.value.starts_with(b"[") {
                push_texts(&mut listen.resources, entry.value);
            } else if entry.is("taskIds") {
                if !caller.capabilities.tasks {
                    return Err(Failure::undeclared_tasks());
                }
                push_texts(&mut listen.tasks, entry.value);
            }
        }
        if listen.resources.len() + listen.tasks.len() > MAX_SINGLES {
            return Err(Failure::limit("Too many resources and tasks for one listen stream"));
        }
        Ok(listen)
    }

    /// Leaves out the kinds that are not offered.
    pub(super) fn honour(&mut self, offers: &Offers) {
        self.kinds.retain(|&kind| offers.of(kind) == Some(true));
    }

    /// Whether it is about anything single, which must be asked of a server first.
    pub(super) fn has_singles(&self) -> bool {
        !self.resources.is_empty() || !self.tasks.is_empty()
    }

    /// Whether it is about the lists of this kind.
    pub(super) fn wants(&self, kind: Kind) -> bool {
        let kind = if kind == Kind::Template { Kind::Resource } else { kind };
        self.kinds.contains(&kind)
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

    /// The first message of the stream: what is honoured, of single things those given here (SUB-3).
    pub(super) fn acknowledged(&self, singles: &Honoured) -> Vec<u8> {
        let kinds = KINDS.iter().filter(|(kind, ..)| self.kinds.contains(kind));
        let mut honoured: Vec<_> = kinds.map(|(_, _, word)| format!("\"{word}\":true")).collect();
        for (word, names) in [("resourceSubscriptions", &singles.resources), ("taskIds", &singles.tasks)] {
            if !names.is_empty() {
                let names: Vec<_> = names.iter().map(|name| quoted(name)).collect();
                honoured.push(format!("\"{word}\":[{}]", names.join(",")));
            }
        }
        let filter = format!("\"notifications\":{{{}}},", honoured.join(","));
        self.tagged("subscriptions/acknowledged", &filter)
    }

    /// Tells that the list of a kind changed.
    pub(super) fn changed(&self, kind: Kind) -> Vec<u8> {
        self.tagged(list_changed(kind), "")
    }

    /// Tells that a resource changed, in the host's spelling.
    pub(super) fn updated(&self, uri: &str) -> Vec<u8> {
        self.tagged("resources/updated", &format!("\"uri\":{},", quoted(uri)))
    }

    /// Tells where a task stands now.
    pub(super) fn task(&self, state: &TaskState) -> Vec<u8> {
        let mut out = br#"{"jsonrpc":"2.0","method":"notifications/tasks","params":{"#.to_vec();
        write::task(&mut out, state);
        out.extend_from_slice(b"\"_meta\":{");
        out.extend_from_slice(&state.meta);
        out.extend_from_slice(format!("\"{SUBSCRIPTION_ID}\":").as_bytes());
        out.extend_from_slice(&self.id);
        out.extend_from_slice(b"}}}");
        out
    }

    /// The result that ends it (SUB-12).
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

/// Appends the texts of a raw array, each once, and one more than may be at most.
fn push_texts(out: &mut Vec<String>, array: &[u8]) {
    out.extend(json::elements(array).filter_map(json::text_of).map(Cow::into_owned).take(MAX_SINGLES + 1));
    out.sort();
    out.dedup();
}

/// The kinds that have lists of their own, the method that tells of their changes and the member that asks for it.
const KINDS: [(Kind, &str, &str); 3] = [
    (Kind::Tool, "tools/list_changed", "toolsListChanged"),
    (Kind::Prompt, "prompts/list_changed", "promptsListChanged"),
    (Kind::Resource, "resources/list_changed", "resourcesListChanged"),
];

/// What tells that lists of this kind changed, after `notifications/`.
pub(super) fn list_changed(kind: Kind) -> &'static str {
    match kind {
        Kind::Tool => KINDS[0].1,
        Kind::Prompt => KINDS[1].1,
        Kind::Resource | Kind::Template => KINDS[2].1,
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
        let caller = Caller::stdio(Revision::LATEST_MODERN);
        let mut listen = Listen::read(
            Bytes::from_static(b"\"L-1\""),
            br#"{"notifications":{"toolsListChanged":true,"promptsListChanged":true,"resourceSubscriptions":["x:1","x:2"]}}"#,
            &caller,
        )
        .unwrap();
        listen.honour(&Offers { tools: Some(true), ..Offers::default() });
        assert_eq!(
            String::from_utf8(listen.acknowledged(&Honoured { resources: vec!["x:2".to_owned()], tasks: vec![] }))
                .unwrap(),
            r#"{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["x:2"]},"_meta":{"io.modelcontextprotocol/subscriptionId":"L-1"}}}"#
        );
        assert!(listen.wants(Kind::Tool) && !listen.wants(Kind::Prompt) && !listen.wants(Kind::Template));
        assert!(Listen::read(Bytes::new(), b"{}", &caller).is_err());
    }
}
