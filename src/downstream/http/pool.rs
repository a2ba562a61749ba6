//! Connections to one server: TCP or TLS, HTTP/1.1 kept alive or one HTTP/2 for all, where the server offers it.
//!
//! An HTTP/1.1 connection has no task of its own: whoever sends on it drives it, from the request's first byte to the
//! answer's last, so that an answer wakes its reader alone. Dropped in between, it is closed, which is how a modern
//! request is cancelled (§10.11). Knows nothing of what is sent. Nothing is shared between servers.
//!
//! Long, and one thing: both kinds of connection are opened, used, given back and closed under one lock.

use std::future::poll_fn;
use std::io;
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Request, Response, Uri, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{self, CertificateError, ClientConfig};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use url::Position;

use crate::transport::quiet::apart;

/// How long opening a connection may take.
const DIAL: Duration = Duration::from_secs(10);
/// A kept connection is closed when nobody used it for this long, or a second before the server would.
const IDLE: Duration = Duration::from_secs(30);
/// Kept connections, at most.
const MAX_IDLE: usize = 256;
/// Bytes of an answer that are read ahead, at most.
const READ_AHEAD: usize = 128 << 10;
/// Windows of HTTP/2: one answer, and all together.
const WINDOWS: (u32, u32) = (1 << 20, 8 << 20);
/// A silent HTTP/2 connection is asked whether it lives this often.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// What is sent.
type Out = Full<Bytes>;

/// How often a request is sent again that an HTTP/2 server did not take.
const TRIES: u32 = 3;

/// TLS towards servers, which may be verified by the certificates in a PEM file too.
pub(in crate::downstream) fn tls(more: Option<&Path>) -> Result<Arc<ClientConfig>, String> {
    crate::transport::tls::client(more, &[b"h2", b"http/1.1"])
}

/// Why nothing came back.
#[derive(Debug)]
pub(super) enum Lost {
    /// No connection could be opened; safe to show.
    Unreachable(String),
    /// It broke; whether the request was executed is unknown. Safe to show.
    Broken(String),
}

/// A plain or encrypted stream.
enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

macro_rules! on_stream {
    ($self:ident, $stream:ident => $do:expr) => {
        match $self.get_mut() {
            Stream::Plain(stream) => {
                let $stream = Pin::new(stream);
                $do
            }
            Stream::Tls(stream) => {
                let $stream = Pin::new(&mut **stream);
                $do
            }
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        on_stream!(self, stream => stream.poll_read(cx, buffer))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        on_stream!(self, stream => stream.poll_write(cx, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_stream!(self, stream => stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_stream!(self, stream => stream.poll_shutdown(cx))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        on_stream!(self, stream => stream.poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }
}

/// An HTTP/1.1 connection, driven by whoever has it.
struct Lane {
    send: http1::SendRequest<Out>,
    /// Nothing once it has ended: dropped, it gives back what was asked and not sent.
    drive: Option<http1::Connection<TokioIo<Stream>, Out>>,
    /// Until when it may be used again.
    good_until: Instant,
    /// How long after each use.
    keep: Duration,
}

impl Lane {
    fn drive(&mut self, cx: &mut Context<'_>) {
        // How it ended shows in what was asked on it.
        if self.drive.as_mut().is_some_and(|drive| Pin::new(drive).poll(cx).is_ready()) {
            self.drive = None;
        }
    }

    /// Whether a request can be sent on it. Nobody polls a kept connection: an end that came meanwhile shows here.
    fn is_ready(&mut self) -> bool {
        self.drive(&mut Context::from_waker(Waker::noop()));
        self.drive.is_some() && self.send.is_ready()
    }

    async fn ask(&mut self, request: Request<Out>) -> Result<Response<Incoming>, Refused> {
        let mut answer = pin!(self.send.try_send_request(request));
        let drive = &mut self.drive;
        // The answer is looked for after each drive, which alone can bring it: it wakes nobody.
        poll_fn(|cx| {
            let mut nobody = Context::from_waker(Waker::noop());
            if let Poll::Ready(done) = answer.as_mut().poll(&mut nobody) {
                return Poll::Ready(done);
            }
            if drive.as_mut().is_some_and(|drive| Pin::new(drive).poll(cx).is_ready()) {
                *drive = None;
            }
            answer.as_mut().poll(&mut nobody)
        })
        .await
        .map_err(|mut error| Refused { unsent: error.take_message().map(Box::new), why: error.into_error() })
    }
}

/// A connection that could not do it.
struct Refused {
    /// The request, when nothing of it was sent.
    unsent: Option<Box<Request<Out>>>,
    why: hyper::Error,
}

/// One HTTP/2 connection for all.
#[derive(Clone)]
struct Shared {
    /// Which of those that there were.
    number: u64,
    send: http2::SendRequest<Out>,
}

/// The connections to one server.
pub(super) struct Pool {
    host: String,
    port: u16,
    /// `scheme://host:port` as a request line over HTTP/2 names it.
    scheme: &'static str,
    authority: HeaderValue,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    kept: Mutex<Kept>,
    closed: CancellationToken,
    tasks: TaskTracker,
}

#[derive(Default)]
struct Kept {
    /// On the heap: they go in and out with each request.
    #[expect(clippy::vec_box, reason = "what moves with each request is a pointer")]
    idle: Vec<Box<Lane>>,
    shared: Option<Shared>,
    /// How many of those there were.
    shares: u64,
    /// Someone looks after the idle ones.
    tended: bool,
}

impl Pool {
    /// Connections to this URL's origin; `closed` ends what runs for them.
    pub(super) fn new(
        url: &url::Url,
        tls: Option<Arc<ClientConfig>>,
        closed: CancellationToken,
        tasks: TaskTracker,
    ) -> Result<Arc<Self>, String> {
        let host = match url.host() {
            Some(url::Host::Domain(name)) => name.to_owned(),
            Some(url::Host::Ipv4(address)) => address.to_string(),
            Some(url::Host::Ipv6(address)) => address.to_string(),
            None => return Err("its URL names no host".to_owned()),
        };
        let port = url.port_or_known_default().ok_or("its URL names no port")?;
        let authority = &url[Position::BeforeHost..Position::AfterPort];
        let authority = HeaderValue::from_str(authority).map_err(|_| "its URL has no host that can be sent")?;
        let tls = match tls {
            Some(config) => {
                let name = ServerName::try_from(host.clone()).map_err(|_| "its URL has no host to verify")?;
                Some((TlsConnector::from(config), name))
            }
            None => None,
        };
        let scheme = if tls.is_some() { "https" } else { "http" };
        Ok(Arc::new(Self { host, port, scheme, authority, tls, kept: Mutex::default(), closed, tasks }))
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How a request line or a header names the server.
    pub(super) fn authority(&self) -> &HeaderValue {
        &self.authority
    }

    /// Sends a request and waits for the head of the answer; `headers` name the host. A kept connection that turns out
    /// to be closed before anything was sent on it is no failure; nothing is sent twice but what an HTTP/2 server says
    /// that it did not take (CON-7).
    pub(super) async fn send(
        self: &Arc<Self>,
        method: http::Method,
        path: &PathAndQuery,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Answer, Lost> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = Uri::from(path.clone());
        *request.headers_mut() = headers;
        let mut tries = 0;
        loop {
            let (lane, shared) = {
                let mut kept = self.kept();
                kept.shared = kept.shared.take().filter(|shared| !shared.send.is_closed());
                let now = Instant::now();
                let lane = std::iter::from_fn(|| kept.idle.pop()).find(|lane| lane.good_until > now);
                (lane, kept.shared.clone())
            };
            if let Some(mut shared) = shared {
                // Another connection may speak HTTP/1.1.
                let again = request.clone();
                self.name_in_line(&mut request);
                let mut refused = match shared.send.try_send_request(request).await {
                    Ok(response) => return Ok(Answer { response, lane: None, pool: Arc::clone(self) }),
                    Err(refused) => refused,
                };
                let unsent = refused.take_message().is_some();
                let why = refused.into_error();
                let gone = unsent || is_farewell(&why);
                tries += 1;
                if !(gone || is_refusal(&why)) {
                    return Err(broken(&why));
                }
                if tries >= TRIES {
                    return Err(Lost::Unreachable(format!("it takes no requests: {why}")));
                }
                if gone {
                    let mut kept = self.kept();
                    kept.shared = kept.shared.take().filter(|current| current.number != shared.number);
                }
                request = again;
                continue;
            }
            let fresh = lane.is_none();
            let mut lane = match lane {
                Some(mut lane) => {
                    if !lane.is_ready() {
                        continue;
                    }
                    lane
                }
                // Rare and large: on the heap.
                None => match Box::pin(self.dial()).await? {
                    Some(lane) => lane,
                    // It is shared now.
                    None => continue,
                },
            };
            match lane.ask(request).await {
                Ok(response) => return Ok(Answer { response, lane: Some(lane), pool: Arc::clone(self) }),
                // One that was just opened tells how all others would end.
                Err(Refused { unsent: Some(_), why }) if fresh => {
                    return Err(Lost::Unreachable(format!("it closes connections at once: {why}")));
                }
                Err(Refused { unsent: Some(unsent), .. }) => request = *unsent,
                Err(Refused { why, .. }) => return Err(broken(&why)),
            }
        }
    }

    /// HTTP/2 names the server with the path instead of in a header.
    fn name_in_line(&self, request: &mut Request<Out>) {
        request.headers_mut().remove(header::HOST);
        let path = request.uri().path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        let uri = Uri::builder().scheme(self.scheme).authority(self.authority.as_bytes()).path_and_query(path);
        *request.uri_mut() = uri.build().unwrap_or_default();
        *request.version_mut() = http::Version::HTTP_2;
    }

    /// Opens a connection: a lane, or the shared one.
    async fn dial(self: &Arc<Self>) -> Result<Option<Box<Lane>>, Lost> {
        let opened = timeout(DIAL, self.open()).await;
        let unreachable = |why: &dyn std::fmt::Display| Lost::Unreachable(format!("it cannot be reached: {why}"));
        let stream = match opened {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(unreachable(&self.untrusted(&error).unwrap_or_else(|| error.to_string()))),
            Err(_) => return Err(unreachable(&format!("no connection within {} s", DIAL.as_secs()))),
        };
        let is_h2 = matches!(&stream, Stream::Tls(tls) if tls.get_ref().1.alpn_protocol() == Some(b"h2"));
        let io = TokioIo::new(stream);
        if is_h2 {
            let mut builder = http2::Builder::new(Spawner(self.tasks.clone(), self.closed.clone()));
            builder.timer(TokioTimer::new()).keep_alive_interval(KEEP_ALIVE).keep_alive_timeout(DIAL);
            builder.initial_stream_window_size(WINDOWS.0).initial_connection_window_size(WINDOWS.1);
            let (send, drive) = builder.handshake(io).await.map_err(|error| unreachable(&error))?;
            let closed = self.closed.clone();
            // How it ended shows in what was asked on it.
            self.tasks.spawn(async move { closed.run_until_cancelled(drive).await.is_some() });
            let mut kept = self.kept();
            kept.shares += 1;
            kept.shared = Some(Shared { number: kept.shares, send });
            return Ok(None);
        }
        let mut builder = http1::Builder::new();
        builder.max_buf_size(READ_AHEAD);
        let (send, drive) = builder.handshake(io).await.map_err(|error| unreachable(&error))?;
        Ok(Some(Box::new(Lane { send, drive: Some(drive), good_until: Instant::now(), keep: IDLE })))
    }

    async fn open(&self) -> io::Result<Stream> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        stream.set_nodelay(true)?;
        match &self.tls {
            None => Ok(Stream::Plain(stream)),
            Some((connector, name)) => Ok(Stream::Tls(Box::new(connector.connect(name.clone(), stream).await?))),
        }
    }

    /// What is wrong with its certificate, and what to do, when it is that.
    fn untrusted(&self, error: &io::Error) -> Option<String> {
        use CertificateError::{
            BadSignature, Expired, ExpiredContext, NotValidForName, NotValidForNameContext, NotValidYet,
            NotValidYetContext, UnknownIssuer,
        };
        let rustls::Error::InvalidCertificate(why) = error.get_ref()?.downcast_ref()? else { return None };
        Some(if matches!(why, UnknownIssuer | BadSignature) {
            "nobody who is trusted here signed its certificate; add the authority that did to the roots of this machine, \
             or name its PEM file in `ca` of this server"
                .to_owned()
        } else if matches!(why, Expired | ExpiredContext { .. }) {
            "its certificate has expired".to_owned()
        } else if matches!(why, NotValidYet | NotValidYetContext { .. }) {
            "its certificate is not valid yet, by the clock of this machine".to_owned()
        } else if matches!(why, NotValidForName | NotValidForNameContext { .. }) {
            format!("its certificate is not for {}", self.host)
        } else {
            format!("its certificate is not accepted: {why}")
        })
    }

    /// Does something, unless it is closed meanwhile.
    pub(super) async fn until_closed<F: Future>(&self, doing: F) -> Option<F::Output> {
        self.closed.run_until_cancelled(doing).await
    }

    /// Takes back a connection whose answer was read to its end.
    fn keep(self: &Arc<Self>, mut lane: Box<Lane>) {
        if self.closed.is_cancelled() || !lane.is_ready() {
            return;
        }
        lane.good_until = Instant::now() + lane.keep;
        let mut kept = self.kept();
        if kept.idle.len() >= MAX_IDLE {
            return;
        }
        kept.idle.push(lane);
        if !std::mem::replace(&mut kept.tended, true) {
            drop(kept);
            let pool = Arc::clone(self);
            self.tasks.spawn(async move { pool.closed.run_until_cancelled(pool.tend()).await });
        }
    }

    /// Closes what nobody used for long, and what the server closed, as long as anything is kept.
    async fn tend(&self) {
        loop {
            sleep(IDLE / 4).await;
            let now = Instant::now();
            let mut kept = self.kept();
            kept.idle.retain_mut(|lane| lane.good_until > now && lane.is_ready());
            if kept.idle.is_empty() {
                kept.tended = false;
                return;
            }
        }
    }

    /// Closes what is kept; what is in use ends with its user.
    pub(super) fn close(&self) {
        self.closed.cancel();
        let mut kept = self.kept();
        kept.idle.clear();
        kept.shared = None;
    }
}

fn broken(error: &hyper::Error) -> Lost {
    // What is below says what happened, for example that the connection was reset.
    let below = std::error::Error::source(error).map_or_else(String::new, |below| format!(": {below}"));
    Lost::Broken(format!("{error}{below}"))
}

fn reason_of(error: &hyper::Error) -> Option<&h2::Error> {
    std::error::Error::source(error)?.downcast_ref()
}

/// The server takes no more requests on this connection, and this one is among those that it did not take.
fn is_farewell(error: &hyper::Error) -> bool {
    reason_of(error).is_some_and(|reason| reason.is_go_away() && reason.is_remote())
}

/// The server did not take this one request.
fn is_refusal(error: &hyper::Error) -> bool {
    let refused = |reason: &h2::Error| reason.is_reset() && reason.reason() == Some(h2::Reason::REFUSED_STREAM);
    reason_of(error).is_some_and(|reason| refused(reason) && reason.is_remote())
}

/// The tasks of HTTP/2 belong to the tracker.
#[derive(Clone)]
struct Spawner(TaskTracker, CancellationToken);

impl<F> hyper::rt::Executor<F> for Spawner
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        let closed = self.1.clone();
        self.0.spawn(async move { closed.run_until_cancelled(future).await });
    }
}

/// An answer whose body is still to be read.
pub(super) struct Answer {
    response: Response<Incoming>,
    lane: Option<Box<Lane>>,
    pool: Arc<Pool>,
}

impl Answer {
    pub(super) fn status(&self) -> http::StatusCode {
        self.response.status()
    }

    pub(super) fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// The length of what is left of the body, where it was announced.
    pub(super) fn announced(&self) -> Option<u64> {
        self.response.body().size_hint().exact()
    }

    /// The next piece of the body; `None` at its end, after which the connection serves others.
    pub(super) async fn chunk(&mut self) -> Result<Option<Bytes>, Lost> {
        loop {
            let body = self.response.body_mut();
            let frame = match &mut self.lane {
                None => body.frame().await,
                Some(lane) => {
                    // What is taken wakes the drive, which is polled before the next piece is waited for.
                    poll_fn(|cx| {
                        let mut nobody = Context::from_waker(Waker::noop());
                        let mut take = || apart(|| Pin::new(&mut *body).poll_frame(&mut nobody)).0;
                        if let Poll::Ready(frame) = take() {
                            return Poll::Ready(frame);
                        }
                        lane.drive(cx);
                        take()
                    })
                    .await
                }
            };
            match frame {
                Some(Ok(frame)) => {
                    // Trailers say nothing to us.
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
                Some(Err(error)) => return Err(broken(&error)),
                None => {
                    self.give_back();
                    return Ok(None);
                }
            }
        }
    }

    /// Reads to the end what is left, when that comes without waiting.
    pub(super) fn is_over(&mut self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        while !self.is_read() {
            match pin!(self.chunk()).poll(&mut context) {
                Poll::Ready(Ok(Some(_))) => {}
                Poll::Ready(Ok(None) | Err(_)) => return true,
                Poll::Pending => return false,
            }
        }
        self.give_back();
        true
    }

    /// Whether nothing is left of the body.
    pub(super) fn is_read(&self) -> bool {
        self.response.body().is_end_stream()
    }

    /// The body was read to its end: the connection serves others.
    pub(super) fn give_back(&mut self) {
        let Some(mut lane) = self.lane.take() else { return };
        let keep = self.headers().get("keep-alive").and_then(|value| hinted(value.to_str().ok()?));
        lane.keep = keep.map_or(IDLE, |hint| hint.saturating_sub(Duration::from_secs(1)).min(IDLE));
        self.pool.keep(lane);
    }
}

/// For how long a server says that it keeps a quiet connection.
fn hinted(value: &str) -> Option<Duration> {
    let seconds = value.split(',').find_map(|part| part.trim().strip_prefix("timeout="))?;
    seconds.trim().parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_of_the_server_is_read() {
        assert_eq!(hinted("timeout=5, max=100"), Some(Duration::from_secs(5)));
        assert_eq!(hinted("max=100,timeout=72"), Some(Duration::from_secs(72)));
        assert_eq!(hinted("max=100"), None);
        assert_eq!(hinted("timeout=x"), None);
    }
}
