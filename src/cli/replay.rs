//! `onegate policy replay`: which decisions of the past would be others under this configuration. Starts nothing.
//!
//! A record holds what was decided about but for the arguments: of these it has a shape, and the values that the operator
//! named. A decision that hangs on others cannot be told, and is said to be undecidable rather than guessed. How often
//! something is called is not replayed: limits begin anew with each gateway.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::{Map, Value, json};

use super::exit::Exit;
use super::who::{self, Then};
use super::{Common, load, out};
use crate::config::settings::Settings;
use crate::ident::{Kind, Principal};
use crate::moment;
use crate::policy::{Extent, Policy, Reason};
use crate::protocol::method::Method;
use crate::shown::shown_str;
use crate::telemetry::audit::shape;
use crate::telemetry::audit::verify::{Lines, verify};

/// The reason where the configuration has no such server any more.
const NO_SERVER: &str = "no-such-server";

/// What a record says of its arguments.
struct Arguments {
    /// Those that are known, a raw object.
    raw: Vec<u8>,
    /// The pointers that are known, with all that is below them; nothing = everything is.
    known: Option<Vec<String>>,
}

impl Arguments {
    fn is_known(&self, pointer: &str, fixed: &[&str]) -> bool {
        let below =
            |known: &str| pointer.strip_prefix(known).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        let is_fixed = || {
            let first = pointer.split('/').nth(1).map(|step| step.replace("~1", "/").replace("~0", "~"));
            first.is_some_and(|first| fixed.contains(&&*first))
        };
        self.known.as_ref().is_none_or(|known| known.iter().any(|known| below(known)) || is_fixed())
    }

    /// From a record, where `values` are the pointers that were written down then.
    fn of(record: &Value, values: &[String], kind: Kind) -> Self {
        let method = record["method"].as_str().unwrap_or_default();
        let about_task = method.starts_with("tasks/") || method == Method::Listen.as_str();
        if kind == Kind::Resource || about_task || record["shape"] == shape(b"{}") {
            return Self { raw: b"{}".to_vec(), known: None };
        }
        let omitted: Vec<_> = record["omitted"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let written = &record["values"];
        if let Some(whole) = written.get("") {
            return Self { raw: whole.to_string().into_bytes(), known: None };
        }
        let (mut root, mut known) = (Value::Object(Map::new()), Vec::new());
        for pointer in values.iter().filter(|pointer| !omitted.contains(&pointer.as_str())) {
            match written.get(pointer.as_str()) {
                Some(value) => {
                    put(&mut root, pointer, value);
                    known.push(pointer.clone());
                }
                // Deeper, what is above it may be of another kind than a rule expects.
                None if pointer.matches('/').count() == 1 => known.push(pointer.clone()),
                None => {}
            }
        }
        Self { raw: root.to_string().into_bytes(), known: Some(known) }
    }
}

/// Puts a value where a pointer leads, as members of objects: a rule finds it there, too.
fn put(root: &mut Value, pointer: &str, value: &Value) {
    let mut at = root;
    for step in pointer.split('/').skip(1) {
        let step = step.replace("~1", "/").replace("~0", "~");
        // One that was written down whole holds it already.
        let Value::Object(members) = at else { return };
        at = members.entry(step).or_insert_with(|| Value::Object(Map::new()));
    }
    *at = value.clone();
}

/// What would be decided now.
enum Now {
    Allowed,
    Refused(&'static str),
    /// It hangs on arguments that nobody knows any more.
    Undecidable,
}

/// Decisions that are alike.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Alike {
    principal: String,
    target: String,
    method: String,
    was: String,
    now: String,
    reason: String,
}

/// All that was found.
#[derive(Default)]
struct Found {
    same: u64,
    limits: u64,
    left_out: u64,
    unknown: u64,
    unread: u64,
    /// How often, and the first of them.
    changed: BTreeMap<Alike, (u64, String)>,
    undecidable: BTreeMap<Alike, (u64, String)>,
}

pub(super) fn run(files: &[PathBuf], as_json: bool, common: &Common) -> anyhow::Result<Exit> {
    let settings = load::load(common, as_json)?.settings;
    let then = Then::default();
    let policy = load::policy(&settings, &then.clock())?;
    let mut found = Found::default();
    for file in files {
        replay(file, &settings, &policy, &then, &mut found).with_context(|| shown_str(&file.display().to_string()))?;
    }
    for broken in verify(files)?.into_iter().filter_map(|report| report.broken) {
        let file = shown_str(&broken.file.display().to_string());
        out::say(&format!(
            "onegate: {file}, line {}: {}; what is told of it may not be true",
            broken.line, broken.what
        ));
    }
    if as_json {
        out::json(&found_as_json(&found))?;
    } else {
        out::text(&found_as_text(&found))?;
    }
    Ok(if found.changed.is_empty() { Exit::Fine } else { Exit::Failed })
}

fn replay(file: &Path, settings: &Settings, policy: &Policy, then: &Then, found: &mut Found) -> anyhow::Result<()> {
    let mut lines = Lines::open(file)?;
    let mut values: Vec<String> = Vec::new();
    while let Some(raw) = lines.next_line()? {
        let Ok(record) = serde_json::from_slice::<Value>(&raw.bytes) else {
            found.unread += 1;
            continue;
        };
        if record.get("event").is_some() {
            if let Some(written) = record["values"].as_array() {
                values = written.iter().filter_map(Value::as_str).map(str::to_owned).collect();
            }
            continue;
        }
        then.set(record["time"].as_str().and_then(moment::parse));
        one(&record, &values, (settings, policy), found);
    }
    Ok(())
}

fn one(record: &Value, values: &[String], (settings, policy): (&Settings, &Policy), found: &mut Found) {
    let text = |name: &str| record[name].as_str();
    let allowed = match text("verdict") {
        Some("allow" | "shadow") => true,
        Some("refuse" | "hidden") => false,
        _ => return found.unknown += 1,
    };
    let is_limit = |reason: &str| Reason::ALL.iter().any(|known| known.is_of_limit() && known.code() == reason);
    if text("reason").is_some_and(is_limit) {
        return found.limits += 1;
    }
    // By no rule: by a profile, an override or a pin.
    if text("rule").is_none() && (text("verdict") == Some("hidden") || text("pin").is_some()) {
        return found.left_out += 1;
    }
    let kind = Kind::ALL.into_iter().find(|kind| Some(kind.as_str()) == text("kind"));
    let (Some(server), Some(kind), Some(native), Some(name)) =
        (text("server"), kind, text("native"), text("principal"))
    else {
        return found.unknown += 1;
    };
    let Some(principal) = principal(settings, record, name) else { return found.unknown += 1 };
    let now = match settings.servers.iter().position(|known| known.key.as_str() == server) {
        None => Now::Refused(NO_SERVER),
        Some(server) => {
            let extent = extent(text("method").unwrap_or_default(), kind);
            let arguments = Arguments::of(record, values, kind);
            decide((settings, policy), &principal, (server, kind, native), (arguments, extent))
        }
    };
    let word = |allowed: bool| if allowed { "allow" } else { "deny" };
    let (into, now, reason) = match now {
        Now::Allowed if allowed => return found.same += 1,
        Now::Refused(_) if !allowed => return found.same += 1,
        Now::Allowed => (&mut found.changed, "allow", text("reason").unwrap_or_default()),
        Now::Refused(reason) => (&mut found.changed, "deny", reason),
        Now::Undecidable => (&mut found.undecidable, "undecidable", "arguments"),
    };
    let alike = Alike {
        principal: name.to_owned(),
        target: format!("{server}/{kind}/{native}"),
        method: text("method").unwrap_or_default().to_owned(),
        was: word(allowed).to_owned(),
        now: now.to_owned(),
        reason: reason.to_owned(),
    };
    let first = text("time").unwrap_or_default();
    into.entry(alike).or_insert_with(|| (0, first.to_owned())).0 += 1;
}

/// How much of the arguments a request has: of completions and of what is about tasks not all.
fn extent(method: &str, kind: Kind) -> Extent {
    let about_task = method.starts_with("tasks/") || method == Method::Listen.as_str() && kind == Kind::Tool;
    if about_task || method == Method::Complete.as_str() { Extent::Partial } else { Extent::Whole }
}

/// The principal with the groups that this configuration gives it; one that it does not know, with those of then.
fn principal(settings: &Settings, record: &Value, name: &str) -> Option<Principal> {
    let of_key = |key: &str| settings.auth.keys.iter().any(|known| known.name == key);
    let then = |member: &str| {
        let then = record[member].as_array().into_iter().flatten();
        then.filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>()
    };
    let groups = (!name.strip_prefix("key:").is_some_and(of_key)).then(|| then("groups"));
    Some(who::principal(settings, name, groups).ok()?.scoped(&then("scopes")))
}

fn decide(
    (settings, policy): (&Settings, &Policy),
    principal: &Principal,
    target: (usize, Kind, &str),
    (mut arguments, extent): (Arguments, Extent),
) -> Now {
    let (hidden, changed) = who::overridden(settings, target, Some(std::mem::take(&mut arguments.raw)));
    arguments.raw = changed.unwrap_or_default();
    if hidden {
        return Now::Refused(who::HIDDEN);
    }
    let overrides = settings.servers[target.0].overrides.iter();
    let fixed: Vec<&str> = overrides
        .filter(|change| target.1 == Kind::Tool && change.native == target.2)
        .flat_map(|change| change.fixed.iter().map(|(name, _)| name.as_str()))
        .collect();
    let Some(told) = policy.explain(principal, target, None) else { return Now::Refused(NO_SERVER) };
    match told.reason {
        Some(_) if told.shadowed => return Now::Allowed,
        Some(reason) => return Now::Refused(reason.code()),
        None if !told.needs_arguments => return Now::Allowed,
        None => {}
    }
    let known = |pointer: &str| arguments.is_known(pointer, &fixed);
    match policy.fit_known(&told.decided_by, &arguments.raw, extent, &known) {
        None => Now::Undecidable,
        Some(Ok(_)) => Now::Allowed,
        // Whether that would only be counted is said with the arguments, which do not fit whatever else they hold.
        Some(Err(_)) => match policy.explain(principal, target, Some(&arguments.raw)) {
            Some(told) if told.shadowed => Now::Allowed,
            _ => Now::Refused(Reason::ArgumentNotAllowed.code()),
        },
    }
}

fn found_as_json(found: &Found) -> Value {
    let rows = |alike: &BTreeMap<Alike, (u64, String)>| -> Vec<_> {
        let row = |(alike, (count, first)): (&Alike, &(u64, String))| {
            json!({
                "principal": alike.principal, "target": alike.target, "method": alike.method, "was": alike.was,
                "now": alike.now, "reason": alike.reason, "count": count, "first": first,
            })
        };
        alike.iter().map(row).collect()
    };
    json!({
        "same": found.same, "changed": rows(&found.changed), "undecidable": rows(&found.undecidable),
        "skipped": { "limits": found.limits, "left_out": found.left_out, "unknown": found.unknown, "unread": found.unread },
    })
}

fn found_as_text(found: &Found) -> String {
    let mut text = String::new();
    let row = |(alike, (count, first)): (&Alike, &(u64, String))| {
        let (who, target) = (shown_str(&alike.principal), shown_str(&alike.target));
        let (method, first) = (shown_str(&alike.method), shown_str(first));
        format!(
            "{who} {method} {target}: {} -> {} ({}), {count} times since {first}\n",
            alike.was, alike.now, alike.reason
        )
    };
    found.changed.iter().chain(&found.undecidable).for_each(|one| text.push_str(&row(one)));
    let sum = |alike: &BTreeMap<Alike, (u64, String)>| alike.values().map(|(count, _)| count).sum::<u64>();
    let (changed, undecidable) = (sum(&found.changed), sum(&found.undecidable));
    text.push_str(&format!(
        "{changed} would change, {undecidable} are undecidable, {} stay as they were\n",
        found.same
    ));
    if found.limits > 0 {
        text.push_str(&format!("not replayed: {} that a rate, quota or concurrency refused\n", found.limits));
    }
    if found.left_out > 0 {
        text.push_str(&format!("not replayed: {} that a profile, an override or a pin left out\n", found.left_out));
    }
    if found.unknown > 0 {
        text.push_str(&format!("not replayed: {} that named nothing known\n", found.unknown));
    }
    if found.unread > 0 {
        text.push_str(&format!("not read: {} lines; `onegate audit verify` tells more\n", found.unread));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_record_does_not_hold_is_not_known() {
        let values = ["/path", "/deep/x", "/list", "/gone", "/long"].map(str::to_owned);
        let record = json!({"method": "tools/call", "shape": "other", "omitted": ["/long"],
            "values": {"/path": "/srv", "/list": ["a"]}});
        let arguments = Arguments::of(&record, &values, Kind::Tool);
        let raw: Value = serde_json::from_slice(&arguments.raw).unwrap();
        assert_eq!(raw, json!({"path": "/srv", "list": ["a"]}));
        for (pointer, known) in [
            ("/path", true),
            ("/path/below", true),
            ("/pathology", false),
            ("/list/*", true),
            ("/gone", true),
            ("/deep/x", false),
            ("/long", false),
            ("/other", false),
            ("", false),
        ] {
            assert_eq!(arguments.is_known(pointer, &[]), known, "{pointer}");
        }
        assert!(arguments.is_known("/other/x", &["other"]), "fixed by the operator");
        for whole in [
            json!({"method": "tools/call", "shape": shape(b"{}")}),
            json!({"method": "tasks/get", "shape": "x"}),
            json!({"method": "tools/call", "shape": "x", "values": {"": {"path": 1}}}),
        ] {
            assert!(Arguments::of(&whole, &[], Kind::Tool).is_known("", &[]), "{whole}");
        }
        let mut root = json!({});
        put(&mut root, "/a~1b/0", &json!(1));
        put(&mut root, "/c", &json!("text"));
        put(&mut root, "/c/d", &json!(2));
        assert_eq!(root, json!({"a/b": {"0": 1}, "c": "text"}));
    }

    /// A policy of one server `a`, its settings, and what tells it the time.
    fn policy(rules: &str) -> (Settings, Policy, Then) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("c.toml");
        let config = format!("[servers.a]\nurl = \"http://127.0.0.1:1/\"\n[policy]\ndefault = \"deny\"\n{rules}");
        std::fs::write(&file, config).unwrap();
        let options = crate::config::LoadOptions {
            files: vec![file],
            environment: crate::config::Environment::from_iter([("HOME", folder.path())]),
            cwd: folder.path().to_owned(),
            etc: folder.path().join("etc"),
            flags: Vec::new(),
        };
        let settings = crate::config::load(&options).unwrap_or_else(|faults| panic!("{faults}")).settings;
        let then = Then::default();
        let policy = Policy::compile(&settings, &then.clock()).unwrap();
        (settings, policy, then)
    }

    #[test]
    fn times_and_scopes_are_those_of_the_record() {
        let (settings, policy, then) = policy(
            "[[policy.rule]]\neffect = \"allow\"\nwho = [\"scope:use\"]\ntarget = [\"a/tool/*\"]\n\
             time = { hours = \"08:00-18:00\", zone = \"+01:00\" }\n",
        );
        for (time, scope, verdict) in [
            ("2026-11-30T07:00:00.001Z", "use", "allow"),
            ("2026-11-30T06:59:59.999Z", "use", "refuse"),
            ("2026-11-30T16:59:59.999Z", "use", "allow"),
            ("2026-11-30T07:00:00.001Z", "other", "refuse"),
        ] {
            let record = json!({"time": time, "principal": "user:42", "groups": [], "scopes": [scope], "server": "a",
                "kind": "tool", "native": "t", "method": "tools/call", "verdict": verdict, "shape": shape(b"{}")});
            let mut found = Found::default();
            then.set(moment::parse(time));
            one(&record, &[], (&settings, &policy), &mut found);
            assert_eq!(found.same, 1, "{record}");
        }
    }

    /// How somebody comes is said by who it is: a record without that is none.
    #[test]
    fn e_40_a_transport_is_that_of_the_record() {
        let rule = |effect: &str, tool: &str, transport: &str| {
            format!(
                "[[policy.rule]]\neffect = \"{effect}\"\nwho = [\"*\"]\ntarget = [\"a/tool/{tool}\"]\n{transport}\n"
            )
        };
        let (stdio, http) = ("transport = \"stdio\"", "transport = \"http\"");
        let rules = [("allow", "near", stdio), ("allow", "far", http), ("allow", "both", ""), ("deny", "both", http)];
        let (settings, policy, _) =
            policy(&rules.map(|(effect, tool, transport)| rule(effect, tool, transport)).concat());
        for (principal, allowed) in [
            ("stdio", ["near", "both"].as_slice()),
            ("stdio:laptop", &["near", "both"]),
            ("key:stdio", &["far"]),
            ("user:stdio:laptop", &["far"]),
            ("anonymous", &["far"]),
        ] {
            for native in ["near", "far", "both"] {
                let verdict = if allowed.contains(&native) { "allow" } else { "refuse" };
                let mut record = json!({"time": "2026-11-30T07:00:00.001Z", "principal": principal, "groups": [],
                    "server": "a", "kind": "tool", "native": native, "method": "tools/call", "verdict": verdict,
                    "shape": shape(b"{}")});
                let mut found = Found::default();
                one(&record, &[], (&settings, &policy), &mut found);
                assert_eq!(found.same, 1, "{record}");
                record["principal"] = Value::Null;
                one(&record, &[], (&settings, &policy), &mut found);
                assert_eq!((found.unknown, found.same), (1, 1), "{record}");
            }
        }
    }
}
