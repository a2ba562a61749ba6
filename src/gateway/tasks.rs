//! Tasks of modern servers, for modern hosts that take them (TSK-1 … TSK-5): their ids as hosts see them, and the way of
//! what is asked and told of them.
//!
//! An id of ours is a seal that names server, task, tool and caller, so nothing is kept of tasks here and ids outlive a
//! restart. What tasks of the older design need is done in `downstream`; servers that ask back in their own way are the
//! bridge's. Called by [`super::invoke`] and by the adapters of `upstream`.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::bridge::{missing, questions};
use super::invoke::within;
use super::invoke::{check, unpassable};
use super::recorded::Trace;
use super::seal::Purpose;
use super::{Failure, Gateway, Held, Outcome, Updates};
use crate::caller::Caller;
use crate::config::settings::OverrideSettings;
use crate::downstream::{Answer, Fault, Item, Topic};
use crate::ident::Kind;
use crate::policy::{Charge, Permit, Refusal};
use crate::protocol::call::{Call, Input};
use crate::protocol::code;
use crate::protocol::json;
use crate::protocol::meta;
use crate::protocol::method::Method;
use crate::protocol::reply::Body;
use crate::transport::upward::Upward;

/// What our ids begin with, so that people know them.
const PREFIX: &str = "t1.";
/// The shape of [`Handle`]; another one does not open.
const VERSION: u8 = 1;
/// Longest id of a server: ours stands in headers.
const MAX_ID: usize = 2 << 10;
/// Longest error of a server that is passed whole (ERR-4).
const MAX_ERROR: usize = 64 << 10;

/// What an id of ours holds (TSK-1).
#[derive(Serialize, Deserialize)]
struct Handle {
    version: u8,
    server: String,
    /// The server's own id.
    native: String,
    principal: String,
    /// The native name of the tool that was called.
    tool: String,
    issued: u64,
}

/// A task that a host may know of.
struct Task {
    server: usize,
    native: String,
    permit: Permit,
}

/// Where a task stands, or what came of a request about it, as a modern host gets it.
pub struct TaskState {
    /// The type of the result.
    pub kind: &'static str,
    /// Raw members, each followed by a comma.
    pub members: Vec<u8>,
    /// What came of the task: a raw result of a call.
    pub result: Option<Bytes>,
    /// Raw members of `_meta`, each followed by a comma.
    pub meta: Vec<u8>,
}

impl Gateway {
    /// A modern server made a task of a call; `tool` is its native name, a raw string. The task is there, so the host
    /// is told at once, and nothing is kept (TSK-4).
    pub(super) fn made_task(
        &self,
        answer: &Answer,
        caller: &Caller,
        server: usize,
        tool: &[u8],
    ) -> Result<Outcome, Failure> {
        let key = self.servers[server].key();
        let Body::Result(spans) = answer.reply.body else { return Err(Failure::unknown_task()) };
        let line = &answer.reply.line;
        let object = spans.whole.of(line);
        let native = json::members(object).find(|entry| entry.is("taskId")).and_then(|id| json::text_of(id.value));
        let native = native.filter(|native| native.len() <= MAX_ID);
        let native = native.ok_or_else(|| Failure::invalid_result(key, "it made a task without a usable id"))?;
        let issued = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let handle = Handle {
            version: VERSION,
            server: key.to_string(),
            native: native.into_owned(),
            principal: caller.principal.to_string(),
            tool: json::text_of(tool).unwrap_or_default().into_owned(),
            issued: issued.as_secs(),
        };
        // Letters, digits, `-`, `_` and the dot: it needs no escape.
        let exposed = format!("\"{PREFIX}{}\"", self.seal.seal(Purpose::Task, &handle));
        let state = self.state_of("task", caller, server, exposed.as_bytes(), line, object);
        state.map(Outcome::Task).map_err(|why| Failure::invalid_result(key, why))
    }

    /// The task of an id that this caller was given, unless its tool must not be known any more (TSK-1, TSK-5).
    fn open_task(
        &self,
        exposed: &str,
        caller: &Caller,
        charge: Charge,
        trace: &mut Trace<'_>,
    ) -> Option<Result<Task, (usize, Refusal)>> {
        let handle: Handle = self.seal.open(Purpose::Task, exposed.strip_prefix(PREFIX)?)?;
        if handle.version != VERSION || handle.principal != caller.principal.as_str() {
            return None;
        }
        let server = self.place_of(&handle.server)?;
        let key = self.servers[server].key();
        let hidden = |change: &OverrideSettings| change.hide && change.native == handle.tool;
        if !self.lists.show(self.sight_of(caller)).exposes(server, key, Kind::Tool, &handle.tool)
            || self.lists.overrides_of(server).iter().any(hidden)
        {
            self.note_hidden(trace, caller, (server, Kind::Tool, &handle.tool));
            return None;
        }
        trace.item(&self.servers[server], Kind::Tool, &handle.tool);
        let permit = self.admit_task(caller, server, &handle.tool, charge, trace)?;
        Some(permit.map(|permit| Task { server, native: handle.native, permit }))
    }

    /// Serves a request about a task. Dropping the future cancels it.
    pub async fn task(&self, call: &Call, caller: &Caller, upward: Arc<Upward>) -> Result<Outcome, Failure> {
        let mut trace = self.trace(call, caller);
        let outcome = self.asked_of_task(call, caller, upward, &mut trace).await;
        trace.ended(&outcome);
        outcome
    }

    async fn asked_of_task(
        &self,
        call: &Call,
        caller: &Caller,
        upward: Arc<Upward>,
        trace: &mut Trace<'_>,
    ) -> Result<Outcome, Failure> {
        if !caller.capabilities.tasks {
            return Err(Failure::undeclared_tasks());
        }
        if let Some(after) = self.policy.is_flooding(&caller.principal) {
            self.note_flood(trace);
            return Err(Failure::flood(after));
        }
        let task = json::text_of(call.target()).and_then(|id| self.open_task(&id, caller, Charge::Server, trace));
        let Task { server: index, native, permit } = match task {
            Some(Ok(task)) => task,
            Some(Err(refusal)) => return Err(self.refused_task(&refusal)),
            None => {
                self.policy.count_unknown(&caller.principal);
                self.note_unseen(trace);
                return Err(Failure::unknown_task());
            }
        };
        let input = if call.method() == Method::TasksUpdate {
            let responses = call.input().responses;
            let bad = || Failure::bad_params("params.inputResponses must be an object");
            Some(Input { responses: Some(responses.ok_or_else(bad)?), state: None })
        } else {
            None
        };
        let server = &self.servers[index];
        let caller = &*self.lists.granted(caller, index);
        let mut raw = Vec::with_capacity(native.len() + 2);
        json::push_string(&mut raw, &native);
        let parent = trace.parent();
        let item = Item { native: &raw, mirror: &[], task: false, timeout: None, parent: parent.as_ref() };
        let most = permit.max_result();
        trace.sent(server);
        let asked = server.ask(permit, call, item, input, caller, upward).await;
        trace.back();
        let answer = match asked.and_then(|answer| within(most, &answer).map(|()| answer)) {
            Ok(answer) => answer,
            Err(Fault::Refused { .. }) => return Err(Failure::unknown_task()),
            Err(fault) => return Err(Failure::of_server(server.key(), &fault)),
        };
        let line = &answer.reply.line;
        match answer.reply.body {
            Body::Error(error) if error.code == code::MISSING_CAPABILITY => {
                Err(missing(server.key(), caller.revision, &caller.capabilities, &answer, &error))
            }
            // In our words, as the server's own may name its id.
            Body::Error(error) if error.code == code::INVALID_PARAMS => {
                let names_it = memchr::memmem::find(error.whole.of(line), native.as_bytes()).is_some();
                if call.method() == Method::TasksUpdate && !names_it {
                    return Ok(Outcome::Error(answer, error));
                }
                Err(Failure::unknown_task())
            }
            Body::Error(_) => check(server.key(), answer, caller.revision),
            Body::Result(spans) => {
                let kind = spans.result_type.map(|field| field.value.of(line));
                let state = match kind {
                    None | Some(b"\"complete\"") => {
                        self.state_of("complete", caller, index, call.target(), line, spans.whole.of(line))
                    }
                    Some(_) => Err("the type of its result is none of a task"),
                };
                state.map(Outcome::Task).map_err(|why| {
                    tracing::warn!(server = %server.key(), why, "where a task stands is not passed on");
                    Failure::invalid_result(server.key(), why)
                })
            }
        }
    }

    /// Has `updates` told of a task, by the id that the host used. Nothing comes of it where its server does not tell.
    pub async fn watch_task(
        &self,
        exposed: &str,
        caller: &Caller,
        updates: &Arc<Updates>,
    ) -> Result<Option<Held>, Failure> {
        let mut trace = self.trace_of(caller, Method::Listen, exposed);
        let held = self.watched(exposed, caller, updates, &mut trace).await;
        trace.held(&held);
        held
    }

    async fn watched(
        &self,
        exposed: &str,
        caller: &Caller,
        updates: &Arc<Updates>,
        trace: &mut Trace<'_>,
    ) -> Result<Option<Held>, Failure> {
        let Some(Ok(task)) = self.open_task(exposed, caller, Charge::Nothing, trace) else {
            self.note_unseen(trace);
            return Ok(None);
        };
        if self.lists.offers_of(task.server).is_none() {
            self.lists.settle_server(task.server, Kind::Tool, Instant::now() + self.settings.list_deadline).await;
        }
        if !self.lists.offers_of(task.server).is_some_and(|offers| offers.tasks) {
            return Ok(None);
        }
        let server = &self.servers[task.server];
        let place = (task.server, Topic::Task, &*task.native);
        let held = self.subscriptions.subscribe(place, server.source(), (caller, exposed), updates).await;
        held.map_err(|fault| Failure::of_server(server.key(), &fault))
    }

    /// What a server told of a task, for the host that watches it under this id; nothing when it must not be told.
    pub fn task_news(&self, exposed: &str, caller: &Caller, state: &Bytes) -> Option<TaskState> {
        // The watching is in the record, not each news of it.
        let task = self.open_task(exposed, caller, Charge::Nothing, &mut Trace::silent())?.ok()?;
        let mut id = Vec::with_capacity(exposed.len() + 2);
        json::push_string(&mut id, exposed);
        let told = self.state_of("complete", caller, task.server, &id, state, state);
        told.inspect_err(|why| tracing::warn!(server = %self.servers[task.server].key(), why, "news of a task")).ok()
    }

    /// A raw task object, a part of `line`, as this host gets it under this id, a raw string (TSK-2).
    fn state_of(
        &self,
        kind: &'static str,
        caller: &Caller,
        server: usize,
        exposed: &[u8],
        line: &Bytes,
        object: &[u8],
    ) -> Result<TaskState, &'static str> {
        let key = self.servers[server].key();
        let mut state = TaskState { kind, members: Vec::new(), result: None, meta: Vec::new() };
        for entry in json::members(object) {
            let is_object = entry.value.starts_with(b"{");
            let changed;
            let value = if entry.is("resultType") {
                continue;
            } else if entry.is("_meta") {
                meta::push_passing(&mut state.meta, entry.value);
                continue;
            } else if entry.is("result") && is_object {
                let result = self.localised(entry.value, Method::ToolsCall, caller, server);
                state.result = Some(match result {
                    Some(result) => result.into(),
                    None => line.slice_ref(entry.value),
                });
                continue;
            } else if entry.is("taskId") {
                exposed
            } else if entry.is("inputRequests") && is_object {
                let localise = |method, params: &[u8]| self.localise_question(method, params, caller, server);
                changed = questions(line, entry.value, key, &caller.capabilities, localise)?;
                &changed
            } else if entry.is("error") && is_object {
                match self.error_of(server, caller, entry.value) {
                    Some(error) => {
                        changed = error;
                        &changed
                    }
                    None => entry.value,
                }
            } else {
                entry.value
            };
            state.members.push(b'"');
            state.members.extend_from_slice(entry.key);
            state.members.extend_from_slice(b"\":");
            state.members.extend_from_slice(value);
            state.members.push(b',');
        }
        Ok(state)
    }

    /// What a host gets instead of the raw error in which a task ended; nothing when that passes (§16.2).
    fn error_of(&self, server: usize, caller: &Caller, error: &[u8]) -> Option<Vec<u8>> {
        let key = self.servers[server].key();
        let find = |name| json::members(error).find(|entry| entry.is(name)).map(|entry| entry.value);
        let number = find("code").and_then(|code| std::str::from_utf8(code).ok()).and_then(|code| code.parse().ok());
        let message = find("message").and_then(json::text_of);
        let failure = match (number, &message) {
            (Some(code), Some(message)) => unpassable(key, code, Some(message), find("data"), caller.revision)
                .or_else(|| (error.len() > MAX_ERROR).then(|| Failure::within(code, message, find("data"))))?,
            _ => Failure::invalid_result(key, "the error of its task is none"),
        };
        let mut out = Vec::new();
        failure.push(&mut out);
        Some(out)
    }
}
