//! `onegate init`, `add`, `remove`, `enable`, `disable`: edits of `onegate.toml` that keep its comments and order. The whole
//! result is checked before it is written.

use std::path::PathBuf;

use anyhow::Context as _;
use serde_json::json;

use super::exit::Exit;
use super::own_file::OwnFile;
use super::{Common, out};
use crate::adopt::hosts::Syntax;
use crate::adopt::lines;
use crate::adopt::own::{self, Described};
use crate::adopt::preview::without_secrets;
use crate::adopt::read::Unreadable;
use crate::adopt::store::Seen;
use crate::config::{Environment, trust};
use crate::ident::ServerKey;
use crate::shown::shown_str as shown;

/// What `init` writes.
const STARTER: &str = include_str!("../../config/starter.toml");

/// Flags of `init`.
#[derive(clap::Args)]
pub(super) struct Init {
    /// The file to write; by default onegate.toml in the current folder, which is then trusted.
    file: Option<PathBuf>,
    /// Write it where it is found from everywhere.
    #[arg(long, conflicts_with = "file")]
    user: bool,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// What the edits take.
#[derive(clap::Args)]
struct Edit {
    /// Show what would be written, and write nothing.
    #[arg(long)]
    dry_run: bool,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    common: Common,
}

/// Flags of `add`.
#[derive(clap::Args)]
pub(super) struct Add {
    /// The server's key: 1 to 16 of a-z, 0-9 and -, beginning with a letter.
    name: String,
    /// Its address, instead of a command.
    #[arg(long, conflicts_with = "command")]
    url: Option<String>,
    /// A variable for it, NAME=VALUE; repeatable. `${env:NAME}` and `${file:/path}` are references.
    #[arg(long, value_name = "NAME=VALUE", requires = "command")]
    env: Vec<String>,
    /// A header for its address, `Name: value`; repeatable.
    #[arg(long, value_name = "NAME: VALUE", requires = "url")]
    header: Vec<String>,
    #[command(flatten)]
    edit: Edit,
    /// The command that starts it, and its arguments.
    #[arg(last = true, value_name = "COMMAND", required_unless_present = "url")]
    command: Vec<String>,
}

/// Flags of `remove`, `enable` and `disable`.
#[derive(clap::Args)]
pub(super) struct Known {
    /// The server's key.
    name: String,
    #[command(flatten)]
    edit: Edit,
}

pub(super) fn init(args: &Init) -> anyhow::Result<Exit> {
    let environment = Environment::of_process();
    let here = std::env::current_dir().context("the current folder cannot be found")?;
    let path = match &args.file {
        _ if args.user => {
            environment.user_file().context("the place of your own configuration is not known: HOME is not set")?
        }
        Some(file) => here.join(file),
        None => here.join("onegate.toml"),
    };
    let seen = Seen::of(&path).with_context(|| path.display().to_string())?;
    if seen.content.is_some() {
        out::say(&format!("onegate: {} is there already; nothing was changed", path.display()));
        return Ok(Exit::Failed);
    }
    seen.write(STARTER.as_bytes()).with_context(|| path.display().to_string())?;
    let folder = path.parent().unwrap_or(&here);
    let mut trusted = path.file_name().is_some_and(|name| name == "onegate.toml") && !args.user;
    if trusted {
        let candidate = trust::examine(folder).context("it could not be trusted")?;
        // What lay beside it before came from somebody else: a yes to our own words is none to theirs.
        let others: Vec<_> = candidate.files.iter().filter(|file| file.file_name() != path.file_name()).collect();
        trusted = others.is_empty();
        if trusted {
            trust::trust(&environment.state_folder(), &candidate).context("it could not be trusted")?;
        } else {
            out::say("onegate: it is not trusted yet, since these lie beside it:");
            others.iter().for_each(|file| out::say(&format!("  {}", shown(&file.display().to_string()))));
            out::say("look at them, then `onegate trust`");
        }
    }
    if args.json {
        out::json(&json!({ "file": path, "trusted": trusted }))?;
    } else {
        let trusted = if trusted { ", and trusted" } else { "" };
        out::text(&format!("{}: written{trusted}.", path.display()))?;
    }
    Ok(Exit::Fine)
}

pub(super) fn add(args: &Add) -> anyhow::Result<Exit> {
    if let Err(error) = ServerKey::new(&args.name) {
        out::say(&format!("onegate: {error}"));
        return Ok(Exit::Usage);
    }
    let mut described =
        Described { command: args.command.clone(), url: args.url.clone(), env: Vec::new(), headers: Vec::new() };
    for (texts, mark, form, into) in
        [(&args.env, '=', "NAME=VALUE", &mut described.env), (&args.header, ':', "NAME: VALUE", &mut described.headers)]
    {
        for text in texts {
            match text.split_once(mark).filter(|(name, _)| !name.trim().is_empty()) {
                Some((name, value)) if mark == ':' => into.push((name.trim().to_owned(), value.trim().to_owned())),
                Some((name, value)) => into.push((name.to_owned(), value.to_owned())),
                None => {
                    // Not the text: it may be a secret.
                    out::say(&format!("onegate: one of them is not of the form {form}"));
                    return Ok(Exit::Usage);
                }
            }
        }
    }
    let file = OwnFile::find(&args.edit.common, true)?;
    for (path, text) in file.others()? {
        if own::defined(&text).is_ok_and(|keys| keys.contains(&args.name)) {
            out::say(&format!("onegate: {}: `servers.{}` is there already", path.display(), args.name));
            return Ok(Exit::Usage);
        }
    }
    let after = own::add(&file.text, &args.name, &described);
    settle(&args.edit, &file, after, &args.name, "added")
}

pub(super) fn remove(args: &Known) -> anyhow::Result<Exit> {
    let file = OwnFile::find(&args.edit.common, false)?.defining(&args.name)?;
    let after = own::remove(&file.text, &args.name);
    settle(&args.edit, &file, after, &args.name, "removed")
}

pub(super) fn switch(args: &Known, on: bool) -> anyhow::Result<Exit> {
    let file = OwnFile::find(&args.edit.common, false)?.defining(&args.name)?;
    let after = own::switch(&file.text, &args.name, on);
    settle(&args.edit, &file, after, &args.name, if on { "enabled" } else { "disabled" })
}

/// Checks and writes the new text.
fn settle(
    edit: &Edit,
    file: &OwnFile,
    after: Result<String, Unreadable>,
    name: &str,
    word: &str,
) -> anyhow::Result<Exit> {
    let path = file.path.display();
    let after = match after {
        Ok(after) => after,
        Err(error) => {
            out::say(&format!("onegate: {path}: {error}"));
            return Ok(Exit::Usage);
        }
    };
    let answer = |changed: bool| json!({ "file": file.path, "server": name, "changed": changed });
    if after == file.text {
        if edit.json {
            out::json(&answer(false))?;
        } else {
            out::text(&format!("{path}: {name} is {word} already"))?;
        }
        return Ok(Exit::Fine);
    }
    let loaded = file.check(&after, edit.json)?;
    let about = format!("servers.{name}");
    let open: Vec<_> = own::open_secrets(&after).into_iter().filter(|(server, _)| server == name).collect();
    if word == "added" {
        for fault in loaded.server_faults.iter().filter(|fault| fault.key.starts_with(&about)) {
            out::say(&format!("note: {fault}"));
        }
        for (_, place) in &open {
            out::say(&format!(
                "note: {} stands in the open; `${{env:NAME}}` or `${{file:/path}}` keeps it out of the file",
                shown(place)
            ));
        }
    }
    if edit.dry_run {
        if edit.json {
            out::json(&answer(false))?;
        } else {
            out::text(&shown_diff(&file.text, &after))?;
        }
        return Ok(Exit::Fine);
    }
    file.write(&after)?;
    if edit.json {
        out::json(&answer(true))?;
    } else {
        let made = if file.is_there() { "" } else { " (new)" };
        out::text(&format!("{path}{made}: {name} {word}"))?;
    }
    Ok(Exit::Fine)
}

/// A diff of our own file, without the secrets that stand in it in the open.
pub(super) fn shown_diff(before: &str, after: &str) -> String {
    super::install::printable(&without_secrets(&lines::diff(before, after), &[before, after], Syntax::Toml))
}
