//! The MCP language: reads and writes messages and loses nothing.
//!
//! Knows no connection, no policy and no configuration.

pub mod json;
pub mod version;
