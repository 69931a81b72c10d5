//! The machine as the lists see it: its units numbered top down, its processors in tree order.

use std::fmt;
use std::ops::Range;

use topology::{CpuSet, Level, Machine, Object};

/// One unit of the machine, which has one run list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// The level, and where a unit has exactly one unit below it, the widest of those levels.
    pub level: Level,
    /// The narrowest level that has the same processors.
    pub narrowest: Level,
    /// Number among the units of its level, from 0.
    pub logical_index: u32,
    /// The kernel's number, where there is one.
    pub os_index: Option<u32>,
    /// Number of the unit directly above; `None` for the whole machine.
    pub parent: Option<usize>,
    /// Numbers of the units directly below, in tree order.
    pub children: Vec<usize>,
    /// Its processors, by their position in tree order.
    pub processors: Range<usize>,
    /// The units below and itself are `number..end`.
    pub end: usize,
}

impl Unit {
    /// Number of its processors, at least one.
    pub fn width(&self) -> usize {
        self.processors.len()
    }
}

/// `machine`, `package 1`, `core 3` …
impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.level {
            Level::Node | Level::Cluster => f.pad(self.level.name()),
            level => f.pad(&format!("{} {}", level.name(), self.logical_index)),
        }
    }
}

/// Which levels get a list of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Lists {
    /// Levels with the same processors share a list: a second one could not change anything.
    #[default]
    Distinct,
    /// One at every level that the machine tree names.
    EveryLevel,
}

/// The machine's units, the whole machine being number 0, each followed by those below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Levels {
    units: Vec<Unit>,
    /// For each processor its units, the innermost first.
    paths: Vec<Vec<usize>>,
    /// For each processor what the kernel calls it.
    cpus: Vec<u32>,
}

impl Levels {
    /// The part of `machine` that is made of `cpus`; all of it where none of them is the machine's.
    pub fn new(machine: &Machine, cpus: &CpuSet, lists: Lists) -> Levels {
        let usable = machine.all_cpus().intersection(cpus);
        let usable = if usable.is_empty() { machine.all_cpus().clone() } else { usable };
        let mut levels = Levels { units: Vec::new(), paths: Vec::new(), cpus: Vec::new() };
        levels.add(&machine.root, None, &usable, lists);
        for processor in 0..levels.cpus.len() {
            let mut path = vec![levels.innermost(processor)];
            while let Some(parent) = levels.units[path[path.len() - 1]].parent {
                path.push(parent);
            }
            levels.paths.push(path);
        }
        levels
    }

    fn add(&mut self, object: &Object, parent: Option<usize>, usable: &CpuSet, lists: Lists) -> usize {
        let (level, logical_index) = (object.level, object.logical_index);
        let mut object = object;
        if lists == Lists::Distinct {
            while let Some(only) = only_child(object, usable) {
                object = only;
            }
        }
        let number = self.units.len();
        let first = self.cpus.len();
        self.units.push(Unit {
            level,
            narrowest: object.level,
            logical_index,
            os_index: object.os_index,
            parent,
            children: Vec::new(),
            processors: first..first,
            end: 0,
        });
        if object.children.is_empty() {
            self.cpus.extend(object.cpus.intersection(usable).iter());
        }
        for child in object.children.iter().filter(|child| child.cpus.intersects(usable)) {
            let child = self.add(child, Some(number), usable, lists);
            self.units[number].children.push(child);
        }
        self.units[number].processors.end = self.cpus.len();
        self.units[number].end = self.units.len();
        number
    }

    fn innermost(&self, processor: usize) -> usize {
        let mut at = 0;
        while let Some(&child) =
            self.units[at].children.iter().find(|&&child| self.units[child].processors.contains(&processor))
        {
            at = child;
        }
        at
    }

    /// Number of processors.
    pub fn width(&self) -> usize {
        self.cpus.len()
    }

    /// What the kernel calls a processor.
    pub fn cpu(&self, processor: usize) -> u32 {
        self.cpus[processor]
    }

    /// All units; a unit's number is its index.
    pub fn units(&self) -> &[Unit] {
        &self.units
    }

    /// The unit of this number. Panics where there is none.
    pub fn unit(&self, number: usize) -> &Unit {
        &self.units[number]
    }

    /// The units of a processor, its own first, the machine last.
    #[inline]
    pub fn path(&self, processor: usize) -> &[usize] {
        &self.paths[processor]
    }

    /// The processor's own unit.
    pub fn own(&self, processor: usize) -> usize {
        self.paths[processor][0]
    }

    /// The unit directly below `unit` in the direction of a processor.
    pub fn towards(&self, unit: usize, processor: usize) -> Option<usize> {
        self.units[unit]
            .children
            .iter()
            .copied()
            .find(|&child| self.units[child].processors.contains(&processor))
    }

    /// Whether `inner` is `outer` or below it.
    #[inline]
    pub fn within(&self, inner: usize, outer: usize) -> bool {
        (outer..self.units[outer].end).contains(&inner)
    }
}

/// The one child that has usable processors, if exactly one has.
fn only_child<'a>(object: &'a Object, usable: &CpuSet) -> Option<&'a Object> {
    let mut below = object.children.iter().filter(|child| child.cpus.intersects(usable));
    below.next().filter(|_| below.next().is_none())
}
