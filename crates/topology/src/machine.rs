//! The machine tree.

use serde::{Deserialize, Serialize};

use crate::CpuSet;

/// The levels of a machine, widest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    Cluster,
    Node,
    Box,
    Package,
    Numa,
    Llc,
    Core,
    Pu,
}

/// One object of the tree: a package, a NUMA node, a core …
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    pub level: Level,
    /// Number among the objects of its level, in tree order, from 0.
    pub logical_index: u32,
    /// The kernel's number, where the kernel has one at this level.
    pub os_index: Option<u32>,
    /// All PUs below, by `os_index`.
    pub cpus: CpuSet,
    pub children: Vec<Object>,
}

/// A machine: the tree and what is known about its parts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    pub root: Object,
}

/// One way to cut the usable CPUs into equal partitions (paper 001, II-A).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// PUs in each partition.
    pub width: u32,
    /// The partitions, disjoint, in tree order.
    pub places: Vec<CpuSet>,
    /// Usable CPUs that belong to no partition.
    pub left_over: CpuSet,
}

impl Machine {
    pub fn all_cpus(&self) -> &CpuSet {
        &self.root.cpus
    }
}
