//! Servers behind `https`: whom we trust, which HTTP is spoken, and what a connection that serves many costs when it
//! ends.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use onegate::config::settings::{Reach, ServerSettings};
use onegate::gateway::State;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Barrier, watch};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;
use tokio_rustls::rustls::{ServerConfig, pki_types::PrivateKeyDer};
use tokio_rustls::server::TlsStream;
use tokio_util::task::TaskTracker;

use super::end::{list_of, text, text_of};
use super::fake::discovered;
use super::world::{World, answer, host, server};

/// An authority of a house.
struct House {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl House {
    fn new() -> Self {
        Self::named("the house")
    }

    fn named(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// A certificate for a name, changed by the test.
    fn sign(&self, name: &str, change: impl FnOnce(&mut CertificateParams), alpn: &[&[u8]]) -> TlsAcceptor {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        TlsAcceptor::from(Arc::new(config))
    }

    fn localhost(&self, alpn: &[&[u8]]) -> TlsAcceptor {
        self.sign("localhost", |_| {}, alpn)
    }

    /// A server at this port that trusts it.
    fn trusted_by(&self, folder: &Path, port: u16) -> ServerSettings {
        let file = folder.join("ca.pem");
        std::fs::write(&file, &self.pem).unwrap();
        let mut settings = server(&format!("https://localhost:{port}/mcp"));
        let Ok(Reach::Remote(remote)) = &mut settings.reach else { unreachable!() };
        remote.ca = Some(file);
        settings
    }
}

/// What a modern server with a tool `t` says; calls are answered by the test's function, with their arguments.
async fn serve<F: Future<Output = Value>>(
    request: Request<Incoming>,
    call: impl FnOnce(Value) -> F,
) -> Response<Full<Bytes>> {
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let result = match body["method"].as_str().unwrap_or_default() {
        "server/discover" => discovered(json!({"tools": {}})),
        "tools/list" => list_of(&["t"]),
        "tools/call" => call(body["params"]["arguments"].clone()).await,
        _ => return Response::builder().status(400).body(Full::default()).unwrap(),
    };
    let answer = json!({"jsonrpc": "2.0", "id": body["id"], "result": result}).to_string();
    Response::builder().header("content-type", "application/json").body(Full::from(answer)).unwrap()
}

/// Serves a connection by what was agreed on, until its client goes or `stop` changes; it is over when the client has
/// seen that it is. `under` is the socket below the stream.
async fn connection<F: Future<Output = Value> + Send + 'static>(
    stream: TlsStream<TcpStream>,
    mut under: TcpStream,
    call: impl Fn(Value) -> F + Clone + Send + 'static,
    mut stop: watch::Receiver<u32>,
) {
    // What was said before it came is not for it.
    stop.borrow_and_update();
    let is_h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let service = service_fn(move |request| {
        let call = call.clone();
        async move { Ok::<_, std::convert::Infallible>(serve(request, call).await) }
    });
    let io = TokioIo::new(stream);
    let stopped = async move { drop(stop.changed().await) };
    if is_h2 {
        let serving = hyper::server::conn::http2::Builder::new(TokioExecutor::new()).serve_connection(io, service);
        tokio::select! { _ = serving => {}, () = stopped => {} }
    } else {
        let serving = hyper::server::conn::http1::Builder::new().serve_connection(io, service);
        tokio::select! { _ = serving => {}, () = stopped => {} }
    }
    drop(under.shutdown().await);
    while matches!(under.read(&mut [0; 1024]).await, Ok(1..)) {}
}

/// The connections that a server took.
#[derive(Default)]
struct Taken {
    count: AtomicUsize,
    open: TaskTracker,
}

impl Taken {
    fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// None is open any more, and its client knows.
    async fn ended(&self) {
        self.open.close();
        timeout(Duration::from_secs(20), self.open.wait()).await.expect("a connection did not end");
        self.open.reopen();
    }
}

/// Takes connections for a server.
fn listen<F: Future<Output = Value> + Send + 'static>(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    call: impl Fn(Value) -> F + Clone + Send + 'static,
    stop: watch::Receiver<u32>,
    tasks: &TaskTracker,
) -> Arc<Taken> {
    let taken = Arc::new(Taken::default());
    let counted = Arc::clone(&taken);
    tasks.spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let socket = socket.into_std().unwrap();
            let under = TcpStream::from_std(socket.try_clone().unwrap()).unwrap();
            let Ok(stream) = acceptor.accept(TcpStream::from_std(socket).unwrap()).await else { continue };
            counted.count.fetch_add(1, Ordering::SeqCst);
            counted.open.spawn(connection(stream, under, call.clone(), stop.clone()));
        }
    });
    taken
}

async fn bound() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

async fn echo(arguments: Value) -> Value {
    text(&arguments["n"].to_string())
}

async fn call(host: &mut super::end::End, id: u32) {
    host.ask(id, "tools/call", json!({"name": "a__t", "arguments": {"n": id}})).await;
}

#[tokio::test]
async fn tls_a_connection_of_http2_serves_many_calls_at_once() {
    let (house, folder, tasks) = (House::new(), tempfile::tempdir().unwrap(), TaskTracker::new());
    let (listener, port) = bound().await;
    // None is answered before all are there.
    let all = Arc::new(Barrier::new(20));
    let together = move |arguments| {
        let all = Arc::clone(&all);
        async move {
            all.wait().await;
            echo(arguments).await
        }
    };
    let (_running, stop) = watch::channel(0);
    let taken = listen(listener, house.localhost(&[b"h2", b"http/1.1"]), together, stop, &tasks);
    let world = World::new(house.trusted_by(folder.path(), port));
    let mut host = host(&world).await;
    let before = taken.count();
    for id in 0..20 {
        call(&mut host, id).await;
    }
    for _ in 0..20 {
        let message = timeout(Duration::from_secs(20), host.next()).await.unwrap().unwrap();
        assert_eq!(text_of(&message), message["id"].to_string());
    }
    assert_eq!(taken.count(), before, "no connection was opened for them");
    world.end().await;
}

#[tokio::test]
async fn tls_http1_is_spoken_where_nothing_else_is_offered() {
    for alpn in [&[&b"http/1.1"[..]][..], &[]] {
        let (house, folder, tasks) = (House::new(), tempfile::tempdir().unwrap(), TaskTracker::new());
        let (listener, port) = bound().await;
        let (_running, stop) = watch::channel(0);
        listen(listener, house.localhost(alpn), echo, stop, &tasks);
        let world = World::new(house.trusted_by(folder.path(), port));
        let mut host = host(&world).await;
        call(&mut host, 7).await;
        assert_eq!(text_of(&answer(&mut host, 7).await), "7");
        world.end().await;
    }
}

/// What goes wrong in the handshake, as the operator gets to know it.
async fn refused(acceptor: TlsAcceptor, settings: impl FnOnce(u16) -> ServerSettings) -> String {
    let tasks = TaskTracker::new();
    let (listener, port) = bound().await;
    let (_running, stop) = watch::channel(0);
    let taken = listen(listener, acceptor, echo, stop, &tasks);
    let world = World::new(settings(port));
    let mut state = world.gateway.servers().next().unwrap().state();
    let failed = state.wait_for(|state| matches!(state, State::Waiting { .. }));
    timeout(Duration::from_secs(20), failed).await.unwrap().unwrap();
    let error = world.gateway.servers().next().unwrap().last_error().unwrap();
    assert_eq!(taken.count(), 0, "it went on after that");
    world.end().await;
    error
}

#[tokio::test]
async fn tls_who_is_not_trusted_gets_no_word_of_ours_and_the_operator_is_told_what_to_do() {
    let (house, other, folder) = (House::new(), House::named("another"), tempfile::tempdir().unwrap());
    let trusting = |port| house.trusted_by(folder.path(), port);
    let both: &[&[u8]] = &[b"h2", b"http/1.1"];
    // Also one that bears the same name.
    for other in [&other, &House::new()] {
        let error = refused(other.localhost(both), trusting).await;
        let told = error.contains("nobody who is trusted here signed its certificate") && error.contains("`ca`");
        assert!(told, "{error}");
    }
    // The authority of the house is nobody's to whom it was not named.
    let error = refused(house.localhost(both), |port| server(&format!("https://localhost:{port}/mcp"))).await;
    assert!(error.contains("certificate"), "{error}");
    let error = refused(house.sign("other.test", |_| {}, both), trusting).await;
    assert!(error.contains("its certificate is not for localhost"), "{error}");
    let past = |params: &mut CertificateParams| {
        (params.not_before, params.not_after) = (date_time_ymd(2019, 1, 1), date_time_ymd(2020, 1, 1));
    };
    let error = refused(house.sign("localhost", past, both), trusting).await;
    assert!(error.contains("its certificate has expired"), "{error}");
    let future = |params: &mut CertificateParams| {
        (params.not_before, params.not_after) = (date_time_ymd(2999, 1, 1), date_time_ymd(3000, 1, 1));
    };
    let error = refused(house.sign("localhost", future, both), trusting).await;
    assert!(error.contains("not valid yet"), "{error}");
    for broken in ["", "no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        let error = refused(house.localhost(both), |port| {
            let settings = house.trusted_by(folder.path(), port);
            std::fs::write(folder.path().join("ca.pem"), broken).unwrap();
            settings
        });
        let error = error.await;
        assert!(error.contains("certificate") || error.contains("`ca`"), "{broken:?}: {error}");
    }
}

/// A connection that ends between two calls costs neither of them anything but a new one.
#[tokio::test]
async fn tls_a_connection_that_ended_between_calls_is_opened_again() {
    for alpn in [&b"h2"[..], b"http/1.1"] {
        let (house, folder, tasks) = (House::new(), tempfile::tempdir().unwrap(), TaskTracker::new());
        let (listener, port) = bound().await;
        let (end, stop) = watch::channel(0);
        let taken = listen(listener, house.localhost(&[alpn]), echo, stop, &tasks);
        let world = World::new(house.trusted_by(folder.path(), port));
        let mut host = host(&world).await;
        for id in 0..3 {
            let before = taken.count();
            end.send(id).unwrap();
            taken.ended().await;
            call(&mut host, id).await;
            assert_eq!(text_of(&answer(&mut host, id).await), id.to_string());
            assert_eq!(taken.count(), before + 1, "{id}");
        }
        world.end().await;
    }
}

const PREFACE: usize = 24;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;

/// A server of HTTP/2 that is written by hand, as far as a request that it does not take needs that.
struct Raw(TlsStream<TcpStream>);

impl Raw {
    async fn accept(listener: &TcpListener, acceptor: &TlsAcceptor) -> Self {
        let (socket, _) = listener.accept().await.unwrap();
        let mut stream = acceptor.accept(socket).await.unwrap();
        stream.read_exact(&mut [0; PREFACE]).await.unwrap();
        let mut raw = Self(stream);
        raw.frame(SETTINGS, 0, &[]).await;
        raw
    }

    async fn frame(&mut self, kind: u8, stream: u32, payload: &[u8]) {
        let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
        frame.extend_from_slice(&[kind, 0]);
        frame.extend_from_slice(&stream.to_be_bytes());
        frame.extend_from_slice(payload);
        self.0.write_all(&frame).await.unwrap();
        self.0.flush().await.unwrap();
    }

    /// The stream of the next request; `None` when the client has gone.
    async fn request(&mut self) -> Option<u32> {
        loop {
            let mut head = [0; 9];
            self.0.read_exact(&mut head).await.ok()?;
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            self.0.read_exact(&mut vec![0; length]).await.ok()?;
            if head[3] == HEADERS {
                return Some(u32::from_be_bytes([head[5], head[6], head[7], head[8]]));
            }
        }
    }

    /// It takes no request after the one of this stream.
    async fn farewell(&mut self, last: u32) {
        self.frame(GOAWAY, 0, &[&last.to_be_bytes()[..], &[0; 4]].concat()).await;
    }
}

/// CON-7: what an HTTP/2 server says that it did not take is sent again; what it may have done is not.
#[tokio::test]
async fn con7_a_request_that_http2_gave_back_is_sent_again_and_no_other() {
    for case in ["farewell", "refused", "farewell after it", "reset", "gone"] {
        let (house, folder, tasks) = (House::new(), tempfile::tempdir().unwrap(), TaskTracker::new());
        let (listener, port) = bound().await;
        let acceptor = house.localhost(&[b"h2"]);
        let world = World::new(ServerSettings {
            era: onegate::config::settings::EraChoice::Modern,
            ..house.trusted_by(folder.path(), port)
        });
        // The first words are what is given back, or not: what holds for them holds for calls.
        let mut raw = Raw::accept(&listener, &acceptor).await;
        let stream = raw.request().await.unwrap();
        match case {
            "farewell" => raw.farewell(0).await,
            "farewell after it" => raw.farewell(stream).await,
            "refused" => raw.frame(RST_STREAM, stream, &7u32.to_be_bytes()).await,
            // INTERNAL_ERROR: it may have begun with it.
            "reset" => raw.frame(RST_STREAM, stream, &2u32.to_be_bytes()).await,
            _ => {}
        }
        match case {
            "refused" => {
                // On the same connection, which is well; in the end it gives up.
                assert!(raw.request().await.unwrap() > stream);
            }
            "farewell" => {
                let (_running, stop) = watch::channel(0);
                listen(listener, acceptor, echo, stop, &tasks);
                let mut host = timeout(Duration::from_secs(20), host(&world)).await.unwrap();
                call(&mut host, 1).await;
                assert_eq!(text_of(&answer(&mut host, 1).await), "1");
            }
            _ => {
                // A connection that is well could take it once more, as a new one could.
                let mut raw = (case == "reset").then_some(raw);
                let on_this = async {
                    match &mut raw {
                        Some(raw) => raw.request().await,
                        None => None,
                    }
                };
                let mut state = world.gateway.servers().next().unwrap().state();
                let failed = state.wait_for(|state| matches!(state, State::Waiting { .. }));
                tokio::select! {
                    biased;
                    _ = listener.accept() => panic!("{case}: sent again, on another connection"),
                    Some(_) = on_this => panic!("{case}: sent again"),
                    failed = timeout(Duration::from_secs(20), failed) => drop(failed.unwrap().unwrap()),
                }
            }
        }
        world.end().await;
    }
}

/// The roots of the machine may be named by the environment, as everywhere.
#[tokio::test]
async fn tls_ssl_cert_file_names_the_roots() {
    let (house, folder, tasks) = (House::new(), tempfile::tempdir().unwrap(), TaskTracker::new());
    let (listener, port) = bound().await;
    let (_running, stop) = watch::channel(0);
    listen(listener, house.localhost(&[b"h2", b"http/1.1"]), echo, stop, &tasks);
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("roots.pem"), &house.pem).unwrap();
    let config = |more: &str| {
        format!("[gateway]\nstate = \"state\"\n[servers.a]\nurl = \"https://localhost:{port}/mcp\"\n{more}")
    };
    std::fs::write(path("plain.toml"), config("")).unwrap();
    std::fs::write(path("named.toml"), config("ca = \"roots.pem\"\n")).unwrap();
    std::fs::write(path("empty.pem"), &House::new().pem).unwrap();
    #[expect(clippy::disallowed_methods, reason = "starts the product itself")]
    let command = || tokio::process::Command::new(env!("CARGO_BIN_EXE_onegate"));
    for (file, roots, works) in [("plain", "roots", true), ("plain", "empty", false), ("named", "empty", true)] {
        let mut run = command();
        run.args(["call", "a__t", r#"{"n":5}"#, "--config"]).arg(path(&format!("{file}.toml")));
        run.env("SSL_CERT_FILE", path(&format!("{roots}.pem"))).env_remove("SSL_CERT_DIR").kill_on_drop(true);
        let ended = timeout(Duration::from_secs(60), run.output()).await.unwrap().unwrap();
        let said = format!("{}{}", String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
        assert_eq!(ended.status.success(), works, "{file} {roots}: {said}");
        assert_eq!(String::from_utf8_lossy(&ended.stdout).trim(), if works { "5" } else { "" }, "{said}");
    }
}
