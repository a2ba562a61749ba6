//! Trust in a folder's `./onegate.toml`, by content.
//!
//! That file starts programs, and a cloned repository can bring one; so it is used only when somebody said yes
//! to exactly this content in exactly this folder. The hash is over `onegate.toml` and `onegate.d/*.toml`, not over
//! the programs that they name. Each yes is one small file, so that several processes need no lock. Deliberately
//! knows nothing of what the files say. Called by `load`, and by `cli` for `onegate trust`.

use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};

use super::files;
use crate::whole;

/// A folder's configuration, as it was read: what a yes would be a yes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The folder, free of links.
    pub folder: PathBuf,
    /// Its files that would be loaded, in their order.
    pub files: Vec<PathBuf>,
    /// SHA-256 (hex) of names and contents.
    pub hash: String,
}

/// Reads what `folder` holds: its `onegate.toml` and `onegate.d/*.toml`.
pub fn examine(folder: &Path) -> io::Result<Candidate> {
    let group = files::read_group(&folder.join(files::NAME), Path::new(""))
        .map_err(|fault| io::Error::other(fault.to_string()))?;
    candidate(folder, &group)
}

/// The candidate that these files, already read, are: what is checked is what is loaded.
pub(super) fn candidate(folder: &Path, group: &[files::Text]) -> io::Result<Candidate> {
    let mut hash = Sha256::new();
    for file in group {
        let name = file.path.file_name().unwrap_or_default().as_bytes();
        hash.update((name.len() as u64).to_be_bytes());
        hash.update(name);
        hash.update((file.text.len() as u64).to_be_bytes());
        hash.update(&file.text);
    }
    Ok(Candidate {
        folder: folder.canonicalize()?,
        files: group.iter().map(|file| file.path.clone()).collect(),
        hash: HEXLOWER.encode(&hash.finalize()),
    })
}

/// Was there a yes to this content in this folder? `state` is [`super::Environment::state_folder`].
pub fn is_trusted(state: &Path, candidate: &Candidate) -> bool {
    std::fs::symlink_metadata(mark(state, candidate)).is_ok_and(|kind| kind.is_file())
}

/// Says yes to this content in this folder; gives the file that remembers it.
pub fn trust(state: &Path, candidate: &Candidate) -> io::Result<PathBuf> {
    let mark = mark(state, candidate);
    let folder = mark.parent().unwrap_or(state);
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let name = [candidate.folder.as_os_str().as_bytes(), b"\n"].concat();
    whole::replace(&mark, &name, 0o600)?;
    Ok(mark)
}

/// Takes the yes back; false when there was none.
pub fn distrust(state: &Path, candidate: &Candidate) -> io::Result<bool> {
    match std::fs::remove_file(mark(state, candidate)) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn mark(state: &Path, candidate: &Candidate) -> PathBuf {
    let mut hash = Sha256::new();
    hash.update(b"onegate-trust-1\0");
    hash.update(candidate.folder.as_os_str().as_bytes());
    hash.update(b"\0");
    hash.update(candidate.hash.as_bytes());
    state.join("trust").join(HEXLOWER.encode(&hash.finalize()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trust_is_for_this_content_in_this_folder() {
        let root = tempfile::tempdir().unwrap();
        let (a, b, state) = (root.path().join("a"), root.path().join("b"), root.path().join("state"));
        for folder in [&a, &b] {
            std::fs::create_dir_all(folder.join("onegate.d")).unwrap();
            std::fs::write(folder.join("onegate.toml"), "# one\n").unwrap();
        }
        let first = examine(&a).unwrap();
        assert!(!is_trusted(&state, &first));
        let mark = trust(&state, &first).unwrap();
        assert!(is_trusted(&state, &examine(&a).unwrap()));
        assert!(!is_trusted(&state, &examine(&b).unwrap()), "same content, other folder");

        std::fs::write(a.join("onegate.d/10.toml"), "# two\n").unwrap();
        let second = examine(&a).unwrap();
        assert!(!is_trusted(&state, &second), "a file more");
        assert_eq!(second.files.len(), 2);
        std::fs::remove_file(a.join("onegate.d/10.toml")).unwrap();
        assert!(is_trusted(&state, &examine(&a).unwrap()));
        std::fs::write(a.join("onegate.toml"), "# ONE\n").unwrap();
        assert!(!is_trusted(&state, &examine(&a).unwrap()), "changed");

        assert!(distrust(&state, &first).unwrap());
        assert!(!distrust(&state, &first).unwrap());
        assert!(!is_trusted(&state, &first));
        let left: Vec<_> = std::fs::read_dir(mark.parent().unwrap()).unwrap().collect();
        assert!(left.is_empty(), "nothing half-written stays");
    }

    #[test]
    fn a_folder_without_the_file_has_nothing_to_trust() {
        let root = tempfile::tempdir().unwrap();
        assert!(examine(root.path()).is_err());
    }
}
