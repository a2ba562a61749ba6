//! The keys of pins: `[pins]` and `servers.*.pin`.
//!
//! Part of `schema`, and as free of files and layers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Period;

/// What was reviewed of the servers, and what becomes of what is not as reviewed.
#[derive(Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Pins {
    /// `off`: nothing. `warn`: it is told, and served; without a lock there is nothing to tell. `enforce`: it is not
    /// served.
    pub mode: PinMode,
    /// The lock, relative to this file. Its snapshots are in the folder of its name with `.d` behind. Default:
    /// `onegate.lock` beside the configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock: Option<String>,
    /// How often pinned servers are listed anew at least.
    pub recheck: Period,
}

impl Default for Pins {
    fn default() -> Self {
        Self { mode: PinMode::Warn, lock: None, recheck: Period::secs(15 * 60) }
    }
}

/// What pins do.
#[derive(Clone, Copy, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(in crate::config) enum PinMode {
    /// Nothing.
    Off,
    /// Tell.
    Warn,
    /// Hold back.
    Enforce,
}

/// Pins of one server: a mode, or a table.
#[derive(Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(untagged)]
pub(in crate::config) enum Pin {
    /// Its mode, in the place of `pins.mode`.
    Mode(PinMode),
    /// More than its mode.
    Table(PinTable),
}

/// Pins of one server.
#[derive(Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct PinTable {
    /// Its mode. Default: `pins.mode`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<PinMode>,
    /// JSON Pointers into definitions whose values do not count, for text that is another each time; `onegate lock` writes
    /// them into the lock, where they are reviewed. What was reviewed is served.
    pub ignore: Vec<String>,
    /// Facets that may differ from what was reviewed; what was reviewed is served.
    pub tolerate: Vec<String>,
    /// What becomes of what is new. `hold`: it waits for a review. `allow-readonly-template`: resource templates are
    /// served. `allow`: all is served.
    pub additions: Additions,
    /// How much what is launched must be bound: 0 not at all, 1 an exact version, 2 its bytes, 3 a signature.
    #[schemars(range(min = 0, max = 3))]
    pub min_level: u8,
    /// Whether nothing is served when it speaks an older protocol than was reviewed.
    pub strict_protocol: bool,
}

/// What becomes of what is new.
#[derive(Clone, Copy, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(in crate::config) enum Additions {
    /// It waits for a review.
    #[default]
    Hold,
    /// Resource templates are served.
    AllowReadonlyTemplate,
    /// It is served.
    Allow,
}
