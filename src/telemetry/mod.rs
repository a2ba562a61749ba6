//! What operators and people see: log lines on stderr, how foreign text is shown in them, and the record of decisions.

pub mod audit;
pub mod log;
pub mod mask;
pub mod metrics;
mod stderr;
