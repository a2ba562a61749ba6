//! HTTP+SSE of 2024-11-05.

use onegate::config::settings::HttpSettings;
use serde_json::{Value, json};

use super::client::{Events, call, notification, request};
use super::end::{text, text_of};
use super::front::{Front, Setup, key, run};

/// Opens a stream; answers it and the address for posts.
async fn open(front: &Front, key: (&str, &str)) -> (Events, String) {
    let mut client = front.client().await;
    client.send("GET", "/sse", &[key, ("Accept", "text/event-stream")], b"").await;
    let mut stream = client.stream().await;
    let event = stream.next().await.unwrap();
    assert_eq!(event.event.as_deref(), Some("endpoint"));
    (stream, event.data.unwrap())
}

#[test]
fn what_runs_on_the_stream_may_end_when_we_leave() {
    run(async {
        let http = HttpSettings { sse: true, ..HttpSettings::default() };
        let (front, mut a) = Front::with(Setup { http, ..Setup::default() }).await;
        let none = ("X-None", "");
        let (mut idle, _) = open(&front, none).await;
        let (mut stream, address) = open(&front, none).await;
        let params =
            json!({"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}});
        front.ask(&address, &[], &request(1, "initialize", params)).await;
        stream.message().await;
        front.ask(&address, &[], &call("c", "a__t")).await;
        let called = a.expect("tools/call").await;
        front.world.stop.cancel();
        assert_eq!(idle.next().await, None);
        a.result(&called, text("done")).await;
        assert_eq!(text_of(&stream.message().await), "done");
        assert_eq!(stream.next().await, None);
        front.end().await;
    });
}

#[test]
fn sse2_the_oldest_hosts_are_served_on_one_stream() {
    run(async {
        let http = HttpSettings { sse: true, ..HttpSettings::default() };
        let keys = Some(vec![key("one", "1"), key("two", "2")]);
        let (front, mut a) = Front::with(Setup { http, keys, ..Setup::default() }).await;
        let (one, two) = (("Authorization", "Bearer 1"), ("Authorization", "Bearer 2"));
        let (mut stream, address) = open(&front, one).await;
        let post = async |message: Value| {
            let (head, answer) = front.ask(&address, &[one], &message).await;
            assert_eq!((head.status, answer), (202, Value::Null));
        };
        post(call(0, "a__t")).await;
        assert_eq!(stream.message().await["error"]["code"], -32602, "VER-3");
        let params =
            json!({"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}});
        post(request(1, "initialize", params)).await;
        assert_eq!(stream.message().await["result"]["protocolVersion"], "2024-11-05");
        post(notification("notifications/initialized", json!({}))).await;
        post(call("c", "a__t")).await;
        post(request(2, "ping", json!({}))).await;
        // What is answered first comes first.
        assert_eq!(stream.message().await, json!({"jsonrpc": "2.0", "id": 2, "result": {}}));
        let called = a.expect("tools/call").await;
        a.result(&called, text("done")).await;
        let answer = stream.message().await;
        assert_eq!((text_of(&answer), &answer["id"]), ("done", &json!("c")));
        a.tell("notifications/tools/list_changed", json!({})).await;
        a.listed(&["t", "u"]).await;
        assert_eq!(stream.message().await["method"], "notifications/tools/list_changed");
        // The address is no proof of who one is.
        assert_eq!(front.ask(&address, &[two], &call(3, "a__t")).await.0.status, 404);
        assert_eq!(front.ask("/messages?session=x", &[one], &call(3, "a__t")).await.0.status, 404);
        assert_eq!(front.ask("/messages", &[one], &call(3, "a__t")).await.0.status, 400);
        // With its stream the session ends, and what runs.
        post(call("d", "a__t")).await;
        let called = a.expect("tools/call").await;
        drop(stream);
        assert_eq!(a.expect("notifications/cancelled").await["params"]["requestId"], called["id"]);
        assert_eq!(front.ask(&address, &[one], &call(3, "a__t")).await.0.status, 404);
        front.end().await;
    });
}
