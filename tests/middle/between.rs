//! What passes from leg to leg around a question and is no question itself: that a URL was opened, which roots a server
//! may know, links in what a model is told, states of calls that another process has.

use std::time::Duration;

use onegate::config::settings::{ItemFilter, ServerSettings};
use serde_json::{Value, json};

use super::end::{End, modern_as, text, text_of};
use super::full::{CELLS, Era, Full};
use super::world::{World, server};

fn all() -> Value {
    json!({"roots": {"listChanged": true}, "sampling": {"tools": {}}, "elicitation": {"form": {}, "url": {}}})
}

fn url(id: &str) -> Value {
    json!({"mode": "url", "message": "Open?", "url": "https://x.test/?a=b", "elicitationId": id})
}

/// A legacy server `a` and a legacy host that can do all, whose call 1 runs; with the connection that it runs on.
async fn ll() -> (World, End, End, Value) {
    let mut world = World::new(vec![server("a")]);
    let mut host = world.host();
    let mut base = world.accept("a").await;
    base.legacy(&["t"]).await;
    std::mem::forget(base);
    host.open_as("2025-11-25", all()).await;
    host.call(1, "a__t").await;
    let mut leased = world.accept("a").await;
    leased.leased("2025-11-25").await;
    let call = leased.expect("tools/call").await;
    (world, host, leased, call)
}

async fn complete(server: &mut End, id: &str) {
    server.tell("notifications/elicitation/complete", json!({"elicitationId": id})).await;
}

#[tokio::test(start_paused = true)]
async fn url1_that_a_url_was_opened_is_told_once_also_when_the_call_is_over() {
    let (world, mut host, mut server, call) = ll().await;
    server.ask(1, "elicitation/create", url("e-1")).await;
    let question = host.next_but_lists().await;
    host.result(&question, json!({"action": "accept"})).await;
    server.answer(1).await;
    server.ask(2, "elicitation/create", url("e-2")).await;
    let question = host.next_but_lists().await;
    assert_eq!(question["params"]["elicitationId"], "e-2");
    host.result(&question, json!({"action": "accept"})).await;
    server.answer(2).await;
    // One while the call runs, in another spelling; the other long after it.
    server
        .raw(
            br#"{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{"elicitationId":"\u0065-1"}}"#,
        )
        .await;
    server.raw(b"\n").await;
    assert_eq!(host.next_but_lists().await["params"], json!({"elicitationId": "e-1"}));
    server.result(&call, text("opened later")).await;
    assert_eq!(text_of(&host.next_but_lists().await), "opened later");
    tokio::time::sleep(Duration::from_secs(60)).await;
    // What nobody was to open, and what was told before, is told to nobody.
    for id in ["e-1", "e-3", "e-2", "e-2"] {
        complete(&mut server, id).await;
    }
    let told = host.next_but_lists().await;
    assert_eq!(told["method"], "notifications/elicitation/complete");
    assert_eq!(told["params"], json!({"elicitationId": "e-2"}));
    host.quiet(Duration::from_secs(5)).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn url1_urls_of_an_error_are_told_of_when_they_were_opened() {
    let (world, mut host, mut server, call) = ll().await;
    let error = json!({"code": -32042, "message": "first", "data": {"elicitations": [url("e-1"), url("e-2")]}});
    server.say(json!({"jsonrpc": "2.0", "id": call["id"], "error": error})).await;
    let refused = host.next_but_lists().await;
    assert_eq!(refused["error"]["data"]["elicitations"][1]["elicitationId"], "e-2");
    complete(&mut server, "e-2").await;
    assert_eq!(host.next_but_lists().await["params"], json!({"elicitationId": "e-2"}));
    host.call(2, "a__t").await;
    let again = server.expect("tools/call").await;
    complete(&mut server, "e-1").await;
    assert_eq!(host.next_but_lists().await["params"], json!({"elicitationId": "e-1"}));
    server.result(&again, text("done")).await;
    assert_eq!(text_of(&host.next_but_lists().await), "done");
    world.end().await;
}

/// The modern era has no such word, also where the same pipe has a legacy session.
#[tokio::test(start_paused = true)]
async fn url1_what_a_modern_request_opened_is_told_to_nobody() {
    let (world, mut host, mut server, call) = ll().await;
    server.result(&call, text("legacy")).await;
    host.next_but_lists().await;
    host.ask(2, "tools/call", modern_as(json!({"name": "a__t"}), json!({"elicitation": {"url": {}}}))).await;
    let mut world = world;
    let mut own = world.accept("a").await;
    own.leased("2025-11-25").await;
    let call = own.expect("tools/call").await;
    own.ask(1, "elicitation/create", url("e-1")).await;
    let asked = host.next_but_lists().await["result"].clone();
    assert_eq!(asked["inputRequests"]["elicitation_1"]["params"].get("elicitationId"), None);
    let retry = json!({"name": "a__t", "requestState": asked["requestState"],
        "inputResponses": {"elicitation_1": {"action": "accept"}}});
    host.ask(3, "tools/call", modern_as(retry, json!({"elicitation": {"url": {}}}))).await;
    own.answer(1).await;
    complete(&mut own, "e-1").await;
    own.result(&call, text("done")).await;
    assert_eq!(text_of(&host.next_but_lists().await), "done");
    complete(&mut own, "e-1").await;
    while let Ok(message) = tokio::time::timeout(Duration::from_secs(5), host.next()).await {
        assert_eq!(message.unwrap()["method"], "notifications/tools/list_changed");
    }
    world.end().await;
}

/// A server with all kinds and a host, in a cell; the host's call of `a__t` runs.
async fn cell(host_era: Era, server_era: Era, settings: ServerSettings) -> (World, End, Full, Value) {
    let mut world = World::new(vec![settings]);
    let mut host = world.host();
    let mut a = Full::new(world.accept("a").await, server_era);
    a.resources = json!([{"name": "one", "uri": "ui://one"}]);
    a.settle().await;
    match host_era {
        Era::Legacy => {
            host.open_as("2025-11-25", all()).await;
            host.call(1, "a__t").await;
        }
        Era::Modern => host.ask(1, "tools/call", modern_as(json!({"name": "a__t"}), all())).await,
    }
    if server_era == Era::Legacy || host_era == Era::Legacy {
        // Who can be asked has a connection of its own, if the server speaks that era.
        let mut own = Full::new(world.accept("a").await, server_era);
        if server_era == Era::Legacy {
            std::mem::swap(&mut a, &mut own);
        } else {
            let opening = own.end.expect("initialize").await;
            own.end.error(&opening, -32601).await;
        }
        std::mem::forget(own);
    }
    let call = a.expect("tools/call").await;
    (world, host, a, call)
}

/// Has the server ask; answers the params that the host gets.
async fn ask(
    host: &mut End,
    host_era: Era,
    a: &mut Full,
    server_era: Era,
    call: &Value,
    method: &str,
    params: &Value,
) -> (Value, Value) {
    match server_era {
        Era::Legacy => a.end.ask("q", method, params.clone()).await,
        Era::Modern => {
            let requests = json!({"k": {"method": method, "params": params}});
            a.end
                .result(call, json!({"resultType": "input_required", "inputRequests": requests, "requestState": "s"}))
                .await;
        }
    }
    let asked = host.next_but_lists().await;
    if host_era == Era::Legacy {
        assert_eq!(asked["method"], method, "{asked}");
        return (asked["params"].clone(), asked);
    }
    let requests = asked["result"]["inputRequests"].as_object().unwrap_or_else(|| panic!("{asked}"));
    let (key, request) = requests.iter().next().unwrap();
    (request["params"].clone(), json!({"key": key, "state": asked["result"]["requestState"]}))
}

/// The host answers; the answer as the server gets it.
async fn answer(host: &mut End, host_era: Era, a: &mut Full, server_era: Era, asked: &Value, result: Value) -> Value {
    match host_era {
        Era::Legacy => host.result(asked, result).await,
        Era::Modern => {
            let params = json!({"name": "a__t", "requestState": asked["state"],
                "inputResponses": {asked["key"].as_str().unwrap(): result}});
            host.ask(2, "tools/call", modern_as(params, all())).await;
        }
    }
    match server_era {
        Era::Legacy => a.next().await.unwrap()["result"].clone(),
        Era::Modern => a.expect("tools/call").await["params"]["inputResponses"]["k"].clone(),
    }
}

#[tokio::test(start_paused = true)]
async fn mrt4_res1_links_in_what_a_model_is_told_are_links_of_the_host() {
    for (host_era, server_era) in CELLS {
        let (world, mut host, mut a, call) = cell(host_era, server_era, server("a")).await;
        let sampling = |uri: &str| {
            json!({"maxTokens": 9, "messages": [{"role": "user", "content": [{"type": "tool_result", "toolUseId": "u",
                "content": [{"type": "resource_link", "name": "n", "uri": uri}, {"type": "text", "text": "ui://two"}]}]}]})
        };
        let (params, _) =
            ask(&mut host, host_era, &mut a, server_era, &call, "sampling/createMessage", &sampling("ui://two")).await;
        assert_eq!(params, sampling("ui://a/two"), "{host_era:?} {server_era:?}");
        // No list has it: that it was mentioned is enough.
        let read = json!({"uri": "ui://a/two"});
        let read = if host_era == Era::Modern { modern_as(read, all()) } else { read };
        host.ask("read", "resources/read", read).await;
        assert_eq!(a.expect("resources/read").await["params"]["uri"], "ui://two");
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn mrt7_a_server_is_told_the_roots_that_it_may_know() {
    for (host_era, server_era) in CELLS {
        let mut settings = server("a");
        settings.roots = ItemFilter { allow: Some(vec!["file:///srv/*".into()]), deny: vec!["*/secret".into()] };
        let (world, mut host, mut a, call) = cell(host_era, server_era, settings).await;
        let (_, asked) = ask(&mut host, host_era, &mut a, server_era, &call, "roots/list", &json!({})).await;
        let root = |uri: &str| json!({"uri": uri, "name": uri});
        let roots = json!({"roots": [root("file:///home/me"), root("file:///srv/docs"), root("file:///srv/secret")]});
        let told = answer(&mut host, host_era, &mut a, server_era, &asked, roots).await;
        assert_eq!(told, json!({"roots": [root("file:///srv/docs")]}), "{host_era:?} {server_era:?}");
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn mrt7_cap6_a_server_that_may_know_no_roots_is_not_told_that_there_are_any() {
    let none = || ServerSettings { roots: ItemFilter { allow: Some(Vec::new()), deny: Vec::new() }, ..server("a") };
    let expected = json!({"sampling": {"tools": {}}, "elicitation": {"form": {}, "url": {}}});
    // Legacy: in the handshake, and what it asks all the same is refused.
    let mut world = World::new(vec![none()]);
    let mut host = world.host();
    let mut base = world.accept("a").await;
    base.legacy(&["t"]).await;
    host.open_as("2025-11-25", all()).await;
    host.call(1, "a__t").await;
    let mut own = world.accept("a").await;
    assert_eq!(own.leased("2025-11-25").await, expected);
    own.expect("tools/call").await;
    own.ask(1, "roots/list", json!({})).await;
    assert_eq!(own.answer(1).await["error"]["code"], -32601);
    host.tell("notifications/roots/list_changed", json!({})).await;
    own.quiet(Duration::from_secs(5)).await;
    world.end().await;
    // Modern: in each request; that it was withheld is said so where the server insists.
    let mut world = World::new(vec![none()]);
    let mut host = world.host();
    let mut base = world.accept("a").await;
    base.modern(&["t"]).await;
    host.ask(1, "tools/call", modern_as(json!({"name": "a__t"}), all())).await;
    let call = base.expect("tools/call").await;
    assert_eq!(call["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"], expected);
    let required = json!({"resultType": "input_required", "inputRequests": {"r": {"method": "roots/list"}}});
    base.result(&call, required).await;
    assert_eq!(host.next_but_lists().await["error"]["data"]["reason"], "capability-withheld");
    host.ask(2, "tools/call", modern_as(json!({"name": "a__t"}), all())).await;
    let call = base.expect("tools/call").await;
    base.lacks(&call, "roots").await;
    assert_eq!(host.next_but_lists().await["error"]["data"]["reason"], "capability-withheld");
    world.end().await;
}

/// Two processes with one seal key: what only one of them holds, the other one refuses, and says why. What none holds
/// passes (MRT-6).
#[tokio::test(start_paused = true)]
async fn mlb9_a_state_of_a_call_that_another_process_has_is_refused_with_the_reason() {
    let (world, mut host, mut a, _call) = cell(Era::Modern, Era::Legacy, server("a")).await;
    a.end
        .ask(1, "elicitation/create", json!({"message": "m", "requestedSchema": {"type": "object", "properties": {}}}))
        .await;
    let state = host.next_but_lists().await["result"]["requestState"].clone();
    let retry = || modern_as(json!({"name": "a__t", "requestState": state, "inputResponses": {}}), all());
    let mut other = World::new(vec![server("a")]);
    let mut elsewhere = other.host();
    let mut base = other.accept("a").await;
    base.legacy(&["t"]).await;
    elsewhere.ask(2, "tools/call", retry()).await;
    let error = elsewhere.next_but_lists().await["error"].clone();
    assert_eq!((&error["code"], &error["data"]), (&json!(-32602), &json!({"reason": "request-state-expired"})));
    assert!(error["message"].as_str().unwrap().contains("stickiness"), "{error}");
    // It was not made again there, and is still good here.
    assert!(!other.is_started("a"));
    base.quiet(Duration::from_secs(1)).await;
    host.ask(2, "tools/call", retry()).await;
    assert!(host.next_but_lists().await["result"]["inputRequests"].is_object(), "asked again");
    other.end().await;
    world.end().await;

    let (world, mut host, a, call) = cell(Era::Modern, Era::Modern, server("a")).await;
    let mut a = a;
    let requests = json!({"k": {"method": "roots/list"}});
    a.end.result(&call, json!({"resultType": "input_required", "inputRequests": requests, "requestState": "s"})).await;
    let state = host.next_but_lists().await["result"]["requestState"].clone();
    let mut other = World::new(vec![server("a")]);
    let mut elsewhere = other.host();
    let mut base = other.accept("a").await;
    base.modern(&["t"]).await;
    let retry = json!({"name": "a__t", "requestState": state, "inputResponses": {"k": {"roots": []}}});
    elsewhere.ask(2, "tools/call", modern_as(retry, all())).await;
    assert_eq!(base.expect("tools/call").await["params"]["requestState"], "s");
    other.end().await;
    world.end().await;
}

/// LOG-3: a storm costs its server's messages, not the call, and the host knows that some are missing.
#[tokio::test(start_paused = true)]
async fn log3_a_storm_of_log_messages_is_thinned_and_told_of_once() {
    let (world, mut host, mut server, call) = ll().await;
    let mut told = Vec::new();
    for round in 0..3 {
        for n in 0..40 {
            server.tell("notifications/message", json!({"level": "error", "data": format!("{round}-{n}")})).await;
        }
        // Taken as they come, so that it is the rate that counts.
        while let Ok(message) = tokio::time::timeout(Duration::ZERO, host.next()).await {
            told.push(message.unwrap());
        }
    }
    server.result(&call, text("done")).await;
    loop {
        let message = host.next_but_lists().await;
        if message.get("id").is_some() {
            assert_eq!(text_of(&message), "done");
            break;
        }
        told.push(message);
    }
    let told: Vec<_> = told.iter().filter(|message| message["method"] == "notifications/message").collect();
    let notices = told.iter().filter(|message| message["params"]["level"] == "warning").count();
    assert_eq!(notices, 1);
    assert!((60..=101).contains(&told.len()), "{}", told.len());
    let last = told.last().unwrap();
    assert_eq!(last["params"]["logger"], "a");
    assert!(last["params"]["data"].as_str().unwrap().contains("left out"), "{last}");
    // Later it is heard again.
    tokio::time::sleep(Duration::from_secs(10)).await;
    host.call(2, "a__t").await;
    let call = server.expect("tools/call").await;
    server.tell("notifications/message", json!({"level": "error", "data": "again"})).await;
    assert_eq!(host.next_but_lists().await["params"]["data"], "again");
    server.result(&call, text("done")).await;
    host.next_but_lists().await;
    world.end().await;
}
