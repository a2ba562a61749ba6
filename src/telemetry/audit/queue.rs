//! What waits to be written: bounded by number and by bytes, and never waited for by who hands something over.
//!
//! What finds no place is counted. Knows nothing of what it holds.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Records that wait, at most.
pub(super) const MAX_RECORDS: usize = 8192;
/// Bytes of records that wait, at most.
pub(super) const MAX_BYTES: usize = 8 << 20;
/// So long the writer lets records come together: a wake-up across threads costs more than a small call.
const GATHER: Duration = Duration::from_millis(5);

#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    records: Vec<Vec<u8>>,
    bytes: usize,
    /// What found no place since the writer last looked.
    lost: u64,
    closed: bool,
    /// The writer stands and has to be woken.
    waiting: bool,
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands a record over. Never waits for the writer.
    pub(super) fn push(&self, record: Vec<u8>) {
        let mut state = self.state();
        if state.closed || state.records.len() >= MAX_RECORDS || state.bytes + record.len() > MAX_BYTES {
            state.lost += 1;
        } else {
            state.bytes += record.len();
            state.records.push(record);
        }
        if std::mem::take(&mut state.waiting) {
            drop(state);
            self.wake.notify_one();
        }
    }

    /// Nothing more is taken.
    pub(super) fn close(&self) {
        self.state().closed = true;
        self.wake.notify_all();
    }

    /// All that waits, and how many found no place behind it; nothing once it is closed and empty.
    pub(super) fn take(&self) -> Option<(Vec<Vec<u8>>, u64)> {
        let mut state = self.state();
        while state.records.is_empty() && state.lost == 0 {
            if state.closed {
                return None;
            }
            state.waiting = true;
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.waiting = false;
        if !state.closed && state.records.len() < MAX_RECORDS / 2 {
            let gathering = self.wake.wait_timeout_while(state, GATHER, |state| !state.closed);
            state = gathering.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.bytes = 0;
        Some((std::mem::take(&mut state.records), std::mem::take(&mut state.lost)))
    }
}
