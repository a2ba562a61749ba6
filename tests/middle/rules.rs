//! Rules that no other test is about: what must hold between servers, between hosts, and of what nobody asked for.

use std::time::Duration;

use serde_json::{Value, json};

use super::end::{End, modern, modern_as, text, text_of};
use super::full::{CELLS, ERAS, Era, Full, SUBSCRIPTION, one};
use super::world::{World, server};

const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

/// INV-4, LST-3: a list is the same for all hosts of a principal, whatever was asked before and in which order servers came.
#[tokio::test(start_paused = true)]
async fn inv4_lst3_lists_hang_on_no_connection_and_on_no_order_of_arrival() {
    let mut lists = Vec::new();
    for order in [["a", "b"], ["b", "a"]] {
        let mut world = World::new(vec![server("a"), server("b")]);
        let mut servers = Vec::new();
        for key in order {
            let mut a = Full::new(world.accept(key).await, Era::Legacy);
            a.settle().await;
            servers.push(a);
        }
        for capabilities in [json!({}), json!({"roots": {}, "sampling": {}})] {
            let mut host = world.host();
            host.ask(1, "tools/list", modern_as(json!({}), capabilities.clone())).await;
            let first = host.answer(1).await["result"]["tools"].to_string();
            host.ask(2, "prompts/get", modern_as(json!({"name": "none__p"}), capabilities.clone())).await;
            host.answer(2).await;
            host.ask(3, "tools/list", modern_as(json!({}), capabilities)).await;
            assert_eq!(host.answer(3).await["result"]["tools"].to_string(), first);
            lists.push(first);
        }
        world.end().await;
    }
    lists.dedup();
    assert_eq!(lists.len(), 1, "{lists:#?}");
    assert!(lists[0].find("a__t") < lists[0].find("b__t"));
}

/// INV-5, PRG-7: what one server says, is asked and is called is not seen by another; a token of a host's list goes nowhere.
#[tokio::test(start_paused = true)]
async fn inv5_prg7_a_server_learns_nothing_of_another() {
    for (era, server_era) in CELLS {
        let mut world = World::new(vec![server("a"), server("secretive")]);
        let mut a = Full::new(world.accept("a").await, server_era);
        let mut other = Full::new(world.accept("secretive").await, server_era);
        other.tools = json!([{"name": "hidden-thing", "inputSchema": {"type": "object"}}]);
        a.settle().await;
        other.settle().await;
        let lists = |full: &Full| full.asked.iter().filter(|method| method.ends_with("/list")).count();
        let before = (lists(&a), lists(&other));
        let mut host = world.host();
        era.open(&mut host).await;
        let listed = json!({"_meta": {"progressToken": "of a list"}});
        let listed = if era == Era::Modern {
            let mut listed = modern(listed);
            listed["_meta"]["progressToken"] = json!("of a list");
            listed
        } else {
            listed
        };
        host.ask("l", "tools/list", listed).await;
        host.answer("l").await;
        // The first call of one goes with the same ids as that of the other.
        let mut told = Vec::new();
        for name in ["secretive__hidden-thing", "a__t"] {
            let params = json!({"name": name, "arguments": {"for": name}});
            host.ask(name, "tools/call", era.params(params)).await;
            let of = if name == "a__t" { &mut a } else { &mut other };
            let call = of.expect("tools/call").await;
            told.push(call.to_string());
            of.end.result(&call, json!({"content": [{"type": "text", "text": name}], "requestState": 1})).await;
            assert_eq!(text_of(&host.answer(name).await), name);
        }
        assert!(!told[1].contains("secretive") && !told[1].contains("hidden"), "{}", told[1]);
        assert!(!told[0].contains("a__"), "{}", told[0]);
        a.quiet(Duration::from_secs(1)).await;
        other.quiet(Duration::from_secs(1)).await;
        assert_eq!((lists(&a), lists(&other)), before, "the list that a host asked for was asked on");
        world.end().await;
    }
}

/// LST-2: where there is nothing, there is an empty list and no error.
#[tokio::test(start_paused = true)]
async fn lst2_without_any_server_all_lists_are_empty() {
    let world = World::new(Vec::new());
    for era in ERAS {
        let mut host = world.host();
        era.open(&mut host).await;
        for (method, member) in [
            ("tools/list", "tools"),
            ("prompts/list", "prompts"),
            ("resources/list", "resources"),
            ("resources/templates/list", "resourceTemplates"),
        ] {
            assert_eq!(era.get(&mut host, method, json!({})).await["result"][member], json!([]), "{era:?} {method}");
        }
    }
    world.end().await;
}

/// ENV-13, CAN-4: a modern server asks nothing on its own, and takes back streams only.
#[tokio::test(start_paused = true)]
async fn env13_can4_what_a_modern_server_must_not_say_changes_nothing() {
    let mut world = World::new(vec![server("a")]);
    let mut host = world.host();
    let mut a = world.accept("a").await;
    a.modern(&["t"]).await;
    host.open_as("2025-11-25", json!({"roots": {}, "elicitation": {}})).await;
    host.list().await;
    host.call(1, "a__t").await;
    let call = a.expect("tools/call").await;
    for method in ["roots/list", "ping", "elicitation/create", "sampling/createMessage"] {
        a.ask(method, method, json!({})).await;
    }
    a.tell("notifications/cancelled", json!({"requestId": call["id"]})).await;
    a.quiet(Duration::from_secs(5)).await;
    a.result(&call, text("done")).await;
    // Its own answer is all that the host gets.
    let message = host.next_but_lists().await;
    assert_eq!((&message["id"], text_of(&message)), (&json!(1), "done"));
    host.quiet(Duration::from_secs(5)).await;
    world.end().await;
}

/// PRM-3: a prompt or a resource may be asked back for as a call may, in all cells that can.
#[tokio::test(start_paused = true)]
async fn prm3_prompts_and_resources_ask_back_like_calls() {
    let form = json!({"message": "?", "requestedSchema": {"type": "object", "properties": {}}});
    let accepted = json!({"action": "accept", "content": {}});
    for (method, params, result) in [
        ("prompts/get", json!({"name": "a__p"}), json!({"messages": []})),
        ("resources/read", json!({"uri": "x:1"}), json!({"contents": [], "ttlMs": 0, "cacheScope": "private"})),
    ] {
        for era in ERAS {
            let mut world = World::new(vec![server("a")]);
            let mut a = Full::new(world.accept("a").await, Era::Modern);
            a.settle().await;
            let mut host = world.host();
            let declared = json!({"elicitation": {}});
            let of = |params: Value| {
                if era == Era::Modern { modern_as(params, declared.clone()) } else { params }
            };
            if era == Era::Legacy {
                host.open_as("2025-11-25", declared.clone()).await;
            }
            host.ask(1, method, of(params.clone())).await;
            let asked = a.expect(method).await;
            let requests = json!({"q": {"method": "elicitation/create", "params": form}});
            let required = json!({"resultType": "input_required", "inputRequests": requests, "requestState": "s"});
            a.end.result(&asked, required).await;
            if era == Era::Modern {
                let answer = host.answer(1).await["result"].clone();
                assert_eq!(answer["inputRequests"]["q"]["params"]["message"], "[a] ?");
                let mut again = params.clone();
                again["requestState"] = answer["requestState"].clone();
                again["inputResponses"] = json!({"q": accepted});
                host.ask(1, method, of(again)).await;
            } else {
                let question = host.expect("elicitation/create").await;
                assert_eq!(question["params"]["message"], "[a] ?");
                host.result(&question, accepted.clone()).await;
            }
            let again = a.expect(method).await;
            assert_eq!(again["params"]["requestState"], "s");
            assert_eq!(again["params"]["inputResponses"], json!({"q": accepted}));
            let mut complete = result.clone();
            complete["resultType"] = json!("complete");
            a.end.result(&again, complete).await;
            let member = if method == "prompts/get" { "messages" } else { "contents" };
            assert_eq!(host.answer(1).await["result"][member], json!([]), "{method} {era:?}");
            world.end().await;
        }
    }
}

/// URL-3: what an older host declares is a form, so no modern server may want it to open a URL.
#[tokio::test(start_paused = true)]
async fn url3_a_host_of_2025_06_18_is_declared_with_forms_only() {
    let mut world = World::new(vec![server("a")]);
    let mut host = world.host();
    let mut a = world.accept("a").await;
    a.modern(&["t"]).await;
    host.open_as("2025-06-18", json!({"elicitation": {}})).await;
    host.list().await;
    host.call(1, "a__t").await;
    let call = a.expect("tools/call").await;
    assert_eq!(call["params"]["_meta"][CAPABILITIES], json!({"elicitation": {}}));
    let url = json!({"mode": "url", "message": "m", "url": "https://x.test"});
    let requests = json!({"u": {"method": "elicitation/create", "params": url}});
    a.result(&call, json!({"resultType": "input_required", "inputRequests": requests})).await;
    let mut answer = host.next().await.unwrap();
    while answer.get("id").is_none() {
        answer = host.next().await.unwrap();
    }
    assert_eq!(answer["error"]["data"]["reason"], "invalid-downstream-result", "{answer}");
    world.end().await;
}

/// EXT-1, EXT-2, EXT-4: an extension that is not bridged is declared to nobody, and its methods are unknown on both sides.
#[tokio::test(start_paused = true)]
async fn ext1_ext2_ext4_extensions_that_are_not_bridged_are_on_neither_side() {
    let extensions = json!({"acme.test/own": {}, "io.modelcontextprotocol/oauth-client-credentials": {}});
    for server_era in ERAS {
        let mut world = World::new(vec![server("a")]);
        let mut a = Full::new(world.accept("a").await, server_era);
        a.capabilities["extensions"] = extensions.clone();
        a.settle().await;
        for era in ERAS {
            let mut host = world.host();
            let declared = json!({"extensions": extensions});
            let offered = if era == Era::Legacy {
                let params = json!({"protocolVersion": "2025-11-25", "capabilities": declared,
                    "clientInfo": {"name": "t", "version": "0"}});
                host.ask(0, "initialize", params).await;
                host.answer(0).await
            } else {
                host.ask(0, "server/discover", modern_as(json!({}), declared.clone())).await;
                host.answer(0).await
            };
            assert!(!offered.to_string().contains("acme") && !offered.to_string().contains("oauth"), "{offered}");
            let method = json!({"x": 1});
            let method = if era == Era::Modern { modern_as(method, declared.clone()) } else { method };
            host.ask(1, "acme.test/do", method).await;
            assert_eq!(host.answer(1).await["error"]["code"], -32601);
            let call = json!({"name": "a__t", "arguments": {}});
            let call = if era == Era::Modern { modern_as(call, declared) } else { call };
            host.ask(2, "tools/call", call).await;
            let call = a.expect("tools/call").await;
            assert!(!call.to_string().contains("acme") && !call.to_string().contains("oauth"), "{call}");
            // What it is told without being asked for is nobody's.
            a.end.tell("acme.test/happened", json!({})).await;
            a.end.result(&call, text("done")).await;
            assert_eq!(text_of(&host.answer(2).await), "done");
        }
        world.end().await;
    }
}

/// APP-1: that a host shows apps is told to servers of both eras in its own words, and to hosts that a server has some.
#[tokio::test(start_paused = true)]
async fn app1_what_a_host_says_of_apps_reaches_the_server_unchanged() {
    let settings = json!({"mimeTypes": ["text/html;profile=mcp-app"], "own": [1]});
    let declared = json!({"extensions": {"io.modelcontextprotocol/ui": settings}});
    for server_era in ERAS {
        let mut world = World::new(vec![server("a")]);
        let mut a = Full::new(world.accept("a").await, server_era);
        a.capabilities["extensions"] = declared["extensions"].clone();
        a.settle().await;
        let mut host = world.host();
        host.ask(0, "server/discover", modern_as(json!({}), declared.clone())).await;
        let offered = host.answer(0).await;
        assert_eq!(offered["result"]["capabilities"]["extensions"], declared["extensions"]);
        let call = json!({"name": "a__t", "arguments": {}});
        host.ask(1, "tools/call", modern_as(call, declared.clone())).await;
        if server_era == Era::Modern {
            let call = a.expect("tools/call").await;
            assert_eq!(call["params"]["_meta"][CAPABILITIES], declared);
            a.end.result(&call, text("done")).await;
        } else {
            let mut own = world.accept("a").await;
            assert_eq!(own.leased("2025-11-25").await, declared);
            let call = own.expect("tools/call").await;
            own.result(&call, text("done")).await;
            assert_eq!(text_of(&host.answer(1).await), "done");
            world.end().await;
            continue;
        }
        assert_eq!(text_of(&host.answer(1).await), "done");
        world.end().await;
    }
}

/// PAG-6: a server that forgot its own cursor is asked from the beginning, once.
#[tokio::test(start_paused = true)]
async fn pag6_a_list_whose_cursor_is_refused_begins_anew_once() {
    for refusals in [1, 2] {
        let mut world = World::new(vec![server("a")]);
        let mut host = world.host();
        let mut a = world.accept("a").await;
        a.legacy_unlisted().await;
        host.open("2025-11-25").await;
        let tool = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}});
        for _ in 0..refusals {
            let first = a.expect("tools/list").await;
            assert_eq!(first["params"].get("cursor"), None);
            a.result(&first, json!({"tools": [tool("old")], "nextCursor": "c"})).await;
            let second = a.expect("tools/list").await;
            assert_eq!(second["params"]["cursor"], "c");
            a.error(&second, -32602).await;
        }
        if refusals == 1 {
            a.listed(&["t"]).await;
            assert_eq!(host.list().await, ["a__t"]);
        } else {
            a.quiet(Duration::from_millis(100)).await;
            assert_eq!(host.list().await, [""; 0]);
        }
        world.end().await;
    }
}

/// SUB-14, STM-2: what happens to a request is told beside it, never on a stream of changes.
#[tokio::test(start_paused = true)]
async fn sub14_stm2_progress_and_log_are_on_no_stream_of_changes() {
    let (world, mut a) = one(Era::Modern, |_| {}).await;
    let mut host = world.host();
    host.ask("s", "subscriptions/listen", modern(json!({"notifications": {"toolsListChanged": true}}))).await;
    host.expect("notifications/subscriptions/acknowledged").await;
    let mut params = modern(json!({"name": "a__t", "arguments": {}}));
    params["_meta"]["progressToken"] = json!("p");
    params["_meta"]["io.modelcontextprotocol/logLevel"] = json!("debug");
    host.ask(1, "tools/call", params).await;
    let call = a.expect("tools/call").await;
    let token = call["params"]["_meta"]["progressToken"].clone();
    a.end.tell("notifications/progress", json!({"progressToken": token, "progress": 1})).await;
    a.end.tell("notifications/message", json!({"level": "info", "data": "x"})).await;
    // The server marks them as of its stream, which they cannot be.
    let stream = json!({SUBSCRIPTION: a.streams[0]["id"]});
    a.end.tell("notifications/message", json!({"level": "info", "data": "y", "_meta": stream})).await;
    a.end.result(&call, text("done")).await;
    let mut told = Vec::new();
    loop {
        let message = host.next().await.unwrap();
        if message["id"] == 1 {
            break;
        }
        assert_eq!(message["params"]["_meta"].get(SUBSCRIPTION), None, "{message}");
        told.push(message["method"].as_str().unwrap().to_owned());
    }
    let all = ["notifications/progress", "notifications/message", "notifications/message"];
    assert_eq!(told, all, "each once, and beside the call");
    host.quiet(Duration::from_secs(1)).await;
    world.end().await;
}

/// CAP-3: each server's instructions under its key, of bounded length.
#[tokio::test(start_paused = true)]
async fn cap3_instructions_stand_under_the_key_of_their_server_and_are_cut() {
    let mut world = World::new(vec![server("a"), server("b")]);
    for (key, words) in [("a", "Use it well.".to_owned()), ("b", "x".repeat(5000))] {
        let mut end: End = world.accept(key).await;
        let probe = end.expect("server/discover").await;
        end.error(&probe, -32601).await;
        let opening = end.expect("initialize").await;
        let result = json!({"protocolVersion": "2025-11-25", "serverInfo": {"name": "t", "version": "0"},
            "capabilities": {"tools": {}}, "instructions": words});
        end.result(&opening, result).await;
        end.expect("notifications/initialized").await;
        end.listed(&["t"]).await;
        std::mem::forget(end);
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let mut host = world.host();
    let discovered = Era::Modern.get(&mut host, "server/discover", json!({})).await;
    let told = discovered["result"]["instructions"].as_str().unwrap();
    let (a, b) = (told.find("a\nUse it well."), told.find("b\nxxx"));
    assert!(a.is_some() && a < b, "{told:.200}");
    assert!(told.len() < 3000, "{}", told.len());
    world.end().await;
}

/// VER-1, INV-3: both eras on one pipe, each request in its own; the modern one needs nothing that came before it.
#[tokio::test(start_paused = true)]
async fn ver1_inv3_both_eras_share_a_pipe() {
    let (world, mut a) = one(Era::Legacy, |_| {}).await;
    let mut host = world.host();
    for legacy in [false, true] {
        if legacy {
            host.open("2025-11-25").await;
        }
        for era in ERAS {
            if era == Era::Legacy && !legacy {
                continue;
            }
            host.ask(1, "tools/call", era.params(json!({"name": "a__t", "arguments": {}}))).await;
            let call = a.expect("tools/call").await;
            a.end.result(&call, text("x")).await;
            let answer = host.answer(1).await;
            assert_eq!(answer["result"].get("resultType").is_some(), era == Era::Modern, "{answer}");
        }
    }
    world.end().await;
}

/// CALL-5: a name is looked up exactly as it is written.
#[tokio::test(start_paused = true)]
async fn call5_names_are_not_changed_before_they_are_looked_up() {
    let (world, _a) = one(Era::Legacy, |_| {}).await;
    let mut host = world.host();
    for name in ["A__t", "a__T", " a__t", "a__t ", "a__\u{ff54}", "t"] {
        let answer = Era::Modern.get(&mut host, "tools/call", json!({"name": name, "arguments": {}})).await;
        assert_eq!(answer["error"]["code"], -32602, "{name}");
    }
    world.end().await;
}

/// CCH-8, MRT-8: neither a read nor a call is answered from what was said before, with hints or after questions.
#[tokio::test(start_paused = true)]
async fn cch8_mrt8_reads_and_calls_are_never_kept() {
    for era in ERAS {
        let (world, mut a) = one(Era::Modern, |_| {}).await;
        let mut host = world.host();
        era.open(&mut host).await;
        for (method, params, result) in [
            ("resources/read", json!({"uri": "x:1"}), json!({"contents": [], "ttlMs": 60_000, "cacheScope": "public"})),
            ("tools/call", json!({"name": "a__t", "arguments": {}}), json!({"content": []})),
            ("prompts/get", json!({"name": "a__p"}), json!({"messages": []})),
        ] {
            for id in 0..2 {
                host.ask(id, method, era.params(params.clone())).await;
                let asked = a.expect(method).await;
                let mut result = result.clone();
                result["resultType"] = json!("complete");
                a.end.result(&asked, result).await;
                assert!(host.answer(id).await["result"].is_object());
            }
        }
        world.end().await;
    }
}

/// PRG-6: the oldest revision has no words beside the numbers.
#[tokio::test(start_paused = true)]
async fn prg6_progress_has_no_message_for_a_host_of_2024_11_05() {
    let (world, mut a) = one(Era::Legacy, |_| {}).await;
    for (revision, words) in [("2024-11-05", None), ("2025-03-26", Some("half"))] {
        let mut host = world.host();
        host.open(revision).await;
        let params = json!({"name": "a__t", "arguments": {}, "_meta": {"progressToken": "p"}});
        host.ask(1, "tools/call", params).await;
        let call = a.expect("tools/call").await;
        let token = call["params"]["_meta"]["progressToken"].clone();
        let told = json!({"progressToken": token, "progress": 1, "total": 2, "message": "half"});
        a.end.tell("notifications/progress", told).await;
        a.end.result(&call, text("x")).await;
        let told = host.expect("notifications/progress").await;
        assert_eq!(told["params"]["message"].as_str(), words, "{revision}");
        assert_eq!((&told["params"]["progress"], &told["params"]["total"]), (&json!(1), &json!(2)));
        host.answer(1).await;
    }
    world.end().await;
}

/// ERR-4: what a server says of a failure is cut.
#[tokio::test(start_paused = true)]
async fn err4_messages_of_servers_are_cut() {
    let (world, mut a) = one(Era::Legacy, |_| {}).await;
    let mut host = world.host();
    host.open("2025-11-25").await;
    host.call(1, "a__t").await;
    let call = a.expect("tools/call").await;
    let error = json!({"code": -32000, "message": "x".repeat(100_000), "data": "y".repeat(1_000_000)});
    a.end.say(json!({"jsonrpc": "2.0", "id": call["id"], "error": error})).await;
    let error = host.answer(1).await["error"].clone();
    assert_eq!(error["code"], -32000);
    let message = error["message"].as_str().unwrap();
    assert!(message.starts_with("xxx") && message.len() <= 4200, "{}", message.len());
    assert!(error.to_string().len() < 80_000, "{}", error.to_string().len());
    world.end().await;
}

/// APP-4, APP-7: what a server says of its interfaces passes, and tools that are for apps alone are listed.
#[tokio::test(start_paused = true)]
async fn app4_app7_settings_of_interfaces_pass_and_tools_of_apps_are_listed() {
    for (era, server_era) in CELLS {
        let ui = json!({"csp": {"connectDomains": ["https://x.test"]}, "prefersBorder": true, "domain": "d"});
        let of_apps = json!({"ui": {"resourceUri": "ui://w", "visibility": ["app"]}});
        let (world, mut a) = one(server_era, |a| {
            a.resources = json!([{"name": "w", "uri": "ui://w", "_meta": {"ui": ui}}]);
            a.tools = json!([{"name": "t", "inputSchema": {"type": "object"}, "_meta": of_apps}]);
        })
        .await;
        let mut host = world.host();
        era.open(&mut host).await;
        let listed = era.get(&mut host, "resources/list", json!({})).await["result"]["resources"][0].clone();
        assert_eq!((&listed["uri"], &listed["_meta"]["ui"]), (&json!("ui://a/w"), &ui));
        let tool = era.get(&mut host, "tools/list", json!({})).await["result"]["tools"][0].clone();
        assert_eq!(tool["_meta"]["ui"]["visibility"], json!(["app"]));
        host.ask(1, "resources/read", era.params(json!({"uri": "ui://a/w"}))).await;
        let asked = a.expect("resources/read").await;
        assert_eq!(asked["params"]["uri"], "ui://w");
        let contents = json!([{"uri": "ui://w", "text": "<p>", "_meta": {"ui": ui}}]);
        let mut result = json!({"contents": contents});
        if server_era == Era::Modern {
            result["resultType"] = json!("complete");
            (result["ttlMs"], result["cacheScope"]) = (json!(0), json!("private"));
        }
        a.end.result(&asked, result).await;
        assert_eq!(host.answer(1).await["result"]["contents"][0]["_meta"]["ui"], ui);
        world.end().await;
    }
}
