//! `onegate doctor`: what is missing on this machine, with a remedy for each.

use std::path::{Path, PathBuf};

use serde_json::json;

use super::exit::Exit;
use super::{Common, import, load, out};
use crate::adopt::doctor;

/// Flags of `doctor`.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Also ask the network whether anybody listens at the addresses of remote servers.
    #[arg(long)]
    online: bool,
    /// The project's folder, for hosts that have files in it.
    #[arg(long, value_name = "DIR", default_value = ".")]
    project: PathBuf,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    common: Common,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let loaded = load::load(&args.common, args.json)?;
    let ground = import::ground(Path::new(&args.project))?;
    let mut found = doctor::look(&loaded, &ground, &ground.environment);
    if args.online {
        found.extend(doctor::reach(&loaded.settings.servers));
    }
    let servers = loaded.settings.servers.len();
    if args.json {
        out::json(&json!({ "findings": found, "servers": servers, "sources": loaded.sources }))?;
    } else if found.is_empty() {
        let asked = if args.online { "" } else { "; nobody was asked over the network (`--online`)" };
        out::text(&format!("Nothing to complain about: {}{asked}.", load::count(servers, "server")))?;
    } else {
        let lines: Vec<_> =
            found.iter().map(|one| format!("{}: {}\n  → {}\n", one.about, one.message, one.remedy)).collect();
        out::text(&lines.concat())?;
        out::say(&load::count(found.len(), "finding"));
    }
    Ok(if found.is_empty() { Exit::Fine } else { Exit::Failed })
}
