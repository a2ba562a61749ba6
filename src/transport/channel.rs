//! The two directions of a connection that carries lines.

use tokio::io::{AsyncRead, AsyncWrite};

/// A connection to a peer that speaks one message per line (ENV-12).
pub struct Channel {
    /// What the peer writes.
    pub reader: Box<dyn AsyncRead + Send + Unpin>,
    /// What the peer reads.
    pub writer: Box<dyn AsyncWrite + Send + Unpin>,
}

impl Channel {
    /// Makes a channel of any two streams.
    pub fn new(
        reader: impl AsyncRead + Send + Unpin + 'static,
        writer: impl AsyncWrite + Send + Unpin + 'static,
    ) -> Self {
        Self { reader: Box::new(reader), writer: Box::new(writer) }
    }

    /// The two ends of a connection in memory.
    pub fn pair() -> (Self, Self) {
        const PIPE: usize = 64 * 1024;
        let (ours, theirs) = tokio::io::duplex(PIPE);
        let (ours_in, ours_out) = tokio::io::split(ours);
        let (theirs_in, theirs_out) = tokio::io::split(theirs);
        (Self::new(ours_in, ours_out), Self::new(theirs_in, theirs_out))
    }
}
