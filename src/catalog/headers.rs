//! `x-mcp-header` annotations: which ones of an input schema may be published.
//!
//! A host that speaks HTTP must reject a whole tool for one invalid annotation, so invalid ones are taken out
//! of what we publish and the tool stays (XMH-2). Valid is (XMH-1): a token, unique without regard to case,
//! on a property of type integer, string or boolean that is reached from the root through `properties` alone.
//! Of several annotations with one name none stays. What is published is what is enforced (XMH-3). A server that we
//! reach by HTTP loses such a tool instead; `merge` sees to that. Called by `item` and `render`.

use std::collections::HashMap;

use http::HeaderName;

use super::render::{Change, rewrite};
use crate::protocol::headers::{HeaderParam, PARAM_PREFIX};
use crate::protocol::json::{self, Entry};

/// The annotation.
pub(super) const KEY: &str = "x-mcp-header";

/// Keywords whose value is a schema or an array of schemas.
const SCHEMAS: [&str; 17] = [
    "items",
    "additionalItems",
    "prefixItems",
    "contains",
    "unevaluatedItems",
    "additionalProperties",
    "unevaluatedProperties",
    "propertyNames",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
    "contentSchema",
    "extends",
];
/// Keywords whose value is an object of schemas; `properties` apart.
const MAPS: [&str; 5] = ["patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"];

/// Where a schema stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Root,
    /// Reached through `properties` alone.
    Property,
    Elsewhere,
}

impl Place {
    const fn of_properties(self) -> Self {
        match self {
            Self::Root | Self::Property => Self::Property,
            Self::Elsewhere => Self::Elsewhere,
        }
    }
}

/// How often each name is used, folded.
type Uses = HashMap<String, usize>;

/// The schema without its invalid annotations; `None` when there are none. Its depth was checked before.
pub(super) fn strip(schema: &[u8]) -> Option<Vec<u8>> {
    let mut uses = Uses::new();
    count(schema, Place::Root, &mut uses);
    clean(schema, Place::Root, &uses)
}

/// The valid annotations: what is repeated in headers (XMH-3).
pub(super) fn valid(schema: &[u8]) -> Vec<HeaderParam> {
    let mut uses = Uses::new();
    count(schema, Place::Root, &mut uses);
    let mut found = Vec::new();
    collect(schema, &mut Vec::new(), &uses, &mut found);
    found
}

fn collect(schema: &[u8], path: &mut Vec<String>, uses: &Uses, found: &mut Vec<HeaderParam>) {
    if !path.is_empty()
        && let Some(name) = annotation(schema).filter(|name| uses.get(name) == Some(&1))
        && let Ok(header) = HeaderName::try_from([PARAM_PREFIX, &name].concat())
    {
        found.push(HeaderParam { header, path: path.clone() });
    }
    for entry in json::members(schema).filter(|entry| entry.is("properties")) {
        for property in json::members(entry.value) {
            let Some(name) = property.name() else { continue };
            path.push(name.into_owned());
            collect(property.value, path, uses, found);
            path.pop();
        }
    }
}

/// Counts the names that would be valid if they were unique.
fn count(schema: &[u8], place: Place, uses: &mut Uses) {
    if let (Place::Property, Some(name)) = (place, annotation(schema)) {
        *uses.entry(name).or_default() += 1;
    }
    for entry in json::members(schema).filter(|entry| entry.is("properties")) {
        for property in json::members(entry.value) {
            count(property.value, place.of_properties(), uses);
        }
    }
}

/// The annotation of a schema, folded, if name and type are as they must be.
fn annotation(schema: &[u8]) -> Option<String> {
    let mut found = None;
    let mut types = 0;
    for entry in json::members(schema) {
        if entry.is(KEY) {
            let name = json::text_of(entry.value).filter(|name| is_token(name))?;
            if found.replace(name.to_ascii_lowercase()).is_some() {
                return None;
            }
        } else if entry.is("type") {
            let kind = json::text_of(entry.value)?;
            if !matches!(&*kind, "integer" | "string" | "boolean") {
                return None;
            }
            types += 1;
        }
    }
    found.filter(|_| types == 1)
}

/// A token of RFC 9110.
fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

fn clean(schema: &[u8], place: Place, uses: &Uses) -> Option<Vec<u8>> {
    if schema.first() != Some(&b'{') {
        return None;
    }
    let valid = place == Place::Property && annotation(schema).is_some_and(|name| uses.get(&name) == Some(&1));
    let named = |entry: &Entry<'_>, keys: &[&str]| keys.iter().any(|key| entry.is(key));
    changed(schema, |entry| {
        if entry.is(KEY) {
            return if valid { Change::Keep } else { Change::Drop };
        }
        let value = if entry.is("properties") {
            map(entry.value, place.of_properties(), uses)
        } else if named(entry, &MAPS) {
            map(entry.value, Place::Elsewhere, uses)
        } else if !named(entry, &SCHEMAS) {
            // Data, or a keyword we do not know: nothing in it is an annotation.
            None
        } else if entry.value.first() == Some(&b'[') {
            list(entry.value, uses)
        } else {
            clean(entry.value, Place::Elsewhere, uses)
        };
        value.map_or(Change::Keep, Change::Replace)
    })
}

/// An object whose values are schemas.
fn map(object: &[u8], place: Place, uses: &Uses) -> Option<Vec<u8>> {
    changed(object, |entry| clean(entry.value, place, uses).map_or(Change::Keep, Change::Replace))
}

/// An array of schemas.
fn list(array: &[u8], uses: &Uses) -> Option<Vec<u8>> {
    let cleaned: Vec<_> = json::elements(array).map(|raw| (raw, clean(raw, Place::Elsewhere, uses))).collect();
    if cleaned.iter().all(|(_, new)| new.is_none()) {
        return None;
    }
    let values: Vec<&[u8]> = cleaned.iter().map(|(raw, new)| new.as_deref().unwrap_or(raw)).collect();
    Some([b"[", values.join(&b',').as_slice(), b"]"].concat())
}

/// [`rewrite`], or `None` when it would change nothing.
fn changed(object: &[u8], mut change: impl FnMut(&Entry<'_>) -> Change) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(object.len());
    let mut any = false;
    rewrite(&mut out, object, |entry| {
        let change = change(entry);
        any |= !matches!(change, Change::Keep);
        change
    });
    any.then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(schema: &str, expected: Option<&str>) {
        let stripped = strip(schema.as_bytes()).map(|bytes| String::from_utf8(bytes).unwrap());
        assert_eq!(stripped.as_deref(), expected, "{schema}");
    }

    #[test]
    fn xmh_1_valid_annotations_stay() {
        check(r#"{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}"#, None);
        let nested =
            r#"{"properties":{"o":{"type":"object","properties":{"a":{"x-mcp-header":"A","type":"integer"}}}}}"#;
        check(nested, None);
        // A property of that name and data of that name are no annotations.
        check(r#"{"properties":{"x-mcp-header":{"type":"string"}}}"#, None);
        check(r#"{"properties":{"a":{"default":{"x-mcp-header":1},"enum":[{"x-mcp-header":2}]}}}"#, None);
    }

    #[test]
    fn xmh_2_invalid_ones_go_and_all_else_stays() {
        check(r#"{"x-mcp-header":"A","type":"object"}"#, Some(r#"{"type":"object"}"#));
        check(r#"{"type":"object", "x-mcp-header":"A"}"#, Some(r#"{"type":"object"}"#));
        for bad in [
            r#""x-mcp-header":"a b","type":"string""#,
            r#""x-mcp-header":"","type":"string""#,
            r#""x-mcp-header":"é","type":"string""#,
            r#""x-mcp-header":7,"type":"string""#,
            r#""x-mcp-header":"N","type":"number""#,
            r#""x-mcp-header":"N","type":["string"]"#,
            r#""x-mcp-header":"N","x-mcp-header":"M","type":"string""#,
            r#""x-mcp-h\u0065ader":"N""#,
        ] {
            let stripped = strip(format!(r#"{{"properties":{{"a":{{{bad}}}}}}}"#).as_bytes()).expect(bad);
            assert!(!String::from_utf8(stripped).unwrap().contains("x-mcp"), "{bad}");
        }
        let valid = r#"{"type":"string","x-mcp-header":"A"}"#;
        for elsewhere in [
            format!(r#"{{"properties":{{"l":{{"items":{valid}}}}}}}"#),
            format!(r#"{{"anyOf":[{{"properties":{{"a":{valid}}}}},true]}}"#),
            format!(r#"{{"$defs":{{"a":{valid}}}}}"#),
        ] {
            check(&elsewhere, Some(&elsewhere.replace(r#","x-mcp-header":"A""#, "")));
        }
    }

    #[test]
    fn xmh_3_what_is_published_is_what_is_repeated() {
        let schema = r#"{"properties":{"a":{"type":"string","x-mcp-header":"Repo"},"o":{"type":"object","properties":
            {"\u00f6":{"x-mcp-header":"N-1","type":"integer"},"n":{"type":"number","x-mcp-header":"Bad"}}},
            "b":{"type":"boolean","x-mcp-header":"Twin"},"c":{"type":"boolean","x-mcp-header":"twin"}}}"#;
        let found: Vec<_> = valid(schema.as_bytes()).into_iter().map(|p| (p.header.to_string(), p.path)).collect();
        let param = |name: &str, path: &[&str]| (name.to_owned(), path.iter().map(|&p| p.to_owned()).collect());
        assert_eq!(found, [param("mcp-param-repo", &["a"]), param("mcp-param-n-1", &["o", "ö"])]);
        let stripped = strip(schema.as_bytes()).unwrap();
        assert_eq!(valid(&stripped).len(), 2);
        assert!(strip(&stripped).is_none());
    }

    #[test]
    fn xmh_1_equal_names_go_together() {
        check(
            r#"{"properties":{"a":{"type":"string","x-mcp-header":"Key"},"b":{"type":"string","x-mcp-header":"KEY"},"c":{"type":"string","x-mcp-header":"C"}}}"#,
            Some(
                r#"{"properties":{"a":{"type":"string"},"b":{"type":"string"},"c":{"type":"string","x-mcp-header":"C"}}}"#,
            ),
        );
    }
}
