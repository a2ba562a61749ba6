//! What waits to be written to a peer: many tasks put whole messages in, one task writes them out.
//!
//! Small messages are copied together, so that one write carries all that came since the last; large ones stay
//! where they are and are written from there. A message that is alone may be written at once by whoever puts it
//! in, which saves waking the writer. The bytes that wait are counted: who answers a peer waits for
//! [`Outbox::room`], who asks one refuses when [`Outbox::is_full`].

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, Bytes};
use tokio::io::AsyncWrite;
use tokio::sync::Notify;

/// Payloads from this size on are not copied.
const LARGE: usize = 16 << 10;
/// Buffers of one write.
const SLICES: usize = 32;
/// A tail larger than this is not kept for the next messages.
const KEEP: usize = 4 * LARGE;

/// The writing side of a connection. Clones put into the same one.
#[derive(Clone)]
pub struct Outbox {
    shared: Arc<Shared>,
}

struct Shared {
    /// Held for the length of a copy or of a write that does not block, never over an await.
    queue: Mutex<Queue>,
    /// Wakes all who wait for room, and for the end.
    emptied: Notify,
    limit: usize,
}

struct Queue {
    /// `None` when the peer is gone or all is written.
    stream: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    /// Whole messages or pieces of them, in order; the tail follows.
    parts: VecDeque<Bytes>,
    tail: Vec<u8>,
    /// So much of the tail is written.
    sent: usize,
    /// Bytes put in and not yet written.
    waiting: usize,
    /// The writer, while it sleeps because there is nothing to write.
    writer: Option<Waker>,
    /// Nothing more is taken in; what is there is still written.
    closed: bool,
}

impl Queue {
    fn is_empty(&self) -> bool {
        self.parts.is_empty() && self.tail.len() == self.sent
    }

    /// Makes the tail a part, so that a part may follow it.
    fn seal_tail(&mut self) {
        if self.tail.len() > self.sent {
            let tail = Bytes::from(std::mem::take(&mut self.tail));
            self.parts.push_back(tail.slice(self.sent..));
        }
        self.tail.clear();
        self.sent = 0;
    }

    /// Writes as much as the stream takes.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.is_empty() {
            let Some(stream) = &mut self.stream else { return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())) };
            let mut stream = Pin::new(stream);
            let tail = &self.tail[self.sent..];
            let written = if self.parts.is_empty() {
                ready!(stream.as_mut().poll_write(cx, tail))?
            } else {
                let mut slices = [IoSlice::new(&[]); SLICES];
                let parts = self.parts.iter().map(|part| &**part).chain([tail]);
                let count = parts.zip(&mut slices).map(|(part, slice)| *slice = IoSlice::new(part)).count();
                ready!(stream.as_mut().poll_write_vectored(cx, &slices[..count]))?
            };
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written(written);
        }
        match &mut self.stream {
            Some(stream) => Pin::new(stream).poll_flush(cx),
            None => Poll::Ready(Ok(())),
        }
    }

    fn written(&mut self, mut count: usize) {
        self.waiting -= count;
        while let Some(first) = self.parts.front_mut() {
            if count < first.len() {
                first.advance(count);
                return;
            }
            count -= first.len();
            self.parts.pop_front();
        }
        self.sent += count;
        if self.sent == self.tail.len() {
            self.sent = 0;
            self.tail.clear();
            self.tail.shrink_to(KEEP);
        } else if self.sent >= KEEP && self.sent * 2 >= self.tail.len() {
            self.tail.drain(..self.sent);
            self.sent = 0;
        }
    }
}

/// A message being put together; it ends with its newline when it is dropped.
pub struct Message<'a> {
    queue: MutexGuard<'a, Queue>,
    before: usize,
    alone: bool,
}

impl Message<'_> {
    /// The bytes so far may be followed by these.
    pub fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.queue.tail
    }

    /// Appends a payload, without a copy when it is large.
    pub fn payload(&mut self, payload: &Bytes) {
        if self.queue.closed {
            return;
        }
        if payload.len() < LARGE {
            self.queue.tail.extend_from_slice(payload);
        } else {
            self.queue.waiting += self.queue.tail.len() - self.before + payload.len();
            self.queue.seal_tail();
            self.before = 0;
            self.queue.parts.push_back(payload.clone());
        }
    }

    /// Nothing is likely to follow soon: it is written at once when nothing waits before it.
    pub fn alone(&mut self) {
        self.alone = true;
    }
}

impl Drop for Message<'_> {
    fn drop(&mut self) {
        let queue = &mut *self.queue;
        if queue.closed {
            queue.tail.truncate(self.before);
            return;
        }
        queue.tail.push(b'\n');
        queue.waiting += queue.tail.len() - self.before;
        // The writer sleeps only when nothing waited; what it would do can be done here.
        if let Some(writer) = queue.writer.take() {
            let mut cx = Context::from_waker(Waker::noop());
            if self.alone && matches!(queue.poll_write(&mut cx), Poll::Ready(Ok(()))) {
                queue.writer = Some(writer);
            } else {
                writer.wake();
            }
        }
    }
}

/// Whoever stops writing lets the stream go.
struct Writing<'a>(&'a Outbox);

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        let mut queue = self.0.queue();
        queue.closed = true;
        queue.parts.clear();
        queue.tail.clear();
        queue.sent = 0;
        queue.waiting = 0;
        let stream = queue.stream.take();
        drop(queue);
        drop(stream);
        self.0.shared.emptied.notify_waiters();
    }
}

impl Outbox {
    /// An outbox before this stream, full from `limit` waiting bytes on. [`Outbox::write`] must run.
    pub fn new(stream: Box<dyn AsyncWrite + Send + Unpin>, limit: usize) -> Self {
        let queue = Queue {
            stream: Some(stream),
            parts: VecDeque::new(),
            tail: Vec::new(),
            sent: 0,
            waiting: 0,
            writer: None,
            closed: false,
        };
        Self { shared: Arc::new(Shared { queue: Mutex::new(queue), emptied: Notify::new(), limit }) }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        // Whoever panicked under the lock left whole bytes behind.
        self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a message. Other tasks wait until it is dropped, so put it together at once. A closed outbox
    /// swallows it.
    pub fn message(&self) -> Message<'_> {
        let queue = self.queue();
        let before = queue.tail.len();
        Message { queue, before, alone: false }
    }

    /// Puts a whole message in.
    pub fn send(&self, write: impl FnOnce(&mut Vec<u8>)) {
        write(self.message().bytes());
    }

    /// Whether more bytes wait than the limit says.
    pub fn is_full(&self) -> bool {
        self.queue().waiting >= self.shared.limit
    }

    /// Whether the peer is gone or the outbox was closed.
    pub fn is_closed(&self) -> bool {
        self.queue().closed
    }

    /// Waits until it is not full; at once where nothing is written any more.
    pub async fn room(&self) {
        loop {
            let emptied = self.shared.emptied.notified();
            if !self.is_full() {
                return;
            }
            emptied.await;
        }
    }

    /// Takes nothing in any more; [`Outbox::write`] ends when all is written.
    pub fn close(&self) {
        let mut queue = self.queue();
        queue.closed = true;
        let writer = queue.writer.take();
        drop(queue);
        if let Some(writer) = writer {
            writer.wake();
        }
    }

    /// Writes until the outbox is closed and empty, or the peer is gone. One task runs this; when it stops, also by
    /// being dropped, the stream is let go.
    pub async fn write(&self) -> io::Result<()> {
        let _writing = Writing(self);
        poll_fn(|cx| {
            let mut queue = self.queue();
            let full = queue.waiting >= self.shared.limit;
            let written = queue.poll_write(cx);
            if full && queue.waiting < self.shared.limit {
                self.shared.emptied.notify_waiters();
            }
            ready!(written)?;
            if queue.closed {
                return Poll::Ready(Ok(()));
            }
            queue.writer = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    #[tokio::test]
    async fn messages_come_out_whole_and_in_order() {
        let (ours, mut theirs) = tokio::io::duplex(1000);
        let outbox = Outbox::new(Box::new(ours), 1 << 20);
        let large = Bytes::from(vec![b'x'; LARGE + 1]);
        outbox.send(|out| out.extend_from_slice(b"one"));
        {
            let mut message = outbox.message();
            message.bytes().extend_from_slice(b"<");
            message.payload(&large);
            message.bytes().extend_from_slice(b">");
        }
        outbox.send(|out| out.extend_from_slice(b"three"));
        outbox.close();
        outbox.send(|out| out.extend_from_slice(b"late"));
        let mut seen = Vec::new();
        let (written, read) = tokio::join!(outbox.write(), theirs.read_to_end(&mut seen));
        written.unwrap();
        read.unwrap();
        let expected = [&b"one\n<"[..], &large, b">\nthree\n"].concat();
        assert!(seen == expected, "{} bytes instead of {}", seen.len(), expected.len());
        assert_eq!(outbox.queue().waiting, 0);
    }

    #[tokio::test]
    async fn who_waits_for_room_goes_on_when_bytes_are_written_and_when_the_peer_is_gone() {
        let (ours, mut theirs) = tokio::io::duplex(4);
        let outbox = Outbox::new(Box::new(ours), 10);
        outbox.send(|out| out.extend_from_slice(&[b'a'; 20]));
        assert!(outbox.is_full());
        let writer = outbox.clone();
        let reading = async {
            let mut bytes = [0; 21];
            theirs.read_exact(&mut bytes).await.unwrap();
            outbox.room().await;
            outbox.send(|out| out.extend_from_slice(&[b'b'; 20]));
            drop(theirs);
            outbox.room().await;
            assert!(outbox.is_closed());
        };
        let (written, ()) = tokio::join!(writer.write(), reading);
        assert!(written.is_err());
    }

    /// Counts the writes it gets, and takes so many bytes of each.
    struct Counting(Arc<Mutex<(usize, Vec<u8>)>>, usize);

    impl AsyncWrite for Counting {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            let mut seen = self.0.lock().unwrap();
            let taken = bytes.len().min(self.1);
            seen.0 += 1;
            seen.1.extend_from_slice(&bytes[..taken]);
            Poll::Ready(Ok(taken))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn a_message_alone_is_written_at_once_and_others_together() {
        let seen = Arc::new(Mutex::new((0, Vec::new())));
        let outbox = Outbox::new(Box::new(Counting(Arc::clone(&seen), 5)), 1 << 20);
        let writer = outbox.clone();
        let writing = writer.write();
        tokio::pin!(writing);
        poll_fn(|cx| {
            assert!(writing.as_mut().poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
        {
            let mut message = outbox.message();
            message.bytes().extend_from_slice(b"alone");
            message.alone();
        }
        assert_eq!(*seen.lock().unwrap(), (2, b"alone\n".to_vec()), "before the writer had a turn");
        for word in ["a", "b", "c"] {
            outbox.send(|out| out.extend_from_slice(word.as_bytes()));
        }
        assert_eq!(seen.lock().unwrap().0, 2, "left to the writer");
        outbox.close();
        writing.await.unwrap();
        assert_eq!(*seen.lock().unwrap(), (4, b"alone\na\nb\nc\n".to_vec()));
    }

    proptest::proptest! {
        /// However the stream takes them, the bytes come out in order and the count of those waiting is right.
        #[test]
        fn all_bytes_in_order(
            sizes in proptest::collection::vec((0usize..40_000, proptest::bool::ANY), 1..12),
            step in 1usize..30_000,
        ) {
            let seen = Arc::new(Mutex::new((0, Vec::new())));
            let outbox = Outbox::new(Box::new(Counting(Arc::clone(&seen), step)), usize::MAX);
            let mut expected = Vec::new();
            let mut cx = Context::from_waker(Waker::noop());
            for (n, (size, flush)) in sizes.into_iter().enumerate() {
                let payload = Bytes::from(vec![b'a' + n as u8; size]);
                {
                    let mut message = outbox.message();
                    message.bytes().push(b'<');
                    message.payload(&payload);
                    message.bytes().push(b'>');
                }
                expected.push(b'<');
                expected.extend_from_slice(&payload);
                expected.extend_from_slice(b">\n");
                let total = expected.len();
                proptest::prop_assert_eq!(outbox.queue().waiting + seen.lock().unwrap().1.len(), total);
                if flush {
                    proptest::prop_assert!(outbox.queue().poll_write(&mut cx).is_ready());
                }
            }
            proptest::prop_assert!(outbox.queue().poll_write(&mut cx).is_ready());
            proptest::prop_assert_eq!(outbox.queue().waiting, 0);
            proptest::prop_assert!(seen.lock().unwrap().1 == expected);
        }
    }
}
