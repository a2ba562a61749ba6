//! What arguments must be for a rule to allow a call (§8.4): checks by JSON pointer on the very bytes that are sent.
//!
//! Pure, and strict: what is missing, of another type or ambiguous does not fit (E-23). Symbolic links are not known
//! here. Called by [`super::rules`].

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use url::{Host, Url};

use super::RulesError;
use crate::config::settings::{self, JsonType, Scalar};
use crate::pattern::Pattern;
use crate::protocol::json;

/// A compiled condition.
#[derive(Debug)]
pub(super) struct Condition {
    pointer: Arc<str>,
    /// The names on the way, escapes resolved; `None` = every element.
    steps: Box<[Option<Box<str>>]>,
    optional: bool,
    checks: Box<[Check]>,
}

#[derive(Debug)]
enum Check {
    Equals(Scalar),
    OneOf(Box<[Scalar]>),
    Absent,
    Type(JsonType),
    MaxLen(usize),
    Range(f64, f64),
    Glob(Pattern),
    PathUnder(Box<[PathBuf]>),
    UrlHost(Box<[HostPattern]>),
    NoExtra(Box<[String]>),
}

#[derive(Debug)]
struct HostPattern {
    host: String,
    below: bool,
    port: u16,
}

/// How much of the arguments is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All that the server gets.
    Whole,
    /// Those that a user has filled in so far: what is missing is not looked at (§8.4, completions).
    Partial,
}

impl Condition {
    pub(super) fn compile(written: &settings::Condition) -> Result<Self, RulesError> {
        let fault =
            |fault: crate::pattern::PatternError| RulesError { key: "where".to_owned(), fault: fault.to_string() };
        let mut checks = Vec::with_capacity(written.checks.len());
        for check in &written.checks {
            checks.push(match check {
                settings::Check::Equals(value) => Check::Equals(value.clone()),
                settings::Check::OneOf(values) => Check::OneOf(values.clone().into()),
                settings::Check::Absent => Check::Absent,
                settings::Check::Type(wanted) => Check::Type(*wanted),
                settings::Check::MaxLen(length) => Check::MaxLen(*length),
                settings::Check::Range(from, to) => Check::Range(*from, *to),
                settings::Check::Glob(text) => Check::Glob(Pattern::new(text).map_err(fault)?),
                settings::Check::PathUnder(folders) => {
                    Check::PathUnder(folders.iter().filter_map(|folder| normal(folder)).collect())
                }
                settings::Check::UrlHost(hosts) => {
                    Check::UrlHost(hosts.iter().map(|host| HostPattern::new(host)).collect())
                }
                settings::Check::NoExtra(names) => Check::NoExtra(names.clone().into()),
            });
        }
        let step = |step: &str| (step != "*").then(|| step.replace("~1", "/").replace("~0", "~").into());
        let steps = written.pointer.split('/').skip(1).map(step).collect();
        Ok(Self { pointer: written.pointer.as_str().into(), steps, optional: written.optional, checks: checks.into() })
    }

    pub(super) fn pointer(&self) -> &Arc<str> {
        &self.pointer
    }

    /// Whether these arguments, a raw object, fit.
    pub(super) fn fits(&self, arguments: &[u8], extent: Extent) -> bool {
        self.walk(arguments, &self.steps, extent)
    }

    fn walk(&self, value: &[u8], steps: &[Option<Box<str>>], extent: Extent) -> bool {
        let Some((step, rest)) = steps.split_first() else {
            return self.checks.iter().all(|check| check.holds(value, extent));
        };
        match (step, value.first()) {
            (None, Some(b'[')) => json::elements(value).all(|element| self.walk(element, rest, extent)),
            (Some(name), Some(b'{')) => {
                let mut found = json::members(value).filter(|entry| is_read_as(entry, name));
                match (found.next(), found.next()) {
                    (Some(entry), None) if entry.is(name) => self.walk(entry.value, rest, extent),
                    // Which of them a server takes is not known: some do not look at the case of letters.
                    (Some(_), _) => false,
                    (None, _) => self.missing(extent),
                }
            }
            (Some(name), Some(b'[')) => {
                // As RFC 6901 has it: a number without leading zeros.
                let plain =
                    name.bytes().all(|byte| byte.is_ascii_digit()) && (name.len() == 1 || !name.starts_with('0'));
                let Some(at) = name.parse().ok().filter(|_| plain) else { return false };
                let element = json::elements(value).nth(at);
                element.map_or_else(|| self.missing(extent), |element| self.walk(element, rest, extent))
            }
            // Some servers read a text as the JSON that it holds; what a user completes is a text as yet.
            (_, Some(b'"')) => self.wants_nothing() && extent == Extent::Partial,
            (_, Some(b'{')) => false,
            _ => self.wants_nothing(),
        }
    }

    fn missing(&self, extent: Extent) -> bool {
        self.optional || extent == Extent::Partial || self.wants_nothing()
    }

    fn wants_nothing(&self) -> bool {
        matches!(*self.checks, [Check::Absent])
    }
}

impl Check {
    fn holds(&self, value: &[u8], extent: Extent) -> bool {
        match self {
            Self::Equals(wanted) => is(value, wanted),
            Self::OneOf(wanted) => wanted.iter().any(|wanted| is(value, wanted)),
            Self::Absent => false,
            Self::Type(wanted) => is_type(value, *wanted),
            Self::MaxLen(most) => length(value).is_some_and(|length| length <= *most),
            Self::Range(from, to) => number(value).is_some_and(|number| (*from..=*to).contains(&number)),
            Self::Glob(pattern) => json::text_of(value).is_some_and(|text| pattern.matches(&text)),
            Self::PathUnder(folders) => json::text_of(value)
                .and_then(|text| normal(&text))
                .is_some_and(|path| folders.iter().any(|folder| path.starts_with(folder))),
            Self::UrlHost(hosts) => json::text_of(value).is_some_and(|text| is_at(&text, hosts)),
            Self::NoExtra(names) => {
                let named = |entry: json::Entry<'_>| names.iter().any(|name| entry.is(name));
                match value.first() {
                    Some(b'{') => json::members(value).all(named),
                    // What a user completes is a text as yet.
                    _ => extent == Extent::Partial && value.starts_with(b"\""),
                }
            }
        }
    }
}

/// Whether some server takes a member for the one of this name: exactly, or without regard to case as some decoders do.
fn is_read_as(entry: &json::Entry<'_>, name: &str) -> bool {
    let Some(written) = entry.name() else { return false };
    if written.is_ascii() && name.is_ascii() {
        return written.eq_ignore_ascii_case(name);
    }
    // Some letters are the upper case of one and the lower case of another: ſ, K.
    let fold =
        |text: &str| -> String { text.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect() };
    fold(&written) == fold(name)
}

/// Whether a raw value is this one. Numbers are compared as numbers.
fn is(value: &[u8], wanted: &Scalar) -> bool {
    match wanted {
        Scalar::Text(wanted) => json::text_of(value).is_some_and(|text| text == wanted.as_str()),
        Scalar::Bool(wanted) => value == if *wanted { &b"true"[..] } else { b"false" },
        Scalar::Integer(wanted) => match std::str::from_utf8(value).ok().and_then(|text| text.parse::<i64>().ok()) {
            Some(exact) => exact == *wanted,
            None => number(value).is_some_and(|number| number == *wanted as f64 && number.abs() < 9e15),
        },
        Scalar::Float(wanted) => number(value).is_some_and(|number| number == *wanted),
    }
}

fn number(value: &[u8]) -> Option<f64> {
    matches!(value.first(), Some(b'-' | b'0'..=b'9')).then_some(())?;
    std::str::from_utf8(value).ok()?.parse().ok().filter(|number: &f64| number.is_finite())
}

fn is_type(value: &[u8], wanted: JsonType) -> bool {
    let first = value.first().copied().unwrap_or_default();
    match wanted {
        JsonType::String => first == b'"',
        JsonType::Number => number(value).is_some(),
        JsonType::Integer => number(value).is_some_and(|number| number.fract() == 0.0),
        JsonType::Boolean => matches!(first, b't' | b'f'),
        JsonType::Null => first == b'n',
        JsonType::Object => first == b'{',
        JsonType::Array => first == b'[',
    }
}

/// Characters of a text, elements of an array, members of an object.
fn length(value: &[u8]) -> Option<usize> {
    match value.first()? {
        b'"' => Some(json::text_of(value)?.chars().count()),
        b'[' => Some(json::elements(value).count()),
        b'{' => Some(json::members(value).count()),
        _ => None,
    }
}

/// An absolute path with `.` and `..` taken out, component by component; nothing for one that some system may read
/// otherwise.
fn normal(text: &str) -> Option<PathBuf> {
    if !text.starts_with('/') || text.contains(['\0', '\\']) {
        return None;
    }
    let mut normal = PathBuf::new();
    for component in Path::new(text).components() {
        match component {
            Component::RootDir => normal.push("/"),
            Component::Normal(name) => normal.push(name),
            Component::CurDir => {}
            // Above the root is the root.
            Component::ParentDir => drop(normal.pop()),
            Component::Prefix(_) => return None,
        }
    }
    Some(normal)
}

impl HostPattern {
    fn new(written: &str) -> Self {
        let (host, port) = match written.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, port.parse().unwrap_or(443)),
            _ => (written, 443),
        };
        let below = host.strip_prefix("*.");
        Self { host: below.unwrap_or(host).to_owned(), below: below.is_some(), port }
    }

    fn matches(&self, host: &Host<&str>, port: u16) -> bool {
        let name = host.to_string();
        let same = if self.below {
            let above = matches!(host, Host::Domain(_)).then(|| name.strip_suffix(&*self.host)).flatten();
            above.is_some_and(|above| above.len() > 1 && above.ends_with('.'))
        } else {
            name == self.host
        };
        same && port == self.port
    }
}

/// Whether a text is an address that everybody reads alike, at one of these hosts.
fn is_at(text: &str, hosts: &[HostPattern]) -> bool {
    // Some readers take out or change these, others do not.
    if text.contains(|c: char| c.is_control() || c.is_whitespace() || c == '\\') {
        return false;
    }
    let Ok(url) = Url::parse(text) else { return false };
    let plain = url.scheme() == "https" && url.username().is_empty() && url.password().is_none();
    let written = text.get(..8).is_some_and(|start| start.eq_ignore_ascii_case("https://"));
    let authority = text.get(8..).unwrap_or_default().split(['/', '?', '#']).next().unwrap_or_default();
    let (Some(host), Some(port)) = (url.host(), url.port_or_known_default()) else { return false };
    plain && written && !authority.contains('@') && hosts.iter().any(|pattern| pattern.matches(&host, port))
}

#[cfg(test)]
#[path = "arguments_tests.rs"]
mod tests;
