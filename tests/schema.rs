//! The checker of `tests/schema/checker.rs` itself: that it finds what is wrong, excuses what a peer began, and nothing more.
//!
//! Runs on schemas of its own, as small as they can be; and once on the published ones, where they are given.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on shall stop there")]

#[path = "schema/checker.rs"]
#[allow(dead_code, reason = "the harnesses use the rest")]
mod checker;

use checker::{Leg, Peers, Schemas};
use serde_json::{Value, json};

/// Schemas with a few definitions: a text block has `text`, a question has `message`, an `initialize` has capabilities.
fn small() -> Schemas {
    let folder = tempfile::tempdir().unwrap();
    let object = |required: &[&str], properties: Value| json!({"type": "object", "required": required, "properties": properties});
    let method = |name: &str, params: Value| object(&["method"], json!({"method": {"const": name}, "params": params}));
    let id = json!({"id": {"type": ["string", "integer"]}, "jsonrpc": {"const": "2.0"}});
    for name in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28", "ext-tasks"] {
        let is_modern = name == "2026-07-28";
        let result = if is_modern { vec!["resultType"] } else { vec![] };
        let text = object(&["type", "text"], json!({}));
        let call = [&["content"], &result[..]].concat();
        let definitions = json!({
            "JSONRPCRequest": object(&["jsonrpc", "id", "method"], id.clone()),
            "JSONRPCNotification": object(&["jsonrpc", "method"], json!({})),
            "JSONRPCResponse": object(&["jsonrpc", "id", "result"], id.clone()),
            "JSONRPCError": object(&["jsonrpc", "error"], json!({"error": {"required": ["code", "message"]}})),
            "CallToolRequest": method("tools/call", object(&["name"], json!({}))),
            "CallToolResult": object(&call, json!({"content": {"type": "array", "items": text}})),
            "InitializeRequest": method("initialize", json!({})),
            "InitializeResult": object(&["capabilities"], json!({})),
            "ElicitRequest": method("elicitation/create", object(&["message"], json!({}))),
            "ElicitResult": object(&["action"], json!({"action": {"enum": ["accept", "decline", "cancel"]}})),
            "CreateMessageRequest": method("sampling/createMessage", json!({})),
            "InputRequiredResult": object(&["resultType"], json!({})),
            "ProgressNotification": method("notifications/progress", object(&["progressToken"], json!({}))),
            "CreateTaskResult": object(&["taskId"], json!({})),
            "Result": object(&result, json!({})),
        });
        let word = if name < "2025-11-25" { "definitions" } else { "$defs" };
        std::fs::write(folder.path().join(format!("schema-{name}.json")), json!({word: definitions}).to_string())
            .unwrap();
    }
    Schemas::load(folder.path())
}

fn call(id: u64) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "t"}})
}

fn modern_call(id: u64) -> Value {
    let mut call = call(id);
    call["params"]["_meta"] = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28"});
    call
}

fn answer(id: u64, result: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": result})
}

/// What is found in the last message, which is the gateway's; the others are the peer's.
fn found(schemas: &Schemas, messages: &[Value]) -> Vec<String> {
    let (leg, mut peers) = (Leg::default(), Peers::default());
    let (last, first) = messages.split_last().unwrap();
    for message in first {
        leg.note(schemas, message.to_string().as_bytes(), &mut peers);
    }
    let found = leg.judge(schemas, last.to_string().as_bytes());
    peers.left(&found).into_iter().map(str::to_owned).collect()
}

#[test]
fn what_is_not_as_described_is_found_by_the_definition_of_its_method_and_revision() {
    let schemas = small();
    let block = |block: Value| json!({"content": [{"type": "text", "text": "x"}, block]});
    let initialize =
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-03-26"}});
    let required =
        json!({"resultType": "input_required", "inputRequests": {"a": {"method": "elicitation/create", "params": {}}}});
    let mut answers = modern_call(1);
    answers["params"]["inputResponses"] = json!({"a": {"action": "perhaps"}});
    for (what, messages, expected) in [
        ("a good one", vec![call(1), answer(1, block(json!({"type": "text", "text": ""})))], None),
        (
            "a bad block",
            vec![call(1), answer(1, block(json!({"type": "text"})))],
            Some("/result/content/*: required \"text\""),
        ),
        (
            "a result of the other era",
            vec![modern_call(1), answer(1, block(json!({"type": 1, "text": 2})))],
            Some("/result: required \"resultType\""),
        ),
        (
            "a bad request",
            vec![json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {}})],
            Some("/params: required \"name\""),
        ),
        ("no id", vec![call(1), json!({"jsonrpc": "2.0", "result": {}})], Some(": required \"id\"")),
        ("an id of another type", vec![json!({"jsonrpc": "2.0", "id": 1.5, "method": "x"})], Some("/id: type")),
        (
            "a bad error",
            vec![call(1), json!({"jsonrpc": "2.0", "id": 1, "error": {"code": 1}})],
            Some("/error: required \"message\""),
        ),
        (
            "a bad notification",
            vec![json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {}})],
            Some("/params: required \"progressToken\""),
        ),
        (
            "a bad opening",
            vec![initialize.clone(), answer(1, json!({"protocolVersion": "2025-03-26"}))],
            Some("2025-03-26 InitializeResult: /result: required \"capabilities\""),
        ),
        (
            "a bad question",
            vec![modern_call(1), answer(1, required)],
            Some("ElicitRequest: /params: required \"message\""),
        ),
        ("a bad answer to a question", vec![answers], Some("ElicitResult: /result/action: enum")),
        (
            "a bad task",
            vec![modern_call(1), answer(1, json!({"resultType": "task"}))],
            Some("/result: required \"taskId\""),
        ),
        ("an array", vec![json!([call(1)])], Some("this revision has no batches")),
    ] {
        let found = found(&schemas, &messages);
        match expected {
            None => assert!(found.is_empty(), "{what}: {found:?}"),
            Some(expected) => assert!(found.iter().any(|text| text.contains(expected)), "{what}: {found:?}"),
        }
    }
    assert_eq!(Leg::default().judge(&schemas, b"{").len(), 1);
    // Half a surrogate is JSON.
    assert!(Leg::default().judge(&schemas, br#"{"jsonrpc":"2.0","id":"\ud800\u00e9","method":"x"}"#).is_empty());
}

/// One leg brings it in, the other has it from there.
#[test]
fn what_a_peer_said_wrong_excuses_the_same_and_nothing_else() {
    let schemas = small();
    let bad = |block: Value| answer(1, json!({"content": [{"type": "text", "text": "x"}, block]}));
    for (what, heard, said, excused) in [
        ("the same", bad(json!({"type": "text"})), bad(json!({"type": "text", "more": 1})), true),
        ("something else there", bad(json!({"text": "x"})), bad(json!({"type": "text"})), false),
        ("something elsewhere", answer(1, json!({"content": 1})), bad(json!({"type": "text"})), false),
        ("nothing wrong", bad(json!({"type": "text", "text": "x"})), bad(json!({"type": "text"})), false),
    ] {
        let (server, host, mut peers) = (Leg::default(), Leg::default(), Peers::default());
        server.judge(&schemas, call(1).to_string().as_bytes());
        server.note(&schemas, heard.to_string().as_bytes(), &mut peers);
        host.note(&schemas, call(1).to_string().as_bytes(), &mut peers);
        let found = host.judge(&schemas, said.to_string().as_bytes());
        assert_eq!(peers.left(&found).is_empty(), excused, "{what}");
    }
}

#[test]
fn what_is_the_gateways_own_is_never_excused() {
    let schemas = small();
    let (server, host, mut peers) = (Leg::default(), Leg::default(), Peers::default());
    let bare = answer(1, json!({"content": []}));
    server.judge(&schemas, modern_call(1).to_string().as_bytes());
    // The server forgets `resultType`, which is for us to put there.
    server.note(&schemas, bare.to_string().as_bytes(), &mut peers);
    host.note(&schemas, modern_call(1).to_string().as_bytes(), &mut peers);
    let found = host.judge(&schemas, bare.to_string().as_bytes());
    assert_eq!(peers.left(&found).len(), 1);
    let opening =
        json!({"jsonrpc": "2.0", "id": 2, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}});
    let empty = answer(2, json!({}));
    server.judge(&schemas, opening.to_string().as_bytes());
    server.note(&schemas, empty.to_string().as_bytes(), &mut peers);
    host.note(&schemas, opening.to_string().as_bytes(), &mut peers);
    assert_eq!(peers.left(&host.judge(&schemas, empty.to_string().as_bytes())).len(), 1);
}

/// That the published ones are read, understood, and fail a test.
#[test]
fn the_published_schemas_find_a_bad_message_of_each_revision() {
    let Some(schemas) = Schemas::given() else {
        println!("skipped: {} is not set", checker::FOLDER);
        return;
    };
    for revision in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let (leg, mut peers) = (Leg::default(), Peers::default());
        let params =
            json!({"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}});
        let opening = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
        leg.note(schemas, opening.to_string().as_bytes(), &mut peers);
        let mut result = json!({"protocolVersion": revision, "capabilities": {}, "serverInfo": {"name": "t"}});
        let wrong = leg.judge(schemas, answer(1, result.clone()).to_string().as_bytes());
        assert!(peers.left(&wrong)[0].contains("required \"version\""), "{revision}");
        result["serverInfo"]["version"] = json!("0");
        assert!(leg.judge(schemas, answer(1, result).to_string().as_bytes()).is_empty(), "{revision}");
    }
    let leg = Leg::default();
    leg.heard(modern_call(1).to_string().as_bytes());
    leg.said(answer(1, json!({"resultType": "complete", "content": []})).to_string().as_bytes());
    leg.heard(modern_call(2).to_string().as_bytes());
    let bad = answer(2, json!({"resultType": "complete", "content": [{"type": "text"}]})).to_string();
    let silent = std::panic::AssertUnwindSafe(|| leg.said(bad.as_bytes()));
    assert!(std::panic::catch_unwind(silent).is_err(), "it let that pass");
}
