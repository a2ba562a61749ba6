//! What the other rooms see of the configuration: checked, resolved, free of file shapes.
//!
//! Made by [`super::load()`]; knows nothing of files, layers or references. Outside `config` only this
//! module is used.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::ident::{Secret, ServerKey};

/// The whole configuration.
pub struct Settings {
    /// `[gateway]`.
    pub gateway: GatewaySettings,
    /// `[servers.*]`, in byte order of their keys, disabled ones left out.
    pub servers: Vec<ServerSettings>,
    /// `[telemetry]`.
    pub telemetry: TelemetrySettings,
}

/// `[gateway]`.
pub struct GatewaySettings {
    /// Own instructions for the host, before those of the servers.
    pub instructions: Option<String>,
    /// Longest exposed tool name, 24…128.
    pub name_budget: usize,
    /// Folder for what survives a restart (remembered eras).
    pub state: PathBuf,
}

/// `[telemetry]`.
pub struct TelemetrySettings {
    /// Filter directives, for example `info` or `onegate=debug`.
    pub log: String,
    /// How a line on stderr looks.
    pub format: LogFormat,
}

/// How a line on stderr looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Pretty,
    /// Each line one JSON object.
    Json,
}

/// One server behind the gateway.
pub struct ServerSettings {
    /// Its identity.
    pub key: ServerKey,
    /// The name it had in a foreign file, when that was not its key.
    pub title: Option<String>,
    /// How to start it, or why that cannot be done: such a server is disabled, the others go on.
    pub launch: Result<Launch, ServerFault>,
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
    /// Which tools are visible, by native name.
    pub tools: ItemFilter,
}

/// A child process to start.
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
    /// What references put into the above, and what stands there by a secret's name: never shown, not even when the
    /// server says it.
    pub secrets: Vec<Secret>,
}

/// Why a server cannot be started as configured.
#[derive(Clone, Debug)]
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
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// From the start to the first complete handshake.
    pub start: Duration,
    /// For the answer to the era probe (PRB-2).
    pub probe: Duration,
    /// A call without progress (TMO-1).
    pub call: Duration,
    /// A call, progress or not (TMO-1).
    pub call_max: Duration,
}

/// Allow and deny patterns over native names ([`crate::pattern`]); deny wins.
#[derive(Clone, Debug, Default)]
pub struct ItemFilter {
    /// Absent: all are visible. Given: only what matches one of these, so an empty list shows nothing.
    pub allow: Option<Vec<String>>,
    /// What matches one of these is hidden.
    pub deny: Vec<String>,
}
