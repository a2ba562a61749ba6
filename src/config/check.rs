//! Finds every fault of one layer at once: unknown keys, wrong types, values out of bounds.
//!
//! figment and serde stop at the first fault and know no lines; so this walk comes before them, and takes out
//! what is wrong, so that the faults that only show after merging are still found in the same run.
//! Deliberately knows no key: the table of keys is `schema::SHAPE`. Called by `load`.

use std::time::Duration;

use crate::ident::ServerKey;
use crate::moment;
use crate::pattern::Pattern;

use super::fault::{Fault, Place, nearest};
use super::period;
use super::tree::{Entry, Node, Pos, Value};
use crate::shown::shown_str as shown;

/// What is wrong with a text, if anything.
pub(super) type Problem = fn(&str) -> Option<String>;

/// What may stand at a key.
pub(super) enum Shape {
    /// A text that this finds nothing wrong with.
    Text(Problem),
    /// `true` or `false`.
    Bool,
    /// A whole number within bounds.
    Count { min: i64, max: i64 },
    /// A duration within bounds; where `never`, also that word.
    Period { never: bool, min: Duration, max: Duration },
    /// One of these words; those of `later` are known, but not to this version.
    Word { words: &'static [&'static str], later: &'static [&'static str] },
    /// A text, a number, `true` or `false`.
    Scalar,
    /// A list of those.
    Scalars,
    /// Whatever JSON can say.
    Json,
    /// A list of texts that this finds nothing wrong with.
    Texts(Problem),
    /// Names that this finds nothing wrong with, and any texts.
    Named(Problem),
    /// Names that this finds nothing wrong with, and what each is.
    Members { name: Problem, each: &'static Shape },
    /// One of these words, or these keys.
    Either(&'static Shape, &'static Shape),
    /// A list of tables.
    Tables(&'static Shape),
    /// These keys.
    Table(&'static [(&'static str, Shape)]),
}

/// The walk over one layer.
pub(super) struct Check<'a> {
    /// Where a node of this layer is.
    pub place: &'a dyn Fn(Pos) -> Place,
    /// Receives what is wrong.
    pub faults: &'a mut Vec<Fault>,
}

impl Check<'_> {
    /// Checks `node`; false when it must be left out. Its bad members are taken out.
    pub(super) fn node(&mut self, node: &mut Node, shape: &Shape, path: &str) -> bool {
        let problem = match shape {
            Shape::Either(_, table) if matches!(node.value, Value::Table(_)) => return self.node(node, table, path),
            Shape::Either(word, _) => return self.node(node, word, path),
            Shape::Table(keys) => return self.table(node, path, keys),
            Shape::Members { name, each } => return self.named_members(node, *name, each, path),
            Shape::Named(name) => return self.named_texts(node, *name, path),
            Shape::Texts(problem) => return self.list(node, path, *problem),
            Shape::Tables(each) => return self.tables(node, each, path),
            Shape::Scalar => (!is_scalar(node)).then(|| expected("a text, a number, `true` or `false`", node)),
            Shape::Scalars => {
                let fits = matches!(&node.value, Value::List(items) if items.iter().all(is_scalar));
                (!fits).then(|| expected("a list of texts, numbers, `true` or `false`", node))
            }
            Shape::Json => (!is_json(node)).then(|| expected("what JSON can say", node)),
            Shape::Bool => (!matches!(node.value, Value::Bool(_))).then(|| expected("`true` or `false`", node)),
            Shape::Count { min, max } => {
                if let Value::Integer(number) = node.value {
                    (!(*min..=*max).contains(&number)).then(|| format!("{number} is not within {min} to {max}"))
                } else {
                    Some(expected("a whole number", node))
                }
            }
            Shape::Text(_) | Shape::Period { .. } | Shape::Word { .. } => match node.as_text() {
                Some(text) => text_problem(text, shape),
                None => Some(expected("a text", node)),
            },
        };
        let Some(message) = problem else { return true };
        let meant = match (shape, node.as_text()) {
            (Shape::Word { words, .. }, Some(text)) => nearest(text, words.iter().copied()),
            _ => None,
        };
        self.fault(node.at, path, message, meant);
        false
    }

    fn fault(&mut self, at: Pos, key: &str, message: String, nearest: Option<&str>) {
        self.faults.push(Fault {
            place: (self.place)(at),
            key: key.to_owned(),
            message,
            nearest: nearest.map(str::to_owned),
        });
    }

    /// Walks the members of a table; `false` when it is none.
    fn members(
        &mut self,
        node: &mut Node,
        path: &str,
        mut each: impl FnMut(&mut Self, &mut Entry, &str) -> bool,
    ) -> bool {
        if !matches!(node.value, Value::Table(_)) {
            self.fault(node.at, path, expected("a table", node), None);
            return false;
        }
        let Value::Table(entries) = &mut node.value else {
            return false;
        };
        let mut seen: Vec<String> = Vec::with_capacity(entries.len());
        entries.retain_mut(|entry| {
            let path = join(path, &entry.name);
            if seen.contains(&entry.name) {
                self.fault(entry.at, &path, "is given twice".to_owned(), None);
                return false;
            }
            seen.push(entry.name.clone());
            each(self, entry, &path)
        });
        true
    }

    fn table(&mut self, node: &mut Node, path: &str, keys: &'static [(&'static str, Shape)]) -> bool {
        self.members(node, path, |check, entry, path| {
            if let Some(shape) = find(keys, &entry.name) {
                return check.node(&mut entry.node, shape, path);
            }
            let meant = nearest(&entry.name, keys.iter().map(|(name, _)| *name));
            check.fault(entry.at, path, "unknown key".to_owned(), meant);
            false
        })
    }

    fn named_members(&mut self, node: &mut Node, name: Problem, each: &'static Shape, path: &str) -> bool {
        self.members(node, path, |check, entry, path| {
            let problem = name(&entry.name);
            let fits = problem.is_none();
            if let Some(message) = problem {
                check.fault(entry.at, path, message, None);
            }
            check.node(&mut entry.node, each, path) && fits
        })
    }

    fn named_texts(&mut self, node: &mut Node, name: Problem, path: &str) -> bool {
        self.members(node, path, |check, entry, path| {
            if let Some(message) = name(&entry.name) {
                check.fault(entry.at, path, message, None);
                return false;
            }
            if !matches!(entry.node.value, Value::Text(_)) {
                // Named, not shown: it may be a secret.
                let message = expected("a text in quotes", &entry.node);
                check.fault(entry.node.at, path, message, None);
                return false;
            }
            true
        })
    }

    /// The bad members of an element are taken out, not the element: the others keep their places in the list.
    fn tables(&mut self, node: &mut Node, each: &'static Shape, path: &str) -> bool {
        if !matches!(node.value, Value::List(_)) {
            self.fault(node.at, path, expected("a list of tables", node), None);
            return false;
        }
        let Value::List(items) = &mut node.value else {
            return false;
        };
        let mut fit = true;
        for (index, item) in items.iter_mut().enumerate() {
            fit &= self.node(item, each, &format!("{path}[{index}]"));
        }
        fit
    }

    fn list(&mut self, node: &mut Node, path: &str, problem: Problem) -> bool {
        if !matches!(node.value, Value::List(_)) {
            self.fault(node.at, path, expected("a list of texts", node), None);
            return false;
        }
        let Value::List(items) = &node.value else {
            return false;
        };
        let before = self.faults.len();
        for (index, item) in items.iter().enumerate() {
            let message = match item.as_text() {
                Some(text) => problem(text),
                None => Some(expected("a text in quotes", item)),
            };
            if let Some(message) = message {
                self.fault(item.at, &format!("{path}[{index}]"), message, None);
            }
        }
        self.faults.len() == before
    }
}

fn is_scalar(node: &Node) -> bool {
    match node.value {
        Value::Text(_) | Value::Integer(_) | Value::Bool(_) => true,
        Value::Float(number) => number.is_finite(),
        Value::List(_) | Value::Table(_) | Value::Other(_) => false,
    }
}

fn is_json(node: &Node) -> bool {
    match &node.value {
        Value::List(items) => items.iter().all(is_json),
        Value::Table(entries) => entries.iter().all(|entry| is_json(&entry.node)),
        Value::Text(_) | Value::Integer(_) | Value::Float(_) | Value::Bool(_) | Value::Other(_) => is_scalar(node),
    }
}

/// The shape of a member of a table.
pub(super) fn find<'k>(keys: &'k [(&'static str, Shape)], name: &str) -> Option<&'k Shape> {
    keys.iter().find(|(known, _)| *known == name).map(|(_, shape)| shape)
}

/// The path of a member, quoted where it is not a bare key.
pub(super) fn join(path: &str, name: &str) -> String {
    let bare = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
    match (path.is_empty(), bare) {
        (true, true) => name.to_owned(),
        (true, false) => format!("\"{}\"", shown(name)),
        (false, true) => format!("{path}.{name}"),
        (false, false) => format!("{path}.\"{}\"", shown(name)),
    }
}

fn expected(what: &str, node: &Node) -> String {
    format!("expected {what}, found {}", node.kind())
}

fn text_problem(text: &str, shape: &Shape) -> Option<String> {
    match shape {
        Shape::Text(problem) => problem(text),
        Shape::Period { never, min, max } => period_problem(text, *never, *min, *max),
        Shape::Word { words, .. } if words.contains(&text) => None,
        Shape::Word { later, .. } if later.contains(&text) => {
            Some(format!("`{}` is not supported by this version", shown(text)))
        }
        Shape::Word { words, .. } => Some(format!("`{}` is not one of {}", shown(text), words.join(", "))),
        Shape::Bool
        | Shape::Scalar
        | Shape::Scalars
        | Shape::Json
        | Shape::Either(..)
        | Shape::Count { .. }
        | Shape::Texts(_)
        | Shape::Named(_)
        | Shape::Members { .. }
        | Shape::Tables(_)
        | Shape::Table(_) => None,
    }
}

/// Any text will do.
pub(super) fn any(_: &str) -> Option<String> {
    None
}

/// Any text but the empty one.
pub(super) fn not_empty(text: &str) -> Option<String> {
    text.is_empty().then(|| "must not be empty".to_owned())
}

/// Why a text is no key of a server.
pub(super) fn server_key_problem(text: &str) -> Option<String> {
    ServerKey::new(text).err().map(|error| error.to_string())
}

/// Why a text is no name of a profile.
pub(super) fn profile_name_problem(text: &str) -> Option<String> {
    let shaped = text.len() <= 32
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-'));
    (!shaped).then(|| "the name of a profile is 1 to 32 of a-z, 0-9 and -, beginning with a letter".to_owned())
}

/// Why a text is no name of a variable.
pub(super) fn variable_problem(text: &str) -> Option<String> {
    (text.is_empty() || text.contains(['=', '\0'])).then(|| "is not a name of a variable".to_owned())
}

/// Why a text is no pattern over `<server>/<native name>`. One without a `/` would match nothing and hide or show
/// the wrong things in silence; a leading `*` may stand for the server and its `/`.
pub(super) fn target_problem(text: &str) -> Option<String> {
    pattern_problem(text).or_else(|| {
        (!text.contains('/') && !text.starts_with('*'))
            .then(|| format!("`{}` names no server; write for example `files/read_*` or `*/read_*`", shown(text)))
    })
}

/// Why a text is no moment.
pub(super) fn moment_problem(text: &str) -> Option<String> {
    moment::parse(text)
        .is_none()
        .then(|| format!("`{}` is not a date; write for example `2027-01-01` or `2027-01-01T12:00:00Z`", shown(text)))
}

fn period_problem(text: &str, never: bool, min: Duration, max: Duration) -> Option<String> {
    if never && text == "never" {
        return None;
    }
    let Some(duration) = period::parse(text) else {
        let never = if never { ", or `never`" } else { "" };
        return Some(format!(
            "`{}` is not a duration; write for example `250ms`, `30s`, `5m`, `1h`{never}",
            shown(text)
        ));
    };
    (duration < min || duration > max)
        .then(|| format!("`{}` is not within {} to {}", shown(text), period::text(min), period::text(max)))
}

/// A prefix is read together with `__` and a native name; it must not be able to imitate that (D032, N-14).
pub(super) fn prefix_problem(text: &str) -> Option<String> {
    let shaped = text.is_empty()
        || text.starts_with(|c: char| c.is_ascii_alphabetic())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
    if !shaped {
        Some("a prefix is made of A-Z, a-z, 0-9, `_` and `-`, beginning with a letter".to_owned())
    } else if text.contains("__") {
        Some(
            "a prefix must not contain `__`: it separates prefix and name, and two servers could \
             come to the same names"
                .to_owned(),
        )
    } else if text.ends_with('_') {
        Some(
            "a prefix must not end in `_`: with the separator `__` two servers could come to the \
             same names"
                .to_owned(),
        )
    } else if text == ServerKey::RESERVED {
        Some("the prefix `onegate` is reserved for the gateway's own tools".to_owned())
    } else {
        None
    }
}

pub(super) fn log_problem(text: &str) -> Option<String> {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    let level = |word: &str| LEVELS.iter().any(|known| known.eq_ignore_ascii_case(word));
    for part in text.split(',').map(str::trim) {
        // Directives about spans (`a[b]=info`) are left to the reader of the log.
        if part.contains('[') {
            continue;
        }
        let fine = match part.split_once('=') {
            Some((target, word)) => !target.is_empty() && level(word),
            None => level(part) || part.contains("::") || part == "onegate",
        };
        if !fine {
            return Some(format!(
                "`{}` is not a level ({}) nor a directive such as `onegate=debug`",
                shown(part),
                LEVELS.join(", ")
            ));
        }
    }
    None
}

/// Why a text is no pattern; the rules are those by which it will be matched.
pub(super) fn pattern_problem(text: &str) -> Option<String> {
    Pattern::new(text).err().map(|error| shown(&error.to_string()))
}

/// The patterns of a list that was checked.
pub(super) fn patterns(texts: &[String]) -> Vec<Pattern> {
    texts.iter().filter_map(|text| Pattern::new(text).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_that_blur_names_are_refused_d032() {
        for good in ["", "a", "Files", "my-files", "my_files", "a1"] {
            assert_eq!(prefix_problem(good), None, "{good}");
        }
        for (bad, why) in [
            ("a__b", "`__`"),
            ("a_", "end in `_`"),
            ("_a", "beginning"),
            ("1a", "beginning"),
            ("a.b", "made of"),
            ("ä", "made of"),
            ("onegate", "reserved"),
        ] {
            let problem = prefix_problem(bad).unwrap_or_default();
            assert!(problem.contains(why), "{bad}: {problem}");
        }
    }

    #[test]
    fn log_directives_are_checked() {
        for good in ["info", "DEBUG", "off", "warn,onegate=debug", "onegate::config", "a[b]=info"] {
            assert_eq!(log_problem(good), None, "{good}");
        }
        for bad in ["", "loud", "onegate=loud", "=info", "info,,"] {
            assert!(log_problem(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn patterns_are_refused_by_the_rules_they_are_matched_by() {
        for good in ["read_*", "\\*", "{a,b}", "[!a]?", "\\re:x", "{a"] {
            assert_eq!(pattern_problem(good), None, "{good}");
        }
        for (bad, why) in
            [("", "empty"), ("re:(", "not a regular expression"), ("[a", "not closed"), ("a\\", "escapes nothing")]
        {
            let problem = pattern_problem(bad).unwrap_or_default();
            assert!(problem.contains(why), "{bad}: {problem}");
        }
    }
}
