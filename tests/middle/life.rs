//! A server through its life: restarts and their delays, the breaker, idle stop.

use std::time::Duration;

use onegate::config::settings::{EraChoice, Start};
use serde_json::json;
use tokio::time::Instant;

use super::end::{End, text, text_of};
use super::world::{World, pair, pair_with, server, took};

#[tokio::test(start_paused = true)]
async fn d017_delays_grow_until_the_breaker_refuses_calls_with_a_time() {
    // Of a known era: one that ends on the probe would be started a second time without it (PRB-2).
    let mut settings = server("a");
    settings.era = EraChoice::Modern;
    let mut world = World::new(vec![settings]);
    let mut host = world.host();
    host.open("2025-11-25").await;
    // It lives long enough to be known, so that calls have somewhere to go.
    let mut a = world.accept("a").await;
    a.modern(&["t"]).await;
    assert_eq!(host.list().await, ["a__t"]);
    drop(a);
    let mut ended = Instant::now();
    let mut delays = Vec::new();
    for _ in 0..4 {
        drop(world.accept("a").await);
        delays.push(ended.elapsed());
        ended = Instant::now();
    }
    // Half of each delay is certain (D-33).
    for (n, delay) in delays.iter().enumerate() {
        let longest = Duration::from_millis(500 << n);
        assert!(*delay >= longest / 2 && *delay <= longest + Duration::from_millis(10), "{delays:?}");
    }
    assert!(!world.is_started("a"));
    // Five failures within two minutes: refused at once, with when it is tried again.
    let start = Instant::now();
    host.call(1, "a__t").await;
    let answer = host.answer(1).await;
    took(start, Duration::ZERO);
    assert_eq!(answer["error"]["data"]["reason"], "downstream-unavailable", "{answer}");
    let after = Duration::from_millis(answer["error"]["data"]["retryAfterMs"].as_u64().unwrap());
    assert!(after > Duration::from_secs(50) && after <= Duration::from_secs(60), "{after:?}");
    // Then one start is let through, and with it all is well.
    let mut a = world.accept("a").await;
    took(start, after);
    a.modern(&["t"]).await;
    host.call(2, "a__t").await;
    let call = a.expect("tools/call").await;
    a.result(&call, text("back")).await;
    assert_eq!(text_of(&host.answer(2).await), "back");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn d015_a_call_in_flight_fails_at_once_when_its_server_ends() {
    let (mut world, mut host, mut server) = pair().await;
    host.call(1, "a__t").await;
    server.expect("tools/call").await;
    let start = Instant::now();
    drop(server);
    let answer = host.answer(1).await;
    took(start, Duration::ZERO);
    assert_eq!(answer["error"]["data"]["reason"], "downstream-unavailable", "{answer}");
    // The call is not repeated.
    let mut server = world.accept("a").await;
    server.legacy(&["t"]).await;
    server.quiet(Duration::from_secs(60)).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_nobody_uses_is_stopped_and_the_next_call_starts_it() {
    let (mut world, mut host, mut server) = pair().await;
    host.call(1, "a__t").await;
    let call = server.expect("tools/call").await;
    let start = Instant::now();
    server.result(&call, text("first")).await;
    assert_eq!(text_of(&host.answer(1).await), "first");
    assert!(server.next().await.is_none(), "its input closes");
    let elapsed = start.elapsed();
    assert!(elapsed >= Duration::from_secs(599) && elapsed <= Duration::from_secs(602), "{elapsed:?}");
    // What it listed stays, and nobody starts it for a list.
    assert_eq!(host.list().await, ["a__t"]);
    assert!(!world.is_started("a"));
    host.call(2, "a__t").await;
    host.call(3, "a__t").await;
    let start = Instant::now();
    let mut again = world.accept("a").await;
    again.legacy(&["t"]).await;
    // No order is promised between requests (ENV-8): both waited, either may go first.
    let mut answered = Vec::new();
    for _ in 0..2 {
        let call = again.expect("tools/call").await;
        again.result(&call, text("again")).await;
        let answer = host.next().await.expect("an answer");
        assert_eq!(text_of(&answer), "again");
        answered.push(answer["id"].as_u64());
    }
    answered.sort_unstable();
    assert_eq!(answered, [Some(2), Some(3)]);
    took(start, Duration::ZERO);
    assert!(!world.is_started("a"), "D018: one start for both");
    world.end().await;
}

/// A call that runs is use, however long it runs.
#[tokio::test(start_paused = true)]
async fn a_server_that_works_is_not_unused() {
    let mut settings = server("a");
    settings.idle_stop = Some(Duration::from_secs(10));
    let (world, mut host, mut server) = pair_with(settings).await;
    host.call(1, "a__t").await;
    let call = server.expect("tools/call").await;
    server.quiet(Duration::from_secs(50)).await;
    server.result(&call, text("slow")).await;
    assert_eq!(text_of(&host.answer(1).await), "slow");
    let start = Instant::now();
    assert!(server.next().await.is_none());
    assert!(start.elapsed() >= Duration::from_secs(10) && start.elapsed() <= Duration::from_secs(12));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_eager_server_is_never_unused() {
    let mut settings = server("a");
    settings.start = Start::Eager;
    let (world, _host, mut server) = pair_with(settings).await;
    server.quiet(Duration::from_secs(3000)).await;
    world.end().await;
}

/// A stop finds servers anywhere in their start: each closes, and nothing that was begun for it is left.
#[tokio::test(start_paused = true)]
async fn a_stop_during_a_start_ends_all_that_was_begun() {
    let mut world = World::new(["probed", "opened", "listed", "waiting"].map(server).into());
    let mut probed = world.accept("probed").await;
    probed.expect("server/discover").await;
    let mut opened = world.accept("opened").await;
    let probe = opened.expect("server/discover").await;
    opened.error(&probe, -32601).await;
    opened.expect("initialize").await;
    let mut listed = world.accept("listed").await;
    let probe = listed.expect("server/discover").await;
    listed.error(&probe, -32601).await;
    listed.initialized().await;
    listed.expect("tools/list").await;
    drop(world.accept("waiting").await);
    let mut waiting = world.accept("waiting").await;
    waiting.expect("initialize").await;
    drop(waiting);
    let start = Instant::now();
    world.end().await;
    took(start, Duration::ZERO);
    for mut server in [probed, opened, listed] {
        while let Some(last) = server.next().await {
            assert_eq!(last["method"], "notifications/cancelled", "{last}");
        }
    }
}

/// A server that hangs is found out though nobody calls it, and started anew.
#[tokio::test(start_paused = true)]
async fn a_server_that_gives_no_sign_of_life_is_started_anew() {
    async fn start_up(a: &mut End, modern: bool) {
        if modern {
            a.modern(&["t"]).await;
        } else {
            a.initialized().await;
            a.listed(&["t"]).await;
        }
    }
    for modern in [false, true] {
        let mut settings = server("a");
        settings.ping = Some(Duration::from_secs(30));
        settings.timeouts.ping = Duration::from_secs(5);
        settings.era = if modern { EraChoice::Modern } else { EraChoice::Legacy };
        let mut world = World::new(vec![settings]);
        let mut host = world.host();
        let mut a = world.accept("a").await;
        let question = if modern { "server/discover" } else { "ping" };
        start_up(&mut a, modern).await;
        host.open("2025-11-25").await;
        assert_eq!(host.list().await, ["a__t"]);
        // Any answer is a sign, an error too; and it keeps on being asked.
        for _ in 0..3 {
            let asked = Instant::now();
            let ping = a.expect(question).await;
            assert!(asked.elapsed() <= Duration::from_secs(61), "{:?}", asked.elapsed());
            a.error(&ping, -32601).await;
        }
        // One that works says nothing for as long as a call may take; its host waits for it.
        host.call(1, "a__t").await;
        let call = a.expect("tools/call").await;
        tokio::time::sleep(Duration::from_secs(55)).await;
        a.result(&call, text("late")).await;
        assert_eq!(text_of(&host.answer(1).await), "late");
        // Two questions without an answer.
        let start = Instant::now();
        let mut again = world.accept("a").await;
        let elapsed = start.elapsed();
        assert!(elapsed >= Duration::from_secs(10) && elapsed <= Duration::from_secs(72), "{elapsed:?}");
        start_up(&mut again, modern).await;
        host.call(2, "a__t").await;
        let call = again.expect("tools/call").await;
        again.result(&call, text("back")).await;
        assert_eq!(text_of(&host.answer(2).await), "back");
        let last_error = world.gateway.servers().next().unwrap().last_error().unwrap();
        assert!(last_error.contains("no sign of life"), "{last_error}");
        world.end().await;
    }
}

/// PRB-2: one that ends on the probe is started again, once, and not probed.
#[tokio::test(start_paused = true)]
async fn prb2_a_server_that_ends_on_the_probe_is_opened_again_without_it() {
    let mut world = World::new(vec![server("a")]);
    let mut host = world.host();
    let mut first = world.accept("a").await;
    first.expect("server/discover").await;
    let start = Instant::now();
    drop(first);
    let mut second = world.accept("a").await;
    took(start, Duration::ZERO);
    second.initialized().await;
    second.listed(&["t"]).await;
    host.open("2025-11-25").await;
    assert_eq!(host.list().await, ["a__t"]);
    assert!(!world.is_started("a"));
    // Nor the next time: what it said counts (PRB-8).
    host.ask(1, "ping", json!({})).await;
    host.answer(1).await;
    world.end().await;
}
