//! What a legacy server asks of its client: attributed to a request of a host, checked against what was declared to
//! the server, put to the gateway, and answered under the server's own id (REL-*, MLB-1). That a URL was opened is told
//! to the host that opened it (URL-1).
//!
//! Every question ends: by the host's answer, with the request that it belongs to, when the server withdraws it, or
//! when the user took too long. Knows nothing of how a host is asked; that is the gateway's.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use governor::clock::DefaultClock;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::connection::Connection;
use super::roots::Roots;
use crate::protocol::capability::{Capabilities, is_url};
use crate::protocol::code;
use crate::protocol::json::{self, Index, Span};
use crate::protocol::message::{Part, pick};
use crate::protocol::meta::RELATED_TASK;
use crate::protocol::method::Method;
use crate::protocol::version::{Era, Revision};
use crate::transport::upward::{Ask, AskAnswer, Upward};

/// How long a user may take (TMO-2).
pub const INPUT_LIMIT: Duration = Duration::from_secs(600);
/// Questions of one connection that are open, at most (REL-5).
const MAX_OPEN: usize = 5;
/// Questions in a minute, at most (REL-5).
const PER_MINUTE: std::num::NonZeroU32 = std::num::NonZeroU32::new(30).expect("invariant: not zero");
/// Longest answer to `roots/list` that is remembered.
const MAX_ROOTS: usize = 64 << 10;
/// URLs of one client that are opened, at most, and how long the name of one may be.
const MAX_URLS: usize = 64;
const MAX_URL_ID: usize = 1024;

/// The questions of the server of one client, over all its connections.
pub(super) struct Questions {
    /// What was declared to the server.
    capabilities: Capabilities,
    /// What of a host's roots it may be told.
    may_know: Roots,
    rate: RateLimiter<NotKeyed, InMemoryState, DefaultClock>,
    pub(super) tasks: TaskTracker,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    last: u64,
    open: Vec<Open>,
    /// The roots that the principal of this client gave last (REL-4).
    roots: Option<Bytes>,
    /// The URLs that hosts were told to open, by `elicitationId`, the oldest first; with the request that asked.
    urls: VecDeque<(Box<str>, Arc<Upward>)>,
}

struct Open {
    number: u64,
    /// The server's raw id.
    id: Bytes,
    /// Dropped when the server wants no answer any more.
    _withdraw: oneshot::Sender<()>,
}

impl Questions {
    pub(super) fn new(capabilities: Capabilities, may_know: Roots, tasks: TaskTracker) -> Arc<Self> {
        let rate = RateLimiter::direct(Quota::per_minute(PER_MINUTE));
        Arc::new(Self { capabilities, may_know, rate, tasks, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether anything may be asked.
    pub(super) fn are_possible(&self) -> bool {
        self.capabilities.may_be_asked()
    }

    /// The host's roots are others now.
    pub(super) fn forget_roots(&self) {
        self.state().roots = None;
    }

    /// A host is told to open a URL, which the server calls this: at the bound the oldest is forgotten. A name that is no
    /// text tells it from no other.
    fn opens(&self, url: &[u8], upward: &Arc<Upward>) {
        let id = json::member(url, "elicitationId").filter(|id| id.len() <= MAX_URL_ID).and_then(json::text_of);
        let Some(id) = id else { return };
        let urls = &mut self.state().urls;
        if urls.len() >= MAX_URLS {
            urls.pop_front();
        }
        urls.push_back((id.into(), Arc::clone(upward)));
    }

    /// The server withdraws a question (CAN-1).
    fn withdraw(&self, id: &[u8]) {
        self.state().open.retain(|open| open.id != id);
    }
}

/// Gives a question its place among the open ones; given back when dropped.
struct Place {
    connection: Arc<Connection>,
    questions: Arc<Questions>,
    number: u64,
    call: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.questions.state().open.retain(|open| open.number != self.number);
        self.connection.question_closes(self.call);
    }
}

/// A request of a legacy server; `stream` is the request of ours on whose stream it came, where there are such.
pub(super) fn take(
    connection: &Arc<Connection>,
    line: &Bytes,
    id: Span,
    method: Option<Method>,
    params: Option<Span>,
    stream: Option<u64>,
) {
    let raw_id = line.slice(id.range());
    let asked = match (method, connection.questions.get()) {
        (Some(method @ (Method::Roots | Method::Sample | Method::Elicit)), Some(questions)) => {
            let params = params.map(|params| line.slice(params.range())).filter(|params| params.starts_with(b"{"));
            ask(connection, questions, &raw_id, method, params, stream)
        }
        _ => Err(refusal(code::METHOD_NOT_FOUND, UNDECLARED)),
    };
    if let Err(error) = asked {
        connection.respond(&raw_id, "error", error.as_bytes());
    }
}

/// The task that something belongs to, by its raw `_meta` (REL-2).
pub(super) fn task_of(meta: &[u8]) -> Option<Cow<'_, str>> {
    json::text_of(json::member(json::member(meta, RELATED_TASK)?, "taskId")?)
}

const UNDECLARED: &str = "this client did not declare that capability";

fn refusal(code: i64, message: &str) -> String {
    format!(r#"{{"code":{code},"message":"{message}"}}"#)
}

fn ask(
    connection: &Arc<Connection>,
    questions: &Arc<Questions>,
    id: &Bytes,
    method: Method,
    params: Option<Bytes>,
    stream: Option<u64>,
) -> Result<(), String> {
    let server = &connection.key;
    questions.capabilities.permit(method, params.as_deref()).map_err(|code| refusal(code, UNDECLARED))?;
    let busy = || {
        tracing::warn!(%server, "it asks more than it may; refused");
        refusal(code::INTERNAL_ERROR, "too many requests of this server are open or were made in the last minute")
    };
    if questions.rate.check().is_err() || questions.state().open.len() >= MAX_OPEN {
        return Err(busy());
    }
    let task = params.as_deref().and_then(|params| json::member(params, "_meta")).and_then(task_of);
    let Some(request) = connection.attribute(stream, task.as_deref(), true) else {
        // REL-3, REL-4: it asks on its own account.
        let roots = questions.state().roots.clone();
        return match roots.filter(|_| method == Method::Roots) {
            Some(roots) => {
                connection.respond(id, "result", &roots);
                Ok(())
            }
            None => Err(refusal(code::INTERNAL_ERROR, "this belongs to no request of this client that can be told")),
        };
    };
    let Some(over) = connection.question_opens(request.id) else {
        return Err(refusal(code::INTERNAL_ERROR, "the request that this belongs to is over"));
    };
    let url = params.clone().filter(|params| method == Method::Elicit && is_url(Some(params)));
    let (reply, answer) = oneshot::channel();
    let (withdraw, withdrawn) = oneshot::channel();
    let number = {
        let mut state = questions.state();
        state.last += 1;
        let number = state.last;
        state.open.push(Open { number, id: id.clone(), _withdraw: withdraw });
        number
    };
    let place =
        Place { connection: Arc::clone(connection), questions: Arc::clone(questions), number, call: request.id };
    if request.upward.push_ask(Ask { method, params, reply }).is_err() {
        // In this order, so that the clock of the request goes on.
        drop(over);
        drop(place);
        return Err(busy());
    }
    if let Some(url) = url {
        questions.opens(&url, &request.upward);
    }
    let id = id.clone();
    questions.tasks.spawn(async move {
        let Place { connection, questions, .. } = &place;
        let answer = tokio::select! {
            biased;
            () = connection.closed.cancelled() => return,
            _ = withdrawn => return,
            answer = timeout(INPUT_LIMIT, answer) => answer.ok().and_then(Result::ok),
            _ = over => None,
        };
        respond(connection, questions, &id, method, answer);
    });
    Ok(())
}

/// Answers the server in the words of its revision.
fn respond(connection: &Connection, questions: &Questions, id: &[u8], method: Method, answer: Option<AskAnswer>) {
    let revision = connection.revision();
    match answer {
        Some(AskAnswer::Result(mut result)) if result.starts_with(b"{") => {
            if method == Method::Roots {
                result = questions.may_know.told(&result).map_or(result, Bytes::from);
                if result.len() <= MAX_ROOTS {
                    questions.state().roots = Some(result.clone());
                }
            }
            match sampled(method, &result, revision) {
                Ok(None) => connection.respond(id, "result", &result),
                Ok(Some(result)) => connection.respond(id, "result", &result),
                Err(()) => {
                    let error = refusal(code::INTERNAL_ERROR, "the answer has no form in this revision");
                    connection.respond(id, "error", error.as_bytes());
                }
            }
        }
        Some(AskAnswer::Error(error)) if error.starts_with(b"{") => connection.respond(id, "error", &error),
        // Nobody answered, or with what is no answer (MLB-7).
        _ if method == Method::Elicit => connection.respond(id, "result", br#"{"action":"cancel"}"#),
        _ => {
            let code = if method == Method::Sample { code::REJECTED_BY_USER } else { code::INTERNAL_ERROR };
            connection.respond(id, "error", refusal(code, "nobody answered").as_bytes());
        }
    }
}

/// Before 2025-11-25 what a model said is one block: several texts become one (§15.4). `Ok(None)` = as it is.
fn sampled(method: Method, result: &[u8], revision: Revision) -> Result<Option<Vec<u8>>, ()> {
    let content = json::members(result).find(|entry| entry.is("content") && entry.value.starts_with(b"["));
    let Some(content) = content.filter(|_| method == Method::Sample && revision < Revision::V2025_11_25) else {
        return Ok(None);
    };
    let blocks: Vec<_> = json::elements(content.value).collect();
    let mut out = result[..content.at].to_vec();
    if let [block] = blocks[..] {
        out.extend_from_slice(block);
    } else {
        let mut text = String::new();
        for block in &blocks {
            let is_text = json::members(block).any(|entry| entry.is("type") && entry.value == b"\"text\"");
            let said = json::member(block, "text").and_then(json::text_of);
            text.push_str(&said.filter(|_| is_text).ok_or(())?);
        }
        out.extend_from_slice(br#"{"type":"text","text":"#);
        json::push_string(&mut out, &text);
        out.push(b'}');
    }
    out.extend_from_slice(&result[content.at + content.value.len()..]);
    Ok(Some(out))
}

/// A legacy server answers a request with an error that wants URLs opened first: what is told of them is for the host
/// of that request (URL-1).
pub(super) fn refused_for_urls(connection: &Connection, id: u64, data: &[u8]) {
    let Some(questions) = connection.questions.get().filter(|_| connection.modern().is_none()) else { return };
    let Some(upward) = connection.upward_of(id) else { return };
    if let Some(urls) = json::member(data, "elicitations") {
        json::elements(urls).take(MAX_OPEN).for_each(|url| questions.opens(url, &upward));
    }
}

/// What a legacy server had a URL opened for is done: told to the host that was to open it and to nobody else, also
/// when its request is over (URL-1). One that no host was told to open is nothing to anybody.
pub(super) fn opened(connection: &Connection, line: &Bytes, index: &Index, params: Option<Part>) {
    let (Some(params), Some(questions)) = (params, connection.questions.get()) else { return };
    let Ok(([Some(id)], _)) = pick(line, index, params, ["elicitationId"]) else { return };
    let id = id.of(line);
    let Some(name) = json::text_of(id) else { return };
    let found = {
        let urls = &mut questions.state().urls;
        let at = urls.iter().position(|(known, _)| **known == *name);
        at.and_then(|at| urls.remove(at))
    };
    if let Some((_, upward)) = found {
        upward.push_opened(Bytes::copy_from_slice(id));
    }
}

/// A legacy server no longer wants an answer; a modern one cancels nothing that we know (CAN-4).
pub(super) fn cancelled(connection: &Connection, line: &Bytes, index: &Index, params: Option<Part>) {
    let (Some(params), Some(questions)) = (params, connection.questions.get()) else { return };
    if connection.revision().era() == Era::Legacy
        && let Ok(([Some(id)], _)) = pick(line, index, params, ["requestId"])
    {
        questions.withdraw(id.of(line));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_model_said_is_one_block_for_older_servers() {
        let said = |result: &str, revision| {
            sampled(Method::Sample, result.as_bytes(), revision).map(|out| out.map(|o| String::from_utf8(o).unwrap()))
        };
        let old = Revision::V2025_06_18;
        let one = r#"{"role":"assistant","content":[{"type":"image","data":"x"}],"model":"m"}"#;
        assert_eq!(
            said(one, old).unwrap().unwrap(),
            r#"{"role":"assistant","content":{"type":"image","data":"x"},"model":"m"}"#
        );
        assert_eq!(said(one, Revision::V2025_11_25), Ok(None));
        let texts = r#"{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"model":"m"}"#;
        assert_eq!(said(texts, old).unwrap().unwrap(), r#"{"content":{"type":"text","text":"ab"},"model":"m"}"#);
        assert_eq!(said(r#"{"content":[{"type":"text","text":"a"},{"type":"tool_use"}]}"#, old), Err(()));
        assert_eq!(said(r#"{"content":{"type":"text","text":"a"}}"#, old), Ok(None));
    }

    #[test]
    fn url1_a_name_that_is_no_text_is_no_name() {
        let questions = Questions::new(Capabilities::default(), Roots::new(&Default::default()), TaskTracker::new());
        let upward = Arc::new(Upward::default());
        let names = || questions.state().urls.iter().map(|(name, _)| name.to_string()).collect::<Vec<_>>();
        for id in [r#""\ud800""#, "1", "null"] {
            questions.opens(format!(r#"{{"elicitationId":{id}}}"#).as_bytes(), &upward);
        }
        assert_eq!(names(), [""; 0]);
        questions.opens(br#"{"elicitationId":"\u0065-1"}"#, &upward);
        assert_eq!(names(), ["e-1"]);
    }
}
