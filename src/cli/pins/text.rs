//! How definitions and their differences are shown to a reviewer: line by line, and nothing hidden.

use std::fmt::Write as _;

use serde_json::Value;

use crate::shown::hidden;

/// Lines around a difference.
const AROUND: usize = 2;
/// Beyond this many pairs of lines no common ones are looked for.
const MAX_PAIRS: usize = 4_000_000;

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
    let steps = steps(&before, &after);
    let mut out = String::new();
    let is_near = |at: usize| {
        let (from, to) = (at.saturating_sub(AROUND), (at + AROUND + 1).min(steps.len()));
        steps[from..to].iter().any(|(mark, _)| *mark != ' ')
    };
    let mut gap = false;
    for (at, (mark, line)) in steps.iter().enumerate() {
        if is_near(at) {
            if std::mem::take(&mut gap) {
                out.push_str("    @@\n");
            }
            let _ = writeln!(out, "    {mark}{line}");
        } else {
            gap = true;
        }
    }
    out
}

/// The lines of both, each with ` `, `-` or `+`: as many common ones as can be.
fn steps<'l>(before: &'l [String], after: &'l [String]) -> Vec<(char, &'l str)> {
    let (n, m) = (before.len(), after.len());
    let all = |lines: &'l [String], mark| lines.iter().map(move |line| (mark, line.as_str()));
    if n * m > MAX_PAIRS {
        return all(before, '-').chain(all(after, '+')).collect();
    }
    let width = m + 1;
    let mut common = vec![0u32; (n + 1) * width];
    for i in (0..n).rev() {
        for j in (0..m).rev() {
            common[i * width + j] = if before[i] == after[j] {
                common[(i + 1) * width + j + 1] + 1
            } else {
                common[(i + 1) * width + j].max(common[i * width + j + 1])
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut steps = Vec::with_capacity(n + m);
    while i < n || j < m {
        if i < n && j < m && before[i] == after[j] {
            steps.push((' ', before[i].as_str()));
            (i, j) = (i + 1, j + 1);
        } else if i < n && (j == m || common[(i + 1) * width + j] >= common[i * width + j + 1]) {
            steps.push(('-', before[i].as_str()));
            i += 1;
        } else {
            steps.push(('+', after[j].as_str()));
            j += 1;
        }
    }
    steps
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
