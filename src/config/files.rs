//! Which files make the configuration, and their texts.
//!
//! Each file is read once; what is hashed for trust is what is then loaded. Deliberately knows nothing of what
//! the files say. Called by `load` and `trust`.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::environment::Environment;
use super::fault::{Fault, Note, Place};
use super::load::LoadOptions;
use super::trust;

/// The name of our file.
pub(super) const NAME: &str = "onegate.toml";

/// Largest file; some hosts keep much else beside their servers.
const LARGEST: u64 = 16 * 1024 * 1024;

/// A file that was read.
pub(super) struct Text {
    pub path: PathBuf,
    /// The path as people know it: short where it lies below where they are.
    pub shown: PathBuf,
    pub text: Vec<u8>,
    /// Anybody on this machine may change it.
    pub loose: bool,
    /// It is one of the organisation's, which come first.
    pub organisation: bool,
}

/// What the search found.
#[derive(Default)]
pub(super) struct Found {
    /// Lowest layer first.
    pub texts: Vec<Text>,
    pub notes: Vec<Note>,
    pub faults: Vec<Fault>,
    /// The `./onegate.toml` that was passed over.
    pub untrusted: Option<trust::Candidate>,
}

/// The folder of the organisation's layer, below `etc`.
pub(super) const ORGANISATION: &str = "policy.d";

/// Finds and reads the files: the organisation's layer, then the named files or the first of the search.
pub(super) fn find(options: &LoadOptions, draft: Option<Draft<'_>>) -> Found {
    let mut found = Found::default();
    let organisation = options.etc.join(ORGANISATION);
    // What cannot be read may forbid something.
    let paths = folder(&organisation).unwrap_or_else(|fault| {
        found.faults.push(*fault);
        Vec::new()
    });
    for path in paths {
        found.add(read(&path, &options.cwd).map(|text| vec![Text { organisation: true, ..text }]));
    }
    let environment = &options.environment;
    let named: Vec<PathBuf> = if options.files.is_empty() {
        environment.get("ONEGATE_CONFIG").filter(|path| !path.is_empty()).map(PathBuf::from).into_iter().collect()
    } else {
        options.files.clone()
    };
    if !named.is_empty() {
        for path in named {
            found.add(read_group_with(&options.cwd.join(path), &options.cwd, draft));
        }
        return found;
    }
    let here = options.cwd.join(NAME);
    if is_there(&here) {
        match local(&options.cwd, environment) {
            Ok(Local::Trusted(group)) => {
                found.texts.extend(group);
                return found;
            }
            Ok(Local::Unknown(candidate)) => {
                found.notes.push(Note {
                    place: Place::file(Path::new(NAME)),
                    message: "is skipped, because its content is not trusted; look at it, then run \
                              `onegate trust`"
                        .to_owned(),
                });
                found.untrusted = Some(candidate);
            }
            Err(fault) => found.faults.push(*fault),
        }
    }
    let user = environment.user_file();
    let system = options.etc.join(NAME);
    for path in user.into_iter().chain([system]) {
        if is_there(&path) {
            found.add(read_group(&path, &options.cwd));
            break;
        }
    }
    found
}

impl Found {
    fn add(&mut self, group: Result<Vec<Text>, Box<Fault>>) {
        match group {
            Ok(texts) => self.texts.extend(texts),
            Err(fault) => self.faults.push(*fault),
        }
    }
}

/// What `./onegate.toml` is to us.
enum Local {
    Trusted(Vec<Text>),
    Unknown(trust::Candidate),
}

/// `./onegate.toml` and what is beside it, when trusted.
fn local(folder: &Path, environment: &Environment) -> Result<Local, Box<Fault>> {
    let group = read_group(&folder.join(NAME), folder)?;
    let candidate =
        trust::candidate(folder, &group).map_err(|error| fault(Path::new(NAME), format!("cannot be read: {error}")))?;
    if trust::is_trusted(&environment.state_folder(), &candidate) {
        Ok(Local::Trusted(group))
    } else {
        Ok(Local::Unknown(candidate))
    }
}

/// A file, and for `X.toml` the files of `X.d` after it.
pub(super) fn read_group(path: &Path, cwd: &Path) -> Result<Vec<Text>, Box<Fault>> {
    read_group_with(path, cwd, None)
}

/// A text that somebody means to write into a file.
#[derive(Clone, Copy)]
pub(super) struct Draft<'d> {
    pub path: &'d Path,
    pub text: &'d str,
}

/// The same with a draft in the place of its file.
fn read_group_with(path: &Path, cwd: &Path, draft: Option<Draft<'_>>) -> Result<Vec<Text>, Box<Fault>> {
    let one = |path: &Path| match draft.filter(|draft| draft.path == path) {
        Some(draft) => Ok(Text {
            path: path.to_owned(),
            shown: path.strip_prefix(cwd).unwrap_or(path).to_owned(),
            text: draft.text.into(),
            organisation: false,
            loose: false,
        }),
        None => read(path, cwd),
    };
    let mut group = vec![one(path)?];
    if let Some(beside) = beside(path) {
        for path in folder(&beside)? {
            group.push(one(&path)?);
        }
    }
    Ok(group)
}

/// The folder whose files come after `X.toml`: `X.d`.
pub(super) fn beside(path: &Path) -> Option<PathBuf> {
    path.extension().is_some_and(|extension| extension == "toml").then(|| path.with_extension("d"))
}

/// The `*.toml` of a folder in name order, nothing where there is none; editors' backups and hidden files do not count
/// (D029).
fn folder(path: &Path) -> Result<Vec<PathBuf>, Box<Fault>> {
    let unreadable = |error| fault(path, format!("cannot be read: {error}"));
    let entries = match std::fs::read_dir(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(unreadable)?,
    };
    let mut paths = Vec::new();
    for entry in entries {
        let entry = entry.map_err(unreadable)?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.ends_with(".toml") && !name.starts_with(['.', '#']) {
            paths.push(entry.path());
        }
    }
    paths.sort();
    Ok(paths)
}

/// There, even if it cannot be read: a file that is there is never passed over in silence.
fn is_there(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok()
}

fn fault(shown: &Path, message: String) -> Box<Fault> {
    Box::new(Fault { place: Place::file(shown), key: String::new(), message, nearest: None })
}

fn read(path: &Path, cwd: &Path) -> Result<Text, Box<Fault>> {
    let shown = path.strip_prefix(cwd).unwrap_or(path).to_owned();
    let unreadable = |error| fault(&shown, format!("cannot be read: {error}"));
    let file = std::fs::File::open(path).map_err(unreadable)?;
    let kind = file.metadata().map_err(unreadable)?;
    if kind.is_dir() {
        return Err(fault(&shown, "is a folder, not a file".to_owned()));
    }
    let mut text = Vec::with_capacity(usize::try_from(kind.len().min(LARGEST)).unwrap_or(0) + 1);
    file.take(LARGEST + 1).read_to_end(&mut text).map_err(unreadable)?;
    if text.len() as u64 > LARGEST {
        let most = LARGEST / (1024 * 1024);
        return Err(fault(&shown, format!("is larger than {most} MiB")));
    }
    Ok(Text {
        path: path.to_owned(),
        shown,
        text,
        organisation: false,
        loose: kind.is_file() && {
            use std::os::unix::fs::PermissionsExt as _;
            kind.permissions().mode() & 0o002 != 0
        },
    })
}
