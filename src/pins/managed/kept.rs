//! The folder of all installations: whose turn it is to change it, which lock each of them is of, and what goes.
//!
//! Several locks and processes share it. Who installs has its turn alone, so what is half made when a turn begins was left by one that
//! was ended. What several locks ask for in the same way is there once, until none of them names it. Called by who installs;
//! the gateway only reads what is there.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde_json::{Value, json};

use super::Site;
use crate::ident::ServerKey;
use crate::pins::facet::Hash;
use crate::whole;

/// The file whose owner has the turn.
const TURN: &str = ".turn";
/// The ending of the file beside an installation that says which locks it is of.
const KEPT: &str = "kept";

/// A turn at the folder; ends with this value.
pub struct Turn {
    folder: PathBuf,
    /// Of which lock.
    lock: String,
    _held: File,
}

impl Turn {
    /// Waits for the turn, which is told before, and clears away what others left half made.
    pub fn take(state: &Path, lock: &Path, waits: impl FnOnce()) -> io::Result<Self> {
        let folder = super::installations(state);
        std::fs::create_dir_all(&folder)?;
        let held = OpenOptions::new().create(true).truncate(false).write(true).open(folder.join(TURN))?;
        if flock(&held, FlockOperation::NonBlockingLockExclusive).is_err() {
            waits();
            flock(&held, FlockOperation::LockExclusive)?;
        }
        let lock = std::path::absolute(lock).unwrap_or_else(|_| lock.to_owned());
        let turn = Self { folder, lock: lock.to_string_lossy().into_owned(), _held: held };
        for entry in std::fs::read_dir(&turn.folder)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let is_half = || path.is_dir() && !["json", KEPT].iter().all(|end| path.with_extension(end).is_file());
            if name != TURN && (name.starts_with('.') || is_half()) {
                remove(&path)?;
            }
        }
        Ok(turn)
    }

    /// A folder for what is made on the way to an installation; gone with the next turn, at the latest.
    pub fn scratch(&self, key: &ServerKey) -> io::Result<PathBuf> {
        let path = self.folder.join(format!(".{key}"));
        std::fs::create_dir(&path)?;
        Ok(path)
    }

    /// Notes that an installation is of our lock as well.
    pub fn keep(&self, site: &Site) -> io::Result<()> {
        let path = site.folder.with_extension(KEPT);
        let mut locks = Kept::read(&path).map(|kept| kept.locks).unwrap_or_default();
        locks.insert(self.lock.clone());
        Kept { packages: site.packages, locks }.write(&path)
    }

    /// Has those go that were of our lock, which now names these lists of packages, and are of no other that is there.
    pub fn sweep(&self, named: &BTreeSet<Hash>) -> io::Result<()> {
        for entry in std::fs::read_dir(&self.folder)? {
            let path = entry?.path();
            let Some(mut kept) = Kept::read(&path).filter(|kept| !named.contains(&kept.packages)) else { continue };
            if !kept.locks.remove(&self.lock) {
                continue;
            }
            if kept.locks.iter().any(|lock| Path::new(lock).is_file()) {
                kept.write(&path)?;
                continue;
            }
            // The note first: without it nothing counts as installed.
            for path in [path.with_extension("json"), path.with_extension(""), path] {
                remove(&path)?;
            }
        }
        Ok(())
    }
}

/// Whose an installation is.
struct Kept {
    packages: Hash,
    locks: BTreeSet<String>,
}

impl Kept {
    /// Out of a file of that ending; nothing where it is none.
    fn read(path: &Path) -> Option<Self> {
        let bytes = path.extension().filter(|end| *end == KEPT).and_then(|_| std::fs::read(path).ok())?;
        let value: Value = serde_json::from_slice(&bytes).ok()?;
        let locks = value.get("locks")?.as_array()?.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        Some(Self { packages: Hash::parse(value.get("packages")?.as_str()?)?, locks })
    }

    fn write(&self, path: &Path) -> io::Result<()> {
        let text = json!({ "packages": self.packages.to_string(), "locks": self.locks }).to_string();
        whole::replace(path, text.as_bytes(), 0o600)
    }
}

/// Removes a file or a folder, if it is there.
fn remove(path: &Path) -> io::Result<()> {
    let is_folder = std::fs::symlink_metadata(path).is_ok_and(|about| about.is_dir());
    let gone = if is_folder { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
    gone.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pins::managed::tests::{LIST, installed};

    fn there(state: &Path) -> Vec<String> {
        let all = std::fs::read_dir(state.join("installed")).unwrap();
        let mut all: Vec<_> = all.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        all.sort();
        all
    }

    #[test]
    fn what_no_lock_names_goes_and_what_another_lock_has_stays() {
        let state = tempfile::tempdir().unwrap();
        let lock = |name: &str| {
            let path = state.path().join(name);
            std::fs::write(&path, "").unwrap();
            path
        };
        let (one, other) = (lock("one.lock"), lock("other.lock"));
        let take = |lock: &Path| Turn::take(state.path(), lock, || panic!("nobody is there")).unwrap();
        let turn = take(&one);
        let (site, plan, _) = installed(state.path());
        site.close(&plan, LIST.as_bytes()).unwrap();
        turn.keep(&site).unwrap();
        drop(turn);
        take(&other).keep(&site).unwrap();
        let sweep = |lock: &Path, named: &[Hash]| {
            take(lock).sweep(&named.iter().copied().collect()).unwrap();
        };
        sweep(&one, &[Hash::of(LIST.as_bytes())]);
        sweep(&state.path().join("third.lock"), &[]);
        assert!(site.is_whole(&plan), "it is named, or of others");
        sweep(&one, &[]);
        assert!(site.is_whole(&plan), "the other has it");
        sweep(&one, &[]);
        assert!(site.is_whole(&plan), "it is not ours any more");
        take(&one).keep(&site).unwrap();
        std::fs::remove_file(&other).unwrap();
        sweep(&one, &[]);
        assert_eq!(there(state.path()), [TURN], "the other lock is gone");
    }

    #[test]
    fn what_was_left_half_made_goes_with_the_next_turn() {
        let state = tempfile::tempdir().unwrap();
        let lock = state.path().join("onegate.lock");
        let take = || Turn::take(state.path(), &lock, || panic!("nobody is there")).unwrap();
        let turn = take();
        std::fs::write(turn.scratch(&ServerKey::new("a").unwrap()).unwrap().join("f"), "").unwrap();
        let (site, ..) = installed(state.path());
        turn.keep(&site).unwrap();
        assert_eq!(there(state.path()).len(), 4);
        drop(turn);
        let turn = take();
        let kept = there(state.path());
        assert!(kept.len() == 2 && kept.iter().all(|name| name == TURN || name.ends_with(KEPT)), "{kept:?}");
        let held = File::open(state.path().join("installed").join(TURN)).unwrap();
        let second = || flock(&held, FlockOperation::NonBlockingLockExclusive);
        assert!(second().is_err(), "two at once");
        drop(turn);
        second().unwrap();
    }
}
