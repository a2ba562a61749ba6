//! Bytes ↔ messages: lines in, lines out, both bounded.
//!
//! Knows no JSON beyond the newline between messages. A connection is a [`Channel`], and memory is as good as
//! a pipe: [`Channel::pair`] gives the two ends of one that never leaves the process.

pub mod bucket;
mod channel;
pub mod fetch;
pub mod line;
pub mod outbox;
pub mod quiet;
pub mod sse;
pub mod standard;
pub mod tls;
pub mod upward;

pub use channel::Channel;

/// The kernel's buffer that we ask for on pipes.
pub const PIPE: usize = 256 << 10;
