//! adaptive: by evidence.
//!
//! # Problem
//!
//! Equal parts treat programs alike that are not: one gains nothing from its sixth core, another loses a
//! third of its speed beside a neighbour that fills the memory bus, a third spends a minute fetching
//! its memory after it was moved for the sake of equal shapes.
//!
//! # Source
//!
//! Our own. What it takes up: J. H. Schönherr, B. Juurlink, J. Richling: Topology-aware Equipartitioning
//! with Coscheduling on Multicore Systems, 2013, II-B and II-C (fair shares for programs of unlike
//! needs) and V (widths by speed-up and placement by contention, named there as future work). The sum
//! of logarithms is J. F. Nash: The Bargaining Problem, 1950.
//!
//! # Where we differ
//!
//! - Partitions are neither of one shape nor whole units: a program may have two cores in each of four
//!   nodes, where its memory is.
//! - Resizable programs never take turns: by the model half of the cores of every node are worth more to each
//!   program of the paper's Table I than all cores half of the time. Programs that cannot shrink still
//!   do (`common::compose`).
//!
//! # Terms
//!
//! node: CPUs that share memory (NUMA node, else package, else last-level cache). cell: a core, or
//! a CPU where there are more programs than cores. home: the nodes that a program stands in.
//! evidence: what the snapshot knows of a program ([`plan::Evidence`], [`plan::Speedup`]). served: CPU
//! time that plans gave to a program ÷ what its weight entitled it to, over its life.
//!
//! # Pseudocode
//!
//! ```text
//! worth(division) = - Σ weight × ln(expected time to its end) - parity × (served at its end ÷ 0.95 - 1)²
//! newcomers       : the home that is worth most, where everybody there makes room evenly
//! until nothing is worth it, at most 200 times:
//!   one cell, or one in each node of a home, changes hands  if worth rises by 0.02
//!   the best change of one program's home                   if worth rises by 0.1
//! again at every event, and every 5 s, or after 1/50 of the shortest time that a program is old or has left
//! ```
//!
//! The expected time (`model`) takes the curve, the neighbours' demands on memory and cache, what is left
//! of the work, and what a move to other nodes costs. What is not known is assumed, for all alike.
//!
//! A program that cannot be resized may start narrow, for good, where that is worth more than turns (`narrow`).
//!
//! # Properties
//!
//! - `a_lone_program_gets_everything`
//! - `a_flat_program_leaves_its_cpus_to_one_that_scales`
//! - `memory_bound_programs_leave_cpus_to_the_others`
//! - `a_short_rest_is_not_worth_a_move`
//! - `without_evidence_equal_programs_get_equal_fixed_parts`
//! - everybody always runs, on a quarter of an equal part at least, down to whole cells and not less than
//!   one: `every_program_has_a_quarter_of_an_equal_part_at_least`. A quarter in cells is more than an
//!   eighth, and no equal has more than all: the smaller of two equal programs' shares is never less than
//!   1 ÷ (8 × programs) of the larger, in every round of turns (`max_still_ns` at most, longer only where
//!   the report says so): `every_plan_of_every_policy_passes_the_checker`. Over its life it had its
//!   share, as far as `parity` is worth it.
//! - who had less gets more: `an_underserved_program_gets_more`
//! - who starts narrow: `a_rigid_program_starts_narrow_only_where_turns_are_worse`
//! - `a_rigid_program_is_never_narrowed`, `every_plan_of_every_policy_passes_the_checker`
//!
//! # Cost
//!
//! A division is judged in programs × nodes steps; a decision takes five million such steps at most.
//!
//! # Limits
//!
//! With more than 48 programs, more programs than CPUs, or programs that may stand on some CPUs only, parts
//! are equal ([`crate::eq`]). Cores of unlike capacity count alike. A curve is taken to hold wherever
//! the CPUs lie. The search ends at the first division that no single change improves.

pub(crate) mod account;
mod counts;
mod model;
mod narrow;
mod search;
mod seats;

use plan::{App, MoveReason, Promise, Remark, ShareBound, Snapshot, WaitingBound};
use topology::CpuSet;

use crate::common::compose::{Divide, Division, compose};
use crate::common::context::Context;
use crate::eq;
use crate::settings::Lever;
use crate::{Decision, Memory, NarrowStart, Policy, Settings};
use account::Account;
use model::{Facts, Ground};
use seats::Seats;

/// How soon shares are looked at again, at the earliest, if nothing happens.
const REVIEW_NS: u64 = 5_000_000_000;
/// Nor sooner than the youngest program's age, or the time until the next one ends, divided by this: before that, what
/// programs have had and what they have left to do are in proportion the same.
const REVIEW_PART: u64 = 50;
/// Beyond so many programs parts are equal.
const MOST_PROGRAMS: usize = 48;
/// Everybody gets at least an equal part ÷ this, in whole cells.
const LEAST_PART: usize = 4;

pub(crate) struct Adaptive {
    pub settings: Settings,
}

impl Policy for Adaptive {
    fn letters(&self) -> &'static str {
        "adaptive"
    }

    fn words(&self) -> &'static str {
        "by evidence"
    }

    fn promise(&self) -> Promise {
        Promise {
            share_bound: Some(ShareBound::Floor((2 * LEAST_PART) as f64)),
            waiting_bound: Some(WaitingBound::Terminations(0)),
            ..Promise::default()
        }
    }

    fn narrow_start(&self, newcomer: &App, snapshot: &Snapshot) -> Option<NarrowStart> {
        if self.settings.without.contains(&Lever::Widths) { None } else { narrow::start(newcomer, snapshot) }
    }

    fn decide(&self, snapshot: &Snapshot, memory: &Memory) -> Decision {
        let cx = Context::new(snapshot, &self.settings, memory);
        let mut account = memory.account.until(snapshot);
        let divide = ByEvidence { cx: &cx, account: &account };
        let mut decision = compose(&cx, &divide, &cx.everybody());
        account.follow(snapshot, &decision.plan);
        decision.memory.account = account;
        for (app, why) in &mut decision.report.moves {
            if memory.places.get(app).is_some_and(|before| before.is_subset(&snapshot.usable)) {
                *why = MoveReason::Evidence;
            }
        }
        decision
    }
}

struct ByEvidence<'a, 'c> {
    cx: &'c Context<'a>,
    account: &'c Account,
}

impl Divide for ByEvidence<'_, '_> {
    fn width_for(&self, count: usize) -> u32 {
        (self.cx.snapshot.usable.len() / count.max(1)).max(1) as u32
    }

    fn divide(&self, blocked: &CpuSet, members: &[usize]) -> Division {
        let cx = self.cx;
        let clear = cx.snapshot.usable.difference(blocked);
        let cpus = if clear.is_empty() { cx.snapshot.usable.clone() } else { clear };
        let restricted = members.iter().any(|&index| cx.needs[index].scope.is_some());
        if members.is_empty() || restricted || members.len() > cpus.len().min(MOST_PROGRAMS) {
            return eq::Division::of_usable(cx).divide(blocked, members);
        }
        let mut seats = Seats::of(&cx.snapshot.machine, &cpus, members.len());
        let weights: u64 = members.iter().map(|&index| cx.needs[index].weight).sum();
        let cells: usize = seats.cells().iter().sum();
        let ground = Ground {
            cell_cpus: seats.cell_cpus(),
            share: cpus.len() as f64 / weights.max(1) as f64,
            least: cells / (members.len() * LEAST_PART),
            cells: seats.cells(),
        };
        let mut facts: Vec<Facts> = Vec::new();
        for &index in members {
            let need = &cx.needs[index];
            let memory = seats.sit(need.before);
            let served = self.account.served(&need.app.id);
            facts.push(Facts::of(need, &ground, memory, served, &cx.settings.without));
        }
        let counts = search::divide(&facts, &ground, seats.counts());
        let parts = seats.assign(&counts, members);
        let (programs, nodes) = (members.len() as u32, ground.cells.len() as u32);
        let mut remarks = vec![Remark::ByEvidence { programs, nodes }];
        let gets = members.iter().zip(&facts).zip(counts.rows());
        remarks.extend(gets.map(|((&i, facts), row)| facts.remark(&cx.needs[i], row, &ground)));
        let now_ns = cx.snapshot.now_ns;
        let ages_ns = members.iter().map(|&index| now_ns.saturating_sub(cx.needs[index].app.arrived_ns));
        let ends_ns = model::ends_s(&facts, &ground, &counts).map(|end_s| (end_s * 1e9) as u64);
        let review = members.len() > 1;
        let wake_at_ns = review.then(|| now_ns.saturating_add(review_after_ns(ages_ns.chain(ends_ns))));
        Division { layers: vec![parts], wake_at_ns, remarks, ..Division::default() }
    }
}

/// When shares are looked at again, where programs have been there for and have left these times, all in nanoseconds.
fn review_after_ns(times_ns: impl Iterator<Item = u64>) -> u64 {
    REVIEW_NS.max(times_ns.min().unwrap_or(0) / REVIEW_PART)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reviews_are_as_rare_as_shares_are_steady() {
        const SECOND: u64 = 1_000_000_000;
        for (times_s, after_s) in [(&[][..], 5), (&[3600, 2], 5), (&[250, 3600], 5), (&[1000, 3600], 20)] {
            let times_ns = times_s.iter().map(|time| time * SECOND);
            assert_eq!(review_after_ns(times_ns), after_s * SECOND, "{times_s:?}");
        }
    }
}
