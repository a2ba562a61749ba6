//! Class J for stdio: probing servers, opening by hosts, what each era sees (D084–D088, VER-*, ENV-5).

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::host::{CELLS, Era, MODERN_META, Setup};

const LEGACY: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

#[test]
fn d084_a_server_silent_to_the_probe_is_legacy() {
    let mut host = Setup::new()
        .server_with(
            "a",
            json!({"tool_count": 1, "discover": "silent"}),
            "timeouts = { start = \"20s\", probe = \"300ms\" }",
        )
        .open(Era::Modern);
    let begun = Instant::now();
    host.tools_count(1);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(host.call("a__t000", "{}").text(), "a:t000");
    assert_eq!(host.starts("a"), 1, "the probe did not kill it, so it is not started again");
    assert_eq!(host.received_of("a", "initialize").len(), 1);
    assert_eq!(host.received_of("a", "notifications/initialized").len(), 1);
    host.finish();
}

#[test]
fn prb1_any_error_to_the_probe_means_legacy() {
    for error in [
        r#"{"code":-32601,"message":"Method not found"}"#,
        r#"{"code":-32600,"message":"not initialized"}"#,
        r#"{"code":-32602,"message":"bad","data":{"x":1}}"#,
        r#"{"code":-32603,"message":""}"#,
        r#"{"code":-32000,"message":"Server not initialized"}"#,
        r#"{"code":-32001,"message":"m"}"#,
        r#"{"code":0,"message":"m"}"#,
        r#"{"code":400,"message":"m","data":null}"#,
        r#"{"code":"text","message":7}"#,
        r#"{"message":"no code"}"#,
        r#""just text""#,
        "null",
        "{}",
    ] {
        let line = format!(r#"{{"jsonrpc":"2.0","id":@ID@,"error":{error}}}"#);
        is_legacy_by(&line);
    }
}

/// A server that answers the probe with this line is spoken to as a legacy one, without another start.
fn is_legacy_by(line: &str) {
    let scenario = json!({"tool_count": 1, "discover": line});
    let timeouts = "timeouts = { start = \"20s\", probe = \"1500ms\" }";
    let mut host = Setup::new().server_with("a", scenario, timeouts).open(Era::Legacy);
    host.tools_count(1);
    assert_eq!(host.call("a__t000", "{}").text(), "a:t000", "{line}");
    assert_eq!(host.starts("a"), 1, "{line}");
    host.finish();
}

#[test]
fn prb1_results_of_the_probe_that_are_none_mean_legacy() {
    for result in [
        "null",
        "{}",
        "[]",
        "7",
        r#"{"resultType":"complete"}"#,
        r#"{"supportedVersions":[]}"#,
        r#"{"supportedVersions":"x"}"#,
        r#"{"content":[]}"#,
    ] {
        let line = format!(r#"{{"jsonrpc":"2.0","id":@ID@,"result":{result}}}"#);
        is_legacy_by(&line);
    }
}

#[test]
fn prb1_a_modern_error_to_the_probe_means_modern() {
    let tool = r#"{"name":"t","inputSchema":{"type":"object"}}"#;
    for code in [-32022, -32020, -32021] {
        let line = format!(
            r#"{{"jsonrpc":"2.0","id":@ID@,"error":{{"code":{code},"message":"Unsupported protocol version","data":{{"supported":["2026-07-28"],"requested":"x","requiredCapabilities":{{}}}}}}}}"#
        );
        let mut host =
            Setup::new().server("a", json!({"tools": [tool], "era": "modern", "discover": line})).open(Era::Legacy);
        host.tools_count(1);
        assert_eq!(host.call("a__t", "{}").text(), "a:t");
        assert!(host.received_of("a", "initialize").is_empty(), "{code}: it fell back");
        host.finish();
    }
}

#[test]
fn prb3_a_server_that_offers_legacy_dates_only_is_initialized_with_the_newest() {
    for (versions, newest) in [
        (r#"["2025-06-18","2024-11-05"]"#, "2025-06-18"),
        (r#"["2024-11-05","2025-03-26","1999-01-01"]"#, "2025-03-26"),
    ] {
        let mut host =
            Setup::new().server("a", json!({"tool_count": 1, "era": "dual", "versions": versions})).open(Era::Modern);
        host.tools_count(1);
        let opened = host.received_of("a", "initialize").remove(0);
        let params: Value = serde_json::from_str(opened["params"].get()).unwrap();
        assert_eq!(params["protocolVersion"], newest);
        assert_eq!(host.starts("a"), 1);
        host.finish();
    }
}

#[test]
fn d085_a_server_that_dies_of_the_probe_is_started_once_more_and_remembered() {
    let setup = Setup::new();
    let dir = setup.dir().to_owned();
    let mut host = setup
        .server(
            "a",
            json!({"tool_count": 1, "discover": "die", "acts": {"t000": {"do": "exit", "code": 0, "answer": true}}}),
        )
        .open(Era::Legacy);
    host.tools_count(1);
    assert_eq!(host.starts("a"), 2, "one start for the probe, one to stay");
    assert_eq!(host.received_of("a", "server/discover").len(), 1);
    // A new process of the same launch identity is not probed again.
    host.call("a__t000", "{}");
    host.ended("a");
    assert_eq!(host.call("a__t000", "{}").text(), "a:t000");
    assert_eq!(host.received_of("a", "server/discover").len(), 1);
    assert_eq!(host.starts("a"), 3);
    assert!(dir.exists());
    host.finish();
}

#[test]
fn prb8_the_era_is_remembered_across_our_restarts() {
    for scenario in [
        json!({"tool_count": 1, "discover": "die"}),
        json!({"tool_count": 1, "discover": "silent"}),
        json!({"tool_count": 1, "era": "modern"}),
    ] {
        let setup =
            Setup::new().server_with("a", scenario.clone(), "timeouts = { start = \"20s\", probe = \"300ms\" }");
        let starts =
            |setup: &Setup| std::fs::read_to_string(setup.path("a.json.starts")).unwrap_or_default().lines().count();
        let received = |setup: &Setup| std::fs::read_to_string(setup.path("a.json.received")).unwrap_or_default();
        let first = setup.output(&["tools", "--json"]);
        assert_eq!(first.code, Some(0), "{}", first.err);
        let (started, probes) = (starts(&setup), received(&setup).matches("\"server/discover\"").count());
        let second = setup.output(&["tools", "--json"]);
        assert_eq!(second.code, Some(0), "{}", second.err);
        assert_eq!(starts(&setup), started + 1, "{scenario}");
        if scenario.get("discover").is_some() {
            assert_eq!(received(&setup).matches("\"server/discover\"").count(), probes, "{scenario}: probed again");
        } else {
            assert_eq!(received(&setup).matches("\"initialize\"").count(), 0);
        }
    }
}

#[test]
fn prb8_a_remembered_era_that_proves_wrong_is_forgotten() {
    for initialize in ["die", "silent", r#"{"jsonrpc":"2.0","id":@ID@,"result":{}}"#] {
        let setup =
            Setup::new().server_with("a", json!({"tool_count": 1}), "timeouts = { start = \"2s\", probe = \"1s\" }");
        let first = setup.output(&["tools", "--json"]);
        assert_eq!(first.code, Some(0), "{}", first.err);
        // The server is upgraded: it speaks the modern era only, and takes the old word badly.
        setup.scenario("a", json!({"tool_count": 1, "era": "modern", "initialize": initialize}));
        setup.output(&["tools", "--json"]);
        let later = setup.output(&["tools", "--json"]);
        assert_eq!(later.code, Some(0), "{initialize}: {}", later.err);
    }
}

#[test]
fn the_era_can_be_configured() {
    let mut host = Setup::new()
        .server_with("old", json!({"tool_count": 1, "era": "dual"}), "era = \"legacy\"")
        .server_with("new", json!({"tool_count": 1, "era": "dual"}), "era = \"modern\"")
        .open(Era::Legacy);
    host.tools_count(2);
    assert!(host.received_of("old", "server/discover").is_empty());
    assert!(host.received_of("new", "initialize").is_empty());
    host.finish();
}

#[test]
fn prb9_legacy_versions_of_servers() {
    for version in LEGACY {
        let mut host = Setup::new().server("a", json!({"tool_count": 1, "version": version})).open(Era::Legacy);
        host.tools_count(1);
        assert_eq!(host.call("a__t000", "{}").text(), "a:t000", "{version}");
        let opened = host.received_of("a", "initialize").remove(0);
        let params: Value = serde_json::from_str(opened["params"].get()).unwrap();
        assert_eq!(params["protocolVersion"], "2025-11-25");
        host.finish();
    }
    for version in ["1999-01-01", "2026-07-28", "", "latest"] {
        let mut host = Setup::new()
            .server("a", json!({"tool_count": 1, "version": version}))
            .server("b", json!({"tool_count": 1}))
            .open(Era::Legacy);
        assert_eq!(host.tools_until("b", |t| !t.is_empty()), ["b__t000"], "{version:?}");
        host.wait_stderr("\"a\"".trim_matches('"'));
        host.finish();
    }
}

/// VER-10, CAP-2, CAP-4.
#[test]
fn d086_each_host_gets_the_fields_of_its_era() {
    let result = r#"{"content":[{"type":"text","text":"x"}],"structuredContent":{"ttlMs":1,"resultType":"mine"}}"#;
    for (host_era, era) in CELLS {
        let mut host = Setup::new()
            .server("a", json!({"tool_count": 1, "era": era.word(), "act": {"do": "result", "result": result}}))
            .start();
        let opened = host.open(host_era).value();
        host.tools_count(1);
        let list = host.ask("tools/list", "").value();
        let call = host.call("a__t000", "{}").value();
        assert_eq!(call["structuredContent"], json!({"ttlMs": 1, "resultType": "mine"}));
        match host_era {
            Era::Modern => {
                for result in [&opened, &list, &call] {
                    assert_eq!(result["resultType"], "complete", "{result}");
                    assert_eq!(result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "onegate", "{result}");
                }
                for result in [&opened, &list] {
                    assert!(result["ttlMs"].is_u64(), "{result}");
                    assert!(["public", "private"].contains(&result["cacheScope"].as_str().unwrap()), "{result}");
                }
                assert!(call.get("ttlMs").is_none() && call.get("cacheScope").is_none());
                assert_eq!(
                    opened["supportedVersions"],
                    json!(["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"])
                );
                assert!(opened["capabilities"]["tools"].is_object());
                assert!(opened.get("serverInfo").is_none() && opened.get("protocolVersion").is_none());
            }
            Era::Legacy => {
                for result in [&opened, &list, &call] {
                    for key in ["resultType", "ttlMs", "cacheScope"] {
                        assert!(result.get(key).is_none(), "{result}");
                    }
                    assert!(result["_meta"].get("io.modelcontextprotocol/serverInfo").is_none(), "{result}");
                }
                assert_eq!(opened["serverInfo"]["name"], "onegate");
                assert_eq!(opened["capabilities"]["tools"]["listChanged"], true);
            }
        }
        for line in host.received("a") {
            let message: Value = serde_json::from_str(&line).unwrap();
            let meta = &message["params"]["_meta"];
            let keys = meta.get("io.modelcontextprotocol/protocolVersion").is_some()
                && meta.get("io.modelcontextprotocol/clientCapabilities").is_some();
            let request = message.get("id").is_some() && message.get("method").is_some();
            let probe = message["method"] == "server/discover";
            if request {
                assert_eq!(keys, probe || era == Era::Modern, "{line}");
            }
            assert!(!line.contains("test-host"), "{line}");
        }
        host.finish();
    }
}

#[test]
fn ver6_each_revision_is_echoed_and_others_get_the_newest_legacy_one() {
    for version in LEGACY {
        let mut host = Setup::new().start();
        assert_eq!(host.initialize(version).value()["protocolVersion"], version);
        host.finish();
    }
    for version in ["2026-07-28", "2099-01-01", "1.0", "", "garbage", "2025-11-25 ", "DRAFT-2026-v1"] {
        let mut host = Setup::new().start();
        assert_eq!(host.initialize(version).value()["protocolVersion"], "2025-11-25", "{version:?}");
        host.finish();
    }
    for params in [
        "",
        r#","params":{}"#,
        r#","params":null"#,
        r#","params":{"protocolVersion":7,"capabilities":{},"clientInfo":{"name":"x","version":"1"}}"#,
    ] {
        let mut host = Setup::new().start();
        host.send(&format!(r#"{{"jsonrpc":"2.0","id":1,"method":"initialize"{params}}}"#));
        let answer = host.answer("1");
        assert!(answer.raw("result").is_some() || answer.code() == -32602, "{}", answer.line);
        host.finish();
    }
}

#[test]
fn ver3_before_initialize_only_ping_is_answered() {
    let mut host = Setup::new().server("a", json!({"tool_count": 1})).start();
    host.send(r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#);
    assert_eq!(host.answer("\"p\"").result(), "{}");
    for (n, method) in ["tools/list", "tools/call", "server/discover", "no/such", "resources/list"].iter().enumerate() {
        host.send(&format!(r#"{{"jsonrpc":"2.0","id":{n},"method":"{method}","params":{{"name":"a__t000"}}}}"#));
        let answer = host.answer(&n.to_string());
        assert_eq!(answer.code(), -32602, "{method}");
        let message = answer.error()["message"].as_str().unwrap().to_owned();
        assert!(message.contains("initialize") && message.contains("_meta"), "{message}");
    }
    assert!(host.received_of("a", "tools/call").is_empty());
    // The door stays open for both.
    host.era = Era::Modern;
    host.tools_count(1);
    host.initialize("2025-06-18");
    assert_eq!(host.call("a__t000", "{}").text(), "a:t000");
    host.finish();
}

#[test]
fn ver4_d087_modern_requests_without_their_keys_are_refused() {
    let version = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28""#;
    let capabilities = r#""io.modelcontextprotocol/clientCapabilities":{}"#;
    let mut host = Setup::new().server("a", json!({"tool_count": 1})).start();
    let mut n = 0;
    let mut send = |host: &mut crate::host::Host, method: &str, meta: &str| {
        n += 1;
        host.send(&format!(
            r#"{{"jsonrpc":"2.0","id":{n},"method":"{method}","params":{{"name":"a__t000","_meta":{{{meta}}}}}}}"#
        ));
        host.answer(&n.to_string())
    };
    for method in ["tools/list", "tools/call", "server/discover"] {
        let answer = send(&mut host, method, version);
        assert_eq!(answer.code(), -32602, "{method}: {}", answer.line);
        assert!(answer.error()["message"].as_str().unwrap().contains("clientCapabilities"), "{}", answer.line);
        for meta in [
            capabilities.to_owned(),
            format!(r#""io.modelcontextprotocol/protocolVersion":20260728,{capabilities}"#),
            format!(r#""io.modelcontextprotocol/protocolVersion":null,{capabilities}"#),
            format!(r#"{version},"io.modelcontextprotocol/clientCapabilities":null"#),
            format!(r#"{version},"io.modelcontextprotocol/clientCapabilities":[]"#),
            format!(r#"{version},"io.modelcontextprotocol/clientCapabilities":"x""#),
        ] {
            assert_eq!(send(&mut host, method, &meta).code(), -32602, "{method} {meta}");
        }
        // The other keys are optional.
        assert!(send(&mut host, method, &format!("{capabilities},{version}")).raw("result").is_some(), "{method}");
    }
    let calls = host.received_of("a", "tools/call").len();
    assert_eq!(calls, 1, "a malformed request was executed");
    host.finish();
}

#[test]
fn ver5_d087_versions_that_are_not_served() {
    let all = json!(["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]);
    let mut host = Setup::new().server("a", json!({"tool_count": 1})).start();
    for (n, version) in
        ["2099-01-01", "", "2026-07-29", "draft", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]
            .iter()
            .enumerate()
    {
        let meta = MODERN_META.replace("2026-07-28", version);
        host.send(&format!(
            r#"{{"jsonrpc":"2.0","id":{n},"method":"tools/call","params":{{"name":"a__t000","_meta":{{{meta}}}}}}}"#
        ));
        let error = host.answer(&n.to_string()).error();
        assert_eq!(error["code"], -32022, "{version}: {error}");
        assert_eq!(error["data"]["requested"], *version);
        let legacy = LEGACY.contains(version);
        assert_eq!(error["data"]["supported"], if legacy { json!(["2026-07-28"]) } else { all.clone() }, "{version}");
    }
    assert!(host.received_of("a", "tools/call").is_empty());
    host.finish();
}

#[test]
fn methods_that_an_era_does_not_have() {
    let mut host = Setup::new().server("a", json!({"tool_count": 1})).open(Era::Modern);
    for method in [
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "initialize",
        "roots/list",
        "no/such",
        "",
        "tools/List",
        "vendor.example/x",
    ] {
        assert_eq!(host.ask(method, "").code(), -32601, "{method}");
    }
    host.initialize("2025-11-25");
    for method in [
        "server/discover",
        "subscriptions/listen",
        "no/such",
        "sampling/createMessage",
        "tools/List",
        "vendor.example/x",
    ] {
        assert_eq!(host.ask(method, "").code(), -32601, "{method}");
    }
    // Both eras live on one pipe.
    host.era = Era::Modern;
    assert_eq!(host.ask("server/discover", "").value()["resultType"], "complete");
    host.era = Era::Legacy;
    assert_eq!(host.ask("ping", "").result(), "{}");
    host.finish();
}

#[test]
fn d088_input_that_the_host_cannot_give_ends_the_call() {
    let ask = r#"{"jsonrpc":"2.0","id":@ID@,"result":{"resultType":"input_required","inputRequests":{"k":{"method":"elicitation/create","params":{"mode":"form","message":"?","requestedSchema":{"type":"object","properties":{}}}}},"requestState":"s"}}"#;
    let mut host = Setup::new()
        .server("a", json!({"tool_count": 1, "era": "modern", "act": {"do": "lines", "lines": [ask]}}))
        .open(Era::Legacy);
    host.tools_count(1);
    let answer = host.call("a__t000", "{}");
    let failed = answer.raw("error").is_some() || answer.value()["isError"] == true;
    assert!(failed, "{}", answer.line);
    assert!(!answer.line.contains("inputRequests") && !answer.line.contains("requestState"), "{}", answer.line);
    assert!(host.received_of("a", "tools/call").len() <= 1);
    host.finish();
}
