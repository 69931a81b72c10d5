//! What a running program had before it was taken in: the CPU mask of every thread and the cgroups
//! of every process. Written down with the traces, so that anybody can give it back exactly.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use linux::{Process, Root, affinity, cgroup, procfs};
use serde::{Deserialize, Serialize};
use topology::CpuSet;

/// Scans in a row that may each find new threads before a program counts as one that cannot be
/// seen whole.
const MOST_ROUNDS: u32 = 16;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PriorState {
    threads: Vec<ThreadBefore>,
    processes: Vec<ProcessBefore>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ThreadBefore {
    process: Process,
    thread: Process,
    cpus: CpuSet,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ProcessBefore {
    process: Process,
    /// For each hierarchy, by its mount point, the group's directory.
    groups: BTreeMap<PathBuf, PathBuf>,
}

#[derive(Clone, Debug, thiserror::Error)]
pub enum PriorStateError {
    #[error(transparent)]
    Linux(#[from] linux::Error),
    #[error("its threads stand in different cgroups ({0}), which could not be given back as they are")]
    Scattered(PathBuf),
    #[error("it makes threads or processes faster than they can be looked at")]
    TooFast,
}

impl PriorState {
    /// Looks at these processes and their descendants until a scan finds nobody new.
    pub fn read(processes: &[Process], root: &Root) -> Result<PriorState, PriorStateError> {
        let mounts = cgroup::mounts(root)?;
        let mut before = PriorState::default();
        for _ in 0..MOST_ROUNDS {
            let known = before.threads.len();
            for process in procfs::tree_with(processes, root)? {
                before.note(process, &mounts, root)?;
            }
            if before.threads.len() == known {
                return Ok(before);
            }
        }
        Err(PriorStateError::TooFast)
    }

    fn note(
        &mut self,
        process: Process,
        mounts: &cgroup::Mounts,
        root: &Root,
    ) -> Result<(), PriorStateError> {
        // Who ends meanwhile has nothing to be given back.
        let Ok(membership) = cgroup::membership(process.pid, root) else { return Ok(()) };
        let groups = mounts.dirs(&membership);
        for tid in procfs::threads(process.pid, root).unwrap_or_default() {
            let Ok(stat) = procfs::thread_stat(process.pid, tid, root) else { continue };
            let thread = stat.process();
            if stat.has_ended() || self.own(process, thread).is_some() {
                continue;
            }
            if let Ok(apart) = cgroup::thread_membership(process.pid, tid, root)
                && apart != membership
                && process.is_alive(root)
            {
                let dirs = mounts.dirs(&apart);
                let other = dirs.into_values().find(|dir| !groups.values().any(|group| group == dir));
                return Err(PriorStateError::Scattered(other.unwrap_or_default()));
            }
            if let Ok(cpus) = affinity::get(tid) {
                self.threads.push(ThreadBefore { process, thread, cpus });
            }
        }
        if !self.processes.iter().any(|known| known.process == process) {
            self.processes.push(ProcessBefore { process, groups });
        }
        Ok(())
    }

    fn own(&self, process: Process, thread: Process) -> Option<&CpuSet> {
        let known = |entry: &&ThreadBefore| entry.thread == thread && entry.process == process;
        self.threads.iter().find(known).map(|entry| &entry.cpus)
    }

    /// Every CPU that any thread of these processes might use.
    pub fn cpus_of_all(&self, processes: &[Process]) -> CpuSet {
        let theirs = self.threads.iter().filter(|entry| processes.contains(&entry.process));
        theirs.fold(CpuSet::new(), |all, entry| all.union(&entry.cpus))
    }

    /// What a thread is to have again. One that was made since has what its process's first thread
    /// had; in a process that was made since, what the first thread of the nearest known ancestor had.
    pub fn cpus_of(&self, process: Process, thread: Process, root: &Root) -> Option<&CpuSet> {
        self.own(process, thread).or_else(|| {
            let first = |at: Process| self.own(at, at);
            self.nearest(process, root, first).or_else(|| self.threads.first().map(|entry| &entry.cpus))
        })
    }

    /// The group in the hierarchy mounted at `mount` to which a process goes back.
    pub fn group_of(&self, process: Process, mount: &Path, root: &Root) -> Option<&PathBuf> {
        let groups =
            |at: Process| self.processes.iter().find(|known| known.process == at).map(|known| &known.groups);
        let groups =
            self.nearest(process, root, groups).or(self.processes.first().map(|first| &first.groups));
        groups?.get(mount)
    }

    /// What `of` says of the process or of its nearest ancestor of whom it says anything.
    fn nearest<'a, T>(
        &'a self,
        process: Process,
        root: &Root,
        of: impl Fn(Process) -> Option<&'a T>,
    ) -> Option<&'a T> {
        let mut at = process;
        // Bounded: a torn /proc can name ancestors in a circle.
        for _ in 0..64 {
            if let Some(found) = of(at) {
                return Some(found);
            }
            let parent = procfs::stat(at.pid, root).ok()?.ppid;
            at = Process::of(parent, root).ok().filter(|_| parent > 1)?;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_threads_get_the_cpus_of_their_first_thread() {
        let root = Root::live();
        // A process of its own: in this one other tests make threads meanwhile.
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let own = Process::of(child.id(), &root).unwrap();
        let before = PriorState::read(&[own], &root).unwrap();
        let mask = affinity::get(own.pid).unwrap();
        assert_eq!(before.cpus_of(own, own, &root), Some(&mask));
        let unknown = Process { pid: u32::MAX, start_time_ticks: 1 };
        assert_eq!(before.cpus_of(own, unknown, &root), Some(&mask));
        assert!(mask.is_subset(&before.cpus_of_all(&[own])));
        let mounts = cgroup::mounts(&root).unwrap();
        for (mount, dir) in mounts.dirs(&cgroup::membership(own.pid, &root).unwrap()) {
            assert_eq!(before.group_of(own, &mount, &root), Some(&dir));
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
