//! Scripted servers that do what a call asks for, of both eras, on a pipe or over HTTP.
//!
//! [`Script`] knows the protocol and nothing of the transport: it answers a message with what is to be sent, and for which
//! request. The two `serve` functions send it. A server named `mp` is modern and on a pipe, `lh` legacy and over HTTP.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use tokio::sync::{broadcast, mpsc};
use tokio::task::JoinSet;

use super::end::End;
use super::fake::{Asked, Fake};
use super::hosts::HOST_KEY;

const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// What servers were told, with the key of the server.
#[derive(Clone, Default)]
pub(crate) struct Seen(Arc<Mutex<Vec<(String, Value)>>>);

impl Seen {
    pub(crate) fn push(&self, key: &str, message: Value) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((key.to_owned(), message));
    }

    /// Forgets it all: what comes is of who comes now.
    pub(crate) fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// The newest that a server was told and that fits.
    pub(crate) fn last(&self, key: &str, fits: impl Fn(&Value) -> bool) -> Option<Value> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.iter().rev().find(|(of, message)| of == key && fits(message)).map(|(_, message)| message.clone())
    }
}

/// What is to be sent.
pub(crate) enum Out {
    /// Before the answer to this request, or on its stream.
    Beside(Value, Value),
    /// The answer to this request.
    Answer(Value, Value),
    /// Of no request: to all connections of the server that want to know.
    News(Value),
}

/// What a server does, on one connection or in one session.
pub(crate) struct Script {
    key: String,
    pub(crate) modern: bool,
    seen: Seen,
    /// Calls that wait for an answer to their question, by the question's id.
    asked: HashMap<String, Value>,
    streams: Vec<(Value, Value)>,
    changed: Arc<Mutex<bool>>,
    /// Resources that it tells of here.
    subscribed: HashSet<String>,
    next: usize,
}

fn answer(request: &Value, result: Value) -> Out {
    Out::Answer(request["id"].clone(), json!({"jsonrpc": "2.0", "id": request["id"], "result": result}))
}

fn refuse(request: &Value, error: Value) -> Out {
    Out::Answer(request["id"].clone(), json!({"jsonrpc": "2.0", "id": request["id"], "error": error}))
}

fn tell(method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "method": method, "params": params})
}

fn text(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

/// The tool that each has; its schema has icons and annotations in it.
fn tool(name: &str) -> Value {
    json!({"name": name, "title": "T", "inputSchema": {"type": "object"},
        "icons": [{"src": "https://x.test/i.png", "mimeType": "image/png"}],
        "annotations": {"readOnlyHint": true, "title": "A"}})
}

impl Script {
    pub(crate) fn new(key: &str, seen: &Seen, changed: &Arc<Mutex<bool>>) -> Self {
        Self {
            key: key.to_owned(),
            modern: key.starts_with('m'),
            seen: seen.clone(),
            asked: HashMap::new(),
            streams: Vec::new(),
            changed: Arc::clone(changed),
            subscribed: HashSet::new(),
            next: 0,
        }
    }

    /// Takes a message.
    pub(crate) fn take(&mut self, message: &Value) -> Vec<Out> {
        self.seen.push(&self.key, message.clone());
        let Some(method) = message["method"].as_str() else {
            let call = self.asked.remove(&message["id"].to_string());
            return call.map(|call| answer(&call, text(&message["result"].to_string()))).into_iter().collect();
        };
        let mut out = match method {
            _ if message.get("id").is_none() => {
                if method == "notifications/cancelled" {
                    self.streams.retain(|(id, _)| *id != message["params"]["requestId"]);
                }
                Vec::new()
            }
            // A server of one era knows nothing of the other.
            "initialize" | "ping" if self.modern => {
                vec![refuse(message, json!({"code": -32601, "message": "Method not found"}))]
            }
            "server/discover" if !self.modern => {
                vec![refuse(message, json!({"code": -32601, "message": "Method not found"}))]
            }
            "subscriptions/listen" => {
                let (id, filter) = (message["id"].clone(), message["params"]["notifications"].clone());
                self.streams.push((id.clone(), filter.clone()));
                let params = json!({"notifications": filter, "_meta": {SUBSCRIPTION: id}});
                vec![Out::Beside(id, tell("notifications/subscriptions/acknowledged", params))]
            }
            "resources/subscribe" | "resources/unsubscribe" => {
                let uri = message["params"]["uri"].as_str().unwrap_or_default();
                if method.ends_with("unsubscribe") {
                    self.subscribed.remove(uri);
                } else {
                    self.subscribed.insert(uri.to_owned());
                }
                vec![answer(message, json!({}))]
            }
            "tools/call" => self.call(message),
            "resources/read" if message["params"]["uri"].as_str().is_some_and(|uri| uri.ends_with("gone")) => {
                let code = if self.modern { -32602 } else { -32002 };
                let data = json!({"uri": message["params"]["uri"]});
                vec![refuse(message, json!({"code": code, "message": "Resource not found", "data": data}))]
            }
            _ => vec![answer(message, self.result(method, &message["params"]))],
        };
        if self.modern {
            for out in &mut out {
                if let Out::Answer(_, message) = out
                    && let Some(result) = message.get_mut("result")
                    && result.get("resultType").is_none()
                {
                    result["resultType"] = json!("complete");
                }
            }
        }
        out
    }

    /// What is answered without a second look.
    fn result(&self, method: &str, params: &Value) -> Value {
        let key = &self.key;
        let mut result = match method {
            "server/discover" => json!({"supportedVersions": ["2026-07-28"], "capabilities": Self::capabilities()}),
            "initialize" => {
                return json!({"protocolVersion": "2025-11-25", "capabilities": Self::capabilities(),
                    "serverInfo": {"name": key, "version": "0"}});
            }
            "tools/list" => {
                // Two pages; the cursor between them is an empty text (PAG-1).
                let changed = *self.changed.lock().unwrap_or_else(PoisonError::into_inner);
                match params.get("cursor") {
                    None => json!({"tools": [tool("t")], "nextCursor": ""}),
                    Some(_) if changed => json!({"tools": [tool("second"), tool("new")]}),
                    Some(_) => json!({"tools": [tool("second")]}),
                }
            }
            "prompts/list" => json!({"prompts": [{"name": "p", "title": "P", "arguments": [{"name": "a"}]}]}),
            "resources/list" => json!({"resources": [{"name": "r", "uri": format!("{key}:1"), "size": 3}]}),
            "resources/templates/list" => {
                json!({"resourceTemplates": [{"name": "f", "uriTemplate": format!("{key}:t/{{id}}")}]})
            }
            "resources/read" => {
                let uri = &params["uri"];
                json!({"contents": [{"uri": uri, "text": "one"}, {"uri": uri, "blob": "AAEC"}]})
            }
            "prompts/get" => {
                let said = params["arguments"]["a"].clone();
                let message = json!({"role": "user", "content": {"type": "text", "text": said}});
                json!({"description": "d", "messages": [message]})
            }
            "completion/complete" => {
                let before = params["context"]["arguments"]["b"].as_str().unwrap_or("-");
                let value = params["argument"]["value"].as_str().unwrap_or("-");
                json!({"completion": {"values": [format!("{value}{before}")], "total": 1}})
            }
            _ => json!({}),
        };
        let is_kept = method.ends_with("/list") || method == "resources/read" || method == "server/discover";
        if self.modern && is_kept {
            (result["ttlMs"], result["cacheScope"]) = (json!(30_000), json!("public"));
        }
        result
    }

    /// Whether this connection is told of something.
    fn wants(&self, news: &Value) -> bool {
        let uri = news["params"]["uri"].as_str();
        uri.is_none_or(|uri| self.subscribed.contains(uri))
    }

    fn capabilities() -> Value {
        json!({"tools": {"listChanged": true}, "prompts": {"listChanged": true}, "completions": {}, "logging": {},
            "resources": {"subscribe": true, "listChanged": true}})
    }

    /// Something of no request: of this connection, or on the streams that asked for it.
    fn news(&self, method: &str, params: Value, wanted: &str) -> Vec<Out> {
        if !self.modern {
            return vec![Out::News(tell(method, params))];
        }
        let streams = self.streams.iter().filter(|(_, filter)| !filter[wanted].is_null());
        let told = streams.map(|(id, _)| {
            let mut params = params.clone();
            params["_meta"] = json!({SUBSCRIPTION: id});
            Out::Beside(id.clone(), tell(method, params))
        });
        told.collect()
    }

    fn call(&mut self, message: &Value) -> Vec<Out> {
        let (id, params) = (message["id"].clone(), &message["params"]);
        let meta = &params["_meta"];
        match params["arguments"]["do"].as_str().unwrap_or_default() {
            "structured" => {
                let mut result = text("in words");
                result["structuredContent"] = params["arguments"]["value"].clone();
                vec![answer(message, result)]
            }
            "fail" => vec![answer(message, json!({"content": [{"type": "text", "text": "failed"}], "isError": true}))],
            "error" => vec![refuse(message, json!({"code": 17, "message": "no", "data": {"why": [1]}}))],
            "progress" => {
                let told = [1, 2].map(|n| {
                    let params = json!({"progressToken": meta["progressToken"], "progress": n, "total": 2});
                    Out::Beside(id.clone(), tell("notifications/progress", params))
                });
                told.into_iter().chain([answer(message, text("done"))]).collect()
            }
            "log" => {
                let told = ["debug", "error"].map(|level| {
                    let params = json!({"level": level, "logger": "x", "data": level});
                    Out::Beside(id.clone(), tell("notifications/message", params))
                });
                told.into_iter().chain([answer(message, text("done"))]).collect()
            }
            "hold" => Vec::new(),
            "meta" => vec![answer(message, text(&meta.to_string()))],
            "change" => {
                let mut changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
                *changed = !*changed;
                drop(changed);
                let mut out = self.news("notifications/tools/list_changed", json!({}), "toolsListChanged");
                out.push(answer(message, text("done")));
                out
            }
            "touch" => {
                let params = json!({"uri": format!("{}:1", self.key)});
                let mut out = self.news("notifications/resources/updated", params, "resourceSubscriptions");
                out.push(answer(message, text("done")));
                out
            }
            "ask" => self.ask(message),
            _ => vec![answer(message, text(&format!("{}:{}", self.key, params["name"])))],
        }
    }

    /// Asks back, in the way of the era; what is answered becomes the text of the result.
    fn ask(&mut self, message: &Value) -> Vec<Out> {
        let params = &message["params"];
        let asked = &params["arguments"]["question"];
        let (method, mut question) = (asked["method"].clone(), asked["params"].clone());
        if !self.modern {
            self.next += 1;
            if question["mode"] == "url" {
                question["elicitationId"] = json!("e-1");
            }
            let id = json!(format!("q{}", self.next));
            self.asked.insert(id.to_string(), message.clone());
            let question = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": question});
            return vec![Out::Beside(message["id"].clone(), question)];
        }
        if params["requestState"] == "state" {
            return vec![answer(message, text(&params["inputResponses"]["q"].to_string()))];
        }
        let result = json!({"resultType": "input_required", "requestState": "state",
            "inputRequests": {"q": {"method": method, "params": question}}});
        vec![answer(message, result)]
    }
}

/// Serves the links to a server on a pipe.
pub(crate) async fn serve_pipes(key: &'static str, mut links: mpsc::Receiver<End>, seen: Seen) {
    let changed = Arc::default();
    let news = broadcast::Sender::new(64);
    let mut serving = JoinSet::new();
    while let Some(mut end) = links.recv().await {
        let mut script = Script::new(key, &seen, &changed);
        let (tell, mut told) = (news.clone(), news.subscribe());
        serving.spawn(async move {
            loop {
                let message = tokio::select! {
                    biased;
                    Ok(news) = told.recv() => {
                        if script.wants(&news) {
                            end.say(news).await;
                        }
                        continue;
                    }
                    message = end.next() => message,
                };
                let Some(message) = message else { return };
                for out in script.take(&message) {
                    match out {
                        Out::Beside(_, message) | Out::Answer(_, message) => end.say(message).await,
                        Out::News(message) => {
                            tell.send(message).unwrap();
                        }
                    }
                }
            }
        });
    }
    serving.shutdown().await;
}

/// What an HTTP server has open in one session.
struct Session {
    script: Script,
    /// Requests that are not answered; whether a stream was begun.
    open: HashMap<String, (Asked, bool)>,
    /// The stream of the session.
    stream: Option<Asked>,
}

/// Serves requests over HTTP; legacy ones in sessions.
pub(crate) async fn serve_http(key: &'static str, mut fake: Fake, seen: Seen) {
    let changed = Arc::default();
    let mut sessions: HashMap<String, Session> = HashMap::new();
    let mut watching = JoinSet::new();
    loop {
        let mut asked = fake.patiently().await;
        // INV-7: nothing of who the host is.
        assert_eq!(asked.header("authorization"), None);
        assert!(!asked.names().iter().any(|name| asked.header(name).is_some_and(|value| value.contains(HOST_KEY))));
        let mut name = asked.header("mcp-session-id").unwrap_or_default().to_owned();
        if asked.body["method"] == "initialize" {
            name = format!("session-{}", sessions.len());
        }
        let session = sessions.entry(name.clone()).or_insert_with(|| Session {
            script: Script::new(key, &seen, &changed),
            open: HashMap::new(),
            stream: None,
        });
        match asked.verb.as_str() {
            "GET" if !session.script.modern => {
                asked.stream().await;
                session.stream = Some(asked);
                continue;
            }
            "POST" => {}
            _ => {
                asked.status(405).await;
                continue;
            }
        }
        let message = asked.body.clone();
        let out = session.script.take(&message);
        if message["method"] == "initialize" {
            let Some(Out::Answer(_, result)) = out.into_iter().next() else { panic!("no answer") };
            let head = format!("content-type: application/json\r\nmcp-session-id: {name}\r\n");
            asked.write(200, &head, result.to_string().as_bytes()).await;
            continue;
        }
        if message.get("id").is_none() || message.get("method").is_none() {
            asked.write(202, "", b"").await;
        } else if out.is_empty() && session.script.modern {
            // It is held: to go away is to cancel.
            let (seen, id) = (seen.clone(), message["id"].clone());
            watching.spawn(async move {
                if asked.closed().await {
                    seen.push(key, json!({"method": "notifications/cancelled", "params": {"requestId": id}}));
                }
            });
        } else {
            session.open.insert(message["id"].to_string(), (asked, false));
        }
        for out in out {
            match out {
                Out::News(news) => {
                    for session in sessions.values_mut().filter(|session| session.script.wants(&news)) {
                        session.send(Out::News(news.clone())).await;
                    }
                }
                out @ (Out::Beside(..) | Out::Answer(..)) => sessions.get_mut(&name).unwrap().send(out).await,
            }
        }
    }
}

impl Session {
    async fn send(&mut self, out: Out) {
        match out {
            Out::Beside(id, message) => {
                let Some((asked, begun)) = self.open.get_mut(&id.to_string()) else { return };
                if *begun && asked.is_closed() {
                    self.open.remove(&id.to_string());
                    return;
                }
                if !std::mem::replace(begun, true) {
                    asked.stream().await;
                }
                asked.event(&message).await;
            }
            Out::Answer(id, message) => match self.open.remove(&id.to_string()) {
                Some((mut asked, true)) => {
                    asked.event(&message).await;
                    asked.end().await;
                }
                Some((asked, false)) => asked.json(200, &message).await,
                None => {}
            },
            Out::News(message) => {
                if let Some(stream) = &mut self.stream {
                    stream.event(&message).await;
                }
            }
        }
    }
}
