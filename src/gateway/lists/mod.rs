//! What the servers list, merged: kept up to date in the background, served without waiting for anyone who had
//! his chance (LST-1, SUB-1).
//!
//! One catalogue for each profile, of the same lists. A change is seen by calls and lists at once, and told to hosts
//! once it has settled, and only when what they see is different.
//!
//! What one server brought is in [`part`]; how it gets there, and who is told, in [`follow`];
//! what servers say of themselves is put together in [`said`].

mod follow;
mod part;
mod said;

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::grants::granted;
use super::pinned::Pinned;
use super::remembered::Known;
use super::search::Background;
use crate::caller::Caller;
use crate::catalog::{self, Catalogue, Contribution, Fingerprint, View};
use crate::config::settings::OverrideSettings;
use crate::ident::{Kind, Principal};
use crate::policy::{Class, Policy};
pub(super) use part::Place;
use part::{Part, settled};

/// A change is told when nothing more has changed for this long…
pub(super) const QUIET: Duration = Duration::from_millis(200);
/// The longest a list holds.
const MAX_TTL: Duration = Duration::from_secs(300);
/// Catalogues of classes that are kept, at most: the one unused longest goes, and is built again for who looks.
const MAX_BUILT: usize = 256;
/// Catalogues that are kept for hosts in the middle of a list, and for how long (PAG-4).
const MAX_KEPT: usize = 8;
const KEPT_FOR: Duration = Duration::from_secs(300);

/// The lists of all servers.
pub(super) struct Lists {
    places: Vec<Place>,
    policy: Arc<Policy>,
    pins: Arc<Pinned>,
    budget: usize,
    /// By sight; first the profiles, to everybody.
    shows: ArcSwap<Vec<Arc<Show>>>,
    /// How many profiles there are.
    profiles: usize,
    /// Counts looks at what classes see.
    looks: AtomicU64,
    /// Which sight a class has through a profile, where there are classes.
    sights: ArcSwap<HashMap<(usize, Class), Sight>>,
    /// Counts changes of the parts.
    version: AtomicU64,
    /// In which phase of the rules the catalogues were built.
    phase: AtomicU64,
    /// Held while a list is put in or a catalogue is built, never over an await.
    parts: Mutex<Vec<Part>>,
    /// How many servers have had their chance to list a kind.
    settled: watch::Sender<[usize; 4]>,
    /// When hosts stop waiting for the others.
    deadline: OnceLock<Instant>,
    list_deadline: Duration,
    /// Catalogues that a cursor still points into.
    kept: Mutex<VecDeque<Kept>>,
    background: Background,
    /// What the configuration names and nobody lists, as it was told last: where it stands, and the name.
    unmatched: Mutex<BTreeSet<(String, String)>>,
}

/// What a class of principals sees through a profile, by its place among all that were asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sight(pub(super) usize);

/// What a profile shows to a class.
struct Show {
    view: View,
    /// Nothing until somebody looks, and when nobody did for long; given and taken away with the parts held.
    current: ArcSwapOption<Catalogue>,
    /// `current` is behind the parts.
    stale: AtomicBool,
    /// The number of the last look; profiles are not counted, as they always stay.
    looked: AtomicU64,
    changes: watch::Sender<Seen>,
}

struct Kept {
    since: Instant,
    sight: Sight,
    catalogue: Arc<Catalogue>,
}

impl Show {
    fn new(view: View) -> Self {
        let changes = watch::Sender::new(Seen::of(&Catalogue::empty()));
        Self { view, current: ArcSwapOption::empty(), stale: AtomicBool::new(true), looked: AtomicU64::new(0), changes }
    }
}

/// A view that stays while somebody looks.
struct Shown(Arc<Show>);

impl std::ops::Deref for Shown {
    type Target = View;

    fn deref(&self) -> &View {
        &self.0.view
    }
}

/// What hosts see, in short, by kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    kinds: [Fingerprint; 4],
    /// Counts changes of what only some hosts see: they look for themselves.
    apart: u64,
}

impl Seen {
    pub(super) fn of(catalogue: &Catalogue) -> Self {
        Self { kinds: Kind::ALL.map(|kind| catalogue.fingerprint_of(kind)), apart: 0 }
    }

    /// Of one kind.
    pub fn kind(&self, kind: Kind) -> Fingerprint {
        self.kinds[kind.index()]
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
    pub(super) fn new(
        places: Vec<Place>,
        views: Vec<View>,
        policy: Arc<Policy>,
        pins: Arc<Pinned>,
        (budget, list_deadline): (usize, Duration),
        (before, known): (Option<&Self>, Vec<Option<Known>>),
        background: Background,
    ) -> Self {
        let parts: Vec<_> =
            (0..).zip(places.iter().zip(known)).map(|(n, (place, known))| Part::of(place, n, before, known)).collect();
        let show = |view| Arc::new(Show::new(view));
        let settled = settled(&parts);
        // Who was waited for is not waited for anew.
        let is_new = |before: &Self, place: &Place| !before.places.iter().any(|known| known.serial == place.serial);
        let same = before.filter(|before| places.iter().all(|place| place.gone || !is_new(before, place)));
        let deadline = same.map_or_else(OnceLock::new, |before| before.deadline.clone());
        let told = before.map(|before| before.unmatched.lock().unwrap_or_else(PoisonError::into_inner).clone());
        Self {
            places,
            pins,
            budget,
            list_deadline,
            profiles: views.len(),
            shows: ArcSwap::from_pointee(views.into_iter().map(show).collect()),
            looks: AtomicU64::new(0),
            sights: ArcSwap::default(),
            version: AtomicU64::new(0),
            phase: AtomicU64::new(policy.phase().number()),
            policy,
            parts: Mutex::new(parts),
            settled: watch::Sender::new(settled),
            deadline,
            kept: Mutex::default(),
            background,
            unmatched: Mutex::new(told.unwrap_or_default()),
        }
    }

    /// What was listed before is graded by these pins and shown as these views and rules have it.
    pub(super) fn go_on(&self) {
        (0..self.places.len()).filter(|server| !self.places[*server].gone).for_each(|server| self.pin_again(server));
        for sight in (0..self.profiles).map(Sight) {
            // What is there already is no change.
            let seen = Seen::of(&self.catalogue(sight));
            self.shows.load()[sight.0].changes.send_replace(seen);
        }
        if *self.settled.borrow() == [self.places.len(); 4] {
            self.tell_unmatched();
        }
    }

    fn parts(&self) -> MutexGuard<'_, Vec<Part>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a principal sees through a profile.
    pub(super) fn sight(&self, principal: &Principal, profile: usize) -> Sight {
        let class = self.policy.class_of(principal);
        if class == Class::default() {
            return Sight(profile);
        }
        if let Some(sight) = self.sights.load().get(&(profile, class)) {
            return *sight;
        }
        let sight = {
            // Held, so that nothing is taken in and nobody adds another meanwhile.
            let _parts = self.parts();
            let known = self.sights.load();
            if let Some(sight) = known.get(&(profile, class)) {
                return *sight;
            }
            let shows = self.shows.load();
            let view = shows[profile].view.to_class(class, &self.policy, self.places.len());
            let sight = Sight(shows.len());
            let mut grown = Vec::clone(&shows);
            grown.push(Arc::new(Show::new(view)));
            self.shows.store(Arc::new(grown));
            let mut more = HashMap::clone(&known);
            more.insert((profile, class), sight);
            self.sights.store(Arc::new(more));
            sight
        };
        // What is there already is no change.
        let seen = Seen::of(&self.catalogue(sight));
        self.shows.load()[sight.0].changes.send_modify(|known| *known = Seen { apart: known.apart, ..seen });
        sight
    }

    /// Other rules hold than when the catalogues were built: they are built anew, and cursors into old ones are over. Whether
    /// that is so.
    fn turn(&self) -> bool {
        let phase = self.policy.phase().number();
        if self.phase.load(Ordering::Acquire) == phase {
            return false;
        }
        let parts = self.parts();
        if self.phase.swap(phase, Ordering::AcqRel) != phase {
            self.kept.lock().unwrap_or_else(PoisonError::into_inner).clear();
            self.outdate();
        }
        drop(parts);
        true
    }

    /// All catalogues are behind what is known; the parts are held, or whoever looks meanwhile builds anew.
    fn outdate(&self) {
        self.version.fetch_add(1, Ordering::AcqRel);
        self.shows.load().iter().for_each(|show| show.stale.store(true, Ordering::Release));
    }

    /// Everything that is seen now.
    pub(super) fn catalogue(&self, sight: Sight) -> Arc<Catalogue> {
        self.turn();
        let shows = self.shows.load();
        let show = &shows[sight.0];
        if sight.0 >= self.profiles {
            show.looked.store(self.looks.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
        if !show.stale.load(Ordering::Acquire)
            && let Some(current) = show.current.load_full()
        {
            return current;
        }
        let parts = self.parts();
        let is_stale = show.stale.swap(false, Ordering::AcqRel);
        if let Some(current) = show.current.load_full().filter(|_| !is_stale) {
            return current;
        }
        let built = Arc::new(self.merge(&parts, &show.view, |_, _| None));
        // Of classes there are many; who searched before does so again.
        if sight.0 < self.profiles || show.current.load().as_ref().is_some_and(|old| old.is_indexed()) {
            self.background.prepare(&built);
        }
        show.current.store(Some(Arc::clone(&built)));
        if sight.0 >= self.profiles {
            self.forget_unused();
        }
        built
    }

    /// Lets go of what classes saw that nobody looked at for longest; the parts are held.
    fn forget_unused(&self) {
        let shows = self.shows.load();
        let built = || shows[self.profiles..].iter().filter(|show| show.current.load().is_some());
        for _ in MAX_BUILT..built().count() {
            let oldest = built().min_by_key(|show| show.looked.load(Ordering::Relaxed));
            oldest.inspect(|show| show.current.store(None));
        }
    }

    /// The same with these in the place of what servers list to all.
    pub(super) fn build(
        &self,
        sight: Sight,
        own: impl Fn(usize, Kind) -> Option<Arc<catalog::Part>>,
    ) -> Arc<Catalogue> {
        let view = self.show(sight);
        Arc::new(self.merge(&self.parts(), &view, own))
    }

    fn merge(&self, parts: &[Part], view: &View, own: impl Fn(usize, Kind) -> Option<Arc<catalog::Part>>) -> Catalogue {
        let contribution = |(server, (part, place)): (usize, (&Part, &Place))| {
            let items = |kind: Kind| own(server, kind).or_else(|| part.lists[kind.index()].items.clone());
            let items = Kind::ALL.map(items);
            if items.iter().all(Option::is_none) {
                return None;
            }
            let has = |kind| part.offers[0].as_ref().is_some_and(|offers| offers.of(kind).is_some());
            // What is held only is not offered; hosts that ask for it are told why.
            let lists = Kind::ALL.map(|kind| items[kind.index()].clone().filter(|items| has(kind) || items.is_held()));
            Some((server, place.http, lists))
        };
        let known: Vec<_> = parts.iter().zip(&self.places).enumerate().filter_map(contribution).collect();
        let contributions: Vec<_> = known
            .iter()
            .map(|(server, http, lists)| Contribution {
                server: *server,
                key: &self.places[*server].key,
                prefix: &self.places[*server].prefix,
                http: *http,
                parts: Kind::ALL.map(|kind| lists[kind.index()].as_ref()),
            })
            .collect();
        Catalogue::build(&contributions, &self.policy, view.name_budget().unwrap_or(self.budget), view)
    }

    /// Counts changes of what servers list to all, and of what is shown of it.
    pub(super) fn version(&self) -> u64 {
        self.turn();
        self.version.load(Ordering::Acquire)
    }

    /// Whether a server lists just this to all.
    pub(super) fn lists_same(&self, server: usize, items: &catalog::Part) -> bool {
        let parts = self.parts();
        parts[server].lists[items.kind().index()].items.as_ref().is_some_and(|known| known.same_as(items))
    }

    /// How many profiles there are.
    pub(super) fn profiles(&self) -> usize {
        self.profiles
    }

    /// What hosts were told last.
    pub(super) fn seen(&self, sight: Sight) -> Seen {
        *self.shows.load()[sight.0].changes.borrow()
    }

    /// What some hosts see alone is another now: they look for themselves.
    pub(super) fn tick(&self) {
        for show in self.shows.load().iter() {
            show.changes.send_modify(|seen| seen.apart += 1);
        }
    }

    /// Waits until every server has listed this kind or failed, but together with all other waits not past the
    /// deadline.
    pub(super) async fn settle(&self, kind: Kind) {
        let deadline = *self.deadline.get_or_init(|| Instant::now() + self.list_deadline);
        let mut settled = self.settled.subscribe();
        // The sender lives as long as we do.
        let _ = timeout_at(deadline, settled.wait_for(|count| count[kind.index()] == self.places.len())).await;
    }

    /// Waits until every server has listed everything or failed.
    pub(super) async fn settle_until(&self, deadline: Instant) {
        let mut settled = self.settled.subscribe();
        let all = |count: &[usize; 4]| count.iter().all(|&count| count == self.places.len());
        let _ = timeout_at(deadline, settled.wait_for(all)).await;
    }

    /// Waits until a server has listed this kind or failed, `deadline` at most.
    pub(super) async fn settle_server(&self, server: usize, kind: Kind, deadline: Instant) {
        let mut settled = self.settled.subscribe();
        let has = |_: &[usize; 4]| self.parts()[server].lists[kind.index()].settled;
        let _ = timeout_at(deadline, settled.wait_for(has)).await;
    }

    /// The servers that have not listed all of these kinds yet.
    pub(super) fn unsettled(&self, kinds: &[Kind]) -> Vec<usize> {
        let parts = self.parts();
        let is_open = |server: &usize| kinds.iter().any(|kind| !parts[*server].lists[kind.index()].settled);
        (0..parts.len()).filter(is_open).collect()
    }

    /// The caller as policy lets this server know it.
    pub(super) fn granted<'a>(&self, caller: &'a Caller, server: usize) -> Cow<'a, Caller> {
        granted(&self.policy, caller, server)
    }

    pub(super) fn places(&self) -> &[Place] {
        &self.places
    }

    /// What is asked with a profile and a class.
    pub(super) fn show(&self, sight: Sight) -> impl std::ops::Deref<Target = View> + use<> {
        Shown(Arc::clone(&self.shows.load()[sight.0]))
    }

    /// Whether a list need not wait.
    pub(super) fn is_settled(&self, kind: Kind) -> bool {
        self.settled.borrow()[kind.index()] == self.places.len()
            || self.deadline.get().is_some_and(|&deadline| deadline <= Instant::now())
    }

    /// For how long a list of a profile holds (CCH-3).
    pub(super) fn holds(&self, sight: Sight, kind: Kind) -> Duration {
        let now = Instant::now();
        let view = self.show(sight);
        // A server that never listed may do so at any time: then nothing holds.
        let parts = self.parts();
        let is_shown = |server: usize| view.shows(server) && !self.places[server].gone;
        let shown = parts.iter().enumerate().filter(|(server, _)| is_shown(*server));
        let until = shown.map(|(_, part)| part.lists[kind.index()].until).min().flatten();
        let holds = until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now)).min(MAX_TTL);
        // Then other rules hold.
        holds.min(self.policy.next_phase().unwrap_or(MAX_TTL))
    }

    /// Keeps a catalogue for a host that has a cursor into it.
    pub(super) fn keep(&self, sight: Sight, catalogue: &Arc<Catalogue>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let since = Instant::now();
        kept.retain(|old| since.duration_since(old.since) < KEPT_FOR && !Arc::ptr_eq(&old.catalogue, catalogue));
        if kept.len() == MAX_KEPT {
            kept.pop_front();
        }
        kept.push_back(Kept { since, sight, catalogue: Arc::clone(catalogue) });
    }

    /// The catalogue that showed this, when it is the `current` one of its host or still there (PAG-4).
    pub(super) fn recall(
        &self,
        current: Arc<Catalogue>,
        sight: Sight,
        kind: Kind,
        fingerprint: &[u8],
    ) -> Option<Arc<Catalogue>> {
        if current.fingerprint_of(kind).as_bytes() == fingerprint {
            return Some(current);
        }
        let now = Instant::now();
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let mut of_profile = kept.iter().filter(|old| old.sight == sight && now.duration_since(old.since) < KEPT_FOR);
        let found = of_profile.find(|old| old.catalogue.fingerprint_of(kind).as_bytes() == fingerprint)?;
        Some(Arc::clone(&found.catalogue))
    }

    /// Tells of changes of what a profile shows.
    pub(super) fn changes(&self, sight: Sight) -> watch::Receiver<Seen> {
        let shows = self.shows.load();
        let changes = &shows[sight.0].changes;
        if changes.receiver_count() == 0 {
            // What changed while nobody waited is no news.
            let seen = Seen::of(&self.catalogue(sight));
            changes.send_modify(|known| *known = Seen { apart: known.apart, ..seen });
        }
        changes.subscribe()
    }

    /// What of a list, of some hosts alone, these may see.
    pub(super) fn pinned(&self, server: usize, live: catalog::Part) -> catalog::Part {
        let pinned = self.pins.grade(server, &live);
        let mut items = pinned.unwrap_or(live);
        items.adjust(self.overrides_of(server));
        items
    }

    /// What the operator changes about a server's tools.
    pub(super) fn overrides_of(&self, server: usize) -> &[OverrideSettings] {
        &self.places[server].overrides
    }

    /// Where what takes a while is made.
    pub(super) fn background(&self) -> &Background {
        &self.background
    }
}

#[cfg(test)]
mod tests;
