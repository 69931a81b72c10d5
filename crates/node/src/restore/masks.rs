//! Threads get back the CPUs that they had, or chose since.

use std::collections::BTreeSet;

use linux::{Process, Tid, affinity, procfs};
use topology::CpuSet;

use super::{Freeing, MOST_ROUNDS};
use crate::before::{Before, is_placed};

impl Freeing<'_> {
    /// Gives threads their original CPUs back. `moved`: leaving a cpuset may have widened them
    /// beyond what they had (before Linux 6.2).
    pub(super) fn widen(&mut self, mut members: BTreeSet<Process>, moved: bool) {
        if broken!(NothingWidened) {
            return;
        }
        if let Some(before) = self.traces.before.clone() {
            return self.give_back_masks(&before, members, moved);
        }
        let original = &self.record.original_cpus;
        let nothing_placed = self.traces.places.as_ref().is_some_and(BTreeSet::is_empty);
        if original.is_empty() || nothing_placed && !moved && !self.traces.spreads {
            return;
        }
        let spread = |mask: &CpuSet| self.traces.spreads && mask.len() == 1;
        let is_ours = |mask: &CpuSet| {
            mask != original
                && match &self.traces.places {
                    Some(places) => places.contains(mask) || spread(mask),
                    None => mask.is_subset(original),
                }
        };
        let mut looked_at = BTreeSet::new();
        for _ in 0..MOST_ROUNDS {
            let before = looked_at.len();
            for process in &members {
                for tid in procfs::threads(process.pid, self.root).unwrap_or_default() {
                    let Ok(mask) = affinity::get(tid) else { continue };
                    let lost = moved && original.is_subset(&mask) && mask != *original;
                    let own = self.own_of(*process, tid);
                    let ours = match own {
                        Some(own) => mask != *own && is_placed(&mask, own, self.traces),
                        None => is_ours(&mask) || lost,
                    };
                    if !looked_at.insert(tid) || !ours {
                        continue;
                    }
                    match affinity::set(tid, own.unwrap_or(original)) {
                        Ok(()) => self.report.widened += 1,
                        Err(error) if error.is_gone() => {}
                        Err(error) => self.report.problems.push(error.into()),
                    }
                }
            }
            if looked_at.len() == before {
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
    fn give_back_masks(&mut self, before: &Before, mut members: BTreeSet<Process>, moved: bool) {
        let mut looked_at = BTreeSet::new();
        for _ in 0..MOST_ROUNDS {
            let known = looked_at.len();
            for process in &members {
                for tid in procfs::threads(process.pid, self.root).unwrap_or_default() {
                    let Ok(stat) = procfs::thread_stat(process.pid, tid, self.root) else { continue };
                    let own = self.own_of(*process, tid);
                    let own = own.or_else(|| before.cpus_of(*process, stat.process(), self.root));
                    let (Ok(mask), Some(own)) = (affinity::get(tid), own) else { continue };
                    let lost = moved && own.is_subset(&mask);
                    let ours = lost || is_placed(&mask, own, self.traces);
                    if !looked_at.insert((process.pid, tid)) || mask == *own || !ours {
                        continue;
                    }
                    match affinity::set(tid, own) {
                        Ok(()) => self.report.widened += 1,
                        Err(error) if error.is_gone() => {}
                        Err(error) => self.report.problems.push(error.into()),
                    }
                }
            }
            if looked_at.len() == known {
                return;
            }
            let known: Vec<Process> = members.iter().copied().collect();
            members.extend(procfs::tree_with(&known, self.root).unwrap_or_default());
        }
    }
}
