//! What a person sees while servers start: a spinner on stderr, on a terminal only.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::gateway::{Gateway, State};

/// A spinner that names the servers not yet ready; gone when dropped.
pub(super) struct Starting {
    bar: ProgressBar,
}

impl Starting {
    pub(super) fn new() -> Self {
        // Hidden by itself where stderr is no terminal.
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
            bar.set_style(style);
        }
        Self { bar }
    }

    /// Waits until every server has listed or failed.
    pub(super) async fn settle(&self, gateway: &Gateway) {
        self.bar.enable_steady_tick(Duration::from_millis(100));
        let settled = gateway.settle();
        tokio::pin!(settled);
        let mut tick = tokio::time::interval(Duration::from_millis(100));
        loop {
            tokio::select! {
                () = &mut settled => break,
                _ = tick.tick() => self.bar.set_message(message(gateway)),
            }
        }
        self.bar.finish_and_clear();
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn message(gateway: &Gateway) -> String {
    let waiting: Vec<_> = gateway
        .servers()
        .filter(|server| matches!(*server.state().borrow(), State::Idle | State::Starting))
        .map(|server| server.key().to_string())
        .collect();
    if waiting.is_empty() { "listing tools".to_owned() } else { format!("starting {}", waiting.join(", ")) }
}
