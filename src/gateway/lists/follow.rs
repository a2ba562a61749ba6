//! How the lists are kept up to date: what servers say is compared with what was reviewed, taken in, kept for the next run, and
//! told of once it has settled (SUB-1).
//!
//! Knows no host: who waits for changes holds a [`Seen`]. Run by [`crate::gateway::current`], for the gateway that is in force.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::part::settled;
use super::{Lists, MAX_TTL, QUIET, Seen, Show, Sight};
use crate::catalog;
use crate::downstream::{Apart, Change, Event, Listing};
use crate::ident::Kind;
use crate::protocol::version::Era;
use crate::shown::shown_str;

/// …and at the latest after this (contract §4: within a second of being known).
const LATEST: Duration = Duration::from_millis(800);
/// How long a legacy list holds when its server tells of changes (CCH-3).
const LEGACY_TTL: Duration = Duration::from_secs(60);

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
    /// Takes in what servers list, until `ended`; `updated` is told of single resources, `tasks` of tasks,
    /// `pins_changed` of servers whose pins say something else now, `look_again` of what is listed to some hosts alone and is another now, which `apart` says.
    pub(in crate::gateway) async fn follow(
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
                    self.remember().await;
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
        match catalog::Part::parse(list.kind, &list.pages, self.pins.list_limits(server)) {
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
            self.outdate();
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

    /// Keeps what servers list for the next run, where that is another than was kept last. Awaited where nothing else is
    /// done: a disk takes its time, and calls do not wait for it.
    async fn remember(&self) {
        let due: Vec<_> = {
            let mut parts = self.parts();
            let slots = self.places.iter().map(|place| &place.slot);
            let due = parts.iter_mut().zip(slots).filter_map(|(part, slot)| {
                let slot = slot.as_ref().filter(|_| part.forgetful)?;
                let content = part.content()?;
                part.forgetful = false;
                Some((Arc::clone(slot), content))
            });
            due.collect()
        };
        if !due.is_empty() {
            let write = move || due.iter().for_each(|(slot, content)| slot.write(content));
            // It panics only if we do; then the next run waits for its servers.
            let _ = tokio::task::spawn_blocking(write).await;
        }
    }

    /// Says what the configuration names and no server lists: a slip of the pen in a deny rule denies nothing. Each is
    /// told once, for as long as that is so.
    pub(super) fn tell_unmatched(&self) {
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
    pub(super) fn pin_again(&self, server: usize) {
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
        self.outdate();
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
