//! A process of our group that does nothing but get the signals that its group, or each process, is sent.
//!
//! It blocks them all, so that they lie there until it is asked which came: the kernel notes a signal for every
//! member of a group in the same call, whenever they come to run.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions, kill_process, waitid, waitpid};

/// For so long an answer is waited for: on a machine full of spinning threads it may take some slices.
const ANSWER: Duration = Duration::from_secs(2);
/// So often it is looked whether it stands stopped meanwhile.
const POLL_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

pub struct Witness {
    pid: Pid,
    ask: File,
    answer: File,
}

impl Witness {
    /// To be called while this process has one thread. `None`: no process could be made, and nobody witnesses.
    pub fn start() -> Option<Witness> {
        let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).ok();
        let ((asked, ask), (answer, answering)): ((OwnedFd, OwnedFd), (OwnedFd, OwnedFd)) =
            (pipe()?, pipe()?);
        let parent = std::process::id();
        // SAFETY: the child only makes system calls on plain values, and never returns.
        let pid = unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&mut all);
            // Before it exists: it is to miss none.
            libc::sigprocmask(libc::SIG_SETMASK, &all, &mut before);
            let pid = libc::fork();
            if pid == 0 {
                watch(parent, &all, asked.as_raw_fd(), answering.as_raw_fd());
            }
            libc::sigprocmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
            pid
        };
        Some(Witness { pid: Pid::from_raw(pid).filter(|_| pid > 0)?, ask: ask.into(), answer: answer.into() })
    }

    /// The signals that have come since it was asked last; `None` if it is lost.
    pub fn signals(&mut self) -> Option<Vec<i32>> {
        self.ask.write_all(&[1]).ok()?;
        let asked = Instant::now();
        loop {
            // It may have been stopped with everybody else, and not continued. Only then: to be continued takes
            // back what stop signals lie there.
            if let Ok(Some(_)) = waitid(WaitId::Pid(self.pid), WaitIdOptions::STOPPED | WaitIdOptions::NOHANG)
            {
                kill_process(self.pid, Signal::CONT).ok()?;
            }
            let mut fds = [PollFd::from_borrowed_fd(self.answer.as_fd(), PollFlags::IN)];
            let ready = poll(&mut fds, Some(&POLL_INTERVAL)).unwrap_or_default();
            if ready > 0 && fds[0].revents().contains(PollFlags::IN) {
                break;
            }
            if ready > 0 || asked.elapsed() > ANSWER {
                return None;
            }
        }
        let mut bits = [0; 8];
        self.answer.read_exact(&mut bits).ok()?;
        let bits = u64::from_ne_bytes(bits);
        // The one that continued it is ours.
        let is_reported = |signal: &i32| *signal != libc::SIGCONT && bits >> (signal - 1) & 1 == 1;
        Some((1..=64).filter(is_reported).collect())
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        // Whatever became of it, nothing is left to do about it.
        let _ = kill_process(self.pid, Signal::KILL);
        while matches!(waitpid(Some(self.pid), WaitOptions::empty()), Err(rustix::io::Errno::INTR)) {}
    }
}

/// The witness's whole life: ends with who made it.
///
/// # Safety
/// Only in a freshly forked child of a process with one thread, with all signals blocked.
unsafe fn watch(parent: u32, all: &libc::sigset_t, asked: RawFd, answering: RawFd) -> ! {
    // SAFETY: system calls on values that live as long as the process.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::prctl(libc::PR_SET_NAME, c"coplace-witness".as_ptr());
        if libc::getppid() as u32 != parent {
            libc::_exit(0);
        }
        // What it held open nobody else could see the end of.
        if libc::dup2(asked, 0) < 0 || libc::dup2(answering, 1) < 0 {
            libc::_exit(1);
        }
        if libc::syscall(libc::SYS_close_range, 2, u32::MAX, 0) != 0 {
            for fd in 2..1024 {
                libc::close(fd);
            }
        }
        let mut byte = 0_u8;
        while libc::read(0, (&raw mut byte).cast(), 1) == 1 {
            let (mut bits, none) = (0_u64, libc::timespec { tv_sec: 0, tv_nsec: 0 });
            loop {
                let signal = libc::sigtimedwait(all, std::ptr::null_mut(), &none);
                if signal <= 0 {
                    break;
                }
                bits |= 1 << (signal - 1);
            }
            let bytes = bits.to_ne_bytes();
            if libc::write(1, bytes.as_ptr().cast(), bytes.len()) != bytes.len() as isize {
                break;
            }
        }
        libc::_exit(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_witness_reports_each_signal_once_and_ends_by_none() {
        let mut witness = Witness::start().unwrap();
        assert_eq!(witness.signals(), Some(vec![]));
        for signal in [Signal::TERM, Signal::USR1, Signal::TSTP] {
            kill_process(witness.pid, signal).unwrap();
        }
        assert_eq!(witness.signals(), Some(vec![libc::SIGUSR1, libc::SIGTERM, libc::SIGTSTP]));
        assert_eq!(witness.signals(), Some(vec![]));
        kill_process(witness.pid, Signal::STOP).unwrap();
        assert_eq!(witness.signals(), Some(vec![]));
    }

    #[test]
    fn a_witness_that_is_killed_is_lost_and_not_waited_for() {
        let mut witness = Witness::start().unwrap();
        kill_process(witness.pid, Signal::KILL).unwrap();
        assert_eq!(witness.signals(), None);
    }
}
