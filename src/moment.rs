//! Moments and days by the calendar, read and written: RFC 3339.
//!
//! The only place that counts days. Written is UTC alone; where a date is read, it is the first moment of that day in UTC.
//! Deliberately reads no clock. Used by `config` for what people write, by `telemetry` for records and names of files, by the
//! commands.

use std::io::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use toml_edit::{Datetime, Offset};

const DAY: u64 = 86_400;
/// From the first of March of the year 0 to 1970-01-01.
const TO_1970: i64 = 719_468;
/// Days of 400 years.
const ERA: i64 = 146_097;

/// Reads `2027-01-01` or `2027-01-01T12:00:00Z`, with any offset and fraction; from 1970 on.
pub fn parse(text: &str) -> Option<SystemTime> {
    let read: Datetime = text.parse().ok()?;
    let date = read.date?;
    let days = days(i64::from(date.year), i64::from(date.month), i64::from(date.day));
    let (seconds, nanos) = match (read.time, read.offset) {
        (None, None) => (0, 0),
        (Some(time), Some(offset)) => {
            let offset = match offset {
                Offset::Z => 0,
                Offset::Custom { minutes } => i64::from(minutes) * 60,
            };
            let second = i64::from(time.second.unwrap_or(0));
            let seconds = i64::from(time.hour) * 3600 + i64::from(time.minute) * 60 + second - offset;
            (seconds, time.nanosecond.unwrap_or(0))
        }
        // Without an offset nobody knows when that is.
        (Some(_), None) | (None, Some(_)) => return None,
    };
    let seconds = u64::try_from(days * DAY.cast_signed() + seconds).ok()?;
    UNIX_EPOCH.checked_add(Duration::new(seconds, nanos))
}

/// Appends `2026-11-30T14:27:53.042Z`; two moments are ordered as their texts are.
pub fn push(out: &mut Vec<u8>, time: SystemTime) {
    let (year, month, day) = date_of(time);
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (hour, minute, second) = clock_of(since);
    let milli = since.subsec_millis();
    // Writing into memory cannot fail.
    let _ = write!(out, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z");
}

/// What [`push`] appends.
pub fn text(time: SystemTime) -> String {
    let mut out = Vec::with_capacity(24);
    push(&mut out, time);
    String::from_utf8_lossy(&out).into_owned()
}

/// `20261130T142753Z`, for the name of a file.
pub fn stamp(time: SystemTime) -> String {
    let (year, month, day) = date_of(time);
    let (hour, minute, second) = clock_of(time.duration_since(UNIX_EPOCH).unwrap_or_default());
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

/// `2026-11-30`.
pub fn date(time: SystemTime) -> String {
    let (year, month, day) = date_of(time);
    format!("{year:04}-{month:02}-{day:02}")
}

/// The day, counted from 1970-01-01.
pub fn day(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() / DAY
}

/// Hour, minute and second of the day.
fn clock_of(since: Duration) -> (u64, u64, u64) {
    let second = since.as_secs() % DAY;
    (second / 3600, second / 60 % 60, second % 60)
}

/// Days from 1970-01-01 to a date of the Gregorian calendar. Years are counted from March, so that a leap day is the
/// last of its year, in eras of 400 years.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * ERA + of_era * 365 + of_era / 4 - of_era / 100 + of_year - TO_1970
}

/// The way back: year, month, day.
fn date_of(time: SystemTime) -> (i64, i64, i64) {
    let days = day(time).cast_signed() + TO_1970;
    let (era, of_era) = (days.div_euclid(ERA), days.rem_euclid(ERA));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read() {
        let at = |seconds| Some(UNIX_EPOCH + Duration::from_secs(seconds));
        for (text, seconds) in [
            ("1970-01-01", 0),
            ("2000-02-29", 951_782_400),
            ("2000-03-01", 951_868_800),
            ("2027-01-01", 1_798_761_600),
            ("2027-01-01T00:00:00Z", 1_798_761_600),
            ("2027-01-01T02:30:05+02:30", 1_798_761_605),
            ("2026-12-31T23:00:00-01:00", 1_798_761_600),
            ("2100-03-01", 4_107_542_400),
        ] {
            assert_eq!(parse(text), at(seconds), "{text}");
        }
        for bad in [
            "",
            "2027",
            "2027-13-01",
            "2027-02-30",
            "12:00:00",
            "2027-01-01T00:00:00",
            "soon",
            "1969-12-31",
            "x026-11-30T14:27:53.042Z",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn moments_are_written_by_the_calendar() {
        for (millis, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (1_798_761_605_042, "2027-01-01T00:00:05.042Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            let time = UNIX_EPOCH + Duration::from_millis(millis);
            assert_eq!(text(time), expected);
            assert_eq!(parse(expected), Some(time));
            assert_eq!(date(time), expected[..10]);
        }
        assert_eq!(stamp(UNIX_EPOCH + Duration::from_secs(1_798_761_605)), "20270101T000005Z");
    }

    #[test]
    fn every_day_is_read_as_it_is_written() {
        for day_of in 0..365 * 500 {
            let time = UNIX_EPOCH + Duration::from_secs(day_of * DAY);
            assert_eq!((parse(&date(time)), day(time)), (Some(time), day_of));
        }
    }
}
