//! One engine for the live node and the simulator: events in, a snapshot, the policy's decision, the
//! checker's verdict, the difference, the actuator.
//!
//! ```text
//! events ─→ snapshot ─→ policy.decide ─→ normalise ─→ check ─→ diff ─→ actuator
//!                          ↑    │                       │
//!                          memory                       └ invalid: the old plan, else everybody everywhere
//! ```
//!
//! The engine knows no clock, no files and no randomness. What happened in one instant comes in one
//! call; the same events at the same times give the same plans, on any machine, which is what a
//! recorded [`trace`] relies on.
//!
//! An invalid plan is never carried out: the plan before stays in force where it is still valid for
//! the programs there are, else everybody runs on everything that it may use, as without coplace. What
//! provoked it is recorded as it was, to become a test case. A plan that is valid but breaks a promise
//! about sequences (invariants 6 and 7, left-over CPUs) is carried out and complained about: it does
//! no harm, and refusing it would.

mod allowance;
mod event;
mod stand_in;
mod start;
mod steps;
pub mod trace;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use plan::check::{Case, Sequence};
use plan::{
    App, Change, Limits, Plan, Promise, Rejection, Remark, Report, Snapshot, Violation, check_plan, diff,
    normalise,
};
use policy::{Decision, Memory, Policy, Settings};
use start::Powers;
use topology::{CpuSet, Machine, Withheld};
use workload::AppId;

pub use event::{Allowance, Event, NoSuchPolicy, Recorded};
pub use stand_in::uncontrolled;
pub use start::{Admitted, Arrival, Held, MemoryRoom, PassiveReason, Shortage, Starts};
pub use steps::{Step as StepOfMachine, steps};
pub use trace::{Entry, Recorder};

/// A policy that wants to be woken at once, for ever, must not keep a CPU busy.
const SHORTEST_SLEEP_NS: u64 = 1_000_000;

/// Carries plans out and decides nothing.
pub trait Actuator {
    /// What could not be carried out.
    type Error;
    /// Takes in programs that were held, before the plan that has them is carried out.
    fn admit(&mut self, _admitted: &[Admitted], _apps: &[App]) {}

    /// Gets from the plan that it carried out last to `plan`; `change` is what differs.
    fn carry_out(&mut self, plan: &Plan, change: &Change) -> Result<(), Self::Error>;
}

/// What one decision came to.
#[derive(Clone, Debug)]
pub struct Step {
    /// The plan in force from now on.
    pub plan: Arc<Plan>,
    /// Whether that is another than before.
    pub replaced: bool,
    /// What is different from the plan that was carried out last.
    pub change: Change,
    /// What was decided about programs that start.
    pub starts: Starts,
    /// What the policy said about its plan.
    pub report: Report,
    /// When the policy wants to be asked again, by [`Event::Wake`], even if nothing happens.
    pub wake_at_ns: Option<u64>,
    /// Why the policy's own plan is not in force, if so; then `plan` is the old one where that still
    /// holds, else everybody runs everywhere as without coplace.
    pub rejected: Vec<Rejection>,
    /// Promises about sequences of plans that a valid plan breaks.
    pub complaints: Vec<Violation>,
}

/// See the crate's documentation.
pub struct Engine {
    snapshot: Snapshot,
    policy: Box<dyn Policy>,
    /// What the policies were made with, for the record.
    settings: Settings,
    limits: Limits,
    memory: Memory,
    plan: Arc<Plan>,
    /// The last plan that reached the actuator whole.
    carried: Arc<Plan>,
    /// Programs that came since: what was carried out for others of their names does not count.
    arrived: BTreeSet<AppId>,
    held: Held,
    starts: Starts,
    /// Plans are made and shown, and not carried out.
    observes: bool,
    report: Report,
    wake_at_ns: Option<u64>,
    sequence: Sequence,
    rejected: Vec<Rejection>,
    recorders: Vec<Box<dyn Recorder>>,
    recording_error: Option<io::Error>,
}

impl Engine {
    /// An engine at time 0 without programs. CPUs that the machine does not have do not count; where
    /// `allowed` names none that it has, all are allowed, and where `usable` names none that is
    /// allowed, all that are allowed are usable.
    pub fn new(machine: Arc<Machine>, allowed: CpuSet, usable: CpuSet, policy: Box<dyn Policy>) -> Engine {
        let mut engine = Engine {
            snapshot: Snapshot::for_machine(machine),
            policy,
            settings: Settings::default(),
            limits: Limits::default(),
            memory: Memory::default(),
            plan: Arc::default(),
            carried: Arc::default(),
            arrived: BTreeSet::new(),
            held: Held::default(),
            starts: Starts::default(),
            observes: false,
            report: Report::default(),
            wake_at_ns: None,
            sequence: Sequence::default(),
            rejected: Vec::new(),
            recorders: Vec::new(),
            recording_error: None,
        };
        engine.restrict(allowed, usable);
        engine
    }

    /// What the world's mechanisms can do.
    pub fn with_limits(mut self, limits: Limits) -> Engine {
        self.limits = limits;
        self
    }

    /// Plans are made and shown, and not carried out: programs start as they would without them.
    pub fn observing(mut self, observes: bool) -> Engine {
        self.observes = observes;
        self
    }

    /// What its policies are made with. A recording names them by letters, and these settings with
    /// them, so that the same can be made again; the engine itself makes no use of them.
    pub fn with_settings(mut self, settings: Settings) -> Engine {
        self.settings = settings;
        self
    }

    /// The policies that follow, from the next [`Event::Policy`] on, are made with these settings.
    pub fn set_settings(&mut self, settings: Settings) {
        self.settings = settings.clone();
        self.record(Entry::Settings(Box::new(settings)));
    }

    /// Records how the engine stands now, and every event and plan from now on, beside whatever else
    /// is recorded already.
    pub fn record_to(&mut self, recorder: Box<dyn Recorder>) {
        let begin = Entry::Begin {
            snapshot: self.snapshot.clone(),
            policy: self.policy.letters().to_owned(),
            settings: Box::new(self.settings.clone()),
            limits: self.limits.clone(),
            memory: self.memory.clone(),
            plan: self.plan.to_string(),
            observes: self.observes,
            held: Box::new(self.held.clone()),
        };
        let others = std::mem::replace(&mut self.recorders, vec![recorder]);
        self.record(begin);
        self.recorders.splice(..0, others);
    }

    /// Why something is recorded no more, if recording failed; asked for once. One whose reader has
    /// gone away has not failed.
    pub fn take_recording_error(&mut self) -> Option<io::Error> {
        self.recording_error.take()
    }

    /// The plan in force.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// What the policy said about it.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Why the policy's own last plan is not in force; empty where it is.
    pub fn rejected(&self) -> &[Rejection] {
        &self.rejected
    }

    /// The policy that decides now.
    pub fn policy(&self) -> &dyn Policy {
        self.policy.as_ref()
    }

    /// Whether the policy may decide otherwise with this load average (thousandths) than with the one that it knows.
    pub fn is_load_relevant(&self, now_milli: u64) -> bool {
        self.policy.is_load_relevant(&self.snapshot, now_milli)
    }

    /// When the policy wants to be asked again, on the clock of the events.
    pub fn wake_at_ns(&self) -> Option<u64> {
        self.wake_at_ns
    }

    /// What the policy would see at this time.
    pub fn snapshot(&self, now_ns: u64) -> Snapshot {
        Snapshot { now_ns: now_ns.max(self.snapshot.now_ns), ..self.snapshot.clone() }
    }

    /// Programs that wait for memory before they start, in order of arrival, and why.
    pub fn queue(&self) -> impl Iterator<Item = (&AppId, &Shortage)> {
        self.held.queue()
    }

    /// Who of the queue would have to wait with this memory, and why; the others would be admitted.
    pub fn shortages(&self, room: &MemoryRoom) -> BTreeMap<AppId, Shortage> {
        self.held.shortages(room, !self.snapshot.apps.is_empty())
    }

    /// Why not all allowed CPUs would be usable, if this allowance changed what is; `None` where it changes nothing.
    pub fn would_change(&self, allowance: &Allowance) -> Option<Vec<Withheld>> {
        let Snapshot { machine, usable: current, .. } = &self.snapshot;
        let (usable, reasons) = allowance::usable(current, allowance, machine);
        (usable != *current || allowance.allowed != self.snapshot.allowed).then_some(reasons)
    }

    /// Live programs in order of arrival.
    pub fn apps(&self) -> &[App] {
        &self.snapshot.apps
    }

    /// [`Engine::handle_all`] with one event.
    pub fn handle(&mut self, now_ns: u64, event: Event) -> Step {
        self.handle_all(now_ns, vec![event])
    }

    /// Takes in what happened in one instant, in order, and decides once. Whoever calls it carries
    /// the step's change out. Time that runs backwards stands still.
    pub fn handle_all(&mut self, now_ns: u64, events: Vec<Event>) -> Step {
        let step = self.advance(now_ns, events);
        self.mark_carried_out();
        step
    }

    /// The same, carried out where anything changed. What an actuator failed to carry out is part of
    /// the next step's change again.
    pub fn run_step<A: Actuator>(
        &mut self,
        now_ns: u64,
        events: Vec<Event>,
        actuator: &mut A,
    ) -> (Step, Result<(), A::Error>) {
        let step = self.advance(now_ns, events);
        actuator.admit(&step.starts.admitted, &self.snapshot.apps);
        let done = if step.change.is_empty() { Ok(()) } else { actuator.carry_out(&step.plan, &step.change) };
        self.mark_carried_out();
        if done.is_err() {
            // The actuator has begun with it: what it is to do next is told from there, and all of this again.
            self.arrived.extend(step.change.apps.keys().cloned());
        }
        (step, done)
    }

    fn mark_carried_out(&mut self) {
        self.carried = Arc::clone(&self.plan);
        self.arrived.clear();
    }

    fn advance(&mut self, now_ns: u64, events: Vec<Event>) -> Step {
        // Time that runs backwards would make a policy's memory lie.
        let now_ns = now_ns.max(self.snapshot.now_ns);
        self.snapshot.now_ns = now_ns;
        self.held.begin_instant();
        let mut about_cpus = false;
        for event in events {
            about_cpus |= matches!(event, Event::Allowance(_));
            if !self.recorders.is_empty() {
                self.record(Entry::Event { now_ns, event: event.recorded() });
            }
            self.apply(event);
        }
        let rejected_before = std::mem::take(&mut self.rejected);
        let (mut step, refused) = self.decide();
        step.change = diff(&self.carried, &step.plan);
        self.arrived.iter().for_each(|app| step.change.begin_anew(app, &step.plan));
        let powers =
            Powers { holds_back: !self.observes, sets_waiting: !self.observes && !self.policy.hands_off() };
        step.starts = std::mem::take(&mut self.starts);
        step.starts.let_go = self.held.let_go(&step.plan, &self.snapshot.apps, powers);
        // One test case for each way in which a policy goes wrong, however often it is asked.
        if let Some(plan) = refused.filter(|_| self.rejected != rejected_before) {
            let (snapshot, why) = (self.snapshot.clone(), self.rejected.clone());
            self.record(Entry::Rejected { snapshot, plan, why });
        }
        if !self.recorders.is_empty() {
            let (plan, starts) = (step.plan.to_string(), step.starts.clone());
            let usable = about_cpus.then(|| self.snapshot.usable.clone());
            self.record(Entry::Plan { now_ns, plan, starts, usable });
        }
        step
    }

    /// A recording that cannot be written ends; what runs goes on.
    fn record(&mut self, entry: Entry) {
        let failed = &mut self.recording_error;
        self.recorders.retain_mut(|recorder| match recorder.record(&entry) {
            Ok(()) => true,
            Err(error) => {
                if error.kind() != io::ErrorKind::BrokenPipe {
                    *failed = Some(error);
                }
                false
            }
        });
    }

    fn restrict(&mut self, allowed: CpuSet, usable: CpuSet) {
        let allowed = allowed.intersection(self.snapshot.machine.all_cpus());
        // A machine without CPUs is a mistake of whoever looked; what was known before holds.
        if allowed.is_empty() {
            return;
        }
        let usable = usable.intersection(&allowed);
        self.snapshot.usable = if usable.is_empty() { allowed.clone() } else { usable };
        self.snapshot.allowed = allowed;
    }

    /// A program that was held is under the policy from now on; `queued`: it waited for memory before.
    fn admit(&mut self, arrival: Arrival, queued: bool) {
        let mut app = arrival.app;
        let may = arrival.may_start_narrow && !self.observes;
        let start = if may { self.policy.narrow_start(&app, &self.snapshot) } else { None };
        let narrow = start.filter(|start| start.threads > 0);
        let admitted = Admitted { app: app.id.clone(), queued, narrow };
        admitted.apply(&mut app);
        self.starts.admitted.push(admitted);
        self.arrive(app);
    }

    fn arrive(&mut self, app: App) {
        self.arrived.insert(app.id.clone());
        let apps = &mut self.snapshot.apps;
        apps.retain(|known| known.id != app.id);
        apps.push(app);
        apps.sort_by_key(|app| app.arrived_ns);
    }

    fn apply(&mut self, event: Event) {
        let apps = &mut self.snapshot.apps;
        match event {
            Event::Arrived(app) => {
                self.held.forget(&app.id);
                self.arrive(app);
            }
            Event::Came(arrival) => {
                let occupied = !apps.is_empty();
                match self.held.arrive(*arrival, occupied) {
                    Ok(arrival) => self.admit(arrival, false),
                    Err((app, why)) => drop(self.starts.queued.insert(app, why)),
                }
            }
            Event::Memory(room) => {
                while let Some(arrival) = self.held.next(&room, !self.snapshot.apps.is_empty()) {
                    self.admit(arrival, true);
                }
            }
            Event::Allowance(allowance) => {
                let Snapshot { machine, usable: current, .. } = &self.snapshot;
                let (usable, _) = allowance::usable(current, &allowance, machine);
                self.restrict(allowance.allowed, usable);
            }
            Event::Left(id) => {
                self.held.forget(&id);
                if let Some(at) = apps.iter().position(|app| app.id == id) {
                    apps.remove(at);
                }
            }
            Event::Observed(app) => {
                if let Some(known) = apps.iter_mut().find(|known| known.id == app.id) {
                    // Arrival and suspension are not observed but told.
                    let (arrived_ns, suspended) = (known.arrived_ns, known.suspended);
                    *known = App { arrived_ns, suspended, ..app };
                }
            }
            Event::Within { app, within } => {
                if let Some(known) = apps.iter_mut().find(|known| known.id == app) {
                    known.within = within;
                }
            }
            Event::Suspend(id) => {
                apps.iter_mut().filter(|app| app.id == id).for_each(|app| app.suspended = true);
            }
            Event::Resume(id) => {
                apps.iter_mut().filter(|app| app.id == id).for_each(|app| app.suspended = false);
            }
            Event::Machine { allowed, usable } => self.restrict(allowed, usable),
            Event::Load { average_15min_milli } => {
                self.snapshot.load_average_15min_milli = average_15min_milli;
            }
            Event::Policy(policy) => {
                self.policy = policy;
                // Where programs stand is true of the machine; everything else was the other's thought.
                self.memory = Memory { places: std::mem::take(&mut self.memory.places), ..Memory::default() };
                self.sequence.forget_waits();
            }
            Event::Wake => {}
        }
    }

    /// The step, and the policy's plan where it was not taken.
    fn decide(&mut self) -> (Step, Option<Plan>) {
        let mut promise = self.policy.promise();
        let decided = self.policy.try_decide(&self.snapshot, &self.memory);
        let failed = decided.as_ref().err().map(|failed| Rejection::Failed(failed.to_string()));
        // Who has failed is asked again when something happens, not before.
        let Decision { plan: wanted, memory, wake_at_ns, mut report } = decided.unwrap_or_default();
        let normal = match failed {
            Some(failed) => Err(vec![failed]),
            None => normalise(&wanted, &self.limits).map_err(|refusal| vec![Rejection::Refused(refusal)]),
        };
        let case = normal.as_ref().ok().map(|plan| Case::of(plan, &self.snapshot));
        let found = case.as_ref().map(|case| case.check(&promise)).unwrap_or_default();
        let mut stand_in = None;
        let case = match case.filter(|_| found.is_empty()) {
            Some(case) => {
                self.memory = memory;
                case
            }
            None => {
                // What the policy remembers of a plan that never was would mislead it.
                let broken = found.into_iter().map(Rejection::Broken).collect();
                self.rejected = normal.as_ref().err().cloned().unwrap_or(broken);
                promise = Promise::default();
                report.remarks =
                    vec![Remark::Rejected { policy: self.policy.name(), why: self.rejected.clone() }];
                let stand_in = stand_in.insert(self.stand_in());
                Case::of(stand_in, &self.snapshot)
            }
        };
        let complaints = self.sequence.check_case(&case, &promise, &report);
        report.remarks.extend(complaints.iter().cloned().map(Remark::Broken));
        let earliest = self.snapshot.now_ns.saturating_add(SHORTEST_SLEEP_NS);
        self.wake_at_ns = wake_at_ns.map(|at| at.max(earliest));
        let fitted = match normal {
            Ok(Cow::Owned(plan)) => Some(plan),
            // As it was wanted.
            _ => None,
        };
        let (plan, refused) = match stand_in {
            Some(plan) => (plan, Some(wanted)),
            None => (fitted.unwrap_or(wanted), None),
        };
        let plan = Arc::new(plan);
        self.report = report.clone();
        let replaced = *self.plan != *plan;
        self.plan = Arc::clone(&plan);
        self.sequence.follow(Arc::clone(&self.plan));
        let (wake_at_ns, rejected) = (self.wake_at_ns, self.rejected.clone());
        let (change, starts) = Default::default();
        (Step { plan, replaced, change, starts, report, wake_at_ns, rejected, complaints }, refused)
    }

    /// What is in force instead of an invalid plan.
    fn stand_in(&self) -> Plan {
        // What the policy promises beyond doing no harm cannot be asked of a plan made for others.
        if check_plan(&self.plan, &self.snapshot, &Promise::default()).is_empty() {
            Plan::clone(&self.plan)
        } else {
            uncontrolled(&self.snapshot)
        }
    }
}
