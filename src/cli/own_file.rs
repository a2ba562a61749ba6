//! Which of our own files is edited, and how: the whole configuration is checked with the new text before it is written,
//! and a folder that was trusted stays so.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::{Common, load};
use crate::adopt::store::{NotWritten, Seen};
use crate::config::{self, LoadOptions, trust};

/// A file of ours to edit.
pub(super) struct OwnFile {
    seen: Seen,
    /// As it was named.
    pub path: PathBuf,
    /// What is in it; empty when it is not there.
    pub text: String,
    options: LoadOptions,
}

impl OwnFile {
    /// The file that the commands would use; `create` gives one that is not there yet.
    pub(super) fn find(common: &Common, create: bool) -> anyhow::Result<Self> {
        Self::of(&common.config, create)
    }

    /// The same where the files are named otherwise than by the usual flag.
    pub(super) fn of(files: &[PathBuf], create: bool) -> anyhow::Result<Self> {
        let mut options = LoadOptions::of_process().context("the current folder cannot be found")?;
        options.files = files.to_vec();
        let path = match files.last() {
            Some(path) => options.cwd.join(path),
            None => search(&options, create)?,
        };
        if options.files.is_empty() {
            options.files.push(path.clone());
        }
        Self::open(path, options)
    }

    fn open(path: PathBuf, options: LoadOptions) -> anyhow::Result<Self> {
        if path.extension().is_some_and(|extension| extension != "toml") {
            anyhow::bail!("{} is no TOML file; others are not edited", path.display());
        }
        let seen = Seen::of(&path).with_context(|| path.display().to_string())?;
        let text = String::from_utf8(seen.content.clone().unwrap_or_default())
            .map_err(|_| anyhow::anyhow!("{} is not UTF-8", path.display()))?;
        Ok(Self { seen, path, text, options })
    }

    /// Where it is, links followed.
    pub(super) fn real(&self) -> PathBuf {
        self.path.canonicalize().unwrap_or_else(|_| self.path.clone())
    }

    /// Its folder: what relative paths in it are relative to.
    pub(super) fn base(&self) -> &Path {
        self.path.parent().unwrap_or_else(|| Path::new("/"))
    }

    /// Whether it is there.
    pub(super) fn is_there(&self) -> bool {
        self.seen.content.is_some()
    }

    /// The other TOML files that are loaded together with it: paths and texts. None where it cannot be loaded, which is
    /// told when the result is checked.
    pub(super) fn others(&self) -> anyhow::Result<Vec<(PathBuf, String)>> {
        let Ok(loaded) = config::load_as_if(&self.options, &self.path, &self.text) else { return Ok(Vec::new()) };
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let own = real(&self.path);
        let others = loaded.sources.into_iter().filter(|path| real(path) != own);
        let others = others.filter(|path| path.extension().is_some_and(|extension| extension == "toml"));
        others
            .map(|path| {
                let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
                Ok((path, text))
            })
            .collect()
    }

    /// The file beside it (`X.d`) that defines a server, when it does not itself.
    pub(super) fn defining(self, key: &str) -> anyhow::Result<Self> {
        let defines =
            |text: &str| crate::adopt::own::defined(text).is_ok_and(|keys| keys.iter().any(|known| known == key));
        if defines(&self.text) {
            return Ok(self);
        }
        let mut beside: Vec<PathBuf> = match std::fs::read_dir(self.path.with_extension("d")) {
            Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
            Err(_) => Vec::new(),
        };
        beside.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
        beside.sort();
        for path in beside {
            if std::fs::read_to_string(&path).is_ok_and(|text| defines(&text)) {
                return Self::open(path, self.options);
            }
        }
        Ok(self)
    }

    /// What is wrong with the configuration if this text is written; told.
    pub(super) fn check(&self, text: &str, json: bool) -> anyhow::Result<config::Loaded> {
        match config::load_as_if(&self.options, &self.path, text) {
            Ok(loaded) => Ok(loaded),
            Err(faults) => {
                super::out::say(&format!(
                    "onegate: {} would not be right any more; nothing was written",
                    self.path.display()
                ));
                Err(load::tell(json, &faults.0)?.into())
            }
        }
    }

    /// Writes the new text.
    pub(super) fn write(&self, text: &str) -> anyhow::Result<()> {
        let state = self.options.environment.state_folder();
        let folder = self.options.cwd.join(self.base());
        let folder = if folder.ends_with("onegate.d") { folder.parent().unwrap_or(&folder).to_owned() } else { folder };
        let trusted = trust::examine(&folder).is_ok_and(|candidate| trust::is_trusted(&state, &candidate));
        let written: Result<_, NotWritten> = self.seen.write(text.as_bytes());
        written.with_context(|| self.path.display().to_string())?;
        if trusted {
            // What was trusted was changed by the same person, and by nothing but this.
            let candidate = trust::examine(&folder).context("the trust could not be renewed")?;
            trust::trust(&state, &candidate).context("the trust could not be renewed")?;
        }
        Ok(())
    }
}

/// The first file of the search, trusted or not; without one, the user's own.
fn search(options: &LoadOptions, create: bool) -> anyhow::Result<PathBuf> {
    let environment = &options.environment;
    if let Some(path) = environment.get("ONEGATE_CONFIG").filter(|path| !path.is_empty()) {
        return Ok(options.cwd.join(path));
    }
    let there = |path: &PathBuf| std::fs::symlink_metadata(path).is_ok();
    let here = options.cwd.join("onegate.toml");
    let user = environment.user_file();
    if let Some(path) = [Some(here), user.clone()].into_iter().flatten().find(there) {
        return Ok(path);
    }
    let system = options.etc.join("onegate.toml");
    if there(&system) {
        anyhow::bail!("the configuration is {}; to edit that one, name it with --config", system.display());
    }
    match user {
        Some(path) if create => Ok(path),
        _ => anyhow::bail!("there is no configuration to edit; `onegate init` makes one"),
    }
}
