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
    /// The token, where it is to be written.
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
            return Ok(Self { named: named.clone(), own: None, secret: None, leaves: false });
        }
        let own = OwnFile::of(files, false)?;
        let path = own.real();
        if !loaded.sources.iter().any(|source| source.canonicalize().is_ok_and(|source| source == path)) {
            anyhow::bail!("{} is not what the host's onegate would use; name it with --config", own.path.display());
        }
        let key = NewKey::make().context("the operating system gives no random bytes")?;
        let named =
            Named { name: name.to_owned(), file: Named::place(state, name), config: path.to_owned(), hash: key.hash };
        let old = known.as_ref().map(|known| known.hash.as_str());
        let after = token::enter(&own.text, &named, old).with_context(|| own.path.display().to_string())?;
        let checked = own.check(&after, as_json)?;
        if !proves(&checked, &key.secret) {
            anyhow::bail!("{}: another file has the last word about auth.stdio", own.path.display());
        }
        Ok(Self { named, own: Some((own, after)), secret: Some(key.secret), leaves: false })
    }

    /// What the way back of an installation takes away.
    pub(super) fn leave(named: Named) -> Self {
        let own = OwnFile::of(std::slice::from_ref(&named.config), false).ok();
        let own = own.and_then(|own| {
            let after = token::leave(&own.text, &named.hash).ok()??;
            Some((own, after))
        });
        Self { named, own, secret: None, leaves: true }
    }

    /// Shows it, without the token.
    pub(super) fn show(&self) {
        let file = self.named.file.display();
        if let Some((own, after)) = &self.own {
            out::say(&format!("{}:", own.path.display()));
            out::say(&edit::shown_diff(&own.text, after));
        }
        match (self.leaves, &self.own) {
            (false, Some(_)) => out::say(&format!("{file} (new, for you alone): the token of `{}`", self.named.name)),
            (false, None) => out::say(&format!("the token of `{}` stays: {file}", self.named.name)),
            (true, Some(_)) => out::say(&format!("{file} (removed): the token of `{}`", self.named.name)),
            (true, None) => out::say(&format!(
                "{file} (removed): the token of `{}`, whose hash is not in {} any more",
                self.named.name,
                self.named.config.display()
            )),
        }
    }

    /// The same for scripts.
    pub(super) fn as_json(&self) -> Value {
        json!({ "name": self.named.name, "token_file": self.named.file, "config": self.named.config })
    }

    /// Does it: before the host's file is written, and after our entry is out of it.
    pub(super) fn carry_out(&self) -> anyhow::Result<()> {
        if let Some(secret) = &self.secret {
            self.named.write(secret).with_context(|| self.named.file.display().to_string())?;
        }
        if let Some((own, after)) = &self.own {
            own.write(after).inspect_err(|_| self.undo())?;
        }
        if self.leaves {
            self.named.remove().with_context(|| self.named.file.display().to_string())?;
        }
        Ok(())
    }

    /// The host's file was not written: what was made for it goes. What cannot be undone proves nothing without a token.
    pub(super) fn undo(&self) {
        if self.secret.is_none() {
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
