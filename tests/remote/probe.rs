//! Which era a server behind a URL is of (PRB-4…8), and which transport.

use std::time::Duration;

use serde_json::{Value, json};

use super::end::{list_of, text, text_of};
use super::fake::{Asked, Fake, discovered, initialized};
use super::world::{World, answer, host, server};

/// What the probe is answered with, and whether `initialize` follows.
const TABLE: [(u16, Option<i64>, bool); 16] = [
    (200, Some(-32601), true),
    (200, Some(-32600), true),
    (200, Some(-32602), true),
    (200, Some(-32000), true),
    (400, None, true),
    (400, Some(-32000), true),
    (400, Some(-32600), true),
    (404, None, true),
    (404, Some(-32601), true),
    (405, None, true),
    (406, Some(-32000), true),
    (415, None, true),
    (400, Some(-32020), false),
    (400, Some(-32021), false),
    (400, Some(-32022), false),
    (200, Some(-32022), false),
];

fn error(code: i64) -> Value {
    json!({"code": code, "message": "no", "data": {"supported": ["2026-07-28"], "requested": "x"}})
}

async fn refuse(asked: Asked, status: u16, code: Option<i64>) {
    match code {
        Some(code) => asked.error(status, error(code)).await,
        None => asked.write(status, "content-type: text/html\r\n", b"<html>no</html>").await,
    }
}

#[tokio::test]
async fn prb4_prb6_the_answer_to_the_probe_decides() {
    for (status, code, legacy) in TABLE {
        let mut fake = Fake::new().await;
        let world = World::new(server(&fake.url()));
        refuse(fake.expect("server/discover").await, status, code).await;
        if legacy {
            fake.session("s", "2025-11-25", &["t"]).await;
        } else {
            let list = fake.expect("tools/list").await;
            assert_eq!(list.header("mcp-protocol-version"), Some("2026-07-28"), "{status} {code:?}");
            list.result(list_of(&["t"])).await;
            fake.quiet("initialize", Duration::from_millis(20)).await;
        }
        let mut host = host(&world).await;
        host.call(1, "a__t").await;
        fake.expect("tools/call").await.result(text("x")).await;
        answer(&mut host, 1).await;
        world.end().await;
    }
}

#[tokio::test]
async fn prb6_trouble_says_nothing_of_the_era_and_is_looked_at_again() {
    for status in [500, 502, 503, 403] {
        let mut fake = Fake::new().await;
        let world = World::new(server(&fake.url()));
        fake.expect("server/discover").await.status(status).await;
        // Within five seconds, and by the probe.
        fake.modern(&["t"]).await;
        assert!(host(&world).await.list().await == ["a__t"], "{status}");
        world.end().await;
    }
}

#[tokio::test]
async fn prb6_a_sign_in_is_named_and_nobody_waits_for_it() {
    let mut fake = Fake::new().await;
    let world = World::new(server(&fake.url()));
    fake.expect("server/discover").await.status(401).await;
    let mut host = world.host();
    host.open("2025-11-25").await;
    host.call(1, "a__t").await;
    let refused = async {
        loop {
            fake.expect("server/discover").await.status(401).await;
        }
    };
    let failed = tokio::select! {
        failed = answer(&mut host, 1) => failed,
        () = refused => unreachable!(),
    };
    // Its tools are not known, so the name is not either; what is wrong is told to the operator.
    assert_eq!(failed["error"]["code"], -32602);
    let last = world.gateway.servers().next().unwrap().last_error().unwrap();
    assert!(last.contains("401"), "{last}");
    world.end().await;
}

#[tokio::test]
async fn prb5_a_modern_error_to_initialize_is_modern_without_discovery() {
    let mut fake = Fake::new().await;
    let world = World::new(server(&fake.url()));
    refuse(fake.expect("server/discover").await, 404, Some(-32601)).await;
    refuse(fake.expect("initialize").await, 400, Some(-32022)).await;
    let list = fake.expect("tools/list").await;
    assert_eq!(list.header("mcp-protocol-version"), Some("2026-07-28"));
    list.result(list_of(&["t"])).await;
    assert_eq!(host(&world).await.list().await, ["a__t"]);
    world.end().await;
}

/// Plays the transport of 2024-11-05 from its GET on; answers with its stream.
async fn old_transport(fake: &mut Fake, endpoint: &str) -> Asked {
    let mut stream = fake.verb("GET").await;
    assert_eq!(stream.header("accept"), Some("text/event-stream"));
    stream.stream().await;
    stream.piece(format!("event: endpoint\ndata: {endpoint}\n\n")).await;
    stream
}

async fn old_session(fake: &mut Fake, stream: &mut Asked) {
    let opening = fake.expect("initialize").await;
    assert_eq!(opening.path, "/messages?sid=42");
    let result = opening.answer(initialized("2024-11-05"));
    opening.write(202, "", b"Accepted").await;
    stream.event(&result).await;
    fake.expect("notifications/initialized").await.write(202, "", b"").await;
    let list = fake.expect("tools/list").await;
    let result = list.answer(list_of(&["t"]));
    list.write(202, "", b"").await;
    stream.event(&result).await;
}

#[tokio::test]
async fn prb7_sse1_a_server_of_the_older_transport_is_found_and_served() {
    for status in [400, 404, 405] {
        let mut fake = Fake::new().await;
        let world = World::new(server(&fake.url()));
        fake.expect("server/discover").await.status(status).await;
        fake.expect("initialize").await.status(status).await;
        let mut stream = old_transport(&mut fake, "/messages?sid=42").await;
        old_session(&mut fake, &mut stream).await;
        let mut host = host(&world).await;
        host.call(1, "a__t").await;
        let call = fake.expect("tools/call").await;
        assert_eq!((call.path.as_str(), call.header("mcp-protocol-version")), ("/messages?sid=42", None));
        let result = call.answer(text("by the stream"));
        call.write(202, "", b"").await;
        stream.event(&result).await;
        assert_eq!(text_of(&answer(&mut host, 1).await), "by the stream");
        // Its end is the session's: calls fail, and all begins anew.
        host.call(2, "a__t").await;
        fake.expect("tools/call").await.write(202, "", b"").await;
        stream.end().await;
        assert_eq!(answer(&mut host, 2).await["error"]["data"]["reason"], "downstream-unavailable");
        fake.expect("server/discover").await.status(status).await;
        world.end().await;
    }
}

#[tokio::test]
async fn prb7_the_older_transport_can_be_configured() {
    let mut fake = Fake::new().await;
    let mut settings = server(&fake.url());
    if let Ok(onegate::config::settings::Reach::Remote(remote)) = &mut settings.reach {
        remote.sse = true;
    }
    let world = World::new(settings);
    let endpoint = format!("http://127.0.0.1:{}/messages?sid=42", fake.port);
    let mut stream = old_transport(&mut fake, &endpoint).await;
    old_session(&mut fake, &mut stream).await;
    assert_eq!(host(&world).await.list().await, ["a__t"]);
    world.end().await;
}

#[tokio::test]
async fn sse1_an_endpoint_of_another_origin_gets_nothing() {
    let mut fake = Fake::new().await;
    let mut other = Fake::new().await;
    let world = World::new(server(&fake.url()));
    fake.expect("server/discover").await.status(405).await;
    fake.expect("initialize").await.status(405).await;
    let elsewhere = format!("http://127.0.0.1:{}/messages", other.port);
    let _stream = old_transport(&mut fake, &elsewhere).await;
    other.quiet("initialize", Duration::from_millis(300)).await;
    let last = world.gateway.servers().next().unwrap().last_error().unwrap();
    assert!(last.contains(&format!("127.0.0.1:{}", other.port)), "{last}");
    world.end().await;
}

#[tokio::test]
async fn prb5_prb7_a_newer_servers_refusal_opens_no_stream() {
    let mut fake = Fake::new().await;
    let world = World::new(server(&fake.url()));
    refuse(fake.expect("server/discover").await, 404, Some(-32601)).await;
    refuse(fake.expect("initialize").await, 404, Some(-32601)).await;
    // It is asked again from the beginning.
    let next = fake.next().await;
    assert_eq!((next.verb.as_str(), &next.body["method"]), ("POST", &json!("server/discover")));
    next.result(discovered(json!({}))).await;
    world.end().await;
}
