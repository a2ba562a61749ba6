//! What a catalogue costs a model, and what of that is saved by which means: by item, by server, in all.
//!
//! Tokens are counted as [`super::tokens`] does. Worked out once for a catalogue, when it is first asked for; shown by
//! `onegate tools`, `onegate status` and the numbers.

use serde::Serialize;

use super::{Catalogue, Hidden, Item};
use crate::ident::{Kind, ServerKey};
use crate::protocol::version::Revision;

/// So many, of so many bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sum {
    /// How many.
    pub items: usize,
    /// Their bytes.
    pub bytes: usize,
    /// Their tokens.
    pub tokens: usize,
}

impl Sum {
    fn add(&mut self, bytes: usize, tokens: usize) {
        self.items += 1;
        self.bytes += bytes;
        self.tokens += tokens;
    }
}

/// What is saved of items that hosts see; less than nothing where something is added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Saved {
    /// Bytes.
    pub bytes: isize,
    /// Tokens.
    pub tokens: isize,
}

impl Saved {
    /// What is saved by a change from these bytes and tokens to those.
    pub(super) fn between(before: (usize, usize), after: (usize, usize)) -> Self {
        let saved = |before: usize, after: usize| before as isize - after as isize;
        Self { bytes: saved(before.0, after.0), tokens: saved(before.1, after.1) }
    }

    /// Whether that is nothing.
    pub fn is_nothing(self) -> bool {
        self == Self::default()
    }

    fn add(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.tokens += other.tokens;
    }
}

/// What a server's items cost.
#[derive(Clone, Debug)]
pub struct OfServer {
    /// Its key.
    pub key: ServerKey,
    /// What of it hosts are listed.
    pub listed: Sum,
    /// What of it they find by search.
    pub behind: Sum,
    /// What of it they do not see.
    pub hidden: Sum,
    /// What overrides save of what they see.
    pub overridden: Saved,
    /// What trims do.
    pub trimmed: Saved,
}

/// What is saved of what servers list.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct SavedBy {
    /// By overrides, of what hosts see.
    pub overrides: Saved,
    /// By trims, of the same.
    pub trims: Saved,
    /// By search: what is not in the lists.
    pub search: Sum,
    /// By filters, rules, profiles and pins: what hosts do not see.
    pub hidden: Sum,
}

/// What a catalogue costs.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// What hosts are listed, tools of ours among it.
    pub listed: Sum,
    /// Tools of ours.
    pub own: Sum,
    /// What they find by search.
    pub behind: Sum,
    /// What they do not see: by filters, rules, profiles and pins.
    pub hidden: Sum,
    /// The same by why, in the order in which it was first met.
    pub hidden_by: Vec<(Hidden, Sum)>,
    /// What overrides save of what is listed or behind search.
    pub overridden: Saved,
    /// The same of trims.
    pub trimmed: Saved,
    /// How many tools trims shorten.
    pub shortened: usize,
    /// By server, in the order of the list.
    pub servers: Vec<OfServer>,
}

impl OfServer {
    /// What of that is saved, and by which means.
    pub fn saved(&self) -> SavedBy {
        SavedBy { overrides: self.overridden, trims: self.trimmed, search: self.behind, hidden: self.hidden }
    }
}

impl Ledger {
    /// What is saved, and by which means.
    pub fn saved(&self) -> SavedBy {
        SavedBy { overrides: self.overridden, trims: self.trimmed, search: self.behind, hidden: self.hidden }
    }

    /// What a catalogue costs hosts of the newest revision.
    pub fn of(catalogue: &Catalogue) -> Self {
        let mut ledger = Self::default();
        for kind in Kind::ALL {
            for item in catalogue.items(kind, Revision::LATEST_MODERN) {
                ledger.item(&item);
            }
        }
        for own in catalogue.own() {
            let tokens = catalogue.counter().of(own);
            ledger.own.add(own.len(), tokens);
            ledger.listed.add(own.len(), tokens);
        }
        ledger.servers.sort_by(|a, b| a.key.cmp(&b.key));
        ledger
    }

    fn item(&mut self, item: &Item<'_>) {
        let server = match self.servers.iter().position(|server| server.key == *item.key) {
            Some(at) => &mut self.servers[at],
            None => {
                let (listed, behind, hidden) = Default::default();
                let (overridden, trimmed) = Default::default();
                self.servers.push(OfServer { key: item.key.clone(), listed, behind, hidden, overridden, trimmed });
                self.servers.last_mut().expect("invariant: one was put in")
            }
        };
        let (all, its) = match (item.hidden, item.behind) {
            (Some(_), _) => (&mut self.hidden, &mut server.hidden),
            (None, true) => (&mut self.behind, &mut server.behind),
            (None, false) => (&mut self.listed, &mut server.listed),
        };
        all.add(item.bytes, item.tokens);
        its.add(item.bytes, item.tokens);
        match item.hidden {
            None => {
                self.shortened += usize::from(!item.trimmed.is_nothing());
                for (saved, more) in [
                    (&mut self.trimmed, item.trimmed),
                    (&mut server.trimmed, item.trimmed),
                    (&mut self.overridden, item.overridden),
                    (&mut server.overridden, item.overridden),
                ] {
                    saved.add(more);
                }
            }
            Some(why) => {
                let at = self.hidden_by.iter().position(|(known, _)| *known == why).unwrap_or_else(|| {
                    self.hidden_by.push((why, Sum::default()));
                    self.hidden_by.len() - 1
                });
                self.hidden_by[at].1.add(item.bytes, item.tokens);
            }
        }
    }
}
