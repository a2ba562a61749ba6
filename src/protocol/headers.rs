//! Values of a request's body that its HTTP headers repeat: `Mcp-Name` and `Mcp-Param-*` (HDR-2 … HDR-4).
//!
//! Both sides of one rule, so that what we write is what we would take: towards servers the headers are made from
//! the arguments, of hosts they are compared with them. Knows no schema; which parameters are repeated is told by
//! `catalog`, which reads them out of input schemas. Called by `downstream` and `upstream`.

use std::borrow::Cow;

use data_encoding::BASE64;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::json;

/// What the names of headers for parameters begin with.
pub const PARAM_PREFIX: &str = "mcp-param-";
/// What stands around a value that a header cannot hold as it is.
const OPEN: &str = "=?base64?";
const CLOSE: &str = "?=";

/// A parameter of a tool that a header repeats (XMH-1, XMH-3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderParam {
    /// `Mcp-Param-…`.
    pub header: HeaderName,
    /// The names of the properties that lead to it from the root of the arguments.
    pub path: Vec<String>,
}

/// A text as the value of such a header: plain where that can be, else behind the sentinel (HDR-3).
pub fn encode_name(raw: &str) -> HeaderValue {
    let blank_edge = raw.starts_with(' ') || raw.ends_with(' ');
    let looks_encoded = raw.starts_with(OPEN) && raw.ends_with(CLOSE);
    let plain = raw.bytes().all(|byte| matches!(byte, b' '..=b'~')) && !blank_edge && !looks_encoded;
    let encoded =
        if plain { Cow::Borrowed(raw) } else { [OPEN, &BASE64.encode(raw.as_bytes()), CLOSE].concat().into() };
    HeaderValue::from_str(&encoded).expect("invariant: visible ASCII and inner blanks only")
}

/// The text of such a header; `None` where it is none: not ASCII, a broken sentinel (HDR-2, HDR-3).
pub fn decode_name(value: &HeaderValue) -> Option<Cow<'_, str>> {
    let text = value.to_str().ok()?;
    let Some(inside) = text.strip_prefix(OPEN).and_then(|rest| rest.strip_suffix(CLOSE)) else {
        return Some(Cow::Borrowed(text));
    };
    let decoded = BASE64.decode(inside.as_bytes()).ok()?;
    String::from_utf8(decoded).ok().map(Cow::Owned)
}

/// The headers that repeat these arguments, a raw JSON object. What is absent or `null` has none, nor has what is
/// neither text nor number nor boolean.
pub fn values(params: &[HeaderParam], arguments: Option<&[u8]>) -> Vec<(HeaderName, HeaderValue)> {
    let text = |param: &HeaderParam| match find(arguments?, &param.path).ok()?? {
        Value::Text(text) => Some(encode_name(&text)),
        Value::Number(raw) => HeaderValue::from_str(&decimal(raw)).ok(),
        Value::Boolean(value) => Some(HeaderValue::from_static(if value { "true" } else { "false" })),
        Value::Other => None,
    };
    params.iter().filter_map(|param| Some((param.header.clone(), text(param)?))).collect()
}

/// Whether the headers say what the arguments say; the fault names a header and never a value (XMH-5).
pub fn check(params: &[HeaderParam], headers: &HeaderMap, arguments: Option<&[u8]>) -> Result<(), String> {
    for HeaderParam { header, path } in params {
        let mut given = headers.get_all(header).iter();
        let first = given.next();
        if given.any(|other| Some(other) != first) {
            return Err(format!("the header {header} is there twice, with different values"));
        }
        let value = match arguments {
            Some(arguments) => {
                find(arguments, path).map_err(|Twice| format!("the parameter of {header} is there twice"))?
            }
            None => None,
        };
        match (first, value) {
            (None, None | Some(Value::Other)) => {}
            (None, Some(_)) => return Err(format!("the header {header} is missing")),
            (Some(_), None) => return Err(format!("the header {header} repeats a parameter that is not there")),
            (Some(first), Some(value)) => {
                let text = decode_name(first).ok_or_else(|| format!("the header {header} cannot be decoded"))?;
                if !value.equals(&text) {
                    return Err(format!("the header {header} is not what the parameter is"));
                }
            }
        }
    }
    Ok(())
}

/// A value that may be repeated.
enum Value<'a> {
    Text(Cow<'a, str>),
    /// As it is written in the body.
    Number(&'a str),
    Boolean(bool),
    /// An object, an array, or text that is no Unicode.
    Other,
}

impl Value<'_> {
    /// HDR-4: numbers by value, all else by text.
    fn equals(&self, header: &str) -> bool {
        match self {
            Self::Text(text) => text == header,
            Self::Number(raw) => *raw == header || same_number(raw, header),
            Self::Boolean(value) => header == if *value { "true" } else { "false" },
            Self::Other => false,
        }
    }
}

/// A member on the way to a parameter stands twice: readers would disagree on which counts (E-23).
struct Twice;

/// The value at a path; `None` when it is absent or `null`.
fn find<'a>(arguments: &'a [u8], path: &[String]) -> Result<Option<Value<'a>>, Twice> {
    let mut at = arguments;
    for name in path {
        let mut found = json::members(at).filter(|entry| entry.is(name));
        let Some(entry) = found.next() else { return Ok(None) };
        if found.next().is_some() {
            return Err(Twice);
        }
        at = entry.value;
    }
    Ok(match at.first() {
        Some(b'n') | None => None,
        Some(b't') => Some(Value::Boolean(true)),
        Some(b'f') => Some(Value::Boolean(false)),
        Some(b'"') => Some(json::text_of(at).map_or(Value::Other, Value::Text)),
        Some(b'{' | b'[') => Some(Value::Other),
        Some(_) => Some(std::str::from_utf8(at).map_or(Value::Other, Value::Number)),
    })
}

/// Whether two spellings are one number. Integers are compared exactly, also those that a double cannot hold.
fn same_number(a: &str, b: &str) -> bool {
    let shaped = |text: &str| {
        let digits = text.strip_prefix('-').unwrap_or(text);
        digits.starts_with(|c: char| c.is_ascii_digit())
            && digits.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'+' | b'-'))
    };
    if !shaped(a) || !shaped(b) {
        return false;
    }
    match (a.parse::<i128>(), b.parse::<i128>()) {
        (Ok(a), Ok(b)) => a == b,
        _ => matches!((a.parse::<f64>(), b.parse::<f64>()), (Ok(a), Ok(b)) if a == b && a.is_finite()),
    }
}

/// A number as a header says it: `42` for `42.0` and `4.2e1` (HDR-4); as it is where it is no integer of ±(2^53−1).
fn decimal(raw: &str) -> Cow<'_, str> {
    const EXACT: f64 = 9_007_199_254_740_991.0;
    if raw.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-') && raw != "-0" {
        return Cow::Borrowed(raw);
    }
    match raw.parse::<f64>() {
        Ok(value) if value.fract() == 0.0 && value.abs() <= EXACT => Cow::Owned(format!("{}", value as i64)),
        _ => Cow::Borrowed(raw),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn param(name: &str, path: &[&str]) -> HeaderParam {
        let header = HeaderName::from_bytes(format!("{PARAM_PREFIX}{name}").as_bytes()).unwrap();
        HeaderParam { header, path: path.iter().map(|&name| name.to_owned()).collect() }
    }

    fn params() -> [HeaderParam; 3] {
        [param("Repo", &["repo"]), param("Limit", &["page", "limit"]), param("dry", &["dry"])]
    }

    fn written(arguments: &str) -> Vec<(String, String)> {
        let values = values(&params(), Some(arguments.as_bytes()));
        values.into_iter().map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect()
    }

    /// Whether these headers fit to these arguments.
    fn fits(headers: &[(&'static str, &'static str)], arguments: &str) -> Result<(), String> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_static(value));
        }
        check(&params(), &map, Some(arguments.as_bytes()))
    }

    #[test]
    fn hdr_3_values_that_a_header_cannot_hold_are_encoded() {
        for plain in ["", "a", "a b", "repo://acme/x?y=%20", "=?base64?", "?=", "=?BASE64?YQ==?="] {
            assert_eq!(encode_name(plain), plain, "{plain}");
            assert_eq!(decode_name(&encode_name(plain)).unwrap(), plain);
        }
        assert_eq!(encode_name("repo://acme/über"), "=?base64?cmVwbzovL2FjbWUvw7xiZXI=?=");
        for odd in [" a", "a ", "\ta", "a\nb", "\u{7f}", "ü", "=?base64?YQ==?=", "=?base64??="] {
            let value = encode_name(odd);
            assert!(value.as_bytes().starts_with(b"=?base64?"), "{odd}");
            assert_eq!(decode_name(&value).unwrap(), odd);
        }
    }

    #[test]
    fn hdr_3_broken_sentinels_are_refused() {
        for bad in ["=?base64?YQ?=", "=?base64?Y Q==?=", "=?base64?_-==?=", "=?base64?/w==?="] {
            assert_eq!(decode_name(&HeaderValue::from_static(bad)), None, "{bad}");
        }
        assert_eq!(decode_name(&HeaderValue::from_bytes(b"\xff").unwrap()), None);
    }

    #[test]
    fn xmh_3_arguments_are_repeated() {
        let expected = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect::<Vec<_>>()
        };
        assert_eq!(
            written(r#"{"repo":"acm\u0065/site","page":{"limit":42.0},"dry":false,"more":1}"#),
            expected(&[("mcp-param-repo", "acme/site"), ("mcp-param-limit", "42"), ("mcp-param-dry", "false")])
        );
        assert_eq!(written(r#"{"repo":null,"page":[1],"dry":{}}"#), []);
        assert_eq!(written(r#"{"page":{"limit":-7}}"#), expected(&[("mcp-param-limit", "-7")]));
        assert_eq!(written(r#"{"page":{"limit":1e3}}"#), expected(&[("mcp-param-limit", "1000")]));
        assert_eq!(values(&params(), None), []);
    }

    #[test]
    fn hdr_2_headers_say_what_the_body_says() {
        let body = r#"{"repo":"a b","page":{"limit":42},"dry":true}"#;
        let all = [("mcp-param-repo", "a b"), ("mcp-param-limit", "42"), ("mcp-param-dry", "true")];
        assert_eq!(fits(&all, body), Ok(()));
        assert_eq!(fits(&[("mcp-param-other", "ignored"), all[0], all[1], all[2]], body), Ok(()), "HDR-8");
        for missing in 0..3 {
            let some: Vec<_> = all.into_iter().enumerate().filter(|(n, _)| *n != missing).map(|(_, h)| h).collect();
            assert!(fits(&some, body).unwrap_err().contains("missing"));
        }
        for wrong in [("mcp-param-repo", "A b"), ("mcp-param-limit", "43"), ("mcp-param-dry", "True")] {
            let changed = all.map(|header| if header.0 == wrong.0 { wrong } else { header });
            let fault = fits(&changed, body).unwrap_err();
            assert!(fault.contains(wrong.0) && !fault.contains(wrong.1), "{fault}");
        }
        assert!(fits(&all, r#"{"repo":"a b","page":{"limit":42},"dry":null}"#).is_err(), "more than the body");
        assert!(fits(&[("mcp-param-repo", "=?base64?YSBi?=")], r#"{"repo":"a b"}"#).is_ok(), "decoded before");
        assert!(fits(&[("mcp-param-repo", "=?base64?YSB?=")], r#"{"repo":"a b"}"#).is_err());
        assert!(fits(&[("mcp-param-repo", "x")], r#"{"repo":"x","repo":"y"}"#).is_err(), "E-23");
    }

    #[test]
    fn hdr_6_a_header_twice_is_one_value() {
        assert_eq!(fits(&[("mcp-param-repo", "x"), ("mcp-param-repo", "x")], r#"{"repo":"x"}"#), Ok(()));
        assert!(fits(&[("mcp-param-repo", "x"), ("mcp-param-repo", "y")], r#"{"repo":"x"}"#).is_err());
    }

    #[test]
    fn hdr_4_numbers_are_equal_by_value() {
        for (body, header) in [("42", "42.0"), ("42.0", "42"), ("4.2e1", "42"), ("-0", "0")] {
            assert!(same_number(body, header), "{body} {header}");
        }
        for (body, header) in [
            ("42", "43"),
            ("1", "+1"),
            ("1", " 1"),
            ("1", "0x1"),
            ("1e999", "2e999"),
            ("1", "inf"),
            ("1", ""),
            ("9007199254740993", "9007199254740992"),
        ] {
            assert!(!same_number(body, header), "{body} {header}");
        }
    }

    proptest! {
        /// What we write is what we take.
        #[test]
        fn both_sides_agree(repo in any::<String>(), limit in any::<i64>(), dry in any::<bool>()) {
            let body = serde_json::json!({ "repo": repo, "page": { "limit": limit }, "dry": dry }).to_string();
            let mut headers = HeaderMap::new();
            headers.extend(values(&params(), Some(body.as_bytes())));
            prop_assert_eq!(headers.len(), 3);
            prop_assert_eq!(check(&params(), &headers, Some(body.as_bytes())), Ok(()));
        }
    }
}
