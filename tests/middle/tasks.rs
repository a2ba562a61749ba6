//! Tasks: those of modern servers for modern hosts, and tools of legacy servers that can be called as tasks only.
//!
//! Long, and one thing: the life of a task, in each pair of eras.

use std::num::NonZeroU32;
use std::time::Duration;

use onegate::config::settings::{Rate, ServerSettings};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::end::{End, cancelled, modern, modern_as, text, text_of};
use super::full::SUBSCRIPTION;
use super::world::{World, server, took};

const EXTENSION: &str = "io.modelcontextprotocol/tasks";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const RELATED: &str = "io.modelcontextprotocol/related-task";

/// What a host declares that takes tasks, and forms.
fn takes() -> Value {
    json!({"extensions": {EXTENSION: {}}, "elicitation": {"form": {}}})
}

fn params(params: Value) -> Value {
    modern_as(params, takes())
}

fn form(message: &str) -> Value {
    json!({"message": message, "requestedSchema": {"type": "object", "properties": {"ok": {"type": "boolean"}}}})
}

/// A task of the modern design.
fn task(status: &str, more: Value) -> Value {
    let mut task = json!({"taskId": "n-77", "status": status, "createdAt": "2026-08-01T10:00:00Z",
        "lastUpdatedAt": "2026-08-01T10:00:00Z", "ttlMs": 600_000, "pollIntervalMs": 2000});
    for (key, value) in more.as_object().unwrap() {
        task[key] = value.clone();
    }
    task
}

/// A modern server `a` with a tool `t` that may make tasks, and a host.
async fn offering(settings: ServerSettings) -> (World, End, End) {
    let mut world = World::new(vec![settings]);
    let host = world.host();
    let mut a = world.accept("a").await;
    let capabilities = json!({"tools": {"listChanged": true}, "extensions": {EXTENSION: {}, "acme/other": {}}});
    a.modern_with(&["t"], capabilities).await;
    (world, host, a)
}

/// Has a task made of a call; answers its id as the host got it.
async fn make(host: &mut End, a: &mut End) -> String {
    host.ask("make", "tools/call", params(json!({"name": "a__t", "arguments": {}}))).await;
    let call = a.expect("tools/call").await;
    a.result(&call, task("working", json!({"resultType": "task"}))).await;
    let answer = host.answer("make").await;
    answer["result"]["taskId"].as_str().unwrap_or_else(|| panic!("no task: {answer}")).to_owned()
}

/// Asks about a task; answers what the server is asked and what the host gets.
async fn about(host: &mut End, a: &mut End, method: &str, id: &str, more: Value, answer: Value) -> (Value, Value) {
    let mut asked = json!({"taskId": id});
    for (key, value) in more.as_object().unwrap() {
        asked[key] = value.clone();
    }
    host.ask(method, method, params(asked)).await;
    let request = a.expect(method).await;
    a.result(&request, answer).await;
    (request, host.answer(method).await)
}

#[tokio::test(start_paused = true)]
async fn tsk1_tsk2_a_task_is_made_asked_after_answered_and_cancelled_under_an_id_of_ours() {
    let (world, mut host, mut a) = offering(server("a")).await;
    host.ask(0, "server/discover", params(json!({}))).await;
    assert_eq!(host.answer(0).await["result"]["capabilities"]["extensions"], json!({EXTENSION: {}}), "EXT-2");
    host.ask(1, "tools/call", params(json!({"name": "a__t", "arguments": {"x": 1}}))).await;
    let call = a.expect("tools/call").await;
    assert_eq!(call["params"]["_meta"][CAPABILITIES], json!({"extensions": {EXTENSION: {}}, "elicitation": {}}));
    assert_eq!(call["params"].get("task"), None);
    let made = task("working", json!({"resultType": "task", "acme/x": [1.50], "_meta": {"acme/y": 2}}));
    a.result(&call, made.clone()).await;
    let answer = host.answer(1).await;
    let mut got = answer["result"].clone();
    let id = got["taskId"].as_str().unwrap().to_owned();
    assert!(id.starts_with("t1.") && id.len() < 512 && !id.contains("n-77"), "{id}");
    assert_eq!(got["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "onegate");
    assert_eq!(got["_meta"]["acme/y"], 2);
    got["taskId"] = json!("n-77");
    got["_meta"] = json!({"acme/y": 2});
    assert_eq!(got, made);

    let (request, answer) = about(&mut host, &mut a, "tasks/get", &id, json!({}), task("working", json!({}))).await;
    assert_eq!(request["params"]["taskId"], "n-77");
    assert_eq!(request["params"]["_meta"][CAPABILITIES]["extensions"], json!({EXTENSION: {}}));
    assert_eq!((&answer["result"]["taskId"], &answer["result"]["resultType"]), (&json!(id), &json!("complete")));
    assert_eq!((&answer["result"]["status"], &answer["result"]["ttlMs"]), (&json!("working"), &json!(600_000)));

    // MRT-5: the keys stay, the text says who asks.
    let asks = json!({"inputRequests": {"k\u{e9}y": {"method": "elicitation/create", "params": form("Sure?")}}});
    let (_, answer) = about(&mut host, &mut a, "tasks/get", &id, json!({}), task("input_required", asks)).await;
    assert_eq!(answer["result"]["inputRequests"]["k\u{e9}y"]["params"], form("[a] Sure?"));
    let given = json!({"inputResponses": {"k\u{e9}y": {"action": "accept", "content": {"ok": true}}}});
    let done = json!({"resultType": "complete"});
    let (request, answer) = about(&mut host, &mut a, "tasks/update", &id, given.clone(), done.clone()).await;
    assert_eq!(request["params"]["taskId"], "n-77");
    assert_eq!(request["params"]["inputResponses"], given["inputResponses"]);
    assert_eq!(answer["result"]["resultType"], "complete");
    assert_eq!(answer["result"]["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "onegate");
    let (request, answer) = about(&mut host, &mut a, "tasks/cancel", &id, json!({}), done).await;
    assert_eq!((&request["params"]["taskId"], &answer["result"]["resultType"]), (&json!("n-77"), &json!("complete")));
    world.end().await;
}

/// TSK-2: the result of a task is one of a call, its error one of a call, and what it may ask is what was declared.
#[tokio::test(start_paused = true)]
async fn tsk2_what_came_of_a_task_is_as_of_a_call() {
    let (world, mut host, mut a) = offering(server("a")).await;
    let id = make(&mut host, &mut a).await;
    let get = |status: &str, more: Value| task(status, more);
    let result = json!({"content": [{"type": "text", "text": "Created"}], "structuredContent": {"n": 1.50},
        "isError": true, "_meta": {"acme/x": 1, "io.modelcontextprotocol/serverInfo": {"name": "theirs"}}});
    let completed = get("completed", json!({"result": result}));
    let (_, answer) = about(&mut host, &mut a, "tasks/get", &id, json!({}), completed).await;
    let mut expected = result.clone();
    expected["_meta"] = json!({"acme/x": 1});
    assert_eq!(answer["result"]["result"], expected);
    // A host must be able to read it.
    let bare = get("completed", json!({"result": {"structuredContent": [7]}}));
    let (_, answer) = about(&mut host, &mut a, "tasks/get", &id, json!({}), bare).await;
    assert_eq!(answer["result"]["result"]["content"], json!([{"type": "text", "text": "[7]"}]));
    assert_eq!(answer["result"]["result"]["structuredContent"], json!([7]));
    for (error, expected) in [
        (
            json!({"code": -32000, "message": "no", "data": [1.0]}),
            json!({"code": -32000, "message": "no", "data": [1.0]}),
        ),
        // §16.2: what must not pass does not, here either.
        (json!({"code": -32002, "message": "gone"}), json!({"code": -32602, "message": "gone"})),
    ] {
        let failed = get("failed", json!({"error": error}));
        let (_, answer) = about(&mut host, &mut a, "tasks/get", &id, json!({}), failed).await;
        assert_eq!(answer["result"]["error"], expected);
    }
    let failed = get("failed", json!({"error": {"code": -32022, "message": "versions"}}));
    let (_, answer) = about(&mut host, &mut a, "tasks/get", &id, json!({}), failed).await;
    assert_eq!(answer["result"]["error"]["data"]["reason"], "invalid-downstream-result");
    // MRT-4: sampling was not declared.
    let asks = json!({"inputRequests": {"k": {"method": "sampling/createMessage", "params": {"messages": []}}}});
    let (_, answer) = about(&mut host, &mut a, "tasks/get", &id, json!({}), get("input_required", asks)).await;
    assert_eq!(answer["error"]["data"]["reason"], "invalid-downstream-result");
    // A type of result that no host knows.
    let odd = get("working", json!({"resultType": "task"}));
    let (_, answer) = about(&mut host, &mut a, "tasks/get", &id, json!({}), odd).await;
    assert_eq!(answer["error"]["data"]["reason"], "invalid-downstream-result");
    // The server's words may name its id.
    host.ask(2, "tasks/get", params(json!({"taskId": id}))).await;
    let request = a.expect("tasks/get").await;
    a.say(json!({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32602, "message": "no task n-77"}})).await;
    assert_eq!(host.answer(2).await["error"], json!({"code": -32602, "message": "Task not found"}));
    world.end().await;
}

/// Interfaces in the result of a task are those of its server (APP-2).
#[tokio::test(start_paused = true)]
async fn tsk2_uris_in_the_result_of_a_task_are_as_hosts_see_them() {
    let mut world = World::new(vec![server("a")]);
    let mut host = world.host();
    let mut a = world.accept("a").await;
    let probe = a.expect("server/discover").await;
    let capabilities = json!({"tools": {}, "resources": {}, "extensions": {EXTENSION: {}}});
    a.result(&probe, json!({"supportedVersions": ["2026-07-28"], "capabilities": capabilities})).await;
    for _ in 0..3 {
        let asked = a.next().await.unwrap();
        let member = match asked["method"].as_str().unwrap() {
            "tools/list" => "tools",
            "resources/list" => "resources",
            _ => "resourceTemplates",
        };
        let tools = json!([{"name": "t", "inputSchema": {"type": "object"}}]);
        let items = if member == "tools" { tools } else { json!([]) };
        a.result(&asked, json!({member: items, "resultType": "complete", "ttlMs": 0, "cacheScope": "public"})).await;
    }
    let id = make(&mut host, &mut a).await;
    let link = |uri: &str| json!({"content": [{"type": "resource_link", "name": "w", "uri": uri}]});
    let completed = task("completed", json!({"result": link("ui://w/x")}));
    let (_, answer) = about(&mut host, &mut a, "tasks/get", &id, json!({}), completed).await;
    assert_eq!(answer["result"]["result"], link("ui://a/w/x"));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn tsk1_an_id_is_good_for_a_later_gateway_and_no_other_is_good_for_any() {
    let (world, mut host, mut a) = offering(server("a")).await;
    let id = make(&mut host, &mut a).await;
    world.end().await;
    let (world, mut host, mut a) = offering(server("a")).await;
    let (request, answer) = about(&mut host, &mut a, "tasks/get", &id, json!({}), task("working", json!({}))).await;
    assert_eq!((&request["params"]["taskId"], &answer["result"]["taskId"]), (&json!("n-77"), &json!(id)));
    let changed = format!("{}{}", &id[..20], if &id[20..21] == "A" { "B" } else { "A" }) + &id[21..];
    for bad in ["n-77", "t1.", "t1.AAAA", "", &changed, &id[3..]] {
        for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
            host.ask(1, method, params(json!({"taskId": bad, "inputResponses": {}}))).await;
            assert_eq!(host.answer(1).await["error"]["code"], -32602, "{method} {bad}");
        }
    }
    for bad in [json!({}), json!({"taskId": 7})] {
        host.ask(1, "tasks/get", params(bad)).await;
        assert_eq!(host.answer(1).await["error"]["code"], -32602);
    }
    host.ask(1, "tasks/update", params(json!({"taskId": id}))).await;
    assert_eq!(host.answer(1).await["error"]["code"], -32602, "without answers");
    a.quiet(Duration::from_secs(5)).await;
    world.end().await;
}

/// SUB-11.
#[tokio::test(start_paused = true)]
async fn tsk3_a_host_that_did_not_declare_it_has_no_tasks() {
    let (world, mut host, mut a) = offering(server("a")).await;
    let id = make(&mut host, &mut a).await;
    let missing = json!({"requiredCapabilities": {"extensions": {EXTENSION: {}}}});
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        host.ask(1, method, modern(json!({"taskId": id, "inputResponses": {}}))).await;
        let answer = host.answer(1).await;
        assert_eq!((&answer["error"]["code"], &answer["error"]["data"]), (&json!(-32021), &missing), "{method}");
    }
    host.ask(2, "subscriptions/listen", modern(json!({"notifications": {"taskIds": [id]}}))).await;
    let answer = host.answer(2).await;
    assert_eq!((&answer["error"]["code"], &answer["error"]["data"]), (&json!(-32021), &missing));
    // It is not offered to its servers, and not given to it.
    host.ask(3, "tools/call", modern(json!({"name": "a__t"}))).await;
    let call = a.expect("tools/call").await;
    assert_eq!(call["params"]["_meta"][CAPABILITIES], json!({}));
    a.result(&call, task("working", json!({"resultType": "task"}))).await;
    assert_eq!(host.answer(3).await["error"]["data"]["reason"], "invalid-downstream-result");
    // What the server wants of it, it is told.
    host.ask(4, "tools/call", modern(json!({"name": "a__t"}))).await;
    let call = a.expect("tools/call").await;
    let error = json!({"code": -32021, "message": "tasks!", "data": missing});
    a.say(json!({"jsonrpc": "2.0", "id": call["id"], "error": error})).await;
    let answer = host.answer(4).await;
    assert_eq!((&answer["error"]["code"], &answer["error"]["data"]), (&json!(-32021), &missing));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn tsk4_nothing_but_a_call_of_a_tool_becomes_a_task() {
    let mut world = World::new(vec![server("a")]);
    let mut host = world.host();
    let mut a = world.accept("a").await;
    let probe = a.expect("server/discover").await;
    let capabilities = json!({"prompts": {}, "extensions": {EXTENSION: {}}});
    a.result(&probe, json!({"supportedVersions": ["2026-07-28"], "capabilities": capabilities})).await;
    let asked = a.expect("prompts/list").await;
    a.result(&asked, json!({"prompts": [{"name": "p"}], "resultType": "complete"})).await;
    host.ask(1, "prompts/get", params(json!({"name": "a__p"}))).await;
    let request = a.expect("prompts/get").await;
    a.result(&request, task("working", json!({"resultType": "task"}))).await;
    assert_eq!(host.answer(1).await["error"]["data"]["reason"], "invalid-downstream-result");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn tsk5_a_task_whose_tool_is_hidden_now_is_not_found() {
    let (world, mut host, mut a) = offering(server("a")).await;
    let id = make(&mut host, &mut a).await;
    world.end().await;
    let mut settings = server("a");
    settings.tools.deny.push("t".into());
    let (world, mut host, mut a) = offering(settings).await;
    host.ask(1, "tasks/get", params(json!({"taskId": id}))).await;
    assert_eq!(host.answer(1).await["error"], json!({"code": -32602, "message": "Task not found"}));
    // Nor is anything told of it.
    host.ask("L", "subscriptions/listen", params(json!({"notifications": {"taskIds": [id]}}))).await;
    let first = host.expect("notifications/subscriptions/acknowledged").await;
    assert_eq!(first["params"]["notifications"], json!({}));
    a.quiet(Duration::from_secs(5)).await;
    world.end().await;
}

/// Contract §4: each question that reaches a server counts for its rate, and is refused as such.
#[tokio::test(start_paused = true)]
async fn d104_questions_about_tasks_are_within_the_rate_of_the_server() {
    let mut settings = server("a");
    let rate = Rate { count: NonZeroU32::new(2).unwrap(), per: Duration::from_secs(60) };
    settings.limits.rate = Some((rate, None));
    let (world, mut host, mut a) = offering(settings).await;
    let id = make(&mut host, &mut a).await;
    about(&mut host, &mut a, "tasks/get", &id, json!({}), task("working", json!({}))).await;
    host.ask(1, "tasks/get", params(json!({"taskId": id}))).await;
    let error = host.answer(1).await["error"].clone();
    assert_eq!(error["code"], 4290, "{error}");
    assert_eq!(error["data"]["reason"], "rate-limited", "{error}");
    a.quiet(Duration::from_secs(5)).await;
    world.end().await;
}

/// Opens a stream for these tasks at the host, and acknowledges what the server is asked for then.
async fn watch(host: &mut End, a: &mut End, id: &str, tasks: &[&str], native: &[&str]) -> Value {
    host.ask(id, "subscriptions/listen", params(json!({"notifications": {"taskIds": tasks}}))).await;
    let asked = a.expect("subscriptions/listen").await;
    assert_eq!(asked["params"]["notifications"], json!({"taskIds": native}));
    assert_eq!(asked["params"]["_meta"][CAPABILITIES], json!({"extensions": {EXTENSION: {}}}), "TSK-3");
    let params = json!({"notifications": {"taskIds": native}, "_meta": {SUBSCRIPTION: asked["id"]}});
    a.tell("notifications/subscriptions/acknowledged", params).await;
    asked
}

async fn tell(a: &mut End, stream: &Value, mut state: Value) {
    state["_meta"] = json!({SUBSCRIPTION: stream["id"], "acme/x": 1});
    a.tell("notifications/tasks", state).await;
}

#[tokio::test(start_paused = true)]
async fn tsk2_sub6_news_of_tasks_come_on_the_streams_that_asked_for_them() {
    let (world, mut host, mut a) = offering(server("a")).await;
    let id = make(&mut host, &mut a).await;
    let stream = watch(&mut host, &mut a, "L", &[&id, "t1.foreign"], &["n-77"]).await;
    let first = host.expect("notifications/subscriptions/acknowledged").await;
    assert_eq!(first["params"]["notifications"], json!({"taskIds": [id]}), "SUB-5");
    assert_eq!(first["params"]["_meta"][SUBSCRIPTION], "L");
    let asks = json!({"inputRequests": {"k": {"method": "elicitation/create", "params": form("Sure?")}}});
    tell(&mut a, &stream, task("input_required", asks)).await;
    let told = host.expect("notifications/tasks").await;
    assert_eq!((&told["params"]["taskId"], &told["params"]["status"]), (&json!(id), &json!("input_required")));
    assert_eq!(told["params"]["_meta"], json!({"acme/x": 1, SUBSCRIPTION: "L"}));
    assert_eq!(told["params"]["inputRequests"]["k"]["params"]["message"], "[a] Sure?");
    assert_eq!(told["params"].get("resultType"), None);
    tell(&mut a, &stream, task("completed", json!({"result": text("done")}))).await;
    let told = host.expect("notifications/tasks").await;
    assert_eq!(told["params"]["result"]["content"][0]["text"], "done");
    // Tasks of nobody are nobody's affair.
    let mut other = task("working", json!({}));
    other["taskId"] = json!("n-78");
    tell(&mut a, &stream, other).await;
    host.quiet(Duration::from_secs(5)).await;
    // With the last that wants to know, the server's stream ends.
    host.tell("notifications/cancelled", cancelled("L")).await;
    assert_eq!(a.expect("notifications/cancelled").await["params"]["requestId"], stream["id"]);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn sub3_streams_that_open_at_once_are_both_known_to_be_open() {
    let mut world = World::new(vec![server("a")]);
    let mut host = world.host();
    let mut a = world.accept("a").await;
    let capabilities = json!({"tools": {"listChanged": true}, "extensions": {EXTENSION: {}}});
    let lists = a.modern_with(&["t"], capabilities).await;
    let id = make(&mut host, &mut a).await;
    host.ask("L", "subscriptions/listen", params(json!({"notifications": {"taskIds": [id]}}))).await;
    let tasks = a.expect("subscriptions/listen").await;
    let opened = |stream: &Value| {
        let params = json!({"notifications": stream["params"]["notifications"], "_meta": {SUBSCRIPTION: stream["id"]}});
        json!({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": params})
    };
    // In one piece, so that both are read before anybody looks.
    a.raw(format!("{}\n{}\n", opened(&tasks), opened(&lists))).await;
    let first = host.expect("notifications/subscriptions/acknowledged").await;
    assert_eq!(first["params"]["notifications"], json!({"taskIds": [id]}));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn tsk2_a_server_that_tells_of_no_task_is_left_out_of_the_acknowledgement() {
    let (world, mut host, mut a) = offering(server("a")).await;
    let id = make(&mut host, &mut a).await;
    host.ask("L", "subscriptions/listen", params(json!({"notifications": {"taskIds": [id]}}))).await;
    let asked = a.expect("subscriptions/listen").await;
    let params = json!({"notifications": {}, "_meta": {SUBSCRIPTION: asked["id"]}});
    a.tell("notifications/subscriptions/acknowledged", params).await;
    let first = host.expect("notifications/subscriptions/acknowledged").await;
    assert_eq!(first["params"]["notifications"], json!({}));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn tsk9_a_legacy_host_has_nothing_of_it() {
    let (world, mut host, mut a) = offering(server("a")).await;
    let declared = json!({"extensions": {EXTENSION: {}}, "tasks": {"requests": {"elicitation": {"create": {}}}}});
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": declared,
        "clientInfo": {"name": "t", "version": "0"}});
    host.ask(1, "initialize", params).await;
    let offered = &host.answer(1).await["result"]["capabilities"];
    assert!(offered.get("extensions").is_none() && offered.get("tasks").is_none(), "TSK-6: {offered}");
    for method in ["tasks/get", "tasks/result", "tasks/list", "tasks/cancel", "tasks/update"] {
        host.ask(2, method, json!({"taskId": "n-77"})).await;
        assert_eq!(host.answer(2).await["error"]["code"], -32601, "{method}");
    }
    host.ask(3, "tools/call", json!({"name": "a__t", "task": {"ttl": 5}})).await;
    let call = a.expect("tools/call").await;
    assert_eq!(call["params"]["_meta"][CAPABILITIES], json!({}));
    assert_eq!(call["params"].get("task"), None);
    let data = json!({"requiredCapabilities": {"extensions": {EXTENSION: {}}}});
    let error = json!({"code": -32021, "message": "tasks!", "data": data});
    a.say(json!({"jsonrpc": "2.0", "id": call["id"], "error": error})).await;
    assert_eq!(host.answer(3).await["error"]["code"], -32603);
    world.end().await;
}

// Tools of legacy servers that can be called as tasks only.

/// Plays a legacy server that takes calls as tasks, up to its list, or without one.
pub(crate) async fn legacy_tasks(a: &mut End, lists: bool) -> Value {
    let capabilities = json!({"tools": {"listChanged": true}, "logging": {},
        "tasks": {"requests": {"tools": {"call": {}}}, "cancel": {}}});
    if lists {
        let probe = a.expect("server/discover").await;
        a.error(&probe, -32601).await;
    }
    let opening = a.expect("initialize").await;
    let result = json!({"protocolVersion": "2025-11-25", "serverInfo": {"name": "t", "version": "0"},
        "capabilities": capabilities});
    a.result(&opening, result).await;
    a.expect("notifications/initialized").await;
    if lists {
        let asked = a.expect("tools/list").await;
        a.result(&asked, tools()).await;
    }
    opening["params"]["capabilities"].clone()
}

fn tools() -> Value {
    json!({"tools": [{"name": "t", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "required"}},
        {"name": "o", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "optional"}}]})
}

/// Such a server `a`, and a legacy host that declares nothing and has listed.
async fn driven() -> (World, End, End) {
    let mut world = World::new(vec![server("a")]);
    let mut host = world.host();
    let mut a = world.accept("a").await;
    legacy_tasks(&mut a, true).await;
    host.open("2025-11-25").await;
    assert_eq!(host.list().await, ["a__t", "a__o"]);
    host.quiet(Duration::from_secs(2)).await;
    (world, host, a)
}

/// A task of the older design.
fn old(id: &str, status: &str) -> Value {
    json!({"taskId": id, "status": status, "createdAt": "2026-01-01T00:00:00Z",
        "lastUpdatedAt": "2026-01-01T00:00:00Z", "ttl": 60_000, "pollInterval": 500})
}

/// Answers the call that makes a task.
async fn made(a: &mut End, id: &str) -> Value {
    let call = a.expect("tools/call").await;
    assert_eq!(call["params"]["task"], json!({}), "{call}");
    a.result(&call, json!({"task": old(id, "working")})).await;
    call
}

/// Answers the next look at a task.
async fn looked_at(a: &mut End, id: &str, status: &str) {
    let look = a.expect("tasks/get").await;
    assert_eq!(look["params"], json!({"taskId": id}));
    a.result(&look, old(id, status)).await;
}

#[tokio::test(start_paused = true)]
async fn tsk7_a_tool_that_is_a_task_only_is_a_call_to_the_host() {
    let (world, mut host, mut a) = driven().await;
    host.ask("l", "tools/list", json!({})).await;
    assert_eq!(host.answer("l").await["result"]["tools"][0].get("execution"), None);
    let meta = json!({"progressToken": "mine", "acme/x": 1});
    host.ask(1, "tools/call", json!({"name": "a__t", "arguments": {"x": 1.50}, "_meta": meta})).await;
    let call = made(&mut a, "n-1").await;
    assert_eq!((&call["params"]["name"], &call["params"]["arguments"]), (&json!("t"), &json!({"x": 1.50})));
    assert_eq!(call["params"]["_meta"]["acme/x"], 1);
    let start = Instant::now();
    looked_at(&mut a, "n-1", "working").await;
    took(start, Duration::from_millis(500));
    // The token lives until the task is over.
    let token = &call["params"]["_meta"]["progressToken"];
    a.tell("notifications/progress", json!({"progressToken": token, "progress": 1})).await;
    let told = host.expect("notifications/progress").await;
    assert_eq!(told["params"], json!({"progressToken": "mine", "progress": 1}));
    looked_at(&mut a, "n-1", "completed").await;
    let result = a.expect("tasks/result").await;
    assert_eq!(result["params"], json!({"taskId": "n-1"}));
    let answer = json!({"content": [{"type": "text", "text": "done"}], "_meta": {RELATED: {"taskId": "n-1"}}});
    a.result(&result, answer).await;
    assert_eq!(host.answer(1).await["result"], json!({"content": [{"type": "text", "text": "done"}]}));
    // Nothing more is said of it.
    a.quiet(Duration::from_secs(60)).await;
    // One that may be one is called as ever.
    host.call(2, "a__o").await;
    let call = a.expect("tools/call").await;
    assert_eq!(call["params"].get("task"), None);
    a.result(&call, text("plain")).await;
    assert_eq!(text_of(&host.answer(2).await), "plain");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn tsk7_what_fails_fails_as_the_server_says() {
    let (world, mut host, mut a) = driven().await;
    // It is not even begun.
    host.call(1, "a__t").await;
    let call = a.expect("tools/call").await;
    a.error(&call, -32602).await;
    assert_eq!(host.answer(1).await["error"], json!({"code": -32602, "message": "no"}));
    // Done at once, against the rules.
    host.call(2, "a__t").await;
    let call = a.expect("tools/call").await;
    a.result(&call, text("at once")).await;
    assert_eq!(text_of(&host.answer(2).await), "at once");
    // A result that says that it failed, and an error.
    host.call(3, "a__t").await;
    made(&mut a, "n-3").await;
    looked_at(&mut a, "n-3", "failed").await;
    let result = a.expect("tasks/result").await;
    a.result(&result, json!({"content": [], "isError": true, "_meta": {RELATED: {"taskId": "n-3"}, "acme/x": 1}}))
        .await;
    let answer = host.answer(3).await;
    assert_eq!(answer["result"], json!({"content": [], "isError": true, "_meta": {"acme/x": 1}}));
    host.call(4, "a__t").await;
    made(&mut a, "n-4").await;
    looked_at(&mut a, "n-4", "failed").await;
    let result = a.expect("tasks/result").await;
    a.error(&result, -32000).await;
    assert_eq!(host.answer(4).await["error"], json!({"code": -32000, "message": "no"}));
    // It has forgotten it.
    host.call(5, "a__t").await;
    made(&mut a, "n-5").await;
    let look = a.expect("tasks/get").await;
    a.error(&look, -32602).await;
    assert_eq!(host.answer(5).await["error"]["data"]["reason"], "invalid-downstream-result");
    // It ends with a task in it.
    host.call(6, "a__t").await;
    made(&mut a, "n-6").await;
    drop(a);
    assert_eq!(host.answer(6).await["error"]["data"]["reason"], "downstream-unavailable");
    world.end().await;
}

/// The task is ended, by its own word alone; also one whose name is not known yet.
#[tokio::test(start_paused = true)]
async fn tsk7_a_host_that_gives_up_ends_the_task() {
    let (world, mut host, mut a) = driven().await;
    host.call(1, "a__t").await;
    made(&mut a, "n-1").await;
    looked_at(&mut a, "n-1", "working").await;
    host.tell("notifications/cancelled", cancelled(1)).await;
    let cancel = a.expect("tasks/cancel").await;
    assert_eq!(cancel["params"], json!({"taskId": "n-1"}));
    a.result(&cancel, old("n-1", "cancelled")).await;
    host.call(2, "a__t").await;
    let call = a.expect("tools/call").await;
    host.tell("notifications/cancelled", cancelled(2)).await;
    a.quiet(Duration::from_secs(1)).await;
    a.result(&call, json!({"task": old("n-2", "working")})).await;
    assert_eq!(a.expect("tasks/cancel").await["params"], json!({"taskId": "n-2"}));
    host.call(3, "a__t").await;
    made(&mut a, "n-3").await;
    looked_at(&mut a, "n-3", "completed").await;
    a.expect("tasks/result").await;
    host.tell("notifications/cancelled", cancelled(3)).await;
    assert_eq!(a.expect("tasks/cancel").await["params"], json!({"taskId": "n-3"}));
    a.quiet(Duration::from_secs(60)).await;
    host.quiet(Duration::from_secs(5)).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn tsk7_tmo1_a_task_that_does_not_end_is_ended() {
    // A server that says nothing of it…
    let (world, mut host, mut a) = driven().await;
    let start = Instant::now();
    host.call(1, "a__t").await;
    made(&mut a, "n-1").await;
    a.expect("tasks/get").await;
    let answer = host.answer(1).await;
    assert_eq!(answer["error"]["data"]["reason"], "downstream-timeout");
    took(start, Duration::from_secs(60));
    assert_eq!(a.expect("tasks/cancel").await["params"], json!({"taskId": "n-1"}));
    // …and one that says that it works, for ever.
    let start = Instant::now();
    host.call(2, "a__t").await;
    made(&mut a, "n-2").await;
    let cancel = loop {
        let message = a.next().await.unwrap();
        if message["method"] == "tasks/cancel" {
            break message;
        }
        assert_eq!(message["method"], "tasks/get");
        a.result(&message, old("n-2", "working")).await;
    };
    assert_eq!(cancel["params"], json!({"taskId": "n-2"}));
    took(start, Duration::from_secs(15 * 60));
    assert_eq!(host.answer(2).await["error"]["data"]["reason"], "downstream-timeout");
    world.end().await;
}

/// REL-2: what a task asks belongs to its call, by the name of the task.
#[tokio::test(start_paused = true)]
async fn tsk7_rel1_a_task_asks_a_legacy_host() {
    let mut world = World::new(vec![server("a")]);
    let mut host = world.host();
    let mut base = world.accept("a").await;
    legacy_tasks(&mut base, true).await;
    let declared = json!({"elicitation": {"form": {}}, "tasks": {"list": {}, "requests": {}},
        "extensions": {EXTENSION: {}}});
    host.open_as("2025-11-25", declared).await;
    host.call(1, "a__t").await;
    let mut a = world.accept("a").await;
    assert_eq!(legacy_tasks(&mut a, false).await, json!({"elicitation": {}}), "TSK-10");
    let call = a.expect("tools/call").await;
    // Before there is a task: the time of the user is not the server's (TMO-2).
    a.ask("early", "elicitation/create", form("Early?")).await;
    let asked = host.next_but_lists().await;
    sleep(Duration::from_secs(500)).await;
    host.result(&asked, json!({"action": "cancel"})).await;
    assert_eq!(a.answer("early").await["result"], json!({"action": "cancel"}));
    a.result(&call, json!({"task": old("n-1", "working")})).await;
    looked_at(&mut a, "n-1", "input_required").await;
    let result = a.expect("tasks/result").await;
    let mut question = form("Sure?");
    question["_meta"] = json!({RELATED: {"taskId": "n-1"}});
    a.ask("q", "elicitation/create", question).await;
    let asked = host.next_but_lists().await;
    assert_eq!(asked["params"], form("[a] Sure?"), "nothing of the task");
    host.result(&asked, json!({"action": "decline"})).await;
    loop {
        let message = a.next().await.unwrap();
        if message["method"] == "tasks/get" {
            a.result(&message, old("n-1", "input_required")).await;
        } else {
            assert_eq!((&message["id"], &message["result"]), (&json!("q"), &json!({"action": "decline"})));
            break;
        }
    }
    a.result(&result, text("done")).await;
    assert_eq!(text_of(&host.answer(1).await), "done");
    world.end().await;
}

/// TSK-8: tasks of the older design stay within, also for a host that has the extension.
#[tokio::test(start_paused = true)]
async fn tsk7_tsk8_mlb2_rel2_a_task_asks_a_modern_host_by_its_own_call() {
    let mut world = World::new(vec![server("a")]);
    let mut host = world.host();
    let mut base = world.accept("a").await;
    legacy_tasks(&mut base, true).await;
    for id in [1, 2] {
        host.ask(id, "tools/call", params(json!({"name": "a__t", "arguments": {"n": id}}))).await;
    }
    let mut a = world.accept("a").await;
    legacy_tasks(&mut a, false).await;
    // The two come in no order.
    let first = made(&mut a, "n-1").await["params"]["arguments"]["n"].clone();
    made(&mut a, "n-2").await;
    // The earlier of the two asks, before it was looked at.
    let mut question = form("Sure?");
    question["_meta"] = json!({RELATED: {"taskId": "n-1"}});
    a.ask(7, "elicitation/create", question).await;
    let asked = host.next().await.unwrap();
    assert_eq!((&asked["id"], &asked["result"]["resultType"]), (&first, &json!("input_required")));
    let key = "elicitation_1";
    assert_eq!(asked["result"]["inputRequests"][key]["params"], form("[a] Sure?"));
    let answers = json!({"name": "a__t", "arguments": {"n": first}, "requestState": asked["result"]["requestState"],
        "inputResponses": {key: {"action": "decline"}}});
    host.ask(3, "tools/call", params(answers)).await;
    let mut answered = false;
    let mut results = 0;
    while !answered || results < 2 {
        let message = a.next().await.unwrap();
        let task = message["params"]["taskId"].as_str().unwrap_or_default().to_owned();
        match message["method"].as_str() {
            Some("tasks/get") => a.result(&message, old(&task, if answered { "completed" } else { "working" })).await,
            Some("tasks/result") => {
                results += 1;
                a.result(&message, text(&task)).await;
            }
            _ => {
                assert_eq!((&message["id"], &message["result"]), (&json!(7), &json!({"action": "decline"})));
                answered = true;
            }
        }
    }
    let mut got = [host.next().await.unwrap(), host.next().await.unwrap()];
    got.sort_by_key(|answer| answer["id"].as_i64());
    assert_eq!((&got[0]["id"], text_of(&got[0])), (&json!(3 - first.as_i64().unwrap()), "n-2"));
    assert_eq!((&got[1]["id"], text_of(&got[1])), (&json!(3), "n-1"));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn tsk7_a_server_that_did_not_say_so_gets_no_tasks() {
    let mut world = World::new(vec![server("a")]);
    let mut host = world.host();
    let mut a = world.accept("a").await;
    a.legacy_unlisted().await;
    let asked = a.expect("tools/list").await;
    a.result(&asked, tools()).await;
    host.open("2025-11-25").await;
    host.list().await;
    host.call(1, "a__t").await;
    let call = a.expect("tools/call").await;
    assert_eq!(call["params"].get("task"), None);
    a.result(&call, text("plain")).await;
    let answer = host.next_but_lists().await;
    assert_eq!((&answer["id"], text_of(&answer)), (&json!(1), "plain"));
    world.end().await;
}

/// EXT-1, EXT-2, EXT-4: what is not bridged is offered on no side, and its methods are unknown.
#[tokio::test(start_paused = true)]
async fn ext2_ext4_other_extensions_end_at_us() {
    let (world, mut host, mut a) = offering(server("a")).await;
    let declared = json!({"extensions": {"acme/other": {"x": 1}, "io.modelcontextprotocol/oauth-client-credentials": {}},
        "experimental": {"y": {}}});
    host.ask(1, "tools/call", modern_as(json!({"name": "a__t"}), declared.clone())).await;
    let call = a.expect("tools/call").await;
    assert_eq!(call["params"]["_meta"][CAPABILITIES], json!({}));
    a.result(&call, text("x")).await;
    host.answer(1).await;
    host.ask(2, "server/discover", modern_as(json!({}), declared.clone())).await;
    let offered = host.answer(2).await["result"]["capabilities"].clone();
    assert_eq!(
        offered.get("extensions"),
        Some(&json!({EXTENSION: {}})),
        "of those of the server, none but what is bridged"
    );
    assert_eq!(offered.get("experimental"), None);
    for method in ["acme/do", "tasks/list", "tasks/result", "ui/initialize"] {
        host.ask(3, method, modern_as(json!({}), declared.clone())).await;
        assert_eq!(host.answer(3).await["error"]["code"], -32601, "{method}");
    }
    // Nor does a result of a type that nobody declared pass, or a notification that we do not know.
    a.tell("notifications/acme", json!({})).await;
    host.ask(4, "tools/call", modern_as(json!({"name": "a__t"}), declared)).await;
    let call = a.expect("tools/call").await;
    a.result(&call, json!({"resultType": "acme", "content": []})).await;
    assert_eq!(host.answer(4).await["error"]["data"]["reason"], "invalid-downstream-result");
    world.end().await;
}
