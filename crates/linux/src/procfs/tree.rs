//! Who descends from whom.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt;

use super::{Process, Stat, dir, environ, numbered, stat, threads};
use crate::error::Result;
use crate::host;
use crate::root::{Root, read};

/// Every process there is, zombies included. A process that ends during the scan is left out.
pub fn all(root: &Root) -> Result<Vec<Stat>> {
    let mut processes = Vec::new();
    for pid in numbered(&root.proc)? {
        match stat(pid, root) {
            Ok(stat) => processes.push(stat),
            Err(error) if error.is_gone() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(processes)
}

/// The process with this pid and all its descendants, in ascending order of pid. Zombies are left
/// out (they can neither be moved nor run), their descendants are not.
///
/// One scan is a snapshot with holes: what forks during it may be missing. Callers that act on a
/// tree repeat scan and action until two scans agree.
pub fn tree(root_pid: u32, root: &Root) -> Result<Vec<Process>> {
    let seeds: Vec<Process> = Process::of(root_pid, root).into_iter().collect();
    tree_with(&seeds, root)
}

/// All living processes among `known` and their descendants. Processes that an earlier scan found
/// belong in `known`: once their parent has ended they descend from init and could not be found
/// again.
pub fn tree_with(known: &[Process], root: &Root) -> Result<Vec<Process>> {
    // What descends from nobody need not be looked for in all of /proc.
    if !known.iter().any(|process| process.is_same(root)) {
        return Ok(Vec::new());
    }
    Ok(descend(known, &all(root)?))
}

fn descend(known: &[Process], everyone: &[Stat]) -> Vec<Process> {
    let mut children: BTreeMap<u32, Vec<&Stat>> = BTreeMap::new();
    let mut by_pid: BTreeMap<u32, &Stat> = BTreeMap::new();
    for stat in everyone {
        children.entry(stat.ppid).or_default().push(stat);
        by_pid.insert(stat.pid, stat);
    }
    let mut found = BTreeSet::new();
    let mut living = Vec::new();
    let mut todo: Vec<&Stat> = known
        .iter()
        .filter_map(|process| by_pid.get(&process.pid).copied().filter(|stat| stat.process() == *process))
        .collect();
    while let Some(stat) = todo.pop() {
        if !found.insert(stat.pid) {
            continue;
        }
        if !stat.has_ended() {
            living.push(stat.process());
        }
        // A child cannot be older than its parent: where it is, the scan saw a pid before and
        // after its reuse.
        let younger = |child: &&&Stat| child.start_time_ticks >= stat.start_time_ticks;
        todo.extend(children.get(&stat.pid).into_iter().flatten().filter(younger));
    }
    living.sort_unstable();
    living
}

/// The children of a process as `/proc/PID/task/*/children` names them; `None` where the kernel
/// was built without that file (CONFIG_PROC_CHILDREN) or the process has ended.
///
/// The kernel promises a complete list only for a process that stands still: one that ends while
/// the file is read can hide another.
pub fn children(pid: u32, root: &Root) -> Option<Vec<u32>> {
    let mut pids = Vec::new();
    for tid in threads(pid, root).ok()? {
        let path = dir(pid, root).join("task").join(tid.to_string()).join("children");
        match read(&path) {
            Ok(text) => pids.extend(text.split_ascii_whitespace().filter_map(|pid| pid.parse::<u32>().ok())),
            // Only this thread may have ended; the file is really missing if its directory stays.
            Err(error) if error.is_gone() && !path.parent().is_some_and(host::exists) => {}
            Err(_) => return None,
        }
    }
    Some(pids)
}

/// Like [`tree_with`], walking the `children` files instead of all of `/proc`: its cost follows the
/// size of the program instead of that of the machine. A child that ends just then may hide another,
/// so whoever acts on what it finds repeats it until two scans agree, and whoever has one chance only
/// uses [`tree_with`]. Falls back to that where the files are missing.
pub fn tree_fast(known: &[Process], root: &Root) -> Result<Vec<Process>> {
    let mut found = BTreeSet::new();
    let mut living = Vec::new();
    let mut todo: Vec<Process> = known.to_vec();
    while let Some(process) = todo.pop() {
        if !found.insert(process.pid) {
            continue;
        }
        let Ok(stat) = process.stat(root) else { continue };
        if stat.has_ended() {
            continue;
        }
        living.push(process);
        match children(process.pid, root) {
            Some(pids) => todo.extend(pids.into_iter().filter_map(|pid| Process::of(pid, root).ok())),
            None if process.is_alive(root) => return tree_with(known, root),
            None => {}
        }
    }
    living.sort_unstable();
    Ok(living)
}

/// The living processes that started with the environment variable `name=value`. Finds members of
/// a program that lost their parents (daemons, restarts of the scheduler); only those whose
/// environment this user may read.
pub fn with_variable(name: &str, value: &str, root: &Root) -> Result<Vec<Process>> {
    let carries = |pid: u32| {
        environ(pid, root).is_ok_and(|variables| {
            variables.iter().any(|(n, v)| n.as_bytes() == name.as_bytes() && v.as_bytes() == value.as_bytes())
        })
    };
    Ok(all(root)?
        .into_iter()
        .filter(|stat| !stat.has_ended() && !stat.is_kernel_thread() && carries(stat.pid))
        .map(|stat| stat.process())
        .collect())
}
