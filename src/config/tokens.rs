//! `[auth] jwt` and `[[auth.stdio]]`: whose tokens are taken, checked so far that a slip of the pen takes none (E-40).
//!
//! Deliberately asks no issuer anything: that is done by who serves. Called by `schema` and `serving`.

use url::Url;

use super::address::{self, is_loopback};
use super::check;
use super::rules::pointer_problem;
use crate::shown::shown_str as shown;

/// The claim that holds the groups where nothing else is said.
pub(super) const GROUPS: &str = "groups";

/// An address that proves itself: by TLS, or because it is this machine's own.
fn proven(text: &str) -> Option<Url> {
    let url = address::endpoint(text).ok()?;
    (url.scheme() == "https" || is_loopback(&url)).then_some(url)
}

/// Why a text is no issuer (RFC 8414).
pub(super) fn issuer_problem(text: &str) -> Option<String> {
    let fits = proven(text).is_some_and(|url| url.query().is_none());
    (!fits).then(|| {
        format!(
            "`{}` is no issuer: it is written exactly as in its tokens, `https://idp.example/team`, without query and \
             fragment (`http` for this machine alone)",
            shown(text)
        )
    })
}

/// Why a text is nobody whom tokens are for.
pub(super) fn audience_problem(text: &str) -> Option<String> {
    let fits = !text.is_empty() && text.chars().all(|c| !c.is_whitespace() && !c.is_control());
    (!fits).then(|| "is what tokens say in `aud`, without blanks, such as `https://gateway.example/mcp`".to_owned())
}

/// The address that tokens are asked for (RFC 8707), when the text is one.
pub(super) fn resource(text: &str) -> Option<Url> {
    proven(text)
}

/// Why a text is no address that tokens are asked for.
pub(super) fn resource_problem(text: &str) -> Option<String> {
    resource(text).is_none().then(|| {
        format!(
            "`{}` is no address of ours: write for example `https://gateway.example/mcp`, without fragment (`http` for \
             this machine alone)",
            shown(text)
        )
    })
}

/// Whether a text means an address and not a file.
pub(super) fn is_address(text: &str) -> bool {
    text.contains("://")
}

/// Why there can be no keys.
pub(super) fn keys_problem(text: &str) -> Option<String> {
    if !is_address(text) {
        return check::not_empty(text);
    }
    let why = "is no address of keys: it must begin with `https://` (`http://` for this machine alone), without user, \
               password and fragment; or name a file";
    proven(text).is_none().then(|| why.to_owned())
}

/// Why a text names no claim.
pub(super) fn claim_problem(text: &str) -> Option<String> {
    if text.starts_with('/') { pointer_problem(text) } else { check::not_empty(text) }
}

/// Why a text is no scope (RFC 6749).
pub(super) fn scope_problem(text: &str) -> Option<String> {
    let fits = !text.is_empty() && text.bytes().all(|b| matches!(b, 0x21 | 0x23..=0x5b | 0x5d..=0x7e));
    (!fits).then(|| format!("`{}` is no scope: one word, such as `mcp:use`", shown(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e40_what_would_take_wrong_tokens_is_refused() {
        for good in ["https://idp.example", "https://idp.example/t/", "http://127.0.0.1:1", "http://localhost:8080/r"] {
            assert_eq!(issuer_problem(good), None, "{good}");
        }
        for bad in [
            "",
            "idp.example",
            "http://idp.example",
            "https://idp.example?x",
            "https://idp.example#x",
            "https://me@idp.example",
            "file:///x",
        ] {
            assert!(issuer_problem(bad).is_some(), "{bad}");
        }
        for good in ["https://idp.example/jwks?x=1", "http://[::1]:1/jwks", "keys.json", "/etc/keys.json"] {
            assert_eq!(keys_problem(good), None, "{good}");
        }
        for bad in ["", "http://idp.example/jwks", "ftp://idp.example/jwks", "https://a:b@idp.example/"] {
            assert!(keys_problem(bad).is_some(), "{bad}");
        }
        for (text, fits) in [("mcp", true), ("mcp:call/a", true), ("", false), ("a b", false), ("a\"", false)] {
            assert_eq!(scope_problem(text).is_none(), fits, "{text}");
        }
        for (text, fits) in [("api://1", true), ("https://g/mcp", true), ("", false), ("a b", false), ("a\n", false)] {
            assert_eq!(audience_problem(text).is_none(), fits, "{text}");
        }
        for (text, fits) in [("groups", true), ("https://x/groups", true), ("/a/b", true), ("", false), ("/~", false)] {
            assert_eq!(claim_problem(text).is_none(), fits, "{text}");
        }
        for (text, fits) in [("https://g.example/mcp", true), ("http://g.example/mcp", false), ("https://g#x", false)] {
            assert_eq!(resource_problem(text).is_none(), fits, "{text}");
        }
    }
}
