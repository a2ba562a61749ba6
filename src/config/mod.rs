//! The config room.

pub mod settings;
