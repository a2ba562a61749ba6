//! Progress: whose token, in which order, how much of it.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::end::{End, text, text_of};
use super::world::pair;

/// Calls with a token of the host; answers with the server's view of the call.
async fn call(host: &mut End, server: &mut End, id: i64, token: &str) -> Value {
    // Raw, so that the spelling of the token is the host's.
    let line = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"a__t","_meta":{{"progressToken":{token}}}}}}}"#
    );
    host.raw(line + "\n").await;
    server.expect("tools/call").await
}

fn told(call: &Value, progress: impl Into<Value>) -> String {
    let token = &call["params"]["_meta"]["progressToken"];
    let told = json!({"jsonrpc": "2.0", "method": "notifications/progress",
        "params": {"progressToken": token, "progress": progress.into(), "total": 1e6}});
    format!("{told}\n")
}

fn answered(call: &Value) -> String {
    format!("{}\n", json!({"jsonrpc": "2.0", "id": call["id"], "result": text("done")}))
}

/// PRG-3.
#[tokio::test(start_paused = true)]
async fn env8_progress_comes_in_order_before_the_answer_and_never_after() {
    let (world, mut host, mut server) = pair().await;
    for (id, token) in [(1, r#""a""#), (2, "7"), (3, r#""7""#), (4, "-1"), (5, "12345678901234567890123")] {
        let called = call(&mut host, &mut server, id, token).await;
        assert!(called["params"]["_meta"]["progressToken"].is_u64(), "{called}");
        // All in one write, so that answer and progress are there at the same time.
        let lines: Vec<_> = [1, 2, 3].iter().map(|&n| told(&called, n)).collect();
        server.raw(lines.concat() + &answered(&called) + &told(&called, 4)).await;
        for n in [1, 2, 3] {
            let line = String::from_utf8(host.line().await.unwrap().to_vec()).unwrap();
            // PRG-1: type and spelling of the token are the host's.
            assert!(line.contains(&format!("\"progressToken\":{token},")), "{line}");
            assert!(line.contains(&format!("\"progress\":{n},")), "{line}");
        }
        assert_eq!(text_of(&host.answer(id).await), "done");
    }
    host.quiet(Duration::from_secs(100)).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn prg1_tokens_of_others_are_nobodys() {
    let (world, mut host, mut server) = pair().await;
    let called = call(&mut host, &mut server, 1, r#""mine""#).await;
    host.call(2, "a__t").await;
    let silent = server.expect("tools/call").await;
    assert!(silent["params"].get("_meta").is_none(), "{silent}");
    // Of a call that wanted none, of nobody, of the host's own spelling.
    for token in [silent["id"].clone(), json!(4711), json!("mine"), json!(null)] {
        server.tell("notifications/progress", json!({"progressToken": token, "progress": 1})).await;
    }
    server.raw(answered(&silent)).await;
    assert_eq!(text_of(&host.answer(2).await), "done");
    server.raw(answered(&called)).await;
    assert_eq!(text_of(&host.answer(1).await), "done");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn prg5_a_storm_of_progress_is_thinned_and_its_last_is_told() {
    let (world, mut host, mut server) = pair().await;
    let called = call(&mut host, &mut server, 1, "1").await;
    let seconds = 10;
    let storm = async {
        let start = Instant::now();
        for n in 1..=seconds * 100 {
            server.raw(told(&called, n)).await;
            sleep(Duration::from_millis(10)).await;
        }
        server.raw(answered(&called)).await;
        start.elapsed()
    };
    let hearing = async {
        let mut heard = Vec::new();
        loop {
            let message = host.next().await.unwrap();
            if message.get("id").is_some() {
                return heard;
            }
            heard.push(message["params"]["progress"].as_i64().unwrap());
        }
    };
    let (_, heard) = tokio::join!(storm, hearing);
    assert!(heard.is_sorted(), "{heard:?}");
    // Ten a second beyond the first burst.
    assert!((100..=140).contains(&heard.len()), "{}", heard.len());
    assert_eq!(heard.last(), Some(&(seconds * 100)));
    host.quiet(Duration::from_secs(10)).await;
    world.end().await;
}
