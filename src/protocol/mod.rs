//! The MCP language: reads and writes messages and loses nothing.
//!
//! Knows no connection, no policy and no configuration.

pub mod call;
pub mod capability;
pub mod code;
pub mod form;
pub mod headers;
pub mod json;
pub mod level;
pub mod message;
pub mod meta;
pub mod method;
pub mod reply;
pub mod version;
