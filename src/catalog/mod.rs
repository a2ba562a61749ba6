//! What exists, and under which name: immutable catalogues, merged from what each server listed.
//!
//! Knows no connection and no session; `gateway` builds a [`Catalogue`] whenever a server's list or the
//! configuration changed and publishes it whole. Definitions stay raw JSON throughout: a tool is the slice of
//! the message it came in, and is published by splicing.

mod headers;
mod merge;
pub mod naming;
mod part;
mod render;
pub mod tokens;

pub use merge::{Catalogue, Contribution, Fingerprint, Hidden, Item, Route};
pub use part::{
    Dropped, Fault, ListError, MAX_DEFINITION, MAX_ENTRIES, MAX_LIST, MAX_SCHEMA_DEPTH, MAX_SCHEMA_NODES, ToolsPart,
};
