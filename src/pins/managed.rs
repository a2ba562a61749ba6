//! Packages that are installed where we keep them, so that their bytes are bound and not their version alone (threat model
//! §3.2, level 2).
//!
//! What is installed is said by a list of packages with an integrity value for each, made by npm or by uv or pip; the lock
//! names that list by its hash and keeps it beside the snapshots. Here: what of a launch can be installed ([`Plan`]), and
//! whether the folder is what was installed ([`Site`]); what a list says: [`super::listed`]; whose an installation is: [`kept`]. Starts no client: `onegate lock` does.
//! Asked by the gateway before a start, and by the commands.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::artifact::{Artifact, ArtifactKind, Reference, hash_file, program_name};
use super::facet::Hash;
use super::listed::listed;
use crate::config::settings::Launch;
use crate::ident::Secret;
use crate::shown::shown_str;
use crate::whole;

pub mod kept;

/// Files that an installation may have.
const MAX_FILES: usize = 200_000;
/// Options of runners that say nothing of what runs.
const SILENT: [&str; 7] = ["-y", "--yes", "-q", "--quiet", "--no-progress", "--silent", "--no-audit"];

/// What a runner is asked to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Of npm or of `PyPI`.
    pub kind: ArtifactKind,
    /// Their names, extras with them, and exact versions.
    pub packages: Vec<(String, String)>,
    /// The Python that is asked for.
    pub python: Option<String>,
    /// The command of theirs that is run, where it is named.
    entry: Option<String>,
    /// At which argument those of the server begin.
    rest: usize,
}

impl Plan {
    /// Of a launch; why it cannot be installed, else.
    pub fn of(launch: &Launch) -> Result<Self, String> {
        let args: Vec<&str> = launch.args.iter().map(Secret::reveal).collect();
        let name = program_name(&launch.program);
        let (kind, own, naming): (_, _, &[&str]) = match (name.as_str(), &args[..]) {
            ("npx", _) => (ArtifactKind::Npm, 0, &["-p", "--package"]),
            ("npm", ["exec" | "x", ..]) => (ArtifactKind::Npm, 1, &["-p", "--package"]),
            ("uvx", _) => (ArtifactKind::Pypi, 0, &["--from", "--with", "-w"]),
            ("uv", ["tool", "run", ..]) => (ArtifactKind::Pypi, 2, &["--from", "--with", "-w"]),
            ("pipx", ["run", ..]) => (ArtifactKind::Pypi, 1, &["--spec"]),
            _ => return Err("it is not started by npx, npm exec, uvx, uv tool run or pipx run".to_owned()),
        };
        let (mut words, mut python, mut at, mut stops) = (Vec::new(), None, own, false);
        let first = loop {
            let arg = *args.get(at).ok_or("it names no package")?;
            at += 1;
            if stops || !arg.starts_with('-') {
                break arg;
            }
            let (option, attached) = arg.split_once('=').map_or((arg, None), |(option, value)| (option, Some(value)));
            let is_python = kind == ArtifactKind::Pypi && matches!(option, "-p" | "--python");
            if arg == "--" {
                stops = true;
            } else if is_python || naming.contains(&option) {
                let value = attached.or_else(|| args.get(at).copied()).ok_or("an option has no value")?;
                at += usize::from(attached.is_none());
                if is_python { python = Some(value.to_owned()) } else { words.push((option, value)) }
            } else if !SILENT.contains(&arg) {
                return Err(format!("nobody knows what its option {} is to an installation", shown_str(option)));
            }
        };
        if name == "npm" && !stops {
            return Err("without `--` npm takes arguments of the server for its own".to_owned());
        }
        // Whatever is beside it, a package that is named as such brings the command.
        let is_main = |(option, _): &(&str, &str)| !matches!(*option, "--with" | "-w");
        let entry = words.iter().any(is_main).then(|| first.to_owned());
        if entry.is_none() {
            words.push(("", first));
        }
        let packages = words.iter().flat_map(|(_, value)| value.split(',')).map(|word| exact(kind, word.trim()));
        let packages: Vec<_> = packages.collect::<Option<_>>().ok_or("a package of it has no exact version")?;
        let entry = entry.or_else(|| {
            let (name, _) = packages.last()?;
            (kind == ArtifactKind::Pypi).then(|| name.split('[').next().unwrap_or_default().to_owned())
        });
        if entry.as_ref().is_some_and(|entry| entry.contains('/') || entry.starts_with('.')) {
            return Err("what it runs is no command of a package".to_owned());
        }
        Ok(Self { kind, packages, python, entry, rest: at })
    }

    /// The same as the clients read it: `package.json`, or a list of requirements.
    pub fn wanted(&self) -> String {
        if self.kind == ArtifactKind::Npm {
            let packages: Map<_, _> =
                self.packages.iter().map(|(name, version)| (name.clone(), json!(version))).collect();
            return json!({ "name": "managed", "version": "0.0.0", "private": true, "dependencies": packages })
                .to_string();
        }
        self.packages.iter().map(|(name, version)| format!("{name}=={version}\n")).collect()
    }

    /// The program that is started, of what is installed there.
    fn program(&self, folder: &Path) -> Option<PathBuf> {
        if self.kind == ArtifactKind::Pypi {
            return Some(folder.join("venv/bin").join(self.entry.as_ref()?));
        }
        let name = match &self.entry {
            Some(entry) => entry.clone(),
            None => {
                let (package, _) = self.packages.first()?;
                let about = std::fs::read(folder.join("node_modules").join(package).join("package.json")).ok()?;
                command_of(package, &serde_json::from_slice(&about).ok()?)?
            }
        };
        Some(folder.join("node_modules/.bin").join(name))
    }
}

fn exact(kind: ArtifactKind, word: &str) -> Option<(String, String)> {
    let (name, version) = if kind == ArtifactKind::Npm {
        word.rsplit_once('@').filter(|(name, _)| !name.is_empty())?
    } else {
        word.split_once("==").or_else(|| word.split_once('@'))?
    };
    let (name, version) = (name.trim(), version.trim());
    let plain = |text: &str| !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c.is_control());
    (plain(name) && plain(version)).then(|| (name.to_owned(), version.to_owned()))
}

/// The command that a package of npm is run by: its only one, or the one of its name.
fn command_of(package: &str, about: &Value) -> Option<String> {
    let own = package.rsplit('/').next().unwrap_or(package);
    let name = match about.get("bin")? {
        Value::String(_) => own,
        Value::Object(bins) => {
            let mut files: Vec<_> = bins.values().collect();
            files.dedup();
            if files.len() == 1 { bins.keys().next()?.as_str() } else { bins.get_key_value(own)?.0.as_str() }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => return None,
    };
    (!name.contains('/') && !name.starts_with('.')).then(|| name.to_owned())
}

/// Where all installations are, of all locks.
fn installations(state: &Path) -> PathBuf {
    state.join("installed")
}

/// Where the packages of one list are installed as one plan has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    kind: ArtifactKind,
    packages: Hash,
    folder: PathBuf,
}

impl Site {
    /// The place of a list of packages in a state folder. Another plan may resolve to the same list, for another Python too:
    /// it has a place of its own, so that neither undoes the other.
    pub fn of(state: &Path, plan: &Plan, packages: Hash) -> Self {
        let Plan { kind, python, .. } = plan;
        let all = json!([packages.to_string(), plan.wanted(), python]).to_string();
        let name = format!("{}-{}", kind.as_str(), &Hash::of(all.as_bytes()).hex()[..24]);
        Self { kind: *kind, packages, folder: installations(state).join(name) }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn note(&self) -> PathBuf {
        self.folder.with_extension("json")
    }

    /// Begins anew: nothing counts as installed until [`Self::close`].
    pub fn open(&self) -> io::Result<()> {
        for result in [std::fs::remove_file(self.note()), std::fs::remove_dir_all(&self.folder)] {
            result.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })?;
        }
        std::fs::create_dir_all(&self.folder)
    }

    /// Notes what was installed: from now on that is what must be there.
    pub fn close(&self, plan: &Plan, list: &[u8]) -> io::Result<()> {
        let integrity = listed(plan, list).map_err(io::Error::other)?;
        let program = plan.program(&self.folder).ok_or_else(|| io::Error::other("the package brings no command"))?;
        if !program.is_file() {
            return Err(io::Error::other(format!("the package brings no command {}", shown_file(&program))));
        }
        let files: Map<_, _> = tree(&self.folder)?.into_iter().map(|(path, what)| (path, what.into())).collect();
        let wanted = plan.wanted();
        let note =
            json!({ "packages": self.packages.to_string(), "wanted": wanted, "integrity": integrity, "files": files });
        whole::replace(&self.note(), note.to_string().as_bytes(), 0o600)
    }

    /// What was installed for this plan; nothing where that is not so.
    fn noted(&self, plan: &Plan) -> Option<Value> {
        let note: Value = serde_json::from_slice(&std::fs::read(self.note()).ok()?).ok()?;
        let is = |name: &str, text: &str| note.get(name).and_then(Value::as_str) == Some(text);
        (plan.kind == self.kind && is("packages", &self.packages.to_string()) && is("wanted", &plan.wanted()))
            .then_some(note)
    }

    /// Whether it is all there, and nothing of it another.
    pub fn is_whole(&self, plan: &Plan) -> bool {
        self.noted(plan).is_some_and(|note| self.broken(&note).is_none())
    }

    /// What is there that was not installed, or is another; reads all of it.
    fn broken(&self, note: &Value) -> Option<String> {
        let now = match tree(&self.folder) {
            Ok(now) => now,
            Err(error) => return Some(format!("what is installed cannot be read: {error}")),
        };
        let then = note.get("files").and_then(Value::as_object)?;
        let other = now.iter().find_map(|(path, what)| match then.get(path).and_then(Value::as_str) {
            Some(known) if known == what => None,
            Some(_) => Some(format!("{} is another", shown_str(path))),
            None => Some(format!("{} is new", shown_str(path))),
        });
        let gone =
            || then.keys().find(|path| !now.contains_key(*path)).map(|path| format!("{} is gone", shown_str(path)));
        let what = other.or_else(gone)?;
        Some(format!("it is not what was installed: {what}; `onegate lock --install` installs it anew"))
    }

    /// What is installed, as the lock has it; nothing where it is not installed for this plan. Reads all files of it.
    pub fn measure(&self, plan: &Plan, reference: &Reference) -> Option<Artifact> {
        let note = self.noted(plan)?;
        let broken = self.broken(&note);
        let bound = broken.is_none();
        Some(Artifact {
            kind: self.kind,
            name: reference.name.clone(),
            version: reference.version.clone(),
            integrity: note.get("integrity").and_then(Value::as_str).filter(|_| bound).map(str::to_owned),
            interpreter: None,
            packages: Some(self.packages).filter(|_| bound),
            level: if bound { 2 } else { 0 },
            broken,
        })
    }

    /// How the installed command is started in the place of the runner; nothing where it is not installed for this plan.
    pub fn launch(&self, plan: &Plan, launch: &Launch) -> Option<Launch> {
        self.noted(plan)?;
        let program = plan.program(&self.folder)?;
        let mut env = launch.env.clone();
        // What it starts itself is found as a runner has it found.
        let mut path = program.parent()?.as_os_str().to_owned();
        if let Some(search) = env.get(std::ffi::OsStr::new("PATH")) {
            path.push(":");
            path.push(search.reveal());
        }
        env.insert("PATH".into(), Secret::new(path.to_string_lossy()));
        if self.kind == ArtifactKind::Pypi {
            // Python would write beside what is compared.
            env.insert("PYTHONDONTWRITEBYTECODE".into(), Secret::new("1"));
        }
        let command = program.to_string_lossy().into_owned();
        let args = launch.args.get(plan.rest..)?.to_vec();
        Some(Launch { program, command, args, env, ..launch.clone() })
    }
}

fn shown_file(path: &Path) -> String {
    shown_str(&path.file_name().unwrap_or_default().to_string_lossy())
}

/// What is in a folder, by relative path: files with what they hold, links with where they lead.
fn tree(folder: &Path) -> io::Result<BTreeMap<String, String>> {
    let (mut found, mut folders) = (BTreeMap::new(), vec![folder.to_owned()]);
    while let Some(within) = folders.pop() {
        for entry in std::fs::read_dir(&within)? {
            let path = entry?.path();
            let about = std::fs::symlink_metadata(&path)?;
            let name = path.strip_prefix(folder).unwrap_or(&path);
            let name = String::from_utf8_lossy(name.as_os_str().as_bytes()).into_owned();
            let what = if about.is_dir() {
                folders.push(path);
                "folder".to_owned()
            } else if about.is_symlink() {
                format!("link {}", std::fs::read_link(&path)?.display())
            } else if about.is_file() {
                let runs = if about.permissions().mode() & 0o111 == 0 { "file" } else { "program" };
                format!("{runs} {}", hash_file(&path)?.hex())
            } else {
                return Err(io::Error::other(format!("{} is neither file nor folder", shown_str(&name))));
            };
            if found.len() >= MAX_FILES || found.insert(name, what).is_some() {
                return Err(io::Error::other("there are too many files, or two of one name"));
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
#[path = "managed_tests.rs"]
pub(super) mod tests;
