//! `onegate run --connect`: the stdio front to a team's gateway is to its host what a gateway with the same servers is.

use std::time::Duration;

use onegate::config::keys::NewKey;
use serde_json::{Value, json};

use crate::host::{Era, Host, PATIENCE, Setup, until};
use crate::http::Caller;

/// Where it says that it listens.
fn url(host: &Host) -> String {
    host.wait_stderr("/mcp");
    let said = host.stderr();
    let (_, rest) = said.split_once("listening on ").unwrap();
    rest.split_whitespace().next().unwrap().to_owned()
}

/// Servers of both eras that do a little of everything.
fn team(setup: Setup) -> Setup {
    let note = |n: u32| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":@TOKEN@,"progress":{n}}}}}"#
        )
    };
    let acts = |end: &str| {
        let answer =
            format!(r#"{{"jsonrpc":"2.0","id":@ID@,"result":{{{end}"content":[],"structuredContent":@ARGS@}}}}"#);
        json!({
            "echo": {"do": "arguments"},
            "steps": {"do": "lines", "lines": [note(1), note(2), answer]},
            "fails": {"do": "error", "error": r#"{"code":-32050,"message":"no","data":{"a":1.0}}"#},
            "ask": {"do": "ask", "method": "roots/list"},
            "change": {"do": "change", "tool": r#"{"name":"new","inputSchema":{"type":"object"}}"#},
        })
    };
    let tools: Vec<String> = ["echo", "steps", "fails", "ask", "change"]
        .map(|name| {
            format!(
                r#"{{"inputSchema":{{"type":"object","x-odd":1.50}},"name":"{name}","description":"\u00e9 {name}"}}"#
            )
        })
        .into();
    setup
        .server("new", json!({"era": "modern", "tools": tools, "acts": acts("\"resultType\":\"complete\",")}))
        .server("old", json!({"era": "legacy", "tools": tools, "acts": acts("")}))
}

/// The lines that one front gives for all that is asked, ids aside.
fn talk(host: &mut Host, era: Era) -> Vec<String> {
    let opened = host.open(era);
    host.tools_count(10);
    let mut said = vec![opened.result().to_owned()];
    said.extend(host.tools_raw());
    for name in ["new__echo", "old__echo"] {
        said.push(host.call(name, r#"{"b":1.0,"a":"\u00e9","n":[1e3,null]}"#).result().to_owned());
    }
    for name in ["new__steps", "old__steps"] {
        let call = format!(r#""name":"{name}","arguments":{{"x":2.0}}"#);
        let id = host.post_meta("tools/call", &call, r#""progressToken":"p-1""#);
        for _ in 0..2 {
            said.push(host.note("notifications/progress").params().to_string());
        }
        said.push(host.answer(&id).result().to_owned());
    }
    for name in ["new__fails", "old__fails"] {
        said.push(host.call(name, "{}").raw("error").unwrap().to_owned());
    }
    said.push(host.call("old__nothing", "{}").code().to_string());
    said
}

#[test]
fn a_front_to_a_team_gives_the_same_bytes_as_a_gateway_of_ones_own() {
    let key = NewKey::make().unwrap();
    let auth = format!("[auth]\nkeys = [{{ name = \"ci\", hash = \"{}\" }}]\n[policy]\ndefault = \"allow\"", key.hash);
    let own = "[gateway]\ninstructions = \"Mind the gap.\"";
    let mut serve = team(Setup::new().head(own).head(&auth)).start_as(&["serve", "--listen", "127.0.0.1:0"]);
    let url = url(&serve);
    for era in Era::ALL {
        let mut direct = team(Setup::new().head(own)).start();
        let expected = talk(&mut direct, era);
        direct.finish();
        let mut front = serve.beside(&["run", "--connect", &url], &[("ONEGATE_TOKEN", key.secret.reveal())]);
        let found = talk(&mut front, era);
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(&expected).skip(1) {
            assert_eq!(found, expected, "{era:?}");
        }
        // What it says of itself may offer less, once the servers behind are known.
        let instructions = |opened: &str| serde_json::from_str::<Value>(opened).unwrap()["instructions"].clone();
        if !instructions(&found[0]).is_null() {
            assert_eq!(instructions(&found[0]), instructions(&expected[0]));
        }
        front.finish();
    }
    serve.signal("TERM");
    serve.wait_end(PATIENCE);
}

#[test]
fn changes_and_questions_come_through_and_a_host_that_may_not_enter_is_told() {
    let key = NewKey::make().unwrap();
    let auth = format!("[auth]\nkeys = [{{ name = \"ci\", hash = \"{}\" }}]\n[policy]\ndefault = \"allow\"", key.hash);
    let mut serve = team(Setup::new().head(&auth)).start_as(&["serve", "--listen", "127.0.0.1:0"]);
    let url = url(&serve);
    std::fs::write(serve.path("token"), key.secret.reveal()).unwrap();
    let token = serve.path("token");
    let mut front = serve.beside(&["run", "--connect", &url, "--token-file", token.to_str().unwrap()], &[]);
    front.ask(
        "initialize",
        r#""protocolVersion":"2025-11-25","capabilities":{"roots":{}},"clientInfo":{"name":"t","version":"1"}"#,
    );
    front.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    front.tools_count(10);
    let id = front.post_call("old__ask", "{}");
    let asked = front.note("roots/list");
    front.send(&format!(
        r#"{{"jsonrpc":"2.0","id":{},"result":{{"roots":[{{"uri":"file:///x"}}]}}}}"#,
        asked.raw("id").unwrap()
    ));
    assert!(front.answer(&id).text().contains("file:///x"));
    front.call("old__change", "{}");
    front.tools_until("the new one", |tools| tools.iter().any(|tool| tool == "old__new"));
    front.finish();

    let mut stranger = serve.beside(&["run", "--connect", &url], &[("ONEGATE_TOKEN", "wrong")]);
    stranger.open(Era::Legacy);
    until("why is told", PATIENCE, || stranger.stderr().contains("401"));
    assert!(!stranger.stderr().contains("wrong"));
    stranger.finish();
    // What is no address, and what is for servers of one's own alone.
    for more in [&["tools.example"][..], &[&url, "--locked"], &[&url, "--trust-on-first-use"]] {
        let mut nobody = serve.beside(&[&["run", "--connect"], more].concat(), &[]);
        assert_eq!(nobody.wait_end(PATIENCE).code(), Some(2), "{more:?}");
    }
    serve.signal("TERM");
    serve.wait_end(PATIENCE);
    serve.all_gone(Duration::from_secs(5));
}

/// The errors of calls of these tools by a host that speaks HTTP itself.
fn errors_over_http(url: &str, era: Era, tools: &[&str]) -> Vec<Value> {
    let mut caller = Caller::open(url, era);
    tools.iter().map(|tool| caller.call(tool, "{}", "")["error"].clone()).collect()
}

#[test]
fn a_name_that_a_pin_holds_is_no_more_unknown_through_a_front_than_without() {
    let tool = |name: &str, words: &str| {
        json!({"name": name, "description": words, "inputSchema": {"type": "object"}}).to_string()
    };
    let open = "[auth]\nmode = \"none\"\n[policy]\ndefault = \"allow\"\n[pins]\nmode = \"enforce\"";
    let setup = Setup::new()
        .head(open)
        .server("a", json!({"tools": [tool("held", "One."), tool("same", "One."), tool("not", "One.")]}));
    let setup = setup.server("b", json!({"tool_count": 1}));
    assert_eq!(setup.output(&["lock"]).code, Some(0));
    assert_eq!(setup.output(&["block", "a", "tool", "not"]).code, Some(0));
    setup.scenario(
        "a",
        json!({"tools": [tool("held", "Two."), tool("same", "One."), tool("not", "One."), tool("new", "One.")]}),
    );
    // Launched otherwise than it was reviewed.
    let setup = setup.with("[servers.b]", "[servers.b]\nenv = { NEW = \"1\" }");
    let mut serve = setup.start_as(&["serve", "--listen", "127.0.0.1:0"]);
    let url = url(&serve);
    let tools = ["a__held", "a__new", "a__not", "b__t000", "a__nothing"];
    for era in Era::ALL {
        let mut front = serve.beside(&["run", "--connect", &url], &[]);
        front.open(era);
        assert_eq!(front.tools_count(1), ["a__same"]);
        let expected = errors_over_http(&url, era, &tools);
        let reasons: Vec<_> = expected.iter().map(|error| error["data"]["reason"].as_str()).collect();
        assert_eq!(
            reasons,
            [Some("pin-changed"), Some("pin-pending"), None, Some("server-quarantined"), None],
            "{era:?} {expected:?}"
        );
        for (tool, expected) in tools.into_iter().zip(expected) {
            assert_eq!(front.call(tool, "{}").error(), expected, "{era:?} {tool}");
        }
        front.finish();
    }
    serve.signal("TERM");
    serve.wait_end(PATIENCE);
}
