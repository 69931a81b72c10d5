//! Choosing CPUs inside a free set: first those that the program had, then near together.

use topology::{CpuSet, Machine, Object};

/// `count` CPUs of `free` (all, where it has fewer): those of `before` first, then the lowest.
pub(crate) fn part(free: &CpuSet, count: usize, before: Option<&CpuSet>) -> CpuSet {
    if free.len() <= count {
        return free.clone();
    }
    let Some(before) = before else { return free.take(count) };
    let kept = free.intersection(before);
    if kept.len() >= count {
        return kept.take(count);
    }
    let more = free.difference(&kept).take(count - kept.len());
    kept.union(&more)
}

/// A place of `width` CPUs out of `free`: the one that the program had if it can have it again,
/// else in the smallest object of the machine that has enough free CPUs, where fewest others are
/// left over. `None` where there are not enough.
pub(crate) fn of_width(
    machine: &Machine,
    free: &CpuSet,
    width: usize,
    before: Option<&CpuSet>,
) -> Option<CpuSet> {
    if free.len() < width {
        return None;
    }
    if let Some(before) = before
        && before.len() == width
        && before.is_subset(free)
    {
        return Some(before.clone());
    }
    let mut best: Option<(usize, usize, CpuSet)> = None;
    search(&machine.root, free, width, before, &mut best);
    // CPUs that the tree does not know (none on a sound machine) are still usable.
    Some(best.map_or_else(|| part(free, width, before), |(_, _, inside)| part(&inside, width, before)))
}

/// Keeps in `best` (free CPUs, CPUs that the program had, the free set) the tightest object.
fn search(
    object: &Object,
    free: &CpuSet,
    width: usize,
    before: Option<&CpuSet>,
    best: &mut Option<(usize, usize, CpuSet)>,
) {
    let inside = object.cpus.intersection(free);
    let count = inside.len();
    if count < width {
        return;
    }
    let kept = before.map_or(0, |before| inside.intersection(before).len()).min(width);
    let better = best.as_ref().is_none_or(|(best_count, best_kept, _)| {
        count < *best_count || count == *best_count && kept > *best_kept
    });
    if better {
        *best = Some((count, kept, inside));
    }
    for child in &object.children {
        search(child, free, width, before, best);
    }
}
