//! Files, variables and flags → [`settings`].
//!
//! This file only hands on names. Above this room only [`settings`] is used, except by `cli` and `daemon`,
//! which call [`load()`] and show its faults and notes.

mod check;
mod environment;
mod fault;
mod files;
mod host;
mod jsonc;
mod launch;
mod layers;
mod load;
mod period;
mod references;
mod resolve;
mod schema;
pub mod settings;
mod tree;
pub mod trust;

pub use environment::Environment;
pub use fault::{Fault, Faults, Note, Place};
pub use load::{Flag, LoadOptions, Loaded, load};
pub use schema::json_schema;
