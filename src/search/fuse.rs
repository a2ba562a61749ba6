//! Words and meaning, put together: which tools fit best by both.
//!
//! Pure. What words say is worth what it was worth without a model; meaning adds to it. Used by `catalog`.

use super::index::{Hit, Index, best};

/// What a point of words counts beside meaning. A good fit has three to four of them, and lies half way from what the usual tool
/// means to what the query does: so both speak about as loudly. A third more or less of it changes little.
const WORDS: f32 = 0.12;

/// The tools that fit a query best, `limit` of those that `wanted` takes, the best first: by words, and where it is known by how
/// near each lies to what the query means.
pub fn find(
    index: &Index,
    query: &str,
    near: Option<&[f32]>,
    limit: usize,
    wanted: impl Fn(usize) -> bool,
) -> Vec<Hit> {
    let mut scores = index.scores(query);
    let Some(near) = near.filter(|near| near.len() == scores.len() && !near.is_empty()) else {
        return best(scores, limit, wanted);
    };
    // Models differ in how near unlike texts lie: what counts is how much nearer than the usual tool.
    let usual = near.iter().sum::<f32>() / near.len() as f32;
    let room = (1.0 - usual).max(f32::EPSILON);
    for (score, near) in scores.iter_mut().zip(near) {
        *score = *score * WORDS + ((near - usual) / room).max(0.0);
    }
    best(scores, limit, wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::Document;

    #[test]
    fn both_are_heard_and_neither_alone_decides() {
        let names = ["read_file", "press_key", "take_heapsnapshot", "list_files"];
        let index = Index::build(names.map(|name| Document { names: [name, ""], ..Document::default() }));
        let found = |query: &str, near: &[f32]| {
            let hits = find(&index, query, Some(near), 10, |_| true);
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
            find(&index, "file", None, 1, |n| n == 3),
            find(&index, "file", Some(&[0.0; 4]), 4, |n| n == 3)
                .iter()
                .map(|hit| Hit { score: hit.score / WORDS, ..*hit })
                .collect::<Vec<_>>()
        );
    }
}
