//! What a connection holds of answers: those that nobody has taken yet, and those that are not whole. Beyond the bound
//! no more is read, so that a server is as fast as who reads it.
//!
//! Knows nothing of requests. Counted by [`super::connection`] and [`super::http`], given back when an answer is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::protocol::reply::Reply;
use crate::protocol::version::Era;

/// Bytes of answers that nobody has taken yet, at most; then no more is read.
const IN_LIMIT: usize = 32 << 20;

/// An answer. It counts against what its connection may hold until it is dropped, so keep it until the host has
/// its bytes.
pub struct Answer {
    /// What the server said.
    pub reply: Reply,
    /// How its leg speaks.
    pub era: Era,
    _share: Share,
}

impl Answer {
    /// What came for a request, counted.
    pub(super) fn new(reply: Reply, era: Era, held: &Arc<Held>) -> Self {
        let size = reply.line.len();
        held.bytes.fetch_add(size, Ordering::AcqRel);
        Self { reply, era, _share: Share(Arc::clone(held), size) }
    }

    /// The same answer with another result, a raw object.
    pub fn with_result(mut self, result: &[u8]) -> Self {
        let mut line = Vec::with_capacity(result.len() + 40);
        line.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":");
        line.extend_from_slice(result);
        line.push(b'}');
        if let Some(reply) = Reply::read(line.into()) {
            self.reply = reply;
        }
        self
    }
}

pub(super) struct Held {
    bytes: AtomicUsize,
    /// Bytes of answers that are not whole yet, where several are read at once.
    partial: AtomicUsize,
    /// Whoever reads beyond the bound: one at a time, so that it comes to its end.
    beyond: Arc<Semaphore>,
    given_back: Notify,
}

impl Default for Held {
    fn default() -> Self {
        let (bytes, partial) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { bytes, partial, beyond: Arc::new(Semaphore::new(1)), given_back: Notify::new() }
    }
}

struct Share(Arc<Held>, usize);

impl Drop for Share {
    fn drop(&mut self) {
        if self.0.bytes.fetch_sub(self.1, Ordering::AcqRel) >= IN_LIMIT {
            self.0.given_back.notify_waiters();
        }
    }
}

/// An answer that is being read beside others. All that is not whole counts against the same bound as what waits to
/// be taken; beyond it one is read at a time, so that memory is bounded and none waits for ever.
pub(super) struct Intake {
    held: Arc<Held>,
    bytes: usize,
    beyond: Option<OwnedSemaphorePermit>,
}

impl Intake {
    pub(super) fn new(held: &Arc<Held>) -> Self {
        Self { held: Arc::clone(held), bytes: 0, beyond: None }
    }

    /// Waits until more may be read.
    pub(super) async fn room(&mut self) {
        loop {
            self.held.may_read().await;
            let all = self.held.bytes.load(Ordering::Acquire) + self.held.partial.load(Ordering::Acquire);
            if all < IN_LIMIT || self.beyond.is_some() {
                return;
            }
            self.beyond = Arc::clone(&self.held.beyond).acquire_owned().await.ok();
        }
    }

    /// So much more was read.
    pub(super) fn took(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.held.partial.fetch_add(bytes, Ordering::AcqRel);
    }

    /// What was read so far is no longer held.
    pub(super) fn clear(&mut self) {
        self.held.partial.fetch_sub(std::mem::take(&mut self.bytes), Ordering::AcqRel);
        self.beyond = None;
    }
}

impl Drop for Intake {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Held {
    /// Waits until what waits to be taken is within bounds.
    pub(super) async fn may_read(&self) {
        while self.bytes.load(Ordering::Acquire) >= IN_LIMIT {
            let mut given_back = std::pin::pin!(self.given_back.notified());
            given_back.as_mut().enable();
            if self.bytes.load(Ordering::Acquire) >= IN_LIMIT {
                given_back.await;
            }
        }
    }
}
