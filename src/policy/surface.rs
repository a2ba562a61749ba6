//! Which tools a host is shown at once and which it finds by search: what a profile says of it, compiled.
//!
//! Part of a [`super::View`], and like it knows no exposed name (N-15). `catalog` decides by it when it is built.

use super::RulesError;
use crate::config::settings::{ProfileSettings, SurfaceMode, SurfaceSettings, TokenizerName, TrimSettings, Uses};
use crate::ident::ServerKey;
use crate::pattern::Pattern;

/// How much of the tools a view shows at once. The default: all.
#[derive(Clone, Debug, Default)]
pub struct Surface {
    mode: SurfaceMode,
    max_tokens: Option<usize>,
    /// Over `<server>/<native name>`.
    always: Vec<Pattern>,
    /// Over native names, by index in the settings.
    always_of: Box<[Vec<Pattern>]>,
    trim: TrimSettings,
    list_servers: bool,
    tokenizer: Option<TokenizerName>,
    /// Which server is shown first, by index in the settings.
    order: Box<[usize]>,
    uses: Uses,
}

impl Surface {
    /// Compiles what a profile says; `servers` are the keys by index in the settings.
    pub(super) fn compile(profile: &ProfileSettings, servers: &[ServerKey]) -> Result<Self, Vec<RulesError>> {
        let said = &profile.surface;
        let mut faults = Vec::new();
        let always = super::compile_all(&said.always, Pattern::new, "always", &mut faults);
        let mut faults: Vec<_> = faults.into_iter().map(|fault: RulesError| fault.of_profile(&profile.name)).collect();
        let mut of = |key: &ServerKey| {
            let texts = said.always_of.iter().find(|(server, _)| server == key);
            let mut found = Vec::new();
            let texts = texts.map(|(_, texts)| texts.as_slice()).unwrap_or_default();
            let patterns = super::compile_all(texts, Pattern::new, "always", &mut found);
            faults.extend(found.into_iter().map(|fault: RulesError| fault.within(key, crate::ident::Kind::Tool)));
            patterns
        };
        let always_of = servers.iter().map(&mut of).collect();
        // Places of servers outlive configurations, so they say nothing: it is their keys that do.
        let place = |key: &ServerKey| match &profile.servers {
            Some(written) => written.iter().position(|known| known == key).unwrap_or(usize::MAX),
            None => servers.iter().filter(|other| *other < key).count(),
        };
        let order = servers.iter().map(place).collect();
        let SurfaceSettings { mode, trim, list_servers, tokenizer, .. } = *said;
        let (max_tokens, uses) = (said.ceiling(), said.uses.clone());
        if faults.is_empty() {
            Ok(Self { mode, max_tokens, always, always_of, trim, list_servers, tokenizer, order, uses })
        } else {
            Err(faults)
        }
    }

    /// Whether some tools may be found by search alone.
    pub fn may_search(&self) -> bool {
        self.mode != SurfaceMode::List || self.max_tokens.is_some()
    }

    /// How hosts get at the tools.
    pub fn mode(&self) -> SurfaceMode {
        self.mode
    }

    /// The most tokens that a list costs.
    pub fn max_tokens(&self) -> Option<usize> {
        self.max_tokens
    }

    /// By what tokens are counted; `None` = they are estimated.
    pub fn tokenizer(&self) -> Option<TokenizerName> {
        self.tokenizer
    }

    /// What is left out of definitions.
    pub fn trim(&self) -> &TrimSettings {
        &self.trim
    }

    /// Whether servers are told of.
    pub fn lists_servers(&self) -> bool {
        self.list_servers
    }

    /// Whether a tool stays in the list.
    pub fn is_always(&self, server: usize, key: &ServerKey, native: &str) -> bool {
        let of_server = self.always_of.get(server).is_some_and(|of| of.iter().any(|pattern| pattern.matches(native)));
        of_server
            || !self.always.is_empty() && {
                let target = format!("{key}/{native}");
                self.always.iter().any(|pattern| pattern.matches(&target))
            }
    }

    /// How much a tool was called lately, where that counts (SRF-2).
    pub fn uses(&self, key: &ServerKey, native: &str) -> u32 {
        self.uses.weight(key.as_str(), native)
    }

    /// Which servers come first where not all fit: as the profile names them, else by their keys.
    pub fn place(&self, server: usize) -> usize {
        self.order.get(server).copied().unwrap_or(server)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn srf_2_what_auto_is_hangs_on_what_is_said_of_the_host() {
        let compiled = |surface: SurfaceSettings| {
            let surface = Surface::compile(&ProfileSettings { surface, ..ProfileSettings::everything() }, &[]).unwrap();
            (surface.mode(), surface.max_tokens(), surface.may_search())
        };
        for (mode, max_tokens, usual, defers) in [
            (SurfaceMode::Auto, None, (SurfaceMode::Auto, Some(10_000), true), (SurfaceMode::List, None, false)),
            (SurfaceMode::Auto, Some(600), (SurfaceMode::Auto, Some(600), true), (SurfaceMode::List, Some(600), true)),
            (SurfaceMode::Search, None, (SurfaceMode::Search, None, true), (SurfaceMode::Search, None, true)),
            (SurfaceMode::List, None, (SurfaceMode::List, None, false), (SurfaceMode::List, None, false)),
        ] {
            let surface = SurfaceSettings { mode, max_tokens, ..SurfaceSettings::default() };
            assert_eq!(compiled(surface.clone()), usual);
            assert_eq!(compiled(surface.for_host_that_defers()), defers);
        }
    }
}
