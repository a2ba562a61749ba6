//! What operators see of a running gateway: `status`, `logs`, health and numbers, and that none of it holds anybody up.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use serde_json::{Value, json};

use crate::host::{Era, Host, PATIENCE, Setup, until};

/// What `status` says of all gateways here.
fn status(host: &Host) -> Value {
    let shown = host.output(&["status", "--json"]);
    assert_eq!(shown.code, Some(0), "{}", shown.err);
    serde_json::from_str(&shown.out).unwrap()
}

/// A server in it.
fn server<'a>(status: &'a Value, key: &str) -> &'a Value {
    status["servers"].as_array().unwrap().iter().find(|server| server["key"] == key).unwrap()
}

/// The status and the body of an answer over TCP.
fn get(address: SocketAddr, path: &str, host: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// A port that nobody has now.
fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

#[test]
fn d001_d016_status_and_logs_tell_of_a_gateway_that_a_host_started() {
    let nobody = Setup::new().server("a", json!({})).output(&["status", "--json"]);
    assert_eq!((nobody.code, nobody.out.trim()), (Some(1), r#"{"gateways":[],"servers":[]}"#));

    let mut host = Setup::new()
        .server("good", json!({"tool_count": 2, "stderr_at_start": "a word\nand \u{1b}[31mone more\n"}))
        .server("bad", json!({"stderr_at_start": "no such table\n", "exit_at_start": 3}))
        .open(Era::Modern);
    host.tools_count(2);
    host.call("good__t000", "{}");
    until("the bad one to have failed", PATIENCE, || server(&status(&host), "bad")["last_error"].is_string());
    let status = status(&host);
    let good = server(&status, "good");
    assert_eq!((&good["state"], &good["era"], &good["restarts"]), (&json!("ready"), &json!("legacy"), &json!(0)));
    assert_eq!((&good["in_flight"], &good["transport"]), (&json!(0), &json!("stdio")));
    assert!(host.processes().iter().any(|(pid, _)| json!(pid) == good["pid"]), "{good}");
    // There is no lock, and nobody asked for one.
    assert_eq!(good["pins"], json!({"mode": "warn", "state": "unlocked", "drift": 0, "quarantine": "unlocked"}));
    let bad = server(&status, "bad");
    assert!(["waiting", "broken", "starting"].contains(&bad["state"].as_str().unwrap()), "{bad}");
    // The operating system's own words and the server's.
    let error = bad["last_error"].as_str().unwrap();
    assert!(error.contains("no such table") && error.contains('3'), "{error}");
    assert_eq!(status["gateways"][0]["front"], "run");
    assert_eq!(status["gateways"][0]["profiles"][0]["tools"], 2);

    let people = host.output(&["status"]);
    assert!(people.out.contains("no such table") && people.out.contains("good"), "{}", people.out);
    let logs = host.output(&["logs", "good"]);
    assert_eq!(logs.code, Some(0));
    assert!(
        logs.out.contains("a word") && logs.out.contains("one more") && !logs.out.contains('\u{1b}'),
        "{}",
        logs.out
    );
    assert_eq!(host.output(&["logs", "good", "-n", "1"]).out.lines().count(), 1);
    assert_eq!(host.output(&["logs", "other"]).code, Some(1));
    assert_eq!(host.output(&["logs", "../x"]).code, Some(2));
    host.finish();
}

#[test]
fn the_socket_is_its_owners_and_goes_with_the_gateway() {
    use std::os::unix::fs::PermissionsExt as _;
    let host = Setup::new().head("[admin]\nsocket = \"own.sock\"").server("a", json!({"tool_count": 1})).start();
    let path = host.path("own.sock");
    until("the socket", PATIENCE, || path.exists());
    assert_eq!(status(&host)["servers"][0]["key"], "a");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    // A second one with the same configuration has one of its own, and both are seen.
    let mut run = host.setup().command(&["run"]);
    let mut second = run.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::null()).spawn().unwrap();
    until("both", PATIENCE, || status(&host)["gateways"].as_array().unwrap().len() == 2);
    drop(second.stdin.take());
    assert!(second.wait().unwrap().success());
    assert_eq!(status(&host)["gateways"].as_array().unwrap().len(), 1);
    host.finish();
    assert!(!path.exists());
}

#[test]
fn health_and_numbers_are_served_where_configured_to_whoever_names_the_place() {
    let address = free();
    let mut host = Setup::new()
        .head(&format!("[admin]\nlisten = \"{address}\""))
        .server("a", json!({"tool_count": 1}))
        .server_with("needed", json!({"exit_at_start": 1}), "required = true")
        .open(Era::Modern);
    until("the listener", PATIENCE, || TcpStream::connect(address).is_ok());
    let named = address.to_string();
    assert_eq!(get(address, "/healthz", &named).0, 200);
    host.tools_count(1);
    host.call("a__t000", "{}");
    until("word of the one that is needed", PATIENCE, || get(address, "/readyz", "localhost").1.contains("needed"));
    assert_eq!(get(address, "/readyz", &named).0, 503);
    let (code, numbers) = get(address, "/metrics", &named);
    assert_eq!(code, 200);
    for line in [
        r#"onegate_requests_total{server="a",method="tools/call",outcome="ok"} 1"#,
        r#"onegate_server_state{server="a",state="ready"} 1"#,
        r#"onegate_catalogue_items{profile="default",kind="tool"} 1"#,
        r#"onegate_in_flight{server="a"} 0"#,
    ] {
        assert!(numbers.lines().any(|one| one == line), "{line}\n{numbers}");
    }
    // A page that made a name of its own point here learns nothing (S-15), and nobody what servers said.
    assert_eq!(get(address, "/metrics", "evil.example").0, 403);
    for path in ["/status", "/logs/a", "/mcp"] {
        assert_eq!(get(address, path, &named).0, 404, "{path}");
    }
    host.finish();
}

#[test]
fn an_address_that_is_taken_keeps_no_gateway_from_serving() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = format!("[admin]\nlisten = \"{}\"\nsocket = \"file\"", taken.local_addr().unwrap());
    let setup = Setup::new().head(&listen).server("a", json!({"tool_count": 1}));
    std::fs::write(setup.path("file"), "precious").unwrap();
    let mut host = setup.open(Era::Legacy);
    host.tools_count(1);
    host.wait_stderr("nothing is served at admin.listen");
    host.wait_stderr("something that is no socket stands there");
    assert_eq!(std::fs::read(host.path("file")).unwrap(), b"precious");
    host.finish();
}
