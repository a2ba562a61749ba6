//! What policy answers: a proof that a call was admitted, or the reason why it was not.
//!
//! Knows nothing of how a reason is told to a host; that is the gateway's. The handle of a server wants
//! to see the [`Permit`], so that no call reaches a server without one.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::ident::Kind;

/// The proof that one call to one server was admitted.
///
/// Made by policy alone and not to be copied: one permit, one call. While it lives, the call counts among those that
/// run at the same time.
///
/// ```compile_fail
/// let forged = onegate::policy::Permit { server: 0, kind: onegate::ident::Kind::Tool };
/// ```
///
/// ```compile_fail
/// let forged = onegate::policy::Permit::grant(0, onegate::ident::Kind::Tool);
/// ```
#[must_use = "a permit is spent by the call it was given for"]
#[derive(Debug)]
pub struct Permit {
    server: usize,
    kind: Kind,
    max_result: Option<u64>,
    /// What it holds of limits on how many run at a time.
    pub(super) running: Vec<Running>,
}

impl Permit {
    pub(super) const fn grant(server: usize, kind: Kind) -> Self {
        Self { server, kind, max_result: None, running: Vec::new() }
    }

    pub(super) fn bounded(mut self, max_result: Option<u64>) -> Self {
        self.max_result = max_result;
        self
    }

    /// Index of the server that may be called.
    pub const fn server(&self) -> usize {
        self.server
    }

    /// What was admitted.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Largest result that may be passed on, where a limit says so.
    pub const fn max_result(&self) -> Option<u64> {
        self.max_result
    }
}

/// A place among the calls that run at the same time; given back when dropped.
#[derive(Debug)]
pub(super) struct Running(pub(super) Arc<AtomicU32>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Why something is refused, as hosts, logs and people see it; the codes are stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// No rule allows it, or one denies it.
    NotAllowed,
    /// The rules that allow it do not allow these arguments.
    ArgumentNotAllowed,
    /// No rule lets its server use the capability that it wants, or one denies it.
    CapabilityWithheld,
    /// Too often in too short a time.
    RateLimited,
    /// Too many at the same time.
    ConcurrencyLimited,
    /// As often as this minute, hour or day has.
    QuotaExhausted,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::NotAllowed,
        Self::ArgumentNotAllowed,
        Self::CapabilityWithheld,
        Self::RateLimited,
        Self::ConcurrencyLimited,
        Self::QuotaExhausted,
    ];

    /// The code.
    pub const fn code(self) -> &'static str {
        match self {
            Self::NotAllowed => "not-allowed",
            Self::ArgumentNotAllowed => "argument-not-allowed",
            Self::CapabilityWithheld => "capability-withheld",
            Self::RateLimited => "rate-limited",
            Self::ConcurrencyLimited => "concurrency-limited",
            Self::QuotaExhausted => "quota-exhausted",
        }
    }

    /// Whether it is about how often, and not about what.
    pub const fn is_of_limit(self) -> bool {
        match self {
            Self::NotAllowed | Self::ArgumentNotAllowed | Self::CapabilityWithheld => false,
            Self::RateLimited | Self::ConcurrencyLimited | Self::QuotaExhausted => true,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

/// A refused item or call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("refused: {reason}")]
pub struct Refusal {
    reason: Reason,
    hidden: bool,
    /// Whose pointer did not fit, of `argument-not-allowed`.
    argument: Option<Arc<str>>,
    retry_after: Option<Duration>,
}

impl Refusal {
    pub(super) const fn hidden(reason: Reason) -> Self {
        Self { reason, hidden: true, argument: None, retry_after: None }
    }

    pub(super) const fn argument(argument: Arc<str>) -> Self {
        let reason = Reason::ArgumentNotAllowed;
        Self { reason, hidden: false, argument: Some(argument), retry_after: None }
    }

    pub(super) const fn limit(reason: Reason, retry_after: Option<Duration>) -> Self {
        Self { reason, hidden: false, argument: None, retry_after }
    }

    /// Why.
    pub const fn reason(&self) -> Reason {
        self.reason
    }

    /// Whether the caller may not know of it: then it is answered like something that does not exist.
    pub const fn is_hidden(&self) -> bool {
        self.hidden
    }

    /// Where in the arguments the first value stands that does not fit.
    pub fn pointer(&self) -> Option<&str> {
        self.argument.as_deref()
    }

    /// After which time it may be tried again, where that is known.
    pub const fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }
}
