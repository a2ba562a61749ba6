//! `onegate tools`: the catalogue as a host sees it, all kinds, and what it costs the model.

use std::time::Duration;

use serde_json::json;

use super::exit::Exit;
use super::progress::Starting;
use super::unused;
use super::who::As;
use super::{Common, load, out, run};
use crate::catalog::ledger::{Ledger, Sum};
use crate::catalog::{Item, own};
use crate::config::settings::{Reach, ServerSettings, Settings};
use crate::daemon::Daemon;
use crate::gateway::{Catalogue, Gateway, Pace, State};
use crate::ident::{Kind, Principal};
use crate::protocol::version::Revision;
use crate::shown::shown_str;
use crate::telemetry::audit::used::Used;
use crate::telemetry::mask::Mask;

/// Flags of `tools`.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Only this server, by its key.
    server: Option<String>,
    /// Also show what hosts do not see, and why.
    #[arg(long)]
    hidden: bool,
    /// Instead: which tools nobody called for so long, for example 30d, by the record of decisions.
    #[arg(long, value_name = "TIME", value_parser = super::audit::time)]
    unused: Option<Duration>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    /// Show what a host of this profile sees, instead of the default one.
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Show what a host sees that puts tool definitions off itself, as run --host-defers says.
    #[arg(long)]
    host_defers: bool,
    #[command(flatten)]
    who: As,
    #[command(flatten)]
    common: Common,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let mut settings = load::load(&args.common, args.json)?.settings;
    load::choose(&mut settings, args.profile.as_deref(), args.host_defers)?;
    if let Some(wanted) = &args.server {
        keep_only(&mut settings, wanted)?;
    }
    let who = args.who.principal(&settings)?;
    let called = match args.unused {
        None => None,
        Some(time) => Some(unused::called(&super::audit::files_of(settings.telemetry.audit.as_ref())?, time)?),
    };
    // Nothing is called.
    settings.telemetry.audit = None;
    run::block_on(async {
        let daemon = Daemon::start(settings)?;
        Starting::new().settle(&daemon.gateway()).await;
        let shown = show(args, &daemon.gateway(), &who, called.as_ref());
        let failed = tell_failed(&daemon.gateway());
        daemon.stop(Pace::SWIFT).await;
        shown?;
        Ok(if failed { Exit::Unreachable } else { Exit::Fine })
    })?
}

fn keep_only(settings: &mut Settings, wanted: &str) -> Result<(), Exit> {
    let keys: Vec<_> = settings.servers.iter().map(|server| server.key.to_string()).collect();
    settings.servers.retain(|server| server.key.as_str() == wanted);
    if settings.servers.is_empty() {
        out::say(&format!("onegate: no server {:?}; there are: {}", shown_str(wanted), keys.join(", ")));
        return Err(Exit::Usage);
    }
    Ok(())
}

fn show(args: &Args, gateway: &Gateway, who: &Principal, called: Option<&Used>) -> anyhow::Result<()> {
    let catalogue = gateway.catalogue(gateway.sight(who, 0));
    if let Some(called) = called {
        let denied = |key: &str| -> Vec<String> {
            let server = gateway.servers().find(|server| server.key().as_str() == key);
            server.map(|server| server.settings().tools.deny.clone()).unwrap_or_default()
        };
        return match args.json {
            true => out::json(&unused::as_json(&catalogue, called, &denied)),
            false => out::text(&unused::as_text(&catalogue, called, &denied)),
        };
    }
    if args.json {
        return out::json(&as_json(&catalogue, gateway));
    }
    out::text(&as_table(&catalogue))?;
    let costs = costs(&catalogue);
    if !costs.is_empty() {
        out::text(&costs)?;
    }
    if args.hidden {
        let hidden: Vec<_> = items(&catalogue)
            .filter_map(|item| {
                let row = [item.key.as_str(), item.kind.as_str(), &shown_str(item.native), item.hidden?.code()];
                Some(row.map(str::to_owned).to_vec())
            })
            .collect();
        out::text(&format!("\nhidden:\n{}", out::table(&hidden, &[])))?;
    }
    Ok(())
}

/// All items, kind by kind.
fn items(catalogue: &Catalogue) -> impl Iterator<Item = Item<'_>> {
    Kind::ALL.into_iter().flat_map(|kind| catalogue.items(kind, Revision::LATEST_MODERN))
}

/// What is visible with its size, kind by kind, and the sums; where there is nothing, that there are no tools.
pub(super) fn as_table(catalogue: &Catalogue) -> String {
    let visible: Vec<_> = items(catalogue).filter(|item| item.hidden.is_none() && !item.behind).collect();
    let counter = catalogue.counter();
    let own: Vec<_> = catalogue.own().map(|raw| (own_name(raw), raw.len(), counter.of(raw))).collect();
    let mut kinds = Kind::ALL.to_vec();
    kinds.retain(|&kind| visible.iter().any(|item| item.kind == kind));
    if kinds.is_empty() {
        kinds.push(Kind::Tool);
    }
    let sum = |word: &str, items: &[&Item<'_>]| {
        let (bytes, tokens) = items.iter().fold((0, 0), |sum, item| (sum.0 + item.bytes, sum.1 + item.tokens));
        vec![load::count(items.len(), word), String::new(), String::new(), bytes.to_string(), tokens.to_string()]
    };
    let mut rows = Vec::new();
    for kind in &kinds {
        rows.push([kind.as_str(), "server", "native name", "bytes", "tokens"].map(str::to_owned).to_vec());
        let of_kind: Vec<_> = visible.iter().filter(|item| item.kind == *kind).collect();
        rows.extend(of_kind.iter().map(|item| {
            let exposed = shown_str(item.exposed.unwrap_or_default());
            vec![exposed, item.key.to_string(), shown_str(item.native), item.bytes.to_string(), item.tokens.to_string()]
        }));
        if *kind == Kind::Tool {
            rows.extend(own.iter().map(|(name, bytes, tokens)| {
                vec![name.clone(), own::KEY.to_owned(), "-".to_owned(), bytes.to_string(), tokens.to_string()]
            }));
        }
        rows.push(sum(kind.as_str(), &of_kind));
    }
    if kinds.len() > 1 {
        rows.push(sum("item", &visible.iter().collect::<Vec<_>>()));
    }
    out::table(&rows, &[3, 4])
}

/// The name of a tool of ours.
fn own_name(raw: &[u8]) -> String {
    crate::protocol::json::member(raw, "name").and_then(crate::protocol::json::text_of).unwrap_or_default().into_owned()
}

/// What it costs by server, and what is saved by which means; nothing where that says no more than the table.
fn costs(catalogue: &Catalogue) -> String {
    let ledger = catalogue.ledger();
    let mut text = String::new();
    if ledger.servers.len() > 1 || ledger.behind.items > 0 {
        let mut rows = vec![["", "listed", "tokens", "by search", "tokens", "hidden"].map(str::to_owned).to_vec()];
        let row = |name: &str, listed: &Sum, behind: &Sum, hidden: &Sum| {
            let numbers = [listed.items, listed.tokens, behind.items, behind.tokens, hidden.items];
            [vec![name.to_owned()], numbers.map(|number| number.to_string()).to_vec()].concat()
        };
        rows.extend(ledger.servers.iter().map(|of| row(of.key.as_str(), &of.listed, &of.behind, &of.hidden)));
        if ledger.own.items > 0 {
            rows.push(row(own::KEY, &ledger.own, &Sum::default(), &Sum::default()));
        }
        rows.push(row("all", &ledger.listed, &ledger.behind, &ledger.hidden));
        text.push_str(&format!("\n{}", out::table(&rows, &[1, 2, 3, 4, 5])));
    }
    let saved = saved(catalogue, ledger);
    if !saved.is_empty() {
        let head = ["saved by", "items", "bytes", "tokens"].map(str::to_owned).to_vec();
        text.push_str(&format!("\n{}", out::table(&[vec![head], saved].concat(), &[1, 2, 3])));
    }
    text
}

/// What each override saves, and what trims, search, and whatever hides something do, by why.
fn saved(catalogue: &Catalogue, ledger: &Ledger) -> Vec<Vec<String>> {
    let row = |means: String, items: usize, bytes: isize, tokens: isize| {
        vec![means, items.to_string(), bytes.to_string(), tokens.to_string()]
    };
    let of_sum = |means: &str, sum: &Sum| row(means.to_owned(), sum.items, sum.bytes as isize, sum.tokens as isize);
    let mut rows = Vec::new();
    if ledger.shortened > 0 {
        rows.push(row("trim".to_owned(), ledger.shortened, ledger.trimmed.bytes, ledger.trimmed.tokens));
    }
    let overridden = |item: &Item<'_>| item.hidden.is_none() && !item.overridden.is_nothing();
    rows.extend(items(catalogue).filter(overridden).map(|item| {
        let means = format!("override of {}/{}", item.key, shown_str(item.native));
        row(means, 1, item.overridden.bytes, item.overridden.tokens)
    }));
    if ledger.behind.items > 0 {
        rows.push(of_sum("search", &ledger.behind));
    }
    rows.extend(ledger.hidden_by.iter().map(|(why, sum)| of_sum(why.code(), sum)));
    rows
}

fn as_json(catalogue: &Catalogue, gateway: &Gateway) -> serde_json::Value {
    let ledger = catalogue.ledger();
    let (mut shown, mut hidden) = (Vec::new(), Vec::new());
    for item in items(catalogue) {
        let mut value = json!({
            "server": item.key.as_str(), "kind": item.kind.as_str(), "native": item.native, "exposed": item.exposed,
            "bytes": item.bytes, "tokens": item.tokens, "whole": item.whole,
            "listed": item.hidden.is_none() && !item.behind,
        });
        for (means, saved) in [("override", item.overridden), ("trim", item.trimmed)] {
            if !saved.is_nothing() {
                value["saved"][means] = json!(saved);
            }
        }
        match item.hidden {
            None => shown.push(value),
            Some(why) => {
                value["reason"] = why.code().into();
                hidden.push(value);
            }
        }
    }
    shown.extend(catalogue.own().map(|raw| {
        json!({
            "server": own::KEY, "kind": Kind::Tool.as_str(), "native": null, "exposed": own_name(raw),
            "bytes": raw.len(), "tokens": catalogue.counter().of(raw), "whole": raw.len(), "listed": true,
        })
    }));
    let by_server: Vec<_> = ledger
        .servers
        .iter()
        .map(|of| {
            json!({
                "key": of.key.as_str(), "listed": of.listed, "behind": of.behind, "hidden": of.hidden,
                "saved": of.saved(),
            })
        })
        .collect();
    let mut saved = json!(ledger.saved());
    saved["by_reason"] = ledger.hidden_by.iter().map(|(why, sum)| (why.code().to_owned(), json!(sum))).collect();
    let servers: Vec<_> = gateway
        .servers()
        .map(|server| {
            let (state, era) = state_words(&server.state().borrow());
            json!({ "key": server.key().as_str(), "state": state, "era": era, "last_error": server.last_error() })
        })
        .collect();
    json!({
        "items": shown, "hidden": hidden, "bytes": ledger.listed.bytes, "tokens": ledger.listed.tokens,
        "estimator": catalogue.counter().name(), "behind": ledger.behind, "own": ledger.own, "by_server": by_server,
        "saved": saved, "servers": servers,
    })
}

fn state_words(state: &State) -> (&'static str, Option<&'static str>) {
    match state {
        State::Idle => ("idle", None),
        State::Starting => ("starting", None),
        State::Ready { revision, .. } => ("ready", Some(revision.era().as_str())),
        State::Waiting { .. } => ("waiting", None),
        State::Broken { .. } => ("broken", None),
        State::Disabled { .. } => ("disabled", None),
        State::Stopped => ("stopped", None),
    }
}

/// Says which servers could not be used and why; whether there were any.
pub(super) fn tell_failed(gateway: &Gateway) -> bool {
    let mut any = false;
    for server in gateway.servers() {
        if !matches!(*server.state().borrow(), State::Ready { .. } | State::Idle) {
            any = true;
            let why = server.last_error().unwrap_or_else(|| "it was not ready in time".to_owned());
            out::say(&format!("onegate: server {} cannot be used: {why}", server.key()));
            if let Some(hint) = hint(server.settings(), &why) {
                out::say(&hint);
            }
        }
    }
    any
}

/// What to do about a server that could not be used.
fn hint(server: &ServerSettings, why: &str) -> Option<String> {
    let slow = why.contains("was not ready within");
    let key = &server.key;
    let (by_hand, thing) = match &server.reach {
        Ok(Reach::Launch(launch)) => {
            let command = shown_str(&launch.command);
            (format!("run its command {command:?} once by hand"), format!("try its command {command:?} by hand"))
        }
        Ok(Reach::Remote(remote)) => {
            // Without path and query, which may hold secrets; the rest may have come out of one as well.
            let origin = Mask::new(&remote.secrets).shown(&remote.url.origin().ascii_serialization());
            (
                format!("look whether {origin} answers"),
                format!("look whether {origin} answers, and at servers.{key}.url and .headers"),
            )
        }
        // The fault itself says it.
        Err(_) => return None,
    };
    Some(if slow { format!("  raise servers.{key}.timeouts.start, or {by_hand}") } else { format!("  {thing}") })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;

    use super::*;
    use crate::catalog::{Contribution, Part};
    use crate::config::settings::ItemFilter;
    use crate::ident::ServerKey;
    use crate::policy::{ItemRules, Policy, ServerRules, View};

    /// The catalogue of one server `a`; its resource `x:secret` is hidden.
    fn catalogue(lists: [&str; 4]) -> Catalogue {
        let key = ServerKey::new("a").unwrap();
        let part = |kind: Kind| {
            Part::parse(
                kind,
                &[Bytes::copy_from_slice(lists[kind.index()].as_bytes())],
                crate::config::settings::ListLimits::default(),
            )
            .unwrap()
        };
        let parts = Kind::ALL.map(|kind| Arc::new(part(kind)));
        let one =
            Contribution { server: 0, key: &key, prefix: "a", http: false, parts: parts.each_ref().map(Option::Some) };
        let resources = ItemRules::compile(&ItemFilter { allow: None, deny: vec!["x:secret".into()] }).unwrap();
        let policy = Policy::new(vec![ServerRules { resources, ..ServerRules::default() }]);
        Catalogue::build(&[one], &policy, 45, &View::default())
    }

    fn first_words(table: &str) -> Vec<&str> {
        table.lines().map(|line| line.split("  ").next().unwrap_or_default()).collect()
    }

    #[test]
    fn all_kinds_are_shown_with_their_sums() {
        let all = catalogue([
            r#"[{"name":"t","inputSchema":{"type":"object"}}]"#,
            r#"[{"name":"p"}]"#,
            r#"[{"name":"r","uri":"x:1"},{"name":"s","uri":"x:secret"}]"#,
            r#"[{"name":"m","uriTemplate":"y:{id}"}]"#,
        ]);
        let table = as_table(&all);
        let expected = [
            "tool",
            "a__t",
            "1 tool",
            "prompt",
            "a__p",
            "1 prompt",
            "resource",
            "x:1",
            "1 resource",
            "template",
            "y:{id}",
            "1 template",
            "4 items",
        ];
        assert_eq!(first_words(&table), expected, "{table}");
        let bytes: usize = items(&all).filter(|item| item.hidden.is_none()).map(|item| item.bytes).sum();
        assert!(table.lines().last().unwrap().contains(&format!(" {bytes} ")), "{table}");
        let hidden: Vec<_> = items(&all).filter(|item| item.hidden.is_some()).map(|i| (i.kind, i.native)).collect();
        assert_eq!(hidden, [(Kind::Resource, "x:secret")]);
    }

    #[test]
    fn where_there_is_one_kind_nothing_is_said_of_others() {
        let prompts = catalogue(["[]", r#"[{"name":"p"}]"#, "[]", "[]"]);
        assert_eq!(first_words(&as_table(&prompts)), ["prompt", "a__p", "1 prompt"]);
        let nothing = catalogue(["[]"; 4]);
        assert_eq!(first_words(&as_table(&nothing)), ["tool", "0 tools"]);
    }
}
