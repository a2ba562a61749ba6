//! Allow and deny lists over native names.
//!
//! Knows no exposed name: renaming or a prefix can never move a rule to another target (N-15). Asked only
//! through [`super::Policy`].

use crate::config::settings::ItemFilter;
use crate::ident::{Kind, ServerKey};
use crate::pattern::Pattern;

/// The compiled lists of one kind of one server. The default shows everything.
#[derive(Clone, Debug, Default)]
pub struct ItemRules {
    allow: Option<Vec<Pattern>>,
    deny: Vec<Pattern>,
}

/// A pattern that does not compile, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {fault}")]
pub struct RulesError {
    /// The key of the configuration, for example `servers.files.tools.allow`.
    pub key: String,
    /// What is wrong with it.
    pub fault: String,
}

impl RulesError {
    /// Several of them as one text, a line each.
    pub fn all(faults: &[Self]) -> String {
        faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }

    /// The same fault with its full key.
    pub(super) fn of_profile(self, profile: &str) -> Self {
        Self { key: format!("profiles.{profile}.tools.{}", self.key), ..self }
    }

    /// The same fault with its full key.
    pub(super) fn within(self, server: &ServerKey, kind: Kind) -> Self {
        Self { key: format!("servers.{server}.{kind}s.{}", self.key), ..self }
    }
}

impl ItemRules {
    /// Compiles both lists; all faults at once, their keys relative (`allow`, `deny`).
    pub fn compile(filter: &ItemFilter) -> Result<Self, Vec<RulesError>> {
        let mut faults = Vec::new();
        let mut compile = |key, texts: &[String]| super::compile_all(texts, Pattern::new, key, &mut faults);
        let allow = filter.allow.as_deref().map(|texts| compile("allow", texts));
        let deny = compile("deny", &filter.deny);
        if faults.is_empty() { Ok(Self { allow, deny }) } else { Err(faults) }
    }

    /// Whether they show everything.
    pub fn is_open(&self) -> bool {
        self.allow.is_none() && self.deny.is_empty()
    }

    /// Whether an item of this native name is visible: deny wins; without an allow list everything else is,
    /// with one only what it names (so `allow = []` shows nothing).
    pub fn exposes(&self, native: &str) -> bool {
        let named = |patterns: &[Pattern]| patterns.iter().any(|pattern| pattern.matches(native));
        !named(&self.deny) && self.allow.as_deref().is_none_or(named)
    }

    /// Patterns that match none of these names: a typing error, or a tool that went away.
    pub fn unmatched<'a>(&'a self, natives: &[&str]) -> Vec<&'a Pattern> {
        let all = self.allow.iter().flatten().chain(&self.deny);
        all.filter(|pattern| !natives.iter().any(|native| pattern.matches(native))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(allow: Option<&[&str]>, deny: &[&str]) -> ItemRules {
        let owned = |texts: &[&str]| texts.iter().map(|&t| t.to_owned()).collect::<Vec<_>>();
        ItemRules::compile(&ItemFilter { allow: allow.map(owned), deny: owned(deny) }).unwrap()
    }

    #[test]
    fn deny_wins_and_no_allow_list_allows_the_rest() {
        let open = rules(None, &["*delete*"]);
        assert!(open.exposes("read_file"));
        assert!(!open.exposes("undelete_file"));
        let both = rules(Some(&["read_*", "list_*"]), &["*_secret"]);
        assert!(both.exposes("read_file"));
        assert!(!both.exposes("read_secret"));
        assert!(!both.exposes("write_file"));
        assert!(!rules(Some(&[]), &[]).exposes("read_file"), "an empty allow list allows nothing");
    }

    #[test]
    fn all_faults_come_at_once_with_their_keys() {
        let filter = ItemFilter { allow: Some(vec!["[".into(), "ok".into()]), deny: vec!["a\\".into()] };
        let faults = ItemRules::compile(&filter).unwrap_err();
        let key = ServerKey::new("files").unwrap();
        let shown: Vec<_> = faults.into_iter().map(|f| f.within(&key, Kind::Tool).key).collect();
        assert_eq!(shown, ["servers.files.tools.allow", "servers.files.tools.deny"]);
    }

    #[test]
    fn d096_patterns_that_match_nothing_are_named() {
        let odd = rules(Some(&["read_file ", "files__read", "read"]), &[]);
        let unmatched: Vec<_> = odd.unmatched(&["read", "Read_file"]).into_iter().map(Pattern::as_str).collect();
        assert_eq!(unmatched, ["read_file ", "files__read"]);
    }
}
