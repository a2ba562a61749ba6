//! Which server handed out a URI that no list has (RES-1, U-5): learned from results, for each principal by itself, so
//! that what one was shown routes nothing of another.
//!
//! Only a way to find the owner: what may be read is policy's. Bounded in number and bytes; the oldest go first, and of
//! the principals the one that learned something longest ago.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use crate::ident::Principal;

/// URIs of one principal, at most.
const MAX_URIS: usize = 10_000;
/// Bytes of the URIs of one principal, at most.
const MAX_BYTES: usize = 2 << 20;
/// Bytes of a URI that is remembered, at most: of any that may be read (RES-5).
const MAX_LENGTH: usize = 8 << 10;
/// Principals, at most.
const MAX_PRINCIPALS: usize = 256;

/// Who handed out what.
#[derive(Default)]
pub(super) struct Learned(Mutex<HashMap<Principal, Table>>);

#[derive(Default)]
struct Table {
    /// `None`: two servers did, so it belongs to neither (U-5).
    owners: HashMap<Arc<str>, Option<usize>>,
    order: VecDeque<Arc<str>>,
    bytes: usize,
    /// When something was learned last.
    used: Option<Instant>,
}

impl Learned {
    fn tables(&self) -> MutexGuard<'_, HashMap<Principal, Table>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A server's result named this native URI to a principal.
    pub(super) fn learn(&self, principal: &Principal, server: usize, uri: &str) {
        if uri.len() > MAX_LENGTH {
            return;
        }
        let mut tables = self.tables();
        if tables.len() >= MAX_PRINCIPALS && !tables.contains_key(principal) {
            let oldest = tables.iter().min_by_key(|(_, table)| table.used).map(|(principal, _)| principal.clone());
            oldest.and_then(|oldest| tables.remove(&oldest));
        }
        let table = tables.entry(principal.clone()).or_default();
        table.used = Some(Instant::now());
        if let Some(owner) = table.owners.get_mut(uri) {
            if *owner != Some(server) {
                *owner = None;
            }
            return;
        }
        while table.order.len() == MAX_URIS || table.bytes + uri.len() > MAX_BYTES {
            let Some(oldest) = table.order.pop_front() else { break };
            table.bytes -= oldest.len();
            table.owners.remove(&oldest);
        }
        table.bytes += uri.len();
        let uri: Arc<str> = uri.into();
        table.owners.insert(Arc::clone(&uri), Some(server));
        table.order.push_back(uri);
    }

    /// A server is there no more, and owns nothing.
    pub(super) fn forget(&self, server: usize) {
        for table in self.tables().values_mut() {
            let of_others = |owner: &Option<usize>| *owner != Some(server);
            table.owners.retain(|_, owner| of_others(owner));
            let Table { owners, order, bytes, .. } = table;
            order.retain(|uri| owners.contains_key(uri));
            *bytes = order.iter().map(|uri| uri.len()).sum();
        }
    }

    /// Whose it is.
    pub(super) fn owner(&self, principal: &Principal, uri: &str) -> Option<usize> {
        *self.tables().get(principal)?.owners.get(uri)?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn u5_what_two_servers_hand_out_belongs_to_neither_and_nothing_is_shared() {
        let (learned, one, two) = (Learned::default(), Principal::key("one"), Principal::key("two"));
        learned.learn(&one, 3, "x:1");
        learned.learn(&one, 3, "x:1");
        assert_eq!((learned.owner(&one, "x:1"), learned.owner(&two, "x:1")), (Some(3), None));
        learned.learn(&one, 4, "x:1");
        assert_eq!(learned.owner(&one, "x:1"), None);
        for n in 0..MAX_URIS {
            learned.learn(&one, 5, &format!("y:{n}"));
        }
        assert_eq!((learned.owner(&one, "y:0"), learned.tables()[&one].owners.len()), (Some(5), MAX_URIS));
    }

    #[test]
    fn what_is_learned_is_bounded_in_bytes_and_principals_and_the_oldest_go() {
        let learned = Learned::default();
        let one = Principal::key("one");
        for n in 0..2 * MAX_BYTES / MAX_LENGTH {
            learned.learn(&one, 1, &format!("z:{n:0width$}", width = MAX_LENGTH - 2));
        }
        assert!(learned.tables()[&one].bytes <= MAX_BYTES);
        for n in 0..MAX_PRINCIPALS {
            learned.learn(&Principal::key(&n.to_string()), 1, "x:1");
        }
        let last = Principal::key(&(MAX_PRINCIPALS - 1).to_string());
        assert_eq!(learned.tables().len(), MAX_PRINCIPALS);
        assert_eq!(learned.owner(&last, "x:1"), Some(1));
        assert!(!learned.tables().contains_key(&one), "the one that learned longest ago went");
        assert_eq!(learned.owner(&Principal::key("0"), "x:1"), Some(1), "and no other");
    }
}
