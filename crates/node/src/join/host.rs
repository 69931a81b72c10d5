//! A scheduler in a thread of this process.

use std::sync::mpsc;

use linux::clock::now_ns;
use linux::host::{self, Thread};
use protocol::Role;

use crate::home::{Home, SchedulerLock};
use crate::scheduler::{Options, Scheduler, StartError, Stopper};

/// How long a scheduler may take to set everything free.
const STOP_NS: u64 = 3_000_000_000;
/// How often it is looked whether it has.
const STOP_POLL_NS: u64 = 500_000;

pub struct Host {
    stopper: Stopper,
    thread: Box<dyn Thread>,
}

impl Host {
    /// Starts it and waits until it listens.
    pub fn start(home: Home, lock: SchedulerLock, options: Options) -> Result<Host, StartError> {
        let (sender, started) = mpsc::channel();
        // Made in its own thread: what it sets for itself (priority, timer slack) stays there.
        let body = move || {
            let scheduler = match Scheduler::start(home, lock, Role::Leader, options) {
                Ok(scheduler) => scheduler,
                Err(error) => {
                    let _ = sender.send(Err(error));
                    return;
                }
            };
            let _ = sender.send(Ok(scheduler.stopper()));
            scheduler.run();
        };
        // Signals are this process's business, and its main thread's.
        let thread = without_signals(|| host::with(|host| host.spawn("scheduler", Box::new(body))))?;
        match host::receive(&started) {
            Some(Ok(stopper)) => Ok(Host { stopper, thread }),
            Some(Err(error)) => Err(error),
            None => Err(StartError::Died),
        }
    }

    pub fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// What is left of one that has ended. One that panicked has said so already, and its lock
    /// went with it: the next scheduler sets its programs free.
    pub fn collect(self) {
        self.thread.join();
    }

    /// Ends it in order. One that hangs is left behind: the lease tells the guard.
    pub fn stop(self) {
        self.stopper.stop();
        let began_ns = now_ns();
        while !self.thread.is_finished() && now_ns() - began_ns < STOP_NS {
            linux::clock::sleep_until(now_ns() + STOP_POLL_NS);
        }
        if self.thread.is_finished() {
            self.collect();
        }
    }
}

/// Runs `start` with all signals blocked; threads inherit that.
fn without_signals<T>(start: impl FnOnce() -> T) -> T {
    // SAFETY: the sets are initialised by the calls before they are read.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let result = start();
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        result
    }
}
