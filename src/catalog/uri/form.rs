//! The spellings of a URI that hosts see: as the server wrote it, with the server's key in it, or whole inside of
//! a URI of ours.
//!
//! Pure text: knows no server but by its key. Every way back is exact to the byte (U-3); nothing is normalised.
//! Which spelling a URI gets is decided in [`super::table`].

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// Longest URI of a server (RES-5).
pub const MAX_URI: usize = 8 * 1024;
/// The scheme of user interfaces, which must stay what it is (U-4, APP-3).
pub(super) const UI: &str = "ui://";
/// What the scheme of a URI of ours begins with.
pub(in super::super) const OURS: &str = "og+";

/// All but what RFC 3986 calls unreserved.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Whether this is a URI that we take: a scheme, not too long, no control characters (RES-5).
pub fn is_uri(text: &str) -> bool {
    is_short_and_clean(text) && scheme(text).is_some()
}

/// The part of RES-5 that templates are held to as well.
pub(in super::super) fn is_short_and_clean(text: &str) -> bool {
    text.len() <= MAX_URI && !text.chars().any(char::is_control)
}

/// The scheme, where the text has one.
fn scheme(text: &str) -> Option<&str> {
    let (scheme, _) = text.split_once(':')?;
    let shaped = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'));
    shaped.then_some(scheme)
}

/// Whether hosts may do more with such a URI than to hand it back: fetch it, open it (RES-4).
pub(super) fn has_meaning(uri: &str) -> bool {
    scheme(uri).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https") || scheme.eq_ignore_ascii_case("file"))
}

/// A URI of ours that holds one of a server's: `og+<key>:` and the whole of it, percent-encoded (U-3).
pub fn enclose(key: &str, native: &str) -> String {
    let mut out = [OURS, key, ":"].concat();
    out.extend(utf8_percent_encode(native, ESCAPED));
    out
}

/// Appends the literal text of a template as it stands in a URI of ours.
pub(super) fn push_enclosed(out: &mut String, literal: &str) {
    out.extend(utf8_percent_encode(literal, ESCAPED));
}

/// Key and inside of a URI of ours, still encoded.
pub(super) fn split_enclosed(uri: &str) -> Option<(&str, &str)> {
    uri.strip_prefix(OURS)?.split_once(':')
}

/// The URI inside of one of ours.
pub(super) fn disclose(inside: &str) -> Option<String> {
    percent_decode_str(inside).decode_utf8().ok().map(Cow::into_owned)
}

/// `ui://…` of a server with its key as the first segment (U-4); `None` for another scheme.
pub(super) fn insert_key(key: &str, native: &str) -> Option<String> {
    native.strip_prefix(UI).map(|rest| [UI, key, "/", rest].concat())
}

/// Key and rest of a `ui://<key>/…`.
pub(super) fn split_key(uri: &str) -> Option<(&str, &str)> {
    uri.strip_prefix(UI)?.split_once('/')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn res_5_what_a_uri_is() {
        for good in ["demo://readme", "file:///a b", "urn:x", "a:", "x+y-z.1:ü", "https://[::1]:8080/?q#f", "C:\\x"] {
            assert!(is_uri(good), "{good}");
        }
        for bad in
            ["", "readme", "/a/b", ":x", "1a:x", "a b:x", "ä:x", "demo://a\nb", "demo://a\u{7f}", "demo://\u{85}"]
        {
            assert!(!is_uri(bad), "{bad:?}");
        }
        assert!(is_uri(&format!("a:{}", "x".repeat(MAX_URI - 2))));
        assert!(!is_uri(&format!("a:{}", "x".repeat(MAX_URI - 1))));
    }

    #[test]
    fn u_3_the_form_is_the_published_one() {
        assert_eq!(enclose("a", "demo://readme"), "og+a:demo%3A%2F%2Freadme");
        assert_eq!(enclose("a-1", "db://t/a%2Fb?x=~ü"), "og+a-1:db%3A%2F%2Ft%2Fa%252Fb%3Fx%3D~%C3%BC");
    }

    #[test]
    fn u_4_the_key_is_the_first_segment() {
        for (native, exposed) in [("ui://a/b", "ui://k/a/b"), ("ui:///x", "ui://k//x"), ("ui://", "ui://k/")] {
            assert_eq!(insert_key("k", native).unwrap(), exposed);
            assert_eq!(split_key(exposed).unwrap(), ("k", &native[5..]));
        }
        assert_eq!(insert_key("k", "UI://a"), None);
        assert_eq!(insert_key("k", "ui:a"), None);
    }

    proptest! {
        /// U-3: whatever a server wrote comes back to the byte.
        #[test]
        fn u_3_the_way_back_is_exact(native in prop_oneof![
            any::<String>(),
            "[a-z]{1,5}://(\\[::1\\]|)[%a-fA-F0-9/?#&=+. :@~-]{0,40}",
            Just("x://h/%2f%2F?a=%20#%E4".to_owned()),
        ]) {
            let exposed = enclose("s-1", &native);
            prop_assert!(is_uri(&exposed) || exposed.len() > MAX_URI);
            let (key, inside) = split_enclosed(&exposed).unwrap();
            prop_assert_eq!(key, "s-1");
            prop_assert_eq!(disclose(inside).unwrap(), native);
        }
    }
}
