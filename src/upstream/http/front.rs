//! What is common to all requests: who may ask, and which of the few paths they go to.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS, ALLOW, HeaderMap,
    HeaderValue, VARY,
};
use http::{Method, Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::auth::{Auth, Proof};
use super::body::{Reply, empty, refusal};
use super::connection::Pulse;
use super::guard::Guard;
use super::listens::Listens;
use super::sessions::Sessions;
use super::sse::{self, Links};
use super::{KeyPace, Limits, legacy, post};
use crate::config::settings::{AuthMode, AuthSettings, HttpSettings};
use crate::gateway::{Current, Failure};
use crate::ident::Principal;

/// An HTTP front.
pub(super) struct Front {
    pub(super) limits: Limits,
    pub(super) gateway: Arc<Current>,
    entrance: Arc<Entrance>,
    pub(super) sessions: Sessions,
    pub(super) listens: Listens,
    /// Streams of HTTP+SSE.
    pub(super) links: Links,
    sse: bool,
    /// Bytes of large bodies, in KiB.
    pub(super) bodies: Arc<Semaphore>,
    /// Bytes of large answers that wait to be written, in KiB.
    pub(super) answers: Arc<Semaphore>,
    /// We leave: nothing new is accepted, streams end.
    pub(super) stop: CancellationToken,
    /// We have waited long enough.
    pub(super) cut: CancellationToken,
    /// What outlives its connection.
    pub(super) tasks: TaskTracker,
}

/// Who may enter: hosts by the address that they name and the page that they come from, people by what they prove. Replaced
/// as a whole when the configuration is loaded anew.
pub struct Entrance {
    rules: ArcSwap<Rules>,
    local: SocketAddr,
    pace: KeyPace,
    stop: CancellationToken,
    tasks: TaskTracker,
}

struct Rules {
    guard: Guard,
    auth: Auth,
}

impl Entrance {
    /// The entrance of a listener at this address. What is fetched for it is fetched until `stop`, and belongs to `tasks`.
    pub fn new(
        (http, auth): (&HttpSettings, &AuthSettings),
        local: SocketAddr,
        pace: KeyPace,
        stop: &CancellationToken,
        tasks: &TaskTracker,
    ) -> Arc<Self> {
        let auth = Auth::new(auth, &pace, stop, tasks, None);
        let rules = ArcSwap::from_pointee(Rules { guard: Guard::new(http, local), auth });
        Arc::new(Self { rules, local, pace, stop: stop.clone(), tasks: tasks.clone() })
    }

    /// Whether these settings may be put in force at its listener, wherever its own ones would listen; else why not.
    pub fn suits(&self, auth: &AuthSettings) -> Result<(), String> {
        suits(self.local, auth)
    }

    /// Puts other settings in force, which suit it. Whoever could not enter any more, or would be somebody else, is told nothing from now
    /// on: its streams end.
    pub fn reload(&self, http: &HttpSettings, auth: &AuthSettings) {
        let before = self.rules.load_full();
        let auth = Auth::new(auth, &self.pace, &self.stop, &self.tasks, Some(&before.auth));
        self.rules.store(Arc::new(Rules { guard: Guard::new(http, self.local), auth }));
        before.auth.retire(&self.rules.load().auth);
    }
}

/// Whether a listener at this address may ask what these settings ask of who enters: nothing is for loopback alone.
pub fn suits(local: SocketAddr, auth: &AuthSettings) -> Result<(), String> {
    if auth.mode == AuthMode::None && !local.ip().is_loopback() {
        return Err(format!(
            "auth.mode = \"none\" would let in everybody who reaches {local}; it is for a listener on loopback only"
        ));
    }
    Ok(())
}

/// Where a path leads.
#[derive(Clone, Copy)]
enum Place {
    /// The endpoint of both eras.
    Mcp,
    /// The stream of HTTP+SSE.
    Sse,
    /// What hosts say there.
    Messages,
}

/// Who asks, and where.
#[derive(Clone)]
pub(super) struct Who {
    pub(super) principal: Principal,
    pub(super) profile: usize,
    /// For how long that is proven.
    pub(super) proof: Proof,
}

impl Who {
    /// Whether it is the same one at the same place.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.principal == other.principal && self.profile == other.profile
    }
}

impl Front {
    pub(super) fn new(
        limits: Limits,
        gateway: Arc<Current>,
        entrance: Arc<Entrance>,
        sse: bool,
        stop: CancellationToken,
        tasks: TaskTracker,
    ) -> Self {
        Self {
            gateway,
            entrance,
            sessions: Sessions::new(&limits),
            listens: Listens::default(),
            links: Links::default(),
            sse,
            bodies: Arc::new(Semaphore::new(limits.bodies / 1024)),
            answers: Arc::new(Semaphore::new(limits.answers / 1024)),
            stop,
            cut: CancellationToken::new(),
            tasks,
            limits,
        }
    }

    /// The profile that a path shows.
    fn profile(&self, path: &str) -> Option<usize> {
        match path {
            "" | "/" => Some(0),
            _ => {
                let name = path.strip_prefix('/')?;
                self.gateway.now().profile(name)
            }
        }
    }

    /// What a path leads to, and the rest of it.
    fn place<'a>(&self, path: &'a str) -> Option<(Place, &'a str)> {
        let below = |top: &str| path.strip_prefix(top).filter(|rest| rest.is_empty() || rest.starts_with('/'));
        if let Some(rest) = below("/mcp") {
            return Some((Place::Mcp, rest));
        }
        match path {
            "/messages" if self.sse => Some((Place::Messages, "")),
            _ if self.sse => Some((Place::Sse, below("/sse")?)),
            _ => None,
        }
    }
}

/// Serves a request. Dropped with its connection.
pub(super) async fn handle(
    front: Arc<Front>,
    pulse: Arc<Pulse>,
    request: Request<Incoming>,
) -> Result<Response<Reply>, Infallible> {
    let busy = pulse.begin();
    let http2 = request.version() == Version::HTTP_2;
    // Watched from when there is an answer to take, not before.
    let hold = |answer: Response<Reply>| {
        let taken = http2.then(|| pulse.answer());
        answer.map(|reply| reply.hold(busy, taken))
    };
    let (head, body) = request.into_parts();
    // HDR-5: the origin, then who it is; the body is not read before.
    let rules = front.entrance.rules.load_full();
    let origin = match rules.guard.check(&head) {
        Ok(origin) => origin,
        Err(why) => {
            tracing::debug!(why, "a request is refused");
            return Ok(hold(refusal(StatusCode::FORBIDDEN, None, &Failure::forbidden(why))));
        }
    };
    let mut answer = if head.method == Method::OPTIONS {
        preflight(&head.headers)
    } else {
        route(&front, &rules.auth, &head, body).await
    };
    // The next head is read into the map that this answer leaves: one that has the room is handed on.
    let mut headers = head.headers;
    headers.clear();
    headers.extend(std::mem::take(answer.headers_mut()));
    *answer.headers_mut() = headers;
    if let Some(origin) = origin {
        let headers = answer.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("Mcp-Session-Id, WWW-Authenticate"));
        headers.append(VARY, HeaderValue::from_static("Origin"));
    }
    Ok(hold(answer))
}

async fn route(front: &Arc<Front>, auth: &Auth, head: &http::request::Parts, body: Incoming) -> Response<Reply> {
    let path = head.uri.path();
    let Some((place, rest)) = front.place(path) else {
        // What tells how to enter is for those who cannot yet.
        return match auth.document(path) {
            Some(document) if head.method == Method::GET => document,
            Some(_) => only_get(),
            None => empty(StatusCode::NOT_FOUND),
        };
    };
    let entered = match auth.check(&head.headers).await {
        Ok(entered) => entered,
        Err(denial) => return auth.answer(&denial),
    };
    let Some(profile) = front.profile(rest) else { return empty(StatusCode::NOT_FOUND) };
    let who = Who { principal: entered.principal, profile, proof: entered.proof };
    match (place, &head.method) {
        (Place::Mcp, &Method::POST) => post::post(front, who, &head.headers, body).await,
        (Place::Mcp, &Method::GET) => legacy::get(front, &who, &head.headers),
        (Place::Mcp, &Method::DELETE) => legacy::delete(front, &who, &head.headers),
        (Place::Sse, &Method::GET) => sse::open(front, who, &head.headers),
        (Place::Messages, &Method::POST) => sse::post(front, &who, head, body).await,
        _ => not_allowed(),
    }
}

/// SES-8: also for what needs a session and has none.
pub(super) fn not_allowed() -> Response<Reply> {
    let mut answer = empty(StatusCode::METHOD_NOT_ALLOWED);
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static("POST, GET, DELETE, OPTIONS"));
    answer
}

fn only_get() -> Response<Reply> {
    let mut answer = empty(StatusCode::METHOD_NOT_ALLOWED);
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, OPTIONS"));
    answer
}

/// What a browser asks before it sends for a page; the guard has looked at the page's origin.
fn preflight(headers: &HeaderMap) -> Response<Reply> {
    const KNOWN: [&str; 5] = ["accept", "authorization", "content-type", "last-event-id", "traceparent"];
    let mut answer = empty(StatusCode::NO_CONTENT);
    let asked = headers.get(ACCESS_CONTROL_REQUEST_HEADERS).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let ours = |name: &&str| {
        let name = name.to_ascii_lowercase();
        KNOWN.contains(&name.as_str()) || name.starts_with("mcp-")
    };
    let granted: Vec<_> = asked.split(',').map(str::trim).filter(ours).collect();
    let headers = answer.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("POST, GET, DELETE, OPTIONS"));
    if let Ok(granted) = HeaderValue::from_str(&granted.join(", ")) {
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, granted);
    }
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    answer
}
