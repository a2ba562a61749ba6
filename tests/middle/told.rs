//! What hosts are told of servers unasked: changes of lists and of resources, log messages; and what passes beside a
//! request.
//!
//! Long, and one thing: each test is something that hosts are told.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use super::end::{End, cancelled, modern, text};
use super::full::{CELLS, ERAS, Era, Full, LOG_LEVEL, SUBSCRIPTION, one};
use super::world::{World, server, took};

/// The next link to `a`, as a server like the last one.
async fn again(world: &mut World, era: Era) -> Full {
    Full::new(world.accept("a").await, era)
}

/// A host of this era that wants to know of these resources; modern ones under the id of the stream.
async fn subscriber(world: &World, era: Era, a: &mut Full, id: &str, uris: &[&str]) -> End {
    let mut host = world.host();
    era.open(&mut host).await;
    match era {
        Era::Legacy => {
            for uri in uris {
                host.ask(id, "resources/subscribe", json!({"uri": uri})).await;
                serve_subscribe(a).await;
                assert_eq!(host.answer(id).await["result"], json!({}));
            }
        }
        Era::Modern => {
            let params = modern(json!({"notifications": {"resourceSubscriptions": uris}}));
            host.ask(id, "subscriptions/listen", params).await;
            serve_subscribe(a).await;
            let first = host.expect("notifications/subscriptions/acknowledged").await;
            assert_eq!(first["params"]["notifications"], json!({"resourceSubscriptions": uris}));
        }
    }
    host
}

/// Serves until the server was told what is wanted; a legacy one agrees. Answers the subscriptions that it was asked for.
async fn serve_subscribe(a: &mut Full) -> Vec<String> {
    let mut asked = Vec::new();
    while let Ok(message) = timeout(Duration::from_millis(100), a.next()).await {
        let message = message.unwrap();
        let method = message["method"].as_str().unwrap();
        assert!(method.starts_with("resources/"), "{message}");
        asked.push(format!("{} {}", &method[10..], message["params"]["uri"].as_str().unwrap()));
        a.end.result(&message, json!({})).await;
    }
    asked
}

/// The next message says that this resource is another.
async fn updated(host: &mut End, era: Era, id: &str, uri: &str) {
    let told = host.expect("notifications/resources/updated").await;
    assert_eq!(told["params"]["uri"], uri);
    let stream = &told["params"]["_meta"][SUBSCRIPTION];
    assert_eq!(stream, &if era == Era::Modern { json!(id) } else { Value::Null });
}

async fn unsubscribe(host: &mut End, era: Era, id: &str, uri: &str) {
    match era {
        Era::Legacy => {
            host.ask("un", "resources/unsubscribe", json!({"uri": uri})).await;
            assert_eq!(host.answer("un").await["result"], json!({}));
        }
        Era::Modern => host.tell("notifications/cancelled", cancelled(id)).await,
    }
}

/// SUB-2, SUB-3, SUB-4, SUB-5, D060.
#[tokio::test(start_paused = true)]
async fn sub2_changes_of_a_kind_are_told_to_legacy_hosts_and_to_streams_that_asked_for_it() {
    for era in ERAS {
        let (world, mut a) = one(era, |_| {}).await;
        let (mut legacy, mut host) = (world.host(), world.host());
        Era::Legacy.open(&mut legacy).await;
        for (id, wanted) in [("P", "promptsListChanged"), ("R", "resourcesListChanged")] {
            host.ask(id, "subscriptions/listen", modern(json!({"notifications": {wanted: true}}))).await;
            let first = host.expect("notifications/subscriptions/acknowledged").await;
            assert_eq!(first["params"]["notifications"], json!({wanted: true}));
        }
        a.prompts = json!([{"name": "q"}]);
        a.tell("notifications/prompts/list_changed", json!({})).await;
        a.settle().await;
        let told = host.expect("notifications/prompts/list_changed").await;
        assert_eq!(told["params"]["_meta"][SUBSCRIPTION], "P");
        legacy.expect("notifications/prompts/list_changed").await;
        assert_eq!(
            Era::Legacy.get(&mut legacy, "prompts/list", json!({})).await["result"]["prompts"][0]["name"],
            "a__q"
        );
        // Templates have no word of their own: they are told of as resources.
        a.templates = json!([{"name": "n", "uriTemplate": "n:{id}"}]);
        a.tell("notifications/resources/list_changed", json!({})).await;
        a.settle().await;
        let told = host.expect("notifications/resources/list_changed").await;
        assert_eq!(told["params"]["_meta"][SUBSCRIPTION], "R");
        legacy.expect("notifications/resources/list_changed").await;
        // Tools changed, and nobody but the legacy host wants to know.
        a.tools = json!([]);
        a.tell("notifications/tools/list_changed", json!({})).await;
        a.settle().await;
        legacy.expect("notifications/tools/list_changed").await;
        host.quiet(Duration::from_secs(60)).await;
        legacy.quiet(Duration::from_secs(60)).await;
        world.end().await;
    }
}

/// SUB-3: what changes while it is found out which resources are told of comes after the first message, not before.
#[tokio::test(start_paused = true)]
async fn sub3_nothing_is_told_on_a_stream_before_it_is_acknowledged() {
    let (world, mut a) = one(Era::Legacy, |_| {}).await;
    let mut host = world.host();
    let notifications = json!({"promptsListChanged": true, "resourceSubscriptions": ["x:1"]});
    host.ask("L", "subscriptions/listen", modern(json!({"notifications": notifications}))).await;
    let slow = a.expect("resources/subscribe").await;
    a.prompts = json!([]);
    a.tell("notifications/prompts/list_changed", json!({})).await;
    a.settle().await;
    a.end.result(&slow, json!({})).await;
    let first = host.expect("notifications/subscriptions/acknowledged").await;
    assert_eq!(first["params"]["notifications"], notifications);
    host.expect("notifications/prompts/list_changed").await;
    host.quiet(Duration::from_secs(10)).await;
    world.end().await;
}

/// D069, SUB-7, SUB-10, U-10: in all cells, with two hosts, of which one leaves.
#[tokio::test(start_paused = true)]
async fn d069_a_resource_is_told_of_to_all_who_want_it_until_the_last_has_gone() {
    for (era, server_era) in CELLS {
        let (world, mut a) = one(server_era, |_| {}).await;
        let mut one = subscriber(&world, era, &mut a, "1", &["x:1"]).await;
        let mut two = world.host();
        era.open(&mut two).await;
        // The server is not told again.
        match era {
            Era::Legacy => two.ask("2", "resources/subscribe", json!({"uri": "x:1"})).await,
            Era::Modern => {
                let params = modern(json!({"notifications": {"resourceSubscriptions": ["x:1"]}}));
                two.ask("2", "subscriptions/listen", params).await;
            }
        }
        match era {
            Era::Legacy => drop(two.answer("2").await["result"].as_object().unwrap()),
            Era::Modern => drop(two.expect("notifications/subscriptions/acknowledged").await),
        }
        assert!(serve_subscribe(&mut a).await.is_empty());
        a.tell("notifications/resources/updated", json!({"uri": "x:1"})).await;
        updated(&mut one, era, "1", "x:1").await;
        updated(&mut two, era, "2", "x:1").await;
        unsubscribe(&mut one, era, "1", "x:1").await;
        assert!(serve_subscribe(&mut a).await.is_empty());
        a.tell("notifications/resources/updated", json!({"uri": "x:1"})).await;
        updated(&mut two, era, "2", "x:1").await;
        one.quiet(Duration::from_secs(5)).await;
        unsubscribe(&mut two, era, "2", "x:1").await;
        let told = serve_subscribe(&mut a).await;
        match server_era {
            Era::Legacy => assert_eq!(told, ["unsubscribe x:1"]),
            Era::Modern => assert_eq!(a.told_of(), [] as [&Value; 0]),
        }
        world.end().await;
    }
}

/// A host that leaves gives back what it held.
#[tokio::test(start_paused = true)]
async fn d069_a_host_that_leaves_unsubscribes() {
    for era in ERAS {
        let (world, mut a) = one(Era::Legacy, |_| {}).await;
        let host = subscriber(&world, era, &mut a, "1", &["x:1"]).await;
        drop(host);
        sleep(Duration::from_secs(2)).await;
        assert_eq!(serve_subscribe(&mut a).await, ["unsubscribe x:1"], "{era:?}");
        world.end().await;
    }
}

/// Who unsubscribes while the server thinks has the last word.
#[tokio::test(start_paused = true)]
async fn sub10_an_unsubscription_overtakes_the_subscription_that_still_runs() {
    let (world, mut a) = one(Era::Legacy, |_| {}).await;
    let mut host = world.host();
    Era::Legacy.open(&mut host).await;
    host.ask(1, "resources/subscribe", json!({"uri": "x:1"})).await;
    let slow = a.expect("resources/subscribe").await;
    unsubscribe(&mut host, Era::Legacy, "1", "x:1").await;
    a.end.result(&slow, json!({})).await;
    host.answer(1).await;
    assert_eq!(serve_subscribe(&mut a).await, ["unsubscribe x:1"]);
    world.end().await;
}

/// The same when the session is opened anew meanwhile, which is told nothing before it is ready; what changed until
/// then is told then (VER-8).
#[tokio::test(start_paused = true)]
async fn ver8_a_session_that_is_opened_anew_begins_with_nothing() {
    let (world, mut a) = one(Era::Legacy, |_| {}).await;
    let mut host = world.host();
    Era::Legacy.open(&mut host).await;
    host.ask(1, "resources/subscribe", json!({"uri": "x:1"})).await;
    let slow = a.expect("resources/subscribe").await;
    let params =
        json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}});
    host.ask(2, "initialize", params).await;
    host.answer(2).await;
    a.end.result(&slow, json!({})).await;
    host.answer(1).await;
    assert_eq!(serve_subscribe(&mut a).await, ["unsubscribe x:1"]);
    a.tools = json!([]);
    a.tell("notifications/tools/list_changed", json!({})).await;
    a.settle().await;
    host.quiet(Duration::from_secs(2)).await;
    host.tell("notifications/initialized", json!({})).await;
    host.expect("notifications/tools/list_changed").await;
    host.quiet(Duration::from_secs(2)).await;
    world.end().await;
}

/// SUB-5, SUB-10: refused by the server, by policy, or owned by nobody.
#[tokio::test(start_paused = true)]
async fn sub5_sub10_what_is_not_told_of_is_left_out_or_refused() {
    for (era, server_era) in CELLS {
        let mut settings = server("a");
        settings.resources.deny = vec!["x:hidden".into()];
        let mut world = World::new(vec![settings]);
        let mut a = Full::new(world.accept("a").await, server_era);
        a.refused = vec!["x:no"];
        a.settle().await;
        let mut host = world.host();
        era.open(&mut host).await;
        if era == Era::Modern {
            let uris = json!(["x:1", "x:hidden", "x:no", "y:nobody"]);
            let notifications = json!({"resourceSubscriptions": uris});
            host.ask("L", "subscriptions/listen", modern(json!({"notifications": notifications}))).await;
        }
        let mut asked = Vec::new();
        for uri in ["x:1", "x:hidden", "x:no", "y:nobody"] {
            if era == Era::Legacy {
                host.ask(1, "resources/subscribe", json!({"uri": uri})).await;
            }
            while let Ok(message) = timeout(Duration::from_secs(3), a.next()).await {
                let message = message.unwrap();
                let wanted = message["params"]["uri"].clone();
                match message["method"].as_str().unwrap() {
                    "resources/subscribe" if wanted == "x:no" => a.end.error(&message, -32602).await,
                    _ => a.end.result(&message, json!({})).await,
                }
                asked.push(wanted);
            }
            if era == Era::Legacy {
                let answer = host.answer(1).await;
                match uri {
                    "x:1" => assert_eq!(answer["result"], json!({})),
                    _ => assert_eq!(
                        (&answer["error"]["code"], &answer["error"]["data"]["uri"]),
                        (&json!(-32602), &json!(uri))
                    ),
                }
            }
        }
        if era == Era::Modern {
            let first = host.expect("notifications/subscriptions/acknowledged").await;
            assert_eq!(first["params"]["notifications"], json!({"resourceSubscriptions": ["x:1"]}));
        }
        match server_era {
            Era::Legacy => assert_eq!(asked, ["x:1", "x:no"]),
            Era::Modern => assert_eq!(a.told_of(), [&json!(["x:1"])], "what was refused is asked for no more"),
        }
        world.end().await;
    }
}

/// SUB-6: the new stream is open before the old one goes; of one that the server refuses whole nothing else suffers.
#[tokio::test(start_paused = true)]
async fn sub6_a_modern_servers_stream_is_made_before_the_old_one_is_broken() {
    let (world, mut a) = one(Era::Modern, |a| a.strict = true).await;
    a.refused = vec!["x:no"];
    let mut first = subscriber(&world, Era::Legacy, &mut a, "1", &["x:1"]).await;
    first.ask(2, "resources/subscribe", json!({"uri": "x:2"})).await;
    // Its acknowledgement is late: until then the old one is there.
    let opened = a.end.expect("subscriptions/listen").await;
    assert_eq!(opened["params"]["notifications"]["resourceSubscriptions"], json!(["x:1", "x:2"]));
    a.end.quiet(Duration::from_secs(1)).await;
    a.tell("notifications/resources/updated", json!({"uri": "x:1"})).await;
    updated(&mut first, Era::Legacy, "", "x:1").await;
    let params = json!({"notifications": opened["params"]["notifications"], "_meta": {SUBSCRIPTION: opened["id"]}});
    a.end.tell("notifications/subscriptions/acknowledged", params).await;
    let old = a.end.expect("notifications/cancelled").await;
    assert_eq!(old["params"]["requestId"], a.streams.last().unwrap()["id"]);
    a.streams.pop();
    a.streams.push(opened);
    first.answer(2).await;
    // Refused whole: the host hears of it, the others are still told of.
    first.ask(3, "resources/subscribe", json!({"uri": "x:no"})).await;
    a.quiet(Duration::from_secs(5)).await;
    assert_eq!(first.answer(3).await["error"]["code"], -32602);
    assert_eq!(a.told_of(), [&json!(["x:1", "x:2"])]);
    a.tell("notifications/resources/updated", json!({"uri": "x:2"})).await;
    updated(&mut first, Era::Legacy, "", "x:2").await;
    world.end().await;
}

/// SUB-6: one stream for what one host asks for together.
#[tokio::test(start_paused = true)]
async fn sub6_resources_that_are_asked_for_together_are_one_stream() {
    let (world, mut a) = one(Era::Modern, |_| {}).await;
    let before = a.asked.len();
    let uris: Vec<_> = (0..100).map(|n| format!("x:{n:02}")).collect();
    let uris: Vec<_> = uris.iter().map(String::as_str).collect();
    let _host = subscriber(&world, Era::Modern, &mut a, "L", &uris).await;
    assert_eq!(a.asked[before..], ["subscriptions/listen"]);
    world.end().await;
}

/// SUB-8, SUB-5.
#[tokio::test(start_paused = true)]
async fn sub8_news_of_a_part_go_to_who_holds_the_whole_else_to_all_of_that_server() {
    let (world, mut a) = one(Era::Legacy, |a| a.templates[0]["uriTemplate"] = json!("x:{+id}")).await;
    let mut dir = subscriber(&world, Era::Legacy, &mut a, "1", &["x:dir"]).await;
    let mut file = subscriber(&world, Era::Modern, &mut a, "2", &["x:dir/file"]).await;
    a.tell("notifications/resources/updated", json!({"uri": "x:dir/file"})).await;
    updated(&mut file, Era::Modern, "2", "x:dir/file").await;
    a.tell("notifications/resources/updated", json!({"uri": "x:dir/other"})).await;
    updated(&mut dir, Era::Legacy, "1", "x:dir/other").await;
    dir.quiet(Duration::from_secs(1)).await;
    file.quiet(Duration::from_secs(1)).await;
    a.tell("notifications/resources/updated", json!({"uri": "x:elsewhere"})).await;
    updated(&mut dir, Era::Legacy, "1", "x:elsewhere").await;
    updated(&mut file, Era::Modern, "2", "x:elsewhere").await;
    world.end().await;
}

/// INV-8, INV-6: what a rule hides, or what no list has, is not told to who subscribed to something else.
#[tokio::test(start_paused = true)]
async fn inv8_news_of_what_is_hidden_are_told_to_nobody() {
    let mut settings = server("a");
    settings.resources.deny = vec!["x:secret*".into()];
    let mut world = World::new(vec![settings]);
    let mut a = Full::new(world.accept("a").await, Era::Legacy);
    a.templates[0]["uriTemplate"] = json!("x:{+id}");
    a.settle().await;
    let mut host = subscriber(&world, Era::Legacy, &mut a, "1", &["x:1"]).await;
    for hidden in ["x:secret/plan", "y:elsewhere"] {
        a.tell("notifications/resources/updated", json!({"uri": hidden})).await;
    }
    host.quiet(Duration::from_secs(1)).await;
    a.tell("notifications/resources/updated", json!({"uri": "x:open"})).await;
    updated(&mut host, Era::Legacy, "1", "x:open").await;
    world.end().await;
}

/// SUB-9: whoever wants to be told makes no call, so the server is started again for that alone.
#[tokio::test(start_paused = true)]
async fn sub9_a_server_that_comes_back_is_told_what_is_wanted_and_what_was_missed_is_looked_at() {
    for (era, server_era) in CELLS {
        let (mut world, mut a) = one(server_era, |_| {}).await;
        let mut host = subscriber(&world, era, &mut a, "1", &["x:1", "x:2"]).await;
        // It has served somebody, and is not one that failed.
        host.ask(9, "tools/call", era.params(json!({"name": "a__t"}))).await;
        let call = a.expect("tools/call").await;
        a.end.result(&call, text("x")).await;
        host.answer(9).await;
        drop(a);
        let mut a = again(&mut world, server_era).await;
        let told = serve_subscribe(&mut a).await;
        match server_era {
            Era::Legacy => assert_eq!(told, ["subscribe x:1", "subscribe x:2"]),
            Era::Modern => assert_eq!(a.told_of(), [&json!(["x:1", "x:2"])]),
        }
        updated(&mut host, era, "1", "x:1").await;
        updated(&mut host, era, "1", "x:2").await;
        a.tell("notifications/resources/updated", json!({"uri": "x:2"})).await;
        updated(&mut host, era, "1", "x:2").await;
        world.end().await;
    }
}

/// D070, SUB-9: a stream for resources that the server ends is opened again, ever later, and what it was about looked at.
#[tokio::test(start_paused = true)]
async fn d070_a_stream_for_resources_that_ends_is_opened_again_with_a_growing_pause() {
    let (world, mut a) = one(Era::Modern, |_| {}).await;
    let mut host = subscriber(&world, Era::Legacy, &mut a, "1", &["x:1"]).await;
    for pause in [1, 2, 4, 8] {
        let stream = a.streams.pop().unwrap();
        a.end.result(&stream, json!({"resultType": "complete"})).await;
        let start = Instant::now();
        let opened = a.end.expect("subscriptions/listen").await;
        took(start, Duration::from_secs(pause));
        let params = json!({"notifications": opened["params"]["notifications"], "_meta": {SUBSCRIPTION: opened["id"]}});
        a.end.tell("notifications/subscriptions/acknowledged", params).await;
        a.streams.push(opened);
        updated(&mut host, Era::Legacy, "1", "x:1").await;
    }
    world.end().await;
}

/// A server that is stopped tells nothing: one whose resources are awaited is not stopped as unused, until nobody waits.
#[tokio::test(start_paused = true)]
async fn sub7_a_server_whose_resources_are_awaited_is_not_unused() {
    for era in ERAS {
        let (world, mut a) = one(era, |_| {}).await;
        let mut host = subscriber(&world, Era::Legacy, &mut a, "1", &["x:1"]).await;
        sleep(Duration::from_secs(3600)).await;
        a.tell("notifications/resources/updated", json!({"uri": "x:1"})).await;
        updated(&mut host, Era::Legacy, "1", "x:1").await;
        let start = Instant::now();
        unsubscribe(&mut host, Era::Legacy, "1", "x:1").await;
        serve_subscribe(&mut a).await;
        assert_eq!(a.next().await, None);
        assert!(start.elapsed() <= Duration::from_secs(1201), "{:?}", start.elapsed());
        world.end().await;
    }
}

/// Contract §4: told within a second, whatever else of that server hangs or fails.
#[tokio::test(start_paused = true)]
async fn sub1_a_list_that_hangs_or_fails_delays_no_other_news() {
    let (world, mut a) = one(Era::Legacy, |_| {}).await;
    let mut host = subscriber(&world, Era::Legacy, &mut a, "1", &["x:1"]).await;
    // A list that fails again and again is asked for ever more seldom…
    a.unknown = vec!["nothing"];
    a.end.tell("notifications/prompts/list_changed", json!({})).await;
    for _ in 0..6 {
        let asked = a.end.expect("prompts/list").await;
        a.end.error(&asked, -32603).await;
    }
    // …and the next one hangs, while other things change.
    let _hanging = a.end.expect("prompts/list").await;
    let start = Instant::now();
    a.tell("notifications/resources/updated", json!({"uri": "x:1"})).await;
    updated(&mut host, Era::Legacy, "1", "x:1").await;
    took(start, Duration::ZERO);
    let asked = _hanging;
    a.end.error(&asked, -32603).await;
    a.tools = json!([]);
    let start = Instant::now();
    a.tell("notifications/tools/list_changed", json!({})).await;
    a.quiet(Duration::from_millis(400)).await;
    host.expect("notifications/tools/list_changed").await;
    assert!(start.elapsed() <= Duration::from_secs(1), "{:?}", start.elapsed());
    world.end().await;
}

/// A session that is opened anew has subscribed to nothing.
#[tokio::test(start_paused = true)]
async fn sub10_a_second_initialize_begins_without_subscriptions() {
    let (world, mut a) = one(Era::Legacy, |_| {}).await;
    let mut host = subscriber(&world, Era::Legacy, &mut a, "1", &["x:1"]).await;
    host.open("2025-06-18").await;
    assert_eq!(serve_subscribe(&mut a).await, ["unsubscribe x:1"]);
    world.end().await;
}

async fn log(a: &mut Full, level: &str, logger: Option<&str>, data: Value) {
    let mut params = json!({"level": level, "data": data});
    if let Some(logger) = logger {
        params["logger"] = json!(logger);
    }
    a.end.tell("notifications/message", params).await;
}

/// LOG-1, LOG-2, LOG-3.
#[tokio::test(start_paused = true)]
async fn log1_log2_log3_log_messages_come_with_a_request_from_the_level_that_was_asked_for() {
    for (era, wanted) in [
        (Era::Legacy, None),
        (Era::Legacy, Some("info")),
        (Era::Modern, None),
        (Era::Modern, Some("info")),
        (Era::Modern, Some("critical")),
    ] {
        let (world, mut a) = one(Era::Legacy, |_| {}).await;
        let mut host = world.host();
        era.open(&mut host).await;
        let mut params = era.params(json!({"name": "a__t"}));
        match (era, wanted) {
            (Era::Legacy, Some(level)) => {
                let answer = era.get(&mut host, "logging/setLevel", json!({"level": level})).await;
                assert_eq!(answer["result"], json!({}));
            }
            (Era::Modern, Some(level)) => params["_meta"][LOG_LEVEL] = json!(level),
            (_, None) => {}
        }
        // Outside of a request it is nobody's.
        log(&mut a, "emergency", None, json!("early")).await;
        host.ask(1, "tools/call", params).await;
        let mut call = a.next().await.unwrap();
        if let Some(level) = wanted {
            assert_eq!((&call["method"], &call["params"]["level"]), (&json!("logging/setLevel"), &json!(level)));
            a.end.result(&call, json!({})).await;
            call = a.next().await.unwrap();
        }
        assert_eq!(call["method"], "tools/call", "{call}");
        assert_eq!(call["params"].get("_meta"), None);
        for (level, logger) in [("debug", None), ("info", Some("db")), ("warning", None), ("alert", Some("\u{e9}"))] {
            log(&mut a, level, logger, json!({"level": level})).await;
        }
        a.end.result(&call, text("done")).await;
        log(&mut a, "emergency", None, json!("late")).await;
        let expected: &[(&str, &str)] = match (era, wanted) {
            (_, Some("info")) => &[("info", "a/db"), ("warning", "a"), ("alert", "a/\u{e9}")],
            (Era::Legacy, _) => &[("warning", "a"), ("alert", "a/\u{e9}")],
            (Era::Modern, None) => &[],
            (Era::Modern, Some(_)) => &[("alert", "a/\u{e9}")],
        };
        for (level, logger) in expected {
            let told = host.expect("notifications/message").await;
            assert_eq!((&told["params"]["level"], &told["params"]["logger"]), (&json!(level), &json!(logger)));
            assert_eq!(told["params"]["data"], json!({"level": level}));
        }
        host.answer(1).await;
        host.quiet(Duration::from_secs(5)).await;
        world.end().await;
    }
}

/// LOG-3: in both eras' words.
#[tokio::test(start_paused = true)]
async fn log3_an_unknown_level_is_refused_and_long_data_is_cut() {
    let (world, mut a) = one(Era::Modern, |_| {}).await;
    let mut host = world.host();
    Era::Legacy.open(&mut host).await;
    for level in [json!("loud"), json!(3), Value::Null] {
        let answer = Era::Legacy.get(&mut host, "logging/setLevel", json!({"level": level})).await;
        assert_eq!(answer["error"]["code"], -32602);
        let mut params = modern(json!({"name": "a__t"}));
        params["_meta"][LOG_LEVEL] = level;
        host.ask(1, "tools/call", params).await;
        assert_eq!(host.answer(1).await["error"]["code"], -32602);
    }
    Era::Legacy.get(&mut host, "logging/setLevel", json!({"level": "debug"})).await;
    host.call(2, "a__t").await;
    let call = a.expect("tools/call").await;
    assert_eq!(call["params"]["_meta"][LOG_LEVEL], "debug", "a modern server is told with each request");
    log(&mut a, "debug", Some("l"), json!("x".repeat(20_000))).await;
    a.end.result(&call, text("done")).await;
    let told = host.expect("notifications/message").await;
    let data = told["params"]["data"].as_str().unwrap();
    assert!(data.len() > 4096 && data.len() < 9000, "{}", data.len());
    assert_eq!(told["params"]["logger"], "a/l");
    host.answer(2).await;
    world.end().await;
}

/// §6: a trace goes on through us, in all cells and for all requests that name an item.
#[tokio::test(start_paused = true)]
async fn d048_a_trace_passes_and_baggage_does_not() {
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    for (era, server_era) in CELLS {
        let (world, mut a) = one(server_era, |_| {}).await;
        let mut host = world.host();
        era.open(&mut host).await;
        for (method, params) in [
            ("tools/call", json!({"name": "a__t"})),
            ("prompts/get", json!({"name": "a__p"})),
            ("resources/read", json!({"uri": "x:1"})),
        ] {
            for (sent, passes) in [(parent, true), ("00-1", false)] {
                let mut params = era.params(params.clone());
                params["_meta"]["traceparent"] = json!(sent);
                params["_meta"]["tracestate"] = json!("a=b");
                params["_meta"]["baggage"] = json!("user=1");
                host.ask(1, method, params).await;
                let asked = a.expect(method).await;
                let meta = &asked["params"]["_meta"];
                let trace = (meta.get("traceparent"), meta.get("tracestate"), meta.get("baggage"));
                let expected = (json!(parent), json!("a=b"));
                let expected = if passes { (Some(&expected.0), Some(&expected.1), None) } else { (None, None, None) };
                assert_eq!(trace, expected, "{era:?} {server_era:?} {method}");
                a.end.error(&asked, -32000).await;
                host.answer(1).await;
            }
        }
        world.end().await;
    }
}
