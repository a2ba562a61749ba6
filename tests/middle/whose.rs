//! Whose something is: what a server tells or lists on the connection of one caller, and what it sends without saying
//! for whom.

use std::sync::Arc;
use std::time::Duration;

use onegate::caller::Caller;
use onegate::config::settings::{ServerSettings, Sharing};
use onegate::gateway::{Held, Updates};
use onegate::ident::Principal;
use onegate::protocol::version::Revision;
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::end::{list_of, names, text, text_of};
use super::full::{Era, Full};
use super::tasks::legacy_tasks;
use super::world::{World, pair, server};

const RELATED: &str = "io.modelcontextprotocol/related-task";

/// A caller that can do nothing wants to know of `x:1`.
fn subscribe(world: &World, name: &str, session: u64) -> (Arc<Updates>, JoinHandle<Held>) {
    let caller =
        Caller { principal: Principal::key(name), session: Some(session), ..Caller::stdio(Revision::V2025_11_25) };
    let (gateway, updates) = (Arc::clone(&world.gateway), Arc::new(Updates::default()));
    let told = Arc::clone(&updates);
    let held = world.tasks.spawn(async move {
        let held = gateway.subscribe("x:1", &caller, &told, None).await;
        held.unwrap_or_else(|failure| panic!("{}", failure.message)).expect("it tells of nothing")
    });
    (updates, held)
}

/// SUB-7: a caller without capabilities too; and nobody waits for a connection of somebody else that hangs.
#[tokio::test(start_paused = true)]
async fn sub7_con3_resources_are_told_of_on_the_connection_that_serves_the_caller() {
    for (sharing, second) in [(Sharing::Auto, "two"), (Sharing::Session, "one")] {
        let mut world = World::new(vec![ServerSettings { sharing, ..server("a") }]);
        let mut base = Full::new(world.accept("a").await, Era::Legacy);
        base.settle().await;
        let (first_told, first) = subscribe(&world, "one", 1);
        if sharing == Sharing::Session {
            base = Full::new(world.accept("a").await, Era::Legacy);
        }
        let slow = base.expect("resources/subscribe").await;
        let (told, second) = subscribe(&world, second, 2);
        let mut own = Full::new(world.accept("a").await, Era::Legacy);
        let asked = own.expect("resources/subscribe").await;
        own.end.result(&asked, json!({})).await;
        let second = timeout(Duration::from_secs(1), second).await.expect("it waits for the other").unwrap();
        base.end.result(&slow, json!({})).await;
        let first = first.await.unwrap();
        own.tell("notifications/resources/updated", json!({"uri": "x:1"})).await;
        assert!(told.next().await.contains("x:1"));
        assert!(timeout(Duration::from_secs(1), first_told.next()).await.is_err());
        base.tell("notifications/resources/updated", json!({"uri": "x:1"})).await;
        assert!(first_told.next().await.contains("x:1"));
        drop((first, second));
        world.end().await;
    }
}

/// REL-2: what names a task that no call stands for is of none, also when only one runs.
#[tokio::test(start_paused = true)]
async fn rel2_what_names_a_task_that_is_over_is_given_to_no_other_call() {
    let (world, mut host, mut a) = pair().await;
    host.call(1, "a__t").await;
    let call = a.expect("tools/call").await;
    let log = |task: &str| json!({"level": "error", "data": task, "_meta": {RELATED: {"taskId": task}}});
    a.tell("notifications/message", log("gone")).await;
    a.tell("notifications/message", json!({"level": "error", "data": "of the call"})).await;
    assert_eq!(host.expect("notifications/message").await["params"]["data"], "of the call");
    a.result(&call, text("done")).await;
    assert_eq!(text_of(&host.answer(1).await), "done");
    world.end().await;
}

/// URL-1: also for a call that is driven as a task, which its server refuses under the id of a part.
#[tokio::test(start_paused = true)]
async fn url1_tsk7_urls_that_a_task_needs_are_told_of_when_they_were_opened() {
    let mut world = World::new(vec![server("a")]);
    let mut host = world.host();
    let mut base = world.accept("a").await;
    legacy_tasks(&mut base, true).await;
    host.open_as("2025-11-25", json!({"elicitation": {"url": {}}})).await;
    host.call(1, "a__t").await;
    let mut a = world.accept("a").await;
    legacy_tasks(&mut a, false).await;
    let call = a.expect("tools/call").await;
    assert_eq!(call["params"]["task"], json!({}));
    let url = json!({"mode": "url", "message": "Open?", "url": "https://x.test/", "elicitationId": "e-1"});
    let error = json!({"code": -32042, "message": "first", "data": {"elicitations": [url]}});
    a.say(json!({"jsonrpc": "2.0", "id": call["id"], "error": error})).await;
    assert_eq!(host.answer(1).await["error"]["code"], -32042);
    a.tell("notifications/elicitation/complete", json!({"elicitationId": "e-1"})).await;
    loop {
        let told = host.next().await.expect("it closed");
        if told["method"] != "notifications/tools/list_changed" {
            assert_eq!(told["method"], "notifications/elicitation/complete");
            break;
        }
    }
    world.end().await;
}

/// CCH-6: one list that fails takes no other with it, and is not asked for without end.
#[tokio::test(start_paused = true)]
async fn cch6_what_could_be_listed_to_one_host_is_shown_to_it() {
    let mut world = World::new(vec![server("a")]);
    let mut host = world.host();
    let mut base = Full::new(world.accept("a").await, Era::Legacy);
    base.capabilities = json!({"tools": {"listChanged": true}, "prompts": {"listChanged": true}});
    base.settle().await;
    host.open_as("2025-11-25", json!({"elicitation": {}})).await;
    host.ask("l", "tools/list", json!({})).await;
    let mut own = world.accept("a").await;
    own.leased("2025-11-25").await;
    own.unlisted = false;
    for _ in 0..2 {
        let asked = own.next().await.unwrap();
        match asked["method"].as_str().unwrap() {
            "tools/list" => own.result(&asked, list_of(&["t", "ask"])).await,
            _ => own.error(&asked, -32603).await,
        }
    }
    assert_eq!(names(&host.answer("l").await), ["a__t", "a__ask"]);
    assert_eq!(host.list().await, ["a__t", "a__ask"]);
    own.quiet(Duration::from_secs(5)).await;
    world.end().await;
}

/// SUB-2, VER-8: who fetched a list before it said that it is ready is not told of that one.
#[tokio::test(start_paused = true)]
async fn sub2_ver8_a_list_that_was_fetched_before_the_session_was_ready_is_no_news() {
    let mut world = World::new(vec![server("a")]);
    let mut a = Full::new(world.accept("a").await, Era::Legacy);
    a.settle().await;
    let mut host = world.host();
    let opening =
        json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}});
    host.ask(1, "initialize", opening).await;
    host.answer(1).await;
    (a.tools, a.prompts) = (json!([]), json!([]));
    for what in ["tools", "prompts"] {
        a.tell(&format!("notifications/{what}/list_changed"), json!({})).await;
    }
    a.settle().await;
    assert_eq!(host.list().await, [""; 0]);
    host.tell("notifications/initialized", json!({})).await;
    host.expect("notifications/prompts/list_changed").await;
    host.quiet(Duration::from_secs(2)).await;
    world.end().await;
}
