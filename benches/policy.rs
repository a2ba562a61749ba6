//! What policy costs a call: a decision with 1 000 rules, with arguments to look at, with limits to charge.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use onegate::config::settings::{
    Check, Condition, Effect, LimitSettings, LogFormat, Per, PolicySettings, Rate, RuleSettings, ServerFault,
    ServerSettings, Settings, TelemetrySettings,
};
use onegate::ident::{Kind, Principal, ServerKey};
use onegate::policy::{Ask, Charge, Clock, Extent, Origin, Policy};

const RULES: usize = 1000;
const ARGUMENTS: &[u8] = br#"{"encoding":"utf8","path":"/srv/docs/a/../b/c.txt","head":100}"#;

fn rule(effect: Effect, n: usize, conditions: Vec<Condition>) -> RuleSettings {
    let who = [format!("key:team-{}-*", n % 50), "key:ci".to_owned()];
    let target = [format!("files/tool/{}_{n}*", if n.is_multiple_of(2) { "read" } else { "write" })];
    RuleSettings { conditions, ..RuleSettings::new(effect, who, target, format!("onegate.toml:{n}")) }
}

/// 1 000 rules of which one is about the tool.
fn settings(limits: Vec<LimitSettings>) -> Settings {
    let fault = ServerFault { key: String::new(), message: String::new() };
    let server = ServerSettings::new(ServerKey::new("files").expect("a key"), Err(fault));
    let telemetry = TelemetrySettings { log: String::new(), format: LogFormat::Pretty, audit: None, otlp: None };
    let mut settings = Settings::of(vec![server], "none".into(), telemetry);
    let below = Condition {
        pointer: "/path".to_owned(),
        optional: false,
        checks: vec![Check::PathUnder(vec!["/srv/docs".to_owned()])],
    };
    let mut rules: Vec<_> = (0..RULES - 1)
        .map(|n| rule(if n.is_multiple_of(3) { Effect::Deny } else { Effect::Allow }, n, Vec::new()))
        .collect();
    rules.push(RuleSettings { target: vec!["files/tool/fetch".to_owned()], ..rule(Effect::Allow, 0, vec![below]) });
    settings.policy = PolicySettings { default: Some(Effect::Deny), rules, limits, ..PolicySettings::default() };
    settings
}

fn decide(c: &mut Criterion) {
    let mut group = c.benchmark_group("decide-1000-rules");
    let began = Instant::now();
    let clock = Clock::new(move || began.elapsed());
    let who = Principal::key("ci");
    let limit = LimitSettings {
        rate: Some(Rate { count: NonZeroU32::new(1_000_000_000).expect("not none"), per: Duration::from_secs(1) }),
        ..LimitSettings::new(["*"], ["files/*/*"], Per::PrincipalTool, "")
    };
    for (name, limits) in [("arguments", vec![]), ("arguments-and-limit", vec![limit])] {
        let policy = Policy::compile(&settings(limits), &clock).expect("it compiles");
        let terms = policy.terms(policy.class_of(&who), 0, Kind::Tool, "fetch", Origin::Listed);
        let ask = Ask { principal: &who, arguments: ARGUMENTS, extent: Extent::Whole, charge: Charge::Call };
        assert!(policy.decide(&ask, &terms).outcome.is_ok());
        group.bench_function(name, |b| {
            b.iter(|| {
                let class = policy.class_of(black_box(&who));
                (class, policy.decide(black_box(&ask), black_box(&terms)))
            });
        });
        // What no table has: a URI that only a template matches.
        group.bench_function(format!("{name}-not-listed"), |b| {
            b.iter(|| {
                let terms = policy.terms(policy.class_of(&who), 0, Kind::Tool, black_box("fetch"), Origin::Listed);
                policy.decide(black_box(&ask), &terms)
            });
        });
    }
    group.finish();
}

criterion_group!(benches, decide);
criterion_main!(benches);
