//! What a policy says about its plan: values, on which code may decide, and which whoever shows them puts into words
//! last (their `Display`, in `display`).

mod display;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use topology::CpuSet;
use workload::AppId;

use crate::{Known, Refusal, Violation};

/// How much something matters to whoever watches over a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// How things stand.
    Info,
    /// Something that somebody may have wanted otherwise: CPUs that stay idle, programs that wait.
    Notice,
    /// A promise that is not kept, or a mechanism that failed; programs run on.
    Warning,
    /// Nothing was decided or carried out as it should have been.
    Error,
}

/// Why a plan is as it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// What `explain` shows, in this order.
    pub remarks: Vec<Remark>,
    /// Why a program lost CPUs that it could have kept (invariant 7), by program.
    pub moves: BTreeMap<AppId, MoveReason>,
}

impl Report {
    /// In words, one sentence a line.
    pub fn lines(&self) -> Vec<String> {
        self.remarks.iter().map(Remark::to_string).collect()
    }
}

/// One thing that a policy, or the engine, says about a plan. Widths and counts are in CPUs and programs, times in
/// nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Remark {
    /// Programs on partitions of one width.
    Level {
        /// Programs on them; several may share a partition.
        programs: u32,
        /// CPUs of a partition.
        width: u32,
        /// What the partitions are: "each a NUMA node".
        shape: String,
        /// Partitions that have programs.
        used: u32,
        /// Partitions of this width that there are.
        partitions: u32,
    },
    /// Programs on partitions of several widths, each with how many there are.
    Partitions {
        /// Programs on all of them together.
        programs: u32,
        /// CPUs of a partition, and how many partitions of this width have programs; the widest first.
        widths: Vec<(u32, u32)>,
    },
    /// CPUs in no partition of the width in force.
    LeftOver {
        /// Which CPUs.
        cpus: CpuSet,
        /// CPUs of a partition; 0 where a policy's script does not say.
        width: u32,
    },
    /// CPUs of partitions that nobody runs on.
    Idle {
        /// Which CPUs.
        cpus: CpuSet,
        /// Why nobody is given them.
        why: Idleness,
    },
    /// None of the widths that the settings allow can be cut here.
    UnknownWidths {
        /// Widths in the settings, in CPUs.
        allowed: Vec<u32>,
        /// Widths that can be cut, the widest first: the policy chooses among these instead.
        used: Vec<u32>,
    },
    /// More programs than partitions of this width.
    Crowded {
        /// CPUs of a partition.
        width: u32,
        /// Programs ÷ partitions, rounded down.
        least: u32,
        /// Programs ÷ partitions, rounded up.
        most: u32,
    },
    /// Equal parts of these CPUs; `single`: one thread each, several to a CPU.
    EqualParts {
        /// Programs that share the CPUs.
        programs: u32,
        /// CPUs that they share.
        cpus: u32,
        /// Whether there are more programs than CPUs, so that each gets one CPU, which others may share.
        single: bool,
    },
    /// Everybody may run on all CPUs that are open to it, and the kernel decides who does.
    LeftToKernel {
        /// Programs that are not suspended.
        programs: u32,
    },
    /// Who came first runs, and so many wait.
    FirstComeFirst {
        /// The earliest program that may be stopped.
        app: AppId,
        /// Programs that wait meanwhile.
        waiting: u32,
    },
    /// Programs that cannot shrink to an equal part, and the slots that take turns.
    TooWide {
        /// The programs that do not fit an equal part.
        apps: Vec<AppId>,
        /// All slots that there are, those of programs in equal parts included.
        slots: u32,
    },
    /// Programs wider than an equal part that stand beside the others all the same.
    WideBeside {
        /// The wide programs.
        apps: Vec<AppId>,
    },
    /// Programs that must not be stopped, and leave no part free for anybody else.
    Unstoppable {
        /// The programs that must not be stopped; the others are left to the kernel with them.
        apps: Vec<AppId>,
    },
    /// Programs that the policy's plan does not mention, or on none of whose CPUs in the plan they may run.
    Unplanned {
        /// The programs, in order of arrival; all of them wait.
        apps: Vec<AppId>,
    },
    /// A turn cannot be short enough for nobody to stand still for longer than is allowed.
    Standstill {
        /// The longest standstill: [`standstill_ns`](crate::standstill_ns) of the tree, or what a policy's script
        /// says.
        longest_ns: u64,
        /// The longest that the settings allow.
        allowed_ns: u64,
        /// The shortest slice that the settings allow.
        shortest_slice_ns: u64,
    },
    /// Programs of so little weight that their turns would be too short.
    WeightRaised {
        /// The programs whose weights were raised.
        apps: Vec<AppId>,
        /// The weight that they count with instead of their own, in thousandths.
        weight: u64,
        /// The shortest slice that the settings allow.
        shortest_slice_ns: u64,
    },
    /// The levels of the remarks before take turns, weighted so that all programs get the same CPU time.
    LevelsInTurn,
    /// Levels are balanced once nobody has come or left for this long.
    Unsettled {
        /// The settle time of the settings.
        settle_ns: u64,
    },
    /// Programs that lose least on wider partitions.
    LevelUp {
        /// The programs without a seat, which go a level up.
        apps: Vec<AppId>,
    },
    /// Programs that use no more than their part, and have it all the time.
    Satisfied {
        /// The programs that have partitions of their own, beside the levels.
        apps: Vec<AppId>,
    },
    /// Programs that keep their partitions until their teams are narrower.
    Grace {
        /// The programs that are asked for narrower teams, in order of their names.
        apps: Vec<AppId>,
        /// The grace period of the settings, counted for each from when it was first asked.
        longest_ns: u64,
    },
    /// By what neighbours were chosen.
    Neighbours {
        /// What the choice went by.
        by: Basis,
        /// Programs, by the names of their kinds, of which nothing is known.
        unknown: Vec<String>,
        /// The mean slowdown as predicted, in thousandths, and what it would be without the choice.
        mean_milli: Option<(u32, u32)>,
    },
    /// Which programs that cannot shrink share a slot; the figure without the choice is that of the order of arrival.
    Slots {
        /// What the choice went by.
        by: Basis,
        /// Programs, by the names of their kinds, of which nothing is known.
        unknown: Vec<String>,
        /// Programs that share a slot, one list for each slot.
        groups: Vec<Vec<AppId>>,
        /// As in `Neighbours`; `None` unless the choice went by profiles or predictions.
        mean_milli: Option<(u32, u32)>,
    },
    /// Where a program stands because of its neighbours.
    Placed {
        /// Which program.
        app: AppId,
        /// Which neighbours it has, and instead of which.
        why: MoveReason,
    },
    /// Programs on this many nodes of memory, by what is known of them.
    ByEvidence {
        /// Programs among which the nodes are divided.
        programs: u32,
        /// Nodes with CPUs to divide.
        nodes: u32,
    },
    /// What a program got, and the evidence for it.
    Evidence {
        /// Which program.
        app: AppId,
        /// CPUs that it got.
        cpus: u32,
        /// Nodes of memory that they lie in.
        nodes: u32,
        /// What is known of it; empty if nothing is.
        facts: Vec<Fact>,
    },
    /// What a policy's script says.
    Script(String),
    /// The policy came to no plan, or to one that was not taken.
    Rejected {
        /// The policy's name, for people.
        policy: String,
        /// One reason if there was no plan or it cannot be carried out, else every invariant that it breaks.
        why: Vec<Rejection>,
    },
    /// A promise about sequences of plans that this plan breaks.
    Broken(Violation),
}

/// Why CPUs stay idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Idleness {
    /// All programs get partitions of one shape.
    OneShape,
    /// No program may use them whose partition they are in.
    Closed,
    /// No program can use more.
    Unneeded,
}

/// By what neighbours are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Runs of one program stand apart, as the settings say.
    Twins,
    /// The same, because what is known is no surer than it differs.
    TooUnsure,
    /// What programs ask of memory and caches.
    Profiles,
    /// The slowdown predicted of each program beside each other one.
    Predictions,
    /// Load instructions a second, which are to come to the same in each domain.
    LoadRates,
}

/// What a decision went by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fact {
    /// Times as fast on so many CPUs as on one, in thousandths.
    Speedup {
        /// Threads for which the speed-up curve was read, one a CPU.
        cpus: u32,
        /// Speed with them; 1000 is that of one thread.
        milli: u64,
    },
    /// Nanoseconds of work left on one CPU.
    Left(Known),
    /// Thousandths of a node's bandwidth that it asks for.
    Bandwidth(Known),
    /// Thousandths that it loses without cache.
    Cache(Known),
    /// Nanoseconds that a move to other nodes costs.
    Move(Known),
}

/// Why a program lost CPUs that it could have kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MoveReason {
    /// It stood on CPUs that are no longer usable.
    Unusable {
        /// CPUs of its old place that are not usable now.
        cpus: CpuSet,
    },
    /// To a less crowded partition, so that over time all get the same.
    Rotated,
    /// All partitions changed their width.
    Level {
        /// CPUs of a partition before; of several levels in force, the finest counts.
        from: u32,
        /// CPUs of a partition now.
        to: u32,
    },
    /// This program's partition is of another width.
    Partition {
        /// CPUs of its place before.
        from: u32,
        /// CPUs of its place now.
        to: u32,
    },
    /// They went to programs that cannot stand elsewhere.
    Ceded {
        /// All CPUs that it lost.
        cpus: CpuSet,
    },
    /// So that runs of one program stand apart.
    Twins {
        /// Its neighbours now; empty: it has none.
        beside: Vec<AppId>,
        /// The neighbours that it would have if most CPUs were kept.
        instead_of: Vec<AppId>,
    },
    /// So that load instruction rates come to the same in each domain.
    LoadRates {
        /// Its own, in load instructions a second; where it is not known, a mean one is assumed.
        loads_per_s: Option<u64>,
        /// Its neighbours now; empty: it has none.
        beside: Vec<AppId>,
        /// The neighbours that it would have if most CPUs were kept.
        instead_of: Vec<AppId>,
    },
    /// All together lose least so. Slowdowns and error in thousandths.
    Predicted {
        /// Its neighbours now; empty: it has none.
        beside: Vec<AppId>,
        /// Predicted slowdown beside them; 1000 is none.
        slowdown_milli: u32,
        /// Standard error of `slowdown_milli`, in the same unit.
        error_milli: u32,
        /// The neighbours that it would have if most CPUs were kept.
        instead_of: Vec<AppId>,
        /// Predicted slowdown beside those.
        before_milli: u32,
    },
    /// By the evidence the others gain more by its CPUs than it loses.
    Evidence,
    /// What a policy's script says.
    Script(String),
}

/// Why a policy's plan was not taken.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rejection {
    /// There was none: where in the policy's script, and what is wrong there.
    Failed(String),
    /// It has no form that can be carried out.
    Refused(Refusal),
    /// It breaks an invariant.
    Broken(Violation),
}

impl Remark {
    /// The CPUs of which it says what becomes of them though nobody runs there.
    pub fn unused(&self) -> Option<&CpuSet> {
        match self {
            Remark::LeftOver { cpus, .. } | Remark::Idle { cpus, .. } => Some(cpus),
            _ => None,
        }
    }

    /// How much the remark matters to whoever watches over the machine.
    pub fn severity(&self) -> Severity {
        match self {
            Remark::Idle { .. }
            | Remark::LeftOver { .. }
            | Remark::UnknownWidths { .. }
            | Remark::FirstComeFirst { .. }
            | Remark::Unstoppable { .. }
            | Remark::Unplanned { .. }
            | Remark::WeightRaised { .. } => Severity::Notice,
            Remark::Standstill { .. } | Remark::Broken(_) => Severity::Warning,
            Remark::Rejected { .. } => Severity::Error,
            _ => Severity::Info,
        }
    }

    /// Whether it speaks of this program by name. What a script says is nobody's in particular.
    pub fn concerns(&self, app: &AppId) -> bool {
        match self {
            Remark::TooWide { apps, .. }
            | Remark::WideBeside { apps }
            | Remark::Unstoppable { apps }
            | Remark::Unplanned { apps }
            | Remark::WeightRaised { apps, .. }
            | Remark::LevelUp { apps }
            | Remark::Satisfied { apps }
            | Remark::Grace { apps, .. } => apps.contains(app),
            Remark::Slots { groups, .. } => groups.iter().flatten().any(|id| id == app),
            Remark::FirstComeFirst { app: named, .. }
            | Remark::Placed { app: named, .. }
            | Remark::Evidence { app: named, .. } => named == app,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> AppId {
        AppId::new(name).unwrap()
    }

    #[test]
    fn a_remark_concerns_only_the_programs_that_it_names() {
        let remark = Remark::TooWide { apps: vec![id("cg.2")], slots: 2 };
        assert!(remark.concerns(&id("cg.2")) && !remark.concerns(&id("cg")));
        let why = MoveReason::Evidence;
        assert!(Remark::Placed { app: id("cg"), why }.concerns(&id("cg")));
        let groups = vec![vec![id("a"), id("b")], vec![id("c")]];
        let slots = Remark::Slots { by: Basis::Twins, unknown: Vec::new(), groups, mean_milli: None };
        assert!(slots.concerns(&id("c")) && !slots.concerns(&id("d")));
        assert!(!Remark::Script("cg waits".into()).concerns(&id("cg")));
    }

    #[test]
    fn remarks_and_reasons_are_the_same_after_a_trip_through_json() {
        let known = Known { value: 7, error_milli: 50, source: crate::Source::Measured };
        let cpus: CpuSet = "3,5".parse().unwrap();
        let remarks = vec![
            Remark::LeftOver { cpus: cpus.clone(), width: 2 },
            Remark::LevelsInTurn,
            Remark::Evidence { app: id("a"), cpus: 2, nodes: 1, facts: vec![Fact::Left(known)] },
            Remark::Rejected { policy: "mine".into(), why: vec![Rejection::Failed("7: no".into())] },
            Remark::Script("hello".into()),
        ];
        let moves =
            BTreeMap::from([(id("a"), MoveReason::Unusable { cpus }), (id("b"), MoveReason::Rotated)]);
        let report = Report { remarks, moves };
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report, "{text}");
    }
}
