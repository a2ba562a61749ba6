//! The keys of the configuration, their defaults, and the reference text: the doc comments here are
//! what `onegate schema` hands to editors.
//!
//! Two views of the same keys: the types that serde fills and schemars describes, and [`SHAPE`], the table
//! that finds every fault of a file before serde would stop at the first. A test holds them equal.
//! Deliberately knows no file and no layer. Called by `check`, `layers`, `load` and `resolve`.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::check::Shape;
use super::period::{Period, PeriodOrNever};

// No `Debug` on what can hold a plain-text secret (I-34).

/// Configuration of onegate.
#[derive(Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(default, deny_unknown_fields)]
#[schemars(title = "onegate configuration")]
pub(super) struct File {
    /// The gateway itself.
    pub gateway: Gateway,
    /// The servers behind the gateway. A key is 1 to 16 of a-z, 0-9 and `-`, beginning with a letter; it is
    /// the server's only identity.
    #[schemars(extend("propertyNames" = { "pattern": "^[a-z][a-z0-9-]{0,15}$" }))]
    pub servers: BTreeMap<String, Server>,
    /// Logs.
    pub telemetry: Telemetry,
}

/// The gateway itself.
#[derive(Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Gateway {
    /// Instructions of your own for the host; those of the servers follow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// Longest exposed tool name. Hosts allow 64 characters and put a prefix of their own before it.
    #[schemars(range(min = 24, max = 128))]
    pub name_budget: u16,
    /// More variables that servers may see of our environment, as patterns: `["npm_config_*"]`.
    pub pass_env: Vec<String>,
    /// Folder for what survives a restart. Default: `$XDG_STATE_HOME/onegate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
}

impl Default for Gateway {
    fn default() -> Self {
        Self { instructions: None, name_budget: 45, pass_env: Vec::new(), state: None }
    }
}

/// One server.
#[derive(Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Server {
    /// The program to start, without a shell: a name is looked up in `PATH`, a path with a `/` is relative to
    /// this file. References are expanded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Its arguments, each one handed on as it stands. References are expanded.
    pub args: Vec<String>,
    /// Its own variables, beside the few that every server sees. References are expanded.
    pub env: BTreeMap<String, String>,
    /// Its working folder, relative to this file. Default: ours. References are expanded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// `false` leaves it out.
    pub enabled: bool,
    /// `lazy`: started on the first need. `eager`: with the gateway.
    pub start: Start,
    /// The protocol era to speak: found out by probing (`auto`), or fixed.
    pub era: Era,
    /// What stands before `__` in exposed names. Default: the key. Empty for at most one server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// Unused for this long, it is stopped; `never` keeps it.
    pub idle_stop: PeriodOrNever,
    /// Its deadlines.
    pub timeouts: Timeouts,
    /// Which of its tools are visible, by the names that it gives them.
    pub tools: Tools,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            command: None,
            args: Vec::new(),
            env: BTreeMap::new(),
            cwd: None,
            enabled: true,
            start: Start::Lazy,
            era: Era::Auto,
            prefix: None,
            idle_stop: PeriodOrNever(None),
            timeouts: Timeouts::default(),
            tools: Tools::default(),
        }
    }
}

/// When a server is started.
#[derive(Clone, Copy, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum Start {
    /// On the first need; once to list it, while nothing is remembered of it.
    Lazy,
    /// With the gateway.
    Eager,
}

/// A protocol era.
#[derive(Clone, Copy, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum Era {
    /// Found out by probing, then remembered.
    Auto,
    /// 2026-07-28 and later.
    Modern,
    /// The revisions with `initialize`.
    Legacy,
}

/// Deadlines of a server.
#[derive(Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Timeouts {
    /// From the start to the first complete handshake.
    pub start: Period,
    /// For the answer to the era probe.
    pub probe: Period,
    /// For a call; progress begins it anew.
    pub call: Period,
    /// For a call, progress or not.
    pub call_max: Period,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            start: Period::secs(60),
            probe: Period::secs(3),
            call: Period::secs(60),
            call_max: Period::secs(15 * 60),
        }
    }
}

/// Patterns over names: `*` any text, `?` one character, `[ab]` one of these, `[!ab]` none of these.
#[derive(Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Tools {
    /// When given, only names that match one of these are visible; an empty list shows nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<String>>,
    /// Names that match one of these are hidden, whatever `allow` says.
    pub deny: Vec<String>,
}

/// Logs.
#[derive(Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Telemetry {
    /// Level, or directives such as `info,onegate::downstream=debug`.
    pub log: String,
    /// How a line on stderr looks.
    pub format: Format,
}

impl Default for Telemetry {
    fn default() -> Self {
        Self { log: "info".to_owned(), format: Format::Pretty }
    }
}

/// How a line on stderr looks.
#[derive(Clone, Copy, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum Format {
    /// For people.
    Pretty,
    /// Each line one JSON object.
    Json,
}

const fn period(min: Duration, max: Duration) -> Shape {
    Shape::Period { never: false, min, max }
}

const TICK: Duration = Duration::from_millis(10);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// The keys of a file.
pub(super) static SHAPE: Shape = Shape::Table(&[
    (
        "gateway",
        Shape::Table(&[
            ("instructions", Shape::Text),
            ("name_budget", Shape::Count { min: 24, max: 128 }),
            ("pass_env", Shape::Patterns),
            ("state", Shape::Name),
        ]),
    ),
    ("servers", Shape::Servers(&SERVER)),
    ("telemetry", Shape::Table(&[("log", Shape::Log), ("format", Shape::Word(&["pretty", "json"]))])),
]);

static SERVER: Shape = Shape::Table(&[
    ("command", Shape::Name),
    ("args", Shape::Texts),
    ("env", Shape::Variables),
    ("cwd", Shape::Name),
    ("enabled", Shape::Bool),
    ("start", Shape::Word(&["lazy", "eager"])),
    ("era", Shape::Word(&["auto", "modern", "legacy"])),
    ("prefix", Shape::Prefix),
    ("idle_stop", Shape::Period { never: true, min: TICK, max: Duration::from_secs(30 * 24 * 3600) }),
    (
        "timeouts",
        Shape::Table(&[
            ("start", period(TICK, HOUR)),
            ("probe", period(TICK, Duration::from_secs(300))),
            ("call", period(TICK, DAY)),
            ("call_max", period(TICK, DAY)),
        ]),
    ),
    ("tools", Shape::Table(&[("allow", Shape::Patterns), ("deny", Shape::Patterns)])),
]);

/// The JSON Schema of a configuration file, as `onegate schema` prints it. Not built when a file is loaded.
pub fn json_schema() -> String {
    let schema = schemars::schema_for!(File);
    let mut text = serde_json::to_string_pretty(&schema).expect("invariant: a schema is JSON");
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    /// The committed schema is the generated one; `UPDATE_SCHEMA=1 cargo test` writes it.
    #[test]
    fn the_committed_schema_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/config/schema.json");
        if std::env::var_os("UPDATE_SCHEMA").is_some() {
            std::fs::write(path, json_schema()).unwrap();
        }
        let committed = std::fs::read_to_string(path).unwrap();
        assert!(
            committed == json_schema(),
            "config/schema.json is not what the types say; run the tests with UPDATE_SCHEMA=1"
        );
    }

    /// Walks the schema and the table together.
    fn compare(schema: &Value, root: &Value, shape: &Shape, path: &str) {
        let schema = match schema.get("$ref").and_then(Value::as_str) {
            Some(reference) => root.pointer(reference.trim_start_matches('#')).unwrap(),
            None => schema,
        };
        match shape {
            Shape::Table(keys) => {
                let mut described: Vec<_> = schema["properties"].as_object().unwrap().keys().cloned().collect();
                let mut tabled: Vec<_> = keys.iter().map(|(name, _)| (*name).to_owned()).collect();
                described.sort();
                tabled.sort();
                assert_eq!(described, tabled, "{path}");
                assert_eq!(schema["additionalProperties"], false, "{path}");
                for (name, shape) in *keys {
                    let member = &schema["properties"][*name];
                    compare(member, root, shape, &format!("{path}.{name}"));
                }
            }
            Shape::Servers(server) => {
                compare(&schema["additionalProperties"], root, server, "servers.*");
            }
            Shape::Word(words) => {
                let text = schema.to_string();
                for word in *words {
                    assert!(text.contains(&format!("\"{word}\"")), "{path}: {word}");
                }
            }
            Shape::Count { min, max } => {
                assert_eq!(schema["minimum"], *min, "{path}");
                assert_eq!(schema["maximum"], *max, "{path}");
            }
            Shape::Text
            | Shape::Name
            | Shape::Bool
            | Shape::Period { .. }
            | Shape::Log
            | Shape::Prefix
            | Shape::Patterns
            | Shape::Texts
            | Shape::Variables => {}
        }
    }

    #[test]
    fn the_table_of_shapes_is_the_schema() {
        let root: Value = serde_json::from_str(&json_schema()).unwrap();
        compare(&root, &root, &SHAPE, "");
    }
}
