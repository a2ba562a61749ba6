//! An identity provider on loopback: makes keys and tokens, and serves what it is told to, as it is told to.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use data_encoding::BASE64URL_NOPAD;
use onegate::config::settings::{JwtSettings, KeySource};
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::TaskTracker;

pub(crate) const AUDIENCE: &str = "https://gateway.example/mcp";

fn b64(bytes: impl AsRef<[u8]>) -> String {
    BASE64URL_NOPAD.encode(bytes.as_ref())
}

/// A key that signs.
pub(crate) struct Signer {
    pair: Ed25519KeyPair,
    kid: String,
}

impl Signer {
    pub(crate) fn new(kid: &str) -> Self {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Self { pair: Ed25519KeyPair::from_pkcs8(document.as_ref()).unwrap(), kid: kid.to_owned() }
    }

    pub(crate) fn jwk(&self) -> Value {
        let x = b64(self.pair.public_key());
        json!({"kty": "OKP", "crv": "Ed25519", "use": "sig", "alg": "EdDSA", "kid": self.kid, "x": x})
    }

    pub(crate) fn sign(&self, header: &Value, claims: &Value) -> String {
        let message = format!("{}.{}", b64(header.to_string()), b64(claims.to_string()));
        format!("{message}.{}", b64(self.pair.sign(message.as_bytes())))
    }

    /// `Bearer` and a token with these claims.
    pub(crate) fn bearer(&self, claims: &Value) -> String {
        let header = json!({"alg": "EdDSA", "typ": "at+jwt", "kid": self.kid});
        format!("Bearer {}", self.sign(&header, claims))
    }
}

/// Seconds since 1970, so many from now.
pub(crate) fn from_now(seconds: i64) -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    i64::try_from(now.as_secs()).unwrap() + seconds
}

/// How a document is served.
#[derive(Clone)]
pub(crate) enum Served {
    Json(String),
    Status(u16),
    /// Nothing ever comes.
    Never,
    /// So many bytes, of which the head says nothing.
    Bytes(usize),
}

#[derive(Default)]
struct Script {
    documents: HashMap<String, Served>,
    asked: HashMap<String, usize>,
}

/// The provider.
#[derive(Clone)]
pub(crate) struct Idp {
    pub(crate) address: SocketAddr,
    script: Arc<Mutex<Script>>,
}

impl Idp {
    /// One whose keys at `/jwks` are these; it ends with the runtime.
    pub(crate) async fn with(signers: &[&Signer]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let idp = Self { address: listener.local_addr().unwrap(), script: Arc::default() };
        idp.keys(signers);
        let serving = idp.clone();
        let tasks = TaskTracker::new();
        tasks.clone().spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let idp = serving.clone();
                tasks.spawn(async move { idp.serve(stream).await });
            }
        });
        idp
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn set(&self, path: &str, served: Served) {
        self.script.lock().unwrap().documents.insert(path.to_owned(), served);
    }

    /// Serves these keys from now on.
    pub(crate) fn keys(&self, signers: &[&Signer]) {
        let keys: Vec<_> = signers.iter().map(|signer| signer.jwk()).collect();
        self.set("/jwks", Served::Json(json!({"keys": keys}).to_string()));
    }

    /// How often a path was asked for.
    pub(crate) fn asked(&self, path: &str) -> usize {
        self.script.lock().unwrap().asked.get(path).copied().unwrap_or_default()
    }

    /// What a gateway trusts that knows its keys' address.
    pub(crate) fn settings(&self) -> JwtSettings {
        JwtSettings {
            issuer: self.url(""),
            audience: AUDIENCE.into(),
            resource: AUDIENCE.parse().unwrap(),
            keys: KeySource::Url(self.url("/jwks").parse().unwrap()),
            groups_claim: "groups".into(),
            scopes: Vec::new(),
        }
    }

    /// Good claims of this user, changed by these.
    pub(crate) fn claims(&self, user: &str, changes: Value) -> Value {
        let mut claims = json!({"iss": self.url(""), "aud": AUDIENCE, "sub": user, "exp": from_now(300)});
        for (name, value) in changes.as_object().unwrap() {
            claims[name] = value.clone();
        }
        claims
    }

    async fn serve(&self, mut stream: TcpStream) {
        let mut head = Vec::new();
        while memchr::memmem::find(&head, b"\r\n\r\n").is_none() {
            if stream.read_buf(&mut head).await.is_ok_and(|count| count == 0) {
                return;
            }
        }
        let text = String::from_utf8(head).unwrap();
        let path = text.split(' ').nth(1).unwrap().to_owned();
        assert!(text.starts_with("GET ") && text.to_ascii_lowercase().contains("\r\nhost: 127.0.0.1"), "{text}");
        let served = {
            let mut script = self.script.lock().unwrap();
            *script.asked.entry(path.clone()).or_default() += 1;
            script.documents.get(&path).cloned().unwrap_or(Served::Status(404))
        };
        let answer = match served {
            Served::Json(text) => format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len()),
            Served::Status(status) => {
                format!("HTTP/1.1 {status} X\r\nLocation: {}\r\nContent-Length: 0\r\n\r\n", self.url("/jwks"))
            }
            Served::Never => std::future::pending().await,
            Served::Bytes(count) => format!("HTTP/1.1 200 OK\r\n\r\n{}", " ".repeat(count)),
        };
        // The gateway may have heard enough.
        let _ = stream.write_all(answer.as_bytes()).await;
        let _ = stream.shutdown().await;
    }
}

/// A pace for tests: pauses that are over soon, tries that are given up soon.
pub(crate) fn quick() -> onegate::upstream::http::KeyPace {
    onegate::upstream::http::KeyPace {
        fresh: Duration::from_secs(600),
        pause: Duration::from_millis(100),
        time: Duration::from_millis(500),
        kept: Duration::from_secs(600),
    }
}
