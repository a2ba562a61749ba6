//! The fake itself, without the gateway: a test that leans on it must not pass because the fake did nothing.

use std::time::Duration;

use serde_json::json;

use crate::host::{Era, Setup};

#[test]
fn answers_in_its_era_only() {
    let mut fake = Setup::new().fake_alone(json!({"tool_count": 2, "era": "legacy"}));
    assert_eq!(fake.initialize("2025-06-18").value()["protocolVersion"], "2025-06-18");
    assert_eq!(fake.tools(), ["t000", "t001"]);
    assert_eq!(fake.call("t000", "{}").text(), "alone:t000");
    fake.era = Era::Modern;
    assert_eq!(fake.ask("server/discover", "").code(), -32601);
    fake.finish();

    let mut fake = Setup::new().fake_alone(json!({"tool_count": 2, "era": "modern"}));
    assert_eq!(fake.open(Era::Modern).value()["supportedVersions"], json!(["2026-07-28"]));
    assert_eq!(fake.call("t000", "{}").value()["resultType"], "complete");
    fake.era = Era::Legacy;
    assert_eq!(fake.ask("initialize", "").code(), -32601);
    fake.finish();
}

#[test]
fn pages_as_told() {
    for (style, cursors) in [
        ("offset", ["\"2\"", "\"4\""]),
        ("empty", ["\"\"", "\"4\""]),
        ("repeat", ["\"again\"", "\"again\""]),
        ("alternate", ["\"A\"", "\"B\""]),
        ("fresh", ["\"c1\"", "\"c2\""]),
    ] {
        let mut fake = Setup::new().fake_alone(json!({"tool_count": 5, "page": 2, "cursor": style}));
        let first = fake.ask("tools/list", "").result_raw("nextCursor").unwrap();
        let second = fake.ask("tools/list", &format!("\"cursor\":{first}"));
        assert_eq!([first.as_str(), &second.result_raw("nextCursor").unwrap()], cursors, "{style}");
        fake.finish();
    }
}

#[test]
fn keeps_every_byte_of_tools_and_results() {
    let tool = r#"{"name" : "t\u0061", "x":1.0, "x":1E2,"d":"\ud800"}"#;
    let result = r#"{ "content":[],"n":123456789012345678901234567890,"s":"\ud800\/" }"#;
    let mut fake = Setup::new().fake_alone(json!({"tools": [tool], "act": {"do": "result", "result": result}}));
    assert!(fake.ask("tools/list", "").line.contains(tool));
    assert!(fake.call("ta", "{}").line.contains(result));
    assert_eq!(fake.received("alone").len(), 2);
    fake.finish();
}

#[test]
fn misbehaves_as_told() {
    let mut fake = Setup::new().fake_alone(json!({
        "tool_count": 1, "text_ids": true, "noise": ["{\"jsonrpc\":\"2.0\"}"], "stream": "bytes",
        "acts": {"gone": {"do": "exit", "code": 7, "stderr": "why\n"}, "late": {"do": "never"}},
    }));
    let id = fake.post("ping", "");
    assert_eq!(fake.answer(&format!("\"{id}\"")).result(), "{}");
    assert!(fake.next(Duration::from_secs(5)).is_some_and(|m| m.raw("id").is_none()));
    fake.post_call("late", "{}");
    fake.post_call("gone", "{}");
    assert_eq!(fake.wait_end(Duration::from_secs(10)).code(), Some(7));
    fake.wait_stderr("why");
    assert_eq!(fake.starts("alone"), 1);
}

#[test]
fn stays_at_term_and_end_of_input_and_has_children() {
    let mut fake = Setup::new().fake_alone(json!({
        "ignore_eof": true, "ignore_term": true, "wrapper": true, "grandchild": true,
    }));
    assert_eq!(fake.initialize("2025-11-25").value()["serverInfo"]["name"], "fake");
    crate::host::until("wrapper, server and the child beside it", crate::host::PATIENCE, || {
        fake.starts("alone") == 2 && fake.processes().len() == 3
    });
    fake.signal("TERM");
    fake.close_input();
    assert!(crate::host::wait_exit(&mut fake.child, Duration::from_millis(300)).is_none());
    assert_eq!(fake.processes().len(), 3);
}

#[test]
fn asks_the_client_and_tells_changes() {
    let mut fake = Setup::new().fake_alone(json!({
        "acts": {
            "ask": {"do": "ask", "method": "roots/list"},
            "more": {"do": "change", "tool": "{\"name\":\"new\",\"inputSchema\":{\"type\":\"object\"}}"},
        },
    }));
    fake.initialize("2025-11-25");
    let call = fake.post_call("ask", "{}");
    let asked = fake.note("roots/list");
    let id = asked.raw("id").unwrap().to_owned();
    fake.send(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"roots":[]}}}}"#));
    assert!(fake.answer(&call).text().contains("\"roots\":[]"));
    fake.call("more", "{}");
    fake.note("notifications/tools/list_changed");
    assert_eq!(fake.tools(), ["new"]);
    fake.finish();
}
