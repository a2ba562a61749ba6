//! Policy over HTTP: who comes with which key sees and may do what, in both eras.

use std::num::NonZeroU32;
use std::time::Duration;

use onegate::config::settings::{
    ApiKey, AuditSettings, Effect, LimitSettings, Per, PolicySettings, Rate, RuleSettings,
};
use serde_json::json;

use super::client::request;
use super::end::{modern, names, text, text_of};
use super::front::{Front, Setup, key, run};

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

fn setup() -> Setup {
    let allow = RuleSettings::new(Effect::Allow, ["group:dev"], ["a/tool/*"], "");
    let limit = LimitSettings {
        rate: Some(Rate { count: NonZeroU32::MIN, per: Duration::from_secs(3600) }),
        burst: NonZeroU32::new(2),
        ..LimitSettings::new(["*"], ["*/*/*"], Per::Principal, "")
    };
    let policy = PolicySettings {
        default: Some(Effect::Deny),
        rules: vec![allow],
        limits: vec![limit],
        ..PolicySettings::default()
    };
    let in_dev = |name: &str, secret: &str| ApiKey { groups: texts(&["dev"]), ..key(name, secret) };
    Setup {
        keys: Some(vec![in_dev("ann", "one"), in_dev("ben", "two"), key("eve", "three")]),
        policy,
        shared: true,
        ..Setup::default()
    }
}

const BEARERS: [&str; 3] = ["Bearer one", "Bearer two", "Bearer three"];

#[test]
fn e20_d102_d104_keys_are_apart_in_both_eras() {
    run(async {
        let (front, mut a) = Front::with(setup()).await;
        // Eve knows of nothing, in either era.
        let eve = [("Authorization", BEARERS[2])];
        let session = front.open_with("2025-11-25", &eve, json!({})).await;
        let in_session = [("Authorization", BEARERS[2]), ("Mcp-Session-Id", session.as_str())];
        let modern_headers = |bearer: &'static str, method: &'static str, name: &'static str| {
            vec![
                ("Authorization", bearer),
                ("MCP-Protocol-Version", "2026-07-28"),
                ("Mcp-Method", method),
                ("Mcp-Name", name),
            ]
        };
        for (headers, era_params) in [
            (in_session.to_vec(), json!({"name": "a__t", "arguments": {}})),
            (modern_headers(BEARERS[2], "tools/call", "a__t"), modern(json!({"name": "a__t", "arguments": {}}))),
        ] {
            let (_, answer) = front.ask("/mcp", &headers, &request(1, "tools/call", era_params)).await;
            assert_eq!(answer["error"]["code"], -32602, "{answer}");
        }
        let (_, listed) = front.ask("/mcp", &in_session, &request(2, "tools/list", json!({}))).await;
        assert_eq!(names(&listed), [""; 0]);
        let mut headers = modern_headers(BEARERS[0], "tools/list", "-");
        headers.pop();
        let (_, listed) = front.ask("/mcp", &headers, &request(2, "tools/list", modern(json!({})))).await;
        assert_eq!(names(&listed), ["a__t"]);
        assert_eq!(listed["result"]["cacheScope"], "private");
        // Ann's two calls come on connections of their own and are counted together; Ben has his.
        let call = request(1, "tools/call", modern(json!({"name": "a__t", "arguments": {}})));
        for (bearer, fits) in [(0, true), (0, true), (0, false), (1, true)] {
            let headers = modern_headers(BEARERS[bearer], "tools/call", "a__t");
            let serving = async {
                if fits {
                    let call = a.expect("tools/call").await;
                    a.result(&call, text("fine")).await;
                }
            };
            let ((head, answer), ()) = tokio::join!(front.ask("/mcp", &headers, &call), serving);
            assert_eq!(head.status, 200);
            if fits {
                assert_eq!(text_of(&answer), "fine");
            } else {
                let refusal = &answer["result"]["_meta"]["onegate/refusal"];
                assert_eq!(refusal["reason"], "rate-limited", "{answer}");
                assert!(refusal["retryAfterMs"].as_u64().unwrap() > 3_000_000, "{answer}");
            }
        }
        front.end().await;
    });
}

/// what comes over HTTP is written down with whose key it was, in both eras; so is a header that says otherwise than
/// its body (E-21).
#[test]
fn r36_e21_what_comes_over_http_is_written_down() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("audit.jsonl");
        let audit = AuditSettings::of(file.clone());
        let (front, mut a) = Front::with(Setup { audit: Some(audit), ..setup() }).await;
        let session = front.open_with("2025-11-25", &[("Authorization", BEARERS[2])], json!({})).await;
        let in_session = [("Authorization", BEARERS[2]), ("Mcp-Session-Id", session.as_str())];
        for (method, params) in [("tools/call", json!({"name": "a__t"})), ("acme/x", json!({}))] {
            front.ask("/mcp", &in_session, &request(1, method, params)).await;
        }
        let headers = |name: &'static str| {
            [
                ("Authorization", BEARERS[0]),
                ("MCP-Protocol-Version", "2026-07-28"),
                ("Mcp-Method", "tools/call"),
                ("Mcp-Name", name),
            ]
        };
        let call = request(1, "tools/call", modern(json!({"name": "a__t", "arguments": {}})));
        let (head, _) = front.ask("/mcp", &headers("a__cheap"), &call).await;
        assert_eq!(head.status, 400);
        let serving = async {
            let call = a.expect("tools/call").await;
            a.result(&call, text("fine")).await;
        };
        let headers = headers("a__t");
        tokio::join!(front.ask("/mcp", &headers, &call), serving);
        front.end().await;
        let written = std::fs::read_to_string(file).unwrap();
        assert!(!written.contains(&session), "a session's name is a secret");
        let records = written.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let told: Vec<_> = records
            .filter(|record| record.get("event").is_none())
            .map(|record| {
                let members = ["principal", "method", "verdict", "reason", "groups"];
                members.map(|member| record[member].as_str().map_or(record[member].to_string(), str::to_owned))
            })
            .collect();
        assert_eq!(
            told,
            [
                ["key:eve", "tools/call", "hidden", "not-allowed", "[]"],
                ["key:eve", "acme/x", "refuse", "unknown-method", "[]"],
                ["key:ann", "tools/call", "refuse", "header-mismatch", "[\"dev\"]"],
                ["key:ann", "tools/call", "allow", "null", "[\"dev\"]"],
            ]
        );
    });
}
