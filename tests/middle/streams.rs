//! Listen streams, on the host's side and on a modern server's.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::end::{End, cancelled, list_of, modern, names, text};
use super::world::{World, pair, server};

const ID: &str = "io.modelcontextprotocol/subscriptionId";

async fn modern_list(host: &mut End) -> Vec<String> {
    host.ask("list", "tools/list", modern(json!({}))).await;
    names(&host.answer("list").await)
}

fn stream_of(message: &Value) -> &Value {
    &message["params"]["_meta"][ID]
}

#[tokio::test(start_paused = true)]
async fn sub3_sub4_sub12_a_hosts_streams_are_acknowledged_told_and_ended() {
    let (world, _legacy, mut server) = pair().await;
    let mut host = world.host();
    for (id, wanted) in [(json!(1), true), (json!("1"), true), (json!(2), false), (json!(3), true)] {
        let notifications = json!({"toolsListChanged": wanted, "promptsListChanged": true});
        host.ask(id.clone(), "subscriptions/listen", modern(json!({"notifications": notifications}))).await;
        let first = host.expect("notifications/subscriptions/acknowledged").await;
        assert_eq!(stream_of(&first), &id);
        let honoured = if wanted { json!({"toolsListChanged": true}) } else { json!({}) };
        assert_eq!(first["params"]["notifications"], honoured, "SUB-5: only what is served");
    }
    // The id of a stream is in use like any other (ENV-3).
    host.call(1, "a__t").await;
    assert_eq!(host.answer(1).await["error"]["code"], -32600);
    host.tell("notifications/cancelled", cancelled(3)).await;
    server.tell("notifications/tools/list_changed", json!({})).await;
    server.listed(&["t", "u"]).await;
    // One copy for each stream that asked and is open, told after the list is there.
    let mut told = Vec::new();
    for _ in 0..2 {
        told.push(stream_of(&host.expect("notifications/tools/list_changed").await).clone());
    }
    assert_eq!(told, [json!(1), json!("1")]);
    assert_eq!(modern_list(&mut host).await, ["a__t", "a__u"]);
    host.quiet(Duration::from_secs(600)).await;
    world.stop.cancel();
    for id in [json!(1), json!("1"), json!(2)] {
        let ended = host.answer(id.clone()).await;
        assert_eq!(ended["result"], json!({"resultType": "complete", "_meta": {ID: id}}));
        assert_eq!(host.expect("notifications/cancelled").await["params"]["requestId"], id);
    }
    assert!(host.next().await.is_none());
    world.end().await;
}

/// SUB-2: a host in a legacy session that also opens a stream gets both, a modern one without a stream nothing.
#[tokio::test(start_paused = true)]
async fn sub2_a_modern_host_without_a_stream_is_told_nothing() {
    let (world, mut legacy, mut server) = pair().await;
    let mut host = world.host();
    assert_eq!(modern_list(&mut host).await, ["a__t"]);
    server.tell("notifications/tools/list_changed", json!({})).await;
    server.listed(&["u"]).await;
    let told = legacy.expect("notifications/tools/list_changed").await;
    assert!(told.get("params").is_none(), "{told}");
    host.quiet(Duration::from_secs(600)).await;
    assert_eq!(modern_list(&mut host).await, ["a__u"]);
    world.end().await;
}

/// SUB-13: without a bound, a host could make us hold streams.
#[tokio::test(start_paused = true)]
async fn sub13_a_host_has_sixteen_streams_at_most() {
    let (world, _legacy, _server) = pair().await;
    let mut host = world.host();
    let listen = || modern(json!({"notifications": {"toolsListChanged": true}}));
    for id in 0..16 {
        host.ask(id, "subscriptions/listen", listen()).await;
        host.expect("notifications/subscriptions/acknowledged").await;
    }
    host.ask(16, "subscriptions/listen", listen()).await;
    assert_eq!(host.answer(16).await["error"]["data"]["reason"], "limit");
    host.tell("notifications/cancelled", cancelled(0)).await;
    host.ask(17, "subscriptions/listen", listen()).await;
    host.expect("notifications/subscriptions/acknowledged").await;
    world.end().await;
}

/// SUB-9: what was missed while the stream was closed is looked for.
#[tokio::test(start_paused = true)]
async fn sub9_a_servers_stream_that_ends_is_opened_again_later_and_the_list_looked_at() {
    let mut world = World::new(vec![server("a")]);
    let mut host = world.host();
    let mut a = world.accept("a").await;
    let mut listen = a.modern(&["t"]).await;
    host.open("2025-11-25").await;
    assert_eq!(host.list().await, ["a__t"]);
    for round in 1..=3u32 {
        assert_eq!(listen["params"]["notifications"], json!({"toolsListChanged": true}));
        assert_eq!(listen["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
        a.tell(
            "notifications/subscriptions/acknowledged",
            json!({"notifications": {"toolsListChanged": true}, "_meta": {ID: listen["id"]}}),
        )
        .await;
        sleep(Duration::from_secs(30)).await;
        a.result(&listen, json!({"resultType": "complete", "_meta": {ID: listen["id"]}})).await;
        let start = Instant::now();
        let tool = format!("t{round}");
        let (mut opened, mut listed) = (None, false);
        while opened.is_none() || !listed {
            let asked = a.next().await.unwrap();
            if asked["method"] == "tools/list" {
                a.result(&asked, list_of(&[&tool])).await;
                listed = true;
            } else {
                assert_eq!(asked["method"], "subscriptions/listen", "{asked}");
                let delay = start.elapsed();
                assert!(delay >= Duration::from_millis(500) && delay <= Duration::from_secs(61), "{delay:?}");
                opened = Some(asked);
            }
        }
        listen = opened.unwrap();
        host.expect("notifications/tools/list_changed").await;
        assert_eq!(host.list().await, [format!("a__{tool}")]);
    }
    assert!(!world.is_started("a"));
    world.end().await;
}

/// The stream of a modern server is no request that someone waits for: it does not keep an unused server, and
/// does not end with a deadline.
#[tokio::test(start_paused = true)]
async fn sub13_a_servers_stream_has_no_deadline_and_does_not_count_as_use() {
    let mut world = World::new(vec![server("a")]);
    let mut host = world.host();
    let mut a = world.accept("a").await;
    let listen = a.modern(&["t"]).await;
    host.open("2025-11-25").await;
    host.list().await;
    let start = Instant::now();
    host.call(1, "a__t").await;
    let call = a.expect("tools/call").await;
    a.result(&call, text("x")).await;
    host.answer(1).await;
    // Nothing about the stream for ten minutes; then it is stopped as unused.
    assert_eq!(a.next().await, None, "{listen}");
    let elapsed = start.elapsed();
    assert!(elapsed >= Duration::from_secs(599) && elapsed <= Duration::from_secs(602), "{elapsed:?}");
    world.end().await;
}
