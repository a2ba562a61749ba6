//! `[servers.*]`: how each server is reached, run, bounded and shown.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use url::Url;

use super::{OverrideSettings, PinSettings, Rate};
use crate::ident::{Secret, ServerKey};

/// One server behind the gateway.
#[derive(Clone, PartialEq)]
pub struct ServerSettings {
    /// Its identity.
    pub key: ServerKey,
    /// The name it had in a foreign file, when that was not its key.
    pub title: Option<String>,
    /// How to reach it, or why that cannot be done: such a server is disabled, the others go on.
    pub reach: Result<Reach, ServerFault>,
    /// When it is started.
    pub start: Start,
    /// Which era to speak to it.
    pub era: EraChoice,
    /// What stands before `__` in exposed names; empty for names that pass untouched.
    pub prefix: String,
    /// A server unused for this long is stopped; `None` = never.
    pub idle_stop: Option<Duration>,
    /// Its deadlines.
    pub timeouts: Timeouts,
    /// Silent for this long, it is asked whether it lives; `None` = never.
    pub ping: Option<Duration>,
    /// When it is started again after it failed.
    pub restart: Restart,
    /// How long each step takes when it is stopped and nobody waits for that.
    pub stop: Stop,
    /// The gateway is not ready without it.
    pub required: bool,
    /// Who shares a connection to it.
    pub sharing: Sharing,
    /// Its bounds.
    pub limits: ServerLimits,
    /// Which tools are visible, by native name.
    pub tools: ItemFilter,
    /// Which tools stay in a list where others go behind search, by native name.
    pub always: Vec<String>,
    /// Which prompts are visible, by native name.
    pub prompts: ItemFilter,
    /// Which resources are visible, by native URI.
    pub resources: ItemFilter,
    /// Which resource templates are visible, by native template.
    pub templates: ItemFilter,
    /// What is changed about single tools, by native name.
    pub overrides: Vec<OverrideSettings>,
    /// Which of a host's roots it may be told, by their URIs.
    pub roots: ItemFilter,
    /// What pins do about it.
    pub pin: PinSettings,
}

impl ServerSettings {
    /// A server with the defaults of the configuration; its prefix is its key.
    pub fn new(key: ServerKey, reach: Result<Reach, ServerFault>) -> Self {
        Self {
            prefix: key.to_string(),
            key,
            title: None,
            reach,
            start: Start::Lazy,
            era: EraChoice::Auto,
            idle_stop: None,
            timeouts: Timeouts::default(),
            ping: Some(Duration::from_secs(60)),
            restart: Restart::default(),
            stop: Stop::default(),
            required: false,
            sharing: Sharing::Auto,
            limits: ServerLimits::default(),
            tools: ItemFilter::default(),
            always: Vec::new(),
            prompts: ItemFilter::default(),
            resources: ItemFilter::default(),
            templates: ItemFilter::default(),
            overrides: Vec::new(),
            roots: ItemFilter::default(),
            pin: PinSettings::default(),
        }
    }

    /// Whether a server of these settings may go on running for those: they differ only in what is decided and shown about
    /// it, not in how it is reached and asked.
    pub fn runs_as(&self, other: &Self) -> bool {
        let run = |settings: &Self| Self {
            title: None,
            prefix: String::new(),
            required: false,
            limits: ServerLimits { rate: None, ..settings.limits },
            tools: ItemFilter::default(),
            always: Vec::new(),
            prompts: ItemFilter::default(),
            resources: ItemFilter::default(),
            templates: ItemFilter::default(),
            overrides: Vec::new(),
            pin: PinSettings { mode: settings.pin.mode, ..PinSettings::default() },
            ..settings.clone()
        };
        run(self) == run(other)
    }

    /// How it is launched, when it is a process of ours that can be.
    pub fn launch(&self) -> Option<&Launch> {
        match &self.reach {
            Ok(Reach::Launch(launch)) => Some(launch),
            _ => None,
        }
    }

    /// What remembered eras are filed under; empty for a server that cannot be reached.
    pub fn identity(&self) -> &str {
        match &self.reach {
            Ok(Reach::Launch(launch)) => &launch.identity,
            Ok(Reach::Remote(remote)) => &remote.identity,
            Err(_) => "",
        }
    }

    /// What must not be shown of its words.
    pub fn secrets(&self) -> &[Secret] {
        match &self.reach {
            Ok(Reach::Launch(launch)) => &launch.secrets,
            Ok(Reach::Remote(remote)) => &remote.secrets,
            Err(_) => &[],
        }
    }
}

/// How a server is reached.
#[derive(Clone, PartialEq)]
pub enum Reach {
    /// As a child process on pipes.
    Launch(Launch),
    /// By HTTP.
    Remote(Remote),
}

/// A server behind a URL.
#[derive(Clone, PartialEq)]
pub struct Remote {
    /// Its endpoint, `http` or `https`, without user, password or fragment. A query may hold secrets.
    pub url: Url,
    /// Headers of the operator on every request, expanded; names are lower case and none of the protocol's own.
    pub headers: Vec<(http::HeaderName, Secret)>,
    /// PEM file with certificates that are trusted for it beside the roots of the machine; for `https` alone.
    pub ca: Option<PathBuf>,
    /// Only the HTTP+SSE transport of 2024-11-05 (`transport = "sse"`).
    pub sse: bool,
    /// SHA-256 (hex) of how it is reached, references unexpanded: no secret enters it.
    pub identity: String,
    /// How it is reached as written, references unexpanded, a JSON object: what pins are made of.
    pub written: Secret,
    /// What must not be shown of its words.
    pub secrets: Vec<Secret>,
}

/// Who shares a connection to a server (contract of `sharing`, CON-*).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// A modern one by all; a legacy one by the sessions of one principal with the same capabilities.
    Auto,
    /// By all, with no client capability declared (CON-3).
    Shared,
    /// By nobody: each legacy session has its own.
    Session,
    /// By one principal's requests.
    Principal,
}

/// Bounds of one server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ServerLimits {
    /// How often it is asked in the long run, and how often at once.
    pub rate: Option<(Rate, Option<std::num::NonZeroU32>)>,
    /// Host requests that it works on at once; `None` = only the fixed bound of a connection.
    pub concurrency: Option<usize>,
    /// Host requests that wait for their turn beyond that.
    pub queue: usize,
    /// Largest answer that is passed on, in bytes.
    pub max_result: u64,
    /// How much of what it prints on stderr is kept, in bytes.
    pub stderr: usize,
    /// How much it may list.
    pub lists: ListLimits,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            rate: None,
            concurrency: None,
            queue: 256,
            max_result: 16 << 20,
            stderr: 64 << 10,
            lists: ListLimits::default(),
        }
    }
}

/// How much a server may list (threat model §9, D-29).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ListLimits {
    /// Largest definition, in bytes; a larger one is left out.
    pub definition: usize,
    /// Most entries of a list; the last good one stays instead of a longer one.
    pub entries: usize,
    /// Largest list, in bytes; the same.
    pub list: usize,
}

impl Default for ListLimits {
    fn default() -> Self {
        Self { definition: 256 << 10, entries: 10_000, list: 8 << 20 }
    }
}

/// A child process to start.
#[derive(Clone, PartialEq)]
pub struct Launch {
    /// The resolved program.
    pub program: PathBuf,
    /// The command as written: part of the launch identity, and what people are shown.
    pub command: String,
    /// Its arguments, expanded; they may hold secrets.
    pub args: Vec<Secret>,
    /// Its whole environment: the fixed allow-list, `pass_env`, the server's own `env` (I-11).
    pub env: BTreeMap<OsString, Secret>,
    /// Its working directory; `None` = ours.
    pub cwd: Option<PathBuf>,
    /// SHA-256 (hex) of how it is launched, references unexpanded: no secret enters it.
    pub identity: String,
    /// How it is launched as written, references unexpanded, a JSON object: what pins are made of.
    pub written: Secret,
    /// What references put into the above, and what stands there by a secret's name: never shown, not even when the
    /// server says it.
    pub secrets: Vec<Secret>,
}

/// Why a server cannot be started as configured.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerFault {
    /// The key of the configuration it is about, for example `servers.files.command`.
    pub key: String,
    /// What is wrong and what to do, without secrets.
    pub message: String,
}

/// When a server is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// On the first need; once to list it, while nothing is remembered of it.
    Lazy,
    /// With the gateway.
    Eager,
}

/// Which era to speak to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EraChoice {
    /// Find out by probing (PRB-1).
    Auto,
    /// Only 2026-07-28 and later.
    Modern,
    /// Only `initialize` revisions.
    Legacy,
}

/// The deadlines of a server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timeouts {
    /// From the start to the first complete handshake.
    pub start: Duration,
    /// For the answer to the era probe (PRB-2).
    pub probe: Duration,
    /// A call without progress (TMO-1).
    pub call: Duration,
    /// A call, progress or not (TMO-1).
    pub call_max: Duration,
    /// For a sign of life.
    pub ping: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let second = Duration::from_secs(1);
        Self { start: second * 60, probe: second * 3, call: second * 60, call_max: second * 900, ping: second * 10 }
    }
}

/// When a server that failed is started again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Restart {
    /// The first delay; it doubles with each failure in a row.
    pub first: Duration,
    /// The longest delay.
    pub longest: Duration,
    /// So many failures…
    pub failures: usize,
    /// …within this time open the breaker of a child.
    pub within: Duration,
    /// An open breaker lets one start through this often.
    pub pause: Duration,
    /// A server that ran this long did not fail to start (D-33).
    pub stable: Duration,
    /// Starts within a minute, whatever their reason.
    pub per_minute: usize,
}

impl Default for Restart {
    fn default() -> Self {
        let second = Duration::from_secs(1);
        Self {
            first: second / 2,
            longest: second * 60,
            failures: 5,
            within: second * 120,
            pause: second * 60,
            stable: second * 60,
            per_minute: 30,
        }
    }
}

/// How long the steps of a stop take when nobody waits for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stop {
    /// From the end of its input to TERM.
    pub input: Duration,
    /// From TERM to KILL.
    pub term: Duration,
}

impl Default for Stop {
    fn default() -> Self {
        Self { input: Duration::from_secs(5), term: Duration::from_secs(3) }
    }
}

/// Allow and deny patterns over native names ([`crate::pattern`]); deny wins.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ItemFilter {
    /// Absent: all are visible. Given: only what matches one of these, so an empty list shows nothing.
    pub allow: Option<Vec<String>>,
    /// What matches one of these is hidden.
    pub deny: Vec<String>,
}
