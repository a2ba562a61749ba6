//! Checked names: made once at the edge by constructors that check, relied on everywhere else.
//!
//! Deliberately knows nothing of where a name comes from.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

/// The identity of a server: its key in the configuration, `^[a-z][a-z0-9-]{0,15}$`.
///
/// The only identity used for naming, routing and policy; what a server says of itself is display text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerKey(Box<str>);

/// Why a text is not a [`ServerKey`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServerKeyError {
    /// The text does not have the shape of a key.
    #[error("a server key is 1 to 16 of a-z, 0-9 and -, beginning with a letter")]
    Shape,
    /// The key belongs to the gateway's own tools (N-14).
    #[error("the key `onegate` is reserved for the gateway's own tools")]
    Reserved,
}

impl ServerKey {
    /// The key that names the gateway itself (N-14); no server may have it.
    pub const RESERVED: &'static str = "onegate";
    /// The longest key.
    pub const MAX_LEN: usize = 16;

    /// Checks `text` and makes it a key.
    pub fn new(text: &str) -> Result<Self, ServerKeyError> {
        let shaped = text.len() <= Self::MAX_LEN
            && text.starts_with(|c: char| c.is_ascii_lowercase())
            && text.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-'));
        if !shaped {
            return Err(ServerKeyError::Shape);
        }
        if text == Self::RESERVED {
            return Err(ServerKeyError::Reserved);
        }
        Ok(Self(text.into()))
    }

    /// The key of the gateway itself, [`Self::RESERVED`].
    pub fn gateway() -> Self {
        Self(Self::RESERVED.into())
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ServerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ServerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServerKey({})", self.0)
    }
}

/// What an entry of the catalogue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A tool.
    Tool,
    /// A prompt.
    Prompt,
    /// A resource.
    Resource,
    /// A resource template.
    Template,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Tool, Self::Prompt, Self::Resource, Self::Template];

    /// Its position in [`Self::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The word for it in configuration, policy, lock and commands.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Prompt => "prompt",
            Self::Resource => "resource",
            Self::Template => "template",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a server may be granted beside its items.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Capability {
    /// To have the host's model say something.
    Sampling,
    /// To ask the host's user something, or to have an address opened.
    Elicitation,
    /// To ask for what seems to be a secret, in a form.
    Secrets,
    /// To know the host's folders.
    Roots,
    /// To tell the host what it logs.
    Logging,
    /// To complete what the host's user writes.
    Completions,
}

impl Capability {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Sampling, Self::Elicitation, Self::Secrets, Self::Roots, Self::Logging, Self::Completions];
    /// Its position in [`Self::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// What stands for them in the place of a kind.
    pub const KIND: &'static str = "capability";

    /// The word for it in policy.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sampling => "sampling",
            Self::Elicitation => "elicitation",
            Self::Secrets => "secrets",
            Self::Roots => "roots",
            Self::Logging => "logging",
            Self::Completions => "completions",
        }
    }
}

/// Who calls: made from authentication alone, never from what a host says of itself.
///
/// Two are equal when their names are; groups and scopes are what authentication knows of it now.
#[derive(Clone)]
pub struct Principal(Arc<Who>);

struct Who {
    name: Box<str>,
    groups: Box<[Box<str>]>,
    /// What its token was given for.
    scopes: Box<[Box<str>]>,
    /// What policy made of all that, for it to find again; see [`Principal::remember`].
    memo: AtomicU64,
}

impl Principal {
    fn new(name: &str, groups: &[String]) -> Self {
        Self::with(name, groups, &[])
    }

    fn with(name: &str, groups: &[String], scopes: &[String]) -> Self {
        let all = |texts: &[String]| texts.iter().map(|text| text.as_str().into()).collect();
        Self(Arc::new(Who { name: name.into(), groups: all(groups), scopes: all(scopes), memo: AtomicU64::new(0) }))
    }

    /// The one local user of a stdio front.
    pub fn stdio() -> Self {
        static STDIO: LazyLock<Principal> = LazyLock::new(|| Principal::new("stdio", &[]));
        STDIO.clone()
    }

    /// The local user who has the token of this installation.
    pub fn stdio_named(name: &str, groups: &[String]) -> Self {
        Self::new(&format!("stdio:{name}"), groups)
    }

    /// Whom an identity provider calls this.
    pub fn user(subject: &str, groups: &[String], scopes: &[String]) -> Self {
        Self::with(&format!("user:{subject}"), groups, scopes)
    }

    /// Everybody, where an HTTP front asks nobody for a proof.
    pub fn anonymous() -> Self {
        Self::new("anonymous", &[])
    }

    /// Whoever has the API key of this name.
    pub fn key(name: &str) -> Self {
        Self::key_in(name, &[])
    }

    /// The same with the groups that the key belongs to.
    pub fn key_in(name: &str, groups: &[String]) -> Self {
        Self::new(&format!("key:{name}"), groups)
    }

    /// One that is written out, for questions about it; nothing for a text that names none.
    pub fn parse(name: &str, groups: &[String]) -> Option<Self> {
        let named = |prefix: &str| name.strip_prefix(prefix).is_some_and(|rest| !rest.is_empty());
        let known = matches!(name, "stdio" | "anonymous") || ["stdio:", "key:", "user:"].into_iter().any(named);
        known.then(|| Self::new(name, groups))
    }

    /// The same with these scopes, for questions about it.
    pub fn scoped(&self, scopes: &[String]) -> Self {
        let groups: Vec<_> = self.groups().map(str::to_owned).collect();
        Self::with(self.as_str(), &groups, scopes)
    }

    /// Whether it is the local user of a stdio front; all others come over HTTP.
    pub fn is_local(&self) -> bool {
        self.as_str().strip_prefix("stdio").is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
    }

    /// As written in policy and audit.
    pub fn as_str(&self) -> &str {
        &self.0.name
    }

    /// The groups that it belongs to.
    pub fn groups(&self) -> impl Iterator<Item = &str> {
        self.0.groups.iter().map(|group| &**group)
    }

    /// What its token was given for.
    pub fn scopes(&self) -> impl Iterator<Item = &str> {
        self.0.scopes.iter().map(|scope| &**scope)
    }

    /// What was last remembered of it; 0 at first.
    pub fn memo(&self) -> u64 {
        self.0.memo.load(Ordering::Acquire)
    }

    /// Keeps a number with it, so that whoever decides about each of its calls need not look it up each time.
    pub fn remember(&self, memo: u64) {
        self.0.memo.store(memo, Ordering::Release);
    }
}

impl PartialEq for Principal {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.name == other.0.name
    }
}

impl Eq for Principal {}

impl PartialOrd for Principal {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Principal {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.name.cmp(&other.0.name)
    }
}

impl Hash for Principal {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.name.hash(state);
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Principal({})", self.as_str())
    }
}

/// A text that must never be shown: it has neither `Debug` nor `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<str>);

impl Secret {
    /// Wraps a text.
    pub fn new(text: impl Into<Box<str>>) -> Self {
        Self(text.into())
    }

    /// The text, for the one place that hands it on (a child's environment, a header).
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_keys_are_checked() {
        for good in ["a", "files", "a-b", "a1", "abcdefghijklmnop"] {
            assert!(ServerKey::new(good).is_ok(), "{good}");
        }
        for bad in ["", "A", "1a", "-a", "a_b", "a__b", "a.b", "ä", "abcdefghijklmnopq"] {
            assert_eq!(ServerKey::new(bad), Err(ServerKeyError::Shape), "{bad}");
        }
        assert_eq!(ServerKey::new("onegate"), Err(ServerKeyError::Reserved), "N-14");
    }

    #[test]
    fn principals_are_their_names() {
        let one = Principal::key_in("ci", &["dev".to_owned()]);
        assert_eq!(one, Principal::key("ci"));
        assert_eq!(one.groups().collect::<Vec<_>>(), ["dev"]);
        for good in ["stdio", "stdio:x", "anonymous", "key:ci", "user:42"] {
            assert_eq!(Principal::parse(good, &[]).unwrap().as_str(), good);
        }
        let user = Principal::user("42", &["dev".to_owned()], &["mcp".to_owned()]);
        assert_eq!((user.as_str(), user.scopes().collect::<Vec<_>>()), ("user:42", vec!["mcp"]));
        assert!(!user.is_local() && !one.is_local() && !Principal::anonymous().is_local());
        assert!(Principal::stdio().is_local() && Principal::stdio_named("laptop", &[]).is_local());
        let scoped = one.scoped(&["a".to_owned()]);
        assert_eq!((scoped.groups().count(), scoped.scopes().count()), (1, 1));
        for bad in ["", "ci", "key:", "group:dev", "Key:ci"] {
            assert!(Principal::parse(bad, &[]).is_none(), "{bad}");
        }
    }
}
