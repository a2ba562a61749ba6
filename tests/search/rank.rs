//! `rank CATALOGUE`: one query a line on stdin, one JSON array a line on stdout, the tools that fit best first.
//!
//! The catalogue has one tool a line: `server`, `native`, `exposed` and its definition. For scorers of the ranking alone;
//! through the whole gateway they ask `onegate__search_tools`. An example, so that `cargo test` builds it.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a tool for developers")]

use std::io::{BufRead, Write};

use onegate::search::{Document, Index, Texts};

fn main() {
    let path = std::env::args().nth(1).expect("a catalogue, one tool a line");
    let catalogue = std::fs::read_to_string(path).unwrap();
    let tools: Vec<serde_json::Value> = catalogue.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let texts: Vec<Texts> = catalogue.lines().map(|line| Texts::read(line.as_bytes())).collect();
    let documents = tools.iter().zip(&texts).map(|(tool, texts)| {
        let member = |name: &str| tool[name].as_str().unwrap_or_default();
        Document::of([member("native"), ""], member("server"), texts)
    });
    let index = Index::build(documents);
    for query in std::io::stdin().lock().lines() {
        let hits = index.search(&query.unwrap(), 10, |_| true);
        let found = |hit: &onegate::search::Hit| serde_json::json!({ "name": tools[hit.document]["exposed"], "score": hit.score });
        println!("{}", serde_json::Value::from_iter(hits.iter().map(found)));
        std::io::stdout().flush().unwrap();
    }
}
