//! `subscriptions/listen` over HTTP: a stream per request, counted per principal (SUB-3, SUB-4, SUB-13).

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};

use super::auth::Proof;
use super::body::{self, Pipe, Reply, refusal};
use super::front::Front;
use crate::caller::Caller;
use crate::gateway::{Failure, Updates};
use crate::ident::Principal;
use crate::protocol::code;
use crate::upstream::modern::Listen;
use crate::upstream::work::{changed, subscribe_all};

/// Streams of one principal, at most (SUB-13).
const MAX_EACH: usize = 16;
/// How long it may take to find out which resources are told of, before the stream is acknowledged (SUB-5).
const ACK: Duration = Duration::from_secs(2);

/// How many streams each principal has.
#[derive(Clone, Default)]
pub(super) struct Listens(Arc<Mutex<HashMap<Principal, usize>>>);

/// One of them; given back when dropped.
struct Place {
    listens: Listens,
    principal: Principal,
}

impl Listens {
    fn enter(&self, principal: &Principal) -> Option<Place> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(principal.clone()).or_default();
        if *count >= MAX_EACH {
            return None;
        }
        *count += 1;
        Some(Place { listens: self.clone(), principal: principal.clone() })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.listens.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.principal) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.principal);
            }
        }
    }
}

/// Opens a stream; `params` are the raw ones of the request. It ends with its client or with us (SUB-12), and when it is
/// no longer proven who its client is.
pub(super) fn open(front: &Arc<Front>, caller: Caller, proof: Proof, id: Bytes, params: &[u8]) -> Response<Reply> {
    let mut listen = match Listen::read(id.clone(), params, &caller) {
        Ok(listen) => listen,
        Err(failure) if failure.code == code::MISSING_CAPABILITY => {
            return refusal(StatusCode::BAD_REQUEST, Some(&id), &failure);
        }
        Err(failure) => return refusal(StatusCode::OK, Some(&id), &failure),
    };
    let now = front.gateway.now();
    listen.honour(&now.offers(now.sight(&caller.principal, caller.profile)));
    drop(now);
    let Some(place) = front.listens.enter(&caller.principal) else {
        return refusal(StatusCode::OK, Some(&id), &Failure::limit("Too many listen streams"));
    };
    let pipe = Pipe::default();
    let (out, gateway, stop) = (pipe.clone(), Arc::clone(&front.gateway), front.stop.clone());
    body::events(&front.limits, pipe, async move {
        let _place = place;
        let mut changes = gateway.changes(&caller.principal, caller.profile);
        let mut seen = gateway.now().seen(&caller);
        let updates = Arc::new(Updates::default());
        // What is known when the time is over is said; what comes later is told all the same.
        let (_held, honoured) = subscribe_all(&gateway.now(), &listen, &caller, &updates, ACK).await;
        out.push(None, vec![listen.acknowledged(&honoured).into()]);
        let mut over = pin!(proof.bound(std::future::pending()));
        loop {
            out.room().await;
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = &mut over => break,
                () = changes.changed() => {
                    let now = gateway.now().seen(&caller);
                    for kind in changed(&seen, &now, &[None; 4]).filter(|&kind| listen.wants(kind)) {
                        out.push(None, vec![listen.changed(kind).into()]);
                    }
                    seen = now;
                }
                uris = updates.next(), if !listen.resources.is_empty() => for uri in uris {
                    out.push(None, vec![listen.updated(&uri).into()]);
                },
                tasks = updates.next_tasks(), if !listen.tasks.is_empty() => for (id, state) in tasks {
                    if let Some(state) = gateway.now().task_news(&id, &caller, &state) {
                        out.push(None, vec![listen.task(&state).into()]);
                    }
                },
            }
        }
        out.push(None, vec![listen.ended().into()]);
    })
}
