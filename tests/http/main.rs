//! The HTTP front over loopback sockets: the real gateway behind it, scripted servers in memory, clients that write
//! and read the bytes of HTTP themselves.
//!
//! `front.rs` starts it, `client.rs` is a client; the servers are those of the middle boundary.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on shall stop there")]

mod bounds;
#[path = "../schema/checker.rs"]
#[allow(dead_code, reason = "other boundaries use the rest")]
mod checker;
mod client;
mod denied;
#[path = "../middle/end.rs"]
#[allow(dead_code, reason = "the middle boundary uses the rest")]
mod end;
mod front;
#[path = "../middle/full.rs"]
#[allow(dead_code, reason = "the middle boundary uses the rest")]
mod full;
mod identity;
mod idp;
mod legacy;
mod marked;
mod modern;
mod outside;
mod policy;
mod principals;
mod sse;
mod tasks;
mod tls;
#[path = "../middle/world.rs"]
#[allow(dead_code, reason = "the middle boundary uses the rest")]
mod world;
