//! What a server answers a call with, whole or broken, and what the host gets.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use super::end::{End, cancelled, modern as modern_params, modern_as, text, text_of};
use super::fake::{Fake, initialized};
use super::world::{World, answer, host, legacy, modern, server};

fn reason(answer: &Value) -> &str {
    answer["error"]["data"]["reason"].as_str().unwrap_or_else(|| panic!("no reason: {answer}"))
}

#[tokio::test]
async fn json_and_streams_answer_calls_in_both_eras() {
    for era in ["modern", "legacy"] {
        let (world, mut host, mut fake) = if era == "modern" { modern().await } else { legacy().await };
        host.call(1, "a__t").await;
        let call = fake.expect("tools/call").await;
        assert_eq!(call.body["params"]["name"], "t");
        call.result(text("as JSON")).await;
        assert_eq!(text_of(&answer(&mut host, 1).await), "as JSON", "{era}");
        host.call(2, "a__t").await;
        let mut call = fake.expect("tools/call").await;
        call.stream().await;
        let result = call.answer(text("as a stream"));
        call.event(&result).await;
        call.end().await;
        assert_eq!(text_of(&answer(&mut host, 2).await), "as a stream", "{era}");
        world.end().await;
    }
}

#[tokio::test]
async fn a_connection_serves_one_call_after_another() {
    let (world, mut host, mut fake) = modern().await;
    let before = fake.opened.load(std::sync::atomic::Ordering::SeqCst);
    for id in 0..20 {
        host.call(id, "a__t").await;
        let mut call = fake.expect("tools/call").await;
        if id % 2 == 0 {
            call.result(text("x")).await;
        } else {
            call.stream().await;
            let result = call.answer(text("x"));
            call.event(&result).await;
            call.end().await;
        }
        answer(&mut host, id).await;
    }
    let after = fake.opened.load(std::sync::atomic::Ordering::SeqCst);
    // The rest of a stream may come after its answer was taken; then one more is opened, and kept.
    assert!(after - before <= 3, "{before} connections became {after}");
    world.end().await;
}

#[tokio::test]
async fn d076_progress_comes_through_a_stream_with_everything_in_it() {
    let (world, mut host, mut fake) = modern().await;
    let params = json!({"name": "a__t", "arguments": {}, "_meta": {"progressToken": "p"}});
    host.ask(1, "tools/call", params).await;
    let mut call = fake.expect("tools/call").await;
    let token = &call.body["params"]["_meta"]["progressToken"];
    let progress = |n: u32| json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": n}});
    let result = call.answer(text("é漢")).to_string();
    let (head, tail) = result.split_at(result.find("\"result\"").unwrap());
    let stream = format!(
        ": hello\r\n\r\nid: 1\r\ndata:\r\n\r\nretry: 10\rdata: {}\r\revent: other\ndata: no\n\ndata: {}\n\nid: 2\ndata: {head}\ndata: {tail}\n\n",
        progress(1),
        progress(2),
    );
    call.stream().await;
    // Cut anywhere, also within a character.
    for piece in stream.as_bytes().chunks(7) {
        call.piece(piece).await;
    }
    call.end().await;
    for n in [1, 2] {
        let told = host.expect("notifications/progress").await;
        assert_eq!((&told["params"]["progressToken"], &told["params"]["progress"]), (&json!("p"), &json!(n)));
    }
    assert_eq!(text_of(&answer(&mut host, 1).await), "é漢");
    world.end().await;
}

#[tokio::test]
async fn d077_large_results_pass_as_json_and_as_one_line_of_a_stream() {
    let mut fake = Fake::new().await;
    let mut settings = server(&fake.url());
    settings.limits.max_result = 16 << 20;
    let world = World::new(settings);
    fake.modern(&["t"]).await;
    let mut host = host(&world).await;
    for (id, size) in [1usize << 20, 4 << 20, 12 << 20].into_iter().enumerate() {
        for (as_stream, id) in [(false, 2 * id), (true, 2 * id + 1)] {
            host.call(id, "a__t").await;
            let mut call = fake.expect("tools/call").await;
            let result = text(&"x".repeat(size));
            if as_stream {
                call.stream().await;
                let message = call.answer(result).to_string();
                call.piece("data: ").await;
                for piece in message.as_bytes().chunks(100_000) {
                    call.piece(piece).await;
                }
                call.piece("\n\n").await;
                call.end().await;
            } else {
                call.result(result).await;
            }
            assert_eq!(text_of(&answer(&mut host, id).await).len(), size, "{as_stream}");
        }
    }
    world.end().await;
}

#[tokio::test]
async fn d078_a_result_past_the_limit_fails_that_call_only_with_size_and_limit() {
    let mut fake = Fake::new().await;
    let mut settings = server(&fake.url());
    settings.limits.max_result = 100_000;
    let world = World::new(settings);
    fake.modern(&["t"]).await;
    let mut host = host(&world).await;
    for way in ["announced", "chunked", "stream", "compressed"] {
        host.call(way, "a__t").await;
        let mut call = fake.expect("tools/call").await;
        match way {
            // Refused by what was announced: nothing of it needs to come.
            "announced" => {
                call.raw("HTTP/1.1 200 X\r\ncontent-type: application/json\r\ncontent-length: 64000000\r\n\r\n{").await
            }
            "chunked" => {
                call.raw("HTTP/1.1 200 X\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")
                    .await;
                call.piece([b' '; 100_001]).await;
            }
            "stream" => {
                call.stream().await;
                call.piece("data: ").await;
                call.piece([b'x'; 100_100]).await;
            }
            _ => {
                let head = "content-type: application/json\r\ncontent-encoding: gzip\r\n";
                call.write(200, head, b"\x1f\x8b").await;
                let failed = answer(&mut host, way).await;
                assert_eq!(reason(&failed), "invalid-downstream-result");
                assert!(failed["error"]["message"].as_str().unwrap().contains("gzip"), "{failed}");
                continue;
            }
        }
        let failed = answer(&mut host, way).await;
        assert_eq!(reason(&failed), "result-too-large", "{way}");
        let message = failed["error"]["message"].as_str().unwrap();
        assert!(message.contains("100000"), "{message}");
        assert!(way != "announced" || message.contains("64000000"), "{message}");
        assert!(call.closed().await, "{way}");
    }
    host.call(9, "a__t").await;
    fake.expect("tools/call").await.result(text("the next works")).await;
    answer(&mut host, 9).await;
    world.end().await;
}

#[tokio::test]
async fn d080_a_connection_lost_in_the_middle_fails_the_call_at_once_and_nothing_is_sent_again() {
    for era in ["modern", "legacy"] {
        let (world, mut host, mut fake) = if era == "modern" { modern().await } else { legacy().await };
        let begun = Instant::now();
        host.call(1, "a__t").await;
        let mut call = fake.expect("tools/call").await;
        call.stream().await;
        call.piece(": one\n\n").await;
        call.reset();
        assert_eq!(reason(&answer(&mut host, 1).await), "downstream-unavailable", "{era}");
        host.call(2, "a__t").await;
        fake.expect("tools/call").await.reset();
        assert_eq!(reason(&answer(&mut host, 2).await), "downstream-unavailable", "{era}");
        assert!(begun.elapsed() < Duration::from_secs(5));
        fake.quiet("tools/call", Duration::from_millis(300)).await;
        host.call(3, "a__t").await;
        fake.expect("tools/call").await.result(text("lives")).await;
        answer(&mut host, 3).await;
        world.end().await;
    }
}

#[tokio::test]
async fn ses7_a_legacy_stream_that_was_cut_goes_on_with_its_last_id() {
    let (world, mut host, mut fake) = legacy().await;
    host.call(1, "a__t").await;
    let mut call = fake.expect("tools/call").await;
    call.stream().await;
    call.piece("id: 7/1\nretry: 20\ndata:\n\n").await;
    let result = call.answer(text("later"));
    call.end().await;
    let mut rest = fake.verb("GET").await;
    assert_eq!(rest.header("last-event-id"), Some("7/1"));
    assert_eq!(rest.header("mcp-session-id"), Some("s1"));
    rest.stream().await;
    rest.event(&result).await;
    assert_eq!(text_of(&answer(&mut host, 1).await), "later");
    fake.quiet("tools/call", Duration::from_millis(100)).await;
    world.end().await;
}

#[tokio::test]
async fn stm3_a_modern_stream_is_never_resumed() {
    let (world, mut host, mut fake) = modern().await;
    host.call(1, "a__t").await;
    let mut call = fake.expect("tools/call").await;
    call.stream().await;
    call.piece("id: 7\nretry: 1\ndata:\n\n").await;
    call.end().await;
    assert_eq!(reason(&answer(&mut host, 1).await), "downstream-unavailable");
    world.end().await;
}

#[tokio::test]
async fn d081_redirects_within_the_origin_keep_method_body_and_headers_and_have_an_end() {
    for status in [307, 308] {
        let (world, mut host, mut fake) = modern().await;
        host.call(1, "a__t").await;
        let call = fake.expect("tools/call").await;
        let body = call.body.clone();
        call.write(status, "location: /mcp/\r\n", b"").await;
        let call = fake.expect("tools/call").await;
        assert_eq!((call.path.as_str(), &call.body), ("/mcp/", &body));
        assert_eq!(call.header("mcp-name"), Some("t"));
        assert_eq!(call.header("authorization"), Some("Bearer of the operator"));
        call.result(text("there")).await;
        answer(&mut host, 1).await;
        host.call(2, "a__t").await;
        for _ in 0..4 {
            fake.expect("tools/call").await.write(status, "location: /mcp/\r\n", b"").await;
        }
        let failed = answer(&mut host, 2).await;
        assert!(failed["error"]["message"].as_str().unwrap().contains("more than 3 times"), "{failed}");
        world.end().await;
    }
}

/// HTTP-8.
#[tokio::test]
async fn i13_other_origins_and_other_redirects_are_not_followed_and_named() {
    let (world, mut host, mut fake) = modern().await;
    let mut other = Fake::new().await;
    let elsewhere = format!("http://127.0.0.1:{}", other.port);
    for (id, status, location, named) in [
        (1, 307, elsewhere.clone(), elsewhere.as_str()),
        (2, 308, format!("//127.0.0.1:{}/x", other.port), elsewhere.as_str()),
        (3, 307, "https://127.0.0.1/mcp".to_owned(), "https://127.0.0.1"),
        (4, 302, "/mcp/".to_owned(), "302"),
        (5, 307, String::new(), "307"),
    ] {
        host.call(id, "a__t").await;
        let head = if location.is_empty() { String::new() } else { format!("location: {location}\r\n") };
        fake.expect("tools/call").await.write(status, &head, b"").await;
        let failed = answer(&mut host, id).await;
        assert_eq!(reason(&failed), "downstream-unavailable");
        let message = failed["error"]["message"].as_str().unwrap();
        assert!(message.contains(named), "{message}");
    }
    other.quiet("tools/call", Duration::from_millis(100)).await;
    world.end().await;
}

#[tokio::test]
async fn cancelled_calls_are_closed_to_modern_servers_and_told_to_legacy_ones() {
    let (world, mut host, mut fake) = modern().await;
    host.call(1, "a__t").await;
    let call = fake.expect("tools/call").await;
    host.tell("notifications/cancelled", cancelled(1)).await;
    assert!(call.closed().await);
    fake.quiet("notifications/cancelled", Duration::from_millis(200)).await;
    world.end().await;

    let (world, mut host, mut fake) = legacy().await;
    host.call(1, "a__t").await;
    let call = fake.expect("tools/call").await;
    host.tell("notifications/cancelled", cancelled(1)).await;
    let told = fake.expect("notifications/cancelled").await;
    assert_eq!(told.body["params"]["requestId"], call.body["id"]);
    assert_eq!(told.header("mcp-session-id"), Some("s1"));
    told.write(202, "", b"").await;
    world.end().await;
}

#[tokio::test]
async fn tmo1_a_silent_server_costs_the_calls_deadline() {
    let mut fake = Fake::new().await;
    let mut settings = server(&fake.url());
    settings.timeouts.call = Duration::from_millis(300);
    let world = World::new(settings);
    fake.modern(&["t"]).await;
    let mut host = host(&world).await;
    host.call(1, "a__t").await;
    let call = fake.expect("tools/call").await;
    assert_eq!(reason(&answer(&mut host, 1).await), "downstream-timeout");
    assert!(call.closed().await);
    world.end().await;
}

#[tokio::test]
async fn a_busy_server_is_asked_once_more_when_it_said() {
    let (world, mut host, mut fake) = modern().await;
    host.call(1, "a__t").await;
    fake.expect("tools/call").await.write(503, "retry-after: 0\r\n", b"").await;
    fake.expect("tools/call").await.result(text("now")).await;
    answer(&mut host, 1).await;
    host.call(2, "a__t").await;
    fake.expect("tools/call").await.write(429, "retry-after: 0\r\n", b"").await;
    fake.expect("tools/call").await.write(429, "retry-after: 7\r\n", b"").await;
    let failed = answer(&mut host, 2).await;
    assert_eq!((reason(&failed), &failed["error"]["data"]["retryAfterMs"]), ("downstream-unavailable", &json!(7000)));
    host.call(3, "a__t").await;
    fake.expect("tools/call").await.status(503).await;
    assert_eq!(reason(&answer(&mut host, 3).await), "downstream-unavailable");
    fake.quiet("tools/call", Duration::from_millis(100)).await;
    world.end().await;
}

/// AUT-8.
#[tokio::test]
async fn a_refusal_by_status_is_read() {
    let (world, mut host, mut fake) = modern().await;
    for (id, status, code) in [(1, 400, -32602), (2, 404, -32601), (3, 500, -32603), (4, 200, -32602)] {
        host.call(id, "a__t").await;
        fake.expect("tools/call").await.error(status, json!({"code": code, "message": "as it said"})).await;
        let failed = answer(&mut host, id).await;
        assert_eq!((&failed["error"]["code"], &failed["error"]["message"]), (&json!(code), &json!("as it said")));
    }
    for (id, status, expected) in [
        (5, 401, "downstream-auth-required"),
        (6, 403, "downstream-auth-required"),
        (7, 500, "downstream-unavailable"),
        (8, 405, "invalid-downstream-result"),
        (9, 202, "invalid-downstream-result"),
    ] {
        host.call(id, "a__t").await;
        fake.expect("tools/call").await.status(status).await;
        assert_eq!(reason(&answer(&mut host, id).await), expected, "{status}");
    }
    for (id, body, kind) in [
        (10, &b"<html>"[..], "text/html"),
        (11, b"{\"jsonrpc\":\"2.0\",\"id\":99,\"result\":{}}", "application/json"),
        (12, b"{\"jsonrpc\":\"2.0\",\"id\":", "application/json"),
    ] {
        host.call(id, "a__t").await;
        fake.expect("tools/call").await.write(200, &format!("content-type: {kind}\r\n"), body).await;
        assert_eq!(reason(&answer(&mut host, id).await), "invalid-downstream-result", "{id}");
    }
    world.end().await;
}

#[tokio::test]
async fn limits_of_a_server_hold() {
    let mut fake = Fake::new().await;
    let mut settings = server(&fake.url());
    settings.limits.concurrency = Some(1);
    settings.limits.queue = 1;
    let world = World::new(settings);
    fake.modern(&["t"]).await;
    let mut host = host(&world).await;
    host.call(1, "a__t").await;
    let first = fake.expect("tools/call").await;
    host.call(2, "a__t").await;
    host.call(3, "a__t").await;
    assert_eq!(reason(&answer(&mut host, 3).await), "limit");
    fake.quiet("tools/call", Duration::from_millis(100)).await;
    first.result(text("one")).await;
    answer(&mut host, 1).await;
    fake.expect("tools/call").await.result(text("two")).await;
    answer(&mut host, 2).await;
    world.end().await;
}

#[tokio::test]
async fn many_calls_at_once_each_get_their_own_answer() {
    let (world, mut host, mut fake) = modern().await;
    let calls = 100;
    for id in 0..calls {
        host.ask(id, "tools/call", modern_params(json!({"name": "a__t", "arguments": {"n": id}}))).await;
    }
    let mut waiting = Vec::new();
    for _ in 0..calls {
        waiting.push(fake.expect("tools/call").await);
    }
    for call in waiting.into_iter().rev() {
        let n = call.body["params"]["arguments"]["n"].to_string();
        call.result(text(&n)).await;
    }
    for _ in 0..calls {
        let message = timeout(Duration::from_secs(10), host.next()).await.unwrap().unwrap();
        assert_eq!(text_of(&message), message["id"].to_string());
    }
    world.end().await;
}

/// A call whose user thinks is no work of its server, also where its answer is a stream that stays open meanwhile.
#[tokio::test]
async fn a_call_that_waits_for_its_user_takes_nobodys_place() {
    let can = json!({"elicitation": {}});
    for modern_host in [false, true] {
        let mut fake = Fake::new().await;
        let mut settings = server(&fake.url());
        settings.limits.concurrency = Some(1);
        let world = World::new(settings);
        fake.legacy("s1", &["t"]).await;
        let mut host = world.host();
        if !modern_host {
            host.open_as("2025-11-25", can.clone()).await;
        }
        let ask = async |host: &mut End, id: u32, more: Value| {
            let mut params = json!({"name": "a__t", "arguments": {}});
            for (key, value) in more.as_object().unwrap() {
                params[key] = value.clone();
            }
            let params = if modern_host { modern_as(params, can.clone()) } else { params };
            host.ask(id, "tools/call", params).await;
        };
        ask(&mut host, 1, json!({})).await;
        let opening = fake.expect("initialize").await;
        let result = opening.answer(initialized("2025-11-25")).to_string();
        opening.write(200, "content-type: application/json\r\nmcp-session-id: s2\r\n", result.as_bytes()).await;
        fake.expect("notifications/initialized").await.status(202).await;
        fake.verb("GET").await.status(405).await;
        let mut first = fake.expect("tools/call").await;
        first.stream().await;
        let form = json!({"message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}});
        first.event(&json!({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": form})).await;
        let question = timeout(Duration::from_secs(10), host.next_but_lists()).await.unwrap();
        // The place is free for the next call, before anybody answers.
        ask(&mut host, 2, json!({})).await;
        fake.expect("tools/call").await.result(text("two")).await;
        assert_eq!(text_of(&answer(&mut host, 2).await), "two");
        let accept = json!({"action": "accept", "content": {}});
        if modern_host {
            let state = &question["result"]["requestState"];
            ask(&mut host, 3, json!({"requestState": state, "inputResponses": {"elicitation_1": accept}})).await;
        } else {
            host.result(&question, accept.clone()).await;
        }
        let answered = fake.find(|asked| asked.verb == "POST" && asked.body["id"] == "q", "answer").await;
        assert_eq!(answered.body["result"], accept);
        answered.status(202).await;
        let done = first.answer(text("one"));
        first.event(&done).await;
        first.end().await;
        let id = if modern_host { 3 } else { 1 };
        assert_eq!(text_of(&answer(&mut host, id).await), "one");
        world.end().await;
    }
}
