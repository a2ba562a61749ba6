//! Who descends from a process: for those that left their parent's group.
//!
//! Reads `/proc`; where there is none, nobody is found and groups must do.

use std::collections::{BTreeSet, HashSet};

use rustix::process::Pid;

/// A process that is to end, told from a later one of the same number by when it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stray {
    pub(super) pid: Pid,
    began: u64,
}

impl Stray {
    /// Whether it is still that process.
    pub(super) fn lives(&self) -> bool {
        stat(self.pid).is_some_and(|stat| stat.began == self.began && stat.state != 'Z')
    }
}

struct Stat {
    pid: Pid,
    state: char,
    parent: i32,
    group: i32,
    began: u64,
}

fn stat(pid: Pid) -> Option<Stat> {
    let text = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    // The name in parentheses may hold anything; the last parenthesis ends it.
    let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    let began = fields.nth(16)?.parse().ok()?;
    Some(Stat { pid, state, parent, group, began })
}

/// Every process there is; `None` without a `/proc`.
fn everybody() -> Option<Vec<Stat>> {
    let entries = std::fs::read_dir("/proc").ok()?;
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok().and_then(Pid::from_raw));
    Some(pids.filter_map(stat).collect())
}

/// Who lives in a group; `None` where that cannot be told. The kernel counts the dead that nobody has reaped yet,
/// and whoever adopted them may take its time.
pub(super) fn members(group: Pid) -> Option<Vec<Stray>> {
    let group = group.as_raw_nonzero().get();
    let living = everybody()?.into_iter().filter(|stat| stat.group == group && stat.state != 'Z');
    Some(living.map(|stat| Stray { pid: stat.pid, began: stat.began }).collect())
}

/// All that descend from the groups' leaders or members and stand in other groups.
pub(super) fn descendants(groups: &HashSet<Pid>) -> Vec<Stray> {
    let Some(all) = everybody() else { return Vec::new() };
    let mut found: BTreeSet<i32> = groups.iter().map(|group| group.as_raw_nonzero().get()).collect();
    let ours = found.clone();
    loop {
        let before = found.len();
        for stat in &all {
            if found.contains(&stat.parent) || ours.contains(&stat.group) {
                found.insert(stat.pid.as_raw_nonzero().get());
            }
        }
        if found.len() == before {
            break;
        }
    }
    all.iter()
        .filter(|stat| found.contains(&stat.pid.as_raw_nonzero().get()) && !ours.contains(&stat.group))
        .map(|stat| Stray { pid: stat.pid, began: stat.began })
        .collect()
}
