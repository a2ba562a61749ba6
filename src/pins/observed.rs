//! What a server was seen to be, kept in the state folder for those who review it (threat model §3).
//!
//! A running gateway writes it, whole and before a hold shows; `diff` and `approve` read it, in another process perhaps.
//! It decides nothing: what may be served is the lock's.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};

use super::artifact::{Artifact, ArtifactKind};
use super::canonical::NotCanonical;
use super::facet::{Hash, Hashes, capabilities_hash, instructions_hash};
use super::lock::Announced;
use crate::ident::{Kind, ServerKey};
use crate::whole;

/// What a server was last seen to be.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// How it was launched or reached.
    pub launch: Option<Hash>,
    /// What was launched.
    pub artifact: Option<Artifact>,
    /// What it said of itself; nothing where it was never reached.
    pub announced: Option<Announced>,
    /// What it listed, by kind; nothing for a kind whose list never came whole.
    pub lists: BTreeMap<Kind, Vec<Listed>>,
}

/// An entry that was listed.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed {
    /// Its native name, URI or template.
    pub name: String,
    /// The definition, which who compares has too; or why it has no canonical form.
    pub definition: Result<Arc<Value>, NotCanonical>,
    /// When it was first seen as it is, in seconds since 1970.
    pub since: u64,
}

impl Listed {
    /// Its hashes, with these pointers ignored.
    pub fn hashes(&self, kind: Kind, ignore: &[String]) -> Result<Hashes, NotCanonical> {
        match &self.definition {
            Ok(definition) => Hashes::of(kind, definition, ignore),
            Err(why) => Err(why.clone()),
        }
    }
}

/// The folder of what was seen, of one lock.
#[derive(Clone, Debug)]
pub struct Memory {
    folder: PathBuf,
}

impl Memory {
    /// The part of a state folder that belongs to this lock: the same server may be another elsewhere.
    pub fn of(state: &Path, lock: &Path) -> Self {
        use std::os::unix::ffi::OsStrExt as _;
        let lock = std::path::absolute(lock).unwrap_or_else(|_| lock.to_owned());
        let name = &Hash::of(lock.as_os_str().as_bytes()).hex()[..16];
        Self { folder: state.join("pins").join(name) }
    }

    fn file(&self, key: &ServerKey) -> PathBuf {
        self.folder.join(format!("{key}.json"))
    }

    /// Notes what a server was seen to be.
    pub fn note(&self, key: &ServerKey, observed: &Observed) -> io::Result<()> {
        std::fs::create_dir_all(&self.folder)?;
        // Definitions may be nobody else's business.
        whole::replace(&self.file(key), &serde_json::to_vec(&written(observed))?, 0o600)
    }

    /// What a server was last seen to be; nothing where it never was.
    pub fn recall(&self, key: &ServerKey) -> Option<Observed> {
        let bytes = std::fs::read(self.file(key)).ok()?;
        from_json(&serde_json::from_slice(&bytes).ok()?)
    }
}

/// As it is written. Definitions are many, and stay where they are.
#[derive(Serialize)]
struct Written<'a> {
    launch_hash: Option<String>,
    artifact: Option<Value>,
    announced: Option<Value>,
    lists: BTreeMap<&'static str, Vec<WrittenEntry<'a>>>,
}

#[derive(Serialize)]
struct WrittenEntry<'a> {
    name: &'a str,
    since: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    definition: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    excluded: Option<String>,
}

impl<'a> WrittenEntry<'a> {
    fn of(listed: &'a Listed) -> Self {
        let Listed { name, since, definition } = listed;
        let excluded = definition.as_ref().err().map(ToString::to_string);
        Self { name, since: *since, definition: definition.as_deref().ok(), excluded }
    }
}

fn written(observed: &Observed) -> Written<'_> {
    let artifact = observed.artifact.as_ref().map(|artifact| {
        json!({
            "kind": artifact.kind.as_str(), "name": artifact.name, "version": artifact.version,
            "integrity": artifact.integrity, "interpreter": artifact.interpreter, "level": artifact.level,
            "packages": artifact.packages.map(|packages| packages.to_string()), "broken": artifact.broken,
        })
    });
    let announced = observed.announced.as_ref().map(|announced| {
        json!({
            "name": announced.name, "version": announced.version, "protocol": announced.protocol,
            "capabilities": announced.capabilities.as_ref().map(|(_, value)| value),
            "unfit": announced.unfit.as_ref().map(ToString::to_string),
            "instructions": announced.instructions.as_ref().map(|(_, words)| words),
        })
    });
    let lists =
        observed.lists.iter().map(|(kind, entries)| (kind.as_str(), entries.iter().map(WrittenEntry::of).collect()));
    let launch_hash = observed.launch.map(|hash| hash.to_string());
    Written { launch_hash, artifact, announced, lists: lists.collect() }
}

fn from_json(value: &Value) -> Option<Observed> {
    let text = |of: &Value, name: &str| of.get(name).and_then(Value::as_str).map(str::to_owned);
    let artifact = value.get("artifact").filter(|artifact| artifact.is_object()).and_then(|artifact| {
        Some(Artifact {
            kind: ArtifactKind::parse(&text(artifact, "kind")?)?,
            name: text(artifact, "name")?,
            version: text(artifact, "version"),
            integrity: text(artifact, "integrity"),
            interpreter: text(artifact, "interpreter"),
            packages: text(artifact, "packages").and_then(|hash| Hash::parse(&hash)),
            broken: text(artifact, "broken"),
            level: artifact.get("level")?.as_u64()?.try_into().ok()?,
        })
    });
    let announced = value.get("announced").filter(|announced| announced.is_object()).map(|announced| Announced {
        name: text(announced, "name"),
        version: text(announced, "version"),
        protocol: text(announced, "protocol"),
        capabilities: announced
            .get("capabilities")
            .filter(|value| !value.is_null())
            .and_then(|value| Some((capabilities_hash(value).ok()?, value.clone()))),
        unfit: text(announced, "unfit").map(NotCanonical::Told),
        instructions: text(announced, "instructions").map(|words| (instructions_hash(&words), words)),
    });
    let lists = value.get("lists")?.as_object()?.iter().filter_map(|(kind, entries)| {
        let kind = Kind::ALL.into_iter().find(|known| known.as_str() == kind)?;
        let entries = entries.as_array()?.iter().filter_map(|entry| {
            let definition = match entry.get("definition") {
                Some(definition) => Ok(Arc::new(definition.clone())),
                None => Err(NotCanonical::Told(text(entry, "excluded").unwrap_or_default())),
            };
            Some(Listed { name: text(entry, "name")?, definition, since: entry.get("since")?.as_u64()? })
        });
        Some((kind, entries.collect()))
    });
    let launch = text(value, "launch_hash").and_then(|hash| Hash::parse(&hash));
    Some(Observed { launch, artifact, announced, lists: lists.collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_is_found_by_another_process() {
        let state = tempfile::tempdir().unwrap();
        let key = ServerKey::new("x").unwrap();
        let memory = Memory::of(state.path(), Path::new("/a/onegate.lock"));
        assert!(memory.recall(&key).is_none());
        let tool = Listed { name: "t".into(), definition: Ok(json!({ "name": "t", "n": 1.5 }).into()), since: 7 };
        let odd = Listed { name: "o".into(), definition: Err(NotCanonical::Text("twice".into())), since: 8 };
        let capabilities = json!({ "tools": {} });
        let observed = Observed {
            launch: Some(Hash::of(b"l")),
            artifact: Some(Artifact {
                kind: ArtifactKind::Npm,
                name: "p".into(),
                version: Some("1.0.0".into()),
                integrity: None,
                interpreter: None,
                packages: Some(Hash::of(b"p")),
                broken: Some("b".into()),
                level: 1,
            }),
            announced: Some(Announced {
                name: Some("n".into()),
                version: None,
                protocol: Some("2026-07-28".into()),
                capabilities: Some((capabilities_hash(&capabilities).unwrap(), capabilities)),
                instructions: Some((instructions_hash("hi"), "hi".into())),
                unfit: Some(NotCanonical::Told("odd".into())),
            }),
            lists: BTreeMap::from([(Kind::Tool, vec![tool, odd]), (Kind::Prompt, vec![])]),
        };
        memory.note(&key, &observed).unwrap();
        let found = Memory::of(state.path(), Path::new("/a/onegate.lock")).recall(&key).unwrap();
        assert_eq!(found.lists[&Kind::Tool][0], observed.lists[&Kind::Tool][0]);
        assert!(found.lists[&Kind::Tool][1].definition.is_err() && found.lists[&Kind::Prompt].is_empty());
        assert_eq!(
            (found.launch, found.artifact, found.announced),
            (observed.launch, observed.artifact, observed.announced)
        );
        assert!(Memory::of(state.path(), Path::new("/b/onegate.lock")).recall(&key).is_none());
        std::fs::write(memory.file(&key), "{").unwrap();
        assert!(memory.recall(&key).is_none());
    }
}
