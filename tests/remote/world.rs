//! The gateway under test, with servers behind URLs.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use onegate::config::settings::{LogFormat, Reach, Remote, ServerSettings, Settings, TelemetrySettings};
use onegate::gateway::{Current, EraMemory, Gateway, Pace, Processes};
use onegate::ident::{Secret, ServerKey};
use onegate::transport::Channel;
use onegate::upstream::stdio;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::end::End;
use super::fake::Fake;

/// A gateway and all that runs for it.
pub(crate) struct World {
    /// What fronts hold.
    #[allow(dead_code, reason = "not all of the suites that share this load anew")]
    pub(crate) current: Arc<Current>,
    /// The one that was first in force.
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) tasks: TaskTracker,
    stop: CancellationToken,
}

/// A server behind this URL, with the defaults of the configuration but shorter waits.
pub(crate) fn server(url: &str) -> ServerSettings {
    let remote = Remote {
        url: url.parse().unwrap(),
        headers: vec![(http::header::AUTHORIZATION, Secret::new("Bearer of the operator"))],
        ca: None,
        sse: false,
        identity: "remote".into(),
        written: Secret::new("{}"),
        secrets: vec![Secret::new("of the operator")],
    };
    let mut server = ServerSettings::new(ServerKey::new("a").unwrap(), Ok(Reach::Remote(remote)));
    server.timeouts.start = Duration::from_secs(10);
    server.timeouts.call = Duration::from_secs(10);
    server
}

impl World {
    pub(crate) fn new(server: ServerSettings) -> Self {
        let telemetry = TelemetrySettings { log: "off".into(), format: LogFormat::Pretty, audit: None, otlp: None };
        let mut settings = Settings::of(vec![server], PathBuf::from("none"), telemetry);
        settings.gateway.seal_key = Some(Secret::new("of a test"));
        let tasks = TaskTracker::new();
        let connect = Arc::new(Processes::new(tasks.clone()));
        let current =
            Current::start(settings, connect, &EraMemory::none(), &tasks, (onegate::gateway::Sights::default(), None))
                .unwrap();
        let gateway = current.now();
        Self { current, gateway, tasks, stop: CancellationToken::new() }
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
    }
}

/// A modern server with a tool `t`, and a legacy host that has listed it.
pub(crate) async fn modern() -> (World, End, Fake) {
    let mut fake = Fake::new().await;
    let world = World::new(server(&fake.url()));
    fake.modern(&["t"]).await;
    let host = host(&world).await;
    (world, host, fake)
}

/// A legacy server with a session `s1` and a tool `t`, and a legacy host that has listed it.
pub(crate) async fn legacy() -> (World, End, Fake) {
    let mut fake = Fake::new().await;
    let world = World::new(server(&fake.url()));
    fake.legacy("s1", &["t"]).await;
    let host = host(&world).await;
    (world, host, fake)
}

/// A legacy host that has listed.
pub(crate) async fn host(world: &World) -> End {
    let mut host = world.host();
    host.open("2025-11-25").await;
    // The list may still be on its way, and then its change is told.
    loop {
        host.ask("list", "tools/list", serde_json::json!({})).await;
        let mut message = host.next().await.unwrap();
        while message.get("id").is_none() {
            message = host.next().await.unwrap();
        }
        if message["result"]["tools"].as_array().is_some_and(|tools| !tools.is_empty()) {
            return host;
        }
    }
}

/// The next answer to `id`; notifications of changed lists may come before.
pub(crate) async fn answer(host: &mut End, id: impl Into<serde_json::Value>) -> serde_json::Value {
    let id = id.into();
    loop {
        let message = host.next().await.expect("it closed");
        if message.get("id") == Some(&id) {
            return message;
        }
        assert_eq!(message["method"], "notifications/tools/list_changed", "{message}");
    }
}
