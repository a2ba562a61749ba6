//! Servers behind a URL: the real gateway between a scripted host in memory and scripted HTTP servers on loopback.
//!
//! `fake.rs` is such a server: it takes requests, and a test writes what comes back, byte for byte where that matters.
//! `world.rs` builds the gateway. Real sockets and so the real clock: nothing here sleeps to see that something happened.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on shall stop there")]

mod answers;
#[path = "../schema/checker.rs"]
#[allow(dead_code, reason = "other boundaries use the rest")]
mod checker;
#[path = "../middle/end.rs"]
#[expect(dead_code, reason = "the peers of the middle boundary can do more than is needed here")]
mod end;
#[allow(dead_code, reason = "the matrix uses the rest")]
mod fake;
mod headers;
mod probe;
mod sessions;
mod tasks;
mod tls;
mod world;
