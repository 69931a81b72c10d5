//! From a plan to where each program stands: one leaf for each of its runs.

use plan::{Plan, Run, Tree};
use topology::CpuSet;
use workload::AppId;

use crate::domains::Domains;

/// What stands for "none" among the numbers of slots, groups and mixtures.
pub const NONE: u32 = u32::MAX;

/// One run of a plan, with what its surroundings make of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Leaf {
    pub place: CpuSet,
    pub cpus: u32,
    /// CPUs by domain.
    pub domains: Vec<(u16, u16)>,
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

impl Leaf {
    /// Part of the whole time.
    pub fn share(&self) -> f64 {
        self.outer * self.inner
    }

    /// Part of the time in which this one runs and in which `other` does, too.
    pub fn overlap(&self, other: &Leaf) -> f64 {
        if self.slot != other.slot && self.slot != NONE && other.slot != NONE {
            return 0.0;
        }
        if self.group != NONE && self.group == other.group && self.slot == other.slot {
            return 0.0;
        }
        other.inner
    }
}

/// The walk's state.
struct Walk<'a, F> {
    domains: &'a Domains,
    wanted: F,
    groups: u32,
    mixtures: u32,
}

/// What surrounds a run.
#[derive(Clone, Copy)]
struct Around {
    slot: u32,
    outer: f64,
    group: u32,
    inner: f64,
    slice_ns: u64,
    mixture: u32,
    mixed_with: u32,
}

/// Calls `see` with the leaf of every run of a program that is `wanted`, left to right. The plan has
/// the normal form. Numbers of slots, groups and mixtures stay as they are while turns and mixing do.
pub fn leaves(
    plan: &Plan,
    domains: &Domains,
    wanted: impl Fn(&AppId) -> bool,
    mut see: impl FnMut(&AppId, Leaf),
) {
    let Some(tree) = &plan.tree else { return };
    let around =
        Around { slot: NONE, outer: 1.0, group: NONE, inner: 1.0, slice_ns: 0, mixture: NONE, mixed_with: 1 };
    Walk { domains, wanted, groups: 0, mixtures: 0 }.tree(tree, around, true, &mut see);
}

impl<F: Fn(&AppId) -> bool> Walk<'_, F> {
    fn tree(&mut self, tree: &Tree, around: Around, top: bool, see: &mut impl FnMut(&AppId, Leaf)) {
        match tree {
            Tree::Run(run) => {
                if (self.wanted)(&run.app) {
                    see(&run.app, self.leaf(run, around));
                }
            }
            Tree::SideBySide(parts) => parts.iter().for_each(|part| self.tree(part, around, false, see)),
            Tree::Mixed { parts, .. } => {
                let around = Around { mixture: self.mixtures, mixed_with: parts.len() as u32, ..around };
                self.mixtures += 1;
                parts.iter().for_each(|part| self.tree(part, around, false, see));
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
                    self.tree(&slot.tree, around, false, see);
                }
            }
        }
    }

    fn leaf(&self, run: &Run, around: Around) -> Leaf {
        let Around { slot, outer, group, inner, slice_ns, mixture, mixed_with } = around;
        Leaf {
            cpus: run.place.len() as u32,
            domains: self.domains.counts(&run.place),
            place: run.place.clone(),
            slot,
            outer,
            group,
            inner,
            slice_ns,
            mixture,
            mixed_with,
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
        leaves(
            &plan.parse().unwrap(),
            &Domains::of(&machine),
            |_| true,
            |app, leaf| {
                found.insert(app.to_string(), leaf);
            },
        );
        found
    }

    #[test]
    fn slots_share_time_and_do_not_overlap() {
        let leaves = all(
            "in_turn [10ms a on 0-7, 30ms side_by_side [b on 0-3, in_turn [5ms c on 4-7, 5ms d on 4-7]]]",
        );
        assert_eq!(leaves["a"].share(), 0.25);
        assert_eq!(leaves["d"].share(), 0.375);
        assert_eq!((leaves["c"].slice_ns, leaves["b"].slice_ns), (5_000_000, 30_000_000));
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
        assert_eq!((leaves["a"].mixture, leaves["b"].mixture, leaves["c"].mixed_with), (NONE, 0, 2));
    }
}
