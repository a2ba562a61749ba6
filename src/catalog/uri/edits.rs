//! Changes of a raw text that leave all else as it is.
//!
//! Knows nothing of what it changes. Used where URIs stand deep inside of a message or definition.

use std::ops::Range;

use crate::protocol::json;

/// What is to be changed of a text.
pub(in super::super) struct Edits<'a> {
    text: &'a [u8],
    /// In the order of the text, apart from each other.
    changes: Vec<(Range<usize>, Vec<u8>)>,
}

impl<'a> Edits<'a> {
    pub(in super::super) const fn new(text: &'a [u8]) -> Self {
        Self { text, changes: Vec::new() }
    }

    /// Where a slice of the text stands in it.
    fn place(&self, part: &[u8]) -> Range<usize> {
        let start = part.as_ptr().addr() - self.text.as_ptr().addr();
        start..start + part.len()
    }

    /// Puts another JSON string where `value`, a slice of the text, stands.
    pub(in super::super) fn replace_string(&mut self, value: &'a [u8], text: &str) {
        let mut new = Vec::with_capacity(text.len() + 2);
        json::push_string(&mut new, text);
        self.changes.push((self.place(value), new));
    }

    /// Adds a member, written out, at the front of `object`, a slice of the text.
    pub(in super::super) fn add_member(&mut self, object: &'a [u8], member: &str) {
        let at = self.place(object).start + 1;
        let comma = if json::members(object).next().is_some() { "," } else { "" };
        self.changes.push((at..at, [member, comma].concat().into_bytes()));
    }

    /// The changed text; `None` when nothing changes.
    pub(in super::super) fn apply(mut self) -> Option<Vec<u8>> {
        if self.changes.is_empty() {
            return None;
        }
        self.changes.sort_by_key(|(range, _)| range.start);
        let grown = self.changes.iter().map(|(_, new)| new.len()).sum::<usize>();
        let mut out = Vec::with_capacity(self.text.len() + grown);
        let mut from = 0;
        for (range, new) in self.changes {
            out.extend_from_slice(&self.text[from..range.start]);
            out.extend_from_slice(&new);
            from = range.end;
        }
        out.extend_from_slice(&self.text[from..]);
        Some(out)
    }
}
