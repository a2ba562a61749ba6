//! Text → words as the index knows them: names taken apart, small words out, endings off.
//!
//! Knows no catalogue and no weights. Used by `index`, on both sides: what it does to a definition it does to a query.

use std::sync::OnceLock;

use frostem::{Algorithm, Stemmer};

/// Words that say nothing of what a tool does. Sorted.
const SMALL: &[&str] = &[
    "a",
    "about",
    "after",
    "again",
    "also",
    "am",
    "an",
    "and",
    "any",
    "are",
    "as",
    "at",
    "be",
    "because",
    "been",
    "before",
    "being",
    "but",
    "by",
    "can",
    "could",
    "d",
    "did",
    "do",
    "does",
    "doing",
    "don",
    "done",
    "for",
    "from",
    "get",
    "gets",
    "give",
    "given",
    "gives",
    "go",
    "had",
    "has",
    "have",
    "having",
    "he",
    "help",
    "her",
    "here",
    "him",
    "his",
    "how",
    "i",
    "if",
    "im",
    "in",
    "into",
    "is",
    "it",
    "its",
    "just",
    "let",
    "like",
    "ll",
    "m",
    "me",
    "more",
    "my",
    "need",
    "no",
    "not",
    "of",
    "on",
    "onto",
    "or",
    "our",
    "out",
    "over",
    "please",
    "re",
    "s",
    "should",
    "so",
    "some",
    "somewhere",
    "such",
    "t",
    "take",
    "takes",
    "taking",
    "than",
    "that",
    "the",
    "their",
    "them",
    "then",
    "there",
    "these",
    "they",
    "this",
    "those",
    "through",
    "to",
    "too",
    "us",
    "use",
    "used",
    "using",
    "ve",
    "very",
    "want",
    "wants",
    "was",
    "we",
    "were",
    "what",
    "when",
    "where",
    "which",
    "who",
    "whom",
    "will",
    "with",
    "without",
    "would",
    "you",
    "your",
];

/// Whether a word says nothing of what a tool does.
pub(super) fn is_small(word: &str) -> bool {
    SMALL.binary_search(&word).is_ok()
}

/// A word without its ending.
pub(super) fn stem(word: &str) -> String {
    static STEMMER: OnceLock<Stemmer> = OnceLock::new();
    if !word.is_ascii() || word.len() < 3 || word.bytes().any(|b| b.is_ascii_digit()) {
        return word.to_owned();
    }
    STEMMER.get_or_init(|| Stemmer::new(Algorithm::English)).stem(word).into_owned()
}

/// The words of a text in their order, in lower case: split where it has no letters, at the humps of `camelCase`, and
/// writing without blanks into pairs of letters. A word with humps stands whole before its parts.
pub(super) fn words(text: &str, mut each: impl FnMut(&str)) {
    for run in text.split(|c: char| !(c.is_alphanumeric() || c == '\'' || c == '’')) {
        let run: std::borrow::Cow<'_, str> =
            if run.contains(['\'', '’']) { run.replace(['\'', '’'], "").into() } else { run.into() };
        if run.is_empty() {
            continue;
        }
        if run.chars().any(is_blankless) {
            pairs(&run, &mut each);
            continue;
        }
        let lower = run.to_lowercase();
        each(&lower);
        let parts = humps(&run);
        if parts.len() > 1 {
            parts.iter().for_each(|part| each(&part.to_lowercase()));
        }
    }
}

/// Writing that puts no blanks between words.
fn is_blankless(c: char) -> bool {
    matches!(c, '\u{0e00}'..='\u{0eff}' | '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}')
}

fn pairs(run: &str, each: &mut impl FnMut(&str)) {
    let ends: Vec<usize> = run.char_indices().map(|(at, _)| at).chain([run.len()]).collect();
    if ends.len() < 3 {
        each(run);
    }
    for pair in ends.windows(3) {
        each(&run[pair[0]..pair[2]]);
    }
}

/// `fetchDocsURL` → `fetch`, `Docs`, `URL`; `sep1034` stays.
fn humps(run: &str) -> Vec<&str> {
    let chars: Vec<(usize, char)> = run.char_indices().collect();
    let mut parts = Vec::new();
    let mut from = 0;
    for n in 1..chars.len() {
        let (before, (at, here)) = (chars[n - 1].1, chars[n]);
        let next_is_lower = chars.get(n + 1).is_some_and(|(_, next)| next.is_lowercase());
        if here.is_uppercase() && (before.is_lowercase() || before.is_uppercase() && next_is_lower) {
            parts.push(&run[from..at]);
            from = at;
        }
    }
    parts.push(&run[from..]);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<String> {
        let mut found = Vec::new();
        words(text, |word| found.push(word.to_owned()));
        found
    }

    #[test]
    fn names_are_taken_apart() {
        assert_eq!(of("git_set-working.dir"), ["git", "set", "working", "dir"]);
        assert_eq!(of("generateReactCode"), ["generatereactcode", "generate", "react", "code"]);
        assert_eq!(of("getURLList x2"), ["geturllist", "get", "url", "list", "x2"]);
        assert_eq!(of("GROSSES Öl, don't"), ["grosses", "öl", "dont"]);
        assert_eq!(of("日本語 a"), ["日本", "本語", "a"]);
        assert!(of("  --- ").is_empty());
    }

    #[test]
    fn endings_go_and_small_words_are_known() {
        assert_eq!(["requests", "searching", "files"].map(stem), ["request", "search", "file"]);
        assert!(SMALL.is_sorted() && is_small("the") && !is_small("tree"));
    }
}
