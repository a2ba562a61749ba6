//! What a legacy host is asked on behalf of servers, and its answers: ids of ours on the host's leg (REL-1).
//!
//! Knows no stream: whoever asks writes the message where it belongs.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::protocol::call::push_number;
use crate::protocol::message::own_id;
use crate::transport::upward::{Ask, AskAnswer};

/// The questions of one host that wait for their answers.
#[derive(Default)]
pub(super) struct Asked(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    last: u64,
    replies: HashMap<u64, oneshot::Sender<AskAnswer>>,
}

impl Asked {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a question; answers its id and the request to write.
    pub(super) fn put(&self, ask: Ask) -> (u64, Vec<u8>) {
        let id = {
            let mut waiting = self.waiting();
            waiting.last += 1;
            let id = waiting.last;
            waiting.replies.insert(id, ask.reply);
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
        (id, message)
    }

    /// Takes the host's answer in; one that nobody waits for is dropped (ENV-7).
    pub(super) fn answer(&self, id: &[u8], answer: AskAnswer) {
        let reply = own_id(id).and_then(|id| self.waiting().replies.remove(&id));
        if let Some(reply) = reply {
            // The server may want none any more.
            let _ = reply.send(answer);
        }
    }

    /// Takes out the questions whose servers want no answer any more; the host should be told (CAN-3).
    pub(super) fn withdrawn(&self) -> Vec<u64> {
        let mut waiting = self.waiting();
        let gone: Vec<u64> = waiting.replies.iter().filter(|(_, reply)| reply.is_closed()).map(|(&id, _)| id).collect();
        for id in &gone {
            waiting.replies.remove(id);
        }
        gone
    }

    /// The host is gone: nobody answers any more.
    pub(super) fn clear(&self) {
        self.waiting().replies.clear();
    }
}
