//! What the servers list, merged: kept up to date in the background, served without waiting for anyone who had
//! his chance (LST-1, SUB-1).
//!
//! A change is seen by calls and lists at once, and told to hosts once it has settled, and only when what they
//! see is different.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::catalog::{Catalogue, Contribution, Fingerprint, ToolsPart};
use crate::downstream::{Event, Listed, Listing};
use crate::ident::{Kind, ServerKey};
use crate::policy::Policy;
use crate::protocol::version::{Era, Revision};

/// How long hosts wait for servers that never listed, once (§9).
pub const LIST_DEADLINE: Duration = Duration::from_secs(5);
/// A change is told when nothing more has changed for this long…
const QUIET: Duration = Duration::from_millis(200);
/// …and at the latest after this (contract §4: within a second of being known).
const LATEST: Duration = Duration::from_millis(800);
/// How long a legacy list holds when its server tells of changes (CCH-3).
const LEGACY_TTL: Duration = Duration::from_secs(60);
/// The longest a list holds.
const MAX_TTL: Duration = Duration::from_secs(300);
/// Entries left out of one list that are named in the log.
const MAX_TOLD: usize = 20;
/// Longest instructions of one server, and of all (CAP-3).
const MAX_INSTRUCTIONS: usize = 2 << 10;
const MAX_ALL_INSTRUCTIONS: usize = 16 << 10;

/// A server's place in naming.
pub(super) struct Place {
    pub(super) key: ServerKey,
    pub(super) prefix: String,
}

/// The lists of all servers.
pub(super) struct Lists {
    places: Vec<Place>,
    policy: Arc<Policy>,
    budget: usize,
    current: ArcSwap<Catalogue>,
    /// `current` is behind `parts`.
    stale: AtomicBool,
    /// Held while a list is put in or the catalogue is built, never over an await.
    parts: Mutex<Vec<Part>>,
    /// How many servers have had their chance to list.
    settled: watch::Sender<usize>,
    /// When hosts stop waiting for the others.
    deadline: OnceLock<Instant>,
    changes: watch::Sender<Fingerprint>,
}

#[derive(Default)]
struct Part {
    tools: Option<Arc<ToolsPart>>,
    until: Option<Instant>,
    instructions: Option<String>,
    settled: bool,
}

impl Part {
    /// Takes a list in; whether it is another than before.
    fn put(&mut self, key: &ServerKey, list: &Listed, era: Era) -> bool {
        let tools = match ToolsPart::parse(&list.pages) {
            Ok(tools) => tools,
            Err(error) => {
                tracing::warn!(server = %key, "its list is not taken: {error}");
                return false;
            }
        };
        self.until = Some(Instant::now() + holds_for(era, list.ttl, list.tells_changes));
        if self.tools.as_ref().is_some_and(|known| known.same_as(&tools)) {
            return false;
        }
        for dropped in tools.dropped().iter().take(MAX_TOLD) {
            tracing::warn!(server = %key, "left out of its list: {dropped}");
        }
        if let Some(more @ 1..) = tools.dropped().len().checked_sub(MAX_TOLD) {
            tracing::warn!(server = %key, more, "more were left out of its list");
        }
        self.tools = Some(Arc::new(tools));
        true
    }
}

/// A list, or a page of one, as it is published.
pub struct ItemList {
    /// What it lists.
    pub kind: Kind,
    /// The raw array.
    pub items: Bytes,
    /// Where the next page begins; a cursor of ours, a raw string. `None` = this is the end.
    pub next: Option<Bytes>,
    /// For how many milliseconds it holds (CCH-3).
    pub ttl_ms: u128,
    /// What it is of.
    pub fingerprint: Fingerprint,
}

impl Lists {
    pub(super) fn new(places: Vec<Place>, policy: Arc<Policy>, budget: usize) -> Self {
        let empty = Catalogue::empty();
        let changes = watch::Sender::new(empty.fingerprint());
        let parts = places.iter().map(|_| Part::default()).collect();
        Self {
            places,
            policy,
            budget,
            current: ArcSwap::from_pointee(empty),
            stale: AtomicBool::new(false),
            parts: Mutex::new(parts),
            settled: watch::Sender::new(0),
            deadline: OnceLock::new(),
            changes,
        }
    }

    fn parts(&self) -> MutexGuard<'_, Vec<Part>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in what servers list, until all of them are gone.
    pub(super) async fn follow(&self, mut events: mpsc::Receiver<Event>) {
        // When to tell of what changed, and when at the latest.
        let mut tell: Option<(Instant, Instant)> = None;
        loop {
            let at = tell.map_or_else(Instant::now, |(at, latest)| at.min(latest));
            tokio::select! {
                event = events.recv() => {
                    let Some(event) = event else { return };
                    if self.take(event) {
                        let now = Instant::now();
                        let latest = tell.map_or(now + LATEST, |(_, latest)| latest);
                        tell = Some((now + QUIET, latest));
                    }
                }
                () = sleep_until(at), if tell.is_some() => {
                    tell = None;
                    let fingerprint = self.catalogue().fingerprint();
                    self.changes.send_if_modified(|known| std::mem::replace(known, fingerprint) != fingerprint);
                }
            }
        }
    }

    /// Takes an event in; whether lists may be others now.
    fn take(&self, event: Event) -> bool {
        let key = &self.places[event.server].key;
        let mut parts = self.parts();
        let part = &mut parts[event.server];
        let changed = match event.listing {
            Listing::Lists { lists, era, instructions, .. } => {
                part.instructions = instructions;
                let mut changed = false;
                for list in lists.into_iter().filter(|list| list.kind == Kind::Tool) {
                    changed |= part.put(key, &list, era);
                }
                changed
            }
            // Nobody subscribed.
            Listing::Updated(_) => return false,
            // The last good list stays.
            Listing::Failed => false,
        };
        part.settled = true;
        let settled = parts.iter().filter(|part| part.settled).count();
        if changed {
            self.stale.store(true, Ordering::Release);
        }
        drop(parts);
        self.settled.send_replace(settled);
        changed
    }

    /// Everything that is known now.
    pub(super) fn catalogue(&self) -> Arc<Catalogue> {
        if self.stale.load(Ordering::Acquire) {
            let parts = self.parts();
            if self.stale.swap(false, Ordering::AcqRel) {
                let contributions: Vec<_> = parts
                    .iter()
                    .zip(&self.places)
                    .enumerate()
                    .filter_map(|(server, (part, place))| {
                        let tools = part.tools.as_ref()?;
                        Some(Contribution { server, key: &place.key, prefix: &place.prefix, tools })
                    })
                    .collect();
                self.current.store(Arc::new(Catalogue::build(&contributions, &self.policy, self.budget)));
            }
        }
        self.current.load_full()
    }

    /// Waits until every server has listed or failed, but together with all other waits not past the deadline.
    pub(super) async fn settle(&self) {
        self.settle_until(*self.deadline.get_or_init(|| Instant::now() + LIST_DEADLINE)).await;
    }

    pub(super) async fn settle_until(&self, deadline: Instant) {
        let mut settled = self.settled.subscribe();
        // The sender lives as long as we do.
        let _ = timeout_at(deadline, settled.wait_for(|&count| count == self.places.len())).await;
    }

    /// Waits until a server has listed or failed, `deadline` at most.
    pub(super) async fn settle_server(&self, server: usize, deadline: Instant) {
        let mut settled = self.settled.subscribe();
        let _ = timeout_at(deadline, settled.wait_for(|_| self.parts()[server].settled)).await;
    }

    /// The servers that have not listed yet.
    pub(super) fn unsettled(&self) -> Vec<usize> {
        let parts = self.parts();
        (0..parts.len()).filter(|&server| !parts[server].settled).collect()
    }

    pub(super) fn places(&self) -> &[Place] {
        &self.places
    }

    /// Whether a list need not wait.
    pub(super) fn is_settled(&self) -> bool {
        *self.settled.borrow() == self.places.len()
            || self.deadline.get().is_some_and(|&deadline| deadline <= Instant::now())
    }

    pub(super) fn tools_now(&self, revision: Revision) -> ItemList {
        let catalogue = self.catalogue();
        let now = Instant::now();
        // A server that never listed may do so at any time: then nothing holds.
        let until = self.parts().iter().map(|part| part.until).min().flatten();
        let ttl = until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now)).min(MAX_TTL);
        ItemList {
            kind: Kind::Tool,
            items: catalogue.tools(revision),
            next: None,
            ttl_ms: ttl.as_millis(),
            fingerprint: catalogue.fingerprint(),
        }
    }

    /// Tells of changes of what hosts see.
    pub(super) fn changes(&self) -> watch::Receiver<Fingerprint> {
        self.changes.subscribe()
    }

    /// What is known of the servers' instructions, each under its key (CAP-3), after the operator's.
    pub(super) fn instructions(&self, own: Option<&str>) -> String {
        let mut text = own.unwrap_or_default().trim_end().to_owned();
        for (part, place) in self.parts().iter().zip(&self.places) {
            let Some(theirs) = part.instructions.as_deref().map(str::trim).filter(|theirs| !theirs.is_empty()) else {
                continue;
            };
            let theirs = cut(theirs, MAX_INSTRUCTIONS);
            if text.len() + theirs.len() > MAX_ALL_INSTRUCTIONS {
                break;
            }
            if !text.is_empty() {
                text.push_str("\n\n");
            }
            text.push_str(&format!("## {}\n{theirs}", place.key));
        }
        text
    }
}

/// CCH-2, CCH-3: how long a list holds.
fn holds_for(era: Era, ttl: Option<Duration>, tells_changes: bool) -> Duration {
    match (era, ttl) {
        (Era::Modern, Some(ttl)) => ttl.min(MAX_TTL),
        (Era::Legacy, _) if tells_changes => LEGACY_TTL,
        (Era::Modern, None) | (Era::Legacy, _) => Duration::ZERO,
    }
}

/// At most `length` bytes of a text, whole characters.
fn cut(text: &str, length: usize) -> &str {
    &text[..text.floor_char_boundary(length)]
}
