//! Files read as their hosts read them: by parsers that share nothing with the product's own readers.

use onegate::adopt::hosts::{Entry, Host, Servers, Syntax};
use serde_json::Value;

/// JSON with comments and trailing commas.
pub(crate) fn json(text: &str) -> Value {
    fn value(read: jsonc_parser::JsonValue<'_>) -> Value {
        use jsonc_parser::JsonValue as J;
        match read {
            J::String(text) => text.into_owned().into(),
            J::Number(number) => serde_json::from_str(number).unwrap(),
            J::Boolean(truth) => truth.into(),
            J::Object(object) => object.into_iter().map(|(name, inner)| (name.into_owned(), value(inner))).collect(),
            J::Array(array) => array.into_iter().map(value).collect(),
            J::Null => Value::Null,
        }
    }
    let text = text.trim_start_matches('\u{feff}');
    value(jsonc_parser::parse_to_value(text, &Default::default()).unwrap().unwrap())
}

/// What a host's file says.
pub(crate) fn file(text: &str, syntax: Syntax) -> Value {
    match syntax {
        Syntax::Json => json(text),
        Syntax::Toml => {
            let plain = text.trim_start_matches('\u{feff}');
            let document: toml_edit::DocumentMut = plain.parse().unwrap();
            toml(document.as_item())
        }
        Syntax::Yaml => serde_yaml_ng::from_str(text.trim_start_matches('\u{feff}')).unwrap(),
    }
}

fn toml(item: &toml_edit::Item) -> Value {
    if let Some(table) = item.as_table_like() {
        return table.iter().map(|(name, item)| (name.to_owned(), toml(item))).collect();
    }
    if let Some(tables) = item.as_array_of_tables() {
        return tables.iter().map(|table| toml(&toml_edit::Item::Table(table.clone()))).collect();
    }
    if let Some(array) = item.as_array() {
        return array.iter().map(|value| toml(&toml_edit::Item::Value(value.clone()))).collect();
    }
    let value = item.as_value().unwrap();
    let number = || value.as_integer().map(Value::from).or_else(|| value.as_float().map(Value::from));
    value.as_str().map(Value::from).or_else(|| value.as_bool().map(Value::from)).or_else(number).unwrap()
}

/// The servers by name.
pub(crate) fn server<'v>(said: &'v Value, servers: Servers, name: &str) -> Option<&'v Value> {
    match servers {
        Servers::Map(member) => said.get(member)?.get(name),
        Servers::List(member) => said.get(member)?.as_array()?.iter().find(|server| server["name"] == name),
    }
}

/// The words that an entry starts, as this host means it.
pub(crate) fn words(host: &Host, entry: &Value) -> Vec<String> {
    let texts = |value: &Value| -> Vec<String> {
        match value {
            Value::Array(items) => items.iter().map(|item| item.as_str().unwrap().to_owned()).collect(),
            Value::String(text) => vec![text.clone()],
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => panic!("{value}"),
        }
    };
    match host.entry {
        Entry::OpenCode => {
            assert_eq!((&entry["type"], &entry["enabled"]), (&"local".into(), &true.into()));
            texts(&entry["command"])
        }
        Entry::Goose => {
            assert_eq!(
                (&entry["type"], &entry["enabled"], &entry["name"]),
                (&"stdio".into(), &true.into(), &"onegate".into())
            );
            [texts(&entry["cmd"]), texts(&entry["args"])].concat()
        }
        Entry::Copilot => {
            assert_eq!((&entry["type"], &entry["tools"][0]), (&"local".into(), &"*".into()));
            [texts(&entry["command"]), texts(&entry["args"])].concat()
        }
        Entry::Typed | Entry::Listed => {
            assert_eq!(entry["type"], "stdio");
            [texts(&entry["command"]), texts(&entry["args"])].concat()
        }
        Entry::Bare | Entry::Zed => [texts(&entry["command"]), texts(&entry["args"])].concat(),
    }
}
