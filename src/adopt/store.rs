//! Files of others that are written over: only over what was read before, and whole ([`whole`]).
//!
//! Links are followed, the mode stays, a file that changed meanwhile is left alone. Knows no format. Called by `install`,
//! and by `cli` for our own files.

use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::whole;

/// Why a file is not written.
#[derive(Debug, thiserror::Error)]
pub enum NotWritten {
    /// It is not what it was when it was read.
    #[error("changed meanwhile; nothing was written, try again")]
    Changed,
    /// Nobody may write it.
    #[error("may not be written (it is read-only); nothing was changed")]
    ReadOnly,
    /// It is a link to nothing.
    #[error("is a link to something that is not there; nothing was changed")]
    Dangling,
    /// The system says so.
    #[error("cannot be written: {0}")]
    Io(#[from] io::Error),
}

/// A file as it was read: what may be written over.
#[derive(Clone)]
pub struct Seen {
    /// Where it is, links followed.
    pub path: PathBuf,
    /// What was in it; none when it is not there.
    pub content: Option<Vec<u8>>,
}

impl Seen {
    /// Looks at a file.
    pub fn of(path: &Path) -> Result<Self, NotWritten> {
        match std::fs::symlink_metadata(path) {
            Err(error) if is_gone(&error) => return Ok(Self { path: meant(path), content: None }),
            found => found?,
        };
        let real = path.canonicalize().map_err(|e| if is_gone(&e) { NotWritten::Dangling } else { e.into() })?;
        let kind = std::fs::metadata(&real)?;
        if !kind.is_file() {
            return Err(io::Error::other("is not a regular file").into());
        }
        if kind.permissions().readonly() {
            return Err(NotWritten::ReadOnly);
        }
        let content = super::read::bytes(&real).map_err(|error| io::Error::other(error.to_string()))?;
        Ok(Self { path: real, content: Some(content) })
    }

    /// The same where nothing is to be written: what a link leads to and is not there is a file that is gone.
    pub(super) fn or_gone(path: &Path) -> Result<Self, NotWritten> {
        match Self::of(path) {
            Err(NotWritten::Dangling) => Ok(Self { path: meant(path), content: None }),
            seen => seen,
        }
    }

    /// Whether the file is still what was seen.
    fn check(&self) -> Result<(), NotWritten> {
        let now = match std::fs::read(&self.path) {
            Ok(content) => Some(content),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error.into()),
        };
        if now == self.content { Ok(()) } else { Err(NotWritten::Changed) }
    }

    /// Writes over what was seen; a new file is the user's alone. Gives the folders that had to be made for it, outermost
    /// first.
    pub fn write(&self, content: &[u8]) -> Result<Vec<PathBuf>, NotWritten> {
        self.check()?;
        let made = folders(self.path.parent().unwrap_or(Path::new("/")), 0o755)?;
        match &self.content {
            Some(_) => whole::rewrite(&self.path, content)?,
            None => whole::replace(&self.path, content, 0o600)?,
        }
        Ok(made)
    }

    /// Removes what was seen.
    pub fn remove(&self) -> Result<(), NotWritten> {
        self.check()?;
        Ok(std::fs::remove_file(&self.path)?)
    }
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Where a file would be that is not there, links followed though they lead nowhere.
fn meant(path: &Path) -> PathBuf {
    const MAX_LINKS: usize = 40;
    let parts = |path: &Path| -> Vec<_> { path.components().rev().map(|part| part.as_os_str().to_owned()).collect() };
    let (mut real, mut left, mut links) = (PathBuf::new(), parts(path), 0);
    while let Some(part) = left.pop() {
        let next = real.join(&part);
        match std::fs::read_link(&next) {
            Ok(to) if links < MAX_LINKS => {
                links += 1;
                left.extend(parts(&to));
            }
            _ if part == ".." => drop(real.pop()),
            _ => real = next,
        }
    }
    real
}

/// Makes a folder and what it lies in; gives those that were made, outermost first.
pub(super) fn folders(folder: &Path, mode: u32) -> io::Result<Vec<PathBuf>> {
    let mut missing: Vec<PathBuf> = Vec::new();
    for folder in folder.ancestors() {
        if folder.as_os_str().is_empty() || folder.exists() {
            break;
        }
        missing.push(folder.to_owned());
    }
    missing.reverse();
    for folder in &missing {
        std::fs::DirBuilder::new().mode(mode).create(folder)?;
    }
    Ok(missing)
}

/// Writes what was lifted out of a host's file into the folder of secrets beside the configuration: 0700, each file 0600.
/// One that is there already with the same content stays.
pub fn secrets(folder: &Path, lifted: &[&super::secrets::Lifted]) -> Result<Vec<PathBuf>, NotWritten> {
    let folder = folder.join(super::text::SECRETS);
    if !lifted.is_empty() {
        folders(&folder, 0o700)?;
        let kind = std::fs::symlink_metadata(&folder)?;
        if !kind.is_dir() {
            // A folder that came with a project may point anywhere.
            return Err(io::Error::other(format!("{} is a link or no folder", folder.display())).into());
        }
        narrow(&folder, &kind, 0o700)?;
        // A project's folder is soon in a repository; what somebody says there himself stays.
        let ignore = folder.join(".gitignore");
        if std::fs::symlink_metadata(&ignore).is_err() {
            whole::replace(&ignore, b"*\n", 0o600)?;
        }
    }
    let mut written = Vec::new();
    for secret in lifted {
        let path = folder.join(&secret.file);
        let content = format!("{}\n", secret.value.reveal());
        match std::fs::read(&path) {
            Ok(known) if known == content.as_bytes() => narrow(&path, &std::fs::symlink_metadata(&path)?, 0o600)?,
            // A secret of somebody else is never written over.
            Ok(_) => {
                return Err(
                    io::Error::other(format!("{} is there already, with another content", path.display())).into()
                );
            }
            Err(_) => whole::replace(&path, content.as_bytes(), 0o600)?,
        }
        written.push(path);
    }
    Ok(written)
}

/// Takes from others what they may do with it.
fn narrow(path: &Path, kind: &std::fs::Metadata, most: u32) -> io::Result<()> {
    let mode = kind.permissions().mode() & 0o7777;
    if kind.is_symlink() || mode & !most == 0 {
        return Ok(());
    }
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode & most))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i_34_the_folder_of_secrets_is_the_user_s_alone() {
        let root = tempfile::tempdir().unwrap();
        let secret = super::super::secrets::Lifted {
            place: String::new(),
            file: "a.KEY".to_owned(),
            variable: String::new(),
            value: crate::ident::Secret::new("hunter2"),
        };
        let folder = root.path().join("secrets");
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("a.KEY"), "hunter2\n").unwrap();
        for (path, mode) in [(folder.clone(), 0o755), (folder.join("a.KEY"), 0o644)] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        secrets(root.path(), &[&secret]).unwrap();
        assert_eq!((mode(&folder), mode(&folder.join("a.KEY"))), (0o700, 0o600));
        assert_eq!(std::fs::read(folder.join(".gitignore")).unwrap(), b"*\n");
        let other = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(&folder, other.path().join("secrets")).unwrap();
        assert!(secrets(other.path(), &[&secret]).is_err(), "a link");
    }

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn what_changed_meanwhile_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, "1").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let seen = Seen::of(&path).unwrap();
        seen.write(b"2").unwrap();
        assert_eq!((std::fs::read(&path).unwrap().as_slice(), mode(&path)), (&b"2"[..], 0o640));
        assert!(matches!(seen.write(b"3"), Err(NotWritten::Changed)));
        assert!(matches!(seen.remove(), Err(NotWritten::Changed)));
        assert_eq!(std::fs::read(&path).unwrap(), b"2");
        let none = Seen::of(&folder.path().join("x/y/b")).unwrap();
        let made = none.write(b"4").unwrap();
        assert_eq!(made, [folder.path().join("x"), folder.path().join("x/y")]);
        assert_eq!(mode(&folder.path().join("x/y/b")), 0o600);
        assert!(matches!(none.write(b"5"), Err(NotWritten::Changed)), "somebody else made it meanwhile");
        assert_eq!(std::fs::read_dir(folder.path().join("x/y")).unwrap().count(), 1, "nothing half-written stays");
    }

    #[test]
    fn links_are_followed_and_read_only_files_are_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let (real, link) = (folder.path().join("real"), folder.path().join("link"));
        std::fs::write(&real, "1").unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        Seen::of(&link).unwrap().write(b"2").unwrap();
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(std::fs::read(&real).unwrap(), b"2");
        std::fs::set_permissions(&real, std::fs::Permissions::from_mode(0o444)).unwrap();
        assert!(matches!(Seen::of(&link), Err(NotWritten::ReadOnly)));
        std::fs::remove_file(&real).unwrap();
        assert!(matches!(Seen::of(&link), Err(NotWritten::Dangling)));
        assert!(Seen::of(folder.path()).is_err());
    }
}
