//! Lines of an edited text: those that did not change keep every byte, and a diff shows the others.
//!
//! Knows no format. Called by all that edits.

use std::fmt::Write as _;

use crate::hunks::{Hunk, hunks};

/// The new text with the old one's line ends and byte-order mark: lines before and after the change are the old ones as
/// they were, the others end as most of the old ones do.
pub(super) fn keep(old: &str, new: &str) -> String {
    let mark = if old.starts_with(MARK) { "\u{feff}" } else { "" };
    let (old, new) = (old.trim_start_matches(MARK), new.trim_start_matches(MARK));
    if !old.contains('\r') {
        return format!("{mark}{new}");
    }
    let (before, after): (Vec<&str>, Vec<&str>) = (split(old), split(new));
    let (start, end) = common(&before, &after);
    let returns = before.iter().filter(|line| line.ends_with("\r\n")).count();
    let line_end = if returns * 2 >= before.len() { "\r\n" } else { "\n" };
    let mut text = String::with_capacity(new.len() + after.len());
    text.push_str(mark);
    text.extend(before[..start].iter().copied());
    for line in &after[start..after.len() - end] {
        match line.strip_suffix('\n') {
            Some(content) => {
                text.push_str(content.strip_suffix('\r').unwrap_or(content));
                text.push_str(line_end);
            }
            None => text.push_str(line),
        }
    }
    text.extend(before[before.len() - end..].iter().copied());
    text
}

/// The byte-order mark.
const MARK: char = '\u{feff}';

fn split(text: &str) -> Vec<&str> {
    text.split_inclusive('\n').collect()
}

/// How many lines two texts have in common at the beginning and at the end, line ends aside.
fn common(before: &[&str], after: &[&str]) -> (usize, usize) {
    // A line without an end is another line than the same with one.
    let plain = |line: &str| {
        let ended = line.strip_suffix('\n').map(|content| content.strip_suffix('\r').unwrap_or(content).len());
        ended.map_or((line.len(), false), |length| (length, true))
    };
    let same = |(a, b): &(&&str, &&str)| plain(a) == plain(b) && a[..plain(a).0] == b[..plain(b).0];
    let start = before.iter().zip(after).take_while(same).count();
    let rest = before.len().min(after.len()) - start;
    let end = before.iter().rev().zip(after.iter().rev()).take(rest).take_while(same).count();
    (start, end)
}

/// A text of TOML without the table of this name and the tables below it; comments right above it go too where told so,
/// but for those that the text begins with. None when the table has no line of its own.
pub(super) fn without_table(text: &str, table: &str, name: &str, comments: bool) -> Option<String> {
    let lines = split(text);
    let header = |line: &str| {
        let inner = line.trim_start().strip_prefix('[')?;
        Some(inner.trim_start_matches('[').split(']').next()?.replace([' ', '\t'], ""))
    };
    let wanted = [format!("{table}.{name}"), format!("{table}.\"{name}\""), format!("{table}.'{name}'")];
    let below = |path: &str| {
        wanted.iter().any(|w| path.strip_prefix(w).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')))
    };
    let says = |line: &str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
    let mut keep = vec![true; lines.len()];
    let mut ours: Option<usize> = None;
    for (n, line) in lines.iter().enumerate() {
        if let Some(path) = header(line) {
            ours = below(&path).then_some(n);
        }
        // From the header to the last line that says something: what follows may be the next table's.
        if let Some(from) = ours
            && says(line)
        {
            keep[from..=n].fill(false);
            ours = Some(n + 1);
        }
    }
    let first = keep.iter().position(|keep| !keep)?;
    let mut from = first;
    while comments && from > 0 && lines[from - 1].trim_start().starts_with('#') {
        from -= 1;
    }
    if from == 0 {
        // What a file begins with is about the file.
        from = first;
    }
    // The blank line before it was its own.
    if from > 0 && lines[from - 1].trim().is_empty() {
        from -= 1;
    }
    keep[from..first].fill(false);
    Some(lines.into_iter().zip(keep).filter(|(_, keep)| *keep).map(|(line, _)| line).collect())
}

/// What changes, in the usual form.
pub fn diff(old: &str, new: &str) -> String {
    let mut text = String::new();
    for Hunk { at: (before, after), lines } in hunks(&split(old), &split(new), 2) {
        // Writing into a string cannot fail.
        let _ = writeln!(text, "@@ -{} +{} @@", before + 1, after + 1);
        for (mark, line) in lines {
            let _ = writeln!(text, "{mark}{}", line.trim_end_matches(['\r', '\n']));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn unchanged_lines_keep_their_ends() {
        let old = "\u{feff}a\r\nb\nc\r\n";
        assert_eq!(keep(old, "a\nb\nx\nc\n"), "\u{feff}a\r\nb\nx\r\nc\r\n");
        assert_eq!(keep("a\r\nb", "a\nx\nb"), "a\r\nx\r\nb");
        assert_eq!(keep("\u{feff}{}", "{1}"), "\u{feff}{1}");
        assert_eq!(keep("a\nb\n", "a\nb\nc\n"), "a\nb\nc\n");
    }

    #[test]
    fn a_diff_shows_the_changed_lines_and_few_around() {
        let diff = diff("1\n2\n3\n4\n5\n", "1\n2\n3\nx\n4\n5\n");
        assert_eq!(diff, "@@ -2 +2 @@\n 2\n 3\n+x\n 4\n 5\n");
        assert_eq!(super::diff("a\n", "a\n"), "");
        assert_eq!(super::diff("", "a\n"), "@@ -1 +1 @@\n+a\n");
    }

    #[test]
    fn a_table_goes_with_its_lines_and_no_others() {
        let text = "# head\n\n# of a\n[s.a]\nx = 1\n\n# inside\ny = 2\n[s.a.env]\nz = 3\n\n# of b\n[s.b]\n[s.\"a-c\"]\nq = 1\n";
        assert_eq!(without_table(text, "s", "a", true).unwrap(), "# head\n\n# of b\n[s.b]\n[s.\"a-c\"]\nq = 1\n");
        assert!(without_table(text, "s", "a", false).unwrap().starts_with("# head\n\n# of a\n\n# of b\n"));
        assert!(without_table(text, "s", "a-c", false).unwrap().ends_with("# of b\n[s.b]\n"));
        assert_eq!(without_table("# head\n[s.a]\nx = 1", "s", "a", true).unwrap(), "# head\n");
        assert_eq!(without_table("s = { a = 1 }\n", "s", "a", true), None);
    }

    proptest! {
        #[test]
        fn kept_lines_say_the_same(old in "[ab\r\n]{0,12}", new in "[ab\n]{0,12}") {
            let kept = keep(&old, &new);
            prop_assert_eq!(kept.replace("\r\n", "\n"), new.replace("\r\n", "\n"));
        }
    }
}
