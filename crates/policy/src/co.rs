//! CO: equal parts by topology with coscheduling.
//!
//! # Problem
//!
//! With TA every arrival near a switching point resizes every program. CO keeps the partitions
//! wider and lets several programs take turns in one, so that fewer reconfigurations are needed
//! and every CPU always has work.
//!
//! # Source
//!
//! J. H. Schönherr, B. Juurlink, J. Richling: Topology-aware Equipartitioning with Coscheduling on
//! Multicore Systems, 2013: II-A and Listing 1 (levels, thresholds, hysteresis, local
//! decisions), II-B (periodic rebalancing), III-B f (the variant evaluated: identical thresholds at
//! the number of partitions of each level; widths 24, 12, 6, 3, 1).
//!
//! # Where we differ
//!
//! - Partitions of one CPU hold gangs of one thread, which have nobody to wait for: they are left
//!   to the kernel (`mixed`). So are programs of one partition that all wait passively or were
//!   declared not to need coscheduling (II-C), and those that share with one that must not stop.
//! - Listing 1 switches by one level an event; we go to the level that its thresholds lead to.
//! - A partition never stands empty while another has two programs, also between rebalancings.
//! - Programs of unlike weight are dealt so that partitions weigh alike, and local decisions, which count
//!   programs, are then global ones.
//! - Beside one who must not be stopped nobody can have turns. Where it would share several CPUs, everybody
//!   gets a partition of its own on a finer level, as under TA, or one CPU is shared; where the allowed
//!   widths have no such level, all run mixed on everything.
//! - Programs that cannot shrink take turns of their own width with all others, as II-C foresees.
//! - II-B's periodic rebalancing is done as a rotation: of each crowded partition the program that
//!   was moved longest ago goes to a less crowded one, so that over time all get the same. Where
//!   `rebalance_within_nodes` says so, nobody leaves its NUMA node for that, and all get the same
//!   only as far as the nodes hold equal numbers.
//!   The equilibrium over several levels that II-B prefers is not part of this policy, as in the
//!   paper's evaluation.
//!
//! # Terms
//!
//! allowed widths: partition widths in CPUs that may be used. level: the width in force. upper and
//! lower threshold: programs beyond and below a level's number of partitions before it is entered
//! and left. hold: time in nanoseconds for which a level stays at least.
//!
//! # Pseudocode
//!
//! ```text
//! while programs ≥ partitions(next finer level) + upper:  level = next finer
//! while programs < partitions(level) − lower:             level = next wider
//! (neither before the level was held for hold_ns)
//! programs dealt evenly over the partitions (unlike weights: by weight), as many as possible where they are
//! several in one partition: in_turn, slices by weight
//! with `neighbours` as TA, for global decisions
//!
//! local decisions, from the root of the hierarchy:
//!     a node with at least children + upper jobs deals them to its children
//!     a node whose children have fewer than children − lower jobs, or than half of children, takes them back
//! ```
//!
//! # Properties
//!
//! - the paper's levels for 1 to 30 programs: `coscheduling_goes_through_the_levels_of_the_paper`
//! - `hysteresis_keeps_the_level_around_the_switching_point`,
//!   `a_level_is_held_for_the_time_asked_for`
//! - `local_decisions_split_a_node_when_it_has_enough_jobs`
//! - numbers of programs in partitions differ by one at most:
//!   `programs_are_dealt_evenly_over_partitions`
//! - `rotation_gives_everybody_the_same_over_time`, `rotation_within_nodes_takes_nobody_to_another_node`
//! - shares of equal programs differ by a factor of 2 at most, over every round of turns (`max_still_ns` at
//!   most, longer only where the report says so): partitions carry numbers, or, where weights are unlike,
//!   weights that differ by no more (`common::weighing`); a thousandth more for slices of whole
//!   nanoseconds. Local decisions add a factor of 1.5 for CPUs that a node's halves leave over, and with
//!   thresholds or a hold one of 2, beyond which no node is kept divided. With `rebalance_every_ns`
//!   that begins once nothing has changed for so long; before, and always with
//!   `rebalance_within_nodes`, whoever has less than an equal has no less than 1 ÷ programs of it (or the
//!   part of its weight): `every_plan_of_every_policy_passes_the_checker`,
//!   `an_unstoppable_program_costs_its_neighbour_nothing`,
//!   `equals_beside_heavier_programs_differ_by_a_factor_of_2`,
//!   `no_node_stays_divided_for_fewer_than_half_of_its_parts`
//! - partitions of one shape (global decisions), most CPUs kept, nobody waits:
//!   `every_plan_of_every_policy_passes_the_checker`
//!
//! # Cost
//!
//! As TA.
//!
//! # Limits
//!
//! With an odd number of programs those in a less crowded partition get more, up to twice as much.
//! Nobody gets more than a partition, whatever its weight.

use plan::{Promise, Remark, Settled, ShareBound, Snapshot, WaitingBound};
use topology::CpuSet;

use crate::common::company::{Suited, suited};
use crate::common::compose::{Divide, Division, compose};
use crate::common::context::{Context, Part};
use crate::common::keep::{Claim, stay};
use crate::common::levels::{Cut, allowed_cuts, claims, crowds_steady, describe, equally_heavy, id, level};
use crate::common::levels::{dir_outside, one_each, parts, share_out, spread, together};
use crate::common::units::domains;
use crate::{Decision, LevelDecision, LevelMemory, Memory, Policy, Settings};

mod local;

pub(crate) struct Coscheduling {
    pub settings: Settings,
}

impl Policy for Coscheduling {
    fn letters(&self) -> &'static str {
        "CO"
    }

    fn words(&self) -> &'static str {
        "equal parts by topology with coscheduling"
    }

    fn promise(&self) -> Promise {
        let settings = &self.settings;
        let global = settings.level_decision == LevelDecision::Global;
        // See the properties.
        let local_factor = match (global, hysteresis(settings)) {
            (true, _) => 1.0,
            (false, false) => 1.5,
            (false, true) => 3.0,
        };
        let (even, floor) =
            (ShareBound::Ratio(local_factor * 2.001), ShareBound::Floor(local_factor * 1.001));
        // Until programs are dealt anew, and between nodes for good, they stay where they came to.
        let (share_bound, settled) = match settings.rebalance_every_ns {
            None => (Some(even), None),
            Some(_) if settings.rebalance_within_nodes => (Some(floor), None),
            Some(after_ns) => (Some(floor), Some(Settled { after_ns, bound: even })),
        };
        Promise {
            equal_shapes: global,
            share_bound,
            settled,
            waiting_bound: Some(WaitingBound::Terminations(0)),
            // Neighbours are worth moves.
            keeps_cpus: global && self.settings.neighbours.is_none(),
        }
    }

    fn decide(&self, snapshot: &Snapshot, memory: &Memory) -> Decision {
        let cx = Context::new(snapshot, &self.settings, memory);
        let (cuts, remark) = allowed_cuts(&cx);
        let mut decision = compose(&cx, &Leveled { cx: &cx, cuts }, &cx.everybody());
        decision.report.remarks.splice(0..0, remark);
        decision
    }
}

/// Whether levels are kept that the number of programs alone would not lead to.
fn hysteresis(settings: &Settings) -> bool {
    settings.lower_threshold > 0 || settings.upper_threshold > 0 || settings.hold_ns > 0
}

struct Leveled<'a, 'c> {
    cx: &'c Context<'a>,
    cuts: Vec<Cut>,
}

impl Leveled<'_, '_> {
    fn remember(&self, cut: &Cut) -> LevelMemory {
        let old = &self.cx.memory.level;
        let since_ns = if old.width == Some(cut.width) { old.since_ns } else { self.cx.snapshot.now_ns };
        LevelMemory { width: Some(cut.width), since_ns, ..LevelMemory::default() }
    }

    /// Programs on the places of one level, and what is to be remembered of moving them.
    fn deal(&self, cut: &Cut, members: &[usize], memory: &mut LevelMemory) -> (Vec<Part>, Option<u64>) {
        let now = self.cx.snapshot.now_ns;
        let old = &self.cx.memory.level;
        let same_level = old.width == Some(cut.width);
        let Some(every_ns) = self.cx.settings.rebalance_every_ns.filter(|_| members.len() > cut.places.len())
        else {
            return (spread(self.cx, &cut.places, members), None);
        };
        let every_ns = every_ns.max(1);
        let moved = members.iter().filter_map(|&index| {
            let app = id(self.cx, index);
            Some((app.clone(), *old.moved_ns.get(app)?))
        });
        memory.moved_ns = moved.collect();
        memory.rebalanced_ns = if same_level { old.rebalanced_ns } else { now };
        let due = memory.rebalanced_ns.saturating_add(every_ns);
        let claims = claims(self.cx, &cut.places, members);
        let grounds = self.grounds(&cut.places);
        let is_due = !same_level || now >= due;
        // Dealing anew evens out the nodes, too. Who brings several threads to a CPU that is shared leaves little to those whom it finds there.
        let several = claims.iter().any(|claim| claim.load > 1);
        let anew = is_due && !(same_level && self.cx.settings.rebalance_within_nodes);
        let mut dealt = if several || anew {
            share_out(self.cx, &cut.places, members, &claims)
        } else {
            stay(&cut.places, &claims)
        };
        // Rotation counts programs; unlike weights are dealt anew and stay.
        if is_due && same_level && (equally_heavy(self.cx, members) || cut.width == 1) {
            grounds.iter().for_each(|ground| self.rotate(ground, &mut dealt, members, &claims, memory));
        }
        if is_due {
            memory.rebalanced_ns = now;
        }
        let uneven = |ground: &Vec<usize>| {
            let weight = |&at: &usize| match cut.width {
                1 => u64::from(claims[at].load),
                _ => self.cx.needs[members[at]].weight,
            };
            let weights = || ground.iter().map(|&place| dealt[place].iter().map(weight).sum::<u64>());
            weights().max() != weights().min()
        };
        let wake = grounds.iter().any(uneven).then(|| memory.rebalanced_ns.saturating_add(every_ns));
        (parts(&cut.places, dealt, members), wake)
    }

    /// Between which places programs rotate: all, or those of each NUMA node.
    fn grounds(&self, places: &[CpuSet]) -> Vec<Vec<usize>> {
        let all = 0..places.len();
        if !self.cx.settings.rebalance_within_nodes {
            return vec![all.collect()];
        }
        let nodes = domains(&self.cx.snapshot.machine).into_iter();
        nodes.map(|node| all.clone().filter(|&place| places[place].is_subset(&node)).collect()).collect()
    }

    /// One program out of each crowded partition of the ground, as far as there are less crowded ones.
    fn rotate(
        &self,
        ground: &[usize],
        dealt: &mut [Vec<usize>],
        members: &[usize],
        claims: &[Claim<'_>],
        memory: &mut LevelMemory,
    ) {
        let load = |place: usize| dealt[place].iter().map(|&at| claims[at].load.max(1)).sum::<u32>();
        let least = ground.iter().map(|&place| load(place)).min().unwrap_or(0);
        let those = |wanted: &dyn Fn(u32) -> bool| -> Vec<usize> {
            ground.iter().copied().filter(|&place| wanted(load(place))).collect()
        };
        let (roomy, crowded) = (those(&|load| load == least), those(&|load| load > least));
        for (from, to) in crowded.into_iter().zip(roomy) {
            let last_move = |at: usize| memory.moved_ns.get(id(self.cx, members[at])).copied();
            let free =
                dealt[from].iter().copied().filter(|&at| claims[at].scope.is_none() && claims[at].load <= 1);
            if let Some(at) = free.min_by_key(|&at| (last_move(at), at)) {
                dealt[from].retain(|&other| other != at);
                dealt[to].push(at);
                dealt[to].sort_unstable();
                memory.moved_ns.insert(id(self.cx, members[at]).clone(), self.cx.snapshot.now_ns);
            }
        }
    }
}

impl Divide for Leveled<'_, '_> {
    fn width_for(&self, count: usize) -> u32 {
        // For local decisions an estimate: some nodes may be finer; who does not fit there takes turns.
        self.cuts[level(self.cx, &self.cuts, count).0].width
    }

    fn divide(&self, blocked: &CpuSet, members: &[usize]) -> Division {
        if members.is_empty() {
            return Division::default();
        }
        let clear = dir_outside(&self.cuts, blocked);
        let cuts = clear.as_deref().unwrap_or(&self.cuts);
        // Nodes count programs, whatever they weigh.
        if self.cx.settings.level_decision == LevelDecision::Local && equally_heavy(self.cx, members) {
            let division = local::divide(self.cx, cuts, members);
            if !division.layers.iter().any(|parts| crowds_steady(self.cx, parts)) {
                return division;
            }
        }
        let (number, held_until) = level(self.cx, cuts, members.len());
        let mut cut = &cuts[number];
        let mut level = self.remember(cut);
        let (mut parts, rebalance) = self.deal(cut, members, &mut level);
        if crowds_steady(self.cx, &parts) {
            let finest = cuts.last().filter(|cut| cut.width == 1);
            let Some(finer) = one_each(cuts, members).or(finest) else {
                let (parts, remark) = together(self.cx, members);
                return Division { layers: vec![parts], remarks: vec![remark], ..Division::default() };
            };
            cut = finer;
            level = self.remember(cut);
            parts = spread(self.cx, &cut.places, members);
        }
        let Suited { parts, remarks: company, reasons } = suited(self.cx, &cut.places, parts);
        let mut remarks = describe(self.cx, cut, &parts, members.len());
        remarks.extend(company);
        if members.len() > cut.places.len() {
            remarks.push(Remark::Crowded {
                width: cut.width,
                least: (members.len() / cut.places.len()) as u32,
                most: members.len().div_ceil(cut.places.len()) as u32,
            });
        }
        let wake_at_ns = held_until.into_iter().chain(rebalance).min();
        Division { layers: vec![parts], level, wake_at_ns, remarks, reasons, ..Division::default() }
    }
}
