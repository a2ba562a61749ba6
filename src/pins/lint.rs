//! What a reviewer should look at twice (threat model §6): hidden characters, other servers' tools, promises of less harm,
//! new things that a model must fill in, new addresses.
//!
//! Findings are hints for people and hold nothing back, but for hidden characters in what nobody has reviewed (T-01).

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

use super::drift;
use crate::shown::{hidden, shown_str};

/// Something to look at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Risk {
    /// A character that shows nothing or changes what others show.
    Hidden {
        /// Where in the definition, a JSON Pointer.
        at: String,
        /// The character.
        character: char,
    },
    /// Its text speaks of a tool of another server (T-06).
    Mentions {
        /// Where.
        at: String,
        /// What.
        tool: String,
    },
    /// Its annotations promise less harm than was reviewed.
    Relaxed,
    /// A new required argument takes any text.
    FreeForm {
        /// Which.
        argument: String,
    },
    /// An address or path that was not there.
    Address {
        /// Where.
        at: String,
        /// Which.
        address: String,
    },
}

impl Risk {
    /// A stable word for it.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Hidden { .. } => "hidden-text",
            Self::Mentions { .. } => "mentions-other-server",
            Self::Relaxed => "annotation-relaxed",
            Self::FreeForm { .. } => "new-free-form-argument",
            Self::Address { .. } => "new-address",
        }
    }
}

impl fmt::Display for Risk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = self.code();
        match self {
            Self::Hidden { at, character } => {
                write!(f, "{code}: \\u{{{:x}}} at {}", u32::from(*character), shown_str(at))
            }
            Self::Mentions { at, tool } => write!(f, "{code}: {} at {}", shown_str(tool), shown_str(at)),
            Self::Relaxed => write!(f, "{code}: it promises less harm than was reviewed"),
            Self::FreeForm { argument } => write!(f, "{code}: {}", shown_str(argument)),
            Self::Address { at, address } => write!(f, "{code}: {} at {}", shown_str(address), shown_str(at)),
        }
    }
}

/// What is hidden in a definition; line breaks and tabs in texts are not.
pub fn hidden_text(definition: &Value) -> Vec<Risk> {
    let mut found = BTreeSet::new();
    texts(definition, &mut String::new(), &mut |at, text| {
        let odd = text.chars().filter(|&c| hidden(c) && !matches!(c, '\n' | '\r' | '\t'));
        found.extend(odd.map(|character| Risk::Hidden { at: at.to_owned(), character }));
    });
    found.into_iter().collect()
}

/// Everything worth a second look about a definition that is new, or was another `before`. `others` are the names of
/// other servers' tools.
pub fn risks(before: Option<&Value>, definition: &Value, others: &BTreeSet<String>) -> Vec<Risk> {
    let mut found: BTreeSet<Risk> = hidden_text(definition).into_iter().collect();
    let mut known = BTreeSet::new();
    if let Some(before) = before {
        texts(before, &mut String::new(), &mut |_, text| known.extend(addresses(text).map(str::to_owned)));
    }
    texts(definition, &mut String::new(), &mut |at, text| {
        let words: BTreeSet<&str> =
            text.split(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/'))).collect();
        let mentioned = words.iter().map(|word| word.trim_end_matches('.')).filter(|word| others.contains(*word));
        if at != "/name" {
            found.extend(mentioned.map(|tool| Risk::Mentions { at: at.to_owned(), tool: tool.to_owned() }));
        }
        let new = addresses(text).filter(|address| before.is_some() && !known.contains(*address));
        found.extend(new.map(|address| Risk::Address { at: at.to_owned(), address: address.to_owned() }));
    });
    if let Some(before) = before {
        if drift::relaxes(before, definition) {
            found.insert(Risk::Relaxed);
        }
        let old = required(before);
        for argument in required(definition).difference(&old) {
            let schema = definition.pointer("/inputSchema/properties").and_then(|all| all.get(argument));
            let is_bound =
                |schema: &Value| ["enum", "const", "pattern", "format"].iter().any(|word| schema.get(word).is_some());
            let is_text = |schema: &Value| matches!(schema.get("type").and_then(Value::as_str), None | Some("string"));
            if schema.is_none_or(|schema| is_text(schema) && !is_bound(schema)) {
                found.insert(Risk::FreeForm { argument: argument.clone() });
            }
        }
    }
    found.into_iter().collect()
}

/// The arguments that a tool or prompt requires.
fn required(definition: &Value) -> BTreeSet<String> {
    let of_tool = definition.pointer("/inputSchema/required").and_then(Value::as_array).into_iter().flatten();
    let of_prompt = definition.get("arguments").and_then(Value::as_array).into_iter().flatten();
    let of_prompt = of_prompt.filter(|argument| argument.get("required") == Some(&Value::Bool(true)));
    let of_prompt = of_prompt.filter_map(|argument| argument.get("name"));
    of_tool.chain(of_prompt).filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The addresses and absolute paths in a text.
fn addresses(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`' | '(' | ')' | '<' | '>' | ',' | ';'))
        .map(|word| word.trim_end_matches(['.', ':', '!', '?']))
        .filter(|word| {
            word.contains("://")
                || word.starts_with("~/")
                || word.len() > 1 && word.starts_with('/') && !word.starts_with("//")
        })
}

/// Every text in a value, keys too, and where it stands.
fn texts(value: &Value, at: &mut String, tell: &mut impl FnMut(&str, &str)) {
    let length = at.len();
    match value {
        Value::String(text) => tell(at, text),
        Value::Array(elements) => {
            for (n, element) in elements.iter().enumerate() {
                at.push_str(&format!("/{n}"));
                texts(element, at, tell);
                at.truncate(length);
            }
        }
        Value::Object(members) => {
            for (key, member) in members {
                at.push_str(&format!("/{}", key.replace('~', "~0").replace('/', "~1")));
                tell(at, key);
                texts(member, at, tell);
                at.truncate(length);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn d100_hidden_characters_are_found_wherever_they_stand() {
        let tool = json!({
            "name": "t", "description": "fine\nline\twith é", "title": "a\u{202e}b",
            "inputSchema": { "properties": { "x\u{200b}": { "enum": ["\u{1b}[2J"] } } },
            "_meta": { "k": ["\u{e0041}"] },
        });
        let found: Vec<_> = hidden_text(&tool).iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), 4, "{found:?}");
        assert!(found.contains(&"hidden-text: \\u{202e} at /title".to_owned()), "{found:?}");
        assert!(hidden_text(&json!({ "description": "fine\nline" })).is_empty());
    }

    /// T-06.
    #[test]
    fn t_06_other_servers_tools_are_noticed() {
        let others = BTreeSet::from(["send_mail".to_owned(), "mail__send_mail".to_owned()]);
        let codes = |text: &str| {
            let tool = json!({ "name": "t", "inputSchema": { "description": text } });
            risks(None, &tool, &others).iter().map(|risk| risk.code()).collect::<Vec<_>>()
        };
        assert_eq!(codes("Before send_mail, call this."), ["mentions-other-server"]);
        assert_eq!(codes("not (mail__send_mail)."), ["mentions-other-server"]);
        assert_eq!(codes("resend_mail and send-mail"), Vec::<&str>::new());
        assert!(risks(None, &json!({ "name": "send_mail" }), &others).is_empty(), "its own name is no mention");
    }

    #[test]
    fn what_is_new_about_a_tool_is_weighed() {
        let before = json!({
            "name": "t", "description": "see https://a.invalid/x.",
            "inputSchema": { "required": ["a"], "properties": { "a": {} } },
        });
        let after = json!({
            "name": "t", "description": "see https://a.invalid/x and https://b.invalid or /etc/passwd",
            "inputSchema": {
                "required": ["a", "b", "c", "d"],
                "properties": { "a": {}, "b": { "type": "string" }, "c": { "enum": ["x"] }, "d": { "type": "integer" } },
            },
            "annotations": { "readOnlyHint": true },
        });
        let found: Vec<_> = risks(Some(&before), &after, &BTreeSet::new()).iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "annotation-relaxed: it promises less harm than was reviewed",
                "new-free-form-argument: b",
                "new-address: /etc/passwd at /description",
                "new-address: https://b.invalid at /description",
            ]
        );
        assert!(risks(Some(&before), &before, &BTreeSet::new()).is_empty());
    }
}
