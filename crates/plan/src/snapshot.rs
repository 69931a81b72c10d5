//! What a policy may know when it decides: one immutable picture of the machine and its programs.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use topology::{CpuSet, Machine};
use workload::{AppId, Demand};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Nanoseconds since the engine began; never a date.
    pub now_ns: u64,
    pub machine: Arc<Machine>,
    /// affinity ∩ cpuset ∩ configured CPUs that are online. Never empty.
    pub allowed: CpuSet,
    /// `allowed`, no more than `cpu.max` pays for, less what unmanaged programs use. Never empty.
    /// Only a rigid team that is wider than this may reach beyond it, into `allowed`.
    pub usable: CpuSet,
    /// Load average over 15 minutes, in thousandths (what libgomp's OMP_DYNAMIC looks at).
    pub load_average_15min_milli: u64,
    /// Live programs in order of arrival.
    pub apps: Vec<App>,
}

/// One live application as observed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct App {
    pub id: AppId,
    pub arrived_ns: u64,
    /// As declared, corrected by what was observed (a program that proved rigid is rigid here).
    pub demand: Demand,
    /// Team that is running now; `None` before anything was observed.
    pub team: Option<u32>,
    /// Its threads sleep while they wait, so that it may be given fewer CPUs than it has threads.
    pub waits_passively: bool,
    /// Whether it may be stopped or frozen (shells, launchers, traced programs may not).
    pub stoppable: bool,
    /// A user asked that it stand still.
    pub suspended: bool,
    /// Where it must stay, if it or its user restricted it; always within `Snapshot::allowed`.
    pub within: Option<CpuSet>,
}

impl Snapshot {
    pub fn app(&self, id: &AppId) -> Option<&App> {
        self.apps.iter().find(|app| app.id == *id)
    }
}
