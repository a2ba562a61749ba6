//! Who wants to know of which resource or task: counted over all hosts, so that a server is told once, and told again
//! only when the last has gone (SUB-7, D069).
//!
//! Knows no stream and no session: each of them has an [`Updates`], which it empties at its own pace.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::Bytes;
use tokio::sync::{Notify, OnceCell};
use tokio_util::task::TaskTracker;

use super::Sight;
use crate::caller::Caller;
use crate::downstream::{Fault, Source, Topic};
use crate::ident::Principal;

/// What one stream or session holds at most (OBS-3).
const MAX_HELD: usize = 1024;
/// Bytes of news of tasks that wait for one stream; who misses one asks for it at some time anyway.
const MAX_TASK_BYTES: usize = 8 << 20;

/// The resources that are others now, for one stream or session; by the URIs that its host used (U-10). One that
/// changes again before it was told of is told of once. And where tasks stand now, by the ids that it used.
#[derive(Default)]
pub struct Updates {
    waiting: Mutex<BTreeSet<Arc<str>>>,
    told: Notify,
    tasks: Mutex<BTreeMap<Arc<str>, Bytes>>,
    task_told: Notify,
}

impl Updates {
    fn waiting(&self) -> MutexGuard<'_, BTreeSet<Arc<str>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, uri: Arc<str>) {
        let mut waiting = self.waiting();
        // A sub-resource may be any, so this is a bound of its own.
        if waiting.len() < 2 * MAX_HELD {
            waiting.insert(uri);
        }
        drop(waiting);
        self.told.notify_one();
    }

    fn push_task(&self, id: &Arc<str>, state: Bytes) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.remove(id);
        if tasks.values().map(Bytes::len).sum::<usize>() + state.len() <= MAX_TASK_BYTES {
            tasks.insert(Arc::clone(id), state);
        }
        drop(tasks);
        self.task_told.notify_one();
    }

    /// Where tasks stand that stand elsewhere now: raw objects of their servers. Nothing is lost when the future is
    /// dropped.
    pub async fn next_tasks(&self) -> BTreeMap<Arc<str>, Bytes> {
        loop {
            let ready = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
            if !ready.is_empty() {
                return ready;
            }
            self.task_told.notified().await;
        }
    }

    /// The next resources. Nothing is lost when the future is dropped.
    pub async fn next(&self) -> BTreeSet<Arc<str>> {
        loop {
            let ready = std::mem::take(&mut *self.waiting());
            if !ready.is_empty() {
                return ready;
            }
            self.told.notified().await;
        }
    }
}

/// All subscriptions to resources and tasks.
pub(super) struct Subscriptions {
    table: Arc<Mutex<Table>>,
    tasks: TaskTracker,
}

type Table = HashMap<Key, Entry>;

/// A resource or task of a server, by native URI or id, on one of its connections.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    server: usize,
    source: u64,
    topic: Topic,
    native: Arc<str>,
}

struct Entry {
    /// Where its server is told, and tells.
    source: Arc<Source>,
    /// Whether the server tells of it, once it is known. Shared by all who wait for that.
    accepted: Arc<OnceCell<bool>>,
    holders: Vec<Holder>,
}

struct Holder {
    number: u64,
    /// Who it is, and through which profile it sees.
    principal: Principal,
    profile: usize,
    exposed: Arc<str>,
    updates: Weak<Updates>,
}

/// Where a resource lies that changed and that nobody subscribed to by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Below {
    /// Below one that somebody subscribed to.
    Named,
    /// Elsewhere.
    Nothing,
}

/// A subscription of one stream or session; dropped, it is given back.
pub struct Held {
    key: Key,
    number: u64,
    table: Weak<Mutex<Table>>,
    tasks: TaskTracker,
}

impl Subscriptions {
    pub(super) fn new(tasks: TaskTracker) -> Self {
        Self { table: Arc::default(), tasks }
    }

    /// Subscribes `updates` to a resource or task of a server, by its place; nothing when the server does not tell of it.
    pub(super) async fn subscribe(
        &self,
        (server, topic, native): (usize, Topic, &str),
        source: Source,
        (caller, exposed): (&Caller, &str),
        updates: &Arc<Updates>,
    ) -> Result<Option<Held>, Fault> {
        let key = Key { server, source: source.number(), topic, native: native.into() };
        let number = {
            static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
            NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
        };
        let (source, accepted) = {
            let mut table = lock(&self.table);
            let of_this = |holder: &&Holder| std::ptr::eq(holder.updates.as_ptr(), Arc::as_ptr(updates));
            if table.values().flat_map(|entry| &entry.holders).filter(of_this).count() >= MAX_HELD {
                return Err(Fault::Limit(format!("{MAX_HELD} resources and tasks are subscribed to")));
            }
            let new = || Entry { source: Arc::new(source), accepted: Arc::default(), holders: Vec::new() };
            let entry = table.entry(key.clone()).or_insert_with(new);
            entry.holders.push(Holder {
                number,
                principal: caller.principal.clone(),
                profile: caller.profile,
                exposed: exposed.into(),
                updates: Arc::downgrade(updates),
            });
            (Arc::clone(&entry.source), Arc::clone(&entry.accepted))
        };
        // From here on dropping it gives the place back, also when this future is dropped.
        let held = Held { key, number, table: Arc::downgrade(&self.table), tasks: self.tasks.clone() };
        let native = Arc::clone(&held.key.native);
        let accepted = accepted.get_or_try_init(|| source.want(topic, native)).await?;
        Ok(accepted.then_some(held))
    }

    /// A server says that these resources are others now (SUB-8): told to who subscribed to exactly that, else to
    /// something that it lies below, else to all who subscribed to anything of that server. `spell` gives the spelling
    /// of a sight for a resource that nobody named, or nothing where that may not know of it; `below` says that it lies
    /// below one that was named.
    pub(super) fn updated(
        &self,
        (server, source): (usize, u64),
        natives: &BTreeSet<String>,
        sight_of: impl Fn(&Principal, usize) -> Sight,
        spell: impl Fn(Sight, &str, Below) -> Option<Arc<str>>,
    ) {
        let is_of_server = |key: &Key| (key.server, key.source) == (server, source) && key.topic == Topic::Resource;
        // By sight, before the table is held: a spelling may need a catalogue to be built.
        let holders: Vec<(u64, Principal, usize)> = {
            let table = lock(&self.table);
            let of_server = table.iter().filter(|(key, _)| is_of_server(key));
            let who = |holder: &Holder| (holder.number, holder.principal.clone(), holder.profile);
            of_server.flat_map(|(_, entry)| entry.holders.iter().map(who)).collect()
        };
        let sight_of: HashMap<u64, Sight> =
            holders.iter().map(|(number, principal, profile)| (*number, sight_of(principal, *profile))).collect();
        let sights: BTreeSet<Sight> = sight_of.values().copied().collect();
        for native in natives {
            let spelled: HashMap<(Sight, Below), Arc<str>> = sights
                .iter()
                .flat_map(|&sight| [Below::Named, Below::Nothing].map(|below| (sight, below)))
                .filter_map(|(sight, below)| Some(((sight, below), spell(sight, native, below)?)))
                .collect();
            let table = lock(&self.table);
            let exact = table.get(&Key { server, source, topic: Topic::Resource, native: native.as_str().into() });
            if let Some(entry) = exact {
                // Who may not see it any more is not told of it either.
                let may = |holder: &&Holder| {
                    sight_of.get(&holder.number).is_some_and(|sight| spelled.contains_key(&(*sight, Below::Named)))
                };
                entry.holders.iter().filter(may).for_each(|holder| holder.tell(&holder.exposed));
                continue;
            }
            let of_server = || table.iter().filter(|(key, _)| is_of_server(key));
            let above = |key: &Key| {
                let base = key.native.trim_end_matches('/');
                native.strip_prefix(base).is_some_and(|rest| rest.starts_with('/'))
            };
            let any_above = of_server().any(|(key, _)| above(key));
            let below = if any_above { Below::Named } else { Below::Nothing };
            for (_, entry) in of_server().filter(|(key, _)| !any_above || above(key)) {
                for holder in &entry.holders {
                    let exposed = sight_of.get(&holder.number).and_then(|sight| spelled.get(&(*sight, below)));
                    if let Some(exposed) = exposed {
                        holder.tell(exposed);
                    }
                }
            }
        }
    }
}

impl Subscriptions {
    /// Another server has the place of this one: it is told what is wanted, and what the old one told of may be another now
    /// (SUB-7). What was wanted of the old one by some hosts alone ends with it; they are told that as well.
    pub(super) fn renew(&self, server: usize, source: impl Fn() -> Source) {
        let mut wanted = Vec::new();
        for (key, entry) in lock(&self.table).iter_mut().filter(|(key, _)| key.server == server) {
            if key.topic == Topic::Resource {
                entry.holders.iter().for_each(|holder| holder.tell(&holder.exposed));
            }
            if key.source == 0 {
                entry.source = Arc::new(source());
                wanted.push((key.topic, Arc::clone(&key.native), Arc::clone(&entry.source)));
            }
        }
        for (topic, native, source) in wanted {
            self.tasks.spawn(async move {
                if let Err(fault) = source.want(topic, native).await {
                    tracing::debug!(%fault, "what was subscribed to is told of no more");
                }
            });
        }
    }

    /// A server says where these tasks stand now: told to who subscribed to exactly them.
    pub(super) fn tasks(&self, server: usize, tasks: BTreeMap<String, Bytes>) {
        let table = lock(&self.table);
        for (native, state) in tasks {
            let Some(entry) = table.get(&Key { server, source: 0, topic: Topic::Task, native: native.into() }) else {
                continue;
            };
            for holder in &entry.holders {
                if let Some(updates) = holder.updates.upgrade() {
                    updates.push_task(&holder.exposed, state.clone());
                }
            }
        }
    }
}

impl Holder {
    fn tell(&self, exposed: &Arc<str>) {
        if let Some(updates) = self.updates.upgrade() {
            updates.push(Arc::clone(exposed));
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Some(shared) = self.table.upgrade() else { return };
        let mut table = lock(&shared);
        let Some(entry) = table.get_mut(&self.key) else { return };
        entry.holders.retain(|holder| holder.number != self.number);
        if !entry.holders.is_empty() {
            return;
        }
        let Some(Entry { source, .. }) = table.remove(&self.key) else { return };
        drop(table);
        let key = self.key.clone();
        self.tasks.spawn(async move {
            source.unwant(key.topic, &key.native, || lock(&shared).contains_key(&key)).await;
        });
    }
}

fn lock(table: &Mutex<Table>) -> MutexGuard<'_, Table> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}
