//! One request and its answer: JSON, or a stream of events that ends in it (STM-1), or a refusal by status.
//!
//! Driven by whoever waits for the answer. Dropped, its connection is closed, which a modern server takes for a
//! cancellation (§10.11). A request is sent once; it is sent again only where the server said that it did not take it
//! (CON-7).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use tokio::time::{sleep, timeout};

use super::super::Fault;
use super::super::connection::Connection;
use super::super::held::Intake;
use super::super::receive::Receiver;
use super::pool::Answer;
use super::{EVENTS, Head, Http, JSON, LAST_EVENT, SESSION, compression, is_type};
use crate::protocol::code;
use crate::protocol::json::{self, Index};
use crate::protocol::message::{Message, own_id};
use crate::protocol::method::Method;
use crate::protocol::reply::{Body, Reply};
use crate::protocol::version::Era;
use crate::transport::sse::{EventReader, TooLong};

/// Bytes of the body of a refusal that are looked at.
const MAX_REFUSAL: u64 = 1 << 20;
/// Room that is made for an announced body before it is there.
const MAX_ROOM: u64 = 4 << 20;
/// A stream that was cut goes on after this, when the server does not say otherwise…
const RESUME_AFTER: Duration = Duration::from_secs(1);
/// …and after this at the earliest and at the latest, whatever it says.
const EARLIEST: Duration = Duration::from_millis(100);
const LATEST: Duration = Duration::from_secs(30);
/// A stream goes on without bringing anything, at most so often.
const RESUMES: u32 = 8;
/// How long the rest of an answer may take that ends after its last message.
const REST: Duration = Duration::from_secs(2);

/// What is asked.
pub(in crate::downstream) struct Ask {
    pub(in crate::downstream) method: Method,
    pub(in crate::downstream) head: Head,
    pub(in crate::downstream) body: Bytes,
    /// A server that is busy may be waited for so long.
    pub(in crate::downstream) patience: Duration,
}

/// Sends a request and takes in what comes; on success its slot has an outcome.
pub(in crate::downstream) async fn exchange(
    connection: Arc<Connection>,
    http: Arc<Http>,
    id: u64,
    ask: Ask,
) -> Result<(), Fault> {
    let mut exchange = Exchange { receiver: Receiver::new(connection, Some(id)), http, id, ask };
    let answer = match exchange.http.post(&exchange.ask.head, exchange.ask.body.clone()).await {
        Ok(answer) => answer,
        Err(not_sent) => {
            let unreachable = not_sent.is_unreachable();
            let fault = not_sent.fault();
            if unreachable {
                exchange.receiver.connection.unreachable(id, fault.clone());
            }
            return Err(fault);
        }
    };
    if answer.status().is_success() {
        return exchange.answered(answer).await;
    }
    // Rare and large: on the heap, so that every exchange is not as large as the rarest.
    Box::pin(exchange.refused(answer)).await
}

/// How often a stream went on after an event without bringing another.
#[derive(Default)]
struct Resumes {
    count: u32,
    after: Option<HeaderValue>,
}

struct Exchange {
    receiver: Receiver,
    http: Arc<Http>,
    id: u64,
    ask: Ask,
}

impl Exchange {
    fn connection(&self) -> &Arc<Connection> {
        &self.receiver.connection
    }

    async fn answered(&mut self, mut answer: Answer) -> Result<(), Fault> {
        if self.ask.method == Method::Initialize
            && let Some(session) = answer.headers().get(SESSION)
        {
            // SES-1: visible ASCII.
            if !session.as_bytes().iter().all(|byte| (0x21..=0x7e).contains(byte)) {
                return Err(Fault::Invalid("the id of its session is not visible ASCII".to_owned()));
            }
            let _ = self.http.session.set(session.clone());
        }
        if self.http.is_sse() {
            // The answer comes on the stream, which settles the slot; only its end ends this.
            rest(&self.http, answer);
            return std::future::pending().await;
        }
        if let Some(encoding) = compression(answer.headers()) {
            return Err(Fault::Invalid(format!("its answer is compressed ({encoding}), which was not asked for")));
        }
        if is_type(answer.headers(), &EVENTS) {
            return Box::pin(self.events(answer)).await;
        }
        let body = collect(self.connection(), &mut answer, self.http.limit).await?;
        if body.iter().all(u8::is_ascii_whitespace) {
            return Err(Fault::Invalid(format!("it answered {} and nothing else", answer.status())));
        }
        if !is_type(answer.headers(), &JSON) && answer.headers().contains_key(header::CONTENT_TYPE) {
            let given = answer.headers().get(header::CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
            let given = self.connection().mask.shown(&String::from_utf8_lossy(given));
            return Err(Fault::Invalid(format!("its answer is {given}, neither JSON nor a stream of events")));
        }
        self.receiver.line(body);
        if self.receiver.answered { Ok(()) } else { Err(self.unanswered()) }
    }

    /// What came was no answer to this request.
    fn unanswered(&mut self) -> Fault {
        let why = self.receiver.broken_answer();
        Fault::Invalid(why.unwrap_or_else(|| "it answered with what is no answer to this request".to_owned()))
    }

    /// D076: messages until the answer; then the stream is over for us.
    async fn events(&mut self, mut answer: Answer) -> Result<(), Fault> {
        let limit = usize::try_from(self.http.limit).unwrap_or(usize::MAX);
        let mut reader = EventReader::new(limit);
        let mut intake = Intake::new(&self.connection().held);
        let mut resumes = Resumes::default();
        loop {
            intake.room().await;
            let chunk = answer.chunk().await;
            if let Ok(Some(chunk)) = chunk {
                intake.took(chunk.len());
                reader.feed(chunk);
                loop {
                    match reader.next_event() {
                        Ok(Some(event)) => {
                            intake.clear();
                            self.receiver.event(event);
                        }
                        Ok(None) => {
                            // Comments are gone once they are read.
                            intake.clear();
                            intake.took(reader.held());
                            break;
                        }
                        Err(TooLong { size }) => return Err(Fault::TooLarge { size, limit: self.http.limit }),
                    }
                    if self.receiver.answered {
                        rest(&self.http, answer);
                        return Ok(());
                    }
                }
                continue;
            }
            if let Some(event) = reader.finish().filter(|_| chunk.is_ok()) {
                self.receiver.event(event);
                if self.receiver.answered {
                    return Ok(());
                }
            }
            answer = self.resume(&mut reader, &mut resumes).await?;
        }
    }

    /// The stream ended without the answer. A legacy server that names its events keeps the answer for whoever asks for
    /// the rest (SES-7); otherwise the request is lost (D080).
    async fn resume(&mut self, reader: &mut EventReader, resumes: &mut Resumes) -> Result<Answer, Fault> {
        let lost = match self.receiver.broken_answer() {
            Some(why) => Fault::Invalid(why),
            None => Fault::gone("the connection was lost in the middle of its answer"),
        };
        let revision = self.connection().revision();
        let Some(last) = reader.last_id().and_then(|id| HeaderValue::from_bytes(id).ok()) else { return Err(lost) };
        if revision.era() == Era::Modern || self.ask.method == Method::Discover {
            return Err(lost);
        }
        let mut headers = self.http.bare_headers(revision);
        if resumes.after.as_ref() != Some(&last) {
            *resumes = Resumes { count: 0, after: Some(last.clone()) };
        }
        headers.insert(LAST_EVENT, last);
        while resumes.count < RESUMES {
            resumes.count += 1;
            sleep(reader.retry().unwrap_or(RESUME_AFTER).clamp(EARLIEST, LATEST)).await;
            let path = &self.http.path;
            match self.http.pool.send(http::Method::GET, path, headers.clone(), Bytes::new()).await {
                Ok(answer) if answer.status().is_success() && is_type(answer.headers(), &EVENTS) => {
                    reader.restart();
                    return Ok(answer);
                }
                Ok(answer) if answer.status().is_server_error() => {}
                Ok(_) => return Err(lost),
                Err(_) => {}
            }
        }
        Err(lost)
    }

    /// A status that says no.
    async fn refused(&mut self, mut answer: Answer) -> Result<(), Fault> {
        let mut waited = false;
        loop {
            let status = answer.status();
            if status.is_success() {
                return self.answered(answer).await;
            }
            if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
                return Err(Fault::SignIn { status: status.as_u16() });
            }
            if !matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
                return self.error(answer, status).await;
            }
            let after = answer.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
            let after = after.and_then(|seconds| seconds.trim().parse().ok()).map(Duration::from_secs);
            match after.filter(|after| !waited && *after < self.ask.patience) {
                Some(after) => {
                    waited = true;
                    answer.is_over();
                    drop(answer);
                    sleep(after).await;
                }
                None => return Err(Fault::Unavailable { detail: format!("it answered {status}"), retry_after: after }),
            }
            let sent = self.http.post(&self.ask.head, self.ask.body.clone()).await;
            answer = sent.map_err(super::NotSent::fault)?;
        }
    }

    async fn error(&mut self, mut answer: Answer, status: StatusCode) -> Result<(), Fault> {
        let in_session = self.http.is_in_session(&self.ask.head);
        let body = match compression(answer.headers()) {
            None => collect(self.connection(), &mut answer, MAX_REFUSAL).await.unwrap_or_default(),
            Some(_) => Bytes::new(),
        };
        let (error, named) = self.read_error(&body).unzip();
        // SES-4. Some servers say it with 400, before they look at the message: one that names our request was read, and
        // may have been done.
        let says_session = || {
            let message = error.as_ref().and_then(|error| error.message);
            let text = message.and_then(|message| json::text_of(message.of(&body)));
            text.is_some_and(|text| text.to_ascii_lowercase().contains("session"))
        };
        if in_session
            && (status == StatusCode::NOT_FOUND
                || status == StatusCode::BAD_REQUEST && named == Some(false) && says_session())
        {
            self.connection().lose_session();
            return Err(Fault::SessionLost);
        }
        let first_words = matches!(self.ask.method, Method::Initialize | Method::Discover);
        let code = error.as_ref().map(|error| error.code);
        if self.ask.method == Method::Initialize && matches!(status.as_u16(), 400 | 404 | 405) {
            // PRB-5, PRB-7: unless it is one of those that only a newer server gives.
            let modern = matches!(
                (code, status),
                (Some(code::HEADER_MISMATCH | code::MISSING_CAPABILITY | code::UNSUPPORTED_VERSION), _)
                    | (Some(code::METHOD_NOT_FOUND), StatusCode::NOT_FOUND)
            );
            self.http.may_be_sse.store(!modern, Ordering::Relaxed);
        }
        match error {
            // PRB-6: a server in trouble says nothing of its era.
            Some(error) if !(first_words && status.is_server_error()) => {
                let reply = Reply { line: body, body: Body::Error(error) };
                self.connection().settle(self.id, Ok(reply));
                Ok(())
            }
            _ if status.is_server_error() => Err(Fault::gone(&format!("it answered {status}"))),
            _ => Err(Fault::Invalid(format!("it answered {status}"))),
        }
    }

    /// The JSON-RPC error of a refusal, and whether it names our request: the id may be missing (ENV-4).
    fn read_error(&self, body: &Bytes) -> Option<(crate::protocol::reply::ErrorSpans, bool)> {
        let mut index = Index::new();
        let Ok(Message::Error { id, error }) = Message::read(body, &mut index) else { return None };
        if id.is_some_and(|id| own_id(id.of(body)) != Some(self.id)) {
            return None;
        }
        match Body::error(body, &index, error) {
            Ok(Body::Error(error)) => Some((error, id.is_some())),
            _ => None,
        }
    }
}

/// The whole body, within `limit` (D077, D078).
async fn collect(connection: &Arc<Connection>, answer: &mut Answer, limit: u64) -> Result<Bytes, Fault> {
    let announced = answer.announced();
    if let Some(size) = announced.filter(|&size| size > limit) {
        return Err(Fault::TooLarge { size, limit });
    }
    connection.may_read().await;
    let lost = |lost| super::NotSent::Lost(lost).fault();
    let Some(first) = answer.chunk().await.map_err(lost)? else { return Ok(Bytes::new()) };
    let too_large = |size: usize| Fault::TooLarge { size: size as u64, limit };
    if first.len() as u64 > limit {
        return Err(too_large(first.len()));
    }
    if answer.is_read() {
        answer.give_back();
        return Ok(first);
    }
    let mut intake = Intake::new(&connection.held);
    let mut body = Vec::new();
    loop {
        intake.room().await;
        let Some(chunk) = answer.chunk().await.map_err(lost)? else { break };
        if body.is_empty() {
            let room = announced.unwrap_or(4 * (first.len() + chunk.len()) as u64);
            body.reserve_exact(usize::try_from(room.min(MAX_ROOM)).unwrap_or_default());
            body.extend_from_slice(&first);
        }
        body.extend_from_slice(&chunk);
        intake.took(chunk.len());
        if body.len() as u64 > limit {
            return Err(too_large(body.len()));
        }
        if answer.is_read() {
            answer.give_back();
            break;
        }
    }
    Ok(if body.is_empty() { first } else { body.into() })
}

/// Nobody waits for what is left of an answer; when its end comes soon, the connection serves others.
fn rest(http: &Arc<Http>, mut answer: Answer) {
    if answer.is_over() {
        return;
    }
    let limit = http.limit;
    http.tasks.spawn(async move {
        let reading = async {
            let mut read = 0;
            while let Ok(Some(chunk)) = answer.chunk().await {
                read += chunk.len() as u64;
                if read > limit {
                    return;
                }
            }
        };
        // Longer is a stream that stays open; it is closed by being dropped.
        let _ = timeout(REST, reading).await;
    });
}
