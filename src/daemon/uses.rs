//! Has it counted once a day what was called, for profiles that show first what is used (`recent`).
//!
//! On a thread of its own: it reads files, and nothing waits for it, not even an end. Called by `daemon` and at a reload.

use std::thread;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::settings::Settings;
use crate::telemetry::audit::used::Wanted;

/// A count is good for a day; looked at a little later than that.
const DAY: Duration = Duration::from_secs(24 * 3600 + 60);

/// What is counted.
#[derive(Clone)]
pub(super) struct Uses(watch::Sender<Wanted>);

impl Uses {
    /// Counts what these settings want, now and each day, until `stop`.
    pub(super) fn count(settings: &Settings, stop: &CancellationToken, tasks: &TaskTracker) -> Self {
        let (wanted, mut seen) = watch::channel(Wanted::by(settings));
        let stop = stop.clone();
        tasks.spawn(async move {
            let counting = async {
                loop {
                    let wanted = seen.borrow_and_update().clone();
                    if wanted.is_empty() {
                        if seen.changed().await.is_err() {
                            return;
                        }
                        continue;
                    }
                    let count = move || {
                        if let Err(error) = wanted.renew() {
                            tracing::warn!("what was called could not be counted: {error}");
                        }
                    };
                    if let Err(error) = thread::Builder::new().name("uses".to_owned()).spawn(count) {
                        tracing::warn!("what was called could not be counted: {error}");
                    }
                    tokio::select! {
                        changed = seen.changed() => if changed.is_err() { return },
                        () = sleep(DAY) => {}
                    }
                }
            };
            stop.run_until_cancelled(counting).await;
        });
        Self(wanted)
    }

    /// Other settings are in force.
    pub(super) fn reload(&self, wanted: Wanted) {
        self.0.send_if_modified(|now| {
            *now != wanted && {
                *now = wanted;
                true
            }
        });
    }
}
