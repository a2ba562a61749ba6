//! Tasks over HTTP: the header that names one, whose it is, the status of a refusal, and a stream that tells of one.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::timeout;

use super::client::request;
use super::end::{End, modern, modern_as, text};
use super::front::{Front, Setup, key, run};

const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

fn takes(params: Value) -> Value {
    modern_as(params, json!({"extensions": {"io.modelcontextprotocol/tasks": {}}}))
}

fn task(status: &str, more: &[(&str, Value)]) -> Value {
    let mut task = json!({"taskId": "n-77", "status": status, "createdAt": "2026-08-01T10:00:00Z",
        "lastUpdatedAt": "2026-08-01T10:00:00Z", "ttlMs": null});
    for (name, value) in more {
        task[name] = value.clone();
    }
    task
}

/// The headers of a modern request about `name` (`-` = none), with the key of this secret.
fn headers<'a>(method: &'a str, name: &'a str, bearer: &'a str) -> [(&'static str, &'a str); 4] {
    [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", method), ("Mcp-Name", name), ("Authorization", bearer)]
}

async fn with_keys() -> (Front, End) {
    let keys = Some(vec![key("one", "first"), key("two", "second")]);
    Front::with(Setup { keys, tasks: true, ..Setup::default() }).await
}

/// Has a task made for the first key; answers its id.
async fn make(front: &Front, a: &mut End) -> String {
    let mut client = front.client().await;
    let message = request(1, "tools/call", takes(json!({"name": "a__t", "arguments": {}})));
    client.post("/mcp", &headers("tools/call", "a__t", "Bearer first"), &message).await;
    let call = a.expect("tools/call").await;
    a.result(&call, task("working", &[("resultType", json!("task"))])).await;
    let (head, answer) = client.answer().await;
    assert_eq!((head.status, &answer["result"]["resultType"]), (200, &json!("task")));
    answer["result"]["taskId"].as_str().unwrap().to_owned()
}

#[test]
fn tsk1_tsk2_tsk3_a_task_is_its_principals_and_named_by_a_header() {
    run(async {
        let (front, mut a) = with_keys().await;
        let id = make(&front, &mut a).await;
        let get = request(2, "tasks/get", takes(json!({"taskId": id})));
        let mut client = front.client().await;
        client.post("/mcp", &headers("tasks/get", &id, "Bearer first"), &get).await;
        let asked = a.expect("tasks/get").await;
        assert_eq!(asked["params"]["taskId"], "n-77");
        a.result(&asked, task("completed", &[("result", text("done"))])).await;
        let (head, answer) = client.answer().await;
        assert_eq!((head.status, &answer["result"]["taskId"]), (200, &json!(id)));
        assert_eq!(answer["result"]["result"]["content"][0]["text"], "done");
        // Another one's is not found; what is not said alike is refused unread; who did not declare it has none.
        let plain = request(2, "tasks/get", modern(json!({"taskId": id})));
        for (name, bearer, message, status, code) in [
            (id.as_str(), "Bearer second", &get, 200, -32602),
            ("n-77", "Bearer first", &get, 400, -32020),
            ("-", "Bearer first", &get, 400, -32020),
            (&id, "Bearer first", &plain, 400, -32021),
        ] {
            let (head, answer) = front.ask("/mcp", &headers("tasks/get", name, bearer), message).await;
            assert_eq!((head.status, &answer["error"]["code"]), (status, &json!(code)), "{name} {bearer}");
        }
        let listen = request(3, "subscriptions/listen", modern(json!({"notifications": {"taskIds": [id]}})));
        let (head, answer) = front.ask("/mcp", &headers("subscriptions/listen", "-", "Bearer first"), &listen).await;
        assert_eq!((head.status, &answer["error"]["code"]), (400, &json!(-32021)));
        front.end().await;
    });
}

#[test]
fn tsk2_a_stream_tells_of_the_tasks_of_its_principal_alone() {
    run(async {
        let (front, mut a) = with_keys().await;
        let id = make(&front, &mut a).await;
        let listen = request("L", "subscriptions/listen", takes(json!({"notifications": {"taskIds": [id]}})));
        let mut foreign = front.client().await;
        foreign.post("/mcp", &headers("subscriptions/listen", "-", "Bearer second"), &listen).await;
        let mut foreign = foreign.stream().await;
        assert_eq!(foreign.message().await["params"]["notifications"], json!({}));
        let mut client = front.client().await;
        client.post("/mcp", &headers("subscriptions/listen", "-", "Bearer first"), &listen).await;
        let asked = a.expect("subscriptions/listen").await;
        assert_eq!(asked["params"]["notifications"], json!({"taskIds": ["n-77"]}));
        let stream = json!({SUBSCRIPTION: asked["id"]});
        let acknowledged = json!({"notifications": {"taskIds": ["n-77"]}, "_meta": stream});
        a.tell("notifications/subscriptions/acknowledged", acknowledged).await;
        let mut stream_of = client.stream().await;
        let first = stream_of.message().await;
        assert_eq!(first["params"]["notifications"], json!({"taskIds": [id]}));
        a.tell("notifications/tasks", task("working", &[("_meta", stream)])).await;
        let told = stream_of.message().await;
        assert_eq!((&told["method"], &told["params"]["taskId"]), (&json!("notifications/tasks"), &json!(id)));
        assert_eq!(told["params"]["_meta"][SUBSCRIPTION], "L");
        let overheard = timeout(Duration::from_millis(100), foreign.next()).await;
        assert!(overheard.is_err(), "on another one's stream: {overheard:?}");
        front.end().await;
    });
}
