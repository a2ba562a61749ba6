//! `--as`: whom a command speaks for, and what its `<server>/<kind>/<native name>` names.

use std::io::Read as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use super::exit::Exit;
use super::out;
use crate::catalog::Given;
use crate::config::keys;
use crate::config::settings::Settings;
use crate::ident::{Capability, Kind, Principal, Secret};
use crate::policy::Clock;
use crate::shown::shown_str;

/// Holds the token of this installation.
const TOKEN: &str = "ONEGATE_TOKEN";
/// The longest token that is read.
const LONGEST_TOKEN: u64 = 4096;

/// Whom a command speaks for.
#[derive(clap::Args)]
pub(super) struct As {
    /// Speak for this principal (key:NAME, user:SUB, stdio, anonymous) instead of stdio.
    #[arg(id = "as", long = "as", value_name = "PRINCIPAL")]
    name: Option<String>,
    /// A group that it belongs to; repeatable. Default: the groups of its key or token.
    #[arg(id = "group", long = "group", value_name = "GROUP", requires = "as")]
    groups: Vec<String>,
    /// A scope that its token was given for; repeatable.
    #[arg(id = "scope", long = "scope", value_name = "SCOPE", requires = "as")]
    scopes: Vec<String>,
}

impl As {
    /// The principal; `Err` = told that there is none of that name.
    pub(super) fn principal(&self, settings: &Settings) -> Result<Principal, Exit> {
        let Some(name) = &self.name else { return Ok(Principal::stdio()) };
        let groups = (!self.groups.is_empty()).then(|| self.groups.clone());
        principal(settings, name, groups).map(|who| who.scoped(&self.scopes)).map_err(|why| {
            out::say(&format!("onegate: {why}"));
            Exit::Usage
        })
    }
}

/// Whoever started us: `stdio`, or the one whose token this installation was given, and that. A token that is
/// given and not known is a fault: somebody thinks to be somebody.
pub(super) fn of_token(settings: &Settings, file: Option<&Path>) -> Result<(Principal, Option<Secret>), String> {
    let Some((token, place)) = token(file)? else { return Ok((Principal::stdio(), None)) };
    let known = keys::find(token.trim(), settings.auth.stdio.iter().map(|known| (known, &known.hash)));
    let known = known.ok_or_else(|| format!("{place} is none of auth.stdio"))?;
    Ok((Principal::stdio_named(&known.name, &known.groups), Some(Secret::new(token))))
}

/// The token that this installation was given, and where it stands.
pub(super) fn token(file: Option<&Path>) -> Result<Option<(String, String)>, String> {
    match (file, std::env::var_os(TOKEN)) {
        (Some(file), _) => {
            let shown = shown_str(&file.display().to_string());
            Ok(Some((read_token(file)?, format!("the token in {shown:?}"))))
        }
        (None, Some(token)) => {
            let token = token.into_string().map_err(|_| format!("{TOKEN} is not UTF-8"))?;
            Ok(Some((token, format!("the token in {TOKEN}"))))
        }
        (None, None) => Ok(None),
    }
}

/// The token in a file.
pub(super) fn read_token(file: &Path) -> Result<String, String> {
    let mut text = String::new();
    let read = std::fs::File::open(file).and_then(|file| file.take(LONGEST_TOKEN).read_to_string(&mut text));
    let shown = shown_str(&file.display().to_string());
    read.map_err(|error| format!("the token file {shown:?} cannot be read: {error}"))?;
    Ok(text)
}

/// The principal of this name, with the groups of its key where no others are given.
pub(super) fn principal(settings: &Settings, name: &str, groups: Option<Vec<String>>) -> Result<Principal, String> {
    let of_key = || {
        let key = name.strip_prefix("key:")?;
        settings.auth.keys.iter().find(|known| known.name == key).map(|known| known.groups.clone())
    };
    let of_token = || {
        let token = name.strip_prefix("stdio:")?;
        settings.auth.stdio.iter().find(|known| known.name == token).map(|known| known.groups.clone())
    };
    let groups = groups.or_else(of_key).or_else(of_token).unwrap_or_default();
    Principal::parse(name, &groups).ok_or_else(|| {
        format!("{:?} is no principal; there are key:NAME, user:SUB, stdio, stdio:NAME and anonymous", shown_str(name))
    })
}

/// The time for which decisions are asked, where that is another than now: rules may hold at certain times.
#[derive(Default)]
pub(super) struct Then(Arc<Mutex<Option<SystemTime>>>);

impl Then {
    /// What tells the time.
    pub(super) fn clock(&self) -> Clock {
        let then = Arc::clone(&self.0);
        Clock::new(move || {
            let then = then.lock().unwrap_or_else(PoisonError::into_inner).unwrap_or_else(SystemTime::now);
            then.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
        })
    }

    /// From now on it is this time; nothing = the present.
    pub(super) fn set(&self, then: Option<SystemTime>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = then;
    }
}

/// What a question is about.
pub(super) enum Wanted<'t> {
    Item((usize, Kind, &'t str)),
    Capability(usize, Capability),
}

/// The server and the item or capability of a target, which must be literal.
pub(super) fn wanted<'t>(settings: &Settings, text: &'t str) -> Result<Wanted<'t>, String> {
    let mut parts = text.splitn(3, '/');
    if let (Some(server), Some(Capability::KIND), Some(name)) = (parts.next(), parts.next(), parts.next()) {
        let known = Capability::ALL.into_iter().find(|known| known.as_str() == name);
        let known = known.ok_or_else(|| {
            let all = Capability::ALL.map(Capability::as_str).join(", ");
            format!("no capability {:?}; there are {all}", shown_str(name))
        })?;
        return Ok(Wanted::Capability(server_of(settings, server)?, known));
    }
    target(settings, text).map(Wanted::Item)
}

fn server_of(settings: &Settings, server: &str) -> Result<usize, String> {
    settings.servers.iter().position(|known| known.key.as_str() == server).ok_or_else(|| {
        let keys: Vec<_> = settings.servers.iter().map(|known| known.key.as_str()).collect();
        format!("no server {:?}; there are: {}", shown_str(server), keys.join(", "))
    })
}

/// The server, kind and native name of a target, which must be literal.
pub(super) fn target<'t>(settings: &Settings, text: &'t str) -> Result<(usize, Kind, &'t str), String> {
    let mut parts = text.splitn(3, '/');
    let (Some(server), Some(kind), Some(native)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(format!("{:?} is not <server>/<kind>/<native name>", shown_str(text)));
    };
    let index = server_of(settings, server)?;
    let Some(kind) = Kind::ALL.into_iter().find(|known| known.as_str() == kind) else {
        return Err(format!(
            "no kind {:?}; there are tool, prompt, resource, template and capability",
            shown_str(kind)
        ));
    };
    Ok((index, kind, native))
}

/// The reason for what an override hides.
pub(super) const HIDDEN: &str = "hidden-by-override";

/// What the operator's override of a tool makes of a call: whether it hides the tool, and the arguments that are decided
/// about, for which it may fix or fill in some.
pub(super) fn overridden(
    settings: &Settings,
    (server, kind, native): (usize, Kind, &str),
    arguments: Option<Vec<u8>>,
) -> (bool, Option<Vec<u8>>) {
    // What is read has no arguments.
    let arguments = arguments.map(|given| if kind == Kind::Resource { b"{}".to_vec() } else { given });
    let mut overrides = settings.servers[server].overrides.iter().filter(|_| kind == Kind::Tool);
    let Some(change) = overrides.find(|change| change.native == native) else { return (false, arguments) };
    let given = Given::of(change);
    let arguments = arguments.map(|hosts| given.arguments(Some(&hosts)).map_or(hosts, |changed| changed.to_vec()));
    (change.hide, arguments)
}
