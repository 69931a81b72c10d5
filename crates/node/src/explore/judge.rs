//! What nobody may do, in any run: every act is judged by who knows everything (invariants 8 to 12 of the design).

use std::path::Path;
use std::rc::{Rc, Weak};

use model::{Act, Kernel, Process};
use rustix::process::Signal;
use topology::CpuSet;

use super::actors::{HOME, Part, Stage, Truth};
use super::invariants::{BUSY_NS, FRESH_NS, MS, beat_of, holder_of, is_squeezed};
use super::records::{has_group, is_on_record, traces_of};
use crate::registry::Traces;

/// Whoever takes the lease has taken in by then what its predecessor left.
const ATTACHED_NS: u64 = 500 * MS;
/// A region that began, or a process that was continued, within this time before an act: nobody could have seen that.
const UNSEEN_NS: u64 = MS;

/// Installs the onlooker of acts.
pub fn observe(stage: &Rc<Stage>) {
    let weak: Weak<Stage> = Rc::downgrade(stage);
    stage.world.observe(Box::new(move |kernel, by, act| {
        let Some(stage) = weak.upgrade() else { return Ok(()) };
        if stage.shows {
            let part = stage.part(by);
            stage.print_at(kernel.now_ns, || format!("{part:?} {by}: {act:?}"));
        }
        judge(&stage, kernel, by, act)
    }));
}

fn is_group_of_ours(group: &Path) -> bool {
    group.ancestors().nth(2).and_then(Path::file_name).is_some_and(|name| name == linux::cgroup::TOP)
}

/// A program of several that only wait for what they launched.
fn is_launcher(process: &Process) -> bool {
    process.name == "mpirun"
}

/// Who has done something, and when.
struct Judge<'a> {
    stage: &'a Stage,
    kernel: &'a Kernel,
    part: Part,
    /// For people.
    actor: String,
    /// What it does may come too late.
    late: bool,
}

fn judge(stage: &Stage, kernel: &Kernel, by: u32, act: &Act) -> Result<(), String> {
    let Some(part) = stage.part(by).or_else(|| guard_of(stage, kernel, by)) else { return Ok(()) };
    let actor = format!("{part:?} (process {by})");
    // A scheduler that was kept from running in the middle of an act completes it first, and finds out then that a
    // guard has set its programs free. That does not last: who stays squeezed is seen by the next looks.
    // Where the machine is so busy that this takes long, both act at once, and each may overwrite what the other notes.
    let slow = stage.world.was_slow(BUSY_NS);
    let late = slow || part != Part::Guard && kernel.now_ns.saturating_sub(beat_of(kernel)) >= FRESH_NS;
    let judge = Judge { stage, kernel, part, actor, late };
    match act {
        Act::StartedGuard(pid) => {
            stage.parts.borrow_mut().insert(*pid, Part::Guard);
            Ok(())
        }
        Act::Signalled { to, signal, stood, kept } => judge.check_signal(*to, *signal, *stood, *kept),
        Act::Masked { pid, tid, mask, had } => judge.check_mask(*pid, *tid, mask, had),
        Act::Moved { pid, group } => judge.check_move(*pid, group),
        Act::Froze { group, on: true } | Act::Idled { group, on: true } => judge.check_freeze(group),
        Act::Confined { group, cpus } => judge.check_confinement(group, cpus),
        Act::Wrote(path) if *path == Path::new(HOME).join("lease") => {
            stage.lease_acquired_ns.set(kernel.now_ns);
            Ok(())
        }
        _ => Ok(()),
    }
}

impl Judge<'_> {
    /// A process of a program; `None`: of who has ended by this nothing can be said any more.
    fn managed_process(&self, pid: u32, done: &str) -> Result<Option<&Process>, String> {
        let Some(process) = self.kernel.processes.get(&pid) else { return Ok(None) };
        // What is dead is not harmed.
        if process.name == "coplace" || process.zombie {
            return Ok(None);
        }
        let Judge { actor, .. } = self;
        match process.app {
            Some(_) => Ok(Some(process)),
            None => Err(format!("{actor} has {done} a stranger, {} {pid} (invariant 8)", process.name)),
        }
    }

    fn truth_of<T>(&self, process: &Process, ask: impl FnOnce(&Truth) -> T) -> T {
        ask(&self.stage.truths.borrow()[process.app.unwrap_or(0) as usize])
    }

    fn check_signal(&self, to: u32, signal: Signal, stood: bool, kept: bool) -> Result<(), String> {
        let Judge { kernel, part, actor, .. } = self;
        let Some(process) = self.managed_process(to, "signalled")? else { return Ok(()) };
        if signal == Signal::STOP {
            if is_launcher(process) {
                return Err(format!("{actor} has stopped the launcher {to} (invariant 8)"));
            }
            // `None`: unknown, so that whoever sets it free continues it.
            let noted = |traces: &Traces| traces.stops_by_signal != Some(false);
            if !traces_of(kernel, process).iter().any(noted) {
                return Err(format!(
                    "{actor} has stopped process {to}, and that is not on record (invariant 9)"
                ));
            }
        }
        // Its user may have continued it after the sender saw it stand.
        let stood_just_now = stood || kernel.now_ns < process.stood_until_ns + UNSEEN_NS;
        if signal == Signal::CONT && is_launcher(process) && !stood_just_now {
            return Err(format!("{actor} sends SIGCONT to the launcher {to}, which runs (invariant 8)"));
        }
        let (stopped, by_hand) = self.truth_of(process, |truth| (truth.user_stopped, truth.by_hand));
        if signal != Signal::CONT || !stopped {
            return Ok(());
        }
        let is_known = match by_hand {
            None => *part != Part::Run(process.app.unwrap_or(0) as usize),
            Some(by_hand) => self.may_know_of_stop(process, by_hand, kept),
        };
        if is_known {
            return Err(format!("{actor} continues process {to}, which its user has stopped (invariant 12)"));
        }
        // Nobody could know of it, and it goes on, perhaps without others of its program.
        self.stage.truths.borrow_mut()[process.app.unwrap_or(0) as usize].user_stopped = false;
        Ok(())
    }

    /// Whether somebody who continues a process can know that its user has stopped it by hand, at that time and under
    /// that holder of the lease. `kept`: the kernel shows it. A scheduler under which it was stopped in its turn sees
    /// that it stands.
    fn may_know_of_stop(&self, process: &Process, (at_ns, holder): (u64, u64), kept: bool) -> bool {
        if self.late || self.kernel.now_ns < at_ns + UNSEEN_NS {
            return false;
        }
        let is_on_record = traces_of(self.kernel, process).iter().any(|traces| traces.user_stopped);
        let had_all = at_ns > self.stage.lease_acquired_ns.get() + ATTACHED_NS;
        let takes_over = self.part == Part::Guard || holder_of(self.kernel) != holder || !had_all;
        kept || is_on_record || !takes_over
    }

    fn check_mask(&self, pid: u32, tid: u32, mask: &CpuSet, had: &CpuSet) -> Result<(), String> {
        let Judge { kernel, actor, late, .. } = self;
        let Some(process) = self.managed_process(pid, "bound")? else { return Ok(()) };
        let narrow =
            |truth: &Truth| !truth.chooses && mask.is_subset(&truth.original) && *mask != truth.original;
        if self.truth_of(process, narrow) && !late && !is_on_record(kernel, process, mask) {
            return Err(format!(
                "{actor} has bound thread {tid} of process {pid} to {mask}, which is not on record (invariant 9)"
            ));
        }
        // A team may have grown beyond its place by another's doing: by a guard that was kept from running in the middle
        // of setting it free. Who then moves a thread within the place takes nothing from it. That it does not last is
        // seen by the next looks.
        if had.is_subset(&kernel.cpus_of(process)) {
            return Ok(());
        }
        self.check_not_squeezed(process)
            .map_err(|why| format!("{actor} has bound thread {tid} to {mask}: {why}"))
    }

    fn check_move(&self, pid: u32, group: &Path) -> Result<(), String> {
        let Judge { kernel, actor, .. } = self;
        let Some(process) = self.managed_process(pid, "moved")? else { return Ok(()) };
        if is_group_of_ours(group) {
            let group_name = group.display();
            if is_launcher(process) {
                return Err(format!("{actor} has moved the launcher {pid} into {group_name} (invariant 8)"));
            }
            if !has_group(&traces_of(kernel, process), group) {
                return Err(format!(
                    "{actor} has moved process {pid} into {group_name}, which is not on record (invariant 9)"
                ));
            }
        }
        self.check_not_squeezed(process).map_err(|why| format!("{actor} has moved process {pid}: {why}"))
    }

    fn check_freeze(&self, group: &Path) -> Result<(), String> {
        for process in processes_in(self.kernel, group) {
            let Some(process) = self.managed_process(process.pid, "frozen")? else { continue };
            if !has_group(&traces_of(self.kernel, process), group) {
                return Err(format!(
                    "{} has frozen {} with process {}, which is not on record (invariant 9)",
                    self.actor,
                    group.display(),
                    process.pid
                ));
            }
        }
        Ok(())
    }

    fn check_confinement(&self, group: &Path, cpus: &CpuSet) -> Result<(), String> {
        for process in processes_in(self.kernel, group) {
            let Some(process) = self.managed_process(process.pid, "confined")? else { continue };
            let confined = |why| format!("{} has confined {} to {cpus}: {why}", self.actor, group.display());
            self.check_not_squeezed(process).map_err(confined)?;
        }
        Ok(())
    }

    /// Whether a team that runs has fewer CPUs than threads by our doing: it is as wide as it was asked to be, or has
    /// fewer than it began its region with.
    fn check_not_squeezed(&self, process: &Process) -> Result<(), String> {
        let lost = |cpus: &CpuSet| {
            if self.kernel.follows(process) {
                return true;
            }
            let entered = process.program.as_ref().map(|program| &program.entered);
            entered
                .is_some_and(|(at_ns, had)| cpus.len() < had.len() && self.kernel.now_ns > at_ns + UNSEEN_NS)
        };
        let (squeezed, chooses) = self
            .truth_of(process, |truth| (is_squeezed(self.kernel, process, &truth.original), truth.chooses));
        match squeezed {
            Some((team, cpus)) if !chooses && !self.late && lost(&cpus) => Err(format!(
                "its team of {team} has the CPUs {cpus} (invariant 10); {}",
                self.kernel.describe_page(process)
            )),
            _ => Ok(()),
        }
    }
}

/// A guard that the model started for somebody.
fn guard_of(stage: &Stage, kernel: &Kernel, pid: u32) -> Option<Part> {
    let is_ours = kernel.processes.get(&pid).is_some_and(|process| process.name == "coplace");
    is_ours.then(|| {
        stage.parts.borrow_mut().insert(pid, Part::Guard);
        Part::Guard
    })
}

fn processes_in<'a>(kernel: &'a Kernel, group: &'a Path) -> impl Iterator<Item = &'a Process> {
    let here = move |process: &&Process| kernel.group_paths(process).iter().any(|own| own.starts_with(group));
    kernel.processes.values().filter(|process| !process.zombie).filter(here)
}
