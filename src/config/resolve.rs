//! The merged file → settings, with the faults that only show when all layers are together.
//!
//! Called by `load`; deliberately reads no configuration file.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use crate::ident::ServerKey;

use super::check::{self, join};
use super::environment::Environment;
use super::fault::{Fault, Note};
use super::host::Guest;
use super::launch::{self, Findings, Ground};
use super::layers::{Layer, Origins};
use super::period;
use super::schema::{self, Era, File, Format};
use super::settings::{
    AuthSettings, EraChoice, GatewaySettings, HttpSettings, ItemFilter, LogFormat, ProfileSettings, Reach, ServerFault,
    ServerLimits, ServerSettings, Settings, Sharing, Start, TelemetrySettings, Timeouts,
};

/// What resolving gave.
pub(super) struct Resolved {
    pub settings: Settings,
    pub faults: Vec<Fault>,
    /// What disables single servers; the first of each is also in its settings.
    pub server_faults: Vec<Fault>,
    pub notes: Vec<Note>,
}

/// Resolves `file`. `earlier` are the faults found so far: what follows from one of them is not said again.
pub(super) fn resolve(
    file: File,
    layers: &[Layer],
    guests: &BTreeMap<String, Guest>,
    environment: &Environment,
    cwd: &Path,
    earlier: &[Fault],
) -> Resolved {
    let origins = Origins::of(layers);
    let pass_env = check::patterns(&file.gateway.pass_env);
    let (inherited, lost) = environment.for_children(&pass_env);
    let mut notes: Vec<Note> = lost
        .into_iter()
        .map(|name| Note {
            place: Default::default(),
            message: format!("the variable `{name}` is not UTF-8 and is kept from the servers"),
        })
        .collect();
    let mut resolver = Resolver {
        ground: Ground { environment, inherited, cwd, layers, origins: &origins },
        guests,
        earlier,
        faults: Vec::new(),
        server_faults: Vec::new(),
        notes: Vec::new(),
        prefixes: BTreeMap::new(),
    };
    let name_budget = usize::from(file.gateway.name_budget);
    let mut servers = Vec::with_capacity(file.servers.len());
    for (key, server) in file.servers {
        if !server.enabled {
            continue;
        }
        // Keys were checked with their lines.
        if let Ok(key) = ServerKey::new(&key) {
            servers.push(resolver.server(key, server, name_budget));
        }
    }
    notes.append(&mut resolver.notes);
    let state = match &file.gateway.state {
        Some(state) => {
            let base = origins.get("gateway.state", layers).map_or(cwd, |(layer, _)| &layer.base);
            environment.path(state, base)
        }
        None => environment.state_folder(),
    };
    Resolved {
        settings: Settings {
            gateway: GatewaySettings { instructions: file.gateway.instructions, name_budget, state, seal_key: None },
            profiles: vec![ProfileSettings::everything()],
            http: HttpSettings::default(),
            auth: AuthSettings::default(),
            servers,
            telemetry: TelemetrySettings {
                log: file.telemetry.log,
                format: match file.telemetry.format {
                    Format::Pretty => LogFormat::Pretty,
                    Format::Json => LogFormat::Json,
                },
            },
        },
        faults: resolver.faults,
        server_faults: resolver.server_faults,
        notes,
    }
}

struct Resolver<'a> {
    ground: Ground<'a>,
    guests: &'a BTreeMap<String, Guest>,
    earlier: &'a [Fault],
    faults: Vec<Fault>,
    server_faults: Vec<Fault>,
    notes: Vec<Note>,
    /// Effective prefixes and who has them.
    prefixes: BTreeMap<String, ServerKey>,
}

impl Resolver<'_> {
    fn fault(&self, path: &str, message: String) -> Fault {
        Fault {
            place: self.ground.origins.place(path, self.ground.layers),
            key: path.to_owned(),
            message,
            nearest: None,
        }
    }

    /// Was something at or below `path` refused before? Then what follows from it is not said again.
    fn is_faulty(&self, path: &str) -> bool {
        self.earlier.iter().any(|fault| {
            fault.key.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        })
    }

    fn server(&mut self, key: ServerKey, server: schema::Server, name_budget: usize) -> ServerSettings {
        let path = join("servers", key.as_str());
        let guest = self.guests.get(key.as_str());
        let prefix = self.prefix(&key, &server, &path, name_budget);
        let timeouts = self.timeouts(&server, &path);
        let launch = self.launch(&server, guest, &path);
        ServerSettings {
            title: guest.and_then(|guest| guest.title.clone()),
            reach: launch.map(Reach::Launch),
            start: match server.start {
                schema::Start::Lazy => Start::Lazy,
                schema::Start::Eager => Start::Eager,
            },
            era: match server.era {
                Era::Auto => EraChoice::Auto,
                Era::Modern => EraChoice::Modern,
                Era::Legacy => EraChoice::Legacy,
            },
            prefix,
            idle_stop: server.idle_stop.0,
            timeouts,
            sharing: Sharing::Auto,
            limits: ServerLimits::default(),
            tools: ItemFilter { allow: server.tools.allow, deny: server.tools.deny },
            prompts: ItemFilter::default(),
            resources: ItemFilter::default(),
            templates: ItemFilter::default(),
            key,
        }
    }

    /// The effective prefix: unique, and short enough that a shortened name fits (tool-naming, minimum budget).
    fn prefix(&mut self, key: &ServerKey, server: &schema::Server, path: &str, budget: usize) -> String {
        // Prefix, `__`, one character, `-` and eight of a hash.
        const REST: usize = 2 + 1 + 9;
        let prefix = server.prefix.clone().unwrap_or_else(|| key.to_string());
        let at = match server.prefix {
            Some(_) => join(path, "prefix"),
            None => path.to_owned(),
        };
        if !prefix.is_empty() && prefix.len() + REST > budget {
            let message = format!(
                "the prefix `{prefix}` is too long for gateway.name_budget = {budget}: {} is the longest",
                budget - REST
            );
            self.faults.push(self.fault(&at, message));
        }
        if self.is_faulty(&join(path, "prefix")) {
            // What it should have been is not known.
        } else if let Some(other) = self.prefixes.get(&prefix) {
            let message = if prefix.is_empty() {
                format!("only one server may have an empty prefix, and `{other}` has it")
            } else {
                format!("the prefix `{prefix}` is already that of the server `{other}`")
            };
            self.faults.push(self.fault(&at, message));
        } else {
            self.prefixes.insert(prefix.clone(), key.clone());
        }
        prefix
    }

    fn timeouts(&mut self, server: &schema::Server, path: &str) -> Timeouts {
        let written = &server.timeouts;
        let (call, call_max): (Duration, Duration) = (written.call.0, written.call_max.0);
        if call > call_max && !self.is_faulty(&join(path, "timeouts")) {
            let message =
                format!("{} is longer than call_max, which is {}", period::text(call), period::text(call_max));
            let at = join(&join(path, "timeouts"), "call");
            self.faults.push(self.fault(&at, message));
        }
        Timeouts { start: written.start.0, probe: written.probe.0, call, call_max }
    }

    fn launch(
        &mut self,
        server: &schema::Server,
        guest: Option<&Guest>,
        path: &str,
    ) -> Result<super::settings::Launch, ServerFault> {
        if server.command.is_none() {
            return Err(self.without_command(guest, path));
        }
        let mut findings = Findings::default();
        let launch = launch::launch(server, path, &self.ground, &mut findings);
        let first = findings
            .missing
            .first()
            .map(|fault| ServerFault { key: fault.key.clone(), message: fault.message.clone() });
        self.faults.append(&mut findings.faults);
        self.server_faults.append(&mut findings.missing);
        self.notes.append(&mut findings.notes);
        launch.ok_or_else(|| {
            first.unwrap_or_else(|| ServerFault {
                key: path.to_owned(),
                message: "is not configured rightly".to_owned(),
            })
        })
    }

    fn without_command(&mut self, guest: Option<&Guest>, path: &str) -> ServerFault {
        if let Some((member, at)) = guest.and_then(|guest| guest.remote.as_ref()) {
            let key = join(path, member);
            let message =
                "remote servers are not supported by this version; only those with a `command` are".to_owned();
            let mut fault = self.fault(path, message.clone());
            fault.key.clone_from(&key);
            if at.line > 0 {
                fault.place.line = Some(at.line);
                fault.place.column = Some(at.column);
            }
            self.server_faults.push(fault);
            return ServerFault { key, message };
        }
        let message = "the key `command` is missing: what starts this server".to_owned();
        // A file that could not be read may have said it.
        let unread = self.earlier.iter().any(|fault| fault.key.is_empty());
        if !unread && !self.is_faulty(path) {
            self.faults.push(self.fault(path, message.clone()));
        }
        ServerFault { key: path.to_owned(), message }
    }
}
