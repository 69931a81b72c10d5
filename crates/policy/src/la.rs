//! LA: load-adaptive.
//!
//! # Problem
//!
//! What off-the-shelf runtimes offer: each program looks at the load of the system and sizes its
//! next team by that.
//!
//! # Source
//!
//! Schönherr, Juurlink, Richling 2013, III-B b; GNU libgomp's behaviour under `OMP_DYNAMIC=TRUE`:
//! the CPUs online (or the wished number of threads, if less) less the load average over 15
//! minutes, which is rounded down after adding 0.1; at least 1.
//!
//! # Where we differ
//!
//! The runtime decides by itself at each parallel region; the plan's number of threads foretells
//! what it does.
//!
//! # Terms
//!
//! load average over 15 minutes, in thousandths.
//!
//! # Pseudocode
//!
//! ```text
//! threads = max(1, own threads − ⌊load average + 0.1⌋)
//! mixed [ each program on all CPUs that it may use, with that many threads ]
//! ```
//!
//! # Properties
//!
//! - `the_load_of_fifteen_minutes_is_taken_off_the_cpus`
//! - equal programs get the same, as under UE: `every_plan_of_every_policy_passes_the_checker`
//! - nobody waits and nobody is stopped: `every_plan_of_every_policy_passes_the_checker`
//!
//! # Cost
//!
//! Linear in the number of programs.
//!
//! # Limits
//!
//! The load average says nothing about how many programs there are, and reacts in minutes.

use plan::{Promise, ShareBound, Snapshot, WaitingBound};

use crate::ue::overlapping;
use crate::{Decision, Memory, Policy, Settings};

pub(crate) struct LoadAdaptive {
    pub settings: Settings,
}

impl Policy for LoadAdaptive {
    fn letters(&self) -> &'static str {
        "LA"
    }

    fn words(&self) -> &'static str {
        "load-adaptive"
    }

    fn promise(&self) -> Promise {
        Promise {
            // Equal programs read the same load average.
            share_bound: Some(ShareBound::Ratio(1.0)),
            waiting_bound: Some(WaitingBound::Terminations(0)),
            ..Promise::default()
        }
    }

    fn launch_environment(&self) -> Vec<(&'static str, &'static str)> {
        vec![("OMP_DYNAMIC", "TRUE")]
    }

    fn hands_off(&self) -> bool {
        true
    }

    fn is_load_relevant(&self, snapshot: &Snapshot, now_milli: u64) -> bool {
        // More than all CPUs cannot be taken off.
        let most = snapshot.machine.all_cpus().len() as u32;
        let counts = |load_milli| taken_off(load_milli).min(most);
        counts(snapshot.load_average_15min_milli) != counts(now_milli)
    }

    fn decide(&self, snapshot: &Snapshot, memory: &Memory) -> Decision {
        let load_milli = snapshot.load_average_15min_milli;
        overlapping(snapshot, memory, &self.settings, |own| threads(own, load_milli))
    }
}

/// The team that libgomp makes of `own` threads at this load average.
fn threads(own: u32, load_milli: u64) -> u32 {
    own.saturating_sub(taken_off(load_milli)).max(1)
}

/// The CPUs that libgomp takes for busy: the load average and a tenth, rounded down.
fn taken_off(load_milli: u64) -> u32 {
    u32::try_from(load_milli.saturating_add(100) / 1000).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use topology::Machine;

    use super::*;

    #[test]
    fn the_load_of_fifteen_minutes_is_taken_off_the_cpus() {
        assert_eq!(threads(24, 0), 24);
        assert_eq!(threads(24, 899), 24);
        assert_eq!(threads(24, 900), 23);
        assert_eq!(threads(24, 10_500), 14);
        assert_eq!(threads(24, 23_900), 1);
        assert_eq!(threads(24, u64::MAX), 1);
    }

    #[test]
    fn only_a_load_that_changes_teams_is_relevant() {
        let machine = Arc::new(Machine::synthetic("pack:1 core:4").unwrap());
        let relevant = |before: u64, now: u64| {
            let mut snapshot = Snapshot::for_machine(Arc::clone(&machine));
            snapshot.load_average_15min_milli = before;
            let teams = |load| (1..=4).map(|own| threads(own, load)).collect::<Vec<_>>();
            let is_relevant = LoadAdaptive { settings: Settings::default() }.is_load_relevant(&snapshot, now);
            assert!(is_relevant || teams(before) == teams(now), "{before} {now}");
            is_relevant
        };
        assert!(relevant(0, 900) && relevant(2_899, 2_900));
        assert!(!relevant(0, 899) && !relevant(3_900, 400_000));
    }
}
