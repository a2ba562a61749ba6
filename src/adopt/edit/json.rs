//! JSON and JSONC, by an editor that keeps comments and layout.

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstInputValue, CstObject, CstRootNode};

use super::super::hosts::{Servers, Syntax};
use super::super::read;
use super::Value;

fn parse(text: &str) -> Option<CstRootNode> {
    let options = ParseOptions {
        allow_comments: true,
        allow_trailing_commas: true,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    };
    CstRootNode::parse(text, &options).ok()
}

/// The map of servers, made where it is not there.
fn map(root: &CstRootNode, place: Servers) -> Option<CstObject> {
    let Servers::Map(member) = place else { return None };
    let root = root.object_value_or_create()?;
    match root.get(member) {
        Some(servers) => servers.object_value(),
        None => root.append(member, CstInputValue::Object(Vec::new())).object_value(),
    }
}

/// Puts an entry in.
pub(super) fn put(text: &str, place: Servers, name: &str, value: &Value) -> Option<String> {
    let text = if text.trim().is_empty() { "{}\n" } else { text };
    let root = parse(text)?;
    let servers = map(&root, place)?;
    match servers.get(name) {
        Some(known) => match (known.object_value(), value) {
            (Some(entry), Value::Table(members)) => over(&entry, members),
            _ => known.set_value(input(value)),
        },
        None => {
            servers.append(name, input(value));
        }
    }
    Some(root.to_string())
}

/// Makes an object say this, and leaves what says it already as it is written, comments with it.
fn over(entry: &CstObject, members: &[(String, Value)]) {
    for known in entry.properties() {
        let name = known.name().and_then(|name| name.decoded_value().ok());
        if !name.is_some_and(|name| members.iter().any(|(wanted, _)| *wanted == name)) {
            known.remove();
        }
    }
    for (name, value) in members {
        match entry.get(name) {
            Some(known) if known.value().is_some_and(|now| says(&now.to_string(), value)) => {}
            Some(known) => known.set_value(input(value)),
            None => {
                entry.append(name, input(value));
            }
        }
    }
}

fn says(text: &str, value: &Value) -> bool {
    read::parse(text, Syntax::Json).is_ok_and(|node| super::said(&node) == value.json())
}

/// Takes an entry out.
pub(super) fn remove(text: &str, place: Servers, name: &str, member: bool) -> Option<String> {
    let root = parse(text)?;
    let servers = root.object_value()?.get(place.member())?;
    servers.object_value()?.get(name)?.remove();
    if member && servers.object_value()?.properties().is_empty() {
        servers.remove();
    }
    Some(root.to_string())
}

fn input(value: &Value) -> CstInputValue {
    match value {
        Value::Text(text) => CstInputValue::String(text.clone()),
        Value::Number(number) => CstInputValue::Number(number.to_string()),
        Value::Bool(truth) => CstInputValue::Bool(*truth),
        Value::Null => CstInputValue::Null,
        Value::List(items) => CstInputValue::Array(items.iter().map(input).collect()),
        Value::Table(members) => {
            CstInputValue::Object(members.iter().map(|(name, value)| (name.clone(), input(value))).collect())
        }
    }
}
