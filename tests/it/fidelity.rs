//! Class F for tools: definitions and results arrive as they were sent (D044–D054).

use std::net::TcpListener;

use serde_json::{Value, json};

use crate::host::{CELLS, Era, Setup};

/// The definition as the host should see it: the same bytes but for the name.
fn exposed(raw: &str, native: &str, name: &str) -> String {
    raw.replacen(&format!("\"name\":\"{native}\""), &format!("\"name\":\"{name}\""), 1)
}

fn passes(definitions: &[(&str, &str)]) {
    for (host_era, era) in CELLS {
        let raws: Vec<&str> = definitions.iter().map(|(_, raw)| *raw).collect();
        let mut host = Setup::new().server("a", json!({"tools": raws, "era": era.word()})).open(host_era);
        host.tools_count(definitions.len());
        for (got, (native, raw)) in host.tools_raw().iter().zip(definitions) {
            assert_eq!(*got, exposed(raw, native, &format!("a__{native}")), "{host_era:?} {era:?}");
        }
        host.finish();
    }
}

#[test]
fn d044_schemas_keep_every_keyword() {
    passes(&[
        (
            "defs",
            r##"{"name":"defs","inputSchema":{"type":"object","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"type":"string"}},"definitions":{"c":{}},"properties":{"x":{"$ref":"#/$defs/a"}}}}"##,
        ),
        (
            "logic",
            r#"{"name":"logic","inputSchema":{"type":"object","anyOf":[{"required":["a"]},{"required":["b"]}],"if":{"properties":{"a":{"const":1}}},"then":{"required":["c"]},"else":false,"not":{},"oneOf":[{}],"allOf":[]}}"#,
        ),
        (
            "pattern",
            r#"{"name":"pattern","inputSchema":{"type":"object","patternProperties":{"^x-":{"type":"string","pattern":"^\\d+$"}},"additionalProperties":false,"propertyNames":{"maxLength":3},"x-vendor":{"y":[1,2.0,1E2]},"minProperties":0}}"#,
        ),
        (
            "draft",
            r#"{"name":"draft","inputSchema":{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","dependencies":{"a":["b"]}}}"#,
        ),
        (
            "out",
            r#"{"name":"out","outputSchema":{"type":"object","properties":{"n":{"type":"number"}}},"inputSchema":{"type":"object"}}"#,
        ),
        ("space", r#"{ "name":"space" , "inputSchema" : { "type" : "object" , "default" : -0.0 } }"#),
    ]);
}

#[test]
fn d045_one_bad_definition_costs_itself_only() {
    let bad = [
        ("noschema", r#"{"name":"noschema"}"#),
        ("nullschema", r#"{"name":"nullschema","inputSchema":null}"#),
        ("trueschema", r#"{"name":"trueschema","inputSchema":true}"#),
        ("textschema", r#"{"name":"textschema","inputSchema":"object"}"#),
        ("arrayschema", r#"{"name":"arrayschema","inputSchema":[]}"#),
        ("stringtype", r#"{"name":"stringtype","inputSchema":{"type":"string"}}"#),
        ("", r#"{"inputSchema":{"type":"object"},"title":"noname"}"#),
        ("", r#"{"name":7,"inputSchema":{"type":"object"}}"#),
        ("", "null"),
        ("", "7"),
        ("", "\"text\""),
        ("", "[]"),
        ("", "{}"),
    ];
    let good = [
        ("first", r#"{"name":"first","inputSchema":{"type":"object"}}"#),
        ("dialect", r#"{"name":"dialect","inputSchema":{"$schema":"https://example.com/unknown","type":"object"}}"#),
        ("last", r#"{"name":"last","inputSchema":{"type":"object","properties":{}}}"#),
    ];
    for (host_era, era) in CELLS {
        let mut tools = vec![good[0].1, good[1].1];
        tools.extend(bad.iter().map(|(_, raw)| *raw));
        tools.push(good[2].1);
        let mut host = Setup::new().server("srv", json!({"tools": tools, "era": era.word()})).open(host_era);
        host.tools_count(good.len());
        for (got, (native, raw)) in host.tools_raw().iter().zip(good) {
            assert_eq!(*got, exposed(raw, native, &format!("srv__{native}")));
        }
        for (name, _) in bad.iter().filter(|(name, _)| !name.is_empty()) {
            host.wait_stderr(name);
            assert_eq!(host.call(&format!("srv__{name}"), "{}").code(), -32602);
        }
        assert_eq!(host.call("srv__last", "{}").text(), "srv:last");
        host.finish();
    }
}

/// LST-4, LST-5.
#[test]
fn d046_optional_and_unknown_fields_pass() {
    passes(&[
        (
            "full",
            r#"{"title":"T","name":"full","description":"d \u00e9 \/","icons":[{"src":"https://x.example/i.png","mimeType":"image/png","sizes":["48x48"],"theme":"dark"}],"inputSchema":{"type":"object"},"annotations":{"title":"A","readOnlyHint":true,"destructiveHint":false,"idempotentHint":true,"openWorldHint":false,"x":1},"_meta":{"vendor.example/k":{"deep":[1,{"a":null}]},"plain":1},"futureField":{"z":1,"a":2},"x-y":null}"#,
        ),
        ("bare", r#"{"inputSchema":{"type":"object"},"name":"bare"}"#),
        (
            "nulls",
            r#"{"name":"nulls","title":null,"description":null,"inputSchema":{"type":"object"},"annotations":null,"_meta":null}"#,
        ),
    ]);
}

/// The tool answers `raw`; the host must get the members named, byte for byte.
fn result_passes(raw: &str, members: &[&str]) {
    for (host_era, era) in CELLS {
        let mut host = Setup::new()
            .server("a", json!({"tool_count": 1, "era": era.word(), "act": {"do": "result", "result": raw}}))
            .open(host_era);
        host.tools_count(1);
        let answer = host.call("a__t000", "{}");
        let sent: crate::host::Members = serde_json::from_str(raw).unwrap();
        for member in members {
            let got = answer.result_raw(member);
            assert_eq!(
                got.as_deref(),
                sent.get(*member).map(|v| v.get()),
                "{member} {host_era:?} {era:?}: {}",
                answer.line
            );
        }
        assert_eq!(answer.result_raw("resultType").is_some(), host_era == Era::Modern, "{}", answer.line);
        host.finish();
    }
}

#[test]
fn d047_structured_content_passes_with_and_without_schema() {
    let result = r#"{"content":[{"type":"text","text":"{}"}],"structuredContent":{"n":1.0,"big":123456789012345678901,"e":1E2,"z":0,"a":[{}]}}"#;
    result_passes(result, &["content", "structuredContent"]);
    let tool = r#"{"name":"t","inputSchema":{"type":"object"},"outputSchema":{"type":"object","properties":{"n":{"type":"number"}}}}"#;
    for (host_era, era) in CELLS {
        let mut host = Setup::new()
            .server("a", json!({"tools": [tool], "era": era.word(), "act": {"do": "result", "result": r#"{"content":[],"structuredContent":{"n":"not a number"}}"#}}))
            .open(host_era);
        host.tools_count(1);
        assert_eq!(host.tools_raw(), [exposed(tool, "t", "a__t")]);
        let answer = host.call("a__t", "{}");
        assert_eq!(answer.result_raw("structuredContent").unwrap(), r#"{"n":"not a number"}"#);
        host.finish();
    }
}

#[test]
fn d047_structured_content_that_is_no_object_reaches_modern_hosts() {
    for value in ["null", "7", "[1,2]", "\"text\"", "false", "1E400"] {
        let raw = format!(r#"{{"content":[{{"type":"text","text":"x"}}],"structuredContent":{value}}}"#);
        let mut host = Setup::new()
            .server("a", json!({"tool_count": 1, "era": "modern", "act": {"do": "result", "result": raw}}))
            .open(Era::Modern);
        host.tools_count(1);
        assert_eq!(host.call("a__t000", "{}").result_raw("structuredContent").as_deref(), Some(value));
        // A legacy host knows objects only: it gets the JSON as text.
        host.initialize("2025-11-25");
        let answer = host.call("a__t000", "{}");
        assert_eq!(answer.result_raw("structuredContent"), None, "{}", answer.line);
        let content = answer.value()["content"].clone();
        assert_eq!(content[0]["text"], "x");
        assert!(content.as_array().unwrap().iter().any(|b| b["text"] == value), "{}", answer.line);
        host.finish();
    }
}

#[test]
fn d048_foreign_meta_keys_pass_both_ways() {
    let raw = r#"{"content":[{"type":"text","text":"x","_meta":{"v/block":[1.0]}}],"_meta":{"vendor.example/r":{"a":1E2},"plain":"p","z":null}}"#;
    for (host_era, era) in CELLS {
        let mut host = Setup::new()
            .server("a", json!({"tool_count": 2, "era": era.word(), "acts": {"t000": {"do": "line"}, "t001": {"do": "result", "result": raw}}}))
            .open(host_era);
        host.tools_count(2);
        let own = r#""vendor.example/q":{"deep":[1.0,1E2]},"plain":null,"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","tracestate":"a=b""#;
        let id =
            host.post_meta("tools/call", r#""name":"a__t000","arguments":{"_meta":{"x":1}},"vendorParam":[1.0]"#, own);
        let line = host.answer(&id).text();
        let sent: Value = serde_json::from_str(&line).unwrap();
        let meta = &sent["params"]["_meta"];
        assert!(line.contains(r#""vendor.example/q":{"deep":[1.0,1E2]}"#), "{line}");
        assert!(line.contains(r#""vendorParam":[1.0]"#), "{line}");
        assert_eq!(meta.get("plain"), Some(&Value::Null));
        assert_eq!(meta["traceparent"], "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
        assert_eq!(meta["tracestate"], "a=b");
        assert_eq!(sent["params"]["arguments"], json!({"_meta": {"x": 1}}));
        // The keys of a leg are made anew on each leg.
        assert!(!line.contains("test-host"), "{line}");
        let version = meta.get("io.modelcontextprotocol/protocolVersion");
        assert_eq!(version.is_some(), era == Era::Modern, "{line}");

        let answer = host.call("a__t001", "{}");
        assert_eq!(answer.result_raw("content").unwrap(), r#"[{"type":"text","text":"x","_meta":{"v/block":[1.0]}}]"#);
        let meta = answer.result_raw("_meta").unwrap();
        for part in [r#""vendor.example/r":{"a":1E2}"#, r#""plain":"p""#, r#""z":null"#] {
            assert!(meta.contains(part), "{meta}");
        }
        host.finish();
    }
}

#[test]
fn d048_the_server_info_of_a_server_is_replaced_by_ours() {
    let raw =
        r#"{"content":[],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"THEIRS","version":"9"},"keep":1}}"#;
    for era in Era::ALL {
        let mut host = Setup::new()
            .server("a", json!({"tool_count": 1, "era": "modern", "act": {"do": "result", "result": raw}}))
            .open(era);
        host.tools_count(1);
        let answer = host.call("a__t000", "{}");
        assert!(!answer.line.contains("THEIRS"), "{}", answer.line);
        assert_eq!(answer.value()["_meta"]["keep"], 1);
        host.finish();
    }
}

/// CALL-2.
#[test]
fn d049_error_results_pass() {
    for raw in [
        r#"{"isError":true,"content":[{"type":"text","text":"it failed"}]}"#,
        r#"{"content":[{"type":"image","data":"aGk=","mimeType":"image/png"}],"isError":true}"#,
        r#"{"content":[],"isError":true}"#,
        r#"{"content":[{"type":"text","text":""}],"isError":true,"structuredContent":{"code":7}}"#,
        r#"{"content":[],"isError":false}"#,
        r#"{"content":[{"type":"text","text":"x"}],"isError":null}"#,
    ] {
        result_passes(raw, &["content", "isError", "structuredContent"]);
    }
}

#[test]
fn d050_errors_of_servers_pass() {
    for (host_era, era) in CELLS {
        for (code, data) in [
            ("-32602", r#"{"field":"path","why":[1.0,1E2]}"#),
            ("-32601", r#"{"method":"x"}"#),
            ("-32603", "\"text\""),
            ("-32000", "null"),
            ("-32019", "[]"),
            ("-1", "{}"),
            ("42", r#"{"retry":false}"#),
            ("7001", "1.50"),
            ("0", "false"),
        ] {
            let error = format!(r#"{{"code":{code},"message":"their wörds \u00e9","data":{data}}}"#);
            let mut host = Setup::new()
                .server("a", json!({"tool_count": 1, "era": era.word(), "act": {"do": "error", "error": error}}))
                .open(host_era);
            host.tools_count(1);
            let answer = host.call("a__t000", "{}");
            assert_eq!(answer.code().to_string(), code, "{}", answer.line);
            assert_eq!(answer.error()["message"], "their wörds é");
            let raw: crate::host::Members = serde_json::from_str(answer.raw("error").unwrap()).unwrap();
            assert_eq!(raw.get("data").map(|d| d.get()), Some(data), "{}", answer.line);
            host.finish();
        }
    }
}

#[test]
fn d050_codes_that_belong_to_a_leg_are_ours() {
    for (host_era, era) in CELLS {
        for code in [-32020, -32022, -32050, -32099] {
            let error = format!(r#"{{"code":{code},"message":"theirs"}}"#);
            let mut host = Setup::new()
                .server("a", json!({"tool_count": 1, "era": era.word(), "act": {"do": "error", "error": error}}))
                .open(host_era);
            host.tools_count(1);
            let answer = host.call("a__t000", "{}");
            // §16.2: version and header faults are between us and the server; undefined ones must not pass.
            assert_eq!(answer.code(), -32603, "{code}: {}", answer.line);
            assert_eq!(answer.error()["data"]["server"], "a", "{code}: {}", answer.line);
            host.finish();
        }
    }
}

#[test]
fn d051_all_kinds_of_content_pass_in_order() {
    let raw = r#"{"content":[{"type":"text","text":"a\u00e9\/"},{"type":"image","data":"aGk=","mimeType":"image/png","annotations":{"audience":["user"],"priority":0.50}},{"mimeType":"audio/wav","type":"audio","data":"aGk="},{"type":"resource_link","uri":"file:///a%2Fb","name":"n","size":12345678901234567890,"icons":[]},{"type":"resource","resource":{"uri":"x://y","text":"t"}},{"type":"resource","resource":{"uri":"x://z","blob":"aGk="}},{"type":"vendor/new","x":[1.0]},{"type":"text","text":"last"}],"structuredContent":{"b":1,"a":2},"vendorMember":{"k":1E2}}"#;
    result_passes(raw, &["content", "structuredContent", "vendorMember"]);
}

#[test]
fn d052_missing_empty_and_null_arguments() {
    for (host_era, era) in CELLS {
        let mut host =
            Setup::new().server("a", json!({"tool_count": 1, "era": era.word(), "act": {"do": "line"}})).open(host_era);
        host.tools_count(1);
        for members in
            [r#""name":"a__t000""#, r#""name":"a__t000","arguments":{}"#, r#""arguments":null,"name":"a__t000""#]
        {
            let line = host.ask("tools/call", members).text();
            let sent: Value = serde_json::from_str(&line).unwrap();
            let arguments = sent["params"].get("arguments");
            assert!(arguments.is_none_or(|a| *a == json!({})), "{members} became {line}");
        }
        let before = host.received_of("a", "tools/call").len();
        for arguments in ["[]", "[{}]", "\"{}\"", "\"\"", "7", "0", "true", "false"] {
            let answer = host.ask("tools/call", &format!(r#""name":"a__t000","arguments":{arguments}"#));
            assert_eq!(answer.code(), -32602, "{arguments}");
        }
        for members in [
            "",
            r#""arguments":{}"#,
            r#""name":null"#,
            r#""name":7"#,
            r#""name":["a__t000"]"#,
            r#""name":{"a__t000":1}"#,
            r#""Name":"a__t000""#,
        ] {
            assert_eq!(host.ask("tools/call", members).code(), -32602, "{members}");
        }
        assert_eq!(host.received_of("a", "tools/call").len(), before);
        host.finish();
    }
}

#[test]
fn d053_lists_with_null_and_without_params() {
    let mut host = Setup::new().server("a", json!({"tool_count": 1})).open(Era::Legacy);
    host.tools_count(1);
    for (id, params) in [
        ("901", ""),
        ("902", r#","params":null"#),
        ("903", r#","params":{}"#),
        ("904", r#","params":{"cursor":null}"#),
        ("905", r#","params":{"_meta":null}"#),
    ] {
        host.send(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list"{params}}}"#));
        assert_eq!(host.answer(id).value()["tools"].as_array().unwrap().len(), 1, "{params}");
    }
    host.send(r#"{"jsonrpc":"2.0","id":906,"method":"ping","params":null}"#);
    assert_eq!(host.answer("906").result(), "{}");
    for line in host.received("a") {
        assert!(!line.contains(r#""params":null"#), "{line}");
    }
    host.finish();
}

#[test]
fn d054_references_in_schemas_are_never_fetched() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let setup = Setup::new();
    let file = setup.path("schema.json");
    std::fs::write(&file, "{}").unwrap();
    let tool = |name: &str, target: &str| {
        format!(
            r#"{{"name":"{name}","inputSchema":{{"type":"object","$schema":"{target}","$id":"{target}","properties":{{"x":{{"$ref":"{target}"}}}}}},"outputSchema":{{"type":"object","$ref":"{target}"}},"icons":[{{"src":"{target}"}}]}}"#
        )
    };
    let tools = [
        tool("http", &format!("http://127.0.0.1:{port}/s")),
        tool("https", &format!("https://127.0.0.1:{port}/s")),
        tool("file", &format!("file://{}", file.display())),
    ];
    let mut host = setup.server("a", json!({"tools": tools})).open(Era::Legacy);
    host.tools_count(3);
    for name in ["http", "https", "file"] {
        assert_eq!(host.call(&format!("a__{name}"), r#"{"x":1}"#).text(), format!("a:{name}"));
    }
    host.finish();
    assert!(listener.accept().is_err(), "somebody fetched a reference");
}
