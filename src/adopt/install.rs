//! Our one entry in the file of a host: what would be written is planned, shown, and written only over the file that was
//! looked at; what was there before is kept, so that the way back gives every byte again.
//!
//! Deliberately asks nobody: `cli` shows the plan and asks. What was there lies in the state folder, 0600, since it may
//! hold secrets.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use crate::config::ours;

use super::edit::{self, NotEdited};
use super::hosts::{File, Host, Scope, Servers, Syntax};
use super::place::Ground;
use super::record::{Memory, Record, Remembered, hash};
use super::server::Identity;
use super::store::{NotWritten, Seen};
use super::token::Named;
use super::{entry, lines, preview, read};

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
    /// Whom it speaks for, where that is said by a token.
    pub named: Option<Named>,
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
    /// Whom the installation speaks for, or spoke.
    pub named: Option<Named>,
    pub(super) seen: Seen,
    /// What will be in the file; none removes it.
    pub(super) after: Option<Vec<u8>>,
    /// What is remembered, beside what was there; none forgets it.
    pub(super) record: Option<Remembered>,
    /// Folders to remove again when they are empty.
    pub(super) folders: Vec<PathBuf>,
    pub(super) memory: Memory,
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
pub(super) fn place(ground: &Ground, host: &'static Host, scope: Scope) -> Result<(&'static File, PathBuf), Refused> {
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

/// Whether an entry starts us.
pub(super) fn is_ours(entry: &serde_json::Value) -> bool {
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

/// Whom an installation speaks for that is there already.
pub fn named(
    ground: &Ground,
    state: &Path,
    (host, scope): (&'static Host, Scope),
    name: &str,
) -> Result<Option<Named>, Refused> {
    let (_, path) = place(ground, host, scope)?;
    let seen = Seen::of(&path).map_err(|why| Refused::NotWritten { path, why })?;
    Ok(Memory::of(state, &seen.path, name).recall()?.and_then(|(record, _)| record.named))
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
    // Those of single projects stand elsewhere in the file, whatever they are called.
    for server in found.servers.iter().filter(|server| server.origin.project.is_none()) {
        let Some((name, value)) = there.iter().find(|(name, _)| *name == server.title) else { continue };
        match behind.and_then(|(behind, base)| behind.key(server, base)) {
            Some(_) => moved.push((name.clone(), value.clone())),
            // What is switched off there shows nothing twice.
            None if server.enabled => beside.push(name.clone()),
            None => {}
        }
    }
    for name in found.ourselves.iter().filter(|name| **name != wanted.name) {
        notes.push(format!("`{name}` starts this gateway too, so the model would see every tool twice"));
    }
    if wanted.host.writes_itself && wanted.scope == Scope::User {
        notes.push(format!("{} writes this file itself while it runs: quit it first", wanted.host.title));
    }
    if let Some(most) = wanted.host.most_tools {
        notes.push(format!("{} takes {most} tools at most; `onegate tools` counts yours", wanted.host.title));
    }
    let memory = Memory::of(state, &file_at, &wanted.name);
    let (remembered, outdated) = match memory.recall()? {
        Some((record, kept)) if record.after == hash(&before) => (Some((record, kept)), None),
        other => (None, other.map(|(record, _)| record)),
    };
    let ours = match known {
        Some(known) => entry::over(known, ours.clone()).ok_or_else(|| {
            let why = format!("`{}` holds a value that is not edited here; take it out by hand first", wanted.name);
            Refused::NotOurs { path: file_at.clone(), why }
        })?,
        None => ours.clone(),
    };
    let spoke =
        remembered.as_ref().map(|(record, _)| record).or(outdated.as_ref()).and_then(|record| record.named.as_ref());
    if known == Some(&ours.json()) && moved.is_empty() && spoke == wanted.named.as_ref() {
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
        (None, _) => {
            let mut replaced = outdated.as_ref().map(|record| record.replaced.clone()).unwrap_or_default();
            // What somebody put back is theirs again.
            replaced.retain(|(name, _)| there.iter().all(|(known, _)| known != name));
            let made = match &outdated {
                Some(record) => record.made_member,
                None => known.is_none() && !member_is_there(text, file.syntax, file.servers),
            };
            let mut kept = seen.content.clone();
            if known.is_some() {
                let bare = made && outdated.is_some() && replaced.is_empty();
                kept = Some(edit::remove(text, at, &wanted.name, bare).map_err(refuse)?.into_bytes());
            }
            // Others changed the file since: it becomes what it is now, with what we took out of it.
            for (name, value) in &replaced {
                let now = kept.take().unwrap_or_default();
                let now = read::text(&now).map_err(|why| refuse(why.into()))?;
                let with = edit::put(now, at, name, &edit::Value::of_json(value), head(file.servers));
                kept = Some(with.map_err(refuse)?.into_bytes());
            }
            replaced.extend(moved.clone());
            let was_there = kept.is_some();
            (kept, was_there, made, replaced)
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
        made_folders: remembered.map(|(record, _)| record).or(outdated).map(|r| r.made_folders).unwrap_or_default(),
        replaced,
        named: wanted.named.clone(),
    };
    if seen.content.is_none() {
        let strange = wanted.scope == Scope::User && !file_at.parent().is_some_and(Path::is_dir);
        let there = if strange { ", nor its folder: is it installed?" } else { "" };
        notes.push(format!("{} had no such file{there}", wanted.host.title));
    }
    Ok(Todo::Change(Box::new(Plan {
        host: wanted.host,
        scope: wanted.scope,
        file: file_at,
        moved: moved.into_iter().map(|(name, _)| name).collect(),
        beside,
        notes,
        named: wanted.named.clone(),
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

impl Plan {
    /// What would change, without the secrets in it.
    pub fn diff(&self) -> String {
        let text =
            |content: &Option<Vec<u8>>| String::from_utf8_lossy(content.as_deref().unwrap_or_default()).into_owned();
        let (before, after) = (text(&self.seen.content), text(&self.after));
        let syntax = self.host.file(self.scope).map_or(Syntax::Json, |file| file.syntax);
        preview::without_secrets(&lines::diff(&before, &after), &[&before, &after], syntax)
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
        // Remembered first: a backup without a change hurts nobody.
        let known = self.memory.copy()?;
        // Nothing was changed: what was remembered is still so.
        let (memory, record, file) = (&self.memory, self.record.is_some(), &self.file);
        let not_written = |why| {
            if record {
                memory.put_back(&known);
            }
            Refused::NotWritten { path: file.clone(), why }
        };
        if let Some(remembered) = &self.record {
            self.memory.keep(remembered).inspect_err(|_| self.memory.put_back(&known))?;
        }
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
                    self.memory.note(&record)?;
                }
            }
            None => {
                self.memory.forget();
                // Only what is empty goes.
                for folder in self.folders.iter().rev() {
                    let _ = std::fs::remove_dir(folder);
                }
            }
        }
        Ok(())
    }
}
