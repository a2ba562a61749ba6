//! Moments as people write them: `"2027-01-01"` or `"2027-01-01T12:00:00Z"` (RFC 3339).
//!
//! A date is the first moment of that day in UTC. Deliberately knows no clock.

use std::time::{Duration, SystemTime};

use toml_edit::{Datetime, Offset};

use crate::shown::shown_str as shown;

/// Why a text is no moment.
pub(super) fn problem(text: &str) -> Option<String> {
    parse(text)
        .is_none()
        .then(|| format!("`{}` is not a date; write for example `2027-01-01` or `2027-01-01T12:00:00Z`", shown(text)))
}

/// Reads one moment; from 1970 on.
pub fn parse(text: &str) -> Option<SystemTime> {
    let read: Datetime = text.parse().ok()?;
    let date = read.date?;
    let days = days(i64::from(date.year), i64::from(date.month), i64::from(date.day));
    let seconds = match (read.time, read.offset) {
        (None, None) => 0,
        (Some(time), Some(offset)) => {
            let offset = match offset {
                Offset::Z => 0,
                Offset::Custom { minutes } => i64::from(minutes) * 60,
            };
            let second = i64::from(time.second.unwrap_or(0));
            i64::from(time.hour) * 3600 + i64::from(time.minute) * 60 + second - offset
        }
        // Without an offset nobody knows when that is.
        (Some(_), None) | (None, Some(_)) => return None,
    };
    let seconds = u64::try_from(days * 86_400 + seconds).ok()?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

/// Days from 1970-01-01 to a date of the Gregorian calendar. Years are counted from March, so that a leap day is the
/// last of its year, in eras of 400 years.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read() {
        let at = |seconds| Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
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
        for bad in ["", "2027", "2027-13-01", "2027-02-30", "12:00:00", "2027-01-01T00:00:00", "soon", "1969-12-31"] {
            assert_eq!(parse(bad), None, "{bad}");
            assert!(problem(bad).is_some());
        }
    }
}
