//! `[policy]` as the other rooms see it, and what is changed about single items: `[servers.*.override.*]`.

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

/// `[policy]`.
#[derive(Clone, Debug, Default)]
pub struct PolicySettings {
    /// What holds where no rule says anything; `None` = nobody said, which only goes without rules.
    pub default: Option<Effect>,
    /// Decide, log and count, but do not refuse; what a locked rule refuses is refused all the same.
    pub shadow: bool,
    /// How many refused requests of a principal are looked at one by one.
    pub attempts: Attempts,
    /// The rules of all layers, the organisation's first.
    pub rules: Vec<RuleSettings>,
    /// The limits of all layers.
    pub limits: Vec<LimitSettings>,
}

/// What a rule does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It lets through.
    Allow,
    /// It refuses, whatever others allow.
    Deny,
}

impl Effect {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }
}

/// The cap on refused requests of one principal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attempts {
    /// How many in the long run.
    pub rate: Rate,
    /// How many at once.
    pub burst: NonZeroU32,
}

impl Default for Attempts {
    fn default() -> Self {
        let burst = NonZeroU32::new(1000).unwrap_or(NonZeroU32::MIN);
        let count = NonZeroU32::new(100).unwrap_or(NonZeroU32::MIN);
        Self { rate: Rate { count, per: Duration::from_secs(1) }, burst }
    }
}

/// One rule.
#[derive(Clone, Debug)]
pub struct RuleSettings {
    /// What it does.
    pub effect: Effect,
    /// Whom it is about: patterns over principals and groups.
    pub who: Vec<String>,
    /// What it is about: patterns over `<server>/<kind>/<native name>`.
    pub target: Vec<String>,
    /// What the arguments must be; all of these. Of an allow rule alone.
    pub conditions: Vec<Condition>,
    /// What the approved annotations must be.
    pub annotations: Vec<(Annotation, bool)>,
    /// How those come whom it is about; `None` = either way.
    pub transport: Option<Transport>,
    /// When it holds; `None` = always.
    pub time: Option<TimeWindow>,
    /// How well the server's program must have been verified, as in the lock.
    pub min_level: Option<u8>,
    /// Lower layers cannot widen it.
    pub locked: bool,
    /// Whose it is: 0 is the organisation, higher is later.
    pub layer: usize,
    /// Where it stands, for people.
    pub place: String,
}

impl RuleSettings {
    /// A rule that says nothing but whom and what it is about. No layer of the organisation's wrote it.
    pub fn new<T: Into<String>>(
        effect: Effect,
        who: impl IntoIterator<Item = T>,
        target: impl IntoIterator<Item = T>,
        place: impl Into<String>,
    ) -> Self {
        Self {
            effect,
            who: who.into_iter().map(Into::into).collect(),
            target: target.into_iter().map(Into::into).collect(),
            conditions: Vec::new(),
            annotations: Vec::new(),
            transport: None,
            time: None,
            min_level: None,
            locked: false,
            layer: 1,
            place: place.into(),
        }
    }
}

/// How a host comes to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// It started us.
    Stdio,
    /// Over HTTP.
    Http,
}

impl Transport {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stdio => "stdio",
            Self::Http => "http",
        }
    }
}

/// Hours of days of the week.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeWindow {
    /// On which days it begins, Monday first.
    pub days: [bool; 7],
    /// The first minute of the day.
    pub from: u16,
    /// The first minute after it; one before `from` is on the next day.
    pub to: u16,
    /// Minutes that the zone is before UTC.
    pub offset: i16,
}

/// An annotation of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Annotation {
    /// It changes nothing.
    ReadOnly,
    /// It may destroy.
    Destructive,
    /// Twice is as good as once.
    Idempotent,
    /// It deals with the world outside.
    OpenWorld,
}

/// What one value of the arguments must be.
#[derive(Clone, Debug)]
pub struct Condition {
    /// Where: a JSON pointer; a segment `*` is every element of an array.
    pub pointer: String,
    /// It may be missing.
    pub optional: bool,
    /// All of these must hold.
    pub checks: Vec<Check>,
}

/// One check of a value.
#[derive(Clone, Debug)]
pub enum Check {
    /// It is this.
    Equals(Scalar),
    /// It is one of these.
    OneOf(Vec<Scalar>),
    /// It is not there.
    Absent,
    /// It is of this type.
    Type(JsonType),
    /// It has so many characters, elements or members at most.
    MaxLen(usize),
    /// It is a number from one to the other.
    Range(f64, f64),
    /// It is a text that matches this pattern.
    Glob(String),
    /// It is an absolute path at or below one of these, `..` taken out.
    PathUnder(Vec<String>),
    /// It is an `https` address of one of these hosts.
    UrlHost(Vec<String>),
    /// It is an object with no members but these.
    NoExtra(Vec<String>),
}

/// A value that arguments are compared with.
#[derive(Clone, Debug, PartialEq)]
pub enum Scalar {
    /// A text.
    Text(String),
    /// A whole number.
    Integer(i64),
    /// Another number.
    Float(f64),
    /// True or false.
    Bool(bool),
}

/// A type of JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the words of JSON Schema")]
pub enum JsonType {
    String,
    Number,
    Integer,
    Boolean,
    Null,
    Object,
    Array,
}

/// One limit.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitSettings {
    /// Whom it is about.
    pub who: Vec<String>,
    /// What it is about.
    pub target: Vec<String>,
    /// Who has one of his own.
    pub per: Per,
    /// How often in the long run.
    pub rate: Option<Rate>,
    /// How often at once; without one, as often as the rate's unit has.
    pub burst: Option<NonZeroU32>,
    /// How often in each minute, hour or day of the calendar (UTC).
    pub quota: Option<Rate>,
    /// How many at a time.
    pub concurrency: Option<NonZeroU32>,
    /// Largest result, in bytes.
    pub max_result: Option<u64>,
    /// Where it stands, for people.
    pub place: String,
}

impl LimitSettings {
    /// A limit that limits nothing yet.
    pub fn new<T: Into<String>>(
        who: impl IntoIterator<Item = T>,
        target: impl IntoIterator<Item = T>,
        per: Per,
        place: impl Into<String>,
    ) -> Self {
        Self {
            who: who.into_iter().map(Into::into).collect(),
            target: target.into_iter().map(Into::into).collect(),
            per,
            rate: None,
            burst: None,
            quota: None,
            concurrency: None,
            max_result: None,
            place: place.into(),
        }
    }
}

/// Who has a limit of his own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Per {
    /// Each principal.
    Principal,
    /// Each server.
    Server,
    /// Each tool (or prompt, or resource).
    Tool,
    /// Each principal at each tool.
    PrincipalTool,
    /// Nobody: all together have this one.
    Everyone,
}

impl Per {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Principal => "principal",
            Self::Server => "server",
            Self::Tool => "tool",
            Self::PrincipalTool => "principal+tool",
            Self::Everyone => "everyone",
        }
    }
}

/// So many per unit of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// How many.
    pub count: NonZeroU32,
    /// In which time: a second, a minute, an hour or a day.
    pub per: Duration,
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.per.as_secs() {
            1 => "s",
            60 => "min",
            3600 => "h",
            _ => "d",
        };
        write!(f, "{}/{unit}", self.count)
    }
}

/// What is changed about one item of a server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OverrideSettings {
    /// The native name of a tool.
    pub native: String,
    /// What hosts call it behind the prefix, instead of the native name.
    pub name: Option<String>,
    /// Its title.
    pub title: Option<String>,
    /// Its description.
    pub description: Option<String>,
    /// Whether hosts do not see it.
    pub hide: bool,
    /// Arguments that are always these, as raw JSON, by name.
    pub fixed: Vec<(String, String)>,
    /// Arguments that are these where a host says nothing, as raw JSON, by name.
    pub defaults: Vec<(String, String)>,
    /// How long a call may take without progress.
    pub timeout: Option<Duration>,
    /// Whether a call may be sent again when it is not known whether it ran.
    pub retry_safe: bool,
}
