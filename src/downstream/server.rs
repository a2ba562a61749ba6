//! A server, as the gateway sees it: its clients, and which of them serves a caller.
//!
//! One client is its base: it lists, and serves all who may share it. Which others there are is decided by
//! [`super::lease`]; what a connection is, and how it is kept up, is the client's ([`super::client`]).
//!
//! Long, and one thing: everything that is asked of a server goes through the choice of its client.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio_util::task::TaskTracker;

use super::client::{Client, Ground, Nature, State};
use super::connection::{Asker, Connection, Deadlines, ForHost, Waiting};
use super::gate::{Gate, Place};
use super::held::Answer;
use super::http::Repeated;
use super::lease::{Choice, Held, Lease, Leases, choose};
use super::list;
use super::process::Pace;
use super::reach::Connect;
use super::roots::Roots;
use super::subscription::Topic;
use super::tasks::Driven;
use super::traced;
use super::{EraMemory, Fault, Introduction, Look, Looked, Offers, list_of};
use crate::caller::Caller;
use crate::config::settings::{PinMode, ServerSettings};
use crate::ident::{Kind, Principal, ServerKey};
use crate::policy::verdict::Permit;
use crate::protocol::call::{Call, Input, Leg, Target};
use crate::protocol::code;
use crate::protocol::headers::{self, HeaderParam};
use crate::protocol::level::LogLevel;
use crate::protocol::method::Method;
use crate::protocol::version::{Era, Revision};
use crate::telemetry::otlp::{Asking, Parent};
use crate::transport::upward::Upward;

/// What a server has to say to the gateway.
#[derive(Debug)]
pub struct Event {
    /// Which server, by its place in the settings.
    pub server: usize,
    /// Which of those that had this place one after the other; see [`Server::serial`].
    pub serial: u64,
    /// What it lists.
    pub listing: Listing,
}

/// What a server brought, or did not.
#[derive(Debug)]
pub enum Listing {
    /// One of its lists.
    List {
        /// What it lists.
        list: Listed,
        /// What it offers.
        offers: Offers,
        /// Its era.
        era: Era,
        /// Its own instructions for the model.
        instructions: Option<String>,
        /// What it said of itself.
        introduction: Arc<Introduction>,
        /// To be marked when it was compared with what was reviewed.
        looked: Arc<Looked>,
    },
    /// These resources are others now, by native URI.
    Updated(BTreeSet<String>),
    /// Where these tasks stand now, by native id: a raw object each.
    Tasks(BTreeMap<String, Bytes>),
    /// There are no lists of these kinds, and no hope for any soon.
    Failed(Vec<Kind>),
}

/// Where a server's news go.
pub struct News {
    /// What it lists to all.
    pub events: mpsc::Sender<Event>,
    /// What is another on a connection that only some hosts have.
    pub apart: mpsc::Sender<Apart>,
}

/// Something is another on a connection that only some hosts have.
#[derive(Debug)]
pub struct Apart {
    /// At which server, by its place in the settings.
    pub server: usize,
    /// On whose connection; see [`Source::number`].
    pub client: u64,
    /// What.
    pub change: Change,
}

/// What is another.
#[derive(Debug)]
pub enum Change {
    /// Lists.
    Lists,
    /// These resources, by native URI.
    Resources(BTreeSet<String>),
}

/// Where a host hears of changes of resources: where its requests go.
pub struct Source {
    client: Arc<Client>,
    /// It is not ended while somebody waits for its word.
    _held: Option<Held>,
}

impl Source {
    /// Which of all connections; 0 = the one of its server that all share who may.
    pub fn number(&self) -> u64 {
        self.client.number
    }

    /// Has the server tell of a resource or task; whether it does.
    pub async fn want(&self, topic: Topic, native: Arc<str>) -> Result<bool, Fault> {
        // A modern server is told all of them at once, so they must not wait for each other.
        let connection = self.client.connection().await?;
        let _turn = match connection.modern() {
            Some(_) => None,
            None => Some(self.client.wanting.lock().await),
        };
        self.client.want(topic, native).await
    }

    /// Nobody wants to know of it any more, unless somebody does by now.
    pub async fn unwant(&self, topic: Topic, native: &str, is_wanted: impl FnOnce() -> bool) {
        let _turn = self.client.wanting.lock().await;
        if !is_wanted() {
            self.client.unwant(topic, native).await;
        }
    }
}

/// What a server lists on the connection of some hosts alone.
pub struct OwnLists {
    /// The state that it is of.
    pub at: ListedAt,
    /// The raw arrays of the pages, by kind.
    pub lists: Vec<(Kind, Vec<Bytes>)>,
}

/// A state of what a server lists on one connection.
pub struct ListedAt {
    connection: Weak<Connection>,
    version: u64,
}

/// One list of a server.
#[derive(Debug)]
pub struct Listed {
    /// Of what.
    pub kind: Kind,
    /// The raw arrays of its pages.
    pub pages: Vec<Bytes>,
    /// For how long it says they hold.
    pub ttl: Option<Duration>,
    /// Whether it tells of changes.
    pub tells_changes: bool,
}

/// A server, as others see it.
pub struct Server {
    settings: Arc<ServerSettings>,
    base: Arc<Client>,
    leases: Leases,
    ground: Ground,
    gate: Gate,
    roots: Roots,
    /// It was tried and does not speak the legacy era.
    modern_only: AtomicBool,
}

/// What a request names, as its server knows it.
#[derive(Clone, Copy)]
pub struct Item<'a> {
    /// Its native name or URI, a raw JSON string.
    pub native: &'a [u8],
    /// The arguments of a tool that HTTP headers repeat (XMH-3).
    pub mirror: &'a [HeaderParam],
    /// It is a tool that a legacy server takes as a task only (TSK-7).
    pub task: bool,
    /// How long a call of it may take without progress, where that is not its server's own.
    pub timeout: Option<Duration>,
    /// What the request is a part of, for a collector.
    pub parent: Option<&'a Parent>,
}

/// A request on its way to a server. Dropping it tells the server that nobody waits any more.
pub struct Pending {
    waiting: Way,
    may_ask: bool,
    _held: Option<Held>,
    place: Place,
    /// What a collector is told of it; ended with the answer.
    asking: Option<Asking>,
}

/// How the answer comes.
enum Way {
    /// At once.
    Plain(Waiting),
    /// As what came of a task.
    Driven(Driven),
}

impl Pending {
    /// Whether the server may ask back meanwhile: then its questions come through the request's [`Upward`].
    pub fn may_ask(&self) -> bool {
        self.may_ask
    }

    /// Waits for the answer, which comes once. Nothing is lost when the future is dropped.
    pub async fn answered(&mut self) -> Result<Answer, Fault> {
        let answered = match &mut self.waiting {
            Way::Plain(waiting) => waiting.answered().await,
            Way::Driven(driven) => driven.answered().await,
        };
        if let Some(asking) = self.asking.take() {
            traced::answered(asking, answered.as_ref());
        }
        answered
    }

    /// It no longer counts among those that its server works on: a user is asked, which may take long, or it is sent
    /// again and takes another place.
    pub fn leave_place(&mut self) {
        self.place = None;
    }

    /// From now on, what passes beside it goes to this request of the same host; answers where it went until now.
    pub fn redirect(&mut self, upward: Arc<Upward>) -> Option<Arc<Upward>> {
        match &mut self.waiting {
            Way::Plain(waiting) => waiting.redirect(upward),
            Way::Driven(driven) => driven.redirect(upward),
        }
    }
}

impl Server {
    /// Makes a server; its actors belong to `tasks`. One whose lists are known is not started to list, unless it is to be
    /// started eagerly.
    pub fn run(
        index: usize,
        settings: ServerSettings,
        connect: Arc<dyn Connect>,
        memory: EraMemory,
        news: News,
        is_known: bool,
        tasks: &TaskTracker,
    ) -> Arc<Self> {
        static SERIALS: AtomicU64 = AtomicU64::new(1);
        let News { events, apart } = news;
        let settings = Arc::new(settings);
        let ground = Ground {
            index,
            serial: SERIALS.fetch_add(1, Ordering::Relaxed),
            settings: Arc::clone(&settings),
            is_known,
            connect,
            memory,
            events,
            apart,
            tasks: tasks.clone(),
        };
        let base = Client::run(&ground, Lease::default());
        // The others tell of nothing; and whoever follows the events waits until no sender of them is left.
        let (events, _) = mpsc::channel(1);
        let ground = Ground { events, ..ground };
        let (gate, roots) = (Gate::new(&settings.limits), Roots::new(&settings.roots));
        Arc::new(Self {
            settings,
            base,
            leases: Leases::default(),
            ground,
            gate,
            roots,
            modern_only: AtomicBool::new(false),
        })
    }

    /// Its place in the settings.
    pub fn index(&self) -> usize {
        self.ground.index
    }

    /// Its own number: another server in its place has another one.
    pub fn serial(&self) -> u64 {
        self.ground.serial
    }

    /// Its key.
    pub fn key(&self) -> &ServerKey {
        &self.settings.key
    }

    /// Its settings.
    pub fn settings(&self) -> &ServerSettings {
        &self.settings
    }

    /// What of a host's roots it may be told.
    pub fn roots(&self) -> &Roots {
        &self.roots
    }

    /// A caller as it gets to know it: what its server may not be told of it is not declared either.
    pub fn narrowed<'a>(&self, caller: &'a Caller) -> Cow<'a, Caller> {
        self.roots.narrowed(caller)
    }

    /// Where it stands, now and later.
    pub fn state(&self) -> watch::Receiver<State> {
        self.base.state()
    }

    /// What went wrong last, safe to show.
    pub fn last_error(&self) -> Option<String> {
        self.base.last_error()
    }

    /// The last lines that its process printed on stderr, at most `count`, safe to show. Of the process that all share who
    /// may, where there are several.
    pub fn last_lines(&self, count: usize) -> Vec<String> {
        self.base.last_lines(count)
    }

    /// The era that it is spoken to in, as far as it was ever connected.
    pub fn era(&self) -> Option<Era> {
        self.base.nature().map(|nature| if nature == Nature::Legacy { Era::Legacy } else { Era::Modern })
    }

    /// How many connections it has at most now: the one that all share who may, and those of some alone.
    pub fn connections(&self) -> usize {
        1 + self.leases.count()
    }

    /// How often it was started again.
    pub fn restarts(&self) -> u64 {
        self.base.restarts()
    }

    /// What kept it from being started may be gone: where it waits for its next try, that is now.
    pub fn wake(&self) {
        self.base.wake();
        self.leases.wake();
    }

    /// Stops it for good, at this pace.
    pub fn stop(&self, pace: Pace) {
        self.base.stop(pace);
        self.leases.stop(pace);
    }

    /// A legacy session has ended: so does what it had alone.
    pub fn session_ended(&self, session: u64) {
        self.leases.session_ended(session);
    }

    /// The roots of this host changed.
    pub fn roots_changed(&self, principal: &Principal, session: Option<u64>) {
        self.leases.roots_changed(principal, session);
    }

    /// Which client serves a caller of a server of this nature, and whether that is still to be found out: many a server that
    /// speaks both eras names the revisions of the modern one alone, which matters where its host could be asked in the legacy
    /// era.
    fn choice(&self, nature: Nature, caller: &Caller) -> (Choice, bool) {
        let tentative = nature == Nature::Modern && !self.modern_only.load(Ordering::Relaxed);
        let nature = if tentative { Nature::Both } else { nature };
        (choose(&self.settings, nature, caller, || self.leases.owns_base(&caller.principal)), tentative)
    }

    /// The connection that serves a caller (CON-1); what keeps its client meanwhile, when that is not the base.
    async fn connection_for(&self, caller: &Caller) -> Result<(Arc<Connection>, bool, Option<Held>), Fault> {
        let nature = match self.base.nature() {
            Some(nature) => nature,
            None => {
                // The era decides who shares, so it must be known first.
                self.base.connection().await?;
                self.base.nature().ok_or_else(|| Fault::gone("it has ended"))?
            }
        };
        let (choice, tentative) = self.choice(nature, caller);
        match choice {
            Choice::Base => Ok((self.base.connection().await?, false, None)),
            Choice::Own(holder) => {
                let busy = || Fault::Limit("all connections that it may have are in use".to_owned());
                let tentative = tentative && holder.is_legacy();
                let held = self.leases.take(holder, &self.ground, tentative).ok_or_else(busy)?;
                let connection = match held.0.connection().await {
                    Ok(connection) if tentative && connection.modern().is_some() => {
                        self.modern_only.store(true, Ordering::Relaxed);
                        self.leases.end(&held.0);
                        return Ok((self.base.connection().await?, false, None));
                    }
                    Err(fault) if tentative => {
                        if matches!(fault, Fault::Timeout(_)) {
                            // It hangs on the question: that is found out once.
                            self.modern_only.store(true, Ordering::Relaxed);
                            self.leases.end(&held.0);
                        }
                        return Ok((self.base.connection().await?, false, None));
                    }
                    connection => connection?,
                };
                let may_ask = held.0.may_ask() && connection.modern().is_none();
                Ok((connection, may_ask, Some(held)))
            }
        }
    }

    /// Whether it may list something else to this caller than to all: it has been told what that can do. Nothing is
    /// known of that before its era is.
    pub fn lists_apart(&self, caller: &Caller) -> bool {
        let Some(nature) = self.base.nature() else { return false };
        let caller = self.narrowed(caller);
        match choose(&self.settings, nature, &caller, || true) {
            Choice::Own(holder) => holder.declares(),
            Choice::Base => false,
        }
    }

    /// Whether what it listed to this caller still holds: nothing was said to be another, and it was not opened anew. While
    /// it is not running nothing changes.
    pub fn is_listed_as(&self, caller: &Caller, at: &ListedAt) -> bool {
        let Some(nature) = self.base.nature() else { return true };
        let client = match choose(&self.settings, nature, &self.narrowed(caller), || true) {
            Choice::Own(holder) => self.leases.find(&holder),
            Choice::Base => None,
        };
        client.and_then(|client| client.open_connection()).is_none_or(|connection| {
            std::ptr::eq(at.connection.as_ptr(), Arc::as_ptr(&connection)) && connection.changed.version() == at.version
        })
    }

    /// What it lists to this caller, of these kinds. One that could not be listed is left out; it fails when none could.
    pub async fn own_lists(&self, caller: &Caller, kinds: &[Kind]) -> Result<OwnLists, Fault> {
        let (connection, _, _held) = self.connection_for(caller).await?;
        let at = ListedAt { connection: Arc::downgrade(&connection), version: connection.changed.version() };
        let limit = self.settings.timeouts.start;
        let mut lists = Vec::with_capacity(kinds.len());
        let mut failed = None;
        for (kind, listed) in list::each(&connection, kinds, limit).await {
            match listed {
                Ok(listed) => lists.push((kind, listed.pages)),
                Err(fault) => {
                    tracing::debug!(server = %self.key(), %fault, "its {kind}s could not be listed for one host");
                    failed = Some(fault);
                }
            }
        }
        match failed {
            Some(fault) if lists.is_empty() => Err(fault),
            // What failed is not asked for at each look: it keeps what is known until something changes.
            _ => Ok(OwnLists { at, lists }),
        }
    }

    /// Sees to it that what it lists of this kind, on the connection that serves a caller, was compared with what was
    /// reviewed; starts it where it does not run. Nothing to do where its pins are not enforced.
    pub async fn look(&self, caller: &Caller, kind: Kind, native: &str) -> Result<Look, Fault> {
        if self.settings.pin.mode != PinMode::Enforce {
            return Ok(Look::Known);
        }
        let (connection, _, held) = self.connection_for(caller).await?;
        let limit = self.settings.timeouts.start;
        if held.is_none() {
            if connection.looked.has(kind) {
                return Ok(Look::Known);
            }
            return tokio::select! {
                () = connection.looked.wait(kind) => Ok(Look::New),
                () = connection.over.cancelled() => Err(Fault::gone("it has ended")),
                () = tokio::time::sleep(limit) => Err(Fault::Timeout(limit)),
            };
        }
        let at = (connection.changed.version(), self.ground.connect.generation());
        let served = match connection.looked.own(kind, at) {
            Some(known) => known,
            None => {
                let list = list::within(&connection, kind, limit).await?;
                let served = self.ground.connect.served(&self.settings, kind, &list.pages);
                connection.looked.note_own(kind, at, served)
            }
        };
        Ok(if served.serves(kind, native) { Look::Known } else { Look::Unlike })
    }

    /// Whether [`Server::look`] would find that at once, on the connection that all share who may: then nothing is waited for.
    pub fn is_looked_at(&self, caller: &Caller, kind: Kind) -> bool {
        let Some(nature) = self.base.nature() else { return false };
        matches!(self.choice(nature, caller), (Choice::Base, _))
            && self.base.open_connection().is_some_and(|connection| connection.looked.has(kind))
    }

    /// Whether a call of this kind may pass on a connection: see [`Server::look`], which was asked before, perhaps of
    /// another connection.
    fn was_looked_at(&self, connection: &Connection, own: bool, target: Target) -> bool {
        let Some(kind) = list_of(target) else { return true };
        self.settings.pin.mode != PinMode::Enforce
            || if own { connection.looked.has_own(kind) } else { connection.looked.has(kind) }
    }

    /// Has all lists fetched anew, where it runs.
    pub fn relist(&self) {
        if let Some(connection) = self.base.open_connection() {
            Kind::ALL.into_iter().for_each(|kind| connection.changed.list(kind));
        }
    }

    /// Has its tools listed anew: it saw other headers in a call than it wanted (HDR-9).
    pub fn relist_tools(&self) {
        if let Some(connection) = self.base.open_connection() {
            connection.changed.list(Kind::Tool);
        }
    }

    /// Where all hear of what a server tells all of them.
    pub fn source(&self) -> Source {
        Source { client: Arc::clone(&self.base), _held: None }
    }

    /// Where a caller hears of changes of resources. What a legacy server does for a caller it does on the connection of
    /// that caller, and tells of there; a modern one keeps nothing for anybody.
    pub async fn source_for(&self, caller: &Caller) -> Result<Source, Fault> {
        Ok(match self.connection_for(&self.narrowed(caller)).await? {
            (connection, _, Some(held)) if connection.modern().is_none() => {
                Source { client: Arc::clone(&held.0), _held: Some(held) }
            }
            _ => self.source(),
        })
    }

    /// Sends a request and waits for its answer; dropping the future cancels it. See [`Server::begin`].
    pub async fn ask(
        &self,
        permit: Permit,
        call: &Call,
        item: Item<'_>,
        input: Option<Input<'_>>,
        caller: &Caller,
        upward: Arc<Upward>,
    ) -> Result<Answer, Fault> {
        self.begin(&permit, call, item, input, caller, upward).await?.answered().await
    }

    /// Sends a request under its item's native name or URI. The permit proves that policy was
    /// asked; the rounds of one call share it. Dropping what comes of it cancels the request.
    pub async fn begin(
        &self,
        _permit: &Permit,
        call: &Call,
        item: Item<'_>,
        input: Option<Input<'_>>,
        caller: &Caller,
        upward: Arc<Upward>,
    ) -> Result<Pending, Fault> {
        let place = self.gate.enter(&caller.principal, item.timeout.unwrap_or(self.settings.timeouts.call)).await?;
        let (connection, may_ask, held) = self.connection_for(caller).await?;
        if !self.was_looked_at(&connection, held.is_some(), call.kind()) {
            // It ended between the look and this; the next call looks again.
            return Err(Fault::gone("it has just been started anew"));
        }
        let wants_progress = call.progress_token().is_some();
        let timeouts = self.settings.timeouts;
        let idle = item.timeout.unwrap_or(timeouts.call);
        let deadlines = Deadlines { idle, max: timeouts.call_max.max(idle) };
        let may_be_asked = matches!(call.method(), Method::ToolsCall | Method::PromptsGet | Method::ResourcesRead);
        let modern = connection.modern();
        let of_task = call.kind() == Target::Task;
        if of_task && modern.is_none() {
            // The word means something else there.
            let message = "it is of the legacy era now".to_owned();
            return Err(Fault::Refused { code: code::METHOD_NOT_FOUND, message });
        }
        if let (None, Some(level)) = (modern, caller.log_level) {
            connection.want_level(level);
        }
        let asker = Asker {
            principal: caller.principal.clone(),
            session: caller.session,
            log: wanted_level(caller),
            may_be_asked,
        };
        let params = match (item.mirror, modern, connection.http()) {
            ([], ..) | (_, None, _) | (_, _, None) => Vec::new(),
            (mirror, Some(_), Some(_)) => headers::values(mirror, call.arguments()),
        };
        let repeated = Repeated { name: (may_be_asked || of_task).then_some(item.native), params };
        let host = ForHost { upward, asker };
        let task = item.task && connection.has_tasks();
        let mut asking = None;
        let params = |out: &mut Vec<u8>, id| {
            asking = item.parent.map(|parent| traced::ask(parent, self, &connection, (call, item.native), id));
            let trace = asking.as_ref().and_then(Asking::traceparent);
            let leg = Leg {
                token: wants_progress.then_some(id),
                modern,
                capabilities: &caller.capabilities,
                log_level: caller.log_level,
                input: input.filter(|_| modern.is_some()),
                context: connection.revision() >= Revision::V2025_06_18,
                task,
                trace: trace.as_deref(),
            };
            call.push_params(out, item.native, &leg);
        };
        let waiting = if task {
            Way::Driven(Driven::begin(&connection, deadlines, host, params)?)
        } else {
            Way::Plain(connection.request_with(call.method(), Some(deadlines), Some(host), repeated, params)?)
        };
        Ok(Pending { waiting, may_ask: may_ask && may_be_asked, _held: held, place, asking })
    }
}

/// From which level on a host is told what servers log (LOG-1, LOG-2).
fn wanted_level(caller: &Caller) -> Option<LogLevel> {
    match caller.revision.era() {
        Era::Modern => caller.log_level,
        Era::Legacy => Some(caller.log_level.unwrap_or(LogLevel::Warning)),
    }
}
