//! Invariant 4: partitions are units of the machine or equal fractions of one, of one shape a level.
//!
//! Judged twice: against the shapes that the topology offers, and by looks: what a place restricts
//! the machine's tree to, written down as a signature. An error in either shows in the other.

use std::collections::{BTreeMap, BTreeSet};

use topology::{CpuSet, Machine, Object, Shape};
use workload::AppId;

use super::Violation;
use crate::{Plan, Run, Snapshot};

pub fn check(plan: &Plan, snapshot: &Snapshot, found: &mut Vec<Violation>) {
    let Some(shapes) = shapes_of(plan, snapshot) else { return };
    let looks = Looks::of(&snapshot.machine);
    let offered = offered(&shapes);
    let covered: Vec<CpuSet> =
        shapes.iter().map(|shape| shape.places.iter().flat_map(CpuSet::iter).collect()).collect();
    // One representative of each width, with what it looks like.
    let mut seen: BTreeMap<usize, (&CpuSet, String)> = BTreeMap::new();
    let mut checked: BTreeSet<&CpuSet> = BTreeSet::new();
    for run in partitioned(plan, snapshot) {
        let place = &run.place;
        if place.is_empty() || !checked.insert(place) {
            continue;
        }
        let Some(&at) = offered.get(place) else {
            found.push(Violation::OddPartition { app: run.app.clone(), place: place.clone() });
            continue;
        };
        if crosses(&snapshot.machine, &looks, place, &shapes[at].places, &covered[at]) {
            found.push(Violation::CrossingPartition { place: place.clone() });
        }
        let look = looks.signature(&snapshot.machine.root, place).unwrap_or_default();
        match seen.get(&place.len()) {
            None => {
                seen.insert(place.len(), (place, look));
            }
            Some((other, other_look)) if *other_look != look => {
                found.push(Violation::UnlikePartitions { one: (*other).clone(), other: place.clone() });
            }
            Some(_) => {}
        }
    }
}

/// Runs whose partitions are the policy's free choice: of programs that take a team of any size and
/// may stand anywhere. The others stand where they must.
pub fn partitioned<'a>(plan: &'a Plan, snapshot: &Snapshot) -> Vec<&'a Run> {
    let free: BTreeMap<_, bool> = snapshot
        .apps
        .iter()
        .map(|app| (&app.id, app.takes_orders() && app.within.is_none() && app.demand.min_threads <= 1))
        .collect();
    plan.runs().into_iter().filter(|run| free.get(&run.app).copied().unwrap_or(false)).collect()
}

/// The shapes that partitions may have: of what is usable, and, where some programs stand where they
/// must, of what these leave. `None` where nothing is partitioned.
pub fn shapes_of(plan: &Plan, snapshot: &Snapshot) -> Option<Vec<Shape>> {
    let free = partitioned(plan, snapshot);
    if free.is_empty() {
        return None;
    }
    let mut shapes = snapshot.machine.shapes(&snapshot.usable);
    let mut fixed = CpuSet::new();
    let free: BTreeSet<&AppId> = free.into_iter().map(|run| &run.app).collect();
    for run in plan.runs().into_iter().filter(|run| !free.contains(&run.app)) {
        fixed = fixed.union(&run.place);
    }
    let rest = snapshot.usable.difference(&fixed);
    if rest != snapshot.usable && !rest.is_empty() {
        shapes.extend(snapshot.machine.shapes(&rest));
    }
    Some(shapes)
}

/// Which shape offers each place; the widest, where several do.
pub fn offered(shapes: &[Shape]) -> BTreeMap<&CpuSet, usize> {
    let mut offered = BTreeMap::new();
    for (at, shape) in shapes.iter().enumerate() {
        for place in &shape.places {
            offered.entry(place).or_insert(at);
        }
    }
    offered
}

/// Whether `place` takes a part of a unit and something else of its like ("one and a half NUMA nodes").
/// Parts that others of `places` take of the same unit may only be equal fractions of it, where the
/// machine is mixed: a core of one kind and half a cluster of another.
fn crosses(machine: &Machine, looks: &Looks, place: &CpuSet, places: &[CpuSet], covered: &CpuSet) -> bool {
    let mut unit = &machine.root;
    while let Some(child) = unit.children.iter().find(|child| place.is_subset(&child.cpus)) {
        unit = child;
    }
    let part_of = |child: &Object| child.cpus.intersection(covered);
    let split = |child: &&Object| {
        let part = part_of(child);
        part.intersects(place) && !part.is_subset(place)
    };
    unit.children.iter().filter(split).any(|child| {
        let look = looks.signature(child, &part_of(child));
        let alike = |other: &Object| looks.signature(other, &part_of(other)) == look;
        let others = unit.children.iter().filter(|other| other.cpus != child.cpus);
        let more_of_its_like = others.filter(|other| other.cpus.intersects(place)).any(alike);
        let mine = looks.signature(child, place);
        let shares = places.iter().filter(|other| other.intersects(&child.cpus));
        more_of_its_like || shares.map(|other| looks.signature(child, other)).any(|other| other != mine)
    })
}

/// What places look like.
pub struct Looks {
    /// Class of each PU whose capacity is known; those of one class are alike.
    classes: BTreeMap<u32, usize>,
}

impl Looks {
    pub fn of(machine: &Machine) -> Looks {
        let mut sorted: Vec<(u32, u32)> =
            machine.capacities.iter().map(|(&cpu, &capacity)| (capacity, cpu)).collect();
        sorted.sort_unstable();
        let (mut class, mut top) = (0, 0u64);
        let mut classes = BTreeMap::new();
        for &(capacity, cpu) in sorted.iter().rev() {
            // Unlike beyond 10% of the class's most capable.
            if classes.is_empty() || u64::from(capacity) * 10 < top * 9 {
                class += 1;
                top = u64::from(capacity);
            }
            classes.insert(cpu, class);
        }
        Looks { classes }
    }

    /// The tree below `object` restricted to `place`, as text; units with a single child are looked
    /// through, the order of children does not count. `None` where they share no CPU.
    pub fn signature(&self, object: &Object, place: &CpuSet) -> Option<String> {
        if !object.cpus.intersects(place) {
            return None;
        }
        if object.children.is_empty() {
            let class = object.cpus.lowest().and_then(|cpu| self.classes.get(&cpu));
            return Some(class.map_or_else(|| "pu".to_owned(), |class| format!("pu{class}")));
        }
        let mut parts: Vec<String> =
            object.children.iter().filter_map(|child| self.signature(child, place)).collect();
        if parts.len() <= 1 {
            return parts.pop();
        }
        parts.sort_unstable();
        Some(format!("{:?}({})", object.level, parts.join(" ")))
    }
}
