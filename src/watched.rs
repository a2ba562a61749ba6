//! Files that are watched: the system tells when one of them changes; where it cannot, they are looked at now and then.
//!
//! Knows content by its digest alone, if at all. Used where a configuration and a lock are read anew.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use notify::event::{AccessKind, AccessMode};
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use sha2::{Digest as _, Sha256};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

/// Files are read when nothing more has changed for this long: editors write in several steps…
const QUIET: Duration = Duration::from_millis(250);
/// …and at the latest after this.
const LATEST: Duration = Duration::from_secs(2);
/// How often files are looked at where nobody tells of changes.
const LOOK: Duration = Duration::from_secs(1);

/// Files, and folders whose files count, there or not, that were read.
#[derive(Clone, Debug)]
pub struct Read {
    /// Which.
    pub files: Vec<PathBuf>,
    /// Before the first of them was read: what has changed since may be another than the one that was read.
    pub since: SystemTime,
    /// What was in those of which that is known, as a [`digest`].
    pub content: BTreeMap<PathBuf, [u8; 32]>,
}

/// Stands for what is in a file.
pub fn digest(content: &[u8]) -> [u8; 32] {
    Sha256::digest(content).into()
}

impl Read {
    /// Whether a file may be another than the one that was read: it changed since, and is not known to say the same.
    fn may_differ(&self, path: &Path) -> bool {
        // A pipe is not there twice.
        let content = || path.is_file().then(|| std::fs::read(path).ok()).flatten();
        let is_same = |read: &[u8; 32]| content().is_some_and(|now| digest(&now) == *read);
        changed_since(path, self.since) && !self.content.get(path).is_some_and(is_same)
    }
}

/// Files, and what tells of their changes.
pub struct Files {
    files: Vec<PathBuf>,
    /// What was known of them when they were read last.
    stamps: BTreeMap<PathBuf, Option<Stamp>>,
    told: Arc<Notify>,
    /// Nothing where the system cannot tell of changes.
    watcher: Option<RecommendedWatcher>,
    watched: BTreeSet<PathBuf>,
    /// All of them are watched: nothing has to be looked for.
    complete: bool,
}

/// What tells one state of a file from another; nothing is known of one that changed while it was read.
type Stamp = Option<(u64, i64, i64, u64, u32)>;

impl Files {
    /// Follows these.
    pub fn new(read: Read) -> Self {
        let told = Arc::new(Notify::new());
        let tell = Arc::clone(&told);
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            if event.map_or(true, |event| may_change(event.kind)) {
                tell.notify_one();
            }
        });
        let watcher =
            watcher.inspect_err(|error| tracing::warn!(%error, "changes of files are looked for now and then"));
        let (files, stamps, watched) = (Vec::new(), BTreeMap::new(), BTreeSet::new());
        let mut all = Self { files, stamps, told, watcher: watcher.ok(), watched, complete: false };
        all.follow(read);
        all
    }

    /// Follows these from now on. What is known of one stays: if it has changed meanwhile, that is seen. The folders that hold them are watched, as most editors put another file in the place of the old one; a
    /// link may lead to another folder, and that one counts too.
    pub fn follow(&mut self, read: Read) {
        self.files.clone_from(&read.files);
        let mut now = self.look();
        for (path, stamp) in &mut now {
            match self.stamps.get(path) {
                Some(known) => *stamp = *known,
                None if read.may_differ(path) => *stamp = None,
                None => {}
            }
        }
        self.stamps = now;
        let real = self.files.iter().filter_map(|file| std::fs::canonicalize(file).ok());
        let wanted: BTreeSet<PathBuf> = self.files.iter().cloned().chain(real).filter_map(folder_of).collect();
        let Some(watcher) = &mut self.watcher else { return };
        for folder in self.watched.difference(&wanted) {
            let _ = watcher.unwatch(folder);
        }
        let mut watched: BTreeSet<PathBuf> = self.watched.intersection(&wanted).cloned().collect();
        for folder in wanted.difference(&self.watched) {
            match watcher.watch(folder, RecursiveMode::NonRecursive) {
                Ok(()) => drop(watched.insert(folder.clone())),
                Err(error) => tracing::debug!(folder = %folder.display(), %error, "changes there are looked for"),
            }
        }
        self.complete = watched == wanted;
        self.watched = watched;
    }

    /// Waits until they are others than they were, and nothing more changes. Nothing is lost when the future is dropped.
    pub async fn changed(&mut self) {
        // What changed while they were read is no news to the system.
        while self.look() == self.stamps {
            if self.complete {
                self.told.notified().await;
            } else {
                let _ = timeout(LOOK, self.told.notified()).await;
            }
        }
        let latest = Instant::now() + LATEST;
        loop {
            let quiet = latest.min(Instant::now() + QUIET);
            tokio::select! {
                () = self.told.notified(), if quiet < latest => {}
                () = sleep_until(quiet) => break,
            }
        }
        self.note();
    }

    /// Notes what they are: they are about to be read, though nobody said that they changed.
    pub fn note(&mut self) {
        self.stamps = self.look();
    }

    fn look(&self) -> BTreeMap<PathBuf, Option<Stamp>> {
        let mut all = BTreeMap::new();
        for file in &self.files {
            match std::fs::read_dir(file) {
                Ok(inside) => {
                    let counts = inside.flatten().filter(|entry| !is_leftover(&entry.file_name().to_string_lossy()));
                    all.extend(counts.map(|entry| stamp(entry.path())));
                }
                Err(_) => drop(all.insert(file.clone(), stamp(file.clone()).1)),
            }
        }
        all
    }
}

/// Whether an event may be a change: that somebody reads a file, as we do when we look, is none.
fn may_change(kind: EventKind) -> bool {
    !matches!(kind, EventKind::Access(access) if access != AccessKind::Close(AccessMode::Write))
}

/// What editors leave beside a file while they work, and hidden files (D029).
fn is_leftover(name: &str) -> bool {
    name.starts_with(['.', '#']) || name.ends_with('~')
}

/// The folder to watch for a file or folder: the nearest that is there.
fn folder_of(path: PathBuf) -> Option<PathBuf> {
    path.ancestors().find(|folder| folder.is_dir()).map(Path::to_owned)
}

/// Whether a file may have changed since then; the clock of files is up to one tick of the machine behind.
fn changed_since(path: &Path, since: SystemTime) -> bool {
    let since =
        since.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().saturating_sub(Duration::from_millis(10));
    let since = (i64::try_from(since.as_secs()).unwrap_or(i64::MAX), i64::from(since.subsec_nanos()));
    std::fs::metadata(path).is_ok_and(|about| (about.ctime(), about.ctime_nsec()) >= since)
}

fn stamp(path: PathBuf) -> (PathBuf, Option<Stamp>) {
    let about = std::fs::metadata(&path).ok();
    let about = about.map(|about| (about.ino(), about.mtime(), about.mtime_nsec(), about.len(), about.mode()));
    (path, Some(about))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// These, read long after they were written.
    fn read(files: &[&Path]) -> Read {
        let files = files.iter().map(|file| (*file).to_owned()).collect();
        Read { files, since: SystemTime::now() + Duration::from_secs(1), content: BTreeMap::new() }
    }

    /// These, written after it was begun to read them.
    fn read_early(files: &[&Path]) -> Read {
        Read { since: SystemTime::now() - Duration::from_secs(1), ..read(files) }
    }

    async fn tells(files: &mut Files) -> bool {
        timeout(Duration::from_secs(20), files.changed()).await.is_ok()
    }

    #[tokio::test]
    async fn a_file_that_is_written_replaced_linked_or_added_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let (file, other, all) =
            (folder.path().join("a.toml"), folder.path().join("b"), folder.path().join("policy.d"));
        std::fs::write(&file, "1").unwrap();
        std::fs::create_dir(&all).unwrap();
        let mut files = Files::new(read(&[&file, &all]));
        std::fs::write(&file, "22").unwrap();
        assert!(tells(&mut files).await, "written");
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o400)).unwrap();
        assert!(tells(&mut files).await, "who may read it");
        std::fs::write(&other, "333").unwrap();
        std::fs::rename(&other, &file).unwrap();
        assert!(tells(&mut files).await, "another one in its place");
        std::fs::write(all.join("x.toml"), "1").unwrap();
        assert!(tells(&mut files).await, "one more in a folder");
        std::fs::remove_file(&file).unwrap();
        assert!(tells(&mut files).await, "gone");
        // Where it leads to counts.
        let target = tempfile::tempdir().unwrap();
        std::fs::write(target.path().join("real"), "1").unwrap();
        std::os::unix::fs::symlink(target.path().join("real"), &file).unwrap();
        files.follow(read(&[&file, &all]));
        std::fs::write(target.path().join("real"), "22").unwrap();
        assert!(tells(&mut files).await, "behind a link");
    }

    #[tokio::test]
    async fn what_is_beside_it_is_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.toml");
        std::fs::write(&file, "1").unwrap();
        let mut files = Files::new(read(&[&file]));
        std::fs::write(folder.path().join("b"), "1").unwrap();
        std::fs::read(&file).unwrap();
        assert!(timeout(Duration::from_millis(600), files.changed()).await.is_err());
    }

    /// To look at a folder is to open it, which is told of: that must wake nobody, or it would for ever.
    #[tokio::test]
    async fn looking_is_no_change() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("x.toml"), "1").unwrap();
        let mut files = Files::new(read(&[folder.path()]));
        let told = Arc::clone(&files.told);
        for _ in 0..3 {
            assert!(timeout(Duration::from_millis(200), files.changed()).await.is_err());
            std::fs::read(folder.path().join("x.toml")).unwrap();
        }
        assert!(timeout(Duration::from_millis(300), told.notified()).await.is_err(), "it was woken");
        // What editors leave there is none either.
        for leftover in [".x.toml.swp", "#x.toml#", "x.toml~"] {
            std::fs::write(folder.path().join(leftover), "1").unwrap();
        }
        assert!(timeout(Duration::from_millis(600), files.changed()).await.is_err());
    }

    /// What is written while the files are read, or between that and the watching, is seen though nobody tells of it.
    #[tokio::test]
    async fn what_changed_meanwhile_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (folder.path().join("one"), folder.path().join("two"));
        std::fs::write(&one, "1").unwrap();
        let mut files = Files::new(read_early(&[&one]));
        assert!(tells(&mut files).await, "written after it was begun to read");
        assert!(timeout(Duration::from_millis(400), files.changed()).await.is_err(), "once");
        std::fs::write(&one, "22").unwrap();
        assert!(tells(&mut files).await);
        // Here it is read; then it changes again, and is followed anew with another one that changed as well.
        std::fs::write(&one, "333").unwrap();
        std::fs::write(&two, "1").unwrap();
        files.told.notified().await;
        files.follow(read_early(&[&one, &two]));
        assert!(tells(&mut files).await);
    }

    /// As after every start with a file that was written just before.
    #[tokio::test]
    async fn what_says_what_was_read_is_no_change_though_it_is_as_young() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.toml");
        std::fs::write(&file, "1").unwrap();
        let content = |text: &[u8]| BTreeMap::from([(file.clone(), digest(text))]);
        let mut files = Files::new(Read { content: content(b"1"), ..read_early(&[&file]) });
        assert!(timeout(Duration::from_millis(400), files.changed()).await.is_err());
        std::fs::write(&file, "22").unwrap();
        assert!(tells(&mut files).await, "later");
        let mut files = Files::new(Read { content: content(b"1"), ..read_early(&[&file]) });
        assert!(tells(&mut files).await, "it says something else");
    }

    #[tokio::test]
    async fn what_is_not_there_yet_is_seen_when_it_comes() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a/b/c.toml");
        let mut files = Files::new(read(&[&file]));
        assert!(files.complete);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, "1").unwrap();
        assert!(tells(&mut files).await);
    }

    #[tokio::test]
    async fn where_nobody_tells_it_is_looked_at() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.toml");
        std::fs::write(&file, "1").unwrap();
        let mut files = Files::new(read(&[&file]));
        (files.watcher, files.complete) = (None, false);
        std::fs::write(&file, "22").unwrap();
        assert!(tells(&mut files).await);
    }
}
