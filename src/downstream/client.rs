//! A client of a server through its life: one actor starts the server, lists it, watches it and starts it again;
//! callers find its connection or wait for it.
//!
//! One start serves all who wait (D018). The rules of when are in [`super::lifecycle`] and [`super::plan`], the ways to
//! a server in [`super::reach`], those of starting and stopping a process in [`super::process`]. What is listed goes to
//! the gateway as [`Event`]s.
//!
//! Long, and one thing: what callers see of a client and the actor that keeps it share each field of it.

use std::collections::BTreeSet;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connection::Connection;
use super::handshake::{self, Agreed, Probe};
use super::http;
use super::lease::{self, Lease};
use super::lifecycle::{Leave, Lifecycle};
use super::plan::Plan;
use super::process::{Child, Pace, StderrRing};
use super::questions::Questions;
use super::reach::Connect;
use super::roots::Roots;
use super::server::{Apart, Change, Event, Listed, Listing};
use super::subscription::Singles;
use super::{EraMemory, Fault, list, signs, subscription};
use crate::config::settings::{EraChoice, Reach, ServerSettings, Start};
use crate::ident::{Kind, ServerKey};
use crate::protocol::method::Method;
use crate::protocol::version::{Era, Revision};
use crate::telemetry::mask::Mask;

/// A failed list, and an ended stream, is tried again after this, doubling…
pub(super) const RETRY_FIRST: Duration = Duration::from_secs(1);
/// …up to this.
pub(super) const RETRY_LONGEST: Duration = Duration::from_secs(60);
/// How long a server may take to open the stream of its questions.
const STREAM: Duration = Duration::from_secs(1);
/// How long a server may take that only might speak the legacy era.
const TENTATIVE: Duration = Duration::from_secs(10);
/// Lines of stderr in an error.
const LAST_LINES: usize = 3;
/// The longest that a timer takes.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// Where a server stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Not running; the next call starts it.
    Idle,
    /// Being started.
    Starting,
    /// Running.
    Ready {
        /// The revision agreed on.
        revision: Revision,
        /// Its process.
        pid: Option<u32>,
    },
    /// Failed; started again by itself.
    Waiting {
        /// When.
        until: Instant,
        /// What happened, safe to show.
        why: String,
    },
    /// Failed so often that callers are refused until then.
    Broken {
        /// When it is tried again.
        until: Instant,
        /// What happened, safe to show.
        why: String,
    },
    /// Cannot be started as configured.
    Disabled {
        /// What is wrong, safe to show.
        why: String,
    },
    /// Stopped for good.
    Stopped,
}

/// Which eras a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nature {
    /// `initialize` sessions alone.
    Legacy,
    /// Stateless alone.
    Modern,
    /// Both; it is spoken to in the modern one, where nothing else is said.
    Both,
}

impl Nature {
    const ALL: [Self; 3] = [Self::Legacy, Self::Modern, Self::Both];

    fn of(agreed: &Agreed) -> Self {
        match agreed.revision.era() {
            Era::Legacy => Self::Legacy,
            Era::Modern if agreed.dual => Self::Both,
            Era::Modern => Self::Modern,
        }
    }
}

/// One connection to a server, kept up; as [`super::Server`] sees it.
pub(super) struct Client {
    /// Which of all clients; 0 = the base of its server.
    pub(super) number: u64,
    key: ServerKey,
    settings: Arc<ServerSettings>,
    lease: Lease,
    current: ArcSwapOption<Connection>,
    /// Someone needs a connection; taken by the actor.
    wanted: Notify,
    /// What kept it from being started may be gone: it is tried at once.
    woken: watch::Sender<()>,
    state: watch::Sender<State>,
    restarts: AtomicU64,
    /// What went wrong last, safe to show; kept when it runs again.
    last_error: Mutex<Option<String>>,
    /// What its process prints on stderr; of the last one, when it runs no more.
    stderr: Mutex<Option<Arc<StderrRing>>>,
    /// The status with which it wanted credentials when it was last connected to.
    sign_in: Mutex<Option<Fault>>,
    stop: CancellationToken,
    pace: OnceLock<Pace>,
    /// One more than the place of what it was last in [`Nature::ALL`]; 0 = never connected.
    nature: AtomicU8,
    /// What the server asks.
    questions: Arc<Questions>,
    /// Requests that need it just now; see [`lease::Held`].
    pub(super) users: AtomicUsize,
    /// Who wants a resource and who no longer does take turns, so that the last word counts.
    pub(super) wanting: tokio::sync::Mutex<()>,
    /// Resources that somebody wants to be told of.
    pub(super) resources: Singles,
    /// The same of tasks.
    pub(super) watched_tasks: Singles,
}

/// What all clients of one server are started with.
#[derive(Clone)]
pub(super) struct Ground {
    pub(super) index: usize,
    pub(super) serial: u64,
    /// What it lists is known from before.
    pub(super) is_known: bool,
    pub(super) settings: Arc<ServerSettings>,
    pub(super) connect: Arc<dyn Connect>,
    pub(super) memory: EraMemory,
    pub(super) events: mpsc::Sender<Event>,
    /// Where it is told what is another on a connection that only some hosts have.
    pub(super) apart: mpsc::Sender<Apart>,
    pub(super) tasks: TaskTracker,
}

impl Client {
    /// Makes a client and starts its actor.
    pub(super) fn run(ground: &Ground, lease: Lease) -> Arc<Self> {
        let ground = ground.clone();
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let number = if lease.calls_only { NUMBERS.fetch_add(1, Ordering::Relaxed) } else { 0 };
        let server = Arc::new(Self {
            number,
            key: ground.settings.key.clone(),
            settings: Arc::clone(&ground.settings),
            questions: Questions::new(
                lease.capabilities.clone(),
                Roots::new(&ground.settings.roots),
                ground.tasks.clone(),
            ),
            lease,
            current: ArcSwapOption::empty(),
            wanted: Notify::new(),
            woken: watch::Sender::new(()),
            state: watch::Sender::new(State::Idle),
            restarts: AtomicU64::new(0),
            last_error: Mutex::new(None),
            stderr: Mutex::default(),
            sign_in: Mutex::new(None),
            stop: CancellationToken::new(),
            pace: OnceLock::new(),
            nature: AtomicU8::new(0),
            users: AtomicUsize::new(0),
            wanting: tokio::sync::Mutex::default(),
            resources: Singles::default(),
            watched_tasks: Singles::default(),
        });
        let Ground { index, serial, is_known, connect, memory, events, apart, tasks, .. } = ground;
        let actor = Actor {
            index,
            serial,
            is_known,
            server: Arc::clone(&server),
            connect,
            memory,
            events,
            apart,
            tasks: tasks.clone(),
        };
        tasks.spawn(actor.run());
        server
    }

    /// Which eras the server speaks, as far as it was ever connected.
    pub(super) fn nature(&self) -> Option<Nature> {
        Nature::ALL.get(usize::from(self.nature.load(Ordering::Relaxed)).wrapping_sub(1)).copied()
    }

    /// Whether the server may ask its hosts anything on this connection.
    pub(super) fn may_ask(&self) -> bool {
        self.questions.are_possible()
    }

    /// The roots of its hosts changed; whether the server wants to know.
    pub(super) fn roots_changed(&self, tell: bool) {
        self.questions.forget_roots();
        if let Some(connection) = self.open_connection().filter(|connection| tell && connection.modern().is_none()) {
            connection.notify(Method::RootsChanged, "");
        }
    }

    /// Where it stands, now and later.
    pub(super) fn state(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    /// What went wrong last, safe to show.
    pub(super) fn last_error(&self) -> Option<String> {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The last lines that its process printed on stderr, at most `count`, safe to show.
    pub(super) fn last_lines(&self, count: usize) -> Vec<String> {
        let ring = self.stderr.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mask = Mask::new(self.settings.secrets());
        ring.map_or_else(Vec::new, |ring| ring.last_lines(count).iter().map(|line| mask.shown(line)).collect())
    }

    /// How often it was started again.
    pub(super) fn restarts(&self) -> u64 {
        self.restarts.load(Ordering::Relaxed)
    }

    /// What kept it from being started may be gone: where it waits for its next try, that is now.
    pub(super) fn wake(&self) {
        self.woken.send_replace(());
    }

    /// Stops it for good, at this pace.
    pub(super) fn stop(&self, pace: Pace) {
        // The first pace counts: whoever stops it twice wants it stopped as said first.
        let _ = self.pace.set(pace);
        self.stop.cancel();
    }

    /// The open connection, or a new one when it has been started.
    pub(super) async fn connection(&self) -> Result<Arc<Connection>, Fault> {
        match self.open_connection() {
            Some(connection) => Ok(connection),
            // Rare and large: on the heap, so that every call is not as large as the rarest.
            None => Box::pin(self.wait_for_connection()).await,
        }
    }

    pub(super) fn open_connection(&self) -> Option<Arc<Connection>> {
        self.current.load_full().filter(|connection| !connection.is_closed())
    }

    /// Has it started and waits for it, as long as a start and a first call may take.
    async fn wait_for_connection(&self) -> Result<Arc<Connection>, Fault> {
        let limit = self.settings.timeouts.start.max(self.settings.timeouts.call);
        let deadline = Instant::now() + limit;
        let mut state = self.state.subscribe();
        // When it failed to start while we waited: then it is not slow but not there (D007).
        let mut failed_until = None;
        let remote = matches!(self.settings.reach, Ok(Reach::Remote(_)));
        let mut tried = self.lease.tentative;
        loop {
            let now = Instant::now();
            match &*state.borrow_and_update() {
                State::Waiting { until, .. } => {
                    if let Some(fault) = self.sign_in() {
                        return Err(fault);
                    }
                    if (remote || self.lease.tentative) && tried {
                        // It is not ours to start, or there is another one: one look for it is enough.
                        if self.lease.tentative {
                            self.wanted.notify_one();
                        }
                        let retry_after = Some(until.saturating_duration_since(now));
                        return Err(Fault::Unavailable { detail: "it cannot be reached".to_owned(), retry_after });
                    }
                    failed_until = Some(*until);
                }
                State::Ready { .. } => {
                    if let Some(connection) = self.open_connection() {
                        return Ok(connection);
                    }
                }
                State::Broken { until, .. } => {
                    let retry_after = Some(until.saturating_duration_since(now));
                    return Err(Fault::Unavailable { detail: "it failed to run, repeatedly".to_owned(), retry_after });
                }
                State::Disabled { .. } => return Err(Fault::gone("it cannot be started as configured")),
                State::Stopped => return Err(Fault::gone("it was stopped")),
                State::Starting => tried = true,
                State::Idle => {}
            }
            self.wanted.notify_one();
            match timeout_at(deadline, state.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Err(Fault::gone("it was stopped")),
                Err(_) => {
                    return Err(match failed_until {
                        Some(until) => Fault::Unavailable {
                            detail: "it could not be started".to_owned(),
                            retry_after: Some(until.saturating_duration_since(Instant::now())),
                        },
                        None => Fault::Timeout(limit),
                    });
                }
            }
        }
    }

    fn sign_in(&self) -> Option<Fault> {
        self.sign_in.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note_sign_in(&self, fault: Option<&Fault>) {
        let fault = fault.filter(|fault| matches!(fault, Fault::SignIn { .. })).cloned();
        *self.sign_in.lock().unwrap_or_else(PoisonError::into_inner) = fault;
    }

    fn publish(&self, state: State) {
        tracing::debug!(server = %self.key, ?state, "state");
        self.state.send_replace(state);
    }

    fn note_error(&self, why: &str) {
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(why.to_owned());
    }
}

struct Actor {
    index: usize,
    serial: u64,
    is_known: bool,
    server: Arc<Client>,
    connect: Arc<dyn Connect>,
    memory: EraMemory,
    events: mpsc::Sender<Event>,
    apart: mpsc::Sender<Apart>,
    tasks: TaskTracker,
}

/// A server that runs.
struct Session {
    connection: Arc<Connection>,
    child: Option<Child>,
    began: Instant,
}

/// Why a running server was given up.
enum End {
    /// We stop.
    Stop,
    /// Nobody used it for long.
    Unused,
    /// It ended.
    Gone,
    /// It forgot our session; it lives (SES-4).
    Renew,
    /// It is there and says nothing, not even that it lives.
    Silent,
}

impl Actor {
    async fn run(self) {
        let server = Arc::clone(&self.server);
        if let Err(fault) = &server.settings.reach {
            let why = format!("{}: {}", fault.key, fault.message);
            tracing::warn!(server = %server.key, "disabled: {why}");
            server.note_error(&why);
            server.publish(State::Disabled { why });
            self.say(Listing::Failed(Kind::ALL.into())).await;
            return;
        }
        let remote = matches!(server.settings.reach, Ok(Reach::Remote(_)));
        let mut life = Lifecycle::new(server.settings.restart, remote);
        let is_listed = self.is_known && server.settings.start == Start::Lazy;
        let mut needed = !server.lease.calls_only && !is_listed;
        let mut starts = 0u64;
        let mut woken = server.woken.subscribe();
        while self.wait_for_leave(&mut life, &mut needed, &mut woken).await {
            // What comes from here on, this start may not see.
            woken.mark_unchanged();
            server.publish(State::Starting);
            life.started(Instant::now());
            if starts > 0 {
                server.restarts.fetch_add(1, Ordering::Relaxed);
            }
            starts += 1;
            let began = Instant::now();
            let (mut session, agreed) = match self.start().await {
                Ok(started) => started,
                Err(_) if server.stop.is_cancelled() => break,
                Err(why) => {
                    tracing::warn!(server = %server.key, "could not be started: {why}");
                    server.note_error(&why);
                    life.failed(Instant::now(), began.elapsed(), fastrand::f32());
                    self.say(Listing::Failed(Kind::ALL.into())).await;
                    needed = !server.lease.calls_only;
                    continue;
                }
            };
            let end = self.attend(&session, &agreed).await;
            server.current.store(None);
            if let End::Renew = end {
                tracing::debug!(server = %server.key, "it forgot the session; a new one is opened");
                if session.connection.was_useful() {
                    life.ended_well();
                } else {
                    // It forgets at once what it agrees to: not without end.
                    life.failed(Instant::now(), session.began.elapsed(), fastrand::f32());
                }
                needed = true;
                self.leave(session);
                continue;
            }
            session.connection.close("it has ended");
            let useful = session.connection.was_useful();
            let busy = session.connection.lost_requests();
            let lived = session.began.elapsed();
            match end {
                End::Stop => {
                    self.retire(&mut session, *server.pace.get().unwrap_or(&Pace::CALM)).await;
                    break;
                }
                End::Unused => {
                    server.publish(State::Idle);
                    self.retire(&mut session, Pace::CALM).await;
                    life.ended_well();
                    needed = false;
                }
                End::Silent => {
                    let why = "it gave no sign of life and was stopped";
                    let why = format!("{why}{}", self.retire(&mut session, Pace::SWIFT).await);
                    tracing::warn!(server = %server.key, "{why}");
                    server.note_error(&why);
                    life.failed(Instant::now(), lived, fastrand::f32());
                    needed = !server.lease.calls_only || server.is_awaited();
                }
                End::Renew | End::Gone => {
                    let why = format!("it ended{}", self.retire(&mut session, Pace::SWIFT).await);
                    tracing::warn!(server = %server.key, "{why}");
                    server.note_error(&why);
                    if useful && !busy {
                        // It did its work and left: the next call starts it (D015).
                        life.ended_well();
                        // Whoever is to be told of its resources makes no call.
                        needed =
                            server.is_awaited() || server.settings.start == Start::Eager && !server.lease.calls_only;
                    } else {
                        life.failed(Instant::now(), lived, fastrand::f32());
                        needed = !server.lease.calls_only || server.is_awaited();
                    }
                }
            }
        }
        server.publish(State::Stopped);
    }

    /// Whoever still waits for an answer in a session that the server forgot is told by the server.
    fn leave(&self, session: Session) {
        let server = Arc::clone(&self.server);
        self.tasks.spawn(async move {
            let limit = server.settings.timeouts.call_max;
            let connection = &session.connection;
            server.stop.run_until_cancelled(timeout(limit, connection.drained())).await;
            connection.close("it forgot the session");
            if let Some(http) = connection.http() {
                http.finish(connection.revision(), Pace::SWIFT, false).await;
            }
        });
    }

    async fn say(&self, listing: Listing) {
        if self.server.lease.calls_only {
            return;
        }
        // Nobody listens any more only when all is being stopped.
        let _ = self.events.send(Event { server: self.index, serial: self.serial, listing }).await;
    }

    async fn say_apart(&self, change: Change) {
        let _ = self.apart.send(Apart { server: self.index, client: self.server.number, change }).await;
    }

    /// Waits until there is a need and leave to start; false when we stop.
    async fn wait_for_leave(&self, life: &mut Lifecycle, needed: &mut bool, woken: &mut watch::Receiver<()>) -> bool {
        let server = &self.server;
        if !*needed {
            // A wish from before it ran was granted then. Whoever still waits sees that it is idle, and wishes anew.
            tokio::select! {
                biased;
                () = server.wanted.notified() => {}
                () = std::future::ready(()) => {}
            }
            server.publish(State::Idle);
            tokio::select! {
                () = server.wanted.notified() => {}
                () = server.stop.cancelled() => return false,
            }
        }
        *needed = true;
        loop {
            if server.stop.is_cancelled() {
                return false;
            }
            let why = || server.last_error().unwrap_or_default();
            let until = match life.leave(Instant::now()) {
                Leave::Now => return true,
                Leave::At(until) => {
                    server.publish(State::Waiting { until, why: why() });
                    until
                }
                Leave::Broken(until) => {
                    server.publish(State::Broken { until, why: why() });
                    until
                }
            };
            tokio::select! {
                () = sleep_until(until) => {}
                Ok(()) = woken.changed() => life.woken(),
                () = server.stop.cancelled() => return false,
            }
        }
    }

    fn mask(&self) -> Mask {
        Mask::new(self.server.settings.secrets())
    }

    async fn open(&self) -> Result<Session, String> {
        self.connect.clear(&self.server.settings).await?;
        let link = self.connect.connect(&self.server.settings)?;
        let limits = &self.server.settings.limits;
        let connection = Connection::open(
            self.server.key.clone(),
            self.mask(),
            link.way,
            (limits.max_result, limits.lists.list),
            &self.tasks,
        );
        let _ = connection.questions.set(Arc::clone(&self.server.questions));
        if let Some(child) = &link.child {
            *self.server.stderr.lock().unwrap_or_else(PoisonError::into_inner) = Some(child.stderr());
        }
        Ok(Session { connection, child: link.child, began: Instant::now() })
    }

    /// Starts it and agrees on a revision, within the start deadline; an error is safe to show. What was started and
    /// is not handed on is stopped here, also when we stop meanwhile.
    async fn start(&self) -> Result<(Session, Agreed), String> {
        let server = &self.server;
        let limit = server.settings.timeouts.start;
        let mut session = self.open().await?;
        let agreeing = timeout(limit, self.agree(&mut session, limit));
        let (why, pace) = match server.stop.run_until_cancelled(agreeing).await {
            Some(Ok(Ok(agreed))) => {
                server.note_sign_in(None);
                // Set once, here; a second start has a connection of its own.
                let _ = session.connection.revision.set(agreed.revision);
                return Ok((session, agreed));
            }
            Some(Ok(Err(why))) => (why, Pace::SWIFT),
            Some(Err(_)) => (format!("it was not ready within {} s", limit.as_secs_f32()), Pace::SWIFT),
            None => ("it was stopped".to_owned(), *server.pace.get().unwrap_or(&Pace::CALM)),
        };
        if !server.stop.is_cancelled() && !server.lease.legacy {
            // It may have failed on what was remembered of it: the next start asks again (PRB-8).
            self.memory.forget(server.settings.identity());
        }
        session.connection.close(&why);
        Err(format!("{why}{}", self.retire(&mut session, pace).await))
    }

    /// Finds its era and shakes hands (PRB-1, PRB-2). The child is replaced when the probe killed it.
    async fn agree(&self, session: &mut Session, limit: Duration) -> Result<Agreed, String> {
        let settings = &self.server.settings;
        let identity = settings.identity();
        let remembered = match settings.era {
            EraChoice::Auto if self.server.lease.legacy => Some(Era::Legacy),
            EraChoice::Auto => self.memory.recall(identity),
            EraChoice::Modern => Some(Era::Modern),
            EraChoice::Legacy => Some(Era::Legacy),
        };
        let mut probe = remembered != Some(Era::Legacy);
        let mut doubted = false;
        let mut proposed = Revision::LATEST_LEGACY;
        if let Some(http) = session.connection.http().filter(|http| http.only_sse) {
            probe = false;
            http::open_sse(&session.connection, http).await?;
        }
        loop {
            if probe {
                match handshake::probe(&session.connection, settings.timeouts.probe).await {
                    Probe::Modern(agreed) => {
                        self.memory.note(identity, Era::Modern);
                        return Ok(agreed);
                    }
                    Probe::Unknown(fault) => {
                        self.server.note_sign_in(Some(&fault));
                        return Err(fault.to_string());
                    }
                    Probe::Legacy(_) | Probe::Died if settings.era == EraChoice::Modern => {
                        return Err("it gave no answer of the modern era, which is configured for it".to_owned());
                    }
                    Probe::Legacy(revision) => proposed = revision,
                    Probe::Died => {
                        // No second process while the first lives.
                        self.retire(session, Pace::SWIFT).await;
                        *session = self.open().await?;
                    }
                }
            }
            let lease = &self.server.lease;
            let limit = if lease.tentative { limit.min(TENTATIVE) } else { limit };
            match handshake::initialize(&session.connection, proposed, &lease.capabilities, limit).await {
                Ok(agreed) => {
                    if !self.server.lease.legacy {
                        self.memory.note(identity, agreed.revision.era());
                    }
                    return Ok(agreed);
                }
                // It does not know the word: remembered as legacy, it may be modern by now (PRB-8); too slow to start for
                // the probe's deadline, it may be modern all the same, and answers a second probe at once (PRB-1).
                Err(Fault::Refused { .. } | Fault::Invalid(_))
                    if settings.era == EraChoice::Auto
                        && !doubted
                        && !(probe && session.connection.http().is_some()) =>
                {
                    doubted = true;
                    probe = true;
                }
                Err(fault) => match session.connection.http().filter(|http| http.may_be_sse()) {
                    // PRB-7: the transport of 2024-11-05, when it opens.
                    Some(http) => {
                        let opened = http::open_sse(&session.connection, http).await;
                        opened.map_err(|why| format!("the handshake failed: {fault}; {why}"))?;
                        (probe, doubted) = (false, true);
                    }
                    None => {
                        self.server.note_sign_in(Some(&fault));
                        return Err(format!("the handshake failed: {fault}"));
                    }
                },
            }
        }
    }

    /// Stops what is left of it; answers how it ended and what it printed last, safe to show.
    async fn retire(&self, session: &mut Session, pace: Pace) -> String {
        let pace = pace.of(&self.server.settings.stop);
        session.connection.close("it is being stopped");
        if let Some(http) = session.connection.http() {
            http.finish(session.connection.revision(), pace, true).await;
        }
        let Some(child) = session.child.take() else { return String::new() };
        let stderr = child.stderr();
        let mut text = match child.stop(pace).await {
            Some(status) => format!(" ({status})"),
            None => String::new(),
        };
        let lines = stderr.last_lines(LAST_LINES);
        let mask = &session.connection.mask;
        if !lines.is_empty() {
            let lines: Vec<_> = lines.iter().map(|line| mask.shown(line)).collect();
            text.push_str(&format!("; it printed last: {}", lines.join(" | ")));
        }
        text
    }

    /// Watches a running server until it is given up.
    async fn attend(&self, session: &Session, agreed: &Agreed) -> End {
        let server = &self.server;
        let connection = &session.connection;
        if agreed.offers.logging && agreed.revision.era() == Era::Legacy {
            connection.has_levels();
        }
        if agreed.offers.task_calls {
            connection.takes_tasks();
        }
        let nature = Nature::of(agreed);
        server.nature.store(1 + Nature::ALL.iter().position(|n| *n == nature).unwrap_or(0) as u8, Ordering::Relaxed);
        if let Some(http) = connection.http().filter(|http| http.has_stream(agreed.revision)) {
            let (tried, answered) = oneshot::channel();
            self.tasks.spawn(http::follow(Arc::clone(connection), Arc::clone(http), tried));
            if server.may_ask() {
                // Many a server asks there, whatever it is asked about, and what it asks before is lost.
                let _ = server.stop.run_until_cancelled(timeout(STREAM, answered)).await;
            }
        }
        // As it is now: what is wanted from here on finds this connection.
        let wanted = server.resources.wanted.borrow().clone();
        server.current.store(Some(Arc::clone(connection)));
        let pid = session.child.as_ref().map(Child::pid);
        server.publish(State::Ready { revision: agreed.revision, pid });
        tracing::debug!(server = %server.key, revision = agreed.revision.as_str(), "ready");
        let lists = !server.lease.calls_only;
        if lists && agreed.revision.era() == Era::Modern {
            let (client, offers) = (Arc::clone(server), agreed.offers.clone());
            self.tasks.spawn(subscription::listen(client, Arc::clone(connection), offers, !wanted.is_empty()));
        } else if agreed.revision.era() == Era::Legacy {
            self.tasks.spawn(subscription::renew(Arc::clone(server), Arc::clone(connection), wanted));
        }
        let mut plan = Plan::new(if lists { Kind::ALL.into() } else { BTreeSet::new() }, Instant::now());
        // Beside all else, so that a list that hangs delays no news.
        let mut listing: Option<Pin<Box<dyn Future<Output = BTreeSet<Kind>> + Send + '_>>> = None;
        let mut kept_at = None;
        let mut silent = pin!(signs::missing(connection, &server.settings));
        loop {
            let idle_at = self.idle_at(connection, kept_at);
            let list_at = plan.at().filter(|_| listing.is_none());
            tokio::select! {
                biased;
                () = server.stop.cancelled() => return End::Stop,
                () = connection.over.cancelled() => {
                    return if connection.lost_session() { End::Renew } else { End::Gone };
                }
                () = &mut silent => return End::Silent,
                failed = async { listing.as_mut().expect("invariant: looked at before").await }, if listing.is_some() => {
                    listing = None;
                    plan.listed(failed, Instant::now());
                }
                () = sleep_until(list_at.unwrap_or_else(Instant::now)), if list_at.is_some() => {
                    plan.changed(connection.changed.take_kinds(), Instant::now());
                    let kinds = plan.take(Instant::now());
                    listing = Some(Box::pin(self.list(connection, agreed, kinds)));
                }
                () = connection.changed.happens() => {
                    let resources = connection.changed.take_resources();
                    match resources.is_empty() {
                        false if lists => self.say(Listing::Updated(resources)).await,
                        false => self.say_apart(Change::Resources(resources)).await,
                        true => {}
                    }
                    let tasks = connection.changed.take_tasks();
                    if lists && !tasks.is_empty() {
                        self.say(Listing::Tasks(tasks)).await;
                    }
                    let kinds = connection.changed.take_kinds();
                    if lists {
                        plan.changed(kinds, Instant::now());
                    } else if !kinds.is_empty() {
                        self.say_apart(Change::Lists).await;
                    }
                }
                () = sleep_until(idle_at.unwrap_or_else(Instant::now)), if idle_at.is_some() => {
                    let limit = self.idle_limit().unwrap_or(FOREVER);
                    if connection.unused_since().is_some_and(|since| since.elapsed() >= limit) {
                        if !server.is_awaited() {
                            return End::Unused;
                        }
                        // Somebody wants to be told of its resources, which it could not when stopped.
                        kept_at = Some(Instant::now());
                    }
                }
            }
        }
    }

    /// When to look whether it is unused.
    fn idle_at(&self, connection: &Connection, kept_at: Option<Instant>) -> Option<Instant> {
        let limit = self.idle_limit()?;
        let since =
            connection.unused_since().map_or_else(Instant::now, |since| kept_at.map_or(since, |at| at.max(since)));
        Some(since + limit)
    }

    /// How long it may be unused.
    fn idle_limit(&self) -> Option<Duration> {
        let settings = &self.server.settings;
        if self.server.lease.calls_only {
            return Some(settings.idle_stop.map_or(lease::IDLE, |limit| limit.min(lease::IDLE)));
        }
        settings.idle_stop.filter(|_| settings.start == Start::Lazy)
    }

    /// Lists these kinds for the gateway, all at once; answers those that failed.
    async fn list(&self, connection: &Arc<Connection>, agreed: &Agreed, kinds: BTreeSet<Kind>) -> BTreeSet<Kind> {
        let one = async |kind| !kinds.contains(&kind) || self.list_kind(connection, agreed, kind).await;
        let [tool, prompt, resource, template] = Kind::ALL;
        let done = tokio::join!(one(tool), one(prompt), one(resource), one(template));
        let done = <[bool; 4]>::from(done);
        Kind::ALL.into_iter().zip(done).filter(|(_, done)| !done).map(|(kind, _)| kind).collect()
    }

    /// Lists a kind for the gateway; false when that failed.
    async fn list_kind(&self, connection: &Arc<Connection>, agreed: &Agreed, kind: Kind) -> bool {
        let limit = self.server.settings.timeouts.start;
        let pages = match agreed.offers.of(kind) {
            Some(_) => list::within(connection, kind, limit).await,
            // What it does not have does not change as long as this connection lives.
            None => Ok(list::Pages { ttl: Some(Duration::MAX), ..list::Pages::default() }),
        };
        match pages {
            Ok(list::Pages { pages, ttl }) => {
                let tells_changes = agreed.offers.of(kind).unwrap_or(true);
                self.say(Listing::List {
                    list: Listed { kind, pages, ttl, tells_changes },
                    offers: agreed.offers.clone(),
                    era: agreed.revision.era(),
                    instructions: agreed.instructions.clone(),
                    introduction: Arc::clone(&agreed.introduction),
                    looked: Arc::clone(&connection.looked),
                })
                .await;
                true
            }
            Err(fault) => {
                let why = format!("its {kind}s could not be listed: {fault}");
                tracing::warn!(server = %self.server.key, "{why}");
                self.server.note_error(&why);
                self.say(Listing::Failed(vec![kind])).await;
                false
            }
        }
    }
}
