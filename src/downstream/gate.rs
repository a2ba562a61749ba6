//! How many host requests a server works on at once, and how many wait for their turn: `limits.concurrency` and
//! `limits.queue`. Who waits is served in turn with the other principals that wait, however many requests each of them
//! has (D-32). Knows nothing of what is asked.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::Fault;
use crate::config::settings::ServerLimits;
use crate::ident::Principal;

/// The way in; without a limit nobody waits.
pub(super) struct Gate(Option<Arc<Inner>>);

struct Inner {
    /// How many may wait.
    queue: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    free: usize,
    /// Who waits: the principal whose turn is next comes first. None of them is empty.
    lines: VecDeque<Line>,
    last: u64,
}

/// The requests of one principal that wait.
struct Line {
    who: Principal,
    waiting: VecDeque<(u64, oneshot::Sender<Held>)>,
}

/// A place among those that a server works on, where they are counted.
pub(super) type Place = Option<Held>;

/// Given back when dropped, to whoever is next.
pub(super) struct Held(Arc<Inner>);

impl Drop for Held {
    fn drop(&mut self) {
        let Some(next) = self.0.next() else { return };
        // One that waits no more gives it back, to the next.
        drop(next.send(Self(Arc::clone(&self.0))));
    }
}

impl Gate {
    pub(super) fn new(limits: &ServerLimits) -> Self {
        Self(limits.concurrency.map(|free| {
            let state = Mutex::new(State { free, ..State::default() });
            Arc::new(Inner { queue: limits.queue, state })
        }))
    }

    /// Waits for a place, `limit` at most.
    pub(super) async fn enter(&self, who: &Principal, limit: Duration) -> Result<Place, Fault> {
        let Some(inner) = &self.0 else { return Ok(None) };
        let full = || Fault::Limit(format!("{} requests wait for their turn", inner.queue));
        let mut turn = match inner.line_up(who).ok_or_else(full)? {
            Ok(held) => return Ok(Some(held)),
            Err(turn) => turn,
        };
        match timeout(limit, &mut turn.given).await {
            Ok(Ok(held)) => Ok(Some(held)),
            // Another principal had less of the queue.
            Ok(Err(_)) => Err(full()),
            Err(_) => Err(Fault::Timeout(limit)),
        }
    }
}

/// A request in line; it leaves when dropped.
struct Turn<'a> {
    inner: &'a Inner,
    number: u64,
    given: oneshot::Receiver<Held>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.inner.state();
        for line in &mut state.lines {
            line.waiting.retain(|(number, _)| *number != self.number);
        }
        state.lines.retain(|line| !line.waiting.is_empty());
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place, or a turn; nothing when too many wait.
    fn line_up(self: &Arc<Self>, who: &Principal) -> Option<Result<Held, Turn<'_>>> {
        let mut state = self.state();
        if state.free > 0 && state.lines.is_empty() {
            state.free -= 1;
            return Some(Ok(Held(Arc::clone(self))));
        }
        let waiting: usize = state.lines.iter().map(|line| line.waiting.len()).sum();
        let own = state.lines.iter().find(|line| line.who == *who).map_or(0, |line| line.waiting.len());
        if waiting >= self.queue {
            // Whoever has most of the queue gives up his last one for somebody who has clearly less.
            let longest = state.lines.iter_mut().max_by_key(|line| line.waiting.len())?;
            if longest.waiting.len() <= own + 1 {
                return None;
            }
            longest.waiting.pop_back();
        }
        state.last += 1;
        let number = state.last;
        let (give, given) = oneshot::channel();
        match state.lines.iter_mut().find(|line| line.who == *who) {
            Some(line) => line.waiting.push_back((number, give)),
            None => state.lines.push_back(Line { who: who.clone(), waiting: [(number, give)].into() }),
        }
        Some(Err(Turn { inner: self, number, given }))
    }

    /// Who is next, when somebody waits; else one more place is free.
    fn next(&self) -> Option<oneshot::Sender<Held>> {
        let mut state = self.state();
        let Some(mut line) = state.lines.pop_front() else {
            state.free += 1;
            return None;
        };
        let next = line.waiting.pop_front();
        if !line.waiting.is_empty() {
            state.lines.push_back(line);
        }
        next.map(|(_, give)| give)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(5);

    fn gate(concurrency: Option<usize>, queue: usize) -> Gate {
        Gate::new(&ServerLimits { concurrency, queue, ..ServerLimits::default() })
    }

    fn free(gate: &Gate) -> (usize, usize) {
        let state = gate.0.as_ref().unwrap().state();
        (state.free, state.lines.len())
    }

    #[tokio::test(start_paused = true)]
    async fn one_after_another_and_the_queue_has_an_end() {
        let gate = gate(Some(1), 1);
        let me = Principal::stdio();
        let first = gate.enter(&me, LONG).await.unwrap();
        assert_eq!(gate.enter(&me, LONG).await.map(drop), Err(Fault::Timeout(LONG)));
        let (second, third, ()) = tokio::join!(gate.enter(&me, LONG), gate.enter(&me, LONG), async { drop(first) });
        assert!(second.unwrap().is_some());
        assert!(matches!(third, Err(Fault::Limit(_))));
        assert_eq!(free(&gate), (1, 0));
    }

    #[tokio::test]
    async fn without_a_limit_nobody_waits() {
        assert!(gate(None, 0).enter(&Principal::stdio(), Duration::ZERO).await.unwrap().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn d32_principals_that_wait_take_turns() {
        let gate = Arc::new(gate(Some(1), 100));
        let (ann, ben) = (Principal::key("ann"), Principal::key("ben"));
        let order = Arc::new(Mutex::new(Vec::new()));
        let first = gate.enter(&ann, LONG).await.unwrap();
        let waits = |who: Principal| {
            let (gate, order) = (Arc::clone(&gate), Arc::clone(&order));
            async move {
                let place = gate.enter(&who, LONG).await.unwrap();
                order.lock().unwrap().push(who.to_string());
                drop(place);
            }
        };
        let (ann1, ann2, ann3, ann4) = (waits(ann.clone()), waits(ann.clone()), waits(ann.clone()), waits(ann.clone()));
        let (ben1, ben2) = (waits(ben.clone()), waits(ben.clone()));
        tokio::join!(ann1, ann2, ann3, ann4, ben1, ben2, async { drop(first) });
        let order = order.lock().unwrap().join(" ");
        assert_eq!(order, "key:ann key:ben key:ann key:ben key:ann key:ann");
        assert_eq!(free(&gate), (1, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn d32_who_fills_the_queue_makes_room_for_others() {
        let gate = Arc::new(gate(Some(1), 4));
        let (ann, ben) = (Principal::key("ann"), Principal::key("ben"));
        let first = gate.enter(&ann, LONG).await.unwrap();
        let wait = |who: &Principal| {
            let (gate, who) = (Arc::clone(&gate), who.clone());
            async move { gate.enter(&who, LONG).await.map(drop) }
        };
        let (a, b, c, d, own, other, ()) =
            tokio::join!(wait(&ann), wait(&ann), wait(&ann), wait(&ann), wait(&ann), wait(&ben), async { drop(first) });
        assert_eq!([a, b, c, other], [Ok(()), Ok(()), Ok(()), Ok(())]);
        assert!(matches!(d, Err(Fault::Limit(_))) && matches!(own, Err(Fault::Limit(_))));
        assert_eq!(free(&gate), (1, 0));
    }
}
