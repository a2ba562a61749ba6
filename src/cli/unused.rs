//! `onegate tools --unused 30d`: which tools nobody called for so long, by the record of decisions, and how to leave them out.
//!
//! Reads records and changes nothing; what is suggested is for a person to decide.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use super::load;
use crate::catalog::{Catalogue, Item};
use crate::ident::Kind;
use crate::protocol::version::Revision;
use crate::shown::{hidden, shown_str};
use crate::telemetry::audit::used::Used;

/// What of a server's tools is denied already, as it is written.
pub(super) type Denied<'a> = &'a dyn Fn(&str) -> Vec<String>;

/// Reads the records of this last time.
pub(super) fn called(files: &[PathBuf], time: Duration) -> anyhow::Result<Used> {
    Used::read(files, time)
        .map_err(|(file, error)| anyhow::Error::new(error).context(shown_str(&file.display().to_string())))
}

/// Why the records do not reach as far back as was asked.
fn gap(called: &Used) -> Option<String> {
    match &called.recorded {
        None => Some("nothing is recorded yet".to_owned()),
        Some(since) if *since > called.from => Some(format!("the records begin at {since}")),
        Some(_) => None,
    }
}

/// The visible tools that are not among those.
fn unused<'a>(catalogue: &'a Catalogue, called: &Used) -> Vec<Item<'a>> {
    let is_unused = |item: &Item<'_>| item.hidden.is_none() && !called.has(item.key.as_str(), item.native);
    catalogue.items(Kind::Tool, Revision::LATEST_MODERN).filter(is_unused).collect()
}

/// For people: the tools, what they cost, and what to write to leave them out.
pub(super) fn as_text(catalogue: &Catalogue, called: &Used, denied: Denied<'_>) -> String {
    let unused = unused(catalogue, called);
    let mut text = String::new();
    if let Some(gap) = gap(called) {
        text.push_str(&format!("{gap}: what was called before is not known\n"));
    }
    if unused.is_empty() {
        text.push_str("every tool was called\n");
        return text;
    }
    let cost: usize = unused.iter().map(|item| item.tokens).sum();
    let count = load::count(unused.len(), "tool");
    text.push_str(&format!(
        "{count} not called, about {cost} tokens. To leave them out, in a file of its own (`onegate.d/unused.toml` beside \
         `onegate.toml`) or in place of the lines that are there:\n"
    ));
    for (key, tools) in by_server(&unused) {
        let cost: usize = tools.iter().map(|item| item.tokens).sum();
        text.push_str(&format!("\n# {} of about {cost} tokens\n", load::count(tools.len(), "tool")));
        text.push_str(&format!("[servers.{key}]\ntools.deny = {}\n", patterns(key, &tools, denied)));
    }
    text.push_str("\nOr keep them, behind search: `surface = \"search\"` in a profile.\n");
    text
}

/// The same for programs.
pub(super) fn as_json(catalogue: &Catalogue, called: &Used, denied: Denied<'_>) -> Value {
    let unused = unused(catalogue, called);
    let row = |item: &Item<'_>| {
        json!({
            "server": item.key.as_str(), "native": item.native, "exposed": item.exposed, "bytes": item.bytes,
            "tokens": item.tokens,
        })
    };
    let deny: BTreeMap<_, Vec<_>> =
        by_server(&unused).into_iter().map(|(key, tools)| (key, all_denied(key, &tools, denied).collect())).collect();
    json!({
        "unused": unused.iter().map(row).collect::<Vec<_>>(), "since": called.from, "recorded_since": called.recorded,
        "tokens": unused.iter().map(|item| item.tokens).sum::<usize>(), "deny": deny,
    })
}

fn by_server<'a, 'i>(items: &'a [Item<'i>]) -> BTreeMap<&'i str, Vec<&'a Item<'i>>> {
    let mut found: BTreeMap<&str, Vec<&Item<'_>>> = BTreeMap::new();
    items.iter().for_each(|item| found.entry(item.key.as_str()).or_default().push(item));
    found
}

/// The patterns that deny what is denied now, and these. A list in a file takes the place of the one before it.
fn all_denied(key: &str, items: &[&Item<'_>], denied: Denied<'_>) -> impl Iterator<Item = String> {
    denied(key).into_iter().chain(items.iter().map(|item| literal(item.native)))
}

/// The same as a list in TOML, fit for a terminal and for pasting.
fn patterns(key: &str, items: &[&Item<'_>], denied: Denied<'_>) -> String {
    let all: Vec<_> = all_denied(key, items, denied).map(|pattern| quoted(&pattern)).collect();
    format!("[{}]", all.join(", "))
}

/// A text in TOML, on one line, in which nothing hides: what TOML itself would leave as it is, too.
fn quoted(text: &str) -> String {
    if !text.contains(hidden) {
        return toml_edit::Value::from(text).to_string();
    }
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if hidden(c) => match u32::from(c) {
                code @ ..=0xffff => out.push_str(&format!("\\u{code:04X}")),
                code => out.push_str(&format!("\\U{code:08X}")),
            },
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A pattern that matches this name alone.
fn literal(native: &str) -> String {
    let mut out = String::with_capacity(native.len());
    for (n, c) in native.chars().enumerate() {
        if matches!(c, '*' | '?' | '[' | '\\') || n == 0 && native.starts_with("re:") {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;

    use super::*;
    use crate::catalog::{Contribution, Part};
    use crate::ident::ServerKey;
    use crate::pattern::Pattern;
    use crate::policy::{Policy, ServerRules, View};

    fn catalogue(names: &[&str]) -> Catalogue {
        let key = ServerKey::new("a").unwrap();
        let tool = |name: &&str| json!({"name": name, "inputSchema": {"type": "object"}});
        let list = Value::from_iter(names.iter().map(tool)).to_string();
        let part = Arc::new(
            Part::parse(Kind::Tool, &[Bytes::from(list)], crate::config::settings::ListLimits::default()).unwrap(),
        );
        let parts = [Some(&part), None, None, None];
        let one = Contribution { server: 0, key: &key, prefix: "a", http: false, parts };
        Catalogue::build(&[one], &Policy::new(vec![ServerRules::default()]), 45, &View::default())
    }

    fn called(records: &[(&str, &str)]) -> Used {
        let mut called = Used { from: "2026-01-02T00:00:00Z".to_owned(), ..Used::default() };
        for (time, native) in records {
            called.record(&json!({"time": time, "server": "a", "kind": "tool", "native": native}));
        }
        called
    }

    #[test]
    fn what_was_not_called_is_told_with_a_remedy() {
        let catalogue = catalogue(&["read", "old", "odd*[x"]);
        let known = called(&[("2026-01-01T00:00:00Z", "old"), ("2026-01-03T00:00:00Z", "read")]);
        let text = as_text(&catalogue, &known, &|_| Vec::new());
        assert!(text.starts_with("2 tools not called, about"), "{text}");
        assert!(text.contains("[servers.a]\ntools.deny = [\"old\", 'odd\\*\\[x']\n"), "{text}");
        assert_eq!(
            as_json(&catalogue, &known, &|_| vec!["x*".to_owned()])["deny"]["a"],
            json!(["x*", "old", "odd\\*\\[x"])
        );
        let all = called(&[("2026-01-01T00:00:00Z", "x"), ("2026-01-03T00:00:00Z", "read")]);
        assert_eq!(unused(&catalogue, &all).len(), 2);
    }

    #[test]
    fn d100_nothing_hides_in_a_remedy() {
        let names = ["a\u{202e}b\u{200b}", "two\nlines", "tag\u{e0041}\"\\'"];
        let called = called(&[]);
        let catalogue = catalogue(&names);
        let text = as_text(&catalogue, &called, &|_| Vec::new());
        assert!(text.chars().all(|c| c == '\n' || !hidden(c)), "{text:?}");
        let line = text.lines().find(|line| line.starts_with("tools.deny")).unwrap();
        assert!(line.contains(r#""a\u202Eb\u200B""#), "{line}");
        let table: toml_edit::DocumentMut = line.parse().unwrap();
        let read: Vec<_> =
            table["tools"]["deny"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
        let matched = |name: &&str| read.iter().any(|pattern| Pattern::new(pattern).unwrap().matches(name));
        assert!(read.len() == 3 && names.iter().all(matched), "{read:?}");
    }

    #[test]
    fn records_that_do_not_reach_back_are_said() {
        let catalogue = catalogue(&["read"]);
        assert!(as_text(&catalogue, &called(&[]), &|_| Vec::new()).starts_with("nothing is recorded yet"));
        let late = called(&[("2026-01-03T00:00:00Z", "read")]);
        let text = as_text(&catalogue, &late, &|_| Vec::new());
        assert!(text.contains("begin at 2026-01-03") && text.contains("every tool was called"), "{text}");
    }

    #[test]
    fn a_remedy_matches_its_tool_alone() {
        for native in ["read", "re:x", "a*b", "[x]", "back\\slash", "q?"] {
            let pattern = Pattern::new(&literal(native)).unwrap();
            assert!(pattern.matches(native) && !pattern.matches("ab"), "{native}");
        }
    }
}
