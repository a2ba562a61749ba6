//! The fidelity corpus: every odd message of `tests/corpus` in all four cells, byte for byte (D044–D052, ENV-11).

use std::path::Path;

use serde_json::{Value, json};

use crate::host::{CELLS, Era, Host, Members, PATIENCE, Setup};

struct Entry {
    way: String,
    why: String,
    same: bool,
    /// The message part as it goes onto the wire.
    bytes: Vec<u8>,
}

impl Entry {
    fn text(&self) -> &str {
        std::str::from_utf8(&self.bytes).unwrap()
    }
}

/// `@REP:text:n@` → text, n times.
fn unfold(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("@REP:") {
        let (inside, left) = after.split_once('@').unwrap();
        let (unit, count) = inside.rsplit_once(':').unwrap();
        out.push_str(before);
        out.push_str(&unit.repeat(count.parse().unwrap()));
        rest = left;
    }
    out + rest
}

fn corpus(ways: &[&str]) -> Vec<Entry> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/fidelity.jsonl");
    let text = std::fs::read_to_string(path).unwrap();
    let all: Vec<Entry> = text
        .lines()
        .map(|line| {
            let value: Value = serde_json::from_str(line).unwrap();
            let word = |key: &str| value[key].as_str().unwrap().to_owned();
            let bytes = match value["hex"].as_str() {
                Some(hex) => {
                    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
                }
                None => unfold(&word("text")).into_bytes(),
            };
            assert!(["same", "refused"].contains(&value["expect"].as_str().unwrap()), "{line}");
            Entry { way: word("way"), why: word("why"), same: value["expect"] == "same", bytes }
        })
        .collect();
    assert!(all.len() >= 80, "the corpus has only {} messages", all.len());
    let some: Vec<Entry> = all.into_iter().filter(|e| ways.contains(&e.way.as_str())).collect();
    assert!(some.len() >= 10, "only {} messages of {ways:?}", some.len());
    some
}

fn members(text: &str) -> Members {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text:.300}"))
}

/// Long texts are compared, not printed.
fn assert_same(got: Option<&str>, sent: &str, what: &str) {
    if got != Some(sent) {
        let got = got.unwrap_or("nothing");
        panic!("{what}\n sent: {:.400}\n  got: {:.400}", sent, got);
    }
}

#[test]
fn corpus_arguments_reach_the_server_unchanged_or_are_refused() {
    for (host_era, era) in CELLS {
        let entries = corpus(&["arguments"]);
        let mut host = Setup::new().server("a", json!({"tool_count": 1, "era": era.word()})).open(host_era);
        host.tools_count(1);
        let cell = format!("({host_era:?} host, {era:?} server)");
        let mut expected = Vec::new();
        for (n, entry) in entries.iter().enumerate() {
            let what = format!("{} {cell}", entry.why);
            let meta = match host_era {
                Era::Modern => format!(r#","_meta":{{{}}}"#, crate::host::MODERN_META),
                Era::Legacy => String::new(),
            };
            let id = format!("\"{n}\"");
            let call =
                format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"a__t000"{meta},"#);
            host.send_bytes(&[call.as_bytes(), b"\"arguments\":", &entry.bytes, b"}}\n"].concat());
            if entry.same {
                assert_eq!(host.answer(&id).text(), "a:t000", "{what}");
                expected.push((entry.text(), what));
            } else {
                let answer = host.pick("an error", PATIENCE, |m| m.raw("error").is_some());
                assert!([-32700, -32600, -32602].contains(&answer.code()), "{what}: {}", answer.line);
                assert!(answer.raw("id").is_none_or(|i| i == id || i == "null"), "{what}: {}", answer.line);
                assert_eq!(host.call("a__t000", "{}").text(), "a:t000", "after {what}");
                expected.push(("{}", format!("the call after {what}")));
            }
        }
        let calls = host.received_of("a", "tools/call");
        assert_eq!(calls.len(), expected.len(), "{cell}: what was refused went down");
        for (call, (sent, what)) in calls.iter().zip(expected) {
            let params = members(call["params"].get());
            assert_same(params.get("arguments").map(|a| a.get()), sent, &what);
        }
        assert_eq!(host.starts("a"), 1);
        host.finish();
    }
}

/// CALL-1.
#[test]
fn corpus_results_reach_the_host_unchanged_or_as_an_error() {
    for (host_era, era) in CELLS {
        let entries = corpus(&["result"]);
        let mut acts = serde_json::Map::new();
        for (n, entry) in entries.iter().enumerate() {
            let act = match std::str::from_utf8(&entry.bytes) {
                Ok(text) if entry.same => json!({"do": "result", "result": text}),
                _ => {
                    let shape = if era == Era::Modern { &br#""resultType":"complete","#[..] } else { b"" };
                    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
                    let head = hex(br#"{"jsonrpc":"2.0","id":"#);
                    let body = [&br#","result":{"#[..], shape, &entry.bytes[1..], b"}"].concat();
                    json!({"do": "hex", "hex": format!("{head}ID{}", hex(&body))})
                }
            };
            acts.insert(format!("t{n:03}"), act);
        }
        let count = entries.len() + 1;
        let mut host =
            Setup::new().server("a", json!({"tool_count": count, "era": era.word(), "acts": acts})).open(host_era);
        host.tools_count(count);
        // All at once: after a broken answer the gateway waits a little for a whole one.
        let ids: Vec<String> = (0..entries.len()).map(|n| host.post_call(&format!("a__t{n:03}"), "{}")).collect();
        for (id, entry) in ids.iter().zip(&entries) {
            let what = format!("{} ({host_era:?} host, {era:?} server)", entry.why);
            let answer = host.answer(id);
            if entry.same {
                let got = members(answer.result());
                for (key, sent) in members(entry.text()) {
                    if key == "_meta" {
                        let meta = members(got.get("_meta").map_or("{}", |m| m.get()));
                        for (key, sent) in members(sent.get()) {
                            assert_same(meta.get(&key).map(|m| m.get()), sent.get(), &what);
                        }
                    } else {
                        assert_same(got.get(&key).map(|m| m.get()), sent.get(), &format!("{key} of {what}"));
                    }
                }
            } else {
                assert_eq!(
                    (answer.code(), answer.reason().as_str()),
                    (-32603, "invalid-downstream-result"),
                    "{what}: {:.300}",
                    answer.line
                );
            }
        }
        let last = format!("t{:03}", count - 1);
        assert_eq!(host.call(&format!("a__{last}"), "{}").text(), format!("a:{last}"));
        assert_eq!(host.starts("a"), 1);
        host.finish();
    }
}

#[test]
fn corpus_definitions_errors_and_meta_pass() {
    for (host_era, era) in CELLS {
        let definitions = corpus(&["definition"]);
        let errors = corpus(&["error"]);
        let tools: Vec<String> = definitions
            .iter()
            .enumerate()
            .map(|(n, d)| d.text().replace("@NAME@", &format!("d{n}")))
            .chain((0..errors.len()).map(|n| format!(r#"{{"name":"e{n}","inputSchema":{{"type":"object"}}}}"#)))
            .collect();
        let acts: serde_json::Map<String, Value> = errors
            .iter()
            .enumerate()
            .map(|(n, e)| {
                (
                    format!("e{n}"),
                    json!({"do": "error", "error": format!(r#"{{"code":77,"message":"m","data":{}}}"#, e.text())}),
                )
            })
            .collect();
        let mut host =
            Setup::new().server("a", json!({"tools": tools, "era": era.word(), "acts": acts})).open(host_era);
        host.tools_count(tools.len());
        for (n, (got, entry)) in host.tools_raw().iter().zip(&definitions).enumerate() {
            let sent = entry.text().replace("@NAME@", &format!("a__d{n}"));
            assert_same(Some(got), &sent, &format!("definition: {} ({host_era:?} {era:?})", entry.why));
        }
        for (n, entry) in errors.iter().enumerate() {
            let answer = host.call(&format!("a__e{n}"), "{}");
            let error = members(answer.raw("error").unwrap_or_else(|| panic!("{}", answer.line)));
            assert_same(
                error.get("data").map(|d| d.get()),
                entry.text(),
                &format!("error: {} ({host_era:?} {era:?})", entry.why),
            );
            assert_eq!(error.get("code").map(|c| c.get()), Some("77"));
        }
        meta_passes(&mut host, era);
        host.finish();
    }
}

fn meta_passes(host: &mut Host, era: Era) {
    for entry in corpus(&["meta"]) {
        let before = host.received_of("a", "tools/call").len();
        let id = host.post_meta("tools/call", r#""name":"a__d0""#, &format!("\"vendor.example/k\":{}", entry.text()));
        assert_eq!(host.answer(&id).text(), "a:d0", "{}", entry.why);
        let params = members(host.received_of("a", "tools/call")[before]["params"].get());
        let meta = members(params.get("_meta").map_or("{}", |m| m.get()));
        let what = format!("_meta: {} ({:?} {era:?})", entry.why, host.era);
        assert_same(meta.get("vendor.example/k").map(|m| m.get()), entry.text(), &what);
    }
}
