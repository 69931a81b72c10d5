//! What was found for the last few usable sets: policies and the checker ask for the same ones
//! several times a decision.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use super::Shape;
use crate::CpuSet;

/// Usable sets that are remembered: those of one decision, and of the one before.
const SETS: usize = 8;

/// No part of a machine's value: every machine begins without, equals others with whatever they
/// remember, and answers the same with and without.
#[derive(Debug, Default)]
pub(crate) struct Memo(Mutex<VecDeque<Known>>);

#[derive(Debug)]
struct Known {
    usable: CpuSet,
    /// The one thing that people set on a machine after it was made.
    capacities: BTreeMap<u32, u32>,
    shapes: Arc<[Shape]>,
}

impl Memo {
    /// The shapes of `usable`, found by `find` where they are not known.
    pub fn get(
        &self,
        usable: &CpuSet,
        capacities: &BTreeMap<u32, u32>,
        find: impl FnOnce() -> Vec<Shape>,
    ) -> Arc<[Shape]> {
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |known: &&Known| known.usable == *usable && known.capacities == *capacities;
        if let Some(known) = lock().iter().find(same) {
            return Arc::clone(&known.shapes);
        }
        let shapes: Arc<[Shape]> = find().into();
        let mut known = lock();
        known.truncate(SETS - 1);
        known.push_front(Known {
            usable: usable.clone(),
            capacities: capacities.clone(),
            shapes: Arc::clone(&shapes),
        });
        shapes
    }
}

impl Clone for Memo {
    fn clone(&self) -> Memo {
        Memo::default()
    }
}

impl PartialEq for Memo {
    fn eq(&self, _: &Memo) -> bool {
        true
    }
}

impl Eq for Memo {}

#[cfg(test)]
mod tests {
    use crate::Machine;

    #[test]
    fn remembered_shapes_equal_new_ones() {
        let mut machine = Machine::synthetic("pack:2 core:4").unwrap();
        for round in 0..3 {
            for usable in ["0-7", "0-3", "1-6", "0", "0-1,4-5", "2-7", "0,2,4,6", "1-7", "3-4", "0-6"] {
                let usable = usable.parse().unwrap();
                assert_eq!(machine.shapes(&usable), machine.clone().shapes(&usable), "round {round}");
            }
        }
        let before = machine.shapes(machine.all_cpus());
        machine.capacities = (0..8).map(|cpu| (cpu, if cpu < 4 { 1024 } else { 400 })).collect();
        let after = machine.shapes(machine.all_cpus());
        assert_ne!(before, after, "cores of unlike capacity are unlike");
        assert_eq!(after, machine.clone().shapes(machine.all_cpus()));
    }
}
