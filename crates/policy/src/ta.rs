//! TA: equal parts by topology.
//!
//! # Problem
//!
//! Equal parts that ignore the machine tear programs across sockets and caches. Parts that are
//! whole units of the machine, or equal fractions of one, look alike from inside: caches and
//! memory near by, no neighbours on the same core.
//!
//! # Source
//!
//! J. H. Schönherr, B. Juurlink, J. Richling: Topology-aware Equipartitioning with Coscheduling on
//! Multicore Systems, 2013, II-A and III-B e (TA: the variant without coscheduling).
//!
//! # Where we differ
//!
//! - The paper evaluates malleable programs only. A program that cannot shrink to its partition is
//!   not squeezed: it gets a place of its width in turn with all others (`common::compose`), as
//!   II-C foresees for programs with special needs.
//! - With more programs than the finest partitions, the paper's text for TA is silent: several
//!   then share the finest partitions evenly, with one thread each.
//! - Restricted programs stand where they may; those of them whose partitions are all taken take
//!   turns with whoever has one of them.
//!
//! # Terms
//!
//! shape: one way to cut the usable CPUs into equal partitions. level: the shape in force. width: CPUs
//! of a partition.
//!
//! # Pseudocode
//!
//! ```text
//! level      = the widest shape with at least as many partitions as programs, else the finest
//! partitions = assignment of programs to partitions that keeps most CPUs where they are
//! with `neighbours`: programs exchange partitions while what they are predicted to lose beside those that
//!     they share memory with falls by more than the moves cost (`common::company`)
//! ```
//!
//! With 3 programs on 4 sockets each gets a socket and the fourth stays idle, as in the paper: the
//! partitions are "identically shaped" and sizes are 1, 2, 3, 6, 12 and 24 of 24 CPUs only.
//!
//! # Properties
//!
//! - the paper's widths for 1 to 30 programs: `the_paper_s_machine_goes_through_the_paper_s_widths`
//! - the level against a naive search: `the_level_of_equal_parts_by_topology_matches_a_naive_search`
//! - nobody moves while the level stays: `arrivals_and_ends_within_a_level_move_nobody`
//! - shares of equal programs differ by a factor of 2 at most (one finest partition shared by one
//!   program more than another; over every round of turns: `max_still_ns` at most, longer only where the
//!   report says so), partitions of one shape, most CPUs kept, nobody waits:
//!   `every_plan_of_every_policy_passes_the_checker`
//! - `a_rigid_spinning_program_is_never_narrowed`
//! - neighbours (tests/neighbours.rs): `the_best_neighbours_are_chosen_whatever_programs_are_called`,
//!   `uncertain_predictions_leave_the_plan_of_the_twins`,
//!   `no_program_moves_for_less_than_a_move_costs`
//!
//! # Cost
//!
//! The shapes of the usable CPUs, once; keeping CPUs linear in the CPUs except in groups of
//! programs that compete for overlapping places (`common::matching`). 1,000 programs on 1,024 CPUs:
//! `benches/decide.rs`.
//!
//! # Limits
//!
//! Weights count only in turns. Idle partitions stay idle.

use plan::{Promise, ShareBound, Snapshot, WaitingBound};
use topology::CpuSet;

use crate::common::company::{Suited, suited};
use crate::common::compose::{Divide, Division, compose};
use crate::common::context::Context;
use crate::common::levels::{Cut, cuts, describe, dir_outside, spread};
use crate::{Decision, LevelMemory, Memory, Policy, Settings};

pub(crate) struct ByTopology {
    pub settings: Settings,
}

impl Policy for ByTopology {
    fn letters(&self) -> &'static str {
        "TA"
    }

    fn words(&self) -> &'static str {
        "equal parts by topology"
    }

    fn promise(&self) -> Promise {
        Promise {
            equal_shapes: true,
            share_bound: Some(ShareBound::Ratio(2.0)),
            settled: None,
            waiting_bound: Some(WaitingBound::Terminations(0)),
            // Neighbours are worth moves.
            keeps_cpus: self.settings.neighbours.is_none(),
        }
    }

    fn decide(&self, snapshot: &Snapshot, memory: &Memory) -> Decision {
        let cx = Context::new(snapshot, &self.settings, memory);
        compose(&cx, &Topological { cx: &cx, cuts: cuts(&cx) }, &cx.everybody())
    }
}

struct Topological<'a, 'c> {
    cx: &'c Context<'a>,
    cuts: Vec<Cut>,
}

/// The widest cut with at least `count` places, else the one with most.
fn level(cuts: &[Cut], count: usize) -> &Cut {
    cuts.iter()
        .find(|cut| cut.places.len() >= count)
        .unwrap_or_else(|| cuts.iter().max_by_key(|cut| cut.places.len()).expect("never without cuts"))
}

impl Divide for Topological<'_, '_> {
    fn width_for(&self, count: usize) -> u32 {
        level(&self.cuts, count).width
    }

    fn divide(&self, blocked: &CpuSet, members: &[usize]) -> Division {
        if members.is_empty() {
            return Division::default();
        }
        let clear = dir_outside(&self.cuts, blocked);
        let cut = level(clear.as_ref().unwrap_or(&self.cuts), members.len());
        let Suited { parts, remarks: company, reasons } =
            suited(self.cx, &cut.places, spread(self.cx, &cut.places, members));
        let mut remarks = describe(self.cx, cut, &parts, members.len());
        remarks.extend(company);
        let memory = &self.cx.memory.level;
        let same = memory.width == Some(cut.width);
        let since_ns = if same { memory.since_ns } else { self.cx.snapshot.now_ns };
        let level = LevelMemory { width: Some(cut.width), since_ns, ..LevelMemory::default() };
        Division { layers: vec![parts], level, remarks, reasons, ..Division::default() }
    }
}
