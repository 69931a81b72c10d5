//! From a plan to where each program stands: one leaf for each of its runs.

use plan::{Plan, Run, Tree};
use topology::CpuSet;

use crate::domains::Domains;

/// What stands for "none" among the numbers of slots, groups and mixtures.
pub const NONE: u32 = u32::MAX;

/// What surrounds one run of a plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Around {
    /// Slot of the outermost turns that it stands in.
    pub slot: u32,
    /// Part of the time in which that slot runs.
    pub outer: f64,
    /// Inner turns that it stands in: programs of one group never run at the same time.
    pub group: u32,
    /// Part of its slot's time in which it is in turn.
    pub inner: f64,
    /// Length of its turns; 0: it does not take turns with anybody.
    pub slice_ns: u64,
    /// Which mixture it stands in.
    pub mixture: u32,
    /// Number of programs in that mixture.
    pub mixed_with: u32,
}

/// One run of a plan, with what its surroundings make of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Leaf {
    pub place: CpuSet,
    pub cpus: u32,
    /// The other CPUs of its cores.
    pub beside: CpuSet,
    /// CPUs by domain.
    pub domains: Vec<(u16, u16)>,
    pub around: Around,
    /// Threads on each CPU of its place, its own and others'; 1 outside of mixtures.
    pub crowd: f64,
}

impl Leaf {
    pub fn new(run: &Run, around: Around, domains: &Domains) -> Leaf {
        let place = run.place.clone();
        let (cpus, beside) = (place.len() as u32, domains.beside(&place));
        Leaf { cpus, beside, domains: domains.counts(&place), place, around, crowd: 1.0 }
    }

    /// Part of the whole time.
    pub fn share(&self) -> f64 {
        self.around.outer * self.around.inner
    }

    /// Part of the time in which this one runs and in which `other` does, too.
    pub fn overlap(&self, other: &Leaf) -> f64 {
        let (mine, theirs) = (&self.around, &other.around);
        if mine.slot != theirs.slot && mine.slot != NONE && theirs.slot != NONE {
            return 0.0;
        }
        if mine.group != NONE && mine.group == theirs.group && mine.slot == theirs.slot {
            return 0.0;
        }
        theirs.inner
    }
}

/// Calls `visit` with every run of the plan, left to right, and what surrounds it. The plan has the
/// normal form. Numbers of slots, groups and mixtures stay as they are while turns and mixing do.
pub fn for_each_leaf(plan: &Plan, visit: impl FnMut(&Run, Around)) {
    let Some(tree) = &plan.tree else { return };
    let around =
        Around { slot: NONE, outer: 1.0, group: NONE, inner: 1.0, slice_ns: 0, mixture: NONE, mixed_with: 1 };
    Walk { visit, groups: 0, mixtures: 0 }.tree(tree, around, true);
}

/// The walk's state.
struct Walk<F> {
    visit: F,
    groups: u32,
    mixtures: u32,
}

impl<F: FnMut(&Run, Around)> Walk<F> {
    fn tree(&mut self, tree: &Tree, around: Around, top: bool) {
        match tree {
            Tree::Run(run) => (self.visit)(run, around),
            Tree::SideBySide(parts) => parts.iter().for_each(|part| self.tree(part, around, false)),
            Tree::Mixed { parts, .. } => {
                let around = Around { mixture: self.mixtures, mixed_with: parts.len() as u32, ..around };
                self.mixtures += 1;
                parts.iter().for_each(|part| self.tree(part, around, false));
            }
            Tree::InTurn { slots, .. } => {
                let round: f64 = slots.iter().map(|slot| slot.slice_ns as f64).sum();
                let group = self.groups;
                self.groups += u32::from(!top);
                for (number, slot) in slots.iter().enumerate() {
                    let part = slot.slice_ns as f64 / round.max(1.0);
                    let around = if top {
                        Around { slot: number as u32, outer: part, slice_ns: slot.slice_ns, ..around }
                    } else {
                        let slice_ns = if around.slice_ns == 0 {
                            slot.slice_ns
                        } else {
                            around.slice_ns.min(slot.slice_ns)
                        };
                        Around { group, inner: around.inner * part, slice_ns, ..around }
                    };
                    self.tree(&slot.tree, around, false);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use topology::Machine;

    use super::*;

    fn all(plan: &str) -> BTreeMap<String, Leaf> {
        let machine = Machine::synthetic("pack:2 core:4").unwrap();
        let mut found = BTreeMap::new();
        let domains = Domains::of(&machine);
        for_each_leaf(&plan.parse().unwrap(), |run, around| {
            found.insert(run.app.to_string(), Leaf::new(run, around, &domains));
        });
        found
    }

    #[test]
    fn slots_share_time_and_do_not_overlap() {
        let leaves = all(
            "in_turn [10ms a on 0-7, 30ms side_by_side [b on 0-3, in_turn [5ms c on 4-7, 5ms d on 4-7]]]",
        );
        assert_eq!(leaves["a"].share(), 0.25);
        assert_eq!(leaves["d"].share(), 0.375);
        assert_eq!((leaves["c"].around.slice_ns, leaves["b"].around.slice_ns), (5_000_000, 30_000_000));
        assert_eq!(leaves["a"].overlap(&leaves["b"]), 0.0);
        assert_eq!(leaves["c"].overlap(&leaves["d"]), 0.0);
        assert_eq!(leaves["b"].overlap(&leaves["c"]), 0.5);
        assert_eq!(leaves["c"].overlap(&leaves["b"]), 1.0);
        assert_eq!(leaves["a"].domains, [(0, 4), (1, 4)]);
    }

    #[test]
    fn turns_alone_at_the_top_are_slots() {
        let leaves = all("in_turn [20ms a on 0-1, 20ms b on 0-1]");
        assert_eq!(leaves["a"].overlap(&leaves["b"]), 0.0);
        assert_eq!(leaves["a"].share(), 0.5);
    }

    #[test]
    fn a_mixture_is_numbered() {
        let leaves = all("side_by_side [a on 0-1, mixed [b on 4-7, c on 4-7]]");
        let mixture = |app: &str| leaves[app].around.mixture;
        assert_eq!((mixture("a"), mixture("b"), leaves["c"].around.mixed_with), (NONE, 0, 2));
    }
}
