//! What a server says of itself, by its pins: its words to the model, what it can do, the protocol that it speaks.
//!
//! Knows no list and no entry. Called by [`super::super::lists`], [`super::super::audiences`] and the rest of this folder.

use super::{Pinned, tell};
use crate::config::settings::PinMode;
use crate::downstream::{Introduction, Offers};
use crate::pins::canonical::{self, NotCanonical};
use crate::pins::drift::{self, Quarantine};
use crate::pins::facet::{capabilities_hash, instructions_hash};
use crate::pins::lock::{Announced, LockedServer};
use crate::shown::shown_str;

impl Pinned {
    /// A server's words to the model, where they are as reviewed (T-03).
    pub(in crate::gateway) fn instructions(&self, server: usize, words: Option<String>) -> Option<String> {
        if self.mode(server) != PinMode::Enforce {
            return words;
        }
        if self.is_closed(server) {
            return None;
        }
        let hash = instructions_hash(words.as_deref().unwrap_or_default());
        let approved = |locked: &LockedServer| {
            locked.announced.instructions.as_ref().map_or(instructions_hash(""), |(hash, _)| *hash)
        };
        let same = self.with_locked(server, |locked| locked.is_some_and(|locked| approved(locked) == hash));
        words.filter(|_| same)
    }

    /// What of a server's offers is offered to hosts: nothing that was not reviewed.
    pub(in crate::gateway) fn offers(&self, server: usize, offers: &Offers) -> Offers {
        if self.mode(server) != PinMode::Enforce {
            return offers.clone();
        }
        if self.is_closed(server) {
            return Offers::default();
        }
        if self.sites[server].now().observed.announced.as_ref().is_some_and(|announced| announced.unfit.is_some()) {
            return Offers::default();
        }
        let (capabilities, old) = self.with_locked(server, |locked| {
            let announced = locked.map(|locked| &locked.announced);
            let capabilities = announced.and_then(|announced| announced.capabilities.as_ref());
            let old = announced.and_then(|announced| announced.protocol.as_deref()) == Some("2024-11-05");
            (capabilities.map(|(_, value)| value.to_string()), old)
        });
        // It said nothing of itself then, and was asked for everything.
        let Some(capabilities) = capabilities else { return offers.clone() };
        let reviewed = Offers::read(capabilities.as_bytes());
        let both = |now: Option<bool>, then: Option<bool>| now.zip(then).map(|(now, _)| now);
        Offers {
            tools: both(offers.tools, reviewed.tools),
            prompts: both(offers.prompts, reviewed.prompts),
            resources: both(offers.resources, reviewed.resources),
            subscribe: offers.subscribe && reviewed.subscribe,
            completions: offers.completions && (reviewed.completions || old),
            logging: offers.logging && reviewed.logging,
            ui: offers.ui.clone().filter(|_| reviewed.ui.is_some()),
            tasks: offers.tasks && reviewed.tasks,
            task_calls: offers.task_calls && reviewed.task_calls,
        }
    }

    /// Tells of what is not as reviewed about a server as a whole.
    pub(super) fn tell_server(&self, server: usize, mode: PinMode, quarantine: Option<&Quarantine>) {
        let site = &self.sites[server];
        let mut now = site.now();
        if let Some(quarantine) = quarantine {
            tell(&site.key, mode, &mut now, quarantine.to_string());
            return;
        }
        let Some(announced) = now.observed.announced.clone() else { return };
        let said = self.with_locked(server, |locked| locked.map(|locked| drift::said(&locked.announced, &announced)));
        let Some(said) = said else { return };
        if said.renamed {
            tell(&site.key, mode, &mut now, "it announces another name or version".to_owned());
        }
        if said.instructions {
            tell(&site.key, mode, &mut now, "its instructions are others".to_owned());
        }
        if let Some(what) = said.of_capabilities() {
            tell(&site.key, mode, &mut now, what);
        }
        if let Some((now_spoken, locked)) = said.downgrade {
            let what = format!("protocol-downgrade: it speaks {}, older than {locked}", shown_str(&now_spoken));
            tell(&site.key, mode, &mut now, what);
        }
    }
}

/// As the lock would have it.
pub(super) fn announced(introduction: &Introduction, instructions: Option<&str>) -> Announced {
    let read = |raw: &[u8]| {
        let value = canonical::read(raw)?;
        Ok::<_, NotCanonical>((capabilities_hash(&value)?, value))
    };
    let (capabilities, unfit) = match introduction.capabilities.as_deref().map(read) {
        Some(Ok(read)) => (Some(read), None),
        Some(Err(why)) => (None, Some(why)),
        None => (None, None),
    };
    let words = instructions.unwrap_or_default();
    Announced {
        name: introduction.name.clone(),
        version: introduction.version.clone(),
        protocol: Some(introduction.protocol.to_owned()),
        capabilities,
        unfit,
        instructions: Some((instructions_hash(words), words.to_owned())),
    }
}
