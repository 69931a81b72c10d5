//! A handle on a process that cannot come to mean another one.

use std::os::fd::BorrowedFd;

use rustix::process::Signal;

use crate::error::{Error, Result};
use crate::host::{self, OpenProcess};
use crate::procfs::Process;
use crate::root::Root;

/// A process behind its pidfd: signals and waiting never concern a later process that got the same pid.
#[derive(Debug)]
pub struct PidFd {
    process: Process,
    handle: Box<dyn OpenProcess>,
}

impl PidFd {
    /// Opens a handle (Linux 5.3). The identity is checked after opening: from then on the handle
    /// means this process, whoever gets its pid later.
    pub fn open(process: Process, root: &Root) -> Result<Self> {
        let handle = host::with(|host| host.open_process(process.pid))
            .map_err(|source| Error::call("pidfd_open", format!("process {}", process.pid), source))?;
        if !process.is_same(root) {
            return Err(Error::Gone(process));
        }
        Ok(PidFd { process, handle })
    }

    /// Which process it was opened for; it may have ended meanwhile.
    pub fn process(&self) -> Process {
        self.process
    }

    /// Sends a signal; a process that has ended is [`Error::Gone`].
    pub fn send(&self, signal: Signal) -> Result<()> {
        self.handle.send(signal).map_err(|source| match source.raw_os_error() {
            Some(libc::ESRCH) => Error::Gone(self.process),
            _ => {
                let subject = format!("process {} (signal {})", self.process.pid, signal.as_raw());
                Error::call("pidfd_send_signal", subject, source)
            }
        })
    }

    /// Waits until the process has ended, which need not be our child; `false` when `timeout_ns`
    /// passed first. A zombie counts as ended.
    pub fn wait_exit(&self, timeout_ns: u64) -> Result<bool> {
        self.handle.wait_exit(timeout_ns).map_err(|source| {
            Error::call("poll", format!("the pidfd of process {}", self.process.pid), source)
        })
    }

    /// Readable when it has ended.
    pub fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        self.handle.as_fd()
    }
}
