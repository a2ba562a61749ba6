//! Moving in and out: the servers of hosts' own files taken over into `onegate.toml`, our one entry written into a host's
//! file and taken out again.
//!
//! Texts in, texts out, as far as that goes: `read` and `install` alone touch files of hosts. Deliberately starts nothing
//! and knows no running gateway. Called by `cli`.

mod bridge;
pub mod doctor;
pub mod edit;
mod entry;
mod fields;
pub mod hosts;
pub mod install;
pub mod lines;
pub mod own;
pub mod place;
pub mod preview;
pub mod read;
mod record;
pub mod secrets;
pub mod server;
pub mod store;
mod text;
pub mod token;
pub mod undo;
