//! `onegate check`: everything that is wrong with the configuration, at once, without starting anything.

use serde_json::json;

use super::exit::Exit;
use super::{Common, load, out};
use crate::shown::shown_str;

/// Flags of `check`.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    common: Common,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let loaded = match load::load(&args.common, args.json)? {
        Ok(loaded) => loaded,
        Err(exit) => return Ok(exit),
    };
    if !loaded.server_faults.is_empty() {
        return load::tell(args.json, &loaded.server_faults);
    }
    let keys: Vec<_> = loaded.settings.servers.iter().map(|server| server.key.to_string()).collect();
    if args.json {
        out::json(&json!({ "faults": [], "notes": loaded.notes, "sources": loaded.sources, "servers": keys }))?;
    } else if let (true, Some(candidate)) = (loaded.sources.is_empty(), &loaded.untrusted) {
        let folder = shown_str(&candidate.folder.display().to_string());
        out::text(&format!("{folder}/onegate.toml is not used, because it is not trusted: see `onegate trust`."))?;
    } else if loaded.sources.is_empty() {
        out::text("No configuration found: looked for ./onegate.toml and in the configuration folders.")?;
    } else {
        let sources: Vec<_> = loaded.sources.iter().map(|file| file.display().to_string()).collect();
        out::text(&format!(
            "{}: fine; {}: {}",
            sources.join(", "),
            load::count(keys.len(), "server"),
            keys.join(", ")
        ))?;
    }
    Ok(Exit::Fine)
}
