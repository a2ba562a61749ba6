//! What a list of packages says: which packages, of which exact versions, with which integrity values.
//!
//! The list goes to a package client, which reads more in it than packages: options, addresses, paths. So nothing is taken
//! but what is known to be a package with its integrity value. Reads text alone, starts nothing. Called by
//! [`super::managed`] and by who installs.

use serde_json::Value;

use super::artifact::{ArtifactKind, is_exact_python, is_npm_name, is_pypi_name};
use super::managed::Plan;
use crate::shown::shown_str;

/// A package of a list.
struct Bound {
    /// Its name, as its registry compares it.
    name: String,
    version: String,
    integrity: String,
}

/// The integrity values that a list of packages has for these; why it binds nothing, else. Every package of it must have one.
pub fn listed(plan: &Plan, list: &[u8]) -> Result<String, String> {
    let text = std::str::from_utf8(list).map_err(|_| "the list of packages is no text".to_owned())?;
    let bound = if plan.kind == ArtifactKind::Npm { npm_list(text)? } else { pypi_list(text)? };
    let of = |(name, version): &(String, String)| {
        let plain = plain_name(plan.kind, name);
        // A list for all systems may have one several times; none of them may be another.
        let mut found = bound.iter().filter(|known| known.name == plain).peekable();
        let first = found.peek().map(|known| known.integrity.clone());
        first
            .filter(|_| found.all(|known| known.version == *version))
            .ok_or_else(|| format!("the list of packages does not have {} {}", shown_str(name), shown_str(version)))
    };
    Ok(plan.packages.iter().map(of).collect::<Result<Vec<_>, _>>()?.join(", "))
}

fn npm_list(text: &str) -> Result<Vec<Bound>, String> {
    let list: Value = serde_json::from_str(text).map_err(|error| format!("package-lock.json: {error}"))?;
    let packages = list.get("packages").and_then(Value::as_object).ok_or("package-lock.json has no packages")?;
    let mut bound = Vec::new();
    for (path, about) in packages.iter().filter(|(path, _)| !path.is_empty()) {
        let text = |name: &str| about.get(name).and_then(Value::as_str);
        let shown = || shown_str(path);
        // Elsewhere is what nobody compares afterwards.
        let below = path.strip_prefix("node_modules/");
        let Some(below) = below.filter(|below| below.split("/node_modules/").all(is_npm_name)) else {
            return Err(format!("{} is no place of a package in package-lock.json", shown()));
        };
        if about.get("link").is_some_and(|link| *link != Value::Bool(false)) {
            return Err(format!("{} is a link in package-lock.json", shown()));
        }
        // A repository or a folder has no bytes that npm would compare.
        let is_archive = |from: &str| from.starts_with("https://") || from.starts_with("http://");
        if about.get("resolved").is_some_and(|from| !from.as_str().is_some_and(is_archive)) {
            return Err(format!("{} comes from no archive in package-lock.json", shown()));
        }
        let integrity = text("integrity").filter(|integrity| integrity.starts_with("sha512-"));
        let integrity = integrity.ok_or_else(|| format!("{} has no sha512 in package-lock.json", shown()))?;
        // Another package under this name is none of this name.
        if is_npm_name(below) && text("name").is_none_or(|name| name == below) {
            let version = text("version").unwrap_or_default().to_owned();
            bound.push(Bound { name: below.to_owned(), version, integrity: integrity.to_owned() });
        }
    }
    Ok(bound)
}

fn pypi_list(text: &str) -> Result<Vec<Bound>, String> {
    // Python ends lines at more characters than we do, and what is hidden nobody reviews.
    if let Some(odd) = text.chars().find(|&c| !(c == '\n' || c == ' ' || c.is_ascii_graphic())) {
        return Err(format!("{} is no character for the list of packages", shown_str(&odd.to_string())));
    }
    let (mut bound, mut whole) = (Vec::new(), String::new());
    for line in text.lines() {
        // A comment that went on in the next line for us would not for pip.
        if whole.is_empty() && (line.trim().is_empty() || line.starts_with('#') && !line.ends_with('\\')) {
            continue;
        }
        match line.strip_suffix('\\') {
            Some(part) => {
                whole.push_str(part);
                whole.push(' ');
            }
            None => {
                whole.push_str(line);
                bound.push(requirement(&whole)?);
                whole.clear();
            }
        }
    }
    if whole.trim().is_empty() { Ok(bound) } else { Err("the list of packages ends within a line".to_owned()) }
}

/// `name==version`, perhaps where and when it is needed behind `;`, and hashes; no option, no address, no comment.
fn requirement(line: &str) -> Result<Bound, String> {
    let words: Vec<_> = line.split_whitespace().collect();
    let options = words.iter().position(|word| word.starts_with('-')).unwrap_or(words.len());
    let package = words[..options].join(" ");
    let (package, marker) = package.split_once(';').unwrap_or((&package, ""));
    let is_odd = |c: char| !(c.is_ascii_alphanumeric() || " '\"()<>=!~._-+*,".contains(c));
    let named = package.trim().split_once("==");
    let named =
        named.filter(|(name, version)| is_pypi_name(name) && is_exact_python(version) && !marker.contains(is_odd));
    let Some((name, version)) = named else {
        return Err(format!("{} is no package with its version in the list of packages", shown_str(line.trim())));
    };
    let is_hash = |hash: &&str| !hash.is_empty() && hash.bytes().all(|b| b.is_ascii_hexdigit());
    let hash = |word: &&str| word.strip_prefix("--hash=sha256:").filter(is_hash).map(|hash| format!("sha256:{hash}"));
    let hashes: Option<Vec<_>> = words[options..].iter().map(hash).collect();
    match hashes {
        Some(hashes) if !hashes.is_empty() => {
            let name = plain_name(ArtifactKind::Pypi, name);
            Ok(Bound { name, version: version.to_owned(), integrity: hashes.join(" ") })
        }
        Some(_) => Err(format!("{name} has no sha256 in the list of packages")),
        None => Err(format!("{name} has more than sha256 in the list of packages: {}", shown_str(line.trim()))),
    }
}

/// A line of such a list; nothing where it would be none.
pub fn pypi_line(name: &str, version: &str, sha256: &str) -> Option<String> {
    let line = format!("{name}=={version} --hash=sha256:{sha256}\n");
    let read = pypi_list(&line).ok()?;
    matches!(&read[..], [one] if one.version == version).then_some(line)
}

/// A name as its registry compares it.
fn plain_name(kind: ArtifactKind, name: &str) -> String {
    if kind == ArtifactKind::Npm {
        return name.to_owned();
    }
    let parts = name.split('[').next().unwrap_or_default().split(['-', '_', '.']).filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join("-").to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pins::managed::tests::plan;

    #[test]
    fn e_10_every_package_of_a_list_has_an_integrity_value() {
        let of = plan("npx @a/x@1.2.3").unwrap();
        let list = |more: &str| {
            let own = r#""node_modules/@a/x":{"version":"1.2.3","integrity":"sha512-aa"}"#;
            format!(r#"{{"packages":{{"":{{}},{own}{more}}}}}"#)
        };
        assert_eq!(listed(&of, list("").as_bytes()).unwrap(), "sha512-aa");
        for more in [r#","node_modules/y":{"version":"1.0.0"}"#, r#","node_modules/y":{"integrity":"sha1-aa"}"#] {
            assert!(listed(&of, list(more).as_bytes()).unwrap_err().contains("node_modules/y has no sha512"));
        }
        assert!(listed(&plan("npx @a/x@1.2.4").unwrap(), list("").as_bytes()).is_err(), "another version");
        let of = plan("uvx Mcp_X[cli]==1.2").unwrap();
        let list = b"# a note\nmcp-x[cli,ws]==1.2 \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb\n\ny==1!2.0rc1 ; sys_platform == 'x' and python_full_version < '3.14' --hash=sha256:cc\nz==1;extra=='a' --hash=sha256:dd\n";
        assert_eq!(listed(&of, list).unwrap(), "sha256:aa sha256:bb");
        for bad in [
            "mcp-x==1.2\n",
            "mcp-x==1.2 --hash=sha256:aa\ny==1\n",
            "mcp-x==1.2 --hash=md5:aa\n",
            "-e .\n",
            "mcp-x==1.3 --hash=sha256:a",
        ] {
            assert!(listed(&of, bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn e_10_a_list_of_pypi_brings_nothing_but_packages() {
        let of = plan("uvx mcp-x==1.2").unwrap();
        let good = "mcp-x==1.2 --hash=sha256:aa\n";
        assert!(listed(&of, good.as_bytes()).is_ok());
        for bad in [
            "--no-binary=evil,==1 --hash=sha256:aa",
            "--index-url=https://h.invalid/?==1 --hash=sha256:aa",
            "x@https://h.invalid/a==1 --hash=sha256:aa",
            "https://h.invalid/a==1 --hash=sha256:aa",
            "./x==1 --hash=sha256:aa",
            "x==1 --hash=sha256:aa --index-url=https://h.invalid",
            "x==1 --index-url https://h.invalid --hash=sha256:aa",
            "x==1 --hash=sha256:aa extra",
            "x==1 --hash=sha256:../a",
            "x==1.* --hash=sha256:aa",
            "x==1 y==2 --hash=sha256:aa",
            "x==1 ; ${EVIL} --hash=sha256:aa",
            "x==1 #; --hash=sha256:aa",
            "mcp-x==6.6 ; python_version > '3' --hash=sha256:bb",
            "# a note \\\n--index-url=https://h.invalid",
            "# a note\u{2028}--index-url=https://h.invalid",
            "# a note\r--index-url=https://h.invalid",
            "y==1 --hash=sha256:aa \\\n# a note",
            "y==1 --hash=sha256:aa \\",
        ] {
            for list in [format!("{bad}\n{good}"), format!("{good}{bad}\n")] {
                assert!(listed(&of, list.as_bytes()).is_err(), "{list:?}");
            }
        }
        assert_eq!(pypi_line("x", "1", "aa").as_deref(), Some("x==1 --hash=sha256:aa\n"));
        for (name, version) in [("#x", "1"), ("x==1 --hash=sha256:aa\ny", "1"), ("x", "1 ; a"), ("-r", "1"), ("x", "*")]
        {
            assert_eq!(pypi_line(name, version, "aa"), None, "{name} {version}");
        }
    }

    #[test]
    fn e_10_a_list_of_npm_brings_nothing_but_packages() {
        let of = plan("npx x@1.2.3").unwrap();
        let list = |path: &str, about: &str| {
            let own = r#""node_modules/x":{"version":"1.2.3","integrity":"sha512-aa"}"#;
            format!(r#"{{"packages":{{{own},"{path}":{{"integrity":"sha512-bb"{about}}}}}}}"#)
        };
        let check = |path: &str, about: &str| listed(&of, list(path, about).as_bytes());
        for path in ["node_modules/@a/y", "node_modules/@a/y/node_modules/z", "node_modules/z/node_modules/x"] {
            assert_eq!(check(path, "").unwrap(), "sha512-aa", "{path}");
        }
        for path in [
            "y",
            "../y",
            "/node_modules/y",
            "packages/y",
            "node_modules/../y",
            "node_modules/y/../../z",
            "node_modules/y/z",
            "node_modules/y/",
            "node_modules/",
            "node_modules/.bin",
            "node_modules/y/node_modules/..",
        ] {
            assert!(check(path, "").unwrap_err().contains("no place of a package"), "{path}");
        }
        assert!(check("node_modules/y", r#","link":true"#).unwrap_err().contains("is a link"));
        assert!(check("node_modules/y", r#","resolved":"https://r.invalid/y.tgz""#).is_ok());
        for from in ["git+ssh://git@h.invalid/y", "file:../y", "../y"] {
            let about = format!(r#","resolved":"{from}""#);
            assert!(check("node_modules/y", &about).unwrap_err().contains("comes from no archive"), "{from}");
        }
        let other = r#","version":"1.2.3","name":"evil""#;
        assert!(check("node_modules/x", other).unwrap_err().contains("does not have x"), "another package");
    }
}
