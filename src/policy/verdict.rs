//! What policy answers: a proof that a call was admitted, or the reason why it was not.
//!
//! Knows nothing of how a reason is told to a host; that is the gateway's. The handle of a server takes the
//! [`Permit`] by value, so that no call reaches a server without one.

use std::fmt;

use crate::ident::Kind;

/// The proof that one call to one server was admitted.
///
/// Made by policy alone and not to be copied: one permit, one call.
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
}

impl Permit {
    pub(super) const fn grant(server: usize, kind: Kind) -> Self {
        Self { server, kind }
    }

    /// Index of the server that may be called.
    pub const fn server(&self) -> usize {
        self.server
    }

    /// What was admitted.
    pub const fn kind(&self) -> Kind {
        self.kind
    }
}

/// Why something is refused, as hosts, logs and people see it; the codes are stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// No rule allows it, or one denies it.
    NotAllowed,
}

impl Reason {
    /// The code.
    pub const fn code(self) -> &'static str {
        match self {
            Self::NotAllowed => "not-allowed",
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
}

impl Refusal {
    pub(super) const fn hidden(reason: Reason) -> Self {
        Self { reason, hidden: true }
    }

    /// Why.
    pub const fn reason(&self) -> Reason {
        self.reason
    }

    /// Whether the caller may not know of it: then it is answered like something that does not exist.
    pub const fn is_hidden(&self) -> bool {
        self.hidden
    }
}
