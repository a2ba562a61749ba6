//! The record of decisions as people and scripts meet it: written by a real program, verified, shown, summed up, replayed.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use crate::host::{Era, Host, PATIENCE, Setup, until};

/// What decides in the beginning.
const POLICY: &str = r#"
[policy]
default = "deny"
[[policy.rule]]
effect = "allow"
target = ["a/tool/t000"]
where = [{ pointer = "/path", path_under = ["/srv"] }]
[[policy.rule]]
effect = "allow"
target = ["a/tool/t001"]
"#;

fn setup(audit: &str) -> Setup {
    let head = format!("[telemetry]\naudit = {{ file = \"audit/audit.jsonl\"{audit} }}");
    Setup::new().head(&head).server("a", json!({"tool_count": 3})).raw(POLICY)
}

/// Another setup of the same folder's file: commands read what a run wrote.
fn reading(file: &std::path::Path, policy: &str) -> Setup {
    let head = format!("[telemetry]\naudit = {{ file = {} }}", json!(file.to_str().unwrap()));
    Setup::new().head(&head).server("a", json!({"tool_count": 3})).raw(policy)
}

fn records(file: &std::path::Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no record: {line}"))).collect()
}

/// Makes four calls: two are allowed, one is refused for its argument, one is hidden.
fn calls(host: &mut Host) {
    host.tools_count(2);
    host.call("a__t000", r#"{"path":"/srv/x"}"#);
    host.call("a__t001", r#"{"path":"/anywhere"}"#);
    host.call("a__t000", r#"{"path":"/etc"}"#);
    host.call("a__t002", "{}");
}

/// Runs that; a copy of what was written, in a folder that outlives the run.
fn written(audit: &str, signal: Option<&str>) -> (tempfile::TempDir, PathBuf) {
    let mut host = setup(audit).open(Era::Legacy);
    calls(&mut host);
    match signal {
        Some(signal) => {
            host.signal(signal);
            host.wait_end(PATIENCE);
        }
        None => {
            host.close_input();
            assert_eq!(host.wait_end(PATIENCE).code(), Some(0));
        }
    }
    let kept = tempfile::tempdir().unwrap();
    let file = kept.path().join("audit.jsonl");
    std::fs::copy(host.path("audit/audit.jsonl"), &file).unwrap();
    (kept, file)
}

#[test]
fn r36_what_was_decided_is_written_and_whole_after_every_end() {
    for (signal, end) in [(None, "in-order"), (Some("TERM"), "in-order")] {
        let (_kept, file) = written("", signal);
        let setup = reading(&file, POLICY);
        let (code, told) = setup.json(&["audit", "verify", "--json"]);
        assert_eq!((code, &told["ok"]), (Some(0), &json!(true)), "{told}");
        let chain = &told["chains"][0];
        assert_eq!((&chain["decisions"], &chain["end"], &chain["lost"]), (&json!(4), &json!(end), &json!(0)), "{told}");
        let decided: Vec<_> =
            records(&file).iter().filter_map(|record| record["verdict"].as_str().map(str::to_owned)).collect();
        assert_eq!(decided, ["allow", "allow", "refuse", "hidden"]);
        let named = file.to_str().unwrap();
        let text = setup.output(&["audit", "verify", named]);
        assert!(text.code == Some(0) && text.out.contains("whole") && text.out.contains("sha256:"), "{}", text.out);
    }
    // Killed, it has no end, and what was written before is whole.
    let mut host = setup("").open(Era::Modern);
    calls(&mut host);
    let file = host.path("audit/audit.jsonl");
    until("the calls are written", PATIENCE, || {
        std::fs::read_to_string(&file).is_ok_and(|text| text.lines().count() >= 5)
    });
    host.signal("KILL");
    host.wait_end(PATIENCE);
    let (code, told) = reading(&file, POLICY).json(&["audit", "verify", "--json"]);
    assert_eq!((code, &told["chains"][0]["end"]), (Some(0), &json!("open")), "{told}");
    host.all_gone(Duration::from_secs(5));
}

#[test]
fn r36_tampering_is_told_with_its_line_and_a_cut_end_apart() {
    let (_kept, file) = written("", None);
    let setup = reading(&file, POLICY);
    let text = std::fs::read_to_string(&file).unwrap();
    let verified = |text: &str| {
        std::fs::write(&file, text).unwrap();
        setup.output(&["audit", "verify"])
    };
    let changed = verified(&text.replacen("\"verdict\":\"refuse\"", "\"verdict\":\"allowed\"", 1));
    assert_eq!(changed.code, Some(1), "{}", changed.out);
    assert!(changed.out.contains("BROKEN") && changed.out.contains("line 5"), "{}", changed.out);
    let lines: Vec<_> = text.lines().collect();
    let without = [&lines[..3], &lines[4..]].concat().join("\n") + "\n";
    let removed = verified(&without);
    assert!(removed.code == Some(1) && removed.out.contains("line 4"), "{}", removed.out);
    let cut = verified(&text[..text.len() - 30]);
    assert!(cut.code == Some(0) && cut.out.contains("cut off"), "{}", cut.out);
    assert_eq!(setup.output(&["audit", "verify", "/nonexistent/file"]).code, Some(1));
}

#[test]
fn r36_records_are_shown_and_counted() {
    let (_kept, file) = written("", None);
    let setup = reading(&file, POLICY);
    let shown = setup.output(&["audit", "tail", "-n", "3"]);
    let lines: Vec<_> = shown.out.lines().collect();
    assert_eq!((shown.code, lines.len()), (Some(0), 3), "{}", shown.out);
    assert!(lines[0].contains("refuse") && lines[0].contains("a/tool/t000"), "{}", shown.out);
    assert!(lines[0].contains("argument-not-allowed") && lines[2].contains("end"), "{}", shown.out);
    let raw = setup.output(&["audit", "tail", "--json", "-n", "100", file.to_str().unwrap()]);
    assert_eq!(raw.out, std::fs::read_to_string(&file).unwrap());
    for (by, names) in [
        ("principal", &["stdio"][..]),
        ("server", &["a"]),
        ("tool", &["a/tool/t000", "a/tool/t001", "a/tool/t002"]),
        ("reason", &["-", "argument-not-allowed", "not-allowed"]),
    ] {
        let (code, told) = setup.json(&["audit", "top", "--by", by, "--since", "1d", "--json"]);
        let rows = told["rows"].as_array().unwrap();
        let found: Vec<_> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
        assert_eq!((code, &found[..]), (Some(0), names), "{told}");
        let sum = |member: &str| rows.iter().map(|row| row[member].as_u64().unwrap()).sum::<u64>();
        assert_eq!((sum("decisions"), sum("refused")), (4, 2), "{told}");
    }
    let table = setup.output(&["audit", "top", "--by", "tool"]).out;
    assert!(table.lines().any(|line| line.starts_with("a/tool/t000") && line.contains('2')), "{table}");
    assert_eq!(setup.output(&["audit", "top", "--since", "soon"]).code, Some(2));
    let without = Setup::new().output(&["audit", "tail"]);
    assert!(without.code == Some(2) && without.err.contains("telemetry.audit.file"), "{}", without.err);
}

#[test]
fn a_file_is_followed_while_it_is_written() {
    let mut host = setup("").open(Era::Legacy);
    host.tools_count(2);
    host.call("a__t001", "{}");
    let file = host.path("audit/audit.jsonl");
    let mut follower = Setup::new().start_as(&["audit", "tail", "--follow", "--json", file.to_str().unwrap()]);
    let seen = |follower: &mut Host, what: &str| {
        let mut line = String::new();
        while !line.contains(what) {
            line = follower.raw_line(PATIENCE).unwrap_or_else(|| panic!("never {what}"));
        }
    };
    seen(&mut follower, "a__t001");
    host.call("a__t002", "{}");
    seen(&mut follower, "a__t002");
    host.close_input();
    assert_eq!(host.wait_end(PATIENCE).code(), Some(0), "{}", host.stderr());
    seen(&mut follower, "\"event\":\"end\"");
    follower.signal("KILL");
    follower.wait_end(PATIENCE);
    host.all_gone(Duration::from_secs(5));
}

#[test]
fn r36_a_second_run_writes_beside_the_first_and_call_does_too() {
    let (other, host) = {
        let mut host = setup("").open(Era::Legacy);
        host.tools_count(2);
        host.call("a__t001", "{}");
        (reading(&host.path("audit/audit.jsonl"), POLICY), host)
    };
    assert_eq!(other.output(&["call", "a__t001", "{}"]).code, Some(0));
    let second = host.path("audit/audit.2.jsonl");
    let events: Vec<_> = records(&second).iter().map(|record| record["event"].clone()).collect();
    assert_eq!(events, [json!("begin"), Value::Null, json!("end")]);
    // What starts servers and calls nothing writes nothing.
    assert_eq!(other.output(&["tools"]).code, Some(0));
    assert!(!host.path("audit/audit.3.jsonl").exists());
    let (code, told) = other.json(&["audit", "verify", "--json"]);
    let ends: Vec<_> = told["chains"].as_array().unwrap().iter().map(|chain| chain["end"].as_str().unwrap()).collect();
    assert_eq!((code, ends), (Some(0), vec!["in-order", "written"]), "{told}");
    host.finish();
}

#[test]
fn e40_a_file_that_cannot_be_written_keeps_it_from_starting() {
    let setup = Setup::new().head("[telemetry]\naudit = { file = \"/dev/null/audit.jsonl\" }").server("a", json!({}));
    let setup = setup.raw("[auth]\nmode = \"none\"");
    for command in [&["check"][..], &["run"], &["serve", "--listen", "127.0.0.1:0"], &["call", "a__t", "{}"]] {
        let ended = setup.output(command);
        let told =
            ended.err.contains("onegate.toml:2: telemetry.audit.file: `/dev/null/audit.jsonl` cannot be written");
        assert!(ended.code == Some(2) && told, "{command:?}: {:?} {}", ended.code, ended.err);
    }
}

#[test]
fn past_decisions_are_replayed_against_another_configuration() {
    let replay = |audit: &str, policy: &str| {
        let (_kept, file) = written(audit, None);
        let setup = reading(&file, policy);
        setup.json(&["policy", "replay", file.to_str().unwrap(), "--json"])
    };
    let targets = |told: &Value, list: &str| -> Vec<String> {
        let rows = told[list].as_array().unwrap().iter();
        rows.map(|row| format!("{} {} {}", row["target"].as_str().unwrap(), row["now"].as_str().unwrap(), row["count"]))
            .collect()
    };
    // The same rules: what hung on arguments that were not written down cannot be told.
    let (code, told) = replay("", POLICY);
    assert_eq!((code, &told["same"]), (Some(0), &json!(2)), "{told}");
    assert_eq!(targets(&told, "undecidable"), ["a/tool/t000 undecidable 1", "a/tool/t000 undecidable 1"], "{told}");
    let (code, told) = replay(", values = [\"/path\"]", POLICY);
    assert_eq!((code, &told["same"], &told["undecidable"]), (Some(0), &json!(4), &json!([])), "{told}");
    // Other rules.
    let wider = POLICY.replace("/srv", "/").replace("t001", "t002");
    let (code, told) = replay(", values = [\"/path\"]", &wider);
    assert_eq!(code, Some(1));
    assert_eq!(
        targets(&told, "changed"),
        ["a/tool/t000 allow 1", "a/tool/t001 deny 1", "a/tool/t002 allow 1"],
        "{told}"
    );
    // Rules about an argument that was not written down, and a server that is gone.
    let other = POLICY.replace("/path", "/mode").replace("path_under = [\"/srv\"]", "equals = \"x\"");
    let (code, told) = replay(", values = [\"/path\"]", &other);
    assert_eq!((code, targets(&told, "undecidable").len()), (Some(0), 2), "{told}");
    let (_kept, file) = written("", None);
    let gone = Setup::new().output(&["policy", "replay", file.to_str().unwrap()]);
    assert!(gone.code == Some(1) && gone.out.contains("no-such-server"), "{}", gone.out);
    assert!(gone.out.contains("2 would change, 0 are undecidable, 2 stay as they were"), "{}", gone.out);
}

/// What is recorded says which tools are listed where not all fit: from the start after it was counted on, and not before.
#[test]
fn srf_2_what_was_called_lately_is_listed_first() {
    let head =
        "[telemetry]\naudit = { file = \"audit/audit.jsonl\" }\n[profiles.default]\nmax_tokens = 700\nrecent = \"7d\"";
    let mut setup = Setup::new().head(head).server("a", json!({"tool_count": 300}));
    let (listed, behind) = ("a__t000".to_owned(), "a__t299".to_owned());
    for run in 1..=3 {
        let mut host = setup.open(Era::Legacy);
        let tools = host.tools_until("a few are listed", |tools| tools.len() > 2);
        assert!(tools.len() < 300 && tools.contains(&listed), "{tools:?}");
        assert_eq!(tools.contains(&behind), run == 3, "run {run}: {tools:?}");
        host.call(&behind, "{}");
        if run == 2 {
            let folder = host.path("xdg/state/onegate/used");
            until("it is counted", PATIENCE, || std::fs::read_dir(&folder).is_ok_and(|files| files.count() == 1));
        }
        setup = host.leave();
    }
    let (_, shown) = setup.json(&["tools", "--json"]);
    let item = shown["items"].as_array().unwrap().iter().find(|item| item["exposed"] == *behind).unwrap();
    assert_eq!(item["listed"], true, "people are shown what hosts see");
}
