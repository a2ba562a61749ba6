//! Batches, which only the 2025-03-26 revision has (ENV-9): the answers of one array, gathered into one.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use super::write::Sink;
use crate::transport::outbox::{Message, Outbox};

/// Where the answer to one request goes. Dropped without one, as after a cancellation, it is no longer waited for.
pub(super) struct ReplyTo {
    /// The host's id, raw.
    pub(super) id: Bytes,
    to: To,
}

enum To {
    Host(Outbox),
    Batch(Arc<Batch>),
}

/// The answers of a batch so far; written when the last place is given back.
struct Batch {
    answers: Mutex<Vec<u8>>,
    outbox: Outbox,
}

impl Drop for Batch {
    fn drop(&mut self) {
        let answers = self.answers.get_mut().unwrap_or_else(PoisonError::into_inner);
        if answers.pop().is_some() {
            self.outbox.send(|out| {
                out.push(b'[');
                out.append(answers);
                out.push(b']');
            });
        }
    }
}

/// The places of a batch's answers; written when this and all places are gone.
pub(super) struct Places(Arc<Batch>);

impl Places {
    pub(super) fn new(outbox: Outbox) -> Self {
        Self(Arc::new(Batch { answers: Mutex::default(), outbox }))
    }

    pub(super) fn reply_to(&self, id: Bytes) -> ReplyTo {
        ReplyTo { id, to: To::Batch(Arc::clone(&self.0)) }
    }
}

impl ReplyTo {
    /// An answer of its own.
    pub(super) fn host(id: Bytes, outbox: &Outbox) -> Self {
        Self { id, to: To::Host(outbox.clone()) }
    }

    /// Waits until the host has taken enough of what was written before.
    pub(super) async fn room(&self) {
        if let To::Host(outbox) = &self.to {
            outbox.room().await;
        }
    }

    /// Writes the answer.
    pub(super) fn send(self, write: impl FnOnce(&mut Answering<'_>, &[u8])) {
        self.send_alone(false, write);
    }

    /// Writes the answer, at once where no other is likely to follow soon.
    pub(super) fn send_alone(self, alone: bool, write: impl FnOnce(&mut Answering<'_>, &[u8])) {
        let id = self.id;
        match &self.to {
            To::Host(outbox) => {
                let mut message = outbox.message();
                if alone {
                    message.alone();
                }
                write(&mut Answering::Host(message), &id);
            }
            To::Batch(batch) => {
                let mut answer = Vec::new();
                {
                    let mut answering = Answering::Batch(&mut answer);
                    write(&mut answering, &id);
                }
                answer.push(b',');
                batch.answers.lock().unwrap_or_else(PoisonError::into_inner).append(&mut answer);
            }
        }
    }
}

/// An answer being written.
pub(super) enum Answering<'a> {
    Host(Message<'a>),
    Batch(&'a mut Vec<u8>),
}

impl Sink for Answering<'_> {
    fn bytes(&mut self) -> &mut Vec<u8> {
        match self {
            Self::Host(message) => message.bytes(),
            Self::Batch(bytes) => bytes,
        }
    }

    fn payload(&mut self, payload: &Bytes) {
        match self {
            Self::Host(message) => message.payload(payload),
            Self::Batch(bytes) => bytes.extend_from_slice(payload),
        }
    }
}
