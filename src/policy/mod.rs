//! Decisions: what is visible when a list is built, what may be called when a call comes.
//!
//! Knows no connection and no session, and of messages the arguments alone; the time comes in as a [`Clock`]. Both
//! questions go through [`Policy`], so that list and call cannot disagree (INV-8, D095), and the answer lives in no
//! session or connection, so that a restart, a renewal or an early call meets the same rule (D097). `catalog` asks when
//! it is built, `gateway` for each call. What one endpoint shows of all that is a [`View`].
//!
//! Immutable but for what is counted. Rules are compiled once; whom they are about is found out once for each
//! principal ([`Class`]), what they say of an item once for each class ([`Terms`]); a decision is then a look at
//! [`Terms`] and, where it hangs on them, at the arguments.

mod allow;
mod approved;
mod arguments;
mod explain;
mod limits;
mod meter;
mod rules;
mod served;
mod surface;
mod times;
pub mod verdict;
mod view;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};

pub use allow::{ItemRules, RulesError};
pub use approved::{Approved, Hints};
pub use arguments::Extent;
pub use explain::Explanation;
pub use limits::{LimitId, LimitNote};
pub use meter::{Clock, MAX_KEYS};
pub use rules::{RuleId, RuleNote};
pub use served::ServerRules;
pub use surface::Surface;
pub use times::Phase;
pub use verdict::{Permit, Reason, Refusal};
pub use view::View;

use crate::config::settings::{Attempts, Settings};
use crate::ident::{Capability, Kind, Principal, ServerKey};
use limits::{Keys, Limits};
use meter::Meter;
use rules::{Rules, Ruling, Standing, Word};
use served::climbs;

/// Classes of principals that are told apart, at most; whoever would be one more may do nothing.
const MAX_CLASSES: usize = 4096;

/// Compiles all of these texts; faults go to `faults` under `key`.
fn compile_all<T, E: std::fmt::Display>(
    texts: &[String],
    compile: impl Fn(&str) -> Result<T, E>,
    key: &str,
    faults: &mut Vec<RulesError>,
) -> Vec<T> {
    let mut compiled = Vec::with_capacity(texts.len());
    for text in texts {
        match compile(text) {
            Ok(one) => compiled.push(one),
            Err(fault) => faults.push(RulesError { key: key.to_owned(), fault: fault.to_string() }),
        }
    }
    compiled
}

/// Everybody whom the same rules and limits are about. The default is everybody, where there are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Class(u32);

#[derive(Debug, Default)]
struct Members {
    /// What makes them one class.
    rules: Vec<RuleId>,
    limits: Vec<bool>,
    standing: Standing,
    /// One class too many: nothing may be done.
    closed: bool,
}

/// What policy says of one item to one class, whatever call comes.
#[derive(Clone, Debug)]
pub struct Terms {
    server: usize,
    kind: Kind,
    item: u64,
    ruling: Ruling,
    /// Hidden, but only if it were not shadow mode.
    shadowed: bool,
    /// All limits about the item.
    limits: Box<[LimitId]>,
}

impl Terms {
    /// What the item is.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether it may be known (E-20): what is not visible cannot be called, and the reverse.
    pub fn is_visible(&self) -> bool {
        self.ruling.word != Word::Hidden || self.shadowed
    }
}

/// Whether an item is one of those that its server lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It is.
    Listed,
    /// Its name is the host's own, as the URIs of a template are: all such of a server and kind are counted as one.
    Named,
}

/// A call that is to be decided about.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// Who calls.
    pub principal: &'a Principal,
    /// The arguments exactly as they are sent, a raw object.
    pub arguments: &'a [u8],
    /// How much of them is there.
    pub extent: Extent,
    /// What it costs.
    pub charge: Charge,
}

/// What a request costs of limits (contract §4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charge {
    /// All that is about it.
    Call,
    /// A place among those that run at a time: a further round of a call that was charged before.
    Round,
    /// What its server allows: a request about a call that was charged before.
    Server,
    /// Nothing: what is told of a call that was charged before.
    Nothing,
}

/// What was decided, and why: one for each call, for whoever keeps record of it.
#[derive(Debug)]
#[must_use = "a decision is to be followed"]
pub struct Decision {
    /// Whether it may be sent.
    pub outcome: Result<Permit, Refusal>,
    /// The rule that decided; none where the default did, or a limit.
    pub rule: Option<RuleId>,
    /// The limit that refused.
    pub limit: Option<LimitId>,
    /// What it would have been refused for, were it not shadow mode.
    pub shadowed: Option<Reason>,
}

/// All of `[policy]`, and the lists of the servers; servers by their index in the settings.
#[derive(Debug)]
pub struct Policy {
    servers: Vec<ServerRules>,
    keys: Vec<ServerKey>,
    rules: Rules,
    limits: Limits,
    classes: ArcSwap<Vec<Arc<Members>>>,
    /// Held while a class is added.
    adding: Mutex<()>,
    /// Marks what was remembered with principals as this policy's own.
    generation: u32,
    clock: Clock,
    attempts: Arc<Meter>,
    /// What that was made of.
    wanted_attempts: Attempts,
    /// Which policy this is, for the record of decisions.
    digest: Box<str>,
    /// Whether anything was ever refused: until then no attempt needs to be looked at.
    refused: AtomicBool,
}

impl Default for Policy {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

impl Policy {
    /// The policy over these servers, in the order of their indices, without rules and limits.
    pub fn new(servers: Vec<ServerRules>) -> Self {
        Self::with(
            servers,
            Vec::new(),
            Rules::open(Vec::new()),
            Limits::default(),
            Attempts::default(),
            Clock::default(),
        )
    }

    fn with(
        servers: Vec<ServerRules>,
        keys: Vec<ServerKey>,
        rules: Rules,
        limits: Limits,
        attempts: Attempts,
        clock: Clock,
    ) -> Self {
        static GENERATION: AtomicU32 = AtomicU32::new(1);
        let nobody = Members { standing: rules.standing(&[]), ..Members::default() };
        Self {
            servers,
            keys,
            rules,
            limits,
            classes: ArcSwap::from_pointee(vec![Arc::new(nobody)]),
            adding: Mutex::default(),
            generation: GENERATION.fetch_add(1, Ordering::Relaxed),
            attempts: Arc::new(Meter::new(attempts.rate, attempts.burst, clock.clone())),
            wanted_attempts: attempts,
            clock,
            digest: Box::default(),
            refused: AtomicBool::new(false),
        }
    }

    /// Compiles all of the settings; all faults at once.
    pub fn compile(settings: &Settings, clock: &Clock) -> Result<Self, Vec<RulesError>> {
        let mut servers = Vec::with_capacity(settings.servers.len());
        let mut faults = Vec::new();
        for server in &settings.servers {
            match ServerRules::compile(server) {
                Ok(rules) => servers.push(rules),
                Err(found) => faults.extend(found),
            }
        }
        let keys: Vec<ServerKey> = settings.servers.iter().map(|server| server.key.clone()).collect();
        let mut keep = |found: Vec<RulesError>| faults.extend(found);
        let rules = Rules::compile(&settings.policy, keys.clone()).map_err(&mut keep).unwrap_or_default();
        let limits = Limits::compile(&settings.policy, &settings.servers, clock).map_err(&mut keep).unwrap_or_default();
        if faults.is_empty() {
            let policy = Self::with(servers, keys, rules, limits, settings.policy.attempts, clock.clone());
            Ok(policy.named(Self::digest_of(settings)))
        } else {
            Err(faults)
        }
    }

    /// The same as the policy of this digest.
    pub fn named(self, digest: String) -> Self {
        Self { digest: digest.into(), ..self }
    }

    /// Takes the place of another policy: what is written as before goes on counting where it stood, of whoever is the same,
    /// and of servers by their indices.
    pub fn succeed(&mut self, before: &Self) {
        self.limits.go_on(&before.limits);
        if self.wanted_attempts == before.wanted_attempts {
            self.attempts = Arc::clone(&before.attempts);
            self.refused = AtomicBool::new(before.refused.load(Ordering::Relaxed));
        }
    }

    /// Takes over what was approved, server by server. What was found out before that about items is old: catalogues are to be
    /// built anew.
    pub fn approve(&self, approved: Vec<Approved>) {
        self.rules.approve(approved);
    }

    /// Whom this principal is one of. Found out once, and remembered with it.
    pub fn class_of(&self, principal: &Principal) -> Class {
        if self.rules.is_trivial() && self.limits.is_empty() {
            return Class::default();
        }
        let memo = principal.memo();
        if (memo >> 32) as u32 == self.generation {
            return Class(memo as u32);
        }
        let class = self.find_class(principal);
        principal.remember(u64::from(self.generation) << 32 | u64::from(class.0));
        class
    }

    fn find_class(&self, principal: &Principal) -> Class {
        let (rules, limits) = (self.rules.about(principal), self.limits.about(principal));
        let _adding = self.adding.lock().unwrap_or_else(PoisonError::into_inner);
        let known = self.classes.load();
        // The first is of nobody.
        let mut classes = (0..).zip(known.iter()).skip(1);
        if let Some((at, _)) =
            classes.find(|(_, known)| known.rules == rules && known.limits == limits && !known.closed)
        {
            return Class(at);
        }
        let closed = known.len() > MAX_CLASSES;
        if closed && known.last().is_some_and(|last| last.closed) {
            return Class(known.len() as u32 - 1);
        }
        let standing = self.rules.standing(&rules);
        let mut grown = Vec::clone(&known);
        grown.push(Arc::new(Members { rules, limits, standing, closed }));
        let class = Class(grown.len() as u32 - 1);
        self.classes.store(Arc::new(grown));
        class
    }

    fn members(&self, class: Class) -> Arc<Members> {
        Arc::clone(&self.classes.load()[class.0 as usize])
    }

    /// What holds for an item and a class. An unknown server has no visible items.
    pub fn terms(&self, class: Class, server: usize, kind: Kind, native: &str, origin: Origin) -> Terms {
        let listed = self.servers.get(server).is_some_and(|rules| rules.of(kind).exposes(native));
        let classes = self.classes.load();
        let members = &classes[class.0 as usize];
        let mut shadowed = false;
        // A pattern over URIs says nothing of one that climbs out of what it names (E-23).
        let climbs = kind == Kind::Resource && climbs(native) && !self.decides_nothing(server, kind);
        let ruling = if !listed || climbs || members.closed {
            Ruling { word: Word::Hidden, by: Box::default(), locked: true }
        } else {
            let ruling = self.rules.ruling(&members.standing, server, kind, native, self.phase());
            shadowed = ruling.word == Word::Hidden && self.rules.is_shadow() && !ruling.locked;
            ruling
        };
        let limits = match self.keys.get(server) {
            Some(key) if !self.limits.is_empty() => self.limits.of(key, kind, native),
            _ => Box::default(),
        };
        let counted = if origin == Origin::Listed { native } else { "" };
        let item = if limits.is_empty() { 0 } else { self.limits.number_of(server, kind, counted) };
        Terms { server, kind, item, ruling, shadowed, limits }
    }

    /// Whether neither lists nor rules say anything of this kind.
    fn decides_nothing(&self, server: usize, kind: Kind) -> bool {
        self.rules.is_trivial() && self.servers.get(server).is_some_and(|rules| rules.of(kind).is_open())
    }

    /// Whether this item is visible at all.
    pub fn exposes(&self, class: Class, server: usize, kind: Kind, native: &str) -> Result<(), Refusal> {
        match self.terms(class, server, kind, native, Origin::Listed).is_visible() {
            true => Ok(()),
            false => Err(Refusal::hidden(Reason::NotAllowed)),
        }
    }

    /// Whether no item of this kind is hidden, listed or not.
    pub fn is_open(&self, class: Class, server: usize, kind: Kind) -> bool {
        let standing = &self.members(class).standing;
        self.servers.get(server).is_some_and(|rules| rules.of(kind).is_open())
            && (self.rules.is_open(standing, server, kind) || self.rules.is_shadow())
    }

    /// Which of the rules with a time hold now. What was found out in another phase is to be found out anew, lists and calls
    /// alike (E-20).
    pub fn phase(&self) -> Phase {
        if self.rules.is_timed() { self.rules.phase(self.clock.calendar()) } else { Phase::default() }
    }

    /// After which time the phase may be another; nothing where it never is.
    pub fn next_phase(&self) -> Option<std::time::Duration> {
        self.rules.change(self.clock.calendar())
    }

    /// Whether a principal's requests may have a server use this capability (§8.1).
    pub fn grants(&self, principal: &Principal, server: usize, capability: Capability) -> bool {
        if self.rules.is_trivial() {
            return true;
        }
        let members = self.members(self.class_of(principal));
        let ruling = self.rules.grant(&members.standing, server, capability, self.phase());
        !members.closed && (ruling.word == Word::Open || self.rules.is_shadow() && !ruling.locked)
    }

    /// Whether a class can see nothing of a server.
    pub fn hides_server(&self, class: Class, server: usize) -> bool {
        self.rules.hides_server(&self.members(class).standing, server)
    }

    /// Asked once for each call, after its name was resolved and before anything is sent.
    pub fn decide(&self, ask: &Ask<'_>, terms: &Terms) -> Decision {
        let mut decision = self.weigh(ask, terms);
        if decision.outcome.is_err()
            && let Err(after) = self.count_refused(ask.principal)
        {
            decision.outcome = Err(Refusal::limit(Reason::RateLimited, Some(after)));
        }
        decision
    }

    fn weigh(&self, ask: &Ask<'_>, terms: &Terms) -> Decision {
        let Terms { server, kind, ref ruling, .. } = *terms;
        let mut decision =
            Decision { outcome: Ok(Permit::grant(server, kind)), rule: None, limit: None, shadowed: None };
        decision.rule = ruling.by.first().copied();
        match ruling.word {
            Word::Open => {}
            Word::Hidden if terms.shadowed => decision.shadowed = Some(Reason::NotAllowed),
            Word::Hidden => {
                decision.outcome = Err(Refusal::hidden(Reason::NotAllowed));
                return decision;
            }
            Word::Conditional => match self.rules.fit(&ruling.by, ask.arguments, ask.extent) {
                Ok(rule) => decision.rule = Some(rule),
                Err(_) if self.rules.is_shadow() && !ruling.locked => {
                    decision.shadowed = Some(Reason::ArgumentNotAllowed);
                }
                Err(pointer) => {
                    decision.outcome = Err(Refusal::argument(pointer));
                    return decision;
                }
            },
        }
        if !terms.limits.is_empty() {
            self.weigh_limits(ask, terms, &mut decision);
        }
        decision
    }

    fn weigh_limits(&self, ask: &Ask<'_>, terms: &Terms, decision: &mut Decision) {
        let classes = self.classes.load();
        let about = &classes[self.class_of(ask.principal).0 as usize].limits;
        let keys = self.keys_of(ask.principal, terms);
        let mut permit = Permit::grant(terms.server, terms.kind);
        let charged = match ask.charge {
            Charge::Nothing => Ok(()),
            Charge::Server => self.limits.charge_server(&terms.limits, keys, &mut permit),
            Charge::Round => self.limits.enter(&terms.limits, about, keys, &mut permit),
            Charge::Call => self.limits.charge(&terms.limits, about, keys, &mut permit),
        };
        decision.outcome = match charged {
            Ok(()) if self.rules.is_shadow() => Ok(permit),
            Ok(()) => Ok(permit.bounded(self.limits.max_result(&terms.limits, about))),
            Err(exceeded) if self.rules.is_shadow() => {
                decision.shadowed = decision.shadowed.or(Some(exceeded.reason));
                decision.limit = Some(exceeded.limit);
                Ok(permit)
            }
            Err(exceeded) => {
                decision.limit = Some(exceeded.limit);
                Err(Refusal::limit(exceeded.reason, exceeded.retry_after))
            }
        };
    }

    fn keys_of(&self, principal: &Principal, terms: &Terms) -> Keys {
        Keys { principal: self.limits.number(principal.as_str()), server: terms.server as u64, item: terms.item }
    }

    /// A request for something that is not there, or that its caller may not know of.
    pub fn count_unknown(&self, principal: &Principal) {
        // That there is none left is seen by the next.
        let _ = self.count_refused(principal);
    }

    fn count_refused(&self, principal: &Principal) -> Result<(), std::time::Duration> {
        self.refused.store(true, Ordering::Relaxed);
        self.attempts.take(self.limits.number(principal.as_str()))
    }

    /// Whether a principal was refused so often that what would be refused need not be looked at; for how long.
    pub fn is_flooding(&self, principal: &Principal) -> Option<std::time::Duration> {
        if !self.refused.load(Ordering::Relaxed) {
            return None;
        }
        self.attempts.exhausted(self.limits.number(principal.as_str()))
    }

    /// Which policy this is: another one for other rules, limits, lists or overrides.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The fingerprint of all that decides, 16 hexadecimal digits.
    pub fn digest_of(settings: &Settings) -> String {
        let mut hash = Sha256::new();
        hash.update(format!("{:?}", settings.policy));
        for server in &settings.servers {
            let lists = (&server.tools, &server.prompts, &server.resources, &server.templates);
            hash.update(format!("{:?}{lists:?}{:?}{:?}", server.key, server.overrides, server.limits));
        }
        hash.update(format!("{:?}", settings.profiles));
        HEXLOWER.encode(&hash.finalize()[..8])
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
