//! Class A: one server's trouble is not another's (D001–D007).

use std::time::{Duration, Instant};

use serde_json::json;

use crate::host::{CELLS, Era, PATIENCE, Setup, until};

/// The longest a list may take while a server is silent: the list deadline of 5 s and some room for a busy machine.
const LIST: Duration = Duration::from_secs(8);

/// INV-9.
#[test]
fn d001_healthy_servers_are_listed_beside_dead_ones() {
    for era in Era::ALL {
        let mut host = Setup::new()
            .server("a", json!({"tool_count": 1}))
            .server("dead", json!({"exit_at_start": 1, "tool_count": 1}))
            .raw("[servers.missing]\ncommand = \"/nonexistent/program\"\n")
            .raw("[servers.nofile]\ncommand = \"no-such-command-anywhere\"\nargs = [\"x\"]\n")
            .server("z", json!({"tool_count": 1, "era": "modern"}))
            .open(era);
        let begun = Instant::now();
        host.tools_until("both healthy servers", |tools| tools == ["a__t000", "z__t000"]);
        assert!(begun.elapsed() < LIST, "{:?}", begun.elapsed());
        assert_eq!(host.call("a__t000", "{}").text(), "a:t000");
        assert_eq!(host.call("z__t000", "{}").text(), "z:t000");
        for key in ["dead", "missing", "nofile"] {
            host.wait_stderr(key);
        }
        host.finish();
    }
}

/// LST-1.
#[test]
fn d002_a_silent_server_delays_the_first_list_at_most() {
    for (era, silent) in [
        (Era::Legacy, json!({"list": "silent"})),
        (Era::Modern, json!({"list": "silent", "era": "modern"})),
        (Era::Legacy, json!({"deaf": true})),
        (Era::Modern, json!({"discover": "silent", "initialize": "silent"})),
    ] {
        let mut host = Setup::new().server("fast", json!({"tool_count": 3})).server("silent", silent).open(era);
        let begun = Instant::now();
        assert_eq!(host.tools().len(), 3);
        assert!(begun.elapsed() < LIST, "the first list took {:?}", begun.elapsed());
        let begun = Instant::now();
        for _ in 0..4 {
            assert_eq!(host.tools().len(), 3);
        }
        assert!(begun.elapsed() < Duration::from_secs(2), "later lists wait again: {:?}", begun.elapsed());
        assert_eq!(host.call("fast__t001", "{}").text(), "fast:t001");
        host.finish();
    }
}

#[test]
fn d002_a_late_server_is_announced() {
    let setup = Setup::new();
    let gate = setup.path("gate");
    let mut host = setup
        .server("fast", json!({"tool_count": 1}))
        .server("late", json!({"tool_count": 1, "start_gate": gate}))
        .open(Era::Legacy);
    assert_eq!(host.tools(), ["fast__t000"]);
    // What was told before is about the first server.
    host.drained();
    std::fs::write(gate, "").unwrap();
    host.note("notifications/tools/list_changed");
    assert_eq!(host.tools(), ["fast__t000", "late__t000"]);
    host.finish();
}

#[test]
fn con8_opening_never_waits_for_servers() {
    for era in Era::ALL {
        let begun = Instant::now();
        let mut host = Setup::new().server("deaf", json!({"deaf": true})).open(era);
        assert!(begun.elapsed() < Duration::from_secs(3), "opening took {:?}", begun.elapsed());
        if era == Era::Legacy {
            assert_eq!(host.ask("ping", "").result(), "{}");
        }
        host.finish();
    }
}

#[test]
fn d003_a_list_error_is_no_answer_to_the_host() {
    for (host_era, era) in CELLS {
        for code in [-32603, -32601, -32000, 17] {
            let list = format!(
                r#"{{"jsonrpc":"2.0","id":@ID@,"error":{{"code":{code},"message":"FOREIGN","data":{{"x":1}}}}}}"#
            );
            let mut host = Setup::new()
                .server("bad", json!({"list": list, "era": era.word()}))
                .server("good", json!({"tool_count": 2, "era": era.word()}))
                .open(host_era);
            let answer = host.ask("tools/list", "");
            assert!(!answer.line.contains("FOREIGN"), "{}", answer.line);
            assert_eq!(answer.value()["tools"].as_array().unwrap().len(), 2);
            host.finish();
        }
    }
}

#[test]
fn d003_the_last_good_list_stays() {
    let more = r#"{"name":"more","inputSchema":{"type":"object"}}"#;
    for list in [
        r#"{"jsonrpc":"2.0","id":@ID@,"error":{"code":-32603,"message":"FOREIGN"}}"#,
        r#"{"jsonrpc":"2.0","id":@ID@,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":@ID@,"result":{"tools":null}}"#,
        r#"{"jsonrpc":"2.0","id":@ID@,"result":{"tools":"none"}}"#,
        r#"{"jsonrpc":"2.0","id":@ID@,"result":null}"#,
    ] {
        let mut host = Setup::new()
            .server("a", json!({"tool_count": 2, "lists_ok": 1, "list": list, "act": {"do": "change", "tool": more}}))
            .open(Era::Legacy);
        host.tools_count(2);
        host.call("a__t000", "{}");
        until("the list was fetched again", PATIENCE, || host.received_of("a", "tools/list").len() >= 2);
        assert_eq!(host.tools(), ["a__t000", "a__t001"], "{list}");
        assert_eq!(host.call("a__t001", "{}").text(), "a:t001");
        host.finish();
    }
}

#[test]
fn d004_a_slow_start_is_left_alone_within_its_deadline() {
    let setup = Setup::new();
    let gate = setup.path("gate");
    let mut host = setup
        .server("fast", json!({"tool_count": 1}))
        .server(
            "slow",
            json!({"tool_count": 1, "stderr_at_start": "downloading 1%\ndownloading 2%\n", "start_gate": gate}),
        )
        .open(Era::Modern);
    for _ in 0..3 {
        assert_eq!(host.tools(), ["fast__t000"]);
    }
    assert_eq!(host.call("fast__t000", "{}").text(), "fast:t000");
    assert_eq!(host.starts("slow"), 1);
    std::fs::write(&gate, "").unwrap();
    host.tools_until("the slow server's tool", |tools| tools.len() == 2);
    assert_eq!(host.call("slow__t000", "{}").text(), "slow:t000");
    assert_eq!(host.starts("slow"), 1, "it was started again meanwhile");
    host.finish();
}

#[test]
fn d004_a_start_beyond_its_deadline_is_ended_and_tried_again() {
    let mut host = Setup::new()
        .server("fast", json!({"tool_count": 1}))
        .server_with(
            "stuck",
            json!({"deaf": true, "stderr_at_start": "downloading\n"}),
            "timeouts = { start = \"400ms\", probe = \"200ms\" }",
        )
        .open(Era::Legacy);
    let end = Instant::now() + PATIENCE;
    while host.starts("stuck") < 2 {
        assert!(Instant::now() < end, "not started again\n{}", host.stderr());
        assert_eq!(host.tools(), ["fast__t000"]);
    }
    host.wait_stderr("stuck");
    until("the ended ones are gone", PATIENCE, || {
        host.processes().iter().filter(|(_, line)| line.contains("stuck.json")).count() <= 1
    });
    host.finish();
}

#[test]
fn d005_a_server_that_comes_later_and_again_is_found() {
    let setup = Setup::new();
    let there = setup.path("there");
    let mut host = setup
        .server(
            "a",
            json!({"tool_count": 1, "exit_unless": there, "acts": {"t000": {"do": "exit", "code": 0, "answer": true}}}),
        )
        .server("b", json!({"tool_count": 1}))
        .open(Era::Legacy);
    assert_eq!(host.tools(), ["b__t000"]);
    std::fs::write(&there, "").unwrap();
    host.tools_until("the server that came", |tools| tools.len() == 2);
    assert_eq!(host.call("a__t000", "{}").text(), "a:t000");
    let starts = host.starts("a");
    host.ended("a");
    assert_eq!(host.call("a__t000", "{}").text(), "a:t000");
    assert!(host.starts("a") > starts);
    host.finish();
}

#[test]
fn d006_a_timeout_fails_that_call_only_and_cancels_it() {
    for (host_era, era) in CELLS {
        let mut host = Setup::new()
            .server_with(
                "a",
                json!({"tool_count": 2, "era": era.word(), "acts": {"t000": {"do": "never"}}}),
                "timeouts = { start = \"20s\", probe = \"10s\", call = \"400ms\" }",
            )
            .open(host_era);
        host.tools_count(2);
        let answer = host.call("a__t000", "{}");
        assert_eq!((answer.code(), answer.reason().as_str()), (-32603, "downstream-timeout"), "{}", answer.line);
        assert_eq!(answer.error()["data"]["server"], "a");
        until("the call was cancelled", PATIENCE, || !host.received_of("a", "notifications/cancelled").is_empty());
        let call = host.received_of("a", "tools/call").remove(0);
        let cancel = host.received_of("a", "notifications/cancelled").remove(0);
        let params: serde_json::Value = serde_json::from_str(cancel["params"].get()).unwrap();
        assert_eq!(params["requestId"].to_string(), call["id"].get());
        assert_eq!(host.call("a__t001", "{}").text(), "a:t001");
        assert_eq!(host.tools().len(), 2);
        assert_eq!(host.starts("a"), 1, "the connection was given up");
        host.finish();
    }
}

#[test]
fn d006_progress_keeps_a_call_alive_and_call_max_ends_it() {
    let tick = |n: u32| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":@TOKEN@,"progress":{n}}}}}"#
        )
    };
    let mut host = Setup::new()
        .server_with(
            "a",
            json!({"tool_count": 1, "act": {"do": "lines", "lines": [tick(1), tick(2)]}}),
            "timeouts = { start = \"20s\", probe = \"10s\", call = \"300ms\", call_max = \"900ms\" }",
        )
        .open(Era::Legacy);
    host.tools_count(1);
    let id = host.post_meta("tools/call", r#""name":"a__t000""#, r#""progressToken":"p""#);
    assert_eq!(host.answer(&id).reason(), "downstream-timeout");
    host.finish();
}

#[test]
fn d007_a_server_that_is_gone_is_named_and_no_empty_success() {
    for era in Era::ALL {
        let setup = Setup::new();
        let there = setup.path("there");
        std::fs::write(&there, "").unwrap();
        let mut host = setup
            .server_with(
                "gone",
                json!({"tool_count": 2, "exit_unless": there, "exit_after": 1}),
                "timeouts = { start = \"2s\", probe = \"1s\", call = \"5s\" }",
            )
            .server("other", json!({"tool_count": 1}))
            .open(era);
        host.tools_count(3);
        std::fs::remove_file(&there).unwrap();
        assert_eq!(host.call("gone__t000", "{}").text(), "gone:t000");
        host.ended("gone");
        for _ in 0..2 {
            let answer = host.call("gone__t001", "{}");
            assert_eq!(answer.code(), -32603, "{}", answer.line);
            assert_eq!(answer.error()["data"]["server"], "gone");
            assert_eq!(answer.reason(), "downstream-unavailable");
            assert!(answer.error()["message"].as_str().unwrap().contains("gone"));
            // I-42: not where it lies on this machine.
            let of_machine = [host.path("").display().to_string(), "fake-server".to_owned()];
            assert!(!of_machine.iter().any(|detail| answer.line.contains(detail)), "{}", answer.line);
        }
        assert!(host.tools().contains(&"other__t000".to_owned()));
        assert_eq!(host.call("other__t000", "{}").text(), "other:t000");
        host.finish();
    }
}

/// SEC-5, SEC-6, T-07: what a host says adds no server and starts no program; STD-5: each start is told, without the
/// arguments, which may hold secrets.
#[test]
fn sec5_sec6_std5_a_host_starts_nothing_but_what_the_configuration_says() {
    for era in [Era::Legacy, Era::Modern] {
        let mut host = Setup::new().server("a", json!({"tool_count": 1})).open(era);
        host.tools_count(1);
        let mark = host.path("mark");
        let launch = json!({"command": "/bin/touch", "args": [&mark], "url": "http://127.0.0.1:9/"});
        for (method, params) in [
            ("servers/add", json!({"name": "b", "server": &launch})),
            ("config/set", json!({"servers": {"b": &launch}})),
            ("onegate/approve", json!({"server": "a"})),
            ("tools/call", json!({"name": "a__t000", "arguments": &launch, "command": "/bin/touch"})),
            ("tools/call", json!({"name": "onegate__add_server", "arguments": &launch})),
            ("resources/read", json!({"uri": format!("file://{}", mark.display())})),
        ] {
            let params = params.to_string();
            let members = &params[1..params.len() - 1];
            let id = host.post(method, members);
            host.answer(&id);
        }
        host.tools_count(1);
        assert!(!mark.exists() && host.starts("a") == 1, "{era:?}");
        let said = host.last_words();
        let starts: Vec<_> = said.lines().filter(|line| line.contains(" started ")).collect();
        assert!(starts.len() == 1 && starts[0].contains("server=a") && !starts[0].contains("a.json"), "{said}");
    }
}
