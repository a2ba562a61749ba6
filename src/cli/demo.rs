//! `onegate demo`: two small servers of our own as real child processes, one of each era, behind the real
//! pipeline. Needs nothing else on the machine.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;

use super::exit::Exit;
use super::progress::Starting;
use super::{call, out, run, tools};
use crate::caller::Caller;
use crate::config::Environment;
use crate::config::settings::{Launch, LogFormat, Reach, ServerSettings, Settings, TelemetrySettings};
use crate::daemon::{Daemon, Ended};
use crate::gateway::{Gateway, Outcome, Pace};
use crate::ident::{Principal, Secret, ServerKey};
use crate::protocol::version::Revision;
use crate::telemetry;
use crate::transport::upward::Upward;

/// Flags of `demo`.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Show the catalogue, make a call, and end.
    #[arg(long)]
    once: bool,
    /// What is logged on stderr.
    #[arg(long, value_name = "LEVEL", default_value = "warn")]
    log: String,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let program = std::env::current_exe().context("this program cannot be found")?;
    let settings = settings(&program, &args.log)?;
    telemetry::log::start(&settings.telemetry);
    let ended = run::block_on(async {
        let daemon = Daemon::start(settings)?;
        Starting::new().settle(&daemon.gateway()).await;
        if let Err(error) = show(&daemon.gateway()).await {
            daemon.stop(Pace::SWIFT).await;
            return Err(error);
        }
        if args.once {
            daemon.stop(Pace::SWIFT).await;
            return Ok(Ended::Drained);
        }
        out::text("\nServing on standard input and output until interrupted (one JSON-RPC message per line).")?;
        let (channel, _restore) = crate::transport::standard::host()?;
        Ok(daemon.serve(channel, Principal::stdio().into(), None).await)
    })??;
    Ok(match ended {
        Ended::Drained => Exit::Fine,
        // To interrupt is how a person ends a demo.
        Ended::Interrupted if std::io::stdin().is_terminal() => Exit::Fine,
        Ended::Interrupted => Exit::Interrupted,
    })
}

async fn show(gateway: &Gateway) -> anyhow::Result<()> {
    if tools::tell_failed(gateway) {
        anyhow::bail!("the demo's servers did not start");
    }
    out::text("Two servers, clock (protocol 2026-07-28) and notes (protocol 2025-11-25), as one:\n")?;
    out::text(&tools::as_table(&gateway.catalogue(gateway.sight(&Principal::stdio(), 0))))?;
    for (name, arguments) in [("notes__add", r#"{"text":"bought milk"}"#), ("clock__now", "{}")] {
        out::text(&format!("\n> {name} {arguments}"))?;
        let call = call::request(name, arguments).map_err(anyhow::Error::msg)?;
        match gateway.call(&call, &Caller::stdio(Revision::LATEST_MODERN), Arc::new(Upward::default())).await {
            Ok(Outcome::Result(answer, spans)) => call::show_result(spans.whole.of(&answer.reply.line))?,
            Ok(Outcome::Own(_) | Outcome::Refused(_) | Outcome::Input(_) | Outcome::Task(_) | Outcome::Error(..)) => {
                anyhow::bail!("{name} answered with an error")
            }
            Err(failure) => anyhow::bail!("{}", failure.message),
        }
    }
    Ok(())
}

fn settings(program: &Path, log: &str) -> anyhow::Result<Settings> {
    let servers = ["clock", "notes"].into_iter().map(|name| server(program, name)).collect::<anyhow::Result<_>>()?;
    let telemetry = TelemetrySettings { log: log.to_owned(), format: LogFormat::Pretty, audit: None, otlp: None };
    Ok(Settings::of(servers, Environment::of_process().state_folder().join("demo"), telemetry))
}

fn server(program: &Path, name: &str) -> anyhow::Result<ServerSettings> {
    let launch = Launch {
        program: program.to_owned(),
        command: "onegate".to_owned(),
        args: vec![Secret::new("demo-server"), Secret::new(name)],
        env: BTreeMap::new(),
        cwd: None,
        identity: format!("demo-{name}-{}", env!("CARGO_PKG_VERSION")),
        written: Secret::new("{}"),
        secrets: Vec::new(),
    };
    let mut server = ServerSettings::new(ServerKey::new(name)?, Ok(Reach::Launch(launch)));
    server.timeouts.start = Duration::from_secs(10);
    Ok(server)
}
