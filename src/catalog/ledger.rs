//! What a catalogue costs a model, and what of that is saved by which means: by item, by server, in all.
//!
//! Counts bytes of published definitions; tokens are an estimate of [`super::tokens`]. Shown by `onegate tools` and
//! `onegate status`.

use super::{Catalogue, Item, tokens};
use crate::ident::{Kind, ServerKey};
use crate::protocol::version::Revision;

/// So many, of so many bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// How many.
    pub items: usize,
    /// Their bytes.
    pub bytes: usize,
    /// Their tokens, about.
    pub tokens: usize,
}

impl Sum {
    fn add(&mut self, bytes: usize) {
        self.items += 1;
        self.bytes += bytes;
        self.tokens += tokens::estimate(bytes);
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
    /// Bytes that overrides save of what is listed or behind search; fewer than none where they add.
    pub overridden: isize,
    /// The same of trims.
    pub trimmed: isize,
    /// By server, in the order of the list.
    pub servers: Vec<OfServer>,
}

impl Ledger {
    /// What a catalogue costs hosts of the newest revision.
    pub fn of(catalogue: &Catalogue) -> Self {
        let mut ledger = Self::default();
        for kind in Kind::ALL {
            for item in catalogue.items(kind, Revision::LATEST_MODERN) {
                ledger.item(&item);
            }
        }
        for own in catalogue.own() {
            ledger.own.add(own.len());
            ledger.listed.add(own.len());
        }
        ledger.servers.sort_by(|a, b| a.key.cmp(&b.key));
        ledger
    }

    fn item(&mut self, item: &Item<'_>) {
        let at = self.servers.iter().position(|server| server.key == *item.key).unwrap_or_else(|| {
            let (listed, behind, hidden) = Default::default();
            self.servers.push(OfServer { key: item.key.clone(), listed, behind, hidden });
            self.servers.len() - 1
        });
        let server = &mut self.servers[at];
        let (all, its) = match (item.hidden, item.behind) {
            (Some(_), _) => (&mut self.hidden, &mut server.hidden),
            (None, true) => (&mut self.behind, &mut server.behind),
            (None, false) => (&mut self.listed, &mut server.listed),
        };
        all.add(item.bytes);
        its.add(item.bytes);
        if item.hidden.is_none() {
            self.trimmed += item.untrimmed as isize - item.bytes as isize;
            self.overridden += item.overridden;
        }
    }
}
