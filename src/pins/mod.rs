//! Pins: what was reviewed of each server, and what is told apart from it (threat model §3–7).
//!
//! Definitions have hashes ([`facet`], of a [`canonical`] text). Pure but for the files that [`lock`] and [`observed`]
//! name; knows no connection, no host and no clock.

pub mod canonical;
pub mod facet;
