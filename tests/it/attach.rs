//! `[admin] attach = "auto"`: a `run` is served by a `serve` of the same configuration, as long as there is one.

use std::path::PathBuf;
use std::time::Duration;

use onegate::config::keys::NewKey;
use serde_json::json;

use crate::host::{Era, Host, PATIENCE, Setup, until};

const AUTO: &str = "[admin]\nattach = \"auto\"";
/// Everybody may enter, and do everything.
const OPEN: &str = "[auth]\nmode = \"none\"\n[policy]\ndefault = \"allow\"";

fn serving(setup: Setup) -> Host {
    let mut serve = setup.start_as(&["serve", "--listen", "127.0.0.1:0"]);
    serve.wait_stderr("listening on");
    let _ = &mut serve;
    serve
}

fn run(serve: &Host, more: &[&str], env: &[(&str, &str)]) -> Host {
    let config = serve.path("onegate.toml");
    serve.beside(&[&["run", "--config", config.to_str().unwrap()], more].concat(), env)
}

/// The place where a `serve` is found, while there is one.
fn door(serve: &Host) -> Option<PathBuf> {
    let folder = std::fs::read_dir(serve.path("run/onegate")).ok()?;
    folder.flatten().map(|entry| entry.path()).find(|path| path.extension().is_some_and(|end| end == "mcp"))
}

fn edit(serve: &Host, from: &str, to: &str) {
    let file = serve.path("onegate.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains(from), "{text}");
    std::fs::write(file, text.replace(from, to)).unwrap();
    serve.wait_stderr("the new configuration is in force");
}

#[test]
fn hosts_share_the_servers_of_a_serve_and_go_on_alone_when_it_ends() {
    for end in ["TERM", "KILL"] {
        let setup = Setup::new().head(AUTO).head(OPEN);
        let gate = setup.path("gate");
        let acts = json!({"slow": {"do": "gate", "gate": gate}, "echo": {"do": "arguments"}});
        let tools = [
            r#"{"name":"echo","inputSchema":{"type":"object"}}"#,
            r#"{"name":"slow","inputSchema":{"type":"object"}}"#,
        ];
        let mut serve = serving(setup.server("a", json!({"tools": tools, "acts": acts, "era": "modern"})));
        let mut hosts: Vec<Host> = Era::ALL
            .into_iter()
            .map(|era| {
                let mut host = run(&serve, &[], &[]);
                host.open(era);
                host.tools_count(2);
                assert_eq!(
                    host.call("a__echo", r#"{"x":1.0}"#).result_raw("structuredContent").unwrap(),
                    r#"{"x":1.0}"#
                );
                host.wait_stderr("attached to the gateway of process");
                host
            })
            .collect();
        assert_eq!(serve.starts("a"), 1, "no second set of servers");
        let slow: Vec<String> = hosts.iter_mut().map(|host| host.post_call("a__slow", "{}")).collect();
        until("the calls are there", PATIENCE, || serve.received_of("a", "tools/call").len() == 4);
        serve.signal(end);
        if end == "TERM" {
            // What runs may end.
            until("nobody is let in any more", PATIENCE, || door(&serve).is_none());
            std::fs::write(&gate, "").unwrap();
            for (host, slow) in hosts.iter_mut().zip(&slow) {
                assert_eq!(host.answer(slow).text(), "a:slow");
            }
        }
        serve.wait_end(PATIENCE);
        for (host, slow) in hosts.iter_mut().zip(slow) {
            if end == "KILL" {
                assert_eq!(host.answer(&slow).reason(), "downstream-unavailable");
            }
            // The same session goes on.
            assert_eq!(host.tools_count(2), ["a__echo", "a__slow"]);
            assert_eq!(host.call("a__echo", "[]").code(), -32602);
            assert_eq!(host.call("a__echo", r#"{"y":2}"#).result_raw("structuredContent").unwrap(), r#"{"y":2}"#);
            assert!(host.stderr().contains("going on alone"));
        }
        for host in hosts {
            host.finish();
        }
        serve.all_gone(Duration::from_secs(10));
    }
}

/// It has its hosts for a while yet, and nobody else: a `run` does not wait for it, and another `serve` takes its place.
#[test]
fn a_serve_that_drains_is_in_nobody_s_way() {
    let setup = Setup::new().head(AUTO).head(OPEN);
    let mut serve = serving(setup.server("a", json!({"tool_count": 1, "act": {"do": "never"}})));
    let mut host = run(&serve, &[], &[]);
    host.open(Era::Legacy);
    host.tools_count(1);
    let id = host.post_call("a__t000", "{}");
    until("the call is there", PATIENCE, || serve.received_of("a", "tools/call").len() == 1);
    serve.signal("TERM");
    until("nobody is let in any more", PATIENCE, || door(&serve).is_none());
    let mut late = run(&serve, &[], &[]);
    late.open(Era::Legacy);
    late.wait_stderr("running alone: no `serve` with this configuration runs");
    late.finish();
    let config = serve.path("onegate.toml");
    let mut next = serve.beside(&["serve", "--listen", "127.0.0.1:0", "--config", config.to_str().unwrap()], &[]);
    next.wait_stderr("listening on");
    until("it is found", PATIENCE, || door(&serve).is_some());
    let mut other = run(&serve, &[], &[]);
    other.open(Era::Modern);
    other.wait_stderr(&format!("attached to the gateway of process {}", next.child.id()));
    assert!(serve.child.try_wait().unwrap().is_none(), "it waits for the call");
    // Who does not want to wait says so once more; the door of the other is not its own to shut.
    serve.signal("TERM");
    serve.wait_end(PATIENCE);
    assert_eq!(host.answer(&id).reason(), "downstream-unavailable");
    assert!(door(&serve).is_some());
    other.finish();
    host.finish();
    next.signal("TERM");
    next.wait_end(PATIENCE);
    serve.all_gone(Duration::from_secs(5));
}

/// What a token opened ends when the token does, and goes on as what it is then, if that is anybody.
#[test]
fn a_token_that_is_taken_out_or_altered_ends_what_was_opened_with_it() {
    let [laptop, phone] = [(); 2].map(|()| NewKey::make().unwrap());
    let entry = |name: &str, key: &NewKey| format!("{{ name = \"{name}\", hash = \"{}\" }}", key.hash);
    let setup = Setup::new().head(AUTO).head(&format!(
        "[auth]\nmode = \"none\"\nstdio = [{}, {}]\n[policy]\ndefault = \"deny\"\n[[policy.rule]]\neffect = \"allow\"\nwho = [\"stdio:*\"]\ntarget = [\"a/*/*\"]\n[[policy.rule]]\neffect = \"deny\"\nwho = [\"group:guests\"]\ntarget = [\"a/*/*\"]",
        entry("laptop", &laptop),
        entry("phone", &phone),
    ));
    let mut serve = serving(setup.server("a", json!({"tool_count": 1, "act": {"do": "never"}})));
    let [mut first, mut second] = [&laptop, &phone].map(|key| {
        let mut host = run(&serve, &[], &[("ONEGATE_TOKEN", key.secret.reveal())]);
        host.open(Era::Legacy);
        host.tools_count(1);
        host.wait_stderr("attached");
        host
    });
    let id = first.post_call("a__t000", "{}");
    until("the call is there", PATIENCE, || serve.received_of("a", "tools/call").len() == 1);
    edit(&serve, &format!("{}, ", entry("laptop", &laptop)), "");
    assert_eq!(first.answer(&id).reason(), "downstream-unavailable");
    assert_eq!(first.wait_end(PATIENCE).code(), Some(1));
    assert!(first.stderr().contains("the token is none of auth.stdio"), "{}", first.stderr());
    assert_eq!(second.tools_count(1), ["a__t000"]);
    assert!(!second.stderr().contains("going on alone"), "it has another token");
    let written = entry("phone", &phone);
    edit(&serve, &written, &written.replace(" }", ", groups = [\"guests\"] }"));
    second.wait_stderr("going on alone");
    until("it is who it is now", PATIENCE, || second.tools().is_empty());
    second.finish();
    serve.signal("TERM");
    serve.wait_end(PATIENCE);
    serve.all_gone(Duration::from_secs(5));
}

/// D-26: as without, and the lines after it pass.
#[test]
fn a_line_that_is_too_long_is_answered_as_by_a_gateway_of_ones_own() {
    let setup = Setup::new().head(AUTO).head(OPEN);
    let mut serve = serving(setup.server("a", json!({"tool_count": 1})));
    let answers = ["attached to the gateway", "running alone"].map(|how| {
        let other = [("ONEGATE__GATEWAY__NAME_BUDGET", "50")];
        let mut host = run(&serve, &[], if how == "running alone" { &other } else { &[] });
        host.open(Era::Legacy);
        host.wait_stderr(how);
        host.post_as("\"long\"", "tools/call", &format!(r#""name":"{}""#, "x".repeat(17 << 20)), "");
        let refused = host.answer("\"long\"").raw("error").unwrap().to_owned();
        host.tools_count(1);
        host.finish();
        refused
    });
    assert_eq!(answers[0], answers[1]);
    assert!(answers[0].contains("the limit is"), "{answers:?}");
    serve.signal("TERM");
    serve.wait_end(PATIENCE);
}

#[test]
fn a_host_that_reads_nothing_keeps_no_run_from_ending() {
    let tools = ["big", "never"].map(|name| format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}}}}"#));
    let acts = json!({"big": {"do": "big", "bytes": 1 << 20}, "never": {"do": "never"}});
    let setup = Setup::new().head(AUTO).head(OPEN).reads_on_demand();
    let mut serve = serving(setup.server("a", json!({"tools": tools, "acts": acts})));
    let mut host = run(&serve, &[], &[]);
    host.open(Era::Legacy);
    host.tools_count(2);
    host.post_call("a__never", "{}");
    for _ in 0..12 {
        host.post_call("a__big", "{}");
    }
    // Those that it takes are followed by more than fits into a pipe.
    for _ in 0..3 {
        host.pick("large answer", PATIENCE, |message| message.line.len() > 1 << 20);
    }
    serve.signal("KILL");
    serve.wait_end(PATIENCE);
    host.post("ping", "");
    host.wait_stderr("going on alone");
    host.signal("TERM");
    host.wait_end(Duration::from_secs(10));
    serve.all_gone(Duration::from_secs(10));
}

#[test]
fn who_it_is_and_what_it_sees_is_as_without_and_another_configuration_is_not_attached_to() {
    let key = NewKey::make().unwrap();
    let setup = Setup::new().head(AUTO).head(&format!(
        "[auth]\nmode = \"none\"\nstdio = [{{ name = \"laptop\", hash = \"{}\" }}]\n[policy]\ndefault = \"deny\"\n[[policy.rule]]\neffect = \"allow\"\nwho = [\"stdio:laptop\"]\ntarget = [\"a/*/*\", \"b/*/*\"]\n[profiles.b]\nservers = [\"b\"]",
        key.hash
    ));
    let setup = setup.server("a", json!({"tool_count": 1})).server("b", json!({"tool_count": 1}));
    let mut serve = serving(setup);
    let token = [("ONEGATE_TOKEN", key.secret.reveal())];
    let mut named = run(&serve, &["--profile", "b"], &token);
    named.open(Era::Legacy);
    assert_eq!(named.tools_count(1), ["b__t000"]);
    named.wait_stderr("attached");
    named.call("b__t000", "{}");
    let mut nameless = run(&serve, &[], &[]);
    nameless.open(Era::Modern);
    nameless.wait_stderr("attached");
    assert!(nameless.tools().is_empty());
    assert_eq!((serve.starts("a"), serve.starts("b")), (1, 1));
    // The same file, said otherwise by the environment: another configuration.
    let mut other = run(&serve, &[], &[("ONEGATE__GATEWAY__NAME_BUDGET", "50")]);
    other.open(Era::Legacy);
    other.wait_stderr("running alone");
    for host in [named, nameless, other] {
        host.finish();
    }
    serve.signal("TERM");
    serve.wait_end(PATIENCE);
    serve.all_gone(Duration::from_secs(5));
}

#[test]
fn when_nothing_can_take_its_place_the_run_says_so_and_ends() {
    let setup = Setup::new().head(AUTO).head(OPEN);
    let mut serve = serving(setup.server("a", json!({"tool_count": 1, "act": {"do": "never"}})));
    let mut host = run(&serve, &[], &[]);
    host.open(Era::Legacy);
    host.tools_count(1);
    let id = host.post_call("a__t000", "{}");
    until("the call is there", PATIENCE, || serve.received_of("a", "tools/call").len() == 1);
    // Half a file: `serve` keeps what it had.
    std::fs::write(serve.path("onegate.toml"), "[servers").unwrap();
    serve.wait_stderr("the old one stays");
    serve.signal("KILL");
    serve.wait_end(PATIENCE);
    assert_eq!(host.answer(&id).reason(), "downstream-unavailable");
    assert_eq!(host.wait_end(PATIENCE).code(), Some(1));
    assert!(host.stderr().contains("none can take its place"), "{}", host.stderr());
}
