//! Rules that hold at certain times: which of them do now, and when that changes next.
//!
//! Each different time of the configuration is one bit of a [`Phase`]; what was found out in one phase holds for all of it.
//! The time comes in. Knows no rule.

use std::time::Duration;

use crate::config::settings::TimeWindow;

/// Different times, at most: the bits of a phase.
const MAX: usize = 64;
const DAY: i64 = 86_400;
const MINUTE: i64 = 60;

/// Which times it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Phase(u64);

impl Phase {
    /// Whether it is this time.
    pub(super) fn has(self, time: TimeId) -> bool {
        self.0 >> time.0 & 1 == 1
    }

    /// As a number, to be compared.
    pub fn number(self) -> u64 {
        self.0
    }
}

/// A time, by its place among all different ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimeId(u8);

/// All different times.
#[derive(Debug, Default)]
pub(super) struct Times(Vec<TimeWindow>);

impl Times {
    /// Takes one in; nothing when there are too many.
    pub(super) fn add(&mut self, window: &TimeWindow) -> Option<TimeId> {
        let at = self.0.iter().position(|known| known == window).unwrap_or_else(|| {
            self.0.push(window.clone());
            self.0.len() - 1
        });
        (at < MAX).then(|| TimeId(u8::try_from(at).unwrap_or(u8::MAX)))
    }

    /// Whether the time means anything.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Which times it is; `now` is since 1970.
    pub(super) fn phase(&self, now: Duration) -> Phase {
        let bit = |(at, window): (usize, &TimeWindow)| u64::from(holds(window, now)) << at;
        Phase(self.0.iter().take(MAX).enumerate().map(bit).fold(0, |all, bit| all | bit))
    }

    /// After which time it may be another phase.
    pub(super) fn change(&self, now: Duration) -> Option<Duration> {
        let second = seconds(now);
        let marks = self.0.iter().flat_map(|window| {
            let local = (second + i64::from(window.offset) * MINUTE).rem_euclid(DAY);
            [0, i64::from(window.from) * MINUTE, i64::from(window.to) * MINUTE].map(|mark| {
                let left = (mark - local).rem_euclid(DAY);
                if left == 0 { DAY } else { left }
            })
        });
        let left = marks.min()?;
        Some(Duration::from_secs(left.unsigned_abs()) - Duration::from_nanos(u64::from(now.subsec_nanos())))
    }
}

fn seconds(now: Duration) -> i64 {
    i64::try_from(now.as_secs()).unwrap_or(i64::MAX / 2)
}

fn holds(window: &TimeWindow, now: Duration) -> bool {
    let local = seconds(now) + i64::from(window.offset) * MINUTE;
    // The first of January 1970 was a Thursday, weeks begin on Monday.
    let weekday = |day: i64| usize::try_from((day + 3).rem_euclid(7)).is_ok_and(|day| window.days[day]);
    let (day, minute) = (local.div_euclid(DAY), local.rem_euclid(DAY) / MINUTE);
    let (from, to) = (i64::from(window.from), i64::from(window.to));
    if from < to {
        return weekday(day) && (from..to).contains(&minute);
    }
    // Past midnight: the hours after it belong to the day before.
    weekday(day) && minute >= from || weekday(day - 1) && minute < to
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [bool; 7] = [true; 7];
    const WORKDAYS: [bool; 7] = [true, true, true, true, true, false, false];

    fn window(days: [bool; 7], from: u16, to: u16, offset: i16) -> TimeWindow {
        TimeWindow { days, from: from * 60, to: to * 60, offset }
    }

    /// Monday, 30 November 2026, at this hour and minute in UTC, so many days later.
    fn at(days: u64, hour: u64, minute: u64) -> Duration {
        Duration::from_secs(1_796_005_200 - 1_796_005_200 % 86_400 + days * 86_400 + hour * 3600 + minute * 60)
    }

    #[test]
    fn times_hold_by_day_hour_and_zone() {
        let office = window(WORKDAYS, 8, 18, 60);
        for (now, expected) in [
            (at(0, 6, 59), false),
            (at(0, 7, 0), true),
            (at(0, 16, 59), true),
            (at(0, 17, 0), false),
            (at(4, 12, 0), true),
            (at(5, 12, 0), false),
            (at(6, 12, 0), false),
            (at(7, 12, 0), true),
        ] {
            assert_eq!(holds(&office, now), expected, "{now:?}");
        }
        // A night belongs to the day on which it begins; a zone moves the day.
        let night = window([false, false, false, false, true, false, false], 22, 6, 0);
        for (now, expected) in [
            (at(3, 23, 0), false),
            (at(4, 5, 0), false),
            (at(4, 22, 0), true),
            (at(5, 5, 59), true),
            (at(5, 6, 0), false),
            (at(5, 23, 0), false),
        ] {
            assert_eq!(holds(&night, now), expected, "{now:?}");
        }
        let monday = window([true, false, false, false, false, false, false], 0, 24, -300);
        assert!(!holds(&monday, at(0, 4, 59)) && holds(&monday, at(0, 5, 0)) && holds(&monday, at(1, 4, 59)));
        assert!(!holds(&monday, at(1, 5, 0)));
    }

    #[test]
    fn a_phase_lasts_until_its_change() {
        let mut times = Times::default();
        assert_eq!((times.change(at(0, 0, 0)), times.phase(at(0, 0, 0))), (None, Phase::default()));
        let office = times.add(&window(WORKDAYS, 8, 18, 60)).unwrap();
        let night = times.add(&window(ALL, 22, 6, -210)).unwrap();
        assert_eq!(times.add(&window(WORKDAYS, 8, 18, 60)), Some(office), "the same is the same");
        assert!(times.phase(at(0, 12, 0)).has(office) && !times.phase(at(0, 12, 0)).has(night));
        // From change to change the phase is one, for two weeks.
        let mut now = at(0, 0, 0) + Duration::from_millis(500);
        let mut changes = 0;
        while now < at(14, 0, 0) {
            let next = times.change(now).unwrap();
            assert!(next > Duration::ZERO && next <= Duration::from_secs(86_400));
            let phase = times.phase(now);
            for part in 1..8 {
                assert_eq!(times.phase(now + next * part / 8), phase, "{now:?}");
            }
            changes += usize::from(now + next < at(14, 0, 0) && times.phase(now + next) != phase);
            now += next;
        }
        assert_eq!(changes, 48, "ten office days and fourteen nights begin and end");
        for n in 0..62 {
            assert!(times.add(&TimeWindow { days: ALL, from: n, to: n + 1, offset: 0 }).is_some());
        }
        assert_eq!(times.add(&TimeWindow { days: ALL, from: 700, to: 701, offset: 0 }), None, "too many");
    }
}
