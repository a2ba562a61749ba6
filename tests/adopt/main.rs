//! Moving in and out, for every host and all three families of paths: files as people have them are read, get our entry and
//! get every byte back (class of adoption; the whole program is in `tests/it/adopt.rs`).
//!
//! Platforms are chosen in the library; the folders that they mean lie in a temporary one.
#![expect(clippy::unwrap_used, reason = "a helper of a test may fail it")]

mod parsed;
mod ways;

use std::path::{Path, PathBuf};

use onegate::adopt::hosts::{self, HOSTS, Host, Scope};
use onegate::adopt::install::{self, Behind, Plan, Refused, Todo, Wanted};
use onegate::adopt::own;
use onegate::adopt::place::{Ground, Platform};
use onegate::adopt::read;
use onegate::adopt::secrets::Instead;
use onegate::adopt::undo;
use onegate::config::Environment;
use tempfile::TempDir;

/// A machine of its own: home, project, state.
struct World {
    dir: TempDir,
    ground: Ground,
}

impl World {
    fn new(platform: Platform) -> Self {
        let dir = tempfile::Builder::new().prefix("onegate-adopt-").tempdir().unwrap();
        let home = dir.path().join("home");
        std::fs::create_dir_all(home.join("AppData/Roaming")).unwrap();
        std::fs::create_dir_all(dir.path().join("project")).unwrap();
        let environment = match platform {
            Platform::Windows => {
                Environment::from_iter([("USERPROFILE", home.clone()), ("APPDATA", home.join("AppData/Roaming"))])
            }
            Platform::MacOs | Platform::Linux => Environment::from_iter([("HOME", home)]),
        };
        let ground = Ground { platform, environment, project: dir.path().join("project") };
        Self { dir, ground }
    }

    fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    /// Where the file of a host is.
    fn file(&self, host: &Host, scope: Scope) -> PathBuf {
        self.ground.chosen(host.file(scope).unwrap()).unwrap()
    }

    /// Puts a file there.
    fn put(&self, host: &Host, scope: Scope, content: &[u8]) -> PathBuf {
        let path = self.file(host, scope);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    fn install(&self, host: &'static Host, scope: Scope) -> Result<Todo, Refused> {
        install::install(&self.ground, &self.state(), &wanted(host, scope), None)
    }

    fn uninstall(&self, host: &'static Host, scope: Scope) -> Result<Todo, Refused> {
        undo::uninstall(&self.ground, &self.state(), (host, scope), "onegate")
    }

    /// Files that are remembered.
    fn remembered(&self) -> usize {
        let hosts = self.state().join("hosts");
        std::fs::read_dir(hosts).map_or(0, Iterator::count)
    }
}

const ARGS: [&str; 3] = ["run", "--config", "/home/ann/my onegate.toml"];

fn wanted(host: &'static Host, scope: Scope) -> Wanted {
    let args = ARGS.map(str::to_owned).to_vec();
    Wanted { host, scope, name: "onegate".to_owned(), command: "/opt/one gate/onegate".to_owned(), args, named: None }
}

fn plan(todo: Result<Todo, Refused>) -> Box<Plan> {
    match todo {
        Ok(Todo::Change(plan)) => plan,
        Ok(Todo::Nothing { why, .. }) => panic!("nothing to do: {why}"),
        Err(refused) => panic!("{refused}"),
    }
}

fn refusal(todo: Result<Todo, Refused>) -> String {
    match todo {
        Ok(_) => panic!("not refused"),
        Err(refused) => refused.to_string(),
    }
}

/// A host's file as it is in `tests/adopt/files`.
fn sample(host: &Host) -> (String, String) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/adopt/files");
    let name = ["json", "toml", "yaml"].map(|end| format!("{}.{end}", host.id));
    let name = name.into_iter().find(|name| folder.join(name).exists()).unwrap();
    (std::fs::read_to_string(folder.join(&name)).unwrap(), name)
}

#[test]
fn every_host_has_a_sample_and_they_are_read_as_meant() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/adopt/files");
    let mut wrong = Vec::new();
    for host in HOSTS {
        let world = World::new(Platform::Linux);
        let (text, _) = sample(host);
        for text in [text.clone(), format!("\u{feff}{}", text.replace('\n', "\r\n"))] {
            world.put(host, Scope::User, text.as_bytes());
            let mut looked = read::host_files(host, &world.ground);
            assert_eq!(looked.len(), 1, "{}", host.id);
            let found = looked.remove(0).1.unwrap_or_else(|e| panic!("{}: {e}", host.id));
            let (toml, taken) = own::merge("", found.servers, Instead::File, world.dir.path()).unwrap();
            let told: String = taken
                .iter()
                .map(|one| {
                    let secrets: Vec<_> =
                        one.lifted.iter().map(|l| format!("{} = {}", l.place, l.value.reveal())).collect();
                    format!(
                        "# {:?} {:?} {:?} {:?} {:?}\n",
                        one.server.title, one.outcome, one.server.remarks, secrets, one.wanted
                    )
                })
                .collect();
            let got = format!("{told}\n{toml}");
            let path = folder.join(format!("{}.expected.toml", host.id));
            // To write them anew: look at what changed, then say so.
            if std::env::var_os("ONEGATE_TEST_ACCEPT").is_some() {
                std::fs::write(&path, &got).unwrap();
            }
            let expected = std::fs::read_to_string(&path).unwrap_or_default();
            if got != expected {
                wrong.push(format!("{}:\n{got}\ninstead of\n{expected}", host.id));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_is_taken_over_is_a_sound_configuration() {
    for host in HOSTS {
        let world = World::new(Platform::Linux);
        world.put(host, Scope::User, sample(host).0.as_bytes());
        let (_, found) = read::host_files(host, &world.ground).remove(0);
        let (toml, taken) = own::merge("", found.unwrap().servers, Instead::Variable, world.dir.path()).unwrap();
        assert!(!toml.is_empty(), "{}", host.id);
        for secret in taken.iter().flat_map(|one| &one.lifted) {
            assert!(!toml.contains(secret.value.reveal()), "{}: {}", host.id, secret.place);
        }
        let path = world.dir.path().join("onegate.toml");
        std::fs::write(&path, &toml).unwrap();
        let options = onegate::config::LoadOptions {
            files: vec![path],
            environment: Environment::default(),
            cwd: world.dir.path().to_owned(),
            etc: world.dir.path().join("etc"),
            flags: Vec::new(),
        };
        // Variables and programs that are missing here are nobody's fault; the text itself is right.
        onegate::config::load(&options).unwrap_or_else(|faults| panic!("{}:\n{faults}\n{toml}", host.id));
    }
}

#[test]
fn servers_are_taken_over_once_whatever_they_are_called() {
    let world = World::new(Platform::Linux);
    let base = world.dir.path();
    let merge = |before: &str, text: &str, instead| {
        let path = base.join("mcp.json");
        std::fs::write(&path, text).unwrap();
        let (after, taken) = own::merge(before, read::file(&path, None).unwrap().servers, instead, base).unwrap();
        let lifted: Vec<_> = taken.iter().flat_map(|one| &one.lifted).collect();
        if instead == Instead::File {
            onegate::adopt::store::secrets(base, &lifted).unwrap();
        }
        let keys: Vec<_> = taken.iter().map(|one| (one.key.clone(), one.outcome.clone())).collect();
        (after, keys)
    };
    let before = "# mine\n[servers.files]   # here\ncommand = \"a\"\n\n[policy]\ndefault = \"allow\" # last\n";
    let first = r#"{"mcpServers": {"Files": {"command": "b", "env": {"API_KEY": "one-secret"}}}}"#;
    let (after, keys) = merge(before, first, Instead::File);
    assert_eq!(keys, [(Some("files-2".to_owned()), own::Outcome::Added)]);
    assert!(
        after.starts_with(before) || after.contains("# mine\n[servers.files]   # here\ncommand = \"a\"\n"),
        "{after}"
    );
    assert!(after.contains("default = \"allow\" # last"), "{after}");
    // The same server under another name, found again.
    let again = r#"{"mcpServers": {"other": {"command": "b", "args": [], "env": {"API_KEY": "one-secret"}}}}"#;
    let (same, keys) = merge(&after, again, Instead::File);
    assert_eq!(keys, [(None, own::Outcome::Same("files-2".to_owned()))]);
    assert_eq!(same, after);
    // Another account is another server.
    let another = r#"{"mcpServers": {"files": {"command": "b", "env": {"API_KEY": "two-secret"}}}}"#;
    let (_, keys) = merge(&after, another, Instead::File);
    assert_eq!(keys, [(Some("files-3".to_owned()), own::Outcome::Added)]);
    // We ourselves are not.
    let ourselves = r#"{"mcpServers": {"og": {"command": "/x/onegate", "args": ["run"]}}}"#;
    assert!(merge(&after, ourselves, Instead::File).1.is_empty());
}

#[test]
fn servers_that_are_behind_us_are_taken_out_and_put_back() {
    let host = hosts::named("cursor").unwrap();
    let text = "{\n  \"mcpServers\": {\n    \"a\": {\"command\": \"a\", \"args\": []}, // one\n    \"b\": {\"command\": \"b\"},\n    \"c\": {\"command\": \"c\"}\n  }\n}\n";
    let behind = || {
        Behind::of("[servers.x]\ncommand = \"a\"\n[servers.y]\ncommand = \"c\"\nenabled = false\n", Path::new("/"))
            .unwrap()
    };
    let world = World::new(Platform::Linux);
    let path = world.put(host, Scope::User, text.as_bytes());
    let replace = || {
        let wanted = wanted(host, Scope::User);
        install::install(&world.ground, &world.state(), &wanted, Some((&behind(), Path::new("/"))))
    };
    let installed = plan(replace());
    assert_eq!(
        (installed.moved.as_slice(), installed.beside.as_slice()),
        (&["a".to_owned()][..], &["b".to_owned(), "c".to_owned()][..])
    );
    installed.carry_out().unwrap();
    let now = std::fs::read_to_string(&path).unwrap();
    assert!(!now.contains("\"a\"") && now.contains("\"c\""), "{now}");
    plan(world.uninstall(host, Scope::User)).carry_out().unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    // Changed meanwhile: it is put back as it was meant.
    plan(replace()).carry_out().unwrap();
    let now = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, now.replace("{\n  \"mcpServers\"", "{\n  \"new\": 1,\n  \"mcpServers\"")).unwrap();
    plan(world.uninstall(host, Scope::User)).carry_out().unwrap();
    let now = std::fs::read_to_string(&path).unwrap();
    let said = parsed::json(&now);
    assert_eq!(said["mcpServers"]["a"], serde_json::json!({"command": "a", "args": []}), "{now}");
    assert_eq!(said["new"], 1);
    assert!(said["mcpServers"].get("onegate").is_none());
}

#[test]
fn the_same_server_of_two_hosts_is_taken_over_once_under_its_plain_key() {
    let world = World::new(Platform::Linux);
    let text = |name: &str| {
        format!("{{\"mcpServers\": {{\"{name}\": {{\"command\": \"a\", \"env\": {{\"KEY\": \"secret-1\"}}}}}}}}")
    };
    for (host, name) in [("cursor", "GitHub"), ("windsurf", "GitHub"), ("gemini", "gh")] {
        world.put(hosts::named(host).unwrap(), Scope::User, text(name).as_bytes());
    }
    let looked = read::machine(&world.ground);
    assert_eq!(looked.len(), 3);
    let servers: Vec<_> = looked.into_iter().flat_map(|(_, found)| found.unwrap().servers).collect();
    let base = world.dir.path();
    // A file of another's has the name that it would have.
    std::fs::create_dir(base.join("secrets")).unwrap();
    std::fs::write(base.join("secrets/github.KEY"), "other\n").unwrap();
    let (toml, taken) = own::merge("", servers, Instead::File, base).unwrap();
    let outcomes: Vec<_> = taken.iter().map(|one| &one.outcome).collect();
    let same = own::Outcome::Same("github".to_owned());
    assert_eq!(outcomes, [&own::Outcome::Added, &same, &same]);
    assert_eq!(taken[0].key.as_deref(), Some("github"));
    assert!(toml.contains("${file:secrets/github.KEY-2}"), "{toml}");
}

#[test]
fn the_page_names_every_host() {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/adopt.md")).unwrap();
    for host in HOSTS {
        assert!(page.contains(&format!("`{}`", host.id)) && page.contains(host.title), "{}", host.id);
        let row = page.lines().find(|line| line.starts_with('|') && line.contains(&format!("`{}`", host.id)));
        assert!(row.is_none_or(|row| row.contains(host.tested)), "{}: by what?", host.id);
    }
}

#[test]
fn what_was_taken_out_is_not_forgotten_when_others_changed_the_file() {
    let host = hosts::named("cursor").unwrap();
    let world = World::new(Platform::Linux);
    let path =
        world.put(host, Scope::User, b"{\"mcpServers\": {\"a\": {\"command\": \"a\"}, \"b\": {\"command\": \"b\"}}}\n");
    let behind = Behind::of("[servers.x]\ncommand = \"a\"\n", Path::new("/")).unwrap();
    let replace = |args: &[&str]| {
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        let wanted = Wanted { args, ..wanted(host, Scope::User) };
        install::install(&world.ground, &world.state(), &wanted, Some((&behind, Path::new("/"))))
    };
    plan(replace(&["run"])).carry_out().unwrap();
    let edited = |from: &str, to: &str| {
        let now = std::fs::read_to_string(&path).unwrap();
        assert!(now.contains(from), "{now}");
        std::fs::write(&path, now.replacen(from, to, 1)).unwrap();
    };
    edited("{", "{\"new\": 1, ");
    // A change that fails leaves what is remembered.
    let late = plan(replace(&["run", "--log", "x"]));
    edited("\"new\": 1", "\"new\": 2");
    late.carry_out().unwrap_err();
    plan(replace(&["run", "--log", "x"])).carry_out().unwrap();
    plan(world.uninstall(host, Scope::User)).carry_out().unwrap();
    let said = parsed::json(&std::fs::read_to_string(&path).unwrap());
    let servers = serde_json::json!({"a": {"command": "a"}, "b": {"command": "b"}});
    assert_eq!(said, serde_json::json!({"new": 2, "mcpServers": servers}));
}

#[test]
fn servers_of_single_projects_are_not_those_of_all() {
    let host = hosts::named("claude-code").unwrap();
    let world = World::new(Platform::Linux);
    let text = r#"{"projects": {"/p/shop": {"mcpServers": {"db": {"command": "a"}}}}, "mcpServers": {"db": {"command": "b"}}}"#;
    world.put(host, Scope::User, text.as_bytes());
    let behind =
        Behind::of("[servers.x]\ncommand = \"a\"\ncwd = \"/p/shop\"\n[servers.y]\ncommand = \"a\"\n", Path::new("/"));
    let wanted = wanted(host, Scope::User);
    let behind = behind.unwrap();
    let planned = plan(install::install(&world.ground, &world.state(), &wanted, Some((&behind, Path::new("/")))));
    assert!(planned.moved.is_empty(), "{:?}", planned.moved);
    let (_, found) = read::host_files(host, &world.ground).remove(0);
    let (toml, _) = own::merge("", found.unwrap().servers, Instead::File, world.dir.path()).unwrap();
    assert!(toml.contains("cwd = \"/p/shop\""), "{toml}");
}

#[test]
fn what_is_relative_to_a_host_s_file_or_project_becomes_whole() {
    let world = World::new(Platform::Linux);
    let merged = |host: &str, scope, text: &str| {
        let host = hosts::named(host).unwrap();
        let path = world.put(host, scope, text.as_bytes());
        let (_, found) = read::host_files(host, &world.ground).remove(0);
        let folder = path.parent().unwrap().display().to_string();
        (own::merge("", found.unwrap().servers, Instead::File, world.dir.path()).unwrap().0, folder)
    };
    let text = r#"{"mcp": {"a": {"type": "local", "command": ["a"], "environment": {"K": "{file:./key}"}}}}"#;
    let (toml, folder) = merged("opencode", Scope::User, text);
    assert!(toml.contains(&format!("${{file:{folder}/key}}")), "{toml}");
    let text = r#"{"mcpServers": {"a": {"command": "./bin/a"}, "b": {"command": "b", "cwd": "sub"}}}"#;
    let (toml, _) = merged("cursor", Scope::Project, text);
    let project = world.ground.project.display();
    for line in ["command = \"P/bin/a\"\ncwd = \"P\"\n", "cwd = \"P/sub\"\n"] {
        assert!(toml.contains(&line.replace('P', &project.to_string())), "{toml}");
    }
}

#[test]
fn what_people_added_to_our_entry_stays() {
    for id in ["cursor", "codex", "goose"] {
        let host = hosts::named(id).unwrap();
        let file = host.file(Scope::User).unwrap();
        let world = World::new(Platform::Linux);
        plan(world.install(host, Scope::User)).carry_out().unwrap();
        let path = world.file(host, Scope::User);
        let text = std::fs::read_to_string(&path).unwrap();
        let theirs = match id {
            "cursor" => text.replace("\"onegate\": {", "\"onegate\": {\"theirs\": 1,"),
            "codex" => text.replace("[mcp_servers.onegate]", "[mcp_servers.onegate]\ntheirs = 1"),
            _ => text.replace("timeout: 300", "timeout: 600\n    theirs: 1"),
        };
        std::fs::write(&path, theirs).unwrap();
        let wanted = Wanted { args: vec!["run".to_owned()], ..wanted(host, Scope::User) };
        plan(install::install(&world.ground, &world.state(), &wanted, None)).carry_out().unwrap();
        let said = parsed::file(&std::fs::read_to_string(&path).unwrap(), file.syntax);
        let entry = parsed::server(&said, file.servers, "onegate").unwrap();
        assert_eq!(entry["theirs"], 1, "{id}: {entry}");
        assert_eq!(entry["args"], serde_json::json!(["run"]), "{id}");
        assert!(id != "goose" || entry["timeout"] == 600, "{entry}");
        plan(world.uninstall(host, Scope::User)).carry_out().unwrap();
    }
}
