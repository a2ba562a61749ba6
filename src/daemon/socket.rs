//! A socket in the file system that its owner alone may use, taken over from a process that is gone.
//!
//! Of several processes that want the same place at once one gets it. Knows nothing of what is said there. Called by `admin`
//! and `attach`.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tokio::net::{UnixListener, UnixStream};

/// Files of a folder that are looked at.
const MOST: usize = 1024;
/// How names of such sockets end: those of `admin` and of `attach`. The folder may be one that others use, too.
const ENDS: [&str; 2] = ["sock", "mcp"];

/// A socket; taken away when dropped, unless another one stands there by then.
pub(super) struct Socket {
    pub(super) path: PathBuf,
    inode: u64,
}

impl Socket {
    /// Binds it, unless another gateway has it.
    pub(super) fn bind(path: &Path) -> io::Result<(UnixListener, Self)> {
        let _lock = lock(path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")))?;
        if clear(path)? {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "another gateway has it"));
        }
        let listener = UnixListener::bind(path)?;
        // Whoever connected before this is looked at, too: see `trusted`.
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

/// The folder of such sockets, its owner's alone. Those of processes that were killed are taken away, whatever they were for.
pub(super) fn folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    let _lock = lock(path)?;
    let found = fs::read_dir(path)?.flatten().take(MOST).map(|left| left.path());
    for left in found.filter(|left| left.extension().is_some_and(|end| ENDS.iter().any(|ours| end == *ours))) {
        let _ = clear(&left);
    }
    Ok(())
}

/// While this is held nobody else takes sockets away there, or binds one: the lock goes with its descriptor.
fn lock(folder: &Path) -> io::Result<File> {
    let folder = File::open(folder)?;
    flock(&folder, FlockOperation::LockExclusive)?;
    Ok(folder)
}

/// Takes a socket away that nobody listens on any more; whether somebody does. What is no socket stays.
fn clear(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            Err(io::Error::new(io::ErrorKind::AlreadyExists, "something that is no socket stands there"))
        }
        Ok(_) if is_listening(path) => Ok(true),
        Ok(_) => fs::remove_file(path).map(|()| false),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether anybody does. Nobody is waited for, since the folder is locked meanwhile: who does not accept, stopped perhaps, and
/// has as many before its door as fit, listens all the same.
fn is_listening(path: &Path) -> bool {
    let connect = || {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        net::connect(&socket, &SocketAddrUnix::new(path)?)
    };
    connect() != Err(Errno::CONNREFUSED)
}

/// The next one who comes, ours or root's.
pub(super) async fn accept(listener: &UnixListener) -> io::Result<UnixStream> {
    trusted(listener.accept().await?.0)
}

/// A way to whoever listens there, if that is ours or root's.
pub(super) async fn connect(path: &Path) -> io::Result<UnixStream> {
    trusted(UnixStream::connect(path).await?)
}

fn trusted(stream: UnixStream) -> io::Result<UnixStream> {
    let who = stream.peer_cred()?.uid();
    let ours = who == 0 || who == rustix::process::getuid().as_raw();
    if ours { Ok(stream) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With the folder locked, a connect that waits would keep out every gateway that starts later.
    #[test]
    fn a_gateway_that_accepts_nobody_is_there_and_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.sock");
        let stopped = net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        net::bind(&stopped, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        net::listen(&stopped, 0).unwrap();
        let _first = std::os::unix::net::UnixStream::connect(&path).unwrap();
        let (told, found) = std::sync::mpsc::channel();
        std::thread::spawn(move || told.send(clear(&path).unwrap()));
        assert!(found.recv_timeout(std::time::Duration::from_secs(20)).expect("it waits"));
    }

    #[test]
    fn what_killed_gateways_left_is_taken_away() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("run");
        folder(&path).unwrap();
        let bind = |name: &str| std::os::unix::net::UnixListener::bind(path.join(name)).unwrap();
        drop((bind("1.sock"), bind("x.mcp"), bind("other")));
        let _lives = bind("2.sock");
        fs::write(path.join("file.sock"), "").unwrap();
        folder(&path).unwrap();
        let mut left: Vec<_> = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["2.sock", "file.sock", "other"]);
    }

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
