//! What this machine and this user's rights offer, found by really trying where trying is harmless:
//! a group that holds nobody, a thread that ends right after.

mod probes;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::Absent;
use crate::root::Root;

/// Something that the kernel or the processor offers for placing programs, taking turns or measuring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mechanism {
    /// `cpuset.cpus` of version 2 groups.
    CpusetV2,
    /// `cpuset.cpus` of version 1 groups.
    CpusetV1,
    /// `sched_setaffinity(2)`, on one thread after the other.
    Affinity,
    /// `cgroup.freeze` of version 2 groups (Linux 5.2).
    FreezerV2,
    /// `freezer.state` of version 1 groups.
    FreezerV1,
    /// `cpu.idle` of version 2 groups (Linux 5.15).
    IdleV2,
    /// `cpu.idle` of version 1 groups (Linux 5.15).
    IdleV1,
    /// `cpu.weight` of version 2 groups.
    WeightsV2,
    /// `cpu.shares` of version 1 groups.
    WeightsV1,
    /// SIGSTOP and SIGCONT, sent through a pidfd where there is one (Linux 5.3).
    Stop,
    /// `SCHED_FIFO` at priority 1 for our own threads.
    RealTime,
    /// Nice −11 for our own threads, where `SCHED_FIFO` is not granted.
    Nice,
    /// `perf_event_open(2)`, with an instruction counter that really moves.
    PerfEvents,
    /// A mounted `/sys/fs/resctrl`: Intel RDT, AMD QoS or Arm MPAM.
    Resctrl,
    /// Two NUMA nodes or more in `/sys/devices/system/node/online`.
    Numa,
}

impl Mechanism {
    /// Every mechanism, in the order in which a survey lists them.
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

/// What came of trying a mechanism.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It works, or will as soon as its controller is enabled.
    Available {
        /// How, where or with what limit.
        detail: String,
    },
    /// It does not work here; `what` is the mechanism as it is displayed.
    Absent(Absent),
}

/// One line of a survey.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// What was tried.
    pub mechanism: Mechanism,
    /// What came of it.
    pub state: State,
}

/// Every mechanism once, in the order of [`Mechanism::ALL`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Survey {
    /// One for each mechanism.
    pub entries: Vec<Entry>,
}

impl Survey {
    /// What came of trying this mechanism; `None` only in a survey that was not made by [`survey`].
    pub fn state(&self, mechanism: Mechanism) -> Option<&State> {
        self.entries.iter().find(|entry| entry.mechanism == mechanism).map(|entry| &entry.state)
    }

    /// Whether this mechanism is available.
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
