//! The MCP side of the fake: answers, lists, paging, noise, era.
//!
//! Knows nothing of single tools: `act.rs` does them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::process::exit;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use serde_json::value::RawValue;

use crate::act;
use crate::scenario::Scenario;

/// The members of a JSON object, each as raw text.
pub(crate) type Members = BTreeMap<String, Box<RawValue>>;

/// Splits an object into its members without touching their bytes.
pub(crate) fn members(text: &str) -> Members {
    serde_json::from_str(text).unwrap_or_default()
}

/// A text as a JSON string.
pub(crate) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn text_of(members: &Members, key: &str) -> Option<String> {
    serde_json::from_str(members.get(key)?.get()).ok()
}

/// A request as it arrived.
#[derive(Clone)]
pub(crate) struct Request {
    /// The whole line.
    pub(crate) line: String,
    /// Its id, raw.
    pub(crate) id: String,
    /// Its progress token, raw, or `null`.
    pub(crate) token: String,
    /// Whether it carries the version key of the modern era.
    pub(crate) modern: bool,
    /// `params.name`.
    pub(crate) name: String,
    /// `params.arguments`, raw; empty when absent.
    pub(crate) arguments: String,
}

/// What changes while serving.
struct State {
    tools: Vec<String>,
    listens: Vec<String>,
    lists: u64,
    pages: u64,
    opened: bool,
    legacy: bool,
}

/// One serving process.
pub(crate) struct Server {
    pub(crate) scenario: Scenario,
    state: Mutex<State>,
    out: Mutex<std::io::Stdout>,
    /// Where each line is written down.
    talk: Option<File>,
    answered: AtomicU64,
    dice: AtomicU64,
    /// Our own requests to the client that wait for an answer, by their id.
    pub(crate) asked: Mutex<BTreeMap<String, SyncSender<String>>>,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes that many bytes to stderr.
pub(crate) fn flood(bytes: u64, newline: bool) {
    let mut chunk = vec![b'e'; 8192];
    if newline {
        for at in (99..chunk.len()).step_by(100) {
            chunk[at] = b'\n';
        }
    }
    let mut err = std::io::stderr().lock();
    for _ in 0..bytes / 8192 {
        if err.write_all(&chunk).is_err() {
            return;
        }
    }
}

impl Server {
    pub(crate) fn new(scenario: Scenario, talk: Option<File>) -> Self {
        let mut tools = scenario.list("tools");
        for n in 0..scenario.number("tool_count").unwrap_or(0) {
            tools.push(format!(r#"{{"name":"t{n:03}","inputSchema":{{"type":"object"}}}}"#));
        }
        let state = State { tools, listens: Vec::new(), lists: 0, pages: 0, opened: false, legacy: false };
        Self {
            scenario,
            talk,
            state: Mutex::new(state),
            out: Mutex::new(std::io::stdout()),
            answered: AtomicU64::new(0),
            dice: AtomicU64::new(u64::from(std::process::id()) | 1 << 40),
            asked: Mutex::new(BTreeMap::new()),
        }
    }

    /// A number below `bound`, different each time.
    pub(crate) fn roll(&self, bound: u64) -> u64 {
        let mut x = self.dice.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        x ^= x >> 30;
        x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x ^= x >> 27;
        x = x.wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % bound.max(1)
    }

    /// Writes one line, as the scenario's `stream` says.
    pub(crate) fn line(&self, text: &str) {
        self.bytes(format!("{text}\n").as_bytes());
    }

    /// Writes bytes as they are.
    pub(crate) fn bytes(&self, bytes: &[u8]) {
        let mut out = lock(&self.out);
        // What is no whole line is no message.
        if bytes.ends_with(b"\n") {
            self.note('>', bytes);
        }
        if self.scenario.text("stream").as_deref() == Some("bytes") {
            for byte in bytes {
                let _ = out.write_all(std::slice::from_ref(byte));
                let _ = out.flush();
            }
        } else {
            let _ = out.write_all(bytes);
            let _ = out.flush();
        }
    }

    /// Writes down a line: `>` is ours, `<` came.
    pub(crate) fn note(&self, who: char, line: &[u8]) {
        if let Some(mut talk) = self.talk.as_ref() {
            let note = [format!("{} {who} ", std::process::id()).as_bytes(), line].concat();
            let _ = talk.write_all(&note);
        }
    }

    /// Everything that precedes an answer.
    pub(crate) fn noise(&self) {
        for line in self.scenario.list("noise") {
            self.line(&line);
        }
        if let Some(kib) = self.scenario.number("stderr_per_answer_kib") {
            flood(kib << 10, self.scenario.flag("stderr_newline"));
        }
    }

    fn id(&self, id: &str) -> String {
        if self.scenario.flag("text_ids") && !id.starts_with('"') { quoted(id) } else { id.to_owned() }
    }

    /// Answers with a result; a modern one gets its `resultType` unless it has one.
    pub(crate) fn result(&self, request: &Request, result: &str) {
        self.noise();
        let rest = result.strip_prefix('{').filter(|_| request.modern && !result.contains("\"resultType\""));
        let shaped = match rest {
            Some("}") => r#"{"resultType":"complete"}"#.to_owned(),
            Some(rest) => format!(r#"{{"resultType":"complete",{rest}"#),
            None => result.to_owned(),
        };
        self.line(&format!(r#"{{"jsonrpc":"2.0","id":{},"result":{shaped}}}"#, self.id(&request.id)));
    }

    /// Answers with an error object.
    pub(crate) fn error(&self, request: &Request, error: &str) {
        self.noise();
        self.line(&format!(r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#, self.id(&request.id)));
    }

    /// A raw line with its marks filled in.
    pub(crate) fn filled(&self, text: &str, request: &Request) -> String {
        text.replace("@ID@", &self.id(&request.id))
            .replace("@TOKEN@", &request.token)
            .replace("@NAME@", &quoted(&request.name))
            .replace("@ARGS@", if request.arguments.is_empty() { "null" } else { &request.arguments })
    }

    /// Counts an answered call and ends the process when the scenario says so.
    pub(crate) fn call_done(&self) {
        let done = self.answered.fetch_add(1, Ordering::SeqCst) + 1;
        if self.scenario.number("exit_after") == Some(done) {
            thread::sleep(Duration::from_millis(self.scenario.number("exit_delay_ms").unwrap_or(0)));
            exit(self.scenario.number("exit_code").and_then(|c| i32::try_from(c).ok()).unwrap_or(0));
        }
    }

    /// Takes one line of the client.
    pub(crate) fn receive(server: &Arc<Self>, line: &str) {
        let message = members(line);
        let id = message.get("id").map(|id| id.get().to_owned());
        let Some(method) = text_of(&message, "method") else {
            if let Some(waiting) = id.and_then(|id| lock(&server.asked).remove(&id)) {
                let _ = waiting.try_send(line.to_owned());
            }
            return;
        };
        let params = message.get("params").map(|p| members(p.get())).unwrap_or_default();
        let meta = params.get("_meta").map(|m| members(m.get())).unwrap_or_default();
        let Some(id) = id else {
            if method == "notifications/initialized" {
                server.opened();
            }
            return;
        };
        let request = Request {
            line: line.to_owned(),
            id,
            token: meta.get("progressToken").map_or_else(|| "null".to_owned(), |t| t.get().to_owned()),
            modern: meta.contains_key("io.modelcontextprotocol/protocolVersion"),
            name: text_of(&params, "name").unwrap_or_default(),
            arguments: params.get("arguments").map_or_else(String::new, |a| a.get().to_owned()),
        };
        server.dispatch(server, &request, &method, &params);
    }

    fn dispatch(&self, server: &Arc<Self>, request: &Request, method: &str, params: &Members) {
        let era = self.scenario.text("era").unwrap_or_else(|| "legacy".to_owned());
        let wrong_era = if request.modern { era == "legacy" } else { era == "modern" };
        if let "initialize" | "server/discover" = method {
            let key = if method == "initialize" { "initialize" } else { "discover" };
            if let Some(script) = self.scenario.text(key) {
                return self.scripted(&script, request);
            }
        }
        if wrong_era {
            let code = if method == "initialize" || request.modern { -32601 } else { -32602 };
            return self.error(request, &format!(r#"{{"code":{code},"message":"not in this era: {method}"}}"#));
        }
        match method {
            "initialize" => self.initialize(request, params),
            "server/discover" => self.discover(request),
            "ping" if !request.modern => self.result(request, "{}"),
            "tools/list" => self.list(request, params),
            "tools/call" => act::call(server, request),
            "subscriptions/listen" if request.modern => self.listen(request),
            _ => self.error(request, r#"{"code":-32601,"message":"Method not found"}"#),
        }
    }

    fn scripted(&self, script: &str, request: &Request) {
        match script {
            "die" => exit(1),
            "silent" => {}
            line => {
                self.noise();
                self.line(&self.filled(line, request));
            }
        }
    }

    fn capabilities(&self) -> String {
        self.scenario.text("capabilities").unwrap_or_else(|| r#"{"tools":{"listChanged":true}}"#.to_owned())
    }

    fn instructions(&self) -> String {
        let text = self.scenario.text("instructions");
        text.map_or_else(String::new, |t| format!(r#","instructions":{}"#, quoted(&t)))
    }

    fn initialize(&self, request: &Request, params: &Members) {
        lock(&self.state).legacy = true;
        let asked = params.get("protocolVersion").map_or(r#""2025-11-25""#, |v| v.get()).to_owned();
        let version = self.scenario.text("version").map_or(asked, |v| quoted(&v));
        let result = format!(
            r#"{{"protocolVersion":{version},"capabilities":{},"serverInfo":{{"name":"fake","version":"1"}}{}}}"#,
            self.capabilities(),
            self.instructions(),
        );
        self.result(request, &result);
    }

    fn discover(&self, request: &Request) {
        let versions = self.scenario.text("versions").unwrap_or_else(|| r#"["2026-07-28"]"#.to_owned());
        let result = format!(
            r#"{{"supportedVersions":{versions},"capabilities":{},"ttlMs":60000,"cacheScope":"private"{}}}"#,
            self.capabilities(),
            self.instructions(),
        );
        self.result(request, &result);
    }

    fn opened(&self) {
        if std::mem::replace(&mut lock(&self.state).opened, true) {
            return;
        }
        for line in self.scenario.list("after_open") {
            self.line(&line);
        }
    }

    fn listen(&self, request: &Request) {
        let id = self.id(&request.id);
        self.line(&format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{{"notifications":{{"toolsListChanged":true}},"_meta":{{"io.modelcontextprotocol/subscriptionId":{id}}}}}}}"#
        ));
        lock(&self.state).listens.push(id);
    }

    /// Adds a definition, or takes the first away when there is none to add; then says that the list changed.
    pub(crate) fn change(&self, tool: Option<String>) {
        let (listens, legacy) = {
            let mut state = lock(&self.state);
            match tool {
                Some(tool) => state.tools.push(tool),
                None if state.tools.is_empty() => {}
                None => drop(state.tools.remove(0)),
            }
            (state.listens.clone(), state.legacy)
        };
        let method = r#""jsonrpc":"2.0","method":"notifications/tools/list_changed""#;
        if legacy {
            self.line(&format!("{{{method}}}"));
        }
        for id in listens {
            self.line(&format!(
                r#"{{{method},"params":{{"_meta":{{"io.modelcontextprotocol/subscriptionId":{id}}}}}}}"#
            ));
        }
    }

    fn list(&self, request: &Request, params: &Members) {
        let cursor = text_of(params, "cursor");
        let (tools, lists, pages) = {
            let mut state = lock(&self.state);
            state.lists += u64::from(cursor.is_none());
            state.pages += 1;
            (state.tools.clone(), state.lists, state.pages)
        };
        let fine = self.scenario.number("lists_ok").is_some_and(|ok| lists <= ok);
        if let Some(script) = self.scenario.text("list").filter(|_| !fine) {
            return self.scripted(&script, request);
        }
        let size = self.scenario.number("page").map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX));
        let style = if fine { None } else { self.scenario.text("cursor") };
        let from = match cursor.as_deref() {
            None => 0,
            Some("") => size,
            Some(text) => text.parse().unwrap_or(0),
        };
        let end = from.saturating_add(size).min(tools.len());
        let offset = (end < tools.len()).then(|| end.to_string());
        let next = match style.as_deref() {
            Some("empty") if cursor.is_none() => offset.map(|_| String::new()),
            Some("repeat") => Some("again".to_owned()),
            Some("alternate") => Some(if pages % 2 == 0 { "B" } else { "A" }.to_owned()),
            Some("fresh") => Some(format!("c{pages}")),
            _ => offset,
        };
        let items = tools.get(from..end).unwrap_or_default().join(",");
        let next = next.map_or_else(String::new, |c| format!(r#","nextCursor":{}"#, quoted(&c)));
        let hints = if request.modern { r#","ttlMs":0,"cacheScope":"private""# } else { "" };
        self.result(request, &format!(r#"{{"tools":[{items}]{next}{hints}}}"#));
        if request.modern {
            self.opened();
        }
    }
}
