//! The merged catalogue: which names exist, who answers them, and the lists as hosts get them.
//!
//! Immutable; a change is a new one. Names are given over everything that the servers listed, hidden items
//! included (N-8), then policy decides what is in the table and in the lists; a hidden item is in neither, so
//! it is unknown to hosts. Rendering waits for the first host of a revision and is shared from then on.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use foldhash::fast::RandomState;
use sha2::{Digest, Sha256};

use super::naming::{Named, Scheme};
use super::part::{ToolItem, ToolsPart};
use super::render::{self, Class, Needs};
use crate::ident::{Kind, ServerKey};
use crate::policy::{Policy, Reason};
use crate::protocol::version::Revision;

/// What one server brings.
#[derive(Clone, Debug)]
pub struct Contribution<'a> {
    /// Its index in the settings: what routes and policy speak of.
    pub server: usize,
    /// Its key.
    pub key: &'a ServerKey,
    /// What stands before its exposed names.
    pub prefix: &'a str,
    /// Its tools as last listed.
    pub tools: &'a Arc<ToolsPart>,
}

/// Where a call of an exposed name goes.
#[derive(Clone, Debug)]
pub struct Route {
    /// Index of the server.
    pub server: usize,
    /// What it calls the tool.
    pub native: Arc<str>,
    /// The same as the JSON string that it wrote itself, to be put into a request.
    pub native_json: Bytes,
}

/// Stands for what hosts see; equal when they see the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 16]);

/// Why an item that was listed is not shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hidden {
    /// Policy.
    Refused(Reason),
    /// Its name belongs to another item, and so does every substitute.
    NameTaken,
}

impl Hidden {
    /// A word for it.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Refused(reason) => reason.code(),
            Self::NameTaken => "name-taken",
        }
    }
}

/// An item as people are shown it.
#[derive(Clone, Copy, Debug)]
pub struct Item<'a> {
    /// Index of its server.
    pub server: usize,
    /// Key of its server.
    pub key: &'a ServerKey,
    /// What it is.
    pub kind: Kind,
    /// What its server calls it.
    pub native: &'a str,
    /// What hosts call it, or would if it were not hidden; `None` where it has no name.
    pub exposed: Option<&'a str>,
    /// Bytes of its published form.
    pub bytes: usize,
    /// Why hosts do not see it; `None` = they do.
    pub hidden: Option<Hidden>,
}

/// Everything that hosts can see and call.
#[derive(Debug)]
pub struct Catalogue {
    servers: Vec<(usize, ServerKey, Arc<ToolsPart>)>,
    entries: Vec<Entry>,
    table: HashMap<Arc<str>, Route, RandomState>,
    needs: Needs,
    fingerprint: Fingerprint,
    lists: [OnceLock<Bytes>; Class::COUNT],
}

/// One listed tool; in the order of the list.
#[derive(Debug)]
struct Entry {
    /// Position in `servers` and in that part.
    part: usize,
    item: usize,
    exposed: Option<Arc<str>>,
    hidden: Option<Hidden>,
}

impl Catalogue {
    /// Merges what the servers listed: by key in byte order, each in its own order.
    pub fn build(parts: &[Contribution<'_>], policy: &Policy, budget: usize) -> Self {
        let mut parts: Vec<&Contribution<'_>> = parts.iter().collect();
        parts.sort_by(|a, b| a.key.cmp(b.key));
        let items = || parts.iter().flat_map(|part| part.tools.items().iter().map(move |item| (*part, item)));
        let named: Vec<Named<'_>> =
            items().map(|(part, item)| Named { server: part.key, prefix: part.prefix, native: &item.native }).collect();
        let mut names = Scheme::tools(budget).expose(&named).into_iter();

        let mut catalogue = Self {
            servers: parts.iter().map(|part| (part.server, part.key.clone(), part.tools.clone())).collect(),
            entries: Vec::with_capacity(named.len()),
            table: HashMap::with_capacity_and_hasher(named.len(), RandomState::default()),
            needs: Needs::default(),
            fingerprint: Fingerprint([0; 16]),
            lists: Default::default(),
        };
        let mut hash = Sha256::new();
        for (position, part) in parts.iter().enumerate() {
            for (index, item) in part.tools.items().iter().enumerate() {
                let exposed: Option<Arc<str>> = names.next().flatten().map(Into::into);
                let hidden = match (policy.exposes(part.server, Kind::Tool, &item.native), &exposed) {
                    (Err(refusal), _) => Some(Hidden::Refused(refusal.reason())),
                    (Ok(()), None) => Some(Hidden::NameTaken),
                    (Ok(()), Some(exposed)) => {
                        for text in [exposed, part.key.as_str()] {
                            hash.update((text.len() as u64).to_le_bytes());
                            hash.update(text);
                        }
                        hash.update(item.digest);
                        let route =
                            Route { server: part.server, native: item.native.clone(), native_json: item.literal() };
                        catalogue.table.insert(exposed.clone(), route);
                        None
                    }
                };
                catalogue.entries.push(Entry { part: position, item: index, exposed, hidden });
            }
        }
        catalogue.fingerprint.0.copy_from_slice(&hash.finalize()[..16]);
        catalogue.needs = Needs::union(catalogue.visible().map(|(item, _)| item.needs));
        catalogue
    }

    /// An empty catalogue.
    pub fn empty() -> Self {
        Self::build(&[], &Policy::default(), 0)
    }

    /// Who answers to this exposed name; exactly as written (CALL-5). Hidden is unknown.
    pub fn resolve(&self, exposed: &str) -> Option<&Route> {
        self.table.get(exposed)
    }

    /// The published list, a JSON array, for hosts of this revision. Rendered once and shared.
    pub fn tools(&self, revision: Revision) -> Bytes {
        let class = Class::of(revision).simplest(self.needs);
        self.lists[class.index()].get_or_init(|| self.render(class)).clone()
    }

    /// How many tools hosts see.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether hosts see none.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// What hosts see, in short: catalogues of equal fingerprints need no announcement.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// The visible exposed names, in the order of the list.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().filter(|entry| entry.hidden.is_none()).filter_map(|entry| entry.exposed.as_deref())
    }

    /// Everything that was listed, hidden or not, as hosts of this revision see it.
    pub fn items(&self, revision: Revision) -> impl Iterator<Item = Item<'_>> {
        let class = Class::of(revision);
        let mut text = Vec::new();
        self.entries.iter().map(move |entry| {
            let (server, key, _) = &self.servers[entry.part];
            let item = self.item(entry);
            text.clear();
            render::render(&mut text, item, entry.exposed.as_deref().unwrap_or(&item.native), class);
            Item {
                server: *server,
                key,
                kind: Kind::Tool,
                native: &item.native,
                exposed: entry.exposed.as_deref(),
                bytes: text.len(),
                hidden: entry.hidden,
            }
        })
    }

    fn item(&self, entry: &Entry) -> &ToolItem {
        &self.servers[entry.part].2.items()[entry.item]
    }

    fn visible(&self) -> impl Iterator<Item = (&ToolItem, &str)> {
        let seen = self.entries.iter().filter(|entry| entry.hidden.is_none());
        seen.filter_map(|entry| Some((self.item(entry), entry.exposed.as_deref()?)))
    }

    fn render(&self, class: Class) -> Bytes {
        // Names grow by prefix and hash, hardly anything else grows.
        let size = self.visible().map(|(item, name)| item.definition.len() + name.len() + 1).sum::<usize>();
        let mut out = Vec::with_capacity(size + 2);
        out.push(b'[');
        for (item, exposed) in self.visible() {
            if out.len() > 1 {
                out.push(b',');
            }
            render::render(&mut out, item, exposed, class);
        }
        out.push(b']');
        out.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::settings::ItemFilter;
    use crate::policy::{ItemRules, ServerRules};
    use proptest::prelude::*;

    const NEWEST: Revision = Revision::LATEST_MODERN;

    fn tool(name: &str, more: &str) -> String {
        format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}}{more}}}"#)
    }

    fn part(tools: &[String]) -> Arc<ToolsPart> {
        Arc::new(ToolsPart::parse(&[Bytes::from(format!("[{}]", tools.join(",")))]).unwrap())
    }

    fn rules(allow: Option<&[&str]>, deny: &[&str]) -> ServerRules {
        let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        let filter = ItemFilter { allow: allow.map(owned), deny: owned(deny) };
        ServerRules { tools: ItemRules::compile(&filter).unwrap(), ..ServerRules::default() }
    }

    /// The catalogue of these servers, keys as prefixes.
    fn build(servers: &[(&str, Arc<ToolsPart>)], policy: &Policy) -> Catalogue {
        let keys: Vec<_> = servers.iter().map(|(key, _)| ServerKey::new(key).unwrap()).collect();
        let parts: Vec<_> = servers
            .iter()
            .zip(&keys)
            .enumerate()
            .map(|(server, ((_, tools), key))| Contribution { server, key, prefix: key.as_str(), tools })
            .collect();
        Catalogue::build(&parts, policy, 45)
    }

    fn open(servers: usize) -> Policy {
        Policy::new(vec![ServerRules::default(); servers])
    }

    #[test]
    fn d030_each_name_goes_to_its_server() {
        let search = part(&[tool("search", "")]);
        let merged = build(&[("one", search.clone()), ("two", search)], &open(2));
        for (exposed, server) in [("one__search", 0), ("two__search", 1)] {
            let route = merged.resolve(exposed).unwrap();
            assert_eq!((route.server, &*route.native), (server, "search"));
        }
        for unknown in ["search", "one__Search", "One__search", "one__search ", "three__search", ""] {
            assert!(merged.resolve(unknown).is_none(), "{unknown}");
        }
    }

    #[test]
    fn the_name_goes_back_as_the_server_spelled_it() {
        let merged = build(&[("s", part(&[tool("gr\\u00f6\\u00dfe", "")]))], &open(1));
        let name = merged.names().next().unwrap().to_owned();
        let route = merged.resolve(&name).unwrap();
        assert_eq!(&*route.native, "größe");
        assert_eq!(route.native_json, r#""gr\u00f6\u00dfe""#);
    }

    #[test]
    fn d040_order_is_by_key_and_then_the_server_s_own() {
        let a = part(&[tool("z", ""), tool("a", "")]);
        let b = part(&[tool("m", "")]);
        let here = build(&[("a-b", a.clone()), ("a", b.clone())], &open(2));
        let there = build(&[("a", b), ("a-b", a)], &open(2));
        assert_eq!(here.names().collect::<Vec<_>>(), ["a__m", "a-b__z", "a-b__a"]);
        assert_eq!(here.tools(NEWEST), there.tools(NEWEST));
        assert_eq!(here.fingerprint(), there.fingerprint());
    }

    #[test]
    fn lists_are_rendered_once_and_shared() {
        let plain = build(&[("s", part(&[tool("t", ""), tool("u", r#","execution":{}"#)]))], &open(1));
        let newest = plain.tools(NEWEST);
        assert_eq!(newest, format!("[{},{}]", tool("s__t", ""), tool("s__u", "")));
        for revision in Revision::ALL {
            assert_eq!(plain.tools(revision).as_ptr(), newest.as_ptr(), "{revision:?}");
        }
        let output = build(&[("s", part(&[tool("t", r#","outputSchema":{"type":"object"}"#)]))], &open(1));
        assert_eq!(output.tools(Revision::V2025_06_18).as_ptr(), output.tools(NEWEST).as_ptr());
        assert_eq!(output.tools(Revision::V2025_03_26), format!("[{}]", tool("s__t", "")));
        assert_eq!(Catalogue::empty().tools(NEWEST), "[]");
    }

    #[test]
    fn d095_hidden_is_unknown() {
        let five = ["read", "list", "write", "delete", "move"].map(|name| tool(name, ""));
        let policy = Policy::new(vec![rules(Some(&["read", "list", "delete"]), &["del*"])]);
        let merged = build(&[("s", part(&five))], &policy);
        assert_eq!(merged.names().collect::<Vec<_>>(), ["s__read", "s__list"]);
        assert_eq!(merged.len(), 2);
        let hidden: Vec<_> = merged.items(NEWEST).filter_map(|item| Some((item.native, item.hidden?.code()))).collect();
        assert_eq!(hidden, [("write", "not-allowed"), ("delete", "not-allowed"), ("move", "not-allowed")]);
        for name in ["s__write", "s__delete", "write", "read"] {
            assert!(merged.resolve(name).is_none());
        }
        let text = String::from_utf8(merged.tools(NEWEST).to_vec()).unwrap();
        assert!(text.contains("s__read") && !text.contains("write"));
    }

    #[test]
    fn n_8_hidden_items_count_for_names() {
        let twins = part(&[tool("a.b", ""), tool("a_b", "")]);
        let all = build(&[("s", twins.clone())], &open(1));
        let cut = build(&[("s", twins)], &Policy::new(vec![rules(None, &["a_b"])]));
        let seen: Vec<_> = all.names().collect();
        assert_ne!(seen[0], "s__a_b");
        assert_eq!(cut.names().collect::<Vec<_>>(), seen[..1]);
    }

    #[test]
    fn a_fingerprint_is_of_what_hosts_see() {
        let print = |tools: &[String], rules: ServerRules| {
            build(&[("s", part(tools))], &Policy::new(vec![rules])).fingerprint()
        };
        let (a, b) = (tool("a", ""), tool("b", ""));
        let base = print(&[a.clone(), b.clone()], rules(None, &[]));
        assert_eq!(
            base,
            print(&[a.clone(), b.clone(), tool("c", "")], rules(None, &["c"])),
            "a hidden one is not seen"
        );
        assert_ne!(base, print(&[b.clone(), a.clone()], rules(None, &[])), "order is seen");
        assert_ne!(base, print(&[a.clone(), tool("b", r#","title":"x""#)], rules(None, &[])));
        assert_ne!(base, print(&[a], rules(None, &[])));
    }

    #[test]
    fn items_tell_what_they_cost() {
        let merged = build(&[("s", part(&[tool("t", r#","outputSchema":{"type":"object"}"#)]))], &open(1));
        let bytes = |revision| merged.items(revision).map(|item| item.bytes).collect::<Vec<_>>();
        assert_eq!(bytes(NEWEST), [merged.tools(NEWEST).len() - 2]);
        assert_eq!(bytes(Revision::V2024_11_05), [tool("s__t", "").len()]);
    }

    proptest! {
        /// INV-8, D095: what is listed is what may be called, for any rules and names.
        #[test]
        fn lists_and_calls_agree(
            natives in prop::collection::hash_set("[aAbB._]{1,4}", 1..12),
            allow in prop::option::of(prop::collection::vec("[abAB*?]{1,3}", 0..3)),
            deny in prop::collection::vec("[abAB*?]{1,3}", 0..3),
        ) {
            let tools = ItemRules::compile(&ItemFilter { allow, deny }).unwrap();
            let policy = Policy::new(vec![ServerRules { tools, ..ServerRules::default() }]);
            let natives: Vec<_> = natives.into_iter().collect();
            let listed: Vec<_> = natives.iter().map(|name| tool(name, "")).collect();
            let merged = build(&[("s", part(&listed))], &policy);
            let text = merged.tools(NEWEST);
            let published: Vec<_> = crate::protocol::json::elements(&text)
                .map(|raw| {
                    let name = crate::protocol::json::members(raw).find(|entry| entry.is("name")).unwrap();
                    crate::protocol::json::text_of(name.value).unwrap().into_owned()
                })
                .collect();
            prop_assert_eq!(published.len(), merged.len());
            let mut routed: Vec<_> = published.iter().map(|name| &*merged.resolve(name).unwrap().native).collect();
            let mut admitted: Vec<_> =
                natives.iter().map(String::as_str).filter(|name| policy.admit(0, Kind::Tool, name).is_ok()).collect();
            routed.sort_unstable();
            admitted.sort_unstable();
            prop_assert_eq!(routed, admitted);
        }
    }
}
