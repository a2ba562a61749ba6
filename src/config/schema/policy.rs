//! The keys of who may do what, how often and with which arguments: `[policy]`, `[servers.*.override]`.
//!
//! Part of `schema`, and as free of files and layers.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::period::Period;
use crate::config::rate::Written as Rate;
use crate::config::size::Size;

/// Who may use what, how often and with which arguments.
#[derive(Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Policy {
    /// What holds where no rule says anything. Must be stated as soon as there is a rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<Effect>,
    /// `true`: decide, log and count, but do not refuse. What a locked rule refuses is refused all the same.
    pub shadow: bool,
    /// How many refused requests of one principal are looked at one by one; beyond it they are refused at once for a
    /// moment. What is allowed goes on.
    pub attempts: Attempts,
    /// The rules. Those of all layers hold together; a deny wins over every allow; their order means nothing.
    pub rule: Vec<Rule>,
    /// The limits. Those of all layers hold together.
    pub limit: Vec<Limit>,
}

/// Allow or deny.
#[derive(Clone, Copy, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(in crate::config) enum Effect {
    /// Lets through.
    Allow,
    /// Refuses, whatever else allows.
    Deny,
}

/// The cap on refused requests.
#[derive(Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Attempts {
    /// How many in the long run. Default: `100/s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// How many at once. Default: 1000.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub burst: Option<u32>,
}

/// One rule.
#[derive(Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["effect", "target"]))]
pub(in crate::config) struct Rule {
    /// `allow` or `deny`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<Effect>,
    /// Whom it is about: `group:dev`, `key:ci`, `user:*`, `stdio`, `anonymous`, `*`; patterns are taken. Default:
    /// everybody.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub who: Option<Vec<String>>,
    /// What it is about: patterns over `<server>/<kind>/<native name>`, such as `files/tool/read_*`.
    pub target: Vec<String>,
    /// What the arguments must be for it to allow; all of these.
    #[serde(rename = "where")]
    pub conditions: Vec<Condition>,
    /// What the annotations must be, as approved in the lock, never as announced.
    pub annotations: Annotations,
    /// How those come whom it is about: `stdio` or `http`. Default: either way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transport: Option<Via>,
    /// When it holds. Default: always.
    pub time: Time,
    /// How well the program of the server must have been verified, as in the lock: 1 an exact version, 2 its bytes, 3 where
    /// it was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3))]
    pub min_level: Option<u8>,
    /// `true`: lower layers cannot widen it.
    pub locked: bool,
}

/// How hosts come to us.
#[derive(Clone, Copy, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(in crate::config) enum Via {
    /// They start us.
    Stdio,
    /// Over HTTP.
    Http,
}

/// When a rule holds; both of these, in the zone.
#[derive(Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Time {
    /// Days of the week: `mon`, `sat-sun`. Default: every day.
    pub days: Vec<String>,
    /// Hours of the day: `08:00-18:00`; past midnight, `22:00-06:00`, they belong to the day on which they begin. Default:
    /// all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hours: Option<String>,
    /// The zone, as an offset from UTC: `+01:00`, `Z`. Must be stated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
}

/// What annotations must be.
#[derive(Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(in crate::config) struct Annotations {
    /// It changes nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// It may destroy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destructive: Option<bool>,
    /// Twice is as good as once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotent: Option<bool>,
    /// It deals with the world outside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_world: Option<bool>,
}

/// What one value of the arguments must be. At least one check; all that are given must hold.
#[derive(Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["pointer"]))]
pub(in crate::config) struct Condition {
    /// Where it stands: a JSON pointer such as `/path`; a segment `*` is every element of an array.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pointer: Option<String>,
    /// It may be missing; what is there must fit all the same.
    pub optional: bool,
    /// It is exactly this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub equals: Option<Scalar>,
    /// It is one of these.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub one_of: Option<Vec<Scalar>>,
    /// `true`: it must be missing.
    pub absent: bool,
    /// It is of this type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r#type: Option<JsonType>,
    /// It has so many characters, elements or members at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000_000))]
    pub max_len: Option<u32>,
    /// It is a number within these two.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<Vec<Scalar>>,
    /// It is a text that matches this pattern.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub glob: Option<String>,
    /// It is an absolute path at or below one of these folders. Symbolic links are not followed: what they reach is
    /// the affair of the server's own sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_under: Option<Vec<String>>,
    /// It is an `https` address without user and password at one of these hosts: `docs.example`, `*.docs.example`,
    /// `docs.example:8443`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url_host: Option<Vec<String>>,
    /// It is an object with no members but these.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_extra: Option<Vec<String>>,
}

/// A text, a number, true or false.
#[derive(Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(untagged)]
pub(in crate::config) enum Scalar {
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(String),
}

/// A type of JSON.
#[derive(Clone, Copy, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(in crate::config) enum JsonType {
    String,
    Number,
    Integer,
    Boolean,
    Null,
    Object,
    Array,
}

/// One limit. At least one of `rate`, `quota`, `concurrency`, `max_result`.
#[derive(Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["target"]))]
pub(in crate::config) struct Limit {
    /// Whom it is about, as in a rule. Default: everybody.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub who: Option<Vec<String>>,
    /// What it is about, as in a rule.
    pub target: Vec<String>,
    /// Who has one of his own. Default: `principal`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per: Option<Per>,
    /// How often in the long run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// How often at once. Default: as often as the rate says, so `30/min` is thirty at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub burst: Option<u32>,
    /// How often in each second, minute, hour or day of the calendar (UTC).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota: Option<Rate>,
    /// How many at a time; one more is refused at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub concurrency: Option<u32>,
    /// Largest result that is passed on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_result: Option<Size>,
}

/// Who has a limit of his own.
#[derive(Clone, Copy, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub(in crate::config) enum Per {
    /// Each principal.
    #[serde(rename = "principal")]
    Principal,
    /// Each server.
    #[serde(rename = "server")]
    Server,
    /// Each tool, prompt, resource or template.
    #[serde(rename = "tool")]
    Tool,
    /// Each principal at each tool.
    #[serde(rename = "principal+tool")]
    PrincipalTool,
    /// All together.
    #[serde(rename = "everyone")]
    Everyone,
}

/// What is changed about one item of a server.
#[derive(Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Override {
    /// What hosts call it, behind the server's prefix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its title.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Its description.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// `true`: hosts do not see it.
    pub hide: bool,
    /// Arguments that are always these; the host neither sees nor sets them.
    pub fixed: BTreeMap<String, serde_json::Value>,
    /// Arguments that are these where the host gives none.
    pub defaults: BTreeMap<String, serde_json::Value>,
    /// How long a call may take without progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Period>,
    /// `true`: a call may be sent again when it is not known whether it ran.
    pub retry_safe: bool,
}
