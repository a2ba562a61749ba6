//! Tokens that were found good, so that a call does not pay for a signature each time. By their hash: none is kept.
//!
//! Bounded: two tables, the newer of which fills up and then takes the place of the older one, so that what is used stays.
//! What was checked by keys that are no longer the newest is checked again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use foldhash::fast::RandomState;

use super::keyset::KeySet;
use crate::ident::Principal;

/// Tokens in one of the two tables.
const MAX: usize = 4096;

type Table = HashMap<[u8; 32], Entry, RandomState>;

/// The tokens.
#[derive(Default)]
pub(super) struct Seen(Mutex<[Table; 2]>);

/// What was found of one.
#[derive(Clone)]
pub(super) struct Entry {
    /// Whom it names.
    pub(super) principal: Principal,
    /// The first moment at which it is taken no more.
    pub(super) until: SystemTime,
    /// Whether it suffices.
    pub(super) suffices: bool,
    /// By which keys it was checked.
    pub(super) keys: Arc<KeySet>,
}

impl Seen {
    /// What was found of a token by these keys, while it is good.
    pub(super) fn get(&self, hash: &[u8; 32], keys: &Arc<KeySet>, now: SystemTime) -> Option<Entry> {
        let mut tables = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_good = |entry: &Entry| now < entry.until && Arc::ptr_eq(&entry.keys, keys);
        if let Some(entry) = tables[0].get(hash) {
            return is_good(entry).then(|| entry.clone());
        }
        let entry = tables[1].remove(hash).filter(is_good)?;
        put(&mut tables, *hash, entry.clone());
        Some(entry)
    }

    /// Remembers one.
    pub(super) fn put(&self, hash: [u8; 32], entry: Entry) {
        put(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner), hash, entry);
    }
}

fn put(tables: &mut [Table; 2], hash: [u8; 32], entry: Entry) {
    if tables[0].len() >= MAX {
        tables[1] = std::mem::take(&mut tables[0]);
    }
    tables[0].insert(hash, entry);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn hash(n: u64) -> [u8; 32] {
        let mut hash = [0; 32];
        hash[..8].copy_from_slice(&n.to_le_bytes());
        hash
    }

    #[test]
    fn tokens_are_forgotten_with_time_keys_and_number() {
        let (seen, keys, now) = (Seen::default(), Arc::new(KeySet::default()), SystemTime::UNIX_EPOCH);
        let entry = |until| Entry {
            principal: Principal::user("a", &[], &[]),
            until: now + Duration::from_secs(until),
            suffices: true,
            keys: Arc::clone(&keys),
        };
        let is_there = |n, at| seen.get(&hash(n), &keys, now + Duration::from_secs(at)).is_some();
        seen.put(hash(0), entry(10));
        assert!(is_there(0, 9) && !is_there(0, 10) && !is_there(1, 0));
        assert!(seen.get(&hash(0), &Arc::new(KeySet::default()), now).is_none(), "newer keys");
        // What is used stays, what is not goes; never more than two tables of them.
        for n in 1..3 * MAX as u64 {
            seen.put(hash(n), entry(10));
            assert!(is_there(0, 0), "{n}");
        }
        assert!(!is_there(1, 0));
        let tables = seen.0.lock().unwrap();
        assert!(tables[0].len() <= MAX && tables[1].len() <= MAX);
    }
}
