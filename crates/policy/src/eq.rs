//! Equal parts (EQ).
//!
//! # The problem
//! The CPUs are to be divided evenly among the programs, whatever the machine looks like.
//!
//! # Source
//! Schönherr, Juurlink, Richling 2013, III-B c; Tucker and Gupta 1989; McCann and Zahorjan 1994.
//!
//! # Where we differ
//! Programs that cannot shrink are treated as under TA.
//!
//! # Pseudocode
//! ```text
//! each of n programs gets ⌊C/n⌋ CPUs, the first C mod n one more
//! CPUs are only added to and removed from the sets that programs have
//! more programs than CPUs: dealt evenly over single CPUs, one thread each
//! ```
//!
//! # Properties
//! Sizes are those of a naive division and nobody loses a CPU that it may keep
//! (`the_division_is_the_naive_one_and_nobody_loses_a_cpu_needlessly`).
//!
//! # Cost
//! O(programs × CPUs / 64).
//!
//! # Limits
//! Programs end up spread over packages: that is what TA is for.

use std::collections::BTreeMap;

use plan::{Promise, ShareBound, Snapshot, Tree};
use topology::{CpuSet, Level, Shape};
use workload::AppId;

use crate::common::needs::Need;
use crate::common::{compose, levels, place};
use crate::{Decision, Memory, Policy, Settings};

pub(crate) struct Eq {
    pub settings: Settings,
}

impl Policy for Eq {
    fn letters(&self) -> &'static str {
        "EQ"
    }

    fn words(&self) -> &'static str {
        "equal parts"
    }

    fn promise(&self) -> Promise {
        Promise {
            share_bound: Some(ShareBound::Ratio(2.0)),
            waiting_bound: Some(plan::WaitingBound::Terminations(0)),
            keeps_cpus: true,
            ..Promise::default()
        }
    }

    fn decide(&self, snapshot: &Snapshot, memory: Memory) -> Decision {
        compose::compose(snapshot, memory, &self.settings, &mut |cpus, members, before, report| {
            if members.len() <= cpus.len() && members.iter().all(|need| need.roams) {
                report.lines.push(format!("{} programs share {} CPUs evenly", members.len(), cpus.len()));
                let parts = divide(cpus, members, before).into_iter().zip(members);
                return compose::side_by_side(
                    parts.map(|(place, need)| Tree::Run(need.run(place))).collect(),
                );
            }
            report.lines.push(format!("{} programs share single CPUs", members.len()));
            levels::several_each(&single_cpus(cpus), members, before, &levels::Sharing::AtOnce)
        })
    }
}

/// The CPUs of each program; there are at least as many CPUs as programs.
fn divide(cpus: &CpuSet, members: &[&Need<'_>], before: &BTreeMap<AppId, CpuSet>) -> Vec<CpuSet> {
    let (each, odd) = (cpus.len() / members.len(), cpus.len() % members.len());
    let mut free = cpus.clone();
    // Whoever has more than its part keeps the larger parts, so that fewest CPUs change hands.
    let had = |need: &Need<'_>| before.get(&need.app.id).map_or(0, |had| had.intersection(cpus).len());
    let mut order: Vec<usize> = (0..members.len()).collect();
    order.sort_by_key(|&number| (std::cmp::Reverse(had(members[number]).min(each + 1)), number));
    let mut sizes = vec![each; members.len()];
    order.iter().take(odd).for_each(|&number| sizes[number] += 1);
    let mut places = vec![CpuSet::new(); members.len()];
    for (number, need) in members.iter().enumerate() {
        if let Some(had) = before.get(&need.app.id) {
            let kept = had.intersection(&free);
            places[number] = kept.take(sizes[number]);
            free = free.difference(&places[number]);
        }
    }
    for (place, size) in places.iter_mut().zip(sizes) {
        let more = place::part(&free, size - place.len(), None);
        free = free.difference(&more);
        *place = place.union(&more);
    }
    places
}

fn single_cpus(cpus: &CpuSet) -> Shape {
    Shape {
        width: 1,
        places: cpus.iter().map(|cpu| [cpu].into_iter().collect()).collect(),
        left_over: CpuSet::new(),
        level: Level::Pu,
        description: "CPU".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plan::App;
    use std::sync::Arc;
    use topology::Machine;

    #[test]
    fn the_division_is_the_naive_one_and_nobody_loses_a_cpu_needlessly() {
        let machine = Arc::new(Machine::synthetic("pack:4 core:6").unwrap());
        let mut before: BTreeMap<AppId, CpuSet> = BTreeMap::new();
        for count in (1..=24).chain((1..24).rev()) {
            let apps: Vec<App> =
                (0..count).map(|n| App::new(AppId::new(&format!("a{n}")).unwrap(), n as u64)).collect();
            let snapshot = Snapshot::for_machine(Arc::clone(&machine));
            let needs: Vec<Need<'_>> = apps.iter().map(|app| Need::of(app, &snapshot)).collect();
            let members: Vec<&Need<'_>> = needs.iter().collect();
            let places = divide(&snapshot.usable, &members, &before);
            let mut sizes: Vec<usize> = places.iter().map(CpuSet::len).collect();
            sizes.sort_unstable();
            let naive: Vec<usize> =
                (0..count).map(|n| 24 / count + usize::from(n >= count - 24 % count)).collect();
            assert_eq!(sizes, naive);
            for (app, place) in apps.iter().zip(&places) {
                if let Some(had) = before.get(&app.id) {
                    assert!(place.is_subset(had) || had.is_subset(place), "{had:?} {place:?}");
                }
            }
            before = apps.iter().map(|app| app.id.clone()).zip(places).collect();
        }
    }
}
