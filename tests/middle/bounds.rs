//! Bytes in flight: what a server or a host can make us hold, and that others do not feel it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onegate::transport::line::Frame;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, sleep};

use super::end::{End, text, text_of};
use super::world::{World, server, took, two};

const MIB: usize = 1 << 20;
const CALLS: usize = 90;

/// Answers `b`'s next call, of another host.
async fn works(host: &mut End, b: &mut End) {
    let start = Instant::now();
    host.call(1, "b__t").await;
    let call = b.expect("tools/call").await;
    b.result(&call, text("b")).await;
    assert_eq!(text_of(&host.answer(1).await), "b");
    took(start, Duration::ZERO);
}

/// INV-10.
///
/// A host asks for 90 MiB and reads none of it: the server is read no further than our bounds, everyone else goes on,
/// and nothing is lost when it reads again.
#[tokio::test(start_paused = true)]
async fn d26_a_host_that_does_not_read_pauses_the_server_that_floods_it() {
    let (world, mut host, mut a, mut b) = two().await;
    for id in 0..CALLS {
        host.call(id, "a__t").await;
    }
    let mut calls = Vec::new();
    for _ in 0..CALLS {
        calls.push(a.expect("tools/call").await);
    }
    let handed_over = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&handed_over);
    let flood = "x".repeat(MIB);
    world.tasks.spawn(async move {
        for call in calls {
            let line = format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{{\"content\":[{{\"type\":\"text\",\"text\":\"{flood}\"}}]}}}}\n",
                call["id"]
            );
            for piece in line.as_bytes().chunks(16 << 10) {
                if a.writer.write_all(piece).await.is_err() {
                    return;
                }
                counter.fetch_add(piece.len(), Ordering::Relaxed);
            }
        }
        // Its output stays open until the world ends.
        while let Ok(Some(_)) = a.lines.next().await {}
    });
    // As long as it takes: the calls' own deadline is a minute.
    sleep(Duration::from_secs(5)).await;
    let held = handed_over.load(Ordering::Relaxed);
    assert!(held >= 32 * MIB, "only {held} bytes were taken");
    assert!(held <= 72 * MIB, "{held} bytes were taken");
    sleep(Duration::from_secs(20)).await;
    assert_eq!(handed_over.load(Ordering::Relaxed), held, "it is paused");
    // Another host, another server.
    let mut other = world.host();
    other.open("2025-11-25").await;
    works(&mut other, &mut b).await;
    // It reads again, and gets everything.
    let mut seen = [false; CALLS];
    for _ in 0..CALLS {
        let Some(Frame::Line(line)) = host.lines.next().await.unwrap() else { panic!("it closed") };
        assert!(line.len() > MIB);
        // Not decoded: that takes longer than all the rest.
        let head = std::str::from_utf8(&line[..40]).unwrap();
        let id = head.strip_prefix("{\"jsonrpc\":\"2.0\",\"id\":").unwrap().split(',').next().unwrap();
        let id: usize = id.parse().unwrap();
        assert!(!std::mem::replace(&mut seen[id], true), "twice: {id}");
    }
    assert!(handed_over.load(Ordering::Relaxed) > CALLS * MIB);
    works(&mut other, &mut b).await;
    world.end().await;
}

/// A server that does not read: what waits for it is bounded, then its calls are refused, and others do not wait.
#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_read_is_asked_no_more_at_the_bound() {
    let (world, mut host, _a, mut b) = two().await;
    let big = "x".repeat(MIB);
    let mut refused = 0;
    for id in 0..38 {
        host.ask(id, "tools/call", json!({"name": "a__t", "arguments": {"big": big}})).await;
    }
    let mut other = world.host();
    other.open("2025-11-25").await;
    works(&mut other, &mut b).await;
    for _ in 0..38 {
        let answer = host.next().await.unwrap();
        match answer["error"]["data"]["reason"].as_str().unwrap() {
            "limit" => refused += 1,
            "downstream-timeout" => {}
            reason => panic!("{reason}"),
        }
    }
    assert!((4..=7).contains(&refused), "{refused}");
    works(&mut other, &mut b).await;
    world.end().await;
}

/// A host that asks without end and reads nothing is read no further, also where an answer costs us nothing to make.
#[tokio::test(start_paused = true)]
async fn a_host_that_does_not_read_is_read_no_further() {
    let mut world = World::new(vec![server("a"), server("b")]);
    let mut host = world.host();
    let (mut a, mut b) = (world.accept("a").await, world.accept("b").await);
    let probe = a.expect("server/discover").await;
    a.error(&probe, -32601).await;
    a.initialized().await;
    let asked = a.expect("tools/list").await;
    let tool = json!({"name": "t", "description": "x".repeat(64 << 10), "inputSchema": {"type": "object"}});
    a.result(&asked, json!({"tools": [tool]})).await;
    b.legacy(&["t"]).await;
    host.open("2025-11-25").await;
    host.list().await;
    let taken = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&taken);
    let line = format!("{}\n", json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}));
    let mut writer = std::mem::replace(&mut host.writer, Box::new(tokio::io::sink()));
    world.tasks.spawn(async move {
        while writer.write_all(line.as_bytes()).await.is_ok() {
            counter.fetch_add(line.len(), Ordering::Relaxed);
        }
    });
    sleep(Duration::from_secs(5)).await;
    let before = taken.load(Ordering::Relaxed);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(taken.load(Ordering::Relaxed), before, "it is paused");
    // 512 lists fill what may wait for it; the rest stands in the pipe and in the reader.
    assert!(before <= 512 << 10, "{before}");
    let mut other = world.host();
    other.open("2025-11-25").await;
    works(&mut other, &mut b).await;
    other.call(2, "a__t").await;
    let call = a.expect("tools/call").await;
    a.result(&call, text("a")).await;
    assert_eq!(text_of(&other.answer(2).await), "a");
    world.end().await;
}

/// Junk, unasked answers and progress of nobody are read and thrown away; they hold nothing and delay nobody.
#[tokio::test(start_paused = true)]
async fn d008_a_server_that_talks_nonsense_is_heard_without_end_at_no_cost() {
    let (world, mut host, mut a, mut b) = two().await;
    let mut nonsense = String::new();
    for n in 0..1000 {
        nonsense.push_str("not a message\n[1,2]\n{\"jsonrpc\":\"2.0\",\"id\":99999,\"result\":{}}\n");
        nonsense.push_str(&format!(
            "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{{\"progressToken\":9,\"progress\":{n}}}}}\n"
        ));
    }
    let flood = async {
        for _ in 0..20 {
            a.raw(&nonsense).await;
        }
    };
    let calls = async {
        for _ in 0..20 {
            works(&mut host, &mut b).await;
        }
    };
    tokio::join!(flood, calls);
    host.call(2, "a__t").await;
    let call = a.expect("tools/call").await;
    a.result(&call, text("a")).await;
    assert_eq!(text_of(&host.answer(2).await), "a");
    world.end().await;
}
