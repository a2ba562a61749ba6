//! The only room that knows both sides: what hosts ask on the one, servers on the other.
//!
//! Speaks the language of the middle: modern and stateless, the bytes of whoever wrote them. Upstream adapters
//! bring requests in and write answers out in the words of their host's revision.

mod audiences;
mod bridge;
mod fault;
mod grants;
mod invoke;
mod learned;
mod lists;
mod pages;
mod pinned;
mod recorded;
mod refused;
mod seal;
mod status;
mod subscriptions;
mod tasks;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use crate::catalog::{Catalogue, Fingerprint};
pub use crate::downstream::{Connect, EraMemory, Link, Offers, Pace, Processes, State};
pub use bridge::Input;
pub use fault::Failure;
pub use invoke::Outcome;
pub use lists::{ItemList, LIST_DEADLINE, Seen, Sight};
pub use pinned::approved;
pub use refused::Refused;
pub use status::{ProfileStatus, ServerStatus, Status};
pub use subscriptions::{Held, Updates};
pub use tasks::TaskState;

use crate::caller::Caller;
use crate::catalog::View;
use crate::config::settings::{Reach, ServerSettings, Settings};
use crate::downstream::{News, Server};
use crate::ident::{Kind, Principal, ServerKey};
use crate::pins::observed::Observed;
use crate::policy::{Clock, Policy, RulesError};
use crate::telemetry::audit::Audit;
use crate::telemetry::metrics::Metrics;
use audiences::Audiences;
use bridge::Bridge;
use learned::Learned;
use lists::{Lists, Place};
use pinned::{Guarded, Pinned};
use seal::Seal;
use subscriptions::{Below, Subscriptions};

/// Events of servers that wait to be taken in.
const EVENTS: usize = 64;

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

/// The gateway: all servers, what they list, and the way of a call.
pub struct Gateway {
    servers: Vec<Arc<Server>>,
    lists: Arc<Lists>,
    audiences: Arc<Audiences>,
    policy: Arc<Policy>,
    instructions: Option<String>,
    seal: Seal,
    bridge: Bridge,
    learned: Learned,
    subscriptions: Arc<Subscriptions>,
    audit: Option<Arc<Audit>>,
    metrics: Metrics,
    /// Names of the profiles.
    profiles: Box<[String]>,
    pins: Arc<Pinned>,
    /// Ends what looks at the lock.
    ended: CancellationToken,
}

impl Gateway {
    /// Starts all servers. Their actors, and whatever they start, belong to `tasks`.
    pub fn start(
        settings: Settings,
        connect: Arc<dyn Connect>,
        memory: &EraMemory,
        tasks: &TaskTracker,
    ) -> Result<Arc<Self>, Vec<RulesError>> {
        Self::start_with(settings, connect, memory, tasks, None)
    }

    /// The same, and every decision is written down there.
    pub fn start_with(
        settings: Settings,
        connect: Arc<dyn Connect>,
        memory: &EraMemory,
        tasks: &TaskTracker,
        audit: Option<Arc<Audit>>,
    ) -> Result<Arc<Self>, Vec<RulesError>> {
        let policy = Arc::new(Policy::compile(&settings, &clock())?);
        let keys: Vec<ServerKey> = settings.servers.iter().map(|server| server.key.clone()).collect();
        let views = settings.profiles.iter().map(|profile| View::compile(profile, &keys));
        let views = views.collect::<Result<Vec<_>, _>>()?;
        let place = |server: &ServerSettings| Place {
            key: server.key.clone(),
            prefix: server.prefix.clone(),
            http: matches!(server.reach, Ok(Reach::Remote(_))),
            overrides: server.overrides.clone(),
        };
        let places = settings.servers.iter().map(place).collect();
        let profiles = settings.profiles.iter().map(|profile| profile.name.clone()).collect();
        let pins = Arc::new(Pinned::new(&settings));
        policy.approve(pins.approved());
        let connect: Arc<dyn Connect> = Arc::new(Guarded { inner: connect, pins: Arc::clone(&pins) });
        let budget = settings.gateway.name_budget;
        let lists = Arc::new(Lists::new(places, views, Arc::clone(&policy), Arc::clone(&pins), budget));
        let seal = Seal::new(&settings.gateway);
        let subscriptions = Arc::new(Subscriptions::new(tasks.clone()));
        let (events, told) = mpsc::channel(EVENTS);
        let (apart, told_apart) = mpsc::channel(EVENTS);
        let servers: Vec<_> = settings
            .servers
            .into_iter()
            .enumerate()
            .map(|(n, server)| {
                let news = News { events: events.clone(), apart: apart.clone() };
                Server::run(n, server, Arc::clone(&connect), memory.clone(), news, tasks)
            })
            .collect();
        let audiences = Audiences::new(servers.clone(), Arc::clone(&lists), tasks.clone());
        let looking = Arc::clone(&audiences);
        let stop = CancellationToken::new();
        let (relisted, woken) = (servers.clone(), servers.clone());
        let relist = move |server: usize| relisted[server].relist();
        pins.watch(tasks, stop.clone(), relist, move |server| woken[server].wake());
        let (following, telling, visible) = (Arc::clone(&lists), Arc::clone(&subscriptions), Arc::clone(&policy));
        tasks.spawn(async move {
            let spell = |server, sight, native: &str, below| {
                visible.exposes(following.show(sight).class(), server, Kind::Resource, native).ok()?;
                let catalogue = following.catalogue(sight);
                let exposed = catalogue.expose_uri(server, native);
                // One that no list and no template of the server has may be known to another principal alone (INV-6).
                let owner = |_: &str| (below == Below::Named).then_some(server);
                let route = catalogue.resolve_uri(&exposed, owner)?;
                (route.server == server && route.native == native).then(|| Arc::from(&*exposed))
            };
            let updated = |(server, source), natives: &_| {
                let spell = |sight, native: &str, below| spell(server, sight, native, below);
                telling.updated((server, source), natives, spell);
            };
            let tell_tasks = |server, tasks| telling.tasks(server, tasks);
            following
                .follow(told, told_apart, updated, tell_tasks, || looking.look_again(), |n| looking.look_anew(n))
                .await;
        });
        let instructions = settings.gateway.instructions;
        let (bridge, learned) = (Bridge::new(tasks), Learned::default());
        Ok(Arc::new(Self {
            servers,
            lists,
            audiences,
            policy,
            instructions,
            seal,
            bridge,
            learned,
            subscriptions,
            audit,
            metrics: Metrics::new(&keys),
            profiles,
            pins,
            ended: stop,
        }))
    }

    /// The servers, in the order of the settings.
    pub fn servers(&self) -> &[Arc<Server>] {
        &self.servers
    }

    /// What a principal sees through a profile.
    pub fn sight(&self, principal: &Principal, profile: usize) -> Sight {
        self.lists.sight(principal, profile)
    }

    /// The same of whoever calls.
    fn sight_of(&self, caller: &Caller) -> Sight {
        self.lists.sight(&caller.principal, caller.profile)
    }

    /// What is allowed, and how often.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Everything that is seen now.
    pub fn catalogue(&self, sight: Sight) -> Arc<Catalogue> {
        self.lists.catalogue(sight)
    }

    /// Waits until every server has listed or failed, without the hosts' deadline but with each server's own.
    pub async fn settle(&self) {
        let longest = self.servers.iter().map(|server| server.settings().timeouts.start * 2).max();
        let deadline = tokio::time::Instant::now() + longest.unwrap_or_default();
        self.lists.settle_until(deadline).await;
    }

    /// Tells of changes of what is seen.
    pub fn changes(&self, sight: Sight) -> watch::Receiver<Seen> {
        self.lists.changes(sight)
    }

    /// What a caller sees, in short: its own, where servers list something else to it than to all.
    pub fn seen(&self, caller: &Caller) -> Seen {
        self.audiences.seen(caller)
    }

    /// What is known now of the instructions for the model.
    pub fn instructions(&self, sight: Sight) -> String {
        self.lists.instructions(sight, self.instructions.as_deref())
    }

    /// What is offered to hosts: what any of the servers that they see offers. A server that has not said yet may offer
    /// anything, as hosts take the answer for good (§9.1); so nothing is waited for (CON-8).
    pub fn offers(&self, sight: Sight) -> Offers {
        let mut all = Offers { tools: Some(true), ..Offers::default() };
        for offers in self.lists.offers(sight) {
            let offers = offers.unwrap_or_else(Offers::everything);
            all.prompts = all.prompts.or(offers.prompts.map(|_| true));
            all.resources = all.resources.or(offers.resources.map(|_| true));
            all.subscribe |= offers.subscribe;
            all.completions |= offers.completions && offers.has_references();
            all.logging |= offers.logging;
            all.ui = all.ui.or(offers.ui);
            all.tasks |= offers.tasks;
        }
        all
    }

    /// What a server was seen to be, where all of its lists came.
    pub fn observed(&self, server: usize) -> Option<Observed> {
        self.pins.observed(server)
    }

    /// How many entries of a server are not as they were reviewed.
    pub fn drifted(&self, server: usize) -> usize {
        self.pins.drifted(server)
    }

    /// Stops all servers at this pace; their tasks end.
    pub fn stop(&self, pace: Pace) {
        self.bridge.stop();
        self.ended.cancel();
        for server in &self.servers {
            server.stop(pace);
        }
    }
}
