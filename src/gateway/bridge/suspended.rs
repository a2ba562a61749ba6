//! Calls of modern hosts that wait in legacy servers for the hosts' input (MLB-3): the one thing that we remember
//! between requests, named by the state that the host brings back.
//!
//! Bounded per principal. One that nobody comes back for ends after the time that a user has.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::downstream::Pending;
use crate::ident::Principal;
use crate::protocol::method::Method;
use crate::transport::upward::{Ask, Upward};

/// How long a user may take (MLB-7).
const LIMIT: Duration = Duration::from_secs(600);
/// Suspended calls of one principal, at most (MLB-3).
const PER_PRINCIPAL: usize = 32;

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
}

impl Suspended {
    pub(super) fn new(pending: Pending, upward: Arc<Upward>) -> Self {
        Self { pending, upward, asks: Vec::new(), keys: [0; 3], rounds: 0 }
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

struct Place {
    suspended: Suspended,
    principal: Principal,
    nonce: u64,
    deadline: Instant,
}

/// The table.
#[derive(Default)]
pub(super) struct Table {
    places: Mutex<HashMap<u64, Place>>,
    /// Wakes the sweeper.
    added: Notify,
    stop: CancellationToken,
}

fn random() -> u64 {
    getrandom::u64().expect("invariant: the system gives random bytes")
}

impl Table {
    fn places(&self) -> MutexGuard<'_, HashMap<u64, Place>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a call in; answers its id and nonce. Gives it back when its principal has too many.
    pub(super) fn put(&self, principal: &Principal, suspended: Suspended) -> Result<(u64, u64), Box<Suspended>> {
        let mut places = self.places();
        let full = places.values().filter(|place| place.principal == *principal).count() >= PER_PRINCIPAL;
        if full || self.stop.is_cancelled() {
            return Err(Box::new(suspended));
        }
        let (id, nonce) = (random(), random());
        let deadline = Instant::now() + LIMIT;
        places.insert(id, Place { suspended, principal: principal.clone(), nonce, deadline });
        drop(places);
        self.added.notify_one();
        Ok((id, nonce))
    }

    /// Takes a call out, once (MLB-4).
    pub(super) fn take(&self, principal: &Principal, id: u64, nonce: u64) -> Option<Suspended> {
        let mut places = self.places();
        places.get(&id).filter(|place| place.nonce == nonce && place.principal == *principal)?;
        places.remove(&id).map(|place| place.suspended)
    }

    /// Ends those that nobody came back for, until we stop; then all.
    pub(super) async fn sweep(&self) {
        loop {
            let next = self.places().values().map(|place| place.deadline).min();
            tokio::select! {
                () = self.stop.cancelled() => break,
                () = self.added.notified() => {}
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {
                    let now = Instant::now();
                    let over: Vec<_> = self.places().extract_if(|_, place| place.deadline <= now).collect();
                    for (_, place) in over {
                        place.suspended.end().await;
                    }
                }
            }
        }
        self.places().clear();
    }

    /// Stops for good.
    pub(super) fn stop(&self) {
        self.stop.cancel();
    }
}
