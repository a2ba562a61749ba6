//! `onegate approve` and `onegate block`: a yes to just what was reviewed, or a no.

use std::collections::BTreeMap;

use super::{launched, read_lock, recalled, today, tools_of_others};
use crate::cli::exit::Exit;
use crate::cli::{Common, load, out};
use crate::config::settings::{ServerSettings, Settings};
use crate::ident::{Kind, ServerKey};
use crate::pins::facet::Hash;
use crate::pins::lock::{Entry, Lock, LockedServer, edit::Draft};
use crate::pins::observed::Observed;
use crate::pins::review;
use crate::shown::shown_str;

/// Flags of `approve`.
#[derive(clap::Args)]
pub(in crate::cli) struct Args {
    /// The server, by its key.
    #[arg(required_unless_present = "all")]
    server: Option<String>,
    /// tool, prompt, template or resource; `server` for its `launch`, `instructions` or `capabilities`.
    #[arg(required_unless_present = "all")]
    kind: Option<String>,
    /// The native name, URI or template.
    #[arg(required_unless_present = "all")]
    name: Option<String>,
    /// The hash that was reviewed, as `onegate diff` shows it.
    #[arg(long, value_name = "HASH")]
    hash: String,
    /// Everything that `onegate diff` shows; the hash is the one at its end.
    #[arg(long, conflicts_with_all = ["server", "kind", "name"])]
    all: bool,
    #[command(flatten)]
    common: Common,
}

/// Flags of `block`.
#[derive(clap::Args)]
pub(in crate::cli) struct Block {
    /// The server, by its key.
    server: String,
    /// tool, prompt, template or resource.
    kind: String,
    /// The native name, URI or template.
    name: String,
    #[command(flatten)]
    common: Common,
}

pub(in crate::cli) fn run(args: &Args) -> anyhow::Result<Exit> {
    let settings = load::load(&args.common, false)?.settings;
    let Some(hash) = Hash::parse(&args.hash) else {
        out::say("onegate: --hash takes a hash as `onegate diff` shows it: sha256:…");
        return Ok(Exit::Usage);
    };
    let lock = read_lock(&settings)?;
    match (&args.server, &args.kind, &args.name) {
        (Some(server), Some(kind), Some(name)) => one(&settings, lock.as_ref(), (server, kind, name), hash),
        _ => all(&settings, lock.as_ref(), hash),
    }
}

fn say(why: &str) -> Exit {
    out::say(&format!("onegate: {why}"));
    Exit::Failed
}

/// A server that is configured and locked.
fn found<'l>(
    settings: &'l Settings,
    lock: Option<&'l Lock>,
    key: &str,
) -> Result<(&'l ServerSettings, &'l LockedServer), Exit> {
    let Some(server) = settings.servers.iter().find(|server| server.key.as_str() == key) else {
        out::say(&format!("onegate: no server {:?}", shown_str(key)));
        return Err(Exit::Usage);
    };
    let Some(locked) = lock.and_then(|lock| lock.servers.get(&server.key)) else {
        return Err(say(&format!("{key} is not in the lock; review all of it with `onegate lock {key}`")));
    };
    Ok((server, locked))
}

/// What was seen of a server.
fn seen(settings: &Settings, server: &ServerSettings, lock: Option<&Lock>) -> Result<Observed, Exit> {
    let key = &server.key;
    recalled(settings, server, lock)
        .ok_or_else(|| say(&format!("nothing was seen of {key} yet; `onegate diff {key} --live` looks")))
}

/// What a server says of itself, or how it is launched: what is there now, put into what was reviewed.
fn of_server(
    settings: &Settings,
    (server, locked): (&ServerSettings, &mut LockedServer),
    name: &str,
) -> Result<Option<Hash>, Exit> {
    match name {
        "launch" => {
            // It may never have been started as it is.
            let observed = launched(settings, server, Some(locked), Observed::default());
            if let Some(why) = review::unbound(&server.key, locked, &observed) {
                return Err(say(&format!("{}: {why}", server.key)));
            }
            let hash = review::launch_digest(&observed);
            (locked.launch, locked.artifact) = (observed.launch, observed.artifact);
            Ok(hash)
        }
        "instructions" => {
            let announced = seen(settings, server, None)?.announced.unwrap_or_default();
            locked.announced.instructions.clone_from(&announced.instructions);
            Ok(announced.instructions.map(|(hash, _)| hash))
        }
        "capabilities" => {
            let announced = seen(settings, server, None)?.announced.unwrap_or_default();
            locked.announced.capabilities.clone_from(&announced.capabilities);
            Ok(announced.capabilities.map(|(hash, _)| hash))
        }
        _ => {
            out::say("onegate: of a server itself its `launch`, `instructions` and `capabilities` can be approved");
            Err(Exit::Usage)
        }
    }
}

fn kind_of(word: &str) -> Result<Kind, Exit> {
    Kind::ALL.into_iter().find(|kind| kind.as_str() == word).ok_or_else(|| {
        out::say("onegate: the kind is one of tool, prompt, template, resource");
        Exit::Usage
    })
}

fn write(settings: &Settings, servers: &[(ServerKey, LockedServer)]) -> anyhow::Result<Exit> {
    let mut draft = Draft::open(&settings.pins.lock)?;
    servers.iter().for_each(|(key, server)| draft.put(key, server));
    draft.write()?;
    Ok(Exit::Fine)
}

fn one(
    settings: &Settings,
    lock: Option<&Lock>,
    (key, kind, name): (&str, &str, &str),
    hash: Hash,
) -> anyhow::Result<Exit> {
    let (configured, locked) = found(settings, lock, key)?;
    let key = configured.key.clone();
    let mut server = locked.clone();
    if kind == "server" {
        let now = of_server(settings, (configured, &mut server), name)?;
        if now != Some(hash) {
            let is = if name == "launch" { "is" } else { "are" };
            return Ok(say(&format!("the {name} of {key} {is} not what was reviewed: {}", told(now))));
        }
    } else {
        let observed = seen(settings, configured, lock)?;
        let kind = kind_of(kind)?;
        let slot = (kind, name.to_owned());
        let listed = observed.lists.get(&kind).into_iter().flatten().find(|entry| entry.name == name);
        let Some(definition) = listed.and_then(|entry| entry.definition.as_ref().ok()) else {
            return Ok(say(&format!("{key} does not list the {kind} {}", shown_str(name))));
        };
        let ignore = locked.entries.get(&slot).map_or(&configured.pin.ignore, |known| &known.ignore).clone();
        // The hash in a diff leaves nothing out: all of it is kept.
        let shown = Entry::of(kind, definition, Vec::new(), "")?;
        if shown.hash != hash {
            let why =
                format!("the {kind} {} of {key} is not what was reviewed: {}", shown_str(name), told(Some(shown.hash)));
            return Ok(say(&why));
        }
        server.entries.insert(slot, Entry::of(kind, definition, ignore, &today())?);
    }
    write(settings, &[(key, server)])
}

fn told(now: Option<Hash>) -> String {
    now.map_or_else(
        || "it has none now".to_owned(),
        |now| format!("it has the hash {now} now; look at `onegate diff` again"),
    )
}

fn all(settings: &Settings, lock: Option<&Lock>, hash: Hash) -> anyhow::Result<Exit> {
    let servers = settings.servers.iter();
    let observed: BTreeMap<_, _> =
        servers.filter_map(|server| Some((server.key.clone(), recalled(settings, server, lock)?))).collect();
    let locked = |key: &ServerKey| lock.and_then(|lock| lock.servers.get(key));
    let differences: Vec<_> = observed
        .iter()
        .map(|(key, seen)| review::differences(key, locked(key), seen, &tools_of_others(key, lock, &observed)))
        .collect();
    // A yes to what is shown is none to less being bound.
    if let Some((key, why)) = differences.iter().find_map(|server| Some((&server.key, server.unbound.as_ref()?))) {
        return Ok(say(&format!("{key}: {why}")));
    }
    let now = review::digest(&differences, &observed);
    if now != hash {
        return Ok(say(&format!("the differences are not those that were reviewed: {}", told(Some(now)))));
    }
    let servers: Vec<_> = observed
        .iter()
        .map(|(key, seen)| {
            let pin = settings.servers.iter().find(|server| server.key == *key).map(|server| &server.pin);
            let ignore = pin.map_or(&[][..], |pin| &pin.ignore);
            (key.clone(), review::reviewed(seen, ignore, locked(key), &today()))
        })
        .collect();
    write(settings, &servers)
}

pub(in crate::cli) fn block(args: &Block) -> anyhow::Result<Exit> {
    let settings = load::load(&args.common, false)?.settings;
    let lock = read_lock(&settings)?;
    let kind = kind_of(&args.kind)?;
    let (configured, locked) = found(&settings, lock.as_ref(), &args.server)?;
    let (key, observed) = (configured.key.clone(), seen(&settings, configured, lock.as_ref())?);
    let slot = (kind, args.name.clone());
    let mut server = locked.clone();
    let listed = observed.lists.get(&kind).into_iter().flatten().find(|entry| entry.name == args.name);
    let seen = listed.and_then(|entry| entry.definition.as_ref().ok());
    let entry = match (locked.entries.get(&slot), seen) {
        (Some(known), _) => Entry { blocked: true, ..known.clone() },
        (None, Some(definition)) => Entry { blocked: true, ..Entry::of(kind, definition, Vec::new(), &today())? },
        (None, None) => {
            return Ok(say(&format!("{key} has no {kind} {}, neither listed nor locked", shown_str(&args.name))));
        }
    };
    server.entries.insert(slot, entry);
    write(&settings, &[(key, server)])
}
