//! What is written down of a request: begun when it comes, with its item and its verdict on the way, ended with what came
//! of it (R-36, E-20).
//!
//! The words of a record are chosen here and nowhere else; how they are written is `telemetry/audit`'s. Without a file for
//! them nothing is done but one look whether there is one.

use super::refused::Refused;
use super::{Failure, Gateway, Held, Outcome};
use crate::caller::Caller;
use crate::catalog::Catalogue;
use crate::ident::{Kind, Principal};
use crate::policy::{Decision, Reason};
use crate::protocol::call::{Call, Target};
use crate::protocol::json;
use crate::protocol::method::Method;
use crate::protocol::version::{Era, Revision};
use crate::telemetry::audit::{Asked, Ended, Record, Verdict};

/// Results up to this size are asked whether they say of themselves that the tool failed; larger ones hold something.
const MAX_ASKED: usize = 256 << 10;

/// The reasons of pins that hold (contract §4).
const HOLDS: [&str; 3] = ["pin-changed", "pin-pending", "server-quarantined"];

/// Where the cap on refused requests stands.
const ATTEMPTS: &str = "policy.attempts";

impl Gateway {
    /// Begins the record of a request that names something.
    pub(super) fn record(&self, call: &Call, caller: &Caller) -> Option<Record<'_>> {
        let audit = self.audit.as_ref()?;
        let exposed = json::text_of(call.target()).unwrap_or_default();
        Some(audit.begin(&Asked { caller, method: call.method().as_str(), exposed: Some(&exposed) }))
    }

    /// The same of what is no call.
    pub(super) fn record_of(&self, caller: &Caller, method: &str, exposed: &str) -> Option<Record<'_>> {
        let audit = self.audit.as_ref()?;
        Some(audit.begin(&Asked { caller, method, exposed: Some(exposed) }))
    }

    /// A request that was refused before it named anything to decide about, such as one for a method that is not served
    /// (E-20).
    pub fn note_refused(&self, principal: &Principal, session: Option<u64>, method: &[u8], reason: &'static str) {
        let Some(audit) = &self.audit else { return };
        let caller = Caller { principal: principal.clone(), session, ..Caller::stdio(Revision::LATEST_MODERN) };
        let mut record =
            audit.begin(&Asked { caller: &caller, method: &String::from_utf8_lossy(method), exposed: None });
        record.decided(&self.refusal("refuse", reason, None));
        record.end(&Ended { word: "refused", code: None, reason: None });
    }

    /// So many were refused before that this one is not looked at.
    pub(super) fn note_flood(&self, record: &mut Option<Record<'_>>) {
        self.metrics.refused(None, Reason::RateLimited.code());
        if let Some(record) = record {
            record.decided(&self.refusal("refuse", Reason::RateLimited.code(), Some(ATTEMPTS)));
        }
    }

    /// Nothing of that name is there for this caller. What is there for others, or was, is told apart from what is not.
    pub(super) fn note_unknown(
        &self,
        record: &mut Option<Record<'_>>,
        catalogue: &Catalogue,
        call: &Call,
        caller: &Caller,
        name: &str,
    ) {
        if record.is_none() {
            return;
        }
        match self.hidden(catalogue, call, name) {
            Some((server, kind, native)) => self.note_hidden(record, caller, (server, kind, &native)),
            None => self.note_unseen(record),
        }
    }

    /// It is there, and its pin holds it back.
    pub(super) fn note_held(
        &self,
        record: &mut Option<Record<'_>>,
        catalogue: &Catalogue,
        call: &Call,
        name: &str,
        failure: &Failure,
    ) {
        let Some(record) = record else { return };
        if let Some((server, kind, native)) = self.hidden(catalogue, call, name) {
            record.item(self.servers[server].key().as_str(), kind.as_str(), &native);
        }
        let hold = failure.reason().unwrap_or_default();
        record.decided(&Verdict { pin: Some(hold), ..self.refusal("refuse", hold, None) });
    }

    /// The same of a resource that somebody wants to be told of.
    pub(super) fn note_unknown_uri(
        &self,
        record: &mut Option<Record<'_>>,
        catalogue: &Catalogue,
        caller: &Caller,
        uri: &str,
    ) {
        if record.is_none() {
            return;
        }
        match self.hidden_uri(catalogue, &[Kind::Resource], uri) {
            Some((server, kind, native)) => self.note_hidden(record, caller, (server, kind, &native)),
            None => self.note_unseen(record),
        }
    }

    /// Nothing of that name is there, unless something else was decided before.
    pub(super) fn note_unseen(&self, record: &mut Option<Record<'_>>) {
        if let Some(record) = record {
            record.decided(&self.refusal("unknown", "unknown", None));
        }
    }

    /// It is there, and this caller may not know of it: by a rule or list, or because a profile or an override leaves it out.
    pub(super) fn note_hidden(
        &self,
        record: &mut Option<Record<'_>>,
        caller: &Caller,
        (server, kind, native): (usize, Kind, &str),
    ) {
        let Some(record) = record else { return };
        record.item(self.servers[server].key().as_str(), kind.as_str(), native);
        let hider = self.policy.hider(&caller.principal, server, kind, native);
        record.decided(&self.refusal("hidden", Reason::NotAllowed.code(), hider.as_deref()));
    }

    /// The item that a caller may not know of, by the name that it would have: one that is listed, to somebody else. URIs
    /// that a template stands for are not looked for.
    fn hidden(&self, catalogue: &Catalogue, call: &Call, name: &str) -> Option<(usize, Kind, String)> {
        match call.kind() {
            Target::Tool => self.hidden_by_name(catalogue, Kind::Tool, name),
            Target::Prompt => self.hidden_by_name(catalogue, Kind::Prompt, name),
            Target::Uri if call.method() == Method::Complete => {
                self.hidden_uri(catalogue, &[Kind::Template, Kind::Resource], name)
            }
            Target::Uri => self.hidden_uri(catalogue, &[Kind::Resource], name),
            Target::Task => None,
        }
    }

    fn hidden_by_name(&self, catalogue: &Catalogue, kind: Kind, name: &str) -> Option<(usize, Kind, String)> {
        self.lists.places().iter().enumerate().find_map(|(server, place)| {
            let behind = match &*place.prefix {
                "" => name,
                prefix => name.strip_prefix(prefix)?.strip_prefix("__")?,
            };
            let renamed = self.lists.overrides_of(server).iter().find(|change| change.name.as_deref() == Some(behind));
            let native = renamed.filter(|_| kind == Kind::Tool).map_or(behind, |change| &change.native);
            catalogue.lists(kind, server, native).then(|| (server, kind, native.to_owned()))
        })
    }

    fn hidden_uri(&self, catalogue: &Catalogue, kinds: &[Kind], uri: &str) -> Option<(usize, Kind, String)> {
        self.lists.places().iter().enumerate().find_map(|(server, place)| {
            let marked = uri.strip_prefix("og+").and_then(|rest| rest.strip_prefix(place.key.as_str()));
            let native = marked.and_then(|rest| rest.strip_prefix(':')).unwrap_or(uri);
            let kind = kinds.iter().find(|kind| catalogue.lists(**kind, server, native))?;
            Some((server, *kind, native.to_owned()))
        })
    }

    fn refusal<'a>(&'a self, word: &'static str, reason: &'a str, rule: Option<&'a str>) -> Verdict<'a> {
        Verdict { word, reason: Some(reason), rule, policy: Some(self.policy.digest()), pin: None, arguments: None }
    }

    /// What policy decided, in the words of a record.
    pub(super) fn verdict<'a>(&'a self, decision: &Decision, arguments: &'a [u8]) -> Verdict<'a> {
        let (word, reason) = match (&decision.outcome, decision.shadowed) {
            (Ok(_), None) => ("allow", None),
            (Ok(_), Some(reason)) => ("shadow", Some(reason.code())),
            (Err(refusal), _) if refusal.is_hidden() => ("hidden", Some(refusal.reason().code())),
            (Err(refusal), _) => ("refuse", Some(refusal.reason().code())),
        };
        Verdict {
            word,
            reason,
            rule: Some(self.place(decision)),
            policy: Some(self.policy.digest()),
            pin: None,
            arguments: Some(arguments),
        }
    }

    /// Where what decided stands.
    pub(super) fn place(&self, decision: &Decision) -> &str {
        let is_flood = || decision.outcome.as_ref().is_err_and(|refusal| refusal.reason().is_of_limit());
        match (decision.limit, decision.rule) {
            (Some(limit), _) => self.policy.limit_place(limit),
            (None, _) if is_flood() => ATTEMPTS,
            (None, Some(rule)) => self.policy.rule_place(rule),
            (None, None) => "policy.default",
        }
    }
}

/// The method of who wants to be told of a resource.
pub(super) fn subscribing(caller: &Caller) -> &'static str {
    match caller.revision.era() {
        Era::Modern => Method::Listen.as_str(),
        Era::Legacy => Method::Subscribe.as_str(),
    }
}

/// What came of a request.
pub(super) fn ended(outcome: &Result<Outcome, Failure>) -> Ended<'_> {
    let word = |word| Ended { word, code: None, reason: None };
    let failed = |is_error| word(if is_error { "is_error" } else { "ok" });
    match outcome {
        Ok(Outcome::Result(answer, spans)) => {
            let whole = spans.whole.of(&answer.reply.line);
            failed(whole.len() <= MAX_ASKED && json::member(whole, "isError") == Some(b"true"))
        }
        Ok(Outcome::Error(_, error)) => Ended { word: "error", code: Some(error.code), reason: None },
        Ok(Outcome::Input(_)) => word("input"),
        Ok(Outcome::Own(members)) => failed(members.ends_with(r#""isError":true"#)),
        Ok(Outcome::Task(_)) => word("task"),
        Ok(Outcome::Refused(Refused { .. })) => word("refused"),
        Err(failure) => {
            // A pin may turn out to hold only once its server is looked at, after policy had admitted the call.
            let is_held = failure.reason().is_some_and(|reason| HOLDS.contains(&reason));
            let word = if is_held { "refused" } else { "error" };
            Ended { word, code: Some(failure.code), reason: failure.reason() }
        }
    }
}

/// What came of a request, in one word for numbers. What a result says of itself is not looked at.
pub(super) const fn word(outcome: &Result<Outcome, Failure>) -> &'static str {
    match outcome {
        Ok(Outcome::Result(..) | Outcome::Own(_)) => "ok",
        Ok(Outcome::Error(..)) => "error",
        Ok(Outcome::Input(_)) => "input",
        Ok(Outcome::Task(_)) => "task",
        Ok(Outcome::Refused(_)) => "refused",
        Err(_) => "failed",
    }
}

/// What came of a wish to be told.
pub(super) fn held(held: &Result<Option<Held>, Failure>) -> Ended<'_> {
    match held {
        Ok(Some(_)) => Ended { word: "ok", code: None, reason: None },
        // By policy, or because its server tells of nothing.
        Ok(None) => Ended { word: "declined", code: None, reason: None },
        Err(failure) => Ended { word: "error", code: Some(failure.code), reason: failure.reason() },
    }
}
