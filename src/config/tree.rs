//! One tree for every file format, each node knowing its line.
//!
//! figment knows no lines; so files are read into this tree, checked on it, and only then handed to
//! figment. Deliberately knows no key of the configuration. Called by `load`, `layers` and `host`, and by `adopt`.

use serde_yaml_ng::Value as Yaml;
use toml_edit::{Document, Item, TableLike};

/// Deepest nesting of a file; ours needs four.
pub(crate) const DEEPEST: usize = 64;

/// A place in a text, from 1; 0 when unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pos {
    pub line: u32,
    pub column: u32,
}

/// A value and its place.
#[derive(Clone)]
pub(crate) struct Node {
    pub at: Pos,
    pub value: Value,
}

/// A member of a table, and the place of its name.
#[derive(Clone)]
pub(crate) struct Entry {
    pub name: String,
    pub at: Pos,
    pub node: Node,
}

/// What a node holds. Without `Debug`: values of a configuration may be secrets (I-34).
#[derive(Clone)]
pub(crate) enum Value {
    Text(String),
    Integer(i64),
    Float(f64),
    Bool(bool),
    List(Vec<Node>),
    Table(Vec<Entry>),
    /// Something that no key takes, and what it is called.
    Other(&'static str),
}

/// A text that is not of its format.
#[derive(Debug)]
pub(crate) struct Broken {
    pub at: Pos,
    pub message: String,
}

impl Node {
    pub(crate) fn new(at: Pos, value: Value) -> Self {
        Self { at, value }
    }

    /// The member `name`, when this is a table that has it.
    pub(crate) fn get(&self, name: &str) -> Option<&Node> {
        self.entries().iter().find(|entry| entry.name == name).map(|entry| &entry.node)
    }

    /// The members; none when this is not a table.
    pub(crate) fn entries(&self) -> &[Entry] {
        match &self.value {
            Value::Table(entries) => entries,
            Value::Text(_)
            | Value::Integer(_)
            | Value::Float(_)
            | Value::Bool(_)
            | Value::List(_)
            | Value::Other(_) => &[],
        }
    }

    /// The elements; none when this is not a list.
    pub(crate) fn items(&self) -> &[Node] {
        if let Value::List(items) = &self.value { items } else { &[] }
    }

    /// The text, when this is one.
    pub(crate) fn as_text(&self) -> Option<&str> {
        if let Value::Text(text) = &self.value { Some(text) } else { None }
    }

    /// What people call this kind of value.
    pub(crate) fn kind(&self) -> &'static str {
        match &self.value {
            Value::Text(_) => "a text",
            Value::Integer(_) => "an integer",
            Value::Float(_) => "a number with a fraction",
            Value::Bool(_) => "a boolean",
            Value::List(_) => "a list",
            Value::Table(_) => "a table",
            Value::Other(name) => name,
        }
    }
}

/// Turns offsets into lines and columns.
pub(crate) struct Lines<'t> {
    text: &'t str,
    starts: Vec<usize>,
}

impl<'t> Lines<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        let starts = std::iter::once(0).chain(memchr::memchr_iter(b'\n', text.as_bytes()).map(|at| at + 1)).collect();
        Self { text, starts }
    }

    pub(crate) fn pos(&self, offset: usize) -> Pos {
        let line = self.starts.partition_point(|start| *start <= offset);
        let start = self.starts.get(line.wrapping_sub(1)).copied().unwrap_or(0);
        let before = self.text.get(start..offset).unwrap_or_default();
        Pos {
            line: u32::try_from(line).unwrap_or(u32::MAX),
            column: u32::try_from(before.chars().count() + 1).unwrap_or(u32::MAX),
        }
    }

    fn span(&self, span: Option<std::ops::Range<usize>>) -> Option<Pos> {
        span.map(|span| self.pos(span.start))
    }
}

/// Reads TOML.
pub(crate) fn toml(text: &str) -> Result<Node, Broken> {
    let lines = Lines::new(text);
    // Of the parser's error only the reason is used: its own display quotes the line, which may be a secret.
    let document = Document::parse(text).map_err(|error| Broken {
        at: lines.span(error.span()).unwrap_or_default(),
        message: error.message().trim().replace('\n', ", "),
    })?;
    Ok(Node::new(Pos { line: 1, column: 1 }, toml_table(document.as_table(), &lines)))
}

fn toml_table(table: &dyn TableLike, lines: &Lines<'_>) -> Value {
    let entries = table
        .iter()
        .map(|(name, item)| {
            let key = table.get_key_value(name).and_then(|(key, _)| key.span());
            let at = lines.span(key).or_else(|| lines.span(item.span())).unwrap_or_default();
            Entry { name: name.to_owned(), at, node: toml_item(item, at, lines) }
        })
        .collect();
    Value::Table(entries)
}

fn toml_item(item: &Item, key: Pos, lines: &Lines<'_>) -> Node {
    match item {
        Item::None => Node::new(key, Value::Other("nothing")),
        Item::Value(value) => toml_value(value, key, lines),
        Item::Table(table) => Node::new(key, toml_table(table, lines)),
        Item::ArrayOfTables(tables) => {
            let list = tables
                .iter()
                .map(|table| Node::new(lines.span(table.span()).unwrap_or(key), toml_table(table, lines)))
                .collect();
            Node::new(key, Value::List(list))
        }
    }
}

fn toml_value(value: &toml_edit::Value, key: Pos, lines: &Lines<'_>) -> Node {
    let at = lines.span(value.span()).unwrap_or(key);
    let value = match value {
        toml_edit::Value::String(text) => Value::Text(text.value().clone()),
        toml_edit::Value::Integer(number) => Value::Integer(*number.value()),
        toml_edit::Value::Float(number) => Value::Float(*number.value()),
        toml_edit::Value::Boolean(truth) => Value::Bool(*truth.value()),
        toml_edit::Value::Datetime(_) => Value::Other("a date"),
        toml_edit::Value::Array(array) => Value::List(array.iter().map(|item| toml_value(item, at, lines)).collect()),
        toml_edit::Value::InlineTable(table) => toml_table(table, lines),
    };
    Node::new(at, value)
}

/// Reads YAML; its nodes know no lines.
pub(crate) fn yaml(text: &str) -> Result<Node, Broken> {
    let value: Yaml = serde_yaml_ng::from_str(text).map_err(|error| Broken {
        at: error.location().map_or(Pos::default(), |at| Pos {
            line: u32::try_from(at.line()).unwrap_or(u32::MAX),
            column: u32::try_from(at.column()).unwrap_or(u32::MAX),
        }),
        message: "is not valid YAML here".to_owned(),
    })?;
    // An empty file is an empty table, as in TOML.
    let value = if value.is_null() { Value::Table(Vec::new()) } else { yaml_value(value, 0)? };
    Ok(Node::new(Pos::default(), value))
}

fn yaml_value(value: Yaml, depth: usize) -> Result<Value, Broken> {
    if depth > DEEPEST {
        return Err(Broken { at: Pos::default(), message: format!("is nested deeper than {DEEPEST} levels") });
    }
    let node = |value| -> Result<Node, Broken> { Ok(Node::new(Pos::default(), yaml_value(value, depth + 1)?)) };
    Ok(match value {
        Yaml::Null => Value::Other("null"),
        Yaml::Bool(truth) => Value::Bool(truth),
        Yaml::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(number), _) => Value::Integer(number),
            (None, Some(number)) => Value::Float(number),
            (None, None) => Value::Other("a number out of range"),
        },
        Yaml::String(text) => Value::Text(text),
        Yaml::Sequence(items) => Value::List(items.into_iter().map(node).collect::<Result<_, _>>()?),
        Yaml::Mapping(members) => {
            let mut entries = Vec::with_capacity(members.len());
            for (name, value) in members {
                let Yaml::String(name) = name else {
                    return Err(Broken {
                        at: Pos::default(),
                        message: "has a key that is not a text; quote it".to_owned(),
                    });
                };
                entries.push(Entry { name, at: Pos::default(), node: node(value)? });
            }
            Value::Table(entries)
        }
        Yaml::Tagged(_) => Value::Other("a tagged value"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn toml_nodes_know_their_lines() {
        let root = toml("a = 1\n[servers.files]\nargs = [\n  \"x\",\n  \"y\"]\n").unwrap();
        let files = root.get("servers").and_then(|n| n.get("files")).unwrap();
        assert_eq!(files.at.line, 2);
        let args = files.get("args").unwrap();
        let Value::List(items) = &args.value else { panic!("a list") };
        assert_eq!(items[1].at, Pos { line: 5, column: 3 });
    }

    #[test]
    fn a_syntax_error_shows_its_line_but_not_the_text_i_34() {
        let broken = toml("[gateway]\ntoken = canary-secret\n").err().unwrap();
        assert_eq!(broken.at.line, 2);
        assert!(!broken.message.contains("canary"), "{}", broken.message);
        let broken = yaml("a: [canary-secret\n").err().unwrap();
        assert!(!broken.message.contains("canary"), "{}", broken.message);
    }

    #[test]
    fn yaml_gives_the_same_tree() {
        let root = yaml("servers:\n  files:\n    command: x\n    enabled: false\n").unwrap();
        let files = root.get("servers").and_then(|n| n.get("files")).unwrap();
        assert!(matches!(&files.get("command").unwrap().value, Value::Text(t) if t == "x"));
        assert!(matches!(files.get("enabled").unwrap().value, Value::Bool(false)));
        assert!(yaml("").unwrap().entries().is_empty());
    }
}
