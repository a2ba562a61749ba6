//! `rank CATALOGUE [MODEL]`: one query a line on stdin, one JSON array a line on stdout, the tools that fit best first.
//!
//! The catalogue has one tool a line: `server`, `native`, `exposed` and its definition. For scorers of the ranking alone;
//! through the whole gateway they ask `onegate__search_tools`. With the
//! folder of a sentence model, by what they mean too. An example, so that `cargo test` builds it.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a tool for developers")]

use std::io::{BufRead, Write};

use onegate::search::{Beside, Document, Index, Meant, Model, Texts, Vectors, find};

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
    let model =
        std::env::args().nth(2).map(|folder| Model::open(folder.as_ref()).unwrap_or_else(|error| panic!("{error}")));
    let vectors = model.as_ref().map(|model| {
        let passage = |(tool, texts): (&serde_json::Value, &Texts)| {
            let member = |name: &str| tool[name].as_str().unwrap_or_default();
            model.of_tool(&texts.passage(member("server"), member("native")))
        };
        let each: Vec<_> = tools.iter().zip(&texts).map(passage).collect();
        Vectors::of((model.id(), model.width()), &each)
    });
    for query in std::io::stdin().lock().lines().map(|line| line.unwrap()) {
        let meant = model.as_ref().map(|model| Meant { model: model.id(), vector: model.of_query(&query) });
        let near = vectors.as_ref().zip(meant).and_then(|(vectors, meant)| vectors.near(&meant));
        let hits = find(&index, &query, Beside { near: near.as_deref(), ..Beside::default() }, 10, |_| true);
        let found = |hit: &onegate::search::Hit| serde_json::json!({ "name": tools[hit.document]["exposed"], "score": hit.score });
        println!("{}", serde_json::Value::from_iter(hits.iter().map(found)));
        std::io::stdout().flush().unwrap();
    }
}
