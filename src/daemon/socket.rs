//! A socket in the file system that its owner alone may use, taken over from a process that is gone.
//!
//! Of several processes that want the same place at once one gets it. Knows nothing of what is said there. Called by `admin`
//! and `attach`.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use tokio::net::{UnixListener, UnixStream};

/// A socket; taken away when dropped, unless another one stands there by then.
pub(super) struct Socket {
    pub(super) path: PathBuf,
    inode: u64,
}

impl Socket {
    /// Binds it, unless another gateway has it.
    pub(super) fn bind(path: &Path) -> io::Result<(UnixListener, Self)> {
        // Between the look and the bind nobody else does the same: the lock is that of the folder, and goes with its descriptor.
        let folder =
            File::open(path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")))?;
        flock(&folder, FlockOperation::LockExclusive)?;
        if clear(path)? {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "another gateway has it"));
        }
        let listener = UnixListener::bind(path)?;
        // Whoever connected before this is looked at, too: see `is_trusted`.
        fs::set_permissions(path, Permissions::from_mode(0o600))?;
        let inode = fs::symlink_metadata(path)?.ino();
        Ok((listener, Self { path: path.to_owned(), inode }))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|found| found.ino() == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The folder of such sockets, its owner's alone.
pub(super) fn folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Takes a socket away that nobody listens on any more; whether somebody does. What is no socket stays.
pub(super) fn clear(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            Err(io::Error::new(io::ErrorKind::AlreadyExists, "something that is no socket stands there"))
        }
        Ok(_) => match std::os::unix::net::UnixStream::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path).map(|()| false),
            _ => Ok(true),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether the other side is ours, or root's.
pub(super) fn is_trusted(stream: &UnixStream) -> io::Result<bool> {
    let who = stream.peer_cred()?.uid();
    Ok(who == 0 || who == rustix::process::getuid().as_raw())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Many at once, again and again over a socket that a killed process left: one has it, and it is the one that answers.
    #[test]
    fn of_many_that_start_at_once_one_has_the_socket() {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_io().build().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.sock");
        for _ in 0..30 {
            drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
            let bound: Vec<_> = std::thread::scope(|scope| {
                let bind = || {
                    let _entered = runtime.enter();
                    Socket::bind(&path).ok()
                };
                let all: Vec<_> = (0..8).map(|_| scope.spawn(bind)).collect();
                all.into_iter().filter_map(|one| one.join().unwrap()).collect()
            });
            assert_eq!(bound.len(), 1);
            assert!(std::os::unix::net::UnixStream::connect(&path).is_ok());
        }
    }
}
