//! The commands of pins: what is to be reviewed, and a yes or a no to it (threat model §6). The only writers of the lock.
//!
//! Servers are started as the gateway starts them, by a gateway that only looks. Nothing here is reachable through MCP.

pub(super) mod approve;
pub(super) mod diff;
mod first;
mod install;
pub(super) mod lock;
mod text;
pub(super) mod verify;

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use serde_json::{Value, json};

use super::exit::Exit;
use super::progress::Starting;
use super::{Common, out, run};
use crate::config::settings::{PinMode, ServerSettings, Settings, Start};
use crate::daemon::Daemon;
use crate::gateway::{self, Pace};
use crate::ident::{Kind, ServerKey};
use crate::moment;
use crate::pins::artifact;
use crate::pins::drift::EntryState;
use crate::pins::launch::launch_hash;
use crate::pins::lock::{Lock, LockFault, LockedServer};
use crate::pins::managed::Site;
use crate::pins::observed::{Memory, Observed};
use crate::pins::review;
use crate::policy::Policy;
use crate::shown::shown_str;

/// Flags of commands that start a gateway for hosts.
#[derive(clap::Args)]
pub(super) struct Demands {
    /// Do not start unless there is a lock that has every configured server.
    #[arg(long)]
    locked: bool,
    /// Without a lock: write one of what the servers are now, and say what was trusted. Not for CI.
    #[arg(long, conflicts_with = "locked")]
    trust_on_first_use: bool,
}

impl Demands {
    /// Whether a gateway may start. Why not is told.
    pub(super) fn may(&self, common: &Common, settings: &Settings) -> anyhow::Result<()> {
        if self.locked {
            all_locked(settings).map_err(|why| tell_lock(&why))?;
        }
        if self.trust_on_first_use { first::trust(common, settings) } else { Ok(()) }
    }

    /// Whether something is demanded for as long as it runs, which another process was not asked for.
    pub(super) fn last(&self) -> bool {
        self.locked
    }

    /// Whether another configuration may take the place of the one that it started with; else why not.
    pub(super) fn still(&self) -> impl Fn(&Settings) -> Result<(), String> + Send + Sync + use<> {
        let locked = self.locked;
        move |settings| if locked { all_locked(settings) } else { Ok(()) }
    }
}

/// What a look at running servers found.
pub(super) struct Seen {
    /// What each server was seen to be.
    pub(super) observed: BTreeMap<ServerKey, Observed>,
    /// Which could not be used, and why.
    pub(super) failed: BTreeMap<ServerKey, String>,
}

/// Starts these servers in processes of their own, lists them and stops them.
pub(super) fn observe(
    load: &mut dyn FnMut() -> anyhow::Result<Settings>,
    keys: &BTreeSet<ServerKey>,
) -> anyhow::Result<Seen> {
    let mut settings = load()?;
    settings.servers.retain(|server| keys.contains(&server.key));
    settings.pins.observe = true;
    for server in &mut settings.servers {
        server.start = Start::Eager;
        server.pin.mode = PinMode::Warn;
    }
    settings.telemetry.audit = None;
    run::block_on(async {
        let daemon = Daemon::start(settings)?;
        Starting::new().settle(&daemon.gateway()).await;
        let mut seen = Seen { observed: BTreeMap::new(), failed: BTreeMap::new() };
        let gateway = daemon.gateway();
        for server in gateway.servers() {
            match gateway.observed(server.index()) {
                Some(observed) => drop(seen.observed.insert(server.key().clone(), observed)),
                None => {
                    let why = server.last_error().unwrap_or_else(|| "it was not ready in time".to_owned());
                    seen.failed.insert(server.key().clone(), why);
                }
            }
        }
        daemon.stop(Pace::SWIFT).await;
        Ok(seen)
    })?
}

/// Says which servers could not be used.
pub(super) fn tell_failed(seen: &Seen) {
    for (key, why) in &seen.failed {
        out::say(&format!("onegate: server {key} cannot be used: {why}"));
    }
}

/// Reads the lock; what is wrong with it is told.
pub(super) fn read_lock(settings: &Settings) -> Result<Option<Lock>, Exit> {
    usable_lock(settings).map_err(|why| tell_lock(&why))
}

/// Says why a lock cannot be used.
fn tell_lock(why: &str) -> Exit {
    why.lines().for_each(|line| out::say(&format!("onegate: {line}")));
    Exit::LockInvalid
}

/// The lock, if there is one; else all that is wrong with it, a line for each.
fn usable_lock(settings: &Settings) -> Result<Option<Lock>, String> {
    let path = settings.pins.lock.display();
    let Some(lock) = Lock::read(&settings.pins.lock).map_err(|fault| format!("{path}: {fault}"))? else {
        return Ok(None);
    };
    let enforced = settings.servers.iter().any(|server| server.pin.mode == PinMode::Enforce);
    let loose = lock.loose.clone().filter(|_| enforced).map(LockFault::Loose);
    let loose = loose.map(|fault| format!("{path}: {fault}"));
    let of_servers = lock.faults().map(|(key, fault)| format!("{path}: {key}: {fault}"));
    let faults: Vec<_> = loose.into_iter().chain(of_servers).collect();
    if faults.is_empty() { Ok(Some(lock)) } else { Err(faults.join("\n")) }
}

/// Tells policy what the lock approves; a lock that cannot be read approves nothing.
pub(super) fn approve(settings: &Settings, policy: &Policy) {
    if let Ok(Some(lock)) = Lock::read(&settings.pins.lock) {
        policy.approve(gateway::approved(&lock, settings.servers.iter().map(|server| &server.key)));
    }
}

/// Where an entry stands by what a gateway saw last, for people and scripts; null where pins say nothing.
pub(super) fn pin_of(settings: &Settings, server: usize, kind: Kind, native: &str) -> Value {
    let Some(server) = settings.servers.get(server).filter(|server| server.pin.mode != PinMode::Off) else {
        return Value::Null;
    };
    let mode = server.pin.mode.as_str();
    let lock = match Lock::read(&settings.pins.lock) {
        Ok(Some(lock)) => lock,
        Ok(None) if server.pin.mode == PinMode::Warn => return Value::Null,
        Ok(None) | Err(_) => return json!({ "mode": mode, "state": "quarantined", "facets": [] }),
    };
    let locked = lock.servers.get(&server.key);
    let observed = recalled(settings, server, Some(&lock)).unwrap_or_default();
    let found = review::differences(&server.key, locked, &observed, &BTreeSet::new());
    if found.quarantine.is_some() {
        return json!({ "mode": mode, "state": "quarantined", "facets": [] });
    }
    let change = found.entries.iter().find(|change| change.kind == kind && change.name == native);
    let entry = locked.and_then(|locked| locked.entries.get(&(kind, native.to_owned())));
    let (state, facets) = match (change, entry) {
        (Some(change), _) => (change.state, change.facets.clone()),
        (None, Some(entry)) if entry.blocked => (EntryState::Blocked, Vec::new()),
        (None, Some(_)) => (EntryState::Approved, Vec::new()),
        (None, None) if kind == Kind::Resource => return Value::Null,
        (None, None) => (EntryState::Pending, Vec::new()),
    };
    let facets: Vec<_> = facets.iter().map(|facet| facet.as_str()).collect();
    json!({ "mode": mode, "state": state.as_str(), "facets": facets })
}

/// Which servers are meant; all when none is named.
pub(super) fn chosen(settings: &Settings, names: &[String]) -> Result<BTreeSet<ServerKey>, Exit> {
    let all: BTreeSet<_> = settings.servers.iter().map(|server| server.key.clone()).collect();
    let mut chosen = BTreeSet::new();
    for name in names {
        match all.iter().find(|key| key.as_str() == name) {
            Some(key) => drop(chosen.insert(key.clone())),
            None => {
                let keys: Vec<_> = all.iter().map(ServerKey::as_str).collect();
                out::say(&format!("onegate: no server {:?}; there are: {}", shown_str(name), keys.join(", ")));
                return Err(Exit::Usage);
            }
        }
    }
    Ok(if names.is_empty() { all } else { chosen })
}

/// What the last gateway saw of a server; how it would be launched is as it is now.
pub(super) fn recalled(settings: &Settings, server: &ServerSettings, lock: Option<&Lock>) -> Option<Observed> {
    let memory = Memory::of(&settings.gateway.state, &settings.pins.lock);
    let locked = lock.and_then(|lock| lock.servers.get(&server.key));
    memory.recall(&server.key).map(|observed| launched(settings, server, locked, observed))
}

/// The same with how a server would be launched now.
pub(super) fn launched(
    settings: &Settings,
    server: &ServerSettings,
    locked: Option<&LockedServer>,
    mut observed: Observed,
) -> Observed {
    observed.launch = launch_hash(server);
    let Ok(reach) = &server.reach else { return observed };
    let reference = artifact::reference(reach);
    let packages = locked.and_then(|locked| locked.artifact.as_ref()?.packages);
    let installed = packages.zip(install::plan(server).ok()).and_then(|(packages, (plan, _))| {
        Site::of(&settings.gateway.state, &plan, packages).measure(&plan, &reference)
    });
    if let Some(measured) = installed.or_else(|| reference.measure().ok()) {
        observed.artifact = Some(measured);
    }
    observed
}

/// The names of all tools of servers but this one, native and exposed.
pub(super) fn tools_of_others(
    key: &ServerKey,
    lock: Option<&Lock>,
    observed: &BTreeMap<ServerKey, Observed>,
) -> BTreeSet<String> {
    let locked = lock.into_iter().flat_map(|lock| &lock.servers);
    let locked = locked.flat_map(|(key, server)| {
        server.entries.keys().filter(|(kind, _)| *kind == Kind::Tool).map(move |(_, name)| (key, name))
    });
    let seen = observed
        .iter()
        .flat_map(|(key, seen)| seen.lists.get(&Kind::Tool).into_iter().flatten().map(move |entry| (key, &entry.name)));
    let others = locked.chain(seen).filter(|(of, name)| *of != key && name.len() >= 3);
    others.flat_map(|(key, name)| [name.clone(), format!("{key}__{name}")]).collect()
}

/// The day, as the lock has it.
pub(super) fn today() -> String {
    moment::date(SystemTime::now())
}

/// Whether there is a lock that has every configured server (`--locked`); else why not, a line for each reason.
fn all_locked(settings: &Settings) -> Result<(), String> {
    let path = settings.pins.lock.display();
    let lock = usable_lock(settings)?.ok_or_else(|| format!("there is no {path}, which --locked asks for"))?;
    let missing = settings.servers.iter().map(|server| &server.key).filter(|key| !lock.servers.contains_key(*key));
    let missing: Vec<_> = missing.map(|key| format!("the server {key} is not in {path}")).collect();
    if missing.is_empty() { Ok(()) } else { Err(missing.join("\n")) }
}

/// What a lock says of a server, with how many entries, for people.
pub(super) fn summary(key: &ServerKey, server: &LockedServer) -> String {
    let artifact = server.artifact.as_ref().map_or_else(String::new, |artifact| {
        let version =
            artifact.version.as_deref().map_or_else(String::new, |version| format!(" {}", shown_str(version)));
        format!("; {} {}{version}, level {}", artifact.kind.as_str(), shown_str(&artifact.name), artifact.level)
    });
    format!("{key}: {}{artifact}", super::load::count(server.entries.len(), "definition"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn today_is_a_date() {
        let today = super::today();
        assert!(today.as_str() > "2026-01-01" && today.len() == 10, "{today}");
    }
}
