//! The merged catalogue: which names exist, who answers them, and the lists as hosts get them.
//!
//! Immutable; a change is a new one. Names are given over everything that the servers listed, hidden items
//! included (N-8), then policy decides what is in the table and in the lists; a hidden item is in neither, so
//! it is unknown to hosts. Rendering waits for the first host of a revision and is shared from then on.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
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
    table: HashMap<Arc<str>, Route>,
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
            table: HashMap::with_capacity(named.len()),
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
