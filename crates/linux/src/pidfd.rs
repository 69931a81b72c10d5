//! A handle on a process that cannot come to mean another one.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::clock;
use crate::error::{Error, Result};
use crate::procfs::Process;
use crate::root::Root;

#[derive(Debug)]
pub struct PidFd {
    process: Process,
    fd: OwnedFd,
}

impl PidFd {
    /// Opens a handle (Linux 5.3). The identity is checked after opening: from then on the handle
    /// means this process, whoever gets its pid later.
    pub fn open(process: Process, root: &Root) -> Result<Self> {
        let pid = pid(process)?;
        let fd = pidfd_open(pid, PidfdFlags::empty()).map_err(|e| Error::Call {
            call: "pidfd_open",
            subject: format!("process {}", process.pid),
            source: e.into(),
        })?;
        if !process.is_same(root) {
            return Err(Error::Gone(process));
        }
        Ok(PidFd { process, fd })
    }

    pub fn process(&self) -> Process {
        self.process
    }

    /// Sends a signal; a process that has ended is [`Error::Gone`].
    pub fn send(&self, signal: Signal) -> Result<()> {
        pidfd_send_signal(&self.fd, signal).map_err(|e| match e {
            rustix::io::Errno::SRCH => Error::Gone(self.process),
            e => Error::Call {
                call: "pidfd_send_signal",
                subject: format!("process {} (signal {})", self.process.pid, signal.as_raw()),
                source: e.into(),
            },
        })
    }

    /// Waits until the process has ended, which need not be our child; `false` when `timeout_ns`
    /// passed first. A zombie counts as ended.
    pub fn wait_exit(&self, timeout_ns: u64) -> Result<bool> {
        let deadline_ns = clock::now_ns().saturating_add(timeout_ns);
        loop {
            let left_ns = deadline_ns.saturating_sub(clock::now_ns());
            let left = Timespec {
                tv_sec: (left_ns / 1_000_000_000).min(i32::MAX as u64) as i64,
                tv_nsec: (left_ns % 1_000_000_000) as _,
            };
            let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
            match poll(&mut fds, Some(&left)) {
                Ok(0) => return Ok(false),
                Ok(_) => return Ok(true),
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => {
                    return Err(Error::Call {
                        call: "poll",
                        subject: format!("the pidfd of process {}", self.process.pid),
                        source: e.into(),
                    });
                }
            }
        }
    }

    pub fn has_exited(&self) -> Result<bool> {
        self.wait_exit(0)
    }
}

impl AsFd for PidFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

pub(crate) fn pid(process: Process) -> Result<Pid> {
    // Zero and negative numbers mean groups to kill(2): never let them through.
    i32::try_from(process.pid).ok().and_then(Pid::from_raw).ok_or(Error::Gone(process))
}
