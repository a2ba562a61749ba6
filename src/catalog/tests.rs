//! All kinds together: names, URIs, apps, profiles and pages over several servers.
//!
//! Long, and one thing: one small world of servers serves all of them.

use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::config::settings::{ItemFilter, ProfileSettings};
use crate::ident::{Kind, ServerKey};
use crate::policy::{ItemRules, Policy, ServerRules};
use crate::protocol::json;
use crate::protocol::version::Revision;

const NEWEST: Revision = Revision::LATEST_MODERN;

/// A server, its lists as written.
#[derive(Clone, Default)]
struct Lists {
    key: &'static str,
    bare: bool,
    http: bool,
    rules: ServerRules,
    lists: [Option<String>; 4],
}

impl Lists {
    fn new(key: &'static str) -> Self {
        Self { key, ..Self::default() }
    }

    fn with(mut self, kind: Kind, items: impl IntoIterator<Item = String>) -> Self {
        self.lists[kind.index()] = Some(format!("[{}]", items.into_iter().collect::<Vec<_>>().join(",")));
        self
    }

    fn tools(self, tools: &[(&str, &str)]) -> Self {
        self.with(
            Kind::Tool,
            tools.iter().map(|(name, more)| format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}}{more}}}"#)),
        )
    }

    fn prompts(self, names: &[&str]) -> Self {
        self.with(Kind::Prompt, names.iter().map(|name| format!(r#"{{"name":"{name}"}}"#)))
    }

    fn resources(self, uris: &[&str]) -> Self {
        self.with(Kind::Resource, uris.iter().map(|uri| format!(r#"{{"uri":"{uri}","name":"n"}}"#)))
    }

    fn templates(self, templates: &[&str]) -> Self {
        self.with(Kind::Template, templates.iter().map(|text| format!(r#"{{"uriTemplate":"{text}","name":"n"}}"#)))
    }

    fn bare(self) -> Self {
        Self { bare: true, ..self }
    }

    fn hides(mut self, kind: Kind, deny: &str) -> Self {
        let rules = ItemRules::compile(&ItemFilter { allow: None, deny: vec![deny.to_owned()] }).unwrap();
        match kind {
            Kind::Tool => self.rules.tools = rules,
            Kind::Prompt => self.rules.prompts = rules,
            Kind::Resource => self.rules.resources = rules,
            Kind::Template => self.rules.templates = rules,
        }
        self
    }
}

fn parse(kind: Kind, list: &str) -> Part {
    Part::parse(kind, &[Bytes::copy_from_slice(list.as_bytes())], crate::config::settings::ListLimits::default())
        .unwrap()
}

/// The catalogue of these servers, their positions as indices.
fn seen(servers: &[Lists], view: &View) -> Catalogue {
    let keys: Vec<_> = servers.iter().map(|server| ServerKey::new(server.key).unwrap()).collect();
    let parts: Vec<[Option<Arc<Part>>; 4]> = servers
        .iter()
        .map(|server| Kind::ALL.map(|kind| Some(Arc::new(parse(kind, server.lists[kind.index()].as_deref()?)))))
        .collect();
    let contributions: Vec<_> = servers
        .iter()
        .enumerate()
        .map(|(n, server)| Contribution {
            server: n,
            key: &keys[n],
            prefix: if server.bare { "" } else { server.key },
            http: server.http,
            parts: parts[n].each_ref().map(Option::as_ref),
        })
        .collect();
    let policy = Policy::new(servers.iter().map(|server| server.rules.clone()).collect());
    Catalogue::build(&contributions, &policy, 45, view)
}

fn merged(servers: &[Lists]) -> Catalogue {
    seen(servers, &View::default())
}

fn view(servers: &[Lists], shown: &[&str], deny: &[&str]) -> View {
    let keys: Vec<_> = servers.iter().map(|server| ServerKey::new(server.key).unwrap()).collect();
    let mut profile = ProfileSettings::everything();
    profile.servers = Some(shown.iter().map(|key| ServerKey::new(key).unwrap()).collect());
    profile.tools.deny = deny.iter().map(|&text| text.to_owned()).collect();
    View::compile(&profile, &keys).unwrap()
}

fn names(catalogue: &Catalogue, kind: Kind) -> Vec<&str> {
    catalogue.names(kind).collect()
}

/// Who is asked for a URI, and for what.
fn asked(catalogue: &Catalogue, uri: &str) -> Option<(usize, String)> {
    catalogue.resolve_uri(uri, |_| None).map(|route| (route.server, route.native.into_owned()))
}

fn to(server: usize, native: &str) -> Option<(usize, String)> {
    Some((server, native.to_owned()))
}

#[test]
fn d036_prompts_are_named_like_tools() {
    let both = merged(&[Lists::new("a").prompts(&["review"]), Lists::new("b").prompts(&["review", "x y"])]);
    assert_eq!(names(&both, Kind::Prompt), ["a__review", "b__review", "b__x_y"]);
    let route = both.resolve(Kind::Prompt, "b__review").unwrap();
    assert_eq!((route.server, &*route.native, &*route.native_json), (1, "review", br#""review""#.as_slice()));
    assert!(both.resolve(Kind::Tool, "b__review").is_none() && both.resolve(Kind::Prompt, "review").is_none());
    let hidden = merged(&[Lists::new("a").prompts(&["review", "b"]).hides(Kind::Prompt, "rev*")]);
    assert_eq!(names(&hidden, Kind::Prompt), ["a__b"]);
    assert!(hidden.resolve(Kind::Prompt, "a__review").is_none());
}

#[test]
fn n_17_prompts_have_a_budget_of_their_own() {
    let long = "p".repeat(60);
    let one = merged(&[Lists::new("a").prompts(&[&long])]);
    assert_eq!(names(&one, Kind::Prompt), [format!("a__{long}")], "tools have 45");
    let longer = "p".repeat(62);
    let one = merged(&[Lists::new("a").prompts(&[&longer])]);
    assert_eq!(names(&one, Kind::Prompt)[0].len(), 64);
}

#[test]
fn d046_every_kind_keeps_its_members() {
    let rest = r#","title":"T\u00e9","description":"d","annotations":{"a":1.0},"size":1E2,"arguments":[{"name":"q","required":true}],"_meta":{"a/b":[1]},"x":null "#;
    let server = Lists::new("s")
        .with(Kind::Prompt, [format!(r#"{{ "name" : "p"{rest}}}"#)])
        .with(Kind::Resource, [format!(r#"{{ "name":"n", "uri" : "x:a"{rest}}}"#)])
        .with(Kind::Template, [format!(r#"{{ "name":"n", "uriTemplate" : "x:{{a}}"{rest}}}"#)]);
    let catalogue = merged(&[server]);
    for revision in Revision::ALL {
        assert_eq!(catalogue.list(Kind::Prompt, revision), format!(r#"[{{ "name" : "s__p"{rest}}}]"#));
        assert_eq!(catalogue.list(Kind::Resource, revision), format!(r#"[{{ "name":"n", "uri" : "x:a"{rest}}}]"#));
        let template = format!(r#"[{{ "name":"n", "uriTemplate" : "x:{{a}}"{rest}}}]"#);
        assert_eq!(catalogue.list(Kind::Template, revision), template);
    }
}

#[test]
fn lst_7_icons_of_every_kind() {
    let icons = r#","icons":[{"src":"http://x"},{"src":"https://x"}]"#;
    let server = Lists::new("s")
        .with(Kind::Prompt, [format!(r#"{{"name":"p"{icons}}}"#)])
        .with(Kind::Resource, [format!(r#"{{"uri":"x:a","name":"n"{icons}}}"#)])
        .with(Kind::Template, [format!(r#"{{"uriTemplate":"x:{{a}}","name":"n"{icons}}}"#)]);
    let catalogue = merged(&[server]);
    for kind in [Kind::Prompt, Kind::Resource, Kind::Template] {
        let list = |revision| String::from_utf8(catalogue.list(kind, revision).to_vec()).unwrap();
        assert!(list(NEWEST).ends_with(r#","icons":[{"src":"https://x"}]}]"#));
        assert!(!list(Revision::V2025_06_18).contains("icons"));
        assert_eq!(list(Revision::V2025_06_18), list(Revision::V2024_11_05));
    }
}

#[test]
fn lst_6_bad_entries_of_every_kind_are_dropped_and_named() {
    let dropped =
        |kind, list: &str| -> Vec<String> { parse(kind, list).dropped().iter().map(ToString::to_string).collect() };
    let faults = dropped(
        Kind::Resource,
        r#"[{"uri":"x:a","name":"n"},{"uri":"x:a","name":"m"},{"name":"n"},{"uri":"x:b"},{"uri":"no scheme","name":"n"},{"uri":"x:\n","name":""},7]"#,
    );
    assert_eq!(faults.len(), 6);
    assert_eq!(faults[0], "resource \"x:a\": an earlier entry has the same URI");
    assert_eq!(faults[1], "resource at position 2: it has no usable URI");
    assert_eq!(faults[2], "resource \"x:b\": it has no usable name");
    assert!(faults[3].contains("no scheme") && faults[4].contains("control character"), "RES-5");
    let long = format!(r#"[{{"uri":"x:{}","name":"n"}}]"#, "y".repeat(uri::MAX_URI));
    assert_eq!(dropped(Kind::Resource, &long).len(), 1);
    let faults = dropped(Kind::Template, r#"[{"uriTemplate":"x:{a","name":"n"},{"uriTemplate":"{+a}","name":"n"}]"#);
    assert_eq!(faults.len(), 1);
    assert_eq!(dropped(Kind::Prompt, r#"[{"name":""},{"name":"a"},{"name":"a","title":"b"}]"#).len(), 2);
}

#[test]
fn u_2_one_uri_of_two_servers_is_of_neither() {
    let both = merged(&[
        Lists::new("a").resources(&["demo://readme", "demo://a"]),
        Lists::new("b").resources(&["demo://readme", "demo://b"]),
    ]);
    let [a, b] = ["a", "b"].map(|key| format!("og+{key}:demo%3A%2F%2Freadme"));
    assert_eq!(names(&both, Kind::Resource), [&*a, "demo://a", &*b, "demo://b"], "D037");
    assert_eq!(asked(&both, &a), to(0, "demo://readme"));
    assert_eq!(asked(&both, &b), to(1, "demo://readme"));
    assert_eq!(asked(&both, "demo://readme"), None);
    assert_eq!(both.resolve_uri("demo://readme", |_| Some(0)), None, "nor by what was learned");
    assert_eq!(asked(&both, "demo://b"), to(1, "demo://b"));
    assert_eq!(both.expose_uri(1, "demo://readme"), b);
    assert_eq!(both.expose_uri(0, "demo://other"), "demo://other");
    let list = both.list(Kind::Resource, NEWEST);
    assert!(String::from_utf8(list.to_vec()).unwrap().contains(&format!(r#"{{"uri":"{b}","name":"n"}}"#)));
}

/// RES-4.
#[test]
fn u_2_uris_that_hosts_may_open_stay_with_the_first() {
    for native in ["https://h/x", "file:///x", "FILE:///x"] {
        let both = merged(&[Lists::new("b").resources(&[native]), Lists::new("a").resources(&[native])]);
        let other = uri::enclose("b", native);
        assert_eq!(names(&both, Kind::Resource), [native, &other], "the first key");
        assert_eq!(asked(&both, native), to(1, native));
        assert_eq!(asked(&both, &other), to(0, native));
    }
}

#[test]
fn u_5_a_mention_takes_nothing_over() {
    let both = merged(&[Lists::new("a").resources(&["x:1"]), Lists::new("b").resources(&[])]);
    assert_eq!(both.expose_uri(1, "x:1"), "og+b:x%3A1", "it is the other's by its list");
    assert_eq!(both.resolve_uri("x:1", |_| Some(1)).unwrap().server, 0);
    assert_eq!(asked(&both, "og+b:x%3A1"), to(1, "x:1"));
    assert_eq!(both.resolve_uri("x:2", |_| Some(1)).unwrap().server, 1, "what nobody lists");
    assert_eq!(both.resolve_uri("x:2", |_| Some(7)), None);
}

#[test]
fn u_4_interfaces_keep_their_scheme() {
    let link = r#","_meta":{"ui":{"resourceUri":"ui:\/\/w/a"},"ui/resourceUri":"ui://w/a","o":"ui://w/a"}"#;
    let servers =
        [Lists::new("a").tools(&[("t", link)]).resources(&["ui://w/a"]), Lists::new("b").resources(&["ui://w/a"])];
    let both = merged(&servers);
    assert_eq!(names(&both, Kind::Resource), ["ui://a/w/a", "ui://b/w/a"], "no collision");
    assert_eq!(asked(&both, "ui://b/w/a"), to(1, "ui://w/a"));
    assert_eq!(asked(&both, "ui://b/unlisted"), to(1, "ui://unlisted"), "APP-2: no list need have it");
    assert_eq!(asked(&both, "ui://w/a"), None);
    assert_eq!(asked(&both, "ui://c/w/a"), None);
    let expected = link.replace(r#"{"resourceUri":"ui:\/\/w/a"}"#, r#"{"resourceUri":"ui://a/w/a"}"#);
    let expected = expected.replace(r#"resourceUri":"ui://w"#, r#"resourceUri":"ui://a/w"#);
    for revision in Revision::ALL {
        let list = both.list(Kind::Tool, revision);
        assert_eq!(list, format!(r#"[{{"name":"a__t","inputSchema":{{"type":"object"}}{expected}}}]"#));
    }
    assert!(both.rewrites_uris(0) && both.rewrites_uris(1) && !both.rewrites_uris(2));
    assert!(!merged(&[Lists::new("a").tools(&[("t", "")])]).rewrites_uris(0));
}

#[test]
fn a_server_without_a_prefix_keeps_its_uris() {
    let natives = ["ui://w/a", "x:1", "https://h", "ui://b/x", "og+x:1"];
    let link = r#","_meta":{"ui":{"resourceUri":"ui://linked"}}"#;
    let servers = [
        Lists::new("a").bare().resources(&natives).templates(&["x:{a}"]).tools(&[("t", link)]),
        Lists::new("b").resources(&["x:1", "https://h", "ui://x"]).templates(&["x:{a}"]),
    ];
    let both = merged(&servers);
    let others = ["og+b:x%3A1", "og+b:https%3A%2F%2Fh", "og+b:ui%3A%2F%2Fx"];
    assert_eq!(names(&both, Kind::Resource), [&natives[..], &others].concat());
    assert_eq!(names(&both, Kind::Template), ["x:{a}", "og+b:x%3A{a}"]);
    for native in natives.into_iter().chain(["ui://linked", "x:other"]) {
        assert_eq!(asked(&both, native), to(0, native), "{native}");
        assert_eq!(both.expose_uri(0, native), native);
    }
    for (uri, native) in others.into_iter().zip(["x:1", "https://h", "ui://x"]) {
        assert_eq!(asked(&both, uri), to(1, native));
    }
    assert_eq!(asked(&both, "og+b:x%3Aother"), to(1, "x:other"));
    assert_eq!(asked(&both, "ui://b/y"), to(1, "ui://y"));
    assert!(String::from_utf8(both.list(Kind::Tool, NEWEST).to_vec()).unwrap().contains(link));
    // Only what it mentions of another one's list is not read there.
    let both = merged(&[Lists::new("a").bare().resources(&[]), Lists::new("b").resources(&["x:1"])]);
    assert_eq!(both.expose_uri(0, "x:1"), "og+a:x%3A1");
    assert_eq!(asked(&both, "og+a:x%3A1"), to(0, "x:1"));
}

#[test]
fn no_uri_passes_for_one_of_another_server() {
    let both = merged(&[Lists::new("a").resources(&["og+b:x%3A1"]), Lists::new("b").resources(&["x:1"])]);
    assert_eq!(names(&both, Kind::Resource), ["og+a:og%2Bb%3Ax%253A1", "x:1"]);
    assert_eq!(asked(&both, "og+b:x%3A1"), to(1, "x:1"));
    assert_eq!(asked(&both, "og+a:og%2Bb%3Ax%253A1"), to(0, "og+b:x%3A1"));
    // The one that passes untouched would go astray: then it is none.
    let bare = merged(&[Lists::new("a").bare().resources(&["og+b:x%3A1"]), Lists::new("b").resources(&["x:1"])]);
    assert_eq!(names(&bare, Kind::Resource), ["x:1"]);
    let hidden: Vec<_> = bare.items(Kind::Resource, NEWEST).filter_map(|item| Some(item.hidden?.code())).collect();
    assert_eq!(hidden, ["name-taken"]);
}

#[test]
fn u_6_what_is_hidden_is_not_found_by_any_spelling() {
    let servers = [
        Lists::new("a").resources(&["x:1", "x:2", "ui://w"]).hides(Kind::Resource, "*[1w]"),
        Lists::new("b").resources(&["x:1"]).templates(&["s:{a}", "o:{a}"]).hides(Kind::Template, "s:*"),
    ];
    let both = merged(&servers);
    assert_eq!(names(&both, Kind::Resource), ["x:2", "x:1"], "what is hidden collides with nothing");
    assert_eq!(names(&both, Kind::Template), ["o:{a}"]);
    assert_eq!(asked(&both, "x:1"), to(1, "x:1"));
    for uri in ["og+a:x%3A1", "ui://a/w", "og+a:ui%3A%2F%2Fw", "s:5", "og+b:s%3A5"] {
        assert_eq!(asked(&both, uri), None, "{uri}");
        assert_eq!(both.resolve_uri(uri, |_| Some(1)), None, "{uri}");
    }
    assert_eq!(asked(&both, "o:5"), to(1, "o:5"));
    assert!(both.resolve_template("s:{a}").is_none());
    let cut = seen(&servers, &view(&servers, &["a"], &[]));
    assert_eq!(names(&cut, Kind::Resource), ["x:2"]);
    for uri in ["x:1", "og+b:x%3A1", "ui://b/w", "o:5"] {
        assert_eq!(cut.resolve_uri(uri, |_| Some(1)), None, "{uri}");
    }
    assert_eq!(cut.expose_uri(0, "x:1"), "x:1", "nothing tells of a server that is not shown");
}

#[test]
fn res_5_uris_that_are_none_find_nobody() {
    let one = merged(&[Lists::new("a").resources(&["x:1"]).templates(&["x:{+a}", "{+a}"])]);
    let long = format!("x:{}", "y".repeat(uri::MAX_URI));
    for uri in ["", "nothing", "x:\n", "og+a:nothing", "og+a:x%3A%0A", "og+a:x%3A%FF", "og+a:", &long] {
        assert_eq!(one.resolve_uri(uri, |_| Some(0)), None, "{uri}");
    }
}

#[test]
fn u_1_templates_find_their_owner_if_there_is_one() {
    let both = merged(&[
        Lists::new("a").templates(&["db://t/{table}{?limit}", "db://t/{table}/all", "f:{+p}"]),
        Lists::new("b").templates(&["x://{a}/b", "f:x{y}"]),
    ]);
    assert_eq!(asked(&both, "db://t/a%2Fb?limit=5"), to(0, "db://t/a%2Fb?limit=5"), "D038");
    assert_eq!(asked(&both, "db://t/u/all"), to(0, "db://t/u/all"));
    assert_eq!(asked(&both, "x://1/b"), to(1, "x://1/b"));
    assert_eq!(asked(&both, "f:xy"), None, "two could have it");
    assert_eq!(both.resolve_uri("f:xy", |_| Some(1)).unwrap().server, 1, "but one was seen to");
    assert_eq!(asked(&both, "f:y"), to(0, "f:y"));
    assert_eq!(asked(&both, "db://t/u/none"), None);
    let found = both.resolve_template("x://{a}/b").unwrap();
    assert_eq!((found.server, &*found.native), (1, "x://{a}/b"), "U-9");
    assert!(both.resolve_template("x://1/b").is_none());
}

#[test]
fn u_8_twins_among_templates() {
    let text = "db://t/{table}{?limit}";
    let ui = "ui://w/{x}";
    let both = merged(&[Lists::new("a").templates(&[text, ui]), Lists::new("b").templates(&[text, ui])]);
    let [a, b] = ["a", "b"].map(|key| format!("og+{key}:db%3A%2F%2Ft%2F{{table}}{{?limit}}"));
    assert_eq!(names(&both, Kind::Template), [&*a, "ui://a/w/{x}", &*b, "ui://b/w/{x}"]);
    assert_eq!(asked(&both, "db://t/u"), None);
    for (expanded, native) in [
        ("og+b:db%3A%2F%2Ft%2Fusers", "db://t/users"),
        ("og+b:db%3A%2F%2Ft%2Fa%2Fb?limit=5", "db://t/a%2Fb?limit=5"),
        ("og+b:db%3A%2F%2Ft%2F100%25", "db://t/100%25"),
        ("ui://b/w/5", "ui://w/5"),
    ] {
        assert_eq!(asked(&both, expanded), to(1, native));
    }
    // The same text, when it is known for a URI of its own.
    let known = both.resolve_uri("og+b:db%3A%2F%2Ft%2F100%25", |uri| (uri == "db://t/100%").then_some(1));
    assert_eq!(known.unwrap().native, "db://t/100%");
    let found = both.resolve_template(&b).unwrap();
    assert_eq!((found.server, &*found.native), (1, text));
    assert!(both.resolve_template(text).is_none());
}

#[test]
fn app_5_tools_of_others_are_no_business_of_apps() {
    let app = Lists::new("a").tools(&[("open", r#","_meta":{"ui":{"resourceUri":"ui://w"}}"#)]);
    let plain = Lists::new("b").tools(&[
        ("t", ""),
        ("m", r#","_meta":{"a":1}"#),
        ("said", r#","_meta":{"ui":{"visibility":["model","app"]}}"#),
    ]);
    let texts = |catalogue: &Catalogue| {
        let list = catalogue.list(Kind::Tool, NEWEST);
        json::elements(&list).map(|raw| String::from_utf8(raw.to_vec()).unwrap()).collect::<Vec<_>>()
    };
    let both = merged(&[app.clone(), plain.clone()]);
    let list = texts(&both);
    assert!(list[0].ends_with(r#","_meta":{"ui":{"resourceUri":"ui://a/w"}}}"#), "{}", list[0]);
    assert!(list[1].ends_with(r#"{"type":"object"},"_meta":{"ui":{"visibility":["model"]}}}"#), "{}", list[1]);
    assert!(list[2].ends_with(r#","_meta":{"ui":{"visibility":["model"]},"a":1}}"#), "{}", list[2]);
    assert!(list[3].ends_with(r#","_meta":{"ui":{"visibility":["model","app"]}}}"#), "{}", list[3]);
    // Without an app among them, or alone, nothing is said.
    for quiet in [merged(&[plain.clone(), Lists::new("c").tools(&[("t", "")])]), merged(std::slice::from_ref(&plain))] {
        assert!(!texts(&quiet).concat().contains(r#"["model"]"#));
    }
    let servers = [app, plain];
    let cut = seen(&servers, &view(&servers, &["b"], &[]));
    assert!(!texts(&cut).concat().contains(r#"["model"]"#), "the app is not shown here");
    assert_ne!(cut.fingerprint_of(Kind::Tool), both.fingerprint_of(Kind::Tool));
}

#[test]
fn app_6_apps_call_tools_by_their_native_names() {
    let ui = r#","_meta":{"ui":{"resourceUri":"ui://w"}}"#;
    let servers = [
        Lists::new("a").tools(&[("open", ui), ("both", ""), ("c__x", ""), ("hid", "")]).hides(Kind::Tool, "hid"),
        Lists::new("b").tools(&[("show", ui), ("both", "")]),
        Lists::new("c").tools(&[("x", ""), ("plain", "")]),
    ];
    let all = merged(&servers);
    let alias = |name| all.alias(name).map(|route| (route.server, &*route.native));
    assert_eq!(alias("open"), Some((0, "open")));
    assert_eq!(alias("show"), Some((1, "show")));
    for none in ["both", "plain", "c__x", "a__open", "hid", "nothing"] {
        assert_eq!(alias(none), None, "{none}");
    }
}

#[test]
fn xmh_2_a_server_by_http_loses_tools_with_bad_annotations() {
    let schema = |annotated: &str| {
        format!(
            r#"{{"name":"{annotated}","inputSchema":{{"type":"object","properties":{{"p":{{"type":"{annotated}","x-mcp-header":"P"}}}}}}}}"#
        )
    };
    let stdio = Lists::new("a").with(Kind::Tool, [schema("string"), schema("number")]);
    let http = Lists { http: true, key: "b", ..stdio.clone() };
    let both = merged(&[stdio, http.clone()]);
    assert_eq!(names(&both, Kind::Tool), ["a__string", "a__number", "b__string"]);
    let mirror = |name| both.resolve(Kind::Tool, name).unwrap().mirror.as_deref().map(|params| params[0].path.clone());
    assert_eq!(mirror("a__string"), Some(vec!["p".to_owned()]));
    assert_eq!(mirror("a__number"), None);
    let list = String::from_utf8(both.list(Kind::Tool, NEWEST).to_vec()).unwrap();
    assert_eq!(list.matches("x-mcp-header").count(), 2, "XMH-3: what is published is what is enforced");
    let hidden = both.items(Kind::Tool, NEWEST).find_map(|item| Some((item.native.to_owned(), item.hidden?.code())));
    assert_eq!(hidden.unwrap(), ("number".to_owned(), "invalid-header"));
    let part = parse(Kind::Tool, http.lists[0].as_deref().unwrap());
    assert_eq!(part.badly_annotated().collect::<Vec<_>>(), ["number"]);
}

#[test]
fn profiles_show_less_and_name_nothing_anew() {
    let servers = [
        Lists::new("a").tools(&[("r", ""), ("w", "")]).prompts(&["p"]),
        Lists::new("b").tools(&[("r", "")]).prompts(&["p"]),
    ];
    let cut = seen(&servers, &view(&servers, &["a"], &["a/w"]));
    assert_eq!(names(&cut, Kind::Tool), ["a__r"]);
    assert_eq!(names(&cut, Kind::Prompt), ["a__p"]);
    assert!(cut.resolve(Kind::Tool, "b__r").is_none() && cut.resolve(Kind::Tool, "a__w").is_none());
    let why: Vec<_> = cut.items(Kind::Tool, NEWEST).filter_map(|item| Some(item.hidden?.code())).collect();
    assert_eq!(why, ["not-in-profile"; 2]);
    // Two without a prefix, each in a profile of its own: neither takes a name from the other.
    let bare = servers.map(Lists::bare);
    for key in ["a", "b"] {
        let one = seen(&bare, &view(&bare, &[key], &[]));
        assert_eq!(one.resolve(Kind::Tool, "r").map(|route| route.server), Some(usize::from(key == "b")));
    }
}

#[test]
fn d041_pages_are_cuts_of_the_list() {
    let natives: Vec<_> = (0..7).map(|n| format!("x:{n}")).collect();
    let uris: Vec<_> = natives.iter().map(String::as_str).collect();
    let one = merged(&[Lists::new("a").resources(&uris)]);
    let whole = one.list(Kind::Resource, NEWEST);
    assert_eq!(one.entries(Kind::Resource), 7);
    for limit in 1..9 {
        let (mut offset, mut found) = (Some(0), Vec::new());
        while let Some(from) = offset {
            let (page, next) = one.page(Kind::Resource, NEWEST, from, limit);
            let entries: Vec<_> = json::elements(&page).map(<[u8]>::to_vec).collect();
            assert!(serde_json::from_slice::<serde::de::IgnoredAny>(&page).is_ok());
            assert!(entries.len() == limit || next.is_none());
            found.extend(entries);
            offset = next;
        }
        assert_eq!(found, json::elements(&whole).map(<[u8]>::to_vec).collect::<Vec<_>>());
    }
    let (page, next) = one.page(Kind::Resource, NEWEST, 0, 7);
    assert_eq!((page.as_ptr(), next), (whole.as_ptr(), None), "what fits is not copied");
    for past in [7, 100] {
        assert_eq!(one.page(Kind::Resource, NEWEST, past, 3), (Bytes::from_static(b"[]"), None));
    }
    assert_eq!(one.page(Kind::Tool, NEWEST, 0, 3), (Bytes::from_static(b"[]"), None));
}

#[test]
fn each_kind_has_a_fingerprint() {
    let of = |server: Lists| Kind::ALL.map(|kind| merged(std::slice::from_ref(&server)).fingerprint_of(kind));
    let base = Lists::new("a").tools(&[("t", "")]).prompts(&["p"]).resources(&["x:1"]).templates(&["x:{a}"]);
    let changed = [
        base.clone().tools(&[("u", "")]),
        base.clone().prompts(&["q"]),
        base.clone().resources(&["x:2"]),
        base.clone().templates(&["y:{a}"]),
    ];
    let base = of(base);
    for (kind, changed) in Kind::ALL.into_iter().zip(changed) {
        let changed = of(changed);
        for other in Kind::ALL {
            assert_eq!(base[other.index()] == changed[other.index()], other != kind, "{kind} {other}");
        }
    }
}

/// URIs that look alike, of every form.
fn any_uri() -> impl Strategy<Value = String> {
    prop_oneof![
        "[xy]:[12/]{0,2}",
        "(https|file)://[12]",
        "ui://[ab12]?/?[12]?",
        "og\\+[abc]:[x%3A12/]{0,5}",
        "x://\\[::1\\]/(%2f|%2F|ü|\\?a=1#f){0,2}",
    ]
}

proptest! {
    /// U-1 … U-4: what hosts are shown leads back to the byte, to the server that has it, whoever else has what.
    #[test]
    fn u_3_every_listed_uri_leads_back(
        lists in prop::collection::vec(prop::collection::btree_set(any_uri(), 0..5), 3),
        mentioned in prop::collection::vec((0..3usize, any_uri()), 0..6),
        bare in any::<bool>(),
    ) {
        let servers: Vec<_> = ["a", "b", "c"].into_iter().zip(&lists).map(|(key, uris)| {
            let uris: Vec<_> = uris.iter().map(String::as_str).collect();
            let server = Lists::new(key).resources(&uris);
            if bare && key == "b" { server.bare() } else { server }
        }).collect();
        let all = merged(&servers);
        let mut exposed: Vec<_> = Vec::new();
        for item in all.items(Kind::Resource, NEWEST).filter(|item| item.hidden.is_none()) {
            let uri = item.exposed.unwrap();
            prop_assert_eq!(asked(&all, uri), to(item.server, item.native), "{}", uri);
            prop_assert_eq!(&*all.expose_uri(item.server, item.native), uri);
            exposed.push(uri.to_owned());
        }
        let count = exposed.len();
        exposed.sort();
        exposed.dedup();
        prop_assert_eq!(exposed.len(), count, "each once");
        // The same for what is only mentioned, where it is known who did first.
        for (n, (server, native)) in mentioned.iter().enumerate() {
            let uri = all.expose_uri(*server, native);
            let first = mentioned[..n].iter().all(|(_, other)| other != native);
            let lost = servers[*server].bare && native.starts_with("og+");
            if first && !lost {
                let found = all.resolve_uri(&uri, |known| (known == native).then_some(*server));
                // Of what passes untouched, the server's key in front is another's.
                let inserted = servers[*server].bare && native.starts_with("ui://");
                prop_assert!(inserted || found.map(|r| (r.server, r.native.into_owned())) == to(*server, native), "{} {}", uri, native);
            }
        }
    }

    /// N-8: names of prompts depend neither on the order of servers or prompts nor on what else is up.
    #[test]
    fn n_8_names_of_prompts_do_not_depend_on_order(
        natives in prop::collection::btree_set("[aAbB._ ü]{1,5}", 1..8),
        order in Just([0usize, 1, 2]).prop_shuffle(),
        reversed in any::<bool>(),
    ) {
        let mut natives: Vec<_> = natives.iter().map(String::as_str).collect();
        let keys = ["a", "b", "c"];
        let servers = |natives: &[&str], order: &[usize]| {
            order.iter().map(|&n| Lists::new(keys[n]).prompts(natives)).collect::<Vec<_>>()
        };
        let table = |catalogue: &Catalogue, key: &str| {
            let items = catalogue.items(Kind::Prompt, NEWEST).filter(|item| item.key.as_str() == key);
            let mut pairs: Vec<_> =
                items.map(|item| (item.native.to_owned(), item.exposed.map(str::to_owned))).collect();
            pairs.sort();
            pairs
        };
        let base = merged(&servers(&natives, &[0, 1, 2]));
        if reversed {
            natives.reverse();
        }
        let shuffled = merged(&servers(&natives, &order));
        let alone = merged(&servers(&natives, &order[..1]));
        for key in keys {
            prop_assert_eq!(table(&base, key), table(&shuffled, key));
        }
        prop_assert_eq!(table(&base, keys[order[0]]), table(&alone, keys[order[0]]));
    }
}
