//! How well tools are found, and what lists of real tools cost: held to the figures of `docs/search.md`.
//!
//! The catalogue and the queries are no part of the product: `ONEGATE_TEST_SEARCH_EVAL` names their folder, with
//! `catalogue.jsonl` (`server`, `native`, `exposed` and the definition) and `queries.jsonl` (`style`, `query`, `accept`).
//! Without it these tests do nothing, and say so. In builds with the feature `semantic`, `ONEGATE_TEST_MODEL` names the folder of a
//! model, all-MiniLM-L6-v2.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on shall stop there")]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use onegate::catalog::ledger::Ledger;
use onegate::catalog::{Catalogue, Contribution, Part};
use onegate::config::settings::{ProfileSettings, SurfaceMode, SurfaceSettings, TrimSettings};
use onegate::ident::{Kind, ServerKey};
use onegate::policy::{Policy, ServerRules, View};
use onegate::protocol::version::Revision;
use onegate::search::Meant;
use serde_json::Value;

/// The rows of a file, unless there is none.
#[expect(clippy::print_stderr, reason = "says that it does nothing")]
fn rows(file: &str) -> Option<Vec<Value>> {
    let Some(folder) = std::env::var_os("ONEGATE_TEST_SEARCH_EVAL") else {
        eprintln!("skipped: ONEGATE_TEST_SEARCH_EVAL names no folder");
        return None;
    };
    let text = std::fs::read_to_string(PathBuf::from(folder).join(file)).unwrap();
    Some(text.lines().filter(|line| !line.trim().is_empty()).map(|line| serde_json::from_str(line).unwrap()).collect())
}

/// The catalogue of these servers, all where none is named.
fn catalogue(rows: &[Value], only: &[&str], surface: SurfaceSettings) -> Catalogue {
    let mut lists: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for row in rows {
        let server = row["server"].as_str().unwrap();
        if only.is_empty() || only.contains(&server) {
            let mut tool = row.clone();
            tool["name"] = row["native"].clone();
            for ours in ["server", "native", "exposed"] {
                tool.as_object_mut().unwrap().remove(ours);
            }
            lists.entry(server).or_default().push(tool);
        }
    }
    let keys: Vec<_> = lists.keys().map(|key| ServerKey::new(key).unwrap()).collect();
    let part = |tools: &Vec<Value>| {
        let page = Bytes::from(Value::from(tools.clone()).to_string());
        Arc::new(Part::parse(Kind::Tool, &[page], onegate::config::settings::ListLimits::default()).unwrap())
    };
    let parts: Vec<_> = lists.values().map(part).collect();
    let contribution = |server: usize| {
        let parts = [Some(&parts[server]), None, None, None];
        Contribution { server, key: &keys[server], prefix: keys[server].as_str(), http: false, parts }
    };
    let contributions: Vec<_> = (0..keys.len()).map(contribution).collect();
    let policy = Policy::new(vec![ServerRules::default(); keys.len()]);
    let view = View::compile(&ProfileSettings { surface, ..ProfileSettings::everything() }, &keys).unwrap();
    // Long enough for every name, so that they are those of the file.
    Catalogue::build(&contributions, &policy, 128, &view)
}

/// Which share of queries has a tool that fits among the first ones, by style, and in how many pairs of a query that has one and
/// of one that has none the best score tells which is which.
fn shares(
    queries: &[Value],
    catalogue: &Catalogue,
    first: usize,
    meant: impl Fn(&str) -> Option<Meant>,
) -> BTreeMap<String, f64> {
    let mut counts: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    let mut scores = [Vec::new(), Vec::new()];
    for query in queries {
        let accept: Vec<_> = query["accept"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
        let text = query["query"].as_str().unwrap();
        let found = catalogue.find((text, meant(text).as_ref()), None, first, Revision::LATEST_MODERN);
        scores[usize::from(accept.is_empty())].push(found.first().map_or(0.0, |tool| tool.score));
        if accept.is_empty() {
            continue;
        }
        let hit = found.iter().any(|tool| accept.contains(&tool.exposed));
        for style in [query["style"].as_str().unwrap(), "all"] {
            let count = counts.entry(style).or_default();
            *count = (count.0 + usize::from(hit), count.1 + 1);
        }
    }
    let [some, none] = scores;
    let pairs = some.iter().flat_map(|some| none.iter().map(move |none| f64::from(some > none)));
    let told = pairs.sum::<f64>() / (some.len() * none.len()).max(1) as f64;
    let shares = counts.into_iter().map(|(style, (hits, all))| (style.to_owned(), hits as f64 / all as f64));
    shares.chain([("told".to_owned(), told)]).collect()
}

#[track_caller]
fn at_least(shares: &BTreeMap<String, f64>, least: [(&str, f64); 5]) {
    for (style, least) in least {
        assert!(shares[style] >= least, "{style}: {} ({shares:?})", shares[style]);
    }
}

/// Queries of our own to the same tools, which neither the words of the vocabulary nor any weight were made for.
fn more_queries() -> Vec<Value> {
    include_str!("queries.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// By words: both lexical baselines that are known for these are below .63 in all.
#[test]
fn queries_find_what_they_should() {
    let (Some(tools), Some(queries)) = (rows("catalogue.jsonl"), rows("queries.jsonl")) else { return };
    let catalogue = catalogue(&tools, &[], SurfaceSettings::default());
    // Three queries less than the figures of the page: a change of a weight moves single ones.
    let least = [("all", 0.85), ("keyword", 0.94), ("sentence", 0.86), ("indirect", 0.5), ("told", 0.9)];
    at_least(&shares(&queries, &catalogue, 5, |_| None), least);
    let least = [("all", 0.83), ("keyword", 0.94), ("sentence", 0.83), ("indirect", 0.54), ("told", 0.78)];
    at_least(&shares(&more_queries(), &catalogue, 5, |_| None), least);
}

/// With a model: the baseline of this model alone is .766 among the first five, .828 among the first ten.
#[cfg(feature = "semantic")]
#[test]
fn queries_find_what_they_mean() {
    use onegate::search::{Model, Vectors};
    let (Some(tools), Some(queries)) = (rows("catalogue.jsonl"), rows("queries.jsonl")) else { return };
    let Some(folder) = std::env::var_os("ONEGATE_TEST_MODEL") else {
        eprintln!("skipped: ONEGATE_TEST_MODEL names no folder");
        return;
    };
    let model = Model::open(folder.as_ref()).unwrap();
    // As the published implementation has it: the cosines of three sentences.
    let sentence = |text: &str| model.of_tool(text);
    let [eating, bread, girl] =
        ["A man is eating food.", "A man is eating a piece of bread.", "The girl is carrying a baby."].map(sentence);
    let vectors = Vectors::of((model.id(), model.width()), [&eating, &bread, &girl]);
    let near = vectors.near(&Meant { model: model.id(), vector: eating }).unwrap();
    for (near, expected) in near.iter().zip([1.0, 0.7553, -0.105]) {
        assert!((near - expected).abs() < 0.005, "{near} in place of {expected}");
    }
    let catalogue = catalogue(&tools, &[], SurfaceSettings::default());
    let each: Vec<_> = catalogue.passages().iter().map(|text| sentence(text)).collect();
    catalogue.means(Vectors::of((model.id(), model.width()), &each));
    let meant = |text: &str| Some(Meant { model: model.id(), vector: model.of_query(text) });
    let least = [("all", 0.83), ("keyword", 0.94), ("sentence", 0.86), ("indirect", 0.5), ("told", 0.9)];
    at_least(&shares(&queries, &catalogue, 5, meant), least);
    let least = [("all", 0.85), ("keyword", 0.94), ("sentence", 0.86), ("indirect", 0.6), ("told", 0.9)];
    at_least(&shares(&queries, &catalogue, 10, meant), least);
    let least = [("all", 0.87), ("keyword", 0.94), ("sentence", 0.9), ("indirect", 0.6), ("told", 0.82)];
    at_least(&shares(&more_queries(), &catalogue, 5, meant), least);
}

/// Ten common servers: what their lists cost whole, below a ceiling and behind search. Nothing is lost.
#[test]
fn ten_servers_fit_where_they_should() {
    let Some(tools) = rows("catalogue.jsonl") else { return };
    let ten = ["evr", "fs", "mem", "think", "playwright", "context7", "git", "time", "fetch", "sql"];
    let trim = TrimSettings { description: Some(400), output_schema: true, examples: true, dialect: true };
    let cost = |surface: SurfaceSettings| Ledger::of(&catalogue(&tools, &ten, surface));
    let whole = cost(SurfaceSettings::default());
    assert!(whole.listed.items >= 80 && whole.listed.tokens > 13_000, "{whole:?}");
    let trimmed = cost(SurfaceSettings { trim, ..SurfaceSettings::default() });
    assert!(trimmed.listed.items == whole.listed.items && trimmed.listed.tokens * 10 < whole.listed.tokens * 9);
    for surface in [
        SurfaceSettings { max_tokens: Some(8000), ..SurfaceSettings::default() },
        SurfaceSettings {
            max_tokens: Some(8000),
            trim,
            always: vec!["fs/*".into(), "git/*".into()],
            ..SurfaceSettings::default()
        },
        SurfaceSettings {
            mode: SurfaceMode::Search,
            max_tokens: Some(1000),
            always: vec!["fs/read_text_file".into()],
            ..SurfaceSettings::default()
        },
    ] {
        let most = surface.max_tokens.unwrap();
        let searched = surface.mode == SurfaceMode::Search;
        let cut = cost(surface);
        assert!(cut.listed.tokens <= most && cut.own.items == 2, "{cut:?}");
        assert_eq!(cut.listed.items - 2 + cut.behind.items, whole.listed.items, "{cut:?}");
        // A ceiling is made use of.
        assert!(searched || cut.listed.tokens + 300 > most, "{cut:?}");
    }
}
