//! The lists of one server's own table: which of its items are visible, whoever asks (§8.2).
//!
//! Knows no principal. Asked only through [`super::Policy`].

use super::{ItemRules, RulesError};
use crate::config::settings::ServerSettings;
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
    pub(super) fn of(&self, kind: Kind) -> &ItemRules {
        match kind {
            Kind::Tool => &self.tools,
            Kind::Prompt => &self.prompts,
            Kind::Resource => &self.resources,
            Kind::Template => &self.templates,
        }
    }

    /// Compiles the rules of one server; all faults at once.
    pub(super) fn compile(server: &ServerSettings) -> Result<Self, Vec<RulesError>> {
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

/// Whether a URI has a segment `.` or `..`, plain or percent-encoded.
pub(super) fn climbs(uri: &str) -> bool {
    let dots = |segment: &str| {
        let mut rest = segment;
        let mut count = 0;
        while let Some(after) = rest.strip_prefix('.').or_else(|| {
            let encoded = rest.get(..3).is_some_and(|start| start.eq_ignore_ascii_case("%2e"));
            encoded.then(|| &rest[3..])
        }) {
            rest = after;
            count += 1;
        }
        rest.is_empty() && (1..=2).contains(&count)
    };
    // An encoded separator is one to whoever decodes before it looks for dots.
    let separated = uri.split(['/', '\\', '?', '#', ':']).flat_map(|part| {
        let lower = part.to_ascii_lowercase();
        lower.split("%2f").flat_map(|part| part.split("%5c")).map(dots).collect::<Vec<_>>()
    });
    uri.contains(['.', '%']) && separated.into_iter().any(|climbs| climbs)
}
