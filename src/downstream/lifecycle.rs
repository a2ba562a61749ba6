//! When a server may be started again: back-off, breaker, half-open trial. Pure: time comes in.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// The first delay; it doubles with each failure (threat model §9).
const FIRST: Duration = Duration::from_millis(500);
/// The longest delay.
const LONGEST: Duration = Duration::from_secs(60);
/// So many failures…
const BREAK_AFTER: usize = 5;
/// …within this time open the breaker.
const BREAK_WITHIN: Duration = Duration::from_secs(120);
/// An open breaker lets one start through this often.
const HALF_OPEN: Duration = Duration::from_secs(60);
/// The longest delay for what is not ours to start: it is only looked for again.
const LONGEST_REMOTE: Duration = Duration::from_secs(5);
/// A server that ran this long did not fail to start (D-33).
const STABLE: Duration = Duration::from_secs(60);
/// Starts within a minute, whatever their reason.
const STARTS_A_MINUTE: usize = 30;
const MINUTE: Duration = Duration::from_secs(60);

/// How often a server failed lately.
#[derive(Debug, Default)]
pub(super) struct Lifecycle {
    /// Failures within [`BREAK_WITHIN`].
    failures: VecDeque<Instant>,
    /// Failures in a row.
    row: u32,
    /// Starts within the last minute.
    starts: VecDeque<Instant>,
    not_before: Option<Instant>,
    /// It is a server behind a URL: the breaker is for children that crash.
    remote: bool,
}

/// Whether a server may be started now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leave {
    /// Now.
    Now,
    /// From then on; callers may wait for it.
    At(Instant),
    /// From then on; the breaker is open, callers are refused until then.
    Broken(Instant),
}

impl Lifecycle {
    /// Of a server behind a URL.
    pub(super) fn remote() -> Self {
        Self { remote: true, ..Self::default() }
    }

    /// May it be started at `now`?
    pub(super) fn leave(&mut self, now: Instant) -> Leave {
        forget(&mut self.failures, now, BREAK_WITHIN);
        forget(&mut self.starts, now, MINUTE);
        let broken = self.is_broken();
        let full = match self.starts.front() {
            Some(&first) if self.starts.len() >= STARTS_A_MINUTE => Some(first + MINUTE),
            _ => None,
        };
        match self.not_before.max(full) {
            Some(at) if at > now && broken => Leave::Broken(at),
            Some(at) if at > now => Leave::At(at),
            _ => Leave::Now,
        }
    }

    /// It was started.
    pub(super) fn started(&mut self, now: Instant) {
        self.starts.push_back(now);
    }

    /// It failed to start, or ended without cause after `lived`; `random` is uniform in 0…1.
    pub(super) fn failed(&mut self, now: Instant, lived: Duration, random: f32) {
        if lived >= STABLE {
            self.reset();
        }
        self.failures.push_back(now);
        forget(&mut self.failures, now, BREAK_WITHIN);
        self.row = self.row.saturating_add(1);
        let delay = if self.is_broken() {
            HALF_OPEN
        } else {
            let longest = if self.remote { LONGEST_REMOTE } else { LONGEST };
            let ceiling = FIRST.saturating_mul(1 << (self.row - 1).min(10)).min(longest);
            // Half of it certain, so that delays grow; half of it random, so that many do not march in step.
            ceiling.mul_f32(0.5 + 0.5 * random)
        };
        self.not_before = Some(now + delay);
    }

    fn is_broken(&self) -> bool {
        !self.remote && self.failures.len() >= BREAK_AFTER
    }

    /// It ended after it had done its work: the next start may follow at once.
    pub(super) fn ended_well(&mut self) {
        self.reset();
    }

    /// What kept it from being started may be gone: it may be tried at once.
    pub(super) fn woken(&mut self) {
        self.reset();
    }

    fn reset(&mut self) {
        self.failures.clear();
        self.row = 0;
        self.not_before = None;
    }
}

fn forget(times: &mut VecDeque<Instant>, now: Instant, age: Duration) {
    while times.front().is_some_and(|&first| now.duration_since(first) >= age) {
        times.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn d017_delays_grow_then_the_breaker_opens() {
        let mut life = Lifecycle::default();
        let mut now = Instant::now();
        let mut delays = Vec::new();
        for _ in 0..5 {
            life.started(now);
            life.failed(now, Duration::ZERO, 0.0);
            match life.leave(now) {
                Leave::At(at) | Leave::Broken(at) => {
                    delays.push(at - now);
                    now = at;
                }
                Leave::Now => panic!("no delay"),
            }
        }
        assert_eq!(delays.iter().map(Duration::as_millis).collect::<Vec<_>>(), [250, 500, 1000, 2000, 60_000]);
        // Half open: one start, and on failure broken again.
        assert_eq!(life.leave(now), Leave::Now);
        life.failed(now, Duration::ZERO, 0.0);
        assert!(matches!(life.leave(now), Leave::Broken(_) | Leave::At(_)));
    }

    #[test]
    fn d33_only_a_stable_time_resets() {
        let mut life = Lifecycle::default();
        let now = Instant::now();
        for _ in 0..3 {
            life.failed(now, Duration::from_secs(59), 1.0);
        }
        assert_eq!(life.row, 3);
        life.failed(now, STABLE, 1.0);
        assert_eq!((life.row, life.failures.len()), (1, 1));
    }

    #[test]
    fn a_url_is_looked_for_every_five_seconds_at_least_and_never_given_up() {
        let mut life = Lifecycle::remote();
        let mut now = Instant::now();
        for _ in 0..40 {
            life.started(now);
            life.failed(now, Duration::ZERO, 1.0);
            match life.leave(now) {
                Leave::At(at) if at - now <= Duration::from_secs(5) => now = at,
                leave @ (Leave::Now | Leave::At(_) | Leave::Broken(_)) => panic!("{leave:?}"),
            }
        }
    }

    proptest! {
        #[test]
        fn never_more_starts_a_minute_than_the_cap(ends in prop::collection::vec((0u64..3000, any::<bool>(), 0f32..1.0), 1..200)) {
            let mut life = Lifecycle::default();
            let mut now = Instant::now();
            let mut starts: Vec<Instant> = Vec::new();
            for (lived, well, random) in ends {
                if let Leave::At(at) | Leave::Broken(at) = life.leave(now) { now = at; }
                life.started(now);
                starts.push(now);
                now += Duration::from_millis(lived);
                if well { life.ended_well() } else { life.failed(now, Duration::from_millis(lived), random) }
            }
            for (n, start) in starts.iter().enumerate() {
                let within = starts[n..].iter().filter(|s| s.duration_since(*start) < MINUTE).count();
                prop_assert!(within <= STARTS_A_MINUTE, "{within}");
            }
        }
    }
}
