//! The lock: what was reviewed, in one file that people read and merge, and the snapshots beside it (threat model §3).
//!
//! `onegate.lock` says which hash each entry has; `onegate.lock.d` holds each approved definition under its hash, and what
//! it holds must have that hash. Only the commands write either ([`edit`]); a running gateway reads. Knows nothing of
//! what servers list now.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde_json::Value;
use toml_edit::{Document, TableLike};

use super::artifact::{Artifact, ArtifactKind};
use super::canonical::{self, NotCanonical};
use super::facet::{self, FORM, Facet, Hash, Hashes};
use crate::ident::{Kind, ServerKey};
use crate::shown::shown_str;

pub mod edit;

/// The one version of the file that is known.
pub const VERSION: i64 = 1;
/// Largest lock and largest snapshot that are read.
const MAX_LOCK: u64 = 64 << 20;
const MAX_SNAPSHOT: u64 = 1 << 20;
/// Largest list of packages.
const MAX_PACKAGES: u64 = 16 << 20;

/// What is wrong with a lock, or with what it says of one server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LockFault {
    /// It cannot be read.
    #[error("{} cannot be read: {error}", .path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// The system's words.
        error: String,
    },
    /// It is no TOML, perhaps cut short.
    #[error("lock-syntax: line {line}: {message}")]
    Syntax {
        /// Where.
        line: usize,
        /// What is wrong there.
        message: String,
    },
    /// Of a version that is not known.
    #[error("lock-version: it has version {0}, known is {VERSION}")]
    Version(String),
    /// Its hashes were made by other rules.
    #[error("lock-form: its hashes are of the form {0:?}, known is {FORM:?}; `onegate lock --migrate` makes them anew")]
    Form(String),
    /// Something in it is not as it should be.
    #[error("lock-invalid: line {line}: {message}")]
    Invalid {
        /// Where.
        line: usize,
        /// What.
        message: String,
    },
    /// Others than its owner can change it.
    #[error("lock-writable: {} can be changed by its group or by everybody; `chmod go-w` it", .0.display())]
    Loose(PathBuf),
    /// A snapshot is not there: its entry is not approved.
    #[error("snapshot-missing: {of}: there is no {name}")]
    NoSnapshot {
        /// What it is of.
        of: String,
        /// The file.
        name: String,
    },
    /// A snapshot holds something else than its name says.
    #[error("snapshot-wrong: {of}: {name} does not hold what its name says")]
    WrongSnapshot {
        /// What it is of.
        of: String,
        /// The file.
        name: String,
    },
}

/// A lock that was read.
#[derive(Clone, Debug)]
pub struct Lock {
    /// What it says of each server, by key.
    pub servers: BTreeMap<ServerKey, LockedServer>,
    /// Of the bytes of the file: tells one lock from another.
    pub digest: Hash,
    /// A file of it that others than its owner can change; nothing that is enforced may rest on it.
    pub loose: Option<PathBuf>,
}

/// What was reviewed of one server.
#[derive(Clone, Debug, Default)]
pub struct LockedServer {
    /// How it is launched or reached.
    pub launch: Option<Hash>,
    /// What is launched.
    pub artifact: Option<Artifact>,
    /// What it said of itself.
    pub announced: Announced,
    /// By kind and native name.
    pub entries: BTreeMap<(Kind, String), Entry>,
    /// What is wrong with what the lock says of it: then nothing of it is approved.
    pub faults: Vec<LockFault>,
}

/// What a server said of itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Announced {
    /// Its name. Self-reported.
    pub name: Option<String>,
    /// Its version. Self-reported.
    pub version: Option<String>,
    /// The protocol revision that was agreed on.
    pub protocol: Option<String>,
    /// What it can do, and the hash of that.
    pub capabilities: Option<(Hash, Value)>,
    /// Why what it can do has no canonical form, and so no hash: it is another than anything that was reviewed. Never so in
    /// a lock.
    pub unfit: Option<NotCanonical>,
    /// Its words to the model, and the hash of them.
    pub instructions: Option<(Hash, String)>,
}

/// An entry that was reviewed.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Of the definition without what is ignored.
    pub hash: Hash,
    /// By facet.
    pub facets: BTreeMap<Facet, Hash>,
    /// The day.
    pub approved: String,
    /// JSON Pointers whose values do not count.
    pub ignore: Vec<String>,
    /// The operator said no: it is known and not served.
    pub blocked: bool,
    /// The definition, as its snapshot has it. Missing only where [`LockedServer::faults`] says why.
    pub definition: Option<Definition>,
}

/// A definition out of a snapshot.
#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    /// Its canonical text.
    pub text: Bytes,
    /// The same, read.
    pub value: Value,
}

impl Definition {
    /// From a value; nothing where it has no canonical form.
    pub fn of(value: Value) -> Option<Self> {
        Some(Self { text: canonical::text(&value).ok()?.into(), value })
    }
}

impl LockedServer {
    /// The approved annotations of its tools, the protocol's defaults filled in; of what is whole and not blocked.
    pub fn annotations(&self) -> impl Iterator<Item = (&str, Value)> {
        let entries = self.entries.iter().filter(|((kind, _), entry)| *kind == Kind::Tool && !entry.blocked);
        let is_whole = self.faults.is_empty();
        entries.filter(move |_| is_whole).filter_map(|((_, name), entry)| {
            let annotations = entry.definition.as_ref()?.value.get("annotations").cloned();
            Some((name.as_str(), facet::filled(annotations)))
        })
    }
}

/// The folder of snapshots of a lock.
pub fn snapshots(lock: &Path) -> PathBuf {
    let mut name = lock.as_os_str().to_owned();
    name.push(".d");
    name.into()
}

/// The file of a snapshot in that folder.
pub fn snapshot_name(hash: &Hash) -> String {
    format!("{}.json", hash.hex())
}

/// The file of a list of packages in that folder.
pub fn packages_name(hash: &Hash) -> String {
    format!("{}.packages", hash.hex())
}

/// The list of packages of that name, which must hold what its name says; and its file, where others than its owner can change it.
pub fn packages(folder: &Path, hash: &Hash, key: &ServerKey) -> Result<(Vec<u8>, Option<PathBuf>), LockFault> {
    let (of, name) = (format!("{key}: its packages"), packages_name(hash));
    let path = folder.join(&name);
    match bounded(&path, MAX_PACKAGES) {
        Ok((bytes, loose)) if Hash::of(&bytes) == *hash => Ok((bytes, loose.then_some(path))),
        Ok(_) => Err(LockFault::WrongSnapshot { of, name }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(LockFault::NoSnapshot { of, name }),
        Err(error) => Err(LockFault::Unreadable { path, error: error.to_string() }),
    }
}

impl Lock {
    /// Reads a lock and its snapshots; nothing where there is none. What is wrong with single servers is said there.
    pub fn read(path: &Path) -> Result<Option<Self>, LockFault> {
        Self::read_as(path, false)
    }

    /// Reads a lock whose hashes were made by other rules, and makes them anew out of its snapshots, which is for people to
    /// ask for: what a snapshot holds was bound by the old hash alone (threat model §4.3).
    pub fn read_any_form(path: &Path) -> Result<Option<Self>, LockFault> {
        Self::read_as(path, true)
    }

    fn read_as(path: &Path, any_form: bool) -> Result<Option<Self>, LockFault> {
        let (bytes, loose) = match bounded(path, MAX_LOCK) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(|error| LockFault::Unreadable { path: path.to_owned(), error: error.to_string() })?,
        };
        let loose = loose.then(|| path.to_owned());
        let text = std::str::from_utf8(&bytes)
            .map_err(|_| LockFault::Syntax { line: 1, message: "it is not UTF-8".to_owned() })?;
        let mut reader = Reader {
            text,
            ends: memchr::memchr_iter(b'\n', &bytes).collect(),
            folder: snapshots(path),
            loose,
            any_form,
        };
        let servers = reader.servers()?;
        let folder = &reader.folder;
        let is_loose = std::fs::metadata(folder).is_ok_and(|folder| is_loose(&folder));
        let loose = reader.loose.or_else(|| is_loose.then(|| snapshots(path)));
        Ok(Some(Self { servers, digest: Hash::of(&bytes), loose }))
    }

    /// Everything that is wrong with it.
    pub fn faults(&self) -> impl Iterator<Item = (&ServerKey, &LockFault)> {
        self.servers.iter().flat_map(|(key, server)| server.faults.iter().map(move |fault| (key, fault)))
    }
}

/// Reads a file of at most so many bytes; whether others than its owner can change it.
fn bounded(path: &Path, most: u64) -> io::Result<(Vec<u8>, bool)> {
    let file = std::fs::File::open(path)?;
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::other(format!("it has more than {most} bytes")));
    }
    Ok((bytes, is_loose(&about)))
}

fn is_loose(about: &std::fs::Metadata) -> bool {
    about.mode() & 0o022 != 0
}

struct Reader<'a> {
    text: &'a str,
    /// Where its lines end.
    ends: Vec<usize>,
    folder: PathBuf,
    loose: Option<PathBuf>,
    /// Hashes are what the snapshots give, not what is written.
    any_form: bool,
}

impl Reader<'_> {
    fn line(&self, span: Option<std::ops::Range<usize>>) -> usize {
        // Asked for each entry of thousands: nothing is counted anew.
        let at = span.map_or(0, |span| span.start);
        1 + self.ends.partition_point(|end| *end < at)
    }

    fn servers(&mut self) -> Result<BTreeMap<ServerKey, LockedServer>, LockFault> {
        let document = Document::parse(self.text).map_err(|error| LockFault::Syntax {
            line: self.line(error.span()),
            message: shown_str(error.message()),
        })?;
        let root = document.as_table();
        let version = root.get("version");
        if version.and_then(|version| version.as_integer()) != Some(VERSION) {
            let found = version.map_or_else(|| "none".to_owned(), |version| shown_str(version.to_string().trim()));
            return Err(LockFault::Version(found));
        }
        if let Some(form) = root.get("hashes").filter(|form| !self.any_form && form.as_str() != Some(FORM)) {
            return Err(LockFault::Form(shown_str(form.as_str().unwrap_or_default())));
        }
        let mut servers = BTreeMap::new();
        let Some(tables) = root.get("server") else { return Ok(servers) };
        let invalid = |line, message: &str| LockFault::Invalid { line, message: message.to_owned() };
        let tables = tables
            .as_array_of_tables()
            .ok_or_else(|| invalid(self.line(tables.span()), "`server` is not an array of tables"))?;
        for table in tables {
            let line = self.line(table.span());
            let key = table.get("key").and_then(|key| key.as_str()).and_then(|key| ServerKey::new(key).ok());
            let key = key.ok_or_else(|| invalid(line, "a server without a usable `key`"))?;
            let server = self.server(table, &key)?;
            if servers.insert(key, server).is_some() {
                return Err(invalid(line, "a server is there twice"));
            }
        }
        Ok(servers)
    }

    fn server(&mut self, table: &toml_edit::Table, key: &ServerKey) -> Result<LockedServer, LockFault> {
        let mut server = LockedServer { launch: self.hash(table, "launch_hash")?, ..LockedServer::default() };
        if let Some(artifact) = table.get("artifact").and_then(|artifact| artifact.as_table_like()) {
            let artifact = self.artifact(artifact)?;
            server.faults.extend(artifact.packages.and_then(|packages| self.packages(&packages, key)));
            server.artifact = Some(artifact);
        }
        if let Some(announced) = table.get("announced").and_then(|announced| announced.as_table_like()) {
            let own = |name: &str| text(announced, name).map(str::to_owned);
            server.announced = Announced {
                name: own("name"),
                version: own("version"),
                protocol: own("protocol"),
                ..Announced::default()
            };
            let of = format!("{key}: what it announced");
            for name in ["capabilities", "instructions"] {
                let Some(hash) = self.hash(announced, name)? else { continue };
                let Some(found) = self.snapshot(&hash, &of, &mut server.faults) else { continue };
                let (now, fits) = if name == "capabilities" {
                    (facet::capabilities_hash(&found.value).ok(), true)
                } else {
                    (found.value.as_str().map(facet::instructions_hash), found.value.is_string())
                };
                let right = fits && (self.any_form && now.is_some() || now == Some(hash));
                let hash = now.filter(|_| right).unwrap_or(hash);
                if name == "capabilities" {
                    server.announced.capabilities = Some((hash, found.value));
                } else {
                    let words = found.value.as_str().unwrap_or_default().to_owned();
                    server.announced.instructions = Some((hash, words));
                }
                if !right {
                    let of = of.clone();
                    server.faults.push(LockFault::WrongSnapshot { of, name: snapshot_name(&hash) });
                }
            }
        }
        let entries = table.get("entry").and_then(|entries| entries.as_array_of_tables());
        for table in entries.into_iter().flatten() {
            let line = self.line(table.span());
            let invalid = |message: &str| LockFault::Invalid { line, message: message.to_owned() };
            let kind = text(table, "kind").and_then(|kind| Kind::ALL.into_iter().find(|known| known.as_str() == kind));
            let kind = kind.ok_or_else(|| invalid("an entry without a known `kind`"))?;
            let name = text(table, "name").ok_or_else(|| invalid("an entry without a `name`"))?.to_owned();
            let entry = self.entry(table, key, (kind, &name), &mut server.faults)?;
            if server.entries.insert((kind, name), entry).is_some() {
                return Err(invalid("an entry is there twice"));
            }
        }
        Ok(server)
    }

    fn entry(
        &mut self,
        table: &toml_edit::Table,
        key: &ServerKey,
        (kind, name): (Kind, &str),
        faults: &mut Vec<LockFault>,
    ) -> Result<Entry, LockFault> {
        let line = self.line(table.span());
        let invalid = |message: String| LockFault::Invalid { line, message };
        let hash = self.hash(table, "hash")?.ok_or_else(|| invalid("an entry without a `hash`".to_owned()))?;
        let mut facets = BTreeMap::new();
        let written = table.get("facets").filter(|_| !self.any_form);
        for (facet, value) in written.and_then(|f| f.as_table_like()).into_iter().flat_map(|f| f.iter()) {
            let known = Facet::parse(facet).zip(value.as_str().and_then(Hash::parse));
            let (facet, hash) = known.ok_or_else(|| invalid(format!("`facets.{}` is no hash", shown_str(facet))))?;
            facets.insert(facet, hash);
        }
        let mut ignore = Vec::new();
        for pointer in table.get("ignore").and_then(|ignore| ignore.as_array()).into_iter().flatten() {
            let pointer = pointer.as_str().unwrap_or_default();
            if let Some(problem) = facet::pointer_problem(kind, pointer) {
                return Err(invalid(format!("`ignore` has {:?}: {problem}", shown_str(pointer))));
            }
            ignore.push(pointer.to_owned());
        }
        let blocked = table.get("blocked").and_then(toml_edit::Item::as_bool).unwrap_or(false);
        let mut entry = Entry {
            hash,
            facets,
            approved: text(table, "approved").unwrap_or_default().to_owned(),
            ignore,
            blocked,
            definition: None,
        };
        // What is ignored is bound as well: its snapshot goes by the hash of the whole.
        let whole = self.hash(table, "snapshot")?.unwrap_or(hash);
        let of = format!("{key}/{kind}/{}", shown_str(name));
        if let Some(found) = self.snapshot(&whole, &of, faults) {
            // The name stands beside the facets, not among them.
            let stated = std::mem::take(&mut entry.facets);
            let any = self.any_form;
            let hashes = Hashes::of(kind, &found.value, &entry.ignore).ok().filter(|hashes| {
                let others = hashes.facets.iter().filter(|(facet, _)| **facet != Facet::Name);
                any || hashes.entry == hash && others.eq(stated.iter())
            });
            if let Some(hashes) = hashes.as_ref().filter(|_| any) {
                entry.hash = hashes.entry;
            }
            let right = Hashes::of(kind, &found.value, &[]).is_ok_and(|all| any || all.entry == whole)
                && hashes.is_some()
                && found.value.get(subject(kind)).and_then(Value::as_str) == Some(name);
            entry.facets = hashes.map_or(stated, |hashes| hashes.facets);
            if right {
                entry.definition = Some(found);
            } else {
                faults.push(LockFault::WrongSnapshot { of, name: snapshot_name(&whole) });
            }
        }
        Ok(entry)
    }

    fn snapshot(&mut self, hash: &Hash, of: &str, faults: &mut Vec<LockFault>) -> Option<Definition> {
        let (of, name) = (of.to_owned(), snapshot_name(hash));
        let path = self.folder.join(&name);
        let (bytes, loose) = match bounded(&path, MAX_SNAPSHOT) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                faults.push(LockFault::NoSnapshot { of, name });
                return None;
            }
            Err(error) => {
                faults.push(LockFault::Unreadable { path, error: error.to_string() });
                return None;
            }
        };
        if loose {
            self.loose.get_or_insert(path);
        }
        let Some(found) = canonical::read(&bytes).ok().and_then(Definition::of) else {
            faults.push(LockFault::WrongSnapshot { of, name });
            return None;
        };
        Some(found)
    }

    /// What is wrong with a list of packages.
    fn packages(&mut self, hash: &Hash, key: &ServerKey) -> Option<LockFault> {
        let read = packages(&self.folder, hash, key);
        self.loose = self.loose.take().or_else(|| read.as_ref().ok()?.1.clone());
        read.err()
    }

    fn artifact(&self, table: &dyn TableLike) -> Result<Artifact, LockFault> {
        let own = |name: &str| text(table, name).map(str::to_owned);
        let line = self.line(table.get("kind").and_then(toml_edit::Item::span));
        let kind = text(table, "kind")
            .and_then(ArtifactKind::parse)
            .ok_or_else(|| LockFault::Invalid { line, message: "an artifact without a known `kind`".to_owned() })?;
        let level = table.get("level").and_then(toml_edit::Item::as_integer);
        Ok(Artifact {
            kind,
            name: own("name").unwrap_or_default(),
            version: own("version"),
            integrity: own("integrity"),
            interpreter: own("interpreter"),
            packages: self.hash(table, "packages")?,
            broken: None,
            level: level.and_then(|level| u8::try_from(level).ok()).unwrap_or(0),
        })
    }

    fn hash(&self, table: &dyn TableLike, name: &str) -> Result<Option<Hash>, LockFault> {
        let Some(item) = table.get(name) else { return Ok(None) };
        let hash = item.as_str().and_then(Hash::parse);
        let line = self.line(item.span());
        hash.map(Some).ok_or_else(|| LockFault::Invalid { line, message: format!("`{name}` is no hash") })
    }
}

/// The member of a definition that says which entry it is.
pub const fn subject(kind: Kind) -> &'static str {
    match kind {
        Kind::Tool | Kind::Prompt => "name",
        Kind::Resource => "uri",
        Kind::Template => "uriTemplate",
    }
}

fn text<'t>(table: &'t (impl TableLike + ?Sized), name: &str) -> Option<&'t str> {
    table.get(name).and_then(toml_edit::Item::as_str)
}

#[cfg(test)]
#[path = "lock_tests.rs"]
mod tests;
