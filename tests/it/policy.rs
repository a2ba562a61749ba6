//! The commands that show and test policy, as people and scripts run them.

use serde_json::{Value, json};
use sha2::Digest as _;

use crate::host::{Era, Setup};

const POLICY: &str = r#"
[policy]
default = "deny"
[[policy.rule]]
effect = "allow"
who = ["group:dev", "stdio"]
target = ["a/tool/t000"]
where = [{ pointer = "/path", path_under = ["/srv"] }]
[[policy.rule]]
effect = "allow"
who = ["stdio"]
target = ["a/tool/t001"]
[[policy.limit]]
target = ["a/tool/*"]
rate = "60/min"
[[auth.keys]]
name = "ann"
hash = "sha256:e1373063ec6668f8f2de10090ca0e6b2d8c7b59b9b94faa6909738453c902152"
groups = ["dev"]
"#;

fn setup() -> Setup {
    Setup::new().server("a", json!({"tool_count": 3})).raw(POLICY)
}

#[test]
fn explain_says_what_decides_and_what_is_left() {
    let setup = setup();
    let target = "a/tool/t000";
    for (more, exit, decision, reason) in [
        (&["--as", "key:ann", "--args", r#"{"path":"/srv/x"}"#][..], 0, "allow", Value::Null),
        (&["--as", "key:ann", "--args", r#"{"path":"/etc"}"#], 1, "deny", json!("argument-not-allowed")),
        (&["--as", "key:ann"], 0, "depends", Value::Null),
        (&["--as", "key:eve"], 1, "deny", json!("not-allowed")),
        (&["--as", "key:eve", "--group", "dev", "--args", r#"{"path":"/srv"}"#], 0, "allow", Value::Null),
    ] {
        let command = [&["explain", target, "--json"], more].concat();
        let (code, told) = setup.json(&command);
        assert_eq!((code, &told["decision"]), (Some(exit), &json!(decision)), "{more:?}: {told}");
        assert_eq!(told["reason"], reason, "{told}");
        assert_eq!(told["rules"].as_array().unwrap().len(), 2);
        assert_eq!(told["limits"][0]["rate_left"], 60, "{told}");
        assert!(told.as_object().unwrap().contains_key("pin"));
    }
    let text = setup.output(&["explain", target, "--args", r#"{"path":"/etc"}"#]).out;
    assert!(
        text.contains("refused (argument-not-allowed)") && text.contains("the value at \"/path\" does not fit"),
        "{text}"
    );
    for bad in [&["explain", "a/tool"][..], &["explain", "b/tool/x"], &["explain", target, "--as", "ann"]] {
        assert_eq!(setup.output(bad).code, Some(2), "{bad:?}");
    }
}

#[test]
fn a_table_of_decisions_is_tested() {
    let setup = setup();
    let table = setup.path("cases.toml");
    let case = |expect: &str| {
        format!(
            "[[case]]\nas = \"key:ann\"\ntarget = \"a/tool/t000\"\nargs = {{ path = \"/srv/x\" }}\nexpect = \"{expect}\"\n"
        )
    };
    let run = |text: &str| {
        std::fs::write(&table, text).unwrap();
        setup.output(&["policy", "test", table.to_str().unwrap()])
    };
    let fine = run(&case("allow"));
    assert_eq!((fine.code, fine.out.trim()), (Some(0), "1 case, 0 failed"), "{}", fine.err);
    let failed = run(&format!("{}{}", case("allow"), case("deny")));
    assert_eq!(failed.code, Some(1));
    assert!(failed.out.contains("cases.toml:6") && failed.out.contains("expected deny, is allow"), "{}", failed.out);
    let broken = run(&case("maybe"));
    assert_eq!(broken.code, Some(2), "E-40: a table with a fault proves nothing");
}

#[test]
fn tools_and_call_speak_for_a_principal() {
    let setup = setup();
    let (_, listed) = setup.json(&["tools", "--json", "--as", "key:ann", "--hidden"]);
    let natives = |list: &str| -> Vec<_> {
        listed[list].as_array().unwrap().iter().map(|item| item["native"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(
        (natives("items"), natives("hidden")),
        (vec!["t000".into()], vec!["t001".into(), "t002".into()]),
        "{listed}"
    );
    let calls = [
        (&["call", "a__t000", r#"{"path":"/srv/x"}"#, "--as", "key:ann"][..], 0, "a:t000"),
        (&["call", "a__t000", r#"{"path":"/etc"}"#, "--as", "key:ann"], 1, "argument-not-allowed"),
        (&["call", "a__t001", "{}", "--as", "key:ann"], 1, "Unknown tool"),
        (&["call", "a__t001", "{}"], 0, "a:t001"),
    ];
    for (command, exit, part) in calls {
        let output = setup.output(command);
        let all = format!("{}{}", output.out, output.err);
        assert_eq!(output.code, Some(exit), "{command:?}: {all}");
        assert!(all.contains(part), "{command:?}: {all}");
    }
}

#[test]
fn what_is_configured_and_nobody_lists_is_told_once() {
    let slips = "[servers.a.override.gone]\nhide = true\n[[policy.rule]]\neffect = \"deny\"\ntarget = [\"a/tool/t999\"]\n\
                 [servers.b]\ncommand = \"onegate-nobody-has-this\"\n[servers.b.override.unknown]\nhide = true\n";
    let setup = || {
        let lists = "tools = { deny = [\"nothing\"] }\n[servers.a.override.t001]\nhide = true";
        let acts = json!({"t000": {"do": "change"}});
        Setup::new().server_with("a", json!({"tool_count": 3, "acts": acts}), lists).raw(POLICY).raw(slips)
    };
    let told = ["servers.a.override: \"gone\"", "servers.a.tools: \"nothing\"", "\"a/tool/t999\""];
    let judge = |err: &str| {
        for told in told {
            assert_eq!(err.matches(&format!("{told} matches nothing")).count(), 1, "{told}: {err}");
        }
        assert_eq!(err.matches("matches nothing").count(), told.len(), "{err}");
    };
    judge(&setup().output(&["tools"]).err);
    let mut host = setup().open(Era::Modern);
    host.tools_count(1);
    host.tools_count(1);
    host.wait_stderr("matches nothing");
    // What went away is told when it does.
    host.call("a__t000", r#"{"path":"/srv/x"}"#);
    host.wait_stderr("\"a/tool/t000\" matches nothing");
    judge(&host.last_words().replace("\"a/tool/t000\" matches nothing", ""));
}

const TOKEN: &str = "a-token-of-this-laptop-that-nobody-guesses";

/// Its entry in the configuration.
fn entry() -> String {
    let hash = data_encoding::HEXLOWER.encode(&sha2::Sha256::digest(TOKEN.as_bytes()));
    format!("[[auth.stdio]]\nname = \"laptop\"\nhash = \"sha256:{hash}\"\ngroups = [\"dev\"]\n")
}

const NAMED: &str = r#"
[policy]
default = "deny"
[[policy.rule]]
effect = "allow"
who = ["stdio:laptop"]
target = ["a/tool/t000"]
[[policy.rule]]
effect = "allow"
who = ["group:dev"]
target = ["a/tool/t001"]
"#;

#[test]
fn a_token_of_the_installation_names_the_local_user() {
    let setup = || Setup::new().server("a", json!({"tool_count": 3})).raw(NAMED).raw(&entry());
    let both = ["a__t000".to_owned(), "a__t001".to_owned()];
    for era in [Era::Legacy, Era::Modern] {
        // From a file, from the environment, and the file before the environment.
        let file = setup();
        let path = file.path("token");
        std::fs::write(&path, format!("{TOKEN}\n")).unwrap();
        let mut host = file.arg("--token-file").arg(path.to_str().unwrap()).env("ONEGATE_TOKEN", "wrong").open(era);
        assert_eq!(host.tools(), both);
        let mut host = setup().env("ONEGATE_TOKEN", TOKEN).open(era);
        assert_eq!(host.tools(), both);
        // Without one it is `stdio`, whatever the host calls itself.
        let mut host = setup().open(era);
        assert_eq!(host.tools(), [""; 0]);
    }
}

#[test]
fn e40_a_wrong_token_starts_nothing() {
    for (setup, more) in [
        (Setup::new().raw(&entry()).env("ONEGATE_TOKEN", "wrong"), None),
        (Setup::new().raw(&entry()).env("ONEGATE_TOKEN", ""), None),
        // One that nobody is known by.
        (Setup::new().env("ONEGATE_TOKEN", TOKEN), None),
        (Setup::new().raw(&entry()).env("ONEGATE_TOKEN", TOKEN), Some("no-such-file")),
        (Setup::new().raw(&entry()), Some("wrong-token")),
    ] {
        let setup = setup.server("a", json!({}));
        std::fs::write(setup.path("wrong-token"), "wrong").unwrap();
        let path = more.map(|name| setup.path(name).to_str().unwrap().to_owned());
        let command: Vec<_> = ["run"].into_iter().chain(path.iter().flat_map(|path| ["--token-file", path])).collect();
        let output = setup.output(&command);
        assert_eq!(output.code, Some(2), "{}{}", output.out, output.err);
        assert!(output.err.contains("token") || output.err.contains("TOKEN"), "{}", output.err);
        assert!(!output.err.contains("wrong\"") && !output.err.contains(TOKEN), "{}", output.err);
    }
}
