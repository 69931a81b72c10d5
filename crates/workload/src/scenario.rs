//! A workload to be simulated: jobs that arrive, each with the profile of its program.

use std::sync::Arc;

use crate::{AppId, Demand, Malleability, Profile};

/// Jobs in order of arrival.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Its name, for people.
    pub name: String,
    /// The jobs.
    pub jobs: Vec<Job>,
    /// Lines of the file that were left out because they are wrong.
    pub skipped: usize,
}

/// One program that comes, runs and ends.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Unique in the scenario.
    pub id: AppId,
    /// When it comes, in nanoseconds of simulated time.
    pub arrive_ns: u64,
    /// How it runs.
    pub profile: Arc<Profile>,
    /// What it asks for.
    pub demand: Demand,
    /// Where the file describes it, from 1.
    pub line: Option<usize>,
}

/// Why a scenario cannot be simulated on a machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{job} needs {needs} CPUs at once, and the machine has {has}: take a larger machine, or leave such jobs out with --lenient",
    line.map_or(String::new(), |line| format!("line {line}: ")))]
pub struct TooWide {
    /// Where the file describes the job, from 1.
    pub line: Option<usize>,
    /// The job.
    pub job: AppId,
    /// CPUs that it needs at once.
    pub needs: u32,
    /// CPUs of the machine.
    pub has: u32,
}

/// Why a curve is none on a machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{job}: {program} takes longer on {cpus} CPUs than on {}, and the machine has {has}; times must not rise with \
    the number of CPUs (write may_slow_down = true if that was measured, or leave such jobs out with --lenient)",
    line.map_or(String::new(), |line| format!("line {line}: ")), cpus - 1)]
pub struct SlowsDown {
    /// Where the file describes the job, from 1.
    pub line: Option<usize>,
    /// The job.
    pub job: AppId,
    /// The name of its profile.
    pub program: String,
    /// The first number of CPUs on which it takes longer than on fewer.
    pub cpus: u32,
    /// CPUs of the machine.
    pub has: u32,
}

impl Job {
    /// Fewest CPUs that it can ever run on.
    pub fn needs(&self) -> u32 {
        match self.demand.malleability {
            Malleability::Rigid => self.demand.max_threads.unwrap_or(self.demand.min_threads),
            _ => self.demand.min_threads,
        }
    }

    /// The first number of CPUs, of those that it can use of `most`, on which it takes longer than on fewer,
    /// unless it is known to.
    fn slows_down_at(&self, most: u32) -> Option<u32> {
        let most = self.demand.max_threads.map_or(most, |own| own.min(most));
        self.profile.curve.slows_down_at(most).filter(|_| !self.profile.may_slow_down)
    }
}

impl Scenario {
    /// Sorts by arrival; jobs that arrive together keep their order.
    pub fn new(name: &str, mut jobs: Vec<Job>) -> Scenario {
        jobs.sort_by_key(|job| job.arrive_ns);
        Scenario { name: name.to_owned(), jobs, skipped: 0 }
    }

    /// The first job that a machine of `cpus` CPUs cannot run.
    pub fn fits(&self, cpus: u32) -> Result<(), TooWide> {
        match self.jobs.iter().find(|job| job.needs() > cpus) {
            None => Ok(()),
            Some(job) => Err(TooWide { line: job.line, job: job.id.clone(), needs: job.needs(), has: cpus }),
        }
    }

    /// The first job that would take longer on some number of CPUs of a machine of `cpus` than on one CPU
    /// fewer, and does not say so.
    pub fn speeds_up(&self, cpus: u32) -> Result<(), SlowsDown> {
        let slows_down = self.jobs.iter().find_map(|job| job.slows_down_at(cpus).map(|at| (job, at)));
        let Some((job, at)) = slows_down else { return Ok(()) };
        let program = job.profile.name.clone();
        Err(SlowsDown { line: job.line, job: job.id.clone(), program, cpus: at, has: cpus })
    }

    /// Leaves out what a machine of `cpus` CPUs cannot run or would slow down, and counts it.
    pub fn without_unfit(mut self, cpus: u32) -> Scenario {
        let before = self.jobs.len();
        self.jobs.retain(|job| job.needs() <= cpus && job.slows_down_at(cpus).is_none());
        self.skipped += before - self.jobs.len();
        self
    }
}
