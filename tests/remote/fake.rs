//! A scripted HTTP/1.1 server: each request is given to the test, which writes the answer.
//!
//! Knows as much of HTTP as it takes to read a request with a length. [`Fake::next`] skips nothing: what a test does not
//! expect fails it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::checker::Leg;
use super::end::list_of;

/// Longest wait for a request.
const LONGEST: Duration = Duration::from_secs(20);

/// The server.
pub(crate) struct Fake {
    pub(crate) port: u16,
    asked: mpsc::Receiver<Asked>,
    /// What came out of order.
    kept: Vec<Asked>,
    pub(crate) open: Arc<AtomicUsize>,
    pub(crate) opened: Arc<AtomicUsize>,
    tasks: TaskTracker,
}

impl Drop for Fake {
    fn drop(&mut self) {
        while let Ok(asked) = self.asked.try_recv() {
            if !std::thread::panicking() {
                asked.look();
            }
        }
    }
}

/// A request whose answer is still to be written.
pub(crate) struct Asked {
    pub(crate) verb: String,
    pub(crate) path: String,
    headers: HashMap<String, Vec<String>>,
    pub(crate) body: Value,
    socket: TcpStream,
    back: Option<oneshot::Sender<TcpStream>>,
    leg: Leg,
}

impl Fake {
    pub(crate) async fn new() -> Self {
        Self::at(0).await
    }

    /// At this port.
    pub(crate) async fn at(port: u16) -> Self {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(([127, 0, 0, 1], port).into()).unwrap();
        let listener = socket.listen(64).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sender, asked) = mpsc::channel(64);
        let (open, opened) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (tasks, leg) = (TaskTracker::new(), Leg::default());
        let counts = (Arc::clone(&open), Arc::clone(&opened));
        tasks.spawn(accept(listener, sender, counts, leg.clone(), tasks.clone()));
        Self { port, asked, kept: Vec::new(), open, opened, tasks }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port)
    }

    /// The next request.
    pub(crate) async fn next(&mut self) -> Asked {
        if !self.kept.is_empty() {
            return self.kept.remove(0);
        }
        self.recv().await.expect("nothing was asked").unwrap()
    }

    /// The next request, however long it takes.
    pub(crate) async fn patiently(&mut self) -> Asked {
        let asked = self.asked.recv().await.unwrap();
        asked.look();
        asked
    }

    async fn recv(&mut self) -> Result<Option<Asked>, tokio::time::error::Elapsed> {
        let asked = timeout(LONGEST, self.asked.recv()).await;
        if let Ok(Some(asked)) = &asked {
            asked.look();
        }
        asked
    }

    /// The next POST of this method; others stay for later.
    pub(crate) async fn expect(&mut self, method: &str) -> Asked {
        self.find(|asked| asked.verb == "POST" && asked.body["method"] == method, method).await
    }

    /// The next request of this verb; others stay for later.
    pub(crate) async fn verb(&mut self, verb: &str) -> Asked {
        self.find(|asked| asked.verb == verb, verb).await
    }

    pub(crate) async fn find(&mut self, fits: impl Fn(&Asked) -> bool, what: &str) -> Asked {
        if let Some(at) = self.kept.iter().position(&fits) {
            return self.kept.remove(at);
        }
        loop {
            let next = self.recv().await;
            let next = next.unwrap_or_else(|_| panic!("no {what}; kept: {:?}", self.kept_methods())).unwrap();
            if fits(&next) {
                return next;
            }
            self.kept.push(next);
        }
    }

    fn kept_methods(&self) -> Vec<String> {
        self.kept.iter().map(|asked| format!("{} {}", asked.verb, asked.body["method"])).collect()
    }

    /// Nothing of this method comes for a while.
    pub(crate) async fn quiet(&mut self, method: &str, time: Duration) {
        let deadline = tokio::time::Instant::now() + time;
        assert!(!self.kept.iter().any(|asked| asked.body["method"] == method));
        while let Ok(asked) = tokio::time::timeout_at(deadline, self.asked.recv()).await {
            let asked = asked.unwrap();
            asked.look();
            assert_ne!(asked.body["method"], method, "unexpected");
            self.kept.push(asked);
        }
    }

    /// Plays a modern server up to its first list; its stream is refused.
    pub(crate) async fn modern(&mut self, tools: &[&str]) {
        let probe = self.expect("server/discover").await;
        probe.result(discovered(json!({"tools": {}}))).await;
        self.expect("tools/list").await.result(list_of(tools)).await;
    }

    /// Plays a legacy server up to its first list, with a session and no stream beside it.
    pub(crate) async fn legacy(&mut self, session: &str, tools: &[&str]) {
        self.expect("server/discover").await.status(400).await;
        self.session(session, "2025-11-25", tools).await;
    }

    /// Opens a session and lists.
    pub(crate) async fn session(&mut self, session: &str, revision: &str, tools: &[&str]) {
        let opening = self.expect("initialize").await;
        assert_eq!(opening.header("mcp-session-id"), None, "a session in the session");
        let result = json!({"jsonrpc": "2.0", "id": opening.body["id"], "result": initialized(revision)}).to_string();
        let head = format!("content-type: application/json\r\nmcp-session-id: {session}\r\n");
        opening.write(200, &head, result.as_bytes()).await;
        self.expect("notifications/initialized").await.write(202, "", b"").await;
        self.expect("tools/list").await.result(list_of(tools)).await;
        self.verb("GET").await.status(405).await;
    }

    /// All its connections end, and nobody reaches it any more.
    pub(crate) fn stop(self) {
        self.tasks.close();
    }
}

/// What a modern server says of itself.
pub(crate) fn discovered(capabilities: Value) -> Value {
    json!({"supportedVersions": ["2026-07-28"], "capabilities": capabilities,
        "resultType": "complete", "ttlMs": 0, "cacheScope": "private"})
}

/// What a legacy server says of itself.
pub(crate) fn initialized(revision: &str) -> Value {
    json!({"protocolVersion": revision, "serverInfo": {"name": "t", "version": "0"}, "capabilities": {"tools": {}}})
}

struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn accept(
    listener: TcpListener,
    sender: mpsc::Sender<Asked>,
    (open, opened): (Arc<AtomicUsize>, Arc<AtomicUsize>),
    leg: Leg,
    tasks: TaskTracker,
) {
    loop {
        let socket = tokio::select! {
            socket = listener.accept() => socket.unwrap().0,
            () = sender.closed() => return,
        };
        socket.set_nodelay(true).unwrap();
        opened.fetch_add(1, Ordering::SeqCst);
        open.fetch_add(1, Ordering::SeqCst);
        let counted = Counted(Arc::clone(&open));
        let (sender, leg) = (sender.clone(), leg.clone());
        tasks.spawn(async move {
            serve(socket, &sender, &leg).await;
            drop(counted);
        });
    }
}

async fn serve(mut socket: TcpStream, sender: &mpsc::Sender<Asked>, leg: &Leg) {
    let mut buffer = Vec::new();
    loop {
        let Some((verb, path, headers, body)) = read(&mut socket, &mut buffer, sender).await else { return };
        let (back, returned) = oneshot::channel();
        let asked = Asked { verb, path, headers, body, socket, back: Some(back), leg: leg.clone() };
        if sender.send(asked).await.is_err() {
            return;
        }
        let Ok(returned) = returned.await else { return };
        socket = returned;
    }
}

type Head = (String, String, HashMap<String, Vec<String>>, Value);

async fn read(socket: &mut TcpStream, buffer: &mut Vec<u8>, sender: &mpsc::Sender<Asked>) -> Option<Head> {
    let end = loop {
        if let Some(at) = buffer.windows(4).position(|w| w == b"\r\n\r\n") {
            break at;
        }
        let read = tokio::select! {
            read = socket.read_buf(buffer) => read,
            () = sender.closed() => return None,
        };
        if read.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(buffer[..end].to_vec()).unwrap();
    buffer.drain(..end + 4);
    let mut lines = head.split("\r\n");
    let mut first = lines.next().unwrap().split(' ');
    let (verb, path) = (first.next().unwrap().to_owned(), first.next().unwrap().to_owned());
    let mut headers: HashMap<String, Vec<String>> = HashMap::new();
    for line in lines {
        let (name, value) = line.split_once(':').unwrap();
        headers.entry(name.to_ascii_lowercase()).or_default().push(value.trim().to_owned());
    }
    let length = headers.get("content-length").map_or(0, |length| length[0].parse().unwrap());
    while buffer.len() < length {
        if socket.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
    let body: Vec<u8> = buffer.drain(..length).collect();
    let body = if body.is_empty() { Value::Null } else { serde_json::from_slice(&body).unwrap() };
    Some((verb, path, headers, body))
}

impl Asked {
    /// Holds what it says to the schemas.
    fn look(&self) {
        if !self.body.is_null() {
            self.leg.said(self.body.to_string().as_bytes());
        }
    }

    /// A header that is there once at most.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let values = self.headers.get(name)?;
        assert_eq!(values.len(), 1, "{name} twice");
        Some(&values[0])
    }

    /// The names of all headers.
    pub(crate) fn names(&self) -> Vec<&str> {
        let mut names: Vec<_> = self.headers.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }

    /// Writes bytes as they are.
    pub(crate) async fn raw(&mut self, bytes: impl AsRef<[u8]>) {
        self.socket.write_all(bytes.as_ref()).await.unwrap();
    }

    /// The answer is written: the next request may come.
    pub(crate) fn done(mut self) {
        let _ = self.back.take().unwrap().send(self.socket);
    }

    /// Writes a whole answer with these header lines.
    pub(crate) async fn write(mut self, status: u16, head: &str, body: &[u8]) {
        if !body.is_empty() {
            self.leg.heard(body);
        }
        let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n{head}\r\n", body.len());
        self.raw([head.as_bytes(), body].concat()).await;
        self.done();
    }

    /// Answers with a status and an empty body.
    pub(crate) async fn status(self, status: u16) {
        self.write(status, "", b"").await;
    }

    /// Answers with JSON.
    pub(crate) async fn json(self, status: u16, message: &Value) {
        self.write(status, "content-type: application/json\r\n", message.to_string().as_bytes()).await;
    }

    /// Answers with a result.
    pub(crate) async fn result(self, result: Value) {
        let message = json!({"jsonrpc": "2.0", "id": self.body["id"], "result": result});
        self.json(200, &message).await;
    }

    /// Answers with a JSON-RPC error.
    pub(crate) async fn error(self, status: u16, error: Value) {
        let message = json!({"jsonrpc": "2.0", "id": self.body["id"], "error": error});
        self.json(status, &message).await;
    }

    /// Begins a stream of events.
    pub(crate) async fn stream(&mut self) {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        self.raw(head).await;
    }

    /// A piece of it.
    pub(crate) async fn piece(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        for line in bytes.split(|byte| *byte == b'\n').filter_map(|line| line.strip_prefix(b"data: {")) {
            self.leg.heard(&[b"{", line].concat());
        }
        let mut out = format!("{:x}\r\n", bytes.len()).into_bytes();
        out.extend_from_slice(bytes);
        out.extend_from_slice(b"\r\n");
        self.raw(out).await;
    }

    /// A message in it.
    pub(crate) async fn event(&mut self, message: &Value) {
        self.piece(format!("event: message\ndata: {message}\n\n")).await;
    }

    /// Its end.
    pub(crate) async fn end(mut self) {
        self.raw("0\r\n\r\n").await;
        self.done();
    }

    /// The result that answers it.
    pub(crate) fn answer(&self, result: Value) -> Value {
        json!({"jsonrpc": "2.0", "id": self.body["id"], "result": result})
    }

    /// Waits until the other side closes; false when it sends more instead.
    pub(crate) async fn closed(mut self) -> bool {
        let mut byte = [0];
        let read = timeout(LONGEST, self.socket.read(&mut byte)).await.expect("it stays open");
        matches!(read, Ok(0) | Err(_))
    }

    /// Whether the other side has closed, as far as is known.
    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.socket.try_read(&mut [0]), Ok(0))
    }

    /// Resets the connection.
    pub(crate) fn reset(self) {
        self.socket.set_zero_linger().unwrap();
    }
}
