//! How the program ends; the numbers are stable (contract of the commands).
//!
//! As an error it says that the person was told why already, and that it is time to end so.

use std::fmt;
use std::process::ExitCode;

use crate::daemon::Ended;

/// An exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    /// All well.
    Fine,
    /// The asked operation failed.
    Failed,
    /// A fault of usage or configuration.
    Usage,
    /// Something is not as it was reviewed.
    Drift,
    /// A server could not be reached.
    Unreachable,
    /// The lock cannot be relied on.
    LockInvalid,
    /// A person interrupted.
    Interrupted,
}

impl From<Ended> for Exit {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Drained => Self::Fine,
            Ended::Interrupted => Self::Interrupted,
        }
    }
}

impl std::error::Error for Exit {}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Fine => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::Drift => 3,
            Exit::Unreachable => 4,
            Exit::LockInvalid => 5,
            Exit::Interrupted => 130,
        })
    }
}
