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

/// What only hands on to another program, its own content says nothing: its name, options that take nothing, options that
/// take a value, and how many words of its own come before that program.
const WRAPPERS: [(&str, &[&str], &[&str], usize); 13] = [
    ("env", &["-i", "--ignore-environment", "-"], &["-u", "--unset"], 0),
    ("nice", &[], &["-n", "--adjustment"], 0),
    ("ionice", &["-t"], &["-c", "-n", "--class", "--classdata"], 0),
    ("nohup", &[], &[], 0),
    ("setsid", &["-c", "-f", "-w"], &[], 0),
    ("stdbuf", &[], &["-i", "-o", "-e", "--input", "--output", "--error"], 0),
    ("sudo", &["-n", "-E", "-H"], &["-u", "-g", "--user", "--group"], 0),
    ("doas", &["-n"], &["-u"], 0),
    ("time", &["-p"], &[], 0),
    ("timeout", &["--foreground", "--preserve-status"], &["-k", "-s", "--kill-after", "--signal"], 1),
    ("xvfb-run", &["-a", "--auto-servernum"], &["-n", "-s", "--server-args"], 0),
    ("busybox", &[], &[], 0),
    ("corepack", &[], &[], 0),
];
/// Programs that build, fetch or look up what they run, or run it where nobody sees it from here.
#[rustfmt::skip]
const LAUNCHERS: [&str; 70] = [
    "npm", "npx", "pnpm", "pnpx", "yarn", "bun", "bunx", "deno", "uv", "uvx", "pipx", "pip", "poetry", "pipenv", "pdm",
    "rye", "hatch", "conda", "mamba", "micromamba", "pixi", "cargo", "rustup", "go", "make", "just", "task", "java",
    "jbang", "dotnet", "mvn", "gradle", "sbt", "mise", "asdf", "volta", "fnm", "nix", "nix-shell", "direnv", "devbox",
    "docker", "docker-compose", "podman", "nerdctl", "kubectl", "ssh", "su", "runuser", "chroot", "nsenter", "unshare",
    "bwrap", "firejail", "flatpak", "snap", "systemd-run", "script", "xargs", "find", "parallel", "watch", "flock",
    "strace", "bundle", "composer", "op", "doppler", "dotenv", "dotenvx",
];
/// Programs that run a file of text.
#[rustfmt::skip]
const INTERPRETERS: [&str; 36] = [
    "node", "nodejs", "bun", "deno", "python", "pypy", "ruby", "perl", "php", "lua", "luajit", "tsx", "ts-node", "bash",
    "sh", "zsh", "dash", "ash", "ksh", "mksh", "csh", "tcsh", "fish", "nu", "pwsh", "powershell", "cmd", "osascript",
    "tclsh", "expect", "julia", "guile", "escript", "elixir", "java", "dotnet",
];
/// How deep wrappers are looked through.
const MAX_WRAPPERS: usize = 8;

/// A program and its arguments.
struct Words<'a> {
    /// Its file.
    program: PathBuf,
    /// Its name, without its folder.
    name: String,
    /// As people are shown it.
    command: &'a str,
    args: &'a [&'a str],
    /// Where relative files are.
    cwd: Option<&'a Path>,
}

fn of_launch(launch: &Launch) -> Reference {
    let args: Vec<&str> = launch.args.iter().map(crate::ident::Secret::reveal).collect();
    // What is resolved runs, whatever is written.
    let (program, cwd) = (launch.program.clone(), launch.cwd.as_deref());
    let name = file_name(&program);
    let mut reference = of_words(&Words { program, name, command: &launch.command, args: &args, cwd }, 0);
    hide(launch, &mut reference);
    reference
}

fn file_name(path: &Path) -> String {
    let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    name.trim_end_matches(".exe").trim_end_matches(".cmd").to_owned()
}

fn of_words(words: &Words<'_>, depth: usize) -> Reference {
    let (name, args) = (words.name.as_str(), words.args);
    if let Some((_, switches, values, own)) = WRAPPERS.iter().find(|(wrapper, ..)| *wrapper == name) {
        let inner = inside(args, switches, values, *own).filter(|_| depth < MAX_WRAPPERS);
        return inner.and_then(|inner| wrapped(words, inner, depth)).unwrap_or_else(|| untold(words));
    }
    let npm_exec = |words: &[&[&str]]| after(args, words, &NPM_VALUES).map(|args| npm(&args));
    let found = match name {
        "npx" | "bunx" | "pnpx" => Some(npm(args)),
        "npm" => npm_exec(&[&["exec", "x"]]),
        "pnpm" | "yarn" => npm_exec(&[&["dlx"]]),
        "bun" => npm_exec(&[&["x"]]),
        "uvx" => Some(pypi(args, "--from")),
        "uv" => after(args, &[&["tool"], &["run"]], &PYPI_VALUES)
            .map(|args| pypi(&args, "--from"))
            .or_else(|| after(args, &[&["run"]], &PYPI_VALUES).and_then(|args| uv_run(words, &args))),
        "pipx" => after(args, &[&["run"]], &PYPI_VALUES).map(|args| pypi(&args, "--spec")),
        "docker" | "podman" | "nerdctl" => after(args, &[&["run"]], &DOCKER_VALUES)
            .or_else(|| after(args, &[&["container"], &["run"]], &DOCKER_VALUES))
            .and_then(|args| container(&args)),
        _ => None,
    };
    found.unwrap_or_else(|| file(words))
}

/// What a wrapper hands on to; nothing where one of its options is not known.
fn inside<'a>(args: &'a [&'a str], switches: &[&str], values: &[&str], mut own: usize) -> Option<&'a [&'a str]> {
    let mut at = 0;
    while let Some(&arg) = args.get(at) {
        let option = arg.split_once('=').map_or(arg, |(option, _)| option);
        if arg == "--" || switches.contains(&arg) {
            at += 1;
        } else if values.contains(&option) {
            at += if option == arg { 2 } else { 1 };
        } else if values.iter().any(|value| value.len() == 2 && arg.len() > 2 && arg.starts_with(value)) {
            at += 1;
        } else if arg.starts_with('-') {
            return None;
        } else if own > 0 {
            own -= 1;
            at += 1;
        } else if option != arg && !option.contains('/') {
            // A variable of its environment.
            at += 1;
        } else {
            return args.get(at..);
        }
    }
    None
}

/// The reference of what a wrapper runs; nothing where it would have to be looked for.
fn wrapped(words: &Words<'_>, inner: &[&str], depth: usize) -> Option<Reference> {
    let (&command, args) = inner.split_first()?;
    let path = words.cwd.map_or_else(|| PathBuf::from(command), |cwd| cwd.join(command));
    let named = Words { name: file_name(&path), program: path, command, args, cwd: words.cwd };
    let reference = of_words(&named, depth + 1);
    // The file of a name depends on what the wrapper does to PATH.
    (reference.files.is_empty() || command.contains('/') && named.program.is_file()).then_some(reference)
}

/// The arguments without these words, in this order: subcommands, before and between which options of the program may
/// stand. Nothing where another word stands there.
fn after<'t>(args: &[&'t str], words: &[&[&str]], values: &[&str]) -> Option<Vec<&'t str>> {
    let (mut left, mut words, mut at) = (Vec::with_capacity(args.len()), words.iter(), 0);
    let mut word = words.next();
    while let Some(expected) = word {
        let arg = *args.get(at)?;
        at += 1;
        if arg.starts_with('-') {
            left.push(arg);
            if values.contains(&arg) {
                left.push(args.get(at)?);
                at += 1;
            }
        } else if expected.contains(&arg) {
            word = words.next();
        } else {
            return None;
        }
    }
    left.extend_from_slice(&args[at..]);
    Some(left)
}

/// A program of which is known only that it runs something.
fn untold(words: &Words<'_>) -> Reference {
    let mut reference = Reference::new(ArtifactKind::Binary, words.command, 0);
    reference.files = vec![words.program.clone()];
    reference.floating = Some("it cannot be told what it runs; start that program itself".to_owned());
    reference
}

/// A program or script of this machine.
fn file(words: &Words<'_>) -> Reference {
    let name = words.name.as_str();
    let family = name.trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-'));
    let launches = LAUNCHERS.contains(&name);
    if let Some(family) = [name, family].into_iter().find(|name| INTERPRETERS.contains(name)) {
        let script = script(family, words.args).and_then(|path| Some((path, here(words, path)?)));
        return match script {
            Some((path, script)) => {
                // Its imports are not covered, so it is not bound by its bytes as a whole.
                let mut reference = Reference::new(ArtifactKind::Script, path, u8::from(!launches));
                reference.files = vec![words.program.clone(), script];
                reference
            }
            None => Reference { kind: ArtifactKind::Script, ..untold(words) },
        };
    }
    if launches {
        return untold(words);
    }
    let mut reference = Reference::new(ArtifactKind::Binary, words.command, 2);
    reference.files = vec![words.program.clone()];
    if let Some(interpreter) = stub(&words.program) {
        (reference.kind, reference.level) = (ArtifactKind::Script, 1);
        reference.files.insert(0, interpreter);
    }
    reference
}

/// A file that an argument names.
fn here(words: &Words<'_>, path: &str) -> Option<PathBuf> {
    let moved = words.args.iter().any(|arg| {
        ["--directory", "--cwd"]
            .iter()
            .any(|option| arg.strip_prefix(option).is_some_and(|rest| !rest.starts_with('-')))
    });
    let file = words.cwd.map_or_else(|| PathBuf::from(path), |cwd| cwd.join(path));
    Some(file).filter(|file| !moved && file.is_file())
}

/// What interprets a program that is a text, where it is one.
fn stub(program: &Path) -> Option<PathBuf> {
    let mut start = Vec::new();
    std::fs::File::open(program).ok()?.take(256).read_to_end(&mut start).ok()?;
    let line = start.strip_prefix(b"#!")?.split(|b| *b == b'\n').next()?;
    let line = String::from_utf8_lossy(line);
    let interpreter = PathBuf::from(line.split_whitespace().next().unwrap_or_default());
    // One that is not there fails when it is started.
    Some(if interpreter.is_file() { interpreter } else { program.to_owned() })
}

/// The file of text among the arguments of an interpreter; nothing where its program is given as text, as a module by
/// name, or not at all.
fn script<'a>(family: &str, args: &[&'a str]) -> Option<&'a str> {
    // Letters that say that the program is no file, letters with a value, and the same of long options.
    let (text, valued, long_text, long_valued): (&str, &str, &[&str], &[&str]) = match family {
        "node" | "nodejs" | "tsx" | "ts-node" => (
            "epi",
            "rCP",
            &["eval", "print", "interactive", "run", "test"],
            &[
                "require",
                "import",
                "loader",
                "experimental-loader",
                "conditions",
                "env-file",
                "env-file-if-exists",
                "inspect-port",
                "title",
                "input-type",
                "icu-data-dir",
                "openssl-config",
                "redirect-warnings",
                "diagnostic-dir",
                "tsconfig",
                "project",
                "compiler-options",
                "experimental-config-file",
                "experimental-default-type",
                "stack-trace-limit",
                "dns-result-order",
                "unhandled-rejections",
                "disable-warning",
                "trace-event-categories",
                "localstorage-file",
                "experimental-sea-config",
            ],
        ),
        "python" | "pypy" => ("cm", "WX", &["help"], &["check-hash-based-pycs"]),
        "bun" => (
            "ep",
            "rcd",
            &["eval", "print"],
            &["preload", "require", "import", "cwd", "config", "env-file", "define", "loader", "tsconfig-override"],
        ),
        "deno" => ("", "c", &[], &["config", "import-map", "lock", "cert", "location", "seed", "preload", "ext"]),
        "ruby" => ("e", "CIrExKW", &[], &["encoding", "require"]),
        "perl" => ("eE", "I", &[], &[]),
        "php" => ("rBRFSa", "dcz", &["run", "server"], &["define", "php-ini"]),
        "lua" | "luajit" => ("ei", "lj", &[], &[]),
        "fish" => ("ci", "CdDof", &["command", "init-command", "interactive"], &["debug", "debug-output", "features"]),
        "bash" | "sh" | "zsh" | "dash" | "ash" | "ksh" | "mksh" => ("csi", "oO", &[], &["rcfile", "init-file"]),
        "java" => return jar(args),
        // Of the others no options are known.
        _ => return args.first().copied().filter(|arg| !arg.starts_with('-')),
    };
    let mut args = args.iter().copied().peekable();
    if matches!(family, "bun" | "deno") {
        args.next_if_eq(&"run");
    }
    while let Some(arg) = args.next() {
        if arg == "--" {
            return args.next();
        }
        if let Some(long) = arg.strip_prefix("--") {
            let (option, attached) = long.split_once('=').map_or((long, false), |(option, _)| (option, true));
            if long_text.contains(&option) {
                return None;
            }
            if long_valued.contains(&option) && !attached {
                args.next();
            }
        } else if let Some(letters) = arg.strip_prefix('-').or_else(|| arg.strip_prefix('+')) {
            // The first letter that takes a value takes what is left, or the next argument.
            let found = letters.char_indices().find(|(_, c)| text.contains(*c) || valued.contains(*c));
            match found {
                _ if letters.is_empty() => return None,
                Some((_, c)) if text.contains(c) => return None,
                Some((at, _)) if at + 1 == letters.len() => drop(args.next()),
                _ => {}
            }
        } else {
            return Some(arg);
        }
    }
    None
}

/// The archive of `java -jar`.
fn jar<'a>(args: &[&'a str]) -> Option<&'a str> {
    let at = args.iter().position(|arg| *arg == "-jar")?;
    let harmless = |arg: &&str| ["-D", "-X", "-ea", "--enable-"].iter().any(|known| arg.starts_with(known));
    args[..at].iter().all(harmless).then(|| args.get(at + 1).copied()).flatten()
}

/// Takes out what references put into the arguments: no secret may enter the lock. What a reference names can be another
/// tomorrow, unless bytes bind it.
fn hide(launch: &Launch, reference: &mut Reference) {
    let written: Option<serde_json::Value> = serde_json::from_str(launch.written.reveal()).ok();
    let written = written.as_ref().and_then(|written| written.get("args")).and_then(serde_json::Value::as_array);
    let is_literal = |(index, arg): (usize, &str)| {
        let written = written.filter(|written| written.len() == launch.args.len());
        written.is_some_and(|written| written[index].as_str() == Some(arg))
    };
    let args = launch.args.iter().map(crate::ident::Secret::reveal).enumerate();
    let put: Vec<&str> = args.filter(|arg| !is_literal(*arg)).map(|(_, arg)| arg).collect();
    let mut secrets: Vec<&str> = launch.secrets.iter().map(crate::ident::Secret::reveal).collect();
    secrets.retain(|secret| !secret.is_empty() && put.iter().any(|arg| arg.contains(secret)));
    // What holds another first.
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    let masked = |text: &str| secrets.iter().fold(text.to_owned(), |text, secret| text.replace(secret, "[secret]"));
    let name = masked(&reference.name);
    let version = reference.version.as_deref().map(masked);
    let named = name != reference.name || version != reference.version;
    let floating = reference.floating.as_deref().map(masked);
    (reference.name, reference.version, reference.floating) = (name, version, floating);
    if named && matches!(reference.kind, ArtifactKind::Npm | ArtifactKind::Pypi) && reference.floating.is_none() {
        reference.floating = Some("its package or version comes out of a reference; write it out".to_owned());
    }
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

/// Options of npm and its like that take a value and name no package to run.
const NPM_VALUES: [&str; 12] = [
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

fn npm(args: &[&str]) -> Reference {
    let runner = Runner { packages: &["-p", "--package"], values: &NPM_VALUES };
    let (mut packages, first) = runner.read(args);
    let own = args.iter().take_while(|arg| Some(**arg) != first);
    if own.copied().any(|arg| ["-c", "--call"].contains(&arg.split_once('=').map_or(arg, |(option, _)| option))) {
        let mut reference = Reference::new(ArtifactKind::Npm, packages.join(", "), 0);
        reference.floating = Some("it runs a text of commands".to_owned());
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
const PYPI_VALUES: [&str; 28] = [
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

fn pypi(args: &[&str], from: &str) -> Reference {
    let runner = Runner { packages: &[from, "--with", "-w"], values: &PYPI_VALUES };
    let (mut packages, first) = runner.read(args);
    let named = args.iter().any(|arg| *arg == from || arg.strip_prefix(from).is_some_and(|rest| rest.starts_with('=')));
    if !named {
        packages.extend(first);
    }
    together(ArtifactKind::Pypi, &packages, requirement)
}

/// `uv run` with packages, or of a file; nothing for what stands in a project.
fn uv_run(words: &Words<'_>, args: &[&str]) -> Option<Reference> {
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
fn is_npm_name(name: &str) -> bool {
    match name.strip_prefix('@') {
        Some(scoped) => scoped.split_once('/').is_some_and(|(scope, name)| is_plain(scope) && is_plain(name)),
        None => is_plain(name),
    }
}

/// `name`, `name[extra]`.
fn is_pypi_name(name: &str) -> bool {
    match name.split_once('[') {
        Some((name, extras)) => is_plain(name) && extras.strip_suffix(']').is_some_and(is_plain),
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
const SWITCHES: [&str; 20] = [
    "--detach",
    "--disable-content-trust",
    "--env-host",
    "--no-hostname",
    "--unsetenv-all",
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

/// Options before `run` that take a value.
const DOCKER_VALUES: [&str; 14] = [
    "-H",
    "--host",
    "-c",
    "--context",
    "--config",
    "-l",
    "--log-level",
    "--root",
    "--runroot",
    "--connection",
    "--url",
    "-n",
    "--namespace",
    "--storage-driver",
];

/// The image of a run, from the arguments without `run`; nothing where none is named.
fn container(args: &[&str]) -> Option<Reference> {
    let mut args = args.iter();
    let image = loop {
        let arg = *args.next()?;
        if arg == "--" {
            break *args.next()?;
        }
        if let Some(long) = arg.strip_prefix("--") {
            if !SWITCHES.contains(&arg) && !long.contains('=') && long != "debug" && long != "tls" {
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
        let program = Path::new("/nowhere").join(Path::new(&command).file_name().unwrap());
        Launch {
            program,
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
        let server = folder.path().join("server");
        std::fs::hard_link(&program, &server).unwrap();
        let mut binary = launch("./server --flag");
        binary.program.clone_from(&server);
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
        std::fs::remove_file(&server).unwrap();
        assert!(of_launch(&binary).measure().is_err());
    }

    #[test]
    fn e_09_what_cannot_be_told_floats() {
        for words in [
            "env npx -y x",
            "npm start",
            "python -m x",
            "python3.12 -m uv tool run x",
            "python -Ic x",
            "node -e 1",
            "node",
            "node gone.js",
            "sh -c x",
            "dash -c x",
            "fish -c x",
            "busybox sh -c x",
            "bash -ec x",
            "uv run serve",
            "cargo run",
            "pnpm --package=x dlx cmd",
            "npm --yes exec x",
            "uv --quiet tool run x",
            "deno run npm:x",
            "corepack pnpm dlx x",
            "mise exec -- npx x@1.2.3",
            "ssh h cmd",
            "docker exec a b",
            "docker compose up",
            "docker compose run x",
            "npx -p x@1.2.3 -c cmd",
            "env -S npx x@1.2.3",
            "nice server",
            "java -cp a b",
        ] {
            let reference = of_launch(&launch(words));
            assert!(reference.floating.is_some(), "{words}");
        }
        for words in [
            "env A=1 -u B npx -y x@1.2.3",
            "timeout -k 5 10 nice -n 5 npx x@1.2.3",
            "npm --yes exec x@1.2.3",
            "pnpm --package=x@1.2.3 dlx cmd",
            "uv --quiet tool run x==1.2.3",
            "corepack pnpm dlx x@1.2.3",
        ] {
            let reference = of_launch(&launch(words));
            assert_eq!((reference.version.as_deref(), reference.floating), (Some("1.2.3"), None), "{words}");
        }
    }

    #[test]
    fn e_09_what_is_resolved_counts_and_not_what_is_written() {
        let mut launch = launch("${env:NPX:-npx} -y x");
        launch.program = PathBuf::from("/usr/bin/npx");
        assert!(of_launch(&launch).floating.unwrap().contains("`x` has no exact version"));
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

    #[test]
    fn i_34_what_a_reference_puts_in_is_not_told() {
        let with = |words: &str, written: &str| {
            let mut launch = launch(words);
            launch.written = Secret::new(written);
            launch.secrets = vec![Secret::new("s3cret"), Secret::new("x")];
            of_launch(&launch)
        };
        let found = with("docker run s3cret", r#"{"args":["run","${env:T}"]}"#);
        assert!(found.name == "[secret]" && !found.floating.unwrap().contains("s3cret"));
        let found = with("npx s3cret@1.2.3", r#"{"args":["${env:T}@1.2.3"]}"#);
        assert!(found.name == "[secret]" && found.floating.is_some());
        let found = with("npx x@1.2.3 s3cret", r#"{"args":["x@1.2.3","${env:T}"]}"#);
        assert_eq!((&*found.name, found.floating), ("x", None), "what is written is shown");
        let digest = format!("sha256:{}", "a1".repeat(32));
        let found = of_launch(&launch(&format!("docker run --disable-content-trust x@{digest} y")));
        assert_eq!(found.name, "x");
    }

    #[test]
    fn e_10_the_script_is_hashed_and_not_the_value_of_an_option() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["s.js", "trace.js", "utf8", "run"] {
            std::fs::write(folder.path().join(name), name).unwrap();
        }
        let read = |words: &str| {
            let mut launch = launch(words);
            launch.cwd = Some(folder.path().to_owned());
            of_launch(&launch)
        };
        for words in [
            "node --require ./trace.js s.js",
            "node -r trace.js s.js",
            "python -X utf8 s.js",
            "python -Xutf8 s.js",
            "deno run s.js",
            "deno run --config utf8 s.js",
            "bun run s.js",
            "uv run s.js",
            "uv run --python utf8 s.js",
        ] {
            let found = read(words);
            assert_eq!((&*found.name, found.kind, found.floating), ("s.js", ArtifactKind::Script, None), "{words}");
            assert_eq!(found.files.last().unwrap(), &folder.path().join("s.js"), "{words}");
        }
        assert!(read("uv --directory elsewhere run s.js").floating.is_some());
        let stub = folder.path().join("stub");
        std::fs::write(&stub, "#!/bin/sh\nexec x\n").unwrap();
        let mut launch = launch("stub");
        launch.program = stub;
        let found = of_launch(&launch).measure().unwrap();
        assert_eq!((found.kind, found.level), (ArtifactKind::Script, 1));
        assert_eq!(found.integrity, Some(Hash::of(b"#!/bin/sh\nexec x\n").to_string()));
    }

    #[test]
    fn what_is_another_is_told() {
        let artifact = |words: &str| of_launch(&launch(words)).measure().unwrap();
        let exact = artifact("npx x@1.2.3");
        assert_eq!(exact.level, 1);
        assert_eq!(artifact("npx x").level, 0);
        assert_eq!(artifact("npx x@1.2.4").difference(&exact).unwrap(), "it has the version 1.2.4 instead of 1.2.3");
        assert!(artifact("npx y@1.2.3").difference(&exact).is_some());
        assert!(artifact("uvx x==1.2.3").difference(&exact).unwrap().contains("kind pypi"));
    }
}
