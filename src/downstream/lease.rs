//! Which client of a server serves a caller (CON-1…CON-4): the base, which all share who may, or one of its own.
//!
//! A legacy connection freezes at `initialize` what its hosts can do, so nobody shares one with another principal or
//! another profile. The choice is a pure function; the table keeps the clients that were made for it, within bounds.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::client::{Client, Ground, Nature};
use super::process::Pace;
use crate::caller::Caller;
use crate::config::settings::{EraChoice, ServerSettings, Sharing};
use crate::ident::Principal;
use crate::protocol::capability::Capabilities;
use crate::protocol::version::Era;

/// Clients of one principal, at most, of one server (CON-4).
const PER_PRINCIPAL: usize = 3;
/// Clients beside the base, at most, of one server.
const IN_ALL: usize = 64;
/// A client beside the base that nobody used for this long is stopped.
pub(super) const IDLE: Duration = Duration::from_secs(300);

/// Whose connection it is: what was declared to the server when it was opened, and whether it is the one that lists.
#[derive(Clone, Debug, Default)]
pub(super) struct Lease {
    /// What the hosts that share it can do. Towards a modern server each request says it anew.
    pub(super) capabilities: Capabilities,
    /// It serves some hosts' calls alone: it is started when they call, and lists nothing.
    pub(super) calls_only: bool,
    /// It speaks the legacy era at once, to a server that is known to speak it.
    pub(super) legacy: bool,
    /// Only presumed to speak it: whoever waits for it does not wait longer than for one attempt.
    pub(super) tentative: bool,
}

/// Who has a client of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Holder {
    principal: Principal,
    /// The legacy session, where each has its own.
    session: Option<u64>,
    capabilities: Capabilities,
    legacy: bool,
}

/// Where a caller's requests go.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// To the base.
    Base,
    /// To a client of its own.
    Own(Holder),
}

/// Decides for a caller; `owns_base` tells whether the base is its principal's, and makes it so when it is nobody's.
pub(super) fn choose(
    settings: &ServerSettings,
    nature: Nature,
    caller: &Caller,
    owns_base: impl FnOnce() -> bool,
) -> Choice {
    let modern_host = caller.revision.era() == Era::Modern;
    let own = |session, capabilities: Capabilities, legacy| {
        // A modern host has no way to tell that its roots changed.
        let roots_list_changed = capabilities.roots_list_changed && !modern_host;
        let capabilities = Capabilities { roots_list_changed, ..capabilities };
        Choice::Own(Holder { principal: caller.principal.clone(), session, capabilities, legacy })
    };
    // Servers of both eras ask back only in the era that their host speaks: mirror it.
    let mirrored =
        nature == Nature::Both && settings.era == EraChoice::Auto && !modern_host && caller.capabilities.may_be_asked();
    // What is known need not be asked again.
    let legacy = mirrored || nature == Nature::Legacy;
    let declared = || match nature {
        // What belongs to a modern request alone makes no difference here (TSK-10).
        Nature::Legacy => Capabilities { tasks: false, ..caller.capabilities.clone() },
        Nature::Both if mirrored => caller.capabilities.clone(),
        // Each request says it (CON-2).
        Nature::Modern | Nature::Both => Capabilities::default(),
    };
    match (settings.sharing, caller.session) {
        (Sharing::Shared, _) => Choice::Base,
        (Sharing::Session, Some(session)) => own(Some(session), declared(), legacy),
        (Sharing::Auto | Sharing::Session, _) if nature != Nature::Legacy => {
            if mirrored {
                own(None, declared(), true)
            } else {
                Choice::Base
            }
        }
        (Sharing::Auto | Sharing::Session | Sharing::Principal, _) => {
            let declared = declared();
            if declared.is_empty() && owns_base() { Choice::Base } else { own(None, declared, legacy) }
        }
    }
}

/// The clients of one server beside its base.
#[derive(Default)]
pub(super) struct Leases(Mutex<Table>);

#[derive(Default)]
struct Table {
    /// The principal whose the base is, where it cannot be everybody's.
    owner: Option<Principal>,
    leased: Vec<Leased>,
    /// Counts uses, for who was used longest ago.
    uses: u64,
    /// No more are made.
    stopped: bool,
}

struct Leased {
    holder: Holder,
    client: Arc<Client>,
    used: u64,
}

/// A client in use: it is not ended for want of room.
pub(super) struct Held(pub(super) Arc<Client>);

impl Held {
    fn new(client: &Arc<Client>) -> Self {
        client.users.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(client))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.users.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Holder {
    /// Whether the server is told anything of what its hosts can do.
    pub(super) fn declares(&self) -> bool {
        !self.capabilities.is_empty()
    }

    /// Whether it wants the legacy era.
    pub(super) fn is_legacy(&self) -> bool {
        self.legacy
    }
}

impl Leases {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the base is this principal's. It is the first one's that asks.
    pub(super) fn owns_base(&self, principal: &Principal) -> bool {
        let mut table = self.table();
        match &table.owner {
            Some(owner) => owner == principal,
            None => {
                table.owner = Some(principal.clone());
                true
            }
        }
    }

    /// The client of a holder, made when there is none (`tentative`: see [`Lease`]). `None` when there is no room, and none that declares less
    /// could serve instead (CON-4).
    pub(super) fn take(&self, holder: Holder, ground: &Ground, tentative: bool) -> Option<Held> {
        let mut table = self.table();
        let Table { leased, uses, stopped, .. } = &mut *table;
        *uses += 1;
        if let Some(known) = leased.iter_mut().find(|known| known.holder == holder) {
            known.used = *uses;
            return Some(Held::new(&known.client));
        }
        if *stopped {
            return None;
        }
        let own = |known: &Leased| known.holder.session.is_none() && known.holder.principal == holder.principal;
        let crowded = holder.session.is_none() && leased.iter().filter(|known| own(known)).count() >= PER_PRINCIPAL;
        if crowded || leased.len() >= IN_ALL {
            let idle = leased.iter().enumerate().filter(|(_, known)| !crowded || own(known));
            let idle = idle.filter(|(_, known)| known.client.users.load(Ordering::Acquire) == 0);
            match idle.min_by_key(|(_, known)| known.used).map(|(at, _)| at) {
                Some(at) => leased.swap_remove(at).client.stop(Pace::CALM),
                None => {
                    let within = leased.iter_mut().filter(|known| {
                        let theirs = &known.holder;
                        (&theirs.principal, theirs.session, theirs.legacy)
                            == (&holder.principal, holder.session, holder.legacy)
                            && theirs.capabilities.is_within(&holder.capabilities)
                    });
                    let known = within.max_by_key(|known| known.used)?;
                    known.used = *uses;
                    return Some(Held::new(&known.client));
                }
            }
        }
        let Holder { capabilities, legacy, .. } = holder.clone();
        let client = Client::run(ground, Lease { capabilities, calls_only: true, legacy, tentative });
        let held = Held::new(&client);
        leased.push(Leased { holder, client, used: *uses });
        Some(held)
    }

    /// The client of a holder, if there is one.
    pub(super) fn find(&self, holder: &Holder) -> Option<Arc<Client>> {
        self.table().leased.iter().find(|known| known.holder == *holder).map(|known| Arc::clone(&known.client))
    }

    /// Ends a client that serves nobody after all.
    pub(super) fn end(&self, client: &Arc<Client>) {
        self.table().leased.retain(|known| !Arc::ptr_eq(&known.client, client));
        client.stop(Pace::CALM);
    }

    /// Ends what a legacy session had alone.
    pub(super) fn session_ended(&self, session: u64) {
        self.table().leased.retain(|known| {
            let ended = known.holder.session == Some(session);
            if ended {
                known.client.stop(Pace::CALM);
            }
            !ended
        });
    }

    /// The roots of a principal's host changed.
    pub(super) fn roots_changed(&self, principal: &Principal, session: Option<u64>) {
        for known in &self.table().leased {
            let holder = &known.holder;
            if holder.principal == *principal && (holder.session.is_none() || holder.session == session) {
                known.client.roots_changed(holder.capabilities.roots_list_changed);
            }
        }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.table().leased.len()
    }

    /// See [`Client::wake`].
    pub(super) fn wake(&self) {
        self.table().leased.iter().for_each(|known| known.client.wake());
    }

    /// Stops all, at this pace; no more are made.
    pub(super) fn stop(&self, pace: Pace) {
        let mut table = self.table();
        table.stopped = true;
        for known in table.leased.drain(..) {
            known.client.stop(pace);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::settings::ServerFault;
    use crate::ident::ServerKey;
    use crate::protocol::version::Revision;

    fn caller(revision: Revision, declared: &str) -> Caller {
        let capabilities = Capabilities::read(declared.as_bytes());
        let session = (revision.era() == Era::Legacy).then_some(7);
        Caller { capabilities, session, ..Caller::stdio(revision) }
    }

    const ROOTS: &str = r#"{"roots":{"listChanged":true}}"#;
    const LEGACY: Revision = Revision::V2025_11_25;
    const MODERN: Revision = Revision::V2026_07_28;

    fn chosen(sharing: Sharing, nature: Nature, caller: &Caller, owns_base: bool) -> Choice {
        let fault = ServerFault { key: "x".into(), message: "x".into() };
        let mut settings = ServerSettings::new(ServerKey::new("a").unwrap(), Err(fault));
        settings.sharing = sharing;
        choose(&settings, nature, caller, || owns_base)
    }

    #[test]
    fn con2_con3_who_shares_the_base() {
        use Nature::{Both, Legacy, Modern};
        use Sharing::{Auto, Principal, Session, Shared};
        for (sharing, nature, revision, declared, owns_base, base) in [
            // A modern server is everybody's, since each request says what its host can do.
            (Auto, Modern, LEGACY, ROOTS, false, true),
            (Auto, Modern, MODERN, ROOTS, false, true),
            // A legacy one is one principal's, and of it those that declare nothing.
            (Auto, Legacy, LEGACY, "{}", true, true),
            (Auto, Legacy, MODERN, "{}", true, true),
            (Auto, Legacy, LEGACY, "{}", false, false),
            (Auto, Legacy, LEGACY, ROOTS, true, false),
            (Auto, Legacy, MODERN, ROOTS, true, false),
            // One of both eras asks back in the era of the host.
            (Auto, Both, LEGACY, ROOTS, true, false),
            (Auto, Both, LEGACY, "{}", false, true),
            (Auto, Both, MODERN, ROOTS, false, true),
            (Shared, Legacy, LEGACY, ROOTS, false, true),
            (Session, Legacy, LEGACY, "{}", true, false),
            (Session, Modern, LEGACY, "{}", true, false),
            (Session, Legacy, MODERN, "{}", true, true),
            (Principal, Modern, MODERN, ROOTS, true, true),
            (Principal, Modern, MODERN, ROOTS, false, false),
        ] {
            let choice = chosen(sharing, nature, &caller(revision, declared), owns_base);
            assert_eq!(
                choice == Choice::Base,
                base,
                "{sharing:?} {nature:?} {revision:?} {declared} {owns_base}: {choice:?}"
            );
        }
    }

    #[test]
    fn con4_a_profile_is_what_the_host_declared_and_its_era_has() {
        let of = |revision| match chosen(Sharing::Auto, Nature::Legacy, &caller(revision, ROOTS), true) {
            Choice::Own(holder) => holder,
            Choice::Base => panic!("the base"),
        };
        assert!(of(LEGACY).capabilities.roots_list_changed);
        assert!(!of(MODERN).capabilities.roots_list_changed);
        assert_eq!(of(LEGACY).session, None, "the sessions of a principal share");
    }
}
