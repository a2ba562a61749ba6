//! Writing the lock: for the commands alone, never for a gateway that runs.
//!
//! What is not changed stays as it is, comments and unknown keys with it; servers stand by key, entries by kind and name,
//! so that two people's changes merge. Snapshots come before the lock that speaks of them, and files that are replaced are
//! replaced whole.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use toml_edit::{Array, ArrayOfTables, DocumentMut, InlineTable, Item, Table, Value as Toml, value};

use super::{Announced, Entry, LockFault, LockedServer, VERSION, packages_name, snapshot_name, snapshots};
use crate::ident::{Kind, ServerKey};
use crate::pins::canonical;
use crate::pins::facet::{FORM, Facet, Hash, Hashes};
use crate::whole;

/// A lock that is being changed.
pub struct Draft {
    path: PathBuf,
    document: DocumentMut,
    /// Snapshots that are to be there.
    snapshots: Vec<(Hash, Vec<u8>)>,
    /// The same of lists of packages, as they came.
    packages: Vec<(Hash, Vec<u8>)>,
}

impl Draft {
    /// Opens the lock at `path`, or begins one.
    pub fn open(path: &Path) -> Result<Self, LockFault> {
        let unreadable = |error: io::Error| LockFault::Unreadable { path: path.to_owned(), error: error.to_string() };
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(unreadable(error)),
        };
        let mut document: DocumentMut = text.parse().map_err(|error: toml_edit::TomlError| LockFault::Syntax {
            line: error.span().map_or(1, |span| 1 + text[..span.start.min(text.len())].matches('\n').count()),
            message: error.message().to_owned(),
        })?;
        if text.is_empty() {
            document.insert("version", value(VERSION));
            document.insert("hashes", value(FORM));
        }
        Ok(Self { path: path.to_owned(), document, snapshots: Vec::new(), packages: Vec::new() })
    }

    /// Has the hashes be of the known form: everything that stays must be put in anew.
    pub fn renew_form(&mut self) {
        set(self.document.as_table_mut(), "hashes", FORM);
    }

    /// Keeps a list of packages, which an artifact names by the hash of it.
    pub fn keep(&mut self, packages: Vec<u8>) {
        self.packages.push((Hash::of(&packages), packages));
    }

    /// Puts in what is to be said of a server.
    pub fn put(&mut self, key: &ServerKey, server: &LockedServer) {
        let snapshots = &mut self.snapshots;
        let root = self.document.as_table_mut();
        let servers = root.entry("server").or_insert_with(|| Item::ArrayOfTables(ArrayOfTables::new()));
        let Some(servers) = servers.as_array_of_tables_mut() else { return };
        let at = servers.iter().position(|table| table.get("key").and_then(Item::as_str) == Some(key.as_str()));
        let at = at.unwrap_or_else(|| {
            servers.push(Table::new());
            servers.len() - 1
        });
        let Some(table) = servers.get_mut(at) else { return };
        set(table, "key", key.as_str());
        set_or_remove(table, "launch_hash", server.launch.map(|hash| hash.to_string()));
        if let Some(artifact) = &server.artifact {
            let table = sub(table, "artifact");
            set(table, "kind", artifact.kind.as_str());
            set(table, "name", artifact.name.as_str());
            set_or_remove(table, "version", artifact.version.clone());
            set_or_remove(table, "integrity", artifact.integrity.clone());
            set_or_remove(table, "interpreter", artifact.interpreter.clone());
            set_or_remove(table, "packages", artifact.packages.map(|packages| packages.to_string()));
            set(table, "level", i64::from(artifact.level));
        } else {
            table.remove("artifact");
        }
        let Announced { name, version, protocol, capabilities, unfit: _, instructions } = &server.announced;
        let announced = sub(table, "announced");
        set_or_remove(announced, "name", name.clone());
        set_or_remove(announced, "version", version.clone());
        set_or_remove(announced, "protocol", protocol.clone());
        set_or_remove(announced, "capabilities", capabilities.as_ref().map(|(hash, _)| hash.to_string()));
        set_or_remove(announced, "instructions", instructions.as_ref().map(|(hash, _)| hash.to_string()));
        snapshots.extend(capabilities.iter().filter_map(|(hash, value)| Some((*hash, canonical::text(value).ok()?))));
        let words = instructions.iter().filter_map(|(hash, words)| Some((*hash, canonical::text(words).ok()?)));
        snapshots.extend(words);
        let entries = table.entry("entry").or_insert_with(|| Item::ArrayOfTables(ArrayOfTables::new()));
        let Some(entries) = entries.as_array_of_tables_mut() else { return };
        let of = |table: &Table| {
            let text = |name: &str| table.get(name).and_then(Item::as_str).map(str::to_owned);
            let kind = text("kind").and_then(|kind| Kind::ALL.into_iter().find(|known| known.as_str() == kind));
            kind.zip(text("name"))
        };
        entries.retain(|table| of(table).is_some_and(|name| server.entries.contains_key(&name)));
        let mut places: BTreeMap<_, _> =
            entries.iter().enumerate().filter_map(|(at, table)| Some((of(table)?, at))).collect();
        for (name, entry) in &server.entries {
            let at = places.remove(name).unwrap_or(entries.len());
            if at == entries.len() {
                entries.push(Table::new());
            }
            if let Some(table) = entries.get_mut(at) {
                put_entry(table, (name.0, &name.1), entry, snapshots);
            }
        }
    }

    /// The text as it would be written.
    pub fn text(&mut self) -> String {
        arrange(&mut self.document);
        self.document.to_string().replace("\r\n", "\n")
    }

    /// Writes it: new snapshots, then the lock, then the snapshots go that nothing speaks of any more.
    pub fn write(mut self) -> io::Result<()> {
        let text = self.text();
        let folder = snapshots(&self.path);
        if let Some(parent) = self.path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        if !folder.is_dir() {
            std::fs::DirBuilder::new().mode(0o755).create(&folder)?;
        }
        for (hash, text) in &self.snapshots {
            let path = folder.join(snapshot_name(hash));
            let mut line = text.clone();
            line.push(b'\n');
            if std::fs::read(&path).ok().as_ref() != Some(&line) {
                whole::replace(&path, &line, 0o644)?;
            }
        }
        for (hash, list) in &self.packages {
            let path = folder.join(packages_name(hash));
            if std::fs::read(&path).ok().as_ref() != Some(list) {
                whole::replace(&path, list, 0o644)?;
            }
        }
        whole::replace(&self.path, text.as_bytes(), 0o644)?;
        let used: BTreeSet<&str> = text.split('"').filter_map(|word| word.strip_prefix("sha256:")).collect();
        for file in std::fs::read_dir(&folder)? {
            let file = file?;
            let name = file.file_name();
            let name = name.to_str().unwrap_or_default();
            let hex = [".json", ".packages"].iter().find_map(|end| name.strip_suffix(end));
            if hex.is_some_and(|hex| hex.len() == 64 && !used.contains(hex)) {
                std::fs::remove_file(file.path())?;
            }
        }
        Ok(())
    }
}

fn put_entry(table: &mut Table, (kind, name): (Kind, &str), entry: &Entry, snapshots: &mut Vec<(Hash, Vec<u8>)>) {
    set(table, "kind", kind.as_str());
    set(table, "name", name);
    set(table, "hash", entry.hash.to_string());
    let mut facets = InlineTable::new();
    for (facet, hash) in &entry.facets {
        // Its name stands beside.
        if *facet != Facet::Name {
            facets.insert(facet.as_str(), hash.to_string().into());
        }
    }
    let known = table.get("facets").and_then(Item::as_inline_table);
    if known.map(|known| known.to_string().trim().to_owned()) != Some(facets.to_string().trim().to_owned()) {
        table.insert("facets", value(facets));
    }
    set(table, "approved", entry.approved.as_str());
    if entry.ignore.is_empty() {
        table.remove("ignore");
    } else {
        let known = table.get("ignore").and_then(Item::as_array);
        let known: Option<Vec<_>> = known.map(|array| array.iter().filter_map(Toml::as_str).collect());
        if known.as_deref() != Some(&entry.ignore.iter().map(String::as_str).collect::<Vec<_>>()) {
            table.insert("ignore", value(entry.ignore.iter().collect::<Array>()));
        }
    }
    match entry.blocked {
        true => set(table, "blocked", true),
        false => drop(table.remove("blocked")),
    }
    let whole = entry.definition.as_ref().and_then(|found| Hashes::of(kind, &found.value, &[]).ok());
    match (whole, &entry.definition) {
        (Some(whole), Some(found)) => {
            set_or_remove(table, "snapshot", (whole.entry != entry.hash).then(|| whole.entry.to_string()));
            snapshots.push((whole.entry, found.text.to_vec()));
        }
        _ => {
            table.remove("snapshot");
        }
    }
}

/// Sets a key, and touches nothing where it is so already.
fn set(table: &mut Table, key: &str, to: impl Into<Toml>) {
    let to = to.into();
    let same = table.get(key).and_then(Item::as_value).is_some_and(|known| match (known, &to) {
        (Toml::String(a), Toml::String(b)) => a.value() == b.value(),
        (Toml::Integer(a), Toml::Integer(b)) => a.value() == b.value(),
        (Toml::Boolean(a), Toml::Boolean(b)) => a.value() == b.value(),
        _ => false,
    });
    if !same {
        table.insert(key, Item::Value(to));
    }
}

fn set_or_remove(table: &mut Table, key: &str, to: Option<String>) {
    match to {
        Some(to) => set(table, key, to),
        None => drop(table.remove(key)),
    }
}

fn sub<'t>(table: &'t mut Table, key: &str) -> &'t mut Table {
    if !table.get(key).is_some_and(Item::is_table) {
        table.insert(key, Item::Table(Table::new()));
    }
    table.get_mut(key).and_then(Item::as_table_mut).expect("invariant: it was just put in")
}

/// Servers by key, entries by kind and name; what is written follows that order.
fn arrange(document: &mut DocumentMut) {
    let Some(servers) = document.get_mut("server").and_then(Item::as_array_of_tables_mut) else { return };
    let text = |table: &Table, name: &str| table.get(name).and_then(Item::as_str).unwrap_or_default().to_owned();
    sort(servers, |table| (text(table, "key"), String::new()));
    let mut place = 0;
    let mut next = || {
        place += 1;
        Some(place)
    };
    for table in servers.iter_mut() {
        table.set_position(next());
        let names: Vec<String> = table.iter().map(|(name, _)| name.to_owned()).collect();
        for name in names {
            match table.get_mut(&name) {
                Some(Item::Table(inner)) => inner.set_position(next()),
                Some(Item::ArrayOfTables(entries)) => {
                    if name == "entry" {
                        sort(entries, |table| (text(table, "kind"), text(table, "name")));
                    }
                    entries.iter_mut().for_each(|entry| entry.set_position(next()));
                }
                _ => {}
            }
        }
    }
}

fn sort(tables: &mut ArrayOfTables, by: impl Fn(&Table) -> (String, String)) {
    let mut all: Vec<Table> = std::mem::take(tables).into_iter().collect();
    all.sort_by_key(|table| by(table));
    tables.extend(all);
}
