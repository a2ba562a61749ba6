//! Finding tools, in 250 and in 20 000: what a query costs by words and with vectors of a common width, and what the index does.
//! With the folder of a sentence model in `ONEGATE_TEST_MODEL` and the feature `semantic`, what the model itself costs.
//!
//! The tools are made up of a few hundred words, so that each word stands in many of them, as in real ones.

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use onegate::search::{Beside, Document, Index, Meant, Model, Texts, Vector, Vectors, find};
use std::hint::black_box;

const VERBS: &[&str] = &["list", "get", "create", "update", "delete", "search", "read", "write", "move", "export"];
const THINGS: &[&str] = &[
    "file",
    "directory",
    "branch",
    "commit",
    "page",
    "dialog",
    "chart",
    "table",
    "query",
    "message",
    "channel",
    "issue",
    "comment",
    "document",
    "event",
    "contact",
    "invoice",
    "deployment",
    "container",
    "image",
    "metric",
    "alert",
    "user",
];
const QUERIES: &[&str] = &[
    "delete branch",
    "show me the photo of the last holiday",
    "which invoices of this customer are not paid yet, and since when",
    "serch documnets",
    "why is the page so sluggish",
];

/// The definition of the `n`th tool: about a hundred words.
fn definition(n: usize) -> (String, String) {
    let (verb, thing) = (VERBS[n % VERBS.len()], THINGS[n / 7 % THINGS.len()]);
    let other = THINGS[n / 3 % THINGS.len()];
    let name = format!("{verb}_{thing}_{other}{}", n / 230);
    let own = format!("topic{} area{}", n % 997, n % 313);
    let description = format!(
        "{verb} a {thing} of the given {other}. Returns the {thing} with its {other} and {own}. Use it when the user asks \
         for a {thing}; not for a {other}, which has tools of its own. Results are paginated and sorted by date."
    );
    let schema = format!(
        r#"{{"type":"object","properties":{{"{thing}_id":{{"type":"string","description":"The {thing} that is meant"}},"{other}":{{"type":"string","description":"Name of the {other}, {own}"}},"limit":{{"type":"integer","description":"How many results, at most"}}}}}}"#
    );
    (name.clone(), format!(r#"{{"name":"{name}","description":"{description}","inputSchema":{schema}}}"#))
}

fn tools(count: usize) -> Vec<(String, Texts)> {
    (0..count).map(definition).map(|(name, raw)| (name, Texts::read(raw.as_bytes()))).collect()
}

fn build(tools: &[(String, Texts)]) -> Index {
    Index::build(tools.iter().map(|(name, texts)| Document::of([name, ""], "server", texts)))
}

/// How many numbers a vector of a small model has.
const WIDTH: usize = 384;

fn vector(n: usize) -> Vector {
    Vector::of(&(0..WIDTH).map(|at| ((at + 1) * (n + 1) % 251) as f32 - 125.0).collect::<Vec<_>>())
}

/// What a query and a tool cost the model.
fn model(c: &mut Criterion) {
    let Some(folder) = std::env::var_os("ONEGATE_TEST_MODEL") else { return };
    let Ok(model) = Model::open(folder.as_ref()) else { return };
    let (name, raw) = definition(7);
    let passage = Texts::read(raw.as_bytes()).passage("server", &name);
    let mut group = c.benchmark_group("model");
    group.sample_size(10);
    group.bench_function("a query", |b| {
        let mut queries = QUERIES.iter().cycle();
        b.iter(|| black_box(model.of_query(queries.next().copied().unwrap_or_default())));
    });
    group.bench_function("a tool", |b| b.iter(|| black_box(model.of_tool(&passage))));
    group.finish();
}

fn search(c: &mut Criterion) {
    for count in [250, 20_000] {
        let tools = tools(count);
        let index = build(&tools);
        let size = index.size() >> 10;
        c.bench_function(&format!("search/{count} tools ({size} KiB)"), |b| {
            let mut queries = QUERIES.iter().cycle();
            b.iter(|| black_box(index.search(queries.next().copied().unwrap_or_default(), 10, |_| true)));
        });
        let vectors = Vectors::of(([0; 16], WIDTH), &(0..count).map(vector).collect::<Vec<_>>());
        let (meant, size) = (Meant { model: [0; 16], vector: vector(7) }, vectors.size() >> 10);
        c.bench_function(&format!("search/{count} tools with vectors ({size} KiB)"), |b| {
            let mut queries = QUERIES.iter().cycle();
            b.iter(|| {
                let near = vectors.near(black_box(&meant));
                black_box(find(
                    &index,
                    queries.next().copied().unwrap_or_default(),
                    Beside { near: near.as_deref(), ..Beside::default() },
                    10,
                    |_| true,
                ))
            });
        });
        let mut group = c.benchmark_group("index");
        group.sample_size(10);
        group.bench_function(format!("{count} tools"), |b| {
            b.iter_batched(|| (), |()| build(black_box(&tools)), BatchSize::PerIteration);
        });
        group.finish();
    }
}

criterion_group!(benches, search, model);
criterion_main!(benches);
