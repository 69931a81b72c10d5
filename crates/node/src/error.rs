//! What fails in the node. An error keeps its kind until it is shown: whoever gets one can ask what it means, and what
//! is done about it never depends on words. They become text where they leave the node: in messages to peers, in the
//! history, and in commands.

use std::path::PathBuf;

use linux::Tid;
use topology::CpuSet;

use crate::prior_state::PriorStateError;
use crate::registry::RegistryError;

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Linux(#[from] linux::Error),
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error(transparent)]
    PriorState(#[from] PriorStateError),
    #[error("thread {tid}: {error}")]
    Thread { tid: Tid, error: linux::Error },
    #[error("could not be placed on {cpus}: {error}")]
    NotPlaced { cpus: CpuSet, error: Box<Error> },
    #[error("cannot take turns: {0}")]
    NoTurns(Box<Error>),
    #[error("could not be stopped or let go: {0}")]
    NotTurned(linux::Error),
    #[error("runs unmanaged: {0}")]
    Unmanaged(Box<Error>),
    #[error("runs unmanaged: it may use the CPUs {its} only, and {shared_out} are shared out here")]
    ElsewhereOnly { its: CpuSet, shared_out: CpuSet },
    #[error("cannot continue process {pid}: {error}")]
    NotContinued { pid: u32, error: linux::Error },
    #[error("cannot move process {pid} to {}: {error}", to.display())]
    NotMovedBack { pid: u32, to: PathBuf, error: linux::Error },
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
