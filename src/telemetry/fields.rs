//! How text from outside is shown to people: escaped and cut (T-35, D100).

use std::fmt::Write as _;
use std::sync::Arc;

use crate::ident::Secret;

/// Longest text shown.
const MAX: usize = 500;

/// Text from outside, made safe for a terminal, a log line or an error: one line, control, bidirectional, tag and
/// zero-width characters escaped, cut to a length a person reads.
pub fn shown(text: &[u8]) -> String {
    shown_str(&String::from_utf8_lossy(text))
}

/// [`shown`] for text that is known to be Unicode.
pub fn shown_str(text: &str) -> String {
    let mut out = String::with_capacity(text.len().min(MAX));
    for (count, c) in text.chars().enumerate() {
        if count == MAX {
            out.push('…');
            break;
        }
        if hidden(c) {
            // Writing into a string cannot fail.
            let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    out
}

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

/// Whether a character shows nothing of itself or changes how others are shown.
pub fn hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d025_what_was_given_in_confidence_is_not_shown() {
        let mask = Mask::new(&["abcdef-1", "abcdef", "no"].map(Secret::new));
        assert_eq!(mask.shown("bad token abcdef-1\n(abcdef) no"), "bad token [secret]\\u{a}([secret]) no");
        assert_eq!(Mask::default().shown("abcdef"), "abcdef");
    }

    #[test]
    fn d100_nothing_hidden_passes() {
        assert_eq!(
            shown_str("a\u{1b}[31mb\r\n\u{202e}\u{200b}\u{e0041}é漢"),
            "a\\u{1b}[31mb\\u{d}\\u{a}\\u{202e}\\u{200b}\\u{e0041}é漢"
        );
        assert_eq!(shown_str(&"x".repeat(1000)).chars().count(), MAX + 1);
        assert_eq!(shown(b"\xffok"), "\u{fffd}ok");
    }
}
