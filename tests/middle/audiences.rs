//! What servers list to hosts that can do more, which others do not see.

use std::time::Duration;

use onegate::config::settings::{Effect, OverrideSettings, PolicySettings, RuleSettings};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::end::{End, list_of, modern_as, names, text, text_of};
use super::full::{Era, Full};
use super::world::{World, server, took};

fn can() -> Value {
    json!({"elicitation": {}})
}

/// A legacy server `a` that lists `t` to all, and two hosts: one that can be asked, and one that cannot.
async fn two() -> (World, End, End, End) {
    let mut world = World::new(vec![server("a")]);
    let (mut able, mut other) = (world.host(), world.host());
    let mut base = world.accept("a").await;
    base.legacy(&["t"]).await;
    other.open("2025-11-25").await;
    assert_eq!(other.list().await, ["a__t"]);
    other.quiet(Duration::from_secs(2)).await;
    able.open_as("2025-11-25", can()).await;
    (world, able, other, base)
}

#[tokio::test(start_paused = true)]
async fn lst1_cch5_cch6_a_server_lists_more_to_who_can_do_more_and_to_nobody_else() {
    let (mut world, mut able, mut other, mut base) = two().await;
    able.ask("l", "tools/list", json!({})).await;
    let mut own = world.accept("a").await;
    assert_eq!(own.leased_with(&["t", "ask"]).await, can());
    assert_eq!(names(&able.answer("l").await), ["a__t", "a__ask"]);
    // It is known now, and waits for nothing.
    assert_eq!(able.list().await, ["a__t", "a__ask"]);
    able.call(1, "a__ask").await;
    let call = own.expect("tools/call").await;
    assert_eq!(call["params"]["name"], "ask");
    own.result(&call, text("asked")).await;
    assert_eq!(text_of(&able.answer(1).await), "asked");
    assert_eq!(other.list().await, ["a__t"]);
    other.call(1, "a__ask").await;
    assert_eq!(other.answer(1).await["error"]["code"], -32602);
    able.quiet(Duration::from_secs(2)).await;
    // A change there is told to its hosts, after it is in the list.
    own.tell("notifications/tools/list_changed", json!({})).await;
    own.listed(&["ask"]).await;
    able.expect("notifications/tools/list_changed").await;
    assert_eq!(able.list().await, ["a__ask"]);
    other.quiet(Duration::from_secs(2)).await;
    // One for all is told to all, once each.
    base.tell("notifications/tools/list_changed", json!({})).await;
    own.tell("notifications/tools/list_changed", json!({})).await;
    own.listed(&["t", "ask", "new"]).await;
    base.listed(&["t", "new"]).await;
    able.expect("notifications/tools/list_changed").await;
    other.expect("notifications/tools/list_changed").await;
    assert_eq!(able.list().await, ["a__t", "a__ask", "a__new"]);
    assert_eq!(other.list().await, ["a__t", "a__new"]);
    able.quiet(Duration::from_secs(2)).await;
    other.quiet(Duration::from_secs(2)).await;
    world.end().await;
}

/// What a server lists to some hosts alone is under the same rules and overrides as what it lists to all.
#[tokio::test(start_paused = true)]
async fn e20_d095_what_is_listed_to_one_host_meets_the_same_policy() {
    for who in ["*", "stdio"] {
        let rule = RuleSettings::new(Effect::Deny, [who], ["a/tool/secret"], "here");
        let policy = PolicySettings { default: Some(Effect::Allow), rules: vec![rule], ..PolicySettings::default() };
        let mut settings = server("a");
        settings.overrides = vec![
            OverrideSettings { native: "ask".into(), name: Some("question".into()), ..OverrideSettings::default() },
            OverrideSettings { native: "odd".into(), hide: true, ..OverrideSettings::default() },
        ];
        let mut world = World::with(vec![settings], |settings| settings.policy = policy);
        let mut host = world.host();
        let mut base = world.accept("a").await;
        base.legacy(&["t"]).await;
        host.open_as("2025-11-25", can()).await;
        host.ask("l", "tools/list", json!({})).await;
        let mut own = world.accept("a").await;
        own.leased_with(&["t", "ask", "secret", "odd"]).await;
        assert_eq!(names(&host.answer("l").await), ["a__t", "a__question"], "{who}");
        for name in ["a__secret", "a__odd", "a__ask", "secret"] {
            host.call(1, name).await;
            assert_eq!(host.answer(1).await["error"]["code"], -32602, "{who}: {name}");
        }
        host.call(2, "a__question").await;
        let call = own.expect("tools/call").await;
        assert_eq!(call["params"]["name"], "ask");
        own.result(&call, text("asked")).await;
        assert_eq!(text_of(&host.answer(2).await), "asked");
        world.end().await;
    }
}

/// A modern host says what it can do with each request, and sees what that gives.
#[tokio::test(start_paused = true)]
async fn cch6_a_modern_host_sees_what_its_request_can_do() {
    let mut world = World::new(vec![server("a")]);
    let mut host = world.host();
    let mut base = world.accept("a").await;
    base.legacy(&["t"]).await;
    // Asked for before it was ever listed.
    host.ask(1, "tools/call", modern_as(json!({"name": "a__ask"}), can())).await;
    let mut own = world.accept("a").await;
    own.leased_with(&["t", "ask"]).await;
    let call = own.expect("tools/call").await;
    own.result(&call, text("asked")).await;
    assert_eq!(text_of(&host.answer(1).await), "asked");
    for (capabilities, expected) in [(can(), &["a__t", "a__ask"][..]), (json!({}), &["a__t"])] {
        host.ask(2, "tools/list", modern_as(json!({}), capabilities)).await;
        assert_eq!(names(&host.answer(2).await), expected);
    }
    host.ask(3, "tools/call", modern_as(json!({"name": "a__ask"}), json!({}))).await;
    assert_eq!(host.answer(3).await["error"]["code"], -32602);
    assert!(!world.is_started("a"));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn d002_a_server_that_is_slow_to_list_to_one_host_holds_it_up_once() {
    let (mut world, mut able, mut other, _base) = two().await;
    let start = Instant::now();
    able.ask("l", "tools/list", json!({})).await;
    let mut own = world.accept("a").await;
    own.leased("2025-11-25").await;
    assert_eq!(names(&able.answer("l").await), ["a__t"], "what it lists to all");
    assert!(start.elapsed() <= Duration::from_secs(6), "{:?}", start.elapsed());
    world.end().await;
    // It hangs: then what comes later is told, and nobody else waits.
    let (mut world, mut able, mut other_again, _base) = two().await;
    std::mem::swap(&mut other, &mut other_again);
    let start = Instant::now();
    able.ask("l", "tools/list", json!({})).await;
    let mut own = world.accept("a").await;
    let opening = own.expect("initialize").await;
    assert_eq!(other.list().await, ["a__t"]);
    assert_eq!(names(&able.answer("l").await), ["a__t"]);
    took(start, Duration::from_secs(5));
    own.result(
        &opening,
        json!({"protocolVersion": "2025-11-25", "serverInfo": {"name": "t", "version": "0"},
        "capabilities": {"tools": {"listChanged": true}}}),
    )
    .await;
    own.expect("notifications/initialized").await;
    let asked = own.expect("tools/list").await;
    own.result(&asked, list_of(&["t", "late"])).await;
    able.expect("notifications/tools/list_changed").await;
    assert_eq!(able.list().await, ["a__t", "a__late"]);
    other.quiet(Duration::from_secs(2)).await;
    world.end().await;
}

/// What it lists to a host as to all costs no list of its own, and is told of as to all.
#[tokio::test(start_paused = true)]
async fn sub1_a_server_that_makes_no_difference_makes_none() {
    let (mut world, mut able, mut other, mut base) = two().await;
    able.ask("l", "tools/list", json!({})).await;
    let mut own = world.accept("a").await;
    own.leased_with(&["t"]).await;
    assert_eq!(names(&able.answer("l").await), ["a__t"]);
    able.quiet(Duration::from_secs(2)).await;
    base.tell("notifications/tools/list_changed", json!({})).await;
    base.listed(&["t", "u"]).await;
    able.expect("notifications/tools/list_changed").await;
    other.expect("notifications/tools/list_changed").await;
    assert_eq!(able.list().await, ["a__t", "a__u"]);
    assert_eq!(other.list().await, ["a__t", "a__u"]);
    own.quiet(Duration::from_secs(1)).await;
    world.end().await;
}

/// SUB-7: a legacy server tells of resources where its host's requests go, since what it holds for that host it holds
/// there.
#[tokio::test(start_paused = true)]
async fn sub7_con1_a_host_hears_of_resources_from_the_connection_that_serves_it() {
    let mut world = World::new(vec![server("a")]);
    let (mut able, mut other) = (world.host(), world.host());
    let mut base = Full::new(world.accept("a").await, Era::Legacy);
    base.settle().await;
    other.open("2025-11-25").await;
    able.open_as("2025-11-25", can()).await;
    let resource = json!({"uri": "x:1"});
    able.ask(1, "resources/subscribe", resource.clone()).await;
    let mut own = Full::new(world.accept("a").await, Era::Legacy);
    let asked = own.expect("resources/subscribe").await;
    own.end.result(&asked, json!({})).await;
    able.answer(1).await;
    other.ask(1, "resources/subscribe", resource.clone()).await;
    let asked = base.expect("resources/subscribe").await;
    base.end.result(&asked, json!({})).await;
    other.answer(1).await;
    own.tell("notifications/resources/updated", resource.clone()).await;
    assert_eq!(able.expect("notifications/resources/updated").await["params"], resource);
    other.quiet(Duration::from_secs(1)).await;
    base.tell("notifications/resources/updated", resource.clone()).await;
    assert_eq!(other.expect("notifications/resources/updated").await["params"], resource);
    able.quiet(Duration::from_secs(1)).await;
    // It is not unused, and comes back with what is wanted (SUB-9).
    tokio::time::sleep(Duration::from_secs(900)).await;
    assert!(!world.is_started("a"));
    drop(own);
    let mut own = Full::new(world.accept("a").await, Era::Legacy);
    let asked = own.expect("resources/subscribe").await;
    own.end.result(&asked, json!({})).await;
    able.expect("notifications/resources/updated").await;
    able.ask(2, "resources/unsubscribe", resource.clone()).await;
    able.answer(2).await;
    assert_eq!(own.expect("resources/unsubscribe").await["params"], resource);
    base.quiet(Duration::from_secs(1)).await;
    world.end().await;
}
