//! The raw definition of a tool → the texts that are searched of it.
//!
//! Reads what is there and judges nothing: members that are no text are none. Used by whoever builds an index.

use crate::protocol::json;

/// What is deeper in a schema says little of what a tool does.
const MAX_DEPTH: usize = 6;

/// A model reads no more of a description than this, in bytes: what comes later says little of what a tool is for.
const MAX_PASSAGE: usize = 2 << 10;

/// The texts of a definition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Texts {
    /// `title`, or that of the annotations.
    pub title: String,
    /// `description`.
    pub description: String,
    /// The names of parameters, with blanks between.
    pub parameters: String,
    /// What is said of them.
    pub explained: String,
}

impl Texts {
    /// The texts of a raw definition.
    pub fn read(definition: &[u8]) -> Self {
        let mut texts = Self::default();
        for entry in json::members(definition) {
            if entry.is("title") {
                texts.title = text(entry.value);
            } else if entry.is("description") {
                texts.description = text(entry.value);
            } else if entry.is("annotations") && texts.title.is_empty() {
                let title = json::members(entry.value).find(|entry| entry.is("title"));
                texts.title = title.map(|entry| text(entry.value)).unwrap_or_default();
            } else if entry.is("inputSchema") {
                texts.schema(entry.value, 0);
            }
        }
        texts
    }

    /// What a tool of this name and server says of itself, as a text for a sentence model.
    pub fn passage(&self, server: &str, name: &str) -> String {
        let mut passage = format!("{server} ");
        let mut was_small = false;
        for letter in name.chars() {
            if was_small && letter.is_uppercase() {
                passage.push(' ');
            }
            passage.push(if matches!(letter, '_' | '-' | '.') { ' ' } else { letter });
            was_small = letter.is_lowercase();
        }
        passage.push_str(". ");
        passage.push_str(&self.description[..self.description.floor_char_boundary(MAX_PASSAGE)]);
        passage
    }

    fn schema(&mut self, raw: &[u8], depth: usize) {
        if depth == MAX_DEPTH {
            return;
        }
        match raw.first() {
            Some(b'{') => {
                for entry in json::members(raw) {
                    if entry.is("properties") && entry.value.starts_with(b"{") {
                        for property in json::members(entry.value) {
                            put(&mut self.parameters, &property.name().unwrap_or_default());
                            self.schema(property.value, depth + 1);
                        }
                    } else if entry.is("description") || entry.is("title") {
                        put(&mut self.explained, &text(entry.value));
                    } else if !entry.is("default") && !entry.is("examples") && !entry.is("enum") {
                        self.schema(entry.value, depth + 1);
                    }
                }
            }
            Some(b'[') => json::elements(raw).for_each(|element| self.schema(element, depth + 1)),
            _ => {}
        }
    }
}

/// What is searched of one tool.
#[derive(Clone, Copy, Debug, Default)]
pub struct Document<'a> {
    /// The names that it has: its server's, and what hosts call it where that is something else.
    pub names: [&'a str; 2],
    /// Its title.
    pub title: &'a str,
    /// The key of its server.
    pub server: &'a str,
    /// What it says of itself.
    pub description: &'a str,
    /// The names of its parameters, with blanks between.
    pub parameters: &'a str,
    /// What it says of them.
    pub explained: &'a str,
}

impl<'a> Document<'a> {
    /// A tool of these names.
    pub fn of(names: [&'a str; 2], server: &'a str, texts: &'a Texts) -> Self {
        let Texts { title, description, parameters, explained } = texts;
        Self { names, title, server, description, parameters, explained }
    }
}

fn text(raw: &[u8]) -> String {
    json::text_of(raw).map(std::borrow::Cow::into_owned).unwrap_or_default()
}

fn put(out: &mut String, text: &str) {
    if !out.is_empty() && !text.is_empty() {
        out.push(' ');
    }
    out.push_str(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_passage_reads_like_a_sentence() {
        let texts = Texts { description: "Reads. ".repeat(1000), ..Texts::default() };
        let passage = texts.passage("files", "read-mediaFile_now");
        assert!(passage.starts_with("files read media File now. Reads. Reads.") && passage.len() < MAX_PASSAGE + 100);
    }

    #[test]
    fn texts_are_found_wherever_they_stand() {
        let raw = br#"{"name":"t","annotations":{"title":"T"},"description":"d\u00f6","inputSchema":{"type":"object",
            "description":"of it","properties":{"path":{"type":"string","description":"where"},"items":{"type":"array",
            "items":{"properties":{"deep":{"title":"x"}}}}},"anyOf":[{"properties":{"other":{}}}],"default":{"properties":{"no":{}}}}}"#;
        let texts = Texts::read(raw);
        assert_eq!((&*texts.title, &*texts.description), ("T", "dö"));
        assert_eq!((&*texts.parameters, &*texts.explained), ("path items deep other", "of it where x"));
        assert_eq!(Texts::read(b"{\"title\":7}"), Texts::default());
    }
}
