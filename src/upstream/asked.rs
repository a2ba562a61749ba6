//! What a legacy host is asked on behalf of servers, and its answers: ids of ours on the host's leg (REL-1).
//!
//! Knows no stream: whoever asks writes the message where it belongs, and waits for [`Open::withdrawn`] to tell the
//! host that an answer is no longer wanted (CAN-3).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::write;
use crate::protocol::call::push_number;
use crate::protocol::message::own_id;
use crate::transport::upward::{Ask, AskAnswer};

/// The questions of one host that wait for their answers.
#[derive(Default)]
pub(super) struct Asked(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    /// Nobody will answer any more.
    closed: bool,
    last: u64,
    replies: HashMap<u64, oneshot::Sender<AskAnswer>>,
}

/// A question that was put to the host.
pub(super) struct Open {
    asked: Arc<Asked>,
    id: u64,
    answer: oneshot::Receiver<AskAnswer>,
    reply: oneshot::Sender<AskAnswer>,
}

impl Open {
    /// Waits until it is answered, or until nobody wants an answer any more: then the message that tells the host.
    pub(super) async fn withdrawn(mut self) -> Option<Vec<u8>> {
        tokio::select! {
            biased;
            answer = self.answer => {
                if let Ok(answer) = answer {
                    // The server may want none any more.
                    let _ = self.reply.send(answer);
                }
                None
            }
            () = self.reply.closed() => {
                // Answered at this moment, it needs no withdrawal.
                self.asked.waiting().replies.remove(&self.id)?;
                Some(write::cancelled(self.id.to_string().as_bytes()))
            }
        }
    }
}

impl Asked {
    /// None yet; what was asked up to this number was asked by somebody else.
    pub(super) fn after(last: u64) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Waiting { last, ..Waiting::default() })))
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a question; answers the request to write. Nothing once nobody answers: dropping the question says so.
    pub(super) fn put(self: &Arc<Self>, ask: Ask) -> Option<(Open, Vec<u8>)> {
        let (sender, answer) = oneshot::channel();
        let id = {
            let mut waiting = self.waiting();
            if waiting.closed {
                return None;
            }
            waiting.last += 1;
            let id = waiting.last;
            waiting.replies.insert(id, sender);
            id
        };
        let mut message = b"{\"jsonrpc\":\"2.0\",\"id\":".to_vec();
        push_number(&mut message, id);
        message.extend_from_slice(b",\"method\":\"");
        message.extend_from_slice(ask.method.as_str().as_bytes());
        message.push(b'"');
        if let Some(params) = &ask.params {
            message.extend_from_slice(b",\"params\":");
            message.extend_from_slice(params);
        }
        message.push(b'}');
        Some((Open { asked: Arc::clone(self), id, answer, reply: ask.reply }, message))
    }

    /// Takes the host's answer in; one that nobody waits for is dropped (ENV-7).
    pub(super) fn answer(&self, id: &[u8], answer: AskAnswer) {
        let reply = own_id(id).and_then(|id| self.waiting().replies.remove(&id));
        if let Some(reply) = reply {
            let _ = reply.send(answer);
        }
    }

    /// Nobody answers any more, now or later.
    pub(super) fn close(&self) {
        let open = {
            let mut waiting = self.waiting();
            waiting.closed = true;
            std::mem::take(&mut waiting.replies)
        };
        drop(open);
    }
}
