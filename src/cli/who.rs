//! `--as`: whom a command speaks for, and what its `<server>/<kind>/<native name>` names.

use super::exit::Exit;
use super::out;
use crate::catalog::Given;
use crate::config::settings::Settings;
use crate::ident::{Kind, Principal};
use crate::shown::shown_str;

/// Whom a command speaks for.
#[derive(clap::Args)]
pub(super) struct As {
    /// Speak for this principal (key:NAME, user:SUB, stdio, anonymous) instead of stdio.
    #[arg(id = "as", long = "as", value_name = "PRINCIPAL")]
    name: Option<String>,
    /// A group that it belongs to; repeatable. Default: the groups of its key.
    #[arg(id = "group", long = "group", value_name = "GROUP", requires = "as")]
    groups: Vec<String>,
}

impl As {
    /// The principal; `Err` = told that there is none of that name.
    pub(super) fn principal(&self, settings: &Settings) -> Result<Principal, Exit> {
        let Some(name) = &self.name else { return Ok(Principal::stdio()) };
        let groups = (!self.groups.is_empty()).then(|| self.groups.clone());
        principal(settings, name, groups).map_err(|why| {
            out::say(&format!("onegate: {why}"));
            Exit::Usage
        })
    }
}

/// The principal of this name, with the groups of its key where no others are given.
pub(super) fn principal(settings: &Settings, name: &str, groups: Option<Vec<String>>) -> Result<Principal, String> {
    let of_key = || {
        let key = name.strip_prefix("key:")?;
        settings.auth.keys.iter().find(|known| known.name == key).map(|known| known.groups.clone())
    };
    let groups = groups.or_else(of_key).unwrap_or_default();
    Principal::parse(name, &groups).ok_or_else(|| {
        format!("{:?} is no principal; there are key:NAME, user:SUB, stdio, stdio:NAME and anonymous", shown_str(name))
    })
}

/// The server, kind and native name of a target, which must be literal.
pub(super) fn target<'t>(settings: &Settings, text: &'t str) -> Result<(usize, Kind, &'t str), String> {
    let mut parts = text.splitn(3, '/');
    let (Some(server), Some(kind), Some(native)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(format!("{:?} is not <server>/<kind>/<native name>", shown_str(text)));
    };
    let Some(index) = settings.servers.iter().position(|known| known.key.as_str() == server) else {
        let keys: Vec<_> = settings.servers.iter().map(|known| known.key.as_str()).collect();
        return Err(format!("no server {:?}; there are: {}", shown_str(server), keys.join(", ")));
    };
    let Some(kind) = Kind::ALL.into_iter().find(|known| known.as_str() == kind) else {
        return Err(format!("no kind {:?}; there are tool, prompt, resource and template", shown_str(kind)));
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
