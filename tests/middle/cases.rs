//! Variants of cases that stand in no other file: all kinds, both eras, several hosts at once.

use serde_json::{Value, json};

use super::end::{End, modern_as, text};
use super::full::{CELLS, ERAS, Era, Full};
use super::world::{World, server};

/// The items of a kind, and where they stand.
const KINDS: [(&str, &str, &str); 4] = [
    ("tools/list", "tools", "name"),
    ("prompts/list", "prompts", "name"),
    ("resources/list", "resources", "uri"),
    ("resources/templates/list", "resourceTemplates", "uriTemplate"),
];

fn item(member: &str, n: usize) -> Value {
    match member {
        "tools" => json!({"name": format!("t{n}"), "inputSchema": {"type": "object"}}),
        "prompts" => json!({"name": format!("p{n}")}),
        "resources" => json!({"name": "r", "uri": format!("x:{n}")}),
        _ => json!({"name": "q", "uriTemplate": format!("x:{n}/{{id}}")}),
    }
}

/// D041: 101 items of each kind, fifty to a page; one of the cursors is empty (PAG-1).
#[tokio::test(start_paused = true)]
async fn d041_all_pages_of_all_kinds_are_collected() {
    for era in ERAS {
        let mut world = World::new(vec![server("a")]);
        let mut host = world.host();
        let mut a = world.accept("a").await;
        let capabilities = json!({"tools": {}, "prompts": {}, "resources": {}});
        let mut left = 4 * 3;
        while left > 0 {
            let asked = a.next().await.unwrap();
            let method = asked["method"].as_str().unwrap();
            let result = match method {
                "server/discover" if era == Era::Legacy => {
                    a.error(&asked, -32601).await;
                    continue;
                }
                "server/discover" => json!({"supportedVersions": ["2026-07-28"], "capabilities": capabilities,
                    "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}),
                "initialize" => json!({"protocolVersion": "2025-11-25", "capabilities": capabilities,
                    "serverInfo": {"name": "t", "version": "0"}}),
                "notifications/initialized" => continue,
                _ => {
                    let (_, member, _) = KINDS.into_iter().find(|(list, ..)| *list == method).unwrap();
                    let from = match asked["params"].get("cursor").map(|cursor| cursor.as_str().unwrap()) {
                        None => 0,
                        Some("") => 50,
                        Some("last") => 100,
                        Some(other) => panic!("a cursor {other}"),
                    };
                    left -= 1;
                    let items: Vec<_> = (from..(from + 50).min(101)).map(|n| item(member, n)).collect();
                    let mut result = json!({member: items});
                    if from < 100 {
                        result["nextCursor"] = json!(if from == 0 { "" } else { "last" });
                    }
                    if era == Era::Modern {
                        result["resultType"] = json!("complete");
                        result["ttlMs"] = json!(0);
                        result["cacheScope"] = json!("private");
                    }
                    result
                }
            };
            a.result(&asked, result).await;
        }
        for (method, member, key) in KINDS {
            let answer = Era::Modern.get(&mut host, method, json!({})).await;
            let listed = answer["result"][member].as_array().unwrap_or_else(|| panic!("{answer}"));
            let prefix = if key == "name" { "a__" } else { "" };
            let expected: Vec<_> =
                (0..101).map(|n| format!("{prefix}{}", item(member, n)[key].as_str().unwrap())).collect();
            let listed: Vec<_> = listed.iter().map(|item| item[key].as_str().unwrap().to_owned()).collect();
            assert_eq!(listed, expected, "{method} {era:?}");
        }
        world.end().await;
    }
}

/// D062: two hosts with the same token at once, one of them a number and one a text; each hears its own, in order.
#[tokio::test(start_paused = true)]
async fn d062_two_hosts_with_one_token_each_hear_their_own_progress() {
    for (first_era, server_era) in CELLS {
        let mut world = World::new(vec![server("a")]);
        let mut hosts = [world.host(), world.host()];
        let eras = [first_era, Era::Modern];
        let tokens = [json!(7), json!("7")];
        let mut a = Full::new(world.accept("a").await, server_era);
        a.settle().await;
        let mut calls = Vec::new();
        for ((host, era), token) in hosts.iter_mut().zip(eras).zip(&tokens) {
            era.open(host).await;
            let mut params = era.params(json!({"name": "a__t", "arguments": {}}));
            params["_meta"]["progressToken"] = token.clone();
            host.ask(1, "tools/call", params).await;
            calls.push(a.expect("tools/call").await);
        }
        for n in 1..=10 {
            for (who, call) in calls.iter().enumerate() {
                let token = call["params"]["_meta"]["progressToken"].clone();
                let params = json!({"progressToken": token, "progress": n, "message": format!("{who}")});
                a.end.tell("notifications/progress", params).await;
            }
        }
        for (who, call) in calls.iter().enumerate() {
            a.end.result(call, text(&format!("{who}"))).await;
        }
        for (who, (host, token)) in hosts.iter_mut().zip(&tokens).enumerate() {
            for n in 1..=10 {
                let told = progress(host).await;
                assert_eq!(told, json!({"progressToken": token, "progress": n, "message": format!("{who}")}));
            }
            assert_eq!(host.answer(1).await["result"]["content"][0]["text"], format!("{who}"));
        }
        world.end().await;
    }
}

async fn progress(host: &mut End) -> Value {
    loop {
        let message = host.next().await.unwrap();
        if message["method"] == "notifications/progress" {
            return message["params"].clone();
        }
        assert!(message["method"].as_str().is_some_and(|method| method.ends_with("list_changed")), "{message}");
    }
}

/// D067: a modern server asks twice, several things at once and with a long state, whatever it was asked for.
#[tokio::test(start_paused = true)]
async fn d067_a_server_asks_twice_whatever_it_was_asked_for() {
    let can = || json!({"elicitation": {}, "roots": {}});
    for (method, params, result) in [
        ("tools/call", json!({"name": "a__t", "arguments": {"x": 1}}), text("done")),
        (
            "prompts/get",
            json!({"name": "a__p", "arguments": {"x": "1"}}),
            json!({"resultType": "complete", "messages": []}),
        ),
        (
            "resources/read",
            json!({"uri": "x:1"}),
            json!({"resultType": "complete", "contents": [{"uri": "x:1", "text": "x"}],
            "ttlMs": 0, "cacheScope": "private"}),
        ),
    ] {
        let mut world = World::new(vec![server("a"), server("b")]);
        let mut host = world.host();
        let mut a = Full::new(world.accept("a").await, Era::Modern);
        let mut b = Full::new(world.accept("b").await, Era::Modern);
        b.resources = json!([]);
        b.templates = json!([]);
        a.settle().await;
        b.settle().await;
        host.ask(0, method, modern_as(params.clone(), can())).await;
        let mut ids = Vec::new();
        let mut asked = a.expect(method).await;
        for round in 1..=2 {
            ids.push(asked["id"].clone());
            let state = format!("{round}{}", "x".repeat(8 << 10));
            let form = json!({"message": "m", "requestedSchema": {"type": "object", "properties": {}}});
            let requests =
                json!({"form": {"method": "elicitation/create", "params": form}, "roots": {"method": "roots/list"}});
            let required = json!({"resultType": "input_required", "inputRequests": requests, "requestState": state});
            a.end.result(&asked, required).await;
            let told = host.answer(round - 1).await["result"].clone();
            assert_eq!(told["inputRequests"]["form"]["params"]["message"], "[a] m", "{method}");
            let mut retry = params.clone();
            retry["requestState"] = told["requestState"].clone();
            retry["inputResponses"] = json!({"form": {"action": "decline"}, "roots": {"roots": []}});
            let responses = retry["inputResponses"].clone();
            host.ask(round, method, modern_as(retry, can())).await;
            asked = a.expect(method).await;
            assert_eq!(
                (&asked["params"]["requestState"], &asked["params"]["inputResponses"]),
                (&json!(state), &responses)
            );
        }
        ids.push(asked["id"].clone());
        assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2], "{ids:?}");
        a.end.result(&asked, result).await;
        assert_eq!(host.answer(2).await["result"]["resultType"], "complete");
        world.end().await;
    }
}
