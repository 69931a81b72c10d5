//! Threads that keep to a place which the program has left, though nobody meant them to.
//!
//! Libraries that look at the machine (hwloc, and the libraries below MPI) bind their thread to one CPU after the
//! other and then to what it had before: the place of that moment. Since Linux 6.2 such a mask outlives the
//! cpuset, so that a thread which did this on one CPU would stay there for good when its program gets more, and
//! two ranks that spin for each other would share that CPU. So whoever is bound to exactly a place of earlier is
//! freed when the place becomes wider; those that bound themselves there while they had more keep to it.

use std::collections::BTreeSet;

use linux::{Process, affinity, procfs};
use topology::CpuSet;

use super::Harness;

/// For so long after a place has become wider threads may still bind themselves to what they saw before. They may
/// have stood still in between.
const LATE_NS: u64 = 3_000_000_000;

/// Of a process with more threads, the first of which look at machines, no more are looked at.
const MOST_THREADS: usize = 256;

/// What the threads of a program in a cpuset are bound to, as far as it matters here.
#[derive(Default)]
pub(super) struct Bound {
    /// The place that it has.
    now: CpuSet,
    /// Those that bound themselves to what is or was a place while they had more.
    own: BTreeSet<(Process, Process)>,
    /// Until when threads are looked at again.
    late_until_ns: u64,
}

impl Harness {
    /// To be called before the place changes: who has chosen the CPUs himself by now is known afterwards.
    pub(super) fn note_own(&mut self, processes: &[Process]) {
        let lives = |(process, thread): &(Process, Process)| {
            procfs::thread_stat(process.pid, thread.pid, &self.root).is_ok_and(|s| s.process() == *thread)
        };
        let mut own = std::mem::take(&mut self.bound.own);
        own.retain(lives);
        let had_more = |mask: &CpuSet| *mask != self.bound.now && mask.is_subset(&self.bound.now);
        let chosen = self.threads(processes, |mask| had_more(mask) && self.was_place(mask));
        own.extend(chosen.into_iter().map(|(process, thread, _)| (process, thread)));
        self.bound.own = own;
    }

    /// To be called when the place has become `cpus`.
    pub(super) fn note_place(&mut self, processes: &[Process], cpus: &CpuSet) {
        self.bound.now = cpus.clone();
        self.bound.late_until_ns = linux::clock::now_ns() + LATE_NS;
        self.unbind_left_behind(processes);
    }

    /// To be called at every look.
    pub fn unbind_late(&self, processes: &[Process]) {
        if !self.places_by_thread() && linux::clock::now_ns() < self.bound.late_until_ns {
            self.unbind_left_behind(processes);
        }
    }

    fn unbind_left_behind(&self, processes: &[Process]) {
        let cpus = &self.bound.now;
        let left = |mask: &CpuSet| mask != cpus && mask.is_subset(cpus) && self.was_place(mask);
        for (process, thread, mask) in self.threads(processes, left) {
            let before = self.traces.before.as_ref().and_then(|b| b.cpus_of(process, thread, &self.root));
            if !self.bound.own.contains(&(process, thread)) && before != Some(&mask) {
                // It has ended, or stays as it is: slower, not wrong.
                let _ = affinity::follow_cpuset(thread.pid);
            }
        }
    }

    fn was_place(&self, mask: &CpuSet) -> bool {
        self.traces.places.as_ref().is_some_and(|places| places.contains(mask))
    }

    fn threads(
        &self,
        processes: &[Process],
        wanted: impl Fn(&CpuSet) -> bool,
    ) -> Vec<(Process, Process, CpuSet)> {
        // With one place so far there is none that was left.
        if self.traces.places.as_ref().is_none_or(|places| places.len() < 2) {
            return Vec::new();
        }
        let mut found = Vec::new();
        for process in processes {
            let tids = procfs::threads(process.pid, &self.root).unwrap_or_default();
            for tid in tids.into_iter().take(MOST_THREADS) {
                if let Ok(mask) = affinity::get(tid)
                    && wanted(&mask)
                    && let Ok(stat) = procfs::thread_stat(process.pid, tid, &self.root)
                {
                    found.push((*process, stat.process(), mask));
                }
            }
        }
        found
    }
}
