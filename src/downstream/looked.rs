//! Whether what a server lists on a connection was compared with what was reviewed: until it was, no call passes (threat
//! model §5).
//!
//! Says nothing of what was found. On the connection that all share the gateway marks each list that it has compared; on one
//! that only some hosts have it is compared before a call. Asked by [`super::server`] for servers whose pins are enforced.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use crate::ident::Kind;
use crate::protocol::call::Target;

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
    /// By kind: after how many changes it was compared, and what may be called.
    own: Mutex<[Option<Found>; 4]>,
}

/// What of a list may be called.
#[derive(Clone, Debug, Default)]
pub struct Served {
    /// The list could be read.
    pub is_read: bool,
    /// What is as reviewed.
    pub open: HashSet<String>,
    /// What is not.
    pub held: HashSet<String>,
}

impl Served {
    /// Whether a call may pass. Resources have no list that says all of them: of those only what is held is not served.
    pub(super) fn serves(&self, kind: Kind, native: &str) -> bool {
        match kind {
            Kind::Tool | Kind::Prompt => self.open.contains(native),
            Kind::Template | Kind::Resource => self.is_read && !self.held.contains(native),
        }
    }
}

/// After how many changes of the server and of the pins.
pub(super) type At = (u64, u64);
/// When, and what.
type Found = (At, Arc<Served>);

/// The list by which an item is looked at; none for a task, since what it was made of was.
pub const fn list_of(target: Target) -> Option<Kind> {
    match target {
        Target::Tool => Some(Kind::Tool),
        Target::Prompt => Some(Kind::Prompt),
        Target::Uri => Some(Kind::Template),
        Target::Task => None,
    }
}

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
    pub(super) fn own(&self, kind: Kind, now: At) -> Option<Arc<Served>> {
        let own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        own[kind.index()].as_ref().filter(|(at, _)| *at == now).map(|(_, served)| Arc::clone(served))
    }

    /// Whether anything was, whenever.
    pub(super) fn has_own(&self, kind: Kind) -> bool {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)[kind.index()].is_some()
    }

    /// Notes what was found there.
    pub(super) fn note_own(&self, kind: Kind, at: At, served: Served) -> Arc<Served> {
        let served = Arc::new(served);
        self.own.lock().unwrap_or_else(PoisonError::into_inner)[kind.index()] = Some((at, Arc::clone(&served)));
        served
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t_02_only_what_was_found_as_reviewed_passes_and_only_as_long_as_nothing_changes() {
        assert!(!Served::default().serves(Kind::Tool, "t"), "a list that cannot be read approves nothing");
        assert!(!Served::default().serves(Kind::Template, "t"));
        let served = Served { is_read: true, open: HashSet::from(["t".into()]), held: HashSet::from(["h".into()]) };
        assert!(served.serves(Kind::Tool, "t") && !served.serves(Kind::Tool, "not listed"));
        assert!(served.serves(Kind::Template, "x:1") && !served.serves(Kind::Template, "h"));
        let looked = Looked::default();
        looked.note_own(Kind::Tool, (1, 1), served);
        assert!(looked.own(Kind::Tool, (1, 1)).is_some());
        assert!(looked.own(Kind::Tool, (1, 2)).is_none(), "the lock is another");
        assert!(looked.own(Kind::Tool, (2, 1)).is_none(), "the list is another");
    }
}
