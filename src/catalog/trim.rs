//! What a profile leaves out of the definitions in its list of tools, by splicing: what stays, stays as it came.
//!
//! A trimmed schema takes and refuses what the whole one did: only what is said about it goes (SRF-5). Pins, routes and
//! search go by the whole definition. Called by `merge` when a list is rendered.

use super::render::{Change, rewrite};
use crate::config::settings::TrimSettings;
use crate::protocol::json;

/// The dialect that holds where a schema names none.
const DEFAULT_DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";
/// Others, whose schemas mean the same in it but for the words that [`is_plain`] looks for.
const NEAR_DIALECTS: [&str; 4] = [
    "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema",
    "https://json-schema.org/draft-07/schema",
    "http://json-schema.org/draft-06/schema",
];

/// Keywords whose value is an object of schemas.
const NAMED: [&str; 5] = ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"];
/// Keywords whose value is a schema or an array of schemas.
const NESTED: [&str; 16] = [
    "items",
    "prefixItems",
    "additionalItems",
    "additionalProperties",
    "unevaluatedItems",
    "unevaluatedProperties",
    "contains",
    "propertyNames",
    "not",
    "if",
    "then",
    "else",
    "allOf",
    "anyOf",
    "oneOf",
    "contentSchema",
];

/// Trims the definition that `out` holds from `from` on.
pub(super) fn trim(out: &mut Vec<u8>, from: usize, wanted: &TrimSettings) {
    let whole = out.split_off(from);
    rewrite(out, &whole, |entry| {
        if entry.is("description") {
            description(entry.value, wanted)
        } else if entry.is("outputSchema") && wanted.output_schema {
            Change::Drop
        } else if entry.is("inputSchema") || entry.is("outputSchema") {
            schema(entry.value, wanted, true)
        } else {
            Change::Keep
        }
    });
}

fn description(raw: &[u8], wanted: &TrimSettings) -> Change {
    let (Some(most), Some(text)) = (wanted.description, json::text_of(raw)) else { return Change::Keep };
    match shortened(&text, most) {
        None => Change::Keep,
        Some(short) => {
            let mut out = Vec::with_capacity(short.len() + 2);
            json::push_string(&mut out, &short);
            Change::Replace(out)
        }
    }
}

/// A text of at most `most` characters, cut at the end of a sentence, or of a word where the first sentence is longer;
/// nothing where it is short enough.
pub fn shortened(text: &str, most: usize) -> Option<String> {
    let (end, _) = text.char_indices().nth(most)?;
    let head = &text[..end];
    let mut sentence = 0;
    for (at, mark) in head.char_indices() {
        let after = at + mark.len_utf8();
        let ends = match mark {
            '.' | '!' | '?' => text[after..].starts_with(char::is_whitespace),
            '。' | '！' | '？' => true,
            // A paragraph, or a line before a list.
            '\n' => text[after..].starts_with(['\n', '\r', '-', '*', ' ']),
            _ => false,
        };
        if ends {
            sentence = after;
        }
    }
    let sentence = head[..sentence].trim_end();
    if !sentence.is_empty() {
        return Some(sentence.to_owned());
    }
    // The mark takes a place.
    let room = head.char_indices().next_back().map_or(0, |(at, _)| at);
    let word = head[..room].rfind(char::is_whitespace).filter(|at| *at > 0).unwrap_or(room);
    Some(format!("{}…", head[..word].trim_end()))
}

fn schema(raw: &[u8], wanted: &TrimSettings, root: bool) -> Change {
    if !raw.starts_with(b"{") {
        return Change::Keep;
    }
    let mut out = Vec::with_capacity(raw.len());
    rewrite(&mut out, raw, |entry| {
        let is = |names: &[&str]| names.iter().any(|name| entry.is(name));
        if entry.is("description") {
            description(entry.value, wanted)
        } else if wanted.examples && entry.is("examples")
            || wanted.dialect && root && entry.is("$schema") && says_nothing(entry.value, raw)
        {
            Change::Drop
        } else if is(&NAMED) && entry.value.starts_with(b"{") {
            let mut named = Vec::with_capacity(entry.value.len());
            rewrite(&mut named, entry.value, |named| schema(named.value, wanted, false));
            Change::Replace(named)
        } else if is(&NESTED) && entry.value.starts_with(b"[") {
            let each = |raw: &[u8]| match schema(raw, wanted, false) {
                Change::Replace(changed) => changed,
                Change::Keep | Change::Drop => raw.to_vec(),
            };
            let all: Vec<_> = json::elements(entry.value).map(each).collect();
            Change::Replace([b"[", all.join(&b","[..]).as_slice(), b"]"].concat())
        } else if is(&NESTED) {
            schema(entry.value, wanted, false)
        } else {
            Change::Keep
        }
    });
    Change::Replace(out)
}

/// Whether a schema means the same without this `$schema`.
fn says_nothing(dialect: &[u8], schema: &[u8]) -> bool {
    let Some(dialect) = json::text_of(dialect) else { return false };
    let dialect = dialect.trim_end_matches('#');
    dialect == DEFAULT_DIALECT || NEAR_DIALECTS.contains(&dialect) && is_plain(schema)
}

/// Whether nothing in it has another meaning in another dialect; names of properties that look like such words are taken
/// for them, which only keeps a `$schema`.
fn is_plain(raw: &[u8]) -> bool {
    match raw.first() {
        Some(b'{') => json::members(raw).all(|entry| {
            let odd = ["$ref", "$id", "id", "dependencies", "additionalItems", "$recursiveRef", "$recursiveAnchor"];
            let listed = entry.is("items") && entry.value.starts_with(b"[");
            !listed && !odd.iter().any(|name| entry.is(name)) && is_plain(entry.value)
        }),
        Some(b'[') => json::elements(raw).all(is_plain),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: TrimSettings =
        TrimSettings { description: Some(40), output_schema: true, examples: true, dialect: true };

    fn trimmed(definition: &str, wanted: &TrimSettings) -> String {
        let mut out = b"[".to_vec();
        out.extend_from_slice(definition.as_bytes());
        trim(&mut out, 1, wanted);
        String::from_utf8(out).unwrap()[1..].to_owned()
    }

    #[test]
    fn descriptions_end_with_a_sentence() {
        let cut = |text: &str, most| shortened(text, most).unwrap_or_else(|| text.to_owned());
        assert_eq!(cut("Reads a file. Handles e.g. text. Not images.", 40), "Reads a file. Handles e.g. text.");
        assert_eq!(cut("Reads a file. Handles more.", 100), "Reads a file. Handles more.");
        assert_eq!(cut("Reads\n\nArgs:\n - path", 12), "Reads");
        assert_eq!(cut("One sentence without any end so far", 20), "One sentence…");
        assert_eq!(cut("öööööööööööö", 5), "öööö…");
        assert_eq!(cut("读取文件。返回其内容和更多信息", 8), "读取文件。");
        for most in 1..60 {
            let text = "Some words here. And 1.5 more of them, without end and without any sense to it at all";
            assert!(cut(text, most).chars().count() <= most, "{most}");
        }
    }

    #[test]
    fn what_goes_is_said_about_a_schema_and_not_by_it() {
        let definition = r#"{"name":"t","description":"Does it. And so on, and so on, and so on, and so on.","inputSchema":{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"examples":{"type":"array","examples":[1],"items":{"description":"An item of it. With more words than anybody would read."}},"description":{"type":"string"}},"anyOf":[{"examples":[2],"required":["examples"]}],"enum":[{"examples":3}]},"outputSchema":{"type":"object"},"x":1}"#;
        let expected = r#"{"name":"t","description":"Does it.","inputSchema":{"type":"object","properties":{"examples":{"type":"array","items":{"description":"An item of it."}},"description":{"type":"string"}},"anyOf":[{"required":["examples"]}],"enum":[{"examples":3}]},"x":1}"#;
        assert_eq!(trimmed(definition, &ALL), expected);
        assert_eq!(trimmed(definition, &TrimSettings::default()), definition);
    }

    /// SRF-5, with a validator that is not ours.
    #[test]
    fn srf_5_a_trimmed_schema_takes_and_refuses_the_same() {
        let schemas = [
            r##"{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","description":"Long. And longer, much longer than forty characters.","properties":{"a":{"type":"string","examples":["x"],"minLength":2},"examples":{"type":"integer"}},"required":["a"],"additionalProperties":false}"##,
            r##"{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"a":{"items":[{"type":"integer"},{"type":"string"}],"additionalItems":false}}}"##,
            r##"{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","definitions":{"s":{"type":"string"}},"properties":{"a":{"$ref":"#/definitions/s","minLength":9}}}"##,
            r##"{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","$defs":{"n":{"type":"object","properties":{"n":{"$ref":"#/$defs/n"}},"examples":[{}],"unevaluatedProperties":false}},"anyOf":[{"$ref":"#/$defs/n"},{"properties":{"a":{"const":{"examples":1,"description":"A sentence. One more that is longer than all that."}}},"required":["a"]}]}"##,
        ];
        let values = [
            r#"{}"#,
            r#"{"a":"x"}"#,
            r#"{"a":"xyz"}"#,
            r#"{"a":"long enough"}"#,
            r#"{"a":"xyz","examples":1}"#,
            r#"{"a":"xyz","examples":"1"}"#,
            r#"{"a":[1,"x"]}"#,
            r#"{"a":["x"]}"#,
            r#"{"a":[1,"x",2]}"#,
            r#"{"n":{"n":{}}}"#,
            r#"{"n":{"m":{}}}"#,
            r#"{"a":{"examples":1,"description":"A sentence. One more that is longer than all that."}}"#,
        ];
        let verdicts = |schema: &str| -> Vec<bool> {
            let schema: serde_json::Value = serde_json::from_str(schema).unwrap();
            let validator = jsonschema::validator_for(&schema).unwrap();
            values.iter().map(|value| validator.is_valid(&serde_json::from_str(value).unwrap())).collect()
        };
        for schema in schemas {
            let trimmed = trimmed(&format!(r#"{{"name":"t","inputSchema":{schema}}}"#), &ALL);
            let short = &trimmed[r#"{"name":"t","inputSchema":"#.len()..trimmed.len() - 1];
            assert_eq!(verdicts(short), verdicts(schema), "{short}");
            assert!(verdicts(schema).contains(&true) && verdicts(schema).contains(&false), "{schema}");
        }
    }

    #[test]
    fn a_dialect_stays_where_it_matters() {
        let with = |dialect: &str, more: &str| {
            format!(r#"{{"name":"t","inputSchema":{{"$schema":"{dialect}","type":"object"{more}}}}}"#)
        };
        let goes = |dialect: &str, more: &str| !trimmed(&with(dialect, more), &ALL).contains("$schema");
        assert!(goes(DEFAULT_DIALECT, r##","$ref":"#/x""##) && goes("http://json-schema.org/draft-07/schema#", ""));
        assert!(!goes(
            "http://json-schema.org/draft-07/schema#",
            r##","properties":{"a":{"$ref":"#/b","type":"string"}}"##
        ));
        assert!(!goes("http://json-schema.org/draft-07/schema#", r#","properties":{"a":{"items":[{}]}}"#));
        assert!(!goes("http://json-schema.org/draft-04/schema#", "") && !goes("https://acme.example/s", ""));
    }
}
