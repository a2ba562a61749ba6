//! `onegate import`: the servers of hosts' own files, shown as ours or taken over into our file.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::json;

use super::exit::Exit;
use super::own_file::OwnFile;
use super::{Common, ask, load, out};
use crate::adopt::hosts::{self, HOSTS, Scope};
use crate::adopt::own::{self, Outcome, Taken};
use crate::adopt::place::{Ground, Platform};
use crate::adopt::read::{self, Found, Unreadable};
use crate::adopt::secrets::Instead;
use crate::adopt::store;
use crate::config::Environment;
use crate::shown::shown_str as shown;

/// Flags of `import`.
#[derive(clap::Args)]
pub(super) struct Args {
    /// A host (claude-desktop, cursor, …) or a file of one; without it, all that is found on this machine.
    #[arg(value_name = "HOST|FILE")]
    target: Option<String>,
    /// Take the servers over into our own configuration file, whose comments and order stay.
    #[arg(long, visible_alias = "write")]
    merge: bool,
    /// What stands for secrets that were written in the open: `file` (beside our file, 0600, works at once; the default
    /// with --merge) or `env` (a variable, to be set).
    #[arg(long, value_name = "HOW", value_parser = ["file", "env"])]
    secrets: Option<String>,
    /// The project's folder, for hosts that have files in it.
    #[arg(long, value_name = "DIR", default_value = ".")]
    project: PathBuf,
    /// Show what would be written, and write nothing.
    #[arg(long)]
    dry_run: bool,
    /// Ask nothing.
    #[arg(long, short)]
    yes: bool,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    common: Common,
}

/// The hosts' files as this process sees them.
pub(super) fn ground(project: &Path) -> anyhow::Result<Ground> {
    let here = std::env::current_dir().context("the current folder cannot be found")?;
    let project = here.join(project).components().collect();
    Ok(Ground { platform: Platform::of_process(), environment: Environment::of_process(), project })
}

type Looked = Vec<(PathBuf, Result<Found, Unreadable>)>;

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let ground = ground(&args.project)?;
    let looked = match &args.target {
        None => read::machine(&ground),
        Some(target) => look(target, &ground)?,
    };
    if args.target.is_none() && !args.merge {
        return list(&looked, args.json);
    }
    let mut failed = false;
    let mut servers = Vec::new();
    for (path, found) in looked {
        match found {
            Ok(found) => {
                for name in &found.ourselves {
                    out::say(&format!("{}: `{}` is this gateway itself and is left out", path.display(), shown(name)));
                }
                servers.extend(found.servers);
            }
            Err(error) => {
                failed = true;
                out::say(&format!("onegate: {}: {error}", path.display()));
            }
        }
    }
    // Of all that is found here, one that is broken keeps nobody from the others.
    if failed && args.target.is_some() {
        return Ok(Exit::Usage);
    }
    let merging = args.merge;
    let instead = match args.secrets.as_deref() {
        Some("env") => Instead::Variable,
        Some(_) => Instead::File,
        None if merging => Instead::File,
        None => Instead::Variable,
    };
    let file = if merging { Some(OwnFile::find(&args.common, true)?) } else { None };
    let (before, base) = match &file {
        Some(file) => (file.text.clone(), file.base().to_owned()),
        None => (String::new(), ground.project.clone()),
    };
    let others = file.as_ref().map(OwnFile::others).transpose()?.unwrap_or_default();
    let (after, taken) = match own::merge_beside(&before, servers, instead, &base, &others) {
        Ok(merged) => merged,
        Err(error) => {
            let path = file.map(|file| file.path).unwrap_or_default();
            out::say(&format!("onegate: {}: {error}", path.display()));
            return Ok(Exit::Usage);
        }
    };
    let Some(file) = file else {
        report(&taken, &base, instead, false);
        if args.json {
            out::json(&json!({ "servers": described(&taken), "toml": after }))?;
        } else {
            out::text(&after)?;
        }
        return Ok(Exit::Fine);
    };
    merge(args, &file, &after, &taken, instead)
}

/// The files that a word names: a host's, or that file.
fn look(target: &str, ground: &Ground) -> Result<Looked, Exit> {
    if let Some(host) = hosts::named(target) {
        let looked = read::host_files(host, ground);
        if looked.is_empty() {
            let places: Vec<_> = host.files.iter().flat_map(|file| ground.places(file)).collect();
            out::say(&format!("onegate: {} has no file here; looked for:", host.title));
            places.iter().for_each(|path| out::say(&format!("  {}", path.display())));
            return Err(Exit::Usage);
        }
        return Ok(looked);
    }
    let path = PathBuf::from(target);
    if !path.exists() && !target.contains(['/', '\\', '.']) {
        let known: Vec<_> = HOSTS.iter().map(|host| host.id).collect();
        out::say(&format!(
            "onegate: {:?} is neither a host nor a file; hosts are: {}",
            shown(target),
            known.join(", ")
        ));
        return Err(Exit::Usage);
    }
    // A host's own file, named by its path, is read as that host means it.
    let real = path.canonicalize().ok();
    let known = HOSTS.iter().flat_map(|host| host.files.iter().map(move |file| (host, file)));
    let of = known.into_iter().find(|(_, file)| {
        let places = ground.places(file);
        real.is_some() && places.iter().any(|place| place.canonicalize().ok() == real)
    });
    let found = read::file(&path, of.map(|(host, file)| (host, file.scope, file.servers)));
    Ok(vec![(path, found)])
}

/// What there is on this machine.
fn list(looked: &Looked, json: bool) -> anyhow::Result<Exit> {
    if json {
        let files: Vec<_> = looked
            .iter()
            .map(|(path, found)| match found {
                Ok(found) => json!({
                    "file": path,
                    "host": found.host.map(|host| host.id),
                    "scope": found.scope.map(|scope| scope.word()),
                    "servers": found.servers.iter().map(|server| json!({
                        "name": server.title, "summary": server.summary(), "enabled": server.enabled,
                        "project": server.origin.project,
                    })).collect::<Vec<_>>(),
                    "ourselves": found.ourselves,
                }),
                Err(error) => json!({ "file": path, "error": error.to_string() }),
            })
            .collect();
        out::json(&json!({ "files": files }))?;
        return Ok(Exit::Fine);
    }
    if looked.is_empty() {
        out::text("No host's file was found on this machine.")?;
        return Ok(Exit::Fine);
    }
    let mut rows = vec![["host", "scope", "server", "what", "file"].map(str::to_owned).to_vec()];
    for (path, found) in looked {
        let file = shown(&path.display().to_string());
        match found {
            Ok(found) => {
                let host = found.host.map_or("", |host| host.id).to_owned();
                let mut row_of = |scope: Option<Scope>, name: &str, what: String| {
                    let scope = scope.map_or("", |scope| scope.word()).to_owned();
                    rows.push(vec![host.clone(), scope, shown(name), what, file.clone()]);
                };
                for server in &found.servers {
                    let off = if server.enabled { "" } else { " (off)" };
                    row_of(server.origin.scope, &server.title, format!("{}{off}", shown(&server.summary())));
                }
                let mut row = |name: &str, what: String| row_of(found.scope, name, what);
                for name in &found.ourselves {
                    row(name, "this gateway".to_owned());
                }
                if found.servers.is_empty() && found.ourselves.is_empty() {
                    row("", "no servers".to_owned());
                }
            }
            Err(error) => rows.push(vec![String::new(), String::new(), String::new(), error.to_string(), file]),
        }
    }
    out::text(&out::table(&rows, &[]))?;
    Ok(Exit::Fine)
}

/// Tells what became of each server, on stderr.
fn report(taken: &[Taken], base: &Path, instead: Instead, merging: bool) {
    for one in taken {
        let name = shown(&one.server.title);
        let from = one.server.origin.line.map(|line| format!(":{line}")).unwrap_or_default();
        let from = format!("{}{from}", one.server.origin.file.display());
        match (&one.outcome, &one.key) {
            (Outcome::Added, Some(key)) if *key == one.server.title => out::say(&format!("{from}: `{name}`")),
            (Outcome::Added, key) => {
                out::say(&format!("{from}: `{name}`, here `{}`", key.as_deref().unwrap_or_default()))
            }
            (Outcome::Off(why), _) => out::say(&format!("{from}: `{name}` is switched off: it {why}")),
            (Outcome::Same(key), _) => out::say(&format!("{from}: `{name}` is there already, as `{key}`")),
            (Outcome::Left(why), _) => out::say(&format!("{from}: `{name}` is left out: it {why}")),
        }
        let known = matches!(one.outcome, Outcome::Same(_));
        for remark in one.server.remarks.iter().filter(|_| !known) {
            out::say(&format!("  {remark}"));
        }
        for secret in &one.lifted {
            let (place, variable) = (shown(&secret.place), &secret.variable);
            match instead {
                Instead::File if merging => {
                    let path = base.join("secrets").join(&secret.file);
                    out::say(&format!("  {place} stands in the open: it goes into {}", path.display()));
                }
                Instead::File => {
                    out::say(&format!("  {place} stands in the open: not shown; --merge puts it into a file"))
                }
                Instead::Variable => {
                    out::say(&format!("  {place} stands in the open: not shown; set the variable {variable}"));
                }
            }
        }
        for (theirs, ours) in &one.wanted {
            out::say(&format!("  the host asks for `{}` or keeps it: set the variable {ours}", shown(theirs)));
        }
    }
}

fn described(taken: &[Taken]) -> Vec<serde_json::Value> {
    let one = |one: &Taken| {
        let (outcome, why) = match &one.outcome {
            Outcome::Added => ("added", None),
            Outcome::Off(why) => ("off", Some(why)),
            Outcome::Same(key) => ("same", Some(key)),
            Outcome::Left(why) => ("left", Some(why)),
        };
        let lifted = one.lifted.iter().map(|l| json!({ "place": l.place, "file": l.file, "variable": l.variable }));
        json!({
            "name": one.server.title, "key": one.key, "outcome": outcome, "why": why,
            "host": one.server.origin.host, "file": one.server.origin.file, "line": one.server.origin.line,
            "remarks": one.server.remarks, "secrets": lifted.collect::<Vec<_>>(),
            "wanted": one.wanted.iter().map(|(theirs, ours)| json!({ "there": theirs, "variable": ours })).collect::<Vec<_>>(),
        })
    };
    taken.iter().map(one).collect()
}

/// Takes the servers over.
fn merge(args: &Args, file: &OwnFile, after: &str, taken: &[Taken], instead: Instead) -> anyhow::Result<Exit> {
    report(taken, file.base(), instead, true);
    let added: Vec<_> = taken.iter().filter_map(|one| one.key.clone()).collect();
    let answer =
        |written: bool| json!({ "file": file.path, "added": added, "servers": described(taken), "written": written });
    if added.is_empty() {
        let text = format!("{}: nothing to add", file.path.display());
        if args.json {
            out::json(&answer(false))?
        } else {
            out::text(&text)?
        }
        return Ok(Exit::Fine);
    }
    if !args.json {
        out::say(&format!("\n{}:", file.path.display()));
        out::say(&super::edit::shown_diff(&file.text, after));
    }
    file.check(after, args.json)?;
    if args.dry_run || !ask::agreed("Write it?", args.yes)? {
        if args.json {
            out::json(&answer(false))?
        } else {
            out::say("Nothing was written.")
        }
        return Ok(Exit::Fine);
    }
    if instead == Instead::File {
        let lifted: Vec<_> = taken.iter().flat_map(|one| &one.lifted).collect();
        store::secrets(file.base(), &lifted).with_context(|| file.base().join("secrets").display().to_string())?;
    }
    file.write(after)?;
    if args.json {
        out::json(&answer(true))?;
    } else {
        out::text(&format!(
            "{}: {} added: {}",
            file.path.display(),
            load::count(added.len(), "server"),
            added.join(", ")
        ))?;
    }
    Ok(Exit::Fine)
}
