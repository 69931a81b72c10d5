//! Load-adaptive (LA).
//!
//! # The problem
//! A program that sees the machine's load can at least stop asking for CPUs that are taken.
//!
//! # Source
//! Schönherr, Juurlink, Richling 2013, III-B b; libgomp with `OMP_DYNAMIC`.
//!
//! # Where we differ
//! On a live node libgomp itself decides: programs are started with `OMP_DYNAMIC=TRUE` and otherwise
//! left alone. The number of threads in the plan is the one that its rule gives.
//!
//! # Terms
//! Load: average number of runnable threads over 15 minutes.
//!
//! # Pseudocode
//! ```text
//! threads := max(1, CPUs − ⌊load + 0.1⌋), on everything that the program may use
//! ```
//!
//! # Properties
//! `the_load_of_fifteen_minutes_is_taken_off_the_cpus`; every plan passes the checker.
//!
//! # Cost
//! O(programs).
//!
//! # Limits
//! The load knows nothing of programs, and follows them by minutes.

use plan::{Promise, Snapshot, Tree};

use crate::common::{compose, needs::needs};
use crate::{Decision, Memory, Policy, Report};

pub(crate) struct La;

/// Threads that libgomp's rule leaves on `cpus` CPUs.
fn threads(cpus: u32, load_milli: u64) -> u32 {
    let load = ((load_milli + 100) / 1000).min(u64::from(u32::MAX)) as u32;
    if load >= cpus { 1 } else { cpus - load }
}

impl Policy for La {
    fn letters(&self) -> &'static str {
        "LA"
    }

    fn words(&self) -> &'static str {
        "load-adaptive"
    }

    fn promise(&self) -> Promise {
        Promise { waiting_bound: Some(plan::WaitingBound::Terminations(0)), ..Promise::default() }
    }

    fn launch_environment(&self) -> Vec<(&'static str, &'static str)> {
        vec![("OMP_DYNAMIC", "TRUE")]
    }

    fn decide(&self, snapshot: &Snapshot, memory: Memory) -> Decision {
        let needs = needs(snapshot);
        let run = |need: &crate::common::needs::Need<'_>| {
            let mut run = need.run(need.room.clone());
            if need.obeys {
                let fewest = need.app.demand.min_threads.clamp(1, run.threads);
                run.threads =
                    run.threads.min(threads(run.threads, snapshot.load_average_15min_milli)).max(fewest);
            }
            Tree::Run(run)
        };
        let tree = compose::mixed(needs.iter().map(run).collect());
        let mut report = Report::default();
        let load = snapshot.load_average_15min_milli;
        report.lines.push(format!("load over 15 minutes: {}.{:03}", load / 1000, load % 1000));
        compose::decision(snapshot, tree, memory, report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_of_fifteen_minutes_is_taken_off_the_cpus() {
        assert_eq!(threads(24, 0), 24);
        assert_eq!(threads(24, 900), 23);
        assert_eq!(threads(24, 10_500), 14);
        assert_eq!(threads(24, 23_900), 1);
        assert_eq!(threads(24, 99_000), 1);
    }
}
