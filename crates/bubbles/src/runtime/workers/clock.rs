//! What is to happen at some time: a kernel thread that starts when it is first needed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::hierarchy::Bubble;
use crate::runtime::records::bubble::Shared;
use crate::runtime::records::thread::Thread;

#[derive(Default)]
pub(crate) struct Clock {
    state: Mutex<State>,
    sooner: Condvar,
}

#[derive(Default)]
struct State {
    due: BinaryHeap<Reverse<(Instant, u64, Due)>>,
    count: u64,
    runs: bool,
    closed: bool,
}

/// By address, and with the number that a bubble must still have.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Due {
    /// Closes a bubble.
    Close(usize, u64),
    /// Tells those again whom a closing bubble waits for.
    Remind(usize, u64),
    /// Wakes a thread that sleeps.
    Wake(usize),
}

impl Clock {
    fn at(&self, when: Instant, what: Due) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.count += 1;
        let count = state.count;
        state.due.push(Reverse((when, count, what)));
        self.sooner.notify_one();
    }

    pub fn close_in(&self, bubble: &Bubble, slice_ns: u64) {
        // SAFETY: bubbles of the runtime are `Shared`.
        let number = unsafe { Shared::of(bubble) }.number();
        let what = Due::Close(std::ptr::from_ref(bubble) as usize, number);
        self.at(Instant::now() + Duration::from_nanos(slice_ns), what);
    }

    pub fn remind_in(&self, time: Duration, bubble: &Bubble, number: u64) {
        self.at(Instant::now() + time, Due::Remind(std::ptr::from_ref(bubble) as usize, number));
    }

    pub fn wake_at(&self, when: Instant, thread: &'static Thread) {
        self.at(when, Due::Wake(std::ptr::from_ref(thread) as usize));
    }

    /// Starts the clock where it does not run yet; `carry_out` does what is due. Not from within the runtime's
    /// locks.
    pub fn start(&'static self, carry_out: impl Fn(Due) + Send + 'static) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.runs {
            let clock = std::thread::Builder::new().name("bubbles-clock".into()).stack_size(128 * 1024);
            state.runs = clock.spawn(move || self.run(carry_out)).is_ok();
        }
    }

    pub fn close(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.sooner.notify_all();
    }

    fn run(&self, carry_out: impl Fn(Due)) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while !state.closed {
            let now = Instant::now();
            match state.due.peek() {
                Some(&Reverse((when, _, what))) if when <= now => {
                    state.due.pop();
                    drop(state);
                    carry_out(what);
                    state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                }
                Some(&Reverse((when, ..))) => {
                    let waited = self.sooner.wait_timeout(state, when - now);
                    state = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                None => state = self.sooner.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}
