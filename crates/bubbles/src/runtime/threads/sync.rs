//! What makes threads wait for one another: they wait, their processor goes on.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};

use super::wait;
use crate::lock::Lock;
use crate::runtime::records::waiters::Waiters;
use crate::runtime::workers::worker::{self, Worker};

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and somebody waits or is about to.
const WANTED: u32 = 2;

/// Mutual exclusion without a value in it; ownership is handed on in the order of arrival.
pub(crate) struct RawMutex {
    state: AtomicU32,
    waiters: Lock<Waiters>,
}

impl RawMutex {
    pub fn new() -> RawMutex {
        RawMutex { state: AtomicU32::new(FREE), waiters: Lock::new(Waiters::new()) }
    }

    #[inline]
    pub fn try_lock(&self) -> bool {
        self.state.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[inline]
    pub fn lock(&self) {
        if !self.try_lock() {
            self.wait();
        }
    }

    #[cold]
    fn wait(&self) {
        wait::with(&self.waiters, |worker, waiters| {
            // Whoever hands it on does so under the lock that we have.
            if self.state.swap(WANTED, Ordering::Acquire) != FREE {
                wait::wait(worker, waiters, |waiters| waiters);
            }
        });
    }

    #[inline]
    pub fn unlock(&self) {
        if self.state.compare_exchange(HELD, FREE, Ordering::Release, Ordering::Relaxed).is_err() {
            self.hand_on();
        }
    }

    #[cold]
    fn hand_on(&self) {
        let worker = worker::enter();
        self.hand_on_inside(worker);
        worker::leave();
    }

    fn hand_on_inside(&self, worker: &Worker) {
        let mut waiters = self.waiters.lock();
        let next = waiters.pop();
        let state = match (&next, waiters.is_empty()) {
            (None, _) => FREE,
            (Some(_), true) => HELD,
            (Some(_), false) => WANTED,
        };
        self.state.store(state, Ordering::Release);
        drop(waiters);
        if let Some(thread) = next {
            wait::wake(worker, thread);
        }
    }

    /// As `unlock`, by who is in the runtime already.
    fn unlock_inside(&self, worker: &Worker) {
        if self.state.compare_exchange(HELD, FREE, Ordering::Release, Ordering::Relaxed).is_err() {
            self.hand_on_inside(worker);
        }
    }
}

/// A mutex between threads of ours.
pub struct Mutex<T> {
    raw: RawMutex,
    value: UnsafeCell<T>,
}

// SAFETY: the value is only reached by who holds the mutex.
unsafe impl<T: Send> Sync for Mutex<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Mutex<T> {}

/// Holds a [`Mutex`].
pub struct MutexGuard<'a, T> {
    mutex: &'a Mutex<T>,
}

impl<T> Mutex<T> {
    /// A mutex that nobody holds.
    pub fn new(value: T) -> Mutex<T> {
        Mutex { raw: RawMutex::new(), value: UnsafeCell::new(value) }
    }

    /// Waits until the mutex is free, and holds it; threads get it in the order in which they came. A panic
    /// of its holder frees it, and does not poison it.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.raw.lock();
        MutexGuard { mutex: self }
    }

    /// Takes the mutex without waiting; `None` where somebody holds it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.raw.try_lock().then_some(MutexGuard { mutex: self })
    }

    /// Gives up the mutex for its value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the mutex is held.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the mutex is held, and the guard is borrowed for writing.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.mutex.raw.unlock();
    }
}

/// Waiting for what is guarded by a mutex to change.
pub struct Condvar {
    waiters: Lock<Waiters>,
}

impl Default for Condvar {
    fn default() -> Condvar {
        Condvar::new()
    }
}

impl Condvar {
    /// A condition variable at which nobody waits.
    pub fn new() -> Condvar {
        Condvar { waiters: Lock::new(Waiters::new()) }
    }

    /// Lets go of the mutex until it is notified.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        let mutex = guard.mutex;
        std::mem::forget(guard);
        self.wait_raw(&mutex.raw);
        MutexGuard { mutex }
    }

    pub(crate) fn wait_raw(&self, mutex: &RawMutex) {
        let worker = worker::enter();
        let thread = worker.thread();
        worker.block(thread);
        self.waiters.lock().push(thread);
        // Whoever has it now may notify: we are in the list already.
        mutex.unlock_inside(worker);
        worker.switch_away(thread).leave();
        mutex.lock();
    }

    /// Waits as long as `condition` says.
    pub fn wait_while<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        while condition(&mut guard) {
            guard = self.wait(guard);
        }
        guard
    }

    /// Wakes the thread that has waited longest, if any waits.
    pub fn notify_one(&self) {
        wait::with(&self.waiters, |worker, mut waiters| {
            let next = waiters.pop();
            drop(waiters);
            if let Some(thread) = next {
                wait::wake(worker, thread);
            }
        });
    }

    /// Wakes all threads that wait now, the one that has waited longest first.
    pub fn notify_all(&self) {
        wait::with(&self.waiters, |worker, mut waiters| {
            let mut all = std::mem::replace(&mut *waiters, Waiters::new());
            drop(waiters);
            while let Some(thread) = all.pop() {
                wait::wake(worker, thread);
            }
        });
    }
}

/// A number of permits, taken in the order of arrival.
pub struct Semaphore {
    state: Lock<(usize, Waiters)>,
}

impl Semaphore {
    /// A semaphore with so many permits; `release` may add more.
    pub fn new(permits: usize) -> Semaphore {
        Semaphore { state: Lock::new((permits, Waiters::new())) }
    }

    /// Takes a permit; waits until there is one.
    #[inline]
    pub fn acquire(&self) {
        wait::with(&self.state, |worker, mut state| match state.0 {
            0 => wait::wait(worker, state, |state| &mut state.1),
            _ => state.0 -= 1,
        });
    }

    /// Takes a permit if there is one, without waiting; whether it did.
    pub fn try_acquire(&self) -> bool {
        wait::with(&self.state, |_, mut state| {
            let there = state.0 > 0;
            state.0 -= usize::from(there);
            there
        })
    }

    /// Gives a permit back, or a new one.
    #[inline]
    pub fn release(&self) {
        wait::with(&self.state, |worker, mut state| match state.1.pop() {
            None => state.0 += 1,
            Some(thread) => {
                drop(state);
                wait::wake(worker, thread);
            }
        });
    }
}

/// Where a number of threads wait for one another.
pub struct Barrier {
    count: usize,
    state: Lock<(usize, Waiters)>,
}

impl Barrier {
    /// A barrier for so many threads, which may be used again and again; 0 means the same as 1.
    pub fn new(count: usize) -> Barrier {
        Barrier { count, state: Lock::new((0, Waiters::new())) }
    }

    /// Waits until as many are here; true for the one that came last.
    pub fn wait(&self) -> bool {
        wait::with(&self.state, |worker, mut state| {
            state.0 += 1;
            if state.0 < self.count {
                wait::wait(worker, state, |state| &mut state.1);
                return false;
            }
            state.0 = 0;
            let mut all = std::mem::replace(&mut state.1, Waiters::new());
            drop(state);
            while let Some(thread) = all.pop() {
                wait::wake(worker, thread);
            }
            true
        })
    }
}
