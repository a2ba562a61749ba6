//! Starting and stopping a child: the one place that does either.
//!
//! A child runs in a process group of its own, with an environment built for it and no shell between; what it
//! prints on stderr is drained all the time into a ring. It is stopped by a ladder: end of input, wait, TERM to
//! the group, wait, KILL to the group (D-31, STD-1), and nothing of its tree is left.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process_group};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::process::{Child as Process, ChildStderr, Command};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::TaskTracker;

use super::guard::Guard;
use super::tree;
use crate::config::settings::{Launch, Stop};
use crate::transport::{Channel, PIPE};

/// What is kept of the stdout of a program that is run to its end…
const OUT: usize = 16 << 20;
/// …and of its stderr (D-27), and how many lines of that are told.
const RING: usize = 64 << 10;
const LAST_LINES: usize = 10;
/// How long its last words are waited for when it is gone.
const LAST_WORDS: Duration = Duration::from_millis(50);
/// Between two looks at a group that should be gone.
const LOOK: Duration = Duration::from_millis(10);

/// How fast a child is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// From the end of its input to TERM.
    pub input: Duration,
    /// From TERM to KILL.
    pub term: Duration,
}

impl Pace {
    /// When one server is stopped and nobody waits (contract §5).
    pub const CALM: Self = Self { input: Duration::from_secs(5), term: Duration::from_secs(3) };
    /// When our host is gone: all must be over within 1.5 s, because it kills us after 2 (contract §5).
    pub const SWIFT: Self = Self { input: Duration::from_millis(500), term: Duration::from_millis(400) };

    /// The waits for a server of these settings: whoever is in no hurry takes its own.
    pub fn of(self, settings: &Stop) -> Self {
        if self == Self::CALM { Self { input: settings.input, term: settings.term } } else { self }
    }
}

/// A running child.
pub(super) struct Child {
    process: Process,
    group: Pid,
    guard: Arc<Guard>,
    stderr: Arc<StderrRing>,
    /// Drains it; ended with the child, for a stray that keeps it open must not keep us.
    draining: JoinHandle<()>,
    /// Nobody of its group is left.
    ended: bool,
}

impl Drop for Child {
    /// Whoever has no time for [`Child::stop`] leaves no group behind; the runtime reaps the leader.
    fn drop(&mut self) {
        if !self.ended {
            let _ = kill_process_group(self.group, Signal::KILL);
            // The number may soon be another's: the guard must forget it.
            self.guard.remove(self.group);
        }
        self.draining.abort();
    }
}

/// Starts a child and connects to its standard streams.
pub(super) fn start(
    launch: &Launch,
    stderr_kept: usize,
    guard: &Arc<Guard>,
    tasks: &TaskTracker,
) -> io::Result<(Child, Channel)> {
    #[expect(clippy::disallowed_methods, reason = "this is the file that starts children")]
    let mut command = Command::new(&launch.program);
    command
        .args(launch.args.iter().map(crate::ident::Secret::reveal))
        .env_clear()
        .envs(launch.env.iter().map(|(name, value)| (name, value.reveal())))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    if let Some(cwd) = &launch.cwd {
        command.current_dir(cwd);
    }
    let mut process = command.spawn()?;
    let pid = process.id().and_then(|pid| Pid::from_raw(pid.cast_signed())).ok_or(io::ErrorKind::NotFound)?;
    guard.add(pid);
    let streams = (process.stdin.take(), process.stdout.take(), process.stderr.take());
    let (Some(stdin), Some(stdout), Some(stderr)) = streams else { return Err(io::ErrorKind::BrokenPipe.into()) };
    let ring = Arc::new(StderrRing::new(stderr_kept));
    let draining = tasks.spawn(Arc::clone(&ring).drain(stderr));
    // From here on, whatever fails, the child goes with what is returned or dropped.
    let child = Child { process, group: pid, guard: Arc::clone(guard), stderr: ring, draining, ended: false };
    let (stdin, stdout) = (stdin.into_owned_fd()?, stdout.into_owned_fd()?);
    for stream in [&stdin, &stdout] {
        // Fewer wake-ups for long answers; a smaller buffer works as well.
        let _ = rustix::pipe::fcntl_setpipe_size(stream, PIPE);
    }
    let channel = Channel::new(pipe::Receiver::from_owned_fd(stdout)?, pipe::Sender::from_owned_fd(stdin)?);
    Ok((child, channel))
}

/// What a program left behind that was run to its end.
#[derive(Debug)]
pub struct Ended {
    /// Whether it ended with 0.
    pub fine: bool,
    /// What it printed on stdout, at most so much of it.
    pub out: Vec<u8>,
    /// The last lines of its stderr, as they came: escape them before showing.
    pub said: Vec<String>,
}

/// Runs a program that is no server to its end, which comes after `most` at the latest.
pub(super) async fn to_end(
    launch: &Launch,
    guard: &Arc<Guard>,
    tasks: &TaskTracker,
    most: Duration,
) -> io::Result<Ended> {
    let (child, Channel { reader, writer }) = start(launch, RING, guard, tasks)?;
    drop(writer);
    let until = Instant::now() + most;
    let (mut out, mut reader) = (Vec::new(), reader);
    let reading = async {
        let mut buffer = vec![0; 8192];
        while let Ok(count @ 1..) = reader.read(&mut buffer).await {
            let room = OUT.saturating_sub(out.len());
            out.extend_from_slice(&buffer[..count.min(room)]);
        }
    };
    let _ = timeout(most, reading).await;
    let stderr = child.stderr();
    let left = until.saturating_duration_since(Instant::now());
    let status = child.stop(Pace { input: left, term: Pace::CALM.term }).await;
    Ok(Ended { fine: status.is_some_and(|status| status.success()), out, said: stderr.last_lines(LAST_LINES) })
}

impl Child {
    /// Its process number.
    pub(super) fn pid(&self) -> u32 {
        self.group.as_raw_nonzero().get().cast_unsigned()
    }

    /// What it printed on stderr, shared.
    pub(super) fn stderr(&self) -> Arc<StderrRing> {
        Arc::clone(&self.stderr)
    }

    /// Stops it and all that descends from it. Its input must have been closed before.
    pub(super) async fn stop(mut self, pace: Pace) -> Option<ExitStatus> {
        let groups = HashSet::from([self.group]);
        let began = Instant::now();
        // Looked up at once, because a child in a group of its own is nobody's when its parent has ended…
        let mut strays = tree::descendants(&groups);
        let mut status = timeout(pace.input, self.process.wait()).await.ok().and_then(Result::ok);
        // …and again, so that children born meanwhile are seen.
        let known = std::mem::replace(&mut strays, tree::descendants(&groups));
        strays.extend(known.into_iter().filter(tree::Stray::lives));
        let mut alive = status.is_none() || !has_ended(self.group, &mut Vec::new()) || !strays.is_empty();
        if alive && status.is_some() {
            // The leader is gone: give its children what is left of the first wait.
            alive = !gone(self.group, &strays, pace.input.saturating_sub(began.elapsed())).await;
        }
        for (signal, wait) in [(Signal::TERM, pace.term), (Signal::KILL, pace.term)] {
            if !alive {
                break;
            }
            let _ = kill_process_group(self.group, signal);
            for stray in strays.iter().filter(|stray| stray.lives()) {
                let _ = kill_process(stray.pid, signal);
            }
            let deadline = Instant::now() + wait;
            if status.is_none() {
                status = timeout(wait, self.process.wait()).await.ok().and_then(Result::ok);
            }
            alive = status.is_none() || !gone(self.group, &strays, deadline - Instant::now()).await;
        }
        if alive {
            tracing::error!(pid = self.pid(), "a child is still there after KILL");
        } else {
            self.ended = true;
            self.guard.remove(self.group);
            // What it said last may still be on its way.
            let _ = timeout(LAST_WORDS, &mut self.draining).await;
        }
        status
    }
}

/// Waits until nobody is left, `wait` at most.
async fn gone(group: Pid, strays: &[tree::Stray], wait: Duration) -> bool {
    let deadline = Instant::now() + wait;
    let mut members = Vec::new();
    loop {
        if has_ended(group, &mut members) && !strays.iter().any(tree::Stray::lives) {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        sleep(LOOK).await;
    }
}

/// Whether nobody lives in the group; `members` are those that were seen to. Looks for others only when they are
/// dead, because that means looking at every process there is.
fn has_ended(group: Pid, members: &mut Vec<tree::Stray>) -> bool {
    if test_kill_process_group(group).is_err() {
        return true;
    }
    if !members.iter().any(tree::Stray::lives) {
        match tree::members(group) {
            Some(found) => *members = found,
            None => return false,
        }
        return members.is_empty();
    }
    false
}

/// The last bytes of a child's stderr.
pub(super) struct StderrRing {
    /// So many, at most.
    most: usize,
    bytes: Mutex<VecDeque<u8>>,
}

impl StderrRing {
    fn new(most: usize) -> Self {
        Self { most, bytes: Mutex::default() }
    }

    /// Reads until the end, so that the child never waits for us (D011, D012).
    async fn drain(self: Arc<Self>, mut stderr: ChildStderr) {
        let mut buffer = vec![0; 4096];
        while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
            self.put(&buffer[..count]);
        }
    }

    fn put(&self, read: &[u8]) {
        let read = &read[read.len().saturating_sub(self.most)..];
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let over = (bytes.len() + read.len()).saturating_sub(self.most);
        bytes.drain(..over);
        bytes.extend(read);
    }

    /// The last lines, at most `count`, as they came: escape them before showing.
    pub(super) fn last_lines(&self, count: usize) -> Vec<String> {
        let bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&bytes.iter().copied().collect::<Vec<_>>()).into_owned();
        drop(bytes);
        let lines: Vec<_> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
        lines[lines.len().saturating_sub(count)..].iter().map(|line| (*line).to_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d012_the_ring_keeps_the_end_and_is_bounded() {
        let ring = StderrRing::new(RING);
        for n in 0..100_000 {
            ring.put(format!("line {n}\n").as_bytes());
        }
        ring.put(&vec![b'x'; 3 * RING]);
        ring.put(b"\nthe reason\n");
        let lines = ring.last_lines(2);
        assert_eq!(lines[1], "the reason");
        assert!(lines[0].len() < RING);
        assert!(ring.bytes.lock().unwrap().len() <= RING);
    }
}
