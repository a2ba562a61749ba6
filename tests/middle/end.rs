//! A scripted peer: what a host or a server says is written by the test, line by line.
//!
//! Knows the protocol only as far as its helpers shorten tests. Reading never hangs: the clock is paused, so an hour
//! without a message is over at once and fails the test. Both ways are held to the schemas, where those are given; what
//! nobody read is looked at in the end.

use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use onegate::config::settings::GatewaySettings;
use onegate::transport::Channel;
use onegate::transport::line::{Frame, LineReader};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use super::checker::{Leg, Schemas};

/// Longest wait for a message.
const LONGEST: Duration = Duration::from_secs(3600);

/// One end of a connection.
pub(crate) struct End {
    /// Lists that it is asked for it answers with an error: what it lists to all is known.
    pub(crate) unlisted: bool,
    pub(crate) lines: LineReader<Box<dyn AsyncRead + Send + Unpin>>,
    pub(crate) writer: Box<dyn AsyncWrite + Send + Unpin>,
    leg: Leg,
}

impl Drop for End {
    fn drop(&mut self) {
        if Schemas::given().is_none() || std::thread::panicking() {
            return;
        }
        let mut context = Context::from_waker(Waker::noop());
        while let Poll::Ready(Ok(Some(frame))) = std::pin::pin!(self.lines.next()).poll(&mut context) {
            // What was cut by the end is no message.
            if let Frame::Line(line) = frame
                && (line.ends_with(b"}") || line.ends_with(b"]"))
            {
                self.leg.said(&line);
            }
        }
    }
}

impl End {
    pub(crate) fn new(channel: Channel) -> Self {
        let lines = LineReader::new(channel.reader, GatewaySettings::MAX_MESSAGE);
        Self { unlisted: false, lines, writer: channel.writer, leg: Leg::default() }
    }

    /// The next message; `None` when the other side has closed.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            let message: Value = self.line().await.map(|line| serde_json::from_slice(&line).unwrap())?;
            let method = message["method"].as_str().unwrap_or_default();
            if !self.unlisted || !method.ends_with("/list") || method.starts_with("roots") {
                return Some(message);
            }
            self.error(&message, -32603).await;
        }
    }

    /// The next message as it is written.
    pub(crate) async fn line(&mut self) -> Option<Bytes> {
        let frame = timeout(LONGEST, self.lines.next()).await.expect("nothing came within an hour").unwrap()?;
        match frame {
            Frame::Line(line) => {
                self.leg.said(&line);
                Some(line)
            }
            Frame::TooLong { length, .. } => panic!("a line of {length} bytes"),
        }
    }

    /// The next message that is no change of lists.
    pub(crate) async fn next_but_lists(&mut self) -> Value {
        loop {
            let message = self.next().await.expect("it closed");
            if !message["method"].as_str().is_some_and(|method| method.ends_with("/list_changed")) {
                return message;
            }
        }
    }

    /// The next message, of this method.
    pub(crate) async fn expect(&mut self, method: &str) -> Value {
        let message = self.next().await.expect("it closed");
        assert_eq!(message["method"], method, "{message}");
        message
    }

    /// The next message, which answers `id`.
    pub(crate) async fn answer(&mut self, id: impl Into<Value>) -> Value {
        let message = self.next().await.expect("it closed");
        assert_eq!(message.get("id"), Some(&id.into()), "{message}");
        assert!(message.get("method").is_none(), "{message}");
        message
    }

    /// Nothing comes for this long.
    pub(crate) async fn quiet(&mut self, time: Duration) {
        if let Ok(message) = timeout(time, self.next()).await {
            match message {
                Some(message) => panic!("unexpected: {message}"),
                None => panic!("it closed"),
            }
        }
    }

    /// Writes bytes as they are.
    pub(crate) async fn raw(&mut self, bytes: impl AsRef<[u8]>) {
        for line in bytes.as_ref().split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            self.leg.heard(line);
        }
        self.writer.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Writes a message.
    pub(crate) async fn say(&mut self, message: Value) {
        self.raw(format!("{message}\n")).await;
    }

    /// Asks.
    pub(crate) async fn ask(&mut self, id: impl Into<Value>, method: &str, params: Value) {
        self.say(json!({"jsonrpc": "2.0", "id": id.into(), "method": method, "params": params})).await;
    }

    /// Tells.
    pub(crate) async fn tell(&mut self, method: &str, params: Value) {
        self.say(json!({"jsonrpc": "2.0", "method": method, "params": params})).await;
    }

    /// Answers a request with a result.
    pub(crate) async fn result(&mut self, request: &Value, result: Value) {
        self.say(json!({"jsonrpc": "2.0", "id": request["id"], "result": result})).await;
    }

    /// Answers a request as a modern server does that needs this of the host.
    pub(crate) async fn lacks(&mut self, request: &Value, capability: &str) {
        let data = json!({"requiredCapabilities": {capability: {}}});
        let error = json!({"code": -32021, "message": "no", "data": data});
        self.say(json!({"jsonrpc": "2.0", "id": request["id"], "error": error})).await;
    }

    /// Answers a request with an error.
    pub(crate) async fn error(&mut self, request: &Value, code: i64) {
        self.say(json!({"jsonrpc": "2.0", "id": request["id"], "error": {"code": code, "message": "no"}})).await;
    }

    // As a host.

    /// Opens a legacy session.
    pub(crate) async fn open(&mut self, revision: &str) {
        self.open_as(revision, json!({})).await;
    }

    /// The same with these capabilities.
    pub(crate) async fn open_as(&mut self, revision: &str, capabilities: Value) {
        let params = json!({"protocolVersion": revision, "capabilities": capabilities,
            "clientInfo": {"name": "t", "version": "0"}});
        self.ask("open", "initialize", params).await;
        let answer = self.answer("open").await;
        assert_eq!(answer["result"]["protocolVersion"], revision, "{answer}");
        self.tell("notifications/initialized", json!({})).await;
    }

    /// Calls a tool.
    pub(crate) async fn call(&mut self, id: impl Into<Value>, name: &str) {
        self.ask(id, "tools/call", json!({"name": name, "arguments": {}})).await;
    }

    /// The names in a list, which is asked for now and answered next.
    pub(crate) async fn list(&mut self) -> Vec<String> {
        self.ask("list", "tools/list", json!({})).await;
        names(&self.answer("list").await)
    }

    // As a server.

    /// Plays a legacy server up to its first list, with `server/discover` refused.
    pub(crate) async fn legacy(&mut self, tools: &[&str]) {
        self.legacy_unlisted().await;
        self.listed(tools).await;
    }

    /// The same without its list.
    pub(crate) async fn legacy_unlisted(&mut self) {
        let probe = self.expect("server/discover").await;
        self.error(&probe, -32601).await;
        self.initialized().await;
    }

    /// Answers `initialize`.
    pub(crate) async fn initialized(&mut self) {
        self.leased("2025-11-25").await;
        self.unlisted = false;
    }

    /// Plays a legacy server that is known to be one and fails to list from then on; answers what was declared to it.
    pub(crate) async fn leased(&mut self, revision: &str) -> Value {
        let opening = self.expect("initialize").await;
        let result = json!({"protocolVersion": revision, "serverInfo": {"name": "t", "version": "0"},
            "capabilities": {"tools": {"listChanged": true}, "logging": {}}});
        self.result(&opening, result).await;
        self.expect("notifications/initialized").await;
        self.unlisted = true;
        opening["params"]["capabilities"].clone()
    }

    /// Answers the list that is asked for now.
    pub(crate) async fn listed(&mut self, tools: &[&str]) {
        let asked = self.expect("tools/list").await;
        self.result(&asked, list_of(tools)).await;
    }

    /// The same, which lists these tools there.
    pub(crate) async fn leased_with(&mut self, tools: &[&str]) -> Value {
        let declared = self.leased("2025-11-25").await;
        self.unlisted = false;
        self.listed(tools).await;
        declared
    }

    /// Plays a modern server up to its first list; answers with the request of the stream that is opened to it.
    pub(crate) async fn modern(&mut self, tools: &[&str]) -> Value {
        self.modern_with(tools, json!({"tools": {"listChanged": true}})).await
    }

    /// The same with other capabilities.
    pub(crate) async fn modern_with(&mut self, tools: &[&str], capabilities: Value) -> Value {
        let probe = self.expect("server/discover").await;
        let result = json!({"supportedVersions": ["2026-07-28"], "capabilities": capabilities,
            "resultType": "complete", "ttlMs": 0, "cacheScope": "private"});
        self.result(&probe, result).await;
        let mut listen = None;
        // The two come in no order.
        for _ in 0..2 {
            let asked = self.next().await.unwrap();
            if asked["method"] == "tools/list" {
                self.result(&asked, list_of(tools)).await;
            } else {
                assert_eq!(asked["method"], "subscriptions/listen", "{asked}");
                listen = Some(asked);
            }
        }
        listen.unwrap()
    }
}

/// The names of a list answer.
pub(crate) fn names(answer: &Value) -> Vec<String> {
    let tools = answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("no list: {answer}"));
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

/// A list result of either era.
pub(crate) fn list_of(tools: &[&str]) -> Value {
    let tools: Vec<_> = tools.iter().map(|name| json!({"name": name, "inputSchema": {"type": "object"}})).collect();
    json!({"tools": tools, "resultType": "complete", "ttlMs": 0, "cacheScope": "private"})
}

/// A call's result of either era.
pub(crate) fn text(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}], "resultType": "complete"})
}

/// The text of an answer to a call.
pub(crate) fn text_of(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {answer}"))
}

/// The params of a modern request.
pub(crate) fn modern(params: Value) -> Value {
    modern_as(params, json!({}))
}

/// The same of a host that can do this.
pub(crate) fn modern_as(mut params: Value, capabilities: Value) -> Value {
    params["_meta"] = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": capabilities});
    params
}

/// The params of a cancellation.
pub(crate) fn cancelled(id: impl Into<Value>) -> Value {
    json!({"requestId": id.into()})
}
