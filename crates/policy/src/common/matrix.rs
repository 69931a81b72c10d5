//! Packing gangs into slots: the rows of Ousterhout's matrix (1982), first fit in order of
//! arrival, so that a newcomer never moves who was there before it.

use std::collections::BTreeMap;

use topology::{CpuSet, Machine};
use workload::AppId;

use super::needs::Need;
use super::place;

/// One row: gangs that stand side by side in the same slot.
#[derive(Debug, Default)]
pub(crate) struct Row<'n, 'a> {
    taken: CpuSet,
    pub gangs: Vec<(&'n Need<'a>, CpuSet)>,
}

/// Rows in which every gang has the CPUs that it needs.
pub(crate) fn pack<'n, 'a>(
    machine: &Machine,
    gangs: &[&'n Need<'a>],
    before: &BTreeMap<AppId, CpuSet>,
) -> Vec<Row<'n, 'a>> {
    let mut rows: Vec<Row<'n, 'a>> = Vec::new();
    for &need in gangs {
        let width = need.floor.min(need.room.len());
        let stood = before.get(&need.app.id);
        let place_in = |taken: &CpuSet| place::of_width(machine, &need.room.difference(taken), width, stood);
        let found = rows.iter().enumerate().find_map(|(number, row)| Some((number, place_in(&row.taken)?)));
        let (number, place) = found.unwrap_or_else(|| {
            rows.push(Row::default());
            let place = place_in(&CpuSet::new()).expect("its room is at least as wide as it needs");
            (rows.len() - 1, place)
        });
        let row = &mut rows[number];
        row.taken = row.taken.union(&place);
        row.gangs.push((need, place));
    }
    rows
}
