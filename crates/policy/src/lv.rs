//! LV: equilibrium over levels.
//!
//! # Problem
//!
//! Equal partitions leave a remainder: five programs on four cores are two on one core and one on
//! each other, so that two get half of what the others get. Either somebody is treated badly, or
//! programs are moved about for ever to even it out.
//!
//! # Source
//!
//! J. H. Schönherr, B. Juurlink, J. Richling: Topology-aware Equipartitioning with Coscheduling on
//! Multicore Systems, 2013. II-B (equal load in each partition of a level, odd programs a level up,
//! levels in turn and weighted so that each program gets the same CPU time; balancing in stable
//! situations only; the grace period), II-C (special needs, wider partitions for programs that scale
//! better), II-A and Listing 1 (which level is the finest in use). The drawing of Figure 2 is lost;
//! `the_schedules_of_figure_2_follow_from_the_rule` derives it.
//!
//! # Where we differ
//!
//! - The paper weights levels for programs of one weight. Here programs of each weight are dealt
//!   evenly by themselves, so that all partitions of a level carry the same weights and every
//!   program gets what its weight entitles it to.
//! - A level whose turn would be shorter than the shortest slice although everybody stands still for
//!   as long as is allowed is not used; the odd ones then have a turn of their own on the widest
//!   level that is, beside idle partitions. Weights too small for any level count as the least that
//!   is not.
//! - Where programs that must not be stopped leave the others no partition, nobody has turns: each program
//!   has a partition of its own on a finer level, or all run mixed on everything.
//! - A program that cannot use more CPUs than it is entitled to has its own partition beside the
//!   levels all the time; so have programs that must not be stopped. The levels are then those of
//!   the other CPUs.
//! - The grace period is for programs that become narrower. One that becomes wider gets its CPUs at
//!   once; it could not use its larger team without.
//!
//! # Terms
//!
//! finest level: as CO's level. seats: programs for each partition of a level, the same number
//! everywhere. odd: without a seat. stable: nobody came or left for `settle_ns`. grace: `grace_ns`.
//! CPU time of a program: time in turn × CPUs of its partition.
//!
//! # Pseudocode
//!
//! ```text
//! for level from the finest to the widest:
//!     for each weight, among the programs without a seat that the partitions are wide enough for:
//!         each partition takes ⌊programs ÷ partitions⌋ of them
//!         seated first: who would lose most on wider partitions, then who stands here, then who came first
//! levels in turn: slice ∝ weight on each partition ÷ its CPUs
//! not yet stable, and the finest level is what it was: everybody stays, newcomers go where fewest are
//!     on the finest level
//! who is to be narrower keeps its partition until its team has shrunk, for grace_ns at most
//! ```
//!
//! # Properties
//!
//! - Figure 2: `the_schedules_of_figure_2_follow_from_the_rule`
//! - CPU time in proportion to weights (Jain's index ≥ 0.98 on every machine, also with weights):
//!   `every_program_gets_the_cpu_time_of_its_weight`
//! - balancing waits until the situation is stable: `levels_are_balanced_once_nobody_comes_or_leaves`
//! - the grace period: `a_narrowing_program_keeps_its_partition_until_it_shrank`
//! - who scales better is wider: `the_best_scaling_program_goes_a_level_up`
//! - programs that cannot use more: `a_saturated_program_has_its_own_partition_all_the_time`
//! - shares of equal programs within 10% once nothing has changed for the longer of `settle_ns` and `hold_ns`, and then
//!   for `grace_ns` (another level is a new beginning, and may be held back), over every
//!   round of turns (`2 × max_still_ns` at most, longer only where the report says so); the rest is turns
//!   that cannot be shorter than `min_slice_ns`. Before that programs stand where they came to: a partition
//!   with one program may stand beside one with all others, and whoever has less than an equal has no
//!   less than 1 ÷ programs of it (or the part of its weight):
//!   `every_plan_of_every_policy_passes_the_checker`, `a_seated_program_is_seated_again`
//! - partitions of one shape a level, most CPUs kept (without a grace period), nobody waits:
//!   `every_plan_of_every_policy_passes_the_checker`
//!
//! # Cost
//!
//! As TA for each level that is used.
//!
//! # Limits
//!
//! The same CPU time is the same progress only for programs with like speed-ups. Programs whose
//! weights are all unlike share the whole machine in turn. A rigid program leaves idle what its
//! partition has beyond its width.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use plan::{Promise, Remark, Settled, ShareBound, Snapshot, WaitingBound};
use topology::CpuSet;
use workload::AppId;

use crate::common::compose::{Divide, Division, compose};
use crate::common::context::{Context, Part};
use crate::common::keep::{Claim, stay};
use crate::common::levels::{Cut, allowed_cuts, claims, describe, id, level};
use crate::common::levels::{dir_outside, one_each, parts, spread, together};
use crate::common::seats::{rank, seats};
use crate::{Decision, LevelMemory, Memory, Policy, Settings};

mod beside;
mod grace;

pub(crate) struct EquilibriumOverLevels {
    pub settings: Settings,
}

impl Policy for EquilibriumOverLevels {
    fn letters(&self) -> &'static str {
        "LV"
    }

    fn words(&self) -> &'static str {
        "equilibrium over levels"
    }

    fn promise(&self) -> Promise {
        let Settings { settle_ns, hold_ns, grace_ns, .. } = self.settings;
        Promise {
            equal_shapes: true,
            // Before levels are balanced programs stand where they came to, or still stand.
            share_bound: Some(ShareBound::Floor(1.0)),
            settled: Some(Settled {
                after_ns: settle_ns.max(hold_ns).saturating_add(grace_ns),
                bound: ShareBound::Ratio(1.1),
            }),
            waiting_bound: Some(WaitingBound::Terminations(0)),
            // Who keeps its partition until its team is narrower stands where the next plan would not.
            keeps_cpus: grace_ns == 0,
        }
    }

    fn decide(&self, snapshot: &Snapshot, memory: &Memory) -> Decision {
        let mut cx = Context::new(snapshot, &self.settings, memory);
        cx.exact_shares = true;
        let (cuts, unknown) = allowed_cuts(&cx);
        let raised = raise_weights(&mut cx, &cuts);
        let (old, programs) = (&memory.level, cx.needs.len() as u32);
        let last_arrival_ns = cx.needs.iter().map(|need| need.app.arrived_ns).max().unwrap_or(0);
        let changed_ns = match old.programs == programs {
            true => old.changed_ns.max(last_arrival_ns).min(snapshot.now_ns),
            false => snapshot.now_ns,
        };
        let equilibrium = Equilibrium { cx: &cx, cuts, programs, changed_ns };
        let mut decision = compose(&cx, &equilibrium, &cx.everybody());
        decision.report.remarks.splice(0..0, unknown.into_iter().chain(raised));
        decision
    }
}

/// Raises weights to what the shortest slice is worth on the finest level that is wide enough for the program,
/// while the others stand still for as long as is allowed.
fn raise_weights(cx: &mut Context<'_>, cuts: &[Cut]) -> Vec<Remark> {
    let all: u64 = cx.needs.iter().map(|need| need.weight).sum();
    let average = all.div_ceil(cx.needs.len().max(1) as u64);
    let in_use = &cuts[..=level(cx, cuts, cx.needs.len()).0];
    let (settings, cpus) = (cx.settings, cx.snapshot.usable.len() as u64);
    let least = |floor: u32| {
        let width = in_use.iter().rev().map(|cut| cut.width).find(|&width| width >= floor);
        let width = width.unwrap_or(in_use[0].width);
        let worth = u128::from(all) * u128::from(width) * u128::from(settings.min_slice_ns);
        let least = worth.div_ceil((u128::from(settings.max_still_ns) * u128::from(cpus)).max(1));
        u64::try_from(least).unwrap_or(u64::MAX).min(average)
    };
    let mut raised: BTreeMap<u64, Vec<AppId>> = BTreeMap::new();
    for need in &mut cx.needs {
        let least = least(need.floor);
        // Those that must not be stopped have no turns.
        if need.weight < least && need.app.stoppable {
            need.weight = least;
            raised.entry(least).or_default().push(need.app.id.clone());
        }
    }
    let shortest_slice_ns = settings.min_slice_ns;
    let remark = |(weight, apps)| Remark::WeightRaised { apps, weight, shortest_slice_ns };
    raised.into_iter().map(remark).collect()
}

struct Equilibrium<'a, 'c> {
    cx: &'c Context<'a>,
    cuts: Vec<Cut>,
    programs: u32,
    changed_ns: u64,
}

/// What is in turn with the others: some partitions of one cut, equally loaded where the situation
/// is stable.
struct Layer {
    /// Index of the cut.
    level: usize,
    parts: Vec<Part>,
}

impl Divide for Equilibrium<'_, '_> {
    fn width_for(&self, _count: usize) -> u32 {
        // The levels have room for every width.
        self.cx.snapshot.usable.len() as u32
    }

    fn divide(&self, blocked: &CpuSet, members: &[usize]) -> Division {
        if members.is_empty() {
            return Division::default();
        }
        let (cx, settings) = (self.cx, self.cx.settings);
        let clear = dir_outside(&self.cuts, blocked);
        let beside = self.beside(clear.as_deref().unwrap_or(&self.cuts), blocked, members);
        let (cuts, others) = (&beside.cuts, &beside.others);
        let (finest, held_until) = level(cx, cuts, others.len().max(1));
        if beside.crowded {
            return self.crowded(cuts, finest, others);
        }
        let settled_at_ns = self.changed_ns.saturating_add(settings.settle_ns);
        let stable = cx.snapshot.now_ns >= settled_at_ns;
        // Everybody gets another partition anyway when the finest level changes.
        let same_level = cx.memory.level.width == Some(cuts[finest].width);
        let mut remarks = beside.remarks;
        let mut layers = if stable || !same_level {
            self.balanced(cuts, finest, others, &mut remarks)
        } else {
            self.as_they_stand(cuts, finest, others)
        };
        let mut memory = self.remember(cuts[finest].width);
        let grace = self.grace(cuts, &mut layers);
        memory.asked = grace.asked;
        layers.retain(|layer| !layer.parts.is_empty());
        layers.sort_by_key(|layer| layer.level);
        for layer in &layers {
            let count = layer.parts.iter().map(|part| part.members.len()).sum();
            remarks.extend(describe(cx, &cuts[layer.level], &layer.parts, count));
        }
        if layers.len() > 1 {
            remarks.push(Remark::LevelsInTurn);
        }
        if !stable {
            remarks.push(Remark::Unsettled { settle_ns: settings.settle_ns });
        }
        remarks.extend(grace.remark);
        let settled_at_ns = (!stable).then_some(settled_at_ns);
        Division {
            layers: layers.into_iter().map(|layer| layer.parts).collect(),
            always: beside.parts,
            asked: grace.threads,
            level: memory,
            wake_at_ns: [held_until, settled_at_ns, grace.wake_at_ns].into_iter().flatten().min(),
            remarks,
            ..Division::default()
        }
    }
}

impl Equilibrium<'_, '_> {
    /// Those who must not be stopped leave no partition to the others: a partition for each, on a level
    /// finer than `finest` if need be, or everybody together; who must not be stopped has no turns.
    fn crowded(&self, cuts: &[Cut], finest: usize, members: &[usize]) -> Division {
        let level = self.remember(cuts[finest].width);
        let (parts, remarks) = match one_each(cuts, members) {
            Some(cut) => {
                let parts = spread(self.cx, &cut.places, members);
                let remarks = describe(self.cx, cut, &parts, members.len());
                (parts, remarks)
            }
            None => {
                let (parts, remark) = together(self.cx, members);
                (parts, vec![remark])
            }
        };
        Division { layers: vec![parts], level, remarks, ..Division::default() }
    }

    fn remember(&self, width: u32) -> LevelMemory {
        let old = &self.cx.memory.level;
        let since_ns = if old.width == Some(width) { old.since_ns } else { self.cx.snapshot.now_ns };
        LevelMemory {
            width: Some(width),
            since_ns,
            programs: self.programs,
            changed_ns: self.changed_ns,
            ..LevelMemory::default()
        }
    }

    /// Equal load in every partition of a level, odd ones a level up.
    fn balanced(
        &self,
        cuts: &[Cut],
        finest: usize,
        members: &[usize],
        remarks: &mut Vec<Remark>,
    ) -> Vec<Layer> {
        let cx = self.cx;
        let mut layers = Vec::new();
        let mut rest = members.to_vec();
        for level in (0..=finest).rev() {
            let (cut, wider) = (&cuts[level], level.checked_sub(1).map(|wider| cuts[wider].width));
            let mut here: Vec<Vec<usize>> = vec![Vec::new(); cut.places.len()];
            let mut odd: Vec<Layer> = Vec::new();
            for (Reverse(weight), class) in self.by_weight(&rest, cut.width) {
                let ranks: Vec<u64> =
                    class.iter().map(|&index| rank(&cx.needs[index], cut.width, wider)).collect();
                let dealt = seats(&cut.places, &self.claims(&cut.places, &class), &ranks);
                let mut left = vec![true; class.len()];
                for (place, seated) in dealt.into_iter().enumerate() {
                    seated.iter().for_each(|&at| left[at] = false);
                    here[place].extend(seated.into_iter().map(|at| class[at]));
                }
                let left: Vec<usize> = (0..class.len()).filter(|&at| left[at]).collect();
                remarks.extend(self.level_up(&class, &ranks, &left).filter(|_| wider.is_some()));
                if wider.is_none_or(|wider| !self.is_worth_a_slice(weight, wider)) {
                    // No level above: turns of their own, restricted ones apart, which may crowd.
                    let (bound, free): (Vec<usize>, Vec<usize>) = left
                        .into_iter()
                        .map(|at| class[at])
                        .partition(|&index| cx.needs[index].scope.is_some());
                    for group in [free, bound] {
                        odd.push(Layer { level, parts: spread(cx, &cut.places, &group) });
                    }
                }
            }
            here.iter_mut().for_each(|members| members.sort_unstable());
            let all: Vec<usize> = (0..cx.needs.len()).collect();
            layers.push(Layer { level, parts: parts(&cut.places, here, &all) });
            layers.extend(odd);
            let seated = layers.iter().flat_map(|layer| &layer.parts).flat_map(|part| &part.members);
            let mut without_seat = vec![true; cx.needs.len()];
            seated.for_each(|&index| without_seat[index] = false);
            rest.retain(|&index| without_seat[index]);
        }
        layers
    }

    /// Whoever is about to get a narrower partition counts as standing there, lest another be chosen for it, and asked
    /// for a narrower team in turn, at every decision.
    fn claims<'s>(&'s self, places: &[CpuSet], members: &[usize]) -> Vec<Claim<'s>> {
        let mut claims = claims(self.cx, places, members);
        for (claim, &index) in claims.iter_mut().zip(members) {
            if let Some(asked) = self.cx.memory.level.asked.get(id(self.cx, index)) {
                claim.before = Some(&asked.place);
            }
        }
        claims
    }

    /// Those of `members` that partitions of `width` CPUs are wide enough for, heaviest first.
    fn by_weight(&self, members: &[usize], width: u32) -> BTreeMap<Reverse<u64>, Vec<usize>> {
        let mut classes: BTreeMap<Reverse<u64>, Vec<usize>> = BTreeMap::new();
        for &index in members.iter().filter(|&&index| self.cx.needs[index].floor <= width) {
            classes.entry(Reverse(self.cx.needs[index].weight)).or_default().push(index);
        }
        classes
    }

    /// Whether a turn on partitions of `width` CPUs that gives a program of `weight` what it is
    /// entitled to is no shorter than the shortest slice, in the longest period that is allowed.
    fn is_worth_a_slice(&self, weight: u64, width: u32) -> bool {
        let settings = self.cx.settings;
        let all: u64 = self.cx.needs.iter().map(|need| need.weight).sum();
        let cpus = self.cx.snapshot.usable.len() as u128;
        u128::from(width) * u128::from(settings.min_slice_ns) * u128::from(all)
            <= u128::from(settings.max_still_ns) * cpus * u128::from(weight)
    }

    /// Who goes up because it loses least there, if that is why.
    fn level_up(&self, class: &[usize], ranks: &[u64], left: &[usize]) -> Option<Remark> {
        let unlike = ranks.windows(2).any(|pair| pair[0] != pair[1]);
        let apps: Vec<AppId> = left.iter().map(|&at| id(self.cx, class[at]).clone()).collect();
        (unlike && !apps.is_empty()).then_some(Remark::LevelUp { apps })
    }

    /// Everybody on the partition where it stands; newcomers, and whose partition is no more, on the
    /// finest level in use that is wide enough, where fewest are.
    fn as_they_stand(&self, cuts: &[Cut], finest: usize, members: &[usize]) -> Vec<Layer> {
        let cx = self.cx;
        let stands = |&index: &usize| {
            let (need, before) = (&cx.needs[index], cx.needs[index].before?);
            standing(cuts, before).filter(|level| *level <= finest && need.fits(before))
        };
        let stood: Vec<Option<usize>> = members.iter().map(stands).collect();
        let in_use = stood.iter().flatten().max().copied().unwrap_or(finest);
        let mut by_level: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (&index, stood) in members.iter().zip(&stood) {
            let fits = |level: &usize| cuts[*level].places.iter().any(|place| cx.needs[index].fits(place));
            if let Some(level) = stood.or_else(|| (0..=in_use).rev().find(fits)) {
                by_level.entry(level).or_default().push(index);
            }
        }
        let layer = |(level, members): (usize, Vec<usize>)| {
            let places = &cuts[level].places;
            let dealt = stay(places, &claims(cx, places, &members));
            Layer { level, parts: parts(places, dealt, &members) }
        };
        by_level.into_iter().map(layer).collect()
    }
}

/// The level of which `place` is a partition.
fn standing(cuts: &[Cut], place: &CpuSet) -> Option<usize> {
    cuts.iter().position(|cut| cut.width as usize == place.len() && cut.places.contains(place))
}
