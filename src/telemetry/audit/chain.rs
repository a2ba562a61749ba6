//! The chain: each line names the hash of the line before it, over the ends of files and processes.
//!
//! Who changes, removes or moves a line breaks it, unless he also writes all lines anew that come after: so the hash of the
//! last line, kept elsewhere, holds all that came before it. Pure; knows lines, no files.

use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};

use crate::protocol::json::{self, Index, Root};

const ALGORITHM: &str = "sha256:";

/// Where a chain stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// The number of the last line; 0 before the first.
    pub seq: u64,
    /// The hash of the last line; nothing before the first.
    pub hash: Option<[u8; 32]>,
}

/// What a line says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Its number.
    pub seq: u64,
    /// The hash of the line before it.
    pub prev: Option<[u8; 32]>,
    /// What it tells of, where it is no decision: `begin`, `start`, `lost` or `end`.
    pub event: Option<String>,
    /// The chain that a file belongs to, where it begins one.
    pub chain: Option<String>,
    /// It follows a line that was cut off.
    pub torn: bool,
    /// How many records found no place, where it says so.
    pub lost: u64,
}

/// Why a line does not belong where it stands.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Break {
    /// No record at all.
    #[error("it is no record")]
    NoRecord,
    /// Another number than the next.
    #[error("its number is {found}, and {expected} comes next: lines are missing, were moved or put in")]
    Number {
        /// The next number.
        expected: u64,
        /// Its own.
        found: u64,
    },
    /// It follows another line.
    #[error("it does not follow the line before it: one of them was changed")]
    Hash,
}

/// The hash of a line, without its end.
pub fn hash_of(line: &[u8]) -> [u8; 32] {
    Sha256::digest(line).into()
}

/// A hash as lines have it.
pub fn spelled(hash: &[u8; 32]) -> String {
    format!("{ALGORITHM}{}", HEXLOWER.encode(hash))
}

impl Link {
    /// Appends the next line: its number, the hash of the line before it, and these members.
    pub(super) fn push(&mut self, out: &mut Vec<u8>, members: &[u8]) {
        let begin = out.len();
        self.seq += 1;
        out.extend_from_slice(b"{\"seq\":");
        out.extend_from_slice(self.seq.to_string().as_bytes());
        out.extend_from_slice(b",\"prev\":");
        match &self.hash {
            Some(hash) => {
                out.push(b'"');
                out.extend_from_slice(spelled(hash).as_bytes());
                out.push(b'"');
            }
            None => out.extend_from_slice(b"null"),
        }
        out.push(b',');
        out.extend_from_slice(members);
        out.push(b'}');
        self.hash = Some(hash_of(&out[begin..]));
        out.push(b'\n');
    }

    /// Goes on to the next line, or says why that does not follow.
    pub fn follow(&mut self, line: &[u8]) -> Result<Line, Break> {
        let read = Line::read(line).ok_or(Break::NoRecord)?;
        let next = Self { seq: read.seq, hash: Some(hash_of(line)) };
        if read.seq != self.seq + 1 {
            return Err(Break::Number { expected: self.seq + 1, found: read.seq });
        }
        if read.prev != self.hash {
            return Err(Break::Hash);
        }
        *self = next;
        Ok(read)
    }
}

impl Line {
    /// The chain whose file it begins; nothing where it begins none.
    pub fn begins(&self) -> Option<&str> {
        self.chain.as_deref().filter(|_| self.event.as_deref() == Some("begin"))
    }

    /// Reads what concerns the chain; nothing for what is no record.
    pub fn read(line: &[u8]) -> Option<Self> {
        let mut index = Index::new();
        index.read(line).ok()?;
        if index.root() != Root::Object {
            return None;
        }
        let text = |name| json::member(line, name).and_then(json::text_of);
        let number = |name| std::str::from_utf8(json::member(line, name)?).ok()?.parse::<u64>().ok();
        let prev = match json::member(line, "prev")? {
            b"null" => None,
            raw => {
                let text = json::text_of(raw)?;
                let digits = text.strip_prefix(ALGORITHM)?;
                Some(HEXLOWER.decode(digits.as_bytes()).ok()?.try_into().ok()?)
            }
        };
        Some(Self {
            seq: number("seq")?,
            prev,
            event: text("event").map(|event| event.into_owned()),
            chain: text("chain").map(|chain| chain.into_owned()),
            torn: json::member(line, "torn") == Some(b"true"),
            lost: number("lost").unwrap_or(0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A chain of five lines.
    fn five() -> Vec<Vec<u8>> {
        let (mut link, mut out) = (Link::default(), Vec::new());
        for n in 0..5 {
            link.push(&mut out, format!("\"n\":{n}").as_bytes());
        }
        out.split(|b| *b == b'\n').filter(|line| !line.is_empty()).map(<[u8]>::to_vec).collect()
    }

    /// The place of the first line that does not follow, and why.
    fn first_break(lines: &[Vec<u8>]) -> Option<(usize, Break)> {
        let mut link = Link::default();
        lines.iter().enumerate().find_map(|(n, line)| Some((n, link.follow(line).err()?)))
    }

    #[test]
    fn r36_a_changed_removed_or_moved_line_breaks_the_chain() {
        assert_eq!(first_break(&five()), None);
        let mut changed = five();
        let at = changed[1].len() - 2;
        changed[1][at] = b'7';
        assert_eq!(first_break(&changed), Some((2, Break::Hash)));
        let mut removed = five();
        removed.remove(2);
        assert_eq!(first_break(&removed), Some((2, Break::Number { expected: 3, found: 4 })));
        let mut moved = five();
        moved.swap(1, 2);
        assert_eq!(first_break(&moved), Some((1, Break::Number { expected: 2, found: 3 })));
        let mut twice = five();
        twice.insert(3, twice[2].clone());
        assert_eq!(first_break(&twice), Some((3, Break::Number { expected: 4, found: 3 })));
        let mut renumbered = five();
        renumbered.remove(2);
        for (n, line) in renumbered.iter_mut().enumerate() {
            let text = String::from_utf8(line.clone()).unwrap();
            let (_, rest) = text.split_once(',').unwrap();
            *line = format!("{{\"seq\":{},{rest}", n + 1).into_bytes();
        }
        assert!(first_break(&renumbered).is_some_and(|(at, why)| at < 3 && why == Break::Hash));
        let mut garbage = five();
        garbage[4] = b"{\"seq\":5".to_vec();
        assert_eq!(first_break(&garbage), Some((4, Break::NoRecord)));
    }
}
