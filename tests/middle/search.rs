//! Tools behind search: found by who may use them, and refused through our tool as they are without it (SRF-1).

use std::num::NonZeroU32;
use std::time::Duration;

use onegate::config::settings::{
    AuditSettings, Check, Condition, Effect, LimitSettings, Per, PolicySettings, Rate, RuleSettings, SurfaceMode,
};
use serde_json::{Value, json};

use super::end::{End, list_of, names, text, text_of};
use super::full::{CELLS, ERAS, Era, Full};
use super::world::{World, server};

fn rule(effect: Effect, target: &str) -> RuleSettings {
    RuleSettings::new(effect, ["*"], [target], "here")
}

/// `denied` is denied, `bound` wants a path below `/srv`, `scarce` is called once a minute.
fn policy() -> PolicySettings {
    let checks = vec![Check::PathUnder(vec!["/srv".into()])];
    let condition = Condition { pointer: "/path".into(), optional: false, checks };
    let scarce = LimitSettings {
        rate: Some(Rate { count: NonZeroU32::new(1).unwrap(), per: Duration::from_secs(60) }),
        ..LimitSettings::new(["*"], ["a/tool/scarce"], Per::Principal, "here")
    };
    PolicySettings {
        default: Some(Effect::Deny),
        rules: vec![
            RuleSettings { conditions: vec![condition], ..rule(Effect::Allow, "a/tool/bound") },
            rule(Effect::Allow, "a/tool/scarce"),
            rule(Effect::Allow, "a/tool/always"),
            rule(Effect::Allow, "a/tool/novel"),
        ],
        limits: vec![scarce],
        ..PolicySettings::default()
    }
}

const TOOLS: [&str; 4] = ["always", "bound", "denied", "scarce"];

async fn searched(era: Era, server_era: Era, audit: Option<AuditSettings>) -> (World, End, Full) {
    let mut world = World::with(vec![server("a")], |settings| {
        settings.policy = policy();
        settings.telemetry.audit = audit;
        settings.profiles[0].surface.mode = SurfaceMode::Search;
        settings.profiles[0].surface.always = vec!["*/always".into()];
        settings.profiles[0].surface.list_servers = true;
    });
    let mut a = Full::new(world.accept("a").await, server_era);
    a.tools = list_of(&TOOLS)["tools"].clone();
    a.settle().await;
    let mut host = world.host();
    era.open(&mut host).await;
    (world, host, a)
}

fn through(name: &str, arguments: Value) -> Value {
    json!({"name": "onegate__call_tool", "arguments": {"name": name, "arguments": arguments}})
}

/// The names that were found, the best first.
fn found(answer: &Value) -> Vec<String> {
    let tools = answer["result"]["structuredContent"]["tools"].as_array().unwrap();
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

fn search(query: &str) -> Value {
    json!({"name": "onegate__search_tools", "arguments": {"query": query, "detail": "names"}})
}

/// SRF-1: denied, with arguments that are refused, too often, unknown: both ways are told the same, in all cells.
#[tokio::test(start_paused = true)]
async fn srf_1_what_is_refused_is_refused_through_our_tool_alike() {
    for (era, server_era) in CELLS {
        let (world, mut host, mut a) = searched(era, server_era, None).await;
        host.ask(1, "tools/call", era.params(through("a__scarce", json!({"n": 1})))).await;
        let call = a.expect("tools/call").await;
        assert_eq!((&call["params"]["name"], &call["params"]["arguments"]), (&json!("scarce"), &json!({"n": 1})));
        a.end.result(&call, text("fine")).await;
        assert_eq!(text_of(&host.answer(1).await), "fine");
        for (name, arguments, expected) in [
            ("a__denied", json!({}), json!(null)),
            ("a__none", json!({}), json!(null)),
            ("onegate__call_tool", json!({"name": "a__always"}), json!(null)),
            ("onegate__search_tools", json!({"query": "x"}), json!(null)),
            ("a__bound", json!({"path": "/etc"}), json!("argument-not-allowed")),
            ("a__bound", json!({}), json!("argument-not-allowed")),
            ("a__scarce", json!({"n": 1}), json!("rate-limited")),
        ] {
            let mut inner = era.get(&mut host, "tools/call", through(name, arguments.clone())).await;
            let reason = inner["result"]["_meta"]["onegate/refusal"]["reason"].clone();
            assert_eq!(reason, expected, "{name}: {inner}");
            assert!(expected != Value::Null || inner["error"]["code"] == -32602, "{name}: {inner}");
            if name.starts_with("a__") {
                let mut direct = era.get(&mut host, "tools/call", json!({"name": name, "arguments": arguments})).await;
                for answer in [&mut inner, &mut direct] {
                    if let Some(Value::Object(refusal)) = answer.pointer_mut("/result/_meta/onegate~1refusal") {
                        refusal.remove("retryAfterMs");
                    }
                }
                assert_eq!(inner, direct, "{name}");
            }
        }
        a.quiet(Duration::from_secs(1)).await;
        world.end().await;
    }
}

/// SRF-2: what is listed is what always is; what is denied is not found either; who comes later sees the same bytes.
#[tokio::test(start_paused = true)]
async fn srf_2_hosts_find_what_they_may_use_and_nothing_else() {
    for era in ERAS {
        let (world, mut host, mut a) = searched(era, Era::Modern, None).await;
        let listed = era.get(&mut host, "tools/list", json!({})).await;
        let ours = ["onegate__call_tool", "onegate__search_tools", "onegate__servers"];
        assert_eq!(names(&listed), [&["a__always"], &ours[..]].concat());
        let mut other = world.host();
        era.open(&mut other).await;
        assert_eq!(era.get(&mut other, "tools/list", json!({})).await["result"]["tools"], listed["result"]["tools"]);
        for (query, expected) in [("bound", vec!["a__bound"]), ("denied", vec![]), ("scarse", vec!["a__scarce"])] {
            let answer = era.get(&mut host, "tools/call", search(query)).await;
            assert_eq!(found(&answer), expected, "{query}: {answer}");
        }
        let elsewhere = json!({"name": "onegate__search_tools", "arguments": {"query": "bound", "server": "b"}});
        assert_eq!(era.get(&mut host, "tools/call", elsewhere).await["result"]["isError"], true);
        let servers = era.get(&mut host, "tools/call", json!({"name": "onegate__servers"})).await;
        let expected = json!([{"key": "a", "tools": 3}]);
        let mut told = servers["result"]["structuredContent"]["servers"].clone();
        told[0].as_object_mut().unwrap().remove("description");
        assert_eq!(told, expected, "{servers}");
        // A tool that comes is found at once, and changes no list.
        a.tools = list_of(&["always", "bound", "scarce", "denied", "novel"])["tools"].clone();
        a.tell("notifications/tools/list_changed", json!({})).await;
        a.settle().await;
        a.quiet(Duration::from_secs(2)).await;
        assert_eq!(found(&era.get(&mut host, "tools/call", search("novel")).await), ["a__novel"]);
        assert_eq!(era.get(&mut host, "tools/list", json!({})).await["result"]["tools"], listed["result"]["tools"]);
        world.end().await;
    }
}

/// What is written wrongly is told to the model, in words it can act on.
#[tokio::test(start_paused = true)]
async fn our_tools_say_how_they_are_used() {
    let (world, mut host, mut a) = searched(Era::Modern, Era::Modern, None).await;
    for (name, arguments, says) in [
        ("onegate__call_tool", json!({}), "`name` must be"),
        ("onegate__call_tool", json!({"name": "a__always", "arguments": "{}"}), "`arguments` must be an object"),
        ("onegate__search_tools", json!({}), "`query` must say"),
        ("onegate__search_tools", json!({"query": " "}), "`query` must say"),
        ("onegate__search_tools", json!({"query": "x", "limit": 0}), "`limit` must be"),
        ("onegate__search_tools", json!({"query": "x", "detail": "all"}), "`detail` must be"),
        ("onegate__search_tools", json!({"query": "x", "server": 7}), "`server` must be"),
    ] {
        let params = json!({"name": name, "arguments": arguments});
        let answer = Era::Modern.get(&mut host, "tools/call", params).await;
        assert_eq!(answer["result"]["isError"], true, "{answer}");
        assert!(text_of(&answer).contains(says), "{answer}");
    }
    let fine = json!({"name": "onegate__search_tools", "arguments": {"query": "always", "limit": 1.0, "server": null}});
    let answer = Era::Modern.get(&mut host, "tools/call", fine).await;
    assert!(text_of(&answer).contains("## a\n- a__always()"), "{answer}");
    a.quiet(Duration::from_secs(1)).await;
    world.end().await;
}

/// a call through our tool is written down as the call that it is; a search under its own name.
#[tokio::test(start_paused = true)]
async fn r_36_calls_are_recorded_under_their_inner_name() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("audit.jsonl");
    let audit = AuditSettings::of(file.clone());
    let (world, mut host, mut a) = searched(Era::Legacy, Era::Legacy, Some(audit)).await;
    Era::Legacy.get(&mut host, "tools/call", search("scarce")).await;
    host.ask(1, "tools/call", through("a__scarce", json!({}))).await;
    let call = a.expect("tools/call").await;
    a.end.result(&call, text("fine")).await;
    host.answer(1).await;
    Era::Legacy.get(&mut host, "tools/call", through("a__denied", json!({}))).await;
    world.end().await;
    let records: Vec<Value> =
        std::fs::read_to_string(&file).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told: Vec<_> = records
        .iter()
        .filter(|record| record["method"] == "tools/call")
        .map(|record| {
            [&record["exposed"], &record["server"], &record["native"], &record["verdict"], &record["outcome"]]
        })
        .collect();
    let expected = [
        json!(["onegate__search_tools", "onegate", "search_tools", "allow", "ok"]),
        json!(["a__scarce", "a", "scarce", "allow", "ok"]),
        json!(["a__denied", "a", "denied", "hidden", "refused"]),
    ];
    assert_eq!(json!(told), json!(expected));
}

/// APP-5, APP-7: what is for apps alone is listed for their host whatever the surface, and is neither found by a model nor called
/// through our tool, by none of its names; apps may not call what calls everything.
#[tokio::test(start_paused = true)]
async fn app5_app7_what_is_for_apps_alone_stays_with_them() {
    let of = |visibility: &[&str]| json!({"ui": {"resourceUri": "ui://w", "visibility": visibility}});
    for (era, server_era) in CELLS {
        let mut world = World::with(vec![server("a")], |settings| {
            settings.profiles[0].surface.mode = SurfaceMode::Search;
            settings.profiles[0].surface.list_servers = true;
        });
        let mut a = Full::new(world.accept("a").await, server_era);
        let tool = |name: &str, meta: Value| json!({"name": name, "inputSchema": {"type": "object"}, "_meta": meta});
        a.resources = json!([{"name": "w", "uri": "ui://w"}]);
        a.tools = json!([tool("button", of(&["app"])), tool("plain", of(&["model", "app"]))]);
        a.settle().await;
        let mut host = world.host();
        era.open(&mut host).await;
        let listed = era.get(&mut host, "tools/list", json!({})).await;
        let ours = ["onegate__call_tool", "onegate__search_tools", "onegate__servers"];
        assert_eq!(names(&listed), [&["a__button"], &ours[..]].concat());
        for tool in listed["result"]["tools"].as_array().unwrap().iter().skip(1) {
            assert_eq!(tool["_meta"]["ui"]["visibility"], json!(["model"]), "{tool}");
        }
        let found = era.get(&mut host, "tools/call", search("button plain")).await;
        assert!(found.to_string().contains("a__plain") && !found.to_string().contains("a__button"), "{found}");
        for name in ["a__button", "button", "onegate__search_tools"] {
            let answer = era.get(&mut host, "tools/call", through(name, json!({}))).await;
            assert_eq!(answer["error"]["code"], -32602, "{name}: {answer}");
        }
        a.quiet(Duration::from_secs(1)).await;
        // Its own host calls it as ever.
        host.ask(1, "tools/call", era.params(json!({"name": "a__button"}))).await;
        let call = a.expect("tools/call").await;
        a.end.result(&call, text("fine")).await;
        assert_eq!(text_of(&host.answer(1).await), "fine");
        world.end().await;
    }
}

/// A model that cannot be run is no reason to find less: words are what is left.
#[tokio::test(start_paused = true)]
async fn without_a_model_that_runs_words_find() {
    let folder = tempfile::tempdir().unwrap();
    for content in [None, Some("{"), Some("{}")] {
        if let Some(content) = content {
            std::fs::write(folder.path().join("config.json"), content).unwrap();
        }
        let mut world = World::with(vec![server("a")], |settings| {
            settings.gateway.state = folder.path().join("state");
            settings.search.model = Some(folder.path().to_owned());
            settings.profiles[0].surface.mode = SurfaceMode::Search;
        });
        let mut a = Full::new(world.accept("a").await, Era::Modern);
        a.tools = list_of(&TOOLS)["tools"].clone();
        a.settle().await;
        let mut host = world.host();
        Era::Modern.open(&mut host).await;
        for _ in 0..2 {
            assert_eq!(found(&Era::Modern.get(&mut host, "tools/call", search("scarce")).await), ["a__scarce"]);
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        world.end().await;
    }
}

/// With a model, what a tool means is found without a word of it, once its vectors are made; and at once by a gateway that finds
/// them in the state folder. `ONEGATE_TEST_MODEL` names the folder of a model; without, nothing is tried.
#[cfg(feature = "semantic")]
#[tokio::test(start_paused = true)]
async fn what_tools_mean_is_found_and_kept() {
    let Some(model) = std::env::var_os("ONEGATE_TEST_MODEL") else {
        eprintln!("skipped: ONEGATE_TEST_MODEL names no folder");
        return;
    };
    let state = tempfile::tempdir().unwrap();
    let mut kept = None;
    for _ in 0..2 {
        let mut world = World::with(vec![server("a")], |settings| {
            settings.gateway.state = state.path().to_owned();
            settings.search.model = Some(model.clone().into());
            settings.profiles[0].surface.mode = SurfaceMode::Search;
        });
        let mut a = Full::new(world.accept("a").await, Era::Modern);
        let tool =
            |name: &str, says: &str| json!({"name": name, "description": says, "inputSchema": {"type": "object"}});
        a.tools = json!([
            tool("bark", "Have the dog make a noise"),
            tool("sow", "Put seeds into the ground"),
            tool("sail", "Cross the sea by ship")
        ]);
        a.settle().await;
        let mut host = world.host();
        Era::Modern.open(&mut host).await;
        let since = std::time::Instant::now();
        loop {
            let answer = Era::Modern.get(&mut host, "tools/call", search("gardening")).await;
            if !answer["result"]["structuredContent"]["tools"].as_array().unwrap().is_empty() {
                assert_eq!(found(&answer)[0], "a__sow");
                break;
            }
            assert!(since.elapsed() < Duration::from_secs(120), "the model is not ready in time");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        world.end().await;
        let files: Vec<_> = std::fs::read_dir(state.path().join("vectors")).unwrap().flatten().collect();
        assert_eq!(files.len(), 1);
        // Written once: the second run had them all.
        let written = files[0].metadata().unwrap().modified().unwrap();
        assert_eq!(*kept.get_or_insert(written), written);
    }
}
