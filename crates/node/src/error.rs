//! What fails in the node. An error keeps its kind until it is shown: whoever gets one can ask what it means, and what
//! is done about it never depends on words. They become text where they leave the node: in messages to peers, in the
//! history, and in commands.

use std::path::PathBuf;

use linux::Tid;
use topology::CpuSet;

use crate::prior_state::PriorStateError;
use crate::registry::RegistryError;

/// What fails in the node, unless another error is named.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why something could not be done to a program, or seen of the machine.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// A kernel interface refused something or could not be read.
    #[error(transparent)]
    Linux(#[from] linux::Error),
    /// A program's file in the registry could not be written; nothing is done that is not noted first.
    #[error("{0}; the program runs on, and nothing is done to it that is not on record")]
    Registry(#[from] RegistryError),
    /// What a running program has (masks, groups) could not be read, or could not be given back as it is.
    #[error(transparent)]
    PriorState(#[from] PriorStateError),
    /// The mask of a thread could not be set; of several such threads, the first that was met.
    #[error("thread {tid}: {error}")]
    Thread {
        /// Its kernel id, as in `/proc/PID/task`.
        tid: Tid,
        /// What `sched_setaffinity` answered.
        error: linux::Error,
    },
    /// A program is not on the CPUs that it is to have now; that is tried again.
    #[error("could not be placed on {cpus}: {error}")]
    NotPlaced {
        /// Where it was to be, by `os_index`: its place, or a step on the way there.
        cpus: CpuSet,
        /// What kept it from there.
        error: Box<Error>,
    },
    /// It could not be prepared for its turns; the engine's next step tries again.
    #[error("cannot take turns: {0}")]
    NoTurns(Box<Error>),
    /// The clock could not stop it or let it go at a switch.
    #[error("could not be stopped or let go: {0}")]
    NotTurned(linux::Error),
    /// It could not be taken in, so nothing is done to it.
    #[error("runs unmanaged: {0}")]
    Unmanaged(Box<Error>),
    /// None of the CPUs that it may use is shared out here, so nothing is done to it.
    #[error("runs unmanaged: it may use the CPUs {its} only, and {shared_out} are shared out here")]
    ElsewhereOnly {
        /// The CPUs that it was allowed when it came, by `os_index`.
        its: CpuSet,
        /// The CPUs that programs may use here, by `os_index`.
        shared_out: CpuSet,
    },
    /// When a program was set free, a process that stood stopped could not be continued.
    #[error("cannot continue process {pid}: {error}")]
    NotContinued {
        /// The stopped process.
        pid: u32,
        /// Why SIGCONT did not reach it.
        error: linux::Error,
    },
    /// When a program was set free, a process could not be moved out of the group that was made for it.
    #[error("cannot move process {pid} to {}: {error}", to.display())]
    NotMovedBack {
        /// The process in that group.
        pid: u32,
        /// The directory of the last group that was tried.
        to: PathBuf,
        /// Why that group did not take it.
        error: linux::Error,
    },
}

impl Error {
    /// What the kernel interface said that is at the bottom of it, if one did.
    pub fn linux(&self) -> Option<&linux::Error> {
        match self {
            Error::Linux(error)
            | Error::PriorState(PriorStateError::Linux(error))
            | Error::Thread { error, .. }
            | Error::NotTurned(error)
            | Error::NotContinued { error, .. }
            | Error::NotMovedBack { error, .. } => Some(error),
            Error::NotPlaced { error, .. } | Error::NoTurns(error) | Error::Unmanaged(error) => error.linux(),
            Error::Registry(_) | Error::PriorState(_) | Error::ElsewhereOnly { .. } => None,
        }
    }

    /// Whether it only says that a process or thread has ended meanwhile.
    pub fn is_gone(&self) -> bool {
        self.linux().is_some_and(linux::Error::is_gone)
    }

    /// Whether it says that this user may not do that.
    pub fn is_denied(&self) -> bool {
        self.linux().is_some_and(linux::Error::is_denied)
    }

    /// Whether it says that a control group is not there any more.
    pub fn is_group_gone(&self) -> bool {
        self.linux().is_some_and(linux::Error::is_group_gone)
    }

    /// Whether nothing can be written down about programs, so that nothing may be done to them.
    pub fn is_registry(&self) -> bool {
        match self {
            Error::Registry(_) => true,
            Error::NotPlaced { error, .. } | Error::NoTurns(error) | Error::Unmanaged(error) => {
                error.is_registry()
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn failed(file: &str, errno: i32) -> linux::Error {
        linux::Error::io("write '1' to", file, io::Error::from_raw_os_error(errno))
    }

    /// As it comes out at the top.
    fn wrapped(error: impl Into<Error>) -> Error {
        let placed = Error::NotPlaced { cpus: CpuSet::first(2), error: Box::new(error.into()) };
        Error::Unmanaged(Box::new(placed))
    }

    #[test]
    fn an_error_keeps_its_kind_whatever_it_is_wrapped_in() {
        let process = linux::Process { pid: 7, start_time_ticks: 8 };
        let kinds = |error: &Error| (error.is_gone(), error.is_denied(), error.is_group_gone());
        assert_eq!(kinds(&wrapped(linux::Error::Gone(process))), (true, false, false));
        assert_eq!(kinds(&wrapped(failed("/cg/a/cpu.idle", libc::EACCES))), (false, true, false));
        assert_eq!(kinds(&wrapped(failed("/cg/a/cgroup.freeze", libc::ENODEV))), (false, false, true));
        let thread = Error::Thread { tid: 9, error: failed("/cg/a/cpuset.cpus", libc::EPERM) };
        assert_eq!(kinds(&wrapped(thread)), (false, true, false));
        assert_eq!(kinds(&wrapped(PriorStateError::TooFast)), (false, false, false));
    }

    #[test]
    fn registry_errors_differ_from_failed_acts() {
        let error = io::Error::from_raw_os_error(libc::ENOSPC).into();
        assert!(wrapped(RegistryError::Write { path: "/home/cg.traces".into(), error }).is_registry());
        assert!(!wrapped(failed("/cg/a/cpu.idle", libc::ENOSPC)).is_registry());
    }

    #[test]
    fn the_text_names_each_cause_from_the_outside_in() {
        let error = wrapped(failed("/cg/a/cpuset.cpus", libc::EBUSY)).to_string();
        assert!(error.starts_with(
            "runs unmanaged: could not be placed on 0-1: cannot write '1' to /cg/a/cpuset.cpus: "
        ));
    }
}
