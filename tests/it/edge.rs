//! The host's own lines when they are no good: the right error where an id can be read, silence where none is due,
//! and the next request is served (ENV-1, ENV-4, ENV-7, E-23).

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::host::{Era, MODERN_META, PATIENCE, Setup, until};

/// A bad line, the code of its error, and the id it must carry; `None` = `null` or none at all.
fn bad_lines() -> Vec<(String, i64, Option<&'static str>)> {
    let mut lines: Vec<(String, i64, Option<&'static str>)> = [
        ("{", -32700, None),
        ("hello", -32700, None),
        ("}{", -32700, None),
        (r#"{"jsonrpc":"2.0","id":5,"method":"ping""#, -32700, Some("5")),
        (r#"{"jsonrpc":"2.0","id":"x","method":"ping",}"#, -32700, Some("\"x\"")),
        (r#"{"jsonrpc":"2.0","id":6,"method":"ping"} trailing"#, -32700, Some("6")),
        (r#"{"jsonrpc":"2.0","id":7,"method":"ping","params":{"a":01}}"#, -32700, Some("7")),
        (r#"{"jsonrpc":"2.0","id":8,"method":"ping","params":{"a":NaN}}"#, -32700, Some("8")),
        ("{'jsonrpc':'2.0','id':9,'method':'ping'}", -32700, None),
        (r#"{"jsonrpc":"2.0","id":10,"method":"ping"}{"jsonrpc":"2.0","id":11,"method":"ping"}"#, -32700, Some("10")),
        ("7", -32600, None),
        ("null", -32600, None),
        ("\"text\"", -32600, None),
        ("true", -32600, None),
        ("{}", -32600, None),
        (r#"{"jsonrpc":"2.0"}"#, -32600, None),
        (r#"{"jsonrpc":"2.0","id":12}"#, -32600, Some("12")),
        (r#"{"jsonrpc":"2.0","id":13,"method":7}"#, -32600, Some("13")),
        (r#"{"jsonrpc":"2.0","id":14,"method":null}"#, -32600, Some("14")),
        (r#"{"id":15,"method":"ping"}"#, -32600, Some("15")),
        (r#"{"jsonrpc":"1.0","id":16,"method":"ping"}"#, -32600, Some("16")),
        (r#"{"jsonrpc":2.0,"id":"17","method":"ping"}"#, -32600, Some("\"17\"")),
        (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, -32600, None),
        (r#"{"jsonrpc":"2.0","id":true,"method":"ping"}"#, -32600, None),
        (r#"{"jsonrpc":"2.0","id":[1],"method":"ping"}"#, -32600, None),
        (r#"{"jsonrpc":"2.0","id":{"a":1},"method":"ping"}"#, -32600, None),
    ]
    .into_iter()
    .map(|(line, code, id)| (line.to_owned(), code, id))
    .collect();
    for params in ["7", "\"text\"", "true", "[]", "[1]"] {
        lines.push((format!(r#"{{"jsonrpc":"2.0","id":20,"method":"tools/list","params":{params}}}"#), 0, Some("20")));
    }
    lines
}

#[test]
fn malformed_lines_get_the_right_error_and_the_next_is_served() {
    for era in Era::ALL {
        let mut host = Setup::new().server("a", json!({"tool_count": 1})).open(era);
        host.tools_count(1);
        for (line, code, id) in bad_lines() {
            host.send(&line);
            let answer = host.next(PATIENCE).unwrap_or_else(|| panic!("no answer to {line}"));
            if code == 0 {
                assert!([-32600, -32602].contains(&answer.code()), "{line}: {}", answer.line);
            } else {
                assert_eq!(answer.code(), code, "{line}: {}", answer.line);
            }
            match id {
                Some(id) if code != -32700 => {
                    assert_eq!(answer.raw("id"), Some(id), "{line}: {}", answer.line)
                }
                // A line that is no JSON has an id only as far as it can be read.
                Some(id) => assert!(
                    matches!(answer.raw("id"), None | Some("null")) || answer.raw("id") == Some(id),
                    "{}",
                    answer.line
                ),
                None => assert!(matches!(answer.raw("id"), None | Some("null")), "{line}: {}", answer.line),
            }
            assert_eq!(host.call("a__t000", "{}").text(), "a:t000", "after {line}");
        }
        host.finish();
    }
}

#[test]
fn lines_that_need_no_answer_get_none() {
    let mut host = Setup::new().server("a", json!({"tool_count": 1})).open(Era::Legacy);
    host.tools_count(1);
    for line in [
        "",
        " ",
        "\t",
        "\r",
        r#"{"jsonrpc":"2.0","method":"notifications/vendor/unknown","params":{"x":1}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":12345}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#,
        r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"a__t000"}}"#,
        r#"{"jsonrpc":"2.0","method":"no/such"}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":"x","error":{"code":1,"message":"m"}}"#,
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"m"}}"#,
    ] {
        host.send(line);
    }
    assert_eq!(host.ask("ping", "").result(), "{}");
    let rest = host.drained();
    assert!(rest.is_empty(), "{rest:?}");
    assert!(host.received_of("a", "tools/call").is_empty(), "a notification was executed");
    host.finish();
}

#[test]
fn bytes_that_are_no_text_and_lines_with_carriage_returns() {
    let mut host = Setup::new().server("a", json!({"tool_count": 1})).open(Era::Legacy);
    host.tools_count(1);
    host.send_bytes(b"{\"jsonrpc\":\"2.0\",\"id\":31,\"method\":\"ping\"}\r\n");
    assert_eq!(host.answer("31").result(), "{}");
    for bad in [&b"\xff\xfe"[..], b"\xc3\x28", b"\xed\xa0\x80", b"a\x01b", b"a\x00b"] {
        let mut line =
            br#"{"jsonrpc":"2.0","id":32,"method":"tools/call","params":{"name":"a__t000","arguments":{"x":""#.to_vec();
        line.extend_from_slice(bad);
        line.extend_from_slice(b"\"}}}\n");
        host.send_bytes(&line);
        // The list may be told of late.
        let answer =
            std::iter::from_fn(|| host.next(PATIENCE)).find(|message| message.raw("method").is_none()).unwrap();
        assert!([-32700, -32600, -32602].contains(&answer.code()), "{bad:?}: {}", answer.line);
    }
    assert!(host.received_of("a", "tools/call").is_empty());
    // Cut anywhere, a line is still one line.
    for part in [
        &b"{\"jsonrpc\":\"2.0\",\"id\":33,"[..],
        b"\"method\":\"tools/call\",\"params\":{\"name\":\"a__t000\",\"arguments\":{\"x\":\"\xf0\x9f",
        b"\xa6\x80\"}}}",
        b"\n",
    ] {
        host.send_bytes(part);
    }
    assert_eq!(host.answer("33").text(), "a:t000");
    assert!(host.received("a").iter().any(|l| l.contains("🦀")));
    host.finish();
}

#[test]
fn e23_duplicate_keys_that_steer_a_request_are_refused() {
    for era in Era::ALL {
        let mut host = Setup::new().server("a", json!({"tool_count": 2, "act": {"do": "line"}})).open(era);
        host.tools_count(2);
        let meta = if era == Era::Modern { format!(r#","_meta":{{{MODERN_META}}}"#) } else { String::new() };
        for (n, line) in [
            format!(r#"{{"jsonrpc":"2.0","id":@,"method":"tools/list","method":"tools/call","params":{{"name":"a__t000"{meta}}}}}"#),
            format!(r#"{{"jsonrpc":"2.0","id":@,"method":"tools/call","params":{{"name":"a__t000","name":"a__t001"{meta}}}}}"#),
            format!(r#"{{"jsonrpc":"2.0","id":@,"method":"tools/call","params":{{"name":"a__t000","n\u0061me":"a__t001"{meta}}}}}"#),
            format!(r#"{{"jsonrpc":"2.0","id":@,"method":"tools/call","params":{{"name":"a__t000","arguments":{{}},"arguments":{{"x":1}}{meta}}}}}"#),
            format!(r#"{{"jsonrpc":"2.0","id":@,"method":"tools/call","params":{{"name":"a__t000"{meta}}},"params":{{"name":"a__t001"{meta}}}}}"#),
            format!(r#"{{"jsonrpc":"2.0","jsonrpc":"2.0","id":@,"method":"tools/call","params":{{"name":"a__t000"{meta}}}}}"#),
            format!(r#"{{"jsonrpc":"2.0","id":@,"method":"tools/call","params":{{"name":"a__t000"{meta},"_meta":{{"x":1}},"_meta":{{}}}}}}"#),
        ]
        .iter()
        .enumerate()
        {
            let id = (n + 700).to_string();
            host.send(&line.replace('@', &id));
            let answer = host.answer(&id);
            assert!([-32600, -32602].contains(&answer.code()), "{line}: {}", answer.line);
        }
        host.send(r#"{"jsonrpc":"2.0","id":801,"id":802,"method":"ping"}"#);
        assert_eq!(host.next(PATIENCE).unwrap().code(), -32600);
        assert!(host.received_of("a", "tools/call").is_empty(), "a doubtful request was executed");
        // Inside the arguments they are the tool's affair.
        let text = host.call("a__t000", r#"{"k":1,"k":2,"k":1}"#).text();
        assert!(text.contains(r#"{"k":1,"k":2,"k":1}"#), "{text}");
        host.finish();
    }
}

#[test]
fn env12_over_long_host_lines_are_refused_and_the_next_is_served() {
    let mut host = Setup::new().server("a", json!({"tool_count": 1})).open(Era::Legacy);
    host.tools_count(1);
    let line = format!(
        r#"{{"jsonrpc":"2.0","id":41,"method":"tools/call","params":{{"name":"a__t000","arguments":{{"x":"{}"}}}}}}"#,
        "x".repeat(17 << 20)
    );
    host.send(&line);
    let answer = host.next(PATIENCE).unwrap();
    assert!([-32600, -32602, -32700].contains(&answer.code()), "{}", answer.line);
    assert!(matches!(answer.raw("id"), None | Some("41" | "null")), "{}", answer.line);
    assert_eq!(host.call("a__t000", "{}").text(), "a:t000");
    assert!(host.received_of("a", "tools/call").len() == 1);
    assert!(host.peak_kib() < 96 << 10, "peak {} KiB", host.peak_kib());
    host.finish();
}

#[test]
fn env12_the_largest_message_is_as_configured_on_both_fronts() {
    let head = "[gateway]\nmax_message = \"64KiB\"";
    let setup = || Setup::new().head(head).server("a", json!({"tool_count": 1}));
    let mut host = setup().open(Era::Legacy);
    host.tools_count(1);
    let call = |size: usize| format!(r#"{{"x":"{}"}}"#, "y".repeat(size));
    assert_eq!(host.call("a__t000", &call(60 << 10)).text(), "a:t000");
    let refused = host.call("a__t000", &call(64 << 10));
    assert_eq!(refused.code(), -32600, "{}", refused.line);
    assert!(refused.line.contains("the limit is 65536"), "{}", refused.line);
    assert_eq!(host.call("a__t000", "{}").text(), "a:t000");
    host.finish();

    let open = "[auth]\nmode = \"none\"\n[policy]\ndefault = \"allow\"";
    let mut serve = setup().head(open).start_as(&["serve", "--listen", "127.0.0.1:0"]);
    serve.wait_stderr("listening on");
    let said = serve.stderr();
    let address = said.split_once("listening on http://").unwrap().1.split('/').next().unwrap();
    for (size, expected) in [(60 << 10, false), (65 << 10, true)] {
        let mut stream = TcpStream::connect(address).unwrap();
        let head = "Content-Type: application/json\r\nAccept: application/json\r\nConnection: close";
        write!(stream, "POST /mcp HTTP/1.1\r\nHost: {address}\r\n{head}\r\nContent-Length: {size}\r\n\r\n").unwrap();
        // What is too long may be refused before it is there.
        let _ = stream.write_all(&vec![b' '; size]);
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        assert_eq!(answer.starts_with("HTTP/1.1 413"), expected, "{size}: {answer}");
        assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
    }
    serve.signal("TERM");
    assert!(serve.wait_end(PATIENCE).success());
}

#[test]
fn d_29_what_a_server_may_list_is_as_configured() {
    let long = format!(r#"{{"name":"long","inputSchema":{{"type":"object"}},"description":"{}"}}"#, "x".repeat(1100));
    let short = r#"{"name":"short","inputSchema":{"type":"object"}}"#;
    let many = json!({"tool_count": 3});
    for (key, scenario, limits, listed, said) in [
        ("a", json!({"tools": [long, short]}), "definition = \"1KiB\"", vec!["a__short"], "the limit is 1024"),
        ("b", many.clone(), "entries = 2", vec![], "more than 2 entries"),
        ("c", many, "entries = 3", vec!["c__t000", "c__t001", "c__t002"], ""),
        ("d", json!({"tool_count": 2000}), "list = \"64KiB\"", vec![], "more than 65536 bytes"),
    ] {
        let mut host = Setup::new().server_with(key, scenario, &format!("limits = {{ {limits} }}")).open(Era::Modern);
        assert_eq!(host.tools(), listed, "{limits}");
        host.wait_stderr(said);
        host.finish();
    }
}

#[test]
fn lst1_a_list_waits_as_long_as_configured() {
    let mut host = Setup::new()
        .head("[gateway]\nlist_deadline = \"200ms\"")
        .server("silent", json!({"list": "silent"}))
        .open(Era::Modern);
    let begun = Instant::now();
    assert!(host.tools().is_empty());
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    host.finish();
}

#[test]
fn large_messages_below_the_cap_pass_both_ways() {
    for era in Era::ALL {
        let mut host =
            Setup::new().server("a", json!({"tool_count": 1, "era": era.word(), "act": {"do": "arguments"}})).open(era);
        host.tools_count(1);
        for mib in [1, 4, 12] {
            let arguments = format!(r#"{{"x":"{}"}}"#, "y".repeat(mib << 20));
            assert!(
                host.call("a__t000", &arguments).result_raw("structuredContent").unwrap() == arguments,
                "{mib} MiB"
            );
        }
        host.finish();
    }
}

#[test]
fn a_host_that_does_not_read_costs_bounded_memory_and_loses_nothing() {
    let mut host = Setup::new()
        .reads_on_demand()
        .server_with(
            "a",
            json!({"tool_count": 1, "act": {"do": "big", "bytes": 1 << 20}}),
            "timeouts = { start = \"20s\", probe = \"10s\", call = \"120s\" }",
        )
        .open(Era::Legacy);
    host.tools_count(1);
    let ids: Vec<String> = (0..80).map(|_| host.post_call("a__t000", "{}")).collect();
    until("all calls have arrived, or as many as may wait", Duration::from_secs(60), || {
        host.received_of("a", "tools/call").len() >= 16
    });
    for id in ids {
        assert_eq!(host.answer(&id).text().len(), 1 << 20);
    }
    assert!(host.peak_kib() < 128 << 10, "peak {} KiB", host.peak_kib());
    host.finish();
}

#[test]
fn nothing_at_all_is_configured() {
    for era in Era::ALL {
        let mut host = Setup::new().open(era);
        assert!(host.tools().is_empty(), "an empty list, never an error");
        assert_eq!(host.call("a__t000", "{}").code(), -32602);
        host.finish();
    }
}

#[test]
fn odd_members_of_requests_do_no_harm() {
    let mut host = Setup::new().server("a", json!({"tool_count": 1, "act": {"do": "line"}})).open(Era::Legacy);
    host.tools_count(1);
    for (id, line) in [
        ("51", r#"{"method":"tools/call","params":{"arguments":{},"name":"a__t000"},"id":51,"jsonrpc":"2.0"}"#),
        ("52", r#" { "jsonrpc" : "2.0" , "id" : 52 , "method" : "tools/call" , "params" : { "name" : "a__t000" } } "#),
        ("53", r#"{"jsonrpc":"2.0","id":53,"method":"tools/call","params":{"name":"\u0061__t000"},"vendor":{"x":1}}"#),
        ("54", r#"{"jsonrpc":"2.0","id":54,"m\u0065thod":"tools/call","params":{"name":"a__t000","task":{"ttl":1}}}"#),
        ("55", r#"{"jsonrpc":"2.0","id":55,"method":"tools\/call","params":{"name":"a__t000"}}"#),
    ] {
        host.send(line);
        let sent: Value = serde_json::from_str(&host.answer(id).text()).unwrap();
        assert_eq!(sent["params"]["name"], "t000", "{line}");
        assert!(sent["params"].get("task").is_none(), "{line}");
    }
    host.finish();
}
