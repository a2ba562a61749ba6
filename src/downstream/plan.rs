//! When the lists of a running server are fetched: pure, time comes in as an argument.
//!
//! Knows no connection. Asked by [`super::client`].

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

use super::client::{RETRY_FIRST, RETRY_LONGEST};
use crate::ident::Kind;

/// Lists of one server are at least this far apart (D-28).
const LIST_GAP: Duration = Duration::from_millis(250);

/// Which lists of a server are to be fetched, and when: one that failed waits, without keeping the others.
pub(super) struct Plan {
    due: BTreeSet<Kind>,
    due_at: Option<Instant>,
    failed: BTreeSet<Kind>,
    again_at: Option<Instant>,
    retry: Duration,
}

impl Plan {
    /// These now.
    pub(super) fn new(due: BTreeSet<Kind>, now: Instant) -> Self {
        let due_at = (!due.is_empty()).then_some(now);
        Self { due, due_at, failed: BTreeSet::new(), again_at: None, retry: RETRY_FIRST }
    }

    /// When the next are to be fetched.
    pub(super) fn at(&self) -> Option<Instant> {
        [self.due_at, self.again_at].into_iter().flatten().min()
    }

    /// These are others now (D-28).
    pub(super) fn changed(&mut self, mut kinds: BTreeSet<Kind>, now: Instant) {
        self.due.append(&mut kinds);
        if !self.due.is_empty() && self.due_at.is_none() {
            self.due_at = Some(now + LIST_GAP);
        }
    }

    /// Those that are to be fetched now.
    pub(super) fn take(&mut self, now: Instant) -> BTreeSet<Kind> {
        let mut kinds = BTreeSet::new();
        if self.due_at.is_some_and(|at| at <= now) {
            self.due_at = None;
            kinds.append(&mut self.due);
        }
        if self.again_at.is_some_and(|at| at <= now) {
            self.again_at = None;
            kinds.append(&mut self.failed);
        }
        self.failed.retain(|kind| !kinds.contains(kind));
        kinds
    }

    /// They were fetched, but for these.
    pub(super) fn listed(&mut self, mut failed: BTreeSet<Kind>, now: Instant) {
        let news = !failed.is_empty();
        self.failed.append(&mut failed);
        if self.failed.is_empty() {
            self.again_at = None;
            self.retry = RETRY_FIRST;
        } else if news {
            self.again_at = Some(now + self.retry);
            self.retry = (self.retry * 2).min(RETRY_LONGEST);
        }
        // What changed while they were fetched.
        if self.due_at.is_some() {
            self.due_at = Some(now + LIST_GAP);
        }
    }
}
