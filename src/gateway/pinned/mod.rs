//! What becomes of what servers list, by their pins (threat model §5): the one state that lists and calls read.
//!
//! Reads the lock and never writes it; what it sees goes to the state folder before a hold shows. An entry's verdict is the
//! hash's ([`drift`]), the mode says what follows. Used by [`super::lists`], [`super::audiences`] and the way of a call;
//! asked by `downstream` through [`Guarded`] before anything is started.
//!
//! Here: the state, and why a server serves nothing. What is said of a list and its entries: [`verdict`]; of a server's own
//! words: [`words`]; before a start: [`guarded`]; of a lock that changes: [`watch`].

mod guarded;
mod verdict;
mod watch;
mod words;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use tokio::sync::Notify;

pub(super) use self::guarded::Guarded;
use self::verdict::{Entryway, Known};
use crate::catalog::Part;
use crate::config::settings::{Launch, ListLimits, PinMode, PinSettings, Reach, ServerSettings, Settings};
use crate::downstream::Introduction;
use crate::ident::{Kind, ServerKey};
use crate::pins::artifact::{Reference, reference};
use crate::pins::drift::{self, EntryState, Quarantine, ServerState};
use crate::pins::facet::Hash;
use crate::pins::launch::launch_hash;
use crate::pins::lock::{Lock, LockFault, LockedServer};
use crate::pins::managed::Plan;
use crate::pins::observed::{Memory, Observed};
use crate::policy::{Approved, Hints};

/// Things that were told of one server and are not told again.
const MAX_TOLD: usize = 10_000;
/// Things of one list that are told one by one: hosts wait for the list, and nobody reads a thousand lines.
const MAX_AT_ONCE: usize = 100;

/// All pins of a gateway.
pub(super) struct Pinned {
    sites: Vec<Site>,
    path: PathBuf,
    /// Before the lock was read first.
    since: SystemTime,
    recheck: Duration,
    /// For a look alone.
    observe: bool,
    /// See [`PinsSettings::installed`](crate::config::settings::PinsSettings::installed).
    installed: BTreeMap<ServerKey, Hash>,
    /// Where packages are installed.
    state: PathBuf,
    memory: Memory,
    lock: ArcSwap<Result<Option<Lock>, LockFault>>,
    /// Servers whose verdicts may be others now.
    dirty: Mutex<BTreeSet<usize>>,
    changed: Notify,
    /// How often verdicts may have become others: what was found out at an older one is old.
    generation: AtomicU64,
}

/// One server.
struct Site {
    key: ServerKey,
    settings: PinSettings,
    /// How much it may list.
    lists: ListLimits,
    launch: Option<Hash>,
    reference: Option<Reference>,
    /// What of it can be installed.
    plan: Option<Plan>,
    now: Arc<Mutex<Now>>,
    /// It is enforced, and nothing of it is served.
    closed: AtomicBool,
}

/// What is known of a server now.
#[derive(Default)]
struct Now {
    observed: Observed,
    /// By kind and name.
    known: HashMap<(Kind, Arc<str>), Known>,
    states: HashMap<(Kind, Arc<str>), EntryState>,
    /// What was told.
    told: HashSet<String>,
    /// How many there were since it was said how many more there are.
    at_once: usize,
    /// It was seen to be as it is written in the state folder.
    noted: bool,
    /// Kinds whose list did not come when it was listed last.
    failed: BTreeSet<Kind>,
    /// It was started before the lock had its packages: it is not compared with them until it is started again.
    early: bool,
    /// What of it was asked for and how its installed command is started instead, found out before each start.
    entry: Option<(Launch, Launch)>,
}

impl Site {
    fn now(&self) -> MutexGuard<'_, Now> {
        lock_now(&self.now)
    }
}

fn lock_now(now: &Mutex<Now>) -> MutexGuard<'_, Now> {
    now.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pinned {
    /// The pins of these servers; of those that `before` had, in the same places, what was seen is known.
    pub(super) fn new(settings: &Settings, before: Option<&Self>) -> Self {
        let since = SystemTime::now();
        let lock = Lock::read(&settings.pins.lock);
        let site = |(at, server): (usize, &ServerSettings)| {
            let launch = launch_hash(server);
            let old = before.and_then(|before| before.sites.get(at));
            let same = old.filter(|old| old.key == server.key && old.launch == launch);
            let now = same.map(|old| Arc::clone(&old.now)).unwrap_or_default();
            // What is not as reviewed is told again: other settings may hold.
            lock_now(&now).told.clear();
            Site {
                key: server.key.clone(),
                settings: server.pin.clone(),
                lists: server.limits.lists,
                launch,
                reference: server.reach.as_ref().ok().map(reference),
                plan: match &server.reach {
                    Ok(Reach::Launch(launch)) => Plan::of(launch).ok(),
                    Ok(Reach::Remote(_)) | Err(_) => None,
                },
                now,
                closed: AtomicBool::new(false),
            }
        };
        let generation = before.map_or(0, |before| before.generation.load(Ordering::Acquire) + 1);
        let pinned = Self {
            sites: settings.servers.iter().enumerate().map(site).collect(),
            path: settings.pins.lock.clone(),
            since,
            recheck: settings.pins.recheck,
            observe: settings.pins.observe,
            installed: settings
                .pins
                .installed
                .iter()
                .filter_map(|(key, hash)| Some((key.clone(), Hash::parse(hash)?)))
                .collect(),
            state: settings.gateway.state.clone(),
            memory: Memory::of(&settings.gateway.state, &settings.pins.lock),
            lock: ArcSwap::from_pointee(lock),
            dirty: Mutex::default(),
            changed: Notify::new(),
            generation: AtomicU64::new(generation),
        };
        if let Err(fault) = &**pinned.lock.load()
            && !pinned.observe
            && pinned.sites.iter().any(|site| site.settings.mode != PinMode::Off)
        {
            tracing::error!(lock = %pinned.path.display(), "{fault}");
        }
        for server in 0..pinned.sites.len() {
            let same = before.filter(|before| {
                before.sites.get(server).is_some_and(|old| Arc::ptr_eq(&old.now, &pinned.sites[server].now))
            });
            pinned.note_early(server, same.is_some_and(|before| before.quarantine(server).is_none()));
            if pinned.quarantine(server).is_some() && pinned.enforces(server) {
                pinned.mark(server);
            }
        }
        pinned
    }

    /// What pins do about a server: without a lock there is nothing to tell.
    fn mode(&self, server: usize) -> PinMode {
        if self.observe {
            return PinMode::Warn;
        }
        let mode = self.sites[server].settings.mode;
        let without = matches!(&**self.lock.load(), Ok(None));
        if mode == PinMode::Warn && without { PinMode::Off } else { mode }
    }

    /// Whether there is anything to do as long as the gateway runs.
    fn is_at_work(&self) -> bool {
        // Without a lock there is none to compare with, until somebody makes one.
        !self.observe && self.sites.iter().any(|site| site.settings.mode != PinMode::Off)
    }

    /// Whether a server is enforced.
    pub(super) fn enforces(&self, server: usize) -> bool {
        self.sites[server].settings.mode == PinMode::Enforce
    }

    /// Whether a server is enforced and nothing of it is served.
    pub(super) fn is_closed(&self, server: usize) -> bool {
        self.sites[server].closed.load(Ordering::Acquire)
    }

    fn index(&self, key: &ServerKey) -> Option<usize> {
        self.sites.iter().position(|site| site.key == *key)
    }

    fn mark(&self, server: usize) {
        self.generation.fetch_add(1, Ordering::AcqRel);
        self.dirty.lock().unwrap_or_else(PoisonError::into_inner).insert(server);
        self.changed.notify_one();
    }

    /// Waits until verdicts may be others, and says of which servers.
    pub(super) async fn changes(&self) -> BTreeSet<usize> {
        loop {
            let dirty = std::mem::take(&mut *self.dirty.lock().unwrap_or_else(PoisonError::into_inner));
            if !dirty.is_empty() {
                return dirty;
            }
            self.changed.notified().await;
        }
    }

    fn with_locked<T>(&self, server: usize, look: impl FnOnce(Option<&LockedServer>) -> T) -> T {
        let lock = self.lock.load();
        let locked = match &**lock {
            Ok(Some(lock)) => lock.servers.get(&self.sites[server].key),
            Ok(None) | Err(_) => None,
        };
        look(locked)
    }

    /// Why nothing of a server is approved, if so.
    pub(super) fn quarantine(&self, server: usize) -> Option<Quarantine> {
        self.quarantine_by(server, &self.lock.load())
    }

    fn quarantine_by(&self, server: usize, lock: &Result<Option<Lock>, LockFault>) -> Option<Quarantine> {
        let site = &self.sites[server];
        let now = site.now();
        let found = Self::find_quarantine(site, &now, lock);
        drop(now);
        let closed = found.is_some() && site.settings.mode == PinMode::Enforce;
        site.closed.store(closed, Ordering::Release);
        found
    }

    fn find_quarantine(site: &Site, now: &Now, lock: &Result<Option<Lock>, LockFault>) -> Option<Quarantine> {
        if let Some(why) = site.reference.as_ref().and_then(|reference| reference.floating.as_ref()) {
            return Some(Quarantine::Floating(why.to_string()));
        }
        let lock = match lock {
            Err(fault) => return Some(Quarantine::Lock(fault.clone())),
            Ok(None) => return Some(Quarantine::Unlocked),
            Ok(Some(lock)) => lock,
        };
        let enforced = site.settings.mode == PinMode::Enforce;
        if let Some(loose) = lock.loose.as_ref().filter(|_| enforced) {
            return Some(Quarantine::Lock(LockFault::Loose(loose.clone())));
        }
        let Some(locked) = lock.servers.get(&site.key) else { return Some(Quarantine::Unlocked) };
        let observed = &now.observed;
        if let Some(found) = drift::launch_drift(locked, site.launch, observed.artifact.as_ref().filter(|_| !now.early))
        {
            return Some(found);
        }
        let level = locked.artifact.as_ref().map_or(0, |artifact| artifact.level);
        if level < site.settings.min_level {
            return Some(Quarantine::Level { found: level, wanted: site.settings.min_level });
        }
        let said = observed.announced.as_ref().map(|announced| drift::said(&locked.announced, announced));
        let downgrade = said.and_then(|said| said.downgrade).filter(|_| site.settings.strict_protocol);
        downgrade.map(|(found, locked)| Quarantine::Protocol { found, locked })
    }

    /// Notes what a server listed, in the state folder too, and tells of what is not as reviewed.
    pub(super) fn note(&self, server: usize, part: &Part, introduction: &Introduction, instructions: Option<&str>) {
        if self.mode(server) == PinMode::Off {
            return;
        }
        let site = &self.sites[server];
        let mut now = site.now();
        let before = now.observed.announced.take();
        let announced = words::announced(introduction, instructions);
        let mut new = before.as_ref() != Some(&announced) || !now.noted;
        now.observed.announced = Some(announced);
        now.observed.launch = site.launch;
        let kind = part.kind();
        now.failed.remove(&kind);
        let mut names = HashSet::with_capacity(part.len());
        for (name, definition, digest) in part.entries() {
            names.insert(Arc::clone(name));
            let slot = (kind, Arc::clone(name));
            if now.known.get(&slot).is_none_or(|known| known.digest != digest) {
                new = true;
                now.known.insert(slot, Known::read(&Entryway { kind, name, definition, digest }));
            }
        }
        now.known.retain(|(of, name), _| *of != kind || names.contains(name));
        now.states.retain(|(of, name), _| *of != kind || names.contains(name));
        new |= now.observed.lists.get(&kind).is_none_or(|before| before.len() != names.len());
        if new {
            let listed = part.entries().filter_map(|(name, ..)| now.known.get(&(kind, Arc::clone(name))));
            let listed = listed.map(|known| known.listed.clone()).collect();
            now.observed.lists.insert(kind, listed);
        }
        if new && !self.observe {
            match self.memory.note(&site.key, &now.observed) {
                Ok(()) => now.noted = true,
                Err(error) => {
                    tracing::warn!(server = %site.key, %error, "what it listed could not be kept for a review")
                }
            }
        }
        drop(now);
        self.quarantine(server);
    }

    /// What the lock approves of what runs, for policy (E-22): nothing of another program or of one that nobody compares,
    /// no annotations of an entry that is not as reviewed.
    pub(super) fn approved(&self) -> Vec<Approved> {
        let lock = self.lock.load_full();
        let mut all = match &*lock {
            Ok(Some(lock)) => approved(lock, self.sites.iter().map(|site| &site.key)),
            Ok(None) | Err(_) => return Vec::new(),
        };
        for (server, approved) in all.iter_mut().enumerate() {
            if self.mode(server) == PinMode::Off || self.quarantine_by(server, &lock).is_some() {
                *approved = Approved::default();
                continue;
            }
            let now = self.sites[server].now();
            if let Some(measured) = &now.observed.artifact {
                approved.level = approved.level.map(|level| level.min(measured.level));
            }
            let is_approved = |name: &str| now.states.get(&(Kind::Tool, name.into())) == Some(&EntryState::Approved);
            approved.tools.retain(|name, _| is_approved(name));
        }
        all
    }

    /// How much a server may list.
    pub(super) fn list_limits(&self, server: usize) -> ListLimits {
        self.sites[server].lists
    }

    /// What a server was seen to be, where it was listed whole.
    pub(super) fn observed(&self, server: usize) -> Option<Observed> {
        let observed = self.sites[server].now().observed.clone();
        (Kind::ALL.iter().all(|kind| observed.lists.contains_key(kind))).then_some(observed)
    }

    /// Notes whether a server, which was as reviewed until now or was not, runs already where the lock has packages of it since.
    fn note_early(&self, server: usize, was_reviewed: bool) {
        let locked = self.with_locked(server, |locked| locked?.artifact.as_ref()?.packages);
        let mut now = self.sites[server].now();
        let runs = now.observed.artifact.as_ref().is_some_and(|artifact| artifact.packages.is_none());
        now.early = was_reviewed && runs && locked.is_some();
    }

    /// Notes that these lists of a server did not come: the last good ones hold (§5).
    pub(super) fn missed(&self, server: usize, kinds: &[Kind]) {
        self.sites[server].now().failed.extend(kinds);
    }

    /// Where a server stands.
    pub(super) fn state(&self, server: usize) -> ServerState {
        match self.quarantine(server) {
            Some(Quarantine::Unlocked) => ServerState::Unlocked,
            Some(why) => ServerState::Quarantined(why),
            None if self.sites[server].now().failed.is_empty() => ServerState::Locked,
            None => ServerState::Degraded,
        }
    }

    /// How many entries of a server are not as reviewed, its own words not counted.
    pub(super) fn drifted(&self, server: usize) -> usize {
        let now = self.sites[server].now();
        now.states.values().filter(|state| !matches!(state, EntryState::Approved | EntryState::Absent)).count()
    }
}

/// What a lock approves, server by server.
pub fn approved<'k>(lock: &Lock, keys: impl Iterator<Item = &'k ServerKey>) -> Vec<Approved> {
    let hints = |value: &serde_json::Value| {
        let hint = |name: &str, default| value.get(name).and_then(serde_json::Value::as_bool).unwrap_or(default);
        Hints {
            read_only: hint("readOnlyHint", false),
            destructive: hint("destructiveHint", true),
            idempotent: hint("idempotentHint", false),
            open_world: hint("openWorldHint", true),
        }
    };
    let server = |locked: &LockedServer| {
        let level = locked.artifact.as_ref().filter(|_| locked.faults.is_empty()).map(|artifact| artifact.level);
        let tools = locked.annotations().map(|(name, value)| (name.to_owned(), hints(&value))).collect();
        Approved { level, tools }
    };
    keys.map(|key| lock.servers.get(key).map(server).unwrap_or_default()).collect()
}

fn tell(key: &ServerKey, mode: PinMode, now: &mut Now, what: String) {
    if now.told.len() >= MAX_TOLD || !now.told.insert(what.clone()) {
        return;
    }
    now.at_once += 1;
    if now.at_once <= MAX_AT_ONCE {
        tracing::warn!(server = %key, "not as reviewed, {}: {what}", becomes(mode));
    }
}

/// Tells how many more there were than what was told one by one.
fn tell_more(key: &ServerKey, mode: PinMode, now: &mut Now) {
    let more = std::mem::take(&mut now.at_once).saturating_sub(MAX_AT_ONCE);
    if more > 0 {
        tracing::warn!(server = %key, "not as reviewed, {}: {more} more; `onegate diff {key}` shows all", becomes(mode));
    }
}

fn becomes(mode: PinMode) -> &'static str {
    if mode == PinMode::Enforce { "held" } else { "served all the same" }
}

#[cfg(test)]
mod tests;
