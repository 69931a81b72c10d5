//! UE: uncontrolled.
//!
//! # Problem
//!
//! The baseline of everything: what happens when nobody decides.
//!
//! # Source
//!
//! J. H. Schönherr, B. Juurlink, J. Richling: Topology-aware Equipartitioning with Coscheduling on
//! Multicore Systems, 2013, III-B a: each program considers itself alone and starts as many
//! threads as there are CPUs. Programs that wait passively (the paper's UEp) run by the same plan;
//! how a program waits is its own matter.
//!
//! # Where we differ
//!
//! Unmanaged programs keep their CPUs, as under every policy, and suspended programs stand still:
//! a user asked for that.
//!
//! # Terms
//!
//! usable CPUs: affinity ∩ cpuset ∩ online CPUs, no more than a quota pays for, less what unmanaged
//! programs use.
//!
//! # Pseudocode
//!
//! ```text
//! mixed [ each program on all CPUs that it may use, with its own number of threads ]
//! ```
//!
//! # Properties
//!
//! - nobody waits and nobody is stopped: `every_plan_of_every_policy_passes_the_checker`
//! - equal programs get the same (their threads are as many, on the same CPUs, and the kernel treats threads
//!   alike; in the long run, for it promises no time): `every_plan_of_every_policy_passes_the_checker`
//! - each program has as many threads as it would have alone: `uncontrolled_programs_overlap_everywhere`
//!
//! # Cost
//!
//! Linear in the number of programs.
//!
//! # Limits
//!
//! What a share is worth is another matter: spinning threads keep one another from running.

use plan::{Promise, Remark, Run, ShareBound, Snapshot, Tree, WaitingBound};

use crate::common::context::Context;
use crate::common::gather::{leaf, mixed};
use crate::common::needs::Need;
use crate::common::outcome;
use crate::{Decision, LevelMemory, Memory, Policy, Settings};

pub(crate) struct Uncontrolled {
    pub settings: Settings,
}

impl Policy for Uncontrolled {
    fn letters(&self) -> &'static str {
        "UE"
    }

    fn words(&self) -> &'static str {
        "uncontrolled"
    }

    fn promise(&self) -> Promise {
        Promise {
            // To the kernel threads are alike, and equal programs have equally many.
            share_bound: Some(ShareBound::Ratio(1.0)),
            waiting_bound: Some(WaitingBound::Terminations(0)),
            ..Promise::default()
        }
    }

    fn hands_off(&self) -> bool {
        true
    }

    fn decide(&self, snapshot: &Snapshot, memory: &Memory) -> Decision {
        overlapping(snapshot, memory, &self.settings, |threads| threads)
    }
}

/// Everybody on all that it may use, with as many threads as `threads` makes of its own number.
pub(crate) fn overlapping(
    snapshot: &Snapshot,
    memory: &Memory,
    settings: &Settings,
    threads: impl Fn(u32) -> u32,
) -> Decision {
    let cx = Context::new(snapshot, settings, memory);
    let tree = |need: &Need<'_>| {
        let place = need.scope.clone().unwrap_or_else(|| snapshot.usable.clone());
        let resized = || threads(need.cap.min(place.len() as u32)).max(need.least_threads);
        let threads = need.own_threads.unwrap_or_else(resized);
        leaf(Run { threads, ..Run::new(need.app.id.clone(), place) })
    };
    let mut trees: Vec<Tree> = cx.needs.iter().map(tree).collect();
    let tree = if trees.len() > 1 { Some(mixed(trees)) } else { trees.pop() };
    let remarks = vec![Remark::LeftToKernel { programs: cx.needs.len() as u32 }];
    outcome::decision(&cx, tree, LevelMemory::default(), None, remarks)
}
