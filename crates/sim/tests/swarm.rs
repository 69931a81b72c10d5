//! Random machines × programs × policies, played to the end. `COPLACE_CASES` simulations (2,000 by
//! default) from `COPLACE_SEED` on.

use std::sync::Arc;

use coplace_sim::{Figures, Knowledge, Model, Outcome, Setup, many, simulate};
use plan::Violation;
use policy::{LevelDecision, Settings, by_name};
use topology::Machine;
use workload::{AppId, Curve, Demand, Job, Malleability, Profile, Random, Scenario, Waiting};

const POLICIES: [&str; 10] = ["UE", "LA", "BP", "EQ", "TA", "CO", "LV", "adaptive", "twins", "swarm.lua"];

/// A policy in Lua with plans and a memory of its own.
const SCRIPT: &str = "
function decide(snapshot, memory)
  memory.asked = (memory.asked or 0) + 1
  local first = snapshot.apps[1]
  if #snapshot.apps == 1 and not first.suspended then
    return run(first, first.room)
  end
  return built_in(memory.asked % 3 == 0 and 'EQ' or 'TA')
end
";

const MACHINES: [&str; 10] = [
    "pu:1",
    "core:2",
    "core:7",
    "pack:2 core:2",
    "core:4 pu:2",
    "pack:4 [numa] l3:1 core:6",
    "pack:2 [numa] l3:2 core:3 pu:2",
    "pack:3 core:5",
    "pack:1 [numa] l3:4 core:2 pu:2",
    "pack:2 [numa] l3:1 core:8",
];

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn curve(random: &mut Random) -> Curve {
    match random.below(5) {
        0 => Curve::Linear,
        1 => Curve::Amdahl { serial: random.below(100) as f64 / 100.0 },
        2 => Curve::Downey { average: 1.0 + random.below(30) as f64, sigma: random.below(30) as f64 / 10.0 },
        3 => Curve::Sevcik {
            imbalance: 1.0 + random.below(5) as f64 / 10.0,
            serial: random.below(10) as f64 / 100.0,
            overhead_per_cpu: random.below(10) as f64 / 1000.0,
        },
        _ => Curve::Table(vec![(2, 1.1 + random.below(9) as f64 / 10.0), (6, 2.0), (12, 3.5), (24, 7.0)]),
    }
}

fn profile(random: &mut Random, number: u64) -> Profile {
    let ms = 1_000_000;
    let most_regions = *random.pick(&[1, 20, 5000]);
    let regions = 1 + random.below(most_regions);
    let plain = Profile::plain(&format!("p{number}"), (1 + random.below(20_000)) * ms, curve(random));
    Profile {
        domain_cpus: random.chance(50).then(|| 1 + random.below(8) as u32),
        regions,
        waits_per_region: random.below(4) as f64,
        waiting: *random.pick(&[None, None, Some(Waiting::Active), Some(Waiting::Passive)]),
        start_ns: random.below(500) * ms,
        memory_bytes: if random.chance(50) { random.below(2 << 30) } else { 0 },
        bandwidth: random.below(101) as f64 / 100.0,
        cache: random.below(30) as f64 / 10.0,
        core_share: 1.0 - random.below(6) as f64 / 10.0,
        scatter: random.below(10) as f64 / 10.0,
        ..plain
    }
}

fn scenario(random: &mut Random, cpus: u64) -> Scenario {
    let profiles: Vec<Arc<Profile>> = (0..4).map(|number| Arc::new(profile(random, number))).collect();
    let mut now_ns = 0;
    let plain = random.chance(40);
    let jobs = (0..1 + random.below(14)).map(|number| {
        let mut demand = Demand::default();
        if !plain {
            let kinds = [Malleability::Rigid, Malleability::Moldable, Malleability::Malleable];
            demand.malleability = *random.pick(&kinds);
            if demand.malleability == Malleability::Rigid || random.chance(30) {
                demand.max_threads = Some(1 + random.below(cpus) as u32);
            }
            demand.weight_milli = *random.pick(&[1000, 1000, 500, 3000]);
            demand.coschedule = !random.chance(10);
        }
        let gap_ns = *random.pick(&[1e7, 1e9, 5e9]);
        now_ns += random.exponential(gap_ns) as u64;
        let id = AppId::new(&format!("j{number}")).expect("a letter and a number");
        Job { id, arrive_ns: now_ns, profile: Arc::clone(random.pick(&profiles)), demand, line: None }
    });
    Scenario::new("swarm", jobs.collect())
}

fn settings(random: &mut Random) -> Settings {
    let ms = 1_000_000;
    let mut settings = Settings { slice_ns: *random.pick(&[5, 20, 50]) * ms, ..Settings::default() };
    settings.upper_threshold = random.below(3) as u32;
    settings.lower_threshold = random.below(3) as u32;
    settings.hold_ns = *random.pick(&[0, 0, 1000 * ms]);
    if random.chance(30) {
        settings.level_decision = LevelDecision::Local;
    }
    if random.chance(30) {
        settings.rebalance_every_ns = Some(500 * ms);
        settings.rebalance_within_nodes = random.chance(50);
    }
    settings.settle_ns = *random.pick(&[0, 0, 500 * ms]);
    settings.grace_ns = *random.pick(&[0, 1000 * ms]);
    settings.script = Some(SCRIPT.to_owned());
    settings
}

/// What must hold of every simulation.
fn wrong(outcome: &Outcome, scenario: &Scenario) -> Vec<String> {
    let mut wrong = Vec::new();
    if outcome.rejected > 0 {
        wrong.push(format!("{} plans rejected", outcome.rejected));
    }
    for (at_ns, broken) in &outcome.complaints {
        let plan = outcome.plans.iter().rev().find(|(since_ns, _)| since_ns <= at_ns);
        let plan = plan.map_or(String::new(), |(since_ns, plan)| format!(", {plan} since {since_ns} ns"));
        wrong.push(format!("at {at_ns} ns: {broken}{plan}"));
    }
    let cpus = f64::from(outcome.cpus);
    for (job, planned) in outcome.jobs.iter().zip(&scenario.jobs) {
        if job.id != planned.id || job.started_ns < job.arrived_ns || job.ended_ns < job.started_ns {
            wrong.push(format!("{}: arrived, started, ended out of order: {job:?}", job.id));
        }
        if job.cpu_ns > job.response_ns() * cpus * (1.0 + 1e-9) {
            wrong.push(format!("{} used more CPU time than there was: {job:?}", job.id));
        }
        if planned.demand.malleability != Malleability::Malleable && job.reconfigurations > 0 {
            wrong.push(format!("{} was resized, and cannot be", job.id));
        }
    }
    let sum = |what: &dyn Fn(&coplace_sim::JobOutcome) -> f64| outcome.jobs.iter().map(what).sum::<f64>();
    let all_ns = cpus * outcome.makespan_ns as f64;
    if sum(&|job| job.cpu_ns) > all_ns * (1.0 + 1e-9) {
        wrong.push("more CPU time was used than there was".to_owned());
    }
    let entitled_ns = sum(&|job| job.entitled_ns);
    if (entitled_ns - all_ns).abs() > 1e-6 * all_ns + 1.0 {
        wrong.push(format!("entitlements add up to {entitled_ns} instead of {all_ns}"));
    }
    if Figures::of(outcome).values.iter().any(|value| !value.is_finite()) {
        wrong.push(format!("a figure is no number: {:?}", Figures::of(outcome)));
    }
    wrong
}

fn trial(seed: u64) -> Result<(), String> {
    let mut random = Random::new(seed);
    let machine = Arc::new(Machine::synthetic(random.pick::<&str>(&MACHINES)).expect("a known description"));
    let scenario = scenario(&mut random, machine.pu_count() as u64);
    let settings = settings(&mut random);
    let waiting = *random.pick(&[Waiting::Spinning, Waiting::Passive, Waiting::Active]);
    let knowledge = *random.pick(&[Knowledge::None, Knowledge::Empty, Knowledge::Full]);
    let policy = POLICIES[(seed % POLICIES.len() as u64) as usize];
    let laws = Model::built_in().laws;
    let setup = Setup {
        machine,
        laws,
        settings: settings.clone(),
        waiting,
        keep_plans: true,
        knowledge,
        until_ns: None,
    };
    let play = || simulate(&setup, &scenario, by_name(policy, &settings).expect("a known policy"));
    let context = format!("{policy} on {}, notebook {knowledge:?}, with {settings:?}", setup.machine.name);
    let outcome = play().map_err(|error| format!("{context}\n{error}"))?;
    let wrong = wrong(&outcome, &scenario);
    if !wrong.is_empty() {
        return Err(format!("{context}\n{}", wrong.join("\n")));
    }
    if play().as_ref() != Ok(&outcome) {
        return Err(format!("{context}\nit does not come out the same twice"));
    }
    Ok(())
}

/// Every trial from seed `first` on; of the first that fails why, and the command that repeats it.
fn swarm(first: u64, cases: u64, trial: impl Fn(u64) -> Result<(), String> + Sync) -> Result<(), String> {
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let one = |number: usize| trial(first + number as u64).map_err(|why| (first + number as u64, why));
    let done = many::in_order(cases as usize, workers, one, |_| ());
    done.map(|_| ()).map_err(|(seed, why)| {
        format!(
            "{why}\nrepeat with: COPLACE_SEED={seed} COPLACE_CASES=1 cargo test -p coplace-sim --test swarm"
        )
    })
}

#[test]
fn every_simulation_ends_with_nothing_lost_and_no_plan_refused() {
    swarm(number("COPLACE_SEED", 1), number("COPLACE_CASES", 2_000), trial)
        .unwrap_or_else(|why| panic!("{why}"));
}

/// LV under `settle_ns`, `hold_ns` and `grace_ns`. 21416: a level that was held back changed after the time for which equal
/// shares were promised. 73066: whose team was to become narrower was chosen anew when its grace period ended.
#[test]
fn seeds_that_showed_unequal_shares_show_none_now() {
    for seed in [21416, 73066] {
        assert_eq!(trial(seed), Ok(()));
    }
}

#[test]
fn a_failure_states_its_seed_and_repeat_command() {
    let result = swarm(40, 20, |seed| if seed < 47 { Ok(()) } else { Err(format!("{seed} is wrong")) });
    let command = "COPLACE_SEED=47 COPLACE_CASES=1 cargo test -p coplace-sim --test swarm";
    assert_eq!(result, Err(format!("47 is wrong\nrepeat with: {command}")));
}

#[test]
fn a_job_lost_in_a_simulation_is_noticed() {
    let machine = Arc::new(Machine::synthetic("core:4").expect("a known description"));
    let mut random = Random::new(3);
    let scenario = scenario(&mut random, 4);
    let settings = Settings::default();
    let laws = Model::built_in().laws;
    let setup = Setup {
        machine,
        laws,
        settings: settings.clone(),
        waiting: Waiting::Spinning,
        keep_plans: false,
        knowledge: Knowledge::None,
        until_ns: None,
    };
    let good = simulate(&setup, &scenario, by_name("TA", &settings).expect("a known policy")).unwrap();
    assert_eq!(wrong(&good, &scenario), [""; 0]);
    let spoil = |spoil: &dyn Fn(&mut Outcome)| {
        let mut outcome = good.clone();
        spoil(&mut outcome);
        !wrong(&outcome, &scenario).is_empty()
    };
    assert!(spoil(&|outcome| outcome.rejected = 1));
    let broken = Violation::Missing { app: scenario.jobs[0].id.clone() };
    assert!(spoil(&|outcome| outcome.complaints.push((0, broken.clone()))));
    assert!(spoil(&|outcome| outcome.jobs[0].started_ns = outcome.jobs[0].ended_ns + 1));
    assert!(spoil(&|outcome| outcome.jobs[0].cpu_ns *= 1e6));
    assert!(spoil(&|outcome| outcome.jobs[0].entitled_ns *= 2.0));
    assert!(spoil(&|outcome| outcome.makespan_ns /= 2));
}
