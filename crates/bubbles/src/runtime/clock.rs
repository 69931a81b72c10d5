//! What is to happen at some time: a kernel thread that starts when it is first needed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::bubble::Shared;
use super::pool::Lists;
use super::thread::Thread;
use crate::hierarchy::Bubble;

/// After which a thread is reminded that it is to come home.
const AGAIN: Duration = Duration::from_millis(1);

#[derive(Default)]
pub(crate) struct Clock {
    state: Mutex<State>,
    sooner: Condvar,
}

#[derive(Default)]
struct State {
    due: BinaryHeap<Reverse<(Instant, u64, What)>>,
    count: u64,
    runs: bool,
    closed: bool,
}

/// By address, and with the number that it must still have.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// Closes a bubble.
    Close(usize, u64),
    /// Tells those again whom a closing bubble waits for.
    Remind(usize, u64),
    /// Wakes a thread that sleeps.
    Wake(usize),
}

impl Clock {
    fn at(&self, when: Instant, what: What) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.count += 1;
        let count = state.count;
        state.due.push(Reverse((when, count, what)));
        self.sooner.notify_one();
    }

    pub fn close_in(&self, bubble: &Bubble, slice_ns: u64) {
        // SAFETY: bubbles of the runtime are `Shared`.
        let number = unsafe { Shared::of(bubble) }.number();
        let what = What::Close(std::ptr::from_ref(bubble) as usize, number);
        self.at(Instant::now() + Duration::from_nanos(slice_ns), what);
    }

    pub fn wake_at(&self, when: Instant, thread: &'static Thread) {
        self.at(when, What::Wake(std::ptr::from_ref(thread) as usize));
    }

    /// Starts the clock where it does not run yet. Not from within the runtime's locks.
    pub fn start(&self, lists: &'static Lists) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.runs {
            let clock = std::thread::Builder::new().name("bubbles-clock".into()).stack_size(128 * 1024);
            state.runs = clock.spawn(move || lists.world.clock.run(lists)).is_ok();
        }
    }

    pub fn close(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.sooner.notify_all();
    }

    fn run(&self, lists: &'static Lists) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while !state.closed {
            let now = Instant::now();
            match state.due.peek() {
                Some(&Reverse((when, _, what))) if when <= now => {
                    state.due.pop();
                    drop(state);
                    self.carry_out(lists, what);
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

    fn carry_out(&self, lists: &'static Lists, what: What) {
        match what {
            What::Wake(thread) => {
                // SAFETY: the thread waits for this.
                let thread = unsafe { &*(thread as *const Thread) };
                lists.wake(&thread.entity, 0);
            }
            What::Close(address, number) | What::Remind(address, number) => {
                // SAFETY: the memory of bubbles stays that of bubbles.
                let bubble = unsafe { &*(address as *const Bubble) };
                // SAFETY: bubbles of the runtime are `Shared`.
                if unsafe { Shared::of(bubble) }.number() != number {
                    return;
                }
                if matches!(what, What::Close(..)) {
                    if lists.is_over(bubble) {
                        return self.close_in(bubble, bubble.wishes().slice_ns.max(1_000_000));
                    }
                    lists.close(bubble);
                }
                if lists.remind(bubble) {
                    self.at(Instant::now() + AGAIN, What::Remind(address, number));
                }
            }
        }
    }
}
