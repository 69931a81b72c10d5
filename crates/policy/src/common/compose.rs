//! How a policy's layout of resizable programs and the turns of rigid ones become one tree.
//!
//! Programs fall into three kinds. *Flexible* ones run on any partition. *Gangs* need several CPUs
//! at the same time: a team that cannot shrink and spins. *Steady* ones must not be stopped (they
//! are traced, or launchers). A gang that is no wider than its equal share of the machine gets a
//! place of its own for good; wider ones take turns with everybody else, in slots that last so long
//! that CPU time comes out equal (per weight).

use std::collections::BTreeMap;

use plan::{Plan, Slot, Snapshot, Tree};
use topology::CpuSet;
use workload::AppId;

use super::needs::{Need, needs};
use super::{matrix, place, slices};
use crate::{Decision, Memory, Report, Settings};

/// A policy's way of laying out flexible programs on some CPUs. `None`: they do not fit (programs
/// that are restricted to a few CPUs); then everybody is left to the kernel.
pub(crate) type Layout<'l> =
    dyn FnMut(&CpuSet, &[&Need<'_>], &BTreeMap<AppId, CpuSet>, &mut Report) -> Option<Tree> + 'l;

/// The whole plan: flexible programs by `layout`, gangs in turn.
pub(crate) fn compose(
    snapshot: &Snapshot,
    memory: Memory,
    settings: &Settings,
    layout: &mut Layout<'_>,
) -> Decision {
    let needs = needs(snapshot);
    let mut report = Report::default();
    let tree = arrange(snapshot, &needs, &memory, settings, layout, &mut report).or_else(|| {
        report
            .lines
            .push("some programs may neither be moved nor stopped: all are left to the kernel".into());
        everybody(&needs)
    });
    decision(snapshot, tree, memory, report)
}

/// Wraps a tree up: who is suspended, and who stood where.
pub(crate) fn decision(snapshot: &Snapshot, tree: Option<Tree>, memory: Memory, report: Report) -> Decision {
    let suspended = snapshot.apps.iter().filter(|app| app.suspended).map(|app| app.id.clone()).collect();
    let plan = Plan { tree, suspended, ..Plan::default() };
    let memory = Memory { places: places(snapshot, &plan, memory.places), ..memory };
    Decision { plan, memory, wake_at_ns: None, report }
}

/// Where everybody stands now; who does not run keeps what it had.
fn places(snapshot: &Snapshot, plan: &Plan, before: BTreeMap<AppId, CpuSet>) -> BTreeMap<AppId, CpuSet> {
    let mut places: BTreeMap<AppId, CpuSet> =
        snapshot.apps.iter().filter_map(|app| Some((app.id.clone(), before.get(&app.id)?.clone()))).collect();
    for run in plan.runs() {
        places.insert(run.app.clone(), run.place.clone());
    }
    places
}

/// Everybody on everything that it may use, left to the kernel.
pub(crate) fn everybody(needs: &[Need<'_>]) -> Option<Tree> {
    mixed(needs.iter().map(|need| Tree::Run(need.run(need.room.clone()))).collect())
}

pub(crate) fn mixed(mut parts: Vec<Tree>) -> Option<Tree> {
    match parts.len() {
        0 | 1 => parts.pop(),
        _ => Some(Tree::Mixed { owner: BTreeMap::new(), parts }),
    }
}

pub(crate) fn side_by_side(mut parts: Vec<Tree>) -> Option<Tree> {
    match parts.len() {
        0 | 1 => parts.pop(),
        _ => Some(Tree::SideBySide(parts)),
    }
}

fn arrange(
    snapshot: &Snapshot,
    needs: &[Need<'_>],
    memory: &Memory,
    settings: &Settings,
    layout: &mut Layout<'_>,
    report: &mut Report,
) -> Option<Tree> {
    let steady = |need: &&Need<'_>| !need.app.stoppable;
    let mut gangs: Vec<&Need<'_>> = needs.iter().filter(|need| need.floor > 1).collect();
    let mut flexible: Vec<&Need<'_>> = needs.iter().filter(|need| need.floor == 1).collect();
    if flexible.iter().any(|need| !need.room.is_subset(&snapshot.usable)) {
        return None;
    }
    // A single-threaded program that must not be stopped stands like a gang of one.
    gangs.extend(flexible.iter().filter(|need| steady(need) && !need.obeys));
    flexible.retain(|need| !steady(need) || need.obeys);

    let fixed = own_places(snapshot, &mut gangs, flexible.len(), &memory.places);
    let stays: CpuSet = fixed.iter().fold(CpuSet::new(), |all, (_, place)| all.union(place));
    if gangs.is_empty() {
        let rest = snapshot.usable.difference(&stays);
        let mut parts: Vec<Tree> =
            fixed.into_iter().map(|(need, place)| Tree::Run(need.run(place))).collect();
        if !flexible.is_empty() {
            parts.push(layout(&rest, &flexible, &memory.places, report)?);
        }
        return side_by_side(parts);
    }
    if gangs.iter().any(steady) || flexible.iter().any(steady) {
        return None;
    }
    // Who had its own place joins the turns: slots with half of the machine kept for them would
    // waste more than they give.
    gangs.extend(fixed.iter().map(|(need, _)| *need));
    gangs.sort_by_key(|need| need.app.arrived_ns);
    let rows = matrix::pack(&snapshot.machine, &gangs, &memory.places);
    let cpus = snapshot.usable.len() as u64;
    let mut slots = Vec::new();
    let mut claims = Vec::new();
    if !flexible.is_empty() {
        slots.push(layout(&snapshot.usable, &flexible, &memory.places, report)?);
        // m programs that share C CPUs need m/C of the time for one CPU's worth each.
        claims.push(flexible.iter().map(|need| need.weight()).sum::<u64>() * UNIT / cpus.max(1));
    }
    for row in &rows {
        let width: u64 = row.gangs.iter().map(|(_, place)| place.len() as u64).sum();
        let weight: u64 = row.gangs.iter().map(|(need, _)| need.weight()).sum();
        claims.push((weight * UNIT / width.max(1)).max(1));
        let runs = row.gangs.iter().map(|(need, place)| Tree::Run(need.run(place.clone()))).collect();
        slots.extend(side_by_side(runs));
    }
    let names: Vec<&str> = gangs.iter().map(|need| need.app.id.as_str()).collect();
    report.lines.push(format!("{} cannot shrink and take turns at full width", names.join(", ")));
    if slots.len() == 1 {
        return slots.pop();
    }
    let slices = slices::slices(&claims, settings, None);
    let slots = slots.into_iter().zip(slices).map(|(tree, slice_ns)| Slot { slice_ns, tree }).collect();
    Some(Tree::InTurn { mode: settings.turn_mode, slots })
}

/// Claims are whole numbers of this part.
const UNIT: u64 = 1_000_000;

/// Takes those out of `gangs` that are no wider than their equal share, narrowest first, and gives
/// them a place for good; the CPUs that they leave unused of their share go to the others.
fn own_places<'n, 'a>(
    snapshot: &Snapshot,
    gangs: &mut Vec<&'n Need<'a>>,
    flexible: usize,
    before: &BTreeMap<AppId, CpuSet>,
) -> Vec<(&'n Need<'a>, CpuSet)> {
    let mut order: Vec<&'n Need<'a>> = gangs.clone();
    order.sort_by_key(|need| (need.floor, need.app.arrived_ns));
    let mut free = snapshot.usable.clone();
    let mut left = gangs.len() + flexible;
    let mut fixed = Vec::new();
    for need in order {
        // The last one has nobody to leave anything to.
        if need.floor * left > free.len() {
            break;
        }
        let room = free.intersection(&need.room);
        let width = need.floor;
        let Some(place) = place::of_width(&snapshot.machine, &room, width, before.get(&need.app.id)) else {
            break;
        };
        free = free.difference(&place);
        left -= 1;
        fixed.push((need, place));
    }
    gangs.retain(|need| !fixed.iter().any(|(other, _)| other.app.id == need.app.id));
    fixed
}
