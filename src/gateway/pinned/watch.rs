//! A lock that changes while the gateway runs: it is looked at again and again, and read anew.
//!
//! Knows no entry. Started once, by the gateway.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio_util::task::TaskTracker;

use super::Pinned;
use crate::config::settings::PinMode;
use crate::pins::lock::{Lock, LockFault, LockedServer, snapshots};
use crate::watched::{Files, Read};

/// How often the lock is read as long as something of it cannot be used…
const LOOK: Duration = Duration::from_millis(500);
/// …and how often it is looked whether it is another, whatever the system tells of it.
const RARELY: Duration = Duration::from_secs(30);

impl Pinned {
    /// Keeps looking whether the lock is another, and has pinned servers listed anew in time; `relist` does that, `wake` has
    /// one tried again that was refused by another lock.
    pub(in crate::gateway) fn watch(
        self: &Arc<Self>,
        tasks: &TaskTracker,
        stop: tokio_util::sync::CancellationToken,
        relist: impl Fn(usize) + Send + 'static,
        wake: impl Fn(usize) + Send + 'static,
    ) {
        if !self.is_at_work() {
            return;
        }
        let pinned = Arc::clone(self);
        tasks.spawn(async move {
            let mut listed = tokio::time::Instant::now();
            let mut files = Files::new(pinned.files());
            loop {
                let pace = if pinned.is_faulty() { LOOK } else { RARELY };
                let pace = pace.min(pinned.recheck.saturating_sub(listed.elapsed()).max(LOOK));
                let other = tokio::select! {
                    () = stop.cancelled() => return,
                    () = files.changed() => true,
                    () = tokio::time::sleep(pace) => false,
                };
                // Others write the lock before its snapshots, or into those alone.
                if other || pinned.is_faulty() {
                    pinned.reload(other).into_iter().for_each(&wake);
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

    /// The lock's file, and the folder beside it.
    pub(super) fn files(&self) -> Read {
        Read { files: vec![self.path.clone(), snapshots(&self.path)], since: self.since, content: BTreeMap::new() }
    }

    /// Whether something of the lock cannot be used as it is: it is read until it can.
    pub(super) fn is_faulty(&self) -> bool {
        match &**self.lock.load() {
            Ok(Some(lock)) => lock.servers.values().any(|server| {
                !server.faults.is_empty()
                    || server.entries.values().any(|entry| !entry.blocked && entry.definition.is_none())
            }),
            Ok(None) => false,
            Err(_) => true,
        }
    }

    /// Reads the lock anew; `other`: it is another one for sure. Answers of which servers it says something else than before
    /// that it kept from being started.
    pub(super) fn reload(&self, other: bool) -> Vec<usize> {
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
            return Vec::new();
        }
        tracing::info!(lock = %self.path.display(), old, new, "the lock was changed");
        let servers = 0..self.sites.len();
        let before: Vec<_> = servers.clone().map(|server| self.quarantine(server)).collect();
        self.lock.store(Arc::new(lock));
        for server in servers.clone() {
            self.sites[server].now().told.clear();
            // It runs already, and what runs is what was reviewed.
            self.note_early(server, before[server].is_none());
            self.mark(server);
        }
        let is_freed = |server: &usize| {
            self.enforces(*server) && before[*server].is_some() && self.quarantine(*server) != before[*server]
        };
        servers.filter(is_freed).collect()
    }
}
