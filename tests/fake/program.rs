//! `fake-server`: a scriptable MCP server that can do the wrong thing on purpose.
//!
//! `fake-server --scenario FILE [ANYTHING…]` serves MCP on its standard streams as the JSON in FILE says
//! (`scenario.rs` lists every member). Beside FILE it leaves two traces for the tests: `FILE.starts` (one line
//! with the pid per start) and `FILE.received` (every line that it was sent, byte for byte); on demand `FILE.<pid>.talk`.
//!
//! It deliberately knows nothing of the gateway: what the gateway sends is written down, not judged. The tests
//! in `tests/it` start it, always through the gateway or, in `fake.rs`, by hand.

mod act;
mod scenario;
mod server;

use std::fs::OpenOptions;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio, exit};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use scenario::Scenario;
use server::Server;

/// Set in processes that were already started again with TERM ignored.
const DEAF_TO_TERM: &str = "--term-is-ignored";
/// Set in the process behind a wrapper.
const BEHIND_WRAPPER: &str = "--behind-wrapper";
/// A process that only exists, until it is killed.
const LINGER: &str = "--linger";

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| args.iter().any(|a| a == flag);
    let Some(at) = args.iter().position(|a| a == "--scenario") else {
        let _ = writeln!(std::io::stderr(), "usage: fake-server --scenario FILE");
        exit(64);
    };
    let path = PathBuf::from(args.get(at + 1).cloned().unwrap_or_default());
    let scenario = Scenario::load(&path);

    if scenario.flag("ignore_term") && !has(DEAF_TO_TERM) {
        exit(again_without_term(&args));
    }
    if has(LINGER) {
        note(&path, "starts", &format!("{}\n", std::process::id()));
        forever();
    }
    if scenario.flag("wrapper") && !has(BEHIND_WRAPPER) {
        exit(wrap(&args));
    }
    note(&path, "starts", &format!("{}\n", std::process::id()));
    if scenario.flag("grandchild") {
        linger(&args, scenario.flag("grandchild_group"));
    }
    before_service(&scenario);

    let log = open(&path, "received");
    let talk = scenario.flag("talk").then(|| open(&path, &format!("{}.talk", std::process::id())));
    let server = Arc::new(Server::new(scenario, talk));
    for line in server.scenario.list("banner") {
        server.line(&line);
    }
    if server.scenario.flag("deaf") {
        forever();
    }
    serve(&server, log);
    if server.scenario.flag("ignore_eof") {
        forever();
    }
}

/// What happens between the start and the first read.
fn before_service(scenario: &Scenario) {
    if let Some(text) = scenario.text("stderr_at_start") {
        let _ = std::io::stderr().write_all(text.as_bytes());
    }
    if let Some(gate) = scenario.text("start_gate") {
        wait_for(Path::new(&gate));
    }
    if let Some(ms) = scenario.number("start_delay_ms") {
        thread::sleep(Duration::from_millis(ms));
    }
    if let Some(mib) = scenario.number("stderr_at_start_mib") {
        server::flood(mib << 20, scenario.flag("stderr_newline"));
    }
    if let Some(file) = scenario.text("exit_unless")
        && !Path::new(&file).exists()
    {
        exit(9);
    }
    if let Some(code) = scenario.number("exit_at_start") {
        exit(i32::try_from(code).unwrap_or(1));
    }
}

/// Reads lines until the input ends.
fn serve(server: &Arc<Server>, mut log: std::fs::File) {
    let mut input = std::io::stdin().lock();
    let mut line = Vec::new();
    loop {
        line.clear();
        match input.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let _ = log.write_all(&line);
        server.note('<', &line);
        if let Ok(text) = std::str::from_utf8(&line) {
            Server::receive(server, text.trim_end_matches(['\n', '\r']));
        }
    }
}

/// Blocks until the file is there: the tests' way of saying "now".
pub(crate) fn wait_for(path: &Path) {
    while !path.exists() {
        thread::sleep(Duration::from_millis(5));
    }
}

/// Blocks for ever.
pub(crate) fn forever() -> ! {
    loop {
        thread::park();
    }
}

/// Starts this program again below a shell that ignores TERM, HUP and INT: an ignored signal stays ignored over exec.
#[expect(clippy::disallowed_methods, reason = "a test program that starts itself")]
fn again_without_term(args: &[String]) -> i32 {
    use std::os::unix::process::CommandExt;
    let me = std::env::current_exe().unwrap_or_default();
    let error = Command::new("/bin/sh")
        .args(["-c", r#"trap "" TERM HUP INT; exec "$0" "$@""#])
        .arg(me)
        .args(args)
        .arg(DEAF_TO_TERM)
        .exec();
    let _ = writeln!(std::io::stderr(), "cannot start again: {error}");
    70
}

/// Starts the real server as a child that has our streams, and waits for it, as package runners do.
#[expect(clippy::disallowed_methods, reason = "a test program that starts itself")]
fn wrap(args: &[String]) -> i32 {
    let me = std::env::current_exe().unwrap_or_default();
    let child = Command::new(me).args(args).arg(BEHIND_WRAPPER).spawn();
    match child.and_then(|mut child| child.wait()) {
        Ok(status) => status.code().unwrap_or(1),
        Err(_) => 70,
    }
}

/// Starts a child that has none of our streams and never ends by itself, perhaps in a process group of its own.
#[expect(clippy::disallowed_methods, reason = "a test program that starts itself")]
fn linger(args: &[String], own_group: bool) {
    use std::os::unix::process::CommandExt;
    let me = std::env::current_exe().unwrap_or_default();
    let mut child = Command::new(me);
    child.args(args).arg(LINGER).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if own_group {
        child.process_group(0);
    }
    let _ = child.spawn();
}

fn open(scenario: &Path, what: &str) -> std::fs::File {
    let mut name = scenario.as_os_str().to_owned();
    name.push(".");
    name.push(what);
    match OpenOptions::new().create(true).append(true).open(&name) {
        Ok(file) => file,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "cannot open {name:?}: {error}");
            exit(73);
        }
    }
}

fn note(scenario: &Path, what: &str, text: &str) {
    let _ = open(scenario, what).write_all(text.as_bytes());
}
