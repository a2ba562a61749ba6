//! The record of decisions: one JSON line for each, chained by hashes, in a file that nobody else may read.
//!
//! A [`Record`] is filled in on the way of a request and handed over when that ends; it never waits. What is handed over
//! waits in a bounded queue ([`queue`]) for the one thread that writes ([`Keeper`]); what finds no place there is counted,
//! and the count is written. Files are [`file`]'s, their names [`names`]', the chain is [`chain`]'s.
//!
//! What stands in files is read by [`verify`].
//!
//! Deliberately knows no policy and no wire: words and names come in as text. Made by `daemon`, filled in by `gateway`,
//! read by `onegate audit` and `onegate policy replay`.

pub mod chain;
mod file;
mod names;
mod queue;
mod record;
mod shape;
pub mod used;
pub mod verify;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, SystemTime};

use data_encoding::HEXLOWER;

pub use names::{family, is_written};
pub use record::{Asked, Ended, Record, Verdict};
pub use shape::{Named, shape};

use crate::config::settings::AuditSettings;
use crate::shown::shown_str;
use file::Log;
use queue::Queue;

/// Why no file can be written.
#[derive(Debug, thiserror::Error)]
#[error("{place}: telemetry.audit.file: {why}")]
pub struct OpenError {
    place: String,
    why: String,
}

impl OpenError {
    fn of(settings: &AuditSettings, why: &str) -> Self {
        let file = shown_str(&settings.file.display().to_string());
        Self { place: settings.place.clone(), why: format!("`{file}` cannot be written: {why}") }
    }

    /// What is wrong, without the place.
    pub fn why(&self) -> &str {
        &self.why
    }
}

/// Where records go: what the way of a request has of all this.
pub struct Audit {
    queue: Arc<Queue>,
    /// What the sessions of this process are called by: no secret, and another one after each start.
    process: String,
    values: Box<[Named]>,
}

/// The thread that writes, and its end.
pub struct Keeper {
    queue: Arc<Queue>,
    done: Receiver<()>,
}

impl Audit {
    /// Opens the file, or one beside it where another process has it, and starts the thread that writes. A file that
    /// cannot be written is an error here, and never later (E-40).
    pub fn open(settings: &AuditSettings) -> Result<(Arc<Self>, Keeper), OpenError> {
        let failed = |why: String| OpenError::of(settings, &why);
        let process = process().map_err(|error| failed(error.to_string()))?;
        let log = Log::open(settings, &process).map_err(|error| failed(error.to_string()))?;
        let queue = Arc::new(Queue::default());
        let (end, done) = channel();
        let taking = Arc::clone(&queue);
        let writing = thread::Builder::new().name("audit".to_owned()).spawn(move || {
            let mut log = log;
            while let Some((records, lost)) = taking.take() {
                log.write(SystemTime::now(), &records, lost);
            }
            log.end();
            // The file is free when the end is told.
            drop(log);
            drop(end);
        });
        writing.map_err(|error| failed(error.to_string()))?;
        let keeper = Keeper { queue: Arc::clone(&queue), done };
        Ok((Arc::new(Self::new(queue, process, &settings.values)), keeper))
    }

    /// What would keep [`Self::open`] from doing so, as far as that shows without making anything.
    pub fn check(settings: &AuditSettings) -> Result<(), OpenError> {
        names::problem(&settings.file).map_or(Ok(()), |why| Err(OpenError::of(settings, &why)))
    }

    fn new(queue: Arc<Queue>, process: String, values: &[String]) -> Self {
        Self { queue, process, values: values.iter().map(|pointer| Named::new(pointer)).collect() }
    }
}

impl Keeper {
    /// Has everything written that was handed over, and the file closed; answers whether that was done in time. Waits,
    /// so it is called where nothing else has to go on.
    pub fn finish(&self, limit: Duration) -> bool {
        self.queue.close();
        // Nothing is ever sent: its end is.
        self.done.recv_timeout(limit) == Err(std::sync::mpsc::RecvTimeoutError::Disconnected)
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.queue.close();
    }
}

/// A name for this process.
fn process() -> std::io::Result<String> {
    let mut bytes = [0; 4];
    getrandom::fill(&mut bytes).map_err(|error| std::io::Error::other(error.to_string()))?;
    Ok(HEXLOWER.encode(&bytes))
}

#[cfg(test)]
mod tests;
