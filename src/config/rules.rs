//! `[policy]`: the merged file → settings, and the faults and doubts that show there.
//!
//! What a rule means is the affair of `policy`; here it is made sure that it means something: nothing that is refused
//! today may be let through by a slip of the pen (E-40). Called by `resolve`.

use std::num::NonZeroU32;

use url::Host;

use super::check::{self, join};
use super::fault::{Fault, Note, nearest};
use super::ground::Ground;
use super::rate;
use super::resolve::is_faulty;
use super::schema;
use super::serving::Serving;
use super::settings::{
    Annotation, Attempts, AuthMode, AuthSettings, Check, Condition, Effect, HttpSettings, JsonType, LimitSettings, Per,
    PolicySettings, RuleSettings, Scalar, Target, TimeWindow, Transport, WhoPattern,
};
use super::window;
use crate::ident::{Capability, Kind};
use crate::shown::shown_str as shown;

/// Resolves what is said of policy.
pub(super) struct Rules<'a, 'g> {
    pub ground: &'a Ground<'g>,
    pub earlier: &'a [Fault],
    pub faults: &'a mut Vec<Fault>,
    pub notes: &'a mut Vec<Note>,
    /// The keys of all servers.
    pub known: &'a [String],
}

/// The network must not be served by a default that nobody chose.
pub(super) fn default_for_serving(
    policy: &PolicySettings,
    (http, auth): (&HttpSettings, &AuthSettings),
    ground: &Ground<'_>,
    to: &mut Serving,
) {
    if policy.default.is_some() || !policy.rules.is_empty() {
        return;
    }
    let place = ground.origins.place("policy", ground.layers);
    let message = "policy.default is not stated, so everybody who may enter may use everything: write `[policy]` with \
                   `default = \"allow\"` where that is meant, or `\"deny\"` and rules";
    if http.listen.ip().is_loopback() && auth.mode == AuthMode::None {
        // One user's own machine.
    } else if http.listen.ip().is_loopback() {
        to.notes.push(Note { place, message: message.to_owned() });
    } else {
        let key = "policy.default".to_owned();
        to.faults.push(Fault { place, key, message: message.to_owned(), nearest: None });
    }
}

impl Rules<'_, '_> {
    fn fault(&mut self, path: &str, message: impl Into<String>) {
        let place = self.ground.origins.place(path, self.ground.layers);
        self.faults.push(Fault { place, key: path.to_owned(), message: message.into(), nearest: None });
    }

    fn note(&mut self, path: &str, message: impl Into<String>) {
        let place = self.ground.origins.place(path, self.ground.layers);
        self.notes.push(Note { place, message: format!("{path}: {}", message.into()) });
    }

    /// Everything that `[policy]` says.
    pub(super) fn policy(&mut self, written: schema::Policy) -> PolicySettings {
        let default = written.default.map(effect);
        let faulty = is_faulty(self.earlier, "policy");
        if default.is_none() && !written.rule.is_empty() && !faulty {
            let message = "is not stated: with rules it must be said what holds where none of them says anything, \
                           `\"deny\"` or `\"allow\"`";
            self.fault("policy.default", message);
        }
        if default == Some(Effect::Allow) && self.organisation_denies() {
            let message = "the organisation says `deny`, which only its own files can change";
            self.fault("policy.default", message);
        }
        if written.shadow && self.organisation_decides() {
            let message = "the organisation's files decide, and only they can let everything pass";
            self.fault("policy.shadow", message);
        }
        let count = |count: Option<u32>| count.and_then(NonZeroU32::new);
        let usual = Attempts::default();
        let attempts = Attempts {
            rate: written.attempts.rate.map_or(usual.rate, |rate| rate.0),
            burst: count(written.attempts.burst).unwrap_or(usual.burst),
        };
        if let Some(message) = rate::burst_problem(attempts.rate, attempts.burst.get())
            && !faulty
        {
            self.fault("policy.attempts.burst", &message);
        }
        let rules: Vec<RuleSettings> =
            written.rule.into_iter().enumerate().filter_map(|(n, rule)| self.rule(n, rule)).collect();
        let limits = written.limit.into_iter().enumerate().filter_map(|(n, limit)| self.limit(n, limit)).collect();
        if !faulty {
            self.lint(&rules);
        }
        PolicySettings { default, shadow: written.shadow, attempts, rules, limits }
    }

    /// Whether a file of the organisation says that what no rule allows is refused.
    fn organisation_denies(&self) -> bool {
        let mut organisations = self.ground.layers.iter().filter(|layer| layer.organisation);
        organisations.any(|layer| {
            let default = layer.node.get("policy").and_then(|policy| policy.get("default"));
            default.and_then(|node| node.as_text()) == Some("deny")
        })
    }

    /// Whether files of the organisation decide something, and none of them says that it is a trial.
    fn organisation_decides(&self) -> bool {
        let layers = self.ground.layers.iter().filter(|layer| layer.organisation);
        let policies: Vec<_> = layers.filter_map(|layer| layer.node.get("policy")).collect();
        !policies.is_empty() && !policies.iter().any(|policy| policy.get("shadow").is_some())
    }

    fn rule(&mut self, index: usize, written: schema::Rule) -> Option<RuleSettings> {
        let path = format!("policy.rule[{index}]");
        let before = self.faults.len();
        let faulty = is_faulty(self.earlier, "policy.rule");
        if written.effect.is_none() && !faulty {
            self.fault(&path, "the key `effect` is missing: `\"allow\"` or `\"deny\"`");
        }
        let who = self.who(&path, written.who, faulty);
        self.targets(&path, &written.target, faulty);
        if written.effect == Some(schema::Effect::Deny) && !written.conditions.is_empty() {
            let message = "a deny rule refuses whatever the arguments are; write what may pass as an allow rule with \
                           `where` instead";
            self.fault(&join(&path, "where"), message);
        }
        if written.effect == Some(schema::Effect::Deny) && written.min_level.is_some() {
            let message = "a deny rule would refuse what is bound well and let pass what is not; demand the level of the \
                           allow rules instead";
            self.fault(&join(&path, "min_level"), message);
        }
        let conditions = written.conditions.into_iter().enumerate();
        let conditions: Vec<_> = conditions
            .filter_map(|(n, condition)| self.condition(&format!("{path}.where[{n}]"), condition, faulty))
            .collect();
        let annotations = annotations(&written.annotations);
        let time = self.time(&join(&path, "time"), &written.time, faulty);
        if self.faults.len() > before {
            return None;
        }
        let place = self.ground.origins.place(&path, self.ground.layers).to_string();
        Some(RuleSettings {
            conditions,
            annotations,
            transport: written.transport.map(transport),
            time,
            min_level: written.min_level,
            locked: written.locked,
            layer: self.layer(&path),
            ..RuleSettings::new(effect(written.effect?), who, written.target, place)
        })
    }

    /// When a rule holds: where that is said at all, in a zone that is said too.
    fn time(&mut self, path: &str, written: &schema::Time, faulty: bool) -> Option<TimeWindow> {
        if *written == schema::Time::default() || faulty {
            return None;
        }
        let Some(zone) = &written.zone else {
            let message = "the key `zone` is missing: the offset from UTC in which the days and hours are meant, such as \
                           `+01:00`, or `Z`";
            self.fault(path, message);
            return None;
        };
        if written.days.is_empty() && written.hours.is_none() {
            self.fault(path, "says no time: give `days`, `hours` or both");
        }
        window::window(&written.days, written.hours.as_deref(), zone)
    }

    /// 0 for the organisation's, later ones higher.
    fn layer(&self, path: &str) -> usize {
        match self.ground.origins.layer(path) {
            Some(layer) if !self.ground.layers.get(layer).is_some_and(|layer| layer.organisation) => layer + 1,
            _ => 0,
        }
    }

    fn who(&mut self, path: &str, written: Option<Vec<String>>, faulty: bool) -> Vec<String> {
        match written {
            None => vec!["*".to_owned()],
            Some(who) => {
                if who.is_empty() && !faulty {
                    self.fault(&join(path, "who"), "is empty, so it is about nobody; leave it out for everybody");
                }
                who
            }
        }
    }

    fn targets(&mut self, path: &str, written: &[String], faulty: bool) {
        let at = join(path, "target");
        if written.is_empty() && !faulty {
            self.fault(&at, "is missing or empty: name at least one <server>/<kind>/<native name>; `*/*/*` is all");
        }
        for (n, text) in written.iter().enumerate() {
            let Ok(target) = Target::new(text) else { continue };
            let at = format!("{at}[{n}]");
            if let Some(why) = target.suspicion() {
                self.note(&at, format!("`{}` {why}", shown(text)));
            }
            if !self.known.iter().any(|key| target.may_match_server(key)) {
                let server = text.split('/').next().unwrap_or_default();
                let meant = nearest(server, self.known.iter().map(String::as_str));
                let meant = meant.map_or_else(String::new, |key| format!("; did you mean `{key}`?"));
                self.note(&at, format!("`{}` matches no server that is configured{meant}", shown(text)));
            }
        }
    }

    fn condition(&mut self, path: &str, written: schema::Condition, faulty: bool) -> Option<Condition> {
        let mut checks = Vec::new();
        if let Some(value) = written.equals {
            checks.push(Check::Equals(scalar(value)));
        }
        if let Some(values) = written.one_of {
            checks.push(Check::OneOf(values.into_iter().map(scalar).collect()));
        }
        if written.absent {
            checks.push(Check::Absent);
        }
        checks.extend(written.r#type.map(|wanted| Check::Type(json_type(wanted))));
        checks.extend(written.max_len.map(|length| Check::MaxLen(usize::try_from(length).unwrap_or(usize::MAX))));
        if let Some(range) = written.range {
            let number = |value: Option<&schema::Scalar>| match value {
                Some(schema::Scalar::Integer(number)) => Some(*number as f64),
                Some(schema::Scalar::Float(number)) => Some(*number),
                _ => None,
            };
            match (number(range.first()), number(range.get(1)), range.len()) {
                (Some(from), Some(to), 2) if from <= to => checks.push(Check::Range(from, to)),
                _ => self.fault(&join(path, "range"), "must be two numbers, the smaller one first"),
            }
        }
        checks.extend(written.glob.map(Check::Glob));
        checks.extend(written.path_under.map(Check::PathUnder));
        checks.extend(written.url_host.map(Check::UrlHost));
        checks.extend(written.no_extra.map(Check::NoExtra));
        if faulty {
            return None;
        }
        if written.absent && checks.len() > 1 {
            self.fault(path, "`absent` excludes every other check: what is not there cannot be anything");
        }
        if checks.is_empty() {
            let message = "checks nothing; there are equals, one_of, absent, type, max_len, range, glob, path_under, \
                           url_host and no_extra";
            self.fault(path, message);
        }
        let Some(pointer) = written.pointer else {
            self.fault(path, "the key `pointer` is missing: where the value stands, such as `/path`");
            return None;
        };
        Some(Condition { pointer, optional: written.optional, checks })
    }

    fn limit(&mut self, index: usize, written: schema::Limit) -> Option<LimitSettings> {
        let path = format!("policy.limit[{index}]");
        let before = self.faults.len();
        let faulty = is_faulty(self.earlier, "policy.limit");
        let who = self.who(&path, written.who, faulty);
        self.targets(&path, &written.target, faulty);
        let any = written.rate.is_some() || written.quota.is_some() || written.concurrency.is_some();
        if !any && written.max_result.is_none() && !faulty {
            self.fault(&path, "limits nothing: give `rate`, `quota`, `concurrency` or `max_result`");
        }
        if written.burst.is_some() && written.rate.is_none() && !faulty {
            self.fault(&join(&path, "burst"), "means nothing without a `rate`");
        }
        if let (Some(rate), Some(burst)) = (written.rate, written.burst)
            && let Some(message) = rate::burst_problem(rate.0, burst)
        {
            self.fault(&join(&path, "burst"), &message);
        }
        if self.faults.len() > before {
            return None;
        }
        let count = |count: Option<u32>| count.and_then(NonZeroU32::new);
        let per = match written.per.unwrap_or(schema::Per::Principal) {
            schema::Per::Principal => Per::Principal,
            schema::Per::Server => Per::Server,
            schema::Per::Tool => Per::Tool,
            schema::Per::PrincipalTool => Per::PrincipalTool,
            schema::Per::Everyone => Per::Everyone,
        };
        let place = self.ground.origins.place(&path, self.ground.layers).to_string();
        Some(LimitSettings {
            rate: written.rate.map(|rate| rate.0),
            burst: count(written.burst),
            quota: written.quota.map(|quota| quota.0),
            concurrency: count(written.concurrency),
            max_result: written.max_result.map(|size| size.0),
            ..LimitSettings::new(who, written.target, per, place)
        })
    }

    /// Rules that can never matter.
    fn lint(&mut self, rules: &[RuleSettings]) {
        let compiled: Vec<(Vec<Target>, bool)> = rules
            .iter()
            .map(|rule| {
                let everybody =
                    rule.who.iter().filter_map(|who| WhoPattern::new(who).ok()).any(|who| who.is_everybody());
                (rule.target.iter().filter_map(|text| Target::new(text).ok()).collect(), everybody)
            })
            .collect();
        for (n, rule) in rules.iter().enumerate() {
            let targets = &compiled[n].0;
            let covered_by = |other: usize| {
                let (theirs, everybody) = &compiled[other];
                let same_people = *everybody || rule.who.iter().all(|who| rules[other].who.contains(who));
                same_people && targets.iter().all(|own| theirs.iter().any(|target| target.covers(own)))
            };
            let plain = |other: &RuleSettings| {
                other.annotations.is_empty()
                    && other.conditions.is_empty()
                    && other.min_level.is_none()
                    && other.time.is_none()
                    && other.transport.is_none()
            };
            let shadow = (0..rules.len()).filter(|&other| other != n).find(|&other| {
                plain(&rules[other])
                    && rules[other].effect == Effect::Deny
                    && rule.effect == Effect::Allow
                    && covered_by(other)
            });
            if let Some(other) = shadow {
                let by = &rules[other].place;
                self.note(
                    &format!("policy.rule[{n}]"),
                    format!("never allows anything: the deny rule at {by} covers it"),
                );
            }
        }
    }
}

fn effect(written: schema::Effect) -> Effect {
    match written {
        schema::Effect::Allow => Effect::Allow,
        schema::Effect::Deny => Effect::Deny,
    }
}

fn transport(written: schema::Via) -> Transport {
    match written {
        schema::Via::Stdio => Transport::Stdio,
        schema::Via::Http => Transport::Http,
    }
}

fn scalar(written: schema::Scalar) -> Scalar {
    match written {
        schema::Scalar::Bool(value) => Scalar::Bool(value),
        schema::Scalar::Integer(value) => Scalar::Integer(value),
        schema::Scalar::Float(value) => Scalar::Float(value),
        schema::Scalar::Text(value) => Scalar::Text(value),
    }
}

fn json_type(written: schema::JsonType) -> JsonType {
    match written {
        schema::JsonType::String => JsonType::String,
        schema::JsonType::Number => JsonType::Number,
        schema::JsonType::Integer => JsonType::Integer,
        schema::JsonType::Boolean => JsonType::Boolean,
        schema::JsonType::Null => JsonType::Null,
        schema::JsonType::Object => JsonType::Object,
        schema::JsonType::Array => JsonType::Array,
    }
}

fn annotations(written: &schema::Annotations) -> Vec<(Annotation, bool)> {
    let all = [
        (Annotation::ReadOnly, written.read_only),
        (Annotation::Destructive, written.destructive),
        (Annotation::Idempotent, written.idempotent),
        (Annotation::OpenWorld, written.open_world),
    ];
    all.into_iter().filter_map(|(annotation, wanted)| Some((annotation, wanted?))).collect()
}

/// Why a text names no principals.
pub(super) fn who_problem(text: &str) -> Option<String> {
    WhoPattern::new(text).err().map(|error| shown(&error.to_string()))
}

/// Why a text names no items.
pub(super) fn target_problem(text: &str) -> Option<String> {
    Target::new(text).err().map(|error| shown(&error.to_string()))
}

/// Why a text names no single item.
pub(super) fn literal_problem(text: &str) -> Option<String> {
    let mut parts = text.splitn(3, '/').skip(1);
    let (kind, native) = (parts.next(), parts.next().is_some_and(|native| !native.is_empty()));
    let known =
        native && (kind == Some(Capability::KIND) || Kind::ALL.into_iter().any(|known| Some(known.as_str()) == kind));
    (!known).then(|| format!("`{}` is not <server>/<kind>/<native name>, such as `files/tool/read_file`", shown(text)))
}

/// Why a text is no JSON pointer.
pub(super) fn pointer_problem(text: &str) -> Option<String> {
    let escapes = text.match_indices('~').all(|(at, _)| matches!(text.as_bytes().get(at + 1), Some(b'0' | b'1')));
    if !text.is_empty() && !text.starts_with('/') {
        Some(format!("`{}` is no JSON pointer: it begins with `/`, such as `/path`", shown(text)))
    } else if !escapes {
        Some(format!("`{}` is no JSON pointer: write `~0` for `~` and `~1` for `/` in a name", shown(text)))
    } else {
        None
    }
}

/// Why a text is no pointer of an argument that is written down: one place, not a pattern of places.
pub(super) fn recorded_problem(text: &str) -> Option<String> {
    pointer_problem(text).or_else(|| {
        text.split('/')
            .any(|step| step == "*")
            .then(|| format!("`{}` names every element; write the pointer of the whole list", shown(text)))
    })
}

/// Why a text is no folder that paths can be below.
pub(super) fn folder_problem(text: &str) -> Option<String> {
    let fine = text.starts_with('/') && !text.contains(['\0', '\\']) && text.split('/').all(|part| part != "..");
    (!fine).then(|| format!("`{}` is not an absolute path without `..`", shown(text)))
}

/// Why a text is no host of addresses: a name or an IP address, `*.` before a name, and a port behind it if need be.
pub(super) fn host_problem(text: &str) -> Option<String> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !host.ends_with(':') && !port.contains(']') => (host, Some(port)),
        _ => (text, None),
    };
    let name = host.strip_prefix("*.").unwrap_or(host);
    let fine = !name.is_empty()
        && !name.contains('*')
        && Host::parse(name).is_ok_and(|parsed| parsed.to_string() == name)
        && port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0));
    (!fine).then(|| {
        format!("`{}` is not a host such as `docs.example` or `*.docs.example`, in small letters", shown(text))
    })
}

/// Why a text is no name that hosts can be shown.
pub(super) fn exposed_problem(text: &str) -> Option<String> {
    let shaped = !text.is_empty()
        && text.len() <= 64
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'));
    (!shaped || check::not_empty(text).is_some())
        .then(|| "a name is 1 to 64 of A-Z, a-z, 0-9, `_`, `-` and `.`".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e40_texts_that_mean_nothing_are_refused() {
        for good in ["", "/path", "/a/*/b", "/a~1b/~0"] {
            assert_eq!(pointer_problem(good), None, "{good}");
        }
        for bad in ["path", "/a~", "/a~2"] {
            assert!(pointer_problem(bad).is_some(), "{bad}");
        }
        for good in ["/", "/srv/docs", "/srv/docs/"] {
            assert_eq!(folder_problem(good), None, "{good}");
        }
        for bad in ["", "srv", "./x", "/a/../b", "C:\\x", "/a\0"] {
            assert!(folder_problem(bad).is_some(), "{bad}");
        }
        for good in ["docs.example", "*.docs.example", "docs.example:8443", "10.0.0.1", "[::1]", "[::1]:80"] {
            assert_eq!(host_problem(good), None, "{good}");
        }
        for bad in
            ["", "*", "*.", "a.*.b", "Docs.example", "https://docs.example", "docs.example/x", "a:0", "a:x", "0x7f.1"]
        {
            assert!(host_problem(bad).is_some(), "{bad}");
        }
    }
}
