//! `onegate tools --unused 30d`: which tools nobody called for so long, by the record of decisions, and how to leave them out.
//!
//! Reads records and changes nothing; what is suggested is for a person to decide.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use serde_json::{Value, json};

use super::load;
use crate::catalog::{Catalogue, Item, tokens};
use crate::ident::Kind;
use crate::moment;
use crate::protocol::version::Revision;
use crate::shown::shown_str;
use crate::telemetry::audit::verify::Lines;

/// What was called in some time.
#[derive(Default)]
pub(super) struct Called {
    /// Server and native name.
    tools: BTreeSet<(String, String)>,
    /// When the first record was written that was read.
    since: Option<String>,
    /// From when on calls count.
    from: String,
}

impl Called {
    /// Reads the records of this last time.
    pub(super) fn read(files: &[PathBuf], time: Duration) -> anyhow::Result<Self> {
        let from = SystemTime::now().checked_sub(time).map(moment::text).unwrap_or_default();
        let mut called = Self { from, ..Self::default() };
        for file in files {
            called.file(file).with_context(|| shown_str(&file.display().to_string()))?;
        }
        Ok(called)
    }

    fn file(&mut self, file: &Path) -> anyhow::Result<()> {
        let mut lines = Lines::open(file)?;
        while let Some(raw) = lines.next_line()? {
            let Ok(record) = serde_json::from_slice::<Value>(&raw.bytes) else { continue };
            self.record(&record);
        }
        Ok(())
    }

    fn record(&mut self, record: &Value) {
        let text = |name: &str| record[name].as_str();
        let Some(time) = text("time") else { return };
        if self.since.as_deref().is_none_or(|since| time < since) {
            self.since = Some(time.to_owned());
        }
        // Who was refused wanted it all the same.
        if let (Some(server), Some("tool"), Some(native)) = (text("server"), text("kind"), text("native"))
            && time >= self.from.as_str()
        {
            self.tools.insert((server.to_owned(), native.to_owned()));
        }
    }

    /// Why the records do not reach as far back as was asked.
    fn gap(&self) -> Option<String> {
        match &self.since {
            None => Some("nothing is recorded yet".to_owned()),
            Some(since) if *since > self.from => Some(format!("the records begin at {since}")),
            Some(_) => None,
        }
    }
}

/// The visible tools that are not among those.
fn unused<'a>(catalogue: &'a Catalogue, called: &Called) -> Vec<Item<'a>> {
    let is_unused = |item: &Item<'_>| {
        item.hidden.is_none() && !called.tools.contains(&(item.key.to_string(), item.native.to_owned()))
    };
    catalogue.items(Kind::Tool, Revision::LATEST_MODERN).filter(is_unused).collect()
}

/// For people: the tools, what they cost, and what to write to leave them out.
pub(super) fn as_text(catalogue: &Catalogue, called: &Called) -> String {
    let unused = unused(catalogue, called);
    let mut text = String::new();
    if let Some(gap) = called.gap() {
        text.push_str(&format!("{gap}: what was called before is not known\n"));
    }
    if unused.is_empty() {
        text.push_str("every tool was called\n");
        return text;
    }
    let cost: usize = unused.iter().map(|item| tokens::estimate(item.bytes)).sum();
    let count = load::count(unused.len(), "tool");
    text.push_str(&format!("{count} not called, about {cost} tokens. To leave them out:\n"));
    for (key, tools) in by_server(&unused) {
        let cost: usize = tools.iter().map(|item| tokens::estimate(item.bytes)).sum();
        text.push_str(&format!("\n# {} of about {cost} tokens\n", load::count(tools.len(), "tool")));
        text.push_str(&format!("[servers.{key}]\ntools.deny = {}\n", patterns(&tools)));
    }
    text.push_str("\nOr keep them, behind search: `surface = \"search\"` in a profile.\n");
    text
}

/// The same for programs.
pub(super) fn as_json(catalogue: &Catalogue, called: &Called) -> Value {
    let unused = unused(catalogue, called);
    let row = |item: &Item<'_>| {
        json!({
            "server": item.key.as_str(), "native": item.native, "exposed": item.exposed, "bytes": item.bytes,
            "tokens": tokens::estimate(item.bytes),
        })
    };
    let deny: BTreeMap<_, Vec<_>> = by_server(&unused)
        .into_iter()
        .map(|(key, tools)| (key, tools.iter().map(|item| literal(item.native)).collect()))
        .collect();
    json!({
        "unused": unused.iter().map(row).collect::<Vec<_>>(), "since": called.from, "recorded_since": called.since,
        "tokens": unused.iter().map(|item| tokens::estimate(item.bytes)).sum::<usize>(), "deny": deny,
    })
}

fn by_server<'a, 'i>(items: &'a [Item<'i>]) -> BTreeMap<&'i str, Vec<&'a Item<'i>>> {
    let mut found: BTreeMap<&str, Vec<&Item<'_>>> = BTreeMap::new();
    items.iter().for_each(|item| found.entry(item.key.as_str()).or_default().push(item));
    found
}

/// The names as a list of patterns in TOML.
fn patterns(items: &[&Item<'_>]) -> String {
    let all: toml_edit::Array = items.iter().map(|item| literal(item.native)).collect();
    all.to_string()
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
        let part = Arc::new(Part::parse(Kind::Tool, &[Bytes::from(list)]).unwrap());
        let parts = [Some(&part), None, None, None];
        let one = Contribution { server: 0, key: &key, prefix: "a", http: false, parts };
        Catalogue::build(&[one], &Policy::new(vec![ServerRules::default()]), 45, &View::default())
    }

    fn called(records: &[(&str, &str)]) -> Called {
        let mut called = Called { from: "2026-01-02T00:00:00Z".to_owned(), ..Called::default() };
        for (time, native) in records {
            called.record(&json!({"time": time, "server": "a", "kind": "tool", "native": native}));
        }
        called
    }

    #[test]
    fn what_was_not_called_is_told_with_a_remedy() {
        let catalogue = catalogue(&["read", "old", "odd*[x"]);
        let known = called(&[("2026-01-01T00:00:00Z", "old"), ("2026-01-03T00:00:00Z", "read")]);
        let text = as_text(&catalogue, &known);
        assert!(text.starts_with("2 tools not called, about"), "{text}");
        assert!(text.contains("[servers.a]\ntools.deny = [\"old\", 'odd\\*\\[x']\n"), "{text}");
        assert_eq!(as_json(&catalogue, &known)["deny"]["a"], json!(["old", "odd\\*\\[x"]));
        let all = called(&[("2026-01-01T00:00:00Z", "x"), ("2026-01-03T00:00:00Z", "read")]);
        assert_eq!(unused(&catalogue, &all).len(), 2);
    }

    #[test]
    fn records_that_do_not_reach_back_are_said() {
        let catalogue = catalogue(&["read"]);
        assert!(as_text(&catalogue, &called(&[])).starts_with("nothing is recorded yet"));
        let late = called(&[("2026-01-03T00:00:00Z", "read")]);
        let text = as_text(&catalogue, &late);
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
