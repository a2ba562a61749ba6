//! What differs between two texts, line by line: the one place that compares them.
//!
//! Knows nothing of what the lines say, nor how they are shown: that is its callers', the preview of an edit and the review
//! of a definition.

/// Beyond this many pairs of lines no common ones are looked for in what lies between the first and the last difference.
const MAX_PAIRS: usize = 4_000_000;

/// Lines of one place that differ, and few around them.
#[derive(Debug, PartialEq, Eq)]
pub struct Hunk<'l> {
    /// Where it begins: how many lines come before it, in the old text and in the new one.
    pub at: (usize, usize),
    /// Its lines, each with ` `, `-` or `+`.
    pub lines: Vec<(char, &'l str)>,
}

/// All differences, each with at most `around` common lines before and behind it; those that touch are one.
pub fn hunks<'l>(before: &[&'l str], after: &[&'l str], around: usize) -> Vec<Hunk<'l>> {
    let steps = steps(before, after);
    let mut hunks: Vec<Hunk<'l>> = Vec::new();
    let mut place = (0, 0);
    let mut shown_to = None;
    for (n, &(mark, line)) in steps.iter().enumerate() {
        let (from, to) = (n.saturating_sub(around), (n + around + 1).min(steps.len()));
        if steps[from..to].iter().any(|(mark, _)| *mark != ' ') {
            if shown_to != Some(n) {
                hunks.push(Hunk { at: place, lines: Vec::new() });
            }
            shown_to = Some(n + 1);
            if let Some(hunk) = hunks.last_mut() {
                hunk.lines.push((mark, line));
            }
        }
        place = (place.0 + usize::from(mark != '+'), place.1 + usize::from(mark != '-'));
    }
    hunks
}

/// The lines of both, each with ` `, `-` or `+`: as many common ones as can be.
fn steps<'l>(before: &[&'l str], after: &[&'l str]) -> Vec<(char, &'l str)> {
    let start = before.iter().zip(after).take_while(|(a, b)| a == b).count();
    let rest = before.len().min(after.len()) - start;
    let end = before.iter().rev().zip(after.iter().rev()).take(rest).take_while(|(a, b)| a == b).count();
    let (head, old, tail) = (&before[..start], &before[start..before.len() - end], &before[before.len() - end..]);
    let mut steps: Vec<_> = head.iter().map(|line| (' ', *line)).collect();
    between(old, &after[start..after.len() - end], &mut steps);
    steps.extend(tail.iter().map(|line| (' ', *line)));
    steps
}

fn between<'l>(before: &[&'l str], after: &[&'l str], steps: &mut Vec<(char, &'l str)>) {
    let (n, m) = (before.len(), after.len());
    if n.saturating_mul(m) > MAX_PAIRS {
        steps.extend(before.iter().map(|line| ('-', *line)).chain(after.iter().map(|line| ('+', *line))));
        return;
    }
    // How many lines are common from there on.
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
    while i < n || j < m {
        if i < n && j < m && before[i] == after[j] {
            steps.push((' ', before[i]));
            (i, j) = (i + 1, j + 1);
        } else if i < n && (j == m || common[(i + 1) * width + j] >= common[i * width + j + 1]) {
            steps.push(('-', before[i]));
            i += 1;
        } else {
            steps.push(('+', after[j]));
            j += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn two_places_are_two_hunks_and_say_where_they_are() {
        let (before, after) = (["1", "2", "3", "4", "5", "6", "7"], ["1", "x", "3", "4", "5", "6", "7", "8"]);
        let found = hunks(&before, &after, 1);
        assert_eq!(
            found,
            [
                Hunk { at: (0, 0), lines: vec![(' ', "1"), ('-', "2"), ('+', "x"), (' ', "3")] },
                Hunk { at: (6, 6), lines: vec![(' ', "7"), ('+', "8")] },
            ]
        );
        assert_eq!(hunks(&before, &before, 1), []);
        assert_eq!(hunks(&before, &after, 3).len(), 1, "those that touch are one");
    }

    #[test]
    fn what_is_too_large_is_shown_whole_and_soon() {
        let many = |word: &str| (0..3000).map(|n| format!("{word}{n}")).collect::<Vec<_>>();
        let (old, new) = (many("a"), many("b"));
        let (old, new): (Vec<&str>, Vec<&str>) =
            (old.iter().map(String::as_str).collect(), new.iter().map(String::as_str).collect());
        assert_eq!(hunks(&old, &new, 2)[0].lines.len(), 6000);
    }

    proptest! {
        #[test]
        fn both_texts_are_in_the_steps(old in "[abc]{0,12}", new in "[abc]{0,12}") {
            let (old, new): (Vec<&str>, Vec<&str>) = (old.split("").collect(), new.split("").collect());
            let steps = steps(&old, &new);
            let of = |not: char| steps.iter().filter(|(mark, _)| *mark != not).map(|(_, line)| *line).collect::<Vec<_>>();
            prop_assert_eq!(of('+'), old);
            prop_assert_eq!(of('-'), new);
        }
    }
}
