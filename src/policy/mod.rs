//! Decisions: what is visible when a list is built, what may be called when a call comes.
//!
//! Pure: knows no connection, no session, no clock and no message. Both questions go through [`Policy`], so
//! that list and call cannot disagree (INV-8, D095), and the answer lives in no session or connection, so
//! that a restart, a renewal or an early call meets the same rule (D097). `catalog` asks when it is built,
//! `gateway` for each call. What one endpoint shows of all that is a [`View`].

mod allow;
pub mod verdict;
mod view;

pub use allow::{ItemRules, RulesError};
pub use verdict::{Permit, Reason, Refusal};
pub use view::View;

use crate::config::settings::{ServerSettings, Settings};
use crate::ident::Kind;

/// The rules of one server, by kind.
#[derive(Clone, Debug, Default)]
pub struct ServerRules {
    /// Which tools are visible.
    pub tools: ItemRules,
    /// Which prompts are.
    pub prompts: ItemRules,
    /// Which resources are, by native URI.
    pub resources: ItemRules,
    /// Which resource templates are, by native template.
    pub templates: ItemRules,
}

impl ServerRules {
    fn of(&self, kind: Kind) -> &ItemRules {
        match kind {
            Kind::Tool => &self.tools,
            Kind::Prompt => &self.prompts,
            Kind::Resource => &self.resources,
            Kind::Template => &self.templates,
        }
    }

    /// Compiles the rules of one server; all faults at once.
    fn compile(server: &ServerSettings) -> Result<Self, Vec<RulesError>> {
        let mut faults = Vec::new();
        let mut compile = |kind, filter| {
            ItemRules::compile(filter).unwrap_or_else(|found| {
                faults.extend(found.into_iter().map(|fault| fault.within(&server.key, kind)));
                ItemRules::default()
            })
        };
        let rules = Self {
            tools: compile(Kind::Tool, &server.tools),
            prompts: compile(Kind::Prompt, &server.prompts),
            resources: compile(Kind::Resource, &server.resources),
            templates: compile(Kind::Template, &server.templates),
        };
        if faults.is_empty() { Ok(rules) } else { Err(faults) }
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
            match ServerRules::compile(server) {
                Ok(rules) => servers.push(rules),
                Err(found) => faults.extend(found),
            }
        }
        if faults.is_empty() { Ok(Self::new(servers)) } else { Err(faults) }
    }

    /// Whether this item is visible at all. An unknown server has no visible items.
    pub fn exposes(&self, server: usize, kind: Kind, native: &str) -> Result<(), Refusal> {
        match self.servers.get(server).map(|rules| rules.of(kind)) {
            Some(rules) if rules.exposes(native) => Ok(()),
            _ => Err(Refusal::hidden(Reason::NotAllowed)),
        }
    }

    /// Whether no item of this kind is hidden.
    pub fn is_open(&self, server: usize, kind: Kind) -> bool {
        self.servers.get(server).is_some_and(|rules| rules.of(kind).is_open())
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
    use crate::config::settings::{ItemFilter, ServerFault};
    use crate::ident::ServerKey;
    use proptest::prelude::*;

    fn policy(allow: Option<Vec<String>>, deny: Vec<String>) -> Policy {
        let tools = ItemRules::compile(&ItemFilter { allow, deny }).unwrap();
        Policy::new(vec![ServerRules { tools, ..ServerRules::default() }])
    }

    #[test]
    fn a_permit_names_what_it_is_for() {
        let permit = policy(None, vec![]).admit(0, Kind::Tool, "read").unwrap();
        assert_eq!((permit.server(), permit.kind()), (0, Kind::Tool));
    }

    #[test]
    fn what_no_rule_knows_is_refused_as_hidden() {
        let open = policy(None, vec![]);
        let refusal = open.admit(1, Kind::Tool, "read").unwrap_err();
        assert_eq!(refusal.reason(), Reason::NotAllowed);
        assert!(refusal.is_hidden());
    }

    #[test]
    fn each_kind_has_rules_of_its_own() {
        let mut server = ServerSettings::new(
            ServerKey::new("s").unwrap(),
            Err(ServerFault { key: String::new(), message: String::new() }),
        );
        let deny = |text: &str| ItemFilter { allow: None, deny: vec![text.to_owned()] };
        server.tools = deny("t*");
        server.prompts = deny("p*");
        server.resources = deny("file:///secret/*");
        server.templates = deny("db://{x}");
        let policy = Policy::new(vec![ServerRules::compile(&server).unwrap()]);
        let hidden = ["t1", "p1", "file:///secret/a", "db://{x}"];
        for (kind, own) in Kind::ALL.into_iter().zip(hidden) {
            for native in hidden {
                assert_eq!(policy.exposes(0, kind, native).is_err(), native == own, "{kind} {native}");
            }
        }
        server.resources = deny("[");
        server.prompts = deny("[");
        let keys: Vec<_> = ServerRules::compile(&server).unwrap_err().into_iter().map(|fault| fault.key).collect();
        assert_eq!(keys, ["servers.s.prompts.deny", "servers.s.resources.deny"]);
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
