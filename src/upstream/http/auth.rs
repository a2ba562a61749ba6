//! Who a host is: by its bearer key, or nobody in particular where the operator asks for none (AUT-4).
//!
//! Gives a principal; what that one may do is the affair of policy. A key in the query of an address is none.

use std::time::SystemTime;

use http::header::{AUTHORIZATION, HeaderMap};
use sha2::{Digest as _, Sha256};

use crate::config::settings::{AuthMode, AuthSettings};
use crate::ident::Principal;

/// The keys that are taken; nothing = everybody is taken.
pub(super) struct Auth {
    keys: Option<Vec<Key>>,
    anonymous: Principal,
}

struct Key {
    hash: [u8; 32],
    expires: Option<SystemTime>,
    principal: Principal,
}

impl Auth {
    pub(super) fn new(settings: &AuthSettings) -> Self {
        let key = |key: &crate::config::settings::ApiKey| Key {
            hash: key.hash,
            expires: key.expires,
            principal: Principal::key_in(&key.name, &key.groups),
        };
        let keys = match settings.mode {
            AuthMode::Keys => Some(settings.keys.iter().map(key).collect()),
            AuthMode::None => None,
        };
        Self { keys, anonymous: Principal::anonymous() }
    }

    /// Who sends these headers; nothing = that must be proven first.
    pub(super) fn check(&self, headers: &HeaderMap) -> Option<Principal> {
        let Some(keys) = &self.keys else { return Some(self.anonymous.clone()) };
        let mut given = headers.get_all(AUTHORIZATION).iter();
        let (Some(given), None) = (given.next(), given.next()) else { return None };
        let (scheme, token) = given.to_str().ok()?.split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let hash: [u8; 32] = Sha256::digest(token.trim().as_bytes()).into();
        // Hashes are compared, so how long it takes tells nothing of a key.
        let key = keys.iter().find(|key| key.hash == hash)?;
        key.expires.is_none_or(|end| SystemTime::now() < end).then(|| key.principal.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::settings::ApiKey;

    #[test]
    fn aut4_a_key_gives_a_principal_until_it_expires() {
        let key = |name: &str, secret: &str, expires| ApiKey {
            name: name.into(),
            hash: Sha256::digest(secret.as_bytes()).into(),
            groups: Vec::new(),
            expires,
        };
        let (now, hour) = (SystemTime::now(), Duration::from_secs(3600));
        let keys = vec![key("a", "one", None), key("b", "two", Some(now + hour)), key("c", "three", Some(now - hour))];
        let auth = Auth::new(&AuthSettings { mode: AuthMode::Keys, keys });
        let who = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(AUTHORIZATION, value.parse().unwrap());
            }
            auth.check(&headers).map(|who| who.as_str().to_owned())
        };
        assert_eq!(who(&["Bearer one"]).as_deref(), Some("key:a"));
        assert_eq!(who(&["bearer two"]).as_deref(), Some("key:b"));
        for bad in [
            &["Bearer three"][..],
            &["Bearer four"],
            &["Basic one"],
            &["one"],
            &["Bearer"],
            &[],
            &["Bearer one", "Bearer one"],
        ] {
            assert_eq!(who(bad), None, "{bad:?}");
        }
    }
}
