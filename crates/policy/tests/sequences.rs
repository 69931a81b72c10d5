//! Random machines × programs × events: every plan and every sequence of plans of every policy
//! passes the checker. `COPLACE_CASES` sequences (10,000 by default) from `COPLACE_SEED` on.

mod support;

use std::collections::{BTreeMap, BTreeSet};

use coplace_policy::{Memory, Policy, Report, Settings, by_name};
use plan::check::{Explanation, Sequence};
use plan::{Limits, Plan, Snapshot, check_plan, normalise, standstill_ns};
use support::{Kinds, Random, World, from_environment};
use workload::AppId;

const POLICIES: [&str; 6] = ["UE", "LA", "BP", "EQ", "TA", "CO"];
const STEPS: u64 = 12;

/// One policy in one world, with the checker beside it.
struct Trial {
    world: World,
    policy: Box<dyn Policy>,
    settings: Settings,
    memory: Memory,
    sequence: Sequence,
    log: Vec<String>,
    ran: BTreeSet<AppId>,
}

impl Trial {
    fn new(random: &mut Random, policy: &str, kinds: Kinds) -> Trial {
        let world = World::new(random, kinds);
        let settings = support::settings(random);
        let policy = by_name(policy, &settings).expect("a known policy");
        let log = vec![format!("{} on {} with {settings:?}", policy.name(), world.snapshot.machine.name)];
        Trial {
            world,
            policy,
            settings,
            memory: Memory::default(),
            sequence: Sequence::default(),
            log,
            ran: BTreeSet::new(),
        }
    }

    /// Decides and judges; the violations.
    fn decide(&mut self) -> Vec<String> {
        let snapshot = &self.world.snapshot;
        let decision = self.policy.decide(snapshot, self.memory.clone());
        let (plan, report) = (&decision.plan, &decision.report);
        self.log.push(describe(snapshot, plan, report));
        let promise = self.policy.promise();
        let mut wrong: Vec<String> =
            check_plan(plan, snapshot, &promise).iter().map(ToString::to_string).collect();
        // Where nothing forces anybody to move, no reason is good enough; rotation moves on purpose.
        let forced = self.world.kinds == Kinds::All || self.settings.rebalance_every_ns.is_some();
        let none = BTreeMap::new();
        let explanation =
            Explanation { lines: &report.lines, moves: if forced { &report.moves } else { &none } };
        let found = self.sequence.check_step(plan, snapshot, &promise, explanation);
        wrong.extend(found.iter().map(ToString::to_string));
        wrong.extend(narrowed(snapshot, plan));
        if let Err(refusal) = normalise(plan, &Limits::default()) {
            wrong.push(format!("no actuator can carry this out: {refusal}"));
        }
        if plan.to_string().parse::<Plan>().as_ref() != Ok(plan) {
            wrong.push("its text form says something else".to_owned());
        }
        let still_ns = plan.tree.as_ref().map_or(0, standstill_ns);
        let told = report.lines.iter().any(|line| line.contains("stand still"));
        if still_ns > self.settings.max_still_ns && !told {
            wrong.push(format!("somebody stands still for {still_ns} ns, and nobody says so"));
        }
        if self.policy.decide(snapshot, self.memory.clone()) != decision {
            wrong.push("it does not decide the same twice".to_owned());
        }
        if decision.wake_at_ns.is_some_and(|wake| wake <= snapshot.now_ns) {
            wrong.push("it wants to be woken in the past".to_owned());
        }
        self.ran.extend(plan.runs().into_iter().map(|run| run.app.clone()));
        self.memory = decision.memory;
        self.world.follow(&decision.plan);
        wrong
    }
}

/// Programs whose threads spin for one another, on fewer CPUs than threads that they cannot give up.
fn narrowed(snapshot: &Snapshot, plan: &Plan) -> Vec<String> {
    let mut wrong = Vec::new();
    for run in plan.runs() {
        let Some(app) = snapshot.app(&run.app).filter(|app| !app.takes_orders() && !app.waits_passively)
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
                "    {} {:?} {}-{:?} team {:?}{}{}{}{}",
                app.id,
                demand.malleability,
                demand.min_threads,
                demand.max_threads,
                app.team,
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
        report.lines.join("\n  ")
    )
}

/// One sequence; the log up to the first plan that is wrong.
fn sequence(seed: u64) -> Result<(), String> {
    let mut random = Random::new(seed);
    let kinds = if random.chance(25) { Kinds::Plain } else { Kinds::All };
    let policy = POLICIES[(seed % POLICIES.len() as u64) as usize];
    let mut trial = Trial::new(&mut random, policy, kinds);
    let complain = |trial: &Trial, wrong: Vec<String>| {
        let log = trial.log[trial.log.len().saturating_sub(3)..].join("\n");
        format!("{}\n{log}\nwrong: {}", trial.log[0], wrong.join("\n       "))
    };
    for _ in 0..STEPS {
        trial.world.step(&mut random);
        let wrong = trial.decide();
        if !wrong.is_empty() {
            return Err(complain(&trial, wrong));
        }
    }
    // Programs end; everybody who is not suspended must have run before the last one does.
    while !trial.world.snapshot.apps.is_empty() {
        let runs: Vec<AppId> = trial.sequence_runs();
        trial.world.snapshot.now_ns += 1_000_000;
        let apps = &mut trial.world.snapshot.apps;
        let ends = apps.iter().position(|app| runs.contains(&app.id) || app.suspended);
        let Some(ends) = ends else {
            return Err(complain(&trial, vec!["nobody runs".to_owned()]));
        };
        let gone = apps.remove(ends);
        if !gone.suspended && !trial.ran.contains(&gone.id) {
            return Err(complain(&trial, vec![format!("{} never ran", gone.id)]));
        }
        let wrong = trial.decide();
        if !wrong.is_empty() {
            return Err(complain(&trial, wrong));
        }
    }
    Ok(())
}

impl Trial {
    fn sequence_runs(&self) -> Vec<AppId> {
        let decision = self.policy.decide(&self.world.snapshot, self.memory.clone());
        decision.plan.runs().into_iter().map(|run| run.app.clone()).collect()
    }
}

#[test]
fn every_plan_of_every_policy_passes_the_checker() {
    let (first, cases) = (from_environment("COPLACE_SEED", 1), from_environment("COPLACE_CASES", 10_000));
    let workers = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    let failed: Option<(u64, String)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..workers)
            .map(|worker| {
                scope.spawn(move || {
                    (first..first + cases)
                        .filter(|seed| seed % workers == worker)
                        .find_map(|seed| sequence(seed).err().map(|why| (seed, why)))
                })
            })
            .collect();
        let results = threads.into_iter().filter_map(|thread| thread.join().expect("a test thread died"));
        results.min_by_key(|(seed, _)| *seed)
    });
    if let Some((seed, why)) = failed {
        panic!(
            "{why}\nrepeat with: COPLACE_SEED={seed} COPLACE_CASES=1 cargo test -p coplace-policy --test sequences"
        );
    }
}
