//! What a lock says, what is wrong with it, and how it is written.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;

use super::edit::Draft;
use super::*;
use crate::pins::facet::{capabilities_hash, instructions_hash};

fn key(text: &str) -> ServerKey {
    ServerKey::new(text).unwrap()
}

fn entry(kind: Kind, definition: Value, ignore: &[&str]) -> Entry {
    let ignore: Vec<_> = ignore.iter().map(|&pointer| pointer.to_owned()).collect();
    let hashes = Hashes::of(kind, &definition, &ignore).unwrap();
    let (hash, facets, approved) = (hashes.entry, hashes.facets, "2026-08-30".to_owned());
    Entry { hash, facets, approved, ignore, blocked: false, definition: Definition::of(definition) }
}

fn server() -> LockedServer {
    let capabilities = json!({ "tools": {} });
    let artifact = Artifact {
        kind: ArtifactKind::Npm,
        name: "@acme/x".into(),
        version: Some("1.4.2".into()),
        integrity: None,
        interpreter: None,
        packages: None,
        broken: None,
        level: 1,
    };
    let tool = entry(Kind::Tool, json!({ "name": "b", "description": "\u{e9}\"'''" }), &[]);
    let dated = entry(Kind::Tool, json!({ "name": "a", "description": "today" }), &["/description"]);
    let prompt = entry(Kind::Prompt, json!({ "name": "z" }), &[]);
    LockedServer {
        launch: Some(Hash::of(b"launch")),
        artifact: Some(artifact),
        announced: Announced {
            unfit: None,
            name: Some("x".into()),
            version: None,
            protocol: Some("2026-07-28".into()),
            capabilities: Some((capabilities_hash(&capabilities).unwrap(), capabilities)),
            instructions: Some((instructions_hash("be kind"), "be kind".into())),
        },
        entries: [
            ((Kind::Tool, "b".to_owned()), tool),
            ((Kind::Tool, "a".to_owned()), dated),
            ((Kind::Prompt, "z".to_owned()), prompt),
        ]
        .into(),
        faults: Vec::new(),
    }
}

struct World {
    folder: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let world = Self { folder: tempfile::tempdir().unwrap() };
        let mut draft = Draft::open(&world.path()).unwrap();
        draft.put(&key("y"), &server());
        draft.put(&key("x"), &server());
        draft.write().unwrap();
        world
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("onegate.lock")
    }

    fn text(&self) -> String {
        std::fs::read_to_string(self.path()).unwrap()
    }

    fn read(&self) -> Result<Option<Lock>, LockFault> {
        Lock::read(&self.path())
    }

    fn change(&self, from: &str, to: &str) {
        let text = self.text();
        assert!(text.contains(from), "{text}");
        std::fs::write(self.path(), text.replacen(from, to, 1)).unwrap();
    }
}

#[test]
fn what_is_written_is_read() {
    let world = World::new();
    let lock = world.read().unwrap().unwrap();
    let servers: Vec<_> = lock.servers.keys().map(ServerKey::as_str).collect();
    assert_eq!(servers, ["x", "y"]);
    let (found, expected) = (&lock.servers[&key("x")], server());
    assert_eq!(
        (found.launch, &found.artifact, &found.announced),
        (expected.launch, &expected.artifact, &expected.announced)
    );
    assert_eq!(found.entries, expected.entries);
    assert!(lock.faults().next().is_none() && lock.loose.is_none());
    assert!(Lock::read(Path::new("/nowhere/onegate.lock")).unwrap().is_none());
    // Each snapshot once, however many entries have it.
    assert_eq!(std::fs::read_dir(snapshots(&world.path())).unwrap().count(), 5);
}

#[test]
fn the_file_is_sorted_and_what_is_not_touched_stays() {
    let world = World::new();
    let text = world.text();
    let order: Vec<_> = ["key = \"x\"", "name = \"z\"", "name = \"a\"", "name = \"b\"", "key = \"y\""]
        .map(|part| text.find(part).unwrap())
        .into();
    assert!(order.is_sorted(), "{text}");
    assert!(!text.contains('\r'));
    world.change("key = \"y\"", "# checked by two\nkey = \"y\"\nteam = \"core\"");
    let before = world.text();
    let mut draft = Draft::open(&world.path()).unwrap();
    assert_eq!(draft.text(), before, "nothing changes without a change");
    let mut changed = server();
    changed.entries.remove(&(Kind::Tool, "b".to_owned()));
    let more = entry(Kind::Tool, json!({ "name": "aa" }), &[]);
    changed.entries.insert((Kind::Tool, "aa".to_owned()), more);
    draft.put(&key("x"), &changed);
    draft.put(&key("y"), &server());
    draft.write().unwrap();
    let text = world.text();
    assert!(text.contains("# checked by two\nkey = \"y\"\nteam = \"core\""), "{text}");
    let lock = world.read().unwrap().unwrap();
    assert_eq!(lock.servers[&key("x")].entries, changed.entries);
    assert_eq!(lock.servers[&key("y")].entries, server().entries);
    assert!(text.find("\"a\"").unwrap() < text.find("\"aa\"").unwrap());
    // The last one that spoke of it is gone.
    let mut draft = Draft::open(&world.path()).unwrap();
    draft.put(&key("y"), &changed);
    draft.write().unwrap();
    let gone = server().entries[&(Kind::Tool, "b".to_owned())].hash;
    assert!(!snapshots(&world.path()).join(snapshot_name(&gone)).exists());
}

/// T-24.
#[test]
fn t_24_a_broken_lock_is_named() {
    for (from, to, code) in [
        ("version = 1", "version = 2", "it has version 2"),
        ("version = 1", "", "it has version none"),
        ("mcp-pin/1", "mcp-pin/2", "lock-form"),
        ("[[server]]", "[[server]", "lock-syntax: line"),
        ("kind = \"tool\"", "kind = \"tol\"", "an entry without a known `kind`"),
        ("key = \"x\"", "key = \"y\"", "a server is there twice"),
        ("name = \"a\"", "name = \"b\"", "an entry is there twice"),
        ("hash = \"sha256:", "hash = \"sha512:", "is no hash"),
        ("ignore = [\"/description\"]", "ignore = [\"/name\"]", "cannot be ignored"),
    ] {
        let world = World::new();
        world.change(from, to);
        let fault = world.read().unwrap_err().to_string();
        assert!(fault.contains(code), "{from}: {fault}");
    }
    let world = World::new();
    let text = world.text();
    // Cut anywhere, it is refused or says less; never more.
    for cut in (0..text.len()).step_by(97) {
        std::fs::write(world.path(), &text[..cut]).unwrap();
        if let Ok(Some(lock)) = world.read() {
            for server in lock.servers.values().filter(|server| server.faults.is_empty()) {
                let approved = server.entries.values().filter(|entry| entry.definition.is_some()).count();
                assert!(approved <= 3);
            }
        }
    }
}

#[test]
fn t_24_d103_a_snapshot_must_be_there_and_hold_what_its_name_says() {
    let tool = server().entries[&(Kind::Tool, "b".to_owned())].clone();
    let file = |world: &World| snapshots(&world.path()).join(snapshot_name(&tool.hash));
    let faults = |world: &World| {
        let lock = world.read().unwrap().unwrap();
        let faults: Vec<_> = lock.faults().map(|(key, fault)| format!("{key} {fault}")).collect();
        let entry = &lock.servers[&key("x")].entries[&(Kind::Tool, "b".to_owned())];
        assert_eq!(entry.definition.is_none(), !faults.is_empty());
        faults
    };
    let world = World::new();
    assert!(faults(&world).is_empty());
    std::fs::write(file(&world), r#"{"name":"b","description":"another"}"#).unwrap();
    assert!(faults(&world)[0].starts_with("x snapshot-wrong: x/tool/b: "), "{:?}", faults(&world));
    std::fs::write(file(&world), "{").unwrap();
    assert!(faults(&world)[0].contains("snapshot-wrong"));
    std::fs::remove_file(file(&world)).unwrap();
    assert!(faults(&world)[0].contains("snapshot-missing"));
    // What is ignored is bound too.
    let world = World::new();
    let dated = server().entries[&(Kind::Tool, "a".to_owned())].clone();
    let whole = Hashes::of(Kind::Tool, &dated.definition.unwrap().value, &[]).unwrap().entry;
    std::fs::write(snapshots(&world.path()).join(snapshot_name(&whole)), r#"{"name":"a","description":"evil"}"#)
        .unwrap();
    let lock = world.read().unwrap().unwrap();
    assert!(lock.faults().all(|(_, fault)| fault.to_string().contains("snapshot-wrong")) && lock.faults().count() == 2);
    // The words of one entry for another of the same server.
    let world = World::new();
    world.change("name = \"b\"", "name = \"c\"");
    let lock = world.read().unwrap().unwrap();
    assert!(lock.faults().next().unwrap().1.to_string().contains("snapshot-wrong: x/tool/c"));
}

#[test]
fn t_24_what_others_can_change_is_seen() {
    for mode in [0o664, 0o646, 0o666] {
        let world = World::new();
        std::fs::set_permissions(world.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(world.read().unwrap().unwrap().loose, Some(world.path()), "{mode:o}");
    }
    let world = World::new();
    let folder = snapshots(&world.path());
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).unwrap();
    assert_eq!(world.read().unwrap().unwrap().loose, Some(folder.clone()));
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    let file = std::fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o662)).unwrap();
    assert_eq!(world.read().unwrap().unwrap().loose, Some(file));
}
