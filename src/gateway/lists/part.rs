//! What one server listed and said of itself, and what of that hosts may see, as its pins and the operator's overrides have it.
//!
//! Knows no other server and no host. Kept by [`super::Lists`].

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;

use super::Lists;
use crate::catalog;
use crate::config::settings::OverrideSettings;
use crate::downstream::Offers;
use crate::gateway::pinned::Pinned;
use crate::gateway::remembered::{Content, Known, Slot};
use crate::ident::{Kind, ServerKey};

/// Entries left out of one list that are named in the log.
const MAX_TOLD: usize = 20;

/// A server's place in naming.
pub(in crate::gateway) struct Place {
    pub(in crate::gateway) key: ServerKey,
    /// Which server has it; see [`crate::downstream::Server::serial`].
    pub(in crate::gateway) serial: u64,
    /// The configuration has it no more.
    pub(in crate::gateway) gone: bool,
    pub(in crate::gateway) prefix: String,
    /// It is reached by HTTP.
    pub(in crate::gateway) http: bool,
    /// What the operator changes about its tools.
    pub(in crate::gateway) overrides: Vec<OverrideSettings>,
    /// Where it is kept what it lists, for the next run.
    pub(in crate::gateway) slot: Option<Arc<Slot>>,
}

/// What one server listed and said, and what of it is shown.
#[derive(Clone, Default)]
pub(super) struct Part {
    pub(super) lists: [OneList; 4],
    /// Its own, as it said them, and as far as they may be shown.
    pub(super) instructions: [Option<String>; 2],
    /// The same of what it offers.
    pub(super) offers: [Option<Offers>; 2],
    /// The pages as they came, by kind: what is remembered.
    pub(super) pages: [Option<Vec<Bytes>>; 4],
    /// What is remembered is not what there is now.
    pub(super) forgetful: bool,
}

impl Part {
    /// What is known at first of the server in a place: what was listed of it before. One that is started anew is shown as it
    /// was until it lists, as after any start, so that hosts are told of what differs and once (D027).
    pub(super) fn of(place: &Place, server: usize, before: Option<&Lists>, known: Option<Known>) -> Self {
        if place.gone {
            let nothing = OneList { settled: true, ..OneList::default() };
            return Self { lists: std::array::from_fn(|_| nothing.clone()), ..Self::default() };
        }
        let listed = before.and_then(|before| Some((before, before.places.get(server).filter(|old| !old.gone)?)));
        let Some((before, old)) = listed else { return known.map(Self::remembered).unwrap_or_default() };
        let mut part = before.parts()[server].clone();
        if old.serial != place.serial {
            part.lists.iter_mut().for_each(|list| list.until = None);
        }
        part
    }

    /// What it listed when we ran last.
    fn remembered(Known { content, parts, .. }: Known) -> Self {
        let lists = parts.map(|live| OneList { live, settled: true, ..OneList::default() });
        let Content { offers, instructions, lists: pages } = content;
        Self { lists, instructions: [instructions, None], offers: [Some(offers), None], pages, ..Self::default() }
    }

    /// What it may be shown by in the next run; nothing where it has not listed all that it offers.
    pub(super) fn content(&self) -> Option<Content> {
        let offers = self.offers[0].clone()?;
        let listed = |kind: Kind| self.lists[kind.index()].live.is_some() || offers.of(kind).is_none();
        let lists = self.pages.clone();
        Kind::ALL.into_iter().all(listed).then(|| Content { offers, instructions: self.instructions[0].clone(), lists })
    }

    /// What may be shown of what it said, by its pins.
    pub(super) fn pin(&mut self, pins: &Pinned, server: usize) {
        let [said, shown] = &mut self.instructions;
        *shown = pins.instructions(server, said.clone());
        let [said, shown] = &mut self.offers;
        *shown = said.as_ref().map(|offers| pins.offers(server, offers));
    }
}

/// One list of it.
#[derive(Clone, Default)]
pub(super) struct OneList {
    /// As it was listed.
    pub(super) live: Option<Arc<catalog::Part>>,
    /// As hosts may see it.
    pub(super) items: Option<Arc<catalog::Part>>,
    pub(super) until: Option<Instant>,
    pub(super) settled: bool,
}

impl OneList {
    /// Takes a list in; whether it is another than before.
    pub(super) fn put(&mut self, place: &Place, live: Arc<catalog::Part>, pinned: Option<catalog::Part>) -> bool {
        let is_new = self.live.as_ref().is_none_or(|known| !known.same_as(&live));
        let changed = self.show(place, Some(&live), pinned, is_new);
        self.live = Some(live);
        changed
    }

    /// Shows a list as pins and overrides have it; whether that is another than before.
    pub(super) fn show(
        &mut self,
        place: &Place,
        live: Option<&Arc<catalog::Part>>,
        pinned: Option<catalog::Part>,
        tell: bool,
    ) -> bool {
        let items = match (pinned, live) {
            (None, Some(live)) if place.overrides.is_empty() => Some(Arc::clone(live)),
            (None, None) => None,
            (pinned, live) => {
                let pinned = pinned.or_else(|| live.map(|live| catalog::Part::clone(live)));
                pinned.map(|mut items| {
                    items.adjust(&place.overrides);
                    Arc::new(items)
                })
            }
        };
        if tell {
            let dropped: Vec<_> =
                [live, items.as_ref()].into_iter().flatten().flat_map(|part| part.dropped()).collect();
            let mut dropped: Vec<_> = dropped.iter().map(ToString::to_string).collect();
            dropped.dedup();
            for dropped in dropped.iter().take(MAX_TOLD) {
                tracing::warn!(server = %place.key, "left out of its list: {dropped}");
            }
            if let Some(more @ 1..) = dropped.len().checked_sub(MAX_TOLD) {
                tracing::warn!(server = %place.key, more, "more were left out of its list");
            }
        }
        let same = match (&self.items, &items) {
            (Some(known), Some(items)) => known.same_as(items),
            (None, None) => true,
            _ => false,
        };
        self.items = items;
        !same
    }
}

/// How many servers have had their chance to list, by kind.
pub(super) fn settled(parts: &[Part]) -> [usize; 4] {
    Kind::ALL.map(|kind| parts.iter().filter(|part| part.lists[kind.index()].settled).count())
}
