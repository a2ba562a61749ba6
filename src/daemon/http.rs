//! A gateway that serves a team over HTTP: bound, announced, drained.
//!
//! Knows nothing of requests: `upstream::http` serves them. Called by `onegate serve`.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use sd_notify::NotifyState;
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::signals::{self, Ended};
use super::systemd::{self, Inherited};
use super::{Daemon, Reload, attach};
use crate::config::settings::{AuthSettings, HttpSettings, Settings};
use crate::gateway::Pace;
use crate::upstream::http::{self, Entrance, Limits};

/// The longest that running requests hold up the end. Shorter than `TimeoutStopSec=` of our unit by what the servers
/// need after it.
const DRAIN: Duration = Duration::from_secs(30);

/// Serves hosts over HTTP until a signal comes: the first one lets running requests end, a second one does not wait.
/// `announce` is told where, once that is known.
pub async fn serve_http(
    settings: Settings,
    inherited: Inherited,
    reload: Reload,
    identity: &str,
    announce: impl FnOnce(&str),
) -> anyhow::Result<Ended> {
    let listener = listen(inherited, settings.http.listen).await?;
    let mut http = settings.http.clone();
    // The real port, and the real address of a socket that was handed over: hosts name it in `Host`.
    http.listen = listener.local_addr().context("the socket has no address")?;
    let auth = settings.auth.clone();
    http::suits(http.listen, &auth).map_err(anyhow::Error::msg)?;
    let daemon = Daemon::start_for_hosts(settings)?;
    let scheme = if http.tls.is_some() { "https" } else { "http" };
    let address = format!("{scheme}://{}/mcp", http.listen);
    announce(&address);
    daemon.show("serve", Some(address));
    tokio::select! {
        ended = serve(daemon, listener, (&http, &auth), reload, identity) => ended,
        never = systemd::beat() => match never {},
    }
}

async fn listen(inherited: Inherited, address: SocketAddr) -> anyhow::Result<TcpListener> {
    match inherited.0 {
        Some(socket) => {
            socket.set_nonblocking(true)?;
            TcpListener::from_std(socket).context("the socket that was handed over cannot be used")
        }
        None => TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}")),
    }
}

async fn serve(
    daemon: Daemon,
    listener: TcpListener,
    settings: (&HttpSettings, &AuthSettings),
    reload: Reload,
    identity: &str,
) -> anyhow::Result<Ended> {
    let (stop, hurry, cut) = (CancellationToken::new(), CancellationToken::new(), CancellationToken::new());
    let door = attach::open(&daemon, identity, settings.1, &cut);
    let told = signals::watch(stop.clone(), Some(hurry.clone()), false, &daemon.tasks);
    let gateway = daemon.gateway();
    let stopping = stop.clone();
    daemon.tasks.spawn(async move {
        tokio::select! {
            // Servers that take longer do not hold up those that are there (LST-1).
            _ = timeout(gateway.list_deadline(), gateway.settle()) => {
                let serving = format!("serving {} servers", gateway.servers().count());
                systemd::tell(&[NotifyState::Ready, NotifyState::Status(&serving)]);
            }
            () = stopping.cancelled() => {}
        }
        // Held no longer than it is in force: what it alone has goes with it.
        drop(gateway);
        stopping.cancelled().await;
        systemd::tell(&[NotifyState::Stopping]);
    });
    let limits = Limits { body: daemon.gateway().max_message(), ..Limits::default() };
    let gateway = Arc::clone(&daemon.current);
    let entrance = Entrance::new(settings, settings.0.listen, limits.keys.clone(), &stop, &daemon.tasks);
    let drain = limits.drain;
    let (guests, hosts) = door
        .map(|door| {
            let (guests, current) = (door.guests(), Arc::clone(&daemon.current));
            (guests, daemon.tasks.spawn(door.serve(current, stop.clone(), daemon.tasks.clone())))
        })
        .unzip();
    daemon.reload(reload, Some((Arc::clone(&entrance), guests)), &stop);
    let serving = http::serve(limits, gateway, listener, settings.0, entrance, &stop, &daemon.tasks);
    // Hosts on pipes have the same time.
    let attached = async {
        if let Some(hosts) = hosts {
            stop.cancelled().await;
            attach::leave(hosts, drain, &cut).await;
        }
        io::Result::Ok(())
    };
    let serving = async { tokio::try_join!(serving, attached).map(drop) };
    let served = tokio::select! {
        served = serving => served,
        () = hurry.cancelled() => Ok(()),
        () = async { stop.cancelled().await; sleep(DRAIN).await } => {
            tracing::warn!("requests still ran {} s after the end was asked for", DRAIN.as_secs());
            Ok(())
        }
    };
    stop.cancel();
    cut.cancel();
    let pace = if hurry.is_cancelled() || told.how() == Ended::Interrupted { Pace::SWIFT } else { Pace::CALM };
    hurry.cancel();
    daemon.stop(pace).await;
    served.context("the listener failed")?;
    Ok(told.how())
}
