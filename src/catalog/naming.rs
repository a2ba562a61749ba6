//! Exposed names: the only place that knows how they relate to native ones.
//!
//! `exposed = <prefix>__<local>`, `local` being the native name in the alphabet `[A-Za-z0-9_-]`. A hash suffix
//! keeps apart what the alphabet, the length budget or letter case would make equal. A name depends on kind,
//! server key, prefix, native name, budget and its collision group alone (N-8): not on order, time or what
//! else is up, as long as the last known lists of all servers, hidden items included, are given.
//!
//! The way back is never computed: [`super::Catalogue`] keeps the table (N-9). Knows nothing of what a name
//! stands for.
//!
//! Long, and one thing: the rules of names, half of it the tests that hold them to their properties.

use std::collections::HashMap;

use sha2::{Digest, Sha256};

use crate::ident::{Kind, ServerKey};

/// What stands between prefix and local name.
pub const SEPARATOR: &str = "__";
/// Longest exposed prompt name (N-17).
pub const PROMPT_BUDGET: usize = 64;

/// Lengths of the hash, in characters: at first, and after a conflict of two hashes (N-10).
const HASH: usize = 8;
const LONG_HASH: usize = 12;
/// How often a name may evade another: plain, with hash, with long hash, with the three further windows of
/// the digest. Whoever still collides has been made to.
const LAST_STEP: u8 = 5;

/// An item that needs a name.
#[derive(Clone, Copy, Debug)]
pub struct Named<'a> {
    /// Its server; the hash is over this.
    pub server: &'a ServerKey,
    /// What stands in front of its name: the key, or what the configuration says instead. When empty, the
    /// native name passes untouched.
    pub prefix: &'a str,
    /// What its server calls it.
    pub native: &'a str,
}

/// How one kind is named.
#[derive(Clone, Copy, Debug)]
pub struct Scheme {
    /// The kind; part of the hash.
    pub kind: Kind,
    /// Longest exposed name (N-2).
    pub budget: usize,
    /// Whether mild substitutions (`.`, `/`, `:` and space become `_`) get a hash too, which keeps a name
    /// unchanged when a twin appears later (N-7a).
    pub suffix_mild: bool,
}

impl Scheme {
    /// Tools with this name budget.
    pub const fn tools(budget: usize) -> Self {
        Self { kind: Kind::Tool, budget, suffix_mild: false }
    }

    /// Prompts.
    pub const fn prompts() -> Self {
        Self { kind: Kind::Prompt, budget: PROMPT_BUDGET, suffix_mild: false }
    }

    /// Whether names behind this prefix fit into the budget at all: one character and the hash must.
    pub const fn fits(&self, prefix: &str) -> bool {
        prefix.is_empty() || prefix.len() + SEPARATOR.len() + 1 + 1 + HASH <= self.budget
    }

    /// The exposed names of `items`, in their order, all distinct.
    ///
    /// `None` is an item that must not be exposed because another has its name and every way around was taken
    /// too; that needs an untouched (prefix-less) server that goes for it, or twice the same item.
    pub fn expose(&self, items: &[Named<'_>]) -> Vec<Option<String>> {
        let mut drafts: Vec<Draft<'_>> = items.iter().map(|&item| Draft::new(self, item)).collect();
        loop {
            let raised = colliding(&drafts);
            if raised.is_empty() {
                break;
            }
            // All of a round at once, so that the outcome does not depend on the order of the items.
            for index in raised {
                drafts[index].evade(self);
            }
        }
        settle(drafts)
    }
}

/// Whether an exposed name could belong to the server with this prefix: who to ask, once, for a fresh list
/// when a name is not in the table (N-9). Not a way to route.
pub fn may_own(prefix: &str, exposed: &str) -> bool {
    prefix.is_empty() || exposed.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(SEPARATOR))
}

/// A name on its way.
struct Draft<'a> {
    item: Named<'a>,
    name: String,
    /// The name as case-folding consumers see it, where that differs (N-3).
    folded: Option<String>,
    step: u8,
}

impl<'a> Draft<'a> {
    fn new(scheme: &Scheme, item: Named<'a>) -> Self {
        let mut draft = Self { item, name: String::new(), folded: None, step: 0 };
        if item.prefix.is_empty() {
            draft.name = item.native.to_owned();
        } else {
            let (local, change) = sanitise(scheme.kind, item.native);
            let long = item.prefix.len() + SEPARATOR.len() + local.len() > scheme.budget;
            if long || change == Change::Lossy || (change == Change::Mild && scheme.suffix_mild) {
                draft.step = 1;
                draft.name = suffixed(scheme, item, &local, 1);
            } else {
                draft.name = [item.prefix, SEPARATOR, &local].concat();
            }
        }
        draft.fold();
        draft
    }

    fn fold(&mut self) {
        let differs = self.name.bytes().any(|b| b.is_ascii_uppercase() || !b.is_ascii());
        self.folded = differs.then(|| self.name.to_lowercase());
    }

    fn folded(&self) -> &str {
        self.folded.as_deref().unwrap_or(&self.name)
    }

    fn can_evade(&self) -> bool {
        !self.item.prefix.is_empty() && self.step < LAST_STEP
    }

    fn evade(&mut self, scheme: &Scheme) {
        self.step += 1;
        let (local, _) = sanitise(scheme.kind, self.item.native);
        self.name = suffixed(scheme, self.item, &local, self.step);
        self.fold();
        if self.step > 1 {
            tracing::warn!(
                server = %self.item.server, kind = %scheme.kind, native = ?self.item.native,
                "two hashes of names are equal, a longer one is used"
            );
        }
    }
}

/// The drafts that must evade: of each group of equal names those that evaded least, so that *every* bare
/// member gets its hash (N-7c), and the whole group the long one (N-10).
fn colliding(drafts: &[Draft<'_>]) -> Vec<usize> {
    let mut first: HashMap<&str, usize> = HashMap::with_capacity(drafts.len());
    let mut twins = Vec::new();
    for (index, draft) in drafts.iter().enumerate() {
        let leader = *first.entry(draft.folded()).or_insert(index);
        if leader != index {
            twins.push((leader, index));
        }
    }
    twins.sort_unstable();
    let mut raised = Vec::new();
    for group in twins.chunk_by(|a, b| a.0 == b.0) {
        let members = || std::iter::once(group[0].0).chain(group.iter().map(|twin| twin.1));
        let able = || members().filter(|&index| drafts[index].can_evade());
        if let Some(least) = able().map(|index| drafts[index].step).min() {
            raised.extend(able().filter(|&index| drafts[index].step == least));
        }
    }
    raised
}

/// Takes the names; where two are still the same, untouched names and lower keys have precedence.
fn settle(drafts: Vec<Draft<'_>>) -> Vec<Option<String>> {
    let rank = |draft: &Draft<'_>| (!draft.item.prefix.is_empty(), draft.item.server.clone());
    let mut owner: HashMap<&str, usize> = HashMap::with_capacity(drafts.len());
    let mut beaten = vec![false; drafts.len()];
    for (index, draft) in drafts.iter().enumerate() {
        let leader = owner.entry(&draft.name).or_insert(index);
        if *leader == index {
            continue;
        }
        if rank(draft) < rank(&drafts[*leader]) {
            beaten[*leader] = true;
            *leader = index;
        } else {
            beaten[index] = true;
        }
    }
    drafts.into_iter().zip(beaten).map(|(draft, beaten)| (!beaten).then_some(draft.name)).collect()
}

/// How far sanitising went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    None,
    Mild,
    Lossy,
}

/// The native name in the exposed alphabet (N-5), and how much of it was lost (N-7a).
fn sanitise(kind: Kind, native: &str) -> (String, Change) {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let mut local = String::with_capacity(native.len().min(256));
    let mut change = Change::None;
    let mut in_run = false;
    for c in native.chars() {
        if allowed(c) {
            local.push(c);
            in_run = false;
        } else if in_run {
            change = Change::Lossy;
        } else {
            local.push('_');
            in_run = true;
            let mild = matches!(c, '.' | '/' | ':' | ' ');
            change = change.max(if mild { Change::Mild } else { Change::Lossy });
        }
    }
    let trimmed = local.trim_matches('_');
    if trimmed.len() == local.len() && !local.is_empty() {
        return (local, change);
    }
    let kept = if trimmed.is_empty() { kind.as_str() } else { trimmed };
    (kept.to_owned(), Change::Lossy)
}

/// The name with its hash, cut so that it fits (N-7b).
fn suffixed(scheme: &Scheme, item: Named<'_>, local: &str, step: u8) -> String {
    let fixed = item.prefix.len() + SEPARATOR.len() + 1;
    let (from, wanted) = match step {
        0 | 1 => (0, HASH),
        _ => (usize::from(step - 2) * LONG_HASH, LONG_HASH),
    };
    // A tight budget shortens the long hash, never below the short one.
    let length = wanted.min(scheme.budget.saturating_sub(fixed + 1)).max(HASH);
    let digest = digest(scheme.kind, item.server, item.native);
    let local = cut(local, scheme.budget.saturating_sub(fixed + length).max(1));
    [item.prefix, SEPARATOR, local, "_", &digest[from..from + length]].concat()
}

/// The hash of an item in lower-case base32, 52 characters. Over the key, not the prefix: a changed prefix
/// does not change it.
fn digest(kind: Kind, server: &ServerKey, native: &str) -> String {
    let mut hash = Sha256::new();
    for part in ["mcp-name-v1", kind.as_str(), server.as_str()] {
        hash.update(part);
        hash.update([0]);
    }
    hash.update(native);
    let mut text = data_encoding::BASE32_NOPAD.encode(&hash.finalize());
    text.make_ascii_lowercase();
    text
}

/// At most `room` characters of `local`, ending before a `_` or `-` if one of the last eight is one.
fn cut(local: &str, room: usize) -> &str {
    if local.len() <= room {
        return local;
    }
    let from = room.saturating_sub(8);
    let boundary = local.as_bytes()[from..=room].iter().rposition(|b| matches!(b, b'_' | b'-'));
    let kept = boundary.map_or("", |at| local[..from + at].trim_end_matches(['_', '-']));
    if kept.is_empty() { &local[..room] } else { kept }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(text: &str) -> ServerKey {
        ServerKey::new(text).unwrap()
    }

    /// The names of one server's tools.
    fn names(server: &str, natives: &[&str], budget: usize) -> Vec<String> {
        let key = key(server);
        let items: Vec<_> = natives.iter().map(|native| Named { server: &key, prefix: server, native }).collect();
        Scheme::tools(budget).expose(&items).into_iter().map(Option::unwrap).collect()
    }

    fn hash(server: &str, native: &str) -> String {
        digest(Kind::Tool, &key(server), native)[..8].to_owned()
    }

    fn check(server: &str, native: &str, expected: &str) {
        let expected = expected.replace("{h}", &hash(server, native));
        assert_eq!(names(server, &[native], 45), [expected], "{native}");
    }

    /// Computed apart from this code: SHA-256 over the bytes that N-7 names, base32, lower case.
    #[test]
    fn n_7_the_hash_is_the_published_one() {
        assert_eq!(hash("gh", "create_issue"), "t77eggb5");
        assert_eq!(&digest(Kind::Prompt, &key("gh"), "größe")[..8], "urbofqyo");
    }

    #[test]
    fn the_documented_examples() {
        check("gh", "create_issue", "gh__create_issue");
        check("gh", "admin.tools.list", "gh__admin_tools_list");
        check("bill", "get_detailed_cost_and_usage_comparison_drivers_report", "bill__get_detailed_cost_and_usage_{h}");
        check("de", "größe messen", "de__gr_e_messen_{h}");
        let [upper, lower] = ["Search", "search"].map(|native| format!("gh__{native}_{}", hash("gh", native)));
        assert_eq!(names("gh", &["Search", "search"], 45), [upper, lower]);
    }

    #[test]
    fn n_5_and_n_7a_odd_characters() {
        for mild in ["a.b", "a/b", "a:b", "a b"] {
            check("s", mild, "s__a_b");
        }
        check("s", "a__b", "s__a__b");
        check("s", "a._b", "s__a__b");
        check("s", "a..b", "s__a_b_{h}");
        check("s", "ab..", "s__ab_{h}");
        check("s", "ab.", "s__ab_{h}");
        check("s", "_ab", "s__ab_{h}");
        check("s", "a,b", "s__a_b_{h}");
        check("s", "a\0b", "s__a_b_{h}");
        check("s", "🦀🦀", "s__tool_{h}");
        check("s", "__", "s__tool_{h}");
        check("s", "-", "s__-");
        check("s", "7up", "s__7up");
        check("s", "x", "s__x");
    }

    #[test]
    fn d035_words_of_other_languages_are_plain_names() {
        for word in ["constructor", "toString", "null", "true"] {
            check("s", word, &format!("s__{word}"));
        }
        check("s", "__proto__", "s__proto_{h}");
        check("s", ".", "s__tool_{h}");
    }

    #[test]
    fn d031_twins_get_their_hash_all_of_them() {
        let natives = ["search-a", "search_a", "search.a", "search/a", "other"];
        let found = names("s", &natives, 45);
        assert_eq!(found[0], "s__search-a");
        for (native, name) in natives[1..4].iter().zip(&found[1..4]) {
            assert_eq!(*name, format!("s__search_a_{}", hash("s", native)));
        }
        assert_eq!(found[4], "s__other");
    }

    #[test]
    fn n_7a_a_mild_change_can_have_a_hash_from_the_start() {
        let server = key("s");
        let named = |native| Named { server: &server, prefix: "s", native };
        let scheme = Scheme { suffix_mild: true, ..Scheme::tools(45) };
        let alone = scheme.expose(&[named("a.b")]);
        assert_eq!(alone, [Some(format!("s__a_b_{}", hash("s", "a.b")))]);
        assert_eq!(scheme.expose(&[named("a.b"), named("a_b")]), [alone[0].clone(), Some("s__a_b".to_owned())]);
    }

    #[test]
    fn d033_names_at_and_over_the_budget() {
        let server = "abcdefghijklmnop";
        let fixed = server.len() + 2;
        for (length, bare) in
            [(1, true), (52 - fixed, true), (53 - fixed, false), (50, false), (64, false), (128, false)]
        {
            let native = "x".repeat(length);
            let [name] = names(server, &[&native], 52).try_into().unwrap();
            assert!(name.len() <= 52);
            assert_eq!(name == format!("{server}__{native}"), bare, "{length}");
            assert_eq!(name.ends_with(&hash(server, &native)), !bare);
        }
        let long = "word_".repeat(60);
        let [name] = names(server, &[&long], 52).try_into().unwrap();
        assert_eq!(name, format!("{server}__word_word_word_word_word_{}", hash(server, &long)));
    }

    #[test]
    fn a_cut_falls_on_a_boundary_of_the_last_eight() {
        for (local, room, kept) in [
            ("abcdefghij", 10, "abcdefghij"),
            ("abcde_ghijkl", 10, "abcde"),
            ("abcdefghij_k", 10, "abcdefghij"),
            ("abcdefgh__kl", 10, "abcdefgh"),
            ("a_cdefghijkl", 10, "a_cdefghij"),
            ("-----------", 4, "----"),
            ("abc", 1, "a"),
        ] {
            assert_eq!(cut(local, room), kept, "{local}");
        }
    }

    #[test]
    fn d032_prefixes_that_hold_the_separator() {
        let (a, b) = (key("a"), key("b"));
        let items = [
            Named { server: &a, prefix: "a", native: "b__c" },
            Named { server: &a, prefix: "a", native: "c" },
            Named { server: &b, prefix: "a__b", native: "c" },
            Named { server: &b, prefix: "a__b", native: "b__c" },
        ];
        let found = Scheme::tools(45).expose(&items);
        let twins = [("a", "b__c", "a__b__c"), ("b", "c", "a__b__c")]
            .map(|(server, native, base)| Some(format!("{base}_{}", hash(server, native))));
        assert_eq!([&found[0], &found[2]], [&twins[0], &twins[1]]);
        assert_eq!(found[1].as_deref(), Some("a__c"));
        assert_eq!(found[3].as_deref(), Some("a__b__b__c"));
    }

    #[test]
    fn d032_names_without_a_prefix_pass_untouched() {
        let (own, gh) = (key("own"), key("gh"));
        let long = "ö.".repeat(200);
        let bare = |native| Named { server: &own, prefix: "", native };
        let gh = |native| Named { server: &gh, prefix: "gh", native };
        let shadow = format!("gh__x_{}", hash("gh", "x"));
        let items = [bare(&long), bare("GH__Search"), gh("search"), gh("read"), bare(&shadow), bare("gh__x"), gh("x")];
        let found = Scheme::tools(45).expose(&items);
        let expected =
            [&long, "GH__Search", &format!("gh__search_{}", hash("gh", "search")), "gh__read", &shadow, "gh__x"];
        for (name, expected) in found.iter().zip(expected) {
            assert_eq!(name.as_deref(), Some(expected));
        }
        // N-10: where the short hash is taken too, the long one follows.
        assert_eq!(found[6], Some(format!("gh__x_{}", &digest(Kind::Tool, &key("gh"), "x")[..12])));
    }

    #[test]
    fn a_name_that_is_taken_every_way_is_given_to_nobody() {
        let (own, gh) = (key("own"), key("gh"));
        let scheme = Scheme::tools(45);
        let target = Named { server: &gh, prefix: "gh", native: "x" };
        let mut natives = vec!["gh__x".to_owned()];
        natives.extend((1..=LAST_STEP).map(|step| suffixed(&scheme, target, "x", step)));
        let mut items: Vec<_> = natives.iter().map(|native| Named { server: &own, prefix: "", native }).collect();
        items.insert(0, target);
        let found = scheme.expose(&items);
        assert_eq!(found[0], None);
        assert!(found[1..].iter().all(Option::is_some));
    }

    #[test]
    fn n_10_the_long_hash_fits_a_tight_budget() {
        let server = key("abcdefghijkl");
        let item = Named { server: &server, prefix: "abcdefghijkl", native: "x" };
        let scheme = Scheme::tools(24);
        assert!(scheme.fits("abcdefghijkl") && !scheme.fits("abcdefghijklm"));
        for step in 1..=LAST_STEP {
            assert!(suffixed(&scheme, item, "local", step).len() <= 24, "{step}");
        }
    }

    #[test]
    fn n_9_a_missing_name_tells_whom_to_ask() {
        assert!(may_own("gh", "gh__x") && may_own("", "anything"));
        assert!(!may_own("gh", "gh_x") && !may_own("gh", "ghx__y") && !may_own("gh", "GH__x"));
    }

    /// Native names that tend to collide, and some of anything.
    fn native() -> impl Strategy<Value = String> {
        prop_oneof![
            3 => "[aAbB._ /-]{1,6}",
            1 => "[a-c_.]{30,60}",
            1 => "\\PC{1,12}",
            1 => any::<String>().prop_filter("not empty", |name| !name.is_empty()),
        ]
    }

    /// Distinct items of three servers, among them an odd prefix, with names made of other names and hashes.
    fn items() -> impl Strategy<Value = Vec<(usize, String)>> {
        prop::collection::hash_set((0..3usize, native()), 1..30).prop_map(|set| {
            let mut items: Vec<_> = set.into_iter().collect();
            items.sort();
            let copies: Vec<_> = items
                .iter()
                .take(3)
                .map(|(server, native)| (*server, format!("{native}_{}", hash(["a", "b", "c"][*server], native))))
                .collect();
            for copy in copies {
                if !items.contains(&copy) {
                    items.push(copy);
                }
            }
            items
        })
    }

    fn expose(items: &[(usize, String)], budget: usize, third: &str) -> Vec<Option<String>> {
        let keys = ["a", "b", "c"].map(key);
        let prefixes = ["a", "a__b", third];
        let named: Vec<_> = items
            .iter()
            .map(|(server, native)| Named { server: &keys[*server], prefix: prefixes[*server], native })
            .collect();
        Scheme::tools(budget).expose(&named)
    }

    proptest! {
        // Hashing is slow without optimisation.
        #![proptest_config(ProptestConfig::with_cases(96))]

        /// N-1, N-2, N-3: every item has a name in alphabet and budget, all different without regard to case.
        #[test]
        fn names_are_injective_and_well_formed(items in items(), budget in 24usize..=128) {
            let found = expose(&items, budget, "c");
            let mut seen = std::collections::HashSet::new();
            for name in &found {
                let name = name.as_deref().expect("three prefixed servers always find names");
                prop_assert!(name.len() <= budget, "{}", name);
                prop_assert!(name.starts_with(|c: char| c.is_ascii_alphabetic()));
                prop_assert!(name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-'));
                prop_assert!(seen.insert(name.to_ascii_lowercase()), "{} twice", name);
            }
        }

        /// N-8: the order of the items does not matter.
        #[test]
        fn names_do_not_depend_on_order(items in items(), seed in any::<u64>(), bare in any::<bool>()) {
            let third = if bare { "" } else { "c" };
            let found = expose(&items, 45, third);
            let mut order: Vec<usize> = (0..items.len()).collect();
            fastrand::Rng::with_seed(seed).shuffle(&mut order);
            let shuffled: Vec<_> = order.iter().map(|&index| items[index].clone()).collect();
            let again = expose(&shuffled, 45, third);
            for (position, &index) in order.iter().enumerate() {
                prop_assert_eq!(&again[position], &found[index]);
            }
        }

        /// N-8: other servers do not matter, as long as prefixes hold no separator.
        #[test]
        fn names_do_not_depend_on_other_servers(items in items()) {
            let (a, c) = (key("a"), key("c"));
            let of = |wanted: &[usize]| {
                let named: Vec<_> = items
                    .iter()
                    .filter(|(server, _)| wanted.contains(server))
                    .map(|(server, native)| match server {
                        0 => Named { server: &a, prefix: "a", native },
                        _ => Named { server: &c, prefix: "c", native },
                    })
                    .collect();
                let names = Scheme::tools(45).expose(&named);
                named.iter().zip(names).map(|(item, name)| (item.server.clone(), item.native, name)).collect::<Vec<_>>()
            };
            let both = of(&[0, 2]);
            for item in of(&[0]).iter().chain(&of(&[2])) {
                prop_assert!(both.contains(item), "{:?}", item);
            }
        }

        /// Contract: without a prefix nothing is touched, and nobody else has such a name.
        #[test]
        fn bare_names_pass_and_stay_alone(items in items()) {
            let found = expose(&items, 45, "");
            let mut seen = std::collections::HashSet::new();
            for ((server, native), name) in items.iter().zip(&found) {
                if *server == 2 {
                    prop_assert_eq!(name.as_ref(), Some(native));
                }
                if let Some(name) = name {
                    prop_assert!(seen.insert(name));
                }
            }
        }
    }
}
