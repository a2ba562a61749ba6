//! Calls of modern hosts that wait in legacy servers for the hosts' input (MLB-3): the one thing that we remember
//! between requests, named by the state that the host brings back.
//!
//! Bounded per principal. Each has a task that attends to it while its host is away, so that nothing of its server
//! waits to be read; one that nobody comes back for ends after the time that a user has.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::downstream::{Answer, Fault, INPUT_LIMIT, Pending};
use crate::ident::Principal;
use crate::protocol::method::Method;
use crate::transport::upward::{Ask, Upward};

/// Suspended calls of one principal, at most (MLB-3).
const PER_PRINCIPAL: usize = 32;

/// The largest answer that is kept for a host that is away.
const MAX_KEPT: usize = 1 << 20;

/// A call that waits for its host.
pub(super) struct Suspended {
    pub(super) pending: Pending,
    /// What passes beside it goes here, until the host comes back.
    pub(super) upward: Arc<Upward>,
    /// What its server asked, under the keys that the host was told.
    pub(super) asks: Vec<(String, Ask)>,
    /// Keys given so far, of roots, sampling and elicitation.
    keys: [u32; 3],
    pub(super) rounds: u8,
    /// How often it was sent again for a URL (URL-1).
    pub(super) replays: u8,
    /// What its server answered while the host was away: it did not wait for the input.
    pub(super) answer: Option<Result<Answer, Fault>>,
}

impl Suspended {
    pub(super) fn new(pending: Pending, upward: Arc<Upward>, replays: u8) -> Self {
        Self { pending, upward, asks: Vec::new(), keys: [0; 3], rounds: 0, replays, answer: None }
    }

    /// Takes a question in, under a key of its own.
    pub(super) fn push(&mut self, ask: Ask) {
        let (kind, count) = if ask.method == Method::Roots {
            ("roots", &mut self.keys[0])
        } else if ask.method == Method::Sample {
            ("sampling", &mut self.keys[1])
        } else {
            ("elicitation", &mut self.keys[2])
        };
        *count += 1;
        self.asks.push((format!("{kind}_{count}"), ask));
    }

    /// Forgets what the server no longer wants to know.
    pub(super) fn forget_withdrawn(&mut self) {
        self.asks.retain(|(_, ask)| !ask.reply.is_closed());
    }

    /// Ends it: what was asked is answered first, then the server hears that nobody waits (MLB-7).
    async fn end(mut self) {
        self.asks.clear();
        tokio::task::yield_now().await;
        self.upward.give_up("input not provided");
        drop(self.pending);
    }
}

/// Where a call went, and how it is asked back.
struct Place {
    principal: Principal,
    nonce: u64,
    give: oneshot::Sender<oneshot::Sender<Suspended>>,
}

/// The table.
pub(super) struct Table {
    places: Mutex<HashMap<u64, Place>>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

fn random() -> u64 {
    getrandom::u64().expect("invariant: the system gives random bytes")
}

impl Table {
    /// An empty one; what attends to its calls belongs to `tasks`.
    pub(super) fn new(tasks: TaskTracker) -> Self {
        Self { places: Mutex::default(), tasks, stop: CancellationToken::new() }
    }

    fn places(&self) -> MutexGuard<'_, HashMap<u64, Place>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a call in; answers its id and nonce. Gives it back when its principal has too many.
    pub(super) fn put(
        self: &Arc<Self>,
        principal: &Principal,
        suspended: Suspended,
    ) -> Result<(u64, u64), Box<Suspended>> {
        let mut places = self.places();
        let full = places.values().filter(|place| place.principal == *principal).count() >= PER_PRINCIPAL;
        if full || self.stop.is_cancelled() {
            return Err(Box::new(suspended));
        }
        let (id, nonce) = (random(), random());
        let (give, wanted) = oneshot::channel();
        places.insert(id, Place { principal: principal.clone(), nonce, give });
        drop(places);
        let table = Arc::clone(self);
        self.tasks.spawn(async move { table.attend(id, suspended, wanted).await });
        Ok((id, nonce))
    }

    /// Attends to a call until its host comes back, nobody does for too long, or we stop.
    async fn attend(&self, id: u64, mut call: Suspended, mut wanted: oneshot::Receiver<oneshot::Sender<Suspended>>) {
        let over = sleep(INPUT_LIMIT);
        tokio::pin!(over);
        loop {
            tokio::select! {
                biased;
                to = &mut wanted => {
                    if let Ok(to) = to {
                        // Dropped where the host has gone again, which cancels the call.
                        let _ = to.send(call);
                    }
                    return;
                }
                answer = call.pending.answered(), if call.answer.is_none() => {
                    let too_large = |size: usize| Fault::TooLarge { size: size as u64, limit: MAX_KEPT as u64 };
                    call.answer = Some(match answer {
                        Ok(answer) if answer.reply.line.len() > MAX_KEPT => Err(too_large(answer.reply.line.len())),
                        answer => answer,
                    });
                }
                () = &mut over => break,
                () = self.stop.cancelled() => break,
            }
        }
        self.places().remove(&id);
        call.end().await;
    }

    /// Takes a call out, once (MLB-4).
    pub(super) async fn take(&self, principal: &Principal, id: u64, nonce: u64) -> Option<Suspended> {
        let place = {
            let mut places = self.places();
            places.get(&id).filter(|place| place.nonce == nonce && place.principal == *principal)?;
            places.remove(&id)?
        };
        let (to, back) = oneshot::channel();
        place.give.send(to).ok()?;
        back.await.ok()
    }

    /// Stops for good.
    pub(super) fn stop(&self) {
        self.stop.cancel();
    }
}
