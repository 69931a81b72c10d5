//! Workers that sleep and are woken, in shuttle's schedules: no wake-up is lost, and each of the faults that
//! `coplace_bubbles::parking` names is found.
//!
//! Shuttle's atomics take effect at once, and so would hide what the fences are for. What is queued is therefore
//! a store that others see late: at the latest when it is released by a wake-up or drained by a heavy fence, else
//! when its processor gets to it. A lost wake-up leaves everybody asleep, which shuttle calls a deadlock.

use std::sync::Arc;
use std::time::Duration;

use coplace_bubbles::parking::{Found, Parking, Sleepers, System};
use shuttle::rand::Rng;
use shuttle::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use shuttle::sync::{Condvar, Mutex};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    NoHeavyFence,
    ChecksBeforeItAnnounces,
    CountsBeforeItQueues,
    SleepsWithoutComparing,
    RemovesWithoutNotice,
}

struct Memory {
    /// What each waker has queued and nobody else sees yet.
    late: Vec<usize>,
    /// What is queued, as all see it.
    queued: usize,
}

impl Memory {
    fn drain(&mut self, waker: usize) {
        self.queued += std::mem::take(&mut self.late[waker]);
    }
}

/// The kernel, and memory as far as it makes stores visible late.
struct Machine {
    fault: Fault,
    memory: Mutex<Memory>,
    /// Addresses of words at which somebody sleeps.
    asleep: Mutex<Vec<usize>>,
    changed: Condvar,
}

impl Machine {
    fn drain(&self, waker: usize) {
        self.memory.lock().unwrap().drain(waker);
    }
}

fn address(word: &AtomicU32) -> usize {
    std::ptr::from_ref(word) as usize
}

impl System for Machine {
    /// A compiler's fence: the processor makes nothing visible.
    fn light(&self) {}

    fn heavy(&self) {
        if self.fault != Fault::NoHeavyFence {
            let mut memory = self.memory.lock().unwrap();
            (0..memory.late.len()).for_each(|waker| memory.drain(waker));
        }
    }

    fn wait(&self, word: &AtomicU32, value: u32, patience: Option<Duration>) {
        let mut asleep = self.asleep.lock().unwrap();
        if self.fault != Fault::SleepsWithoutComparing && word.load(Ordering::SeqCst) != value {
            return;
        }
        if patience.is_some() {
            drop(asleep);
            return shuttle::thread::yield_now();
        }
        asleep.push(address(word));
        while asleep.contains(&address(word)) {
            asleep = self.changed.wait(asleep).unwrap();
        }
    }

    fn wake(&self, word: &AtomicU32) {
        self.asleep.lock().unwrap().retain(|&sleeper| sleeper != address(word));
        self.changed.notify_all();
    }
}

struct Worker {
    parking: Parking,
    retired: AtomicBool,
}

struct World {
    sleepers: Sleepers<Machine>,
    workers: Vec<Worker>,
    left: AtomicUsize,
    over: AtomicBool,
}

impl World {
    fn new(fault: Fault, workers: usize, wakers: usize) -> World {
        let worker = |_| Worker { parking: Parking::default(), retired: AtomicBool::new(false) };
        let memory = Mutex::new(Memory { late: vec![0; wakers], queued: 0 });
        let machine = Machine { fault, memory, asleep: Mutex::default(), changed: Condvar::new() };
        World {
            sleepers: Sleepers::new(machine),
            workers: (0..workers).map(worker).collect(),
            left: AtomicUsize::new(wakers),
            over: AtomicBool::new(false),
        }
    }

    fn machine(&self) -> &Machine {
        &self.sleepers.system
    }

    fn rouse_one(&self) {
        let usable = self.workers.iter().filter(|worker| !worker.retired.load(Ordering::SeqCst));
        self.sleepers.rouse_some(usable.map(|worker| &worker.parking), 1);
    }

    /// Queues one thing, as `Pool::queued` is told of it.
    fn queue(&self, waker: usize) {
        let early = self.machine().fault == Fault::CountsBeforeItQueues;
        let expected_early = early && self.sleepers.expect_any();
        self.machine().memory.lock().unwrap().late[waker] += 1;
        if shuttle::rand::thread_rng().gen_range(0..2) == 0 {
            self.machine().drain(waker);
        }
        if if early { expected_early } else { self.sleepers.expect_any() } {
            // Turning a worker's word releases what was stored before.
            self.machine().drain(waker);
            self.rouse_one();
        }
        self.machine().drain(waker);
    }

    fn pop(&self) -> bool {
        let mut memory = self.machine().memory.lock().unwrap();
        let there = memory.queued > 0;
        memory.queued -= usize::from(there);
        there
    }

    fn recheck(&self, worker: &Worker) -> Found {
        if self.over.load(Ordering::SeqCst) || worker.retired.load(Ordering::SeqCst) {
            Found::Stop
        } else if self.machine().memory.lock().unwrap().queued > 0 {
            Found::Something
        } else {
            Found::Nothing
        }
    }

    /// As `Worker::work`, until everything that is ever queued was taken.
    fn work(&self, number: usize) {
        let worker = &self.workers[number];
        while !self.over.load(Ordering::SeqCst) {
            if worker.retired.load(Ordering::SeqCst) {
                // It rests, and takes nothing any more.
                return;
            } else if self.pop() {
                if self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
                    self.over.store(true, Ordering::SeqCst);
                    self.machine().heavy();
                    for worker in &self.workers {
                        self.sleepers.rouse(&worker.parking);
                    }
                }
            } else if self.machine().fault == Fault::ChecksBeforeItAnnounces {
                let found = self.recheck(worker);
                self.sleepers.sleep(&worker.parking, || found);
            } else {
                self.sleepers.sleep(&worker.parking, || self.recheck(worker));
            }
        }
    }

    /// Takes a worker's processor away, as `Pool::limit` does.
    fn remove(&self, number: usize) {
        self.workers[number].retired.store(true, Ordering::SeqCst);
        if self.machine().fault != Fault::RemovesWithoutNotice {
            for worker in &self.workers {
                self.sleepers.nudge(&worker.parking);
            }
        }
    }
}

/// Everything that `wakers` queue, one thing each, is taken by workers that sleep in between; or nobody ends.
fn everything_is_processed(fault: Fault, workers: usize, wakers: usize, removes: bool) {
    let tried = move || {
        let world = Arc::new(World::new(fault, workers, wakers));
        let mut all = Vec::new();
        let mut spawn = |what: Box<dyn Fn(&World) + Send>| {
            let world = world.clone();
            all.push(shuttle::thread::spawn(move || what(&world)));
        };
        (0..workers).for_each(|number| spawn(Box::new(move |world| world.work(number))));
        (0..wakers).for_each(|number| spawn(Box::new(move |world| world.queue(number))));
        if removes {
            spawn(Box::new(|world| world.remove(0)));
        }
        all.into_iter().for_each(|thread| thread.join().expect("it ends"));
    };
    shuttle::check_random(tried, super::schedules());
    // Runs one thread for long while another stands at the wrong place, which hardly happens by chance.
    shuttle::check_pct(tried, super::schedules(), 3);
}

#[test]
fn no_wake_up_is_lost() {
    everything_is_processed(Fault::None, 1, 1, false);
    everything_is_processed(Fault::None, 2, 2, false);
    everything_is_processed(Fault::None, 3, 2, false);
}

#[test]
fn no_wake_up_is_lost_to_a_removed_worker() {
    everything_is_processed(Fault::None, 2, 1, true);
    everything_is_processed(Fault::None, 3, 2, true);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_missing_heavy_fence_is_found() {
    everything_is_processed(Fault::NoHeavyFence, 1, 1, false);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_recheck_before_the_announcement_is_found() {
    everything_is_processed(Fault::ChecksBeforeItAnnounces, 1, 1, false);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_count_read_before_the_queueing_is_found() {
    everything_is_processed(Fault::CountsBeforeItQueues, 1, 1, false);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_futex_that_does_not_compare_is_found() {
    everything_is_processed(Fault::SleepsWithoutComparing, 1, 1, false);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_processor_removed_without_notice_is_found() {
    everything_is_processed(Fault::RemovesWithoutNotice, 2, 1, true);
}
