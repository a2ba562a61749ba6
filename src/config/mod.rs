//! Files, variables and flags → [`settings`].
//!
//! This file only hands on names. Above this room only [`settings`] is used, except by `cli` and `daemon`,
//! which call [`load()`] and show its faults and notes, and by `adopt`, which reads and edits files of the same
//! formats by the same readers.

mod address;
mod cases;
mod check;
pub mod connect;
mod environment;
mod fault;
mod files;
mod ground;
mod host;
pub(crate) mod jsonc;
pub mod keys;
mod launch;
mod layers;
mod load;
mod period;
mod pins;
mod rate;
mod references;
mod remote;
mod resolve;
mod rules;
mod schema;
mod search;
mod serving;
pub mod settings;
mod size;
mod surface;
mod tokens;
pub(crate) mod tree;
pub mod trust;
mod window;

pub(crate) use address::is_ours as is_made_by_us;
pub use cases::{PolicyCase, policy_cases};
pub use environment::Environment;
pub use fault::{Fault, Faults, Note, Place};
pub(crate) use ground::names_a_secret;
pub(crate) use host::{STREAMABLE, keys, ours, servers_member};
pub use load::{Flag, LoadOptions, Loaded, load, load_as_if};
pub use period::parse as duration;
pub use schema::json_schema;
pub use serving::Serving;
