//! Processes as messages name them and as the kernel's interfaces do.

use linux::Process;
use linux::Root;
use protocol::ProcessId;

pub fn to_linux(process: ProcessId) -> Process {
    Process { pid: process.pid, start_time_ticks: process.start_time_ticks }
}

pub fn from_linux(process: Process) -> ProcessId {
    ProcessId { pid: process.pid, start_time_ticks: process.start_time_ticks }
}

/// Who has this number now; `None` where nobody has.
pub fn of_pid(pid: u32) -> Option<ProcessId> {
    Process::of(pid, &Root::live()).ok().map(from_linux)
}

/// This process.
pub fn own() -> ProcessId {
    // Without /proc nothing can be told apart; 0 is what the page's format calls unknown too.
    of_pid(std::process::id()).unwrap_or(ProcessId { pid: std::process::id(), start_time_ticks: 0 })
}

/// Whether it lives: it is the one with its number, and no zombie.
pub fn lives(process: ProcessId) -> bool {
    to_linux(process).is_alive(&Root::live())
}
