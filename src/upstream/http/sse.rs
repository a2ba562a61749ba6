//! The HTTP+SSE transport of 2024-11-05, for hosts that know nothing newer (SSE-2): one stream from us, and an address
//! for what the host has to say. Off unless the operator wants it.
//!
//! A session like the others, but for where its messages go: all to the one stream, with which it ends.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use foldhash::fast::RandomState;
use http::header::HeaderMap;
use http::{Response, StatusCode};
use hyper::body::Incoming;

use super::body::{self, Pieces, Pipe, Reply, empty, refusal};
use super::front::{Front, Who};
use super::headers::{self, Accept};
use super::session::Session;
use super::sessions::new_name;
use super::stream::{General, What};
use crate::gateway::Failure;
use crate::protocol::json::Index;
use crate::protocol::message::{Message, NoMessage};
use crate::protocol::method::Method;
use crate::protocol::version::Revision;
use crate::upstream::write;

/// The streams that are open, by their unguessable names.
#[derive(Clone, Default)]
pub(super) struct Links(Arc<Mutex<Table>>);

type Table = HashMap<Box<str>, Arc<Link>, RandomState>;

struct Link {
    who: Who,
    general: Arc<General>,
    /// From `initialize` on.
    session: OnceLock<Arc<Session>>,
}

/// An open stream; with it, its session ends.
struct Open {
    links: Links,
    name: Box<str>,
    link: Arc<Link>,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.links.table().remove(&self.name);
        if let Some(session) = self.link.session.get() {
            session.end();
        }
    }
}

impl Links {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// We leave: no answer to a question comes in any more.
    pub(super) fn close_questions(&self) {
        self.table().values().filter_map(|link| link.session.get()).for_each(|session| session.close_questions());
    }
}

/// Opens a stream; there are no more of them than connections.
pub(super) fn open(front: &Arc<Front>, who: Who, headers: &HeaderMap) -> Response<Reply> {
    if !Accept::read(headers).events {
        return empty(StatusCode::NOT_ACCEPTABLE);
    }
    let Some(name) = new_name() else { return empty(StatusCode::SERVICE_UNAVAILABLE) };
    let proof = who.proof.clone();
    let link = Arc::new(Link { who, general: Arc::default(), session: OnceLock::new() });
    front.links.table().insert(name.clone(), Arc::clone(&link));
    let open = Open { links: front.links.clone(), name, link };
    let pipe = Pipe::default();
    let (out, stop) = (pipe.clone(), front.stop.clone());
    body::events(&front.limits, pipe, async move {
        out.push_raw(format!("event: endpoint\ndata: /messages?session={}\n\n", open.name));
        let reader = open.link.general.reader();
        let telling = async {
            let session = loop {
                if let Some(session) = open.link.session.get() {
                    break session;
                }
                // The first message is there when the session is.
                let Some(message) = open.link.general.read(reader).await else { return };
                out.push(None, message);
            };
            session.tell_all(reader, &out).await;
        };
        tokio::select! {
            biased;
            () = proof.bound(telling) => {}
            // What runs when we leave may end; nothing else comes any more.
            () = async { stop.cancelled().await; open.link.general.settled().await } => {}
        }
    })
}

/// Takes what the host has to say; what comes of it goes to the stream.
pub(super) async fn post(
    front: &Arc<Front>,
    who: &Who,
    head: &http::request::Parts,
    body: Incoming,
) -> Response<Reply> {
    if !headers::is_json(&head.headers) {
        return empty(StatusCode::UNSUPPORTED_MEDIA_TYPE);
    }
    let name = head.uri.query().and_then(|query| query.split('&').find_map(|pair| pair.strip_prefix("session=")));
    let Some(name) = name else { return refusal(StatusCode::BAD_REQUEST, None, &Failure::no_session()) };
    let link = front.links.table().get(name).cloned();
    // Of whom it is says its key; which profile, its stream.
    let Some(link) = link.filter(|link| link.who.principal == who.principal) else {
        return refusal(StatusCode::NOT_FOUND, None, &Failure::unknown_session());
    };
    let received = match body::read(front, body).await {
        Ok(received) => received,
        Err(status) => return empty(status),
    };
    if let Some(session) = link.session.get() {
        session.renew(who);
    }
    let line = &received.bytes;
    let mut index = Index::new();
    let answer = |id: &[u8], result: Result<(Revision, &str), &Failure>| {
        let mut pieces = Pieces::new();
        match result {
            Ok((revision, members)) => write::result(&mut pieces, id, revision, members),
            Err(failure) => write::failure(&mut pieces, Some(id), failure),
        }
        link.general.push(pieces.finish(), What::Answer);
    };
    match (Message::read(line, &mut index), link.session.get()) {
        (Err(NoMessage { id, why }), _) => {
            let id = id.map(|id| id.of(line));
            return refusal(StatusCode::BAD_REQUEST, id, &Failure::no_message(why));
        }
        (Ok(Message::Request { id, method, params }), session) => {
            let raw = id.of(line);
            match (Method::parse(method.of(line)), session) {
                (Some(Method::Initialize), None) => {
                    let params = params.map_or(&b""[..], |params| params.span.of(line));
                    match Session::new(front, link.who.clone(), params, Arc::clone(&link.general)) {
                        Ok((session, members)) => {
                            let revision = session.revision;
                            if link.session.set(Arc::new(session)).is_ok() {
                                answer(raw, Ok((revision, &members)));
                            }
                            if front.stop.is_cancelled() {
                                front.links.close_questions();
                            }
                        }
                        Err(failure) => answer(raw, Err(&failure)),
                    }
                }
                (Some(Method::Initialize), Some(_)) => {
                    answer(raw, Err(&Failure::bad_params("the session is open already")));
                }
                (Some(Method::Ping), None) => answer(raw, Ok((Revision::V2024_11_05, ""))),
                (_, None) => answer(raw, Err(&Failure::no_era())),
                (_, Some(session)) => session.ask(line, &index, id, method, params),
            }
        }
        (Ok(Message::Notification { method, params }), Some(session)) => {
            session.notified(line, &index, method, params);
        }
        (Ok(message), Some(session)) => session.answered(line, &message),
        (Ok(_), None) => {}
    }
    empty(StatusCode::ACCEPTED)
}
