//! The merged catalogue: which names and URIs exist, who answers them, and the lists as hosts get them.
//!
//! Immutable; a change is a new one. Names are given over everything that the servers listed, hidden items
//! included (N-8), then policy and view decide what is in the tables and in the lists; a hidden item is in neither,
//! so it is unknown to hosts. Rendering waits for the first host of a revision and is shared from then on.
//!
//! Long, and one thing: the tables of a catalogue are filled together, by the same names.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use foldhash::fast::RandomState;
use sha2::{Digest, Sha256};

use super::adjust::Given;
use super::item::Item as Definition;
use super::ledger::{Ledger, Saved};
use super::naming::{Named, Scheme};
use super::part::Part;
use super::render::{Class, Needs, Published, render};
use super::shelf::{Entry, Shelf};
use super::tokens::Counter;
use super::uri::{Listed, Site, UriRoute, Uris};
use super::{own, surface, trim};
use crate::ident::{Kind, ServerKey};
use crate::pins::drift::Hold;
use crate::policy::{Origin, Policy, Reason, Surface, Terms, View};
use crate::protocol::headers::HeaderParam;
use crate::protocol::version::Revision;
use crate::search::{Index, ModelId, Vectors};

/// What one server brings.
#[derive(Clone, Debug)]
pub struct Contribution<'a> {
    /// Its index in the settings: what routes and policy speak of.
    pub server: usize,
    /// Its key.
    pub key: &'a ServerKey,
    /// What stands before its exposed names; without, its names and URIs pass untouched.
    pub prefix: &'a str,
    /// Whether calls of it carry headers that repeat arguments, as those of modern servers do that are reached by
    /// HTTP: then tools with an invalid annotation are not published (XMH-2).
    pub http: bool,
    /// What it last listed, by [`Kind::index`]; `None` for a kind that it does not have, or has not listed yet.
    pub parts: [Option<&'a Arc<Part>>; 4],
}

/// Where a call of an exposed name goes.
#[derive(Clone, Debug)]
pub struct Route {
    /// Index of the server.
    pub server: usize,
    /// What it calls the tool or prompt.
    pub native: Arc<str>,
    /// The same as the JSON string that it wrote itself, to be put into a request.
    pub native_json: Bytes,
    /// The parameters of the tool that headers repeat, where there are any (XMH-3).
    pub mirror: Option<Arc<[HeaderParam]>>,
    /// The server takes calls of the tool as tasks only (TSK-7).
    pub task: bool,
    /// Apps alone may call it: it is not for a model to find (APP-5).
    pub app_only: bool,
    /// What policy says of it to whom this catalogue is for.
    pub terms: Arc<Terms>,
    /// What the operator changes about its calls.
    pub given: Option<Arc<Given>>,
}

/// Stands for what hosts see of one kind; equal when they see the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub(super) [u8; 16]);

impl Fingerprint {
    /// For whoever must remember it elsewhere.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Why an item that was listed is not shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hidden {
    /// Policy.
    Refused(Reason),
    /// The operator hides it.
    ByOverride,
    /// The profile does not show it.
    NotInProfile,
    /// An annotation for a header is invalid, and its server is reached by HTTP.
    BadHeader,
    /// It is not as it was reviewed.
    Pinned(&'static str),
    /// Its name belongs to another item, and so does every substitute.
    NameTaken,
}

impl Hidden {
    /// A word for it.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Refused(reason) => reason.code(),
            Self::ByOverride => "hidden-by-override",
            Self::NotInProfile => "not-in-profile",
            Self::BadHeader => "invalid-header",
            Self::Pinned(code) => code,
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
    /// Their tokens.
    pub tokens: usize,
    /// What trims take away.
    pub trimmed: Saved,
    /// Bytes of what its server lists.
    pub whole: usize,
    /// What an override takes away of that.
    pub overridden: Saved,
    /// Hosts are not listed it, but find it by search.
    pub behind: bool,
    /// Why hosts do not see it; `None` = they do.
    pub hidden: Option<Hidden>,
}

type Table = HashMap<Arc<str>, Route, RandomState>;

/// Everything that hosts can see and call.
#[derive(Debug)]
pub struct Catalogue {
    /// By key; the position is what entries speak of.
    sources: Vec<Source>,
    shelves: [Shelf; 4],
    tools: Table,
    prompts: Table,
    /// Native names of tools that apps may call them by, and the exposed ones; `None` for several (APP-6).
    aliases: HashMap<Arc<str>, Option<Arc<str>>>,
    /// Tools and prompts that would be there, were they as they were reviewed.
    held: HashMap<(Kind, Arc<str>), (usize, Arc<Hold>)>,
    uris: Uris,
    /// How much of the tools is listed.
    surface: Surface,
    /// What it costs, once somebody asked.
    ledger: OnceLock<Ledger>,
    /// What those that are visible are found by, once somebody searched.
    index: OnceLock<Searched>,
    /// What they mean, by a model, in the order of that.
    vectors: OnceLock<Vectors>,
}

/// What tools are found by.
#[derive(Debug)]
pub(super) struct Searched {
    pub(super) index: Index,
    /// Where the documents of the index stand on the shelf.
    pub(super) positions: Box<[usize]>,
    /// How much each of them was called lately, where any was and where that counts (SRF-2).
    pub(super) used: Option<Box<[f32]>>,
}

/// A server, as far as lists go.
#[derive(Debug)]
struct Source {
    server: usize,
    key: ServerKey,
    parts: [Option<Arc<Part>>; 4],
    /// It has user interfaces that hosts see.
    apps: bool,
    /// It may mention URIs.
    has_uris: bool,
    /// Its tools are for the model alone, unless it says something (APP-5).
    restrict: bool,
}

impl Source {
    fn items(&self, kind: Kind) -> &[Definition] {
        self.parts[kind.index()].as_ref().map_or(&[], |part| part.items())
    }
}

/// An item on its way into the catalogue.
struct Candidate<'a> {
    /// Position of its server.
    site: usize,
    /// Position in its part.
    item: usize,
    definition: &'a Definition,
    terms: Arc<Terms>,
    hidden: Option<Hidden>,
}

impl Catalogue {
    /// Merges what the servers listed: by key in byte order, each in its own order.
    pub fn build(parts: &[Contribution<'_>], policy: &Policy, budget: usize, view: &View) -> Self {
        let mut parts: Vec<&Contribution<'_>> = parts.iter().collect();
        parts.sort_by(|a, b| a.key.cmp(b.key));
        let candidates = Kind::ALL.map(|kind| candidates(&parts, kind, policy, view));
        let uris = uris(&parts, &candidates, view);

        let named = |kind: Kind, scheme: Scheme| names(&parts, &candidates[kind.index()], scheme, view);
        let tools = named(Kind::Tool, Scheme::tools(budget));
        let prompts = named(Kind::Prompt, Scheme::prompts());
        let resources = candidates[Kind::Resource.index()].iter().map(|candidate| {
            let native = &candidate.definition.native;
            match uris.expose(candidate.site, native) {
                Cow::Borrowed(_) => Some(native.clone()),
                Cow::Owned(exposed) => Some(exposed.into()),
            }
        });
        let resources: Vec<_> = resources.collect();
        let templates = uris.exposed_templates().cloned().map(Some).collect();

        let mut sources: Vec<Source> = parts.iter().map(|part| Source::new(part)).collect();
        for candidate in candidates.iter().flatten().filter(|candidate| candidate.hidden.is_none()) {
            let definition = candidate.definition;
            let mut shown_by = definition.links.iter().map(|link| &**link).chain([&*definition.native]);
            sources[candidate.site].apps |= shown_by.any(|uri| uri.starts_with("ui://"));
        }
        let seen = parts.iter().filter(|part| view.shows(part.server)).count();
        let shared = seen > 1 && sources.iter().any(|source| source.apps);
        sources.iter_mut().for_each(|source| source.restrict = shared && !source.apps);

        let mut catalogue = Self {
            sources,
            shelves: Default::default(),
            tools: Table::with_capacity_and_hasher(tools.len(), RandomState::default()),
            prompts: Table::with_capacity_and_hasher(prompts.len(), RandomState::default()),
            aliases: HashMap::new(),
            held: HashMap::new(),
            uris,
            surface: view.surface().clone(),
            ledger: OnceLock::new(),
            index: OnceLock::new(),
            vectors: OnceLock::new(),
        };
        for ((kind, candidates), exposed) in
            Kind::ALL.into_iter().zip(candidates).zip([tools, prompts, resources, templates])
        {
            catalogue.put(kind, candidates, exposed);
        }
        catalogue
    }

    /// Takes in one kind under its exposed names.
    fn put(&mut self, kind: Kind, candidates: Vec<Candidate<'_>>, exposed: Vec<Option<Arc<str>>>) {
        let mut shelf = Shelf::with_capacity(candidates.len());
        for (candidate, exposed) in candidates.into_iter().zip(exposed) {
            let Candidate { site, item, definition, terms, mut hidden } = candidate;
            let taken = match &exposed {
                None => true,
                Some(exposed) => self.is_lost(kind, site, exposed, &definition.native) || self.is_ours(kind, exposed),
            };
            if hidden.is_none() && taken {
                hidden = Some(Hidden::NameTaken);
            }
            if let (Some(Hidden::Pinned(_)), Some(hold), Some(exposed)) = (hidden, &definition.hold, &exposed)
                && **hold != Hold::Blocked
            {
                self.held.insert((kind, exposed.clone()), (self.sources[site].server, Arc::clone(hold)));
            }
            if let (None, Some(exposed)) = (hidden, &exposed) {
                self.route(kind, site, exposed, definition, terms);
            }
            shelf.entries.push(Entry { site, item, exposed, hidden, behind: false });
        }
        if kind == Kind::Tool {
            self.choose(&mut shelf);
        }
        let mut hash = Sha256::new();
        for entry in &shelf.entries {
            let (true, Some(exposed)) = (entry.is_listed(), &entry.exposed) else { continue };
            let definition = &self.sources[entry.site].items(kind)[entry.item];
            self.fingerprint(&mut hash, kind, entry.site, exposed, definition);
            shelf.needs = Needs::union([shelf.needs, definition.needs].into_iter());
            shelf.visible += 1;
            // Names grow by prefix and hash, hardly anything else grows.
            shelf.size += definition.definition.len() + exposed.len() + 1;
        }
        if !shelf.own.is_empty() || !self.surface.trim().is_nothing() {
            hash.update(format!("{:?}", self.surface.trim()));
            shelf.own.iter().for_each(|own| hash.update(own));
            shelf.visible += shelf.own.len();
        }
        shelf.fingerprint.0.copy_from_slice(&hash.finalize()[..16]);
        self.shelves[kind.index()] = shelf;
    }

    /// Decides which of the visible tools are listed, and which tools of ours beside them.
    fn choose(&self, shelf: &mut Shelf) {
        let apps = self.sources.iter().any(|source| source.apps);
        let fixed: Vec<Bytes> = self.surface.lists_servers().then(|| own::of_servers(apps)).into_iter().collect();
        shelf.own_at = shelf.entries.partition_point(|entry| self.sources[entry.site].key.as_str() < own::KEY);
        if self.surface.may_search() {
            let visible: Vec<usize> = (0..shelf.entries.len()).filter(|&n| shelf.entries[n].hidden.is_none()).collect();
            let mut keys: Vec<&str> =
                visible.iter().map(|&n| self.sources[shelf.entries[n].site].key.as_str()).collect();
            keys.dedup();
            let search = own::of_search(keys.into_iter(), apps);
            let measured = self.surface.max_tokens().is_some();
            let candidate = |&n: &usize| {
                let entry = &shelf.entries[n];
                let source = &self.sources[entry.site];
                let definition = &source.items(Kind::Tool)[entry.item];
                surface::Candidate {
                    // Its host must know it, and no model asks for it.
                    always: definition.app_only
                        || self.surface.is_always(source.server, &source.key, &definition.native),
                    uses: self.surface.uses(&source.key, &definition.native),
                    place: self.surface.place(source.server),
                    cost: if measured { self.most_tokens(entry) } else { 0 },
                }
            };
            let tools: Vec<_> = visible.iter().map(candidate).collect();
            let sum = |all: &[Bytes]| all.iter().map(|own| self.counter().listed(own)).sum();
            let cost = surface::Own { fixed: sum(&fixed), search: sum(&search) };
            if let Some(listed) = surface::listed(&tools, self.surface.mode(), self.surface.max_tokens(), cost) {
                for (n, listed) in visible.into_iter().zip(listed) {
                    shelf.entries[n].behind = !listed;
                }
                let [search, call] = search;
                shelf.own.extend([call, search]);
            }
        }
        // In the order of their names, as all lists are of one content.
        shelf.own.extend(fixed);
        shelf.own.sort();
    }

    /// The most that a tool's definition costs, whatever the revision of its host.
    fn most_tokens(&self, entry: &Entry) -> usize {
        let needs = self.sources[entry.site].items(Kind::Tool)[entry.item].needs;
        let mut text = Vec::new();
        let mut cost = |class: Class| {
            text.clear();
            self.render(&mut text, Kind::Tool, entry, class);
            self.counter().listed(&text)
        };
        let different = |class: &Class| class.simplest(needs) == *class;
        Class::ALL.into_iter().filter(different).map(&mut cost).max().unwrap_or_default()
    }

    /// Whether a name is one of ours, where ours may be listed.
    fn is_ours(&self, kind: Kind, exposed: &str) -> bool {
        kind == Kind::Tool && (self.surface.may_search() || self.surface.lists_servers()) && own::is_own(exposed)
    }

    /// Whether a URI that passes untouched would be taken for one of ours, and so for another server's.
    fn is_lost(&self, kind: Kind, site: usize, exposed: &str, native: &str) -> bool {
        kind == Kind::Resource
            && exposed == native
            && exposed.starts_with(super::uri::OURS)
            && self.uris.resolve(exposed, |_| None).is_none_or(|route| route.server != self.sources[site].server)
    }

    /// Puts in what makes a difference to hosts.
    fn fingerprint(&self, hash: &mut Sha256, kind: Kind, site: usize, exposed: &str, definition: &Definition) {
        let source = &self.sources[site];
        for text in [exposed, source.key.as_str()] {
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text);
        }
        hash.update(definition.digest);
        hash.update([u8::from(kind == Kind::Tool && source.restrict)]);
        for link in &definition.links {
            hash.update(self.uris.expose(site, link).as_bytes());
        }
    }

    /// Puts a visible item into the tables.
    fn route(&mut self, kind: Kind, site: usize, exposed: &Arc<str>, definition: &Definition, terms: Arc<Terms>) {
        let source = &self.sources[site];
        let table = match kind {
            Kind::Tool => &mut self.tools,
            Kind::Prompt => &mut self.prompts,
            Kind::Resource | Kind::Template => return,
        };
        let route = Route {
            server: source.server,
            native: definition.native.clone(),
            native_json: definition.literal(),
            mirror: definition.mirror.clone(),
            task: definition.task,
            app_only: definition.app_only,
            terms,
            given: definition.given.clone(),
        };
        table.insert(exposed.clone(), route);
        if kind == Kind::Tool && source.apps {
            match self.aliases.entry(definition.native.clone()) {
                Slot::Occupied(mut slot) => drop(slot.insert(None)),
                Slot::Vacant(slot) => drop(slot.insert(Some(exposed.clone()))),
            }
        }
    }

    /// An empty catalogue.
    pub fn empty() -> Self {
        Self::build(&[], &Policy::default(), 0, &View::default())
    }

    /// Who answers to this exposed name of a tool or prompt; exactly as written (CALL-5). Hidden is unknown. Other
    /// kinds have no names: see [`Self::resolve_uri`].
    pub fn resolve(&self, kind: Kind, exposed: &str) -> Option<&Route> {
        match kind {
            Kind::Tool => self.tools.get(exposed),
            Kind::Prompt => self.prompts.get(exposed),
            Kind::Resource | Kind::Template => None,
        }
    }

    /// Whose tool or prompt that would be, and why it is not served, where only a review is missing.
    pub fn held(&self, kind: Kind, exposed: &str) -> Option<(usize, &Hold)> {
        if self.held.is_empty() {
            return None;
        }
        let (server, hold) = self.held.get(&(kind, Arc::from(exposed)))?;
        Some((*server, hold))
    }

    /// The tool that an app means by this name, which is none that hosts were shown (APP-6): the one of that native
    /// name among all servers with apps.
    pub fn alias(&self, native: &str) -> Option<&Route> {
        if self.tools.contains_key(native) {
            return None;
        }
        self.tools.get(self.aliases.get(native)?.as_ref()?)
    }

    /// Who answers to this URI of a host (U-1); one server or none. `learned` tells whose URI one is that no list has
    /// but that was seen in an answer. Whether the resource may be read at all is asked of policy, with the native
    /// URI; what lists hide is not found here (U-6).
    pub fn resolve_uri<'a>(&self, uri: &'a str, learned: impl Fn(&str) -> Option<usize>) -> Option<UriRoute<'a>> {
        self.uris.resolve(uri, learned)
    }

    /// Whose template is exposed as this (U-9); the text of the template, not an expansion of it.
    pub fn resolve_template(&self, exposed: &str) -> Option<UriRoute<'static>> {
        self.uris.resolve_template(exposed)
    }

    /// What hosts must see for a URI that a server mentions, mostly the same (U-2, U-4).
    pub fn expose_uri<'a>(&self, server: usize, native: &'a str) -> Cow<'a, str> {
        self.uris.expose_for(server, native)
    }

    /// Whether URIs in results of this server matter: it has resources, or has told of user interfaces. Where this is
    /// false nobody could read what its results link to, so there is nothing to change and nothing to learn.
    pub fn rewrites_uris(&self, server: usize) -> bool {
        self.sources.iter().any(|source| source.server == server && source.has_uris)
    }

    /// The published list, a JSON array, for hosts of this revision. Rendered once and shared.
    pub fn list(&self, kind: Kind, revision: Revision) -> Bytes {
        let shelf = &self.shelves[kind.index()];
        shelf.list(Class::of(revision), |out, entry, class| self.render(out, kind, entry, class)).clone()
    }

    /// At most `limit` entries of that list from the `offset`th on, and where the next page begins.
    pub fn page(&self, kind: Kind, revision: Revision, offset: usize, limit: usize) -> (Bytes, Option<usize>) {
        let shelf = &self.shelves[kind.index()];
        shelf.page(Class::of(revision), offset, limit, |out, entry, class| self.render(out, kind, entry, class))
    }

    /// The definitions of our own tools that are listed.
    pub fn own(&self) -> impl Iterator<Item = &Bytes> {
        self.shelves[Kind::Tool.index()].own.iter()
    }

    /// How many entries of a kind hosts are listed.
    pub fn entries(&self, kind: Kind) -> usize {
        self.shelves[kind.index()].visible
    }

    /// What hosts see of a kind, in short: catalogues of equal fingerprints need no announcement.
    pub fn fingerprint_of(&self, kind: Kind) -> Fingerprint {
        self.shelves[kind.index()].fingerprint
    }

    /// The visible exposed names, URIs or templates, in the order of the list.
    pub fn names(&self, kind: Kind) -> impl Iterator<Item = &str> {
        self.shelves[kind.index()].seen().filter_map(|entry| entry.exposed.as_deref())
    }

    /// Whether a server listed such an item, hidden or not.
    pub fn lists(&self, kind: Kind, server: usize, native: &str) -> bool {
        let source = self.sources.iter().find(|source| source.server == server);
        source.is_some_and(|source| source.items(kind).iter().any(|item| &*item.native == native))
    }

    /// Everything of a kind that was listed, hidden or not, as hosts of this revision see it.
    pub fn items(&self, kind: Kind, revision: Revision) -> impl Iterator<Item = Item<'_>> {
        let (class, counter) = (Class::of(revision), self.counter());
        let mut text = Vec::new();
        self.shelves[kind.index()].entries.iter().map(move |entry| {
            let source = &self.sources[entry.site];
            text.clear();
            self.render_whole(&mut text, kind, entry, class);
            let size = |text: &[u8]| (text.len(), counter.of(text));
            let mut published = size(&text);
            let mut trimmed = Saved::default();
            if self.trims(kind) {
                let whole = published;
                self.trim(&mut text, 0, kind);
                published = size(&text);
                trimmed = Saved::between(whole, published);
            }
            let definition = &source.items(kind)[entry.item];
            // Without one it is the same text.
            let overridden = definition.given.is_some();
            let overridden = overridden.then(|| Saved::between(size(&definition.whole), size(&definition.definition)));
            Item {
                server: source.server,
                key: &source.key,
                kind,
                native: &definition.native,
                exposed: entry.exposed.as_deref(),
                bytes: published.0,
                tokens: published.1,
                trimmed,
                whole: definition.whole.len(),
                overridden: overridden.unwrap_or_default(),
                behind: entry.behind,
                hidden: entry.hidden,
            }
        })
    }

    /// How its tokens are counted.
    pub fn counter(&self) -> Counter {
        Counter::new(self.surface.tokenizer())
    }

    /// What it costs. Worked out when it is first asked for.
    pub fn ledger(&self) -> &Ledger {
        self.ledger.get_or_init(|| Ledger::of(self))
    }

    /// How much of the tools is listed.
    pub fn surface(&self) -> &Surface {
        &self.surface
    }

    /// What the visible tools are found by. Made when it is first asked for, which takes a while for thousands.
    pub(super) fn searched(&self, build: impl FnOnce() -> Searched) -> &Searched {
        self.index.get_or_init(build)
    }

    /// Whether something is found by search alone.
    pub fn has_more(&self) -> bool {
        self.shelves[Kind::Tool.index()].entries.iter().any(|entry| entry.behind)
    }

    /// Whether that was made already.
    pub fn is_indexed(&self) -> bool {
        self.index.get().is_some()
    }

    /// Tells it what its tools mean: what their passages do, in their order.
    pub fn means(&self, vectors: Vectors) {
        // Who comes second says the same.
        let _ = self.vectors.set(vectors);
    }

    /// The model that knows what its tools mean.
    pub fn meant_by(&self) -> Option<ModelId> {
        self.vectors.get().map(Vectors::model)
    }

    pub(super) fn vectors(&self) -> Option<&Vectors> {
        self.vectors.get()
    }

    /// The positions of the visible tools that a model may call.
    pub(super) fn visible_tools(&self) -> impl Iterator<Item = usize> {
        let entries = &self.shelves[Kind::Tool.index()].entries;
        let is_for_models = |&n: &usize| entries[n].hidden.is_none() && !self.tool(n).2.app_only;
        (0..entries.len()).filter(is_for_models)
    }

    /// The tool at a position: the key of its server, what hosts call it, its definition as it is served.
    pub(super) fn tool(&self, position: usize) -> (&ServerKey, &str, &Definition) {
        let entry = &self.shelves[Kind::Tool.index()].entries[position];
        let source = &self.sources[entry.site];
        let definition = &source.items(Kind::Tool)[entry.item];
        (&source.key, entry.exposed.as_deref().unwrap_or(&definition.native), definition)
    }

    /// Appends the published form of a visible tool, for hosts of this revision.
    pub(super) fn publish(&self, out: &mut Vec<u8>, position: usize, revision: Revision) {
        let entry = &self.shelves[Kind::Tool.index()].entries[position];
        self.render(out, Kind::Tool, entry, Class::of(revision));
    }

    fn render(&self, out: &mut Vec<u8>, kind: Kind, entry: &Entry, class: Class) {
        let from = out.len();
        self.render_whole(out, kind, entry, class);
        self.trim(out, from, kind);
    }

    fn trims(&self, kind: Kind) -> bool {
        kind == Kind::Tool && !self.surface.trim().is_nothing()
    }

    fn trim(&self, out: &mut Vec<u8>, from: usize, kind: Kind) {
        if self.trims(kind) {
            trim::trim(out, from, self.surface.trim());
        }
    }

    fn render_whole(&self, out: &mut Vec<u8>, kind: Kind, entry: &Entry, class: Class) {
        let source = &self.sources[entry.site];
        let item = &source.items(kind)[entry.item];
        let expose = |uri: &str| match self.uris.expose(entry.site, uri) {
            Cow::Borrowed(_) => None,
            Cow::Owned(exposed) => Some(exposed),
        };
        let exposed = entry.exposed.as_deref().unwrap_or(&item.native);
        let restrict = kind == Kind::Tool && source.restrict;
        render(out, item, Published { exposed, class, expose: Some(&expose), restrict });
    }
}

impl Source {
    fn new(part: &Contribution<'_>) -> Self {
        let parts = part.parts.map(Option::<&Arc<Part>>::cloned);
        let mut source =
            Self { server: part.server, key: part.key.clone(), parts, apps: false, has_uris: false, restrict: false };
        source.has_uris = [Kind::Resource, Kind::Template].iter().any(|kind| part.parts[kind.index()].is_some())
            || source.items(Kind::Tool).iter().any(|tool| !tool.links.is_empty());
        source
    }
}

/// All items of a kind, by server, and why hosts may not see them.
fn candidates<'a>(parts: &[&Contribution<'a>], kind: Kind, policy: &Policy, view: &View) -> Vec<Candidate<'a>> {
    let mut found = Vec::with_capacity(parts.iter().filter_map(|part| part.parts[kind.index()]).map(|p| p.len()).sum());
    for (site, part) in parts.iter().enumerate() {
        let items = part.parts[kind.index()].map_or(&[][..], |part| part.items());
        found.extend(items.iter().enumerate().map(|(item, definition)| {
            let native = &definition.native;
            let terms = Arc::new(policy.terms(view.class(), part.server, kind, native, Origin::Listed));
            let hidden = if !terms.is_visible() {
                Some(Hidden::Refused(Reason::NotAllowed))
            } else if definition.hide {
                Some(Hidden::ByOverride)
            } else if !view.exposes(part.server, part.key, kind, native) {
                Some(Hidden::NotInProfile)
            } else if part.http && definition.is_badly_annotated() {
                Some(Hidden::BadHeader)
            } else {
                definition.hold.as_ref().map(|hold| Hidden::Pinned(hold.code()))
            };
            Candidate { site, item, definition, terms, hidden }
        }));
    }
    found
}

/// The exposed names. Servers without a prefix may be several, in different profiles: one that the view does not show
/// takes no name from others.
fn names(
    parts: &[&Contribution<'_>],
    candidates: &[Candidate<'_>],
    scheme: Scheme,
    view: &View,
) -> Vec<Option<Arc<str>>> {
    let counts = |site: usize| !parts[site].prefix.is_empty() || view.shows(parts[site].server);
    let counted = candidates.iter().filter(|candidate| counts(candidate.site));
    let named: Vec<Named<'_>> = counted
        .map(|candidate| {
            let part = parts[candidate.site];
            Named { server: part.key, prefix: part.prefix, native: candidate.definition.called() }
        })
        .collect();
    let mut exposed = scheme.expose(&named).into_iter();
    let next = |candidate: &Candidate<'_>| if counts(candidate.site) { exposed.next().flatten() } else { None };
    candidates.iter().map(next).map(|name| name.map(Into::into)).collect()
}

/// The tables of URIs.
fn uris(parts: &[&Contribution<'_>], candidates: &[Vec<Candidate<'_>>; 4], view: &View) -> Uris {
    let sites = parts.iter().map(|part| Site {
        server: part.server,
        key: part.key.clone(),
        bare: part.prefix.is_empty(),
        visible: view.shows(part.server),
    });
    let of = |kind: Kind| candidates[kind.index()].iter();
    let listed = |candidate: &Candidate<'_>, native: &Arc<str>| Listed {
        native: native.clone(),
        site: candidate.site,
        visible: candidate.hidden.is_none(),
    };
    let resources = of(Kind::Resource).map(|candidate| listed(candidate, &candidate.definition.native));
    let templates = of(Kind::Template).filter_map(|candidate| {
        let definition = candidate.definition;
        Some((listed(candidate, &definition.native), definition.template.clone()?))
    });
    let links = of(Kind::Tool).flat_map(|candidate| {
        candidate.definition.links.iter().map(move |link| listed(candidate, &Arc::from(&**link)))
    });
    Uris::new(sites.collect(), resources.collect(), templates.collect(), links.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::settings::ItemFilter;
    use crate::policy::{Class, ItemRules, ServerRules};
    use proptest::prelude::*;

    const NEWEST: Revision = Revision::LATEST_MODERN;

    fn tool(name: &str, more: &str) -> String {
        format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}}{more}}}"#)
    }

    fn part(tools: &[String]) -> Arc<Part> {
        Arc::new(
            Part::parse(
                Kind::Tool,
                &[Bytes::from(format!("[{}]", tools.join(",")))],
                crate::config::settings::ListLimits::default(),
            )
            .unwrap(),
        )
    }

    fn rules(allow: Option<&[&str]>, deny: &[&str]) -> ServerRules {
        let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        let filter = ItemFilter { allow: allow.map(owned), deny: owned(deny) };
        ServerRules { tools: ItemRules::compile(&filter).unwrap(), ..ServerRules::default() }
    }

    /// The catalogue of these servers, keys as prefixes.
    fn build(servers: &[(&str, Arc<Part>)], policy: &Policy) -> Catalogue {
        let keys: Vec<_> = servers.iter().map(|(key, _)| ServerKey::new(key).unwrap()).collect();
        let parts: Vec<_> = servers
            .iter()
            .zip(&keys)
            .enumerate()
            .map(|(server, ((_, tools), key))| {
                let parts = [Some(tools), None, None, None];
                Contribution { server, key, prefix: key.as_str(), http: false, parts }
            })
            .collect();
        Catalogue::build(&parts, policy, 45, &View::default())
    }

    fn open(servers: usize) -> Policy {
        Policy::new(vec![ServerRules::default(); servers])
    }

    #[test]
    fn d030_each_name_goes_to_its_server() {
        let search = part(&[tool("search", "")]);
        let merged = build(&[("one", search.clone()), ("two", search)], &open(2));
        for (exposed, server) in [("one__search", 0), ("two__search", 1)] {
            let route = merged.resolve(Kind::Tool, exposed).unwrap();
            assert_eq!((route.server, &*route.native), (server, "search"));
        }
        for unknown in ["search", "one__Search", "One__search", "one__search ", "three__search", ""] {
            assert!(merged.resolve(Kind::Tool, unknown).is_none(), "{unknown}");
        }
    }

    #[test]
    fn the_name_goes_back_as_the_server_spelled_it() {
        let merged = build(&[("s", part(&[tool("gr\\u00f6\\u00dfe", "")]))], &open(1));
        let name = merged.names(Kind::Tool).next().unwrap().to_owned();
        let route = merged.resolve(Kind::Tool, &name).unwrap();
        assert_eq!(&*route.native, "größe");
        assert_eq!(route.native_json, r#""gr\u00f6\u00dfe""#);
    }

    #[test]
    fn d040_order_is_by_key_and_then_the_server_s_own() {
        let a = part(&[tool("z", ""), tool("a", "")]);
        let b = part(&[tool("m", "")]);
        let here = build(&[("a-b", a.clone()), ("a", b.clone())], &open(2));
        let there = build(&[("a", b), ("a-b", a)], &open(2));
        assert_eq!(here.names(Kind::Tool).collect::<Vec<_>>(), ["a__m", "a-b__z", "a-b__a"]);
        assert_eq!(here.list(Kind::Tool, NEWEST), there.list(Kind::Tool, NEWEST));
        assert_eq!(here.fingerprint_of(Kind::Tool), there.fingerprint_of(Kind::Tool));
    }

    #[test]
    fn lists_are_rendered_once_and_shared() {
        let plain = build(&[("s", part(&[tool("t", ""), tool("u", r#","execution":{}"#)]))], &open(1));
        let newest = plain.list(Kind::Tool, NEWEST);
        assert_eq!(newest, format!("[{},{}]", tool("s__t", ""), tool("s__u", "")));
        for revision in Revision::ALL {
            assert_eq!(plain.list(Kind::Tool, revision).as_ptr(), newest.as_ptr(), "{revision:?}");
        }
        let output = build(&[("s", part(&[tool("t", r#","outputSchema":{"type":"object"}"#)]))], &open(1));
        assert_eq!(output.list(Kind::Tool, Revision::V2025_06_18).as_ptr(), output.list(Kind::Tool, NEWEST).as_ptr());
        assert_eq!(output.list(Kind::Tool, Revision::V2025_03_26), format!("[{}]", tool("s__t", "")));
        assert_eq!(Catalogue::empty().list(Kind::Tool, NEWEST), "[]");
    }

    #[test]
    fn d095_hidden_is_unknown() {
        let five = ["read", "list", "write", "delete", "move"].map(|name| tool(name, ""));
        let policy = Policy::new(vec![rules(Some(&["read", "list", "delete"]), &["del*"])]);
        let merged = build(&[("s", part(&five))], &policy);
        assert_eq!(merged.names(Kind::Tool).collect::<Vec<_>>(), ["s__read", "s__list"]);
        assert_eq!(merged.entries(Kind::Tool), 2);
        let hidden: Vec<_> =
            merged.items(Kind::Tool, NEWEST).filter_map(|item| Some((item.native, item.hidden?.code()))).collect();
        assert_eq!(hidden, [("write", "not-allowed"), ("delete", "not-allowed"), ("move", "not-allowed")]);
        for name in ["s__write", "s__delete", "write", "read"] {
            assert!(merged.resolve(Kind::Tool, name).is_none());
        }
        let text = String::from_utf8(merged.list(Kind::Tool, NEWEST).to_vec()).unwrap();
        assert!(text.contains("s__read") && !text.contains("write"));
    }

    #[test]
    fn n_8_hidden_items_count_for_names() {
        let twins = part(&[tool("a.b", ""), tool("a_b", "")]);
        let all = build(&[("s", twins.clone())], &open(1));
        let cut = build(&[("s", twins)], &Policy::new(vec![rules(None, &["a_b"])]));
        let seen: Vec<_> = all.names(Kind::Tool).collect();
        assert_ne!(seen[0], "s__a_b");
        assert_eq!(cut.names(Kind::Tool).collect::<Vec<_>>(), seen[..1]);
    }

    #[test]
    fn a_fingerprint_is_of_what_hosts_see() {
        let print = |tools: &[String], rules: ServerRules| {
            build(&[("s", part(tools))], &Policy::new(vec![rules])).fingerprint_of(Kind::Tool)
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
        let bytes = |revision| merged.items(Kind::Tool, revision).map(|item| item.bytes).collect::<Vec<_>>();
        assert_eq!(bytes(NEWEST), [merged.list(Kind::Tool, NEWEST).len() - 2]);
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
            let text = merged.list(Kind::Tool, NEWEST);
            let published: Vec<_> = crate::protocol::json::elements(&text)
                .map(|raw| {
                    let name = crate::protocol::json::members(raw).find(|entry| entry.is("name")).unwrap();
                    crate::protocol::json::text_of(name.value).unwrap().into_owned()
                })
                .collect();
            prop_assert_eq!(published.len(), merged.entries(Kind::Tool));
            let mut routed: Vec<_> = published.iter().map(|name| &*merged.resolve(Kind::Tool, name).unwrap().native).collect();
            let mut admitted: Vec<_> =
                natives.iter().map(String::as_str).filter(|name| policy.exposes(Class::default(), 0, Kind::Tool, name).is_ok()).collect();
            routed.sort_unstable();
            admitted.sort_unstable();
            prop_assert_eq!(routed, admitted);
        }
    }
}
