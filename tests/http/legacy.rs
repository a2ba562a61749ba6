//! Legacy sessions: names, streams that can be read again, cancellation by notification alone.

use std::time::Duration;

use onegate::upstream::http::Limits;
use serde_json::{Value, json};

use super::client::{Client, Events, call, notification, request};
use super::end::{End, text, text_of};
use super::front::{Front, Setup, key, run};

/// A call with progress in a session, and the server's side of it, after the first progress.
async fn streaming(front: &Front, a: &mut End, session: &str, id: Value) -> (Events, Value) {
    let mut client = front.client().await;
    let params = json!({"name": "a__t", "arguments": {}, "_meta": {"progressToken": 1}});
    client.post("/mcp", &[("Mcp-Session-Id", session)], &request(id, "tools/call", params)).await;
    let called = a.expect("tools/call").await;
    progress(a, &called, 1).await;
    (client.stream().await, called)
}

async fn progress(a: &mut End, called: &Value, progress: u32) {
    let token = called["params"]["_meta"]["progressToken"].clone();
    a.tell("notifications/progress", json!({"progressToken": token, "progress": progress})).await;
}

async fn get(front: &Front, session: &str, more: &[(&str, &str)]) -> Client {
    let mut client = front.client().await;
    let headers = [&[("Mcp-Session-Id", session), ("Accept", "text/event-stream")], more].concat();
    client.send("GET", "/mcp", &headers, b"").await;
    client
}

#[test]
fn d072_sessions_are_known_by_name_and_principal() {
    run(async {
        let keys = Some(vec![key("one", "1"), key("two", "2")]);
        let (front, _a) = Front::with(Setup { keys, ..Setup::default() }).await;
        let (one, two) = (("Authorization", "Bearer 1"), ("Authorization", "Bearer 2"));
        let session = front.open_with("2025-11-25", &[one], json!({})).await;
        let list = request(1, "tools/list", json!({}));
        for (who, name, status) in [
            (one, session.as_str(), 200),
            (two, &session, 404),
            (one, "nonsense", 404),
            (one, "\"{} []", 404),
            (one, "-", 400),
        ] {
            let (head, answer) = front.ask("/mcp", &[who, ("Mcp-Session-Id", name)], &list).await;
            assert_eq!(head.status, status, "{name}");
            assert_eq!(answer["id"], 1, "{answer}");
            for (method, missing) in [("GET", 405), ("DELETE", 405)] {
                if (who, name) == (one, session.as_str()) {
                    continue;
                }
                let mut client = front.client().await;
                let headers = [who, ("Accept", "text/event-stream"), ("Mcp-Session-Id", name)];
                client.send(method, "/mcp", &headers[..if name == "-" { 2 } else { 3 }], b"").await;
                assert_eq!(client.head().await.status, if name == "-" { missing } else { 404 }, "{method} {name}");
            }
        }
        // VER-9
        for (version, status) in [("2025-11-25", 200), ("2025-06-18", 200), ("1999-01-01", 400), ("x", 400)] {
            let headers = [one, ("Mcp-Session-Id", session.as_str()), ("MCP-Protocol-Version", version)];
            assert_eq!(front.ask("/mcp", &headers, &list).await.0.status, status, "{version}");
        }
        // SES-3, and the name is not valid any more.
        let mut client = front.client().await;
        let headers = [one, ("Mcp-Session-Id", session.as_str())];
        client.send("DELETE", "/mcp", &headers, b"").await;
        assert_eq!(client.answer().await.0.status, 204);
        assert_eq!(front.ask("/mcp", &headers, &list).await.0.status, 404);
        front.open_with("2025-11-25", &[one], json!({})).await;
        front.end().await;
    });
}

#[test]
fn ses2_unused_sessions_end_and_used_ones_do_not() {
    run(async {
        let limits =
            Limits { session: Duration::from_millis(500), look: Duration::from_millis(50), ..Limits::default() };
        let (front, _a) = Front::with(Setup { limits, ..Setup::default() }).await;
        let (idle, busy) = (front.open("2025-11-25").await, front.open("2025-11-25").await);
        let mut stream = get(&front, &busy, &[]).await.stream().await;
        // Its stream closes when it ends; until then, asking for it would be using it.
        let mut watching = get(&front, &idle, &[]).await;
        assert_eq!(watching.head().await.status, 200);
        drop(watching);
        tokio::time::sleep(Duration::from_millis(2000)).await;
        let status = async |name: &str| {
            front.ask("/mcp", &[("Mcp-Session-Id", name)], &request(1, "ping", json!({}))).await.0.status
        };
        assert_eq!((status(&idle).await, status(&busy).await), (404, 200));
        front.world.stop.cancel();
        assert_eq!(stream.next().await, None);
        front.end().await;
    });
}

#[test]
fn ses2_the_number_of_sessions_is_bounded() {
    run(async {
        let limits = Limits { sessions_each: 3, ..Limits::default() };
        let (front, _a) = Front::with(Setup { limits, ..Setup::default() }).await;
        let first = front.open("2025-11-25").await;
        let _open = get(&front, &first, &[]).await.stream().await;
        let second = front.open("2025-11-25").await;
        let third = front.open("2025-11-25").await;
        let fourth = front.open("2025-11-25").await;
        // The oldest that is not used is gone.
        for (name, status) in [(first, 200), (second, 404), (third, 200), (fourth, 200)] {
            let (head, _) = front.ask("/mcp", &[("Mcp-Session-Id", &name)], &request(1, "ping", json!({}))).await;
            assert_eq!(head.status, status);
        }
        front.end().await;
    });
}

#[test]
fn ses7_a_broken_stream_goes_on_where_it_broke_and_no_other_does() {
    run(async {
        let (front, mut a) = Front::new().await;
        let session = front.open("2025-11-25").await;
        let (mut one, first) = streaming(&front, &mut a, &session, json!(1)).await;
        let (mut two, second) = streaming(&front, &mut a, &session, json!(2)).await;
        // The event that only opens the stream.
        let opening = one.next().await.unwrap();
        assert_eq!((opening.event, opening.data.as_deref()), (None, Some("")));
        let at = one.next().await.unwrap();
        assert_eq!(at.json()["params"]["progress"], 1);
        let (opening, at) = (opening.id.unwrap(), at.id.unwrap());
        two.next().await;
        assert_ne!(two.next().await.unwrap().id.unwrap(), at, "ids are of one stream");
        drop(one);
        progress(&mut a, &first, 2).await;
        a.result(&first, text("one")).await;
        progress(&mut a, &second, 9).await;
        let mut rest = get(&front, &session, &[("Last-Event-ID", &at)]).await.stream().await;
        assert_eq!(rest.message().await["params"]["progress"], 2);
        let answer = rest.message().await;
        assert_eq!((text_of(&answer), &answer["id"]), ("one", &json!(1)));
        assert_eq!(rest.next().await, None);
        // From its beginning, and as often as one likes.
        let mut rest = get(&front, &session, &[("Last-Event-ID", &opening)]).await.stream().await;
        for _ in 0..3 {
            rest.message().await;
        }
        assert_eq!(rest.next().await, None);
        a.result(&second, text("two")).await;
        assert_eq!(two.message().await["params"]["progress"], 9);
        assert_eq!(text_of(&two.message().await), "two");
        for unknown in ["77-1", "x", "1", "-"] {
            let head = get(&front, &session, &[("Last-Event-ID", unknown)]).await.head().await;
            assert_eq!(head.status, 400, "{unknown}");
        }
        let other = front.open("2025-11-25").await;
        assert_eq!(get(&front, &other, &[("Last-Event-ID", &at)]).await.head().await.status, 400);
        front.end().await;
    });
}

#[test]
fn ses9_a_legacy_host_that_goes_away_has_not_cancelled() {
    run(async {
        let (front, mut a) = Front::new().await;
        let session = front.open("2025-06-18").await;
        let mut client = front.client().await;
        client.post("/mcp", &[("Mcp-Session-Id", &session)], &call(1, "a__t")).await;
        let called = a.expect("tools/call").await;
        drop(client);
        // Its id is in use until the server has answered.
        let (_, answer) = front.ask("/mcp", &[("Mcp-Session-Id", &session)], &call(1, "a__t")).await;
        assert_eq!(answer["error"]["code"], -32600, "ENV-2: {answer}");
        a.result(&called, text("nobody waits")).await;
        // Nothing was cancelled: the next message is the next call.
        let mut client = front.client().await;
        client.post("/mcp", &[("Mcp-Session-Id", &session)], &call(2, "a__t")).await;
        let called = a.expect("tools/call").await;
        a.result(&called, text("two")).await;
        assert_eq!(text_of(&client.answer().await.1), "two");
        front.end().await;
    });
}

#[test]
fn can1_a_cancelled_call_ends_its_stream_without_an_answer() {
    run(async {
        let (front, mut a) = Front::new().await;
        let session = front.open("2025-06-18").await;
        let headers = [("Mcp-Session-Id", session.as_str())];
        let (mut stream, called) = streaming(&front, &mut a, &session, json!("s")).await;
        let mut plain = front.client().await;
        plain.post("/mcp", &headers, &call("p", "a__t")).await;
        let also = a.expect("tools/call").await;
        // This one takes no stream that could end.
        let mut json_only = front.client().await;
        json_only.post("/mcp", &[headers[0], ("Accept", "application/json")], &call("j", "a__t")).await;
        let third = a.expect("tools/call").await;
        for (id, called) in [("s", &called), ("p", &also), ("j", &third)] {
            let cancel = notification("notifications/cancelled", json!({"requestId": id, "reason": "enough"}));
            assert_eq!(front.ask("/mcp", &headers, &cancel).await.0.status, 202);
            let cancelled = a.expect("notifications/cancelled").await;
            assert_eq!(cancelled["params"], json!({"requestId": called["id"], "reason": "enough"}));
        }
        assert_eq!(stream.message().await["params"]["progress"], 1);
        assert_eq!(stream.next().await, None);
        assert_eq!(plain.stream().await.next().await, None);
        let (head, answer) = json_only.answer().await;
        assert_eq!((head.status, head.get("content-type"), answer), (202, "", Value::Null));
        front.end().await;
    });
}

#[test]
fn ses6_changes_are_told_on_the_stream_of_the_session_and_the_newest_one_only() {
    run(async {
        let (front, mut a) = Front::new().await;
        let session = front.open("2025-11-25").await;
        let mut old = get(&front, &session, &[]).await.stream().await;
        let mut new = get(&front, &session, &[]).await.stream().await;
        assert_eq!(old.next().await, None, "SES-5: it was replaced");
        a.tell("notifications/tools/list_changed", json!({})).await;
        a.listed(&["t", "u"]).await;
        assert_eq!(new.message().await, json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}));
        // What changes while there is no stream is told on the next, once.
        drop(new);
        let other = front.open("2025-11-25").await;
        let mut watch = get(&front, &other, &[]).await.stream().await;
        for tools in [&["t"][..], &["t", "v"]] {
            a.tell("notifications/tools/list_changed", json!({})).await;
            a.listed(tools).await;
            watch.message().await;
        }
        let mut next = get(&front, &session, &[]).await.stream().await;
        assert_eq!(next.message().await["method"], "notifications/tools/list_changed");
        front.world.stop.cancel();
        assert_eq!(next.next().await, None);
        front.end().await;
    });
}

#[test]
fn ver8_what_changes_before_a_host_is_ready_is_told_then() {
    run(async {
        let (front, mut a) = Front::new().await;
        let other = front.open("2025-11-25").await;
        let mut watch = get(&front, &other, &[]).await.stream().await;
        let params =
            json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}});
        let (head, _) = front.ask("/mcp", &[], &request(0, "initialize", params)).await;
        let session = head.get("mcp-session-id").to_owned();
        let mut stream = get(&front, &session, &[]).await.stream().await;
        a.tell("notifications/tools/list_changed", json!({})).await;
        a.listed(&["t", "u"]).await;
        watch.message().await;
        let early = tokio::time::timeout(Duration::from_millis(50), stream.next()).await;
        assert!(early.is_err(), "{early:?}");
        let ready = notification("notifications/initialized", json!({}));
        assert_eq!(front.ask("/mcp", &[("Mcp-Session-Id", &session)], &ready).await.0.status, 202);
        assert_eq!(stream.message().await["method"], "notifications/tools/list_changed");
        front.end().await;
    });
}

/// SES-10.
#[test]
fn env9_arrays_are_served_in_one_revision() {
    run(async {
        let (front, mut a) = Front::new().await;
        let session = front.open("2025-03-26").await;
        let headers = [("Mcp-Session-Id", session.as_str())];
        let array = json!([
            request(1, "ping", json!({})),
            call(2, "a__t"),
            notification("notifications/none", json!({})),
            request(3, "initialize", json!({"protocolVersion": "2025-03-26"})),
            {"jsonrpc": "2.0", "id": 4},
        ]);
        let mut client = front.client().await;
        client.post("/mcp", &headers, &array).await;
        let called = a.expect("tools/call").await;
        a.result(&called, text("two")).await;
        let (head, answers) = client.answer().await;
        assert_eq!(head.status, 200);
        let mut answers = answers.as_array().unwrap().clone();
        answers.sort_by_key(|answer| answer["id"].as_u64());
        let ids: Vec<_> = answers.iter().map(|answer| answer["id"].clone()).collect();
        assert_eq!(ids, [1, 2, 3, 4]);
        assert_eq!(text_of(&answers[1]), "two");
        assert_eq!((&answers[2]["error"]["code"], &answers[3]["error"]["code"]), (&json!(-32600), &json!(-32600)));
        // Nothing to answer.
        let told = json!([notification("notifications/none", json!({}))]);
        assert_eq!(front.ask("/mcp", &headers, &told).await.0.status, 202);
        assert_eq!(front.ask("/mcp", &headers, &json!([])).await.0.status, 400);
        let many: Vec<_> = (0..200).map(|n| request(n, "ping", json!({}))).collect();
        let (_, answers) = front.ask("/mcp", &headers, &json!(many)).await;
        let refused = answers.as_array().unwrap().iter().filter(|answer| answer["error"]["data"]["reason"] == "limit");
        assert_eq!((answers.as_array().unwrap().len(), refused.count()), (200, 72));
        let other = front.open("2025-06-18").await;
        let (head, answer) = front.ask("/mcp", &[("Mcp-Session-Id", &other)], &array).await;
        assert_eq!((head.status, &answer["error"]["code"]), (400, &json!(-32600)));
        front.end().await;
    });
}

/// A call of a session that its server asks something about: its stream, that end of the server, the call there, the
/// question.
async fn asking(front: &mut Front, session: &str) -> (Events, End, Value, Value) {
    let mut client = front.client().await;
    client.post("/mcp", &[("Mcp-Session-Id", session)], &call(1, "a__t")).await;
    let mut leased = front.world.accept("a").await;
    leased.leased("2025-11-25").await;
    let called = leased.expect("tools/call").await;
    leased.ask(5, "elicitation/create", form()).await;
    let mut stream = client.stream().await;
    stream.next().await;
    let question = stream.message().await;
    (stream, leased, called, question)
}

fn form() -> Value {
    json!({"message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}})
}

#[test]
fn what_nobody_can_answer_any_more_holds_up_nothing() {
    run(async {
        let (mut front, _base) = Front::new().await;
        let session = front.open_with("2025-11-25", &[], json!({"elicitation": {}})).await;
        let (mut stream, mut leased, called, _question) = asking(&mut front, &session).await;
        front.world.stop.cancel();
        // What is asked already, and what is asked from now on.
        assert_eq!(leased.answer(5).await["result"]["action"], "cancel");
        leased.ask(6, "elicitation/create", form()).await;
        assert_eq!(leased.answer(6).await["result"]["action"], "cancel");
        leased.result(&called, text("done")).await;
        assert_eq!(text_of(&stream.message().await), "done");
        assert_eq!(stream.next().await, None);
        front.end().await;
    });
}

#[test]
fn what_goes_on_without_its_client_ends_when_serving_is_given_up() {
    run(async {
        let (front, mut a) = Front::new().await;
        let session = front.open("2025-11-25").await;
        let (stream, called) = streaming(&front, &mut a, &session, json!(1)).await;
        drop(stream);
        front.give_up().await;
        assert_eq!(a.expect("notifications/cancelled").await["params"]["requestId"], called["id"]);
        front.world.stop.cancel();
        front.world.end().await;
    });
}

#[test]
fn rel2_a_server_asks_on_the_stream_of_the_call_and_is_answered_by_a_post() {
    run(async {
        let (mut front, _base) = Front::new().await;
        let session = front.open_with("2025-11-25", &[], json!({"elicitation": {}})).await;
        let headers = [("Mcp-Session-Id", session.as_str())];
        let (mut stream, mut leased, called, question) = asking(&mut front, &session).await;
        assert_eq!(
            (&question["method"], &question["params"]["message"]),
            (&json!("elicitation/create"), &json!("[a] Sure?"))
        );
        let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}});
        assert_eq!(front.ask("/mcp", &headers, &answer).await.0.status, 202);
        assert_eq!(leased.answer(5).await["result"]["action"], "decline");
        // One that nobody asked for is dropped (§4.1).
        assert_eq!(front.ask("/mcp", &headers, &answer).await.0.status, 202);
        leased.result(&called, text("done")).await;
        assert_eq!(text_of(&stream.message().await), "done");
        front.end().await;
    });
}

/// URL-1: of two sessions of one caller, on one connection to the server, the one that was to open the URL is told, on
/// its own stream; the other one is not.
#[test]
fn url1_that_a_url_was_opened_is_told_to_its_session_when_the_call_is_over() {
    run(async {
        let (mut front, _base) = Front::new().await;
        let can = || json!({"elicitation": {"url": {}}});
        let (one, two) =
            (front.open_with("2025-11-25", &[], can()).await, front.open_with("2025-11-25", &[], can()).await);
        let mut leased: Option<End> = None;
        for (session, id) in [(&one, "e-1"), (&two, "e-2")] {
            let mut client = front.client().await;
            client.post("/mcp", &[("Mcp-Session-Id", session)], &call(1, "a__t")).await;
            if leased.is_none() {
                let mut opened = front.world.accept("a").await;
                opened.leased("2025-11-25").await;
                leased = Some(opened);
            }
            let server = leased.as_mut().unwrap();
            let called = server.expect("tools/call").await;
            let url = json!({"mode": "url", "message": "Open?", "url": "https://x.test/", "elicitationId": id});
            server.ask(id, "elicitation/create", url).await;
            let mut stream = client.stream().await;
            stream.next().await;
            let question = stream.message().await;
            let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept"}});
            assert_eq!(front.ask("/mcp", &[("Mcp-Session-Id", session)], &answer).await.0.status, 202);
            server.answer(id).await;
            server.result(&called, text("done")).await;
            assert_eq!(text_of(&stream.message().await), "done");
        }
        let server = leased.as_mut().unwrap();
        let mut streams = [get(&front, &one, &[]).await.stream().await, get(&front, &two, &[]).await.stream().await];
        for id in ["e-2", "e-1", "e-0"] {
            server.tell("notifications/elicitation/complete", json!({"elicitationId": id})).await;
        }
        for (stream, id) in streams.iter_mut().zip(["e-1", "e-2"]) {
            let told = stream.message().await;
            assert_eq!(told["method"], "notifications/elicitation/complete");
            assert_eq!(told["params"], json!({"elicitationId": id}));
        }
        // Whatever it said before this was taken when this is answered.
        server.ask("fence", "ping", json!({})).await;
        server.answer("fence").await;
        front.world.stop.cancel();
        for mut stream in streams {
            assert_eq!(stream.next().await, None);
        }
        front.end().await;
    });
}
