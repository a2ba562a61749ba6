//! Words and meaning, put together: which tools fit best by both.
//!
//! Pure. What words say is worth what it was worth without a model; meaning adds to it. Used by `catalog`.

use super::index::{Hit, Index, best};

/// What a point of words counts beside meaning. A good fit has three to four of them, and lies half way from what the usual tool
/// means to what the query does: so both speak about as loudly. A third more or less of it changes little.
const WORDS: f32 = 0.12;

/// What a tool that is called all the time gains over one that never is, as a share of the score: enough to come first of those
/// that fit about as well.
const USED: f32 = 0.05;

/// What is known of tools beside their words.
#[derive(Clone, Copy, Debug, Default)]
pub struct Beside<'a> {
    /// How near each lies to what the query means, where that is known.
    pub near: Option<&'a [f32]>,
    /// How much each was called lately, from 0 to 1, where that counts.
    pub used: Option<&'a [f32]>,
}

/// The tools that fit a query best, `limit` of those that `wanted` takes, the best first: by words, and by what is known beside.
pub fn find(index: &Index, query: &str, beside: Beside<'_>, limit: usize, wanted: impl Fn(usize) -> bool) -> Vec<Hit> {
    let mut scores = index.scores(query);
    let all = scores.len();
    let is_of_all = |known: &&[f32]| known.len() == all && all > 0;
    let (near, used) = (beside.near.filter(is_of_all), beside.used.filter(is_of_all));
    if let Some(near) = near {
        // Models differ in how near unlike texts lie: what counts is how much nearer than the usual tool.
        let usual = near.iter().sum::<f32>() / near.len() as f32;
        let room = (1.0 - usual).max(f32::EPSILON);
        for (score, near) in scores.iter_mut().zip(near) {
            *score = *score * WORDS + ((near - usual) / room).max(0.0);
        }
    }
    // A share of what fits: what does not is not lifted, and what fits clearly better stays before.
    for (score, used) in scores.iter_mut().zip(used.unwrap_or_default()) {
        *score *= 1.0 + USED * used.clamp(0.0, 1.0);
    }
    best(scores, limit, wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::Document;

    fn meaning(near: &[f32]) -> Beside<'_> {
        Beside { near: Some(near), ..Beside::default() }
    }

    #[test]
    fn both_are_heard_and_neither_alone_decides() {
        let names = ["read_file", "press_key", "take_heapsnapshot", "list_files"];
        let index = Index::build(names.map(|name| Document { names: [name, ""], ..Document::default() }));
        let found = |query: &str, near: &[f32]| {
            let hits = find(&index, query, meaning(near), 10, |_| true);
            hits.iter().map(|hit| hit.document).collect::<Vec<_>>()
        };
        // No word of it: meaning alone. What lies no nearer than the usual tool is no answer.
        assert_eq!(found("xyzzy", &[0.1, 0.2, 0.7, 0.1]), [2]);
        // Words that say it stay before what means something like it.
        assert_eq!(found("press key", &[0.2, 0.5, 0.6, 0.2])[..2], [1, 2]);
        assert_eq!(found("file", &[0.1, 0.0, 0.0, 0.5]), [3, 0]);
        // Models whose vectors all lie near each other say the same.
        assert_eq!(found("xyzzy", &[0.81, 0.82, 0.93, 0.81]), [2]);
        // Of other tools, or none: words alone.
        assert_eq!(found("file", &[0.9]), found("file", &[]));
        assert_eq!(
            find(&index, "file", Beside::default(), 1, |n| n == 3),
            find(&index, "file", meaning(&[0.0; 4]), 4, |n| n == 3)
                .iter()
                .map(|hit| Hit { score: hit.score / WORDS, ..*hit })
                .collect::<Vec<_>>()
        );
    }

    #[test]
    fn what_is_in_use_comes_first_of_what_fits_about_as_well() {
        let names = ["read_file", "read_files", "read_whole_file_with_much_ado", "press_key"];
        let index = Index::build(names.map(|name| Document { names: [name, ""], ..Document::default() }));
        let found = |used: &[f32]| {
            let hits = find(&index, "read file", Beside { used: Some(used), ..Beside::default() }, 10, |_| true);
            hits.iter().map(|hit| hit.document).collect::<Vec<_>>()
        };
        assert_eq!(found(&[0.0; 4]), [0, 1, 2]);
        assert_eq!(found(&[0.0, 0.1, 0.0, 0.0]), [1, 0, 2], "by a little");
        assert_eq!(
            found(&[0.0, 0.0, 1.0, 1.0]),
            [0, 1, 2],
            "what fits worse is not lifted, what does not fit not at all"
        );
        assert_eq!(found(&[0.0, 0.0, 1e9, f32::INFINITY]), [0, 1, 2], "whatever is counted");
        assert_eq!(found(&[1.0]), [0, 1, 2], "of other tools");
    }
}
