//! Who asks, through which endpoint, and what its host can do: what every room on the way of a request needs to
//! know of the host, and all it gets to know.
//!
//! Made by the adapters of `upstream`; the principal comes from authentication alone.

use crate::ident::Principal;
use crate::protocol::capability::Capabilities;
use crate::protocol::level::LogLevel;
use crate::protocol::version::Revision;

/// The host behind a request.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Who it is.
    pub principal: Principal,
    /// Which profile its endpoint shows, by its place in the settings.
    pub profile: usize,
    /// The revision of its leg.
    pub revision: Revision,
    /// What it can do: of the request when it is modern, of the session when it is legacy.
    pub capabilities: Capabilities,
    /// Which log messages it wants; `None` = it did not say.
    pub log_level: Option<LogLevel>,
    /// Its legacy session, a number of ours that is never used again; `None` for a modern request.
    pub session: Option<u64>,
}

impl Caller {
    /// The one user of a stdio front, before anything is known of the host.
    pub fn stdio(revision: Revision) -> Self {
        Self {
            principal: Principal::stdio(),
            profile: 0,
            revision,
            capabilities: Capabilities::default(),
            log_level: None,
            session: None,
        }
    }
}
