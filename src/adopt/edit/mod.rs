//! One entry put into the file of a host, or taken out of it: as texts, everything else kept as it is.
//!
//! Each format has an editor of its own; whatever it gives is read again and must say exactly what was meant, else the
//! change is refused and the person is told what to paste. Knows no host. Called by `install`.

mod json;
mod toml;
mod yaml;

use crate::config::tree::{Node, Value as Read};

use super::hosts::{Servers, Syntax};
use super::lines;
use super::read::{self, Unreadable};

/// A value to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Text(String),
    Number(serde_json::Number),
    Bool(bool),
    Null,
    List(Vec<Value>),
    Table(Vec<(String, Value)>),
}

/// Why a file is not edited.
#[derive(Debug, thiserror::Error)]
pub enum NotEdited {
    /// It cannot be read as what it should be.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// Its shape is one that an edit would not be sure to keep.
    #[error("{0}")]
    Shape(String),
}

impl Value {
    pub(super) fn text(text: &str) -> Self {
        Self::Text(text.to_owned())
    }

    pub(super) fn texts<'t>(texts: impl IntoIterator<Item = &'t str>) -> Self {
        Self::List(texts.into_iter().map(Self::text).collect())
    }

    /// As JSON, for comparing and for notes.
    pub(super) fn json(&self) -> serde_json::Value {
        match self {
            Self::Text(text) => text.as_str().into(),
            Self::Number(number) => number.clone().into(),
            Self::Bool(truth) => (*truth).into(),
            Self::Null => serde_json::Value::Null,
            Self::List(items) => items.iter().map(Self::json).collect(),
            Self::Table(members) => members.iter().map(|(name, value)| (name.clone(), value.json())).collect(),
        }
    }

    /// Back from JSON, for what was taken out and is put back.
    pub(super) fn of_json(json: &serde_json::Value) -> Self {
        use serde_json::Value as Json;
        match json {
            Json::String(text) => Self::text(text),
            Json::Bool(truth) => Self::Bool(*truth),
            Json::Number(number) => Self::Number(number.clone()),
            Json::Array(items) => Self::List(items.iter().map(Self::of_json).collect()),
            Json::Object(members) => {
                Self::Table(members.iter().map(|(name, value)| (name.clone(), Self::of_json(value))).collect())
            }
            Json::Null => Self::Null,
        }
    }
}

/// What a text says, as JSON: to compare texts by.
pub(super) fn said(node: &Node) -> serde_json::Value {
    match &node.value {
        Read::Text(text) => text.as_str().into(),
        Read::Integer(number) => (*number).into(),
        Read::Float(number) => (*number).into(),
        Read::Bool(truth) => (*truth).into(),
        Read::List(items) => items.iter().map(said).collect(),
        Read::Table(entries) => entries.iter().map(|entry| (entry.name.clone(), said(&entry.node))).collect(),
        Read::Other("null") => serde_json::Value::Null,
        Read::Other(name) => serde_json::json!({ "\u{0}other": name }),
    }
}

/// The servers of a text by name, as JSON; none where the member is not there. A name that stands twice is refused.
pub(super) fn servers(
    text: &str,
    syntax: Syntax,
    servers: Servers,
) -> Result<Vec<(String, serde_json::Value)>, NotEdited> {
    let root = read::parse(text, syntax)?;
    if !matches!(root.value, Read::Table(_)) {
        return Err(NotEdited::Shape(format!("is {}, not a table", root.kind())));
    }
    let member = servers.member();
    if root.entries().iter().filter(|entry| entry.name == member).count() > 1 {
        return Err(NotEdited::Shape(format!("has `{member}` twice")));
    }
    let Some(node) = root.get(member) else { return Ok(Vec::new()) };
    let line = || if node.at.line > 0 { format!("line {}: ", node.at.line) } else { String::new() };
    let found: Vec<_> = match (&node.value, servers) {
        (Read::Table(entries), Servers::Map(_)) => {
            entries.iter().map(|entry| (entry.name.clone(), said(&entry.node))).collect()
        }
        (Read::List(items), Servers::List(_)) => items
            .iter()
            .map(|item| (item.get("name").and_then(Node::as_text).unwrap_or_default().to_owned(), said(item)))
            .collect(),
        // An empty value of YAML.
        (Read::Other("null"), _) if syntax == Syntax::Yaml => Vec::new(),
        _ => {
            let wanted = if matches!(servers, Servers::Map(_)) { "a table" } else { "a list" };
            return Err(NotEdited::Shape(format!("{}`{member}` is {}, not {wanted}", line(), node.kind())));
        }
    };
    for (n, (name, _)) in found.iter().enumerate() {
        if found[..n].iter().any(|(other, _)| other == name) && !name.is_empty() {
            return Err(NotEdited::Shape(format!("{}`{member}` has `{name}` twice", line())));
        }
    }
    Ok(found)
}

/// Puts an entry in; one of this name is replaced. An empty text begins with `head`.
pub(super) fn put(
    text: &str,
    (syntax, place): (Syntax, Servers),
    name: &str,
    value: &Value,
    head: &str,
) -> Result<String, NotEdited> {
    let mut wanted = servers(text, syntax, place)?;
    let plain = text.strip_prefix('\u{feff}').unwrap_or(text);
    let replaced = wanted.iter().position(|(known, _)| known == name);
    let edited = match (syntax, replaced) {
        (Syntax::Json, _) => json::put(plain, place, name, value),
        (Syntax::Toml, _) => toml::put(plain, place, name, value),
        (Syntax::Yaml, None) => yaml::put(plain, place, name, value, head),
        (Syntax::Yaml, Some(_)) => {
            yaml::remove(plain, place, name, false).and_then(|without| yaml::put(&without, place, name, value, head))
        }
    };
    let edited = edited.ok_or_else(not_sure)?;
    match replaced {
        Some(at) if syntax != Syntax::Yaml => wanted[at].1 = value.json(),
        Some(at) => {
            wanted.remove(at);
            wanted.push((name.to_owned(), value.json()));
        }
        None => wanted.push((name.to_owned(), value.json())),
    }
    settle(text, &edited, (syntax, place), &wanted)
}

/// Takes an entry out; with `member`, also the member itself when nothing is left in it.
pub(super) fn remove(
    text: &str,
    (syntax, place): (Syntax, Servers),
    name: &str,
    member: bool,
) -> Result<String, NotEdited> {
    let mut wanted = servers(text, syntax, place)?;
    wanted.retain(|(known, _)| known != name);
    let plain = text.strip_prefix('\u{feff}').unwrap_or(text);
    let edited = match syntax {
        Syntax::Json => json::remove(plain, place, name, member),
        Syntax::Toml => toml::remove(plain, place, name, member),
        Syntax::Yaml => yaml::remove(plain, place, name, member),
    };
    settle(text, &edited.ok_or_else(not_sure)?, (syntax, place), &wanted)
}

fn not_sure() -> NotEdited {
    NotEdited::Shape("is laid out in a way that is not edited here".to_owned())
}

/// The edited text with the line ends of the old one, when it says what was meant: these servers, and all else as before.
fn settle(
    old: &str,
    edited: &str,
    (syntax, place): (Syntax, Servers),
    wanted: &[(String, serde_json::Value)],
) -> Result<String, NotEdited> {
    let edited = lines::keep(old, edited);
    let rest = |text: &str| -> Result<serde_json::Value, NotEdited> {
        let mut all = said(&read::parse(text, syntax)?);
        if let Some(members) = all.as_object_mut() {
            members.remove(place.member());
        }
        Ok(all)
    };
    let now = servers(&edited, syntax, place).map_err(|_| not_sure())?;
    let empty = old.trim_start_matches('\u{feff}').trim().is_empty();
    if now != wanted || (!empty && rest(old)? != rest(&edited).map_err(|_| not_sure())?) {
        return Err(not_sure());
    }
    Ok(edited)
}

/// The entry as it would be pasted, where the file cannot be edited.
pub(super) fn paste((syntax, place): (Syntax, Servers), name: &str, value: &Value) -> String {
    let text = match syntax {
        Syntax::Json => json::put("{}", place, name, value),
        Syntax::Toml => toml::put("", place, name, value),
        Syntax::Yaml => yaml::put("", place, name, value, ""),
    };
    text.unwrap_or_default()
}
