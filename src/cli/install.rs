//! `onegate install` and `uninstall`: our one entry into a host's file, and out of it.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::json;

use super::exit::Exit;
use super::import::ground;
use super::named::Naming;
use super::{ask, out};
use crate::adopt::hosts::{self, HOSTS, Host, Scope};
use crate::adopt::install::{self, Behind, Plan, Refused, Todo, Wanted};
use crate::adopt::place::Ground;
use crate::adopt::undo;
use crate::config::{self, Environment, LoadOptions};
use crate::shown::{hidden, shown_str as shown};

/// What both commands take.
#[derive(clap::Args)]
struct Where {
    /// The host: claude-desktop, claude-code, cursor, vscode, windsurf, zed, codex, gemini, goose, cline, opencode,
    /// continue, …
    host: String,
    /// Its file for this user, or that in the project's folder.
    #[arg(long, value_name = "SCOPE", default_value = "user", value_parser = ["user", "project", "system"])]
    scope: String,
    /// The project's folder, for `--scope project`.
    #[arg(long, value_name = "DIR", default_value = ".")]
    project: PathBuf,
    /// What our entry is called.
    #[arg(long, default_value = "onegate")]
    name: String,
    /// Show what would be written, and write nothing.
    #[arg(long)]
    dry_run: bool,
    /// Ask nothing.
    #[arg(long, short)]
    yes: bool,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// Flags of `install`.
#[derive(clap::Args)]
pub(super) struct Install {
    #[command(flatten)]
    at: Where,
    /// The configuration that the host's onegate shall use; repeatable. Default: what is found from everywhere, else the
    /// file that is found here.
    #[arg(long, value_name = "FILE")]
    config: Vec<PathBuf>,
    /// The profile that this host shall see.
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Who the host's onegate shall be: `stdio:NAME`, by a token that is made for it. Its hash goes into the configuration.
    #[arg(id = "as", long = "as", value_name = "NAME")]
    named: Option<String>,
    /// Also take the servers out of the host's file that are behind this gateway anyway; `uninstall` puts them back.
    #[arg(long)]
    replace: bool,
}

/// Flags of `uninstall`.
#[derive(clap::Args)]
pub(super) struct Uninstall {
    #[command(flatten)]
    at: Where,
}

impl Where {
    fn host(&self) -> Result<&'static Host, Exit> {
        hosts::named(&self.host).ok_or_else(|| {
            let known: Vec<_> = HOSTS.iter().map(|host| host.id).collect();
            out::say(&format!("onegate: no host {:?} is known; there are: {}", shown(&self.host), known.join(", ")));
            Exit::Usage
        })
    }

    fn scope(&self) -> Scope {
        match self.scope.as_str() {
            "project" => Scope::Project,
            "system" => Scope::System,
            _ => Scope::User,
        }
    }
}

pub(super) fn install(args: &Install) -> anyhow::Result<Exit> {
    let host = args.at.host()?;
    let mut options = LoadOptions::of_process().context("the current folder cannot be found")?;
    options.files.clone_from(&args.config);
    let loaded = match config::load(&options) {
        Ok(loaded) => loaded,
        Err(faults) => return super::load::tell(args.at.json, &faults.0),
    };
    if let Some(profile) = &args.profile
        && !loaded.settings.profiles.iter().any(|known| known.name == *profile)
    {
        out::say(&format!("onegate: no profile {:?} in the configuration", shown(profile)));
        return Ok(Exit::Usage);
    }
    // A host starts us anywhere: what is found only from here must be named.
    let mut files: Vec<PathBuf> = args.config.iter().map(|path| absolute(&options.cwd, path)).collect();
    if files.is_empty() {
        files = found_here_only(&options, &loaded.sources);
    }
    let mut words = vec!["run".to_owned()];
    for file in &files {
        words.extend(["--config".to_owned(), text(file)?]);
    }
    words.extend(args.profile.iter().flat_map(|profile| ["--profile".to_owned(), profile.clone()]));
    words.extend(host.defers.then(|| "--host-defers".to_owned()));
    let ground = ground(&args.at.project)?;
    let state = options.environment.state_folder();
    let naming = naming(args, host, &loaded, (&ground, &state))?;
    if let Some(naming) = &naming {
        words.extend(["--token-file".to_owned(), text(&naming.named.file)?]);
    }
    let wanted = Wanted {
        host,
        scope: args.at.scope(),
        name: args.at.name.clone(),
        command: text(&program()?)?,
        args: words,
        named: naming.as_ref().map(|naming| naming.named.clone()),
    };
    let mut behind = Behind::default();
    let base = loaded.sources.first().and_then(|path| path.parent()).unwrap_or(&options.cwd).to_owned();
    if args.replace {
        for path in loaded.sources.iter().filter(|path| path.extension().is_some_and(|e| e == "toml")) {
            let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
            let base = path.parent().unwrap_or(Path::new("/"));
            behind = behind.and(Behind::of(&text, base).with_context(|| path.display().to_string())?);
        }
    }
    let planned = install::install(&ground, &state, &wanted, args.replace.then_some((&behind, base.as_path())));
    if let (true, Some(candidate)) = (loaded.sources.is_empty(), &loaded.untrusted) {
        let folder = shown(&candidate.folder.display().to_string());
        out::say(&format!(
            "onegate: {folder}/onegate.toml is not trusted, so the host will see no tools: see `onegate trust`"
        ));
    } else if loaded.sources.is_empty() {
        out::say(
            "onegate: there is no configuration yet, so the host will see no tools; `onegate import --merge` or `onegate init` makes one",
        );
    }
    carry_out(&args.at, planned, "installed", naming, |plan| {
        if args.replace && !plan.beside.is_empty() {
            let names: Vec<_> = plan.beside.iter().map(|name| format!("`{}`", shown(name))).collect();
            out::say(&format!(
                "not behind this gateway, so they stay: {} (`onegate import {} --merge` takes them over)",
                names.join(", "),
                host.id
            ));
        }
    })
}

pub(super) fn uninstall(args: &Uninstall) -> anyhow::Result<Exit> {
    let host = args.at.host()?;
    let ground = ground(&args.at.project)?;
    let state = Environment::of_process().state_folder();
    let planned = undo::uninstall(&ground, &state, (host, args.at.scope()), &args.at.name);
    let named = match &planned {
        Ok(Todo::Change(plan)) => plan.named.clone(),
        Ok(Todo::Nothing { .. }) | Err(_) => None,
    };
    carry_out(&args.at, planned, "uninstalled", named.map(Naming::leave), |_| {})
}

/// Whom the host's onegate shall be; who it was already it stays.
fn naming(
    args: &Install,
    host: &'static Host,
    loaded: &config::Loaded,
    (ground, state): (&Ground, &Path),
) -> anyhow::Result<Option<Naming>> {
    if args.named.is_some() && args.at.scope() != Scope::User {
        out::say("onegate: a token is of one user, and so is `--as`: not of a file that others have too");
        return Err(Exit::Usage.into());
    }
    let known = install::named(ground, state, (host, args.at.scope()), &args.at.name);
    let known = known.map_err(|refused| refuse(&refused))?;
    let Some(name) = args.named.clone().or_else(|| Some(known.as_ref()?.name.clone())) else { return Ok(None) };
    Naming::enter(&name, known, &args.config, (loaded, state, args.at.json)).map(Some)
}

/// Shows a plan, asks, does it.
fn carry_out(
    at: &Where,
    planned: Result<Todo, Refused>,
    word: &str,
    naming: Option<Naming>,
    more: impl FnOnce(&Plan),
) -> anyhow::Result<Exit> {
    let plan = match planned {
        Ok(Todo::Change(plan)) => plan,
        Ok(Todo::Nothing { file, why }) => {
            if at.json {
                out::json(&json!({ "file": file, "changed": false, "why": why }))?;
            } else {
                out::text(&format!("{}: {why}; nothing to do", file.display()))?;
            }
            return Ok(Exit::Fine);
        }
        Err(refused) => return Ok(refuse(&refused)),
    };
    let (host, file, moved) = (plan.host, plan.file.clone(), plan.moved.clone());
    let kind = if plan.is_new() {
        " (new)"
    } else if plan.removes() {
        " (removed, since it was made by `install`)"
    } else {
        ""
    };
    let diff = plan.diff();
    if !at.json {
        out::say(&format!("{}{kind}:", file.display()));
        out::say(&printable(&diff));
        naming.iter().for_each(Naming::show);
        plan.notes.iter().for_each(|note| out::say(note));
        if !moved.is_empty() {
            let names: Vec<_> = moved.iter().map(|name| format!("`{}`", shown(name))).collect();
            let what = if word == "installed" { "taken out, since they are behind this gateway" } else { "put back" };
            out::say(&format!("{what}: {}", names.join(", ")));
        }
        more(&plan);
    }
    let answer = |changed: bool| {
        let mut answer = json!({
            "host": host.id, "file": file, "changed": changed, "diff": diff, "notes": plan.notes, "moved": moved,
        });
        if let Some(naming) = &naming {
            answer["as"] = naming.as_json();
        }
        answer
    };
    if at.dry_run || !ask::agreed("Write it?", at.yes)? {
        if at.json {
            out::json(&answer(false))?;
        } else {
            out::say("Nothing was written.");
        }
        return Ok(Exit::Fine);
    }
    let answer = answer(true);
    naming.as_ref().map_or(Ok(()), Naming::before)?;
    if let Err(refused) = plan.carry_out() {
        naming.iter().for_each(Naming::undo);
        return Ok(refuse(&refused));
    }
    naming.as_ref().map_or(Ok(()), Naming::after)?;
    if at.json {
        out::json(&answer)?;
    } else {
        out::text(&format!("{}: {word}. {}: {}.", file.display(), host.title, host.reload))?;
    }
    Ok(Exit::Fine)
}

fn refuse(refused: &Refused) -> Exit {
    out::say(&format!("onegate: {refused}"));
    if let Refused::NotEdited { paste: Some(paste), .. } = refused {
        out::say(&format!("by hand, this would go in:\n{paste}"));
    }
    Exit::Failed
}

/// A diff for a terminal: lines stay lines, tabs stay, whatever else hides is escaped.
pub(super) fn printable(diff: &str) -> String {
    let mut out = String::with_capacity(diff.len());
    for c in diff.chars() {
        if hidden(c) && !matches!(c, '\n' | '\t') { out.extend(c.escape_unicode()) } else { out.push(c) }
    }
    out
}

fn absolute(cwd: &Path, path: &Path) -> PathBuf {
    cwd.join(path).components().collect()
}

fn text(path: &Path) -> anyhow::Result<String> {
    path.to_str().map(str::to_owned).with_context(|| format!("{} is not UTF-8", path.display()))
}

/// The files of a configuration that a process started elsewhere would not find.
fn found_here_only(options: &LoadOptions, sources: &[PathBuf]) -> Vec<PathBuf> {
    let elsewhere = [options.environment.user_file(), Some(options.etc.join("onegate.toml"))];
    // The first file stands for those beside it.
    let first = sources.iter().find(|path| !path.starts_with(options.etc.join("policy.d")));
    match first {
        Some(path) if !elsewhere.iter().flatten().any(|known| known == path) => vec![absolute(&options.cwd, path)],
        _ => Vec::new(),
    }
}

/// This program, by the name that stays when it is updated: the one in `PATH`, when that is it.
pub(super) fn program() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("the place of this program is not known")?;
    let real = own.canonicalize().unwrap_or_else(|_| own.clone());
    let in_path =
        which::which("onegate").ok().filter(|path| path.is_absolute() && path.canonicalize().is_ok_and(|p| p == real));
    Ok(in_path.unwrap_or(own))
}
