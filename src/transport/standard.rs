//! Our own standard streams as a [`Channel`] to the host.
//!
//! Pipes and sockets are used without blocking; anything else (a terminal, a file) by the runtime's thread for
//! blocking work. A pipe is opened anew, so that the file description we share with whoever started us keeps
//! its mode; a socket cannot be, so its mode is put back at the end.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;

use rustix::fs::{FileType, OFlags, fcntl_getfl, fcntl_setfl};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;

use super::{Channel, PIPE};

/// Standard input and output as a channel, and what restores them when dropped.
pub fn host() -> io::Result<(Channel, Restore)> {
    let mut restore = Restore(Vec::new());
    let reader = reader(&mut restore)?;
    let writer = writer(&mut restore)?;
    Ok((Channel { reader, writer }, restore))
}

/// Puts the mode of shared sockets back when dropped.
pub struct Restore(Vec<(OwnedFd, OFlags)>);

impl Drop for Restore {
    fn drop(&mut self) {
        for (stream, flags) in &self.0 {
            // The stream may be gone by now; then nobody minds its mode.
            let _ = fcntl_setfl(stream, *flags);
        }
    }
}

impl Restore {
    /// Makes a socket non-blocking, for the time being.
    fn socket(&mut self, stream: &OwnedFd) -> io::Result<UnixStream> {
        let flags = fcntl_getfl(stream)?;
        self.0.push((stream.try_clone()?, flags));
        let socket = StdUnixStream::from(stream.try_clone()?);
        socket.set_nonblocking(true)?;
        UnixStream::from_std(socket)
    }
}

fn kind(stream: &OwnedFd) -> FileType {
    rustix::fs::fstat(stream).map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode))
}

/// Whether a socket is of the unix family; others (a super server's TCP connection) go by thread.
fn is_unix(stream: &OwnedFd) -> bool {
    stream.try_clone().is_ok_and(|stream| StdUnixStream::from(stream).local_addr().is_ok())
}

fn reader(restore: &mut Restore) -> io::Result<Box<dyn AsyncRead + Send + Unpin>> {
    let stream = io::stdin().as_fd().try_clone_to_owned()?;
    let kind = kind(&stream);
    if kind == FileType::Fifo {
        if let Ok(anew) = pipe::OpenOptions::new().open_receiver("/proc/self/fd/0") {
            return Ok(Box::new(anew));
        }
        Ok(Box::new(pipe::Receiver::from_file(File::from(stream))?))
    } else if kind == FileType::Socket && is_unix(&stream) {
        Ok(Box::new(restore.socket(&stream)?))
    } else {
        Ok(Box::new(tokio::io::stdin()))
    }
}

fn writer(restore: &mut Restore) -> io::Result<Box<dyn AsyncWrite + Send + Unpin>> {
    let stream = io::stdout().as_fd().try_clone_to_owned()?;
    let kind = kind(&stream);
    if kind == FileType::Fifo {
        // Fewer wake-ups for long answers; a smaller buffer works as well.
        let _ = rustix::pipe::fcntl_setpipe_size(&stream, PIPE);
        if let Ok(anew) = pipe::OpenOptions::new().open_sender("/proc/self/fd/1") {
            return Ok(Box::new(anew));
        }
        Ok(Box::new(pipe::Sender::from_file(File::from(stream))?))
    } else if kind == FileType::Socket && is_unix(&stream) {
        Ok(Box::new(restore.socket(&stream)?))
    } else {
        Ok(Box::new(tokio::io::stdout()))
    }
}
