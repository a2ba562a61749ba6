//! What a server tells of unasked: changes of its lists, and of the resources and tasks that somebody wants to know of.
//!
//! A modern server tells on streams: one for its lists, one for the resources wanted now, one for the tasks; a stream's
//! filter is fixed, so a new one is open before the old one goes (SUB-6). Apart, so that a server that refuses the one
//! tells of the other. A legacy server is told each resource by itself (SUB-7). Both are made anew with each connection
//! (SUB-9). Who wants what is the gateway's.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::client::{Client, RETRY_FIRST, RETRY_LONGEST};
use super::connection::{Connection, Deadlines, Waiting};
use super::held::Answer;
use super::{Fault, Offers};
use crate::ident::Kind;
use crate::protocol::capability::Capabilities;
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

/// What single things a server can be asked to tell of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Topic {
    /// Resources, by native URI.
    Resource,
    /// Tasks, by native id; modern servers alone.
    Task,
}

/// The single things of one topic.
#[derive(Default)]
pub(super) struct Singles {
    /// Those that somebody wants to be told of, whether the server runs or not (SUB-6, SUB-7).
    pub(super) wanted: watch::Sender<BTreeSet<Arc<str>>>,
    /// Those that the server said it tells of.
    told: watch::Sender<BTreeSet<Arc<str>>>,
}

/// What a stream is about.
enum About<'a> {
    Lists(&'a Offers),
    Singles(Topic, &'a BTreeSet<Arc<str>>),
}

/// Opens a stream.
fn open(connection: &Arc<Connection>, revision: Revision, about: &About<'_>) -> Result<Waiting, Fault> {
    connection.request(Method::Listen, None, None, |out, _| {
        out.extend_from_slice(b"{\"notifications\":{");
        let mut declared = Capabilities::default();
        match about {
            About::Lists(offers) => {
                let kinds = [(Kind::Tool, "tools"), (Kind::Prompt, "prompts"), (Kind::Resource, "resources")];
                for (_, word) in kinds.into_iter().filter(|(kind, _)| offers.of(*kind) == Some(true)) {
                    out.extend_from_slice(format!("\"{word}ListChanged\":true,").as_bytes());
                }
            }
            About::Singles(topic, names) => {
                // Hosts that declared it want to know of them (TSK-3).
                declared.tasks = *topic == Topic::Task;
                let word = if declared.tasks { "taskIds" } else { "resourceSubscriptions" };
                out.extend_from_slice(format!("\"{word}\":[").as_bytes());
                for name in *names {
                    json::push_string(out, name);
                    out.push(b',');
                }
                if out.last() == Some(&b',') {
                    out.pop();
                }
                out.extend_from_slice(b"],");
            }
        }
        if out.last() == Some(&b',') {
            out.pop();
        }
        out.extend_from_slice(b"},\"_meta\":{");
        meta::push_protocol_keys(out, revision, &declared, None);
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
            singles(&client, &connection, Topic::Resource, missed).await;
        }
    };
    let tasks = async {
        if offers.tasks {
            singles(&client, &connection, Topic::Task, false).await;
        }
    };
    closed.run_until_cancelled(async { tokio::join!(lists, resources, tasks) }).await;
}

async fn lists(connection: &Arc<Connection>, offers: &Offers, kinds: &[Kind]) {
    let mut retry = RETRY_FIRST;
    while let Some(revision) = connection.modern() {
        let opened = Instant::now();
        let Ok(waiting) = open(connection, revision, &About::Lists(offers)) else { return };
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

/// A stream for single things that is open; dropped, it is closed.
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

async fn begin(connection: &Arc<Connection>, revision: Revision, topic: Topic, names: &BTreeSet<Arc<str>>) -> Begun {
    let Ok(waiting) = open(connection, revision, &About::Singles(topic, names)) else { return Begun::Failed };
    let id = waiting.id();
    let mut ended: Ended = Box::pin(waiting.answer());
    tokio::select! {
        acknowledged = connection.acknowledged(id, Instant::now() + ACK) => match acknowledged {
            Some(mut told) => {
                told.retain(|name| names.contains(name));
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

/// One stream for all of a topic that are wanted now. `missed`: resources were before this connection.
async fn singles(client: &Client, connection: &Arc<Connection>, topic: Topic, mut missed: bool) {
    let Singles { wanted, told: all_told } = client.singles(topic);
    let mut wanted = wanted.subscribe();
    // What the connection before told of is told by nobody now.
    all_told.send_replace(BTreeSet::new());
    let mut current: Option<Open> = None;
    let mut retry = RETRY_FIRST;
    while let Some(revision) = connection.modern() {
        let names = wanted.borrow_and_update().clone();
        let mut again = None;
        if names.is_empty() {
            current = None;
            missed = false;
            all_told.send_replace(BTreeSet::new());
        } else if current.as_ref().is_none_or(|open| open.about != names) {
            // Make before break: the old one stays until the new one is known to be open. When that is refused, for
            // one name perhaps, whoever wanted it gives it up, and the old one is right again.
            match begin(connection, revision, topic, &names).await {
                Begun::Open(ended, told) => {
                    if std::mem::take(&mut missed) {
                        told.iter().for_each(|uri| connection.changed.resource(uri));
                    }
                    all_told.send_replace(told);
                    current = Some(Open { about: names, since: Instant::now(), ended });
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
                // Where a task stands now is asked for by whoever wants to know.
                missed = topic == Topic::Resource;
                all_told.send_replace(BTreeSet::new());
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
/// [`Client::want`] and [`Client::unwant`] as they come.
pub(super) async fn renew(client: Arc<Client>, connection: Arc<Connection>, wanted: BTreeSet<Arc<str>>) {
    let is_wanted = |uri: &Arc<str>| client.singles(Topic::Resource).wanted.borrow().contains(uri);
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
    /// What is wanted and told of a topic.
    pub(super) fn singles(&self, topic: Topic) -> &Singles {
        match topic {
            Topic::Resource => &self.resources,
            Topic::Task => &self.watched_tasks,
        }
    }

    /// Whether somebody is to be told of anything single, which it could not when stopped.
    pub(super) fn is_awaited(&self) -> bool {
        [&self.resources, &self.watched_tasks].iter().any(|singles| !singles.wanted.borrow().is_empty())
    }

    /// Has the server tell of this resource or task; whether it does (SUB-5, SUB-10).
    pub(super) async fn want(&self, topic: Topic, name: Arc<str>) -> Result<bool, Fault> {
        let connection = self.connection().await?;
        let Singles { wanted, told } = self.singles(topic);
        if connection.modern().is_none() {
            if topic == Topic::Task {
                return Ok(false);
            }
            // First, so that a connection that takes the place of this one renews it.
            wanted.send_if_modified(|wanted| wanted.insert(Arc::clone(&name)));
            let accepted = subscribe(&connection, Method::Subscribe, &name).await;
            if !matches!(accepted, Ok(true)) {
                wanted.send_if_modified(|wanted| wanted.remove(&name));
            }
            return accepted;
        }
        let mut told = told.subscribe();
        wanted.send_if_modified(|wanted| wanted.insert(Arc::clone(&name)));
        let deadline = Instant::now() + ACK;
        let honoured =
            timeout_at(deadline, told.wait_for(|told| told.contains(&name))).await.is_ok_and(|told| told.is_ok());
        if !honoured {
            wanted.send_if_modified(|wanted| wanted.remove(&name));
        }
        Ok(honoured)
    }

    /// Nobody wants to know of it any more.
    pub(super) async fn unwant(&self, topic: Topic, name: &str) {
        if !self.singles(topic).wanted.send_if_modified(|wanted| wanted.remove(name)) || topic == Topic::Task {
            return;
        }
        if let Some(connection) = self.open_connection().filter(|connection| connection.modern().is_none()) {
            let _ = subscribe(&connection, Method::Unsubscribe, name).await;
        }
    }
}
