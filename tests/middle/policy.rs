//! Policy on the way of a request: every path meets the one decision, and is told of it in the words of its era.
//!
//! Long, and one thing: the one decision, on each way that leads to it.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use onegate::caller::Caller;
use onegate::config::settings::{
    Attempts, Check, Condition, Effect, LimitSettings, OverrideSettings, Per, PolicySettings, Rate, RuleSettings,
    Scalar,
};
use onegate::gateway::Outcome;
use onegate::ident::{Kind, Principal};
use onegate::protocol::call::Call;
use onegate::protocol::json::Index;
use onegate::protocol::message::Message;
use onegate::protocol::method::Method;
use onegate::protocol::version::Revision;
use onegate::transport::upward::Upward;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::end::{End, list_of, modern_as, text, text_of};
use super::full::{CELLS, ERAS, Era, Full, LISTS, is_unknown, ways};
use super::world::{World, server};

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

pub(crate) fn rule(effect: Effect, who: &str, target: &str) -> RuleSettings {
    RuleSettings::new(effect, [who], [target], "here")
}

fn allow(who: &str, target: &str) -> RuleSettings {
    rule(Effect::Allow, who, target)
}

/// An allow rule for arguments with `path` below `/srv`.
fn below_srv(target: &str) -> RuleSettings {
    let checks = vec![Check::PathUnder(texts(&["/srv"]))];
    RuleSettings {
        conditions: vec![Condition { pointer: "/path".into(), optional: false, checks }],
        ..allow("*", target)
    }
}

pub(crate) fn limit(target: &str, count: u32) -> LimitSettings {
    LimitSettings {
        rate: Some(Rate { count: NonZeroU32::new(count).unwrap(), per: Duration::from_secs(60) }),
        ..LimitSettings::new(["*"], [target], Per::Principal, "there")
    }
}

fn world(policy: PolicySettings) -> World {
    World::with(vec![server("a")], |settings| settings.policy = policy)
}

/// One server `a` that is up, and a host.
async fn one(era: Era, server_era: Era, policy: PolicySettings) -> (World, End, Full) {
    let mut world = world(policy);
    let mut a = started(&mut world, server_era).await;
    a.settle().await;
    let mut host = world.host();
    era.open(&mut host).await;
    (world, host, a)
}

/// The server `a`, which is started, with tools `t` and `open`.
async fn started(world: &mut World, era: Era) -> Full {
    let mut a = Full::new(world.accept("a").await, era);
    a.tools = list_of(&["t", "open"])["tools"].clone();
    a
}

/// A request of somebody, straight at the gateway; its result or error.
async fn ask(world: &World, who: &Principal, method: Method, params: Value) -> Value {
    let line =
        bytes::Bytes::from(json!({"jsonrpc": "2.0", "id": 1, "method": method.as_str(), "params": params}).to_string());
    let mut index = Index::new();
    let Ok(Message::Request { params, .. }) = Message::read(&line, &mut index) else { panic!("no request") };
    let call = Call::read(method, &line, &index, params).unwrap();
    let caller = Caller { principal: who.clone(), ..Caller::stdio(Revision::V2026_07_28) };
    match world.gateway.call(&call, &caller, Arc::new(Upward::default())).await {
        Ok(Outcome::Result(answer, spans)) => serde_json::from_slice(spans.whole.of(&answer.reply.line)).unwrap(),
        Ok(Outcome::Refused(refused)) => {
            serde_json::from_str(&format!("{{{},\"_meta\":{{{}}}}}", refused.members, refused.meta)).unwrap()
        }
        Ok(Outcome::Own(members)) => serde_json::from_str(&format!("{{{members}}}")).unwrap(),
        Ok(Outcome::Input(_) | Outcome::Task(_) | Outcome::Error(..)) => panic!("no result"),
        Err(failure) => {
            let mut out = Vec::new();
            failure.push(&mut out);
            json!({"error": serde_json::from_slice::<Value>(&out).unwrap()})
        }
    }
}

fn key(name: &str, groups: &[&str]) -> Principal {
    Principal::key_in(name, &texts(groups))
}

/// E-20: what is denied is in no list and is reached on no way, and its server hears nothing of it.
#[tokio::test(start_paused = true)]
async fn e20_what_is_denied_is_unknown_by_every_method_in_all_cells() {
    for (era, server_era) in CELLS {
        let policy = PolicySettings {
            default: Some(Effect::Deny),
            rules: vec![allow("*", "a/tool/open")],
            ..PolicySettings::default()
        };
        let (mut world, mut host, mut a) = one(era, server_era, policy).await;
        for (list, member) in LISTS {
            let answer = era.get(&mut host, list, json!({})).await;
            let expected = usize::from(member == "tools");
            assert_eq!(answer["result"][member].as_array().unwrap().len(), expected, "{answer}");
        }
        for (method, params) in ways() {
            is_unknown(&era.get(&mut host, method, params).await);
        }
        if era == Era::Legacy {
            let answer = era.get(&mut host, "resources/subscribe", json!({"uri": "x:1"})).await;
            assert!(answer["error"]["code"].is_i64(), "{answer}");
        } else {
            let params = json!({"notifications": {"resourceSubscriptions": ["x:1"]}});
            host.ask("listen", "subscriptions/listen", era.params(params)).await;
            let told = host.expect("notifications/subscriptions/acknowledged").await;
            let honoured = &told["params"]["notifications"]["resourceSubscriptions"];
            assert!(honoured.as_array().is_none_or(Vec::is_empty), "{told}");
        }
        a.quiet(Duration::from_secs(1)).await;
        // What is allowed works, and so it does after the server was started again, as what is denied does not (D097).
        let mut running = Some(a);
        for _ in 0..2 {
            host.ask(1, "tools/call", era.params(json!({"name": "a__open"}))).await;
            let mut a = match running.take() {
                Some(a) => a,
                None => started(&mut world, server_era).await,
            };
            let call = a.expect("tools/call").await;
            a.end.result(&call, text("fine")).await;
            assert_eq!(text_of(&host.answer(1).await), "fine");
            let answer = era.get(&mut host, "tools/call", json!({"name": "a__t", "arguments": {}})).await;
            assert_eq!(answer["error"]["code"], -32602, "{answer}");
            a.quiet(Duration::from_secs(1)).await;
            drop(a);
            sleep(Duration::from_secs(1)).await;
        }
        world.end().await;
    }
}

/// E-20, D097: a legacy batch is many requests, each decided about; and a new session of another host meets the same.
#[tokio::test(start_paused = true)]
async fn e20_d097_a_batch_and_the_first_call_of_a_session_are_no_way_round() {
    let policy = PolicySettings {
        default: Some(Effect::Allow),
        rules: vec![rule(Effect::Deny, "*", "a/tool/t")],
        ..PolicySettings::default()
    };
    let mut world = world(policy);
    let mut host = world.host();
    host.open("2025-03-26").await;
    // Before its server has listed anything.
    let batch: Vec<_> = (1..3)
        .map(|id| json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "a__t"}}))
        .collect();
    host.raw(format!("{}\n", json!(batch))).await;
    let mut a = Full::new(world.accept("a").await, Era::Legacy);
    a.settle().await;
    let line = host.next().await.unwrap();
    let answers = line.as_array().unwrap_or_else(|| panic!("{line}"));
    assert_eq!(answers.len(), 2, "{line}");
    assert!(answers.iter().all(|answer| answer["error"]["code"] == -32602), "{line}");
    let mut other = world.host();
    other.open("2025-11-25").await;
    other.call(1, "a__t").await;
    let answer = other.answer(1).await;
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    a.quiet(Duration::from_secs(1)).await;
    world.end().await;
}

/// Contract §4: refused arguments of a tool are a result with the reason, anything else an error, in both eras.
#[tokio::test(start_paused = true)]
async fn e23_arguments_are_refused_in_words_that_a_model_can_use() {
    for era in ERAS {
        let policy = PolicySettings {
            default: Some(Effect::Deny),
            rules: vec![below_srv("a/tool/t"), below_srv("a/prompt/p")],
            ..PolicySettings::default()
        };
        let (world, mut host, mut a) = one(era, Era::Legacy, policy).await;
        for path in [json!("/srv/../etc"), json!(7), json!(null)] {
            let params = json!({"name": "a__t", "arguments": {"path": path}});
            let answer = era.get(&mut host, "tools/call", params).await;
            assert_eq!(answer["result"]["isError"], true, "{answer}");
            let refusal = &answer["result"]["_meta"]["onegate/refusal"];
            assert_eq!(refusal, &json!({"reason": "argument-not-allowed", "server": "a"}));
            assert!(text_of(&answer).contains("argument at /path"), "{answer}");
            let params = json!({"name": "a__p", "arguments": {"path": "/etc"}});
            let answer = era.get(&mut host, "prompts/get", params).await;
            assert_eq!(answer["error"]["code"], -32603);
            assert_eq!(answer["error"]["data"], json!({"reason": "argument-not-allowed", "server": "a"}));
        }
        // A completion is about arguments, too.
        let completing = |name: &str, value: &str| json!({"ref": {"type": "ref/prompt", "name": "a__p"}, "argument": {"name": name, "value": value}});
        let answer = era.get(&mut host, "completion/complete", completing("path", "/etc/")).await;
        assert_eq!(answer["error"]["data"]["reason"], "argument-not-allowed");
        for fine in [completing("path", "/srv/x"), completing("other", "/etc")] {
            host.ask(1, "completion/complete", era.params(fine)).await;
            let asked = a.expect("completion/complete").await;
            a.end.result(&asked, json!({"completion": {"values": []}})).await;
            host.answer(1).await;
        }
        host.ask(2, "tools/call", era.params(json!({"name": "a__t", "arguments": {"path": "/srv/x", "n": 1.50}})))
            .await;
        let call = a.expect("tools/call").await;
        assert_eq!(call["params"]["arguments"]["path"], "/srv/x");
        a.end.result(&call, text("fine")).await;
        assert_eq!(text_of(&host.answer(2).await), "fine");
        world.end().await;
    }
}

/// E-23: what a host writes beside a URI is no argument of it.
#[tokio::test(start_paused = true)]
async fn e23_a_read_has_no_arguments_that_a_rule_could_be_met_with() {
    let policy =
        PolicySettings { default: Some(Effect::Deny), rules: vec![below_srv("a/*/*")], ..PolicySettings::default() };
    let (world, mut host, _a) = one(Era::Legacy, Era::Legacy, policy).await;
    for params in [json!({"uri": "x:1"}), json!({"uri": "x:1", "arguments": {"path": "/srv/a"}})] {
        let answer = Era::Legacy.get(&mut host, "resources/read", params).await;
        assert_eq!(answer["error"]["data"]["reason"], "argument-not-allowed", "{answer}");
    }
    world.end().await;
}

/// E-20, OBS-4: a host that comes back with answers meets the same rules, and is charged once for all rounds (contract §4).
#[tokio::test(start_paused = true)]
async fn e20_rounds_of_input_are_decided_again_and_charged_once() {
    let policy = PolicySettings {
        default: Some(Effect::Deny),
        rules: vec![below_srv("a/tool/t")],
        limits: vec![limit("a/tool/t", 1)],
        ..PolicySettings::default()
    };
    let (world, mut host, mut a) = one(Era::Modern, Era::Modern, policy).await;
    let all = json!({"elicitation": {"form": {}}});
    let params = |path: &str, state: Option<&Value>| {
        let mut params = json!({"name": "a__t", "arguments": {"path": path}});
        if let Some(state) = state {
            params["requestState"] = state.clone();
            params["inputResponses"] = json!({"q": {"action": "accept", "content": {}}});
        }
        modern_as(params, all.clone())
    };
    let question = json!({"q": {"method": "elicitation/create", "params": {"message": "?", "requestedSchema":
        {"type": "object", "properties": {}}}}});
    let required = json!({"resultType": "input_required", "inputRequests": question, "requestState": "s"});
    host.ask(1, "tools/call", params("/srv/x", None)).await;
    let call = a.expect("tools/call").await;
    a.end.result(&call, required.clone()).await;
    let state = host.answer(1).await["result"]["requestState"].clone();
    // Other arguments under the same state.
    host.ask(2, "tools/call", params("/etc", Some(&state))).await;
    let refused = host.answer(2).await;
    assert_eq!(refused["result"]["_meta"]["onegate/refusal"]["reason"], "argument-not-allowed", "{refused}");
    // The round itself is free.
    host.ask(3, "tools/call", params("/srv/x", Some(&state))).await;
    let call = a.expect("tools/call").await;
    a.end.result(&call, text("done")).await;
    assert_eq!(text_of(&host.answer(3).await), "done");
    // The state once more is a new call, and so is one without.
    for (id, state) in [(4, Some(&state)), (5, None)] {
        host.ask(id, "tools/call", params("/srv/x", state)).await;
        let refused = host.answer(id).await;
        assert_eq!(refused["result"]["_meta"]["onegate/refusal"]["reason"], "rate-limited", "{refused}");
    }
    world.end().await;
}

/// Contract §4: a round that was refused may come again, and is the same call then.
#[tokio::test(start_paused = true)]
async fn d104_a_round_that_was_refused_is_not_charged_when_it_comes_again() {
    let policy = PolicySettings {
        default: Some(Effect::Allow),
        limits: vec![LimitSettings { concurrency: NonZeroU32::new(1), ..limit("a/tool/t", 2) }],
        ..PolicySettings::default()
    };
    let (world, mut host, mut a) = one(Era::Modern, Era::Modern, policy).await;
    let params = |state: Option<&Value>| {
        let mut params = json!({"name": "a__t", "arguments": {}});
        if let Some(state) = state {
            params["requestState"] = state.clone();
            params["inputResponses"] = json!({"q": {"action": "accept", "content": {}}});
        }
        modern_as(params, json!({"elicitation": {"form": {}}}))
    };
    let question = json!({"q": {"method": "elicitation/create", "params": {"message": "?", "requestedSchema":
        {"type": "object", "properties": {}}}}});
    host.ask(1, "tools/call", params(None)).await;
    let call = a.expect("tools/call").await;
    a.end.result(&call, json!({"resultType": "input_required", "inputRequests": question, "requestState": "s"})).await;
    let state = host.answer(1).await["result"]["requestState"].clone();
    host.ask(2, "tools/call", params(None)).await;
    let other = a.expect("tools/call").await;
    host.ask(3, "tools/call", params(Some(&state))).await;
    let refused = host.answer(3).await;
    assert_eq!(refused["result"]["_meta"]["onegate/refusal"]["reason"], "concurrency-limited", "{refused}");
    a.end.result(&other, text("other")).await;
    assert_eq!(text_of(&host.answer(2).await), "other");
    // The rate is used up: only a round passes.
    host.ask(4, "tools/call", params(Some(&state))).await;
    let call = a.expect("tools/call").await;
    a.end.result(&call, text("done")).await;
    assert_eq!(text_of(&host.answer(4).await), "done");
    world.end().await;
}

/// ERR-2, D-32, D104: limits are told with a time, in both eras; what is refused reaches nobody.
#[tokio::test(start_paused = true)]
async fn d104_limits_are_told_with_the_time_to_wait() {
    for era in ERAS {
        let policy = PolicySettings {
            default: Some(Effect::Allow),
            limits: vec![limit("*/*/*", 1)],
            ..PolicySettings::default()
        };
        let (world, mut host, mut a) = one(era, Era::Legacy, policy).await;
        let params = || era.params(json!({"name": "a__t"}));
        host.ask(1, "tools/call", params()).await;
        let call = a.expect("tools/call").await;
        a.end.result(&call, text("fine")).await;
        host.answer(1).await;
        host.ask(2, "tools/call", params()).await;
        let refused = host.answer(2).await;
        let refusal = &refused["result"]["_meta"]["onegate/refusal"];
        assert_eq!((&refusal["reason"], &refusal["server"]), (&json!("rate-limited"), &json!("a")), "{refused}");
        let after = refusal["retryAfterMs"].as_u64().unwrap();
        assert!((1..=60_000).contains(&after), "{after}");
        for (method, params) in [
            ("prompts/get", json!({"name": "a__p"})),
            ("resources/read", json!({"uri": "x:1"})),
            (
                "completion/complete",
                json!({"ref": {"type": "ref/prompt", "name": "a__p"}, "argument": {"name": "x", "value": ""}}),
            ),
        ] {
            let answer = era.get(&mut host, method, params).await;
            assert_eq!(answer["error"]["code"], 4290, "{answer}");
            assert_eq!(answer["error"]["data"]["reason"], "rate-limited");
            assert!(answer["error"]["data"]["retryAfterMs"].as_u64().is_some());
        }
        if era == Era::Legacy {
            let answer = era.get(&mut host, "resources/subscribe", json!({"uri": "x:1"})).await;
            assert_eq!(answer["error"]["code"], 4290, "{answer}");
        }
        sleep(Duration::from_millis(after)).await;
        host.ask(3, "tools/call", params()).await;
        let call = a.expect("tools/call").await;
        a.end.result(&call, text("again")).await;
        assert_eq!(text_of(&host.answer(3).await), "again");
        world.end().await;
    }
}

/// A limit on how many run is held as long as a call runs, and given back when it was cancelled.
#[tokio::test(start_paused = true)]
async fn d32_concurrency_counts_running_calls_and_refuses_at_once() {
    let one_at_a_time = LimitSettings { rate: None, concurrency: NonZeroU32::new(1), ..limit("a/tool/*", 1) };
    let policy =
        PolicySettings { default: Some(Effect::Allow), limits: vec![one_at_a_time], ..PolicySettings::default() };
    let (world, mut host, mut a) = one(Era::Legacy, Era::Legacy, policy).await;
    host.call(1, "a__t").await;
    a.expect("tools/call").await;
    host.call(2, "a__open").await;
    let refused = host.answer(2).await;
    assert_eq!(refused["result"]["_meta"]["onegate/refusal"], json!({"reason": "concurrency-limited", "server": "a"}));
    host.tell("notifications/cancelled", json!({"requestId": 1})).await;
    a.expect("notifications/cancelled").await;
    host.call(3, "a__t").await;
    let call = a.expect("tools/call").await;
    a.end.result(&call, text("fine")).await;
    assert_eq!(text_of(&host.answer(3).await), "fine");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn results_beyond_the_limit_are_not_passed() {
    let small = LimitSettings { rate: None, max_result: Some(1024), ..limit("a/tool/t", 1) };
    let policy = PolicySettings { default: Some(Effect::Allow), limits: vec![small], ..PolicySettings::default() };
    let (world, mut host, mut a) = one(Era::Legacy, Era::Legacy, policy).await;
    for (length, fits) in [(100, true), (2000, false)] {
        host.call(1, "a__t").await;
        let call = a.expect("tools/call").await;
        a.end.result(&call, text(&"x".repeat(length))).await;
        let answer = host.answer(1).await;
        assert_eq!(answer.get("result").is_some(), fits, "{answer}");
        assert!(fits || answer["error"]["data"]["reason"] == "result-too-large", "{answer}");
    }
    world.end().await;
}

/// D102: each sees his own list, is told of changes of that alone, and is limited by himself (D104).
#[tokio::test(start_paused = true)]
async fn d102_d104_principals_are_apart() {
    let policy = PolicySettings {
        default: Some(Effect::Deny),
        rules: vec![allow("group:dev", "a/*/*"), allow("key:ci", "a/tool/open")],
        limits: vec![limit("a/tool/open", 2)],
        ..PolicySettings::default()
    };
    let mut world = world(policy);
    let mut a = Full::new(world.accept("a").await, Era::Modern);
    a.tools = list_of(&["t", "open"])["tools"].clone();
    a.settle().await;
    let (ann, ci, guest) = (key("ann", &["dev"]), key("ci", &[]), key("guest", &[]));
    let tools = |who: &Principal| {
        let catalogue = world.gateway.catalogue(world.gateway.sight(who, 0));
        catalogue.names(Kind::Tool).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(tools(&ann), ["a__t", "a__open"]);
    assert_eq!(tools(&ci), ["a__open"]);
    assert_eq!(tools(&guest), [""; 0]);
    assert!(world.gateway.instructions(world.gateway.sight(&guest, 0)).is_empty());
    let call = |name: &str| json!({"name": name, "arguments": {}});
    let unknown = ask(&world, &ci, Method::ToolsCall, call("a__t")).await;
    assert_eq!(unknown["error"]["code"], -32602);
    for (who, expected) in [(&ci, true), (&ci, true), (&ci, false), (&ann, true), (&ann, true), (&ann, false)] {
        let serving = async {
            if expected {
                let call = a.expect("tools/call").await;
                a.end.result(&call, text("fine")).await;
            }
        };
        let (answer, ()) = tokio::join!(ask(&world, who, Method::ToolsCall, call("a__open")), serving);
        assert_eq!(answer["isError"] == true, !expected, "{who}: {answer}");
    }
    // A list that changes is a change for whom it changes.
    let (mut dev, mut other) =
        (world.gateway.changes(world.gateway.sight(&ann, 0)), world.gateway.changes(world.gateway.sight(&ci, 0)));
    dev.mark_unchanged();
    other.mark_unchanged();
    a.tools = list_of(&["t", "open", "more"])["tools"].clone();
    a.tell("notifications/tools/list_changed", json!({})).await;
    a.settle().await;
    assert!(dev.has_changed().unwrap());
    assert!(!other.has_changed().unwrap());
    world.end().await;
}

/// D-32: refused requests without end are stopped before they cost anything.
#[tokio::test(start_paused = true)]
async fn d32_a_flood_of_unknown_names_is_stopped() {
    let attempts = Attempts {
        rate: Rate { count: NonZeroU32::MIN, per: Duration::from_secs(1) },
        burst: NonZeroU32::new(3).unwrap(),
    };
    let (world, mut host, _a) =
        one(Era::Legacy, Era::Legacy, PolicySettings { attempts, ..PolicySettings::default() }).await;
    for id in 1..=3 {
        host.call(id, "a__none").await;
        assert_eq!(host.answer(id).await["error"]["code"], -32602);
    }
    host.call(4, "a__none").await;
    let flood = host.answer(4).await;
    assert_eq!((&flood["error"]["code"], &flood["error"]["data"]["reason"]), (&json!(4290), &json!("rate-limited")));
    world.end().await;
}

/// What the operator fixes is not seen and not set; rules look at what is sent.
#[tokio::test(start_paused = true)]
async fn fixed_arguments_are_put_in_before_rules_look_at_them() {
    let mut settings = server("a");
    settings.overrides = vec![
        OverrideSettings {
            native: "t".into(),
            name: Some("renamed".into()),
            description: Some("Mine.".into()),
            fixed: vec![("path".into(), r#""/srv/fixed""#.into())],
            defaults: vec![("n".into(), "7".into())],
            timeout: Some(Duration::from_secs(5)),
            ..OverrideSettings::default()
        },
        OverrideSettings { native: "open".into(), hide: true, ..OverrideSettings::default() },
    ];
    let checks = vec![Check::Equals(Scalar::Text("/srv/fixed".into()))];
    let conditions = vec![Condition { pointer: "/path".into(), optional: false, checks }];
    let policy = PolicySettings {
        default: Some(Effect::Deny),
        rules: vec![RuleSettings { conditions, ..allow("*", "a/tool/t") }, allow("*", "a/tool/open")],
        ..PolicySettings::default()
    };
    let mut world = World::with(vec![settings], |settings| settings.policy = policy);
    let mut a = Full::new(world.accept("a").await, Era::Legacy);
    let schema =
        json!({"type": "object", "properties": {"path": {}, "n": {"type": "integer"}}, "required": ["path", "n"]});
    a.tools = json!([{"name": "t", "description": "Theirs.", "inputSchema": schema}, {"name": "open", "inputSchema": schema}]);
    a.settle().await;
    let mut host = world.host();
    Era::Legacy.open(&mut host).await;
    let listed = Era::Legacy.get(&mut host, "tools/list", json!({})).await;
    let expected = json!([{"name": "a__renamed", "description": "Mine.", "inputSchema": {"type": "object",
        "properties": {"n": {"type": "integer", "default": 7}}, "required": []}}]);
    assert_eq!(listed["result"]["tools"], expected);
    for name in ["a__t", "a__open"] {
        let answer = Era::Legacy.get(&mut host, "tools/call", json!({"name": name})).await;
        assert_eq!(answer["error"]["code"], -32602);
    }
    host.ask(1, "tools/call", json!({"name": "a__renamed", "arguments": {"path": "/etc", "x": 1}})).await;
    let call = a.expect("tools/call").await;
    assert_eq!(call["params"], json!({"name": "t", "arguments": {"x": 1, "n": 7, "path": "/srv/fixed"}}));
    // It has its own time.
    let failed = host.answer(1).await;
    assert_eq!(failed["error"]["data"]["reason"], "downstream-timeout", "{failed}");
    assert!(failed["error"]["message"].as_str().unwrap().contains('5'), "{failed}");
    world.end().await;
}

/// Decides and logs, and refuses nothing.
#[tokio::test(start_paused = true)]
async fn shadow_refuses_nothing() {
    let policy = PolicySettings {
        default: Some(Effect::Deny),
        shadow: true,
        limits: vec![limit("a/tool/*", 1)],
        ..PolicySettings::default()
    };
    let (world, mut host, mut a) = one(Era::Legacy, Era::Legacy, policy).await;
    for id in 1..4 {
        host.call(id, "a__t").await;
        let call = a.expect("tools/call").await;
        a.end.result(&call, text("fine")).await;
        assert_eq!(text_of(&host.answer(id).await), "fine");
    }
    world.end().await;
}

/// The server `a`, which is started again; and the call that it gets within a minute, where it gets one.
async fn called_again(world: &mut World) -> (End, Option<Value>) {
    let mut a = world.accept("a").await;
    a.legacy_unlisted().await;
    while let Ok(message) = timeout(Duration::from_secs(60), a.next()).await {
        let message = message.unwrap();
        if message["method"] == "tools/call" {
            return (a, Some(message));
        }
        assert_eq!(message["method"], "tools/list", "{message}");
        a.result(&message, list_of(&["t", "other"])).await;
    }
    (a, None)
}

/// D015: a call whose server went away is sent again where the operator says that twice is as good as once, once.
#[tokio::test(start_paused = true)]
async fn d015_a_call_that_is_safe_to_repeat_is_sent_once_more() {
    for (tool, goes_again, ends_well) in [("t", false, true), ("t", true, false), ("other", false, false)] {
        let mut settings = server("a");
        settings.overrides =
            vec![OverrideSettings { native: "t".into(), retry_safe: true, ..OverrideSettings::default() }];
        let mut world = World::new(vec![settings]);
        let mut host = world.host();
        let mut a = world.accept("a").await;
        a.legacy(&["t", "other"]).await;
        host.open("2025-11-25").await;
        host.list().await;
        host.call(1, &format!("a__{tool}")).await;
        a.expect("tools/call").await;
        drop(a);
        let (mut a, call) = called_again(&mut world).await;
        assert_eq!(call.as_ref().map(|call| &call["params"]["name"]), (tool == "t").then_some(&json!("t")));
        if ends_well {
            a.result(&call.unwrap(), text("second")).await;
        } else if goes_again {
            drop(a);
            let (_third, call) = called_again(&mut world).await;
            assert_eq!(call, None, "a third time");
        }
        let answer = host.next_but_lists().await;
        if ends_well {
            assert_eq!(text_of(&answer), "second");
        } else {
            assert_eq!(answer["error"]["data"]["reason"], "downstream-unavailable", "{answer}");
        }
        world.end().await;
    }
}
