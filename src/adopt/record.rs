//! What is remembered of an installation: what was there before, what was written, what was taken out.
//!
//! In the state folder, one folder per file and entry, 0700 and 0600, since it may hold secrets. Called by `install` and
//! `undo`.

use std::io;
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::install::Refused;
use super::store;
use super::token::Named;
use crate::whole;

/// What is remembered of an installation.
#[derive(Serialize, Deserialize)]
pub(super) struct Record {
    pub host: String,
    pub scope: String,
    pub file: PathBuf,
    pub name: String,
    /// The entry as written.
    pub entry: serde_json::Value,
    /// The member that holds the servers was not there.
    pub made_member: bool,
    /// There was a file before: what was in it lies beside this.
    pub was_there: bool,
    /// SHA-256 of what was written.
    pub after: String,
    /// Folders that were made, outermost first.
    pub made_folders: Vec<PathBuf>,
    /// Entries that were taken out because they are behind us.
    pub replaced: Vec<(String, serde_json::Value)>,
    /// Whom it speaks for.
    #[serde(default)]
    pub named: Option<Named>,
}

/// What is remembered, and what was there before.
pub(super) type Remembered = (Record, Option<Vec<u8>>);

/// The files of a memory as they lie there: what was before, and the record.
pub(super) type Copied = [Option<Vec<u8>>; 2];

/// Where an installation is remembered.
pub(super) struct Memory(PathBuf);

const RECORD: &str = "record.json";
const BEFORE: &str = "before";

impl Memory {
    /// That of this entry in this file, links followed.
    pub(super) fn of(state: &Path, file: &Path, name: &str) -> Self {
        let mut hash = Sha256::new();
        hash.update(file.as_os_str().as_encoded_bytes());
        hash.update(b"\0");
        hash.update(name.as_bytes());
        let name = HEXLOWER.encode(&hash.finalize());
        Self(state.join("hosts").join(name.get(..32).unwrap_or_default()))
    }

    /// Whether anything is remembered.
    pub(super) fn is_there(&self) -> bool {
        self.0.join(RECORD).exists()
    }

    pub(super) fn recall(&self) -> Result<Option<Remembered>, Refused> {
        let path = self.0.join(RECORD);
        let text = match std::fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text.map_err(failed(&path))?,
        };
        let record: Record = serde_json::from_slice(&text).map_err(|error| failed(&path)(error.into()))?;
        let path = self.0.join(BEFORE);
        let before = if record.was_there { Some(std::fs::read(&path).map_err(failed(&path))?) } else { None };
        Ok(Some((record, before)))
    }

    /// Remembers an installation and what was there before it.
    pub(super) fn keep(&self, (record, before): &Remembered) -> Result<(), Refused> {
        store::folders(&self.0, 0o700).map_err(failed(&self.0))?;
        if let Some(before) = before {
            let path = self.0.join(BEFORE);
            whole::replace(&path, before, 0o600).map_err(failed(&path))?;
        }
        self.note(record)
    }

    /// Remembers something more of it.
    pub(super) fn note(&self, record: &Record) -> Result<(), Refused> {
        let path = self.0.join(RECORD);
        let text = serde_json::to_vec(record).map_err(io::Error::from);
        text.and_then(|text| whole::replace(&path, &text, 0o600)).map_err(failed(&path))
    }

    /// What lies there now, for [`Self::put_back`].
    pub(super) fn copy(&self) -> Result<Copied, Refused> {
        let one = |name: &str| {
            let path = self.0.join(name);
            match std::fs::read(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                content => content.map(Some).map_err(failed(&path)),
            }
        };
        Ok([one(BEFORE)?, one(RECORD)?])
    }

    /// Makes it what it was when it was copied; that there is more to say of a failure than this one helps nobody.
    pub(super) fn put_back(&self, copied: &Copied) {
        if copied.iter().all(Option::is_none) {
            return self.forget();
        }
        for (name, content) in [BEFORE, RECORD].iter().zip(copied) {
            let path = self.0.join(name);
            let _ = match content {
                Some(content) => whole::replace(&path, content, 0o600),
                None => std::fs::remove_file(&path),
            };
        }
    }

    /// Forgets it; what cannot be removed hurts nobody.
    pub(super) fn forget(&self) {
        let _ = std::fs::remove_file(self.0.join(RECORD));
        let _ = std::fs::remove_file(self.0.join(BEFORE));
        let _ = std::fs::remove_dir(&self.0);
    }
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> Refused {
    let path = path.to_owned();
    move |why| Refused::State { path, why }
}

/// What content is known by.
pub(super) fn hash(content: &[u8]) -> String {
    HEXLOWER.encode(&Sha256::digest(content))
}
