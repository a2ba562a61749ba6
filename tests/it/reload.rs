//! A configuration that changes while `run` and `serve` run: by the file itself, and at HUP.
//!
//! What a reload does to servers, hosts and their requests is looked at in `tests/middle/reload.rs`.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::host::{Era, Host, PATIENCE, Setup, until};

/// The names in the list.
fn tools(host: &mut Host) -> Vec<String> {
    let id = host.post("tools/list", "");
    let answer = host.answer(&id).value();
    let tools = answer["tools"].as_array().unwrap_or_else(|| panic!("{answer}")).clone();
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

fn edit(file: &Path, change: impl FnOnce(String) -> String) {
    let text = std::fs::read_to_string(file).unwrap();
    // As editors do: another file in its place.
    let part = file.with_extension("part");
    std::fs::write(&part, change(text)).unwrap();
    std::fs::rename(part, file).unwrap();
}

/// A server is taken out, comes back and a tool is hidden, all by edits of the file; the server that stays is started once.
#[test]
fn d028_run_follows_its_file() {
    let setup = Setup::new().server("a", json!({"tool_count": 1})).server("b", json!({"tool_count": 1}));
    let file = setup.path("onegate.toml");
    let mut host = setup.open(Era::Legacy);
    let both = tools(&mut host);
    assert_eq!(both.len(), 2, "{both:?}");
    let whole = std::fs::read_to_string(&file).unwrap();
    let (first, _) = whole.split_once("[servers.b]").unwrap();
    edit(&file, |_| first.to_owned());
    until("b is gone", PATIENCE, || tools(&mut host) == both[..1]);
    host.ended("b");
    edit(&file, |_| whole.clone());
    until("b is back", PATIENCE, || tools(&mut host) == both);
    edit(&file, |text| {
        format!(
            "{text}\n[policy]\ndefault = \"allow\"\n[[policy.rule]]\neffect = \"deny\"\nwho = [\"*\"]\ntarget = [\"a/tool/*\"]\n"
        )
    });
    until("a is denied", PATIENCE, || tools(&mut host) == both[1..]);
    assert_eq!((host.starts("a"), host.starts("b")), (1, 1), "what it listed is known, and nobody calls it");
}

/// E-40, D029: half a file, and a rule that is none, change nothing and are told, by `status` too, until it is right again.
#[test]
fn e40_d029_a_file_with_a_fault_keeps_the_old_set() {
    let setup = Setup::new().server("a", json!({"tool_count": 1}));
    let file = setup.path("onegate.toml");
    let mut host = setup.open(Era::Legacy);
    let one = tools(&mut host);
    let whole = std::fs::read_to_string(&file).unwrap();
    for (wrong, said) in [
        (whole[..whole.len() / 2].to_owned(), "onegate.toml"),
        (
            format!(
                "{whole}\n[policy]\ndefault = \"allow\"\n[[policy.rule]]\neffect = \"deny\"\nwho = [\"*\"]\ntarget = [\"a/tool/re:(\"]\n"
            ),
            "unclosed group",
        ),
        (format!("{whole}\n[servers.a.nonsense]\n"), "nonsense"),
    ] {
        std::fs::write(&file, &wrong).unwrap();
        until("it is said", PATIENCE, || host.stderr().contains(said));
        host.wait_stderr("the old one stays");
        assert_eq!(tools(&mut host), one);
    }
    std::fs::write(&file, &whole).unwrap();
    host.wait_stderr("the new configuration is in force");
    assert_eq!((tools(&mut host), host.starts("a")), (one, 1));
}

/// HUP loads it anew, though nothing tells of a change; who runs under a service manager says so (`Type=notify-reload`).
#[test]
fn serve_loads_anew_at_hup_and_tells_its_manager() {
    let setup = Setup::new().head("[auth]\nmode = \"none\"").server("a", json!({"tool_count": 1}));
    let socket = setup.path("notify");
    let manager = UnixDatagram::bind(&socket).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let file = setup.path("onegate.toml");
    let mut host = setup.env("NOTIFY_SOCKET", socket.to_str().unwrap()).start_as(&["serve", "--listen", "127.0.0.1:0"]);
    let told = |wanted: &str| {
        let mut bytes = [0; 4096];
        loop {
            let length = manager.recv(&mut bytes).unwrap_or_else(|error| panic!("{wanted}: {error}"));
            let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
            if text.lines().any(|line| line == wanted) {
                return text;
            }
        }
    };
    told("READY=1");
    host.signal("HUP");
    assert!(told("RELOADING=1").contains("MONOTONIC_USEC="));
    told("READY=1");
    host.wait_stderr("the new configuration is in force: 1 server goes on");
    // What cannot be another while it runs is said.
    edit(&file, |text| text.replacen("[auth]", "[http]\nsse = true\n[auth]", 1));
    host.wait_stderr("http.sse is another now");
    host.signal("TERM");
    assert_eq!(host.wait_end(PATIENCE).code(), Some(0));
    host.all_gone(Duration::from_secs(5));
}

/// With `--locked` a server that the lock does not have is not let in by an edit (T-07, D103).
#[test]
fn t07_d103_a_locked_gateway_takes_no_server_in_that_is_not_in_the_lock() {
    let setup = Setup::new().server("a", json!({"tool_count": 1}));
    let made = setup.output(&["lock"]);
    assert_eq!(made.code, Some(0), "{}", made.err);
    let file = setup.path("onegate.toml");
    let other: Value = json!({"tool_count": 1});
    let more = Setup::new().server("a", json!({"tool_count": 1})).server("b", other);
    let with_b = more.write();
    let mut host = setup.arg("--locked").open(Era::Legacy);
    let one = tools(&mut host);
    let text = std::fs::read_to_string(&with_b).unwrap();
    let (_, b) = text.split_once("[servers.b]").unwrap();
    edit(&file, |text| format!("{text}\n[servers.b]{b}"));
    host.wait_stderr("the server b is not in");
    host.wait_stderr("the old one stays");
    assert_eq!(tools(&mut host), one);
    assert!(!more.path("b.log").exists());
}
