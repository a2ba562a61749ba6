//! Prompts, resources, templates and completions: listed, resolved and answered, for both eras on both sides.
//!
//! Long, and one thing: the same ways for each kind of item.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use onegate::caller::Caller;
use onegate::gateway::{Failure, Outcome};
use onegate::ident::{Kind, Principal};
use onegate::protocol::call::Call;
use onegate::protocol::json::Index;
use onegate::protocol::message::Message;
use onegate::protocol::method::Method;
use onegate::protocol::version::Revision;
use onegate::transport::upward::Upward;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::end::{End, cancelled, modern};
use super::full::{CELLS, ERAS, Era, Full};
use super::world::{World, server, took};

/// The lists: method, member of the result, and what names an item.
const LISTS: [(&str, &str, &str); 4] = [
    ("tools/list", "tools", "name"),
    ("prompts/list", "prompts", "name"),
    ("resources/list", "resources", "uri"),
    ("resources/templates/list", "resourceTemplates", "uriTemplate"),
];

/// One server `a` that is up, and a host.
async fn one(host: Era, server_era: Era) -> (World, End, Full) {
    one_with(host, server_era, |_| {}).await
}

async fn one_with(era: Era, server_era: Era, change: impl FnOnce(&mut Full)) -> (World, End, Full) {
    let mut world = World::new(vec![server("a")]);
    let mut a = Full::new(world.accept("a").await, server_era);
    change(&mut a);
    a.settle().await;
    let mut host = world.host();
    era.open(&mut host).await;
    (world, host, a)
}

async fn named(host: &mut End, era: Era, list: (&str, &str, &str)) -> Vec<String> {
    let answer = era.get(host, list.0, json!({})).await;
    let items = answer["result"][list.1].as_array().unwrap_or_else(|| panic!("no list: {answer}"));
    items.iter().map(|item| item[list.2].as_str().unwrap().to_owned()).collect()
}

/// D061: what is offered and listed, by four servers of which none is like another.
#[tokio::test(start_paused = true)]
async fn d061_the_four_lists_are_the_union_and_nobody_is_asked_for_what_it_does_not_have() {
    let mut world = World::new(["a", "b", "c", "d"].map(server).into());
    let mut a = Full::new(world.accept("a").await, Era::Legacy);
    let mut b = Full::new(world.accept("b").await, Era::Modern);
    b.capabilities = json!({"tools": {}, "prompts": {}});
    let mut c = Full::new(world.accept("c").await, Era::Legacy);
    c.capabilities = json!({"tools": {}});
    let mut d = Full::new(world.accept("d").await, Era::Modern);
    d.unknown = vec!["tools/list", "prompts/list", "resources/list", "resources/templates/list"];
    for server in [&mut a, &mut b, &mut c, &mut d] {
        server.quiet(Duration::from_millis(300)).await;
    }
    sleep(Duration::from_secs(1)).await;
    for era in ERAS {
        let mut host = world.host();
        era.open(&mut host).await;
        let lists = [&["a__t", "b__t", "c__t"][..], &["a__p", "b__p"], &["x:1"], &["x:{id}"]];
        let start = Instant::now();
        for (list, expected) in LISTS.into_iter().zip(lists) {
            assert_eq!(named(&mut host, era, list).await, expected, "{era:?} {list:?}");
        }
        took(start, Duration::ZERO);
        let answer = era.get(&mut host, "resources/list", json!({})).await;
        let hints = (answer["result"].get("ttlMs"), answer["result"].get("cacheScope"));
        match era {
            // CCH-1: `d` says of no list how long it holds; CCH-4.
            Era::Modern => assert_eq!(hints, (Some(&json!(0)), Some(&json!("private")))),
            Era::Legacy => assert_eq!(hints, (None, None)),
        }
    }
    let lists = |server: &Full| server.asked.iter().filter(|method| method.ends_with("/list")).count();
    assert_eq!((lists(&a), lists(&b), lists(&c), lists(&d)), (4, 2, 1, 4));
    world.end().await;
}

fn capabilities(answer: &Value) -> &Value {
    &answer["result"]["capabilities"]
}

/// CAP-1, CAP-5, D061: the union of what servers offer, in the words of the host's revision.
#[tokio::test(start_paused = true)]
async fn cap5_what_is_offered_is_the_union_in_the_words_of_the_revision() {
    let mut world = World::new(vec![server("a"), server("b")]);
    let mut a = Full::new(world.accept("a").await, Era::Legacy);
    a.capabilities = json!({"tools": {}});
    let mut b = Full::new(world.accept("b").await, Era::Modern);
    b.capabilities = json!({"resources": {}, "completions": {}});
    a.quiet(Duration::from_millis(300)).await;
    b.settle().await;
    let mut host = world.host();
    let mut expected = json!({"tools": {"listChanged": true}, "resources": {"listChanged": true}, "completions": {}});
    let discovered = Era::Modern.get(&mut host, "server/discover", json!({})).await;
    assert_eq!(capabilities(&discovered), &expected);
    for revision in ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"] {
        let mut host = world.host();
        if revision == "2024-11-05" {
            expected.as_object_mut().unwrap().remove("completions");
        }
        let params =
            json!({"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}});
        let answer = Era::Legacy.get(&mut host, "initialize", params).await;
        assert_eq!(capabilities(&answer), &expected, "{revision}");
        assert_eq!(answer["result"].get("resultType"), None);
    }
    world.end().await;
}

/// CON-8, CAP-1: hosts take the answer for good, so a server that has not spoken yet may offer anything.
#[tokio::test(start_paused = true)]
async fn con8_a_host_that_asks_before_the_servers_answered_is_offered_everything_at_once() {
    let mut world = World::new(vec![server("a")]);
    let _a = world.accept("a").await;
    let mut host = world.host();
    let start = Instant::now();
    let answer = Era::Modern.get(&mut host, "server/discover", json!({})).await;
    took(start, Duration::ZERO);
    let all = json!({"tools": {"listChanged": true}, "prompts": {"listChanged": true}, "logging": {},
        "resources": {"subscribe": true, "listChanged": true}, "completions": {}});
    assert_eq!(capabilities(&answer), &all);
    world.end().await;
}

/// D036, PRM-1, APP-3, U-4: arguments pass as they are, links in messages are links of ours and can be read.
#[tokio::test(start_paused = true)]
async fn d036_prm1_a_prompt_is_got_in_all_cells_and_its_links_can_be_read() {
    for (era, server_era) in CELLS {
        let (world, mut host, mut a) = one(era, server_era).await;
        let params = json!({"name": "a__p", "arguments": {"x": "1", "y": "\u{e9}"}, "vendor": 1});
        host.ask(7, "prompts/get", era.params(params)).await;
        let asked = a.expect("prompts/get").await;
        let params = &asked["params"];
        assert_eq!((&params["name"], &params["vendor"]), (&json!("p"), &json!(1)));
        assert_eq!(params["arguments"], json!({"x": "1", "y": "\u{e9}"}));
        let link = json!({"role": "user", "content": {"type": "resource_link", "name": "v", "uri": "ui://view/main"}});
        let mut result = json!({"messages": [link], "description": "d"});
        if server_era == Era::Modern {
            result["resultType"] = json!("complete");
        }
        a.end.result(&asked, result).await;
        let answer = host.answer(7).await;
        let result = &answer["result"];
        assert_eq!((&result["description"], result.get("ttlMs")), (&json!("d"), None), "{answer}");
        assert_eq!(result.get("resultType").is_some(), era == Era::Modern, "{answer}");
        let uri = result["messages"][0]["content"]["uri"].clone();
        assert_eq!(uri, "ui://a/view/main");
        host.ask(8, "resources/read", era.params(json!({"uri": uri}))).await;
        assert_eq!(a.expect("resources/read").await["params"]["uri"], "ui://view/main");
        world.end().await;
    }
}

/// D064: with the id of that leg, for all that names an item.
#[tokio::test(start_paused = true)]
async fn d064_a_cancel_of_any_request_reaches_its_server() {
    for (era, server_era) in CELLS {
        let (world, mut host, mut a) = one(era, server_era).await;
        for (method, params) in [
            ("tools/call", json!({"name": "a__t"})),
            ("prompts/get", json!({"name": "a__p"})),
            ("resources/read", json!({"uri": "x:1"})),
            ("completion/complete", completing(json!({"type": "ref/prompt", "name": "a__p"}))),
        ] {
            host.ask("same", method, era.params(params)).await;
            let asked = a.expect(method).await;
            host.tell("notifications/cancelled", cancelled("same")).await;
            assert_eq!(a.expect("notifications/cancelled").await["params"]["requestId"], asked["id"], "{method}");
        }
        host.quiet(Duration::from_secs(5)).await;
        world.end().await;
    }
}

/// CCH-1, RES-2, RES-6.
#[tokio::test(start_paused = true)]
async fn res6_a_read_holds_as_long_as_its_modern_server_says_and_a_legacy_one_not_at_all() {
    for (era, server_era) in CELLS {
        let (world, mut host, mut a) = one(era, server_era).await;
        host.ask(1, "resources/read", era.params(json!({"uri": "x:1"}))).await;
        let asked = a.expect("resources/read").await;
        assert_eq!(asked["params"]["uri"], "x:1");
        let contents = json!([{"uri": "x:1", "text": "x:1"}, {"uri": "ui://in", "blob": "AA=="}]);
        let mut result = json!({"contents": contents});
        if server_era == Era::Modern {
            result["resultType"] = json!("complete");
            result["ttlMs"] = json!(5);
            result["cacheScope"] = json!("public");
        }
        a.end.result(&asked, result).await;
        let answer = host.answer(1).await;
        let result = &answer["result"];
        let rewritten = json!([{"uri": "x:1", "text": "x:1"}, {"uri": "ui://a/in", "blob": "AA=="}]);
        assert_eq!(result["contents"], rewritten);
        let hints = (result.get("ttlMs"), result.get("cacheScope"));
        match (era, server_era) {
            (Era::Legacy, _) => assert_eq!(hints, (None, None), "{answer}"),
            (Era::Modern, Era::Legacy) => assert_eq!(hints, (Some(&json!(0)), Some(&json!("private")))),
            (Era::Modern, Era::Modern) => assert_eq!(hints, (Some(&json!(5)), Some(&json!("public")))),
        }
        world.end().await;
    }
}

/// RES-3: each server in its own words, each host in its own.
#[tokio::test(start_paused = true)]
async fn res3_not_found_is_said_in_the_words_of_the_hosts_era() {
    for (era, server_era) in CELLS {
        let (world, mut host, mut a) = one(era, server_era).await;
        let code = if era == Era::Legacy { -32002 } else { -32602 };
        let error = match server_era {
            Era::Legacy => json!({"code": -32002, "message": "gone"}),
            Era::Modern => json!({"code": -32602, "message": "gone", "data": {"uri": "x:1"}}),
        };
        for uri in ["x:1", "x:9"] {
            host.ask(1, "resources/read", era.params(json!({"uri": uri}))).await;
            let asked = a.expect("resources/read").await;
            a.end.say(json!({"jsonrpc": "2.0", "id": asked["id"], "error": error})).await;
            let answer = host.answer(1).await;
            assert_eq!((&answer["error"]["code"], &answer["error"]["data"]["uri"]), (&json!(code), &json!(uri)));
        }
        // A word of one era is not said in the other, whatever it answers.
        host.ask(2, "prompts/get", era.params(json!({"name": "a__p"}))).await;
        let asked = a.expect("prompts/get").await;
        a.end.error(&asked, -32002).await;
        assert_eq!(host.answer(2).await["error"]["code"], code);
        // Params that are wrong are wrong in both.
        host.ask(3, "resources/read", era.params(json!({"uri": "x:1"}))).await;
        let asked = a.expect("resources/read").await;
        a.end.error(&asked, -32602).await;
        assert_eq!(host.answer(3).await["error"]["code"], -32602);
        world.end().await;
    }
}

/// INV-8, ERR-3, U-6: the same answer, but for what the host said itself; the server hears of neither.
#[tokio::test(start_paused = true)]
async fn inv8_a_hidden_prompt_or_resource_is_like_one_that_is_not_there() {
    for era in ERAS {
        let mut settings = server("a");
        settings.prompts.deny = vec!["secret".into()];
        settings.resources.deny = vec!["y:secret".into()];
        let mut world = World::new(vec![settings]);
        let mut a = Full::new(world.accept("a").await, Era::Legacy);
        a.prompts = json!([{"name": "p"}, {"name": "secret"}]);
        a.resources = json!([{"name": "s", "uri": "y:secret"}, {"name": "one", "uri": "x:1"}]);
        a.settle().await;
        let mut host = world.host();
        era.open(&mut host).await;
        assert_eq!(named(&mut host, era, LISTS[1]).await, ["a__p"]);
        assert_eq!(named(&mut host, era, LISTS[2]).await, ["x:1"]);
        for (method, hidden, absent) in [
            ("prompts/get", json!({"name": "a__secret"}), json!({"name": "a__absent"})),
            ("resources/read", json!({"uri": "y:secret"}), json!({"uri": "y:absent"})),
            ("resources/read", json!({"uri": "og+a:y:secret"}), json!({"uri": "og+a:z"})),
            (
                "completion/complete",
                json!({"ref": {"type": "ref/prompt", "name": "a__secret"}, "argument": {"name": "x", "value": ""}}),
                json!({"ref": {"type": "ref/prompt", "name": "a__absent"}, "argument": {"name": "x", "value": ""}}),
            ),
        ] {
            let one = era.get(&mut host, method, hidden).await["error"].to_string().replace("secret", "absent");
            if absent["uri"] == "og+a:z" {
                // That one reaches the server, which has the last word; the hidden one does not.
                assert!(one.contains("not found"), "{one}");
                continue;
            }
            let other = era.get(&mut host, method, absent).await["error"].to_string();
            assert_eq!(one, other);
            assert!(one.contains("-32"), "{one}");
        }
        a.end.quiet(Duration::from_secs(1)).await;
        world.end().await;
    }
}

fn completing(reference: Value) -> Value {
    json!({"ref": reference, "argument": {"name": "x", "value": "v"}, "context": {"arguments": {"y": "1"}}})
}

/// CMP-1, CMP-2.
#[tokio::test(start_paused = true)]
async fn cmp1_cmp2_completions_go_to_the_owner_and_are_cut_at_a_hundred_values() {
    for (era, server_era) in CELLS {
        let (world, mut host, mut a) = one(era, server_era).await;
        let values: Vec<_> = (0..150).map(|n| format!("v{n}")).collect();
        for (theirs, native) in [
            (json!({"type": "ref/prompt", "name": "a__p"}), json!({"type": "ref/prompt", "name": "p"})),
            (json!({"type": "ref/resource", "uri": "x:{id}"}), json!({"type": "ref/resource", "uri": "x:{id}"})),
            (json!({"type": "ref/resource", "uri": "x:1"}), json!({"type": "ref/resource", "uri": "x:1"})),
        ] {
            for (sent, expected) in [(150, 100), (100, 100), (2, 2)] {
                host.ask(1, "completion/complete", era.params(completing(theirs.clone()))).await;
                let asked = a.expect("completion/complete").await;
                let params = &asked["params"];
                assert_eq!(params["ref"], native);
                assert_eq!(params["argument"], json!({"name": "x", "value": "v"}));
                assert_eq!(params["context"], json!({"arguments": {"y": "1"}}));
                let mut result = json!({"completion": {"values": values[..sent], "total": 150}});
                if server_era == Era::Modern {
                    result["resultType"] = json!("complete");
                }
                a.end.result(&asked, result).await;
                let answer = host.answer(1).await;
                let completion = &answer["result"]["completion"];
                assert_eq!(completion["values"], json!(values[..expected]), "{era:?} {server_era:?}");
                assert_eq!(completion.get("hasMore").is_some(), sent > 100, "{answer}");
            }
        }
        world.end().await;
    }
}

/// CMP-1: a server of the first revision knows no context and cannot say whether it completes; it is tried.
#[tokio::test(start_paused = true)]
async fn cmp1_a_server_of_2024_is_asked_without_context() {
    let old = |a: &mut Full| {
        a.revision = "2024-11-05";
        a.capabilities = json!({"prompts": {}});
    };
    let (world, mut host, mut a) = one_with(Era::Modern, Era::Legacy, old).await;
    let params = completing(json!({"type": "ref/prompt", "name": "a__p"}));
    host.ask(1, "completion/complete", modern(params)).await;
    let asked = a.expect("completion/complete").await;
    assert_eq!(asked["params"].get("context"), None);
    a.end.error(&asked, -32601).await;
    let answer = host.answer(1).await;
    assert_eq!(answer["result"]["completion"], json!({"values": [], "hasMore": false}), "CMP-3");
    world.end().await;
}

/// CMP-3, CMP-4, CAP-1.
#[tokio::test(start_paused = true)]
async fn cmp3_cmp4_who_does_not_complete_or_is_slow_completes_nothing() {
    let nothing = json!({"values": [], "hasMore": false});
    let reference = || completing(json!({"type": "ref/prompt", "name": "a__p"}));
    for era in ERAS {
        let (world, mut host, mut a) = one(era, Era::Modern).await;
        let start = Instant::now();
        host.ask(1, "completion/complete", era.params(reference())).await;
        let asked = a.expect("completion/complete").await;
        assert_eq!(host.answer(1).await["result"]["completion"], nothing);
        took(start, Duration::from_secs(2));
        assert_eq!(a.expect("notifications/cancelled").await["params"]["requestId"], asked["id"]);
        for unknown in [json!({"type": "ref/prompt", "name": "a__q"}), json!({"type": "ref/resource", "uri": "z:1"})] {
            let answer = era.get(&mut host, "completion/complete", completing(unknown)).await;
            assert_eq!(answer["error"]["code"], -32602);
        }
        world.end().await;
        let without = |a: &mut Full| a.capabilities = json!({"prompts": {}});
        let (world, mut host, mut a) = one_with(era, Era::Modern, without).await;
        let answer = era.get(&mut host, "completion/complete", reference()).await;
        assert_eq!(answer["result"]["completion"], nothing);
        a.quiet(Duration::from_secs(1)).await;
        world.end().await;
    }
}

/// Calls a tool of a server, whose result links to this.
async fn link(host: &mut End, server: &mut Full, tool: &str, uri: &str) -> Value {
    host.call("link", tool).await;
    let asked = server.expect("tools/call").await;
    server.end.result(&asked, json!({"content": [{"type": "resource_link", "name": "l", "uri": uri}]})).await;
    host.answer("link").await["result"]["content"][0]["uri"].clone()
}

/// A read by somebody else, who needs no connection.
async fn read_as(world: &World, principal: Principal, uri: &str) -> Result<Outcome, Failure> {
    let line = json!({"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": uri}}).to_string();
    let (line, mut index) = (Bytes::from(line), Index::new());
    let Ok(Message::Request { params, .. }) = Message::read(&line, &mut index) else { panic!("no request") };
    let call = Call::read(Method::ResourcesRead, &line, &index, params).unwrap();
    let caller = Caller { principal, ..Caller::stdio(Revision::V2025_11_25) };
    world.gateway.call(&call, &caller, Arc::new(Upward::default())).await
}

/// RES-1, D039, INV-6: also of a server that lists no resources at all; only for who was shown it.
#[tokio::test(start_paused = true)]
async fn res1_d039_a_link_that_no_list_has_is_readable_by_who_was_shown_it() {
    for empty in [false, true] {
        let change = |a: &mut Full| {
            a.templates = json!([]);
            if empty {
                a.resources = json!([]);
            }
        };
        let (world, mut host, mut a) = one_with(Era::Legacy, Era::Legacy, change).await;
        let unknown = Era::Legacy.get(&mut host, "resources/read", json!({"uri": "x:linked"})).await;
        assert_eq!(unknown["error"]["code"], -32002);
        assert_eq!(link(&mut host, &mut a, "a__t", "x:linked").await, "x:linked");
        host.ask(2, "resources/read", json!({"uri": "x:linked"})).await;
        let asked = a.expect("resources/read").await;
        assert_eq!(asked["params"]["uri"], "x:linked");
        a.end.result(&asked, json!({"contents": []})).await;
        host.answer(2).await;
        let Err(refused) = read_as(&world, Principal::key("other"), "x:linked").await else { panic!("it was read") };
        assert_eq!(refused.code, -32002);
        a.end.quiet(Duration::from_secs(1)).await;
        world.end().await;
    }
}

/// U-2, U-5, D037: what two servers call the same leads to the one it came from, or nowhere.
#[tokio::test(start_paused = true)]
async fn u5_d037_one_uri_of_two_servers_never_reads_the_other_one() {
    let mut world = World::new(vec![server("a"), server("b")]);
    let mut a = Full::new(world.accept("a").await, Era::Legacy);
    let mut b = Full::new(world.accept("b").await, Era::Legacy);
    for server in [&mut a, &mut b] {
        server.templates = json!([]);
    }
    a.resources = json!([{"name": "r", "uri": "demo://readme"}]);
    b.resources = json!([{"name": "r", "uri": "demo://readme"}, {"name": "s", "uri": "demo://b"}]);
    a.quiet(Duration::from_millis(300)).await;
    b.settle().await;
    let mut host = world.host();
    Era::Legacy.open(&mut host).await;
    let uris = named(&mut host, Era::Legacy, LISTS[2]).await;
    assert_eq!(uris, ["og+a:demo%3A%2F%2Freadme", "og+b:demo%3A%2F%2Freadme", "demo://b"]);
    // Nobody's alone.
    let answer = Era::Legacy.get(&mut host, "resources/read", json!({"uri": "demo://readme"})).await;
    assert_eq!(answer["error"]["code"], -32002);
    // The list of b is not overturned by what a mentions, and that can be read all the same.
    let linked = link(&mut host, &mut a, "a__t", "demo://b").await;
    for (uri, at_a, native) in [
        (json!(uris[0]), true, "demo://readme"),
        (json!(uris[1]), false, "demo://readme"),
        (json!("demo://b"), false, "demo://b"),
        (linked, true, "demo://b"),
    ] {
        host.ask(1, "resources/read", json!({"uri": uri})).await;
        let server = if at_a { &mut a } else { &mut b };
        let asked = server.expect("resources/read").await;
        assert_eq!(asked["params"]["uri"], native);
        server.end.result(&asked, json!({"contents": [{"uri": native, "text": ""}]})).await;
        assert_eq!(host.answer(1).await["result"]["contents"][0]["uri"], uri, "it comes back as it was asked for");
    }
    // What both hand out and neither lists is neither's.
    link(&mut host, &mut a, "a__t", "demo://both").await;
    link(&mut host, &mut b, "b__t", "demo://both").await;
    let answer = Era::Legacy.get(&mut host, "resources/read", json!({"uri": "demo://both"})).await;
    assert_eq!(answer["error"]["code"], -32002);
    world.end().await;
}

/// D038.
#[tokio::test(start_paused = true)]
async fn d038_what_only_a_template_matches_goes_to_its_owner_as_it_is() {
    let mut world = World::new(vec![server("a"), server("b")]);
    let mut a = Full::new(world.accept("a").await, Era::Modern);
    a.templates = json!([{"name": "rows", "uriTemplate": "db://t/{table}{?limit}"}]);
    let mut b = Full::new(world.accept("b").await, Era::Legacy);
    a.quiet(Duration::from_millis(300)).await;
    b.settle().await;
    for era in ERAS {
        let mut host = world.host();
        era.open(&mut host).await;
        for uri in ["db://t/a%2Fb?limit=5", "db://t/users"] {
            host.ask(1, "resources/read", era.params(json!({"uri": uri}))).await;
            let asked = a.expect("resources/read").await;
            assert_eq!(asked["params"]["uri"], uri);
            let contents = json!([{"uri": uri, "mimeType": "application/octet-stream", "blob": "AAEC"}]);
            a.end.result(&asked, json!({"contents": contents, "resultType": "complete"})).await;
            assert_eq!(host.answer(1).await["result"]["contents"], contents);
        }
    }
    world.end().await;
}

/// A resource may be asked for before its server has listed both lists that say whose it is (N-9).
#[tokio::test(start_paused = true)]
async fn n9_a_read_waits_for_the_list_that_is_still_on_its_way() {
    let mut world = World::new(vec![server("a")]);
    let mut host = world.host();
    Era::Legacy.open(&mut host).await;
    let mut a = world.accept("a").await;
    let probe = a.expect("server/discover").await;
    a.error(&probe, -32601).await;
    let opening = a.expect("initialize").await;
    let result = json!({"protocolVersion": "2025-11-25", "capabilities": {"resources": {}},
        "serverInfo": {"name": "t", "version": "0"}});
    a.result(&opening, result).await;
    a.expect("notifications/initialized").await;
    let resources = a.expect("resources/list").await;
    let templates = a.expect("resources/templates/list").await;
    a.result(&templates, json!({"resourceTemplates": []})).await;
    sleep(Duration::from_millis(100)).await;
    host.ask(1, "resources/read", json!({"uri": "x:late"})).await;
    sleep(Duration::from_millis(100)).await;
    a.result(&resources, json!({"resources": [{"name": "l", "uri": "x:late"}]})).await;
    assert_eq!(a.expect("resources/read").await["params"]["uri"], "x:late");
    world.end().await;
}

async fn page(host: &mut End, era: Era, method: &str, cursor: &Value) -> Value {
    era.get(host, method, json!({"cursor": cursor})).await
}

fn many(count: usize, mark: &str) -> Value {
    (0..count).map(|n| json!({"name": "r", "uri": format!("x:{mark}{n}")})).collect()
}

/// PAG-3, PAG-5; PAG-2, PAG-4.
#[tokio::test(start_paused = true)]
async fn pag2_pag4_a_long_list_comes_in_pages_of_one_snapshot_under_cursors_of_ours() {
    for era in ERAS {
        let change = |a: &mut Full| {
            a.resources = many(2500, "");
            a.prompts = (0..1001).map(|n| json!({"name": format!("p{n}")})).collect();
        };
        let (world, mut host, mut a) = one_with(era, Era::Legacy, change).await;
        let first = era.get(&mut host, "resources/list", json!({})).await;
        let second = page(&mut host, era, "resources/list", &first["result"]["nextCursor"]).await;
        let third = page(&mut host, era, "resources/list", &second["result"]["nextCursor"]).await;
        let uris = |answer: &Value| {
            let items = answer["result"]["resources"].as_array().unwrap_or_else(|| panic!("{answer}"));
            items.iter().map(|item| item["uri"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!([&first, &second, &third].map(|page| uris(page).len()), [1000, 1000, 500]);
        assert_eq!(third["result"].get("nextCursor"), None);
        let scopes = [&first, &second, &third].map(|page| page["result"].get("cacheScope"));
        assert_eq!(scopes, [(era == Era::Modern).then_some(&json!("private")); 3]);
        let all: Vec<_> = [&first, &second, &third].into_iter().flat_map(uris).collect();
        assert_eq!(all, (0..2500).map(|n| format!("x:{n}")).collect::<Vec<_>>());
        // Never ours, tampered with, of another list: all the same.
        let cursor = first["result"]["nextCursor"].as_str().unwrap();
        let mut tampered = cursor.as_bytes().to_vec();
        let middle = tampered.len() / 2;
        tampered[middle] = if tampered[middle] == b'A' { b'B' } else { b'A' };
        let tampered = String::from_utf8(tampered).unwrap();
        let prompts = era.get(&mut host, "prompts/list", json!({})).await["result"]["nextCursor"].clone();
        for bad in [json!(""), json!("1000"), json!(tampered), json!(7), prompts] {
            let answer = page(&mut host, era, "resources/list", &bad).await;
            assert_eq!(answer["error"]["code"], -32602, "{bad}: {answer}");
        }
        let raw = json!(cursor).to_string();
        let other = Caller { principal: Principal::key("other"), ..Caller::stdio(Revision::V2025_11_25) };
        let own = Caller::stdio(Revision::V2025_11_25);
        assert!(world.gateway.list(Kind::Resource, &other, Some(raw.as_bytes()), b"").await.is_err());
        assert!(world.gateway.list(Kind::Resource, &own, Some(raw.as_bytes()), b"").await.is_ok());
        // After a change the pages go on where they were, for a while.
        a.resources = many(1500, "new");
        a.tell("notifications/resources/list_changed", json!({})).await;
        a.settle().await;
        if era == Era::Legacy {
            host.expect("notifications/resources/list_changed").await;
        }
        assert_eq!(uris(&page(&mut host, era, "resources/list", &json!(cursor)).await), uris(&second));
        assert_eq!(uris(&era.get(&mut host, "resources/list", json!({})).await)[0], "x:new0");
        sleep(Duration::from_secs(301)).await;
        let answer = page(&mut host, era, "resources/list", &json!(cursor)).await;
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
        world.end().await;
    }
}

/// CCH-2, CCH-3: as long as the page that holds shortest; a server without the kind shortens nothing.
#[tokio::test(start_paused = true)]
async fn cch3_a_list_holds_as_long_as_its_shortest_page() {
    for (first, second, expected) in [(Some(60_000), Some(30_000), 30_000), (Some(60_000), None, 0)] {
        let mut world = World::new(["a", "b"].map(server).into());
        let mut a = world.accept("a").await;
        let mut b = Full::new(world.accept("b").await, Era::Modern);
        b.capabilities = json!({"tools": {}});
        let probe = a.expect("server/discover").await;
        a.result(&probe, json!({"supportedVersions": ["2026-07-28"], "capabilities": {"prompts": {}}})).await;
        for (name, ttl, cursor) in [("p", first, Some("next")), ("q", second, None)] {
            let asked = a.expect("prompts/list").await;
            let mut page = json!({"resultType": "complete", "prompts": [{"name": name}]});
            for (member, value) in [("ttlMs", ttl.map(Value::from)), ("nextCursor", cursor.map(Value::from))] {
                if let Some(value) = value {
                    page[member] = value;
                }
            }
            a.result(&asked, page).await;
        }
        b.settle().await;
        let mut host = world.host();
        let answer = Era::Modern.get(&mut host, "prompts/list", json!({})).await;
        let ttl = answer["result"]["ttlMs"].as_u64().unwrap();
        assert!(ttl <= expected && ttl + 3000 > expected, "{answer}");
        world.end().await;
    }
}
