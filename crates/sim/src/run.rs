//! A scenario from its first arrival to its last end.

use std::sync::Arc;

use engine::{Engine, Event, Recorder};
use plan::{Plan, Violation};
use policy::{Policy, Settings};
use topology::Machine;
use workload::{Scenario, Waiting};

use crate::domains::Domains;
use crate::laws::load::{EVERY_NS, LoadAverage};
use crate::laws::{place, start};
use crate::model::Laws;
use crate::notebook::{Knowledge, Notebook};
use crate::queue::Kind;
use crate::world::{Phase, World};

/// What a simulation is made of, besides scenario and policy.
#[derive(Clone)]
pub struct Setup {
    /// The machine to be simulated.
    pub machine: Arc<Machine>,
    /// Parameters of the laws.
    pub laws: Laws,
    /// What the policy is made with.
    pub settings: Settings,
    /// How OpenMP's runtime lets threads wait.
    pub waiting: Waiting,
    /// Whether the plans are kept, for pictures.
    pub keep_plans: bool,
    /// What the node knows about its programs.
    pub knowledge: Knowledge,
    /// When to stop, whoever has not ended by then; `None`: when the last has ended.
    pub until_ns: Option<u64>,
}

/// What became of one job.
#[derive(Clone, Debug, PartialEq)]
pub struct JobOutcome {
    /// The job's name.
    pub id: workload::AppId,
    /// The name of its profile.
    pub program: String,
    /// When it came, in nanoseconds of simulated time.
    pub arrived_ns: u64,
    /// When it got a CPU for the first time.
    pub started_ns: u64,
    /// When it ended, or the simulation before it did.
    pub ended_ns: u64,
    /// How much of its work it did: 1 if it ended.
    pub done: f64,
    /// Its run time with the whole machine to itself.
    pub alone_ns: f64,
    /// CPU time that it used, working or spinning.
    pub cpu_ns: f64,
    /// Run time on one CPU of what it did.
    pub sequential_ns: f64,
    /// CPU time that its weight entitled it to while it was there.
    pub entitled_ns: f64,
    /// Team sizes that it took after the first.
    pub reconfigurations: u32,
    /// Changes of place by which it lost CPUs and got others.
    pub moves: u32,
    /// Those of them that left one memory domain for another.
    pub domain_moves: u32,
}

/// What became of a scenario under a policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// CPUs of the machine.
    pub cpus: u32,
    /// Those that came, in order of arrival.
    pub jobs: Vec<JobOutcome>,
    /// Time with at least one program present.
    pub makespan_ns: u64,
    /// When the number of programs present changed, and to what.
    pub present: Vec<(u64, u32)>,
    /// How often the policy decided.
    pub decisions: u64,
    /// Decisions whose plan the checker did not let pass.
    pub rejected: u64,
    /// Promises about sequences of plans that were broken, and when (ns).
    pub complaints: Vec<(u64, Violation)>,
    /// When each plan came into force, if they are kept.
    pub plans: Vec<(u64, Plan)>,
}

/// Why a scenario cannot be simulated to its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SimError {
    /// A job needs more CPUs than there are.
    #[error("{0}")]
    TooWide(#[from] workload::TooWide),
    /// The policy leaves programs waiting, and nothing will ever happen again.
    #[error("under {policy} {programs} programs wait for ever, since {at_s} s")]
    Stuck {
        /// Its letters.
        policy: String,
        /// How many wait.
        programs: usize,
        /// Since when, in seconds of simulated time.
        at_s: u64,
    },
}

/// More than this many wake-ups in a row in which nobody gets on, and nobody ever will.
const IDLE_WAKES: u32 = 10_000;

/// Plays `scenario` under `policy`.
pub fn simulate(setup: &Setup, scenario: &Scenario, policy: Box<dyn Policy>) -> Result<Outcome, SimError> {
    play(setup, scenario, policy, None)
}

/// The same, recorded as a live node records what it does.
pub fn simulate_recorded(
    setup: &Setup,
    scenario: &Scenario,
    policy: Box<dyn Policy>,
    recorder: Box<dyn Recorder>,
) -> Result<Outcome, SimError> {
    play(setup, scenario, policy, Some(recorder))
}

fn play(
    setup: &Setup,
    scenario: &Scenario,
    policy: Box<dyn Policy>,
    recorder: Option<Box<dyn Recorder>>,
) -> Result<Outcome, SimError> {
    let cpus = setup.machine.pu_count() as u32;
    scenario.fits(cpus)?;
    let samples_load = policy.launch_environment().contains(&("OMP_DYNAMIC", "TRUE"));
    let name = policy.name();
    let all = setup.machine.all_cpus().clone();
    let domains = Domains::of(&setup.machine);
    let profiles = scenario.jobs.iter().map(|job| &job.profile);
    let notebook = Notebook::new(setup.knowledge, profiles, &domains, &setup.laws);
    let mut run = Run {
        scenario,
        engine: Engine::new(Arc::clone(&setup.machine), all.clone(), all, policy)
            .with_settings(setup.settings.clone()),
        world: World::new(scenario, &setup.laws, domains, setup.waiting, notebook),
        arrived: 0,
        live: 0,
        load: LoadAverage::default(),
        next_sample_ns: samples_load.then_some(EVERY_NS),
        weights: 0,
        served: 0.0,
        served_at: vec![0.0; scenario.jobs.len()],
        cpus: f64::from(cpus),
        ended: vec![(0, 0.0); scenario.jobs.len()],
        outcome: Outcome {
            cpus,
            jobs: Vec::new(),
            makespan_ns: 0,
            present: Vec::new(),
            decisions: 0,
            rejected: 0,
            complaints: Vec::new(),
            plans: Vec::new(),
        },
        keep_plans: setup.keep_plans,
    };
    if let Some(recorder) = recorder {
        run.engine.record_to(recorder);
    }
    let mut idle_wakes = 0;
    while let Some(now_ns) = run.next_ns() {
        if let Some(until_ns) = setup.until_ns.filter(|&until_ns| now_ns > until_ns) {
            run.stop(until_ns);
            break;
        }
        let events = run.advance(now_ns);
        let woken = matches!(events[..], [Event::Wake]);
        idle_wakes = if woken && !run.world.anybody_runs() { idle_wakes + 1 } else { 0 };
        run.decide(events);
        if idle_wakes > IDLE_WAKES {
            break;
        }
    }
    if run.live > 0 {
        let at_s = run.world.now_ns / 1_000_000_000;
        return Err(SimError::Stuck { policy: name, programs: run.live as usize, at_s });
    }
    Ok(run.finish(&setup.laws))
}

struct Run<'a> {
    scenario: &'a Scenario,
    engine: Engine,
    world: World,
    /// Jobs that have arrived so far.
    arrived: usize,
    live: u32,
    load: LoadAverage,
    next_sample_ns: Option<u64>,
    /// Of all that are there.
    weights: u64,
    /// CPU time that a program of weight 1 present from the beginning would be entitled to.
    served: f64,
    /// The same when each program arrived.
    served_at: Vec<f64>,
    cpus: f64,
    /// When each program ended, and what it was entitled to.
    ended: Vec<(u64, f64)>,
    outcome: Outcome,
    keep_plans: bool,
}

impl Run<'_> {
    fn next_ns(&mut self) -> Option<u64> {
        let arrival = self.scenario.jobs.get(self.arrived).map(|job| job.arrive_ns);
        let own = self.world.next_ns();
        // Without anybody there is nothing to wake up or to sample for.
        let wake = self.engine.wake_at_ns().filter(|_| self.live > 0);
        let sample = self.next_sample_ns.filter(|_| self.live > 0);
        arrival.into_iter().chain(own).chain(wake).chain(sample).min()
    }

    /// Goes on to `now_ns`, and returns what the engine must hear of what happens then.
    fn advance(&mut self, now_ns: u64) -> Vec<Event> {
        let now_ns = now_ns.max(self.world.now_ns);
        self.pass(now_ns);
        let live = self.live;
        let mut events = Vec::new();
        while let Some((at, kind)) = self.world.happens() {
            let team = self.world.programs[at].app.team;
            match kind {
                Kind::End if self.world.ends(at) => {
                    events.push(Event::Left(self.world.programs[at].app.id.clone()));
                    self.ended[at] = (now_ns, self.entitled(at));
                    self.weights -= self.weight(at);
                    self.live -= 1;
                }
                Kind::End => {}
                Kind::PhaseChange => self.world.next_phase(at),
                Kind::TeamChange => self.world.apply_team(at),
                Kind::Migrated => self.world.migrated(at),
            }
            let program = &self.world.programs[at];
            if program.phase == Phase::Running && program.app.team != team {
                events.push(Event::Observed(program.app.clone()));
            }
        }
        while let Some(job) = self.scenario.jobs.get(self.arrived).filter(|job| job.arrive_ns <= now_ns) {
            let at = self.arrived;
            self.served_at[at] = self.served;
            self.weights += u64::from(job.demand.weight_milli.max(1));
            self.world.arrives(at);
            events.push(Event::Arrived(self.world.programs[at].app.clone()));
            self.arrived += 1;
            self.live += 1;
        }
        if self.next_sample_ns.is_some_and(|at_ns| at_ns <= now_ns) {
            self.load.sample(self.world.runnable());
            let average_15min_milli = self.load.milli();
            if self.engine.is_load_relevant(average_15min_milli) {
                events.push(Event::Load { average_15min_milli });
            }
            self.next_sample_ns = Some((now_ns / EVERY_NS + 1) * EVERY_NS);
        }
        if live != self.live {
            self.outcome.present.push((now_ns, self.live));
        }
        if events.is_empty() && self.engine.wake_at_ns().is_some_and(|at_ns| at_ns <= now_ns) {
            events.push(Event::Wake);
        }
        if !events.is_empty() {
            events.extend(self.world.evidence().into_iter().map(Event::Observed));
        }
        events
    }

    fn decide(&mut self, events: Vec<Event>) {
        if !events.is_empty() {
            let now_ns = self.world.now_ns;
            let (step, Ok(())) = self.engine.run_step(now_ns, events, &mut self.world);
            self.outcome.decisions += 1;
            self.outcome.rejected += u64::from(!step.rejected.is_empty());
            self.outcome.complaints.extend(step.complaints.into_iter().map(|broken| (now_ns, broken)));
            if self.keep_plans && self.outcome.plans.last().is_none_or(|(_, plan)| *plan != *step.plan) {
                self.outcome.plans.push((now_ns, Plan::clone(&step.plan)));
            }
        }
        self.world.settle();
    }

    /// Goes on to `now_ns`, and leaves it at that.
    fn stop(&mut self, now_ns: u64) {
        if self.live > 0 {
            self.pass(now_ns);
            for at in 0..self.arrived {
                if self.world.programs[at].phase != Phase::Ended {
                    self.ended[at] = (now_ns, self.entitled(at));
                }
            }
            self.live = 0;
        }
    }

    fn pass(&mut self, now_ns: u64) {
        let passed_ns = now_ns - self.world.now_ns;
        if self.live > 0 {
            self.outcome.makespan_ns += passed_ns;
            self.served += passed_ns as f64 * self.cpus / self.weights.max(1) as f64;
        }
        self.world.now_ns = now_ns;
    }

    fn weight(&self, at: usize) -> u64 {
        u64::from(self.scenario.jobs[at].demand.weight_milli.max(1))
    }

    fn entitled(&self, at: usize) -> f64 {
        (self.served - self.served_at[at]) * self.weight(at) as f64
    }

    fn finish(mut self, laws: &Laws) -> Outcome {
        let domains = self.world.domains();
        let all = self.engine.snapshot(0).machine.all_cpus().clone();
        let counts = domains.counts(&all);
        for (at, job) in self.scenario.jobs[..self.arrived].iter().enumerate() {
            let done = self.world.done(at);
            let program = &self.world.programs[at];
            let (ended_ns, entitled_ns) = self.ended[at];
            let most = job.demand.max_threads.map_or(self.cpus, |most| f64::from(most).min(self.cpus));
            let parts: Vec<(f64, f64)> =
                counts.iter().map(|&(_, count)| (f64::from(count) * most / self.cpus, 1.0)).collect();
            let start_ns = if laws.alone_counts_start { start::ns(&job.profile, laws) } else { 0.0 };
            let speedup = place::speedup(&job.profile, &parts);
            self.outcome.jobs.push(JobOutcome {
                id: job.id.clone(),
                program: job.profile.name.clone(),
                arrived_ns: job.arrive_ns,
                started_ns: program.first_ran_ns.unwrap_or(ended_ns),
                ended_ns,
                alone_ns: job.profile.sequential_ns as f64 / speedup + start_ns,
                cpu_ns: program.cpu_ns,
                done,
                sequential_ns: job.profile.sequential_ns as f64 * done,
                entitled_ns,
                reconfigurations: program.reconfigurations,
                moves: program.moves,
                domain_moves: program.domain_moves,
            });
        }
        self.outcome
    }
}
