//! Cancellation: what the server is told, and that nobody gets two answers.

use std::time::Duration;

use serde_json::json;
use tokio::task::yield_now;
use tokio::time::{Instant, timeout};

use super::end::{cancelled, text, text_of};
use super::world::{pair, took};

#[tokio::test(start_paused = true)]
async fn can5_the_server_is_told_at_once_under_its_own_id_with_the_hosts_reason() {
    let (world, mut host, mut server) = pair().await;
    host.call("host-id", "a__t").await;
    host.call(2, "a__t").await;
    let (call, other) = (server.expect("tools/call").await, server.expect("tools/call").await);
    assert_ne!(call["id"], "host-id");
    let start = Instant::now();
    // CAN-1: an id of another type is another id.
    host.tell("notifications/cancelled", cancelled("2")).await;
    host.tell("notifications/cancelled", json!({"requestId": "host-id", "reason": "changed\u{7} my mind"})).await;
    let told = server.expect("notifications/cancelled").await;
    assert_eq!(told["params"], json!({"requestId": call["id"], "reason": "changed my mind"}));
    took(start, Duration::ZERO);
    server.result(&call, text("late")).await;
    server.result(&other, text("other")).await;
    assert_eq!(text_of(&host.answer(2).await), "other");
    host.quiet(Duration::from_secs(100)).await;
    world.end().await;
}

/// CAN-2: cancellation and answer cross each other at every distance; there is one answer or none, the id is free
/// afterwards, and nothing is told of another call.
#[tokio::test(start_paused = true)]
async fn can2_an_answer_that_crosses_a_cancellation_is_given_once_or_not_at_all() {
    let (world, mut host, mut server) = pair().await;
    let (mut answered, mut dropped) = (0, 0);
    for distance in (0..24).chain(0..24) {
        for host_first in [false, true] {
            host.call(7, "a__t").await;
            let call = server.expect("tools/call").await;
            let cancel = async {
                for _ in 0..if host_first { 0 } else { distance } {
                    yield_now().await;
                }
                host.tell("notifications/cancelled", cancelled(7)).await;
            };
            let answer = async {
                for _ in 0..if host_first { distance } else { 0 } {
                    yield_now().await;
                }
                server.result(&call, text("crossing")).await;
            };
            tokio::join!(cancel, answer);
            match timeout(Duration::from_secs(1), host.next()).await {
                Ok(message) => {
                    assert_eq!(text_of(&message.unwrap()), "crossing");
                    answered += 1;
                }
                Err(_) => dropped += 1,
            }
            // Told of this call or not at all.
            if let Ok(told) = timeout(Duration::from_secs(1), server.next()).await {
                assert_eq!(told.unwrap()["params"]["requestId"], call["id"]);
            }
            host.call(7, "a__t").await;
            let call = server.expect("tools/call").await;
            server.result(&call, text("after")).await;
            assert_eq!(text_of(&host.answer(7).await), "after");
        }
    }
    assert!(answered > 0 && dropped > 0, "{answered} answered, {dropped} dropped: they never crossed");
    world.end().await;
}
