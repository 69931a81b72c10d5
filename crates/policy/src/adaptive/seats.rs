//! Which CPUs: nodes of memory cut into cells, and programs that keep the cells that they have.

use topology::{CpuSet, Level, Machine};

use super::counts::Counts;
use crate::common::context::Part;
use crate::common::units::{domains, units};

/// The cells of each node, and who sits on them.
pub(super) struct Seats {
    nodes: Vec<Vec<CpuSet>>,
    taken: Vec<Vec<bool>>,
    /// Of each program the cells that it has in each node.
    has: Vec<Vec<Vec<usize>>>,
}

impl Seats {
    /// `cpus` by node: in whole cores where all of them are alike and there is one for each program.
    pub fn of(machine: &Machine, cpus: &CpuSet, programs: usize) -> Seats {
        let nodes = domains(machine);
        let mut cores = units(machine, Level::Core);
        cores.retain(|core| core.intersects(cpus));
        let alike = cores.windows(2).all(|pair| pair[0].len() == pair[1].len());
        let whole = cores.iter().all(|core| core.is_subset(cpus));
        let in_cores = alike && whole && !cores.is_empty() && cores.len() >= programs;
        let cells = |node: CpuSet| -> Vec<CpuSet> {
            let here = node.intersection(cpus);
            if in_cores {
                cores.iter().filter(|core| core.is_subset(&here)).cloned().collect()
            } else {
                here.iter().map(|cpu| CpuSet::from_cpus(&[cpu])).collect()
            }
        };
        let nodes: Vec<Vec<CpuSet>> = nodes.into_iter().map(cells).filter(|node| !node.is_empty()).collect();
        let taken = nodes.iter().map(|node| vec![false; node.len()]).collect();
        Seats { nodes, taken, has: Vec::new() }
    }

    /// Cells in each node.
    pub fn cells(&self) -> Vec<usize> {
        self.nodes.iter().map(Vec::len).collect()
    }

    pub fn cell_cpus(&self) -> usize {
        self.nodes.first().and_then(|node| node.first()).map_or(1, CpuSet::len)
    }

    /// The next program, on the cells that it had as far as nobody else has them; which part of it
    /// stood in each node, nothing where it is new.
    pub fn sit(&mut self, before: Option<&CpuSet>) -> Vec<f64> {
        let mut has = vec![Vec::new(); self.nodes.len()];
        let mut inside = vec![0; self.nodes.len()];
        if let Some(before) = before {
            for (node, cells) in self.nodes.iter().enumerate() {
                for (at, cell) in cells.iter().enumerate() {
                    inside[node] += cell.intersection(before).len();
                    if !self.taken[node][at] && cell.is_subset(before) {
                        self.taken[node][at] = true;
                        has[node].push(at);
                    }
                }
            }
        }
        self.has.push(has);
        let all: usize = inside.iter().sum();
        if all == 0 { Vec::new() } else { inside.iter().map(|&part| part as f64 / all as f64).collect() }
    }

    /// How many cells each program has in each node.
    pub fn counts(&self) -> Counts {
        Counts::of(self.nodes.len(), self.has.iter().map(|nodes| nodes.iter().map(Vec::len).collect()))
    }

    /// As many cells as `counts` says: those that a program has, then free ones.
    pub fn assign(mut self, counts: &Counts, members: &[usize]) -> Vec<Part> {
        for (row, has) in counts.rows().zip(&mut self.has) {
            for (node, here) in has.iter_mut().enumerate() {
                here.drain(row[node].min(here.len())..).for_each(|cell| self.taken[node][cell] = false);
            }
        }
        let mut parts = Vec::new();
        for ((row, has), &member) in counts.rows().zip(&self.has).zip(members) {
            let mut place = CpuSet::new();
            for (node, here) in has.iter().enumerate() {
                here.iter().for_each(|&cell| place.add_all(&self.nodes[node][cell]));
                for _ in here.len()..row[node] {
                    let Some(cell) = self.taken[node].iter().position(|taken| !taken) else { break };
                    self.taken[node][cell] = true;
                    place.add_all(&self.nodes[node][cell]);
                }
            }
            if !place.is_empty() {
                parts.push(Part { place, members: vec![member] });
            }
        }
        parts
    }
}
