//! A host on a pipe whose gateway is in another process: lines pass both ways as they are. When that process goes away,
//! another gateway takes its place, and the host sees none of it.
//!
//! What the next gateway must know is kept on the way: the session that the host opened, what it subscribed to, the streams
//! that it listens on, and which requests run. What may be asked twice is asked again; a call is answered with an error, since
//! nobody knows whether it ran. Knows nothing of where gateways are. Called by `daemon::attach`.
//!
//! Long, and one thing: whatever passes one way is what the other way's takeover needs.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::buf::Chain;
use bytes::{Buf as _, Bytes};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::stdio::too_long;
use super::{legacy, write};
use crate::gateway::Failure;
use crate::protocol::json::{self, Index};
use crate::protocol::message::{Message, NoMessage, Why, id_at_end, own_id, pick};
use crate::protocol::meta::SUBSCRIPTION_ID;
use crate::protocol::method::Method;
use crate::protocol::version::Revision;
use crate::transport::Channel;
use crate::transport::line::{Frame, LineReader};

type Reader = LineReader<Box<dyn tokio::io::AsyncRead + Send + Unpin>>;
type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// Longest line of a gateway, which bounds what it sends itself.
const LONGEST: usize = 1 << 30;
/// How long a gateway may take to say the rest when its host has left, and what is left when it cannot be written to.
const REST: Duration = Duration::from_secs(2);
/// Answers of ours that wait to be written to the host; then it is read no further.
const REFUSALS: usize = 16;

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
    /// Bytes of its longest message.
    max_message: usize,
    host: ToHost,
    known: Mutex<Known>,
    /// What no gateway answers, from who reads the host to who writes to it.
    refusals: (mpsc::Sender<Bytes>, mpsc::Receiver<Bytes>),
}

/// The way to the host. What was begun is said to its end before anything else, whatever became of the gateway it is from.
struct ToHost {
    stream: Writer,
    waiting: VecDeque<Chain<Bytes, &'static [u8]>>,
}

#[derive(Default)]
struct Known {
    /// What opened the session, what set its level, and the resources that it subscribed to, each the line of the host.
    opening: Option<Bytes>,
    initialized: bool,
    level: Option<Bytes>,
    /// By resource, with the raw id: what is refused or given up is forgotten, so these are no more than a gateway takes.
    subscribed: BTreeMap<Vec<u8>, (Bytes, Bytes)>,
    /// What every gateway agrees on with this host.
    revision: Option<Revision>,
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
    /// Of this host, whose messages have so many bytes at most.
    pub fn new(host: Channel, max_message: usize) -> Self {
        Self {
            reader: LineReader::new(host.reader, max_message),
            max_message,
            host: ToHost { stream: host.writer, waiting: VecDeque::new() },
            known: Mutex::default(),
            refusals: mpsc::channel(REFUSALS),
        }
    }

    /// The last number under which a server's question was put to the host.
    pub fn asked(&self) -> u64 {
        lock(&self.known).last
    }

    /// Passes lines between the host and this gateway until one of them leaves, or `stop` is cancelled. Where another gateway
    /// was before, this one is told first what it must know, and the host what became of the calls that ran.
    pub async fn pass(&mut self, gateway: Channel, stop: &CancellationToken) -> Left {
        let Channel { reader, writer } = gateway;
        let mut from_gateway = LineReader::new(reader, LONGEST);
        let mut to_gateway = writer;
        let (told, lost) = lock(&self.known).move_on();
        let Self { reader, max_message, host, known, refusals: (refuse, refused) } = self;
        host.waiting.extend(lost.into_iter().map(whole));
        let mut down = Box::pin(down((reader, *max_message), (&mut to_gateway, told), refuse, known));
        let mut up = Box::pin(up(&mut from_gateway, host, refused, known));
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

    /// There is no other gateway: whoever waits is told, where it listens.
    pub async fn give_up(mut self) {
        let (_, lost) = lock(&self.known).move_on();
        let again: Vec<Bytes> = lock(&self.known).running.drain().map(|(id, _)| id).collect();
        self.host.waiting.extend(lost.into_iter().chain(again.iter().map(|id| failed(id))).map(whole));
        let _ = timeout(REST, self.host.finish()).await;
    }
}

/// A line with its end.
fn whole(line: Bytes) -> Chain<Bytes, &'static [u8]> {
    line.chain(b"\n")
}

impl ToHost {
    /// Says a line. When the future is dropped, what is left of it is said with the next one.
    async fn say(&mut self, line: Bytes) -> io::Result<()> {
        self.waiting.push_back(whole(line));
        self.finish().await
    }

    /// Says what waits.
    async fn finish(&mut self) -> io::Result<()> {
        while let Some(line) = self.waiting.front_mut() {
            if self.stream.write_buf(line).await? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            if !line.has_remaining() {
                self.waiting.pop_front();
            }
        }
        self.stream.flush().await
    }
}

fn lock(known: &Mutex<Known>) -> MutexGuard<'_, Known> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn say(to: &mut Writer, line: &[u8]) -> io::Result<()> {
    to.write_all(line).await?;
    to.write_all(b"\n").await?;
    to.flush().await
}

/// The error for a request that the gateway before had.
fn failed(id: &[u8]) -> Bytes {
    let mut out = Vec::new();
    write::failure(&mut out, Some(id), &Failure::gateway_gone());
    out.into()
}

/// What the host says, after what the gateway is told of it.
async fn down(
    (host, max_message): (&mut Reader, usize),
    (gateway, told): (&mut Writer, Vec<Bytes>),
    refuse: &mpsc::Sender<Bytes>,
    known: &Mutex<Known>,
) -> Left {
    for line in told {
        if say(gateway, &line).await.is_err() {
            return Left::Gateway;
        }
    }
    let mut index = Index::new();
    loop {
        // Had before the line is read, so that an answer of ours is not lost when this ends. The other end lives as long as we.
        let Ok(place) = refuse.reserve().await else { return Left::Host };
        let line = match host.next().await {
            Ok(Some(Frame::Line(line))) => line,
            Ok(Some(Frame::TooLong { head, tail, length })) => {
                // No gateway would take it: it is answered here, in the words of one (D-26).
                let (id, failure) = too_long((&head, &tail), (length, max_message), &mut index);
                tracing::warn!(length, "a line of the host is too long");
                let revision = lock(known).revision;
                if id.is_some() || legacy::takes_errors_without_id(revision) {
                    let mut out = Vec::new();
                    write::failure(&mut out, id, &failure);
                    place.send(out.into());
                }
                continue;
            }
            Ok(None) | Err(_) => return Left::Host,
        };
        lock(known).said(&line, &mut index);
        if say(gateway, &line).await.is_err() {
            return Left::Gateway;
        }
    }
}

/// What the gateway says, and what is said in its place.
async fn up(
    gateway: &mut Reader,
    host: &mut ToHost,
    refused: &mut mpsc::Receiver<Bytes>,
    known: &Mutex<Known>,
) -> Left {
    let mut index = Index::new();
    if host.finish().await.is_err() {
        return Left::Host;
    }
    loop {
        let frame = tokio::select! {
            biased;
            Some(answer) = refused.recv() => {
                if host.say(answer).await.is_err() {
                    return Left::Host;
                }
                continue;
            }
            frame = gateway.next() => frame,
        };
        // One that dies may leave half a line, which is nobody's: what it was to answer still runs.
        if gateway.has_ended() {
            return Left::Gateway;
        }
        let line = match frame {
            Ok(Some(Frame::Line(line))) => line,
            Ok(Some(Frame::TooLong { tail, .. })) => match id_at_end(&tail) {
                Some(id) => failed(id),
                None => continue,
            },
            Ok(None) | Err(_) => return Left::Gateway,
        };
        let passes = lock(known).heard(&line, &mut index);
        if passes && host.say(line).await.is_err() {
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
                            revision: params.and_then(|params| legacy::agree(params.span.of(line))),
                            ..Self::default()
                        };
                    }
                    Some(Method::SetLevel) => self.level = Some(line.clone()),
                    Some(Method::Subscribe) => {
                        if let Some(uri) = text("uri") {
                            self.subscribed.insert(uri, (id.clone(), line.clone()));
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
                        self.forget(id.of(line));
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
            // No more is known of these than that each has an answer.
            Err(NoMessage { why: Why::Array, .. }) if self.revision.is_some_and(Revision::has_batches) => {
                for element in json::elements(line) {
                    if let Ok(Message::Request { id, .. }) = Message::read(&line.slice_ref(element), index) {
                        self.running.insert(Bytes::copy_from_slice(id.of(element)), None);
                    }
                }
            }
            Err(_) => {}
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
                self.forget(id.of(line));
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

    /// What this request was to begin has not begun, or is over.
    fn forget(&mut self, id: &[u8]) {
        self.listens.remove(id);
        self.subscribed.retain(|_, (asked, _)| *asked != id);
    }

    /// A request has its answer; whether that is for the host.
    fn answered(&mut self, id: &[u8]) -> bool {
        self.running.remove(id);
        !self.ours.remove(id)
    }

    /// Another gateway comes, if one was there before: what it is told, and what the host is.
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
            lost.push(write::cancelled(id.to_string().as_bytes()).into());
        }
        self.ours.clear();
        // The session is opened as the host did; what it has the answer of already, it gets no second time.
        let subscribed = self.subscribed.values().map(|(_, line)| line);
        let had: Vec<Bytes> = self.opening.iter().chain(&self.level).chain(subscribed).cloned().collect();
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
            say(&mut self.1, message.to_string().as_bytes()).await.unwrap();
        }

        async fn next(&mut self) -> Value {
            match timeout(Duration::from_secs(60), self.0.next()).await.expect("nothing came").unwrap() {
                Some(Frame::Line(line)) => serde_json::from_slice(&line).unwrap(),
                other => panic!("{other:?}"),
            }
        }
    }

    /// A relay, its host, and its first gateway by both ends.
    fn between() -> (Relay, Far, Channel, Far) {
        let ((host_side, host), (first_side, first)) = (Far::pair(), Far::pair());
        (Relay::new(host_side, 4096), host, first_side, first)
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
        let (mut relay, mut host, first_side, mut first) = between();
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
        let (second_side, mut second) = Far::pair();
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

    /// A host that reads nothing, has asked twice, and is owed a long answer to the first when the gateway leaves.
    async fn stuffed(long: &str) -> (Relay, Far) {
        let (mut relay, mut host, first_side, mut first) = between();
        let stop = CancellationToken::new();
        let before = async {
            host.say(request(1, "tools/call", json!({}))).await;
            first.next().await;
            first.say(json!({"jsonrpc": "2.0", "id": 1, "result": long})).await;
            drop(first);
            host.say(request(2, "tools/call", json!({}))).await;
        };
        let (left, ()) = tokio::join!(relay.pass(first_side, &stop), before);
        assert_eq!(left, Left::Gateway);
        (relay, host)
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_that_was_begun_is_said_to_its_end_whoever_it_was_from() {
        let long = "x".repeat(300_000);
        let (mut relay, mut host) = stuffed(&long).await;
        let (second_side, _second) = Far::pair();
        let stop = CancellationToken::new();
        let after = async {
            assert_eq!(host.next().await, json!({"jsonrpc": "2.0", "id": 1, "result": long}));
            let gone = host.next().await;
            assert_eq!((&gone["id"], &gone["error"]["data"]["reason"]), (&json!(2), &json!("downstream-unavailable")));
            drop(host);
        };
        let (left, ()) = tokio::join!(relay.pass(second_side, &stop), after);
        assert_eq!(left, Left::Host);
    }

    #[tokio::test(start_paused = true)]
    async fn half_a_line_of_a_gateway_that_died_is_no_answer() {
        let stop = CancellationToken::new();
        let (mut relay, mut host, first_side, mut first) = between();
        let before = async {
            for id in [1, 2] {
                host.say(request(id, "tools/call", json!({}))).await;
                first.next().await;
            }
            first.say(result(1)).await;
            first.1.write_all(br#"{"jsonrpc":"2.0","id":2,"result":{"content":[{"text":"xx"#).await.unwrap();
            drop(first);
        };
        let (left, ()) = tokio::join!(relay.pass(first_side, &stop), before);
        assert_eq!(left, Left::Gateway);
        let (second_side, _second) = Far::pair();
        let after = async {
            assert_eq!(host.next().await, result(1));
            let gone = host.next().await;
            assert_eq!((&gone["id"], &gone["error"]["data"]["reason"]), (&json!(2), &json!("downstream-unavailable")));
            drop(host);
        };
        let (left, ()) = tokio::join!(relay.pass(second_side, &stop), after);
        assert_eq!(left, Left::Host);
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_that_reads_nothing_keeps_nobody_from_ending() {
        let long = "x".repeat(300_000);
        let bound = Duration::from_secs(60);
        let (mut relay, _host) = stuffed(&long).await;
        let (second_side, _second) = Far::pair();
        let stop = CancellationToken::new();
        stop.cancel();
        assert_eq!(timeout(bound, relay.pass(second_side, &stop)).await, Ok(Left::Host));
        timeout(bound, relay.give_up()).await.expect("it is told, or not");
        // One that leaves is as good as a signal.
        let (mut relay, host) = stuffed(&long).await;
        let (second_side, _second) = Far::pair();
        let Far(_reader, writer) = host;
        let leave = async {
            let mut writer = writer;
            writer.shutdown().await.unwrap();
        };
        let stop = CancellationToken::new();
        let (left, ()) = tokio::join!(timeout(bound, relay.pass(second_side, &stop)), leave);
        assert_eq!(left, Ok(Left::Host));
    }

    #[tokio::test(start_paused = true)]
    async fn d26_a_line_that_is_too_long_is_answered_and_those_after_it_pass() {
        let stop = CancellationToken::new();
        let (mut relay, mut host, first_side, mut first) = between();
        let long = "x".repeat(4096);
        let talk = async {
            for version in ["2025-11-25", "2025-06-18"] {
                host.say(request(1, "initialize", json!({"protocolVersion": version}))).await;
                first.next().await;
                for line in [
                    format!(r#"{{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{{"x":"{long}"}}}}"#),
                    format!(r#"{{"params":{{"x":"{long}"}},"method":"tools/call","jsonrpc":"2.0","id":"a"}}"#),
                ] {
                    super::say(&mut host.1, line.as_bytes()).await.unwrap();
                    let refused = host.next().await;
                    assert_eq!(refused["id"], "a");
                    assert!(refused["error"]["message"].as_str().unwrap().contains("the limit is"), "{refused}");
                }
                host.say(json!({"jsonrpc": "2.0", "method": "x", "params": long})).await;
                if version == "2025-11-25" {
                    assert_eq!(host.next().await.get("id"), None);
                }
                host.say(request(2, "ping", json!({}))).await;
                assert_eq!(first.next().await["method"], "ping");
                first.say(result(2)).await;
                assert_eq!(host.next().await["id"], 2, "ENV-4: a host of 2025-06-18 is told of its requests alone");
            }
            drop(host);
        };
        tokio::join!(relay.pass(first_side, &stop), talk);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_refused_or_given_up_is_kept_for_nobody() {
        let stop = CancellationToken::new();
        let (mut relay, mut host, first_side, mut first) = between();
        let before = async {
            host.say(request(1, "initialize", json!({"protocolVersion": "2025-11-25"}))).await;
            first.next().await;
            first.say(result(1)).await;
            host.next().await;
            for (id, uri) in [(2, "a:1"), (3, "a:2")] {
                host.say(request(id, "resources/subscribe", json!({"uri": uri}))).await;
                first.next().await;
            }
            first.say(json!({"jsonrpc": "2.0", "id": 2, "error": {"code": -32602, "message": "no"}})).await;
            host.next().await;
            host.say(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 3}})).await;
            first.next().await;
            // This revision has no arrays: it is refused as a whole.
            host.say(json!([request(4, "tools/call", json!({}))])).await;
            first.next().await;
            drop(first);
        };
        let (left, ()) = tokio::join!(relay.pass(first_side, &stop), before);
        assert_eq!(left, Left::Gateway);
        let (second_side, mut second) = Far::pair();
        let after = async {
            assert_eq!(second.next().await["method"], "initialize");
            host.say(request(5, "ping", json!({}))).await;
            assert_eq!(second.next().await["method"], "ping");
            second.say(result(5)).await;
            assert_eq!(host.next().await["id"], 5);
            drop(host);
        };
        tokio::join!(relay.pass(second_side, &stop), after);
    }

    #[tokio::test(start_paused = true)]
    async fn without_another_gateway_whoever_waits_is_told() {
        let stop = CancellationToken::new();
        let (mut relay, mut host, first_side, first) = between();
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
