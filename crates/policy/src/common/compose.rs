//! From a division of the CPUs to a whole plan.
//!
//! A policy says how it divides CPUs among programs that fit their parts ([`Divide`]). What is the
//! same for all of them is here: which programs fit, turns for those that do not, programs that
//! must not be stopped, and what is remembered.
//!
//! ```text
//! members, gangs = the largest number of programs that get parts at least as wide as they need
//! rows           = gangs packed first fit (Ousterhout's matrix)
//! plan           = in_turn [ row, row, …, division of the members ]
//! programs that must not be stopped stand in every slot, at the same place
//! ```
//!
//! **Fairness of the turns.** A program of weight w among programs of weights Σw is entitled to
//! w/Σw of the usable CPUs. A slot's claim is the time, relative to the others', in which the worst
//! off of its programs gets that: w × usable CPUs ÷ CPUs that it has in the slot, the largest over
//! the slot's programs. Slices are proportional to claims, so that every slot's worst-off program
//! gets the same fraction of its entitlement, and the others more. Slices are rounded up to
//! `min_slice_ns`, which favours programs of small weight.

use plan::{Run, Slot, Snapshot, Tree};
use topology::CpuSet;

use super::gather::{beside, leaf, mixed};
use super::needs::{Need, needs};
use super::slices::slices;
use super::{matrix, outcome, place};
use crate::{Decision, LevelMemory, Memory, Settings};

/// What a decision is made from.
pub(crate) struct Context<'a> {
    pub snapshot: &'a Snapshot,
    pub settings: &'a Settings,
    pub memory: &'a Memory,
    pub needs: Vec<Need<'a>>,
}

impl<'a> Context<'a> {
    pub fn new(snapshot: &'a Snapshot, settings: &'a Settings, memory: &'a Memory) -> Context<'a> {
        Context { snapshot, settings, memory, needs: needs(snapshot, &memory.places) }
    }

    pub fn everybody(&self) -> Vec<usize> {
        (0..self.needs.len()).collect()
    }

    /// `need` on all of `place` that is open to it, with as many threads as it can use there.
    pub fn run(&self, need: &Need<'_>, place: &CpuSet) -> Run {
        let place = need.open(place);
        let threads =
            need.own_threads.unwrap_or_else(|| need.cap.min(place.len() as u32).max(need.least_threads));
        Run { threads, ..Run::new(need.app.id.clone(), place) }
    }

    fn on(&self, index: usize, place: &CpuSet) -> Tree {
        leaf(self.run(&self.needs[index], place))
    }

    fn must_not_stop(&self, index: usize) -> bool {
        !self.needs[index].app.stoppable
    }

    fn names(&self, members: &[usize]) -> String {
        let names: Vec<&str> = members.iter().map(|&index| self.needs[index].app.id.as_str()).collect();
        names.join(", ")
    }
}

/// One part of a division, and the programs that share it (indices into `Context::needs`).
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub place: CpuSet,
    pub members: Vec<usize>,
}

/// A division of the CPUs.
#[derive(Default)]
pub(crate) struct Division {
    /// Disjoint; parts without members are left out.
    pub parts: Vec<Part>,
    pub level: LevelMemory,
    pub wake_at_ns: Option<u64>,
    pub lines: Vec<String>,
}

/// How a policy divides CPUs among programs.
pub(crate) trait Divide {
    /// CPUs that each of `count` programs gets at least; falls with `count`.
    fn width_for(&self, count: usize) -> u32;

    /// `members` on the usable CPUs outside of `blocked`, where some are. A member for which there is
    /// no part at all is left out.
    fn divide(&self, blocked: &CpuSet, members: &[usize]) -> Division;
}

/// The whole decision for `candidates`; everybody else who is not suspended waits.
pub(crate) fn compose(cx: &Context<'_>, divide: &dyn Divide, candidates: &[usize]) -> Decision {
    let (tree, division) = arrange(cx, divide, candidates);
    let Division { level, wake_at_ns, lines, .. } = division;
    outcome::decision(cx, tree, level, wake_at_ns, lines)
}

/// Programs that got parts, and those that need turns.
struct Settled {
    division: Division,
    gangs: Vec<usize>,
}

fn settle(cx: &Context<'_>, divide: &dyn Divide, blocked: &CpuSet, candidates: &[usize]) -> Settled {
    let (mut members, mut gangs): (Vec<usize>, Vec<usize>) =
        candidates.iter().partition(|&&index| cx.needs[index].floor <= 1);
    // As many of the wide ones as fit their part, narrowest first.
    gangs.sort_by_key(|&index| (cx.needs[index].floor, index));
    let fitting = (1..=gangs.len())
        .take_while(|&count| cx.needs[gangs[count - 1]].floor <= divide.width_for(members.len() + count))
        .count();
    members.extend(gangs.drain(..fitting));
    members.sort_unstable();
    loop {
        let division = divide.divide(blocked, &members);
        // Restrictions may still have left somebody too little.
        let mut satisfied = vec![false; cx.needs.len()];
        for part in &division.parts {
            for &index in &part.members {
                satisfied[index] = cx.needs[index].fits(&part.place);
            }
        }
        let before = members.len();
        gangs.extend(members.iter().filter(|&&index| !satisfied[index]));
        members.retain(|&index| satisfied[index]);
        if members.len() == before {
            gangs.sort_unstable();
            return Settled { division, gangs };
        }
    }
}

/// The tree for `candidates`, and what the division said and remembers.
fn arrange(cx: &Context<'_>, divide: &dyn Divide, candidates: &[usize]) -> (Option<Tree>, Division) {
    let usable = &cx.snapshot.usable;
    // Who has no usable CPU stands where it must, beside everything.
    let (outside, inside): (Vec<usize>, Vec<usize>) = candidates
        .iter()
        .partition(|&&index| cx.needs[index].scope.as_ref().is_some_and(|scope| !scope.intersects(usable)));
    let mut fixed: Vec<Tree> = outside
        .iter()
        .map(|&index| {
            let need = &cx.needs[index];
            let scope = need.scope.as_ref().expect("who has no usable CPU is restricted");
            cx.on(index, &place::part(scope, need.floor as usize, need.before))
        })
        .collect();

    let mut settled = settle(cx, divide, &CpuSet::new(), &inside);
    if settled.gangs.is_empty() {
        let trees = part_trees(cx, &settled.division.parts, None);
        return (beside(trees, fixed), settled.division);
    }

    // Programs that must not be stopped keep one place in all slots: gangs of their width, the
    // others a part as if everybody had one. The others keep out of their way where they can.
    let mut blocked = CpuSet::new();
    let mut left_over: Vec<String> = Vec::new();
    let (steady, others): (Vec<usize>, Vec<usize>) =
        inside.iter().partition(|&&index| cx.must_not_stop(index));
    if !steady.is_empty() {
        let (gangs, members): (Vec<usize>, Vec<usize>) =
            steady.iter().partition(|index| settled.gangs.contains(index));
        stand(cx, &gangs, &mut blocked, &mut fixed);
        // They come first, at one end of the machine, so that what is left lies together.
        let others_too = others.iter().filter(|index| !members.contains(index));
        let everybody: Vec<usize> = members.iter().chain(others_too).copied().collect();
        let mut unfit = members.clone();
        if !members.is_empty() {
            let Division { parts, lines, .. } = divide.divide(&blocked, &everybody);
            left_over.extend(lines.into_iter().filter(|line| line.contains("left over")));
            for part in parts {
                let fits = |index: &usize| members.contains(index) && cx.needs[*index].fits(&part.place);
                let here: Vec<usize> = part.members.iter().copied().filter(fits).collect();
                if !here.is_empty() {
                    unfit.retain(|index| !here.contains(index));
                    let tree = part_tree(cx, &Part { members: here, ..part }, None);
                    blocked = blocked.union(&tree.place());
                    fixed.push(tree);
                }
            }
        }
        stand(cx, &unfit, &mut blocked, &mut fixed);
        settled = settle(cx, divide, &blocked, &others);
    }
    let Settled { mut division, gangs } = settled;
    division.lines.extend(left_over);
    let divided = !division.parts.is_empty();
    let machine = &cx.snapshot.machine;
    let rows = matrix::pack(machine, usable, &blocked, &cx.needs, &gangs);
    if division.parts.iter().any(|part| part.place.intersects(&blocked)) {
        // No part is clear of programs that never stop: turns and parts would only make shares unequal.
        let names = cx.names(&steady);
        division.lines = vec![format!(
            "{names}: must not be stopped and leave no part free, so that all are left to the kernel."
        )];
        let members: Vec<usize> = division.parts.iter().flat_map(|part| part.members.clone()).collect();
        let everywhere = Part { place: usable.clone(), members };
        fixed.push(mixed(thin_runs(cx, &everywhere)));
        fixed.extend(rows.iter().flat_map(|row| &row.gangs).map(|(index, place)| cx.on(*index, place)));
        return (Some(mixed(fixed)), division);
    }
    if let [row] = &rows[..]
        && !division.parts.iter().any(|part| row.gangs.iter().any(|(_, place)| place.intersects(&part.place)))
    {
        // Nobody is in anybody's way.
        let mut trees: Vec<Tree> = row.gangs.iter().map(|(index, place)| cx.on(*index, place)).collect();
        trees.extend(part_trees(cx, &division.parts, None));
        division.lines.push(format!("{}: wider than an equal part, beside the others.", cx.names(&gangs)));
        return (beside(trees, fixed), division);
    }
    let mut claims: Vec<u64> = rows.iter().map(|row| row_claim(cx, row)).collect();
    if divided {
        claims.push(parts_claim(cx, &division.parts));
    }
    let mut slices = slices(&claims, cx.settings, None);
    if divided {
        // Everybody in a part must have had its turn before the slot ends, or it stands still for
        // several rounds.
        let most = division.parts.iter().map(|part| part.members.len() as u64).max().unwrap_or(1);
        let needed = if turns_inside(cx, &division.parts) { most * cx.settings.min_slice_ns } else { 1 };
        let own = slices[rows.len()].max(1);
        if own < needed {
            let stretch = |slice: u64| (u128::from(slice) * u128::from(needed)).div_ceil(u128::from(own));
            slices.iter_mut().for_each(|slice| *slice = stretch(*slice) as u64);
        }
    }
    let mut slots: Vec<Slot> = Vec::new();
    for (row, &slice_ns) in rows.iter().zip(&slices) {
        let trees = row.gangs.iter().map(|(index, place)| cx.on(*index, place)).collect();
        slots.extend(beside(trees, fixed.clone()).map(|tree| Slot { slice_ns, tree }));
    }
    if divided {
        let slice_ns = slices[rows.len()];
        let trees = part_trees(cx, &division.parts, Some(slice_ns));
        slots.extend(beside(trees, fixed.clone()).map(|tree| Slot { slice_ns, tree }));
    }
    division.lines.extend(explain_turns(cx, &gangs, &slots));
    let tree = match slots.len() {
        0 => beside(Vec::new(), fixed),
        1 => slots.pop().map(|slot| slot.tree),
        _ => Some(Tree::InTurn { mode: cx.settings.turn_mode, slots }),
    };
    (tree, division)
}

/// Places for programs that must not be stopped, beside one another where they can be.
fn stand(cx: &Context<'_>, programs: &[usize], blocked: &mut CpuSet, fixed: &mut Vec<Tree>) {
    let (machine, usable) = (&cx.snapshot.machine, &cx.snapshot.usable);
    let avoid = blocked.clone();
    for row in matrix::pack(machine, usable, &avoid, &cx.needs, programs) {
        for (index, place) in row.gangs {
            *blocked = blocked.union(&place);
            fixed.push(cx.on(index, &place));
        }
    }
}

fn explain_turns(cx: &Context<'_>, gangs: &[usize], slots: &[Slot]) -> Vec<String> {
    if gangs.is_empty() {
        return Vec::new();
    }
    let (names, count) = (cx.names(gangs), slots.len());
    vec![format!("{names}: cannot shrink to an equal part; {count} slots take turns.")]
}

fn row_claim(cx: &Context<'_>, row: &matrix::Row) -> u64 {
    let claim = |(index, place): &(usize, CpuSet)| claim(cx, *index, place.len() as u64, 1);
    row.gangs.iter().map(claim).max().unwrap_or(1)
}

fn parts_claim(cx: &Context<'_>, parts: &[Part]) -> u64 {
    let claims = parts.iter().flat_map(|part| {
        let (cpus, sharers) = (part.place.len() as u64, part.members.len() as u64);
        part.members.iter().map(move |&index| claim(cx, index, cpus, sharers))
    });
    claims.max().unwrap_or(1)
}

/// Time in which a program gets what it is entitled to from its share of `cpus`.
fn claim(cx: &Context<'_>, index: usize, cpus: u64, sharers: u64) -> u64 {
    let width = cx.snapshot.usable.len() as u64;
    (cx.needs[index].weight() * 1000).saturating_mul(width).saturating_mul(sharers) / cpus.max(1)
}

/// One tree a part: its program alone, or its programs in turn, or, where turns help nobody, mixed.
/// `slot_ns`: the time that all turns of a part must fit, inside an outer slot.
fn part_trees(cx: &Context<'_>, parts: &[Part], slot_ns: Option<u64>) -> Vec<Tree> {
    parts.iter().map(|part| part_tree(cx, part, slot_ns)).collect()
}

/// Whether the programs of a part take turns: not threads that have nobody to wait for, nor
/// programs that must not stand still.
fn takes_turns(cx: &Context<'_>, part: &Part) -> bool {
    let mut needs = part.members.iter().map(|&index| &cx.needs[index]);
    part.members.len() > 1
        && part.place.len() > 1
        && needs.clone().all(|need| need.app.stoppable)
        && !needs.all(|need| need.runs_uncoordinated())
}

/// The programs of a part at the same time, each with so few threads that all together are no more than CPUs,
/// if they can.
fn thin_runs(cx: &Context<'_>, part: &Part) -> Vec<Tree> {
    let each = (part.place.len() / part.members.len().max(1)).max(1) as u32;
    let thin = |&index: &usize| {
        let need = &cx.needs[index];
        let mut run = cx.run(need, &part.place);
        if need.own_threads.is_none() {
            run.threads = run.threads.min(each).max(need.least_threads);
        }
        Tree::Run(run)
    };
    part.members.iter().map(thin).collect()
}

fn turns_inside(cx: &Context<'_>, parts: &[Part]) -> bool {
    parts.iter().any(|part| takes_turns(cx, part))
}

fn part_tree(cx: &Context<'_>, part: &Part, slot_ns: Option<u64>) -> Tree {
    if let [index] = part.members[..] {
        return cx.on(index, &part.place);
    }
    let needs: Vec<&Need<'_>> = part.members.iter().map(|&index| &cx.needs[index]).collect();
    if !takes_turns(cx, part) {
        return mixed(thin_runs(cx, part));
    }
    let weights: Vec<u64> = needs.iter().map(|need| need.weight()).collect();
    let slices = slices(&weights, cx.settings, slot_ns);
    let slots = part.members.iter().zip(slices);
    Tree::InTurn {
        mode: cx.settings.turn_mode,
        slots: slots.map(|(&index, slice_ns)| Slot { slice_ns, tree: cx.on(index, &part.place) }).collect(),
    }
}
