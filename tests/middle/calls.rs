//! The deadlines of calls, broken answers, ids in use, batches.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use super::end::{cancelled, text, text_of};
use super::full::{CELLS, Full};
use super::world::{World, pair, server, took};

fn reason(answer: &Value) -> &str {
    answer["error"]["data"]["reason"].as_str().unwrap_or_else(|| panic!("no reason: {answer}"))
}

/// TMO-3.
#[tokio::test(start_paused = true)]
async fn tmo1_a_call_without_a_sign_of_life_ends_after_a_minute() {
    let (world, mut host, mut server) = pair().await;
    let start = Instant::now();
    host.call(1, "a__t").await;
    let call = server.expect("tools/call").await;
    let answer = host.answer(1).await;
    took(start, Duration::from_secs(60));
    assert_eq!((reason(&answer), &answer["error"]["code"]), ("downstream-timeout", &json!(-32603)));
    assert_eq!(answer["error"]["data"]["server"], "a");
    let told = server.expect("notifications/cancelled").await;
    assert_eq!(told["params"]["requestId"], call["id"]);
    // ENV-7: the late answer is nobody's; the connection goes on.
    server.result(&call, text("late")).await;
    host.call(2, "a__t").await;
    let call = server.expect("tools/call").await;
    server.result(&call, text("second")).await;
    assert_eq!(text_of(&host.answer(2).await), "second");
    assert!(!world.is_started("a"));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn tmo1_progress_keeps_a_call_alive_up_to_a_quarter_of_an_hour() {
    let (world, mut host, mut server) = pair().await;
    let start = Instant::now();
    let params = json!({"name": "a__t", "arguments": {}, "_meta": {"progressToken": "p"}});
    host.ask(1, "tools/call", params).await;
    let call = server.expect("tools/call").await;
    let token = call["params"]["_meta"]["progressToken"].clone();
    let serving = async {
        let mut told = 0;
        loop {
            match timeout(Duration::from_secs(55), server.next()).await {
                Err(_) => {
                    told += 1;
                    server.tell("notifications/progress", json!({"progressToken": token, "progress": told})).await;
                }
                Ok(message) => {
                    let message = message.unwrap();
                    assert_eq!(message["method"], "notifications/cancelled");
                    assert_eq!(message["params"]["requestId"], call["id"]);
                    return told;
                }
            }
        }
    };
    let hearing = async {
        let mut heard = 0;
        loop {
            let message = host.next().await.unwrap();
            if message.get("id").is_some() {
                took(start, Duration::from_secs(900));
                assert_eq!(reason(&message), "downstream-timeout");
                return heard;
            }
            heard += 1;
            assert_eq!(message["params"], json!({"progressToken": "p", "progress": heard}));
        }
    };
    let (told, heard) = tokio::join!(serving, hearing);
    assert_eq!((told, heard), (16, 16));
    world.end().await;
}

/// D009: cut short, then nothing for a second.
#[tokio::test(start_paused = true)]
async fn d009_a_broken_answer_fails_its_call_after_a_second_unless_the_right_one_comes() {
    let (world, mut host, mut server) = pair().await;
    host.call(1, "a__t").await;
    host.call(2, "a__t").await;
    let (first, second) = (server.expect("tools/call").await, server.expect("tools/call").await);
    let start = Instant::now();
    for call in [&first, &second] {
        server.raw(format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{{\"content\":[\n", call["id"])).await;
    }
    sleep(Duration::from_millis(900)).await;
    server.result(&second, text("right")).await;
    assert_eq!(text_of(&host.answer(2).await), "right");
    took(start, Duration::from_millis(900));
    let answer = host.answer(1).await;
    took(start, Duration::from_secs(1));
    assert_eq!(reason(&answer), "invalid-downstream-result");
    // Then it is too late.
    server.result(&first, text("late")).await;
    host.quiet(Duration::from_secs(30)).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn env3_an_id_in_use_is_refused_and_the_first_call_goes_on() {
    let (world, mut host, mut server) = pair().await;
    host.call("x", "a__t").await;
    let call = server.expect("tools/call").await;
    host.call("x", "a__t").await;
    host.ask("x", "ping", json!({})).await;
    for _ in 0..2 {
        assert_eq!(host.answer("x").await["error"]["code"], -32600);
    }
    server.quiet(Duration::from_secs(1)).await;
    server.result(&call, text("one")).await;
    assert_eq!(text_of(&host.answer("x").await), "one");
    // ENV-2: answered, it is free.
    host.call("x", "a__t").await;
    let call = server.expect("tools/call").await;
    server.result(&call, text("two")).await;
    assert_eq!(text_of(&host.answer("x").await), "two");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn i9_a_server_that_stalls_delays_nobody_elses_call() {
    let mut world = World::new(vec![server("a"), server("b")]);
    let mut host = world.host();
    let (mut a, mut b) = (world.accept("a").await, world.accept("b").await);
    a.legacy(&["t"]).await;
    b.legacy(&["t"]).await;
    host.open("2025-11-25").await;
    assert_eq!(host.list().await, ["a__t", "b__t"]);
    let start = Instant::now();
    for id in 0..50 {
        host.call(id, "a__t").await;
    }
    for id in 50..100 {
        host.call(id, "b__t").await;
        let call = b.expect("tools/call").await;
        b.result(&call, text("b")).await;
        assert_eq!(text_of(&host.answer(id).await), "b");
    }
    took(start, Duration::ZERO);
    world.end().await;
}

/// D-32: the answers of an array are gathered, so their number is bounded; each request still gets one.
#[tokio::test(start_paused = true)]
async fn env9_what_an_array_holds_beyond_the_bound_is_refused_by_id() {
    let mut world = World::new(vec![server("a")]);
    let mut host = world.host();
    let mut a = world.accept("a").await;
    a.legacy(&["t"]).await;
    host.open("2025-03-26").await;
    let ping = |id: i64| json!({"jsonrpc": "2.0", "id": id, "method": "ping"});
    host.say((0..200).map(ping).collect()).await;
    let answers = host.next().await.unwrap();
    let answers = answers.as_array().unwrap_or_else(|| panic!("no array: {answers}"));
    assert_eq!(answers.len(), 200);
    let refused = answers.iter().filter(|answer| answer["error"]["data"]["reason"] == "limit").count();
    assert_eq!(refused, 200 - 128);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn env9_a_batch_is_answered_in_one_array_without_what_was_cancelled() {
    let mut world = World::new(vec![server("a")]);
    let mut host = world.host();
    let mut a = world.accept("a").await;
    a.legacy(&["t"]).await;
    host.open("2025-03-26").await;
    host.list().await;
    let call = |id: i64| json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "a__t"}});
    host.say(json!([
        call(1),
        {"jsonrpc": "2.0", "id": "p", "method": "ping"},
        call(2),
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 77}},
        {"jsonrpc": "2.0", "id": 3, "method": "no/such"},
    ]))
    .await;
    let (first, second) = (a.expect("tools/call").await, a.expect("tools/call").await);
    host.quiet(Duration::from_secs(5)).await;
    host.tell("notifications/cancelled", cancelled(1)).await;
    assert_eq!(a.expect("notifications/cancelled").await["params"]["requestId"], first["id"]);
    a.result(&first, text("too late")).await;
    host.quiet(Duration::from_secs(5)).await;
    a.result(&second, text("two")).await;
    let answers = host.next().await.unwrap();
    let mut answers = answers.as_array().unwrap_or_else(|| panic!("no array: {answers}")).clone();
    answers.sort_by_key(|answer| answer["id"].to_string());
    let ids: Vec<_> = answers.iter().map(|answer| answer["id"].clone()).collect();
    assert_eq!(ids, [json!("p"), json!(2), json!(3)]);
    assert_eq!(text_of(&answers[1]), "two");
    assert_eq!(answers[2]["error"]["code"], -32601);
    // A batch of which nothing is left to answer has no answer.
    host.say(json!([call(8)])).await;
    a.expect("tools/call").await;
    host.tell("notifications/cancelled", cancelled(8)).await;
    a.expect("notifications/cancelled").await;
    host.quiet(Duration::from_secs(100)).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_no_list_has_goes_to_the_server_without_a_prefix_when_nothing_of_it_is_hidden() {
    for hidden in [false, true] {
        let mut bare = server("a");
        bare.prefix = String::new();
        if hidden {
            bare.tools.deny = vec!["secret".into()];
        }
        let mut world = World::new(vec![bare, server("b")]);
        let mut host = world.host();
        let mut a = world.accept("a").await;
        a.legacy(&["t"]).await;
        let mut b = world.accept("b").await;
        b.legacy(&["t"]).await;
        host.open("2025-11-25").await;
        assert_eq!(host.list().await, ["t", "b__t"]);
        host.quiet(Duration::from_secs(2)).await;
        // What may be meant for another server is never shown to this one.
        host.call(1, "b__gone").await;
        assert_eq!(host.answer(1).await["error"]["code"], -32602);
        host.call(2, "unlisted").await;
        if hidden {
            assert_eq!(host.answer(2).await["error"]["code"], -32602);
        } else {
            let asked = a.expect("tools/call").await;
            assert_eq!(asked["params"]["name"], "unlisted");
            a.result(&asked, text("here")).await;
            assert_eq!(text_of(&host.answer(2).await), "here");
        }
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_mere_front_lets_the_gateway_behind_it_say_why_something_is_not_listed() {
    let held = json!({"code": -32602, "message": "Unknown prompt: p2", "data": {"reason": "pin-changed", "server": "x", "facets": ["text"]}});
    for (era, behind) in CELLS {
        let mut only = server("a");
        only.prefix = String::new();
        let mut world = World::with(vec![only], |settings| settings.gateway.is_mere_front = true);
        let mut a = Full::new(world.accept("a").await, behind);
        a.settle().await;
        let mut host = world.host();
        era.open(&mut host).await;
        for (id, method) in [(1, "tools/call"), (2, "prompts/get")] {
            host.ask(id, method, era.params(json!({"name": "p2"}))).await;
            let asked = a.expect(method).await;
            assert_eq!(asked["params"]["name"], "p2");
            a.end.say(json!({"jsonrpc": "2.0", "id": asked["id"], "error": held})).await;
            assert_eq!(host.answer(id).await["error"], held, "{method}");
        }
        world.end().await;
    }
}
