//! One text for one JSON value (RFC 8785): what a hash is made of, and what a snapshot holds.
//!
//! Refuses what has no such text, or shares it with another value: a member twice, a lone surrogate, a number that is
//! not finite, an integer that a double does not carry exactly. No Unicode normalisation, no trimming: a look-alike
//! must make a difference. Knows nothing of definitions. Called by the rest of this room.

use std::fmt;

use serde::Serialize;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::map::Entry;
use serde_json::{Map, Value};

/// Why a text has no canonical form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotCanonical {
    /// Not JSON, too deep, a lone surrogate, a member twice, or a number past all doubles.
    #[error("it has no canonical form: {0}")]
    Text(String),
    /// An integer that would become another one.
    #[error("it has no canonical form: the integer {0} is not carried exactly by a double")]
    Integer(String),
    /// What was said of it before, by one of the others.
    #[error("{0}")]
    Told(String),
}

/// Reads a text strictly.
pub fn read(text: &[u8]) -> Result<Value, NotCanonical> {
    let mut reader = serde_json::Deserializer::from_slice(text);
    let fail = |error: serde_json::Error| NotCanonical::Text(error.to_string());
    let Strict(value) = Strict::deserialize(&mut reader).map_err(fail)?;
    reader.end().map_err(fail)?;
    exact(text)?;
    Ok(value)
}

/// The canonical text of a value.
pub fn text(value: &(impl Serialize + ?Sized)) -> Result<Vec<u8>, NotCanonical> {
    serde_json_canonicalizer::to_vec(&value).map_err(|error| NotCanonical::Text(error.to_string()))
}

/// A value without a member twice.
struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader).map(Self)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        serde_json::Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number that is not finite"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(Strict(element)) = elements.next_element()? {
            array.push(element);
        }
        Ok(array.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            let Entry::Vacant(place) = object.entry(key) else { return Err(A::Error::custom("a member twice")) };
            let Strict(value) = members.next_value()?;
            place.insert(value);
        }
        Ok(object.into())
    }
}

/// Whether every integer of a valid text stays what it is, in whatever form it is written.
fn exact(text: &[u8]) -> Result<(), NotCanonical> {
    let mut at = 0;
    while at < text.len() {
        match text[at] {
            b'"' => {
                at += 1;
                while text[at] != b'"' {
                    at += if text[at] == b'\\' { 2 } else { 1 };
                }
                at += 1;
            }
            b'-' | b'0'..=b'9' => {
                let rest = &text[at..];
                let is_part = |b: &u8| matches!(b, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9');
                let length = rest.iter().position(|b| !is_part(b)).unwrap_or(rest.len());
                let number = std::str::from_utf8(&rest[..length]).unwrap_or_default();
                if !is_exact(number) {
                    return Err(NotCanonical::Integer(number.chars().take(40).collect()));
                }
                at += length;
            }
            _ => at += 1,
        }
    }
    Ok(())
}

/// Whether a valid number is no integer, or one that a double carries exactly. With a fraction or an exponent it is
/// written as a double, so that the shortest text of that double is exact as well.
fn is_exact(number: &str) -> bool {
    // So many digits always fit, whatever they are.
    if number.len() <= 15 && number.bytes().all(|b| b.is_ascii_digit()) {
        return true;
    }
    let number = number.trim_start_matches('-');
    let Some((digits, zeros)) = parts(number) else { return true };
    let Ok(double) = number.parse::<f64>() else { return false };
    if number.contains(['.', 'e', 'E']) && parts(&format!("{double:e}")) == Some((digits.clone(), zeros)) {
        return true;
    }
    // Longer than any finite one: the reader refused it. Less than one: no integer.
    !(0..400).contains(&zeros) || format!("{double:.0}") == format!("{digits}{}", "0".repeat(zeros as usize))
}

/// The significant digits of a number without sign, and how many zeros follow them; nothing for zero, and for what is
/// smaller than any double.
fn parts(number: &str) -> Option<(String, i64)> {
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    let significant = digits.trim_end_matches('0');
    let exponent: i64 = exponent.trim_start_matches('+').parse().ok()?;
    let zeros = (digits.len() - significant.len()) as i64 + exponent.checked_sub(fraction.len() as i64)?;
    (!significant.is_empty()).then(|| (significant.to_owned(), zeros))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(input: &str) -> String {
        String::from_utf8(text(&read(input.as_bytes()).unwrap()).unwrap()).unwrap()
    }

    #[test]
    fn the_vectors_of_rfc_8785_hold() {
        // §3.2.2 and §3.2.3.
        let input = r#"{
            "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
            "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
            "literals": [null, true, false]
        }"#;
        assert_eq!(
            canonical(input),
            "{\"literals\":[null,true,false],\"numbers\":[333333333.3333333,1e+30,4.5,0.002,1e-27],\
             \"string\":\"€$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"}"
        );
        // Sorted by UTF-16 code units, not by code points: U+1F600 stands before U+FB33.
        let input = r#"{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One",
            "\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}"#;
        assert_eq!(
            canonical(input),
            "{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\u{80}\":\"Control\",\"ö\":\"Latin Small Letter O With \
             Diaeresis\",\"€\":\"Euro Sign\",\"😀\":\"Emoji: Grinning Face\",\"\u{fb33}\":\"Hebrew Letter Dalet With \
             Dagesh\"}"
        );
    }

    #[test]
    fn the_numbers_of_rfc_8785_hold() {
        // Appendix B: the bits of a double and its text.
        for (bits, expected) in [
            (0x0000000000000000_u64, "0"),
            (0x8000000000000000, "0"),
            (0x0000000000000001, "5e-324"),
            (0x8000000000000001, "-5e-324"),
            (0x7fefffffffffffff, "1.7976931348623157e+308"),
            (0xffefffffffffffff, "-1.7976931348623157e+308"),
            (0x4340000000000000, "9007199254740992"),
            (0xc340000000000000, "-9007199254740992"),
            (0x4430000000000000, "295147905179352830000"),
            (0x44b52d02c7e14af5, "9.999999999999997e+22"),
            (0x44b52d02c7e14af6, "1e+23"),
            (0x44b52d02c7e14af7, "1.0000000000000001e+23"),
            (0x444b1ae4d6e2ef4e, "999999999999999700000"),
            (0x444b1ae4d6e2ef4f, "999999999999999900000"),
            (0x444b1ae4d6e2ef50, "1e+21"),
            (0x3eb0c6f7a0b5ed8c, "9.999999999999997e-7"),
            (0x3eb0c6f7a0b5ed8d, "0.000001"),
            (0x41b3de4355555553, "333333333.3333332"),
            (0x41b3de4355555554, "333333333.33333325"),
            (0x41b3de4355555555, "333333333.3333333"),
            (0x41b3de4355555556, "333333333.3333334"),
            (0x41b3de4355555557, "333333333.33333343"),
            (0xbecbf647612f3696, "-0.0000033333333333333333"),
            (0x43143ff3c1cb0959, "1424953923781206.2"),
        ] {
            let number = serde_json::Number::from_f64(f64::from_bits(bits)).unwrap();
            let text = String::from_utf8(text(&Value::Number(number)).unwrap()).unwrap();
            assert_eq!(text, expected, "{bits:016x}");
            // And what was written so is read as that again.
            if is_exact(expected) {
                assert_eq!(canonical(expected), expected);
            }
        }
    }

    #[test]
    fn what_has_no_form_of_its_own_is_refused() {
        for odd in [
            r#"{"a":1,"a":1}"#,
            r#"{"x":[{"a":1,"\u0061":2}]}"#,
            r#""\ud800""#,
            r#"{"\udc00":1}"#,
            "1e400",
            "-1e400",
            "9007199254740993",
            "-9007199254740993",
            "9007199254740993.0",
            "900719925474099300e-2",
            "9007199254740993e0",
            "100000000000000000000001",
            "18446744073709551615",
            "[1,",
            "",
            "1 2",
            "\u{feff}1",
        ] {
            assert!(read(odd.as_bytes()).is_err(), "{odd}");
        }
        for good in ["9007199254740992", "9007199254740994", "1e21", "100000000000000000000", "-0", "0.1", "1e-400"] {
            assert!(read(good.as_bytes()).is_ok(), "{good}");
        }
        let deep = "[".repeat(200) + &"]".repeat(200);
        assert!(read(deep.as_bytes()).is_err());
    }

    #[test]
    fn what_is_the_same_value_has_the_same_text() {
        for (one, other) in [
            (r#"{"a":1,"b":[1,2]}"#, "{ \"b\" : [ 1 , 2 ]\n,\"\\u0061\":1.0}"),
            ("1", "1.0"),
            ("100", "1e2"),
            ("\"é\"", "\"\\u00e9\""),
            ("\"/\"", "\"\\/\""),
        ] {
            assert_eq!(canonical(one), canonical(other));
        }
        for (one, other) in [("1", "\"1\""), ("\"é\"", "\"e\u{301}\""), ("[1,2]", "[2,1]"), ("\"a\"", "\" a\"")] {
            assert_ne!(canonical(one), canonical(other));
        }
    }
}
