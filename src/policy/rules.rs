//! The rules of `[policy]`, compiled, and what they say of one item to one class of principals (§8.2).
//!
//! A class is everybody whom the same rules and limits are about; so what is found out once for a class and an item
//! holds for all its calls, for as long as the same times hold. Knows no clock and counts nothing. Asked only through [`super::Policy`].

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;

use super::RulesError;
use super::approved::{Approved, Known};
use super::arguments::{Condition, Extent};
use super::times::{Phase, TimeId, Times};
use crate::config::settings::{Annotation, Effect, PolicySettings, Target, Transport, WhoPattern};
use crate::ident::{Capability, Kind, Principal, ServerKey};

/// A rule, by its place among all rules.
pub type RuleId = u32;

/// All rules.
#[derive(Debug, Default)]
pub(super) struct Rules {
    rules: Vec<Rule>,
    allows_by_default: bool,
    shadow: bool,
    keys: Vec<ServerKey>,
    times: Times,
    /// A rule says which capabilities servers may use; then the default holds for the others.
    grants: bool,
    /// By server.
    approved: ArcSwap<Vec<Approved>>,
}

#[derive(Debug)]
struct Rule {
    effect: Effect,
    who: Vec<WhoPattern>,
    targets: Vec<Target>,
    conditions: Vec<Condition>,
    annotations: Vec<(Annotation, bool)>,
    transport: Option<Transport>,
    time: Option<TimeId>,
    min_level: Option<u8>,
    locked: bool,
    layer: usize,
    place: String,
}

/// The rules that are about a class, by server and kind, so that only native names are left to be matched.
#[derive(Debug, Default)]
pub(super) struct Standing {
    sites: Vec<[Site; 4]>,
    /// What they say of the capabilities of each server.
    grants: Vec<[Site; Capability::ALL.len()]>,
}

#[derive(Debug, Default)]
struct Site {
    denies: Vec<RuleId>,
    allows: Vec<RuleId>,
    /// Locked allow rules about such items, whomever they are about.
    locks: Vec<RuleId>,
}

/// What rules say of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// It may be used, whatever the arguments are.
    Open,
    /// It may be used where the arguments fit one of these rules.
    Conditional,
    /// It may not be known.
    Hidden,
}

/// What rules say of an item, and which do.
#[derive(Clone, Debug)]
pub(super) struct Ruling {
    pub(super) word: Word,
    /// Those that decide: the denying ones, else the allowing ones; none where the default does.
    pub(super) by: Box<[RuleId]>,
    /// It is refused by what the organisation locked, which shadow mode does not open.
    pub(super) locked: bool,
}

/// A rule as people are told of it.
#[derive(Clone, Debug)]
pub struct RuleNote {
    /// Its place among all rules.
    pub id: RuleId,
    /// Where it stands.
    pub place: String,
    /// `allow` or `deny`.
    pub effect: &'static str,
    /// Whether it is about the principal.
    pub who: bool,
    /// Whether it is about the item.
    pub target: bool,
    /// Whether its annotations hold, where it has any.
    pub annotations: Option<bool>,
    /// Whether the level that it asks for is reached, where it asks for one.
    pub level: Option<bool>,
    /// Whether it holds now, where it holds at certain times.
    pub time: Option<bool>,
    /// Whether those whom it is about come as it says, where it says so.
    pub transport: Option<bool>,
    /// The pointer of the first condition that the arguments do not fit, where arguments were given.
    pub misfit: Option<String>,
    /// Whether it has conditions at all.
    pub conditional: bool,
    /// Whether a locked rule of an upper layer makes it count for nothing here.
    pub overruled: bool,
}

impl Rules {
    pub(super) fn compile(settings: &PolicySettings, keys: Vec<ServerKey>) -> Result<Self, Vec<RulesError>> {
        let mut faults = Vec::new();
        let mut rules = Vec::with_capacity(settings.rules.len());
        let mut times = Times::default();
        for (index, written) in settings.rules.iter().enumerate() {
            let key = |member: &str| format!("policy.rule[{index}].{member}");
            let who = super::compile_all(&written.who, WhoPattern::new, &key("who"), &mut faults);
            let targets = super::compile_all(&written.target, Target::new, &key("target"), &mut faults);
            let mut conditions = Vec::with_capacity(written.conditions.len());
            for condition in &written.conditions {
                match Condition::compile(condition) {
                    Ok(condition) => conditions.push(condition),
                    Err(fault) => faults.push(RulesError { key: key("where"), ..fault }),
                }
            }
            let time = written.time.as_ref().and_then(|window| {
                let time = times.add(window);
                if time.is_none() {
                    let fault = "there are too many different times in all rules".to_owned();
                    faults.push(RulesError { key: key("time"), fault });
                }
                time
            });
            rules.push(Rule {
                effect: written.effect,
                who,
                targets,
                conditions,
                annotations: written.annotations.clone(),
                transport: written.transport,
                time,
                min_level: written.min_level,
                locked: written.locked,
                layer: written.layer,
                place: written.place.clone(),
            });
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        let allows_by_default = match settings.default {
            Some(effect) => effect == Effect::Allow,
            // With rules it is stated (E-40), else there is nothing to decide.
            None => rules.is_empty(),
        };
        let grants = |rule: &Rule| rule.effect == Effect::Allow && rule.targets.iter().any(Target::is_of_capabilities);
        let grants = rules.iter().any(grants);
        Ok(Self {
            rules,
            allows_by_default,
            shadow: settings.shadow,
            keys,
            times,
            grants,
            approved: ArcSwap::default(),
        })
    }

    pub(super) fn open(keys: Vec<ServerKey>) -> Self {
        Self { allows_by_default: true, keys, ..Self::default() }
    }

    pub(super) fn approve(&self, approved: Vec<Approved>) {
        self.approved.store(Arc::new(approved));
    }

    /// What was approved of a server, and of one of its tools.
    pub(super) fn known(&self, server: usize, tool: Option<&str>) -> Known {
        let approved = self.approved.load();
        let Some(approved) = approved.get(server) else { return Known::default() };
        Known { level: approved.level, hints: tool.and_then(|tool| approved.tools.get(tool).copied()) }
    }

    /// Whether there is anything to decide.
    pub(super) fn is_trivial(&self) -> bool {
        self.rules.is_empty() && self.allows_by_default
    }

    pub(super) fn is_shadow(&self) -> bool {
        self.shadow
    }

    /// The rules that are about this principal.
    pub(super) fn about(&self, who: &Principal) -> Vec<RuleId> {
        let all = (0..).zip(&self.rules);
        all.filter(|(_, rule)| rule.is_about(who)).map(|(id, _)| id).collect()
    }

    pub(super) fn standing(&self, about: &[RuleId]) -> Standing {
        let site = |key: &ServerKey, kind: Kind| {
            let mut site = Site::default();
            for &id in about {
                let rule = self.rule(id);
                if rule.targets.iter().any(|target| target.within(key.as_str(), kind)) {
                    match rule.effect {
                        Effect::Allow => site.allows.push(id),
                        Effect::Deny => site.denies.push(id),
                    }
                }
            }
            for (id, rule) in (0..).zip(&self.rules) {
                let is_lock = rule.locked && rule.effect == Effect::Allow;
                if is_lock && rule.targets.iter().any(|target| target.within(key.as_str(), kind)) {
                    site.locks.push(id);
                }
            }
            site
        };
        Standing {
            sites: self.keys.iter().map(|key| Kind::ALL.map(|kind| site(key, kind))).collect(),
            grants: self.keys.iter().map(|key| self.granted(key, about)).collect(),
        }
    }

    /// The rules that say something of the capabilities of a server, by capability.
    fn granted(&self, key: &ServerKey, about: &[RuleId]) -> [Site; Capability::ALL.len()] {
        Capability::ALL.map(|capability| {
            let named = |id: &RuleId| self.rule(*id).grants(key, capability);
            let of = |effect| move |id: &RuleId| self.rule(*id).effect == effect;
            let is_lock = |id: &RuleId| {
                let rule = self.rule(*id);
                rule.locked && rule.effect == Effect::Allow && rule.targets.iter().any(Target::is_of_capabilities)
            };
            Site {
                denies: about.iter().copied().filter(of(Effect::Deny)).filter(named).collect(),
                allows: about.iter().copied().filter(of(Effect::Allow)).filter(named).collect(),
                locks: (0..).take(self.rules.len()).filter(is_lock).filter(named).collect(),
            }
        })
    }

    /// Which times it is.
    pub(super) fn phase(&self, now: Duration) -> Phase {
        self.times.phase(now)
    }

    /// After which time it may be another phase; nothing where no rule has a time.
    pub(super) fn change(&self, now: Duration) -> Option<Duration> {
        self.times.change(now)
    }

    /// Whether any rule holds at certain times only.
    pub(super) fn is_timed(&self) -> bool {
        !self.times.is_empty()
    }

    /// Whether a class may have a server use a capability, and by which rules. Where no allow rule is about capabilities,
    /// what none denies may be used.
    pub(super) fn grant(&self, standing: &Standing, server: usize, capability: Capability, phase: Phase) -> Ruling {
        let word = |open| if open { Word::Open } else { Word::Hidden };
        let Some(site) = standing.grants.get(server).map(|sites| &sites[capability.index()]) else {
            return Ruling { word: word(self.is_trivial()), by: Box::default(), locked: false };
        };
        let holds = |id: &&RuleId| self.rule(**id).holds(phase);
        let known = self.known(server, None);
        let denied = |id: &&RuleId| holds(id) && self.rule(**id).denies(known);
        let denies: Box<[RuleId]> = site.denies.iter().filter(denied).copied().collect();
        if !denies.is_empty() {
            let locked = denies.iter().any(|id| self.rule(*id).locked);
            return Ruling { word: Word::Hidden, by: denies, locked };
        }
        let lock = site.locks.iter().map(|id| self.rule(*id).layer).min();
        if !self.grants && lock.is_none() {
            return Ruling { word: Word::Open, by: Box::default(), locked: false };
        }
        let counts = |id: &&RuleId| {
            let rule = self.rule(**id);
            // What is asked has no arguments.
            rule.allows(known) && rule.conditions.is_empty() && lock.is_none_or(|lock| rule.layer <= lock)
        };
        let allows: Box<[RuleId]> = site.allows.iter().filter(holds).filter(counts).copied().collect();
        let open = !allows.is_empty() || self.allows_by_default && lock.is_none();
        Ruling { word: word(open), by: allows, locked: !open && lock.is_some() }
    }

    fn rule(&self, id: RuleId) -> &Rule {
        &self.rules[id as usize]
    }

    /// What the rules say of an item to a class.
    pub(super) fn ruling(&self, standing: &Standing, server: usize, kind: Kind, native: &str, phase: Phase) -> Ruling {
        let (Some(sites), Some(key)) = (standing.sites.get(server), self.keys.get(server)) else {
            let word = if self.is_trivial() { Word::Open } else { Word::Hidden };
            return Ruling { word, by: Box::default(), locked: false };
        };
        let (site, key) = (&sites[kind.index()], key.as_str());
        let named = |id: &&RuleId| self.rule(**id).names(key, kind, native);
        let known = self.known(server, (kind == Kind::Tool).then_some(native));
        let denied = |id: &&RuleId| self.rule(**id).holds(phase) && self.rule(**id).denies(known);
        let denies: Box<[RuleId]> = site.denies.iter().filter(named).filter(denied).copied().collect();
        if !denies.is_empty() {
            let locked = denies.iter().any(|id| self.rule(*id).locked);
            return Ruling { word: Word::Hidden, by: denies, locked };
        }
        // The uppermost layer that has locked what may be done with it.
        let lock = site.locks.iter().filter(named).map(|id| self.rule(*id).layer).min();
        let counts = |id: &&RuleId| {
            let rule = self.rule(**id);
            rule.allows(known) && rule.holds(phase) && lock.is_none_or(|lock| rule.layer <= lock)
        };
        let allows: Box<[RuleId]> = site.allows.iter().filter(named).filter(counts).copied().collect();
        let word = if allows.iter().any(|id| self.rule(*id).conditions.is_empty()) {
            Word::Open
        } else if !allows.is_empty() {
            Word::Conditional
        } else if self.allows_by_default && lock.is_none() {
            Word::Open
        } else {
            Word::Hidden
        };
        Ruling { locked: word != Word::Open && lock.is_some(), word, by: allows }
    }

    /// The rule that lets these arguments pass, or the pointer of what does not fit.
    pub(super) fn fit(&self, by: &[RuleId], arguments: &[u8], extent: Extent) -> Result<RuleId, Arc<str>> {
        let mut misfit = None;
        for &id in by {
            match self.rule(id).misfit(arguments, extent) {
                None => return Ok(id),
                Some(condition) => {
                    misfit.get_or_insert_with(|| Arc::clone(condition.pointer()));
                }
            }
        }
        Err(misfit.unwrap_or_else(|| "".into()))
    }

    /// The same where only some of the arguments are known, those below pointers of which `known` says so; nothing where
    /// it hangs on others.
    pub(super) fn fit_known(
        &self,
        by: &[RuleId],
        arguments: &[u8],
        extent: Extent,
        known: &dyn Fn(&str) -> bool,
    ) -> Option<Result<RuleId, Arc<str>>> {
        let (mut open, mut misfit) = (false, None);
        for &id in by {
            let (told, untold): (Vec<_>, Vec<_>) =
                self.rule(id).conditions.iter().partition(|condition| known(condition.pointer()));
            match told.iter().find(|condition| !condition.fits(arguments, extent)) {
                Some(condition) => _ = misfit.get_or_insert_with(|| Arc::clone(condition.pointer())),
                None if untold.is_empty() => return Some(Ok(id)),
                None => open = true,
            }
        }
        (!open).then(|| Err(misfit.unwrap_or_else(|| "".into())))
    }

    /// Whether nothing of a server can be seen by a class, at any time.
    pub(super) fn hides_server(&self, standing: &Standing, server: usize) -> bool {
        let (Some(sites), Some(key)) = (standing.sites.get(server), self.keys.get(server)) else { return false };
        if self.is_trivial() || self.shadow {
            return false;
        }
        let all = |kind: Kind, id: &RuleId| {
            let mut targets = self.rule(*id).targets.iter();
            targets.any(|target| target.within(key.as_str(), kind) && target.is_all())
        };
        Kind::ALL.into_iter().zip(sites).all(|(kind, site)| {
            let always = |id: &RuleId| self.rule(*id).time.is_none() && self.rule(*id).is_plain();
            let denied = site.denies.iter().any(|id| always(id) && all(kind, id));
            // What was approved may be another at any time.
            denied || !self.allows_by_default && site.allows.is_empty()
        })
    }

    /// Whether rules let everything of a server and kind pass, known by name or not.
    pub(super) fn is_open(&self, standing: &Standing, server: usize, kind: Kind) -> bool {
        let site = standing.sites.get(server).map(|sites| &sites[kind.index()]);
        self.is_trivial()
            || self.allows_by_default && site.is_some_and(|site| site.denies.is_empty() && site.locks.is_empty())
    }

    /// All rules, as far as they have to do with a question.
    pub(super) fn notes(
        &self,
        who: &Principal,
        matches: impl Fn(&Target) -> bool,
        arguments: Option<&[u8]>,
        (phase, known): (Phase, Known),
    ) -> Vec<RuleNote> {
        let targets = |rule: &Rule| rule.targets.iter().any(&matches);
        let locks = self.rules.iter().filter(|rule| rule.locked && rule.effect == Effect::Allow && targets(rule));
        let lock = locks.map(|rule| rule.layer).min();
        let note = |(id, rule): (RuleId, &Rule)| RuleNote {
            id,
            place: rule.place.clone(),
            effect: rule.effect.as_str(),
            who: rule.names_principal(who),
            target: targets(rule),
            annotations: (!rule.annotations.is_empty()).then(|| rule.fits_annotations(known)),
            level: rule.min_level.map(|_| rule.fits_level(known)),
            time: rule.time.map(|time| phase.has(time)),
            transport: rule.transport.map(|_| rule.is_about(who) == rule.names_principal(who)),
            misfit: arguments.and_then(|arguments| Some(rule.misfit(arguments, Extent::Whole)?.pointer().to_string())),
            conditional: !rule.conditions.is_empty(),
            overruled: rule.effect == Effect::Allow && lock.is_some_and(|lock| rule.layer > lock),
        };
        (0..).zip(&self.rules).map(note).collect()
    }

    /// Where a rule stands.
    pub(super) fn place(&self, id: RuleId) -> &str {
        &self.rule(id).place
    }

    /// The targets of all rules that match none of these items: typing errors, or what went away.
    pub(super) fn unmatched(&self, is_any: impl Fn(&Target) -> bool) -> Vec<(String, String)> {
        let all = self.rules.iter().flat_map(|rule| rule.targets.iter().map(move |target| (rule, target)));
        let unmatched = all.filter(|(_, target)| !is_any(target));
        unmatched.map(|(rule, target)| (rule.place.clone(), target.as_str().to_owned())).collect()
    }
}

impl Rule {
    fn names_principal(&self, who: &Principal) -> bool {
        self.who.iter().any(|pattern| pattern.matches(who))
    }

    /// Whether it is about somebody, who comes as it says.
    fn is_about(&self, who: &Principal) -> bool {
        let comes = match self.transport {
            None => true,
            Some(Transport::Stdio) => who.is_local(),
            Some(Transport::Http) => !who.is_local(),
        };
        comes && self.names_principal(who)
    }

    /// Whether it is its time.
    fn holds(&self, phase: Phase) -> bool {
        self.time.is_none_or(|time| phase.has(time))
    }

    fn grants(&self, key: &ServerKey, capability: Capability) -> bool {
        self.targets.iter().any(|target| target.grants(key.as_str(), capability))
    }

    fn names(&self, key: &str, kind: Kind, native: &str) -> bool {
        self.targets.iter().any(|target| target.matches(key, kind, native))
    }

    /// Whether it asks nothing of what was approved.
    fn is_plain(&self) -> bool {
        self.annotations.is_empty() && self.min_level.is_none()
    }

    /// Whether what was approved is what it asks for. What is not known (E-22) fits no allow, and every deny: it may be
    /// anything.
    fn fits_annotations(&self, known: Known) -> bool {
        let unknown = self.effect == Effect::Deny;
        self.annotations.is_empty() || known.hints.map_or(unknown, |hints| hints.fit(&self.annotations))
    }

    fn fits_level(&self, known: Known) -> bool {
        let unknown = self.effect == Effect::Deny;
        self.min_level.is_none_or(|least| known.level.map_or(unknown, |level| level >= least))
    }

    fn allows(&self, known: Known) -> bool {
        self.fits_annotations(known) && self.fits_level(known)
    }

    fn denies(&self, known: Known) -> bool {
        self.fits_annotations(known) && self.fits_level(known)
    }

    /// The first condition that these arguments do not fit.
    fn misfit(&self, arguments: &[u8], extent: Extent) -> Option<&Condition> {
        self.conditions.iter().find(|condition| !condition.fits(arguments, extent))
    }
}
