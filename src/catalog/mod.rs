//! What exists, and under which name: immutable catalogues, merged from what each server listed.
//!
//! Knows no connection and no session; `gateway` builds a [`Catalogue`] whenever a server's list or the
//! configuration changed and publishes it whole. Definitions stay raw JSON throughout: an entry is the slice of
//! the message it came in, and is published by splicing. What a profile shows comes in as a [`View`].

mod adjust;
mod found;
mod headers;
mod item;
pub mod ledger;
mod merge;
mod meta;
pub mod naming;
pub mod own;
mod part;
mod render;
mod schema;
mod shelf;
mod surface;
#[cfg(test)]
mod surface_tests;
#[cfg(test)]
mod tests;
pub mod tokens;
mod trim;
pub mod uri;

pub use crate::policy::View;
pub use adjust::Given;
pub use found::Found;
pub use item::Fault;
pub use merge::{Catalogue, Contribution, Fingerprint, Hidden, Item, Route};
pub use part::{Dropped, ListError, Part, Pin};
pub use schema::{MAX_SCHEMA_DEPTH, MAX_SCHEMA_NODES};
pub use trim::shortened;
pub use uri::UriRoute;
