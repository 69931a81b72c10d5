//! The measures of the Dynamic Job Scheduler Benchmark, as the paper describes them (section 4.1).
//!
//! A long simulation and a short analysis, both without communication. Each runs alone for reference, then the analysis
//! is requested while the simulation runs.
//!
//! | measure | definition here |
//! |---|---|
//! | real slowdown | execution time over that alone |
//! | expected slowdown of the analysis | 1 + the part of its slots that the simulation has, too: each shared slot is shared in halves |
//! | expected slowdown of the simulation | 1 + (the analysis' slots ÷ all slots) × (the analysis' time alone ÷ the simulation's) |
//! | efficiency | expected ÷ real slowdown |
//! | wait coefficient | N ÷ (wait of the analysis + N); without a scheduler of sessions it would start at once |
//! | dynamicity ratio | the product of both efficiencies and the wait coefficient |
//!
//! The original's normalisation constant is not public to us: N is a parameter, a part of the simulation's time alone,
//! [`NORMALISATION`] unless stated otherwise. No conformance is claimed.

use serde::Serialize;
use workload::AppId;

use crate::allocation::{Allocation, Layout, Shape};
use crate::session::{Refused, Request, WhenFull};
use crate::simulate::{Job, Memory, Times, simulate};

/// The normalisation constant, as a part of the simulation's time alone.
pub const NORMALISATION: f64 = 0.86;

/// What is simulated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Benchmark {
    /// Where.
    pub allocation: Allocation,
    /// What its memory can do.
    pub memory: Memory,
    /// The long-running one; it fills the allocation or a part of it.
    pub simulation: Shape,
    /// The short one.
    pub analysis: Shape,
    /// Where the analysis begins.
    pub layout: Layout,
    /// What happens when it does not fit.
    pub when_full: WhenFull,
    /// The simulation's time alone, s.
    pub simulation_s: f64,
    /// The analysis' time alone, s.
    pub analysis_s: f64,
    /// When the analysis is requested, s after the simulation's start.
    pub requested_s: f64,
    /// The normalisation constant, s.
    pub normalisation_s: f64,
}

/// What comes out of it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Expected over real slowdown of the simulation.
    pub simulation_efficiency: f64,
    /// Expected over real slowdown of the analysis.
    pub analysis_efficiency: f64,
    /// Of the analysis.
    pub wait_coefficient: f64,
    /// The product of the three.
    pub dynamicity_ratio: f64,
    /// From the analysis' request to its start, s.
    pub wait_s: f64,
    /// From its start to its end, s.
    pub execution_s: f64,
    /// From its request to its end, s.
    pub response_s: f64,
    /// From the simulation's start to its end, s.
    pub simulation_s: f64,
}

fn id(name: &str) -> AppId {
    AppId::new(name).expect("it is a name")
}

impl Benchmark {
    fn job(&self, name: &str, work_s: f64) -> Job {
        let is_simulation = name == SIMULATION;
        let request = Request {
            id: id(name),
            shape: if is_simulation { self.simulation } else { self.analysis },
            layout: if is_simulation { Layout::Compact } else { self.layout },
            when_full: if is_simulation { WhenFull::Wait } else { self.when_full },
        };
        let requested_s = if is_simulation { 0.0 } else { self.requested_s };
        Job { request, requested_s, work_s }
    }

    fn play(&self, jobs: &[Job]) -> Result<Vec<Times>, Refused> {
        let times = simulate(self.allocation, self.memory, jobs)?;
        Ok(jobs.iter().filter_map(|job| times.get(&job.request.id).copied()).collect())
    }

    /// How much work makes a session of this name take so long alone.
    fn work_for(&self, name: &str, alone_s: f64) -> Result<f64, Refused> {
        let one = self.play(&[self.job(name, 1.0)])?;
        Ok(alone_s / one[0].execution_s())
    }

    /// Plays both sessions together.
    pub fn run(&self) -> Result<Outcome, Refused> {
        let simulation = self.job(SIMULATION, self.work_for(SIMULATION, self.simulation_s)?);
        let analysis = self.job(ANALYSIS, self.work_for(ANALYSIS, self.analysis_s)?);
        let times = self.play(&[simulation, analysis])?;
        let [simulation, analysis] = times[..] else { unreachable!("every session ends") };
        let slots = self.allocation.slots() as f64;
        let (own, other) = (self.analysis.slots() as f64, self.simulation.slots() as f64);
        let shared = (own + other - slots).clamp(0.0, own);
        let expected_analysis = 1.0 + shared / own;
        let expected_simulation = 1.0 + shared / slots * self.analysis_s / self.simulation_s;
        let simulation_efficiency = expected_simulation / (simulation.execution_s() / self.simulation_s);
        let analysis_efficiency = expected_analysis / (analysis.execution_s() / self.analysis_s);
        let wait_coefficient = self.normalisation_s / (analysis.wait_s() + self.normalisation_s);
        Ok(Outcome {
            simulation_efficiency,
            analysis_efficiency,
            wait_coefficient,
            dynamicity_ratio: simulation_efficiency * analysis_efficiency * wait_coefficient,
            wait_s: analysis.wait_s(),
            execution_s: analysis.execution_s(),
            response_s: analysis.response_s(),
            simulation_s: simulation.execution_s(),
        })
    }
}

const SIMULATION: &str = "simulation";
const ANALYSIS: &str = "analysis";
