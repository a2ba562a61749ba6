//! Packages of registries, as the runners of npm and `PyPI` are told of them, and which versions are exact.
//!
//! Knows words only: neither what is installed nor what a registry has. Called by [`super::programs`].

use super::programs::{Words, here};
use super::{ArtifactKind, Floating, Reference};
use crate::shown::shown_str;

/// The arguments of a runner: which options take a value, and which name packages.
struct Runner<'a> {
    /// Options that name a package.
    packages: &'a [&'a str],
    /// Options that take another value.
    values: &'a [&'a str],
}

impl Runner<'_> {
    /// The packages that options name, and the first argument that is none.
    fn read<'t>(&self, args: &[&'t str]) -> (Vec<&'t str>, Option<&'t str>) {
        let mut packages = Vec::new();
        let mut args = args.iter();
        while let Some(&arg) = args.next() {
            if arg == "--" {
                return (packages, args.next().copied());
            }
            if !arg.starts_with('-') {
                return (packages, Some(arg));
            }
            let (option, attached) = arg.split_once('=').map_or((arg, None), |(option, value)| (option, Some(value)));
            let is_package = self.packages.contains(&option);
            if is_package || self.values.contains(&option) {
                let value = attached.or_else(|| args.next().copied());
                packages.extend(value.filter(|_| is_package));
            }
        }
        (packages, None)
    }
}

/// Options of npm and its like that take a value and name no package to run.
pub(super) const NPM_VALUES: [&str; 12] = [
    "-c",
    "--call",
    "-w",
    "--workspace",
    "--registry",
    "--prefix",
    "--cache",
    "--userconfig",
    "--node-options",
    "-C",
    "--dir",
    "--loglevel",
];

pub(super) fn npm(args: &[&str]) -> Reference {
    let runner = Runner { packages: &["-p", "--package"], values: &NPM_VALUES };
    let (mut packages, first) = runner.read(args);
    let own = args.iter().take_while(|arg| Some(**arg) != first);
    if own.copied().any(|arg| ["-c", "--call"].contains(&arg.split_once('=').map_or(arg, |(option, _)| option))) {
        let mut reference = Reference::new(ArtifactKind::Npm, packages.join(", "), 0);
        reference.floating = Some(Floating::new("it runs a text of commands", ""));
        return reference;
    }
    if packages.is_empty() {
        packages.extend(first);
    }
    together(ArtifactKind::Npm, &packages, |package| {
        let at = package.get(1..).and_then(|rest| rest.find('@')).map(|at| at + 1);
        let (name, version) = at.map_or((package, None), |at| (&package[..at], Some(&package[at + 1..])));
        (name, version.filter(|version| is_npm_name(name) && is_exact_semver(version)))
    })
}

/// Options of uv and pipx that take a value and name no package.
pub(super) const PYPI_VALUES: [&str; 28] = [
    "--python",
    "-p",
    "--index",
    "--default-index",
    "--index-url",
    "-i",
    "--extra-index-url",
    "--find-links",
    "-f",
    "--with-editable",
    "--with-requirements",
    "--constraints",
    "-c",
    "--overrides",
    "--directory",
    "--project",
    "--cache-dir",
    "--config-file",
    "--env-file",
    "--pip-args",
    "--exclude-newer",
    "--refresh-package",
    "--group",
    "--extra",
    "-m",
    "--module",
    "--color",
    "--allow-insecure-host",
];

pub(super) fn pypi(args: &[&str], from: &str) -> Reference {
    let runner = Runner { packages: &[from, "--with", "-w"], values: &PYPI_VALUES };
    let (mut packages, first) = runner.read(args);
    let named = args.iter().any(|arg| *arg == from || arg.strip_prefix(from).is_some_and(|rest| rest.starts_with('=')));
    if !named {
        packages.extend(first);
    }
    together(ArtifactKind::Pypi, &packages, requirement)
}

/// `uv run` with packages, or of a file; nothing for what stands in a project.
pub(super) fn uv_run(words: &Words<'_>, args: &[&str]) -> Option<Reference> {
    let runner = Runner { packages: &["--with"], values: &PYPI_VALUES };
    let (packages, first) = runner.read(args);
    if !packages.is_empty() {
        return Some(together(ArtifactKind::Pypi, &packages, requirement));
    }
    let path = first?;
    // The packages that it brings along are bound by nothing.
    let mut reference = Reference::new(ArtifactKind::Script, path, 0);
    reference.files = vec![words.program.clone(), here(words, path)?];
    Some(reference)
}

/// The name and exact version of a requirement.
fn requirement(text: &str) -> (&str, Option<&str>) {
    let end = text.find(['=', '@', '<', '>', '!', '~', ' ', ';']).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let version = rest.strip_prefix("==").or_else(|| rest.strip_prefix('@'));
    (name, version.filter(|version| is_pypi_name(name) && is_exact_python(version)))
}

/// A word of a registry: no path, no address.
fn is_plain(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

/// `name`, `@scope/name`.
pub fn is_npm_name(name: &str) -> bool {
    match name.strip_prefix('@') {
        Some(scoped) => scoped.split_once('/').is_some_and(|(scope, name)| is_plain(scope) && is_plain(name)),
        None => is_plain(name),
    }
}

/// `name`, `name[extra]`, `name[extra,more]`.
pub fn is_pypi_name(name: &str) -> bool {
    match name.split_once('[') {
        Some((name, extras)) => {
            is_plain(name) && extras.strip_suffix(']').is_some_and(|all| all.split(',').all(is_plain))
        }
        None => is_plain(name),
    }
}

/// All packages as one: exact where each of them is.
fn together<'t>(
    kind: ArtifactKind,
    packages: &[&'t str],
    read: impl Fn(&'t str) -> (&'t str, Option<&'t str>),
) -> Reference {
    let read: Vec<_> =
        packages.iter().flat_map(|packages| packages.split(',')).map(|package| read(package.trim())).collect();
    let names: Vec<_> = read.iter().map(|(name, _)| *name).collect();
    let mut reference = Reference::new(kind, names.join(", "), 1);
    match read.iter().find(|(_, version)| version.is_none()) {
        Some((name, _)) => {
            let (is_named, remedy) =
                if kind == ArtifactKind::Npm { (is_npm_name(name), "@1.2.3") } else { (is_pypi_name(name), "==1.2.3") };
            let name = shown_str(name);
            reference.floating = Some(if is_named {
                Floating::new(
                    format!("`{name}` has no exact version"),
                    format!("write `{name}{remedy}`, with a version of it"),
                )
            } else {
                Floating::new(format!("`{name}` is no package of a registry, so no version of it is exact"), "")
            });
        }
        None if read.is_empty() => reference.floating = Some(Floating::new("it names no package", "")),
        None => {
            let versions: Vec<_> = read.iter().filter_map(|(_, version)| *version).collect();
            reference.version = Some(versions.join(", "));
        }
    }
    reference
}

/// `1.2.3`, with a pre-release or build behind it; no range, no tag, no prefix.
fn is_exact_semver(version: &str) -> bool {
    let (core, rest) = match version.find(['-', '+']) {
        Some(at) => version.split_at(at),
        None => (version, ""),
    };
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    core.split('.').count() == 3
        && core.split('.').all(is_number)
        && (rest.is_empty() || rest.len() > 1)
        && rest.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'+'))
}

/// `2.1`, `1.0.0rc1`, `1!2.0`; no `*`, no tag.
pub fn is_exact_python(version: &str) -> bool {
    version.starts_with(|c: char| c.is_ascii_digit())
        && version.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'+' | b'!' | b'_'))
}

#[cfg(test)]
mod tests {
    use crate::pins::artifact::tests::{check, launch};
    use crate::pins::artifact::{ArtifactKind, of_launch};

    #[test]
    fn e_09_packages_of_runners_are_exact_or_float() {
        use ArtifactKind::{Npm, Pypi};
        for (words, kind, name, version) in [
            ("npx -y @acme/x@1.4.2", Npm, "@acme/x", Some("1.4.2")),
            ("npx -y @acme/x", Npm, "@acme/x", None),
            ("npx x@latest /srv", Npm, "x", None),
            ("npx x@^1.2.3", Npm, "x", None),
            ("npx x@1.2", Npm, "x", None),
            ("npx x@1.2.3-rc.1+b", Npm, "x", Some("1.2.3-rc.1+b")),
            ("/usr/bin/npx --yes --package=x@1.2.3 -- run it", Npm, "x", Some("1.2.3")),
            ("npx -p x@1.2.3 -p y run", Npm, "x, y", None),
            ("npx -p x@1.2.3 -p y@2.0.0 run", Npm, "x, y", Some("1.2.3, 2.0.0")),
            ("npx ./here", Npm, "./here", None),
            ("npx x@npm:y@1.2.3", Npm, "x", None),
            ("npx --registry https://r.invalid x@1.2.3", Npm, "x", Some("1.2.3")),
            ("npx", Npm, "", None),
            ("npx @scope/server@latest", Npm, "@scope/server", None),
            ("npx server@1", Npm, "server", None),
            ("/usr/local/bin/npx.cmd server", Npm, "server", None),
            ("cmd /c npx server", Npm, "server", None),
            ("cmd /c npx server@1.2.3", Npm, "server", Some("1.2.3")),
            ("bunx x@1.2.3", Npm, "x", Some("1.2.3")),
            ("pnpm dlx x@1.2.3", Npm, "x", Some("1.2.3")),
            ("yarn dlx x", Npm, "x", None),
            ("npm exec -- x@1.2.3", Npm, "x", Some("1.2.3")),
            ("uvx mcp-x", Pypi, "mcp-x", None),
            ("uvx mcp-x==1.2", Pypi, "mcp-x", Some("1.2")),
            ("uvx mcp-x@1.2", Pypi, "mcp-x", Some("1.2")),
            ("uvx mcp-x@latest", Pypi, "mcp-x", None),
            ("uvx mcp-x>=1.2", Pypi, "mcp-x", None),
            ("uvx --from pkg>=1 server", Pypi, "pkg", None),
            ("pipx run server==1.0", Pypi, "server", Some("1.0")),
            ("uvx mcp-x==1.*", Pypi, "mcp-x", None),
            ("uvx --python 3.12 --from mcp-x[cli]==1.2 serve", Pypi, "mcp-x[cli]", Some("1.2")),
            ("uvx --from=mcp-x==1.2 --with y serve", Pypi, "mcp-x, y", None),
            ("uvx --with y==2 mcp-x==1.2", Pypi, "y, mcp-x", Some("2, 1.2")),
            ("uv tool run mcp-x==1.2", Pypi, "mcp-x", Some("1.2")),
            ("uv run --with mcp==1.2,y==3 server.py", Pypi, "mcp, y", Some("1.2, 3")),
            ("uv run --with mcp server.py", Pypi, "mcp", None),
            ("pipx run --spec x==1.0rc1 serve", Pypi, "x", Some("1.0rc1")),
            ("pipx run x", Pypi, "x", None),
        ] {
            check(words, kind, name, version, version.is_none());
        }
    }

    #[test]
    fn what_helps_is_said_where_anything_does() {
        for (words, remedy) in [
            ("npx @a/b@latest", "write `@a/b@1.2.3`, with a version of it"),
            ("uvx b", "write `b==1.2.3`, with a version of it"),
            ("docker run r:5000/b:1", "write `r:5000/b:1@sha256:…`"),
            ("npx ./here", ""),
        ] {
            assert_eq!(of_launch(&launch(words)).floating.unwrap().remedy, remedy, "{words}");
        }
    }

    #[test]
    fn e_09_an_address_or_a_path_is_no_exact_version() {
        for words in [
            "uvx --from git+https://h.invalid/acme/mcp@1.2 serve",
            "uvx --from https://h.invalid/x.zip?a==1.0",
            "npx https://h.invalid/x@1.2.3",
            "npx ./dist/x@1.0.0",
            "npx acme/x@1.0.0",
            "npx file:x@1.0.0",
        ] {
            assert!(of_launch(&launch(words)).floating.is_some(), "{words}");
        }
    }
}
