//! Patterns over what there is and over who asks: `<server>/<kind>/<native name>`, and principals with their groups.
//!
//! Names are the operator's keys and the servers' own, never exposed ones (N-15). Made by `config`, which checks them,
//! and by `policy`, which decides by them.

use crate::ident::{Capability, Kind, Principal};
use crate::pattern::{Pattern, PatternError};

/// A pattern over items. Each of its three segments is one over a whole segment (D096); the last one is the whole
/// native name, however many `/` that has.
#[derive(Clone, Debug)]
pub struct Target {
    text: Box<str>,
    form: Form,
}

#[derive(Clone, Debug)]
enum Form {
    Segments {
        server: Pattern,
        kinds: [bool; 4],
        capability: Granted,
        native: Pattern,
    },
    /// `re:…` over all of it.
    Whole(Pattern),
}

/// What a [`Target`] says of capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Granted {
    /// Nothing.
    Not,
    /// Something, among other things.
    Among,
    /// Something, and of nothing else.
    Alone,
}

/// Why a text is no [`Target`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// Fewer segments than three.
    #[error(
        "`{0}` is not <server>/<kind>/<native name>; write for example `files/tool/read_*`, or `files/*/*` for all"
    )]
    Segments(String),
    /// No kind matches.
    #[error("`{0}` names no kind; there are tool, prompt, resource, template and capability")]
    Kind(String),
    /// No capability matches.
    #[error("`{0}` names no capability; there are sampling, elicitation, secrets, roots, logging and completions")]
    Capability(String),
    /// A segment does not compile.
    #[error(transparent)]
    Pattern(#[from] PatternError),
}

impl Target {
    /// Compiles `text`.
    pub fn new(text: &str) -> Result<Self, TargetError> {
        if text.starts_with("re:") {
            return Ok(Self { text: text.into(), form: Form::Whole(Pattern::new(text)?) });
        }
        let segments = || TargetError::Segments(text.to_owned());
        let (server, rest) = segment(text).ok_or_else(segments)?;
        let (kind, native) = segment(rest).ok_or_else(segments)?;
        let (server, kind, native) = (Pattern::new(server)?, Pattern::new(kind)?, Pattern::new(native)?);
        let kinds = Kind::ALL.map(|known| kind.matches(known.as_str()));
        let capability = match (kind.matches(Capability::KIND), kinds.contains(&true)) {
            (false, false) => return Err(TargetError::Kind(kind.as_str().to_owned())),
            (true, false) => Granted::Alone,
            (true, true) => Granted::Among,
            (false, true) => Granted::Not,
        };
        let is_known = Capability::ALL.into_iter().any(|known| native.matches(known.as_str()));
        if capability == Granted::Alone && !is_known {
            return Err(TargetError::Capability(native.as_str().to_owned()));
        }
        Ok(Self { text: text.into(), form: Form::Segments { server, kinds, capability, native } })
    }

    /// As written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether an item of this server and kind can match; what is then asked of its native name.
    pub fn within(&self, server: &str, kind: Kind) -> bool {
        match &self.form {
            Form::Segments { server: pattern, kinds, .. } => kinds[kind.index()] && pattern.matches(server),
            Form::Whole(_) => true,
        }
    }

    /// Whether this item matches, where [`Self::within`] said so of its server and kind.
    pub fn names(&self, server: &str, kind: Kind, native: &str) -> bool {
        match &self.form {
            Form::Segments { native: pattern, .. } => pattern.matches(native),
            Form::Whole(pattern) => pattern.matches(&format!("{server}/{kind}/{native}")),
        }
    }

    /// Whether this item matches.
    pub fn matches(&self, server: &str, kind: Kind, native: &str) -> bool {
        self.within(server, kind) && self.names(server, kind, native)
    }

    /// Whether it is about this capability of a server.
    pub fn grants(&self, server: &str, capability: Capability) -> bool {
        match &self.form {
            Form::Segments { server: pattern, capability: granted, native, .. } => {
                *granted != Granted::Not && pattern.matches(server) && native.matches(capability.as_str())
            }
            Form::Whole(pattern) => pattern.matches(&format!("{server}/{}/{}", Capability::KIND, capability.as_str())),
        }
    }

    /// Whether it is about capabilities and nothing else; of a regular expression, whether it speaks of them.
    pub fn is_of_capabilities(&self) -> bool {
        match &self.form {
            Form::Segments { capability, .. } => *capability == Granted::Alone,
            Form::Whole(pattern) => pattern.as_str().contains(Capability::KIND),
        }
    }

    /// Whether every item of that server and kind does, where [`Self::within`] said so.
    pub fn is_all(&self) -> bool {
        matches!(&self.form, Form::Segments { native, .. } if native.is_any())
    }

    /// Whether it can match anything of this server.
    pub fn may_match_server(&self, server: &str) -> bool {
        Kind::ALL.into_iter().any(|kind| self.within(server, kind))
            || Capability::ALL.into_iter().any(|capability| self.grants(server, capability))
    }

    /// Whether it surely matches whatever `other` matches, as far as that shows in the text: for warnings alone.
    pub fn covers(&self, other: &Self) -> bool {
        match (&self.form, &other.form) {
            (
                Form::Segments { server, kinds, native, capability },
                Form::Segments { server: server2, kinds: kinds2, native: native2, capability: capability2 },
            ) => {
                let segment = |one: &Pattern, two: &Pattern| one.is_any() || one == two;
                segment(server, server2)
                    && segment(native, native2)
                    && kinds.iter().zip(kinds2).all(|(one, two)| *one || !two)
                    && (*capability != Granted::Not || *capability2 == Granted::Not)
            }
            (Form::Whole(one), Form::Whole(two)) => one == two,
            _ => false,
        }
    }

    /// Why it is probably not meant as written, where that shows (D096).
    pub fn suspicion(&self) -> Option<&'static str> {
        match &self.form {
            Form::Segments { server, native, .. } => server.suspicion().or_else(|| native.suspicion()),
            Form::Whole(_) => None,
        }
    }
}

/// The first segment and what follows its `/`; one that is escaped or in a set does not end it.
fn segment(text: &str) -> Option<(&str, &str)> {
    let (mut escaped, mut set) = (false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '[' => set = true,
            ']' => set = false,
            '/' if !set => return Some((&text[..at], &text[at + 1..])),
            _ => {}
        }
    }
    None
}

/// A pattern over principals (`key:ci`, `user:*`, `stdio`, `*`), with `group:` before it over their groups, with
/// `scope:` over what their tokens were given for.
#[derive(Clone, Debug)]
pub struct WhoPattern {
    pattern: Pattern,
    over: Over,
}

/// What a [`WhoPattern`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    Names,
    Groups,
    Scopes,
    /// An expression, which may name any of them.
    All,
}

/// Why a text is no [`WhoPattern`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WhoError {
    /// Nobody is called so: a rule that denies would deny nobody.
    #[error("`{0}` names nobody; write `group:…`, `scope:…`, `key:…`, `user:…`, `stdio`, `anonymous` or `*`")]
    Nobody(String),
    /// It does not compile.
    #[error(transparent)]
    Pattern(#[from] PatternError),
}

impl WhoPattern {
    /// Compiles `text`.
    pub fn new(text: &str) -> Result<Self, WhoError> {
        const BEGINNINGS: [&str; 6] = ["group:", "scope:", "key:", "user:", "stdio:", "re:"];
        let begins = BEGINNINGS.into_iter().find(|word| text.len() > word.len() && text.starts_with(word));
        if begins.is_none() && !matches!(text, "*" | "stdio" | "stdio*" | "anonymous") {
            return Err(WhoError::Nobody(text.to_owned()));
        }
        let over = match begins {
            Some("group:") => Over::Groups,
            Some("scope:") => Over::Scopes,
            Some("re:") => Over::All,
            _ => Over::Names,
        };
        Ok(Self { pattern: Pattern::new(text)?, over })
    }

    /// As written.
    pub fn as_str(&self) -> &str {
        self.pattern.as_str()
    }

    /// Whether this is one of those.
    pub fn matches(&self, who: &Principal) -> bool {
        let over = |one| self.over == one || self.over == Over::All;
        over(Over::Names) && self.pattern.matches(who.as_str())
            || over(Over::Groups) && who.groups().any(|group| self.pattern.matches(&format!("group:{group}")))
            || over(Over::Scopes) && who.scopes().any(|scope| self.pattern.matches(&format!("scope:{scope}")))
    }

    /// Whether everybody is.
    pub fn is_everybody(&self) -> bool {
        self.pattern.is_any()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, matching: &[&str], other: &[&str]) {
        let target = Target::new(pattern).unwrap();
        let split = |text: &'static str| {
            let (server, rest) = text.split_once('/').unwrap();
            let (kind, native) = rest.split_once('/').unwrap();
            (server, Kind::ALL.into_iter().find(|known| known.as_str() == kind).unwrap(), native)
        };
        for (texts, expected) in [(matching, true), (other, false)] {
            for text in texts {
                let text: &'static str = (*text).to_owned().leak();
                let (server, kind, native) = split(text);
                assert_eq!(target.matches(server, kind, native), expected, "{pattern} {text}");
            }
        }
    }

    #[test]
    fn d096_segments_are_matched_whole() {
        check("brave/tool/*", &["brave/tool/x", "brave/tool/a/b"], &["brave-search/tool/x", "brave/prompt/x"]);
        check("files/tool/read_*", &["files/tool/read_a"], &["files/tool/Read_a", "files/tool/x/read_a"]);
        check("*/*/*", &["a/tool/x", "b/template/y:{z}"], &[]);
        check("a/*/file:///x/*", &["a/resource/file:///x/y"], &["a/resource/file:///y"]);
        check("[ab]/t*/x", &["a/tool/x", "b/template/x"], &["c/tool/x", "a/prompt/x"]);
        check("a/tool/re:(x|y)", &["a/tool/x"], &["a/tool/xy"]);
        check("re:a/tool/(x|y)", &["a/tool/x"], &["a/tool/xy", "ba/tool/x"]);
    }

    #[test]
    fn what_is_no_target_says_why() {
        for text in ["files", "files/tool", "*", r"a\/tool/x", "a[/]tool/x"] {
            assert!(matches!(Target::new(text), Err(TargetError::Segments(_))), "{text}");
        }
        assert_eq!(Target::new("a/tools/x").unwrap_err(), TargetError::Kind("tools".into()));
        assert_eq!(Target::new("a/capability/sample").unwrap_err(), TargetError::Capability("sample".into()));
        assert!(matches!(Target::new("a/tool/").unwrap_err(), TargetError::Pattern(PatternError::Empty)));
    }

    #[test]
    fn capabilities_are_a_kind_of_their_own() {
        let target = |text| Target::new(text).unwrap();
        let sampling = target("a*/capability/s*");
        assert!(sampling.grants("ab", Capability::Sampling) && sampling.is_of_capabilities());
        assert!(!sampling.grants("b", Capability::Sampling) && !sampling.grants("a", Capability::Roots));
        assert!(!Kind::ALL.into_iter().any(|kind| sampling.within("a", kind)) && sampling.may_match_server("a"));
        let all = target("*/*/*");
        assert!(all.grants("a", Capability::Logging) && !all.is_of_capabilities() && all.covers(&sampling));
        assert!(!target("a*/tool/s*").grants("a", Capability::Sampling) && !target("*/tool/*").covers(&sampling));
        assert!(target("re:a/capability/(roots|logging)").grants("a", Capability::Roots));
    }

    #[test]
    fn who_is_a_principal_or_a_group() {
        let ci = Principal::key_in("ci", &["dev".into(), "ops".into()]);
        let is = |text: &str| WhoPattern::new(text).unwrap().matches(&ci);
        assert!(is("*") && is("key:ci") && is("key:*") && is("group:ops") && is("group:d*") && is("re:key:(ci|cd)"));
        assert!(is("re:(group:ops|key:x)") && is("re:group:x|key:ci") && !is("re:(group:op|key:x)"));
        assert!(!is("key:c") && !is("group:de") && !is("stdio") && !is("user:*") && !is("key:CI"));
        let ann = Principal::user("a|1", &["dev".into()], &["mcp:read".into(), "ops".into()]);
        let is = |text: &str| WhoPattern::new(text).unwrap().matches(&ann);
        assert!(is("scope:mcp:*") && is("scope:ops") && is("group:dev") && is("user:a|1") && is("re:scope:o.*"));
        assert!(!is("group:ops") && !is("scope:dev") && !is("scope:user:*") && !is("key:*"));
        for bad in ["", "ci", "dev", "*:dev", "group:", "scope:", "Group:dev"] {
            assert!(WhoPattern::new(bad).is_err(), "{bad}");
        }
    }
}
