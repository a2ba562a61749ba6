//! What is launched, as far as it can be told from how: a package of a registry, an image, a program, a script, an address
//! (threat model §3.2).
//!
//! Reads the words of a launch and files of this machine; asks no registry. A reference is exact or floating; how much
//! an exact one binds is its level. The words are read by [`programs`], those of package runners by [`runners`], of
//! containers by [`images`], of interpreters by [`scripts`]. Packages that are installed so that their bytes are bound are
//! [`super::managed`]'s.

mod images;
mod programs;
mod runners;
mod scripts;

use std::fmt;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

pub use self::runners::{is_exact_python, is_npm_name, is_pypi_name};
use super::facet::Hash;
use crate::config::settings::{Launch, Reach};
use crate::ident::Secret;
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
    /// The list of packages that it is installed from, beside the snapshots.
    pub packages: Option<Hash>,
    /// How much it is bound: 0 not at all, 1 by its exact version, 2 by its bytes, 3 by a verified signature.
    pub level: u8,
    /// Why what is installed is not what was installed. Never so in a lock.
    pub broken: Option<String>,
}

impl fmt::Display for Artifact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.as_str(), shown_str(&self.name))?;
        for part in [&self.version, &self.integrity, &self.interpreter].into_iter().flatten() {
            write!(f, " {}", shown_str(part))?;
        }
        Ok(())
    }
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
        if let Some(broken) = &self.broken {
            return Some(broken.clone());
        }
        let missing = locked.packages.is_some() && self.packages.is_none() && self.version == locked.version;
        if missing {
            return Some("it is not installed here as the lock says; `onegate lock --install` does that".to_owned());
        }
        let packages = |of: &Self| of.packages.map(|packages| packages.to_string());
        one("it has the version", &self.version, &locked.version)
            .or_else(|| one("it has the content", &self.integrity, &locked.integrity))
            .or_else(|| one("its interpreter has the content", &self.interpreter, &locked.interpreter))
            .or_else(|| one("it is installed from the packages", &packages(self), &packages(locked)))
    }
}

/// Why what is launched may be something else tomorrow: no exact version, a tag, a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Floating {
    /// What is wrong.
    pub why: String,
    /// What helps; empty where nothing does that is simple to say.
    pub remedy: String,
}

impl Floating {
    fn new(why: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { why: why.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for Floating {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { why, remedy } = self;
        if remedy.is_empty() { f.write_str(why) } else { write!(f, "{why}; {remedy}") }
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
    /// Why it may be something else tomorrow, if so.
    pub floating: Option<Floating>,
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
                reference.floating =
                    Some(Floating::new("its address is not https, so anybody on the way can answer", ""));
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

    /// The files whose content is what is launched.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
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
            packages: None,
            broken: None,
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

/// The name of a program, without its folder and the endings of programs.
pub fn program_name(program: &Path) -> String {
    programs::file_name(program)
}

fn of_launch(launch: &Launch) -> Reference {
    let args: Vec<&str> = launch.args.iter().map(Secret::reveal).collect();
    // What is resolved runs, whatever is written.
    let (program, cwd) = (launch.program.clone(), launch.cwd.as_deref());
    let name = programs::file_name(&program);
    let mut reference =
        programs::read(&programs::Words { program, name, command: &launch.command, args: &args, cwd }, 0);
    hide(launch, &mut reference);
    reference
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
    let args = launch.args.iter().map(Secret::reveal).enumerate();
    let put: Vec<&str> = args.filter(|arg| !is_literal(*arg)).map(|(_, arg)| arg).collect();
    let mut secrets: Vec<&str> = launch.secrets.iter().map(Secret::reveal).collect();
    secrets.retain(|secret| !secret.is_empty() && put.iter().any(|arg| arg.contains(secret)));
    // What holds another first.
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    let masked = |text: &str| secrets.iter().fold(text.to_owned(), |text, secret| text.replace(secret, "[secret]"));
    let name = masked(&reference.name);
    let version = reference.version.as_deref().map(masked);
    let named = name != reference.name || version != reference.version;
    let floating =
        reference.floating.take().map(|Floating { why, remedy }| Floating::new(masked(&why), masked(&remedy)));
    (reference.name, reference.version, reference.floating) = (name, version, floating);
    if named && matches!(reference.kind, ArtifactKind::Npm | ArtifactKind::Pypi) && reference.floating.is_none() {
        reference.floating = Some(Floating::new("its package or version comes out of a reference", "write it out"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn launch(words: &str) -> Launch {
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

    pub(super) fn check(words: &str, kind: ArtifactKind, name: &str, version: Option<&str>, floating: bool) {
        let reference = of_launch(&launch(words));
        let found =
            (reference.kind, reference.name.as_str(), reference.version.as_deref(), reference.floating.is_some());
        assert_eq!(found, (kind, name, version, floating), "{words}");
    }

    #[test]
    fn e_09_what_is_resolved_counts_and_not_what_is_written() {
        let mut launch = launch("${env:NPX:-npx} -y x");
        launch.program = PathBuf::from("/usr/bin/npx");
        assert!(of_launch(&launch).floating.unwrap().to_string().contains("`x` has no exact version"));
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
        assert!(found.name == "[secret]" && !found.floating.unwrap().to_string().contains("s3cret"));
        let found = with("npx s3cret@1.2.3", r#"{"args":["${env:T}@1.2.3"]}"#);
        assert!(found.name == "[secret]" && found.floating.is_some());
        let found = with("npx x@1.2.3 s3cret", r#"{"args":["x@1.2.3","${env:T}"]}"#);
        assert_eq!((&*found.name, found.floating), ("x", None), "what is written is shown");
        let digest = format!("sha256:{}", "a1".repeat(32));
        let found = of_launch(&launch(&format!("docker run --disable-content-trust x@{digest} y")));
        assert_eq!(found.name, "x");
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
