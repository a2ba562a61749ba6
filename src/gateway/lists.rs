//! What the servers list, merged: kept up to date in the background, served without waiting for anyone who had
//! his chance (LST-1, SUB-1).
//!
//! One catalogue for each profile, of the same lists. A change is seen by calls and lists at once, and told to hosts
//! once it has settled, and only when what they see is different.
//!
//! Long, and one thing: what is listed, what of it is shown to whom, and who waits for it change together.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use arc_swap::{ArcSwap, ArcSwapOption};
use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use super::grants::granted;
use super::pinned::Pinned;
use super::remembered::{Content, Known, Slot};
use super::search::Background;
use crate::caller::Caller;
use crate::catalog::{self, Catalogue, Contribution, Fingerprint, View};
use crate::config::settings::OverrideSettings;
use crate::downstream::{Apart, Change, Event, Listing, Offers};
use crate::ident::{Kind, Principal, ServerKey};
use crate::policy::{Class, Policy};
use crate::protocol::version::Era;
use crate::shown::shown_str;

/// How long hosts wait for servers that never listed, once (§9).
pub const LIST_DEADLINE: Duration = Duration::from_secs(5);
/// A change is told when nothing more has changed for this long…
pub(super) const QUIET: Duration = Duration::from_millis(200);
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
/// Catalogues of classes that are kept, at most: the one unused longest goes, and is built again for who looks.
const MAX_BUILT: usize = 256;
/// Catalogues that are kept for hosts in the middle of a list, and for how long (PAG-4).
const MAX_KEPT: usize = 8;
const KEPT_FOR: Duration = Duration::from_secs(300);

/// A server's place in naming.
pub(super) struct Place {
    pub(super) key: ServerKey,
    /// Which server has it; see [`crate::downstream::Server::serial`].
    pub(super) serial: u64,
    /// The configuration has it no more.
    pub(super) gone: bool,
    pub(super) prefix: String,
    /// It is reached by HTTP.
    pub(super) http: bool,
    /// What the operator changes about its tools.
    pub(super) overrides: Vec<OverrideSettings>,
    /// Where it is kept what it lists, for the next run.
    pub(super) slot: Option<Slot>,
}

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

#[derive(Clone, Default)]
struct Part {
    lists: [OneList; 4],
    /// Its own, as it said them, and as far as they may be shown.
    instructions: [Option<String>; 2],
    /// The same of what it offers.
    offers: [Option<Offers>; 2],
    /// The pages as they came, by kind: what is remembered.
    pages: [Option<Vec<Bytes>>; 4],
    /// What was remembered last is not what there is now; what that was.
    forgetful: bool,
    written: Option<(u64, SystemTime)>,
}

impl Part {
    /// What is known at first of the server in a place: what was listed of it before. One that is started anew is shown as it
    /// was until it lists, as after any start, so that hosts are told of what differs and once (D027).
    fn of(place: &Place, server: usize, before: Option<&Lists>, known: Option<Known>) -> Self {
        if place.gone {
            let nothing = OneList { settled: true, ..OneList::default() };
            return Self { lists: std::array::from_fn(|_| nothing.clone()), ..Self::default() };
        }
        let listed = before.and_then(|before| Some((before, before.places.get(server).filter(|old| !old.gone)?)));
        let Some((before, old)) = listed else { return known.map(Self::remembered).unwrap_or_default() };
        let mut part = before.parts()[server].clone();
        if old.serial != place.serial {
            part.lists.iter_mut().for_each(|list| list.until = None);
        }
        part
    }

    /// What it listed when we ran last.
    fn remembered(Known { content, parts, .. }: Known) -> Self {
        let lists = parts.map(|live| OneList { live, settled: true, ..OneList::default() });
        let Content { offers, instructions, lists: pages } = content;
        Self { lists, instructions: [instructions, None], offers: [Some(offers), None], pages, ..Self::default() }
    }

    /// What it may be shown by in the next run; nothing where it has not listed all that it offers.
    fn content(&self) -> Option<Content> {
        let offers = self.offers[0].clone()?;
        let listed = |kind: Kind| self.lists[kind.index()].live.is_some() || offers.of(kind).is_none();
        let lists = self.pages.clone();
        Kind::ALL.into_iter().all(listed).then(|| Content { offers, instructions: self.instructions[0].clone(), lists })
    }

    /// What may be shown of what it said, by its pins.
    fn pin(&mut self, pins: &Pinned, server: usize) {
        let [said, shown] = &mut self.instructions;
        *shown = pins.instructions(server, said.clone());
        let [said, shown] = &mut self.offers;
        *shown = said.as_ref().map(|offers| pins.offers(server, offers));
    }
}

#[derive(Clone, Default)]
struct OneList {
    /// As it was listed.
    live: Option<Arc<catalog::Part>>,
    /// As hosts may see it.
    items: Option<Arc<catalog::Part>>,
    until: Option<Instant>,
    settled: bool,
}

impl OneList {
    /// Takes a list in; whether it is another than before.
    fn put(&mut self, place: &Place, live: Arc<catalog::Part>, pinned: Option<catalog::Part>) -> bool {
        let is_new = self.live.as_ref().is_none_or(|known| !known.same_as(&live));
        let changed = self.show(place, Some(&live), pinned, is_new);
        self.live = Some(live);
        changed
    }

    /// Shows a list as pins and overrides have it; whether that is another than before.
    fn show(
        &mut self,
        place: &Place,
        live: Option<&Arc<catalog::Part>>,
        pinned: Option<catalog::Part>,
        tell: bool,
    ) -> bool {
        let items = match (pinned, live) {
            (None, Some(live)) if place.overrides.is_empty() => Some(Arc::clone(live)),
            (None, None) => None,
            (pinned, live) => {
                let pinned = pinned.or_else(|| live.map(|live| catalog::Part::clone(live)));
                pinned.map(|mut items| {
                    items.adjust(&place.overrides);
                    Arc::new(items)
                })
            }
        };
        if tell {
            let dropped: Vec<_> =
                [live, items.as_ref()].into_iter().flatten().flat_map(|part| part.dropped()).collect();
            let mut dropped: Vec<_> = dropped.iter().map(ToString::to_string).collect();
            dropped.dedup();
            for dropped in dropped.iter().take(MAX_TOLD) {
                tracing::warn!(server = %place.key, "left out of its list: {dropped}");
            }
            if let Some(more @ 1..) = dropped.len().checked_sub(MAX_TOLD) {
                tracing::warn!(server = %place.key, more, "more were left out of its list");
            }
        }
        let same = match (&self.items, &items) {
            (Some(known), Some(items)) => known.same_as(items),
            (None, None) => true,
            _ => false,
        };
        self.items = items;
        !same
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

/// How many servers have had their chance to list, by kind.
fn settled(parts: &[Part]) -> [usize; 4] {
    Kind::ALL.map(|kind| parts.iter().filter(|part| part.lists[kind.index()].settled).count())
}

/// What came of an event.
#[derive(Default)]
struct Taken {
    /// Lists may be others now.
    changed: bool,
    /// One was listed.
    listed: bool,
    /// These resources of this server are.
    updated: Option<(usize, BTreeSet<String>)>,
}

impl Lists {
    pub(super) fn new(
        places: Vec<Place>,
        views: Vec<View>,
        policy: Arc<Policy>,
        pins: Arc<Pinned>,
        budget: usize,
        (before, known): (Option<&Self>, Vec<Option<Known>>),
        background: Background,
    ) -> Self {
        let parts: Vec<_> =
            (0..).zip(places.iter().zip(known)).map(|(n, (place, known))| Part::of(place, n, before, known)).collect();
        let show = |view| Arc::new(Show::new(view));
        let settled = settled(&parts);
        let told = before.map(|before| before.unmatched.lock().unwrap_or_else(PoisonError::into_inner).clone());
        Self {
            places,
            pins,
            budget,
            profiles: views.len(),
            shows: ArcSwap::from_pointee(views.into_iter().map(show).collect()),
            looks: AtomicU64::new(0),
            sights: ArcSwap::default(),
            version: AtomicU64::new(0),
            phase: AtomicU64::new(policy.phase().number()),
            policy,
            parts: Mutex::new(parts),
            settled: watch::Sender::new(settled),
            deadline: OnceLock::new(),
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

    /// Takes in what servers list, until `ended`; `updated` is told of single resources, `tasks` of tasks,
    /// `pins_changed` of servers whose pins say something else now, `look_again` of what is listed to some hosts alone and is another now, which `apart` says.
    pub(super) async fn follow(
        &self,
        (events, apart): (&mut mpsc::Receiver<Event>, &mut mpsc::Receiver<Apart>),
        ended: &CancellationToken,
        updated: impl Fn((usize, u64), &BTreeSet<String>),
        tasks: impl Fn(usize, BTreeMap<String, Bytes>),
        look_again: impl Fn(),
        pins_changed: impl Fn(usize),
    ) {
        // When to tell of what changed, and when at the latest.
        let mut tell: Option<(Instant, Instant)> = None;
        loop {
            let at = tell.map_or_else(Instant::now, |(at, latest)| at.min(latest));
            let turn = self.policy.next_phase().map(|left| Instant::now() + left);
            tokio::select! {
                () = ended.cancelled() => return,
                event = events.recv() => {
                    let Some(event) = event else { return };
                    // One that another has taken the place of has nothing to say.
                    if self.places[event.server].serial != event.serial {
                        continue;
                    }
                    let event = match event {
                        Event { server, listing: Listing::Tasks(told), .. } => {
                            tasks(server, told);
                            continue;
                        }
                        event => event,
                    };
                    let taken = self.take(event);
                    if let Some((server, resources)) = &taken.updated {
                        updated((*server, 0), resources);
                    }
                    if taken.changed || taken.listed {
                        let now = Instant::now();
                        let latest = tell.map_or(now + LATEST, |(_, latest)| latest);
                        tell = Some((now + QUIET, latest));
                    }
                }
                servers = self.pins.changes() => {
                    servers.iter().for_each(|server| self.pin_again(*server));
                    servers.iter().for_each(|server| pins_changed(*server));
                    let now = Instant::now();
                    let latest = tell.map_or(now + LATEST, |(_, latest)| latest);
                    tell = Some((now + QUIET, latest));
                }
                Some(Apart { server, client, change }) = apart.recv() => match change {
                    Change::Lists => look_again(),
                    Change::Resources(resources) => updated((server, client), &resources),
                },
                // Whoever looks sees it without this; hosts that wait to be told are told.
                () = sleep_until(turn.unwrap_or_else(Instant::now)), if turn.is_some() => {
                    self.turn();
                    let now = Instant::now();
                    tell = tell.or(Some((now + QUIET, now + LATEST)));
                    self.tick();
                }
                () = sleep_until(at), if tell.is_some() => {
                    tell = None;
                    self.remember();
                    if *self.settled.borrow() == [self.places.len(); 4] {
                        self.tell_unmatched();
                    }
                    // Catalogues that nobody waits to hear of are built when somebody looks.
                    let heard = |(_, show): &(usize, &Arc<Show>)| show.changes.receiver_count() > 0;
                    for (sight, show) in self.shows.load().iter().enumerate().filter(heard) {
                        let seen = Seen::of(&self.catalogue(Sight(sight)));
                        show.changes.send_if_modified(|known| {
                            let seen = Seen { apart: known.apart, ..seen };
                            std::mem::replace(known, seen) != seen
                        });
                    }
                }
            }
        }
    }

    /// Reads a list and compares it with what was reviewed, before anybody sees it.
    fn compare(&self, server: usize, listing: &Listing) -> Option<(Arc<catalog::Part>, Option<catalog::Part>)> {
        let Listing::List { list, introduction, instructions, .. } = listing else { return None };
        match catalog::Part::parse(list.kind, &list.pages) {
            Ok(live) => {
                self.pins.note(server, &live, introduction, instructions.as_deref());
                let pinned = self.pins.grade(server, &live);
                if pinned.is_some() {
                    // Before anybody sees the list.
                    self.policy.approve(self.pins.approved());
                }
                Some((Arc::new(live), pinned))
            }
            Err(error) => {
                tracing::warn!(server = %self.places[server].key, "its list is not taken: {error}");
                self.pins.missed(server, &[list.kind]);
                None
            }
        }
    }

    /// Takes an event in.
    fn take(&self, event: Event) -> Taken {
        let place = &self.places[event.server];
        let mut taken = Taken::default();
        let compared = self.compare(event.server, &event.listing);
        let mut looked_at = None;
        let mut parts = self.parts();
        let part = &mut parts[event.server];
        let kinds = match event.listing {
            Listing::List { list, offers, era, instructions, looked, .. } => {
                part.instructions[0] = instructions;
                part.offers[0] = Some(offers);
                part.pin(&self.pins, event.server);
                if let Some((live, pinned)) = compared {
                    part.pages[list.kind.index()] = Some(list.pages);
                    part.forgetful = true;
                    let its = &mut part.lists[list.kind.index()];
                    its.until = Some(Instant::now() + holds_for(era, list.ttl, list.tells_changes));
                    taken.changed = its.put(place, live, pinned);
                    taken.listed = true;
                    looked_at = Some((looked, list.kind));
                }
                vec![list.kind]
            }
            Listing::Updated(resources) => {
                taken.updated = Some((event.server, resources));
                return taken;
            }
            // Those are no lists.
            Listing::Tasks(_) => return taken,
            // The last good list stays.
            Listing::Failed(kinds) => {
                self.pins.missed(event.server, &kinds);
                kinds
            }
        };
        for kind in kinds {
            part.lists[kind.index()].settled = true;
        }
        let settled = settled(&parts);
        if taken.changed {
            self.version.fetch_add(1, Ordering::AcqRel);
            self.shows.load().iter().for_each(|show| show.stale.store(true, Ordering::Release));
        }
        drop(parts);
        let all = [self.places.len(); 4];
        if settled == all && *self.settled.borrow() != all {
            self.tell_unmatched();
        }
        self.settled.send_replace(settled);
        if let Some((looked, kind)) = looked_at {
            looked.mark(kind);
        }
        taken
    }

    /// Keeps what servers list for the next run, where that is another than was kept last.
    fn remember(&self) {
        let mut parts = self.parts();
        let due = parts.iter_mut().enumerate().filter_map(|(server, part)| {
            let content = self.places[server].slot.as_ref().filter(|_| part.forgetful).and_then(|_| part.content())?;
            part.forgetful = false;
            Some((server, content, part.written))
        });
        let due: Vec<_> = due.collect();
        drop(parts);
        for (server, content, mut written) in due {
            let Some(slot) = &self.places[server].slot else { continue };
            slot.write(&content, &mut written);
            self.parts()[server].written = written;
        }
    }

    /// Says what the configuration names and no server lists: a slip of the pen in a deny rule denies nothing. Each is
    /// told once, for as long as that is so.
    fn tell_unmatched(&self) {
        let listed: Vec<_> = {
            let parts = self.parts();
            let lists =
                parts.iter().enumerate().flat_map(|(server, part)| part.lists.iter().map(move |list| (server, list)));
            lists.filter_map(|(server, list)| Some((server, list.live.clone()?))).collect()
        };
        let items =
            listed.iter().flat_map(|(server, list)| list.natives().map(|native| (*server, list.kind(), native)));
        let items: Vec<_> = items.collect();
        let mut found: BTreeSet<_> = self.policy.unmatched(&items).into_iter().collect();
        let of_tools = listed.iter().filter(|(_, list)| list.kind() == Kind::Tool && !list.is_empty());
        for (place, list) in of_tools.map(|(server, list)| (&self.places[*server], list)) {
            let natives: BTreeSet<_> = list.natives().collect();
            let slips = place.overrides.iter().filter(|change| !natives.contains(&*change.native));
            found.extend(slips.map(|change| (format!("servers.{}.override", place.key), change.native.clone())));
        }
        let mut told = self.unmatched.lock().unwrap_or_else(PoisonError::into_inner);
        for (place, name) in found.difference(&told) {
            tracing::warn!("{place}: {:?} matches nothing that the servers list", shown_str(name));
        }
        *told = found;
    }

    /// Asks the pins of a server anew.
    fn pin_again(&self, server: usize) {
        let lists: [_; 4] = std::array::from_fn(|kind| self.parts()[server].lists[kind].live.clone());
        let graded: Vec<_> = Kind::ALL
            .into_iter()
            .zip(&lists)
            .map(|(kind, live)| match live {
                Some(live) => self.pins.grade(server, live),
                None => self.pins.held_of(server, kind),
            })
            .collect();
        self.policy.approve(self.pins.approved());
        let mut parts = self.parts();
        let part = &mut parts[server];
        part.pin(&self.pins, server);
        for ((its, live), pinned) in part.lists.iter_mut().zip(&lists).zip(graded) {
            // One that came meanwhile was compared with the same lock.
            let same = match (&its.live, live) {
                (Some(now), Some(then)) => Arc::ptr_eq(now, then),
                (None, None) => true,
                _ => false,
            };
            if same {
                its.show(&self.places[server], live.as_ref(), pinned, false);
            }
        }
        drop(parts);
        // What policy says may be another too: that is seen when it is built.
        self.version.fetch_add(1, Ordering::AcqRel);
        self.shows.load().iter().for_each(|show| show.stale.store(true, Ordering::Release));
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
            self.version.fetch_add(1, Ordering::AcqRel);
            self.shows.load().iter().for_each(|show| show.stale.store(true, Ordering::Release));
        }
        drop(parts);
        true
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
        self.background.prepare(&built);
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
        let built = Arc::new(self.merge(&self.parts(), &view, own));
        self.background.prepare(&built);
        built
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
        let deadline = *self.deadline.get_or_init(|| Instant::now() + LIST_DEADLINE);
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

    /// What each server that a profile shows said that it offers; `None` for those that said nothing yet.
    pub(super) fn offers(&self, sight: Sight) -> Vec<Option<Offers>> {
        let view = self.show(sight);
        let parts = self.parts();
        let shown = (0..parts.len()).filter(|&server| view.shows(server) && !self.places[server].gone);
        shown.map(|server| parts[server].offers[1].clone()).collect()
    }

    /// What a server offers, when it has said so.
    pub(super) fn offers_of(&self, server: usize) -> Option<Offers> {
        self.parts()[server].offers[1].clone()
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

    /// What the servers say, to the letter: of a front that has one.
    pub(super) fn instructions_of_all(&self, sight: Sight) -> String {
        let view = self.show(sight);
        let parts = self.parts();
        let shown = parts.iter().enumerate().filter(|(server, _)| view.shows(*server));
        shown.filter_map(|(_, part)| part.instructions[1].as_deref()).collect()
    }

    /// Where what takes a while is made.
    pub(super) fn background(&self) -> &Background {
        &self.background
    }

    /// What a server says of itself, as far as it may be shown.
    pub(super) fn introduction(&self, server: usize) -> Option<String> {
        self.parts()[server].instructions[1].clone()
    }

    /// What is known of the servers' instructions, each under its key (CAP-3), after the operator's.
    pub(super) fn instructions(&self, sight: Sight, own: Option<&str>) -> String {
        let view = self.show(sight);
        let mut text = own.unwrap_or_default().trim_end().to_owned();
        let parts = self.parts();
        let mut shown: Vec<_> =
            parts.iter().zip(&self.places).enumerate().filter(|(server, _)| view.shows(*server)).collect();
        // Whenever it was that each of them came.
        shown.sort_by(|(_, (_, a)), (_, (_, b))| a.key.cmp(&b.key));
        for (_, (part, place)) in shown {
            let Some(theirs) = part.instructions[1].as_deref().map(str::trim).filter(|theirs| !theirs.is_empty())
            else {
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

#[cfg(test)]
#[path = "lists_tests.rs"]
mod tests;
