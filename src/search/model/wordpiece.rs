//! Text → the pieces of words that a BERT model knows.
//!
//! What its tokenizer file says is done here: characters that show nothing go, letters become small and lose their accents,
//! words are cut at blanks and marks, and each is the longest pieces of the vocabulary that make it up. Special pieces are put
//! around a text and never read out of it. Knows no numbers. Used by `super`.

use std::collections::HashMap;
use std::sync::OnceLock;

use icu_normalizer::DecomposingNormalizerBorrowed;
use regex::Regex;
use serde::Deserialize;

use super::ModelError;

/// The file that says all of it, and the two of old that say the vocabulary and the letters.
pub(super) const TOKENIZER: &str = "tokenizer.json";
pub(super) const VOCABULARY: &str = "vocab.txt";

/// What takes a text apart.
pub(super) struct WordPiece {
    pieces: HashMap<Box<str>, u32, foldhash::fast::RandomState>,
    normal: Normal,
    /// What stands before pieces that go on a word.
    within: String,
    longest: usize,
    begin: u32,
    end: u32,
    unknown: u32,
}

#[derive(Deserialize)]
struct File {
    model: Model,
    normalizer: Option<Normal>,
    pre_tokenizer: Option<Kind>,
}

#[derive(Deserialize)]
struct Kind {
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
struct Model {
    #[serde(rename = "type")]
    kind: Option<String>,
    vocab: serde_json::Value,
    unk_token: Option<String>,
    continuing_subword_prefix: Option<String>,
    max_input_chars_per_word: Option<usize>,
}

/// How letters are written before they are looked for.
#[derive(Deserialize)]
struct Normal {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default = "yes")]
    clean_text: bool,
    #[serde(default = "yes")]
    handle_chinese_chars: bool,
    strip_accents: Option<bool>,
    #[serde(default = "yes")]
    lowercase: bool,
}

fn yes() -> bool {
    true
}

impl WordPiece {
    /// Of `tokenizer.json`.
    pub(super) fn read(file: &[u8]) -> Result<Self, ModelError> {
        let amiss = |what: String| ModelError::Content { file: TOKENIZER, what };
        let file: File = serde_json::from_slice(file).map_err(|error| amiss(error.to_string()))?;
        let kind = file.model.kind.as_deref().unwrap_or("WordPiece");
        if kind != "WordPiece" {
            return Err(amiss(format!("it is of the kind {kind}; WordPiece is read")));
        }
        let normal = file.normalizer.ok_or_else(|| amiss("it has no normalizer".to_owned()))?;
        let cut = file.pre_tokenizer.map(|cut| cut.kind).unwrap_or_default();
        for (kind, read) in [(&normal.kind, "BertNormalizer"), (&cut, "BertPreTokenizer")] {
            if kind != read {
                return Err(amiss(format!("it has `{kind}`; {read} is read")));
            }
        }
        let pieces: HashMap<Box<str>, u32, _> =
            serde_json::from_value(file.model.vocab).map_err(|error| amiss(format!("its vocabulary: {error}")))?;
        let within = file.model.continuing_subword_prefix.unwrap_or_else(|| "##".to_owned());
        let longest = file.model.max_input_chars_per_word.unwrap_or(100).min(100);
        let unknown = file.model.unk_token.unwrap_or_else(|| "[UNK]".to_owned());
        Self::of(pieces, normal, within, longest, &unknown).map_err(amiss)
    }

    /// Of `vocab.txt`: a piece a line.
    pub(super) fn of_lines(text: &str, lowercase: bool) -> Result<Self, ModelError> {
        let pieces = text.lines().map(|line| line.trim_end().into()).zip(0..).collect();
        let kind = String::new();
        let normal = Normal { kind, clean_text: true, handle_chinese_chars: true, strip_accents: None, lowercase };
        let amiss = |what: String| ModelError::Content { file: VOCABULARY, what };
        Self::of(pieces, normal, "##".to_owned(), 100, "[UNK]").map_err(amiss)
    }

    fn of(
        pieces: HashMap<Box<str>, u32, foldhash::fast::RandomState>,
        normal: Normal,
        within: String,
        longest: usize,
        unknown: &str,
    ) -> Result<Self, String> {
        let number = |piece: &str| pieces.get(piece).copied().ok_or_else(|| format!("its vocabulary has no `{piece}`"));
        let (begin, end, unknown) = (number("[CLS]")?, number("[SEP]")?, number(unknown)?);
        Ok(Self { pieces, normal, within, longest, begin, end, unknown })
    }

    /// The highest number of a piece.
    pub(super) fn highest(&self) -> u32 {
        self.pieces.values().copied().max().unwrap_or_default()
    }

    /// The numbers of the pieces of a text, `most` at most with those around it.
    pub(super) fn pieces(&self, text: &str, most: usize) -> Vec<u32> {
        let mut numbers = vec![self.begin];
        let most = most.saturating_sub(1).max(1);
        for word in cut(&self.normal.apply(text)) {
            if numbers.len() >= most {
                break;
            }
            self.word(word, &mut numbers);
        }
        numbers.truncate(most);
        numbers.push(self.end);
        numbers
    }

    fn word(&self, word: &str, numbers: &mut Vec<u32>) {
        let before = numbers.len();
        let mut rest = word;
        let mut spelled = String::new();
        while !rest.is_empty() && word.chars().take(self.longest + 1).count() <= self.longest {
            let ends = rest.char_indices().map(|(at, letter)| at + letter.len_utf8()).rev();
            let found = ends.into_iter().find_map(|end| {
                spelled.clear();
                if numbers.len() > before {
                    spelled.push_str(&self.within);
                }
                spelled.push_str(&rest[..end]);
                self.pieces.get(spelled.as_str()).map(|number| (*number, end))
            });
            let Some((number, end)) = found else { break };
            numbers.push(number);
            rest = &rest[end..];
        }
        if !rest.is_empty() {
            numbers.truncate(before);
            numbers.push(self.unknown);
        }
    }
}

impl Normal {
    fn apply(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        for letter in text.chars() {
            if self.clean_text && (letter == '\0' || letter == '\u{fffd}' || is_control(letter)) {
                continue;
            }
            if self.clean_text && letter.is_whitespace() {
                out.push(' ');
            } else if self.handle_chinese_chars && is_han(letter) {
                out.extend([' ', letter, ' ']);
            } else {
                out.push(letter);
            }
        }
        if self.strip_accents.unwrap_or(self.lowercase) && !out.is_ascii() {
            let apart = DecomposingNormalizerBorrowed::new_nfd().normalize(&out);
            out = marks().replace_all(&apart, "").into_owned();
        }
        if self.lowercase { out.to_lowercase() } else { out }
    }
}

/// A text at its blanks, and at each mark, which is a word of its own.
fn cut(text: &str) -> impl Iterator<Item = &str> {
    text.split(char::is_whitespace).flat_map(|word| {
        let mut rest = word;
        std::iter::from_fn(move || {
            let mut letters = rest.char_indices();
            let (_, first) = letters.next()?;
            let end = if is_mark(first) {
                first.len_utf8()
            } else {
                letters.find(|(_, letter)| is_mark(*letter)).map_or(rest.len(), |(at, _)| at)
            };
            let (word, others) = rest.split_at(end);
            rest = others;
            Some(word)
        })
    })
}

fn class<'r>(once: &'r OnceLock<Regex>, of: &str) -> &'r Regex {
    once.get_or_init(|| Regex::new(of).expect("invariant: a class of Unicode"))
}

/// Accents and what else stands on letters.
fn marks() -> &'static Regex {
    static MARKS: OnceLock<Regex> = OnceLock::new();
    class(&MARKS, r"\p{Mn}")
}

fn is_mark(letter: char) -> bool {
    static MARKS: OnceLock<Regex> = OnceLock::new();
    if letter.is_ascii() {
        return letter.is_ascii_punctuation();
    }
    class(&MARKS, r"\p{P}").is_match(letter.encode_utf8(&mut [0; 4]))
}

fn is_control(letter: char) -> bool {
    static OTHERS: OnceLock<Regex> = OnceLock::new();
    if matches!(letter, '\t' | '\n' | '\r') {
        return false;
    }
    if letter.is_ascii() {
        return letter.is_ascii_control();
    }
    class(&OTHERS, r"[\p{Cc}\p{Cf}\p{Co}]").is_match(letter.encode_utf8(&mut [0; 4]))
}

/// Writing whose characters are words.
fn is_han(letter: char) -> bool {
    matches!(letter,
        '\u{4e00}'..='\u{9fff}' | '\u{3400}'..='\u{4dbf}' | '\u{20000}'..='\u{2a6df}' | '\u{2a700}'..='\u{2b73f}'
        | '\u{2b740}'..='\u{2b81f}' | '\u{2b920}'..='\u{2ceaf}' | '\u{f900}'..='\u{faff}' | '\u{2f800}'..='\u{2fa1f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIECES: &[&str] = &[
        "[PAD]", "[UNK]", "[CLS]", "[SEP]", "read", "##ing", "##s", "a", "file", "_", "!", "uber", "日", "本", "##er",
        "Read",
    ];

    fn file(change: &str) -> Vec<u8> {
        let vocab: serde_json::Value = PIECES
            .iter()
            .map(|piece| piece.to_string())
            .zip(0..)
            .collect::<HashMap<_, u32>>()
            .into_iter()
            .map(|(piece, number)| (piece, number.into()))
            .collect::<serde_json::Map<_, _>>()
            .into();
        let text = format!(
            r#"{{"model":{{"type":"WordPiece","vocab":{vocab},"unk_token":"[UNK]","max_input_chars_per_word":12}},
            "normalizer":{{"type":"BertNormalizer","lowercase":true,"strip_accents":null}},"pre_tokenizer":{{"type":"BertPreTokenizer"}}}}"#
        );
        let (from, to) = change.split_once('>').unwrap();
        text.replace(from, to).into_bytes()
    }

    fn spelled(tokenizer: &WordPiece, text: &str) -> String {
        let numbers = tokenizer.pieces(text, 12);
        numbers.iter().map(|number| PIECES[*number as usize]).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn words_become_the_longest_pieces_there_are() {
        let tokenizer = WordPiece::read(&file(">")).unwrap();
        for (text, expected) in [
            ("Reading a_file!", "[CLS] read ##ing a _ file ! [SEP]"),
            ("ÜBER\tfiles\u{200b}", "[CLS] uber file ##s [SEP]"),
            ("日本 reads", "[CLS] 日 本 read ##s [SEP]"),
            ("reader readx", "[CLS] read ##er [UNK] [SEP]"),
            ("readreadread1", "[CLS] [UNK] [SEP]"),
            ("[SEP] “a”", "[CLS] [UNK] [UNK] [UNK] [UNK] a [UNK] [SEP]"),
            ("", "[CLS] [SEP]"),
            (&"a ".repeat(100), "[CLS] a a a a a a a a a a [SEP]"),
        ] {
            assert_eq!(spelled(&tokenizer, text), expected, "{text}");
        }
        assert_eq!(tokenizer.highest() as usize, PIECES.len() - 1);
        let lines = WordPiece::of_lines(&PIECES.join("\n"), false).unwrap();
        assert_eq!(spelled(&lines, "Reading Ü"), "[CLS] Read ##ing [UNK] [SEP]");
    }

    #[test]
    fn other_kinds_are_refused_by_name() {
        for (change, expected) in [
            (r#""WordPiece">"BPE""#, "of the kind BPE"),
            ("BertNormalizer>NFC", "`NFC`; BertNormalizer is read"),
            ("BertPreTokenizer>Whitespace", "`Whitespace`; BertPreTokenizer is read"),
            ("[CLS]>[X]", "no `[CLS]`"),
            (r#""unk_token":"[UNK]">"unk_token":"[Y]""#, "no `[Y]`"),
            (r#""normalizer">"other""#, "no normalizer"),
            ("}}>", ""),
        ] {
            let error = WordPiece::read(&file(change)).err().map(|error| error.to_string());
            assert!(error.as_deref().is_some_and(|error| error.contains(expected)), "{change}: {error:?}");
        }
    }
}
