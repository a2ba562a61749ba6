//! Conditions of rules that are not about arguments: times, and which capabilities of a host a server may use.

use std::time::{Duration, SystemTime};

use onegate::config::settings::{Effect, PolicySettings, RuleSettings, TimeWindow, Transport};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::end::{End, list_of, modern_as, names, text};
use super::full::{ERAS, Era, Full};
use super::world::{World, server};

fn rule(effect: Effect, target: &str) -> RuleSettings {
    RuleSettings::new(effect, ["*"], [target], "here")
}

fn world(default: Effect, rules: Vec<RuleSettings>) -> World {
    let policy = PolicySettings { default: Some(default), rules, ..PolicySettings::default() };
    World::with(vec![server("a")], |settings| settings.policy = policy)
}

/// From two minutes after the one that it is, for two minutes, on every day.
fn soon() -> TimeWindow {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let minute = |more: u64| u16::try_from((now / 60 + more) % 1440).unwrap();
    TimeWindow { days: [true; 7], from: minute(2), to: minute(4), offset: 0 }
}

#[tokio::test(start_paused = true)]
async fn e20_what_holds_at_a_time_is_told_listed_and_called_then_and_not_else() {
    for era in ERAS {
        let timed = RuleSettings { time: Some(soon()), ..rule(Effect::Allow, "a/tool/t") };
        let mut world = world(Effect::Deny, vec![timed, rule(Effect::Allow, "a/tool/u")]);
        let mut a = Full::new(world.accept("a").await, Era::Modern);
        a.tools = list_of(&["t", "u"])["tools"].clone();
        a.settle().await;
        let mut host = world.host();
        era.open(&mut host).await;
        let listed = async |host: &mut End| names(&era.get(host, "tools/list", json!({})).await);
        let call = json!({"name": "a__t", "arguments": {}});
        assert_eq!(listed(&mut host).await, ["a__u"]);
        assert_eq!(era.get(&mut host, "tools/call", call.clone()).await["error"]["code"], -32602);
        // It begins, and whoever is told of changes is told of this one.
        told(era, &mut host).await;
        assert_eq!(listed(&mut host).await, ["a__t", "a__u"]);
        host.ask(9, "tools/call", era.params(call.clone())).await;
        let called = a.expect("tools/call").await;
        a.end.result(&called, text("fine")).await;
        assert!(host.answer(9).await["result"].is_object());
        // It ends.
        told(era, &mut host).await;
        assert_eq!(listed(&mut host).await, ["a__u"]);
        assert_eq!(era.get(&mut host, "tools/call", call).await["error"]["code"], -32602);
        world.end().await;
    }
}

/// Waits for the change: a legacy host is told, a modern one looks again.
async fn told(era: Era, host: &mut End) {
    match era {
        Era::Legacy => {
            let told = host.next().await.unwrap();
            assert_eq!(told["method"], "notifications/tools/list_changed", "{told}");
        }
        Era::Modern => sleep(Duration::from_secs(130)).await,
    }
}

#[tokio::test(start_paused = true)]
async fn rules_of_a_transport_are_about_who_comes_by_it() {
    let by = |transport, target| RuleSettings { transport: Some(transport), ..rule(Effect::Allow, target) };
    let mut world = world(Effect::Deny, vec![by(Transport::Stdio, "a/tool/t"), by(Transport::Http, "a/tool/u")]);
    let mut a = Full::new(world.accept("a").await, Era::Legacy);
    a.tools = list_of(&["t", "u"])["tools"].clone();
    a.settle().await;
    let mut host = world.host();
    assert_eq!(names(&Era::Modern.get(&mut host, "tools/list", json!({})).await), ["a__t"]);
    world.end().await;
}

fn all() -> Value {
    json!({"roots": {"listChanged": true}, "sampling": {"tools": {}}, "elicitation": {"form": {}, "url": {}}})
}

fn denied(capability: &str) -> Vec<RuleSettings> {
    vec![rule(Effect::Deny, &format!("a/capability/{capability}"))]
}

#[tokio::test(start_paused = true)]
async fn cap6_a_capability_that_is_withheld_is_not_declared_and_cannot_be_used() {
    for (capability, expected, method) in [
        (
            "sampling",
            json!({"roots": {"listChanged": true}, "elicitation": {"form": {}, "url": {}}}),
            "sampling/createMessage",
        ),
        ("elicitation", json!({"roots": {"listChanged": true}, "sampling": {"tools": {}}}), "elicitation/create"),
        ("roots", json!({"sampling": {"tools": {}}, "elicitation": {"form": {}, "url": {}}}), "roots/list"),
    ] {
        let mut world = world(Effect::Allow, denied(capability));
        let mut host = world.host();
        let mut base = world.accept("a").await;
        base.legacy(&["t"]).await;
        host.open_as("2025-11-25", all()).await;
        host.call(1, "a__t").await;
        let mut own = world.accept("a").await;
        assert_eq!(own.leased("2025-11-25").await, expected, "{capability}");
        own.expect("tools/call").await;
        own.ask(1, method, json!({"message": "m", "messages": [], "requestedSchema": {"type": "object"}})).await;
        assert_eq!(own.answer(1).await["error"]["code"], -32601, "{capability}");
        world.end().await;
    }
    // A modern server is told with each request, and its host why it got nothing.
    let mut world = world(Effect::Allow, denied("roots"));
    let mut host = world.host();
    let mut base = world.accept("a").await;
    base.modern(&["t"]).await;
    host.ask(2, "tools/call", modern_as(json!({"name": "a__t"}), all())).await;
    let call = base.expect("tools/call").await;
    let declared = &call["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"];
    assert_eq!(*declared, json!({"sampling": {"tools": {}}, "elicitation": {"form": {}, "url": {}}}));
    base.lacks(&call, "roots").await;
    assert_eq!(host.next_but_lists().await["error"]["data"]["reason"], "capability-withheld");
    // One that asks all the same is told so too; what no host declared is its own fault (MRT-4).
    for (asked, declared, reason) in [
        ("roots/list", all(), "capability-withheld"),
        ("roots/list", json!({"sampling": {}}), "invalid-downstream-result"),
        ("sampling/createMessage", json!({"roots": {}}), "invalid-downstream-result"),
    ] {
        host.ask(3, "tools/call", modern_as(json!({"name": "a__t"}), declared)).await;
        let call = base.expect("tools/call").await;
        let requests = json!({"k": {"method": asked, "params": {"messages": [], "maxTokens": 1}}});
        base.result(&call, json!({"resultType": "input_required", "inputRequests": requests})).await;
        assert_eq!(host.next_but_lists().await["error"]["data"]["reason"], reason, "{asked}");
    }
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn url6_forms_that_ask_for_a_secret_are_told_or_refused() {
    let form = |field: &str| {
        let schema = json!({"type": "object", "properties": {field: {"type": "string"}}});
        json!({"mode": "form", "message": "Who?", "requestedSchema": schema})
    };
    let careful = "[a] (Careful, this form seems to ask for a secret: password.) Who?";
    for withheld in [false, true] {
        let rules = || if withheld { denied("secrets") } else { Vec::new() };
        // A legacy server asks a legacy host.
        let mut world1 = world(Effect::Allow, rules());
        let mut host = world1.host();
        let mut base = world1.accept("a").await;
        base.legacy(&["t"]).await;
        host.open_as("2025-11-25", all()).await;
        host.call(1, "a__t").await;
        let mut own = world1.accept("a").await;
        assert_eq!(own.leased("2025-11-25").await, all(), "forms are declared all the same");
        own.expect("tools/call").await;
        own.ask(1, "elicitation/create", form("password")).await;
        if withheld {
            assert_eq!(own.answer(1).await["error"]["code"], -32602);
        } else {
            assert_eq!(host.next_but_lists().await["params"]["message"], careful);
        }
        own.ask(2, "elicitation/create", form("name")).await;
        assert_eq!(host.next_but_lists().await["params"]["message"], "[a] Who?");
        world1.end().await;
        // A modern one a modern host.
        let mut world2 = world(Effect::Allow, rules());
        let mut host = world2.host();
        let mut base = world2.accept("a").await;
        base.modern(&["t"]).await;
        host.ask(2, "tools/call", modern_as(json!({"name": "a__t"}), all())).await;
        let call = base.expect("tools/call").await;
        let requests = json!({"k": {"method": "elicitation/create", "params": form("password")}});
        base.result(&call, json!({"resultType": "input_required", "inputRequests": requests})).await;
        let answer = host.next_but_lists().await;
        if withheld {
            assert_eq!(answer["error"]["data"]["reason"], "capability-withheld");
        } else {
            assert_eq!(answer["result"]["inputRequests"]["k"]["params"]["message"], careful);
        }
        world2.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn logs_and_completions_may_be_withheld() {
    for (withheld, logs, completes) in [("nothing", true, true), ("logging", false, true), ("completions", true, false)]
    {
        let rules = if withheld == "nothing" { Vec::new() } else { denied(withheld) };
        let mut world = world(Effect::Allow, rules);
        let mut a = Full::new(world.accept("a").await, Era::Legacy);
        a.settle().await;
        let mut host = world.host();
        host.open("2025-11-25").await;
        host.call(1, "a__t").await;
        let called = a.expect("tools/call").await;
        a.end.tell("notifications/message", json!({"level": "error", "data": "x"})).await;
        a.end.result(&called, text("fine")).await;
        let next = host.next_but_lists().await;
        assert_eq!(next["method"] == "notifications/message", logs, "{withheld}: {next}");
        if logs {
            assert!(host.next_but_lists().await["result"].is_object());
        }
        let params = json!({"ref": {"type": "ref/prompt", "name": "a__p"}, "argument": {"name": "x", "value": "v"}});
        host.ask(2, "completion/complete", params).await;
        if completes {
            let asked = a.expect("completion/complete").await;
            a.end.result(&asked, json!({"completion": {"values": ["v1"]}})).await;
        }
        let answer = host.next_but_lists().await;
        let values = answer["result"]["completion"]["values"].as_array().unwrap().len();
        assert_eq!(values, usize::from(completes), "{withheld}: {answer}");
        world.end().await;
    }
}

/// E-20, SUB-6: who may no longer see a resource is not told of it either, however it was subscribed to.
#[tokio::test(start_paused = true)]
async fn e20_news_of_a_resource_end_with_the_time_in_which_it_is_seen() {
    const URI: &str = "file:///n";
    let timed = RuleSettings { time: Some(soon()), ..rule(Effect::Allow, "a/resource/*") };
    let mut world = world(Effect::Deny, vec![timed]);
    let mut a = Full::new(world.accept("a").await, Era::Legacy);
    a.capabilities = json!({"resources": {"subscribe": true, "listChanged": true}});
    a.resources = json!([{"uri": URI, "name": "n"}]);
    a.settle().await;
    let mut host = world.host();
    Era::Legacy.open(&mut host).await;
    sleep(Duration::from_secs(130)).await;
    host.ask(1, "resources/subscribe", json!({"uri": URI})).await;
    let asked = a.expect("resources/subscribe").await;
    a.end.result(&asked, json!({})).await;
    assert!(host.next_but_lists().await["result"].is_object());
    a.tell("notifications/resources/updated", json!({"uri": URI})).await;
    assert_eq!(host.next_but_lists().await["method"], "notifications/resources/updated");
    sleep(Duration::from_secs(130)).await;
    a.tell("notifications/resources/updated", json!({"uri": URI})).await;
    sleep(Duration::from_secs(5)).await;
    host.ask(2, "ping", json!({})).await;
    assert_eq!(host.next_but_lists().await["id"], 2);
    world.end().await;
}
