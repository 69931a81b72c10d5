//! Lists of threads that wait for something.

use std::ptr;

use super::thread::Thread;
use super::worker::{self, Worker};
use crate::lock::{Guard, Lock};

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

/// Has the running thread wait in a list that is part of what `guard` locks; comes back when it was
/// taken out and woken. To be called between `enter` and `leave`.
pub(crate) fn wait<T>(
    worker: &'static Worker,
    mut guard: Guard<'_, T>,
    list: impl FnOnce(&mut T) -> &mut Waiters,
) {
    let thread = worker.thread();
    worker.block(thread);
    list(&mut guard).push(thread);
    drop(guard);
    worker.switch_away(thread);
}

/// Something that is guarded by a lock whose holder is in the runtime, so that nothing interrupts it.
pub(crate) fn with<T, R>(lock: &Lock<T>, f: impl FnOnce(&'static Worker, Guard<'_, T>) -> R) -> R {
    let worker = worker::enter();
    let result = f(worker, lock.lock());
    worker::leave();
    result
}

/// Wakes a thread that was taken out of a list.
pub(crate) fn wake(worker: &Worker, thread: &Thread) {
    thread.wake(worker.lists(), worker.number);
}
