//! Reading what a server says: answers to their slots, progress to its request, the rest by its era.
//!
//! A server may say anything. What is no message is counted and skipped (D008, D022); what is a broken answer
//! ends the request that it would have answered (D-26); nothing ends the connection but its end.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncRead;
use tokio::time::{Instant, timeout_at};

use super::connection::Connection;
use super::{Fault, logs, questions};
use crate::ident::Kind;
use crate::protocol::code;
use crate::protocol::json::{self, Index, Malformed, Span};
use crate::protocol::message::{Message, NoMessage, Part, Why, id_at_end, own_id, pick};
use crate::protocol::meta::SUBSCRIPTION_ID;
use crate::protocol::method::Method;
use crate::protocol::reply::{Body, Reply};
use crate::transport::line::{Frame, LineReader};
use crate::transport::sse::Event;
use crate::transport::upward::Progress;

/// After a broken line with a known id the right answer may still follow (D009); then the request has failed.
const SECOND_CHANCE: Duration = Duration::from_secs(1);
/// What is no message is logged this often.
const JUNK_LOG: Duration = Duration::from_secs(10);
/// So much of it is looked at for that.
const SHOWN: usize = 4096;
/// Longest URI that is taken (RES-5), and longest id of a task.
const MAX_URI: usize = 8 << 10;
/// Resources or tasks of one stream, at most.
const MAX_ACKNOWLEDGED: usize = 1024;

/// Takes messages in.
pub(super) struct Receiver {
    pub(super) connection: Arc<Connection>,
    /// The request on whose own stream they come, where there are such.
    stream: Option<u64>,
    /// That request has its answer.
    pub(super) answered: bool,
    index: Index,
    /// Requests whose answer came broken, the earliest first.
    broken: VecDeque<(Instant, u64, String)>,
    junk: u64,
    junk_told: Option<Instant>,
}

/// Reads until the connection or the stream ends.
pub(super) async fn run(connection: Arc<Connection>, stream: Box<dyn AsyncRead + Send + Unpin>) {
    let closed = connection.closed.clone();
    let mut receiver = Receiver::new(connection, None);
    closed.run_until_cancelled(receiver.read(stream)).await;
    receiver.connection.close("it closed its output");
}

impl Receiver {
    pub(super) fn new(connection: Arc<Connection>, stream: Option<u64>) -> Self {
        let (index, broken) = (Index::new(), VecDeque::new());
        Self { connection, stream, answered: false, index, broken, junk: 0, junk_told: None }
    }

    /// Takes an event of a stream in; those with another name than messages have say nothing to us.
    pub(super) fn event(&mut self, event: Event) {
        if event.name.is_none_or(|name| &name[..] == b"message") {
            self.line(event.data);
        }
    }

    async fn read(&mut self, stream: Box<dyn AsyncRead + Send + Unpin>) {
        let limit = usize::try_from(self.connection.max_result).unwrap_or(usize::MAX);
        let mut lines = LineReader::new(stream, limit);
        loop {
            self.connection.may_read().await;
            let frame = match self.broken.front() {
                None => lines.next().await,
                Some(&(at, ..)) => match timeout_at(at, lines.next()).await {
                    Ok(frame) => frame,
                    Err(_) => {
                        self.give_up_broken();
                        continue;
                    }
                },
            };
            match frame {
                Ok(Some(Frame::Line(line))) => self.line(line),
                Ok(Some(Frame::TooLong { head, tail, length })) => self.too_long(&head, &tail, length),
                Ok(None) => return,
                Err(error) => {
                    tracing::debug!(server = %self.connection.key, %error, "reading failed");
                    return;
                }
            }
        }
    }

    fn give_up_broken(&mut self) {
        if let Some((_, id, detail)) = self.broken.pop_front()
            && self.connection.waits(id)
        {
            self.connection.settle(id, Err(Fault::Invalid(detail)));
        }
    }

    /// What is wrong with the last text that should have been an answer.
    pub(super) fn broken_answer(&mut self) -> Option<String> {
        self.broken.pop_back().map(|(_, _, why)| why)
    }

    /// Takes a message in, or a batch of them.
    pub(super) fn line(&mut self, line: Bytes) {
        let read = Message::read(&line, &mut self.index);
        // An array of messages, where the revision has such (ENV-9).
        if matches!(read, Err(NoMessage { why: Why::Array, .. })) && self.connection.revision().has_batches() {
            for element in json::elements(&line) {
                let read = Message::read(element, &mut self.index);
                self.message(line.slice_ref(element), read);
            }
        } else {
            self.message(line, read);
        }
    }

    fn message(&mut self, line: Bytes, read: Result<Message, NoMessage>) {
        self.connection.heard.store(true, Ordering::Relaxed);
        match read {
            Ok(Message::Result { id, result }) => {
                let body = Body::result(&line, &self.index, result);
                self.answer(line, id, body.map_err(|error| error.to_string()));
            }
            Ok(Message::Error { id: Some(id), error }) => {
                let body = Body::error(&line, &self.index, error);
                self.answer(line, id, body.map_err(|error| error.to_string()));
            }
            Ok(Message::Error { id: None, error }) => match self.stream {
                // On its own stream it is about that request (ENV-4).
                Some(id) => {
                    let body = Body::error(&line, &self.index, error);
                    self.settle(line, id, body.map_err(|error| error.to_string()));
                }
                None => self.junk(&line, "an error without an id"),
            },
            Ok(Message::Notification { method, params }) => self.notification(&line, method, params),
            Ok(Message::Request { id, method, params }) => self.request(&line, id, method, params),
            Err(no) => {
                let pending = no.id.and_then(|id| own_id(id.of(&line))).filter(|&id| self.connection.waits(id));
                match pending {
                    Some(id) if self.looks_like_an_answer(&line, no.why) => {
                        self.broken.push_back((Instant::now() + SECOND_CHANCE, id, no.why.to_string()));
                    }
                    _ => self.junk(&line, &no.why.to_string()),
                }
            }
        }
    }

    /// Whether a text that is no message was meant as an answer: it was cut short, or it has the members of one.
    fn looks_like_an_answer(&self, line: &[u8], why: Why) -> bool {
        let has = |name| self.index.outer().any(|(_, member)| member.is(line, name));
        matches!(why, Why::Malformed(Malformed::Syntax(_))) && !has("method") || has("result") || has("error")
    }

    fn answer(&mut self, line: Bytes, id: Span, body: Result<Body, String>) {
        match own_id(id.of(&line)) {
            // An answer stands on the stream of its request and nowhere else (SES-5).
            Some(id) if self.stream.is_none_or(|stream| stream == id) => self.settle(line, id, body),
            _ => tracing::debug!(server = %self.connection.key, "an answer to an id that was not ours here"),
        }
    }

    fn settle(&mut self, line: Bytes, id: u64, body: Result<Body, String>) {
        self.answered |= self.stream.is_some();
        if let Ok(Body::Error(error)) = &body
            && error.code == code::URL_REQUIRED
        {
            let data = error.data.map(|data| data.of(&line)).unwrap_or_default();
            questions::refused_for_urls(&self.connection, id, data);
        }
        let outcome = body.map(|body| Reply { line, body }).map_err(Fault::Invalid);
        self.connection.settle(id, outcome);
    }

    fn notification(&self, line: &Bytes, method: Span, params: Option<Part>) {
        match Method::parse(method.of(line)) {
            Some(Method::Progress) => self.progress(line, params),
            Some(Method::ToolsChanged) => self.connection.changed.list(Kind::Tool),
            Some(Method::PromptsChanged) => self.connection.changed.list(Kind::Prompt),
            Some(Method::ResourcesChanged) => {
                self.connection.changed.list(Kind::Resource);
                self.connection.changed.list(Kind::Template);
            }
            Some(Method::Updated) => {
                let uri = params.and_then(|params| {
                    let ([uri], _) = pick(line, &self.index, params, ["uri"]).ok()?;
                    json::text_of(uri?.of(line))
                });
                if let Some(uri) = uri.filter(|uri| uri.len() <= MAX_URI) {
                    self.connection.changed.resource(&uri);
                }
            }
            Some(Method::Acknowledged) => self.acknowledged(line, params),
            Some(Method::TaskChanged) if self.connection.modern().is_some() => {
                let Some(params) = params else { return };
                let Ok(([Some(id)], _)) = pick(line, &self.index, params, ["taskId"]) else { return };
                if let Some(id) = json::text_of(id.of(line)).filter(|id| id.len() <= MAX_URI) {
                    self.connection.changed.task(&id, line.slice(params.span.range()));
                }
            }
            Some(Method::Message) => logs::take(&self.connection, line, &self.index, params, self.stream),
            Some(Method::ElicitComplete) => questions::opened(&self.connection, line, &self.index, params),
            Some(Method::Cancelled) => questions::cancelled(&self.connection, line, &self.index, params),
            _ => {}
        }
    }

    /// A stream of ours is open, and for what (SUB-3).
    fn acknowledged(&self, line: &Bytes, params: Option<Part>) {
        let Some(params) = params else { return };
        let Ok(([filter, meta], _)) = pick(line, &self.index, params, ["notifications", "_meta"]) else { return };
        let find = |object: Option<Span>, name| json::member(object?.of(line), name);
        let Some(id) = find(meta, SUBSCRIPTION_ID).and_then(own_id) else { return };
        // A stream is about the ones or the others.
        let about = ["resourceSubscriptions", "taskIds"].map(|name| find(filter, name).unwrap_or(b"[]"));
        let about = about.into_iter().flat_map(json::elements).filter_map(json::text_of).map(Arc::from);
        self.connection.acknowledge(id, about.take(MAX_ACKNOWLEDGED).collect());
    }

    /// PRG-1, PRG-3: only for a request that runs, under the token that was ours.
    fn progress(&self, line: &Bytes, params: Option<Part>) {
        let Some(params) = params else { return };
        let picked = pick(line, &self.index, params, ["progressToken", "progress", "message"]);
        let Ok(([Some(token), Some(progress), message], _)) = picked else { return };
        let Some(id) = own_id(token.of(line)) else { return };
        let now = Instant::now();
        if let Some(upward) = self.connection.touch(id, now) {
            let event = Progress { line: line.clone(), params: params.span, token, message };
            upward.push(event, progress.of(line), now);
        }
    }

    /// A legacy server may ask what was declared to it, and `ping` (MLB-1, §10.9). A modern one must not (ENV-13).
    fn request(&self, line: &Bytes, id: Span, method: Span, params: Option<Part>) {
        if self.connection.modern().is_some() {
            tracing::debug!(server = %self.connection.key, "a modern server sent a request, which it must not");
            return;
        }
        if self.connection.is_full() {
            return;
        }
        match Method::parse(method.of(line)) {
            Some(Method::Ping) => self.connection.respond(id.of(line), "result", b"{}"),
            method => {
                questions::take(&self.connection, line, id, method, params.map(|params| params.span), self.stream);
            }
        }
    }

    fn junk(&mut self, line: &[u8], why: &str) {
        self.junk += 1;
        let now = Instant::now();
        if self.junk_told.is_none_or(|told| now.duration_since(told) >= JUNK_LOG) {
            self.junk_told = Some(now);
            let (server, lines) = (&self.connection.key, self.junk);
            let what = if self.connection.http().is_some() { "sends" } else { "writes to stdout" };
            tracing::warn!(%server, lines, why, text = %self.connection.mask.shown(&String::from_utf8_lossy(&line[..line.len().min(SHOWN)])), "it {what} what is no message; skipped");
        }
    }

    /// The id of an over-long answer stands in its head or its tail, by custom of the libraries; a lone waiting
    /// request is meant in any case.
    fn too_long(&mut self, head: &[u8], tail: &[u8], length: u64) {
        let in_head = {
            // The head is cut, so this fails; an id that stands whole before the cut counts.
            let read = Message::read(head, &mut self.index);
            read.err().and_then(|no| no.id).and_then(|id| own_id(id.of(head)))
        };
        let id = in_head.or_else(|| id_at_end(tail).and_then(own_id)).filter(|&id| self.connection.waits(id));
        let server = &self.connection.key;
        let limit = self.connection.max_result;
        tracing::warn!(%server, length, limit, "an over-long line; dropped");
        if let Some(id) = id.or_else(|| self.connection.only_one()) {
            self.connection.settle(id, Err(Fault::TooLarge { size: length, limit }));
        }
    }
}
