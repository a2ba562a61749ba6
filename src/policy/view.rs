//! What one endpoint shows of the catalogue: a compiled profile.
//!
//! A view only takes away: [`super::Policy`] is asked first and wins. Knows no exposed name, like all rules
//! (N-15). `gateway` compiles one per profile; `catalog` asks it when it is built, so that what a view hides
//! is in no table and no list.

use super::{Class, ItemRules, Policy, RulesError, Surface};
use crate::config::settings::ProfileSettings;
use crate::ident::{Kind, ServerKey};

/// The servers and tools that an endpoint shows. The default shows everything.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// By index in the settings; `None` = all.
    servers: Option<Box<[bool]>>,
    /// Over `<server>/<native name>`.
    tools: ItemRules,
    /// To whom.
    class: Class,
    /// Longest name of a tool, where it is not that of the gateway.
    name_budget: Option<usize>,
    /// How much of it is shown at once.
    surface: Surface,
}

impl View {
    /// Compiles a profile; `servers` are the keys by index in the settings. Keys that are not among them
    /// (servers that are disabled) show nothing.
    pub fn compile(profile: &ProfileSettings, servers: &[ServerKey]) -> Result<Self, Vec<RulesError>> {
        let tools = ItemRules::compile(&profile.tools)
            .map_err(|found| found.into_iter().map(|fault| fault.of_profile(&profile.name)).collect::<Vec<_>>())?;
        let shown = profile.servers.as_ref().map(|shown| servers.iter().map(|key| shown.contains(key)).collect());
        let surface = Surface::compile(profile, servers)?;
        Ok(Self { servers: shown, tools, class: Class::default(), name_budget: profile.name_budget, surface })
    }

    /// The same to this class of principals: servers of which it may see nothing are not shown (D102).
    pub fn to_class(&self, class: Class, policy: &Policy, servers: usize) -> Self {
        let shown = (0..servers).map(|server| self.shows(server) && !policy.hides_server(class, server));
        Self { servers: Some(shown.collect()), class, ..self.clone() }
    }

    /// Longest name of a tool, where it is not that of the gateway (N-2).
    pub fn name_budget(&self) -> Option<usize> {
        self.name_budget
    }

    /// How much of it is shown at once.
    pub fn surface(&self) -> &Surface {
        &self.surface
    }

    /// To whom it shows.
    pub fn class(&self) -> Class {
        self.class
    }

    /// Whether anything of this server is shown.
    pub fn shows(&self, server: usize) -> bool {
        self.servers.as_ref().is_none_or(|shown| shown.get(server) == Some(&true))
    }

    /// Whether no tool of a shown server is hidden.
    pub fn is_open(&self) -> bool {
        self.tools.is_open()
    }

    /// Whether this item is shown, as far as the view has a say.
    pub fn exposes(&self, server: usize, key: &ServerKey, kind: Kind, native: &str) -> bool {
        self.shows(server)
            && (kind != Kind::Tool || self.tools.is_open() || self.tools.exposes(&format!("{key}/{native}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::settings::ItemFilter;

    fn keys() -> Vec<ServerKey> {
        ["a", "b"].map(|key| ServerKey::new(key).unwrap()).to_vec()
    }

    #[test]
    fn the_default_shows_everything() {
        let view = View::compile(&ProfileSettings::everything(), &keys()).unwrap();
        assert!(view.exposes(1, &keys()[1], Kind::Tool, "x") && View::default().shows(7));
    }

    #[test]
    fn n_15_profiles_name_servers_and_native_tools() {
        let mut profile = ProfileSettings::everything();
        profile.servers = Some(vec![keys()[1].clone(), ServerKey::new("off").unwrap()]);
        profile.tools =
            ItemFilter { allow: Some(vec!["b/read_*".into(), "a/*".into()]), deny: vec!["*/read_all".into()] };
        let view = View::compile(&profile, &keys()).unwrap();
        let tool = |server: usize, native| view.exposes(server, &keys()[server], Kind::Tool, native);
        assert!(tool(1, "read_one"));
        assert!(!tool(1, "read_all") && !tool(1, "write") && !tool(0, "read_one"));
        assert!(view.exposes(1, &keys()[1], Kind::Resource, "write"), "only tools are filtered");
        assert!(!view.exposes(0, &keys()[0], Kind::Resource, "write") && !view.shows(2));
    }

    #[test]
    fn faults_name_their_key() {
        let mut profile = ProfileSettings::everything();
        profile.tools.deny.push("[".into());
        assert_eq!(View::compile(&profile, &keys()).unwrap_err()[0].key, "profiles.default.tools.deny");
    }
}
