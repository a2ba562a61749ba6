//! What a legacy session sends: the stream of one POST, which can be read again from any event on (SES-7), and what
//! belongs to no request (SES-6).
//!
//! Whoever sends does not wait for who reads: at the bound the oldest notification goes; answers and open questions
//! never do, they are as many as the requests that run.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::Instant;

/// A message in pieces.
pub(super) type Message = Vec<Bytes>;

/// Notifications that a stream keeps, and their bytes.
const MAX_EVENTS: usize = 256;
const MAX_BYTES: usize = 1 << 20;
/// Notifications that wait for a reader, and bytes of all that do.
const MAX_WAITING: usize = 64;
const MAX_WAITING_BYTES: usize = 64 << 20;

/// Who reads, and what wakes him. The newest reader takes the place of the one before, which goes no further (SES-5).
#[derive(Default)]
struct Readers {
    last: AtomicU64,
    told: Notify,
}

impl Readers {
    /// A new one.
    fn enter(&self) -> u64 {
        let reader = self.last.fetch_add(1, Relaxed) + 1;
        self.told.notify_waiters();
        reader
    }

    fn is_last(&self, reader: u64) -> bool {
        self.last.load(Relaxed) == reader
    }

    /// Waits until there is something.
    async fn until<T>(&self, mut look: impl FnMut() -> Option<T>) -> T {
        loop {
            let mut told = pin!(self.told.notified());
            told.as_mut().enable();
            if let Some(found) = look() {
                return found;
            }
            told.await;
        }
    }
}

/// The stream of a POST.
pub(super) struct Stream {
    /// Its name in the session.
    pub(super) number: u64,
    /// The host takes nothing but the answer.
    mute: bool,
    /// All goes there instead of being kept (HTTP+SSE).
    to: Option<Arc<General>>,
    state: Mutex<State>,
    readers: Readers,
}

/// An event that is kept.
struct Event {
    number: u64,
    message: Message,
    size: usize,
    /// When there are too many.
    may_go: bool,
}

#[derive(Default)]
struct State {
    /// The number of the last event; the first of all is 1.
    last: u64,
    events: VecDeque<Event>,
    bytes: usize,
    /// Those of them that may go, and their bytes.
    loose: usize,
    loose_bytes: usize,
    /// Answers that are still to come.
    owed: usize,
    /// Something else than an answer was sent.
    other: bool,
    ended: Option<Instant>,
}

/// What a stream has for its reader.
pub(super) enum Next {
    Event(u64, Message),
    /// It was the last one, or the stream is read by another.
    End,
    Nothing,
}

/// What is sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Answer,
    /// A request of ours: it is kept until it is answered.
    Question,
    Notification,
}

/// What came first on a stream.
pub(super) enum Settled {
    /// All answers and nothing else.
    Answers(Vec<Message>),
    /// Something that must be told before.
    Streaming,
}

/// An answer that is to come; dropped without one, it will not.
pub(super) struct Owed(Arc<Stream>);

impl Owed {
    pub(super) fn give(self, answer: Message) {
        self.0.put(answer, What::Answer);
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.owed -= 1;
        if state.owed == 0 {
            state.ended = Some(Instant::now());
        }
        drop(state);
        self.0.readers.told.notify_waiters();
        if let Some(to) = &self.0.to {
            to.state().owed -= 1;
            to.readers.told.notify_waiters();
        }
    }
}

impl State {
    /// From now on this event may go; the oldest of those go while there are too many.
    fn loosen(&mut self, number: u64) {
        let Ok(at) = self.events.binary_search_by_key(&number, |event| event.number) else { return };
        let event = &mut self.events[at];
        event.may_go = true;
        self.loose_bytes += event.size;
        self.loose += 1;
        while self.loose > MAX_EVENTS || self.loose > 1 && self.loose_bytes > MAX_BYTES {
            let oldest = self.events.iter().position(|event| event.may_go);
            let Some(gone) = oldest.and_then(|at| self.events.remove(at)) else { return };
            self.bytes -= gone.size;
            self.loose_bytes -= gone.size;
            self.loose -= 1;
        }
    }
}

impl Stream {
    pub(super) fn new(number: u64, mute: bool) -> Arc<Self> {
        Arc::new(Self { number, mute, to: None, state: Mutex::default(), readers: Readers::default() })
    }

    /// A stream that keeps nothing.
    pub(super) fn into_general(to: &Arc<General>) -> Arc<Self> {
        Arc::new(Self {
            number: 0,
            mute: false,
            to: Some(Arc::clone(to)),
            state: Mutex::default(),
            readers: Readers::default(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more answer is to come.
    pub(super) fn owe(self: &Arc<Self>) -> Owed {
        self.state().owed += 1;
        if let Some(to) = &self.to {
            to.state().owed += 1;
        }
        Owed(Arc::clone(self))
    }

    pub(super) fn is_mute(&self) -> bool {
        self.mute
    }

    /// Sends something about its request; answers its number.
    pub(super) fn push(&self, message: Message, what: What) -> u64 {
        if self.mute { 0 } else { self.put(message, what) }
    }

    fn put(&self, message: Message, what: What) -> u64 {
        if let Some(to) = &self.to {
            to.push(message, what);
            return 0;
        }
        let mut state = self.state();
        let size = size(&message);
        state.last += 1;
        let number = state.last;
        state.other |= what != What::Answer;
        state.bytes += size;
        state.events.push_back(Event { number, message, size, may_go: false });
        if what == What::Notification {
            state.loosen(number);
        }
        drop(state);
        self.readers.told.notify_waiters();
        number
    }

    /// The question of that number is answered or withdrawn: there is no need to keep it.
    pub(super) fn let_go(&self, question: u64) {
        self.state().loosen(question);
    }

    /// How the request is answered, when that is known.
    pub(super) fn settled(&self) -> Option<Settled> {
        let mut state = self.state();
        if state.other {
            return Some(Settled::Streaming);
        }
        (state.owed == 0).then(|| Settled::Answers(state.events.drain(..).map(|event| event.message).collect()))
    }

    /// The same, waited for.
    pub(super) async fn settle(&self) -> Settled {
        self.readers.until(|| self.settled()).await
    }

    /// A new reader.
    pub(super) fn reader(&self) -> u64 {
        self.readers.enter()
    }

    /// The first event from `from` on.
    fn next(&self, reader: u64, from: u64) -> Next {
        if !self.readers.is_last(reader) {
            return Next::End;
        }
        let state = self.state();
        match state.events.get(state.events.partition_point(|event| event.number < from)) {
            Some(event) => Next::Event(event.number, event.message.clone()),
            None if state.owed == 0 => Next::End,
            None => Next::Nothing,
        }
    }

    /// The same, waited for.
    pub(super) async fn read(&self, reader: u64, from: u64) -> Option<(u64, Message)> {
        let next = || match self.next(reader, from) {
            Next::Event(number, message) => Some(Some((number, message))),
            Next::End => Some(None),
            Next::Nothing => None,
        };
        self.readers.until(next).await
    }

    /// When it ended, and how much it keeps.
    pub(super) fn rest(&self) -> (Option<Instant>, usize) {
        let state = self.state();
        (state.ended, state.bytes)
    }
}

fn size(message: &Message) -> usize {
    message.iter().map(Bytes::len).sum()
}

/// What belongs to no request, until somebody reads it.
#[derive(Default)]
pub(super) struct General {
    state: Mutex<Waiting>,
    readers: Readers,
}

#[derive(Default)]
struct Waiting {
    /// With whether it may go when there are too many.
    messages: VecDeque<(Message, bool)>,
    bytes: usize,
    /// Something that must not go had no room.
    broken: bool,
    /// Answers that are still to come.
    owed: usize,
}

impl General {
    fn state(&self) -> MutexGuard<'_, Waiting> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends something; at the bound the oldest notification goes. Who does not read his answers is read no further.
    pub(super) fn push(&self, message: Message, what: What) {
        let notification = what == What::Notification;
        let mut state = self.state();
        if notification
            && state.messages.iter().filter(|(_, may_go)| *may_go).count() >= MAX_WAITING
            && let Some(oldest) = state.messages.iter().position(|(_, may_go)| *may_go)
            && let Some((gone, _)) = state.messages.remove(oldest)
        {
            state.bytes -= size(&gone);
        }
        let more = size(&message);
        if state.bytes + more > MAX_WAITING_BYTES && state.bytes > 0 {
            state.broken |= !notification;
        } else {
            state.bytes += more;
            state.messages.push_back((message, notification));
        }
        drop(state);
        self.readers.told.notify_waiters();
    }

    /// A new reader.
    pub(super) fn reader(&self) -> u64 {
        self.readers.enter()
    }

    /// Waits until no answer is to come and all that came is taken.
    pub(super) async fn settled(&self) {
        let settled = || {
            let state = self.state();
            (state.owed == 0 && state.messages.is_empty()).then_some(())
        };
        self.readers.until(settled).await;
    }

    /// The next message; nothing once there is another reader. Nothing is lost when the future is dropped.
    pub(super) async fn read(&self, reader: u64) -> Option<Message> {
        let next = || {
            let mut state = self.state();
            if !self.readers.is_last(reader) || state.broken {
                return Some(None);
            }
            let (message, _) = state.messages.pop_front()?;
            state.bytes -= size(&message);
            drop(state);
            // Somebody may wait until all is taken.
            self.readers.told.notify_waiters();
            Some(Some(message))
        };
        self.readers.until(next).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> Message {
        vec![Bytes::copy_from_slice(text.as_bytes())]
    }

    fn rest(stream: &Stream, mut from: u64) -> Vec<(u64, String)> {
        let reader = stream.reader();
        let mut seen = Vec::new();
        while let Next::Event(number, message) = stream.next(reader, from) {
            seen.push((number, String::from_utf8(message.concat()).unwrap()));
            from = number + 1;
        }
        seen
    }

    #[test]
    fn ses7_a_stream_is_read_again_from_any_event_on() {
        let stream = Stream::new(1, false);
        let owed = stream.owe();
        stream.push(message("a"), What::Notification);
        stream.push(message("b"), What::Question);
        let first = stream.reader();
        owed.give(message("c"));
        assert_eq!(rest(&stream, 1), [(1, "a".into()), (2, "b".into()), (3, "c".into())]);
        assert_eq!(rest(&stream, 3), [(3, "c".into())]);
        assert_eq!(rest(&stream, 4), []);
        assert!(matches!(stream.next(first, 1), Next::End), "another reads it (SES-5)");
        assert!(stream.rest().0.is_some());
    }

    #[test]
    fn ses7_what_is_kept_is_bounded_and_the_answer_is_kept() {
        let stream = Stream::new(1, false);
        let owed = stream.owe();
        let question = stream.push(message("?"), What::Question);
        for n in 0..1000 {
            stream.push(message(&n.to_string()), What::Notification);
        }
        let kept = rest(&stream, 1);
        assert_eq!((kept.len(), kept[0].0, kept[1].0), (MAX_EVENTS + 1, 1, 1002 - MAX_EVENTS as u64));
        // Nothing goes because of an answer, however large, and no answer because of another.
        let (two, large) = (stream.owe(), "x".repeat(MAX_BYTES));
        owed.give(message(&large));
        two.give(message(&large));
        assert_eq!(rest(&stream, 1)[..MAX_EVENTS + 1], kept);
        assert_eq!(rest(&stream, 1002), [(1002, large.clone()), (1003, large)]);
        // A question that has its answer is like the others.
        stream.let_go(question);
        assert_eq!(rest(&stream, 1)[0], kept[1]);
        stream.push(message(&"n".repeat(MAX_BYTES)), What::Notification);
        assert_eq!(rest(&stream, 1).len(), 3, "the two answers, and the newest notification");
    }

    #[test]
    fn questions_wait_for_the_reader_of_a_session() {
        let general = General::default();
        general.push(message("?"), What::Question);
        for n in 0..1000 {
            general.push(message(&n.to_string()), What::Notification);
        }
        let waiting = &general.state().messages;
        assert_eq!((waiting.len(), &waiting[0].0), (MAX_WAITING + 1, &message("?")));
    }

    #[test]
    fn http4_answers_alone_are_no_stream() {
        let stream = Stream::new(1, false);
        let (one, two) = (stream.owe(), stream.owe());
        one.give(message("1"));
        assert!(stream.settled().is_none());
        drop(two);
        assert!(matches!(stream.settled(), Some(Settled::Answers(answers)) if answers == [message("1")]));
        let stream = Stream::new(1, false);
        let _owed = stream.owe();
        stream.push(message("p"), What::Notification);
        assert!(matches!(stream.settled(), Some(Settled::Streaming)));
        let mute = Stream::new(1, true);
        let _owed = mute.owe();
        mute.push(message("p"), What::Notification);
        assert!(mute.settled().is_none());
    }
}
