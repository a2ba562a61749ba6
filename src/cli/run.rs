//! `onegate run`: what a host launches.

use std::path::PathBuf;

use super::exit::Exit;
use super::{Common, connect, load, out, pins, who};
use crate::daemon::{self, attach};

/// Flags of `run`.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Show this profile instead of the default one.
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// The host puts tool definitions off itself until they are needed: surface = "auto" is then the plain list. `install` writes
    /// it for hosts that do.
    #[arg(long)]
    host_defers: bool,
    /// File with the token of this installation: whoever starts us is then stdio:NAME, as auth.stdio says; with --connect,
    /// what is shown to that gateway. Default: what ONEGATE_TOKEN holds, if anything.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    #[command(flatten)]
    front: connect::Other,
    #[command(flatten)]
    demands: pins::Demands,
    #[command(flatten)]
    common: Common,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    if let Some(served) = args.front.run(args.token_file.as_deref(), args.common.log.as_deref()) {
        return served;
    }
    let mut loaded = load::load(&args.common, false)?;
    load::choose(&mut loaded.settings, args.profile.as_deref(), args.host_defers)?;
    args.demands.may(&args.common, &loaded.settings)?;
    if loaded.sources.is_empty() {
        tracing::warn!("no configuration was found; there is nothing to serve (see `onegate check --help`)");
    }
    let (principal, token) = match who::of_token(&loaded.settings, args.token_file.as_deref()) {
        Ok(found) => found,
        Err(why) => {
            out::say(&format!("onegate: {why}"));
            return Ok(Exit::Usage);
        }
    };
    let (profile, defers, still) = (args.profile.clone(), args.host_defers, args.demands.still());
    let reload = load::again(&args.common, None, &loaded, move |loaded| {
        load::show_first(&mut loaded.settings, profile.as_deref(), defers)?;
        still(&loaded.settings)
    })?;
    let attaches = loaded.settings.admin.attach && !args.demands.last();
    let profile = args.profile.clone();
    let wanted = attaches.then_some(attach::Wanted { identity: loaded.identity, profile, defers, token });
    Ok(block_on(daemon::serve_stdio(loaded.settings, principal, reload, wanted))??.into())
}

/// Runs a future on one thread: a host and its servers are few pipes, and a wake-up across threads costs more than
/// a small call (docs/decisions/one-thread.md).
pub(super) fn block_on<F: Future>(future: F) -> anyhow::Result<F::Output> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let output = runtime.block_on(future);
    // A thread that still blocks on a terminal must not keep us.
    runtime.shutdown_background();
    Ok(output)
}
