//! Decisions: what is visible when a list is built, what may be called when a call comes.
//!
//! Pure: knows no connection, no session, no clock and no message. Both questions go through [`Policy`], so
//! that list and call cannot disagree (INV-8, D095), and the answer lives in no session or connection, so
//! that a restart, a renewal or an early call meets the same rule (D097). `catalog` asks when it is built,
//! `gateway` for each call.

mod allow;
pub mod verdict;

pub use allow::{ItemRules, RulesError};
pub use verdict::{Permit, Reason, Refusal};

use crate::config::settings::Settings;
use crate::ident::Kind;

/// The rules of one server, by kind.
#[derive(Clone, Debug, Default)]
pub struct ServerRules {
    /// Which tools are visible.
    pub tools: ItemRules,
}

impl ServerRules {
    fn of(&self, kind: Kind) -> Option<&ItemRules> {
        match kind {
            Kind::Tool => Some(&self.tools),
            // Nothing of these kinds is served yet, so nothing of them is allowed.
            Kind::Prompt | Kind::Resource | Kind::Template => None,
        }
    }
}

/// All rules; servers by their index in the settings.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    servers: Vec<ServerRules>,
}

impl Policy {
    /// The policy over these servers, in the order of their indices.
    pub fn new(servers: Vec<ServerRules>) -> Self {
        Self { servers }
    }

    /// Compiles the rules of the settings; all faults at once.
    pub fn compile(settings: &Settings) -> Result<Self, Vec<RulesError>> {
        let mut servers = Vec::with_capacity(settings.servers.len());
        let mut faults = Vec::new();
        for server in &settings.servers {
            match ItemRules::compile(&server.tools) {
                Ok(tools) => servers.push(ServerRules { tools }),
                Err(found) => faults.extend(found.into_iter().map(|fault| fault.within(&server.key, Kind::Tool))),
            }
        }
        if faults.is_empty() { Ok(Self::new(servers)) } else { Err(faults) }
    }

    /// Whether this item is visible at all. An unknown server has no visible items.
    pub fn exposes(&self, server: usize, kind: Kind, native: &str) -> Result<(), Refusal> {
        match self.servers.get(server).and_then(|rules| rules.of(kind)) {
            Some(rules) if rules.exposes(native) => Ok(()),
            _ => Err(Refusal::hidden(Reason::NotAllowed)),
        }
    }

    /// Asked once for each call, after the name was resolved and before anything is sent.
    pub fn admit(&self, server: usize, kind: Kind, native: &str) -> Result<Permit, Refusal> {
        self.exposes(server, kind, native)?;
        Ok(Permit::grant(server, kind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::settings::ItemFilter;
    use proptest::prelude::*;

    fn policy(allow: Option<Vec<String>>, deny: Vec<String>) -> Policy {
        let tools = ItemRules::compile(&ItemFilter { allow, deny }).unwrap();
        Policy::new(vec![ServerRules { tools }])
    }

    #[test]
    fn a_permit_names_what_it_is_for() {
        let permit = policy(None, vec![]).admit(0, Kind::Tool, "read").unwrap();
        assert_eq!((permit.server(), permit.kind()), (0, Kind::Tool));
    }

    #[test]
    fn what_no_rule_knows_is_refused_as_hidden() {
        let open = policy(None, vec![]);
        for refusal in [open.admit(1, Kind::Tool, "read").unwrap_err(), open.admit(0, Kind::Prompt, "x").unwrap_err()] {
            assert_eq!(refusal.reason(), Reason::NotAllowed);
            assert!(refusal.is_hidden());
        }
    }

    proptest! {
        /// INV-8, D095: the list and the call answer alike, for any rules and any name.
        #[test]
        fn list_and_call_agree(
            allow in prop::option::of(prop::collection::vec("[ab*?]{1,4}", 0..3)),
            deny in prop::collection::vec("[ab*?]{1,4}", 0..3),
            native in "[ab/]{0,5}",
        ) {
            let policy = policy(allow, deny);
            let listed = policy.exposes(0, Kind::Tool, &native);
            let called = policy.admit(0, Kind::Tool, &native).map(|_| ());
            prop_assert_eq!(listed, called);
        }
    }
}
