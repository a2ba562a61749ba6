//! Moments as records and names of files have them: RFC 3339 in UTC.
//!
//! Deliberately reads no clock.

use std::io::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const DAY: u64 = 86_400;

/// A moment by the calendar.
struct Civil {
    year: i64,
    month: u64,
    day: u64,
    second: u64,
    milli: u32,
}

/// The day, counted from 1970-01-01.
pub(super) fn day(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() / DAY
}

/// Years are counted from March, so that a leap day is the last of its year, in eras of 400 years.
fn civil(time: SystemTime) -> Civil {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let days = (since.as_secs() / DAY) as i64 + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = (of_year - (153 * month + 2) / 5 + 1) as u64;
    let month = if month < 10 { month + 3 } else { month - 9 } as u64;
    let year = year + era * 400 + i64::from(month <= 2);
    Civil { year, month, day, second: since.as_secs() % DAY, milli: since.subsec_millis() }
}

/// Appends `2026-11-30T14:27:53.042Z`.
pub(super) fn push(out: &mut Vec<u8>, time: SystemTime) {
    let Civil { year, month, day, second, milli } = civil(time);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    // Writing into memory cannot fail.
    let _ = write!(out, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z");
}

/// Reads what [`push`] writes.
pub(super) fn read(text: &str) -> Option<SystemTime> {
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<u64>().ok();
    let (year, month, day) = (number(0, 4)? as i64, number(5, 7)? as i64, number(8, 10)? as i64);
    let (hour, minute, second, milli) = (number(11, 13)?, number(14, 16)?, number(17, 19)?, number(20, 23)?);
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    let seconds = u64::try_from(days).ok()? * DAY + hour * 3600 + minute * 60 + second;
    UNIX_EPOCH.checked_add(Duration::from_millis(seconds * 1000 + milli))
}

/// `20261130T142753Z`, for the name of a file.
pub(super) fn stamp(time: SystemTime) -> String {
    let Civil { year, month, day, second, .. } = civil(time);
    format!("{year:04}{month:02}{day:02}T{:02}{:02}{:02}Z", second / 3600, second / 60 % 60, second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_by_the_calendar() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (1_798_761_605_042, "2027-01-01T00:00:05.042Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            let mut out = Vec::new();
            let time = UNIX_EPOCH + Duration::from_millis(millis);
            push(&mut out, time);
            assert_eq!(read(text), Some(time));
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
        for bad in ["", "2026", "2026-11-30", "2026-11-30T14:27:53Z", "x026-11-30T14:27:53.042Z"] {
            assert_eq!(read(bad), None, "{bad}");
        }
        assert_eq!(stamp(UNIX_EPOCH + Duration::from_secs(1_798_761_605)), "20270101T000005Z");
    }
}
