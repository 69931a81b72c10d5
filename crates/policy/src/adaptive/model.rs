//! What `adaptive` expects of a division: when each program ends, and what that is worth.
//!
//! ```text
//! speed(i)  = CPUs × min over nodes d of (S(k_d) / k_d) / slow_d × x(m)
//! x(m)      = S(m c) / (m S(c)); where above 1, as far as it has the nodes' caches
//! slow_d    = (1 + b_i × max(0, U_d - max(1, own))) × (1 + cache_i × part of d that others have)
//! U_d       = sum over programs there of b × S(k_d) / S(c)
//! finish(i) = left_i / speed(i) + move_i × part of its memory that lies elsewhere
//! served(i) = (CPU time so far + CPUs × finish) / (entitled to so far + equal part × finish)
//! worth     = - sum over i of weight_i × ln finish(i) + parity × (served(i) / 0.95 - 1)²
//! ```
//!
//! S is the speed-up curve, k_d the CPUs in node d, c the CPUs of a node, m the nodes of a home, b the share
//! of a node's bandwidth that a program asks for.
//!
//! The sum of logarithms is Nash's bargaining solution: a change is good if it makes some faster by a
//! larger factor than it makes others slower; nobody is left with next to nothing, because that would
//! cost more than all others together can gain. Alone it gives CPU time to those who make most of
//! it. The second term evens CPU time out over a program's life; it aims below 1 because start-ups and
//! teams on their way to another size use less than they are given.

use plan::{Fact, Known, Remark, Speedup};

use super::account::Served;
use super::counts::Counts;
use crate::common::contention::{DOUBLING, slow_by_bandwidth};
use crate::common::needs::Need;
use crate::settings::Lever;

/// What served programs should come to at their end, and how much being off it counts: of a program
/// of which nobody knows within a tenth how much is left, less.
const SERVED: f64 = 0.95;
const PARITY: f64 = 15.0;
const PARITY_UNSURE: f64 = 4.0;
const SURE_MILLI: u32 = 100;
/// Of a program that was never seen to its end: what it still has to do, in seconds on one CPU.
pub(super) const UNKNOWN_LEFT_S: f64 = 60.0;
/// Running time in seconds that a program loses by a move to other nodes, as long as nobody has seen it.
const UNKNOWN_MOVE_S: f64 = 30.0;

/// One program, as the search needs it.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    /// Speed with so many cells of one node, against one CPU; the first is no cell.
    speed: Vec<f64>,
    /// x(m); the first two are 1.
    cross: Vec<f64>,
    bandwidth: f64,
    /// What it asks of a node's bandwidth with so many cells there.
    demand: Vec<f64>,
    cache: f64,
    left_s: f64,
    is_left_known: bool,
    move_s: f64,
    weight: f64,
    /// CPUs that it is entitled to.
    share: f64,
    served: Served,
    parity: f64,
    /// Part of its memory in each node; empty: it has none yet.
    memory: Vec<f64>,
    /// Fewest cells that it can run on, that it gets, and most that it can use.
    pub needs: usize,
    pub floor: usize,
    pub cap: usize,
}

/// Nodes, and how they are cut into cells.
#[derive(Clone, Debug)]
pub(super) struct Ground {
    /// Cells in each node.
    pub cells: Vec<usize>,
    /// CPUs of a cell.
    pub cell_cpus: usize,
    /// CPUs that a weight of 1 is entitled to.
    pub share: f64,
    /// Cells that everybody gets at least.
    pub least: usize,
}

/// What programs ask of a node together.
#[derive(Clone, Copy, Debug)]
struct Load {
    bandwidth: f64,
    cells: usize,
}

/// A division and what it is worth, with the sums behind that: what another one is worth is found from where the two
/// differ.
#[derive(Clone, Debug)]
pub(super) struct Judged {
    counts: Counts,
    /// Of each node.
    loads: Vec<Load>,
    /// What each program takes off the worth.
    losses: Vec<f64>,
    /// Higher is better.
    pub worth: f64,
}

impl Judged {
    pub fn of(facts: &[Facts], ground: &Ground, counts: &Counts) -> Judged {
        let loads: Vec<Load> = (0..ground.cells.len()).map(|node| Load::of(facts, counts, node)).collect();
        let losses: Vec<f64> =
            facts.iter().zip(counts.rows()).map(|(facts, row)| facts.loss(row, &loads, ground)).collect();
        let worth = -losses.iter().sum::<f64>();
        Judged { counts: counts.clone(), loads, losses, worth }
    }

    /// What another division of the same programs is worth: to the last bit what [`Judged::of`] it says, as all sums are
    /// formed in the same order.
    pub fn worth_of(&self, facts: &[Facts], ground: &Ground, counts: &Counts) -> f64 {
        let differs = |program: &usize| counts.row(*program) != self.counts.row(*program);
        let changed = if facts.iter().any(Facts::feels_others) { self.loads_of(facts, counts) } else { None };
        let (concerned, loads) = changed
            .as_ref()
            .map_or((&[][..], &self.loads), |(concerned, loads)| (concerned.as_slice(), loads));
        // Who has nothing in the nodes concerned is where it was, among the same others.
        let loss = |(program, facts): (usize, &Facts)| {
            let row = counts.row(program);
            let among_others = || row.iter().zip(concerned).any(|(&cells, &node)| node && cells > 0);
            let anew = differs(&program) || facts.feels_others() && among_others();
            if anew { facts.loss(row, loads, ground) } else { self.losses[program] }
        };
        -facts.iter().enumerate().map(loss).sum::<f64>()
    }

    /// In which nodes another division differs, and what is asked of each node under it; `None` if it does not differ.
    fn loads_of(&self, facts: &[Facts], counts: &Counts) -> Option<(Vec<bool>, Vec<Load>)> {
        let mut concerned = vec![false; self.loads.len()];
        for (now, before) in counts.rows().zip(self.counts.rows()).filter(|(now, before)| now != before) {
            let rows = now.iter().zip(before);
            concerned.iter_mut().zip(rows).for_each(|(node, (now, before))| *node |= now != before);
        }
        let mut loads = self.loads.clone();
        for (node, load) in loads.iter_mut().enumerate().filter(|(node, _)| concerned[*node]) {
            *load = Load::of(facts, counts, node);
        }
        concerned.contains(&true).then_some((concerned, loads))
    }
}

/// When each program ends, as far as is known, in seconds from now.
pub(super) fn ends_s(facts: &[Facts], ground: &Ground, counts: &Counts) -> impl Iterator<Item = f64> {
    let Judged { loads, .. } = Judged::of(facts, ground, counts);
    let known = facts.iter().zip(counts.rows()).filter(|(facts, _)| facts.is_left_known);
    known.map(move |(facts, row)| facts.finish_s(row, &loads, ground))
}

impl Load {
    fn of(facts: &[Facts], counts: &Counts, node: usize) -> Load {
        let bandwidth = facts.iter().zip(counts.rows()).map(|(facts, row)| facts.demand(row[node]));
        Load { bandwidth: bandwidth.fold(0.0, |sum, more| sum + more), cells: counts.used(node) }
    }
}

/// Speed on so many CPUs against one; a part of a CPU more counts only where nothing is known.
pub(super) fn curve_of(curve: Option<&Speedup>, cpus: f64) -> f64 {
    match curve {
        Some(curve) => curve.milli(cpus as u32) as f64 / 1000.0,
        None => libm::pow(cpus, libm::log2(DOUBLING)),
    }
}

impl Facts {
    /// `memory` and `served` as for [`Facts`].
    pub fn of(
        need: &Need<'_>,
        ground: &Ground,
        memory: Vec<f64>,
        served: Served,
        without: &[Lever],
    ) -> Facts {
        let (evidence, nodes) = (&need.app.evidence, ground.cells.len());
        let with = |lever: Lever| !without.contains(&lever);
        let curve = need.app.speedup.as_ref().filter(|_| with(Lever::Widths));
        let on = |cpus: usize| curve_of(curve, cpus as f64);
        let widest = ground.cells.iter().copied().max().unwrap_or(1);
        let full = on(widest * ground.cell_cpus);
        let speed: Vec<f64> =
            (0..=widest).map(|cells| if cells == 0 { 0.0 } else { on(cells * ground.cell_cpus) }).collect();
        let cross = (0..=nodes).map(|m| match (m, curve) {
            (0 | 1, _) | (_, None) => 1.0,
            (m, Some(_)) => on(m * widest * ground.cell_cpus) / (m as f64 * full),
        });
        // What the second half of a node's CPUs does not bring is what its memory does not deliver.
        let half = widest.div_ceil(2);
        let flat = match curve {
            Some(_) if widest > half => {
                1.0 - (full - on(half * ground.cell_cpus)) / ((widest - half) * ground.cell_cpus) as f64
            }
            _ => 0.0,
        };
        let part = |known: Option<Known>, otherwise: f64| {
            let value = known.map_or(otherwise, |known| known.value as f64 / 1000.0);
            if with(Lever::Neighbours) { value.clamp(0.0, 1.0) } else { 0.0 }
        };
        let seconds =
            |known: Option<Known>, otherwise: f64| known.map_or(otherwise, |known| known.value as f64 / 1e9);
        let in_cells = |cpus: u32| (cpus as usize).div_ceil(ground.cell_cpus).max(1);
        let (needs, cap) = (in_cells(need.floor), in_cells(need.cap));
        let sure = evidence.left_ns.is_some_and(|left| left.error_milli <= SURE_MILLI);
        let parity = if sure { PARITY } else { PARITY_UNSURE };
        let bandwidth = part(evidence.bandwidth_milli, flat);
        Facts {
            demand: speed.iter().map(|on| bandwidth * (on / speed[widest]).min(1.0)).collect(),
            speed,
            cross: cross.collect(),
            bandwidth,
            cache: part(evidence.cache_milli, 0.0),
            left_s: seconds(evidence.left_ns, UNKNOWN_LEFT_S).max(0.1),
            is_left_known: evidence.left_ns.is_some(),
            move_s: if with(Lever::Homes) { seconds(evidence.move_ns, UNKNOWN_MOVE_S) } else { 0.0 },
            weight: need.weight as f64 / 1000.0,
            share: need.weight as f64 * ground.share,
            served,
            parity: if with(Lever::Parity) { parity } else { 0.0 },
            memory,
            needs,
            floor: ground.least.min(cap).max(needs),
            cap,
        }
    }

    /// How far from an equal share it will be when it ends, as it counts.
    fn unfair(&self, cpus: f64, finish_s: f64) -> f64 {
        let had_s = self.served.used_ns as f64 / 1e9 + cpus * finish_s;
        let entitled_s = self.served.entitled_ns as f64 / 1e9 + self.share * finish_s;
        let off = had_s / entitled_s.max(1e-9) / SERVED - 1.0;
        self.parity * off * off
    }

    /// Whether it matters to it who else is in its nodes.
    fn feels_others(&self) -> bool {
        self.bandwidth > 0.0 || self.cache > 0.0
    }

    /// What it takes off the worth.
    fn loss(&self, row: &[usize], loads: &[Load], ground: &Ground) -> f64 {
        let finish_s = self.finish_s(row, loads, ground);
        let cpus = (row.iter().sum::<usize>() * ground.cell_cpus) as f64;
        self.weight * libm::log(finish_s) + self.unfair(cpus, finish_s)
    }

    fn demand(&self, cells: usize) -> f64 {
        self.demand[cells.min(self.demand.len() - 1)]
    }

    fn finish_s(&self, row: &[usize], loads: &[Load], ground: &Ground) -> f64 {
        let (mut slowest, mut cells, mut nodes) = (f64::INFINITY, 0, 0);
        for (node, &here) in row.iter().enumerate().filter(|(_, here)| **here > 0) {
            let slow = if self.feels_others() {
                let (load, own) = (&loads[node], self.demand(here));
                let others = (load.cells - here) as f64 / ground.cells[node] as f64;
                slow_by_bandwidth(self.bandwidth, own, load.bandwidth) * (1.0 + self.cache * others)
            } else {
                1.0
            };
            slowest = slowest.min(self.speed[here] / here as f64 / slow);
            cells += here;
            nodes += 1;
        }
        if cells == 0 {
            return f64::MAX;
        }
        let mut cross = self.cross[nodes];
        if cross > 1.0 {
            let all = nodes * (self.speed.len() - 1);
            cross = 1.0 + (cross - 1.0) * (cells as f64 / all as f64).min(1.0);
        }
        let speed = cells as f64 * slowest * cross;
        self.left_s / speed.max(1e-6) + self.move_s * self.remote(row, cells)
    }

    /// Part of its memory that lies elsewhere than where it would stand.
    fn remote(&self, row: &[usize], cells: usize) -> f64 {
        let apart = |(&lies, &here): (&f64, &usize)| (lies - here as f64 / cells as f64).abs();
        self.memory.iter().zip(row).map(apart).sum::<f64>() / 2.0
    }

    /// What it gets, and by what evidence.
    pub fn remark(&self, need: &Need<'_>, row: &[usize], ground: &Ground) -> Remark {
        let (app, evidence) = (&need.app, &need.app.evidence);
        let speedup = |curve: &Speedup| {
            let all = ground.cells.iter().sum::<usize>() * ground.cell_cpus;
            let cpus = (need.cap as usize).min(all).max(1) as u32;
            Fact::Speedup { cpus, milli: curve.milli(cpus) }
        };
        let facts = [
            app.speedup.as_ref().map(speedup),
            evidence.left_ns.map(Fact::Left),
            evidence.bandwidth_milli.map(Fact::Bandwidth),
            evidence.cache_milli.map(Fact::Cache),
            evidence.move_ns.map(Fact::Move),
        ];
        Remark::Evidence {
            app: app.id.clone(),
            cpus: (row.iter().sum::<usize>() * ground.cell_cpus) as u32,
            nodes: row.iter().filter(|cells| **cells > 0).count() as u32,
            facts: facts.into_iter().flatten().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NODES: usize = 3;
    const CELLS: usize = 8;

    fn facts() -> impl Strategy<Value = Facts> {
        let memory = prop_oneof![Just(Vec::new()), Just(vec![0.5, 0.25, 0.25])];
        let share = || prop_oneof![Just(0.0), 0.0..1.0];
        (share(), share(), 1.0..1000.0, 0.0..30.0, memory).prop_map(
            |(bandwidth, cache, left_s, move_s, memory)| {
                let speed: Vec<f64> = (0..=CELLS).map(|cells| (cells as f64).powf(0.8)).collect();
                Facts {
                    demand: speed.iter().map(|on| bandwidth * on / speed[CELLS]).collect(),
                    speed,
                    cross: vec![1.0, 1.0, 0.9, 0.8],
                    bandwidth,
                    cache,
                    left_s,
                    is_left_known: true,
                    move_s,
                    weight: 1.0,
                    share: 4.0,
                    served: Served::default(),
                    parity: PARITY,
                    memory,
                    needs: 1,
                    floor: 1,
                    cap: NODES * CELLS,
                }
            },
        )
    }

    fn row() -> impl Strategy<Value = Vec<usize>> {
        proptest::collection::vec(prop_oneof![2 => Just(0), 1 => 1..CELLS], NODES)
    }

    proptest! {
        #[test]
        fn worth_from_a_difference_is_exact(
            facts in proptest::collection::vec(facts(), 5),
            before in proptest::collection::vec(row(), 5),
            changes in proptest::collection::vec((0..5_usize, row()), 0..3),
        ) {
            let ground = Ground { cells: vec![CELLS; NODES], cell_cpus: 2, share: 4.0, least: 1 };
            let judged = Judged::of(&facts, &ground, &Counts::of(NODES, before.clone()));
            let mut rows = before;
            for (program, row) in changes {
                rows[program] = row;
            }
            let counts = Counts::of(NODES, rows);
            let worth = judged.worth_of(&facts, &ground, &counts);
            prop_assert_eq!(worth.to_bits(), Judged::of(&facts, &ground, &counts).worth.to_bits());
        }
    }
}
