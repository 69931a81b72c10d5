//! Random machines × programs × events, with the checker beside a policy: what the property tests and
//! `coplace policy test` try every policy in.

mod world;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use plan::check::Sequence;
use plan::{Limits, Plan, Remark, Report, Snapshot, check_plan, normalise, standstill_ns};
use workload::AppId;

use crate::{Memory, Policy, Settings};
pub use workload::Random;
pub use world::{Kinds, World, settings};

/// Events of a sequence before its programs only end.
const STEPS: u64 = 12;

/// Decisions while nothing happens, before the programs end and in between.
const RESTS: u64 = 8;
/// How long after the last decision that the policy asked for there is another.
const LONG_NS: u64 = 1_000_000_000;

/// Makes the policy that is tried, with settings as the world has them.
pub type Maker<'m> = dyn Fn(&Settings) -> Box<dyn Policy> + Sync + 'm;

/// One policy in one world, with the checker beside it.
struct Trial {
    world: World,
    policy: Box<dyn Policy>,
    settings: Settings,
    memory: Memory,
    sequence: Sequence,
    log: Vec<String>,
    ran: BTreeSet<AppId>,
    wake_at_ns: Option<u64>,
}

impl Trial {
    fn new(random: &mut Random, make: &Maker<'_>, kinds: Kinds) -> Trial {
        let world = World::new(random, kinds);
        let settings = world::settings(random);
        let policy = make(&settings);
        let log = vec![format!("{} on {} with {settings:?}", policy.name(), world.snapshot.machine.name)];
        Trial {
            world,
            policy,
            settings,
            memory: Memory::default(),
            sequence: Sequence::default(),
            log,
            ran: BTreeSet::new(),
            wake_at_ns: None,
        }
    }

    /// Decides and judges; the violations.
    fn decide(&mut self) -> Vec<String> {
        let snapshot = &self.world.snapshot;
        let decision = match self.policy.try_decide(snapshot, &self.memory) {
            Ok(decision) => decision,
            Err(failed) => {
                self.log.push(describe(snapshot, &Plan::default(), &Report::default()));
                return vec![failed.to_string()];
            }
        };
        let (plan, report) = (&decision.plan, &decision.report);
        self.log.push(describe(snapshot, plan, report));
        let promise = self.policy.promise();
        let mut wrong: Vec<String> =
            check_plan(plan, snapshot, &promise).iter().map(ToString::to_string).collect();
        // Where nothing forces anybody to move, no reason is good enough; rotation moves on purpose.
        let forced = self.world.kinds == Kinds::All || self.settings.rebalance_every_ns.is_some();
        let unmoved = Report { remarks: report.remarks.clone(), ..Report::default() };
        let accepted = if forced { report } else { &unmoved };
        let found = self.sequence.check_step(plan, snapshot, &promise, accepted);
        wrong.extend(found.iter().map(ToString::to_string));
        wrong.extend(narrowed(snapshot, plan));
        if let Err(refusal) = normalise(plan, &Limits::default()) {
            wrong.push(format!("no actuator can carry this out: {refusal}"));
        }
        if plan.to_string().parse::<Plan>().as_ref() != Ok(plan) {
            wrong.push("its text form says something else".to_owned());
        }
        let still_ns = plan.tree.as_ref().map_or(0, standstill_ns);
        let reported = report.remarks.iter().any(|remark| matches!(remark, Remark::Standstill { .. }));
        if still_ns > self.settings.max_still_ns && !reported {
            wrong.push(format!("somebody stands still for {still_ns} ns, and nobody says so"));
        }
        if self.policy.try_decide(snapshot, &self.memory).as_ref() != Ok(&decision) {
            wrong.push("it does not decide the same twice".to_owned());
        }
        if decision.wake_at_ns.is_some_and(|wake| wake <= snapshot.now_ns) {
            wrong.push("it wants to be woken in the past".to_owned());
        }
        self.ran.extend(plan.runs().into_iter().map(|run| run.app.clone()));
        self.memory = decision.memory;
        self.wake_at_ns = decision.wake_at_ns;
        self.world.follow(&decision.plan);
        wrong
    }
}

/// Programs whose threads spin for one another, on fewer CPUs than threads that they cannot give up.
fn narrowed(snapshot: &Snapshot, plan: &Plan) -> Vec<String> {
    let mut wrong = Vec::new();
    for run in plan.runs() {
        let Some(app) = snapshot.app(&run.app).filter(|app| !app.accepts_width() && !app.waits_passively)
        else {
            continue;
        };
        let width =
            app.team.or(app.demand.max_threads).map_or(snapshot.allowed.len(), |width| width as usize);
        let most = snapshot.wide_room(app).len();
        if run.place.len() < width.min(most) {
            wrong.push(format!("{} spins with {width} threads on CPUs {}", app.id, run.place));
        }
    }
    wrong
}

fn describe(snapshot: &Snapshot, plan: &Plan, report: &Report) -> String {
    let apps: Vec<String> = snapshot
        .apps
        .iter()
        .map(|app| {
            let demand = &app.demand;
            format!(
                "    {} {:?} {}-{:?} weight {} team {:?}{}{}{}{}{}{}",
                app.id,
                demand.malleability,
                demand.min_threads,
                demand.max_threads,
                demand.weight_milli,
                app.team,
                if demand.coschedule { "" } else { " uncoordinated" },
                app.speedup.as_ref().map_or(String::new(), |speedup| format!(" {speedup:?}")),
                if app.waits_passively { " passive" } else { "" },
                if app.stoppable { "" } else { " unstoppable" },
                if app.suspended { " suspended" } else { "" },
                app.within.as_ref().map_or(String::new(), |within| format!(" within {within}")),
            )
        })
        .collect();
    format!(
        "at {} ns, allowed {}, usable {}\n{}\n  {plan}\n  {}",
        snapshot.now_ns,
        snapshot.allowed,
        snapshot.usable,
        apps.join("\n"),
        report.lines().join("\n  ")
    )
}

/// Tries a policy through one sequence of events; how many decisions it made, or what the first plan
/// that is wrong breaks, with what led to it.
pub fn sequence(seed: u64, make: &Maker<'_>) -> Result<u64, String> {
    let mut random = Random::new(seed);
    let kinds = if random.chance(25) { Kinds::Plain } else { Kinds::All };
    let mut trial = Trial::new(&mut random, make, kinds);
    for _ in 0..STEPS {
        trial.world.step(&mut random);
        trial.judge()?;
    }
    trial.rest(RESTS)?;
    // Programs end; everybody who is not suspended must have run before the last one does.
    while !trial.world.snapshot.apps.is_empty() {
        let runs: Vec<AppId> = trial.runs();
        trial.world.snapshot.now_ns += 1_000_000;
        let apps = &mut trial.world.snapshot.apps;
        let Some(ends) = apps.iter().position(|app| runs.contains(&app.id) || app.suspended) else {
            return Err(trial.complaint(&["nobody runs".to_owned()]));
        };
        let gone = apps.remove(ends);
        if !gone.suspended && !trial.ran.contains(&gone.id) {
            return Err(trial.complaint(&[format!("{} never ran", gone.id)]));
        }
        trial.judge()?;
        if trial.world.snapshot.apps.len().is_multiple_of(4) {
            trial.rest(RESTS / 2)?;
        }
    }
    Ok(trial.log.len() as u64 - 1)
}

impl Trial {
    fn judge(&mut self) -> Result<(), String> {
        let wrong = self.decide();
        if wrong.is_empty() { Ok(()) } else { Err(self.complaint(&wrong)) }
    }

    /// Nothing happens: the policy decides when it wants to, and once more long after.
    fn rest(&mut self, decisions: u64) -> Result<(), String> {
        for left in (0..decisions).rev() {
            let now_ns = self.world.snapshot.now_ns;
            let wanted_ns = self.wake_at_ns.filter(|_| left > 0);
            self.world.snapshot.now_ns = wanted_ns.unwrap_or(now_ns + LONG_NS);
            self.judge()?;
        }
        Ok(())
    }

    /// The last decisions, and what is wrong with the last one.
    fn complaint(&self, wrong: &[String]) -> String {
        let log = self.log[self.log.len().saturating_sub(3).max(1)..].join("\n");
        format!("{}\n{log}\nwrong: {}", self.log[0], wrong.join("\n       "))
    }

    fn runs(&self) -> Vec<AppId> {
        let decision = self.policy.decide(&self.world.snapshot, &self.memory);
        decision.plan.runs().into_iter().map(|run| run.app.clone()).collect()
    }
}

/// Tries this many sequences from the seed `first` on, on all cores; how many decisions there were, or
/// the smallest seed that failed, and why.
pub fn sequences(
    first: u64,
    cases: u64,
    try_one: &(dyn Fn(u64) -> Result<u64, String> + Sync),
) -> Result<u64, (u64, String)> {
    let workers = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    let decisions = AtomicU64::new(0);
    let failed: Option<(u64, String)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..workers)
            .map(|worker| {
                let decisions = &decisions;
                scope.spawn(move || {
                    (first..first.saturating_add(cases)).filter(|seed| seed % workers == worker).find_map(
                        |seed| {
                            let tried = try_one(seed);
                            decisions.fetch_add(*tried.as_ref().unwrap_or(&0), Ordering::Relaxed);
                            tried.err().map(|why| (seed, why))
                        },
                    )
                })
            })
            .collect();
        let results = threads.into_iter().filter_map(|thread| thread.join().expect("a trial died"));
        results.min_by_key(|(seed, _)| *seed)
    });
    match failed {
        Some(failed) => Err(failed),
        None => Ok(decisions.into_inner()),
    }
}
