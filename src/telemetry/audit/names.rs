//! What the files are called, whose each is, and how they are opened.
//!
//! Knows nothing of what stands in them. Called by [`super::file`], and by commands through [`family`] and [`is_written`].

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{FlockOperation, OFlags, flock};

use crate::moment;

/// Processes that write beside each other, at most.
pub(super) const MAX_SLOTS: u32 = 99;

/// The names of all files of one configuration.
pub(super) struct Names {
    pub(super) folder: PathBuf,
    stem: String,
    /// With its dot.
    extension: String,
}

/// What a file of ours is by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The one that a process writes.
    Current(u32),
    /// One that was followed by another.
    Past,
}

impl Names {
    pub(super) fn of(file: &Path) -> io::Result<Self> {
        let unusable = || io::Error::new(io::ErrorKind::InvalidInput, "it names no file");
        let stem = file.file_stem().and_then(|stem| stem.to_str()).ok_or_else(unusable)?.to_owned();
        let extension = match file.extension() {
            Some(extension) => format!(".{}", extension.to_str().ok_or_else(unusable)?),
            None => String::new(),
        };
        let folder = match file.parent() {
            Some(folder) if folder != Path::new("") => folder.to_owned(),
            _ => PathBuf::from("."),
        };
        Ok(Self { folder, stem, extension })
    }

    pub(super) fn current(&self, slot: u32) -> PathBuf {
        let (stem, extension) = (&self.stem, &self.extension);
        match slot {
            1 => self.folder.join(format!("{stem}{extension}")),
            _ => self.folder.join(format!("{stem}.{slot}{extension}")),
        }
    }

    /// What a file of this slot is called once another one follows it.
    pub(super) fn past(&self, slot: u32, (began, first): (SystemTime, u64)) -> PathBuf {
        let slot = if slot == 1 { String::new() } else { format!(".{slot}") };
        let (stem, extension) = (&self.stem, &self.extension);
        self.folder.join(format!("{stem}{slot}.{}-{first}{extension}", moment::stamp(began)))
    }

    fn role(&self, name: &str) -> Option<Role> {
        let middle = name.strip_prefix(&self.stem)?.strip_suffix(&self.extension)?;
        if middle.is_empty() {
            return Some(Role::Current(1));
        }
        let middle = middle.strip_prefix('.')?;
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if is_number(middle) {
            return middle.parse().ok().filter(|slot| (2..=MAX_SLOTS).contains(slot)).map(Role::Current);
        }
        let middle = match middle.split_once('.') {
            Some((slot, rest)) => Some(rest).filter(|_| is_number(slot))?,
            None => middle,
        };
        let (time, first) = middle.split_once('-')?;
        let (date, rest) = time.split_once('T')?;
        let shaped = is_number(date) && rest.strip_suffix('Z').is_some_and(is_number) && is_number(first);
        shaped.then_some(Role::Past)
    }

    /// All files that are there.
    pub(super) fn all(&self) -> io::Result<Vec<(PathBuf, Role)>> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&self.folder)? {
            let entry = entry?;
            if let Some(role) = entry.file_name().to_str().and_then(|name| self.role(name)) {
                found.push((entry.path(), role));
            }
        }
        found.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(found)
    }
}

/// All files that belong to this one, whichever processes wrote them; none where there are none.
pub fn family(file: &Path) -> io::Result<Vec<PathBuf>> {
    match Names::of(file)?.all() {
        Ok(all) => Ok(all.into_iter().map(|(path, _)| path).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Whether a process writes to this file now.
pub fn is_written(file: &Path) -> bool {
    let lock = OpenOptions::new().read(true).open(lock_of(file));
    lock.is_ok_and(|lock| flock(&lock, FlockOperation::NonBlockingLockShared).is_err())
}

fn lock_of(file: &Path) -> PathBuf {
    let mut name = OsString::from(file);
    name.push(".lock");
    name.into()
}

/// Takes the lock of a file, which is given back when the answer is dropped; nothing where another process has it.
pub(super) fn lock(file: &Path) -> io::Result<Option<File>> {
    let lock = options().open(lock_of(file))?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(lock)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// How every file is opened: for us alone, behind what is there, through no link.
fn options() -> OpenOptions {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).mode(0o600).custom_flags(flags);
    options
}

pub(super) fn open(path: &Path) -> io::Result<File> {
    let file = options().open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    Ok(file)
}

/// Why a file cannot be written, as far as that shows without making anything.
pub(super) fn problem(file: &Path) -> Option<String> {
    if let Ok(found) = std::fs::symlink_metadata(file) {
        if !found.is_file() {
            return Some("it is not a regular file".to_owned());
        }
        return OpenOptions::new().append(true).open(file).err().map(|error| error.to_string());
    }
    let folder = file.ancestors().skip(1).find(|folder| folder.exists()).unwrap_or(Path::new("."));
    let access = rustix::fs::access(folder, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK);
    match access {
        Ok(()) if !folder.is_dir() => Some(format!("`{}` is no folder", folder.display())),
        Ok(()) => None,
        Err(error) => Some(io::Error::from(error).to_string()),
    }
}
