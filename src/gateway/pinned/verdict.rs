//! What pins say of a list and of each entry of it: what is served as it is, as it was reviewed, or not at all.
//!
//! Knows nothing of how a server is started. Called by [`super::super::lists`], [`super::super::audiences`] and
//! [`super::guarded`].

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use super::{Pinned, tell, tell_more};
use crate::catalog::{Part, Pin};
use crate::config::settings::{Additions, PinMode};
use crate::downstream::Served;
use crate::ident::Kind;
use crate::pins::canonical::{self, NotCanonical};
use crate::pins::drift::{self, Compared, EntryState, Finding, Hold};
use crate::pins::facet::{Facet, Hashes};
use crate::pins::lint;
use crate::pins::lock::{Entry, Lock, LockFault};
use crate::pins::observed::Listed;
use crate::shown::shown_str;

impl Pinned {
    /// What pins say of each entry of a list.
    pub(in crate::gateway) fn grade(&self, server: usize, part: &Part) -> Option<Part> {
        if self.observe {
            return None;
        }
        let mode = self.mode(server);
        let blocks = || {
            self.with_locked(server, |locked| {
                locked.is_some_and(|locked| locked.entries.values().any(|entry| entry.blocked))
            })
        };
        if mode == PinMode::Off && !blocks() {
            return None;
        }
        // One lock for all of it: another one may come meanwhile.
        let lock = self.lock.load_full();
        let quarantine = self.quarantine_by(server, &lock);
        self.tell_server(server, mode, quarantine.as_ref());
        let pins: Vec<_> = part
            .entries()
            .map(|(name, definition, digest)| {
                let entry = Entryway { kind: part.kind(), name, definition, digest };
                self.verdict(server, mode, quarantine.is_some(), &lock, &entry)
            })
            .collect();
        let site = &self.sites[server];
        tell_more(&site.key, mode, &mut site.now());
        Some(part.pinned(pins))
    }

    pub(super) fn verdict(
        &self,
        server: usize,
        mode: PinMode,
        quarantined: bool,
        lock: &Result<Option<Lock>, LockFault>,
        entry: &Entryway<'_>,
    ) -> Pin {
        let site = &self.sites[server];
        let held = |hold| Pin::Held(Arc::new(hold));
        if mode == PinMode::Enforce && quarantined {
            return held(Hold::Quarantined);
        }
        let locked = match lock {
            Ok(Some(lock)) => lock.servers.get(&site.key),
            Ok(None) | Err(_) => None,
        };
        let Some(locked) = locked else {
            return if mode == PinMode::Enforce { held(Hold::Quarantined) } else { Pin::Live };
        };
        let reviewed = locked.entries.get(&(entry.kind, entry.name.to_string()));
        if reviewed.is_some_and(|reviewed| reviewed.blocked) {
            return held(Hold::Blocked);
        }
        if mode == PinMode::Off || entry.kind == Kind::Resource && reviewed.is_none() {
            // Sets of resources are dynamic; what was reviewed by its URI is compared.
            return Pin::Live;
        }
        let mut now = site.now();
        let now = &mut *now;
        let slot = (entry.kind, Arc::clone(entry.name));
        let mut fresh;
        let known = match now.known.get_mut(&slot).filter(|known| known.digest == entry.digest) {
            Some(known) => known,
            None => {
                fresh = Known::read(entry);
                &mut fresh
            }
        };
        let compared = known.compare(entry.kind, reviewed);
        let hides = compared.finding == Finding::New
            && known.listed.definition.as_ref().is_ok_and(|definition| !lint::hidden_text(definition).is_empty());
        let before = now.states.get(&slot).copied().unwrap_or(EntryState::Absent);
        let state = before.after(compared.finding);
        now.states.insert(slot, state);
        if state != EntryState::Approved {
            let facets: Vec<_> = compared.facets.iter().map(|facet| facet.as_str()).collect();
            let what = format!("{} {:?} is {state} ({})", entry.kind, shown_str(entry.name), facets.join(", "));
            tell(&site.key, mode, now, what);
        }
        if mode == PinMode::Warn {
            return Pin::Live;
        }
        let snapshot = |reviewed: &Entry| reviewed.definition.as_ref().map(|found| found.text.clone());
        let served = |reviewed: Option<&Entry>| match reviewed.and_then(snapshot) {
            Some(text) => Pin::Locked(text),
            // Without its snapshot nothing is approved.
            None => held(Hold::Pending),
        };
        match compared.finding {
            Finding::Equal => served(reviewed),
            Finding::Differs => {
                let tolerated = |facet: &Facet| site.settings.tolerate.iter().any(|word| word == facet.as_str());
                if !compared.relaxed && !compared.facets.is_empty() && compared.facets.iter().all(tolerated) {
                    served(reviewed)
                } else {
                    held(Hold::Changed(compared.facets))
                }
            }
            Finding::New => {
                let open = match site.settings.additions {
                    Additions::Hold => false,
                    Additions::AllowReadonlyTemplate => entry.kind == Kind::Template,
                    Additions::Allow => true,
                };
                // What hides something is looked at first (T-01).
                if open && !hides { Pin::Live } else { held(Hold::Pending) }
            }
            Finding::Unfit if reviewed.is_some() => held(Hold::Changed(Vec::new())),
            Finding::Unfit | Finding::Gone | Finding::Unknown => held(Hold::Pending),
            Finding::Refused => held(Hold::Blocked),
        }
    }

    /// What is held of a server that was never listed: what was reviewed of it, so that hosts are told why it is not there.
    pub(in crate::gateway) fn held_of(&self, server: usize, kind: Kind) -> Option<Part> {
        if !self.is_closed(server) {
            return None;
        }
        let texts: Vec<_> = self.with_locked(server, |locked| {
            let entries = locked.into_iter().flat_map(|locked| &locked.entries);
            let of_kind = entries.filter(|((of, _), entry)| *of == kind && !entry.blocked);
            of_kind.filter_map(|(_, entry)| entry.definition.as_ref().map(|found| found.text.clone())).collect()
        });
        if texts.is_empty() {
            return None;
        }
        let page = [b"[".as_slice(), &texts.join(&b','), b"]"].concat();
        let part = Part::parse(kind, &[page.into()], self.list_limits(server)).ok()?;
        let pins = vec![Pin::Held(Arc::new(Hold::Quarantined)); part.len()];
        Some(part.pinned(pins))
    }

    /// What of a list may be called.
    pub(super) fn served(&self, server: usize, kind: Kind, pages: &[Bytes]) -> Served {
        let Ok(part) = Part::parse(kind, pages, self.list_limits(server)) else { return Served::default() };
        let lock = self.lock.load_full();
        let quarantined = self.quarantine_by(server, &lock).is_some();
        let mut served = Served { is_read: true, ..Served::default() };
        for (name, definition, digest) in part.entries() {
            let entry = Entryway { kind, name, definition, digest };
            let pin = self.verdict(server, PinMode::Enforce, quarantined, &lock, &entry);
            let names = if matches!(pin, Pin::Held(_)) { &mut served.held } else { &mut served.open };
            names.insert(name.to_string());
        }
        let site = &self.sites[server];
        tell_more(&site.key, PinMode::Enforce, &mut site.now());
        served
    }
}

/// A definition that was read, and its hashes.
pub(super) struct Known {
    /// What tells it from others.
    pub(super) digest: [u8; 16],
    pub(super) listed: Listed,
    /// With these pointers ignored.
    hashes: Option<(Vec<String>, Result<Hashes, NotCanonical>)>,
}

impl Known {
    pub(super) fn read(entry: &Entryway<'_>) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let definition = canonical::read(entry.definition).map(Arc::new);
        let listed = Listed { name: entry.name.to_string(), definition, since };
        Self { digest: entry.digest, listed, hashes: None }
    }

    /// Compares it with what the lock says of it; hashed once.
    fn compare(&mut self, kind: Kind, reviewed: Option<&Entry>) -> Compared {
        let ignore = reviewed.map_or(&[][..], |reviewed| &reviewed.ignore);
        let (_, hashes) = match self.hashes.take() {
            Some(known) if known.0 == ignore => self.hashes.insert(known),
            _ => self.hashes.insert((ignore.to_vec(), self.listed.hashes(kind, ignore))),
        };
        let definition = self.listed.definition.as_deref().unwrap_or(&serde_json::Value::Null);
        drift::compare(reviewed, hashes.as_ref(), definition)
    }
}

/// A listed entry.
pub(super) struct Entryway<'a> {
    pub(super) kind: Kind,
    pub(super) name: &'a Arc<str>,
    pub(super) definition: &'a Bytes,
    pub(super) digest: [u8; 16],
}
