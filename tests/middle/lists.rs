//! How long lists wait, for whom, and how changes reach hosts.

use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use super::end::{End, list_of, text, text_of};
use super::world::{World, pair, server, took};

#[tokio::test(start_paused = true)]
async fn d002_a_silent_server_costs_the_first_list_its_deadline_and_later_ones_nothing() {
    let mut world = World::new(vec![server("fast"), server("slow")]);
    let (mut host, mut other) = (world.host(), world.host());
    let mut fast = world.accept("fast").await;
    fast.legacy(&["t"]).await;
    let mut slow = world.accept("slow").await;
    host.open("2025-11-25").await;
    other.open("2025-06-18").await;
    // The list of the fast one is told before anyone asks.
    host.expect("notifications/tools/list_changed").await;
    other.expect("notifications/tools/list_changed").await;
    let start = Instant::now();
    assert_eq!(host.list().await, ["fast__t"]);
    took(start, Duration::from_secs(5));
    let start = Instant::now();
    for _ in 0..4 {
        assert_eq!(host.list().await, ["fast__t"]);
        assert_eq!(other.list().await, ["fast__t"]);
    }
    took(start, Duration::ZERO);
    // It comes up after all, and that is told.
    slow.expect("server/discover").await;
    slow.initialized().await;
    slow.listed(&["u"]).await;
    let start = Instant::now();
    host.expect("notifications/tools/list_changed").await;
    assert!(start.elapsed() <= Duration::from_secs(1), "{:?}", start.elapsed());
    assert_eq!(host.list().await, ["fast__t", "slow__u"]);
    world.end().await;
}

/// XMH-4.
#[tokio::test(start_paused = true)]
async fn d002_a_call_by_name_waits_for_its_owner_only() {
    let mut world = World::new(vec![server("late"), server("never")]);
    let mut host = world.host();
    let (mut late, _never) = (world.accept("late").await, world.accept("never").await);
    host.open("2025-11-25").await;
    let start = Instant::now();
    host.call(1, "late__t").await;
    sleep(Duration::from_secs(2)).await;
    late.legacy(&["t"]).await;
    let call = late.expect("tools/call").await;
    late.result(&call, text("here")).await;
    assert_eq!(text_of(&host.answer(1).await), "here");
    took(start, Duration::from_secs(2));
    world.end().await;
}

/// PRB-2, D084.
#[tokio::test(start_paused = true)]
async fn d084_a_silent_probe_is_followed_by_initialize_on_the_same_connection() {
    let start = Instant::now();
    let mut world = World::new(vec![server("a")]);
    let mut host = world.host();
    let mut a = world.accept("a").await;
    let probe = a.expect("server/discover").await;
    // CAN-1: the probe is not cancelled, so `initialize` is the next word.
    let opening = a.expect("initialize").await;
    took(start, Duration::from_secs(3));
    // A late answer means nothing, whatever it says.
    let modern = json!({"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "resultType": "complete"});
    a.result(&probe, modern).await;
    a.quiet(Duration::from_secs(10)).await;
    let result = json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "t", "version": "0"}});
    a.result(&opening, result).await;
    a.expect("notifications/initialized").await;
    let asked = a.expect("tools/list").await;
    assert!(asked["params"].get("_meta").is_none(), "{asked}");
    a.result(&asked, list_of(&["t"])).await;
    host.open("2025-11-25").await;
    assert_eq!(host.list().await, ["a__t"]);
    assert!(!world.is_started("a"), "started twice");
    world.end().await;
}

/// Answers every list with what `tools` say by then, until nothing is asked for ten seconds; how many lists that was.
async fn serve_lists(server: &mut End, tools: &[&str]) -> usize {
    let mut lists = 0;
    while let Ok(asked) = timeout(Duration::from_secs(10), server.next()).await {
        let asked = asked.expect("it closed");
        assert_eq!(asked["method"], "tools/list", "{asked}");
        server.result(&asked, list_of(tools)).await;
        lists += 1;
    }
    lists
}

#[tokio::test(start_paused = true)]
async fn sub1_d060_a_storm_of_changes_is_few_lists_and_one_notification() {
    let (world, mut host, mut server) = pair().await;
    let serving = async {
        for _ in 0..1000 {
            server.tell("notifications/tools/list_changed", json!({})).await;
        }
        serve_lists(&mut server, &["t", "u"]).await
    };
    let hearing = async {
        host.expect("notifications/tools/list_changed").await;
        // What is told is there already.
        let start = Instant::now();
        assert_eq!(host.list().await, ["a__t", "a__u"]);
        took(start, Duration::ZERO);
        host.quiet(Duration::from_secs(60)).await;
    };
    let (lists, ()) = tokio::join!(serving, hearing);
    assert!((1..=3).contains(&lists), "{lists}");
    world.end().await;
}

/// D-28: at least 250 ms apart, however long the storm.
#[tokio::test(start_paused = true)]
async fn d28_a_long_storm_is_a_list_each_quarter_of_a_second_at_most() {
    let (world, mut host, mut server) = pair().await;
    let mut lists = 0u32;
    let start = Instant::now();
    let mut asked_at: Option<Instant> = None;
    while start.elapsed() < Duration::from_secs(5) {
        server.tell("notifications/tools/list_changed", json!({})).await;
        if let Ok(frame) = timeout(Duration::from_millis(5), server.next()).await {
            let asked = frame.unwrap();
            let now = Instant::now();
            let gap = asked_at.replace(now).map(|before| now - before);
            assert!(gap.is_none_or(|gap| gap >= Duration::from_millis(250)), "{gap:?}");
            lists += 1;
            let name = format!("t{lists}");
            server.result(&asked, list_of(&[&name])).await;
        }
    }
    assert!((10..=21).contains(&lists), "{lists}");
    // The last state is told in the end, and all along at least once a second, but no state twice.
    serve_lists(&mut server, &["last"]).await;
    let mut told = 0;
    while timeout(Duration::from_secs(5), host.expect("notifications/tools/list_changed")).await.is_ok() {
        told += 1;
    }
    assert!((5..=lists + 1).contains(&told), "{told} for {lists} lists");
    assert_eq!(host.list().await, ["a__last"]);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn sub1_what_looks_the_same_is_not_told() {
    let (world, mut host, mut server) = pair().await;
    server.tell("notifications/tools/list_changed", json!({})).await;
    assert_eq!(serve_lists(&mut server, &["t"]).await, 1);
    host.quiet(Duration::from_secs(60)).await;
    // A failed list changes nothing either, and is tried again.
    server.tell("notifications/tools/list_changed", json!({})).await;
    let asked = server.expect("tools/list").await;
    server.error(&asked, -32603).await;
    let start = Instant::now();
    server.listed(&["t"]).await;
    took(start, Duration::from_secs(1));
    assert_eq!(host.list().await, ["a__t"]);
    host.quiet(Duration::from_secs(60)).await;
    world.end().await;
}

/// SUB-1, SUB-2: a host that fetched the new list before it was told is not told.
#[tokio::test(start_paused = true)]
async fn sub1_who_has_the_new_list_is_not_told_of_it() {
    let (world, mut host, mut server) = pair().await;
    server.tell("notifications/tools/list_changed", json!({})).await;
    server.listed(&["u"]).await;
    // The list is put in by a task; the debounce is longer than this.
    sleep(Duration::from_millis(50)).await;
    assert_eq!(host.list().await, ["a__u"]);
    host.quiet(Duration::from_secs(60)).await;
    world.end().await;
}
