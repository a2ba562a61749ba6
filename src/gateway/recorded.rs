//! What is told of a request, in the record of decisions, to a collector and in numbers: begun when it comes, with its item
//! and its verdict on the way, ended with what came of it (R-36, E-20, OBS-1).
//!
//! The words of a record are chosen here and nowhere else; how they are written is `telemetry/audit`'s, how spans look
//! `telemetry/otlp`'s. Without a file or a collector nothing is done but one look whether there is one. Numbers are always
//! counted.

use super::refused::Refused;
use super::{Failure, Gateway, Held, Outcome};
use crate::caller::Caller;
use crate::catalog::Catalogue;
use crate::downstream::Server;
use crate::ident::{Kind, Principal};
use crate::policy::{Decision, Reason};
use crate::protocol::call::{Call, Target};
use crate::protocol::json;
use crate::protocol::method::Method;
use crate::protocol::version::{Era, Revision};
use crate::telemetry::audit::{Asked, Ended, Record, Verdict};
use crate::telemetry::metrics::{Came, Measure};
use crate::telemetry::otlp::{Host, Named, Parent, Served};

/// Results up to this size are asked whether they say of themselves that the tool failed; larger ones hold something.
const MAX_ASKED: usize = 256 << 10;

/// The reasons of pins that hold (contract §4).
const HOLDS: [&str; 3] = ["pin-changed", "pin-pending", "server-quarantined"];

/// Where the cap on refused requests stands.
const ATTEMPTS: &str = "policy.attempts";

impl Gateway {
    /// A request that names something has come.
    pub(super) fn trace(&self, call: &Call, caller: &Caller) -> Trace<'_> {
        // Its text is for the record alone.
        let is_told = self.audit.is_some() || self.otlp.is_some();
        let exposed = is_told.then(|| json::text_of(call.target())).flatten().unwrap_or_default();
        let mut trace = self.trace_of(caller, call.method(), &exposed);
        trace.exposed = self.otlp.as_ref().map(|_| exposed.as_ref().into());
        trace.span = self.span(caller, Some(call.method()), call.id(), call.meta());
        if let Some(span) = &mut trace.span {
            span.names(named(target_of(call), &exposed));
        }
        trace
    }

    /// Somebody wants to be told of something.
    pub(super) fn trace_of(&self, caller: &Caller, method: Method, exposed: &str) -> Trace<'_> {
        let asked = Asked { caller, method: method.as_str(), exposed: Some(exposed) };
        let record = self.audit.as_ref().map(|audit| audit.begin(&asked));
        Trace { record, measure: Some(self.metrics.begin(method)), span: None, exposed: None }
    }

    /// The same of who asks for that alone, in this message.
    pub(super) fn trace_alone(&self, trace: &mut Trace<'_>, caller: &Caller, uri: &str, message: &[u8]) {
        let Plain(span) = self.plain(caller, subscribing(caller), message);
        trace.exposed = span.as_ref().map(|_| uri.into());
        trace.span = span;
        if let Some(span) = &mut trace.span {
            span.names(Named::Uri(uri));
        }
    }

    /// What a collector is told of a request, where there is one; its id and `_meta` are raw.
    fn span(&self, caller: &Caller, method: Option<Method>, id: Option<&[u8]>, meta: Option<&[u8]>) -> Option<Served> {
        let otlp = self.otlp.as_ref()?;
        let (is_local, session) = (caller.principal.is_local(), caller.session);
        Some(otlp.served(&Host { method, revision: caller.revision, is_local, session, id, meta }))
    }

    /// A request was answered where it was read, or refused there with this error; `message` is the host's, whole.
    pub fn answered_apart(&self, caller: &Caller, method: &[u8], message: &[u8], failure: Option<&Failure>) {
        if self.otlp.is_some() {
            self.plain(caller, Method::parse(method), message).ended(failure);
        }
    }

    /// What a collector is told of a request that names nothing; `message` is the host's, whole.
    pub(super) fn plain(&self, caller: &Caller, method: impl Into<Option<Method>>, message: &[u8]) -> Plain {
        Plain(self.otlp.as_ref().and_then(|_| {
            let params = json::member(message, "params").unwrap_or_default();
            self.span(caller, method.into(), json::member(message, "id"), json::member(params, "_meta"))
        }))
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
    pub(super) fn note_flood(&self, trace: &mut Trace<'_>) {
        self.metrics.refused(None, Reason::RateLimited.code());
        if let Some(record) = &mut trace.record {
            record.decided(&self.refusal("refuse", Reason::RateLimited.code(), Some(ATTEMPTS)));
        }
    }

    /// Nothing of that name is there for this caller. What is there for others, or was, is told apart from what is not.
    pub(super) fn note_unknown(
        &self,
        trace: &mut Trace<'_>,
        catalogue: &Catalogue,
        call: &Call,
        caller: &Caller,
        name: &str,
    ) {
        if trace.record.is_none() {
            return;
        }
        match self.hidden(catalogue, call, name) {
            Some((server, kind, native)) => self.note_hidden(trace, caller, (server, kind, &native)),
            None => self.note_unseen(trace),
        }
    }

    /// It is there, and its pin holds it back.
    pub(super) fn note_held(
        &self,
        trace: &mut Trace<'_>,
        catalogue: &Catalogue,
        call: &Call,
        name: &str,
        failure: &Failure,
    ) {
        let Some(record) = &mut trace.record else { return };
        if let Some((server, kind, native)) = self.hidden(catalogue, call, name) {
            record.item(self.servers[server].key().as_str(), kind.as_str(), &native);
        }
        let hold = failure.reason().unwrap_or_default();
        record.decided(&Verdict { pin: Some(hold), ..self.refusal("refuse", hold, None) });
    }

    /// The same of a resource that somebody wants to be told of.
    pub(super) fn note_unknown_uri(&self, trace: &mut Trace<'_>, catalogue: &Catalogue, caller: &Caller, uri: &str) {
        if trace.record.is_none() {
            return;
        }
        match self.hidden_uri(catalogue, &[Kind::Resource], uri) {
            Some((server, kind, native)) => self.note_hidden(trace, caller, (server, kind, &native)),
            None => self.note_unseen(trace),
        }
    }

    /// Nothing of that name is there, unless something else was decided before.
    pub(super) fn note_unseen(&self, trace: &mut Trace<'_>) {
        if let Some(record) = &mut trace.record {
            record.decided(&self.refusal("unknown", "unknown", None));
        }
    }

    /// It is there, and this caller may not know of it: by a rule or list, or because a profile or an override leaves it out.
    pub(super) fn note_hidden(
        &self,
        trace: &mut Trace<'_>,
        caller: &Caller,
        (server, kind, native): (usize, Kind, &str),
    ) {
        let Some(record) = &mut trace.record else { return };
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
pub(super) fn subscribing(caller: &Caller) -> Method {
    match caller.revision.era() {
        Era::Modern => Method::Listen,
        Era::Legacy => Method::Subscribe,
    }
}

/// What is told of a request while it is served: in the record of decisions, where there is one, and in numbers. Dropped
/// before its end it was cancelled.
pub(super) struct Trace<'a> {
    pub(super) record: Option<Record<'a>>,
    /// None of what is no request of its own.
    span: Option<Served>,
    /// What the host calls the item, for the span.
    exposed: Option<Box<str>>,
    /// None of what is no request of a host.
    measure: Option<Measure<'a>>,
}

impl Trace<'_> {
    /// Tells nothing: of what is no request of a host.
    pub(super) const fn silent() -> Self {
        Self { record: None, measure: None, span: None, exposed: None }
    }

    /// The same; its name is a raw JSON string, which is read where there is a record alone.
    pub(super) fn raw_item(&mut self, server: &Server, kind: Kind, native: &[u8]) {
        let text = self.record.as_ref().and_then(|_| json::text_of(native));
        self.item(server, kind, text.as_deref().unwrap_or_default());
    }

    /// Whose item it is, and what that calls it.
    pub(super) fn item(&mut self, server: &Server, kind: Kind, native: &str) {
        if let Some(measure) = &mut self.measure {
            measure.about(server.index());
        }
        if let Some(record) = &mut self.record {
            record.item(server.key().as_str(), kind.as_str(), native);
        }
        if let Some(span) = &mut self.span {
            span.item(server.key().as_str(), named(Some(kind), self.exposed.as_deref().unwrap_or_default()));
        }
    }

    /// The server has it from now on.
    pub(super) fn sent(&mut self, server: &Server) {
        if let Some(measure) = &mut self.measure {
            measure.sent(server.index());
        }
    }

    /// The server has answered.
    pub(super) fn back(&mut self) {
        if let Some(measure) = &mut self.measure {
            measure.back();
        }
    }

    /// Policy refused it.
    pub(super) fn refused(&mut self, reason: &'static str) {
        if let Some(span) = &mut self.span {
            span.refused(reason);
        }
    }

    /// What requests to servers are a part of, for a collector.
    pub(super) fn parent(&self) -> Option<Parent> {
        self.span.as_ref().map(Served::parent)
    }

    /// What came of it.
    pub(super) fn ended(self, outcome: &Result<Outcome, Failure>) {
        self.end(came(outcome), outcome.as_ref().err(), || ended(outcome));
    }

    /// What came of a wish to be told.
    pub(super) fn held(self, held: &Result<Option<Held>, Failure>) {
        let came = match held {
            Ok(Some(_)) => Came::Ok,
            // By policy, or because its server tells of nothing.
            Ok(None) => Came::Declined,
            Err(_) => Came::Failed,
        };
        self.end(came, held.as_ref().err(), || match held {
            Ok(Some(_)) => Ended { word: "ok", code: None, reason: None },
            Ok(None) => Ended { word: "declined", code: None, reason: None },
            Err(failure) => Ended { word: "error", code: Some(failure.code), reason: failure.reason() },
        });
    }

    fn end<'e>(mut self, came: Came, failure: Option<&Failure>, ended: impl FnOnce() -> Ended<'e>) {
        let held = failure.and_then(Failure::reason).and_then(hold);
        let came = if held.is_some() { Came::Refused } else { came };
        if let Some(measure) = &mut self.measure {
            measure.ended(came, held);
        }
        if self.record.is_none() && self.span.is_none() {
            return;
        }
        let ended = ended();
        if let Some(record) = self.record {
            record.end(&ended);
        }
        if let Some(span) = self.span {
            span.end(came, ended.code, ended.reason, ended.word == "is_error");
        }
    }
}

/// What a collector is told of a request that names nothing.
pub(super) struct Plain(Option<Served>);

impl Plain {
    /// What came of it: nothing, or this error.
    pub(super) fn ended(mut self, failure: Option<&Failure>) {
        if let Some(span) = self.0.take() {
            let came = if failure.is_some() { Came::Failed } else { Came::Ok };
            span.end(came, failure.map(|failure| failure.code), failure.and_then(Failure::reason), false);
        }
    }
}

/// What a call names.
fn target_of(call: &Call) -> Option<Kind> {
    match call.kind() {
        Target::Tool => Some(Kind::Tool),
        Target::Prompt => Some(Kind::Prompt),
        Target::Uri => Some(Kind::Resource),
        Target::Task => None,
    }
}

const fn named(kind: Option<Kind>, exposed: &str) -> Named<'_> {
    match kind {
        Some(Kind::Tool) => Named::Tool(exposed),
        Some(Kind::Prompt) => Named::Prompt(exposed),
        Some(Kind::Resource | Kind::Template) => Named::Uri(exposed),
        None => Named::Nothing,
    }
}

/// The reason, when it is one of pins.
fn hold(reason: &str) -> Option<&'static str> {
    HOLDS.into_iter().find(|hold| *hold == reason)
}

/// What came of a request.
fn ended(outcome: &Result<Outcome, Failure>) -> Ended<'_> {
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
            let word = if failure.reason().and_then(hold).is_some() { "refused" } else { "error" };
            Ended { word, code: Some(failure.code), reason: failure.reason() }
        }
    }
}

/// What came of a request, for numbers. What a result says of itself is not looked at.
const fn came(outcome: &Result<Outcome, Failure>) -> Came {
    match outcome {
        Ok(Outcome::Result(..) | Outcome::Own(_)) => Came::Ok,
        Ok(Outcome::Error(..)) => Came::Error,
        Ok(Outcome::Input(_)) => Came::Input,
        Ok(Outcome::Task(_)) => Came::Task,
        Ok(Outcome::Refused(_)) => Came::Refused,
        Err(_) => Came::Failed,
    }
}
