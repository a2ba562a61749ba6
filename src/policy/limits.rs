//! How often, how many at a time, how much: `[[policy.limit]]` and the rates of servers (§8.5, contract §4).
//!
//! A call is charged when it is admitted, once, and then by every limit that is about it: by all or by none. Asked only
//! through [`super::Policy`].

use std::hash::BuildHasher as _;
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::RulesError;
use super::meter::{Calendar, Clock, Gauge, Meter};
use super::verdict::{Permit, Reason};
use crate::config::settings::{LimitSettings, Per, PolicySettings, ServerSettings};
use crate::config::settings::{Target, WhoPattern};
use crate::ident::{Kind, Principal, ServerKey};

/// A limit, by its place among all limits.
pub type LimitId = u32;

/// All limits.
#[derive(Debug, Default)]
pub(super) struct Limits {
    limits: Vec<Limit>,
    hash: RandomState,
}

#[derive(Debug)]
struct Limit {
    /// As it is written, its place aside.
    written: LimitSettings,
    who: Vec<WhoPattern>,
    targets: Vec<Target>,
    per: Per,
    rate: Option<Arc<Meter>>,
    quota: Option<Arc<Calendar>>,
    concurrency: Option<Arc<Gauge>>,
    max_result: Option<u64>,
    /// It is a server's own.
    of_server: bool,
    place: String,
}

/// What is charged: who, at what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keys {
    pub(super) principal: u64,
    pub(super) server: u64,
    pub(super) item: u64,
}

/// Why a limit refuses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exceeded {
    pub(super) limit: LimitId,
    pub(super) reason: Reason,
    pub(super) retry_after: Option<std::time::Duration>,
}

/// A limit as people are told of it.
#[derive(Clone, Debug)]
pub struct LimitNote {
    /// Where it stands.
    pub place: String,
    /// Who has one of his own.
    pub per: &'static str,
    /// What is left of the rate now.
    pub rate_left: Option<u64>,
    /// What is left of the quota.
    pub quota_left: Option<u32>,
    /// How many may begin now.
    pub concurrency_left: Option<u32>,
    /// Largest result.
    pub max_result: Option<u64>,
}

impl Limits {
    pub(super) fn compile(
        settings: &PolicySettings,
        servers: &[ServerSettings],
        clock: &Clock,
    ) -> Result<Self, Vec<RulesError>> {
        let mut faults = Vec::new();
        let of_servers = servers.iter().filter_map(|server| {
            let (rate, burst) = server.limits.rate?;
            let (target, place) = (format!("{}/*/*", server.key), format!("servers.{}.limits", server.key));
            Some(LimitSettings {
                rate: Some(rate),
                burst,
                ..LimitSettings::new(["*".to_owned()], [target], Per::Server, place)
            })
        });
        let written = settings.limits.iter().cloned().map(|limit| (limit, false));
        let all = written.chain(of_servers.map(|limit| (limit, true)));
        let limits = all.enumerate().map(|(index, (written, of_server))| {
            let key = |member: &str| format!("policy.limit[{index}].{member}");
            Limit {
                who: super::compile_all(&written.who, WhoPattern::new, &key("who"), &mut faults),
                targets: super::compile_all(&written.target, Target::new, &key("target"), &mut faults),
                per: written.per,
                rate: written
                    .rate
                    .map(|rate| Arc::new(Meter::new(rate, written.burst.unwrap_or(rate.count), clock.clone()))),
                quota: written.quota.map(|quota| Arc::new(Calendar::new(quota, clock.clone()))),
                concurrency: written.concurrency.map(|most| Arc::new(Gauge::new(most))),
                max_result: written.max_result,
                of_server,
                place: written.place.clone(),
                written: LimitSettings { place: String::new(), ..written },
            }
        });
        let limits = limits.collect();
        if faults.is_empty() { Ok(Self { limits, hash: RandomState::default() }) } else { Err(faults) }
    }

    /// Goes on counting where others stood: of each limit that is written as one of theirs, wherever that is. A policy that is
    /// loaded anew gives nobody a fresh quota.
    pub(super) fn go_on(&mut self, before: &Self) {
        // Keys are hashes: the same name must have the same one.
        self.hash = before.hash.clone();
        let mut before: Vec<&Limit> = before.limits.iter().collect();
        for limit in &mut self.limits {
            let same = |old: &&Limit| old.written == limit.written && old.of_server == limit.of_server;
            let Some(at) = before.iter().position(same) else { continue };
            let old = before.swap_remove(at);
            (limit.rate, limit.quota) = (old.rate.clone(), old.quota.clone());
            limit.concurrency = old.concurrency.clone();
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.limits.is_empty()
    }

    /// Which limits are about this principal, by place.
    pub(super) fn about(&self, who: &Principal) -> Vec<bool> {
        self.limits.iter().map(|limit| limit.who.iter().any(|pattern| pattern.matches(who))).collect()
    }

    /// The limits about an item, whoever asks for it.
    pub(super) fn of(&self, key: &ServerKey, kind: Kind, native: &str) -> Box<[LimitId]> {
        let of = |limit: &Limit| limit.targets.iter().any(|target| target.matches(key.as_str(), kind, native));
        (0..).zip(&self.limits).filter(|(_, limit)| of(limit)).map(|(id, _)| id).collect()
    }

    /// A number for a name.
    pub(super) fn number(&self, name: &str) -> u64 {
        self.hash.hash_one(name)
    }

    /// A number for an item.
    pub(super) fn number_of(&self, server: usize, kind: Kind, native: &str) -> u64 {
        self.hash.hash_one((server, kind.index(), native))
    }

    /// Charges a call to all of these limits that are about its principal, or to none and tells the first that refuses.
    pub(super) fn charge(
        &self,
        of: &[LimitId],
        about: &[bool],
        keys: Keys,
        permit: &mut Permit,
    ) -> Result<(), Exceeded> {
        for (taken, id) in these(of, about).enumerate() {
            if let Err((reason, retry_after)) = self.take(id, keys, permit) {
                these(of, about).take(taken).for_each(|earlier| self.give_back(earlier, keys));
                permit.running.clear();
                return Err(Exceeded { limit: id, reason, retry_after });
            }
        }
        Ok(())
    }

    /// The same with the servers' own limits alone, which are about everybody.
    pub(super) fn charge_server(&self, of: &[LimitId], keys: Keys, permit: &mut Permit) -> Result<(), Exceeded> {
        let own: Vec<bool> = self.limits.iter().map(|limit| limit.of_server).collect();
        self.charge(of, &own, keys, permit)
    }

    /// Takes one of a limit, all or nothing.
    fn take(&self, id: LimitId, keys: Keys, permit: &mut Permit) -> Result<(), (Reason, Option<std::time::Duration>)> {
        let limit = &self.limits[id as usize];
        let key = self.key(limit, keys);
        if let Some(gauge) = &limit.concurrency {
            permit.running.push(gauge.take(key).ok_or((Reason::ConcurrencyLimited, None))?);
        }
        if let Some(quota) = &limit.quota {
            quota.take(key).map_err(|after| (Reason::QuotaExhausted, Some(after)))?;
        }
        if let Some(meter) = &limit.rate
            && let Err(after) = meter.take(key)
        {
            if let Some(quota) = &limit.quota {
                quota.give_back(key);
            }
            return Err((Reason::RateLimited, Some(after)));
        }
        Ok(())
    }

    fn give_back(&self, id: LimitId, keys: Keys) {
        let limit = &self.limits[id as usize];
        let key = self.key(limit, keys);
        if let Some(meter) = &limit.rate {
            meter.give_back(key);
        }
        if let Some(quota) = &limit.quota {
            quota.give_back(key);
        }
    }

    /// Only places among those that run: of a call that was charged before.
    pub(super) fn enter(
        &self,
        of: &[LimitId],
        about: &[bool],
        keys: Keys,
        permit: &mut Permit,
    ) -> Result<(), Exceeded> {
        for id in these(of, about) {
            let limit = &self.limits[id as usize];
            let Some(gauge) = &limit.concurrency else { continue };
            match gauge.take(self.key(limit, keys)) {
                Some(place) => permit.running.push(place),
                None => {
                    permit.running.clear();
                    let reason = Reason::ConcurrencyLimited;
                    return Err(Exceeded { limit: id, reason, retry_after: None });
                }
            }
        }
        Ok(())
    }

    /// The smallest bound of results among these limits.
    pub(super) fn max_result(&self, of: &[LimitId], about: &[bool]) -> Option<u64> {
        these(of, about).filter_map(|id| self.limits[id as usize].max_result).min()
    }

    fn key(&self, limit: &Limit, keys: Keys) -> u64 {
        match limit.per {
            Per::Principal => keys.principal,
            Per::Server => keys.server,
            Per::Tool => keys.item,
            Per::PrincipalTool => self.hash.hash_one((keys.principal, keys.item)),
            Per::Everyone => 0,
        }
    }

    /// What is left of these limits.
    pub(super) fn notes(&self, of: &[LimitId], about: &[bool], keys: Keys) -> Vec<LimitNote> {
        let note = |id: &LimitId| {
            let limit = &self.limits[*id as usize];
            let key = self.key(limit, keys);
            LimitNote {
                place: limit.place.clone(),
                per: limit.per.as_str(),
                rate_left: limit.rate.as_ref().map(|meter| meter.left(key)),
                quota_left: limit.quota.as_ref().map(|quota| quota.left(key)),
                concurrency_left: limit.concurrency.as_ref().map(|gauge| gauge.left(key)),
                max_result: limit.max_result,
            }
        };
        of.iter().filter(|&&id| about.get(id as usize) == Some(&true)).map(note).collect()
    }

    /// Where a limit stands.
    pub(super) fn place(&self, id: LimitId) -> &str {
        &self.limits[id as usize].place
    }
}

/// Those of these limits that are about a principal.
fn these(of: &[LimitId], about: &[bool]) -> impl Iterator<Item = LimitId> {
    of.iter().copied().filter(|&id| about.get(id as usize) == Some(&true))
}
