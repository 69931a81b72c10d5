//! All workers together: who sleeps, who is woken, and when it is over.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::clock::{Clock, Due};
use super::helpers::Helpers;
use super::limits::Limits;
use super::recorder::Recorder;
use super::status::Status;
use super::system::Linux;
use crate::hierarchy::{Bubble, Entity, Hierarchy, Levels, World};
use crate::parking::{Found, Sleepers, System};
use crate::runtime::records::bubble::Shared;
use crate::runtime::records::thread::Thread;
use crate::runtime::records::trace_id;
use crate::trace::What;

/// The lists of a runtime, and through `world` its workers.
pub(crate) type Lists = Hierarchy<Pool>;

/// After which a thread is reminded that it is to come home.
const AGAIN: Duration = Duration::from_millis(1);

pub(crate) struct Pool {
    /// What all may see of each worker.
    pub workers: Box<[&'static Status]>,
    limits: Mutex<Limits>,
    /// The processors of each unit.
    processors: Vec<Range<usize>>,
    sleepers: Sleepers<Linux>,
    /// The main function has returned.
    closing: AtomicBool,
    over: AtomicBool,
    pub clock: Clock,
    pub helpers: Helpers,
    pub recorder: Option<Recorder>,
}

impl Pool {
    pub fn new(levels: &Levels, workers: Box<[&'static Status]>, recorder: Option<Recorder>) -> Pool {
        Pool {
            workers,
            limits: Mutex::new(Limits::new(levels.width())),
            processors: levels.units().iter().map(|unit| unit.processors.clone()).collect(),
            sleepers: Sleepers::new(Linux),
            closing: AtomicBool::new(false),
            over: AtomicBool::new(false),
            clock: Clock::default(),
            helpers: Helpers::default(),
            recorder,
        }
    }

    /// Records what happens, where that is wanted.
    #[inline]
    pub fn note(&self, what: impl FnOnce() -> What) {
        if let Some(recorder) = &self.recorder {
            recorder.note(what());
        }
    }

    #[inline]
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// From now on it is over when all threads have ended.
    pub fn close(&self) {
        self.closing.store(true, Ordering::SeqCst);
    }

    pub fn end_if_over(&self) {
        if !self.closing.load(Ordering::SeqCst) {
            return;
        }
        // First those that ended: who has ended was created before.
        let sum =
            |counter: fn(&Status) -> u64| self.workers.iter().map(|worker| counter(worker)).sum::<u64>();
        let ended = sum(|worker| worker.ended.load(Ordering::Acquire));
        if ended == sum(|worker| worker.created.load(Ordering::Acquire)) {
            self.over.store(true, Ordering::SeqCst);
            self.sleepers.system.heavy();
            for worker in &self.workers {
                self.sleepers.rouse(&worker.parking);
            }
        }
    }

    /// Sleeps until there is something on the lists that the worker may take (see `parking`).
    pub fn sleep(&self, lists: &Lists, worker: &Status) {
        self.sleepers.sleep(&worker.parking, || {
            if self.is_over() || worker.retired.load(Ordering::SeqCst) {
                Found::Stop
            } else if lists.anything(worker.number) {
                // It could not be taken a moment ago, as bubbles that stay together.
                Found::Something
            } else {
                Found::Nothing
            }
        });
    }

    /// Whether a worker has found nothing to do and sleeps.
    #[inline]
    pub fn has_sleepers(&self) -> bool {
        self.sleepers.any()
    }

    /// Sleeps until the worker's processor may be used again.
    pub fn rest(&self, worker: &Status) {
        self.end_if_over();
        if !self.is_over() {
            self.sleepers.rest(&worker.parking);
        }
    }

    /// Has only these processors used, as far as the program is concerned.
    pub fn want(&self, lists: &Lists, wanted: &dyn Fn(usize) -> bool) {
        self.limit(lists, |limits| limits.wanted = (0..limits.wanted.len()).map(wanted).collect());
    }

    /// The same, as far as the node is.
    pub fn grant(&self, lists: &Lists, granted: &[bool]) {
        self.limit(lists, |limits| limits.granted = granted.to_vec());
    }

    /// No more workers than these could be started.
    pub fn are_there(&self, lists: &Lists, count: usize) {
        self.limit(lists, |limits| limits.there = count);
    }

    fn limit(&self, lists: &Lists, change: impl FnOnce(&mut Limits)) {
        // Held to the end: who comes later finds the lists as this one leaves them.
        let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut limits);
        let usable = limits.usable();
        for worker in &self.workers {
            worker.retired.store(!usable[worker.number], Ordering::SeqCst);
        }
        lists.set_processors(&|at| usable[at]);
        for worker in &self.workers {
            worker.interrupt();
            self.sleepers.nudge(&worker.parking);
        }
    }

    #[cold]
    fn rouse_some(&self, unit: usize, count: usize) {
        let near = self.processors[unit].clone();
        let far = (0..self.workers.len()).filter(|at| !near.contains(at));
        let all = near.clone().chain(far).map(|at| self.workers[at]);
        let usable = all.filter(|worker| !worker.retired.load(Ordering::Relaxed));
        self.sleepers.rouse_some(usable.map(|worker| &worker.parking), count);
    }
}

impl World for Pool {
    #[inline]
    fn queued(&self, unit: usize, count: usize) {
        if self.sleepers.expect_any() {
            self.rouse_some(unit, count);
        }
    }

    fn recalled(&self, _thread: &Entity, processor: usize, preempt: bool) {
        if preempt {
            self.workers[processor].interrupt();
        }
    }

    fn emptied(lists: &Lists, bubble: &Bubble) {
        // SAFETY: bubbles of the runtime are `Shared`.
        unsafe { Shared::of(bubble) }.notify(lists, |thread| thread.wake(lists, 0));
    }

    fn burst(&self, bubble: &Bubble, unit: usize, _processor: usize) {
        // SAFETY: bubbles of the runtime are `Shared`.
        self.note(|| What::Burst(unsafe { Shared::of(bubble) }.number(), unit));
        let slice_ns = bubble.wishes().slice_ns;
        if slice_ns > 0 {
            self.clock.close_in(bubble, slice_ns);
        }
    }

    fn stolen(&self, entity: &Entity, _processor: usize) {
        self.note(|| What::Stolen(trace_id(entity)));
    }
}

impl Thread {
    /// Wakes it from a processor, or 0 from none of them.
    #[inline]
    pub fn wake(&self, lists: &Lists, processor: usize) {
        lists.world.note(|| What::Wake(self.trace_id()));
        lists.wake(&self.entity, processor);
    }
}

/// Has what is due carried out from now on. Not from within the runtime's locks.
pub(crate) fn start_clock(lists: &'static Lists) {
    lists.world.clock.start(move |due| carry_out(lists, due));
}

fn carry_out(lists: &Lists, due: Due) {
    let clock = &lists.world.clock;
    match due {
        Due::Wake(thread) => {
            // SAFETY: the thread waits for this.
            let thread = unsafe { &*(thread as *const Thread) };
            thread.wake(lists, 0);
        }
        Due::Close(address, number) | Due::Remind(address, number) => {
            // SAFETY: the memory of bubbles stays that of bubbles.
            let bubble = unsafe { &*(address as *const Bubble) };
            // SAFETY: bubbles of the runtime are `Shared`.
            if unsafe { Shared::of(bubble) }.number() != number {
                return;
            }
            if matches!(due, Due::Close(..)) {
                if lists.is_over(bubble) {
                    return clock.close_in(bubble, bubble.wishes().slice_ns.max(1_000_000));
                }
                lists.close(bubble);
            }
            if lists.remind(bubble) {
                clock.remind_in(AGAIN, bubble, number);
            }
        }
    }
}
