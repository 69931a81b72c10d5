//! The plan expression itself.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use topology::CpuSet;
use workload::AppId;

/// What every policy answers with: a tree over the machine, and beside it what does not run now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// `None`: nothing runs.
    pub tree: Option<Tree>,
    /// Programs that wait for their turn to be admitted: not started yet, or stopped.
    pub waiting: BTreeSet<AppId>,
    /// Programs that a user asked to stand still.
    pub suspended: BTreeSet<AppId>,
}

/// A part of a plan: one run, or several parts and how they share CPUs and time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tree {
    /// One program on one place; a leaf.
    Run(Run),
    /// Disjoint places, at the same time (space partitioning).
    SideBySide(Vec<Tree>),
    /// The same place, one after the other (gang scheduling, Ousterhout 1982).
    InTurn {
        /// What the programs that are not in turn do.
        mode: TurnMode,
        /// In the order of their turns; after the last the first comes again.
        slots: Vec<Slot>,
    },
    /// Overlapping places, left to the kernel; on an owned CPU the owner's threads go first.
    Mixed {
        /// Owners by the `os_index` of their CPUs; a CPU that is missing has none.
        owner: BTreeMap<u32, AppId>,
        /// What runs at the same time, on places that may overlap.
        parts: Vec<Tree>,
    },
}

/// One application on one place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Which program.
    pub app: AppId,
    /// CPUs that its threads may run on.
    pub place: CpuSet,
    /// Team size that the application is asked to have.
    pub threads: u32,
    /// Whether its threads may move within the place.
    pub bind: Bind,
    /// What becomes of its pages when its place changes.
    pub memory: Memory,
    /// Whether others may use the place while the application leaves it idle.
    pub lends: bool,
}

/// One slot of an `in_turn`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slot {
    /// How long the slot lasts, in nanoseconds; never 0.
    pub slice_ns: u64,
    /// What runs while the slot lasts.
    pub tree: Tree,
}

/// What the programs of an `in_turn` do while they are not in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnMode {
    /// Who is not in turn stands still.
    Strict,
    /// What the gang in turn leaves idle the others use.
    Filling,
}

/// Whether a program's threads may move between the CPUs of its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bind {
    /// Threads roam within the place.
    #[default]
    Free,
    /// One thread a CPU.
    Each,
}

/// What becomes of a program's pages when its place changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Memory {
    /// Pages stay where they are.
    #[default]
    Stay,
    /// Pages move with the program.
    Follow,
}

impl Run {
    /// `app` on `place` with one thread a CPU of it, everything else as by default.
    #[inline]
    pub fn new(app: AppId, place: CpuSet) -> Run {
        let threads = place.len() as u32;
        Run { app, place, threads, bind: Bind::Free, memory: Memory::Stay, lends: false }
    }
}
