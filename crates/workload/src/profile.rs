//! What is known about a program before it runs: all that a simulator needs.

use crate::Curve;

/// How threads wait for one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Waiting {
    /// They sleep.
    Passive,
    /// They spin for a while, then sleep: what OpenMP runtimes do by default.
    Spinning,
    /// They spin until it is their turn.
    Active,
}

/// A program as simulated: a sequence of equally long parallel regions.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Its name, by which jobs refer to it.
    pub name: String,
    /// Run time on one CPU alone, without the start-up.
    pub sequential_ns: u64,
    /// How much faster it runs on more CPUs.
    pub curve: Curve,
    /// Whether it is known to take longer on some numbers of CPUs than on fewer.
    pub may_slow_down: bool,
    /// CPUs that shared a last-level cache and memory bandwidth on the machine where the curve was
    /// measured; `None`: nothing about places is known, only their sizes count.
    pub domain_cpus: Option<u32>,
    /// Parallel regions; another team size is taken up at the next one.
    pub regions: u64,
    /// How often in a region every thread waits for others.
    pub waits_per_region: f64,
    /// How the program itself lets its threads wait; `None`: as its runtime does.
    pub waiting: Option<Waiting>,
    /// Before the first parallel region, on one CPU.
    pub start_ns: u64,
    /// Memory that it works on.
    pub memory_bytes: u64,
    /// Share of a domain's memory bandwidth that it asks for when it fills the domain, 0 to 1.
    pub bandwidth: f64,
    /// How much slower it runs when all of a domain's cache belongs to others: 0.5 is half as much
    /// again.
    pub cache: f64,
    /// Load instructions that it executes a second when it fills a domain; 0: not known.
    pub loads_per_s: f64,
    /// How fast a thread is while other programs use the other CPUs of its core (SMT), against having
    /// the core to itself, above 0 to 1.
    pub core_share: f64,
    /// How much slower it runs for each domain beyond the fewest that its CPUs would fit.
    pub scatter: f64,
    /// What it asks for in turn, if that is not always the same: the phases of a round, which follow one another
    /// [`rounds`](Profile::rounds) times. `bandwidth`, `cache` and `loads_per_s` are then the means over all its work.
    pub phases: Vec<PhaseDemand>,
    /// How often all its phases come, one after another.
    pub rounds: u32,
}

/// What a program asks for in one of its phases, in the units of [`Profile`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PhaseDemand {
    /// Part of the round's work, above 0; those of all phases make 1.
    pub work: f64,
    /// As [`Profile::bandwidth`].
    pub bandwidth: f64,
    /// As [`Profile::cache`].
    pub cache: f64,
    /// As [`Profile::loads_per_s`].
    pub loads_per_s: f64,
}

impl Profile {
    /// The same program with these phases; their parts of the work need not make 1 yet.
    pub fn in_phases(self, phases: Vec<PhaseDemand>, rounds: u32) -> Profile {
        let all: f64 = phases.iter().map(|phase| phase.work).sum();
        let phases: Vec<PhaseDemand> =
            phases.into_iter().map(|phase| PhaseDemand { work: phase.work / all, ..phase }).collect();
        let mean = |of: fn(&PhaseDemand) -> f64| phases.iter().map(|phase| phase.work * of(phase)).sum();
        Profile {
            bandwidth: mean(|phase| phase.bandwidth),
            cache: mean(|phase| phase.cache),
            loads_per_s: mean(|phase| phase.loads_per_s),
            rounds,
            phases,
            ..self
        }
    }

    /// A program of which only its length and curve are known.
    pub fn plain(name: &str, sequential_ns: u64, curve: Curve) -> Profile {
        Profile {
            name: name.to_owned(),
            sequential_ns,
            curve,
            may_slow_down: false,
            domain_cpus: None,
            regions: 1000,
            waits_per_region: 1.0,
            waiting: None,
            start_ns: 0,
            memory_bytes: 0,
            bandwidth: 0.0,
            cache: 0.0,
            loads_per_s: 0.0,
            core_share: 1.0,
            scatter: 0.0,
            phases: Vec::new(),
            rounds: 1,
        }
    }
}
