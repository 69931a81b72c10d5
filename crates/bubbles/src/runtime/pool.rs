//! All workers together: who sleeps, who is woken, and when it is over.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::bubble::Shared;
use super::clock::Clock;
use super::record::{Recorder, who};
use super::worker::Worker;
use super::{fence, preempt};
use crate::hierarchy::{Bubble, Entity, Hierarchy, Levels, World};
use crate::trace::What;

/// The lists of a runtime, and through `world` its workers.
pub(crate) type Lists = Hierarchy<Pool>;

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;

/// Where a worker sleeps; on a line of its own, as others write to it.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Parking(AtomicU32);

/// Which processors may be used, by whose will.
struct Limits {
    /// Those that have a kernel thread at all: the first so many.
    there: usize,
    /// The program's own choice.
    wanted: Vec<bool>,
    /// What the node leaves to the program.
    granted: Vec<bool>,
}

impl Limits {
    /// Those that all agree on; where there is none, what is granted, and that failing what is there.
    fn usable(&self) -> Vec<bool> {
        let among = |usable: &dyn Fn(usize) -> bool| -> Option<Vec<bool>> {
            let all: Vec<bool> = (0..self.wanted.len()).map(|at| at < self.there && usable(at)).collect();
            all.contains(&true).then_some(all)
        };
        among(&|at| self.wanted[at] && self.granted[at])
            .or_else(|| among(&|at| self.granted[at]))
            .or_else(|| among(&|_| true))
            .expect("one worker is always there")
    }
}

pub(crate) struct Pool {
    pub workers: Box<[Worker]>,
    limits: Mutex<Limits>,
    /// The processors of each unit.
    processors: Vec<Range<usize>>,
    sleepers: AtomicUsize,
    /// The main function has returned.
    closing: AtomicBool,
    over: AtomicBool,
    pub clock: Clock,
    pub helpers: Helpers,
    pub recorder: Option<Recorder>,
}

impl Pool {
    pub fn new(levels: &Levels, recorder: Option<Recorder>) -> Pool {
        Pool {
            workers: (0..levels.width()).map(Worker::new).collect(),
            limits: Mutex::new(Limits {
                there: levels.width(),
                wanted: vec![true; levels.width()],
                granted: vec![true; levels.width()],
            }),
            processors: levels.units().iter().map(|unit| unit.processors.clone()).collect(),
            sleepers: AtomicUsize::new(0),
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
        let sum = |counter: fn(&Worker) -> u64| self.workers.iter().map(counter).sum::<u64>();
        let ended = sum(|worker| worker.ended.load(Ordering::Acquire));
        if ended == sum(|worker| worker.created.load(Ordering::Acquire)) {
            self.over.store(true, Ordering::SeqCst);
            fence::heavy();
            for worker in &self.workers {
                self.rouse(worker);
            }
        }
    }

    /// Sleeps until there is something on the lists that the worker may take.
    pub fn sleep(&self, lists: &Lists, worker: &Worker) {
        let word = &worker.parking.0;
        word.store(ASLEEP, Ordering::SeqCst);
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        fence::heavy();
        let patience = if self.is_over() || worker.retired.load(Ordering::SeqCst) {
            Some(Duration::ZERO)
        } else if lists.anything(worker.number) {
            // It could not be taken a moment ago, as bubbles that stay together.
            Some(Duration::from_micros(200))
        } else {
            None
        };
        if patience != Some(Duration::ZERO) {
            futex_wait(word, ASLEEP, patience);
        }
        if word.compare_exchange(ASLEEP, AWAKE, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            self.sleepers.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Whether a worker has found nothing to do and sleeps.
    #[inline]
    pub fn has_sleepers(&self) -> bool {
        self.sleepers.load(Ordering::Relaxed) > 0
    }

    /// Has a worker look whether what it runs is to give way.
    pub fn interrupt(&self, worker: &Worker) {
        let kernel_thread = worker.kernel_thread.load(Ordering::Acquire);
        if kernel_thread != 0 {
            preempt::signal(kernel_thread);
        }
    }

    /// Sleeps until the worker's processor may be used again.
    pub fn rest(&self, worker: &Worker) {
        self.end_if_over();
        if !self.is_over() {
            futex_wait(&worker.parking.0, AWAKE, Some(Duration::from_millis(50)));
        }
    }

    /// Wakes a worker if it sleeps.
    pub fn rouse(&self, worker: &Worker) -> bool {
        let word = &worker.parking.0;
        let asleep = word.load(Ordering::Relaxed) == ASLEEP
            && word.compare_exchange(ASLEEP, AWAKE, Ordering::SeqCst, Ordering::Relaxed).is_ok();
        if asleep {
            self.sleepers.fetch_sub(1, Ordering::SeqCst);
            futex_wake(word);
        }
        asleep
    }

    /// Something that only workers themselves look at has changed.
    pub fn nudge(&self, worker: &Worker) {
        if !self.rouse(worker) {
            futex_wake(&worker.parking.0);
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
            self.interrupt(worker);
            self.nudge(worker);
        }
    }

    #[cold]
    fn rouse_some(&self, unit: usize, mut count: usize) {
        let near = self.processors[unit].clone();
        let far = (0..self.workers.len()).filter(|at| !near.contains(at));
        for at in near.clone().chain(far) {
            if count == 0 {
                return;
            }
            let worker = &self.workers[at];
            if !worker.retired.load(Ordering::Relaxed) && self.rouse(worker) {
                count -= 1;
            }
        }
    }
}

impl World for Pool {
    #[inline]
    fn queued(&self, unit: usize, count: usize) {
        fence::light();
        if self.has_sleepers() {
            self.rouse_some(unit, count);
        }
    }

    fn recalled(&self, _thread: &Entity, processor: usize, preempt: bool) {
        if preempt {
            self.interrupt(&self.workers[processor]);
        }
    }

    fn emptied(lists: &Lists, bubble: &Bubble) {
        // SAFETY: bubbles of the runtime are `Shared`.
        unsafe { Shared::of(bubble) }.tell(lists);
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
        self.note(|| What::Stolen(who(entity)));
    }
}

fn futex_wait(word: &AtomicU32, value: u32, patience: Option<Duration>) {
    let time = patience.map(|patience| libc::timespec {
        tv_sec: patience.as_secs() as libc::time_t,
        tv_nsec: patience.subsec_nanos().into(),
    });
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the word and the time outlive the call.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            value,
            time,
        );
    }
}

fn futex_wake(word: &AtomicU32) {
    // SAFETY: the word outlives the call.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1);
    }
}

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
    pub thread: &'static super::thread::Thread,
}

// SAFETY: the argument is on the stack of a thread that waits until the job is done.
unsafe impl Send for Job {}

impl Helpers {
    /// Has a job done aside. A helper is started where none is idle.
    pub fn submit(&self, lists: &'static Lists, job: Job) {
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
            .spawn(move || lists.world.helpers.help(lists));
        if started.is_err() {
            // Better late than never: this worker does it, and stands still meanwhile.
            self.do_one(lists, false);
        }
    }

    fn help(&self, lists: &Lists) {
        while self.do_one(lists, true) {}
    }

    /// Whether there may be more to do.
    fn do_one(&self, lists: &Lists, patient: bool) -> bool {
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
        job.thread.wake(lists, 0);
        true
    }

    pub fn close(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.more.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_has_the_last_word_about_processors_and_one_is_always_left() {
        let flags = |text: &str| text.chars().map(|c| c == '1').collect::<Vec<_>>();
        for (there, wanted, granted, expected) in [
            (4, "1111", "1111", "1111"),
            (4, "1100", "1111", "1100"),
            (4, "1110", "0111", "0110"),
            (4, "1100", "0011", "0011"),
            (2, "1111", "1111", "1100"),
            (2, "0011", "1111", "1100"),
            (2, "1111", "0011", "1100"),
        ] {
            let limits = Limits { there, wanted: flags(wanted), granted: flags(granted) };
            assert_eq!(limits.usable(), flags(expected), "{there} {wanted} {granted}");
        }
    }
}
