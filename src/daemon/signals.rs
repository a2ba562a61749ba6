//! The signals that end us.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How serving ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The host left, or we were told to stop: all in order.
    Drained,
    /// A person interrupted.
    Interrupted,
}

/// Which signal came.
pub(super) struct Told(Arc<AtomicBool>);

impl Told {
    /// How serving ended, as far as signals tell.
    pub(super) fn how(&self) -> Ended {
        if self.0.load(Ordering::Acquire) { Ended::Interrupted } else { Ended::Drained }
    }
}

/// Cancels `stop` at TERM and INT, and at HUP where that does not mean something else; `hurry` at the next of them. Ends
/// when whichever is due next is cancelled.
pub(super) fn watch(
    stop: CancellationToken,
    hurry: Option<CancellationToken>,
    hangup_ends: bool,
    tasks: &TaskTracker,
) -> Told {
    let interrupted = Arc::new(AtomicBool::new(false));
    let told = Told(Arc::clone(&interrupted));
    tasks.spawn(async move {
        let kinds = [SignalKind::terminate(), SignalKind::hangup(), SignalKind::interrupt()];
        let [Ok(mut term), Ok(mut hangup), Ok(mut interrupt)] = kinds.map(signal) else {
            tracing::warn!("signals cannot be watched");
            return;
        };
        for due in std::iter::once(stop).chain(hurry) {
            tokio::select! {
                _ = term.recv() => {}
                _ = hangup.recv(), if hangup_ends => {}
                _ = interrupt.recv() => interrupted.store(true, Ordering::Release),
                // Somebody else ends us; there may still be a person who wants it faster.
                () = due.cancelled() => continue,
            }
            due.cancel();
        }
    });
    told
}
