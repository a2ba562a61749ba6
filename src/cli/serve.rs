//! `onegate serve`: one gateway for a team, over HTTP.

use super::exit::Exit;
use super::{Common, load, out, pins, run};
use crate::config::Flag;
use crate::config::settings::LogFormat;
use crate::daemon::{self, Inherited};

/// Flags of `serve`.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Address and port to listen on, instead of http.listen; port 0 takes a free one.
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    #[command(flatten)]
    demands: pins::Demands,
    #[command(flatten)]
    common: Common,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    // First of all, while there is one thread.
    let inherited = Inherited::take()?;
    let flag = args.listen.clone().map(|address| (Flag::Listen, address));
    let mut loaded = load::load_with(&args.common, false, flag.clone())?;
    let faults: Vec<_> = loaded.serving.faults.iter().chain(&loaded.serving.nobody).cloned().collect();
    if !faults.is_empty() {
        return load::tell(false, &faults);
    }
    for note in &loaded.serving.notes {
        tracing::warn!("{note}");
    }
    args.demands.may(&args.common, &loaded.settings)?;
    if loaded.settings.servers.is_empty() {
        tracing::warn!("no server is configured; there is nothing to serve (see `onegate check --help`)");
    }
    load::show_to_all(&mut loaded.settings);
    let still = args.demands.still();
    let reload = load::again(&args.common, flag, &loaded, move |loaded| {
        let faults = loaded.serving.faults.iter().chain(&loaded.serving.nobody);
        let faults: Vec<_> = faults.map(ToString::to_string).collect();
        if !faults.is_empty() {
            return Err(faults.join("\n"));
        }
        load::show_to_all(&mut loaded.settings);
        still(&loaded.settings)
    })?;
    let format = loaded.settings.telemetry.format;
    // Said whatever is logged: with port 0 it is the only way to know.
    let announce = |address: &str| match format {
        LogFormat::Pretty => out::say(&format!("listening on {address}")),
        LogFormat::Json => {
            let line = serde_json::json!({ "level": "INFO", "message": format!("listening on {address}") });
            out::say(&line.to_string());
        }
    };
    Ok(run::block_on(daemon::serve_http(loaded.settings, inherited, reload, &loaded.identity, announce))??.into())
}
