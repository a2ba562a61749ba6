//! The record of decisions: each path of a request leaves one, which says what was decided and what came of it.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use onegate::config::settings::{
    Attempts, AuditSettings, Check, Condition, Effect, LimitSettings, Per, PolicySettings, Rate, RuleSettings,
};
use onegate::telemetry::audit::verify::verify;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::sleep;

use super::end::{End, list_of, modern_as, text};
use super::full::{CELLS, Era, Full};
use super::world::{World, server};

const EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// A world that writes down what it decides.
struct Written {
    world: World,
    folder: TempDir,
}

impl Written {
    fn new(policy: PolicySettings, values: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("audit.jsonl");
        let values = values.iter().map(|&pointer| pointer.to_owned()).collect();
        let audit = AuditSettings { values, ..AuditSettings::of(file) };
        let world = World::with(vec![server("a")], |settings| {
            settings.policy = policy;
            settings.telemetry.audit = Some(audit);
        });
        Self { world, folder }
    }

    /// The server `a`, which is up, and a host that has opened.
    async fn one(&mut self, era: Era, server_era: Era) -> (End, Full) {
        let mut a = Full::new(self.world.accept("a").await, server_era);
        a.tools = list_of(&["t", "open"])["tools"].clone();
        a.settle().await;
        let mut host = self.world.host();
        era.open(&mut host).await;
        (host, a)
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("audit.jsonl")
    }

    /// Ends the world; all that was written, which is whole.
    async fn text(self) -> String {
        let file = self.file();
        let Self { world, folder } = self;
        world.end().await;
        let reports = verify(std::slice::from_ref(&file)).unwrap();
        assert_eq!(reports[0].broken, None);
        let text = std::fs::read_to_string(file).unwrap();
        drop(folder);
        text
    }

    /// Ends the world; the decisions that were written.
    async fn records(self) -> Vec<Value> {
        records(&self.text().await)
    }
}

fn records(text: &str) -> Vec<Value> {
    let all = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    all.filter(|record| record.get("event").is_none()).collect()
}

/// What tests compare of a record.
fn short(record: &Value) -> [&str; 5] {
    ["method", "exposed", "native", "verdict", "outcome"].map(|member| record[member].as_str().unwrap_or("-"))
}

fn rule(effect: Effect, target: &str, conditions: Vec<Condition>) -> RuleSettings {
    RuleSettings { conditions, ..RuleSettings::new(effect, ["*"], [target], "here") }
}

fn below_srv(target: &str) -> RuleSettings {
    let checks = vec![Check::PathUnder(vec!["/srv".into()])];
    rule(Effect::Allow, target, vec![Condition { pointer: "/path".into(), optional: false, checks }])
}

fn denied_but(rules: Vec<RuleSettings>) -> PolicySettings {
    PolicySettings { default: Some(Effect::Deny), rules, ..PolicySettings::default() }
}

/// E-20, R-36: what is refused leaves a record by every method, in all cells, and so does what is allowed.
#[tokio::test(start_paused = true)]
async fn r36_e20_every_path_leaves_a_record_in_all_cells() {
    for (era, server_era) in CELLS {
        let policy = denied_but(vec![rule(Effect::Allow, "a/tool/open", Vec::new())]);
        let mut written = Written::new(policy, &[]);
        let (mut host, mut a) = written.one(era, server_era).await;
        let completing = |reference: Value| json!({"ref": reference, "argument": {"name": "id", "value": ""}});
        for (method, params) in [
            ("tools/call", json!({"name": "a__t", "arguments": {}})),
            ("tools/call", json!({"name": "a__t", "requestState": "x", "inputResponses": {}})),
            ("tools/call", json!({"name": "a__none"})),
            ("prompts/get", json!({"name": "a__p"})),
            ("resources/read", json!({"uri": "x:1"})),
            ("completion/complete", completing(json!({"type": "ref/prompt", "name": "a__p"}))),
            ("completion/complete", completing(json!({"type": "ref/resource", "uri": "x:{id}"}))),
            ("acme/method", json!({})),
        ] {
            let answer = era.get(&mut host, method, params).await;
            assert!(answer["error"]["code"].is_i64(), "{answer}");
        }
        let subscribing = if era == Era::Legacy {
            era.get(&mut host, "resources/subscribe", json!({"uri": "x:1"})).await;
            "resources/subscribe"
        } else {
            let params = json!({"notifications": {"resourceSubscriptions": ["x:1"]}});
            host.ask("listen", "subscriptions/listen", era.params(params)).await;
            host.expect("notifications/subscriptions/acknowledged").await;
            "subscriptions/listen"
        };
        for (id, result) in [(1, text("fine")), (2, json!({"content": [], "isError": true}))] {
            host.ask(id, "tools/call", era.params(json!({"name": "a__open", "arguments": {"n": id}}))).await;
            let call = a.expect("tools/call").await;
            a.end.result(&call, result).await;
            host.answer(id).await;
        }
        host.ask(3, "tools/call", era.params(json!({"name": "a__open"}))).await;
        let call = a.expect("tools/call").await;
        a.end.error(&call, 77).await;
        host.answer(3).await;
        host.ask(4, "tools/call", era.params(json!({"name": "a__open"}))).await;
        a.expect("tools/call").await;
        host.tell("notifications/cancelled", json!({"requestId": 4})).await;
        sleep(Duration::from_secs(1)).await;
        let records = written.records().await;
        let told: Vec<_> = records.iter().map(short).collect();
        let expected = [
            ["tools/call", "a__t", "t", "hidden", "refused"],
            ["tools/call", "a__t", "t", "hidden", "refused"],
            ["tools/call", "a__none", "-", "unknown", "refused"],
            ["prompts/get", "a__p", "p", "hidden", "refused"],
            ["resources/read", "x:1", "x:1", "hidden", "refused"],
            ["completion/complete", "a__p", "p", "hidden", "refused"],
            ["completion/complete", "x:{id}", "x:{id}", "hidden", "refused"],
            ["acme/method", "-", "-", "refuse", "refused"],
            [subscribing, "x:1", "x:1", "hidden", "refused"],
            ["tools/call", "a__open", "open", "allow", "ok"],
            ["tools/call", "a__open", "open", "allow", "is_error"],
            ["tools/call", "a__open", "open", "allow", "error"],
            ["tools/call", "a__open", "open", "allow", "cancelled"],
        ];
        assert_eq!(told, expected, "{era:?} {server_era:?}");
        assert_eq!((&records[0]["reason"], &records[0]["rule"]), (&json!("not-allowed"), &json!("policy.default")));
        assert_eq!((&records[0]["server"], &records[0]["kind"]), (&json!("a"), &json!("tool")));
        assert_eq!(records[7]["reason"], "unknown-method");
        assert_eq!((&records[9]["rule"], &records[9]["reason"]), (&json!("here"), &Value::Null));
        assert_eq!(records[11]["code"], 77);
        assert_eq!(records[9]["shape"], records[10]["shape"], "values differ, the shape does not");
        assert_ne!(records[9]["shape"], records[11]["shape"]);
        let session = records[9]["session"].as_str().unwrap();
        assert_eq!(session.ends_with("-0"), era == Era::Legacy, "{session}");
        for record in &records {
            assert_eq!(record["principal"], "stdio");
            assert_eq!(record["policy"].as_str().unwrap().len(), 16, "{record}");
            assert!(record["pin"].is_null() && record["time"].is_string() && record["duration_ms"].is_number());
        }
    }
}

/// a legacy batch is many requests, each with its record.
#[tokio::test(start_paused = true)]
async fn r36_e20_each_part_of_a_batch_leaves_a_record() {
    let mut written = Written::new(denied_but(vec![rule(Effect::Allow, "a/prompt/*", Vec::new())]), &[]);
    let (_, mut a) = written.one(Era::Modern, Era::Legacy).await;
    let mut host = written.world.host();
    host.open("2025-03-26").await;
    let batch: Vec<_> = (1..4)
        .map(|id| json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "a__t"}}))
        .collect();
    host.raw(format!("{}\n", json!(batch))).await;
    assert_eq!(host.next().await.unwrap().as_array().map(Vec::len), Some(3));
    a.quiet(Duration::from_secs(1)).await;
    let records = written.records().await;
    assert_eq!(records.iter().filter(|record| record["verdict"] == "hidden").count(), 3, "{records:?}");
}

/// values are in no record but those that the operator named, whatever was decided.
#[tokio::test(start_paused = true)]
async fn r36_values_are_left_out_but_those_that_were_named() {
    for values in [&[][..], &["/path"]] {
        let policy = denied_but(vec![below_srv("a/tool/t"), below_srv("a/prompt/p")]);
        let mut written = Written::new(policy, values);
        let (mut host, mut a) = written.one(Era::Modern, Era::Modern).await;
        for (method, name) in [("tools/call", "a__t"), ("prompts/get", "a__p")] {
            let arguments = json!({"path": "/etc/hush\u{202e}", "token": "hush-hush"});
            Era::Modern.get(&mut host, method, json!({"name": name, "arguments": arguments})).await;
        }
        let params =
            json!({"ref": {"type": "ref/prompt", "name": "a__p"}, "argument": {"name": "path", "value": "/x"}});
        Era::Modern.get(&mut host, "completion/complete", params).await;
        let arguments = json!({"path": "/srv/x", "token": "hush-hush"});
        host.ask(1, "tools/call", Era::Modern.params(json!({"name": "a__t", "arguments": arguments}))).await;
        let call = a.expect("tools/call").await;
        a.end.result(&call, text("hush-hush")).await;
        host.answer(1).await;
        let all = written.text().await;
        assert!(!all.contains("hush-hush") && !all.contains('\u{202e}'), "{all}");
        let records = records(&all);
        let verdicts: Vec<_> = records.iter().map(|record| record["verdict"].as_str().unwrap()).collect();
        assert_eq!(verdicts, ["refuse", "refuse", "refuse", "allow"]);
        assert!(records[..3].iter().all(|record| record["reason"] == "argument-not-allowed"), "{all}");
        assert!(records.iter().all(|record| record["shape"].is_string()), "{all}");
        let named: Vec<_> = records.iter().map(|record| record["values"]["/path"].clone()).collect();
        if values.is_empty() {
            assert!(!all.contains("/etc") && !all.contains("/srv"), "{all}");
        } else {
            assert_eq!(named, ["/etc/hush\u{202e}", "/etc/hush\u{202e}", "/x", "/srv/x"]);
        }
    }
}

/// each round of input, each question about a task, and what nobody was given.
#[tokio::test(start_paused = true)]
async fn r36_e20_rounds_and_tasks_leave_records() {
    let mut written = Written::new(PolicySettings::default(), &[]);
    let mut a = written.world.accept("a").await;
    let capabilities = json!({"tools": {"listChanged": true}, "extensions": {EXTENSION: {}}});
    a.modern_with(&["t"], capabilities).await;
    let mut host = written.world.host();
    let takes = json!({"extensions": {EXTENSION: {}}, "elicitation": {"form": {}}});
    let params = |params: Value| modern_as(params, takes.clone());
    host.ask(1, "tools/call", params(json!({"name": "a__t", "arguments": {}}))).await;
    let call = a.expect("tools/call").await;
    let form = json!({"message": "?", "requestedSchema": {"type": "object", "properties": {}}});
    let question = json!({"q": {"method": "elicitation/create", "params": form}});
    let required = json!({"resultType": "input_required", "inputRequests": question, "requestState": "s"});
    a.result(&call, required).await;
    let state = host.answer(1).await["result"]["requestState"].clone();
    let round = json!({"name": "a__t", "arguments": {}, "requestState": state,
        "inputResponses": {"q": {"action": "accept", "content": {}}}});
    host.ask(2, "tools/call", params(round)).await;
    let call = a.expect("tools/call").await;
    let task = |more: Value| {
        let mut task = json!({"taskId": "n", "status": "working", "createdAt": "2026-08-01T10:00:00Z",
            "lastUpdatedAt": "2026-08-01T10:00:00Z", "ttlMs": 600_000});
        more.as_object().unwrap().iter().for_each(|(key, value)| task[key] = value.clone());
        task
    };
    a.result(&call, task(json!({"resultType": "task"}))).await;
    let id = host.answer(2).await["result"]["taskId"].clone();
    host.ask(3, "tasks/get", params(json!({"taskId": id}))).await;
    let asked = a.expect("tasks/get").await;
    a.result(&asked, task(json!({"resultType": "complete"}))).await;
    host.answer(3).await;
    host.ask(4, "tasks/cancel", params(json!({"taskId": "t1.none"}))).await;
    host.answer(4).await;
    let about = params(json!({"notifications": {"taskIds": [id.clone(), "t1.none"]}}));
    host.ask("listen", "subscriptions/listen", about).await;
    sleep(Duration::from_secs(10)).await;
    let records = written.records().await;
    let told: Vec<_> = records
        .iter()
        .map(|record| ["method", "native", "verdict"].map(|member| record[member].as_str().unwrap_or("-")))
        .collect();
    assert_eq!(
        told[..4],
        [
            ["tools/call", "t", "allow"],
            ["tools/call", "t", "allow"],
            ["tasks/get", "t", "allow"],
            ["tasks/cancel", "-", "unknown"],
        ]
    );
    let mut watched: Vec<_> = told[4..].to_vec();
    watched.sort_unstable();
    assert_eq!(watched, [["subscriptions/listen", "-", "unknown"], ["subscriptions/listen", "t", "allow"]]);
    let outcomes: Vec<_> = records[..4].iter().map(|record| record["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["input", "task", "task", "refused"]);
}

/// R-36, D-32: what limits refuse names the limit; a flood is written down too, and what shadow mode lets through.
#[tokio::test(start_paused = true)]
async fn r36_d32_limits_floods_and_shadow_mode_leave_records() {
    let limit = LimitSettings {
        rate: Some(Rate { count: NonZeroU32::MIN, per: Duration::from_secs(3600) }),
        ..LimitSettings::new(["*"], ["a/tool/*"], Per::Principal, "there")
    };
    let attempts = Attempts { burst: NonZeroU32::new(2).unwrap(), ..Attempts::default() };
    for shadow in [false, true] {
        let policy = PolicySettings {
            default: Some(Effect::Allow),
            shadow,
            attempts,
            rules: vec![rule(Effect::Deny, "a/prompt/p", Vec::new())],
            limits: vec![limit.clone()],
        };
        let mut written = Written::new(policy, &[]);
        let (mut host, mut a) = written.one(Era::Legacy, Era::Legacy).await;
        for id in 0..2 {
            host.call(id, "a__t").await;
            if shadow || id == 0 {
                let call = a.expect("tools/call").await;
                a.end.result(&call, text("x")).await;
            }
            host.answer(id).await;
        }
        if shadow {
            host.ask(2, "prompts/get", json!({"name": "a__p"})).await;
            let asked = a.expect("prompts/get").await;
            a.end.result(&asked, json!({"messages": []})).await;
            host.answer(2).await;
        } else {
            for id in 2..5 {
                host.call(id, "a__none").await;
                host.answer(id).await;
            }
        }
        let records = written.records().await;
        let told: Vec<_> = records
            .iter()
            .map(|record| ["verdict", "reason", "rule"].map(|member| record[member].as_str().unwrap_or("-")))
            .collect();
        if shadow {
            assert_eq!(
                told,
                [
                    ["allow", "-", "policy.default"],
                    ["shadow", "rate-limited", "there"],
                    ["shadow", "not-allowed", "here"],
                ]
            );
        } else {
            assert_eq!(told[..2], [["allow", "-", "policy.default"], ["refuse", "rate-limited", "there"]]);
            assert_eq!(told.last(), Some(&["refuse", "rate-limited", "policy.attempts"]), "{told:?}");
            assert!(told.contains(&["unknown", "unknown", "-"]), "{told:?}");
        }
    }
}

/// a call whose server dies, and one that is on its way when we end, have an end in the record.
#[tokio::test(start_paused = true)]
async fn r36_calls_that_fail_or_do_not_end_leave_records() {
    let mut written = Written::new(PolicySettings::default(), &[]);
    let (mut host, mut a) = written.one(Era::Legacy, Era::Legacy).await;
    host.call(1, "a__t").await;
    a.expect("tools/call").await;
    drop(a);
    host.next_but_lists().await;
    host.call(2, "a__t").await;
    let mut a = Full::new(written.world.accept("a").await, Era::Legacy);
    a.expect("tools/call").await;
    let records = written.records().await;
    assert_eq!(records.len(), 2, "{records:?}");
    assert_eq!((&records[0]["outcome"], &records[0]["error"]), (&json!("error"), &json!("downstream-unavailable")));
    assert_eq!(records[1]["verdict"], "allow");
    assert!(["error", "cancelled"].contains(&records[1]["outcome"].as_str().unwrap()), "{}", records[1]);
}
