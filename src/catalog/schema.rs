//! One look at a JSON Schema, and the limits of it.
//!
//! Validates nothing and follows no reference (D054). Called by `render`, when a definition is read.

use super::headers;
use super::item::Fault;
use crate::protocol::json;

/// Deepest schema (D-30).
pub const MAX_SCHEMA_DEPTH: usize = 64;
/// Most values in a schema (D-30).
pub const MAX_SCHEMA_NODES: usize = 20_000;

/// Whether a raw value is an object.
pub(super) fn is_object(raw: &[u8]) -> bool {
    raw.first() == Some(&b'{')
}

/// What the root of a schema says of its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RootType {
    Absent,
    Object,
    Other,
}

/// Whether a member of the root's `properties` is a boolean.
pub(super) fn has_booleans(schema: &[u8]) -> bool {
    json::members(schema)
        .filter(|entry| entry.is("properties"))
        .any(|entry| json::members(entry.value).any(|property| matches!(property.value, b"true" | b"false")))
}

/// What one pass over a schema tells.
pub(super) struct Measured {
    pub(super) root: RootType,
    /// Whether a member of the root's `properties` is a boolean.
    pub(super) booleans: bool,
    /// Whether a key may be that of a header annotation.
    pub(super) annotated: bool,
}

/// Which member of the root a place belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Under {
    Type,
    /// `properties`, and whether its value is an object.
    Properties(bool),
    Other,
}

/// Reads the root's type and holds a schema to the limits of depth and size (D-30), in one pass over validated
/// text: lists are long, and this is done for all of it.
pub(super) fn measure(schema: &[u8]) -> Result<Measured, Fault> {
    let mut measured = Measured { root: RootType::Absent, booleans: false, annotated: false };
    let (mut depth, mut deepest, mut nodes) = (0usize, 0usize, 0usize);
    let mut under = Under::Other;
    let mut at = 0;
    while let Some(&byte) = schema.get(at) {
        let start = at;
        match byte {
            b'{' | b'[' => {
                match (depth, under) {
                    (1, Under::Type) => measured.root = RootType::Other,
                    (1, Under::Properties(_)) => under = Under::Properties(byte == b'{'),
                    _ => {}
                }
                depth += 1;
                deepest = deepest.max(depth);
                nodes += 1;
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => {
                at = json::string_end(schema, at) - 1;
                let raw = schema.get(start..=at).unwrap_or_default();
                let behind = schema.get(at + 1..).unwrap_or_default();
                let is_key = behind.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b':');
                if is_key {
                    let key = json::text_of(raw);
                    measured.annotated |= key.as_deref() == Some(headers::KEY);
                    if depth == 1 {
                        under = match key.as_deref() {
                            Some("type") => Under::Type,
                            Some("properties") => Under::Properties(false),
                            _ => Under::Other,
                        };
                    }
                } else {
                    nodes += 1;
                    if (depth, under) == (1, Under::Type) {
                        let object = json::text_of(raw).is_some_and(|text| text == "object");
                        let fine = object && measured.root != RootType::Other;
                        measured.root = if fine { RootType::Object } else { RootType::Other };
                    }
                }
            }
            b',' | b':' | b' ' | b'\t' | b'\n' | b'\r' => {}
            _ => {
                nodes += 1;
                while schema.get(at + 1).is_some_and(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.')) {
                    at += 1;
                }
                match (depth, under) {
                    (1, Under::Type) => measured.root = RootType::Other,
                    (2, Under::Properties(true)) => measured.booleans |= matches!(byte, b't' | b'f'),
                    _ => {}
                }
            }
        }
        at += 1;
    }
    if deepest > MAX_SCHEMA_DEPTH {
        Err(Fault::TooDeep(deepest))
    } else if nodes > MAX_SCHEMA_NODES {
        Err(Fault::TooManyNodes(nodes))
    } else {
        Ok(measured)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// One pass tells what two walks tell.
        #[test]
        fn measuring_finds_what_the_walks_find(
            members in prop::collection::vec(
                prop::sample::select(vec![
                    r#""type":"object""#, r#""t\u0079pe":"object""#, r#""properties":{"a":true}"#,
                    r#""properties":[true]"#, r#""properties":{"a":{"b":false}}"#, r#""properties":{"a":[false]}"#,
                    r#""items":{"properties":{"a":true},"type":"string"}"#, r#""default":true"#,
                    r#""properti\u0065s":{"a" : false }"#, r#""a":"properties""#, r#""b":["type","x"]"#,
                ]),
                0..5,
            ),
        ) {
            let text = format!("{{{}}}", members.join(","));
            let measured = measure(text.as_bytes()).unwrap();
            prop_assert_eq!(measured.booleans, has_booleans(text.as_bytes()));
            let typed = json::members(text.as_bytes()).any(|entry| entry.is("type"));
            prop_assert_eq!(measured.root, if typed { RootType::Object } else { RootType::Absent });
        }
    }
}
