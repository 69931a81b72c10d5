//! Time, sleeping without drift, and the priority of the thread that does it.

use std::io;

use rustix::time::{ClockId, Timespec, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::host;

const NS_PER_S: u64 = 1_000_000_000;

fn ns(time: Timespec) -> u64 {
    time.tv_sec as u64 * NS_PER_S + time.tv_nsec as u64
}

/// Nanoseconds of `CLOCK_MONOTONIC`.
pub fn now_ns() -> u64 {
    host::with(|host| host.now_ns())
}

pub(crate) fn monotonic_ns() -> u64 {
    ns(clock_gettime(ClockId::Monotonic))
}

/// Nanoseconds since the machine was started, with the time that it slept.
pub fn since_boot_ns() -> u64 {
    ns(clock_gettime(ClockId::Boottime))
}

/// CPU time of the calling thread in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    ns(clock_gettime(ClockId::ThreadCPUTime))
}

/// CPU time of the calling process, all threads, in nanoseconds.
pub fn process_cpu_ns() -> u64 {
    host::with(|host| host.own_cpu_ns())
}

pub(crate) fn process_cpu_clock_ns() -> u64 {
    ns(clock_gettime(ClockId::ProcessCPUTime))
}

/// CPU time of any process in nanoseconds, ended threads included; one system call, against ticks
/// of 10 ms in /proc. `None` when there is no such process.
pub fn cpu_ns_of(pid: u32) -> Option<u64> {
    host::with(|host| host.cpu_ns_of(pid))
}

pub(crate) fn cpu_clock_ns_of(pid: u32) -> Option<u64> {
    // The kernel's encoding of a process CPU clock; clock_getcpuclockid(3) does the same.
    const CPUCLOCK_SCHED: i32 = 2;
    let clock = (!i32::try_from(pid).ok()? << 3) | CPUCLOCK_SCHED;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec that outlives the call.
    let rc = unsafe { libc::clock_gettime(clock, &mut time) };
    (rc == 0).then(|| time.tv_sec as u64 * NS_PER_S + time.tv_nsec as u64)
}

/// Sleeps until `deadline_ns` of `CLOCK_MONOTONIC` and returns by how many nanoseconds it is late
/// by then. The absolute deadline keeps lateness from adding up; interruptions are slept through.
pub fn sleep_until(deadline_ns: u64) -> u64 {
    host::with(|host| host.sleep_until(deadline_ns));
    now_ns().saturating_sub(deadline_ns)
}

pub(crate) fn sleep_on_monotonic(deadline_ns: u64) {
    let request =
        Timespec { tv_sec: (deadline_ns / NS_PER_S) as i64, tv_nsec: (deadline_ns % NS_PER_S) as _ };
    while rustix::thread::clock_nanosleep_absolute(rustix::thread::ClockId::Monotonic, &request)
        == Err(rustix::io::Errno::INTR)
    {}
}

/// What [`raise_priority`] reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Priority {
    /// `SCHED_FIFO` at this priority: no ordinary thread can delay the caller.
    RealTime {
        /// Always [`REAL_TIME_PRIORITY`].
        priority: i32,
    },
    /// Ordinary scheduling at this niceness.
    Nice {
        /// Always [`RAISED_NICE`].
        nice: i32,
    },
    /// Neither was granted.
    Unchanged {
        /// What the kernel answered to either, with the resource limits in force, for people to read.
        why: String,
    },
}

/// The lowest real-time priority is above every ordinary thread and below every other real-time
/// one, which have better reasons than ours.
pub const REAL_TIME_PRIORITY: i32 = 1;
/// Used where real time is not granted: enough to preempt ordinary threads at once, the value
/// that RLIMIT_NICE 31 allows.
pub const RAISED_NICE: i32 = -11;

/// Raises the calling thread above a busy machine as far as its rights allow: `SCHED_FIFO` 1, else
/// nice −11, else nothing. Threads and programs that it starts do not inherit it.
pub fn raise_priority() -> Priority {
    host::with(|host| host.raise_priority())
}

pub(crate) fn raise_own_priority() -> Priority {
    let real_time = match set_scheduler(libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, REAL_TIME_PRIORITY) {
        Ok(()) => return Priority::RealTime { priority: REAL_TIME_PRIORITY },
        Err(error) => error,
    };
    // Without reset-on-fork every program that this thread starts would be nice −11 too; where the
    // kernel refuses the flag, inheritance would outlive us, so the niceness is not taken either.
    let nice = set_scheduler(libc::SCHED_OTHER | libc::SCHED_RESET_ON_FORK, 0)
        .and_then(|()| rustix::process::setpriority_process(None, RAISED_NICE).map_err(io::Error::from));
    match nice {
        Ok(()) => Priority::Nice { nice: RAISED_NICE },
        Err(error) => Priority::Unchanged {
            why: format!(
                "SCHED_FIFO: {real_time} (RLIMIT_RTPRIO is {}); nice {RAISED_NICE}: {error} (RLIMIT_NICE is {})",
                soft_limit(rustix::process::Resource::Rtprio),
                soft_limit(rustix::process::Resource::Nice),
            ),
        },
    }
}

/// From now on the calling thread runs only where nobody else wants the CPU (`SCHED_IDLE`): an ordinary thread that
/// wakes there takes it at once. Programs and threads that it starts inherit it.
pub fn set_idle_policy() -> io::Result<()> {
    set_scheduler(libc::SCHED_IDLE, 0)
}

fn soft_limit(resource: rustix::process::Resource) -> String {
    rustix::process::getrlimit(resource).current.map_or("unlimited".to_owned(), |limit| limit.to_string())
}

fn set_scheduler(policy: i32, priority: i32) -> io::Result<()> {
    // As the kernel has it. The function of musl does nothing, as the kernel sets the policy of a thread where POSIX
    // means the process.
    let parameters: libc::c_int = priority;
    // SAFETY: 0 names the calling thread and `parameters`, a `struct sched_param` of the kernel, outlives the call.
    let rc = unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const parameters) };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
