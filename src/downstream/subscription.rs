//! What a server tells of unasked: changes of its lists, and of the resources that somebody wants to know of.
//!
//! A modern server tells on streams: one for its lists, one for the resources wanted now; a stream's filter is fixed,
//! so a new one is open before the old one goes (SUB-6). A legacy server is told each resource by itself (SUB-7). Both
//! are made anew with each connection (SUB-9). Who wants what is the gateway's.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::client::{Client, RETRY_FIRST, RETRY_LONGEST};
use super::connection::{Connection, Deadlines, Waiting};
use super::held::Answer;
use super::{Fault, Offers};
use crate::ident::Kind;
use crate::protocol::code;
use crate::protocol::json;
use crate::protocol::meta;
use crate::protocol::method::Method;
use crate::protocol::reply::{Body, Reply};
use crate::protocol::version::Revision;

/// How long a server may take to say what it tells of (SUB-5).
const ACK: Duration = Duration::from_secs(2);
/// How long a legacy server may take for it.
const ANSWER: Duration = Duration::from_secs(10);

/// Opens a stream. Without list kinds it is about resources.
fn open(
    connection: &Arc<Connection>,
    revision: Revision,
    offers: Option<&Offers>,
    resources: &BTreeSet<Arc<str>>,
) -> Result<Waiting, Fault> {
    connection.request(Method::Listen, None, None, |out, _| {
        out.extend_from_slice(b"{\"notifications\":{");
        let kinds = [(Kind::Tool, "tools"), (Kind::Prompt, "prompts"), (Kind::Resource, "resources")];
        for (kind, word) in kinds {
            if offers.is_some_and(|offers| offers.of(kind) == Some(true)) {
                out.extend_from_slice(format!("\"{word}ListChanged\":true,").as_bytes());
            }
        }
        if !resources.is_empty() {
            out.extend_from_slice(b"\"resourceSubscriptions\":[");
            for uri in resources {
                json::push_string(out, uri);
                out.push(b',');
            }
            out.pop();
            out.extend_from_slice(b"],");
        }
        if out.last() == Some(&b',') {
            out.pop();
        }
        out.extend_from_slice(b"},\"_meta\":{");
        meta::push_own_keys(out, revision);
        out.extend_from_slice(b"}}");
    })
}

/// Whether an ended stream says that the server has none.
fn is_refused(body: &Body) -> bool {
    matches!(body, Body::Error(error) if matches!(error.code, code::METHOD_NOT_FOUND | code::INVALID_PARAMS))
}

/// Keeps the streams of a modern server open as long as its connection lives. A stream that ends is opened again later,
/// and what it was about is looked at, for what was missed (SUB-9, D070). `missed`: resources were wanted before it.
pub(super) async fn listen(client: Arc<Client>, connection: Arc<Connection>, offers: Offers, missed: bool) {
    let closed = connection.closed.clone();
    let lists = async {
        let kinds: Vec<Kind> =
            [Kind::Tool, Kind::Prompt, Kind::Resource].into_iter().filter(|&k| offers.of(k) == Some(true)).collect();
        if !kinds.is_empty() {
            lists(&connection, &offers, &kinds).await;
        }
    };
    let resources = async {
        if offers.subscribe {
            resources(&client, &connection, missed).await;
        }
    };
    closed.run_until_cancelled(async { tokio::join!(lists, resources) }).await;
}

async fn lists(connection: &Arc<Connection>, offers: &Offers, kinds: &[Kind]) {
    let mut retry = RETRY_FIRST;
    while let Some(revision) = connection.modern() {
        let opened = Instant::now();
        let Ok(waiting) = open(connection, revision, Some(offers), &BTreeSet::new()) else { return };
        if waiting.answer().await.is_ok_and(|answer| is_refused(&answer.reply.body)) {
            // It has no such stream.
            return;
        }
        if opened.elapsed() > RETRY_LONGEST {
            retry = RETRY_FIRST;
        }
        sleep(retry).await;
        retry = (retry * 2).min(RETRY_LONGEST);
        for &kind in kinds {
            connection.changed.list(kind);
        }
    }
}

/// A stream for resources that is open; dropped, it is closed.
struct Open {
    about: BTreeSet<Arc<str>>,
    since: Instant,
    ended: Ended,
}

type Ended = Pin<Box<dyn Future<Output = Result<Answer, Fault>> + Send>>;

/// What came of opening a stream.
enum Begun {
    /// It is open, and tells of these.
    Open(Ended, BTreeSet<Arc<str>>),
    /// It ended before that, or nothing was said in time.
    Failed,
    /// The server has no streams.
    Unknown,
}

async fn begin(connection: &Arc<Connection>, revision: Revision, uris: &BTreeSet<Arc<str>>) -> Begun {
    let Ok(waiting) = open(connection, revision, None, uris) else { return Begun::Failed };
    let id = waiting.id();
    let mut ended: Ended = Box::pin(waiting.answer());
    tokio::select! {
        acknowledged = connection.acknowledged(id, Instant::now() + ACK) => match acknowledged {
            Some(mut told) => {
                told.retain(|uri| uris.contains(uri));
                Begun::Open(ended, told)
            }
            None => Begun::Failed,
        },
        answer = &mut ended => match answer {
            Ok(Answer { reply: Reply { body: Body::Error(error), .. }, .. }) if error.code == code::METHOD_NOT_FOUND => {
                Begun::Unknown
            }
            _ => Begun::Failed,
        },
    }
}

/// One stream for all resources that are wanted now. `missed`: some were before this connection.
async fn resources(client: &Client, connection: &Arc<Connection>, mut missed: bool) {
    let mut wanted = client.wanted_resources.subscribe();
    // What the connection before told of is told by nobody now.
    client.told_resources.send_replace(BTreeSet::new());
    let mut current: Option<Open> = None;
    let mut retry = RETRY_FIRST;
    while let Some(revision) = connection.modern() {
        let uris = wanted.borrow_and_update().clone();
        let mut again = None;
        if uris.is_empty() {
            current = None;
            missed = false;
            client.told_resources.send_replace(BTreeSet::new());
        } else if current.as_ref().is_none_or(|open| open.about != uris) {
            // Make before break: the old one stays until the new one is known to be open. When that is refused, for
            // one resource perhaps, whoever wanted it gives it up, and the old one is right again.
            match begin(connection, revision, &uris).await {
                Begun::Open(ended, told) => {
                    if std::mem::take(&mut missed) {
                        told.iter().for_each(|uri| connection.changed.resource(uri));
                    }
                    client.told_resources.send_replace(told);
                    current = Some(Open { about: uris, since: Instant::now(), ended });
                }
                Begun::Failed if current.is_none() => again = Some(Instant::now() + retry),
                Begun::Failed => {}
                Begun::Unknown => return,
            }
        }
        tokio::select! {
            changed = wanted.changed() => if changed.is_err() { return },
            _ = async { (&mut current.as_mut().expect("invariant: looked at before").ended).await }, if current.is_some() => {
                if current.take().is_some_and(|open| open.since.elapsed() > RETRY_LONGEST) {
                    retry = RETRY_FIRST;
                }
                missed = true;
                client.told_resources.send_replace(BTreeSet::new());
                // Not at once, whatever is wanted meanwhile: some end each stream (D070).
                sleep(retry).await;
                retry = (retry * 2).min(RETRY_LONGEST);
            }
            () = sleep_until(again.unwrap_or_else(Instant::now)), if again.is_some() => {
                retry = (retry * 2).min(RETRY_LONGEST);
            }
        }
    }
}

/// Tells a legacy server that has come back which resources are wanted; changes meanwhile are told by
/// [`Client::want_resource`] and [`Client::unwant_resource`] as they come.
pub(super) async fn renew(client: Arc<Client>, connection: Arc<Connection>, wanted: BTreeSet<Arc<str>>) {
    let is_wanted = |uri: &Arc<str>| client.wanted_resources.borrow().contains(uri);
    for uri in wanted {
        if !is_wanted(&uri) {
            continue;
        }
        // One that is refused now may be gone; whoever wanted it is told nothing, as nothing changes.
        if let Ok(true) = subscribe(&connection, Method::Subscribe, &uri).await {
            connection.changed.resource(&uri);
            if !is_wanted(&uri) {
                // Given up meanwhile, and said so too early.
                let _ = subscribe(&connection, Method::Unsubscribe, &uri).await;
            }
        }
    }
}

/// Subscribes to a resource at a legacy server, or unsubscribes; whether the server accepted.
pub(super) async fn subscribe(connection: &Arc<Connection>, method: Method, uri: &str) -> Result<bool, Fault> {
    let waiting = connection.request(method, Some(Deadlines::within(ANSWER)), None, |out, _| {
        out.extend_from_slice(b"{\"uri\":");
        json::push_string(out, uri);
        out.push(b'}');
    })?;
    let answer = waiting.answer().await?;
    Ok(matches!(answer.reply.body, Body::Result(_)))
}

impl Client {
    /// Has the server tell of changes of this resource; whether it does (SUB-5, SUB-10).
    pub(super) async fn want_resource(&self, uri: Arc<str>) -> Result<bool, Fault> {
        let connection = self.connection().await?;
        if connection.modern().is_none() {
            // First, so that a connection that takes the place of this one renews it.
            self.wanted_resources.send_if_modified(|wanted| wanted.insert(Arc::clone(&uri)));
            let accepted = subscribe(&connection, Method::Subscribe, &uri).await;
            if !matches!(accepted, Ok(true)) {
                self.wanted_resources.send_if_modified(|wanted| wanted.remove(&uri));
            }
            return accepted;
        }
        let mut told = self.told_resources.subscribe();
        self.wanted_resources.send_if_modified(|wanted| wanted.insert(Arc::clone(&uri)));
        let deadline = Instant::now() + ACK;
        let honoured =
            timeout_at(deadline, told.wait_for(|told| told.contains(&uri))).await.is_ok_and(|told| told.is_ok());
        if !honoured {
            self.wanted_resources.send_if_modified(|wanted| wanted.remove(&uri));
        }
        Ok(honoured)
    }

    /// Nobody wants to know of this resource any more.
    pub(super) async fn unwant_resource(&self, uri: &str) {
        if !self.wanted_resources.send_if_modified(|wanted| wanted.remove(uri)) {
            return;
        }
        if let Some(connection) = self.open_connection().filter(|connection| connection.modern().is_none()) {
            let _ = subscribe(&connection, Method::Unsubscribe, uri).await;
        }
    }
}
