//! Who of a program's processes is under its harness. Launchers (mpirun and what it starts on each
//! node) only wait for what they launched; stopped, they would miss its messages and end the job.
//! They stay outside, and what they launch is brought in from there.

use std::collections::BTreeSet;

use linux::host;
use linux::{Process, affinity, procfs};
use topology::CpuSet;

use super::Harness;

impl Harness {
    /// Brings the groups and the targets of signals to what the program's processes are now.
    /// `original`: the CPUs that who goes outside gets back.
    pub fn update(
        &mut self,
        insiders: &[Process],
        outsiders: &BTreeSet<Process>,
        original: &CpuSet,
    ) -> linux::Result<()> {
        let before = std::mem::replace(&mut self.outside, outsiders.clone());
        let leaving: Vec<Process> = outsiders.difference(&before).copied().collect();
        let entering = before.iter().any(|process| insiders.contains(process));
        if !leaving.is_empty() {
            self.move_out(&leaving, &before, original);
        }
        {
            let mut targets = host::lock(&self.targets);
            match self.traces.user_stopped {
                true => targets.forget(&leaving),
                false => targets.release(&leaving, &self.root),
            }
            targets.update(insiders, &self.root);
        }
        // Children of insiders are born inside; those of launchers are not.
        if self.outside.is_empty() && !entering {
            return Ok(());
        }
        self.groups.move_in(insiders, &self.outside, &self.root)
    }

    /// What cannot be undone now is undone with everything else in the end. `outside`: those that were there before.
    ///
    /// Between its birth and its first instruction a rank looks like its launcher, and binds itself: it has no mask of
    /// ours, and keeps what it has.
    fn move_out(&mut self, leaving: &[Process], outside: &BTreeSet<Process>, original: &CpuSet) {
        self.groups.move_out(leaving, &self.root);
        if !self.places_by_thread() || self.traces.before.is_some() {
            return;
        }
        let born_outside = |process: &Process| {
            let parent = process.stat(&self.root).map(|stat| stat.ppid);
            parent.is_ok_and(|parent| outside.iter().any(|other| other.pid == parent))
        };
        let is_place = |mask: &CpuSet| self.traces.places.as_ref().is_none_or(|places| places.contains(mask));
        for process in leaving.iter().filter(|process| !born_outside(process)) {
            for tid in procfs::threads(process.pid, &self.root).unwrap_or_default() {
                if affinity::get(tid).is_ok_and(|mask| is_place(&mask)) {
                    // It has ended, or keeps what it has until the program is set free.
                    let _ = affinity::set(tid, original);
                }
            }
        }
    }
}
