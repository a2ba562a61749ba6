//! Classes G and H for tools: ids, batches, concurrency, cancellation, progress, changes, questions from servers
//! (D055, D058–D060, D062–D064, D066).
//!
//! Long, and one thing: each test is a way in which an answer finds its request.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::host::{CELLS, Era, Host, MODERN_META, PATIENCE, Setup, until};

/// Ids in every spelling that is legal.
fn ids() -> Vec<String> {
    let mut ids: Vec<String> = [
        "1001",
        "\"1001\"",
        "0",
        "-7",
        "\"\"",
        "\" \"",
        "\"init-1\"",
        "\"6f1c0c1e-8a35-4d83-9d3a-0a0b0c0d0e0f\"",
        "9007199254740993",
        "18446744073709551615",
        "-9223372036854775808",
        // No server may send these; a host that does gets them back.
        "1.0",
        "-2.5e3",
        "\"\\u00e9\"",
        "\"é\"",
        "\"a\\/b\"",
        "\"a/b\"",
        "\"\\\"q\\\"\"",
        "\"null\"",
        "\"\\ud83e\\udd80\"",
    ]
    .iter()
    .map(|id| (*id).to_owned())
    .collect();
    ids.push(format!("\"{}\"", "x".repeat(200)));
    ids
}

#[test]
fn d055_ids_come_back_with_type_and_spelling() {
    for (host_era, era) in CELLS {
        let mut host = Setup::new()
            .server("a", json!({"tool_count": 2, "era": era.word(), "acts": {"t001": {"do": "error", "error": r#"{"code":5,"message":"m"}"#}}}))
            .open(host_era);
        host.tools_count(2);
        for id in ids() {
            for (method, members, fine) in [
                ("tools/list", "", true),
                ("tools/call", r#""name":"a__t000""#, true),
                ("tools/call", r#""name":"a__t001""#, false),
                ("tools/call", r#""name":"unknown""#, false),
                ("no/such", "", false),
            ] {
                host.post_as(&id, method, members, "");
                let answer = host.answer(&id);
                assert_eq!(answer.raw("result").is_some(), fine, "{id} {method}: {}", answer.line);
            }
        }
        // Nothing of the host's ids goes down.
        assert!(host.received("a").iter().all(|l| !l.contains("init-1") && !l.contains("9007199254740993")));
        host.finish();
    }
}

#[test]
fn d055_many_ids_at_once() {
    let mut host = Setup::new()
        .server("a", json!({"tool_count": 1, "shuffle_ms": 60, "act": {"do": "arguments"}}))
        .open(Era::Legacy);
    host.tools_count(1);
    let ids = ids();
    for (n, id) in ids.iter().enumerate() {
        host.post_as(id, "tools/call", &format!(r#""name":"a__t000","arguments":{{"n":{n}}}"#), "");
    }
    for (n, id) in ids.iter().enumerate() {
        assert_eq!(host.answer(id).value()["structuredContent"]["n"], n, "{id}");
    }
    host.finish();
}

#[test]
fn env3_a_duplicate_outstanding_id_is_refused() {
    for era in Era::ALL {
        for id in ["77", "\"77\""] {
            let setup = Setup::new();
            let gate = setup.path("gate");
            let mut host =
                setup.server("a", json!({"tool_count": 2, "acts": {"t000": {"do": "gate", "gate": gate}}})).open(era);
            host.tools_count(2);
            host.post_as(id, "tools/call", r#""name":"a__t000""#, "");
            until("it has arrived", PATIENCE, || host.received_of("a", "tools/call").len() == 1);
            host.post_as(id, "tools/call", r#""name":"a__t001""#, "");
            assert_eq!(host.answer(id).code(), -32600);
            assert_eq!(host.received_of("a", "tools/call").len(), 1, "the second was executed");
            // The other type is another id.
            let other = if id.starts_with('"') { "77" } else { "\"77\"" };
            host.post_as(other, "tools/call", r#""name":"a__t001""#, "");
            assert_eq!(host.answer(other).text(), "a:t001");
            std::fs::write(&gate, "").unwrap();
            assert_eq!(host.answer(id).text(), "a:t000");
            // Answered ids are free again.
            host.post_as(id, "tools/call", r#""name":"a__t001""#, "");
            assert_eq!(host.answer(id).text(), "a:t001");
            host.finish();
        }
    }
}

fn batch_setup() -> Setup {
    let tools: Vec<String> =
        ["ok", "denied"].iter().map(|n| format!(r#"{{"name":"{n}","inputSchema":{{"type":"object"}}}}"#)).collect();
    Setup::new().server_with("a", json!({"tools": tools}), "tools = { deny = [\"denied\"] }")
}

const BATCH: &str = r#"[{"jsonrpc":"2.0","id":"b1","method":"tools/call","params":{"name":"a__ok"}},{"jsonrpc":"2.0","id":"b2","method":"tools/call","params":{"name":"a__denied"}},{"jsonrpc":"2.0","method":"notifications/vendor"},{"jsonrpc":"2.0","id":3,"method":"ping"}]"#;

/// The next line that is an array. The host's reader takes objects only, so this uses raw lines.
fn array(host: &mut Host) -> Vec<Value> {
    let line = host.raw_line(PATIENCE).expect("an answer");
    let value: Value = serde_json::from_str(&line).unwrap();
    value.as_array().unwrap_or_else(|| panic!("no array: {line}")).clone()
}

/// ENV-10.
#[test]
fn d058_env9_batches_run_in_a_2025_03_26_session() {
    let mut host = batch_setup().start();
    host.initialize("2025-03-26");
    host.tools_count(1);
    host.send(BATCH);
    let answers = array(&mut host);
    assert_eq!(answers.len(), 3, "{answers:?}");
    let of = |id: Value| answers.iter().find(|a| a["id"] == id).unwrap_or_else(|| panic!("no {id}: {answers:?}"));
    assert_eq!(of(json!("b1"))["result"]["content"][0]["text"], "a:ok");
    assert_eq!(of(json!("b2"))["error"]["code"], -32602);
    assert_eq!(of(json!(3))["result"], json!({}));
    // Parts that are no messages get an error each; notifications and answers get nothing.
    host.send(
        r#"[1,{"jsonrpc":"2.0","id":4,"method":"ping"},{"jsonrpc":"2.0","id":5,"method":"initialize","params":{}}]"#,
    );
    let answers = array(&mut host);
    assert!(answers.iter().any(|a| a["id"] == 4 && a["result"] == json!({})), "{answers:?}");
    assert!(answers.iter().any(|a| a["id"] == 5 && a["error"]["code"] == -32600), "{answers:?}");
    host.send(r#"[{"jsonrpc":"2.0","method":"notifications/vendor"},{"jsonrpc":"2.0","id":"x","result":{}}]"#);
    assert_eq!(host.ask("ping", "").result(), "{}", "nothing but this is answered");
    // ENV-4: there is no id to answer to, and this revision has no error without one.
    host.send("[]");
    assert_eq!(host.ask("ping", "").result(), "{}", "nothing but this is answered");
    assert!(host.received_of("a", "tools/call").iter().all(|c| !c["params"].get().contains("denied")));
    host.finish();
}

#[test]
fn d058_env9_batches_are_refused_elsewhere() {
    for open in [Some("2024-11-05"), Some("2025-06-18"), Some("2025-11-25"), None] {
        let mut host = batch_setup().start();
        match open {
            Some(version) => drop(host.initialize(version)),
            None => drop(host.open(Era::Modern)),
        }
        host.tools_count(1);
        for batch in [BATCH, "[]", "[1]", r#"[{"jsonrpc":"2.0","method":"notifications/vendor"}]"#] {
            host.send(batch);
            // ENV-4: an older host takes no error without an id, so each request in the array gets one.
            let ids = match open {
                Some("2024-11-05" | "2025-06-18") if batch == BATCH => vec![Some("\"b1\""), Some("\"b2\""), Some("3")],
                Some("2024-11-05" | "2025-06-18") => Vec::new(),
                _ => vec![None],
            };
            for id in ids {
                let answer = host.next(PATIENCE).unwrap();
                assert_eq!((answer.code(), answer.raw("id")), (-32600, id), "{open:?} {batch}: {}", answer.line);
            }
        }
        host.tools();
        assert!(host.received_of("a", "tools/call").is_empty(), "{open:?}: a call of a refused batch ran");
        host.finish();
    }
}

#[test]
fn d059_a_slow_call_blocks_nothing() {
    for (host_era, era) in CELLS {
        let setup = Setup::new();
        let gate = setup.path("gate");
        let slow = json!({"do": "gate", "gate": gate});
        let mut host = setup
            .server("a", json!({"tool_count": 2, "era": era.word(), "acts": {"t000": slow}}))
            .server("b", json!({"tool_count": 2}))
            .open(host_era);
        host.tools_count(4);
        let waiting: Vec<String> = (0..5).map(|_| host.post_call("a__t000", "{}")).collect();
        let begun = Instant::now();
        for _ in 0..10 {
            assert_eq!(host.call("a__t001", "{}").text(), "a:t001");
            assert_eq!(host.call("b__t001", "{}").text(), "b:t001");
        }
        assert_eq!(host.tools().len(), 4);
        if host_era == Era::Legacy {
            assert_eq!(host.ask("ping", "").result(), "{}");
        }
        assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
        std::fs::write(&gate, "").unwrap();
        for id in waiting {
            assert_eq!(host.answer(&id).text(), "a:t000");
        }
        host.finish();
    }
}

#[test]
fn env9_a_server_of_the_2025_03_26_revision_may_answer_in_arrays() {
    let progress =
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":@TOKEN@,"progress":1}}"#;
    let answer = r#"{"jsonrpc":"2.0","id":@ID@,"result":{"content":[{"type":"text","text":"ok"}]}}"#;
    let act = json!({"do": "lines", "lines": [format!("[{progress},[{answer}],7,{answer}]")]});
    let mut host =
        Setup::new().server("a", json!({"tool_count": 1, "version": "2025-03-26", "act": act})).open(Era::Legacy);
    host.tools_count(1);
    let id = host.post_meta("tools/call", r#""name":"a__t000""#, r#""progressToken":"p""#);
    assert_eq!(host.note("notifications/progress").params()["progressToken"], "p");
    assert_eq!(host.answer(&id).text(), "ok");
    host.finish();
}

#[test]
fn env2_the_id_of_a_cancelled_call_is_free_at_once() {
    for (host_era, era) in CELLS {
        let never = json!({"tool_count": 2, "era": era.word(), "acts": {"t000": {"do": "never"}}});
        let mut host = Setup::new().server("a", never).open(host_era);
        host.tools_count(2);
        let meta = if host_era == Era::Modern { format!(r#","_meta":{{{MODERN_META}}}"#) } else { String::new() };
        let call = |tool: &str| {
            format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"a__{tool}"{meta}}}}}"#)
        };
        let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#;
        // In one write, so that nothing can happen between them.
        host.send(&format!("{}\n{cancel}\n{}", call("t000"), call("t001")));
        assert_eq!(host.answer("7").text(), "a:t001");
        host.finish();
    }
}

#[test]
fn d064_a_cancel_reaches_the_right_server_with_its_own_id() {
    for (host_era, era) in CELLS {
        let never = json!({"tool_count": 2, "era": era.word(), "acts": {"t000": {"do": "never"}}});
        let mut host = Setup::new().server("a", never.clone()).server("b", never).open(host_era);
        host.tools_count(4);
        for id in ["\"c-1\"", "501"] {
            let (before_a, before_b) = (
                host.received_of("a", "notifications/cancelled").len(),
                host.received_of("b", "notifications/cancelled").len(),
            );
            host.post_as(id, "tools/call", &format!(r#""name":"b__t000","arguments":{{"mark":{id}}}"#), "");
            let kept = host.post_call("a__t000", "{}");
            until("both have arrived", PATIENCE, || {
                host.received("b").iter().any(|l| l.contains(&format!(r#"{{"mark":{id}}}"#)))
                    && host.received_of("a", "tools/call").len() > before_a
            });
            // The other type, an unknown id and broken cancels do nothing.
            let other = if id.starts_with('"') { id.trim_matches('"').to_owned() } else { format!("\"{id}\"") };
            for nothing in [other.as_str(), "99999", "null", "[1]", "{}"] {
                host.send(&format!(
                    r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{nothing}}}}}"#
                ));
            }
            host.send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#);
            host.send(&format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id},"reason":"user said no"}}}}"#));
            until("the cancel has arrived", PATIENCE, || {
                host.received_of("b", "notifications/cancelled").len() > before_b
            });
            let calls = host.received_of("b", "tools/call");
            let call = calls.iter().find(|c| c["params"].get().contains(&format!(r#"{{"mark":{id}}}"#))).unwrap();
            let cancels = host.received_of("b", "notifications/cancelled");
            assert_eq!(cancels.len(), before_b + 1, "{cancels:?}");
            let cancel: Value = serde_json::from_str(cancels.last().unwrap()["params"].get()).unwrap();
            assert_eq!(cancel["requestId"].to_string(), call["id"].get());
            assert_eq!(cancel["reason"], "user said no");
            assert_eq!(host.received_of("a", "notifications/cancelled").len(), before_a, "the other server was told");
            assert_eq!(host.call("b__t001", "{}").text(), "b:t001");
            let rest = host.drained();
            assert!(rest.iter().all(|m| m.raw("id").is_none()), "a cancelled call was answered: {rest:?}");
            host.send(&format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{kept}}}}}"#
            ));
            until("the other cancel", PATIENCE, || host.received_of("a", "notifications/cancelled").len() > before_a);
        }
        assert_eq!((host.starts("a"), host.starts("b")), (1, 1));
        host.finish();
    }
}

#[test]
fn can2_a_late_answer_of_a_cancelled_call_is_dropped() {
    for era in Era::ALL {
        let setup = Setup::new();
        let gate = setup.path("gate");
        let mut host =
            setup.server("a", json!({"tool_count": 2, "acts": {"t000": {"do": "gate", "gate": gate}}})).open(era);
        host.tools_count(2);
        let id = host.post_call("a__t000", "{}");
        until("it has arrived", PATIENCE, || host.received_of("a", "tools/call").len() == 1);
        host.send(&format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#));
        until("the cancel has arrived", PATIENCE, || !host.received_of("a", "notifications/cancelled").is_empty());
        std::fs::write(&gate, "").unwrap();
        for _ in 0..3 {
            assert_eq!(host.call("a__t001", "{}").text(), "a:t001");
        }
        let rest = host.drained();
        assert!(rest.iter().all(|m| m.raw("id").is_none()), "{rest:?}");
        host.finish();
    }
}

fn progress(token: &str, value: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":{value},"total":10,"message":"m","vendor":1.0}}}}"#
    )
}

fn result_line(era: Era) -> String {
    let shape = if era == Era::Modern { r#""resultType":"complete","# } else { "" };
    format!(r#"{{"jsonrpc":"2.0","id":@ID@,"result":{{{shape}"content":[{{"type":"text","text":"done"}}]}}}}"#)
}

#[test]
fn d062_progress_keeps_the_hosts_token_and_its_type() {
    for (host_era, era) in CELLS {
        let mut lines: Vec<String> = (1..=10).map(|n| progress("@TOKEN@", &n.to_string())).collect();
        lines.push(result_line(era));
        let mut host = Setup::new()
            .server("a", json!({"tool_count": 1, "era": era.word(), "act": {"do": "lines", "lines": lines}}))
            .open(host_era);
        host.tools_count(1);
        for token in ["\"tok\"", "5", "\"5\"", "9007199254740993", "\"\""] {
            let id = host.post_meta("tools/call", r#""name":"a__t000""#, &format!("\"progressToken\":{token}"));
            let mut seen = Vec::new();
            loop {
                let message = host.next(PATIENCE).expect("progress or the answer");
                match message.method().as_deref() {
                    None => {
                        assert_eq!(message.raw("id"), Some(id.as_str()));
                        break;
                    }
                    Some("notifications/progress") => {
                        assert!(message.line.contains(&format!("\"progressToken\":{token}")), "{}", message.line);
                        let params = message.params();
                        assert_eq!((&params["total"], &params["message"]), (&json!(10), &json!("m")));
                        seen.push(params["progress"].as_u64().unwrap());
                    }
                    Some("notifications/tools/list_changed") => {}
                    Some(other) => panic!("{other}"),
                }
            }
            // Some may be left out when they come fast (PRG-5); the last one never.
            assert!(seen.is_sorted_by(|a, b| a < b), "{seen:?}");
            assert_eq!(seen.last(), Some(&10), "{seen:?}");
        }
        // Own tokens go down, one for each call.
        let mut own: Vec<String> = host
            .received_of("a", "tools/call")
            .iter()
            .map(|c| serde_json::from_str::<Value>(c["params"].get()).unwrap()["_meta"]["progressToken"].to_string())
            .collect();
        own.sort();
        own.dedup();
        assert_eq!(own.len(), 5, "{own:?}");
        host.finish();
    }
}

#[test]
fn d063_progress_that_nobody_asked_for_is_dropped() {
    for (host_era, era) in CELLS {
        let lines = [
            progress("\"invented\"", "1"),
            progress("123456", "1"),
            progress("null", "1"),
            progress("{}", "1"),
            r#"{"jsonrpc":"2.0","method":"notifications/progress"}"#.to_owned(),
            progress("@TOKEN@", "2"),
            progress("@TOKEN@", "2"),
            progress("@TOKEN@", "1"),
            progress("@TOKEN@", "\"3\""),
            result_line(era),
            progress("@TOKEN@", "9"),
        ];
        let mut host = Setup::new()
            .server("a", json!({"tool_count": 2, "era": era.word(), "acts": {"t000": {"do": "lines", "lines": lines}}}))
            .open(host_era);
        host.tools_count(2);
        let with = host.post_meta("tools/call", r#""name":"a__t000""#, r#""progressToken":"mine""#);
        assert_eq!(host.answer(&with).text(), "done");
        let without = host.post_call("a__t000", "{}");
        assert_eq!(host.answer(&without).text(), "done");
        assert_eq!(host.call("a__t001", "{}").text(), "a:t001");
        let notes: Vec<Value> = host
            .drained()
            .iter()
            .filter(|m| m.method().as_deref() == Some("notifications/progress"))
            .map(|m| m.params())
            .collect();
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert_eq!((&notes[0]["progressToken"], &notes[0]["progress"]), (&json!("mine"), &json!(2)));
        host.finish();
    }
}

#[test]
fn d060_a_change_is_listed_before_it_is_told() {
    let more = r#"{"name":"more","description":"d","inputSchema":{"type":"object"}}"#;
    for (host_era, era) in CELLS {
        let mut host = Setup::new()
            .server("a", json!({"tool_count": 1, "era": era.word(), "act": {"do": "change", "tool": more}}))
            .server("b", json!({"tool_count": 1}))
            .open(host_era);
        if host_era == Era::Modern {
            host.post_as("\"listen\"", "subscriptions/listen", r#""notifications":{"toolsListChanged":true}"#, "");
            let ack = host.note("notifications/subscriptions/acknowledged");
            assert_eq!(ack.params()["_meta"]["io.modelcontextprotocol/subscriptionId"], "listen");
            assert_eq!(ack.params()["notifications"]["toolsListChanged"], true);
        }
        host.tools_count(2);
        host.call("a__t000", "{}");
        // Earlier changes (servers that came up) may have been told as well: what counts is that after some
        // change that is told, the list has the tool.
        loop {
            let note = host.note("notifications/tools/list_changed");
            if host_era == Era::Modern {
                assert_eq!(note.params()["_meta"]["io.modelcontextprotocol/subscriptionId"], "listen");
            }
            if host.tools().contains(&"a__more".to_owned()) {
                break;
            }
        }
        assert_eq!(host.call("a__more", "{}").raw("error"), None);
        host.finish();
    }
}

#[test]
fn sub2_modern_hosts_that_do_not_listen_are_told_nothing() {
    let more = r#"{"name":"more","inputSchema":{"type":"object"}}"#;
    let mut host =
        Setup::new().server("a", json!({"tool_count": 1, "act": {"do": "change", "tool": more}})).open(Era::Modern);
    host.tools_count(1);
    host.call("a__t000", "{}");
    host.tools_until("the new tool", |tools| tools.len() == 2);
    let rest = host.drained();
    assert!(rest.is_empty(), "{rest:?}");
    host.finish();
}

#[test]
fn sub1_a_storm_of_changes_is_told_a_few_times() {
    let storm: Vec<String> = (0..2000)
        .map(|_| r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#.to_owned())
        .chain([result_line(Era::Legacy)])
        .collect();
    let mut host =
        Setup::new().server("a", json!({"tool_count": 1, "act": {"do": "lines", "lines": storm}})).open(Era::Legacy);
    host.tools_count(1);
    let before = host.drained().len();
    assert_eq!(before, 0);
    assert_eq!(host.call("a__t000", "{}").text(), "done");
    assert_eq!(host.tools().len(), 1);
    let lists = host.received_of("a", "tools/list").len();
    assert!(lists < 20, "listed {lists} times");
    // The list is the same: nothing to tell.
    let told =
        host.drained().iter().filter(|m| m.method().as_deref() == Some("notifications/tools/list_changed")).count();
    assert_eq!(told, 0);
    host.finish();
}

#[test]
fn d066_questions_that_the_host_cannot_answer_get_an_error() {
    for host_era in Era::ALL {
        for (method, params) in [
            ("roots/list", None),
            ("sampling/createMessage", Some(r#"{"messages":[],"maxTokens":1}"#)),
            ("elicitation/create", Some(r#"{"message":"?","requestedSchema":{"type":"object","properties":{}}}"#)),
            ("vendor/unknown", None),
        ] {
            let mut host = Setup::new()
                .server("a", json!({"tool_count": 1, "act": {"do": "ask", "method": method, "params": params}}))
                .open(host_era);
            host.tools_count(1);
            let text = host.call("a__t000", "{}").text();
            let answer: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{method}: {text}"));
            assert!(answer["error"]["code"].is_i64(), "{method}: {text}");
            assert!(host.drained().iter().all(|m| m.raw("id").is_none()), "{method} reached the host");
            // What the host cannot do was not declared either.
            let opened = host.received_of("a", "initialize").remove(0);
            let opened: Value = serde_json::from_str(opened["params"].get()).unwrap();
            assert_eq!(opened["capabilities"], json!({}));
            host.finish();
        }
    }
}

#[test]
fn pings_of_servers_are_answered() {
    let mut host = Setup::new()
        .server("a", json!({
            "tool_count": 1, "act": {"do": "ask", "method": "ping"},
            "after_open": [r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, r#"{"jsonrpc":"2.0","id":"1","method":"ping"}"#],
        }))
        .open(Era::Legacy);
    host.tools_count(1);
    let answer: Value = serde_json::from_str(&host.call("a__t000", "{}").text()).unwrap();
    assert_eq!(answer["result"], json!({}));
    for id in ["1", "\"1\""] {
        until("both pings are answered", PATIENCE, || {
            host.received("a").iter().any(|l| l.contains(&format!("\"id\":{id}")) && l.contains("\"result\":{}"))
        });
    }
    host.finish();
}
