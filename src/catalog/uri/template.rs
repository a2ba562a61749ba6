//! URI templates (RFC 6570): which URIs one may have been expanded to.
//!
//! Deliberately expands nothing and knows no values: hosts expand, we only find the owner (U-1). The match is
//! generous, as the expansions of hosts differ: an expression stands for all text that some values could give it.
//! It takes time linear in the URI for each piece of a template, however either was made.

use super::form;

/// Most expressions of a template (D-30).
pub const MAX_EXPRESSIONS: usize = 32;

/// A template, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Template {
    pieces: Box<[Piece]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Literal(Box<str>),
    Expression(Expression),
}

/// An expression, by the text that it may stand for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Expression {
    /// How it is written, without its braces.
    text: Box<str>,
    /// What its text begins with.
    opens: Option<u8>,
    /// Whether its text may have slashes.
    slashes: bool,
    /// Whether it may stand for nothing: without values, those that open with something do.
    optional: bool,
}

impl Template {
    /// Takes a template apart; `None` where braces do not pair, an expression is empty, or there are too many.
    pub(in super::super) fn parse(text: &str) -> Option<Self> {
        let mut pieces = Vec::new();
        let mut expressions = 0;
        let mut rest = text;
        while !rest.is_empty() {
            let literal = rest.find(['{', '}']).unwrap_or(rest.len());
            if literal > 0 {
                pieces.push(Piece::Literal(rest[..literal].into()));
                rest = &rest[literal..];
                continue;
            }
            let inside = rest.strip_prefix('{')?;
            let end = inside.find(['{', '}']).filter(|&end| inside[end..].starts_with('}'))?;
            pieces.push(Piece::Expression(Expression::new(&inside[..end])?));
            expressions += 1;
            rest = &inside[end + 1..];
        }
        (expressions <= MAX_EXPRESSIONS).then(|| Self { pieces: pieces.into() })
    }

    /// Whether `uri` may be an expansion.
    pub(super) fn matches(&self, uri: &str) -> bool {
        self.ends(uri.as_bytes()).is_some()
    }

    /// The template as the inside of a URI of ours: its literal text encoded, its expressions as they are (U-8).
    pub(super) fn enclosed(&self) -> String {
        let mut out = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Literal(literal) => form::push_enclosed(&mut out, literal),
                Piece::Expression(expression) => out.extend(["{", &expression.text, "}"]),
            }
        }
        out
    }

    /// The native URI of an expansion of [`Self::enclosed`], taken apart: what the host put in stays as it wrote it.
    pub(super) fn disclose(&self, enclosed: &Self, inside: &str) -> Option<String> {
        let inside = inside.as_bytes();
        let ends = enclosed.ends(inside)?;
        let mut out = Vec::with_capacity(inside.len());
        let mut start = 0;
        for (piece, end) in self.pieces.iter().zip(ends) {
            match piece {
                Piece::Literal(literal) => out.extend_from_slice(literal.as_bytes()),
                Piece::Expression(_) => out.extend_from_slice(&inside[start..end]),
            }
            start = end;
        }
        String::from_utf8(out).ok()
    }

    /// Where each piece ends in `uri`, if the whole of it may be an expansion.
    fn ends(&self, uri: &[u8]) -> Option<Vec<usize>> {
        // Most templates are told apart by how they begin.
        if let Some(Piece::Literal(first)) = self.pieces.first()
            && !uri.starts_with(first.as_bytes())
        {
            return None;
        }
        // For each piece the places where it may begin; then the same backwards, along one way through.
        let mut begins = Vec::with_capacity(self.pieces.len() + 1);
        let mut here = vec![false; uri.len() + 1];
        here[0] = true;
        for piece in &self.pieces {
            let next = match piece {
                Piece::Literal(literal) => behind(&here, uri, literal.as_bytes()),
                Piece::Expression(expression) => expression.behind(&here, uri),
            };
            begins.push(std::mem::replace(&mut here, next));
        }
        if !here[uri.len()] {
            return None;
        }
        let mut ends = Vec::with_capacity(self.pieces.len());
        let mut end = uri.len();
        for (piece, begins) in self.pieces.iter().zip(&begins).rev() {
            ends.push(end);
            end = match piece {
                Piece::Literal(literal) => end - literal.len(),
                Piece::Expression(expression) => expression.begin(begins, uri, end)?,
            };
        }
        ends.reverse();
        Some(ends)
    }
}

impl Expression {
    fn new(text: &str) -> Option<Self> {
        let (opens, slashes) = match text.as_bytes().first()? {
            b'+' => (None, true),
            b'.' => (Some(b'.'), false),
            b';' => (Some(b';'), false),
            &operator @ (b'#' | b'/' | b'?' | b'&') => (Some(operator), true),
            _ => (None, false),
        };
        let named = text.len() > usize::from(opens.is_some() || slashes);
        named.then(|| Self { text: text.into(), opens, slashes, optional: opens.is_some() })
    }

    fn may_hold(&self, byte: u8) -> bool {
        self.slashes || byte != b'/'
    }

    fn may_begin(&self, byte: u8) -> bool {
        self.opens.map_or_else(|| self.may_hold(byte), |opens| byte == opens)
    }

    /// Where it may end, by where it may begin.
    fn behind(&self, begins: &[bool], uri: &[u8]) -> Vec<bool> {
        let mut ends = if self.optional { begins.to_vec() } else { vec![false; begins.len()] };
        let mut inside = false;
        for (at, &byte) in uri.iter().enumerate() {
            inside = (inside && self.may_hold(byte)) || (begins[at] && self.may_begin(byte));
            ends[at + 1] |= inside;
        }
        ends
    }

    /// A place where it may begin, given where it ends.
    fn begin(&self, begins: &[bool], uri: &[u8], end: usize) -> Option<usize> {
        if self.optional && begins[end] {
            return Some(end);
        }
        for at in (0..end).rev() {
            if begins[at] && self.may_begin(uri[at]) {
                return Some(at);
            }
            if !self.may_hold(uri[at]) {
                break;
            }
        }
        None
    }
}

/// Where a literal may end, by where it may begin. After Knuth, Morris and Pratt, so that text which almost repeats
/// costs no more than other text.
fn behind(begins: &[bool], uri: &[u8], literal: &[u8]) -> Vec<bool> {
    let mut ends = vec![false; begins.len()];
    let mut borders = vec![0; literal.len()];
    let mut border = 0;
    for at in 1..literal.len() {
        while border > 0 && literal[at] != literal[border] {
            border = borders[border - 1];
        }
        border += usize::from(literal[at] == literal[border]);
        borders[at] = border;
    }
    let mut matched = 0;
    for (at, &byte) in uri.iter().enumerate() {
        while matched > 0 && (matched == literal.len() || literal[matched] != byte) {
            matched = borders[matched - 1];
        }
        matched += usize::from(literal[matched] == byte);
        if matched == literal.len() {
            ends[at + 1] = begins[at + 1 - matched];
        }
    }
    ends
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(template: &str, good: &[&str], bad: &[&str]) {
        let parsed = Template::parse(template).expect(template);
        for uri in good {
            assert!(parsed.matches(uri), "{template} {uri}");
        }
        for uri in bad {
            assert!(!parsed.matches(uri), "{template} {uri}");
        }
    }

    #[test]
    fn d038_expansions_are_found() {
        check(
            "db://t/{table}{?limit}",
            &["db://t/users", "db://t/a%2Fb?limit=5", "db://t/a?", "db://t/ü"],
            &["db://t/", "db://t/a/b", "db://t", "db://T/a", "xdb://t/a"],
        );
        check("file:///{+path}", &["file:///a/b/c", "file:///x"], &["file:///", "file://"]);
        check("x:{a}/y{#frag}", &["x:1/y", "x:1/y#a/b"], &["x:1/yz", "x:/y", "x:1/2/y"]);
        check("x:a{/seg*}{.ext}{;p}{&more}", &["x:a", "x:a/b/c.txt;p=1&q=2", "x:a.b", "x:a&"], &["x:ab", "x:"]);
        check("plain:uri", &["plain:uri"], &["plain:uri2", "plain:ur"]);
        check("a:{x},{y}b{z}", &["a:1,2b3", "a:,,,bbb"], &["a:,2b3", "a:1,b3", "a:1,2b"]);
        check("{+base}/tail", &["http://h/tail", "x/tail"], &["/tail", "x/tail/"]);
    }

    #[test]
    fn templates_that_are_none() {
        for bad in ["{", "}", "a{}", "a{b", "a}b", "a{b{c}}", "{?}", "{+}"] {
            assert_eq!(Template::parse(bad), None, "{bad}");
        }
        assert!(Template::parse(&"{a}".repeat(MAX_EXPRESSIONS)).is_some());
        assert!(Template::parse(&"{a}".repeat(MAX_EXPRESSIONS + 1)).is_none());
    }

    #[test]
    fn u_8_what_the_host_put_in_comes_back() {
        let native = Template::parse("db://t/{table}{?limit}").unwrap();
        assert_eq!(native.enclosed(), "db%3A%2F%2Ft%2F{table}{?limit}");
        let enclosed = Template::parse(&native.enclosed()).unwrap();
        let back = |inside| native.disclose(&enclosed, inside);
        assert_eq!(back("db%3A%2F%2Ft%2Fa%2Fb?limit=5").unwrap(), "db://t/a%2Fb?limit=5");
        assert_eq!(back("db%3A%2F%2Ft%2F%25").unwrap(), "db://t/%25");
        assert_eq!(back("db://t/a"), None);
    }

    #[test]
    fn text_that_almost_repeats_is_found() {
        check("aab{x}aba", &["aabaabaaba", "aab1aba"], &["aababa", "aabaab"]);
    }

    proptest! {
        /// What a template expands to, it matches: RFC 6570 up to level 3, values encoded as it says.
        #[test]
        fn expansions_match(
            literals in prop::collection::vec("[a-z:/.]{0,4}", 4),
            operators in prop::collection::vec(prop::sample::select(vec!["", "+", "#", ".", "/", ";", "?", "&"]), 3),
            values in prop::collection::vec("[a-zA-Z%/?ü ]{1,6}", 3),
        ) {
            let encode = |value: &str, reserved: bool| -> String {
                value.bytes().map(|b| match b {
                    b'a'..=b'z' | b'A'..=b'Z' => char::from(b).to_string(),
                    b'/' | b'?' if reserved => char::from(b).to_string(),
                    _ => format!("%{b:02X}"),
                }).collect()
            };
            let (mut template, mut uri) = (literals[0].clone(), literals[0].clone());
            for ((operator, value), literal) in operators.iter().zip(&values).zip(&literals[1..]) {
                template.push_str(&format!("{{{operator}x}}{literal}"));
                let text = encode(value, matches!(*operator, "+" | "#"));
                match *operator {
                    "" | "+" => uri.push_str(&text),
                    ";" | "?" | "&" => uri.push_str(&format!("{operator}x={text}")),
                    _ => uri.push_str(&format!("{operator}{text}")),
                }
                uri.push_str(literal);
            }
            let native = Template::parse(&template).unwrap();
            prop_assert!(native.matches(&uri), "{} {}", template, uri);
            // The same through the form of ours, whatever the way through the template.
            let enclosed = Template::parse(&native.enclosed()).unwrap();
            if let Some(ends) = native.ends(uri.as_bytes()) {
                let (mut inside, mut start) = (String::new(), 0);
                for (piece, end) in native.pieces.iter().zip(ends) {
                    match piece {
                        Piece::Literal(literal) => form::push_enclosed(&mut inside, literal),
                        Piece::Expression(_) => inside.push_str(&uri[start..end]),
                    }
                    start = end;
                }
                let back = native.disclose(&enclosed, &inside).unwrap();
                prop_assert!(native.matches(&back));
            }
        }
    }
}
