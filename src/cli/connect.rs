//! `onegate run --connect URL`: the stdio front to a team's gateway, for hosts that speak nothing else.
//!
//! Everything is handed on as it is; who may do what is decided over there. Called by `run`.

use std::path::{Path, PathBuf};

use super::exit::Exit;
use super::{out, run, who};
use crate::config::Environment;
use crate::config::connect::{Gateway, connect, is_in_the_open};
use crate::ident::{Principal, Secret};
use crate::{daemon, telemetry};

/// Flags of `run` that concern this.
#[derive(clap::Args)]
pub(super) struct Other {
    /// Instead of servers of our own, be the stdio front to the gateway at this address: https://tools.example/mcp. What
    /// proves who you are is in --token-file, ONEGATE_TOKEN or --key.
    #[arg(long, value_name = "URL", conflicts_with_all = ["config", "profile", "host_defers", "locked", "trust_on_first_use"])]
    connect: Option<String>,
    /// The key for that gateway, as ${env:NAME} or ${file:/path}. Written out it is seen by everybody on this machine.
    #[arg(long, value_name = "KEY", requires = "connect", conflicts_with = "token_file")]
    key: Option<String>,
    /// PEM file with certificates that are trusted for that gateway beside the roots of the machine.
    #[arg(long, value_name = "FILE", requires = "connect")]
    ca: Option<PathBuf>,
}

impl Other {
    /// Serves the host of this process through the other gateway, where that is wanted.
    pub(super) fn run(&self, token_file: Option<&Path>, log: Option<&str>) -> Option<anyhow::Result<Exit>> {
        let url = self.connect.as_deref()?;
        Some(self.serve(url, token_file, log))
    }

    fn serve(&self, url: &str, token_file: Option<&Path>, log: Option<&str>) -> anyhow::Result<Exit> {
        let environment = Environment::of_process();
        let token = match &self.key {
            Some(written) => key(written, &environment),
            None => who::token(token_file).map(|found| found.map(|(token, _)| Secret::new(token.trim()))),
        };
        let settings = token.and_then(|token| connect(Gateway { url, token, ca: self.ca.clone() }, log, &environment));
        let settings = match settings {
            Ok(settings) => settings,
            Err(why) => {
                out::say(&format!("onegate: {why}"));
                return Ok(Exit::Usage);
            }
        };
        telemetry::log::start(&settings.telemetry);
        if self.key.as_deref().is_some_and(|key| !key.starts_with("${")) {
            tracing::warn!("--key shows the key to everybody on this machine; use --token-file or ONEGATE_TOKEN");
        }
        if is_in_the_open(&settings) {
            tracing::warn!("the token is sent in the open: `http://`; use `https://`");
        }
        Ok(run::block_on(daemon::serve_front(settings, Principal::stdio()))??.into())
    }
}

/// What a key that was written as a reference stands for.
fn key(written: &str, environment: &Environment) -> Result<Option<Secret>, String> {
    let inside = |scheme: &str| written.strip_prefix(scheme).and_then(|rest| rest.strip_suffix('}'));
    let text = if let Some(name) = inside("${env:") {
        let value = environment.get(name).and_then(|value| value.to_str());
        value.ok_or_else(|| format!("the variable of --key is not set: {name}"))?.to_owned()
    } else if let Some(file) = inside("${file:") {
        who::read_token(Path::new(file))?
    } else {
        written.to_owned()
    };
    Ok(Some(Secret::new(text.trim())))
}
