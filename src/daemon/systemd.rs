//! What a service manager and we tell each other: sockets handed over, ready, stopping, alive.
//!
//! Without systemd none of its variables is set, and all of this does nothing. Called by `http`.

use std::convert::Infallible;
use std::net::TcpListener;
use std::time::Duration;

use anyhow::Context as _;
use listenfd::ListenFd;
use sd_notify::NotifyState;

/// The socket that a service manager listens on for us, if any.
#[derive(Default)]
pub struct Inherited(pub(super) Option<TcpListener>);

impl Inherited {
    /// Takes it over (`LISTEN_FDS`). To be called before anything else runs: it takes the variables away, so that
    /// nobody else believes to be meant.
    pub fn take() -> anyhow::Result<Self> {
        let mut handed = ListenFd::from_env();
        if handed.len() > 1 {
            anyhow::bail!("{} sockets were handed over, but one is served; one ListenStream= is enough", handed.len());
        }
        let socket = handed.take_tcp_listener(0).context("the socket that was handed over cannot be used")?;
        Ok(Self(socket))
    }
}

/// Tells the service manager, if there is one.
pub(super) fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(false, states) {
        tracing::warn!(%error, "the service manager cannot be told");
    }
}

/// Tells it again and again that we are alive, twice in the time that it waits for that. Runs where the work is done:
/// when that stands still, so does this.
pub(super) async fn beat() -> Infallible {
    let mut micros = 0;
    if !sd_notify::watchdog_enabled(false, &mut micros) || micros < 2 {
        return std::future::pending().await;
    }
    let mut beats = tokio::time::interval(Duration::from_micros(micros / 2));
    loop {
        beats.tick().await;
        tell(&[NotifyState::Watchdog]);
    }
}
