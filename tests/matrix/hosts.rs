//! Scripted hosts of both eras, on a pipe or over HTTP, that answer what they are asked.
//!
//! [`Host::exchange`] is the whole of a request: what came beside it, what was asked for it and how it was answered are in
//! what it returns, in the same form for both eras. What is told of no request is in [`Host::news`].

use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::client::{Client, notification, request};
use super::end::End;

/// Longest wait for anything.
const LONGEST: Duration = Duration::from_secs(20);
const META: &str = "io.modelcontextprotocol/";
/// What hosts over HTTP prove themselves with; no server may ever see it.
pub(crate) const HOST_KEY: &str = "the-secret-of-the-host";
const AUTHORIZATION: (&str, &str) = ("Authorization", "Bearer the-secret-of-the-host");

/// How a host is reached.
enum Way {
    Pipe(End),
    Http { address: std::net::SocketAddr, session: String },
}

/// A host.
pub(crate) struct Host {
    pub(crate) modern: bool,
    way: Way,
    next: usize,
    /// What was told of no request.
    told: mpsc::Receiver<Value>,
    tell: mpsc::Sender<Value>,
    streams: JoinSet<()>,
    /// The id of the stream that is open.
    listening: usize,
}

/// What became of a request.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    /// Notifications before the answer.
    pub(crate) beside: Vec<Value>,
    /// Questions: method and params.
    pub(crate) asked: Vec<(String, Value)>,
    /// The answer.
    pub(crate) answer: Value,
}

impl Heard {
    /// The result; anything else fails.
    pub(crate) fn result(&self) -> &Value {
        let result = self.answer.get("result");
        result.unwrap_or_else(|| panic!("no result: {}", self.answer))
    }

    /// The first text of a call.
    pub(crate) fn text(&self) -> &str {
        let text = self.result()["content"][0]["text"].as_str();
        text.unwrap_or_else(|| panic!("no text: {}", self.answer))
    }

    /// The code of an error.
    pub(crate) fn code(&self) -> i64 {
        self.answer["error"]["code"].as_i64().unwrap_or_else(|| panic!("no error: {}", self.answer))
    }
}

/// What hosts here can do.
fn capabilities() -> Value {
    json!({"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {}})
}

/// What a host answers when it is asked.
pub(crate) fn reply(method: &str, params: &Value) -> Value {
    match method {
        "roots/list" => json!({"roots": [{"uri": "file:///here", "name": "h"}]}),
        "sampling/createMessage" => json!({"role": "assistant", "model": "m", "stopReason": "toolUse",
            "content": [{"type": "tool_use", "id": "u1", "name": "look", "input": {"x": 1}}]}),
        _ if params["mode"] == "url" => json!({"action": "accept"}),
        _ => json!({"action": "accept", "content": {"name": "Ada"}}),
    }
}

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(LONGEST, future).await.unwrap_or_else(|_| panic!("{what} took too long"))
}

impl Host {
    fn new(modern: bool, way: Way) -> Self {
        let (tell, told) = mpsc::channel(1024);
        Self { modern, way, next: 0, told, tell, streams: JoinSet::new(), listening: 0 }
    }

    /// A host on a pipe.
    pub(crate) async fn pipe(end: End, modern: bool) -> Self {
        let mut host = Self::new(modern, Way::Pipe(end));
        host.open().await;
        host
    }

    /// A host over HTTP.
    pub(crate) async fn http(address: std::net::SocketAddr, modern: bool) -> Self {
        let mut host = Self::new(modern, Way::Http { address, session: String::new() });
        host.open().await;
        host
    }

    async fn open(&mut self) {
        if self.modern {
            self.exchange("server/discover", json!({})).await;
            return;
        }
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": capabilities(),
            "clientInfo": {"name": "h", "version": "0"}});
        if let Way::Http { address, session } = &mut self.way {
            let mut client = Client::connect(*address).await;
            client.post("/mcp", &[AUTHORIZATION], &request(0, "initialize", params)).await;
            let head = client.head().await;
            client.body(&head).await;
            *session = head.get("mcp-session-id").to_owned();
        } else {
            self.exchange("initialize", params).await;
        }
        self.post(&notification("notifications/initialized", json!({}))).await;
        if let Way::Http { address, session } = &self.way {
            let mut client = Client::connect(*address).await;
            let headers = [("Mcp-Session-Id", session.as_str()), ("Accept", "text/event-stream"), AUTHORIZATION];
            client.send("GET", "/mcp", &headers, b"").await;
            self.follow(client);
        }
    }

    /// Reads a stream of news for as long as it is there.
    fn follow(&mut self, client: Client) {
        let tell = self.tell.clone();
        self.streams.spawn(async move {
            let mut events = client.stream().await;
            while let Some(event) = events.next().await {
                if event.data.as_ref().is_some_and(|data| !data.is_empty()) && tell.send(event.json()).await.is_err() {
                    return;
                }
            }
        });
    }

    /// Sends a message; answers the connection that it went on.
    async fn post(&mut self, message: &Value) -> Option<Client> {
        match &mut self.way {
            Way::Pipe(end) => {
                end.say(message.clone()).await;
                None
            }
            Way::Http { address, session } => {
                let mut client = Client::connect(*address).await;
                let method = message["method"].as_str().unwrap_or("-");
                let name = message["params"]["name"].as_str().or(message["params"]["uri"].as_str()).unwrap_or("-");
                let modern = [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", method), ("Mcp-Name", name)];
                let legacy = [("Mcp-Session-Id", session.as_str())];
                let headers = if self.modern { &modern[..] } else { &legacy[..] };
                client.post("/mcp", &[headers, &[AUTHORIZATION]].concat(), message).await;
                if message.get("id").is_none() || message.get("method").is_none() {
                    assert_eq!(client.head().await.status, 202);
                }
                Some(client)
            }
        }
    }

    /// The request of this era.
    fn request(&mut self, method: &str, mut params: Value) -> Value {
        self.next += 1;
        if self.modern {
            params["_meta"][format!("{META}protocolVersion")] = json!("2026-07-28");
            params["_meta"][format!("{META}clientCapabilities")] = capabilities();
        }
        request(self.next, method, params)
    }

    /// Asks, answers what is asked back, and waits for the last answer.
    pub(crate) async fn exchange(&mut self, method: &str, params: Value) -> Heard {
        let mut heard = Heard::default();
        let mut again = params.clone();
        for _ in 0..4 {
            let message = self.request(method, again.clone());
            within(method, self.round(&message, &mut heard)).await;
            let result = &heard.answer["result"];
            if result["resultType"] != "input_required" {
                break;
            }
            let mut replies = serde_json::Map::new();
            for (key, asked) in result["inputRequests"].as_object().into_iter().flatten() {
                let method = asked["method"].as_str().unwrap().to_owned();
                replies.insert(key.clone(), reply(&method, &asked["params"]));
                heard.asked.push((method, asked["params"].clone()));
            }
            again = params.clone();
            again["requestState"] = result["requestState"].clone();
            again["inputResponses"] = Value::Object(replies);
        }
        heard
    }

    async fn round(&mut self, message: &Value, heard: &mut Heard) {
        let mut events = match self.post(message).await {
            None => None,
            Some(mut client) => {
                let head = client.head().await;
                if head.get("content-type") != "text/event-stream" {
                    let body = client.body(&head).await;
                    heard.answer = serde_json::from_slice(&body).unwrap();
                    return;
                }
                Some(client.events())
            }
        };
        loop {
            let next = match (&mut events, &mut self.way) {
                (Some(events), _) => loop {
                    let event = events.next().await.expect("the stream ended");
                    if event.data.as_ref().is_some_and(|data| !data.is_empty()) {
                        break event.json();
                    }
                },
                (None, Way::Pipe(end)) => end.next().await.expect("it closed"),
                (None, Way::Http { .. }) => panic!("no stream"),
            };
            if next["id"] == message["id"] && next.get("method").is_none() {
                heard.answer = next;
                return;
            }
            let method = next["method"].as_str().unwrap_or_default().to_owned();
            if next.get("id").is_some() {
                let result = reply(&method, &next["params"]);
                heard.asked.push((method, next["params"].clone()));
                self.post(&json!({"jsonrpc": "2.0", "id": next["id"], "result": result})).await;
            } else if method.ends_with("list_changed") || method.ends_with("updated") {
                self.tell.send(next).await.unwrap();
            } else {
                heard.beside.push(next);
            }
        }
    }

    /// Begins a request that is not answered; answers its id and what keeps it open.
    pub(crate) async fn begin(&mut self, method: &str, params: Value) -> (Value, Option<Client>) {
        let message = self.request(method, params);
        let client = self.post(&message).await;
        (message["id"].clone(), client)
    }

    /// Gives a request up, in the way of the era and the transport.
    pub(crate) async fn give_up(&mut self, id: Value, client: Option<Client>) {
        if !(self.modern && client.is_some()) {
            self.post(&notification("notifications/cancelled", json!({"requestId": id}))).await;
        }
        drop(client);
    }

    /// Wants to be told of changes of tools and of this resource; answers what ends it.
    pub(crate) async fn subscribe(&mut self, uri: &str) {
        if !self.modern {
            assert_eq!(self.exchange("resources/subscribe", json!({"uri": uri})).await.answer["result"], json!({}));
            return;
        }
        let wanted = json!({"toolsListChanged": true, "resourceSubscriptions": [uri]});
        let message = self.request("subscriptions/listen", json!({"notifications": wanted}));
        self.listening = self.next;
        if let Some(client) = self.post(&message).await {
            self.follow(client);
        }
        let first = self.news("notifications/subscriptions/acknowledged").await;
        assert_eq!(first["params"]["notifications"], wanted);
    }

    /// Ends what `subscribe` began.
    pub(crate) async fn unsubscribe(&mut self, uri: &str) {
        match (self.modern, &self.way) {
            (false, _) => {
                self.exchange("resources/unsubscribe", json!({"uri": uri})).await;
            }
            (true, Way::Pipe(_)) => {
                let id = json!(self.listening);
                self.give_up(id, None).await;
            }
            (true, Way::Http { .. }) => self.streams.shutdown().await,
        }
    }

    /// The next that is told of no request, and is this.
    pub(crate) async fn news(&mut self, method: &str) -> Value {
        within(method, async {
            loop {
                let next = match &mut self.way {
                    Way::Pipe(end) => tokio::select! {
                        Some(told) = self.told.recv() => told,
                        next = end.next() => next.expect("it closed"),
                    },
                    Way::Http { .. } => self.told.recv().await.unwrap(),
                };
                if next["method"] == method {
                    return next;
                }
            }
        })
        .await
    }
}
