//! How a server is reached: as a child on pipes, or behind a URL.
//!
//! Opens a link and knows nothing of what is said on it. Called by [`super::client`]; tests give links of their own.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use tokio_rustls::rustls::ClientConfig;
use tokio_util::task::TaskTracker;

use super::Guard;
use super::connection::Way;
use super::http::{self, Http};
use super::looked::Served;
use super::process::{self, Child, Ended};
use crate::config::settings::{Launch, Reach, ServerSettings};
use crate::ident::Kind;
use crate::shown::shown_str;
use crate::transport::Channel;

/// What comes of a question that takes a while.
pub type Answering<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// How servers are reached.
pub trait Connect: Send + Sync + 'static {
    /// Opens a link to a server; an error is safe to show.
    fn connect(&self, server: &ServerSettings) -> Result<Link, String>;

    /// Whether a server may be started or reached at all, asked each time before that is done (E-10); an error is safe to
    /// show.
    fn clear<'a>(&'a self, _server: &'a ServerSettings) -> Answering<'a, Result<(), String>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// What may be called of what a server lists on a connection of some hosts alone; asked where pins are enforced.
    fn served(&self, _server: &ServerSettings, _kind: Kind, _pages: &[Bytes]) -> Served {
        Served::default()
    }

    /// Another number each time that may be another.
    fn generation(&self) -> u64 {
        0
    }
}

/// A link to a server.
pub struct Link {
    pub(super) way: Way,
    pub(super) child: Option<Child>,
}

impl Link {
    /// A link to a server that is no process of ours.
    pub fn channel(channel: Channel) -> Self {
        Self { way: Way::Lines(channel), child: None }
    }
}

/// Servers as child processes, and behind URLs.
pub struct Processes {
    guard: OnceLock<Arc<Guard>>,
    /// Made with the first server behind TLS: the machine's roots are many.
    tls: OnceLock<Result<Arc<ClientConfig>, String>>,
    tasks: TaskTracker,
    /// Whether the log tells of each start.
    tells: bool,
}

impl Processes {
    /// Starts children; the tasks that drain them belong to `tasks`. The guard is started with the first.
    pub fn new(tasks: TaskTracker) -> Self {
        Self { guard: OnceLock::new(), tls: OnceLock::new(), tasks, tells: false }
    }

    /// The same, and the log tells of each child that is started (STD-5): of one that runs for hosts.
    pub fn telling(tasks: TaskTracker) -> Self {
        Self { tells: true, ..Self::new(tasks) }
    }

    /// Runs a program that is no server to its end, which comes after `most` at the latest; an error is safe to show.
    pub async fn to_end(&self, launch: &Launch, most: Duration) -> Result<Ended, String> {
        let ended = process::to_end(launch, self.guard(), &self.tasks, most).await;
        ended.map_err(|error| format!("the command {:?} could not be started: {error}", shown_str(&launch.command)))
    }

    fn guard(&self) -> &Arc<Guard> {
        self.guard.get_or_init(|| {
            Arc::new(Guard::start().unwrap_or_else(|error| {
                tracing::warn!(%error, "no guard process; children may outlive a killed gateway");
                Guard::none()
            }))
        })
    }
}

impl Connect for Processes {
    fn connect(&self, server: &ServerSettings) -> Result<Link, String> {
        let launch = match &server.reach {
            Ok(Reach::Launch(launch)) => launch,
            Ok(Reach::Remote(remote)) => {
                let is_https = remote.url.scheme() == "https";
                let tls = match &remote.ca {
                    _ if !is_https => None,
                    // Read anew with each connection: it is a file of the operator, who may replace it.
                    Some(file) => Some(http::tls(Some(file))?),
                    None => Some(self.tls.get_or_init(|| http::tls(None)).clone()?),
                };
                let way = Http::new(remote, server.limits.max_result, tls, &self.tasks)?;
                return Ok(Link { way: Way::Http(way), child: None });
            }
            Err(fault) => return Err(format!("{}: {}", fault.key, fault.message)),
        };
        let (child, channel) = process::start(launch, server.limits.stderr, self.guard(), &self.tasks)
            .map_err(|error| format!("the command {:?} could not be started: {error}", shown_str(&launch.command)))?;
        if self.tells {
            // Its arguments may hold secrets.
            tracing::info!(server = %server.key, command = shown_str(&launch.command), pid = child.pid(), "started");
        }
        Ok(Link { way: Way::Lines(channel), child: Some(child) })
    }
}
