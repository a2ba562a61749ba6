//! How many host requests a server works on at once, and how many wait for their turn: `limits.concurrency` and
//! `limits.queue`. Knows nothing of what is asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::Fault;
use crate::config::settings::ServerLimits;

/// The way in.
pub(super) struct Gate {
    places: Option<Arc<Semaphore>>,
    waiting: AtomicUsize,
    queue: usize,
}

/// A place among those that a server works on, where they are counted.
pub(super) type Place = Option<OwnedSemaphorePermit>;

impl Gate {
    pub(super) fn new(limits: &ServerLimits) -> Self {
        let places = limits.concurrency.map(|places| Arc::new(Semaphore::new(places.min(Semaphore::MAX_PERMITS))));
        Self { places, waiting: AtomicUsize::new(0), queue: limits.queue }
    }

    /// Waits for a place, `limit` at most.
    pub(super) async fn enter(&self, limit: Duration) -> Result<Place, Fault> {
        let Some(places) = &self.places else { return Ok(None) };
        if let Ok(place) = Arc::clone(places).try_acquire_owned() {
            return Ok(Some(place));
        }
        let _turn = Turn::take(&self.waiting, self.queue)?;
        match timeout(limit, Arc::clone(places).acquire_owned()).await {
            Ok(Ok(place)) => Ok(Some(place)),
            Ok(Err(_)) => Err(Fault::gone("it was stopped")),
            Err(_) => Err(Fault::Timeout(limit)),
        }
    }
}

/// A place in the queue, given back when dropped.
struct Turn<'a>(&'a AtomicUsize);

impl<'a> Turn<'a> {
    fn take(waiting: &'a AtomicUsize, queue: usize) -> Result<Self, Fault> {
        let turn = Self(waiting);
        if waiting.fetch_add(1, Ordering::AcqRel) >= queue {
            return Err(Fault::Limit(format!("{queue} requests wait for their turn")));
        }
        Ok(turn)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(concurrency: Option<usize>, queue: usize) -> Gate {
        Gate::new(&ServerLimits { concurrency, queue, ..ServerLimits::default() })
    }

    #[tokio::test(start_paused = true)]
    async fn one_after_another_and_the_queue_has_an_end() {
        let gate = gate(Some(1), 1);
        let first = gate.enter(Duration::from_secs(1)).await.unwrap();
        assert_eq!(gate.enter(Duration::from_secs(5)).await.map(drop), Err(Fault::Timeout(Duration::from_secs(5))));
        let (second, third, ()) = tokio::join!(
            gate.enter(Duration::from_secs(5)),
            gate.enter(Duration::from_secs(5)),
            async { drop(first) },
        );
        assert!(second.unwrap().is_some());
        assert!(matches!(third, Err(Fault::Limit(_))));
        assert_eq!(gate.waiting.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn without_a_limit_nobody_waits() {
        assert!(gate(None, 0).enter(Duration::ZERO).await.unwrap().is_none());
    }
}
