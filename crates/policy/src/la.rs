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

    fn decide(&self, snapshot: &Snapshot, memory: &Memory) -> Decision {
        let load_milli = snapshot.load_average_15min_milli;
        overlapping(snapshot, memory, &self.settings, |own| threads(own, load_milli))
    }
}

/// The team that libgomp makes of `own` threads at this load average.
fn threads(own: u32, load_milli: u64) -> u32 {
    let load = u32::try_from(load_milli.saturating_add(100) / 1000).unwrap_or(u32::MAX);
    own.saturating_sub(load).max(1)
}

#[cfg(test)]
mod tests {
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
}
