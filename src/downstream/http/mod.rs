//! Servers behind a URL: Streamable HTTP in both eras, and HTTP+SSE of 2024-11-05.
//!
//! A request is its own exchange: whoever waits for its answer sends it and reads what comes ([`exchange`]); nothing
//! stands between. What is not asked for comes on a stream of a legacy session ([`stream`]). Headers are made from
//! scratch, for this server alone (I-12). Knows no host, and of messages only what [`super::receive`] knows.

mod exchange;
mod pool;
mod stream;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::rustls::ClientConfig;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use url::Url;

use super::Fault;
use super::process::Pace;
use crate::config::settings::Remote;
use crate::protocol::headers::encode_name;
use crate::protocol::json;
use crate::protocol::method::Method;
use crate::protocol::version::{Era, Revision};
use crate::shown::shown_str;
pub(super) use exchange::{Ask, exchange};
pub(super) use pool::tls;
use pool::{Answer, Lost, Pool};
pub(super) use stream::{follow, open_sse};

const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");
const EITHER: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");

/// Redirects of one request that are followed, at most (I-13).
const HOPS: usize = 3;
/// Notifications and answers of ours on their way, at most.
const MAX_NOTES: usize = 64;
/// How long the server may take to accept one.
const NOTE: Duration = Duration::from_secs(10);

/// What headers of a modern request repeat of its body (HDR-2).
#[derive(Default)]
pub(super) struct Repeated<'a> {
    /// The native name or URI, a raw JSON string, where the method has one.
    pub(super) name: Option<&'a [u8]>,
    /// The parameters that the tool's schema names.
    pub(super) params: Vec<(HeaderName, HeaderValue)>,
}

/// What the headers of a message to the server depend on; they are made when it is sent.
pub(super) struct Head {
    revision: Revision,
    method: Option<Method>,
    /// Encoded, where a modern server is to see it.
    name: Option<HeaderValue>,
    params: Vec<(HeaderName, HeaderValue)>,
}

impl Head {
    /// `revision` is what was agreed on, once it is; the method is none for an answer of ours.
    pub(super) fn new(revision: Revision, method: Option<Method>, repeated: Repeated<'_>) -> Self {
        let revision = if method == Some(Method::Discover) { Revision::LATEST_MODERN } else { revision };
        let name = repeated.name.filter(|_| revision.era() == Era::Modern);
        let name = name.and_then(json::text_of).map(|name| encode_name(&name));
        Self { revision, method, name, params: repeated.params }
    }
}

/// The way to one server.
pub(super) struct Http {
    url: Url,
    path: PathAndQuery,
    /// On every request with a body.
    base: HeaderMap,
    /// What most calls have beside their name and length: copied, it costs less than to be made.
    call: HeaderMap,
    pool: Arc<Pool>,
    /// What the server calls our legacy session.
    session: OnceLock<HeaderValue>,
    /// Where messages go in the transport of 2024-11-05; set when that is what is spoken.
    endpoint: OnceLock<PathAndQuery>,
    /// That transport is configured.
    pub(super) only_sse: bool,
    /// It refused `initialize` as one does that only knows that transport (PRB-7).
    may_be_sse: AtomicBool,
    /// Largest answer, in bytes.
    limit: u64,
    notes: Arc<Semaphore>,
    tasks: TaskTracker,
}

impl Http {
    /// A way to this server; what runs for it belongs to `tasks`. An error is safe to show.
    pub(super) fn new(
        remote: &Remote,
        limit: u64,
        tls: Option<Arc<ClientConfig>>,
        tasks: &TaskTracker,
    ) -> Result<Arc<Self>, String> {
        let pool = Pool::new(&remote.url, tls, CancellationToken::new(), tasks.clone())?;
        let ours = [
            (header::HOST, pool.authority().clone()),
            (header::ACCEPT, EITHER),
            (header::CONTENT_TYPE, JSON),
            (header::ACCEPT_ENCODING, HeaderValue::from_static("identity")),
            (header::USER_AGENT, HeaderValue::from_static(concat!("onegate/", env!("CARGO_PKG_VERSION")))),
        ];
        let mut base = HeaderMap::from_iter(ours);
        for (name, value) in &remote.headers {
            let mut value = HeaderValue::from_str(value.reveal())
                .map_err(|_| format!("the value of its header {name} cannot be sent as one"))?;
            value.set_sensitive(true);
            // Those of the operator replace ours.
            base.insert(name, value);
        }
        let mut call = base.clone();
        for (name, value) in [
            (VERSION, Revision::LATEST_MODERN.as_str()),
            (METHOD, Method::ToolsCall.as_str()),
            // Seats.
            (NAME, ""),
            (header::CONTENT_LENGTH, ""),
        ] {
            call.insert(name, HeaderValue::from_static(value));
        }
        let path = &remote.url[url::Position::BeforePath..url::Position::AfterQuery];
        let path = PathAndQuery::try_from(path).map_err(|_| "the path of its URL cannot be sent")?;
        Ok(Arc::new(Self {
            url: remote.url.clone(),
            path,
            base,
            call,
            pool,
            session: OnceLock::new(),
            endpoint: OnceLock::new(),
            only_sse: remote.sse,
            may_be_sse: AtomicBool::new(false),
            limit,
            notes: Arc::new(Semaphore::new(MAX_NOTES)),
            tasks: tasks.clone(),
        }))
    }

    /// Whether the transport of 2024-11-05 is to be tried (PRB-7).
    pub(super) fn may_be_sse(&self) -> bool {
        self.may_be_sse.swap(false, Ordering::Relaxed) && self.endpoint.get().is_none()
    }

    /// Whether a session of this revision has a stream beside those of its requests.
    pub(super) fn has_stream(&self, revision: Revision) -> bool {
        revision.era() == Era::Legacy && !self.is_sse()
    }

    fn is_sse(&self) -> bool {
        self.endpoint.get().is_some()
    }

    fn headers(&self, head: &Head, size: usize) -> HeaderMap {
        if let (Revision::LATEST_MODERN, Some(Method::ToolsCall), Some(name)) = (head.revision, head.method, &head.name)
        {
            let mut headers = self.call.clone();
            headers.insert(NAME, name.clone());
            headers.insert(header::CONTENT_LENGTH, size.into());
            headers.extend(head.params.iter().cloned());
            return headers;
        }
        let mut headers = self.base.clone();
        match (head.revision.era(), head.method) {
            (_, Some(Method::Initialize)) => {}
            (Era::Modern, method) => {
                headers.insert(VERSION, HeaderValue::from_static(head.revision.as_str()));
                if let Some(method) = method {
                    headers.insert(METHOD, HeaderValue::from_static(method.as_str()));
                }
                if let Some(name) = &head.name {
                    headers.insert(NAME, name.clone());
                }
                headers.extend(head.params.iter().cloned());
            }
            (Era::Legacy, _) => self.of_session(&mut headers, head.revision),
        }
        headers
    }

    /// Whether it is sent in a legacy session.
    fn is_in_session(&self, head: &Head) -> bool {
        head.revision.era() == Era::Legacy && head.method != Some(Method::Initialize) && self.session.get().is_some()
    }

    fn of_session(&self, headers: &mut HeaderMap, revision: Revision) {
        if revision >= Revision::V2025_06_18 {
            headers.insert(VERSION, HeaderValue::from_static(revision.as_str()));
        }
        if let Some(session) = self.session.get() {
            headers.insert(SESSION, session.clone());
        }
    }

    /// The headers of a request without a body.
    fn bare_headers(&self, revision: Revision) -> HeaderMap {
        let mut headers = self.base.clone();
        headers.remove(header::CONTENT_TYPE);
        headers.insert(header::ACCEPT, EVENTS);
        self.of_session(&mut headers, revision);
        headers
    }

    /// Sends a message, following redirects within the origin (I-13, D081).
    async fn post(&self, head: &Head, body: Bytes) -> Result<Answer, NotSent> {
        let path = self.endpoint.get().unwrap_or(&self.path);
        let answer = self.pool.send(http::Method::POST, path, self.headers(head, body.len()), body.clone()).await?;
        if !answer.status().is_redirection() {
            return Ok(answer);
        }
        Box::pin(self.redirected(answer, path.clone(), head, body)).await
    }

    async fn redirected(
        &self,
        mut answer: Answer,
        mut path: PathAndQuery,
        head: &Head,
        body: Bytes,
    ) -> Result<Answer, NotSent> {
        for _ in 0..HOPS {
            path = self.target(&answer, &path).map_err(NotSent::Redirect)?;
            // Its connection serves the next hop, when its body is there already.
            answer.is_over();
            answer = self.pool.send(http::Method::POST, &path, self.headers(head, body.len()), body.clone()).await?;
            if !answer.status().is_redirection() {
                return Ok(answer);
            }
        }
        Err(NotSent::Redirect(format!("it redirects more than {HOPS} times")))
    }

    /// Where a redirect leads; only to the same origin, and only in the ways that keep method and body.
    fn target(&self, answer: &Answer, from: &PathAndQuery) -> Result<PathAndQuery, String> {
        let status = answer.status();
        let base = self.url.join(from.as_str()).map_err(|_| "it redirects from nowhere")?;
        let location = answer.headers().get(header::LOCATION).and_then(|location| location.to_str().ok());
        let target = location.and_then(|location| base.join(location).ok());
        let target = target.ok_or_else(|| format!("it answered {status} without saying where to"))?;
        if target.origin() != self.url.origin() {
            let origin = target.origin().ascii_serialization();
            return Err(format!("it redirects to another origin, {}, which is not followed", shown_str(&origin)));
        }
        if !matches!(status.as_u16(), 307 | 308) {
            return Err(format!("it answered {status}; only 307 and 308 keep a message whole and are followed"));
        }
        same_origin_path(&self.url, &target).ok_or_else(|| "it redirects to what cannot be sent".to_owned())
    }

    /// Sends a notification or an answer of ours, and sees it accepted (D082).
    pub(super) async fn tell(&self, head: &Head, body: Bytes) -> Result<(), Fault> {
        let sent = async {
            let mut answer = self.post(head, body).await?;
            let status = answer.status();
            answer.is_over();
            Ok::<_, NotSent>(status)
        };
        match timeout(NOTE, sent).await {
            Ok(Ok(status)) if status.is_success() => Ok(()),
            Ok(Ok(status)) => Err(Fault::Invalid(format!("it answered a notification with {status}"))),
            Ok(Err(not_sent)) => Err(not_sent.fault()),
            Err(_) => Err(Fault::Timeout(NOTE)),
        }
    }

    /// The same by itself. Beyond the bound it is dropped: nothing of ours that is no request must arrive.
    pub(super) fn tell_soon(self: &Arc<Self>, head: Head, body: Bytes) {
        let Ok(place) = Arc::clone(&self.notes).try_acquire_owned() else {
            tracing::debug!("too many notifications to a server are on their way; dropped");
            return;
        };
        let http = Arc::clone(self);
        self.tasks.spawn(async move {
            // What the server does not take soon must not keep us when we stop.
            if let Some(Err(fault)) = http.pool.until_closed(http.tell(&head, body)).await {
                tracing::debug!(%fault, "a notification did not arrive");
            }
            drop(place);
        });
    }

    /// Whether too many of them are on their way.
    pub(super) fn is_full(&self) -> bool {
        self.notes.available_permits() == 0
    }

    /// Ends a legacy session as servers are asked to (D083), then the connections.
    pub(super) async fn finish(&self, revision: Revision, pace: Pace, delete: bool) {
        if delete && self.session.get().is_some() && !self.is_sse() {
            let headers = self.bare_headers(revision);
            let deleted = self.pool.send(http::Method::DELETE, &self.path, headers, Bytes::new());
            // Not being able to costs the server a session that it will forget.
            let _ = timeout(pace.input.min(Duration::from_secs(2)), deleted).await;
        }
        self.pool.close();
    }
}

/// Why a message did not arrive, or did and brought nothing.
enum NotSent {
    Lost(Lost),
    /// Where to, safe to show.
    Redirect(String),
}

impl From<Lost> for NotSent {
    fn from(lost: Lost) -> Self {
        Self::Lost(lost)
    }
}

impl NotSent {
    fn is_unreachable(&self) -> bool {
        matches!(self, Self::Lost(Lost::Unreachable(_)))
    }

    fn fault(self) -> Fault {
        match self {
            Self::Lost(Lost::Unreachable(why)) | Self::Redirect(why) => Fault::gone(&why),
            Self::Lost(Lost::Broken(why)) => Fault::gone(&format!("the connection was lost before an answer: {why}")),
        }
    }
}

/// The path of a URL, when its origin is this one's (SSE-1).
fn same_origin_path(url: &Url, target: &Url) -> Option<PathAndQuery> {
    if target.origin() != url.origin() {
        return None;
    }
    PathAndQuery::try_from(&target[url::Position::BeforePath..url::Position::AfterQuery]).ok()
}

/// Whether a content type is this one; parameters and case do not matter.
fn is_type(headers: &HeaderMap, wanted: &HeaderValue) -> bool {
    let given = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    let given = given.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii();
    given.eq_ignore_ascii_case(wanted.as_bytes())
}

/// What a body is compressed with, when it is.
fn compression(headers: &HeaderMap) -> Option<String> {
    let encoding = headers.get(header::CONTENT_ENCODING)?;
    let plain = encoding.as_bytes().eq_ignore_ascii_case(b"identity") || encoding.is_empty();
    (!plain).then(|| shown_str(&String::from_utf8_lossy(encoding.as_bytes())))
}
