//! What waits to be written to a peer: many tasks put whole messages in, one task writes them out.
//!
//! Small messages are copied together, so that one write carries all that came since the last; large ones stay
//! where they are and are written from there. The bytes that wait are counted: who answers a peer waits for
//! [`Outbox::room`], who asks one refuses when [`Outbox::is_full`].

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;

/// Payloads from this size on are not copied.
const LARGE: usize = 16 << 10;
/// Buffers of one write.
const SLICES: usize = 32;

/// The writing side of a connection. Clones put into the same one.
#[derive(Clone)]
pub struct Outbox {
    shared: Arc<Shared>,
}

struct Shared {
    /// Held for the length of a copy, never over an await.
    queue: Mutex<Queue>,
    /// Wakes the one writer.
    filled: Notify,
    /// Wakes all who wait for room, and for the end.
    emptied: Notify,
    limit: usize,
}

#[derive(Default)]
struct Queue {
    /// Whole messages or pieces of them, in order; the tail follows.
    parts: VecDeque<Bytes>,
    tail: Vec<u8>,
    /// Bytes put in and not yet written.
    waiting: usize,
    /// The writer sleeps.
    idle: bool,
    /// Nothing more is taken in; what is there is still written.
    closed: bool,
    /// The peer is gone.
    broken: bool,
}

impl Queue {
    fn seal_tail(&mut self) {
        if !self.tail.is_empty() {
            self.parts.push_back(std::mem::take(&mut self.tail).into());
        }
    }
}

/// A message being put together; it ends with its newline when it is dropped.
pub struct Message<'a> {
    queue: MutexGuard<'a, Queue>,
    filled: &'a Notify,
    before: usize,
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
}

impl Drop for Message<'_> {
    fn drop(&mut self) {
        if self.queue.closed {
            self.queue.tail.truncate(self.before);
            return;
        }
        self.queue.tail.push(b'\n');
        self.queue.waiting += self.queue.tail.len() - self.before;
        if std::mem::take(&mut self.queue.idle) {
            self.filled.notify_one();
        }
    }
}

impl Outbox {
    /// An outbox that is full from `limit` waiting bytes on.
    pub fn new(limit: usize) -> Self {
        let queue = Mutex::default();
        Self { shared: Arc::new(Shared { queue, filled: Notify::new(), emptied: Notify::new(), limit }) }
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
        Message { queue, filled: &self.shared.filled, before }
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
            {
                let queue = self.queue();
                if queue.waiting < self.shared.limit || queue.broken {
                    return;
                }
            }
            emptied.await;
        }
    }

    /// Takes nothing in any more; [`Outbox::write_to`] ends when all is written.
    pub fn close(&self) {
        self.queue().closed = true;
        self.shared.filled.notify_one();
    }

    /// Writes until the outbox is closed and empty, or the peer is gone. One task runs this.
    pub async fn write_to(&self, mut stream: impl AsyncWrite + Unpin) -> io::Result<()> {
        let ended = self.write_all(&mut stream).await;
        let mut queue = self.queue();
        queue.closed = true;
        queue.broken = true;
        queue.parts.clear();
        queue.tail.clear();
        drop(queue);
        self.shared.emptied.notify_waiters();
        ended
    }

    async fn write_all(&self, stream: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        let mut batch = VecDeque::new();
        let mut spare = Vec::new();
        loop {
            {
                let mut queue = self.queue();
                if queue.parts.is_empty() && queue.tail.is_empty() {
                    if queue.closed {
                        return Ok(());
                    }
                    queue.idle = true;
                } else {
                    std::mem::swap(&mut queue.parts, &mut batch);
                    std::mem::swap(&mut queue.tail, &mut spare);
                }
            }
            if batch.is_empty() && spare.is_empty() {
                self.shared.filled.notified().await;
                continue;
            }
            let mut written = write_parts(stream, &mut batch).await?;
            stream.write_all(&spare).await?;
            stream.flush().await?;
            written += spare.len();
            spare.clear();
            if spare.capacity() > 4 * LARGE {
                spare = Vec::new();
            }
            let mut queue = self.queue();
            queue.waiting -= written;
            drop(queue);
            self.shared.emptied.notify_waiters();
        }
    }
}

/// Writes all parts, many with one call; answers how many bytes that was.
async fn write_parts(stream: &mut (impl AsyncWrite + Unpin), parts: &mut VecDeque<Bytes>) -> io::Result<usize> {
    let mut total = 0;
    while !parts.is_empty() {
        let mut slices = [IoSlice::new(&[]); SLICES];
        let count = parts.iter().zip(&mut slices).map(|(part, slice)| *slice = IoSlice::new(part)).count();
        let mut written = stream.write_vectored(&slices[..count]).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        total += written;
        while let Some(first) = parts.front_mut() {
            if written < first.len() {
                first.advance(written);
                break;
            }
            written -= first.len();
            parts.pop_front();
        }
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    #[tokio::test]
    async fn messages_come_out_whole_and_in_order() {
        let outbox = Outbox::new(1 << 20);
        let large = Bytes::from(vec![b'x'; LARGE + 1]);
        let (ours, mut theirs) = tokio::io::duplex(1000);
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
        let (written, read) = tokio::join!(outbox.write_to(ours), theirs.read_to_end(&mut seen));
        written.unwrap();
        read.unwrap();
        let expected = [&b"one\n<"[..], &large, b">\nthree\n"].concat();
        assert!(seen == expected, "{} bytes instead of {}", seen.len(), expected.len());
        assert_eq!(outbox.queue().waiting, 0);
    }

    #[tokio::test]
    async fn who_waits_for_room_goes_on_when_bytes_are_written_and_when_the_peer_is_gone() {
        let outbox = Outbox::new(10);
        let (ours, mut theirs) = tokio::io::duplex(4);
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
        let (written, ()) = tokio::join!(writer.write_to(ours), reading);
        assert!(written.is_err());
    }
}
