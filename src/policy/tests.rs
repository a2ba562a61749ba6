//! Decisions, as `catalog` and `gateway` ask for them.
//!
//! Long, and one thing: each is a policy, a few questions and their answers, by the same helpers.

use std::num::NonZeroU32;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::config::settings::ServerSettings;
use crate::config::settings::{
    Check, Condition, Effect, ItemFilter, LimitSettings, Per, PolicySettings, Rate, RuleSettings, Scalar, ServerFault,
    TelemetrySettings,
};

fn server(key: &str) -> ServerSettings {
    let fault = ServerFault { key: String::new(), message: String::new() };
    ServerSettings::new(ServerKey::new(key).unwrap(), Err(fault))
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

fn rule(effect: Effect, who: &[&str], target: &[&str]) -> RuleSettings {
    RuleSettings::new(effect, texts(who), texts(target), "")
}

fn allow(who: &[&str], target: &[&str]) -> RuleSettings {
    rule(Effect::Allow, who, target)
}

fn deny(who: &[&str], target: &[&str]) -> RuleSettings {
    rule(Effect::Deny, who, target)
}

fn equals(pointer: &str, value: &str) -> Condition {
    let checks = vec![Check::Equals(Scalar::Text(value.into()))];
    Condition { pointer: pointer.into(), optional: false, checks }
}

fn settings(policy: PolicySettings) -> Settings {
    let telemetry = TelemetrySettings {
        log: String::new(),
        format: crate::config::settings::LogFormat::Pretty,
        audit: None,
        otlp: None,
    };
    let mut settings = Settings::of(vec![server("a"), server("b")], "none".into(), telemetry);
    settings.policy = policy;
    settings
}

fn policy(default: Effect, rules: Vec<RuleSettings>) -> Policy {
    let policy = PolicySettings { default: Some(default), rules, ..PolicySettings::default() };
    Policy::compile(&settings(policy), &Clock::default()).unwrap()
}

fn who(name: &str, groups: &[&str]) -> Principal {
    Principal::parse(name, &texts(groups)).unwrap()
}

fn decide(policy: &Policy, who: &Principal, target: (usize, Kind, &str), arguments: &str) -> Decision {
    let terms = policy.terms(policy.class_of(who), target.0, target.1, target.2, Origin::Listed);
    let ask = Ask { principal: who, arguments: arguments.as_bytes(), extent: Extent::Whole, charge: Charge::Call };
    policy.decide(&ask, &terms)
}

/// The reason of a refusal, with `hidden:` before it when it is.
fn why(policy: &Policy, who: &Principal, target: (usize, Kind, &str), arguments: &str) -> String {
    match decide(policy, who, target, arguments).outcome {
        Ok(_) => "ok".to_owned(),
        Err(refusal) if refusal.is_hidden() => format!("hidden:{}", refusal.reason()),
        Err(refusal) => refusal.reason().to_string(),
    }
}

const READ: (usize, Kind, &str) = (0, Kind::Tool, "read");

/// R-36: a decision names the rule or the limit that made it, whatever its verdict.
#[test]
fn r36_a_decision_says_what_decided() {
    let rules = vec![allow(&["*"], &["a/tool/read"]), deny(&["*"], &["a/tool/x"])];
    let me = Principal::stdio();
    let (policy, _) = limited(vec![rated("a/tool/read", Per::Principal, 1)], |settings| settings.policy.rules = rules);
    let decided = |native| {
        let decision = decide(&policy, &me, (0, Kind::Tool, native), "{}");
        (decision.outcome.is_ok(), decision.rule, decision.limit)
    };
    assert_eq!(decided("read"), (true, Some(0), None));
    assert_eq!(decided("read"), (false, Some(0), Some(0)));
    assert_eq!(decided("x"), (false, Some(1), None));
    assert_eq!(decided("other"), (true, None, None), "the default");
}

#[test]
fn a_permit_names_what_it_is_for() {
    let open = Policy::new(vec![ServerRules::default()]);
    let permit = decide(&open, &Principal::stdio(), READ, "{}").outcome.unwrap();
    assert_eq!((permit.server(), permit.kind()), (0, Kind::Tool));
    assert_eq!(why(&open, &Principal::stdio(), (1, Kind::Tool, "read"), "{}"), "hidden:not-allowed");
}

#[test]
fn each_kind_has_lists_of_its_own() {
    let mut server = server("s");
    let deny = |text: &str| ItemFilter { allow: None, deny: vec![text.to_owned()] };
    server.tools = deny("t*");
    server.prompts = deny("p*");
    server.resources = deny("file:///secret/*");
    server.templates = deny("db://{x}");
    let policy = Policy::new(vec![ServerRules::compile(&server).unwrap()]);
    let hidden = ["t1", "p1", "file:///secret/a", "db://{x}"];
    for (kind, own) in Kind::ALL.into_iter().zip(hidden) {
        for native in hidden {
            assert_eq!(policy.exposes(Class::default(), 0, kind, native).is_err(), native == own, "{kind} {native}");
        }
    }
    server.resources = deny("[");
    server.prompts = deny("[");
    let keys: Vec<_> = ServerRules::compile(&server).unwrap_err().into_iter().map(|fault| fault.key).collect();
    assert_eq!(keys, ["servers.s.prompts.deny", "servers.s.resources.deny"]);
}

#[test]
fn d093_deny_wins_and_the_default_holds_for_the_rest() {
    let one = policy(Effect::Allow, vec![deny(&["*"], &["a/tool/*delete*"])]);
    let me = Principal::stdio();
    assert_eq!(why(&one, &me, READ, "{}"), "ok");
    assert_eq!(why(&one, &me, (0, Kind::Tool, "undelete"), "{}"), "hidden:not-allowed");
    assert_eq!(why(&one, &me, (1, Kind::Tool, "delete"), "{}"), "ok");
    let two = policy(Effect::Deny, vec![allow(&["*"], &["a/*/*"]), deny(&["*"], &["a/tool/x"])]);
    assert_eq!(why(&two, &me, READ, "{}"), "ok");
    assert_eq!(why(&two, &me, (0, Kind::Tool, "x"), "{}"), "hidden:not-allowed");
    assert_eq!(why(&two, &me, (0, Kind::Prompt, "x"), "{}"), "ok");
    assert_eq!(why(&two, &me, (1, Kind::Tool, "read"), "{}"), "hidden:not-allowed");
}

#[test]
fn d102_who_decides_by_name_and_group() {
    let rules = vec![
        allow(&["group:dev", "stdio"], &["a/tool/*"]),
        allow(&["key:ci"], &["b/tool/*"]),
        deny(&["group:guests"], &["a/tool/write"]),
    ];
    let policy = policy(Effect::Deny, rules);
    let b = (1, Kind::Tool, "x");
    let write = (0, Kind::Tool, "write");
    for (who, expected) in [
        (who("key:ann", &["dev"]), ["ok", "ok", "no"]),
        (who("key:ben", &["dev", "guests"]), ["ok", "no", "no"]),
        (who("key:ci", &[]), ["no", "no", "ok"]),
        (who("stdio", &[]), ["ok", "ok", "no"]),
        (who("anonymous", &[]), ["no", "no", "no"]),
    ] {
        for (target, expected) in [READ, write, b].into_iter().zip(expected) {
            let expected = if expected == "ok" { "ok" } else { "hidden:not-allowed" };
            assert_eq!(why(&policy, &who, target, "{}"), expected, "{who} {target:?}");
        }
    }
    assert!(policy.hides_server(policy.class_of(&who("key:ci", &[])), 0));
    assert!(!policy.hides_server(policy.class_of(&who("stdio", &[])), 0));
}

#[test]
fn e23_arguments_decide_where_a_rule_says_so() {
    let mut narrow = allow(&["*"], &["a/tool/read"]);
    narrow.conditions = vec![equals("/path", "x")];
    let mut other = allow(&["*"], &["a/tool/read"]);
    other.conditions = vec![equals("/path", "y"), equals("/mode", "r")];
    let policy = policy(Effect::Deny, vec![narrow, other]);
    let me = Principal::stdio();
    assert!(policy.exposes(policy.class_of(&me), 0, Kind::Tool, "read").is_ok(), "it is seen");
    assert_eq!(why(&policy, &me, READ, r#"{"path":"x"}"#), "ok");
    assert_eq!(why(&policy, &me, READ, r#"{"path":"y","mode":"r"}"#), "ok");
    assert_eq!(why(&policy, &me, READ, r#"{"path":"y"}"#), "argument-not-allowed");
    assert_eq!(why(&policy, &me, READ, "{}"), "argument-not-allowed");
    let refused = decide(&policy, &me, READ, "{}").outcome.unwrap_err();
    assert_eq!(refused.pointer(), Some("/path"));
    assert_eq!(decide(&policy, &me, READ, r#"{"path":"y","mode":"r"}"#).rule, Some(1));
}

#[test]
fn e23_a_uri_does_not_climb_out_of_a_pattern() {
    let policy = policy(Effect::Deny, vec![allow(&["*"], &["a/resource/file:///srv/*", "a/resource/x:*"])]);
    let me = Principal::stdio();
    let read = |uri: &'static str| why(&policy, &me, (0, Kind::Resource, uri), "{}");
    for fine in ["file:///srv/a", "file:///srv/..a/b.txt", "file:///srv/a...", "file:///srv/%2e%2ea"] {
        assert_eq!(read(fine), "ok", "{fine}");
    }
    for climbing in [
        "file:///srv/../etc/passwd",
        "file:///srv/a/%2e%2E/%2e./x",
        "file:///srv/a\\..\\x",
        "file:///srv/./x",
        "file:///srv/..%2fetc",
        "file:///srv/..",
        "x:../private",
    ] {
        assert_eq!(read(climbing), "hidden:not-allowed", "{climbing}");
    }
    let open = Policy::new(vec![ServerRules::default()]);
    assert_eq!(why(&open, &me, (0, Kind::Resource, "x:../y"), "{}"), "ok", "where nothing is decided nothing changes");
}

#[test]
fn e22_annotations_widen_nothing_without_approval() {
    use crate::config::settings::Annotation;
    let mut reads = allow(&["*"], &["a/tool/*"]);
    reads.annotations = vec![(Annotation::ReadOnly, true)];
    let me = Principal::stdio();
    assert_eq!(why(&policy(Effect::Deny, vec![reads]), &me, READ, "{}"), "hidden:not-allowed");
    let mut destroys = deny(&["*"], &["a/tool/*"]);
    destroys.annotations = vec![(Annotation::Destructive, true)];
    assert_eq!(why(&policy(Effect::Allow, vec![destroys]), &me, READ, "{}"), "hidden:not-allowed");
}

#[test]
fn e22_what_was_approved_counts_and_nothing_else() {
    use crate::config::settings::Annotation;
    let hints = |read_only, destructive| Hints { read_only, destructive, idempotent: false, open_world: true };
    let approved = |level| {
        let tools = [("read".to_owned(), hints(true, false)), ("write".to_owned(), hints(false, true))].into();
        vec![Approved { level: Some(level), tools }]
    };
    let me = Principal::stdio();
    let says = |policy: &Policy, kind, native| why(policy, &me, (0, kind, native), "{}");
    let mut reads = allow(&["*"], &["a/*/*"]);
    reads.annotations = vec![(Annotation::ReadOnly, true)];
    let allowing = policy(Effect::Deny, vec![reads]);
    allowing.approve(approved(1));
    assert_eq!(says(&allowing, Kind::Tool, "read"), "ok");
    for (kind, native) in [(Kind::Tool, "write"), (Kind::Tool, "new"), (Kind::Prompt, "read")] {
        assert_eq!(says(&allowing, kind, native), "hidden:not-allowed", "{kind} {native}");
    }
    allowing.approve(Vec::new());
    assert_eq!(says(&allowing, Kind::Tool, "read"), "hidden:not-allowed", "no longer approved");
    let mut destroys = deny(&["*"], &["a/tool/*"]);
    destroys.annotations = vec![(Annotation::Destructive, true)];
    let denying = policy(Effect::Allow, vec![destroys]);
    denying.approve(approved(1));
    assert_eq!(says(&denying, Kind::Tool, "read"), "ok");
    assert_eq!(says(&denying, Kind::Tool, "write"), "hidden:not-allowed");
    assert_eq!(says(&denying, Kind::Tool, "new"), "hidden:not-allowed", "it may be anything");
    let bound = policy(Effect::Deny, vec![RuleSettings { min_level: Some(2), ..allow(&["*"], &["a/*/*"]) }]);
    for (level, expected) in [(1, "hidden:not-allowed"), (2, "ok"), (3, "ok")] {
        bound.approve(approved(level));
        assert_eq!(says(&bound, Kind::Prompt, "p"), expected, "{level}");
    }
}

#[test]
fn a_locked_rule_is_not_widened_by_lower_layers() {
    let mut locked = allow(&["group:dev"], &["a/tool/read*"]);
    (locked.locked, locked.layer) = (true, 0);
    locked.conditions = vec![equals("/path", "x")];
    let mut beside = allow(&["key:ops"], &["a/tool/read"]);
    beside.layer = 0;
    let wide = allow(&["*"], &["*/*/*"]);
    for default in [Effect::Deny, Effect::Allow] {
        let policy = policy(default, vec![locked.clone(), beside.clone(), wide.clone()]);
        let (dev, ops, guest) = (who("key:a", &["dev"]), who("key:ops", &[]), who("key:guest", &[]));
        assert_eq!(why(&policy, &dev, READ, r#"{"path":"x"}"#), "ok");
        assert_eq!(why(&policy, &dev, READ, "{}"), "argument-not-allowed", "the lower layer does not help");
        assert_eq!(why(&policy, &guest, READ, "{}"), "hidden:not-allowed");
        assert_eq!(why(&policy, &ops, READ, "{}"), "ok", "its own layer may");
        assert_eq!(why(&policy, &guest, (0, Kind::Tool, "write"), "{}"), "ok", "others are not locked");
    }
    let mut narrow = deny(&["*"], &["a/tool/read"]);
    narrow.layer = 5;
    let policy = policy(Effect::Deny, vec![locked, narrow]);
    assert_eq!(
        why(&policy, &who("key:a", &["dev"]), READ, r#"{"path":"x"}"#),
        "hidden:not-allowed",
        "narrowing is free"
    );
}

#[test]
fn shadow_decides_and_does_not_refuse_but_for_locked_rules() {
    let mut locked = deny(&["*"], &["a/tool/locked"]);
    (locked.locked, locked.layer) = (true, 0);
    let mut conditional = allow(&["*"], &["a/tool/cond"]);
    conditional.conditions = vec![equals("/p", "x")];
    let shadow = PolicySettings {
        default: Some(Effect::Deny),
        shadow: true,
        rules: vec![locked, conditional],
        ..PolicySettings::default()
    };
    let mut settings = settings(shadow);
    settings.servers[0].tools.deny.push("own".into());
    let policy = Policy::compile(&settings, &Clock::default()).unwrap();
    let me = Principal::stdio();
    let decision = decide(&policy, &me, READ, "{}");
    assert!(decision.outcome.is_ok());
    assert_eq!(decision.shadowed, Some(Reason::NotAllowed));
    assert_eq!(decide(&policy, &me, (0, Kind::Tool, "cond"), "{}").shadowed, Some(Reason::ArgumentNotAllowed));
    assert_eq!(why(&policy, &me, (0, Kind::Tool, "locked"), "{}"), "hidden:not-allowed");
    assert_eq!(why(&policy, &me, (0, Kind::Tool, "own"), "{}"), "hidden:not-allowed", "lists of servers are no rules");
}

/// A policy with these limits, and the hand of its clock, in milliseconds.
fn limited(limits: Vec<LimitSettings>, change: impl FnOnce(&mut Settings)) -> (Policy, Arc<AtomicU64>) {
    let hand = Arc::new(AtomicU64::new(1_000_000));
    let read = Arc::clone(&hand);
    let clock = Clock::new(move || Duration::from_millis(read.load(Ordering::Relaxed)));
    let policy = PolicySettings { default: Some(Effect::Allow), limits, ..PolicySettings::default() };
    let mut settings = settings(policy);
    change(&mut settings);
    (Policy::compile(&settings, &clock).unwrap(), hand)
}

fn rate(count: u32, seconds: u64) -> Rate {
    Rate { count: NonZeroU32::new(count).unwrap(), per: Duration::from_secs(seconds) }
}

fn limit(target: &str, per: Per) -> LimitSettings {
    LimitSettings::new(["*"], [target], per, "")
}

fn rated(target: &str, per: Per, count: u32) -> LimitSettings {
    LimitSettings { rate: Some(rate(count, 60)), ..limit(target, per) }
}

#[test]
fn d104_each_has_his_own_as_the_limit_says() {
    let (ann, ben) = (who("key:ann", &[]), who("key:ben", &[]));
    let (x, y, other) = ((0, Kind::Tool, "x"), (0, Kind::Prompt, "y"), (1, Kind::Tool, "x"));
    for (per, expected) in [
        // ann x, ann y, ben x, ann at the other server
        (Per::Principal, [false, false, true, false]),
        (Per::Server, [false, false, false, true]),
        (Per::Tool, [false, true, false, true]),
        (Per::PrincipalTool, [false, true, true, true]),
        (Per::Everyone, [false, false, false, false]),
    ] {
        let asks = [(&ann, x), (&ann, y), (&ben, x), (&ann, other)];
        for ((who, target), expected) in asks.into_iter().zip(expected) {
            let (policy, _) = limited(vec![rated("*/*/*", per, 1)], |_| {});
            assert_eq!(why(&policy, &ann, x, "{}"), "ok");
            let wanted = if expected { "ok" } else { "rate-limited" };
            assert_eq!(why(&policy, who, target, "{}"), wanted, "{per:?} {who} {target:?}");
        }
    }
}

#[test]
fn limits_are_about_whom_and_what_they_name() {
    let mut limit = rated("a/tool/*", Per::Principal, 1);
    limit.who = texts(&["group:guests"]);
    let (policy, hand) = limited(vec![limit], |_| {});
    let (guest, member) = (who("key:g", &["guests"]), who("key:m", &[]));
    assert_eq!(why(&policy, &guest, READ, "{}"), "ok");
    let refused = decide(&policy, &guest, READ, "{}");
    assert_eq!(refused.limit, Some(0));
    let refusal = refused.outcome.unwrap_err();
    assert!(!refusal.is_hidden());
    assert_eq!((refusal.reason(), refusal.retry_after()), (Reason::RateLimited, Some(Duration::from_secs(60))));
    assert_eq!(why(&policy, &guest, (0, Kind::Prompt, "read"), "{}"), "ok", "no tool");
    for _ in 0..3 {
        assert_eq!(why(&policy, &member, READ, "{}"), "ok");
    }
    hand.fetch_add(60_000, Ordering::Relaxed);
    assert_eq!(why(&policy, &guest, READ, "{}"), "ok");
}

#[test]
fn all_limits_are_charged_or_none() {
    let narrow = rated("a/tool/x", Per::Everyone, 1);
    let wide = rated("*/*/*", Per::Everyone, 3);
    let quota = LimitSettings { quota: Some(rate(3, 86_400)), ..limit("*/*/*", Per::Everyone) };
    let (policy, _) = limited(vec![wide, quota, narrow], |_| {});
    let me = Principal::stdio();
    let x = (0, Kind::Tool, "x");
    assert_eq!(why(&policy, &me, x, "{}"), "ok");
    for _ in 0..5 {
        assert_eq!(why(&policy, &me, x, "{}"), "rate-limited");
    }
    assert_eq!(why(&policy, &me, READ, "{}"), "ok", "what was refused cost nothing");
    assert_eq!(why(&policy, &me, READ, "{}"), "ok");
    assert_eq!(why(&policy, &me, READ, "{}"), "rate-limited");
}

#[test]
fn quota_concurrency_and_the_rate_of_a_server() {
    let quota = LimitSettings { quota: Some(rate(1, 86_400)), ..limit("a/tool/q", Per::Principal) };
    let two = LimitSettings { concurrency: NonZeroU32::new(1), ..limit("a/tool/c", Per::Principal) };
    let size = LimitSettings { max_result: Some(1024), ..limit("a/tool/s", Per::Principal) };
    let (policy, _) = limited(vec![quota, two, size], |settings| {
        settings.servers[1].limits.rate = Some((rate(60, 60), NonZeroU32::new(1)));
    });
    let me = Principal::stdio();
    let q = (0, Kind::Tool, "q");
    assert_eq!(why(&policy, &me, q, "{}"), "ok");
    assert_eq!(why(&policy, &me, q, "{}"), "quota-exhausted");
    let c = (0, Kind::Tool, "c");
    let permit = decide(&policy, &me, c, "{}").outcome.unwrap();
    assert_eq!(why(&policy, &me, c, "{}"), "concurrency-limited");
    drop(permit);
    assert_eq!(why(&policy, &me, c, "{}"), "ok");
    let b = (1, Kind::Resource, "x:1");
    assert_eq!(why(&policy, &me, b, "{}"), "ok");
    assert_eq!(why(&policy, &Principal::anonymous(), b, "{}"), "rate-limited", "it is the server's");
    assert_eq!(decide(&policy, &me, (0, Kind::Tool, "s"), "{}").outcome.unwrap().max_result(), Some(1024));
}

#[test]
fn further_rounds_of_a_call_are_decided_but_not_charged() {
    let mut narrow = allow(&["*"], &["a/tool/read"]);
    narrow.conditions = vec![equals("/p", "x")];
    let (policy, _) = limited(vec![rated("*/*/*", Per::Principal, 1)], |settings| {
        settings.policy.default = Some(Effect::Deny);
        settings.policy.rules = vec![narrow];
    });
    let me = Principal::stdio();
    assert_eq!(why(&policy, &me, READ, r#"{"p":"x"}"#), "ok");
    let terms = policy.terms(policy.class_of(&me), 0, Kind::Tool, "read", Origin::Listed);
    let again = |arguments: &str| {
        let ask = Ask { principal: &me, arguments: arguments.as_bytes(), extent: Extent::Whole, charge: Charge::Round };
        policy.decide(&ask, &terms).outcome.map(drop).map_err(|refusal| refusal.reason())
    };
    assert_eq!(again(r#"{"p":"x"}"#), Ok(()));
    assert_eq!(again(r#"{"p":"y"}"#), Err(Reason::ArgumentNotAllowed));
    assert_eq!(why(&policy, &me, READ, r#"{"p":"x"}"#), "rate-limited");
}

/// D-32: whoever makes up names gets no limit of its own with each.
#[test]
fn d32_names_that_hosts_make_up_are_counted_as_one() {
    let (policy, _) = limited(vec![rated("*/resource/*", Per::Tool, 1)], |_| {});
    let me = Principal::stdio();
    let read = |uri: &str, origin| {
        let terms = policy.terms(policy.class_of(&me), 0, Kind::Resource, uri, origin);
        let ask = Ask { principal: &me, arguments: b"{}", extent: Extent::Whole, charge: Charge::Call };
        policy.decide(&ask, &terms).outcome.is_ok()
    };
    assert!(read("file:///a/1", Origin::Named) && !read("file:///a/2", Origin::Named));
    assert!(read("file:///a/2", Origin::Listed) && read("file:///b", Origin::Listed));
}

/// Contract §4: what a server allows counts each request that reaches it, what policy allows each call.
#[test]
fn requests_about_a_call_are_charged_to_the_rate_of_its_server_alone() {
    let (policy, _) = limited(vec![rated("*/*/*", Per::Principal, 1)], |settings| {
        settings.servers[0].limits.rate = Some((rate(2, 60), None));
    });
    let me = Principal::stdio();
    assert_eq!(why(&policy, &me, READ, "{}"), "ok");
    let terms = policy.terms(policy.class_of(&me), 0, Kind::Tool, "read", Origin::Listed);
    let about = |charge| {
        let ask = Ask { principal: &me, arguments: b"{}", extent: Extent::Partial, charge };
        policy.decide(&ask, &terms).outcome.map(drop).map_err(|refusal| refusal.reason())
    };
    assert_eq!(about(Charge::Nothing), Ok(()));
    assert_eq!(about(Charge::Server), Ok(()));
    assert_eq!(about(Charge::Server), Err(Reason::RateLimited));
    assert_eq!(about(Charge::Nothing), Ok(()));
}

#[test]
fn d32_a_flood_of_refused_ones_is_stopped_and_harms_nobody_else() {
    let (policy, hand) = limited(Vec::new(), |settings| {
        settings.policy.rules = vec![deny(&["*"], &["a/tool/x"])];
        settings.policy.attempts = Attempts { rate: rate(1, 1), burst: NonZeroU32::new(3).unwrap() };
    });
    let (ann, ben) = (who("key:ann", &[]), who("key:ben", &[]));
    for _ in 0..3 {
        assert_eq!(why(&policy, &ann, (0, Kind::Tool, "x"), "{}"), "hidden:not-allowed");
    }
    let x = (0, Kind::Tool, "x");
    assert_eq!(why(&policy, &ann, x, "{}"), "rate-limited");
    assert!(policy.is_flooding(&ann).is_some() && policy.is_flooding(&ben).is_none());
    assert_eq!(why(&policy, &ben, x, "{}"), "hidden:not-allowed");
    assert_eq!(why(&policy, &ann, READ, "{}"), "ok", "what is allowed goes on");
    hand.fetch_add(1000, Ordering::Relaxed);
    assert_eq!(why(&policy, &ann, x, "{}"), "hidden:not-allowed");
}

#[test]
fn classes_are_few_and_the_last_is_closed() {
    let policy = policy(Effect::Allow, vec![deny(&["key:a*"], &["a/*/*"])]);
    let class = |name: &str| policy.class_of(&who(name, &[]));
    assert_eq!(class("key:a1"), class("key:a2"));
    assert_ne!(class("key:a1"), class("key:b"));
    assert_eq!(class("key:b"), class("stdio"));
}

#[test]
fn e40_what_does_not_compile_is_refused_all_at_once() {
    let mut bad = allow(&["dev"], &["a", "["]);
    bad.conditions = vec![Condition { pointer: "/p".into(), optional: false, checks: vec![Check::Glob("[".into())] }];
    let policy = PolicySettings { default: Some(Effect::Deny), rules: vec![bad], ..PolicySettings::default() };
    let keys: Vec<_> =
        Policy::compile(&settings(policy), &Clock::default()).unwrap_err().into_iter().map(|fault| fault.key).collect();
    let rule = |member: &str| format!("policy.rule[0].{member}");
    assert_eq!(keys, [rule("who"), rule("target"), rule("target"), rule("where")]);
}

fn any_rule() -> impl Strategy<Value = RuleSettings> {
    let who = prop::sample::select(vec!["*", "key:a", "key:*", "group:g", "stdio"]);
    let server = prop::sample::select(vec!["a", "b", "*"]);
    let kind = prop::sample::select(vec!["tool", "prompt", "*"]);
    let parts = (any::<bool>(), who, server, kind, "[xy*?]{1,3}", any::<bool>(), any::<bool>(), 0usize..3);
    parts.prop_map(|(denies, who, server, kind, native, conditional, locked, layer)| {
        let effect = if denies { Effect::Deny } else { Effect::Allow };
        let mut rule = rule(effect, &[who], &[&format!("{server}/{kind}/{native}")]);
        if conditional && !denies {
            rule.conditions = vec![equals("/p", "x")];
        }
        (rule.locked, rule.layer) = (locked, layer);
        rule
    })
}

fn everything() -> Vec<(Principal, (usize, Kind, &'static str))> {
    let people = [who("key:a", &[]), who("key:b", &["g"]), who("stdio", &[]), who("anonymous", &[])];
    let names = ["x", "y", "xy", "yx", "xyx"];
    let mut all = Vec::new();
    for person in people {
        for server in 0..2 {
            for kind in [Kind::Tool, Kind::Prompt, Kind::Resource] {
                all.extend(names.map(|name| (person.clone(), (server, kind, name))));
            }
        }
    }
    all
}

proptest! {
    /// INV-8, D095: the list and the call answer alike, for any rules and any item; and explaining says the same.
    #[test]
    fn d095_list_and_call_agree(rules in prop::collection::vec(any_rule(), 0..8), allows in any::<bool>()) {
        let policy = policy(if allows { Effect::Allow } else { Effect::Deny }, rules);
        for (who, target) in everything() {
            let listed = policy.exposes(policy.class_of(&who), target.0, target.1, target.2).is_ok();
            for arguments in ["{}", r#"{"p":"x"}"#] {
                let called = why(&policy, &who, target, arguments);
                prop_assert_eq!(listed, !called.starts_with("hidden:"));
                let told = policy.explain(&who, target, Some(arguments.as_bytes())).unwrap();
                prop_assert_eq!(told.visible, listed);
                let reason = told.reason.map_or("ok", Reason::code);
                prop_assert_eq!(reason, called.trim_start_matches("hidden:"));
            }
            if policy.hides_server(policy.class_of(&who), target.0) {
                prop_assert!(!listed);
            }
        }
    }

    /// The order of rules never matters.
    #[test]
    fn order_means_nothing(rules in prop::collection::vec(any_rule(), 0..8), allows in any::<bool>()) {
        let default = if allows { Effect::Allow } else { Effect::Deny };
        let mut turned = rules.clone();
        turned.reverse();
        let (one, other) = (policy(default, rules), policy(default, turned));
        for (who, target) in everything() {
            prop_assert_eq!(why(&one, &who, target, "{}"), why(&other, &who, target, "{}"));
        }
    }

    /// Narrowing never widens: one more deny, or one more locked rule of a lower layer, lets nothing through that was
    /// refused before; and what an upper layer locked, no lower one opens.
    #[test]
    fn narrowing_never_widens(
        rules in prop::collection::vec(any_rule(), 0..6),
        mut more in any_rule(),
        mut lower in prop::collection::vec(any_rule(), 0..4),
        allows in any::<bool>(),
    ) {
        let default = if allows { Effect::Allow } else { Effect::Deny };
        let before = policy(default, rules.clone());
        more.effect = Effect::Deny;
        more.conditions.clear();
        let after = policy(default, rules.iter().cloned().chain([more]).collect());
        let locked: Vec<_> = rules.iter().cloned().map(|rule| RuleSettings { locked: true, layer: 0, ..rule }).collect();
        let upper = policy(default, locked.clone());
        lower.iter_mut().for_each(|rule| rule.layer = 2);
        let both = policy(default, locked.iter().cloned().chain(lower).collect());
        let open = |policy: &Policy, who: &Principal, target, arguments| why(policy, who, target, arguments) == "ok";
        for (who, target) in everything() {
            for arguments in ["{}", r#"{"p":"x"}"#] {
                prop_assert!(!open(&after, &who, target, arguments) || open(&before, &who, target, arguments));
                let named = locked.iter().filter(|rule| rule.effect == Effect::Allow).any(|rule| rule.target.iter().any(|text| {
                    let key = ["a", "b"][target.0];
                    crate::config::settings::Target::new(text).unwrap().matches(key, target.1, target.2)
                }));
                if named {
                    prop_assert!(!open(&both, &who, target, arguments) || open(&upper, &who, target, arguments));
                }
            }
        }
    }
}

/// A policy whose time the test tells, in minutes since 1970, which was a Thursday.
fn timed(default: Effect, rules: Vec<RuleSettings>) -> (Policy, std::sync::Arc<AtomicU64>) {
    let minutes = std::sync::Arc::new(AtomicU64::new(0));
    let told = std::sync::Arc::clone(&minutes);
    let clock = Clock::new(move || Duration::from_secs(60 * told.load(std::sync::atomic::Ordering::Relaxed)));
    let policy = PolicySettings { default: Some(default), rules, ..PolicySettings::default() };
    (Policy::compile(&settings(policy), &clock).unwrap(), minutes)
}

/// From eight to six on every day, in UTC.
fn at_day(rule: RuleSettings) -> RuleSettings {
    let time = Some(crate::config::settings::TimeWindow { days: [true; 7], from: 480, to: 1080, offset: 0 });
    RuleSettings { time, ..rule }
}

#[test]
fn e20_rules_with_a_time_are_asked_anew_in_each_phase() {
    let locked = RuleSettings { locked: true, layer: 0, ..at_day(allow(&["*"], &["a/tool/l"])) };
    let rules = vec![
        at_day(allow(&["*"], &["a/tool/read"])),
        allow(&["*"], &["a/tool/d"]),
        at_day(deny(&["*"], &["a/tool/d"])),
        locked,
        allow(&["*"], &["a/tool/l"]),
    ];
    let (policy, minutes) = timed(Effect::Deny, rules);
    let me = Principal::stdio();
    let class = policy.class_of(&me);
    let mut phases = Vec::new();
    for (minute, open) in [(0, false), (479, false), (480, true), (1079, true), (1080, false), (1440 + 480, true)] {
        minutes.store(minute, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(policy.class_of(&me), class, "whoever it is stays");
        let call = |native| why(&policy, &me, (0, Kind::Tool, native), "{}");
        let (seen, hidden) = if open { ("ok", "hidden:not-allowed") } else { ("hidden:not-allowed", "ok") };
        assert_eq!((call("read").as_str(), call("d").as_str()), (seen, hidden), "{minute}");
        // What is locked to a time is open to nobody at another.
        assert_eq!(call("l"), seen, "{minute}");
        for native in ["read", "d", "l"] {
            let visible = policy.terms(class, 0, Kind::Tool, native, Origin::Listed).is_visible();
            assert_eq!(visible, call(native) == "ok", "list and call agree");
        }
        assert!(!policy.hides_server(class, 0), "it may be seen at some time");
        phases.push(policy.phase());
    }
    assert_eq!(phases[0], phases[1]);
    assert_ne!(phases[1], phases[2]);
    assert_eq!(phases[0], phases[4]);
    minutes.store(479, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(policy.next_phase(), Some(Duration::from_secs(60)));
    let told = policy.explain(&me, READ, None).unwrap();
    assert_eq!((told.reason, told.rules[0].time, told.rules[1].time), (Some(Reason::NotAllowed), Some(false), None));
    assert_eq!((policy_of_one().next_phase(), policy_of_one().phase()), (None, Phase::default()));
}

fn policy_of_one() -> Policy {
    policy(Effect::Deny, vec![allow(&["*"], &["a/tool/*"])])
}

#[test]
fn e40_levels_and_transports_open_nothing_that_is_not_known() {
    let level = |rule| RuleSettings { min_level: Some(1), ..rule };
    let by = |transport, rule| RuleSettings { transport: Some(transport), ..rule };
    use crate::config::settings::Transport::{Http, Stdio};
    let policy = policy(
        Effect::Deny,
        vec![
            level(allow(&["*"], &["a/tool/x"])),
            allow(&["*"], &["a/tool/y"]),
            level(deny(&["*"], &["a/tool/y"])),
            by(Stdio, allow(&["*"], &["a/tool/local"])),
            by(Http, allow(&["*"], &["a/tool/far"])),
            allow(&["*"], &["a/tool/z"]),
            by(Http, deny(&["*"], &["a/tool/z"])),
        ],
    );
    for (name, opens) in [
        ("stdio", &["local", "z"][..]),
        ("stdio:laptop", &["local", "z"]),
        ("key:ci", &["far"]),
        ("user:stdio", &["far"]),
        ("anonymous", &["far"]),
    ] {
        let me = who(name, &[]);
        for native in ["x", "y", "local", "far", "z"] {
            let expected = if opens.contains(&native) { "ok" } else { "hidden:not-allowed" };
            assert_eq!(why(&policy, &me, (0, Kind::Tool, native), "{}"), expected, "{name} {native}");
        }
    }
    let told = policy.explain(&who("key:ci", &[]), (0, Kind::Tool, "x"), None).unwrap();
    assert_eq!((told.rules[0].level, told.rules[2].level), (Some(false), Some(true)));
    assert_eq!((told.rules[3].transport, told.rules[4].transport, told.rules[3].who), (Some(false), Some(true), true));
}

#[test]
fn capabilities_are_withheld_by_a_deny_and_where_others_are_granted() {
    let me = who("key:ci", &["dev"]);
    let granted = |policy: &Policy, server: usize| {
        let all = Capability::ALL.into_iter().filter(|capability| policy.grants(&me, server, *capability));
        all.map(Capability::as_str).collect::<Vec<_>>().join(" ")
    };
    let all = "sampling elicitation secrets roots logging completions";
    // Rules about items say nothing of them, whatever the default is.
    assert_eq!(granted(&policy_of_one(), 0), all);
    assert_eq!(granted(&policy(Effect::Deny, vec![allow(&["*"], &["a/*/*"])]), 1), all);
    let denies = || vec![deny(&["group:dev"], &["a/capability/s*"]), deny(&["key:other"], &["*/capability/*"])];
    let policy1 = policy(Effect::Allow, denies());
    assert_eq!(
        (granted(&policy1, 0).as_str(), granted(&policy1, 1).as_str()),
        ("elicitation roots logging completions", all)
    );
    assert_eq!(granted(&policy(Effect::Deny, vec![deny(&["*"], &["a/*/*"])]), 0), "", "all of it");
    // One that is granted makes the default hold for the rest.
    let one = allow(&["group:dev"], &["a/capability/sampling"]);
    for one in [one.clone(), allow(&["group:dev"], &["re:a/capability/samp.*"])] {
        let policy1 = policy(Effect::Deny, vec![one]);
        assert_eq!((granted(&policy1, 0).as_str(), granted(&policy1, 1).as_str()), ("sampling", ""));
    }
    assert_eq!(granted(&policy(Effect::Allow, vec![one.clone()]), 1), all);
    let several = [vec![allow(&["*"], &["*/*/*", "a/capability/*"])], denies()].concat();
    assert_eq!(granted(&policy(Effect::Deny, several), 0), "elicitation roots logging completions", "deny wins");
    // What is not known grants nothing; what has arguments neither, as there are none.
    for unknown in [
        RuleSettings { min_level: Some(1), ..one.clone() },
        RuleSettings { conditions: vec![equals("/x", "y")], ..one.clone() },
        RuleSettings { transport: Some(crate::config::settings::Transport::Stdio), ..one.clone() },
    ] {
        assert_eq!(granted(&policy(Effect::Deny, vec![unknown]), 0), "");
    }
    // A locked one is not widened from below.
    let locked = RuleSettings { locked: true, layer: 0, who: texts(&["key:boss"]), ..one.clone() };
    assert_eq!(granted(&policy(Effect::Allow, vec![locked, one.clone()]), 0), all.replace("sampling ", ""));
    let (policy1, minutes) = timed(Effect::Deny, vec![at_day(one)]);
    assert_eq!(granted(&policy1, 0), "");
    minutes.store(500, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(granted(&policy1, 0), "sampling");
    let told = policy1.explain_capability(&me, 0, Capability::Roots).unwrap();
    assert_eq!(told.reason, Some(Reason::CapabilityWithheld));
    let told = policy1.explain_capability(&me, 0, Capability::Sampling).unwrap();
    assert_eq!((told.reason, told.decided_by), (None, vec![0]));
}
