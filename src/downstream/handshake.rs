//! The first words with a server: which era it is of, which revision, what it can do (PRB-*).
//!
//! The probe never guesses from one code: whatever is no modern answer means legacy. Both eras' adapters are
//! here, as long as they differ in so little; what they say afterwards differs only in `_meta`
//! (`protocol/call.rs`).

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use super::Fault;
use super::connection::{Connection, Deadlines};
use crate::protocol::code;
use crate::protocol::meta;
use crate::protocol::method::Method;
use crate::protocol::reply::Body;
use crate::protocol::version::{Era, Revision};
use crate::telemetry::fields::shown;

/// What was agreed on.
#[derive(Clone, Debug)]
pub(super) struct Agreed {
    pub(super) revision: Revision,
    pub(super) tools: bool,
    pub(super) tools_list_changed: bool,
    pub(super) instructions: Option<String>,
}

/// What the probe found.
pub(super) enum Probe {
    Modern(Agreed),
    /// Anything but a modern answer (PRB-1); the revision to begin with, the newest that it named (PRB-3).
    Legacy(Revision),
    /// It ended: start it again, and do not probe (PRB-2).
    Died,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Announced {
    protocol_version: String,
    supported_versions: Vec<String>,
    capabilities: Capabilities,
    instructions: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Capabilities {
    tools: Option<Tools>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Tools {
    list_changed: bool,
}

impl Announced {
    fn read(json: &[u8]) -> Option<Self> {
        serde_json::from_slice(json).ok()
    }

    fn agreed(self, revision: Revision) -> Agreed {
        Agreed {
            revision,
            tools_list_changed: self.capabilities.tools.as_ref().is_some_and(|tools| tools.list_changed),
            tools: self.capabilities.tools.is_some(),
            instructions: self.instructions,
        }
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
        meta::push_protocol_keys(out, Revision::LATEST_MODERN);
        out.extend_from_slice(b"}}");
    });
    let answer = match asked {
        Ok(waiting) => waiting.uncancellable().answer().await,
        Err(fault) => Err(fault),
    };
    match answer {
        Ok(answer) => match answer.reply.body {
            Body::Result(spans) => match Announced::read(spans.whole.of(&answer.reply.line)) {
                Some(announced) => match newest(&announced.supported_versions, Era::Modern) {
                    Some(revision) => Probe::Modern(announced.agreed(revision)),
                    None => legacy(&announced.supported_versions),
                },
                None => legacy(&[]),
            },
            Body::Error(error) => {
                let data = error.data.map(|data| data.of(&answer.reply.line));
                match recognised(error.code, data) {
                    Some(agreed) => Probe::Modern(agreed),
                    None => legacy(&named(data)),
                }
            }
        },
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
/// taken to have tools; one that shares no modern revision with us is not (PRB-3).
fn recognised(error: i64, data: Option<&[u8]>) -> Option<Agreed> {
    let revision = match error {
        code::UNSUPPORTED_VERSION => newest(&named(data), Era::Modern)?,
        code::HEADER_MISMATCH | code::MISSING_CAPABILITY => Revision::LATEST_MODERN,
        _ => return None,
    };
    Some(Agreed { revision, tools: true, tools_list_changed: false, instructions: None })
}

/// Opens a legacy session, proposing a revision (PRB-9).
pub(super) async fn initialize(
    connection: &Arc<Connection>,
    proposed: Revision,
    limit: Duration,
) -> Result<Agreed, Fault> {
    let waiting = connection.request(Method::Initialize, Some(Deadlines::within(limit)), None, |out, _| {
        let params = format!(
            r#"{{"protocolVersion":"{}","capabilities":{{}},"clientInfo":{}}}"#,
            proposed.as_str(),
            meta::IMPLEMENTATION
        );
        out.extend_from_slice(params.as_bytes());
    })?;
    let answer = waiting.uncancellable().answer().await?;
    let line = &answer.reply.line;
    let announced = match answer.reply.body {
        Body::Result(spans) => Announced::read(spans.whole.of(line))
            .ok_or_else(|| Fault::Invalid("its answer to initialize is not an initialize result".to_owned()))?,
        Body::Error(error) => {
            let message = error.message.map_or_else(String::new, |message| shown(message.of(line)));
            return Err(Fault::Refused { code: error.code, message });
        }
    };
    let revision = Revision::parse(&announced.protocol_version).filter(|revision| revision.era() == Era::Legacy);
    let revision = revision.ok_or_else(|| {
        let version = shown(announced.protocol_version.as_bytes());
        Fault::Invalid(format!("it speaks the protocol revision {version:?}, which is not one of ours"))
    })?;
    connection.notify(Method::Initialized, "");
    Ok(announced.agreed(revision))
}

#[cfg(test)]
mod tests {
    use super::*;

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
