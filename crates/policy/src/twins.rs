//! twins: twins apart.
//!
//! # Problem
//!
//! Nothing is known of the programs but their names. Two runs of one program want the same of the same
//! thing at the same time.
//!
//! # Source
//!
//! A. de Blanche, T. Lundqvist: Terrible Twins: A Simple Scheme to Avoid Bad Co-Schedules, COSH 2016.
//! High twins want much of what is scarce, and slow each other down more than anybody else would. Low twins want
//! little: each would have been a good neighbour to somebody who wants much, and both are spent on each other. So
//! all twins are kept apart, without knowing which kind they are.
//!
//! # Where we differ
//!
//! The paper pairs jobs on nodes of two cores. Here the parts are those of TA, and whoever shares a NUMA node (else
//! a package, else a last-level cache) is a neighbour.
//!
//! # Terms
//!
//! twins: runs of one program (`plan::App::program`). neighbours: programs on partitions of one domain.
//!
//! # Pseudocode
//!
//! ```text
//! TA; then programs exchange partitions while that parts twins (`common::company`)
//! ```
//!
//! # Properties
//!
//! - `twins_stand_apart_where_there_is_room`; with more runs than domains as few as possible are together
//! - partitions of one shape, shares, nobody waits: `every_plan_of_every_policy_passes_the_checker`
//!
//! # Cost
//!
//! As TA, and what the exchanges cost: n² of a few comparisons each time that all were looked at.
//!
//! # Limits
//!
//! Programs move to stand apart. With one domain there is nothing to choose but who shares a slot.

use plan::{Promise, Snapshot};

use crate::ta::ByTopology;
use crate::{Decision, Memory, Neighbours, Policy, Settings};

pub(crate) struct TwinsApart(ByTopology);

impl TwinsApart {
    pub fn new(settings: Settings) -> TwinsApart {
        TwinsApart(ByTopology { settings: Settings { neighbours: Some(Neighbours::Twins), ..settings } })
    }
}

impl Policy for TwinsApart {
    fn letters(&self) -> &'static str {
        "twins"
    }

    fn words(&self) -> &'static str {
        "twins apart"
    }

    fn promise(&self) -> Promise {
        self.0.promise()
    }

    fn decide(&self, snapshot: &Snapshot, memory: &Memory) -> Decision {
        self.0.decide(snapshot, memory)
    }
}
