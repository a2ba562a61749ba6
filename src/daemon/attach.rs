//! `[admin] attach = "auto"`: a `run` whose configuration a `serve` of the same user has in force already is served by that,
//! with the same policy and as the same principal, and starts no servers of its own.
//!
//! They meet at a socket that is named by the configuration; the first line each way says who comes, and who is there. When
//! the `serve` leaves, the `run` goes on alone. Called by the fronts of `daemon`.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::signals::{self, Ended};
use super::socket::{self, Socket};
use super::{Daemon, Reload};
use crate::config::keys;
use crate::config::settings::{AdminSettings, AuthSettings, ProfileSettings, StdioToken};
use crate::gateway::Current;
use crate::ident::{Principal, Secret};
use crate::transport::Channel;
use crate::upstream::relay::{Left, Relay};
use crate::upstream::stdio::{self, Guest};

/// Hosts at once.
const HOSTS: usize = 256;
/// How long either side may take for its first line: a busy gateway is waited for, a hung one is not.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest such line.
const LONGEST: usize = 8 << 10;
/// Two versions may mean different things by the same line.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Who wants to be served.
pub struct Wanted {
    /// Of which configuration.
    pub identity: String,
    /// What of it; nothing = the default.
    pub profile: Option<String>,
    /// The host puts tools off itself.
    pub defers: bool,
    /// The token of the installation.
    pub token: Option<Secret>,
}

/// The first line of who comes.
#[derive(Serialize, Deserialize)]
struct Hello {
    version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<String>,
    #[serde(default)]
    defers: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
}

/// The answer to it.
#[derive(Serialize, Deserialize)]
struct Welcome {
    pid: u32,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
}

fn path(settings: &AdminSettings, identity: &str) -> Option<PathBuf> {
    Some(settings.folder.as_ref()?.join(format!("{identity}.mcp")))
}

/// Reads a line of the other side, and nothing beyond it.
async fn line(stream: &mut UnixStream) -> io::Result<Vec<u8>> {
    let reading = async {
        let mut line = Vec::new();
        loop {
            match stream.read_u8().await? {
                b'\n' => return Ok(line),
                _ if line.len() == LONGEST => return Err(io::ErrorKind::InvalidData.into()),
                byte => line.push(byte),
            }
        }
    };
    timeout(PATIENCE, reading).await.unwrap_or(Err(io::ErrorKind::TimedOut.into()))
}

async fn say(stream: &mut UnixStream, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message).map_err(io::Error::other)?;
    line.push(b'\n');
    timeout(PATIENCE, stream.write_all(&line)).await.unwrap_or(Err(io::ErrorKind::TimedOut.into()))
}

fn channel(stream: UnixStream) -> Channel {
    let (reader, writer) = stream.into_split();
    Channel::new(reader, writer)
}

/// Finds the gateway that has this configuration in force: its process, and the way to it. Else why there is none.
pub(super) async fn attach(settings: &AdminSettings, wanted: &Wanted) -> Result<(u32, Channel), String> {
    let path = path(settings, &wanted.identity).ok_or("there is no folder for sockets")?;
    let trying = async {
        let mut stream = socket::connect(&path).await?;
        let token = wanted.token.as_ref().map(|token| token.reveal().to_owned());
        let (version, profile) = (VERSION.to_owned(), wanted.profile.clone());
        say(&mut stream, &Hello { version, profile, defers: wanted.defers, token }).await?;
        let welcome: Welcome = serde_json::from_slice(&line(&mut stream).await?).map_err(io::Error::other)?;
        io::Result::Ok((welcome, stream))
    };
    match timeout(PATIENCE, trying).await {
        Ok(Ok((Welcome { pid, refused: None }, stream))) => Ok((pid, channel(stream))),
        Ok(Ok((Welcome { pid, refused: Some(why) }, _))) => Err(format!("the gateway of process {pid} says: {why}")),
        Ok(Err(error)) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            Err("no `serve` with this configuration runs".to_owned())
        }
        Ok(Err(error)) => Err(format!("the gateway that runs cannot be reached: {error}")),
        Err(_) => Err("the gateway that runs does not answer".to_owned()),
    }
}

/// Serves the host through another gateway as long as that is there, then with one of our own: as whom, the configuration says
/// that is there by then.
pub(super) async fn serve(
    (host, max_message): (Channel, usize),
    peer: Channel,
    token: Option<&Secret>,
    reload: Reload,
) -> anyhow::Result<Ended> {
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    let told = signals::watch(stop.clone(), None, false, &tasks);
    let mut relay = Relay::new(host, max_message);
    let left = relay.pass(peer, &stop).await;
    if left == Left::Host || stop.is_cancelled() {
        stop.cancel();
        return Ok(told.how());
    }
    tracing::warn!("the gateway that served this host has ended; going on alone");
    let fresh = (reload.load)().map_err(|why| anyhow::anyhow!("{why}")).and_then(|fresh| {
        let guests = Guests::new(&fresh.settings.auth.stdio, &stop);
        let (principal, _) = guests.who(token.map(Secret::reveal)).map_err(anyhow::Error::msg)?;
        Ok((Daemon::start_for_hosts(fresh.settings)?, principal, fresh.read))
    });
    let (daemon, principal, read) = match fresh {
        Ok(fresh) => fresh,
        Err(why) => {
            stop.run_until_cancelled(relay.give_up()).await;
            stop.cancel();
            return Err(why.context("the gateway that served this host has ended, and none can take its place"));
        }
    };
    let (ours, theirs) = Channel::pair();
    let guest = Guest { asked: relay.asked(), ..Guest::from(principal) };
    let serving = daemon.serve(ours, guest, Some(Reload { read, ..reload }));
    let (ended, _) = tokio::join!(serving, relay.pass(theirs, &stop));
    stop.cancel();
    Ok(ended)
}

/// Where hosts of `run` come in.
pub(super) struct Door {
    listener: UnixListener,
    socket: Socket,
    guests: Arc<Guests>,
}

/// Who may be whom.
pub(super) struct Guests {
    known: ArcSwap<Vec<Known>>,
    /// For those without a token, who are never taken back.
    nobody: CancellationToken,
}

struct Known {
    written: StdioToken,
    /// It is not in force any more, or gives somebody else.
    revoked: CancellationToken,
}

impl Guests {
    /// As these tokens say; whatever they say ends with `cut`.
    fn new(tokens: &[StdioToken], cut: &CancellationToken) -> Self {
        let guests = Self { known: ArcSwap::default(), nobody: cut.clone() };
        guests.reload(tokens);
        guests
    }

    /// Other tokens are in force: hosts of those that are gone, or written otherwise, are not served any more.
    pub(super) fn reload(&self, tokens: &[StdioToken]) {
        let before = self.known.load_full();
        let known = |written: &StdioToken| {
            let same = before.iter().find(|known| known.written == *written);
            let revoked = same.map_or_else(|| self.nobody.child_token(), |same| same.revoked.clone());
            Known { written: written.clone(), revoked }
        };
        self.known.store(Arc::new(tokens.iter().map(known).collect()));
        before.iter().filter(|known| !tokens.contains(&known.written)).for_each(|known| known.revoked.cancel());
    }

    /// Who comes with this token, and what ends it.
    fn who(&self, token: Option<&str>) -> Result<(Principal, CancellationToken), &'static str> {
        let Some(token) = token else { return Ok((Principal::stdio(), self.nobody.clone())) };
        let all = self.known.load();
        let known = keys::find(token.trim(), all.iter().map(|known| (known, &known.written.hash)));
        let Known { written, revoked } = known.ok_or("the token is none of auth.stdio")?;
        Ok((Principal::stdio_named(&written.name, &written.groups), revoked.clone()))
    }
}

/// Opens it, where that is configured, for hosts that are served until `cut`. That it cannot be opened is said, and no more.
pub(super) fn open(daemon: &Daemon, identity: &str, auth: &AuthSettings, cut: &CancellationToken) -> Option<Door> {
    let settings = &daemon.fixed.admin;
    let path = path(settings, identity).filter(|_| settings.attach)?;
    let opened = path.parent().map_or(Ok(()), socket::folder).and_then(|()| Socket::bind(&path));
    match opened {
        Ok((listener, socket)) => {
            let guests = Arc::new(Guests::new(&auth.stdio, cut));
            Some(Door { listener, socket, guests })
        }
        Err(error) => {
            tracing::warn!("`onegate run` will not find this gateway: {error}");
            None
        }
    }
}

impl Door {
    /// Who may be whom, for another configuration to say.
    pub(super) fn guests(&self) -> Arc<Guests> {
        Arc::clone(&self.guests)
    }

    /// Serves whoever comes, until `stop`; ends when nobody is inside any more. What runs then may end, until the cut.
    pub(super) async fn serve(self, current: Arc<Current>, stop: CancellationToken, tasks: TaskTracker) {
        let Self { listener, socket, guests } = self;
        let (places, hosts) = (Arc::new(Semaphore::new(HOSTS)), TaskTracker::new());
        let accepting = async {
            loop {
                // The semaphore is never closed.
                let place = Arc::clone(&places).acquire_owned().await.ok();
                let stream = match socket::accept(&listener).await {
                    Ok(stream) => stream,
                    Err(error) => {
                        tracing::debug!(%error, "a host cannot be accepted");
                        sleep(Duration::from_millis(50)).await;
                        continue;
                    }
                };
                let (guests, current, stop, tasks) =
                    (Arc::clone(&guests), Arc::clone(&current), stop.clone(), tasks.clone());
                hosts.spawn(async move {
                    let _place = place;
                    let entered = stop.run_until_cancelled(enter(stream, &guests, &current)).await;
                    match entered {
                        Some(Ok(Some((stream, guest, ends)))) => {
                            let guest = Guest { retires: stop, ..guest };
                            stdio::serve_as(current, guest, channel(stream), &ends, &tasks).await.finish().await;
                        }
                        Some(Err(error)) => tracing::debug!(%error, "a host could not be served"),
                        Some(Ok(None)) | None => {}
                    }
                });
            }
        };
        stop.run_until_cancelled(accepting).await;
        // Who comes from now on finds nobody, not somebody who does not answer; and another gateway finds the place free.
        drop(socket);
        drop(listener);
        hosts.close();
        hosts.wait().await;
    }
}

/// Waits for the hosts inside to go, the longest for as long as their calls may take, then cuts them off.
pub(super) async fn leave(hosts: impl Future, longest: Duration, cut: &CancellationToken) {
    tokio::pin!(hosts);
    if timeout(longest, &mut hosts).await.is_err() {
        tracing::warn!("calls of attached hosts still ran {} s after the end was asked for", longest.as_secs());
        cut.cancel();
        let _ = hosts.await;
    }
}

/// Hears who comes and says whether it is served: then as whom, and until when.
async fn enter(
    mut stream: UnixStream,
    guests: &Guests,
    current: &Current,
) -> io::Result<Option<(UnixStream, Guest, CancellationToken)>> {
    let hello: Hello = serde_json::from_slice(&line(&mut stream).await?).map_err(io::Error::other)?;
    let entered = guest(hello, guests, current);
    let refused = entered.as_ref().err().cloned();
    say(&mut stream, &Welcome { pid: std::process::id(), refused }).await?;
    Ok(entered.ok().map(|(guest, ends)| (stream, guest, ends)))
}

/// Whom we serve, and what ends it; else why not.
fn guest(hello: Hello, guests: &Guests, current: &Current) -> Result<(Guest, CancellationToken), String> {
    if hello.version != VERSION {
        return Err(format!("it is version {VERSION}, and {} wants to attach", hello.version));
    }
    let (principal, ends) = guests.who(hello.token.as_deref())?;
    let now = current.now();
    let name = hello.profile.as_deref().unwrap_or(ProfileSettings::DEFAULT);
    // There only where it differs.
    let plain = hello.defers.then(|| now.profile(&ProfileSettings::name_for_hosts_that_defer(name))).flatten();
    let profile = plain.or_else(|| now.profile(name)).ok_or("there is no such profile")?;
    Ok((Guest { profile, ..Guest::from(principal) }, ends))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Duration = Duration::from_secs(25);

    /// A host that is served for so long, or until it is cut off; the second says how long it was.
    async fn left(runs: Duration) -> (bool, Duration) {
        let (cut, began) = (CancellationToken::new(), tokio::time::Instant::now());
        leave(cut.run_until_cancelled(sleep(runs)), LONGEST, &cut).await;
        (cut.is_cancelled(), began.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn calls_of_attached_hosts_have_their_time_and_no_more() {
        let second = Duration::from_secs(1);
        assert!(!left(second * 2).await.0, "it has its answer");
        let (cut, after) = left(second * 3600).await;
        assert!(cut && after >= LONGEST && after < LONGEST + second, "{after:?}");
    }
}
