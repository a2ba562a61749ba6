//! Bounds of connections and messages, slow peers, leaving.

use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use onegate::upstream::http::Limits;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::client::{Client, USUAL, call, request};
use super::end::{modern, text, text_of};
use super::front::{Front, Setup, run};

fn short() -> Limits {
    Limits {
        head_time: Duration::from_millis(200),
        body_time: Duration::from_millis(200),
        stall: Duration::from_millis(300),
        idle: Duration::from_millis(400),
        look: Duration::from_millis(20),
        keep_alive: Duration::from_millis(50),
        drain: Duration::from_secs(2),
        ..Limits::default()
    }
}

#[test]
fn http7_large_heads_and_bodies_are_refused() {
    run(async {
        let limits = Limits { head: 8 << 10, body: 1 << 20, ..Limits::default() };
        let (front, _a) = Front::with(Setup { limits, ..Setup::default() }).await;
        let mut client = front.client().await;
        client.send("POST", "/mcp", &[("X-Large", &"x".repeat(9 << 10))], b"").await;
        assert_eq!(client.head().await.status, 431);
        let mut client = front.client().await;
        client.send("POST", "/mcp", &[USUAL[0], ("Content-Length", "1048577")], b"").await;
        assert_eq!(client.head().await.status, 413);
        // One whose length is not said.
        let mut client = front.client().await;
        client.send("POST", "/mcp", &[USUAL[0], ("Transfer-Encoding", "chunked")], b"").await;
        let piece = [b"8000\r\n".as_slice(), &[b' '; 0x8000], b"\r\n"].concat();
        for _ in 0..33 {
            if client.stream.write_all(&piece).await.is_err() {
                break;
            }
        }
        assert_eq!(client.head().await.status, 413);
        // As large as it may be, in chunks.
        let mut client = front.client().await;
        client.send("POST", "/mcp", &[USUAL[0], ("Transfer-Encoding", "chunked")], b"").await;
        for _ in 0..31 {
            client.stream.write_all(&piece).await.unwrap();
        }
        let text = request(1, "ping", json!({})).to_string();
        client.stream.write_all(format!("{:x}\r\n{text}\r\n0\r\n\r\n", text.len()).as_bytes()).await.unwrap();
        let (head, answer) = client.answer().await;
        assert_eq!((head.status, &answer["id"]), (400, &json!(1)), "it was read: there is no session");
        front.end().await;
    });
}

#[test]
fn what_a_body_does_not_need_of_the_budget_is_given_back() {
    run(async {
        // Of a body in chunks it is not known how large it becomes: there is room for two.
        let limits = Limits { body: 1 << 20, bodies: 2 << 20, body_time: Duration::from_secs(2), ..Limits::default() };
        let (front, mut a) = Front::with(Setup { limits, ..Setup::default() }).await;
        let mut clients = Vec::new();
        for id in 0..3 {
            let params = modern(json!({"name": "a__t", "arguments": {"x": "x".repeat(100 << 10)}}));
            let text = request(id, "tools/call", params).to_string();
            let mut client = front.client().await;
            let headers = [
                USUAL[0],
                USUAL[1],
                ("Transfer-Encoding", "chunked"),
                ("MCP-Protocol-Version", "2026-07-28"),
                ("Mcp-Method", "tools/call"),
                ("Mcp-Name", "a__t"),
            ];
            client.send("POST", "/mcp", &headers, b"").await;
            let (one, two) = text.split_at(70 << 10);
            for part in [one, two] {
                client.stream.write_all(format!("{:x}\r\n{part}\r\n", part.len()).as_bytes()).await.unwrap();
            }
            client.stream.write_all(b"0\r\n\r\n").await.unwrap();
            // They run beside each other.
            let called = tokio::select! {
                called = a.expect("tools/call") => called,
                head = client.head() => panic!("{head:?}"),
            };
            clients.push((client, called));
        }
        for (mut client, called) in clients {
            a.result(&called, text("done")).await;
            assert_eq!(text_of(&client.answer().await.1), "done");
        }
        front.end().await;
    });
}

#[test]
fn http7_slow_heads_and_bodies_are_cut() {
    run(async {
        let (front, _a) = Front::with(Setup { limits: short(), ..Setup::default() }).await;
        // Nothing at all, a part of the first line, a part of the head, a part of the next one.
        let mut silent = front.client().await;
        let mut first = front.client().await;
        first.stream.write_all(b"PO").await.unwrap();
        let mut half = front.client().await;
        half.stream.write_all(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n").await.unwrap();
        let mut next = front.client().await;
        next.send("GET", "/mcp", &[], b"").await;
        assert_eq!(next.answer().await.0.status, 405);
        next.stream.write_all(b"GET").await.unwrap();
        for client in [&mut silent, &mut first, &mut half, &mut next] {
            client.closed().await;
        }
        let mut slow = front.client().await;
        slow.send("POST", "/mcp", &[USUAL[0], ("Content-Length", "100")], b"{").await;
        assert_eq!(slow.head().await.status, 408);
        // One without requests is closed in order; one that waits for an answer is not.
        let mut idle = front.client().await;
        idle.send("GET", "/mcp", &[], b"").await;
        idle.answer().await;
        idle.closed().await;
        front.end().await;
    });
}

#[test]
fn a_call_that_takes_long_is_not_idle() {
    run(async {
        let (front, mut a) = Front::with(Setup { limits: short(), ..Setup::default() }).await;
        let mut client = front.client().await;
        client.modern_call(1).await;
        let called = a.expect("tools/call").await;
        tokio::time::sleep(Duration::from_millis(900)).await;
        a.result(&called, text("late")).await;
        assert_eq!(text_of(&client.answer().await.1), "late");
        front.end().await;
    });
}

#[test]
fn a_client_that_does_not_read_is_cut_and_holds_up_nobody() {
    run(async {
        let (front, mut a) = Front::with(Setup { limits: short(), ..Setup::default() }).await;
        let mut slow = front.client().await;
        slow.modern_call(1).await;
        let called = a.expect("tools/call").await;
        a.result(&called, text(&"x".repeat(14 << 20))).await;
        for n in 0..20 {
            let mut other = front.client().await;
            other.modern_call(n).await;
            let called = a.expect("tools/call").await;
            a.result(&called, text("quick")).await;
            assert_eq!(text_of(&other.answer().await.1), "quick");
        }
        tokio::time::sleep(Duration::from_millis(800)).await;
        // It was cut: the answer has no end.
        let head = slow.head().await;
        let length: usize = head.get("content-length").parse().unwrap();
        let mut count = 0;
        let mut buffer = vec![0; 1 << 20];
        loop {
            use tokio::io::AsyncReadExt as _;
            match slow.stream.read(&mut buffer).await {
                Ok(0) | Err(_) => break,
                Ok(more) => count += more,
            }
        }
        assert!(count < length, "{count} of {length}");
        front.end().await;
    });
}

#[test]
fn answers_that_nobody_takes_are_bounded() {
    run(async {
        let limits = Limits { answers: 20 << 20, ..Limits::default() };
        let (front, mut a) = Front::with(Setup { limits, ..Setup::default() }).await;
        let large = "x".repeat(14 << 20);
        let mut slow = front.client().await;
        slow.modern_call(1).await;
        let called = a.expect("tools/call").await;
        a.result(&called, text(&large)).await;
        let mut ask = async |id: u32, what: &str| {
            let mut client = front.client().await;
            client.modern_call(id).await;
            let called = a.expect("tools/call").await;
            a.result(&called, text(what)).await;
            client.answer().await.1
        };
        let refused = ask(2, &large).await;
        assert_eq!((&refused["id"], &refused["error"]["data"]["reason"]), (&json!(2), &json!("limit")));
        assert_eq!(text_of(&ask(3, "small").await), "small");
        // There is room again when it was taken.
        assert_eq!(text_of(&slow.answer().await.1).len(), large.len());
        while ask(4, &large).await["error"].is_object() {}
        front.end().await;
    });
}

#[test]
fn connections_are_bounded_and_the_next_one_waits() {
    run(async {
        let limits = Limits { connections: 2, idle: Duration::from_secs(60), ..short() };
        let (front, _a) = Front::with(Setup { limits, ..Setup::default() }).await;
        let mut held: Vec<Client> = Vec::new();
        for _ in 0..2 {
            let mut client = front.client().await;
            client.modern(1, "subscriptions/listen", json!({"notifications": {}})).await;
            assert_eq!(client.head().await.status, 200);
            held.push(client);
        }
        let mut third = front.client().await;
        third.send("GET", "/mcp", &[], b"").await;
        let early = tokio::time::timeout(Duration::from_millis(100), third.head()).await;
        assert!(early.is_err(), "there was no place");
        held.pop();
        assert_eq!(third.head().await.status, 405);
        front.end().await;
    });
}

#[test]
fn what_runs_may_end_when_we_leave_and_nothing_new_begins() {
    run(async {
        let (front, mut a) = Front::new().await;
        let session = front.open("2025-11-25").await;
        let (mut one, mut two, mut idle) = (front.client().await, front.client().await, front.client().await);
        one.modern_call(1).await;
        let first = a.expect("tools/call").await;
        two.post("/mcp", &[("Mcp-Session-Id", &session)], &call(2, "a__t")).await;
        let second = a.expect("tools/call").await;
        idle.send("GET", "/mcp", &[], b"").await;
        idle.answer().await;
        front.world.stop.cancel();
        idle.closed().await;
        // Who comes now is refused.
        while TcpStream::connect(front.address).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        a.result(&first, text("one")).await;
        a.result(&second, text("two")).await;
        assert_eq!(text_of(&one.answer().await.1), "one");
        assert_eq!(text_of(&two.answer().await.1), "two");
        one.closed().await;
        front.end().await;
    });
}

#[test]
fn what_does_not_move_holds_up_nothing_when_we_leave() {
    run(async {
        let limits = Limits {
            leaving: Duration::from_millis(200),
            look: Duration::from_millis(20),
            drain: Duration::from_secs(40),
            body_time: Duration::from_secs(40),
            head_time: Duration::from_secs(40),
            stall: Duration::from_secs(40),
            ..Limits::default()
        };
        let (front, mut a) = Front::with(Setup { limits, ..Setup::default() }).await;
        // Nothing, half of what tells HTTP/2 from HTTP/1.1, half a head, half a body.
        let mut idle = Vec::new();
        for part in [&b""[..], b"PRI", b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n"] {
            let mut client = front.client().await;
            client.stream.write_all(part).await.unwrap();
            idle.push(client);
        }
        let mut slow = front.client().await;
        slow.send("POST", "/mcp", &[USUAL[0], ("Content-Length", "100")], b"{").await;
        // A client of HTTP/2 that is not there any more, and two that do not read, one on each version.
        let mut gone = TcpStream::connect(front.address).await.unwrap();
        gone.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
        let mut deaf = front.client().await;
        deaf.modern_call(1).await;
        let large = "x".repeat(14 << 20);
        let called = a.expect("tools/call").await;
        a.result(&called, text(&large)).await;
        let (sender, _driving) = http2(&front).await;
        let serve = async {
            let called = a.expect("tools/call").await;
            a.result(&called, text(&large)).await;
        };
        let (unread, ()) = tokio::join!(http2_call(&front, &sender, 2), serve);
        assert_eq!(unread.as_ref().unwrap().status(), 200);
        // Until all are known to the front.
        let mut last = front.client().await;
        last.send("GET", "/mcp", &[], b"").await;
        assert_eq!(last.answer().await.0.status, 405);
        front.world.stop.cancel();
        assert_eq!(slow.head().await.status, 408);
        tokio::time::timeout(Duration::from_secs(10), front.end()).await.expect("something was waited for");
        drop((idle, gone, deaf, unread, sender));
    });
}

#[test]
fn what_does_not_end_in_time_is_cut() {
    run(async {
        let limits = Limits { drain: Duration::from_millis(200), ..Limits::default() };
        let (front, mut a) = Front::with(Setup { limits, ..Setup::default() }).await;
        let mut client = front.client().await;
        client.modern_call(1).await;
        a.expect("tools/call").await;
        front.world.stop.cancel();
        client.closed().await;
        front.end().await;
    });
}

pub(crate) type Sender = hyper::client::conn::http2::SendRequest<Full<bytes::Bytes>>;

/// A connection of HTTP/2, and what drives it.
pub(crate) async fn http2(front: &Front) -> (Sender, tokio::task::JoinHandle<()>) {
    let stream = TcpStream::connect(front.address).await.unwrap();
    let io = hyper_util::rt::TokioIo::new(stream);
    let executor = hyper_util::rt::TokioExecutor::new();
    let (sender, connection) = hyper::client::conn::http2::handshake(executor, io).await.unwrap();
    (sender, front.world.tasks.spawn(async move { drop(connection.await) }))
}

/// A modern call on it.
fn http2_call(front: &Front, sender: &Sender, id: u32) -> impl Future<Output = hyper::Result<Answer>> {
    let message = request(id, "tools/call", modern(json!({"name": "a__t", "arguments": {}}))).to_string();
    let request = hyper::Request::post(format!("http://{}/mcp", front.address))
        .header("content-type", "application/json")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "tools/call")
        .header("mcp-name", "a__t");
    sender.clone().send_request(request.body(Full::<bytes::Bytes>::new(message.into())).unwrap())
}

type Answer = hyper::Response<hyper::body::Incoming>;

#[test]
fn a_call_on_http2_that_takes_long_is_not_stalled() {
    run(async {
        let (front, mut a) = Front::with(Setup { limits: short(), ..Setup::default() }).await;
        let (sender, _driving) = http2(&front).await;
        let serve = async {
            let called = a.expect("tools/call").await;
            tokio::time::sleep(Duration::from_millis(900)).await;
            a.result(&called, text("late")).await;
        };
        let (answer, ()) = tokio::join!(http2_call(&front, &sender, 1), serve);
        let body = answer.unwrap().into_body().collect().await.unwrap().to_bytes();
        assert_eq!(text_of(&serde_json::from_slice(&body).unwrap()), "late");
        drop(sender);
        front.end().await;
    });
}

#[test]
fn http2_is_spoken_to_who_begins_with_it() {
    run(async {
        let (front, mut a) = Front::with(Setup { limits: short(), ..Setup::default() }).await;
        let (sender, driving) = http2(&front).await;
        let post = |id: u32| http2_call(&front, &sender, id);
        let (one, two) = (post(1), post(2));
        let serve = async {
            let calls = [a.expect("tools/call").await, a.expect("tools/call").await];
            for call in calls.iter().rev() {
                a.result(call, text("h2")).await;
            }
        };
        let (one, two, ()) = tokio::join!(one, two, serve);
        for answer in [one.unwrap(), two.unwrap()] {
            assert_eq!((answer.version(), answer.status().as_u16()), (hyper::Version::HTTP_2, 200));
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(text_of(&serde_json::from_slice(&body).unwrap()), "h2");
        }
        // A request that is let go is cancelled, the connection goes on.
        let gone = post(3);
        let called = tokio::select! {
            _ = gone => panic!("it was not answered"),
            called = a.expect("tools/call") => called,
        };
        assert_eq!(a.expect("notifications/cancelled").await["params"]["requestId"], called["id"]);
        drop(sender);
        driving.await.unwrap();
        front.end().await;
    });
}
