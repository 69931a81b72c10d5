//! What `adaptive` expects of a division: how fast each program gets on, and what that is worth.
//!
//! ```text
//! speed(i)  = CPUs × min over nodes d of (S(k_d) / k_d) / slow_d × S(m c) / (m S(c))
//! slow_d    = (1 + b_i × max(0, U_d - 1)) × (1 + cache_i × part of d that others have)
//! U_d       = sum over programs there of b × S(k_d) / S(c)
//! finish(i) = left_i / speed(i) + move_i × part of its memory that lies elsewhere
//! worth     = - sum over programs of weight_i × ln finish(i)
//! ```
//!
//! S is the speed-up curve, k_d the CPUs in node d, c the CPUs of a node, m the nodes that the program
//! stands in, b the share of a node's bandwidth that it asks for. The sum of logarithms is Nash's
//! bargaining solution: a change is good if it makes some faster by a larger factor than it makes
//! others slower. Whoever gains nothing from a CPU leaves it to whoever does, and nobody is left
//! with next to nothing, because that would cost more than all others together can gain.

use plan::Known;

use super::account::Served;
use crate::common::needs::Need;
use crate::settings::Lever;

/// Neighbours' demand beyond what a node delivers slows a program that lives from memory down by so
/// many times that.
const NEIGHBOURS: f64 = 1.3;
/// Of a program whose curve is not known: what the last doubling of its CPUs still brings.
const UNKNOWN_DOUBLING: f64 = 1.6;
/// Of a program that was never seen to its end: what it still has to do, on one CPU.
const UNKNOWN_LEFT_S: f64 = 60.0;
/// Running time that a program loses by a move to another node, as long as nobody has seen it.
const UNKNOWN_MOVE_S: f64 = 10.0;

/// One program, as the search needs it.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    /// Speed with so many cells of one node, against one CPU; the first is no cell.
    speed: Vec<f64>,
    /// What crossing so many nodes leaves of their speed; the first two are 1.
    cross: Vec<f64>,
    bandwidth: f64,
    cache: f64,
    /// Seconds on one CPU.
    left_s: f64,
    move_s: f64,
    /// How long it takes, on one CPU, until another team is taken up.
    resize_s: f64,
    /// Cells that it has now; 0: it is new.
    now: usize,
    weight: f64,
    /// CPUs that it is entitled to.
    share: f64,
    /// CPU time in seconds that it had, and that it was entitled to.
    used_s: f64,
    entitled_s: f64,
    parity: f64,
    /// Part of its memory in each node; empty: it has none yet.
    pub memory: Vec<f64>,
    /// Fewest and most cells.
    pub floor: usize,
    /// Fewest cells that it can run on.
    pub needs: usize,
    pub cap: usize,
    /// It has not entered its first region: one CPU is all that it uses.
    pub starting: bool,
}

/// Nodes, and how they are cut into cells (cores, or single CPUs).
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

impl Ground {
    fn widest(&self) -> usize {
        self.cells.iter().copied().max().unwrap_or(1)
    }
}

/// Programs by nodes: cells.
pub(super) type Counts = Vec<Vec<usize>>;

fn seconds(known: Option<Known>, otherwise: f64) -> f64 {
    known.map_or(otherwise, |known| known.value as f64 / 1e9)
}

impl Facts {
    pub fn of(need: &Need<'_>, ground: &Ground, memory: Vec<f64>, served: Served, now: usize, without: &[Lever]) -> Facts {
        let (evidence, nodes) = (&need.app.evidence, ground.cells.len());
        let curve = need.app.speedup.as_ref().filter(|_| !without.contains(&Lever::Widths));
        let on = |cpus: usize| match curve {
            Some(curve) => curve.milli(cpus as u32) as f64 / 1000.0,
            None => libm::pow(cpus as f64, libm::log2(tune().dbl)),
        };
        let widest = ground.widest();
        let speed: Vec<f64> =
            (0..=widest).map(|cells| if cells == 0 { 0.0 } else { on(cells * ground.cell_cpus) }).collect();
        let cross = (0..=nodes).map(|m| match (m, curve) {
            (0 | 1, _) | (_, None) => 1.0,
            (m, Some(_)) => on(m * widest * ground.cell_cpus) / (m as f64 * speed[widest]),
        });
        let cross: Vec<f64> = cross.collect();
        // What the second half of a node's CPUs does not bring is what its memory does not deliver.
        let half = widest.div_ceil(2);
        let flat = match curve {
            Some(_) if widest > half => {
                1.0 - (speed[widest] - speed[half]) / ((widest - half) * ground.cell_cpus) as f64
            }
            _ => 0.0,
        };
        let milli = |known: Option<Known>, otherwise: f64| {
            known.map_or(otherwise, |known| known.value as f64 / 1000.0).clamp(0.0, 1.0)
        };
        let neighbours = !without.contains(&Lever::Neighbours);
        let left_s = seconds(evidence.left_ns, tune().left).max(0.1);
        let best = speed[widest] * (1..=nodes).map(|m| m as f64 * cross[m]).fold(1.0, f64::max);
        let known = evidence.left_ns.is_some() && !without.contains(&Lever::Short);
        let short = if known { short(left_s / best) } else { 1.0 };
        let cell = ground.cell_cpus as u32;
        Facts {
            bandwidth: if neighbours { milli(evidence.bandwidth_milli, flat) } else { 0.0 },
            cache: if neighbours { milli(evidence.cache_milli, 0.0) } else { 0.0 },
            left_s,
            move_s: if without.contains(&Lever::Homes) {
                0.0
            } else {
                seconds(evidence.move_ns, tune().mv) * tune().mvf
            },
            resize_s: seconds(evidence.region_ns, 0.0) * tune().rs,
            now,
            weight: need.weight as f64 / 1000.0 * short,
            share: need.weight as f64 * ground.share,
            used_s: served.used_ns as f64 / 1e9,
            entitled_s: served.entitled_ns as f64 / 1e9,
            parity: if without.contains(&Lever::Parity) { 0.0 } else { tune().par },
            memory,
            floor: ground.least.min(need.cap.div_ceil(cell) as usize).max(need.floor.div_ceil(cell).max(1) as usize),
            needs: need.floor.div_ceil(cell).max(1) as usize,
            cap: need.cap.div_ceil(cell).max(1) as usize,
            starting: need.app.team.is_none() && !without.contains(&Lever::Starts),
            speed,
            cross,
        }
    }
}

/// How much more a program counts that would soon be done with the machine to itself.
fn short(alone_s: f64) -> f64 {
    let t = tune();
    libm::pow(t.r / alone_s, t.a).clamp(t.lo, t.hi)
}

/// What programs ask of a node together.
#[derive(Clone, Copy, Default)]
struct Load {
    bandwidth: f64,
    cells: usize,
}

/// What `counts` is worth; higher is better.
pub(super) fn worth(facts: &[Facts], ground: &Ground, counts: &Counts) -> f64 {
    let w = tune().n;
    let mut loads = vec![Load::default(); ground.cells.len()];
    for (facts, row) in facts.iter().zip(counts) {
        for (load, &cells) in loads.iter_mut().zip(row) {
            load.bandwidth += facts.demand(cells);
            load.cells += cells;
        }
    }
    let of_one = |(facts, row): (&Facts, &Vec<usize>)| {
        let finish_s = facts.finish_s(row, &loads, ground, w);
        let cpus = row.iter().sum::<usize>() * ground.cell_cpus;
        facts.weight * libm::log(finish_s) + facts.unfair(cpus as f64, finish_s)
    };
    -facts.iter().zip(counts).map(of_one).sum::<f64>()
}

impl Facts {
    /// How far from an equal share it will be when it ends.
    fn unfair(&self, cpus: f64, finish_s: f64) -> f64 {
        let had = self.used_s + cpus * finish_s;
        let entitled = self.entitled_s + self.share * finish_s;
        let off = had / entitled.max(1e-9) - 1.0;
        self.parity * off * off
    }

    fn demand(&self, cells: usize) -> f64 {
        let full = self.speed[self.speed.len() - 1];
        self.bandwidth * (self.speed[cells.min(self.speed.len() - 1)] / full).min(1.0)
    }

    fn finish_s(&self, row: &[usize], loads: &[Load], ground: &Ground, w: f64) -> f64 {
        let (mut slowest, mut cells, mut nodes) = (f64::INFINITY, 0, 0);
        for (node, &here) in row.iter().enumerate().filter(|(_, here)| **here > 0) {
            let (load, own) = (&loads[node], self.demand(here));
            let over = (load.bandwidth - own.max(1.0)).max(0.0);
            let others = (load.cells - here) as f64 / ground.cells[node] as f64;
            let slow = (1.0 + w * self.bandwidth * over) * (1.0 + self.cache * others);
            slowest = slowest.min(self.speed[here] / here as f64 / slow);
            cells += here;
            nodes += 1;
        }
        if cells == 0 {
            return f64::MAX;
        }
        let mut cross = self.cross[nodes];
        if cross > 1.0 {
            // Caches of several nodes help as far as it has them.
            let all = nodes * (self.speed.len() - 1);
            cross = 1.0 + (cross - 1.0) * (cells as f64 / all as f64).min(1.0);
        }
        let speed = cells as f64 * slowest * cross;
        let resize_s = if self.now > 0 && self.now != cells { self.resize_s } else { 0.0 };
        (self.left_s + resize_s) / speed.max(1e-6) + self.move_s * self.remote(row, cells)
    }

    /// Part of its memory that lies elsewhere than where it would stand.
    fn remote(&self, row: &[usize], cells: usize) -> f64 {
        if self.memory.is_empty() {
            return 0.0;
        }
        let apart = |(&lies, &here): (&f64, &usize)| (lies - here as f64 / cells as f64).abs();
        self.memory.iter().zip(row).map(apart).sum::<f64>() / 2.0
    }
}

pub(super) struct Tune { pub a: f64, pub r: f64, pub lo: f64, pub hi: f64, pub n: f64, pub e: f64, pub em: f64, pub left: f64, pub mv: f64, pub dbl: f64, pub wakes: f64 , pub mvf: f64, pub par: f64, pub rs: f64}
pub(super) fn tune() -> &'static Tune {
    static T: std::sync::OnceLock<Tune> = std::sync::OnceLock::new();
    T.get_or_init(|| {
        let env = |n: &str, d: f64| std::env::var(n).ok().and_then(|v| v.parse().ok()).unwrap_or(d);
        Tune { a: env("AD_A", 0.0), r: env("AD_R", 6.0), lo: env("AD_LO", 0.5), hi: env("AD_HI", 2.0), n: env("AD_N", NEIGHBOURS), e: env("AD_E", 0.02), em: env("AD_EM", 0.1), left: env("AD_L", UNKNOWN_LEFT_S), mv: env("AD_M", UNKNOWN_MOVE_S), dbl: env("AD_D", UNKNOWN_DOUBLING), wakes: env("AD_W", 0.0), mvf: env("AD_MF", 1.0), par: env("AD_P", 14.0), rs: env("AD_RS", 0.5) }
    })
}
