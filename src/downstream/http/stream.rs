//! What a legacy server says unasked: the stream of a session (SES-5), and the one stream of the transport of 2024-11-05,
//! on which everything comes (SSE-1).
//!
//! A stream of a session may end at any time and is opened again, ever later; that ends no session (D079). The one of
//! the older transport is the session.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use super::super::connection::{Connection, Deadlines};
use super::super::receive::Receiver;
use super::super::{Fault, client};
use super::pool::Answer;
use super::{EVENTS, Http, LAST_EVENT, is_type, same_origin_path};
use crate::ident::Kind;
use crate::protocol::method::Method;
use crate::transport::sse::{Event, EventReader};

/// How long a server may take to answer whether it knows our session.
const PING: Duration = Duration::from_secs(10);
/// Longest address that an `endpoint` event may name.
const MAX_ENDPOINT: usize = 8 << 10;

/// Keeps the stream of a legacy session open as long as its connection lives. Servers without one say so (D082). `tried`
/// goes when the server has answered the first time, whatever it said.
pub(in crate::downstream) async fn follow(connection: Arc<Connection>, http: Arc<Http>, tried: oneshot::Sender<()>) {
    let over = connection.over.clone();
    over.run_until_cancelled(keep_open(&connection, &http, tried)).await;
}

async fn keep_open(connection: &Arc<Connection>, http: &Arc<Http>, tried: oneshot::Sender<()>) {
    let mut tried = Some(tried);
    let limit = usize::try_from(http.limit).unwrap_or(usize::MAX);
    let mut reader = EventReader::new(limit);
    let mut receiver = Receiver::new(Arc::clone(connection), None);
    let mut retry = client::RETRY_FIRST;
    let mut gap = false;
    loop {
        let mut headers = http.bare_headers(connection.revision());
        if let Some(last) = reader.last_id().and_then(|id| HeaderValue::from_bytes(id).ok()) {
            headers.insert(LAST_EVENT, last);
        }
        let opened = Instant::now();
        let answer = http.pool.send(http::Method::GET, &http.path, headers, Bytes::new()).await;
        drop(tried.take());
        match answer {
            Ok(answer) if answer.status().is_success() && is_type(answer.headers(), &EVENTS) => {
                if std::mem::take(&mut gap) && reader.last_id().is_none() {
                    // What was said meanwhile is lost.
                    for kind in [Kind::Tool, Kind::Prompt, Kind::Resource, Kind::Template] {
                        connection.changed.list(kind);
                    }
                }
                if read(connection, answer, &mut reader, |event| receiver.event(event)).await.is_err() {
                    tracing::debug!(server = %connection.key, "its stream brings too long an event; closed");
                }
                reader.restart();
                gap = true;
            }
            Ok(answer) if answer.status() == StatusCode::NOT_FOUND => {
                // Either it has no stream or our session is gone; a request shows, and does what follows.
                ping(connection).await;
                return;
            }
            // It has none, or shows a page.
            Ok(answer) if answer.status().is_success() || matches!(answer.status().as_u16(), 405 | 406 | 501) => return,
            Ok(_) | Err(_) => {}
        }
        if opened.elapsed() > client::RETRY_LONGEST {
            retry = client::RETRY_FIRST;
        }
        sleep(retry.max(reader.retry().unwrap_or_default()).min(client::RETRY_LONGEST)).await;
        retry = (retry * 2).min(client::RETRY_LONGEST);
    }
}

async fn ping(connection: &Arc<Connection>) {
    let asked = connection.request(Method::Ping, Some(Deadlines::within(PING)), None, |out, _| {
        out.extend_from_slice(b"{}");
    });
    if let Ok(waiting) = asked {
        // What it says to it changes nothing here.
        let _ = waiting.answer().await;
    }
}

/// Reads a stream to its end.
async fn read(
    connection: &Connection,
    mut answer: Answer,
    reader: &mut EventReader,
    mut each: impl FnMut(Event),
) -> Result<(), Fault> {
    loop {
        connection.may_read().await;
        let Ok(Some(chunk)) = answer.chunk().await else { return Ok(()) };
        reader.feed(chunk);
        loop {
            match reader.next_event() {
                Ok(Some(event)) => each(event),
                Ok(None) => break,
                Err(_) => return Err(Fault::Invalid("an event of its stream is too long".to_owned())),
            }
        }
    }
}

/// Opens the transport of 2024-11-05 and waits until the server says where messages go. Its stream is the session: its
/// end is the connection's.
pub(in crate::downstream) async fn open_sse(connection: &Arc<Connection>, http: &Arc<Http>) -> Result<(), String> {
    let headers = http.bare_headers(connection.revision());
    let asked = http.pool.send(http::Method::GET, &http.path, headers, Bytes::new()).await;
    let answer = asked.map_err(|lost| super::NotSent::Lost(lost).fault().to_string())?;
    let status = answer.status();
    if !status.is_success() || !is_type(answer.headers(), &EVENTS) {
        return Err(format!("it answered {status} and no stream of events to a GET either"));
    }
    let (found, endpoint) = oneshot::channel();
    let (reading, way) = (Arc::clone(connection), Arc::clone(http));
    http.tasks.spawn(async move {
        let mut receiver = Receiver::new(Arc::clone(&reading), None);
        let mut found = Some(found);
        let limit = usize::try_from(way.limit).unwrap_or(usize::MAX);
        let mut reader = EventReader::new(limit);
        let events = read(&reading, answer, &mut reader, |event| {
            if event.name.as_deref() == Some(b"endpoint") {
                if let Some(found) = found.take() {
                    // Nobody waits any more only when it took too long.
                    let _ = found.send(event.data);
                }
            } else {
                receiver.event(event);
            }
        });
        let closed = reading.closed.clone();
        closed.run_until_cancelled(events).await;
        reading.close("its stream of events ended");
    });
    let endpoint = endpoint.await.map_err(|_| "its stream of events ended before it said where messages go")?;
    let text = std::str::from_utf8(&endpoint).ok().filter(|text| text.len() <= MAX_ENDPOINT);
    let target = text.and_then(|text| http.url.join(text.trim()).ok()).ok_or("the endpoint that it names is no URL")?;
    let path = same_origin_path(&http.url, &target).ok_or_else(|| {
        let origin = target.origin().ascii_serialization();
        format!("the endpoint that it names is on another origin, {}", crate::shown::shown_str(&origin))
    })?;
    // Set once: whoever opens it twice makes a new connection.
    let _ = http.endpoint.set(path);
    Ok(())
}
