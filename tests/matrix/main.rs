//! Every feature of the protocol, for a host of either era on a pipe or over HTTP, at a server of either era on a pipe or
//! over HTTP: sixteen cells each, all of them through one gateway.
//!
//! `features.rs` is the table, and says for each feature what is to be seen in which cell; `hosts.rs` and `servers.rs` are
//! the scripted peers, which differ by era and transport and by nothing else. A feature without an arm does not compile, and
//! no cell is left out: what a feature of one era becomes in the other is an expectation too.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on shall stop there")]

#[path = "../schema/checker.rs"]
#[allow(dead_code, reason = "other boundaries use the rest")]
mod checker;
#[path = "../http/client.rs"]
#[allow(dead_code, reason = "other boundaries use the rest")]
mod client;
#[path = "../middle/end.rs"]
#[allow(dead_code, reason = "other boundaries use the rest")]
mod end;
#[path = "../remote/fake.rs"]
#[allow(dead_code, reason = "other boundaries use the rest")]
mod fake;
mod features;
#[path = "../http/front.rs"]
#[allow(dead_code, reason = "other boundaries use the rest")]
mod front;
mod hosts;
mod servers;
#[path = "../middle/world.rs"]
#[allow(dead_code, reason = "other boundaries use the rest")]
mod world;
