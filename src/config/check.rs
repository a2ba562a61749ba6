//! Finds every fault of one layer at once: unknown keys, wrong types, values out of bounds.
//!
//! figment and serde stop at the first fault and know no lines; so this walk comes before them, and takes out
//! what is wrong, so that the faults that only show after merging are still found in the same run.
//! Deliberately knows no key: the table of keys is `schema::SHAPE`. Called by `load`.

use std::time::Duration;

use crate::ident::ServerKey;
use crate::pattern::Pattern;

use super::fault::{Fault, Place, nearest};
use super::period;
use super::tree::{Entry, Node, Pos, Value};
use crate::shown::shown_str as shown;

/// What may stand at a key.
pub(super) enum Shape {
    /// Any text.
    Text,
    /// A text that is not empty.
    Name,
    /// `true` or `false`.
    Bool,
    /// A whole number within bounds.
    Count { min: i64, max: i64 },
    /// A duration within bounds; where `never`, also that word.
    Period { never: bool, min: Duration, max: Duration },
    /// One of these words.
    Word(&'static [&'static str]),
    /// Log directives.
    Log,
    /// What stands before `__`, or nothing.
    Prefix,
    /// A list of patterns.
    Patterns,
    /// A list of any texts.
    Texts,
    /// Names of variables and their texts.
    Variables,
    /// Keys of servers and what each is.
    Servers(&'static Shape),
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
            Shape::Table(keys) => return self.table(node, path, |name| find(keys, name), keys),
            Shape::Servers(server) => return self.servers(node, server, path),
            Shape::Variables => return self.variables(node, path),
            Shape::Texts => return self.list(node, path, |_| None),
            Shape::Patterns => return self.list(node, path, pattern_problem),
            Shape::Bool => (!matches!(node.value, Value::Bool(_))).then(|| expected("`true` or `false`", node)),
            Shape::Count { min, max } => {
                if let Value::Integer(number) = node.value {
                    (!(*min..=*max).contains(&number)).then(|| format!("{number} is not within {min} to {max}"))
                } else {
                    Some(expected("a whole number", node))
                }
            }
            Shape::Text | Shape::Name | Shape::Period { .. } | Shape::Word(_) | Shape::Log | Shape::Prefix => {
                match node.as_text() {
                    Some(text) => text_problem(text, shape),
                    None => Some(expected("a text", node)),
                }
            }
        };
        let Some(message) = problem else { return true };
        let meant = match (shape, node.as_text()) {
            (Shape::Word(words), Some(text)) => nearest(text, words.iter().copied()),
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

    fn table<'k>(
        &mut self,
        node: &mut Node,
        path: &str,
        shape_of: impl Fn(&str) -> Option<&'k Shape>,
        keys: &[(&'static str, Shape)],
    ) -> bool {
        self.members(node, path, |check, entry, path| {
            if let Some(shape) = shape_of(&entry.name) {
                return check.node(&mut entry.node, shape, path);
            }
            let meant = nearest(&entry.name, keys.iter().map(|(name, _)| *name));
            let message = if entry.name == "url" {
                "remote servers are not supported by this version; only those with a `command` are"
            } else {
                "unknown key"
            };
            let meant = meant.filter(|_| entry.name != "url");
            check.fault(entry.at, path, message.to_owned(), meant);
            false
        })
    }

    fn servers(&mut self, node: &mut Node, server: &'static Shape, path: &str) -> bool {
        self.members(node, path, |check, entry, path| {
            let fits = match ServerKey::new(&entry.name) {
                Ok(_) => true,
                Err(error) => {
                    check.fault(entry.at, path, error.to_string(), None);
                    false
                }
            };
            check.node(&mut entry.node, server, path) && fits
        })
    }

    fn variables(&mut self, node: &mut Node, path: &str) -> bool {
        self.members(node, path, |check, entry, path| {
            if entry.name.is_empty() || entry.name.contains(['=', '\0']) {
                let message = "is not a name of a variable".to_owned();
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

    fn list(&mut self, node: &mut Node, path: &str, problem: impl Fn(&str) -> Option<String>) -> bool {
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
        Shape::Name => text.is_empty().then(|| "must not be empty".to_owned()),
        Shape::Period { never, min, max } => period_problem(text, *never, *min, *max),
        Shape::Word(words) if words.contains(&text) => None,
        Shape::Word(words) => Some(format!("`{}` is not one of {}", shown(text), words.join(", "))),
        Shape::Log => log_problem(text),
        Shape::Prefix => prefix_problem(text),
        Shape::Text
        | Shape::Bool
        | Shape::Count { .. }
        | Shape::Patterns
        | Shape::Texts
        | Shape::Variables
        | Shape::Servers(_)
        | Shape::Table(_) => None,
    }
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
fn prefix_problem(text: &str) -> Option<String> {
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

fn log_problem(text: &str) -> Option<String> {
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
fn pattern_problem(text: &str) -> Option<String> {
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
            [("", "empty"), ("re:^a$", "regular expressions"), ("[a", "not closed"), ("a\\", "escapes nothing")]
        {
            let problem = pattern_problem(bad).unwrap_or_default();
            assert!(problem.contains(why), "{bad}: {problem}");
        }
    }
}
