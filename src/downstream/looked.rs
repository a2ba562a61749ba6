//! Whether what a server lists on a connection was compared with what was reviewed: until it was, no call passes (threat
//! model §5).
//!
//! Says nothing of what was found. On the connection that all share the gateway marks each list that it has compared; on one
//! that only some hosts have it is compared before a call. Asked by [`super::server`] for servers whose pins are enforced.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use crate::ident::Kind;

/// What was found out before a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// It was compared before.
    Known,
    /// It was compared just now: what is known of its items may be old.
    New,
    /// On this connection the item is another than was reviewed.
    Unlike,
}

/// Which lists of a connection were compared.
#[derive(Debug, Default)]
pub struct Looked {
    kinds: watch::Sender<u8>,
    /// By kind: after how many changes it was compared, and what is not as reviewed.
    own: Mutex<[Option<Found>; 4]>,
}

/// After how many changes, and what.
type Found = (u64, Arc<HashSet<String>>);

const fn bit(kind: Kind) -> u8 {
    1 << kind.index()
}

impl Looked {
    /// The list of this kind was compared, and what it says holds from now on.
    pub fn mark(&self, kind: Kind) {
        self.kinds.send_modify(|kinds| *kinds |= bit(kind));
    }

    /// Whether it was.
    pub(super) fn has(&self, kind: Kind) -> bool {
        *self.kinds.borrow() & bit(kind) != 0
    }

    /// Waits until it is.
    pub(super) async fn wait(&self, kind: Kind) {
        // The sender is ours.
        let _ = self.kinds.subscribe().wait_for(|kinds| kinds & bit(kind) != 0).await;
    }

    /// What was found on a connection of some hosts alone, where nothing changed since.
    pub(super) fn own(&self, kind: Kind, version: u64) -> Option<Arc<HashSet<String>>> {
        let own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        own[kind.index()].as_ref().filter(|(at, _)| *at == version).map(|(_, unlike)| Arc::clone(unlike))
    }

    /// Whether anything was, whenever.
    pub(super) fn has_own(&self, kind: Kind) -> bool {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)[kind.index()].is_some()
    }

    /// Notes what was found there.
    pub(super) fn note_own(&self, kind: Kind, version: u64, unlike: HashSet<String>) -> Arc<HashSet<String>> {
        let unlike = Arc::new(unlike);
        self.own.lock().unwrap_or_else(PoisonError::into_inner)[kind.index()] = Some((version, Arc::clone(&unlike)));
        unlike
    }
}
