//! `onegate lock`: starts servers, lists them twice and writes what was seen into the lock, for a review with the eyes of
//! people; `--check`: only whether all is as the lock says.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::json;

use super::diff::{as_json, as_text};
use super::{chosen, install, observe, read_lock, summary, tell_failed, today, tools_of_others};
use crate::cli::exit::Exit;
use crate::cli::{Common, load, out};
use crate::config::settings::Settings;
use crate::ident::{Kind, ServerKey};
use crate::pins::artifact;
use crate::pins::facet::Hash;
use crate::pins::launch::launch_hash;
use crate::pins::lint;
use crate::pins::lock::{Lock, LockFault, LockedServer, edit::Draft};
use crate::pins::managed::kept::Turn;
use crate::pins::observed::{Memory, Observed};
use crate::pins::review;
use crate::shown::shown_str;

/// Flags of `lock`.
#[derive(clap::Args)]
pub(in crate::cli) struct Args {
    /// Only these servers, by their keys.
    servers: Vec<String>,
    /// Also what is locked already: what is seen now is taken for reviewed.
    #[arg(long)]
    update: bool,
    /// Write nothing; end with 3 when something is not as the lock says.
    #[arg(long, conflicts_with = "update")]
    check: bool,
    /// Install packages of npm and PyPI into the state folder, so that their bytes are bound, and start what is installed;
    /// of what is locked so already, what the lock says.
    #[arg(long, conflicts_with = "check")]
    install: bool,
    /// Make all hashes anew, out of the snapshots, where they were made by the rules of another version of this program;
    /// starts nothing.
    #[arg(long, conflicts_with_all = ["check", "update", "install", "servers"])]
    migrate: bool,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    common: Common,
}

pub(in crate::cli) fn run(args: &Args) -> anyhow::Result<Exit> {
    let settings = load::load(&args.common, args.json)?.settings;
    if args.migrate {
        return migrate(&settings);
    }
    let keys = chosen(&settings, &args.servers)?;
    let mut load = || load_again(&args.common);
    if args.check { check(args, &settings, &keys, &mut load) } else { write(args, &settings, keys, &mut load) }
}

/// Another form of hashes, out of the same snapshots (threat model §4.3).
fn migrate(settings: &Settings) -> anyhow::Result<Exit> {
    let path = &settings.pins.lock;
    let told = |fault: &LockFault| out::say(&format!("onegate: {}: {fault}", path.display()));
    match Lock::read(path) {
        Err(LockFault::Form(_)) => {}
        Err(fault) => {
            told(&fault);
            return Ok(Exit::LockInvalid);
        }
        Ok(_) => {
            out::text("its hashes are of the known form")?;
            return Ok(Exit::Fine);
        }
    }
    let lock = match Lock::read_any_form(path) {
        Ok(Some(lock)) if lock.faults().next().is_none() => lock,
        Ok(lock) => {
            lock.iter().flat_map(Lock::faults).for_each(|(_, fault)| told(fault));
            return Ok(Exit::LockInvalid);
        }
        Err(fault) => {
            told(&fault);
            return Ok(Exit::LockInvalid);
        }
    };
    let mut draft = Draft::open(path)?;
    draft.renew_form();
    lock.servers.iter().for_each(|(key, server)| draft.put(key, server));
    draft.write()?;
    let entries: usize = lock.servers.values().map(|server| server.entries.len()).sum();
    let (servers, entries) = (load::count(lock.servers.len(), "server"), load::count(entries, "definition"));
    out::text(&format!("{servers}, {entries}: hashed anew; review {} before you rely on it\n", path.display()))?;
    Ok(Exit::Fine)
}

/// The same settings once more: what a gateway is started with it takes.
pub(super) fn load_again(common: &Common) -> anyhow::Result<Settings> {
    Ok(load::load(common, false)?.settings)
}

fn check(
    args: &Args,
    settings: &Settings,
    keys: &BTreeSet<ServerKey>,
    load: &mut dyn FnMut() -> anyhow::Result<Settings>,
) -> anyhow::Result<Exit> {
    let Some(lock) = read_lock(settings)? else {
        out::say(&format!("onegate: there is no {}", settings.pins.lock.display()));
        return Ok(Exit::LockInvalid);
    };
    let seen = observe(load, keys)?;
    tell_failed(&seen);
    let all: Vec<_> = seen
        .observed
        .iter()
        .map(|(key, observed)| {
            let others = tools_of_others(key, Some(&lock), &seen.observed);
            review::differences(key, lock.servers.get(key), observed, &others)
        })
        .collect();
    let drift = all.iter().any(review::Differences::is_drift);
    if args.json {
        let unreachable: Vec<_> =
            seen.failed.iter().map(|(key, why)| json!({ "key": key.as_str(), "why": why })).collect();
        let mut value = as_json(&all, &seen.observed);
        value["unreachable"] = unreachable.into();
        out::json(&value)?;
    } else if drift {
        out::text(&as_text(&all, &seen.observed))?;
    } else {
        out::text(&format!("{} as the lock says", load::count(all.len(), "server")))?;
    }
    Ok(match (drift, seen.failed.is_empty()) {
        (true, _) => Exit::Drift,
        (false, false) => Exit::Unreachable,
        (false, true) => Exit::Fine,
    })
}

fn write(
    args: &Args,
    settings: &Settings,
    mut keys: BTreeSet<ServerKey>,
    load: &mut dyn FnMut() -> anyhow::Result<Settings>,
) -> anyhow::Result<Exit> {
    let path = &settings.pins.lock;
    // Of another form, or with snapshots that are gone, it is made anew.
    let lock = match Lock::read(path) {
        Err(fault @ LockFault::Form(_)) if args.update && args.servers.is_empty() => {
            out::say(&format!("onegate: {}: {fault}", path.display()));
            None
        }
        Err(fault) => {
            out::say(&format!("onegate: {}: {fault}", path.display()));
            return Ok(Exit::LockInvalid);
        }
        Ok(lock) => lock,
    };
    let locked = |key: &ServerKey| lock.as_ref().and_then(|lock| lock.servers.get(key));
    let mut draft = match Draft::open(path) {
        Ok(draft) => draft,
        Err(fault) => {
            out::say(&format!("onegate: {}: {fault}", path.display()));
            return Ok(Exit::LockInvalid);
        }
    };
    draft.renew_form();
    let packages = packages(args, settings, lock.as_ref(), &keys, &mut draft)?;
    keys.retain(|key| !packages.failed.contains(key));
    let end = if packages.failed.is_empty() { Exit::Fine } else { Exit::Failed };
    if !args.update {
        keys.retain(|key| locked(key).is_none());
        if keys.is_empty() {
            if packages.bound {
                draft.write()?;
            }
            packages.sweep(path);
            if packages.failed.is_empty() {
                let text = "every server is locked already; --update takes what is seen now for reviewed";
                out::text(if args.install { "every package is installed as the lock says" } else { text })?;
            }
            return Ok(end);
        }
    }
    let load = &mut || {
        let mut settings = load()?;
        settings.pins.installed.clone_from(&packages.of);
        Ok(settings)
    };
    let first = observe(load, &keys)?;
    let again = observe(load, &first.observed.keys().cloned().collect())?;
    tell_failed(&first);
    let memory = Memory::of(&settings.gateway.state, path);
    let mut report = Vec::new();
    for (key, observed) in &first.observed {
        let Some(server) = settings.servers.iter().find(|server| server.key == *key) else { continue };
        let reviewed = review::reviewed(observed, &server.pin.ignore, locked(key), &today());
        let others = tools_of_others(key, lock.as_ref(), &first.observed);
        let mut findings = findings(observed, &others);
        findings.extend(unstable(key, observed, again.observed.get(key), &server.pin.ignore));
        if let Ok(reach) = &server.reach {
            findings.extend(artifact::reference(reach).floating.map(|why| format!("floating: {why}")));
        }
        draft.put(key, &reviewed);
        memory.note(key, observed)?;
        report.push((key, reviewed, findings));
    }
    if !report.is_empty() || packages.bound {
        draft.write()?;
    }
    packages.sweep(path);
    if args.json {
        let servers: Vec<_> = report
            .iter()
            .map(|(key, server, findings)| {
                let level = server.artifact.as_ref().map(|artifact| artifact.level);
                json!({ "key": key.as_str(), "entries": server.entries.len(), "level": level, "findings": findings })
            })
            .collect();
        let failed: Vec<_> = first.failed.iter().map(|(key, why)| json!({ "key": key.as_str(), "why": why })).collect();
        out::json(&json!({ "lock": path, "servers": servers, "unreachable": failed }))?;
    } else {
        let mut text = String::new();
        for (key, server, findings) in &report {
            text.push_str(&format!("{}\n", summary(key, server)));
            findings.iter().for_each(|finding| text.push_str(&format!("  ! {finding}\n")));
        }
        if !report.is_empty() {
            text.push_str(&format!("written to {}; review it before you rely on it\n", path.display()));
        }
        out::text(&text)?;
    }
    Ok(if first.failed.is_empty() { end } else { Exit::Unreachable })
}

/// What was installed before a look.
struct Packages {
    /// The lists of packages of servers that the lock does not have yet, by their hash.
    of: BTreeMap<ServerKey, String>,
    /// The lock is to say more of a server that it has.
    bound: bool,
    /// What could not be installed.
    failed: BTreeSet<ServerKey>,
    /// Held until the lock is written: what is installed is named by nothing before.
    turn: Option<Turn>,
}

impl Packages {
    /// Has installations go that the lock does not name any more.
    fn sweep(&self, path: &Path) {
        let (Some(turn), Ok(lock)) = (&self.turn, Lock::read(path)) else { return };
        let servers = lock.iter().flat_map(|lock| lock.servers.values());
        let named = servers.filter_map(|server| server.artifact.as_ref()?.packages);
        // What could be installed but not listed is there for the next try.
        let named = named.chain(self.of.values().filter_map(|hash| Hash::parse(hash))).collect();
        if let Err(error) = turn.sweep(&named) {
            out::say(&format!("onegate: what was installed before and is no longer needed cannot be removed: {error}"));
        }
    }
}

/// Installs what is to be installed, from the lock or anew. Why not is told.
fn packages(
    args: &Args,
    settings: &Settings,
    lock: Option<&Lock>,
    keys: &BTreeSet<ServerKey>,
    draft: &mut Draft,
) -> anyhow::Result<Packages> {
    let mut packages = Packages { of: BTreeMap::new(), bound: false, failed: BTreeSet::new(), turn: None };
    for server in settings.servers.iter().filter(|server| keys.contains(&server.key)) {
        let key = &server.key;
        let locked = lock.and_then(|lock| lock.servers.get(key)).filter(|_| !args.update);
        let before = lock.and_then(|lock| lock.servers.get(key)?.artifact.as_ref()?.packages);
        // What was bound by its bytes stays so.
        if !(args.install || args.update && before.is_some()) {
            continue;
        }
        let plan = install::plan(server);
        if packages.turn.is_none() && (plan.is_ok() || before.is_some()) {
            let waits = || out::say("onegate: another `onegate lock` is installing; waiting for its end");
            packages.turn = Some(Turn::take(&settings.gateway.state, &settings.pins.lock, waits)?);
        }
        if let Err(why) = plan {
            let named = args.install && args.servers.iter().any(|named| named == key.as_str());
            // What is no package any more has no packages; what still is one is not bound by less.
            if named || before.is_some() && args.update && install::is_package(server) {
                out::say(&format!("onegate: {key} cannot be installed: {why}"));
                packages.failed.insert(key.clone());
            }
            continue;
        }
        if locked.is_some_and(|locked| locked.launch != launch_hash(server)) {
            out::say(&format!("onegate: {key} is launched in another way than was reviewed; see `onegate diff {key}`"));
            packages.failed.insert(key.clone());
            continue;
        }
        let turn = packages.turn.as_ref().expect("invariant: it was taken, as this can be installed");
        match install::install(settings, server, locked.and(before), turn)? {
            Err(why) => {
                out::say(&format!("onegate: {key} cannot be installed: {why}"));
                packages.failed.insert(key.clone());
            }
            Ok(done) => {
                let hash = done.artifact.packages;
                draft.keep(done.list);
                match locked {
                    Some(locked) if before.is_none() => {
                        // The same name and version as before, and more of it is bound.
                        draft.put(key, &LockedServer { artifact: Some(done.artifact), ..locked.clone() });
                        packages.bound = true;
                    }
                    Some(_) => {}
                    None => packages.of.extend(hash.map(|hash| (key.clone(), hash.to_string()))),
                }
            }
        }
    }
    Ok(packages)
}

/// What to look at in what was seen.
pub(super) fn findings(observed: &Observed, others: &BTreeSet<String>) -> Vec<String> {
    let mut found = Vec::new();
    for (kind, listed) in &observed.lists {
        for entry in listed {
            let place = format!("{kind} {}", shown_str(&entry.name));
            match &entry.definition {
                Ok(definition) => {
                    found.extend(lint::risks(None, definition, others).iter().map(|risk| format!("{place}: {risk}")));
                }
                Err(why) => found.push(format!("{place}: left out: {why}")),
            }
        }
    }
    let unfit = observed.announced.as_ref().and_then(|announced| announced.unfit.as_ref());
    found.extend(unfit.map(|why| format!("capabilities: left out: {}", shown_str(&why.to_string()))));
    let words = observed.announced.as_ref().and_then(|announced| announced.instructions.as_ref());
    if let Some((_, words)) = words {
        let risks = lint::risks(None, &words.as_str().into(), others);
        found.extend(risks.iter().map(|risk| format!("instructions: {risk}")));
    }
    found
}

/// What was another in a second process.
fn unstable(key: &ServerKey, first: &Observed, again: Option<&Observed>, ignore: &[String]) -> Vec<String> {
    let Some(again) = again else {
        return vec!["unstable: it could not be listed a second time".to_owned()];
    };
    let reviewed = review::reviewed(first, ignore, None, "");
    let found = review::differences(key, Some(&reviewed), again, &BTreeSet::new());
    let mut text: Vec<_> = found
        .entries
        .iter()
        .filter(|change| change.kind != Kind::Resource)
        .map(|change| {
            let facets: Vec<_> = change.facets.iter().map(|facet| facet.as_str()).collect();
            let what = if facets.is_empty() { change.state.to_string() } else { facets.join(", ") };
            format!(
                "unstable: {} {} was another in a second process ({what}); fix it, or `ignore` a pointer",
                change.kind,
                shown_str(&change.name)
            )
        })
        .collect();
    if found.said.instructions {
        text.push("unstable: its instructions were others in a second process".to_owned());
    }
    text
}
