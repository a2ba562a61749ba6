//! JSON with what hosts write into it: comments, trailing commas, a byte-order mark.
//!
//! `serde_json` tells no places of values and takes no comments; here it only decodes the scalars.
//! Deliberately knows no key. Called by `load` and by `adopt`.

use super::tree::{Broken, DEEPEST, Entry, Lines, Node, Value};

/// Reads JSON or JSONC.
pub(crate) fn parse(text: &str) -> Result<Node, Broken> {
    let lines = Lines::new(text);
    let mut reader = Reader { text, at: 0, lines: &lines };
    let node = reader.value(0)?;
    reader.blank()?;
    if reader.at < text.len() {
        return Err(reader.broken("has something after its end"));
    }
    Ok(node)
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
    lines: &'t Lines<'t>,
}

impl Reader<'_> {
    fn broken(&self, message: &str) -> Broken {
        Broken { at: self.lines.pos(self.at), message: message.to_owned() }
    }

    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Passes white space and comments.
    fn blank(&mut self) -> Result<(), Broken> {
        loop {
            let rest = self.rest();
            let passed = if rest.starts_with([' ', '\t', '\r', '\n']) {
                1
            } else if rest.starts_with("//") {
                rest.find('\n').unwrap_or(rest.len())
            } else if rest.starts_with("/*") {
                match rest.find("*/") {
                    Some(end) => end + 2,
                    None => return Err(self.broken("has a comment that does not end")),
                }
            } else {
                return Ok(());
            };
            self.at += passed;
        }
    }

    fn value(&mut self, depth: usize) -> Result<Node, Broken> {
        if depth > DEEPEST {
            return Err(self.broken(&format!("is nested deeper than {DEEPEST} levels")));
        }
        self.blank()?;
        let at = self.lines.pos(self.at);
        let value = match self.peek() {
            Some(b'{') => self.table(depth)?,
            Some(b'[') => self.list(depth)?,
            Some(b'"') => Value::Text(self.string()?),
            Some(_) => self.word()?,
            None => return Err(self.broken("ends where a value is expected")),
        };
        Ok(Node::new(at, value))
    }

    fn table(&mut self, depth: usize) -> Result<Value, Broken> {
        let mut entries: Vec<Entry> = Vec::new();
        self.at += 1;
        loop {
            self.blank()?;
            match self.peek() {
                Some(b'}') => break,
                Some(b'"') => {}
                _ => return Err(self.broken("expected a quoted key or `}` here")),
            }
            let at = self.lines.pos(self.at);
            let name = self.string()?;
            self.blank()?;
            if self.peek() != Some(b':') {
                return Err(self.broken("expected `:` here"));
            }
            self.at += 1;
            let node = self.value(depth + 1)?;
            entries.push(Entry { name, at, node });
            if !self.comma(b'}')? {
                break;
            }
        }
        self.at += 1;
        Ok(Value::Table(entries))
    }

    fn list(&mut self, depth: usize) -> Result<Value, Broken> {
        let mut items = Vec::new();
        self.at += 1;
        loop {
            self.blank()?;
            if self.peek() == Some(b']') {
                break;
            }
            items.push(self.value(depth + 1)?);
            if !self.comma(b']')? {
                break;
            }
        }
        self.at += 1;
        Ok(Value::List(items))
    }

    /// Passes a comma; false when the end stands here instead.
    fn comma(&mut self, end: u8) -> Result<bool, Broken> {
        self.blank()?;
        match self.peek() {
            Some(b',') => {
                self.at += 1;
                Ok(true)
            }
            Some(byte) if byte == end => Ok(false),
            _ => Err(self.broken(&format!("expected `,` or `{}` here", char::from(end)))),
        }
    }

    fn string(&mut self) -> Result<String, Broken> {
        let bytes = self.text.as_bytes();
        let mut end = self.at + 1;
        loop {
            match bytes.get(end) {
                Some(b'"') => break,
                Some(b'\\') => end += 2,
                Some(_) => end += 1,
                None => return Err(self.broken("has a text that does not end")),
            }
        }
        let raw = self.text.get(self.at..=end).unwrap_or_default();
        let decoded = serde_json::from_str(raw)
            .map_err(|_| self.broken("has a text with a bad escape or a raw control character"))?;
        self.at = end + 1;
        Ok(decoded)
    }

    fn word(&mut self) -> Result<Value, Broken> {
        let rest = self.rest();
        let length =
            rest.find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '+' | '-' | '.')).unwrap_or(rest.len());
        let word = rest.get(..length).unwrap_or_default();
        let value = match word {
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            "null" => Value::Other("null"),
            number => match serde_json::from_str::<serde_json::Number>(number) {
                Ok(number) => match (number.as_i64(), number.as_f64()) {
                    (Some(number), _) => Value::Integer(number),
                    (None, Some(number)) => Value::Float(number),
                    (None, None) => Value::Other("a number out of range"),
                },
                Err(_) => return Err(self.broken("expected a value here")),
            },
        };
        self.at += length;
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn comments_and_trailing_commas_are_taken() {
        let root = parse("// head\n{\n  \"a\": [1, 2,], /* b */\n  \"c\": \"x//y\\n\",\n \"d\": -1.5e3,}\n").unwrap();
        assert!(matches!(&root.get("c").unwrap().value, Value::Text(t) if t == "x//y\n"));
        assert_eq!(root.get("c").unwrap().at.line, 4);
        assert!(matches!(&root.get("a").unwrap().value, Value::List(l) if l.len() == 2));
        assert!(matches!(root.get("d").unwrap().value, Value::Float(f) if f == -1500.0));
    }

    #[test]
    fn broken_texts_are_refused_with_a_line() {
        for (text, line) in [
            ("", 1),
            ("{\n\"a\" 1}", 2),
            ("{\"a\":1} x", 1),
            ("{\"a\":\n nope}", 2),
            ("{\"a\":\n\"\\ud800\"}", 2),
            ("{\"a", 1),
            ("{\"a\\", 1),
            ("/*", 1),
            ("[1 2]", 1),
            ("{,}", 1),
        ] {
            let broken = parse(text).err();
            assert_eq!(broken.map(|b| b.at.line), Some(line), "{text}");
        }
        assert!(parse(&"[".repeat(100_000)).is_err());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[\\[\\]{}\",:/*\\\\ \\n0-9a-eé-]{0,40}") {
            let _ = parse(&text);
        }
    }
}
