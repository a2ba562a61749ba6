//! What becomes of what servers list, by their pins (threat model §5): the one state that lists and calls read.
//!
//! Reads the lock and never writes it; what it sees goes to the state folder before a hold shows. An entry's verdict is the
//! hash's ([`drift`]), the mode says what follows. Used by [`super::lists`], [`super::audiences`] and the way of a call;
//! asked by `downstream` through [`Guarded`] before anything is started.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use bytes::Bytes;
use tokio::sync::Notify;
use tokio_util::task::TaskTracker;

use crate::catalog::{Part, Pin};
use crate::config::settings::{Additions, PinMode, PinSettings, ServerSettings, Settings};
use crate::downstream::{Answering, Connect, Introduction, Link, Offers, Served};
use crate::ident::{Kind, ServerKey};
use crate::pins::artifact::{Artifact, Reference, reference};
use crate::pins::canonical::{self, NotCanonical};
use crate::pins::drift::{self, Compared, EntryState, Finding, Hold, Quarantine};
use crate::pins::facet::{Facet, Hash, Hashes, capabilities_hash, instructions_hash};
use crate::pins::launch::launch_hash;
use crate::pins::lint;
use crate::pins::lock::{Announced, Entry, Lock, LockFault, LockedServer, snapshots};
use crate::pins::observed::{Listed, Memory, Observed};
use crate::policy::{Approved, Hints};
use crate::shown::shown_str;

/// How often it is looked whether the lock is another.
const LOOK: Duration = Duration::from_millis(500);
/// Things that were told of one server and are not told again.
const MAX_TOLD: usize = 10_000;

/// What tells one state of a file from another.
type Stamp = Option<(u64, i64, i64, u64, u32)>;

/// All pins of a gateway.
pub(super) struct Pinned {
    sites: Vec<Site>,
    path: PathBuf,
    recheck: Duration,
    /// For a look alone.
    observe: bool,
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
    launch: Option<Hash>,
    reference: Option<Reference>,
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
    /// It was seen to be as it is written in the state folder.
    noted: bool,
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
                launch,
                reference: server.reach.as_ref().ok().map(reference),
                now,
                closed: AtomicBool::new(false),
            }
        };
        let generation = before.map_or(0, |before| before.generation.load(Ordering::Acquire) + 1);
        let pinned = Self {
            sites: settings.servers.iter().enumerate().map(site).collect(),
            path: settings.pins.lock.clone(),
            recheck: settings.pins.recheck,
            observe: settings.pins.observe,
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
        !self.observe && (0..self.sites.len()).any(|server| self.mode(server) != PinMode::Off)
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

    /// Keeps looking whether the lock is another, and has pinned servers listed anew in time; `relist` does that.
    pub(super) fn watch(
        self: &Arc<Self>,
        tasks: &TaskTracker,
        stop: tokio_util::sync::CancellationToken,
        relist: impl Fn(usize) + Send + 'static,
    ) {
        if !self.is_at_work() {
            return;
        }
        let pinned = Arc::clone(self);
        tasks.spawn(async move {
            let mut seen = pinned.stamp();
            let mut listed = tokio::time::Instant::now();
            while stop.run_until_cancelled(tokio::time::sleep(LOOK)).await.is_some() {
                let stamp = pinned.stamp();
                let other = stamp != seen;
                // Others write the lock before its snapshots, or into those alone.
                if other || pinned.is_faulty() {
                    seen = stamp;
                    pinned.reload(other);
                }
                if listed.elapsed() >= pinned.recheck {
                    listed = tokio::time::Instant::now();
                    // What some hosts have alone is listed anew before their next call.
                    pinned.generation.fetch_add(1, Ordering::AcqRel);
                    (0..pinned.sites.len()).filter(|server| pinned.mode(*server) != PinMode::Off).for_each(&relist);
                }
            }
        });
    }

    /// What tells one state of the lock's file, and of the folder beside it, from another.
    fn stamp(&self) -> [Stamp; 2] {
        use std::os::unix::fs::MetadataExt as _;
        [self.path.clone(), snapshots(&self.path)].map(|path| {
            let about = std::fs::metadata(path).ok()?;
            Some((about.ino(), about.mtime(), about.mtime_nsec(), about.len(), about.mode()))
        })
    }

    /// Whether something of the lock cannot be used as it is: it is read until it can.
    fn is_faulty(&self) -> bool {
        match &**self.lock.load() {
            Ok(Some(lock)) => lock.servers.values().any(|server| {
                !server.faults.is_empty()
                    || server.entries.values().any(|entry| !entry.blocked && entry.definition.is_none())
            }),
            Ok(None) => false,
            Err(_) => true,
        }
    }

    /// Reads the lock anew; `other`: it is another one for sure.
    fn reload(&self, other: bool) {
        let digest = |lock: &Result<Option<Lock>, LockFault>| match lock {
            Ok(Some(lock)) => lock.digest.to_string(),
            Ok(None) => "none".to_owned(),
            Err(fault) => fault.to_string(),
        };
        // How much of it can be used.
        let usable = |lock: &Result<Option<Lock>, LockFault>| -> Vec<(usize, usize)> {
            let servers = lock.iter().flatten().flat_map(|lock| lock.servers.values());
            let entries = |server: &LockedServer| server.entries.values().filter(|e| e.definition.is_some()).count();
            servers.map(|server| (server.faults.len(), entries(server))).collect()
        };
        let lock = Lock::read(&self.path);
        let (old, new) = (digest(&self.lock.load()), digest(&lock));
        if !other && old == new && usable(&self.lock.load()) == usable(&lock) {
            return;
        }
        tracing::info!(lock = %self.path.display(), old, new, "the lock was changed");
        self.lock.store(Arc::new(lock));
        for server in 0..self.sites.len() {
            self.sites[server].now().told.clear();
            self.mark(server);
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
        let found = Self::find_quarantine(site, &now.observed, lock);
        drop(now);
        let closed = found.is_some() && site.settings.mode == PinMode::Enforce;
        site.closed.store(closed, Ordering::Release);
        found
    }

    fn find_quarantine(site: &Site, observed: &Observed, lock: &Result<Option<Lock>, LockFault>) -> Option<Quarantine> {
        if let Some(why) = site.reference.as_ref().and_then(|reference| reference.floating.clone()) {
            return Some(Quarantine::Floating(why));
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
        if let Some(found) = drift::launch_drift(locked, site.launch, observed.artifact.as_ref()) {
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
        let announced = announced(introduction, instructions);
        let mut new = before.as_ref() != Some(&announced) || !now.noted;
        now.observed.announced = Some(announced);
        now.observed.launch = site.launch;
        let kind = part.kind();
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

    /// What pins say of each entry of a list.
    pub(super) fn grade(&self, server: usize, part: &Part) -> Option<Part> {
        if self.observe {
            return None;
        }
        let mode = self.mode(server);
        let blocks = || {
            self.with_locked(server, |locked| {
                locked.is_some_and(|locked| locked.entries.values().any(|entry| entry.blocked))
            })
        };
        if mode == PinMode::Off && !blocks() {
            return None;
        }
        // One lock for all of it: another one may come meanwhile.
        let lock = self.lock.load_full();
        let quarantine = self.quarantine_by(server, &lock);
        self.tell_server(server, mode, quarantine.as_ref());
        let pins: Vec<_> = part
            .entries()
            .map(|(name, definition, digest)| {
                let entry = Entryway { kind: part.kind(), name, definition, digest };
                self.verdict(server, mode, quarantine.is_some(), &lock, &entry)
            })
            .collect();
        Some(part.pinned(pins))
    }

    fn verdict(
        &self,
        server: usize,
        mode: PinMode,
        quarantined: bool,
        lock: &Result<Option<Lock>, LockFault>,
        entry: &Entryway<'_>,
    ) -> Pin {
        let site = &self.sites[server];
        let held = |hold| Pin::Held(Arc::new(hold));
        if mode == PinMode::Enforce && quarantined {
            return held(Hold::Quarantined);
        }
        let locked = match lock {
            Ok(Some(lock)) => lock.servers.get(&site.key),
            Ok(None) | Err(_) => None,
        };
        let Some(locked) = locked else {
            return if mode == PinMode::Enforce { held(Hold::Quarantined) } else { Pin::Live };
        };
        let reviewed = locked.entries.get(&(entry.kind, entry.name.to_string()));
        if reviewed.is_some_and(|reviewed| reviewed.blocked) {
            return held(Hold::Blocked);
        }
        if mode == PinMode::Off || entry.kind == Kind::Resource && reviewed.is_none() {
            // Sets of resources are dynamic; what was reviewed by its URI is compared.
            return Pin::Live;
        }
        let mut now = site.now();
        let now = &mut *now;
        let slot = (entry.kind, Arc::clone(entry.name));
        let mut fresh;
        let known = match now.known.get_mut(&slot).filter(|known| known.digest == entry.digest) {
            Some(known) => known,
            None => {
                fresh = Known::read(entry);
                &mut fresh
            }
        };
        let compared = known.compare(entry.kind, reviewed);
        let hides = compared.finding == Finding::New
            && known.listed.definition.as_ref().is_ok_and(|definition| !lint::hidden_text(definition).is_empty());
        let before = now.states.get(&slot).copied().unwrap_or(EntryState::Absent);
        let state = before.after(compared.finding);
        now.states.insert(slot, state);
        if state != EntryState::Approved {
            let facets: Vec<_> = compared.facets.iter().map(|facet| facet.as_str()).collect();
            let what = format!("{} {:?} is {state} ({})", entry.kind, shown_str(entry.name), facets.join(", "));
            tell(&site.key, mode, now, what);
        }
        if mode == PinMode::Warn {
            return Pin::Live;
        }
        let snapshot = |reviewed: &Entry| reviewed.definition.as_ref().map(|found| found.text.clone());
        let served = |reviewed: Option<&Entry>| match reviewed.and_then(snapshot) {
            Some(text) => Pin::Locked(text),
            // Without its snapshot nothing is approved.
            None => held(Hold::Pending),
        };
        match compared.finding {
            Finding::Equal => served(reviewed),
            Finding::Differs => {
                let tolerated = |facet: &Facet| site.settings.tolerate.iter().any(|word| word == facet.as_str());
                if !compared.relaxed && !compared.facets.is_empty() && compared.facets.iter().all(tolerated) {
                    served(reviewed)
                } else {
                    held(Hold::Changed(compared.facets))
                }
            }
            Finding::New => {
                let open = match site.settings.additions {
                    Additions::Hold => false,
                    Additions::AllowReadonlyTemplate => entry.kind == Kind::Template,
                    Additions::Allow => true,
                };
                // What hides something is looked at first (T-01).
                if open && !hides { Pin::Live } else { held(Hold::Pending) }
            }
            Finding::Unfit if reviewed.is_some() => held(Hold::Changed(Vec::new())),
            Finding::Unfit | Finding::Gone | Finding::Unknown => held(Hold::Pending),
            Finding::Refused => held(Hold::Blocked),
        }
    }

    /// What is held of a server that was never listed: what was reviewed of it, so that hosts are told why it is not there.
    pub(super) fn held_of(&self, server: usize, kind: Kind) -> Option<Part> {
        if !self.is_closed(server) {
            return None;
        }
        let texts: Vec<_> = self.with_locked(server, |locked| {
            let entries = locked.into_iter().flat_map(|locked| &locked.entries);
            let of_kind = entries.filter(|((of, _), entry)| *of == kind && !entry.blocked);
            of_kind.filter_map(|(_, entry)| entry.definition.as_ref().map(|found| found.text.clone())).collect()
        });
        if texts.is_empty() {
            return None;
        }
        let page = [b"[".as_slice(), &texts.join(&b','), b"]"].concat();
        let part = Part::parse(kind, &[page.into()]).ok()?;
        let pins = vec![Pin::Held(Arc::new(Hold::Quarantined)); part.len()];
        Some(part.pinned(pins))
    }

    /// A server's words to the model, where they are as reviewed (T-03).
    pub(super) fn instructions(&self, server: usize, words: Option<String>) -> Option<String> {
        if self.mode(server) != PinMode::Enforce {
            return words;
        }
        if self.is_closed(server) {
            return None;
        }
        let hash = instructions_hash(words.as_deref().unwrap_or_default());
        let approved = |locked: &LockedServer| {
            locked.announced.instructions.as_ref().map_or(instructions_hash(""), |(hash, _)| *hash)
        };
        let same = self.with_locked(server, |locked| locked.is_some_and(|locked| approved(locked) == hash));
        words.filter(|_| same)
    }

    /// What of a server's offers is offered to hosts: nothing that was not reviewed.
    pub(super) fn offers(&self, server: usize, offers: &Offers) -> Offers {
        if self.mode(server) != PinMode::Enforce {
            return offers.clone();
        }
        if self.is_closed(server) {
            return Offers::default();
        }
        let (capabilities, old) = self.with_locked(server, |locked| {
            let announced = locked.map(|locked| &locked.announced);
            let capabilities = announced.and_then(|announced| announced.capabilities.as_ref());
            let old = announced.and_then(|announced| announced.protocol.as_deref()) == Some("2024-11-05");
            (capabilities.map(|(_, value)| value.to_string()), old)
        });
        // It said nothing of itself then, and was asked for everything.
        let Some(capabilities) = capabilities else { return offers.clone() };
        let reviewed = Offers::read(capabilities.as_bytes());
        let both = |now: Option<bool>, then: Option<bool>| now.zip(then).map(|(now, _)| now);
        Offers {
            tools: both(offers.tools, reviewed.tools),
            prompts: both(offers.prompts, reviewed.prompts),
            resources: both(offers.resources, reviewed.resources),
            subscribe: offers.subscribe && reviewed.subscribe,
            completions: offers.completions && (reviewed.completions || old),
            logging: offers.logging && reviewed.logging,
            ui: offers.ui.clone().filter(|_| reviewed.ui.is_some()),
            tasks: offers.tasks && reviewed.tasks,
            task_calls: offers.task_calls && reviewed.task_calls,
        }
    }

    /// Tells of what is not as reviewed about a server as a whole.
    fn tell_server(&self, server: usize, mode: PinMode, quarantine: Option<&Quarantine>) {
        let site = &self.sites[server];
        let mut now = site.now();
        if let Some(quarantine) = quarantine {
            tell(&site.key, mode, &mut now, quarantine.to_string());
            return;
        }
        let Some(announced) = now.observed.announced.clone() else { return };
        let said = self.with_locked(server, |locked| locked.map(|locked| drift::said(&locked.announced, &announced)));
        let Some(said) = said else { return };
        if said.renamed {
            tell(&site.key, mode, &mut now, "it announces another name or version".to_owned());
        }
        if said.instructions {
            tell(&site.key, mode, &mut now, "its instructions are others".to_owned());
        }
        if let Some(new) = said.capabilities {
            let new: Vec<_> = new.iter().map(|name| shown_str(name)).collect();
            tell(&site.key, mode, &mut now, format!("its capabilities are others; new: {}", new.join(", ")));
        }
        if let Some((now_spoken, locked)) = said.downgrade {
            let what = format!("protocol-downgrade: it speaks {}, older than {locked}", shown_str(&now_spoken));
            tell(&site.key, mode, &mut now, what);
        }
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

    /// What a server was seen to be, where it was listed whole.
    pub(super) fn observed(&self, server: usize) -> Option<Observed> {
        let observed = self.sites[server].now().observed.clone();
        (Kind::ALL.iter().all(|kind| observed.lists.contains_key(kind))).then_some(observed)
    }

    /// How many entries of a server are not as reviewed, its own words not counted.
    pub(super) fn drifted(&self, server: usize) -> usize {
        let now = self.sites[server].now();
        now.states.values().filter(|state| !matches!(state, EntryState::Approved | EntryState::Absent)).count()
    }

    /// Whether a server may be started: what is launched is what was reviewed (E-09, E-10).
    async fn clear(&self, server: usize) -> Result<(), String> {
        let mode = self.mode(server);
        if mode == PinMode::Off {
            return Ok(());
        }
        let site = &self.sites[server];
        let measured = match &site.reference {
            // Files may be large.
            Some(reference) => measure(reference.clone()).await,
            None => Ok(None),
        };
        let before = self.quarantine(server);
        match measured {
            Ok(artifact) => {
                let level = |artifact: &Option<Artifact>| artifact.as_ref().map(|artifact| artifact.level);
                let locked = self.with_locked(server, |locked| locked.and_then(|locked| level(&locked.artifact)));
                let mut now = site.now();
                let other = level(&artifact) != level(&now.observed.artifact).or(locked);
                now.observed.artifact = artifact;
                drop(now);
                if other {
                    self.mark(server);
                }
            }
            Err(error) if mode == PinMode::Enforce => return Err(format!("what it runs cannot be read: {error}")),
            Err(_) => {}
        }
        let quarantine = self.quarantine(server);
        if quarantine != before {
            self.mark(server);
        }
        let Some(quarantine) = quarantine.filter(|_| !self.observe) else { return Ok(()) };
        self.tell_server(server, mode, Some(&quarantine));
        // What only its words say, or that nobody has reviewed it, is seen when it is listed: for the inventory.
        let starts = match quarantine {
            Quarantine::Unlocked | Quarantine::Protocol { .. } | Quarantine::Level { .. } => true,
            Quarantine::Lock(_) | Quarantine::Launch | Quarantine::Artifact(_) | Quarantine::Floating(_) => false,
        };
        if mode == PinMode::Enforce && !starts {
            return Err(format!("not started: {quarantine}"));
        }
        Ok(())
    }

    /// What of a list may be called.
    fn served(&self, server: usize, kind: Kind, pages: &[Bytes]) -> Served {
        let Ok(part) = Part::parse(kind, pages) else { return Served::default() };
        let lock = self.lock.load_full();
        let quarantined = self.quarantine_by(server, &lock).is_some();
        let mut served = Served { is_read: true, ..Served::default() };
        for (name, definition, digest) in part.entries() {
            let entry = Entryway { kind, name, definition, digest };
            let pin = self.verdict(server, PinMode::Enforce, quarantined, &lock, &entry);
            let names = if matches!(pin, Pin::Held(_)) { &mut served.held } else { &mut served.open };
            names.insert(name.to_string());
        }
        served
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

/// A definition that was read, and its hashes.
struct Known {
    /// What tells it from others.
    digest: [u8; 16],
    listed: Listed,
    /// With these pointers ignored.
    hashes: Option<(Vec<String>, Result<Hashes, NotCanonical>)>,
}

impl Known {
    fn read(entry: &Entryway<'_>) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let listed = Listed { name: entry.name.to_string(), definition: canonical::read(entry.definition), since };
        Self { digest: entry.digest, listed, hashes: None }
    }

    /// Compares it with what the lock says of it; hashed once.
    fn compare(&mut self, kind: Kind, reviewed: Option<&Entry>) -> Compared {
        let ignore = reviewed.map_or(&[][..], |reviewed| &reviewed.ignore);
        let (_, hashes) = match self.hashes.take() {
            Some(known) if known.0 == ignore => self.hashes.insert(known),
            _ => self.hashes.insert((ignore.to_vec(), self.listed.hashes(kind, ignore))),
        };
        let definition = self.listed.definition.as_ref().unwrap_or(&serde_json::Value::Null);
        drift::compare(reviewed, hashes.as_ref(), definition)
    }
}

/// A listed entry.
struct Entryway<'a> {
    kind: Kind,
    name: &'a Arc<str>,
    definition: &'a Bytes,
    digest: [u8; 16],
}

fn tell(key: &ServerKey, mode: PinMode, now: &mut Now, what: String) {
    if now.told.len() >= MAX_TOLD || !now.told.insert(what.clone()) {
        return;
    }
    let held = if mode == PinMode::Enforce { "held" } else { "served all the same" };
    tracing::warn!(server = %key, "not as reviewed, {held}: {what}");
}

/// Reads what is launched, which may be large; awaited at once by who asked.
async fn measure(reference: Reference) -> std::io::Result<Option<Artifact>> {
    tokio::task::spawn_blocking(move || reference.measure().map(Some)).await.map_err(std::io::Error::other)?
}

fn announced(introduction: &Introduction, instructions: Option<&str>) -> Announced {
    let capabilities = introduction.capabilities.as_deref().and_then(|raw| {
        let value = canonical::read(raw).ok()?;
        Some((capabilities_hash(&value).ok()?, value))
    });
    let words = instructions.unwrap_or_default();
    Announced {
        name: introduction.name.clone(),
        version: introduction.version.clone(),
        protocol: Some(introduction.protocol.to_owned()),
        capabilities,
        instructions: Some((instructions_hash(words), words.to_owned())),
    }
}

/// A way to servers that asks the pins before anything is started.
pub(super) struct Guarded {
    pub(super) inner: Arc<dyn Connect>,
    /// Those that are in force.
    pub(super) pins: Arc<ArcSwap<Pinned>>,
}

impl Connect for Guarded {
    fn connect(&self, server: &ServerSettings) -> Result<Link, String> {
        self.inner.connect(server)
    }

    fn clear<'a>(&'a self, server: &'a ServerSettings) -> Answering<'a, Result<(), String>> {
        Box::pin(async move {
            let pins = self.pins.load_full();
            match pins.index(&server.key) {
                Some(index) => pins.clear(index).await?,
                None => return Err("it is not one of the servers".to_owned()),
            }
            self.inner.clear(server).await
        })
    }

    fn served(&self, server: &ServerSettings, kind: Kind, pages: &[Bytes]) -> Served {
        let pins = self.pins.load();
        pins.index(&server.key).map(|index| pins.served(index, kind, pages)).unwrap_or_default()
    }

    fn generation(&self) -> u64 {
        self.pins.load().generation.load(Ordering::Acquire)
    }
}

#[cfg(test)]
#[path = "pinned_tests.rs"]
mod tests;
