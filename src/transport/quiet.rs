//! Wakes that a task gives itself while it runs, for what it does next anyway: each would run all of it once more.
//!
//! The two ends of a body often sit in one task: taking a piece wakes the end that reads the socket, although whoever took
//! the piece goes on at once, or knows that there is no more. [`apart`] keeps such wakes back, for tasks that are polled
//! [`through`] a waker of ours; wakes that come from anywhere else, or on another thread, are none of them.

use std::cell::Cell;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

thread_local! {
    static APART: Cell<Option<Kept>> = const { Cell::new(None) };
}

/// Whether wakes were kept back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept(pub bool);

/// A waker whose wakes can be kept back.
struct Quiet(Waker);

impl Wake for Quiet {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        match APART.get() {
            None => self.0.wake_by_ref(),
            Some(_) => APART.set(Some(Kept(true))),
        }
    }
}

/// The waker of a task, between polls.
#[derive(Default)]
pub struct Own(Option<(Waker, Waker)>);

impl Own {
    /// Polls with a waker whose wakes can be kept back.
    pub fn through<T>(&mut self, cx: &Context<'_>, poll: impl FnOnce(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
        let same = self.0.take().filter(|(task, _)| task.will_wake(cx.waker()));
        let (_, quiet) = self.0.insert(same.unwrap_or_else(|| {
            let task = cx.waker().clone();
            (task.clone(), Arc::new(Quiet(task)).into())
        }));
        poll(&mut Context::from_waker(quiet))
    }
}

/// Does something whose wakes are kept back, and says whether there were any. It concerns no other task, and whoever does it
/// wakes this one where it is needed.
pub fn apart<T>(what: impl FnOnce() -> T) -> (T, Kept) {
    struct End(Option<Kept>);
    impl Drop for End {
        fn drop(&mut self) {
            APART.set(self.0);
        }
    }
    let _end = End(APART.replace(Some(Kept(false))));
    let done = what();
    (done, APART.get().unwrap_or(Kept(false)))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn wakes_are_kept_back_only_where_that_was_asked_for() {
        let count = Arc::new(Count::default());
        let woken = || count.0.load(Ordering::Relaxed);
        let task = Waker::from(Arc::clone(&count));
        let mut own = Own::default();
        let mut kept = None;
        for _ in 0..2 {
            let polled = own.through(&Context::from_waker(&task), |cx| {
                let waker = cx.waker().clone();
                assert!(kept.get_or_insert_with(|| waker.clone()).will_wake(&waker), "it is the same each time");
                Poll::Ready(())
            });
            assert!(polled.is_ready());
        }
        let waker = kept.unwrap();
        waker.wake_by_ref();
        assert_eq!(woken(), 1);
        let ((), kept) = apart(|| {
            task.wake_by_ref();
            std::thread::scope(|scope| scope.spawn(|| waker.wake_by_ref()).join()).unwrap();
        });
        assert_eq!(kept, Kept(false));
        assert_eq!(apart(|| waker.wake_by_ref()).1, Kept(true));
        assert_eq!(woken(), 3, "the one through us, on this thread, was kept back");
        let _ = std::panic::catch_unwind(|| apart(|| panic!("in the middle")));
        waker.wake();
        assert_eq!(woken(), 4);

        let another = Waker::from(Arc::new(Count::default()));
        assert!(
            own.through(&Context::from_waker(&another), |cx| {
                cx.waker().wake_by_ref();
                Poll::Ready(())
            })
            .is_ready()
        );
        assert_eq!(woken(), 4, "a task that is moved is woken where it is");
    }
}
