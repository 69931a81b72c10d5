//! Lists of threads that wait for something.

use std::ptr;

use super::thread::Thread;

/// First come, first served.
pub(crate) struct Waiters {
    first: *const Thread,
    last: *const Thread,
}

impl Waiters {
    pub const fn new() -> Waiters {
        Waiters { first: ptr::null(), last: ptr::null() }
    }

    pub fn is_empty(&self) -> bool {
        self.first.is_null()
    }

    pub fn push(&mut self, thread: &Thread) {
        thread.next.set(ptr::null());
        // SAFETY: who waits does not end.
        match unsafe { self.last.as_ref() } {
            None => self.first = thread,
            Some(last) => last.next.set(thread),
        }
        self.last = thread;
    }

    pub fn pop(&mut self) -> Option<&'static Thread> {
        // SAFETY: records are never freed.
        let thread = unsafe { self.first.as_ref() }?;
        self.first = thread.next.get();
        if self.first.is_null() {
            self.last = ptr::null();
        }
        Some(thread)
    }
}
