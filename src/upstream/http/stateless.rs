//! Modern requests: each stands alone, and ends with the connection that it came on (INV-3, STM-1).
//!
//! The path of a call. It is not a task of its own: it runs inside its connection, so a client that goes away
//! cancels it by that alone.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use http::header::HeaderMap;
use http::{Response, StatusCode};

use super::body::{self, Pieces, Pipe, Reply, refusal};
use super::front::{Front, Who};
use super::headers::{self, Accept};
use super::listens;
use super::post::one;
use crate::caller::Caller;
use crate::gateway::Failure;
use crate::protocol::capability::Capabilities;
use crate::protocol::code;
use crate::protocol::json::{self, Index, Span};
use crate::protocol::message::Part;
use crate::protocol::meta::RequestMeta;
use crate::protocol::method::Method;
use crate::protocol::version::{Era, Revision};
use crate::transport::upward::{Happening, Upward};
use crate::upstream::work::{Done, Work};
use crate::upstream::{modern, write};

/// A modern request, as far as it was read.
pub(super) struct Asked<'a> {
    pub(super) line: &'a Bytes,
    pub(super) index: &'a Index,
    pub(super) id: Span,
    pub(super) method: Span,
    pub(super) params: Option<Part>,
    pub(super) meta: RequestMeta<'a>,
    /// The raw version in `meta`.
    pub(super) version: &'a [u8],
}

/// Serves a request.
pub(super) async fn request(
    front: &Arc<Front>,
    who: Who,
    headers: &HeaderMap,
    accept: Accept,
    asked: Asked<'_>,
) -> Response<Reply> {
    let id = asked.line.slice(asked.id.range());
    let (work, caller) = match prepare(front, &who, headers, accept, &asked, &id) {
        Ok(prepared) => prepared,
        Err(answer) => return *answer,
    };
    if let Work::List(kind, cursor, message) = &work
        && let Some(list) = front.gateway.now().list_now(*kind, &caller, cursor.as_deref(), message)
    {
        return answer(front, accept, &id, caller.revision, &list.map(Done::List));
    }
    let token = work.progress_token();
    let upward = Arc::new(Upward::default());
    if !accept.events || token.is_none() && caller.log_level.is_none() {
        // Nothing can happen but the answer.
        let done = work.perform(&front.gateway.now(), &caller, &upward, |_| {}).await;
        let done = done.unwrap_or_else(|| Err(Failure::limit("The request was given up")));
        return answer(front, accept, &id, caller.revision, &done);
    }
    let pipe = Pipe::default();
    let revision = caller.revision;
    let mut doing = {
        let (gateway, pipe) = (front.gateway.now(), pipe.clone());
        Box::pin(async move {
            let tell = |happening| tell(&pipe, happening, token.as_ref(), revision);
            let done = work.perform(&gateway, &caller, &upward, tell).await;
            done.unwrap_or_else(|| Err(Failure::limit("The request was given up")))
        })
    };
    // HTTP-4: whatever is ready first decides how it is answered.
    let first = poll_fn(|cx| match doing.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending if pipe.is_empty() => Poll::Pending,
        Poll::Pending => Poll::Ready(None),
    });
    match first.await {
        Some(done) if pipe.is_empty() => answer(front, accept, &id, revision, &done),
        first => {
            let (out, counts) = (pipe.clone(), Arc::clone(&front.answers));
            body::events(&front.limits, pipe, async move {
                let done = match first {
                    Some(done) => done,
                    None => doing.await,
                };
                let mut pieces = Pieces::new();
                write::done(&mut pieces, &id, revision, &done);
                out.push(None, body::counted(&counts, &id, pieces.finish()));
            })
        }
    }
}

/// What is looked at before anything is done, in the order of HDR-5; what is answered without more.
fn prepare(
    front: &Arc<Front>,
    who: &Who,
    headers: &HeaderMap,
    accept: Accept,
    asked: &Asked<'_>,
    id: &Bytes,
) -> Result<(Work, Caller), Box<Response<Reply>>> {
    let &Asked { line, index, method, params, ref meta, version, .. } = asked;
    let name = method.of(line);
    let base = |revision| Caller {
        principal: who.principal.clone(),
        profile: who.profile,
        revision,
        capabilities: Capabilities::default(),
        log_level: None,
        session: None,
    };
    let told = |failure: Option<&Failure>| {
        front.gateway.now().answered_apart(&base(Revision::LATEST_MODERN), name, line, failure);
    };
    let refuse = |status, failure: &Failure| {
        told(Some(failure));
        Err(Box::new(refusal(status, Some(id), failure)))
    };
    let checked = match modern::check(meta, version) {
        Err(failure) if failure.code != code::UNSUPPORTED_VERSION => return refuse(StatusCode::BAD_REQUEST, &failure),
        checked => checked,
    };
    let date = json::text_of(version).unwrap_or_default();
    // The body says otherwise than the headers (E-21).
    let mismatch = |failure: &Failure| {
        if failure.code == code::HEADER_MISMATCH {
            front.gateway.now().note_refused(&who.principal, None, name, "header-mismatch");
        }
    };
    if let Err(failure) = headers::check(headers, line, index, &date, name, params) {
        mismatch(&failure);
        return refuse(StatusCode::BAD_REQUEST, &failure);
    }
    let revision = match checked {
        Ok(revision) => revision,
        Err(failure) => return refuse(StatusCode::BAD_REQUEST, &failure),
    };
    let unknown = || {
        front.gateway.now().note_refused(&who.principal, None, name, "unknown-method");
        Failure::unknown_method(&String::from_utf8_lossy(&name[..name.len().min(200)]))
    };
    let Some(known) = Method::parse(name) else { return refuse(StatusCode::NOT_FOUND, &unknown()) };
    let caller = match modern::caller(base(revision), meta, revision) {
        Ok(caller) => caller,
        Err(failure) => return refuse(StatusCode::OK, &failure),
    };
    if matches!(known, Method::Discover | Method::Listen) {
        told(None);
    }
    if known == Method::Discover {
        let gateway = front.gateway.now();
        let sight = gateway.sight(&who.principal, who.profile);
        let (offers, instructions) = (gateway.offers(sight), gateway.instructions(sight));
        let mut pieces = Pieces::new();
        write::result(&mut pieces, id, revision, &modern::discover_result(&offers, &instructions));
        return Err(Box::new(one(front, accept, StatusCode::OK, id, pieces)));
    }
    if known == Method::Listen {
        let params = params.map_or(&b""[..], |params| params.span.of(line));
        return Err(Box::new(match accept.events {
            true => listens::open(front, caller, who.proof.clone(), id.clone(), params),
            false => body::empty(StatusCode::NOT_ACCEPTABLE),
        }));
    }
    let work = match Work::read(Era::Modern, known, line, index, params, Some(meta)) {
        Ok(Some(work)) => work,
        Ok(None) => return refuse(StatusCode::NOT_FOUND, &unknown()),
        Err(failure) => return refuse(StatusCode::OK, &failure),
    };
    if let Work::Call(call) = &work
        && let Err(failure) = front.gateway.now().check_headers(call, &caller, headers)
    {
        mismatch(&failure);
        return refuse(StatusCode::BAD_REQUEST, &failure);
    }
    Ok((work, caller))
}

/// STM-2: what happens to a request is told on its own stream.
fn tell(pipe: &Pipe, happening: Happening, token: Option<&Bytes>, revision: Revision) {
    let mut pieces = Pieces::new();
    match (happening, token) {
        (Happening::Progress(progress), Some(token)) => write::progress(&mut pieces, token, &progress, revision),
        (Happening::Log(message), _) => write::log(&mut pieces, &message),
        // A modern host is asked in results.
        (Happening::Progress(_) | Happening::Ask(_) | Happening::Opened(_) | Happening::GivenUp, _) => return,
    }
    pipe.push(None, pieces.finish());
}

fn answer(
    front: &Front,
    accept: Accept,
    id: &[u8],
    revision: Revision,
    done: &Result<Done, Failure>,
) -> Response<Reply> {
    // HDR-12: what the host got wrong of the protocol itself shows in the status, what a server says does not.
    let status = match done {
        Ok(_) => StatusCode::OK,
        Err(failure) => match failure.code {
            code::METHOD_NOT_FOUND => StatusCode::NOT_FOUND,
            code::HEADER_MISMATCH | code::MISSING_CAPABILITY | code::UNSUPPORTED_VERSION => StatusCode::BAD_REQUEST,
            _ => StatusCode::OK,
        },
    };
    let mut pieces = Pieces::new();
    write::done(&mut pieces, id, revision, done);
    one(front, accept, status, id, pieces)
}
