//! A running gateway: built in order, drained in reverse.
//!
//! The commands use it in three ways: [`serve_stdio`] for a host, [`serve_http`] for a team, [`Daemon`] alone for a
//! look or a call.

mod admin;
pub mod attach;
mod http;
mod reload;
mod signals;
mod socket;
mod systemd;
mod uses;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use arc_swap::ArcSwapOption;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::settings::Settings;
use crate::gateway::{Current, EraMemory, Gateway, Pace, Processes, Sights};
use crate::ident::Principal;
use crate::policy::RulesError;
use crate::telemetry::audit::{Audit, Keeper};
use crate::telemetry::otlp::{self, Otlp};
use crate::transport::Channel;
use crate::upstream::http::Entrance;
use crate::upstream::stdio::{self, Guest};

pub use admin::ask;
pub use http::serve_http;
use reload::Fixed;
pub use reload::{Fresh, Reload};
pub use signals::Ended;
pub use systemd::Inherited;
use uses::Uses;

/// What the ladder of a stop takes beyond its own waits.
const SLACK: Duration = Duration::from_millis(200);

/// How long the last records may take to be written.
const WRITING: Duration = Duration::from_secs(1);

/// How long a collector may take for the last spans and numbers.
const SENDING: Duration = Duration::from_millis(1500);

/// A gateway with its servers, and everything that runs for it.
pub struct Daemon {
    current: Arc<Current>,
    tasks: TaskTracker,
    keeper: Option<Keeper>,
    sending: Option<otlp::Keeper>,
    fixed: Fixed,
    /// Why the last configuration is not in force.
    fault: Arc<ArcSwapOption<String>>,
    /// No operator looks any more, and nothing is loaded.
    closed: CancellationToken,
    /// What hosts call is counted.
    uses: Option<Uses>,
}

impl Daemon {
    /// Starts the gateway for a look or a call: its servers start in the background, and list. Needs a runtime. A record of
    /// decisions that was asked for and cannot be written keeps it from starting (E-40).
    pub fn start(settings: Settings) -> anyhow::Result<Self> {
        Self::start_with(settings, None)
    }

    /// The same for hosts: what servers listed when we ran last is shown before they start, and kept for the next run.
    fn start_for_hosts(settings: Settings) -> anyhow::Result<Self> {
        let catalogue = settings.gateway.state.join("catalogue");
        Self::start_with(settings, Some(catalogue))
    }

    fn start_with(settings: Settings, catalogue: Option<PathBuf>) -> anyhow::Result<Self> {
        let (audit, keeper) = settings.telemetry.audit.as_ref().map(Audit::open).transpose()?.unzip();
        // What nobody sees keeps nobody from being served.
        let sending = settings.telemetry.otlp.as_ref().and_then(|settings| {
            Otlp::open(settings).inspect_err(|error| tracing::warn!("nothing is sent to a collector: {error}")).ok()
        });
        let (otlp, sending) = sending.unzip();
        let sights = Sights { audit, otlp: otlp.clone() };
        let (tasks, fixed) = (TaskTracker::new(), Fixed::of(&settings));
        let memory = EraMemory::at(settings.gateway.state.join("eras"));
        let (of_hosts, closed) = (catalogue.is_some(), CancellationToken::new());
        let uses = of_hosts.then(|| Uses::count(&settings, &closed, &tasks));
        let processes = if of_hosts { Processes::telling(tasks.clone()) } else { Processes::new(tasks.clone()) };
        let connect = Arc::new(processes);
        let current = Current::start(settings, connect, &memory, &tasks, (sights, catalogue))
            .map_err(|faults| anyhow::anyhow!(RulesError::all(&faults)))?;
        if let Some(otlp) = otlp {
            let gateway = Arc::downgrade(&current);
            otlp.observe(move || gateway.upgrade().map(|current| current.now().points()).unwrap_or_default());
        }
        Ok(Self { current, tasks, keeper, sending, fixed, fault: Arc::default(), closed, uses })
    }

    /// The gateway that is in force.
    pub fn gateway(&self) -> Arc<Gateway> {
        self.current.now()
    }

    /// Lets operators look at it until it has stopped: as this front, at this address.
    fn show(&self, front: &'static str, address: Option<String>) {
        let (gateway, fault) = (Arc::clone(&self.current), Arc::clone(&self.fault));
        let subject = admin::Subject { gateway, front, address, fault };
        admin::open((&self.fixed.admin, &self.fixed.http), subject, &self.closed, &self.tasks);
    }

    /// Has the configuration loaded anew when it changes or HUP comes, until `stop`; by `entrance`, too, where there is one.
    fn reload(
        &self,
        reload: Reload,
        entrances: Option<(Arc<Entrance>, Option<Arc<attach::Guests>>)>,
        stop: &CancellationToken,
    ) {
        let (current, fault) = (Arc::clone(&self.current), Arc::clone(&self.fault));
        let (entrance, guests) = entrances.unzip();
        let (fixed, uses, guests) = (self.fixed.clone(), self.uses.clone(), guests.flatten());
        let subject = reload::Subject { current, entrance, guests, fixed, fault, uses };
        reload::watch(subject, reload, stop.clone(), &self.tasks);
    }

    /// Stops all servers, so that no process of theirs is left.
    pub async fn stop(self, pace: Pace) {
        let longest = |pace: Pace| pace.input + pace.term * 2;
        let each = self.gateway().servers().map(|server| longest(pace.of(&server.settings().stop))).max();
        self.current.stop(pace);
        self.closed.cancel();
        self.tasks.close();
        if timeout(each.unwrap_or_default().max(longest(pace)) + SLACK, self.tasks.wait()).await.is_err() {
            tracing::warn!("not everything has ended in time");
        }
        // Last, when nobody is left who decides anything.
        let written = self.keeper.map(|keeper| tokio::task::spawn_blocking(move || keeper.finish(WRITING)));
        let sent = self.sending.map(|sending| tokio::task::spawn_blocking(move || sending.finish(SENDING)));
        if let Some(written) = written
            && !written.await.unwrap_or(false)
        {
            tracing::warn!("the records of the last decisions could not be written in time");
        }
        if let Some(sent) = sent
            && !sent.await.unwrap_or(false)
        {
            tracing::warn!("the collector of telemetry.otlp did not take the last of what was to be sent in time");
        }
    }

    /// Serves one host until it leaves or we are told to; then all is stopped.
    pub async fn serve(self, channel: Channel, guest: Guest, reload: Option<Reload>) -> Ended {
        self.show("run", None);
        let stop = CancellationToken::new();
        let told = signals::watch(stop.clone(), None, reload.is_none(), &self.tasks);
        if let Some(reload) = reload {
            self.reload(reload, None, &stop);
        }
        let front = stdio::serve_as(Arc::clone(&self.current), guest, channel, &stop, &self.tasks).await;
        stop.cancel();
        // Servers go first, so that calls still running end with an error that the host may still read.
        self.current.stop(Pace::SWIFT);
        tokio::join!(front.finish(), self.stop(Pace::SWIFT));
        told.how()
    }
}

/// Serves the host on our standard streams with these settings, which no file has.
pub async fn serve_front(settings: Settings, principal: Principal) -> anyhow::Result<Ended> {
    let (channel, _restore) = crate::transport::standard::host().context("standard input and output cannot be used")?;
    Ok(Daemon::start(settings)?.serve(channel, principal.into(), None).await)
}

/// Serves the host on our standard streams; who it is says the token of this installation, not the host. With `wanted`, a gateway
/// of the same configuration that runs already serves it, as long as it does.
pub async fn serve_stdio(
    settings: Settings,
    principal: Principal,
    reload: Reload,
    wanted: Option<attach::Wanted>,
) -> anyhow::Result<Ended> {
    let (channel, _restore) = crate::transport::standard::host().context("standard input and output cannot be used")?;
    if let Some(wanted) = wanted {
        match attach::attach(&settings.admin, &wanted).await {
            Ok((pid, peer)) => {
                tracing::info!("attached to the gateway of process {pid}");
                let host = (channel, settings.gateway.max_message);
                return attach::serve(host, peer, wanted.token.as_ref(), reload).await;
            }
            Err(why) => tracing::info!("running alone: {why}"),
        }
    }
    Ok(Daemon::start_for_hosts(settings)?.serve(channel, principal.into(), Some(reload)).await)
}
