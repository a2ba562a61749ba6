//! Which state an entry is in, and a server: pure, from what was reviewed and what is listed (threat model §4.4, §5).
//!
//! The one way to `approved` is that the hash is the locked one; that is a table here, and a test walks all of it. Knows no
//! mode: what a state means for a host is the gateway's.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use super::artifact::Artifact;
use super::canonical::NotCanonical;
use super::facet::{Facet, Hash, Hashes};
use super::lock::{Announced, Entry, LockFault, LockedServer};
use crate::shown::shown_str;

/// Where an entry stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryState {
    /// It is what was reviewed.
    Approved,
    /// Nobody has reviewed it.
    Pending,
    /// It is another than was reviewed.
    Changed,
    /// The operator said no.
    Blocked,
    /// It cannot be compared.
    Excluded,
    /// It was reviewed, and is not listed now.
    Absent,
}

impl EntryState {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Approved, Self::Pending, Self::Changed, Self::Blocked, Self::Excluded, Self::Absent];

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Approved => "approved",
            Self::Pending => "pending",
            Self::Changed => "changed",
            Self::Blocked => "blocked",
            Self::Excluded => "excluded",
            Self::Absent => "absent",
        }
    }

    /// Where it stands after it was looked at: at a refresh of its list, or when the lock was read again.
    pub const fn after(self, finding: Finding) -> Self {
        match (self, finding) {
            // The only row that ends there (§5), from wherever it comes.
            (
                Self::Approved | Self::Pending | Self::Changed | Self::Blocked | Self::Excluded | Self::Absent,
                Finding::Equal,
            ) => Self::Approved,
            (
                Self::Approved | Self::Pending | Self::Changed | Self::Blocked | Self::Excluded | Self::Absent,
                Finding::Differs,
            ) => Self::Changed,
            (
                Self::Approved | Self::Pending | Self::Changed | Self::Blocked | Self::Excluded | Self::Absent,
                Finding::New,
            ) => Self::Pending,
            (
                Self::Approved | Self::Pending | Self::Changed | Self::Blocked | Self::Excluded | Self::Absent,
                Finding::Refused,
            ) => Self::Blocked,
            (
                Self::Approved | Self::Pending | Self::Changed | Self::Blocked | Self::Excluded | Self::Absent,
                Finding::Unfit,
            ) => Self::Excluded,
            (
                Self::Approved | Self::Pending | Self::Changed | Self::Blocked | Self::Excluded | Self::Absent,
                Finding::Gone,
            ) => Self::Absent,
            // A list that failed says nothing (§5.3).
            (kept, Finding::Unknown) => kept,
        }
    }
}

impl fmt::Display for EntryState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a look at an entry found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// It is listed with the locked hash.
    Equal,
    /// It is listed with another one.
    Differs,
    /// It is listed and not in the lock.
    New,
    /// It is listed, and the lock says no to it.
    Refused,
    /// It is listed, and has no canonical form.
    Unfit,
    /// It is in the lock and not listed.
    Gone,
    /// Its list did not come.
    Unknown,
}

impl Finding {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Equal, Self::Differs, Self::New, Self::Refused, Self::Unfit, Self::Gone, Self::Unknown];
}

/// What is found when a listed entry is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compared {
    /// What was found.
    pub finding: Finding,
    /// In which facets it differs.
    pub facets: Vec<Facet>,
    /// Its hash now, where it has one.
    pub hash: Option<Hash>,
    /// It promises to be more harmless than was reviewed.
    pub relaxed: bool,
}

/// Compares a listed entry with what the lock says of it.
pub fn compare(locked: Option<&Entry>, listed: Result<&Hashes, &NotCanonical>, definition: &Value) -> Compared {
    let Ok(hashes) = listed else {
        return Compared { finding: Finding::Unfit, facets: Vec::new(), hash: None, relaxed: false };
    };
    let hash = Some(hashes.entry);
    let Some(entry) = locked else {
        return Compared { finding: Finding::New, facets: Vec::new(), hash, relaxed: false };
    };
    let facets = hashes.differences(&entry.facets);
    let relaxed = facets.contains(&Facet::Annotations)
        && entry.definition.as_ref().is_some_and(|known| relaxes(&known.value, definition));
    let finding = match () {
        () if entry.blocked => Finding::Refused,
        () if hashes.entry == entry.hash => Finding::Equal,
        () => Finding::Differs,
    };
    Compared { finding, facets, hash, relaxed }
}

/// Whether a tool's annotations promise less harm than before (§4.4).
pub fn relaxes(before: &Value, after: &Value) -> bool {
    let hint = |definition: &Value, name: &str, default: bool| {
        definition.get("annotations").and_then(|all| all.get(name)).and_then(Value::as_bool).unwrap_or(default)
    };
    let became = |name, default, to: bool| hint(before, name, default) != to && hint(after, name, default) == to;
    became("readOnlyHint", false, true)
        || became("destructiveHint", true, false)
        || became("openWorldHint", true, false)
        || became("idempotentHint", false, true)
}

/// Why an entry is not served, as hosts are told (contract §4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hold {
    /// It is another than was reviewed, in these facets.
    Changed(Vec<Facet>),
    /// Nobody has reviewed it.
    Pending,
    /// Nothing of its server is served.
    Quarantined,
    /// The operator said no: hosts do not know it.
    Blocked,
}

impl Hold {
    /// A stable word for it.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Changed(_) => "pin-changed",
            Self::Pending => "pin-pending",
            Self::Quarantined => "server-quarantined",
            Self::Blocked => "not-allowed",
        }
    }

    /// The facets that differ.
    pub fn facets(&self) -> &[Facet] {
        match self {
            Self::Changed(facets) => facets,
            Self::Pending | Self::Quarantined | Self::Blocked => &[],
        }
    }
}

/// Why a server serves nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Quarantine {
    /// Nobody has reviewed it.
    #[error("unlocked: it is not in the lock; review it with `onegate lock`")]
    Unlocked,
    /// The lock cannot be relied on.
    #[error("{0}")]
    Lock(LockFault),
    /// It is launched or reached in another way.
    #[error("launch-changed: it is launched or reached in another way than was reviewed")]
    Launch,
    /// What is launched is another.
    #[error("artifact-changed: {0}")]
    Artifact(String),
    /// What is launched may be another tomorrow.
    #[error("floating: {0}")]
    Floating(String),
    /// It is bound less than is demanded.
    #[error("level: it is bound by level {found}, at least {wanted} is demanded")]
    Level {
        /// How much it is.
        found: u8,
        /// How much it should.
        wanted: u8,
    },
    /// It speaks an older protocol than was reviewed, and that is not tolerated.
    #[error("protocol-downgrade: it speaks {found}, older than {locked}")]
    Protocol {
        /// What it speaks.
        found: String,
        /// What was reviewed.
        locked: String,
    },
}

impl Quarantine {
    /// A stable word for it.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unlocked => "unlocked",
            Self::Lock(_) => "lock-invalid",
            Self::Launch => "launch-changed",
            Self::Artifact(_) => "artifact-changed",
            Self::Floating(_) => "floating",
            Self::Level { .. } => "level",
            Self::Protocol { .. } => "protocol-downgrade",
        }
    }
}

/// Where a server stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerState {
    /// It is what was reviewed; its entries have states of their own.
    Locked,
    /// Nobody has reviewed it.
    Unlocked,
    /// Nothing of it is approved.
    Quarantined(Quarantine),
    /// It is what was reviewed, and some list of it did not come.
    Degraded,
}

impl ServerState {
    /// The word for it.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Locked => "locked",
            Self::Unlocked => "unlocked",
            Self::Quarantined(_) => "quarantined",
            Self::Degraded => "degraded",
        }
    }
}

/// What of how a server is launched is not as reviewed. What is not known yet is not compared.
pub fn launch_drift(locked: &LockedServer, launch: Option<Hash>, artifact: Option<&Artifact>) -> Option<Quarantine> {
    if let Some(fault) = locked.faults.first() {
        return Some(Quarantine::Lock(fault.clone()));
    }
    if launch.is_some() && launch != locked.launch {
        return Some(Quarantine::Launch);
    }
    let artifact = artifact?;
    match &locked.artifact {
        Some(known) => artifact.difference(known).map(Quarantine::Artifact),
        None => Some(Quarantine::Artifact("the lock says nothing of it".to_owned())),
    }
}

/// What of what a server says of itself is not as reviewed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Said {
    /// It calls itself something else: only a note.
    pub renamed: bool,
    /// Its words to the model are others: they are withheld.
    pub instructions: bool,
    /// What it can do is another, and the top-level names of what is new.
    pub capabilities: Option<Vec<String>>,
    /// Why nothing is known of what is new there.
    pub unfit: Option<NotCanonical>,
    /// It speaks an older protocol.
    pub downgrade: Option<(String, String)>,
}

impl Said {
    /// What is to be said of what it can do, if anything.
    pub fn of_capabilities(&self) -> Option<String> {
        let new: Vec<_> = self.capabilities.as_ref()?.iter().map(|name| shown_str(name)).collect();
        Some(match &self.unfit {
            Some(why) => format!("its capabilities cannot be compared: {}", shown_str(&why.to_string())),
            None => format!("its capabilities are others; new: {}", new.join(", ")),
        })
    }

    /// Whether it is all as reviewed.
    pub fn is_same(&self) -> bool {
        *self == Self::default()
    }
}

/// Compares what a server says of itself with what was reviewed.
pub fn said(locked: &Announced, now: &Announced) -> Said {
    let hash = |of: &Option<(Hash, String)>| of.as_ref().map(|(hash, _)| *hash);
    let none = Value::Object(serde_json::Map::new());
    let capabilities = |of: &Announced| of.capabilities.as_ref().map_or(none.clone(), |(_, value)| value.clone());
    let (before, after) = (capabilities(locked), capabilities(now));
    let downgrade = locked.protocol.as_ref().zip(now.protocol.as_ref());
    Said {
        renamed: locked.name != now.name || locked.version != now.version,
        instructions: hash(&locked.instructions) != hash(&now.instructions),
        capabilities: match now.unfit {
            Some(_) => Some(Vec::new()),
            None => (locked.capabilities.is_some() && before != after).then(|| new_capabilities(&before, &after)),
        },
        unfit: now.unfit.clone(),
        // Revisions are dates.
        downgrade: downgrade.filter(|(locked, now)| now < locked).map(|(locked, now)| (now.clone(), locked.clone())),
    }
}

/// What is offered now and was not, as dotted paths.
fn new_capabilities(before: &Value, after: &Value) -> Vec<String> {
    fn walk(before: Option<&Value>, after: &Value, path: &str, found: &mut Vec<String>) {
        match (before, after) {
            (Some(Value::Object(before)), Value::Object(after)) => {
                for (name, value) in after {
                    let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                    walk(before.get(name), value, &path, found);
                }
            }
            (before, after) if before != Some(after) && !matches!(after, Value::Null | Value::Bool(false)) => {
                found.push(path.to_owned());
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    walk(Some(before), after, "", &mut found);
    found
}

/// Counts by state, for people.
pub fn counts(states: impl Iterator<Item = EntryState>) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    states.for_each(|state| *counts.entry(state.as_str()).or_insert(0) += 1);
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ident::Kind;
    use serde_json::json;

    #[test]
    fn only_the_locked_hash_leads_to_approved() {
        for from in EntryState::ALL {
            for finding in Finding::ALL {
                let to = from.after(finding);
                let stays = from == EntryState::Approved && finding == Finding::Unknown;
                assert_eq!(to == EntryState::Approved, finding == Finding::Equal || stays, "{from:?} {finding:?}");
            }
        }
    }

    fn locked(definition: Value, ignore: &[&str]) -> Entry {
        let ignore: Vec<_> = ignore.iter().map(|&pointer| pointer.to_owned()).collect();
        let hashes = Hashes::of(Kind::Tool, &definition, &ignore).unwrap();
        let (hash, facets) = (hashes.entry, hashes.facets);
        let definition = super::super::lock::Definition::of(definition);
        Entry { hash, facets, approved: String::new(), ignore, blocked: false, definition }
    }

    #[test]
    fn an_entry_is_compared_by_its_hash_alone() {
        let definition = json!({ "name": "t", "annotations": { "readOnlyHint": false } });
        let entry = locked(definition.clone(), &[]);
        let look = |entry: Option<&Entry>, definition: &Value| {
            let ignore = entry.map_or(&[][..], |entry| &entry.ignore);
            compare(entry, Hashes::of(Kind::Tool, definition, ignore).as_ref(), definition)
        };
        assert_eq!(look(Some(&entry), &definition).finding, Finding::Equal);
        assert_eq!(look(None, &definition).finding, Finding::New);
        let relaxed = look(Some(&entry), &json!({ "name": "t", "annotations": { "readOnlyHint": true } }));
        assert_eq!((relaxed.finding, relaxed.relaxed), (Finding::Differs, true));
        assert_eq!(relaxed.facets, [Facet::Annotations]);
        let blocked = Entry { blocked: true, ..entry.clone() };
        assert_eq!(look(Some(&blocked), &definition).finding, Finding::Refused);
        let ignoring = locked(json!({ "name": "t", "description": "1" }), &["/description"]);
        assert_eq!(look(Some(&ignoring), &json!({ "name": "t", "description": "2" })).finding, Finding::Equal);
        let odd = NotCanonical::Integer("1".into());
        assert_eq!(compare(Some(&entry), Err(&odd), &definition).finding, Finding::Unfit);
    }

    #[test]
    fn e_22_a_promise_of_less_harm_is_seen() {
        let with = |annotations: Value| json!({ "annotations": annotations });
        for (before, after, relaxed) in [
            (json!({}), json!({ "readOnlyHint": true }), true),
            (json!({}), json!({ "destructiveHint": false }), true),
            (json!({ "openWorldHint": true }), json!({ "openWorldHint": false }), true),
            (json!({ "readOnlyHint": true }), json!({}), false),
            (json!({ "destructiveHint": false }), json!({ "destructiveHint": true }), false),
            (json!({ "title": "a" }), json!({ "title": "b" }), false),
        ] {
            assert_eq!(relaxes(&with(before.clone()), &with(after.clone())), relaxed, "{before} {after}");
        }
    }

    #[test]
    fn t_41_t_03_what_a_server_says_of_itself_is_compared() {
        let announced = |protocol: &str, words: &str, capabilities: Value| Announced {
            name: Some("x".into()),
            version: None,
            protocol: Some(protocol.into()),
            capabilities: Some((super::super::facet::capabilities_hash(&capabilities).unwrap(), capabilities)),
            instructions: Some((super::super::facet::instructions_hash(words), words.to_owned())),
            unfit: None,
        };
        let base = announced("2026-07-28", "hi", json!({ "tools": {} }));
        assert!(said(&base, &base).is_same());
        let lower = said(&base, &announced("2025-11-25", "hi", json!({ "tools": {} })));
        assert_eq!(lower.downgrade, Some(("2025-11-25".into(), "2026-07-28".into())));
        assert_eq!(said(&lower_base(&base), &base).downgrade, None, "higher is none");
        assert!(said(&base, &announced("2026-07-28", "bye", json!({ "tools": {} }))).instructions);
        let more =
            said(&base, &announced("2026-07-28", "hi", json!({ "tools": { "listChanged": true }, "prompts": {} })));
        assert_eq!(more.capabilities.unwrap(), ["prompts", "tools.listChanged"]);
        let less = said(&base, &announced("2026-07-28", "hi", json!({})));
        assert_eq!(less.capabilities, Some(vec![]));
        // What has no canonical form is no silence, whatever was reviewed.
        for locked in [&base, &Announced { capabilities: None, ..base.clone() }] {
            let unfit = Some(NotCanonical::Integer("9007199254740993".into()));
            let odd = said(locked, &Announced { capabilities: None, unfit: unfit.clone(), ..base.clone() });
            assert_eq!((odd.capabilities, odd.unfit), (Some(vec![]), unfit));
        }
    }

    fn lower_base(base: &Announced) -> Announced {
        Announced { protocol: Some("2024-11-05".into()), ..base.clone() }
    }

    #[test]
    fn e_10_another_launch_or_artifact_puts_all_in_quarantine() {
        let artifact = Artifact {
            kind: super::super::artifact::ArtifactKind::Npm,
            name: "x".into(),
            version: Some("1.0.0".into()),
            integrity: None,
            interpreter: None,
            packages: None,
            broken: None,
            level: 1,
        };
        let hash = Hash::of(b"launch");
        let server = LockedServer { launch: Some(hash), artifact: Some(artifact.clone()), ..LockedServer::default() };
        assert_eq!(launch_drift(&server, Some(hash), Some(&artifact)), None);
        assert_eq!(launch_drift(&server, None, None), None);
        assert_eq!(launch_drift(&server, Some(Hash::of(b"x")), None), Some(Quarantine::Launch));
        let newer = Artifact { version: Some("1.0.1".into()), ..artifact.clone() };
        assert!(matches!(launch_drift(&server, Some(hash), Some(&newer)), Some(Quarantine::Artifact(_))));
        let fault = LockFault::Version("2".into());
        let broken = LockedServer { faults: vec![fault.clone()], ..server };
        assert_eq!(launch_drift(&broken, Some(hash), Some(&artifact)), Some(Quarantine::Lock(fault)));
    }
}
