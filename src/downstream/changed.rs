//! What a server said is another now, between its reader and its actor: kinds of lists, single resources and tasks.
//!
//! Told again before it was looked at, it is the same change (SUB-1), and of a task the newest state; beyond the bounds
//! single ones are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;

use crate::ident::Kind;

/// Resources that are remembered one by one.
const MAX_RESOURCES: usize = 1024;

/// Tasks whose news are held, and the bytes of them; whoever misses one asks for it at some time anyway.
const MAX_TASKS: usize = 1024;
const MAX_TASK_BYTES: usize = 8 << 20;

/// What changed and was not looked at yet.
#[derive(Default)]
pub(super) struct Changed {
    news: Mutex<News>,
    told: Notify,
    /// How often lists were others.
    version: AtomicU64,
}

/// What changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct News {
    /// The kinds whose lists are others.
    pub(super) kinds: BTreeSet<Kind>,
    /// Native URIs of resources that are others.
    pub(super) resources: BTreeSet<String>,
    /// Where tasks stand, by native id: a raw object each.
    pub(super) tasks: BTreeMap<String, Bytes>,
}

impl News {
    fn is_empty(&self) -> bool {
        self.kinds.is_empty() && self.resources.is_empty() && self.tasks.is_empty()
    }
}

impl Changed {
    fn news(&self) -> MutexGuard<'_, News> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The list of this kind is another.
    pub(super) fn list(&self, kind: Kind) {
        self.news().kinds.insert(kind);
        self.version.fetch_add(1, Ordering::AcqRel);
        self.told.notify_one();
    }

    /// How often lists were others.
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// A resource is another. One too many is left out: whoever wants to know reads it at some time anyway.
    pub(super) fn resource(&self, uri: &str) {
        let mut news = self.news();
        if news.resources.len() < MAX_RESOURCES {
            news.resources.insert(uri.to_owned());
        }
        drop(news);
        self.told.notify_one();
    }

    /// A task stands elsewhere now.
    pub(super) fn task(&self, id: &str, state: Bytes) {
        let mut news = self.news();
        news.tasks.remove(id);
        let held: usize = news.tasks.values().map(Bytes::len).sum();
        if news.tasks.len() < MAX_TASKS && held + state.len() <= MAX_TASK_BYTES {
            news.tasks.insert(id.to_owned(), state);
        }
        drop(news);
        self.told.notify_one();
    }

    /// Waits for the next change; nothing is taken.
    pub(super) async fn happens(&self) {
        loop {
            if !self.news().is_empty() {
                return;
            }
            self.told.notified().await;
        }
    }

    /// Takes the changed resources.
    pub(super) fn take_resources(&self) -> BTreeSet<String> {
        std::mem::take(&mut self.news().resources)
    }

    /// Takes the news of tasks.
    pub(super) fn take_tasks(&self) -> BTreeMap<String, Bytes> {
        std::mem::take(&mut self.news().tasks)
    }

    /// Takes the kinds whose lists changed.
    pub(super) fn take_kinds(&self) -> BTreeSet<Kind> {
        std::mem::take(&mut self.news().kinds)
    }
}
