//! Our stderr, written without ever waiting: whoever started us may read it slowly or not at all, and a log line
//! must not hold up a call. A line that does not fit is lost.
//!
//! Knows nothing of what is written; [`super::log`] writes to it. A pipe is opened anew, so that the mode of the one
//! we share stays as it is; a socket takes single writes without waiting; a file or terminal is written as usual.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;

use rustix::fs::{FileType, OFlags};
use rustix::net::SendFlags;

/// How stderr is written.
pub(super) enum Stderr {
    /// Opened anew, and never blocks.
    Pipe(File),
    /// Asked with each write not to block.
    Socket,
    /// Anything else.
    Plain,
}

impl Stderr {
    /// Looks at what stderr is.
    pub(super) fn open() -> Self {
        let kind = rustix::fs::fstat(io::stderr()).map(|stat| FileType::from_raw_mode(stat.st_mode));
        match kind {
            Ok(FileType::Fifo) => {
                let flags = OFlags::NONBLOCK.bits().cast_signed();
                let anew = File::options().write(true).custom_flags(flags).open("/proc/self/fd/2");
                anew.map_or(Self::Plain, Self::Pipe)
            }
            Ok(FileType::Socket) => Self::Socket,
            _ => Self::Plain,
        }
    }
}

impl Write for &Stderr {
    /// Takes all of `line`, whatever becomes of it.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        // The pipe's reader may be slow, or gone: neither is a reason to fail here.
        match self {
            Stderr::Pipe(pipe) => _ = Write::write(&mut &*pipe, line),
            Stderr::Socket => {
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                _ = rustix::net::send(io::stderr().as_fd(), line, flags);
            }
            Stderr::Plain => _ = io::stderr().lock().write_all(line),
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_that_nobody_reads_holds_nobody_up() {
        let (_reader, writer) = rustix::pipe::pipe().unwrap();
        rustix::io::ioctl_fionbio(&writer, true).unwrap();
        let stderr = Stderr::Pipe(writer.into());
        for _ in 0..1000 {
            (&stderr).write_all(&[b'x'; 1000]).unwrap();
        }
    }
}
