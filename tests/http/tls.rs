//! TLS, with certificates that change.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use onegate::config::settings::{HttpSettings, TlsSettings};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};

use super::front::{Front, Setup, run};

/// Writes a new certificate; answers it.
fn renew(folder: &Path) -> CertificateDer<'static> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(folder.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    std::fs::write(folder.join("cert.pem"), made.cert.pem()).unwrap();
    made.cert.der().clone()
}

async fn connect(
    front: &Front,
    trusted: &CertificateDer<'static>,
    alpn: &[&[u8]],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    let stream = TcpStream::connect(front.address).await?;
    TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("localhost").unwrap(), stream).await
}

async fn setup(folder: &Path) -> Front {
    let tls = Some(TlsSettings { cert: folder.join("cert.pem"), key: folder.join("key.pem") });
    let http = HttpSettings { tls, ..HttpSettings::default() };
    Front::with(Setup { http, ..Setup::default() }).await.0
}

#[test]
fn tls_is_spoken_in_both_versions_of_http() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let trusted = renew(folder.path());
        let front = setup(folder.path()).await;
        let mut stream = connect(&front, &trusted, &[]).await.unwrap();
        stream.write_all(b"GET /mcp HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 405");
        drop(stream);
        let stream = connect(&front, &trusted, &[b"h2", b"http/1.1"]).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let io = hyper_util::rt::TokioIo::new(stream);
        let executor = hyper_util::rt::TokioExecutor::new();
        let (mut sender, connection) = hyper::client::conn::http2::handshake(executor, io).await.unwrap();
        front.world.tasks.spawn(async move { drop(connection.await) });
        let request = hyper::Request::get("https://localhost/mcp").body(http_body_util::Empty::<bytes::Bytes>::new());
        assert_eq!(sender.send_request(request.unwrap()).await.unwrap().status(), 405);
        drop(sender);
        // Who speaks no TLS is heard no further.
        let mut plain = front.client().await;
        plain.send("GET", "/mcp", &[], b"").await;
        plain.closed().await;
        front.end().await;
    });
}

#[test]
fn a_changed_certificate_is_used_and_a_bad_one_is_not() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let old = renew(folder.path());
        let front = setup(folder.path()).await;
        connect(&front, &old, &[]).await.unwrap();
        let new = renew(folder.path());
        // The files are looked at once a second at most.
        while connect(&front, &new, &[]).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(connect(&front, &old, &[]).await.is_err());
        std::fs::write(folder.path().join("cert.pem"), "no certificate").unwrap();
        tokio::time::sleep(Duration::from_millis(1100)).await;
        connect(&front, &new, &[]).await.unwrap();
        connect(&front, &new, &[]).await.unwrap();
        front.end().await;
    });
}

#[test]
fn without_a_certificate_it_does_not_start() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("cert.pem"), "no certificate").unwrap();
        let missing = TlsSettings { cert: folder.path().join("cert.pem"), key: folder.path().join("key.pem") };
        let http = HttpSettings { tls: Some(missing), ..HttpSettings::default() };
        let world = super::world::World::new(Vec::new());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let auth = onegate::config::settings::AuthSettings::default();
        let local = listener.local_addr().unwrap();
        let pace = onegate::upstream::http::KeyPace::default();
        let entrance = onegate::upstream::http::Entrance::new((&http, &auth), local, pace, &world.stop, &world.tasks);
        let served = onegate::upstream::http::serve(
            onegate::upstream::http::Limits::default(),
            world.current.clone(),
            listener,
            &http,
            entrance,
            &world.stop,
            &world.tasks,
        );
        let error = served.await.unwrap_err().to_string();
        assert!(error.contains("cert.pem"), "{error}");
        world.end().await;
    });
}
