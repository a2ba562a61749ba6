//! Files that are written whole or not at all: a reader sees all of the old one or all of the new.
//!
//! Written beside, made to last, and moved to their place. Knows no format and makes no folder. Used by every room that
//! keeps something between two runs.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

/// Puts a file in its place, whatever was there. Its mode is this one, less what the process takes from files that it makes.
pub fn replace(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let part = Part::new(path, mode, |mut file| file.write_all(content))?;
    std::fs::rename(&part.0, path)
}

/// Writes over a file that stays its owner's, with the mode that it has: root edits for others too.
pub fn rewrite(path: &Path, content: &[u8]) -> io::Result<()> {
    let old = std::fs::metadata(path)?;
    let part = Part::new(path, 0o600, |mut file| {
        file.write_all(content)?;
        let own = file.metadata()?;
        if (old.uid(), old.gid()) != (own.uid(), own.gid()) {
            let given = fchown(file, Some(old.uid()), Some(old.gid()));
            // A group that we are not of is lost with the old file; an owner never is.
            if old.uid() != own.uid() {
                given?;
            }
        }
        file.set_permissions(Permissions::from_mode(old.permissions().mode() & 0o7777))
    })?;
    std::fs::rename(&part.0, path)
}

/// Puts a file in its place where none is; of several processes that do so at once, one wins. Says whether it was this one.
pub fn create(path: &Path, content: &[u8], mode: u32) -> io::Result<bool> {
    let part = Part::new(path, mode, |mut file| file.write_all(content))?;
    // Unlike a rename, a link does not replace what another process made meanwhile.
    match std::fs::hard_link(&part.0, path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

/// A file beside the one that is meant; gone with this value, unless it was moved.
struct Part(PathBuf);

impl Part {
    fn new(path: &Path, mode: u32, fill: impl FnOnce(&File) -> io::Result<()>) -> io::Result<Self> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // A name of its own, also where several containers share the folder and a process number.
        let number = getrandom::u64().map_err(|error| io::Error::other(error.to_string()))?;
        let part = path.with_file_name(format!(".{name}.{number:016x}"));
        let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&part)?;
        let part = Self(part);
        fill(&file)?;
        file.sync_all()?;
        Ok(part)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // Not there where it was moved.
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    fn content(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> = std::fs::read_dir(folder)
            .unwrap()
            .map(|file| file.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_replaced_as_a_whole_and_nothing_else_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        replace(&path, b"one", 0o600).unwrap();
        let open = File::open(&path).unwrap();
        replace(&path, b"2", 0o600).unwrap();
        assert_eq!(io::read_to_string(open).unwrap(), "one", "who reads the old one reads all of it");
        assert_eq!((std::fs::read(&path).unwrap().as_slice(), mode(&path)), (&b"2"[..], 0o600));
        assert_eq!(content(folder.path()), ["a"]);
        std::fs::create_dir(folder.path().join("b")).unwrap();
        assert!(replace(&folder.path().join("b"), b"3", 0o600).is_err());
        assert_eq!(content(folder.path()), ["a", "b"], "nothing half-written stays");
    }

    #[test]
    fn a_file_that_is_written_over_keeps_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        assert!(rewrite(&path, b"1").is_err(), "there is none");
        std::fs::write(&path, "1").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        rewrite(&path, b"2").unwrap();
        assert_eq!((std::fs::read(&path).unwrap().as_slice(), mode(&path)), (&b"2"[..], 0o666));
    }

    #[test]
    fn the_first_of_several_makes_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        assert!(create(&path, b"1", 0o600).unwrap());
        assert!(!create(&path, b"2", 0o600).unwrap());
        assert_eq!((std::fs::read(&path).unwrap().as_slice(), mode(&path)), (&b"1"[..], 0o600));
        assert_eq!(content(folder.path()), ["a"]);
    }
}
