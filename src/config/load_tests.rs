//! Tests of the whole way, each in a world of its own: folders, programs and an environment.
//!
//! Long, and one thing: each needs the whole way and that world. Those of `[policy]` are in `policy_tests.rs`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use super::super::settings::{
    AuthMode, Effect, EraChoice, Launch, LogFormat, Reach, Remote, ServerSettings, Sharing, Start,
};
use super::super::tree::Value;
use super::*;

#[path = "policy_tests.rs"]
mod policy;

/// A machine of its own.
struct World {
    root: tempfile::TempDir,
    variables: Vec<(String, String)>,
    files: Vec<PathBuf>,
    flags: Vec<(Flag, String)>,
}

impl World {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let world = Self {
            variables: vec![
                ("PATH".into(), path(root.path(), "bin")),
                ("HOME".into(), path(root.path(), "home")),
                ("CANARY".into(), "canary-value".into()),
            ],
            root,
            files: Vec::new(),
            flags: Vec::new(),
        };
        for folder in ["bin", "home", "work", "etc"] {
            fs::create_dir(world.root.path().join(folder)).unwrap();
        }
        for name in ["npx", "uvx", "sh", "tickets-mcp", "database-mcp", "old-mcp-server"] {
            world.program(&format!("bin/{name}"));
        }
        world
    }

    fn program(&self, name: &str) {
        let path = self.write(name, "#!/bin/false\n");
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.root.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    fn var(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.into(), value.into()));
        self
    }

    /// Writes `work/NAME` and names it with `--config`.
    fn config(mut self, name: &str, text: &str) -> Self {
        self.write(&format!("work/{name}"), text);
        self.files.push(name.into());
        self
    }

    fn options(&self) -> LoadOptions {
        LoadOptions {
            files: self.files.clone(),
            environment: self.variables.iter().cloned().collect(),
            cwd: self.root.path().join("work"),
            etc: self.root.path().join("etc"),
            flags: self.flags.clone(),
        }
    }

    fn load(&self) -> Loaded {
        match load(&self.options()) {
            Ok(loaded) => loaded,
            Err(faults) => panic!("{faults}"),
        }
    }

    fn faults(&self) -> String {
        match load(&self.options()) {
            Ok(_) => panic!("it loads"),
            Err(faults) => faults.to_string(),
        }
    }
}

fn path(root: &Path, name: &str) -> String {
    root.join(name).to_str().unwrap().to_owned()
}

fn server<'l>(loaded: &'l Loaded, key: &str) -> &'l ServerSettings {
    let servers = &loaded.settings.servers;
    servers.iter().find(|s| s.key.as_str() == key).unwrap()
}

fn launch<'l>(loaded: &'l Loaded, key: &str) -> &'l Launch {
    match &server(loaded, key).reach {
        Ok(Reach::Launch(launch)) => launch,
        Ok(Reach::Remote(_)) => panic!("no process"),
        Err(fault) => panic!("{fault:?}"),
    }
}

fn remote<'l>(loaded: &'l Loaded, key: &str) -> &'l Remote {
    match &server(loaded, key).reach {
        Ok(Reach::Remote(remote)) => remote,
        Ok(Reach::Launch(_)) => panic!("a process"),
        Err(fault) => panic!("{fault:?}"),
    }
}

/// Its headers, revealed.
fn headers(remote: &Remote) -> Vec<(&str, &str)> {
    remote.headers.iter().map(|(name, value)| (name.as_str(), value.reveal())).collect()
}

fn args(launch: &Launch) -> Vec<&str> {
    launch.args.iter().map(|arg| arg.reveal()).collect()
}

fn env<'l>(launch: &'l Launch, name: &str) -> Option<&'l str> {
    launch.env.get(std::ffi::OsStr::new(name)).map(|s| s.reveal())
}

fn notes(loaded: &Loaded) -> String {
    let lines: Vec<_> = loaded.notes.iter().map(Note::to_string).collect();
    lines.join("\n")
}

fn folder(name: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

const ONE: &str = "[servers.a]\ncommand = \"npx\"\n";

#[test]
fn nothing_found_is_the_defaults() {
    let loaded = World::new().load();
    assert!(loaded.sources.is_empty() && loaded.settings.servers.is_empty());
    assert_eq!(loaded.settings.gateway.name_budget, 45);
    assert_eq!(loaded.settings.telemetry.log, "info");
    assert_eq!(loaded.settings.telemetry.format, LogFormat::Pretty);
    assert!(loaded.settings.gateway.state.ends_with("home/.local/state/onegate"));
}

#[test]
fn a_server_has_the_defaults_of_the_reference() {
    let loaded = World::new().config("c.toml", ONE).load();
    let a = server(&loaded, "a");
    assert_eq!((a.start, a.era), (Start::Lazy, EraChoice::Auto));
    assert_eq!((a.prefix.as_str(), a.idle_stop, &a.title), ("a", None, &None));
    assert_eq!(a.timeouts.start, Duration::from_secs(60));
    assert_eq!(a.timeouts.probe, Duration::from_secs(3));
    assert_eq!(a.timeouts.call, Duration::from_secs(60));
    assert_eq!(a.timeouts.call_max, Duration::from_secs(900));
    assert!(a.tools.allow.is_none() && a.tools.deny.is_empty());
    assert!(launch(&loaded, "a").program.ends_with("bin/npx"));
}

#[test]
fn default_toml_is_the_defaults_and_has_every_key() {
    let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/config/default.toml")).unwrap();
    let parsed = |text: &str| {
        let world = World::new();
        world.write("work/house-ca.pem", "");
        // Other builds refuse it.
        let taken = if cfg!(feature = "tokenizer") { text } else { &text.replace("\ntokenizer = ", "\n#tokenizer = ") };
        let world = world.config("c.toml", taken).var("TICKETS_TOKEN", "t").var("COLLECTOR_TOKEN", "t");
        let world = world.var("ONEGATE_SEAL_KEY", &"k".repeat(32));
        world.load();
        layer(text)
    };
    // As it stands: the defaults.
    let layer = parsed(&text);
    assert!(layers::merge(&[layer]).unwrap() == schema::File::default());

    // With its forms switched on: every key, and those that have a default hold it.
    let all: Vec<&str> = text
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(form) if form.starts_with(|c: char| c.is_ascii_lowercase() || c == '[') => form,
            _ => line,
        })
        .collect();
    let layer = parsed(&all.join("\n"));
    let mut missing = Vec::new();
    every_key(&schema::SHAPE, &layer.node, "", &mut missing);
    assert!(missing.is_empty(), "not in default.toml: {missing:?}");
    let mut file = layers::merge(&[layer]).unwrap();
    assert_eq!(file.pins.lock.take().as_deref(), Some("onegate.lock"));
    assert!(file.search.model.take().is_some() && file.gateway.tokenizer.take().is_some());
    let default = schema::Server::default();
    let mut server = file.servers.remove("example").unwrap();
    assert!(server.command.take().is_some() && server.cwd.take().is_some());
    assert_eq!(server.prefix.take().as_deref(), Some("example"));
    assert_eq!((server.limits.concurrency.take(), server.limits.burst.take()), (Some(8), Some(50)));
    assert!(server.pin.take().is_some());
    assert!(server.limits.rate.take().is_some() && server.r#override.remove("read_file").is_some());
    server.args = default.args.clone();
    server.env = default.env.clone();
    let schema::Server { tools, prompts, resources, templates, roots, .. } = &mut server;
    *tools = schema::Tools::default();
    for items in [prompts, resources, templates, roots] {
        *items = schema::Items::default();
    }
    assert!(server == default, "a default of [servers.*] is written wrongly");
    let mut remote = file.servers.remove("remote").unwrap();
    assert_eq!(remote.ca.take().as_deref(), Some("house-ca.pem"));
    assert!(remote.url.take().is_some() && remote.transport.take() == Some(schema::Transport::Http));
    remote.headers.clear();
    assert!(remote == default, "a default of a remote server is written wrongly");
}

/// Notes the keys of `shape` that `node` does not have.
fn every_key(shape: &super::super::check::Shape, node: &Node, at: &str, missing: &mut Vec<String>) {
    use super::super::check::Shape;
    if let Shape::Table(keys) = shape {
        for (name, shape) in *keys {
            match node.get(name) {
                Some(node) => every_key(shape, node, &format!("{at}.{name}"), missing),
                None => missing.push(format!("{at}.{name}")),
            }
        }
    } else if let Shape::Members { each, .. } = shape {
        // A key is there when one of the members has it.
        let lacks = |member: &Node| {
            let mut missing = Vec::new();
            every_key(each, member, &format!("{at}.*"), &mut missing);
            missing
        };
        let lacking: Vec<_> = node.entries().iter().map(|entry| lacks(&entry.node)).collect();
        assert!(!lacking.is_empty(), "{at} has no member");
        missing.extend(lacking[0].iter().filter(|key| lacking.iter().all(|one| one.contains(key))).cloned());
    } else if let (Shape::Tables(each), Value::List(items)) = (shape, &node.value) {
        every_key(each, &items[0], &format!("{at}[]"), missing);
    } else if let Shape::Either(_, table) = shape {
        every_key(table, node, at, missing);
    }
}

/// A layer without a file.
fn layer(text: &str) -> Layer {
    Layer {
        node: tree::toml(text).unwrap(),
        place: Place::default(),
        style: Style::Own,
        base: PathBuf::from("/"),
        organisation: false,
    }
}

#[test]
fn every_example_loads() {
    let mut found = 0;
    for path in folder("config/examples") {
        let mut world = World::new().var("TICKETS_TOKEN", "t");
        world.program("work/bin/notes-server");
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let text = fs::read_to_string(&path).unwrap();
        world = world.config(&name, &text);
        let loaded = world.load();
        assert!(!loaded.settings.servers.is_empty(), "{name}");
        // What an example names must be there, but for the secret file.
        for fault in &loaded.server_faults {
            assert_eq!(fault.key, "servers.database.env.PGPASSWORD", "{name}: {fault}");
        }
        found += 1;
    }
    assert!(found >= 7, "{found} examples found");
}

#[test]
fn every_valid_file_loads() {
    let mut found = 0;
    for path in folder("tests/config/valid") {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let world = World::new().config(&name, &fs::read_to_string(&path).unwrap());
        let loaded = world.load();
        assert!(loaded.server_faults.is_empty(), "{name}: {:?}", loaded.server_faults);
        found += 1;
    }
    assert!(found >= 5, "{found} files found");
}

/// `NAME.txt` beside `NAME.toml` holds the expected faults; `UPDATE_FAULTS=1` writes them for review.
#[test]
fn every_invalid_file_is_refused_with_its_faults() {
    let mut found = 0;
    for path in folder("tests/config/invalid") {
        if path.extension().is_some_and(|extension| extension == "txt") {
            continue;
        }
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let world = World::new().config(&name, &fs::read_to_string(&path).unwrap());
        let faults = format!("{}\n", world.faults());
        let expected = path.with_extension("txt");
        if std::env::var_os("UPDATE_FAULTS").is_some() {
            fs::write(&expected, &faults).unwrap();
        }
        assert_eq!(faults, fs::read_to_string(&expected).unwrap(), "{name}");
        assert!(!faults.contains("s3cret"), "{name} shows a secret (I-34): {faults}");
        found += 1;
    }
    assert!(found >= 10, "{found} files found");
}

#[test]
fn faults_of_all_layers_come_at_once_d026() {
    let mut world = World::new()
        .config("a.toml", "[gatway]\n[servers.a]\ncomand = \"npx\"\n")
        .config("b.json", "{\"servers\": {\n \"b\": {\"command\": 1}}}")
        .config("c.yaml", "telemetry:\n  format: loud\n")
        .config("none.toml", ONE)
        .var("ONEGATE__SERVERS__A__START", "soon");
    fs::remove_file(world.root.path().join("work/none.toml")).unwrap();
    world.flags.push((Flag::Log, "loud".into()));
    let faults = world.faults();
    let lines: Vec<_> = faults.lines().collect();
    assert_eq!(
        lines,
        [
            "none.toml: cannot be read: No such file or directory (os error 2)",
            "a.toml:1: gatway: unknown key; did you mean `gateway`?",
            "a.toml:3: servers.a.comand: unknown key; did you mean `command`?",
            "b.json:2: servers.b.command: expected a text, found an integer",
            "c.yaml: telemetry.format: `loud` is not one of pretty, json",
            "$ONEGATE__SERVERS__A__START: servers.a.start: `soon` is not one of lazy, eager",
            "--log: telemetry.log: `loud` is not a level (off, error, warn, info, debug, trace) nor a \
             directive such as `onegate=debug`",
        ],
        "{faults}"
    );
}

#[test]
fn later_layers_win() {
    let mut world = World::new()
        .config(
            "a.toml",
            "[telemetry]\nlog = \"warn\"\nformat = \"json\"\n[servers.a]\ncommand = \"npx\"\nargs = [\"1\", \"2\"]\nenv = { A = \"1\", B = \"1\" }\n",
        )
        .config("b.toml", "[servers.a]\nargs = [\"3\"]\nenv = { B = \"2\" }\n[servers.my-b]\ncommand = \"uvx\"\n")
        .var("ONEGATE__GATEWAY__NAME_BUDGET", "60")
        .var("ONEGATE__TELEMETRY__LOG", "debug")
        .var("ONEGATE__SERVERS__MY_B__ENV__Under__Score", "x")
        .var("ONEGATE__SERVERS__MY_B__ARGS", "[\"p\", \"q r\"]")
        .var("ONEGATE__SERVERS__MY_B__TIMEOUTS", "{ probe = \"1s\" }");
    world.write("work/a.d/20.toml", "[servers.a]\nprefix = \"two\"\n");
    world.write("work/a.d/10.toml", "[servers.a]\nprefix = \"one\"\nera = \"legacy\"\n");
    world.write("work/a.d/15.toml~", "broken");
    world.write("work/a.d/.#16.toml", "broken");
    let loaded = world.load();
    assert_eq!(loaded.settings.telemetry.log, "debug");
    assert_eq!(loaded.settings.telemetry.format, LogFormat::Json);
    assert_eq!(loaded.settings.gateway.name_budget, 60);
    let a = launch(&loaded, "a");
    assert_eq!(args(a), ["3"]);
    assert_eq!((env(a, "A"), env(a, "B")), (Some("1"), Some("2")));
    assert_eq!(server(&loaded, "a").prefix, "two");
    assert_eq!(server(&loaded, "a").era, EraChoice::Legacy);
    let b = launch(&loaded, "my-b");
    assert_eq!(args(b), ["p", "q r"]);
    assert_eq!(env(b, "Under__Score"), Some("x"));
    assert_eq!(server(&loaded, "my-b").timeouts.probe, Duration::from_secs(1));
    let names: Vec<_> = loaded.sources.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(names, ["a.toml", "10.toml", "20.toml", "b.toml"]);

    world.flags.push((Flag::Log, "trace".into()));
    assert_eq!(world.load().settings.telemetry.log, "trace");
}

#[test]
fn files_are_searched_in_order() {
    let world = World::new();
    world.write("etc/policy.d/org.toml", "[gateway]\ninstructions = \"org\"\n");
    world.write("etc/onegate.toml", "[servers.system]\ncommand = \"npx\"\n");
    let keys = |loaded: &Loaded| -> Vec<String> { loaded.settings.servers.iter().map(|s| s.key.to_string()).collect() };
    let loaded = world.load();
    assert_eq!(keys(&loaded), ["system"]);
    assert_eq!(loaded.settings.gateway.instructions.as_deref(), Some("org"));

    world.write("home/.config/onegate/onegate.toml", "[servers.user]\ncommand = \"npx\"\n");
    assert_eq!(keys(&world.load()), ["user"]);

    let xdg = path(world.root.path(), "xdg");
    world.write("xdg/onegate/onegate.toml", "[servers.xdg]\ncommand = \"npx\"\n");
    let world = world.var("XDG_CONFIG_HOME", &xdg);
    assert_eq!(keys(&world.load()), ["xdg"]);

    // Not trusted: passed over, and said so.
    world.write("work/onegate.toml", "[servers.local]\ncommand = \"npx\"\n");
    let loaded = world.load();
    assert_eq!(keys(&loaded), ["xdg"]);
    assert!(notes(&loaded).contains("onegate.toml: is skipped"), "{}", notes(&loaded));
    let candidate = loaded.untrusted.unwrap();
    let state = world.options().environment.state_folder();
    trust::trust(&state, &candidate).unwrap();
    let loaded = world.load();
    assert_eq!(keys(&loaded), ["local"]);
    assert!(loaded.untrusted.is_none());
    world.write("work/onegate.d/x.toml", "[servers.more]\ncommand = \"npx\"\n");
    assert_eq!(keys(&world.load()), ["xdg"], "a file more is another content");

    // Named ones are used as they are, and replace the search.
    world.write("work/var.toml", "[servers.var]\ncommand = \"npx\"\n");
    let mut world = world.var("ONEGATE_CONFIG", "var.toml");
    let loaded = world.load();
    assert_eq!(keys(&loaded), ["var"]);
    assert_eq!(loaded.settings.gateway.instructions.as_deref(), Some("org"));
    world.files.push("onegate.toml".into());
    assert_eq!(keys(&world.load()), ["local", "more"]);
}

#[test]
fn arguments_are_one_element_each_d020() {
    let config = "[servers.a]\ncommand = \"npx\"\nargs = [\"a b\", '\"q\"', \"it's\", \"$HOME $(x) `y`\", \"a&b|c;d\", \"\", \"größe ✓\", \"*\"]\n";
    let loaded = World::new().config("c.toml", config).load();
    let expected = ["a b", "\"q\"", "it's", "$HOME $(x) `y`", "a&b|c;d", "", "größe ✓", "*"];
    assert_eq!(args(launch(&loaded, "a")), expected);
}

#[test]
fn references_in_command_args_env_and_cwd_d023() {
    let world = World::new()
        .config(
            "c.toml",
            "[servers.a]\ncommand = \"${env:TOOL}\"\nargs = [\"${env:NONE:-d}\", \"$${env:X}\", \"${NAME}\", \"${file:t}\", \"${env:NEST}\"]\n\
             env = { T = \"<${env:CANARY}>\" }\ncwd = \"${env:SUB}\"\n",
        )
        .var("TOOL", "npx")
        .var("NEST", "${env:CANARY}")
        .var("NAME", "wrong")
        .var("SUB", "sub");
    fs::create_dir(world.root.path().join("work/sub")).unwrap();
    world.write("work/t", "from a file\n");
    let loaded = world.load();
    let a = launch(&loaded, "a");
    assert_eq!(args(a), ["d", "${env:X}", "${NAME}", "from a file", "${env:CANARY}"]);
    assert_eq!(env(a, "T"), Some("<canary-value>"));
    assert!(a.program.ends_with("bin/npx") && a.command == "${env:TOOL}");
    assert!(a.cwd.as_ref().unwrap().ends_with("work/sub"));
    assert_eq!(
        notes(&loaded),
        "c.toml:3: servers.a.args[2]: `${NAME}` is handed on as it stands; write `${env:NAME}` for the variable, \
         or `$${NAME}` to say that this is meant"
    );
}

#[test]
fn what_is_missing_disables_that_server_alone() {
    let world = World::new().config(
        "c.toml",
        "[servers.a]\ncommand = \"no-such\"\nargs = [\n  \"x\",\n  \"${env:GONE}\"]\nenv = { T = \"${file:/no/such}\" }\ncwd = \"nowhere\"\n\
         [servers.b]\ncommand = \"./bin/x\"\n[servers.c]\ncommand = \"uvx\"\n",
    );
    let loaded = world.load();
    let faults: Vec<_> = loaded.server_faults.iter().map(Fault::to_string).collect();
    assert_eq!(
        faults,
        [
            "c.toml:5: servers.a.args[1]: the variable `GONE` is not set",
            "c.toml:6: servers.a.env.T: the file `/no/such` cannot be read: No such file or directory (os error 2)",
            "c.toml:7: servers.a.cwd: the folder `nowhere` is not there",
            "c.toml:9: servers.b.command: the command `./bin/x` is not found; check the path, and that it may be executed",
        ]
    );
    let fault = server(&loaded, "a").reach.as_ref().err().unwrap();
    assert_eq!(fault.key, "servers.a.args[1]");
    assert!(server(&loaded, "b").reach.is_err() && server(&loaded, "c").reach.is_ok());

    let alone = World::new().config("c.toml", "[servers.a]\ncommand = \"no-such\"\n").load();
    assert_eq!(
        alone.server_faults[0].to_string(),
        "c.toml:2: servers.a.command: the command `no-such` is not found in PATH; install it, or write its full path"
    );
}

#[test]
fn a_child_sees_the_allow_list_and_its_own_env_i_11_d024() {
    let world = World::new()
        .config(
            "c.toml",
            "[gateway]\npass_env = [\"npm_*\"]\n[servers.a]\ncommand = \"npx\"\nenv = { OWN = \"1\", HOME = \"/other\" }\n[servers.b]\ncommand = \"npx\"\n",
        )
        .var("npm_config_x", "y");
    let loaded = world.load();
    let names = |key| -> Vec<String> {
        let names = launch(&loaded, key).env.keys();
        names.map(|name| name.to_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names("a"), ["HOME", "OWN", "PATH", "npm_config_x"]);
    assert_eq!(names("b"), ["HOME", "PATH", "npm_config_x"]);
    assert_eq!(env(launch(&loaded, "a"), "HOME"), Some("/other"));
}

#[test]
fn commands_are_looked_up_as_the_child_would() {
    let world = World::new();
    world.program("other/tool");
    world.program("work/conf/bin/near");
    let other = path(world.root.path(), "other");
    let text = format!(
        "[servers.a]\ncommand = \"tool\"\nenv = {{ PATH = \"{other}\" }}\n[servers.b]\ncommand = \"bin/near\"\ncwd = \".\"\n"
    );
    let loaded = world.config("conf/c.toml", &text).load();
    assert!(launch(&loaded, "a").program.ends_with("other/tool"));
    let b = launch(&loaded, "b");
    assert!(b.program.is_absolute() && b.program.ends_with("conf/bin/near"), "{:?}", b.program);
    assert!(b.cwd.as_ref().unwrap().ends_with("work/conf"));

    let not = World::new();
    not.write("bin/plain", "no mode");
    let loaded = not.config("c.toml", "[servers.a]\ncommand = \"plain\"\n").load();
    assert_eq!(loaded.server_faults.len(), 1, "not executable");
}

#[test]
fn a_hosts_file_loads_as_it_is() {
    let text = r#"{
      // comments, too
      "numStartups": 3, "theme": "dark",
      "mcpServers": {
        "My Files": {"command": "npx", "args": ["-y", "${NAME}", "${NONE:-d}", 8080], "env": {"P": 1}, "autoApprove": ["s3cret"]},
        "off": {"command": "npx", "disabled": true},
        "web": {
          "type": "http",
          "url": "https://s3cret.example/mcp"},
        "onegate": {"command": "onegate", "args": ["run"]},
      }
    }"#;
    let loaded = World::new().config("host.json", text).var("NAME", "x").load();
    let keys: Vec<_> = loaded.settings.servers.iter().map(|s| s.key.as_str()).collect();
    assert_eq!(keys, ["my-files", "web"]);
    let files = server(&loaded, "my-files");
    assert_eq!(files.title.as_deref(), Some("My Files"));
    assert_eq!(args(launch(&loaded, "my-files")), ["-y", "x", "d", "8080"]);
    assert_eq!(env(launch(&loaded, "my-files"), "P"), Some("1"));
    assert!(loaded.server_faults.is_empty(), "{:?}", loaded.server_faults);
    assert_eq!(remote(&loaded, "web").url.as_str(), "https://s3cret.example/mcp");
    assert_eq!(
        notes(&loaded),
        "host.json: is a host's file: only `mcpServers` is read, not `numStartups`, `theme`\n\
         host.json:5: `My Files`: not read: `autoApprove`\n\
         host.json:10: `onegate` is this gateway itself and is left out"
    );
    assert_eq!(server(&loaded, "web").title, None);
}

#[test]
fn hosts_files_of_other_shapes_load() {
    let vs_code = r#"{"inputs": [{"id": "t"}], "servers": {"a": {"type": "stdio", "command": "npx", "env": {"T": "${input:t}"}}}}"#;
    let loaded = World::new().config("mcp.json", vs_code).load();
    assert_eq!(
        loaded.server_faults[0].to_string(),
        "mcp.json:1: servers.a.env.T: `${input:…}` is not a reference that is known here"
    );
    let zed = r#"{"context_servers": {"a": {"command": "npx", "source": "custom"}}}"#;
    assert!(launch(&World::new().config("settings.json", zed).load(), "a").args.is_empty());
    let yaml = "mcpServers:\n  a:\n    command: npx\n";
    launch(&World::new().config("c.yaml", yaml).load(), "a");
    // A foreign file with a fault still names the place.
    let bad = "{\"mcpServers\": {\n\"a\": {\"args\": \"x\"}}}";
    assert_eq!(
        World::new().config("h.json", bad).faults(),
        "h.json:2: servers.a.args: expected a list of texts, found a text"
    );
    let list = "mcpServers:\n  - name: a\n";
    assert!(World::new().config("c.yaml", list).faults().contains("expected a table, found a list"));
    // Our own file may add to what a host's file says.
    let both = World::new()
        .config("h.json", r#"{"mcpServers": {"a": {"command": "npx", "args": ["${NAME}"]}}}"#)
        .config("o.toml", "[servers.a]\ntools.deny = [\"x\"]\n")
        .var("NAME", "n")
        .load();
    assert_eq!(args(launch(&both, "a")), ["n"]);
    assert_eq!(server(&both, "a").tools.deny, ["x"]);
}

#[test]
fn a_remote_server_has_its_address_and_its_headers_d023() {
    let loaded = World::new()
        .config(
            "c.toml",
            "[servers.a]\nurl = \"https://${env:HOST_OF_A}/mcp?key=plain-secret&x=visible-thing\"\n\
             headers = { Authorization = \"Bearer ${file:t}\", X-Plain = \"${X}\" }\ntransport = \"sse\"\n\
             [servers.b]\nurl = \"http://10.0.0.1/\"\nheaders = { X-Api-Key = \"written-out\" }\n\
             [servers.c]\nurl = \"http://localhost/\"\nheaders = { X-Api-Key = \"written-out\" }\n\
             sharing = \"shared\"\nlimits = { concurrency = 3, max_result = \"1MiB\" }\n",
        )
        .var("HOST_OF_A", "a.example")
        .var("X", "wrong");
    loaded.write("work/t", "from-a-file\n");
    let loaded = loaded.load();
    let a = remote(&loaded, "a");
    assert_eq!(a.url.host_str(), Some("a.example"));
    assert_eq!(headers(a), [("authorization", "Bearer from-a-file"), ("x-plain", "${X}")]);
    assert!(a.sse && a.identity.len() == 64);
    let secrets: Vec<_> = a.secrets.iter().map(|secret| secret.reveal()).collect();
    for secret in ["a.example", "from-a-file", "Bearer from-a-file", "plain-secret"] {
        assert!(secrets.contains(&secret), "{secret}");
    }
    assert!(!remote(&loaded, "b").sse);
    let c = server(&loaded, "c");
    assert_eq!(
        (c.sharing, c.limits.concurrency, c.limits.queue, c.limits.max_result),
        (Sharing::Shared, Some(3), 256, 1 << 20)
    );
    assert_eq!(
        notes(&loaded),
        "c.toml:3: servers.a.headers.X-Plain: `${X}` is handed on as it stands; write `${env:X}` for the variable, \
         or `$${X}` to say that this is meant\n\
         c.toml:6: servers.b: its headers hold what proves who we are, and `http://` sends that in the open; use `https://`"
    );
}

#[test]
fn what_a_remote_server_lacks_disables_it_alone() {
    let loaded = World::new()
        .config(
            "c.toml",
            "[servers.a]\nurl = \"${env:GONE}\"\nheaders = { A = \"${env:GONE}\" }\n\
             [servers.b]\nurl = \"${env:CANARY}\"\nheaders = { A = \"${env:LINES}\" }\n\
             [servers.c]\nurl = \"https://c.example/\"\n",
        )
        .var("LINES", "canary-value\r\nX: y")
        .load();
    let faults: Vec<_> = loaded.server_faults.iter().map(Fault::to_string).collect();
    assert_eq!(
        faults,
        [
            "c.toml:2: servers.a.url: the variable `GONE` is not set",
            "c.toml:3: servers.a.headers.A: the variable `GONE` is not set",
            "c.toml:5: servers.b.url: is not a URL; write for example `https://tickets.example/mcp`",
            "c.toml:6: servers.b.headers.A: holds characters that no header can hold (only visible ASCII and blanks)",
        ]
    );
    assert!(server(&loaded, "a").reach.is_err() && server(&loaded, "c").reach.is_ok());
}

#[test]
fn remote_servers_of_hosts_files_load_as_they_are() {
    let text = r#"{"mcpServers": {
        "typed": {"type": "HTTP", "url": "https://a.example/", "headers": {"authorization": "Bearer ${CANARY}", "Content-Type": "application/json", "X-N": 1}},
        "sse": {"type": "sse", "url": "https://b.example/sse"},
        "named": {"transport": "streamable-http", "serverUrl": "https://c.example/"},
        "two": {"httpUrl": "https://d.example/new", "url": "https://d.example/old", "disabled": false},
        "program": {"command": "npx", "url": "https://e.example/", "headers": {"A": "b"}},
        "address": {"type": "http", "command": "npx", "args": ["x"], "url": "https://f.example/"},
        "odd": {"type": "ws", "url": "wss://s3cret.example/"},
        "lacks": {"url": "https://g.example/", "headers": {"A": "${GONE}"}}
    }}"#;
    let loaded = World::new().config("h.json", text).load();
    assert_eq!(headers(remote(&loaded, "typed")), [("x-n", "1"), ("authorization", "Bearer canary-value")]);
    assert!(remote(&loaded, "sse").sse && !remote(&loaded, "typed").sse);
    assert_eq!(remote(&loaded, "named").url.as_str(), "https://c.example/");
    assert_eq!(remote(&loaded, "two").url.as_str(), "https://d.example/new");
    launch(&loaded, "program");
    assert_eq!(remote(&loaded, "address").url.as_str(), "https://f.example/");
    let faults: Vec<_> = loaded.server_faults.iter().map(Fault::to_string).collect();
    assert_eq!(
        faults,
        [
            "h.json:9: servers.lacks.headers.A: the variable `GONE` is not set",
            "h.json:8: servers.odd.type: the transport `ws` is not known; `http` and `sse` are",
        ]
    );
    assert_eq!(
        notes(&loaded),
        "h.json:2: `typed`: the header `Content-Type` is made by the gateway itself\n\
         h.json:5: `two`: not read: `url`\n\
         h.json:6: `program`: not read: `headers`, `url`\n\
         h.json:7: `address`: not read: `command`, `args`"
    );
}

#[test]
fn profiles_begin_with_the_default_one() {
    let names = |text: &str| -> Vec<(String, Option<Vec<String>>)> {
        let loaded = World::new().config("c.toml", text).load();
        let servers = |keys: Vec<crate::ident::ServerKey>| keys.iter().map(ToString::to_string).collect();
        loaded.settings.profiles.into_iter().map(|profile| (profile.name, profile.servers.map(servers))).collect()
    };
    assert_eq!(names(""), [("default".to_owned(), None)]);
    let text = format!(
        "{ONE}[servers.off]\ncommand = \"npx\"\nenabled = false\n\
         [profiles.b]\nservers = [\"a\", \"off\"]\n[profiles.a]\n[profiles.default]\nservers = []\n"
    );
    assert_eq!(
        names(&text),
        [("default".to_owned(), Some(vec![])), ("a".to_owned(), None), ("b".to_owned(), Some(vec!["a".to_owned()]))]
    );
    let loaded = World::new().config("c.toml", "[profiles.a]\ntools.deny = [\"*/x\"]\n").load();
    assert_eq!(loaded.settings.profiles[1].tools.deny, ["*/x"]);
}

#[test]
fn keys_of_the_http_front_are_read() {
    let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/config/valid/serving.toml")).unwrap();
    let loaded = World::new().config("c.toml", &text).load();
    let auth = &loaded.settings.auth;
    assert_eq!(auth.mode, AuthMode::Keys);
    assert_eq!(
        (auth.keys[0].name.as_str(), auth.keys[0].hash[0], &auth.keys[0].groups[..]),
        ("ci", 0xe3, &["dev".to_owned(), "ops".to_owned()][..])
    );
    assert!(auth.keys[0].expires > auth.keys[1].expires);
    let http = &loaded.settings.http;
    assert_eq!((http.listen.to_string(), http.sse, http.tls.is_none()), ("[::]:0".to_owned(), true, true));
    assert_eq!(loaded.settings.gateway.seal_key.as_ref().map(|key| key.reveal().len()), Some(32));
    assert!(loaded.serving.configured && loaded.serving.faults.is_empty() && loaded.serving.nobody.is_none());
    let notes: Vec<_> = loaded.serving.notes.iter().map(Note::to_string).collect();
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].starts_with("c.toml:48: http.listen: [::]:0 is reached from other machines"), "{}", notes[0]);
}

#[test]
fn a_door_that_nobody_can_enter_concerns_serve_alone() {
    let serving = |text: &str| World::new().config("c.toml", text).load().serving;
    let nobody = |text: &str| serving(text).nobody.map(|fault| fault.to_string()).unwrap_or_default();
    assert!(!serving(ONE).configured);
    let none = nobody("[http]\nsse = true\n");
    assert!(none.contains("auth.keys: there is no key") && none.contains("`onegate key new NAME`"), "{none}");
    let key = |expires: &str| {
        format!("{{ name = \"n{expires}\", hash = \"sha256:{expires:0<64}\", expires = \"{expires}-01-01\" }}")
    };
    let past = nobody(&format!("[auth]\nkeys = [{}]\n", key("1999")));
    assert!(past.contains("every key has expired"), "{past}");
    let one = serving(&format!("[auth]\nkeys = [{}, {}]\n", key("1999"), key("2999")));
    assert!(one.nobody.is_none() && one.notes[0].message.contains("`n1999` has expired"), "{one:?}");
    assert_eq!(nobody("[auth]\nmode = \"none\"\n"), "");
    let faults = |text: &str| -> Vec<String> { serving(text).faults.iter().map(Fault::to_string).collect() };
    let tls = faults("[http]\ntls = { cert = \"c.pem\", key = \"k.pem\" }\n[auth]\nmode = \"none\"\n");
    assert_eq!(
        tls,
        [
            "c.toml:2: http.tls.cert: the file `c.pem` cannot be read: No such file or directory (os error 2)",
            "c.toml:2: http.tls.key: the file `k.pem` cannot be read: No such file or directory (os error 2)",
        ]
    );
}

#[test]
fn a_server_that_is_the_gateway_itself_is_pointed_out() {
    let notes = |url: &str| {
        let text =
            format!("[servers.a]\nurl = \"{url}\"\n[http]\nlisten = \"127.0.0.1:7410\"\n[auth]\nmode = \"none\"\n");
        World::new().config("c.toml", &text).load().serving.notes.iter().map(Note::to_string).collect::<Vec<_>>()
    };
    for itself in ["http://127.0.0.1:7410/mcp", "http://localhost:7410/mcp", "http://[::1]:7410/"] {
        assert!(notes(itself)[0].starts_with("c.toml:2: servers.a.url: is where `serve` itself listens"), "{itself}");
    }
    for other in ["http://127.0.0.1:7411/mcp", "http://a.example:7410/mcp", "https://localhost/"] {
        assert_eq!(notes(other), Vec::<String>::new(), "{other}");
    }
}

#[test]
fn the_flag_to_listen_wins_and_opens_no_door() {
    let mut world = World::new().config("c.toml", "[http]\nlisten = \"127.0.0.1:1\"\n[auth]\nmode = \"none\"\n");
    world.flags.push((Flag::Listen, "[::1]:2".into()));
    assert_eq!(world.load().settings.http.listen.port(), 2);
    world.flags.push((Flag::Listen, "0.0.0.0:3".into()));
    assert!(world.faults().contains("auth.mode: `none` would let in everybody"), "{}", world.faults());
    world.flags.push((Flag::Listen, "here".into()));
    assert!(world.faults().contains("--listen: http.listen: `here` is not an address"), "{}", world.faults());
}

#[test]
fn disabled_servers_are_left_out_and_need_nothing() {
    let config =
        "[servers.a]\ncommand = \"no-such\"\nenabled = false\nprefix = \"b\"\n[servers.b]\ncommand = \"npx\"\n";
    let loaded = World::new().config("c.toml", config).load();
    assert_eq!(loaded.settings.servers.len(), 1);
    assert!(loaded.server_faults.is_empty());
}

#[test]
fn no_secret_is_in_any_fault_or_note_d025_i_34() {
    // Values that are wrong in every way that they can be, all of them secret.
    let world = World::new()
        .config(
            "c.toml",
            "[servers.a]\ncommand = \"${env:CANARY}\"\nargs = [\"${env:CANARY}\", \"${X}\"]\nenv = { T = \"${env:CANARY}\" }\ncwd = \"${env:CANARY}\"\n",
        )
        .config("h.json", r#"{"mcpServers": {"h": {"command": "npx", "token": "canary-value", "args": ["${NONE}"]}}}"#);
    let loaded = world.load();
    assert!(loaded.server_faults.len() >= 2);
    let mut shown = notes(&loaded);
    for fault in &loaded.server_faults {
        shown += &format!("\n{fault} {fault:?}");
    }
    for server in &loaded.settings.servers {
        if let Err(fault) = &server.reach {
            shown += &format!("\n{fault:?}");
        }
    }
    assert!(!shown.contains("canary-value"), "{shown}");

    let world = World::new().config(
        "c.toml",
        "[servers.a]\ncommand = [\"canary-value\"]\nenv = { A = { b = \"canary-value\" } }\nargs = [[\"canary-value\"]]\nx = \"canary-value\"\n",
    );
    let faults = load(&world.options()).err().unwrap();
    assert_eq!(faults.0.len(), 4);
    assert!(!format!("{faults} {faults:?}").contains("canary"), "{faults}");
}

#[test]
fn a_file_that_all_may_change_is_pointed_out_t_24() {
    let world = World::new().config("c.toml", ONE);
    let path = world.root.path().join("work/c.toml");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o646)).unwrap();
    assert!(notes(&world.load()).contains("can be changed by every user"));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(notes(&world.load()), "");
}

#[test]
fn a_truncated_file_is_a_fault_and_not_an_empty_set_d029() {
    let world = World::new().config("c.toml", "[servers.a]\ncommand = \"np");
    let faults = world.faults();
    assert!(faults.starts_with("c.toml:2: "), "{faults}");
    assert!(!faults.contains("np"), "{faults}");
}

#[test]
fn what_follows_from_a_fault_is_not_said_again() {
    let broken = World::new()
        .config("a.toml", "[servers.a]\ncommand = \"npx\"\nx = = 1\n")
        .config("b.toml", "[servers.a]\nargs = [\"x\"]\n");
    assert_eq!(broken.faults().lines().count(), 1, "{}", broken.faults());
    let prefix = World::new().config(
        "c.toml",
        "[servers.a]\ncommand = \"npx\"\nprefix = \"b__\"\n[servers.b]\ncommand = \"npx\"\nprefix = \"a\"\n",
    );
    assert_eq!(prefix.faults().lines().count(), 1, "{}", prefix.faults());
}

#[test]
fn a_pipe_of_the_shell_is_known_by_its_first_character() {
    let loaded = World::new().config("fd63", " {\"mcpServers\": {\"a\": {\"command\": \"npx\"}}}").load();
    launch(&loaded, "a");
}

#[test]
fn the_state_folder_is_relative_to_its_file() {
    let world = World::new().config("conf/c.toml", "[gateway]\nstate = \"s\"\n");
    assert!(world.load().settings.gateway.state.ends_with("work/conf/s"));
}

/// Ten servers in well under 2 ms when built for speed; here only the order of magnitude is held.
#[test]
fn loading_is_fast() {
    let mut text = String::from("[gateway]\npass_env = [\"npm_config_*\"]\n");
    for index in 0..10 {
        text += &format!(
            "[servers.s{index}]\ncommand = \"npx\"\nargs = [\"-y\", \"package-{index}\", \"/srv\"]\nenv = {{ A = \"${{env:CANARY}}\" }}\n\
             tools = {{ allow = [\"read_*\", \"list_*\"], deny = [\"*delete*\"] }}\n"
        );
    }
    let options = World::new().config("c.toml", &text);
    let options = (options.options(), options);
    let mut best = Duration::MAX;
    for _ in 0..20 {
        let begun = std::time::Instant::now();
        let loaded = load(&options.0);
        best = best.min(begun.elapsed());
        assert_eq!(loaded.map_or(0, |l| l.settings.servers.len()), 10);
    }
    println!("ten servers: {best:?}");
    assert!(best < Duration::from_millis(100), "{best:?}");
}

/// What the page on identity shows loads as it stands, and serves.
#[test]
fn every_snippet_of_the_page_on_identity_loads() {
    let page = include_str!("../../docs/identity.md");
    let snippets: Vec<_> = page.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(snippets.len(), 2);
    for snippet in snippets {
        let text = format!("{snippet}\n[servers.files]\nurl = \"https://files.example/mcp\"\n");
        let loaded = World::new().config("c.toml", &text).load();
        let jwt = loaded.settings.auth.jwt;
        assert_eq!(jwt.is_some(), snippet.contains("[auth.jwt]"));
        assert_eq!(loaded.settings.auth.stdio.len(), usize::from(jwt.is_none()));
        assert!(loaded.serving.faults.is_empty());
    }
}

#[test]
fn a_model_that_cannot_be_run_is_told_and_stops_nothing() {
    let load = |world: &World| {
        let loaded = world.load();
        (notes(&loaded), loaded.settings.search.model.clone())
    };
    let world = World::new().config("c.toml", "[search]\nmodel = \"m\"\n");
    let why = if cfg!(feature = "semantic") { "no `config.json` in this folder" } else { "`--features semantic`" };
    let (told, model) = load(&world);
    assert!(told.contains("c.toml:2: search.model: ") && told.contains(why) && model.is_none(), "{told}");
    if cfg!(feature = "semantic") {
        world.write("work/m/config.json", "{}");
        let (told, model) = load(&world);
        assert!(told.is_empty() && model.is_some_and(|model| model.ends_with("work/m")), "{told}");
    }
}

/// Ceilings hang on it: another number in its place would let lists grow, or cut them.
#[test]
fn a_tokenizer_that_this_build_has_not_is_refused() {
    let world =
        World::new().config("c.toml", "[gateway]\ntokenizer = \"o200k_base\"\n[profiles.p]\nsurface = \"auto\"\n");
    if cfg!(feature = "tokenizer") {
        let profiles = world.load().settings.profiles;
        assert!(
            profiles.len() == 2
                && profiles
                    .iter()
                    .all(|p| p.surface.tokenizer == Some(super::super::settings::TokenizerName::O200kBase))
        );
    } else {
        let told = world.faults();
        assert!(told.contains("c.toml:2: gateway.tokenizer: ") && told.contains("`--features tokenizer`"), "{told}");
    }
    let told = World::new().config("c.toml", "[gateway]\ntokenizer = \"o200k\"\n").faults();
    assert!(told.contains("cl100k_base, o200k_base"), "{told}");
}
