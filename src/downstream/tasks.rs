//! Calls of tools that a 2025-11-25 server takes as tasks only, for hosts that know nothing of that (TSK-7): the task is
//! made, asked after and its result fetched, so that for everyone above it is one request with one answer.
//!
//! The server's questions and its progress belong to the call as a whole, which has a place of its own among the
//! requests of the connection ([`Connection::hold`]); its deadlines end it. Dropped before its end, it ends the task
//! (`tasks/cancel`, never `notifications/cancelled`). Knows no host. Made by [`super::server`].

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep_until, timeout};

use super::Fault;
use super::connection::{Connection, Deadlines, ForHost, Waiting};
use super::held::Answer;
use crate::protocol::json;
use crate::protocol::meta;
use crate::protocol::method::Method;
use crate::protocol::reply::Body;
use crate::transport::upward::Upward;

/// A server that does not say how often it may be asked is asked this often…
const USUAL: Duration = Duration::from_secs(1);
/// …and whatever it says, not more and not less often than this.
const BOUNDS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));
/// How long a server may take to say the name of a task that is not wanted any more.
const LATE: Duration = Duration::from_secs(10);
/// The call as a whole has the deadlines (TMO-1), and stands still while a user is asked; its parts are held so long.
const PART: Deadlines = Deadlines::within(Duration::from_secs(24 * 3600));

/// A call that is driven as a task. Dropping it ends the task.
pub(super) struct Driven {
    connection: Arc<Connection>,
    /// Its place among the requests.
    call: u64,
    doing: Pin<Box<dyn Future<Output = Result<Answer, Fault>> + Send>>,
}

impl Driven {
    /// Makes the task; `params` writes those of the call, and may use the id as progress token, which lives until the
    /// task is over.
    pub(super) fn begin(
        connection: &Arc<Connection>,
        deadlines: Deadlines,
        host: ForHost,
        params: impl FnOnce(&mut Vec<u8>, u64),
    ) -> Result<Self, Fault> {
        let held = connection.hold(deadlines, host)?;
        let call = held.id();
        let within = Deadlines::within(deadlines.idle);
        let creating = connection.request_part(call, Method::ToolsCall, PART, |out| params(out, call))?;
        let connection = Arc::clone(connection);
        let task = Task { connection: Arc::clone(&connection), call, within, creating: Some(creating), id: None };
        Ok(Self { connection, call, doing: Box::pin(drive(task, held)) })
    }

    /// Waits for what came of it, which comes once. Nothing is lost when the future is dropped.
    pub(super) async fn answered(&mut self) -> Result<Answer, Fault> {
        self.doing.as_mut().await
    }

    /// See [`super::Pending::redirect`].
    pub(super) fn redirect(&self, upward: Arc<Upward>) -> Option<Arc<Upward>> {
        self.connection.redirect(self.call, upward)
    }
}

async fn drive(mut task: Task, mut held: Waiting) -> Result<Answer, Fault> {
    let answer = tokio::select! {
        biased;
        // Its time is over, or the connection.
        over = held.answered() => over,
        answer = task.run() => answer,
    };
    if answer.is_ok() {
        task.connection.served();
    }
    answer
}

/// A task of a server; dropped before it is over, it is cancelled.
struct Task {
    connection: Arc<Connection>,
    call: u64,
    /// How long a look at it may take.
    within: Deadlines,
    /// The call that makes it, until it is answered.
    creating: Option<Waiting>,
    /// Its raw id, from when it is made until it is over.
    id: Option<Bytes>,
}

/// Where a task stands.
struct Stand {
    /// It has a result, or never will.
    over: bool,
    /// It wants to know something, and asks while its result is waited for.
    asks: bool,
    interval: Duration,
}

impl Stand {
    /// Reads a raw task object. A state that we do not know is none of those that end.
    fn read(task: &[u8], longest: Duration) -> Self {
        let mut stand = Self { over: false, asks: false, interval: USUAL };
        for entry in json::members(task) {
            if entry.is("status") {
                stand.over = matches!(entry.value, b"\"completed\"" | b"\"failed\"" | b"\"cancelled\"");
                stand.asks = entry.value == b"\"input_required\"";
            } else if entry.is("pollInterval") {
                let wanted = std::str::from_utf8(entry.value).ok().and_then(|text| text.parse::<f64>().ok());
                let wanted = wanted.and_then(|ms| Duration::try_from_secs_f64(ms / 1000.0).ok());
                stand.interval = wanted.unwrap_or(USUAL);
            }
        }
        stand.interval = stand.interval.min(longest).clamp(BOUNDS.0, BOUNDS.1);
        stand
    }
}

/// The raw task object of an answer that says that a task was made, and its raw id.
fn made(answer: &Answer) -> Option<(&[u8], &[u8])> {
    let Body::Result(spans) = answer.reply.body else { return None };
    let task = json::member(spans.whole.of(&answer.reply.line), "task")?;
    let id = json::member(task, "taskId").filter(|id| id.starts_with(b"\""))?;
    Some((task, id))
}

/// The id of the task that this answer says was made.
pub(super) fn created(answer: &Answer) -> Option<Box<str>> {
    json::text_of(made(answer)?.1).map(Box::from)
}

impl Task {
    fn ask(&self, method: Method, deadlines: Deadlines) -> Result<Waiting, Fault> {
        let id = self.id.as_deref().unwrap_or(b"\"\"");
        let asked = self.connection.request_part(self.call, method, deadlines, |out| push_id(out, id));
        asked.map_err(lost)
    }

    async fn run(&mut self) -> Result<Answer, Fault> {
        let Some(creating) = &mut self.creating else { return Err(Fault::gone("it has ended")) };
        let answer = creating.answered().await;
        self.creating = None;
        let answer = answer?;
        // Less than half the time that it may be silent, so that asking after it shows that it lives.
        let longest = self.within.idle / 2;
        let mut stand = match made(&answer) {
            Some((task, id)) => {
                self.id = Some(answer.reply.line.slice_ref(id));
                self.connection.touch(self.call, Instant::now());
                Stand::read(task, longest)
            }
            // It refused, or did it at once.
            None => return Ok(answer),
        };
        drop(answer);
        let mut result: Option<Waiting> = None;
        let mut look: Option<Waiting> = None;
        // It gives no result before the task is over.
        let mut too_early = false;
        let mut look_at = Instant::now() + stand.interval;
        loop {
            if result.is_none() && (stand.over || stand.asks && !too_early) {
                result = Some(self.ask(Method::TasksResult, PART)?);
            }
            tokio::select! {
                biased;
                answer = answer_of(&mut result), if result.is_some() => {
                    result = None;
                    let answer = answer.map_err(lost)?;
                    if stand.over || matches!(answer.reply.body, Body::Result(_)) {
                        self.id = None;
                        return Ok(without_task(answer));
                    }
                    // Over meanwhile, perhaps: that is looked at first.
                    too_early = true;
                    look_at = Instant::now();
                }
                answer = answer_of(&mut look), if look.is_some() => {
                    look = None;
                    look_at = Instant::now() + stand.interval;
                    match answer {
                        Ok(answer) => {
                            let Body::Result(spans) = answer.reply.body else {
                                self.id = None;
                                return Err(Fault::Invalid("it does not know the task that it made".to_owned()));
                            };
                            self.connection.touch(self.call, Instant::now());
                            stand = Stand::read(spans.whole.of(&answer.reply.line), longest);
                            look_at = Instant::now() + stand.interval;
                        }
                        // The deadlines of the call say how long it may be silent.
                        Err(Fault::Timeout(_)) => {}
                        Err(fault) => return Err(lost(fault)),
                    }
                }
                () = sleep_until(look_at), if look.is_none() && !stand.over => {
                    look = Some(self.ask(Method::TasksGet, self.within)?);
                }
            }
        }
    }
}

async fn answer_of(waiting: &mut Option<Waiting>) -> Result<Answer, Fault> {
    match waiting {
        Some(waiting) => waiting.answered().await,
        None => std::future::pending().await,
    }
}

/// A session that was lost with a task in it: what was asked may be done, and is not asked again.
fn lost(fault: Fault) -> Fault {
    match fault {
        Fault::SessionLost => Fault::gone("it forgot the session in which the task ran"),
        fault @ (Fault::Unavailable { .. }
        | Fault::Timeout(_)
        | Fault::Invalid(_)
        | Fault::TooLarge { .. }
        | Fault::Limit(_)
        | Fault::SignIn { .. }
        | Fault::Refused { .. }) => fault,
    }
}

/// A result without the name of its task, which means nothing to the host.
fn without_task(answer: Answer) -> Answer {
    let Body::Result(spans) = answer.reply.body else { return answer };
    let line = &answer.reply.line;
    let names_task = |meta: &[u8]| json::members(meta).any(|entry| entry.is(meta::RELATED_TASK));
    if !spans.meta.is_some_and(|meta| names_task(meta.value.of(line))) {
        return answer;
    }
    let mut out = b"{".to_vec();
    for entry in json::members(spans.whole.of(line)) {
        let mut passing = Vec::new();
        let mut value = entry.value;
        if entry.is("_meta") {
            passing.push(b'{');
            meta::push_passing(&mut passing, value);
            if passing.pop() == Some(b'{') {
                continue;
            }
            passing.push(b'}');
            value = &passing;
        }
        out.extend_from_slice(if out.len() > 1 { b",\"" } else { b"\"" });
        out.extend_from_slice(entry.key);
        out.extend_from_slice(b"\":");
        out.extend_from_slice(value);
    }
    out.push(b'}');
    answer.with_result(&out)
}

fn push_id(out: &mut Vec<u8>, id: &[u8]) {
    out.extend_from_slice(b"{\"taskId\":");
    out.extend_from_slice(id);
    out.push(b'}');
}

/// Ends a task that nobody wants any more.
fn cancel(connection: &Connection, id: &[u8]) {
    connection.ask_nobody(Method::TasksCancel, |out| push_id(out, id));
}

impl Drop for Task {
    fn drop(&mut self) {
        match (self.id.take(), self.creating.take(), self.connection.questions.get()) {
            (Some(id), ..) => cancel(&self.connection, &id),
            (None, Some(creating), Some(questions)) => {
                // It has no name yet, and must be ended by that.
                let connection = Arc::clone(&self.connection);
                questions.tasks.spawn(async move {
                    if let Ok(Ok(answer)) = timeout(LATE, creating.answer()).await
                        && let Some((_, id)) = made(&answer)
                    {
                        cancel(&connection, id);
                    }
                });
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tsk7_a_server_says_how_often_it_is_asked_within_bounds() {
        let read = |task: &str| {
            let stand = Stand::read(task.as_bytes(), Duration::from_secs(30));
            (stand.over, stand.asks, stand.interval.as_millis())
        };
        assert_eq!(read(r#"{"status":"working"}"#), (false, false, 1000));
        assert_eq!(read(r#"{"status":"input_required","pollInterval":250}"#), (false, true, 250));
        assert_eq!(read(r#"{"pollInterval":1,"status":"completed"}"#), (true, false, 100));
        assert_eq!(read(r#"{"pollInterval":1e9,"status":"failed"}"#), (true, false, 10_000));
        assert_eq!(read(r#"{"pollInterval":-5,"status":"cancelled"}"#), (true, false, 1000));
        assert_eq!(Stand::read(b"{}", Duration::from_secs(2)).interval, USUAL);
        assert_eq!(Stand::read(br#"{"pollInterval":5000}"#, Duration::from_secs(2)).interval, Duration::from_secs(2));
    }
}
