//! What a worker keeps for the next threads, so that it asks nobody: records, and stacks that are warm yet.

use std::cell::{Cell, UnsafeCell};

use crate::runtime::records::spare;
use crate::runtime::records::thread::Thread;
use crate::runtime::switching::sanitize;
use crate::runtime::switching::stack::{self, Stack};

/// Stacks and records that a worker keeps for itself; half of them go when it has more.
const KEPT: usize = 256;
const REFILLED: usize = 64;

/// Only the worker's own kernel thread uses it, and not twice at a time.
pub(crate) struct Kept {
    /// The stack of the thread that ended last: it may still be on it.
    spent: Cell<Stack>,
    stacks: UnsafeCell<Vec<Stack>>,
    threads: UnsafeCell<Vec<&'static Thread>>,
}

impl Kept {
    pub fn new() -> Kept {
        Kept {
            spent: Cell::new(Stack::NONE),
            stacks: UnsafeCell::new(Vec::with_capacity(2 * KEPT)),
            threads: UnsafeCell::new(Vec::with_capacity(2 * KEPT)),
        }
    }

    /// A record that nobody else knows.
    #[inline]
    pub fn acquire_thread(&self) -> &'static Thread {
        // SAFETY: only this kernel thread uses it, and not twice at a time.
        let threads = unsafe { &mut *self.threads.get() };
        threads.pop().unwrap_or_else(|| {
            spare::refill(threads, REFILLED);
            threads.pop().expect("it was refilled")
        })
    }

    /// Takes a record back.
    #[inline]
    pub fn release_thread(&self, thread: &'static Thread) {
        // SAFETY: as in `acquire_thread`.
        let threads = unsafe { &mut *self.threads.get() };
        if threads.len() >= 2 * KEPT {
            spare::recycle(threads.drain(..KEPT));
        }
        threads.push(thread);
    }

    /// A stack for a thread that wants so many bytes, 0 for the common size.
    #[inline]
    pub fn acquire_stack(&self, bytes: usize) -> Stack {
        match bytes {
            // Warm yet, and done with: who ended on it is left for good by the switch that comes now.
            0 if self.spent.get().is_common() && sanitize::MAY_BE_SPENT => self.spent.replace(Stack::NONE),
            0 => {
                // SAFETY: as in `acquire_thread`.
                let stacks = unsafe { &mut *self.stacks.get() };
                if stacks.is_empty() {
                    Kept::refill(stacks);
                }
                stacks.pop().expect("it was refilled")
            }
            bytes => stack::own(bytes).unwrap_or_else(|error| no_stack(bytes, &error)),
        }
    }

    /// Takes the stack of a thread that has ended, and is on it yet: it goes to the next one but one, or to a
    /// thread that begins right now.
    #[inline]
    pub fn spend_stack(&self, stack: Stack) {
        self.release_stack(self.spent.replace(stack));
    }

    /// Takes a stack back that is not in use any more.
    #[inline]
    fn release_stack(&self, stack: Stack) {
        if stack.is_common() {
            // SAFETY: as in `acquire_thread`.
            let stacks = unsafe { &mut *self.stacks.get() };
            if stacks.len() >= 2 * KEPT {
                stack::recycle(stacks.drain(..KEPT));
            }
            stacks.push(stack);
        } else if stack != Stack::NONE {
            stack::unmap(stack);
        }
    }

    #[cold]
    fn refill(stacks: &mut Vec<Stack>) {
        if let Err(error) = stack::refill(stacks, REFILLED) {
            no_stack(stack::SIZE, &error);
        }
    }

    /// Gives everything to all, when no thread of ours is left that could use it.
    pub fn release_all(&self) {
        self.spend_stack(Stack::NONE);
        // SAFETY: as in `acquire_thread`.
        unsafe {
            spare::recycle((*self.threads.get()).drain(..));
            stack::recycle((*self.stacks.get()).drain(..));
        }
    }
}

fn no_stack(bytes: usize, error: &std::io::Error) -> ! {
    eprintln!(
        "coplace-bubbles: no stack of {bytes} bytes for another thread: {error}. Threads that have begun keep \
         their stacks; let fewer begin at a time, raise vm.max_map_count if it is reached, or give more memory."
    );
    std::process::abort()
}
