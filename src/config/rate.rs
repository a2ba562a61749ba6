//! Rates as people write them: `"60/min"`, `"5/s"`, `"500/d"`.
//!
//! Deliberately knows no bounds but those that a rate needs to mean something.

use std::borrow::Cow;
use std::num::NonZeroU32;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use super::settings::Rate;
use crate::shown::shown_str as shown;

const UNITS: [(&str, u64); 4] = [("s", 1), ("min", 60), ("h", 3600), ("d", 86_400)];

/// A rate in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Written(pub Rate);

/// Reads one: a whole number, `/`, a unit.
fn parse(text: &str) -> Option<Rate> {
    let (number, unit) = text.split_once('/')?;
    let plain = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let count: NonZeroU32 = number.parse().ok().filter(|_| plain)?;
    let (_, seconds) = UNITS.iter().find(|(name, _)| *name == unit)?;
    // More in a second than there are nanoseconds cannot be told apart.
    (count.get() <= 1_000_000_000).then_some(Rate { count, per: Duration::from_secs(*seconds) })
}

/// Why a burst is none of this rate: what is charged ahead must come back in a time that somebody waits for, and that
/// can be counted in nanoseconds.
pub(super) fn burst_problem(rate: Rate, burst: u32) -> Option<String> {
    const LONGEST_DAYS: u128 = 366;
    let days = rate.per.as_nanos() / u128::from(rate.count.get()) * u128::from(burst) / (86_400 * 1_000_000_000);
    (days > LONGEST_DAYS)
        .then(|| format!("a burst of {burst} at {rate} comes back in {days} days; {LONGEST_DAYS} at most"))
}

/// Why a text is no rate.
pub(super) fn problem(text: &str) -> Option<String> {
    parse(text)
        .is_none()
        .then(|| format!("`{}` is not a rate; write for example `5/s`, `60/min`, `1000/h`, `500/d`", shown(text)))
}

impl<'de> Deserialize<'de> for Written {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = Cow::<'_, str>::deserialize(from)?;
        parse(&text).map(Self).ok_or_else(|| D::Error::custom("not a rate"))
    }
}

impl Serialize for Written {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.0.to_string())
    }
}

impl JsonSchema for Written {
    fn schema_name() -> Cow<'static, str> {
        "Rate".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "A whole number per unit: `5/s`, `60/min`, `1000/h`, `500/d`.",
            "pattern": "^[0-9]+/(s|min|h|d)$"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_and_written() {
        for (text, count, seconds) in [("5/s", 5, 1), ("60/min", 60, 60), ("1/h", 1, 3600), ("500/d", 500, 86_400)] {
            let rate = parse(text).unwrap();
            assert_eq!((rate.count.get(), rate.per.as_secs()), (count, seconds), "{text}");
            assert_eq!(rate.to_string(), text);
        }
        for bad in ["", "5", "/s", "0/s", "-1/s", "+1/s", "5/m", "5/sec", "5 /s", "1.5/s", "5/s ", "9999999999/s"] {
            assert!(problem(bad).is_some(), "{bad}");
        }
    }
}
