//! Class D for tools: names, routes, order (D030–D035, D040).

use std::collections::BTreeSet;

use serde_json::json;

use crate::host::{CELLS, Era, Host, Setup};

fn tool(name: &str) -> String {
    format!(r#"{{"name":{},"inputSchema":{{"type":"object"}}}}"#, serde_json::Value::from(name))
}

fn tools(names: &[&str]) -> serde_json::Value {
    json!({"tools": names.iter().map(|n| tool(n)).collect::<Vec<_>>()})
}

/// Calls every listed tool; returns (exposed name, `server:native` as the server says).
fn routes(host: &mut Host, count: usize) -> Vec<(String, String)> {
    let names = host.tools_count(count);
    names
        .into_iter()
        .map(|name| {
            let said = host.call(&name, "{}").text();
            (name, said)
        })
        .collect()
}

fn assert_names(routes: &[(String, String)], budget: usize) {
    let mut folded = BTreeSet::new();
    for (name, _) in routes {
        assert!(name.len() <= budget, "{name} is longer than {budget}");
        assert!(name.starts_with(|c: char| c.is_ascii_alphabetic()), "{name}");
        assert!(name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-'), "{name}");
        assert!(folded.insert(name.to_lowercase()), "{name} occurs twice");
    }
}

#[test]
fn d030_equal_names_of_two_servers_stay_apart() {
    for (host_era, era) in CELLS {
        let mut a = tools(&["search", "same"]);
        let mut b = tools(&["search", "same"]);
        a["era"] = era.word().into();
        b["era"] = era.word().into();
        let mut host = Setup::new().server("alpha", a).server("beta", b).open(host_era);
        let routes = routes(&mut host, 4);
        let expected = ["alpha__search", "alpha__same", "beta__search", "beta__same"];
        for ((name, said), expected) in routes.iter().zip(expected) {
            assert_eq!(name, expected);
            assert_eq!(*said, expected.replace("__", ":"));
        }
        host.finish();
    }
}

#[test]
fn d031_names_that_sanitise_alike_stay_apart() {
    for natives in [
        &["search-a", "search_a", "search.a"][..],
        &["a b", "a_b", "a.b", "a/b", "a:b"],
        &["größe", "gr__e", "gr_e", "gr e"],
        &["Search", "search", "SEARCH"],
        &["x", "x ", " x", "x.", "_x", "x_"],
        &["日本", "中国", "🦀", "🎉", "\u{200b}"],
    ] {
        let mut host = Setup::new().server("s", tools(natives)).open(Era::Legacy);
        let routes = routes(&mut host, natives.len());
        assert_names(&routes, 45);
        let said: Vec<String> = routes.into_iter().map(|(_, said)| said).collect();
        let expected: Vec<String> = natives.iter().map(|n| format!("s:{n}")).collect();
        assert_eq!(said, expected);
        host.finish();
    }
}

#[test]
fn d032_prefixes_with_the_separator_are_refused_or_kept_apart() {
    let setup = || {
        Setup::new().server_with("one", tools(&["b__c", "c"]), "prefix = \"a\"").server_with(
            "two",
            tools(&["b__c", "c"]),
            "prefix = \"a__b\"",
        )
    };
    let checked = setup().output(&["check"]);
    if checked.code == Some(2) {
        let said = format!("{}{}", checked.out, checked.err);
        assert!(said.contains("servers.two.prefix") && said.contains("__"), "{said}");
        return;
    }
    let mut host = setup().open(Era::Legacy);
    let routes = routes(&mut host, 4);
    assert_names(&routes, 45);
    let said: BTreeSet<&str> = routes.iter().map(|(_, said)| said.as_str()).collect();
    assert_eq!(said, BTreeSet::from(["one:b__c", "one:c", "two:b__c", "two:c"]));
    host.finish();
}

#[test]
fn d032_equal_prefixes_are_refused() {
    let shown = Setup::new()
        .server_with("one", tools(&["x"]), "prefix = \"p\"")
        .server_with("two", tools(&["x"]), "prefix = \"p\"")
        .output(&["check"]);
    assert_eq!(shown.code, Some(2), "{}{}", shown.out, shown.err);
}

#[test]
fn d033_long_names_fit_the_budget_and_stay_the_same() {
    let natives: Vec<String> = [1, 31, 32, 33, 50, 64, 128, 300]
        .iter()
        .map(|n| format!("t{}", "long-name9".repeat(30).get(..n - 1).unwrap()))
        .collect();
    let twins = [format!("{}a", "x".repeat(99)), format!("{}b", "x".repeat(99))];
    let all: Vec<&str> = natives.iter().chain(&twins).map(String::as_str).collect();
    for budget in [52, 45, 32] {
        let mut before = None;
        // A profile may have a budget of its own.
        for head in [
            format!("[gateway]\nname_budget = {budget}"),
            format!("[gateway]\nname_budget = 63\n[profiles.default]\nname_budget = {budget}"),
        ] {
            let mut host = Setup::new().head(&head).server("abcdefghijklmnop", tools(&all)).open(Era::Modern);
            let routes = routes(&mut host, all.len());
            assert_names(&routes, budget);
            for ((name, said), native) in routes.iter().zip(&all) {
                assert_eq!(*said, format!("abcdefghijklmnop:{native}"));
                assert!(name.starts_with("abcdefghijklmnop__"));
                if native.len() + 18 <= budget {
                    assert_eq!(*name, format!("abcdefghijklmnop__{native}"), "shortened without need");
                }
            }
            let names: Vec<String> = routes.into_iter().map(|(name, _)| name).collect();
            assert!(before.is_none_or(|b| b == names), "names changed over a restart");
            before = Some(names);
            host.finish();
        }
    }
}

#[test]
fn d034_the_server_is_sent_its_own_name() {
    for (host_era, era) in CELLS {
        let native = "größe.messen / \"x\"";
        let mut scenario = tools(&[native]);
        scenario["era"] = era.word().into();
        scenario["act"] = json!({"do": "line"});
        let mut host = Setup::new().server_with("srv", scenario, "prefix = \"other\"").open(host_era);
        let name = host.tools_count(1).remove(0);
        assert!(name.starts_with("other__"), "{name}");
        let line = host.call(&name, r#"{"name":"other__x"}"#).text();
        let sent: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(sent["params"]["name"], native);
        assert_eq!(sent["params"]["arguments"], json!({"name": "other__x"}));
        assert!(!line.contains(&name));
        host.finish();
    }
}

#[test]
fn d035_names_of_built_in_things_are_plain_names() {
    let natives = [
        "constructor",
        "__proto__",
        "toString",
        "null",
        "true",
        ".",
        "..",
        "/",
        "undefined",
        "prototype",
        "hasOwnProperty",
        "NaN",
        "0",
        "-1",
        "tools/call",
        "initialize",
        "con",
        "$ref",
        "_meta",
        "\\",
        "'",
        "\"",
        "%s",
        "{}",
        "a\u{0}b",
        "line\nbreak",
    ];
    for era in Era::ALL {
        let mut host = Setup::new().server("s", tools(&natives)).open(era);
        let routes = routes(&mut host, natives.len());
        assert_names(&routes, 45);
        for ((_, said), native) in routes.iter().zip(natives) {
            assert_eq!(*said, format!("s:{native}"));
        }
        for unknown in ["constructor", "__proto__", "s__", "__", "", "s__hasOwnProperty_", "toString"] {
            assert_eq!(host.call(unknown, "{}").code(), -32602, "{unknown:?}");
        }
        host.finish();
    }
}

#[test]
fn lst6_equal_names_of_one_server_keep_the_first() {
    let first = r#"{"name":"t","description":"first","inputSchema":{"type":"object"}}"#;
    let second = r#"{"name":"t","description":"second","inputSchema":{"type":"object"}}"#;
    let mut host = Setup::new().server("s", json!({"tools": [first, second, tool("u")]})).open(Era::Legacy);
    host.tools_count(2);
    assert_eq!(host.tools_raw()[0], first.replace("\"t\"", "\"s__t\""));
    host.wait_stderr("\"t\"");
    host.finish();
}

#[test]
fn an_empty_prefix_lets_names_pass() {
    let natives = ["plain", "größe", "with space", "b__t", &"x".repeat(100)];
    let mut host =
        Setup::new().server_with("a", tools(&natives), "prefix = \"\"").server("b", tools(&["t"])).open(Era::Legacy);
    let routes = routes(&mut host, 6);
    for ((name, said), native) in routes.iter().zip(natives) {
        assert_eq!((name.as_str(), said.as_str()), (native, format!("a:{native}").as_str()));
    }
    // The other server gives way where its name would be the same.
    assert!(routes[5].0.starts_with("b__t_"), "{}", routes[5].0);
    assert_eq!(routes[5].1, "b:t");
    host.finish();
}

#[test]
fn d040_the_order_is_the_same_each_time() {
    let mut before: Option<Vec<String>> = None;
    for round in 0..3_u64 {
        let mut setup = Setup::new();
        for (n, key) in ["z", "a-b", "a", "m", "b"].iter().enumerate() {
            let delay = (n as u64 + round) % 5 * 40;
            let mut scenario = tools(&["z", "a", "M", "b"]);
            scenario["start_delay_ms"] = delay.into();
            scenario["page"] = (1 + round).into();
            setup = setup.server(key, scenario);
        }
        let mut host = setup.open(if round == 1 { Era::Modern } else { Era::Legacy });
        host.tools_count(20);
        let list = host.tools_raw();
        for _ in 0..10 {
            assert_eq!(host.tools_raw(), list);
        }
        let keys: Vec<String> = host.tools().iter().map(|n| n.split("__").next().unwrap().to_owned()).collect();
        assert!(keys.is_sorted(), "{keys:?}");
        assert!(before.is_none_or(|b| b == list), "another run, another order");
        before = Some(list);
        host.finish();
    }
}
