//! Where all servers stand and what is shown, for whoever operates the gateway (contract §2 and §5).
//!
//! A look at what others keep; owns nothing. What servers said is escaped by who kept it. Called by `daemon`.

use serde::Serialize;
use tokio::time::Instant;

use super::{Gateway, Sight};
use crate::catalog::ledger::SavedBy;
use crate::config::settings::{PinMode, Reach};
use crate::downstream::{Server, State};
use crate::ident::Kind;
use crate::pins::drift::{Quarantine, ServerState};
use crate::protocol::version::Era;
use crate::telemetry::metrics::{Point, ProfileNow, ServerNow};

/// Where everything stands.
#[derive(Debug, Serialize)]
pub struct Status {
    /// The servers, in the order of the settings.
    pub servers: Vec<ServerStatus>,
    /// The profiles, `default` first.
    pub profiles: Vec<ProfileStatus>,
}

/// Where a server stands.
#[derive(Debug, Serialize)]
pub struct ServerStatus {
    /// Its key.
    pub key: String,
    /// `idle`, `starting`, `ready`, `waiting` (to be started again), `broken` (it failed too often), `disabled` (it cannot
    /// be started as configured) or `stopped`.
    pub state: &'static str,
    /// `stdio` or `http`.
    pub transport: &'static str,
    /// `modern` or `legacy`, as far as it was ever connected.
    pub era: Option<&'static str>,
    /// The revision that is spoken now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<&'static str>,
    /// Its process, where it is ours and runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// How often it was started again.
    pub restarts: u64,
    /// Requests that it works on.
    pub in_flight: u64,
    /// Connections to it, those of single principals or sessions among them.
    pub connections: usize,
    /// When it is tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// What went wrong last, also when it runs again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// Whether the gateway is not ready without it.
    pub required: bool,
    /// How it stands to what was reviewed.
    pub pins: PinStatus,
}

/// How a server stands to what was reviewed.
#[derive(Debug, Serialize)]
pub struct PinStatus {
    /// `off`, `warn` or `enforce`.
    pub mode: &'static str,
    /// `locked`, `unlocked`, `quarantined`, or `degraded`: as reviewed, and a list of it did not come, so that the last good
    /// one holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<&'static str>,
    /// How many of its entries are not as reviewed, or new.
    pub drift: usize,
    /// Why nothing of it is approved, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quarantine: Option<&'static str>,
}

/// What a profile shows to everybody.
#[derive(Debug, Serialize)]
pub struct ProfileStatus {
    /// Its name.
    pub name: String,
    /// How many tools.
    pub tools: usize,
    /// How many prompts.
    pub prompts: usize,
    /// How many resources.
    pub resources: usize,
    /// How many templates.
    pub templates: usize,
    /// What its lists cost a model, about.
    pub tokens: usize,
    /// The same in bytes.
    pub bytes: usize,
    /// `list`, `search` or `auto`.
    pub surface: &'static str,
    /// The most tokens that its list of tools may cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<usize>,
    /// How many tools are found by search alone.
    pub behind: usize,
    /// How tokens are counted.
    pub estimator: &'static str,
    /// What is saved, and by which means.
    pub saved: SavedBy,
    /// What each server's items in its lists cost.
    pub servers: Vec<Cost>,
}

/// What a server's items in the lists of a profile cost.
#[derive(Debug, Serialize)]
pub struct Cost {
    /// The key of the server.
    pub key: String,
    /// How many are listed.
    pub items: usize,
    /// Their bytes.
    pub bytes: usize,
    /// Their tokens, about.
    pub tokens: usize,
    /// How many of its tools are found by search alone.
    pub behind: usize,
}

impl Gateway {
    /// Where everything stands now.
    pub fn status(&self) -> Status {
        let servers = self.servers().map(|server| self.server_status(server)).collect();
        let shown = self.profiles.iter().enumerate().filter(|(_, (_, gone))| !gone);
        let profiles = shown.map(|(profile, (name, _))| self.profile_status(profile, name));
        Status { servers, profiles: profiles.collect() }
    }

    fn profile_status(&self, profile: usize, name: &str) -> ProfileStatus {
        let catalogue = self.lists.catalogue(Sight(profile));
        let ledger = catalogue.ledger();
        let [tools, prompts, resources, templates] = Kind::ALL.map(|kind| catalogue.entries(kind));
        let servers = ledger.servers.iter().map(|of| Cost {
            key: of.key.to_string(),
            items: of.listed.items,
            bytes: of.listed.bytes,
            tokens: of.listed.tokens,
            behind: of.behind.items,
        });
        ProfileStatus {
            name: name.to_owned(),
            tools,
            prompts,
            resources,
            templates,
            tokens: ledger.listed.tokens,
            bytes: ledger.listed.bytes,
            surface: catalogue.surface().mode().as_str(),
            max_tokens: catalogue.surface().max_tokens(),
            behind: ledger.behind.items,
            estimator: catalogue.counter().name(),
            saved: ledger.saved(),
            servers: servers.collect(),
        }
    }

    /// The numbers as text.
    pub fn numbers(&self) -> String {
        self.metrics.render(&self.servers_now(), &self.profiles_now())
    }

    /// The same one by one, but for times.
    pub fn points(&self) -> Vec<Point> {
        self.metrics.points(&self.servers_now(), &self.profiles_now())
    }

    fn servers_now(&self) -> Vec<Option<ServerNow>> {
        let now = |server: &std::sync::Arc<Server>| {
            (!self.is_gone(server.index())).then(|| ServerNow {
                state: word(&server.state().borrow()),
                restarts: server.restarts(),
                drift: self.pin_status(server).drift,
            })
        };
        self.servers.iter().map(now).collect()
    }

    /// Why the gateway is not ready: required servers that cannot be used, by key.
    pub fn missing(&self) -> Vec<String> {
        let is_missing = |server: &&std::sync::Arc<Server>| {
            // One that was never needed is not missing.
            let down = matches!(
                *server.state().borrow(),
                State::Waiting { .. } | State::Broken { .. } | State::Disabled { .. }
            );
            self.required[server.index()] && (down || self.lists.unsettled(&Kind::ALL).contains(&server.index()))
        };
        self.servers().filter(is_missing).map(|server| server.key().to_string()).collect()
    }

    /// Whether every server had its chance to list.
    pub fn is_settled(&self) -> bool {
        Kind::ALL.iter().all(|&kind| self.lists.is_settled(kind))
    }

    fn profiles_now(&self) -> Vec<ProfileNow> {
        let now = |(profile, (name, gone)): (usize, &(String, bool))| {
            if *gone {
                return None;
            }
            let catalogue = self.lists.catalogue(Sight(profile));
            let items = Kind::ALL.map(|kind| catalogue.entries(kind));
            Some(ProfileNow { name: name.clone(), items, tokens: catalogue.ledger().listed.tokens })
        };
        self.profiles.iter().enumerate().filter_map(now).collect()
    }

    fn pin_status(&self, server: &Server) -> PinStatus {
        let (mode, at) = (server.settings().pin.mode, server.index());
        if mode == PinMode::Off {
            return PinStatus { mode: mode.as_str(), state: None, drift: 0, quarantine: None };
        }
        let state = self.pins.state(at);
        let word = Some(state.as_str());
        let quarantine = match state {
            ServerState::Quarantined(why) => Some(why.code()),
            ServerState::Unlocked => Some(Quarantine::Unlocked.code()),
            ServerState::Locked | ServerState::Degraded => None,
        };
        PinStatus { mode: mode.as_str(), state: word, drift: self.pins.drifted(at), quarantine }
    }

    fn server_status(&self, server: &Server) -> ServerStatus {
        let state = server.state().borrow().clone();
        let (mut revision, mut process, mut until) = (None, None, None);
        match &state {
            State::Ready { revision: spoken, pid } => (revision, process) = (Some(spoken.as_str()), *pid),
            State::Waiting { until: at, .. } | State::Broken { until: at, .. } => until = Some(*at),
            State::Idle | State::Starting | State::Disabled { .. } | State::Stopped => {}
        }
        let now = Instant::now();
        let wait = until.map(|at| at.saturating_duration_since(now).as_millis());
        let why = match &state {
            State::Waiting { why, .. } | State::Broken { why, .. } | State::Disabled { why } => Some(why.clone()),
            State::Idle | State::Starting | State::Ready { .. } | State::Stopped => None,
        };
        ServerStatus {
            key: server.key().to_string(),
            state: word(&state),
            transport: if matches!(server.settings().reach, Ok(Reach::Remote(_))) { "http" } else { "stdio" },
            era: server.era().map(|era| if era == Era::Legacy { "legacy" } else { "modern" }),
            revision,
            pid: process,
            restarts: server.restarts(),
            in_flight: self.metrics.in_flight(server.index()),
            connections: server.connections(),
            retry_after_ms: wait.map(|wait| u64::try_from(wait).unwrap_or(u64::MAX)),
            last_error: why.or_else(|| server.last_error()),
            required: self.required[server.index()],
            pins: self.pin_status(server),
        }
    }
}

/// Where a server stands, in one word.
const fn word(state: &State) -> &'static str {
    match state {
        State::Idle => "idle",
        State::Starting => "starting",
        State::Ready { .. } => "ready",
        State::Waiting { .. } => "waiting",
        State::Broken { .. } => "broken",
        State::Disabled { .. } => "disabled",
        State::Stopped => "stopped",
    }
}
