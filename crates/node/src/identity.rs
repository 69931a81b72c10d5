//! Processes as messages name them and as the kernel's interfaces do.

use std::ffi::OsStr;
use std::path::Path;

use linux::Process;
use linux::Root;
use protocol::ProcessId;
use workload::AppId;

/// The same process, as the kernel's interfaces name it.
pub fn to_linux(process: ProcessId) -> Process {
    Process { pid: process.pid, start_time_ticks: process.start_time_ticks }
}

/// The same process, as messages name it.
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
    let pid = linux::host::own_pid();
    of_pid(pid).unwrap_or(ProcessId { pid, start_time_ticks: 0 })
}

/// Whether it lives: it is the one with its number, and no zombie.
pub fn is_alive(process: ProcessId) -> bool {
    to_linux(process).is_alive(&Root::live())
}

/// A program's name as an application's: its file name, with what may not be in one replaced.
pub fn name_of(program: &OsStr) -> AppId {
    let file = Path::new(program).file_name().unwrap_or(program).to_string_lossy();
    let allowed = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-') { c } else { '_' };
    let mut name: String = file.chars().take(48).map(allowed).collect();
    if !name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        name.insert(0, '_');
        name.truncate(48);
    }
    AppId::new(&name).expect("made of allowed characters")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_programs_file_name_becomes_a_name() {
        for (program, name) in
            [("/a/cg", "cg"), ("./lu.B.x", "lu.B.x"), ("7zip", "_7zip"), ("größe x", "gr__e_x"), ("/", "_")]
        {
            assert_eq!(name_of(OsStr::new(program)).as_str(), name, "{program}");
        }
        assert_eq!(name_of(OsStr::new(&"x".repeat(300))).as_str().len(), 48);
    }
}
