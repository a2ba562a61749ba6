//! What is launched, as far as it can be told from how: a package of a registry, an image, a program, a script, an address
//! (threat model §3.2).
//!
//! Reads the words of a launch and files of this machine; asks no registry. A reference is exact or floating; how much
//! an exact one binds is its level. Installing packages so that their bytes are bound (level 2) is a kind of its own to
//! come: it adds a way to make an [`Artifact`], nothing else here changes.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::facet::Hash;
use crate::config::settings::{Launch, Reach};
use crate::shown::shown_str;

/// Where what is launched comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArtifactKind {
    /// A package of npm, through a runner.
    Npm,
    /// A package of `PyPI`, through a runner.
    Pypi,
    /// An image of a container.
    Oci,
    /// A program on this machine.
    Binary,
    /// A file on this machine, and what interprets it.
    Script,
    /// Somebody else's machine.
    Remote,
}

impl ArtifactKind {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Npm, Self::Pypi, Self::Oci, Self::Binary, Self::Script, Self::Remote];

    /// Its name in the lock.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Npm => "npm",
            Self::Pypi => "pypi",
            Self::Oci => "oci",
            Self::Binary => "binary",
            Self::Script => "script",
            Self::Remote => "remote",
        }
    }

    /// The kind of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

/// What is launched, as the lock has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artifact {
    /// Where it comes from.
    pub kind: ArtifactKind,
    /// Its name there: packages, an image, a command, a file, an origin.
    pub name: String,
    /// Its exact version, where it has one.
    pub version: Option<String>,
    /// What its bytes must be: the digest of an image, the SHA-256 of a file.
    pub integrity: Option<String>,
    /// The SHA-256 of what interprets a script.
    pub interpreter: Option<String>,
    /// How much it is bound: 0 not at all, 1 by its exact version, 2 by its bytes, 3 by a verified signature.
    pub level: u8,
}

impl Artifact {
    /// What of it is another than was reviewed, in words for people; nothing where it is the same.
    pub fn difference(&self, locked: &Self) -> Option<String> {
        let quoted = |text: &Option<String>| text.as_deref().map_or_else(|| "none".to_owned(), shown_str);
        let one = |what: &str, now: &Option<String>, then: &Option<String>| {
            (now != then).then(|| format!("{what} {} instead of {}", quoted(now), quoted(then)))
        };
        if self.kind != locked.kind {
            return Some(format!("it is of the kind {} instead of {}", self.kind.as_str(), locked.kind.as_str()));
        }
        if self.name != locked.name {
            return Some(format!("it is {} instead of {}", shown_str(&self.name), shown_str(&locked.name)));
        }
        one("it has the version", &self.version, &locked.version)
            .or_else(|| one("it has the content", &self.integrity, &locked.integrity))
            .or_else(|| one("its interpreter has the content", &self.interpreter, &locked.interpreter))
    }
}

/// How a launch refers to what is launched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// Where it comes from.
    pub kind: ArtifactKind,
    /// See [`Artifact::name`].
    pub name: String,
    /// See [`Artifact::version`].
    pub version: Option<String>,
    /// The digest that is written in it.
    pub digest: Option<String>,
    /// Why it may be something else tomorrow: no exact version, a tag, a range.
    pub floating: Option<String>,
    /// Whose content is hashed.
    files: Vec<PathBuf>,
    level: u8,
}

/// How a server is reached, as a reference.
pub fn reference(reach: &Reach) -> Reference {
    match reach {
        Reach::Launch(launch) => of_launch(launch),
        Reach::Remote(remote) => {
            let mut reference = Reference::new(ArtifactKind::Remote, remote.url.origin().ascii_serialization(), 0);
            let host = remote.url.host_str().unwrap_or_default();
            let local = matches!(host, "localhost" | "127.0.0.1" | "[::1]");
            if remote.url.scheme() != "https" && !local {
                reference.floating = Some("its address is not https, so anybody on the way can answer".to_owned());
            }
            reference
        }
    }
}

impl Reference {
    fn new(kind: ArtifactKind, name: impl Into<String>, level: u8) -> Self {
        let (version, digest, floating, files) = (None, None, None, Vec::new());
        Self { kind, name: name.into(), version, digest, floating, files, level }
    }

    /// What it refers to now; reads the files that it names, which may take a while.
    pub fn measure(&self) -> io::Result<Artifact> {
        let mut hashes = self.files.iter().map(|file| hash_file(file).map(|hash| hash.to_string()));
        let first = hashes.next().transpose()?;
        let second = hashes.next().transpose()?;
        let (interpreter, integrity) = match second {
            Some(file) => (first, Some(file)),
            None if self.kind == ArtifactKind::Script => (first, None),
            None => (None, first),
        };
        Ok(Artifact {
            kind: self.kind,
            name: self.name.clone(),
            version: self.version.clone(),
            integrity: self.digest.clone().or(integrity),
            interpreter,
            level: if self.floating.is_some() { 0 } else { self.level },
        })
    }
}

/// SHA-256 of a file, links resolved.
pub fn hash_file(path: &Path) -> io::Result<Hash> {
    let mut file = std::fs::File::open(path)?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(Hash::finish(hasher)),
            count => hasher.update(&buffer[..count]),
        }
    }
}

/// What only hands on to another program: its own content says nothing.
const WRAPPERS: [&str; 14] = [
    "env", "nice", "ionice", "nohup", "setsid", "stdbuf", "sudo", "doas", "time", "timeout", "xvfb-run", "firejail",
    "bwrap", "unshare",
];
/// Programs that build, fetch or look up what they run.
const LAUNCHERS: [&str; 12] =
    ["npm", "pnpm", "yarn", "bun", "deno", "uv", "pipx", "cargo", "go", "make", "java", "dotnet"];
/// Programs that run a file of text.
const INTERPRETERS: [&str; 17] = [
    "node", "nodejs", "bun", "deno", "python", "python3", "pypy", "pypy3", "ruby", "perl", "php", "bash", "sh", "zsh",
    "tsx", "ts-node", "lua",
];

fn of_launch(launch: &Launch) -> Reference {
    let name =
        Path::new(&launch.command).file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let args: Vec<&str> = launch.args.iter().map(crate::ident::Secret::reveal).collect();
    let args = args.as_slice();
    let found = match (name.trim_end_matches(".exe").trim_end_matches(".cmd"), args) {
        ("npx" | "bunx" | "pnpx", _) => Some(npm(args)),
        ("npm", ["exec" | "x", rest @ ..]) | ("pnpm" | "yarn", ["dlx", rest @ ..]) | ("bun", ["x", rest @ ..]) => {
            Some(npm(rest))
        }
        ("uvx", _) => Some(pypi(args, "--from")),
        ("uv", ["tool", "run", rest @ ..]) => Some(pypi(rest, "--from")),
        ("uv", ["run", rest @ ..]) => uv_run(rest),
        ("pipx", ["run", rest @ ..]) => Some(pypi(rest, "--spec")),
        ("docker" | "podman" | "nerdctl", _) => container(args),
        _ => None,
    };
    found.unwrap_or_else(|| file(launch, &name, args))
}

/// A program or script of this machine.
fn file(launch: &Launch, name: &str, args: &[&str]) -> Reference {
    let program = launch.program.clone();
    let family = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    if INTERPRETERS.contains(&name) || INTERPRETERS.contains(&family) {
        let path = args.iter().find(|arg| !arg.starts_with('-')).filter(|_| !runs_text(args));
        let script = path.map(|path| match &launch.cwd {
            Some(cwd) => cwd.join(path),
            None => PathBuf::from(path),
        });
        let mut reference = match (path, script.filter(|script| script.is_file())) {
            (Some(path), Some(script)) => {
                // Its imports are not covered, so it is not bound by its bytes as a whole.
                let mut reference = Reference::new(ArtifactKind::Script, *path, 1);
                reference.files = vec![program, script];
                reference
            }
            _ => {
                let mut reference = Reference::new(ArtifactKind::Script, launch.command.as_str(), 0);
                reference.files = vec![program];
                reference
            }
        };
        if LAUNCHERS.contains(&name) {
            reference.level = 0;
        }
        return reference;
    }
    let level = if WRAPPERS.contains(&name) || LAUNCHERS.contains(&name) { 0 } else { 2 };
    let mut reference = Reference::new(ArtifactKind::Binary, launch.command.as_str(), level);
    reference.files = vec![program];
    reference
}

/// Whether an interpreter is given its program as text, or a module by name.
fn runs_text(args: &[&str]) -> bool {
    let before = args.iter().take_while(|arg| arg.starts_with('-'));
    before.copied().any(|arg| matches!(arg, "-c" | "-e" | "-m" | "-p" | "--eval" | "--print" | "-pe"))
}

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

fn npm(args: &[&str]) -> Reference {
    let values =
        ["-c", "--call", "-w", "--workspace", "--registry", "--prefix", "--cache", "--userconfig", "--node-options"];
    let runner = Runner { packages: &["-p", "--package"], values: &values };
    let (mut packages, first) = runner.read(args);
    if packages.is_empty() {
        packages.extend(first);
    }
    together(ArtifactKind::Npm, &packages, |package| {
        let at = package.get(1..).and_then(|rest| rest.find('@')).map(|at| at + 1);
        let (name, version) = at.map_or((package, None), |at| (&package[..at], Some(&package[at + 1..])));
        (name, version.filter(|version| is_exact_semver(version)))
    })
}

fn pypi(args: &[&str], from: &str) -> Reference {
    let values = [
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
    ];
    let runner = Runner { packages: &[from, "--with", "-w"], values: &values };
    let (mut packages, first) = runner.read(args);
    let named = args.iter().any(|arg| *arg == from || arg.strip_prefix(from).is_some_and(|rest| rest.starts_with('=')));
    if !named {
        packages.extend(first);
    }
    together(ArtifactKind::Pypi, &packages, requirement)
}

/// `uv run` of a script with packages; nothing where no package is named.
fn uv_run(args: &[&str]) -> Option<Reference> {
    let values =
        ["--python", "-p", "--directory", "--project", "--env-file", "--index", "--group", "--extra", "-m", "--module"];
    let runner = Runner { packages: &["--with"], values: &values };
    let (packages, _) = runner.read(args);
    (!packages.is_empty()).then(|| together(ArtifactKind::Pypi, &packages, requirement))
}

/// The name and exact version of a requirement.
fn requirement(text: &str) -> (&str, Option<&str>) {
    let end = text.find(['=', '@', '<', '>', '!', '~', ' ', ';']).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let version = rest.strip_prefix("==").or_else(|| rest.strip_prefix('@'));
    (name, version.filter(|version| is_exact_python(version)))
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
            let remedy = if kind == ArtifactKind::Npm { "@1.2.3" } else { "==1.2.3" };
            let name = shown_str(name);
            reference.floating =
                Some(format!("`{name}` has no exact version; write `{name}{remedy}`, with a version of it"));
        }
        None if read.is_empty() => reference.floating = Some("it names no package".to_owned()),
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
fn is_exact_python(version: &str) -> bool {
    version.starts_with(|c: char| c.is_ascii_digit())
        && version.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'+' | b'!' | b'_'))
}

/// Options of `run` that take no value.
const SWITCHES: [&str; 16] = [
    "--detach",
    "--init",
    "--interactive",
    "--no-healthcheck",
    "--oom-kill-disable",
    "--privileged",
    "--publish-all",
    "--quiet",
    "--read-only",
    "--rm",
    "--sig-proxy",
    "--tty",
    "--replace",
    "--rmi",
    "--no-hosts",
    "--tls-verify",
];
/// The same of one letter.
const LETTERS: &str = "itdPq";

/// The image of `docker run`; nothing where nothing is run.
fn container(args: &[&str]) -> Option<Reference> {
    let run = args.iter().position(|arg| *arg == "run")?;
    let mut args = args[run + 1..].iter();
    let image = loop {
        let arg = *args.next()?;
        if arg == "--" {
            break *args.next()?;
        }
        if let Some(long) = arg.strip_prefix("--") {
            if !SWITCHES.contains(&arg) && !long.contains('=') {
                args.next();
            }
        } else if let Some(letters) = arg.strip_prefix('-').filter(|letters| !letters.is_empty()) {
            // Of letters together the first that takes a value takes what is left, or the next argument.
            let valued = letters.find(|c| !LETTERS.contains(c));
            if valued.is_some_and(|at| at + 1 == letters.len()) {
                args.next();
            }
        } else {
            break arg;
        }
    };
    let (named, digest) = match image.split_once('@') {
        Some((named, digest)) => (named, Some(digest)),
        None => (image, None),
    };
    // A colon before the last slash belongs to a port.
    let colon = named.rfind(':').filter(|colon| named.rfind('/').is_none_or(|slash| slash < *colon));
    let (name, tag) = colon.map_or((named, None), |colon| (&named[..colon], Some(&named[colon + 1..])));
    let mut reference = Reference::new(ArtifactKind::Oci, name, 2);
    reference.version = tag.map(str::to_owned);
    let hex = |text: &str| text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    match digest.filter(|digest| digest.strip_prefix("sha256:").is_some_and(hex)) {
        Some(digest) => reference.digest = Some(digest.to_owned()),
        None => {
            let name = shown_str(image);
            reference.floating =
                Some(format!("the image `{name}` is named without its digest; write `{name}@sha256:…`"));
        }
    }
    Some(reference)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ident::Secret;

    fn launch(words: &str) -> Launch {
        let mut words = words.split(' ').map(str::to_owned);
        let command = words.next().unwrap();
        Launch {
            program: PathBuf::from("/bin/sh"),
            command,
            args: words.map(Secret::new).collect(),
            env: Default::default(),
            cwd: None,
            identity: String::new(),
            written: Secret::new(""),
            secrets: Vec::new(),
        }
    }

    fn check(words: &str, kind: ArtifactKind, name: &str, version: Option<&str>, floating: bool) {
        let reference = of_launch(&launch(words));
        let found =
            (reference.kind, reference.name.as_str(), reference.version.as_deref(), reference.floating.is_some());
        assert_eq!(found, (kind, name, version, floating), "{words}");
    }

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
            ("bunx x@1.2.3", Npm, "x", Some("1.2.3")),
            ("pnpm dlx x@1.2.3", Npm, "x", Some("1.2.3")),
            ("yarn dlx x", Npm, "x", None),
            ("npm exec -- x@1.2.3", Npm, "x", Some("1.2.3")),
            ("uvx mcp-x", Pypi, "mcp-x", None),
            ("uvx mcp-x==1.2", Pypi, "mcp-x", Some("1.2")),
            ("uvx mcp-x@1.2", Pypi, "mcp-x", Some("1.2")),
            ("uvx mcp-x@latest", Pypi, "mcp-x", None),
            ("uvx mcp-x>=1.2", Pypi, "mcp-x", None),
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
    fn e_09_an_image_is_exact_by_its_digest() {
        use ArtifactKind::Oci;
        let digest = format!("sha256:{}", "a1".repeat(32));
        for (words, name, tag, exact) in [
            ("docker run -i --rm acme/x", "acme/x", None, false),
            ("docker run -i --rm acme/x:latest", "acme/x", Some("latest"), false),
            (&*format!("docker run -i --rm acme/x@{digest}"), "acme/x", None, true),
            (
                &*format!("docker run --rm -it -e A=1 --mount type=bind -v/a:/b r.invalid:5000/x:1@{digest} arg"),
                "r.invalid:5000/x",
                Some("1"),
                true,
            ),
            (
                &*format!("podman --log-level=info run --network none -ie TOKEN --pull=never x@{digest}"),
                "x",
                None,
                true,
            ),
            ("docker run x@sha256:short", "x", None, false),
        ] {
            check(words, Oci, name, tag, !exact);
            let artifact = of_launch(&launch(words)).measure().unwrap();
            assert_eq!(artifact.integrity.as_deref(), exact.then_some(&*digest), "{words}");
            assert_eq!(artifact.level, if exact { 2 } else { 0 });
        }
    }

    #[test]
    fn e_10_files_are_bound_by_their_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let (program, script) = (folder.path().join("node"), folder.path().join("s.js"));
        std::fs::write(&program, "one").unwrap();
        std::fs::write(&script, "run").unwrap();
        let mut binary = launch("./server --flag");
        binary.program.clone_from(&program);
        let before = of_launch(&binary).measure().unwrap();
        assert_eq!((before.kind, before.level), (ArtifactKind::Binary, 2));
        assert_eq!(before.integrity, Some(Hash::of(b"one").to_string()));
        let mut interpreted = launch("node --no-warnings s.js --port 1");
        interpreted.program.clone_from(&program);
        interpreted.cwd = Some(folder.path().to_owned());
        let script_before = of_launch(&interpreted).measure().unwrap();
        assert_eq!((script_before.kind, &*script_before.name, script_before.level), (ArtifactKind::Script, "s.js", 1));
        std::fs::write(&program, "two").unwrap();
        let after = of_launch(&binary).measure().unwrap();
        assert!(after.difference(&before).unwrap().starts_with("it has the content sha256:"));
        assert!(of_launch(&interpreted).measure().unwrap().difference(&script_before).unwrap().contains("interpreter"));
        std::fs::write(&program, "one").unwrap();
        std::fs::write(&script, "changed").unwrap();
        assert!(of_launch(&interpreted).measure().unwrap().difference(&script_before).unwrap().contains("content"));
        assert_eq!(of_launch(&binary).measure().unwrap().difference(&before), None);
        std::fs::remove_file(&program).unwrap();
        assert!(of_launch(&binary).measure().is_err());
    }

    #[test]
    fn what_says_nothing_of_what_runs_has_no_level() {
        for words in ["env npx -y x", "npm start", "python -m x", "node -e 1", "sh -c x", "uv run serve", "cargo run"] {
            let reference = of_launch(&launch(words));
            assert_eq!((reference.level, reference.floating), (0, None), "{words}");
        }
        let artifact = |words: &str| of_launch(&launch(words)).measure().unwrap();
        let exact = artifact("npx x@1.2.3");
        assert_eq!(exact.level, 1);
        assert_eq!(artifact("npx x").level, 0);
        assert_eq!(artifact("npx x@1.2.4").difference(&exact).unwrap(), "it has the version 1.2.4 instead of 1.2.3");
        assert!(artifact("npx y@1.2.3").difference(&exact).is_some());
        assert!(artifact("uvx x==1.2.3").difference(&exact).unwrap().contains("kind pypi"));
    }
}
