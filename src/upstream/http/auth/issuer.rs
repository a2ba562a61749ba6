//! The keys of an issuer, fetched in the background and kept: newer ones when they are due or when a token names one that
//! is not there, the last good ones when nothing comes.
//!
//! One task fetches, so that there is never more than one fetch, and a pause between two; whoever waits for it waits for
//! the same. Where the keys are says the configuration, or the issuer's own metadata (RFC 8414, OpenID Connect discovery).
//! The issuer was written by the operator; where it says that its keys are on another host, that host must be a public one
//! (I-14). Knows no token.

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use url::Url;

use super::keyset::KeySet;
use crate::config::settings::{JwtSettings, KeySource};
use crate::protocol::json;
use crate::transport::fetch::{Fetcher, Trust};
use crate::upstream::http::KeyPace;

/// Largest document of an issuer.
const LARGEST: usize = 256 << 10;

/// What is known of the keys.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// The newest that were got.
    pub(super) keys: Option<Arc<KeySet>>,
    /// How often they were asked for, and when last.
    tries: u64,
    tried: Option<Instant>,
}

/// The keys of one issuer.
pub(super) struct Issuer {
    known: watch::Receiver<Known>,
    wanted: Arc<Notify>,
    pace: KeyPace,
}

impl Issuer {
    /// Fetches from now on, until we leave.
    pub(super) fn follow(
        settings: &JwtSettings,
        pace: &KeyPace,
        stop: &CancellationToken,
        tasks: &TaskTracker,
    ) -> Self {
        let (tell, known) = watch::channel(Known::default());
        let wanted = Arc::new(Notify::new());
        let source = Source {
            issuer: settings.issuer.clone(),
            keys: settings.keys.clone(),
            fetcher: Fetcher::new(LARGEST, pace.time),
        };
        let (stop, due, pace) = (stop.clone(), Arc::clone(&wanted), pace.clone());
        let issuer = Self { known, wanted, pace: pace.clone() };
        tasks.spawn(async move { stop.run_until_cancelled(follow(&source, &pace, &tell, &due)).await.is_some() });
        issuer
    }

    /// What is known now; at the beginning, what the first try gives.
    pub(super) async fn known(&self) -> Known {
        let known = self.known.borrow().clone();
        match known.tries {
            0 => self.after(&known).await,
            _ => known,
        }
    }

    /// What is known after another try, unless the last one was just now: then that is all there is.
    pub(super) async fn newer(&self, known: &Known) -> Known {
        self.wanted.notify_one();
        if known.tried.is_some_and(|tried| tried.elapsed() < self.pace.pause) {
            return self.known.borrow().clone();
        }
        self.after(known).await
    }

    async fn after(&self, known: &Known) -> Known {
        let mut news = self.known.clone();
        // It ends by itself, late or not.
        let _ = timeout(self.pace.time * 2, news.wait_for(|now| now.tries > known.tries)).await;
        self.known.borrow().clone()
    }

    /// After which time it may be worth asking again.
    pub(super) fn pause(&self) -> Duration {
        self.pace.pause
    }
}

async fn follow(source: &Source, pace: &KeyPace, tell: &watch::Sender<Known>, wanted: &Notify) {
    let mut last = Bytes::new();
    let mut good: Option<Instant> = None;
    loop {
        let got = timeout(pace.time, source.get()).await.unwrap_or_else(|_| Err("it takes too long".to_owned()));
        let read = got.and_then(|text| {
            // The same text is the same keys: what was checked by them need not be checked again.
            let new = if text == last { None } else { Some(Arc::new(KeySet::read(&text)?)) };
            last = text;
            Ok(new)
        });
        let now = Instant::now();
        let mut forget = false;
        match &read {
            Ok(_) => good = Some(now),
            Err(why) => {
                forget = good.is_some_and(|good| now.duration_since(good) >= pace.kept);
                tracing::warn!(issuer = %source.issuer, "its keys cannot be had: {why}");
            }
        }
        if forget {
            last = Bytes::new();
        }
        let worked = read.is_ok();
        tell.send_modify(|known| {
            known.tries += 1;
            known.tried = Some(now);
            match read {
                Ok(Some(new)) => known.keys = Some(new),
                Err(_) if forget => known.keys = None,
                Ok(None) | Err(_) => {}
            }
        });
        sleep(pace.pause).await;
        let rest = if worked { pace.fresh } else { pace.pause * 5 };
        let _ = timeout(rest, wanted.notified()).await;
    }
}

struct Source {
    issuer: String,
    keys: KeySource,
    fetcher: Fetcher,
}

impl Source {
    async fn get(&self) -> Result<Bytes, String> {
        match &self.keys {
            KeySource::File(file) => read(file).map_err(|error| format!("{}: {error}", file.display())),
            KeySource::Url(url) => self.fetch(url, Trust::Operator).await,
            KeySource::Discovered => {
                let (url, trust) = self.discover().await?;
                self.fetch(&url, trust).await
            }
        }
    }

    async fn fetch(&self, url: &Url, trust: Trust) -> Result<Bytes, String> {
        // A query may hold a secret.
        let shown = || format!("{}{}", url.host_str().unwrap_or_default(), url.path());
        self.fetcher.get(url, trust).await.map_err(|error| format!("{}: {error}", shown()))
    }

    /// Where the issuer says that its keys are (AUC-2).
    async fn discover(&self) -> Result<(Url, Trust), String> {
        let mut why = String::new();
        for url in metadata_urls(&self.issuer) {
            let text = match self.fetch(&url, Trust::Operator).await {
                Ok(text) => text,
                Err(error) => {
                    why = error;
                    continue;
                }
            };
            let named = keys_of(&text, &self.issuer);
            let named =
                named.and_then(|named| Url::parse(&named).map_err(|_| "its `jwks_uri` is no address".to_owned()));
            // Some answer every path with a page.
            let named = match named {
                Ok(named) => named,
                Err(error) => {
                    why = error;
                    continue;
                }
            };
            let trust = if named.origin() == url.origin() { Trust::Operator } else { Trust::Stranger };
            return Ok((named, trust));
        }
        Err(why)
    }
}

fn read(file: &Path) -> std::io::Result<Bytes> {
    let mut text = Vec::new();
    std::fs::File::open(file)?.take(LARGEST as u64 + 1).read_to_end(&mut text)?;
    if text.len() > LARGEST {
        return Err(std::io::Error::other(format!("it is larger than {LARGEST} bytes")));
    }
    Ok(text.into())
}

/// Where an issuer's metadata may be, the likeliest first.
fn metadata_urls(issuer: &str) -> Vec<Url> {
    const PLACES: [&str; 2] = ["oauth-authorization-server", "openid-configuration"];
    let Ok(base) = Url::parse(issuer) else { return Vec::new() };
    let path = base.path().trim_end_matches('/').to_owned();
    let at = |path: String| {
        let mut url = base.clone();
        url.set_path(&path);
        url
    };
    let mut urls: Vec<_> = PLACES.iter().map(|place| at(format!("/.well-known/{place}{path}"))).collect();
    if !path.is_empty() {
        urls.push(at(format!("{path}/.well-known/{}", PLACES[1])));
    }
    urls
}

/// The address of the keys in a document of metadata, which must be that issuer's.
fn keys_of(text: &[u8], issuer: &str) -> Result<String, String> {
    let document: Box<serde_json::value::RawValue> =
        serde_json::from_slice(text).map_err(|error| format!("its metadata is no JSON: {error}"))?;
    let member = |name| json::member(document.get().as_bytes(), name).and_then(json::text_of);
    if member("issuer").as_deref() != Some(issuer) {
        return Err("its metadata is of another issuer".to_owned());
    }
    member("jwks_uri").map(Into::into).ok_or_else(|| "its metadata names no `jwks_uri`".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auc2_metadata_is_looked_for_in_order() {
        let urls = |issuer| metadata_urls(issuer).into_iter().map(String::from).collect::<Vec<_>>();
        let plain = [
            "https://idp.example/.well-known/oauth-authorization-server",
            "https://idp.example/.well-known/openid-configuration",
        ];
        assert_eq!(urls("https://idp.example"), plain);
        assert_eq!(urls("https://idp.example/"), plain);
        assert_eq!(
            urls("https://idp.example/a/b/"),
            [
                "https://idp.example/.well-known/oauth-authorization-server/a/b",
                "https://idp.example/.well-known/openid-configuration/a/b",
                "https://idp.example/a/b/.well-known/openid-configuration",
            ]
        );
    }

    #[test]
    fn auc2_metadata_of_another_issuer_is_none() {
        let keys = |text: &str| keys_of(text.as_bytes(), "https://a.example");
        let good = r#" {"issuer": "https://a.example", "jwks_uri": "https://a.example/k"} "#;
        assert_eq!(keys(good).as_deref(), Ok("https://a.example/k"));
        for bad in [
            r#"{"issuer":"https://a.example/","jwks_uri":"https://a.example/k"}"#,
            r#"{"jwks_uri":"https://a.example/k"}"#,
            r#"{"issuer":"https://a.example"}"#,
            r#"{"issuer":"https://a.example","jwks_uri":1}"#,
            "[]",
            "",
        ] {
            assert!(keys(bad).is_err(), "{bad}");
        }
    }
}
