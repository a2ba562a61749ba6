//! Counting: how often in the long run, how often in a stretch of the calendar, how many at a time, each by a key.
//!
//! The time comes from a [`Clock`], so tests can hold it. Memory is bounded: a table holds [`MAX_KEYS`] keys at most,
//! those that are as good as new are dropped, and where all are in use the rest share a few; so no bound is ever
//! passed, and at worst one is met too early. Knows nothing of who or what a key stands for. Called by
//! [`super::limits`].

use std::collections::HashMap;
use std::convert::Infallible;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use foldhash::fast::RandomState;
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::StateStore;
use governor::state::keyed::ShrinkableKeyedStateStore;
use governor::{Quota, RateLimiter};

use super::verdict::Running;
use crate::config::settings::Rate;

/// Keys of one table, at most: some 3 MiB.
pub const MAX_KEYS: usize = 1 << 16;
/// Tables are split, so that threads seldom wait for each other.
const SHARDS: usize = 16;
/// Where a table is full, this many keys of each shard are shared by the rest.
const SHARED: u64 = 16;
const MAX_EACH: usize = MAX_KEYS / SHARDS - SHARED as usize;
/// A table is swept when it is full, and each time it was asked this often.
const SWEEP: u32 = 4096;

/// What tells the time: since 1970, and never backwards.
#[derive(Clone)]
pub struct Clock {
    now: Arc<dyn Fn() -> Duration + Send + Sync>,
    /// What people call the time, which may be set back.
    calendar: Arc<dyn Fn() -> Duration + Send + Sync>,
}

impl Clock {
    /// A clock that this tells the time of.
    pub fn new(now: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        let now = Arc::new(now);
        Self { calendar: Arc::clone(&now) as Arc<_>, now }
    }

    /// The same, with another one for what holds at certain hours: that one follows when the machine's is corrected.
    pub fn with_calendar(self, calendar: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self { calendar: Arc::new(calendar), ..self }
    }

    /// The machine's own: for one look, as it may be turned back.
    pub fn wall() -> Self {
        Self::new(|| SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
    }

    /// The time.
    pub fn now(&self) -> Duration {
        (self.now)()
    }

    /// The time of day.
    pub(super) fn calendar(&self) -> Duration {
        (self.calendar)()
    }
}

impl Default for Clock {
    /// One that stands still.
    fn default() -> Self {
        Self::new(|| Duration::ZERO)
    }
}

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Clock")
    }
}

impl governor::clock::Clock for Clock {
    type Instant = Nanos;

    fn now(&self) -> Nanos {
        (self.now)().into()
    }
}

/// A table by key, in parts.
#[derive(Debug)]
struct Table<V>([Mutex<HashMap<u64, V, RandomState>>; SHARDS]);

impl<V> Default for Table<V> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Mutex::default()))
    }
}

impl<V> Table<V> {
    fn shard(&self, key: u64) -> MutexGuard<'_, HashMap<u64, V, RandomState>> {
        lock(&self.0[key as usize % SHARDS])
    }

    fn len(&self) -> usize {
        self.0.iter().map(|shard| lock(shard).len()).sum()
    }

    /// Drops what is not wanted any more, and the memory of it.
    fn retain(&self, mut wanted: impl FnMut(&mut V) -> bool) {
        for shard in &self.0 {
            let mut shard = lock(shard);
            shard.retain(|_, value| wanted(value));
            let keep = shard.len() * 2 + 16;
            shard.shrink_to(keep);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The key under which a new one is counted in this shard; whether it is its own.
fn own_or_shared<V>(shard: &HashMap<u64, V, RandomState>, key: u64) -> (u64, bool) {
    if shard.len() < MAX_EACH || shard.contains_key(&key) { (key, true) } else { (key / SHARDS as u64 % SHARED, false) }
}

/// The theoretical arrival times of a rate.
#[derive(Clone, Debug, Default)]
struct Times(Arc<(Table<Nanos>, AtomicBool)>);

impl StateStore for Times {
    type Key = u64;

    fn measure_and_replace<T, F, E>(&self, key: &u64, f: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        let mut shard = self.0.0.shard(*key);
        let (key, own) = own_or_shared(&shard, *key);
        if !own {
            self.0.1.store(true, Ordering::Relaxed);
        }
        let (answer, next) = f(shard.get(&key).copied())?;
        shard.insert(key, next);
        Ok(answer)
    }
}

impl ShrinkableKeyedStateStore<u64> for Times {
    fn retain_recent(&self, drop_below: Nanos) {
        self.0.0.retain(|time| *time > drop_below);
    }

    fn len(&self) -> usize {
        self.0.0.len()
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// How often in the long run, with a burst (GCRA).
#[derive(Debug)]
pub(super) struct Meter {
    limiter: RateLimiter<u64, Times, Clock, NoOpMiddleware<Nanos>>,
    times: Times,
    clock: Clock,
    start: Nanos,
    /// What one costs, and how much may be owed beyond it.
    cost: Nanos,
    tolerance: Nanos,
    asked: AtomicU32,
    swept: AtomicU64,
}

impl Meter {
    pub(super) fn new(rate: Rate, burst: NonZeroU32, clock: Clock) -> Self {
        let each = (rate.per / rate.count.get()).max(Duration::from_nanos(1));
        let quota = Quota::with_period(each).expect("invariant: a rate is no division by zero").allow_burst(burst);
        let times = Times::default();
        let start = clock.now().into();
        let cost = Nanos::from(each);
        Self {
            limiter: RateLimiter::new(quota, times.clone(), clock.clone()),
            times,
            clock,
            start,
            cost,
            tolerance: cost * u64::from(burst.get() - 1),
            asked: AtomicU32::new(0),
            swept: AtomicU64::new(0),
        }
    }

    /// Takes one, or tells after which time there is one again.
    pub(super) fn take(&self, key: u64) -> Result<(), Duration> {
        let full = self.times.0.1.load(Ordering::Relaxed);
        if self.asked.fetch_add(1, Ordering::Relaxed) % SWEEP == SWEEP - 1 || full {
            self.sweep(full);
        }
        self.limiter.check_key(&key).map_err(|not| not.wait_time_from(self.clock.now().into()))
    }

    /// Gives one back that was taken for a call that was then not admitted.
    pub(super) fn give_back(&self, key: u64) {
        let back = self.times.measure_and_replace(&key, |time| {
            Ok::<_, Infallible>(((), time.unwrap_or_default().saturating_sub(self.cost)))
        });
        match back {
            Ok(()) => {}
            Err(never) => match never {},
        }
    }

    /// After which time there is one again, when there is none now. Takes nothing.
    pub(super) fn exhausted(&self, key: u64) -> Option<Duration> {
        let wait = self.time(key)?.saturating_sub(self.tolerance).saturating_sub(self.now());
        (wait > Nanos::default()).then(|| wait.into())
    }

    /// How many there are now.
    pub(super) fn left(&self, key: u64) -> u64 {
        let owed = self.time(key).unwrap_or_default().saturating_sub(self.now());
        (self.tolerance + self.cost).saturating_sub(owed).as_u64() / self.cost.as_u64()
    }

    fn time(&self, key: u64) -> Option<Nanos> {
        let shard = self.times.0.0.shard(key);
        let (key, _) = own_or_shared(&shard, key);
        shard.get(&key).copied()
    }

    fn now(&self) -> Nanos {
        Nanos::from(self.clock.now()).saturating_sub(self.start)
    }

    /// Drops the keys that are as good as new. Where that helps nothing it is not tried again within a second.
    fn sweep(&self, full: bool) {
        let second = self.clock.now().as_secs();
        if full && self.swept.swap(second, Ordering::Relaxed) == second {
            return;
        }
        self.times.0.1.store(false, Ordering::Relaxed);
        self.limiter.retain_recent();
    }

    #[cfg(test)]
    pub(super) fn keys(&self) -> usize {
        self.times.len()
    }
}

/// How often in each stretch of the calendar (UTC).
#[derive(Debug)]
pub(super) struct Calendar {
    rate: Rate,
    clock: Clock,
    /// By key: which stretch, and how often in it.
    used: Table<(u64, u32)>,
    stretch: AtomicU64,
}

impl Calendar {
    pub(super) fn new(rate: Rate, clock: Clock) -> Self {
        Self { rate, clock, used: Table::default(), stretch: AtomicU64::new(0) }
    }

    /// The stretch that runs, and how long it still does.
    fn now(&self) -> (u64, Duration) {
        let now = self.clock.now();
        let stretch = now.as_secs() / self.rate.per.as_secs();
        (stretch, Duration::from_secs((stretch + 1) * self.rate.per.as_secs()).saturating_sub(now))
    }

    /// Takes one, or tells when the next stretch begins.
    pub(super) fn take(&self, key: u64) -> Result<(), Duration> {
        let (stretch, rest) = self.now();
        if self.stretch.swap(stretch, Ordering::AcqRel) != stretch {
            self.used.retain(|(of, _)| *of >= stretch);
        }
        let mut shard = self.used.shard(key);
        let (key, _) = own_or_shared(&shard, key);
        let used = shard.entry(key).or_insert((stretch, 0));
        if used.0 < stretch {
            *used = (stretch, 0);
        }
        if used.1 >= self.rate.count.get() {
            return Err(rest);
        }
        used.1 += 1;
        Ok(())
    }

    pub(super) fn give_back(&self, key: u64) {
        let mut shard = self.used.shard(key);
        let (key, _) = own_or_shared(&shard, key);
        if let Some((_, used)) = shard.get_mut(&key) {
            *used = used.saturating_sub(1);
        }
    }

    /// How many are left in this stretch.
    pub(super) fn left(&self, key: u64) -> u32 {
        let (stretch, _) = self.now();
        let shard = self.used.shard(key);
        let (key, _) = own_or_shared(&shard, key);
        let used = shard.get(&key).filter(|(of, _)| *of == stretch).map_or(0, |(_, used)| *used);
        self.rate.count.get().saturating_sub(used)
    }

    #[cfg(test)]
    pub(super) fn keys(&self) -> usize {
        self.used.len()
    }
}

/// How many at a time.
#[derive(Debug)]
pub(super) struct Gauge {
    most: u32,
    running: Table<Arc<AtomicU32>>,
}

impl Gauge {
    pub(super) fn new(most: NonZeroU32) -> Self {
        Self { most: most.get(), running: Table::default() }
    }

    /// A place, when there is one.
    pub(super) fn take(&self, key: u64) -> Option<Running> {
        let mut shard = self.running.shard(key);
        if shard.len() >= 64 && !shard.contains_key(&key) {
            shard.retain(|_, count| Arc::strong_count(count) > 1);
        }
        let (key, _) = own_or_shared(&shard, key);
        let count = shard.entry(key).or_default();
        // Only dropping works beside the lock, and only down.
        if count.load(Ordering::Acquire) >= self.most {
            return None;
        }
        count.fetch_add(1, Ordering::AcqRel);
        Some(Running(Arc::clone(count)))
    }

    /// How many may still begin.
    pub(super) fn left(&self, key: u64) -> u32 {
        let shard = self.running.shard(key);
        self.most - shard.get(&key).map_or(0, |count| count.load(Ordering::Acquire)).min(self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A clock, and its hand.
    fn clock() -> (Clock, Arc<AtomicU64>) {
        let hand = Arc::new(AtomicU64::new(1_000_000_000_000));
        let read = Arc::clone(&hand);
        (Clock::new(move || Duration::from_nanos(read.load(Ordering::Relaxed))), hand)
    }

    fn rate(count: u32, seconds: u64) -> Rate {
        Rate { count: NonZeroU32::new(count).unwrap(), per: Duration::from_secs(seconds) }
    }

    fn many(count: u32) -> NonZeroU32 {
        NonZeroU32::new(count).unwrap()
    }

    #[test]
    fn d32_a_burst_and_then_the_rate() {
        let (clock, hand) = clock();
        let meter = Meter::new(rate(60, 60), many(3), clock);
        assert_eq!(meter.left(7), 3);
        for _ in 0..3 {
            meter.take(7).unwrap();
        }
        assert_eq!(meter.take(7), Err(Duration::from_secs(1)));
        assert_eq!((meter.left(7), meter.exhausted(7)), (0, Some(Duration::from_secs(1))));
        assert!(meter.take(8).is_ok(), "another key has its own");
        hand.fetch_add(1_000_000_000, Ordering::Relaxed);
        assert_eq!(meter.exhausted(7), None);
        meter.take(7).unwrap();
        meter.take(7).unwrap_err();
        meter.give_back(7);
        meter.take(7).unwrap();
        hand.fetch_add(3_600_000_000_000, Ordering::Relaxed);
        assert_eq!(meter.left(7), 3);
    }

    #[test]
    fn a_quota_begins_anew_with_the_calendar() {
        let (clock, hand) = clock();
        // 1000 s after the beginning of a day.
        let quota = Calendar::new(rate(2, 86_400), clock);
        quota.take(1).unwrap();
        quota.take(1).unwrap();
        assert_eq!(quota.take(1), Err(Duration::from_secs(85_400)));
        quota.give_back(1);
        assert_eq!(quota.left(1), 1);
        quota.take(1).unwrap();
        quota.take(2).unwrap();
        hand.fetch_add(85_400_000_000_000, Ordering::Relaxed);
        assert_eq!(quota.left(1), 2);
        quota.take(1).unwrap();
        assert_eq!(quota.keys(), 1, "what is of yesterday is dropped");
    }

    #[test]
    fn places_come_back() {
        let gauge = Gauge::new(many(2));
        let (one, _two) = (gauge.take(1).unwrap(), gauge.take(1).unwrap());
        assert!(gauge.take(1).is_none() && gauge.take(2).is_some());
        drop(one);
        assert_eq!(gauge.left(1), 1);
        assert!(gauge.take(1).is_some());
        for key in 0..100_000 {
            drop(gauge.take(key));
        }
        assert!(gauge.running.len() < 2000);
    }

    #[test]
    fn d32_a_million_keys_stay_within_the_bound_and_idle_ones_go() {
        let (clock, hand) = clock();
        let meter = Meter::new(rate(1, 3600), many(1), clock.clone());
        let quota = Calendar::new(rate(1, 86_400), clock);
        let mut admitted = 0;
        for key in 0..1_000_000u64 {
            let key = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            admitted += usize::from(meter.take(key).is_ok());
            let _ = quota.take(key);
        }
        assert!(meter.keys() <= MAX_KEYS && quota.keys() <= MAX_KEYS);
        assert!(admitted <= MAX_KEYS);
        hand.fetch_add(7_200_000_000_000, Ordering::Relaxed);
        for _ in 0..=SWEEP {
            let _ = meter.take(1);
        }
        assert_eq!(meter.keys(), 1);
    }

    #[test]
    fn d32_sixty_four_threads_are_not_given_more() {
        let (clock, hand) = clock();
        let meter = Meter::new(rate(1000, 1), many(50), clock);
        let admitted = AtomicU32::new(0);
        let begin = hand.load(Ordering::Relaxed);
        std::thread::scope(|scope| {
            for _ in 0..64 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        if meter.take(3).is_ok() {
                            admitted.fetch_add(1, Ordering::Relaxed);
                        }
                        hand.fetch_add(10_000, Ordering::Relaxed);
                    }
                });
            }
        });
        let elapsed = hand.load(Ordering::Relaxed) - begin;
        let bound = 50 + elapsed / 1_000_000;
        let admitted = u64::from(admitted.into_inner());
        assert!(admitted <= bound && admitted >= bound - 1, "{admitted} of {bound}");
    }

    proptest! {
        /// D-32: whatever comes when, no more is admitted than burst and rate allow; and what was given back counts not.
        #[test]
        fn d32_never_more_than_the_bound(
            (count, burst) in (1u32..20, 1u32..10),
            steps in prop::collection::vec((0u64..3_000_000_000, prop::bool::weighted(0.2)), 1..200),
        ) {
            let (clock, hand) = clock();
            let meter = Meter::new(rate(count, 1), many(burst), clock);
            let begin = hand.load(Ordering::Relaxed);
            let mut admitted = 0u64;
            for (step, back) in steps {
                hand.fetch_add(step, Ordering::Relaxed);
                if meter.take(1).is_ok() {
                    if back { meter.give_back(1) } else { admitted += 1 }
                }
                let elapsed = hand.load(Ordering::Relaxed) - begin;
                let each = 1_000_000_000 / u64::from(count);
                prop_assert!(admitted <= u64::from(burst) + elapsed / each);
            }
        }
    }
}
