//! The outer boundary: the real program, real processes on both sides, one module per class of behaviour.
//!
//! `host.rs` is the host in front, `tests/fake` the servers behind. Tests are named by the id of the requirement
//! they prove (`d041_…`, `ver6_…`); `tests/CASES.md` is the table.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on shall stop there")]

mod adopt;
mod attach;
mod audit;
#[path = "../schema/checker.rs"]
#[allow(dead_code, reason = "other boundaries use the rest")]
mod checker;
mod config;
mod connect;
mod corpus;
mod correlate;
mod edge;
mod eras;
mod fake;
mod fidelity;
mod framing;
mod host;
mod http;
mod installed;
mod isolation;
mod life;
mod naming;
mod otlp;
mod otlp_http;
mod paging;
mod pins;
mod policy;
mod reload;
mod remembered;
mod search;
mod service;
mod sight;
mod talk;
