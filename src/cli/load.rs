//! Loading the configuration for a command: faults are told all at once, an untrusted file is asked about.

use anyhow::Context as _;

use super::exit::Exit;
use super::{Common, ask, out};
use crate::config::settings::{ProfileSettings, Settings};
use crate::config::{self, Fault, Flag, LoadOptions, Loaded, trust};
use crate::daemon::{Fresh, Reload};
use crate::policy::{Clock, Policy, RulesError};
use crate::shown::shown_str;
use crate::telemetry;
use crate::telemetry::audit::used;

/// Loads the configuration and starts logging; its faults are told ([`Exit`]).
pub(super) fn load(common: &Common, json: bool) -> anyhow::Result<Loaded> {
    load_with(common, json, None)
}

/// The same with a flag of the command itself.
pub(super) fn load_with(common: &Common, json: bool, flag: Option<(Flag, String)>) -> anyhow::Result<Loaded> {
    let options = options(common, flag)?;
    let mut loaded = config::load(&options);
    if let Ok(Loaded { untrusted: Some(candidate), .. }) = &loaded
        && agrees(candidate)?
    {
        let state = options.environment.state_folder();
        trust::trust(&state, candidate).context("the trust could not be noted")?;
        loaded = config::load(&options);
    }
    let mut loaded = match loaded {
        Ok(loaded) => loaded,
        Err(faults) => return Err(tell(json, &faults.0)?.into()),
    };
    used::fill(&mut loaded.settings);
    telemetry::log::start(&loaded.settings.telemetry);
    for note in &loaded.notes {
        tracing::warn!("{note}");
    }
    Ok(loaded)
}

fn options(common: &Common, flag: Option<(Flag, String)>) -> anyhow::Result<LoadOptions> {
    let mut options = LoadOptions::of_process().context("the current folder cannot be found")?;
    options.files.clone_from(&common.config);
    options.flags.extend(common.log.clone().map(|level| (Flag::Log, level)));
    options.flags.extend(flag);
    Ok(options)
}

/// How the same configuration is loaded anew while it is in force; `check` looks at it as the command does at its start, and
/// says what is wrong.
pub(super) fn again(
    common: &Common,
    flag: Option<(Flag, String)>,
    now: &Loaded,
    check: impl Fn(&mut Loaded) -> Result<(), String> + Send + Sync + 'static,
) -> anyhow::Result<Reload> {
    let (options, passed_over) = (options(common, flag)?, now.untrusted.is_some());
    let load = move || {
        let lines = |faults: &[Fault]| faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        let mut loaded = config::load(&options).map_err(|faults| lines(&faults.0))?;
        if let Some(candidate) = loaded.untrusted.as_ref().filter(|_| !passed_over) {
            let folder = shown_str(&candidate.folder.display().to_string());
            return Err(format!(
                "the configuration of {folder} is another than the one that was agreed to; `onegate trust` looks at it"
            ));
        }
        check(&mut loaded)?;
        used::fill(&mut loaded.settings);
        loaded.notes.iter().for_each(|note| tracing::warn!("{note}"));
        Ok(Fresh { settings: loaded.settings, read: loaded.watched })
    };
    Ok(Reload { load: Box::new(load), read: now.watched.clone() })
}

/// Makes the wanted profile the one that is shown: the first; to a host that puts tools off itself, if it `defers`. Why not is
/// told.
pub(super) fn choose(settings: &mut Settings, wanted: Option<&str>, defers: bool) -> Result<(), Exit> {
    show_first(settings, wanted, defers).map_err(|why| {
        out::say(&format!("onegate: {why}"));
        Exit::Usage
    })
}

/// The same; else why not.
pub(super) fn show_first(settings: &mut Settings, wanted: Option<&str>, defers: bool) -> Result<(), String> {
    if let Some(wanted) = wanted {
        let Some(at) = settings.profiles.iter().position(|profile| profile.name == wanted) else {
            let names: Vec<_> = settings.profiles.iter().map(|profile| profile.name.as_str()).collect();
            return Err(format!("no profile {:?}; there are: {}", shown_str(wanted), names.join(", ")));
        };
        settings.profiles.swap(0, at);
    }
    if defers && let Some(first) = settings.profiles.first_mut() {
        first.surface = std::mem::take(&mut first.surface).for_host_that_defers();
    }
    Ok(())
}

/// Also has ready what hosts see that put tools off themselves, where a `run` may bring one of them.
pub(super) fn show_to_all(settings: &mut Settings) {
    if settings.admin.attach {
        let more: Vec<_> = settings.profiles.iter().filter_map(ProfileSettings::for_hosts_that_defer).collect();
        settings.profiles.extend(more);
    }
}

/// The policy of a configuration, with what was approved.
pub(super) fn policy(settings: &Settings, clock: &Clock) -> anyhow::Result<Policy> {
    let policy = Policy::compile(settings, clock)
        .map_err(|faults| anyhow::anyhow!(RulesError::all(&faults)))
        .context("the rules cannot be compiled")?;
    super::pins::approve(settings, &policy);
    Ok(policy)
}

/// `1 server`, `2 servers`.
pub(super) fn count(number: usize, word: &str) -> String {
    format!("{number} {word}{}", if number == 1 { "" } else { "s" })
}

/// Tells all faults.
pub(super) fn tell(json: bool, faults: &[Fault]) -> anyhow::Result<Exit> {
    if json {
        out::json(&serde_json::json!({ "faults": faults }))?;
    } else {
        for fault in faults {
            out::say(&fault.to_string());
        }
        out::say(&format!("onegate: {} in the configuration", count(faults.len(), "fault")));
    }
    Ok(Exit::Usage)
}

/// Asks whether the file of this folder may be used; only a person at a terminal is asked.
fn agrees(candidate: &trust::Candidate) -> anyhow::Result<bool> {
    if !ask::can() {
        return Ok(false);
    }
    out::say("This folder brings its own configuration, which starts programs:");
    for file in &candidate.files {
        out::say(&format!("  {}", shown_str(&file.display().to_string())));
    }
    Ok(ask::yes("Use it, as it is now?")?)
}
