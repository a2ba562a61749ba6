//! What is decided before a message is read: names, origins, keys, paths, methods.

use onegate::config::settings::HttpSettings;
use serde_json::{Value, json};

use super::bounds::http2;
use super::client::{Client, USUAL, call, request};
use super::end::text;
use super::front::{Front, Setup, key, run};

/// D101.
#[test]
fn http1_names_and_origins_that_are_not_allowed_are_refused_before_anything_else() {
    run(async {
        let http = HttpSettings {
            allowed_hosts: vec!["mcp.example".into()],
            allowed_origins: vec!["https://app.example".into()],
            ..HttpSettings::default()
        };
        let (front, _a) = Front::with(Setup { http, keys: Some(vec![key("k", "secret")]), ..Setup::default() }).await;
        let address = front.address.to_string();
        for (host, origin, status) in [
            (address.as_str(), "-", 401),
            ("mcp.example:1234", "https://app.example", 401),
            ("localhost", "http://localhost:6274", 401),
            ("evil.example", "-", 403),
            ("0.0.0.0", "-", 403),
            ("127.0.0.1.evil.example", "-", 403),
            (&address, "http://evil.example", 403),
            (&address, "null", 403),
            ("evil.example", "https://app.example", 403),
        ] {
            let (head, _) = front.ask("/mcp", &[("Host", host), ("Origin", origin)], &call(1, "a__t")).await;
            assert_eq!(head.status, status, "{host} {origin}");
            let told = head.get("access-control-allow-origin");
            assert_eq!(told, if status == 403 || origin == "-" { "" } else { origin }, "no wildcard");
        }
        front.end().await;
    });
}

#[test]
fn http1_a_browser_is_told_what_a_page_may_send() {
    run(async {
        let (front, _a) = Front::new().await;
        let mut client = front.client().await;
        let asked = [
            ("Origin", "http://localhost:6274"),
            ("Access-Control-Request-Method", "POST"),
            ("Access-Control-Request-Headers", "authorization, mcp-protocol-version, mcp-param-repo, cookie"),
        ];
        client.send("OPTIONS", "/mcp", &asked, b"").await;
        let (head, _) = client.answer().await;
        assert_eq!(head.status, 204);
        assert_eq!(head.get("access-control-allow-origin"), "http://localhost:6274");
        assert_eq!(head.get("access-control-allow-headers"), "authorization, mcp-protocol-version, mcp-param-repo");
        assert!(head.get("access-control-allow-methods").contains("DELETE"));
        client.send("OPTIONS", "/mcp", &[("Origin", "http://evil.example")], b"").await;
        assert_eq!(client.answer().await.0.status, 403);
        let (head, _) = front.ask("/mcp", &[("Origin", "http://localhost:6274")], &request(1, "ping", json!({}))).await;
        assert!(head.get("access-control-expose-headers").contains("Mcp-Session-Id"));
        front.end().await;
    });
}

/// HDR-5, SEC-4.
#[test]
fn aut4_without_a_key_nothing_is_read() {
    run(async {
        let (front, mut a) = Front::with(Setup { keys: Some(vec![key("k", "secret")]), ..Setup::default() }).await;
        // The body never comes, and is not waited for.
        let mut client = front.client().await;
        client
            .send(
                "POST",
                "/mcp?token=secret&access_token=secret",
                &[USUAL[0], USUAL[1], ("Content-Length", "100")],
                b"",
            )
            .await;
        let (head, _) = client.answer().await;
        assert_eq!((head.status, head.get("www-authenticate")), (401, "Bearer"));
        for wrong in ["Bearer other", "Basic secret", "secret", "Bearer "] {
            let (head, _) = front.ask("/mcp", &[("Authorization", wrong)], &call(1, "a__t")).await;
            assert_eq!(head.status, 401, "{wrong}");
        }
        let mut client = front.client().await;
        let headers = [
            ("Authorization", "Bearer secret"),
            ("MCP-Protocol-Version", "2026-07-28"),
            ("Mcp-Method", "tools/call"),
            ("Mcp-Name", "a__t"),
        ];
        let message = request(1, "tools/call", super::end::modern(json!({"name": "a__t"})));
        client.post("/mcp", &headers, &message).await;
        let called = a.expect("tools/call").await;
        a.result(&called, text("yes")).await;
        assert_eq!(client.answer().await.0.status, 200);
        front.end().await;
    });
}

/// STM-4.
#[test]
fn paths_and_methods_that_are_not_there() {
    run(async {
        let (front, _a) = Front::new().await;
        let mut client = front.client().await;
        for (method, path, status) in [
            ("POST", "/", 404),
            ("POST", "/mcpx", 404),
            ("POST", "/mcp/none", 404),
            ("GET", "/.well-known/oauth-protected-resource/mcp", 404),
            ("GET", "/sse", 404),
            ("POST", "/messages?session=x", 404),
            // SES-8
            ("GET", "/mcp", 405),
            ("DELETE", "/mcp", 405),
            ("PUT", "/mcp", 405),
        ] {
            client.send(method, path, &USUAL, b"{}").await;
            let (head, _) = client.answer().await;
            assert_eq!(head.status, status, "{method} {path}");
        }
        for path in ["/mcp/", "/mcp/default"] {
            let (head, answer) =
                front.ask(path, &[], &request(1, "initialize", json!({"protocolVersion": "2025-11-25"}))).await;
            assert_eq!((head.status, &answer["id"]), (200, &json!(1)), "{path}");
        }
        front.end().await;
    });
}

#[test]
fn http3_media_types() {
    run(async {
        let (front, _a) = Front::new().await;
        let open = request(1, "initialize", json!({"protocolVersion": "2025-11-25"}));
        for (kind, accept, status) in [
            ("application/json; charset=utf-8", "-", 200),
            ("Application/JSON", "*/*", 200),
            ("application/json", "application/json", 200),
            ("text/plain", "-", 415),
            ("-", "-", 415),
            ("application/json-patch+json", "-", 415),
            ("application/json", "text/html", 406),
        ] {
            let (head, _) = front.ask("/mcp", &[("Content-Type", kind), ("Accept", accept)], &open).await;
            assert_eq!(head.status, status, "{kind} {accept}");
        }
        // Who takes nothing but a stream gets one.
        let mut client: Client = front.client().await;
        client.post("/mcp", &[("Accept", "text/event-stream")], &open).await;
        let mut stream = client.stream().await;
        assert_eq!(stream.message().await["id"], 1);
        assert_eq!(stream.next().await, None);
        front.end().await;
    });
}

#[test]
fn what_is_no_message_is_answered_with_400() {
    run(async {
        let (front, _a) = Front::new().await;
        let mut client = front.client().await;
        for (body, code, id) in [
            (&b"{"[..], -32700, Value::Null),
            (b"\xff", -32700, Value::Null),
            (b"7", -32600, Value::Null),
            (b"[]", -32600, Value::Null),
            (b"[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]", -32600, Value::Null),
            (b"{\"jsonrpc\":\"2.0\",\"id\":\"x\"}", -32600, json!("x")),
            (b"", -32700, Value::Null),
        ] {
            client.send("POST", "/mcp", &USUAL, body).await;
            let (head, answer) = client.answer().await;
            let shown = String::from_utf8_lossy(body);
            assert_eq!((head.status, &answer["error"]["code"]), (400, &json!(code)), "{shown}");
            assert_eq!((&answer["id"], answer.get("id").is_some()), (&id, id != Value::Null), "ENV-4: {shown}");
        }
        front.end().await;
    });
}

/// D101: the name stands elsewhere in HTTP/2, and is looked at all the same, wherever it stands.
#[test]
fn d101_names_are_looked_at_on_http2_too() {
    run(async {
        let (front, _a) = Front::new().await;
        let (sender, _driving) = http2(&front).await;
        let address = front.address.to_string();
        for (authority, host, origin, status) in [
            (address.as_str(), None, None, 200),
            ("evil.example", None, None, 403),
            ("0.0.0.0", None, None, 403),
            (&address, Some("evil.example"), None, 403),
            (&address, None, Some("http://evil.example"), 403),
            (&address, None, Some("null"), 403),
        ] {
            let ping = request(1, "initialize", json!({"protocolVersion": "2025-11-25"})).to_string();
            let mut asked = hyper::Request::post(format!("http://{authority}/mcp"))
                .header("content-type", "application/json")
                .header("accept", "application/json, text/event-stream");
            for (name, value) in [("host", host), ("origin", origin)] {
                if let Some(value) = value {
                    asked = asked.header(name, value);
                }
            }
            let answer = sender.clone().send_request(asked.body(ping.into()).unwrap()).await;
            // Two names that differ are no request at all to some.
            let found = answer.map_or(403, |answer| answer.status().as_u16());
            assert_eq!(found, status, "{authority} {host:?} {origin:?}");
        }
        drop(sender);
        front.end().await;
    });
}

/// D094: what is no call by its form is no way to a server, for who may call nothing as for others.
#[test]
fn d094_other_methods_and_other_forms_reach_nobody() {
    run(async {
        let (front, mut a) = Front::with(Setup { keys: Some(vec![key("k", "secret")]), ..Setup::default() }).await;
        let denied = super::world::settings(vec![super::world::server("a")], |settings| {
            let default = Some(onegate::config::settings::Effect::Deny);
            settings.policy = onegate::config::settings::PolicySettings { default, ..Default::default() };
        });
        let bearer = ("Authorization", "Bearer secret");
        let session = front.open_with("2025-11-25", &[bearer], json!({})).await;
        front.world.current.reload(denied).await.unwrap();
        let named = ("Mcp-Session-Id", session.as_str());
        for method in ["tools/cal", "Tools/Call", "acme/call", "rpc.call", "tools/call/", ""] {
            let message = request(1, method, json!({"name": "a__t", "arguments": {}}));
            let (_, answer) = front.ask("/mcp", &[bearer, named], &message).await;
            assert!(answer["error"]["code"].is_i64(), "{method}: {answer}");
        }
        let call = call(1, "a__t").to_string();
        let form = format!("jsonrpc=2.0&id=1&method=tools%2Fcall&params={call}");
        for (kind, body) in [
            ("application/x-www-form-urlencoded", form.as_str()),
            ("application/x-www-form-urlencoded", &call),
            ("multipart/form-data; boundary=x", &call),
            ("text/plain", &call),
            ("text/json", &call),
            ("application/xml", &call),
        ] {
            let mut client = front.client().await;
            let headers = [USUAL[1], ("Content-Type", kind), bearer, named];
            client.send("POST", "/mcp", &headers, body.as_bytes()).await;
            assert_eq!(client.answer().await.0.status, 415, "{kind}");
        }
        a.quiet(std::time::Duration::from_millis(300)).await;
        front.end().await;
    });
}
