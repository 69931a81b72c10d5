//! Processes of the model, and the programs that run in them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use topology::CpuSet;

use crate::groups::Hierarchy;

/// What a program does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// One thread computes for so long.
    Serial { ns: u64 },
    /// A team computes for so long in one parallel region. `wide`: threads that it has if nobody asks for fewer; 0:
    /// as many as its runtime found CPUs.
    Region { ns: u64, wide: u32 },
    /// Nobody computes.
    Sleep { ns: u64 },
    /// Starts another process of this program.
    Fork(Script),
    /// Waits until its children have ended.
    Wait,
    /// Becomes another program: same number, other name, new threads.
    Exec { name: String },
    /// Goes on in a child of init; the parent ends.
    Daemonise,
    /// Restricts all its threads to these CPUs.
    Restrict(CpuSet),
    /// Binds its first thread.
    BindFirst(CpuSet),
    /// Stops itself, as editors do at Ctrl-Z.
    StopSelf,
}

pub type Script = VecDeque<Op>;

#[derive(Clone, Debug)]
pub struct Thread {
    pub start_ticks: u64,
    /// As it was set last, by whomever.
    pub mask: CpuSet,
    pub run_ns: u64,
    /// For how long it wanted a CPU and had none.
    pub wait_ns: u64,
}

/// A program in a process.
#[derive(Clone, Debug, Default)]
pub struct Program {
    pub script: Script,
    pub now: Option<Op>,
    /// What is left of it, at full speed.
    pub left_ns: u64,
    /// Since when it goes on at this speed, in thousandths.
    pub since_ns: u64,
    pub speed_milli: u64,
    /// Threads that compute now.
    pub team: u32,
    /// When its region began, and on which CPUs.
    pub entered: (u64, CpuSet),
    /// Has the preload library and an OpenMP runtime with it.
    pub preloaded: bool,
    /// Threads wait without spinning.
    pub passive: bool,
    /// CPUs that its runtime found when it started.
    pub procs: u32,
    /// Told apart from what was planned before.
    pub version: u64,
}

#[derive(Clone, Debug)]
pub struct Process {
    pub pid: u32,
    pub start_ticks: u64,
    pub ppid: u32,
    pub uid: u32,
    pub name: String,
    pub exe: PathBuf,
    pub arguments: Vec<String>,
    pub environment: Vec<(String, String)>,
    pub nice: i32,
    pub group_leader: u32,
    pub session: u32,
    pub terminal: bool,
    pub threads: BTreeMap<u32, Thread>,
    pub stopped: bool,
    /// Who sent the stop that it stands by.
    pub stopped_by: u32,
    pub stopped_at_ns: u64,
    /// Stops that came while it stood: for the process, and for threads of it. They are gone once it is continued.
    pub stop_is_pending: bool,
    pub stops_pending_for: BTreeSet<u32>,
    /// It was frozen when it was to stop, and takes note of one of these when it thaws.
    pub stop_is_untaken: bool,
    pub zombie: bool,
    /// A signal that ends it and cannot reach it yet.
    pub to_die: Option<rustix::process::Signal>,
    pub groups: BTreeMap<Hierarchy, String>,
    /// The number of the program that it belongs to.
    pub app: Option<u32>,
    pub program: Option<Program>,
    /// Its page of the preload library.
    pub page: Option<Arc<[AtomicU64]>>,
    /// How often it was executed.
    pub generation: u32,
    /// Its parent is none of the model's programs and waits for it itself.
    pub is_waited_for: bool,
}

impl Process {
    pub fn identity(&self) -> linux::Process {
        linux::Process { pid: self.pid, start_time_ticks: self.start_ticks }
    }

    pub fn variable(&self, name: &str) -> Option<&str> {
        self.environment.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}
