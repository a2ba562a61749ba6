//! What a server tells of unasked: changes of its lists, and of the resources that somebody wants to know of.
//!
//! A modern server tells on streams: one for its lists, one for the resources wanted now; a stream's filter is fixed,
//! so a new one is open before the old one goes (SUB-6). A legacy server is told each resource by itself (SUB-7). Both
//! are made anew with each connection (SUB-9). Who wants what is the gateway's.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use super::client::{Client, RETRY_FIRST, RETRY_LONGEST};
use super::connection::{Answer, Connection, Deadlines, Waiting};
use super::{Fault, Offers};
use crate::ident::Kind;
use crate::protocol::code;
use crate::protocol::json;
use crate::protocol::meta;
use crate::protocol::method::Method;
use crate::protocol::reply::Body;
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
/// and what it was about is looked at, for what was missed (SUB-9, D070).
pub(super) async fn listen(client: Arc<Client>, connection: Arc<Connection>, offers: Offers) {
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
            resources(&client, &connection).await;
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

/// A stream while it is open; dropped, it is closed.
type Stream = Pin<Box<dyn Future<Output = Result<Answer, Fault>> + Send>>;

/// One stream for all resources that are wanted now.
async fn resources(client: &Client, connection: &Arc<Connection>) {
    let mut wanted = client.wanted_resources.subscribe();
    let mut stream: Option<Stream>;
    let mut retry = RETRY_FIRST;
    let mut missed = false;
    while let Some(revision) = connection.modern() {
        let uris = wanted.borrow_and_update().clone();
        if uris.is_empty() {
            stream = None;
            client.told_resources.send_replace(BTreeSet::new());
        } else {
            let Ok(waiting) = open(connection, revision, None, &uris) else { return };
            let id = waiting.id();
            let mut next: Stream = Box::pin(waiting.answer());
            // Make before break: the old one stays until the new one is known to be open.
            let acknowledged = tokio::select! {
                acknowledged = connection.acknowledged(id, Instant::now() + ACK) => acknowledged,
                // What ended is looked at below, where it is polled again.
                ended = &mut next => {
                    next = Box::pin(std::future::ready(ended));
                    None
                }
            };
            let mut told = acknowledged.unwrap_or_default();
            told.retain(|uri| uris.contains(uri));
            if std::mem::take(&mut missed) {
                told.iter().for_each(|uri| connection.changed.resource(uri));
            }
            client.told_resources.send_replace(told);
            stream = Some(next);
        }
        let ended = tokio::select! {
            changed = wanted.changed() => match changed {
                Ok(()) => None,
                Err(_) => return,
            },
            ended = async { stream.as_mut().expect("invariant: looked at before").await }, if stream.is_some() => Some(ended),
        };
        match ended {
            None => retry = RETRY_FIRST,
            Some(Ok(answer)) if is_refused(&answer.reply.body) => return,
            Some(_) => {
                sleep(retry).await;
                retry = (retry * 2).min(RETRY_LONGEST);
                missed = true;
            }
        }
    }
}

/// Tells a legacy server that has come back which resources are wanted; changes meanwhile are told by
/// [`subscribe`] and [`unsubscribe`] as they come.
pub(super) async fn renew(client: Arc<Client>, connection: Arc<Connection>) {
    let wanted = client.wanted_resources.borrow().clone();
    for uri in wanted {
        // One that is refused now may be gone; whoever wanted it is told nothing, as nothing changes.
        if let Ok(true) = subscribe(&connection, Method::Subscribe, &uri).await {
            connection.changed.resource(&uri);
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
            let accepted = subscribe(&connection, Method::Subscribe, &uri).await?;
            if accepted {
                self.wanted_resources.send_modify(|wanted| {
                    wanted.insert(uri);
                });
            }
            return Ok(accepted);
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
