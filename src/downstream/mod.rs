//! One isolated client per server: start it, find out its era, list it, call it, stop it.
//!
//! Knows no host, no exposed name and no other server. What it lists goes to the gateway as raw pages; what it is
//! asked comes with a permit.

mod changed;
mod client;
mod connection;
mod era;
mod gate;
pub mod guard;
mod handshake;
mod held;
mod http;
mod lease;
mod lifecycle;
mod list;
mod logs;
mod looked;
mod offers;
mod plan;
mod process;
mod questions;
mod reach;
mod receive;
mod roots;
mod server;
mod signs;
mod subscription;
mod tasks;
mod traced;
mod tree;

use std::time::Duration;

pub use client::State;
pub use connection::Connection;
pub use era::EraMemory;
pub use guard::Guard;
pub use handshake::Introduction;
pub use held::Answer;
pub use looked::{Look, Looked, Served, list_of};
pub use offers::Offers;
pub use process::{Ended, Pace};
pub use questions::INPUT_LIMIT;
pub use reach::{Answering, Connect, Link, Processes};
pub use roots::Roots;
pub use server::{Apart, Change, Event, Item, Listed, ListedAt, Listing, News, OwnLists, Pending, Server, Source};
pub use subscription::Topic;

/// Why a server gave no usable answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It is not there.
    #[error("{detail}")]
    Unavailable {
        /// What happened to it, safe to show.
        detail: String,
        /// When it is tried again.
        retry_after: Option<Duration>,
    },
    /// It did not answer in time.
    #[error("no answer within {} s", .0.as_secs_f32())]
    Timeout(Duration),
    /// Its answer is none.
    #[error("{0}")]
    Invalid(String),
    /// Its answer is too long.
    #[error("the answer has {size} bytes, the limit is {limit}")]
    TooLarge {
        /// Its length.
        size: u64,
        /// The longest that is taken.
        limit: u64,
    },
    /// A bound of ours is reached.
    #[error("{0}")]
    Limit(String),
    /// It wants to know first who asks.
    #[error("it answered {status}: the credentials that it was sent are missing or not enough")]
    SignIn {
        /// What it answered, 401 or 403.
        status: u16,
    },
    /// It forgot our session, so that what was asked was surely not done (SES-4).
    #[error("it forgot the session")]
    SessionLost,
    /// It answered with an error where we needed a result.
    #[error("it answered with error {code}: {message}")]
    Refused {
        /// Its code.
        code: i64,
        /// Its message, safe to show.
        message: String,
    },
}

impl Fault {
    fn gone(why: &str) -> Self {
        Self::Unavailable { detail: why.to_owned(), retry_after: None }
    }
}
