//! Reading raw JSON without decoding it: one validating pass that finds the members we care about, and
//! shallow walks over text that was validated before.
//!
//! Deliberately builds no tree: a message is looked at once, its members are byte ranges, everything else
//! passes byte for byte. Knows nothing of JSON-RPC; [`super::message`] gives the members their meaning.
//! The grammar is RFC 8259 with two limits of ours: well-formed UTF-8 and [`MAX_DEPTH`]. Escapes are checked
//! for shape only, so lone surrogates pass as they came.
//!
//! Long, and one thing: the pass and the walks read strings, numbers and blanks by the same few functions.

use std::borrow::Cow;
use std::num::NonZeroUsize;
use std::ops::Range;

/// Deepest nesting of a whole message (OBS-3).
pub const MAX_DEPTH: usize = 128;

/// A range of bytes of a message; messages are shorter than 4 GiB by the line limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Span {
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl Span {
    /// As a range for slicing.
    pub const fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    /// The bytes of `text` that it covers.
    pub fn of(self, text: &[u8]) -> &[u8] {
        &text[self.range()]
    }

    /// Where `part` stands in `text`, of which it is a slice.
    pub fn within(text: &[u8], part: &[u8]) -> Self {
        let start = part.as_ptr() as usize - text.as_ptr() as usize;
        Self { start: start as u32, end: (start + part.len()) as u32 }
    }
}

/// A member of the outermost object or of an object directly below it.
#[derive(Clone, Copy, Debug)]
pub struct Member {
    /// The key, without its quotes, escapes unresolved.
    pub key: Span,
    /// The value.
    pub value: Span,
    /// Index of the outer member whose value holds this one; `None` for an outer member.
    pub parent: Option<u32>,
    /// Whether the key has escapes, so that its bytes are not its text.
    pub escaped: bool,
}

impl Member {
    /// Whether its key, escapes resolved, is `name`.
    #[inline]
    pub fn is(&self, text: &[u8], name: &str) -> bool {
        key_is(self.key.of(text), self.escaped, name)
    }
}

#[inline]
fn key_is(raw: &[u8], escaped: bool, name: &str) -> bool {
    if escaped { unescape(raw).is_some_and(|key| key == name) } else { raw == name.as_bytes() }
}

/// Why a text is not a message that we take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Not JSON, from this byte on.
    #[error("not JSON at byte {0}")]
    Syntax(usize),
    /// Not UTF-8, from this byte on.
    #[error("not UTF-8 at byte {0}")]
    Utf8(usize),
    /// Nested deeper than [`MAX_DEPTH`].
    #[error("nested {0} levels deep, the limit is {MAX_DEPTH}")]
    TooDeep(usize),
}

/// What stands outermost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Root {
    /// An object.
    Object,
    /// An array.
    Array,
    /// Anything else, or nothing.
    #[default]
    Other,
}

/// Room for the members of a message of usual size.
const USUAL: usize = 16;

/// The members of a message, down to the second level. Reused from message to message.
pub struct Index {
    members: Vec<Member>,
    stack: Vec<u8>,
    root: Root,
}

impl Default for Index {
    fn default() -> Self {
        Self::new()
    }
}

impl Index {
    /// An empty index.
    pub fn new() -> Self {
        Self { members: Vec::with_capacity(USUAL), stack: Vec::new(), root: Root::Other }
    }

    /// All members in the order of the text.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The members of the outermost object, with their positions.
    pub fn outer(&self) -> impl Iterator<Item = (u32, &Member)> {
        (0u32..).zip(&self.members).filter(|(_, m)| m.parent.is_none())
    }

    /// The members of the object that is the value of outer member `parent`.
    pub fn children(&self, parent: u32) -> impl Iterator<Item = &Member> {
        self.members[parent as usize + 1..].iter().take_while(move |m| m.parent == Some(parent))
    }

    /// What stood outermost.
    pub fn root(&self) -> Root {
        self.root
    }

    /// Validates `text` and notes its members.
    ///
    /// After an error the members whose values were complete before it are there, so that an id can still be
    /// found; after [`Malformed::TooDeep`] and [`Malformed::Utf8`] all are.
    pub fn read(&mut self, text: &[u8]) -> Result<(), Malformed> {
        self.members.clear();
        self.stack.clear();
        self.stack.shrink_to(4096);
        self.root = Root::Other;
        let mut strings = Strings::default();
        let deepest = match self.scan(text, &mut strings) {
            Ok(deepest) => deepest,
            Err(at) => {
                self.members.retain(|m| m.value.end != 0);
                return Err(Malformed::Syntax(at));
            }
        };
        // Only strings may hold anything else than ASCII.
        if !strings.are_ascii()
            && let Err(error) = std::str::from_utf8(text)
        {
            return Err(Malformed::Utf8(error.valid_up_to()));
        }
        if deepest > MAX_DEPTH { Err(Malformed::TooDeep(deepest)) } else { Ok(()) }
    }

    /// The grammar, iteratively: the stack holds the opening byte of each container around the position.
    /// Answers the deepest nesting, or where the text stops being JSON.
    fn scan(&mut self, text: &[u8], strings: &mut Strings) -> Result<usize, usize> {
        let mut at = skip_space(text, 0);
        let mut deepest = 0;
        // The members whose values are being read, at the first and the second level.
        let mut open = [0usize; 2];
        self.root = match text.get(at) {
            Some(b'{') => Root::Object,
            Some(b'[') => Root::Array,
            _ => Root::Other,
        };
        'value: loop {
            // A value begins at `at`.
            match text.get(at) {
                Some(b'"') => at = string(text, at, strings).ok_or(at)?.get(),
                Some(&opening @ (b'{' | b'[')) => {
                    self.stack.push(opening);
                    deepest = deepest.max(self.stack.len());
                    at = skip_space(text, at + 1);
                    let closing = if opening == b'{' { b'}' } else { b']' };
                    if text.get(at) == Some(&closing) {
                        self.stack.pop();
                        at += 1;
                    } else {
                        if opening == b'{' {
                            at = self.key(text, at, &mut open, strings)?;
                        }
                        continue 'value;
                    }
                }
                Some(b'-' | b'0'..=b'9') => at = number(text, at)?,
                Some(b't') => at = literal(text, at, b"true")?,
                Some(b'f') => at = literal(text, at, b"false")?,
                Some(b'n') => at = literal(text, at, b"null")?,
                _ => return Err(at),
            }
            // A value ended before `at`; close what ends with it.
            loop {
                let depth = self.stack.len();
                let inside = self.stack.last().copied();
                if depth <= 2 && inside == Some(b'{') && self.root == Root::Object {
                    self.members[open[depth - 1]].value.end = at as u32;
                }
                at = skip_space(text, at);
                match (inside, text.get(at)) {
                    (Some(b'{'), Some(b',')) => {
                        at = skip_space(text, at + 1);
                        at = self.key(text, at, &mut open, strings)?;
                        continue 'value;
                    }
                    (Some(b'['), Some(b',')) => {
                        at = skip_space(text, at + 1);
                        continue 'value;
                    }
                    (Some(b'{'), Some(b'}')) | (Some(b'['), Some(b']')) => {
                        self.stack.pop();
                        at += 1;
                    }
                    (None, None) => return Ok(deepest),
                    _ => return Err(at),
                }
            }
        }
    }

    /// Reads a key and its colon; answers where the value begins.
    #[inline]
    fn key(&mut self, text: &[u8], at: usize, open: &mut [usize; 2], strings: &mut Strings) -> Result<usize, usize> {
        if text.get(at) != Some(&b'"') {
            return Err(at);
        }
        strings.escaped = false;
        let end = string(text, at, strings).ok_or(at)?.get();
        let colon = skip_space(text, end);
        if text.get(colon) != Some(&b':') {
            return Err(colon);
        }
        let value = skip_space(text, colon + 1);
        let depth = self.stack.len();
        if depth <= 2 && self.root == Root::Object {
            let member = Member {
                key: Span { start: at as u32 + 1, end: end as u32 - 1 },
                value: Span { start: value as u32, end: 0 },
                parent: (depth == 2).then_some(open[0] as u32),
                escaped: strings.escaped,
            };
            open[depth - 1] = self.members.len();
            self.members.push(member);
        }
        Ok(value)
    }
}

/// The first byte at or after `at` that is not JSON white space.
#[inline]
fn skip_space(text: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\t' | b'\n' | b'\r') = text.get(at) {
        at += 1;
    }
    at
}

/// What is noted while strings are read.
#[derive(Default)]
struct Strings {
    /// One had escapes.
    escaped: bool,
    /// All bytes of all strings, and some beside them, as if laid over each other.
    bits: u64,
}

impl Strings {
    fn are_ascii(&self) -> bool {
        self.bits & 0x8080_8080_8080_8080 == 0
    }
}

/// 1 when a string's reader must stop at this byte.
const fn special(byte: u8) -> u8 {
    (byte == b'"') as u8 | (byte == b'\\') as u8 | (byte < 0x20) as u8
}

/// A bit in each byte of a word, read little end first, that a string's reader may have to stop at: the lowest
/// bit that is set is right, those above it need not be.
const fn stops(word: u64) -> u64 {
    const ONES: u64 = u64::MAX / 255;
    const fn zeros(word: u64) -> u64 {
        word.wrapping_sub(ONES) & !word
    }
    let quote = zeros(word ^ (ONES * b'"' as u64));
    let backslash = zeros(word ^ (ONES * b'\\' as u64));
    let control = word.wrapping_sub(ONES * 0x20) & !word;
    (quote | backslash | control) & (ONES * 0x80)
}

/// The first special byte at or after `at`. Word by word for short strings; for long ones by blocks whose inner
/// loop has no branch, so that it compiles to vector instructions.
fn skip_plain(text: &[u8], mut at: usize, strings: &mut Strings) -> usize {
    const WORD: usize = 8;
    const BLOCK: usize = 64;
    let short = at + BLOCK;
    while let Some(word) = text[at..].first_chunk::<WORD>() {
        let word = u64::from_le_bytes(*word);
        strings.bits |= word;
        let stops = stops(word);
        if stops != 0 {
            return at + stops.trailing_zeros() as usize / 8;
        }
        at += WORD;
        if at == short {
            for block in text[at..].as_chunks::<BLOCK>().0 {
                let (mut hit, mut bits) = (0, 0);
                for &byte in block {
                    hit |= special(byte);
                    bits |= byte;
                }
                strings.bits |= u64::from(bits);
                if hit != 0 {
                    break;
                }
                at += BLOCK;
            }
        }
    }
    while let Some(&byte) = text.get(at).filter(|&&byte| special(byte) == 0) {
        strings.bits |= u64::from(byte);
        at += 1;
    }
    at
}

/// Reads a string that opens at `at`; answers one past its closing quote.
fn string(text: &[u8], at: usize, strings: &mut Strings) -> Option<NonZeroUsize> {
    let mut at = at + 1;
    loop {
        at = skip_plain(text, at, strings);
        match text.get(at) {
            Some(b'"') => return NonZeroUsize::new(at + 1),
            Some(b'\\') => {
                strings.escaped = true;
                at = escape(text, at)?;
            }
            _ => return None,
        }
    }
}

/// Reads an escape; answers where the text goes on.
fn escape(text: &[u8], at: usize) -> Option<usize> {
    match text.get(at + 1)? {
        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(at + 2),
        b'u' => text.get(at + 2..at + 6)?.iter().all(u8::is_ascii_hexdigit).then_some(at + 6),
        _ => None,
    }
}

fn digits(text: &[u8], at: usize) -> Result<usize, usize> {
    let count = text[at.min(text.len())..].iter().take_while(|b| b.is_ascii_digit()).count();
    if count == 0 { Err(at) } else { Ok(at + count) }
}

fn number(text: &[u8], mut at: usize) -> Result<usize, usize> {
    if text.get(at) == Some(&b'-') {
        at += 1;
    }
    at = if text.get(at) == Some(&b'0') { at + 1 } else { digits(text, at)? };
    if text.get(at) == Some(&b'.') {
        at = digits(text, at + 1)?;
    }
    if let Some(b'e' | b'E') = text.get(at) {
        at += 1;
        if let Some(b'+' | b'-') = text.get(at) {
            at += 1;
        }
        at = digits(text, at)?;
    }
    Ok(at)
}

fn literal(text: &[u8], at: usize, word: &[u8]) -> Result<usize, usize> {
    if text[at..].starts_with(word) { Ok(at + word.len()) } else { Err(at) }
}

/// Resolves the escapes of a string's inside; `None` where it is no Unicode text (lone surrogates).
fn unescape(inside: &[u8]) -> Option<String> {
    let mut quoted = Vec::with_capacity(inside.len() + 2);
    quoted.push(b'"');
    quoted.extend_from_slice(inside);
    quoted.push(b'"');
    serde_json::from_slice(&quoted).ok()
}

/// The text of a JSON string, or `None` when `raw` is another kind of value or no Unicode text.
pub fn text_of(raw: &[u8]) -> Option<Cow<'_, str>> {
    let inside = raw.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    if memchr::memchr(b'\\', inside).is_none() {
        return std::str::from_utf8(inside).ok().map(Cow::Borrowed);
    }
    serde_json::from_slice(raw).ok().map(Cow::Owned)
}

/// Appends `text` as a JSON string.
pub fn push_string(out: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(out, text).expect("a string always serialises into memory");
}

/// One past the closing quote of a string that opens at `at` in text that was validated before.
pub fn string_end(text: &[u8], at: usize) -> usize {
    string(text, at, &mut Strings::default()).map_or(text.len(), NonZeroUsize::get)
}

/// One past the end of the value that begins at `at` in text that was validated before.
fn value_end(text: &[u8], mut at: usize) -> usize {
    match text.get(at) {
        Some(b'"') => return string_end(text, at),
        Some(b'{' | b'[') => at += 1,
        _ => {
            let scalar = text.get(at..).unwrap_or_default();
            return at
                + scalar
                    .iter()
                    .take_while(|byte| !matches!(byte, b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r'))
                    .count();
        }
    }
    let mut depth = 1usize;
    while let Some(&byte) = text.get(at) {
        at += 1;
        match byte {
            b'"' => at = string_end(text, at - 1),
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return at;
                }
            }
            _ => {}
        }
    }
    text.len()
}

/// A member of an object, found by [`members`].
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// The key, without quotes, escapes unresolved.
    pub key: &'a [u8],
    /// The raw value.
    pub value: &'a [u8],
    /// Where the value stands in the text that was walked.
    pub at: usize,
    /// Whether the key has escapes.
    escaped: bool,
}

impl Entry<'_> {
    /// Whether its key, escapes resolved, is `name`.
    #[inline]
    pub fn is(&self, name: &str) -> bool {
        key_is(self.key, self.escaped, name)
    }

    /// Its key as text, or `None` where that is no Unicode text.
    pub fn name(&self) -> Option<Cow<'_, str>> {
        if self.escaped {
            unescape(self.key).map(Cow::Owned)
        } else {
            std::str::from_utf8(self.key).ok().map(Cow::Borrowed)
        }
    }
}

/// The members of a raw object that was validated before; nothing for any other value.
pub fn members(object: &[u8]) -> impl Iterator<Item = Entry<'_>> {
    let mut at = match skip_space(object, 0) {
        start if object.get(start) == Some(&b'{') => start + 1,
        _ => object.len(),
    };
    std::iter::from_fn(move || {
        at = skip_space(object, at);
        if object.get(at) == Some(&b',') {
            at = skip_space(object, at + 1);
        }
        if object.get(at) != Some(&b'"') {
            return None;
        }
        let mut strings = Strings::default();
        let key_end = string(object, at, &mut strings).map_or(object.len(), NonZeroUsize::get);
        let key = &object[at + 1..key_end - 1];
        let start = skip_space(object, skip_space(object, key_end) + 1);
        at = value_end(object, start);
        Some(Entry { key, value: &object[start..at], at: start, escaped: strings.escaped })
    })
}

/// The raw value of the first member of that name of a raw object that was validated before.
pub fn member<'a>(object: &'a [u8], name: &str) -> Option<&'a [u8]> {
    members(object).find(|entry| entry.is(name)).map(|entry| entry.value)
}

/// The elements of a raw array that was validated before; nothing for any other value.
pub fn elements(array: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut at = match skip_space(array, 0) {
        start if array.get(start) == Some(&b'[') => start + 1,
        _ => array.len(),
    };
    std::iter::from_fn(move || {
        at = skip_space(array, at);
        if array.get(at) == Some(&b',') {
            at = skip_space(array, at + 1);
        }
        if matches!(array.get(at), None | Some(b']')) {
            return None;
        }
        let start = at;
        at = value_end(array, start);
        Some(&array[start..at])
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &[u8]) -> Result<Index, Malformed> {
        let mut index = Index::new();
        index.read(text).map(|()| index)
    }

    #[test]
    fn members_of_two_levels_are_found() {
        let text =
            br#" {"id" : 7, "params":{"name":"x","_meta":{"deep":{"a":1}},"l":[{"q":1}]},"z":[{"no":1}],"e":{}} "#;
        let index = read(text).unwrap();
        let seen: Vec<_> = index
            .members()
            .iter()
            .map(|m| {
                (std::str::from_utf8(m.key.of(text)).unwrap(), std::str::from_utf8(m.value.of(text)).unwrap(), m.parent)
            })
            .collect();
        assert_eq!(
            seen,
            [
                ("id", "7", None),
                ("params", r#"{"name":"x","_meta":{"deep":{"a":1}},"l":[{"q":1}]}"#, None),
                ("name", r#""x""#, Some(1)),
                ("_meta", r#"{"deep":{"a":1}}"#, Some(1)),
                ("l", r#"[{"q":1}]"#, Some(1)),
                ("z", r#"[{"no":1}]"#, None),
                ("e", "{}", None),
            ]
        );
        assert_eq!(index.children(1).count(), 3);
        assert_eq!(index.children(5).count(), 0);
    }

    #[test]
    fn an_escaped_key_is_the_same_key() {
        let text = br#"{"m\u0065thod":"ping"}"#;
        let index = read(text).unwrap();
        assert!(index.members()[0].is(text, "method"));
        assert!(members(text).next().unwrap().is("method"));
    }

    #[test]
    fn members_before_a_fault_are_kept() {
        let mut index = Index::new();
        let text = br#"{"jsonrpc":"2.0","id":5,"result":{"content":[{"ty"#;
        assert!(matches!(index.read(text), Err(Malformed::Syntax(_))));
        let ids: Vec<_> = index.outer().filter(|(_, m)| m.is(text, "id")).map(|(_, m)| m.value.of(text)).collect();
        assert_eq!(ids, [b"5"]);
    }

    #[test]
    fn depth_is_capped_and_the_id_still_found() {
        for (levels, fine) in [(127, true), (128, true), (129, false), (5000, false)] {
            // The outermost object is a level too.
            let text = format!(r#"{{"x":{}{},"id":9}}"#, "[".repeat(levels - 1), "]".repeat(levels - 1));
            let mut index = Index::new();
            assert_eq!(index.read(text.as_bytes()).is_ok(), fine, "{levels}");
            assert!(index.outer().any(|(_, m)| m.is(text.as_bytes(), "id")));
        }
    }

    #[test]
    fn control_characters_and_bad_bytes_are_refused() {
        assert!(matches!(read(b"{\"a\":\"\t\"}"), Err(Malformed::Syntax(_))));
        assert!(matches!(read(b"{\"a\":\"\xff\"}"), Err(Malformed::Utf8(6))));
        assert!(read("{\"a\":\"\u{2028}\u{7f}\u{feff}\"}".as_bytes()).is_ok());
        assert!(read(br#"{"a":"\ud800"}"#).is_ok());
    }

    #[test]
    fn walks_give_raw_values() {
        let array = br#" [ 1.0 , "a,]\"" , {"k":[1,2]},null,[] ] "#;
        let seen: Vec<_> = elements(array).map(|e| std::str::from_utf8(e).unwrap()).collect();
        assert_eq!(seen, ["1.0", r#""a,]\"""#, r#"{"k":[1,2]}"#, "null", "[]"]);
        let object = br#"{ "a" : 1E2 ,"b":{"c":"}"},"":true}"#;
        let seen: Vec<_> = members(object).map(|e| (e.key, std::str::from_utf8(e.value).unwrap())).collect();
        assert_eq!(seen, [(&b"a"[..], "1E2"), (b"b", r#"{"c":"}"}"#), (b"", "true")]);
        assert!(members(object).all(|e| object[e.at..].starts_with(e.value)));
    }

    /// Text near JSON: pieces of the grammar in random order.
    fn near_json() -> impl Strategy<Value = String> {
        let piece = prop::sample::select(vec![
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            "\"",
            "\"a\"",
            "\"\\u00e9\"",
            "\\",
            "\\u12",
            "1",
            "-",
            "0",
            "01",
            "1.5",
            "1e",
            "e+3",
            ".5",
            "true",
            "fals",
            "null",
            " ",
            "\t",
            "\u{1}",
            "é",
            "\"k\":",
            "{\"k\":1}",
            "[1,2]",
        ]);
        prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
    }

    fn agrees_with_serde(text: &[u8]) {
        // `IgnoredAny` checks the grammar, but neither UTF-8 nor, like us, surrogates.
        let theirs = serde_json::from_slice::<serde::de::IgnoredAny>(text).is_ok();
        match read(text) {
            Ok(_) => assert!(theirs, "we take {text:?}, serde_json does not"),
            Err(Malformed::Syntax(_)) => assert!(!theirs, "serde_json takes {text:?}, we do not"),
            Err(Malformed::Utf8(_) | Malformed::TooDeep(_)) => {}
        }
    }

    proptest! {
        #[test]
        fn agrees_with_serde_json_on_near_json(text in near_json()) {
            agrees_with_serde(text.as_bytes());
        }

        #[test]
        fn agrees_with_serde_json_on_bytes(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            agrees_with_serde(&bytes);
        }

        #[test]
        fn long_strings_end_where_they_end(plain in "[a-zA-Z0-9é ]{0,90}", tail in "[a-z]{0,5}") {
            let text = format!("[\"{plain}\\\"{tail}\",1]");
            agrees_with_serde(text.as_bytes());
            prop_assert_eq!(elements(text.as_bytes()).count(), 2);
        }
    }
}
