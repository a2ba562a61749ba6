//! What goes out in headers: made for this server from the message that is sent, nothing of anybody else (I-12).

use onegate::config::settings::{ApiKey, AuthSettings, HttpSettings};
use onegate::upstream::http::{Entrance, Limits, serve};
use serde_json::json;
use sha2::Digest as _;
use tokio_util::sync::CancellationToken;

use super::end::{modern as modern_params, text};
use super::fake::{Fake, discovered};
use super::world::{World, answer, host, legacy, modern, server};

#[tokio::test]
async fn hdr_a_modern_request_repeats_version_method_and_native_name() {
    let (world, mut host, mut fake) = modern().await;
    host.call(1, "a__t").await;
    let call = fake.expect("tools/call").await;
    assert_eq!(call.header("mcp-protocol-version"), Some("2026-07-28"));
    assert_eq!(call.header("mcp-method"), Some("tools/call"));
    assert_eq!(call.header("mcp-name"), Some("t"));
    assert_eq!(call.header("accept"), Some("application/json, text/event-stream"));
    assert_eq!(call.header("content-type"), Some("application/json"));
    assert_eq!(call.header("authorization"), Some("Bearer of the operator"));
    assert_eq!(call.header("host"), Some(format!("127.0.0.1:{}", fake.port).as_str()));
    assert_eq!(
        call.names(),
        [
            "accept",
            "accept-encoding",
            "authorization",
            "content-length",
            "content-type",
            "host",
            "mcp-method",
            "mcp-name",
            "mcp-protocol-version",
            "user-agent"
        ]
    );
    call.result(text("x")).await;
    answer(&mut host, 1).await;
    world.end().await;
}

#[tokio::test]
async fn d074_a_name_that_no_header_can_hold_is_encoded() {
    let mut fake = Fake::new().await;
    let world = World::new(server(&fake.url()));
    fake.expect("server/discover").await.result(discovered(json!({"tools": {}}))).await;
    fake.expect("tools/list").await.result(super::end::list_of(&["größe"])).await;
    let mut host = host(&world).await;
    host.ask("l", "tools/list", json!({})).await;
    let listed = answer(&mut host, "l").await;
    let exposed = listed["result"]["tools"][0]["name"].as_str().unwrap().to_owned();
    host.call(1, &exposed).await;
    let call = fake.expect("tools/call").await;
    assert_eq!(call.body["params"]["name"], "größe");
    assert_eq!(call.header("mcp-name"), Some("=?base64?Z3LDtsOfZQ==?="));
    call.result(text("x")).await;
    answer(&mut host, 1).await;
    world.end().await;
}

/// INV-1.
#[tokio::test]
async fn d073_each_leg_has_the_headers_of_its_own_revision() {
    // A modern host before a server that knows 2025-06-18 and looks at headers.
    let mut fake = Fake::new().await;
    let world = World::new(server(&fake.url()));
    let probe = fake.expect("server/discover").await;
    assert_eq!(probe.header("mcp-protocol-version"), Some("2026-07-28"));
    assert_eq!(probe.header("mcp-method"), Some("server/discover"));
    probe.error(400, json!({"code": -32000, "message": "Bad Request: Server not initialized"})).await;
    fake.session("s-9", "2025-06-18", &["t"]).await;
    let mut host = world.host();
    host.ask(1, "tools/call", modern_params(json!({"name": "a__t", "arguments": {}}))).await;
    let call = fake.expect("tools/call").await;
    assert_eq!(call.header("mcp-protocol-version"), Some("2025-06-18"));
    assert_eq!(call.header("mcp-session-id"), Some("s-9"));
    assert_eq!((call.header("mcp-method"), call.header("mcp-name")), (None, None));
    assert_eq!(call.body["params"].get("_meta"), None, "{}", call.body);
    call.result(text("x")).await;
    answer(&mut host, 1).await;
    world.end().await;
}

#[tokio::test]
async fn auc10_credentials_are_on_every_request_of_a_legacy_session() {
    let (world, _host, mut fake) = legacy().await;
    world.gateway.stop(onegate::gateway::Pace::SWIFT);
    let end = fake.verb("DELETE").await;
    assert_eq!(end.header("authorization"), Some("Bearer of the operator"));
    assert_eq!(end.header("mcp-session-id"), Some("s1"));
    assert_eq!(end.header("mcp-protocol-version"), Some("2025-11-25"));
    end.status(405).await;
    world.end().await;
}

/// I-12, D092, INV-7: what a host proves itself with, and whatever else stands in its headers, reaches no server.
#[tokio::test]
async fn i12_d092_nothing_of_a_hosts_headers_reaches_a_server() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let (world, _host, mut fake) = modern().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (http, stop) = (HttpSettings::default(), CancellationToken::new());
    let hash = sha2::Sha256::digest("of the host").into();
    let keys = vec![ApiKey { name: "k".into(), hash, groups: Vec::new(), expires: None }];
    let auth = AuthSettings { keys, ..AuthSettings::default() };
    let limits = Limits::default();
    let entrance = Entrance::new((&http, &auth), address, limits.keys.clone(), &stop, &world.tasks);
    let (current, until, tasks) = (world.current.clone(), stop.clone(), world.tasks.clone());
    let serving =
        world.tasks.spawn(async move { serve(limits, current, listener, &http, entrance, &until, &tasks).await });
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": modern_params(json!({"name": "a__t", "arguments": {}}))})
    .to_string();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer of the host\r\nCookie: c=1\r\n\
         Proxy-Authorization: Basic eA==\r\nX-Api-Key: of the host\r\nX-Forwarded-For: 10.0.0.1\r\nForwarded: for=x\r\n\
         Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\nUser-Agent: the host\r\n\
         MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: a__t\r\nMcp-Param-Odd: of the host\r\n\
         Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    let call = fake.expect("tools/call").await;
    assert_eq!(call.header("authorization"), Some("Bearer of the operator"));
    let names = call.names();
    for name in ["cookie", "proxy-authorization", "x-api-key", "x-forwarded-for", "forwarded", "mcp-param-odd"] {
        assert!(!names.contains(&name), "{names:?}");
    }
    assert!(names.iter().all(|name| !call.header(name).unwrap_or_default().contains("the host")), "{names:?}");
    assert!(!call.body.to_string().contains("of the host"));
    call.result(text("fine")).await;
    let mut answered = String::new();
    stream.read_to_string(&mut answered).await.unwrap();
    assert!(answered.starts_with("HTTP/1.1 200") && answered.contains("fine"), "{answered}");
    stop.cancel();
    serving.await.unwrap().unwrap();
    world.end().await;
}

/// A tool list in which a parameter is repeated under this name.
fn annotated(header: &str) -> serde_json::Value {
    let schema = json!({"type": "object", "properties": {"repo": {"type": "string", "x-mcp-header": header}}});
    json!({"tools": [{"name": "t", "inputSchema": schema}], "resultType": "complete", "ttlMs": 0, "cacheScope": "private"})
}

#[tokio::test]
async fn xmh3_d074_annotated_parameters_are_repeated_from_the_body_that_is_sent() {
    let mut fake = Fake::new().await;
    let world = World::new(server(&fake.url()));
    fake.expect("server/discover").await.result(discovered(json!({"tools": {}}))).await;
    fake.expect("tools/list").await.result(annotated("Repo")).await;
    let mut host = host(&world).await;
    for (id, arguments, header) in [
        (1, json!({"repo": "acme/site"}), Some("acme/site")),
        (2, json!({"repo": "größe"}), Some("=?base64?Z3LDtsOfZQ==?=")),
        (3, json!({"repo": null}), None),
        (4, json!({}), None),
    ] {
        host.ask(id, "tools/call", json!({"name": "a__t", "arguments": arguments})).await;
        let call = fake.expect("tools/call").await;
        assert_eq!(call.header("mcp-param-repo"), header, "{id}");
        call.result(text("x")).await;
        answer(&mut host, id).await;
    }
    world.end().await;
}

#[tokio::test]
async fn hdr9_a_server_that_wants_other_headers_is_listed_anew_and_asked_once_more() {
    let mut fake = Fake::new().await;
    let world = World::new(server(&fake.url()));
    fake.expect("server/discover").await.result(discovered(json!({"tools": {}}))).await;
    fake.expect("tools/list").await.result(annotated("Repo")).await;
    let mut host = host(&world).await;
    host.ask(1, "tools/call", json!({"name": "a__t", "arguments": {"repo": "x"}})).await;
    fake.expect("tools/call").await.error(400, json!({"code": -32020, "message": "Mcp-Param-Place is missing"})).await;
    fake.expect("tools/list").await.result(annotated("Place")).await;
    let call = fake.expect("tools/call").await;
    assert_eq!((call.header("mcp-param-place"), call.header("mcp-param-repo")), (Some("x"), None));
    call.error(400, json!({"code": -32020, "message": "still not"})).await;
    let failed = answer(&mut host, 1).await;
    assert_eq!(failed["error"]["code"], -32603);
    assert_eq!(failed["error"]["data"]["reason"], "invalid-downstream-result");
    fake.quiet("tools/call", std::time::Duration::from_millis(100)).await;
    world.end().await;
}
