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
    Serial {
        /// How long that takes at full speed.
        ns: u64,
    },
    /// A team computes for so long in one parallel region.
    Region {
        /// How long that takes at full speed, however many threads there are.
        ns: u64,
        /// Threads that it has if nobody asks for fewer; 0: as many as its runtime found CPUs.
        wide: u32,
    },
    /// Nobody computes.
    Sleep {
        /// Time for which the process stands still does not count.
        ns: u64,
    },
    /// Starts another process of this program.
    Fork(Script),
    /// Waits until its children have ended.
    Wait,
    /// Becomes another program: same number, other name, new threads.
    Exec {
        /// File name of the other program, which lies in `/usr/bin`.
        name: String,
    },
    /// Goes on in a child of init; the parent ends.
    Daemonise,
    /// Restricts all its threads to these CPUs.
    Restrict(CpuSet),
    /// Binds its first thread.
    BindFirst(CpuSet),
    /// Stops itself, as editors do at Ctrl-Z.
    StopSelf,
}

/// What a program does, step by step; it ends when nothing is left.
pub type Script = VecDeque<Op>;

/// A thread of a process of the model.
#[derive(Clone, Debug)]
pub struct Thread {
    /// Start time in ticks of 10 ms (`/proc/PID/task/TID/stat` field 22).
    pub start_ticks: u64,
    /// As it was set last, by whomever.
    pub mask: CpuSet,
    /// CPU time (first value of `/proc/PID/task/TID/schedstat`).
    pub run_ns: u64,
    /// For how long it wanted a CPU and had none.
    pub wait_ns: u64,
}

/// A program in a process.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// What comes after `now`.
    pub script: Script,
    /// The step at which it is; `None` before the first one.
    pub now: Option<Op>,
    /// What is left of it, at full speed.
    pub left_ns: u64,
    /// Since when it goes on at `speed_milli`.
    pub since_ns: u64,
    /// Thousandths of full speed; 0 while it stands still.
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

/// A process of the model, until it is reaped.
#[derive(Clone, Debug)]
pub struct Process {
    /// Its number; another process may get it later.
    pub pid: u32,
    /// Start time in ticks of 10 ms (`/proc/PID/stat` field 22).
    pub start_ticks: u64,
    /// Its parent, or init once that has ended (`/proc/PID/stat` field 4); 0 for init.
    pub ppid: u32,
    /// Its user (`Uid` in `/proc/PID/status`).
    pub uid: u32,
    /// Command name (`/proc/PID/stat` field 2).
    pub name: String,
    /// Where `/proc/PID/exe` points.
    pub exe: PathBuf,
    /// The command line (`/proc/PID/cmdline`), the program first.
    pub arguments: Vec<String>,
    /// Names and values (`/proc/PID/environ`).
    pub environment: Vec<(String, String)>,
    /// −20 to 19 (`/proc/PID/stat` field 19).
    pub nice: i32,
    /// Its process group, by the pid of its leader (`/proc/PID/stat` field 5).
    pub group_leader: u32,
    /// Its session (`/proc/PID/stat` field 6).
    pub session: u32,
    /// By thread id, which is the pid for the first one.
    pub threads: BTreeMap<u32, Thread>,
    /// Whether a signal has stopped it (state `T`); frozen is something else.
    pub stopped: bool,
    /// Who sent the stop that it stands by; means nothing once the process has been continued.
    pub stopped_by: u32,
    /// When it was continued last of those times that it stood; 0: never.
    pub stood_until_ns: u64,
    /// Stops that came while it stood: for the process, and for threads of it. They are gone once it is continued.
    pub stop_is_pending: bool,
    /// Ids of the threads for which one is pending (`SigPnd` in their `status`).
    pub stops_pending_for: BTreeSet<u32>,
    /// It was frozen when it was to stop, and takes note of one of these when it thaws.
    pub stop_is_untaken: bool,
    /// Whether it has ended, and nobody has reaped it yet.
    pub zombie: bool,
    /// A signal that ends it and cannot reach it yet.
    pub to_die: Option<rustix::process::Signal>,
    /// The path of its group in each mounted hierarchy, `/` for the top (`/proc/PID/cgroup`).
    pub groups: BTreeMap<Hierarchy, String>,
    /// The number of the program that it belongs to.
    pub app: Option<u32>,
    /// The script that runs in it; `None` in init, in coplace's processes, before `execute`, and in zombies.
    pub program: Option<Program>,
    /// Its page of the preload library.
    pub page: Option<Arc<[AtomicU64]>>,
    /// How often it was executed.
    pub generation: u32,
    /// Its parent is none of the model's programs and waits for it itself.
    pub is_waited_for: bool,
}

impl Process {
    /// Pid and start time, by which coplace tells processes apart.
    pub fn identity(&self) -> linux::Process {
        linux::Process { pid: self.pid, start_time_ticks: self.start_ticks }
    }

    /// The value of an environment variable; `None` where it is not set.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.environment.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}
