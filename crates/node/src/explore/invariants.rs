//! What must never be, in any run: invariants 8 to 12 of the design, as an onlooker sees them who knows everything.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::{Rc, Weak};

use model::{Act, Kernel, Op, Process, World};
use rustix::process::Signal;
use topology::CpuSet;

use super::actors::{HOME, Part, Stage};
use super::records::{has_group, is_on_record, missing_group, traces_of};
use crate::registry::Traces;

const MS: u64 = 1_000_000;
/// How often everybody is looked at.
const LOOK_NS: u64 = 10 * MS;
/// Nobody stands still for longer while somebody schedules: the longest slices of all that may be in turn, and what
/// looking, deciding and a busy machine take.
const STILL_DELAY_NS: u64 = 1_500 * MS;
/// After the last sign of life of a scheduler everybody is free.
const FREE_NS: u64 = 1_200 * MS;
/// A team that came by itself to have fewer CPUs than threads is seen by then.
const SQUEEZED_NS: u64 = 1_500 * MS;
/// Groups that are on record and gone are made anew by then.
const GROUPLESS_NS: u64 = 1_500 * MS;
/// For so long after it was too busy the machine counts as that.
const BUSY_NS: u64 = 1_000 * MS;
/// A terminating signal has reached its program by then.
const DEATH_NS: u64 = 1_500 * MS;
/// The same where its `run` has had it released: nothing of ours stands in the way.
const RELEASED_NS: u64 = 50 * MS;
/// A lease is fresh for so long after a beat.
const FRESH_NS: u64 = crate::lease::FRESH_NS;

/// What the onlooker remembers between two looks.
#[derive(Debug, Default)]
struct Seen {
    looked_ns: u64,
    /// Since when a process stands still by our doing, by its number and beginning.
    still: BTreeMap<(u32, u64), u64>,
    squeezed: BTreeMap<(u32, u64), u64>,
    /// Since when a group that its program is on record to be in has been gone.
    groupless: BTreeMap<(u32, u64), u64>,
    /// The same of those with a bound thread while nobody schedules.
    bound: BTreeMap<(u32, u64), u64>,
    /// The last time at which somebody beat the lease.
    beat_ns: u64,
    /// Since when somebody has scheduled without a pause.
    scheduled_ns: Option<u64>,
    /// Since when somebody who can set programs free has lived and run all the time.
    guarded_ns: Option<u64>,
}

#[derive(Debug, Default)]
pub struct Onlooker {
    seen: RefCell<Seen>,
}

/// Installs the onlooker of acts.
pub fn observe(stage: &Rc<Stage>) {
    let weak: Weak<Stage> = Rc::downgrade(stage);
    stage.world.observe(Box::new(move |kernel, by, act| {
        let Some(stage) = weak.upgrade() else { return Ok(()) };
        if stage.shows {
            let part = stage.part(by);
            stage.show_at(kernel.now_ns, || format!("{part:?} {by}: {act:?}"));
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

fn judge(stage: &Stage, kernel: &Kernel, by: u32, act: &Act) -> Result<(), String> {
    let Some(part) = stage.part(by).or_else(|| guard_of(stage, kernel, by)) else { return Ok(()) };
    let who = format!("{part:?} (process {by})");
    // A scheduler that was kept from running in the middle of an act completes it first, and finds out then that a
    // guard has set its programs free. That does not last: who stays squeezed is seen by the next looks.
    // Where the machine is so busy that this takes long, both act at once, and each may overwrite what the other notes.
    let slow = stage.world.was_slow(BUSY_NS);
    let late = slow || part != Part::Guard && kernel.now_ns.saturating_sub(beat_of(kernel)) >= FRESH_NS;
    // Of who has ended by this nothing can be said any more.
    let managed = |pid: u32, what: &str| -> Result<Option<&Process>, String> {
        let Some(process) = kernel.processes.get(&pid) else { return Ok(None) };
        // What is dead is not harmed.
        if process.name == "coplace" || process.zombie {
            return Ok(None);
        }
        match process.app {
            Some(_) => Ok(Some(process)),
            None => Err(format!("{who} has {what} a stranger, {} {pid} (invariant 8)", process.name)),
        }
    };
    match act {
        Act::StartedGuard(pid) => {
            stage.parts.borrow_mut().insert(*pid, Part::Guard);
            Ok(())
        }
        Act::Signalled { to, signal, stood } => {
            let Some(process) = managed(*to, "signalled")? else { return Ok(()) };
            if *signal == Signal::STOP {
                if is_launcher(process) {
                    return Err(format!("{who} has stopped the launcher {to} (invariant 8)"));
                }
                // `None`: unknown, so that whoever sets it free continues it.
                let noted = |traces: &Traces| traces.stops_by_signal != Some(false);
                if !traces_of(kernel, process).iter().any(noted) {
                    return Err(format!(
                        "{who} has stopped process {to}, and that is not on record (invariant 9)"
                    ));
                }
            }
            if *signal == Signal::CONT && is_launcher(process) && !stood {
                return Err(format!("{who} sends SIGCONT to the launcher {to}, which runs (invariant 8)"));
            }
            let truths = stage.truths.borrow();
            let stopped = process.app.is_some_and(|app| truths[app as usize].user_stopped);
            if *signal == Signal::CONT && stopped && part != Part::Run(process.app.unwrap_or(0) as usize) {
                return Err(format!(
                    "{who} continues process {to}, which its user has stopped (invariant 12)"
                ));
            }
            Ok(())
        }
        Act::Masked { pid, tid, mask } => {
            let Some(process) = managed(*pid, "bound")? else { return Ok(()) };
            let truths = stage.truths.borrow();
            let truth = &truths[process.app.unwrap_or(0) as usize];
            let narrow = mask.is_subset(&truth.original) && *mask != truth.original;
            if narrow && !truth.chooses && !late && !is_on_record(kernel, process, mask) {
                return Err(format!(
                    "{who} has bound thread {tid} of process {pid} to {mask}, which is not on record (invariant 9)"
                ));
            }
            unsqueezed(kernel, process, &truth.original, truth.chooses || late)
                .map_err(|why| format!("{who} has bound thread {tid} to {mask}: {why}"))
        }
        Act::Moved { pid, group } => {
            let Some(process) = managed(*pid, "moved")? else { return Ok(()) };
            if is_group_of_ours(group) {
                if is_launcher(process) {
                    return Err(format!(
                        "{who} has moved the launcher {pid} into {} (invariant 8)",
                        group.display()
                    ));
                }
                if !has_group(&traces_of(kernel, process), group) {
                    return Err(format!(
                        "{who} has moved process {pid} into {}, which is not on record (invariant 9)",
                        group.display()
                    ));
                }
            }
            let truths = stage.truths.borrow();
            let truth = &truths[process.app.unwrap_or(0) as usize];
            unsqueezed(kernel, process, &truth.original, truth.chooses || late)
                .map_err(|why| format!("{who} has moved process {pid}: {why}"))
        }
        Act::Froze { group, on: true } | Act::Idled { group, on: true } => {
            for process in inside(kernel, group) {
                let Some(process) = managed(process.pid, "frozen")? else { continue };
                if !has_group(&traces_of(kernel, process), group) {
                    return Err(format!(
                        "{who} has frozen {} with process {}, which is not on record (invariant 9)",
                        group.display(),
                        process.pid
                    ));
                }
            }
            Ok(())
        }
        Act::Confined { group, cpus } => {
            for process in inside(kernel, group) {
                let Some(process) = managed(process.pid, "confined")? else { continue };
                let truths = stage.truths.borrow();
                let truth = &truths[process.app.unwrap_or(0) as usize];
                unsqueezed(kernel, process, &truth.original, truth.chooses || late)
                    .map_err(|why| format!("{who} has confined {} to {cpus}: {why}", group.display()))?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// When the lease was beaten last; 0: there is none.
fn beat_of(kernel: &Kernel) -> u64 {
    let bytes = kernel.file(&Path::new(HOME).join("lease")).unwrap_or_default();
    bytes.get(40..48).and_then(|word| word.try_into().ok()).map_or(0, u64::from_ne_bytes)
}

/// A guard that the model started for somebody.
fn guard_of(stage: &Stage, kernel: &Kernel, pid: u32) -> Option<Part> {
    let is_ours = kernel.processes.get(&pid).is_some_and(|process| process.name == "coplace");
    is_ours.then(|| {
        stage.parts.borrow_mut().insert(pid, Part::Guard);
        Part::Guard
    })
}

fn inside<'a>(kernel: &'a Kernel, group: &'a Path) -> impl Iterator<Item = &'a Process> {
    let here = move |process: &&Process| kernel.group_paths(process).iter().any(|own| own.starts_with(group));
    kernel.processes.values().filter(|process| !process.zombie).filter(here)
}

/// Whether a team runs on fewer CPUs than it has threads, though it could have had them.
fn is_squeezed(kernel: &Kernel, process: &Process, original: &CpuSet) -> Option<(u32, CpuSet)> {
    let program = process.program.as_ref()?;
    let runs = matches!(program.now, Some(Op::Region { .. })) && !program.passive;
    let cpus = kernel.cpus_of(process);
    let free = !kernel.stands_still(process) && !kernel.is_idle(process);
    let squeezed =
        runs && free && cpus.len() < program.team as usize && program.team as usize <= original.len();
    squeezed.then_some((program.team, cpus))
}

/// A region that began within this time before an act was none that anybody could have seen.
const UNSEEN_NS: u64 = MS;

/// Whether a team that runs has fewer CPUs than threads by our doing: it is as wide as it was asked to be, or has fewer
/// than it began its region with.
fn unsqueezed(kernel: &Kernel, process: &Process, original: &CpuSet, chooses: bool) -> Result<(), String> {
    let lost = |cpus: &CpuSet| {
        if kernel.follows(process) {
            return true;
        }
        let entered = process.program.as_ref().map(|program| &program.entered);
        entered.is_some_and(|(at_ns, had)| cpus.len() < had.len() && kernel.now_ns > at_ns + UNSEEN_NS)
    };
    match is_squeezed(kernel, process, original) {
        Some((team, cpus)) if !chooses && lost(&cpus) => Err(format!(
            "its team of {team} has the CPUs {cpus} (invariant 10); {}",
            kernel.page_words(process)
        )),
        _ => Ok(()),
    }
}

/// A thread that has less than its program had when it came.
fn narrowed(kernel: &Kernel, process: &Process, original: &CpuSet) -> Option<u32> {
    let narrow = |thread: &model::process::Thread| !original.is_subset(&kernel.effective(process, thread));
    process.threads.iter().find(|(_, thread)| narrow(thread)).map(|(tid, _)| *tid)
}

impl Onlooker {
    /// Looks at everybody, if it is time.
    pub fn look(&self, stage: &Stage, world: &World) {
        let now_ns = world.now_ns();
        let mut seen = self.seen.borrow_mut();
        if now_ns < seen.looked_ns + LOOK_NS {
            return;
        }
        let passed_ns = now_ns - seen.looked_ns;
        let stood_still = passed_ns > 10 * LOOK_NS;
        if stood_still || world.was_slow(BUSY_NS) {
            // The machine stood still, or as good as: nobody could do anything about anybody.
            let later = passed_ns;
            seen.still.values_mut().for_each(|since| *since += later);
            seen.squeezed.values_mut().for_each(|since| *since += later);
            seen.groupless.values_mut().for_each(|since| *since += later);
            seen.bound.values_mut().for_each(|since| *since += later);
            seen.beat_ns += later;
            seen.guarded_ns = seen.guarded_ns.map(|since| since + later);
            seen.scheduled_ns = seen.scheduled_ns.map(|since| since + later);
        }
        if stood_still {
            for truth in stage.truths.borrow_mut().iter_mut() {
                truth.doomed_at_ns = truth.doomed_at_ns.map(|at_ns| at_ns + passed_ns);
            }
        }
        seen.looked_ns = now_ns;
        let found = look(&mut seen, stage, world, now_ns);
        if let Err(what) = found {
            world.kernel.borrow_mut().found(what);
        }
    }
}

fn look(seen: &mut Seen, stage: &Stage, world: &World, now_ns: u64) -> Result<(), String> {
    let kernel = world.kernel.borrow();
    seen.beat_ns = seen.beat_ns.max(beat_of(&kernel));
    let scheduled = now_ns.saturating_sub(seen.beat_ns) < FRESH_NS;
    seen.scheduled_ns = scheduled.then(|| seen.scheduled_ns.unwrap_or(now_ns));
    let guard_lives = stage.parts.borrow().iter().any(|(pid, part)| *part == Part::Guard && world.acts(*pid));
    // Where nobody has done anything to the guard there is one.
    let guarded = guard_lives || !stage.scene.harms_guards();
    seen.guarded_ns = guarded.then(|| seen.guarded_ns.unwrap_or(now_ns));
    let truths = stage.truths.borrow();
    let mut standing = BTreeMap::new();
    let (mut squeezed, mut groupless, mut bound) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    for process in kernel.processes.values().filter(|process| !process.zombie) {
        let Some(app) = process.app else { continue };
        let (truth, key) = (&truths[app as usize], (process.pid, process.start_ticks));
        if let Some(at_ns) = truth.doomed_at_ns
            // Whom a scheduler that was killed has frozen nobody thaws while the guard is kept from running.
            && now_ns
                > at_ns
                    + if truth.released { RELEASED_NS } else { DEATH_NS + stage.scene.guards_stall_ns() }
            && Some(process.pid) == truth.process.map(|process| process.pid)
        {
            return Err(format!("p{app} was ended by its user, and lives (invariant 12)"));
        }
        if truth.user_stopped {
            let is_root = truth.process.is_some_and(|root| root.pid == process.pid);
            if is_root && !world.was_slow(BUSY_NS) && !process.stopped && !kernel.is_frozen(process) {
                return Err(format!("p{app} was stopped by its user, and runs (invariant 12)"));
            }
            continue;
        }
        let by_us = process.stopped && stage.parts.borrow().contains_key(&process.stopped_by);
        if kernel.is_frozen(process) || by_us {
            let since_ns = *seen.still.get(&key).unwrap_or(&now_ns);
            standing.insert(key, since_ns);
            let longest = stage.scene.slice_ms * MS * (stage.scene.programs.len() as u64) + STILL_DELAY_NS;
            // Who takes its turn after all others of a policy that has programs wait stands for as long as they run.
            let may_wait = matches!(stage.scene.policy, "BP");
            if let Some(scheduled_ns) = seen.scheduled_ns
                && !may_wait
                && now_ns.saturating_sub(since_ns.max(scheduled_ns)) > longest
            {
                let ms = (now_ns - since_ns) / MS;
                return Err(format!(
                    "p{app} (process {}) stands still for {ms} ms (invariant 11)",
                    process.pid
                ));
            }
            if let Some(guarded_ns) = seen.guarded_ns
                && !scheduled
                && now_ns - since_ns.max(seen.beat_ns).max(guarded_ns) > FREE_NS
            {
                let ms = (now_ns - seen.beat_ns) / MS;
                return Err(format!("nobody schedules for {ms} ms, and p{app} is not free (invariant 11)"));
            }
        }
        if let Some(guarded_ns) = seen.guarded_ns
            && !scheduled
            && truth.started
            && !truth.chooses
            && let Some(tid) = narrowed(&kernel, process, &truth.original)
        {
            // A scheduler that was kept from running in the middle of an act completes it before it finds out.
            let since_ns = *seen.bound.get(&key).unwrap_or(&now_ns);
            bound.insert(key, since_ns);
            if now_ns.saturating_sub(since_ns.max(seen.beat_ns).max(guarded_ns)) > FREE_NS {
                let ms = (now_ns - seen.beat_ns) / MS;
                return Err(format!(
                    "nobody schedules for {ms} ms, and thread {tid} of p{app} is bound (invariant 11)"
                ));
            }
        }
        if let Some(scheduled_ns) = seen.scheduled_ns
            && let Some(group) = missing_group(&kernel, process)
        {
            let since_ns = *seen.groupless.get(&key).unwrap_or(&now_ns);
            groupless.insert(key, since_ns);
            if now_ns.saturating_sub(since_ns.max(scheduled_ns)) > GROUPLESS_NS {
                return Err(format!(
                    "p{app} (process {}) is not in {} any more",
                    process.pid,
                    group.display()
                ));
            }
        }
        if !truth.chooses && is_squeezed(&kernel, process, &truth.original).is_some() {
            let since_ns = *seen.squeezed.get(&key).unwrap_or(&now_ns);
            squeezed.insert(key, since_ns);
            if now_ns - since_ns > SQUEEZED_NS {
                return Err(format!("p{app} (process {}) stays squeezed (invariant 10)", process.pid));
            }
        }
    }
    (seen.still, seen.squeezed, seen.groupless, seen.bound) = (standing, squeezed, groupless, bound);
    Ok(())
}
