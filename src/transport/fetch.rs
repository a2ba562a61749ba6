//! The guarded fetcher: how a small document is read from an address that is no server of the configuration (I-14), and
//! how one is sent there.
//!
//! One request, one connection, no redirect followed, bounded in size and time. What the operator wrote may lead into the
//! own network; what others wrote leads to public addresses by https alone, and it is the addresses that a connection is
//! opened to that are looked at, so that a name cannot mean one thing first and another thing then. Knows nothing of what
//! the documents are. Used by `upstream::http` for the keys of identity providers, by `telemetry::otlp` for what a
//! collector gets.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, HOST, USER_AGENT};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Body as _;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use url::{Host, Position, Url};

/// Addresses of one name that are tried, at most.
const MAX_ADDRESSES: usize = 8;

/// Who wrote an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// The operator: any host, `http` on loopback too.
    Operator,
    /// The operator, for what is sent there; of what is answered nothing is believed. Any host, `http` too.
    Sink,
    /// Somebody else: public addresses by `https`.
    Stranger,
}

/// Why there is no document; safe to show.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// It is not asked for.
    #[error("the address is not taken: {0}")]
    Refused(&'static str),
    /// Nobody answered.
    #[error("it cannot be reached: {0}")]
    Unreachable(String),
    /// It took too long.
    #[error("nothing came within {} ms", .0.as_millis())]
    Late(Duration),
    /// Another status than 200; redirects are not followed.
    #[error("it was answered with status {0}")]
    Status(u16),
    /// The document is too large.
    #[error("the document is larger than {0} bytes")]
    Large(usize),
    /// The connection broke.
    #[error("the answer broke off: {0}")]
    Broken(String),
}

/// Reads documents.
#[derive(Debug)]
pub struct Fetcher {
    size: usize,
    time: Duration,
    /// Made when it is needed first: it reads the machine's roots.
    tls: OnceLock<Result<Arc<ClientConfig>, String>>,
}

impl Fetcher {
    /// One that reads documents up to this size, each within this time.
    pub fn new(size: usize, time: Duration) -> Self {
        Self { size, time, tls: OnceLock::new() }
    }

    /// Reads the document at this address.
    pub async fn get(&self, url: &Url, trust: Trust) -> Result<Bytes, FetchError> {
        let mut request = Request::new(Full::default());
        request.headers_mut().insert(ACCEPT, HeaderValue::from_static("application/json"));
        let answer = self.send(url, trust, request).await?;
        if answer.status() == StatusCode::OK {
            Ok(answer.into_body())
        } else {
            Err(FetchError::Status(answer.status().as_u16()))
        }
    }

    /// Sends a request to this address, with its method, headers and body, and reads what is answered, whatever its status.
    pub async fn send(
        &self,
        url: &Url,
        trust: Trust,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Bytes>, FetchError> {
        timeout(self.time, self.send_whole(url, trust, request)).await.unwrap_or(Err(FetchError::Late(self.time)))
    }

    async fn send_whole(
        &self,
        url: &Url,
        trust: Trust,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Bytes>, FetchError> {
        let plain = may_be_asked(url, trust).map_err(FetchError::Refused)?;
        let (Some(host), Some(port)) = (url.host(), url.port_or_known_default()) else {
            return Err(FetchError::Refused("it names no host"));
        };
        let unreachable = |error: io::Error| FetchError::Unreachable(error.to_string());
        let addresses: Vec<SocketAddr> = match host {
            Host::Ipv4(ip) => vec![(ip, port).into()],
            Host::Ipv6(ip) => vec![(ip, port).into()],
            Host::Domain(name) => lookup_host((name, port)).await.map_err(unreachable)?.collect(),
        };
        let fits = |address: &&SocketAddr| match trust {
            Trust::Stranger => is_public(address.ip()),
            // Without TLS nothing else proves that it is this machine.
            Trust::Operator => !plain || address.ip().is_loopback(),
            Trust::Sink => true,
        };
        let mut last = FetchError::Refused("it leads to no public address");
        for address in addresses.iter().filter(fits).take(MAX_ADDRESSES) {
            let connecting = timeout(self.time / 3, TcpStream::connect(address)).await;
            match connecting.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
                Ok(stream) if plain => return self.exchange(url, stream, request).await,
                Ok(stream) => {
                    let tls = self.tls.get_or_init(|| crate::transport::tls::client(None, &[b"http/1.1"]));
                    let tls = tls.clone().map_err(FetchError::Unreachable)?;
                    let name = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
                    let name =
                        ServerName::try_from(name).map_err(|_| FetchError::Refused("its host cannot be verified"))?;
                    let stream = TlsConnector::from(tls).connect(name, stream).await.map_err(unreachable)?;
                    return self.exchange(url, stream, request).await;
                }
                Err(error) => last = unreachable(error),
            }
        }
        Err(last)
    }

    async fn exchange(
        &self,
        url: &Url,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Response<Bytes>, FetchError> {
        let broken = |error: hyper::Error| FetchError::Broken(error.to_string());
        let (mut send, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        let ask = async {
            let authority = &url[Position::BeforeHost..Position::AfterPort];
            let path = &url[Position::BeforePath..Position::AfterQuery];
            *request.uri_mut() = path.parse().map_err(|_| FetchError::Refused("its path cannot be sent"))?;
            let host = HeaderValue::from_str(authority).map_err(|_| FetchError::Refused("its host cannot be sent"))?;
            let headers = request.headers_mut();
            headers.insert(HOST, host);
            headers.insert(USER_AGENT, HeaderValue::from_static(concat!("onegate/", env!("CARGO_PKG_VERSION"))));
            let answer = send.send_request(request).await.map_err(broken)?;
            let (head, mut body) = answer.into_parts();
            if body.size_hint().lower() > self.size as u64 {
                return Err(FetchError::Large(self.size));
            }
            let mut whole = BytesMut::new();
            while let Some(frame) = body.frame().await {
                let Ok(data) = frame.map_err(broken)?.into_data() else { continue };
                if whole.len() + data.len() > self.size {
                    return Err(FetchError::Large(self.size));
                }
                whole.extend_from_slice(&data);
            }
            Ok(Response::from_parts(head, whole.freeze()))
        };
        let drive = async {
            // How it ended shows in what was asked on it.
            let _ = connection.await;
            std::future::pending::<Infallible>().await
        };
        let (mut ask, mut drive) = (pin!(ask), pin!(drive));
        tokio::select! {
            biased;
            answer = &mut ask => answer,
            never = &mut drive => match never {},
        }
    }
}

/// Whether an address is asked at all: without TLS (`true`), with it, or why not.
fn may_be_asked(url: &Url, trust: Trust) -> Result<bool, &'static str> {
    if !url.username().is_empty() || url.password().is_some() {
        return Err("it holds a user or a password");
    }
    match (url.scheme(), trust) {
        ("https", _) => Ok(false),
        ("http", Trust::Sink) => Ok(true),
        ("http", Trust::Operator) if is_loopback(url) => Ok(true),
        ("http", Trust::Operator) => Err("`http` is for this machine alone; it must begin with `https`"),
        _ => Err("it must begin with `https`"),
    }
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    }
}

/// Whether an address is one of the public network: no loopback, no private or shared range, no link's own, none that
/// means an address of version 4 in other words, none for documents, tests or many at once.
pub fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_public_v4(ip),
        IpAddr::V6(ip) => is_public_v6(ip),
    }
}

fn is_public_v4(ip: Ipv4Addr) -> bool {
    let [a, b, c, _] = ip.octets();
    !matches!(
        (a, b, c),
        (0 | 10 | 127 | 224.., ..)
            | (100, 64..128, _)
            | (169, 254, _)
            | (172, 16..32, _)
            | (192, 0, 0 | 2)
            | (192, 88, 99)
            | (192, 168, _)
            | (198, 18 | 19, _)
            | (198, 51, 100)
            | (203, 0, 113)
    )
}

fn is_public_v6(ip: Ipv6Addr) -> bool {
    let [a, b, ..] = ip.segments();
    // Only these were given out; of them 2001::/23 (Teredo and others), 2001:db8::/32 and 3fff::/20 (documents) and
    // 2002::/16 (6to4) are not public. Mapped, compatible and NAT64 forms lie outside.
    (0x2000..0x4000).contains(&a)
        && !(a == 0x2001 && b < 0x200)
        && !(a == 0x2001 && b == 0xdb8)
        && !(a == 0x3fff && b < 0x1000)
        && a != 0x2002
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i14_only_public_addresses_are_public() {
        for good in [
            "1.1.1.1",
            "100.63.0.1",
            "100.128.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "223.255.255.254",
            "2606:4700::1",
            "2a00::1",
            "2001:4860:4860::8888",
        ] {
            assert!(is_public(good.parse().unwrap()), "{good}");
        }
        for bad in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.9.9.9",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.0.1",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:8.8.8.8",
            "::7f00:1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "100::1",
            "fe80::1",
            "fec0::1",
            "fc00::1",
            "fd12::1",
            "ff02::1",
            "2001::1",
            "2001:20::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "3fff::1",
            "5f00::1",
        ] {
            assert!(!is_public(bad.parse().unwrap()), "{bad}");
        }
    }

    #[test]
    fn i14_who_wrote_an_address_decides_what_it_may_be() {
        let asked = |url: &str, trust| may_be_asked(&Url::parse(url).unwrap(), trust).ok();
        assert_eq!(asked("https://idp.example/jwks", Trust::Stranger), Some(false));
        assert_eq!(asked("https://10.0.0.1/jwks", Trust::Operator), Some(false));
        assert_eq!(asked("http://127.0.0.1:1/", Trust::Operator), Some(true));
        assert_eq!(asked("http://localhost/", Trust::Operator), Some(true));
        assert_eq!(asked("http://collector.example/v1/traces", Trust::Sink), Some(true));
        for (url, trust) in [
            ("http://127.0.0.1:1/", Trust::Stranger),
            ("http://idp.example/", Trust::Operator),
            ("https://me@idp.example/", Trust::Operator),
            ("https://me@collector.example/", Trust::Sink),
            ("https://me:pw@idp.example/", Trust::Stranger),
            ("file:///etc/passwd", Trust::Operator),
            ("ftp://idp.example/", Trust::Stranger),
        ] {
            assert_eq!(asked(url, trust), None, "{url}");
        }
    }

    #[tokio::test]
    async fn i14_hostile_addresses_are_not_connected_to() {
        let fetcher = Fetcher::new(1000, Duration::from_secs(5));
        for url in [
            "https://127.0.0.1:9/",
            "https://localhost:9/",
            "https://[::1]:9/",
            "https://0x7f.1:9/",
            "https://2130706433:9/",
            "https://[::ffff:127.0.0.1]:9/",
            "https://169.254.169.254/latest",
        ] {
            let error = fetcher.get(&Url::parse(url).unwrap(), Trust::Stranger).await.unwrap_err();
            assert!(matches!(error, FetchError::Refused(_)), "{url}: {error}");
        }
    }
}
