//! A POST: reads the message and finds out who serves it (VER-2).

use std::sync::Arc;

use http::header::HeaderMap;
use http::{Response, StatusCode};
use hyper::body::Incoming;

use super::body::{self, Pieces, Pipe, Reply, empty, refusal};
use super::front::{Front, Who};
use super::headers::{self, Accept, SESSION};
use super::legacy;
use super::session::Session;
use super::stateless::{self, Asked};
use super::stream::Message as Sent;
use crate::gateway::Failure;
use crate::protocol::json::Index;
use crate::protocol::message::{Message, NoMessage, Why};
use crate::protocol::meta::PROTOCOL_VERSION;
use crate::protocol::method::Method;
use crate::upstream::modern::modern_meta;

/// Serves a POST to the endpoint.
pub(super) async fn post(front: &Arc<Front>, who: Who, headers: &HeaderMap, body: Incoming) -> Response<Reply> {
    if !headers::is_json(headers) {
        return empty(StatusCode::UNSUPPORTED_MEDIA_TYPE);
    }
    let accept = Accept::read(headers);
    if !accept.json && !accept.events {
        return empty(StatusCode::NOT_ACCEPTABLE);
    }
    let received = match body::read(front, body).await {
        Ok(received) => received,
        Err(status) => return empty(status),
    };
    let line = &received.bytes;
    let mut index = Index::new();
    let message = match Message::read(line, &mut index) {
        Ok(message) => message,
        Err(NoMessage { why: Why::Array, .. }) => {
            return match session_of(front, &who, headers) {
                Ok(session) if session.revision.has_batches() => {
                    legacy::batch(front, &session, accept, line, &mut index).await
                }
                // ENV-9: of no other revision.
                _ => refusal(StatusCode::BAD_REQUEST, None, &Failure::no_message(Why::Array)),
            };
        }
        Err(NoMessage { id, why }) => {
            let id = id.map(|id| id.of(line));
            return refusal(StatusCode::BAD_REQUEST, id, &Failure::no_message(why));
        }
    };
    let (id, method, params) = match message {
        Message::Request { id, method, params } => (Some(id), method, params),
        Message::Notification { method, params } => (None, method, params),
        Message::Result { .. } | Message::Error { .. } => {
            // HDR-11: modern hosts answer nothing.
            return match session_of(front, &who, headers) {
                Ok(session) => {
                    session.answered(line, &message);
                    empty(StatusCode::ACCEPTED)
                }
                Err((status, failure)) => refusal(status, None, &failure),
            };
        }
    };
    let raw_id = id.map(|id| id.of(line));
    match (modern_meta(line, &index, params), id) {
        (Ok(Some((meta, version))), Some(id)) => {
            let asked = Asked { line, index: &index, id, method, params, meta, version };
            return stateless::request(front, who, headers, accept, asked).await;
        }
        // HDR-10: none means anything here.
        (Ok(Some(_)), None) => return empty(StatusCode::ACCEPTED),
        (Err(failure), Some(_)) => return refusal(StatusCode::BAD_REQUEST, raw_id, &failure),
        (Err(_), None) | (Ok(None), _) => {}
    }
    if id.is_some() && Method::parse(method.of(line)) == Some(Method::Initialize) {
        let params = params.map_or(&b""[..], |params| params.span.of(line));
        return legacy::initialize(front, who, accept, line, (raw_id.unwrap_or_default(), params));
    }
    if headers::names_modern(headers) {
        return match id {
            Some(_) => refusal(StatusCode::BAD_REQUEST, raw_id, &Failure::missing_meta(PROTOCOL_VERSION)),
            None => empty(StatusCode::ACCEPTED),
        };
    }
    let session = match session_of(front, &who, headers) {
        Ok(session) => session,
        Err((status, failure)) => return refusal(status, raw_id, &failure),
    };
    match id {
        Some(id) => legacy::request(front, &session, accept, line, &index, id, method, params).await,
        None => {
            session.notified(line, &index, method, params);
            empty(StatusCode::ACCEPTED)
        }
    }
}

/// The session that a request names; else what to answer (SES-2, VER-9).
pub(super) fn session_of(front: &Front, who: &Who, headers: &HeaderMap) -> Result<Arc<Session>, (StatusCode, Failure)> {
    let mut named = headers.get_all(SESSION).iter();
    let Some(name) = named.next() else { return Err((StatusCode::BAD_REQUEST, Failure::no_session())) };
    if named.any(|other| other != name) {
        return Err((StatusCode::BAD_REQUEST, Failure::no_session()));
    }
    let Some(session) = front.sessions.find(name.as_bytes(), who) else {
        return Err((StatusCode::NOT_FOUND, Failure::unknown_session()));
    };
    if !headers::is_legacy_version(headers) {
        return Err((StatusCode::BAD_REQUEST, Failure::unknown_version_header()));
    }
    Ok(session)
}

/// One message as the whole answer: JSON, or the only event for who takes nothing else (HTTP-3).
pub(super) fn one(front: &Front, accept: Accept, status: StatusCode, id: &[u8], pieces: Pieces) -> Response<Reply> {
    whole(front, accept, status, body::counted(&front.answers, id, pieces.finish()))
}

/// The same, of what is counted already.
pub(super) fn whole(front: &Front, accept: Accept, status: StatusCode, message: Sent) -> Response<Reply> {
    if accept.json {
        return body::json(status, message);
    }
    let pipe = Pipe::default();
    pipe.push(None, message);
    let mut answer = body::events(&front.limits, pipe, async {});
    *answer.status_mut() = status;
    answer
}
