//! YAML, by lines: an entry is put behind the last one of a block, or its lines are taken out.
//!
//! Deliberately no editor of all of YAML: two hosts write it, in the block form that their own programs write. What is
//! laid out otherwise (`{…}` on one line, anchors over it) is refused, and since the result is always read again, a
//! misread layout is found out before anything is written.

use super::super::hosts::Servers;
use super::Value;

/// Where the block of a member stands.
struct Block<'t> {
    lines: Vec<&'t str>,
    /// The line of the member's name.
    head: usize,
    /// The first line behind the block.
    end: usize,
    /// How far its entries are indented; none while there is no entry.
    indent: Option<usize>,
}

fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

/// Neither blank nor only a comment.
fn says(line: &str) -> bool {
    let line = line.trim();
    !line.is_empty() && !line.starts_with('#')
}

fn is_item(line: &str) -> bool {
    let line = line.trim_start_matches(' ').trim_end();
    line == "-" || line.starts_with("- ")
}

fn find<'t>(text: &'t str, place: Servers) -> Option<Block<'t>> {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let is_head = |line: &str| {
        let rest = key(line).filter(|(name, _)| *name == place.member());
        indent_of(line) == 0 && rest.is_some()
    };
    let head = lines.iter().position(|line| is_head(line))?;
    let list = matches!(place, Servers::List(_));
    let mut end = head + 1;
    let mut indent = None;
    for (n, line) in lines.iter().enumerate().skip(head + 1) {
        if !says(line) {
            continue;
        }
        let depth = indent_of(line);
        if depth == 0 && !(list && is_item(line)) {
            break;
        }
        indent.get_or_insert(depth);
        end = n + 1;
    }
    Some(Block { lines, head, end, indent })
}

/// `name` and what stands behind it on its line.
fn key(line: &str) -> Option<(&str, &str)> {
    let line = line.trim();
    let (name, rest) = if let Some(quoted) = line.strip_prefix('"') {
        quoted.split_once("\":")?
    } else if let Some(quoted) = line.strip_prefix('\'') {
        quoted.split_once("':")?
    } else {
        line.split_once(':')?
    };
    (rest.is_empty() || rest.starts_with(' ')).then_some((name, rest.trim()))
}

/// Puts an entry behind the others.
pub(super) fn put(text: &str, place: Servers, name: &str, value: &Value, head: &str) -> Option<String> {
    let mut out = if text.trim().is_empty() && !head.is_empty() { head.to_owned() } else { text.to_owned() };
    let Some(block) = find(text, place) else {
        if !out.is_empty() && !out.ends_with('\n') {
            out.push('\n');
        }
        out.push_str(&format!("{}:\n", place.member()));
        entry(&mut out, place, name, value, 2);
        return Some(out);
    };
    let (_, rest) = key(block.lines[block.head])?;
    let written = rest.split(" #").next().unwrap_or_default().trim();
    let mut lines: Vec<String> = block.lines.iter().map(|line| (*line).to_owned()).collect();
    match written {
        "" => {}
        "{}" | "[]" | "~" | "null" if block.indent.is_none() => {
            // The comment behind it stays.
            let line = &mut lines[block.head];
            let at = line.find(':')? + 1;
            let value = line[at..].find(written)? + at;
            line.replace_range(value..value + written.len(), "");
            let (end, content) = (line.ends_with('\n'), line.trim_end().to_owned());
            *line = if end { format!("{content}\n") } else { content };
        }
        _ => return None,
    }
    let last = lines.get_mut(block.end - 1)?;
    if !last.ends_with('\n') {
        last.push('\n');
    }
    let mut added = String::new();
    entry(&mut added, place, name, value, block.indent.unwrap_or(2));
    lines.insert(block.end, added);
    Some(lines.concat())
}

/// Takes an entry out, with its lines.
pub(super) fn remove(text: &str, place: Servers, name: &str, member: bool) -> Option<String> {
    let block = find(text, place)?;
    let indent = block.indent?;
    let inside = |n: usize| (block.head + 1..block.end).contains(&n);
    let begins = |n: usize| {
        let line = block.lines[n];
        inside(n) && says(line) && indent_of(line) == indent && (matches!(place, Servers::Map(_)) || is_item(line))
    };
    let starts: Vec<usize> = (0..block.lines.len()).filter(|n| begins(*n)).collect();
    let ends = |at: usize| starts.get(at + 1).copied().unwrap_or(block.end);
    let is_ours = |at: usize| match place {
        Servers::Map(_) => key(block.lines[starts[at]]).is_some_and(|(known, _)| known == name),
        // The name may stand on any line of the element.
        Servers::List(_) => (starts[at]..ends(at)).any(|n| {
            let line = block.lines[n].trim_start_matches(' ');
            let line = line.strip_prefix("- ").unwrap_or(line);
            key(line).is_some_and(|(word, value)| word == "name" && value.trim_matches(['"', '\'']) == name)
        }),
    };
    let at = (0..starts.len()).find(|at| is_ours(*at))?;
    let (from, mut to) = (starts[at], ends(at));
    // Comments and blank lines before the next entry are that one's.
    while to > from + 1 && !says(block.lines[to - 1]) {
        to -= 1;
    }
    let mut lines: Vec<String> = block.lines.iter().map(|line| (*line).to_owned()).collect();
    lines.drain(from..to);
    if starts.len() == 1 {
        if member {
            lines.remove(block.head);
        } else {
            let empty = if matches!(place, Servers::Map(_)) { "{}" } else { "[]" };
            let line = &mut lines[block.head];
            let at = line.find(':')? + 1;
            line.insert_str(at, &format!(" {empty}"));
        }
    }
    Some(lines.concat())
}

/// The lines of an entry.
fn entry(out: &mut String, place: Servers, name: &str, value: &Value, indent: usize) {
    let Value::Table(members) = value else { return };
    let pad = " ".repeat(indent);
    match place {
        Servers::Map(_) => {
            out.push_str(&format!("{pad}{}:\n", scalar(name)));
            for (name, value) in members {
                member(out, name, value, &format!("{pad}  "));
            }
        }
        Servers::List(_) => {
            for (n, (name, value)) in members.iter().enumerate() {
                let mut line = String::new();
                member(&mut line, name, value, &format!("{pad}  "));
                if n == 0 {
                    line.replace_range(indent..indent + 1, "-");
                }
                out.push_str(&line);
            }
        }
    }
}

fn member(out: &mut String, name: &str, value: &Value, pad: &str) {
    match value {
        Value::Table(members) if members.is_empty() => out.push_str(&format!("{pad}{name}: {{}}\n")),
        Value::Table(members) => {
            out.push_str(&format!("{pad}{name}:\n"));
            for (name, value) in members {
                member(out, name, value, &format!("{pad}  "));
            }
        }
        Value::List(items) if items.is_empty() => out.push_str(&format!("{pad}{name}: []\n")),
        Value::List(items) => {
            out.push_str(&format!("{pad}{name}:\n"));
            for item in items {
                out.push_str(&format!("{pad}  - {}\n", plain(item)));
            }
        }
        Value::Text(_) | Value::Number(_) | Value::Bool(_) | Value::Null => {
            out.push_str(&format!("{pad}{name}: {}\n", plain(value)))
        }
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::Text(text) => scalar(text),
        Value::Number(number) => number.to_string(),
        Value::Bool(truth) => truth.to_string(),
        Value::Null => "null".to_owned(),
        // Flow form, which is JSON.
        Value::List(_) | Value::Table(_) => value.json().to_string(),
    }
}

/// A text, quoted unless nothing in it could be read as anything else; quoted as in JSON, which YAML reads.
fn scalar(text: &str) -> String {
    let plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'/' | b'.'))
        && !matches!(
            text.to_ascii_lowercase().as_str(),
            "true" | "false" | "yes" | "no" | "on" | "off" | "null" | "y" | "n"
        );
    if plain { text.to_owned() } else { serde_json::Value::from(text).to_string() }
}
