//! From a division of the CPUs to a whole plan.
//!
//! A policy says how it divides CPUs among programs that fit their parts ([`Divide`]). What is the
//! same for all of them is here: which programs fit, turns for those that do not, programs that
//! must not be stopped, and what is remembered.
//!
//! ```text
//! members, gangs = the largest number of programs that get parts at least as wide as they need
//! rows           = gangs packed first fit (Ousterhout's matrix)
//! plan           = in_turn [ row, row, …, layer, layer, … of the division of the members ]
//! programs that must not be stopped stand in every slot, at the same place
//! ```
//!
//! Most policies divide the CPUs once: one layer. Several layers are several divisions of the same
//! CPUs, which take turns.
//!
//! **Fairness of the turns.** A program of weight w among programs of weights Σw is entitled to
//! w/Σw of the usable CPUs. A slot's claim is the time, relative to the others', in which the worst
//! off of its programs gets that: w × usable CPUs ÷ CPUs that it has in the slot, the largest over
//! the slot's programs. Slices are proportional to claims, so that every slot's worst-off program
//! gets the same fraction of its entitlement, and the others more. Slices are rounded up to
//! `min_slice_ns`, which favours programs of small weight.

use std::collections::BTreeMap;

use plan::{MoveReason, Remark, Run, Slot, Tree};
use topology::CpuSet;
use workload::AppId;

use super::context::{Context, Part};
use super::gather::{beside, mixed};
use super::slices::{Period, slices};
use super::{company, matrix, outcome, place};
use crate::{Decision, LevelMemory};

/// A division of the CPUs.
#[derive(Default)]
pub(crate) struct Division {
    /// What takes turns: parts of one layer are disjoint; parts without members and layers without
    /// parts are left out. With several layers nobody in them is one who must not be stopped.
    pub layers: Vec<Vec<Part>>,
    /// Parts beside all layers, disjoint from all of them and from one another.
    pub always: Vec<Part>,
    /// Programs that are asked for fewer threads than their part has CPUs, because they are about to
    /// get a narrower one.
    pub asked: BTreeMap<AppId, u32>,
    /// Why programs are not where most CPUs would be kept.
    pub reasons: BTreeMap<AppId, MoveReason>,
    pub level: LevelMemory,
    pub wake_at_ns: Option<u64>,
    pub remarks: Vec<Remark>,
}

impl Division {
    fn parts(&self) -> impl Iterator<Item = &Part> {
        self.layers.iter().flatten().chain(&self.always)
    }
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
    let (mut tree, division) = arrange(cx, divide, candidates);
    let Division { level, wake_at_ns, remarks, asked, mut reasons, .. } = division;
    if let Some(tree) = tree.as_mut().filter(|_| !asked.is_empty()) {
        lower(tree, &asked);
    }
    let mut decision = outcome::decision(cx, tree, level, wake_at_ns, remarks);
    for (app, why) in &mut decision.report.moves {
        if let Some(reason) = reasons.remove(app) {
            *why = reason;
        }
    }
    decision
}

/// No more threads than asked for, where that is said.
fn lower(tree: &mut Tree, asked: &BTreeMap<AppId, u32>) {
    match tree {
        Tree::Run(run) => {
            if let Some(&asked) = asked.get(&run.app) {
                run.threads = run.threads.min(asked);
            }
        }
        Tree::SideBySide(parts) | Tree::Mixed { parts, .. } => {
            parts.iter_mut().for_each(|part| lower(part, asked));
        }
        Tree::InTurn { slots, .. } => slots.iter_mut().for_each(|slot| lower(&mut slot.tree, asked)),
    }
}

/// Programs that got parts, and those that need turns.
struct Settled {
    division: Division,
    gangs: Vec<usize>,
}

fn settle(cx: &Context<'_>, divide: &dyn Divide, blocked: &CpuSet, candidates: &[usize]) -> Settled {
    let (mut members, mut gangs): (Vec<usize>, Vec<usize>) =
        candidates.iter().partition(|&&index| cx.needs[index].floor <= 1);
    // As many of the wide ones as fit their part, narrowest first; none where it is chosen who shares a slot.
    gangs.sort_by_key(|&index| (cx.needs[index].floor, index));
    let room = cx.snapshot.usable.difference(blocked).len();
    let chosen = members.is_empty() && company::to_a_slot(cx, &gangs, room).is_some();
    let fitting = (1..=if chosen { 0 } else { gangs.len() })
        .take_while(|&count| cx.needs[gangs[count - 1]].floor <= divide.width_for(members.len() + count))
        .count();
    members.extend(gangs.drain(..fitting));
    members.sort_unstable();
    loop {
        let division = divide.divide(blocked, &members);
        // Restrictions may still have left somebody too little.
        let mut satisfied = vec![false; cx.needs.len()];
        for part in division.parts() {
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
    if settled.gangs.is_empty() && settled.division.layers.len() <= 1 {
        let parts: Vec<Part> = settled.division.parts().cloned().collect();
        return (beside(part_trees(cx, &parts, cx.period()), fixed), settled.division);
    }

    // Programs that must not be stopped keep one place in all slots: gangs of their width, the
    // others a part as if everybody had one. The others keep out of their way where they can.
    let mut blocked = CpuSet::new();
    let mut left_over: Vec<Remark> = Vec::new();
    let (steady, others): (Vec<usize>, Vec<usize>) =
        inside.iter().partition(|&&index| cx.must_not_stop(index));
    if !steady.is_empty() && !settled.gangs.is_empty() {
        let (gangs, members): (Vec<usize>, Vec<usize>) =
            steady.iter().partition(|index| settled.gangs.contains(index));
        stand(cx, &gangs, &mut blocked, &mut fixed);
        // They come first, at one end of the machine, so that what is left lies together.
        let others_too = others.iter().filter(|index| !members.contains(index));
        let everybody: Vec<usize> = members.iter().chain(others_too).copied().collect();
        let mut unfit = members.clone();
        if !members.is_empty() {
            let division = divide.divide(&blocked, &everybody);
            left_over.extend(division.remarks.iter().filter(|remark| is_left_over(remark)).cloned());
            for part in division.parts() {
                let fits = |index: &usize| members.contains(index) && cx.needs[*index].fits(&part.place);
                let here: Vec<usize> = part.members.iter().copied().filter(fits).collect();
                if !here.is_empty() {
                    unfit.retain(|index| !here.contains(index));
                    let tree = part_tree(cx, &Part { members: here, place: part.place.clone() }, cx.period());
                    blocked = blocked.union(&tree.place());
                    fixed.push(tree);
                }
            }
        }
        stand(cx, &unfit, &mut blocked, &mut fixed);
        settled = settle(cx, divide, &blocked, &others);
    }
    let Settled { mut division, gangs } = settled;
    division.remarks.extend(left_over);
    for part in &division.always {
        let tree = part_tree(cx, part, cx.period());
        blocked = blocked.union(&tree.place());
        fixed.push(tree);
    }
    let machine = &cx.snapshot.machine;
    let together = company::slots(cx, &gangs, usable.difference(&blocked).len());
    let rows: Vec<matrix::Row> = match &together {
        Some((groups, _)) => {
            let pack = |group: &Vec<usize>| matrix::pack(machine, usable, &blocked, &cx.needs, group);
            groups.iter().flat_map(pack).collect()
        }
        None => matrix::pack(machine, usable, &blocked, &cx.needs, &gangs),
    };
    division.remarks.extend(together.map(|(_, remark)| remark));
    let layers = &division.layers;
    if layers.iter().flatten().any(|part| part.place.intersects(&blocked)) {
        // No part is clear of programs that never stop: turns and parts would only make shares unequal.
        let members: Vec<usize> = layers.iter().flatten().flat_map(|part| part.members.clone()).collect();
        let everywhere = Part { place: usable.clone(), members };
        fixed.push(mixed(thin_runs(cx, &everywhere)));
        fixed.extend(rows.iter().flat_map(|row| &row.gangs).map(|(index, place)| cx.on(*index, place)));
        division.remarks.retain(is_left_over);
        division.remarks.push(Remark::Unstoppable { apps: cx.ids(&steady) });
        return (Some(mixed(fixed)), division);
    }
    if let ([row], [] | [_]) = (&rows[..], &layers[..])
        && !layers
            .iter()
            .flatten()
            .any(|part| row.gangs.iter().any(|(_, place)| place.intersects(&part.place)))
    {
        // Nobody is in anybody's way.
        let mut trees: Vec<Tree> = row.gangs.iter().map(|(index, place)| cx.on(*index, place)).collect();
        trees.extend(layers.iter().flat_map(|parts| part_trees(cx, parts, cx.period())));
        division.remarks.push(Remark::WideBeside { apps: cx.ids(&gangs) });
        return (beside(trees, fixed), division);
    }
    let mut claims: Vec<u64> = rows.iter().map(|row| row_claim(cx, row)).collect();
    claims.extend(layers.iter().map(|parts| parts_claim(cx, parts)));
    let mut slices = slices(&claims, cx.settings, cx.period());
    fit_inner_turns(cx, layers, &mut slices, rows.len());
    let mut slots: Vec<Slot> = Vec::with_capacity(slices.len());
    let row_trees = |row: &matrix::Row| row.gangs.iter().map(|(index, place)| cx.on(*index, place)).collect();
    let mut trees: Vec<Vec<Tree>> = rows.iter().map(row_trees).collect();
    let layer_slices = &slices[rows.len()..];
    trees.extend(
        layers.iter().zip(layer_slices).map(|(parts, &slice)| part_trees(cx, parts, Period::Of(slice))),
    );
    for (trees, &slice_ns) in trees.into_iter().zip(&slices) {
        slots.extend(beside(trees, fixed.clone()).map(|tree| Slot { slice_ns, tree }));
    }
    if !gangs.is_empty() {
        division.remarks.push(Remark::TooWide { apps: cx.ids(&gangs), slots: slots.len() as u32 });
    }
    let tree = match slots.len() {
        0 => beside(Vec::new(), fixed),
        1 => slots.pop().map(|slot| slot.tree),
        _ => Some(Tree::InTurn { mode: cx.settings.turn_mode, slots }),
    };
    (tree, division)
}

/// Stretches all `slices` alike until everybody in a part of a layer (whose slices begin at `first`)
/// has its turn, and what it is entitled to of it, before the layer's slot ends; else it would
/// stand still for several rounds, or get more than the others.
fn fit_inner_turns(cx: &Context<'_>, layers: &[Vec<Part>], slices: &mut [u64], first: usize) {
    let longest = cx.settings.max_still_ns.saturating_mul(if cx.exact_shares { 2 } else { 1 });
    let needed = |part: &Part| {
        let weights = || part.members.iter().map(|&index| cx.needs[index].weight);
        let (all, least) = (weights().sum::<u64>(), weights().min().unwrap_or(1).max(1));
        let one_each = cx.settings.min_slice_ns.saturating_mul(part.members.len() as u64);
        let by_weight = cx.settings.min_slice_ns.saturating_mul(all).div_ceil(least);
        if takes_turns(cx, part) { by_weight.min(longest).max(one_each) } else { 1 }
    };
    let mut stretch = (1, 1);
    for (parts, &own) in layers.iter().zip(&slices[first..]) {
        let needed = parts.iter().map(needed).max().unwrap_or(1);
        // needed ÷ own, where that is more than so far.
        if u128::from(needed) * stretch.1 > u128::from(own.max(1)) * stretch.0 {
            stretch = (u128::from(needed), u128::from(own.max(1)));
        }
    }
    if stretch.0 > stretch.1 {
        let stretched = |slice: u64| (u128::from(slice) * stretch.0).div_ceil(stretch.1);
        slices.iter_mut().for_each(|slice| *slice = stretched(*slice).try_into().unwrap_or(u64::MAX));
    }
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

fn is_left_over(remark: &Remark) -> bool {
    matches!(remark, Remark::LeftOver { .. })
}

fn row_claim(cx: &Context<'_>, row: &matrix::Row) -> u64 {
    let claim = |(index, place): &(usize, CpuSet)| claim(cx, cx.needs[*index].weight, place.len() as u64);
    row.gangs.iter().map(claim).max().unwrap_or(1)
}

fn parts_claim(cx: &Context<'_>, parts: &[Part]) -> u64 {
    let claim = |part: &Part| {
        let weights = part.members.iter().map(|&index| cx.needs[index].weight);
        // Turns are as long as weights are large; the kernel shares equally.
        let all = match takes_turns(cx, part) {
            true => weights.sum::<u64>(),
            false => weights.max().unwrap_or(1) * part.members.len() as u64,
        };
        claim(cx, all, part.place.len() as u64)
    };
    parts.iter().map(claim).max().unwrap_or(1)
}

/// Time in which programs of this weight, together, get what they are entitled to from `cpus`.
fn claim(cx: &Context<'_>, weight: u64, cpus: u64) -> u64 {
    (weight * 1000).saturating_mul(cx.snapshot.usable.len() as u64) / cpus.max(1)
}

/// One tree a part: its program alone, or its programs in turn, or, where turns help nobody, mixed.
fn part_trees(cx: &Context<'_>, parts: &[Part], period: Period) -> Vec<Tree> {
    parts.iter().map(|part| part_tree(cx, part, period)).collect()
}

/// Whether the programs of a part take turns: not those that must not stand still, nor threads that
/// have nobody to wait for where the kernel shares as the weights want it.
fn takes_turns(cx: &Context<'_>, part: &Part) -> bool {
    if part.members.len() < 2 {
        return false;
    }
    let single = part.place.len() == 1;
    if single && !cx.exact_shares {
        return false;
    }
    let uncoordinated = |&index: &usize| single || cx.needs[index].runs_uncoordinated();
    part.members.iter().all(|&index| cx.needs[index].app.stoppable)
        && !(part.members.iter().all(uncoordinated) && shares_equally(cx, part))
}

/// Whether the programs of a part are of one weight, and the kernel gives all of them the same, and
/// together all of the part, when they run at the same time.
fn shares_equally(cx: &Context<'_>, part: &Part) -> bool {
    let (cpus, count) = (part.place.len(), part.members.len());
    let weight = |index: usize| cx.needs[index].weight;
    let threads: Vec<u32> = part.members.iter().map(|&index| thin(cx, index, part).threads).collect();
    // Programs that cannot use their equal part of the CPUs would leave some of them to nobody.
    let filled = threads[0] as usize * count >= cpus;
    // One that may stand on a part of it only is the denser there.
    let open =
        |&index: &usize| cx.needs[index].scope.is_none() || cx.needs[index].open(&part.place) == part.place;
    (count >= cpus || cpus.is_multiple_of(count))
        && filled
        && part.members.iter().all(open)
        && threads.windows(2).all(|pair| pair[0] == pair[1])
        && part.members.windows(2).all(|pair| weight(pair[0]) == weight(pair[1]))
}

/// Who has a turn of a part together: programs that run uncoordinated, as many as the kernel can share
/// the part among; everybody else alone.
fn turns(cx: &Context<'_>, part: &Part) -> Vec<Part> {
    let alone = |index: usize| Part { place: part.place.clone(), members: vec![index] };
    let (uncoordinated, others): (Vec<usize>, Vec<usize>) =
        part.members.iter().partition(|&&index| cx.needs[index].runs_uncoordinated());
    let mut turns: Vec<Part> = others.into_iter().map(alone).collect();
    let mut left = uncoordinated;
    while let Some(&first) = left.first() {
        let weight = cx.needs[first].weight;
        let like: Vec<usize> = left.iter().copied().filter(|&i| cx.needs[i].weight == weight).collect();
        let together = (2..=like.len().min(part.place.len()))
            .rev()
            .map(|count| Part { place: part.place.clone(), members: like[..count].to_vec() })
            .find(|turn| shares_equally(cx, turn))
            .unwrap_or_else(|| alone(first));
        left.retain(|index| !together.members.contains(index));
        turns.push(together);
    }
    turns.sort_by_key(|turn| turn.members[0]);
    turns
}

/// A program of a part while all of them run, with so few threads that all together are no more than
/// CPUs, if it can.
fn thin(cx: &Context<'_>, index: usize, part: &Part) -> Run {
    let each = (part.place.len() / part.members.len().max(1)).max(1) as u32;
    let need = &cx.needs[index];
    let mut run = cx.run(need, &part.place);
    if need.own_threads.is_none() {
        run.threads = run.threads.min(each).max(need.least_threads);
    }
    run
}

fn thin_runs(cx: &Context<'_>, part: &Part) -> Vec<Tree> {
    part.members.iter().map(|&index| Tree::Run(thin(cx, index, part))).collect()
}

fn part_tree(cx: &Context<'_>, part: &Part, period: Period) -> Tree {
    if let [index] = part.members[..] {
        return cx.on(index, &part.place);
    }
    if !takes_turns(cx, part) {
        return mixed(thin_runs(cx, part));
    }
    let turns = turns(cx, part);
    let weight = |turn: &Part| turn.members.iter().map(|&index| cx.needs[index].weight).sum();
    let slices = slices(&turns.iter().map(weight).collect::<Vec<u64>>(), cx.settings, period);
    let tree = |turn: &Part| match turn.members[..] {
        [index] => cx.on(index, &turn.place),
        _ => mixed(thin_runs(cx, turn)),
    };
    let slots = turns.iter().zip(slices).map(|(turn, slice_ns)| Slot { slice_ns, tree: tree(turn) });
    Tree::InTurn { mode: cx.settings.turn_mode, slots: slots.collect() }
}
