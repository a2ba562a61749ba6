//! What passes beside a request while it runs: a server's progress, log messages and questions on their way to the
//! host that asked, and the host's reason for giving up on its way to the server.
//!
//! One queue per request, filled by the reader of the server's connection and emptied by the task of the
//! request. At its bound the oldest go: progress tells how far a thing is, and the newest tells it best
//! (PRG-5). Progress that does not grow is dropped here (PRG-2). Questions have a queue of their own: the gateway
//! takes them first ([`Upward::asked`]), judges them, and hands on what the host shall see ([`Upward::ask_host`]).

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::bucket::Bucket;
use crate::protocol::json::Span;
use crate::protocol::level::LogLevel;
use crate::protocol::method::Method;

/// Notifications that wait at most.
const DEPTH: usize = 64;
/// Questions of one request that wait at most (REL-5).
const MAX_ASKS: usize = 32;
/// Passed at once; beyond it one for each [`REFILL`].
const BURST: u32 = 32;
/// Ten a second (PRG-5).
const REFILL: Duration = Duration::from_millis(100);

/// A progress notification of a server.
#[derive(Debug)]
pub struct Progress {
    /// The server's message.
    pub line: Bytes,
    /// Its params.
    pub params: Span,
    /// The token in it, which is ours and becomes the host's.
    pub token: Span,
    /// Its `message`, which the oldest hosts do not know (PRG-6).
    pub message: Option<Span>,
}

/// A log message of a server.
#[derive(Debug)]
pub struct LogMessage {
    /// The server's message.
    pub line: Bytes,
    /// Its params.
    pub params: Span,
    /// The value of its `logger`, raw.
    pub logger: Option<Span>,
    /// How grave it is.
    pub level: LogLevel,
    /// The key of the server: what its logger is prefixed with (LOG-3).
    pub server: Box<str>,
}

/// A question of a server to the host: roots, sampling or elicitation. Dropping it answers that nobody did.
#[derive(Debug)]
pub struct Ask {
    /// Which.
    pub method: Method,
    /// Its params, a raw object.
    pub params: Option<Bytes>,
    /// Where the answer goes; closed when the server wants none any more.
    pub reply: oneshot::Sender<AskAnswer>,
}

/// The answer to a question.
#[derive(Debug)]
pub enum AskAnswer {
    /// A raw result object.
    Result(Bytes),
    /// A raw error object.
    Error(Bytes),
}

/// What happens to a request while it runs.
#[derive(Debug)]
pub enum Happening {
    /// The host wants no answer any more.
    GivenUp,
    /// The server tells how far it is.
    Progress(Progress),
    /// The server logs.
    Log(LogMessage),
    /// The host is asked something; it is a legacy one.
    Ask(Ask),
    /// What a URL was opened for is done: the raw `elicitationId`, for a host whose revision has a word for it.
    Opened(Bytes),
}

/// The session that a request belongs to: hears what comes for its host when the request itself is over.
pub trait Later: Send + Sync {
    /// What a URL was opened for is done; the raw `elicitationId`.
    fn opened(&self, id: &Bytes);
}

/// The queue of one request.
#[derive(Default)]
pub struct Upward {
    state: Mutex<State>,
    /// Set right after it was made, for a host that can be told of what is later.
    later: OnceLock<Weak<dyn Later>>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Happening>,
    /// Questions that the gateway has not taken yet, and its task.
    asks: VecDeque<Ask>,
    asks_waker: Option<Waker>,
    /// The last value let in.
    last: Option<f64>,
    /// How many were let in.
    bucket: Bucket,
    /// Over the rate: the newest of those held back.
    held: Option<Progress>,
    /// Why the host gave up; empty when it did not say.
    given_up: Option<Box<str>>,
    /// The request has its answer.
    over: bool,
    /// No log message is for the host.
    mute: bool,
    /// The task of the request.
    waker: Option<Waker>,
}

/// Longest reason that is passed on (CAN-5).
const MAX_REASON: usize = 256;

impl Upward {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What comes when the request is over goes there.
    pub fn then(&self, later: Weak<dyn Later>) {
        // Once; it has one session.
        let _ = self.later.set(later);
    }

    /// The host gives up, for this reason (CAN-5); the first one counts.
    pub fn give_up(&self, reason: &str) {
        let reason: String = reason.chars().filter(|c| !c.is_control()).take(MAX_REASON).collect();
        let mut state = self.state();
        state.given_up.get_or_insert(reason.into());
        wake(state);
    }

    /// Whether the host wants no answer any more.
    pub fn is_given_up(&self) -> bool {
        self.state().given_up.is_some()
    }

    /// Why the host gave up, when it said.
    pub fn reason(&self) -> Option<Box<str>> {
        self.state().given_up.clone().filter(|reason| !reason.is_empty())
    }

    /// What happens next. Nothing is lost when the future is dropped.
    pub async fn happening(&self) -> Happening {
        loop {
            let held_until = self.held_until();
            let next = poll_fn(|cx| self.poll(cx.waker(), held_until.is_some()));
            let next = match held_until {
                None => next.await,
                Some(at) => timeout_at(at, next).await.unwrap_or_else(|_| self.release(at)),
            };
            if let Some(happening) = next {
                return happening;
            }
        }
    }

    /// Ready with nothing where a time must be looked at first.
    fn poll(&self, waker: &Waker, timed: bool) -> Poll<Option<Happening>> {
        let mut state = self.state();
        if state.given_up.is_some() {
            return Poll::Ready(Some(Happening::GivenUp));
        }
        if let Some(happening) = state.waiting.pop_front() {
            return Poll::Ready(Some(happening));
        }
        if state.held.is_some() && !timed {
            return Poll::Ready(None);
        }
        if !state.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            state.waker = Some(waker.clone());
        }
        Poll::Pending
    }

    fn held_until(&self) -> Option<Instant> {
        let state = self.state();
        state.held.as_ref().and(state.bucket.since).map(|since| since + REFILL)
    }

    /// The time of what was held back has come: it is the one that this time gave back.
    fn release(&self, now: Instant) -> Option<Happening> {
        let mut state = self.state();
        state.bucket.since = Some(now);
        state.held.take().map(Happening::Progress)
    }

    /// Takes a notification in; `value` is its raw `progress`. Called by the server's reader.
    pub fn push(&self, progress: Progress, value: &[u8], now: Instant) {
        let Some(value) = std::str::from_utf8(value).ok().and_then(|v| v.parse::<f64>().ok()) else { return };
        let mut state = self.state();
        if state.last.is_some_and(|last| value <= last) {
            return;
        }
        state.last = Some(value);
        state.bucket.refill(now, REFILL);
        if state.bucket.spent >= BURST {
            if state.held.replace(progress).is_none() {
                wake(state);
            }
            return;
        }
        state.bucket.spent += 1;
        state.held = None;
        enqueue(state, Happening::Progress(progress));
    }

    /// Takes a log message in. Called by the server's reader, which has looked at its level.
    pub fn push_log(&self, message: LogMessage) {
        let state = self.state();
        if !state.mute {
            enqueue(state, Happening::Log(message));
        }
    }

    /// What the server logs is not for this host.
    pub fn without_logs(&self) {
        self.state().mute = true;
    }

    /// Tells the host that what it opened a URL for is done; the raw `elicitationId`. Most users are slower than the
    /// request that asked them (URL-1).
    pub fn push_opened(&self, id: Bytes) {
        let state = self.state();
        if !state.over && state.given_up.is_none() {
            return enqueue(state, Happening::Opened(id));
        }
        drop(state);
        if let Some(later) = self.later.get().and_then(Weak::upgrade) {
            later.opened(&id);
        }
    }

    /// Takes a question of the server in; gives it back when too many wait. Called by the server's reader.
    pub fn push_ask(&self, ask: Ask) -> Result<(), Ask> {
        let mut state = self.state();
        if state.asks.len() >= MAX_ASKS {
            return Err(ask);
        }
        state.asks.push_back(ask);
        let waker = state.asks_waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }

    /// The next question of the server. Nothing is lost when the future is dropped.
    pub async fn asked(&self) -> Ask {
        poll_fn(|cx| {
            let mut state = self.state();
            match state.asks.pop_front() {
                Some(ask) => Poll::Ready(ask),
                None => {
                    state.asks_waker = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// A question of the server that waits, if any.
    pub fn take_ask(&self) -> Option<Ask> {
        self.state().asks.pop_front()
    }

    /// Puts a question to the host of this request, which must be a legacy one. Never dropped for want of room: what
    /// may wait is bounded by [`Upward::push_ask`] and by the rounds of a call.
    pub fn ask_host(&self, ask: Ask) {
        let mut state = self.state();
        state.waiting.push_back(Happening::Ask(ask));
        wake(state);
    }

    /// What is left when the answer is there: the progress held back is always told (PRG-5).
    pub fn rest(&self) -> Vec<Happening> {
        let mut state = self.state();
        state.over = true;
        let held = state.held.take().map(Happening::Progress);
        state.waiting.drain(..).chain(held).collect()
    }
}

/// Puts a notification in; at the bound the oldest one goes, never a question.
fn enqueue(mut state: MutexGuard<'_, State>, happening: Happening) {
    if state.waiting.len() >= DEPTH
        && let Some(oldest) = state.waiting.iter().position(|waiting| !matches!(waiting, Happening::Ask(_)))
    {
        state.waiting.remove(oldest);
    }
    state.waiting.push_back(happening);
    wake(state);
}

/// Wakes the task of the request, outside the lock.
fn wake(mut state: MutexGuard<'_, State>) {
    let waker = state.waker.take();
    drop(state);
    if let Some(waker) = waker {
        waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(name: &str) -> Progress {
        Progress { line: name.to_owned().into(), params: Span::default(), token: Span::default(), message: None }
    }

    fn line_of(happening: Happening) -> String {
        match happening {
            Happening::Progress(progress) => String::from_utf8(progress.line.to_vec()).unwrap(),
            other @ (Happening::GivenUp | Happening::Log(_) | Happening::Ask(_) | Happening::Opened(_)) => {
                panic!("{other:?}")
            }
        }
    }

    fn drain(upward: &Upward) -> Vec<String> {
        let waiting = std::mem::take(&mut upward.state().waiting);
        waiting.into_iter().map(line_of).collect()
    }

    #[test]
    fn prg2_only_growing_values_pass() {
        let upward = Upward::default();
        let now = Instant::now();
        for value in ["1", "1", "0.5", "1e1", "9", "x", "10.5"] {
            upward.push(progress(value), value.as_bytes(), now);
        }
        assert_eq!(drain(&upward), ["1", "1e1", "10.5"]);
    }

    #[test]
    fn prg5_a_storm_is_thinned_and_the_last_is_told() {
        let upward = Upward::default();
        let start = Instant::now();
        for n in 1..=1000u32 {
            let text = n.to_string();
            upward.push(progress(&text), text.as_bytes(), start + Duration::from_millis(u64::from(n)));
        }
        let told = drain(&upward);
        assert!((32..=43).contains(&told.len()), "{}", told.len());
        assert_eq!(upward.rest().pop().map(line_of).as_deref(), Some("1000"));
    }

    #[tokio::test(start_paused = true)]
    async fn prg5_the_newest_is_told_also_when_its_server_goes_quiet() {
        let upward = Upward::default();
        let start = Instant::now();
        let mut told = 0;
        let pushing = async {
            for n in 1..=40u32 {
                upward.push(progress("x"), n.to_string().as_bytes(), start);
            }
            upward.push(progress("last"), b"41", start);
        };
        let telling = async {
            loop {
                match upward.happening().await {
                    Happening::Progress(progress) if progress.line == "last" => break,
                    Happening::Progress(_) => told += 1,
                    other @ (Happening::GivenUp | Happening::Log(_) | Happening::Ask(_) | Happening::Opened(_)) => {
                        panic!("{other:?}")
                    }
                }
            }
        };
        tokio::join!(telling, pushing);
        assert_eq!(told, BURST);
        assert_eq!(start.elapsed(), REFILL);
    }

    #[tokio::test]
    async fn url1_what_was_opened_is_told_to_the_session_when_the_request_is_over() {
        struct Told(Mutex<Vec<Bytes>>);
        impl Later for Told {
            fn opened(&self, id: &Bytes) {
                self.0.lock().unwrap().push(id.clone());
            }
        }
        let told = std::sync::Arc::new(Told(Mutex::default()));
        let session: std::sync::Arc<dyn Later> = told.clone();
        let (answered, given_up) = (Upward::default(), Upward::default());
        for upward in [&answered, &given_up] {
            upward.then(std::sync::Arc::downgrade(&session));
            upward.push_opened("in time".into());
            assert!(matches!(upward.happening().await, Happening::Opened(id) if id == "in time"));
        }
        answered.rest();
        answered.push_opened("one".into());
        given_up.give_up("");
        given_up.push_opened("two".into());
        assert_eq!(*told.0.lock().unwrap(), ["one", "two"]);
        drop((told, session));
        answered.push_opened("nobody is there".into());
    }

    #[tokio::test]
    async fn can5_the_first_reason_counts_and_is_cleaned() {
        let upward = Upward::default();
        assert_eq!(upward.reason(), None);
        let waiting = async { assert!(matches!(upward.happening().await, Happening::GivenUp)) };
        let giving = async {
            upward.give_up("no\nmore");
            upward.give_up("other");
        };
        tokio::join!(waiting, giving);
        assert_eq!(upward.reason().as_deref(), Some("nomore"));
    }
}
