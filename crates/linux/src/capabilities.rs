//! What this machine and this user's rights offer, found by really trying where trying is harmless:
//! a group that holds nobody, a thread that ends right after.

mod probes;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::Absent;
use crate::root::Root;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mechanism {
    CpusetV2,
    CpusetV1,
    Affinity,
    FreezerV2,
    FreezerV1,
    IdleV2,
    IdleV1,
    WeightsV2,
    WeightsV1,
    Stop,
    RealTime,
    Nice,
    PerfEvents,
    Resctrl,
    Numa,
}

impl Mechanism {
    pub const ALL: [Mechanism; 15] = [
        Mechanism::CpusetV2,
        Mechanism::CpusetV1,
        Mechanism::Affinity,
        Mechanism::FreezerV2,
        Mechanism::FreezerV1,
        Mechanism::IdleV2,
        Mechanism::IdleV1,
        Mechanism::WeightsV2,
        Mechanism::WeightsV1,
        Mechanism::Stop,
        Mechanism::RealTime,
        Mechanism::Nice,
        Mechanism::PerfEvents,
        Mechanism::Resctrl,
        Mechanism::Numa,
    ];

    /// What it is good for.
    pub fn purpose(self) -> &'static str {
        match self {
            Mechanism::CpusetV2 | Mechanism::CpusetV1 => "placement that no thread can leave",
            Mechanism::Affinity => "placement of programs thread by thread",
            Mechanism::FreezerV2 | Mechanism::FreezerV1 => "strict turns",
            Mechanism::IdleV2 | Mechanism::IdleV1 => "filling turns: others use what a gang leaves idle",
            Mechanism::WeightsV2 | Mechanism::WeightsV1 => "shares of a CPU against the rest of the machine",
            Mechanism::Stop => "turns of 50 ms and more without any rights",
            Mechanism::RealTime => "a gang clock that no busy machine delays",
            Mechanism::Nice => "a gang clock that is rarely delayed",
            Mechanism::PerfEvents => "measuring without the preload library",
            Mechanism::Resctrl => "shares of cache and memory bandwidth, and measuring them",
            Mechanism::Numa => "memory near the CPUs that use it",
        }
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mechanism::CpusetV2 => "cpuset (cgroup v2)",
            Mechanism::CpusetV1 => "cpuset (cgroup v1)",
            Mechanism::Affinity => "sched_setaffinity",
            Mechanism::FreezerV2 => "cgroup.freeze (cgroup v2)",
            Mechanism::FreezerV1 => "freezer (cgroup v1)",
            Mechanism::IdleV2 => "cpu.idle (cgroup v2)",
            Mechanism::IdleV1 => "cpu.idle (cgroup v1)",
            Mechanism::WeightsV2 => "cpu.weight (cgroup v2)",
            Mechanism::WeightsV1 => "cpu.shares (cgroup v1)",
            Mechanism::Stop => "SIGSTOP and SIGCONT",
            Mechanism::RealTime => "SCHED_FIFO",
            Mechanism::Nice => "nice -11",
            Mechanism::PerfEvents => "hardware counters (perf_event_open)",
            Mechanism::Resctrl => "resctrl",
            Mechanism::Numa => "NUMA",
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    Available {
        /// How, where or with what limit.
        detail: String,
    },
    Absent(Absent),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub mechanism: Mechanism,
    pub state: State,
}

/// Every mechanism once, in the order of [`Mechanism::ALL`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Survey {
    pub entries: Vec<Entry>,
}

impl Survey {
    pub fn state(&self, mechanism: Mechanism) -> Option<&State> {
        self.entries.iter().find(|entry| entry.mechanism == mechanism).map(|entry| &entry.state)
    }

    pub fn has(&self, mechanism: Mechanism) -> bool {
        matches!(self.state(mechanism), Some(State::Available { .. }))
    }
}

/// Tries everything. Leaves nothing behind: no group, no changed setting, no moved process.
pub fn survey(root: &Root) -> Survey {
    let v1 = probes::version1(root);
    let v2 = probes::version2(root);
    let entry = |mechanism: Mechanism| {
        let found = match mechanism {
            Mechanism::CpusetV1 | Mechanism::FreezerV1 | Mechanism::IdleV1 | Mechanism::WeightsV1 => {
                v1(mechanism)
            }
            Mechanism::CpusetV2 | Mechanism::FreezerV2 | Mechanism::IdleV2 | Mechanism::WeightsV2 => {
                v2(mechanism)
            }
            Mechanism::Affinity => probes::affinity(root),
            Mechanism::Stop => probes::stop(root),
            Mechanism::RealTime => probes::real_time(root),
            Mechanism::Nice => probes::nice(root),
            Mechanism::PerfEvents => probes::perf_events(root),
            Mechanism::Resctrl => probes::resctrl(root),
            Mechanism::Numa => probes::numa(root),
        };
        let state = match found {
            Ok(detail) => State::Available { detail },
            Err(absent) => State::Absent(Absent { what: mechanism.to_string(), ..absent }),
        };
        Entry { mechanism, state }
    };
    Survey { entries: Mechanism::ALL.into_iter().map(entry).collect() }
}
