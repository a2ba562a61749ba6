//! Properties of what is listed and what is found by search, over any servers and settings.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::config::settings::{
    ItemFilter, ProfileSettings, SurfaceMode, SurfaceSettings, TokenizerName, TrimSettings, Uses,
};
use crate::ident::{Kind, ServerKey};
use crate::policy::{ItemRules, Policy, ServerRules};
use crate::protocol::json;
use crate::protocol::version::Revision;

const NEWEST: Revision = Revision::LATEST_MODERN;
const KEYS: [&str; 4] = ["a", "m", "onegatex", "z"];

/// A server's tools: how long each description is, and what else it has.
type Tools = Vec<(usize, bool)>;

fn definition(n: usize, (length, rich): (usize, bool)) -> String {
    let words = "word of it. ".repeat(length / 12 + 1);
    let more = if rich {
        r#","outputSchema":{"type":"object","properties":{"x":true}},"icons":[{"src":"https://x.test/i"}]"#
    } else {
        ""
    };
    format!(
        r#"{{"name":"tool{n}","description":"{words}","inputSchema":{{"type":"object","properties":{{"b":true}}}}{more}}}"#
    )
}

/// The catalogue of these servers, tools that end in `9` denied.
fn build(servers: &[Tools], surface: SurfaceSettings) -> Catalogue {
    let keys: Vec<_> = KEYS.iter().take(servers.len()).map(|key| ServerKey::new(key).unwrap()).collect();
    let part = |tools: &Tools| {
        let all: Vec<_> = tools.iter().enumerate().map(|(n, tool)| definition(n, *tool)).collect();
        Arc::new(
            Part::parse(
                Kind::Tool,
                &[Bytes::from(format!("[{}]", all.join(",")))],
                crate::config::settings::ListLimits::default(),
            )
            .unwrap(),
        )
    };
    let parts: Vec<_> = servers.iter().map(part).collect();
    let contribution = |n: usize| Contribution {
        server: n,
        key: &keys[n],
        prefix: keys[n].as_str(),
        http: false,
        parts: [Some(&parts[n]), None, None, None],
    };
    let contributions: Vec<_> = (0..servers.len()).map(contribution).collect();
    let tools = ItemRules::compile(&ItemFilter { allow: None, deny: vec!["*9".to_owned()] }).unwrap();
    let policy = Policy::new(vec![ServerRules { tools, ..ServerRules::default() }; servers.len()]);
    let profile = ProfileSettings { surface, ..ProfileSettings::everything() };
    let view = View::compile(&profile, &keys).unwrap();
    Catalogue::build(&contributions, &policy, 45, &view)
}

fn names(list: &[u8]) -> Vec<String> {
    let name = |raw| json::text_of(json::member(raw, "name").unwrap()).unwrap().into_owned();
    json::elements(list).map(name).collect()
}

fn servers() -> impl Strategy<Value = Vec<Tools>> {
    prop::collection::vec(prop::collection::vec((0..2000usize, any::<bool>()), 0..12), 0..4)
}

fn surfaces() -> impl Strategy<Value = SurfaceSettings> {
    let mode = prop::sample::select(vec![SurfaceMode::List, SurfaceMode::Search, SurfaceMode::Auto]);
    let trim = (prop::option::of(40..200usize), any::<bool>()).prop_map(|(description, output_schema)| TrimSettings {
        description,
        output_schema,
        ..Default::default()
    });
    let always = prop::collection::vec(prop::sample::select(vec!["*/tool1", "m/*", "a/tool[0-3]"]), 0..3);
    let tokenizers = [None, cfg!(feature = "tokenizer").then_some(TokenizerName::O200kBase)];
    let tokenizer = prop::sample::select(tokenizers.to_vec());
    (mode, prop::option::of(500..6000usize), always, trim, any::<bool>(), tokenizer).prop_map(
        |(mode, max_tokens, always, trim, list_servers, tokenizer)| SurfaceSettings {
            mode,
            max_tokens: max_tokens.or((mode == SurfaceMode::Auto).then_some(10_000)),
            always: always.into_iter().map(str::to_owned).collect(),
            always_of: Vec::new(),
            recent: None,
            uses: Uses::new([("m".to_owned(), [("tool2".to_owned(), 5)].into())].into()),
            trim,
            list_servers,
            tokenizer,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// SRF-2, SRF-3: listed and behind search together are what is allowed, each once; the list never costs more than the
    /// ceiling, whatever the revision; where something is behind, it can be found and called.
    #[test]
    fn srf_2_srf_3_nothing_is_lost_and_the_ceiling_holds(servers in servers(), surface in surfaces()) {
        let most = surface.max_tokens;
        let catalogue = build(&servers, surface.clone());
        let list = catalogue.list(Kind::Tool, NEWEST);
        let (ours, listed): (Vec<_>, Vec<_>) = names(&list).into_iter().partition(|name| own::is_own(name));
        let items: Vec<_> = catalogue.items(Kind::Tool, NEWEST).collect();
        let allowed: BTreeSet<_> =
            items.iter().filter(|item| item.hidden.is_none()).map(|item| item.exposed.unwrap().to_owned()).collect();
        let behind: BTreeSet<_> =
            items.iter().filter(|item| item.behind).map(|item| item.exposed.unwrap().to_owned()).collect();
        let shown: BTreeSet<_> = listed.iter().cloned().collect();
        prop_assert_eq!(shown.len(), listed.len());
        prop_assert!(shown.is_disjoint(&behind));
        prop_assert_eq!(shown.union(&behind).cloned().collect::<BTreeSet<_>>(), allowed.clone());
        prop_assert_eq!(catalogue.entries(Kind::Tool), listed.len() + ours.len());
        for name in &allowed {
            prop_assert!(catalogue.resolve(Kind::Tool, name).is_some());
        }
        prop_assert!(items.iter().filter(|item| item.hidden.is_some()).all(|item| !allowed.contains(item.exposed.unwrap())));
        if let Some(most) = most {
            for revision in Revision::ALL {
                prop_assert!(catalogue.counter().of(&catalogue.list(Kind::Tool, revision)) <= most);
                let each = catalogue.items(Kind::Tool, revision).filter(|item| item.hidden.is_none() && !item.behind);
                let ours = catalogue.own().map(|raw| catalogue.counter().of(raw));
                prop_assert!(each.map(|item| item.tokens).chain(ours).sum::<usize>() <= most);
            }
        }
        let searches = ours.iter().any(|name| name == own::SEARCH);
        prop_assert_eq!(searches, ours.iter().any(|name| name == own::CALL));
        prop_assert!(searches || behind.is_empty());
        prop_assert_eq!(ours.iter().any(|name| name == own::SERVERS), surface.list_servers);
        if searches {
            let found = catalogue.find(("tool1 word", None), None, 50, NEWEST);
            prop_assert_eq!(found.len(), allowed.len().min(50));
            prop_assert!(found.iter().all(|tool| allowed.contains(tool.exposed)));
        }
        // INV-4: the same settings and lists give the same bytes.
        prop_assert_eq!(build(&servers, surface).list(Kind::Tool, NEWEST), list);
    }

    /// SRF-4: a server that comes changes no byte of what others' tools show while all fit.
    #[test]
    fn srf_4_a_new_server_changes_nothing_of_others(servers in servers(), surface in surfaces(), new in prop::collection::vec((0..200usize, any::<bool>()), 1..5)) {
        let before = build(&servers, surface.clone());
        let more: Vec<_> = servers.iter().cloned().chain([new]).collect();
        let after = build(&more, surface);
        let (before, after) = (before.list(Kind::Tool, NEWEST), after.list(Kind::Tool, NEWEST));
        let of_servers = |list: &Bytes| -> Vec<Vec<u8>> {
            let is_own = |raw: &&[u8]| own::is_own(&json::text_of(json::member(raw, "name").unwrap()).unwrap());
            json::elements(list).filter(|raw| !is_own(raw)).map(<[u8]>::to_vec).collect()
        };
        let fits = !names(&after).iter().any(|name| name == own::SEARCH);
        if fits {
            let after = of_servers(&after);
            let kept: Vec<_> = after.into_iter().filter(|raw| before.windows(raw.len()).any(|part| part == raw)).collect();
            prop_assert_eq!(kept, of_servers(&before));
        }
    }
}

#[test]
fn our_tools_stand_where_their_key_does() {
    let all: Vec<Tools> = vec![vec![(10, false)]; 4];
    let surface = SurfaceSettings {
        mode: SurfaceMode::Search,
        always: vec!["*/*".to_owned()],
        list_servers: true,
        ..SurfaceSettings::default()
    };
    let catalogue = build(&all, surface);
    let listed = names(&catalogue.list(Kind::Tool, NEWEST));
    let expected = ["a__tool0", "m__tool0", own::CALL, own::SEARCH, own::SERVERS, "onegatex__tool0", "z__tool0"];
    assert_eq!(listed, expected);
    // Pages go by the same order.
    let (page, next) = catalogue.page(Kind::Tool, NEWEST, 2, 2);
    assert_eq!((names(&page), next), (expected[2..4].iter().map(ToString::to_string).collect(), Some(4)));
}

#[test]
fn trims_hold_for_the_list_and_say_what_they_save() {
    let surface = SurfaceSettings {
        trim: TrimSettings { description: Some(40), output_schema: true, ..TrimSettings::default() },
        ..SurfaceSettings::default()
    };
    let whole = build(&[vec![(600, true)]], SurfaceSettings::default());
    let trimmed = build(&[vec![(600, true)]], surface);
    let item = |catalogue: &Catalogue| {
        let item = catalogue.items(Kind::Tool, NEWEST).next().map(|item| (item.bytes, item.whole));
        item.unwrap()
    };
    let ((long, before), (short, after)) = (item(&whole), item(&trimmed));
    assert!(short + 500 < long && before == after, "{short} {long} {before} {after}");
    let list = trimmed.list(Kind::Tool, NEWEST);
    assert!(!String::from_utf8_lossy(&list).contains("outputSchema"));
    assert_ne!(whole.fingerprint_of(Kind::Tool), trimmed.fingerprint_of(Kind::Tool));
    // What is found by words is the whole text.
    assert_eq!(trimmed.find(("word", None), None, 5, NEWEST).len(), 1);
}

/// Where the profile goes by use: no order of a search hangs on what was called otherwise.
#[test]
fn srf_2_of_tools_that_fit_alike_the_one_in_use_is_found_first() {
    let all: Vec<Tools> = vec![vec![(10, false); 3]; 2];
    let used = |calls: &[(&str, u32)]| {
        let counted = calls.iter().map(|(native, count)| ((*native).to_owned(), *count)).collect();
        let uses = Uses::new([("m".to_owned(), counted)].into());
        build(&all, SurfaceSettings { mode: SurfaceMode::Search, uses, ..SurfaceSettings::default() })
    };
    let first = |catalogue: Catalogue| catalogue.find(("word", None), None, 2, NEWEST)[0].exposed.to_owned();
    assert_eq!(first(used(&[])), "a__tool0");
    assert_eq!(first(used(&[("tool1", 3), ("tool2", 1)])), "m__tool1");
    let found = used(&[("tool1", u32::MAX)]);
    assert_eq!(found.find(("tool2", None), None, 1, NEWEST)[0].exposed, "a__tool2", "the words come first");
}
