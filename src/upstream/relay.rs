//! A host on a pipe whose gateway is in another process: lines pass both ways as they are. When that process goes away,
//! another gateway takes its place, and the host sees none of it.
//!
//! What the next gateway must know is kept on the way: the session that the host opened, what it subscribed to, the streams
//! that it listens on, and which requests run. What may be asked twice is asked again; a call is answered with an error, since
//! nobody knows whether it ran. Knows nothing of where gateways are. Called by `daemon::attach`.
//!
//! Long, and one thing: whatever passes one way is what the other way's takeover needs.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::gateway::Failure;
use crate::protocol::json::{self, Index};
use crate::protocol::message::{Message, id_at_end, own_id, pick};
use crate::protocol::meta::SUBSCRIPTION_ID;
use crate::protocol::method::Method;
use crate::transport::Channel;
use crate::transport::line::{Frame, LineReader, MAX_LINE};

type Reader = LineReader<Box<dyn tokio::io::AsyncRead + Send + Unpin>>;
type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// Longest line of a gateway, which bounds what it sends itself.
const LONGEST: usize = 1 << 30;
/// How long a gateway may take to say the rest when its host has left, and what is left when it cannot be written to.
const REST: Duration = Duration::from_secs(2);

/// Who left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// The host, or we were told to stop.
    Host,
    /// The gateway.
    Gateway,
}

/// A host, and what a gateway must know of it.
pub struct Relay {
    reader: Reader,
    writer: Writer,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// What opened the session, what set its level, and the resources that it subscribed to, each the line of the host.
    opening: Option<Bytes>,
    initialized: bool,
    level: Option<Bytes>,
    subscribed: BTreeMap<Vec<u8>, Bytes>,
    /// Requests without an answer, by raw id: their lines where they may be asked again.
    running: HashMap<Bytes, Option<Bytes>>,
    /// Streams of changes, by raw id.
    listens: BTreeMap<Vec<u8>, Bytes>,
    /// Questions of servers that wait for the host's answer, and the last number of all.
    asked: HashSet<u64>,
    last: u64,
    /// Answers to these are meant for us: the host had them before.
    ours: HashSet<Bytes>,
    /// Streams that are opened again, and need no word that they are open.
    reopened: HashSet<Vec<u8>>,
}

/// Methods that change nothing and may be asked twice.
fn is_harmless(method: Option<Method>) -> bool {
    matches!(
        method,
        Some(
            Method::Initialize
                | Method::Ping
                | Method::Discover
                | Method::ToolsList
                | Method::PromptsList
                | Method::ResourcesList
                | Method::TemplatesList
                | Method::SetLevel
                | Method::Subscribe
                | Method::Unsubscribe
        )
    )
}

impl Relay {
    /// Of this host.
    pub fn new(host: Channel) -> Self {
        Self { reader: LineReader::new(host.reader, MAX_LINE), writer: host.writer, known: Mutex::default() }
    }

    /// The last number under which a server's question was put to the host.
    pub fn asked(&self) -> u64 {
        lock(&self.known).last
    }

    /// Passes lines between the host and this gateway until one of them leaves.
    pub async fn pass(&mut self, gateway: Channel, stop: &CancellationToken) -> Left {
        let Channel { reader, writer } = gateway;
        let mut from_gateway = LineReader::new(reader, LONGEST);
        let mut to_gateway = writer;
        let Self { reader, writer, known } = self;
        let mut down = Box::pin(down(reader, &mut to_gateway, known));
        let mut up = Box::pin(up(&mut from_gateway, writer, known));
        let left = tokio::select! {
            left = &mut down => left,
            left = &mut up => return left,
            () = stop.cancelled() => Left::Host,
        };
        // What the gateway still has to say, answers above all, reaches the host.
        if left == Left::Gateway {
            let _ = timeout(REST, up).await;
            return left;
        }
        drop(down);
        let _ = to_gateway.shutdown().await;
        let _ = timeout(REST, up).await;
        Left::Host
    }

    /// Tells another gateway what it must know, and the host what became of the calls that ran.
    pub async fn introduce(&mut self, gateway: &mut Channel) -> io::Result<()> {
        let (lines, lost) = lock(&self.known).move_on();
        for message in lost {
            write(&mut self.writer, &message).await?;
        }
        for line in lines {
            write(&mut gateway.writer, &line).await?;
        }
        Ok(())
    }

    /// There is no other gateway: whoever waits is told.
    pub async fn give_up(mut self) {
        let (_, lost) = lock(&self.known).move_on();
        let again: Vec<Bytes> = lock(&self.known).running.drain().map(|(id, _)| id).collect();
        for message in lost.into_iter().chain(again.iter().map(|id| failed(id))) {
            if write(&mut self.writer, &message).await.is_err() {
                return;
            }
        }
    }
}

fn lock(known: &Mutex<Known>) -> MutexGuard<'_, Known> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn write(to: &mut Writer, line: &[u8]) -> io::Result<()> {
    to.write_all(line).await?;
    to.write_all(b"\n").await?;
    to.flush().await
}

/// The error for a request that the gateway before had.
fn failed(id: &[u8]) -> Bytes {
    let mut out = b"{\"jsonrpc\":\"2.0\",\"id\":".to_vec();
    out.extend_from_slice(id);
    out.extend_from_slice(b",\"error\":");
    Failure::gateway_gone().push(&mut out);
    out.push(b'}');
    out.into()
}

/// What the host says.
async fn down(host: &mut Reader, gateway: &mut Writer, known: &Mutex<Known>) -> Left {
    let mut index = Index::new();
    loop {
        let line = match host.next().await {
            Ok(Some(Frame::Line(line))) => line,
            // It is handed on as far as it goes: the gateway says what is wrong with it.
            Ok(Some(Frame::TooLong { head, .. })) => head,
            Ok(None) | Err(_) => return Left::Host,
        };
        lock(known).said(&line, &mut index);
        if write(gateway, &line).await.is_err() {
            return Left::Gateway;
        }
    }
}

/// What the gateway says.
async fn up(gateway: &mut Reader, host: &mut Writer, known: &Mutex<Known>) -> Left {
    let mut index = Index::new();
    loop {
        let line = match gateway.next().await {
            Ok(Some(Frame::Line(line))) => line,
            Ok(Some(Frame::TooLong { tail, .. })) => match id_at_end(&tail) {
                Some(id) => failed(id),
                None => continue,
            },
            Ok(None) | Err(_) => return Left::Gateway,
        };
        let passes = lock(known).heard(&line, &mut index);
        if passes && write(host, &line).await.is_err() {
            return Left::Host;
        }
    }
}

impl Known {
    /// Takes in what the host says.
    fn said(&mut self, line: &Bytes, index: &mut Index) {
        match Message::read(line, index) {
            Ok(Message::Request { id, method, params }) => {
                let id = line.slice(id.range());
                let method = Method::parse(method.of(line));
                let text = |name| {
                    let ([found], _) = pick(line, index, params?, [name]).ok()?;
                    Some(found?.of(line).to_vec())
                };
                match method {
                    Some(Method::Listen) => drop(self.listens.insert(id.to_vec(), line.clone())),
                    Some(Method::Initialize) => {
                        *self = Self {
                            running: std::mem::take(&mut self.running),
                            listens: std::mem::take(&mut self.listens),
                            asked: std::mem::take(&mut self.asked),
                            last: self.last,
                            opening: Some(line.clone()),
                            ..Self::default()
                        };
                    }
                    Some(Method::SetLevel) => self.level = Some(line.clone()),
                    Some(Method::Subscribe) => {
                        if let Some(uri) = text("uri") {
                            self.subscribed.insert(uri, line.clone());
                        }
                    }
                    Some(Method::Unsubscribe) => {
                        if let Some(uri) = text("uri") {
                            self.subscribed.remove(&uri);
                        }
                    }
                    _ => {}
                }
                if method != Some(Method::Listen) {
                    self.running.insert(id, is_harmless(method).then(|| line.clone()));
                }
            }
            Ok(Message::Notification { method, params }) => match Method::parse(method.of(line)) {
                Some(Method::Initialized) => self.initialized = true,
                Some(Method::Cancelled) => {
                    let id = params.and_then(|params| pick(line, index, params, ["requestId"]).ok());
                    if let Some(([Some(id)], _)) = id {
                        self.running.remove(id.of(line));
                        self.listens.remove(id.of(line));
                    }
                }
                _ => {}
            },
            Ok(Message::Result { id, .. } | Message::Error { id: Some(id), .. }) => {
                if let Some(id) = own_id(id.of(line)) {
                    self.asked.remove(&id);
                }
            }
            Ok(Message::Error { id: None, .. }) => {}
            // Perhaps an array of messages; no more is known of them than that each has an answer.
            Err(_) => {
                for element in json::elements(line) {
                    if let Ok(Message::Request { id, .. }) = Message::read(&line.slice_ref(element), index) {
                        self.running.insert(Bytes::copy_from_slice(id.of(element)), None);
                    }
                }
            }
        }
    }

    /// Takes in what the gateway says; whether the host is to hear it.
    fn heard(&mut self, line: &Bytes, index: &mut Index) -> bool {
        match Message::read(line, index) {
            Ok(Message::Result { id, .. }) => {
                // A stream ends so when its gateway leaves: it goes on with the next.
                !self.listens.contains_key(id.of(line)) && self.answered(id.of(line))
            }
            Ok(Message::Error { id: Some(id), .. }) => {
                self.listens.remove(id.of(line));
                self.answered(id.of(line))
            }
            Ok(Message::Request { id, .. }) => {
                if let Some(id) = own_id(id.of(line)) {
                    self.asked.insert(id);
                    self.last = self.last.max(id);
                }
                true
            }
            Ok(Message::Notification { method, params }) => {
                let member = |name| {
                    let ([found], _) = pick(line, index, params?, [name]).ok()?;
                    found.map(|found| found.of(line))
                };
                match Method::parse(method.of(line)) {
                    Some(Method::Cancelled) => {
                        let Some(id) = member("requestId") else { return true };
                        if let Some(id) = own_id(id) {
                            self.asked.remove(&id);
                        }
                        !self.listens.contains_key(id)
                    }
                    Some(Method::Acknowledged) => {
                        let stream = member("_meta").and_then(|meta| json::member(meta, SUBSCRIPTION_ID));
                        !stream.is_some_and(|stream| self.reopened.remove(stream))
                    }
                    _ => true,
                }
            }
            Ok(Message::Error { id: None, .. }) => true,
            Err(_) => {
                for element in json::elements(line) {
                    let read = Message::read(&line.slice_ref(element), index);
                    if let Ok(Message::Result { id, .. } | Message::Error { id: Some(id), .. }) = read {
                        self.running.remove(id.of(element));
                    }
                }
                true
            }
        }
    }

    /// A request has its answer; whether that is for the host.
    fn answered(&mut self, id: &[u8]) -> bool {
        self.running.remove(id);
        !self.ours.remove(id)
    }

    /// The gateway has left: what the next one is told, and what the host is.
    fn move_on(&mut self) -> (Vec<Bytes>, Vec<Bytes>) {
        let running = std::mem::take(&mut self.running);
        let mut lines = Vec::new();
        let mut lost = Vec::new();
        let mut again: Vec<(Bytes, Bytes)> = Vec::new();
        for (id, line) in running {
            match line {
                Some(line) => again.push((id, line)),
                None => lost.push(failed(&id)),
            }
        }
        for id in std::mem::take(&mut self.asked) {
            lost.push(
                format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#)
                    .into(),
            );
        }
        self.ours.clear();
        // The session is opened as the host did; what it has the answer of already, it gets no second time.
        let had: Vec<Bytes> = self.opening.iter().chain(&self.level).chain(self.subscribed.values()).cloned().collect();
        let mut index = Index::new();
        for (n, line) in had.into_iter().enumerate() {
            if let Ok(Message::Request { id, .. }) = Message::read(&line, &mut index) {
                let id = line.slice(id.range());
                if again.iter().any(|(known, _)| *known == id) {
                    again.retain(|(known, _)| *known != id);
                    self.running.insert(id, Some(line.clone()));
                } else {
                    self.ours.insert(id);
                }
            }
            lines.push(line);
            if n == 0 && self.opening.is_some() && self.initialized {
                lines.push(Bytes::from_static(br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#));
            }
        }
        for (stream, line) in &self.listens {
            self.reopened.insert(stream.clone());
            lines.push(line.clone());
        }
        for (id, line) in again {
            lines.push(line.clone());
            self.running.insert(id, Some(line));
        }
        (lines, lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// One end of a pipe in memory, as whole messages.
    struct Far(Reader, Writer);

    impl Far {
        fn pair() -> (Channel, Self) {
            let (ours, theirs) = Channel::pair();
            (ours, Self(LineReader::new(theirs.reader, LONGEST), theirs.writer))
        }

        async fn say(&mut self, message: Value) {
            write(&mut self.1, message.to_string().as_bytes()).await.unwrap();
        }

        async fn next(&mut self) -> Value {
            match timeout(Duration::from_secs(60), self.0.next()).await.expect("nothing came").unwrap() {
                Some(Frame::Line(line)) => serde_json::from_slice(&line).unwrap(),
                other => panic!("{other:?}"),
            }
        }
    }

    fn request(id: u64, method: &str, params: Value) -> Value {
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
    }

    fn result(id: u64) -> Value {
        json!({"jsonrpc": "2.0", "id": id, "result": {}})
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_gateway_knows_what_the_host_said_and_the_host_sees_nothing_of_it() {
        let stop = CancellationToken::new();
        let (host_side, mut host) = Far::pair();
        let (first_side, mut first) = Far::pair();
        let mut relay = Relay::new(host_side);
        let before = async {
            for (id, method, params) in [
                (1, "initialize", json!({"protocolVersion": "2025-11-25"})),
                (2, "resources/subscribe", json!({"uri": "a:1"})),
                (3, "resources/subscribe", json!({"uri": "a:2"})),
                (4, "resources/unsubscribe", json!({"uri": "a:1"})),
            ] {
                host.say(request(id, method, params)).await;
                assert_eq!(first.next().await["method"], method);
                first.say(result(id)).await;
                assert_eq!(host.next().await["id"], id);
                if id == 1 {
                    host.say(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
                    first.next().await;
                }
            }
            host.say(request(5, "subscriptions/listen", json!({"x": 1}))).await;
            host.say(request(6, "tools/call", json!({"name": "t"}))).await;
            host.say(request(7, "tools/list", json!({}))).await;
            for _ in 0..3 {
                first.next().await;
            }
            first.say(request(9, "roots/list", json!({}))).await;
            assert_eq!(host.next().await["method"], "roots/list");
            // Leaving, it ends its streams.
            first.say(result(5)).await;
            first.say(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}})).await;
            drop(first);
        };
        let (left, ()) = tokio::join!(relay.pass(first_side, &stop), before);
        assert_eq!((left, relay.asked()), (Left::Gateway, 9));
        let (mut second_side, mut second) = Far::pair();
        relay.introduce(&mut second_side).await.unwrap();
        let after = async {
            let mut told = Vec::new();
            for _ in 0..5 {
                told.push(second.next().await);
            }
            let told: Vec<_> =
                told.iter().map(|line| (line["method"].as_str().unwrap(), line["id"].as_u64())).collect();
            assert_eq!(
                told,
                [
                    ("initialize", Some(1)),
                    ("notifications/initialized", None),
                    ("resources/subscribe", Some(3)),
                    ("subscriptions/listen", Some(5)),
                    ("tools/list", Some(7)),
                ]
            );
            for id in [1, 3] {
                second.say(result(id)).await;
            }
            let acknowledged = "notifications/subscriptions/acknowledged";
            let meta = json!({"_meta": {"io.modelcontextprotocol/subscriptionId": 5}});
            second.say(json!({"jsonrpc": "2.0", "method": acknowledged, "params": meta})).await;
            second.say(result(7)).await;
            // Of all that, the host hears what it waited for.
            let gone = host.next().await;
            assert_eq!((&gone["id"], &gone["error"]["data"]["reason"]), (&json!(6), &json!("downstream-unavailable")));
            let withdrawn = host.next().await;
            assert_eq!(
                (&withdrawn["method"], &withdrawn["params"]["requestId"]),
                (&json!("notifications/cancelled"), &json!(9))
            );
            assert_eq!(host.next().await["id"], 7);
            drop(host);
        };
        let (left, ()) = tokio::join!(relay.pass(second_side, &stop), after);
        assert_eq!(left, Left::Host);
    }

    #[tokio::test(start_paused = true)]
    async fn without_another_gateway_whoever_waits_is_told() {
        let stop = CancellationToken::new();
        let (host_side, mut host) = Far::pair();
        let (first_side, first) = Far::pair();
        let mut relay = Relay::new(host_side);
        host.say(request(1, "tools/list", json!({}))).await;
        let leave = async {
            let mut first = first;
            first.next().await;
        };
        let (left, ()) = tokio::join!(relay.pass(first_side, &stop), leave);
        assert_eq!(left, Left::Gateway);
        relay.give_up().await;
        assert_eq!(host.next().await["error"]["code"], -32603);
    }
}
