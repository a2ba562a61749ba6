//! Class B, lines: what a server writes beside, before and inside its messages (D008–D010, D021, D022, D057), and
//! answers that are too long, too deep or no answers at all.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::host::{CELLS, Era, Host, Setup};

/// Lines that are no messages, one set per kind of mistake.
const NO_MESSAGES: [&[&str]; 8] = [
    &["Server listening on stdio", "", "   ", "\u{1b}[32mready\u{1b}[0m"],
    &[r#"{"level":"info","msg":"x"}"#, r#"{"level":"info","id":1,"msg":"x"}"#],
    &["42", "-1", "1e999", "0.5"],
    &["[]", "[1,2]", r#"["jsonrpc"]"#, "[[[]]]"],
    &["null", "true", "false", r#""text""#],
    &["{}", r#"{"jsonrpc":"2.0"}"#, r#"{"jsonrpc":"2.0","id":987654}"#, r#"{"id":987655,"jsonrpc":"2.0","params":{}}"#],
    &[r#"{"jsonrpc":"2.0","id":98"#, r#"{"a":"#, "}", "{\"unterminated"],
    &[
        r#"{"jsonrpc":"2.0","method":7}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/vendor","params":3}"#,
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}"#,
    ],
];

fn all_works(host: &mut Host, tools: usize) {
    host.tools_count(tools);
    for n in 0..3 {
        assert_eq!(host.call(&format!("a__t{n:03}"), "{}").text(), format!("a:t{n:03}"));
    }
}

#[test]
fn d008_d009_d022_lines_that_are_no_messages_are_skipped() {
    for (at, lines) in NO_MESSAGES.into_iter().enumerate() {
        let (host_era, era) = CELLS[at % CELLS.len()];
        let mut host = Setup::new()
            .server("a", json!({"tool_count": 3, "era": era.word(), "banner": lines, "noise": lines}))
            .open(host_era);
        all_works(&mut host, 3);
        assert_eq!(host.starts("a"), 1, "{lines:?}");
        host.finish();
    }
}

/// SEC-8, T-35.
#[test]
fn d008_skipped_lines_are_logged_within_bounds_and_escaped() {
    let noise: Vec<String> = (0..2000).map(|n| format!("noise {n} \u{1b}[2J \u{202e} {}", "x".repeat(200))).collect();
    let mut host = Setup::new().server("a", json!({"tool_count": 3, "noise": noise})).open(Era::Legacy);
    all_works(&mut host, 3);
    let log = host.stderr();
    assert!(log.contains("noise 0"), "the first is shown as data\n{log}");
    assert!(log.len() < 200_000, "the log is flooded: {} bytes", log.len());
    assert!(!log.contains("\u{1b}[2J") && !log.contains('\u{202e}'), "foreign text is not escaped");
    host.finish();
}

#[test]
fn d009_a_truncated_answer_before_the_right_one() {
    for (host_era, era) in CELLS {
        let shape = if era == Era::Modern { r#""resultType":"complete","# } else { "" };
        let right = format!(
            r#"{{"jsonrpc":"2.0","id":@ID@,"result":{{{shape}"content":[{{"type":"text","text":"right"}}]}}}}"#
        );
        for broken in [
            // Without a readable id: skipped, the right one counts.
            r#"{"jsonrpc":"2.0","res"#,
            r#"{"result":{"content":[{"type":"text","text":"wro"#,
            r#"{"jsonrpc":"2.0","result":{"content":[]},"id"#,
        ] {
            let mut host = Setup::new()
                .server(
                    "a",
                    json!({"tool_count": 1, "era": era.word(), "act": {"do": "lines", "lines": [broken, right]}}),
                )
                .open(host_era);
            host.tools_count(1);
            assert_eq!(host.call("a__t000", "{}").text(), "right", "{broken}");
            host.finish();
        }
    }
}

/// The host gets the right answer or an error of ours, and soon: a broken answer never leaves it waiting.
fn ends(era: Era, act: &Value) {
    let mut host = Setup::new()
        .server_with(
            "a",
            json!({"tool_count": 1, "era": era.word(), "acts": {"t000": act}, "tools": [r#"{"name":"ok","inputSchema":{"type":"object"}}"#]}),
            "timeouts = { start = \"20s\", probe = \"10s\", call = \"60s\" }",
        )
        .open(Era::Legacy);
    host.tools_count(2);
    let begun = Instant::now();
    let answer = host.call("a__t000", "{}");
    assert!(begun.elapsed() < Duration::from_secs(15), "{act}: {:?}", begun.elapsed());
    assert_eq!(answer.code(), -32603, "{act}: {:.300}", answer.line);
    assert_eq!(answer.error()["data"]["server"], "a", "{act}");
    assert!(
        ["invalid-downstream-result", "result-too-large"].contains(&answer.reason().as_str()),
        "{act}: {:.300}",
        answer.line
    );
    assert_eq!(host.call("a__ok", "{}").text(), "a:ok", "{act}");
    assert_eq!(host.starts("a"), 1, "{act}: the connection was given up");
    host.finish();
}

#[test]
fn env6_answers_that_are_none_end_the_call() {
    for result in ["null", "true", "7", r#""text""#, "[]", r#"[{"content":[]}]"#] {
        let line = format!(r#"{{"jsonrpc":"2.0","id":@ID@,"result":{result}}}"#);
        ends(Era::Legacy, &json!({"do": "lines", "lines": [line]}));
    }
    for line in [
        r#"{"jsonrpc":"2.0","id":@ID@,"result":{"content":[}}"#,
        r#"{"jsonrpc":"2.0","id":@ID@,"result":{"content":[]}"#,
        r#"{"jsonrpc":"2.0","id":@ID@,"result":{"content":[],"x":01}}"#,
        r#"{"jsonrpc":"2.0","id":@ID@,"error":"text"}"#,
        r#"{"jsonrpc":"2.0","id":@ID@,"error":null,"result":null}"#,
    ] {
        ends(Era::Legacy, &json!({"do": "lines", "lines": [line]}));
    }
}

#[test]
fn env6_an_unknown_result_type_is_invalid() {
    for kind in [r#""surprise""#, "7", "null"] {
        let line = format!(r#"{{"jsonrpc":"2.0","id":@ID@,"result":{{"resultType":{kind},"content":[]}}}}"#);
        ends(Era::Modern, &json!({"do": "lines", "lines": [line]}));
    }
}

#[test]
fn answers_that_are_no_utf8_end_the_call() {
    // {"jsonrpc":"2.0","id":@ID@,"result":{"content":[{"type":"text","text":"<bad>"}]}}
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    for bad in [&b"\xff"[..], b"\xc3\x28", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"a\x01b", b"tab\there"] {
        let line = format!(
            "{}ID{}{}{}",
            hex(br#"{"jsonrpc":"2.0","id":"#),
            hex(br#","result":{"content":[{"type":"text","text":""#),
            hex(bad),
            hex(br#""}]}}"#)
        );
        ends(Era::Legacy, &json!({"do": "hex", "hex": line}));
    }
}

#[test]
fn td26_over_long_answers_end_the_call() {
    ends(Era::Legacy, &json!({"do": "big", "bytes": 17 << 20}));
}

#[test]
fn td26_a_line_without_end_harms_nobody_else() {
    let mut host = Setup::new()
        .server_with(
            "a",
            json!({"tool_count": 1, "act": {"do": "endless", "bytes": 64 << 20}}),
            "timeouts = { start = \"20s\", probe = \"10s\", call = \"2s\" }",
        )
        .server("b", json!({"tool_count": 1}))
        .open(Era::Legacy);
    host.tools_count(2);
    let id = host.post_call("a__t000", "{}");
    for _ in 0..5 {
        assert_eq!(host.call("b__t000", "{}").text(), "b:t000");
    }
    assert_eq!(host.answer(&id).code(), -32603);
    let peak = host.peak_kib();
    assert!(peak < 80 << 10, "peak memory {peak} KiB");
    host.finish();
}

/// OBS-3.
#[test]
fn nesting_beyond_the_cap_ends_the_call_with_an_error() {
    for depth in [200, 5000, 500_000] {
        ends(Era::Legacy, &json!({"do": "nest", "depth": depth}));
    }
}

#[test]
fn d010_characters_cut_by_the_pipe_stay_whole() {
    for (host_era, era) in CELLS {
        let tool = r#"{"name":"t","description":"€uro – 漢字 – 🦀🎉 – é","inputSchema":{"type":"object","description":"\u00e9𝄞"}}"#;
        let result = r#"{"content":[{"type":"text","text":"漢🦀é – \u00e9\ud83e\udd80"}]}"#;
        let mut host = Setup::new()
            .server(
                "a",
                json!({"tools": [tool], "era": era.word(), "stream": "bytes", "act": {"do": "result", "result": result}}),
            )
            .open(host_era);
        host.tools_count(1);
        assert_eq!(host.tools_raw(), [tool.replace(r#""t""#, r#""a__t""#)]);
        let answer = host.call("a__t", r#"{"x":"漢🦀"}"#);
        assert_eq!(answer.result_raw("content").unwrap(), r#"[{"type":"text","text":"漢🦀é – \u00e9\ud83e\udd80"}]"#);
        host.finish();
    }
}

#[test]
fn d021_parallel_calls_with_large_arguments_all_succeed() {
    for (host_era, era) in [(Era::Legacy, Era::Legacy), (Era::Modern, Era::Modern)] {
        let mut host = Setup::new()
            .server("a", json!({"tool_count": 1, "era": era.word(), "shuffle_ms": 150, "act": {"do": "arguments"}}))
            .open(host_era);
        host.tools_count(1);
        let arguments = |n: usize| {
            let fill = char::from(b'a' + u8::try_from(n % 26).unwrap()).to_string().repeat(64 << 10);
            format!(r#"{{"n":{n},"fill":"{fill}"}}"#)
        };
        let ids: Vec<String> = (0..100).map(|n| host.post_call("a__t000", &arguments(n))).collect();
        for (n, id) in ids.iter().enumerate() {
            assert!(host.answer(id).result_raw("structuredContent").unwrap() == arguments(n), "call {n}");
        }
        host.finish();
    }
}

#[test]
fn d057_ids_echoed_as_text_still_match() {
    for (host_era, era) in CELLS {
        let mut host = Setup::new()
            .server("a", json!({"tool_count": 3, "era": era.word(), "text_ids": true, "shuffle_ms": 20}))
            .open(host_era);
        all_works(&mut host, 3);
        let ids: Vec<(String, String)> = (0..30)
            .map(|n| format!("t{:03}", n % 3))
            .map(|tool| (host.post_call(&format!("a__{tool}"), "{}"), tool))
            .collect();
        for (id, tool) in ids {
            assert_eq!(host.answer(&id).text(), format!("a:{tool}"));
        }
        assert_eq!(host.starts("a"), 1);
        host.finish();
    }
}

#[test]
fn d057_foreign_ids_match_nothing() {
    let strays: Vec<String> = [
        "-1",
        "-9223372036854775808",
        "9223372036854775807",
        "18446744073709551616",
        "340282366920938463463374607431768211456",
        "1e999",
        "99999.5",
        "true",
        "null",
        "[1]",
        r#"{"a":1}"#,
        r#""""#,
        r#"" 1""#,
        r#""1 ""#,
        r#""01""#,
        r#""+1""#,
        r#""0x1""#,
        r#""one""#,
        r#""999999""#,
        "999999",
    ]
    .iter()
    .map(|id| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":"STRAY"}}]}}}}"#))
    .collect();
    for era in Era::ALL {
        let mut host = Setup::new().server("a", json!({"tool_count": 3, "era": era.word(), "noise": strays})).open(era);
        all_works(&mut host, 3);
        assert_eq!(host.starts("a"), 1);
        assert!(host.drained().iter().all(|m| !m.line.contains("STRAY")));
        host.finish();
    }
}

#[test]
fn env7_late_and_double_answers_are_dropped() {
    let answer = |text: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":@ID@,"result":{{"content":[{{"type":"text","text":"{text}"}}]}}}}"#)
    };
    let mut host = Setup::new()
        .server(
            "a",
            json!({"tool_count": 2, "acts": {"t000": {"do": "lines", "lines": [answer("first"), answer("second"), answer("third")]}}}),
        )
        .open(Era::Legacy);
    host.tools_count(2);
    assert_eq!(host.call("a__t000", "{}").text(), "first");
    assert_eq!(host.call("a__t001", "{}").text(), "a:t001");
    let rest = host.drained();
    assert!(rest.iter().all(|m| m.raw("id").is_none()), "{rest:?}");
    host.finish();
}
