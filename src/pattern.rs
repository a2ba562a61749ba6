//! Patterns over names: the only place that compiles and matches them.
//!
//! Made by `config` when it checks what is written (allow and deny lists, `gateway.pass_env`) and by `policy`
//! when it compiles its rules, so that what was accepted is what is matched. Deliberately knows not what the
//! names are of.
//!
//! An anchored glob, case-sensitive, over the characters of the whole name: `*` is any run (also of `/`, since
//! a native name is one segment however it looks), `?` one character, `[abc]`, `[a-z]` and `[!a]` sets, `\`
//! takes the next character as it is. Nothing else is special; braces are braces. Matching is own code because
//! glob libraries are made for paths: they compare bytes, so that `?` would be half of an `ö`, and give `/`
//! and `**` meanings that names do not have. The time is bounded by pattern length × name length.
//!
//! `re:…` is a regular expression instead, over the whole name as well, by an engine whose time is linear in it.

use regex::{Regex, RegexBuilder};

/// Longest pattern in bytes (D-30).
const MAX_LEN: usize = 1000;

/// Most memory of a compiled regular expression, in bytes.
const MAX_COMPILED: usize = 1 << 20;

/// A compiled pattern. Two are equal when they are written alike.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: Box<str>,
    form: Form,
}

#[derive(Clone, Debug)]
enum Form {
    Glob(Box<[Piece]>),
    Regex(Regex),
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Pattern {}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    /// Any run of characters, also none.
    Any,
    /// One character, whichever.
    One,
    /// This character.
    Char(char),
    /// One character of these ranges, or one outside them.
    Set { ranges: Box<[(char, char)]>, negated: bool },
}

/// Why a text is no pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// Nothing can match it.
    #[error("an empty pattern matches nothing")]
    Empty,
    /// Longer than a pattern may be.
    #[error("the pattern is longer than {MAX_LEN} bytes")]
    TooLong,
    /// A `[` without its `]`, or a set with nothing in it.
    #[error("`{0}`: a set `[…]` is empty or not closed (write `\\[` for the character)")]
    Set(String),
    /// A range that runs backwards.
    #[error("`{0}`: a range in a set runs backwards")]
    Range(String),
    /// A backslash with nothing behind it.
    #[error("`{0}`: a `\\` at the end escapes nothing")]
    Escape(String),
    /// A regular expression that does not compile.
    #[error("`{0}`: is not a regular expression: {1} (write `\\re:…` for that very name)")]
    Regex(String, String),
}

impl Pattern {
    /// Compiles `text`.
    pub fn new(text: &str) -> Result<Self, PatternError> {
        if text.is_empty() {
            return Err(PatternError::Empty);
        }
        if text.len() > MAX_LEN {
            return Err(PatternError::TooLong);
        }
        if let Some(written) = text.strip_prefix("re:") {
            return Ok(Self { text: text.into(), form: Form::Regex(regex(text, written)?) });
        }
        let mut pieces = Vec::with_capacity(text.len());
        let mut rest = text.chars();
        while let Some(c) = rest.next() {
            let piece = match c {
                '*' if pieces.last() == Some(&Piece::Any) => continue,
                '*' => Piece::Any,
                '?' => Piece::One,
                '[' => set(&mut rest, text)?,
                '\\' => Piece::Char(rest.next().ok_or_else(|| PatternError::Escape(text.to_owned()))?),
                _ => Piece::Char(c),
            };
            pieces.push(piece);
        }
        Ok(Self { text: text.into(), form: Form::Glob(pieces.into()) })
    }

    /// The pattern as written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the whole of `name` matches.
    pub fn matches(&self, name: &str) -> bool {
        let pieces = match &self.form {
            Form::Glob(pieces) => pieces,
            Form::Regex(regex) => return regex.is_match(name),
        };
        let mut rest = name.chars();
        let mut at = 0;
        // Where to go on when a piece fails: behind the last `*`, one character later than before. Earlier
        // ones need no second try: the last can take whatever they would give away.
        let mut retry = None;
        loop {
            let before = rest.clone();
            let next = rest.next();
            match (pieces.get(at), next) {
                (Some(Piece::Any), _) => {
                    rest = before.clone();
                    at += 1;
                    retry = Some((at, before));
                }
                (None, None) => return true,
                (Some(piece), Some(c)) if piece.takes(c) => at += 1,
                (Some(_), None) => return false,
                (Some(_) | None, Some(_)) => {
                    let Some((behind, from)) = &mut retry else { return false };
                    from.next();
                    at = *behind;
                    rest = from.clone();
                }
            }
        }
    }

    /// Whether every name matches.
    pub fn is_any(&self) -> bool {
        matches!(&self.form, Form::Glob(pieces) if **pieces == [Piece::Any])
    }

    /// Why it is probably not meant as written, where that shows (D096).
    pub fn suspicion(&self) -> Option<&'static str> {
        if self.text.starts_with(char::is_whitespace) || self.text.ends_with(char::is_whitespace) {
            Some("begins or ends with white space")
        } else if self.text.contains(char::is_control) {
            Some("contains a control character")
        } else if matches!(self.form, Form::Glob(_)) && self.text.contains("__") && !self.text.starts_with("__") {
            Some("looks like an exposed name; patterns are over the server's own names")
        } else {
            None
        }
    }
}

impl Piece {
    fn takes(&self, c: char) -> bool {
        match self {
            Self::Any | Self::One => true,
            Self::Char(own) => *own == c,
            Self::Set { ranges, negated } => ranges.iter().any(|&(from, to)| (from..=to).contains(&c)) != *negated,
        }
    }
}

/// Compiles `written`, anchored at both ends. It must stand by itself, so that no bracket of it closes ours.
fn regex(text: &str, written: &str) -> Result<Regex, PatternError> {
    let compile = |pattern: &str| {
        let built = RegexBuilder::new(pattern).size_limit(MAX_COMPILED).build();
        built.map_err(|error| {
            let message = error.to_string();
            let last = message.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
            PatternError::Regex(text.to_owned(), last)
        })
    };
    if written.is_empty() {
        return Err(PatternError::Empty);
    }
    compile(written)?;
    compile(&format!("\\A(?:{written})\\z"))
}

/// Reads a set behind its `[`. A `]` or `-` that is meant stands escaped.
fn set(rest: &mut std::str::Chars<'_>, text: &str) -> Result<Piece, PatternError> {
    let unclosed = || PatternError::Set(text.to_owned());
    let negated = rest.clone().next() == Some('!');
    if negated {
        rest.next();
    }
    let mut ranges = Vec::new();
    let literal = |rest: &mut std::str::Chars<'_>, c| if c == '\\' { rest.next() } else { Some(c) };
    loop {
        let c = match rest.next().ok_or_else(unclosed)? {
            ']' => break,
            c => literal(rest, c).ok_or_else(unclosed)?,
        };
        let mut ahead = rest.clone();
        let to = match (ahead.next(), ahead.next()) {
            (Some('-'), Some(end)) if end != ']' => {
                *rest = ahead;
                literal(rest, end).ok_or_else(unclosed)?
            }
            _ => c,
        };
        if to < c {
            return Err(PatternError::Range(text.to_owned()));
        }
        ranges.push((c, to));
    }
    if ranges.is_empty() { Err(unclosed()) } else { Ok(Piece::Set { ranges: ranges.into(), negated }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(pattern: &str, matching: &[&str], other: &[&str]) {
        let compiled = Pattern::new(pattern).unwrap();
        for name in matching {
            assert!(compiled.matches(name), "{pattern} should match {name}");
        }
        for name in other {
            assert!(!compiled.matches(name), "{pattern} should not match {name}");
        }
    }

    #[test]
    fn d096_whole_names_case_sensitive() {
        check("read", &["read"], &["Read", "read_file", "unread", "read ", ""]);
        check("read_*", &["read_", "read_file", "read_a/b"], &["xread_", "READ_file"]);
        check("*delete*", &["delete", "undelete_x"], &["delet"]);
        check("a*b*c", &["abc", "aXbYc", "abcbc"], &["ab", "abcx"]);
        check("brave*", &["brave", "brave-search"], &["xbrave"]);
        check("*", &["", "a", "ö/\n"], &[]);
        check("**", &["", "a/b"], &[]);
    }

    #[test]
    fn characters_sets_and_escapes() {
        check("gr?ße", &["größe"], &["grße", "groeße"]);
        check("[abö]x", &["ax", "öx"], &["cx", "x", "abx"]);
        check("[a-cx]", &["a", "b", "x"], &["d", "-"]);
        check("[!a-c]", &["d", "-"], &["a", ""]);
        check("[a-]", &["a", "-"], &["b"]);
        check(r"[\]\-]", &["]", "-"], &["\\"]);
        check(r"a\*b\\", &["a*b\\"], &["aXb\\", "a*b"]);
        check("{a,b}", &["{a,b}"], &["a", "b"]);
        check(r"\re:x", &["re:x"], &["x"]);
    }

    #[test]
    fn regular_expressions_are_anchored() {
        check("re:a|b", &["a", "b"], &["ab", "xa", "bx", "a\n", "", "A"]);
        check("re:(read|list)_[a-z]+", &["read_x", "list_files"], &["read_", "xread_x", "read_x2"]);
        check("re:.*", &["", "a/b"], &["a\nb"]);
        assert!(Pattern::new("*").unwrap().is_any() && !Pattern::new("re:.*").unwrap().is_any());
    }

    #[test]
    fn what_does_not_compile_says_why() {
        for (text, why) in [
            ("", PatternError::Empty),
            ("[", PatternError::Set("[".into())),
            ("[]", PatternError::Set("[]".into())),
            ("[a", PatternError::Set("[a".into())),
            ("[b-a]", PatternError::Range("[b-a]".into())),
            ("a\\", PatternError::Escape("a\\".into())),
            ("re:", PatternError::Empty),
        ] {
            assert_eq!(Pattern::new(text), Err(why));
        }
        for text in ["re:(", "re:a)|(b", "re:(?=x)", "re:(a{1000}){1000}"] {
            assert!(matches!(Pattern::new(text), Err(PatternError::Regex(..))), "{text}");
        }
        assert_eq!(Pattern::new(&"a".repeat(1001)), Err(PatternError::TooLong));
    }

    /// The meaning of a pattern of `a`, `b`, `?` and `*`, written the slow obvious way.
    fn plainly(pattern: &[char], name: &[char]) -> bool {
        match (pattern.first(), name.first()) {
            (None, None) => true,
            (Some('*'), _) => plainly(&pattern[1..], name) || (!name.is_empty() && plainly(pattern, &name[1..])),
            (Some(p), Some(n)) => (*p == '?' || p == n) && plainly(&pattern[1..], &name[1..]),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn agrees_with_the_plain_meaning(pattern in "[ab?*]{1,8}", name in "[ab]{0,10}") {
            let expected = plainly(&pattern.chars().collect::<Vec<_>>(), &name.chars().collect::<Vec<_>>());
            prop_assert_eq!(Pattern::new(&pattern).unwrap().matches(&name), expected);
        }
    }
}
