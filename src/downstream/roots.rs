//! Which of a host's roots a server may be told: `servers.*.roots`, by their URIs (MRT-7, §12.5).
//!
//! A server that may be told none is not told that the host has any, so it does not ask. What the others are told is
//! filtered on its way down, in both eras; where nothing is configured it passes untouched. Pure; called by
//! [`super::questions`] for what a legacy server asked and by the gateway for what a modern one did.

use std::borrow::Cow;

use crate::caller::Caller;
use crate::config::settings::ItemFilter;
use crate::pattern::Pattern;
use crate::protocol::json;

/// The compiled lists of one server.
pub struct Roots {
    allow: Option<Vec<Pattern>>,
    deny: Vec<Pattern>,
}

impl Roots {
    /// Patterns were checked when they were read; one that is none all the same leaves nothing to be told.
    pub(super) fn new(filter: &ItemFilter) -> Self {
        let compile = |texts: &[String]| texts.iter().map(|text| Pattern::new(text)).collect::<Result<Vec<_>, _>>();
        match (filter.allow.as_deref().map(compile).transpose(), compile(&filter.deny)) {
            (Ok(allow), Ok(deny)) => Self { allow, deny },
            _ => Self { allow: Some(Vec::new()), deny: Vec::new() },
        }
    }

    fn is_open(&self) -> bool {
        self.allow.is_none() && self.deny.is_empty()
    }

    fn passes(&self, uri: &str) -> bool {
        let named = |patterns: &[Pattern]| patterns.iter().any(|pattern| pattern.matches(uri));
        !named(&self.deny) && self.allow.as_deref().is_none_or(named)
    }

    /// The caller as this server gets to know it: without roots where it may be told none.
    pub(super) fn narrowed<'a>(&self, caller: &'a Caller) -> Cow<'a, Caller> {
        if !caller.capabilities.roots || self.allow.as_ref().is_none_or(|allow| !allow.is_empty()) {
            return Cow::Borrowed(caller);
        }
        let mut caller = caller.clone();
        (caller.capabilities.roots, caller.capabilities.roots_list_changed) = (false, false);
        Cow::Owned(caller)
    }

    /// A raw result of `roots/list` without what the server may not be told; `None` when all of it passes.
    pub(super) fn told(&self, result: &[u8]) -> Option<Vec<u8>> {
        if self.is_open() {
            return None;
        }
        let mut out = Vec::with_capacity(result.len());
        let mut copied = 0;
        for list in json::members(result).filter(|entry| entry.is("roots")) {
            let passes = |root: &&[u8]| {
                let mut uris = json::members(root).filter(|entry| entry.is("uri")).peekable();
                // What names nothing, or is not text, is no root.
                uris.peek().is_some() && uris.all(|uri| json::text_of(uri.value).is_some_and(|uri| self.passes(&uri)))
            };
            let kept: Vec<_> = json::elements(list.value).filter(passes).collect();
            out.extend_from_slice(&result[copied..list.at]);
            out.push(b'[');
            out.extend_from_slice(&kept.join(&b","[..]));
            out.push(b']');
            copied = list.at + list.value.len();
        }
        out.extend_from_slice(&result[copied..]);
        Some(out)
    }

    /// The same for raw `inputResponses`, where an answer that has `roots` is one to `roots/list`: others have none.
    pub fn told_in(&self, responses: &[u8]) -> Option<Vec<u8>> {
        let has_roots = |answer: &[u8]| json::members(answer).any(|entry| entry.is("roots"));
        if self.is_open() || !json::members(responses).any(|entry| has_roots(entry.value)) {
            return None;
        }
        let mut out = Vec::with_capacity(responses.len());
        let mut copied = 0;
        for entry in json::members(responses).filter(|entry| has_roots(entry.value)) {
            out.extend_from_slice(&responses[copied..entry.at]);
            out.extend_from_slice(self.told(entry.value).as_deref().unwrap_or(entry.value));
            copied = entry.at + entry.value.len();
        }
        out.extend_from_slice(&responses[copied..]);
        Some(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::capability::Capabilities;
    use crate::protocol::version::Revision;

    fn roots(allow: Option<&[&str]>, deny: &[&str]) -> Roots {
        let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        Roots::new(&ItemFilter { allow: allow.map(owned), deny: owned(deny) })
    }

    fn told(roots: &Roots, result: &str) -> String {
        roots.told(result.as_bytes()).map_or_else(|| result.to_owned(), |told| String::from_utf8(told).unwrap())
    }

    #[test]
    fn mrt7_a_server_is_told_the_roots_that_it_may_know_and_the_rest_stays() {
        let result = r#"{ "a":1, "roots" : [{"uri":"file:///srv/docs","name":"d"}, {"name":"x","uri":"file:\/\/\/home\/me"},{"name":"none"},7] , "_meta":{"roots":[1]}}"#;
        assert_eq!(told(&roots(None, &[]), result), result);
        let docs = r#"{ "a":1, "roots" : [{"uri":"file:///srv/docs","name":"d"}] , "_meta":{"roots":[1]}}"#;
        assert_eq!(told(&roots(Some(&["file:///srv/*"]), &[]), result), docs);
        assert_eq!(told(&roots(None, &["file:///home/*"]), result), docs);
        assert_eq!(told(&roots(Some(&[]), &[]), r#"{"roots":[{"uri":"file:///x"}]}"#), r#"{"roots":[]}"#);
        assert_eq!(told(&roots(Some(&["["]), &[]), r#"{"roots":[{"uri":"["}]}"#), r#"{"roots":[]}"#);
        // The URI that a reader takes last does not smuggle in another one.
        let twice = r#"{"roots":[{"uri":"file:///srv/a","uri":"file:///home/me"}]}"#;
        assert_eq!(told(&roots(Some(&["file:///srv/*"]), &[]), twice), r#"{"roots":[]}"#);
    }

    #[test]
    fn mrt7_answers_to_other_questions_pass_untouched() {
        let docs = roots(Some(&["file:///srv/*"]), &[]);
        let others = r#"{"k":{"action":"accept","content":{"roots":"x"}},"s":{"role":"assistant","content":[]}}"#;
        assert_eq!(docs.told_in(others.as_bytes()), None);
        let all = r#"{"k":{"action":"cancel"}, "r" :{"roots":[{"uri":"file:///home"},{"uri":"file:///srv/a"}]},"q":{"roots":[]}}"#;
        let told = docs.told_in(all.as_bytes()).unwrap();
        assert_eq!(String::from_utf8(told).unwrap(), all.replace(r#"{"uri":"file:///home"},"#, ""));
        assert_eq!(roots(None, &[]).told_in(all.as_bytes()), None);
    }

    #[test]
    fn mrt7_who_may_know_none_is_not_told_that_there_are_any() {
        let mut caller = Caller::stdio(Revision::V2025_11_25);
        caller.capabilities = Capabilities::read(br#"{"roots":{"listChanged":true},"sampling":{}}"#);
        let narrowed = roots(Some(&[]), &[]).narrowed(&caller).into_owned();
        assert_eq!(narrowed.capabilities, Capabilities::read(br#"{"sampling":{}}"#));
        for open in [roots(None, &[]), roots(Some(&["file:*"]), &[])] {
            assert!(open.narrowed(&caller).capabilities.roots);
        }
    }
}
