//! In and out again: every host, every family of paths, every way a file may look; and what must stop it.
//!
//! Long, and one thing: the same way in and out for each host.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use onegate::adopt::hosts::{self, HOSTS, Host, Scope, Syntax};
use onegate::adopt::install::Todo;
use onegate::adopt::place::Platform;
use proptest::prelude::*;
use serde_json::Value;

use crate::{ARGS, World, parsed, plan, refusal, sample};

/// Ways one file may look.
fn looks(text: &str, syntax: Syntax) -> Vec<(&'static str, String)> {
    let crlf = text.replace('\n', "\r\n");
    let mut looks = vec![
        ("as it is", text.to_owned()),
        ("CRLF", crlf.clone()),
        ("BOM", format!("\u{feff}{text}")),
        ("BOM and CRLF", format!("\u{feff}{crlf}")),
        ("no last line end", text.trim_end().to_owned()),
        ("mixed line ends", text.replacen('\n', "\r\n", 3)),
        ("blank lines after it", format!("{text}\n\n")),
    ];
    match syntax {
        Syntax::Json => {
            looks.push(("tabs", text.replace("  ", "\t")));
            looks.push(("five spaces", text.replace("  ", "     ")));
        }
        // Indentation means something there.
        Syntax::Yaml => {}
        Syntax::Toml => looks.push(("indented", text.replace("\n", "\n  "))),
    }
    looks
}

/// What our entry says must be what we meant; all else must say what it said.
fn check_installed(host: &Host, scope: Scope, before: &str, after: &str, what: &str) {
    let file = host.file(scope).unwrap();
    let said = parsed::file(after, file.syntax);
    let entry =
        parsed::server(&said, file.servers, "onegate").unwrap_or_else(|| panic!("{what}: no entry in\n{after}"));
    let words = [&["/opt/one gate/onegate"], &ARGS[..]].concat();
    assert_eq!(parsed::words(host, entry), words, "{what}");
    if before.trim_start_matches('\u{feff}').trim().is_empty() {
        return;
    }
    let mut rest = said.clone();
    let mut old = parsed::file(before, file.syntax);
    if old.is_null() {
        old = Value::Object(serde_json::Map::new());
    }
    let member = file.servers.member();
    match rest.get_mut(member) {
        Some(Value::Object(servers)) => drop(servers.remove("onegate")),
        Some(Value::Array(servers)) => servers.retain(|server| server["name"] != "onegate"),
        other => panic!("{what}: {other:?}"),
    }
    if old.get(member).is_none_or(Value::is_null) {
        old.as_object_mut().unwrap().remove(member);
        rest.as_object_mut().unwrap().remove(member);
    }
    assert_eq!(rest, old, "{what}");
    // Every line is still there, in its order, comments too; a comma may have come to one.
    let mut now = after.lines();
    for line in before.lines() {
        let is_it = |other: &str| other.replace(',', "") == line.replace(',', "");
        // A map on one line is opened.
        assert!(now.any(is_it) || before.lines().count() < 4, "{what}: {line:?} is gone or moved:\n{after}");
    }
}

fn there_and_back(world: &World, host: &'static Host, scope: Scope, text: &str, what: &str) {
    let path = world.put(host, scope, text.as_bytes());
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    plan(world.install(host, scope)).carry_out().unwrap_or_else(|e| panic!("{what}: {e}"));
    let after = std::fs::read_to_string(&path).unwrap();
    check_installed(host, scope, text, &after, what);
    assert!(matches!(world.install(host, scope), Ok(Todo::Nothing { .. })), "{what}: twice");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640, "{what}");
    if text.contains('\r') && !text.replace("\r\n", "").contains('\n') {
        assert!(!after.replace("\r\n", "").contains('\n'), "{what}: a bare line end came in");
    }
    plan(world.uninstall(host, scope)).carry_out().unwrap_or_else(|e| panic!("{what}: {e}"));
    assert_eq!(std::fs::read(&path).unwrap(), text.as_bytes(), "{what}: not the same bytes");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640, "{what}");
    assert_eq!(world.remembered(), 0, "{what}: something is remembered");
    let beside = std::fs::read_dir(path.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path());
    let left: Vec<_> = beside.filter(|other| other.is_file() && *other != path).collect();
    assert!(left.is_empty(), "{what}: {left:?} is left beside the file");
    // Changed by somebody else meanwhile: their change stays, our entry goes.
    plan(world.install(host, scope)).carry_out().unwrap();
    let after = std::fs::read_to_string(&path).unwrap();
    let comment = if host.file(scope).unwrap().syntax == Syntax::Json { "// theirs\n" } else { "# theirs\n" };
    let mark = if after.starts_with('\u{feff}') { "\u{feff}" } else { "" };
    let theirs = format!("{mark}{comment}{}", after.trim_start_matches('\u{feff}'));
    std::fs::write(&path, &theirs).unwrap();
    plan(world.uninstall(host, scope)).carry_out().unwrap_or_else(|e| panic!("{what}: {e}"));
    let now = std::fs::read_to_string(&path).unwrap();
    assert!(now.contains("theirs") && !now.contains("onegate.toml"), "{what}:\n{now}");
    let syntax = host.file(scope).unwrap().syntax;
    if !text.trim_start_matches('\u{feff}').trim().is_empty() {
        // A member that held nothing may hold nothing in another way, or be gone.
        let member = host.file(scope).unwrap().servers.member();
        let full = |text: &str| {
            let mut said = parsed::file(text, syntax);
            let empty = [Value::Null, Value::Object(serde_json::Map::new()), Value::Array(Vec::new())];
            if said.get(member).is_some_and(|servers| empty.contains(servers)) {
                said.as_object_mut().unwrap().remove(member);
            }
            if said.is_null() { Value::Object(serde_json::Map::new()) } else { said }
        };
        assert_eq!(full(&now), full(text), "{what}:\n{now}");
    }
}

#[test]
fn every_host_on_every_platform_gets_its_bytes_back() {
    let one = |host: &'static Host| {
        let mut count = 0;
        for platform in Platform::ALL {
            let world = World::new(platform);
            let mut looks = looks(&sample(host).0, host.file(Scope::User).unwrap().syntax);
            // How it looks does not hang on where it is.
            looks.truncate(if platform == Platform::Linux { looks.len() } else { 1 });
            for (look, text) in looks {
                there_and_back(&world, host, Scope::User, &text, &format!("{} {platform:?} {look}", host.id));
                count += 1;
            }
        }
        count
    };
    // Most of the time is the disk's.
    let count: usize = std::thread::scope(|scope| {
        let all: Vec<_> = HOSTS.iter().map(|host| scope.spawn(move || one(host))).collect();
        all.into_iter().map(|one| one.join().unwrap()).sum()
    });
    assert!(count >= 12 * (7 + 1 + 1));
}

#[test]
fn project_files_too() {
    for host in HOSTS.iter().filter(|host| host.file(Scope::Project).is_some()) {
        let world = World::new(Platform::Linux);
        there_and_back(&world, host, Scope::Project, &sample(host).0, host.id);
    }
}

#[test]
fn small_and_odd_files() {
    for (host, texts) in [
        (
            "cursor",
            &[
                "{}",
                "{}\n",
                "",
                "\n",
                "{ }",
                "{\"mcpServers\":{}}",
                "{\n  \"mcpServers\": {\n  }\n}\n",
                "{\"a\":1}",
                "// x\n{\n}\n// y\n",
                "{\"mcpServers\": {\"a\": {\"command\": \"a\"}}}",
            ][..],
        ),
        (
            "codex",
            &[
                "",
                "# only a comment\n",
                "model = \"x\"",
                "[mcp_servers]\n",
                "mcp_servers = { a = { command = \"a\" } }\n",
                "[mcp_servers.a]\ncommand=\"a\"\n[mcp_servers.a.env]\nX=\"1\"\n[z]\ny=1 # last",
            ],
        ),
        (
            "goose",
            &[
                "",
                "# c\n",
                "a: 1",
                "extensions: {}\n",
                "extensions: {} # none\nb: 2\n",
                "extensions:\n",
                "extensions:\nb: 2\n",
                "extensions:\n    a:\n        cmd: x\n        type: stdio\nb: |\n  text\n",
            ],
        ),
        (
            "continue",
            &[
                "name: x\nversion: 1\nschema: v1\n",
                "mcpServers: []\n",
                "mcpServers:\n- name: a\n  command: b\nz: 1\n",
                "mcpServers:\n    - name: a\n      command: b\n",
            ],
        ),
    ] {
        let host = hosts::named(host).unwrap();
        for text in texts {
            there_and_back(&World::new(Platform::Linux), host, Scope::User, text, &format!("{} {text:?}", host.id));
        }
    }
}

#[test]
fn a_file_that_was_not_there_is_made_and_goes_again_with_its_folders() {
    for host in HOSTS {
        for platform in Platform::ALL {
            let world = World::new(platform);
            let path = world.file(host, Scope::User);
            plan(world.install(host, Scope::User)).carry_out().unwrap();
            check_installed(host, Scope::User, "", &std::fs::read_to_string(&path).unwrap(), host.id);
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
            plan(world.uninstall(host, Scope::User)).carry_out().unwrap();
            assert!(!path.exists(), "{}", host.id);
            let left = std::fs::read_dir(world.dir.path().join("home")).unwrap().count();
            assert_eq!(left, 1, "{} {platform:?}: folders are left", host.id);
        }
    }
    // What somebody put there meanwhile stays.
    let world = World::new(Platform::Linux);
    let host = hosts::named("cursor").unwrap();
    plan(world.install(host, Scope::User)).carry_out().unwrap();
    let path = world.file(host, Scope::User);
    std::fs::write(path.with_file_name("other"), "x").unwrap();
    plan(world.uninstall(host, Scope::User)).carry_out().unwrap();
    assert!(!path.exists() && path.with_file_name("other").exists());
}

#[test]
fn a_file_that_changed_after_the_look_is_left_alone() {
    for host in HOSTS {
        let world = World::new(Platform::Linux);
        let (text, _) = sample(host);
        let path = world.put(host, Scope::User, text.as_bytes());
        let planned = plan(world.install(host, Scope::User));
        std::fs::write(&path, format!("{text} ")).unwrap();
        let refused = planned.carry_out().unwrap_err().to_string();
        assert!(refused.contains("changed meanwhile"), "{refused}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{text} "));
    }
    let world = World::new(Platform::Linux);
    let host = hosts::named("cursor").unwrap();
    let planned = plan(world.install(host, Scope::User));
    let path = world.put(host, Scope::User, b"{}");
    assert!(planned.carry_out().is_err(), "made meanwhile");
    assert_eq!(std::fs::read(path).unwrap(), b"{}");
}

#[test]
fn broken_files_are_refused_with_their_line_and_stay() {
    for (host, text, part) in [
        ("cursor", "{\n  \"mcpServers\": {\n    \"a\": 1 \"b\"\n", "line 3"),
        ("cursor", "{\n  \"mcpServers\": []\n}", "line 2: `mcpServers` is a list, not a table"),
        ("cursor", "[]", "is a list, not a table"),
        ("cursor", "{\"mcpServers\": {}, \"mcpServers\": {}}", "twice"),
        ("cursor", "{\"mcpServers\": {\"x\": {}, \"x\": {}}}", "twice"),
        ("vscode", "{\"servers\": {'a': 1}}", "line 1"),
        ("codex", "model = \"x\"\nbroken\n", "line 2"),
        ("codex", "mcp_servers = 1\n", "line 1"),
        ("goose", "a: [\n", "line"),
        ("goose", "extensions: {a: {cmd: x}}\n", "laid out in a way"),
        ("goose", "extensions: &x\n  a:\n    cmd: x\n", "laid out in a way"),
        ("continue", "mcpServers:\n  a: 1\n", "is a table, not a list"),
        ("cursor", "\u{0}\u{1}", "line 1"),
    ] {
        let world = World::new(Platform::Linux);
        let host = hosts::named(host).unwrap();
        let path = world.put(host, Scope::User, text.as_bytes());
        let refused = refusal(world.install(host, Scope::User));
        assert!(refused.contains(part) && refused.contains("nothing was changed"), "{text:?}: {refused}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        assert_eq!(world.remembered(), 0);
    }
    let world = World::new(Platform::Linux);
    let host = hosts::named("cursor").unwrap();
    world.put(host, Scope::User, b"{\"a\": \"\xff\"}");
    assert!(refusal(world.install(host, Scope::User)).contains("not UTF-8"));
}

#[test]
fn links_are_followed_read_only_files_are_not_written() {
    let world = World::new(Platform::Linux);
    let host = hosts::named("cursor").unwrap();
    let (text, _) = sample(host);
    let path = world.file(host, Scope::User);
    let real = world.dir.path().join("dotfiles.json");
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&real, &text).unwrap();
    std::os::unix::fs::symlink(&real, &path).unwrap();
    plan(world.install(host, Scope::User)).carry_out().unwrap();
    assert!(std::fs::symlink_metadata(&path).unwrap().is_symlink());
    assert!(std::fs::read_to_string(&real).unwrap().contains("onegate"));
    plan(world.uninstall(host, Scope::User)).carry_out().unwrap();
    assert_eq!(std::fs::read_to_string(&real).unwrap(), text);
    assert!(std::fs::symlink_metadata(&path).unwrap().is_symlink());
    std::fs::set_permissions(&real, std::fs::Permissions::from_mode(0o444)).unwrap();
    assert!(refusal(world.install(host, Scope::User)).contains("read-only"));
    std::fs::remove_file(&real).unwrap();
    assert!(refusal(world.install(host, Scope::User)).contains("link to something that is not there"));
}

#[test]
fn what_is_not_ours_is_not_touched() {
    let world = World::new(Platform::Linux);
    let host = hosts::named("cursor").unwrap();
    let theirs = r#"{"mcpServers": {"onegate": {"command": "other"}}}"#;
    let path = world.put(host, Scope::User, theirs.as_bytes());
    assert!(refusal(world.install(host, Scope::User)).contains("--name"));
    assert!(refusal(world.uninstall(host, Scope::User)).contains("not this gateway"));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), theirs);
    // Our entry changed by somebody since.
    std::fs::write(&path, "{}").unwrap();
    plan(world.install(host, Scope::User)).carry_out().unwrap();
    let changed = std::fs::read_to_string(&path).unwrap().replace("\"run\"", "\"run\", \"--profile\", \"x\"");
    std::fs::write(&path, &changed).unwrap();
    assert!(refusal(world.uninstall(host, Scope::User)).contains("was changed since"));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), changed);
    // Installed anew it is ours again, and goes.
    plan(world.install(host, Scope::User)).carry_out().unwrap();
    plan(world.uninstall(host, Scope::User)).carry_out().unwrap();
    assert!(parsed::json(&std::fs::read_to_string(&path).unwrap())["mcpServers"].get("onegate").is_none());
    assert!(matches!(world.uninstall(host, Scope::User), Ok(Todo::Nothing { .. })));
}

#[test]
fn an_entry_that_nobody_remembers_is_still_taken_out() {
    for host in HOSTS {
        let world = World::new(Platform::Linux);
        let (text, _) = sample(host);
        let path = world.put(host, Scope::User, text.as_bytes());
        plan(world.install(host, Scope::User)).carry_out().unwrap();
        std::fs::remove_dir_all(world.state()).unwrap();
        plan(world.uninstall(host, Scope::User)).carry_out().unwrap();
        let syntax = host.file(Scope::User).unwrap().syntax;
        let now = std::fs::read_to_string(&path).unwrap();
        assert_eq!(parsed::file(&now, syntax), parsed::file(&text, syntax), "{}:\n{now}", host.id);
    }
}

#[test]
fn it_is_taken_out_where_it_was_put_though_a_newer_place_came() {
    let world = World::new(Platform::Linux);
    let host = hosts::named("cline").unwrap();
    let old = world.dir.path().join("home/.cline/mcp.json");
    std::fs::create_dir_all(old.parent().unwrap()).unwrap();
    std::fs::write(&old, "{ }").unwrap();
    plan(world.install(host, Scope::User)).carry_out().unwrap();
    let new = world.dir.path().join("home/.cline/data/settings/cline_mcp_settings.json");
    std::fs::create_dir_all(new.parent().unwrap()).unwrap();
    std::fs::write(&new, "{}").unwrap();
    plan(world.uninstall(host, Scope::User)).carry_out().unwrap();
    assert_eq!(std::fs::read_to_string(&old).unwrap(), "{ }");
    assert_eq!(std::fs::read_to_string(&new).unwrap(), "{}");
}

/// What people wrote beside the members of our entry is theirs: another installation changes what is another, no more.
#[test]
fn comments_inside_our_entry_stay_when_it_is_installed_anew() {
    for (host, text) in [
        (
            "vscode",
            "{\"servers\": {\"onegate\": {\n  // for work\n  \"type\": \"stdio\", // as ever\n  \"command\": \"/old/onegate\",\n  \"args\": [\"run\"]\n}}}\n",
        ),
        ("codex", "[mcp_servers.onegate]\n# for work\ncommand = \"/old/onegate\" # as ever\nargs = [\"run\"]\n"),
    ] {
        let world = World::new(Platform::Linux);
        let host = hosts::named(host).unwrap();
        let path = world.put(host, Scope::User, text.as_bytes());
        plan(world.install(host, Scope::User)).carry_out().unwrap();
        let now = std::fs::read_to_string(&path).unwrap();
        assert!(now.contains("one gate/onegate") && !now.contains("/old/onegate"), "{now}");
        assert!(now.contains("for work") && now.contains("as ever"), "{now}");
        plan(world.uninstall(host, Scope::User)).carry_out().unwrap();
        assert!(!std::fs::read_to_string(&path).unwrap().contains("onegate"), "our entry is gone with them");
    }
}

/// Who removed the host, or only its file, is told so, and nothing is remembered of it.
#[test]
fn a_file_that_is_gone_is_forgotten() {
    for what in ["file", "target of a link", "folder"] {
        let world = World::new(Platform::Linux);
        let host = hosts::named("cursor").unwrap();
        // Its folder is a link, as people keep such files elsewhere.
        let (folder, elsewhere) = (world.dir.path().join("home/.cursor"), world.dir.path().join("elsewhere"));
        std::fs::create_dir_all(&elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &folder).unwrap();
        if what == "target of a link" {
            std::fs::write(world.dir.path().join("dots.json"), "{}").unwrap();
            std::os::unix::fs::symlink(world.dir.path().join("dots.json"), elsewhere.join("mcp.json")).unwrap();
        }
        plan(world.install(host, Scope::User)).carry_out().unwrap();
        let path = world.file(host, Scope::User);
        assert_eq!(world.remembered(), 1, "{what}");
        match what {
            "file" => std::fs::remove_file(&path).unwrap(),
            "folder" => std::fs::remove_dir_all(&elsewhere).unwrap(),
            _ => std::fs::remove_file(path.canonicalize().unwrap()).unwrap(),
        }
        let plan = plan(world.uninstall(host, Scope::User));
        assert!(plan.notes.iter().any(|note| note.contains("is gone")), "{what}: {:?}", plan.notes);
        plan.carry_out().unwrap();
        assert_eq!(world.remembered(), 0, "{what}");
        assert!(!path.exists(), "{what}: nothing is made anew");
        assert!(matches!(world.uninstall(host, Scope::User), Ok(Todo::Nothing { .. })), "{what}");
    }
}

/// Words of the three formats, thrown together: what comes of them is refused, or says what was meant.
const WORDS: [(&str, &[&str]); 4] = [
    (
        "cursor",
        &[
            "{",
            "}",
            "[",
            "]",
            ":",
            ",",
            "\"mcpServers\"",
            "\"a\"",
            "{}",
            "1",
            "null",
            "// c\n",
            "/* c */",
            "\n",
            " ",
            "\r\n",
        ],
    ),
    (
        "codex",
        &[
            "[mcp_servers]\n",
            "[mcp_servers.a]\n",
            "[mcp_servers.onegate]\n",
            "[[x]]\n",
            "a = 1\n",
            "mcp_servers.b = {}\n",
            "# c\n",
            "\n",
            "x = [\n",
            "]\n",
            " ",
            "\"\"\"\n",
        ],
    ),
    (
        "goose",
        &[
            "extensions:",
            "\n",
            "\n  a:",
            "\n    cmd: x",
            "\n  onegate:\n    cmd: onegate\n    args: [run]",
            " {}",
            " # c",
            "\n# c\n",
            "\nb: |\n  t\n",
            "---\n",
            "...\n",
            " &x",
            "\n\t",
        ],
    ),
    (
        "continue",
        &[
            "mcpServers:",
            "\n",
            "\n  - name: a",
            "\n- name: b",
            "\n    command: x",
            " []",
            " # c",
            "\nz:\n  - name: q",
            "\n  -\n    name: c",
            "\"",
            "- ",
        ],
    ),
];

proptest! {
    #[test]
    fn thrown_together_files_are_edited_rightly_or_not_at_all(
        format in 0..WORDS.len(),
        picks in proptest::collection::vec(0..100_usize, 0..14),
    ) {
        let (host, words) = WORDS[format];
        let host = hosts::named(host).unwrap();
        let text: String = picks.iter().map(|pick| words[pick % words.len()]).collect();
        let world = World::new(Platform::Linux);
        let path = world.put(host, Scope::User, text.as_bytes());
        if let Ok(Todo::Change(plan)) = world.install(host, Scope::User) {
            plan.carry_out().unwrap();
            let after = std::fs::read_to_string(&path).unwrap();
            let file = host.file(Scope::User).unwrap();
            let said = parsed::file(&after, file.syntax);
            prop_assert!(parsed::server(&said, file.servers, "onegate").is_some(), "{after}");
            std::fs::write(&path, format!("{after}\n")).unwrap();
            plan_or_refused(world.uninstall(host, Scope::User));
        }
        let now = std::fs::read_to_string(&path).unwrap();
        prop_assert!(!now.contains("one gate/onegate") || now.contains(&text), "{now}");
    }
}

fn plan_or_refused(todo: Result<Todo, onegate::adopt::install::Refused>) {
    if let Ok(Todo::Change(plan)) = todo {
        plan.carry_out().unwrap();
    }
}

#[test]
fn i_34_no_preview_shows_a_secret() {
    let world = World::new(Platform::Linux);
    let host = hosts::named("windsurf").unwrap();
    world.put(host, Scope::User, sample(host).0.as_bytes());
    let diff = plan(world.install(host, Scope::User)).diff();
    assert!(diff.contains("[secret]") && !diff.contains("figd_abc"), "{diff}");
    let host = hosts::named("claude-code").unwrap();
    world.put(host, Scope::User, sample(host).0.as_bytes());
    let diff = plan(world.install(host, Scope::User)).diff();
    assert!(!diff.contains("oat01") && !diff.contains("pa55word"), "{diff}");
    let record = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    plan(world.install(host, Scope::User)).carry_out().unwrap();
    for folder in std::fs::read_dir(world.state().join("hosts")).unwrap() {
        let folder = folder.unwrap().path();
        assert_eq!(record(&folder), 0o700);
        for file in std::fs::read_dir(folder).unwrap() {
            assert_eq!(record(&file.unwrap().path()), 0o600, "what was there may hold secrets");
        }
    }
}
