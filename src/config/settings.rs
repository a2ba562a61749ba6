//! What the other rooms see of the configuration: checked, resolved, free of file shapes.
//!
//! Made by [`super::load()`]; knows nothing of files, layers or references. Outside `config` only this
//! module is used.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use url::Url;

use crate::ident::{Secret, ServerKey};

mod pins;
mod policy;
mod surface;
mod target;

pub use pins::{Additions, PinMode, PinSettings, PinsSettings};
pub use policy::{
    Annotation, Attempts, Check, Condition, Effect, JsonType, LimitSettings, OverrideSettings, Per, PolicySettings,
    Rate, RuleSettings, Scalar, TimeWindow, Transport,
};
pub use surface::{SurfaceMode, SurfaceSettings, TrimSettings};
pub use target::{Target, TargetError, WhoError, WhoPattern};

/// The whole configuration.
pub struct Settings {
    /// `[gateway]`.
    pub gateway: GatewaySettings,
    /// `[servers.*]`, in byte order of their keys, disabled ones left out.
    pub servers: Vec<ServerSettings>,
    /// `[profiles.*]`; the first is `default`, which shows everything when it is not configured.
    pub profiles: Vec<ProfileSettings>,
    /// `[policy]`.
    pub policy: PolicySettings,
    /// `[pins]`.
    pub pins: PinsSettings,
    /// `[http]`.
    pub http: HttpSettings,
    /// `[auth]`.
    pub auth: AuthSettings,
    /// `[admin]`.
    pub admin: AdminSettings,
    /// `[telemetry]`.
    pub telemetry: TelemetrySettings,
}

impl Settings {
    /// These servers and the defaults of the configuration, `state` aside.
    pub fn of(servers: Vec<ServerSettings>, state: PathBuf, telemetry: TelemetrySettings) -> Self {
        Self {
            gateway: GatewaySettings {
                instructions: None,
                name_budget: 45,
                state,
                seal_key: None,
                is_mere_front: false,
            },
            servers,
            profiles: vec![ProfileSettings::everything()],
            policy: PolicySettings::default(),
            pins: PinsSettings::default(),
            http: HttpSettings::default(),
            auth: AuthSettings::default(),
            admin: AdminSettings::default(),
            telemetry,
        }
    }
}

/// `[gateway]`.
#[derive(Clone, PartialEq)]
pub struct GatewaySettings {
    /// Own instructions for the host, before those of the servers.
    pub instructions: Option<String>,
    /// Longest exposed tool name, 24…128.
    pub name_budget: usize,
    /// Folder for what survives a restart (remembered eras, the seal key).
    pub state: PathBuf,
    /// The key of seals, shared by replicas; `None` = made once and kept in the state folder.
    pub seal_key: Option<Secret>,
    /// It has one server, another gateway, and is a front to that alone: what it says of itself is handed on as it is.
    pub is_mere_front: bool,
}

/// `[admin]`: where operators look at a running gateway.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AdminSettings {
    /// The socket that was named.
    pub socket: Option<PathBuf>,
    /// Where each process has one of its own, else; `None` = nowhere.
    pub folder: Option<PathBuf>,
    /// Where health and numbers are served to other programs.
    pub listen: Option<SocketAddr>,
    /// A `run` uses a `serve` of the same user and configuration, where one runs.
    pub attach: bool,
}

/// `[telemetry]`.
#[derive(Clone, PartialEq)]
pub struct TelemetrySettings {
    /// Filter directives, for example `info` or `onegate=debug`.
    pub log: String,
    /// How a line on stderr looks.
    pub format: LogFormat,
    /// Where decisions are written down; `None` = nowhere.
    pub audit: Option<AuditSettings>,
}

/// `[telemetry] audit`.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditSettings {
    /// The file of the first process; others write beside it.
    pub file: PathBuf,
    /// How long a file is kept after its last record.
    pub keep: Duration,
    /// JSON pointers of the arguments whose values are written down.
    pub values: Vec<String>,
    /// Where that stands, for people.
    pub place: String,
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
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self { rate: None, concurrency: None, queue: 256, max_result: 16 << 20, stderr: 64 << 10 }
    }
}

/// One endpoint's cut of the catalogue.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfileSettings {
    /// Its name, as in `/mcp/<name>`; `default` is `/mcp`.
    pub name: String,
    /// The servers that it shows; `None` = all.
    pub servers: Option<Vec<ServerKey>>,
    /// Which tools it shows, as `<server>/<native name>`.
    pub tools: ItemFilter,
    /// Longest name of a tool here; `None` = as everywhere.
    pub name_budget: Option<usize>,
    /// How much of them a host is shown at once.
    pub surface: SurfaceSettings,
}

impl ProfileSettings {
    /// The profile of a bare `run` and of `/mcp`.
    pub const DEFAULT: &'static str = "default";

    /// A default profile that shows everything.
    pub fn everything() -> Self {
        Self {
            name: Self::DEFAULT.to_owned(),
            servers: None,
            tools: ItemFilter::default(),
            name_budget: None,
            surface: SurfaceSettings::default(),
        }
    }
}

/// `[http]`: what `serve` listens on.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpSettings {
    /// The address; loopback by default.
    pub listen: SocketAddr,
    /// Values of `Host` that are taken beside loopback names and the listen address, with or without a port.
    pub allowed_hosts: Vec<String>,
    /// Values of `Origin` that are taken, exactly; loopback origins always are.
    pub allowed_origins: Vec<String>,
    /// Whether hosts of 2024-11-05 find the HTTP+SSE transport at `/sse`.
    pub sse: bool,
    /// Certificate chain and key; `None` = without TLS.
    pub tls: Option<TlsSettings>,
}

impl Default for HttpSettings {
    fn default() -> Self {
        let listen = SocketAddr::from(([127, 0, 0, 1], 7410));
        Self { listen, allowed_hosts: Vec::new(), allowed_origins: Vec::new(), sse: false, tls: None }
    }
}

/// `[http] tls`.
#[derive(Clone, Debug, PartialEq)]
pub struct TlsSettings {
    /// PEM file with the certificate chain.
    pub cert: PathBuf,
    /// PEM file with the private key.
    pub key: PathBuf,
}

/// `[auth]`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AuthSettings {
    /// How hosts prove who they are.
    pub mode: AuthMode,
    /// The keys.
    pub keys: Vec<ApiKey>,
    /// Whose tokens are taken; of the modes that take tokens.
    pub jwt: Option<JwtSettings>,
    /// The tokens that make the local user of a stdio front a named one.
    pub stdio: Vec<StdioToken>,
}

/// How hosts of `serve` prove who they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuthMode {
    /// With a bearer key.
    #[default]
    Keys,
    /// With a token of an identity provider.
    Jwt,
    /// With either.
    Both,
    /// Not at all; on loopback only.
    None,
}

/// Whose tokens are taken, and what they must say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwtSettings {
    /// Who signs them: `iss`, to the letter.
    pub issuer: String,
    /// Whom they are for: one of `aud`.
    pub audience: String,
    /// Our own address, as hosts are told to ask tokens for.
    pub resource: Url,
    /// Where the keys are that they are signed with.
    pub keys: KeySource,
    /// Where in a token the groups stand: a name, or a JSON pointer.
    pub groups_claim: String,
    /// What every token must be given for.
    pub scopes: Vec<String>,
}

/// Where the keys of an issuer are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// Where the issuer's metadata says.
    Discovered,
    /// At this address.
    Url(Url),
    /// In this file.
    File(PathBuf),
}

/// The token of one installation: its hash alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StdioToken {
    /// Who has it: `stdio:<name>` is the principal.
    pub name: String,
    /// SHA-256 of it.
    pub hash: [u8; 32],
    /// Groups for policy.
    pub groups: Vec<String>,
}

/// A bearer key: its hash alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiKey {
    /// Who has it: `key:<name>` is the principal.
    pub name: String,
    /// SHA-256 of the secret.
    pub hash: [u8; 32],
    /// Groups for policy.
    pub groups: Vec<String>,
    /// The first moment at which it is no longer taken.
    pub expires: Option<std::time::SystemTime>,
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
