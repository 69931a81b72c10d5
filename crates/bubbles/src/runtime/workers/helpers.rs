//! Kernel threads for what blocks.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::runtime::records::thread::Thread;

/// Kernel threads on which calls run that block.
#[derive(Default)]
pub(crate) struct Helpers {
    state: Mutex<Work>,
    more: Condvar,
}

#[derive(Default)]
struct Work {
    jobs: VecDeque<Job>,
    idle: usize,
    closed: bool,
}

/// What a thread that waits for it wants done.
pub(crate) struct Job {
    pub call: unsafe fn(*mut ()),
    pub argument: *mut (),
    pub thread: &'static Thread,
}

// SAFETY: the argument is on the stack of a thread that waits until the job is done.
unsafe impl Send for Job {}

impl Helpers {
    /// Has a job done aside; then `wake` wakes the thread that waits. A helper is started where none is idle.
    pub fn submit(&'static self, job: Job, wake: impl Fn(&Thread) + Send + Copy + 'static) {
        let mut work = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        work.jobs.push_back(job);
        if work.idle >= work.jobs.len() {
            self.more.notify_one();
            return;
        }
        drop(work);
        let started = std::thread::Builder::new()
            .name("bubbles-aside".into())
            .stack_size(256 * 1024)
            .spawn(move || while self.do_one(true, wake) {});
        if started.is_err() {
            // Better late than never: this worker does it, and stands still meanwhile.
            self.do_one(false, wake);
        }
    }

    /// Whether there may be more to do.
    fn do_one(&self, patient: bool, wake: impl Fn(&Thread)) -> bool {
        let mut work = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let job = loop {
            if let Some(job) = work.jobs.pop_front() {
                break job;
            }
            if work.closed || !patient {
                return false;
            }
            work.idle += 1;
            let (again, waited) =
                self.more.wait_timeout(work, Duration::from_secs(2)).unwrap_or_else(PoisonError::into_inner);
            work = again;
            work.idle -= 1;
            if waited.timed_out() && work.jobs.is_empty() {
                return false;
            }
        };
        drop(work);
        // SAFETY: the one who made the job says so.
        unsafe { (job.call)(job.argument) };
        wake(job.thread);
        true
    }

    pub fn close(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.more.notify_all();
    }
}
