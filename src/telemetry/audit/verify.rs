//! Reading files of records: line by line, and whether the lines follow each other.
//!
//! Files of one chain are taken in the order of their numbers. A line that was cut off by a crash is told apart from one
//! that was changed: nothing stands behind it, or the next start says so and names its hash. Called by `onegate audit` and
//! `onegate policy replay`; never by who writes.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};

use super::chain::{Break, Line, Link, hash_of};
use super::is_written;

/// Longest line that is read; none of ours is so long.
const MAX_LINE: u64 = 1 << 20;

/// The lines of a file.
pub struct Lines {
    from: BufReader<File>,
    /// A line without an end was read: what came behind it meanwhile is the rest of that one.
    over: bool,
    number: u64,
}

/// One line of a file.
pub struct Raw {
    /// Its place, from 1.
    pub number: u64,
    /// What stands in it, without its end.
    pub bytes: Vec<u8>,
    /// Whether it has an end.
    pub ended: bool,
}

impl Lines {
    /// Opens a file.
    pub fn open(file: &Path) -> io::Result<Self> {
        Ok(Self { from: BufReader::new(File::open(file)?), over: false, number: 0 })
    }

    /// The next line. Of one that is too long only the beginning is kept, which is no record then.
    pub fn next_line(&mut self) -> io::Result<Option<Raw>> {
        let mut bytes = Vec::new();
        if self.over {
            return Ok(None);
        }
        self.from.by_ref().take(MAX_LINE).read_until(b'\n', &mut bytes)?;
        if bytes.is_empty() {
            return Ok(None);
        }
        let mut ended = bytes.pop_if(|byte| *byte == b'\n').is_some();
        if !ended && bytes.len() as u64 == MAX_LINE {
            ended = self.skip()?;
        }
        self.over = !ended;
        self.number += 1;
        Ok(Some(Raw { number: self.number, bytes, ended }))
    }

    /// Passes over the rest of a line; answers whether it has an end.
    fn skip(&mut self) -> io::Result<bool> {
        loop {
            let held = self.from.fill_buf()?;
            if held.is_empty() {
                return Ok(false);
            }
            let end = held.iter().position(|byte| *byte == b'\n');
            let length = end.map_or(held.len(), |at| at + 1);
            self.from.consume(length);
            if end.is_some() {
                return Ok(true);
            }
        }
    }
}

/// A line of a file, and what there is to say of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1.
    pub line: u64,
    /// What there is to say.
    pub what: String,
}

/// How a chain ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Its process said that it ends.
    InOrder,
    /// A process writes to it now.
    Written,
    /// It just stops: its process crashed or was killed, or whole lines were taken from the end.
    Open,
    /// The last line was cut off: a crash, or a full disk.
    Torn,
    /// It is broken before that.
    Unknown,
}

impl End {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InOrder => "in-order",
            Self::Written => "written",
            Self::Open => "open",
            Self::Torn => "torn",
            Self::Unknown => "unknown",
        }
    }
}

/// What was found out about one chain.
#[derive(Clone, Debug)]
pub struct Report {
    /// Its files, in their order.
    pub files: Vec<PathBuf>,
    /// The number of the first line that is there.
    pub first: u64,
    /// Where it stands after the last line that follows.
    pub link: Link,
    /// Decisions in it.
    pub decisions: u64,
    /// Records that found no place, as far as it says so.
    pub lost: u64,
    /// What people should know.
    pub notes: Vec<Remark>,
    /// The first line that does not follow.
    pub broken: Option<Remark>,
    /// How it ends.
    pub end: End,
}

/// Verifies these files, chain by chain.
pub fn verify(files: &[PathBuf]) -> io::Result<Vec<Report>> {
    let mut reports = Vec::new();
    let mut chains: Vec<(String, Vec<(u64, PathBuf)>)> = Vec::new();
    for file in files {
        let head = Lines::open(file)?.next_line()?.and_then(|raw| Line::read(&raw.bytes));
        match head.and_then(|line| Some((line.begins()?.to_owned(), line.seq))) {
            Some((chain, first)) => match chains.iter_mut().find(|(known, _)| *known == chain) {
                Some((_, files)) => files.push((first, file.clone())),
                None => chains.push((chain, vec![(first, file.clone())])),
            },
            None => reports.push(headless(file)),
        }
    }
    for (_, mut files) in chains {
        files.sort();
        reports.push(Walk::new(files).go()?);
    }
    Ok(reports)
}

/// A file whose first line is not what a file of ours begins with.
fn headless(file: &Path) -> Report {
    let what = "it is not the beginning of an audit file: the file is empty, or lines were taken from its beginning";
    Report {
        files: vec![file.to_owned()],
        first: 0,
        link: Link::default(),
        decisions: 0,
        lost: 0,
        notes: Vec::new(),
        broken: Some(Remark { file: file.to_owned(), line: 1, what: what.to_owned() }),
        end: End::Unknown,
    }
}

/// One chain as it is walked.
struct Walk {
    report: Report,
    /// The event of the last line.
    last: Option<String>,
}

impl Walk {
    fn new(files: Vec<(u64, PathBuf)>) -> Self {
        let report = Report {
            files: files.into_iter().map(|(_, file)| file).collect(),
            first: 0,
            link: Link::default(),
            decisions: 0,
            lost: 0,
            notes: Vec::new(),
            broken: None,
            end: End::Unknown,
        };
        Self { report, last: None }
    }

    fn go(mut self) -> io::Result<Report> {
        let files = self.report.files.clone();
        for (n, file) in files.iter().enumerate() {
            let mut lines = Lines::open(file)?;
            let mut ahead = lines.next_line()?;
            while let Some(raw) = ahead {
                ahead = lines.next_line()?;
                if raw.number == 1 && n == 0 {
                    self.begin(file, &raw);
                }
                if self.line(file, &raw, &mut ahead, n + 1 == files.len()) {
                    return Ok(self.report);
                }
                if ahead.is_none() && self.report.end == End::Torn {
                    return Ok(self.report);
                }
            }
        }
        self.report.end = match (self.last.as_deref(), files.last()) {
            (Some("end"), _) => End::InOrder,
            (_, Some(file)) if is_written(file) => End::Written,
            _ => End::Open,
        };
        Ok(self.report)
    }

    fn note(&mut self, file: &Path, line: u64, what: &str) {
        self.report.notes.push(Remark { file: file.to_owned(), line, what: what.to_owned() });
    }

    /// The first line that is there says where the chain stood before it.
    fn begin(&mut self, file: &Path, raw: &Raw) {
        let Some(line) = Line::read(&raw.bytes) else { return };
        self.report.first = line.seq;
        self.report.link = Link { seq: line.seq.saturating_sub(1), hash: line.prev };
        if line.seq > 1 {
            self.note(file, raw.number, "it goes on from an earlier file, which is not among these");
        }
    }

    /// Takes a line; answers whether the chain is broken there.
    fn line(&mut self, file: &Path, raw: &Raw, ahead: &mut Option<Raw>, is_last_file: bool) -> bool {
        match self.report.link.follow(&raw.bytes) {
            Ok(line) => {
                let crashed = line.event.as_deref() == Some("start") && self.last.as_deref() != Some("end");
                if crashed && !line.torn {
                    self.note(file, raw.number, "the process before it did not end in order");
                }
                self.report.lost += line.lost;
                self.report.decisions += u64::from(line.event.is_none());
                self.last = line.event.or_else(|| Some(String::new()));
                return false;
            }
            Err(Break::NoRecord) if !raw.ended && ahead.is_none() && is_last_file => {
                // Of one that is being written only a part may be there yet.
                if is_written(file) {
                    self.last = None;
                } else {
                    self.note(file, raw.number, "it was cut off: a crash, or a full disk");
                    self.report.end = End::Torn;
                }
                return false;
            }
            Err(Break::NoRecord) if self.was_torn(raw, ahead.as_ref()) => {
                self.note(file, raw.number, "it was cut off by a crash, as the next start says");
                self.report.link.hash = Some(hash_of(&raw.bytes));
                return false;
            }
            Err(why) => {
                self.report.broken = Some(Remark { file: file.to_owned(), line: raw.number, what: why.to_string() });
            }
        }
        true
    }

    /// Whether the start behind a line says that it found it cut off.
    fn was_torn(&self, raw: &Raw, next: Option<&Raw>) -> bool {
        let next = next.and_then(|next| Line::read(&next.bytes));
        next.is_some_and(|next| {
            next.torn && next.event.as_deref() == Some("start") && next.prev == Some(hash_of(&raw.bytes))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Files of these lines, `e` of them, chained; the first of each begins it.
    fn files(folder: &Path, events: &[&[&str]]) -> Vec<PathBuf> {
        let mut link = Link::default();
        let mut paths = Vec::new();
        for (n, events) in events.iter().enumerate() {
            let mut out = Vec::new();
            for event in *events {
                let members = match *event {
                    "-" => "\"verdict\":\"allow\"".to_owned(),
                    event => format!("\"event\":\"{event}\",\"chain\":\"c\""),
                };
                link.push(&mut out, members.as_bytes());
            }
            // By name in another order than by number.
            let path = folder.join(format!("{}.jsonl", 9 - n));
            fs::write(&path, out).unwrap();
            paths.push(path);
        }
        paths.sort();
        paths
    }

    fn one(files: &[PathBuf]) -> Report {
        let mut reports = verify(files).unwrap();
        assert_eq!(reports.len(), 1, "{reports:?}");
        reports.remove(0)
    }

    #[test]
    fn r36_files_are_walked_in_the_order_of_their_chain() {
        let folder = tempfile::tempdir().unwrap();
        let all =
            files(folder.path(), &[&["begin", "-", "-"], &["begin", "-", "end", "start", "-"], &["begin", "end"]]);
        let report = one(&all);
        assert_eq!((report.broken, report.decisions, report.first, report.end), (None, 4, 1, End::InOrder));
        assert!(report.notes.is_empty(), "{:?}", report.notes);
        // Without the oldest: said, and fine.
        let report = one(&all[..2]);
        assert_eq!((report.broken, report.first, report.notes.len()), (None, 4, 1));
        // Without the one in the middle.
        let gap = [all[0].clone(), all[2].clone()];
        let broken = one(&gap).broken.unwrap();
        assert_eq!((broken.file, broken.line), (all[0].clone(), 1));
    }

    #[test]
    fn r36_the_line_is_named_and_what_was_cut_off_is_no_tampering() {
        let folder = tempfile::tempdir().unwrap();
        let path = &files(folder.path(), &[&["begin", "-", "-", "-", "end"]])[0];
        let text = fs::read_to_string(path).unwrap();
        let with = |text: &str| {
            fs::write(path, text).unwrap();
            one(std::slice::from_ref(path))
        };
        let cut = with(&text[..text.len() - 30]);
        assert_eq!((cut.broken, cut.end, cut.notes.len(), cut.decisions), (None, End::Torn, 1, 3));
        let lines: Vec<_> = text.lines().collect();
        let fewer = with(&format!("{}\n", lines[..4].join("\n")));
        assert_eq!((fewer.broken, fewer.end), (None, End::Open));
        for (changed, line) in [
            (text.replacen("allow", "allaw", 1), 3),
            (format!("{}\n{}\n{}\n", lines[0], lines[2], lines[3]), 2),
            (format!("{}\n{}\n{}\n", lines[0], lines[2], lines[1]), 2),
            (format!("{}\n{}\n{}\n", lines[0], &lines[1][..30], lines[2]), 2),
            (format!("{}\n\n{}\n", lines[0], lines[1]), 2),
            (format!("{}\n", lines[1..].join("\n")), 1),
            (String::new(), 1),
        ] {
            let report = with(&changed);
            assert_eq!(report.broken.map(|remark| remark.line), Some(line), "{changed}");
        }
        // Found at the next start.
        let mut link = Link::default();
        link.follow(lines[0].as_bytes()).unwrap();
        let torn = &lines[1][..30];
        link.hash = Some(hash_of(torn.as_bytes()));
        let mut start = Vec::new();
        link.push(&mut start, br#""event":"start","torn":true"#);
        let report = with(&format!("{}\n{torn}\n{}", lines[0], String::from_utf8(start.clone()).unwrap()));
        assert_eq!((report.broken, report.notes.len()), (None, 1));
        let other = &lines[1][..31];
        let report = with(&format!("{}\n{other}\n{}", lines[0], String::from_utf8(start).unwrap()));
        assert_eq!(report.broken.map(|remark| remark.line), Some(2), "another torn line than the start saw");
        // A line past all bounds is none of ours.
        let report = with(&format!("{}\n{}\n{}\n", lines[0], "x".repeat(3 << 20), lines[1]));
        assert_eq!(report.broken.map(|remark| remark.line), Some(2));
    }
}
