//! One host on one pipe: its requests that run, its legacy session, its listen streams.
//!
//! Cheap things are answered where they are read; a call runs as a task of its own, so that nothing waits for it
//! (D059). Policy is asked in the gateway; this is only about words.
//!
//! Long, and one thing: a message is read, answered or started, and its place given back, against one state.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use foldhash::fast::RandomState;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::asked::Asked;
use super::batch::{Places, ReplyTo};
use super::legacy::Opened;
use super::modern::{self, Honoured, Listen, modern_meta};
use super::stdio::Guest;
use super::subscribed::Subscribed;
use super::work::{Done, Work, changed, subscribe_all};
use super::{legacy, write};
use crate::caller::Caller;
use crate::gateway::{Changes, Current, Failure, Fingerprint, Gateway, Seen, Sight, Updates};
use crate::ident::{Kind, Principal};
use crate::protocol::call::Call;
use crate::protocol::capability::Capabilities;
use crate::protocol::json::{self, Index, Span};
use crate::protocol::level::LogLevel;
use crate::protocol::message::{Message, NoMessage, Part, Why};
use crate::protocol::method::Method;
use crate::protocol::version::Revision;
use crate::transport::outbox::Outbox;
use crate::transport::upward::{AskAnswer, Happening, Later, Upward};

/// Requests of one host that run at once, at most.
const MAX_RUNNING: usize = 4096;
/// Bytes of requests that run, at most; beyond them no more is read (§9).
pub(super) const MAX_BYTES: usize = 64 << 20;
/// Messages of one array that are served, at most: their answers are gathered before they are written.
const MAX_BATCH: usize = 128;
/// Listen streams of one host, at most (SUB-13).
const MAX_LISTENS: usize = 16;
/// How long it may take to find out which resources are told of, before the stream is acknowledged (SUB-5).
const ACK: Duration = Duration::from_secs(2);

/// A host.
pub(super) struct Session {
    pub(super) gateway: Arc<Current>,
    /// Who its host is, which it does not say itself.
    principal: Principal,
    /// Which profile it sees, by place.
    profile: usize,
    pub(super) outbox: Outbox,
    tasks: TaskTracker,
    /// By raw id; shared with the tasks, which take themselves out.
    running: DashMap<Bytes, Arc<Upward>, RandomState>,
    bytes: std::sync::atomic::AtomicUsize,
    /// Wakes all who wait for the end of requests.
    freed: tokio::sync::Notify,
    state: Mutex<State>,
    /// What servers asked it.
    asked: Arc<Asked>,
    /// It has left: nothing is told any more.
    closed: CancellationToken,
}

struct State {
    /// What `initialize` agreed on.
    legacy: Option<Revision>,
    /// What the host declared there.
    capabilities: Capabilities,
    /// The host has taken our answer to it (VER-8).
    initialized: bool,
    /// The least grave log messages that the host wants (LOG-2).
    log_level: Option<LogLevel>,
    listens: Vec<Stream>,
    subscribed: Subscribed,
    /// What is told of them; made with the first.
    updates: Option<Arc<Updates>>,
    /// The lists that it got last, by kind, and those that it was told of last.
    listed: [Option<Fingerprint>; 4],
    told: Seen,
}

/// A listen stream.
struct Stream {
    listen: Arc<Listen>,
    /// Who opened it, and the lists that it was told of last.
    caller: Caller,
    told: Seen,
    /// What changed before its first message, which says what is honoured (SUB-3); `None` = that was sent.
    early: Option<BTreeSet<Kind>>,
    /// Ends what tells of single resources on it.
    closed: CancellationToken,
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.closed.cancel();
    }
}

/// A place among the running requests; given back when dropped.
struct Running {
    session: Arc<Session>,
    id: Bytes,
    upward: Arc<Upward>,
    size: usize,
}

impl Drop for Running {
    fn drop(&mut self) {
        // Unless the host gave it up, and the id is another's by now.
        self.session.running.remove_if(&self.id, |_, upward| Arc::ptr_eq(upward, &self.upward));
        self.session.bytes.fetch_sub(self.size, std::sync::atomic::Ordering::AcqRel);
        self.session.freed.notify_waiters();
    }
}

impl Later for Session {
    fn opened(&self, id: &Bytes) {
        if self.state().legacy == Some(Revision::V2025_11_25) && !self.outbox.is_full() {
            write::opened(&mut self.outbox.message(), id);
        }
    }
}

impl Session {
    pub(super) fn new(gateway: Arc<Current>, guest: Guest, outbox: Outbox, tasks: TaskTracker) -> Arc<Self> {
        let Guest { principal, profile, asked, .. } = guest;
        let state = State {
            legacy: None,
            capabilities: Capabilities::default(),
            initialized: false,
            log_level: None,
            listens: Vec::new(),
            subscribed: Subscribed::default(),
            updates: None,
            listed: [None; 4],
            told: {
                let now = gateway.now();
                *now.changes(now.sight(&principal, profile)).borrow()
            },
        };
        Arc::new(Self {
            gateway,
            principal,
            profile,
            outbox,
            tasks,
            running: DashMap::with_capacity_and_hasher_and_shard_amount(0, RandomState::default(), 4),
            bytes: Default::default(),
            freed: tokio::sync::Notify::new(),
            state: Mutex::new(state),
            asked: Asked::after(asked),
            closed: CancellationToken::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no request runs.
    pub(super) async fn free(&self) {
        self.wait(|| self.running.is_empty()).await;
    }

    /// Waits until its requests hold fewer bytes than they may.
    pub(super) async fn room(&self) {
        self.wait(|| self.bytes.load(std::sync::atomic::Ordering::Acquire) < MAX_BYTES).await;
    }

    /// Waits for what a request may bring about that ends.
    async fn wait(&self, is_so: impl Fn() -> bool) {
        loop {
            // Made before the look, so that what happens between is heard of.
            let freed = self.freed.notified();
            if is_so() {
                return;
            }
            freed.await;
        }
    }

    /// Nothing more comes from the host: what it was asked gets no answer.
    pub(super) fn host_gone(&self) {
        self.asked.close();
    }

    /// Takes a line of the host.
    pub(super) fn line(self: &Arc<Self>, line: &Bytes, index: &mut Index) {
        match Message::read(line, index) {
            Err(NoMessage { why: Why::Array, .. }) if self.state().legacy.is_some_and(Revision::has_batches) => {
                self.batch(line, index);
            }
            read => {
                let outbox = &self.outbox;
                self.message(line, index, read, &|id| ReplyTo::host(id, outbox), false);
            }
        }
    }

    /// Takes an array: each element is a message of its own, their answers are one array (ENV-9, ENV-10).
    fn batch(self: &Arc<Self>, line: &Bytes, index: &mut Index) {
        let places = Places::new(self.outbox.clone());
        let mut any = false;
        for (count, element) in json::elements(line).enumerate() {
            any = true;
            let element = line.slice_ref(element);
            let read = Message::read(&element, index);
            if count >= MAX_BATCH {
                if let Ok(Message::Request { id, .. }) = read {
                    let failure = Failure::limit("Too many messages in one array");
                    places.reply_to(element.slice(id.range())).send(|out, id| write::failure(out, Some(id), &failure));
                }
                continue;
            }
            self.message(&element, index, read, &|id| places.reply_to(id), true);
        }
        if !any {
            self.unreadable(&Failure::no_message(Why::Array));
        }
    }

    fn message(
        self: &Arc<Self>,
        line: &Bytes,
        index: &Index,
        read: Result<Message, NoMessage>,
        reply_to: &dyn Fn(Bytes) -> ReplyTo,
        in_batch: bool,
    ) {
        match read {
            Ok(Message::Request { id, method, params }) => {
                let reply = reply_to(line.slice(id.range()));
                if let Err((reply, failure)) = self.request(line, index, method, params, reply, in_batch) {
                    self.told(None, (method, line), Some(&failure));
                    reply.send(|out, id| write::failure(out, Some(id), &failure));
                }
            }
            Ok(Message::Notification { method, params }) => self.notification(line, index, method, params),
            Ok(Message::Result { id, result }) => {
                self.asked.answer(id.of(line), AskAnswer::Result(line.slice(result.span.range())));
            }
            Ok(Message::Error { id: Some(id), error }) => {
                self.asked.answer(id.of(line), AskAnswer::Error(line.slice(error.span.range())));
            }
            Ok(Message::Error { id: None, .. }) => {}
            Err(NoMessage { id, why }) => {
                let failure = Failure::no_message(why);
                match id {
                    Some(id) => {
                        reply_to(line.slice(id.range())).send(|out, id| write::failure(out, Some(id), &failure))
                    }
                    None if why == Why::Array => self.refuse_array(line, &failure),
                    None => self.unreadable(&failure),
                }
            }
        }
    }

    /// An array where the revision has none (ENV-9). A host that takes no error without an id gets one for each request in
    /// it.
    fn refuse_array(&self, line: &Bytes, failure: &Failure) {
        self.unreadable(failure);
        if self.takes_errors_without_id() {
            return;
        }
        let mut index = Index::new();
        for element in json::elements(line).take(MAX_BATCH) {
            if let Ok(Message::Request { id, .. }) = Message::read(&line.slice_ref(element), &mut index) {
                self.refuse(&element[id.range()], failure);
            }
        }
    }

    fn takes_errors_without_id(&self) -> bool {
        legacy::takes_errors_without_id(self.state().legacy)
    }

    /// A message without a readable id: hosts up to 2025-06-18 take no answer without one (ENV-4).
    pub(super) fn unreadable(&self, failure: &Failure) {
        tracing::warn!(why = failure.message, "a line of the host is no message");
        if self.takes_errors_without_id() {
            write::failure(&mut self.outbox.message(), None, failure);
        }
    }

    /// An error for a request that was not read whole.
    pub(super) fn refuse(&self, id: &[u8], failure: &Failure) {
        write::failure(&mut self.outbox.message(), Some(id), failure);
    }

    /// The method table. An error is answered by the caller.
    fn request(
        self: &Arc<Self>,
        line: &Bytes,
        index: &Index,
        method: Span,
        params: Option<Part>,
        reply: ReplyTo,
        in_batch: bool,
    ) -> Result<(), (ReplyTo, Failure)> {
        macro_rules! attempt {
            ($result:expr) => {
                match $result {
                    Ok(value) => value,
                    Err(failure) => return Err((reply, failure)),
                }
            };
        }
        let method_name = method.of(line);
        let known = Method::parse(method_name);
        let unknown = || Failure::unknown_method(&String::from_utf8_lossy(&method_name[..method_name.len().min(200)]));
        if self.running.contains_key(&reply.id) || self.listens(&reply.id) {
            return Err((reply, Failure::id_in_use()));
        }
        let modern = attempt!(modern_meta(line, index, params));
        let meta = modern.as_ref().map(|(meta, _)| *meta);
        let revision = match modern {
            Some((meta, version)) => {
                let revision = attempt!(modern::check(&meta, version));
                match known {
                    Some(Method::Discover) => {
                        let (gateway, sight) = self.now();
                        let members = modern::discover_result(&gateway.offers(sight), &gateway.instructions(sight));
                        reply.send(|out, id| write::result(out, id, revision, &members));
                        self.told(Some(revision), (method, line), None);
                        return Ok(());
                    }
                    Some(Method::Listen) => {
                        let params = params.map_or(&b""[..], |params| params.span.of(line));
                        let caller = attempt!(modern::caller(self.caller(revision), &meta, revision));
                        attempt!(self.listen(&reply, params, &caller));
                        self.told(Some(revision), (method, line), None);
                        return Ok(());
                    }
                    _ => revision,
                }
            }
            None => {
                let session = self.state().legacy;
                match (known, session) {
                    (Some(Method::Initialize), _) if in_batch => return Err((reply, Failure::misplaced_initialize())),
                    (Some(Method::Initialize), _) => {
                        let params = params.map_or(&b""[..], |params| params.span.of(line));
                        let (gateway, sight) = self.now();
                        let Opened { revision, capabilities, members } =
                            attempt!(legacy::open(&gateway, sight, params));
                        let mut state = self.state();
                        state.legacy = Some(revision);
                        state.capabilities = capabilities;
                        // A session that is opened anew has set and subscribed to nothing, and is told nothing yet.
                        state.log_level = None;
                        state.initialized = false;
                        let before = state.subscribed.clear();
                        drop(state);
                        drop(before);
                        let told = self.gateway.now().seen(&self.legacy_caller(revision));
                        self.state().told = told;
                        reply.send(|out, id| write::result(out, id, revision, &members));
                        self.told(None, (method, line), None);
                        return Ok(());
                    }
                    (Some(Method::Ping), session) => {
                        let revision = session.unwrap_or(Revision::LATEST_LEGACY);
                        reply.send(|out, id| write::result(out, id, revision, ""));
                        self.told(None, (method, line), None);
                        return Ok(());
                    }
                    (_, None) => return Err((reply, Failure::no_era())),
                    (_, Some(revision)) => revision,
                }
            }
        };
        let session = meta.is_none().then_some(0);
        let unserved = || {
            self.gateway.now().note_refused(&self.principal, session, method_name, "unknown-method");
            unknown()
        };
        let Some(known) = known else { return Err((reply, unserved())) };
        if meta.is_none() && matches!(known, Method::SetLevel | Method::Subscribe | Method::Unsubscribe) {
            return self.session_request((known, method), line, index, params, revision, reply);
        }
        // Known to no era, or not as a request of this one.
        let work =
            attempt!(attempt!(Work::read(revision.era(), known, line, index, params, None)).ok_or_else(unserved));
        let caller = match meta {
            Some(meta) => attempt!(modern::caller(self.caller(revision), &meta, revision)),
            None => self.legacy_caller(revision),
        };
        self.perform(work, caller, reply)
    }

    fn notification(&self, line: &Bytes, index: &Index, method: Span, params: Option<Part>) {
        match Method::parse(method.of(line)) {
            Some(Method::Initialized) => {
                self.state().initialized = true;
                // What changed since the session was opened has waited for this.
                self.lists_changed();
            }
            Some(Method::Cancelled) => self.cancel(line, index, params),
            Some(Method::RootsChanged) if self.state().legacy.is_some() => {
                let caller = self.legacy_caller(Revision::LATEST_LEGACY);
                self.gateway.now().roots_changed(&caller.principal, caller.session);
            }
            _ => {}
        }
    }

    /// CAN-1: by the raw id; what does not run is ignored.
    fn cancel(&self, line: &Bytes, index: &Index, params: Option<Part>) {
        let Some((id, reason)) = legacy::cancelled(line, index, params) else { return };
        // Its id is free at once: the host waits for no answer (ENV-2).
        if let Some((_, upward)) = self.running.remove(id) {
            upward.give_up(&reason);
        }
        self.state().listens.retain(|stream| stream.listen.id != id);
    }

    fn listens(&self, id: &Bytes) -> bool {
        self.state().listens.iter().any(|stream| stream.listen.id == *id)
    }

    /// Requests that are about the legacy session itself.
    fn session_request(
        self: &Arc<Self>,
        (method, name): (Method, Span),
        line: &Bytes,
        index: &Index,
        params: Option<Part>,
        revision: Revision,
        reply: ReplyTo,
    ) -> Result<(), (ReplyTo, Failure)> {
        if method == Method::SetLevel {
            let level = match legacy::level(line, index, params) {
                Ok(level) => level,
                Err(failure) => return Err((reply, failure)),
            };
            self.state().log_level = Some(level);
            reply.send(|out, id| write::result(out, id, revision, ""));
            self.told(None, (name, line), None);
            return Ok(());
        }
        let uri = match Call::read(method, line, index, params) {
            Ok(call) => json::text_of(call.target()).unwrap_or_default().into_owned(),
            Err(why) => return Err((reply, Failure::bad_call(why))),
        };
        if method == Method::Unsubscribe {
            // What was not subscribed to needs no more.
            let held = self.state().subscribed.remove(&uri);
            drop(held);
            reply.send(|out, id| write::result(out, id, revision, ""));
            self.told(None, (name, line), None);
            return Ok(());
        }
        let running = match self.enter(&reply.id, uri.len()) {
            Ok(running) => running,
            Err(failure) => return Err((reply, failure)),
        };
        let (session, updates) = (Arc::clone(self), self.updates());
        let caller = self.legacy_caller(revision);
        let number = self.state().subscribed.begin(&uri);
        let (gateway, message) = (self.gateway.now(), line.clone());
        self.tasks.spawn(async move {
            let held = tokio::select! {
                biased;
                _ = running.upward.happening() => None,
                () = session.closed.cancelled() => None,
                held = gateway.subscribe(&uri, &caller, &updates, Some(&message)) => Some(held),
            };
            let (held, answer) = match held {
                Some(Ok(Some(held))) => (Some(held), Some(Ok(()))),
                Some(Ok(None)) => (None, Some(Err(Failure::not_subscribed(&uri)))),
                Some(Err(failure)) => (None, Some(Err(failure))),
                None => (None, None),
            };
            let gone = session.state().subscribed.finish(&uri, number, held);
            drop(gone);
            drop(running);
            let Some(answer) = answer else { return };
            reply.send(|out, id| match &answer {
                Ok(()) => write::result(out, id, revision, ""),
                Err(failure) => write::failure(out, Some(id), failure),
            });
        });
        Ok(())
    }

    /// What changes of the session's resources wait to be told; told by a task of their own, as long as the host is
    /// there.
    fn updates(self: &Arc<Self>) -> Arc<Updates> {
        let mut state = self.state();
        if let Some(updates) = &state.updates {
            return Arc::clone(updates);
        }
        let updates = Arc::new(Updates::default());
        state.updates = Some(Arc::clone(&updates));
        drop(state);
        let (session, waiting) = (Arc::clone(self), Arc::clone(&updates));
        self.tasks.spawn(async move {
            let telling = async {
                loop {
                    for uri in waiting.next().await {
                        let message = legacy::updated(&uri);
                        session.outbox.room().await;
                        session.outbox.send(|out| out.extend_from_slice(&message));
                    }
                }
            };
            session.closed.run_until_cancelled(telling).await;
        });
        updates
    }

    /// Opens a stream. Its request stays without an answer until the stream ends.
    fn listen(self: &Arc<Self>, reply: &ReplyTo, params: &[u8], caller: &Caller) -> Result<(), Failure> {
        let mut listen = Listen::read(reply.id.clone(), params, caller)?;
        let (gateway, sight) = self.now();
        listen.honour(&gateway.offers(sight));
        drop(gateway);
        let listen = Arc::new(listen);
        let closed = self.closed.child_token();
        let mut state = self.state();
        if state.listens.len() >= MAX_LISTENS {
            return Err(Failure::limit("Too many listen streams"));
        }
        let early = listen.has_singles().then(BTreeSet::new);
        let (caller_of, told) = (caller.clone(), self.gateway.now().seen(caller));
        let stream = Stream { listen: Arc::clone(&listen), caller: caller_of, told, early, closed: closed.clone() };
        state.listens.push(stream);
        if !listen.has_singles() {
            // Under the lock, so that no change is told before it.
            self.outbox.send(|out| out.extend_from_slice(&listen.acknowledged(&Honoured::default())));
            return Ok(());
        }
        drop(state);
        let (session, caller) = (Arc::clone(self), caller.clone());
        self.tasks.spawn(async move {
            closed.run_until_cancelled(session.tell_singles(&listen, &caller)).await;
        });
        Ok(())
    }

    /// Subscribes to the resources and tasks of a stream, says to which, and tells of them. What is known when the time is
    /// over is said; what comes later is told all the same.
    async fn tell_singles(&self, listen: &Listen, caller: &Caller) {
        let updates = Arc::new(Updates::default());
        let (held, honoured) = subscribe_all(&self.gateway.now(), listen, caller, &updates, ACK).await;
        {
            let mut state = self.state();
            // Under the lock, so that no change is told before it.
            self.outbox.send(|out| out.extend_from_slice(&listen.acknowledged(&honoured)));
            let stream = state.listens.iter_mut().find(|stream| stream.listen.id == listen.id);
            for kind in stream.and_then(|stream| stream.early.take()).into_iter().flatten() {
                self.outbox.send(|out| out.extend_from_slice(&listen.changed(kind)));
            }
        }
        loop {
            tokio::select! {
                uris = updates.next() => for uri in uris {
                    self.outbox.room().await;
                    self.outbox.send(|out| out.extend_from_slice(&listen.updated(&uri)));
                },
                tasks = updates.next_tasks() => for (id, state) in tasks {
                    let Some(state) = self.gateway.now().task_news(&id, caller, &state) else { continue };
                    self.outbox.room().await;
                    self.outbox.send(|out| out.extend_from_slice(&listen.task(&state)));
                },
            }
            let _ = &held;
        }
    }

    /// Tells when its host may see something else.
    pub(super) fn changes(&self) -> Changes {
        self.gateway.changes(&self.principal, self.profile)
    }

    /// The gateway that is in force, and what its host sees of it: one says nothing to another.
    fn now(&self) -> (Arc<Gateway>, Sight) {
        let gateway = self.gateway.now();
        let sight = gateway.sight(&self.principal, self.profile);
        (gateway, sight)
    }

    /// A request was answered where it was read, in the legacy session unless it has a revision of its own.
    fn told(&self, modern: Option<Revision>, (method, line): (Span, &Bytes), failure: Option<&Failure>) {
        let legacy = self.state().legacy;
        let caller = match (modern, legacy) {
            (None, Some(revision)) => self.legacy_caller(revision),
            (modern, _) => self.caller(modern.unwrap_or(Revision::LATEST_MODERN)),
        };
        self.gateway.now().answered_apart(&caller, method.of(line), line, failure);
    }

    /// Who asks, before anything is known of a request.
    fn caller(&self, revision: Revision) -> Caller {
        Caller { principal: self.principal.clone(), profile: self.profile, ..Caller::stdio(revision) }
    }

    /// Who asks in the legacy session.
    fn legacy_caller(&self, revision: Revision) -> Caller {
        let state = self.state();
        let (capabilities, log_level) = (state.capabilities.clone(), state.log_level);
        Caller { capabilities, log_level, session: Some(0), ..self.caller(revision) }
    }

    /// Serves a request: a list at once where nothing has to be waited for, all else as a task of its own.
    fn perform(self: &Arc<Self>, work: Work, caller: Caller, reply: ReplyTo) -> Result<(), (ReplyTo, Failure)> {
        if let Work::List(kind, cursor, message) = &work
            && let Some(list) = self.gateway.now().list_now(*kind, &caller, cursor.as_deref(), message)
            && !self.outbox.is_full()
        {
            self.answer(reply, caller.revision, &list.map(Done::List), self.running.len() <= 1);
            return Ok(());
        }
        let running = match self.enter(&reply.id, work.size()) {
            Ok(running) => running,
            Err(failure) => return Err((reply, failure)),
        };
        // Only a host that opens URLs is told what became of them, and only in this era (URL-1).
        if caller.session.is_some() && caller.capabilities.elicitation_url {
            let session: Weak<Self> = Arc::downgrade(self);
            running.upward.then(session);
        }
        self.tasks.spawn(Arc::clone(self).run(work, caller, reply, running));
        Ok(())
    }

    async fn run(self: Arc<Self>, work: Work, caller: Caller, reply: ReplyTo, running: Running) {
        let upward = &running.upward;
        let token = work.progress_token();
        let tell = |happening| self.tell(happening, token.as_ref(), caller.revision);
        let gateway = self.gateway.now();
        let Some(done) = work.perform(&gateway, &caller, upward, tell).await else { return };
        reply.room().await;
        if upward.is_given_up() {
            return;
        }
        // Its id is free when the host reads the answer, so the place goes first (ENV-2).
        drop(running);
        self.answer(reply, caller.revision, &done, self.running.is_empty());
    }

    /// Tells the host what happens while a request of it runs.
    fn tell(&self, happening: Happening, token: Option<&Bytes>, revision: Revision) {
        match (happening, token) {
            (Happening::Progress(progress), Some(token)) if !self.outbox.is_full() => {
                write::progress(&mut self.outbox.message(), token, &progress, revision);
            }
            (Happening::Ask(ask), _) => {
                let Some((open, message)) = self.asked.put(ask) else { return };
                self.outbox.send(|out| out.extend_from_slice(&message));
                let outbox = self.outbox.clone();
                self.tasks.spawn(async move {
                    if let Some(message) = open.withdrawn().await {
                        outbox.send(|out| out.extend_from_slice(&message));
                    }
                });
            }
            (Happening::Log(message), _) if !self.outbox.is_full() => {
                write::log(&mut self.outbox.message(), &message);
            }
            (Happening::Opened(id), _) if revision == Revision::V2025_11_25 && !self.outbox.is_full() => {
                write::opened(&mut self.outbox.message(), &id);
            }
            (Happening::Progress(_) | Happening::Log(_) | Happening::Opened(_) | Happening::GivenUp, _) => {}
        }
    }

    fn answer(&self, reply: ReplyTo, revision: Revision, done: &Result<Done, Failure>, alone: bool) {
        if let Ok(Done::List(list)) = done
            && list.next.is_none()
        {
            self.state().listed[list.kind.index()] = Some(list.fingerprint);
        }
        reply.send_alone(alone, |out, id| write::done(out, id, revision, done));
    }

    /// A place for a request.
    fn enter(self: &Arc<Self>, id: &Bytes, size: usize) -> Result<Running, Failure> {
        if self.running.len() >= MAX_RUNNING {
            return Err(Failure::limit("Too many requests run at once"));
        }
        let upward = Arc::new(Upward::default());
        match self.running.entry(id.clone()) {
            Entry::Occupied(_) => return Err(Failure::id_in_use()),
            Entry::Vacant(place) => place.insert(Arc::clone(&upward)),
        };
        self.bytes.fetch_add(size, std::sync::atomic::Ordering::AcqRel);
        Ok(Running { session: Arc::clone(self), id: id.clone(), upward, size })
    }

    /// Tells the host of the lists that have changed, unless it has the new ones already (SUB-1, SUB-2).
    pub(super) fn lists_changed(&self) {
        let revision = {
            let state = self.state();
            state.legacy.filter(|_| state.initialized)
        };
        let now = revision.map(|revision| self.gateway.now().seen(&self.legacy_caller(revision)));
        let mut state = self.state();
        let State { listens, listed, told, .. } = &mut *state;
        if let Some(now) = now {
            for kind in changed(told, &now, listed) {
                self.outbox.send(|out| out.extend_from_slice(&legacy::list_changed(kind)));
            }
            *told = now;
        }
        for stream in listens {
            let now = self.gateway.now().seen(&stream.caller);
            for kind in changed(&stream.told, &now, listed).filter(|&kind| stream.listen.wants(kind)) {
                match &mut stream.early {
                    Some(early) => drop(early.insert(kind)),
                    None => self.outbox.send(|out| out.extend_from_slice(&stream.listen.changed(kind))),
                }
            }
            stream.told = now;
        }
    }

    /// Ends all listen streams: a result, then a cancellation (SUB-12).
    pub(super) fn end_listens(&self) {
        self.closed.cancel();
        for stream in std::mem::take(&mut self.state().listens) {
            self.outbox.send(|out| out.extend_from_slice(&stream.listen.ended()));
            self.outbox.send(|out| out.extend_from_slice(&write::cancelled(&stream.listen.id)));
        }
    }
}
