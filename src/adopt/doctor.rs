//! What is missing on this machine, and what will bite later: findings with a remedy each.
//!
//! Looks, changes nothing, starts nothing. The network is asked only when told so. Called by `cli`.

use std::net::{TcpStream, ToSocketAddrs as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use crate::config::settings::{Reach, ServerSettings};
use crate::config::tree::{Node, Value};
use crate::config::{Environment, Fault, Loaded};
use crate::pins::artifact::{self, ArtifactKind, Floating};
use crate::shown::shown_str as shown;

use super::hosts::Syntax;
use super::install::Behind;
use super::place::Ground;
use super::{own, read};

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Its kind: `command`, `variable`, `missing`, `version`, `mode`, `secret`, `budget`, `twice`, `entry`, `trust`,
    /// `unreachable`.
    pub kind: &'static str,
    /// What it is about: a server, a file, a host.
    pub about: String,
    /// What is wrong.
    pub message: String,
    /// What helps.
    pub remedy: String,
}

fn finding(kind: &'static str, about: &str, message: String, remedy: String) -> Finding {
    Finding { kind, about: shown(about), message, remedy }
}

/// Everything that can be seen without asking the network.
pub fn look(loaded: &Loaded, ground: &Ground, environment: &Environment) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(candidate) = &loaded.untrusted {
        let message = "is not trusted, so it is not used".to_owned();
        let remedy = "look at it, then `onegate trust`".to_owned();
        found.push(finding("trust", &candidate.folder.join("onegate.toml").display().to_string(), message, remedy));
    }
    found.extend(loaded.server_faults.iter().map(missing));
    found.extend(loaded.settings.servers.iter().filter_map(version));
    for path in &loaded.sources {
        source(path, environment, &mut found);
    }
    let state = environment.state_folder();
    if mode(&state).is_some_and(|mode| mode & 0o077 != 0) {
        let message =
            "can be seen by other users of this machine, and it holds keys and copies of hosts' files".to_owned();
        found.push(finding("mode", &state.display().to_string(), message, "`chmod 700` it".to_owned()));
    }
    hosts(loaded, ground, &mut found);
    found
}

/// What disables a server.
fn missing(fault: &Fault) -> Finding {
    let (kind, remedy) = if fault.key.ends_with(".command") {
        ("command", "install it, or write its full path")
    } else if fault.message.contains("variable") {
        ("variable", "set it where the gateway is started, or write `${env:NAME:-default}`")
    } else {
        ("missing", "put it right in the configuration; `onegate check` tells the line")
    };
    let about = fault.key.split('.').nth(1).unwrap_or(&fault.key);
    // The remedy is said once.
    let what = if kind == "command" { fault.message.split(';').next().unwrap_or_default() } else { &fault.message };
    finding(kind, about, format!("{}: {what}", fault.key), remedy.to_owned())
}

/// A package or an image that may be another one tomorrow.
fn version(server: &ServerSettings) -> Option<Finding> {
    let reference = artifact::reference(server.reach.as_ref().ok()?);
    if !matches!(reference.kind, ArtifactKind::Npm | ArtifactKind::Pypi | ArtifactKind::Oci) {
        return None;
    }
    let Floating { why, mut remedy } = reference.floating?;
    if remedy.is_empty() {
        "install what it runs, and start that".clone_into(&mut remedy);
    }
    Some(finding("version", server.key.as_str(), format!("{why}: the next start may run other code"), remedy))
}

fn mode(path: &Path) -> Option<u32> {
    std::fs::metadata(path).ok().map(|kind| kind.permissions().mode())
}

/// Modes of a file of ours and of the secrets that it names, and secrets that stand in it in the open.
fn source(path: &Path, environment: &Environment, found: &mut Vec<Finding>) {
    let about = path.display().to_string();
    let mode_of = mode(path).unwrap_or(0);
    if mode_of & 0o022 != 0 {
        let message = "can be changed by other users of this machine, and it starts programs".to_owned();
        found.push(finding("mode", &about, message, "`chmod go-w` it".to_owned()));
    }
    let Ok(text) = std::fs::read_to_string(path) else { return };
    let open = own::open_secrets(&text);
    for (server, place) in &open {
        let message = format!("{}: {} stands in the open", path.display(), shown(place));
        let remedy = "put it into a file of mode 600 and write `${file:/path}`, or write `${env:NAME}`".to_owned();
        found.push(finding("secret", server, message, remedy));
    }
    if !open.is_empty() && mode_of & 0o044 != 0 {
        let message = "holds secrets and can be read by other users of this machine".to_owned();
        found.push(finding("mode", &about, message, "`chmod 600` it".to_owned()));
    }
    let syntax = read::syntax_of(path);
    let Ok(root) = read::parse(&text, syntax) else { return };
    let base = path.parent().unwrap_or(Path::new("/"));
    let mut files = Vec::new();
    named_files(&root, &mut files);
    files.sort();
    files.dedup();
    for named in files {
        let file = match (named.strip_prefix("~/"), environment.home()) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => base.join(&named),
        };
        if mode(&file).is_some_and(|mode| mode & 0o077 != 0) {
            let message = "holds a secret and can be read by other users of this machine".to_owned();
            found.push(finding("mode", &file.display().to_string(), message, "`chmod 600` it".to_owned()));
        }
    }
}

/// What `${file:…}` names in a file.
fn named_files(node: &Node, files: &mut Vec<String>) {
    match &node.value {
        Value::Text(text) => {
            let named = text.split("${file:").skip(1).filter_map(|rest| rest.split_once('}'));
            files.extend(named.map(|(path, _)| path.to_owned()));
        }
        Value::List(items) => items.iter().for_each(|item| named_files(item, files)),
        Value::Table(entries) => entries.iter().for_each(|entry| named_files(&entry.node, files)),
        Value::Integer(_) | Value::Float(_) | Value::Bool(_) | Value::Other(_) => {}
    }
}

/// Hosts that start us: is it there, do our names fit, do they have our servers too?
fn hosts(loaded: &Loaded, ground: &Ground, found: &mut Vec<Finding>) {
    let mut behind = Behind::default();
    let mut base = PathBuf::from("/");
    for path in loaded.sources.iter().filter(|path| read::syntax_of(path) == Syntax::Toml) {
        path.parent().unwrap_or(Path::new("/")).clone_into(&mut base);
        if let Some(known) = std::fs::read_to_string(path).ok().and_then(|text| Behind::of(&text, &base).ok()) {
            behind = behind.and(known);
        }
    }
    for (path, looked) in read::machine(ground) {
        let about = path.display().to_string();
        let seen = match looked {
            Ok(seen) => seen,
            Err(error) => {
                let remedy = "put it right; the host probably ignores it as it is".to_owned();
                found.push(finding("entry", &about, error.to_string(), remedy));
                continue;
            }
        };
        let Some(host) = seen.host.filter(|_| !seen.ourselves.is_empty()) else { continue };
        for (name, words) in seen.ourselves.iter().zip(&seen.commands) {
            let command = words.first().map(String::as_str).unwrap_or_default();
            let (budget, table) = budget(loaded, words);
            if command.contains('/') && !Path::new(command).exists() {
                let message = format!("`{}` starts {}, which is not there", shown(name), shown(command));
                found.push(finding("entry", &about, message, format!("`onegate install {}`", host.id)));
            }
            let longest = host.longest_name(name);
            if budget > longest {
                let message = format!(
                    "{} takes names of ours up to {longest} characters, and the name_budget of what it sees is {budget}",
                    host.title
                );
                found.push(finding(
                    "budget",
                    &about,
                    message,
                    format!("set `name_budget = {}` under [{table}]", longest.max(24)),
                ));
            }
        }
        let twice: Vec<_> = seen.servers.iter().filter(|server| server.enabled).collect();
        let twice = twice.into_iter().filter_map(|server| Some((&server.title, behind.key(server, &base)?)));
        for (name, key) in twice {
            let message =
                format!("`{}` is behind this gateway too, as `{key}`: the model sees its tools twice", shown(name));
            found.push(finding("twice", &about, message, format!("`onegate install {} --replace`", host.id)));
        }
    }
}

/// How long a name may be that an entry of ours shows, and the table that says so.
fn budget(loaded: &Loaded, words: &[String]) -> (usize, String) {
    let wanted = words.iter().position(|word| word == "--profile").and_then(|at| words.get(at + 1));
    let wanted = wanted.map_or("default", String::as_str);
    let settings = &loaded.settings;
    let own = settings.profiles.iter().find(|profile| profile.name == wanted).and_then(|profile| profile.name_budget);
    match own {
        Some(budget) => (budget, format!("profiles.{wanted}")),
        None => (settings.gateway.name_budget, "gateway".to_owned()),
    }
}

/// Asks the network: does anybody listen where the remote servers should be?
pub fn reach(servers: &[ServerSettings]) -> Vec<Finding> {
    const PATIENCE: Duration = Duration::from_secs(3);
    let connect = |url: &url::Url| -> std::io::Result<()> {
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        let port = url.port_or_known_default().unwrap_or(443);
        let mut last = std::io::Error::other("the name has no address");
        for address in (host, port).to_socket_addrs()?.take(4) {
            match TcpStream::connect_timeout(&address, PATIENCE) {
                Ok(_) => return Ok(()),
                Err(error) => last = error,
            }
        }
        Err(last)
    };
    let remotes = servers.iter().filter_map(|server| match &server.reach {
        Ok(Reach::Remote(remote)) => Some((server, &remote.url)),
        _ => None,
    });
    let remotes: Vec<_> = remotes.collect();
    // All at once: they wait for nothing but the network, each for a bounded time.
    let results: Vec<_> = std::thread::scope(|scope| {
        let waiting: Vec<_> = remotes.iter().map(|(_, url)| scope.spawn(move || connect(url))).collect();
        waiting
            .into_iter()
            .map(|one| one.join().unwrap_or_else(|_| Err(std::io::Error::other("could not be tried"))))
            .collect()
    });
    let failed = remotes.iter().zip(results).filter_map(|((server, url), result)| Some((server, url, result.err()?)));
    failed
        .map(|(server, url, error)| {
            let at = format!("{}:{}", url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or(443));
            let message = format!("nobody answers at {}: {error}", shown(&at));
            let remedy = "check the address, the name, and whether a proxy stands between".to_owned();
            finding("unreachable", server.key.as_str(), message, remedy)
        })
        .collect()
}
