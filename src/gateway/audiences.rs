//! What servers list to hosts that can do more: many a server shows a tool that asks its user only to who can ask one
//! (LST-1, CCH-6). A legacy server learns that at `initialize`, so it is listed on the connection of those hosts.
//!
//! An audience is one principal with one set of capabilities; what such servers list to it nobody else sees (INV-6, CCH-5).
//! Where they list to it what they list to all there is nothing to keep. Filled when its host first lists or asks for
//! what is not known, and again when the server says that something changed there or its connection is another.
//!
//! What may be seen at all is not decided here: what is listed to an audience is merged for the sight of its principal,
//! which [`super::lists`] has of policy, and the operator's overrides hold for it as for what is listed to all.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwapOption;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::task::TaskTracker;

use super::lists::{Lists, QUIET, Seen};
use crate::caller::Caller;
use crate::catalog::{self, Catalogue};
use crate::config::settings::Sharing;
use crate::downstream::{OwnLists, Server};
use crate::ident::{Kind, Principal};
use crate::protocol::capability::Capabilities;
use crate::protocol::version::Era;

/// Audiences that are kept, at most, and those of one principal: the one unused longest goes.
const MAX_AUDIENCES: usize = 64;
const MAX_EACH: usize = 8;

/// What its members have in common.
struct Who {
    principal: Principal,
    capabilities: Capabilities,
    era: Era,
    /// Where each session has its own connection to some server.
    session: Option<u64>,
}

/// Those who see the same, and what that is.
pub(super) struct Audience {
    who: Who,
    /// Whoever asked first; all of them are served alike.
    caller: Caller,
    /// By server.
    own: Mutex<Vec<Own>>,
    /// Counts changes of what is kept of them.
    version: AtomicU64,
    /// By profile, with the versions of what it was built of.
    built: Vec<ArcSwapOption<(u64, u64, Arc<Catalogue>)>>,
    /// Told whenever a server was looked at.
    looked: watch::Sender<u64>,
}

/// What one server lists to it.
#[derive(Default)]
struct Own {
    /// By kind; nothing where it is what the server lists to all.
    items: [Option<Arc<catalog::Part>>; 4],
    /// The state of the server that it is of.
    of: Option<crate::downstream::ListedAt>,
    /// It had its chance.
    settled: bool,
    looking: bool,
}

impl Audience {
    fn own(&self) -> MutexGuard<'_, Vec<Own>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All audiences.
pub(super) struct Audiences {
    servers: Vec<Arc<Server>>,
    lists: Arc<Lists>,
    /// The last used one last.
    known: Mutex<VecDeque<Arc<Audience>>>,
    by_session: bool,
    tasks: TaskTracker,
}

impl Audiences {
    pub(super) fn new(servers: Vec<Arc<Server>>, lists: Arc<Lists>, tasks: TaskTracker) -> Arc<Self> {
        let by_session = servers.iter().any(|server| server.settings().sharing == Sharing::Session);
        Arc::new(Self { servers, lists, known: Mutex::default(), by_session, tasks })
    }

    /// Those that are there, with their places.
    fn servers(&self) -> impl Iterator<Item = (usize, &Arc<Server>)> {
        self.servers.iter().enumerate().filter(|(server, _)| !self.lists.places()[*server].gone)
    }

    fn known(&self) -> MutexGuard<'_, VecDeque<Arc<Audience>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_of(&self, who: &Who, caller: &Caller) -> bool {
        let sight = |principal: &Principal| self.lists.sight(principal, 0);
        who.principal == caller.principal
            && sight(&who.principal) == sight(&caller.principal)
            && who.era == caller.revision.era()
            && who.session == caller.session.filter(|_| self.by_session)
            && who.capabilities == caller.capabilities
    }

    /// What a caller sees, where anything was found out about that.
    fn find(&self, caller: &Caller) -> Option<Arc<Audience>> {
        if caller.capabilities.is_empty() {
            return None;
        }
        let mut known = self.known();
        let at = known.iter().rposition(|audience| self.is_of(&audience.who, caller))?;
        if at + 1 < known.len() {
            let audience = known.remove(at)?;
            known.push_back(audience);
        }
        known.back().map(Arc::clone)
    }

    /// Whether any server may list something else to this caller than to all.
    fn lists_apart(&self, caller: &Caller) -> bool {
        self.servers().any(|(index, server)| server.lists_apart(&self.lists.granted(caller, index)))
    }

    /// The same; begun where nothing was. Nothing for who sees what all see.
    fn of(&self, caller: &Caller) -> Option<Arc<Audience>> {
        if caller.capabilities.is_empty() || !self.lists_apart(caller) {
            return None;
        }
        if let Some(audience) = self.find(caller) {
            return Some(audience);
        }
        let audience = Arc::new(Audience {
            who: Who {
                principal: caller.principal.clone(),
                capabilities: caller.capabilities.clone(),
                era: caller.revision.era(),
                session: caller.session.filter(|_| self.by_session),
            },
            caller: caller.clone(),
            own: Mutex::new(self.servers.iter().map(|_| Own::default()).collect()),
            version: AtomicU64::new(0),
            built: (0..self.lists.profiles()).map(|_| ArcSwapOption::empty()).collect(),
            looked: watch::Sender::new(0),
        });
        let mut known = self.known();
        let own = |other: &&Arc<Audience>| other.who.principal == audience.who.principal;
        if known.iter().filter(own).count() >= MAX_EACH {
            // Nobody pushes others out.
            let oldest = known.iter().position(|other| own(&other));
            oldest.and_then(|at| known.remove(at));
        } else if known.len() >= MAX_AUDIENCES {
            known.pop_front();
        }
        known.push_back(Arc::clone(&audience));
        Some(audience)
    }

    /// Everything that a caller sees now.
    pub(super) fn catalogue(&self, caller: &Caller) -> Arc<Catalogue> {
        let sight = self.lists.sight(&caller.principal, caller.profile);
        let Some(audience) = self.find(caller) else { return self.lists.catalogue(sight) };
        let version = audience.version.load(Ordering::Acquire);
        if version == 0 {
            return self.lists.catalogue(sight);
        }
        let base = self.lists.version();
        if let Some(built) = &*audience.built[caller.profile].load()
            && (built.0, built.1) == (base, version)
        {
            return Arc::clone(&built.2);
        }
        let items: Vec<_> = audience.own().iter().map(|own| own.items.clone()).collect();
        let built = self.lists.build(sight, |server, kind| items[server][kind.index()].clone());
        if audience.built[caller.profile].load().as_ref().is_some_and(|old| old.2.is_indexed()) {
            self.lists.background().prepare(&built);
        }
        audience.built[caller.profile].store(Some(Arc::new((base, version, Arc::clone(&built)))));
        built
    }

    /// The same in short; for who sees what all see, what these were told last.
    pub(super) fn seen(&self, caller: &Caller) -> Seen {
        match self.find(caller) {
            Some(audience) if audience.version.load(Ordering::Acquire) > 0 => Seen::of(&self.catalogue(caller)),
            _ => self.lists.seen(self.lists.sight(&caller.principal, caller.profile)),
        }
    }

    /// Whether a list of this caller need not wait for what servers list to it alone; looks again where that is old.
    pub(super) fn is_settled(self: &Arc<Self>, caller: &Caller) -> bool {
        self.of(caller).is_none_or(|audience| {
            self.look(&audience);
            self.has_settled(&audience, caller.profile, &|_| true)
        })
    }

    /// Waits until each of these servers that may list something else to this caller has done so or failed, `deadline`
    /// at most.
    pub(super) async fn settle(
        self: &Arc<Self>,
        caller: &Caller,
        deadline: Instant,
        which: impl Fn(usize) -> bool + Sync,
    ) {
        let Some(audience) = self.of(caller) else { return };
        self.look(&audience);
        let mut looked = audience.looked.subscribe();
        let _ = timeout_at(deadline, looked.wait_for(|_| self.has_settled(&audience, caller.profile, &which))).await;
    }

    fn has_settled(&self, audience: &Audience, profile: usize, which: &dyn Fn(usize) -> bool) -> bool {
        let view = self.lists.show(self.lists.sight(&audience.who.principal, profile));
        let own = audience.own();
        self.servers().all(|(server, its)| {
            own[server].settled
                || !which(server)
                || !view.shows(server)
                || !its.lists_apart(&self.lists.granted(&audience.caller, server))
        })
    }

    /// The pins of a server say something else now: what it lists is looked at anew.
    pub(super) fn look_anew(self: &Arc<Self>, server: usize) {
        for audience in self.known().iter() {
            audience.own()[server].of = None;
        }
        self.look_again();
    }

    /// Something changed that a server lists to some hosts alone.
    pub(super) fn look_again(self: &Arc<Self>) {
        let known: Vec<_> = self.known().iter().cloned().collect();
        for audience in known {
            self.look(&audience);
        }
    }

    /// A session has ended, and so has what it saw alone.
    pub(super) fn session_ended(&self, session: u64) {
        if self.by_session {
            self.known().retain(|audience| audience.who.session != Some(session));
        }
    }

    /// Has the servers list whose lists for this audience are not known or old.
    fn look(self: &Arc<Self>, audience: &Arc<Audience>) {
        for (index, server) in self.servers() {
            let caller = self.lists.granted(&audience.caller, index);
            if !server.lists_apart(&caller) {
                continue;
            }
            let mut own = audience.own();
            let own = &mut own[index];
            if own.looking || own.of.as_ref().is_some_and(|at| server.is_listed_as(&caller, at)) {
                continue;
            }
            own.looking = true;
            let (audiences, audience, server) = (Arc::clone(self), Arc::clone(audience), Arc::clone(server));
            self.tasks.spawn(async move { audiences.fill(index, &server, &audience).await });
        }
    }

    async fn fill(self: &Arc<Self>, index: usize, server: &Server, audience: &Audience) {
        let kinds = Kind::ALL.map(|kind| self.lists.offers_of(index).is_some_and(|offers| offers.of(kind).is_some()));
        let kinds: Vec<_> = Kind::ALL.into_iter().filter(|kind| kinds[kind.index()]).collect();
        let granted = self.lists.granted(&audience.caller, index);
        let caller = server.narrowed(&granted);
        let found = server.own_lists(&caller, &kinds).await;
        let mut changed = false;
        {
            let mut own = audience.own();
            let own = &mut own[index];
            (own.looking, own.settled) = (false, true);
            match found {
                Ok(OwnLists { at, lists }) => {
                    own.of = Some(at);
                    let limits = server.settings().limits.lists;
                    for (kind, pages) in lists {
                        match catalog::Part::parse(kind, &pages, limits) {
                            Ok(listed) => {
                                let items = self.lists.pinned(index, listed);
                                let items = (!self.lists.lists_same(index, &items)).then(|| Arc::new(items));
                                let before = &mut own.items[kind.index()];
                                let same = match (&*before, &items) {
                                    (Some(before), Some(items)) => before.same_as(items),
                                    (None, None) => true,
                                    _ => false,
                                };
                                changed |= !same;
                                *before = items;
                            }
                            Err(error) => {
                                tracing::warn!(server = %server.key(), "a list for one host is not taken: {error}")
                            }
                        }
                    }
                }
                // The last good lists stay.
                Err(fault) => tracing::debug!(server = %server.key(), %fault, "not listed for one host"),
            }
        }
        if changed {
            audience.version.fetch_add(1, Ordering::AcqRel);
        }
        audience.looked.send_modify(|looks| *looks += 1);
        if changed {
            // Who waited for it has it by then, and need not be told.
            sleep(QUIET).await;
            self.lists.tick();
        }
    }
}
