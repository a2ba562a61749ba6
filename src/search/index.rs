//! Which tools fit some words: BM25F over the fields of a tool, with what words may stand for and how they may be
//! misspelled.
//!
//! Immutable and pure: built from texts once, asked from any thread. Knows neither catalogue nor names towards hosts; an
//! answer speaks of positions. How much a word of a tool counts is worked out when the index is built, so that asking is
//! adding up. Built by `gateway` for each catalogue that is searched.

use std::collections::HashMap;

use super::read::Document;
use super::shape;
use super::vocabulary::Vocabulary;
use super::words::{is_small, stem, words};

/// A tool that was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hit {
    /// Its position among the documents.
    pub document: usize,
    /// How well it fits; comparable between queries of one index that know the same of meaning.
    pub score: f32,
}

/// The fields, what a word in each counts, and how much a long one is held against it.
const FIELDS: [(f32, f32); 7] = [(3.0, 0.5), (1.5, 0.5), (0.8, 0.0), (1.6, 0.6), (0.8, 0.75), (0.4, 0.75), (0.3, 0.75)];
const NAME: usize = 0;
const TITLE: usize = 1;
const SERVER: usize = 2;
/// The first sentence says what a tool is for; what follows is often about how to use it.
const SUMMARY: usize = 3;
const DESCRIPTION: usize = 4;
const PARAMETERS: usize = 5;
const EXPLAINED: usize = 6;

/// From here on, saying a word again counts little.
const SATURATION: f32 = 1.2;
/// What counts a word that may be meant, beside one that is written.
const MEANT: f32 = 0.55;
/// The same by a whole phrase, which is less ambiguous.
const MEANT_BY_PHRASE: f32 = 0.75;
/// A word that is spelled otherwise, shortened, or a part.
const MISSPELLED: f32 = 0.7;
const SHORTENED: f32 = 0.7;
const PART: f32 = 0.6;
/// What the words of its name are worth that the query speaks of, at most, as a share of the score.
const NAMED: f32 = 0.35;
/// How much of the score hangs on how much of the query a tool speaks of.
const COVERED: f32 = 0.5;
/// What a word counts of a query that no tool says anything like.
const UNHEARD: f32 = 2.5;
/// A query longer than this is cut: no answer gets better.
const MAX_WORDS: usize = 48;
/// A misspelled word is at least this long.
const MIN_MISSPELLED: usize = 4;

#[derive(Clone, Copy, Debug)]
struct Posting {
    document: u32,
    impact: f32,
}

/// The index of some tools.
#[derive(Debug, Default)]
pub struct Index {
    terms: HashMap<Box<str>, u32, foldhash::fast::RandomState>,
    /// The same by number, for who looks for neighbours.
    spelled: Vec<Spelled>,
    /// Where the postings of a term end.
    ends: Vec<u32>,
    postings: Vec<Posting>,
    rarity: Vec<f32>,
    /// The words of each name.
    named: Vec<Box<[u32]>>,
}

#[derive(Debug)]
struct Spelled {
    text: Box<str>,
    /// Which letters it has.
    letters: u32,
}

/// The terms that may say one thing, and how surely.
type Terms = Vec<(u32, f32)>;

/// One thing that a query speaks of.
struct Concept {
    terms: Terms,
    /// What it counts of the whole query.
    counts: f32,
}

impl Index {
    /// Reads the texts of all tools.
    pub fn build<'a>(documents: impl IntoIterator<Item = Document<'a>>) -> Self {
        let mut index = Self::default();
        let vocabulary = Vocabulary::get();
        // By document and term: how often in each field.
        let mut counted: Vec<(u32, u32, [u16; FIELDS.len()])> = Vec::new();
        let mut lengths: Vec<[u16; FIELDS.len()]> = Vec::new();
        // The terms of a word, which most tools share.
        let mut known: HashMap<Box<str>, Box<[u32]>, foldhash::fast::RandomState> = HashMap::default();
        for (document, texts) in documents.into_iter().enumerate() {
            let mut here: HashMap<u32, [u16; FIELDS.len()], foldhash::fast::RandomState> = HashMap::default();
            let mut length = [0u16; FIELDS.len()];
            let mut name: Vec<u32> = Vec::new();
            let (summary, rest) = first_sentence(texts.description);
            let [native, exposed] = texts.names;
            let fields = [
                (NAME, native),
                (NAME, exposed),
                (TITLE, texts.title),
                (SERVER, texts.server),
                (SUMMARY, summary),
                (DESCRIPTION, rest),
                (PARAMETERS, texts.parameters),
                (EXPLAINED, texts.explained),
            ];
            for (field, text) in fields {
                words(text, |word| {
                    // A name may be made of such words alone.
                    let quiet = says_nothing(word);
                    if quiet && field != NAME {
                        return;
                    }
                    let mut put = |term: u32| {
                        let counts = here.entry(term).or_default();
                        if field == NAME && counts[NAME] > 0 {
                            return;
                        }
                        counts[field] = counts[field].saturating_add(1);
                        if quiet {
                            return;
                        }
                        length[field] = length[field].saturating_add(1);
                        if field == NAME {
                            name.push(term);
                        }
                    };
                    if let Some(terms) = known.get(word) {
                        terms.iter().for_each(|term| put(*term));
                        return;
                    }
                    let parts = vocabulary.split(word).map_or([None; 2], |(a, b)| [Some(a), Some(b)]);
                    let spelled = [Some(word)].into_iter().chain(parts).flatten();
                    let terms: Box<[u32]> = spelled.map(|word| index.term(&stem(word))).collect();
                    terms.iter().for_each(|term| put(*term));
                    known.insert(word.into(), terms);
                });
            }
            counted.extend(here.into_iter().map(|(term, counts)| (term, document as u32, counts)));
            lengths.push(length);
            index.named.push(name.into());
        }
        index.weigh(counted, &lengths);
        index
    }

    fn term(&mut self, stem: &str) -> u32 {
        if let Some(term) = self.terms.get(stem) {
            return *term;
        }
        let term = self.spelled.len() as u32;
        self.terms.insert(stem.into(), term);
        self.spelled.push(Spelled { text: stem.into(), letters: letters(stem) });
        term
    }

    fn weigh(&mut self, mut counted: Vec<(u32, u32, [u16; FIELDS.len()])>, lengths: &[[u16; FIELDS.len()]]) {
        let documents = lengths.len().max(1) as f32;
        let average: Vec<f32> = (0..FIELDS.len())
            .map(|field| lengths.iter().map(|length| f32::from(length[field])).sum::<f32>() / documents)
            .collect();
        counted.sort_unstable_by_key(|(term, document, _)| (*term, *document));
        self.postings.reserve_exact(counted.len());
        for of_term in counted.chunk_by(|a, b| a.0 == b.0) {
            for (_, document, counts) in of_term {
                let length = &lengths[*document as usize];
                let mut weight = 0.0;
                for (field, (counts_for, held)) in FIELDS.iter().enumerate() {
                    let long = f32::from(length[field]) / average[field].max(1.0);
                    weight += counts_for * f32::from(counts[field]) / (1.0 - held + held * long);
                }
                let impact = weight * (SATURATION + 1.0) / (SATURATION + weight);
                self.postings.push(Posting { document: *document, impact });
            }
            self.ends.push(self.postings.len() as u32);
            let found = of_term.len() as f32;
            self.rarity.push((1.0 + (documents - found + 0.5) / (found + 0.5)).ln());
        }
    }

    fn postings(&self, term: u32) -> &[Posting] {
        let at = term as usize;
        let from = at.checked_sub(1).map_or(0, |before| self.ends[before]) as usize;
        &self.postings[from..self.ends[at] as usize]
    }

    /// How many tools it has.
    pub fn len(&self) -> usize {
        self.named.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.named.is_empty()
    }

    /// How many bytes it holds, about.
    pub fn size(&self) -> usize {
        let texts: usize = self.spelled.iter().map(|spelled| spelled.text.len()).sum();
        let names: usize = self.named.iter().map(|name| name.len() * 4 + 16).sum();
        texts * 2 + self.spelled.len() * 56 + names + self.postings.len() * 8
    }

    /// The tools that fit best, `limit` of those that `wanted` takes, the best first; none where no word fits.
    pub fn search(&self, query: &str, limit: usize, wanted: impl Fn(usize) -> bool) -> Vec<Hit> {
        best(self.scores(query), limit, wanted)
    }

    /// How well each tool fits, nothing where no word does.
    pub(super) fn scores(&self, query: &str) -> Vec<f32> {
        let concepts = self.concepts(query);
        let mut scores = vec![0f32; self.named.len()];
        let mut best = vec![0f32; self.named.len()];
        let mut covered = vec![0f32; self.named.len()];
        let mut touched: Vec<u32> = Vec::new();
        let all: f32 = concepts.iter().map(|concept| concept.counts).sum();
        let mut spoken: HashMap<u32, f32, foldhash::fast::RandomState> = HashMap::default();
        for concept in &concepts {
            for &(term, sure) in &concept.terms {
                let known = spoken.entry(term).or_default();
                *known = known.max(sure);
                let rarity = self.rarity[term as usize];
                for posting in self.postings(term) {
                    let best = &mut best[posting.document as usize];
                    if *best == 0.0 {
                        touched.push(posting.document);
                    }
                    *best = best.max(sure * rarity * posting.impact);
                }
            }
            for document in touched.drain(..) {
                scores[document as usize] += std::mem::take(&mut best[document as usize]);
                covered[document as usize] += concept.counts;
            }
        }
        let asked = self.asked(&concepts).sqrt();
        for (document, score) in scores.iter_mut().enumerate().filter(|(_, score)| **score > 0.0) {
            let named = NAMED * self.named(document, &spoken);
            let covered = COVERED * covered[document] / all.max(f32::EPSILON);
            *score *= (1.0 + named) * (1.0 - COVERED + covered) / asked;
        }
        scores
    }

    /// What a query asks for in all, by how rare its words are; one that no tool has is as rare as any. A score is held
    /// against the root of it: half way between how much was found, and which share of what was asked that is.
    fn asked(&self, concepts: &[Concept]) -> f32 {
        let unheard = (2.0 * self.named.len() as f32 + 2.0).ln();
        let rarest = |terms: &Terms| terms.iter().map(|(term, _)| self.rarity[*term as usize]).max_by(f32::total_cmp);
        let spoken = concepts.iter().filter(|concept| concept.counts > 0.0);
        spoken.map(|concept| rarest(&concept.terms).unwrap_or(unheard)).sum::<f32>().max(f32::EPSILON)
    }

    /// How much of its name the query speaks of: rare words of the name count more.
    fn named(&self, document: usize, spoken: &HashMap<u32, f32, foldhash::fast::RandomState>) -> f32 {
        let (mut all, mut said) = (0.0, 0.0);
        for term in &self.named[document] {
            let rarity = self.rarity[*term as usize];
            all += rarity;
            said += rarity * spoken.get(term).copied().unwrap_or_default();
        }
        if all > 0.0 { said / all } else { 0.0 }
    }

    /// What a query speaks of.
    fn concepts(&self, query: &str) -> Vec<Concept> {
        let vocabulary = Vocabulary::get();
        let mut concepts: Vec<Concept> = Vec::new();
        let mut said: Vec<String> = Vec::new();
        words(query, |word| {
            if said.len() < MAX_WORDS {
                said.push(word.to_owned());
            }
        });
        let stems: Vec<String> = said.iter().map(|word| stem(word)).collect();
        let all_quiet = said.iter().all(|word| says_nothing(word));
        let meant =
            |words: &[String], sure: f32| words.iter().filter_map(|word| self.known(word, sure)).collect::<Terms>();
        // Beside what single words say, so it makes the query no longer.
        let beside = |terms| Concept { terms, counts: 0.0 };
        for (n, word) in said.iter().enumerate() {
            // Phrases, the small words in them too.
            for length in 2..=vocabulary.longest().min(said.len() - n) {
                concepts.push(beside(meant(vocabulary.meant(&stems[n..n + length]), MEANT_BY_PHRASE)));
            }
            // Two words that a tool writes as one.
            let joined = said.get(n + 1).and_then(|next| self.known(&stem(&format!("{word}{next}")), 1.0));
            concepts.push(beside(joined.into_iter().collect()));
            if says_nothing(word) && !all_quiet || said[..n].contains(word) {
                continue;
            }
            let mut terms = meant(vocabulary.meant(&stems[n..=n]), MEANT);
            match self.known(&stems[n], 1.0) {
                Some(term) => terms.push(term),
                None => self.unknown(&stems[n], &mut terms),
            }
            let rarity = |(term, sure): &(u32, f32)| sure * self.rarity[*term as usize];
            let counts = terms.iter().map(rarity).max_by(f32::total_cmp).unwrap_or(UNHEARD);
            concepts.push(Concept { terms, counts });
        }
        for hinted in shape::hints(query) {
            let stems: Vec<String> = hinted.iter().map(|word| stem(word)).collect();
            concepts.push(beside(meant(&stems, MEANT)));
        }
        concepts
    }

    fn known(&self, stem: &str, sure: f32) -> Option<(u32, f32)> {
        self.terms.get(stem).map(|term| (*term, sure))
    }

    /// A word that no tool has: what it is short for, misspells, or is made of.
    fn unknown(&self, word: &str, concept: &mut Terms) {
        if !word.is_ascii() || word.len() < MIN_MISSPELLED || word.bytes().all(|b| b.is_ascii_digit()) {
            return;
        }
        let before = concept.len();
        let allowed = if word.len() >= 8 { 2 } else { 1 };
        let own = letters(word);
        let mut nearest = allowed + 1;
        for (term, spelled) in self.spelled.iter().enumerate() {
            let text = &*spelled.text;
            if text.len() > word.len() && text.starts_with(word) {
                concept.push((term as u32, SHORTENED));
            } else if text.len().abs_diff(word.len()) <= allowed
                && (spelled.letters ^ own).count_ones() as usize <= 2 * allowed
                && text.len() >= MIN_MISSPELLED
                && text.as_bytes()[0] == word.as_bytes()[0]
            {
                let distance = strsim::osa_distance(text, word);
                if distance <= allowed && distance <= nearest {
                    if distance < nearest {
                        concept.retain(|(_, sure)| *sure != MISSPELLED);
                        nearest = distance;
                    }
                    concept.push((term as u32, MISSPELLED));
                }
            }
        }
        if concept.len() == before && word.len() >= 6 {
            for at in 3..word.len() - 2 {
                let (a, b) = word.split_at(at);
                if let (Some(a), Some(b)) = (self.known(&stem(a), PART), self.known(&stem(b), PART)) {
                    concept.extend([a, b]);
                    break;
                }
            }
        }
    }
}

/// The best of these scores, `limit` of those that `wanted` takes.
pub(super) fn best(scores: Vec<f32>, limit: usize, wanted: impl Fn(usize) -> bool) -> Vec<Hit> {
    let fits = scores.into_iter().enumerate().filter(|(document, score)| *score > 0.0 && wanted(*document));
    let mut hits: Vec<Hit> = fits.map(|(document, score)| Hit { document, score }).collect();
    let better = |a: &Hit, b: &Hit| b.score.total_cmp(&a.score).then(a.document.cmp(&b.document));
    if hits.len() > limit && limit > 0 {
        hits.select_nth_unstable_by(limit - 1, better);
    }
    hits.truncate(limit);
    hits.sort_unstable_by(better);
    hits
}

/// Numbers are values of arguments: where a tool mentions one it is by chance.
fn says_nothing(word: &str) -> bool {
    is_small(word) || word.bytes().all(|b| b.is_ascii_digit())
}

/// Which letters a word has.
fn letters(word: &str) -> u32 {
    word.bytes().filter(u8::is_ascii_lowercase).fold(0, |set, letter| set | 1 << (letter - b'a'))
}

/// A text up to its first full stop or line end, and what follows.
fn first_sentence(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    let end = text.match_indices(['.', '\n', '!', '?', ';']).find_map(|(at, mark)| {
        let after = at + mark.len();
        (mark == "\n" || text[after..].starts_with(char::is_whitespace) || after == text.len()).then_some(after)
    });
    text.split_at(end.unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOOLS: &[(&str, &str)] = &[
        ("browser_handle_dialog", "Accept or dismiss a dialog."),
        ("performance_start_trace", "Start a performance trace of the page."),
        ("takeHeapsnapshot", "Capture the memory of the page."),
        ("read-media-file", "Reads an image or audio file. Returns it encoded."),
        ("git_reset", "Unstages all changes."),
        ("git_log", "Shows the commit history."),
        ("list_directory", "List the files in a directory."),
    ];

    fn index() -> Index {
        let document = |(name, description): &(&'static str, &'static str)| Document {
            names: [name, ""],
            description,
            server: name.split('_').next().unwrap(),
            ..Document::default()
        };
        Index::build(TOOLS.iter().map(document))
    }

    #[track_caller]
    fn first(query: &str, expected: &str) {
        let found = index().search(query, 5, |_| true);
        assert_eq!(found.first().map(|hit| TOOLS[hit.document].0), Some(expected), "{query}: {found:?}");
    }

    #[test]
    fn names_are_found_however_they_are_written() {
        for query in ["handle dialog", "browser_handle_dialog", "browserHandleDialog", "Handling Dialogs"] {
            first(query, "browser_handle_dialog");
        }
        first("heap snapshot", "takeHeapsnapshot");
        first("media file", "read-media-file");
        let small = Index::build([Document { names: ["t", ""], ..Document::default() }, Document::default()]);
        assert_eq!(small.search("t", 5, |_| true).len(), 1, "a name is found by itself, whatever it is");
    }

    #[test]
    fn what_people_say_finds_what_tools_say() {
        first("popup", "browser_handle_dialog");
        first("why is it so sluggish", "performance_start_trace");
        first("show me a photo", "read-media-file");
        first("what is in this folder", "list_directory");
    }

    #[test]
    fn misspelled_and_shortened_words_are_found() {
        first("perfomance", "performance_start_trace");
        first("diretcory", "list_directory");
        first("perf", "performance_start_trace");
    }

    #[test]
    fn what_nothing_fits_finds_nothing() {
        assert!(index().search("", 5, |_| true).is_empty());
        assert!(index().search("the 17 !!", 5, |_| true).is_empty());
        assert!(index().search("zzzzqqq", 5, |_| true).is_empty());
        assert!(Index::default().search("file", 5, |_| true).is_empty());
    }

    #[test]
    fn a_query_that_is_not_understood_fits_less() {
        let score = |query: &str| index().search(query, 1, |_| true)[0].score;
        // By what is covered alone it would be two thirds.
        assert!(score("dialog lisbon") < score("dialog") / 2.0, "{} {}", score("dialog lisbon"), score("dialog"));
        assert!(score("handle dialog") > score("dialog"));
    }

    #[test]
    fn the_answer_is_bounded_filtered_and_in_order() {
        let index = index();
        let all = index.search("file page git", 100, |_| true);
        assert!(all.len() > 3 && all.is_sorted_by(|a, b| a.score >= b.score), "{all:?}");
        assert_eq!(index.search("file page git", 2, |_| true), all[..2]);
        assert!(index.search("file page git", 0, |_| true).is_empty());
        let odd: Vec<_> = index.search("file page git", 100, |n| n % 2 == 1).iter().map(|hit| hit.document).collect();
        let expected: Vec<_> = all.iter().map(|hit| hit.document).filter(|n| n % 2 == 1).collect();
        assert_eq!(odd, expected);
        let long = "file ".repeat(100_000);
        assert!(!index.search(&long, 5, |_| true).is_empty());
    }

    proptest::proptest! {
        #[test]
        fn any_query_and_any_text_are_fine(query in ".{0,80}", name in ".{0,20}", description in ".{0,60}") {
            let document = Document { names: [&name, ""], description: &description, ..Document::default() };
            let index = Index::build([document, Document::default()]);
            for hit in index.search(&query, 5, |_| true) {
                proptest::prop_assert!(hit.score > 0.0 && hit.score.is_finite());
            }
            // What was written is found by itself, where it says anything.
            let says = description.split(|c: char| !c.is_alphanumeric()).any(|w| w.len() > 3 && w.bytes().all(|b| b.is_ascii_lowercase()) && !is_small(w));
            proptest::prop_assert!(!says || !index.search(&description, 5, |_| true).is_empty());
        }
    }
}
