//! Log lines on stderr, for people or as JSON; stdout may be the protocol and is never touched.

use std::io::IsTerminal as _;
use std::sync::Arc;

use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use super::stderr::Stderr;
use crate::config::settings::{LogFormat, TelemetrySettings};

/// Starts logging; a second start changes nothing.
pub fn start(settings: &TelemetrySettings) {
    // The configuration was checked: what cannot be read here asks for nothing special.
    let targets: Targets = settings.log.parse().unwrap_or_else(|_| Targets::new().with_default(tracing::Level::INFO));
    let lines = tracing_subscriber::fmt::layer().with_writer(Arc::new(Stderr::open())).with_target(false);
    let registry = tracing_subscriber::registry().with(targets);
    // An error means that somebody else logs already, as in tests.
    let _ = match settings.format {
        LogFormat::Pretty => {
            let ansi = std::io::stderr().is_terminal();
            registry.with(lines.with_ansi(ansi)).try_init()
        }
        LogFormat::Json => registry.with(lines.json().flatten_event(true)).try_init(),
    };
}
