//! Our own tools: finding tools by words, calling what was found, telling of servers.
//!
//! A call of `onegate__call_tool` becomes the call that it asks for before anything else is done with it, so there is one
//! way of a call and no second (SRF-1); this file has no part in it after that. Nothing hangs on a connection: what is
//! found is what the caller's catalogue shows (INV-4, INV-8). Called by [`super::invoke`].

use std::sync::Arc;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::meaning::Meaning;
use super::{Failure, Gateway, Outcome};
use crate::caller::Caller;
use crate::catalog::own::{CALL, KEY, SEARCH, SERVERS};
use crate::catalog::{Catalogue, Found};
use crate::config::settings::Settings;
use crate::ident::Kind;
use crate::protocol::call::{BadCall, Call};
use crate::protocol::json;
use crate::protocol::method::Method;
use crate::protocol::version::Revision;
use crate::search::Meant as Sense;
use crate::telemetry::audit::Verdict;

/// Tools of one answer: where nothing is said, and at most.
const USUAL: usize = 8;
const MOST: usize = 50;
/// Longest description in brief, in characters.
const BRIEF: usize = 160;
/// Parameters that are told in brief.
const PARAMETERS: usize = 12;
/// An answer ends before it has more bytes than this.
const MAX_ANSWER: usize = 200 << 10;
/// Longest query that is read.
const MAX_QUERY: usize = 2 << 10;

/// What a call is about.
pub(super) enum Meant {
    /// What it names.
    Itself,
    /// This call, which stands in its arguments.
    Inner(Box<Call>),
    /// One of our own tools.
    Own(Own),
}

/// A tool of ours.
pub(super) enum Own {
    /// It finds tools.
    Search,
    /// It lists servers.
    Servers,
    /// It calls others, and was called wrongly.
    Call(BadCall),
}

/// Where indexes are made, so that no call waits for it: one at a time, as each may take a processor for a while.
#[derive(Clone)]
pub(super) struct Background {
    tasks: TaskTracker,
    turn: Arc<tokio::sync::Mutex<()>>,
    /// No vectors are made any more.
    stopped: CancellationToken,
    /// What tools mean, where there is a model.
    meaning: Option<Arc<Meaning>>,
}

impl Background {
    pub(super) fn new(tasks: TaskTracker) -> Self {
        Self { tasks, turn: Arc::default(), stopped: CancellationToken::new(), meaning: None }
    }

    /// The same for a configuration; the model of the one before goes on where it is the same.
    pub(super) fn of(&self, settings: &Settings, before: Option<&Self>) -> Self {
        let meaning = settings.search.model.as_ref().map(|folder| {
            let kept = settings.gateway.state.join("vectors");
            let old = before.and_then(|before| before.meaning.as_ref()).filter(|old| old.serves(folder, &kept));
            old.cloned().unwrap_or_else(|| {
                Arc::new(Meaning::new(folder.clone(), kept, self.tasks.clone(), self.stopped.clone()))
            })
        });
        Self { meaning, ..self.clone() }
    }

    /// Ends what would go on for long.
    pub(super) fn stop(&self) {
        self.stopped.cancel();
    }

    /// Makes what a new catalogue is searched by, unless it is an old one by then.
    pub(super) fn prepare(&self, catalogue: &Arc<Catalogue>) {
        if catalogue.has_more() {
            let (background, catalogue) = (self.clone(), Arc::downgrade(catalogue));
            self.tasks.spawn(async move {
                let _turn = background.turn.lock().await;
                if let Some(catalogue) = catalogue.upgrade() {
                    background.make(catalogue).await;
                }
            });
        }
    }

    /// The same, and waits for it.
    async fn prepared(&self, catalogue: &Arc<Catalogue>) {
        if !catalogue.is_indexed() {
            let _turn = self.turn.lock().await;
            self.make(Arc::clone(catalogue)).await;
        }
    }

    /// Who has the turn makes it, where it is not there yet.
    async fn make(&self, catalogue: Arc<Catalogue>) {
        if !catalogue.is_indexed() {
            let made = Arc::clone(&catalogue);
            // It panics only if we do; then the search does so itself.
            let _ = self.tasks.spawn_blocking(move || made.prepare_search()).await;
            if let Some(meaning) = &self.meaning {
                meaning.prepare(&catalogue);
            }
        }
    }

    /// What a query means beside its words, as far as that is known of this catalogue.
    async fn meant(&self, query: &str, catalogue: &Catalogue) -> Option<Sense> {
        self.meaning.as_ref()?.of(query, catalogue).await
    }
}

impl Gateway {
    /// What a call is about, where the profile of its caller has tools of ours.
    pub(super) fn meant(&self, call: &Call, caller: &Caller) -> Meant {
        let raw = call.target();
        if call.method() != Method::ToolsCall || !(raw.starts_with(b"\"onegate__") || raw.contains(&b'\\')) {
            return Meant::Itself;
        }
        let view = self.lists.show(self.sight_of(caller));
        let surface = view.surface();
        match json::text_of(raw).as_deref() {
            Some(SEARCH) if surface.may_search() => Meant::Own(Own::Search),
            Some(CALL) if surface.may_search() => match call.inner() {
                Ok(inner) => Meant::Inner(Box::new(inner)),
                Err(why) => Meant::Own(Own::Call(why)),
            },
            Some(SERVERS) if surface.lists_servers() => Meant::Own(Own::Servers),
            _ => Meant::Itself,
        }
    }

    /// Serves a tool of ours.
    pub(super) async fn serve_own(&self, own: Own, call: &Call, caller: &Caller) -> Result<Outcome, Failure> {
        let mut trace = self.trace(call, caller);
        if let Some(after) = self.policy.is_flooding(&caller.principal) {
            self.note_flood(&mut trace);
            let flood = Err(Failure::flood(after));
            trace.ended(&flood);
            return flood;
        }
        let (name, members) = match own {
            Own::Search => (SEARCH, self.searched(call, caller).await),
            Own::Servers => (SERVERS, self.told_servers(caller).await),
            Own::Call(why) => (CALL, wrong(&misused(why))),
        };
        if let Some(record) = &mut trace.record {
            record.item(KEY, Kind::Tool.as_str(), name.rsplit("__").next().unwrap_or(name));
            record.decided(&Verdict {
                word: "allow",
                reason: None,
                rule: None,
                policy: None,
                pin: None,
                arguments: call.arguments(),
            });
        }
        let outcome = Ok(Outcome::Own(members));
        trace.ended(&outcome);
        outcome
    }

    /// What a caller sees, when every server had its chance to list (LST-1).
    async fn settled(&self, caller: &Caller) -> Arc<Catalogue> {
        let deadline = Instant::now() + self.settings.list_deadline;
        self.lists.settle(Kind::Tool).await;
        self.audiences.settle(caller, deadline, |_| true).await;
        self.audiences.catalogue(caller)
    }

    async fn searched(&self, call: &Call, caller: &Caller) -> String {
        let asked = match Asked::read(call.arguments().unwrap_or(b"{}")) {
            Ok(asked) => asked,
            Err(why) => return wrong(why),
        };
        let catalogue = self.settled(caller).await;
        self.lists.background().prepared(&catalogue).await;
        let servers = catalogue.servers_with_tools();
        if let Some(server) = &asked.server
            && !servers.iter().any(|(key, _)| key.as_str() == server)
        {
            let keys: Vec<_> = servers.iter().map(|(key, _)| key.as_str()).collect();
            return wrong(&format!("There is no server of that key. There are: {}", keys.join(", ")));
        }
        let meant = self.lists.background().meant(&asked.query, &catalogue).await;
        let query = (asked.query.as_str(), meant.as_ref());
        let found = catalogue.find(query, asked.server.as_deref(), asked.limit, caller.revision);
        answer(&found, asked.detail, caller.revision)
    }

    async fn told_servers(&self, caller: &Caller) -> String {
        let catalogue = self.settled(caller).await;
        let (mut text, mut listed) = (String::new(), b"\"servers\":[".to_vec());
        for (n, (key, count)) in catalogue.servers_with_tools().into_iter().enumerate() {
            let says =
                self.place_of(key.as_str()).and_then(|server| self.lists.introduction(server)).unwrap_or_default();
            let says = first_line(&says, BRIEF);
            text.push_str(&format!("{}{key}: {count} tools", if n > 0 { "\n" } else { "" }));
            listed.extend_from_slice(if n > 0 { b",{\"key\":\"" } else { b"{\"key\":\"" });
            listed.extend_from_slice(format!("{key}\",\"tools\":{count}").as_bytes());
            if !says.is_empty() {
                text.push_str(&format!(" – {says}"));
                listed.extend_from_slice(b",\"description\":");
                json::push_string(&mut listed, &says);
            }
            listed.push(b'}');
        }
        listed.push(b']');
        result(if text.is_empty() { "There are no servers with tools." } else { &text }, &listed, caller.revision)
    }
}

/// How much of each tool is told.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Detail {
    Names,
    Brief,
    Full,
}

/// What a search asks for.
struct Asked {
    query: String,
    server: Option<String>,
    limit: usize,
    detail: Detail,
}

impl Asked {
    fn read(arguments: &[u8]) -> Result<Self, &'static str> {
        let member = |name| json::member(arguments, name).filter(|value| *value != b"null");
        let text = |raw| json::text_of(raw).map(std::borrow::Cow::into_owned);
        let query = member("query").and_then(text).filter(|query| !query.trim().is_empty());
        let mut query = query.ok_or("The argument `query` must say what you want to do, in a few words.")?;
        query.truncate(query.floor_char_boundary(MAX_QUERY));
        let server = match member("server") {
            None => None,
            Some(raw) => Some(text(raw).ok_or("The argument `server` must be the key of a server.")?),
        };
        let limit = match member("limit").map(|raw| std::str::from_utf8(raw).unwrap_or_default().parse::<f64>()) {
            None => USUAL,
            // Some hosts write whole numbers with a fraction.
            Some(Ok(limit)) if limit >= 1.0 => (limit as usize).min(MOST),
            Some(_) => return Err("The argument `limit` must be a number from 1 to 50."),
        };
        let detail = match member("detail").and_then(text).as_deref() {
            None if member("detail").is_none() => Detail::Brief,
            Some("names") => Detail::Names,
            Some("brief") => Detail::Brief,
            Some("full") => Detail::Full,
            _ => return Err("The argument `detail` must be names, brief or full."),
        };
        Ok(Self { query, server: server.filter(|server| !server.is_empty()), limit, detail })
    }
}

/// What was found: for the model as text, by server; for programs by how well it fits.
fn answer(found: &[Found<'_>], detail: Detail, revision: Revision) -> String {
    if found.is_empty() {
        let text = "No tool fits these words. Try others, or none of the servers can do it.";
        return result(text, b"\"tools\":[]", revision);
    }
    let mut listed = b"\"tools\":[".to_vec();
    let mut by_server: Vec<(&str, String)> = Vec::new();
    let mut size = 0;
    for (n, tool) in found.iter().enumerate() {
        let (line, object) = told(tool, detail);
        size += line.len() + object.len();
        if n > 0 && size > MAX_ANSWER {
            break;
        }
        if n > 0 {
            listed.push(b',');
        }
        listed.extend_from_slice(&object);
        let key = tool.server.as_str();
        match by_server.iter_mut().find(|(server, _)| *server == key) {
            Some((_, lines)) => lines.push_str(&line),
            None => by_server.push((key, line)),
        }
    }
    listed.push(b']');
    let mut text = format!("Call one with {CALL}.\n");
    for (server, lines) in by_server {
        text.push_str(&format!("## {server}\n{lines}"));
    }
    result(text.trim_end(), &listed, revision)
}

/// A tool as a line of text and as an object.
fn told(tool: &Found<'_>, detail: Detail) -> (String, Vec<u8>) {
    let member = |name| json::member(&tool.definition, name);
    let description = member("description").and_then(json::text_of).unwrap_or_default();
    let schema = member("inputSchema").unwrap_or(b"{}");
    let mut object = b"{\"name\":".to_vec();
    json::push_string(&mut object, tool.exposed);
    object.extend_from_slice(format!(",\"server\":\"{}\"", tool.server).as_bytes());
    let mut line = format!("- {}", tool.exposed);
    let mut describe = |text: &str| {
        object.extend_from_slice(b",\"description\":");
        json::push_string(&mut object, text);
    };
    match detail {
        Detail::Names => {}
        Detail::Brief => {
            let (brief, parameters) = (first_line(&description, BRIEF), signature(schema));
            line.push_str(&format!("({parameters}) – {brief}"));
            describe(&brief);
            object.extend_from_slice(b",\"parameters\":");
            json::push_string(&mut object, &parameters);
        }
        Detail::Full => {
            line.push_str(&format!(" – {}\n  inputSchema: {}", description.trim(), String::from_utf8_lossy(schema)));
            describe(&description);
            object.extend_from_slice(b",\"inputSchema\":");
            object.extend_from_slice(schema);
        }
    }
    object.extend_from_slice(format!(",\"score\":{:.3}}}", tool.score).as_bytes());
    line.push('\n');
    (line, object)
}

/// The parameters of a schema in short: `path: string, limit?: integer`.
fn signature(schema: &[u8]) -> String {
    let required: Vec<_> = json::member(schema, "required").into_iter().flat_map(json::elements).collect();
    let mut out = String::new();
    let properties = json::member(schema, "properties").unwrap_or(b"{}");
    for (n, property) in json::members(properties).enumerate() {
        if n > 0 {
            out.push_str(", ");
        }
        if n == PARAMETERS {
            out.push('…');
            break;
        }
        let name = property.name().unwrap_or_default();
        let asked = required.iter().any(|raw| json::text_of(raw).is_some_and(|asked| asked == name));
        out.push_str(&format!("{name}{}: {}", if asked { "" } else { "?" }, type_of(property.value, 0)));
    }
    out
}

/// What a schema takes, in a word.
fn type_of(schema: &[u8], depth: usize) -> String {
    if let Some(values) = json::member(schema, "enum") {
        let values: Vec<_> = json::elements(values).take(6).map(String::from_utf8_lossy).collect();
        return values.join("|");
    }
    match json::member(schema, "type").and_then(json::text_of).as_deref() {
        Some("array") => {
            let items = json::member(schema, "items").filter(|_| depth < 3);
            format!("{}[]", items.map_or_else(|| "any".to_owned(), |items| type_of(items, depth + 1)))
        }
        Some(kind) => kind.to_owned(),
        None => "any".to_owned(),
    }
}

/// The beginning of a text, on one line.
fn first_line(text: &str, most: usize) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    crate::catalog::shortened(&text, most).unwrap_or(text)
}

/// A result, as raw members.
fn result(text: &str, structured: &[u8], revision: Revision) -> String {
    let mut out = br#""content":[{"type":"text","text":"#.to_vec();
    json::push_string(&mut out, text);
    out.extend_from_slice(b"}]");
    if revision >= Revision::V2025_06_18 {
        out.extend_from_slice(b",\"structuredContent\":{");
        out.extend_from_slice(structured);
        out.push(b'}');
    }
    String::from_utf8(out).expect("invariant: a definition is text")
}

/// The result of a call that was written wrongly, for a model to read.
fn wrong(text: &str) -> String {
    let mut out = br#""content":[{"type":"text","text":"#.to_vec();
    json::push_string(&mut out, text);
    out.extend_from_slice(br#"}],"isError":true"#);
    String::from_utf8(out).expect("invariant: text is text")
}

/// How to call a tool that was found.
fn misused(why: BadCall) -> String {
    let what = match why {
        BadCall::Name => "`name` must be the name of a tool",
        BadCall::Arguments => "`arguments` must be an object",
        BadCall::Duplicate => "a member stands twice",
        BadCall::Params | BadCall::Uri | BadCall::Task | BadCall::Reference | BadCall::Meta | BadCall::Token => {
            "they cannot be read"
        }
    };
    format!(
        "The arguments of {CALL} are {{\"name\": …, \"arguments\": {{…}}}}: the name of a tool, as {SEARCH} found it, and that \
         tool's own arguments. Here {what}."
    )
}
