//! One connection to one server: own ids, own tokens, and a slot for each request that waits.
//!
//! Every slot is emptied: by the answer, by the server's end, by its deadline, or by whoever waits going away,
//! which also tells the server. Knows neither names nor hosts; what a request says is written by its caller.
//! [`super::receive`] reads what comes. The wire is lines, written and read by tasks of the connection, or HTTP, where
//! whoever waits for an answer drives the exchange that brings it ([`super::http`]). What may be held of answers is
//! bounded by [`super::held`].
//!
//! Long, and one thing: a slot is made, filled, timed, attributed and emptied under one lock.

use std::collections::{BTreeSet, HashMap};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use foldhash::fast::RandomState;
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::changed::Changed;
use super::held::{Answer, Held};
use super::http::{self, Http, Repeated};
use super::logs::Flow;
use super::looked::Looked;
use super::questions::Questions;
use super::{Fault, receive, tasks};
use crate::ident::{Principal, ServerKey};
use crate::protocol::call::push_number;
use crate::protocol::json;
use crate::protocol::level::LogLevel;
use crate::protocol::method::Method;
use crate::protocol::reply::Reply;
use crate::protocol::version::{Era, Revision};
use crate::telemetry::mask::Mask;
use crate::transport::Channel;
use crate::transport::outbox::Outbox;
use crate::transport::upward::Upward;

/// Bytes that wait to be written to a server, at most; then requests are refused.
const OUT_LIMIT: usize = 32 << 20;
/// Requests that wait for answers, at most.
const PENDING_LIMIT: usize = 2048;
/// With so few requests on their way, a stream that stays open among them, the next is not likely to follow at once.
const FEW: usize = 2;
/// Room for a message of usual size.
const BODY: usize = 512;
/// Acknowledged streams that are remembered until whoever waits for them has looked.
const MAX_ACKNOWLEDGED: usize = 8;
/// How long a server that is busy is waited for with a part of a call, where it says how long.
const PART_PATIENCE: Duration = Duration::from_secs(30);
/// How long a server may take to set its level.
const SET_LEVEL: Duration = Duration::from_secs(10);
/// How exactly deadlines are kept: one look at all requests this often costs less than a timer for each.
const TICK: Duration = Duration::from_millis(50);

/// How long an answer may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadlines {
    /// Without a sign of life.
    pub(super) idle: Duration,
    /// In all.
    pub(super) max: Duration,
}

impl Deadlines {
    /// One limit, whatever happens meanwhile.
    pub(super) const fn within(limit: Duration) -> Self {
        Self { idle: limit, max: limit }
    }
}

/// The host behind a request, and what passes beside it.
pub(super) struct ForHost {
    pub(super) upward: Arc<Upward>,
    pub(super) asker: Asker,
}

/// Whose request it is: what a server sends without naming a request is given to nobody else (REL-2).
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Asker {
    pub(super) principal: Principal,
    pub(super) session: Option<u64>,
    /// From which level on the host wants log messages; `None` = none.
    pub(super) log: Option<LogLevel>,
    /// Whether the server may ask back during it.
    pub(super) may_be_asked: bool,
}

/// What something that a server sent belongs to.
pub(super) struct Attributed {
    /// The id of the request.
    pub(super) id: u64,
    pub(super) upward: Arc<Upward>,
    pub(super) log: Option<LogLevel>,
}

/// How a server is reached.
pub(super) enum Way {
    Lines(Channel),
    Http(Arc<Http>),
}

/// What carries messages.
enum Wire {
    Lines(Outbox),
    Http(Arc<Http>),
}

/// A live connection.
pub struct Connection {
    pub(super) key: ServerKey,
    /// What must not be shown of its words.
    pub(super) mask: Mask,
    wire: Wire,
    /// Largest answer, in bytes.
    pub(super) max_result: u64,
    /// Largest list that is fetched, in bytes.
    pub(super) max_list: usize,
    /// Held for a look, never over an await.
    pending: Mutex<Pending>,
    next_id: AtomicU64,
    /// What was agreed on, once it is.
    pub(super) revision: OnceLock<Revision>,
    /// What the server said is another now; taken by its actor.
    pub(super) changed: Changed,
    /// The last streams of ours that are known to be open, and what they are about.
    acknowledged: watch::Sender<Vec<(u64, BTreeSet<Arc<str>>)>>,
    /// Bytes of answers that wait to be taken.
    pub(super) held: Arc<Held>,
    /// It said something since this was looked at.
    pub(super) heard: AtomicBool,
    /// Set when nothing new can be asked any more; before `closed`, or with it.
    pub(super) over: CancellationToken,
    /// Set when nobody is answered any more.
    pub(super) closed: CancellationToken,
    /// The server forgot our session (SES-4).
    session_lost: AtomicBool,
    /// Whether a host request was answered: a server that ends after that did not fail to start (D015).
    useful: AtomicBool,
    /// A host waited for an answer when it was closed.
    lost: AtomicBool,
    /// Wakes the task that keeps the deadlines.
    asked: Notify,
    /// Where a server's questions go; set right after it was opened.
    pub(super) questions: OnceLock<Arc<Questions>>,
    /// How much it logs.
    pub(super) logs: Flow,
    /// The level that a legacy server logs from, as we set it, or [`Connection::NO_LEVEL`]; [`Connection::NO_LOGGING`]
    /// when it has no levels.
    log_level: AtomicU8,
    /// It is a legacy server that takes calls as tasks (TSK-7).
    takes_tasks: AtomicBool,
    /// Which of its lists were compared with what was reviewed.
    pub(super) looked: Arc<Looked>,
}

struct Pending {
    slots: HashMap<u64, Slot, RandomState>,
    closed: bool,
    /// Someone keeps the deadlines just now.
    watched: bool,
    /// When the last request was seen.
    used: Instant,
}

impl Pending {
    /// The call that a request is a part of, or itself.
    fn call_of(&self, id: u64) -> u64 {
        self.slots.get(&id).and_then(|slot| slot.part_of).unwrap_or(id)
    }
}

struct Slot {
    outcome: Option<Result<Answer, Fault>>,
    waker: Option<Waker>,
    upward: Option<Arc<Upward>>,
    asker: Option<Asker>,
    /// Questions of the server that are open for it: told when it is over.
    questions: Vec<oneshot::Sender<()>>,
    /// Since when one is (TMO-2).
    paused: Option<Instant>,
    began: Instant,
    /// The last sign of life (TMO-1).
    touched: Instant,
    /// `None` for a stream of ours that stays open, which is no request that someone waits for.
    deadlines: Option<Deadlines>,
    /// It is a part of that call, which is driven as a task: what comes beside it belongs there.
    part_of: Option<u64>,
    /// The server's id of the task that stands for it.
    task: Option<Box<str>>,
}

impl Connection {
    const NO_LOGGING: u8 = 0;
    const NO_LEVEL: u8 = u8::MAX;

    /// Opens a connection; its tasks end with it.
    pub(super) fn open(
        key: ServerKey,
        mask: Mask,
        way: Way,
        (max_result, max_list): (u64, usize),
        tasks: &TaskTracker,
    ) -> Arc<Self> {
        let (wire, reader) = match way {
            Way::Lines(channel) => (Wire::Lines(Outbox::new(channel.writer, OUT_LIMIT)), Some(channel.reader)),
            Way::Http(http) => (Wire::Http(http), None),
        };
        let connection = Arc::new(Self {
            key,
            mask,
            wire,
            max_result,
            max_list,
            pending: Mutex::new(Pending {
                slots: HashMap::default(),
                closed: false,
                watched: false,
                used: Instant::now(),
            }),
            next_id: AtomicU64::new(1),
            revision: OnceLock::new(),
            changed: Changed::default(),
            acknowledged: watch::Sender::default(),
            held: Arc::default(),
            heard: AtomicBool::new(false),
            over: CancellationToken::new(),
            closed: CancellationToken::new(),
            session_lost: AtomicBool::new(false),
            useful: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            asked: Notify::new(),
            questions: OnceLock::new(),
            logs: Flow::default(),
            log_level: AtomicU8::new(Self::NO_LOGGING),
            takes_tasks: AtomicBool::new(false),
            looked: Arc::default(),
        });
        if let Some(reader) = reader {
            let writing = Arc::clone(&connection);
            tasks.spawn(async move {
                let Wire::Lines(outbox) = &writing.wire else { return };
                // The outbox closes with the connection: its end closes the server's input.
                if writing.closed.run_until_cancelled(outbox.write()).await.is_some() {
                    writing.close("its input closed");
                }
            });
            tasks.spawn(receive::run(Arc::clone(&connection), reader));
        }
        let watching = Arc::clone(&connection);
        tasks.spawn(async move { watching.closed.run_until_cancelled(watching.keep_deadlines()).await });
        connection
    }

    /// What was agreed on; the legacy era before that.
    pub fn revision(&self) -> Revision {
        *self.revision.get().unwrap_or(&Revision::LATEST_LEGACY)
    }

    /// The revision to name in requests to a modern server.
    pub fn modern(&self) -> Option<Revision> {
        let revision = self.revision();
        (revision.era() == Era::Modern).then_some(revision)
    }

    /// Whether nothing can be asked any more.
    pub fn is_closed(&self) -> bool {
        self.over.is_cancelled()
    }

    /// The way to a server behind a URL.
    pub(super) fn http(&self) -> Option<&Arc<Http>> {
        match &self.wire {
            Wire::Http(http) => Some(http),
            Wire::Lines(_) => None,
        }
    }

    /// The server forgot our session: nothing new is asked in it. Whoever still waits is told the same by the server.
    pub(super) fn lose_session(&self) {
        self.session_lost.store(true, Ordering::Relaxed);
        self.pending().closed = true;
        self.over.cancel();
    }

    /// Whether it did.
    pub(super) fn lost_session(&self) -> bool {
        self.session_lost.load(Ordering::Relaxed)
    }

    /// No connection could be opened to the server for this request, which ends so. When nobody else has one that works,
    /// the server is gone.
    pub(super) fn unreachable(&self, id: u64, fault: Fault) {
        let (call, host_waits) = {
            let pending = self.pending();
            let call = pending.call_of(id);
            let waits = |slot: &Slot| slot.outcome.is_none() && slot.upward.is_some();
            (call, pending.slots.get(&call).is_some_and(waits))
        };
        self.settle(id, Err(fault));
        if !self.is_used_beside(call) {
            self.lost.fetch_or(host_waits, Ordering::Relaxed);
            self.close("it cannot be reached");
        }
    }

    /// Whether a request or stream other than this call, or a part of it, has no outcome yet.
    fn is_used_beside(&self, call: u64) -> bool {
        let pending = self.pending();
        pending.slots.iter().any(|(&id, slot)| slot.outcome.is_none() && slot.part_of.unwrap_or(id) != call)
    }

    /// Whether so much waits to be sent that answers of ours are left out.
    pub(super) fn is_full(&self) -> bool {
        match &self.wire {
            Wire::Lines(outbox) => outbox.is_full(),
            Wire::Http(http) => http.is_full(),
        }
    }

    /// Whether it served a host.
    pub(super) fn was_useful(&self) -> bool {
        self.useful.load(Ordering::Relaxed)
    }

    /// Whether it ended with requests of hosts that had no answer yet.
    pub(super) fn lost_requests(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    /// Since when nobody asked anything, to a few [`TICK`]s; `None` while someone waits for an answer.
    pub(super) fn unused_since(&self) -> Option<Instant> {
        let pending = self.pending();
        (!pending.watched).then_some(pending.used)
    }

    /// How many requests wait for answers.
    pub fn in_flight(&self) -> usize {
        self.pending().slots.values().filter(|slot| slot.deadlines.is_some()).count()
    }

    /// How long the requests that wait for answers may take without a sign of life, at most: `Some(None)` where a user is
    /// asked, which takes as long as it takes; `None` when there are none.
    pub(super) fn patience(&self) -> Option<Option<Duration>> {
        let pending = self.pending();
        let waiting = || pending.slots.values().filter(|slot| slot.deadlines.is_some());
        let longest = waiting().filter_map(|slot| slot.deadlines).map(|deadlines| deadlines.idle).max()?;
        Some(waiting().all(|slot| slot.paused.is_none()).then_some(longest))
    }

    /// Waits until no request waits for an answer.
    pub(super) async fn drained(&self) {
        while self.in_flight() > 0 {
            sleep(TICK).await;
        }
    }

    /// Ends requests whose time is over, as long as there are any.
    async fn keep_deadlines(&self) {
        loop {
            self.asked.notified().await;
            while self.expire(Instant::now()) {
                sleep(TICK).await;
            }
        }
    }

    /// Ends requests whose time is over; whether any is left.
    fn expire(&self, now: Instant) -> bool {
        let mut pending = self.pending();
        let mut wakers = Vec::new();
        let mut any = false;
        for slot in pending.slots.values_mut() {
            let Some(deadlines) = slot.deadlines else { continue };
            any = true;
            if slot.paused.is_some() {
                continue;
            }
            let over = [(slot.touched, deadlines.idle), (slot.began, deadlines.max)];
            let over = over.into_iter().find(|&(since, limit)| now.duration_since(since) >= limit);
            if let (Some((_, limit)), None) = (over, &slot.outcome) {
                slot.outcome = Some(Err(Fault::Timeout(limit)));
                wakers.extend(slot.waker.take());
            }
        }
        pending.used = now;
        pending.watched = any;
        drop(pending);
        for waker in wakers {
            waker.wake();
        }
        any
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends it: all who wait are told why, its input closes.
    pub(super) fn close(&self, why: &str) {
        let mut pending = self.pending();
        pending.closed = true;
        let mut wakers = Vec::new();
        for slot in pending.slots.values_mut() {
            // Only hosts' requests count: a list of ours is asked again after the next start.
            if slot.outcome.is_none() && slot.upward.is_some() {
                self.lost.store(true, Ordering::Relaxed);
            }
            slot.outcome.get_or_insert_with(|| Err(Fault::gone(why)));
            wakers.extend(slot.waker.take());
        }
        drop(pending);
        if let Wire::Lines(outbox) = &self.wire {
            outbox.close();
        }
        self.over.cancel();
        self.closed.cancel();
        for waker in wakers {
            waker.wake();
        }
    }

    /// Sends a request under an id of our own; `params` writes its params, and may use the id as progress token.
    /// Without deadlines it is a stream that stays open.
    pub(super) fn request(
        self: &Arc<Self>,
        method: Method,
        deadlines: Option<Deadlines>,
        host: Option<ForHost>,
        params: impl FnOnce(&mut Vec<u8>, u64),
    ) -> Result<Waiting, Fault> {
        self.request_with(method, deadlines, host, Repeated::default(), params)
    }

    /// The same, of which HTTP headers repeat something.
    pub(super) fn request_with(
        self: &Arc<Self>,
        method: Method,
        deadlines: Option<Deadlines>,
        host: Option<ForHost>,
        repeated: Repeated<'_>,
        params: impl FnOnce(&mut Vec<u8>, u64),
    ) -> Result<Waiting, Fault> {
        self.send(method, deadlines, host, None, repeated, params)
    }

    /// Sends a request that is a part of a call ([`Connection::hold`]); nobody is told when its answer is not wanted.
    pub(super) fn request_part(
        self: &Arc<Self>,
        call: u64,
        method: Method,
        deadlines: Deadlines,
        params: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Waiting, Fault> {
        let sent = self.send(method, Some(deadlines), None, Some(call), Repeated::default(), |out, _| params(out));
        sent.map(Waiting::uncancellable)
    }

    /// A call that is made of several requests. It ends by its deadlines, with the connection, or when it is dropped.
    pub(super) fn hold(self: &Arc<Self>, deadlines: Deadlines, host: ForHost) -> Result<Waiting, Fault> {
        let ForHost { upward, asker } = host;
        let (id, _) = self.open_slot(Some(deadlines), Some(Arc::clone(&upward)), Some(asker), None)?;
        let connection = Arc::clone(self);
        Ok(Waiting { connection, id, upward: Some(upward), cancellable: false, done: false, exchange: None })
    }

    /// Makes a place for an answer; answers its id, and whether few wait.
    fn open_slot(
        &self,
        deadlines: Option<Deadlines>,
        upward: Option<Arc<Upward>>,
        asker: Option<Asker>,
        part_of: Option<u64>,
    ) -> Result<(u64, bool), Fault> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let mut pending = self.pending();
        if pending.closed {
            return Err(if self.lost_session() { Fault::SessionLost } else { Fault::gone("it has ended") });
        }
        if pending.slots.len() >= PENDING_LIMIT {
            return Err(Fault::Limit(format!("{PENDING_LIMIT} requests wait for its answers")));
        }
        let now = Instant::now();
        let slot = Slot {
            outcome: None,
            waker: None,
            upward,
            asker,
            questions: Vec::new(),
            paused: None,
            began: now,
            touched: now,
            deadlines,
            part_of,
            task: None,
        };
        pending.slots.insert(id, slot);
        if deadlines.is_some() && !std::mem::replace(&mut pending.watched, true) {
            self.asked.notify_one();
        }
        Ok((id, pending.slots.len() <= FEW))
    }

    fn send(
        self: &Arc<Self>,
        method: Method,
        deadlines: Option<Deadlines>,
        host: Option<ForHost>,
        part_of: Option<u64>,
        repeated: Repeated<'_>,
        params: impl FnOnce(&mut Vec<u8>, u64),
    ) -> Result<Waiting, Fault> {
        let (upward, asker) = host.map(|host| (host.upward, host.asker)).unzip();
        if matches!(&self.wire, Wire::Lines(outbox) if outbox.is_full()) {
            return Err(Fault::Limit(format!("more than {} MiB wait to be sent to it", OUT_LIMIT >> 20)));
        }
        let (id, few) = self.open_slot(deadlines, upward.clone(), asker, part_of)?;
        let write = |out: &mut Vec<u8>| push_request(out, id, method, |out| params(out, id));
        let exchange: Option<Exchange> = match &self.wire {
            Wire::Lines(outbox) => {
                let mut message = outbox.message();
                write(message.bytes());
                if few {
                    message.alone();
                }
                None
            }
            Wire::Http(http) => {
                let mut body = Vec::with_capacity(BODY);
                write(&mut body);
                let ask = http::Ask {
                    method,
                    head: http::Head::new(self.revision(), Some(method), repeated),
                    body: body.into(),
                    patience: match part_of {
                        Some(_) => PART_PATIENCE,
                        None => deadlines.map_or(Duration::ZERO, |deadlines| deadlines.idle),
                    },
                };
                Some(Box::pin(http::exchange(Arc::clone(self), Arc::clone(http), id, ask)))
            }
        };
        Ok(Waiting { connection: Arc::clone(self), id, upward, cancellable: true, done: false, exchange })
    }

    /// Sends a notification with these raw params.
    pub(super) fn notify(&self, method: Method, params: &str) {
        self.say(Some(method), |out| push_notification(out, method, params));
    }

    /// The same, and sees it accepted where the wire tells.
    pub(super) async fn notify_now(&self, method: Method, params: &str) -> Result<(), Fault> {
        match &self.wire {
            Wire::Lines(_) => {
                self.notify(method, params);
                Ok(())
            }
            Wire::Http(http) => {
                let mut body = Vec::new();
                push_notification(&mut body, method, params);
                let head = http::Head::new(self.revision(), Some(method), Repeated::default());
                http.tell(&head, body.into()).await
            }
        }
    }

    /// Asks something whose answer changes nothing: it is as if told.
    pub(super) fn ask_nobody(&self, method: Method, params: impl FnOnce(&mut Vec<u8>)) {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        self.say(Some(method), |out| push_request(out, id, method, params));
    }

    /// Answers a request of the server: its raw id, `result` or `error`, and the raw object.
    pub(super) fn respond(&self, id: &[u8], member: &str, object: &[u8]) {
        self.say(None, |out| {
            out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
            out.extend_from_slice(id);
            out.extend_from_slice(b",\"");
            out.extend_from_slice(member.as_bytes());
            out.extend_from_slice(b"\":");
            out.extend_from_slice(object);
            out.push(b'}');
        });
    }

    /// Sends what nobody answers.
    fn say(&self, method: Option<Method>, write: impl FnOnce(&mut Vec<u8>)) {
        match &self.wire {
            Wire::Lines(outbox) => outbox.send(write),
            Wire::Http(http) => {
                if self.closed.is_cancelled() {
                    return;
                }
                let mut body = Vec::new();
                write(&mut body);
                http.tell_soon(http::Head::new(self.revision(), method, Repeated::default()), body.into());
            }
        }
    }

    /// Which request of a host something belongs to that names none (REL-2): the one whose `task` it names, else the one
    /// on whose stream it came, else the only one, else the latest of one host. Between hosts nothing is guessed (D065,
    /// D068).
    pub(super) fn attribute(&self, stream: Option<u64>, task: Option<&str>, is_question: bool) -> Option<Attributed> {
        let pending = self.pending();
        let stream = stream.map(|id| pending.call_of(id));
        let mut found: Option<(u64, &Slot, &Asker)> = None;
        for (&id, slot) in &pending.slots {
            let Some(asker) = slot.asker.as_ref().filter(|_| slot.outcome.is_none()) else { continue };
            if task.is_some() && slot.task.as_deref() == task {
                return Some(Attributed { id, upward: slot.upward.clone()?, log: asker.log });
            }
            if stream.is_some_and(|stream| stream != id) || (is_question && !asker.may_be_asked) {
                continue;
            }
            match found {
                Some((_, _, other)) if (&other.principal, other.session) != (&asker.principal, asker.session) => {
                    return None;
                }
                Some((latest, ..)) if latest > id => {}
                _ => found = Some((id, slot, asker)),
            }
        }
        if task.is_some() && stream.is_none() {
            // Of a task that nobody waits for any more.
            return None;
        }
        let (id, slot, asker) = found?;
        Some(Attributed { id, upward: slot.upward.clone()?, log: asker.log })
    }

    /// What passes beside a request that waits, or beside the call that it is a part of.
    pub(super) fn upward_of(&self, id: u64) -> Option<Arc<Upward>> {
        let pending = self.pending();
        pending.slots.get(&pending.call_of(id)).and_then(|slot| slot.upward.clone())
    }

    /// A question of the server is open for a request: its clock stands still (TMO-2). Resolves when the request is
    /// over; `None` when it is already.
    pub(super) fn question_opens(&self, id: u64) -> Option<oneshot::Receiver<()>> {
        let mut pending = self.pending();
        let slot = pending.slots.get_mut(&id).filter(|slot| slot.outcome.is_none())?;
        let (over, told) = oneshot::channel();
        slot.questions.push(over);
        slot.paused.get_or_insert_with(Instant::now);
        Some(told)
    }

    /// It was answered; what the user needed does not count. Called when the receiver of
    /// [`Connection::question_opens`] is gone.
    pub(super) fn question_closes(&self, id: u64) {
        let mut pending = self.pending();
        let Some(slot) = pending.slots.get_mut(&id) else { return };
        slot.questions.retain(|question| !question.is_closed());
        if slot.questions.is_empty()
            && let Some(since) = slot.paused.take()
        {
            let now = Instant::now();
            slot.began += now.duration_since(since);
            slot.touched = now;
        }
    }

    /// It is a legacy server with levels.
    pub(super) fn has_levels(&self) {
        self.log_level.store(Self::NO_LEVEL, Ordering::Relaxed);
    }

    /// Has a legacy server log from this level on, unless it logs more already (LOG-2).
    pub(super) fn want_level(self: &Arc<Self>, level: LogLevel) {
        let wanted = level as u8 + 1;
        if self.log_level.fetch_min(wanted, Ordering::Relaxed) <= wanted {
            return;
        }
        let asked = self.request(Method::SetLevel, Some(Deadlines::within(SET_LEVEL)), None, |out, _| {
            out.extend_from_slice(format!(r#"{{"level":"{}"}}"#, level.as_str()).as_bytes());
        });
        if let (Ok(waiting), Some(questions)) = (asked, self.questions.get()) {
            questions.tasks.spawn(async move {
                // What it says to it changes nothing.
                let _ = waiting.answer().await;
            });
        }
    }

    /// It is a legacy server that takes calls as tasks.
    pub(super) fn takes_tasks(&self) {
        self.takes_tasks.store(true, Ordering::Relaxed);
    }

    /// Whether it is.
    pub(super) fn has_tasks(&self) -> bool {
        self.takes_tasks.load(Ordering::Relaxed)
    }

    /// A call of a host was served, in several requests.
    pub(super) fn served(&self) {
        self.useful.store(true, Ordering::Relaxed);
    }

    /// What passes beside a call goes to another request of its host; answers where it went until now.
    pub(super) fn redirect(&self, id: u64, upward: Arc<Upward>) -> Option<Arc<Upward>> {
        self.pending().slots.get_mut(&id)?.upward.replace(upward)
    }

    /// Whether someone waits for the answer with this id.
    pub(super) fn waits(&self, id: u64) -> bool {
        self.pending().slots.get(&id).is_some_and(|slot| slot.outcome.is_none())
    }

    /// The id of the only request that waits, when it is the only one.
    pub(super) fn only_one(&self) -> Option<u64> {
        let pending = self.pending();
        let mut waiting = pending.slots.iter().filter(|(_, slot)| slot.outcome.is_none() && slot.deadlines.is_some());
        let (&id, _) = waiting.next()?;
        waiting.next().is_none().then_some(id)
    }

    /// Gives a request its outcome; one that nobody waits for is dropped (ENV-7).
    pub(super) fn settle(&self, id: u64, outcome: Result<Reply, Fault>) {
        let outcome = outcome.map(|reply| Answer::new(reply, self.revision().era(), &self.held));
        let mut pending = self.pending();
        match pending.slots.get_mut(&id) {
            Some(slot) if slot.outcome.is_none() => {
                // Noted here, not by whoever waits: the server may end before that one runs.
                if outcome.is_ok() && slot.upward.is_some() {
                    self.useful.store(true, Ordering::Relaxed);
                }
                // Before what comes next is read: it may belong to the task.
                let created = slot.part_of.and_then(|call| Some((call, tasks::created(outcome.as_ref().ok()?)?)));
                slot.outcome = Some(outcome);
                slot.questions.clear();
                let waker = slot.waker.take();
                if let Some((call, task)) = created
                    && let Some(call) = pending.slots.get_mut(&call)
                {
                    call.task.get_or_insert(task);
                }
                drop(pending);
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
            _ => {
                drop(pending);
                tracing::debug!(server = %self.key, id, "an answer that nobody waits for");
            }
        }
    }

    /// A stream of ours is open, and about these (SUB-3).
    pub(super) fn acknowledge(&self, id: u64, about: BTreeSet<Arc<str>>) {
        if self.pending().slots.contains_key(&id) {
            self.acknowledged.send_modify(|known| {
                known.retain(|(of, _)| *of != id);
                if known.len() >= MAX_ACKNOWLEDGED {
                    known.remove(0);
                }
                known.push((id, about));
            });
        }
    }

    /// Waits for that, `deadline` at most.
    pub(super) async fn acknowledged(&self, id: u64, deadline: Instant) -> Option<BTreeSet<Arc<str>>> {
        let mut known = self.acknowledged.subscribe();
        let is_it = |known: &Vec<(u64, BTreeSet<Arc<str>>)>| known.iter().any(|(of, _)| *of == id);
        let found = timeout_at(deadline, known.wait_for(is_it)).await.ok()?.ok()?;
        found.iter().find(|(of, _)| *of == id).map(|(_, about)| about.clone())
    }

    /// Waits until what is held is within bounds.
    pub(super) async fn may_read(&self) {
        self.held.may_read().await;
    }

    /// A sign of life of a request; answers where its progress goes, when someone wants it.
    pub(super) fn touch(&self, id: u64, now: Instant) -> Option<Arc<Upward>> {
        let mut pending = self.pending();
        let slot = pending.slots.get_mut(&id).filter(|slot| slot.outcome.is_none())?;
        slot.touched = now;
        slot.upward.clone()
    }
}

fn push_request(out: &mut Vec<u8>, id: u64, method: Method, params: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    push_number(out, id);
    out.extend_from_slice(b",\"method\":\"");
    out.extend_from_slice(method.as_str().as_bytes());
    out.extend_from_slice(b"\",\"params\":");
    params(out);
    out.push(b'}');
}

fn push_notification(out: &mut Vec<u8>, method: Method, params: &str) {
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"method\":\"");
    out.extend_from_slice(method.as_str().as_bytes());
    out.push(b'"');
    if !params.is_empty() {
        out.extend_from_slice(b",\"params\":");
        out.extend_from_slice(params.as_bytes());
    }
    out.push(b'}');
}

/// What brings the answer where nobody else does; its slot has the outcome when it is done.
type Exchange = Pin<Box<dyn Future<Output = Result<(), Fault>> + Send>>;

/// A request on its way. Dropping it tells the server that nobody waits any more.
pub(super) struct Waiting {
    connection: Arc<Connection>,
    id: u64,
    upward: Option<Arc<Upward>>,
    cancellable: bool,
    done: bool,
    /// Dropped, the answer is no longer read, which cancels a modern request (§10.11).
    exchange: Option<Exchange>,
}

impl Waiting {
    /// Its id, of this connection.
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// The server must not hear of it when nobody waits any more: `initialize` and the probe (CAN-1).
    pub(super) fn uncancellable(mut self) -> Self {
        self.cancellable = false;
        self
    }

    /// Waits for the answer.
    pub(super) async fn answer(mut self) -> Result<Answer, Fault> {
        self.answered().await
    }

    /// From now on, what passes beside it goes to another request of its host; answers where it went until now.
    pub(super) fn redirect(&mut self, upward: Arc<Upward>) -> Option<Arc<Upward>> {
        self.connection.redirect(self.id, Arc::clone(&upward));
        self.upward.replace(upward)
    }

    /// Waits for the answer, which comes once. Nothing is lost when the future is dropped.
    pub(super) async fn answered(&mut self) -> Result<Answer, Fault> {
        let outcome = poll_fn(|cx| self.poll(cx)).await;
        self.done = true;
        self.exchange = None;
        if matches!(outcome, Err(Fault::Timeout(_))) {
            self.cancel();
        }
        outcome
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Answer, Fault>> {
        if let Some(exchange) = &mut self.exchange {
            // What it brings is looked for below: it need not wake us for that.
            if let Some(slot) = self.connection.pending().slots.get_mut(&self.id) {
                slot.waker = None;
            }
            if let Poll::Ready(done) = exchange.as_mut().poll(cx) {
                self.exchange = None;
                if let Err(fault) = done {
                    self.connection.settle(self.id, Err(fault));
                }
            }
        }
        let mut pending = self.connection.pending();
        let Some(slot) = pending.slots.get_mut(&self.id) else {
            return Poll::Ready(Err(Fault::gone("it has ended")));
        };
        if slot.outcome.is_none() {
            if !slot.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                slot.waker = Some(cx.waker().clone());
            }
            return Poll::Pending;
        }
        let slot = pending.slots.remove(&self.id);
        match slot.and_then(|slot| slot.outcome) {
            Some(outcome) => Poll::Ready(outcome),
            None => Poll::Pending,
        }
    }
}

impl Waiting {
    /// Tells the server that nobody waits any more.
    fn cancel(&self) {
        // A modern server behind a URL is told by the end of the exchange.
        if !self.cancellable || self.connection.http().is_some() && self.connection.modern().is_some() {
            return;
        }
        let mut params = Vec::from(&b"{\"requestId\":"[..]);
        push_number(&mut params, self.id);
        if let Some(reason) = self.upward.as_ref().and_then(|upward| upward.reason()) {
            params.extend_from_slice(b",\"reason\":");
            json::push_string(&mut params, &reason);
        }
        params.push(b'}');
        self.connection.notify(Method::Cancelled, &String::from_utf8_lossy(&params));
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let slot = self.connection.pending().slots.remove(&self.id);
        if slot.is_some_and(|slot| slot.outcome.is_none()) {
            self.cancel();
        }
    }
}
