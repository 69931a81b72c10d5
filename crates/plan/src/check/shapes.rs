//! Invariant 4: partitions are units of the machine or equal fractions of one, of one shape a level.
//!
//! Judged twice: against the shapes that the topology offers, and by looks: what a place restricts
//! the machine's tree to, boiled down to a signature. An error in either shows in the other.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use topology::{CpuSet, Machine, Object, Shape};

use super::Case;
use super::Violation;
use super::cast::Cast;
use crate::{App, Run, Snapshot};

pub fn check(case: &Case<'_>, found: &mut Vec<Violation>) {
    let Some(offered) = case.offered() else { return };
    let machine = &case.snapshot.machine;
    let signatures = Signatures::of(machine);
    let mut covered: BTreeMap<usize, CpuSet> = BTreeMap::new();
    // One representative of each width, with what it looks like.
    let mut by_width: BTreeMap<usize, (&CpuSet, Option<u64>)> = BTreeMap::new();
    let mut checked: BTreeSet<(usize, usize)> = BTreeSet::new();
    for run in &case.partitioned().runs {
        let place = &run.place;
        if place.is_empty() {
            continue;
        }
        let Some((at, number)) = offered.find(place) else {
            found.push(Violation::OddPartition { app: run.app.clone(), place: place.clone() });
            continue;
        };
        if !checked.insert((at, number)) {
            continue;
        }
        let shape = offered.shape(at);
        let covered =
            covered.entry(at).or_insert_with(|| shape.places.iter().flat_map(CpuSet::iter).collect());
        let unit = unit_of(machine, place);
        if crosses(unit, &signatures, place, &shape.places, covered) {
            found.push(Violation::CrossingPartition { place: place.clone() });
        }
        let signature = signatures.signature(unit, place);
        match by_width.get(&place.len()) {
            None => {
                by_width.insert(place.len(), (place, signature));
            }
            Some((other, other_signature)) if *other_signature != signature => {
                found.push(Violation::UnlikePartitions { one: (*other).clone(), other: place.clone() });
            }
            Some(_) => {}
        }
    }
}

/// Runs whose partitions are the policy's free choice: of programs that take a team of any size, may
/// stand anywhere and do not have all that they can use to themselves. The others stand where they
/// must, or may well have a narrower part.
pub struct Partitioned<'a> {
    pub runs: Vec<&'a Run>,
    /// Whether they are a program's, by its number.
    pub free: Vec<bool>,
    content: Vec<&'a Run>,
}

impl<'a> Partitioned<'a> {
    pub fn of(snapshot: &Snapshot, cast: &Cast<'a>) -> Partitioned<'a> {
        let mut free: Vec<bool> = snapshot
            .apps
            .iter()
            .map(|app| app.accepts_width() && app.within.is_none() && app.demand.min_threads <= 1)
            .collect();
        free.resize(cast.len(), false);
        let some = free.contains(&true);
        let content = if some { content(snapshot, cast) } else { Vec::new() };
        content.iter().for_each(|&(_, number)| free[number] = false);
        let runs = cast.runs.iter().filter(|(_, number)| free[*number]).map(|&(run, _)| run).collect();
        Partitioned { runs, free, content: content.into_iter().map(|(run, _)| run).collect() }
    }
}

/// Runs of programs that may stand anywhere and have CPUs to themselves all the time, as many as they
/// can use; those that have least of them for their weight first. Each with its program's number.
fn content<'a>(snapshot: &Snapshot, cast: &Cast<'a>) -> Vec<(&'a Run, usize)> {
    let cpus = snapshot.allowed.len() as u32;
    let most = |app: &App| if app.accepts_width() { app.demand.max_threads } else { Some(app.width(cpus)) };
    let bound = |app: &App| app.within.is_none().then(|| most(app)).flatten();
    if snapshot.apps.iter().all(|app| bound(app).is_none()) {
        return Vec::new();
    }
    // CPUs that several programs use.
    let mut places = vec![CpuSet::new(); cast.len()];
    cast.runs.iter().for_each(|(run, number)| places[*number].add_all(&run.place));
    let shared = shared(&places);
    let enough = |(run, number): &(&Run, usize)| {
        cast.app(*number).and_then(bound).is_some_and(|most| run.place.len() >= most as usize)
            && !run.place.intersects(&shared)
    };
    let mut content: Vec<(&Run, usize)> = cast.runs.iter().copied().filter(enough).collect();
    let weight = |number: usize| cast.app(number).map_or(1, |app| u128::from(app.demand.weight_milli.max(1)));
    let width = |run: &Run| run.place.len() as u128;
    content.sort_by(|a, b| (width(a.0) * weight(b.1)).cmp(&(width(b.0) * weight(a.1))));
    content
}

/// CPUs that lie in several of the places.
pub fn shared<'s>(places: impl IntoIterator<Item = &'s CpuSet>) -> CpuSet {
    let (mut used, mut shared) = (CpuSet::new(), CpuSet::new());
    for place in places {
        if used.intersects(place) {
            shared.add_all(&used.intersection(place));
        }
        used.add_all(place);
    }
    shared
}

/// The shapes that partitions may have: of what is usable; where some programs stand where they
/// must, of what these leave; and where some have all that they can use, of what those leave that
/// have least for their weight, or least, up to some of them.
pub struct Offered {
    /// Widest first for each set that is cut, with the place (by number) that holds each CPU.
    shapes: Vec<(Arc<[Shape]>, usize, Vec<usize>)>,
}

/// No place holds this CPU.
const NONE: usize = usize::MAX;

impl Offered {
    /// `None` where nothing is partitioned.
    pub fn of(snapshot: &Snapshot, cast: &Cast<'_>, partitioned: &Partitioned<'_>) -> Option<Offered> {
        let Partitioned { runs: partitioned, free, content } = partitioned;
        if partitioned.is_empty() {
            return None;
        }
        let mut offered = Offered { shapes: Vec::new() };
        offered.add(snapshot, &snapshot.usable);
        if offered.all(partitioned) {
            return Some(offered);
        }
        let mut fixed = CpuSet::new();
        for (run, _) in cast.runs.iter().filter(|(_, number)| !free[*number]) {
            fixed.add_all(&run.place);
        }
        let rest = snapshot.usable.difference(&fixed);
        offered.add(snapshot, &rest);
        let mut by_width = content.clone();
        by_width.sort_by_key(|run| run.place.len());
        // Who came to be content by a partition of the others' shape must not be put, by its weight,
        // before those beside whom that shape was cut.
        for content in [content, &by_width] {
            let mut rest = snapshot.usable.clone();
            for run in content {
                if offered.all(partitioned) {
                    return Some(offered);
                }
                rest = rest.difference(&run.place);
                offered.add(snapshot, &rest);
            }
        }
        Some(offered)
    }

    fn add(&mut self, snapshot: &Snapshot, cpus: &CpuSet) {
        let shapes = snapshot.machine.shapes(cpus);
        let end = snapshot.machine.all_cpus().iter().last().map_or(0, |highest| highest as usize + 1);
        for (at, shape) in shapes.iter().enumerate() {
            let mut owner = vec![NONE; end];
            for (number, place) in shape.places.iter().enumerate() {
                place.iter().for_each(|cpu| owner[cpu as usize] = number);
            }
            self.shapes.push((Arc::clone(&shapes), at, owner));
        }
    }

    /// Numbers of the shape that offers a place, and of the place in it; the widest of the first set,
    /// where several do.
    pub fn find(&self, place: &CpuSet) -> Option<(usize, usize)> {
        let lowest = place.lowest()? as usize;
        (0..self.shapes.len()).find_map(|at| {
            let number = self.shapes[at].2.get(lowest).filter(|&&number| number != NONE)?;
            (self.shape(at).places[*number] == *place).then_some((at, *number))
        })
    }

    fn all(&self, runs: &[&Run]) -> bool {
        runs.iter().all(|run| self.find(&run.place).is_some())
    }

    pub fn shape(&self, at: usize) -> &Shape {
        let (shapes, number, _) = &self.shapes[at];
        &shapes[*number]
    }

    pub fn shapes(&self) -> impl Iterator<Item = &Shape> {
        (0..self.shapes.len()).map(|at| self.shape(at))
    }
}

/// The smallest unit of the machine that holds all of `place`.
pub fn unit_of<'a>(machine: &'a Machine, place: &CpuSet) -> &'a Object {
    let mut unit = &machine.root;
    let Some(lowest) = place.lowest() else { return unit };
    let child = |unit: &'a Object| unit.children.iter().find(|child| child.cpus.contains(lowest));
    while let Some(child) = child(unit).filter(|child| place.is_subset(&child.cpus)) {
        unit = child;
    }
    unit
}

/// Whether `place` takes a part of a unit and something else of its like ("one and a half NUMA nodes").
/// Parts that others of `places` take of the same unit may only be equal fractions of it, where the
/// machine is mixed: a core of one kind and half a cluster of another. `unit`: the smallest that
/// holds all of `place`.
fn crosses(
    unit: &Object,
    signatures: &Signatures,
    place: &CpuSet,
    places: &[CpuSet],
    covered: &CpuSet,
) -> bool {
    let part_of = |child: &Object| child.cpus.intersection(covered);
    let split = |child: &&Object| {
        let part = part_of(child);
        part.intersects(place) && !part.is_subset(place)
    };
    unit.children.iter().filter(split).any(|child| {
        let signature = signatures.signature(child, &part_of(child));
        let alike = |other: &Object| signatures.signature(other, &part_of(other)) == signature;
        let others = unit.children.iter().filter(|other| other.cpus != child.cpus);
        let more_of_its_like = others.filter(|other| other.cpus.intersects(place)).any(alike);
        let mine = signatures.signature(child, place);
        let shares = places.iter().filter(|other| other.intersects(&child.cpus));
        more_of_its_like || shares.map(|other| signatures.signature(child, other)).any(|other| other != mine)
    })
}

/// What places look like.
pub struct Signatures {
    /// Class of each PU whose capacity is known; those of one class are alike.
    classes: BTreeMap<u32, usize>,
}

impl Signatures {
    pub fn of(machine: &Machine) -> Signatures {
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
        Signatures { classes }
    }

    /// The tree below `object` restricted to `place`, as one number; units with a single child are
    /// looked through, the order of children does not count. `None` where they share no CPU.
    pub fn signature(&self, object: &Object, place: &CpuSet) -> Option<u64> {
        if object.children.is_empty() {
            let cpu = object.cpus.lowest().filter(|&cpu| place.contains(cpu))?;
            return Some(digest(&self.classes.get(&cpu)));
        }
        if !object.cpus.intersects(place) {
            return None;
        }
        let mut parts: Vec<u64> =
            object.children.iter().filter_map(|child| self.signature(child, place)).collect();
        if parts.len() <= 1 {
            return parts.pop();
        }
        parts.sort_unstable();
        Some(digest(&(object.level, parts)))
    }
}

/// The same for equal values, and for unlike ones all but never.
fn digest(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
