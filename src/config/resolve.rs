//! The merged file → settings, with the faults that only show when all layers are together.
//!
//! Called by `load`; deliberately reads no configuration file.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;

use crate::ident::ServerKey;
use crate::shown::shown_str as shown;

use super::check::{self, join};
use super::environment::Environment;
use super::fault::{Fault, Note};
use super::ground::{Findings, Ground, Maker};
use super::host::Guest;
use super::layers::{Layer, Origins};
use super::schema::{self, Era, File, Format};
use super::serving::{self, Serving};
use super::settings::{
    AdminSettings, AuditSettings, EraChoice, GatewaySettings, ItemFilter, ListLimits, LogFormat, OtlpSettings,
    OverrideSettings, PinMode, Reach, Restart, SearchSettings, ServerFault, ServerLimits, ServerSettings, Settings,
    Sharing, Start, Stop, TelemetrySettings, Timeouts,
};
use super::size::Size;
use super::{launch, period, pins, rate, remote, rules, search};

/// What resolving gave.
pub(super) struct Resolved {
    pub settings: Settings,
    pub faults: Vec<Fault>,
    /// What disables single servers; the first of each is also in its settings.
    pub server_faults: Vec<Fault>,
    pub notes: Vec<Note>,
    /// What concerns `serve` alone.
    pub serving: Serving,
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
    let known: Vec<String> = file.servers.keys().cloned().collect();
    let pins = pins::pins(&file.pins, environment, cwd, layers, &origins);
    for (key, server) in file.servers {
        if !server.enabled {
            continue;
        }
        // Keys were checked with their lines.
        if let Ok(key) = ServerKey::new(&key) {
            servers.push(resolver.server(key, server, name_budget, pins.mode));
        }
    }
    notes.append(&mut resolver.notes);
    let Resolver { ground, mut faults, server_faults, .. } = resolver;
    let mut front = serving::Front { ground: &ground, earlier, faults: &mut faults, serving: Serving::default() };
    let seal_key = front.seal_key(file.gateway.seal_key.as_deref());
    let tokenizer = front.tokenizer(file.gateway.tokenizer);
    let mut profiles = front.profiles(file.profiles, &known, &servers);
    profiles.iter_mut().for_each(|profile| profile.surface.tokenizer = tokenizer);
    let (http, auth) = front.http_and_auth(file.http, file.auth);
    let search = SearchSettings { model: search::model(file.search.model.as_deref(), &ground, &mut notes) };
    front.points_at_itself(&http, &servers);
    let mut serving = front.serving;
    let mut policy = rules::Rules { ground: &ground, earlier, faults: &mut faults, notes: &mut notes, known: &known };
    let policy = policy.policy(file.policy);
    rules::default_for_serving(&policy, (&http, &auth), &ground, &mut serving);
    let state = match &file.gateway.state {
        Some(state) => {
            let base = origins.get("gateway.state", layers).map_or(cwd, |(layer, _)| &layer.base);
            environment.path(state, base)
        }
        None => environment.state_folder(),
    };
    let admin = admin(&file.admin, &ground);
    let audit = audit(file.telemetry.audit, &ground, earlier, &mut faults);
    let by_use = profiles.iter().filter(|profile| audit.is_none() && profile.surface.recent.is_some());
    notes.extend(by_use.map(|profile| {
        let key = format!("profiles.{}.recent", profile.name);
        let message = format!("{key}: what is called is not recorded (`telemetry.audit.file`), so nothing goes by it");
        Note { place: origins.place(&key, layers), message }
    }));
    let otlp = otlp(file.telemetry.otlp.as_deref(), &file.telemetry.otlp_headers, &ground, (&mut faults, &mut notes));
    Resolved {
        settings: Settings {
            gateway: GatewaySettings {
                instructions: file.gateway.instructions,
                name_budget,
                state,
                seal_key,
                is_mere_front: false,
                max_message: whole(file.gateway.max_message),
                list_deadline: file.gateway.list_deadline.0,
            },
            servers,
            profiles,
            policy,
            search,
            pins,
            http,
            auth,
            admin,
            telemetry: TelemetrySettings {
                log: file.telemetry.log,
                format: match file.telemetry.format {
                    Format::Pretty => LogFormat::Pretty,
                    Format::Json => LogFormat::Json,
                },
                audit,
                otlp,
            },
        },
        faults,
        server_faults,
        notes,
        serving,
    }
}

fn whole(size: Size) -> usize {
    usize::try_from(size.0).unwrap_or(usize::MAX)
}

/// Where operators look.
fn admin(written: &schema::Admin, ground: &Ground<'_>) -> AdminSettings {
    let base = ground.origins.get("admin.socket", ground.layers).map_or(ground.cwd, |(layer, _)| &layer.base);
    AdminSettings {
        socket: written.socket.as_ref().map(|socket| ground.environment.path(socket, base)),
        folder: Some(ground.environment.runtime_folder()),
        // Checked with its line.
        listen: written.listen.as_ref().and_then(|address| address.parse().ok()),
        attach: written.attach == schema::Attach::Auto,
    }
}

/// Where decisions are written down. That the file can be opened is found out by who opens it.
fn audit(
    written: schema::Audit,
    ground: &Ground<'_>,
    earlier: &[Fault],
    faults: &mut Vec<Fault>,
) -> Option<AuditSettings> {
    const MOST_VALUES: usize = 16;
    let path = "telemetry.audit.values";
    if written.values.len() > MOST_VALUES && !is_faulty(earlier, path) {
        let place = ground.origins.place(path, ground.layers);
        let message = format!("are {}; {MOST_VALUES} is the most", written.values.len());
        faults.push(Fault { place, key: path.to_owned(), message, nearest: None });
    }
    let base = ground.origins.get("telemetry.audit.file", ground.layers).map_or(ground.cwd, |(layer, _)| &layer.base);
    let file = ground.environment.path(&written.file?, base);
    let place = ground.origins.place("telemetry.audit.file", ground.layers).to_string();
    Some(AuditSettings { file, keep: written.keep.0, values: written.values, place })
}

/// Where traces and numbers are sent. What is missing on this machine is a fault, too: nobody would miss what never comes.
fn otlp(
    written: Option<&str>,
    headers: &BTreeMap<String, String>,
    ground: &Ground<'_>,
    (faults, notes): (&mut Vec<Fault>, &mut Vec<Note>),
) -> Option<OtlpSettings> {
    const HEADERS: &str = "telemetry.otlp_headers";
    let mut findings = Findings::default();
    let mut maker = Maker::new(ground, &mut findings);
    if written.is_none() && !headers.is_empty() {
        maker.wrong(HEADERS, "means nothing without `otlp`".to_owned());
    }
    let url = written.and_then(|written| maker.url(written, "telemetry.otlp"));
    let headers = maker.headers(headers, HEADERS);
    faults.append(&mut findings.faults);
    faults.append(&mut findings.missing);
    notes.append(&mut findings.notes);
    url.map(|url| OtlpSettings { url, headers })
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

    fn is_faulty(&self, path: &str) -> bool {
        is_faulty(self.earlier, path)
    }

    fn server(
        &mut self,
        key: ServerKey,
        mut server: schema::Server,
        name_budget: usize,
        mode: PinMode,
    ) -> ServerSettings {
        let path = join("servers", key.as_str());
        let guest = self.guests.get(key.as_str());
        let prefix = self.prefix(&key, &server, &path, name_budget);
        let timeouts = self.timeouts(&server, &path);
        let restart = self.restart(&server.restart, &join(&path, "restart"));
        let reach = self.reach(&server, guest, &path);
        if server.limits.burst.is_some() && server.limits.rate.is_none() && !self.is_faulty(&join(&path, "limits")) {
            let at = join(&join(&path, "limits"), "burst");
            self.faults.push(self.fault(&at, "means nothing without a `rate`".to_owned()));
        }
        if let (Some(rate), Some(burst)) = (server.limits.rate, server.limits.burst)
            && let Some(message) = rate::burst_problem(rate.0, burst)
        {
            self.faults.push(self.fault(&join(&join(&path, "limits"), "burst"), message));
        }
        let overrides = self.overrides(std::mem::take(&mut server.r#override), &path);
        let schema::Tools { allow, deny, always } = server.tools;
        let tools = schema::Items { allow, deny };
        for (kind, items) in [
            ("tools", &tools),
            ("prompts", &server.prompts),
            ("resources", &server.resources),
            ("templates", &server.templates),
        ] {
            self.suspicious(&join(&path, kind), items);
        }
        let filter = |items: schema::Items| ItemFilter { allow: items.allow, deny: items.deny };
        ServerSettings {
            title: guest.and_then(|guest| guest.title.clone()),
            reach,
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
            ping: server.ping.0,
            restart,
            stop: Stop { input: server.stop.input.0, term: server.stop.term.0 },
            required: server.required,
            sharing: match server.sharing {
                schema::Sharing::Auto => Sharing::Auto,
                schema::Sharing::Shared => Sharing::Shared,
                schema::Sharing::Session => Sharing::Session,
                schema::Sharing::Principal => Sharing::Principal,
            },
            limits: ServerLimits {
                rate: server.limits.rate.map(|rate| (rate.0, server.limits.burst.and_then(NonZeroU32::new))),
                concurrency: server.limits.concurrency.map(usize::from),
                queue: usize::try_from(server.limits.queue).unwrap_or(usize::MAX),
                max_result: server.limits.max_result.0,
                stderr: whole(server.limits.stderr),
                lists: ListLimits {
                    definition: whole(server.limits.definition),
                    entries: usize::try_from(server.limits.entries).unwrap_or(usize::MAX),
                    list: whole(server.limits.list),
                },
            },
            tools: filter(tools),
            always,
            prompts: filter(server.prompts),
            resources: filter(server.resources),
            templates: filter(server.templates),
            overrides,
            roots: filter(server.roots),
            pin: pins::pin(server.pin, mode),
            key,
        }
    }

    /// The effective prefix: unique, and short enough that a shortened name fits (tool-naming, minimum budget).
    fn prefix(&mut self, key: &ServerKey, server: &schema::Server, path: &str, budget: usize) -> String {
        let prefix = server.prefix.clone().unwrap_or_else(|| key.to_string());
        let at = match server.prefix {
            Some(_) => join(path, "prefix"),
            None => path.to_owned(),
        };
        if let Some(message) = prefix_problem(&prefix, budget, "gateway.name_budget") {
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

    /// Points out patterns that are probably not meant as written (D096).
    fn suspicious(&mut self, path: &str, items: &schema::Items) {
        let lists = [("allow", items.allow.as_deref().unwrap_or_default()), ("deny", &items.deny)];
        for (list, texts) in lists {
            for (n, pattern) in check::patterns(texts).iter().enumerate() {
                if let Some(why) = pattern.suspicion() {
                    let at = format!("{}[{n}]", join(path, list));
                    let message = format!("{at}: `{}` {why}", shown(pattern.as_str()));
                    let place = self.ground.origins.place(&at, self.ground.layers);
                    self.notes.push(Note { place, message });
                }
            }
        }
    }

    /// What is changed about single items.
    fn overrides(&mut self, written: BTreeMap<String, schema::Override>, path: &str) -> Vec<OverrideSettings> {
        let raw = |values: BTreeMap<String, serde_json::Value>| {
            values.into_iter().map(|(name, value)| (name, value.to_string())).collect::<Vec<_>>()
        };
        let mut overrides = Vec::with_capacity(written.len());
        let mut names: BTreeMap<String, String> = BTreeMap::new();
        for (native, written) in written {
            let at = join(&join(path, "override"), &native);
            for name in written.fixed.keys().filter(|name| written.defaults.contains_key(*name)) {
                let message = "is fixed already, so a default means nothing".to_owned();
                self.faults.push(self.fault(&join(&join(&at, "defaults"), name), message));
            }
            if let Some(name) = &written.name
                && let Some(other) = names.insert(name.clone(), native.clone())
            {
                let message = format!("`{}` is already the name of `{}`", shown(name), shown(&other));
                self.faults.push(self.fault(&join(&at, "name"), message));
            }
            overrides.push(OverrideSettings {
                native,
                name: written.name,
                title: written.title,
                description: written.description,
                hide: written.hide,
                fixed: raw(written.fixed),
                defaults: raw(written.defaults),
                timeout: written.timeout.map(|timeout| timeout.0),
                retry_safe: written.retry_safe,
            });
        }
        overrides
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
        Timeouts { start: written.start.0, probe: written.probe.0, call, call_max, ping: written.ping.0 }
    }

    fn restart(&mut self, written: &schema::Restart, path: &str) -> Restart {
        let (first, longest): (Duration, Duration) = (written.first.0, written.longest.0);
        if first > longest && !self.is_faulty(path) {
            let message = format!("{} is longer than longest, which is {}", period::text(first), period::text(longest));
            self.faults.push(self.fault(&join(path, "first"), message));
        }
        Restart {
            first,
            longest,
            failures: usize::from(written.failures),
            within: written.within.0,
            pause: written.pause.0,
            stable: written.stable.0,
            per_minute: usize::from(written.per_minute),
        }
    }

    /// How it is reached: as a program or at an address, never both.
    fn reach(&mut self, server: &schema::Server, guest: Option<&Guest>, path: &str) -> Result<Reach, ServerFault> {
        if let Some((member, at, message)) = guest.and_then(|guest| guest.trouble.as_ref()) {
            let key = join(path, member);
            let mut fault = self.fault(path, message.clone());
            fault.key.clone_from(&key);
            if at.line > 0 {
                fault.place.line = Some(at.line);
                fault.place.column = Some(at.column);
            }
            self.server_faults.push(fault);
            return Err(ServerFault { key, message: message.clone() });
        }
        let mut findings = Findings::default();
        let reach = match (&server.command, &server.url) {
            (None, None) => return Err(self.without_either(path)),
            (Some(_), Some(_)) => {
                let message = "`command` and `url` exclude each other: a server is a program or an address";
                self.faults.push(self.fault(&join(path, "url"), message.to_owned()));
                None
            }
            (Some(_), None) => {
                let strange = [
                    ("headers", !server.headers.is_empty()),
                    ("ca", server.ca.is_some()),
                    ("transport", server.transport.is_some()),
                ];
                self.only_for("url", strange, path);
                launch::launch(server, path, &self.ground, &mut findings).map(Reach::Launch)
            }
            (None, Some(_)) => {
                let strange =
                    [("args", !server.args.is_empty()), ("env", !server.env.is_empty()), ("cwd", server.cwd.is_some())];
                self.only_for("command", strange, path);
                remote::remote(server, path, &self.ground, &mut findings).map(Reach::Remote)
            }
        };
        let first = findings
            .missing
            .first()
            .map(|fault| ServerFault { key: fault.key.clone(), message: fault.message.clone() });
        self.faults.append(&mut findings.faults);
        self.server_faults.append(&mut findings.missing);
        self.notes.append(&mut findings.notes);
        reach.ok_or_else(|| {
            first.unwrap_or_else(|| ServerFault {
                key: path.to_owned(),
                message: "is not configured rightly".to_owned(),
            })
        })
    }

    /// Refuses keys that mean nothing for this way to a server.
    fn only_for<const N: usize>(&mut self, needed: &str, keys: [(&str, bool); N], path: &str) {
        for (key, _) in keys.into_iter().filter(|(_, given)| *given) {
            let message = format!("means nothing without a `{needed}`");
            self.faults.push(self.fault(&join(path, key), message));
        }
    }

    fn without_either(&mut self, path: &str) -> ServerFault {
        let message = "one of the keys `command` and `url` is missing: what starts this server, or where it is";
        // A file that could not be read may have said it.
        let unread = self.earlier.iter().any(|fault| fault.key.is_empty());
        if !unread && !self.is_faulty(path) {
            self.faults.push(self.fault(path, message.to_owned()));
        }
        ServerFault { key: path.to_owned(), message: message.to_owned() }
    }
}

/// Why a prefix leaves no room for a shortened name within the budget that stands at `key` (tool-naming, minimum budget).
pub(super) fn prefix_problem(prefix: &str, budget: usize, key: &str) -> Option<String> {
    // `__`, one character, `-` and eight of a hash.
    const REST: usize = 2 + 1 + 9;
    let fits = prefix.is_empty() || prefix.len() + REST <= budget;
    (!fits).then(|| format!("the prefix `{prefix}` is too long for {key} = {budget}: {} is the longest", budget - REST))
}

/// Was something at or below `path` refused before? Then what follows from it is not said again.
pub(super) fn is_faulty(earlier: &[Fault], path: &str) -> bool {
    earlier
        .iter()
        .any(|fault| fault.key.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '['])))
}
