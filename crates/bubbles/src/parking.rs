//! How a worker that has nothing to do sleeps, and how it is woken when there is something.
//!
//! # The protocol
//!
//! Each worker has a [`Parking`], a word that is `AWAKE` or `ASLEEP`; all of them together have a count of
//! sleepers ([`Sleepers`]). Whoever queues looks at the count alone, and does so at every queueing; workers
//! sleep hardly ever.
//!
//! | the worker, before it sleeps ([`Sleepers::sleep`]) | who has work for it ([`Sleepers::expect_any`], [`Sleepers::rouse`]) |
//! |---|---|
//! | S1: announces itself: the count grows, then its word becomes `ASLEEP` | W1: queues, under the list's lock |
//! | S2: **heavy** fence | W2: **light** fence |
//! | S3: looks once more whether there is something for it | W3: looks at the count; goes its way if it is 0 |
//! | S4: if not, sleeps *while its word is* `ASLEEP` (a futex) | W4: turns a word from `ASLEEP` to `AWAKE`; if that was its doing, takes one off the count and wakes the futex |
//! | S5: if its word is `ASLEEP` yet, turns it to `AWAKE` and takes one off the count | |
//!
//! # Why no wake-up is lost
//!
//! A wake-up would be lost if a worker slept although something is queued that was queued after it had
//! looked for the last time, and nobody woke it.
//!
//! 1. *The worker does not see the work, and the waker does not see the worker*: S3 misses W1, and W3 misses S1.
//!    That is each side's load overtaking its own store, which the two fences forbid. The light one keeps
//!    only the compiler from it; the heavy one has the kernel run a full barrier on every processor on which a
//!    thread of this process runs (`membarrier`), at some moment between S1 and S3. On the waker's processor that
//!    moment lies before W1's store is done or after it. If after, the barrier has made it visible, and S3
//!    sees the work. If before, W3 and W4 come after the barrier, and so after S1, and see count and word. (Where the kernel
//!    has no `membarrier`, both are full fences, and the same follows from their order.)
//! 2. *The waker sees the worker and wakes it before it sleeps*: W4 has changed the word, and S4 compares it: the
//!    kernel does that under the same lock under which it wakes, and so the worker does not begin to sleep.
//! 3. *The waker wakes somebody else*: there were more sleepers than things queued. It wakes as many as it
//!    has queued things for, and each word turns from `ASLEEP` to `AWAKE` once, so that two wakers never count
//!    the same worker as theirs. Whoever it wakes looks through its lists before it sleeps again. That it
//!    finds what was queued, or somebody else has taken that, holds for workers that may take it, and lists that
//!    workers do not look at are closed (`Hierarchy::set_processors`).
//! 4. *The count is less than there are sleepers*, and so W3 sees none although one sleeps. It grows before a word
//!    becomes `ASLEEP`, and shrinks after a word has become `AWAKE`, once for each time: it is never less than there
//!    are words `ASLEEP`. (Were the word first, whoever woke that worker in between would take one off the count for
//!    a worker that is not in it yet, and hide another one that sleeps until it is.)
//! 5. *The worker is told to stop* (the run is over, its processor was taken away): these are flags, which are set
//!    where others queue (W1) and looked at in S3; then every worker is woken, behind a fence.
//! 6. *The waker wakes a worker that is told to stop at the same moment*, and so wakes nobody who would take what it
//!    has queued: whoever takes a processor away wakes all workers afterwards, and each looks.
//!
//! Two sleeps end by themselves. Where S3 sees something that the worker could not take a moment ago (a bubble
//! that stays together), it looks again after a while. A worker whose processor was taken away ([`rest`]) is `AWAKE`
//! to all others, so that nobody counts on it; [`nudge`] may come just before it sleeps and be lost, and so it looks
//! at its flags twenty times a second.
//!
//! `tests/sleeping` (`cargo test -p coplace-bubbles --features shuttle --test schedules sleeping`) tries this code
//! out in shuttle's schedules, with stores that become visible late. It also shows that it finds the loss where the
//! heavy fence is left out (1), the look comes before the announcement (1), the count is looked at before the
//! queueing (1), the futex does not compare (2), and a processor is taken away in silence (6). The wrong order of 4
//! shows where a worker is taken away.
//!
//! [`rest`]: Sleepers::rest
//! [`nudge`]: Sleepers::nudge

use std::time::Duration;

use crate::sync::{AtomicU32, AtomicUsize, Ordering};

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;

/// How long a worker sleeps that sees something which it could not take a moment ago.
const SOON: Duration = Duration::from_micros(200);
/// How long one whose processor was taken away sleeps at a time.
const REST: Duration = Duration::from_millis(50);

/// What the protocol takes from the system. Known when it is compiled: it costs nothing beside what it does.
pub trait System {
    /// Orders a store before a later load, on the side of those that do it all the time.
    fn light(&self);
    /// The same on the side of those that do it hardly ever.
    fn heavy(&self);
    /// Sleeps while the word has this value, until it is woken or has no patience any more.
    fn wait(&self, word: &AtomicU32, value: u32, patience: Option<Duration>);
    /// Wakes one that sleeps at this word.
    fn wake(&self, word: &AtomicU32);
}

/// Where a worker sleeps; on a line of its own, as others write to it.
#[derive(Default)]
#[repr(align(128))]
pub struct Parking(AtomicU32);

/// What a worker finds when it looks for the last time before it sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing: it may sleep.
    Nothing,
    /// Something that it may be unable to take yet.
    Something,
    /// It is not to sleep: its flags have changed.
    Stop,
}

/// All workers that sleep.
pub struct Sleepers<S> {
    count: AtomicUsize,
    /// By which they sleep and are woken.
    pub system: S,
}

impl<S: System> Sleepers<S> {
    /// Nobody sleeps yet.
    pub fn new(system: S) -> Sleepers<S> {
        Sleepers { count: AtomicUsize::new(0), system }
    }

    /// Sleeps until it is woken, unless a last look finds something.
    pub fn sleep(&self, worker: &Parking, recheck: impl FnOnce() -> Found) {
        self.count.fetch_add(1, Ordering::SeqCst);
        worker.0.store(ASLEEP, Ordering::SeqCst);
        self.system.heavy();
        match recheck() {
            Found::Nothing => self.system.wait(&worker.0, ASLEEP, None),
            Found::Something => self.system.wait(&worker.0, ASLEEP, Some(SOON)),
            Found::Stop => {}
        }
        if worker.0.compare_exchange(ASLEEP, AWAKE, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            self.count.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Whether a worker sleeps, for who has just queued something.
    #[inline]
    pub fn expect_any(&self) -> bool {
        self.system.light();
        self.any()
    }

    /// Whether a worker has found nothing to do and sleeps, or is about to.
    #[inline]
    pub fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Wakes a worker if it sleeps.
    pub fn rouse(&self, worker: &Parking) -> bool {
        let word = &worker.0;
        let asleep = word.load(Ordering::Relaxed) == ASLEEP
            && word.compare_exchange(ASLEEP, AWAKE, Ordering::SeqCst, Ordering::Relaxed).is_ok();
        if asleep {
            self.count.fetch_sub(1, Ordering::SeqCst);
            self.system.wake(word);
        }
        asleep
    }

    /// Wakes the first `count` of these that sleep.
    pub fn rouse_some<'a>(&self, workers: impl Iterator<Item = &'a Parking>, count: usize) {
        let _ = workers.filter(|worker| self.rouse(worker)).take(count).count();
    }

    /// Sleeps a while, unless it is nudged: its processor may not be used.
    pub fn rest(&self, worker: &Parking) {
        self.system.wait(&worker.0, AWAKE, Some(REST));
    }

    /// Something that only workers themselves look at has changed.
    pub fn nudge(&self, worker: &Parking) {
        self.system.light();
        if !self.rouse(worker) {
            self.system.wake(&worker.0);
        }
    }
}
