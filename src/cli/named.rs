//! `install --as NAME`: a host's onegate is `stdio:NAME`, by a token of its own. Plans, shows and does what that asks of
//! our side: the token in its file, its hash in the configuration. `uninstall` takes both away.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::{Value, json};

use super::exit::Exit;
use super::own_file::OwnFile;
use super::{edit, out};
use crate::adopt::token::{self, Named};
use crate::config::Loaded;
use crate::config::keys::{self, NewKey};
use crate::ident::Secret;

/// What becomes of the token of an installation.
pub(super) struct Naming {
    /// Whom it is about.
    pub named: Named,
    /// The configuration that changes, and its new text.
    own: Option<(OwnFile, String)>,
    /// Why nobody can say whether the hash is in the configuration.
    unread: Option<String>,
    /// The token: the one that is to be written, or that is taken away.
    secret: Option<Secret>,
    leaves: bool,
}

impl Naming {
    /// What an installation as NAME asks for; `known` is what the host's file was given before. Why it cannot be is told.
    pub(super) fn enter(
        name: &str,
        known: Option<Named>,
        files: &[PathBuf],
        (loaded, state, as_json): (&Loaded, &Path, bool),
    ) -> anyhow::Result<Self> {
        if let Some(problem) = keys::name_problem(name) {
            out::say(&format!("onegate: {problem}"));
            return Err(Exit::Usage.into());
        }
        if let Some(other) = known.as_ref().filter(|known| known.name != name) {
            out::say(&format!("onegate: it is installed there as `{}`: uninstall that first", other.name));
            return Err(Exit::Usage.into());
        }
        let proves = |loaded: &Loaded, secret: &Secret| {
            let known = loaded.settings.auth.stdio.iter().map(|known| (known.name == name, &known.hash));
            keys::find(secret.reveal(), known) == Some(true)
        };
        if let Some(named) = &known
            && named.read().is_some_and(|secret| proves(loaded, &secret))
        {
            return Ok(Self { named: named.clone(), own: None, unread: None, secret: None, leaves: false });
        }
        let own = OwnFile::of(files, false)?;
        let path = own.real();
        if !loaded.sources.iter().any(|source| source.canonicalize().is_ok_and(|source| source == path)) {
            anyhow::bail!("{} is not what the host's onegate would use; name it with --config", own.path.display());
        }
        // The hash over there would stay, and the token with it.
        if let Some(other) = known.as_ref().filter(|known| known.config != path) {
            let other = other.config.display();
            out::say(&format!("onegate: it is installed there for {other}: uninstall that first"));
            return Err(Exit::Usage.into());
        }
        let key = NewKey::make().context("the operating system gives no random bytes")?;
        let old = known.as_ref().map(|known| known.hash.as_str());
        let file = known.as_ref().map_or_else(|| Named::place(state, &path, name), |known| known.file.clone());
        let named = Named { name: name.to_owned(), file, config: path, hash: key.hash };
        let after = token::enter(&own.text, &named, old).with_context(|| own.path.display().to_string())?;
        let checked = own.check(&after, as_json)?;
        if !proves(&checked, &key.secret) {
            anyhow::bail!("{}: another file has the last word about auth.stdio", own.path.display());
        }
        Ok(Self { named, own: Some((own, after)), unread: None, secret: Some(key.secret), leaves: false })
    }

    /// What the way back of an installation takes away.
    pub(super) fn leave(named: Named) -> Self {
        let own = OwnFile::of(std::slice::from_ref(&named.config), false).and_then(|own| {
            let after = token::leave(&own.text, &named.hash).with_context(|| own.path.display().to_string())?;
            Ok(after.map(|after| (own, after)))
        });
        let (own, unread) = match own {
            Ok(own) => (own, None),
            Err(why) => (None, Some(format!("{why:#}"))),
        };
        let secret = named.read();
        Self { named, own, unread, secret, leaves: true }
    }

    /// Shows it, without the token.
    pub(super) fn show(&self) {
        let file = self.named.file.display();
        if let Some((own, after)) = &self.own {
            out::say(&format!("{}:", own.path.display()));
            out::say(&edit::shown_diff(&own.text, after));
        }
        let (name, config) = (&self.named.name, self.named.config.display());
        out::say(&match (self.leaves, &self.own, &self.unread) {
            (false, Some(_), _) => format!("{file} (new, for you alone): the token of `{name}`"),
            (false, None, _) => format!("the token of `{name}` stays: {file}"),
            (true, Some(_), _) => format!("{file} (removed): the token of `{name}`"),
            (true, None, None) => {
                format!("{file} (removed): the token of `{name}`, whose hash is not in {config} any more")
            }
            (true, None, Some(why)) => {
                format!("{file} (removed): the token of `{name}`; its hash stays where it is, and nobody has it: {why}")
            }
        });
    }

    /// The same for scripts.
    pub(super) fn as_json(&self) -> Value {
        let mut said = json!({ "name": self.named.name, "token_file": self.named.file, "config": self.named.config });
        if let Some(why) = &self.unread {
            said["hash_stays"] = why.as_str().into();
        }
        said
    }

    /// What comes before the host's file is written: a new token proves something, one that leaves proves nothing any more.
    pub(super) fn before(&self) -> anyhow::Result<()> {
        let file = || self.named.file.display().to_string();
        if self.leaves {
            return self.named.remove().with_context(file);
        }
        if let Some(secret) = &self.secret {
            self.named.write(secret).with_context(file)?;
        }
        let Some((own, after)) = &self.own else { return Ok(()) };
        own.write(after).inspect_err(|_| self.undo())
    }

    /// What comes after it: the hash of a token that is gone goes too.
    pub(super) fn after(&self) -> anyhow::Result<()> {
        let Some((own, after)) = self.own.as_ref().filter(|_| self.leaves) else { return Ok(()) };
        own.write(after).with_context(|| {
            format!("our entry is out, and the token of `{}` gone; its hash could not be taken out", self.named.name)
        })
    }

    /// The host's file was not written: what was made for it goes, and what was taken away comes back. What cannot be undone
    /// proves nothing without a token.
    pub(super) fn undo(&self) {
        let Some(secret) = &self.secret else { return };
        if self.leaves {
            let _ = self.named.write(secret);
            return;
        }
        let _ = self.named.remove();
        if let Some((own, after)) = &self.own
            && let Ok(now) = OwnFile::of(std::slice::from_ref(&own.path), false)
            && now.text == *after
        {
            let _ = now.write(&own.text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A token that is written, its configuration, and the way back as it was planned.
    fn leaving(folder: &Path) -> Naming {
        let key = NewKey::make().unwrap();
        let config = folder.join("onegate.toml");
        let named = Named { name: "laptop".into(), file: folder.join("tokens/laptop"), config, hash: key.hash };
        std::fs::write(&named.config, token::enter("", &named, None).unwrap()).unwrap();
        named.write(&key.secret).unwrap();
        Naming::leave(named)
    }

    /// S-15: what proves something goes first, and comes back where nothing came of it.
    #[test]
    fn a_configuration_that_cannot_be_written_keeps_a_hash_that_nobody_has() {
        let folder = tempfile::tempdir().unwrap();
        let naming = leaving(folder.path());
        let Named { file, config, hash, .. } = naming.named.clone();
        naming.before().unwrap();
        assert!(!file.exists());
        naming.undo();
        assert!(naming.named.read().is_some(), "the host's file was not written");
        naming.before().unwrap();
        // Somebody writes it after it was read.
        let text = format!("{}# mine\n", std::fs::read_to_string(&config).unwrap());
        std::fs::write(&config, &text).unwrap();
        let why = format!("{:#}", naming.after().unwrap_err());
        assert!(why.contains("the token of `laptop` gone; its hash could not be taken out"), "{why}");
        assert!(why.contains("onegate.toml") && why.contains("changed meanwhile"), "{why}");
        assert!(!file.exists() && text.contains(&hash));
        assert_eq!(std::fs::read_to_string(&config).unwrap(), text, "what they wrote stays");
    }
}
