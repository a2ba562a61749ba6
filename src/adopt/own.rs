//! Edits of `onegate.toml` that keep its comments and order, as texts: nothing is read or written here.
//!
//! Called by `cli`, which has the result checked as a whole before it is written.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, Value, value};

use crate::config::keys;
use crate::config::tree::Node;
use crate::ident::ServerKey;
use crate::shown::shown_str as shown;

use super::hosts::Syntax;
use super::hosts::Variables;
use super::read::{self, Unreadable};
use super::secrets::{self, Instead, Lifted};
use super::server::{Identity, Origin, Server};
use super::text::Text;
use super::{edit, fields, lines};

/// What became of one server.
pub struct Taken {
    /// It, with references in the place of secrets.
    pub server: Server,
    /// Its key with us; none when it was not taken.
    pub key: Option<String>,
    /// What became of it.
    pub outcome: Outcome,
    /// Secrets that stood in the open.
    pub lifted: Vec<Lifted>,
    /// Variables that stand for what the host asked for or kept: name there, name of ours.
    pub wanted: Vec<(String, String)>,
}

/// What became of a server that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is new.
    Added,
    /// It is written, but switched off, for this reason.
    Off(String),
    /// It is there already, or was found before, under this key.
    Same(String),
    /// It cannot be taken over, for this reason.
    Left(String),
}

/// Adds servers to the text of a configuration; those that are there already are not added again. `base` is the folder of
/// the file.
pub fn merge(
    text: &str,
    servers: Vec<Server>,
    instead: Instead,
    base: &Path,
) -> Result<(String, Vec<Taken>), Unreadable> {
    merge_beside(text, servers, instead, base, &[])
}

/// The same where other files are loaded together with this one: their paths and texts.
pub fn merge_beside(
    text: &str,
    servers: Vec<Server>,
    instead: Instead,
    base: &Path,
    others: &[(PathBuf, String)],
) -> Result<(String, Vec<Taken>), Unreadable> {
    let mut known: BTreeMap<Identity, Known> = BTreeMap::new();
    let mut used: Vec<String> = defined(text)?;
    for (path, text) in others {
        let base = path.parent().unwrap_or(Path::new("/"));
        known.extend(identities(text, base, false)?.into_iter().map(|(identity, key)| (identity, Known::Key(key))));
        used.extend(defined(text)?);
    }
    known.extend(identities(text, base, false)?.into_iter().map(|(identity, key)| (identity, Known::Key(key))));
    let mut document = document(text)?;
    // First which are new, then what they are called: a name that is found twice clashes with nobody.
    let mut new = Vec::with_capacity(servers.len());
    let mut all: Vec<(usize, Taken)> = Vec::with_capacity(servers.len());
    let mut twins = Vec::new();
    let mut variables = secrets::Variables::new();
    for (n, mut server) in servers.into_iter().enumerate() {
        let left = |server, outcome| Taken { server, key: None, outcome, lifted: Vec::new(), wanted: Vec::new() };
        if server.command.is_none() && server.url.is_none() {
            let why = server.unusable.clone().unwrap_or_default();
            all.push((n, left(server, Outcome::Left(why))));
            continue;
        }
        let identity = server.identity(base);
        if let Some(known) = known.get(&identity) {
            // Known or not, what it holds in confidence is not shown.
            let _ = secrets::lift(&mut server, "x", instead, base);
            match known {
                Known::Key(key) => all.push((n, left(server, Outcome::Same(key.clone())))),
                Known::Twin(of) => twins.push((n, *of, left(server, Outcome::Added))),
            }
            continue;
        }
        known.insert(identity, Known::Twin(n));
        new.push((n, server));
    }
    let names: Vec<String> = new.iter().map(|(_, server)| server.title.clone()).collect();
    let slugs = keys(names.iter().map(String::as_str));
    for ((n, mut server), slug) in new.into_iter().zip(slugs) {
        let key = free(&slug, &used);
        let lifted = secrets::lift_among(&mut server, &key, instead, base, &mut variables);
        let (table, lost, wanted) = table(&server);
        let why = server.unusable.clone().or_else(|| {
            (!lost.is_empty())
                .then(|| format!("uses {}, which only the host knows; put a value in its place", lost.join(", ")))
        });
        used.push(key.clone());
        add_table(&mut document, &key, table, &heading(&server, &key), why.is_some() || !server.enabled);
        let outcome = why.map_or(Outcome::Added, Outcome::Off);
        all.push((n, Taken { server, key: Some(key), outcome, lifted, wanted }));
    }
    for (n, of, twin) in twins {
        let key = all.iter().find(|(n, _)| *n == of).and_then(|(_, first)| first.key.clone()).unwrap_or_default();
        all.push((n, Taken { outcome: Outcome::Same(key), ..twin }));
    }
    all.sort_by_key(|(n, _)| *n);
    let all = all.into_iter().map(|(_, taken)| taken).collect();
    Ok((lines::keep(text, &document.to_string()), all))
}

/// Where a server is known from.
enum Known {
    /// The configuration, under this key.
    Key(String),
    /// What is just taken over: the one with this number.
    Twin(usize),
}

/// The comment over a server that was taken over.
fn heading(server: &Server, key: &str) -> String {
    let scope = server.origin.scope.map(|scope| format!(" ({})", scope.word())).unwrap_or_default();
    let name = if server.title == key { String::new() } else { format!(", there `{}`", shown(&server.title)) };
    format!("# from {}{scope}{name}\n", shown(&server.origin.host))
}

/// A key that nobody has: the slug, or with a number behind it.
fn free(slug: &str, used: &[String]) -> String {
    if !used.iter().any(|key| key == slug) {
        return slug.to_owned();
    }
    let mut number: u32 = 2;
    loop {
        let end = format!("-{number}");
        let stem: String = slug.chars().take(ServerKey::MAX_LEN - end.len()).collect();
        let key = format!("{}{end}", stem.trim_end_matches('-'));
        if !used.contains(&key) {
            return key;
        }
        number += 1;
    }
}

/// The servers of a configuration (without those that are switched off, when told so), by how they are launched or reached.
pub(super) fn identities(
    text: &str,
    base: &Path,
    only_enabled: bool,
) -> Result<BTreeMap<Identity, String>, Unreadable> {
    let root = read::parse(text, Syntax::Toml)?;
    let servers = root.get("servers").map(Node::entries).unwrap_or_default();
    let mut known = BTreeMap::new();
    for entry in servers {
        let origin = Origin { file: base.to_owned(), ..Origin::default() };
        let read = fields::server_in(Variables::Ours, &entry.name, &entry.node, origin);
        if only_enabled && !read.enabled {
            continue;
        }
        known.entry(read.identity(base)).or_insert_with(|| entry.name.clone());
    }
    Ok(known)
}

/// The keys of the servers that a text defines.
pub fn defined(text: &str) -> Result<Vec<String>, Unreadable> {
    let root = read::parse(text, Syntax::Toml)?;
    Ok(root.get("servers").map(Node::entries).unwrap_or_default().iter().map(|entry| entry.name.clone()).collect())
}

/// The texts that stand in the open in a configuration though their names say that they are secrets: server and place.
pub fn open_secrets(text: &str) -> Vec<(String, String)> {
    let Ok(root) = read::parse(text, Syntax::Toml) else { return Vec::new() };
    let mut found = Vec::new();
    for entry in root.get("servers").map(Node::entries).unwrap_or_default() {
        let origin = Origin::default();
        let mut server = fields::server_in(Variables::Ours, &entry.name, &entry.node, origin);
        let lifted = secrets::lift(&mut server, &entry.name, Instead::Variable, Path::new("/"));
        found.extend(lifted.into_iter().map(|lifted| (entry.name.clone(), lifted.place)));
    }
    found
}

pub(super) fn document(text: &str) -> Result<DocumentMut, Unreadable> {
    // The reason alone: the parser's own display quotes the line, which may be a secret.
    read::parse(text, Syntax::Toml)?;
    text.strip_prefix('\u{feff}').unwrap_or(text).parse().map_err(|_| Unreadable::Odd("is not valid TOML".to_owned()))
}

/// A server that a person described on the command line.
pub struct Described {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Its address instead.
    pub url: Option<String>,
    /// Its variables.
    pub env: Vec<(String, String)>,
    /// Its headers.
    pub headers: Vec<(String, String)>,
}

/// Adds a server as it was described: references are meant as they are written.
pub fn add(text: &str, key: &str, described: &Described) -> Result<String, Unreadable> {
    let mut document = document(text)?;
    if defined(text)?.iter().any(|known| known == key) {
        return Err(Unreadable::Odd(format!("`servers.{key}` is there already")));
    }
    let mut table = Table::new();
    if let Some((command, args)) = described.command.split_first() {
        table["command"] = value(command);
        if !args.is_empty() {
            table["args"] = value(args.iter().collect::<Array>());
        }
    }
    if let Some(url) = &described.url {
        table["url"] = value(url);
    }
    for (name, texts) in [("env", &described.env), ("headers", &described.headers)] {
        if !texts.is_empty() {
            table[name] = value(inline(texts.iter().map(|(name, text)| (name.as_str(), text.as_str()))));
        }
    }
    add_table(&mut document, key, table, "", false);
    Ok(lines::keep(text, &document.to_string()))
}

/// Takes a server out, with the comments over it.
pub fn remove(text: &str, key: &str) -> Result<String, Unreadable> {
    let mut document = document(text)?;
    // By its lines, where it has lines of its own and they are all there is of it.
    let without = lines::without_table(text, "servers", key, true);
    let said = |text: &str| read::parse(text, Syntax::Toml).map(|root| edit::said(&root));
    if let (Some(without), Ok(mut wanted)) = (without, said(text))
        && let Some(servers) = wanted.get_mut("servers").and_then(serde_json::Value::as_object_mut)
        && servers.remove(key).is_some()
    {
        let last = servers.is_empty();
        let now = said(&without);
        if last && let Some(all) = wanted.as_object_mut() {
            // Its own table went with it.
            all.remove("servers");
        }
        if now.is_ok_and(|now| now == wanted) {
            return Ok(without);
        }
    }
    let servers = document.get_mut("servers").and_then(Item::as_table_like_mut);
    if servers.is_none_or(|servers| servers.remove(key).is_none()) {
        return Err(no_server(key));
    }
    Ok(lines::keep(text, &document.to_string()))
}

/// Switches a server on or off.
pub fn switch(text: &str, key: &str, on: bool) -> Result<String, Unreadable> {
    let mut document = document(text)?;
    let servers = document.get_mut("servers").and_then(Item::as_table_like_mut);
    let server = servers.and_then(|servers| servers.get_mut(key)).and_then(Item::as_table_like_mut);
    let Some(server) = server else { return Err(no_server(key)) };
    let written = server.get("enabled").and_then(Item::as_bool);
    if written.unwrap_or(true) != on {
        if let Some(Item::Value(known)) = server.get_mut("enabled") {
            // What stands around it stays.
            let decor = known.decor().clone();
            *known = Value::from(on);
            *known.decor_mut() = decor;
        } else {
            server.insert("enabled", value(on));
        }
    }
    Ok(lines::keep(text, &document.to_string()))
}

fn no_server(key: &str) -> Unreadable {
    Unreadable::Odd(format!("has no server `{}`", shown(key)))
}

/// Puts a table at the end of the servers.
fn add_table(document: &mut DocumentMut, key: &str, mut table: Table, heading: &str, off: bool) {
    if off {
        table["enabled"] = value(false);
    }
    let first = document.is_empty() && document.trailing().as_str().is_none_or(str::is_empty);
    let servers = document.entry("servers").or_insert_with(|| {
        let mut servers = Table::new();
        servers.set_implicit(true);
        Item::Table(servers)
    });
    match servers {
        Item::Table(servers) => {
            table.decor_mut().set_prefix(format!("{}{heading}", if first { "" } else { "\n" }));
            servers.insert(key, Item::Table(table));
        }
        // `servers = { … }`: it can only go inside.
        other @ (Item::None | Item::Value(_) | Item::ArrayOfTables(_)) => {
            if let Some(servers) = other.as_table_like_mut() {
                servers.insert(key, value(table.into_inline_table()));
            }
        }
    }
}

/// The table of a server, what nothing of ours stands for in it, and the variables that it wants.
fn table(server: &Server) -> (Table, Vec<String>, Vec<(String, String)>) {
    let (mut lost, mut wanted) = (Vec::new(), Vec::new());
    let mut own = |text: &Text| {
        let own = text.own();
        lost.extend(own.lost);
        wanted.extend(own.wanted);
        own.text
    };
    let mut table = Table::new();
    if let Some(command) = &server.command {
        table["command"] = value(own(command));
    }
    if !server.args.is_empty() {
        table["args"] = value(server.args.iter().map(&mut own).collect::<Array>());
    }
    if let Some(url) = &server.url {
        table["url"] = value(own(url));
        if server.sse {
            table["transport"] = value("sse");
        }
    }
    for (name, texts) in [("env", &server.env), ("headers", &server.headers)] {
        if !texts.is_empty() {
            let texts: Vec<_> = texts.iter().map(|(name, text)| (name.as_str(), own(text))).collect();
            table[name] = value(inline(texts.iter().map(|(name, text)| (*name, text.as_str()))));
        }
    }
    if let Some(cwd) = &server.cwd {
        table["cwd"] = value(own(cwd));
    }
    let mut filter = InlineTable::new();
    let patterns = |names: &[String]| names.iter().map(|name| literal(name)).collect::<Array>();
    if let Some(allow) = &server.allow {
        filter.insert("allow", Value::Array(patterns(allow)));
    }
    if !server.deny.is_empty() {
        filter.insert("deny", Value::Array(patterns(&server.deny)));
    }
    if !filter.is_empty() {
        table["tools"] = value(filter);
    }
    let mut deadlines = InlineTable::new();
    const CALL_MAX: Duration = Duration::from_secs(15 * 60);
    if let Some(start) = server.start {
        deadlines.insert("start", period(start).into());
    }
    if let Some(call) = server.call {
        deadlines.insert("call", period(call).into());
        if call > CALL_MAX {
            deadlines.insert("call_max", period(call).into());
        }
    }
    if !deadlines.is_empty() {
        table["timeouts"] = value(deadlines);
    }
    lost.sort();
    lost.dedup();
    wanted.sort();
    wanted.dedup();
    (table, lost, wanted)
}

fn inline<'t>(texts: impl Iterator<Item = (&'t str, &'t str)>) -> InlineTable {
    texts.map(|(name, text)| (name, Value::from(text))).collect()
}

fn period(time: Duration) -> String {
    if time.subsec_millis() == 0 { format!("{}s", time.as_secs()) } else { format!("{}ms", time.as_millis()) }
}

/// A pattern that matches this name and no other.
fn literal(name: &str) -> String {
    let escaped: String =
        name.chars().flat_map(|c| matches!(c, '*' | '?' | '[' | '\\').then_some('\\').into_iter().chain([c])).collect();
    if escaped.starts_with("re:") { format!("\\{escaped}") } else { escaped }
}
