//! What a service manager and we tell each other: sockets handed over, ready, stopping, alive.
//!
//! Without systemd none of its variables is set, and all of this does nothing. Called by `http`.

use std::convert::Infallible;
use std::net::TcpListener;
use std::time::Duration;

use anyhow::Context as _;
use listenfd::ListenFd;
use sd_notify::NotifyState;
use tokio::time::MissedTickBehavior;

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

/// Tells it that another configuration is being loaded (`Type=notify-reload`); ready is told when that is done.
pub(super) fn tell_reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(error) => tracing::debug!(%error, "the time is not known"),
    }
}

/// Tells it again and again that we are alive, twice in the time that it waits for that. Runs where the work is done:
/// when that stands still, so does this.
pub(super) async fn beat() -> Infallible {
    let variable = |name| std::env::var(name).ok();
    let Some(patience) = patience(variable("WATCHDOG_USEC").as_deref(), variable("WATCHDOG_PID").as_deref()) else {
        return std::future::pending().await;
    };
    let mut beats = tokio::time::interval(patience / 2);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        beats.tick().await;
        tell(&[NotifyState::Watchdog]);
    }
}

/// How long a silence of ours is borne, if at all. A process number is not always given; one that is not ours means
/// somebody else.
fn patience(micros: Option<&str>, process: Option<&str>) -> Option<Duration> {
    let meant = process.is_none_or(|process| process.parse() == Ok(std::process::id()));
    let micros = micros?.parse().ok().filter(|micros| meant && *micros > 1)?;
    Some(Duration::from_micros(micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watchdog_is_for_us_or_not() {
        let ours = std::process::id().to_string();
        assert_eq!(patience(Some("30000000"), None), Some(Duration::from_secs(30)));
        assert_eq!(patience(Some("30000000"), Some(&ours)), Some(Duration::from_secs(30)));
        for (micros, process) in [(None, None), (Some("30000000"), Some("1")), (Some("x"), None), (Some("0"), None)] {
            assert_eq!(patience(micros, process), None);
        }
    }
}
