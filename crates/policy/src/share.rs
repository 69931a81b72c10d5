//! TA+: equal parts by topology, turns for rigid programs. The default.
//!
//! # Problem
//!
//! Real mixes hold resizable and rigid programs. TA gives everybody turns as soon as one program
//! cannot shrink to its part, and so stops resizable programs that need not stop at all.
//!
//! # Source
//!
//! Schönherr, Juurlink, Richling, MSEPT 2013: II-A for the partitions, II-C for programs "with
//! special needs regarding the parallelism degree", II-A's nesting of turns inside partitions,
//! which needs "only partition wide synchronization".
//!
//! # Where we differ
//!
//! Before everybody takes turns, this policy looks for a unit of the machine that the rigid
//! programs can have for themselves, in turn among each other, while the others share the rest by
//! TA without ever standing still. It takes the narrowest such unit where nobody gets less of what
//! it is entitled to than it would get in turns of everybody; else it does as TA does.
//!
//! # Terms
//!
//! entitlement: the usable CPUs × weight ÷ all weights. fraction: CPUs that a program gets ÷ its
//! entitlement.
//!
//! # Pseudocode
//!
//! ```text
//! gangs = programs that do not fit TA's partitions; none: as TA
//! for each partition P of each shape, narrowest first:
//!     fraction of the gangs   = |P| ÷ sum of their entitlements (their slots side by side in P)
//!     fraction of the others  = TA's partitions of the rest ÷ entitlement
//!     take P where the smaller of both is at least what turns of everybody give
//! ```
//!
//! # Properties
//!
//! As TA; and `resizable_programs_do_not_stop_where_rigid_ones_fit_beside_them`,
//! `a_rigid_program_as_wide_as_the_machine_takes_turns_with_everybody`.
//!
//! # Cost
//!
//! As TA, plus one TA level and one packing for each shape tried.
//!
//! # Limits
//!
//! A single unit for all rigid programs; weights count in turns only. Only where all programs may be
//! stopped and are free to stand anywhere; else as TA.

use plan::{Promise, Snapshot};

use crate::common::compose::{Context, compose};
use crate::common::levels::cuts;
use crate::ta::{Topological, promise};
use crate::{Decision, Memory, Policy, Settings};

pub(crate) struct Share {
    settings: Settings,
}

impl Share {
    pub fn new(settings: &Settings) -> Share {
        Share { settings: settings.clone() }
    }
}

impl Policy for Share {
    fn letters(&self) -> &'static str {
        "TA+"
    }

    fn words(&self) -> &'static str {
        "equal parts by topology, turns for rigid programs"
    }

    fn promise(&self) -> Promise {
        promise()
    }

    fn decide(&self, snapshot: &Snapshot, memory: Memory) -> Decision {
        let cx = Context::new(snapshot, &self.settings, &memory);
        compose(&cx, &Topological { cx: &cx, cuts: cuts(&cx) }, &cx.everybody())
    }
}
