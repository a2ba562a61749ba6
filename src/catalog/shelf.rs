//! One kind of the catalogue: its entries in their order, and the lists as rendered.
//!
//! Knows neither servers nor definitions: how an entry is written is the caller's. Used by `merge`.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use super::merge::{Fingerprint, Hidden};
use super::render::{Class, Needs};

/// The entries of one kind.
#[derive(Debug)]
pub(super) struct Shelf {
    pub(super) entries: Vec<Entry>,
    /// How many hosts are listed, ours among them.
    pub(super) visible: usize,
    /// About how many bytes those have.
    pub(super) size: usize,
    /// What those need before some host can be shown them.
    pub(super) needs: Needs,
    pub(super) fingerprint: Fingerprint,
    /// Definitions of ours among them, and before which entry they stand.
    pub(super) own: Vec<Bytes>,
    pub(super) own_at: usize,
    lists: [OnceLock<Rendered>; Class::COUNT],
}

/// One listed item; in the order of the list.
#[derive(Debug)]
pub(super) struct Entry {
    /// Position of its server.
    pub(super) site: usize,
    /// Position in that server's part.
    pub(super) item: usize,
    pub(super) exposed: Option<Arc<str>>,
    pub(super) hidden: Option<Hidden>,
    /// It is not listed, but found by search.
    pub(super) behind: bool,
}

impl Entry {
    /// Whether hosts are listed it.
    pub(super) fn is_listed(&self) -> bool {
        self.hidden.is_none() && !self.behind
    }
}

/// A list, and where in it the entries end.
#[derive(Debug)]
struct Rendered {
    text: Bytes,
    ends: Box<[usize]>,
}

impl Default for Shelf {
    fn default() -> Self {
        Self::with_capacity(0)
    }
}

impl Shelf {
    pub(super) fn with_capacity(entries: usize) -> Self {
        Self {
            entries: Vec::with_capacity(entries),
            visible: 0,
            size: 0,
            needs: Needs::default(),
            fingerprint: Fingerprint([0; 16]),
            own: Vec::new(),
            own_at: 0,
            lists: Default::default(),
        }
    }

    /// The entries that hosts are listed.
    pub(super) fn seen(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.is_listed())
    }

    /// The whole list.
    pub(super) fn list(&self, class: Class, write: impl FnMut(&mut Vec<u8>, &Entry, Class)) -> &Bytes {
        &self.rendered(class, write).text
    }

    /// A cut of it: the whole where that fits, else a copy between the ends of two entries.
    pub(super) fn page(
        &self,
        class: Class,
        offset: usize,
        limit: usize,
        write: impl FnMut(&mut Vec<u8>, &Entry, Class),
    ) -> (Bytes, Option<usize>) {
        let Rendered { text, ends } = self.rendered(class, write);
        let from = offset.min(ends.len());
        let to = from.saturating_add(limit.max(1)).min(ends.len());
        if (from, to) == (0, ends.len()) {
            return (text.clone(), None);
        }
        // An entry begins behind the bracket or the comma after the one before.
        let begin = from.checked_sub(1).map_or(1, |before| ends[before] + 1);
        let end = to.checked_sub(1).map_or(1, |last| ends[last]);
        let entries = text.get(begin..end).unwrap_or_default();
        let page = [b"[", entries, b"]"].concat();
        (page.into(), (to < ends.len()).then_some(to))
    }

    fn rendered(&self, class: Class, mut write: impl FnMut(&mut Vec<u8>, &Entry, Class)) -> &Rendered {
        let class = class.simplest(self.needs);
        self.lists[class.index()].get_or_init(|| {
            let mut text = Vec::with_capacity(self.size + 2);
            let mut ends = Vec::with_capacity(self.visible);
            text.push(b'[');
            let mut put = |write: &mut dyn FnMut(&mut Vec<u8>)| {
                if !ends.is_empty() {
                    text.push(b',');
                }
                write(&mut text);
                ends.push(text.len());
            };
            let (before, after) = self.entries.split_at(self.own_at.min(self.entries.len()));
            let listed = |entry: &&Entry| entry.is_listed();
            before.iter().filter(listed).for_each(|entry| put(&mut |text| write(text, entry, class)));
            self.own.iter().for_each(|own| put(&mut |text| text.extend_from_slice(own)));
            after.iter().filter(listed).for_each(|entry| put(&mut |text| write(text, entry, class)));
            text.push(b']');
            Rendered { text: text.into(), ends: ends.into() }
        })
    }
}
