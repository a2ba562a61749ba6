//! Where operators look at a running gateway: a socket for its owner, and, where configured, an address for other programs
//! (contract §5).
//!
//! Both speak HTTP and change nothing: `/healthz`, `/readyz`, `/metrics`; on the socket `/status` and `/logs/<server>` too.
//! A gateway that cannot open them says so and goes on. Knows what is shown only as far as `gateway::status` tells.
//! Called by the fronts of `daemon`; [`ask`] by the commands.

use std::convert::Infallible;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::socket::{self, Socket};
use crate::config::settings::{AdminSettings, HttpSettings};
use crate::gateway::{Current, Status};
use crate::telemetry::metrics;
use crate::upstream::http::Guard;

/// Connections at once.
const CONNECTIONS: usize = 16;
/// How long a connection may last.
const LASTS: Duration = Duration::from_secs(30);
/// How long a gateway may take to answer a command.
const PATIENCE: Duration = Duration::from_secs(5);
/// Largest answer that a command takes.
const MAX_ANSWER: usize = 16 << 20;
/// Lines of stderr in an answer, at most and by default.
const MAX_LINES: usize = 1000;
const LINES: usize = 50;
/// Sockets of others that are looked at.
const MAX_SOCKETS: usize = 256;

/// What a gateway tells of itself.
#[derive(Serialize)]
struct Told<'a> {
    /// Its process.
    pid: u32,
    /// Its version.
    version: &'static str,
    /// `run` or `serve`.
    front: &'static str,
    /// Where hosts reach it.
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<&'a str>,
    /// Since when it runs.
    uptime_ms: u64,
    /// Whether each server had its chance to list.
    ready: bool,
    /// Why the configuration as it is now is not in force: then an older one is.
    #[serde(skip_serializing_if = "Option::is_none")]
    config_fault: Option<String>,
    #[serde(flatten)]
    status: Status,
}

/// Who is looked at.
pub(super) struct Subject {
    pub(super) gateway: Arc<Current>,
    /// `run` or `serve`.
    pub(super) front: &'static str,
    /// Where hosts reach it.
    pub(super) address: Option<String>,
    /// Why the last configuration is not in force.
    pub(super) fault: Arc<ArcSwapOption<String>>,
}

struct Admin {
    subject: Subject,
    began: Instant,
}

/// Opens what is configured, and serves it until `stop`. What cannot be opened is said, and no more.
pub(super) fn open(
    (settings, http): (&AdminSettings, &HttpSettings),
    subject: Subject,
    stop: &CancellationToken,
    tasks: &TaskTracker,
) {
    let admin = Arc::new(Admin { subject, began: Instant::now() });
    match socket(settings) {
        Ok(Some((listener, socket))) => {
            let (admin, stop) = (Arc::clone(&admin), stop.clone());
            tasks.spawn(async move {
                let _socket = socket;
                admin.accept(Listener::Owner(listener), stop).await;
            });
        }
        Ok(None) => {}
        Err(error) => tracing::warn!("`onegate status` will not find this gateway: {error}"),
    }
    if let Some(address) = settings.listen {
        let (stop, http) = (stop.clone(), http.clone());
        tasks.spawn(async move {
            match TcpListener::bind(address).await {
                Ok(listener) => {
                    let guard = Guard::new(&http, address);
                    admin.accept(Listener::Programs(listener, Arc::new(guard)), stop).await;
                }
                Err(error) => tracing::warn!("nothing is served at admin.listen = {address}: {error}"),
            }
        });
    }
}

/// The one that is configured, or, where another gateway lives there, one for this process alone.
fn socket(settings: &AdminSettings) -> io::Result<Option<(UnixListener, Socket)>> {
    if let Some(path) = &settings.socket {
        match Socket::bind(path) {
            Ok(opened) => return Ok(Some(opened)),
            Err(error) => tracing::warn!("admin.socket = {}: {error}", path.display()),
        }
    }
    let Some(folder) = &settings.folder else { return Ok(None) };
    socket::folder(folder)?;
    Socket::bind(&folder.join(format!("{}.sock", std::process::id()))).map(Some)
}

/// All sockets that gateways of this user and configuration may have.
fn sockets(settings: &AdminSettings) -> Vec<PathBuf> {
    let folder = settings.folder.as_ref().and_then(|folder| fs::read_dir(folder).ok());
    let named = folder.into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found: Vec<_> = named.filter(|path| path.extension().is_some_and(|end| end == "sock")).collect();
    found.extend(settings.socket.iter().filter(|path| path.exists()).cloned());
    found.sort();
    found.dedup();
    found.truncate(MAX_SOCKETS);
    found
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Who is listened to.
enum Listener {
    /// The owner of this process, and root.
    Owner(UnixListener),
    /// Whoever reaches an address, for what tells nothing of what servers said.
    Programs(TcpListener, Arc<Guard>),
}

impl Listener {
    async fn next(&self) -> io::Result<Box<dyn Stream>> {
        match self {
            Self::Owner(listener) => Ok(Box::new(socket::accept(listener).await?)),
            Self::Programs(listener, _) => Ok(Box::new(listener.accept().await?.0)),
        }
    }
}

impl Admin {
    async fn accept(self: Arc<Self>, listener: Listener, stop: CancellationToken) {
        let listener = Arc::new(listener);
        // Of its own: whoever crowds one of them keeps nobody from the other.
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        let connections = TaskTracker::new();
        let serving = async {
            loop {
                // The semaphore is never closed.
                let place = Arc::clone(&places).acquire_owned().await.ok();
                let stream = match listener.next().await {
                    Ok(stream) => stream,
                    Err(error) => {
                        // Of one connection, or for want of descriptors: it passes.
                        tracing::debug!(%error, "an admin connection cannot be accepted");
                        sleep(Duration::from_millis(50)).await;
                        continue;
                    }
                };
                let (admin, listener) = (Arc::clone(&self), Arc::clone(&listener));
                let connection = async move {
                    let _place = place;
                    let service =
                        service_fn(|request| std::future::ready(Ok::<_, Infallible>(admin.answer(&listener, request))));
                    let serving = http1::Builder::new()
                        .timer(TokioTimer::new())
                        .header_read_timeout(PATIENCE)
                        .max_buf_size(16 << 10)
                        .serve_connection(TokioIo::new(stream), service);
                    let _ = timeout(LASTS, serving).await;
                };
                let stop = stop.clone();
                connections.spawn(async move { stop.run_until_cancelled(connection).await });
            }
        };
        stop.run_until_cancelled(serving).await;
        connections.close();
        connections.wait().await;
    }

    fn answer(&self, listener: &Listener, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (head, _) = request.into_parts();
        // Whoever looks whether we live names us by any address; a page of another site says where it comes from.
        let health =
            matches!(head.uri.path(), "/healthz" | "/readyz") && !head.headers.contains_key(http::header::ORIGIN);
        if let Listener::Programs(_, guard) = listener
            && !health
            && let Err(why) = guard.check(&head)
        {
            return text(StatusCode::FORBIDDEN, why);
        }
        if head.method != Method::GET && head.method != Method::HEAD {
            return text(StatusCode::METHOD_NOT_ALLOWED, "GET only");
        }
        let gateway = self.subject.gateway.now();
        match (head.uri.path(), listener) {
            ("/healthz", _) => text(StatusCode::OK, "alive"),
            ("/readyz", _) => match (gateway.is_settled(), gateway.missing()) {
                (true, missing) if missing.is_empty() => text(StatusCode::OK, "ready"),
                (false, _) => text(StatusCode::SERVICE_UNAVAILABLE, "not every server has listed yet"),
                (true, missing) => {
                    let why = format!("required servers are down: {}", missing.join(", "));
                    text(StatusCode::SERVICE_UNAVAILABLE, &why)
                }
            },
            ("/metrics", _) => body(StatusCode::OK, metrics::CONTENT_TYPE, gateway.numbers()),
            ("/status", Listener::Owner(_)) => json(&self.told()),
            (path, Listener::Owner(_)) if path.starts_with("/logs/") => {
                let key = path.trim_start_matches("/logs/");
                let wanted = head.uri.query().and_then(|query| query.strip_prefix("lines="));
                let count = wanted.and_then(|count| count.parse().ok()).unwrap_or(LINES).min(MAX_LINES);
                match gateway.servers().find(|server| server.key().as_str() == key) {
                    Some(server) => {
                        json(&serde_json::json!({ "pid": std::process::id(), "lines": server.last_lines(count) }))
                    }
                    None => text(StatusCode::NOT_FOUND, "there is no such server"),
                }
            }
            _ => text(StatusCode::NOT_FOUND, "there is nothing"),
        }
    }

    fn told(&self) -> Told<'_> {
        let gateway = self.subject.gateway.now();
        Told {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION"),
            front: self.subject.front,
            address: self.subject.address.as_deref(),
            uptime_ms: u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX),
            ready: gateway.is_settled(),
            config_fault: self.subject.fault.load_full().map(|fault| fault.to_string()),
            status: gateway.status(),
        }
    }
}

fn body(status: StatusCode, kind: &'static str, content: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(content.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(kind));
    response.headers_mut().insert(CACHE_CONTROL, http::HeaderValue::from_static("no-store"));
    response
}

fn text(status: StatusCode, line: &str) -> Response<Full<Bytes>> {
    body(status, "text/plain; charset=utf-8", format!("{line}\n"))
}

fn json(content: &impl Serialize) -> Response<Full<Bytes>> {
    let content = serde_json::to_string(content).expect("invariant: what we tell has text keys and finite numbers");
    body(StatusCode::OK, "application/json", content)
}

/// Asks every running gateway that can be found; those that give no such answer are left out.
pub async fn ask(settings: &AdminSettings, path: &str) -> Vec<Bytes> {
    let mut answers = Vec::new();
    for socket in sockets(settings) {
        match timeout(PATIENCE, ask_one(&socket, path)).await {
            Ok(Ok(Some(answer))) => answers.push(answer),
            Ok(Ok(None)) => {}
            Ok(Err(error)) => tracing::debug!("{}: {error}", socket.display()),
            Err(_) => tracing::warn!("{}: no answer within {} s", socket.display(), PATIENCE.as_secs()),
        }
    }
    answers
}

async fn ask_one(at: &Path, path: &str) -> io::Result<Option<Bytes>> {
    let stream = socket::connect(at).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    let request = Request::get(path).header(http::header::HOST, "localhost").body(Empty::<Bytes>::new());
    let asking = async {
        let response = sender.send_request(request.map_err(io::Error::other)?).await.map_err(io::Error::other)?;
        if response.status() != StatusCode::OK {
            return Ok(None);
        }
        let whole = Limited::new(response.into_body(), MAX_ANSWER).collect().await.map_err(io::Error::other)?;
        Ok(Some(whole.to_bytes()))
    };
    tokio::pin!(asking);
    tokio::select! {
        answer = &mut asking => answer,
        ended = connection => {
            ended.map_err(io::Error::other)?;
            asking.await
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn settings(folder: &Path, socket: Option<PathBuf>) -> AdminSettings {
        AdminSettings { socket, folder: Some(folder.join("run")), listen: None, attach: false }
    }

    #[tokio::test]
    async fn a_stale_socket_is_replaced_and_a_live_one_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.sock");
        let settings = settings(folder.path(), Some(path.clone()));
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let (_listener, first) = socket(&settings).unwrap().unwrap();
        assert_eq!(first.path, path);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        // The second gets one of its own, in a folder that is its owner's alone.
        let (_other, second) = socket(&settings).unwrap().unwrap();
        assert_ne!(second.path, path);
        assert_eq!(fs::metadata(second.path.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(sockets(&settings).len(), 2);
        drop((first, second));
        assert!(sockets(&settings).is_empty());
    }

    #[tokio::test]
    async fn what_is_no_socket_is_not_taken_away_and_another_ones_neither() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("precious");
        fs::write(&path, "x").unwrap();
        let settings = settings(folder.path(), Some(path.clone()));
        let (_listener, own) = socket(&settings).unwrap().unwrap();
        assert_ne!(own.path, path);
        assert_eq!(fs::read(&path).unwrap(), b"x");
        fs::remove_file(&own.path).unwrap();
        let theirs = std::os::unix::net::UnixListener::bind(&own.path).unwrap();
        let path = own.path.clone();
        drop(own);
        assert!(path.exists());
        drop(theirs);
    }
}
