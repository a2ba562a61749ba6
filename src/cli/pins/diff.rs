//! `onegate diff`: what is not as the lock says, for a reviewer.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::lock::load_again;
use super::text::unified;
use super::{chosen, observe, read_lock, recalled, tell_failed, tools_of_others};
use crate::cli::exit::Exit;
use crate::cli::{Common, load, out};
use crate::ident::ServerKey;
use crate::pins::drift::{EntryState, Quarantine};
use crate::pins::facet::Hash;
use crate::pins::observed::{Memory, Observed};
use crate::pins::review::{self, Change, Differences};
use crate::shown::shown_str;

/// Flags of `diff`.
#[derive(clap::Args)]
pub(in crate::cli) struct Args {
    /// Only this server, by its key.
    server: Option<String>,
    /// Only this entry, by its native name.
    entry: Option<String>,
    /// Start the servers and list them, instead of what a gateway saw last.
    #[arg(long)]
    live: bool,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    common: Common,
}

pub(in crate::cli) fn run(args: &Args) -> anyhow::Result<Exit> {
    let settings = load::load(&args.common, args.json)?.settings;
    let keys = chosen(&settings, args.server.as_slice())?;
    let lock = read_lock(&settings)?;
    let mut failed = false;
    let observed: BTreeMap<_, _> = if args.live {
        let seen = observe(&mut || load_again(&args.common), &keys)?;
        tell_failed(&seen);
        failed = !seen.failed.is_empty();
        let memory = Memory::of(&settings.gateway.state, &settings.pins.lock);
        for (key, observed) in &seen.observed {
            memory.note(key, observed)?;
        }
        seen.observed
    } else {
        let servers = settings.servers.iter().filter(|server| keys.contains(&server.key));
        servers.filter_map(|server| Some((server.key.clone(), recalled(&settings, server, lock.as_ref())?))).collect()
    };
    for key in keys.iter().filter(|key| !args.live && !observed.contains_key(*key)) {
        out::say(&format!("onegate: nothing was seen of {key} yet; --live starts it"));
    }
    let mut all: Vec<_> = observed
        .iter()
        .map(|(key, seen)| {
            let others = tools_of_others(key, lock.as_ref(), &observed);
            review::differences(key, lock.as_ref().and_then(|lock| lock.servers.get(key)), seen, &others)
        })
        .collect();
    if let Some(entry) = &args.entry {
        all.iter_mut().for_each(|server| server.entries.retain(|change| change.name == *entry));
    }
    let drift = all.iter().any(Differences::is_drift);
    if args.json {
        out::json(&as_json(&all, &observed))?;
    } else {
        out::text(&as_text(&all, &observed))?;
    }
    Ok(match (drift, failed) {
        (true, _) => Exit::Drift,
        (false, true) => Exit::Unreachable,
        (false, false) => Exit::Fine,
    })
}

/// As scripts read it.
pub(super) fn as_json(all: &[Differences], observed: &BTreeMap<ServerKey, Observed>) -> Value {
    let entry = |change: &Change| {
        let facets: Vec<_> = change.facets.iter().map(|facet| facet.as_str()).collect();
        let risks: Vec<_> =
            change.risks.iter().map(|risk| json!({ "code": risk.code(), "text": risk.to_string() })).collect();
        json!({
            "kind": change.kind.as_str(), "name": change.name, "state": change.state.as_str(), "facets": facets,
            "old": change.old.map(|hash| hash.to_string()), "new": change.new.map(|hash| hash.to_string()), "risks": risks,
        })
    };
    let servers: Vec<_> = all
        .iter()
        .filter(|server| server.is_drift() || !server.entries.is_empty())
        .map(|server| {
            let entries: Vec<_> = server.entries.iter().map(entry).collect();
            let said = &server.said;
            json!({
                "key": server.key.as_str(), "entries": entries,
                "quarantine": server.quarantine.as_ref().map(|why| json!({ "code": why.code(), "text": why.to_string() })),
                "launch": launch_of(server, observed).map(|hash| hash.to_string()), "unbound": server.unbound,
                "instructions": said.instructions, "new_capabilities": said.capabilities,
                "protocol": said.downgrade.as_ref().map(|(found, locked)| json!({ "found": found, "locked": locked })),
            })
        })
        .collect();
    json!({ "servers": servers })
}

/// The hash of how a server is launched now, where that is another than was reviewed.
fn launch_of(server: &Differences, observed: &BTreeMap<ServerKey, Observed>) -> Option<Hash> {
    let is_other = matches!(server.quarantine, Some(Quarantine::Launch | Quarantine::Artifact(_)));
    observed.get(&server.key).filter(|_| is_other).and_then(review::launch_digest)
}

/// As people read it.
pub(super) fn as_text(all: &[Differences], observed: &BTreeMap<ServerKey, Observed>) -> String {
    let mut text = String::new();
    for server in all {
        let key = &server.key;
        if let Some(why) = &server.quarantine {
            text.push_str(&format!("{key}: {why}\n"));
            if let Some(launch) = launch_of(server, observed) {
                let now = observed.get(key).and_then(|seen| seen.artifact.as_ref());
                text.push_str(&now.map(|now| format!("    now {now}, level {}\n", now.level)).unwrap_or_default());
                text.push_str(&match &server.unbound {
                    Some(why) => format!("  ! {why}\n"),
                    None => format!("    onegate approve {key} server launch --hash {launch}\n"),
                });
            }
        }
        let seen = observed.get(key);
        let announced = seen.and_then(|seen| seen.announced.as_ref());
        if server.said.instructions {
            let now = announced.and_then(|announced| announced.instructions.as_ref());
            let (hash, words) = now.map_or((String::new(), ""), |(hash, words)| (hash.to_string(), words));
            text.push_str(&format!("{key}: its instructions are others: {:?}\n", shown_str(words)));
            text.push_str(&format!("    onegate approve {key} server instructions --hash {hash}\n"));
        }
        if let Some(what) = server.said.of_capabilities() {
            text.push_str(&format!("{key}: {what}\n"));
            let now = announced.and_then(|announced| announced.capabilities.as_ref());
            if let Some((hash, _)) = now {
                text.push_str(&format!("    onegate approve {key} server capabilities --hash {hash}\n"));
            }
        }
        if let Some((found, locked)) = &server.said.downgrade {
            text.push_str(&format!("{key}: protocol-downgrade: it speaks {}, older than {locked}\n", shown_str(found)));
        }
        server.entries.iter().for_each(|change| text.push_str(&entry(key, change)));
    }
    if text.is_empty() {
        return "no differences\n".to_owned();
    }
    // What would be refused is not offered.
    if all.iter().any(Differences::is_drift) && all.iter().all(|server| server.unbound.is_none()) {
        let digest = review::digest(all, observed);
        text.push_str(&format!("all of this: onegate approve --all --hash {digest}\n"));
    }
    text
}

fn entry(key: &ServerKey, change: &Change) -> String {
    let (kind, name) = (change.kind, shown_str(&change.name));
    let facets: Vec<_> = change.facets.iter().map(|facet| facet.as_str()).collect();
    let facets = if facets.is_empty() { String::new() } else { format!(" ({})", facets.join(", ")) };
    let mut text = format!("{key}: {kind} {name} is {}{facets}\n", change.state);
    if change.state == EntryState::Absent {
        return text;
    }
    for risk in &change.risks {
        text.push_str(&format!("  ! {risk}\n"));
    }
    match &change.after {
        Some(Ok(after)) => text.push_str(&unified(change.before.as_ref(), Some(after))),
        Some(Err(why)) => text.push_str(&format!("  ! {}\n", shown_str(&why.to_string()))),
        None => {}
    }
    if let Some(old) = change.old {
        text.push_str(&format!("    old {old}\n"));
    }
    if let Some(new) = change.new {
        // For a shell, whatever is in it.
        let name = format!("'{}'", name.replace('\'', "'\\''"));
        text.push_str(&format!("    new {new}\n    onegate approve {key} {kind} {name} --hash {new}\n"));
    }
    text
}
