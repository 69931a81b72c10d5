//! What can be wrong.

use serde::{Deserialize, Serialize};
use topology::CpuSet;
use workload::AppId;

use crate::ShareBound;

/// One breach of one invariant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Violation {
    #[error("{app} lives, but the plan does not mention it")]
    Missing { app: AppId },
    #[error("{app} is in the plan, but does not live")]
    Unknown { app: AppId },
    #[error("{app} stands in two of: the tree, waiting, suspended")]
    Twice { app: AppId },
    #[error("{app} stands in two places at the same time")]
    TwoPlacesAtOnce { app: AppId },
    #[error("{app} is suspended, but nobody asked for that")]
    SuspendedUnasked { app: AppId },
    #[error("{app} was asked to stand still, but is not suspended")]
    NotSuspended { app: AppId },
    #[error("{node} holds nothing")]
    EmptyNode { node: String },
    #[error("{app} runs without a CPU or without a thread")]
    EmptyRun { app: AppId },
    #[error("a slot of {apps} lasts no time")]
    EmptySlot { apps: String },

    #[error("parts that are side by side both use CPUs {cpus}")]
    Overlap { cpus: CpuSet },
    #[error("{app} stands on CPUs {cpus}, outside of {room}")]
    Outside { app: AppId, cpus: CpuSet, room: CpuSet },
    #[error("{app} reaches beyond what is usable with {cpus} CPUs, and must with exactly {needed}")]
    OverflowTooWide { app: AppId, cpus: usize, needed: usize },
    #[error("CPU {cpu} of a mixed belongs to {app}, which does not run on it there")]
    StrangeOwner { cpu: u32, app: AppId },

    #[error("{app} has {threads} threads on {cpus} CPUs, and is not in a mixed")]
    Oversubscribed { app: AppId, threads: u32, cpus: usize },
    #[error("{app} cannot run on fewer than {needed} CPUs, but is given {cpus}")]
    Squeezed { app: AppId, cpus: usize, needed: usize },
    #[error("{app} runs {team} threads and is given {cpus} CPUs, but asked for {threads} threads")]
    NotShrunk { app: AppId, team: u32, cpus: usize, threads: u32 },
    #[error("{app} is asked for {threads} threads, but cannot run with fewer than {least}")]
    BelowMinimum { app: AppId, threads: u32, least: u32 },
    #[error("{app} must not be stopped, but takes turns")]
    StoppedInTurn { app: AppId },
    #[error("{app} must not be stopped, but waits after it has started")]
    StoppedWaiting { app: AppId },

    #[error("{app} stands on {place}, which is no unit of the machine nor an equal fraction of one")]
    OddPartition { app: AppId, place: CpuSet },
    #[error("partitions {one} and {other} are equally wide, but not of one shape")]
    UnlikePartitions { one: CpuSet, other: CpuSet },
    #[error("partition {place} takes only a part of a unit, and CPUs outside of it")]
    CrossingPartition { place: CpuSet },
    #[error("CPUs {cpus} are left over, and the report does not say what becomes of them")]
    LeftOverUnexplained { cpus: CpuSet },

    #[error("{richer} has {larger:.4} of the machine, its equal {poorer} {smaller:.4}; promised: {bound}")]
    Unfair { richer: AppId, larger: f64, poorer: AppId, smaller: f64, bound: ShareBound },
    #[error("{app} has {share:.4} of the machine, and could have {least:.4}; promised: {bound}")]
    TooLittle { app: AppId, share: f64, least: f64, bound: ShareBound },

    #[error("{app} still waits after {terminations} programs have ended; promised: {promised}")]
    WaitsTooLong { app: AppId, terminations: u32, promised: String },
    #[error("{kept} CPUs are kept where {possible} could be, with the same partitions; moved: {moved}")]
    NeedlessMove { kept: usize, possible: usize, moved: String },
}

impl Violation {
    /// Number of the invariant that is breached.
    pub fn invariant(&self) -> u8 {
        use Violation::*;
        match self {
            Missing { .. } | Unknown { .. } | Twice { .. } | TwoPlacesAtOnce { .. } => 1,
            SuspendedUnasked { .. } | NotSuspended { .. } => 1,
            EmptyNode { .. } | EmptyRun { .. } | EmptySlot { .. } => 1,
            Overlap { .. } | Outside { .. } | OverflowTooWide { .. } | StrangeOwner { .. } => 2,
            Oversubscribed { .. } | Squeezed { .. } | NotShrunk { .. } | BelowMinimum { .. } => 3,
            StoppedInTurn { .. } | StoppedWaiting { .. } => 3,
            OddPartition { .. } | UnlikePartitions { .. } => 4,
            CrossingPartition { .. } | LeftOverUnexplained { .. } => 4,
            Unfair { .. } | TooLittle { .. } => 5,
            WaitsTooLong { .. } => 6,
            NeedlessMove { .. } => 7,
        }
    }
}

impl std::fmt::Display for ShareBound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ShareBound::Ratio(ratio) => write!(f, "at most {ratio} times as much"),
            ShareBound::Difference(difference) => write!(f, "at most {difference} more"),
            ShareBound::Floor(factor) => {
                write!(f, "at most {factor} times as much for each program that is there")
            }
            ShareBound::EarliestFirst => write!(f, "the earliest has everything"),
            ShareBound::AsWritten => write!(f, "what the plan that was written says"),
        }
    }
}
