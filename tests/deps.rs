//! The dependency policy of `deny.toml`, held against `Cargo.lock` and the packages' own manifests: sources, banned crates,
//! licences. Needs neither network nor cargo-deny.
//!
//! Sources and bans cover every platform (the lock file does). Licences cover every package whose manifest is on the machine:
//! all of them after `cargo fetch`, else those of this platform.

#![expect(clippy::unwrap_used, reason = "a helper of a test may fail it")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde::Deserialize;
use toml_edit::{DocumentMut, Item};

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
    source: Option<String>,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn toml(file: &str) -> DocumentMut {
    let text = std::fs::read_to_string(root().join(file)).unwrap();
    text.parse().unwrap()
}

/// The texts of an array at `table.key`.
fn texts(doc: &DocumentMut, table: &str, key: &str) -> Vec<String> {
    let array = doc[table][key].as_array().unwrap();
    array.iter().map(|value| value.as_str().unwrap().to_owned()).collect()
}

/// The locked packages: name, version, source.
fn locked() -> Vec<(String, String, Option<String>)> {
    let lock = toml("Cargo.lock");
    let text = |item: Option<&Item>| item.and_then(Item::as_str).map(str::to_owned);
    let packages = lock["package"].as_array_of_tables().unwrap();
    let found: Vec<_> = packages
        .iter()
        .map(|p| (text(p.get("name")).unwrap(), text(p.get("version")).unwrap(), text(p.get("source"))))
        .collect();
    assert!(found.len() > 50, "the lock file was not read");
    found
}

#[expect(clippy::disallowed_methods, reason = "asks cargo and rustc, starts no child of the product")]
fn output(program: &str, args: &[&str]) -> Option<String> {
    let done = Command::new(program).args(args).current_dir(root()).output().unwrap();
    done.status.success().then(|| String::from_utf8(done.stdout).unwrap())
}

fn metadata() -> Metadata {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let base = ["metadata", "--format-version", "1", "--locked", "--offline", "--all-features"];
    let all = output(&cargo, &base).or_else(|| {
        let version = output("rustc", &["-vV"])?;
        let host = version.lines().find_map(|line| line.strip_prefix("host: "))?;
        // A build without features brings none of what they need.
        let features = [&base[..], &base[..base.len() - 1]];
        features.iter().find_map(|base| output(&cargo, &[*base, &["--filter-platform", host]].concat()))
    });
    serde_json::from_str(&all.expect("cargo metadata works offline after a build")).unwrap()
}

/// Whether a licence expression can be met with licences that `allowed` says yes to.
///
/// SPDX: `OR` binds weaker than `AND`, `WITH` belongs to its licence; the old `/` means `OR`.
fn satisfied(expression: &str, allowed: &dyn Fn(&str) -> bool) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    let met = any(&words, &mut at, allowed);
    assert_eq!(at, words.len(), "not a licence expression: {expression}");
    met
}

fn any(words: &[&str], at: &mut usize, allowed: &dyn Fn(&str) -> bool) -> bool {
    let mut met = every(words, at, allowed);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        met |= every(words, at, allowed);
    }
    met
}

fn every(words: &[&str], at: &mut usize, allowed: &dyn Fn(&str) -> bool) -> bool {
    let mut met = one(words, at, allowed);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        met &= one(words, at, allowed);
    }
    met
}

fn one(words: &[&str], at: &mut usize, allowed: &dyn Fn(&str) -> bool) -> bool {
    let word = *words.get(*at).expect("the expression goes on");
    *at += 1;
    if word == "(" {
        let met = any(words, at, allowed);
        assert_eq!(words.get(*at), Some(&")"), "a bracket is closed");
        *at += 1;
        return met;
    }
    if words.get(*at) == Some(&"WITH") {
        let whole = format!("{word} WITH {}", words[*at + 1]);
        *at += 2;
        return allowed(&whole);
    }
    allowed(word)
}

#[test]
fn every_crate_comes_from_the_allowed_registry() {
    let allowed = texts(&toml("deny.toml"), "sources", "allow-registry");
    let manifest = toml("Cargo.toml");
    let own = manifest["package"]["name"].as_str().unwrap();
    for (name, version, source) in locked() {
        match source {
            None => assert_eq!(name, own, "{name} {version} is a path dependency"),
            Some(source) => assert!(
                source.strip_prefix("registry+").is_some_and(|url| allowed.iter().any(|a| a == url)),
                "{name} {version} comes from {source}"
            ),
        }
    }
}

#[test]
fn no_banned_crate_is_locked() {
    let policy = toml("deny.toml");
    let banned: BTreeMap<&str, &str> = policy["bans"]["deny"]
        .as_array()
        .unwrap()
        .iter()
        .map(|ban| {
            let ban = ban.as_inline_table().unwrap();
            (ban["crate"].as_str().unwrap(), ban["reason"].as_str().unwrap())
        })
        .collect();
    assert!(banned.contains_key("openssl"), "the bans were not read");
    for (name, version, _) in locked() {
        if let Some(reason) = banned.get(name.as_str()) {
            panic!("{name} {version} is banned: {reason}");
        }
    }
}

#[test]
fn no_dependency_is_a_wildcard() {
    let manifest = toml("Cargo.toml");
    for table in ["dependencies", "dev-dependencies"] {
        let dependencies = manifest[table].as_table_like().unwrap();
        assert!(!dependencies.is_empty());
        for (name, item) in dependencies.iter() {
            let version = item.as_str().or_else(|| item.get("version").and_then(Item::as_str));
            assert!(version.is_some_and(|v| !v.contains('*')), "{name} has no version requirement");
        }
    }
}

#[test]
fn every_licence_is_on_the_list() {
    let policy = toml("deny.toml");
    let listed = texts(&policy, "licenses", "allow");
    let packages = metadata().packages;
    assert!(packages.len() > 50, "the packages were not read");
    let refused: Vec<String> = packages
        .iter()
        .filter(|p| p.source.is_some())
        .filter(|p| {
            let extra: Vec<&str> = policy["licenses"]["exceptions"]
                .as_array()
                .unwrap()
                .iter()
                .filter_map(|e| e.as_inline_table())
                .filter(|e| e["crate"].as_str() == Some(p.name.as_str()))
                .filter_map(|e| e["allow"].as_array())
                .flat_map(|a| a.iter().filter_map(|v| v.as_str()))
                .collect();
            let allowed = |l: &str| listed.iter().any(|a| a == l) || extra.contains(&l);
            !p.license.as_deref().is_some_and(|license| satisfied(license, &allowed))
        })
        .map(|p| format!("{} {}: {}", p.name, p.version, p.license.as_deref().unwrap_or("none stated")))
        .collect();
    assert!(refused.is_empty(), "licences that deny.toml does not allow: {refused:#?}");
}

#[test]
fn licence_expressions_are_understood() {
    let allowed = |l: &str| ["MIT", "Apache-2.0 WITH LLVM-exception", "Unicode-3.0"].contains(&l);
    for (expression, expected) in [
        ("MIT", true),
        ("GPL-3.0-only", false),
        ("GPL-3.0-only OR MIT", true),
        ("MIT/Apache-2.0", true),
        ("MIT AND GPL-3.0-only", false),
        ("GPL-3.0-only AND MIT OR Unicode-3.0", true),
        ("GPL-3.0-only AND (MIT OR Unicode-3.0)", false),
        ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
        ("Apache-2.0 WITH LLVM-exception", true),
        ("Apache-2.0", false),
    ] {
        assert_eq!(satisfied(expression, &allowed), expected, "{expression}");
    }
}
