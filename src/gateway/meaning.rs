//! What tools mean, where the configuration names a sentence model: a vector for each, made off the path of calls and kept for
//! the next run.
//!
//! One catalogue at a time, a tool after the other, so that a stop or a newer catalogue is waited for no longer than one takes.
//! Without a model, and until all vectors of a catalogue are there, tools are found by words alone; nothing else hangs on it. The
//! file in the state folder is MessagePack, its owner's alone, one for each model. Asked by [`super::search`].

use std::collections::HashMap;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::sync::{Mutex, OwnedMutexGuard, Semaphore};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::remembered::forget_old;
use crate::catalog::Catalogue;
use crate::search::{Meant, Model, Vector, Vectors};
use crate::whole;

/// The shape of a file, and how a definition becomes the text that a vector is of; another one is not read.
const VERSION: u8 = 1;
/// Vectors that are kept, at most; what is more is found by words.
const MAX_KEPT: usize = 32_768;
/// Largest file that is read.
const MAX_FILE: u64 = 256 << 20;
/// What was made is written after so many, so that a process that ends loses little.
const BATCH: usize = 256;
/// Queries that are read at a time, and how long one waits for its turn before it is one of words alone.
const AT_ONCE: usize = 2;
const PATIENCE: Duration = Duration::from_secs(1);

/// Which text a vector is of.
type Key = [u8; 16];

/// The model of a configuration, and what it said.
pub(super) struct Meaning {
    /// Where the model is, and where its vectors are kept.
    folder: PathBuf,
    kept: PathBuf,
    tasks: TaskTracker,
    stopped: CancellationToken,
    /// Read when it is first needed; nothing where that failed.
    model: OnceLock<Option<Model>>,
    known: Arc<Mutex<Known>>,
    queries: Arc<Semaphore>,
}

#[derive(Default)]
struct Known {
    vectors: HashMap<Key, Vector>,
    is_read: bool,
}

#[derive(Serialize, Deserialize)]
struct Written {
    version: u8,
    vectors: Vec<(Key, Bytes)>,
}

impl Meaning {
    /// That of the model in a folder; its vectors are kept in another.
    pub(super) fn new(folder: PathBuf, kept: PathBuf, tasks: TaskTracker, stopped: CancellationToken) -> Self {
        let queries = Arc::new(Semaphore::new(AT_ONCE));
        Self { folder, kept, tasks, stopped, model: OnceLock::new(), known: Arc::default(), queries }
    }

    /// Whether another configuration has the same, and it runs as far as is known.
    pub(super) fn serves(&self, folder: &Path, kept: &Path) -> bool {
        let has_failed = self.model.get().is_some_and(Option::is_none);
        self.folder == folder && self.kept == kept && !has_failed
    }

    /// Has the vectors of a catalogue made, unless it is an old one by then.
    pub(super) fn prepare(self: &Arc<Self>, catalogue: &Arc<Catalogue>) {
        let (meaning, catalogue) = (Arc::clone(self), Arc::downgrade(catalogue));
        self.tasks.spawn(async move {
            let known = Arc::clone(&meaning.known).lock_owned().await;
            let tasks = meaning.tasks.clone();
            // It panics only if we do; then words are what is left.
            let _ = tasks.spawn_blocking(move || meaning.make(known, &catalogue)).await;
        });
    }

    fn model(&self) -> Option<&Model> {
        let open = || match Model::open(&self.folder) {
            Ok(model) => Some(model),
            Err(error) => {
                tracing::warn!(folder = %self.folder.display(), "search.model: {error}; tools are found by words alone");
                None
            }
        };
        self.model.get_or_init(open).as_ref()
    }

    fn make(&self, mut known: OwnedMutexGuard<Known>, catalogue: &Weak<Catalogue>) {
        let is_over = || self.stopped.is_cancelled() || catalogue.strong_count() == 0;
        if is_over() {
            return;
        }
        let Some(model) = self.model() else { return };
        let file = self.kept.join(HEXLOWER.encode(&model.id()));
        if !std::mem::replace(&mut known.is_read, true) {
            known.vectors = read(&file, model.width());
        }
        let Some(texts) = catalogue.upgrade().map(|catalogue| catalogue.passages()) else { return };
        let keys: Vec<Key> = texts.iter().map(|text| key(text)).collect();
        if texts.iter().zip(&keys).filter(|(_, key)| !known.vectors.contains_key(*key)).count() + known.vectors.len()
            > MAX_KEPT
        {
            let here: std::collections::HashSet<&Key> = keys.iter().collect();
            known.vectors.retain(|key, _| here.contains(key));
        }
        let mut unwritten = 0;
        for (text, key) in texts.iter().zip(&keys).take(MAX_KEPT) {
            if is_over() {
                break;
            }
            if !known.vectors.contains_key(key) {
                known.vectors.insert(*key, model.of_tool(text));
                unwritten += 1;
                if unwritten == BATCH {
                    keep(&file, &known.vectors, model.width());
                    unwritten = 0;
                }
            }
        }
        if unwritten > 0 {
            keep(&file, &known.vectors, model.width());
        }
        if let Some(catalogue) = catalogue.upgrade().filter(|_| !self.stopped.is_cancelled()) {
            let nothing = Vector::of(&[]);
            let vectors = keys.iter().map(|key| known.vectors.get(key).unwrap_or(&nothing));
            catalogue.means(Vectors::of((model.id(), model.width()), vectors));
        }
    }

    /// What a query means, where the tools of this catalogue are known to the same model.
    pub(super) async fn of(self: &Arc<Self>, query: &str, catalogue: &Catalogue) -> Option<Meant> {
        let id = catalogue.meant_by()?;
        let turn = timeout(PATIENCE, Arc::clone(&self.queries).acquire_owned()).await.ok()?.ok()?;
        let (meaning, query) = (Arc::clone(self), query.to_owned());
        let meant = self.tasks.spawn_blocking(move || {
            // Held until it is done, whoever waits for it.
            let _turn = turn;
            let model = meaning.model.get()?.as_ref().filter(|model| model.id() == id)?;
            Some(Meant { model: id, vector: model.of_query(&query) })
        });
        meant.await.ok()?
    }
}

fn key(text: &str) -> Key {
    let mut key = Key::default();
    key.iter_mut().zip(Sha256::digest(text)).for_each(|(own, byte)| *own = byte);
    key
}

/// The vectors of a file, as far as it is one of this model.
fn read(file: &Path, width: usize) -> HashMap<Key, Vector> {
    let content =
        std::fs::metadata(file).ok().filter(|about| about.len() <= MAX_FILE).and_then(|_| std::fs::read(file).ok());
    let written = content.and_then(|content| rmp_serde::from_slice::<Written>(&content).ok());
    let Some(Written { version: VERSION, vectors }) = written else { return HashMap::new() };
    let fit = vectors.into_iter().filter(|(_, bytes)| bytes.len() == width).take(MAX_KEPT);
    fit.map(|(key, bytes)| (key, Vector::of_bytes(&bytes))).collect()
}

/// Writes these, and what others wrote meanwhile as far as there is room.
fn keep(file: &Path, vectors: &HashMap<Key, Vector>, width: usize) {
    let others = read(file, width).into_iter().filter(|(key, _)| !vectors.contains_key(key));
    let room = MAX_KEPT.saturating_sub(vectors.len());
    let all = vectors.iter().map(|(key, vector)| (*key, vector.bytes().into()));
    let vectors = all.chain(others.take(room).map(|(key, vector)| (key, vector.bytes().into()))).collect();
    let bytes = rmp_serde::to_vec(&Written { version: VERSION, vectors }).expect("invariant: bytes are plain data");
    if let Err(error) = put(file, &bytes) {
        // Then the next run makes them again, no more.
        tracing::debug!(%error, "what tools mean could not be kept");
    }
}

fn put(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("."));
    if !file.exists() {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        forget_old(folder)?;
    }
    whole::replace(file, bytes, 0o600)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_are_kept_and_those_of_others_with_them() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("vectors/m");
        let (a, b) = (Vector::of(&[1.0, 0.5]), Vector::of(&[0.0, -1.0]));
        keep(&file, &HashMap::from([(key("a"), a.clone())]), 2);
        keep(&file, &HashMap::from([(key("b"), b.clone())]), 2);
        assert_eq!(read(&file, 2), HashMap::from([(key("a"), a), (key("b"), b)]));
        // Of a model of another width, or no such file: nothing.
        assert!(read(&file, 3).is_empty());
        for bad in [&b""[..], b"nonsense", b"\x92\x02\x90", &[0xdc; 64]] {
            std::fs::write(&file, bad).unwrap();
            assert!(read(&file, 2).is_empty());
        }
    }
}
