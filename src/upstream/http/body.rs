//! Bodies: what a client sends is read whole and once; what we answer is a few shared pieces, or a stream of events
//! that is made while it is read.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep, timeout};

use super::Limits;
use super::connection::{Busy, Taken};
use super::front::Front;
use super::stream::Message;
use crate::gateway::Failure;
use crate::transport::quiet::{Kept, apart};
use crate::upstream::write::{self, Sink};

/// From this size on bytes are shared instead of copied together.
const SHARED: usize = 8 << 10;
/// Bodies up to this size are not counted.
const SMALL: usize = 64 << 10;
/// Events that wait to be read, at most.
const AHEAD: usize = 16;

/// A message in pieces.
#[derive(Default)]
pub(super) struct Pieces {
    done: Vec<Bytes>,
    open: Vec<u8>,
}

impl Pieces {
    pub(super) fn new() -> Self {
        Self { done: Vec::new(), open: Vec::with_capacity(512) }
    }

    pub(super) fn finish(mut self) -> Vec<Bytes> {
        if !self.open.is_empty() {
            self.done.push(self.open.into());
        }
        self.done
    }
}

impl Sink for Pieces {
    fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.open
    }

    fn payload(&mut self, payload: &Bytes) {
        if payload.len() < SHARED {
            self.open.extend_from_slice(payload);
            return;
        }
        if !self.open.is_empty() {
            self.done.push(std::mem::take(&mut self.open).into());
        }
        self.done.push(payload.clone());
    }
}

/// The body of an answer.
pub(super) struct Reply {
    what: What,
    /// The connection has something to do until this is gone.
    busy: Option<Busy>,
    taken: Option<Arc<Taken>>,
}

enum What {
    Nothing,
    Whole(Bytes),
    Pieces { pieces: std::vec::IntoIter<Bytes>, left: u64 },
    Events(Box<Events>),
}

impl Reply {
    fn of(what: What) -> Self {
        Self { what, busy: None, taken: None }
    }

    pub(super) fn hold(mut self, busy: Busy, taken: Option<Arc<Taken>>) -> Self {
        self.busy = Some(busy);
        self.taken = taken;
        self
    }

    fn next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let next = match &mut self.what {
            What::Nothing => None,
            What::Whole(_) => match std::mem::replace(&mut self.what, What::Nothing) {
                What::Whole(bytes) => Some(bytes),
                What::Nothing | What::Pieces { .. } | What::Events(_) => None,
            },
            What::Pieces { pieces, left } => pieces.next().inspect(|piece| *left -= piece.len() as u64),
            What::Events(events) => match events.poll(cx) {
                Poll::Ready(next) => next,
                Poll::Pending => return Poll::Pending,
            },
        };
        Poll::Ready(next)
    }
}

impl Body for Reply {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        let next = this.next(cx);
        if let Some(taken) = &this.taken {
            taken.mark(next.is_pending());
        }
        next.map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.what {
            What::Nothing => true,
            What::Whole(bytes) => bytes.is_empty(),
            What::Pieces { left, .. } => *left == 0,
            What::Events(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.what {
            What::Nothing => SizeHint::with_exact(0),
            What::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            What::Pieces { left, .. } => SizeHint::with_exact(*left),
            What::Events(_) => SizeHint::default(),
        }
    }
}

/// A stream of events: whoever makes them runs while the client reads, and is dropped with it.
struct Events {
    making: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    pipe: Pipe,
    quiet: Pin<Box<Sleep>>,
    keep_alive: Duration,
}

impl Events {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            let next = self.pipe.queue().pop_front();
            if let Some(part) = next {
                self.rest();
                return Poll::Ready(Some(part.written()));
            }
            let Some(making) = &mut self.making else { return Poll::Ready(None) };
            if making.as_mut().poll(cx).is_ready() {
                self.making = None;
                continue;
            }
            if self.pipe.queue().is_empty() {
                std::task::ready!(self.quiet.as_mut().poll(cx));
                self.rest();
                return Poll::Ready(Some(Bytes::from_static(b": \n\n")));
            }
        }
    }

    fn rest(&mut self) {
        self.quiet.as_mut().reset(Instant::now() + self.keep_alive);
    }
}

/// A part of an event.
enum Part {
    /// As it is written.
    Written(Bytes),
    /// Of its data: where that is no line yet it becomes a copy that nobody counts, so it does when it is read.
    Data(Bytes),
}

impl Part {
    fn written(self) -> Bytes {
        match self {
            Self::Written(bytes) => bytes,
            Self::Data(piece) => one_line(&piece),
        }
    }
}

/// Between the maker of events and their reader, which are one task.
#[derive(Clone, Default)]
pub(super) struct Pipe(Arc<Mutex<VecDeque<Part>>>);

impl Pipe {
    fn queue(&self) -> MutexGuard<'_, VecDeque<Part>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue().is_empty()
    }

    /// Puts an event in, for who makes a bounded number of them.
    pub(super) fn push(&self, id: Option<&str>, message: Vec<Bytes>) {
        let mut queue = self.queue();
        let mut head = String::from("event: message\n");
        if let Some(id) = id {
            head.push_str("id: ");
            head.push_str(id);
            head.push('\n');
        }
        head.push_str("data: ");
        let size: usize = message.iter().map(Bytes::len).sum();
        if size < SHARED {
            let mut event = Vec::with_capacity(head.len() + size + 2);
            event.extend_from_slice(head.as_bytes());
            message.iter().for_each(|piece| event.extend_from_slice(&one_line(piece)));
            event.extend_from_slice(b"\n\n");
            queue.push_back(Part::Written(event.into()));
        } else {
            queue.push_back(Part::Written(head.into()));
            queue.extend(message.into_iter().map(Part::Data));
            queue.push_back(Part::Written(Bytes::from_static(b"\n\n")));
        }
    }

    /// Puts bytes in as they are.
    pub(super) fn push_raw(&self, text: String) {
        self.queue().push_back(Part::Written(text.into()));
    }

    /// Waits until the reader has taken enough of what came before. It polls the maker again when it has.
    pub(super) async fn room(&self) {
        poll_fn(|_| if self.queue().len() < AHEAD { Poll::Ready(()) } else { Poll::Pending }).await;
    }
}

/// Data of an event is one line; a line break between two JSON tokens is as good as a blank.
fn one_line(piece: &Bytes) -> Bytes {
    if memchr::memchr2(b'\n', b'\r', piece).is_none() {
        return piece.clone();
    }
    piece.iter().map(|&byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte }).collect::<Vec<_>>().into()
}

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// An answer without a body.
pub(super) fn empty(status: StatusCode) -> Response<Reply> {
    let mut response = Response::new(Reply::of(What::Nothing));
    *response.status_mut() = status;
    response
}

/// An answer that is one JSON text.
pub(super) fn json(status: StatusCode, message: Vec<Bytes>) -> Response<Reply> {
    let what = match <[Bytes; 1]>::try_from(message) {
        Ok([whole]) => What::Whole(whole),
        Err(pieces) => {
            let left = pieces.iter().map(|piece| piece.len() as u64).sum();
            What::Pieces { pieces: pieces.into_iter(), left }
        }
    };
    let mut response = Response::new(Reply::of(what));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

/// An error of ours; without an id where none could be read (ENV-4).
pub(super) fn refusal(status: StatusCode, id: Option<&[u8]>, failure: &Failure) -> Response<Reply> {
    let mut pieces = Pieces::new();
    write::failure(&mut pieces, id, failure);
    json(status, pieces.finish())
}

/// A stream of events (HTTP-6).
pub(super) fn events(
    limits: &Limits,
    pipe: Pipe,
    making: impl Future<Output = ()> + Send + 'static,
) -> Response<Reply> {
    let keep_alive = limits.keep_alive;
    let quiet = Box::pin(sleep(keep_alive));
    let events = Events { making: Some(Box::pin(making)), pipe, quiet, keep_alive };
    let mut response = Response::new(Reply::of(What::Events(Box::new(events))));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    response
}

/// Bytes of a large answer, and its part of what such answers may hold, until they are written.
struct Counted {
    bytes: Bytes,
    _held: Arc<OwnedSemaphorePermit>,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// An answer that waits to be written. A large one that has no room beside the others that nobody takes is not kept:
/// the host gets an error instead.
pub(super) fn counted(budget: &Arc<Semaphore>, id: &[u8], message: Message) -> Message {
    let size: usize = message.iter().map(Bytes::len).sum();
    if size <= SMALL {
        return message;
    }
    let held = u32::try_from(units(size)).ok().and_then(|units| Arc::clone(budget).try_acquire_many_owned(units).ok());
    let Some(held) = held.map(Arc::new) else {
        let mut pieces = Pieces::new();
        write::failure(&mut pieces, Some(id), &Failure::limit("Too many answers wait for their clients"));
        return pieces.finish();
    };
    let count = |bytes: Bytes| match bytes.len() {
        ..SHARED => bytes,
        _ => Bytes::from_owner(Counted { bytes, _held: Arc::clone(&held) }),
    };
    message.into_iter().map(count).collect()
}

/// A request's body.
pub(super) struct Received {
    pub(super) bytes: Bytes,
    /// Its part of the bytes that large bodies may hold.
    pub(super) _held: Option<OwnedSemaphorePermit>,
}

/// Reads a body whole (HTTP-7); where that fails, what to answer.
pub(super) async fn read(front: &Front, body: Incoming) -> Result<Received, StatusCode> {
    let limits = &front.limits;
    let declared = body.size_hint().exact();
    if declared.is_some_and(|size| size > limits.body as u64) {
        return Err(StatusCode::PAYLOAD_TOO_LARGE);
    }
    let too_late = async {
        let leaving = async {
            front.stop.cancelled().await;
            sleep(limits.leaving).await;
        };
        // Either is enough.
        let _ = timeout(limits.body_time, leaving).await;
    };
    tokio::select! {
        biased;
        read = collect(limits, &front.bodies, body, declared.map(|size| size as usize)) => read,
        () = too_late => Err(StatusCode::REQUEST_TIMEOUT),
    }
}

async fn collect(
    limits: &Limits,
    budget: &Arc<Semaphore>,
    mut body: Incoming,
    declared: Option<usize>,
) -> Result<Received, StatusCode> {
    let mut held = None;
    if let Some(size) = declared.filter(|&size| size > SMALL) {
        held = Some(hold(budget, size).await?);
    }
    let mut whole = BytesMut::new();
    loop {
        let frame = poll_fn(|cx| {
            let (frame, Kept(woken)) = apart(|| Pin::new(&mut body).poll_frame(cx));
            // Whoever reads the socket has nothing to do where this was all.
            if woken && !(frame.is_ready() && body.is_end_stream()) {
                cx.waker().wake_by_ref();
            }
            frame
        });
        let Some(frame) = frame.await else {
            if let Some(held) = &mut held {
                // What it turned out not to need is another's.
                drop(held.split(held.num_permits().saturating_sub(units(whole.len()))));
            }
            return Ok(Received { bytes: whole.freeze(), _held: held });
        };
        let Ok(data) = frame.map_err(|_| StatusCode::BAD_REQUEST)?.into_data() else { continue };
        if whole.is_empty() && body.is_end_stream() {
            return if data.len() > limits.body {
                Err(StatusCode::PAYLOAD_TOO_LARGE)
            } else {
                Ok(Received { bytes: data, _held: held })
            };
        }
        if whole.len() + data.len() > limits.body {
            return Err(StatusCode::PAYLOAD_TOO_LARGE);
        }
        if held.is_none() && whole.len() + data.len() > SMALL {
            held = Some(hold(budget, limits.body).await?);
        }
        whole.reserve(declared.unwrap_or_default().saturating_sub(whole.len()).max(data.len()));
        whole.extend_from_slice(&data);
    }
}

/// The budget is counted in kibibytes.
fn units(size: usize) -> usize {
    size.div_ceil(1024)
}

async fn hold(budget: &Arc<Semaphore>, size: usize) -> Result<OwnedSemaphorePermit, StatusCode> {
    let units = u32::try_from(units(size)).map_err(|_| StatusCode::PAYLOAD_TOO_LARGE)?;
    Arc::clone(budget).acquire_many_owned(units).await.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d076_an_event_is_named_and_its_data_is_one_line() {
        let pipe = Pipe::default();
        pipe.push(Some("a-1"), vec![Bytes::from_static(b"{\r\n\"a\":"), Bytes::from_static(b"\"\\n\"\n}")]);
        assert_eq!(
            pipe.queue().pop_front().unwrap().written(),
            "event: message\nid: a-1\ndata: {  \"a\":\"\\n\" }\n\n"
        );
        pipe.push(None, vec![Bytes::from(vec![b'\n'; SHARED])]);
        let event: Vec<u8> = pipe.queue().drain(..).flat_map(Part::written).collect();
        assert_eq!(event, [&b"event: message\ndata: "[..], &vec![b' '; SHARED], b"\n\n"].concat());
    }

    #[test]
    fn large_payloads_are_shared_and_small_ones_joined() {
        let large = Bytes::from(vec![b'x'; SHARED]);
        let mut pieces = Pieces::new();
        pieces.bytes().push(b'<');
        pieces.payload(&Bytes::from_static(b"small"));
        pieces.payload(&large);
        pieces.bytes().push(b'>');
        let pieces = pieces.finish();
        assert_eq!(pieces.len(), 3);
        assert_eq!(pieces[1].as_ptr(), large.as_ptr());
        assert_eq!((&pieces[0][..], &pieces[2][..]), (&b"<small"[..], &b">"[..]));
    }
}
