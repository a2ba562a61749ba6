//! Files that are watched: the system tells when one of them changes; where it cannot, they are looked at now and then.
//!
//! Knows no content. Used where a configuration and a lock are read anew.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// Files are read when nothing more has changed for this long: editors write in several steps…
const QUIET: Duration = Duration::from_millis(250);
/// …and at the latest after this.
const LATEST: Duration = Duration::from_secs(2);
/// How often files are looked at where nobody tells of changes.
const LOOK: Duration = Duration::from_secs(5);

/// Files, and what tells of their changes.
pub struct Files {
    /// Files, and folders whose files count.
    files: Vec<PathBuf>,
    stamps: Vec<Stamp>,
    told: Arc<Notify>,
    /// Nothing where the system cannot tell of changes.
    watcher: Option<RecommendedWatcher>,
    watched: BTreeSet<PathBuf>,
}

/// What tells one state of a file from another.
type Stamp = (PathBuf, Option<(u64, i64, i64, u64)>);

impl Files {
    /// Follows these.
    pub fn new(files: Vec<PathBuf>) -> Self {
        let told = Arc::new(Notify::new());
        let tell = Arc::clone(&told);
        let watcher = notify::recommended_watcher(move |_| tell.notify_one());
        let watcher =
            watcher.inspect_err(|error| tracing::warn!(%error, "changes of files are looked for now and then"));
        let stamps = Vec::new();
        let mut all = Self { files: Vec::new(), stamps, told, watcher: watcher.ok(), watched: BTreeSet::new() };
        all.follow(files);
        all
    }

    /// Follows these from now on. The folders that hold them are watched, as most editors put another file in the place of the
    /// old one; a link may lead to another folder, and that one counts too.
    pub fn follow(&mut self, files: Vec<PathBuf>) {
        self.files = files;
        self.stamps = self.stamp();
        let folder =
            |path: &Path| if path.is_dir() { Some(path.to_owned()) } else { path.parent().map(Path::to_owned) };
        let real = self.files.iter().filter_map(|file| std::fs::canonicalize(file).ok());
        let wanted: BTreeSet<PathBuf> =
            self.files.iter().cloned().chain(real).filter_map(|path| folder(&path)).collect();
        let Some(watcher) = &mut self.watcher else { return };
        for folder in self.watched.difference(&wanted) {
            let _ = watcher.unwatch(folder);
        }
        let mut watched: BTreeSet<PathBuf> = self.watched.intersection(&wanted).cloned().collect();
        for folder in wanted.difference(&self.watched) {
            match watcher.watch(folder, RecursiveMode::NonRecursive) {
                Ok(()) => drop(watched.insert(folder.clone())),
                Err(error) => tracing::debug!(folder = %folder.display(), %error, "changes there are not told of"),
            }
        }
        self.watched = watched;
    }

    /// Whether the system tells of changes.
    pub fn are_told_of(&self) -> bool {
        self.watcher.is_some() && !self.watched.is_empty()
    }

    /// Waits until they are others than they were, and nothing more changes. Nothing is lost when the future is dropped.
    pub async fn changed(&mut self) {
        loop {
            match self.watcher {
                Some(_) => self.told.notified().await,
                None => tokio::time::sleep(LOOK).await,
            }
            if self.stamp() == self.stamps {
                continue;
            }
            let latest = Instant::now() + LATEST;
            loop {
                let quiet = latest.min(Instant::now() + QUIET);
                tokio::select! {
                    () = self.told.notified(), if quiet < latest => {}
                    () = sleep_until(quiet) => break,
                }
            }
            self.stamps = self.stamp();
            return;
        }
    }

    fn stamp(&self) -> Vec<Stamp> {
        let mut all = Vec::new();
        for file in &self.files {
            match std::fs::read_dir(file) {
                Ok(inside) => all.extend(inside.flatten().map(|entry| stamp(entry.path()))),
                Err(_) => all.push(stamp(file.clone())),
            }
        }
        all.sort();
        all
    }
}

fn stamp(path: PathBuf) -> Stamp {
    let about = std::fs::metadata(&path).ok();
    let about = about.map(|about| (about.ino(), about.mtime(), about.mtime_nsec(), about.len()));
    (path, about)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::timeout;

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
        let mut files = Files::new(vec![file.clone(), all.clone()]);
        std::fs::write(&file, "22").unwrap();
        assert!(tells(&mut files).await, "written");
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
        files.follow(vec![file.clone(), all]);
        std::fs::write(target.path().join("real"), "22").unwrap();
        assert!(tells(&mut files).await, "behind a link");
    }

    #[tokio::test]
    async fn what_is_beside_it_is_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.toml");
        std::fs::write(&file, "1").unwrap();
        let mut files = Files::new(vec![file.clone()]);
        std::fs::write(folder.path().join("b"), "1").unwrap();
        std::fs::read(&file).unwrap();
        assert!(timeout(Duration::from_millis(600), files.changed()).await.is_err());
    }
}
