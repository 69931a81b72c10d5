//! What a policy is asked, what it answers, and what it remembers in between.

use std::collections::BTreeMap;
use std::fmt;

use plan::{App, Plan, Promise, Report, Snapshot};
use serde::{Deserialize, Serialize};
use topology::CpuSet;
use workload::AppId;

use crate::adaptive::account::Account;
use crate::places::Places;
use crate::plain::Plain;

/// A policy is a pure function: no clock, no files, no randomness of its own, no hidden state.
pub trait Policy: Send + Sync {
    /// The paper's letters: `UE`, `LA`, `BP`, `EQ`, `TA`, `CO`.
    /// Of a Lua policy its file as it was named.
    fn letters(&self) -> &str;

    /// In words: "equal parts".
    fn words(&self) -> &str;

    /// What people read: "equal parts (EQ)".
    fn name(&self) -> String {
        format!("{} ({})", self.words(), self.letters())
    }

    /// What the checker holds the policy to.
    fn promise(&self) -> Promise;

    /// Variables that programs started under this policy find in their environment.
    fn launch_environment(&self) -> Vec<(&'static str, &'static str)> {
        Vec::new()
    }

    /// Whether a program that is about to start beside those of `snapshot` had better have fewer threads
    /// than it would have by itself, for good. It is not in `snapshot` yet; what is known of it comes
    /// with it. As pure as `decide`.
    fn narrow_start(&self, _newcomer: &App, _snapshot: &Snapshot) -> Option<NarrowStart> {
        None
    }

    /// Whether programs are to run as they would without coplace, or as somebody prescribed: nothing is
    /// added to how they start then.
    fn hands_off(&self) -> bool {
        false
    }

    /// Whether its plans may be others with this load average over 15 minutes, in thousandths, than with that of the
    /// snapshot; as pure as `decide`. Where they may not, nobody has to ask.
    fn is_load_relevant(&self, _snapshot: &Snapshot, _now_milli: u64) -> bool {
        true
    }

    /// A plan for the programs of the snapshot, with what is to be remembered; the same arguments always give the same.
    fn decide(&self, snapshot: &Snapshot, memory: &Memory) -> Decision;

    /// What the engine asks: policies that are somebody's script can fail to decide.
    fn try_decide(&self, snapshot: &Snapshot, memory: &Memory) -> Result<Decision, Failed> {
        Ok(self.decide(snapshot, memory))
    }
}

/// A start with fewer threads than a program would have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NarrowStart {
    /// Threads that it starts with.
    pub threads: u32,
    /// Threads that it would have.
    pub of: u32,
    /// Programs that it would take turns with.
    pub others: u32,
    /// The time that it is expected to take, in thousandths of that in turn with all its threads.
    pub time_milli: u32,
    /// The time that it takes when its neighbours have left, in thousandths of that with all its threads.
    pub alone_milli: u32,
}

impl fmt::Display for NarrowStart {
    /// As what a program does: "starts with 1 of 4 threads, …".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NarrowStart { threads, of, .. } = self;
        let others = match self.others {
            1 => "one other program".to_owned(),
            count => format!("{count} other programs"),
        };
        let factor = |milli: u32| f64::from(milli) / 1000.0;
        write!(
            f,
            "starts with {threads} of {of} threads, as the policy chose: beside {others} it is expected to take {:.2} \
             of the time that it takes in turn with {of} threads; when its neighbours leave it cannot use more, and \
             takes {:.2} times as long as with all",
            factor(self.time_milli),
            factor(self.alone_milli)
        )
    }
}

/// Why a policy came to no decision: where, and what is wrong there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Failed(pub String);

/// What a policy carries from one decision to the next; owned and recorded by the engine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// Partition level that is in force.
    #[serde(default)]
    pub level: LevelMemory,
    /// Where each application stood last, to keep most CPUs where they are.
    #[serde(default)]
    pub places: Places,
    /// What the plans have given to each program so far; `adaptive` and Lua policies keep it.
    #[serde(default, skip_serializing_if = "Account::is_empty")]
    pub account: Account,
    /// What a Lua policy remembers.
    #[serde(default, skip_serializing_if = "Plain::is_empty")]
    pub script: Plain,
}

/// What CO and LV must remember of their levels, and TA to say what changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LevelMemory {
    /// Width of the partitions in force, in CPUs.
    pub width: Option<u32>,
    /// Since when that width is in force, in the snapshot's time.
    pub since_ns: u64,
    /// Local level decisions: the nodes of the hierarchy that handed their jobs down, and since when.
    #[serde(default)]
    pub split: BTreeMap<CpuSet, u64>,
    /// Local level decisions: the nodes that took their jobs back, and since when.
    #[serde(default)]
    pub joined: BTreeMap<CpuSet, u64>,
    /// When programs were last moved to even out the partitions.
    #[serde(default)]
    pub rebalanced_ns: u64,
    /// When each program was last moved by that.
    #[serde(default)]
    pub moved_ns: BTreeMap<AppId, u64>,
    /// LV: how many programs there were.
    #[serde(default)]
    pub programs: u32,
    /// Since when it is the same ones, in nanoseconds.
    #[serde(default)]
    pub changed_ns: u64,
    /// LV: the programs that keep their partition for a while and are asked for narrower teams.
    #[serde(default)]
    pub asked: BTreeMap<AppId, Asked>,
}

/// A program that is about to get a narrower partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// Since when it is asked for a narrower team, in the snapshot's time.
    pub since_ns: u64,
    /// The partition that it is about to get.
    pub place: CpuSet,
}

/// What a policy decides.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// Who runs where.
    pub plan: Plan,
    /// What the policy gets at its next decision.
    pub memory: Memory,
    /// When the policy wants to be asked again even if nothing happens.
    pub wake_at_ns: Option<u64>,
    /// Why the plan is as it is.
    pub report: Report,
}
