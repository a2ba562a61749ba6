//! `onegate check`: everything that is wrong with the configuration, at once, without starting anything.

use serde_json::json;

use super::exit::Exit;
use super::{Common, load, out};
use crate::config::settings::{AuthMode, HttpSettings, Settings};
use crate::config::{Fault, Note, Place};
use crate::shown::shown_str;
use crate::telemetry::audit::Audit;

/// Flags of `check`.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    common: Common,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let loaded = load::load(&args.common, args.json)?;
    let mut faults: Vec<_> = loaded.server_faults.iter().chain(&loaded.serving.faults).cloned().collect();
    if let Some(audit) = &loaded.settings.telemetry.audit
        && let Err(error) = Audit::check(audit)
    {
        let (key, message) = ("telemetry.audit.file".to_owned(), error.why().to_owned());
        faults.push(Fault { place: place(&audit.place), key, message, nearest: None });
    }
    if !faults.is_empty() {
        return load::tell(args.json, &faults);
    }
    let mut notes = loaded.notes;
    if loaded.serving.configured {
        let nobody = loaded.serving.nobody.iter();
        let nobody = nobody
            .map(|fault| Note { place: fault.place.clone(), message: format!("{}: {}", fault.key, fault.message) });
        let serving: Vec<_> = nobody.chain(loaded.serving.notes.iter().cloned()).collect();
        for note in &serving {
            tracing::warn!("{note}");
        }
        notes.extend(serving);
    }
    let settings = &loaded.settings;
    let keys: Vec<_> = settings.servers.iter().map(|server| server.key.to_string()).collect();
    let profiles: Vec<_> = settings.profiles.iter().map(|profile| profile.name.as_str()).collect();
    if args.json {
        out::json(&json!({
            "faults": [], "notes": notes, "sources": loaded.sources, "servers": keys, "profiles": profiles,
        }))?;
    } else if let (true, Some(candidate)) = (loaded.sources.is_empty(), &loaded.untrusted) {
        let folder = shown_str(&candidate.folder.display().to_string());
        out::text(&format!("{folder}/onegate.toml is not used, because it is not trusted: see `onegate trust`."))?;
    } else if loaded.sources.is_empty() {
        out::text("No configuration found: looked for ./onegate.toml and in the configuration folders.")?;
    } else {
        let sources: Vec<_> = loaded.sources.iter().map(|file| file.display().to_string()).collect();
        let mut line = format!("{}: fine; {}", sources.join(", "), listed(&keys, "server"));
        if profiles.len() > 1 {
            line.push_str(&format!("; {}", listed(&profiles, "profile")));
        }
        if loaded.serving.configured {
            line.push_str(&format!("; serve: {}", serving(settings)));
        }
        out::text(&line)?;
    }
    Ok(Exit::Fine)
}

/// A place that was written out.
fn place(text: &str) -> Place {
    let parted = text.rsplit_once(':').and_then(|(file, line)| Some((file.to_owned(), line.parse().ok()?)));
    match parted {
        Some((file, line)) => Place { file: Some(file), line: Some(line), ..Place::default() },
        None => Place { file: Some(text.to_owned()), ..Place::default() },
    }
}

/// `2 servers: files, git`.
fn listed<S: AsRef<str>>(names: &[S], word: &str) -> String {
    let names: Vec<_> = names.iter().map(AsRef::as_ref).collect();
    let count = load::count(names.len(), word);
    if names.is_empty() { count } else { format!("{count}: {}", names.join(", ")) }
}

/// Where `serve` would listen, and for whom.
fn serving(settings: &Settings) -> String {
    let keys = || {
        let names: Vec<_> = settings.auth.keys.iter().map(|key| key.name.as_str()).collect();
        listed(&names, "key")
    };
    let tokens = || {
        let issuer = settings.auth.jwt.as_ref().map_or("nobody", |jwt| &jwt.issuer);
        format!("tokens of {}", shown_str(issuer))
    };
    let who = match settings.auth.mode {
        AuthMode::None => "everybody on this machine".to_owned(),
        AuthMode::Keys => keys(),
        AuthMode::Jwt => tokens(),
        AuthMode::Both => format!("{}; {}", keys(), tokens()),
    };
    format!("{} for {who}", address(&settings.http))
}

/// The address of `serve`, as hosts write it.
fn address(http: &HttpSettings) -> String {
    let scheme = if http.tls.is_some() { "https" } else { "http" };
    format!("{scheme}://{}/mcp", http.listen)
}
