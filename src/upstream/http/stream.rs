//! What a legacy session sends: the stream of one POST, which can be read again from any event on (SES-7), and what
//! belongs to no request (SES-6).
//!
//! Whoever sends does not wait for who reads: at the bound the oldest goes, an answer never.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::Instant;

/// A message in pieces.
pub(super) type Message = Vec<Bytes>;

/// What a stream keeps, besides its answers.
const MAX_EVENTS: usize = 256;
const MAX_BYTES: usize = 1 << 20;
/// Notifications that wait for a reader, and bytes of all that do.
const MAX_WAITING: usize = 64;
const MAX_WAITING_BYTES: usize = 64 << 20;

/// The stream of a POST.
pub(super) struct Stream {
    /// Its name in the session.
    pub(super) number: u64,
    /// The host takes nothing but the answer.
    mute: bool,
    /// All goes there instead of being kept (HTTP+SSE).
    to: Option<Arc<General>>,
    state: Mutex<State>,
    told: Notify,
}

#[derive(Default)]
struct State {
    /// The number of the first event that is kept; the first of all is 1.
    first: u64,
    events: VecDeque<(Message, usize)>,
    bytes: usize,
    /// Answers that are still to come.
    owed: usize,
    /// Something else than an answer was sent.
    other: bool,
    ended: Option<Instant>,
    /// Which reader is the last one: only that one goes on (SES-5).
    reader: u64,
}

/// What a stream has for its reader.
pub(super) enum Next {
    Event(u64, Message),
    /// It was the last one, or the stream is read by another.
    End,
    Nothing,
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
        self.0.put(answer, false);
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
        self.0.told.notify_waiters();
        if let Some(to) = &self.0.to {
            to.state().owed -= 1;
            to.told.notify_waiters();
        }
    }
}

impl Stream {
    pub(super) fn new(number: u64, mute: bool) -> Arc<Self> {
        let state = State { first: 1, ..State::default() };
        Arc::new(Self { number, mute, to: None, state: Mutex::new(state), told: Notify::new() })
    }

    /// A stream that keeps nothing.
    pub(super) fn into_general(to: &Arc<General>) -> Arc<Self> {
        let state = Mutex::new(State { first: 1, ..State::default() });
        Arc::new(Self { number: 0, mute: false, to: Some(Arc::clone(to)), state, told: Notify::new() })
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

    /// Sends something about its request.
    pub(super) fn push(&self, message: Message) {
        if !self.mute {
            self.put(message, true);
        }
    }

    fn put(&self, message: Message, other: bool) {
        if let Some(to) = &self.to {
            to.push(message, other);
            return;
        }
        let mut state = self.state();
        let size: usize = message.iter().map(Bytes::len).sum();
        while !state.events.is_empty() && (state.events.len() >= MAX_EVENTS || state.bytes + size > MAX_BYTES) {
            // Before it is known how the host is answered, answers alone wait here: none of them goes.
            if !state.other && !other {
                break;
            }
            if let Some((_, gone)) = state.events.pop_front() {
                state.bytes -= gone;
                state.first += 1;
            }
        }
        state.other |= other;
        state.bytes += size;
        state.events.push_back((message, size));
        drop(state);
        self.told.notify_waiters();
    }

    /// How the request is answered, when that is known.
    pub(super) fn settled(&self) -> Option<Settled> {
        let mut state = self.state();
        if state.other {
            return Some(Settled::Streaming);
        }
        (state.owed == 0).then(|| Settled::Answers(state.events.drain(..).map(|(message, _)| message).collect()))
    }

    /// The same, waited for.
    pub(super) async fn settle(&self) -> Settled {
        loop {
            let mut told = pin!(self.told.notified());
            told.as_mut().enable();
            if let Some(settled) = self.settled() {
                return settled;
            }
            told.await;
        }
    }

    /// A new reader, which takes the place of the one before.
    pub(super) fn reader(&self) -> u64 {
        let mut state = self.state();
        state.reader += 1;
        let reader = state.reader;
        drop(state);
        self.told.notify_waiters();
        reader
    }

    /// The first event from `from` on.
    fn next(&self, reader: u64, from: u64) -> Next {
        let state = self.state();
        if state.reader != reader {
            return Next::End;
        }
        let number = from.max(state.first);
        match state.events.get((number - state.first) as usize) {
            Some((message, _)) => Next::Event(number, message.clone()),
            None if state.owed == 0 => Next::End,
            None => Next::Nothing,
        }
    }

    /// The same, waited for.
    pub(super) async fn read(&self, reader: u64, from: u64) -> Option<(u64, Message)> {
        loop {
            let mut told = pin!(self.told.notified());
            told.as_mut().enable();
            match self.next(reader, from) {
                Next::Event(number, message) => return Some((number, message)),
                Next::End => return None,
                Next::Nothing => told.await,
            }
        }
    }

    /// When it ended, and how much it keeps.
    pub(super) fn rest(&self) -> (Option<Instant>, usize) {
        let state = self.state();
        (state.ended, state.bytes)
    }
}

/// What belongs to no request, until somebody reads it.
#[derive(Default)]
pub(super) struct General {
    state: Mutex<Waiting>,
    told: Notify,
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
    reader: u64,
}

impl General {
    fn state(&self) -> MutexGuard<'_, Waiting> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends something; at the bound the oldest notification goes. Who does not read his answers is read no further.
    pub(super) fn push(&self, message: Message, notification: bool) {
        let mut state = self.state();
        let size = |message: &Message| message.iter().map(Bytes::len).sum::<usize>();
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
        self.told.notify_waiters();
    }

    /// A new reader, which takes the place of the one before.
    pub(super) fn reader(&self) -> u64 {
        let mut state = self.state();
        state.reader += 1;
        let reader = state.reader;
        drop(state);
        self.told.notify_waiters();
        reader
    }

    /// Waits until no answer is to come and all that came is taken.
    pub(super) async fn settled(&self) {
        loop {
            let mut told = pin!(self.told.notified());
            told.as_mut().enable();
            {
                let state = self.state();
                if state.owed == 0 && state.messages.is_empty() {
                    return;
                }
            }
            told.await;
        }
    }

    /// The next message; nothing once there is another reader. Nothing is lost when the future is dropped.
    pub(super) async fn read(&self, reader: u64) -> Option<Message> {
        loop {
            let mut told = pin!(self.told.notified());
            told.as_mut().enable();
            {
                let mut state = self.state();
                if state.reader != reader || state.broken {
                    return None;
                }
                if let Some((message, _)) = state.messages.pop_front() {
                    state.bytes -= message.iter().map(Bytes::len).sum::<usize>();
                    drop(state);
                    self.told.notify_waiters();
                    return Some(message);
                }
            }
            told.await;
        }
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
        stream.push(message("a"));
        stream.push(message("b"));
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
        (0..1000).for_each(|n| stream.push(message(&n.to_string())));
        let large = "x".repeat(2 << 20);
        let kept = rest(&stream, 1);
        assert_eq!((kept.len(), kept[0].0), (MAX_EVENTS, 1001 - MAX_EVENTS as u64));
        owed.give(message(&large));
        assert_eq!(rest(&stream, 1), [(1001, large)]);
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
        stream.push(message("p"));
        assert!(matches!(stream.settled(), Some(Settled::Streaming)));
        let mute = Stream::new(1, true);
        let _owed = mute.owe();
        mute.push(message("p"));
        assert!(mute.settled().is_none());
    }
}
