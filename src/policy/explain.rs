//! A decision explained: every rule that was looked at, the one that decided, what is left of the limits.
//!
//! Charges nothing. For `onegate explain` and `onegate policy test`, and for the record of decisions.

use std::borrow::Cow;
use std::sync::Arc;

use super::arguments::Extent;
use super::limits::LimitNote;
use super::rules::{RuleNote, Word};
use super::verdict::Reason;
use super::{LimitId, Origin, Policy, RuleId};
use crate::config::settings::Target;
use crate::ident::{Capability, Kind, Principal, ServerKey};

/// What policy says of one item to one principal, and why.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// Why it is refused; `None` = it is allowed, limits aside.
    pub reason: Option<Reason>,
    /// Whether the principal may know of it.
    pub visible: bool,
    /// It would be refused, were it not shadow mode.
    pub shadowed: bool,
    /// It hangs on arguments that were not given.
    pub needs_arguments: bool,
    /// Whether the lists of the server itself hide it, which no rule can change.
    pub hidden_by_server: bool,
    /// Whether nothing of the kind can be allowed: the URI climbs out of what it names, or the principal is of one class
    /// too many.
    pub closed: bool,
    /// The rules that decided; none = the default did.
    pub decided_by: Vec<RuleId>,
    /// All rules, in the order of the layers.
    pub rules: Vec<RuleNote>,
    /// The limits that are about it.
    pub limits: Vec<LimitNote>,
}

impl Policy {
    /// Where what hides an item from a principal stands, for people; nothing when neither lists nor rules do.
    pub fn hider(&self, principal: &Principal, server: usize, kind: Kind, native: &str) -> Option<Cow<'_, str>> {
        let terms = self.terms(self.class_of(principal), server, kind, native, Origin::Listed);
        if terms.is_visible() {
            return None;
        }
        let listed = self.servers.get(server).is_some_and(|rules| rules.of(kind).exposes(native));
        Some(match (self.keys.get(server).filter(|_| !listed), terms.ruling.by.first()) {
            (Some(key), _) => format!("servers.{key}.{kind}s").into(),
            (None, Some(rule)) => self.rule_place(*rule).into(),
            (None, None) => "policy.default".into(),
        })
    }

    /// Where a rule stands, for people.
    pub fn rule_place(&self, rule: RuleId) -> &str {
        self.rules.place(rule)
    }

    /// Where a limit stands, for people.
    pub fn limit_place(&self, limit: LimitId) -> &str {
        self.limits.place(limit)
    }

    /// Explains what would be decided. Nothing when there is no such server.
    pub fn explain(
        &self,
        principal: &Principal,
        (server, kind, native): (usize, Kind, &str),
        arguments: Option<&[u8]>,
    ) -> Option<Explanation> {
        let key = self.keys.get(server)?;
        let class = self.class_of(principal);
        let terms = self.terms(class, server, kind, native, super::Origin::Listed);
        let shadow = self.rules.is_shadow() && !terms.ruling.locked;
        let fit = arguments.map(|given| self.rules.fit(&terms.ruling.by, given, Extent::Whole));
        let (reason, decided_by, needs_arguments) = match (&terms.ruling.word, fit) {
            (Word::Open, _) => (None, terms.ruling.by.to_vec(), false),
            (Word::Hidden, _) => (Some(Reason::NotAllowed), terms.ruling.by.to_vec(), false),
            (Word::Conditional, None) => (None, terms.ruling.by.to_vec(), true),
            (Word::Conditional, Some(Ok(rule))) => (None, vec![rule], false),
            (Word::Conditional, Some(Err(_))) => (Some(Reason::ArgumentNotAllowed), terms.ruling.by.to_vec(), false),
        };
        let members = self.members(class);
        let hidden_by_server = !self.servers.get(server).is_some_and(|rules| rules.of(kind).exposes(native));
        let closed = terms.ruling.locked && terms.ruling.by.is_empty() && !hidden_by_server;
        Some(Explanation {
            reason,
            visible: terms.is_visible(),
            shadowed: reason.is_some() && shadow,
            needs_arguments,
            hidden_by_server,
            closed,
            decided_by,
            rules: self.rules.notes(
                principal,
                |target| target.matches(key.as_str(), kind, native),
                arguments,
                (self.phase(), self.rules.known(server, (kind == Kind::Tool).then_some(native))),
            ),
            limits: self.limits.notes(&terms.limits, &members.limits, self.keys_of(principal, &terms)),
        })
    }

    /// What these rules, which decide by the arguments, say where only those below some pointers are known: the rule that
    /// allows them, or the pointer of what does not fit; nothing where it hangs on others.
    pub fn fit_known(
        &self,
        by: &[RuleId],
        arguments: &[u8],
        extent: Extent,
        known: &dyn Fn(&str) -> bool,
    ) -> Option<Result<RuleId, Arc<str>>> {
        self.rules.fit_known(by, arguments, extent, known)
    }

    /// The same of a capability. Nothing when there is no such server.
    pub fn explain_capability(
        &self,
        principal: &Principal,
        server: usize,
        capability: Capability,
    ) -> Option<Explanation> {
        let key = self.keys.get(server)?;
        let members = self.members(self.class_of(principal));
        let ruling = self.rules.grant(&members.standing, server, capability, self.phase());
        let reason = (ruling.word == Word::Hidden || members.closed).then_some(Reason::CapabilityWithheld);
        let shadowed = reason.is_some() && self.rules.is_shadow() && !ruling.locked;
        let matches = |target: &Target| target.grants(key.as_str(), capability);
        Some(Explanation {
            reason,
            visible: reason.is_none() || shadowed,
            shadowed,
            needs_arguments: false,
            hidden_by_server: false,
            closed: members.closed,
            decided_by: ruling.by.to_vec(),
            rules: self.rules.notes(principal, matches, None, (self.phase(), self.rules.known(server, None))),
            limits: Vec::new(),
        })
    }

    /// The patterns of rules and of servers' lists that match none of the items that were listed, and where they
    /// stand. What is about servers or kinds of which nothing was listed is not judged.
    pub fn unmatched(&self, items: &[(usize, Kind, &str)]) -> Vec<(String, String)> {
        let key = |server: usize| self.keys.get(server).map(ServerKey::as_str);
        let matches_or_unknown = |target: &Target| {
            let within =
                |(server, kind, _): &&(usize, Kind, &str)| key(*server).is_some_and(|key| target.within(key, *kind));
            let mut judged = items.iter().filter(within).peekable();
            judged.peek().is_none()
                || judged.any(|(server, kind, native)| key(*server).is_some_and(|key| target.names(key, *kind, native)))
        };
        let mut found: Vec<_> = self.rules.unmatched(matches_or_unknown);
        for (server, lists) in self.servers.iter().enumerate() {
            for kind in Kind::ALL {
                let of_kind = items.iter().filter(|(of, listed, _)| (*of, *listed) == (server, kind));
                let natives: Vec<_> = of_kind.map(|(_, _, native)| *native).collect();
                if let (Some(key), false) = (key(server), natives.is_empty()) {
                    let unmatched = lists.of(kind).unmatched(&natives).into_iter();
                    found.extend(
                        unmatched.map(|pattern| (format!("servers.{key}.{kind}s"), pattern.as_str().to_owned())),
                    );
                }
            }
        }
        found
    }
}
