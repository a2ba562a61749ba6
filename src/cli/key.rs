//! `onegate key`: API keys for the hosts of `serve`. Reads no configuration and writes none.

use anyhow::Context as _;
use clap::Subcommand;
use serde_json::json;

use super::exit::Exit;
use super::out;
use crate::config::keys::{self, NewKey};

/// Flags of `key`.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make a key: shows it this once, and its entry for the configuration.
    New {
        /// Who will have it; who comes with it is `key:NAME`.
        name: String,
        /// Make a token for hosts that start `onegate run`; who comes with it is `stdio:NAME`.
        #[arg(long)]
        stdio: bool,
        /// Print the result as JSON.
        #[arg(long)]
        json: bool,
    },
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let Command::New { name, stdio, json } = &args.command;
    if let Some(problem) = keys::name_problem(name) {
        out::say(&format!("onegate: {problem}"));
        return Ok(Exit::Usage);
    }
    let key = NewKey::make().context("the operating system gives no random bytes")?;
    let secret = key.secret.reveal();
    if *json {
        out::json(&json!({ "name": name, "secret": secret, "hash": key.hash }))?;
    } else if *stdio {
        out::text(&format!(
            "The token of {name}, shown this once; it goes into a file that only its user can read, for `onegate run \
             --token-file FILE`:\n\n  {secret}\n\n\
             Its entry in the configuration, which holds the hash alone:\n\n  \
             [auth]\n  stdio = [{{ name = \"{name}\", hash = \"{}\" }}]",
            key.hash
        ))?;
    } else {
        out::text(&format!(
            "The key of {name}, shown this once; it goes to the host, as `Authorization: Bearer <key>`:\n\n  \
             {secret}\n\n\
             Its entry in the configuration, which holds the hash alone:\n\n  \
             [auth]\n  keys = [{{ name = \"{name}\", hash = \"{}\" }}]",
            key.hash
        ))?;
    }
    Ok(Exit::Fine)
}
