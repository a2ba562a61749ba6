//! What operators and people see: log lines on stderr, how foreign text is shown in them, the record of decisions, numbers,
//! and what a collector gets of all that.

pub mod audit;
pub mod log;
pub mod mask;
pub mod metrics;
pub mod otlp;
mod stderr;
