//! `[auth]`: who may enter, and what proves it.

use std::path::PathBuf;

use url::Url;

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
