//! What operators and people see: log lines on stderr, and how foreign text is shown in them.

pub mod log;
pub mod mask;
mod stderr;
