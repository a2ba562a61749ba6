//! What was approved of servers: annotations of tools, and how much what is launched is bound. What the lock says, never what
//! a server says now (E-22).
//!
//! Replaced whole when the lock is another. Knows no lock; `gateway` and the commands bring what is in it.

use std::collections::HashMap;

use crate::config::settings::Annotation;

/// Approved annotations of one tool, the protocol's defaults filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hints {
    /// It changes nothing.
    pub read_only: bool,
    /// It may destroy.
    pub destructive: bool,
    /// Twice is as good as once.
    pub idempotent: bool,
    /// It deals with the world outside.
    pub open_world: bool,
}

impl Hints {
    /// Whether all of these hold.
    pub(super) fn fit(self, wanted: &[(Annotation, bool)]) -> bool {
        wanted.iter().all(|(annotation, value)| {
            let has = match annotation {
                Annotation::ReadOnly => self.read_only,
                Annotation::Destructive => self.destructive,
                Annotation::Idempotent => self.idempotent,
                Annotation::OpenWorld => self.open_world,
            };
            has == *value
        })
    }
}

/// What was approved of one server; nothing of one that is not locked.
#[derive(Clone, Debug, Default)]
pub struct Approved {
    /// How much what is launched is bound.
    pub level: Option<u8>,
    /// Annotations by native name.
    pub tools: HashMap<String, Hints>,
}

/// What was approved of one item.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Known {
    pub(super) level: Option<u8>,
    pub(super) hints: Option<Hints>,
}
