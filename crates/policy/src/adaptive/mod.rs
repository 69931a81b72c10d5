//! adaptive

mod account;
mod model;
mod search;

use plan::{Promise, WaitingBound};
use topology::{CpuSet, Level};

use crate::common::compose::{Context, Divide, Division, Part, compose};
use crate::eq;
use crate::{Decision, Memory, Policy, Settings};
pub use account::Account;
use model::{Counts, Facts, Ground};
use plan::Snapshot;

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
            equal_shapes: false,
            share_bound: None,
            waiting_bound: Some(WaitingBound::Terminations(0)),
            keeps_cpus: false,
        }
    }

    fn decide(&self, snapshot: &Snapshot, memory: Memory) -> Decision {
        let cx = Context::new(snapshot, &self.settings, &memory);
        let mut account = memory.account.until(snapshot);
        let divide = ByEvidence { cx: &cx, account: &account };
        let mut decision = compose(&cx, &divide, &cx.everybody());
        account.follow(snapshot, &decision.plan);
        decision.memory.account = account;
        decision
    }
}

struct ByEvidence<'a, 'c> {
    cx: &'c Context<'a>,
    account: &'c Account,
}

/// Beyond so many programs widths are equal: what the search would find is one CPU each anyway.
const MOST_PROGRAMS: usize = 48;

/// Cells by node: cores of the memory nodes, or single CPUs where programs outnumber cores.
fn cells(cx: &Context<'_>, cpus: &CpuSet, members: usize) -> Vec<Vec<CpuSet>> {
    let machine = &cx.snapshot.machine;
    let units = |level: Level| -> Vec<CpuSet> {
        let units: Vec<CpuSet> = machine.units(level).map(|unit| unit.cpus.clone()).collect();
        let covered: usize = units.iter().map(CpuSet::len).sum();
        if covered == machine.pu_count() { units } else { Vec::new() }
    };
    let nodes = [Level::Numa, Level::Package, Level::Llc].into_iter().map(units).find(|units| !units.is_empty());
    let nodes = nodes.unwrap_or_else(|| vec![machine.all_cpus().clone()]);
    let cores: Vec<CpuSet> = units(Level::Core);
    let whole = cores.iter().all(|core| core.is_subset(cpus) || !core.intersects(cpus));
    let alike = cores.windows(2).all(|pair| pair[0].len() == pair[1].len());
    let in_cores = whole && alike && cores.iter().filter(|core| core.intersects(cpus)).count() >= members;
    let mut by_node: Vec<Vec<CpuSet>> = Vec::new();
    for node in nodes {
        let here = node.intersection(cpus);
        if here.is_empty() {
            continue;
        }
        by_node.push(if in_cores && !cores.is_empty() {
            cores.iter().filter(|core| core.is_subset(&here)).cloned().collect()
        } else {
            here.iter().map(|cpu| CpuSet::from_cpus(&[cpu])).collect()
        });
    }
    by_node
}

impl Divide for ByEvidence<'_, '_> {
    fn width_for(&self, count: usize) -> u32 {
        (self.cx.snapshot.usable.len() / count.max(1)).max(1) as u32
    }

    fn divide(&self, blocked: &CpuSet, members: &[usize]) -> Division {
        let cx = self.cx;
        let mut cpus = cx.snapshot.usable.difference(blocked);
        if cpus.is_empty() {
            cpus = cx.snapshot.usable.clone();
        }
        let equal = members.len() > cpus.len().min(MOST_PROGRAMS)
            || members.iter().any(|&index| cx.needs[index].scope.is_some());
        if equal || members.is_empty() {
            return eq::Division::of_usable(cx).divide(blocked, members);
        }
        let cells = cells(cx, &cpus, members.len());
        let ground = Ground {
            cells: cells.iter().map(Vec::len).collect(),
            cell_cpus: cells.first().and_then(|node| node.first()).map_or(1, CpuSet::len),
            least: cells.iter().map(Vec::len).sum::<usize>() / (members.len() * cells.len().max(4)),
            share: cpus.len() as f64 / members.iter().map(|&index| cx.needs[index].weight as f64).sum::<f64>(),
        };
        // Which cells each stands on.
        let mut taken: Vec<Vec<bool>> = cells.iter().map(|node| vec![false; node.len()]).collect();
        let mut stands: Vec<Vec<Vec<usize>>> = Vec::new();
        let mut facts: Vec<Facts> = Vec::new();
        for &index in members {
            let need = &cx.needs[index];
            let mut here: Vec<Vec<usize>> = vec![Vec::new(); cells.len()];
            let mut memory: Vec<f64> = Vec::new();
            if let Some(before) = need.before {
                let inside: Vec<usize> = cells
                    .iter()
                    .map(|node| node.iter().map(|cell| cell.intersection(before).len()).sum())
                    .collect();
                let all: usize = inside.iter().sum();
                if all > 0 {
                    memory = inside.iter().map(|&part| part as f64 / all as f64).collect();
                }
                for (node, cells) in cells.iter().enumerate() {
                    for (at, cell) in cells.iter().enumerate() {
                        if !taken[node][at] && cell.is_subset(before) {
                            taken[node][at] = true;
                            here[node].push(at);
                        }
                    }
                }
            }
            let served = self.account.served(&need.app.id);
            let now = here.iter().map(Vec::len).sum();
            facts.push(Facts::of(need, &ground, memory, served, now, &cx.settings.without));
            stands.push(here);
        }
        let now: Counts = stands.iter().map(|nodes| nodes.iter().map(Vec::len).collect()).collect();
        let counts = search::divide(&facts, &ground, now);
        // Cells that are kept, then free ones.
        for (row, stands) in counts.iter().zip(&mut stands) {
            for (node, here) in stands.iter_mut().enumerate() {
                while here.len() > row[node] {
                    let cell = here.pop().expect("there is one more than wanted");
                    taken[node][cell] = false;
                }
            }
        }
        let mut parts: Vec<Part> = Vec::new();
        for ((row, stands), &index) in counts.iter().zip(&stands).zip(members) {
            let mut place = CpuSet::new();
            for (node, here) in stands.iter().enumerate() {
                here.iter().for_each(|&cell| place.add_all(&cells[node][cell]));
                for _ in here.len()..row[node] {
                    let Some(cell) = taken[node].iter().position(|taken| !taken) else { break };
                    taken[node][cell] = true;
                    place.add_all(&cells[node][cell]);
                }
            }
            if !place.is_empty() {
                parts.push(Part { place, members: vec![index] });
            }
        }
        let w = model::tune().wakes;
        let wake_at_ns = (w > 0.0 && members.len() > 1).then(|| cx.snapshot.now_ns + (w * 1e9) as u64);
        Division { layers: vec![parts], wake_at_ns, ..Division::default() }
    }
}
