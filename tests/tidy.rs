//! The house rules that a compiler does not check: who may import whom, how files are named and opened.
//!
//! Reads the sources as text and knows no more of Rust than `crate::` paths and line comments.
#![expect(clippy::unwrap_used, reason = "a test that cannot read the sources shall stop there")]

use std::path::{Path, PathBuf};

/// The rooms and their floors. Imports go to lower floors only; rooms of one floor do not know each other.
const FLOORS: [(&str, u8); 22] = [
    ("main", 10),
    ("cli", 9),
    ("daemon", 8),
    ("upstream", 7),
    ("gateway", 6),
    ("downstream", 5),
    ("catalog", 5),
    ("policy", 4),
    ("adopt", 4),
    ("pins", 3),
    ("telemetry", 3),
    ("search", 3),
    ("transport", 2),
    ("config", 2),
    ("caller", 2),
    ("protocol", 1),
    ("ident", 1),
    ("pattern", 1),
    ("moment", 1),
    ("shown", 1),
    ("whole", 1),
    ("hunks", 1),
];

/// Pairs that do not know each other although one is higher.
const STRANGERS: [(&str, &str); 1] = [("upstream", "downstream")];

/// Of these rooms, that room may use these modules only.
const ONLY: [(&str, &str, &str); 1] = [("downstream", "policy", "verdict")];

/// Rooms that may use more of `config` than its settings.
const READS_FILES: [&str; 3] = ["daemon", "cli", "adopt"];

/// Words that say nothing of what is inside.
const EMPTY_WORDS: [&str; 9] = ["util", "utils", "common", "types", "manager", "helper", "helpers", "misc", "imp"];

fn sources(folder: &str) -> Vec<PathBuf> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|e| e == "rs") {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    walk(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &mut found);
    found.sort();
    found
}

/// The room of a file below `src`: its first folder, or its own name.
fn room_of(path: &Path) -> String {
    let inside = path.strip_prefix(Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).unwrap();
    let first = inside.components().next().unwrap().as_os_str().to_str().unwrap();
    first.trim_end_matches(".rs").to_owned()
}

fn floor(room: &str) -> Option<u8> {
    FLOORS.iter().find(|(name, _)| *name == room).map(|(_, floor)| *floor)
}

/// The source without its comments.
fn code(text: &str) -> String {
    let uncommented = text.lines().map(|line| match line.find("//") {
        Some(at) if line[..at].trim().is_empty() || line[..at].ends_with(' ') => &line[..at],
        _ => line,
    });
    uncommented.collect::<Vec<_>>().join("\n")
}

/// Every path that starts at the crate's root, groups unfolded: `use crate::{a::b, c}` is `a::b` and `c`.
fn root_paths(text: &str, root: &str) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    let mark = format!("{root}::");
    for (at, _) in text.match_indices(&mark) {
        let before = text[..at].chars().next_back();
        if before.is_none_or(|c| !(c.is_alphanumeric() || c == '_' || c == ':')) {
            unfold(&text[at + mark.len()..], &mut Vec::new(), &mut paths);
        }
    }
    paths
}

/// Reads one path or group and returns what follows it.
fn unfold<'t>(text: &'t str, before: &mut Vec<String>, paths: &mut Vec<Vec<String>>) -> &'t str {
    let text = text.trim_start();
    if let Some(mut rest) = text.strip_prefix('{') {
        loop {
            rest = rest.trim_start();
            if let Some(after) = rest.strip_prefix('}') {
                return after;
            }
            if rest.is_empty() {
                return rest;
            }
            let left = unfold(rest, before, paths).trim_start();
            rest = left.strip_prefix(',').unwrap_or(left);
            // A rename belongs to the item before it.
            if let Some(renamed) = rest.strip_prefix("as ") {
                let end = renamed.find([',', '}']).unwrap_or(renamed.len());
                rest = renamed[end..].strip_prefix(',').unwrap_or(&renamed[end..]);
            }
        }
    }
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(text.len());
    if end == 0 {
        paths.push(before.clone());
        return text.get(1..).unwrap_or_default();
    }
    before.push(text[..end].to_owned());
    let rest = &text[end..];
    let rest = match rest.strip_prefix("::") {
        Some(more) if !more.starts_with('<') => unfold(more, before, paths),
        _ => {
            paths.push(before.clone());
            rest
        }
    };
    before.pop();
    rest
}

/// What is wrong with the imports of a file.
fn faults(room: &str, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let code = code(text);
    let mut paths = root_paths(&code, "crate");
    if room == "main" {
        paths.extend(root_paths(&code, "onegate"));
    }
    let Some(own) = floor(room) else {
        return vec![format!("the room `{room}` has no floor")];
    };
    for path in paths {
        let Some(to) = path.first() else { continue };
        let to = to.as_str();
        if to == room {
            continue;
        }
        let inner = path.get(1).map(String::as_str);
        let Some(theirs) = floor(to) else {
            faults.push(format!("`crate::{to}` has no floor"));
            continue;
        };
        if theirs >= own {
            faults.push(format!("{room} (floor {own}) uses {to} (floor {theirs})"));
        }
        if STRANGERS.iter().any(|(a, b)| [*a, *b] == [room, to] || [*b, *a] == [room, to]) {
            faults.push(format!("{room} and {to} do not know each other"));
        }
        if to == "config" && inner != Some("settings") && own < 10 && !READS_FILES.contains(&room) {
            faults.push(format!("{room} uses `config::{}`: only its settings", inner.unwrap_or("*")));
        }
        for (from, of, only) in ONLY {
            if (from, of) == (room, to) && inner != Some(only) {
                faults.push(format!("{room} uses `{to}::{}`: only `{only}`", inner.unwrap_or("*")));
            }
        }
    }
    faults
}

#[test]
fn imports_run_downward_only() {
    let files: Vec<PathBuf> = sources("src").into_iter().filter(|f| !f.ends_with("src/lib.rs")).collect();
    assert!(files.len() >= 20, "only {} files found", files.len());
    let mut wrong = Vec::new();
    let mut imports = 0;
    for file in &files {
        let text = std::fs::read_to_string(file).unwrap();
        imports += root_paths(&code(&text), "crate").len();
        wrong.extend(faults(&room_of(file), &text).into_iter().map(|fault| format!("{}: {fault}", file.display())));
    }
    assert!(imports >= 30, "only {imports} imports found");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_check_of_imports_sees_what_it_should() {
    for (room, text, count) in [
        ("policy", "use crate::gateway::x;", 1),
        ("policy", "    use crate::{ident::A, gateway::{y, z}};", 2),
        ("upstream", "fn f() { crate::downstream::g() }", 1),
        ("downstream", "pub(crate) use crate::upstream::X as Y;", 2),
        ("catalog", "use crate::downstream::X;", 1),
        ("downstream", "use crate::catalog::X;", 1),
        ("protocol", "use crate::ident::X;", 1),
        ("gateway", "use crate::config::load;", 1),
        ("gateway", "use crate::config;", 1),
        ("downstream", "use crate::policy::allow::X;", 1),
        ("downstream", "use crate::{policy::{verdict::Permit, allow as w, pattern::P}, ident};", 2),
        ("nowhere", "", 1),
        ("gateway", "use crate::nowhere::X;", 1),
        ("main", "use onegate::cli::run;", 0),
        ("gateway", "use crate::{config::settings::{A, B}, downstream, catalog::*, gateway::x};", 0),
        ("daemon", "use crate::config::load;", 0),
        ("downstream", "use crate::policy::verdict::Permit;", 0),
        ("policy", "// use crate::gateway::x;\n//! [`crate::gateway`]\nlet x = 1; // crate::gateway::y", 0),
        ("policy", "use other_crate::gateway::x; pub(crate) fn f() {}", 0),
    ] {
        let found = faults(room, text);
        assert_eq!(found.len(), count, "{room}: {text}: {found:?}");
    }
}

#[test]
fn no_file_is_named_by_an_empty_word() {
    let files: Vec<PathBuf> = ["src", "tests", "benches"]
        .iter()
        .filter(|f| Path::new(env!("CARGO_MANIFEST_DIR")).join(f).exists())
        .flat_map(|f| sources(f))
        .collect();
    assert!(files.len() >= 30, "only {} files found", files.len());
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for file in &files {
        for part in file.strip_prefix(root).unwrap().components() {
            let word = part.as_os_str().to_str().unwrap().trim_end_matches(".rs");
            assert!(!EMPTY_WORDS.contains(&word), "{} is named `{word}`", file.display());
        }
    }
}

#[test]
fn every_file_opens_with_its_purpose() {
    let files: Vec<PathBuf> = ["src", "tests"].iter().flat_map(|f| sources(f)).collect();
    assert!(files.len() >= 30, "only {} files found", files.len());
    for file in &files {
        let text = std::fs::read_to_string(file).unwrap();
        assert!(text.starts_with("//! "), "{} does not open with `//!`", file.display());
    }
}

#[test]
fn every_room_is_on_the_map() {
    let lib = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs")).unwrap();
    let rooms: Vec<&str> =
        lib.lines().filter_map(|l| l.strip_prefix("pub mod ")).map(|l| l.trim_end_matches(';')).collect();
    assert!(rooms.len() >= 10, "{rooms:?}");
    for room in rooms {
        assert!(floor(room).is_some(), "`{room}` has no floor");
        assert!(lib.contains(&format!("[`{room}`]")), "`{room}` is not in the table of lib.rs");
    }
}
