//! What was said in a test between the program, the host and the fakes, held to the schemas when all is over.
//!
//! Only then, because what a fake said is read from its own notes, and what it said wrong must be known before the program
//! is judged. Without schemas nothing is kept. `host.rs` fills it.

use std::collections::BTreeMap;
use std::path::Path;

use crate::checker::{Finding, Leg, Peers, Schemas};

/// The host's part of it, while it goes on.
#[derive(Default)]
pub(crate) struct Talk {
    /// Lines, and whether the program said them.
    lines: Vec<(bool, Vec<u8>)>,
    /// A line of the host that has no end yet.
    half: Vec<u8>,
}

/// Whether there is something to hold it to.
pub(crate) fn is_kept() -> bool {
    Schemas::given().is_some()
}

impl Talk {
    /// The host writes bytes.
    pub(crate) fn heard(&mut self, bytes: &[u8]) {
        if is_kept() {
            self.half.extend_from_slice(bytes);
            while let Some(end) = self.half.iter().position(|byte| *byte == b'\n') {
                let line = self.half.drain(..=end).collect();
                self.lines.push((false, line));
            }
        }
    }

    /// The program wrote a line.
    pub(crate) fn said(&mut self, line: &[u8]) {
        if is_kept() {
            self.lines.push((true, line.to_vec()));
        }
    }
}

/// Judges the talk of a host and what fakes noted in this folder.
pub(crate) fn judge(schemas: &Schemas, talk: &Talk, folder: &Path) {
    let mut peers = Peers::default();
    let mut found: Vec<(Vec<u8>, Vec<Finding>)> = Vec::new();
    let mut take = |leg: &Leg, ours: bool, line: &[u8]| {
        let line = line.trim_ascii();
        if ours {
            found.push((line.to_vec(), leg.judge(schemas, line)));
        } else if !line.is_empty() {
            leg.note(schemas, line, &mut peers);
        }
    };
    let host = Leg::default();
    for (ours, line) in &talk.lines {
        take(&host, *ours, line);
    }
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.path().extension().is_some_and(|extension| extension == "talk") {
            let notes = std::fs::read(entry.path()).unwrap_or_default();
            // Each process of a fake is a connection of its own.
            let mut legs: BTreeMap<&[u8], Leg> = BTreeMap::new();
            for note in notes.split(|byte| *byte == b'\n') {
                let mut parts = note.splitn(3, |byte| *byte == b' ');
                if let (Some(process), Some(who), Some(line)) = (parts.next(), parts.next(), parts.next()) {
                    take(legs.entry(process).or_default(), who == b"<", line);
                }
            }
        }
    }
    let mut wrong = String::new();
    for (line, found) in &found {
        for text in peers.left(found) {
            wrong.push_str(&format!("{text}\n    in {:.1000}\n", String::from_utf8_lossy(line)));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
