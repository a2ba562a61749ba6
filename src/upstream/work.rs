//! What a request of a host asks for, and how it is done: the method table of both eras and of both transports.
//!
//! The adapters say who asks and in which era; sessions, streams and ids are theirs. What is special to one era
//! (`initialize`, `server/discover`, listen streams, levels, subscriptions) they serve themselves.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, timeout_at};

use super::modern::{Honoured, Listen};
use crate::caller::Caller;
use crate::gateway::{Failure, Fingerprint, Gateway, Held, ItemList, Outcome, Seen, Updates};
use crate::ident::Kind;
use crate::protocol::call::Call;
use crate::protocol::json::Index;
use crate::protocol::message::{Part, pick};
use crate::protocol::meta::RequestMeta;
use crate::protocol::method::Method;
use crate::protocol::version::Era;
use crate::transport::upward::{Happening, Upward};

/// A request that the gateway serves, the same in both eras.
pub(super) enum Work {
    /// It names an item.
    Call(Call),
    /// It is about a task of a modern server.
    Task(Call),
    /// A list, from the cursor on (a raw string of ours); the host's message.
    List(Kind, Option<Bytes>, Bytes),
}

/// What came of it.
pub(super) enum Done {
    /// A server's answer to such a request.
    Outcome(Method, Outcome),
    /// A list of ours.
    List(ItemList),
}

impl Work {
    /// Reads a request, whose `_meta` may have been read already; nothing for a method that is served elsewhere or not at all.
    #[expect(clippy::wildcard_enum_match_arm, reason = "most methods are served elsewhere")]
    pub(super) fn read(
        era: Era,
        method: Method,
        line: &Bytes,
        index: &Index,
        params: Option<Part>,
        meta: Option<&RequestMeta<'_>>,
    ) -> Result<Option<Self>, Failure> {
        let call = || Call::read_with(method, line, index, params, meta).map_err(Failure::bad_call);
        let kind = match method {
            Method::ToolsCall | Method::PromptsGet | Method::ResourcesRead | Method::Complete => {
                return Ok(Some(Self::Call(call()?)));
            }
            // In the legacy era the words mean something else, which is not offered to hosts (TSK-6).
            Method::TasksGet | Method::TasksUpdate | Method::TasksCancel if era == Era::Modern => {
                return Ok(Some(Self::Task(call()?)));
            }
            Method::ToolsList => Kind::Tool,
            Method::PromptsList => Kind::Prompt,
            Method::ResourcesList => Kind::Resource,
            Method::TemplatesList => Kind::Template,
            _ => return Ok(None),
        };
        Ok(Some(Self::List(kind, cursor(line, index, params)?, line.clone())))
    }

    /// How much of the host's messages it holds.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Call(call) | Self::Task(call) => call.size(),
            Self::List(.., message) => message.len(),
        }
    }

    /// The host's progress token, raw.
    pub(super) fn progress_token(&self) -> Option<Bytes> {
        match self {
            Self::Call(call) => call.progress_token().map(Bytes::copy_from_slice),
            Self::Task(_) | Self::List(..) => None,
        }
    }

    /// Does it. What happens meanwhile goes to `tell`; nothing comes of it once the host has given up. Dropping the
    /// future tells the server (CAN-2: whoever answers too late answers nobody).
    pub(super) async fn perform(
        &self,
        gateway: &Gateway,
        caller: &Caller,
        upward: &Arc<Upward>,
        mut tell: impl FnMut(Happening),
    ) -> Option<Result<Done, Failure>> {
        let done = {
            let doing = self.run(gateway, caller, upward);
            tokio::pin!(doing);
            loop {
                tokio::select! {
                    biased;
                    happening = upward.happening() => match happening {
                        Happening::GivenUp => return None,
                        told @ (Happening::Progress(_) | Happening::Log(_) | Happening::Ask(_) | Happening::Opened(_)) => tell(told),
                    },
                    done = &mut doing => break done,
                }
            }
        };
        upward.rest().into_iter().for_each(tell);
        Some(done)
    }

    async fn run(&self, gateway: &Gateway, caller: &Caller, upward: &Arc<Upward>) -> Result<Done, Failure> {
        match self {
            Self::Call(call) => {
                let outcome = gateway.call(call, caller, Arc::clone(upward)).await?;
                Ok(Done::Outcome(call.method(), outcome))
            }
            Self::Task(call) => {
                // Rare and large: on the heap, so that every call is not as large as the rarest.
                let outcome = Box::pin(gateway.task(call, caller, Arc::clone(upward))).await?;
                Ok(Done::Outcome(call.method(), outcome))
            }
            Self::List(kind, cursor, message) => {
                gateway.list(*kind, caller, cursor.as_deref(), message).await.map(Done::List)
            }
        }
    }
}

/// Lists take an object, `null` or nothing (D053).
fn cursor(line: &Bytes, index: &Index, params: Option<Part>) -> Result<Option<Bytes>, Failure> {
    let Some(params) = params else { return Ok(None) };
    match line[params.span.start as usize] {
        b'n' => Ok(None),
        b'{' => {
            let ([cursor], _) =
                pick(line, index, params, ["cursor"]).map_err(|_| Failure::bad_params("cursor stands twice"))?;
            match cursor.map(|cursor| line.slice(cursor.range())) {
                None => Ok(None),
                Some(cursor) if *cursor == *b"null" => Ok(None),
                Some(cursor) if cursor.starts_with(b"\"") => Ok(Some(cursor)),
                Some(_) => Err(Failure::bad_cursor()),
            }
        }
        _ => Err(Failure::bad_params("params must be an object")),
    }
}

/// The kinds of lists that differ between two looks, but for those that a host got since (SUB-1, SUB-2). Templates
/// come with resources.
pub(super) fn changed(
    before: &Seen,
    now: &Seen,
    listed: &[Option<Fingerprint>; 4],
) -> impl Iterator<Item = Kind> + use<> {
    let is_new = |kind: Kind| before.kind(kind) != now.kind(kind) && listed[kind.index()] != Some(now.kind(kind));
    let kinds = [
        (Kind::Tool, is_new(Kind::Tool)),
        (Kind::Prompt, is_new(Kind::Prompt)),
        (Kind::Resource, is_new(Kind::Resource) || is_new(Kind::Template)),
    ];
    kinds.into_iter().filter_map(|(kind, is_new)| is_new.then_some(kind))
}

/// Subscribes to all resources and tasks of a stream, as far as they are told of within the time; answers what is held
/// and which.
pub(super) async fn subscribe_all(
    gateway: &Gateway,
    listen: &Listen,
    caller: &Caller,
    updates: &Arc<Updates>,
    limit: Duration,
) -> (Vec<Held>, Honoured) {
    type Asking<'a> = Pin<Box<dyn Future<Output = Result<Option<Held>, Failure>> + Send + 'a>>;
    let Listen { resources, tasks, .. } = listen;
    let of_resource = |uri| Some(Box::pin(gateway.subscribe(uri, caller, updates, None)) as Asking<'_>);
    let of_task = |id| Some(Box::pin(gateway.watch_task(id, caller, updates)) as Asking<'_>);
    let asked = resources.iter().map(|uri| of_resource(uri)).chain(tasks.iter().map(|id| of_task(id)));
    let mut asked: Vec<_> = asked.collect();
    let mut found: Vec<Option<Held>> = asked.iter().map(|_| None).collect();
    // All at once, so that a server hears of all its resources together and no server waits for another.
    let all = poll_fn(|cx| {
        let mut open = false;
        for (asking, found) in asked.iter_mut().zip(&mut found) {
            let Some(one) = asking else { continue };
            match one.as_mut().poll(cx) {
                Poll::Ready(held) => {
                    *found = held.ok().flatten();
                    *asking = None;
                }
                Poll::Pending => open = true,
            }
        }
        if open { Poll::Pending } else { Poll::Ready(()) }
    });
    let _ = timeout_at(Instant::now() + limit, all).await;
    drop(asked);
    let of_tasks = found.split_off(resources.len());
    let given = |names: &[String], found: Vec<Option<Held>>| -> (Vec<Held>, Vec<String>) {
        names.iter().zip(found).filter_map(|(name, held)| Some((held?, name.clone()))).unzip()
    };
    let (mut held, resources) = given(resources, found);
    let (more, tasks) = given(tasks, of_tasks);
    held.extend(more);
    (held, Honoured { resources, tasks })
}
