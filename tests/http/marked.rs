//! Servers of both eras that do what a call's arguments say, and know whose each value is: all that a host sends, and all
//! that a server answers for it, holds its owner's mark.
//!
//! What is wrong they write into the [`Book`], which is also where the hosts of `principals.rs` keep what they got and
//! what one may try with the other's.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::end::End;

/// The principals.
pub(crate) const OWNERS: [&str; 2] = ["one", "two"];
/// The `_meta` key that a host's mark stands under.
pub(crate) const MARK: &str = "test/mark";
/// The extension of tasks, where a request says what its host can do, and how the id of a task begins.
pub(crate) const TASKS: &str = "io.modelcontextprotocol/tasks";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const TASK: &str = "task of ";
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
/// Prompts of the modern server: more than a page of ours.
const PROMPTS: usize = 1001;

/// A mark: whose, and which.
pub(crate) fn mark(owner: usize, number: usize) -> String {
    format!("mark-{}-{number}-", OWNERS[owner])
}

/// Whose marks stand in a text.
pub(crate) fn owners(text: &str) -> Vec<usize> {
    (0..OWNERS.len()).filter(|owner| text.contains(&format!("mark-{}-", OWNERS[*owner]))).collect()
}

/// What all know.
#[derive(Default)]
pub(crate) struct Book {
    /// What must not have happened.
    pub(crate) errors: Vec<String>,
    /// How often something went as it should.
    pub(crate) done: BTreeMap<&'static str, usize>,
    /// Marks of calls that a server holds, and of those that ended in the meantime.
    pub(crate) held: BTreeSet<String>,
    /// Marks of calls that their own host gave up.
    pub(crate) given_up: BTreeSet<String>,
    /// What each got: request states with the request they belong to, cursors, URIs, and ids of questions,
    /// events and tasks.
    pub(crate) states: [Vec<(String, Value, String)>; 2],
    pub(crate) cursors: [Vec<String>; 2],
    pub(crate) learned: [Vec<(String, usize)>; 2],
    pub(crate) questions: [Vec<Value>; 2],
    pub(crate) events: [Vec<String>; 2],
    pub(crate) tasks: [Vec<String>; 2],
}

/// The book, open.
pub(crate) type Shared = Arc<Mutex<Book>>;

pub(crate) fn lock(book: &Shared) -> MutexGuard<'_, Book> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Book {
    pub(crate) fn did(&mut self, what: &'static str) {
        *self.done.entry(what).or_default() += 1;
    }

    pub(crate) fn wrong(&mut self, what: String) {
        self.errors.push(what);
    }
}

/// What a question waits for: its call, the mark, and what kind it is.
struct Question {
    call: Value,
    mark: String,
}

/// One connection of the gateway to a server.
struct Server {
    end: End,
    modern: bool,
    book: Shared,
    random: fastrand::Rng,
    /// Whose marks came here; one at most in the legacy era (CON-3).
    seen: BTreeSet<usize>,
    /// Answers that wait, so that they come in another order.
    waiting: Vec<(Value, Value)>,
    holding: HashMap<String, String>,
    asked: HashMap<String, Question>,
    streams: Vec<Value>,
    next: usize,
    changed: bool,
}

/// Serves all links to a server until there are no more.
pub(crate) async fn serve(mut links: mpsc::Receiver<End>, modern: bool, book: Shared, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut serving = tokio::task::JoinSet::new();
    while let Some(end) = links.recv().await {
        let server = Server {
            end,
            modern,
            book: Arc::clone(&book),
            random: random.fork(),
            seen: BTreeSet::new(),
            waiting: Vec::new(),
            holding: HashMap::new(),
            asked: HashMap::new(),
            streams: Vec::new(),
            next: 0,
            changed: false,
        };
        serving.spawn(server.run());
        while let Some(ended) = serving.try_join_next() {
            ended.unwrap();
        }
    }
    serving.shutdown().await;
}

/// A task of a call.
fn task(said: &str, status: &str) -> Value {
    let mut task = json!({"taskId": format!("{TASK}{said}"), "status": status, "createdAt": "2026-08-01T10:00:00Z",
        "lastUpdatedAt": "2026-08-01T10:00:00Z", "ttlMs": null});
    match status {
        "working" => task["resultType"] = json!("task"),
        _ => task["result"] = text(said),
    }
    task
}

fn text(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

impl Server {
    async fn run(mut self) {
        loop {
            let pause = Duration::from_millis(if self.waiting.is_empty() { 1000 } else { 1 });
            match tokio::time::timeout(pause, self.end.next()).await {
                Ok(Some(message)) => {
                    if !self.message(&message).await {
                        break;
                    }
                    if self.random.u8(..) > 100 {
                        self.answer_one().await;
                    }
                }
                Ok(None) => break,
                Err(_) => self.answer_one().await,
            }
        }
        let mut book = lock(&self.book);
        for mark in self.holding.values() {
            book.held.remove(mark);
        }
    }

    async fn answer_one(&mut self) {
        if !self.waiting.is_empty() {
            let at = self.random.usize(..self.waiting.len());
            let (request, result) = self.waiting.swap_remove(at);
            self.result(&request, result).await;
        }
    }

    async fn result(&mut self, request: &Value, mut result: Value) {
        if self.modern && result.get("resultType").is_none() {
            result["resultType"] = json!("complete");
        }
        self.end.result(request, result).await;
    }

    fn wrong(&self, what: &str, message: &Value) {
        let era = if self.modern { "modern" } else { "legacy" };
        lock(&self.book).wrong(format!("the {era} server: {what}: {message:.600}"));
    }

    /// Takes a message; false when it ends of it.
    async fn message(&mut self, message: &Value) -> bool {
        let whose = owners(&message.to_string());
        // A modern server has one stream for all that is wanted of it (SUB-6).
        if whose.len() > 1 && message["method"] != "subscriptions/listen" {
            self.wrong("marks of two in one message", message);
        }
        self.seen.extend(&whose);
        if !self.modern && self.seen.len() > 1 {
            self.wrong("a connection of two principals", message);
        }
        let Some(method) = message["method"].as_str() else {
            self.answered(message).await;
            return true;
        };
        let params = &message["params"];
        match method {
            "notifications/cancelled" => self.cancelled(&params["requestId"]),
            _ if message.get("id").is_none() => {
                if method == "notifications/initialized" {
                    // REL-4: answered for the principal of the connection, or with nothing.
                    self.end.ask("early", "roots/list", json!({})).await;
                }
            }
            "initialize" if self.modern => self.end.error(message, -32601).await,
            "server/discover" if !self.modern => self.end.error(message, -32601).await,
            "server/discover" | "initialize" => self.opened(message).await,
            "logging/setLevel" | "resources/unsubscribe" => self.result(message, json!({})).await,
            "resources/subscribe" => {
                self.result(message, json!({})).await;
                self.end.tell("notifications/resources/updated", json!({"uri": params["uri"]})).await;
            }
            "subscriptions/listen" => self.listen(message).await,
            "tasks/get" => {
                let id = params["taskId"].as_str().unwrap_or_default();
                if owners(id) != owners(&params["_meta"][MARK].to_string()) {
                    self.wrong("somebody asks for a task that is not theirs", message);
                }
                let said = id.strip_prefix(TASK).unwrap_or_default();
                self.waiting.push((message.clone(), task(said, "completed")));
            }
            "tools/call" => return self.call(message).await,
            "prompts/get" => {
                let said = params["arguments"]["mark"].clone();
                let message_ = json!({"role": "user", "content": {"type": "text", "text": said}});
                self.waiting.push((message.clone(), json!({"messages": [message_]})));
            }
            "completion/complete" => {
                let values = json!({"values": [params["argument"]["value"]]});
                self.waiting.push((message.clone(), json!({"completion": values})));
            }
            "resources/read" => {
                let uri = &params["uri"];
                if owners(uri.as_str().unwrap_or_default()) != owners(&params["_meta"][MARK].to_string()) {
                    self.wrong("somebody reads what is not theirs", message);
                }
                let mut result = json!({"contents": [{"uri": uri, "text": uri}]});
                if self.modern {
                    (result["ttlMs"], result["cacheScope"]) = (json!(60_000), json!("public"));
                }
                self.waiting.push((message.clone(), result));
            }
            _ => self.list(message, method).await,
        }
        true
    }

    async fn opened(&mut self, message: &Value) {
        let mut capabilities = json!({"tools": {"listChanged": true}, "prompts": {}, "completions": {}, "logging": {},
            "resources": {"subscribe": true}});
        let result = if self.modern {
            capabilities["extensions"] = json!({TASKS: {}});
            json!({"supportedVersions": ["2026-07-28"], "capabilities": capabilities, "ttlMs": 0, "cacheScope": "private"})
        } else {
            json!({"protocolVersion": "2025-11-25", "capabilities": capabilities,
                "serverInfo": {"name": "t", "version": "0"}})
        };
        self.result(message, result).await;
    }

    async fn list(&mut self, message: &Value, method: &str) {
        let tool = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}});
        let prompt = |n: usize| json!({"name": format!("p{n}"), "arguments": [{"name": "mark"}]});
        let mut result = match method {
            "tools/list" if self.changed => json!({"tools": [tool("t"), tool("u")]}),
            "tools/list" => json!({"tools": [tool("t")]}),
            "prompts/list" => {
                let count = if self.modern { PROMPTS } else { 1 };
                json!({"prompts": (0..count).map(prompt).collect::<Vec<_>>()})
            }
            "resources/list" => json!({"resources": []}),
            "resources/templates/list" => json!({"resourceTemplates": []}),
            _ => return self.wrong("an unknown method", message),
        };
        if self.modern {
            (result["ttlMs"], result["cacheScope"]) = (json!(60_000), json!("public"));
        }
        self.result(message, result).await;
    }

    async fn listen(&mut self, message: &Value) {
        self.streams.push(message["id"].clone());
        let meta = json!({SUBSCRIPTION: message["id"]});
        let filter = &message["params"]["notifications"];
        let params = json!({"notifications": filter, "_meta": meta});
        self.end.tell("notifications/subscriptions/acknowledged", params).await;
        for uri in filter["resourceSubscriptions"].as_array().into_iter().flatten() {
            self.end.tell("notifications/resources/updated", json!({"uri": uri, "_meta": meta})).await;
        }
    }

    fn cancelled(&mut self, id: &Value) {
        self.streams.retain(|stream| stream != id);
        let Some(mark) = self.holding.remove(&id.to_string()) else { return };
        let mut book = lock(&self.book);
        book.held.remove(&mark);
        if book.given_up.contains(&mark) {
            book.did("cancelled");
        } else {
            book.wrong(format!("{mark} was cancelled by somebody else"));
        }
    }

    /// Does what a call's arguments say; false when it ends of it.
    async fn call(&mut self, message: &Value) -> bool {
        let arguments = &message["params"]["arguments"];
        let said = arguments["mark"].as_str().unwrap_or_default().to_owned();
        if message["params"]["_meta"][MARK] != *said {
            self.wrong("the arguments of one and the meta of another", message);
        }
        match arguments["do"].as_str().unwrap_or_default() {
            "progress" => {
                let token = message["params"]["_meta"]["progressToken"].clone();
                for progress in 1..=3 {
                    let params = json!({"progressToken": token, "progress": progress, "message": said});
                    self.end.tell("notifications/progress", params).await;
                }
                self.waiting.push((message.clone(), text(&said)));
            }
            "log" => {
                self.end.tell("notifications/message", json!({"level": "error", "data": said})).await;
                self.waiting.push((message.clone(), text(&said)));
            }
            "learn" => {
                let link = json!({"type": "resource_link", "name": "l", "uri": arguments["uri"]});
                let result = json!({"content": [{"type": "text", "text": said}, link]});
                self.waiting.push((message.clone(), result));
            }
            "error" => {
                let error = json!({"code": 17, "message": said, "data": {"mark": said}});
                self.end.say(json!({"jsonrpc": "2.0", "id": message["id"], "error": error})).await;
            }
            "hold" => {
                lock(&self.book).held.insert(said.clone());
                self.holding.insert(message["id"].to_string(), said);
            }
            "ask" if self.modern => self.require(message, &said),
            "ask" => self.ask(message, said).await,
            "change" => {
                self.changed = !self.changed;
                match self.streams.first() {
                    Some(stream) => {
                        let params = json!({"_meta": {SUBSCRIPTION: stream}});
                        self.end.tell("notifications/tools/list_changed", params).await;
                    }
                    None if self.modern => {}
                    None => self.end.tell("notifications/tools/list_changed", json!({})).await,
                }
                self.waiting.push((message.clone(), text(&said)));
            }
            "task" if message["params"]["_meta"][CAPABILITIES]["extensions"].get(TASKS).is_some() => {
                self.waiting.push((message.clone(), task(&said, "working")));
            }
            "crash" => return false,
            _ => self.waiting.push((message.clone(), text(&said))),
        }
        true
    }

    fn question(said: &str, kind: &Value) -> (&'static str, Value) {
        match kind.as_str() {
            Some("sampling") => {
                let message = json!({"role": "user", "content": {"type": "text", "text": said}});
                ("sampling/createMessage", json!({"messages": [message], "maxTokens": 1}))
            }
            Some("roots") => ("roots/list", json!({})),
            _ => {
                let schema = json!({"type": "object", "properties": {"mark": {"type": "string"}}});
                ("elicitation/create", json!({"message": said, "requestedSchema": schema}))
            }
        }
    }

    /// The modern way to ask: a result, and the call again.
    fn require(&mut self, message: &Value, said: &str) {
        let state = json!(format!("state of {said}"));
        match message["params"].get("requestState") {
            None => {
                let (method, params) = Self::question(said, &message["params"]["arguments"]["kind"]);
                let result = json!({"resultType": "input_required", "requestState": state,
                    "inputRequests": {"q": {"method": method, "params": params}}});
                self.waiting.push((message.clone(), result));
            }
            Some(given) => {
                let answer = message["params"]["inputResponses"]["q"].to_string();
                if *given != state || owners(&answer) != owners(said) {
                    self.wrong("a state or an answer of another call", message);
                }
                lock(&self.book).did("answered by a modern host or for one");
                self.waiting.push((message.clone(), text(said)));
            }
        }
    }

    async fn ask(&mut self, message: &Value, mark: String) {
        self.next += 1;
        let (method, params) = Self::question(&mark, &message["params"]["arguments"]["kind"]);
        self.end.ask(self.next, method, params).await;
        self.asked.insert(self.next.to_string(), Question { call: message.clone(), mark });
    }

    /// An answer to a question.
    async fn answered(&mut self, message: &Value) {
        let Some(Question { call, mark }) = self.asked.remove(&message["id"].to_string()) else { return };
        if message.get("error").is_some() {
            lock(&self.book).did("a question that was refused");
        } else if message["result"]["action"] == "cancel" {
            // The call that it was taken to belong to was given up.
            lock(&self.book).did("a question that was cancelled");
        } else if owners(&message.to_string()) != owners(&mark) {
            self.wrong("an answer of another", message);
        } else {
            lock(&self.book).did("answered on a legacy connection");
        }
        self.waiting.push((call, text(&mark)));
    }
}
