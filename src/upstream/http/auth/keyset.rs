//! The public keys of an issuer, as its JSON Web Key Set lists them (RFC 7517).
//!
//! What cannot check a signature of ours is left out: keys for encryption, secrets, curves and algorithms that are not
//! taken. Deliberately fetches nothing.

use jsonwebtoken::jwk::{Jwk, KeyAlgorithm, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey};
use serde::Deserialize;
use serde_json::value::RawValue;

/// Keys of one set, at most.
const MAX_KEYS: usize = 64;

/// The keys.
#[derive(Debug, Default)]
pub(super) struct KeySet {
    keys: Vec<Key>,
}

#[derive(Debug)]
struct Key {
    kid: Option<String>,
    /// The only algorithm that it is for, where it says so.
    algorithm: Option<Algorithm>,
    key: DecodingKey,
}

#[derive(Deserialize)]
struct Written<'a> {
    #[serde(borrow)]
    keys: Vec<&'a RawValue>,
}

impl KeySet {
    /// Reads a set. One without a single usable key lets nobody in: that is how an issuer takes all of its keys back.
    pub(super) fn read(text: &[u8]) -> Result<Self, String> {
        let written: Written<'_> =
            serde_json::from_slice(text).map_err(|error| format!("it is no set of keys: {error}"))?;
        if written.keys.len() > MAX_KEYS {
            return Err(format!("it has more than {MAX_KEYS} keys"));
        }
        let keys: Vec<_> = written.keys.iter().filter_map(|written| Key::read(written.get())).collect();
        if keys.is_empty() {
            tracing::warn!("none of the issuer's keys can check a signature: nobody is let in by a token");
        }
        Ok(Self { keys })
    }

    /// The keys that may have signed a token of this algorithm and key id.
    pub(super) fn fitting(&self, algorithm: Algorithm, kid: Option<&str>) -> impl Iterator<Item = &DecodingKey> {
        let fits = move |key: &&Key| {
            key.key.family() == algorithm.family()
                && key.algorithm.is_none_or(|only| only == algorithm)
                && kid.is_none_or(|kid| key.kid.as_deref() == Some(kid))
        };
        self.keys.iter().filter(fits).map(|key| &key.key)
    }
}

impl Key {
    fn read(text: &str) -> Option<Self> {
        let jwk: Jwk = serde_json::from_str(text).ok()?;
        let common = &jwk.common;
        let signs = common.public_key_use.as_ref().is_none_or(|purpose| *purpose == PublicKeyUse::Signature)
            && common.key_operations.as_ref().is_none_or(|all| all.contains(&KeyOperations::Verify));
        let algorithm = match common.key_algorithm {
            None => None,
            Some(named) => Some(named_algorithm(named)?),
        };
        let key = DecodingKey::from_jwk(&jwk).ok().filter(|key| key.family() != AlgorithmFamily::Hmac)?;
        let agrees = algorithm.is_none_or(|algorithm| algorithm.family() == key.family());
        (signs && agrees).then(|| Self { kid: jwk.common.key_id.clone(), algorithm, key })
    }
}

fn named_algorithm(named: KeyAlgorithm) -> Option<Algorithm> {
    Algorithm::try_from(named).ok().filter(|algorithm| super::crypto::is_taken(*algorithm))
}
