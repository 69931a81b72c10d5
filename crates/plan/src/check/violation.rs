//! What can be wrong.

use serde::{Deserialize, Serialize};
use topology::CpuSet;
use workload::AppId;

use crate::ShareBound;

/// One breach of one invariant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Violation {
    /// A program lives, but stands neither in the tree nor in waiting nor in suspended.
    #[error("{app} lives, but the plan does not mention it")]
    Missing {
        /// Which program.
        app: AppId,
    },
    /// The plan mentions a program that is not in the snapshot.
    #[error("{app} is in the plan, but does not live")]
    Unknown {
        /// Which program.
        app: AppId,
    },
    /// A program stands in more than one of: the tree, waiting, suspended.
    #[error("{app} stands in two of: the tree, waiting, suspended")]
    Twice {
        /// Which program.
        app: AppId,
    },
    /// A program stands in two parts of one `side_by_side` or `mixed`; in several slots of an `in_turn` it
    /// may.
    #[error("{app} stands in two places at the same time")]
    TwoPlacesAtOnce {
        /// Which program.
        app: AppId,
    },
    /// A program is suspended although its user did not ask for that.
    #[error("{app} is suspended, but nobody asked for that")]
    SuspendedUnasked {
        /// Which program.
        app: AppId,
    },
    /// A program runs or waits although its user asked that it be suspended.
    #[error("{app} was asked to stand still, but is not suspended")]
    NotSuspended {
        /// Which program.
        app: AppId,
    },
    /// A node of the tree has no parts or slots.
    #[error("{node} holds nothing")]
    EmptyNode {
        /// `side_by_side`, `mixed` or `in_turn`.
        node: String,
    },
    /// The place of a run is empty, or its number of threads is 0.
    #[error("{app} runs without a CPU or without a thread")]
    EmptyRun {
        /// Which program.
        app: AppId,
    },
    /// The slice of a slot is 0.
    #[error("a slot of {apps} lasts no time")]
    EmptySlot {
        /// Names of the programs in the slot, sorted, with commas between them.
        apps: String,
    },

    /// Two parts of one `side_by_side` have CPUs in common.
    #[error("parts that are side by side both use CPUs {cpus}")]
    Overlap {
        /// CPUs of one part that those before it use as well.
        cpus: CpuSet,
    },
    /// A run uses CPUs that its program may not use.
    #[error("{app} stands on CPUs {cpus}, outside of {room}")]
    Outside {
        /// Which program.
        app: AppId,
        /// CPUs of its place that lie outside of `room`.
        cpus: CpuSet,
        /// CPUs that it may use: [`Snapshot::room`](crate::Snapshot::room), or
        /// [`Snapshot::wide_room`](crate::Snapshot::wide_room) where it needs more than those.
        room: CpuSet,
    },
    /// A program that cannot do with the usable CPUs is given more of the others than it must have.
    #[error("{app} reaches beyond what is usable with {cpus} CPUs, and must with exactly {needed}")]
    OverflowTooWide {
        /// Which program.
        app: AppId,
        /// Number of CPUs of its place.
        cpus: usize,
        /// Fewest CPUs that it may be given; its place should have just as many.
        needed: usize,
    },
    /// The owner of a CPU of a `mixed` has no run in it with that CPU.
    #[error("CPU {cpu} of a mixed belongs to {app}, which does not run on it there")]
    StrangeOwner {
        /// Which CPU, by `os_index`.
        cpu: u32,
        /// Its owner according to the plan.
        app: AppId,
    },

    /// A run outside of any `mixed` has more threads than CPUs.
    #[error("{app} has {threads} threads on {cpus} CPUs, and is not in a mixed")]
    Oversubscribed {
        /// Which program.
        app: AppId,
        /// Team size that it is asked to have.
        threads: u32,
        /// Number of CPUs of its place.
        cpus: usize,
    },
    /// A run has fewer CPUs than its program can do with.
    #[error("{app} cannot run on fewer than {needed} CPUs, but is given {cpus}")]
    Squeezed {
        /// Which program.
        app: AppId,
        /// Number of CPUs of its place.
        cpus: usize,
        /// Fewest CPUs that it may be given, by [`Snapshot::fewest_cpus`](crate::Snapshot::fewest_cpus).
        needed: usize,
    },
    /// A program that could shrink, and whose threads spin, is given fewer CPUs than it runs threads, and is
    /// asked for more threads than CPUs.
    #[error("{app} runs {team} threads and is given {cpus} CPUs, but asked for {threads} threads")]
    NotShrunk {
        /// Which program.
        app: AppId,
        /// Threads that it runs with now.
        team: u32,
        /// Number of CPUs of its place.
        cpus: usize,
        /// Team size that it is asked to have.
        threads: u32,
    },
    /// A program is asked for fewer threads than it demands at least.
    #[error("{app} is asked for {threads} threads, but cannot run with fewer than {least}")]
    BelowMinimum {
        /// Which program.
        app: AppId,
        /// Team size that it is asked to have.
        threads: u32,
        /// Its minimum number of threads, or the number of CPUs that it may stand on at all if that is less.
        least: u32,
    },
    /// A program that must not be stopped does not stand in all slots of an `in_turn`.
    #[error("{app} must not be stopped, but takes turns")]
    StoppedInTurn {
        /// Which program.
        app: AppId,
    },
    /// A program that must not be stopped is to wait although it runs already.
    #[error("{app} must not be stopped, but waits after it has started")]
    StoppedWaiting {
        /// Which program.
        app: AppId,
    },

    /// A partition is in none of the shapes that the machine offers.
    #[error("{app} stands on {place}, which is no unit of the machine nor an equal fraction of one")]
    OddPartition {
        /// A program whose place it is.
        app: AppId,
        /// The partition.
        place: CpuSet,
    },
    /// Two partitions of one width contain unlike parts of the machine's tree, or CPUs of unlike capacity.
    #[error("partitions {one} and {other} are equally wide, but not of one shape")]
    UnlikePartitions {
        /// The first of this width, from left to right.
        one: CpuSet,
        /// One further on.
        other: CpuSet,
    },
    /// A partition takes a part of one unit together with CPUs of another like it, or a part of a unit of
    /// which others take unlike parts.
    #[error("partition {place} takes only a part of a unit, and CPUs outside of it")]
    CrossingPartition {
        /// The partition.
        place: CpuSet,
    },
    /// Left-over CPUs that nobody uses are missing from the report.
    #[error("CPUs {cpus} are left over, and the report does not say what becomes of them")]
    LeftOverUnexplained {
        /// Those that no remark covers ([`Remark::unused`](crate::Remark::unused)).
        cpus: CpuSet,
    },

    /// The CPU shares of two programs differ by more than was promised. Shares are fractions of all the
    /// machine's CPUs over a whole round of turns.
    #[error(
        "{richer} has {larger:.4} of the machine, {} {poorer} {smaller:.4}; promised: {bound}",
        if *bound == ShareBound::EarliestFirst { "the earlier" } else { "its equal" }
    )]
    Unfair {
        /// The program with the largest share of those with equal demand; under [`ShareBound::EarliestFirst`]
        /// any later one that has CPUs at all.
        richer: AppId,
        /// Share of `richer`; under [`ShareBound::EarliestFirst`] it may be less than that of `poorer`.
        larger: f64,
        /// The one with the smallest share; under [`ShareBound::EarliestFirst`] the earliest that may be
        /// stopped.
        poorer: AppId,
        /// Share of `poorer`.
        smaller: f64,
        /// What was promised.
        bound: ShareBound,
    },
    /// The earliest program does not have all that it could use, although [`ShareBound::EarliestFirst`] was
    /// promised.
    #[error("{app} has {share:.4} of the machine, and could have {least:.4}; promised: {bound}")]
    TooLittle {
        /// The earliest program that may be stopped.
        app: AppId,
        /// What it has, as a fraction of all the machine's CPUs.
        share: f64,
        /// What others leave of the usable CPUs, as far as it can use them; in the same unit.
        least: f64,
        /// What was promised.
        bound: ShareBound,
    },

    /// A program waits although by the promise it should run by now.
    #[error("{app} still waits after {terminations} programs have ended; promised: {promised}")]
    WaitsTooLong {
        /// Which program.
        app: AppId,
        /// Running programs that have ended since it began to wait.
        terminations: u32,
        /// The promise in words: `after 2` (such ends), or `once all who arrived before have ended`.
        promised: String,
    },
    /// Programs lost CPUs, without a reason in the report, that they would keep if partitions of one shape
    /// were dealt out in another way.
    #[error("{kept} CPUs are kept where {possible} could be, with the same partitions; moved: {moved}")]
    NeedlessMove {
        /// CPUs that programs on partitions of this shape had before and still have, each program's counted
        /// separately.
        kept: usize,
        /// The most that could be kept; with more than eight partitions a lower bound of that.
        possible: usize,
        /// Names of the programs that lost CPUs, with commas between them.
        moved: String,
    },
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
