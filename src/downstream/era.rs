//! Which servers are of the legacy era, remembered across restarts of ours (PRB-8): one small file for each way
//! of launching, so that several gateways may write at once.

use std::io;
use std::path::PathBuf;

use crate::protocol::version::Era;
use crate::whole;

/// The memory, a folder.
#[derive(Clone)]
pub struct EraMemory {
    folder: Option<PathBuf>,
}

impl EraMemory {
    /// Remembers in this folder, which is made when needed.
    pub fn at(folder: PathBuf) -> Self {
        Self { folder: Some(folder) }
    }

    /// Remembers nothing.
    pub fn none() -> Self {
        Self { folder: None }
    }

    /// The era of what is launched so.
    pub(super) fn recall(&self, identity: &str) -> Option<Era> {
        let text = std::fs::read_to_string(self.folder.as_ref()?.join(identity)).ok()?;
        match text.trim() {
            "legacy" => Some(Era::Legacy),
            "modern" => Some(Era::Modern),
            _ => None,
        }
    }

    /// Notes it. Not being able to costs one probe next time, no more.
    pub(super) fn note(&self, identity: &str, era: Era) {
        if self.recall(identity) == Some(era) {
            return;
        }
        if let Err(error) = self.write(identity, era) {
            tracing::debug!(%error, "the era of a server could not be remembered");
        }
    }

    /// Holds it for unknown again.
    pub(super) fn forget(&self, identity: &str) {
        if let Some(folder) = &self.folder {
            // Not there, or not ours to change: then the next start finds it as it was.
            let _ = std::fs::remove_file(folder.join(identity));
        }
    }

    fn write(&self, identity: &str, era: Era) -> io::Result<()> {
        let Some(folder) = &self.folder else { return Ok(()) };
        std::fs::create_dir_all(folder)?;
        whole::replace(&folder.join(identity), format!("{}\n", era.as_str()).as_bytes(), 0o600)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prb8_an_era_survives_and_junk_is_no_era() {
        let folder = tempfile::tempdir().unwrap();
        let memory = EraMemory::at(folder.path().join("eras"));
        assert_eq!(memory.recall("abc"), None);
        memory.note("abc", Era::Legacy);
        assert_eq!(EraMemory::at(folder.path().join("eras")).recall("abc"), Some(Era::Legacy));
        memory.note("abc", Era::Modern);
        assert_eq!(memory.recall("abc"), Some(Era::Modern));
        memory.forget("abc");
        assert_eq!(memory.recall("abc"), None);
        std::fs::write(folder.path().join("eras/abc"), "x").unwrap();
        assert_eq!(memory.recall("abc"), None);
        assert_eq!(std::fs::read_dir(folder.path().join("eras")).unwrap().count(), 1);
    }
}
