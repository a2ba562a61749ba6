//! What servers listed when we ran last, so that the first list of the next run waits for none of them (N-9).
//!
//! A file for each server and way of running it, in the state folder: MessagePack, its owner's alone. What is in it was said by
//! a server and is graded, named and filtered like a list that comes now. Knows no host and starts nothing; asked by
//! [`super::current`], written by [`super::lists`].

use std::hash::BuildHasher as _;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use data_encoding::HEXLOWER;
use foldhash::quality::FixedState;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::catalog::Part;
use crate::config::settings::{ListLimits, ServerSettings};
use crate::downstream::Offers;
use crate::ident::Kind;
use crate::pins::artifact::{ArtifactKind, Reference, reference};
use crate::whole;

/// The shape of a file; another one is not read.
const VERSION: u8 = 1;
/// Largest file that is read or written.
const MAX_FILE: u64 = 16 << 20;
/// What is older is shown, and listed anew behind that.
const FRESH: Duration = Duration::from_secs(24 * 3600);
/// What says the same is written again after this, so that it stays fresh.
const AGAIN: Duration = Duration::from_secs(3600);
/// Files that nobody used for so long are removed.
const KEEP: Duration = Duration::from_secs(90 * 24 * 3600);

/// What a server said of itself and listed.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(super) struct Content {
    pub(super) offers: Offers,
    pub(super) instructions: Option<String>,
    /// The raw arrays of the pages, by [`Kind::index`].
    pub(super) lists: [Option<Vec<Bytes>>; 4],
}

/// The same, read.
pub(super) struct Known {
    pub(super) content: Content,
    pub(super) parts: [Option<Arc<Part>>; 4],
    /// Nothing says that it may be another by now: the server need not be started to list.
    pub(super) fresh: bool,
}

/// Where that of one server lies.
pub(super) struct Slot {
    path: PathBuf,
    /// Files that are run: others of their time and size list something else.
    stamps: Vec<Stamp>,
    /// What runs is what ran, as far as can be told from how it is run.
    exact: bool,
    /// How much it may list.
    limits: ListLimits,
    /// What was written last, as a hash, and when.
    last: Mutex<Option<(u64, SystemTime)>>,
}

type Stamp = (i64, i64, u64);

#[derive(Serialize, Deserialize)]
struct Written<C> {
    version: u8,
    stamps: Vec<Stamp>,
    content: C,
}

impl Slot {
    /// The place of a server in this folder; nothing for one that cannot be reached.
    pub(super) fn of(folder: &Path, server: &ServerSettings) -> Option<Self> {
        let reference = reference(server.reach.as_ref().ok()?);
        let mut name = Sha256::new();
        name.update(format!("{}\n{}\n{:?}", server.key, server.identity(), server.era));
        let exact = match reference.kind {
            ArtifactKind::Npm | ArtifactKind::Pypi | ArtifactKind::Oci => reference.floating.is_none(),
            ArtifactKind::Binary => true,
            // What a script loads is not seen; somebody else's machine is his.
            ArtifactKind::Script | ArtifactKind::Remote => false,
        };
        let path = folder.join(HEXLOWER.encode(&name.finalize()[..16]));
        Some(Self { path, stamps: stamps(&reference), exact, limits: server.limits.lists, last: Mutex::default() })
    }

    /// What it listed.
    pub(super) fn read(&self) -> Option<Known> {
        let about = std::fs::metadata(&self.path).ok().filter(|about| about.len() <= MAX_FILE)?;
        let bytes = std::fs::read(&self.path).ok()?;
        let Written { version: VERSION, stamps, content } = rmp_serde::from_slice::<Written<Content>>(&bytes).ok()?
        else {
            return None;
        };
        if stamps != self.stamps {
            return None;
        }
        let mut parts = [const { None }; 4];
        for (kind, pages) in Kind::ALL.into_iter().zip(&content.lists) {
            parts[kind.index()] = match pages {
                Some(pages) => Some(Arc::new(Part::parse(kind, pages, self.limits).ok()?)),
                None => None,
            };
        }
        let young = about.modified().is_ok_and(|at| at.elapsed().is_ok_and(|age| age < FRESH));
        Some(Known { content, parts, fresh: self.exact && young })
    }

    /// Writes what it lists, unless that was written a short while ago.
    pub(super) fn write(&self, content: &Content) {
        let written = Written { version: VERSION, stamps: self.stamps.clone(), content };
        let bytes = rmp_serde::to_vec(&written).expect("invariant: what is remembered is plain data");
        let hash = FixedState::default().hash_one(&bytes);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let same = last.is_some_and(|(known, at)| known == hash && at.elapsed().is_ok_and(|age| age < AGAIN));
        if same || bytes.len() as u64 > MAX_FILE {
            return;
        }
        match self.put(&bytes) {
            Ok(()) => *last = Some((hash, SystemTime::now())),
            // Then the next run waits for its servers, no more.
            Err(error) => tracing::debug!(%error, "what a server listed could not be remembered"),
        }
    }

    fn put(&self, bytes: &[u8]) -> io::Result<()> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        if !self.path.exists() {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
            forget_old(folder)?;
        }
        whole::replace(&self.path, bytes, 0o600)
    }
}

/// What tells one state of the files that are run from another.
fn stamps(reference: &Reference) -> Vec<Stamp> {
    let about = reference.files().iter().filter_map(|file| std::fs::metadata(file).ok());
    about.map(|about| (about.mtime(), about.mtime_nsec(), about.len())).collect()
}

/// Removes what was not written for long.
pub(super) fn forget_old(folder: &Path) -> io::Result<()> {
    for file in std::fs::read_dir(folder)?.flatten() {
        let old = file.metadata().and_then(|about| about.modified());
        if old.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > KEEP)) {
            let _ = std::fs::remove_file(file.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::settings::{Launch, Reach};
    use crate::ident::{Secret, ServerKey};

    fn server(program: &Path, args: &[&str]) -> ServerSettings {
        let launch = Launch {
            program: program.to_owned(),
            command: program.display().to_string(),
            args: args.iter().map(|arg| Secret::new(*arg)).collect(),
            env: Default::default(),
            cwd: None,
            identity: format!("{args:?}"),
            written: Secret::new("{}"),
            secrets: Vec::new(),
        };
        ServerSettings::new(ServerKey::new("a").unwrap(), Ok(Reach::Launch(launch)))
    }

    fn content(list: &'static str) -> Content {
        let lists = [Some(vec![Bytes::from_static(list.as_bytes())]), None, None, None];
        Content { offers: Offers::read(br#"{"tools":{"listChanged":true}}"#), instructions: Some("x".into()), lists }
    }

    #[test]
    fn what_was_listed_is_known_until_what_is_run_is_another() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        std::fs::write(&program, "1").unwrap();
        let slot = || Slot::of(&folder.path().join("lists"), &server(&program, &["x"])).unwrap();
        assert!(slot().read().is_none());
        slot().write(&content(r#"[{"name":"t","inputSchema":{"type":"object"}}]"#));
        let known = slot().read().unwrap();
        assert!(known.fresh && known.content.offers.tools == Some(true));
        assert_eq!(known.content.instructions.as_deref(), Some("x"));
        assert_eq!(known.parts[0].as_ref().map(|part| part.len()), Some(1));
        assert!(known.parts[1].is_none());
        // Others see nothing of it.
        let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(&slot().path), mode(slot().path.parent().unwrap())), (0o600, 0o700));
        // Another way of running it, and another program in its place, are others.
        assert!(Slot::of(&folder.path().join("lists"), &server(&program, &["y"])).unwrap().read().is_none());
        std::fs::write(&program, "22").unwrap();
        assert!(slot().read().is_none());
    }

    #[test]
    fn what_may_be_another_by_now_is_shown_and_not_fresh() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("npx");
        std::fs::write(&program, "1").unwrap();
        let fresh = |args: &[&str], age: Duration| {
            let slot = Slot::of(folder.path(), &server(&program, args)).unwrap();
            slot.write(&content("[]"));
            let file = std::fs::File::options().append(true).open(&slot.path).unwrap();
            file.set_modified(SystemTime::now() - age).unwrap();
            slot.read().unwrap().fresh
        };
        let now = Duration::from_secs(1);
        assert!(fresh(&["-y", "pkg@1.2.3"], now) && !fresh(&["-y", "pkg@1.2.3"], FRESH * 2));
        assert!(!fresh(&["-y", "pkg"], now));
    }

    #[test]
    fn what_is_no_such_file_is_nothing_and_what_says_the_same_is_not_written_again() {
        let folder = tempfile::tempdir().unwrap();
        let slot = Slot::of(folder.path(), &server(Path::new("/none"), &[])).unwrap();
        for bad in [&b""[..], b"\x93\x02\x90\x90", b"nonsense", &[0xdc; 64]] {
            std::fs::write(&slot.path, bad).unwrap();
            assert!(slot.read().is_none());
        }
        slot.write(&content("[]"));
        std::fs::write(&slot.path, "mark").unwrap();
        slot.write(&content("[]"));
        assert_eq!(std::fs::read(&slot.path).unwrap(), b"mark");
        slot.write(&content("[ ]"));
        assert!(slot.read().is_some());
        // A list that is none is as if it were not there.
        slot.write(&content("{}"));
        assert!(slot.read().is_none());
    }
}
