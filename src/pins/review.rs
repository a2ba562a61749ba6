//! What there is to review, and what becomes of a yes: from what was observed and what is locked to differences, and to what
//! the lock will say.
//!
//! Writes nothing and knows no command. Called by `cli`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};

use super::canonical::{self, NotCanonical};
use super::drift::{self, EntryState, Finding, Quarantine, Said};
use super::facet::{Facet, Hash, Hashes, capabilities_hash};
use super::lint::{self, Risk};
use super::lock::{Definition, Entry, LockedServer};
use super::observed::{Listed, Observed};
use crate::ident::{Kind, ServerKey};

/// An entry that is not as reviewed.
#[derive(Clone, Debug)]
pub struct Change {
    /// What it is.
    pub kind: Kind,
    /// Its native name, URI or template.
    pub name: String,
    /// Where it stands.
    pub state: EntryState,
    /// In which facets it differs.
    pub facets: Vec<Facet>,
    /// The reviewed hash.
    pub old: Option<Hash>,
    /// The hash now.
    pub new: Option<Hash>,
    /// The reviewed definition.
    pub before: Option<Value>,
    /// The definition now, or why it is not comparable.
    pub after: Option<Result<Value, NotCanonical>>,
    /// What to look at.
    pub risks: Vec<Risk>,
}

/// What is not as reviewed about a server.
#[derive(Clone, Debug)]
pub struct Differences {
    /// Which.
    pub key: ServerKey,
    /// Why nothing of it is approved.
    pub quarantine: Option<Quarantine>,
    /// See [`unbound`].
    pub unbound: Option<String>,
    /// What it says of itself.
    pub said: Said,
    /// Its entries, by kind and name.
    pub entries: Vec<Change>,
}

impl Differences {
    /// Whether there is anything to review. That something is not listed any more is none, nor another name.
    pub fn is_drift(&self) -> bool {
        let said = &self.said;
        self.quarantine.is_some()
            || said.instructions
            || said.capabilities.is_some()
            || said.downgrade.is_some()
            || self.entries.iter().any(|change| change.state != EntryState::Absent)
    }
}

impl Entry {
    /// A reviewed definition.
    pub fn of(kind: Kind, definition: &Value, ignore: Vec<String>, today: &str) -> Result<Self, NotCanonical> {
        let Hashes { entry: hash, facets } = Hashes::of(kind, definition, &ignore)?;
        let definition = Definition::of(definition.clone());
        Ok(Self { hash, facets, approved: today.to_owned(), ignore, blocked: false, definition })
    }
}

/// What of a server is not as reviewed. `others` are names of other servers' tools.
pub fn differences(
    key: &ServerKey,
    locked: Option<&LockedServer>,
    observed: &Observed,
    others: &BTreeSet<String>,
) -> Differences {
    let empty = LockedServer::default();
    let quarantine = match locked {
        Some(locked) => drift::launch_drift(locked, observed.launch, observed.artifact.as_ref()),
        None => Some(Quarantine::Unlocked),
    };
    let unbound = locked.and_then(|locked| unbound(key, locked, observed));
    let locked = locked.unwrap_or(&empty);
    let said = match &observed.announced {
        Some(announced) if quarantine != Some(Quarantine::Unlocked) => drift::said(&locked.announced, announced),
        _ => Said::default(),
    };
    let mut entries = Vec::new();
    for (&kind, listed) in &observed.lists {
        for entry in listed {
            entries.extend(change(kind, entry, locked, others));
        }
        let there = |name: &String| listed.iter().any(|entry| entry.name == *name);
        let gone = locked.entries.iter().filter(|((of, name), entry)| *of == kind && !entry.blocked && !there(name));
        entries.extend(gone.map(|((kind, name), entry)| Change {
            kind: *kind,
            name: name.clone(),
            state: EntryState::Absent,
            facets: Vec::new(),
            old: Some(entry.hash),
            new: None,
            before: entry.definition.as_ref().map(|found| found.value.clone()),
            after: None,
            risks: Vec::new(),
        }));
    }
    entries.sort_by(|a, b| (a.kind.as_str(), &a.name).cmp(&(b.kind.as_str(), &b.name)));
    Differences { key: key.clone(), quarantine, unbound, said, entries }
}

/// Why a yes to how a server is launched now would bind less of it than was reviewed, and what to do instead: the lock has
/// its packages, and they are not what is there (E-10).
pub fn unbound(key: &ServerKey, locked: &LockedServer, observed: &Observed) -> Option<String> {
    locked.artifact.as_ref()?.packages?;
    let now = observed.artifact.as_ref();
    match now.map(|now| (&now.broken, now.packages)) {
        Some((Some(broken), _)) => Some(broken.clone()),
        Some((None, Some(_))) => None,
        Some((None, None)) | None if locked.launch == observed.launch => Some(format!(
            "the packages that the lock binds it by are not installed here; `onegate lock --install {key}` does that"
        )),
        Some((None, None)) | None => Some(format!(
            "the lock binds it by the bytes of its packages, and those of another launch are not installed; `onegate lock \
             --update {key}` installs them and takes what is seen then for reviewed"
        )),
    }
}

fn change(kind: Kind, listed: &Listed, locked: &LockedServer, others: &BTreeSet<String>) -> Option<Change> {
    let reviewed = locked.entries.get(&(kind, listed.name.clone()));
    if kind == Kind::Resource && reviewed.is_none() {
        return None;
    }
    let hashes = listed.hashes(kind, reviewed.map_or(&[][..], |reviewed| &reviewed.ignore));
    let definition = listed.definition.as_deref().ok();
    let compared = drift::compare(reviewed, hashes.as_ref(), definition.unwrap_or(&Value::Null));
    if matches!(compared.finding, Finding::Equal | Finding::Refused) {
        return None;
    }
    let before = reviewed.and_then(|reviewed| reviewed.definition.as_ref()).map(|found| found.value.clone());
    Some(Change {
        kind,
        name: listed.name.clone(),
        state: EntryState::Absent.after(compared.finding),
        facets: compared.facets,
        old: reviewed.map(|reviewed| reviewed.hash),
        // Of all of it: what is ignored in comparing is shown and kept, so a yes is a yes to that too.
        new: listed.hashes(kind, &[]).ok().map(|hashes| hashes.entry),
        risks: definition.map_or_else(Vec::new, |after| lint::risks(before.as_ref(), after, others)),
        before,
        after: Some(listed.definition.clone().map(Arc::unwrap_or_clone)),
    })
}

/// Stands for how a server is launched and what is launched: a yes to it is a yes to just that.
pub fn launch_digest(observed: &Observed) -> Option<Hash> {
    let Observed { launch, artifact, .. } = observed;
    let all = json!([launch.as_ref()?.to_string(), artifact.as_ref().map(|artifact| format!("{artifact:?}"))]);
    canonical::text(&all).ok().map(|text| Hash::of(&text))
}

/// Stands for all of these differences: a yes to it is a yes to just these.
pub fn digest(all: &[Differences], observed: &BTreeMap<ServerKey, Observed>) -> Hash {
    let listed: Vec<_> = all
        .iter()
        .map(|server| {
            let entries: Vec<_> = server
                .entries
                .iter()
                .map(|change| json!([change.kind.as_str(), change.name, change.new.map(|hash| hash.to_string())]))
                .collect();
            let seen = observed.get(&server.key);
            let said = seen.and_then(|seen| seen.announced.as_ref()).map(|said| {
                let hash = |hash: Option<Hash>| hash.map(|hash| hash.to_string());
                let capabilities = match &said.unfit {
                    Some(why) => Some(why.to_string()),
                    None => hash(said.capabilities.as_ref().map(|(hash, _)| *hash)),
                };
                let instructions = hash(said.instructions.as_ref().map(|(hash, _)| *hash));
                json!([said.name, said.version, said.protocol, capabilities, instructions])
            });
            let launch = seen.and_then(|seen| seen.launch).map(|hash| hash.to_string());
            let artifact = seen.and_then(|seen| seen.artifact.as_ref()).map(|artifact| format!("{artifact:?}"));
            json!([server.key.as_str(), launch, artifact, said, entries])
        })
        .collect();
    Hash::of(&canonical::text(&listed).unwrap_or_default())
}

/// What the lock says of a server when all of what was observed is reviewed. What was reviewed before and is not listed now
/// stays: a server may list it to others, or again. `ignore` is for what is new.
pub fn reviewed(observed: &Observed, ignore: &[String], before: Option<&LockedServer>, today: &str) -> LockedServer {
    let empty = LockedServer::default();
    let before = before.unwrap_or(&empty);
    let mut server = LockedServer {
        launch: observed.launch,
        artifact: observed.artifact.clone(),
        announced: observed.announced.clone().unwrap_or_default(),
        entries: before.entries.clone(),
        faults: Vec::new(),
    };
    if server.announced.unfit.take().is_some() {
        // Nobody can say yes to it, and that is no yes to everything.
        let none = Value::Object(serde_json::Map::new());
        server.announced.capabilities = capabilities_hash(&none).ok().map(|hash| (hash, none));
    }
    for (&kind, listed) in &observed.lists {
        for entry in listed {
            let known = before.entries.get(&(kind, entry.name.clone()));
            if kind == Kind::Resource && known.is_none() || known.is_some_and(|known| known.blocked) {
                continue;
            }
            let Ok(definition) = &entry.definition else { continue };
            let ignore = known.map_or(ignore, |known| &known.ignore).to_vec();
            let Ok(new) = Entry::of(kind, definition, ignore, today) else { continue };
            let slot = (kind, entry.name.clone());
            if known.is_none_or(|known| known.hash != new.hash || known.definition.is_none()) {
                server.entries.insert(slot, new);
            }
        }
    }
    server
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pins::lock::Announced;

    fn listed(definitions: &[Value]) -> Vec<Listed> {
        let one = |definition: &Value| Listed {
            name: definition["name"].as_str().unwrap().to_owned(),
            definition: Ok(definition.clone().into()),
            since: 0,
        };
        definitions.iter().map(one).collect()
    }

    fn observed(tools: &[Value]) -> Observed {
        Observed {
            announced: Some(Announced::default()),
            lists: BTreeMap::from([(Kind::Tool, listed(tools))]),
            ..Observed::default()
        }
    }

    #[test]
    fn what_is_reviewed_is_no_difference_and_the_rest_is() {
        let key = ServerKey::new("x").unwrap();
        let before = observed(&[json!({ "name": "a" }), json!({ "name": "b", "description": "1" })]);
        let unlocked = differences(&key, None, &before, &BTreeSet::new());
        assert_eq!(unlocked.quarantine, Some(Quarantine::Unlocked));
        assert!(unlocked.entries.iter().all(|change| change.state == EntryState::Pending));
        let mut locked = reviewed(&before, &[], None, "2026-01-01");
        locked.artifact = None;
        let none = differences(&key, Some(&locked), &before, &BTreeSet::new());
        assert!(!none.is_drift() && none.entries.is_empty(), "{none:?}");
        let after = observed(&[json!({ "name": "b", "description": "2\u{200b}" }), json!({ "name": "c" })]);
        let found = differences(&key, Some(&locked), &after, &BTreeSet::new());
        let states: Vec<_> = found.entries.iter().map(|change| (&*change.name, change.state.as_str())).collect();
        assert_eq!(states, [("a", "absent"), ("b", "changed"), ("c", "pending")]);
        assert_eq!(found.entries[1].facets, [Facet::Text]);
        assert_eq!(found.entries[1].risks.len(), 1);
        assert!(found.is_drift());
        let all = BTreeMap::from([(key.clone(), after.clone())]);
        let other = BTreeMap::from([(key.clone(), before.clone())]);
        assert_ne!(digest(std::slice::from_ref(&found), &all), digest(&[none], &other));
        // A yes to all of it: what is not listed now stays.
        let now = reviewed(&after, &[], Some(&locked), "2026-02-02");
        assert_eq!(now.entries.len(), 3);
        assert_eq!(now.entries[&(Kind::Tool, "a".to_owned())].approved, "2026-01-01");
        assert_eq!(now.entries[&(Kind::Tool, "b".to_owned())].approved, "2026-02-02");
        assert!(!differences(&key, Some(&now), &after, &BTreeSet::new()).is_drift());
    }

    #[test]
    fn what_cannot_be_compared_of_a_server_is_never_reviewed() {
        let key = ServerKey::new("x").unwrap();
        let with = |unfit: Option<NotCanonical>, capabilities: Value| {
            let hash = capabilities_hash(&capabilities).unwrap();
            let capabilities = Some((hash, capabilities)).filter(|_| unfit.is_none());
            Observed { announced: Some(Announced { unfit, capabilities, ..Announced::default() }), ..observed(&[]) }
        };
        let odd = with(Some(NotCanonical::Told("odd".into())), json!({}));
        let mut locked = reviewed(&odd, &[], None, "2026-01-01");
        locked.artifact = None;
        let found = |seen: &Observed| differences(&key, Some(&locked), seen, &BTreeSet::new());
        assert!(found(&odd).is_drift(), "still");
        let more = found(&with(None, json!({ "prompts": {} })));
        assert_eq!(more.said.capabilities, Some(vec!["prompts".to_owned()]), "what was not compared is new");
        assert!(!found(&with(None, json!({}))).is_drift());
        let all = |seen: &Observed| digest(&[found(seen)], &BTreeMap::from([(key.clone(), seen.clone())]));
        assert_ne!(all(&odd), all(&with(None, json!({}))));
    }

    #[test]
    fn what_is_ignored_and_what_is_blocked_stay_so() {
        let key = ServerKey::new("x").unwrap();
        let first = observed(&[json!({ "name": "a", "description": "1" })]);
        let mut locked = reviewed(&first, &["/description".to_owned()], None, "2026-01-01");
        let later = observed(&[json!({ "name": "a", "description": "2" }), json!({ "name": "b" })]);
        let found = differences(&key, Some(&locked), &later, &BTreeSet::new());
        assert_eq!(found.entries.iter().map(|change| &*change.name).collect::<Vec<_>>(), ["b"]);
        let mut blocked = Entry::of(Kind::Tool, &json!({ "name": "b" }), Vec::new(), "").unwrap();
        blocked.blocked = true;
        locked.entries.insert((Kind::Tool, "b".to_owned()), blocked);
        assert!(!differences(&key, Some(&locked), &later, &BTreeSet::new()).is_drift(), "no longer pending");
        assert!(reviewed(&later, &[], Some(&locked), "").entries[&(Kind::Tool, "b".to_owned())].blocked);
    }

    #[test]
    fn t_02_a_yes_is_to_all_of_a_definition_and_to_what_is_ignored_too() {
        let tool = |text: &str, version: u8| json!({"name": "t", "description": text, "_meta": {"v": version}});
        let ignore = ["/_meta/v".to_owned()];
        let before = Entry::of(Kind::Tool, &tool("one", 1), ignore.to_vec(), "2026-01-01").unwrap();
        let locked =
            LockedServer { entries: [((Kind::Tool, "t".to_owned()), before)].into(), ..LockedServer::default() };
        let new = |text: &str, version| {
            let listed = Listed { name: "t".into(), definition: Ok(tool(text, version).into()), since: 0 };
            change(Kind::Tool, &listed, &locked, &BTreeSet::new()).map(|change| change.new.unwrap())
        };
        assert_eq!(new("one", 2), None, "what is ignored is no difference");
        assert_ne!(new("two", 1), new("two", 2));
    }
}
