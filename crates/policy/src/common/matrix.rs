//! Packing gangs into slots: the rows of Ousterhout's matrix (1982), first fit in order of
//! arrival, so that a newcomer never moves who was there before it.

use std::borrow::Cow;

use topology::{CpuSet, Machine};

use super::needs::Need;
use super::place;

/// A row has room for so many gangs at once.
const FEW: usize = 8;

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
    let clear = cpus.difference(avoid);
    let clear_count = clear.len();
    for &index in gangs {
        let need = &needs[index];
        let width = need.floor as usize;
        let ground = match &need.scope {
            None if clear_count >= width => Cow::Borrowed(&clear),
            None => Cow::Borrowed(cpus),
            Some(scope) => {
                let roomy = if need.overflows { scope.clone() } else { scope.intersection(cpus) };
                let clear = roomy.difference(avoid);
                Cow::Owned(if clear.len() >= width { clear } else { roomy })
            }
        };
        let stood = need.before.filter(|before| before.len() == width && before.is_subset(&ground));
        let place_in = |taken: &CpuSet| match stood {
            Some(before) if !before.intersects(taken) => Some(before.clone()),
            _ => place::of_width(machine, &ground.difference(taken), width, need.before),
        };
        // Full rows are the common case; do not compare sets for them.
        let restricted = need.scope.is_some();
        let mut hopeful = (0..rows.len()).filter(|&number| restricted || counts[number] + width <= all_count);
        let found = hopeful.find_map(|number| Some((number, place_in(&rows[number].taken)?)));
        let (number, place) = found.unwrap_or_else(|| {
            rows.push(Row { gangs: Vec::with_capacity(FEW), ..Row::default() });
            counts.push(0);
            let place = place_in(&CpuSet::new()).unwrap_or_else(|| CpuSet::clone(&ground));
            (rows.len() - 1, place)
        });
        let row = &mut rows[number];
        row.taken.add_all(&place);
        counts[number] = if restricted { row.taken.common_len(cpus) } else { counts[number] + width };
        row.gangs.push((index, place));
    }
    rows
}
