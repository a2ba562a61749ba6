//! Sizes as people write them: `"64KiB"`, `"10MiB"`, `"1GiB"`, `"4096B"`.
//!
//! Deliberately knows no bounds but those of its keys.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use crate::shown::shown_str as shown;

const UNITS: [(&str, u64); 4] = [("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];

/// A size in a file, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size(pub u64);

/// Reads one size: a whole number and a unit.
fn parse(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let (_, bytes) = UNITS.iter().find(|(name, _)| *name == unit)?;
    number.checked_mul(*bytes)
}

/// Writes one size, so that reading it gives the same.
fn text(bytes: u64) -> String {
    let (name, unit) = UNITS.iter().rev().find(|(_, unit)| bytes.is_multiple_of(*unit)).copied().unwrap_or(("B", 1));
    format!("{}{name}", bytes / unit)
}

/// Why a text is no bound for an answer.
pub(super) fn result_problem(written: &str) -> Option<String> {
    problem(written, 1 << 10, 1 << 30)
}

/// Why a text is no bound for a message of a host: as much of its requests as may run must hold one.
pub(super) fn message_problem(written: &str) -> Option<String> {
    problem(written, 64 << 10, 64 << 20)
}

/// Why a text is no bound for a definition.
pub(super) fn definition_problem(written: &str) -> Option<String> {
    problem(written, 1 << 10, 16 << 20)
}

/// Why a text is no bound for a list.
pub(super) fn list_problem(written: &str) -> Option<String> {
    problem(written, 64 << 10, 256 << 20)
}

fn problem(written: &str, min: u64, max: u64) -> Option<String> {
    match parse(written) {
        None => Some(format!("`{}` is not a size; write for example `64KiB`, `10MiB`", shown(written))),
        Some(bytes) if (min..=max).contains(&bytes) => None,
        Some(_) => Some(format!("`{}` is not within {} to {}", shown(written), text(min), text(max))),
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = Cow::<'_, str>::deserialize(from)?;
        parse(&text).map(Self).ok_or_else(|| D::Error::custom("not a size"))
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&text(self.0))
    }
}

impl JsonSchema for Size {
    fn schema_name() -> Cow<'static, str> {
        "Size".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "A whole number and a unit: `4096B`, `64KiB`, `10MiB`, `1GiB`.",
            "pattern": "^[0-9]+(B|KiB|MiB|GiB)$"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_written_back() {
        for (written, bytes) in [("4096B", 4096), ("64KiB", 64 << 10), ("10MiB", 10 << 20), ("1GiB", 1 << 30)] {
            assert_eq!(parse(written), Some(bytes), "{written}");
            assert_eq!(parse(&text(bytes)), Some(bytes), "{written}");
        }
        for bad in ["", "10", "MiB", "10MB", "10 MiB", "-1B", "1.5MiB", "10mib", "99999999999GiB", "+1B"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
        assert_eq!(text(32 << 20), "32MiB");
    }

    #[test]
    fn the_bound_of_an_answer_is_bounded() {
        assert_eq!(result_problem("1KiB"), None);
        assert!(result_problem("1B").is_some_and(|why| why.contains("not within 1KiB to 1GiB")));
        assert!(result_problem("2GiB").is_some() && result_problem("lots").is_some());
    }
}
