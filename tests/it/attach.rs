//! `[admin] attach = "auto"`: a `run` is served by a `serve` of the same configuration, as long as there is one.

use std::time::Duration;

use onegate::config::keys::NewKey;
use serde_json::json;

use crate::host::{Era, Host, PATIENCE, Setup, until};

const AUTO: &str = "[admin]\nattach = \"auto\"";

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

#[test]
fn hosts_share_the_servers_of_a_serve_and_go_on_alone_when_it_ends() {
    for end in ["TERM", "KILL"] {
        let acts = json!({"slow": {"do": "gate", "gate": "never-there"}, "echo": {"do": "arguments"}});
        let tools = [
            r#"{"name":"echo","inputSchema":{"type":"object"}}"#,
            r#"{"name":"slow","inputSchema":{"type":"object"}}"#,
        ];
        let setup = Setup::new().head(AUTO).head("[auth]\nmode = \"none\"\n[policy]\ndefault = \"allow\"");
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
        serve.wait_end(PATIENCE);
        for (host, slow) in hosts.iter_mut().zip(slow) {
            assert_eq!(host.answer(&slow).reason(), "downstream-unavailable", "{end}");
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
    let setup = Setup::new().head(AUTO).head("[auth]\nmode = \"none\"\n[policy]\ndefault = \"allow\"");
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
