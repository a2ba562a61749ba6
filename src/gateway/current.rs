//! The gateway that is in force, and how another configuration takes its place.
//!
//! What fronts hold. A request is served, to its end, by the gateway that was in force when it came; the next one meets the
//! new rules, lists and profiles, all at once. A server whose settings say nothing else of how it is run goes on: its
//! process, what it listed, who subscribed, and what its limits have counted. Knows no file: `daemon` brings settings.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use tokio::sync::{Mutex, OwnedMutexGuard, mpsc, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Gateway;
use super::audiences::Audiences;
use super::bridge::Bridge;
use super::learned::Learned;
use super::lists::{Lists, Place, Seen};
use super::pinned::{Guarded, Pinned};
use super::remembered::Slot;
use super::seal::Seal;
use super::search::Background;
use super::subscriptions::{Below, Subscriptions};
use crate::catalog::View;
use crate::config::settings::{ProfileSettings, Reach, ServerFault, ServerSettings, Settings};
use crate::downstream::{Apart, Connect, EraMemory, Event, News, Pace, Server};
use crate::ident::{Kind, Principal, ServerKey};
use crate::policy::{Clock, Policy, RulesError};
use crate::telemetry::audit::Audit;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::otlp::Otlp;

/// Events of servers that wait to be taken in.
const EVENTS: usize = 64;
/// How long requests that began before a reload may go on at servers that are there no more.
const DRAIN: Duration = Duration::from_secs(30);

/// The time as policy counts it: since 1970, and never turned back. A machine that slept is not behind: of the two clocks
/// that we have, the one that went further is believed.
fn clock() -> Clock {
    let (wall, began) = (SystemTime::now(), tokio::time::Instant::now());
    let unix = wall.duration_since(UNIX_EPOCH).unwrap_or_default();
    let last = AtomicU64::new(0);
    let real = std::time::Instant::now();
    // Rules by the hour follow the machine's clock wherever it is set; what a test adds is the difference.
    let calendar = move || {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        now + began.elapsed().saturating_sub(real.elapsed())
    };
    let clock = Clock::new(move || {
        let passed = began.elapsed().max(wall.elapsed().unwrap_or_default());
        let passed = u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX);
        unix + Duration::from_nanos(last.fetch_max(passed, Ordering::Relaxed).max(passed))
    });
    clock.with_calendar(calendar)
}

/// The gateway that is in force.
pub struct Current {
    now: ArcSwap<Gateway>,
    lasting: Lasting,
    /// What servers say; held by the gateway that takes it in, and by who puts another one in force.
    told: Arc<Mutex<Told>>,
    /// One after the other.
    reloading: Mutex<()>,
    /// How fast they are stopped, once they are.
    stopped: watch::Sender<Option<Pace>>,
}

type Told = (mpsc::Receiver<Event>, mpsc::Receiver<Apart>);

/// What all gateways of a process have in common.
struct Lasting {
    connect: Arc<dyn Connect>,
    /// The pins that are in force.
    pins: Arc<ArcSwap<Pinned>>,
    memory: EraMemory,
    tasks: TaskTracker,
    clock: Clock,
    events: mpsc::Sender<Event>,
    apart: mpsc::Sender<Apart>,
    bridge: Arc<Bridge>,
    learned: Arc<Learned>,
    subscriptions: Arc<Subscriptions>,
    audit: Option<Arc<Audit>>,
    otlp: Option<Arc<Otlp>>,
    /// Where it is kept what servers list.
    catalogue: Option<PathBuf>,
    background: Background,
}

/// Where it is told what happens to requests, beside the numbers; nothing is no place.
#[derive(Default)]
pub struct Sights {
    /// Where decisions are written down.
    pub audit: Option<Arc<Audit>>,
    /// What goes to a collector.
    pub otlp: Option<Arc<Otlp>>,
}

/// What became of the servers, by key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// Those that are new.
    pub added: Vec<String>,
    /// Those that are gone.
    pub removed: Vec<String>,
    /// Those that are started anew, since they are run in another way.
    pub changed: Vec<String>,
    /// How many go on.
    pub kept: usize,
}

impl std::fmt::Display for Reloaded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.kept {
            1 => write!(f, "1 server goes on")?,
            kept => write!(f, "{kept} servers go on")?,
        }
        for (what, keys) in [("added", &self.added), ("started anew", &self.changed), ("removed", &self.removed)] {
            if !keys.is_empty() {
                write!(f, "; {what}: {}", keys.join(", "))?;
            }
        }
        Ok(())
    }
}

/// A configuration that can be put in force: everything in it that may be wrong has been looked at.
struct Compiled {
    settings: Settings,
    /// By place.
    gone: Vec<bool>,
    profiles: Box<[(String, bool)]>,
    policy: Policy,
    views: Vec<View>,
}

impl Compiled {
    /// Compiles all; what `before` had keeps its place.
    fn new(mut settings: Settings, clock: &Clock, before: Option<&Gateway>) -> Result<Self, Vec<RulesError>> {
        let digest = Policy::digest_of(&settings);
        let known = before.map_or(&[][..], |before| &before.servers);
        let (servers, gone) = arrange(
            std::mem::take(&mut settings.servers),
            known.iter().map(|server| server.key().clone()),
            |server| server.key.clone(),
            |key: ServerKey| {
                let message = "it was taken out of the configuration".to_owned();
                let fault = ServerFault { key: format!("servers.{key}"), message };
                ServerSettings::new(key, Err(fault))
            },
        );
        settings.servers = servers;
        let known = before.map_or(&[][..], |before| &before.profiles);
        let (profiles, gone_profiles) = arrange(
            std::mem::take(&mut settings.profiles),
            known.iter().map(|(name, _)| name.clone()),
            |profile| profile.name.clone(),
            // Who is still there sees nothing.
            |name| ProfileSettings { name, servers: Some(Vec::new()), ..ProfileSettings::everything() },
        );
        settings.profiles = profiles;
        let mut policy = Policy::compile(&settings, clock)?.named(digest);
        if let Some(before) = before {
            policy.succeed(&before.policy);
        }
        let keys: Vec<ServerKey> = settings.servers.iter().map(|server| server.key.clone()).collect();
        let views = settings.profiles.iter().map(|profile| View::compile(profile, &keys)).collect::<Result<_, _>>()?;
        let names = settings.profiles.iter().map(|profile| profile.name.clone());
        Ok(Self { profiles: names.zip(gone_profiles).collect(), gone, policy, views, settings })
    }
}

/// Puts what is known in its old places, and what is new behind it. Of what is gone a `husk` stays, and that it is gone.
fn arrange<K: Clone + std::hash::Hash + Eq, T>(
    all: Vec<T>,
    known: impl Iterator<Item = K>,
    key_of: impl Fn(&T) -> K,
    husk: impl Fn(K) -> T,
) -> (Vec<T>, Vec<bool>) {
    let order: Vec<K> = all.iter().map(&key_of).collect();
    let mut all: HashMap<K, T> = all.into_iter().map(|one| (key_of(&one), one)).collect();
    let mut placed: Vec<(T, bool)> = known
        .map(|key| match all.remove(&key) {
            Some(one) => (one, false),
            None => (husk(key), true),
        })
        .collect();
    placed.extend(order.iter().filter_map(|key| all.remove(key)).map(|one| (one, false)));
    placed.into_iter().unzip()
}

impl Current {
    /// Starts all servers. Their actors, and whatever they start, belong to `tasks`; what is told of requests goes to
    /// `sights`. What servers list is kept in the folder `catalogue`, and shown from there before they are started; without,
    /// each is started to list.
    pub fn start(
        settings: Settings,
        connect: Arc<dyn Connect>,
        memory: &EraMemory,
        tasks: &TaskTracker,
        (sights, catalogue): (Sights, Option<PathBuf>),
    ) -> Result<Arc<Self>, Vec<RulesError>> {
        let clock = clock();
        let compiled = Compiled::new(settings, &clock, None)?;
        let Sights { audit, otlp } = sights;
        let pins = Arc::new(ArcSwap::from_pointee(Pinned::new(&compiled.settings, None)));
        let (events, told) = mpsc::channel(EVENTS);
        let (apart, told_apart) = mpsc::channel(EVENTS);
        let lasting = Lasting {
            connect: Arc::new(Guarded { inner: connect, pins: Arc::clone(&pins) }),
            pins,
            memory: memory.clone(),
            tasks: tasks.clone(),
            clock,
            events,
            apart,
            bridge: Arc::new(Bridge::new(tasks)),
            learned: Arc::default(),
            subscriptions: Arc::new(Subscriptions::new(tasks.clone())),
            audit,
            otlp,
            catalogue,
            background: Background::new(tasks.clone()),
        };
        let told = Arc::new(Mutex::new((told, told_apart)));
        let gateway = lasting.build(compiled, None);
        let taken = Arc::clone(&told).try_lock_owned().expect("invariant: nobody else has it yet");
        lasting.follow(&gateway, taken);
        Ok(Arc::new(Self {
            now: ArcSwap::new(gateway),
            lasting,
            told,
            reloading: Mutex::default(),
            stopped: watch::Sender::new(None),
        }))
    }

    /// The gateway that is in force: for one request, not for longer.
    pub fn now(&self) -> Arc<Gateway> {
        self.now.load_full()
    }

    /// Puts another configuration in force. What is wrong with it leaves the old one in force.
    pub async fn reload(&self, settings: Settings) -> Result<Reloaded, Vec<RulesError>> {
        let _turn = self.reloading.lock().await;
        let before = self.now();
        let compiled = Compiled::new(settings, &self.lasting.clock, Some(&before))?;
        // From here on nothing fails.
        before.ended.cancel();
        let told = Arc::clone(&self.told).lock_owned().await;
        self.lasting.pins.store(Arc::new(Pinned::new(&compiled.settings, Some(&before.pins))));
        let gateway = self.lasting.build(compiled, Some(&before));
        let (reloaded, retired) = compare(&before, &gateway);
        self.now.store(Arc::clone(&gateway));
        for (place, server) in gateway.servers.iter().enumerate() {
            if gateway.is_gone(place) {
                self.lasting.learned.forget(place);
            } else if before.servers.get(place).is_some_and(|old| !Arc::ptr_eq(old, server)) {
                self.lasting.subscriptions.renew(place, || server.source());
            }
        }
        self.lasting.follow(&gateway, told);
        // Who waits for changes looks for the new one.
        before.lists.tick();
        let overdue = retired.clone();
        let _ = before.last_had.set((retired, Arc::clone(&gateway)));
        let mut stopped = self.stopped.subscribe();
        if let Some(pace) = *stopped.borrow() {
            gateway.stop(pace);
        }
        if !overdue.is_empty() {
            self.lasting.tasks.spawn(async move {
                let asked = timeout(DRAIN, stopped.wait_for(Option::is_some)).await;
                let pace = asked.ok().and_then(|asked| *asked.ok()?).unwrap_or(Pace::CALM);
                overdue.iter().for_each(|server| server.stop(pace));
            });
        }
        Ok(reloaded)
    }

    /// Stops all servers at this pace; their tasks end.
    pub fn stop(&self, pace: Pace) {
        self.stopped.send_replace(Some(pace));
        self.lasting.background.stop();
        self.now().stop(pace);
    }

    /// Tells when something may be another that a principal sees through a profile, by place.
    pub fn changes(self: &Arc<Self>, principal: &Principal, profile: usize) -> Changes {
        let gateway = self.now();
        let seen = gateway.changes(gateway.sight(principal, profile));
        Changes { current: Arc::clone(self), of: gateway.number, principal: principal.clone(), profile, seen }
    }
}

/// What became of the servers, and those that nobody needs any more.
fn compare(before: &Gateway, now: &Gateway) -> (Reloaded, Vec<Arc<Server>>) {
    let (mut reloaded, mut retired) = (Reloaded::default(), Vec::new());
    for (place, server) in now.servers.iter().enumerate() {
        let old = before.servers.get(place).filter(|_| !before.is_gone(place));
        let key = server.key().to_string();
        match (old, now.is_gone(place)) {
            (None, true) => continue,
            (None, false) => reloaded.added.push(key),
            (Some(_), true) => reloaded.removed.push(key),
            (Some(old), false) if Arc::ptr_eq(old, server) => {
                reloaded.kept += 1;
                continue;
            }
            (Some(_), false) => reloaded.changed.push(key),
        }
        retired.extend(old.cloned());
    }
    (reloaded, retired)
}

impl Lasting {
    /// The gateway of a configuration. Servers that run as they are wanted are taken over from the one before, others
    /// started.
    fn build(&self, compiled: Compiled, before: Option<&Gateway>) -> Arc<Gateway> {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let Compiled { settings, gone, profiles, policy, views } = compiled;
        let (policy, pins) = (Arc::new(policy), self.pins.load_full());
        policy.approve(pins.approved());
        let keys: Vec<ServerKey> = settings.servers.iter().map(|server| server.key.clone()).collect();
        let required = settings.servers.iter().map(|server| server.required).collect();
        let background = self.background.of(&settings, before.map(|before| before.lists.background()));
        let (mut servers, mut places, mut known) = (Vec::new(), Vec::new(), Vec::new());
        for (n, wanted) in settings.servers.into_iter().enumerate() {
            let (key, prefix, overrides) = (wanted.key.clone(), wanted.prefix.clone(), wanted.overrides.clone());
            let http = matches!(wanted.reach, Ok(Reach::Remote(_)));
            let old = before.and_then(|before| before.servers.get(n).map(|server| (server, before.is_gone(n))));
            let slot = self.catalogue.as_deref().and_then(|folder| Slot::of(folder, &wanted)).map(Arc::new);
            let mut listed = None;
            let server = match old {
                Some((server, was_gone)) if gone[n] || !was_gone && server.settings().runs_as(&wanted) => {
                    Arc::clone(server)
                }
                _ => {
                    let news = News { events: self.events.clone(), apart: self.apart.clone() };
                    listed = slot.as_ref().and_then(|slot| slot.read());
                    let is_known = listed.as_ref().is_some_and(|listed| listed.fresh);
                    let (connect, memory) = (Arc::clone(&self.connect), self.memory.clone());
                    Server::run(n, wanted, connect, memory, news, is_known, &self.tasks)
                }
            };
            places.push(Place { key, serial: server.serial(), gone: gone[n], prefix, http, overrides, slot });
            known.push(listed);
            servers.push(server);
        }
        let old = before.map(|before| &*before.lists);
        let bounds = (settings.gateway.name_budget, settings.gateway.list_deadline);
        let is_known = before.is_some() || known.iter().any(Option::is_some);
        let old = (old, known);
        let lists = Lists::new(places, views, Arc::clone(&policy), Arc::clone(&pins), bounds, old, background);
        let lists = Arc::new(lists);
        if is_known {
            lists.go_on();
        }
        let seal = before.filter(|before| before.sealed_by(&settings.gateway)).map(|before| Arc::clone(&before.seal));
        let timings = || self.otlp.as_ref().map(|otlp| Arc::clone(otlp.timings()));
        let metrics = before.map_or_else(|| Metrics::new(&keys).timed(timings()), |before| before.metrics.of(&keys));
        let audiences = Audiences::new(servers.clone(), Arc::clone(&lists), self.tasks.clone());
        Arc::new(Gateway {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            servers,
            required,
            lists,
            audiences,
            policy,
            seal: seal.unwrap_or_else(|| Arc::new(Seal::new(&settings.gateway))),
            bridge: Arc::clone(&self.bridge),
            learned: Arc::clone(&self.learned),
            subscriptions: Arc::clone(&self.subscriptions),
            audit: self.audit.clone(),
            otlp: self.otlp.clone(),
            metrics,
            profiles,
            pins,
            settings: settings.gateway,
            ended: CancellationToken::new(),
            last_had: OnceLock::new(),
        })
    }

    /// Has a gateway take in what servers say and what the lock becomes, until it is not in force any more.
    fn follow(&self, gateway: &Gateway, mut told: OwnedMutexGuard<Told>) {
        let ended = gateway.ended.clone();
        let (relisted, woken) = (gateway.servers.clone(), gateway.servers.clone());
        let relist = move |server: usize| relisted[server].relist();
        gateway.pins.watch(&self.tasks, ended.clone(), relist, move |server| woken[server].wake());
        let (lists, policy) = (Arc::clone(&gateway.lists), Arc::clone(&gateway.policy));
        let (telling, looking) = (Arc::clone(&self.subscriptions), Arc::clone(&gateway.audiences));
        self.tasks.spawn(async move {
            let spell = |server, sight, native: &str, below| {
                policy.exposes(lists.show(sight).class(), server, Kind::Resource, native).ok()?;
                let catalogue = lists.catalogue(sight);
                let exposed = catalogue.expose_uri(server, native);
                // One that no list and no template of the server has may be known to another principal alone (INV-6).
                let owner = |_: &str| (below == Below::Named).then_some(server);
                let route = catalogue.resolve_uri(&exposed, owner)?;
                (route.server == server && route.native == native).then(|| Arc::from(&*exposed))
            };
            let sight = |principal: &Principal, profile| lists.sight(principal, profile);
            let updated = |(server, source), natives: &_| {
                let spell = |sight, native: &str, below| spell(server, sight, native, below);
                telling.updated((server, source), natives, sight, spell);
            };
            let tell_tasks = |server, tasks| telling.tasks(server, tasks);
            let (events, apart) = &mut *told;
            lists
                .follow(
                    (events, apart),
                    &ended,
                    updated,
                    tell_tasks,
                    || looking.look_again(),
                    |server| looking.look_anew(server),
                )
                .await;
        });
    }
}

/// Tells when something may be another that somebody sees, whichever gateway is in force.
pub struct Changes {
    current: Arc<Current>,
    /// The number of the gateway that is followed.
    of: u64,
    principal: Principal,
    profile: usize,
    seen: watch::Receiver<Seen>,
}

impl Changes {
    /// Waits until something may be another than it was. Nothing is lost when the future is dropped.
    pub async fn changed(&mut self) {
        // An error says that the gateway that was followed is gone.
        let _ = self.seen.changed().await;
        let gateway = self.current.now();
        if gateway.number != self.of {
            self.of = gateway.number;
            self.seen = gateway.changes(gateway.sight(&self.principal, self.profile));
        }
        self.seen.mark_unchanged();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_keeps_its_place() {
        let husk = |key: char| key.to_ascii_uppercase();
        let place = |all: &str, known: &str| arrange(all.chars().collect(), known.chars(), |one| *one, husk);
        assert_eq!(place("abc", ""), (vec!['a', 'b', 'c'], vec![false; 3]));
        assert_eq!(place("cxa", "abc"), (vec!['a', 'B', 'c', 'x'], vec![false, true, false, false]));
    }
}
