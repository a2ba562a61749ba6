//! Another configuration while hosts are there: what is the same goes on, what is not is another for the next request, and
//! what is wrong changes nothing.

use std::time::Duration;

use onegate::config::settings::{
    Effect, ItemFilter, OverrideSettings, PolicySettings, ProfileSettings, ServerSettings, Settings,
};
use onegate::gateway::Reloaded;
use serde_json::json;
use tokio::time::sleep;

use super::end::{End, names, text, text_of};
use super::full::{CELLS, Era, Full, LISTS, is_unknown, ways};
use super::policy::{limit, rule};
use super::world::{LATER, World, server, settings, two};

async fn reload(world: &World, servers: Vec<ServerSettings>, change: impl FnOnce(&mut Settings)) -> Reloaded {
    world.current.reload(settings(servers, change)).await.unwrap()
}

/// A server that has everything, and a host that has listed its tool and subscribed to its `x:1`.
async fn subscribed(era: Era, server_era: Era) -> (World, End, Full) {
    let mut world = World::new(vec![server("a")]);
    let mut a = Full::new(world.accept("a").await, server_era);
    a.settle().await;
    let mut host = world.host();
    era.open(&mut host).await;
    assert_eq!(names(&era.get(&mut host, "tools/list", json!({})).await), ["a__t"]);
    if era == Era::Legacy {
        host.ask(1, "resources/subscribe", json!({"uri": "x:1"})).await;
    } else {
        let wanted = json!({"notifications": {"resourceSubscriptions": ["x:1"], "toolsListChanged": true}});
        host.ask("listen", "subscriptions/listen", era.params(wanted)).await;
    }
    wanted(&mut a).await;
    let told = host.next().await.unwrap();
    assert!(told.get("error").is_none(), "{told}");
    (world, host, a)
}

/// A server is asked to tell of `x:1`.
async fn wanted(a: &mut Full) {
    if a.era == Era::Legacy {
        let asked = a.expect("resources/subscribe").await;
        a.end.result(&asked, json!({})).await;
    }
    a.quiet(Duration::from_secs(1)).await;
}

fn strings(all: &[&str]) -> Vec<String> {
    all.iter().map(|one| (*one).to_owned()).collect()
}

/// A server that goes on keeps its connection, its list and its running call; one that is taken out is gone from the list
/// and from calls, and hosts are told (D028, SUB-1).
#[tokio::test(start_paused = true)]
async fn d028_what_stays_goes_on_and_what_is_taken_out_is_unknown_at_once() {
    let (mut world, mut host, mut a, mut b) = two().await;
    host.call("on a", "a__t").await;
    let on_a = a.expect("tools/call").await;
    host.call("on b", "b__t").await;
    let on_b = b.expect("tools/call").await;
    let reloaded = reload(&world, vec![server("a")], |_| {}).await;
    assert_eq!(reloaded, Reloaded { removed: strings(&["b"]), kept: 1, ..Reloaded::default() });
    host.call(1, "b__t").await;
    assert_eq!(host.next_but_lists().await["error"]["code"], -32602);
    // What began before ends as it would have.
    a.result(&on_a, text("of a")).await;
    b.result(&on_b, text("of b")).await;
    assert_eq!(text_of(&host.answer("on a").await), "of a");
    assert_eq!(text_of(&host.answer("on b").await), "of b");
    assert_eq!(host.list().await, ["a__t"]);
    a.quiet(Duration::from_secs(60)).await;
    assert_eq!(b.next().await, None, "nobody needs it any more");
    // It comes back as a new one, in its old place.
    let reloaded = reload(&world, vec![server("a"), server("b")], |_| {}).await;
    assert_eq!(reloaded, Reloaded { added: strings(&["b"]), kept: 1, ..Reloaded::default() });
    let mut b = world.accept("b").await;
    b.legacy(&["u"]).await;
    host.expect("notifications/tools/list_changed").await;
    assert_eq!(host.list().await, ["a__t", "b__u"]);
    assert!(!world.is_started("a"));
    world.end().await;
}

/// A call that runs at a server that is taken out has its time, but not without end.
#[tokio::test(start_paused = true)]
async fn a_call_at_a_server_that_is_gone_ends_at_some_time() {
    let (world, mut host, _a, mut b) = two().await;
    host.call(1, "b__t").await;
    b.expect("tools/call").await;
    reload(&world, vec![server("a")], |_| {}).await;
    host.expect("notifications/tools/list_changed").await;
    host.quiet(Duration::from_secs(29)).await;
    let answer = host.answer(1).await;
    assert_eq!(answer["error"]["data"]["reason"], "downstream-unavailable", "{answer}");
    world.end().await;
}

/// Many reloads in a row take no call's server away from it.
#[tokio::test(start_paused = true)]
async fn a_call_outlives_several_reloads() {
    let (world, mut host, mut a, _b) = two().await;
    host.call(1, "a__t").await;
    let call = a.expect("tools/call").await;
    reload(&world, vec![server("a")], |_| {}).await;
    reload(&world, vec![server("b")], |_| {}).await;
    reload(&world, vec![], |_| {}).await;
    sleep(Duration::from_secs(5)).await;
    a.result(&call, text("late")).await;
    assert_eq!(text_of(&host.next_but_lists().await), "late");
    world.end().await;
}

/// D027: a call that runs at `a` is not touched when `b` is run otherwise; hosts are told once.
#[tokio::test(start_paused = true)]
async fn d027_one_server_is_run_otherwise_and_the_others_are_left_alone() {
    let (mut world, mut host, mut a, mut b) = two().await;
    host.call(1, "a__t").await;
    let call = a.expect("tools/call").await;
    let mut other = server("b");
    other.timeouts.call *= 2;
    let reloaded = reload(&world, vec![server("a"), other], |_| {}).await;
    assert_eq!(reloaded, Reloaded { changed: strings(&["b"]), kept: 1, ..Reloaded::default() });
    assert_eq!(b.next().await, None, "nobody uses it");
    let mut b = world.accept("b").await;
    assert_eq!(host.list().await, ["a__t", "b__t"], "as it was, until it lists");
    b.legacy(&["v"]).await;
    host.expect("notifications/tools/list_changed").await;
    assert_eq!(host.list().await, ["a__t", "b__v"]);
    host.quiet(Duration::from_secs(5)).await;
    a.result(&call, text("fine")).await;
    assert_eq!(text_of(&host.answer(1).await), "fine");
    assert!(!world.is_started("a"));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_new_server_is_listed_and_told_of_once() {
    let (mut world, mut host, _a, _b) = two().await;
    let reloaded = reload(&world, vec![server("a"), server("b"), server(LATER)], |_| {}).await;
    assert_eq!(reloaded, Reloaded { added: strings(&[LATER]), kept: 2, ..Reloaded::default() });
    let mut new = world.accept(LATER).await;
    new.legacy(&["n"]).await;
    host.expect("notifications/tools/list_changed").await;
    assert_eq!(host.list().await, ["a__t", "b__t", "later__n"]);
    host.quiet(Duration::from_secs(5)).await;
    world.end().await;
}

/// What is only shown or decided otherwise needs no start.
#[tokio::test(start_paused = true)]
async fn names_filters_and_overrides_change_without_a_start() {
    let (world, mut host, mut a, mut b) = two().await;
    let (mut first, mut second) = (server("a"), server("b"));
    first.prefix = "other".into();
    first.overrides =
        vec![OverrideSettings { native: "t".into(), title: Some("T".into()), ..OverrideSettings::default() }];
    second.tools = ItemFilter { allow: None, deny: strings(&["t"]) };
    second.required = true;
    let reloaded = reload(&world, vec![first, second], |settings| {
        settings.gateway.instructions = Some("anew".into());
    })
    .await;
    assert_eq!(reloaded, Reloaded { kept: 2, ..Reloaded::default() });
    host.expect("notifications/tools/list_changed").await;
    host.ask(1, "tools/list", json!({})).await;
    let answer = host.answer(1).await;
    assert_eq!(names(&answer), ["other__t"]);
    assert_eq!(answer["result"]["tools"][0]["title"], "T");
    host.call(2, "b__t").await;
    assert_eq!(host.answer(2).await["error"]["code"], -32602);
    a.quiet(Duration::from_secs(1)).await;
    b.quiet(Duration::from_secs(1)).await;
    assert!(!world.is_started("a") && !world.is_started("b"));
    let mut later = world.host();
    later
        .ask(
            1,
            "initialize",
            json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}}),
        )
        .await;
    let answer = later.answer(1).await;
    assert!(answer["result"]["instructions"].as_str().unwrap().starts_with("anew"), "{answer}");
    world.end().await;
}

/// One that says the same is no news to anybody.
#[tokio::test(start_paused = true)]
async fn the_same_configuration_changes_nothing() {
    let (world, mut host, mut a, mut b) = two().await;
    for _ in 0..3 {
        let reloaded = reload(&world, vec![server("a"), server("b")], |_| {}).await;
        assert_eq!(reloaded, Reloaded { kept: 2, ..Reloaded::default() });
        host.quiet(Duration::from_secs(5)).await;
    }
    a.quiet(Duration::from_secs(1)).await;
    b.quiet(Duration::from_secs(1)).await;
    assert!(!world.is_started("a") && !world.is_started("b"));
    assert_eq!(host.list().await, ["a__t", "b__t"]);
    world.end().await;
}

/// E-40, D029: what is wrong with a new one leaves the old one in force, all of it.
/// A server that never lists was waited for once; other rules make nobody wait anew (D002, LST-1).
#[tokio::test(start_paused = true)]
async fn d002_a_silent_server_is_not_waited_for_again() {
    let mut world = World::new(vec![server("a"), server("b")]);
    let mut a = world.accept("a").await;
    a.legacy(&["t"]).await;
    let _silent = world.accept("b").await;
    let mut host = world.host();
    assert_eq!(names(&Era::Modern.get(&mut host, "tools/list", json!({})).await), ["a__t"]);
    reload(&world, vec![server("a"), server("b")], |settings| settings.gateway.name_budget = 40).await;
    let begun = tokio::time::Instant::now();
    assert_eq!(names(&Era::Modern.get(&mut host, "tools/list", json!({})).await), ["a__t"]);
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn e40_a_configuration_with_a_fault_changes_nothing() {
    let (world, mut host, mut a, _b) = two().await;
    let wrong = settings(vec![server(LATER)], |settings| {
        settings.policy.rules = vec![rule(Effect::Deny, "*", "a/tool/re:(")];
    });
    let faults = world.current.reload(wrong).await.unwrap_err();
    assert_eq!(faults.len(), 1);
    host.quiet(Duration::from_secs(2)).await;
    assert_eq!(host.list().await, ["a__t", "b__t"]);
    host.call(1, "a__t").await;
    let call = a.expect("tools/call").await;
    a.result(&call, text("still")).await;
    assert_eq!(text_of(&host.answer(1).await), "still");
    assert!(!world.is_started(LATER));
    world.end().await;
}

/// E-20: what a reload denies is unknown by every method in all cells, for hosts that knew it; its server hears nothing of
/// it, and what it tells of it is told to nobody.
#[tokio::test(start_paused = true)]
async fn e20_d097_what_is_denied_by_a_reload_is_reached_on_no_way() {
    for (era, server_era) in CELLS {
        let (world, mut host, mut a) = subscribed(era, server_era).await;
        let denying = PolicySettings { default: Some(Effect::Deny), ..PolicySettings::default() };
        reload(&world, vec![server("a")], |settings| settings.policy = denying).await;
        for (method, params) in ways() {
            host.ask("deny", method, era.params(params)).await;
            is_unknown(&host.next_but_lists().await);
        }
        for (list, member) in LISTS {
            host.ask("list", list, era.params(json!({}))).await;
            let answer = host.next_but_lists().await;
            assert_eq!(answer["result"][member], json!([]), "{answer}");
        }
        // Only that lists changed is told, and then nothing more.
        a.tell("notifications/resources/updated", json!({"uri": "x:1"})).await;
        sleep(Duration::from_secs(2)).await;
        a.quiet(Duration::from_secs(1)).await;
        host.ask("end", "ping", era.params(json!({}))).await;
        let last = host.next_but_lists().await;
        assert_eq!(last["id"], "end", "{last}");
        world.end().await;
    }
}

/// A quota is not begun anew by loading the same limit again, wherever it stands among others; another limit begins.
#[tokio::test(start_paused = true)]
async fn d32_limits_go_on_counting() {
    let limited = |limits: Vec<_>| move |settings: &mut Settings| settings.policy.limits = limits;
    let mut world = World::with(vec![server("a")], limited(vec![limit("a/tool/t", 2)]));
    let mut host = world.host();
    let mut a = world.accept("a").await;
    a.legacy(&["t"]).await;
    host.open("2025-11-25").await;
    host.list().await;
    for id in 1..3 {
        host.call(id, "a__t").await;
        let call = a.expect("tools/call").await;
        a.result(&call, text("one")).await;
        host.answer(id).await;
    }
    let refused = async |host: &mut End| {
        host.call("more", "a__t").await;
        let answer = host.next_but_lists().await;
        assert_eq!(answer["result"]["isError"], true, "{answer}");
        assert!(answer.to_string().contains("rate-limited"), "{answer}");
    };
    refused(&mut host).await;
    reload(&world, vec![server("a")], limited(vec![limit("b/tool/t", 2), limit("a/tool/t", 2)])).await;
    refused(&mut host).await;
    reload(&world, vec![server("a")], limited(vec![limit("a/tool/t", 3)])).await;
    host.call(9, "a__t").await;
    a.expect("tools/call").await;
    world.end().await;
}

/// SUB-7: who subscribed to a server that goes on is told as before; one that takes the place of another is told what is
/// wanted, and its hosts that it may be another.
#[tokio::test(start_paused = true)]
async fn sub7_subscriptions_outlive_a_reload() {
    for (era, server_era) in CELLS {
        let (mut world, mut host, mut a) = subscribed(era, server_era).await;
        let mut shown = server("a");
        shown.overrides = vec![OverrideSettings { native: "t".into(), hide: true, ..OverrideSettings::default() }];
        reload(&world, vec![shown], |_| {}).await;
        sleep(Duration::from_secs(2)).await;
        a.tell("notifications/resources/updated", json!({"uri": "x:1"})).await;
        let told = host.next_but_lists().await;
        assert_eq!(told["params"]["uri"], "x:1", "{era:?} {server_era:?} {told}");
        let mut other = server("a");
        other.timeouts.call *= 2;
        reload(&world, vec![other], |_| {}).await;
        let told = host.next_but_lists().await;
        assert_eq!(told["params"]["uri"], "x:1", "it may be another: {told}");
        let mut a = Full::new(world.accept("a").await, server_era);
        wanted(&mut a).await;
        a.settle().await;
        a.tell("notifications/resources/updated", json!({"uri": "x:1"})).await;
        let told = host.next_but_lists().await;
        assert_eq!(told["params"]["uri"], "x:1", "{era:?} {server_era:?} {told}");
        world.end().await;
    }
}

/// A profile that is taken out shows nothing to who is still there, and no other profile takes its place.
#[tokio::test(start_paused = true)]
async fn a_profile_that_is_gone_shows_nothing() {
    let named = |name: &str, server: &str| ProfileSettings {
        name: name.into(),
        servers: Some(vec![onegate::ident::ServerKey::new(server).unwrap()]),
        ..ProfileSettings::everything()
    };
    let mut world = World::with(vec![server("a"), server("b")], |settings| settings.profiles = vec![named("one", "a")]);
    let mut host = world.host();
    let (mut a, mut b) = (world.accept("a").await, world.accept("b").await);
    a.legacy(&["t"]).await;
    b.legacy(&["t"]).await;
    host.open("2025-11-25").await;
    assert_eq!(host.list().await, ["a__t"]);
    reload(&world, vec![server("a"), server("b")], |settings| settings.profiles = vec![named("two", "b")]).await;
    let now = world.current.now();
    assert_eq!((now.profile("one"), now.profile("two")), (None, Some(1)));
    host.ask(1, "tools/list", json!({})).await;
    assert_eq!(host.next_but_lists().await["result"]["tools"], json!([]));
    reload(&world, vec![server("a"), server("b")], |settings| settings.profiles = vec![named("one", "b")]).await;
    host.ask(2, "tools/list", json!({})).await;
    assert_eq!(names(&host.next_but_lists().await), ["b__t"]);
    world.end().await;
}

/// Nothing of a configuration is kept that is not in force any more and serves nobody.
#[tokio::test(start_paused = true)]
async fn what_was_replaced_is_let_go() {
    let (mut world, mut host, _a, _b) = two().await;
    let mut modern = world.host();
    let wanted = json!({"notifications": {"toolsListChanged": true}});
    modern.ask("listen", "subscriptions/listen", Era::Modern.params(wanted)).await;
    modern.expect("notifications/subscriptions/acknowledged").await;
    for _ in 0..3 {
        let old = std::sync::Arc::downgrade(&world.current.now());
        reload(&world, vec![server("a"), server("b")], |_| {}).await;
        world.gateway = world.current.now();
        host.list().await;
        sleep(Duration::from_secs(40)).await;
        assert_eq!(old.strong_count(), 0);
    }
    world.end().await;
}
