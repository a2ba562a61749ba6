//! Class C: what reaches a child, and what a configuration may not do (D020, D023–D026).

use serde_json::{Value, json};

use crate::host::{Era, Setup, toml_text};

#[test]
fn d020_every_argument_arrives_as_one_element() {
    let odd = [
        "",
        " ",
        "two words",
        "'single'",
        "\"double\"",
        "back\\slash",
        "$HOME",
        "$(id)",
        "`id`",
        "a&b",
        "a;b|c>d<e",
        "*",
        "~",
        "{a,b}",
        "ünïcödé 漢字 🦀",
        "-x",
        "--config",
        "--",
        "line\nbreak",
        "tab\there",
        "%PATH%",
        "!x",
        "#no comment",
        "a=b",
        "$$",
    ];
    let mut host =
        Setup::new().server_args("a", json!({"tool_count": 1, "act": {"do": "argv"}}), "", &odd).open(Era::Legacy);
    host.tools_count(1);
    let argv: Vec<String> = serde_json::from_str(&host.call("a__t000", "{}").text()).unwrap();
    assert_eq!(argv[2..], odd);
    host.finish();
}

#[test]
fn cwd_is_as_configured_and_relative_to_the_file() {
    let setup = Setup::new();
    let there = setup.path("there");
    std::fs::create_dir(&there).unwrap();
    let mut host = setup
        .server_with("rel", json!({"tool_count": 1, "act": {"do": "cwd"}}), "cwd = \"there\"")
        .server_with(
            "abs",
            json!({"tool_count": 1, "act": {"do": "cwd"}}),
            &format!("cwd = {}", toml_text(there.to_str().unwrap())),
        )
        .open(Era::Legacy);
    host.tools_count(2);
    for key in ["rel", "abs"] {
        let cwd = host.call(&format!("{key}__t000"), "{}").text();
        assert_eq!(std::fs::canonicalize(cwd).unwrap(), std::fs::canonicalize(&there).unwrap());
    }
    host.finish();
}

#[test]
fn d023_references_are_expanded_once() {
    let mut host = Setup::new()
        .env("PLAIN", "plain value")
        .env("NESTED", "${env:PLAIN}")
        .env("DOLLAR", "$${env:PLAIN} $PLAIN")
        .env("EMPTY", "")
        .server_args(
            "a",
            json!({"tool_count": 2, "acts": {"t000": {"do": "argv"}, "t001": {"do": "env"}}}),
            r#"env = { V1 = "${env:PLAIN}", V2 = "x${env:PLAIN}y${env:PLAIN}", V3 = "${env:NESTED}", V4 = "${env:UNSET:-fall back}", V5 = "$${env:PLAIN}", V6 = "${env:UNSET:-}" }"#,
            &["${env:PLAIN}", "<${env:NESTED}>", "${env:DOLLAR}", "${env:UNSET:-a:-b}", "$${env:PLAIN}", "$${", "${env:PLAIN}${env:PLAIN}"],
        )
        .open(Era::Legacy);
    host.tools_count(2);
    let argv: Vec<String> = serde_json::from_str(&host.call("a__t000", "{}").text()).unwrap();
    assert_eq!(
        argv[2..],
        [
            "plain value",
            "<${env:PLAIN}>",
            "$${env:PLAIN} $PLAIN",
            "a:-b",
            "${env:PLAIN}",
            "${",
            "plain valueplain value"
        ]
    );
    let env: Value = serde_json::from_str(&host.call("a__t001", "{}").text()).unwrap();
    let got: Vec<&str> = ["V1", "V2", "V3", "V4", "V5", "V6"].iter().map(|v| env[v].as_str().unwrap()).collect();
    assert_eq!(got, ["plain value", "xplain valueyplain value", "${env:PLAIN}", "fall back", "${env:PLAIN}", ""]);
    host.finish();
}

#[test]
fn d023_files_are_read_where_they_are_named() {
    let setup = Setup::new();
    std::fs::write(setup.path("token"), "s3cret-from-file\n").unwrap();
    let reference = format!("${{file:{}}}", setup.path("token").display());
    let mut host = setup
        .server_with(
            "a",
            json!({"tool_count": 1, "act": {"do": "env"}}),
            &format!("env = {{ TOKEN = {} }}", toml_text(&reference)),
        )
        .open(Era::Legacy);
    host.tools_count(1);
    let env: Value = serde_json::from_str(&host.call("a__t000", "{}").text()).unwrap();
    assert_eq!(env["TOKEN"].as_str().unwrap().trim_end(), "s3cret-from-file");
    host.finish();
}

#[test]
fn d023_an_unset_variable_disables_that_server_only() {
    let setup = || {
        Setup::new()
            .server_with("lacks", json!({"tool_count": 1}), r#"env = { A = "${env:NOT_SET_ANYWHERE}" }"#)
            .server("fine", json!({"tool_count": 1}))
    };
    let mut host = setup().open(Era::Legacy);
    assert_eq!(host.tools(), ["fine__t000"]);
    host.wait_stderr("NOT_SET_ANYWHERE");
    assert_eq!(host.starts("lacks"), 0);
    host.finish();

    let checked = setup().output(&["check"]);
    assert_eq!(checked.code, Some(2), "{}{}", checked.out, checked.err);
    let said = format!("{}{}", checked.out, checked.err);
    for word in ["lacks", "env", "NOT_SET_ANYWHERE"] {
        assert!(said.contains(word), "{word} is missing: {said}");
    }
}

#[test]
fn d023_hosts_own_files_load_as_they_are() {
    let setup = Setup::new().env("NAME", "value");
    let args = setup.scenario("My Server", json!({"tool_count": 1, "act": {"do": "env"}}));
    let file = setup.path("host.json");
    let text = json!({"mcpServers": {"My Server": {
        "command": crate::host::fake(), "args": args, "env": {"A": "${NAME}", "B": "${env:NAME}", "C": "${MISSING:-d}"},
        "autoApprove": ["x"], "someVendorMember": {"y": 1},
    }}});
    std::fs::write(&file, text.to_string()).unwrap();
    // The later file adds to the first one.
    let mut host = setup.arg("--config").arg(file.to_str().unwrap()).open(Era::Legacy);
    let tools = host.tools_count(1);
    let env: Value = serde_json::from_str(&host.call(&tools[0], "{}").text()).unwrap();
    assert_eq!((&env["A"], &env["B"], &env["C"]), (&json!("value"), &json!("value"), &json!("d")));
    host.finish();
}

/// STD-4.
#[test]
fn d024_children_get_the_allow_list_and_their_own_env_only() {
    let mut host = Setup::new()
        .env("CANARY_TOKEN", "must-not-arrive")
        .env("AWS_SECRET_ACCESS_KEY", "must-not-arrive")
        .env("ONEGATE_CONFIG_X", "must-not-arrive")
        .env("LD_PRELOAD_X", "must-not-arrive")
        .env("LC_TIME", "C")
        .env("TZ", "UTC")
        .env("LANG", "C.UTF-8")
        .env("https_proxy", "http://127.0.0.1:9")
        .env("NODE_EXTRA_CA_CERTS", "/ca.pem")
        .env("npm_config_cache", "/npm")
        .head("[gateway]\npass_env = [\"npm_config_*\"]")
        .server_with(
            "a",
            json!({"tool_count": 1, "act": {"do": "env"}}),
            r#"env = { OWN = "a's", TZ = "Europe/Vienna" }"#,
        )
        .server_with("b", json!({"tool_count": 1, "act": {"do": "env"}}), r#"env = { OTHER = "b's" }"#)
        .open(Era::Legacy);
    host.tools_count(2);
    let mut env =
        |key: &str| -> Value { serde_json::from_str(&host.call(&format!("{key}__t000"), "{}").text()).unwrap() };
    let (a, b) = (env("a"), env("b"));
    assert!(!a.to_string().contains("must-not-arrive"), "{a}");
    for (name, value) in [
        ("LC_TIME", "C"),
        ("LANG", "C.UTF-8"),
        ("https_proxy", "http://127.0.0.1:9"),
        ("NODE_EXTRA_CA_CERTS", "/ca.pem"),
        ("npm_config_cache", "/npm"),
        ("OWN", "a's"),
        ("TZ", "Europe/Vienna"),
    ] {
        assert_eq!(a[name], value, "{name}");
    }
    assert_eq!(
        (&b["TZ"], &b["OTHER"], &b["OWN"], &a["OTHER"]),
        (&json!("UTC"), &json!("b's"), &Value::Null, &Value::Null)
    );
    let known = |name: &str| {
        let fixed = [
            "PATH",
            "HOME",
            "USER",
            "LOGNAME",
            "SHELL",
            "LANG",
            "TZ",
            "TERM",
            "TMPDIR",
            "SSL_CERT_FILE",
            "SSL_CERT_DIR",
            "NODE_EXTRA_CA_CERTS",
            "REQUESTS_CA_BUNDLE",
            "OWN",
        ];
        // `PWD` and its like are made by shells, not passed by us.
        fixed.contains(&name)
            || ["LC_", "XDG_", "npm_config_"].iter().any(|p| name.starts_with(p))
            || name.to_lowercase().ends_with("_proxy")
    };
    let strange: Vec<&String> = a.as_object().unwrap().keys().filter(|name| !known(name)).collect();
    assert!(strange.is_empty(), "{strange:?}");
    host.finish();
}

/// SEC-7: what hosts, users and servers say to one another is in no log line, at any level.
#[test]
fn sec7_what_is_said_in_requests_and_answers_is_not_logged() {
    const SAID: &str = "confidence-7c2e";
    let question = json!({"message": SAID, "requestedSchema": {"type": "object", "properties": {}}}).to_string();
    let acts = json!({"t000": {"do": "ask", "method": "elicitation/create", "params": question},
        "t001": {"do": "line"}, "t002": {"do": "error", "error": format!(r#"{{"code":7,"message":"{SAID}"}}"#)},
        // No result at all, of which something is logged.
        "t003": {"do": "result", "result": format!(r#""{SAID}""#)}});
    for era in Era::ALL {
        let setup = Setup::new().server("a", json!({"tool_count": 4, "acts": acts.clone()}));
        let mut host = setup.arg("--log").arg("trace").open(era);
        host.tools_count(4);
        for tool in ["a__t000", "a__t001", "a__t002", "a__t003"] {
            host.call(tool, &format!(r#"{{"x":"{SAID}"}}"#));
        }
        let forged = format!(r#""name":"a__t001","arguments":{{}},"requestState":"{SAID}","inputResponses":{{}}"#);
        host.ask("tools/call", &forged);
        host.ask("tools/list", &format!(r#""cursor":"{SAID}""#));
        let logged = host.last_words();
        assert!(!logged.contains(SAID), "{logged}");
        assert!(logged.contains("a request failed"), "not a word of the last call:\n{logged}");
    }
}

#[test]
fn d025_secrets_appear_in_no_output() {
    const CANARY: &str = "canary-5f1d-secret";
    let setup = || {
        Setup::new()
            .env("SECRET", CANARY)
            .server_args(
                "works",
                json!({"tool_count": 1}),
                r#"env = { TOKEN = "${env:SECRET}" }"#,
                &["--key=${env:SECRET}"],
            )
            .server_args(
                "fails",
                json!({"exit_at_start": 1}),
                r#"env = { TOKEN = "${env:SECRET}" }"#,
                &["${env:SECRET}"],
            )
            .raw("[servers.missing]\ncommand = \"no-such-${env:SECRET}\"\nargs = [\"${env:SECRET}\"]\n")
            .raw("[servers.nodir]\ncommand = \"/bin/true\"\ncwd = \"/nonexistent/${env:SECRET}\"\n")
    };
    for command in [
        &["check"][..],
        &["check", "--json"],
        &["tools"],
        &["tools", "--json"],
        &["tools", "--log", "trace"],
        &["call", "works__t000", "{}", "--log", "trace"],
        &["call", "fails__t000", "{}"],
    ] {
        let shown = setup().output(command);
        let said = format!("{}{}", shown.out, shown.err);
        assert!(!said.contains(CANARY), "{command:?} shows the secret:\n{said}");
        assert!(!said.is_empty(), "{command:?} says nothing");
    }
    let mut host = setup().arg("--log").arg("trace").open(Era::Legacy);
    host.tools_count(1);
    assert_eq!(host.call("works__t000", "{}").text(), "works:t000");
    let answer = host.call("fails__t000", "{}");
    assert!(!answer.line.contains(CANARY));
    host.wait_stderr("fails");
    assert!(!host.stderr().contains(CANARY), "{}", host.stderr());
    host.finish();
}

#[test]
fn d026_one_bad_rule_among_ten_stops_the_start() {
    let good = r#""r*", "s*", "t0*", "a_?", "b", "c", "d", "e", "f""#;
    for (rules, named) in [
        (format!("tools = {{ allow = [{good}, \"[z-\"] }}"), "[z-"),
        (format!("tools = {{ deny = [\"[\", {good}] }}"), "deny"),
        (format!("tools = {{ allow = [{good}, 7] }}"), "allow"),
        (format!("tools = {{ alow = [{good}] }}"), "alow"),
        (format!("tools = {{ deny = {{ all = [{good}] }} }}"), "deny"),
    ] {
        let setup = || Setup::new().server_with("a", json!({"tool_count": 1}), &rules);
        for command in [&["check"][..], &["tools"]] {
            let shown = setup().output(command);
            assert_eq!(shown.code, Some(2), "{rules} {command:?}\n{}{}", shown.out, shown.err);
            let said = format!("{}{}", shown.out, shown.err);
            assert!(said.contains(named) && said.contains("onegate.toml"), "{said}");
        }
        let mut host = setup().start();
        assert_eq!(host.wait_end(crate::host::PATIENCE).code(), Some(2), "{rules}");
        assert_eq!(host.starts("a"), 0, "{rules}: a server ran without its rules");
    }
}

#[test]
fn faults_are_told_all_at_once_with_file_line_and_nearest_key() {
    let setup = Setup::new()
        .head("[gateway]\nname_budgit = 30")
        .server_with("a", json!({}), "era = \"ancient\"\nstrat = \"lazy\"")
        .raw("[servers.BAD]\ncommand = \"x\"\n[servers.onegate]\ncommand = \"x\"\n[servres.b]\ncommand = \"x\"\n");
    let shown = setup.output(&["check"]);
    assert_eq!(shown.code, Some(2));
    let said = format!("{}{}", shown.out, shown.err);
    for word in [
        "name_budgit",
        "name_budget",
        "ancient",
        "strat",
        "start",
        "BAD",
        "servers.onegate",
        "servres",
        "onegate.toml:2",
    ] {
        assert!(said.contains(word), "{word} is missing:\n{said}");
    }
}

#[test]
fn hidden_tools_are_unknown_by_list_and_call() {
    for era in Era::ALL {
        let tools: Vec<String> = ["read_file", "list_dir", "delete_all", "read_delete", "other"]
            .iter()
            .map(|n| format!(r#"{{"name":"{n}","inputSchema":{{"type":"object"}}}}"#))
            .collect();
        let mut host = Setup::new()
            .server_with(
                "a",
                json!({"tools": tools}),
                r#"tools = { allow = ["read_*", "list_*"], deny = ["*delete*"] }"#,
            )
            .open(era);
        assert_eq!(host.tools_count(2), ["a__read_file", "a__list_dir"]);
        for hidden in
            ["a__delete_all", "a__read_delete", "a__other", "a__nothing", "delete_all", "read_file", "a__READ_FILE"]
        {
            assert_eq!(host.call(hidden, "{}").code(), -32602, "{hidden}");
        }
        let hidden = host.call("a__other", "{}").error().to_string();
        assert_eq!(
            hidden.replace("other", "X"),
            host.call("a__nothing", "{}").error().to_string().replace("nothing", "X")
        );
        assert_eq!(host.call("a__read_file", "{}").text(), "a:read_file");
        assert_eq!(host.received_of("a", "tools/call").len(), 1, "a hidden tool was called");
        host.finish();
    }
}

#[test]
fn d025_a_remote_server_that_cannot_be_used_is_told_without_its_secrets() {
    const CANARY: &str = "canary-5f1d-secret";
    let setup = || {
        Setup::new().env("SECRET", CANARY).raw(
            "[servers.far]\nurl = \"http://127.0.0.1:1/mcp?q=${env:SECRET}&token=canary-5f1d-secret-2\"\n\
             headers = { Authorization = \"Bearer ${env:SECRET}\", X-Key = \"canary-5f1d-secret-3\" }\n\
             timeouts = { start = \"1s\" }\n[servers.lacks]\nurl = \"http://127.0.0.1:1/${env:NOT_SET}\"\n",
        )
    };
    for command in [
        &["check"][..],
        &["check", "--json"],
        &["tools"],
        &["tools", "--json", "--log", "trace"],
        &["call", "far__x", "{}", "--log", "trace"],
    ] {
        let shown = setup().output(command);
        let said = format!("{}{}", shown.out, shown.err);
        assert!(!said.contains("canary"), "{command:?} shows a secret:\n{said}");
        assert!(!said.contains("command"), "{command:?} speaks of a command:\n{said}");
        if command[0] != "call" {
            assert!(said.contains("NOT_SET"), "{command:?}:\n{said}");
        }
        if command[0] != "check" {
            assert_eq!(shown.code, Some(4), "{command:?}:\n{said}");
            assert!(said.contains("look whether http://127.0.0.1:1 answers"), "{command:?}:\n{said}");
        }
    }
}

#[test]
fn a_door_that_nobody_can_enter_is_noted_by_check_and_not_opened_by_serve() {
    let setup = || Setup::new().head("[http]\nlisten = \"127.0.0.1:0\"").server("a", json!({"tool_count": 1}));
    let checked = setup().output(&["check"]);
    assert_eq!(checked.code, Some(0), "{}", checked.err);
    assert!(checked.err.contains("nobody can enter"), "{}", checked.err);
    let checked = setup().output(&["check", "--json"]);
    let told: Value = serde_json::from_str(&checked.out).unwrap();
    assert!(told["notes"].to_string().contains("nobody can enter"), "{told}");
    let served = setup().output(&["serve"]);
    assert_eq!(served.code, Some(2), "{}", served.err);
    assert!(served.err.contains("onegate key new NAME"), "{}", served.err);
    // What faces nobody but this machine may be open; what faces others may not.
    let open = Setup::new().head("[auth]\nmode = \"none\"");
    let served = open.output(&["serve", "--listen", "0.0.0.0:0"]);
    assert_eq!(served.code, Some(2), "{}", served.err);
    assert!(served.err.contains("auth.mode"), "{}", served.err);
}

#[test]
fn a_profile_is_what_a_host_of_it_sees() {
    let setup = || {
        Setup::new()
            .server("a", json!({"tool_count": 2}))
            .server("b", json!({"tool_count": 1}))
            .raw("[profiles.docs]\nservers = [\"a\"]\ntools = { deny = [\"a/t000\"] }")
    };
    let mut host = setup().arg("--profile").arg("docs").open(Era::Legacy);
    assert_eq!(host.tools_count(1), ["a__t001"]);
    assert_eq!(host.call("a__t001", "{}").text(), "a:t001");
    for hidden in ["a__t000", "b__t000"] {
        assert_eq!(host.call(hidden, "{}").code(), -32602, "{hidden}");
    }
    host.finish();
    for (args, code, word) in [
        (&["tools", "--profile", "docs"][..], 0, "a__t001"),
        (&["tools", "a", "--profile", "docs"], 0, "a__t001"),
        (&["call", "b__t000", "--profile", "docs"], 1, "Unknown tool"),
        (&["call", "b__t000"], 0, "b:t000"),
        (&["run", "--profile", "none"], 2, "there are: default, docs"),
    ] {
        let shown = setup().output(args);
        let said = format!("{}{}", shown.out, shown.err);
        assert_eq!(shown.code, Some(code), "{args:?}: {said}");
        assert!(said.contains(word) && (args[0] != "tools" || !said.contains("t000")), "{args:?}: {said}");
    }
}

#[test]
fn a_new_key_is_shown_once_with_the_entry_that_knows_it() {
    let setup = Setup::new().env("ONEGATE_CONFIG", "/no/such/file");
    #[expect(clippy::disallowed_methods, reason = "the tests start the program under test")]
    let run = |args: &[&str]| {
        let mut run = std::process::Command::new(crate::host::onegate());
        run.args(args);
        setup.surround(&mut run);
        run.output().unwrap()
    };
    let made = run(&["key", "new", "ci", "--json"]);
    let key: Value = serde_json::from_slice(&made.stdout).unwrap();
    let secret = key["secret"].as_str().unwrap();
    assert!(secret.len() >= 32 && secret.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_')));
    assert!(key["name"] == "ci" && made.status.success() && made.stderr.is_empty());
    assert_ne!(
        key["secret"],
        serde_json::from_slice::<Value>(&run(&["key", "new", "ci", "--json"]).stdout).unwrap()["secret"]
    );

    // The entry that people are shown is one that the configuration takes.
    let shown = String::from_utf8(run(&["key", "new", "alice@team"]).stdout).unwrap();
    let entry = shown.lines().find(|line| line.trim_start().starts_with("keys = [")).unwrap();
    let checked = Setup::new().head(&format!("[auth]\n{entry}")).output(&["check"]);
    assert_eq!(checked.code, Some(0), "{}", checked.err);
    assert!(checked.out.contains("1 key: alice@team"), "{}", checked.out);

    let refused = run(&["key", "new", "a b"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(refused.stdout.is_empty());
}
