//! `time` of a rule: days of the week and hours of the day, in a stated zone.
//!
//! A zone is an offset from UTC: what holds must not hang on which zone this machine is set to. Deliberately knows no
//! clock. Called by `schema` and `rules`.

use super::settings::TimeWindow;
use crate::shown::shown_str as shown;

const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
/// Minutes of a day.
const DAY: u16 = 24 * 60;

/// Why a text names no days.
pub(super) fn days_problem(text: &str) -> Option<String> {
    days(text)
        .is_none()
        .then(|| format!("`{}` names no day: mon, tue, wed, thu, fri, sat, sun, or two with `-` between", shown(text)))
}

/// Why a text is no stretch of a day.
pub(super) fn hours_problem(text: &str) -> Option<String> {
    hours(text).is_none().then(|| {
        format!(
            "`{}` is no stretch of a day: write for example `08:00-18:00`, or `22:00-06:00` past midnight",
            shown(text)
        )
    })
}

/// Why a text is no zone.
pub(super) fn zone_problem(text: &str) -> Option<String> {
    zone(text).is_none().then(|| {
        format!("`{}` is no zone: write the offset from UTC, `+01:00` or `-05:30`, or `Z` for UTC itself", shown(text))
    })
}

/// The window that these say, all of them checked; without days it is every day, without hours the whole day.
pub(super) fn window(written: &[String], stretch: Option<&str>, offset: &str) -> Option<TimeWindow> {
    let mut all = [written.is_empty(); 7];
    for text in written {
        let named = days(text)?;
        all.iter_mut().zip(named).for_each(|(day, named)| *day |= named);
    }
    let (from, to) = match stretch {
        Some(text) => hours(text)?,
        None => (0, DAY),
    };
    Some(TimeWindow { days: all, from, to, offset: zone(offset)? })
}

fn days(text: &str) -> Option<[bool; 7]> {
    let day = |text: &str| DAYS.iter().position(|day| *day == text);
    let (first, last) = match text.split_once('-') {
        Some((first, last)) => (day(first)?, day(last)?),
        None => (day(text)?, day(text)?),
    };
    let mut named = [false; 7];
    let length = (last + 7 - first) % 7;
    (0..=length).for_each(|n| named[(first + n) % 7] = true);
    Some(named)
}

fn hours(text: &str) -> Option<(u16, u16)> {
    let (from, to) = text.split_once('-')?;
    let (from, to) = (minute(from)?, minute(to)?);
    (from != to && from < DAY && to > 0).then_some((from, to))
}

/// `08:30`, up to `24:00`.
fn minute(text: &str) -> Option<u16> {
    let (hour, minute) = text.split_once(':')?;
    let number = |text: &str| (text.len() == 2 && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok());
    let (hour, minute): (u16, u16) = (number(hour)??, number(minute)??);
    let all = hour * 60 + minute;
    (minute < 60 && all <= DAY).then_some(all)
}

/// Minutes before UTC's clock.
fn zone(text: &str) -> Option<i16> {
    if matches!(text, "Z" | "UTC") {
        return Some(0);
    }
    let (sign, rest) = match text.as_bytes().first()? {
        b'+' => (1, &text[1..]),
        b'-' => (-1, &text[1..]),
        _ => return None,
    };
    let offset = i16::try_from(minute(rest)?).ok()?;
    (offset <= 14 * 60).then_some(sign * offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_hours_and_zones_are_read() {
        let named = |text| days(text).map(|days| days.iter().filter(|day| **day).count());
        for (text, count) in
            [("mon", 1), ("mon-fri", 5), ("sat-sun", 2), ("fri-mon", 4), ("mon-sun", 7), ("sun-sat", 7)]
        {
            assert_eq!(named(text), Some(count), "{text}");
        }
        for bad in ["", "Mon", "monday", "mon-", "mon-fri-sat", "1"] {
            assert!(days_problem(bad).is_some(), "{bad}");
        }
        assert_eq!(hours("08:00-18:30"), Some((480, 1110)));
        assert_eq!(hours("22:00-06:00"), Some((1320, 360)));
        assert_eq!(hours("00:00-24:00"), Some((0, 1440)));
        for bad in [
            "",
            "8:00-18:00",
            "08:00",
            "08:00-08:00",
            "24:00-01:00",
            "08:60-09:00",
            "08:00-25:00",
            "22:00-00:00",
            "+8:00-18:00",
        ] {
            assert!(hours_problem(bad).is_some(), "{bad}");
        }
        for (text, offset) in [("Z", 0), ("UTC", 0), ("+01:00", 60), ("-05:30", -330), ("+14:00", 840)] {
            assert_eq!(zone(text), Some(offset), "{text}");
        }
        for bad in ["", "CET", "Europe/Berlin", "01:00", "+1", "+15:00", "é"] {
            assert!(zone_problem(bad).is_some(), "{bad}");
        }
        let window = window(&["sat".into(), "sun".into()], None, "Z").unwrap();
        assert_eq!((window.days[4..].to_vec(), window.from, window.to), (vec![false, true, true], 0, 1440));
    }
}
