//! The gateway under test, with servers that are ends of connections in memory.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use onegate::config::settings::{Launch, LogFormat, Reach, ServerSettings, Settings, TelemetrySettings};
use onegate::gateway::{Connect, Current, EraMemory, Gateway, Link, Pace, Processes};
use onegate::ident::{Secret, ServerKey};
use onegate::telemetry::audit::{Audit, Keeper};
use onegate::transport::Channel;
use onegate::upstream::stdio;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::end::End;

/// Timers are this exact: the gateway looks at its deadlines every 50 ms.
pub(crate) const TICK: Duration = Duration::from_millis(60);

/// A gateway and all that runs for it.
pub(crate) struct World {
    /// What fronts hold.
    #[allow(dead_code, reason = "not all of the suites that share this load anew")]
    pub(crate) current: Arc<Current>,
    /// The one that was first in force.
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
    links: HashMap<String, mpsc::Receiver<End>>,
    /// Who writes decisions down, where that was asked for.
    keeper: Option<Keeper>,
}

/// Gives the far end of each link to the test. A server behind a URL is reached as it always is.
struct Memory(HashMap<String, mpsc::Sender<End>>, Processes);

impl Connect for Memory {
    fn connect(&self, server: &ServerSettings) -> Result<Link, String> {
        if matches!(server.reach, Ok(Reach::Remote(_))) {
            return self.1.connect(server);
        }
        let (ours, theirs) = Channel::pair();
        let sender = self.0.get(server.key.as_str()).ok_or("no such server")?;
        sender.try_send(End::new(theirs)).map_err(|_| "nobody accepts".to_owned())?;
        Ok(Link::channel(ours))
    }
}

/// A server with the defaults of the configuration.
pub(crate) fn server(key: &str) -> ServerSettings {
    let launch = Launch {
        program: PathBuf::from("none"),
        command: "none".into(),
        args: Vec::new(),
        env: BTreeMap::new(),
        cwd: None,
        identity: key.into(),
        written: Secret::new("{}"),
        secrets: Vec::new(),
    };
    let mut server = ServerSettings::new(ServerKey::new(key).unwrap(), Ok(Reach::Launch(launch)));
    server.idle_stop = Some(Duration::from_secs(600));
    // Servers here say what their test has them say.
    server.ping = None;
    server
}

/// A server of this key can be added later.
pub(crate) const LATER: &str = "later";

/// Settings with these servers and the defaults of the configuration.
pub(crate) fn settings(mut servers: Vec<ServerSettings>, change: impl FnOnce(&mut Settings)) -> Settings {
    servers.sort_by(|a, b| a.key.cmp(&b.key));
    let telemetry = TelemetrySettings { log: "off".into(), format: LogFormat::Pretty, audit: None, otlp: None };
    let mut settings = Settings::of(servers, PathBuf::from("none"), telemetry);
    settings.gateway.seal_key = Some(Secret::new("of a test"));
    change(&mut settings);
    settings
}

impl World {
    /// Starts a gateway with these servers.
    pub(crate) fn new(servers: Vec<ServerSettings>) -> Self {
        Self::with(servers, |_| {})
    }

    /// The same with other settings.
    pub(crate) fn with(servers: Vec<ServerSettings>, change: impl FnOnce(&mut Settings)) -> Self {
        let keys = servers.iter().map(|server| server.key.as_str().to_owned());
        let (senders, links) = keys
            .chain([LATER.to_owned()])
            .map(|key| {
                let (sender, receiver) = mpsc::channel(64);
                ((key.clone(), sender), (key, receiver))
            })
            .unzip();
        let settings = settings(servers, change);
        let tasks = TaskTracker::new();
        let memory = Memory(senders, Processes::new(tasks.clone()));
        let (audit, keeper) = settings.telemetry.audit.as_ref().map(|audit| Audit::open(audit).unwrap()).unzip();
        let current = Current::start(
            settings,
            Arc::new(memory),
            &EraMemory::none(),
            &tasks,
            (onegate::gateway::Sights { audit, otlp: None }, None),
        )
        .unwrap();
        let gateway = current.now();
        Self { current, gateway, tasks, stop: CancellationToken::new(), links, keeper }
    }

    /// The next link that is opened to a server.
    pub(crate) async fn accept(&mut self, key: &str) -> End {
        let waiting = self.links.get_mut(key).unwrap().recv();
        tokio::time::timeout(Duration::from_secs(3600), waiting).await.expect("not started within an hour").unwrap()
    }

    /// All links that are opened to a server from now on.
    #[allow(dead_code, reason = "one server at a time is accepted at the middle boundary")]
    pub(crate) fn links(&mut self, key: &str) -> mpsc::Receiver<End> {
        self.links.remove(key).unwrap()
    }

    /// Whether a link waits to be accepted.
    pub(crate) fn is_started(&self, key: &str) -> bool {
        !self.links[key].is_empty()
    }

    /// A host in front; it is served until it leaves or the world stops.
    pub(crate) fn host(&self) -> End {
        let (ours, theirs) = Channel::pair();
        let (gateway, stop, tasks) = (Arc::clone(&self.current), self.stop.clone(), self.tasks.clone());
        self.tasks.spawn(async move { stdio::serve(gateway, ours, &stop, &tasks).await.finish().await });
        End::new(theirs)
    }

    /// Stops all; everything that the gateway started must end.
    pub(crate) async fn end(self) {
        self.stop.cancel();
        self.current.stop(Pace::SWIFT);
        self.tasks.close();
        tokio::time::timeout(Duration::from_secs(10), self.tasks.wait()).await.expect("a task has no end");
        assert!(self.keeper.is_none_or(|keeper| keeper.finish(Duration::from_secs(20))), "records were not written");
    }
}

/// Servers `a` and `b`, legacy, each with a tool `t`, and a host in a legacy session that has listed both.
pub(crate) async fn two() -> (World, End, End, End) {
    let mut world = World::new(vec![server("a"), server("b")]);
    let mut host = world.host();
    let (mut a, mut b) = (world.accept("a").await, world.accept("b").await);
    a.legacy(&["t"]).await;
    b.legacy(&["t"]).await;
    host.open("2025-11-25").await;
    assert_eq!(host.list().await, ["a__t", "b__t"]);
    // What changed until now is told now, or never.
    host.quiet(Duration::from_secs(2)).await;
    (world, host, a, b)
}

/// One legacy server `a` with a tool `t`, and a host in a legacy session that has listed it.
pub(crate) async fn pair() -> (World, End, End) {
    pair_with(server("a")).await
}

/// The same with other settings of the server.
pub(crate) async fn pair_with(settings: ServerSettings) -> (World, End, End) {
    let key = settings.key.as_str().to_owned();
    let mut world = World::new(vec![settings]);
    let mut host = world.host();
    let mut server = world.accept(&key).await;
    server.legacy(&["t"]).await;
    host.open("2025-11-25").await;
    assert_eq!(host.list().await, [format!("{key}__t")]);
    // The change from nothing to this list has been told, or need not be.
    host.quiet(Duration::from_secs(2)).await;
    (world, host, server)
}

/// The time since `start` is `expected`, and a tick at most beyond it.
#[track_caller]
pub(crate) fn took(start: Instant, expected: Duration) {
    let elapsed = start.elapsed();
    assert!(elapsed >= expected && elapsed <= expected + TICK, "{elapsed:?} instead of {expected:?}");
}
