//! Packing gangs into slots: the rows of Ousterhout's matrix (1982), first fit in order of
//! arrival, so that a newcomer never moves who was there before it.

use topology::{CpuSet, Machine};

use super::needs::Need;
use super::place;

/// One row: gangs that stand side by side in the same slot.
#[derive(Debug, Default)]
pub(crate) struct Row {
    /// All that its gangs use.
    taken: CpuSet,
    /// Which need, and where it stands.
    pub gangs: Vec<(usize, CpuSet)>,
}

/// Rows for `gangs` (indices into `needs`) on `cpus`, out of the way of `avoid` where their width
/// allows that.
pub(crate) fn pack(
    machine: &Machine,
    cpus: &CpuSet,
    avoid: &CpuSet,
    needs: &[Need<'_>],
    gangs: &[usize],
) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    // CPUs that are taken of each row.
    let mut counts: Vec<usize> = Vec::new();
    let all_count = cpus.len();
    for &index in gangs {
        let need = &needs[index];
        let width = need.floor as usize;
        let roomy = if need.overflows { need.scope.clone().unwrap_or_default() } else { need.open(cpus) };
        let clear = roomy.difference(avoid);
        let ground = if clear.len() >= width { clear } else { roomy };
        let stood = need.before.filter(|before| before.len() == width && before.is_subset(&ground));
        let place_in = |taken: &CpuSet| match stood {
            Some(before) if !before.intersects(taken) => Some(before.clone()),
            _ => place::of_width(machine, &ground.difference(taken), width, need.before),
        };
        let found = counts.iter().zip(&rows).enumerate().find_map(|(number, (&count, row))| {
            // Full rows are the common case; do not compare sets for them.
            let hopeless = need.scope.is_none() && count + width > all_count;
            if hopeless { None } else { Some((number, place_in(&row.taken)?)) }
        });
        let (number, place) = found.unwrap_or_else(|| {
            rows.push(Row::default());
            counts.push(0);
            let place = place_in(&CpuSet::new()).unwrap_or_else(|| ground.clone());
            (rows.len() - 1, place)
        });
        let row = &mut rows[number];
        row.taken.add_all(&place);
        counts[number] = row.taken.common_len(cpus);
        row.gangs.push((index, place));
    }
    rows
}
