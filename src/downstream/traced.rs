//! What a collector is told of a request to a server (OBS-1): one span for each attempt, ended by its answer.
//!
//! The words are `telemetry::otlp`'s; here they are filled in. Without a collector nothing of this is called.

use super::Fault;
use super::connection::Connection;
use super::held::Answer;
use super::server::Server;
use crate::config::settings::Reach;
use crate::protocol::call::{Call, Target};
use crate::protocol::json;
use crate::protocol::reply::Body;
use crate::telemetry::otlp::{Asking, Named, Parent, Towards};

/// Results up to this size are asked whether they say of themselves that the tool failed.
const MAX_ASKED: usize = 256 << 10;

/// A request is sent, under this native name and id.
pub(super) fn ask(
    parent: &Parent,
    server: &Server,
    connection: &Connection,
    (call, native): (&Call, &[u8]),
    id: u64,
) -> Asking {
    let text = json::text_of(native).unwrap_or_default();
    let named = match call.kind() {
        Target::Tool => Named::Tool(&text),
        Target::Prompt => Named::Prompt(&text),
        Target::Uri => Named::Uri(&text),
        Target::Task => Named::Nothing,
    };
    let remote = match &server.settings().reach {
        Ok(Reach::Remote(remote)) => {
            let host = remote.url.host_str().unwrap_or_default();
            // A name that a reference put in may be meant to stay among us.
            let is_told = !remote.secrets.iter().any(|secret| host.contains(secret.reveal()));
            Some((if is_told { host } else { "" }, remote.url.port_or_known_default().unwrap_or_default()))
        }
        Ok(Reach::Launch(_)) | Err(_) => None,
    };
    parent.ask(&Towards {
        method: call.method(),
        server: server.key().as_str(),
        named,
        revision: connection.revision(),
        id: Some(id),
        remote,
    })
}

/// Its answer has come, or none will.
pub(super) fn answered(asking: Asking, answered: Result<&Answer, &Fault>) {
    match answered.map(|answer| (answer, answer.reply.body)) {
        Ok((_, Body::Error(error))) => asking.answered(Some(error.code), false),
        Ok((answer, Body::Result(spans))) => {
            let whole = spans.whole.of(&answer.reply.line);
            let failed = whole.len() <= MAX_ASKED && json::member(whole, "isError") == Some(b"true");
            asking.answered(None, failed);
        }
        Err(fault) => match fault {
            Fault::Unavailable { .. } => asking.failed("unavailable", None),
            Fault::Timeout(_) => asking.failed("timeout", None),
            Fault::Invalid(_) => asking.failed("invalid_result", None),
            Fault::TooLarge { .. } => asking.failed("too_large", None),
            Fault::Limit(_) => asking.failed("limit", None),
            Fault::SignIn { status } => asking.failed(status.to_string(), None),
            Fault::SessionLost => asking.failed("session_lost", None),
            Fault::Refused { code, .. } => asking.failed(code.to_string(), Some(*code)),
        },
    }
}
