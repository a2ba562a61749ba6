//! Hosts on HTTP: one endpoint for modern requests, which stand alone, and for legacy sessions (VER-1, VER-2).
//!
//! [`serve`] accepts connections (`connection`), each request is looked at from outside first (`guard`, `auth`), then
//! by its body (`post`): a modern one is served by `stateless`, all others belong to a session (`legacy`,
//! `sessions`, `session`, `stream`; `sse` for the oldest hosts). What is common to all fronts is in `work` and `write`; nothing here knows servers.

mod auth;
mod body;
mod connection;
mod front;
mod guard;
mod headers;
mod legacy;
mod listens;
mod post;
mod session;
mod sessions;
mod sse;
mod stateless;
mod stream;
mod tls;

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::settings::{GatewaySettings, HttpSettings};
use crate::gateway::Current;
use front::Front;
pub use front::{Entrance, suits};
pub use guard::Guard;

/// The bounds of a front. Their defaults are right for all; tests have shorter ones.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections at once; more wait in the listener's queue.
    pub connections: usize,
    /// Largest head of a request.
    pub head: usize,
    /// Largest body of a request (HTTP-7).
    pub body: usize,
    /// Bytes of large bodies that are held at once, over all connections.
    pub bodies: usize,
    /// Bytes of large answers that wait for their clients, over all connections.
    pub answers: usize,
    /// How long a head may take to arrive.
    pub head_time: Duration,
    /// How long a body may take to arrive.
    pub body_time: Duration,
    /// How long a client may take nothing of what waits for it.
    pub stall: Duration,
    /// How long a connection may be without a request.
    pub idle: Duration,
    /// How often the above are looked at.
    pub look: Duration,
    /// How often a quiet stream shows that it lives (HTTP-6).
    pub keep_alive: Duration,
    /// How long a session may be unused (SES-2).
    pub session: Duration,
    /// Sessions at once.
    pub sessions: usize,
    /// Sessions of one principal at once.
    pub sessions_each: usize,
    /// How long a stream that ended can be resumed (SES-7).
    pub kept: Duration,
    /// How long running requests may take to end when we leave.
    pub drain: Duration,
    /// How the keys of identity providers are fetched.
    pub keys: KeyPace,
    /// How long it may take then that nothing moves where nothing runs: half a request, a client that reads nothing,
    /// one that does not close.
    pub leaving: Duration,
}

/// How often the keys of identity providers are fetched, and for how long they are good.
#[derive(Clone, Debug)]
pub struct KeyPace {
    /// After which time newer ones are asked for.
    pub fresh: Duration,
    /// The least time between two tries, however many tokens name keys that are not known.
    pub pause: Duration,
    /// How long a try may take.
    pub time: Duration,
    /// How long the last good ones are taken while no newer ones can be had.
    pub kept: Duration,
}

impl Default for KeyPace {
    fn default() -> Self {
        let second = Duration::from_secs(1);
        Self { fresh: second * 600, pause: second * 5, time: second * 10, kept: second * 86_400 }
    }
}

impl Default for Limits {
    fn default() -> Self {
        let second = Duration::from_secs(1);
        Self {
            connections: 1024,
            head: 64 << 10,
            body: GatewaySettings::MAX_MESSAGE,
            bodies: 256 << 20,
            answers: 256 << 20,
            head_time: second * 10,
            body_time: second * 30,
            stall: second * 30,
            idle: second * 90,
            look: second,
            keep_alive: second * 15,
            session: second * 1800,
            sessions: 4096,
            sessions_each: 1024,
            kept: second * 300,
            drain: second * 25,
            leaving: second * 3,
            keys: KeyPace::default(),
        }
    }
}

/// Serves hosts until `stop` is cancelled, then lets what runs end, for a few seconds at most.
///
/// The first profile is shown at `/mcp`, each at `/mcp/<name>`. Who may enter says `entrance`. What outlives a connection
/// belongs to `tasks`.
pub async fn serve(
    limits: Limits,
    gateway: Arc<Current>,
    listener: TcpListener,
    settings: &HttpSettings,
    entrance: Arc<Entrance>,
    stop: &CancellationToken,
    tasks: &TaskTracker,
) -> std::io::Result<()> {
    let tls = settings.tls.as_ref().map(tls::Tls::load).transpose()?;
    let front = Front::new(limits, gateway, entrance, settings.sse, stop.child_token(), tasks.clone());
    connection::accept(&Arc::new(front), listener, tls.as_ref()).await;
    Ok(())
}
