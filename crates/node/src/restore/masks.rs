//! Threads get back the CPUs that they had, or chose since.

use std::collections::BTreeSet;

use linux::{Process, Tid, affinity, procfs};
use topology::CpuSet;

use super::{Freeing, MOST_ROUNDS};
use crate::acts::Act;
use crate::prior_state::PriorState;

/// Whether a thread that had these CPUs itself can have this mask by one of these acts.
fn is_part(acts: &[&Act], own: &CpuSet, mask: &CpuSet) -> bool {
    acts.iter().any(|act| act.accounts_for_thread(own, mask))
}

impl Freeing<'_> {
    /// Gives threads their original CPUs back that have others by one of these acts.
    pub(super) fn restore_cpus(&mut self, acts: &[&Act]) {
        if broken!(NothingWidened) {
            return;
        }
        // Leaving a cpuset may have widened them beyond what they had (before Linux 6.2).
        let moved = acts.iter().any(|act| act.group().is_some());
        let mut members: BTreeSet<Process> = self.members.iter().copied().collect();
        if let Some(before) = &self.traces.before {
            return self.restore_masks(before, members, acts, moved);
        }
        let original = &self.record.original_cpus;
        if original.is_empty() || acts.is_empty() {
            return;
        }
        let is_ours =
            |mask: &CpuSet| mask != original && acts.iter().any(|act| act.accounts_for(mask, original));
        let mut visited = BTreeSet::new();
        for _ in 0..MOST_ROUNDS {
            let before = visited.len();
            for process in &members {
                for tid in procfs::threads(process.pid, self.root).unwrap_or_default() {
                    let Ok(mask) = affinity::get(tid) else { continue };
                    let lost = moved && original.is_subset(&mask) && mask != *original;
                    let own = self.own_of(*process, tid);
                    let ours = match own {
                        Some(own) => mask != *own && is_part(acts, own, &mask),
                        None => is_ours(&mask) || lost,
                    };
                    if !visited.insert(tid) || !ours {
                        continue;
                    }
                    match affinity::set(tid, own.unwrap_or(original)) {
                        Ok(()) => self.report.widened += 1,
                        Err(error) if error.is_gone() => {}
                        Err(error) => self.report.problems.push(error.into()),
                    }
                }
            }
            if visited.len() == before {
                return;
            }
            // Threads that were made meanwhile have inherited the mask of one not yet widened.
            let known: Vec<Process> = members.iter().copied().collect();
            members.extend(procfs::tree_with(&known, self.root).unwrap_or_default());
        }
    }

    /// The CPUs that the program chose for this thread, where its mask could be taken for ours.
    fn own_of(&self, process: Process, tid: Tid) -> Option<&CpuSet> {
        let own: Vec<_> = self.traces.own.iter().filter(|own| own.process == process).collect();
        if own.is_empty() {
            return None;
        }
        let thread = procfs::thread_stat(process.pid, tid, self.root).ok()?.process();
        let its = own.iter().find(|own| own.thread == Some(thread));
        its.or_else(|| own.iter().find(|own| own.thread.is_none())).map(|own| &own.cpus)
    }

    /// Gives each thread of a program that was running when it came what it had then. A mask that a
    /// thread chose itself since is its own.
    fn restore_masks(
        &mut self,
        before: &PriorState,
        mut members: BTreeSet<Process>,
        acts: &[&Act],
        moved: bool,
    ) {
        let mut visited = BTreeSet::new();
        for _ in 0..MOST_ROUNDS {
            let known = visited.len();
            for process in &members {
                for tid in procfs::threads(process.pid, self.root).unwrap_or_default() {
                    let Ok(stat) = procfs::thread_stat(process.pid, tid, self.root) else { continue };
                    let own = self.own_of(*process, tid);
                    let own = own.or_else(|| before.cpus_of(*process, stat.process(), self.root));
                    let (Ok(mask), Some(own)) = (affinity::get(tid), own) else { continue };
                    let lost = moved && own.is_subset(&mask);
                    let ours = lost || is_part(acts, own, &mask);
                    if !visited.insert((process.pid, tid)) || mask == *own || !ours {
                        continue;
                    }
                    match affinity::set(tid, own) {
                        Ok(()) => self.report.widened += 1,
                        Err(error) if error.is_gone() => {}
                        Err(error) => self.report.problems.push(error.into()),
                    }
                }
            }
            if visited.len() == known {
                return;
            }
            let known: Vec<Process> = members.iter().copied().collect();
            members.extend(procfs::tree_with(&known, self.root).unwrap_or_default());
        }
    }
}
