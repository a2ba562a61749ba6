//! Catalogues: names, merging and rendering 1 000 tools of ten servers, about 1 kB each; admitting a call; URIs.
//!
//! Targets on a small machine: merge 1.5 ms, render 1 ms.

use std::borrow::Cow;
use std::hint::black_box;
use std::sync::Arc;

use bytes::Bytes;
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use onegate::catalog::naming::{Named, Scheme};
use onegate::catalog::uri::rewrite_result;
use onegate::catalog::{Catalogue, Contribution, Part, View};
use onegate::config::settings::ItemFilter;
use onegate::ident::{Kind, Principal, ServerKey};
use onegate::policy::{Ask, Charge, Extent, ItemRules, Policy, ServerRules};
use onegate::protocol::method::Method;
use onegate::protocol::version::Revision;

const SERVERS: usize = 10;
const TOOLS: usize = 100;

/// A definition of about 1 kB; every fourth has something to strip.
fn definition(index: usize) -> String {
    let extra = if index.is_multiple_of(4) { r#","execution":{"taskSupport":"optional"}"# } else { "" };
    let text = "Reads a record and gives it back with all of its fields. ".repeat(6);
    format!(
        r#"{{"name":"read_record_{index}","title":"Record {index}","description":"{text}","inputSchema":{{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{{"id":{{"type":"string","description":"{short}"}},"limit":{{"type":"integer","minimum":1,"maximum":100,"default":10}},"fields":{{"type":"array","items":{{"type":"string"}}}}}},"required":["id"],"additionalProperties":false}},"outputSchema":{{"type":"object","properties":{{"record":{{"type":"object"}}}}}},"annotations":{{"readOnlyHint":true,"openWorldHint":false}}{extra}}}"#,
        short = &text[..120],
    )
}

struct Fixture {
    keys: Vec<ServerKey>,
    page: Bytes,
    parts: Vec<Arc<Part>>,
    policy: Policy,
}

impl Fixture {
    fn new() -> Self {
        let definitions: Vec<_> = (0..TOOLS).map(definition).collect();
        let page = Bytes::from(format!("[{}]", definitions.join(",")));
        let rules = |deny: &[&str]| {
            let filter = ItemFilter { allow: None, deny: deny.iter().map(|&text| text.to_owned()).collect() };
            ServerRules { tools: ItemRules::compile(&filter).expect("the patterns are fine"), ..ServerRules::default() }
        };
        Self {
            keys: (0..SERVERS).map(|n| ServerKey::new(&format!("server-{n}")).expect("a key")).collect(),
            parts: (0..SERVERS).map(|_| Arc::new(parse(&page))).collect(),
            policy: Policy::new((0..SERVERS).map(|_| rules(&["*delete*", "admin_?"])).collect()),
            page,
        }
    }

    fn build(&self) -> Catalogue {
        let contributions: Vec<_> = self
            .parts
            .iter()
            .zip(&self.keys)
            .enumerate()
            .map(|(server, (tools, key))| {
                let parts = [Some(tools), None, None, None];
                Contribution { server, key, prefix: key.as_str(), http: false, parts }
            })
            .collect();
        Catalogue::build(&contributions, &self.policy, 45, &View::default())
    }
}

fn parse(page: &Bytes) -> Part {
    Part::parse(Kind::Tool, std::slice::from_ref(page), onegate::config::settings::ListLimits::default())
        .expect("the page is fine")
}

/// URIs: two servers with 1 000 resources each, and a result of 64 KiB with one link.
fn resources(c: &mut Criterion) {
    let page = |server: &str| {
        let entries: Vec<_> =
            (0..1000).map(|n| format!(r#"{{"uri":"db://{server}/record/{n}","name":"record {n}"}}"#)).collect();
        Bytes::from(format!("[{}]", entries.join(",")))
    };
    let keys = ["one", "two"].map(|key| ServerKey::new(key).expect("a key"));
    let parts = keys.each_ref().map(|key| {
        Arc::new(
            Part::parse(Kind::Resource, &[page(key.as_str())], onegate::config::settings::ListLimits::default())
                .expect("the page is fine"),
        )
    });
    let contributions: Vec<_> = parts
        .iter()
        .zip(&keys)
        .enumerate()
        .map(|(server, (listed, key))| {
            let parts = [None, None, Some(listed), None];
            Contribution { server, key, prefix: key.as_str(), http: false, parts }
        })
        .collect();
    let policy = Policy::new(vec![ServerRules::default(); 2]);
    let build = || Catalogue::build(&contributions, &policy, 45, &View::default());
    c.bench_function("merge/resources/2000", |b| b.iter(build));
    let built = build();
    c.bench_function("uri/resolve", |b| {
        b.iter(|| built.resolve_uri(black_box("db://two/record/500"), |_| None).is_some())
    });
    let result = format!(
        r#"{{"content":[{{"type":"text","text":"{}"}},{{"type":"resource_link","uri":"db://two/record/500","name":"r"}}]}}"#,
        "x".repeat(64 << 10)
    );
    c.bench_function("result/64KiB-one-link", |b| {
        b.iter(|| {
            rewrite_result(black_box(result.as_bytes()), Method::ToolsCall, &mut |uri| match built.expose_uri(1, uri) {
                Cow::Borrowed(_) => None,
                Cow::Owned(exposed) => Some(exposed),
            })
        });
    });
}

fn catalogue(c: &mut Criterion) {
    let fixture = Fixture::new();
    let natives: Vec<_> = (0..TOOLS).map(|n| format!("read_record_{n}")).collect();
    let named: Vec<_> = fixture
        .keys
        .iter()
        .flat_map(|server| natives.iter().map(move |native| Named { server, prefix: server.as_str(), native }))
        .collect();

    c.bench_function("names/1000", |b| b.iter(|| Scheme::tools(45).expose(black_box(&named))));
    // A budget that nothing fits: every name is hashed.
    c.bench_function("names/1000-hashed", |b| b.iter(|| Scheme::tools(24).expose(black_box(&named))));
    c.bench_function("parse/100", |b| b.iter(|| parse(black_box(&fixture.page))));
    c.bench_function("merge/1000", |b| b.iter(|| fixture.build()));
    for revision in [Revision::V2026_07_28, Revision::V2025_03_26] {
        c.bench_function(&format!("render/1000/{}", revision.as_str()), |b| {
            b.iter_batched(
                || fixture.build(),
                |fresh| (fresh.list(Kind::Tool, revision), fresh),
                BatchSize::LargeInput,
            );
        });
    }
    resources(c);
    let built = fixture.build();
    c.bench_function("list/again", |b| b.iter(|| built.list(Kind::Tool, black_box(Revision::V2025_11_25))));
    let ask = Ask { principal: &Principal::stdio(), arguments: b"{}", extent: Extent::Whole, charge: Charge::Call };
    c.bench_function("resolve-and-admit", |b| {
        b.iter(|| {
            let route = built.resolve(Kind::Tool, black_box("server-7__read_record_42")).expect("it is there");
            fixture.policy.decide(&ask, &route.terms)
        });
    });
}

criterion_group!(benches, catalogue);
criterion_main!(benches);
