//! A client of HTTP/1.1 that hides nothing: heads as they come, bodies by length or in chunks, events line by line.

use std::collections::HashMap;
use std::net::SocketAddr;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::checker::Leg;

/// The headers that every MCP client sends.
pub(crate) const USUAL: [(&str, &str); 2] =
    [("Content-Type", "application/json"), ("Accept", "application/json, text/event-stream")];

/// A connection.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    address: SocketAddr,
    read: Vec<u8>,
    /// That of the session which was named last.
    leg: Leg,
}

/// The head of an answer.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) status: u16,
    /// By lower-case name.
    pub(crate) headers: HashMap<String, String>,
}

impl Head {
    pub(crate) fn get(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    fn is_chunked(&self) -> bool {
        self.get("transfer-encoding") == "chunked"
    }
}

/// An event, field by field.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) event: Option<String>,
    pub(crate) id: Option<String>,
    pub(crate) data: Option<String>,
    /// Comments before it.
    pub(crate) comments: usize,
}

impl Event {
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.event.as_deref(), Some("message"), "{self:?}");
        serde_json::from_str(self.data.as_deref().unwrap()).unwrap()
    }
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self { stream: TcpStream::connect(address).await.unwrap(), address, read: Vec::new(), leg: Leg::default() }
    }

    /// Writes a request; `Host` and the length come by themselves unless they are given.
    pub(crate) async fn send(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) {
        let mut text = format!("{method} {path} HTTP/1.1\r\n");
        let has = |name: &str| headers.iter().any(|(other, _)| other.eq_ignore_ascii_case(name));
        let session =
            headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("mcp-session-id")).map(|(_, name)| *name);
        self.leg = match session.or(path.contains("session=").then_some(path)) {
            Some(name) => Leg::default().named(name),
            None => Leg::default(),
        };
        if method == "POST" && !body.is_empty() {
            self.leg.heard(body);
        }
        if !has("host") {
            text.push_str(&format!("Host: {}\r\n", self.address));
        }
        if !has("content-length") && !has("transfer-encoding") {
            text.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str("\r\n");
        let whole = [text.as_bytes(), body].concat();
        self.stream.write_all(&whole).await.unwrap();
    }

    /// Posts a message with these headers beside the usual ones.
    pub(crate) async fn post(&mut self, path: &str, more: &[(&str, &str)], message: &Value) {
        let has = |name: &str| more.iter().any(|(other, _)| other.eq_ignore_ascii_case(name));
        let usual = USUAL.into_iter().filter(|(name, _)| !has(name));
        let headers: Vec<_> = usual.chain(more.iter().copied()).filter(|(_, value)| *value != "-").collect();
        self.send("POST", path, &headers, message.to_string().as_bytes()).await;
    }

    async fn more(&mut self) -> bool {
        self.stream.read_buf(&mut self.read).await.is_ok_and(|count| count > 0)
    }

    async fn until(&mut self, mark: &[u8]) -> Vec<u8> {
        loop {
            if let Some(at) = memchr::memmem::find(&self.read, mark) {
                return self.read.drain(..at + mark.len()).collect();
            }
            assert!(self.more().await, "it closed after {:?}", String::from_utf8_lossy(&self.read));
        }
    }

    async fn exactly(&mut self, count: usize) -> Vec<u8> {
        while self.read.len() < count {
            assert!(self.more().await, "it closed");
        }
        self.read.drain(..count).collect()
    }

    /// The other side has closed, in order or not.
    pub(crate) async fn closed(&mut self) {
        while self.more().await {}
    }

    pub(crate) async fn head(&mut self) -> Head {
        let text = String::from_utf8(self.until(b"\r\n\r\n").await).unwrap();
        let mut lines = text.trim_end().split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let header = |line: &str| {
            let (name, value) = line.split_once(':').unwrap();
            (name.to_ascii_lowercase(), value.trim().to_owned())
        };
        let head = Head { status, headers: lines.map(header).collect() };
        if let Some(session) = head.headers.get("mcp-session-id") {
            self.leg = self.leg.named(session);
        }
        head
    }

    /// A piece of a chunked body; nothing at its end.
    async fn chunk(&mut self) -> Option<Vec<u8>> {
        let size = String::from_utf8(self.until(b"\r\n").await).unwrap();
        let size = usize::from_str_radix(size.trim(), 16).unwrap();
        let data = self.exactly(size).await;
        assert_eq!(self.exactly(2).await, b"\r\n");
        (size > 0).then_some(data)
    }

    pub(crate) async fn body(&mut self, head: &Head) -> Vec<u8> {
        if !head.is_chunked() {
            let length = head.headers.get("content-length").map_or(0, |length| length.parse().unwrap());
            return self.exactly(length).await;
        }
        let mut body = Vec::new();
        while let Some(data) = self.chunk().await {
            body.extend(data);
        }
        body
    }

    /// An answer that is one JSON text, or empty.
    pub(crate) async fn answer(&mut self) -> (Head, Value) {
        let head = self.head().await;
        let body = self.body(&head).await;
        if body.is_empty() {
            return (head, Value::Null);
        }
        assert_eq!(head.get("content-type"), "application/json", "{head:?}");
        if head.status >= 400 && memchr::memmem::find(&body, b"\"id\":").is_none() {
            // A body that says why a request was refused may lack an id in all revisions of this transport, though only the
            // newer schemas say so.
            Leg::default().said(&body);
        } else {
            self.leg.said(&body);
        }
        let value = serde_json::from_slice(&body).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&body)));
        (head, value)
    }

    /// The head of an answer that is a stream.
    pub(crate) async fn stream(self) -> Events {
        let mut client = self;
        let head = client.head().await;
        assert_eq!((head.status, head.get("content-type")), (200, "text/event-stream"), "{head:?}");
        assert_eq!((head.get("cache-control"), head.get("x-accel-buffering")), ("no-cache", "no"), "HTTP-6");
        client.events()
    }

    /// The rest of an answer whose head was read.
    pub(crate) fn events(self) -> Events {
        Events { client: self, text: String::new(), ended: false }
    }
}

/// An answer that is a stream of events.
pub(crate) struct Events {
    pub(crate) client: Client,
    text: String,
    ended: bool,
}

impl Events {
    /// The next event; strict: known fields, one data line, LF ends. Nothing when the stream has ended.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        let mut event = Event::default();
        loop {
            let Some(end) = self.text.find('\n') else {
                if self.ended {
                    assert!(self.text.is_empty() && event == Event::default(), "cut short: {event:?} {}", self.text);
                    return None;
                }
                match self.client.chunk().await {
                    Some(data) => self.text.push_str(std::str::from_utf8(&data).unwrap()),
                    None => self.ended = true,
                }
                continue;
            };
            let line: String = self.text.drain(..=end).collect();
            let line = line.trim_end_matches('\n');
            assert!(!line.contains('\r'));
            match line.split_once(':') {
                None if line.is_empty() => {
                    if event.event.is_some() || event.id.is_some() || event.data.is_some() {
                        let data = event.data.as_deref().unwrap_or_default();
                        match event.event.as_deref() {
                            Some("endpoint") => self.client.leg = self.client.leg.named(data),
                            // An event without data is a place to go on from.
                            _ if data.is_empty() => {}
                            _ => self.client.leg.said(data.as_bytes()),
                        }
                        return Some(event);
                    }
                }
                Some(("", _)) => event.comments += 1,
                Some((field, value)) => {
                    let value = value.strip_prefix(' ').unwrap_or(value).to_owned();
                    let place = match field {
                        "event" => &mut event.event,
                        "id" => &mut event.id,
                        "data" => &mut event.data,
                        other => panic!("a field {other}"),
                    };
                    assert_eq!(place.replace(value), None, "{field} twice");
                }
                None => panic!("no line of an event: {line}"),
            }
        }
    }

    /// The message of the next event.
    pub(crate) async fn message(&mut self) -> Value {
        self.next().await.expect("the stream ended").json()
    }
}

/// A request.
pub(crate) fn request(id: impl Into<Value>, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id.into(), "method": method, "params": params})
}

/// A call of a tool, in the words of the legacy era.
pub(crate) fn call(id: impl Into<Value>, name: &str) -> Value {
    request(id, "tools/call", json!({"name": name, "arguments": {}}))
}

/// A notification.
pub(crate) fn notification(method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "method": method, "params": params})
}
