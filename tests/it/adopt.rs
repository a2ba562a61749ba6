//! Moving in and out with the whole program: the tour of `docs/adopt.md`, the edits of our own file, `doctor`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use sha2::Digest as _;

use crate::host::{Output, PATIENCE, Setup, onegate, wait_exit};

/// A home with the program in it, and a folder to work in.
struct Home(Setup);

impl Home {
    fn new() -> Self {
        let home = Self(Setup::new());
        std::fs::create_dir_all(home.path(".cargo/bin")).unwrap();
        std::os::unix::fs::symlink(onegate(), home.path(".cargo/bin/onegate")).unwrap();
        home
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path("home").join(name)
    }

    fn put(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// Runs the program in the home folder; both of its outputs as a terminal shows them.
    #[expect(clippy::disallowed_methods, reason = "the tests start the program under test")]
    fn run(&self, args: &[&str]) -> Output {
        let (both, out) = (self.0.path("both"), self.0.path("out"));
        let file = std::fs::File::create(&both).unwrap();
        let json = args.contains(&"--json");
        let stdout = if json { std::fs::File::create(&out).unwrap() } else { file.try_clone().unwrap() };
        let mut command = Command::new(self.path(".cargo/bin/onegate"));
        command.args(args).env_clear().current_dir(self.path(""));
        command.env("HOME", self.path("")).env("PATH", self.path(".cargo/bin")).env("USER", "you");
        command.stdin(Stdio::null()).stdout(stdout).stderr(file);
        let mut child = command.spawn().unwrap();
        let status = wait_exit(&mut child, PATIENCE).unwrap_or_else(|| {
            let _ = child.kill();
            panic!("{args:?} did not end");
        });
        let text = std::fs::read_to_string(if json { &out } else { &both }).unwrap();
        Output { code: status.code(), out: text, err: std::fs::read_to_string(&both).unwrap() }
    }

    /// The same, expected to end so; gives what was shown.
    fn ends(&self, args: &[&str], code: i32) -> String {
        let output = self.run(args);
        assert_eq!(output.code, Some(code), "{args:?}: {}{}", output.out, output.err);
        output.out
    }

    fn json(&self, args: &[&str], code: i32) -> Value {
        let args = [args, &["--json"]].concat();
        let text = self.ends(&args, code);
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("{args:?}: {text}"))
    }
}

const OURS: &str = ".config/onegate/onegate.toml";

/// The words of a line as a shell takes them, as far as the pages go.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (n, part) in line.split('\'').enumerate() {
        if n % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}

/// Each command of the page is run, and must show what the page shows.
#[test]
fn the_tour_of_the_page_is_true() {
    let home = Home::new();
    let page_at = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/adopt.md");
    let page = std::fs::read_to_string(&page_at).unwrap();
    let sample = page.split_once("```json\n").unwrap().1.split_once("```").unwrap().0;
    home.put(".cursor/mcp.json", sample);
    let real = home.path("");
    let real = real.to_str().unwrap().trim_end_matches('/');
    let (mut told, mut count) = (String::new(), 0);
    for (n, part) in page.split("```").enumerate() {
        if n > 0 {
            told.push_str("```");
        }
        let Some(block) = part.strip_prefix("console\n") else {
            told.push_str(part);
            continue;
        };
        told.push_str("console\n");
        for line in block.lines().filter_map(|line| line.strip_prefix("$ ")) {
            count += 1;
            let line_words = words(line);
            let args: Vec<&str> = line_words[1..].iter().map(String::as_str).collect();
            let shown = match line_words[0].as_str() {
                "onegate" => home.run(&args).out,
                "cat" => home.read(args[0]),
                other => panic!("{other}"),
            };
            told.push_str(&format!("$ {line}\n{}", shown.replace(real, "/home/you")));
        }
    }
    if std::env::var_os("ONEGATE_TEST_ACCEPT").is_some() {
        std::fs::write(&page_at, &told).unwrap();
    }
    let page = std::fs::read_to_string(&page_at).unwrap();
    assert!(count >= 12, "only {count} commands found");
    for (theirs, ours) in page.lines().zip(told.lines()) {
        assert_eq!(theirs, ours, "the page does not show what happens:\n{told}");
    }
    assert_eq!(page, told);
    // The end of the tour is its beginning.
    assert_eq!(home.read(".cursor/mcp.json"), sample);
    for secret in ["ghp_0123456789", "tickets-0123456789"] {
        assert!(page.matches(secret).count() == 1, "a secret was shown");
    }
}

#[test]
fn d025_importing_shows_no_secret_and_the_server_gets_it() {
    let secret = "canary-0123456789";
    let home = Home::new();
    let scenario = home.0.scenario("a", json!({"tool_count": 1, "act": {"do": "env"}}));
    let server = json!({"command": crate::host::fake(), "args": scenario, "env": {"API_TOKEN": secret, "PLAIN": "x"}});
    home.put("servers.json", &json!({"mcpServers": {"My Server": server}}).to_string());
    for args in [
        &["import", "servers.json"][..],
        &["import", "servers.json", "--json"],
        &["import", "servers.json", "--merge", "--dry-run"],
        &["import", "servers.json", "--merge", "--json"],
        &["import", "servers.json", "--merge"],
        &["doctor"],
    ] {
        let output = home.run(args);
        assert!(!output.out.contains(secret) && !output.err.contains(secret), "{args:?}: {}", output.out);
    }
    assert!(!home.read(OURS).contains(secret));
    let got = home.ends(&["call", "my-server__t000"], 0);
    let variables: Value = serde_json::from_str(got.trim()).unwrap_or_else(|_| panic!("{got}"));
    assert_eq!((&variables["API_TOKEN"], &variables["PLAIN"]), (&json!(secret), &json!("x")));
}

#[test]
fn our_own_file_is_edited_in_place() {
    let home = Home::new();
    let before = "# mine\n[gateway]\nname_budget = 40 # short\n\n[servers.b]   # the second\ncommand = \"onegate\"\nargs = [\"demo-server\", \"notes\"]\n\n# last words\n";
    home.put(OURS, before);
    let add = ["add", "clock", "--env", "LEVEL=1", "--", "onegate", "demo-server", "clock"];
    assert!(home.ends(&add, 0).contains("clock added"));
    let now = home.read(OURS);
    for line in before.lines() {
        assert!(now.lines().any(|other| other == line), "{line}: {now}");
    }
    assert!(
        now.contains(
            "[servers.clock]\ncommand = \"onegate\"\nargs = [\"demo-server\", \"clock\"]\nenv = { LEVEL = \"1\" }"
        ),
        "{now}"
    );
    assert!(home.ends(&["tools"], 0).contains("clock__now"));
    assert!(home.ends(&add, 2).contains("is there already"));
    home.ends(&["add", "tickets", "--url", "https://t.example/mcp", "--header", "Authorization: Bearer ${env:T}"], 0);
    assert!(home.read(OURS).contains("headers = { Authorization = \"Bearer ${env:T}\" }"));
    home.ends(&["remove", "tickets"], 0);
    assert_eq!(home.read(OURS), now);
    home.ends(&["disable", "clock"], 0);
    assert!(!home.ends(&["tools"], 0).contains("clock__now"));
    assert!(home.ends(&["disable", "clock"], 0).contains("already"));
    home.ends(&["enable", "clock"], 0);
    assert!(home.ends(&["tools"], 0).contains("clock__now"));
    home.ends(&["remove", "clock"], 0);
    assert_eq!(home.read(OURS), before);
    assert!(home.ends(&["remove", "clock"], 2).contains("has no server `clock`"));
}

#[test]
fn an_edit_that_would_be_wrong_is_refused_with_the_fault() {
    let home = Home::new();
    let before = "[servers.a]\ncommand = \"onegate\"\n[profiles.p]\nservers = [\"a\"]\n";
    home.put(OURS, before);
    for (args, part) in [
        (&["remove", "a"][..], "profiles.p.servers"),
        (&["add", "B", "--", "x"], "a server key is"),
        (&["add", "onegate", "--", "x"], "reserved"),
        (&["add", "b", "--url", "ftp://x"], "servers.b.url"),
        (&["add", "b", "--url", "https://x/mcp", "--header", "no"], "NAME: VALUE"),
        (&["add", "b", "--url", "https://x/mcp", "--header", "Host: x"], "servers.b.headers"),
        (&["add", "b"], "required"),
    ] {
        let shown = home.ends(args, 2);
        assert!(shown.contains(part), "{args:?}: {shown}");
        assert_eq!(home.read(OURS), before);
    }
    home.put(OURS, "[servers\n");
    assert!(home.ends(&["enable", "a"], 2).contains("line 1"));
    assert_eq!(home.read(OURS), "[servers\n");
}

#[test]
fn init_writes_a_file_that_is_trusted_and_stays_so() {
    let home = Home::new();
    home.ends(&["init"], 0);
    assert!(home.ends(&["init"], 1).contains("is there already"));
    assert!(home.ends(&["check"], 0).contains("0 servers"));
    home.ends(&["add", "clock", "--", "onegate", "demo-server", "clock"], 0);
    // Still trusted, since the change was ours; not so after somebody else's.
    assert!(home.ends(&["check"], 0).contains("1 server: clock"));
    let text = home.read("onegate.toml");
    home.put("onegate.toml", &format!("{text}\n"));
    assert!(home.ends(&["check"], 0).contains("not trusted"));
    home.ends(&["disable", "clock"], 0);
    assert!(home.ends(&["check"], 0).contains("not trusted"), "an edit is no yes to what others wrote");
    home.ends(&["init", "--user"], 0);
    assert!(home.path(OURS).exists());
    // A file that is found from here only is named in the host's entry.
    home.ends(&["trust"], 0);
    home.ends(&["install", "cursor"], 0);
    let entry: Value = serde_json::from_str(&home.read(".cursor/mcp.json")).unwrap();
    let entry = &entry["mcpServers"]["onegate"];
    assert_eq!(entry["args"], json!(["run", "--config", home.path("onegate.toml")]));
    assert_eq!(entry["command"], json!(home.path(".cargo/bin/onegate")));
}

#[test]
fn init_does_not_trust_what_lay_there_before() {
    let home = Home::new();
    home.put("onegate.d/10.toml", "[servers.theirs]\ncommand = \"onegate\"\n");
    assert!(home.ends(&["init"], 0).contains("not trusted yet"));
    assert!(home.ends(&["check"], 0).contains("not trusted"));
    home.ends(&["trust"], 0);
    assert!(home.ends(&["check"], 0).contains("theirs"));
}

#[test]
fn files_beside_ours_count_when_servers_are_taken_over() {
    let home = Home::new();
    home.put(OURS, "");
    home.put(".config/onegate/onegate.d/10.toml", "[servers.clock]\ncommand = \"onegate\"\n");
    assert!(home.ends(&["add", "clock", "--", "other"], 2).contains("is there already"));
    let theirs = r#"{"mcpServers": {"same": {"command": "onegate"}, "clock": {"command": "other"}}}"#;
    home.put("mcp.json", theirs);
    let told = home.json(&["import", "./mcp.json", "--merge", "--yes"], 0);
    assert_eq!(told["added"], json!(["clock-2"]));
}

#[test]
fn the_host_s_own_entry_works() {
    let home = Home::new();
    home.put(OURS, "[servers.clock]\ncommand = \"onegate\"\nargs = [\"demo-server\", \"clock\"]\n[profiles.p]\nservers = [\"clock\"]\n");
    let told = home.json(&["install", "vscode", "--profile", "p", "--config", OURS], 0);
    assert_eq!((&told["host"], &told["changed"]), (&json!("vscode"), &json!(true)));
    assert!(home.ends(&["install", "vscode", "--profile", "q"], 2).contains("no profile"));
    let said: Value = serde_json::from_str(&home.read(".config/Code/User/mcp.json")).unwrap();
    let entry = &said["servers"]["onegate"];
    let args: Vec<&str> = entry["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap()).collect();
    assert_eq!((args[0], args.last()), ("run", Some(&"--host-defers")), "it puts tools off itself");
    // The same words with another command: they load what they should.
    let shown = home.ends(&[&["tools"], &args[1..]].concat(), 0);
    assert!(shown.contains("clock__now"), "{shown}");
    let told = home.json(&["install", "zed", "--dry-run"], 0);
    assert!(!told["diff"].as_str().unwrap().contains("defers"), "it does not: {told}");
    home.ends(&["uninstall", "vscode"], 0);
    assert!(!home.path(".config/Code").exists(), "what was made is gone");
    assert!(home.ends(&["uninstall", "vscode"], 0).contains("nothing to do"));
    assert!(home.ends(&["install", "nobody"], 2).contains("claude-desktop"));
    assert!(home.ends(&["install", "windsurf", "--scope", "project"], 1).contains("it has: user"));
    assert!(home.ends(&["import", "nobody"], 2).contains("neither a host nor a file"));
}

#[test]
fn doctor_finds_what_is_missing_and_says_what_helps() {
    let home = Home::new();
    home.put(OURS, "[servers.clock]\ncommand = \"onegate\"\nargs = [\"demo-server\", \"clock\"]\n");
    use std::os::unix::fs::PermissionsExt as _;
    let mode =
        |name: &str, mode| std::fs::set_permissions(home.path(name), std::fs::Permissions::from_mode(mode)).unwrap();
    mode(OURS, 0o600);
    assert!(home.ends(&["doctor"], 0).contains("Nothing to complain about: 1 server"));
    home.put("npx", "#!/bin/sh\n");
    mode("npx", 0o755);
    home.put("secrets/t", "x");
    mode("secrets/t", 0o644);
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = closed.local_addr().unwrap().port();
    drop(closed);
    home.put(
        OURS,
        &format!(
            "[gateway]\nname_budget = 64\n\
             [servers.gone]\ncommand = \"not-there\"\n\
             [servers.unset]\ncommand = \"onegate\"\nargs = [\"${{env:NOT_SET}}\"]\n\
             [servers.floats]\ncommand = \"{0}/npx\"\nargs = [\"-y\", \"pkg\"]\n\
             [servers.open]\ncommand = \"onegate\"\nenv = {{ A_TOKEN = \"canary-secret\", B = \"${{file:{0}/secrets/t}}\" }}\n\
             [servers.far]\nurl = \"http://127.0.0.1:{port}/mcp\"\n",
            home.path("").to_str().unwrap().trim_end_matches('/')
        ),
    );
    mode(OURS, 0o666);
    home.put(".claude.json", r#"{"mcpServers": {"onegate": {"command": "/gone/onegate", "args": ["run"]}, "x": {"command": "onegate", "env": {"A_TOKEN": "canary-secret", "B": "x"}}}}"#);
    let told = home.json(&["doctor", "--online"], 1);
    let kinds = |told: &Value| {
        let findings = told["findings"].as_array().unwrap().iter();
        let mut kinds: Vec<_> = findings
            .map(|f| {
                format!("{} {}", f["kind"].as_str().unwrap(), f["about"].as_str().unwrap().rsplit('/').next().unwrap())
            })
            .collect();
        kinds.sort();
        kinds
    };
    assert_eq!(
        kinds(&told),
        [
            "budget .claude.json",
            "command gone",
            "entry .claude.json",
            "mode onegate.toml",
            "mode onegate.toml",
            "mode t",
            "secret open",
            "unreachable far",
            "variable unset",
            "version floats",
        ],
        "{told}"
    );
    assert!(!told.to_string().contains("canary-secret"));
    assert!(told["findings"].as_array().unwrap().iter().all(|f| !f["remedy"].as_str().unwrap().is_empty()));
    assert!(
        !kinds(&home.json(&["doctor"], 1)).contains(&"unreachable far".to_owned()),
        "the network was asked unasked"
    );
    // A server of ours in the host too.
    home.put(OURS, "[servers.x]\ncommand = \"onegate\"\nargs = [\"demo-server\", \"clock\"]\n");
    home.put(".claude.json", r#"{"mcpServers": {"onegate": {"command": "onegate", "args": ["run"]}, "y": {"command": "onegate", "args": ["demo-server", "clock"]}}}"#);
    mode(OURS, 0o600);
    let told = home.json(&["doctor"], 1);
    assert_eq!(kinds(&told), ["twice .claude.json"]);
}

/// Issue 5: one principal for each installation, by a token that is written when it is installed.
#[test]
fn s_15_an_installation_has_a_token_of_its_own() {
    let home = Home::new();
    let before = "# mine\n[servers.a] # here\nurl = \"http://127.0.0.1:1/\"\n";
    home.put(OURS, before);
    let install = ["install", "cursor", "--as", "laptop", "--yes"];
    let shown = home.ends(&["install", "cursor", "--as", "laptop", "--dry-run"], 0);
    assert!(shown.contains("+[[auth.stdio]]") && shown.contains("/laptop (new, for you alone)"), "{shown}");
    let tokens = home.path(".local/state/onegate/tokens");
    assert!(home.read(OURS) == before && !tokens.exists(), "a preview writes nothing");
    let told = home.json(&install, 0);
    let token = PathBuf::from(told["as"]["token_file"].as_str().unwrap());
    let secret = std::fs::read_to_string(&token).unwrap();
    let secret = secret.trim();
    assert!(told["as"]["name"] == "laptop" && token.starts_with(&tokens), "{told}");
    let hash = data_encoding::HEXLOWER.encode(&sha2::Sha256::digest(secret.as_bytes()));
    let entry = format!("\n[[auth.stdio]]\nname = \"laptop\"\nhash = \"sha256:{hash}\"\n");
    assert_eq!(home.read(OURS), format!("{before}{entry}"));
    let host: Value = serde_json::from_str(&home.read(".cursor/mcp.json")).unwrap();
    let args: Vec<_> = host["mcpServers"]["onegate"]["args"].as_array().unwrap().iter().collect();
    assert_eq!(args, ["run", "--token-file", token.to_str().unwrap()]);
    let args: Vec<_> = args.into_iter().map(|arg| arg.as_str().unwrap()).collect();
    home.ends(&args, 0);
    // Nobody but its file has it.
    for everything in [&shown, &told.to_string(), &home.read(OURS), &home.read(".cursor/mcp.json")] {
        assert!(!everything.contains(secret));
    }
    // Once more, with the name or without, it is there already; another host is somebody else.
    for again in [&install[..], &["install", "cursor", "--yes"]] {
        assert_eq!(home.json(again, 0)["changed"], false, "{again:?}");
    }
    for (refused, why) in [
        (["install", "cursor", "--as", "other", "--yes"], "uninstall that first"),
        (["install", "windsurf", "--as", "laptop", "--yes"], "a token `laptop` already"),
        (["install", "windsurf", "--as", "a/b", "--yes"], "is no name"),
    ] {
        let told = home.ends(&refused, 2);
        assert!(told.contains(why), "{told}");
    }
    assert_eq!(std::fs::read_to_string(&token).unwrap().trim(), secret, "those took nothing");
    // One that is lost is made anew, with what people added to its entry.
    home.put(OURS, &format!("{}groups = [\"dev\"]\n", home.read(OURS)));
    std::fs::remove_file(&token).unwrap();
    home.ends(&args, 2);
    home.ends(&["install", "cursor", "--yes"], 0);
    home.ends(&args, 0);
    assert!(home.read(OURS).ends_with("groups = [\"dev\"]\n") && !home.read(OURS).contains(&hash));
    let shown = home.ends(&["uninstall", "cursor", "--yes"], 0);
    assert!(shown.contains("(removed): the token of `laptop`"), "{shown}");
    assert!(!token.exists() && !home.path(".cursor/mcp.json").exists());
    assert_eq!(home.read(OURS), before, "to the byte");
    assert_eq!(std::fs::read_dir(&tokens).unwrap().count(), 0);
    // A host's file that is not ours to change leaves nothing behind.
    home.put(".cursor/mcp.json", r#"{"mcpServers":{"onegate":{"command":"other"}}}"#);
    home.ends(&install, 1);
    assert!(home.read(OURS) == before && !token.exists());
}

/// Names are a configuration's own: two that use the same one take nothing from each other.
#[test]
fn s_15_the_tokens_of_two_configurations_are_two() {
    let home = Home::new();
    let text = "[servers.a]\nurl = \"http://127.0.0.1:1/\"\n";
    let (one, two) = (home.put("one.toml", text), home.put("two.toml", text));
    let (one, two) = (one.to_str().unwrap(), two.to_str().unwrap());
    let install = |host, config| {
        home.ends(&["install", host, "--as", "laptop", "--config", config, "--yes"], 0);
        let file = home.path(if host == "cursor" { ".cursor/mcp.json" } else { ".codeium/windsurf/mcp_config.json" });
        let entry: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
        let args = entry["mcpServers"]["onegate"]["args"].as_array().unwrap().iter();
        args.map(|arg| arg.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let starts = |args: &[String], code| {
        home.ends(&args.iter().map(String::as_str).collect::<Vec<_>>(), code);
    };
    let (first, second) = (install("cursor", one), install("windsurf", two));
    starts(&first, 0);
    starts(&second, 0);
    // The token of one proves nothing to the other, and stays where it is needed.
    let told = home.ends(&["install", "cursor", "--as", "laptop", "--config", two, "--yes"], 2);
    assert!(told.contains("one.toml: uninstall that first"), "{told}");
    home.ends(&["uninstall", "cursor", "--yes"], 0);
    starts(&first, 2);
    starts(&second, 0);
    home.ends(&["uninstall", "windsurf", "--yes"], 0);
    assert_eq!((home.read("one.toml").as_str(), home.read("two.toml").as_str()), (text, text));
}

/// What proves something goes first; what could not be looked at is said to be so.
#[test]
fn s_15_a_configuration_that_may_not_be_written_keeps_no_token_alive() {
    use std::os::unix::fs::PermissionsExt as _;
    let home = Home::new();
    let file = home.put(OURS, "[servers.a]\nurl = \"http://127.0.0.1:1/\"\n");
    let told = home.json(&["install", "cursor", "--as", "laptop", "--yes"], 0);
    let token = PathBuf::from(told["as"]["token_file"].as_str().unwrap());
    let before = home.read(OURS);
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o400)).unwrap();
    let told = home.ends(&["uninstall", "cursor", "--yes"], 0);
    assert!(told.contains("its hash stays where it is") && told.contains("read-only"), "{told}");
    assert!(!told.contains("any more"), "{told}");
    assert!(!token.exists() && !home.path(".cursor/mcp.json").exists() && home.read(OURS) == before);
}
