//! The files: which one this process writes, when another is begun, and when old ones go.
//!
//! The first process writes `audit.jsonl`, a second one `audit.2.jsonl`, and so on: each holds the lock file beside its
//! own (`audit.jsonl.lock`) for as long as it lives. On the first record of a day in UTC, and past a size, the file becomes
//! `audit.<time>-<number>.jsonl` and a new one goes on with the chain. What must not stop a call does not: a write that
//! fails is counted, and tried again with the next. Called by the thread of [`super::Keeper`].
//!
//! Long, and one thing: every way that a file begins, goes on and ends keeps its chain.

use std::fs::{DirBuilder, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use super::chain::{Line, Link, hash_of};
use super::names::{MAX_SLOTS, Names, Role, lock, open};
use super::process;
use super::record::push_member;
use super::verify::Lines;
use crate::config::settings::AuditSettings;
use crate::moment;
use crate::protocol::json;

/// A file that is longer is followed by another.
const MAX_FILE: u64 = 64 << 20;
/// So much of the end of a file is read to go on from it: more than the longest line.
const TAIL: u64 = 1 << 20;
/// So often is told at most what goes wrong.
const TELL: Duration = Duration::from_secs(5);

/// The file that is written, and where its chain stands.
pub(super) struct Log {
    names: Names,
    slot: u32,
    path: PathBuf,
    _lock: File,
    keep: Duration,
    /// What every beginning says of this process, raw members.
    about: Vec<u8>,
    chain: String,
    file: File,
    length: u64,
    /// When the file was begun, and the number of its first line.
    began: (SystemTime, u64),
    link: Link,
    /// Something may stand behind `length` that was not written whole.
    dirty: bool,
    /// Records that could not be written, and were not told of yet.
    lost: u64,
    told: Option<Instant>,
    out: Vec<u8>,
}

impl Log {
    pub(super) fn open(settings: &AuditSettings, process: &str) -> io::Result<Self> {
        let names = Names::of(&settings.file)?;
        DirBuilder::new().recursive(true).mode(0o700).create(&names.folder)?;
        let mut free = None;
        for slot in 1..=MAX_SLOTS {
            let path = names.current(slot);
            if let Some(lock) = lock(&path)? {
                free = Some((slot, path, lock));
                break;
            }
        }
        let (slot, path, lock) =
            free.ok_or_else(|| io::Error::other(format!("{MAX_SLOTS} processes write beside it")))?;
        let file = open(&path)?;
        let mut log = Self {
            names,
            slot,
            path,
            _lock: lock,
            keep: settings.keep,
            about: about(process, &settings.values),
            chain: String::new(),
            file,
            length: 0,
            began: (SystemTime::now(), 1),
            link: Link::default(),
            dirty: false,
            lost: 0,
            told: None,
            out: Vec::new(),
        };
        log.go_on()?;
        log.forget_old(SystemTime::now());
        if slot > 1 {
            tracing::info!(file = %log.path.display(), "another process writes the audit file; ours is beside it");
        }
        Ok(log)
    }

    /// Goes on behind what stands in the file, or begins it.
    fn go_on(&mut self) -> io::Result<()> {
        self.length = self.file.metadata()?.len();
        if self.length == 0 {
            return self.begin(SystemTime::now());
        }
        let Some(found) = Found::read(&mut self.file, self.length)? else {
            if Found::is_begun(&mut self.file, self.length)? {
                tracing::warn!(file = %self.path.display(), "the first record of the audit file was cut off");
                (self.length, self.dirty) = (0, true);
                return self.begin(SystemTime::now());
            }
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is there already, and is no audit file"));
        };
        (self.chain, self.began, self.link) = (found.chain, found.began, found.link);
        let now = SystemTime::now();
        self.out.clear();
        if found.open {
            self.out.push(b'\n');
        }
        let mut members = b"\"event\":\"start\",\"time\":\"".to_vec();
        moment::push(&mut members, now);
        members.extend_from_slice(b"\",");
        members.extend_from_slice(&self.about);
        if found.torn {
            members.extend_from_slice(b",\"torn\":true");
            tracing::warn!(file = %self.path.display(), "the last record of the audit file was cut off");
        }
        self.link.push(&mut self.out, &members);
        self.append()?;
        self.turn(now);
        Ok(())
    }

    /// The first line of a file.
    fn begin(&mut self, now: SystemTime) -> io::Result<()> {
        if self.chain.is_empty() {
            self.chain = format!("{}{}", process()?, process()?);
        }
        self.began = (now, self.link.seq + 1);
        let mut members = b"\"event\":\"begin\",\"time\":\"".to_vec();
        moment::push(&mut members, now);
        members.push(b'"');
        push_member(&mut members, "chain", Some(&self.chain));
        members.push(b',');
        members.extend_from_slice(&self.about);
        self.out.clear();
        self.link.push(&mut self.out, &members);
        self.append()
    }

    /// Writes what is in `out`, whole or not at all.
    fn append(&mut self) -> io::Result<()> {
        if self.dirty {
            self.file.set_len(self.length)?;
            self.dirty = false;
        }
        self.dirty = true;
        self.file.write_all(&self.out)?;
        self.dirty = false;
        self.length += self.out.len() as u64;
        Ok(())
    }

    /// Begins another file where this one is of another day, too long, or no longer there. The chain goes on.
    fn turn(&mut self, now: SystemTime) {
        let is_ours =
            |found: std::fs::Metadata, ours: &std::fs::Metadata| (found.dev(), found.ino()) == (ours.dev(), ours.ino());
        let in_place = match (std::fs::symlink_metadata(&self.path), self.file.metadata()) {
            (Ok(found), Ok(ours)) => is_ours(found, &ours),
            _ => false,
        };
        let due = moment::day(now) != moment::day(self.began.0) || self.length > MAX_FILE;
        if in_place && !due {
            return;
        }
        if !in_place {
            tracing::warn!(file = %self.path.display(), "the audit file was moved or removed; a new one goes on");
        }
        if let Err(error) = self.follow(now, in_place) {
            // It goes on in the old one.
            self.tell(&format!("no new audit file could be begun: {error}"));
        }
    }

    fn follow(&mut self, now: SystemTime, in_place: bool) -> io::Result<()> {
        let past = self.names.past(self.slot, self.began);
        if in_place {
            if std::mem::take(&mut self.dirty) {
                self.file.set_len(self.length)?;
            }
            if past.try_exists()? {
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, "the name of the old one is taken"));
            }
            let _ = self.file.sync_data();
            std::fs::rename(&self.path, &past)?;
        }
        let before = (self.link.clone(), self.length, self.began);
        let begun = open(&self.path).and_then(|new| {
            self.length = new.metadata()?.len();
            let old = std::mem::replace(&mut self.file, new);
            self.begin(now).inspect_err(|_| self.file = old)
        });
        if begun.is_err() {
            // The disk may be full: the old one goes on, under its name.
            (self.link, self.length, self.began) = before;
            self.dirty = false;
            if in_place {
                std::fs::rename(&past, &self.path)?;
            }
        } else {
            self.forget_old(now);
        }
        begun
    }

    /// Removes what was written last before the time that files are kept. By the clock, and by the newest of the other
    /// files as well: a clock that is wrong once, as after a start without a network, must not take the whole past along.
    pub(super) fn forget_old(&self, now: SystemTime) {
        let mut others = Vec::new();
        for (path, role) in self.names.all().unwrap_or_default() {
            let found = std::fs::symlink_metadata(&path).ok().filter(std::fs::Metadata::is_file);
            if let Some(modified) = found.and_then(|found| found.modified().ok()).filter(|_| path != self.path) {
                others.push((path, role, modified));
            }
        }
        let Some(newest) = others.iter().map(|(.., modified)| *modified).max() else { return };
        let Some(oldest) = now.min(newest).checked_sub(self.keep) else { return };
        for (path, role, _) in others.into_iter().filter(|(.., modified)| *modified < oldest) {
            // One that a process still has is not old, only quiet.
            let held = match role {
                Role::Past => None,
                Role::Current(_) => match lock(&path) {
                    Ok(Some(lock)) => Some(lock),
                    Ok(None) | Err(_) => continue,
                },
            };
            if !Found::is_ours(&path).unwrap_or(false) {
                tracing::warn!(file = %path.display(), "it is called like an old audit file, and is none: it stays");
                continue;
            }
            match std::fs::remove_file(&path) {
                Ok(()) => tracing::info!(file = %path.display(), "an old audit file was removed"),
                Err(error) => tracing::warn!(file = %path.display(), %error, "an old audit file stays"),
            }
            drop(held);
        }
    }

    /// Writes records, and how many found no place behind them.
    pub(super) fn write(&mut self, now: SystemTime, records: &[Vec<u8>], lost: u64) {
        self.turn(now);
        let before = self.link.clone();
        let lost = lost + std::mem::take(&mut self.lost);
        self.out.clear();
        for record in records {
            self.link.push(&mut self.out, record);
        }
        if lost > 0 {
            let mut members = b"\"event\":\"lost\",\"time\":\"".to_vec();
            moment::push(&mut members, now);
            members.extend_from_slice(format!("\",\"lost\":{lost}").as_bytes());
            self.link.push(&mut self.out, &members);
        }
        match self.append() {
            Ok(()) if lost > 0 => {
                self.told = None;
                self.tell(&format!("{lost} records of decisions were lost: more came than could be written"));
            }
            Ok(()) => {}
            Err(error) => {
                self.link = before;
                self.lost = lost + records.len() as u64;
                let lost = self.lost;
                self.tell(&format!("records of decisions cannot be written ({error}); {lost} are lost"));
            }
        }
        // A burst is not kept for ever.
        self.out.shrink_to(1 << 20);
    }

    /// Says that this process ends in order.
    pub(super) fn end(&mut self) {
        let now = SystemTime::now();
        if self.lost > 0 {
            self.write(now, &[], 0);
        }
        let mut members = b"\"event\":\"end\",\"time\":\"".to_vec();
        moment::push(&mut members, now);
        members.push(b'"');
        self.out.clear();
        let before = self.link.clone();
        self.link.push(&mut self.out, &members);
        if let Err(error) = self.append().and_then(|()| self.file.sync_data()) {
            self.link = before;
            tracing::warn!(%error, "the audit file could not be ended");
        }
        let hash = self.link.hash.as_ref().map(super::chain::spelled).unwrap_or_default();
        tracing::debug!(file = %self.path.display(), seq = self.link.seq, hash, "the audit file is closed");
    }

    fn tell(&mut self, what: &str) {
        if self.told.is_none_or(|told| told.elapsed() >= TELL) {
            self.told = Some(Instant::now());
            tracing::warn!(file = %self.path.display(), "{what}");
        }
    }
}

/// What every beginning says: whose sessions they are, of which version, and which values are written down.
fn about(process: &str, values: &[String]) -> Vec<u8> {
    let mut members = Vec::new();
    push_member(&mut members, "process", Some(process));
    push_member(&mut members, "version", Some(env!("CARGO_PKG_VERSION")));
    members.extend_from_slice(b",\"values\":[");
    for (n, pointer) in values.iter().enumerate() {
        if n > 0 {
            members.push(b',');
        }
        super::record::push_text(&mut members, pointer, usize::MAX);
    }
    members.push(b']');
    // Without the comma of the first.
    members.split_off(1)
}

/// What stands in a file that is there already.
struct Found {
    chain: String,
    began: (SystemTime, u64),
    link: Link,
    /// Its last line has no end.
    open: bool,
    /// And is not whole.
    torn: bool,
}

impl Found {
    /// Reads the first line and the last; nothing where these are no records.
    fn read(file: &mut File, length: u64) -> io::Result<Option<Self>> {
        let head = read_at(file, 0, length.min(TAIL))?;
        let tail = read_at(file, length.saturating_sub(TAIL), length.min(TAIL))?;
        let Some(first) = head.split(|b| *b == b'\n').next().and_then(Line::read) else { return Ok(None) };
        let Some(chain) = first.begins().map(str::to_owned) else { return Ok(None) };
        let open = tail.last() != Some(&b'\n');
        let mut lines = tail.strip_suffix(b"\n").unwrap_or(&tail).rsplit(|b| *b == b'\n');
        let last = lines.next().unwrap_or_default();
        let (line, torn) = match Line::read(last) {
            Some(line) => (line, false),
            None if open => match lines.next().and_then(Line::read) {
                Some(line) => (line, true),
                None => return Ok(None),
            },
            None => return Ok(None),
        };
        let link = Link { seq: line.seq, hash: Some(hash_of(last)) };
        let time = head.split(|b| *b == b'\n').next().and_then(|first| json::member(first, "time"));
        let began =
            time.and_then(json::text_of).and_then(|time| moment::parse(&time)).unwrap_or(SystemTime::UNIX_EPOCH);
        Ok(Some(Self { chain, began: (began, first.seq), link, open, torn }))
    }
}

impl Found {
    /// Whether a file begins as ours do.
    fn is_ours(path: &Path) -> io::Result<bool> {
        let first = Lines::open(path)?.next_line()?.and_then(|raw| Line::read(&raw.bytes));
        Ok(first.is_some_and(|line| line.begins().is_some()))
    }

    /// Whether a file is one of ours of which not even the first line was written whole.
    fn is_begun(file: &mut File, length: u64) -> io::Result<bool> {
        let head = read_at(file, 0, length.min(TAIL))?;
        Ok(head.starts_with(b"{\"seq\":1,\"prev\":null,") && !head.contains(&b'\n'))
    }
}

fn read_at(file: &mut File, from: u64, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(from))?;
    file.take(length).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
impl Log {
    /// Writes go nowhere, as to a disk that is full, or into the file again.
    pub(super) fn break_for_tests(&mut self, broken: bool) {
        let mut options = std::fs::OpenOptions::new();
        let options = if broken { options.read(true) } else { options.read(true).append(true) };
        self.file = options.open(&self.path).unwrap();
    }
}
