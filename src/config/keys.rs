//! API keys: made here, and known to the configuration by their hash alone.
//!
//! A secret is random, so a plain hash is enough: there is nothing to guess. Deliberately checks no key that a host
//! of `serve` brings. Used by `schema`, `front` and `onegate key`.

use data_encoding::{BASE64URL_NOPAD, HEXLOWER, HEXLOWER_PERMISSIVE};
use sha2::{Digest as _, Sha256};

use crate::ident::Secret;
use crate::shown::shown_str as shown;

/// What stands before the digits of a hash.
const ALGORITHM: &str = "sha256:";
/// Random bytes of a secret.
const BYTES: usize = 32;

/// A new key.
pub struct NewKey {
    /// What the host sends; to be shown once and kept nowhere.
    pub secret: Secret,
    /// What goes into the configuration.
    pub hash: String,
}

impl NewKey {
    /// Makes one out of the operating system's random bytes.
    pub fn make() -> std::io::Result<Self> {
        let mut bytes = [0; BYTES];
        getrandom::fill(&mut bytes).map_err(|error| std::io::Error::other(error.to_string()))?;
        let secret = BASE64URL_NOPAD.encode(&bytes);
        let hash = format!("{ALGORITHM}{}", HEXLOWER.encode(&Sha256::digest(secret.as_bytes())));
        Ok(Self { secret: Secret::new(secret), hash })
    }
}

/// Why a text is no name of a key or a group: it stands in policy, logs and audit after `key:` or `group:`.
pub fn name_problem(text: &str) -> Option<String> {
    let shaped = text.len() <= 64
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b'@'));
    (!shaped).then(|| {
        format!("`{}` is no name: 1 to 64 of A-Z, a-z, 0-9, `.`, `_`, `-`, `@`, not beginning with a sign", shown(text))
    })
}

/// Why a text is no hash. Not shown: somebody may have put the secret there.
pub(super) fn hash_problem(text: &str) -> Option<String> {
    match parse_hash(text) {
        None => Some(
            "is not `sha256:` and 64 hexadecimal digits; `onegate key new NAME` makes a key and its hash".to_owned(),
        ),
        // What a script hashes when its variable is empty: whoever brings no key would have this one.
        Some(hash) if hash[..] == Sha256::digest(b"")[..] => Some("is the hash of an empty key".to_owned()),
        Some(_) => None,
    }
}

/// Reads a hash.
pub(super) fn parse_hash(text: &str) -> Option<[u8; 32]> {
    let digits = text.strip_prefix(ALGORITHM)?;
    HEXLOWER_PERMISSIVE.decode(digits.as_bytes()).ok()?.try_into().ok()
}

/// The one of these that has the hash of this secret.
pub fn find<'a, T>(secret: &str, known: impl Iterator<Item = (T, &'a [u8; 32])>) -> Option<T> {
    let hash: [u8; 32] = Sha256::digest(secret.as_bytes()).into();
    let mut known = known;
    known.find(|(_, other)| **other == hash).map(|(found, _)| found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_key_is_unguessable_and_fits_its_hash() {
        let (one, other) = (NewKey::make().unwrap(), NewKey::make().unwrap());
        assert!(one.secret.reveal() != other.secret.reveal());
        assert_eq!(one.secret.reveal().len(), 43);
        assert!(one.secret.reveal().bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_')));
        let hash: [u8; 32] = Sha256::digest(one.secret.reveal().as_bytes()).into();
        assert_eq!(parse_hash(&one.hash), Some(hash));
        assert_eq!(find(one.secret.reveal(), [(1, &[0; 32]), (2, &hash)].into_iter()), Some(2));
        assert_eq!(find(other.secret.reveal(), [(1, &[0; 32]), (2, &hash)].into_iter()), None);
    }

    #[test]
    fn hashes_and_names_are_checked() {
        let digits = "0123456789abcdefABCDEF0123456789".repeat(2);
        assert_eq!(hash_problem(&format!("sha256:{digits}")), None);
        for bad in ["", "sha256:", &digits, &format!("sha256:{digits}0"), &format!("md5:{digits}"), "sha256:s3cret"] {
            assert!(hash_problem(bad).is_some_and(|why| !why.contains("s3cret")), "{bad}");
        }
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert!(hash_problem(&format!("sha256:{empty}")).is_some_and(|why| why.contains("empty key")));
        for good in ["ci", "Alice.B", "a@b.example", "1"] {
            assert_eq!(name_problem(good), None, "{good}");
        }
        for bad in ["", "-a", "a b", "key:a", "ä", &"a".repeat(65)] {
            assert!(name_problem(bad).is_some(), "{bad}");
        }
    }
}
