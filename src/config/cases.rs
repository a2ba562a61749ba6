//! A table of decisions that a policy must make: the file of `onegate policy test`.
//!
//! Read like a configuration: unknown keys and wrong values are faults with their lines, all at once. Decides nothing.
//! Called by `cli`.

use std::path::Path;
use std::time::SystemTime;

use super::check::{self, Check, Shape, not_empty};
use super::fault::{Fault, Faults, Place};
use super::rules;
use super::settings::Effect;
use super::tree::{self, Node, Pos, Value};
use crate::moment;

/// One expected decision.
pub struct PolicyCase {
    /// Where it stands.
    pub place: Place,
    /// Who asks: a principal as in `who`.
    pub who: String,
    /// Its groups; `None` = those of its key.
    pub groups: Option<Vec<String>>,
    /// What its token was given for.
    pub scopes: Vec<String>,
    /// When; `None` = now.
    pub at: Option<SystemTime>,
    /// `<server>/<kind>/<native name>`.
    pub target: String,
    /// The arguments, a raw object.
    pub arguments: String,
    /// What must be decided.
    pub expect: Effect,
    /// For which reason, where that matters.
    pub reason: Option<String>,
}

static CASES: Shape = Shape::Table(&[("case", Shape::Tables(&CASE))]);

static CASE: Shape = Shape::Table(&[
    ("as", Shape::Text(not_empty)),
    ("groups", Shape::Texts(not_empty)),
    ("scopes", Shape::Texts(not_empty)),
    ("at", Shape::Text(check::moment_problem)),
    ("target", Shape::Text(rules::literal_problem)),
    ("args", Shape::Json),
    ("expect", Shape::Word { words: &["allow", "deny"], later: &[] }),
    ("reason", Shape::Word { words: &["not-allowed", "argument-not-allowed", "capability-withheld"], later: &[] }),
]);

/// Reads such a file.
pub fn policy_cases(path: &Path) -> Result<Vec<PolicyCase>, Faults> {
    let place = Place::file(path);
    let whole = |at: Pos, message: String| {
        let place = Place {
            line: (at.line > 0).then_some(at.line),
            column: (at.line > 0).then_some(at.column),
            ..place.clone()
        };
        Faults(vec![Fault { place, key: String::new(), message, nearest: None }])
    };
    let text =
        std::fs::read_to_string(path).map_err(|error| whole(Pos::default(), format!("cannot be read: {error}")))?;
    let mut root = tree::toml(&text).map_err(|broken| whole(broken.at, broken.message))?;
    let at = |at: Pos| Place { line: Some(at.line), column: Some(at.column), ..place.clone() };
    let mut faults = Vec::new();
    Check { place: &at, faults: &mut faults }.node(&mut root, &CASES, "");
    let mut cases = Vec::new();
    let list = root.get("case").map(|node| &node.value);
    let Some(Value::List(written)) = list else {
        if faults.is_empty() {
            return Err(whole(Pos::default(), "has no `[[case]]`, so it would test nothing".to_owned()));
        }
        return Err(Faults(faults));
    };
    for (index, node) in written.iter().enumerate() {
        let text = |key: &str| node.get(key).and_then(Node::as_text).map(str::to_owned);
        let (target, expect) = (text("target"), text("expect"));
        let path = format!("case[{index}]");
        let faulty = faults.iter().any(|fault| fault.key.starts_with(&path));
        for (key, missing) in [("target", target.is_none()), ("expect", expect.is_none())] {
            if missing && !faulty {
                let message = format!("the key `{key}` is missing");
                faults.push(Fault { place: at(node.at), key: path.clone(), message, nearest: None });
            }
        }
        let texts = |key: &str| {
            node.get(key).map(|list| {
                let Value::List(items) = &list.value else { return Vec::new() };
                items.iter().filter_map(Node::as_text).map(str::to_owned).collect()
            })
        };
        cases.push(PolicyCase {
            place: at(node.at),
            who: text("as").unwrap_or_else(|| "stdio".to_owned()),
            groups: texts("groups"),
            scopes: texts("scopes").unwrap_or_default(),
            at: text("at").as_deref().and_then(moment::parse),
            target: target.unwrap_or_default(),
            arguments: node.get("args").map_or_else(|| "{}".to_owned(), |args| json(args).to_string()),
            expect: if expect.as_deref() == Some("allow") { Effect::Allow } else { Effect::Deny },
            reason: text("reason"),
        });
    }
    if faults.is_empty() { Ok(cases) } else { Err(Faults(faults)) }
}

fn json(node: &Node) -> serde_json::Value {
    match &node.value {
        Value::Text(text) => text.as_str().into(),
        Value::Integer(number) => (*number).into(),
        Value::Float(number) => (*number).into(),
        Value::Bool(truth) => (*truth).into(),
        Value::List(items) => items.iter().map(json).collect(),
        Value::Table(entries) => entries.iter().map(|entry| (entry.name.clone(), json(&entry.node))).collect(),
        Value::Other(_) => serde_json::Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<PolicyCase>, String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cases.toml");
        std::fs::write(&file, text).unwrap();
        policy_cases(&file).map_err(|faults| faults.to_string())
    }

    #[test]
    fn cases_are_read_with_their_lines() {
        let cases = read("[[case]]\ntarget = \"a/tool/t\"\nexpect = \"allow\"\n\n[[case]]\nas = \"key:ci\"\ngroups = [\"dev\"]\ntarget = \"a/resource/x:1/y\"\nargs = { p = [1, 1.5, true], q = { r = \"s\" } }\nexpect = \"deny\"\nreason = \"not-allowed\"\n").unwrap();
        assert_eq!(
            (cases[0].who.as_str(), cases[0].arguments.as_str(), cases[0].expect),
            ("stdio", "{}", Effect::Allow)
        );
        assert_eq!(cases[1].arguments, r#"{"p":[1,1.5,true],"q":{"r":"s"}}"#);
        assert_eq!((cases[1].place.line, cases[1].groups.as_deref()), (Some(5), Some(&["dev".to_owned()][..])));
    }

    #[test]
    fn e40_a_table_with_a_fault_tests_nothing_and_says_all_faults() {
        let all = read("[[case]]\ntarget = \"a/tools/t\"\nexpect = \"alow\"\n[[case]]\ntarget = \"a/tool/t\"\n[[case]]\nwho = \"x\"\n").err().unwrap();
        for part in ["a/tools/t", "did you mean", "`expect` is missing", "case[2].who"] {
            assert!(all.contains(part), "{part}: {all}");
        }
        assert!(read("").err().unwrap().contains("test nothing"));
    }
}
