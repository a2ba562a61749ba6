//! Legacy sessions, their streams, and servers that go and come.

use std::sync::atomic::Ordering;
use std::time::Duration;

use onegate::gateway::State;
use serde_json::json;
use tokio::time::{Instant, timeout_at};

use super::end::{list_of, text, text_of};
use super::fake::{Fake, discovered};
use super::world::{World, answer, host, legacy, modern, server};

/// SES-4.
#[tokio::test]
async fn d071_a_forgotten_session_is_opened_anew_and_the_call_it_refused_is_sent_again_once() {
    for (status, body) in [
        (404, json!(null)),
        (400, json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32000, "message": "No valid session ID"}})),
    ] {
        let (world, mut host, mut fake) = legacy().await;
        host.call(1, "a__t").await;
        let call = fake.expect("tools/call").await;
        assert_eq!(call.header("mcp-session-id"), Some("s1"));
        call.json(status, &body).await;
        // Known to be legacy, it is not probed.
        fake.session_again("s2", &["t", "u"]).await;
        let call = fake.expect("tools/call").await;
        assert_eq!(call.header("mcp-session-id"), Some("s2"));
        call.result(text("in the new one")).await;
        assert_eq!(text_of(&answer(&mut host, 1).await), "in the new one");
        assert_eq!(host_list(&mut host).await, ["a__t", "a__u"]);
        world.end().await;
    }
}

async fn host_list(host: &mut super::end::End) -> Vec<String> {
    loop {
        host.ask("again", "tools/list", json!({})).await;
        let names = super::end::names(&answer(host, "again").await);
        if names.len() > 1 {
            return names;
        }
    }
}

#[tokio::test]
async fn d071_calls_of_the_old_session_that_it_still_answers_are_not_lost() {
    let (world, mut host, mut fake) = legacy().await;
    host.call(1, "a__t").await;
    let slow = fake.expect("tools/call").await;
    host.call(2, "a__t").await;
    fake.expect("tools/call").await.status(404).await;
    fake.session_again("s2", &["t"]).await;
    fake.expect("tools/call").await.result(text("two")).await;
    assert_eq!(text_of(&answer(&mut host, 2).await), "two");
    slow.result(text("one")).await;
    assert_eq!(text_of(&answer(&mut host, 1).await), "one");
    world.end().await;
}

#[tokio::test]
async fn d082_every_way_to_accept_a_notification_is_taken() {
    for (status, body) in [(200, &b""[..]), (202, b""), (204, b""), (202, b"Accepted")] {
        let mut fake = Fake::new().await;
        let world = World::new(server(&fake.url()));
        fake.expect("server/discover").await.status(400).await;
        let opening = fake.expect("initialize").await;
        opening.result(super::fake::initialized("2025-11-25")).await;
        let told = fake.expect("notifications/initialized").await;
        if status == 204 {
            let mut told = told;
            told.raw("HTTP/1.1 204 X\r\n\r\n").await;
            told.done();
        } else {
            told.write(status, "", body).await;
        }
        fake.expect("tools/list").await.result(list_of(&["t"])).await;
        let stream = fake.verb("GET").await;
        assert_eq!(stream.header("mcp-session-id"), None, "it gave none");
        stream.status(405).await;
        assert_eq!(host(&world).await.list().await, ["a__t"]);
        world.end().await;
    }
}

#[tokio::test]
async fn d079_an_idle_stream_that_is_cut_is_opened_again_and_the_session_stays() {
    let mut fake = Fake::new().await;
    let world = World::new(server(&fake.url()));
    fake.expect("server/discover").await.status(400).await;
    let opening = fake.expect("initialize").await;
    let result = opening.answer(super::fake::initialized("2025-11-25")).to_string();
    opening.write(200, "content-type: application/json\r\nmcp-session-id: s1\r\n", result.as_bytes()).await;
    fake.expect("notifications/initialized").await.status(202).await;
    let mut stream = fake.verb("GET").await;
    assert_eq!(stream.header("mcp-session-id"), Some("s1"));
    fake.expect("tools/list").await.result(list_of(&["t"])).await;
    stream.stream().await;
    stream.event(&json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})).await;
    // What the stream says counts.
    fake.expect("tools/list").await.result(list_of(&["t"])).await;
    stream.piece("id: e-5\ndata:\n\n").await;
    let cut = tokio::time::Instant::now();
    stream.end().await;
    let again = fake.verb("GET").await;
    assert_eq!(again.header("last-event-id"), Some("e-5"));
    assert!(cut.elapsed() >= Duration::from_millis(900), "{:?}", cut.elapsed());
    again.status(400).await;
    let third = fake.verb("GET").await;
    assert!(cut.elapsed() >= Duration::from_millis(2900), "later each time: {:?}", cut.elapsed());
    third.status(405).await;
    fake.quiet("initialize", Duration::from_millis(50)).await;
    world.end().await;
}

#[tokio::test]
async fn d083_sessions_and_connections_do_not_pile_up() {
    let mut fake = Fake::new().await;
    for n in 0..20 {
        let world = World::new(server(&fake.url()));
        let session = format!("s{n}");
        fake.legacy(&session, &["t"]).await;
        let mut host = host(&world).await;
        for id in 0..5 {
            host.call(id, "a__t").await;
            fake.expect("tools/call").await.result(text("x")).await;
            answer(&mut host, id).await;
        }
        world.gateway.stop(onegate::gateway::Pace::SWIFT);
        let end = fake.verb("DELETE").await;
        assert_eq!(end.header("mcp-session-id"), Some(session.as_str()));
        end.status(200).await;
        world.end().await;
        let until = tokio::time::Instant::now() + Duration::from_secs(5);
        while fake.open.load(Ordering::SeqCst) > 0 {
            assert!(tokio::time::Instant::now() < until, "a connection is left open");
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn a_server_that_comes_back_is_found_within_seconds_and_calls_meanwhile_fail() {
    let (world, mut host, fake) = modern().await;
    let port = fake.port;
    fake.stop();
    host.call(1, "a__t").await;
    assert_eq!(answer(&mut host, 1).await["error"]["data"]["reason"], "downstream-unavailable");
    // The first may find a connection that breaks, the next none; then it is known.
    let mut retry = None;
    for id in 2..5 {
        let begun = tokio::time::Instant::now();
        host.call(id, "a__t").await;
        let failed = answer(&mut host, id).await;
        assert_eq!(failed["error"]["data"]["reason"], "downstream-unavailable");
        assert!(begun.elapsed() < Duration::from_secs(6));
        retry = retry.or(failed["error"]["data"]["retryAfterMs"].as_u64());
    }
    assert!(retry.is_some_and(|ms| ms <= 5000), "{retry:?}");
    let mut fake = Fake::at(port).await;
    fake.modern(&["t", "u"]).await;
    assert_eq!(host_list(&mut host).await, ["a__t", "a__u"]);
    host.call(9, "a__t").await;
    fake.expect("tools/call").await.result(text("back")).await;
    answer(&mut host, 9).await;
    world.end().await;
}

#[tokio::test]
async fn sub_a_modern_servers_stream_is_a_request_and_its_changes_are_told() {
    let mut fake = Fake::new().await;
    let world = World::new(server(&fake.url()));
    fake.expect("server/discover").await.result(discovered(json!({"tools": {"listChanged": true}}))).await;
    let mut listen = fake.expect("subscriptions/listen").await;
    assert_eq!(listen.header("mcp-method"), Some("subscriptions/listen"));
    fake.expect("tools/list").await.result(list_of(&["t"])).await;
    listen.stream().await;
    let id = listen.body["id"].clone();
    let meta = json!({"io.modelcontextprotocol/subscriptionId": id});
    listen
        .event(&json!({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged",
            "params": {"notifications": {"toolsListChanged": true}, "_meta": meta}}))
        .await;
    let mut host = host(&world).await;
    listen
        .event(&json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": {"_meta": meta}}))
        .await;
    fake.expect("tools/list").await.result(list_of(&["t", "u"])).await;
    assert_eq!(host_list(&mut host).await, ["a__t", "a__u"]);
    world.end().await;
}

impl Fake {
    /// A session after the first, without a probe.
    async fn session_again(&mut self, session: &str, tools: &[&str]) {
        // Nothing remembers the era here, so it is asked for again.
        self.legacy(session, tools).await;
    }
}

/// With one place in the server, the call that is sent again does not wait for its own.
#[tokio::test]
async fn d071_a_call_that_is_sent_again_does_not_wait_for_itself() {
    let mut fake = Fake::new().await;
    let mut settings = server(&fake.url());
    settings.limits.concurrency = Some(1);
    let world = World::new(settings);
    fake.legacy("s1", &["t"]).await;
    let mut host = host(&world).await;
    host.call(1, "a__t").await;
    fake.expect("tools/call").await.status(404).await;
    fake.session_again("s2", &["t"]).await;
    fake.expect("tools/call").await.result(text("again")).await;
    assert_eq!(text_of(&answer(&mut host, 1).await), "again");
    world.end().await;
}

/// CON-7: an error under the id of our request was given by who read it.
#[tokio::test]
async fn con7_an_error_of_the_tool_that_speaks_of_a_session_is_no_lost_session() {
    let (world, mut host, mut fake) = legacy().await;
    host.call(1, "a__t").await;
    let call = fake.expect("tools/call").await;
    call.error(400, json!({"code": -32000, "message": "browser session closed during submit"})).await;
    let failed = answer(&mut host, 1).await;
    assert_eq!(failed["error"]["message"], "browser session closed during submit");
    fake.quiet("tools/call", Duration::from_millis(300)).await;
    world.end().await;
}

/// A server that takes connections and closes them is told apart from a slow one, without a storm of connections.
#[tokio::test]
async fn a_server_that_closes_connections_at_once_is_told_from_a_slow_one() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let world = World::new(server(&url));
    let mut state = world.gateway.servers().next().unwrap().state();
    let mut taken = 0;
    let deadline = Instant::now() + Duration::from_secs(9);
    let failed = state.wait_for(|state| matches!(state, State::Waiting { .. }));
    tokio::pin!(failed);
    loop {
        tokio::select! {
            stream = listener.accept() => {
                taken += 1;
                drop(stream.unwrap());
            }
            failed = timeout_at(deadline, &mut failed) => {
                failed.expect("not by its deadline of 10 s").unwrap();
                break;
            }
        }
    }
    assert!(taken < 20, "{taken}");
    let error = world.gateway.servers().next().unwrap().last_error().unwrap();
    // Whether the request was on its way when it closed is a matter of luck.
    let told = error.contains("the connection was lost") || error.contains("closes connections at once");
    assert!(told, "{error}");
    world.end().await;
}
