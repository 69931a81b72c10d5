//! A workload to be simulated: jobs that arrive, each with the profile of its program.

use std::sync::Arc;

use crate::{AppId, Demand, Malleability, Profile};

/// Jobs in order of arrival.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    pub name: String,
    pub jobs: Vec<Job>,
    /// Lines of the file that were left out because they are wrong.
    pub skipped: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Unique in the scenario.
    pub id: AppId,
    pub arrive_ns: u64,
    pub profile: Arc<Profile>,
    pub demand: Demand,
    /// Where the file describes it, from 1.
    pub line: Option<usize>,
}

/// Why a scenario cannot be simulated on a machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{job} needs {needs} CPUs at once, and the machine has {has}: take a larger machine, or leave such jobs out with --lenient",
    line.map_or(String::new(), |line| format!("line {line}: ")))]
pub struct TooWide {
    pub line: Option<usize>,
    pub job: AppId,
    pub needs: u32,
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

    /// Leaves out what a machine of `cpus` CPUs cannot run, and counts it.
    pub fn without_too_wide(mut self, cpus: u32) -> Scenario {
        let before = self.jobs.len();
        self.jobs.retain(|job| job.needs() <= cpus);
        self.skipped += before - self.jobs.len();
        self
    }
}
