//! How text from outside is shown to people: escaped and cut (T-35, D100). The one owner of that, for log lines, errors
//! and results alike.
//!
//! Knows nothing of where a text comes from nor of what must not be shown at all; `telemetry/mask.rs` does.

use std::fmt::Write as _;

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
    fn d100_nothing_hidden_passes() {
        assert_eq!(
            shown_str("a\u{1b}[31mb\r\n\u{202e}\u{200b}\u{e0041}é漢"),
            "a\\u{1b}[31mb\\u{d}\\u{a}\\u{202e}\\u{200b}\\u{e0041}é漢"
        );
        assert_eq!(shown_str(&"x".repeat(1000)).chars().count(), MAX + 1);
        assert_eq!(shown(b"\xffok"), "\u{fffd}ok");
    }
}
