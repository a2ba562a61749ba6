//! How definitions and their differences are shown to a reviewer: line by line, and nothing hidden.

use std::fmt::Write as _;

use serde_json::Value;

use crate::hunks::hunks;
use crate::shown::hidden;

/// Lines around a difference.
const AROUND: usize = 2;

/// A line with what it hides made visible.
pub(super) fn visible(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    for c in line.chars() {
        if hidden(c) {
            // Writing into a string cannot fail.
            let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    out
}

/// A definition, one member a line; texts of several lines stay one line, so that nothing looks like another member.
fn lines(value: Option<&Value>) -> Vec<String> {
    let text = value.map_or_else(String::new, |value| serde_json::to_string_pretty(value).unwrap_or_default());
    text.lines().map(visible).collect()
}

/// What differs between two definitions, in the form of `diff -u`.
pub(super) fn unified(before: Option<&Value>, after: Option<&Value>) -> String {
    let (before, after) = (lines(before), lines(after));
    let [old, new] = [&before, &after].map(|lines| lines.iter().map(String::as_str).collect::<Vec<_>>());
    let mut out = String::new();
    for hunk in hunks(&old, &new, AROUND) {
        if hunk.at != (0, 0) {
            out.push_str("    @@\n");
        }
        for (mark, line) in hunk.lines {
            // Writing into a string cannot fail.
            let _ = writeln!(out, "    {mark}{line}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_difference_shows_its_lines_and_what_they_hide() {
        let before = json!({ "a": 1, "b": "old", "c": [1, 2, 3, 4, 5], "z": 1 });
        let after = json!({ "a": 1, "b": "new\u{202e}\u{1b}", "c": [1, 2, 3, 4, 5], "z": 2 });
        let text = unified(Some(&before), Some(&after));
        assert!(text.contains("-  \"b\": \"old\",\n    +  \"b\": \"new\\u{202e}\\u001b\",\n"), "{text}");
        assert!(text.contains("@@") && text.contains("-  \"z\": 1\n    +  \"z\": 2"), "{text}");
        assert!(!text.contains("    3,"), "{text}");
        assert!(unified(None, Some(&json!({}))).contains("+{}"));
        assert_eq!(unified(Some(&before), Some(&before)), "");
    }
}
