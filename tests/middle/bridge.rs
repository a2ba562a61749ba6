//! Servers that ask back, in the four cells of host era and server era.
//!
//! Long, and one thing: the rules of the four cells, one after the other.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::end::{End, cancelled, modern, modern_as, text, text_of};
use super::world::{World, server, took};

const ALL: &str = r#"{"roots":{"listChanged":true},"sampling":{"tools":{}},"elicitation":{"form":{},"url":{}}}"#;

fn all() -> Value {
    serde_json::from_str(ALL).unwrap()
}

fn form(message: &str) -> Value {
    json!({"message": message, "requestedSchema": {"type": "object", "properties": {"ok": {"type": "boolean"}}}})
}

fn url(message: &str) -> Value {
    json!({"mode": "url", "message": message, "url": "https://x.test/?a=b"})
}

fn sampling() -> Value {
    json!({"messages": [{"role": "user", "content": {"type": "text", "text": "Hi"}}], "maxTokens": 9,
        "includeContext": "allServers"})
}

fn accepted() -> Value {
    json!({"action": "accept", "content": {"ok": true}})
}

/// A legacy server `a` with tools `t` and `u`, and a host.
async fn legacy_server() -> (World, End, End) {
    let mut world = World::new(vec![server("a")]);
    let host = world.host();
    let mut base = world.accept("a").await;
    base.legacy(&["t", "u"]).await;
    (world, host, base)
}

/// The same, with a legacy host that can do everything, whose call runs; answers the connection that it runs on.
async fn ll(revision: &str) -> (World, End, End, Value) {
    let (mut world, mut host, base) = legacy_server().await;
    // The base stays open; nothing more comes on it.
    std::mem::forget(base);
    host.open_as(revision, all()).await;
    host.call(1, "a__t").await;
    let mut leased = world.accept("a").await;
    leased.leased("2025-11-25").await;
    let call = leased.expect("tools/call").await;
    (world, host, leased, call)
}

/// A modern server `a` and a legacy or modern host.
async fn modern_server() -> (World, End, End) {
    let mut world = World::new(vec![server("a")]);
    let host = world.host();
    let mut server = world.accept("a").await;
    server.modern(&["t", "u"]).await;
    (world, host, server)
}

fn ask_modern(capabilities: Value, extra: Value) -> Value {
    let mut params = json!({"name": "a__t", "arguments": {"x": 1, "y": [1.50]}});
    for (key, value) in extra.as_object().unwrap() {
        params[key] = value.clone();
    }
    modern_as(params, capabilities)
}

fn required(requests: Value, state: Option<&str>) -> Value {
    let mut result = json!({"resultType": "input_required"});
    if !requests.is_null() {
        result["inputRequests"] = requests;
    }
    if let Some(state) = state {
        result["requestState"] = json!(state);
    }
    result
}

#[tokio::test(start_paused = true)]
async fn rel1_questions_of_a_legacy_server_are_relayed_with_ids_of_each_leg() {
    let (world, mut host, mut server, call) = ll("2025-11-25").await;
    server.ask(1, "elicitation/create", form("Sure?")).await;
    server.ask("one", "roots/list", json!({"_meta": {"progressToken": 7}})).await;
    server.ask(2, "sampling/createMessage", sampling()).await;
    let mut named = url("Open?");
    named["elicitationId"] = json!("e-9");
    server.ask(3, "elicitation/create", named).await;
    let questions = [
        host.next_but_lists().await,
        host.next_but_lists().await,
        host.next_but_lists().await,
        host.next_but_lists().await,
    ];
    assert_eq!(questions[0]["method"], "elicitation/create");
    assert_eq!(questions[0]["params"], form("[a] Sure?"));
    assert_eq!(questions[1]["method"], "roots/list");
    assert_eq!(questions[1].get("params"), None);
    // CAP-7
    assert_eq!(questions[2]["params"]["includeContext"], "none");
    assert_eq!(questions[3]["params"]["elicitationId"], "e-9");
    host.result(&questions[2], json!({"role": "assistant", "content": {"type": "text", "text": "x"}, "model": "m"}))
        .await;
    assert_eq!(server.answer(2).await["result"]["model"], "m");
    host.result(&questions[1], json!({"roots": []})).await;
    assert_eq!(server.answer("one").await["result"], json!({"roots": []}));
    host.result(&questions[0], json!({"action": "decline"})).await;
    assert_eq!(server.answer(1).await["result"], json!({"action": "decline"}));
    server.tell("notifications/elicitation/complete", json!({"elicitationId": "e-9"})).await;
    assert_eq!(host.next_but_lists().await["params"], json!({"elicitationId": "e-9"}));
    host.error(&questions[3], -32000).await;
    assert_eq!(server.answer(3).await["error"], json!({"code": -32000, "message": "no"}));
    server.result(&call, text("done")).await;
    assert_eq!(text_of(&host.next_but_lists().await), "done");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn older_hosts_are_asked_in_their_words_or_not_at_all() {
    let (world, mut host, mut server, call) = ll("2025-06-18").await;
    let several =
        json!({"message": "m", "requestedSchema": {"type": "object", "properties": {"a": {"type": "array"}}}});
    server.ask(1, "elicitation/create", several).await;
    assert_eq!(server.answer(1).await["result"], json!({"action": "cancel"}));
    let mut plain = form("m");
    plain["mode"] = json!("form");
    server.ask(2, "elicitation/create", plain).await;
    let question = host.next_but_lists().await;
    assert_eq!(question["params"], form("[a] m"));
    host.result(&question, accepted()).await;
    server.answer(2).await;
    server.result(&call, text("done")).await;
    host.next_but_lists().await;
    world.end().await;
}

/// D066: nothing is declared for a host that declared nothing, and what is asked all the same is refused.
#[tokio::test(start_paused = true)]
async fn mlb1_d066_what_a_host_did_not_declare_is_refused() {
    let (world, mut host, mut base) = legacy_server().await;
    host.open("2025-11-25").await;
    host.call(1, "a__t").await;
    let call = base.expect("tools/call").await;
    base.ask(1, "elicitation/create", form("?")).await;
    assert_eq!(base.answer(1).await["error"]["code"], -32601);
    base.ask(2, "acme/other", json!({})).await;
    assert_eq!(base.answer(2).await["error"]["code"], -32601);
    base.ask(3, "ping", json!({})).await;
    assert_eq!(base.answer(3).await["result"], json!({}));
    base.result(&call, text("done")).await;
    assert_eq!(text_of(&host.next_but_lists().await), "done");
    assert!(!world.is_started("a"));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn mlb1_a_mode_or_tools_that_were_not_declared_are_refused() {
    let (mut world, mut host, _base) = legacy_server().await;
    host.open_as("2025-11-25", json!({"elicitation": {}, "sampling": {}})).await;
    host.call(1, "a__t").await;
    let mut server = world.accept("a").await;
    assert_eq!(server.leased("2025-11-25").await, json!({"elicitation": {}, "sampling": {}}));
    let call = server.expect("tools/call").await;
    server.ask(1, "elicitation/create", url("?")).await;
    assert_eq!(server.answer(1).await["error"]["code"], -32602);
    server.ask(2, "sampling/createMessage", json!({"messages": [], "tools": []})).await;
    assert_eq!(server.answer(2).await["error"]["code"], -32602);
    server.ask(3, "roots/list", json!({})).await;
    assert_eq!(server.answer(3).await["error"]["code"], -32601);
    server.result(&call, text("done")).await;
    assert_eq!(text_of(&host.next_but_lists().await), "done");
    world.end().await;
}

/// CAN-3: whoever is asked for nothing any more is told so, on both sides.
#[tokio::test(start_paused = true)]
async fn can3_a_question_goes_with_its_call_or_when_its_server_withdraws_it() {
    let (world, mut host, mut server, call) = ll("2025-11-25").await;
    server.ask("q", "elicitation/create", form("?")).await;
    let question = host.next_but_lists().await;
    server.tell("notifications/cancelled", cancelled("q")).await;
    let told = host.next_but_lists().await;
    assert_eq!(told["method"], "notifications/cancelled");
    assert_eq!(told["params"]["requestId"], question["id"]);
    // An answer that comes all the same goes nowhere.
    host.result(&question, accepted()).await;
    server.ask(2, "elicitation/create", form("?")).await;
    let question = host.next_but_lists().await;
    host.tell("notifications/cancelled", cancelled(1)).await;
    let (mut stopped, mut refused) = (false, false);
    for _ in 0..2 {
        let message = server.next().await.unwrap();
        stopped |= message["method"] == "notifications/cancelled" && message["params"]["requestId"] == call["id"];
        refused |= message["id"] == 2 && message["result"]["action"] == "cancel";
    }
    assert!(stopped && refused);
    let told = host.next_but_lists().await;
    assert_eq!(told["params"]["requestId"], question["id"]);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn tmo2_the_time_of_the_user_is_not_the_servers() {
    let (world, mut host, mut server, call) = ll("2025-11-25").await;
    server.ask(1, "elicitation/create", form("?")).await;
    let question = host.next_but_lists().await;
    tokio::time::sleep(Duration::from_secs(500)).await;
    host.result(&question, accepted()).await;
    server.answer(1).await;
    // From now on it is the server's again.
    let start = Instant::now();
    let answer = host.next_but_lists().await;
    assert_eq!(answer["error"]["data"]["reason"], "downstream-timeout");
    took(start, Duration::from_secs(60));
    assert_eq!(server.expect("notifications/cancelled").await["params"]["requestId"], call["id"]);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn tmo2_a_user_who_says_nothing_for_ten_minutes_cancels() {
    let (world, mut host, mut server, call) = ll("2025-11-25").await;
    server.ask(1, "elicitation/create", form("?")).await;
    server.ask(2, "sampling/createMessage", sampling()).await;
    server.ask(3, "roots/list", json!({})).await;
    let start = Instant::now();
    assert_eq!(server.answer(1).await["result"], json!({"action": "cancel"}));
    took(start, Duration::from_secs(600));
    assert_eq!(server.answer(2).await["error"]["code"], -1);
    assert_eq!(server.answer(3).await["error"]["code"], -32603);
    server.result(&call, text("done")).await;
    for _ in 0..6 {
        host.next_but_lists().await;
    }
    assert_eq!(text_of(&host.next_but_lists().await), "done");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn rel3_rel4_what_belongs_to_no_call_is_answered_from_the_last_roots_or_refused() {
    let (world, mut host, mut server, call) = ll("2025-11-25").await;
    server.result(&call, text("done")).await;
    host.next_but_lists().await;
    server.ask(1, "roots/list", json!({})).await;
    assert_eq!(server.answer(1).await["error"]["code"], -32603);
    server.ask(2, "elicitation/create", form("?")).await;
    assert_eq!(server.answer(2).await["error"]["code"], -32603);
    host.call(2, "a__t").await;
    let call = server.expect("tools/call").await;
    server.ask(3, "roots/list", json!({})).await;
    let question = host.next_but_lists().await;
    let roots = json!({"roots": [{"uri": "file:///home"}]});
    host.result(&question, roots.clone()).await;
    assert_eq!(server.answer(3).await["result"], roots);
    server.result(&call, text("done")).await;
    host.next_but_lists().await;
    server.ask(4, "roots/list", json!({})).await;
    assert_eq!(server.answer(4).await["result"], roots);
    host.tell("notifications/roots/list_changed", json!({})).await;
    server.expect("notifications/roots/list_changed").await;
    server.ask(5, "roots/list", json!({})).await;
    assert_eq!(server.answer(5).await["error"]["code"], -32603);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn rel5_a_server_asks_five_things_at_once_and_thirty_in_a_minute() {
    let (world, mut host, mut server, _call) = ll("2025-11-25").await;
    for n in 0..6 {
        server.ask(n, "roots/list", json!({})).await;
    }
    assert_eq!(server.answer(5).await["error"]["code"], -32603);
    let mut questions = Vec::new();
    for _ in 0..5 {
        questions.push(host.next_but_lists().await);
    }
    for (n, question) in questions.iter().enumerate() {
        host.result(question, json!({"roots": []})).await;
        server.answer(n).await;
    }
    let mut refused = 0;
    for n in 10..60 {
        server.ask(n, "roots/list", json!({})).await;
        let told = server.next();
        tokio::select! {
            biased;
            question = host.next_but_lists() => host.result(&question, json!({"roots": []})).await,
            _ = told => { refused += 1; continue }
        }
        server.answer(n).await;
    }
    assert!((20..=26).contains(&refused), "{refused}");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn mrt2_mm_a_question_passes_under_a_state_of_ours_and_comes_back_as_it_was() {
    let (world, mut host, mut server) = modern_server().await;
    host.ask(1, "tools/call", ask_modern(all(), json!({}))).await;
    let call = server.expect("tools/call").await;
    let declared = &call["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"];
    assert_eq!(*declared, json!({"roots": {}, "sampling": {"tools": {}}, "elicitation": {"form": {}, "url": {}}}));
    let state = format!("state-{}", "x".repeat(8 << 10));
    let requests = json!({"k 1": {"method": "elicitation/create", "params": form("Which?")},
        "r": {"method": "roots/list"}, "s": {"method": "sampling/createMessage", "params": sampling()},
        "u": {"method": "elicitation/create", "params": url("Open")}});
    let mut result = required(requests, Some(&state));
    result["acme/other"] = json!([1]);
    server.result(&call, result).await;
    let asked = host.next_but_lists().await["result"].clone();
    assert_eq!(asked["resultType"], "input_required");
    assert_eq!(asked["acme/other"], json!([1]));
    let requests = &asked["inputRequests"];
    assert_eq!(requests["k 1"], json!({"method": "elicitation/create", "params": form("[a] Which?")}));
    assert_eq!(requests["r"], json!({"method": "roots/list"}));
    assert_eq!(requests["s"]["params"]["includeContext"], "none");
    assert_eq!(requests["u"]["params"], url("[a] Open"));
    let ours = asked["requestState"].as_str().unwrap();
    assert!(!ours.contains("state-"));
    // Sent again with members in another order, under another id.
    let responses = json!({"k 1": accepted(), "r": {"roots": []}});
    let line = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": ask_modern(all(), json!({
        "arguments": {"y": [1.50], "x": 1}, "inputResponses": responses, "requestState": ours}))});
    host.say(line).await;
    let again = server.expect("tools/call").await;
    assert_ne!(again["id"], call["id"]);
    assert_eq!(again["params"]["inputResponses"], responses);
    assert_eq!(again["params"]["requestState"], state);
    assert_eq!(again["params"]["arguments"], call["params"]["arguments"]);
    server.result(&again, text("done")).await;
    assert_eq!(text_of(&host.next_but_lists().await), "done");
    world.end().await;
}

/// SEC-3.
#[tokio::test(start_paused = true)]
async fn mrt2_a_state_opens_for_its_own_call_alone_and_not_for_ever() {
    let (world, mut host, mut server) = modern_server().await;
    host.ask(1, "tools/call", ask_modern(all(), json!({}))).await;
    let call = server.expect("tools/call").await;
    server.result(&call, required(Value::Null, Some("s"))).await;
    let state = host.next_but_lists().await["result"]["requestState"].as_str().unwrap().to_owned();
    let tampered = format!("{}{}", if state.starts_with('A') { 'B' } else { 'A' }, &state[1..]);
    for (n, extra) in [
        json!({"requestState": tampered}),
        json!({"requestState": "nonsense"}),
        json!({"requestState": ""}),
        json!({"requestState": state, "arguments": {"x": 2}}),
        json!({"requestState": state, "name": "a__u"}),
    ]
    .into_iter()
    .enumerate()
    {
        host.ask(n + 10, "tools/call", ask_modern(all(), extra)).await;
        assert_eq!(host.answer(n + 10).await["error"]["code"], -32602, "{n}");
    }
    server.quiet(Duration::from_secs(1)).await;
    tokio::time::sleep(Duration::from_secs(900)).await;
    host.ask(3, "tools/call", ask_modern(all(), json!({"requestState": state}))).await;
    let error = host.answer(3).await["error"].clone();
    assert_eq!((&error["code"], &error["data"]["reason"]), (&json!(-32602), &json!("request-state-expired")));
    world.end().await;
}

/// MRT-3: answers without a state pass; MRT-1: no state is sent where there was none.
#[tokio::test(start_paused = true)]
async fn mrt3_bare_answers_pass_and_no_state_is_made_up() {
    let (world, mut host, mut server) = modern_server().await;
    host.ask(1, "tools/call", ask_modern(all(), json!({"inputResponses": {"k": accepted()}}))).await;
    let call = server.expect("tools/call").await;
    assert_eq!(call["params"]["inputResponses"], json!({"k": accepted()}));
    server.result(&call, required(json!({"k": {"method": "roots/list"}}), None)).await;
    let state = host.next_but_lists().await["result"]["requestState"].clone();
    host.ask(
        2,
        "tools/call",
        ask_modern(all(), json!({"requestState": state, "inputResponses": {"k": {"roots": []}}})),
    )
    .await;
    let again = server.expect("tools/call").await;
    assert_eq!(again["params"].get("requestState"), None);
    server.result(&again, text("done")).await;
    host.next_but_lists().await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn mrt4_lmb6_what_the_host_did_not_declare_makes_all_of_it_invalid() {
    let (world, mut host, mut server) = modern_server().await;
    let requests = json!({"r": {"method": "roots/list"}, "u": {"method": "elicitation/create", "params": url("?")}});
    host.ask(1, "tools/call", ask_modern(json!({"roots": {}, "elicitation": {}}), json!({}))).await;
    let call = server.expect("tools/call").await;
    server.result(&call, required(requests.clone(), Some("s"))).await;
    assert_eq!(host.next_but_lists().await["error"]["data"]["reason"], "invalid-downstream-result");
    host.open_as("2025-11-25", json!({"roots": {}})).await;
    host.call(2, "a__t").await;
    let call = server.expect("tools/call").await;
    server.result(&call, required(requests, Some("s"))).await;
    assert_eq!(host.next_but_lists().await["error"]["data"]["reason"], "invalid-downstream-result");
    for bad in [json!({"resultType": "input_required"}), json!({"resultType": "input_required", "inputRequests": 1})] {
        host.call(3, "a__t").await;
        let call = server.expect("tools/call").await;
        server.result(&call, bad).await;
        assert_eq!(host.next_but_lists().await["error"]["data"]["reason"], "invalid-downstream-result");
    }
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn lmb1_lmb3_a_legacy_host_is_asked_everything_at_once_and_the_call_is_sent_again() {
    let (world, mut host, mut server) = modern_server().await;
    host.open_as("2025-11-25", all()).await;
    host.call(1, "a__t").await;
    let call = server.expect("tools/call").await;
    let requests = json!({"login": {"method": "elicitation/create", "params": url("Connect")},
        "f": {"method": "elicitation/create", "params": form("Sure?")},
        "r": {"method": "roots/list"}, "s": {"method": "sampling/createMessage", "params": sampling()}});
    server.result(&call, required(requests, Some("st\"1"))).await;
    let mut opened = Value::Null;
    let mut expected = serde_json::Map::new();
    let mut questions = Vec::new();
    for _ in 0..4 {
        questions.push(host.next_but_lists().await);
    }
    for question in questions.into_iter().rev() {
        let (key, value) = match question["method"].as_str().unwrap() {
            "roots/list" => ("r", json!({"roots": []})),
            "sampling/createMessage" => ("s", json!({"role": "assistant", "content": [], "model": "m"})),
            _ if question["params"]["mode"] == "url" => {
                assert!(question["params"]["elicitationId"].is_string());
                opened = question["params"]["elicitationId"].clone();
                assert_eq!(question["params"]["message"], "[a] Connect");
                ("login", json!({"action": "accept"}))
            }
            _ => ("f", json!({"action": "decline"})),
        };
        host.result(&question, value.clone()).await;
        expected.insert(key.to_owned(), value);
    }
    let again = server.expect("tools/call").await;
    assert_ne!(again["id"], call["id"]);
    assert_eq!(again["params"]["inputResponses"], Value::Object(expected));
    assert_eq!(again["params"]["requestState"], "st\"1");
    // A second round, without a state.
    server.result(&again, required(json!({"z": {"method": "roots/list"}}), None)).await;
    let question = host.next_but_lists().await;
    host.result(&question, json!({"roots": []})).await;
    let third = server.expect("tools/call").await;
    assert_eq!(third["params"].get("requestState"), None);
    server.result(&third, text("done")).await;
    // LMB-2
    let told = host.next_but_lists().await;
    assert_eq!(told["method"], "notifications/elicitation/complete");
    assert_eq!(told["params"], json!({"elicitationId": opened}));
    assert_eq!(text_of(&host.next_but_lists().await), "done");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn lmb4_what_has_no_form_for_an_error_ends_the_call_and_an_elicitation_is_cancelled() {
    let (world, mut host, mut server) = modern_server().await;
    host.open_as("2025-11-25", all()).await;
    host.call(1, "a__t").await;
    let call = server.expect("tools/call").await;
    server
        .result(&call, required(json!({"s": {"method": "sampling/createMessage", "params": sampling()}}), None))
        .await;
    let question = host.next_but_lists().await;
    host.error(&question, -1).await;
    let answer = host.next_but_lists().await;
    assert_eq!(answer["result"]["isError"], true);
    assert_eq!(text_of(&answer), "a: the request for a model completion was refused by the client");
    host.call(2, "a__t").await;
    let call = server.expect("tools/call").await;
    server.result(&call, required(json!({"e": {"method": "elicitation/create", "params": form("?")}}), None)).await;
    let question = host.next_but_lists().await;
    host.error(&question, -32601).await;
    let again = server.expect("tools/call").await;
    assert_eq!(again["params"]["inputResponses"], json!({"e": {"action": "cancel"}}));
    server.result(&again, text("done")).await;
    host.next_but_lists().await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn lmb5_a_server_that_only_wants_to_be_asked_again_is_sixteen_times() {
    let (world, mut host, mut server) = modern_server().await;
    host.open("2025-11-25").await;
    host.call(1, "a__t").await;
    let start = Instant::now();
    for round in 0..17 {
        let call = server.expect("tools/call").await;
        if round > 0 {
            assert_eq!(call["params"]["requestState"], format!("s{}", round - 1));
        }
        server.result(&call, required(Value::Null, Some(&format!("s{round}")))).await;
    }
    assert_eq!(host.next_but_lists().await["error"]["data"]["reason"], "limit");
    // 100 + 200 + 400 + 800 + 1600 ms, then 2 s each.
    took(start, Duration::from_millis(3100 + 11 * 2000));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn lmb7_a_host_that_gives_up_is_asked_nothing_more() {
    let (world, mut host, mut server) = modern_server().await;
    host.open_as("2025-11-25", all()).await;
    host.call(1, "a__t").await;
    let call = server.expect("tools/call").await;
    server.result(&call, required(json!({"r": {"method": "roots/list"}}), None)).await;
    let question = host.next_but_lists().await;
    host.tell("notifications/cancelled", cancelled(1)).await;
    let told = host.next_but_lists().await;
    assert_eq!((&told["method"], &told["params"]["requestId"]), (&json!("notifications/cancelled"), &question["id"]));
    server.quiet(Duration::from_secs(1)).await;
    world.end().await;
}

/// A modern host whose call runs on a legacy server.
async fn ml() -> (World, End, End, Value) {
    let (mut world, mut host, base) = legacy_server().await;
    std::mem::forget(base);
    host.ask(1, "tools/call", ask_modern(all(), json!({}))).await;
    let mut leased = world.accept("a").await;
    let declared = leased.leased("2025-11-25").await;
    assert_eq!(declared["roots"], json!({}), "a modern host cannot tell that its roots changed");
    let call = leased.expect("tools/call").await;
    (world, host, leased, call)
}

#[tokio::test(start_paused = true)]
async fn mlb2_mlb5_mlb6_a_legacy_servers_questions_suspend_the_call_of_a_modern_host() {
    let (world, mut host, mut server, call) = ml().await;
    let mut open = url("Open");
    open["elicitationId"] = json!("e-1");
    open["task"] = json!({"ttl": 1});
    server.ask(1, "elicitation/create", form("Sure?")).await;
    server.ask(2, "roots/list", json!({"_meta": {"progressToken": 1}})).await;
    server.ask(3, "elicitation/create", open).await;
    server.ask("s", "sampling/createMessage", sampling()).await;
    let asked = host.answer(1).await["result"].clone();
    assert_eq!(asked["resultType"], "input_required");
    let requests = &asked["inputRequests"];
    assert_eq!(requests["elicitation_1"], json!({"method": "elicitation/create", "params": form("[a] Sure?")}));
    assert_eq!(requests["roots_1"], json!({"method": "roots/list"}));
    assert_eq!(requests["elicitation_2"]["params"], url("[a] Open"));
    assert_eq!(requests["sampling_1"]["params"]["includeContext"], "none");
    let first = asked["requestState"].clone();
    // MLB-5: what is left out is asked again at once, what is unknown is ignored.
    let responses = json!({"elicitation_1": accepted(), "roots_1": {"roots": []}, "other": {},
        "sampling_1": {"role": "assistant", "content": {"type": "text", "text": "x"}, "model": "m"}});
    host.ask(2, "tools/call", ask_modern(all(), json!({"requestState": first, "inputResponses": responses}))).await;
    let asked = host.answer(2).await["result"].clone();
    assert_eq!(asked["inputRequests"].as_object().unwrap().keys().collect::<Vec<_>>(), ["elicitation_2"]);
    for _ in 0..3 {
        let answer = server.next().await.unwrap();
        let expected = match answer["id"].as_str() {
            Some(_) => responses["sampling_1"].clone(),
            None if answer["id"] == 1 => accepted(),
            None => json!({"roots": []}),
        };
        assert_eq!(answer["result"], expected);
    }
    let second = asked["requestState"].clone();
    // MLB-4: a state is good once.
    host.ask(3, "tools/call", ask_modern(all(), json!({"requestState": first, "inputResponses": responses}))).await;
    assert_eq!(host.answer(3).await["error"]["data"]["reason"], "request-state-expired");
    let responses = json!({"elicitation_2": {"action": "accept"}});
    let retry = ask_modern(all(), json!({"requestState": second, "inputResponses": responses}));
    host.ask(4, "tools/call", retry.clone()).await;
    assert_eq!(server.answer(3).await["result"], json!({"action": "accept"}));
    // A later question is another round of the same call.
    server.ask(9, "elicitation/create", form("Really?")).await;
    let asked = host.answer(4).await["result"].clone();
    assert_eq!(asked["inputRequests"]["elicitation_3"]["params"]["message"], "[a] Really?");
    host.ask(5, "tools/call", retry).await;
    assert_eq!(host.answer(5).await["error"]["code"], -32602);
    let responses = json!({"elicitation_3": {"action": "decline"}});
    host.ask(
        6,
        "tools/call",
        ask_modern(all(), json!({"requestState": asked["requestState"], "inputResponses": responses})),
    )
    .await;
    assert_eq!(server.answer(9).await["result"], json!({"action": "decline"}));
    server.result(&call, text("done")).await;
    assert_eq!(text_of(&host.answer(6).await), "done");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn mlb7_a_host_that_does_not_come_back_cancels() {
    let (world, mut host, mut server, call) = ml().await;
    server.ask(1, "elicitation/create", form("?")).await;
    let state = host.answer(1).await["result"]["requestState"].clone();
    assert_eq!(server.answer(1).await["result"], json!({"action": "cancel"}));
    let told = server.expect("notifications/cancelled").await;
    assert_eq!(told["params"], json!({"requestId": call["id"], "reason": "input not provided"}));
    host.ask(2, "tools/call", ask_modern(all(), json!({"requestState": state}))).await;
    assert_eq!(host.answer(2).await["error"]["data"]["reason"], "request-state-expired");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn mlb4_a_server_that_dies_while_its_call_is_suspended_is_told_when_the_host_comes_back() {
    let (world, mut host, mut server, _call) = ml().await;
    server.ask(1, "elicitation/create", form("?")).await;
    let state = host.answer(1).await["result"]["requestState"].clone();
    drop(server);
    let responses = json!({"elicitation_1": accepted()});
    host.ask(2, "tools/call", ask_modern(all(), json!({"requestState": state, "inputResponses": responses}))).await;
    assert_eq!(host.answer(2).await["error"]["data"]["reason"], "downstream-unavailable");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn mlb8_a_host_that_gives_up_while_its_call_runs_cancels_it() {
    let (world, mut host, mut server, call) = ml().await;
    server.ask(1, "elicitation/create", form("?")).await;
    let state = host.answer(1).await["result"]["requestState"].clone();
    let responses = json!({"elicitation_1": accepted()});
    host.ask(2, "tools/call", ask_modern(all(), json!({"requestState": state, "inputResponses": responses}))).await;
    server.answer(1).await;
    host.tell("notifications/cancelled", cancelled(2)).await;
    assert_eq!(server.expect("notifications/cancelled").await["params"]["requestId"], call["id"]);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn prg2_progress_goes_to_the_request_that_waits_now() {
    let (world, mut host, mut server, _) = {
        let (mut world, mut host, base) = legacy_server().await;
        std::mem::forget(base);
        let mut params = ask_modern(all(), json!({}));
        params["_meta"]["progressToken"] = json!("p");
        host.ask(1, "tools/call", params).await;
        let mut leased = world.accept("a").await;
        leased.leased("2025-11-25").await;
        let call = leased.expect("tools/call").await;
        leased.ask(1, "elicitation/create", form("?")).await;
        (world, host, leased, call)
    };
    let state = host.answer(1).await["result"]["requestState"].clone();
    server.tell("notifications/progress", json!({"progressToken": 1, "progress": 1})).await;
    host.quiet(Duration::from_secs(1)).await;
    world.end().await;
    assert!(state.is_string());
}

/// A legacy server answers that URLs must be opened first.
async fn refuse_for_url(server: &mut End, call: &Value) {
    let error = json!({"code": -32042, "message": "first", "data": {"elicitations": [
        {"mode": "url", "elicitationId": "e-1", "url": "https://x.test/?a=b", "message": "Authorise"}]}});
    server.say(json!({"jsonrpc": "2.0", "id": call["id"], "error": error})).await;
}

#[tokio::test(start_paused = true)]
async fn url1_url2_a_modern_host_is_asked_to_open_the_url_and_the_call_is_sent_again() {
    let (world, mut host, mut server, call) = ml().await;
    refuse_for_url(&mut server, &call).await;
    let asked = host.answer(1).await["result"].clone();
    assert_eq!(asked["inputRequests"]["url_1"]["params"], url("[a] Authorise"));
    let responses = json!({"url_1": {"action": "accept"}});
    let retry = json!({"requestState": asked["requestState"], "inputResponses": responses});
    host.ask(2, "tools/call", ask_modern(all(), retry)).await;
    let again = server.expect("tools/call").await;
    assert_eq!(again["params"], call["params"]);
    refuse_for_url(&mut server, &again).await;
    let asked = host.answer(2).await["result"].clone();
    let retry = json!({"requestState": asked["requestState"], "inputResponses": {"url_1": {"action": "decline"}}});
    host.ask(3, "tools/call", ask_modern(all(), retry)).await;
    assert_eq!(host.answer(3).await["result"]["isError"], true);
    server.quiet(Duration::from_secs(1)).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn url1_a_legacy_host_gets_the_error_when_it_can_open_urls() {
    let (world, mut host, mut server, call) = ll("2025-11-25").await;
    refuse_for_url(&mut server, &call).await;
    assert_eq!(host.next_but_lists().await["error"]["code"], -32042);
    world.end().await;
    // Others are told which capability is missing, without the URL.
    let (world, mut host, mut base) = legacy_server().await;
    host.ask(1, "tools/call", modern(json!({"name": "a__t"}))).await;
    let call = base.expect("tools/call").await;
    refuse_for_url(&mut base, &call).await;
    let error = host.answer(1).await["error"].clone();
    assert_eq!(
        (&error["code"], &error["data"]),
        (&json!(-32021), &json!({"requiredCapabilities": {"elicitation": {"url": {}}}}))
    );
    host.open("2025-11-25").await;
    host.call(2, "a__t").await;
    let call = base.expect("tools/call").await;
    refuse_for_url(&mut base, &call).await;
    let answer = host.next_but_lists().await;
    assert_eq!(answer["error"]["code"], -32603);
    assert!(!answer.to_string().contains("x.test"));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn cap8_a_host_is_told_which_capability_a_modern_server_needs() {
    let (world, mut host, mut server) = modern_server().await;
    let needs = |required: Value| json!({"code": -32021, "message": "no", "data": {"requiredCapabilities": required}});
    let sampling = json!({"sampling": {}});
    host.ask(1, "tools/call", modern(json!({"name": "a__t"}))).await;
    let call = server.expect("tools/call").await;
    server.say(json!({"jsonrpc": "2.0", "id": call["id"], "error": needs(sampling.clone())})).await;
    let error = host.answer(1).await["error"].clone();
    assert_eq!((&error["code"], &error["data"]["requiredCapabilities"]), (&json!(-32021), &sampling));
    // It has declared that, so it was ours to pass on.
    host.ask(2, "tools/call", ask_modern(sampling.clone(), json!({}))).await;
    let call = server.expect("tools/call").await;
    server.say(json!({"jsonrpc": "2.0", "id": call["id"], "error": needs(sampling.clone())})).await;
    assert_eq!(host.answer(2).await["error"]["data"]["reason"], "capability-withheld");
    host.open("2025-11-25").await;
    host.call(3, "a__t").await;
    let call = server.expect("tools/call").await;
    server.say(json!({"jsonrpc": "2.0", "id": call["id"], "error": needs(sampling.clone())})).await;
    let error = host.answer(3).await["error"].clone();
    assert_eq!((&error["code"], &error["data"]["requiredCapabilities"]), (&json!(-32603), &sampling));
    world.end().await;
}

/// A call whose user thinks is no work of its server: others take its place.
#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_its_user_takes_nobodys_place() {
    for host_revision in [None, Some("2025-11-25")] {
        let mut settings = server("a");
        settings.limits.concurrency = Some(1);
        let mut world = World::new(vec![settings]);
        let mut host = world.host();
        let mut base = world.accept("a").await;
        base.legacy(&["t", "u"]).await;
        match host_revision {
            Some(revision) => {
                host.open_as(revision, all()).await;
                host.call(1, "a__t").await;
            }
            None => host.ask(1, "tools/call", ask_modern(all(), json!({}))).await,
        }
        let mut leased = world.accept("a").await;
        leased.leased("2025-11-25").await;
        leased.expect("tools/call").await;
        leased.ask(1, "elicitation/create", form("Sure?")).await;
        let question = host.next_but_lists().await;
        let asks = if host_revision.is_some() { "elicitation/create" } else { "null" };
        assert_eq!(question["method"].as_str().unwrap_or("null"), asks, "{question}");
        // The place is free for the next call, before anybody answers.
        match host_revision {
            Some(_) => host.call(2, "a__u").await,
            None => host.ask(2, "tools/call", modern_as(json!({"name": "a__u"}), all())).await,
        }
        let second = leased.expect("tools/call").await;
        leased.result(&second, text("meanwhile")).await;
        assert_eq!(text_of(&host.answer(2).await), "meanwhile");
        world.end().await;
    }
}

/// What a server answers although nobody gave it its input waits for the host, and holds up nothing.
#[tokio::test(start_paused = true)]
async fn mlb6_a_server_that_does_not_wait_has_its_answer_kept() {
    let (world, mut host, mut server, call) = ml().await;
    server.ask(1, "elicitation/create", form("Sure?")).await;
    let state = host.answer(1).await["result"]["requestState"].clone();
    server.result(&call, text("without you")).await;
    assert_eq!(server.answer(1).await["result"], json!({"action": "cancel"}), "its question is over");
    host.ask(2, "tools/call", ask_modern(all(), json!({"requestState": state, "inputResponses": {}}))).await;
    assert_eq!(text_of(&host.answer(2).await), "without you");
    world.end().await;
}

/// MRT-2: only our state is in the result, whatever the server writes beside its own.
#[tokio::test(start_paused = true)]
async fn mrt2_a_state_that_is_none_does_not_stand_beside_ours() {
    let (world, mut host, mut server) = modern_server().await;
    host.ask(1, "tools/call", ask_modern(all(), json!({}))).await;
    let call = server.expect("tools/call").await;
    let mut result = required(json!({"k": {"method": "elicitation/create", "params": form("?")}}), None);
    result["requestState"] = Value::Null;
    server.result(&call, result).await;
    let answer = host.answer(1).await;
    assert!(answer["result"]["requestState"].is_string(), "{answer}");
    world.end().await;
}
