//! The commands of pins: what is to be reviewed, and a yes or a no to it (threat model §6). The only writers of the lock.
//!
//! Servers are started as the gateway starts them, by a gateway that only looks. Nothing here is reachable through MCP.

pub(super) mod approve;
pub(super) mod diff;
pub(super) mod first;
pub(super) mod lock;
mod text;
pub(super) mod verify;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::exit::Exit;
use super::progress::Starting;
use super::{out, run};
use crate::config::settings::{PinMode, ServerSettings, Settings, Start};
use crate::daemon::Daemon;
use crate::gateway::{self, Pace};
use crate::ident::{Kind, ServerKey};
use crate::pins::artifact;
use crate::pins::drift::EntryState;
use crate::pins::launch::launch_hash;
use crate::pins::lock::{Lock, LockFault, LockedServer};
use crate::pins::observed::{Memory, Observed};
use crate::pins::review;
use crate::policy::Policy;
use crate::shown::shown_str;

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
        Starting::new().settle(daemon.gateway()).await;
        let mut seen = Seen { observed: BTreeMap::new(), failed: BTreeMap::new() };
        for (n, server) in daemon.gateway().servers().iter().enumerate() {
            match daemon.gateway().observed(n) {
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
    let path = &settings.pins.lock;
    let loose = settings.servers.iter().any(|server| server.pin.mode == PinMode::Enforce);
    let told = |fault: &LockFault| out::say(&format!("onegate: {}: {fault}", path.display()));
    match Lock::read(path) {
        Err(fault) => {
            told(&fault);
            Err(Exit::LockInvalid)
        }
        Ok(Some(lock)) => {
            let found = lock.loose.clone().filter(|_| loose).map(LockFault::Loose);
            found.iter().for_each(told);
            lock.faults().for_each(|(key, fault)| out::say(&format!("onegate: {}: {key}: {fault}", path.display())));
            if found.is_some() || lock.faults().next().is_some() { Err(Exit::LockInvalid) } else { Ok(Some(lock)) }
        }
        Ok(None) => Ok(None),
    }
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
    let observed = recalled(settings, server).unwrap_or_default();
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
pub(super) fn recalled(settings: &Settings, server: &ServerSettings) -> Option<Observed> {
    let memory = Memory::of(&settings.gateway.state, &settings.pins.lock);
    memory.recall(&server.key).map(|observed| launched(server, observed))
}

/// The same with how a server would be launched now.
pub(super) fn launched(server: &ServerSettings, mut observed: Observed) -> Observed {
    observed.launch = launch_hash(server);
    if let Some(measured) = server.reach.as_ref().ok().and_then(|reach| artifact::reference(reach).measure().ok()) {
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
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let days = i64::try_from(seconds / 86_400).unwrap_or(0) + 719_468;
    // Years are counted from March, in eras of 400 of them.
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

/// Whether a gateway may start at all: `--locked`. Why not is told.
pub(super) fn insist(settings: &Settings) -> Result<(), Exit> {
    let Some(lock) = read_lock(settings)? else {
        out::say(&format!("onegate: there is no {}, which --locked asks for", settings.pins.lock.display()));
        return Err(Exit::LockInvalid);
    };
    let missing: Vec<_> =
        settings.servers.iter().map(|server| &server.key).filter(|key| !lock.servers.contains_key(*key)).collect();
    for key in &missing {
        out::say(&format!("onegate: the server {key} is not in {}", settings.pins.lock.display()));
    }
    if missing.is_empty() { Ok(()) } else { Err(Exit::LockInvalid) }
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
