//! The way from files, variables and flags to settings: find, read, check, merge, resolve.
//!
//! Every fault of every layer is collected before anything is refused. Called by `cli` and `daemon`.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};

use super::check::Check;
use super::environment::Environment;
use super::fault::{Fault, Faults, Note, Place};
use super::files::{self, Text};
use super::host::{self, Guest};
use super::layers::{self, Layer};
use super::references::Style;
use super::resolve::{self, Resolved};
use super::serving::Serving;
use super::settings::Settings;
use super::tree::{self, Broken, Node, Pos};
use super::{jsonc, schema, trust};
use crate::watched::{self, Read};

/// A flag of the command line that stands for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flag {
    /// `--log`, for `telemetry.log`.
    Log,
    /// `--listen`, for `http.listen`.
    Listen,
}

impl Flag {
    /// Its name, and the key that it stands for.
    const fn key(self) -> (&'static str, [&'static str; 2]) {
        match self {
            Self::Log => ("--log", ["telemetry", "log"]),
            Self::Listen => ("--listen", ["http", "listen"]),
        }
    }
}

/// From where to load.
pub struct LoadOptions {
    /// `--config`, in the order given; when there are any, nothing is searched for.
    pub files: Vec<PathBuf>,
    /// The environment to read.
    pub environment: Environment,
    /// Where we are: `./onegate.toml` is looked for here. Absolute.
    pub cwd: PathBuf,
    /// The system's folder, `/etc/onegate`.
    pub etc: PathBuf,
    /// Flags and their values.
    pub flags: Vec<(Flag, String)>,
}

impl LoadOptions {
    /// Options of this process: its environment, its working folder, the system's folder.
    pub fn of_process() -> std::io::Result<Self> {
        Ok(Self {
            files: Vec::new(),
            environment: Environment::of_process(),
            cwd: std::env::current_dir()?,
            etc: PathBuf::from("/etc/onegate"),
            flags: Vec::new(),
        })
    }
}

/// A configuration that was loaded.
pub struct Loaded {
    /// What the other rooms see.
    pub settings: Settings,
    /// What people should know.
    pub notes: Vec<Note>,
    /// The files that were read, lowest layer first; none when there are none.
    pub sources: Vec<PathBuf>,
    /// The same, and the folders whose files count whichever they are, there or not: what a change of may make another
    /// configuration.
    pub watched: Read,
    /// Which configuration it is, however it reads just now: of its places and of what the environment says of it.
    pub identity: String,
    /// All that disables single servers. `run` and `serve` go on; `check` shows it and fails.
    pub server_faults: Vec<Fault>,
    /// What concerns `serve` alone.
    pub serving: Serving,
    /// The `./onegate.toml` that was passed over: [`trust::trust`] it and load again after a yes.
    pub untrusted: Option<trust::Candidate>,
}

/// Loads the configuration, or tells all that is wrong with it.
pub fn load(options: &LoadOptions) -> Result<Loaded, Faults> {
    let since = SystemTime::now();
    load_found(options, files::find(options, None), since)
}

/// What loading would give if this text were in that file, one of `options.files`.
pub fn load_as_if(options: &LoadOptions, path: &Path, text: &str) -> Result<Loaded, Faults> {
    load_found(options, files::find(options, Some(files::Draft { path, text })), SystemTime::now())
}

fn load_found(options: &LoadOptions, found: files::Found, since: SystemTime) -> Result<Loaded, Faults> {
    let mut draft = Draft {
        layers: Vec::with_capacity(found.texts.len() + 1),
        guests: BTreeMap::new(),
        notes: found.notes,
        faults: found.faults,
    };
    let mut sources = Vec::with_capacity(found.texts.len());
    let mut content = BTreeMap::new();
    for text in found.texts {
        sources.push(text.path.clone());
        content.insert(text.path.clone(), watched::digest(&text.text));
        draft.read(text);
    }
    draft.layers.extend(layers::variables(&options.environment, &options.cwd));
    for (flag, value) in &options.flags {
        let (name, key) = flag.key();
        draft.layers.push(layers::flag(name, &key, value, &options.cwd));
    }
    draft.check();
    layers::gather(&mut draft.layers);
    let Resolved { settings, faults, server_faults, notes, serving } = draft.resolve(options)?;
    draft.faults.extend(faults);
    draft.notes.extend(notes);
    if !draft.faults.is_empty() {
        return Err(draft.refusal());
    }
    let folders = sources.iter().filter_map(|path| files::beside(path)).chain([options.etc.join(files::ORGANISATION)]);
    let read = Read { files: sources.iter().cloned().chain(folders).collect(), since, content };
    let identity = identity(&sources, &options.environment);
    Ok(Loaded {
        settings,
        notes: draft.notes,
        sources,
        watched: read,
        identity,
        server_faults,
        serving,
        untrusted: found.untrusted,
    })
}

/// The name of a configuration. Files of a `.d` folder come and go with the file beside it.
fn identity(sources: &[PathBuf], environment: &Environment) -> String {
    let is_part = |path: &Path| path.parent().is_some_and(|folder| folder.extension().is_some_and(|end| end == "d"));
    let places = sources.iter().filter(|path| !is_part(path));
    let places: Vec<_> = places.map(|path| std::fs::canonicalize(path).unwrap_or_else(|_| path.clone())).collect();
    let ours = |(name, _): &(&OsStr, &OsStr)| name.as_encoded_bytes().starts_with(layers::VARIABLE.as_bytes());
    let mut said: Vec<_> = environment.iter().filter(ours).collect();
    said.sort();
    HEXLOWER.encode(&Sha256::digest(format!("{places:?}{said:?}"))[..16])
}

/// What has been read so far.
struct Draft {
    layers: Vec<Layer>,
    guests: BTreeMap<String, Guest>,
    notes: Vec<Note>,
    faults: Vec<Fault>,
}

impl Draft {
    /// Reads one file into a layer.
    fn read(&mut self, text: Text) {
        let place = Place::file(&text.shown);
        if text.loose {
            self.notes.push(Note {
                place: place.clone(),
                message: "can be changed by every user of this machine, and it starts programs; \
                          `chmod o-w` it"
                    .to_owned(),
            });
        }
        let mut layer = Layer {
            node: Node::new(Pos::default(), tree::Value::Table(Vec::new())),
            place,
            style: Style::Own,
            base: text.path.parent().unwrap_or_else(|| Path::new("/")).to_owned(),
            organisation: text.organisation,
        };
        match parse(&text) {
            Ok((node, format)) => {
                layer.node = node;
                let name = text.path.file_name().unwrap_or_default().to_string_lossy();
                if let Some(member) = format.is_hosts().then(|| host::servers_member(&layer.node, &name)).flatten() {
                    self.adopt(&mut layer, member);
                }
                self.layers.push(layer);
            }
            Err(broken) => self.faults.push(Fault {
                place: layer.at(broken.at),
                key: String::new(),
                message: broken.message,
                nearest: None,
            }),
        }
    }

    /// All faults, in the order of the layers and their lines.
    fn refusal(mut self) -> Faults {
        let layers = &self.layers;
        self.faults.sort_by_key(|fault| {
            let place = Place { line: None, column: None, ..fault.place.clone() };
            // A file that could not be read is no layer, and comes first.
            let layer = layers.iter().position(|layer| layer.place == place);
            (layer, fault.place.line, fault.place.column)
        });
        Faults(self.faults)
    }

    fn adopt(&mut self, layer: &mut Layer, member: &str) {
        let root = std::mem::replace(&mut layer.node, Node::new(Pos::default(), tree::Value::Table(Vec::new())));
        let adopted = host::adopt(root, member);
        layer.node = adopted.node;
        layer.style = Style::Host;
        for (at, message) in adopted.notes {
            let place = layer.at(at);
            self.notes.push(Note { place, message });
        }
        self.guests.extend(adopted.guests);
    }

    /// Checks every layer, taking out what is wrong.
    fn check(&mut self) {
        for layer in &mut self.layers {
            let mut node =
                std::mem::replace(&mut layer.node, Node::new(Pos::default(), tree::Value::Table(Vec::new())));
            let kept =
                Check { place: &|at| layer.at(at), faults: &mut self.faults }.node(&mut node, &schema::SHAPE, "");
            if kept {
                layer.node = node;
            }
        }
    }

    fn resolve(&self, options: &LoadOptions) -> Result<Resolved, Faults> {
        let file = layers::merge(&self.layers).map_err(|path| {
            let mut faults = self.faults.clone();
            faults.push(Fault {
                place: Place::default(),
                key: path,
                message: "the merged value does not fit".to_owned(),
                nearest: None,
            });
            Faults(faults)
        })?;
        Ok(resolve::resolve(file, &self.layers, &self.guests, &options.environment, &options.cwd, &self.faults))
    }
}

#[derive(Clone, Copy)]
enum FileFormat {
    Toml,
    Json,
    Yaml,
}

impl FileFormat {
    /// TOML is ours alone.
    fn is_hosts(self) -> bool {
        match self {
            Self::Toml => false,
            Self::Json | Self::Yaml => true,
        }
    }
}

fn parse(text: &Text) -> Result<(Node, FileFormat), Broken> {
    let broken = |message: &str| Broken { at: Pos::default(), message: message.to_owned() };
    let format = match text.path.extension().and_then(|extension| extension.to_str()) {
        Some("json" | "jsonc") => FileFormat::Json,
        Some("yaml" | "yml") => FileFormat::Yaml,
        // Without a name that tells (a pipe of the shell), the first character does.
        _ if text.text.trim_ascii_start().starts_with(b"{") => FileFormat::Json,
        _ => FileFormat::Toml,
    };
    let content = std::str::from_utf8(&text.text).map_err(|_| broken("is not UTF-8"))?;
    let content = content.strip_prefix('\u{feff}').unwrap_or(content);
    let node = match format {
        FileFormat::Toml => tree::toml(content),
        FileFormat::Json => jsonc::parse(content),
        FileFormat::Yaml => tree::yaml(content),
    }?;
    Ok((node, format))
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;
