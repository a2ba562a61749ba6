//! The way of a request that names an item: resolve, admit, send, check what comes back.
//!
//! Long, and one thing: the steps of one way, in their order.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use tokio::time::{Instant, timeout, timeout_at};

use super::bridge::{Exchange, Input};
use super::recorded::{Trace, subscribing};
use super::refused::Refused;
use super::search::Meant;
use super::tasks::TaskState;
use super::{Failure, Gateway, Held, Updates};
use crate::caller::Caller;
use crate::catalog::uri::{self, Expose};
use crate::catalog::{Catalogue, Given, naming, own};
use crate::downstream::{Answer, Fault, Item, Look, Server, Topic, list_of};
use crate::ident::{Capability, Kind, ServerKey};
use crate::pins::drift::Hold;
use crate::policy::{Ask, Charge, Extent, Origin, Permit, Refusal, Terms};
use crate::protocol::call::{Call, Target};
use crate::protocol::code;
use crate::protocol::headers::{self, HeaderParam};
use crate::protocol::json;
use crate::protocol::method::Method;
use crate::protocol::reply::{Body, ErrorSpans, ResultSpans};
use crate::protocol::version::{Era, Revision};
use crate::shown::shown;
use crate::telemetry::otlp::Parent;
use crate::transport::upward::Upward;

/// How long a completion may take before it is empty (CMP-4).
const COMPLETION: Duration = Duration::from_secs(2);
/// The kinds whose lists say whose a URI is.
const BY_URI: [Kind; 2] = [Kind::Resource, Kind::Template];
/// How long a new list of tools is waited for (HDR-9).
const RELIST: Duration = Duration::from_secs(3);
/// The most values of a completion (CMP-2).
const MAX_VALUES: usize = 100;

/// What came of a request, for the host's adapter to write.
pub enum Outcome {
    /// A complete result.
    Result(Answer, ResultSpans),
    /// A protocol error, passed as the server wrote it (CALL-2, D050).
    Error(Answer, ErrorSpans),
    /// Questions to a modern host, which comes back with the answers.
    Input(Input),
    /// A result of ours: raw members, without braces, `_meta` not among them.
    Own(String),
    /// A task of a modern server, for a modern host.
    Task(TaskState),
    /// A tool that policy refuses, as the result of its call.
    Refused(Refused),
}

/// Where a request goes.
pub(super) struct Way {
    pub(super) server: usize,
    /// What its server calls the item, as a raw JSON string.
    pub(super) native: Bytes,
    /// The arguments that are repeated in headers (XMH-3).
    pub(super) mirror: Option<Arc<[HeaderParam]>>,
    /// It is a tool that its server takes as a task only (TSK-7).
    task: bool,
    /// What the operator changes about it.
    pub(super) given: Option<Arc<Given>>,
    /// What requests to its server are a part of, for a collector.
    parent: Option<Parent>,
    terms: Arc<Terms>,
}

impl Way {
    fn item(&self) -> Item<'_> {
        let timeout = self.given.as_ref().and_then(|given| given.timeout);
        Item {
            native: &self.native,
            mirror: self.mirror.as_deref().unwrap_or_default(),
            task: self.task,
            timeout,
            parent: self.parent.as_ref(),
        }
    }
}

impl Gateway {
    /// Serves a request that names an item. Dropping the future cancels it.
    pub async fn call(&self, call: &Call, caller: &Caller, upward: Arc<Upward>) -> Result<Outcome, Failure> {
        let inner;
        let call = match self.meant(call, caller) {
            Meant::Itself => call,
            Meant::Inner(meant) => {
                inner = meant;
                &*inner
            }
            // Rare and large: on the heap.
            Meant::Own(own) => return Box::pin(self.serve_own(own, call, caller)).await,
        };
        let mut trace = self.trace(call, caller);
        let outcome = self.serve(call, caller, upward, &mut trace).await;
        trace.ended(&outcome);
        outcome
    }

    async fn serve(
        &self,
        call: &Call,
        caller: &Caller,
        upward: Arc<Upward>,
        trace: &mut Trace<'_>,
    ) -> Result<Outcome, Failure> {
        let name = json::text_of(call.target()).unwrap_or_default();
        let mut catalogue = self.audiences.catalogue(caller);
        let mut way = self.resolve(&catalogue, call, caller, &name);
        if way.is_none() {
            if let Some(after) = self.policy.is_flooding(&caller.principal) {
                self.note_flood(trace);
                return Err(Failure::flood(after));
            }
            // Rare and large: on the heap, so that every call is not as large as the rarest.
            let deadline = Instant::now() + self.settings.list_deadline;
            for apart in [false, true] {
                if way.is_none() {
                    Box::pin(self.wait_for_owner(call, caller, &name, apart, deadline)).await;
                    catalogue = self.audiences.catalogue(caller);
                    way = self.resolve(&catalogue, call, caller, &name);
                }
            }
            way = way.or_else(|| self.unlisted(&catalogue, call, caller, &name));
        }
        let Some(mut way) = way else {
            if let Some(failure) = self.held(&catalogue, call, &name) {
                self.note_held(trace, &catalogue, call, &name, &failure);
                return Err(failure);
            }
            self.policy.count_unknown(&caller.principal);
            self.note_unknown(trace, &catalogue, call, caller, &name);
            return Err(Failure::unknown(call, &name, caller.revision));
        };
        let server = Arc::clone(&self.servers[way.server]);
        // The catalogue is that of the whole of it.
        let (asking, declared) = (caller, &caller.capabilities);
        let granted = self.lists.granted(caller, way.server);
        let caller = &*server.narrowed(&granted);
        if !self.policy.grants(&caller.principal, way.server, Capability::Logging) {
            upward.without_logs();
        }
        // What the server gets is what is decided about.
        let replaced = way.given.as_ref().and_then(|given| given.arguments(call.arguments()));
        let changed = replaced.map(|arguments| call.with_arguments(arguments));
        let call = changed.as_ref().unwrap_or(call);
        let permit = match self.admit(call, caller, &way, &server, trace) {
            Ok(permit) => permit,
            Err(refusal) => return self.refused(call, caller, &name, &server, &refusal),
        };
        if self.pins.enforces(way.server) && !self.is_looked_at(call, asking, &way, &server) {
            // Rare and large: on the heap.
            Box::pin(self.look(call, asking, &name, &way, &server)).await?;
        }
        trace.sent(&server);
        way.parent = trace.parent();
        if call.method() == Method::Complete {
            return Box::pin(self.complete(call, caller, upward, way, permit, &server)).await;
        }
        let finish = |answer: Answer| {
            within(permit.max_result(), &answer).map_err(|fault| Failure::of_server(server.key(), &fault))?;
            let answer = self.localise(answer, call, asking, way.server);
            if call.method() == Method::ResourcesRead {
                return check_read(server.key(), answer, call, &name, caller);
            }
            if caller.capabilities.tasks && call.method() == Method::ToolsCall && is_task(&answer) {
                return self.made_task(&answer, caller, way.server, &way.native);
            }
            check(server.key(), answer, caller.revision)
        };
        let localise = |method, params: &[u8]| self.localise_question(method, params, asking, way.server);
        let (bridge, seal, upward) = (&self.bridge, &self.seal, &upward);
        let (permit, item) = (&permit, way.item());
        let exchange = Exchange {
            bridge,
            seal,
            server: &server,
            permit,
            call,
            item,
            caller,
            declared,
            upward,
            localise: &localise,
            finish: &finish,
        };
        let mut outcome = exchange.go().await;
        // The operator says that twice is as good as once (D015). What a state stands for is there once.
        let retry_safe = way.given.as_ref().is_some_and(|given| given.retry_safe) && call.input().state.is_none();
        if retry_safe && outcome.as_ref().is_err_and(Failure::is_lost) {
            outcome = Box::pin(exchange.go()).await;
        }
        if !outcome.as_ref().is_err_and(Failure::is_of_headers) {
            trace.back();
            return outcome;
        }
        // Rare and large.
        match Box::pin(self.relisted(call, asking, &name, &way, &server)).await {
            Some(way) => {
                let item = Item { parent: exchange.item.parent, ..way.item() };
                Box::pin(Exchange { item, ..exchange }.go()).await
            }
            None => outcome,
        }
    }

    /// What is not served although it is there, as long as nobody has reviewed it.
    fn held(&self, catalogue: &Catalogue, call: &Call, name: &str) -> Option<Failure> {
        let kind = match call.kind() {
            Target::Tool => Kind::Tool,
            Target::Prompt => Kind::Prompt,
            Target::Uri | Target::Task => return None,
        };
        let (server, hold) = catalogue.held(kind, name)?;
        Some(Failure::held(call, name, self.servers[server].key(), hold))
    }

    /// Whether a look would find at once that the item of a call is as it was when it was resolved, as nearly always. Nothing
    /// is waited for in between.
    fn is_looked_at(&self, call: &Call, caller: &Caller, way: &Way, server: &Server) -> bool {
        !self.pins.is_closed(way.server)
            && list_of(call.kind()).is_some_and(|kind| server.is_looked_at(&server.narrowed(caller), kind))
    }

    /// Sees to it that the item of a call is still as it was reviewed: after a start nothing passes before the lists were
    /// compared (T-02).
    async fn look(&self, call: &Call, caller: &Caller, name: &str, way: &Way, server: &Server) -> Result<(), Failure> {
        let held = |hold: &Hold| Failure::held(call, name, server.key(), hold);
        if self.pins.is_closed(way.server) {
            return Err(held(&Hold::Quarantined));
        }
        let Some(kind) = list_of(call.kind()) else { return Ok(()) };
        let native = json::text_of(&way.native).unwrap_or_default();
        let looked = server.look(&server.narrowed(caller), kind, &native).await;
        if self.pins.is_closed(way.server) {
            return Err(held(&Hold::Quarantined));
        }
        match looked {
            Ok(Look::Unlike) => Err(held(&Hold::Changed(Vec::new()))),
            // The look may have waited, and what is known be another since: after a start, or by the lock.
            Ok(Look::Known | Look::New) => {
                let catalogue = self.audiences.catalogue(caller);
                match self.resolve(&catalogue, call, caller, name) {
                    Some(now) if now.server == way.server && now.native == way.native => Ok(()),
                    _ => Err(self
                        .held(&catalogue, call, name)
                        .unwrap_or_else(|| Failure::unknown(call, name, caller.revision))),
                }
            }
            Err(fault) => Err(Failure::of_server(server.key(), &fault)),
        }
    }

    /// A server saw other headers than it wanted: what we know of its tools is old (HDR-9). Where its new list says
    /// something else of this one, the call is sent once more; the server did not execute it.
    async fn relisted(&self, call: &Call, caller: &Caller, name: &str, old: &Way, server: &Server) -> Option<Way> {
        let mut changes = self.lists.changes(self.sight_of(caller));
        server.relist_tools();
        let deadline = Instant::now() + RELIST;
        loop {
            // It may be known already; and an earlier change may be told only now.
            let way = self.resolve(&self.audiences.catalogue(caller), call, caller, name)?;
            if way.server != old.server || way.mirror != old.mirror {
                // Another item would have to be admitted.
                return Some(way).filter(|way| way.server == old.server && way.native == old.native);
            }
            timeout_at(deadline, changes.changed()).await.ok()?.ok()?;
        }
    }

    /// Whether the headers of a host's request repeat the arguments as its tool asks for it (XMH-3). A tool that is not
    /// known yet asks for nothing.
    pub fn check_headers(&self, call: &Call, caller: &Caller, headers: &HeaderMap) -> Result<(), Failure> {
        if call.kind() != Target::Tool {
            return Ok(());
        }
        let name = json::text_of(call.target()).unwrap_or_default();
        let catalogue = self.audiences.catalogue(caller);
        let route = catalogue.resolve(Kind::Tool, &name).or_else(|| catalogue.alias(&name));
        let mirror = route.and_then(|route| route.mirror.as_deref());
        let given = route.and_then(|route| route.given.as_deref());
        mirror.map_or(Ok(()), |params| {
            // A host does not know of what is fixed.
            let seen = given.map(|given| {
                params
                    .iter()
                    .filter(|param| !given.is_fixed(param.path.first().map_or("", |name| name)))
                    .cloned()
                    .collect()
            });
            let params = seen.as_ref().map_or(params, |seen: &Vec<HeaderParam>| seen);
            headers::check(params, headers, call.arguments()).map_err(|why| Failure::header_mismatch(&why))
        })
    }

    /// Sends a request to its server and waits for the answer.
    async fn send(
        &self,
        call: &Call,
        caller: &Caller,
        upward: Arc<Upward>,
        item: Item<'_>,
        permit: Permit,
        server: &Arc<Server>,
    ) -> Result<Answer, Failure> {
        server.ask(permit, call, item, None, caller, upward).await.map_err(|fault| {
            tracing::debug!(server = %server.key(), method = call.method().as_str(), %fault, "failed");
            Failure::of_server(server.key(), &fault)
        })
    }

    /// Where a request goes; what policy hides is not there.
    fn resolve(&self, catalogue: &Catalogue, call: &Call, caller: &Caller, name: &str) -> Option<Way> {
        let named = |kind| {
            // A model has found it, if it is one: what apps alone may call, and how they name it, is not for that.
            let route = catalogue.resolve(kind, name).filter(|route| !(route.app_only && call.is_inner()));
            let is_app_like = kind == Kind::Tool && !call.is_inner();
            let route = if is_app_like { route.or_else(|| catalogue.alias(name)) } else { route }?;
            let (native, mirror, given) = (route.native_json.clone(), route.mirror.clone(), route.given.clone());
            Some(Way {
                server: route.server,
                native,
                mirror,
                task: route.task,
                given,
                parent: None,
                terms: Arc::clone(&route.terms),
            })
        };
        match call.kind() {
            Target::Tool => named(Kind::Tool),
            Target::Prompt => named(Kind::Prompt),
            // It has a way of its own.
            Target::Task => None,
            Target::Uri => {
                let template = (call.method() == Method::Complete).then(|| catalogue.resolve_template(name)).flatten();
                let (route, kind) = match template {
                    Some(route) => (route, Kind::Template),
                    None => {
                        let learned = |uri: &str| self.learned.owner(&caller.principal, uri);
                        (catalogue.resolve_uri(name, learned)?, Kind::Resource)
                    }
                };
                let origin = origin(catalogue, kind, route.server, &route.native);
                let mut terms = self.terms(caller, route.server, kind, &route.native, origin)?;
                if call.method() == Method::Complete && kind == Kind::Resource {
                    // Its server may know it as a template, whatever the spelling.
                    terms = self.terms(caller, route.server, Kind::Template, &route.native, Origin::Named)?;
                }
                let mut native = Vec::with_capacity(route.native.len() + 2);
                json::push_string(&mut native, &route.native);
                let (server, native) = (route.server, native.into());
                Some(Way { server, native, mirror: None, task: false, given: None, parent: None, terms })
            }
        }
    }

    /// A tool that no list has goes to the server whose names pass untouched, for it to answer, where nothing of that
    /// server is hidden and the name cannot be meant for another: hosts call tools of theirs that are not listed. A mere
    /// front hands on prompts, too: the gateway behind it says why one is not listed.
    fn unlisted(&self, catalogue: &Catalogue, call: &Call, caller: &Caller, name: &str) -> Option<Way> {
        let kind = match call.kind() {
            Target::Tool => Kind::Tool,
            Target::Prompt if self.settings.is_mere_front => Kind::Prompt,
            Target::Prompt | Target::Uri | Target::Task => return None,
        };
        if name.is_empty() {
            return None;
        }
        let sight = self.sight_of(caller);
        let view = self.lists.show(sight);
        let shown = || self.lists.places().iter().enumerate().filter(|(server, _)| view.shows(*server));
        let (server, _) = shown().find(|(_, place)| place.prefix.is_empty())?;
        let anothers = shown().any(|(_, place)| !place.prefix.is_empty() && naming::may_own(&place.prefix, name));
        // What the operator changes about a tool holds for the tool as it is listed.
        let changed = || self.lists.overrides_of(server).iter().any(|change| change.native == name);
        let known = || catalogue.lists(kind, server, name) || changed();
        // What is not listed was not reviewed.
        if self.pins.enforces(server)
            || own::is_own(name)
            || anothers
            || !view.is_open()
            || !self.policy.is_open(view.class(), server, kind)
            || known()
        {
            return None;
        }
        let terms = self.terms(caller, server, kind, name, Origin::Named)?;
        let mut native = Vec::with_capacity(name.len() + 2);
        json::push_string(&mut native, name);
        Some(Way { server, native: native.into(), mirror: None, task: false, given: None, parent: None, terms })
    }

    /// What holds for an item that no table has; nothing where the caller may not know of it.
    pub(super) fn terms(
        &self,
        caller: &Caller,
        server: usize,
        kind: Kind,
        native: &str,
        origin: Origin,
    ) -> Option<Arc<Terms>> {
        let terms = self.policy.terms(self.policy.class_of(&caller.principal), server, kind, native, origin);
        terms.is_visible().then(|| Arc::new(terms))
    }

    /// The one decision about a call (E-20), on the arguments that its server gets. A host that comes back with answers
    /// is not charged again.
    fn admit(
        &self,
        call: &Call,
        caller: &Caller,
        way: &Way,
        server: &Server,
        trace: &mut Trace<'_>,
    ) -> Result<Permit, Refusal> {
        let filled;
        let (arguments, extent): (&[u8], _) = match call.kind() {
            _ if call.method() == Method::Complete => {
                filled = call.completed_arguments();
                (&filled, Extent::Partial)
            }
            Target::Tool | Target::Prompt => (call.arguments().unwrap_or(b"{}"), Extent::Whole),
            // Only these two have any; what a host writes beside a URI means nothing to its server.
            Target::Uri | Target::Task => (b"{}", Extent::Whole),
        };
        let round = self.bridge.further_round(&self.seal, server.key(), caller, call);
        let charge = if round.is_some() { Charge::Round } else { Charge::Call };
        let ask = Ask { principal: &caller.principal, arguments, extent, charge };
        trace.raw_item(server, way.terms.kind(), &way.native);
        let permit = self.decided(&ask, &way.terms, server, trace)?;
        // A round that was refused may come again.
        if let Some(round) = round {
            self.bridge.used(round);
        }
        Ok(permit)
    }

    /// An item may be asked for before its server has listed, to all or to this caller alone (`apart`): it is waited for
    /// once (N-9), as long as a list waits.
    async fn wait_for_owner(&self, call: &Call, caller: &Caller, name: &str, apart: bool, deadline: Instant) {
        let kinds: &[Kind] = match call.kind() {
            Target::Tool => &[Kind::Tool],
            Target::Prompt => &[Kind::Prompt],
            Target::Uri => &BY_URI,
            Target::Task => &[],
        };
        let may_own = |server: usize| kinds == BY_URI || naming::may_own(&self.lists.places()[server].prefix, name);
        if apart {
            return self.audiences.settle(caller, deadline, may_own).await;
        }
        let view = self.lists.show(self.sight_of(caller));
        for server in self.lists.unsettled(kinds) {
            if may_own(server) && view.shows(server) {
                for &kind in kinds {
                    self.lists.settle_server(server, kind, deadline).await;
                }
            }
        }
    }

    /// Has `updates` told of changes of a resource, by the URI that this host uses. Nothing comes of it where its server
    /// does not tell of them. `message` is the host's own, where it asks for this alone.
    pub async fn subscribe(
        &self,
        uri: &str,
        caller: &Caller,
        updates: &Arc<Updates>,
        message: Option<&[u8]>,
    ) -> Result<Option<Held>, Failure> {
        let mut trace = self.trace_of(caller, subscribing(caller), uri);
        if let Some(message) = message {
            self.trace_alone(&mut trace, caller, uri, message);
        }
        let held = self.subscribed(uri, caller, updates, &mut trace).await;
        trace.held(&held);
        held
    }

    async fn subscribed(
        &self,
        uri: &str,
        caller: &Caller,
        updates: &Arc<Updates>,
        trace: &mut Trace<'_>,
    ) -> Result<Option<Held>, Failure> {
        let sight = self.sight_of(caller);
        if self.lists.unsettled(&BY_URI).iter().any(|&server| self.lists.show(sight).shows(server)) {
            for kind in BY_URI {
                self.lists.settle(kind).await;
            }
        }
        let catalogue = self.audiences.catalogue(caller);
        let learned = |uri: &str| self.learned.owner(&caller.principal, uri);
        if let Some(after) = self.policy.is_flooding(&caller.principal) {
            self.note_flood(trace);
            return Err(Failure::flood(after));
        }
        let route = catalogue.resolve_uri(uri, learned);
        // Nothing of a server in quarantine is served, not even what it once named.
        let route = route.filter(|route| !self.pins.is_closed(route.server));
        let found = route.and_then(|route| {
            let origin = origin(&catalogue, Kind::Resource, route.server, &route.native);
            let terms = self.terms(caller, route.server, Kind::Resource, &route.native, origin);
            if terms.is_none() {
                self.note_hidden(trace, caller, (route.server, Kind::Resource, &route.native));
            }
            Some((route, terms?))
        });
        let Some((route, terms)) = found else {
            self.policy.count_unknown(&caller.principal);
            self.note_unknown_uri(trace, &catalogue, caller, uri);
            return Ok(None);
        };
        if !self.lists.offers_of(route.server).is_some_and(|offers| offers.subscribe) {
            return Ok(None);
        }
        let server = &self.servers[route.server];
        trace.item(server, Kind::Resource, &route.native);
        self.admit_subscription(caller, &terms, server, trace)?;
        let held = async {
            let source = server.source_for(&self.lists.granted(caller, route.server)).await?;
            let place = (route.server, Topic::Resource, &*route.native);
            self.subscriptions.subscribe(place, source, (caller, uri), updates).await
        };
        held.await.map_err(|fault| Failure::of_server(server.key(), &fault))
    }

    /// A completion: empty where the server has none, does not know, or is slow (CMP-3, CMP-4).
    async fn complete(
        &self,
        call: &Call,
        caller: &Caller,
        upward: Arc<Upward>,
        way: Way,
        permit: Permit,
        server: &Arc<Server>,
    ) -> Result<Outcome, Failure> {
        let nothing = || Ok(Outcome::Own(r#""completion":{"values":[],"hasMore":false}"#.to_owned()));
        let granted = self.policy.grants(&caller.principal, way.server, Capability::Completions);
        if !granted || !self.lists.offers_of(way.server).is_some_and(|offers| offers.completions) {
            return nothing();
        }
        let asking = self.send(
            call,
            caller,
            upward,
            Item { native: &way.native, mirror: &[], task: false, timeout: None, parent: way.parent.as_ref() },
            permit,
            server,
        );
        let Ok(answer) = timeout(COMPLETION, asking).await else { return nothing() };
        let answer = answer?;
        match &answer.reply.body {
            Body::Error(error) if error.code == code::METHOD_NOT_FOUND => nothing(),
            Body::Result(spans) => match first_values(spans.whole.of(&answer.reply.line)) {
                Some(completion) => Ok(Outcome::Own(completion)),
                None => check(server.key(), answer, caller.revision),
            },
            Body::Error(_) => check(server.key(), answer, caller.revision),
        }
    }

    /// The URIs of a result as hosts see them; what it names is learned (RES-1, RES-2).
    fn localise(&self, answer: Answer, call: &Call, caller: &Caller, server: usize) -> Answer {
        let Body::Result(spans) = &answer.reply.body else { return answer };
        match self.localised(spans.whole.of(&answer.reply.line), call.method(), caller, server) {
            None => answer,
            Some(changed) => answer.with_result(&changed),
        }
    }

    /// The same of a raw result object; `None` when nothing changes.
    pub(super) fn localised(&self, result: &[u8], method: Method, caller: &Caller, server: usize) -> Option<Vec<u8>> {
        self.expose(caller, server, |expose| uri::rewrite_result(result, method, expose))
    }

    /// The same of what a server asks: links stand in the results of tools that it tells a model of (MRT-4).
    pub(super) fn localise_question(
        &self,
        method: Method,
        params: &[u8],
        caller: &Caller,
        server: usize,
    ) -> Option<Vec<u8>> {
        self.expose(caller, server, |expose| uri::rewrite_question(params, method, expose))
    }

    /// By the catalogue of now: lists may have come while the call ran.
    fn expose(
        &self,
        caller: &Caller,
        server: usize,
        walk: impl FnOnce(Expose<'_>) -> Option<Vec<u8>>,
    ) -> Option<Vec<u8>> {
        let catalogue = self.audiences.catalogue(caller);
        if !catalogue.rewrites_uris(server) {
            return None;
        }
        walk(&mut |native| {
            self.learned.learn(&caller.principal, server, native);
            match catalogue.expose_uri(server, native) {
                Cow::Borrowed(_) => None,
                Cow::Owned(exposed) => Some(exposed),
            }
        })
    }
}

/// Whether an answer is no larger than policy allows.
pub(super) fn within(most: Option<u64>, answer: &Answer) -> Result<(), Fault> {
    let size = answer.reply.line.len() as u64;
    match most {
        Some(limit) if size > limit => Err(Fault::TooLarge { size, limit }),
        _ => Ok(()),
    }
}

/// The raw members of a completion with no more values than a host takes; `None` when there are not more (CMP-2).
fn first_values(result: &[u8]) -> Option<String> {
    let completion = json::members(result).find(|entry| entry.is("completion"))?.value;
    let values = json::members(completion).find(|entry| entry.is("values"))?.value;
    json::elements(values).nth(MAX_VALUES)?;
    let values: Vec<_> = json::elements(values).take(MAX_VALUES).map(String::from_utf8_lossy).collect();
    Some(format!(r#""completion":{{"values":[{}],"hasMore":true}}"#, values.join(",")))
}

/// Whether a modern server made a task of a call.
fn is_task(answer: &Answer) -> bool {
    let Body::Result(spans) = &answer.reply.body else { return false };
    let kind = spans.result_type.map(|field| field.value.of(&answer.reply.line));
    kind == Some(b"\"task\"") && answer.era == Era::Modern
}

/// Whether an answer is one that a host may see.
pub(super) fn check(server: &ServerKey, answer: Answer, to: Revision) -> Result<Outcome, Failure> {
    match answer.reply.body {
        Body::Result(spans) => {
            let kind = spans.result_type.map(|field| field.value.of(&answer.reply.line));
            match kind {
                None | Some(b"\"complete\"") => Ok(Outcome::Result(answer, spans)),
                // The member means nothing before 2026-07-28.
                Some(_) if answer.era == Era::Legacy => Ok(Outcome::Result(answer, spans)),
                // A task, where it was offered and may be, went another way (TSK-3, TSK-4, CAP-6, ENV-6).
                Some(kind) => {
                    let kind = shown(&kind[..kind.len().min(40)]);
                    Err(Failure::invalid_result(server, &format!("its resultType is {kind}")))
                }
            }
        }
        Body::Error(error) => {
            let line = &answer.reply.line;
            let message = error.message.and_then(|message| json::text_of(message.of(line)));
            match unpassable(server, error.code, message.as_deref(), error.data.map(|data| data.of(line)), to) {
                Some(failure) => Err(failure),
                None => Ok(Outcome::Error(answer, error)),
            }
        }
    }
}

/// What hosts are told instead of an error that must not pass (§16.2).
pub(super) fn unpassable(
    server: &ServerKey,
    code: i64,
    message: Option<&str>,
    data: Option<&[u8]>,
    to: Revision,
) -> Option<Failure> {
    match code {
        code::HEADER_MISMATCH => Some(Failure::headers_refused(server)),
        code::MISSING_CAPABILITY => Some(Failure::capability_withheld(server)),
        // A word of the legacy era.
        code::RESOURCE_NOT_FOUND if to.era() == Era::Modern => {
            Some(Failure::not_found(message.unwrap_or_default(), data))
        }
        // Version and header faults are between us and the server; undefined codes must not be passed.
        reserved if code::RESERVED.contains(&reserved) => {
            Some(Failure::invalid_result(server, &format!("it answered with error {reserved}")))
        }
        _ => None,
    }
}

/// The same for a read: that nothing is there is said in the words of the host's era (RES-3).
fn check_read(
    server: &ServerKey,
    answer: Answer,
    call: &Call,
    exposed: &str,
    caller: &Caller,
) -> Result<Outcome, Failure> {
    if let Body::Error(error) = answer.reply.body {
        let names_uri =
            error.data.is_some_and(|data| json::members(data.of(&answer.reply.line)).any(|entry| entry.is("uri")));
        let missing = error.code == code::RESOURCE_NOT_FOUND || error.code == code::INVALID_PARAMS && names_uri;
        if missing {
            return Err(Failure::unknown(call, exposed, caller.revision));
        }
    }
    check(server, answer, caller.revision)
}

/// Whether a server lists an item.
fn origin(catalogue: &Catalogue, kind: Kind, server: usize, native: &str) -> Origin {
    if catalogue.lists(kind, server, native) { Origin::Listed } else { Origin::Named }
}
