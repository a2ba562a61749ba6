//! How fast something may come: a number of them at once, beyond it one for each interval.
//!
//! Knows neither the number nor the interval, nor what becomes of what is too much: whoever counts does
//! ([`super::upward`], and what servers log).

use std::time::Duration;

use tokio::time::Instant;

/// What was let through, less what time gave back.
#[derive(Debug, Default)]
pub struct Bucket {
    /// Let through since `since`, less that.
    pub spent: u32,
    /// Up to when time has been counted.
    pub since: Option<Instant>,
}

impl Bucket {
    /// Gives back one for each whole interval that has passed.
    pub fn refill(&mut self, now: Instant, interval: Duration) {
        let since = *self.since.get_or_insert(now);
        let back = (now.duration_since(since).as_millis() / interval.as_millis()) as u32;
        if back > 0 {
            self.spent = self.spent.saturating_sub(back);
            self.since = Some(since + interval * back);
        }
    }
}
