//! What the documents say of the code, as far as a test can know it: paths exist, rules are told, tests are there.
//!
//! Reads documents and sources as text; whether a sentence is true, only a reader sees.
#![expect(clippy::unwrap_used, reason = "a test that cannot read the sources shall stop there")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The families of rules that comments and tests cite.
const FAMILIES: [&str; 46] = [
    "AUC", "AUT", "HTTP", "SES", "SSE", "STM", "APP", "CALL", "CAN", "CAP", "CCH", "CMP", "CON", "ENV", "ERR", "EXT",
    "HDR", "INV", "LMB", "LOG", "LST", "MLB", "MRT", "OBS", "PAG", "PRB", "PRG", "PRM", "REL", "RES", "SEC", "STD",
    "SUB", "TMO", "TSK", "URL", "VER", "XMH", "D", "E", "I", "N", "R", "S", "T", "U",
];

/// Folders of a path in a document that begins at the top.
const TOP: [&str; 7] = ["src", "tests", "docs", "config", "benches", "systemd", ".ci"];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// All files below these folders with this extension.
fn files(folders: &[&str], extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open: Vec<PathBuf> = folders.iter().map(|folder| root().join(folder)).collect();
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|e| e == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn documents() -> Vec<(PathBuf, String)> {
    let mut paths = files(&["docs", "systemd", "tests"], "md");
    paths.extend(["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "SECURITY.md"].map(|name| root().join(name)));
    paths.into_iter().map(|path| (path.clone(), std::fs::read_to_string(path).unwrap())).collect()
}

/// The rule ids in a text, as `ENV-3`.
fn rules(text: &str) -> BTreeSet<String> {
    let is_word = |c: char| c.is_ascii_alphanumeric();
    let mut found = BTreeSet::new();
    for (dash, _) in text.match_indices('-') {
        let before = &text[..dash];
        let family = &before
            [before.rfind(|c| !is_word(c)).map_or(0, |at| at + before[at..].chars().next().unwrap().len_utf8())..];
        let digits: String = text[dash + 1..].chars().take_while(char::is_ascii_digit).collect();
        if FAMILIES.contains(&family) && !digits.is_empty() {
            found.insert(format!("{family}-{digits}"));
        }
    }
    found
}

/// Relative targets of links, and paths in backticks that begin with a folder of ours.
fn paths(text: &str) -> Vec<(bool, String)> {
    let links = text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    let links = links.filter(|target| !target.contains("://") && !target.starts_with('#'));
    let links = links.map(|target| (true, target.split('#').next().unwrap_or_default().to_owned()));
    let named = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    let named = named.filter(|path| {
        let ours = path.split_once('/').is_some_and(|(folder, _)| TOP.contains(&folder));
        // Several words are a command; patterns, elisions and what is built are no paths.
        ours && !path.contains([' ', '*', '…', '{'])
    });
    links.chain(named.map(|path| (false, path.to_owned()))).collect()
}

#[test]
fn links_and_paths_lead_somewhere() {
    let mut count = 0;
    let mut dead = Vec::new();
    for (document, text) in documents() {
        for (is_link, path) in paths(&text) {
            count += 1;
            let from = if is_link { document.parent().unwrap().to_owned() } else { root() };
            if !from.join(&path).exists() {
                dead.push(format!("{}: {path}", document.display()));
            }
        }
    }
    assert!(count >= 80, "only {count} paths found");
    assert!(dead.is_empty(), "{dead:#?}");
}

#[test]
fn paths_in_comments_lead_somewhere() {
    let mut dead = Vec::new();
    let mut count = 0;
    for file in files(&["src", "tests", "benches"], "rs") {
        let text = std::fs::read_to_string(&file).unwrap();
        let comments = text.lines().filter_map(|line| line.trim_start().strip_prefix("//"));
        for word in comments.flat_map(|comment| comment.split([' ', '(', ')', '`', ',', ';'])) {
            let path = word.trim_end_matches(['.', ':']);
            if path.ends_with(".md") && path.starts_with("docs/") {
                count += 1;
                if !root().join(path).exists() {
                    dead.push(format!("{}: {path}", file.display()));
                }
            }
        }
    }
    assert!(count >= 1, "no document is named by a comment");
    assert!(dead.is_empty(), "{dead:#?}");
}

/// The rules that the page tells, in its order.
fn told() -> Vec<String> {
    let page = std::fs::read_to_string(root().join("docs/protocol.md")).unwrap();
    let first = |row: &str| row.split(' ').next().unwrap().to_owned();
    page.lines().filter_map(|line| line.strip_prefix("| ")).map(first).filter(|id| rules(id).contains(id)).collect()
}

#[test]
fn each_cited_rule_is_told_and_each_told_one_cited() {
    let mut cited = BTreeSet::new();
    for file in files(&["src", "tests"], "rs") {
        if !file.ends_with("tests/documents.rs") {
            cited.extend(rules(&std::fs::read_to_string(file).unwrap()));
        }
    }
    let mut told_once = BTreeSet::new();
    for id in told() {
        assert!(told_once.insert(id.clone()), "{id} is told twice");
    }
    assert!(told_once.len() >= 60, "only {} rules found", told_once.len());
    let untold: Vec<_> = cited.difference(&told_once).collect();
    let uncited: Vec<_> = told_once.difference(&cited).collect();
    assert!(untold.is_empty(), "cited, but not in docs/protocol.md: {untold:?}");
    assert!(uncited.is_empty(), "in docs/protocol.md, but cited nowhere: {uncited:?}");
}

/// The rules that tests name: in comments and texts, and as `ver4_…` or `hdr_3_…` in the names of functions.
fn tested(text: &str) -> BTreeSet<String> {
    let mut found = rules(text);
    for name in text.split("fn ").skip(1).filter_map(|rest| rest.split('(').next()) {
        let mut parts = name.split('_').peekable();
        while let Some(part) = parts.next() {
            let letters = part.trim_end_matches(|c: char| c.is_ascii_digit());
            let mut digits = &part[letters.len()..];
            if digits.is_empty()
                && let Some(next) = parts.peek()
            {
                digits = next.trim_end_matches(|c: char| c.is_ascii_lowercase());
            }
            let family = letters.to_ascii_uppercase();
            // Cases have three digits: `d041` is no rule.
            let is_number = !digits.is_empty() && digits.len() < 3 && digits.bytes().all(|b| b.is_ascii_digit());
            if is_number && FAMILIES.contains(&family.as_str()) {
                found.insert(format!("{family}-{}", digits.parse::<u16>().unwrap()));
            }
        }
    }
    found
}

/// Rules that no test can name, and why.
const UNTESTED: [(&str, &str); 0] = [];

#[test]
fn each_told_rule_is_named_by_a_test() {
    let mut named = BTreeSet::new();
    for file in files(&["tests"], "rs") {
        if !file.ends_with("tests/documents.rs") {
            named.extend(tested(&std::fs::read_to_string(file).unwrap()));
        }
    }
    for file in files(&["src"], "rs") {
        let text = std::fs::read_to_string(&file).unwrap();
        let is_test = file.file_stem().is_some_and(|stem| stem.to_string_lossy().ends_with("tests"));
        let begin = if is_test { Some(0) } else { text.find("#[cfg(test)]") };
        named.extend(begin.map(|at| tested(&text[at..])).unwrap_or_default());
    }
    let excused: BTreeSet<&str> = UNTESTED.iter().map(|(id, _)| *id).collect();
    let untested: Vec<String> = told().into_iter().filter(|id| !named.contains(id)).collect();
    println!("told, but named by no test: {untested:?}");
    let open: Vec<_> = untested.iter().filter(|id| !excused.contains(id.as_str())).collect();
    assert!(open.is_empty(), "in docs/protocol.md, but named by no test: {open:?}");
    assert_eq!(untested.len(), excused.len(), "tested, but excused from it");
}

/// Each family stands in the table that leads to the specification.
#[test]
fn each_family_has_a_page() {
    let page = std::fs::read_to_string(root().join("docs/protocol.md")).unwrap();
    let table = page.split_once("### Pages").unwrap().1.split("\n### ").next().unwrap();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| "));
    let families: BTreeSet<&str> = rows.flat_map(|row| row.split(" |").next().unwrap().split(", ")).collect();
    for id in told() {
        let family = id.split('-').next().unwrap();
        assert!(families.contains(family), "{family} has no page");
    }
}

/// Tests are named as `it::room::name`, or `…::name` for another one of the room before.
#[test]
fn tests_that_documents_name_are_there() {
    let page = std::fs::read_to_string(root().join("docs/life-of-a-call.md")).unwrap();
    let mut count = 0;
    let mut room = String::new();
    for name in page.lines().flat_map(|line| line.split('`').skip(1).step_by(2)) {
        let test = if let Some(path) = name.strip_prefix("it::") {
            let (found, test) = path.split_once("::").unwrap();
            room = found.to_owned();
            test
        } else if let Some(test) = name.strip_prefix("…::") {
            test
        } else {
            continue;
        };
        count += 1;
        let file = Path::new("tests/it").join(format!("{room}.rs"));
        let text = std::fs::read_to_string(root().join(&file)).unwrap();
        assert!(text.contains(&format!("fn {test}(")), "{} has no test {test}", file.display());
    }
    assert!(count >= 25, "only {count} names found");
}

#[test]
fn the_readers_of_documents_see_what_they_should() {
    assert_eq!(
        rules("(N-7a, ENV-3: xN-5), xENV-4, D-, UTF-8, „PRB-12“"),
        BTreeSet::from(["N-7", "ENV-3", "PRB-12"].map(str::to_owned))
    );
    assert_eq!(
        tested("fn d041_env3_x() fn hdr_3_y( fn n_7a_z() fn can2_d26_q() fn mlb() // SUB-1"),
        BTreeSet::from(["ENV-3", "HDR-3", "N-7", "CAN-2", "D-26", "SUB-1"].map(str::to_owned))
    );
    let text = "[a](b.md#c) [d](https://e) `src/x.rs` `cargo src/y` `it::z` `tests/*.rs` [f](#g)";
    assert_eq!(paths(text), [(true, "b.md".to_owned()), (false, "src/x.rs".to_owned())]);
}
