//! The keys of the configuration, their defaults, and the reference text: the doc comments here are
//! what `onegate schema` hands to editors.
//!
//! Two views of the same keys: the types that serde fills and schemars describes (here and in `front`), and
//! [`SHAPE`], the table that finds every fault of a file before serde would stop at the first. A test holds them
//! equal. Deliberately knows no file and no layer. Called by `check`, `layers`, `load` and `resolve`.

mod front;
mod pins;
mod policy;
mod shape;
mod surface;

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::period::{Period, PeriodOrNever};
use super::rate::Written as Rate;
use super::size::Size;

pub(super) use front::{Admin, Attach, Auth, Http, Jwt, Key, Mode, Profile};
pub(super) use pins::{Additions, Pin, PinMode, PinTable, Pins};
pub(super) use policy::{
    Annotations, Condition, Effect, JsonType, Limit, Override, Per, Policy, Rule, Scalar, Time, Via,
};
pub(super) use shape::SHAPE;
pub(super) use surface::{Surface, Tokenizer, Tools, Trim};

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
    /// Cuts of the catalogue, each an endpoint of `serve`: `/mcp/NAME`. A name is 1 to 32 of a-z, 0-9 and `-`,
    /// beginning with a letter; `default` is what `/mcp` and a bare `run` show, all servers when it is absent.
    #[schemars(extend("propertyNames" = { "pattern": "^[a-z][a-z0-9-]{0,31}$" }))]
    pub profiles: BTreeMap<String, Profile>,
    /// Who may use what, how often and with which arguments.
    pub policy: Policy,
    /// How tools are found where they are not listed.
    pub search: Search,
    /// What was reviewed of the servers, and what becomes of what is not as reviewed.
    pub pins: Pins,
    /// What `serve` listens on.
    pub http: Http,
    /// How hosts of `serve` prove who they are.
    pub auth: Auth,
    /// Where operators look at a running gateway.
    pub admin: Admin,
    /// Logs, the record of decisions, and what is sent to a collector.
    pub telemetry: Telemetry,
}

/// How tools are found.
#[derive(Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Search {
    /// Folder of a sentence model of the BERT class, relative to this file, for builds with the feature `semantic`; others find by
    /// words alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
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
    /// The key of seals (cursors, states of requests) that several gateways of one service share; at least 32
    /// characters. Several, with a comma or blank between: the first seals, the others still open. Default: made
    /// once, kept in the state folder. References are expanded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seal_key: Option<String>,
    /// By which tokenizer tokens are counted, for builds with the feature `tokenizer`. Default: a token for each four bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<Tokenizer>,
    /// Largest message of a host: a line on stdio, a body over HTTP. A larger one is refused.
    pub max_message: Size,
    /// How long a host's list waits for servers that have not listed yet; then it is answered with what is known.
    pub list_deadline: Period,
}

impl Default for Gateway {
    fn default() -> Self {
        Self {
            instructions: None,
            name_budget: 45,
            pass_env: Vec::new(),
            state: None,
            seal_key: None,
            tokenizer: None,
            max_message: Size(16 << 20),
            list_deadline: Period::secs(5),
        }
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
    /// The address of a remote server, instead of a `command`: `http` or `https`, without user, password and
    /// fragment. References are expanded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Headers on every request to `url`; those of HTTP and MCP themselves are ours. References are expanded.
    pub headers: BTreeMap<String, String>,
    /// A PEM file with certificates that are trusted for `url` beside the roots of the machine, relative to this file:
    /// the authority of a house. References are expanded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<String>,
    /// How to speak to `url`. `http`: Streamable HTTP, falling back as the protocol says. `sse`: only the
    /// HTTP+SSE transport of 2024-11-05. Default: `http`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transport: Option<Transport>,
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
    /// Silent for this long, it is asked whether it lives; one that answers nothing is started anew. `never` asks nothing.
    pub ping: PeriodOrNever,
    /// When it is started again after it failed.
    pub restart: Restart,
    /// How long each step takes when it is stopped and nobody waits for that.
    pub stop: Stop,
    /// Whether the gateway is not ready without it, as `/readyz` tells.
    pub required: bool,
    /// Who shares a connection to it. `auto`: a modern server by all, a legacy one by the sessions of one
    /// principal with the same capabilities. `shared`: all. `session`: nobody. `principal`: one principal's.
    pub sharing: Sharing,
    /// Its bounds.
    pub limits: Limits,
    /// Which of its tools are visible, by the names that it gives them.
    pub tools: Tools,
    /// Which of its prompts are visible, by the names that it gives them.
    pub prompts: Items,
    /// Which of its resources are visible, by their URIs.
    pub resources: Items,
    /// Which of its resource templates are visible, by their templates.
    pub templates: Items,
    /// What is changed about single tools, by the names that the server gives them.
    pub r#override: BTreeMap<String, Override>,
    /// Which of a host's roots it may be told, by their URIs. `allow = []`: none, and that there are any is not told.
    pub roots: Items,
    /// What pins do about it: a mode, or a table. Default: `pins.mode`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pin: Option<Pin>,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            command: None,
            args: Vec::new(),
            env: BTreeMap::new(),
            cwd: None,
            url: None,
            headers: BTreeMap::new(),
            ca: None,
            transport: None,
            enabled: true,
            start: Start::Lazy,
            era: Era::Auto,
            prefix: None,
            idle_stop: PeriodOrNever(None),
            timeouts: Timeouts::default(),
            ping: PeriodOrNever(Some(Duration::from_secs(60))),
            restart: Restart::default(),
            stop: Stop::default(),
            required: false,
            sharing: Sharing::Auto,
            limits: Limits::default(),
            tools: Tools::default(),
            prompts: Items::default(),
            resources: Items::default(),
            templates: Items::default(),
            r#override: BTreeMap::new(),
            roots: Items::default(),
            pin: None,
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

/// How a remote server is spoken to.
#[derive(Clone, Copy, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum Transport {
    /// Streamable HTTP; HTTP+SSE when the server knows nothing else.
    Http,
    /// HTTP+SSE of 2024-11-05.
    Sse,
}

/// Who shares a connection.
#[derive(Clone, Copy, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum Sharing {
    /// A modern server by all; a legacy one by one principal's sessions with the same capabilities.
    Auto,
    /// All, with no capability of a host declared.
    Shared,
    /// Nobody: each legacy session has its own.
    Session,
    /// One principal's requests.
    Principal,
}

/// Bounds of a server.
#[derive(Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Limits {
    /// How often hosts may ask it in the long run, all together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// How often at once. Default: as often as `rate` says.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub burst: Option<u32>,
    /// Host requests that it works on at once. Default: as many as come.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub concurrency: Option<u16>,
    /// Host requests that wait for their turn beyond that; one more is refused.
    #[schemars(range(min = 0, max = 100_000))]
    pub queue: u32,
    /// Largest answer that is passed on.
    pub max_result: Size,
    /// How much of what it prints on stderr is kept.
    pub stderr: Size,
    /// Largest definition of a tool, prompt, resource or template; a larger one is left out.
    pub definition: Size,
    /// Most entries of one of its lists; instead of a longer list the last good one stays.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub entries: u32,
    /// Largest of its lists, all pages together; instead of a larger one the last good one stays.
    pub list: Size,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            rate: None,
            burst: None,
            concurrency: None,
            queue: 256,
            max_result: Size(16 << 20),
            stderr: Size(64 << 10),
            definition: Size(256 << 10),
            entries: 10_000,
            list: Size(8 << 20),
        }
    }
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
    /// For a sign of life; see `ping`.
    pub ping: Period,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            start: Period::secs(60),
            probe: Period::secs(3),
            call: Period::secs(60),
            call_max: Period::secs(15 * 60),
            ping: Period::secs(10),
        }
    }
}

/// When a server that failed is started again.
#[derive(Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Restart {
    /// The first delay, half of it at random; it doubles with each failure in a row.
    pub first: Period,
    /// The longest delay. A `url` is looked for each 5 s at least.
    pub longest: Period,
    /// So many failures within `within` open the breaker of a `command`: calls are refused at once.
    #[schemars(range(min = 1, max = 1000))]
    pub failures: u16,
    /// The time in which failures are counted.
    pub within: Period,
    /// How often it is tried while the breaker is open.
    pub pause: Period,
    /// A server that ran this long did not fail to start: failures before are forgotten.
    pub stable: Period,
    /// Starts a minute at most, whatever their reason.
    #[schemars(range(min = 1, max = 1000))]
    pub per_minute: u16,
}

impl Default for Restart {
    fn default() -> Self {
        Self {
            first: Period(Duration::from_millis(500)),
            longest: Period::secs(60),
            failures: 5,
            within: Period::secs(120),
            pause: Period::secs(60),
            stable: Period::secs(60),
            per_minute: 30,
        }
    }
}

/// How long the steps of a stop take.
#[derive(Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Stop {
    /// From the end of its input to TERM.
    pub input: Period,
    /// From TERM to KILL.
    pub term: Period,
}

impl Default for Stop {
    fn default() -> Self {
        Self { input: Period::secs(5), term: Period::secs(3) }
    }
}

/// Patterns over names: `*` any text, `?` one character, `[ab]` one of these, `[!ab]` none of these.
#[derive(Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Items {
    /// When given, only names that match one of these are visible; an empty list shows nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<String>>,
    /// Names that match one of these are hidden, whatever `allow` says.
    pub deny: Vec<String>,
}

/// Logs, the record of decisions, and what is sent to a collector.
#[derive(Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Telemetry {
    /// Level, or directives such as `info,onegate::downstream=debug`.
    pub log: String,
    /// How a line on stderr looks.
    pub format: Format,
    /// Where decisions are written down.
    pub audit: Audit,
    /// Where traces and numbers are sent: the address of an OpenTelemetry collector that takes OTLP over HTTP, without the
    /// signal's own path: `http://127.0.0.1:4318`. Nowhere without it. References are expanded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub otlp: Option<String>,
    /// Headers on every request to `otlp`. References are expanded.
    pub otlp_headers: BTreeMap<String, String>,
}

/// Where decisions are written down.
#[derive(Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Audit {
    /// The file, relative to this one; each decision is one JSON line. Without it nothing is written. A second process
    /// writes beside it: `audit.2.jsonl`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// How long a file is kept after its last record.
    pub keep: Period,
    /// JSON pointers of the arguments whose values are written down, such as `/path`; of all others only their shape is.
    #[schemars(length(max = 16))]
    pub values: Vec<String>,
}

impl Default for Audit {
    fn default() -> Self {
        Self { file: None, keep: Period::secs(30 * 24 * 3600), values: Vec::new() }
    }
}

impl Default for Telemetry {
    fn default() -> Self {
        Self {
            log: "info".to_owned(),
            format: Format::Pretty,
            audit: Audit::default(),
            otlp: None,
            otlp_headers: BTreeMap::new(),
        }
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
}
