//! Files, variables and flags → [`settings`].
//!
//! This file only hands on names. Above this room only [`settings`] is used, except by `cli` and `daemon`,
//! which call [`load()`] and show its faults and notes.

mod address;
mod cases;
mod check;
mod environment;
mod fault;
mod files;
mod ground;
mod host;
mod jsonc;
pub mod keys;
mod launch;
mod layers;
mod load;
mod moment;
mod period;
mod pins;
mod rate;
mod references;
mod remote;
mod resolve;
mod rules;
mod schema;
mod serving;
pub mod settings;
mod size;
mod tokens;
mod tree;
pub mod trust;
mod window;

pub use cases::{PolicyCase, policy_cases};
pub use environment::Environment;
pub use fault::{Fault, Faults, Note, Place};
pub use load::{Flag, LoadOptions, Loaded, load};
pub use moment::parse as moment;
pub use period::parse as duration;
pub use schema::json_schema;
pub use serving::Serving;
