//! Two hosts on one gateway: the same ids, one server that answers in any order (D056).

use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::end::{End, modern, text, text_of};
use super::world::{World, server};

/// What a step does.
#[derive(Clone, Debug)]
enum Step {
    /// This host calls, with its next id.
    Call { host: usize },
    /// The server answers one of the calls it has.
    Answer { which: prop::sample::Index },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0usize..2).prop_map(|host| Step::Call { host }),
        any::<prop::sample::Index>().prop_map(|which| Step::Answer { which }),
    ]
}

/// Plays the steps, then answers what is left; each host must get its own, each once.
async fn play(steps: Vec<Step>) {
    let mut world = World::new(vec![server("a")]);
    let mut hosts = [world.host(), world.host()];
    let mut a = world.accept("a").await;
    a.legacy(&["t"]).await;
    hosts[0].open("2025-11-25").await;
    let mut next_id = [1u64; 2];
    let mut waiting = Vec::new();
    let mut expected: [HashMap<u64, String>; 2] = Default::default();
    for step in steps {
        match step {
            Step::Call { host } => {
                let id = next_id[host];
                next_id[host] += 1;
                let mark = format!("{host}/{id}");
                let params = json!({"name": "a__t", "arguments": {"mark": mark}});
                // One is of the legacy era, one of the modern.
                let params = if host == 1 { modern(params) } else { params };
                hosts[host].ask(id, "tools/call", params).await;
                expected[host].insert(id, mark);
                waiting.push(a.expect("tools/call").await);
            }
            Step::Answer { which } => {
                if !waiting.is_empty() {
                    let call = waiting.swap_remove(which.index(waiting.len()));
                    answer(&mut a, &call).await;
                }
            }
        }
    }
    while let Some(call) = waiting.pop() {
        answer(&mut a, &call).await;
    }
    for (host, mut expected) in hosts.iter_mut().zip(expected) {
        while !expected.is_empty() {
            let message = host.next().await.unwrap();
            if message["method"] == "notifications/tools/list_changed" {
                continue;
            }
            let mark = expected.remove(&message["id"].as_u64().unwrap());
            assert_eq!(Some(text_of(&message)), mark.as_deref());
        }
        while let Ok(message) = tokio::time::timeout(Duration::from_secs(2), host.next()).await {
            assert_eq!(message.unwrap()["method"], "notifications/tools/list_changed");
        }
    }
    world.end().await;
}

async fn answer(a: &mut End, call: &Value) {
    let mark = call["params"]["arguments"]["mark"].as_str().unwrap();
    a.result(call, text(mark)).await;
}

fn block_on(future: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(future);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn d056_two_hosts_with_the_same_ids_get_their_own_answers(steps in prop::collection::vec(step(), 1..60)) {
        block_on(play(steps));
    }
}

/// The requirement as it was met: ids 1 to 1 000 on both, all waiting at once, answered in another order.
#[test]
fn d056_a_thousand_ids_of_two_hosts_answered_in_reverse() {
    let calls = (0..2000).map(|n| Step::Call { host: n % 2 });
    block_on(play(calls.collect()));
}
