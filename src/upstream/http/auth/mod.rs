//! Who a host is: by its bearer key, by the token of an identity provider, or nobody in particular where the operator asks
//! for none (AUT-4).
//!
//! Gives a principal; what that one may do is the affair of policy. Only the header `Authorization` is looked at: a key or a
//! token in the query of an address is none. Keys are compared here; a token is read in `token`, by keys that `issuer`
//! fetches; what hosts are told who bring neither is in `challenge`.

mod challenge;
mod crypto;
mod issuer;
mod keyset;
mod seen;
mod token;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::Response;
use http::header::{AUTHORIZATION, HeaderMap};
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::KeyPace;
use super::body::Reply;
use crate::config::settings::{AuthMode, AuthSettings, JwtSettings};
use crate::ident::Principal;
use challenge::Challenge;
use issuer::Issuer;
use seen::{Entry, Seen};
use token::{Bad, is_token};

/// Who may enter.
pub(super) struct Auth {
    /// Who everybody is, where nobody has to prove anything.
    everybody: Option<Principal>,
    keys: Vec<Key>,
    tokens: Option<Tokens>,
    challenge: Challenge,
}

struct Key {
    hash: [u8; 32],
    expires: Option<SystemTime>,
    principal: Principal,
}

struct Tokens {
    wanted: JwtSettings,
    issuer: Issuer,
    seen: Seen,
}

/// Somebody who may enter.
#[derive(Clone)]
pub(super) struct Entered {
    pub(super) principal: Principal,
    pub(super) proof: Proof,
}

/// For how long somebody has proven who it is.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Proof {
    /// The first moment at which it is proven no more.
    pub(super) until: Option<SystemTime>,
    /// Whether another proof may come after it: keys end for good.
    pub(super) renewable: bool,
}

impl Proof {
    /// Whether nobody can come with it any more, nor with another one.
    pub(super) fn is_over(&self, now: SystemTime) -> bool {
        !self.renewable && self.until.is_some_and(|until| until <= now)
    }

    /// Does something for as long as it holds.
    pub(super) async fn bound<F: Future<Output = ()>>(self, doing: F) {
        let Some(until) = self.until else { return doing.await };
        let left = until.duration_since(SystemTime::now()).unwrap_or_default();
        // An error says that the time is over.
        let _ = tokio::time::timeout(left, doing).await;
    }
}

/// Why somebody may not enter.
pub(super) enum Denial {
    /// Nothing was proven.
    Nothing,
    /// What was brought is not good; the reason is safe to show.
    Bad(&'static str),
    /// The token is good, but for less than is needed.
    Scope,
    /// Nobody can say whether the token is good; perhaps after this time.
    NoKeys(Duration),
}

impl Auth {
    /// What is fetched for it is fetched until `stop`.
    pub(super) fn new(settings: &AuthSettings, pace: &KeyPace, stop: &CancellationToken, tasks: &TaskTracker) -> Self {
        let key = |key: &crate::config::settings::ApiKey| Key {
            hash: key.hash,
            expires: key.expires,
            principal: Principal::key_in(&key.name, &key.groups),
        };
        let (by_key, by_token) = match settings.mode {
            AuthMode::Keys => (true, false),
            AuthMode::Jwt => (false, true),
            AuthMode::Both => (true, true),
            AuthMode::None => (false, false),
        };
        let jwt = settings.jwt.as_ref().filter(|_| by_token);
        let tokens = jwt.map(|jwt| {
            crypto::install();
            Tokens { wanted: jwt.clone(), issuer: Issuer::follow(jwt, pace, stop, tasks), seen: Seen::default() }
        });
        Self {
            everybody: (settings.mode == AuthMode::None).then(Principal::anonymous),
            keys: settings.keys.iter().filter(|_| by_key).map(key).collect(),
            tokens,
            challenge: Challenge::new(jwt),
        }
    }

    /// Who sends these headers.
    pub(super) async fn check(&self, headers: &HeaderMap) -> Result<Entered, Denial> {
        if let Some(everybody) = &self.everybody {
            return Ok(Entered { principal: everybody.clone(), proof: Proof::default() });
        }
        let mut given = headers.get_all(AUTHORIZATION).iter();
        let (Some(given), more) = (given.next(), given.next()) else { return Err(Denial::Nothing) };
        let Some(text) = given.to_str().ok().filter(|_| more.is_none()).and_then(bearer) else {
            return Err(Denial::Nothing);
        };
        let hash: [u8; 32] = Sha256::digest(text.as_bytes()).into();
        let now = SystemTime::now();
        match &self.tokens {
            Some(tokens) if self.keys.is_empty() || is_token(text) => tokens.check(text, hash, now).await,
            _ => self.key(hash, now),
        }
    }

    fn key(&self, hash: [u8; 32], now: SystemTime) -> Result<Entered, Denial> {
        // Hashes are compared, so how long it takes tells nothing of a key.
        let key = self.keys.iter().find(|key| key.hash == hash).ok_or(Denial::Bad("it is not known"))?;
        if key.expires.is_some_and(|end| end <= now) {
            return Err(Denial::Bad("it has expired"));
        }
        let proof = Proof { until: key.expires, renewable: false };
        Ok(Entered { principal: key.principal.clone(), proof })
    }

    /// The answer to who may not enter.
    pub(super) fn answer(&self, denial: &Denial) -> Response<Reply> {
        self.challenge.answer(denial)
    }

    /// What everybody may read of how to enter, by its path.
    pub(super) fn document(&self, path: &str) -> Option<Response<Reply>> {
        self.challenge.document(path)
    }
}

/// What stands behind `Bearer`.
fn bearer(value: &str) -> Option<&str> {
    let (scheme, text) = value.split_once(' ')?;
    let text = text.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !text.is_empty()).then_some(text)
}

impl Tokens {
    async fn check(&self, text: &str, hash: [u8; 32], now: SystemTime) -> Result<Entered, Denial> {
        let no_keys = || Denial::NoKeys(self.issuer.pause());
        let mut known = self.issuer.known().await;
        if known.keys.is_none() {
            known = self.issuer.newer(&known).await;
        }
        let mut keys = known.keys.clone().ok_or_else(no_keys)?;
        if let Some(entry) = self.seen.get(&hash, &keys, now) {
            return entered(entry);
        }
        let mut found = token::check(text, &keys, &self.wanted, now);
        if matches!(found, Err(Bad::UnknownKey)) {
            // The issuer may sign with a new key.
            known = self.issuer.newer(&known).await;
            let newer = known.keys.clone().ok_or_else(no_keys)?;
            if !Arc::ptr_eq(&newer, &keys) {
                keys = newer;
                found = token::check(text, &keys, &self.wanted, now);
            }
        }
        match found {
            Ok(good) => {
                let (principal, until, suffices) = (good.principal, good.until, good.suffices);
                let entry = Entry { principal, until, suffices, keys };
                self.seen.put(hash, entry.clone());
                entered(entry)
            }
            Err(bad) => {
                let why = match bad {
                    Bad::UnknownKey => "it was signed with a key that is not known",
                    Bad::Never(why) => why,
                };
                tracing::debug!(why, "a token is refused");
                Err(Denial::Bad(why))
            }
        }
    }
}

fn entered(entry: Entry) -> Result<Entered, Denial> {
    if !entry.suffices {
        return Err(Denial::Scope);
    }
    let proof = Proof { until: Some(entry.until), renewable: true };
    Ok(Entered { principal: entry.principal, proof })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::settings::ApiKey;

    #[tokio::test]
    async fn aut4_a_key_gives_a_principal_until_it_expires() {
        let key = |name: &str, secret: &str, expires| ApiKey {
            name: name.into(),
            hash: Sha256::digest(secret.as_bytes()).into(),
            groups: Vec::new(),
            expires,
        };
        let (now, hour) = (SystemTime::now(), Duration::from_secs(3600));
        let keys = vec![key("a", "one", None), key("b", "two", Some(now + hour)), key("c", "three", Some(now - hour))];
        let settings = AuthSettings { keys, ..AuthSettings::default() };
        let auth = Auth::new(&settings, &KeyPace::default(), &CancellationToken::new(), &TaskTracker::new());
        let who = async |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(AUTHORIZATION, value.parse().unwrap());
            }
            auth.check(&headers).await.ok().map(|who| (who.principal.as_str().to_owned(), who.proof.until))
        };
        assert_eq!(who(&["Bearer one"]).await, Some(("key:a".into(), None)));
        assert_eq!(who(&["bearer two"]).await, Some(("key:b".into(), Some(now + hour))));
        for bad in [
            &["Bearer three"][..],
            &["Bearer four"],
            &["Basic one"],
            &["one"],
            &["Bearer"],
            &["Bearer "],
            &[],
            &["Bearer one", "Bearer one"],
        ] {
            assert_eq!(who(bad).await, None, "{bad:?}");
        }
    }

    #[test]
    fn proofs_end_for_good_or_are_renewed() {
        let now = SystemTime::now();
        let over = |until, renewable| Proof { until, renewable }.is_over(now);
        assert!(over(Some(now), false) && !over(Some(now), true) && !over(None, false));
        assert!(!over(Some(now + Duration::from_secs(1)), false));
    }
}
