//! One legacy session over HTTP: its requests that run, its streams, what it was asked (§7.4).
//!
//! Knows messages and streams, no HTTP: `legacy` answers requests of HTTP with it, `sse` those of HTTP+SSE. It is long
//! because it is one state under one lock, and all that may touch it stands here.
//!
//! Long, and one thing: what a session keeps is one state under one lock.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use foldhash::fast::RandomState;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::body::{self, Pieces, Pipe};
use super::front::{Front, Who};
use super::stream::{General, Message as Sent, Owed, Stream, What};
use crate::caller::Caller;
use crate::gateway::{Current, Failure, Fingerprint, Seen, Updates};
use crate::ident::{Kind, Principal};
use crate::protocol::call::Call;
use crate::protocol::capability::Capabilities;
use crate::protocol::json::{self, Index, Span};
use crate::protocol::level::LogLevel;
use crate::protocol::message::{Message, Part};
use crate::protocol::method::Method;
use crate::protocol::version::{Era, Revision};
use crate::transport::upward::{AskAnswer, Happening, Later, Upward};
use crate::upstream::asked::Asked;
use crate::upstream::legacy::Opened;
use crate::upstream::subscribed::Subscribed;
use crate::upstream::work::{Done, Work, changed};
use crate::upstream::{legacy, write};

/// Requests of one session that run at once, at most, and the bytes that they hold.
const MAX_RUNNING: usize = 1024;
const MAX_BYTES: usize = 64 << 20;
/// Streams of a session that can be resumed, and the bytes of those that have ended.
const MAX_STREAMS: usize = 256;
const MAX_KEPT: usize = 4 << 20;

/// A session.
pub(super) struct Session {
    /// Its name towards the host.
    pub(super) name: Box<str>,
    /// Its number among us.
    number: u64,
    /// Whose it is, and where.
    pub(super) who: Who,
    /// What `initialize` agreed on.
    pub(super) revision: Revision,
    capabilities: Capabilities,
    gateway: Arc<Current>,
    tasks: TaskTracker,
    /// See [`Front::answers`].
    answers: Arc<Semaphore>,
    asked: Arc<Asked>,
    /// What belongs to no request, or all (HTTP+SSE).
    pub(super) general: Arc<General>,
    /// What is told of the resources that it subscribed to.
    updates: Arc<Updates>,
    /// `initialized` has come.
    begun: Notify,
    ended: CancellationToken,
    state: Mutex<State>,
}

struct State {
    /// Who it is, with the groups and scopes of its last request.
    principal: Principal,
    /// The host has taken our answer to `initialize` (VER-8).
    initialized: bool,
    /// The least grave log messages that it wants (LOG-2).
    log_level: Option<LogLevel>,
    /// The lists that it got last, by kind, and those that it was told of last.
    listed: [Option<Fingerprint>; 4],
    told: Seen,
    subscribed: Subscribed,
    /// By raw id.
    running: HashMap<Bytes, Arc<Upward>, RandomState>,
    bytes: usize,
    /// Those that can be resumed, in order.
    streams: VecDeque<Arc<Stream>>,
    last_stream: u64,
    /// Streams that are read now.
    open: usize,
    used: Instant,
}

/// A place among the running requests; given back when dropped.
pub(super) struct Running {
    session: Arc<Session>,
    id: Bytes,
    upward: Arc<Upward>,
    size: usize,
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut state = self.session.state();
        // Unless the host gave it up, and the id is another's by now.
        if state.running.get(&self.id).is_some_and(|upward| Arc::ptr_eq(upward, &self.upward)) {
            state.running.remove(&self.id);
        }
        state.bytes -= self.size;
        state.used = Instant::now();
    }
}

impl Later for Session {
    fn opened(&self, id: &Bytes) {
        if self.revision == Revision::V2025_11_25 {
            let mut pieces = Pieces::new();
            write::opened(&mut pieces, id);
            self.general.push(pieces.finish(), What::Notification);
        }
    }
}

/// A stream that is read; the session is in use.
pub(super) struct Reading(Arc<Session>);

impl Reading {
    pub(super) fn session(&self) -> &Session {
        &self.0
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.open -= 1;
        state.used = Instant::now();
    }
}

/// How a request is served.
pub(super) enum Step {
    Now(Sent),
    Run(Task, Caller),
}

/// What takes time.
pub(super) enum Task {
    Work(Work),
    /// To be told of changes of a resource; with the number of that request once it has its place, and its message.
    Subscribe(String, u64, Bytes),
}

impl Task {
    fn size(&self) -> usize {
        match self {
            Self::Work(work) => work.size(),
            Self::Subscribe(uri, _, message) => uri.len() + message.len(),
        }
    }
}

impl Session {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It is used, by who has just proven to be the same: what is known of it may have changed.
    pub(super) fn renew(&self, who: &Who) {
        let mut state = self.state();
        state.used = Instant::now();
        state.principal.clone_from(&who.principal);
    }

    /// Since when nothing runs and nothing is read; nothing while something does.
    pub(super) fn unused_since(&self) -> Option<Instant> {
        let state = self.state();
        (state.open == 0 && state.running.is_empty()).then_some(state.used)
    }

    /// We leave, and an answer to what it was asked finds no way in.
    pub(super) fn close_questions(&self) {
        self.asked.close();
    }

    /// Ends it: what runs is given up, streams close, questions get no answer.
    pub(super) fn end(&self) {
        self.ended.cancel();
        let (running, subscribed) = {
            let mut state = self.state();
            (std::mem::take(&mut state.running), state.subscribed.clear())
        };
        running.values().for_each(|upward| upward.give_up("the session has ended"));
        drop(subscribed);
        self.asked.close();
        self.gateway.now().session_ended(self.number);
    }

    /// Forgets streams that ended long ago, and what is too much.
    pub(super) fn forget_streams(&self, now: Instant, kept: Duration) {
        let mut state = self.state();
        let mut bytes = 0;
        let mut count = 0;
        let mut keep: Vec<_> = state
            .streams
            .iter()
            .rev()
            .map(|stream| {
                let (ended, size) = stream.rest();
                let Some(ended) = ended else { return true };
                bytes += size;
                count += 1;
                // The newest is kept, however large its answer is.
                now.duration_since(ended) < kept && (count == 1 || bytes <= MAX_KEPT)
            })
            .collect();
        state.streams.retain(|_| keep.pop().unwrap_or(true));
        while state.streams.len() > MAX_STREAMS {
            state.streams.pop_front();
        }
    }

    fn caller(&self) -> Caller {
        let (principal, log_level) = {
            let state = self.state();
            (state.principal.clone(), state.log_level)
        };
        Caller {
            principal,
            profile: self.who.profile,
            revision: self.revision,
            capabilities: self.capabilities.clone(),
            log_level,
            session: Some(self.number),
        }
    }

    /// For the answer to a POST; a mute one takes nothing else.
    pub(super) fn new_stream(&self, mute: bool) -> Arc<Stream> {
        let mut state = self.state();
        state.last_stream += 1;
        Stream::new(state.last_stream, mute)
    }

    /// Keeps a stream, so that it can be read again.
    pub(super) fn keep(&self, stream: &Arc<Stream>, kept: Duration) {
        self.state().streams.push_back(Arc::clone(stream));
        self.forget_streams(Instant::now(), kept);
    }

    /// The kept stream of that number.
    pub(super) fn kept(&self, number: u64) -> Option<Arc<Stream>> {
        self.state().streams.iter().find(|stream| stream.number == number).map(Arc::clone)
    }

    /// How a request is served. An error is answered by the caller.
    pub(super) fn step(
        &self,
        line: &Bytes,
        index: &Index,
        id: &[u8],
        method: Span,
        params: Option<Part>,
    ) -> Result<Step, Failure> {
        let step = self.stepped(line, index, id, method, params);
        if let Err(failure) = &step {
            self.told(method.of(line), line, Some(failure));
        }
        step
    }

    /// A request was answered where it was read.
    pub(super) fn told(&self, method: &[u8], line: &[u8], failure: Option<&Failure>) {
        self.gateway.now().answered_apart(&self.caller(), method, line, failure);
    }

    /// The method table.
    fn stepped(
        &self,
        line: &Bytes,
        index: &Index,
        id: &[u8],
        method: Span,
        params: Option<Part>,
    ) -> Result<Step, Failure> {
        let name = method.of(line);
        let unknown = || {
            let caller = self.caller();
            self.gateway.now().note_refused(&caller.principal, caller.session, name, "unknown-method");
            Failure::unknown_method(&String::from_utf8_lossy(&name[..name.len().min(200)]))
        };
        let known = Method::parse(name).ok_or_else(unknown)?;
        let mut pieces = Pieces::new();
        if matches!(known, Method::Ping | Method::SetLevel | Method::Subscribe | Method::Unsubscribe) {
            if known == Method::SetLevel {
                let level = legacy::level(line, index, params)?;
                self.state().log_level = Some(level);
            } else if known != Method::Ping {
                let call = Call::read(known, line, index, params).map_err(Failure::bad_call)?;
                let uri = json::text_of(call.target()).unwrap_or_default().into_owned();
                if known == Method::Subscribe {
                    return Ok(Step::Run(Task::Subscribe(uri, 0, line.clone()), self.caller()));
                }
                // What was not subscribed to needs no more.
                let held = self.state().subscribed.remove(&uri);
                drop(held);
            }
            write::result(&mut pieces, id, self.revision, "");
            self.told(name, line, None);
            return Ok(Step::Now(pieces.finish()));
        }
        let work = Work::read(Era::Legacy, known, line, index, params, None)?.ok_or_else(unknown)?;
        let caller = self.caller();
        if let Work::List(kind, cursor, message) = &work
            && let Some(list) = self.gateway.now().list_now(*kind, &caller, cursor.as_deref(), message)
        {
            let done = list.map(Done::List);
            self.note(&done);
            write::done(&mut pieces, id, self.revision, &done);
            return Ok(Step::Now(body::counted(&self.answers, id, pieces.finish())));
        }
        Ok(Step::Run(Task::Work(work), caller))
    }

    fn note(&self, done: &Result<Done, Failure>) {
        if let Ok(Done::List(list)) = done
            && list.next.is_none()
        {
            self.state().listed[list.kind.index()] = Some(list.fingerprint);
        }
    }

    /// A place for a request (ENV-2).
    pub(super) fn enter(self: &Arc<Self>, id: Bytes, task: &mut Task) -> Result<Running, Failure> {
        let size = task.size();
        let upward = Arc::new(Upward::default());
        let mut state = self.state();
        if state.running.len() >= MAX_RUNNING || state.bytes + size > MAX_BYTES {
            return Err(Failure::limit("Too many requests run at once"));
        }
        if state.running.contains_key(&id) {
            return Err(Failure::id_in_use());
        }
        if self.ended.is_cancelled() {
            return Err(Failure::unknown_session());
        }
        // Only a host that opens URLs is told what became of them (URL-1).
        if self.capabilities.elicitation_url {
            let session: Weak<Self> = Arc::downgrade(self);
            upward.then(session);
        }
        state.running.insert(id.clone(), Arc::clone(&upward));
        state.bytes += size;
        if let Task::Subscribe(uri, number, _) = task {
            *number = state.subscribed.begin(uri);
        }
        drop(state);
        Ok(Running { session: Arc::clone(self), id, upward, size })
    }

    /// Does a request; what comes of it goes to its stream.
    pub(super) async fn run(
        self: Arc<Self>,
        task: Task,
        caller: Caller,
        stream: Arc<Stream>,
        owed: Owed,
        running: Running,
    ) {
        let mut pieces = Pieces::new();
        match task {
            Task::Work(work) => {
                let token = work.progress_token();
                let tell = |happening| self.tell(&stream, happening, token.as_ref());
                let gateway = self.gateway.now();
                let Some(done) = work.perform(&gateway, &caller, &running.upward, tell).await else { return };
                self.note(&done);
                write::done(&mut pieces, &running.id, self.revision, &done);
            }
            Task::Subscribe(uri, number, message) => {
                let gateway = self.gateway.now();
                let held = tokio::select! {
                    biased;
                    _ = running.upward.happening() => None,
                    held = gateway.subscribe(&uri, &caller, &self.updates, Some(&message)) => Some(held),
                };
                let (held, failure) = match held {
                    Some(Ok(Some(held))) => (Some(held), None),
                    Some(Ok(None)) => (None, Some(Failure::not_subscribed(&uri))),
                    Some(Err(failure)) => (None, Some(failure)),
                    None => (None, None),
                };
                let gone = self.state().subscribed.finish(&uri, number, held);
                drop(gone);
                match failure {
                    None => write::result(&mut pieces, &running.id, self.revision, ""),
                    Some(failure) => write::failure(&mut pieces, Some(&running.id), &failure),
                }
            }
        }
        if running.upward.is_given_up() {
            return;
        }
        let answer = body::counted(&self.answers, &running.id, pieces.finish());
        // Its id is free when the host reads the answer, so the place goes first (ENV-2).
        drop(running);
        owed.give(answer);
    }

    /// SES-6: what happens to a request is told on its own stream.
    fn tell(&self, stream: &Arc<Stream>, happening: Happening, token: Option<&Bytes>) {
        let mut pieces = Pieces::new();
        match (happening, token) {
            (Happening::Progress(progress), Some(token)) => {
                write::progress(&mut pieces, token, &progress, self.revision);
            }
            (Happening::Log(message), _) => write::log(&mut pieces, &message),
            // Who takes no stream cannot be asked: dropping the question says so.
            (Happening::Ask(ask), _) if !stream.is_mute() => {
                let Some((open, message)) = self.asked.put(ask) else { return };
                let question = stream.push(vec![message.into()], What::Question);
                let stream = Arc::clone(stream);
                self.tasks.spawn(async move {
                    let withdrawn = open.withdrawn().await;
                    stream.let_go(question);
                    if let Some(message) = withdrawn {
                        stream.push(vec![message.into()], What::Notification);
                    }
                });
                return;
            }
            (Happening::Opened(id), _) if self.revision == Revision::V2025_11_25 => write::opened(&mut pieces, &id),
            (Happening::Progress(_) | Happening::Ask(_) | Happening::Opened(_) | Happening::GivenUp, _) => return,
        }
        stream.push(pieces.finish(), What::Notification);
    }

    /// Takes an answer of the host in.
    pub(super) fn answered(&self, line: &Bytes, message: &Message) {
        match message {
            Message::Result { id, result } => {
                self.asked.answer(id.of(line), AskAnswer::Result(line.slice(result.span.range())));
            }
            Message::Error { id: Some(id), error } => {
                self.asked.answer(id.of(line), AskAnswer::Error(line.slice(error.span.range())));
            }
            Message::Error { id: None, .. } | Message::Request { .. } | Message::Notification { .. } => {}
        }
    }

    /// Takes a notification of the host in.
    pub(super) fn notified(&self, line: &Bytes, index: &Index, method: Span, params: Option<Part>) {
        match Method::parse(method.of(line)) {
            Some(Method::Initialized) => {
                self.state().initialized = true;
                // What changed since the session was opened has waited for this.
                self.begun.notify_one();
            }
            Some(Method::Cancelled) => self.cancel(line, index, params),
            Some(Method::RootsChanged) => self.gateway.now().roots_changed(&self.who.principal, Some(self.number)),
            _ => {}
        }
    }

    /// CAN-1: by the raw id; what does not run is ignored. Its stream ends without an answer.
    fn cancel(&self, line: &Bytes, index: &Index, params: Option<Part>) {
        let Some((id, reason)) = legacy::cancelled(line, index, params) else { return };
        let given_up = self.state().running.remove(id);
        if let Some(upward) = given_up {
            upward.give_up(&reason);
        }
    }

    /// The kinds of lists whose changes the host has to be told of now (SUB-1, SUB-2).
    fn news(&self) -> impl Iterator<Item = Kind> + use<> {
        let now = self.gateway.now().seen(&self.caller());
        let mut state = self.state();
        let kinds = state.initialized.then(|| changed(&state.told, &now, &state.listed));
        if kinds.is_some() {
            state.told = now;
        }
        kinds.into_iter().flatten()
    }

    pub(super) fn reading(self: &Arc<Self>) -> Reading {
        self.state().open += 1;
        Reading(Arc::clone(self))
    }
}

impl Session {
    /// A new session, as `initialize` asks for it, and the members of the answer.
    pub(super) fn new(
        front: &Front,
        who: Who,
        params: &[u8],
        general: Arc<General>,
    ) -> Result<(Self, String), Failure> {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let gateway = front.gateway.now();
        let Opened { revision, capabilities, members } =
            legacy::open(&gateway, gateway.sight(&who.principal, who.profile), params)?;
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let caller = Caller {
            principal: who.principal.clone(),
            profile: who.profile,
            revision,
            capabilities: capabilities.clone(),
            log_level: None,
            session: Some(number),
        };
        let state = State {
            principal: who.principal.clone(),
            initialized: false,
            log_level: None,
            listed: [None; 4],
            // What servers list to it alone may be known from another session of the same caller.
            told: gateway.seen(&caller),
            subscribed: Subscribed::default(),
            running: HashMap::default(),
            bytes: 0,
            streams: VecDeque::new(),
            last_stream: 0,
            open: 0,
            used: Instant::now(),
        };
        let session = Self {
            name: "".into(),
            number,
            who,
            revision,
            capabilities,
            gateway: Arc::clone(&front.gateway),
            tasks: front.tasks.clone(),
            answers: Arc::clone(&front.answers),
            asked: Arc::default(),
            general,
            updates: Arc::default(),
            begun: Notify::new(),
            ended: CancellationToken::new(),
            state: Mutex::new(state),
        };
        Ok((session, members))
    }

    /// Serves a request whose answer goes to the stream of the whole session.
    pub(super) fn ask(self: &Arc<Self>, line: &Bytes, index: &Index, id: Span, method: Span, params: Option<Part>) {
        let raw = id.of(line);
        let begun = self.step(line, index, raw, method, params).and_then(|step| match step {
            Step::Now(answer) => {
                self.general.push(answer, What::Answer);
                Ok(())
            }
            Step::Run(mut task, caller) => {
                let running = self.enter(line.slice(id.range()), &mut task)?;
                let stream = Stream::into_general(&self.general);
                let owed = stream.owe();
                self.tasks.spawn(Arc::clone(self).run(task, caller, stream, owed, running));
                Ok(())
            }
        });
        if let Err(failure) = begun {
            let mut pieces = Pieces::new();
            write::failure(&mut pieces, Some(raw), &failure);
            self.general.push(pieces.finish(), What::Answer);
        }
    }

    /// Tells what belongs to no request, for as long as there is no other reader and the session lasts.
    pub(super) async fn tell_all(&self, reader: u64, out: &Pipe) {
        let mut changes = self.gateway.changes(&self.caller().principal, self.who.profile);
        loop {
            out.room().await;
            for kind in self.news() {
                out.push(None, vec![legacy::list_changed(kind).into()]);
            }
            tokio::select! {
                biased;
                () = self.ended.cancelled() => return,
                message = self.general.read(reader) => match message {
                    Some(message) => out.push(None, message),
                    None => return,
                },
                uris = self.updates.next() => for uri in uris {
                    out.push(None, vec![legacy::updated(&uri).into()]);
                },
                () = changes.changed() => {}
                () = self.begun.notified() => {}
            }
        }
    }

    /// Tells what is on a stream from an event on, as long as there is no other reader and the session lasts (SES-7).
    pub(super) async fn tell_again(&self, stream: &Stream, reader: u64, mut from: u64, out: &Pipe) {
        loop {
            out.room().await;
            tokio::select! {
                biased;
                next = stream.read(reader, from) => match next {
                    Some((number, message)) => {
                        out.push(Some(&format!("{}-{number}", stream.number)), message);
                        from = number + 1;
                    }
                    None => return,
                },
                () = self.ended.cancelled() => return,
            }
        }
    }
}
