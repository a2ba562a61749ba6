//! Settings of pins: `[pins]` and `servers.*.pin`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::ident::ServerKey;

/// What pins do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum PinMode {
    /// Nothing.
    Off,
    /// They tell of what is not as reviewed; it is served. Without a lock there is nothing to tell.
    #[default]
    Warn,
    /// What is not as reviewed is not served.
    Enforce,
}

impl PinMode {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Warn => "warn",
            Self::Enforce => "enforce",
        }
    }
}

/// What becomes of entries of a locked server that nobody has reviewed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Additions {
    /// They are held.
    #[default]
    Hold,
    /// Resource templates, which can only be read, are served.
    AllowReadonlyTemplate,
    /// They are served.
    Allow,
}

impl Additions {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hold => "hold",
            Self::AllowReadonlyTemplate => "allow-readonly-template",
            Self::Allow => "allow",
        }
    }
}

/// `[pins]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinsSettings {
    /// The mode of servers that have none of their own.
    pub mode: PinMode,
    /// The lock; its snapshots are in the folder of its name with `.d` behind.
    pub lock: PathBuf,
    /// How often what is pinned is listed anew at least.
    pub recheck: Duration,
    /// For a look alone: everything is noted, nothing is told, held or written down.
    pub observe: bool,
    /// The packages that servers are started from, by hash, in the place of those of the lock: for a look before it is
    /// written.
    pub installed: BTreeMap<ServerKey, String>,
}

impl Default for PinsSettings {
    fn default() -> Self {
        Self {
            mode: PinMode::Warn,
            lock: PathBuf::from("onegate.lock"),
            recheck: Duration::from_secs(15 * 60),
            observe: false,
            installed: BTreeMap::new(),
        }
    }
}

/// `servers.*.pin`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PinSettings {
    /// Its mode.
    pub mode: PinMode,
    /// JSON Pointers that `lock` has ignored in each of its entries.
    pub ignore: Vec<String>,
    /// Facets that may differ: the reviewed ones are served.
    pub tolerate: Vec<String>,
    /// What becomes of what is new.
    pub additions: Additions,
    /// How much what is launched must be bound, 0…3.
    pub min_level: u8,
    /// Whether an older protocol than the reviewed one is refused.
    pub strict_protocol: bool,
}
