//! Policies: from a snapshot to a plan, each a pure function in a file of its own.

use std::collections::BTreeMap;

use plan::{Plan, Promise, Snapshot};
use serde::{Deserialize, Serialize};
use topology::CpuSet;
use workload::AppId;

/// A policy is a pure function: no clock, no files, no randomness of its own, no hidden state.
pub trait Policy: Send {
    /// The paper's letters: `UE`, `LA`, `BP`, `EQ`, `TA`, `CO`.
    fn letters(&self) -> &'static str;
    /// In words: "equal parts".
    fn words(&self) -> &'static str;
    /// Text that makes this policy again, options included; traces name policies by it.
    fn spec(&self) -> String {
        self.letters().to_owned()
    }
    /// What the checker may hold this policy to for this snapshot, beyond what holds for every plan.
    fn promise(&self, _snapshot: &Snapshot) -> Promise {
        Promise::default()
    }
    fn decide(&self, snapshot: &Snapshot, memory: Memory) -> Decision;
}

/// What a policy carries from one decision to the next; owned and recorded by the engine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// Partition width that is in force, in CPUs.
    pub width: Option<u32>,
    /// Since when, in the snapshot's time.
    pub since_ns: u64,
    /// Where each application stood, to keep most CPUs where they are.
    pub places: BTreeMap<AppId, CpuSet>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    pub plan: Plan,
    pub memory: Memory,
    /// When the policy wants to be asked again even if nothing happens.
    pub wake_at_ns: Option<u64>,
    /// What `explain` shows: one sentence a line.
    pub report: Vec<String>,
}
