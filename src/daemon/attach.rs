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
use crate::config::settings::{AdminSettings, AuthSettings, StdioToken};
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
    /// The token of the installation.
    pub token: Option<Secret>,
}

/// The first line of who comes.
#[derive(Serialize, Deserialize)]
struct Hello {
    version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<String>,
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
        let mut stream = UnixStream::connect(&path).await?;
        if !socket::is_trusted(&stream)? {
            return Err(io::Error::from(io::ErrorKind::PermissionDenied));
        }
        let token = wanted.token.as_ref().map(|token| token.reveal().to_owned());
        say(&mut stream, &Hello { version: VERSION.to_owned(), profile: wanted.profile.clone(), token }).await?;
        let welcome: Welcome = serde_json::from_slice(&line(&mut stream).await?).map_err(io::Error::other)?;
        Ok((welcome, stream))
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

/// Serves the host through another gateway as long as that is there, then with one of our own.
pub(super) async fn serve(host: Channel, peer: Channel, principal: Principal, reload: Reload) -> anyhow::Result<Ended> {
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    let told = signals::watch(stop.clone(), None, false, &tasks);
    let mut relay = Relay::new(host);
    let left = relay.pass(peer, &stop).await;
    if left == Left::Host || stop.is_cancelled() {
        stop.cancel();
        return Ok(told.how());
    }
    tracing::warn!("the gateway that served this host has ended; going on alone");
    let fresh = (reload.load)().map_err(|why| anyhow::anyhow!("{why}")).and_then(|fresh| {
        let read = fresh.read;
        Ok((Daemon::start_for_hosts(fresh.settings)?, read))
    });
    let (daemon, read) = match fresh {
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
    _socket: Socket,
    guests: Guests,
}

/// Who may be whom.
pub(super) type Guests = Arc<ArcSwap<Vec<StdioToken>>>;

/// Opens it, where that is configured. That it cannot be opened is said, and no more.
pub(super) fn open(daemon: &Daemon, identity: &str, auth: &AuthSettings) -> Option<Arc<Door>> {
    let settings = &daemon.admin.0;
    let path = path(settings, identity).filter(|_| settings.attach)?;
    let opened = path.parent().map_or(Ok(()), socket::folder).and_then(|()| Socket::bind(&path));
    match opened {
        Ok((listener, socket)) => {
            let guests = Arc::new(ArcSwap::from_pointee(auth.stdio.clone()));
            Some(Arc::new(Door { listener, _socket: socket, guests }))
        }
        Err(error) => {
            tracing::warn!("`onegate run` will not find this gateway: {error}");
            None
        }
    }
}

impl Door {
    /// Serves whoever comes, until `stop`; answers who may be whom, for another configuration to say.
    pub(super) fn serve(
        self: &Arc<Self>,
        current: &Arc<Current>,
        stop: &CancellationToken,
        tasks: &TaskTracker,
    ) -> Guests {
        let (door, current, stop, all) = (Arc::clone(self), Arc::clone(current), stop.clone(), tasks.clone());
        tasks.spawn(async move {
            let places = Arc::new(Semaphore::new(HOSTS));
            let accepting = async {
                loop {
                    // The semaphore is never closed.
                    let place = Arc::clone(&places).acquire_owned().await.ok();
                    let stream = match door.listener.accept().await {
                        Ok((stream, _)) => stream,
                        Err(error) => {
                            tracing::debug!(%error, "a host cannot be accepted");
                            sleep(Duration::from_millis(50)).await;
                            continue;
                        }
                    };
                    let (door, current, stop, tasks) =
                        (Arc::clone(&door), Arc::clone(&current), stop.clone(), all.clone());
                    all.spawn(async move {
                        let _place = place;
                        if let Err(error) = door.host(stream, current, &stop, &tasks).await {
                            tracing::debug!(%error, "a host could not be served");
                        }
                    });
                }
            };
            stop.run_until_cancelled(accepting).await;
        });
        Arc::clone(&self.guests)
    }

    async fn host(
        &self,
        mut stream: UnixStream,
        current: Arc<Current>,
        stop: &CancellationToken,
        tasks: &TaskTracker,
    ) -> io::Result<()> {
        if !socket::is_trusted(&stream)? {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let hello: Hello = serde_json::from_slice(&line(&mut stream).await?).map_err(io::Error::other)?;
        let guest = self.guest(hello, &current);
        let refused = guest.as_ref().err().cloned();
        say(&mut stream, &Welcome { pid: std::process::id(), refused }).await?;
        let Ok(guest) = guest else { return Ok(()) };
        stdio::serve_as(current, guest, channel(stream), stop, tasks).await.finish().await;
        Ok(())
    }

    /// Whom we serve; else why not.
    fn guest(&self, hello: Hello, current: &Current) -> Result<Guest, String> {
        if hello.version != VERSION {
            return Err(format!("it is version {VERSION}, and {} wants to attach", hello.version));
        }
        let tokens = self.guests.load();
        let principal = match hello.token {
            None => Principal::stdio(),
            Some(token) => {
                let known = keys::find(token.trim(), tokens.iter().map(|known| (known, &known.hash)));
                let known = known.ok_or("the token is none of auth.stdio")?;
                Principal::stdio_named(&known.name, &known.groups)
            }
        };
        let profile = match &hello.profile {
            None => 0,
            Some(name) => current.now().profile(name).ok_or("there is no such profile")?,
        };
        Ok(Guest { profile, ..Guest::from(principal) })
    }
}
