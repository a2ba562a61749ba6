//! Class E for tools: pages of servers and pages of ours (D041–D043).

use std::collections::BTreeSet;

use serde_json::json;

use crate::host::{CELLS, Era, Host, PATIENCE, Setup, until};

#[test]
fn d041_all_pages_are_collected() {
    for (at, (count, page, cursor)) in [
        (101, 50, "offset"),
        (101, 50, "empty"),
        (7, 1, "offset"),
        (7, 3, "empty"),
        (100, 50, "offset"),
        (199, 1, "offset"),
    ]
    .into_iter()
    .enumerate()
    {
        let (host_era, era) = CELLS[at % CELLS.len()];
        let mut host = Setup::new()
            .server("a", json!({"tool_count": count, "page": page, "cursor": cursor, "era": era.word()}))
            .server("b", json!({"tool_count": 3}))
            .open(host_era);
        let tools = host.tools_count(count + 3);
        assert!(tools.contains(&format!("a__t{:03}", count - 1)));
        let pages = host.received_of("a", "tools/list").len();
        assert_eq!(pages, count.div_ceil(page), "{cursor}");
        assert_eq!(host.call(&format!("a__t{:03}", count - 1), "{}").text(), format!("a:t{:03}", count - 1));
        host.finish();
    }
}

#[test]
fn d042_cursors_that_lead_nowhere_fail_that_list_only() {
    for cursor in ["repeat", "alternate", "fresh"] {
        for era in Era::ALL {
            let mut host = Setup::new()
                .server("loop", json!({"tool_count": 3, "page": 1, "cursor": cursor, "era": era.word()}))
                .server("fine", json!({"tool_count": 2}))
                .open(era);
            let tools = host.tools();
            let fine = tools.iter().filter(|t| t.starts_with("fine__")).count();
            assert_eq!(fine, 2, "{cursor}: {tools:?}");
            assert_eq!(tools.len(), tools.iter().collect::<BTreeSet<_>>().len(), "{cursor}: tools are multiplied");
            let pages = host.received_of("loop", "tools/list").len();
            assert!(pages <= 1001, "{cursor}: {pages} pages");
            host.wait_stderr("loop");
            assert_eq!(host.call("fine__t000", "{}").text(), "fine:t000");
            host.finish();
        }
    }
}

#[test]
fn d042_the_last_good_list_stays() {
    let more = r#"{"name":"more","inputSchema":{"type":"object"}}"#;
    for cursor in ["repeat", "alternate", "fresh"] {
        let mut host = Setup::new()
            .server(
                "a",
                json!({"tool_count": 3, "page": 2, "lists_ok": 1, "cursor": cursor, "act": {"do": "change", "tool": more}}),
            )
            .open(Era::Legacy);
        host.tools_count(3);
        let good = host.received_of("a", "tools/list").len();
        host.call("a__t000", "{}");
        until("it was listed again", PATIENCE, || host.received_of("a", "tools/list").len() > good + 1);
        for _ in 0..3 {
            assert_eq!(host.tools(), ["a__t000", "a__t001", "a__t002"], "{cursor}");
        }
        assert_eq!(host.call("a__t002", "{}").text(), "a:t002");
        host.finish();
    }
}

/// Walks our own pages.
fn walk(host: &mut Host) -> (Vec<String>, usize) {
    let mut names = Vec::new();
    let mut cursor = String::new();
    for page in 1.. {
        let answer = host.ask("tools/list", &cursor);
        for tool in answer.value()["tools"].as_array().unwrap() {
            names.push(tool["name"].as_str().unwrap().to_owned());
        }
        match answer.result_raw("nextCursor") {
            Some(next) => cursor = format!("\"cursor\":{next}"),
            None => return (names, page),
        }
        assert!(page < 2000);
    }
    unreachable!()
}

#[test]
fn d043_our_own_pages_lose_and_double_nothing() {
    for era in Era::ALL {
        let mut host = Setup::new()
            .server("a", json!({"tool_count": 700}))
            .server("b", json!({"tool_count": 600, "page": 100}))
            .open(era);
        let end = std::time::Instant::now() + PATIENCE;
        let names = loop {
            let (names, _) = walk(&mut host);
            if names.len() == 1300 || std::time::Instant::now() > end {
                break names;
            }
        };
        assert_eq!(names.len(), 1300);
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), 1300);
        host.finish();
    }
}

#[test]
fn d043_a_walk_across_a_change_keeps_what_stayed() {
    let mut host = Setup::new()
        .server("a", json!({"tool_count": 600}))
        .server("b", json!({"tool_count": 600, "acts": {"t599": {"do": "change"}}}))
        .open(Era::Legacy);
    let end = std::time::Instant::now() + PATIENCE;
    while walk(&mut host).0.len() != 1200 {
        assert!(std::time::Instant::now() < end);
    }
    let first = host.ask("tools/list", "");
    let mut names: Vec<String> =
        first.value()["tools"].as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap().to_owned()).collect();
    let mut next = first.result_raw("nextCursor");
    host.call("b__t599", "{}");
    host.note("notifications/tools/list_changed");
    while let Some(cursor) = next {
        let answer = host.ask("tools/list", &format!("\"cursor\":{cursor}"));
        names
            .extend(answer.value()["tools"].as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap().to_owned()));
        next = answer.result_raw("nextCursor");
    }
    let unique: BTreeSet<&String> = names.iter().collect();
    assert_eq!(unique.len(), names.len(), "doubled");
    let lost = (0..600)
        .map(|n| format!("a__t{n:03}"))
        .chain((1..600).map(|n| format!("b__t{n:03}")))
        .filter(|n| !unique.contains(n))
        .count();
    assert_eq!(lost, 0);
    host.finish();
}

#[test]
fn pag4_bad_cursors_are_refused() {
    for era in Era::ALL {
        let mut host = Setup::new().server("a", json!({"tool_count": 2})).open(era);
        host.tools_count(2);
        for cursor in ["\"\"", "\"again\"", "\"0\"", "\"djEuYWJj\"", "\"-1\"", "7", "{}", "[]", "true"] {
            let answer = host.ask("tools/list", &format!("\"cursor\":{cursor}"));
            assert_eq!(answer.code(), -32602, "{cursor}");
        }
        assert_eq!(host.tools().len(), 2);
        host.finish();
    }
}
