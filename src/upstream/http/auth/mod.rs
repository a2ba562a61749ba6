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
use crate::config::settings::{ApiKey, AuthMode, AuthSettings, JwtSettings};
use crate::ident::Principal;
use challenge::Challenge;
use issuer::Issuer;
use seen::{Entry, Seen};
use token::{Bad, is_token};

/// Who may enter.
pub(super) struct Auth {
    /// Who everybody is, where nobody has to prove anything.
    everybody: Option<(Principal, CancellationToken)>,
    keys: Vec<Key>,
    tokens: Option<Arc<Tokens>>,
    challenge: Challenge,
}

struct Key {
    written: ApiKey,
    principal: Principal,
    /// It is not in force any more, or gives somebody else.
    revoked: CancellationToken,
}

struct Tokens {
    /// None of them is taken any more, or not as they were. Ends what is fetched for them, too.
    revoked: CancellationToken,
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
#[derive(Clone, Default, Debug)]
pub(super) struct Proof {
    /// The first moment at which it is proven no more.
    pub(super) until: Option<SystemTime>,
    /// Whether another proof may come after it: keys end for good.
    pub(super) renewable: bool,
    /// Cancelled when the configuration takes it back.
    pub(super) revoked: CancellationToken,
}

impl Proof {
    /// Whether nobody can come with it any more, nor with another one.
    pub(super) fn is_over(&self, now: SystemTime) -> bool {
        !self.renewable && (self.revoked.is_cancelled() || self.until.is_some_and(|until| until <= now))
    }

    /// Does something for as long as it holds.
    pub(super) async fn bound<F: Future<Output = ()>>(self, doing: F) {
        let doing = self.revoked.run_until_cancelled(doing);
        let Some(until) = self.until else {
            let _ = doing.await;
            return;
        };
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
    /// What is fetched for it is fetched until `stop`. What `before` says to the letter goes on as it is.
    pub(super) fn new(
        settings: &AuthSettings,
        pace: &KeyPace,
        stop: &CancellationToken,
        tasks: &TaskTracker,
        before: Option<&Self>,
    ) -> Self {
        let (by_key, by_token) = match settings.mode {
            AuthMode::Keys => (true, false),
            AuthMode::Jwt => (false, true),
            AuthMode::Both => (true, true),
            AuthMode::None => (false, false),
        };
        let key = |key: &ApiKey| {
            let same = before.and_then(|before| before.keys.iter().find(|old| old.written == *key));
            Key {
                written: key.clone(),
                principal: Principal::key_in(&key.name, &key.groups),
                revoked: same.map(|same| same.revoked.clone()).unwrap_or_default(),
            }
        };
        let jwt = settings.jwt.as_ref().filter(|_| by_token);
        let tokens = jwt.map(|jwt| {
            let same = before.and_then(|before| before.tokens.as_ref()).filter(|old| old.wanted == *jwt);
            same.map(Arc::clone).unwrap_or_else(|| {
                crypto::install();
                let revoked = stop.child_token();
                let issuer = Issuer::follow(jwt, pace, &revoked, tasks);
                Arc::new(Tokens { revoked, wanted: jwt.clone(), issuer, seen: Seen::default() })
            })
        });
        let everybody = (settings.mode == AuthMode::None).then(|| {
            let same = before.and_then(|before| before.everybody.as_ref());
            same.cloned().unwrap_or_else(|| (Principal::anonymous(), CancellationToken::new()))
        });
        Self {
            everybody,
            keys: settings.keys.iter().filter(|_| by_key).map(key).collect(),
            tokens,
            challenge: Challenge::new(jwt),
        }
    }

    /// Takes back what `now` does not say.
    pub(super) fn retire(&self, now: &Self) {
        if let Some((_, revoked)) = self.everybody.as_ref().filter(|_| now.everybody.is_none()) {
            revoked.cancel();
        }
        for key in self.keys.iter().filter(|key| now.keys.iter().all(|other| other.written != key.written)) {
            key.revoked.cancel();
        }
        if let Some(tokens) = &self.tokens
            && now.tokens.as_ref().is_none_or(|other| !Arc::ptr_eq(tokens, other))
        {
            tokens.revoked.cancel();
        }
    }

    /// Who sends these headers.
    pub(super) async fn check(&self, headers: &HeaderMap) -> Result<Entered, Denial> {
        if let Some((everybody, revoked)) = &self.everybody {
            let proof = Proof { until: None, renewable: false, revoked: revoked.clone() };
            return Ok(Entered { principal: everybody.clone(), proof });
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
        let key = self.keys.iter().find(|key| key.written.hash == hash).ok_or(Denial::Bad("it is not known"))?;
        let until = key.written.expires;
        if until.is_some_and(|end| end <= now) {
            return Err(Denial::Bad("it has expired"));
        }
        let proof = Proof { until, renewable: false, revoked: key.revoked.clone() };
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
    fn entered(&self, entry: Entry) -> Result<Entered, Denial> {
        if !entry.suffices {
            return Err(Denial::Scope);
        }
        let proof = Proof { until: Some(entry.until), renewable: true, revoked: self.revoked.clone() };
        Ok(Entered { principal: entry.principal, proof })
    }

    async fn check(&self, text: &str, hash: [u8; 32], now: SystemTime) -> Result<Entered, Denial> {
        let no_keys = || Denial::NoKeys(self.issuer.pause());
        let mut known = self.issuer.known().await;
        if known.keys.is_none() {
            known = self.issuer.newer(&known).await;
        }
        let mut keys = known.keys.clone().ok_or_else(no_keys)?;
        if let Some(entry) = self.seen.get(&hash, &keys, now) {
            return self.entered(entry);
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
                self.entered(entry)
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

#[cfg(test)]
mod tests {
    use super::*;

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
        let auth = Auth::new(&settings, &KeyPace::default(), &CancellationToken::new(), &TaskTracker::new(), None);
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
        let over = |until, renewable| Proof { until, renewable, ..Proof::default() }.is_over(now);
        assert!(over(Some(now), false) && !over(Some(now), true) && !over(None, false));
        assert!(!over(Some(now + Duration::from_secs(1)), false));
    }
}
