//! Threads of the C interface: they return an address, and their frames are left rather than unwound.

use std::ffi::c_void;

use super::handle::Builder;
use super::life::{self, when_ended};
use crate::runtime::records::thread::{self, FOREIGN, Outcome, Thread};

/// What a cancelled thread returns.
pub const CANCELLED: usize = usize::MAX;

pub type Work = extern "C" fn(*mut c_void) -> *mut c_void;

pub fn make(builder: Builder<'_>, work: Work, argument: usize) -> &'static Thread {
    let work = move || work(argument as *mut c_void) as usize;
    fn entry<F: FnOnce() -> usize>(_: &F) -> unsafe fn(&Thread) {
        thread::enter::<F, usize>
    }
    builder.make(entry(&work), work, FOREIGN)
}

/// Ends the running thread with this result.
pub fn end(thread: &'static Thread, result: usize) -> ! {
    thread.set_outcome(Outcome::Ok(result));
    life::finish(thread)
}

/// Waits for the end of a thread of which the caller has the handle.
pub fn join(thread: &'static Thread) -> usize {
    // SAFETY: it has ended, and the handle is used up.
    when_ended(thread, || unsafe { thread.take::<Outcome<usize>>() }).unwrap_or(CANCELLED)
}
