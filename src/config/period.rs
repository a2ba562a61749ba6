//! Durations as people write them: `"250ms"`, `"30s"`, `"5m"`, `"1h"`, `"7d"`.
//!
//! Deliberately knows no bounds: those belong to the keys (`check`).

use std::borrow::Cow;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

const UNITS: [(&str, u64); 5] = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// Reads one duration: a whole number and a unit.
pub fn parse(text: &str) -> Option<Duration> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let (_, millis) = UNITS.iter().find(|(name, _)| *name == unit)?;
    Some(Duration::from_millis(number.checked_mul(*millis)?))
}

/// Writes one duration, so that reading it gives the same.
pub(super) fn text(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    // One whole unit stays in the smaller one (`60s`), as people write deadlines.
    let (name, unit) = UNITS
        .iter()
        .rev()
        .find(|(_, unit)| millis % unit == 0 && millis > *unit)
        .or_else(|| UNITS.iter().rev().find(|(_, unit)| millis % unit == 0))
        .copied()
        .unwrap_or(("ms", 1));
    format!("{}{name}", millis / unit)
}

/// A duration in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Period(pub Duration);

/// A duration or `"never"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PeriodOrNever(pub Option<Duration>);

impl Period {
    pub(super) const fn secs(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }
}

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = Cow::<'_, str>::deserialize(from)?;
        parse(&text).map(Self).ok_or_else(|| D::Error::custom("not a duration"))
    }
}

impl Serialize for Period {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&text(self.0))
    }
}

impl<'de> Deserialize<'de> for PeriodOrNever {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = Cow::<'_, str>::deserialize(from)?;
        if text == "never" {
            return Ok(Self(None));
        }
        parse(&text).map(|duration| Self(Some(duration))).ok_or_else(|| D::Error::custom("not a duration"))
    }
}

impl Serialize for PeriodOrNever {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.0.map_or_else(|| "never".to_owned(), text))
    }
}

impl JsonSchema for Period {
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "A whole number and a unit: `250ms`, `30s`, `5m`, `1h`, `7d`.",
            "pattern": "^[0-9]+(ms|s|m|h|d)$"
        })
    }
}

impl JsonSchema for PeriodOrNever {
    fn schema_name() -> Cow<'static, str> {
        "DurationOrNever".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "A whole number and a unit, or `never`.",
            "pattern": "^([0-9]+(ms|s|m|h|d)|never)$"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_are_read() {
        for (text, millis) in [("250ms", 250), ("30s", 30_000), ("5m", 300_000), ("1h", 3_600_000), ("2d", 172_800_000)]
        {
            assert_eq!(parse(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for bad in [
            "",
            "5",
            "s",
            "5x",
            "5 s",
            "-5s",
            "1.5s",
            "5S",
            "1h30m",
            "99999999999999999999s",
            "18446744073709551615d",
            "+5s",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
        assert_eq!(text(Duration::from_secs(60)), "60s");
        assert_eq!(text(Duration::from_secs(900)), "15m");
        assert_eq!(text(Duration::ZERO), "0d");
    }

    proptest! {
        #[test]
        fn written_durations_are_read_back(millis in 0u64..10_000_000_000) {
            let duration = Duration::from_millis(millis);
            prop_assert_eq!(parse(&text(duration)), Some(duration));
        }
    }
}
