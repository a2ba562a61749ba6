//! What the other rooms see of the configuration: checked, resolved, free of file shapes.
//!
//! Made by [`super::load()`]; knows nothing of files, layers or references. Outside `config` only this
//! module is used.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use url::Url;

use crate::ident::{Secret, ServerKey};

mod auth;
mod pins;
mod policy;
mod server;
mod surface;
mod target;

pub use auth::{ApiKey, AuthMode, AuthSettings, JwtSettings, KeySource, StdioToken};
pub use pins::{Additions, PinMode, PinSettings, PinsSettings};
pub use policy::{
    Annotation, Attempts, Check, Condition, Effect, JsonType, LimitSettings, OverrideSettings, Per, PolicySettings,
    Rate, RuleSettings, Scalar, TimeWindow, Transport,
};
pub use server::{
    EraChoice, ItemFilter, Launch, ListLimits, Reach, Remote, Restart, ServerFault, ServerLimits, ServerSettings,
    Sharing, Start, Stop, Timeouts,
};
pub use surface::{SurfaceMode, SurfaceSettings, TokenizerName, TrimSettings, Uses};
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
    /// `[search]`.
    pub search: SearchSettings,
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
                max_message: GatewaySettings::MAX_MESSAGE,
                list_deadline: GatewaySettings::LIST_DEADLINE,
            },
            servers,
            profiles: vec![ProfileSettings::everything()],
            policy: PolicySettings::default(),
            search: SearchSettings::default(),
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
    /// Largest message of a host, in bytes.
    pub max_message: usize,
    /// How long a host's list waits for servers.
    pub list_deadline: Duration,
}

impl GatewaySettings {
    /// What `max_message` is where it is not said.
    pub const MAX_MESSAGE: usize = 16 << 20;
    /// What `list_deadline` is where it is not said.
    pub const LIST_DEADLINE: Duration = Duration::from_secs(5);
}

/// `[search]`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SearchSettings {
    /// The folder of a sentence model; `None` = tools are found by words alone.
    pub model: Option<PathBuf>,
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
    /// Where traces and numbers are sent; `None` = nowhere.
    pub otlp: Option<OtlpSettings>,
}

/// `[telemetry] otlp` and `otlp_headers`. No `Debug`: both may hold what proves who we are.
#[derive(Clone, PartialEq)]
pub struct OtlpSettings {
    /// The collector, `http` or `https`, without user, password or fragment; what is sent there has a path below its own.
    pub url: Url,
    /// Headers on every request, expanded.
    pub headers: Vec<(http::HeaderName, Secret)>,
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

impl AuditSettings {
    /// What is decided is written into this file, without values, and kept for a day.
    pub fn of(file: PathBuf) -> Self {
        Self { file, keep: Duration::from_secs(86_400), values: Vec::new(), place: String::new() }
    }
}

/// How a line on stderr looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Pretty,
    /// Each line one JSON object.
    Json,
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

    /// The same for hosts that put tools off themselves, under a name that no profile can have; nothing where they are
    /// shown the same.
    pub fn for_hosts_that_defer(&self) -> Option<Self> {
        let surface = self.surface.clone().for_host_that_defers();
        (surface != self.surface).then(|| Self {
            name: Self::name_for_hosts_that_defer(&self.name),
            surface,
            ..self.clone()
        })
    }

    /// What that is called.
    pub fn name_for_hosts_that_defer(name: &str) -> String {
        format!("{name}+list")
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
