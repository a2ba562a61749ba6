//! TOML, by an editor that keeps comments and layout.

use toml_edit::{DocumentMut, Item, Table};

use super::super::hosts::Servers;
use super::super::lines;
use super::Value;

/// Puts an entry in, as a table of its own where that can be.
pub(super) fn put(text: &str, place: Servers, name: &str, value: &Value) -> Option<String> {
    let mut document: DocumentMut = text.parse().ok()?;
    let empty = text.trim().is_empty();
    let servers = document.entry(place.member()).or_insert_with(|| {
        let mut servers = Table::new();
        servers.set_implicit(true);
        Item::Table(servers)
    });
    let Value::Table(members) = value else { return None };
    match servers {
        Item::Table(servers) if servers.get(name).is_some_and(Item::is_table) => {
            let known = servers.get_mut(name)?.as_table_mut()?;
            // What says it already stays as it is written, comments with it.
            known.retain(|name, _| members.iter().any(|(wanted, _)| wanted == name));
            for (name, value) in members {
                match known.get_mut(name) {
                    Some(Item::Value(now)) => {
                        let mut wanted = inner(value);
                        if plain(now) != plain(&wanted) {
                            *wanted.decor_mut() = now.decor().clone();
                            *now = wanted;
                        }
                    }
                    Some(other) => *other = item(value),
                    None => drop(known.insert(name, item(value))),
                }
            }
        }
        Item::Table(servers) => {
            let mut table = Table::new();
            for (name, value) in members {
                table.insert(name, item(value));
            }
            table.decor_mut().set_prefix(if empty { "" } else { "\n" });
            servers.insert(name, Item::Table(table));
        }
        other @ (Item::None | Item::Value(_) | Item::ArrayOfTables(_)) => {
            other.as_table_like_mut()?.insert(name, item(value));
        }
    }
    Some(document.to_string())
}

/// Takes an entry out: by its lines, since the editor takes comments before a table along; inside a line by the editor.
pub(super) fn remove(text: &str, place: Servers, name: &str, member: bool) -> Option<String> {
    if let Some(without) = lines::without_table(text, place.member(), name, false) {
        return Some(without);
    }
    let mut document: DocumentMut = text.parse().ok()?;
    let servers = document.get_mut(place.member())?.as_table_like_mut()?;
    servers.remove(name)?;
    if member && servers.is_empty() {
        document.remove(place.member());
    }
    Some(document.to_string())
}

/// A value as it would be written without its spaces and comments.
fn plain(value: &toml_edit::Value) -> String {
    let mut value = value.clone();
    value.decor_mut().clear();
    value.to_string()
}

fn item(value: &Value) -> Item {
    Item::Value(inner(value))
}

fn inner(value: &Value) -> toml_edit::Value {
    match value {
        Value::Text(text) => text.as_str().into(),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(number), _) => number.into(),
            (None, number) => number.unwrap_or_default().into(),
        },
        Value::Bool(truth) => (*truth).into(),
        // TOML has none, so none was read; what is not as it was meant is refused.
        Value::Null => "".into(),
        Value::List(items) => toml_edit::Value::Array(items.iter().map(inner).collect()),
        Value::Table(members) => {
            toml_edit::Value::InlineTable(members.iter().map(|(name, value)| (name.as_str(), inner(value))).collect())
        }
    }
}
