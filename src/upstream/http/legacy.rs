//! Requests of HTTP that belong to a legacy session: POSTs of one message or an array, GET, DELETE.
//!
//! A request runs inside the connection that it came on, as long as that one waits for it; if the connection goes, the
//! request goes on as a task (SES-9). What it sends before its answer makes a stream of the answer. What a session is
//! and does is in `session`; `post` and `front` call this.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use http::header::{HeaderMap, HeaderValue};
use http::{Response, StatusCode};
use tokio_util::task::TaskTracker;

use super::auth::Proof;
use super::body::{self, Pieces, Pipe, Reply, empty, refusal};
use super::front::{Front, Who, not_allowed};
use super::headers::{Accept, LAST_EVENT, SESSION};
use super::post::{one, session_of, whole};
use super::session::{Session, Step};
use super::stream::{Message as Sent, Settled, Stream};
use crate::gateway::Failure;
use crate::protocol::json::{self, Index, Span};
use crate::protocol::message::{Message, NoMessage, Part, Why};
use crate::protocol::method::Method;
use crate::protocol::version::Revision;
use crate::upstream::modern::modern_meta;
use crate::upstream::write;

/// Messages of one array that are served, at most.
const MAX_BATCH: usize = 128;

/// Opens a session; a new one each time (D072).
pub(super) fn initialize(
    front: &Arc<Front>,
    who: Who,
    accept: Accept,
    line: &Bytes,
    (id, params): (&[u8], &[u8]),
) -> Response<Reply> {
    let (session, members) = match Session::new(front, who, params, Arc::default()) {
        Ok(opened) => opened,
        Err(failure) => return refusal(StatusCode::OK, Some(id), &failure),
    };
    let revision = session.revision;
    let Some(session) = front.sessions.open(session) else {
        return refusal(StatusCode::SERVICE_UNAVAILABLE, Some(id), &Failure::limit("Too many sessions are in use"));
    };
    if front.stop.is_cancelled() {
        session.close_questions();
    }
    session.told(Method::Initialize.as_str().as_bytes(), line, None);
    let mut pieces = Pieces::new();
    write::result(&mut pieces, id, revision, &members);
    let mut answer = one(front, accept, StatusCode::OK, id, pieces);
    if let Ok(name) = HeaderValue::from_str(&session.name) {
        answer.headers_mut().insert(SESSION, name);
    }
    answer
}

/// A request that goes on when nobody waits for it any more (SES-9).
struct Adopted {
    doing: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    tasks: TaskTracker,
}

impl Drop for Adopted {
    fn drop(&mut self) {
        if let Some(doing) = self.doing.take()
            && tokio::runtime::Handle::try_current().is_ok()
        {
            self.tasks.spawn(doing);
        }
    }
}

/// Serves a request of a session. ERR-5: its errors are answers like others.
#[expect(clippy::too_many_arguments, reason = "the parts of one message")]
pub(super) async fn request(
    front: &Arc<Front>,
    session: &Arc<Session>,
    accept: Accept,
    line: &Bytes,
    index: &Index,
    id: Span,
    method: Span,
    params: Option<Part>,
) -> Response<Reply> {
    let id = line.slice(id.range());
    let begun = session.step(line, index, &id, method, params).and_then(|step| match step {
        Step::Now(answer) => Ok(Err(answer)),
        Step::Run(mut task, caller) => Ok(Ok((session.enter(id.clone(), &mut task)?, task, caller))),
    });
    let (running, task, caller) = match begun {
        Ok(Ok(begun)) => begun,
        Ok(Err(answer)) => return whole(front, accept, StatusCode::OK, answer),
        Err(failure) => return refusal(StatusCode::OK, Some(&id), &failure),
    };
    let stream = session.new_stream(!accept.events);
    let doing = Arc::clone(session).run(task, caller, Arc::clone(&stream), stream.owe(), running);
    let mut adopted = Adopted { doing: Some(Box::pin(doing)), tasks: front.tasks.clone() };
    let settled = poll_fn(|cx| {
        if adopted.doing.as_mut().is_some_and(|doing| doing.as_mut().poll(cx).is_ready()) {
            adopted.doing = None;
        }
        stream.settled().map_or(Poll::Pending, Poll::Ready)
    });
    let settled = settled.await;
    drop(adopted);
    answer(front, session, accept, stream, settled, Some(&id))
}

/// Serves an array of messages (ENV-9, ENV-10). Its requests run beside each other; their answers are one array, or
/// the events of a stream.
pub(super) async fn batch(
    front: &Arc<Front>,
    session: &Arc<Session>,
    accept: Accept,
    line: &Bytes,
    index: &mut Index,
) -> Response<Reply> {
    let stream = session.new_stream(!accept.events);
    let (mut any, mut asked) = (false, false);
    // While this is held the stream does not end.
    let open = stream.owe();
    for (count, element) in json::elements(line).enumerate() {
        any = true;
        let element = line.slice_ref(element);
        let refuse = |id: Option<Span>, failure: &Failure| {
            let mut pieces = Pieces::new();
            write::failure(&mut pieces, id.map(|id| id.of(&element)), failure);
            stream.owe().give(pieces.finish());
        };
        match Message::read(&element, index) {
            Ok(Message::Request { id, method, params }) => {
                asked = true;
                let begun = match modern_meta(&element, index, params) {
                    _ if count >= MAX_BATCH => Err(Failure::limit("Too many messages in one array")),
                    _ if Method::parse(method.of(&element)) == Some(Method::Initialize) => {
                        Err(Failure::misplaced_initialize())
                    }
                    Err(failure) => Err(failure),
                    Ok(Some(_)) => Err(Failure::bad_params("a modern request stands alone")),
                    Ok(None) => session.step(&element, index, id.of(&element), method, params),
                };
                let begun = begun.and_then(|step| match step {
                    Step::Now(answer) => {
                        stream.owe().give(answer);
                        Ok(())
                    }
                    Step::Run(mut task, caller) => {
                        let running = session.enter(element.slice(id.range()), &mut task)?;
                        let owed = stream.owe();
                        front.tasks.spawn(Arc::clone(session).run(task, caller, Arc::clone(&stream), owed, running));
                        Ok(())
                    }
                });
                if let Err(failure) = begun {
                    refuse(Some(id), &failure);
                }
            }
            Ok(Message::Notification { method, params }) => session.notified(&element, index, method, params),
            Ok(message) => session.answered(&element, &message),
            Err(NoMessage { id, why }) => {
                asked = true;
                refuse(id, &Failure::no_message(why));
            }
        }
    }
    drop(open);
    if !any {
        return refusal(StatusCode::BAD_REQUEST, None, &Failure::no_message(Why::Array));
    }
    if !asked {
        return empty(StatusCode::ACCEPTED);
    }
    let settled = stream.settle().await;
    answer(front, session, accept, stream, settled, None)
}

/// HTTP-4: what came first decides how a POST is answered; an array has no id.
fn answer(
    front: &Front,
    session: &Arc<Session>,
    accept: Accept,
    stream: Arc<Stream>,
    settled: Settled,
    id: Option<&[u8]>,
) -> Response<Reply> {
    match settled {
        Settled::Streaming => {
            session.keep(&stream, front.limits.kept);
            // A call that was begun may end: it is bounded by itself.
            events(front, session, Proof::default(), stream, (1, true))
        }
        // The host has given up: its stream ends, and that is all.
        Settled::Answers(answers) if answers.is_empty() && !accept.events => empty(StatusCode::ACCEPTED),
        Settled::Answers(answers) if answers.is_empty() => body::events(&front.limits, Pipe::default(), async {}),
        Settled::Answers(answers) if accept.json => {
            let whole: Sent = match id {
                Some(_) => answers.into_iter().flatten().collect(),
                None => {
                    let comma = || Bytes::from_static(b",");
                    let mut whole = vec![Bytes::from_static(b"[")];
                    for (n, answer) in answers.into_iter().enumerate() {
                        whole.extend((n > 0).then(comma));
                        whole.extend(answer);
                    }
                    whole.push(Bytes::from_static(b"]"));
                    whole
                }
            };
            body::json(StatusCode::OK, whole)
        }
        Settled::Answers(answers) => {
            let pipe = Pipe::default();
            for answer in answers {
                pipe.push(None, answer);
            }
            body::events(&front.limits, pipe, async {})
        }
    }
}

/// Gives a stream to its reader from an event on (SES-7). The newest reader gets it (SES-5).
fn events(
    front: &Front,
    session: &Arc<Session>,
    proof: Proof,
    stream: Arc<Stream>,
    (from, opens): (u64, bool),
) -> Response<Reply> {
    let pipe = Pipe::default();
    let out = pipe.clone();
    let reading = session.reading();
    let reader = stream.reader();
    body::events(&front.limits, pipe, async move {
        if opens && reading.session().revision >= Revision::V2025_11_25 {
            out.push_raw(format!("id: {}-0\ndata: \n\n", stream.number));
        }
        proof.bound(reading.session().tell_again(&stream, reader, from, &out)).await;
    })
}

/// A GET: the stream of what belongs to no request, or the rest of one that broke (SES-6, SES-7, SES-8).
///
/// The newest stream of a session is the one that is served: the one before may be dead without our knowing it.
pub(super) fn get(front: &Arc<Front>, who: &Who, headers: &HeaderMap) -> Response<Reply> {
    if !headers.contains_key(SESSION) {
        return not_allowed();
    }
    let session = match session_of(front, who, headers) {
        Ok(session) => session,
        Err((status, failure)) => return refusal(status, None, &failure),
    };
    if !Accept::read(headers).events {
        return empty(StatusCode::NOT_ACCEPTABLE);
    }
    if let Some(last) = headers.get(LAST_EVENT) {
        let Some((stream, last)) = last.to_str().ok().and_then(|last| resumed(&session, last)) else {
            return refusal(StatusCode::BAD_REQUEST, None, &Failure::unknown_event());
        };
        return events(front, &session, who.proof.clone(), stream, (last + 1, false));
    }
    general(front, session, who.proof.clone())
}

/// The stream that an event id names, and the number of that event.
fn resumed(session: &Session, last: &str) -> Option<(Arc<Stream>, u64)> {
    let (stream, event) = last.split_once('-')?;
    let (stream, event): (u64, u64) = (stream.parse().ok()?, event.parse().ok()?);
    Some((session.kept(stream)?, event.min(u64::MAX - 1)))
}

fn general(front: &Arc<Front>, session: Arc<Session>, proof: Proof) -> Response<Reply> {
    let pipe = Pipe::default();
    let out = pipe.clone();
    let reading = session.reading();
    let reader = session.general.reader();
    let stop = front.stop.clone();
    body::events(&front.limits, pipe, async move {
        stop.run_until_cancelled(proof.bound(reading.session().tell_all(reader, &out))).await;
    })
}

/// A DELETE: the host ends its session (SES-3).
pub(super) fn delete(front: &Front, who: &Who, headers: &HeaderMap) -> Response<Reply> {
    if !headers.contains_key(SESSION) {
        return not_allowed();
    }
    match session_of(front, who, headers) {
        Ok(session) => {
            front.sessions.end(&session);
            empty(StatusCode::NO_CONTENT)
        }
        Err((status, failure)) => refusal(status, None, &failure),
    }
}
