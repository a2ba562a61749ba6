//! Our own entry, as each host wants it.

use super::edit::Value;
use super::hosts::Entry;

/// The entry that starts `command` with `args`.
pub(super) fn entry(form: Entry, name: &str, command: &str, args: &[String]) -> Value {
    let args = || Value::texts(args.iter().map(String::as_str));
    let command = || Value::text(command);
    let members: Vec<(&str, Value)> = match form {
        Entry::Bare => vec![("command", command()), ("args", args())],
        Entry::Typed => vec![("type", Value::text("stdio")), ("command", command()), ("args", args())],
        Entry::Zed => vec![("source", Value::text("custom")), ("command", command()), ("args", args())],
        Entry::OpenCode => {
            let Value::List(rest) = args() else { return args() };
            let words = std::iter::once(command()).chain(rest).collect();
            vec![("type", Value::text("local")), ("command", Value::List(words)), ("enabled", Value::Bool(true))]
        }
        Entry::Goose => vec![
            ("enabled", Value::Bool(true)),
            ("type", Value::text("stdio")),
            ("name", Value::text(name)),
            ("description", Value::text("")),
            ("cmd", command()),
            ("args", args()),
            ("envs", Value::Table(Vec::new())),
            ("env_keys", Value::List(Vec::new())),
            ("timeout", Value::Number(300.into())),
            ("bundled", Value::Bool(false)),
        ],
        Entry::Listed => {
            vec![("name", Value::text(name)), ("type", Value::text("stdio")), ("command", command()), ("args", args())]
        }
        Entry::Copilot => vec![
            ("type", Value::text("local")),
            ("command", command()),
            ("args", args()),
            ("tools", Value::texts(["*"])),
        ],
    };
    Value::Table(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

/// Our entry over the one that is there: what people added to it stays, and so does how they tuned what is no part of the
/// start. None where something in it cannot be written again.
pub(super) fn over(there: &serde_json::Value, ours: Value) -> Option<Value> {
    const TUNED: &[&str] = &["tools", "timeout", "envs", "env_keys", "description"];
    let Some(members) = there.as_object() else { return Some(ours) };
    let Value::Table(mut new) = ours else { return Some(ours) };
    let mut merged = Vec::with_capacity(members.len());
    for (name, value) in members {
        let at = new.iter().position(|(known, _)| known == name);
        let fresh = at.map(|at| new.remove(at));
        match fresh {
            Some(fresh) if !TUNED.contains(&name.as_str()) => merged.push(fresh),
            Some(_) | None => merged.push((name.clone(), Value::of_json(value))),
        }
    }
    merged.extend(new);
    Some(Value::Table(merged)).filter(|merged| !merged.json().to_string().contains("\\u0000other"))
}
