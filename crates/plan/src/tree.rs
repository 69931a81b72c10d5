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

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tree {
    Run(Run),
    /// Disjoint places, at the same time (space partitioning).
    SideBySide(Vec<Tree>),
    /// The same place, one after the other (gang scheduling, Ousterhout 1982).
    InTurn {
        mode: TurnMode,
        slots: Vec<Slot>,
    },
    /// Overlapping places, left to the kernel; on an owned CPU the owner's threads go first.
    Mixed {
        owner: BTreeMap<u32, AppId>,
        parts: Vec<Tree>,
    },
}

/// One application on one place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    pub app: AppId,
    pub place: CpuSet,
    /// Team size that the application is asked to have.
    pub threads: u32,
    pub bind: Bind,
    pub memory: Memory,
    /// Whether others may use the place while the application leaves it idle.
    pub lends: bool,
}

/// One slot of an `in_turn`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slot {
    /// How long the slot lasts, in nanoseconds; never 0.
    pub slice_ns: u64,
    pub tree: Tree,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnMode {
    /// Who is not in turn stands still.
    Strict,
    /// What the gang in turn leaves idle the others use.
    Filling,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bind {
    /// Threads roam within the place.
    #[default]
    Free,
    /// One thread a CPU.
    Each,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Memory {
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
