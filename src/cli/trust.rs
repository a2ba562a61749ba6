//! `onegate trust`: a folder's own configuration may be used, as it is now.

use std::path::PathBuf;

use anyhow::Context as _;
use serde_json::json;

use super::exit::Exit;
use super::out;
use crate::config::{Environment, trust};
use crate::shown::shown_str;

/// Flags of `trust`.
#[derive(clap::Args)]
pub(super) struct Args {
    /// The folder with the onegate.toml; by default the current one.
    #[arg(default_value = ".")]
    dir: PathBuf,
    /// Take the trust back.
    #[arg(long)]
    remove: bool,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let state = Environment::of_process().state_folder();
    let candidate =
        trust::examine(&args.dir).with_context(|| format!("{} has no readable onegate.toml", args.dir.display()))?;
    if args.remove {
        trust::distrust(&state, &candidate).context("the trust could not be taken back")?;
    } else {
        trust::trust(&state, &candidate).context("the trust could not be noted")?;
    }
    if args.json {
        out::json(&json!({
            "folder": candidate.folder, "files": candidate.files, "hash": candidate.hash, "trusted": !args.remove,
        }))?;
    } else {
        let word = if args.remove { "No longer trusted" } else { "Trusted, as they are now" };
        let files: Vec<_> =
            candidate.files.iter().map(|file| format!("  {}\n", shown_str(&file.display().to_string()))).collect();
        out::text(&format!("{word}:\n{}", files.concat()))?;
    }
    Ok(Exit::Fine)
}
