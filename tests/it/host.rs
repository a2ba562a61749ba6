//! The scripted host: writes a configuration, starts the program, speaks raw lines, waits with a bound, and looks
//! afterwards whether any process is left.
//!
//! Knows nothing of what is right: the tests decide. Ids are compared as raw text, so `1` and `"1"` differ.
//!
//! Long, and one thing: the one hand with which all these tests hold the program.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use serde_json::value::RawValue;
use tempfile::TempDir;

use crate::checker::Schemas;
use crate::talk::{self, Talk};

/// How long a test waits for what must come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// The modern `_meta` members of a host that can do nothing.
pub(crate) const MODERN_META: &str = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"test-host","version":"1"}"#;

/// Which protocol the host speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Era {
    /// `initialize`, 2025-11-25.
    Legacy,
    /// `_meta` on each request, 2026-07-28.
    Modern,
}

impl Era {
    /// Both.
    pub(crate) const ALL: [Self; 2] = [Self::Legacy, Self::Modern];

    /// The word of the fake's scenario.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Modern => "modern",
        }
    }
}

/// The four cells, host × server.
pub(crate) const CELLS: [(Era, Era); 4] =
    [(Era::Legacy, Era::Legacy), (Era::Legacy, Era::Modern), (Era::Modern, Era::Legacy), (Era::Modern, Era::Modern)];

/// The program under test.
pub(crate) fn onegate() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_onegate"))
}

/// The scriptable server, built beside it as an example.
pub(crate) fn fake() -> PathBuf {
    let path = onegate().with_file_name("examples").join("fake-server");
    assert!(path.exists(), "{path:?} is missing: run `cargo build --example fake-server`");
    path
}

/// A folder with a configuration in it, and the environment that goes with it.
pub(crate) struct Setup {
    dir: TempDir,
    head: String,
    servers: String,
    env: Vec<(String, String)>,
    args: Vec<String>,
    backlog: usize,
    /// What the host and the program said; none where a fake stands alone.
    talk: Option<Talk>,
}

impl Drop for Setup {
    fn drop(&mut self) {
        if let (Some(schemas), Some(talk), false) = (Schemas::given(), &self.talk, thread::panicking()) {
            talk::judge(schemas, talk, self.dir.path());
        }
    }
}

impl Setup {
    /// Nothing configured.
    pub(crate) fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("onegate-it-").tempdir().unwrap();
        for sub in ["home", "work", "run", "xdg/config", "xdg/state", "xdg/cache", "xdg/data"] {
            std::fs::create_dir_all(dir.path().join(sub)).unwrap();
        }
        let talk = Some(Talk::default());
        let (head, servers) = (String::new(), String::new());
        Self { dir, head, servers, env: Vec::new(), args: Vec::new(), backlog: 100_000, talk }
    }

    /// The folder; every process of this setup has it in its arguments or environment.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// A file inside the folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Text before the servers, for example `[gateway]`.
    pub(crate) fn head(mut self, text: &str) -> Self {
        self.head.push_str(text);
        self.head.push('\n');
        self
    }

    /// Raw configuration text after what was added so far.
    pub(crate) fn raw(mut self, text: &str) -> Self {
        self.servers.push_str(text);
        self.servers.push('\n');
        self
    }

    /// The same with another text in the configuration of the servers.
    pub(crate) fn with(mut self, from: &str, to: &str) -> Self {
        assert!(self.servers.contains(from), "{from}");
        self.servers = self.servers.replace(from, to);
        self
    }

    /// A variable of the gateway's own environment.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// More arguments of `onegate run`.
    pub(crate) fn arg(mut self, arg: &str) -> Self {
        self.args.push(arg.to_owned());
        self
    }

    /// The host reads a line only when a test waits for one; else everything is read at once.
    pub(crate) fn reads_on_demand(mut self) -> Self {
        self.backlog = 0;
        self
    }

    /// Writes a scenario and returns the arguments that make the fake follow it.
    pub(crate) fn scenario(&self, key: &str, mut scenario: Value) -> Vec<String> {
        if scenario.get("label").is_none() {
            scenario["label"] = key.into();
        }
        if talk::is_kept() {
            scenario["talk"] = true.into();
        }
        let path = self.path(&format!("{key}.json"));
        std::fs::write(&path, scenario.to_string()).unwrap();
        vec!["--scenario".to_owned(), path.to_str().unwrap().to_owned()]
    }

    /// A fake server.
    pub(crate) fn server(self, key: &str, scenario: Value) -> Self {
        self.server_with(key, scenario, "")
    }

    /// A fake server with more configuration lines. `args = [` in them replaces nothing: use `more_args`.
    pub(crate) fn server_with(self, key: &str, scenario: Value, lines: &str) -> Self {
        self.server_args(key, scenario, lines, &[])
    }

    /// A fake server with more arguments.
    pub(crate) fn server_args(mut self, key: &str, scenario: Value, lines: &str, more: &[&str]) -> Self {
        let mut args = self.scenario(key, scenario);
        args.extend(more.iter().map(|&a| a.to_owned()));
        let table = format!(
            "[servers.{key}]\ncommand = {}\nargs = {}\n",
            toml_text(fake().to_str().unwrap()),
            toml_list(&args)
        );
        self.servers.push_str(&table);
        if !lines.contains("timeouts") {
            self.servers.push_str("timeouts = { start = \"20s\", probe = \"10s\", call = \"20s\" }\n");
        }
        self.servers.push_str(lines);
        self.servers.push('\n');
        self
    }

    /// Writes the configuration and returns its path.
    pub(crate) fn write(&self) -> PathBuf {
        let path = self.path("onegate.toml");
        std::fs::write(&path, format!("{}\n{}", self.head, self.servers)).unwrap();
        path
    }

    /// `onegate COMMAND --config …`, not started, in a clean environment of its own.
    #[expect(clippy::disallowed_methods, reason = "the tests start the program under test")]
    pub(crate) fn command(&self, command: &[&str]) -> Command {
        let config = self.write();
        let mut run = Command::new(onegate());
        run.args(command).arg("--config").arg(config);
        self.surround(&mut run);
        run
    }

    /// Gives a command the clean environment of this setup.
    pub(crate) fn surround(&self, run: &mut Command) {
        run.current_dir(self.path("work"))
            .env_clear()
            .env("PATH", std::env::var("PATH").unwrap_or_default())
            .env("HOME", self.path("home"))
            .env("TMPDIR", self.dir())
            .env("XDG_RUNTIME_DIR", self.path("run"))
            .env("XDG_CONFIG_HOME", self.path("xdg/config"))
            .env("XDG_STATE_HOME", self.path("xdg/state"))
            .env("XDG_CACHE_HOME", self.path("xdg/cache"))
            .env("XDG_DATA_HOME", self.path("xdg/data"))
            .envs(self.env.iter().cloned());
    }

    /// The exit code of a command, and the JSON that it prints.
    pub(crate) fn json(&self, command: &[&str]) -> (Option<i32>, Value) {
        let output = self.output(command);
        let value = serde_json::from_str(&output.out).unwrap_or_else(|_| panic!("{}{}", output.out, output.err));
        (output.code, value)
    }

    /// Runs a command to its end.
    pub(crate) fn output(&self, command: &[&str]) -> Output {
        let mut run = self.command(command);
        run.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = run.spawn().unwrap();
        let out = collect(child.stdout.take().unwrap());
        let err = collect(child.stderr.take().unwrap());
        let status = wait_exit(&mut child, PATIENCE).unwrap_or_else(|| {
            let _ = child.kill();
            panic!("{command:?} did not end");
        });
        Output { code: status.code(), out: out.join().unwrap(), err: err.join().unwrap() }
    }

    /// Starts `onegate run`, says nothing yet.
    pub(crate) fn start(self) -> Host {
        let mut run = self.command(&["run"]);
        run.args(&self.args);
        Host::spawn(run, self)
    }

    /// Starts another command that goes on until it is told to end.
    pub(crate) fn start_as(mut self, command: &[&str]) -> Host {
        if command != ["run"] {
            // What other commands print are no messages.
            self.talk = None;
        }
        let mut run = self.command(command);
        run.args(&self.args);
        Host::spawn(run, self)
    }

    /// Starts `onegate serve` as a service manager does that has opened its socket.
    #[expect(clippy::disallowed_methods, reason = "the tests start the program under test, here through a shell")]
    pub(crate) fn serve_on(mut self, listener: TcpListener) -> Host {
        self.talk = None;
        let mut shell = Command::new("/bin/sh");
        // The shell's own process becomes the program, so that the number of it is known before.
        let script = "exec 3<&0 </dev/null; LISTEN_FDS=1 LISTEN_PID=$$ exec \"$0\" serve --config \"$1\"";
        shell.args(["-c", script]).arg(onegate()).arg(self.write());
        self.surround(&mut shell);
        shell.stdin(Stdio::from(OwnedFd::from(listener)));
        Host::follow(shell, self)
    }

    /// Starts `onegate run` and opens it in the host's era.
    pub(crate) fn open(self, era: Era) -> Host {
        let mut host = self.start();
        host.open(era);
        host
    }

    /// Starts a fake by itself.
    #[expect(clippy::disallowed_methods, reason = "the tests start the fake under test")]
    pub(crate) fn fake_alone(mut self, scenario: Value) -> Host {
        self.talk = None;
        let args = self.scenario("alone", scenario);
        let mut run = Command::new(fake());
        run.args(args);
        self.surround(&mut run);
        Host::spawn(run, self)
    }
}

/// What a command left behind.
pub(crate) struct Output {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// A text as a TOML string.
pub(crate) fn toml_text(text: &str) -> String {
    Value::from(text).to_string()
}

/// Texts as a TOML array.
pub(crate) fn toml_list(items: &[String]) -> String {
    let items: Vec<String> = items.iter().map(|i| toml_text(i)).collect();
    format!("[{}]", items.join(", "))
}

fn collect(mut from: impl Read + Send + 'static) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Waits for the end of a child, at most that long.
pub(crate) fn wait_exit(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let end = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        if Instant::now() >= end {
            return None;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Asks again and again until it holds; panics at the limit.
pub(crate) fn until(what: &str, limit: Duration, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + limit;
    while !holds() {
        assert!(Instant::now() < end, "not within {limit:?}: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// The members of a JSON object as raw text.
pub(crate) type Members = BTreeMap<String, Box<RawValue>>;

/// One line of the gateway.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) line: String,
    members: Members,
}

impl Message {
    fn new(line: String) -> Self {
        let members: Members = serde_json::from_str(&line)
            .unwrap_or_else(|error| panic!("stdout holds a line that is no JSON object ({error}): {line:.400}"));
        assert_eq!(members.get("jsonrpc").map(|v| v.get()), Some("\"2.0\""), "no JSON-RPC 2.0: {line:.400}");
        Self { line, members }
    }

    /// A member, raw.
    pub(crate) fn raw(&self, key: &str) -> Option<&str> {
        self.members.get(key).map(|v| v.get())
    }

    pub(crate) fn method(&self) -> Option<String> {
        serde_json::from_str(self.raw("method")?).ok()
    }

    /// The result, raw; panics for an error.
    pub(crate) fn result(&self) -> &str {
        self.raw("result").unwrap_or_else(|| panic!("no result: {:.600}", self.line))
    }

    /// A member of the result, raw.
    pub(crate) fn result_raw(&self, key: &str) -> Option<String> {
        let members: Members = serde_json::from_str(self.result()).unwrap();
        members.get(key).map(|v| v.get().to_owned())
    }

    /// The result, decoded.
    pub(crate) fn value(&self) -> Value {
        serde_json::from_str(self.result()).unwrap()
    }

    /// The first text block of a tool's result.
    pub(crate) fn text(&self) -> String {
        let value = self.value();
        let text = value["content"][0]["text"].as_str();
        text.unwrap_or_else(|| panic!("no text: {:.600}", self.line)).to_owned()
    }

    /// The error, decoded; panics for a result.
    pub(crate) fn error(&self) -> Value {
        let raw = self.raw("error").unwrap_or_else(|| panic!("no error: {:.600}", self.line));
        serde_json::from_str(raw).unwrap()
    }

    /// The error's code.
    pub(crate) fn code(&self) -> i64 {
        self.error()["code"].as_i64().unwrap()
    }

    /// `error.data.reason`, the stable word for a failure.
    pub(crate) fn reason(&self) -> String {
        self.error()["data"]["reason"].as_str().unwrap_or_default().to_owned()
    }

    /// The params, decoded.
    pub(crate) fn params(&self) -> Value {
        self.raw("params").map_or(Value::Null, |p| serde_json::from_str(p).unwrap())
    }
}

/// A running program and the host's end of its pipes.
pub(crate) struct Host {
    pub(crate) child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<Vec<u8>>,
    inbox: VecDeque<Message>,
    stderr: Arc<Mutex<Vec<u8>>>,
    /// Reads that until it is closed.
    reading: thread::JoinHandle<()>,
    next_id: u64,
    pub(crate) era: Era,
    setup: Setup,
    /// Descendants that were seen, with the time of their start: pids are used again.
    seen: Mutex<BTreeSet<(u32, u64)>>,
}

impl Host {
    fn spawn(mut run: Command, setup: Setup) -> Self {
        run.stdin(Stdio::piped());
        Self::follow(run, setup)
    }

    /// Starts it with the standard input that it has.
    fn follow(mut run: Command, setup: Setup) -> Self {
        run.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = run.spawn().unwrap();
        let (send, lines) = sync_channel(setup.backlog);
        let out = child.stdout.take().unwrap();
        let on_demand = setup.backlog == 0;
        thread::spawn(move || {
            let mut out = BufReader::new(out);
            loop {
                let mut line = Vec::new();
                match out.read_until(b'\n', &mut line) {
                    Ok(0) | Err(_) => return,
                    Ok(_) => {}
                }
                // What ends while nobody reads ends in the middle of a line; of others none is cut.
                if line.pop_if(|b| *b == b'\n').is_none() && on_demand {
                    return;
                }
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        let stderr = Arc::new(Mutex::new(Vec::new()));
        let mut err = child.stderr.take().unwrap();
        let kept = Arc::clone(&stderr);
        let reading = thread::spawn(move || {
            let mut chunk = [0; 8192];
            while let Ok(n @ 1..) = err.read(&mut chunk) {
                kept.lock().unwrap().extend_from_slice(&chunk[..n]);
            }
        });
        let stdin = child.stdin.take();
        Self {
            child,
            stdin,
            lines,
            inbox: VecDeque::new(),
            stderr,
            reading,
            next_id: 0,
            era: Era::Legacy,
            setup,
            seen: Mutex::default(),
        }
    }

    /// Opens the session as the era asks for.
    pub(crate) fn open(&mut self, era: Era) -> Message {
        match era {
            Era::Legacy => self.initialize("2025-11-25"),
            Era::Modern => {
                self.era = era;
                self.ask("server/discover", "")
            }
        }
    }

    /// `initialize` and `notifications/initialized`.
    pub(crate) fn initialize(&mut self, version: &str) -> Message {
        self.era = Era::Legacy;
        let answer = self.ask(
            "initialize",
            &format!(
                r#""protocolVersion":{},"capabilities":{{}},"clientInfo":{{"name":"test-host","version":"1"}}"#,
                Value::from(version)
            ),
        );
        self.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        answer
    }

    /// Another program in the environment of this one, whose configuration stays as it is; `arguments` are all that it gets. What
    /// it says is read as this one's is.
    #[expect(clippy::disallowed_methods, reason = "the tests start the program under test")]
    pub(crate) fn beside(&self, arguments: &[&str], env: &[(&str, &str)]) -> Host {
        let mut run = Command::new(onegate());
        run.args(arguments);
        self.setup.surround(&mut run);
        run.envs(env.iter().copied());
        let mut setup = Setup::new();
        setup.backlog = self.setup.backlog;
        Host::spawn(run, setup)
    }

    /// What it was started with.
    pub(crate) fn setup(&self) -> &Setup {
        &self.setup
    }

    /// Runs another command beside it, with the same configuration and environment.
    pub(crate) fn output(&self, command: &[&str]) -> Output {
        self.setup.output(command)
    }

    /// The folder of this run.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.setup.path(name)
    }

    /// Everything the program said on stderr so far.
    pub(crate) fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.stderr.lock().unwrap()).into_owned()
    }

    /// Waits until stderr holds a text.
    pub(crate) fn wait_stderr(&self, text: &str) {
        until(&format!("stderr holds {text:?}"), PATIENCE, || self.stderr().contains(text));
    }

    /// What a fake was sent, line by line.
    pub(crate) fn received(&self, key: &str) -> Vec<String> {
        let text = std::fs::read(self.path(&format!("{key}.json.received"))).unwrap_or_default();
        String::from_utf8_lossy(&text).lines().map(str::to_owned).collect()
    }

    /// The received lines with that method.
    pub(crate) fn received_of(&self, key: &str, method: &str) -> Vec<Members> {
        let lines = self.received(key);
        let parsed = lines.iter().filter_map(|l| serde_json::from_str::<Members>(l).ok());
        let quoted = Value::from(method).to_string();
        parsed.filter(|m| m.get("method").is_some_and(|v| v.get() == quoted)).collect()
    }

    /// How often a fake was started.
    pub(crate) fn starts(&self, key: &str) -> usize {
        let text = std::fs::read_to_string(self.path(&format!("{key}.json.starts"))).unwrap_or_default();
        text.lines().count()
    }

    /// Waits until the process of a fake that was started last has ended.
    pub(crate) fn ended(&self, key: &str) {
        let text = std::fs::read_to_string(self.path(&format!("{key}.json.starts"))).unwrap();
        let pid = text.lines().last().unwrap().parse().unwrap();
        until(&format!("process {pid} of {key} has ended"), PATIENCE, || started_at(pid).is_none());
    }

    /// Writes one line.
    pub(crate) fn send(&mut self, line: &str) {
        self.send_bytes(format!("{line}\n").as_bytes());
    }

    /// Writes bytes.
    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        let stdin = self.stdin.as_mut().expect("input is still open");
        if let Some(talk) = &mut self.setup.talk {
            talk.heard(bytes);
        }
        if let Err(error) = stdin.write_all(bytes).and_then(|()| stdin.flush()) {
            panic!("cannot write to the program: {error}\n{}", self.stderr());
        }
    }

    /// Sends a request with the members of its params; returns its raw id.
    pub(crate) fn post(&mut self, method: &str, members: &str) -> String {
        self.post_meta(method, members, "")
    }

    /// The same with more members of `_meta`.
    pub(crate) fn post_meta(&mut self, method: &str, members: &str, meta: &str) -> String {
        self.next_id += 1;
        let id = self.next_id.to_string();
        self.post_as(&id, method, members, meta);
        id
    }

    /// The same with a raw id.
    pub(crate) fn post_as(&mut self, id: &str, method: &str, members: &str, meta: &str) {
        let params = self.params(members, meta);
        self.send(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{}{params}}}"#, Value::from(method)));
    }

    /// `,"params":{…}` of this era; empty when there is nothing in it.
    fn params(&self, members: &str, meta: &str) -> String {
        let meta = match self.era {
            Era::Legacy if meta.is_empty() => String::new(),
            Era::Legacy => format!("\"_meta\":{{{meta}}}"),
            Era::Modern if meta.is_empty() => format!("\"_meta\":{{{MODERN_META}}}"),
            Era::Modern => format!("\"_meta\":{{{meta},{MODERN_META}}}"),
        };
        let parts: Vec<&str> = [members, &meta].into_iter().filter(|p| !p.is_empty()).collect();
        if parts.is_empty() { String::new() } else { format!(",\"params\":{{{}}}", parts.join(",")) }
    }

    /// Sends a request and waits for its answer.
    pub(crate) fn ask(&mut self, method: &str, members: &str) -> Message {
        let id = self.post(method, members);
        self.answer(&id)
    }

    /// The next line within the limit.
    pub(crate) fn next(&mut self, limit: Duration) -> Option<Message> {
        match self.inbox.pop_front() {
            Some(message) => Some(message),
            None => self.fresh(limit),
        }
    }

    /// The next line as it is, also when it is no object.
    pub(crate) fn raw_line(&mut self, limit: Duration) -> Option<String> {
        let line = self.lines.recv_timeout(limit).ok()?;
        self.said(&line);
        Some(String::from_utf8(line).expect("stdout is UTF-8"))
    }

    fn fresh(&mut self, limit: Duration) -> Option<Message> {
        match self.lines.recv_timeout(limit) {
            Ok(line) => {
                self.said(&line);
                Some(Message::new(String::from_utf8(line).expect("stdout is UTF-8")))
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => None,
        }
    }

    /// The program said this on stdout.
    fn said(&mut self, line: &[u8]) {
        if let Some(talk) = &mut self.setup.talk {
            talk.said(line);
        }
    }

    /// The first line that fits, out of those kept or to come; the others are kept.
    pub(crate) fn pick(&mut self, what: &str, limit: Duration, fits: impl Fn(&Message) -> bool) -> Message {
        self.try_pick(limit, fits).unwrap_or_else(|| {
            let kept: Vec<String> = self.inbox.iter().map(|m| format!("{:.300}", m.line)).collect();
            panic!("no {what} within {limit:?}\nkept: {kept:#?}\nstderr:\n{}", self.stderr())
        })
    }

    /// The same without the panic.
    pub(crate) fn try_pick(&mut self, limit: Duration, fits: impl Fn(&Message) -> bool) -> Option<Message> {
        if let Some(at) = self.inbox.iter().position(&fits) {
            return self.inbox.remove(at);
        }
        let end = Instant::now() + limit;
        loop {
            let message = self.fresh(end.saturating_duration_since(Instant::now()))?;
            if fits(&message) {
                return Some(message);
            }
            self.inbox.push_back(message);
        }
    }

    /// The answer with that raw id.
    pub(crate) fn answer(&mut self, id: &str) -> Message {
        self.pick(&format!("answer to {id}"), PATIENCE, |m| m.raw("id") == Some(id) && m.method().is_none())
    }

    /// The next notification or request of that method.
    pub(crate) fn note(&mut self, method: &str) -> Message {
        self.pick(method, PATIENCE, |m| m.method().as_deref() == Some(method))
    }

    /// Everything that is there once a fresh request has been answered: whatever was under way before it on the
    /// same pipe has arrived.
    pub(crate) fn drained(&mut self) -> Vec<Message> {
        let id = self.post("tools/list", "");
        let _ = self.answer(&id);
        self.inbox.drain(..).collect()
    }

    /// Calls a tool with raw arguments and waits.
    pub(crate) fn call(&mut self, name: &str, arguments: &str) -> Message {
        let id = self.post_call(name, arguments);
        self.answer(&id)
    }

    /// Calls a tool, does not wait.
    pub(crate) fn post_call(&mut self, name: &str, arguments: &str) -> String {
        self.post("tools/call", &format!(r#""name":{},"arguments":{arguments}"#, Value::from(name)))
    }

    /// The definitions of one list answer, raw.
    pub(crate) fn tools_raw(&mut self) -> Vec<String> {
        let answer = self.ask("tools/list", "");
        let raw = answer.result_raw("tools").unwrap();
        let items: Vec<Box<RawValue>> = serde_json::from_str(&raw).unwrap();
        items.iter().map(|i| i.get().to_owned()).collect()
    }

    /// The names of one list answer.
    pub(crate) fn tools(&mut self) -> Vec<String> {
        let name = |raw: &String| {
            let members: Members = serde_json::from_str(raw).unwrap();
            serde_json::from_str(members["name"].get()).unwrap()
        };
        self.tools_raw().iter().map(name).collect()
    }

    /// Lists until it is as wished: late servers arrive by and by.
    pub(crate) fn tools_until(&mut self, what: &str, fits: impl Fn(&[String]) -> bool) -> Vec<String> {
        let end = Instant::now() + PATIENCE;
        loop {
            let tools = self.tools();
            if fits(&tools) {
                return tools;
            }
            assert!(Instant::now() < end, "never {what}; last {tools:?}\n{}", self.stderr());
            // A change is told; ask again then, or after a while in case it came before.
            let _ = self.try_pick(Duration::from_millis(200), |m| {
                m.method().as_deref() == Some("notifications/tools/list_changed")
            });
        }
    }

    /// Waits for that many tools.
    pub(crate) fn tools_count(&mut self, count: usize) -> Vec<String> {
        self.tools_until(&format!("{count} tools"), |tools| tools.len() == count)
    }

    /// Closes the input.
    pub(crate) fn close_input(&mut self) {
        let _ = self.processes();
        self.stdin = None;
    }

    /// Sends a signal, by its name, to the program alone.
    #[expect(clippy::disallowed_methods, reason = "signals without unsafe code: by the shell's own kill")]
    pub(crate) fn signal(&self, name: &str) {
        let _ = self.processes();
        let script = format!("kill -{name} {}", self.child.id());
        assert!(Command::new("/bin/sh").args(["-c", &script]).status().unwrap().success());
    }

    /// The program's largest resident size so far.
    pub(crate) fn peak_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|l| l.starts_with("VmHWM:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// Processes of this setup that live, pid and command line: those that show its folder, and all that were seen
    /// to descend from the program, whatever they show.
    pub(crate) fn processes(&self) -> Vec<(u32, String)> {
        let mut seen = self.seen.lock().unwrap();
        seen.extend(descendants(self.child.id()));
        let mut found = processes_of(self.setup.dir());
        for &(pid, started) in seen.iter() {
            if started_at(pid) == Some(started) && !found.iter().any(|(known, _)| *known == pid) {
                found.push((pid, format!("a descendant of the program: {}", command_line(pid))));
            }
        }
        found
    }

    /// Waits for the program's end.
    pub(crate) fn wait_end(&mut self, limit: Duration) -> ExitStatus {
        wait_exit(&mut self.child, limit).unwrap_or_else(|| panic!("did not end within {limit:?}\n{}", self.stderr()))
    }

    /// Waits until no process of this setup lives.
    pub(crate) fn all_gone(&self, limit: Duration) {
        until("every process is gone", limit, || {
            let left = self.processes();
            left.is_empty()
        });
    }

    /// Ends as hosts do: closes the input; exit 0, no process left.
    pub(crate) fn finish(self) {
        self.last_words();
    }

    /// The same, to be started once more in the same place.
    pub(crate) fn leave(mut self) -> Setup {
        let setup = std::mem::replace(&mut self.setup, Setup::new());
        self.last_words();
        setup
    }

    /// The same; all that it ever said on stderr.
    pub(crate) fn last_words(mut self) -> String {
        self.close_input();
        let status = self.wait_end(Duration::from_secs(10));
        assert_eq!(status.code(), Some(0), "exit code after end of input\n{}", self.stderr());
        self.all_gone(Duration::from_secs(5));
        until("stderr is read to its end", Duration::from_secs(5), || self.reading.is_finished());
        let said = self.stderr();
        assert!(!said.contains("panicked"), "a panic:\n{said}");
        said
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if thread::panicking() {
            let text = self.stderr();
            let tail = text.len().saturating_sub(4000);
            let tail = text.get(tail..).unwrap_or(&text);
            let _ = writeln!(std::io::stderr(), "--- stderr of the program ---\n{tail}\n---");
        }
        self.stdin = None;
        let lives = self.child.try_wait().ok().flatten().is_none();
        if lives {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
        // Also what no test waited for is a message.
        while let Ok(line) = self.lines.try_recv() {
            // Whoever is killed may leave half a line.
            if !lives || line.ends_with(b"}") {
                self.said(&line);
            }
        }
        // What a failed test left is ended here, by pid, so that it does not pile up.
        for (pid, _) in self.processes() {
            kill(pid);
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "signals without unsafe code: by the shell's own kill")]
fn kill(pid: u32) {
    let script = format!("kill -KILL {pid} 2>/dev/null");
    let _ = Command::new("/bin/sh").args(["-c", &script]).status();
}

/// Parent and start time of a process that is no zombie.
fn stat(pid: u32) -> Option<(u32, u64)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before it may hold anything; the state comes after its closing bracket.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let zombie = matches!(fields.first(), Some(&("Z" | "X")));
    if zombie { None } else { Some((fields.get(1)?.parse().ok()?, fields.get(19)?.parse().ok()?)) }
}

fn started_at(pid: u32) -> Option<u64> {
    stat(pid).map(|(_, started)| started)
}

fn command_line(pid: u32) -> String {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}

fn pids() -> Vec<u32> {
    let names = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.file_name());
    names.filter_map(|name| name.to_str()?.parse().ok()).collect()
}

/// Everything below a process, itself not included.
fn descendants(root: u32) -> BTreeSet<(u32, u64)> {
    let all: Vec<(u32, u32, u64)> =
        pids().into_iter().filter_map(|pid| stat(pid).map(|(parent, started)| (pid, parent, started))).collect();
    let mut found = BTreeSet::new();
    let mut above = vec![root];
    while let Some(parent) = above.pop() {
        for &(pid, _, started) in all.iter().filter(|(_, of, _)| *of == parent) {
            if found.insert((pid, started)) {
                above.push(pid);
            }
        }
    }
    found
}

/// Processes that have the folder in their arguments, environment or working directory.
pub(crate) fn processes_of(dir: &Path) -> Vec<(u32, String)> {
    let mark = dir.to_str().unwrap().as_bytes();
    let holds = |bytes: &[u8]| bytes.windows(mark.len()).any(|w| w == mark);
    let mut found = Vec::new();
    for pid in pids() {
        let folder = PathBuf::from(format!("/proc/{pid}"));
        let read = |name: &str| std::fs::read(folder.join(name)).unwrap_or_default();
        let here = std::fs::read_link(folder.join("cwd")).is_ok_and(|cwd| cwd.starts_with(dir));
        if here || holds(&read("cmdline")) || holds(&read("environ")) {
            found.push((pid, command_line(pid)));
        }
    }
    found
}
