//! Signals, and how processes end.

use linux::page;
use rustix::process::Signal;

use crate::groups::Hierarchy;
use crate::kernel::{INIT, Kernel};
use crate::process::{Op, Process};

impl Kernel {
    /// A process ends; `whole`: it has done all that it was to do.
    pub fn exit(&mut self, pid: u32, whole: bool) {
        let Some(process) = self.processes.get_mut(&pid).filter(|process| !process.zombie) else { return };
        process.zombie = true;
        process.stopped = false;
        let (app, ppid, waited_for) = (process.app, process.ppid, process.is_waited_for);
        let has_script = process.program.take().is_some();
        if let (Some(app), true, true) = (app, whole, has_script) {
            *self.finished.entry(app).or_default() += 1;
        }
        if let Some(words) = process.page.take() {
            let state = self.half(&words, "state") | page::state::EXITED;
            self.put_half(&words, "state", state);
        }
        self.files.release_all(pid);
        let orphans: Vec<u32> =
            self.processes.values().filter(|child| child.ppid == pid).map(|c| c.pid).collect();
        for orphan in orphans {
            let child = self.processes.get_mut(&orphan).expect("just found");
            child.ppid = INIT;
            if child.zombie {
                self.processes.remove(&orphan);
            }
        }
        let parent_runs = self.processes.get(&ppid).and_then(|parent| parent.program.as_ref());
        let parent_waits = parent_runs.is_some_and(|program| program.now == Some(Op::Wait));
        if parent_waits {
            self.processes.remove(&pid);
            if !self.processes.values().any(|child| child.ppid == ppid && !child.zombie) {
                self.next_op(ppid);
            }
        } else if !waited_for && parent_runs.is_none() {
            self.processes.remove(&pid);
        }
    }

    pub(crate) fn reap_children(&mut self, pid: u32) {
        self.processes.retain(|_, child| child.ppid != pid || !child.zombie);
    }

    /// Whoever waits for a process takes note of its end.
    pub fn reap(&mut self, pid: u32) {
        if self.processes.get(&pid).is_some_and(|process| process.zombie) {
            self.processes.remove(&pid);
        }
    }

    /// A stop of one thread stops them all.
    pub fn stop_thread(&mut self, from: u32, pid: u32, tid: u32) -> Result<(), i32> {
        self.stop(from, pid, |process| {
            process.stops_pending_for.insert(tid);
        })
    }

    /// What comes to a process that stands, or cannot take note of it, is `kept`.
    fn stop(&mut self, from: u32, pid: u32, keep: impl FnOnce(&mut Process)) -> Result<(), i32> {
        let frozen = self.processes.get(&pid).is_some_and(|process| self.is_frozen(process));
        let process = self.processes.get_mut(&pid).ok_or(libc::ESRCH)?;
        if process.zombie {
            return Ok(());
        }
        if !process.stopped {
            process.stop_is_untaken = frozen;
            (process.stopped, process.stopped_by) = (true, from);
            if frozen {
                keep(process);
            }
        } else {
            keep(process);
        }
        self.touch(pid);
        Ok(())
    }

    /// As kill(2) does, whether or not `from` may. All but SIGSTOP and SIGCONT end the process, if need be
    /// once it goes on again. `ESRCH` where there is none.
    pub fn signal(&mut self, from: u32, pid: u32, signal: Signal) -> Result<(), i32> {
        let frozen = self.processes.get(&pid).map(|process| self.is_frozen(process));
        let frozen_v1 = frozen == Some(true)
            && self.processes[&pid]
                .groups
                .get(&Hierarchy::Freezer)
                .is_some_and(|group| self.groups.is_frozen(Hierarchy::Freezer, group));
        let process = self.processes.get_mut(&pid).ok_or(libc::ESRCH)?;
        if process.zombie {
            return Ok(());
        }
        match signal {
            Signal::STOP => {
                self.stop(from, pid, |process| process.stop_is_pending = true)?;
                // Whoever wanted it to stand last.
                let process = self.processes.get_mut(&pid).expect("it was just stopped");
                process.stopped_by = from;
                return Ok(());
            }
            Signal::CONT => {
                if process.stopped {
                    process.stood_until_ns = self.now_ns;
                }
                (process.stopped, process.stop_is_pending, process.stop_is_untaken) = (false, false, false);
                process.stops_pending_for.clear();
                if process.to_die.is_some() && frozen != Some(true) {
                    self.exit(pid, false);
                }
            }
            // A version 1 freezer holds back even this; version 2 lets it through.
            Signal::KILL if !frozen_v1 => self.exit(pid, false),
            _ if process.stopped || frozen == Some(true) => {
                // Nothing comes before SIGKILL.
                if process.to_die != Some(Signal::KILL) {
                    process.to_die = Some(signal);
                }
            }
            _ => self.exit(pid, false),
        }
        self.touch(pid);
        Ok(())
    }

    /// After a thaw: what was held back reaches its process.
    pub(crate) fn after_thaw(&mut self) {
        let untaken = |process: &&Process| process.stop_is_untaken && !self.is_frozen(process);
        let stop: Vec<u32> = self.processes.values().filter(untaken).map(|process| process.pid).collect();
        for pid in stop {
            let process = self.processes.get_mut(&pid).expect("just found");
            process.stop_is_untaken = false;
            // What came for a thread is taken note of before what came for the process.
            if process.stops_pending_for.pop_first().is_none() {
                process.stop_is_pending = false;
            }
        }
        let due =
            |process: &&Process| process.to_die.is_some() && !process.stopped && !self.is_frozen(process);
        let due: Vec<u32> = self.processes.values().filter(due).map(|process| process.pid).collect();
        due.into_iter().for_each(|pid| self.exit(pid, false));
        self.touch_all();
    }
}
