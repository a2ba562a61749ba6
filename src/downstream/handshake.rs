//! The first words with a server: which era it is of, which revision, what it can do (PRB-*).
//!
//! The probe never guesses from one code: whatever is no modern answer means legacy. Both eras' adapters are
//! here, as long as they differ in so little; what they say afterwards differs only in `_meta`
//! (`protocol/call.rs`).

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;

use super::connection::{Connection, Deadlines};
use super::{Fault, Offers};
use crate::protocol::capability::Capabilities;
use crate::protocol::code;
use crate::protocol::json;
use crate::protocol::meta;
use crate::protocol::method::Method;
use crate::protocol::reply::Body;
use crate::protocol::version::{Era, Revision};
use crate::shown::shown;

/// What a server said of itself when it was first spoken to.
#[derive(Debug, Default)]
pub struct Introduction {
    /// Its name.
    pub name: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// What it can do: a raw object, where it said so.
    pub capabilities: Option<Bytes>,
    /// The revision that was agreed on.
    pub protocol: &'static str,
}

/// What was agreed on.
#[derive(Clone, Debug)]
pub(super) struct Agreed {
    pub(super) revision: Revision,
    pub(super) offers: Offers,
    /// It also speaks a revision of the legacy era.
    pub(super) dual: bool,
    pub(super) instructions: Option<String>,
    pub(super) introduction: Arc<Introduction>,
}

/// What the probe found.
pub(super) enum Probe {
    Modern(Agreed),
    /// Anything but a modern answer (PRB-1); the revision to begin with, the newest that it named (PRB-3).
    Legacy(Revision),
    /// It ended: start it again, and do not probe (PRB-2).
    Died,
    /// It could not be asked, which says nothing of its era (PRB-6).
    Unknown(Fault),
}

/// What a server says of itself. A member of another kind than it should be counts as absent: nothing that is said
/// beside the revision is worth refusing a server for.
#[derive(Default)]
struct Announced {
    protocol_version: Option<String>,
    supported_versions: Vec<String>,
    offers: Offers,
    instructions: Option<String>,
    introduction: Introduction,
}

impl Announced {
    /// Reads a result object.
    fn read(json: &[u8]) -> Self {
        let text = |value| json::text_of(value).map(Cow::into_owned);
        let mut announced = Self::default();
        for entry in json::members(json) {
            if entry.is("protocolVersion") {
                announced.protocol_version = text(entry.value);
            } else if entry.is("supportedVersions") {
                announced.supported_versions = json::elements(entry.value).filter_map(text).collect();
            } else if entry.is("instructions") {
                announced.instructions = text(entry.value);
            } else if entry.is("capabilities") {
                announced.offers = Offers::read(entry.value);
                announced.introduction.capabilities = Some(Bytes::copy_from_slice(entry.value));
            } else if entry.is("serverInfo") {
                announced.introduce(entry.value);
            } else if entry.is("_meta") {
                json::member(entry.value, meta::SERVER_INFO).into_iter().for_each(|info| announced.introduce(info));
            }
        }
        announced
    }

    fn introduce(&mut self, info: &[u8]) {
        let text = |name| json::member(info, name).and_then(json::text_of).map(Cow::into_owned);
        (self.introduction.name, self.introduction.version) = (text("name"), text("version"));
    }

    fn agreed(self, revision: Revision) -> Agreed {
        let dual = newest(&self.supported_versions, Era::Legacy).is_some();
        let mut offers = self.offers;
        // It had no word for that.
        offers.completions |= revision == Revision::V2024_11_05;
        // Two designs that share a word: each is of its own revision.
        offers.tasks &= revision.era() == Era::Modern;
        offers.task_calls &= revision == Revision::V2025_11_25;
        let introduction = Arc::new(Introduction { protocol: revision.as_str(), ..self.introduction });
        Agreed { revision, offers, dual, instructions: self.instructions, introduction }
    }
}

#[derive(Deserialize)]
struct Supported {
    supported: Vec<String>,
}

/// The newest revision of an era among dates.
fn newest(dates: &[String], era: Era) -> Option<Revision> {
    dates.iter().filter_map(|date| Revision::parse(date)).filter(|revision| revision.era() == era).max()
}

/// Asks `server/discover`.
pub(super) async fn probe(connection: &Arc<Connection>, limit: Duration) -> Probe {
    let asked = connection.request(Method::Discover, Some(Deadlines::within(limit)), None, |out, _| {
        out.extend_from_slice(b"{\"_meta\":{");
        meta::push_own_keys(out, Revision::LATEST_MODERN);
        out.extend_from_slice(b"}}");
    });
    let answer = match asked {
        Ok(waiting) => waiting.uncancellable().answer().await,
        Err(fault) => Err(fault),
    };
    match answer {
        Ok(answer) => match answer.reply.body {
            Body::Result(spans) => {
                let announced = Announced::read(spans.whole.of(&answer.reply.line));
                match newest(&announced.supported_versions, Era::Modern) {
                    Some(revision) => Probe::Modern(announced.agreed(revision)),
                    None => legacy(&announced.supported_versions),
                }
            }
            Body::Error(error) => {
                let data = error.data.map(|data| data.of(&answer.reply.line));
                match recognised(error.code, data) {
                    Some(agreed) => Probe::Modern(agreed),
                    None => legacy(&named(data)),
                }
            }
        },
        Err(fault @ (Fault::Unavailable { .. } | Fault::SignIn { .. })) if connection.http().is_some() => {
            Probe::Unknown(fault)
        }
        Err(Fault::Unavailable { .. }) => Probe::Died,
        Err(_) => legacy(&[]),
    }
}

fn legacy(dates: &[String]) -> Probe {
    Probe::Legacy(newest(dates, Era::Legacy).unwrap_or(Revision::LATEST_LEGACY))
}

/// The revisions that an error names.
fn named(data: Option<&[u8]>) -> Vec<String> {
    let supported = data.and_then(|data| serde_json::from_slice::<Supported>(data).ok());
    supported.map_or_else(Vec::new, |supported| supported.supported)
}

/// The three errors that only a modern server gives. It is modern, but told nothing of what it can do, so it is
/// asked for everything; one that shares no modern revision with us is not (PRB-3).
fn recognised(error: i64, data: Option<&[u8]>) -> Option<Agreed> {
    let dual = newest(&named(data), Era::Legacy).is_some();
    let revision = match error {
        code::UNSUPPORTED_VERSION => newest(&named(data), Era::Modern)?,
        code::HEADER_MISMATCH | code::MISSING_CAPABILITY => Revision::LATEST_MODERN,
        _ => return None,
    };
    let introduction = Arc::new(Introduction { protocol: revision.as_str(), ..Introduction::default() });
    Some(Agreed { revision, offers: Offers::unknown(), dual, instructions: None, introduction })
}

/// Opens a legacy session, proposing a revision (PRB-9).
pub(super) async fn initialize(
    connection: &Arc<Connection>,
    proposed: Revision,
    capabilities: &Capabilities,
    limit: Duration,
) -> Result<Agreed, Fault> {
    let waiting = connection.request(Method::Initialize, Some(Deadlines::within(limit)), None, |out, _| {
        let version = format!(r#"{{"protocolVersion":"{}","capabilities":"#, proposed.as_str());
        out.extend_from_slice(version.as_bytes());
        capabilities.push(out, proposed);
        out.extend_from_slice(format!(r#","clientInfo":{}}}"#, meta::IMPLEMENTATION).as_bytes());
    })?;
    let answer = waiting.uncancellable().answer().await?;
    let line = &answer.reply.line;
    let announced = match answer.reply.body {
        Body::Result(spans) => Announced::read(spans.whole.of(line)),
        Body::Error(error) => {
            // PRB-5: modern, without discovery.
            if let Some(agreed) = recognised(error.code, error.data.map(|data| data.of(line))) {
                return Ok(agreed);
            }
            let message = error
                .message
                .map_or_else(String::new, |message| connection.mask.shown(&String::from_utf8_lossy(message.of(line))));
            return Err(Fault::Refused { code: error.code, message });
        }
    };
    let version = announced.protocol_version.as_deref().unwrap_or_default();
    let revision = Revision::parse(version).filter(|revision| revision.era() == Era::Legacy);
    let revision = revision.ok_or_else(|| {
        let version = shown(version.as_bytes());
        Fault::Invalid(format!("it speaks the protocol revision {version:?}, which is not one of ours"))
    })?;
    // Set once: what follows is of this revision.
    let _ = connection.revision.set(revision);
    connection.notify_now(Method::Initialized, "").await?;
    Ok(announced.agreed(revision))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_of_a_wrong_kind_costs_no_server() {
        for (capabilities, tools, changes) in [
            (r#"{"tools":{}}"#, true, false),
            (r#"{"tools":{"listChanged":true}}"#, true, true),
            (r#"{"tools":{"listChanged":null}}"#, true, false),
            (r#"{"tools":{"listChanged":"yes"}}"#, true, false),
            (r#"{"tools":true}"#, true, false),
            (r#"{"tools":null}"#, false, false),
            ("null", false, false),
        ] {
            let text = format!(r#"{{"protocolVersion":"2025-06-18","capabilities":{capabilities},"instructions":5}}"#);
            let read = Announced::read(text.as_bytes());
            assert_eq!(read.protocol_version.as_deref(), Some("2025-06-18"));
            let expected = tools.then_some(changes);
            assert_eq!((read.offers.tools, read.instructions), (expected, None), "{capabilities}");
        }
        let read = Announced::read(br#"{"supportedVersions":[1,"2026-07-28",null]}"#);
        assert_eq!(read.supported_versions, ["2026-07-28"]);
        assert_eq!(read.protocol_version, None);
    }

    #[test]
    fn prb1_only_modern_errors_make_a_server_modern() {
        for (error, data, modern) in [
            (-32022, Some(&br#"{"supported":["2026-07-28","2025-11-25"]}"#[..]), true),
            (-32022, Some(br#"{"supported":["2025-11-25"]}"#), false),
            (-32022, None, false),
            (-32021, None, true),
            (-32020, None, true),
            (-32601, Some(br#"{"supported":["2026-07-28"]}"#), false),
            (-32602, None, false),
            (-32000, None, false),
            (-32600, None, false),
        ] {
            assert_eq!(recognised(error, data).is_some(), modern, "{error}");
        }
    }
}
