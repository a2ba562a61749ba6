//! The loop of a host on a pipe: reads lines, hands them to its session, tells of changes, and ends with the
//! host or with us.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::session::Session;
use crate::gateway::{Current, Failure};
use crate::ident::Principal;
use crate::protocol::json::Index;
use crate::protocol::message::{Message, NoMessage, id_at_end};
use crate::transport::Channel;
use crate::transport::line::{Frame, LineReader};
use crate::transport::outbox::Outbox;

/// Bytes that wait to be written to the host, at most; then answers wait with their tasks.
const OUT_LIMIT: usize = 32 << 20;
/// How long requests may still finish when the host or we are leaving.
const GRACE: Duration = Duration::from_millis(400);

/// A host that is served.
pub struct Front {
    session: Arc<Session>,
    writing: tokio::task::JoinHandle<()>,
}

/// Serves a host until it closes its end, cannot be written to, or `stop` is cancelled.
///
/// Answers then: requests that run had a short grace to finish; what is still running fails when the gateway's
/// servers are stopped. Call [`Front::finish`] after that.
pub async fn serve(gateway: Arc<Current>, channel: Channel, stop: &CancellationToken, tasks: &TaskTracker) -> Front {
    serve_as(gateway, Guest::from(Principal::stdio()), channel, stop, tasks).await
}

/// Who a host on a pipe is, and what it has seen.
pub struct Guest {
    /// Whose host it is: the local user, who may have a name.
    pub principal: Principal,
    /// Which profile it sees, by place.
    pub profile: usize,
    /// Questions of servers up to this number were put to it before, by somebody else.
    pub asked: u64,
    /// When this is cancelled, it is served as long as requests of it run, and no longer.
    pub retires: CancellationToken,
}

impl From<Principal> for Guest {
    fn from(principal: Principal) -> Self {
        Self { principal, profile: 0, asked: 0, retires: CancellationToken::new() }
    }
}

/// The same for whoever it is.
pub async fn serve_as(
    gateway: Arc<Current>,
    guest: Guest,
    channel: Channel,
    stop: &CancellationToken,
    tasks: &TaskTracker,
) -> Front {
    let retires = guest.retires.clone();
    let outbox = Outbox::new(channel.writer, OUT_LIMIT);
    let session = Session::new(gateway, guest, outbox.clone(), tasks.clone());
    let broken = CancellationToken::new();
    let gone = broken.clone();
    let writing = tasks.spawn(async move {
        if let Err(error) = outbox.write().await {
            tracing::debug!(%error, "the host cannot be written to");
        }
        gone.cancel();
    });
    let mut changes = session.changes();
    // A task of its own, so that a line wakes nothing else.
    let mut reading = tasks.spawn(read(Arc::clone(&session), channel.reader));
    let quiet = Arc::clone(&session);
    let mut retired = pin!(async move {
        retires.cancelled().await;
        quiet.free().await;
    });
    loop {
        tokio::select! {
            _ = &mut reading => break,
            () = &mut retired => break,
            () = stop.cancelled() => break,
            () = broken.cancelled() => break,
            // A host that reads nothing is told once, when it reads again.
            () = async { session.outbox.room().await; changes.changed().await } => session.lists_changed(),
        }
    }
    reading.abort();
    session.host_gone();
    let _ = timeout(GRACE, session.free()).await;
    session.end_listens();
    Front { session, writing }
}

impl Front {
    /// Writes what is left and lets the host go.
    pub async fn finish(self) {
        let _ = timeout(GRACE, self.session.free()).await;
        self.session.outbox.close();
        // A host that reads no more must not keep us.
        let mut writing = self.writing;
        if timeout(GRACE, &mut writing).await.is_err() {
            writing.abort();
        }
    }
}

async fn read(session: Arc<Session>, stream: Box<dyn tokio::io::AsyncRead + Send + Unpin>) {
    let most = session.gateway.now().max_message();
    let mut lines = LineReader::new(stream, most);
    let mut index = Index::new();
    loop {
        // A host that does not read its answers, or asks more than we hold, is read no further.
        session.outbox.room().await;
        session.room().await;
        match lines.next().await {
            Ok(Some(Frame::Line(line))) => session.line(&line, &mut index),
            Ok(Some(Frame::TooLong { head, tail, length })) => {
                match too_long((&head, &tail), (length, most), &mut index) {
                    (Some(id), failure) => session.refuse(id, &failure),
                    (None, failure) => session.unreadable(&failure),
                }
            }
            Ok(None) => return,
            Err(error) => {
                tracing::debug!(%error, "the host cannot be read from");
                return;
            }
        }
    }
}

/// What is wrong with a line of which only the ends are known, and the raw id of who waits for it.
pub(super) fn too_long<'a>(
    (head, tail): (&'a [u8], &'a [u8]),
    (length, most): (u64, usize),
    index: &mut Index,
) -> (Option<&'a [u8]>, Failure) {
    let begun = match Message::read(head, index) {
        Err(NoMessage { id, .. }) => id,
        Ok(_) => None,
    };
    let id = begun.map(|id| id.of(head)).or_else(|| id_at_end(tail));
    (id, Failure::message_too_long(length, most))
}
