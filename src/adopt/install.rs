//! Our one entry in the file of a host: what would be written is planned, shown, and written only over the file that was
//! looked at; what was there before is kept, so that the way back gives every byte again.
//!
//! Deliberately asks nobody: `cli` shows the plan and asks. What was there lies in the state folder, 0600, since it may
//! hold secrets.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::config::tree::{Node, Value as Read};
use crate::config::{names_a_secret, ours};

use super::edit::{self, NotEdited, Value};
use super::entry;
use super::hosts::{File, Host, Scope, Servers, Syntax};
use super::lines;
use super::place::Ground;
use super::read;
use super::secrets::{self, Instead};
use super::server::Identity;
use super::store::{self, NotWritten, Seen};

/// What is to be installed.
pub struct Wanted {
    /// Where.
    pub host: &'static Host,
    /// For whom.
    pub scope: Scope,
    /// What our entry is called.
    pub name: String,
    /// The program: its absolute path.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
}

/// The servers that are behind us, so that a host need not have them too.
#[derive(Default)]
pub struct Behind(BTreeMap<Identity, String>);

impl Behind {
    /// Those of the text of a configuration in this folder.
    pub fn of(text: &str, base: &Path) -> Result<Self, read::Unreadable> {
        super::own::identities(text, base, true).map(Self)
    }

    /// Adds those of another file.
    pub fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// The key under which a server is behind us.
    pub fn key(&self, server: &super::server::Server, base: &Path) -> Option<&str> {
        self.0.get(&server.identity(base)).map(String::as_str)
    }
}

/// Why nothing was planned or written.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The file cannot be written.
    #[error("{}: {why}", path.display())]
    NotWritten {
        /// The file.
        path: PathBuf,
        /// Why.
        why: NotWritten,
    },
    /// The file cannot be edited; what to paste, where a person can do better.
    #[error("{}: {why}; nothing was changed", path.display())]
    NotEdited {
        /// The file.
        path: PathBuf,
        /// Why.
        why: NotEdited,
        /// The entry as text.
        paste: Option<String>,
    },
    /// Something there is not ours.
    #[error("{}: {why}; nothing was changed", path.display())]
    NotOurs {
        /// The file.
        path: PathBuf,
        /// What.
        why: String,
    },
    /// The host has no such file, or it cannot be told where.
    #[error("{0}")]
    NoPlace(String),
    /// What is remembered of an installation cannot be read or written.
    #[error("{}: {why}", path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// Why.
        why: io::Error,
    },
}

/// What is remembered of an installation.
#[derive(Serialize, Deserialize)]
struct Record {
    host: String,
    scope: String,
    file: PathBuf,
    name: String,
    /// The entry as written.
    entry: serde_json::Value,
    /// The member that holds the servers was not there.
    made_member: bool,
    /// There was a file before: what was in it lies beside this.
    was_there: bool,
    /// SHA-256 of what was written.
    after: String,
    /// Folders that were made, outermost first.
    made_folders: Vec<PathBuf>,
    /// Entries that were taken out because they are behind us.
    replaced: Vec<(String, serde_json::Value)>,
}

/// A change of a host's file that was thought through, not made.
pub struct Plan {
    /// The host.
    pub host: &'static Host,
    /// For whom the file counts.
    pub scope: Scope,
    /// The file, links followed.
    pub file: PathBuf,
    /// Names of servers that are taken out since they are behind us, or put back.
    pub moved: Vec<String>,
    /// Names of other servers that stay beside us.
    pub beside: Vec<String>,
    /// What people should know.
    pub notes: Vec<String>,
    seen: Seen,
    /// What will be in the file; none removes it.
    after: Option<Vec<u8>>,
    /// What is remembered, beside what was there; none forgets it.
    record: Option<Remembered>,
    /// Folders to remove again when they are empty.
    folders: Vec<PathBuf>,
    memory: PathBuf,
}

/// What there is to do.
pub enum Todo {
    /// This.
    Change(Box<Plan>),
    /// Nothing: the file is as wanted.
    Nothing {
        /// The file.
        file: PathBuf,
        /// Why there is nothing to do.
        why: String,
    },
}

/// The file of a host for a scope.
fn place(ground: &Ground, host: &'static Host, scope: Scope) -> Result<(&'static File, PathBuf), Refused> {
    let file = host.file(scope).ok_or_else(|| {
        let scopes: Vec<_> = host.files.iter().map(|file| file.scope.word()).collect();
        Refused::NoPlace(format!(
            "{} has no file for the scope `{}`; it has: {}",
            host.title,
            scope.word(),
            scopes.join(", ")
        ))
    })?;
    let path = ground.chosen(file).ok_or_else(|| {
        Refused::NoPlace(format!(
            "the place of {}'s file is not known: the variable for the home folder is not set",
            host.title
        ))
    })?;
    Ok((file, path))
}

/// Where an installation is remembered.
fn memory(state: &Path, file: &Path, name: &str) -> PathBuf {
    let mut hash = Sha256::new();
    hash.update(file.as_os_str().as_encoded_bytes());
    hash.update(b"\0");
    hash.update(name.as_bytes());
    let name = HEXLOWER.encode(&hash.finalize());
    state.join("hosts").join(name.get(..32).unwrap_or_default())
}

const RECORD: &str = "record.json";
const BEFORE: &str = "before";

/// What is remembered, and what was there before.
type Remembered = (Record, Option<Vec<u8>>);

fn recall(memory: &Path) -> Result<Option<Remembered>, Refused> {
    let failed = |path: PathBuf, why| Refused::State { path, why };
    let path = memory.join(RECORD);
    let text = match std::fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text.map_err(|why| failed(path.clone(), why))?,
    };
    let record: Record = serde_json::from_slice(&text).map_err(|error| failed(path, error.into()))?;
    let before = match record.was_there {
        true => {
            let path = memory.join(BEFORE);
            Some(std::fs::read(&path).map_err(|why| failed(path, why))?)
        }
        false => None,
    };
    Ok(Some((record, before)))
}

fn hash(content: &[u8]) -> String {
    HEXLOWER.encode(&Sha256::digest(content))
}

/// Whether an entry starts us.
fn is_ours(entry: &serde_json::Value) -> bool {
    let texts = |name: &str| -> Vec<&str> {
        match entry.get(name) {
            Some(serde_json::Value::String(text)) => vec![text],
            Some(serde_json::Value::Array(items)) => items.iter().filter_map(serde_json::Value::as_str).collect(),
            _ => Vec::new(),
        }
    };
    let words: Vec<&str> = [texts("command"), texts("cmd"), texts("args")].concat();
    words.split_first().is_some_and(|(command, args)| ours(command, args.first().copied()))
}

/// What a file begins with that is made for a list of Continue.
fn head(servers: Servers) -> &'static str {
    match servers {
        Servers::List(_) => "name: onegate\nversion: 0.0.1\nschema: v1\n",
        Servers::Map(_) => "",
    }
}

/// Plans an installation; with `behind`, servers that are behind us anyway are taken out of the host's file.
pub fn install(
    ground: &Ground,
    state: &Path,
    wanted: &Wanted,
    behind: Option<(&Behind, &Path)>,
) -> Result<Todo, Refused> {
    let (file, path) = place(ground, wanted.host, wanted.scope)?;
    let seen = Seen::of(&path).map_err(|why| Refused::NotWritten { path: path.clone(), why })?;
    let file_at = seen.path.clone();
    let at = (file.syntax, file.servers);
    let ours = entry::entry(wanted.host.entry, &wanted.name, &wanted.command, &wanted.args);
    let refuse = |why: NotEdited| Refused::NotEdited {
        path: file_at.clone(),
        paste: matches!(why, NotEdited::Shape(_)).then(|| edit::paste(at, &wanted.name, &ours)),
        why,
    };
    let before = seen.content.clone().unwrap_or_default();
    let text = read::text(&before).map_err(|why| refuse(why.into()))?;
    let there = edit::servers(text, file.syntax, file.servers).map_err(refuse)?;
    let known = there.iter().find(|(name, _)| *name == wanted.name).map(|(_, entry)| entry);
    if known.is_some_and(|entry| !is_ours(entry)) {
        let why =
            format!("there is a `{}` already that is not this gateway; choose another name with `--name`", wanted.name);
        return Err(Refused::NotOurs { path: file_at, why });
    }
    let found = read::content(&path, &before, Some((wanted.host, wanted.scope, file.servers)))
        .map_err(|why| refuse(why.into()))?;
    let mut notes = Vec::new();
    let mut moved: Vec<(String, serde_json::Value)> = Vec::new();
    let mut beside = Vec::new();
    for server in &found.servers {
        let Some((name, value)) = there.iter().find(|(name, _)| *name == server.title) else { continue };
        match behind.and_then(|(behind, base)| behind.key(server, base)) {
            Some(_) => moved.push((name.clone(), value.clone())),
            None => beside.push(name.clone()),
        }
    }
    for name in found.ourselves.iter().filter(|name| **name != wanted.name) {
        notes.push(format!("`{name}` starts this gateway too, so the model would see every tool twice"));
    }
    let memory = memory(state, &file_at, &wanted.name);
    let remembered = recall(&memory)?.filter(|(record, _)| record.after == hash(&before));
    if known == Some(&ours.json()) && moved.is_empty() {
        return Ok(Todo::Nothing { file: file_at, why: format!("`{}` is there already, just so", wanted.name) });
    }
    let mut after = edit::put(text, at, &wanted.name, &ours, head(file.servers)).map_err(refuse)?;
    for (name, _) in &moved {
        after = edit::remove(&after, at, name, false).map_err(refuse)?;
    }
    // What comes back is what was there before we first came.
    let (kept, was_there, made_member, replaced) = match (&remembered, known) {
        (Some((record, kept)), _) => {
            let mut replaced = record.replaced.clone();
            replaced.extend(moved.clone());
            (kept.clone(), record.was_there, record.made_member, replaced)
        }
        (None, Some(_)) => {
            let without = edit::remove(text, at, &wanted.name, false).map_err(refuse)?;
            (Some(without.into_bytes()), true, false, moved.clone())
        }
        (None, None) => {
            let made = !member_is_there(text, file.syntax, file.servers);
            (seen.content.clone(), seen.content.is_some(), made, moved.clone())
        }
    };
    let record = Record {
        host: wanted.host.id.to_owned(),
        scope: wanted.scope.word().to_owned(),
        file: file_at.clone(),
        name: wanted.name.clone(),
        entry: ours.json(),
        made_member,
        was_there,
        after: hash(after.as_bytes()),
        made_folders: remembered.map(|(record, _)| record.made_folders).unwrap_or_default(),
        replaced,
    };
    if seen.content.is_none() {
        let folder = file_at.parent().is_some_and(Path::is_dir);
        let there = if folder { "" } else { ", and nor was its folder: is it installed?" };
        notes.push(format!("{} had no such file{there}", wanted.host.title));
    }
    Ok(Todo::Change(Box::new(Plan {
        host: wanted.host,
        scope: wanted.scope,
        file: file_at,
        moved: moved.into_iter().map(|(name, _)| name).collect(),
        beside,
        notes,
        seen,
        after: Some(after.into_bytes()),
        record: Some((record, kept)),
        folders: Vec::new(),
        memory,
    })))
}

fn member_is_there(text: &str, syntax: Syntax, servers: Servers) -> bool {
    read::parse(text, syntax).is_ok_and(|root| root.get(servers.member()).is_some())
}

/// Plans the way back: every byte as it was, when nobody else changed the file; else our entry alone is taken out.
pub fn uninstall(
    ground: &Ground,
    state: &Path,
    (host, scope): (&'static Host, Scope),
    name: &str,
) -> Result<Todo, Refused> {
    let (file, path) = place(ground, host, scope)?;
    let seen = Seen::of(&path).map_err(|why| Refused::NotWritten { path: path.clone(), why })?;
    let file_at = seen.path.clone();
    let memory = memory(state, &file_at, name);
    let remembered = recall(&memory)?;
    let mut plan = Plan {
        host,
        scope,
        file: file_at.clone(),
        moved: Vec::new(),
        beside: Vec::new(),
        notes: Vec::new(),
        after: seen.content.clone(),
        seen,
        record: None,
        folders: Vec::new(),
        memory,
    };
    let Some(content) = plan.seen.content.clone() else {
        return match remembered {
            Some(_) => {
                plan.notes.push("the file is gone; what was remembered of it goes too".to_owned());
                Ok(Todo::Change(Box::new(plan)))
            }
            None => Ok(Todo::Nothing { file: file_at, why: "there is no such file".to_owned() }),
        };
    };
    if let Some((record, before)) = &remembered
        && record.after == hash(&content)
    {
        plan.after.clone_from(before);
        plan.folders.clone_from(&record.made_folders);
        plan.moved = record.replaced.iter().map(|(name, _)| name.clone()).collect();
        plan.notes.push("nobody else changed the file: it becomes what it was, to the byte".to_owned());
        return Ok(Todo::Change(Box::new(plan)));
    }
    let at = (file.syntax, file.servers);
    let refuse = |why: NotEdited| Refused::NotEdited { path: file_at.clone(), why, paste: None };
    let text = read::text(&content).map_err(|why| refuse(why.into()))?;
    let there = edit::servers(text, file.syntax, file.servers).map_err(refuse)?;
    let known = there.iter().find(|(known, _)| known == name).map(|(_, entry)| entry);
    let not_ours = |why: String| Refused::NotOurs { path: file_at.clone(), why };
    match (known, &remembered) {
        (None, None) => return Ok(Todo::Nothing { file: file_at, why: format!("there is no `{name}` in it") }),
        (Some(entry), Some((record, _))) if *entry != record.entry => {
            return Err(not_ours(format!(
                "`{name}` was changed since it was installed; take it out by hand, or install it anew"
            )));
        }
        (Some(entry), None) if !is_ours(entry) => {
            return Err(not_ours(format!("`{name}` is not this gateway")));
        }
        (Some(_) | None, _) => {}
    }
    let mut after = text.to_owned();
    let made_member = remembered.as_ref().is_some_and(|(record, _)| record.made_member && record.replaced.is_empty());
    if known.is_some() {
        after = edit::remove(&after, at, name, made_member).map_err(refuse)?;
        let word = if remembered.is_some() { "the file was changed since: " } else { "" };
        plan.notes.push(format!("{word}only our entry is taken out"));
    } else {
        plan.notes.push("our entry is gone already".to_owned());
    }
    for (other, value) in remembered.iter().flat_map(|(record, _)| &record.replaced) {
        let there_now = there.iter().any(|(known, _)| known == other);
        if !there_now {
            after = edit::put(&after, at, other, &Value::of_json(value), "").map_err(refuse)?;
            plan.moved.push(other.clone());
        }
    }
    plan.after = Some(after.into_bytes());
    Ok(Todo::Change(Box::new(plan)))
}

impl Plan {
    /// What would change, without the secrets in it.
    pub fn diff(&self) -> String {
        let text =
            |content: &Option<Vec<u8>>| String::from_utf8_lossy(content.as_deref().unwrap_or_default()).into_owned();
        let (before, after) = (text(&self.seen.content), text(&self.after));
        let syntax = self.host.file(self.scope).map_or(Syntax::Json, |file| file.syntax);
        without_secrets(&lines::diff(&before, &after), &[&before, &after], syntax)
    }

    /// Whether the file will be removed.
    pub fn removes(&self) -> bool {
        self.after.is_none() && self.seen.content.is_some()
    }

    /// Whether the file is new.
    pub fn is_new(&self) -> bool {
        self.seen.content.is_none() && self.after.is_some()
    }

    /// Does it, unless the file is not what it was.
    pub fn carry_out(mut self) -> Result<(), Refused> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |why| Refused::State { path, why }
        };
        // Remembered first: a backup without a change hurts nobody.
        if let Some((record, before)) = &self.record {
            store::folders(&self.memory, 0o700).map_err(failed(&self.memory))?;
            if let Some(before) = before {
                let path = self.memory.join(BEFORE);
                store::put(&path, before, 0o600).map_err(failed(&path))?;
            }
            self.remember(record)?;
        }
        let not_written = |why| Refused::NotWritten { path: self.file.clone(), why };
        let made = match &self.after {
            Some(after) if self.seen.content.as_ref() != Some(after) => self.seen.write(after).map_err(not_written)?,
            Some(_) => Vec::new(),
            None => {
                if self.seen.content.is_some() {
                    self.seen.remove().map_err(not_written)?;
                }
                Vec::new()
            }
        };
        match self.record.take() {
            Some((mut record, _)) => {
                if !made.is_empty() {
                    record.made_folders = made;
                    self.remember(&record)?;
                }
            }
            None => {
                let _ = std::fs::remove_file(self.memory.join(BEFORE));
                let _ = std::fs::remove_file(self.memory.join(RECORD));
                let _ = std::fs::remove_dir(&self.memory);
                // Only what is empty goes.
                for folder in self.folders.iter().rev() {
                    let _ = std::fs::remove_dir(folder);
                }
            }
        }
        Ok(())
    }

    fn remember(&self, record: &Record) -> Result<(), Refused> {
        let path = self.memory.join(RECORD);
        let text = serde_json::to_vec(record).map_err(io::Error::from);
        let written = text.and_then(|text| store::put(&path, &text, 0o600));
        written.map_err(|why| Refused::State { path, why })
    }
}

/// A diff without the secrets of the texts that it is of (I-34).
pub fn without_secrets(diff: &str, texts: &[&str], syntax: Syntax) -> String {
    let mut hidden: Vec<String> = texts.iter().flat_map(|text| confidential(text, syntax)).collect();
    // One may be part of another.
    hidden.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    hidden.iter().fold(diff.to_owned(), |diff, secret| diff.replace(secret, "[secret]"))
}

/// All texts of a file that stand under a name of a secret or look like one, as they may be written there.
fn confidential(text: &str, syntax: Syntax) -> Vec<String> {
    fn walk(name: &str, node: &Node, found: &mut Vec<String>) {
        match &node.value {
            // References are none.
            Read::Text(text) if text.contains("${") || text.contains("{env:") || text.contains("{file:") => {}
            Read::Text(text) if secrets::is_secret(name, text) || (text.len() > 5 && names_a_secret(name)) => {
                found.push(text.clone());
                let quoted = serde_json::Value::from(text.as_str()).to_string();
                found.push(quoted.trim_matches('"').to_owned());
            }
            Read::List(items) => items.iter().for_each(|item| walk(name, item, found)),
            Read::Table(entries) => entries.iter().for_each(|entry| walk(&entry.name, &entry.node, found)),
            Read::Text(_) | Read::Integer(_) | Read::Float(_) | Read::Bool(_) | Read::Other(_) => {}
        }
    }
    let mut found = Vec::new();
    if let Ok(root) = read::parse(text, syntax) {
        walk("", &root, &mut found);
        // Arguments and addresses hold some too.
        let holders = ["mcpServers", "servers", "context_servers", "mcp_servers", "mcp", "extensions"];
        for holder in holders.iter().filter_map(|name| root.get(name)) {
            for node in holder.entries().iter().map(|entry| &entry.node).chain(holder.items()) {
                let origin =
                    super::server::Origin { host: String::new(), file: PathBuf::new(), scope: None, line: None };
                let mut server = super::fields::server_in(super::hosts::Variables::Any, "", node, origin);
                let lifted = secrets::lift(&mut server, "x", Instead::Variable);
                found.extend(lifted.iter().map(|lifted| lifted.value.reveal().to_owned()));
            }
        }
    }
    // Shorter ones stand in every second word.
    found.retain(|secret| secret.len() >= 4);
    found
}
