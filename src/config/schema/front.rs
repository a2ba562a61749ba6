//! The keys of what `serve` shows, where it listens and whom it lets in: `[profiles]`, `[http]`, `[auth]`.
//!
//! Part of `schema`, and as free of files and layers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Surface, Tools, Trim};
use crate::config::period::Period;

/// One cut of the catalogue.
#[derive(Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Profile {
    /// The servers that it shows, by their keys. Default: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub servers: Option<Vec<String>>,
    /// Which of their tools it shows, as patterns over `<server>/<native name>`. What a server's own `tools` hide
    /// stays hidden.
    pub tools: Tools,
    /// How a host gets at them: by a list, or by search.
    pub surface: Surface,
    /// The most tokens that the list of tools may cost, about; what does not fit is found by search.
    #[schemars(range(min = 500, max = 10_000_000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// Of the tools that `tools.always` does not name, those come first that were called in this last time, by the record of
    /// decisions (`telemetry.audit.file`), the more the earlier; counted once a day, and taken up at a start or reload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recent: Option<Period>,
    /// What is left out of the definitions in the list.
    pub trim: Trim,
    /// Whether a tool of ours, `onegate__servers`, tells which servers there are.
    pub list_servers: bool,
    /// Longest exposed tool name here, for hosts that put more or less before it. Default: `gateway.name_budget`.
    #[schemars(range(min = 24, max = 128))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name_budget: Option<u16>,
}

/// What `serve` listens on.
#[derive(Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Http {
    /// Address and port. Port 0 takes a free one.
    pub listen: String,
    /// Values of the header `Host` that are taken, with or without a port; loopback names and `listen` always are.
    pub allowed_hosts: Vec<String>,
    /// Values of the header `Origin` that are taken, as `https://app.example`; those of loopback always are.
    pub allowed_origins: Vec<String>,
    /// Whether hosts that know nothing newer find the HTTP+SSE transport of 2024-11-05 at `/sse`.
    pub sse: bool,
    /// Certificate and key, for TLS without a proxy before it.
    pub tls: Tls,
}

impl Default for Http {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:7410".to_owned(),
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            sse: false,
            tls: Tls::default(),
        }
    }
}

/// Certificate and key, both as PEM files.
#[derive(Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Tls {
    /// The chain of certificates, the server's own first; relative to this file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert: Option<String>,
    /// The private key; relative to this file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// Where operators look at a running gateway.
#[derive(Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Admin {
    /// The socket that `onegate status` and `onegate logs` ask; relative to this file. Default: one for each process in
    /// the folder for such things.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket: Option<String>,
    /// Address and port of `/healthz`, `/readyz` and `/metrics`. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<String>,
    /// `auto`: a `run` uses a `serve` of the same user and configuration, where one runs.
    pub attach: Attach,
}

/// Whether a `run` uses a `serve` that runs already.
#[derive(Clone, Copy, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(in crate::config) enum Attach {
    /// Each has servers of its own.
    #[default]
    Off,
    /// It does, where they are of the same user and configuration.
    Auto,
}

/// How hosts prove who they are.
#[derive(Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Auth {
    /// Of hosts of `serve`. `keys`: with one of the keys below. `jwt`: with a token of an identity provider. `both`: with
    /// either. `none`: not at all, for a listener on loopback only.
    pub mode: Mode,
    /// The keys; `onegate key new NAME` makes one.
    pub keys: Vec<Key>,
    /// Whose tokens are taken.
    pub jwt: Jwt,
    /// Tokens of hosts that start `onegate run`; `onegate key new NAME --stdio` makes one.
    pub stdio: Vec<StdioToken>,
}

/// How hosts prove who they are.
#[derive(Clone, Copy, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(in crate::config) enum Mode {
    /// With a bearer key.
    #[default]
    Keys,
    /// With a token of an identity provider.
    Jwt,
    /// With either.
    Both,
    /// Not at all.
    None,
}

/// Whose tokens are taken, and what they must say.
#[derive(Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["issuer", "audience"]))]
pub(in crate::config) struct Jwt {
    /// Who signs them, exactly as in their `iss`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// Whom they are for: must be in their `aud`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
    /// Our own address, for which hosts ask tokens. Default: `audience`, where that is an address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// Where the issuer's keys are: an address, or a file relative to this one. Default: what the issuer's metadata says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jwks: Option<String>,
    /// Which of their claims holds the groups: a name, or a JSON pointer such as `/realm_access/roles`. Default: `groups`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups_claim: Option<String>,
    /// Scopes that every token must have been given.
    pub scopes: Vec<String>,
}

/// The token of one installation: its hash, never the token itself.
#[derive(Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["name", "hash"]))]
pub(in crate::config) struct StdioToken {
    /// Who has it; the principal is `stdio:NAME`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `sha256:` and 64 hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// Groups that it belongs to.
    pub groups: Vec<String>,
}

/// A key: its hash, never the key itself.
#[derive(Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["name", "hash"]))]
pub(in crate::config) struct Key {
    /// Who has it; the principal is `key:NAME`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `sha256:` and 64 hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// Groups that it belongs to.
    pub groups: Vec<String>,
    /// From when it is no longer taken: `2027-01-01` (in UTC) or `2027-01-01T12:00:00Z`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
}
