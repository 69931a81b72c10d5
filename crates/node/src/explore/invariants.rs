//! What must never be, in any run: invariants 8 to 12 of the design, as an onlooker sees them who knows everything.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;

use model::process::Thread;
use model::{Kernel, Op, Process, World};
use topology::CpuSet;

use super::actors::{HOME, Part, Stage, Truth};
use super::records::missing_group;

pub(super) const MS: u64 = 1_000_000;
/// How often everybody is looked at.
const CHECK_NS: u64 = 10 * MS;
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
pub(super) const BUSY_NS: u64 = 1_000 * MS;
/// A terminating signal has reached its program by then.
const DEATH_NS: u64 = 1_500 * MS;
/// The same where its `run` has had it released: nothing of ours stands in the way.
const RELEASED_NS: u64 = 50 * MS;
/// A lease is fresh for so long after a beat.
pub(super) const FRESH_NS: u64 = crate::lease::FRESH_NS;

/// A process, by its number and beginning.
type Key = (u32, u64);

/// Since when something has held of processes, at every look.
#[derive(Debug, Default)]
struct Lasting {
    since_ns: BTreeMap<Key, u64>,
    now: BTreeMap<Key, u64>,
}

impl Lasting {
    /// It holds now; since when.
    fn mark_holding(&mut self, key: Key, now_ns: u64) -> u64 {
        let since_ns = *self.since_ns.get(&key).unwrap_or(&now_ns);
        self.now.insert(key, since_ns);
        since_ns
    }

    /// Of whom it was not said in this look, it does not hold any more.
    fn end_check(&mut self) {
        self.since_ns = std::mem::take(&mut self.now);
    }

    /// A time that does not count has passed.
    fn postpone(&mut self, by_ns: u64) {
        self.since_ns.values_mut().for_each(|since| *since += by_ns);
    }
}

/// What the onlooker remembers between two looks.
#[derive(Debug, Default)]
struct Observations {
    checked_ns: u64,
    /// Who stands still by our doing.
    still: Lasting,
    squeezed: Lasting,
    /// Who is on record to be in a group that is gone.
    groupless: Lasting,
    /// Who has a bound thread while nobody schedules.
    bound: Lasting,
    /// The last time at which somebody beat the lease.
    beat_ns: u64,
    /// Since when somebody has scheduled without a pause.
    scheduled_ns: Option<u64>,
    /// Since when somebody who can set programs free has lived and run all the time.
    guarded_ns: Option<u64>,
}

#[derive(Debug, Default)]
pub struct Onlooker {
    observations: RefCell<Observations>,
}

/// When the lease was beaten last; 0: there is none.
pub(super) fn beat_of(kernel: &Kernel) -> u64 {
    let bytes = kernel.file(&Path::new(HOME).join("lease")).unwrap_or_default();
    bytes.get(40..48).and_then(|word| word.try_into().ok()).map_or(0, u64::from_ne_bytes)
}

/// The process that holds the lease; 0: there is none.
pub(super) fn holder_of(kernel: &Kernel) -> u64 {
    let bytes = kernel.file(&Path::new(HOME).join("lease")).unwrap_or_default();
    bytes.get(16..24).and_then(|word| word.try_into().ok()).map_or(0, u64::from_ne_bytes)
}

/// Whether a team runs on fewer CPUs than it has threads, though it could have had them.
pub(super) fn is_squeezed(kernel: &Kernel, process: &Process, original: &CpuSet) -> Option<(u32, CpuSet)> {
    let program = process.program.as_ref()?;
    let runs = matches!(program.now, Some(Op::Region { .. })) && !program.passive;
    let cpus = kernel.cpus_of(process);
    let free = !kernel.stands_still(process) && !kernel.is_idle(process);
    let squeezed =
        runs && free && cpus.len() < program.team as usize && program.team as usize <= original.len();
    squeezed.then_some((program.team, cpus))
}

/// A thread that has less than its program had when it came.
fn find_narrowed_thread(kernel: &Kernel, process: &Process, original: &CpuSet) -> Option<u32> {
    let narrow = |thread: &Thread| !original.is_subset(&kernel.effective(process, thread));
    process.threads.iter().find(|(_, thread)| narrow(thread)).map(|(tid, _)| *tid)
}

impl Onlooker {
    /// Looks at everybody, if it is time.
    pub fn check(&self, stage: &Stage, world: &World) {
        let now_ns = world.now_ns();
        let mut observations = self.observations.borrow_mut();
        if now_ns < observations.checked_ns + CHECK_NS {
            return;
        }
        let passed_ns = now_ns - observations.checked_ns;
        let stood_still = passed_ns > 10 * CHECK_NS;
        if stood_still || world.was_slow(BUSY_NS) {
            // The machine stood still, or as good as: nobody could do anything about anybody.
            observations.postpone(passed_ns);
        }
        if stood_still {
            for truth in stage.truths.borrow_mut().iter_mut() {
                truth.doomed_at_ns = truth.doomed_at_ns.map(|at_ns| at_ns + passed_ns);
            }
        }
        observations.checked_ns = now_ns;
        let found = observations.check(stage, world, now_ns);
        if let Err(what) = found {
            world.kernel.borrow_mut().report_violation(what);
        }
    }
}

impl Observations {
    /// Since when there has been somebody to set programs free, where nobody schedules.
    fn unscheduled_but_guarded_ns(&self) -> Option<u64> {
        self.guarded_ns.filter(|_| self.scheduled_ns.is_none())
    }

    fn postpone(&mut self, by_ns: u64) {
        let Observations { still, squeezed, groupless, bound, beat_ns, guarded_ns, scheduled_ns, .. } = self;
        [still, squeezed, groupless, bound].into_iter().for_each(|lasting| lasting.postpone(by_ns));
        *beat_ns += by_ns;
        [guarded_ns, scheduled_ns].into_iter().flatten().for_each(|since| *since += by_ns);
    }

    fn end_check(&mut self) {
        let Observations { still, squeezed, groupless, bound, .. } = self;
        [still, squeezed, groupless, bound].into_iter().for_each(Lasting::end_check);
    }

    fn check(&mut self, stage: &Stage, world: &World, now_ns: u64) -> Result<(), String> {
        let kernel = world.kernel.borrow();
        self.beat_ns = self.beat_ns.max(beat_of(&kernel));
        let scheduled = now_ns.saturating_sub(self.beat_ns) < FRESH_NS;
        self.scheduled_ns = scheduled.then(|| self.scheduled_ns.unwrap_or(now_ns));
        let is_guard = |part: &Part| *part == Part::Guard;
        let guard_lives = stage.parts.borrow().iter().any(|(pid, part)| is_guard(part) && world.acts(*pid));
        // Where nobody has done anything to the guard there is one.
        let guarded = guard_lives || !stage.scene.has_guard_faults();
        self.guarded_ns = guarded.then(|| self.guarded_ns.unwrap_or(now_ns));
        let truths = stage.truths.borrow();
        for process in kernel.processes.values().filter(|process| !process.zombie) {
            let Some(app) = process.app else { continue };
            let subject =
                Subject { stage, world, kernel: &kernel, process, app, truth: &truths[app as usize], now_ns };
            subject.check_ended()?;
            if subject.truth.user_stopped {
                subject.check_stays_stopped()?;
                continue;
            }
            subject.check_let_run(self)?;
            subject.check_unbound(self)?;
            subject.check_group(self)?;
            subject.check_cpus(self)?;
        }
        self.end_check();
        Ok(())
    }
}

/// One process at one look.
struct Subject<'a> {
    stage: &'a Stage,
    world: &'a World,
    kernel: &'a Kernel,
    process: &'a Process,
    app: u32,
    truth: &'a Truth,
    now_ns: u64,
}

impl Subject<'_> {
    fn key(&self) -> Key {
        (self.process.pid, self.process.start_ticks)
    }

    fn is_root(&self) -> bool {
        self.truth.process.is_some_and(|root| root.pid == self.process.pid)
    }

    fn check_ended(&self) -> Result<(), String> {
        let Subject { stage, app, truth, now_ns, .. } = self;
        // Whom a scheduler that was killed has frozen nobody thaws while the guard is kept from running.
        let patience_ns = if truth.released { RELEASED_NS } else { DEATH_NS + stage.scene.guard_stall_ns() };
        match truth.doomed_at_ns {
            Some(at_ns) if *now_ns > at_ns + patience_ns && self.is_root() => {
                Err(format!("p{app} was ended by its user, and lives (invariant 12)"))
            }
            _ => Ok(()),
        }
    }

    fn check_stays_stopped(&self) -> Result<(), String> {
        let Subject { world, kernel, process, app, .. } = self;
        let runs = !process.stopped && !kernel.is_frozen(process);
        match runs && self.is_root() && !world.was_slow(BUSY_NS) {
            true => Err(format!("p{app} was stopped by its user, and runs (invariant 12)")),
            false => Ok(()),
        }
    }

    /// Whether it stands still by our doing for no longer than it may.
    fn check_let_run(&self, observations: &mut Observations) -> Result<(), String> {
        let Subject { stage, kernel, process, app, now_ns, .. } = self;
        let by_us = process.stopped && stage.parts.borrow().contains_key(&process.stopped_by);
        if !kernel.is_frozen(process) && !by_us {
            return Ok(());
        }
        let since_ns = observations.still.mark_holding(self.key(), *now_ns);
        let longest = stage.scene.slice_ms * MS * (stage.scene.programs.len() as u64) + STILL_DELAY_NS;
        // Who takes its turn after all others of a policy that has programs wait stands for as long as they run.
        let may_wait = matches!(stage.scene.policy, "BP");
        if let Some(scheduled_ns) = observations.scheduled_ns
            && !may_wait
            && now_ns.saturating_sub(since_ns.max(scheduled_ns)) > longest
        {
            let ms = (now_ns - since_ns) / MS;
            return Err(format!("p{app} (process {}) stands still for {ms} ms (invariant 11)", process.pid));
        }
        if let Some(guarded_ns) = observations.unscheduled_but_guarded_ns()
            && now_ns - since_ns.max(observations.beat_ns).max(guarded_ns) > FREE_NS
        {
            let ms = (now_ns - observations.beat_ns) / MS;
            return Err(format!("nobody schedules for {ms} ms, and p{app} is not free (invariant 11)"));
        }
        Ok(())
    }

    /// Whether its threads have all CPUs again soon after nobody schedules.
    fn check_unbound(&self, observations: &mut Observations) -> Result<(), String> {
        let Subject { kernel, process, app, truth, now_ns, .. } = self;
        let Some(guarded_ns) = observations.unscheduled_but_guarded_ns() else { return Ok(()) };
        if !truth.started || truth.chooses {
            return Ok(());
        }
        let Some(tid) = find_narrowed_thread(kernel, process, &truth.original) else { return Ok(()) };
        // A scheduler that was kept from running in the middle of an act completes it before it finds out.
        let since_ns = observations.bound.mark_holding(self.key(), *now_ns);
        if now_ns.saturating_sub(since_ns.max(observations.beat_ns).max(guarded_ns)) > FREE_NS {
            let ms = (now_ns - observations.beat_ns) / MS;
            return Err(format!(
                "nobody schedules for {ms} ms, and thread {tid} of p{app} is bound (invariant 11)"
            ));
        }
        Ok(())
    }

    fn check_group(&self, observations: &mut Observations) -> Result<(), String> {
        let Subject { stage, kernel, process, app, now_ns, .. } = self;
        let Some(scheduled_ns) = observations.scheduled_ns else { return Ok(()) };
        let Some(group) = missing_group(kernel, process) else { return Ok(()) };
        let since_ns = observations.groupless.mark_holding(self.key(), *now_ns);
        // A guard that is kept from running while it sets the program free lets no scheduler take it in.
        let patience_ns = GROUPLESS_NS + stage.scene.guard_stall_ns();
        if now_ns.saturating_sub(since_ns.max(scheduled_ns)) > patience_ns {
            return Err(format!("p{app} (process {}) is not in {} any more", process.pid, group.display()));
        }
        Ok(())
    }

    fn check_cpus(&self, observations: &mut Observations) -> Result<(), String> {
        let Subject { kernel, process, app, truth, now_ns, .. } = self;
        if truth.chooses || is_squeezed(kernel, process, &truth.original).is_none() {
            return Ok(());
        }
        let since_ns = observations.squeezed.mark_holding(self.key(), *now_ns);
        match now_ns - since_ns > SQUEEZED_NS {
            true => Err(format!("p{app} (process {}) stays squeezed (invariant 10)", process.pid)),
            false => Ok(()),
        }
    }
}
