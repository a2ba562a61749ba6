//! Tasks of servers behind a URL.

use serde_json::{Value, json};

use super::end::{End, modern_as, text, text_of};
use super::fake::{Asked, Fake, discovered};
use super::world::{World, answer, server};

fn takes(params: Value) -> Value {
    modern_as(params, json!({"extensions": {"io.modelcontextprotocol/tasks": {}}}))
}

#[tokio::test]
async fn tsk2_the_header_names_the_task_as_its_server_does() {
    let mut fake = Fake::new().await;
    let world = World::new(server(&fake.url()));
    let probe = fake.expect("server/discover").await;
    let extensions = json!({"io.modelcontextprotocol/tasks": {}});
    probe.result(discovered(json!({"tools": {}, "extensions": extensions}))).await;
    fake.expect("tools/list").await.result(super::end::list_of(&["t"])).await;
    let mut host = world.host();
    host.ask(1, "tools/call", takes(json!({"name": "a__t"}))).await;
    let state = |more: Value| {
        let mut state = json!({"taskId": "n \u{e9}", "status": "working", "ttlMs": null,
            "createdAt": "2026-08-01T10:00:00Z", "lastUpdatedAt": "2026-08-01T10:00:00Z"});
        state.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        state
    };
    let call = fake.expect("tools/call").await;
    assert_eq!(call.header("mcp-name"), Some("t"));
    call.result(state(json!({"resultType": "task"}))).await;
    let id = answer(&mut host, 1).await["result"]["taskId"].clone();
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        host.ask(2, method, takes(json!({"taskId": id, "inputResponses": {}}))).await;
        let asked = fake.expect(method).await;
        assert_eq!(asked.body["params"]["taskId"], "n \u{e9}");
        assert_eq!(asked.header("mcp-name"), Some("=?base64?biDDqQ==?="), "{method}");
        asked.result(state(json!({"resultType": "complete"}))).await;
        assert_eq!(answer(&mut host, 2).await["result"]["taskId"], id);
    }
    world.end().await;
}

/// Opens a session of a legacy server that takes calls as tasks, and refuses the stream beside it.
async fn open(fake: &mut Fake, session: &str) {
    let opening = fake.expect("initialize").await;
    let capabilities = json!({"tools": {}, "tasks": {"requests": {"tools": {"call": {}}}, "cancel": {}}});
    let result = json!({"protocolVersion": "2025-11-25", "capabilities": capabilities,
        "serverInfo": {"name": "f", "version": "0"}});
    let result = json!({"jsonrpc": "2.0", "id": opening.body["id"], "result": result}).to_string();
    let head = format!("content-type: application/json\r\nmcp-session-id: {session}\r\n");
    opening.write(200, &head, result.as_bytes()).await;
    fake.expect("notifications/initialized").await.write(202, "", b"").await;
    fake.verb("GET").await.status(405).await;
}

fn old(status: &str) -> Value {
    json!({"taskId": "n-1", "status": status, "createdAt": "2026-01-01T00:00:00Z",
        "lastUpdatedAt": "2026-01-01T00:00:00Z", "ttl": null, "pollInterval": 100})
}

/// A server with a tool `t` that is a task only, and a legacy host that shows forms and whose call runs; the call.
async fn driven() -> (World, End, Fake, Asked) {
    let mut fake = Fake::new().await;
    let world = World::new(server(&fake.url()));
    fake.expect("server/discover").await.status(400).await;
    open(&mut fake, "s1").await;
    let tool = json!({"name": "t", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "required"}});
    fake.expect("tools/list").await.result(json!({"tools": [tool]})).await;
    let mut host = world.host();
    host.open_as("2025-11-25", json!({"elicitation": {}})).await;
    host.call(1, "a__t").await;
    open(&mut fake, "s2").await;
    let call = fake.expect("tools/call").await;
    assert_eq!(call.body["params"]["task"], json!({}));
    (world, host, fake, call)
}

/// REL-2: what comes on the stream of a part belongs to the call.
#[tokio::test]
async fn tsk7_a_task_asks_on_the_stream_of_its_result() {
    let (world, mut host, mut fake, call) = driven().await;
    call.result(json!({"task": old("working")})).await;
    fake.expect("tasks/get").await.result(old("input_required")).await;
    let mut result = fake.expect("tasks/result").await;
    assert_eq!(result.header("mcp-session-id"), Some("s2"));
    result.stream().await;
    let question = json!({"message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}});
    result.event(&json!({"jsonrpc": "2.0", "id": 9, "method": "elicitation/create", "params": question})).await;
    let asked = host.next_but_lists().await;
    assert_eq!(asked["params"]["message"], "[a] Sure?");
    host.result(&asked, json!({"action": "decline"})).await;
    loop {
        let next = fake.next().await;
        if next.body["method"] == "tasks/get" {
            next.result(old("input_required")).await;
            continue;
        }
        assert_eq!((&next.body["id"], &next.body["result"]), (&json!(9), &json!({"action": "decline"})));
        next.write(202, "", b"").await;
        break;
    }
    let done = result.answer(text("done"));
    result.event(&done).await;
    result.end().await;
    assert_eq!(text_of(&answer(&mut host, 1).await), "done");
    world.end().await;
}

#[tokio::test]
async fn tsk7_a_host_that_gives_up_ends_the_task_of_a_remote_server() {
    let (world, mut host, mut fake, call) = driven().await;
    call.result(json!({"task": old("working")})).await;
    let look = fake.expect("tasks/get").await;
    host.tell("notifications/cancelled", super::end::cancelled(1)).await;
    let cancel = fake.expect("tasks/cancel").await;
    assert_eq!((&cancel.body["params"], cancel.header("mcp-session-id")), (&json!({"taskId": "n-1"}), Some("s2")));
    assert!(cancel.body["id"].is_u64());
    cancel.result(old("cancelled")).await;
    drop(look);
    fake.quiet("notifications/cancelled", std::time::Duration::from_millis(300)).await;
    world.end().await;
}

/// SES-4: a task may have done something, so its call is not sent again.
#[tokio::test]
async fn tsk7_a_task_in_a_forgotten_session_is_lost() {
    let (world, mut host, mut fake, call) = driven().await;
    call.result(json!({"task": old("working")})).await;
    fake.expect("tasks/get").await.status(404).await;
    assert_eq!(answer(&mut host, 1).await["error"]["data"]["reason"], "downstream-unavailable");
    fake.quiet("tools/call", std::time::Duration::from_millis(300)).await;
    world.end().await;
}
