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
    let most = before.map_or(0, |before| free.common_len(before)).min(width);
    let mut search = Search { free, width, before, most, best: None };
    search.below(&machine.root);
    // CPUs that the tree does not know (none on a sound machine) are still usable.
    let inside = search.best.map(|(_, _, object)| object.cpus.intersection(free));
    Some(part(inside.as_ref().unwrap_or(free), width, before))
}

/// The search for the tightest object of the machine.
struct Search<'a> {
    free: &'a CpuSet,
    width: usize,
    before: Option<&'a CpuSet>,
    /// CPUs of `before` that can be kept at most.
    most: usize,
    /// Its free CPUs, how many of those the program had, and the object.
    best: Option<(usize, usize, &'a Object)>,
}

impl<'a> Search<'a> {
    /// Looks at an object and all below it. Whether nothing better can be found anywhere.
    fn below(&mut self, object: &'a Object) -> bool {
        let count = object.cpus.common_len(self.free);
        if count < self.width {
            return false;
        }
        // With more free CPUs than the best it is no better, whatever it keeps.
        if self.best.is_none_or(|(best, _, _)| count <= best) {
            let had = |before: &CpuSet| object.cpus.intersection(self.free).common_len(before);
            let kept = self.before.map_or(0, had).min(self.width);
            if self.best.is_none_or(|(best, best_kept, _)| count < best || kept > best_kept) {
                self.best = Some((count, kept, object));
            }
        }
        // Below one without a CPU too many there are only its like.
        if count == self.width {
            return self.best.is_some_and(|(best, kept, _)| best == count && kept == self.most);
        }
        object.children.iter().any(|child| self.below(child))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every object of the machine, parents before children.
    fn objects<'a>(object: &'a Object, all: &mut Vec<&'a Object>) {
        all.push(object);
        object.children.iter().for_each(|child| objects(child, all));
    }

    #[test]
    fn the_place_found_is_that_of_an_exhaustive_search() {
        let machine = Machine::synthetic("pack:2 l3:2 core:3 pu:2").unwrap();
        let mut all = Vec::new();
        objects(&machine.root, &mut all);
        let mut state = 11u64;
        let mut random = move |end: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % end
        };
        for _ in 0..3000 {
            let free: CpuSet = (0..random(30)).map(|_| random(24) as u32).collect();
            let before: CpuSet = (0..random(8)).map(|_| random(24) as u32).collect();
            let before = Some(&before).filter(|before| !before.is_empty());
            let width = 1 + random(8) as usize;
            let inside = |object: &&Object| object.cpus.intersection(&free);
            let kept =
                |place: &CpuSet| before.map_or(0, |before| place.intersection(before).len()).min(width);
            let wide = all.iter().map(inside).filter(|place| place.len() >= width);
            let tightest = wide.min_by_key(|place| (place.len(), std::cmp::Reverse(kept(place))));
            let same_again = before.filter(|before| before.len() == width && before.is_subset(&free));
            let wanted = match (same_again, tightest) {
                (Some(before), _) => Some(before.clone()),
                (None, tightest) => tightest.map(|place| part(&place, width, before)),
            };
            assert_eq!(
                of_width(&machine, &free, width, before),
                wanted,
                "{width} of {free}, stood on {before:?}"
            );
        }
    }
}
