//! Modern requests: headers against the body, one answer each, streams, cancellation by going away.

use std::time::Duration;

use onegate::ident::Principal;
use onegate::upstream::http::Limits;
use serde_json::{Value, json};

use super::client::{USUAL, call, notification, request};
use super::end::{modern, text, text_of};
use super::front::{Front, Setup, run};

const META: &str = "io.modelcontextprotocol/protocolVersion";

#[test]
fn hdr2_headers_repeat_the_arguments_of_a_tool_by_either_of_its_names() {
    run(async {
        let (front, mut a) = Front::new().await;
        let mut changes = front.world.gateway.changes(front.world.gateway.sight(&Principal::anonymous(), 0));
        changes.borrow_and_update();
        a.tell("notifications/tools/list_changed", json!({})).await;
        let asked = a.expect("tools/list").await;
        let schema = json!({"type": "object", "properties": {"place": {"type": "string", "x-mcp-header": "Place"}}});
        a.result(
            &asked,
            json!({"tools": [{"name": "t", "inputSchema": schema, "_meta": {"ui": {"resourceUri": "ui://w"}}}]}),
        )
        .await;
        changes.changed().await.unwrap();
        for name in ["a__t", "t"] {
            let message = request(1, "tools/call", modern(json!({"name": name, "arguments": {"place": "here"}})));
            let usual = [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "tools/call"), ("Mcp-Name", name)];
            let (head, answer) =
                front.ask("/mcp", &[&usual[..], &[("Mcp-Param-Place", "there")]].concat(), &message).await;
            assert_eq!((head.status, &answer["error"]["code"]), (400, &json!(-32020)), "{name}: {answer}");
            // XMH-5
            assert!(!answer.to_string().contains("there") && !answer.to_string().contains("here"), "{answer}");
        }
        front.end().await;
    });
}

/// INV-2, HDR-7.
///
/// Changes of a good call of `a__t`: headers by name (`-` = left out), what is wrong, the status and the code.
#[test]
fn d075_d087_headers_must_say_what_the_body_says() {
    run(async {
        let (front, mut a) = Front::new().await;
        let good = request(1, "tools/call", modern(json!({"name": "a__t", "arguments": {}})));
        let without = |pointer: &str, key: &str| {
            let mut message = good.clone();
            message.pointer_mut(pointer).unwrap().as_object_mut().unwrap().remove(key);
            message
        };
        let with = |pointer: &str, value: Value| {
            let mut message = good.clone();
            *message.pointer_mut(pointer).unwrap() = value;
            message
        };
        let version = "/params/_meta/io.modelcontextprotocol~1protocolVersion";
        let headers = |changes: &[(&'static str, &'static str)]| {
            let mut all =
                vec![("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "tools/call"), ("Mcp-Name", "a__t")];
            for &(name, value) in changes {
                all.retain(|(other, _)| *other != name);
                all.push((name, value));
            }
            all
        };
        let twice = |name: &'static str, value: &'static str| {
            let mut all = headers(&[]);
            all.push((name, value));
            all
        };
        let cases = [
            ("VER-2: no version in the body", headers(&[]), without("/params/_meta", META), 400, -32602),
            (
                "VER-4: no capabilities",
                headers(&[]),
                without("/params/_meta", "io.modelcontextprotocol/clientCapabilities"),
                400,
                -32602,
            ),
            ("no version header", headers(&[("MCP-Protocol-Version", "-")]), good.clone(), 400, -32020),
            ("another version", headers(&[("MCP-Protocol-Version", "2025-11-25")]), good.clone(), 400, -32020),
            (
                "an unknown version",
                headers(&[("MCP-Protocol-Version", "2099-01-01")]),
                with(version, json!("2099-01-01")),
                400,
                -32022,
            ),
            (
                "a legacy version",
                headers(&[("MCP-Protocol-Version", "2025-11-25")]),
                with(version, json!("2025-11-25")),
                400,
                -32022,
            ),
            ("no method", headers(&[("Mcp-Method", "-")]), good.clone(), 400, -32020),
            ("another method", headers(&[("Mcp-Method", "tools/list")]), good.clone(), 400, -32020),
            ("HDR-1: the wrong case", headers(&[("Mcp-Method", "Tools/Call")]), good.clone(), 400, -32020),
            ("no name", headers(&[("Mcp-Name", "-")]), good.clone(), 400, -32020),
            ("another name", headers(&[("Mcp-Name", "a__u")]), good.clone(), 400, -32020),
            ("the wrong case", headers(&[("Mcp-Name", "A__T")]), good.clone(), 400, -32020),
            ("an encoded other name", headers(&[("Mcp-Name", "=?base64?YV9fdQ==?=")]), good.clone(), 400, -32020),
            ("HDR-3: bad padding", headers(&[("Mcp-Name", "=?base64?YV9fdA?=")]), good.clone(), 400, -32020),
            ("HDR-6: a second name", twice("Mcp-Name", "a__u"), good.clone(), 400, -32020),
            ("a second method", twice("Mcp-Method", "ping"), good.clone(), 400, -32020),
            ("no name in the body", headers(&[]), without("/params", "name"), 400, -32020),
        ];
        for (what, headers, message, status, code) in cases {
            let (head, answer) = front.ask("/mcp", &headers, &message).await;
            assert_eq!(
                (head.status, &answer["error"]["code"], &answer["id"]),
                (status, &json!(code), &json!(1)),
                "{what}: {answer}"
            );
            assert_eq!(head.get("mcp-session-id"), "");
        }
        // Nothing of it came to the server: the next thing it sees is this.
        for name in ["a__t", "=?base64?YV9fdA==?="] {
            let mut client = front.client().await;
            let more = [("mcp-NAME", name), ("Mcp-Session-Id", "nonsense"), ("Last-Event-ID", "1-1")];
            client.post("/mcp", &[&headers(&[("Mcp-Name", "-")])[..], &more].concat(), &good).await;
            let called = a.expect("tools/call").await;
            a.result(&called, text("yes")).await;
            let (head, answer) = client.answer().await;
            assert_eq!((head.status, text_of(&answer)), (200, "yes"));
            assert_eq!(answer["result"]["resultType"], "complete");
            assert_eq!(head.get("mcp-session-id"), "", "never on modern");
        }
        front.end().await;
    });
}

#[test]
fn hdr12_status_codes_of_errors() {
    run(async {
        let (front, mut a) = Front::new().await;
        let mut client = front.client().await;
        for (method, params, status, code) in [
            ("none/such", json!({}), 404, -32601),
            ("ping", json!({}), 404, -32601),
            ("initialize", json!({}), 404, -32601),
            ("logging/setLevel", json!({}), 404, -32601),
            ("tools/call", json!({"name": "a__none"}), 200, -32602),
            ("tools/list", json!({"cursor": "x"}), 200, -32602),
            ("tools/call", json!({"name": "a__t", "arguments": 7}), 200, -32602),
        ] {
            client.modern(method, method, params).await;
            let (head, answer) = client.answer().await;
            assert_eq!((head.status, &answer["error"]["code"]), (status, &json!(code)), "{method} {answer}");
            assert_eq!(answer["id"], method);
        }
        // What a server says is no fault of the request.
        client.modern_call(1).await;
        let called = a.expect("tools/call").await;
        a.error(&called, -32601).await;
        let (head, answer) = client.answer().await;
        assert_eq!((head.status, &answer["error"]["code"]), (200, &json!(-32601)));
        // ERR-5: in a session it is an answer like others.
        let session = front.open("2025-11-25").await;
        let named = [("Mcp-Session-Id", session.as_str())];
        for (message, code) in [(call(2, "a__none"), -32602), (request(2, "none/such", json!({})), -32601)] {
            let (head, answer) = front.ask("/mcp", &named, &message).await;
            assert_eq!((head.status, &answer["error"]["code"]), (200, &json!(code)), "ERR-5: {answer}");
        }
        // VER-2: a legacy request without a session.
        for message in [call(2, "a__t"), request(2, "ping", json!({}))] {
            let (head, answer) = front.ask("/mcp", &[], &message).await;
            assert_eq!((head.status, &answer["id"]), (400, &json!(2)), "SES-2");
        }
        // HDR-10, HDR-11
        let version = [("MCP-Protocol-Version", "2026-07-28")];
        let cancel = notification("notifications/cancelled", json!({"requestId": 1}));
        assert_eq!(front.ask("/mcp", &version, &cancel).await.0.status, 202);
        let answered = json!({"jsonrpc": "2.0", "id": 1, "result": {}});
        assert_eq!(front.ask("/mcp", &version, &answered).await.0.status, 400);
        front.end().await;
    });
}

/// PRG-4.
#[test]
fn stm1_progress_makes_a_stream_of_the_answer_and_without_it_there_is_none() {
    run(async {
        let (front, mut a) = Front::new().await;
        let mut client = front.client().await;
        let mut params = modern(json!({"name": "a__t", "arguments": {}}));
        params["_meta"]["progressToken"] = json!("tok");
        let headers = [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "tools/call"), ("Mcp-Name", "a__t")];
        client.post("/mcp", &headers, &request("c", "tools/call", params.clone())).await;
        let called = a.expect("tools/call").await;
        let token = called["params"]["_meta"]["progressToken"].clone();
        a.tell("notifications/progress", json!({"progressToken": token, "progress": 1})).await;
        let mut stream = client.stream().await;
        let event = stream.next().await.unwrap();
        assert_eq!(event.id, None, "STM-3");
        assert_eq!(event.json()["params"], json!({"progressToken": "tok", "progress": 1}));
        a.result(&called, text("done")).await;
        let answer = stream.message().await;
        assert_eq!((text_of(&answer), &answer["id"]), ("done", &json!("c")));
        assert_eq!(stream.next().await, None, "the answer is the last");
        // The connection is used on, and what has no progress is one JSON text.
        let mut client = stream.client;
        client.post("/mcp", &headers, &request("d", "tools/call", params)).await;
        let called = a.expect("tools/call").await;
        a.result(&called, text("again")).await;
        assert_eq!(text_of(&client.answer().await.1), "again");
        front.end().await;
    });
}

#[test]
fn can_a_modern_host_that_goes_away_has_cancelled() {
    run(async {
        let (front, mut a) = Front::new().await;
        let mut client = front.client().await;
        client.modern_call(1).await;
        let called = a.expect("tools/call").await;
        drop(client);
        let cancelled = a.expect("notifications/cancelled").await;
        assert_eq!(cancelled["params"]["requestId"], called["id"]);
        // The same once the stream has begun.
        let mut client = front.client().await;
        let mut params = modern(json!({"name": "a__t", "arguments": {}}));
        params["_meta"]["progressToken"] = json!(1);
        let headers = [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "tools/call"), ("Mcp-Name", "a__t")];
        client.post("/mcp", &headers, &request(2, "tools/call", params)).await;
        let called = a.expect("tools/call").await;
        let token = called["params"]["_meta"]["progressToken"].clone();
        a.tell("notifications/progress", json!({"progressToken": token, "progress": 1})).await;
        let mut stream = client.stream().await;
        stream.message().await;
        drop(stream);
        assert_eq!(a.expect("notifications/cancelled").await["params"]["requestId"], called["id"]);
        front.end().await;
    });
}

#[test]
fn env2_two_hosts_may_use_the_same_id_at_once() {
    run(async {
        let (front, mut a) = Front::new().await;
        let (mut one, mut two) = (front.client().await, front.client().await);
        one.modern_call(7).await;
        let first = a.expect("tools/call").await;
        two.modern_call(7).await;
        let second = a.expect("tools/call").await;
        a.result(&second, text("two")).await;
        a.result(&first, text("one")).await;
        assert_eq!(text_of(&one.answer().await.1), "one");
        assert_eq!(text_of(&two.answer().await.1), "two");
        front.end().await;
    });
}

#[test]
fn sub3_sub12_a_listen_stream_begins_tells_lives_and_ends() {
    run(async {
        let limits = Limits { keep_alive: Duration::from_millis(50), ..Limits::default() };
        let (front, mut a) = Front::with(Setup { limits, ..Setup::default() }).await;
        let mut client = front.client().await;
        let asked = json!({"notifications": {"toolsListChanged": true, "promptsListChanged": true}});
        client.modern("L", "subscriptions/listen", asked).await;
        let mut stream = client.stream().await;
        let acknowledged = stream.message().await;
        assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged");
        assert_eq!(acknowledged["params"]["notifications"], json!({"toolsListChanged": true}), "SUB-5");
        let tag = json!({"io.modelcontextprotocol/subscriptionId": "L"});
        assert_eq!(acknowledged["params"]["_meta"], tag);
        a.tell("notifications/tools/list_changed", json!({})).await;
        a.listed(&["t", "u"]).await;
        let event = stream.next().await.unwrap();
        assert!(event.comments > 0, "HTTP-6: a change is told after 200 ms, comments come each 50 ms");
        assert_eq!(event.json()["method"], "notifications/tools/list_changed");
        assert_eq!(event.json()["params"]["_meta"], tag, "SUB-4");
        front.world.stop.cancel();
        let ended = stream.message().await;
        assert_eq!((&ended["id"], &ended["result"]["resultType"]), (&json!("L"), &json!("complete")), "SUB-12");
        assert_eq!(ended["result"]["_meta"], tag);
        assert_eq!(stream.next().await, None);
        front.end().await;
    });
}

#[test]
fn sub13_listen_streams_are_bounded_and_given_back() {
    run(async {
        let (front, _a) = Front::new().await;
        let mut streams = Vec::new();
        for n in 0..16 {
            let mut client = front.client().await;
            client.modern(n, "subscriptions/listen", json!({"notifications": {}})).await;
            let mut stream = client.stream().await;
            assert_eq!(stream.message().await["params"]["notifications"], json!({}));
            streams.push(stream);
        }
        let mut client = front.client().await;
        client.modern(16, "subscriptions/listen", json!({"notifications": {}})).await;
        let (_, answer) = client.answer().await;
        assert_eq!(answer["error"]["data"]["reason"], "limit");
        drop(streams);
        // One of them has its place again as soon as its end is seen.
        loop {
            client.modern(17, "subscriptions/listen", json!({"notifications": {}})).await;
            let head = client.head().await;
            if head.get("content-type") == "text/event-stream" {
                break;
            }
            client.body(&head).await;
        }
        front.end().await;
    });
}

#[test]
fn who_takes_no_stream_gets_the_answer_alone() {
    run(async {
        let (front, mut a) = Front::new().await;
        let mut client = front.client().await;
        let mut params = modern(json!({"name": "a__t", "arguments": {}}));
        params["_meta"]["progressToken"] = json!(1);
        let headers = [
            ("MCP-Protocol-Version", "2026-07-28"),
            ("Mcp-Method", "tools/call"),
            ("Mcp-Name", "a__t"),
            ("Accept", "application/json"),
        ];
        client.post("/mcp", &headers, &request(1, "tools/call", params)).await;
        let called = a.expect("tools/call").await;
        let token = called["params"]["_meta"]["progressToken"].clone();
        a.tell("notifications/progress", json!({"progressToken": token, "progress": 1})).await;
        a.result(&called, text("done")).await;
        assert_eq!(text_of(&client.answer().await.1), "done");
        let listen = [USUAL[0], ("Accept", "application/json"), headers[0], ("Mcp-Method", "subscriptions/listen")];
        client.post("/mcp", &listen, &request(2, "subscriptions/listen", modern(json!({"notifications": {}})))).await;
        assert_eq!(client.answer().await.0.status, 406);
        front.end().await;
    });
}
