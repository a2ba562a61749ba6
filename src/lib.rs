//! onegate: one MCP server that faces a host and fans out to many servers behind it.
//!
//! The middle speaks modern, stateless MCP; each edge has one adapter for the legacy era; imports run
//! downward only. `ARCHITECTURE.md` is the map; in short, from the top:
//!
//! | floor | room | holds |
//! |--:|---|---|
//! | 9 | [`cli`] | the commands |
//! | 8 | [`daemon`] | builds everything in order, drains in reverse |
//! | 7 | [`upstream`] | the server that the host sees |
//! | 6 | [`gateway`] | the only room that knows both sides |
//! | 5 | [`downstream`], [`catalog`] | one isolated client per server; what exists for whom |
//! | 4 | [`policy`] | decisions, pure |
//! | 4 | [`adopt`] | moving in from hosts and out again |
//! | 3 | [`pins`] | the lock, and what it says of what servers list |
//! | 3 | [`telemetry`] | logs, the record of decisions, numbers |
//! | 3 | [`search`] | finding tools by words, pure |
//! | 2 | [`transport`], [`config`], [`caller`] | bytes ↔ messages; files → settings; who asks |
//! | 1 | [`protocol`], [`ident`], [`shown`], [`pattern`], [`moment`] | the MCP language; checked names; foreign text; patterns over names; the calendar |
//! | 1 | [`whole`], [`hunks`] | files written whole; what differs between two texts |

pub mod adopt;
pub mod caller;
pub mod catalog;
pub mod cli;
pub mod config;
pub mod daemon;
pub mod downstream;
pub mod gateway;
pub mod hunks;
pub mod ident;
pub mod moment;
pub mod pattern;
pub mod pins;
pub mod policy;
pub mod protocol;
pub mod search;
pub mod shown;
pub mod telemetry;
pub mod transport;
pub mod upstream;
pub mod whole;
