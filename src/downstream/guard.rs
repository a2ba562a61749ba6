//! The guard: one tiny process beside the gateway that ends the gateway's children when the gateway is gone
//! without having done so itself (contract §5, D-31).
//!
//! It holds the reading end of a pipe whose writing end only the gateway has. The gateway tells it which
//! process groups live; when the pipe ends, whoever is still named is ended, first kindly, then not. It runs
//! before anything else of the program is set up, so that it stays small.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process_group};

use super::tree;

/// The hidden first argument that makes this program a guard.
pub const ARGUMENT: &str = "guard-children";

/// From the kind to the unkind signal.
const GRACE: Duration = Duration::from_millis(400);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// The gateway's end. Dropping it ends the guard, which by then has nobody to end.
pub struct Guard {
    process: Mutex<Option<(Child, ChildStdin)>>,
}

impl Guard {
    /// Starts the guard from the running program itself.
    pub fn start() -> std::io::Result<Self> {
        let program = if cfg!(target_os = "linux") { "/proc/self/exe".into() } else { std::env::current_exe()? };
        #[expect(clippy::disallowed_methods, reason = "the guard is the one process of ours that is no server")]
        let mut child = Command::new(program)
            .arg0("onegate")
            .arg(ARGUMENT)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let pipe = child.stdin.take().expect("the guard's input is a pipe");
        Ok(Self { process: Mutex::new(Some((child, pipe))) })
    }

    /// A gateway without a guard, for servers that are no processes.
    pub fn none() -> Self {
        Self { process: Mutex::new(None) }
    }

    /// This group lives from now on.
    pub(super) fn add(&self, group: Pid) {
        self.tell('+', group);
    }

    /// This group is gone.
    pub(super) fn remove(&self, group: Pid) {
        self.tell('-', group);
    }

    fn tell(&self, sign: char, group: Pid) {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, pipe)) = process.as_mut() {
            let line = format!("{sign}{}\n", group.as_raw_nonzero());
            if let Err(error) = pipe.write_all(line.as_bytes()) {
                tracing::warn!(%error, "the guard process is gone; children may outlive a killed gateway");
                *process = None;
            }
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let process = self.process.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some((mut child, pipe)) = process.take() {
            drop(pipe);
            // It ends at the end of its input; should it not, it is no longer ours to wait for.
            let _ = child.try_wait();
        }
    }
}

/// The guard's own program: returns when all is done.
pub fn main() {
    let mut groups = HashSet::new();
    let mut input = BufReader::with_capacity(256, std::io::stdin().lock());
    let mut line = String::new();
    while let Ok(1..) = input.read_line(&mut line) {
        let (sign, number) = line.trim().split_at_checked(1).unwrap_or(("", ""));
        if let Some(group) = number.parse().ok().and_then(Pid::from_raw) {
            match sign {
                "+" => _ = groups.insert(group),
                "-" => _ = groups.remove(&group),
                _ => {}
            }
        }
        line.clear();
    }
    end(&groups);
}

/// Ends the groups and what descends from them.
fn end(groups: &HashSet<Pid>) {
    if groups.is_empty() {
        return;
    }
    let strays = tree::descendants(groups);
    let signal = |signal| {
        for &group in groups {
            // A group that is gone by itself is what we want.
            let _ = kill_process_group(group, signal);
        }
        for stray in &strays {
            if stray.lives() {
                let _ = kill_process(stray.pid, signal);
            }
        }
    };
    signal(Signal::TERM);
    let deadline = Instant::now() + GRACE;
    while Instant::now() < deadline {
        let alive = groups.iter().any(|&g| test_kill_process_group(g).is_ok()) || strays.iter().any(tree::Stray::lives);
        if !alive {
            return;
        }
        std::thread::sleep(LOOK);
    }
    signal(Signal::KILL);
}
