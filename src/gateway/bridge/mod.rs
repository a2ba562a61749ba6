//! Servers that ask back: the four cells of host era and server era (§12), and nothing else of a call's way.
//!
//! A modern server's `input_required` passes to a modern host under a state of ours (MRT-*), and becomes questions to
//! a legacy one, which we carry back (LMB-*). A legacy server's questions are relayed to a legacy host (REL-*), and
//! suspend the call of a modern one (MLB-*). Called by `gateway/invoke.rs`; who may ask what was checked below, and
//! by [`required`].
//!
//! Long, and one thing: the rounds of all four cells end in the same outcome.

mod convert;
mod required;
mod state;
mod suspended;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::task::TaskTracker;

use super::seal::Seal;
use super::{Failure, Gateway, Outcome};
use crate::caller::Caller;
use crate::downstream::{Answer, Fault, INPUT_LIMIT, Item, Pending, Server};
use crate::ident::{Principal, ServerKey};
use crate::policy::Permit;
use crate::protocol::call::{Call, Input as Given};
use crate::protocol::capability::Capabilities;
use crate::protocol::code;
use crate::protocol::json;
use crate::protocol::method::Method;
use crate::protocol::reply::{Body, ErrorSpans};
use crate::protocol::version::{Era, Revision};
use crate::transport::upward::{Ask, AskAnswer, Upward};
use convert::{Question, question};
pub use required::Input;
use required::Required;
pub(super) use required::questions;
use state::{Kind, States};
use suspended::{Suspended, Table};

/// Rounds of one call, at most (LMB-5, MLB-6).
const MAX_ROUNDS: u8 = 16;
/// How often a call is sent again for a URL, at most (URL-1).
const MAX_REPLAYS: u8 = 5;
/// A legacy server's questions that come together are asked together (MLB-2).
const COLLECT: Duration = Duration::from_millis(20);
/// A server that only wants to be asked again is, after this, doubling up to the other (LMB-5).
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// URLs of one error that are asked for, at most.
const MAX_URLS: usize = 32;

const CANCEL: &[u8] = br#"{"action":"cancel"}"#;

/// What the bridge keeps between requests.
pub(super) struct Bridge {
    states: States,
    suspended: Arc<Table>,
    /// Which of several processes that share a seal key this is; another one after each start (MLB-9).
    replica: u64,
}

impl Bridge {
    /// Its tasks belong to `tasks`, and end when it is stopped.
    pub(super) fn new(tasks: &TaskTracker) -> Self {
        let replica = getrandom::u64().expect("invariant: the system gives random bytes");
        Self { states: States::new(), suspended: Arc::new(Table::new(tasks.clone())), replica }
    }

    pub(super) fn stop(&self) {
        self.suspended.stop();
    }

    /// The state of ours that a host comes back with for the first time: the same logical call as before (contract §4).
    /// One that shows a state again and again makes new calls of it.
    pub(super) fn further_round<'c>(
        &self,
        seal: &Seal,
        server: &ServerKey,
        caller: &Caller,
        call: &'c Call,
    ) -> Option<&'c [u8]> {
        let state = call.input().state.filter(|_| caller.revision.era() == Era::Modern)?;
        (self.states.open(seal, server, caller, call, state).is_ok() && self.states.is_new(state)).then_some(state)
    }

    /// That round was admitted: its state was used.
    pub(super) fn used(&self, state: &[u8]) {
        self.states.remember(state);
    }
}

impl Gateway {
    /// A legacy session has ended, so nobody needs what it had alone.
    pub fn session_ended(&self, session: u64) {
        self.audiences.session_ended(session);
        for server in &self.servers {
            server.session_ended(session);
        }
    }

    /// A legacy host says that its roots changed.
    pub fn roots_changed(&self, principal: &Principal, session: Option<u64>) {
        for server in &self.servers {
            server.roots_changed(principal, session);
        }
    }
}

/// Answers the raw params of a question with other URIs, where any changes.
type Localise<'a> = dyn Fn(Method, &[u8]) -> Option<Vec<u8>> + Sync + 'a;

/// One admitted request and its server.
pub(super) struct Exchange<'a> {
    pub(super) bridge: &'a Bridge,
    pub(super) seal: &'a Seal,
    pub(super) server: &'a Server,
    pub(super) permit: &'a Permit,
    pub(super) call: &'a Call,
    pub(super) item: Item<'a>,
    /// As its server gets to know it.
    pub(super) caller: &'a Caller,
    /// What the host declared, whatever its server is told of that.
    pub(super) declared: &'a Capabilities,
    pub(super) upward: &'a Arc<Upward>,
    /// The URIs of a question as hosts see them; `None` where they are the same (MRT-4).
    pub(super) localise: &'a Localise<'a>,
    /// What a final answer is to the host.
    pub(super) finish: &'a (dyn Fn(Answer) -> Result<Outcome, Failure> + Sync),
}

impl Exchange<'_> {
    /// Sends the request and carries what either side asks, up to its outcome.
    pub(super) async fn go(&self) -> Result<Outcome, Failure> {
        let given = if self.is_modern() && self.may_ask() { self.call.input() } else { Given::default() };
        if let Some(state) = given.state {
            // Rare and large: on the heap, so that every call is not as large as the rarest.
            return Box::pin(self.come_back(given, state)).await;
        }
        // Answers without a state pass as they are: a server ignores what it did not ask for (MRT-3).
        let mut pending = self.begin(given).await?;
        if pending.may_ask() {
            return Box::pin(self.attend(pending, 0)).await;
        }
        let answer = self.answered(&mut pending).await?;
        drop(pending);
        if is_ordinary(&answer) {
            return (self.finish)(answer);
        }
        Box::pin(self.conclude(answer, 0)).await
    }

    fn is_modern(&self) -> bool {
        self.caller.revision.era() == Era::Modern
    }

    /// Whether a server may ask back during a request of this method.
    fn may_ask(&self) -> bool {
        matches!(self.call.method(), Method::ToolsCall | Method::PromptsGet | Method::ResourcesRead)
    }

    /// What the server was told that the host can do, and what that can.
    const fn can(&self) -> (&Capabilities, &Capabilities) {
        (&self.caller.capabilities, self.declared)
    }

    async fn begin(&self, mut input: Given<'_>) -> Result<Pending, Failure> {
        let upward = Arc::clone(self.upward);
        let told = input.responses.and_then(|responses| self.server.roots().told_in(responses));
        input.responses = told.as_deref().or(input.responses);
        let input = (input.responses.is_some() || input.state.is_some()).then_some(input);
        let begun = self.server.begin(self.permit, self.call, self.item, input, self.caller, upward).await;
        begun.map_err(|fault| self.fault(&fault))
    }

    async fn answered(&self, pending: &mut Pending) -> Result<Answer, Failure> {
        match pending.answered().await {
            // Surely not done (SES-4, D071): once more, in the session that is opened now.
            Err(Fault::SessionLost) => {
                pending.leave_place();
                let mut again = Box::pin(self.begin(Given::default())).await?;
                let answer = again.answered().await;
                *pending = again;
                answer.map_err(|fault| self.fault(&fault))
            }
            answer => answer.map_err(|fault| self.fault(&fault)),
        }
    }

    fn fault(&self, fault: &Fault) -> Failure {
        tracing::debug!(server = %self.server.key(), %fault, "a request failed");
        Failure::of_server(self.server.key(), fault)
    }

    /// The host comes back with a state of ours.
    async fn come_back(&self, given: Given<'_>, state: &[u8]) -> Result<Outcome, Failure> {
        let kind = self.bridge.states.open(self.seal, self.server.key(), self.caller, self.call, state)?;
        match kind {
            Kind::Pass(inner) => {
                let input = Given { responses: given.responses, state: inner.as_ref().map(String::as_bytes) };
                let mut pending = self.begin(input).await?;
                if pending.may_ask() {
                    // It came back as a legacy server meanwhile.
                    return self.attend(pending, 0).await;
                }
                let answer = self.answered(&mut pending).await?;
                self.conclude(answer, 0).await
            }
            Kind::Suspended { replica, .. } if replica != self.bridge.replica => {
                Err(Failure::state_of_another_process())
            }
            Kind::Suspended { id, nonce, .. } => {
                let suspended = self.bridge.suspended.take(&self.caller.principal, id, nonce).await;
                self.resume(suspended.ok_or_else(Failure::expired_state)?, given.responses).await
            }
            Kind::Replay { round } => {
                let refused = json::members(given.responses.unwrap_or_default()).any(|response| {
                    !json::members(response.value).any(|entry| entry.is("action") && entry.value == b"\"accept\"")
                });
                if refused {
                    return self.refused("the request to open a URL");
                }
                self.attend(self.begin(Given::default()).await?, round).await
            }
        }
    }

    /// Waits for the answer of a server that may ask meanwhile.
    async fn attend(&self, mut pending: Pending, replays: u8) -> Result<Outcome, Failure> {
        if self.is_modern() {
            return self.drive(Suspended::new(pending, Arc::clone(self.upward), replays)).await;
        }
        let mut again = false;
        loop {
            tokio::select! {
                biased;
                answer = pending.answered() => {
                    if matches!(answer, Err(Fault::SessionLost)) && !std::mem::replace(&mut again, true) {
                        pending.leave_place();
                        pending = Box::pin(self.begin(Given::default())).await?;
                        continue;
                    }
                    let answer = answer.map_err(|fault| self.fault(&fault))?;
                    return self.conclude(answer, replays).await;
                }
                ask = self.upward.asked() => {
                    let Ask { method, params, reply } = ask;
                    match self.question(method, params.as_deref(), self.caller.revision) {
                        Question::Ask(params) => {
                            pending.leave_place();
                            self.upward.ask_host(Ask { method, params, reply });
                        }
                        Question::Cancel => {
                            // The server may have withdrawn it.
                            let _ = reply.send(AskAnswer::Result(Bytes::from_static(CANCEL)));
                        }
                    }
                }
            }
        }
    }

    /// Waits for the answer of a legacy server, or has its questions asked by suspending the call (MLB-2, MLB-6). Dropped,
    /// it cancels the call (MLB-8).
    async fn drive(&self, mut call: Suspended) -> Result<Outcome, Failure> {
        let mut again = false;
        loop {
            let until = (!call.asks.is_empty()).then(|| Instant::now() + COLLECT);
            tokio::select! {
                biased;
                answer = call.pending.answered() => {
                    if matches!(answer, Err(Fault::SessionLost)) && !std::mem::replace(&mut again, true) {
                        call.pending.leave_place();
                        call.pending = Box::pin(self.begin(Given::default())).await?;
                        continue;
                    }
                    let answer = answer.map_err(|fault| self.fault(&fault))?;
                    return self.conclude(answer, call.replays).await;
                }
                ask = self.upward.asked() => call.push(ask),
                () = tokio::time::sleep_until(until.unwrap_or_else(Instant::now)), if until.is_some() => {
                    call.forget_withdrawn();
                    if !call.asks.is_empty() {
                        return self.suspend(call);
                    }
                }
            }
        }
    }

    /// Gives the host the questions, and keeps the call for when it comes back.
    fn suspend(&self, mut call: Suspended) -> Result<Outcome, Failure> {
        let server = self.server.key();
        call.rounds += 1;
        if call.rounds > MAX_ROUNDS {
            return Err(Failure::too_many_rounds(server));
        }
        let asks = call.asks.iter().map(|(key, ask)| (key.clone(), ask.method, ask.params.clone()));
        let asks: Vec<_> = asks.collect();
        call.pending.leave_place();
        let Ok((id, nonce)) = self.bridge.suspended.put(&self.caller.principal, call) else {
            return Err(Failure::too_many_suspended(server));
        };
        let state = self.seal(Kind::Suspended { replica: self.bridge.replica, id, nonce });
        let entries = asks.iter().map(|(key, method, params)| (key.as_bytes(), *method, params.as_deref()));
        Ok(Outcome::Input(self.ask_with(entries, &state)))
    }

    /// A question in the words of a host, with its URIs as that sees them.
    fn question(&self, method: Method, params: Option<&[u8]>, to: Revision) -> Question {
        let localised = params.and_then(|params| (self.localise)(method, params));
        question(method, localised.as_deref().or(params), self.server.key(), to)
    }

    /// A result that asks a modern host.
    fn ask_with<'q>(&self, entries: impl Iterator<Item = (&'q [u8], Method, Option<&'q [u8]>)>, state: &str) -> Input {
        // It has a form for everything.
        Input::write(entries, state, |method, params| self.question(method, params, Revision::LATEST_MODERN))
    }

    fn seal(&self, kind: Kind) -> String {
        self.bridge.states.seal(self.seal, self.server.key(), self.caller, self.call, kind)
    }

    /// The host came back: its answers go to the server, what it left out is asked again (MLB-5).
    async fn resume(&self, mut call: Suspended, responses: Option<&[u8]>) -> Result<Outcome, Failure> {
        for response in json::members(responses.unwrap_or_default()) {
            let Some(at) = call.asks.iter().position(|(key, _)| response.is(key)) else { continue };
            let (_, ask) = call.asks.swap_remove(at);
            // The server may have withdrawn it.
            let _ = ask.reply.send(AskAnswer::Result(Bytes::copy_from_slice(response.value)));
        }
        let before = call.pending.redirect(Arc::clone(self.upward));
        call.upward = Arc::clone(self.upward);
        while let Some(ask) = before.as_ref().and_then(|upward| upward.take_ask()) {
            call.push(ask);
        }
        if let Some(answer) = call.answer.take() {
            // Its server did not wait.
            return self.conclude(answer.map_err(|fault| self.fault(&fault))?, call.replays).await;
        }
        call.forget_withdrawn();
        if call.asks.is_empty() { self.drive(call).await } else { self.suspend(call) }
    }

    /// What an answer means for this host.
    async fn conclude(&self, answer: Answer, replays: u8) -> Result<Outcome, Failure> {
        let Some(spans) = required::spans_of(&answer).filter(|_| answer.era == Era::Modern) else {
            return self.end(answer, replays);
        };
        let server = self.server.key();
        if !self.may_ask() {
            return Err(Failure::invalid_result(server, "it asks back where it must not"));
        }
        let required = required::read(&answer, spans, server, self.can())?;
        if self.is_modern() {
            let state = self.seal(Kind::Pass(required.state.clone()));
            return Ok(Outcome::Input(required.beside(self.ask_with(required.asked(), &state))));
        }
        self.ask_around(required).await
    }

    /// Asks a legacy host what a modern server wants to know, and carries it back, as often as it takes (LMB-1). Dropped,
    /// it takes the open questions along (LMB-7).
    async fn ask_around(&self, mut required: Required) -> Result<Outcome, Failure> {
        let server = self.server.key();
        let mut backoff = BACKOFF.0;
        let mut urls = Vec::new();
        for _ in 0..MAX_ROUNDS {
            let responses = if required.entries.is_empty() {
                sleep(backoff).await;
                backoff = (backoff * 2).min(BACKOFF.1);
                None
            } else {
                match self.gather(&required, &mut urls).await {
                    Ok(responses) => Some(responses),
                    Err(Refused(what)) => return self.refused(what),
                }
            };
            let input = Given { responses: responses.as_deref(), state: required.state.as_ref().map(String::as_bytes) };
            let mut pending = self.begin(input).await?;
            let answer = self.answered(&mut pending).await?;
            match required::spans_of(&answer).filter(|_| answer.era == Era::Modern) {
                Some(spans) => required = required::read(&answer, spans, server, self.can())?,
                None => {
                    let outcome = self.end(answer, 0)?;
                    urls.into_iter().for_each(|id| self.upward.push_opened(id));
                    return Ok(outcome);
                }
            }
        }
        Err(Failure::too_many_rounds(server))
    }

    /// Puts all questions to a legacy host at once, and writes its answers as `inputResponses` (LMB-1, LMB-3); notes
    /// the ids of URLs.
    async fn gather(&self, required: &Required, urls: &mut Vec<Bytes>) -> Result<Vec<u8>, Refused> {
        let deadline = Instant::now() + INPUT_LIMIT;
        let mut open = Vec::with_capacity(required.entries.len());
        for entry in &required.entries {
            let (reply, answer) = oneshot::channel();
            match self.question(entry.method, entry.params.as_deref(), self.caller.revision) {
                Question::Ask(params) => {
                    let id = params.as_ref().and_then(|params| {
                        let id = json::members(params).find(|member| member.is("elicitationId"))?;
                        Some(params.slice_ref(id.value))
                    });
                    urls.extend(id);
                    self.upward.ask_host(Ask { method: entry.method, params, reply });
                }
                Question::Cancel => drop(reply),
            }
            open.push((entry, answer));
        }
        let mut out = b"{".to_vec();
        for (entry, answer) in open {
            let answer = timeout_at(deadline, answer).await.ok().and_then(Result::ok);
            let value = match (answer, entry.method) {
                (Some(AskAnswer::Result(value)), _) if value.starts_with(b"{") => value,
                // Only here is there a word for it (LMB-4).
                (_, Method::Elicit) => Bytes::from_static(CANCEL),
                (_, Method::Sample) => return Err(Refused("the request for a model completion")),
                (_, _) => return Err(Refused("the request for roots")),
            };
            out.extend_from_slice(if out.len() > 1 { b",\"" } else { b"\"" });
            out.extend_from_slice(&entry.key);
            out.extend_from_slice(b"\":");
            out.extend_from_slice(&value);
        }
        out.push(b'}');
        Ok(out)
    }

    /// The host refused what the server needs, and there is no way to tell the server (LMB-4).
    fn refused(&self, what: &str) -> Result<Outcome, Failure> {
        let server = self.server.key();
        let text = format!("{server}: {what} was refused by the client");
        if self.call.method() != Method::ToolsCall {
            return Err(Failure::input_refused(server, text));
        }
        let mut members = br#""content":[{"type":"text","text":"#.to_vec();
        json::push_string(&mut members, &text);
        members.extend_from_slice(br#"}],"isError":true"#);
        Ok(Outcome::Own(String::from_utf8_lossy(&members).into_owned()))
    }

    /// An answer that asks for no input; some errors do so in their own way.
    fn end(&self, answer: Answer, replays: u8) -> Result<Outcome, Failure> {
        match answer.reply.body {
            Body::Error(error) if error.code == code::MISSING_CAPABILITY && answer.era == Era::Modern => {
                Err(missing(self.server.key(), self.caller.revision, self.declared, &answer, &error))
            }
            Body::Error(error) if error.code == code::URL_REQUIRED && answer.era == Era::Legacy && self.may_ask() => {
                self.urls(answer, error, replays)
            }
            Body::Result(_) | Body::Error(_) => (self.finish)(answer),
        }
    }

    /// A legacy server wants the user to open URLs before the call is sent again (URL-1); a modern host
    /// never sees that error (URL-2).
    fn urls(&self, answer: Answer, error: ErrorSpans, replays: u8) -> Result<Outcome, Failure> {
        let server = self.server.key();
        if !self.caller.capabilities.elicitation_url {
            return Err(Failure::missing_capability(server, br#"{"elicitation":{"url":{}}}"#, self.caller.revision));
        }
        if !self.is_modern() {
            // The host knows the code since its revision has the mode.
            return if self.caller.revision >= Revision::V2025_11_25 {
                Ok(Outcome::Error(answer, error))
            } else {
                Err(Failure::input_refused(server, format!("Server {server} needs the user to open a URL first")))
            };
        }
        let data = error.data.map(|data| data.of(&answer.reply.line)).unwrap_or_default();
        let urls = json::members(data).find(|entry| entry.is("elicitations"));
        let urls: Vec<_> = urls.map(|urls| json::elements(urls.value).take(MAX_URLS).collect()).unwrap_or_default();
        let legal = |url: &&[u8]| self.caller.capabilities.permit(Method::Elicit, Some(url)).is_ok();
        if urls.is_empty() || !urls.iter().all(legal) {
            return Err(Failure::invalid_result(server, "it asks to open URLs, and names none"));
        }
        if replays >= MAX_REPLAYS {
            return Err(Failure::too_many_rounds(server));
        }
        let keys: Vec<_> = (1..=urls.len()).map(|n| format!("url_{n}")).collect();
        let entries = keys.iter().zip(urls).map(|(key, url)| (key.as_bytes(), Method::Elicit, Some(url)));
        let state = self.seal(Kind::Replay { round: replays + 1 });
        Ok(Outcome::Input(self.ask_with(entries, &state)))
    }
}

/// A server wants what its request did not offer (CAP-8): the host is told which, when it did not declare it.
pub(super) fn missing(
    server: &ServerKey,
    to: Revision,
    declared: &Capabilities,
    answer: &Answer,
    error: &ErrorSpans,
) -> Failure {
    let data = error.data.map(|data| data.of(&answer.reply.line)).unwrap_or_default();
    let required = json::members(data).find(|entry| entry.is("requiredCapabilities"));
    match required.filter(|required| required.value.len() <= 4096) {
        Some(required) if !Capabilities::read(required.value).is_within(declared) => {
            Failure::missing_capability(server, required.value, to)
        }
        _ => Failure::capability_withheld(server),
    }
}

/// What a host refused.
struct Refused(&'static str);

/// Whether an answer needs nothing of the bridge.
fn is_ordinary(answer: &Answer) -> bool {
    match answer.reply.body {
        Body::Result(spans) => spans.result_type.is_none() || required::spans_of(answer).is_none(),
        Body::Error(error) => !matches!(error.code, code::MISSING_CAPABILITY | code::URL_REQUIRED),
    }
}
