//! What must not be shown of a server's own words: the secrets it was given (I-34).

use std::sync::Arc;

use crate::ident::Secret;
use crate::shown::shown_str;

/// What a server was given in confidence, to be kept out of what is shown of its own words: it may well print the
/// token that was refused (I-34, D025).
#[derive(Clone, Default)]
pub struct Mask(Arc<[Secret]>);

impl Mask {
    /// Shorter ones are no secrets, and stand in every second word.
    const SHORTEST: usize = 6;
    /// So much of a text is looked at: more than is shown.
    const LONGEST: usize = 64 << 10;

    /// Hides these.
    pub fn new(secrets: &[Secret]) -> Self {
        let mut secrets: Vec<_> = secrets.iter().filter(|s| s.reveal().len() >= Self::SHORTEST).cloned().collect();
        // One may be part of another.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.reveal().len()));
        Self(secrets.into())
    }

    /// The text without the secrets, when there is one in it (LOG-3).
    pub fn without(&self, text: &[u8]) -> Option<Vec<u8>> {
        let mut clean: Option<Vec<u8>> = None;
        for secret in self.0.iter().map(Secret::reveal) {
            let finder = memchr::memmem::Finder::new(secret);
            let known = clean.as_deref().unwrap_or(text);
            if finder.find(known).is_none() {
                continue;
            }
            let mut rest = known;
            let mut next = Vec::with_capacity(known.len());
            while let Some(at) = finder.find(rest) {
                next.extend_from_slice(&rest[..at]);
                next.extend_from_slice(b"[secret]");
                rest = &rest[at + secret.len()..];
            }
            next.extend_from_slice(rest);
            clean = Some(next);
        }
        clean
    }

    /// [`shown_str`], without the secrets.
    pub fn shown(&self, text: &str) -> String {
        let text = &text[..text.floor_char_boundary(Self::LONGEST)];
        let mut clean = std::borrow::Cow::Borrowed(text);
        for secret in self.0.iter().map(Secret::reveal) {
            if clean.contains(secret) {
                clean = clean.replace(secret, "[secret]").into();
            }
        }
        shown_str(&clean)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d025_what_was_given_in_confidence_is_not_shown() {
        let mask = Mask::new(&["abcdef-1", "abcdef", "no"].map(Secret::new));
        assert_eq!(mask.shown("bad token abcdef-1\n(abcdef) no"), "bad token [secret]\\u{a}([secret]) no");
        assert_eq!(Mask::default().shown("abcdef"), "abcdef");
        assert_eq!(mask.without(b"{\"a\":\"abcdef-1 abcdef\"}"), Some(b"{\"a\":\"[secret] [secret]\"}".to_vec()));
        assert_eq!(mask.without(b"nothing"), None);
    }
}
