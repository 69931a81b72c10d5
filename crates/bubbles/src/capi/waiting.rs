//! What makes threads wait for one another.

use std::ffi::c_int;

use crate::runtime::{Barrier, Condvar, RawMutex, Semaphore};

#[unsafe(no_mangle)]
pub extern "C" fn coplace_mutex_make() -> Box<RawMutex> {
    Box::new(RawMutex::new())
}

#[unsafe(no_mangle)]
pub extern "C" fn coplace_mutex_free(mutex: Option<Box<RawMutex>>) {
    drop(mutex);
}

#[unsafe(no_mangle)]
pub extern "C" fn coplace_mutex_lock(mutex: &RawMutex) {
    mutex.lock();
}

#[unsafe(no_mangle)]
pub extern "C" fn coplace_mutex_trylock(mutex: &RawMutex) -> c_int {
    if mutex.try_lock() { 0 } else { libc::EBUSY }
}

#[unsafe(no_mangle)]
pub extern "C" fn coplace_mutex_unlock(mutex: &RawMutex) {
    mutex.unlock();
}

#[unsafe(no_mangle)]
pub extern "C" fn coplace_cond_make() -> Box<Condvar> {
    Box::default()
}

#[unsafe(no_mangle)]
pub extern "C" fn coplace_cond_free(cond: Option<Box<Condvar>>) {
    drop(cond);
}

#[unsafe(no_mangle)]
pub extern "C" fn coplace_cond_wait(cond: &Condvar, mutex: &RawMutex) {
    cond.wait_raw(mutex);
}

#[unsafe(no_mangle)]
pub extern "C" fn coplace_cond_signal(cond: &Condvar) {
    cond.notify_one();
}

#[unsafe(no_mangle)]
pub extern "C" fn coplace_cond_broadcast(cond: &Condvar) {
    cond.notify_all();
}

#[unsafe(no_mangle)]
pub extern "C" fn coplace_sem_make(permits: usize) -> Box<Semaphore> {
    Box::new(Semaphore::new(permits))
}

#[unsafe(no_mangle)]
pub extern "C" fn coplace_sem_free(sem: Option<Box<Semaphore>>) {
    drop(sem);
}

#[unsafe(no_mangle)]
pub extern "C" fn coplace_sem_wait(sem: &Semaphore) {
    sem.acquire();
}

#[unsafe(no_mangle)]
pub extern "C" fn coplace_sem_trywait(sem: &Semaphore) -> c_int {
    if sem.try_acquire() { 0 } else { libc::EAGAIN }
}

#[unsafe(no_mangle)]
pub extern "C" fn coplace_sem_post(sem: &Semaphore) {
    sem.release();
}

#[unsafe(no_mangle)]
pub extern "C" fn coplace_barrier_make(count: usize) -> Box<Barrier> {
    Box::new(Barrier::new(count))
}

#[unsafe(no_mangle)]
pub extern "C" fn coplace_barrier_free(barrier: Option<Box<Barrier>>) {
    drop(barrier);
}

#[unsafe(no_mangle)]
pub extern "C" fn coplace_barrier_wait(barrier: &Barrier) -> c_int {
    barrier.wait().into()
}
