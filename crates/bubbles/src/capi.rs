//! What C programs call: `include/coplace/bubbles.h` says what each does.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::time::Duration;

use topology::Level;

use crate::hierarchy::{InsertError, PRIORITIES};
use crate::runtime::{self, Bubble, Key, RawMutex, Thread, foreign};
use crate::schedulers;
use crate::{Barrier, Builder, Condvar, Config, Semaphore};

type Record = &'static Thread;

/// An address that a program hands from thread to thread.
#[derive(Clone, Copy)]
struct Address(*mut c_void);

// SAFETY: what is behind it is the program's business.
unsafe impl Send for Address {}

impl Address {
    fn get(self) -> *mut c_void {
        self.0
    }
}

/// # Safety
///
/// `text` is null or a C string that outlives the result.
unsafe fn text<'a>(text: *const c_char) -> Option<&'a str> {
    // SAFETY: as promised.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_str().unwrap_or("?"))
}

fn priority(priority: c_int) -> Option<u8> {
    u8::try_from(priority).ok().filter(|&priority| usize::from(priority) < PRIORITIES)
}

fn code(result: Result<(), InsertError>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(InsertError::HasHolder) => libc::EBUSY,
        Err(InsertError::Circle) => libc::ELOOP,
    }
}

/// # Safety
///
/// `scheduler` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coplace_run(
    scheduler: *const c_char,
    main: extern "C" fn(*mut c_void),
    argument: *mut c_void,
) -> c_int {
    // SAFETY: as promised.
    let name = unsafe { text(scheduler) }.unwrap_or("burst");
    let Some(scheduler) = schedulers::by_name(name) else { return libc::EINVAL };
    let argument = Address(argument);
    match crate::run(&Config { scheduler, ..Config::default() }, move || main(argument.get())) {
        Ok(()) => 0,
        Err(_) => libc::EBUSY,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn coplace_spawn(work: foreign::Work, argument: *mut c_void) -> Record {
    foreign::make(Builder::new(), work, argument as usize)
}

/// # Safety
///
/// `name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coplace_make(
    name: *const c_char,
    priority_wanted: c_int,
    stack_bytes: usize,
    work: foreign::Work,
    argument: *mut c_void,
) -> Option<Record> {
    let mut builder = Builder::new().dormant().priority(priority(priority_wanted)?);
    // SAFETY: as promised.
    if let Some(name) = unsafe { text(name) } {
        builder = builder.name(name);
    }
    if stack_bytes > 0 {
        builder = builder.stack_size(stack_bytes);
    }
    Some(foreign::make(builder, work, argument as usize))
}

#[unsafe(no_mangle)]
pub extern "C" fn coplace_wake(thread: Record) {
    runtime::wake_record(thread);
}

/// # Safety
///
/// `result` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coplace_join(thread: Record, result: *mut *mut c_void) {
    let returned = foreign::join(thread) as *mut c_void;
    // SAFETY: as promised.
    if let Some(result) = unsafe { result.as_mut() } {
        *result = returned;
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn coplace_detach(thread: Record) {
    runtime::detach::<usize>(thread);
}

#[unsafe(no_mangle)]
pub extern "C" fn coplace_cancel(thread: Record) {
    thread.cancel();
}

#[unsafe(no_mangle)]
pub extern "C" fn coplace_cancellation_point() {
    crate::cancellation_point();
}

#[unsafe(no_mangle)]
pub extern "C" fn coplace_exit(result: *mut c_void) -> ! {
    foreign::end(runtime::current(), result as usize)
}

#[unsafe(no_mangle)]
pub extern "C" fn coplace_yield() {
    crate::yield_now();
}

#[unsafe(no_mangle)]
pub extern "C" fn coplace_yield_to(thread: Record) {
    crate::yield_to(thread.id());
}

#[unsafe(no_mangle)]
pub extern "C" fn coplace_sleep_ns(ns: u64) {
    crate::sleep(Duration::from_nanos(ns));
}

#[unsafe(no_mangle)]
pub extern "C" fn coplace_aside(work: extern "C" fn(*mut c_void), argument: *mut c_void) {
    let argument = Address(argument);
    crate::aside(move || work(argument.get()));
}

#[unsafe(no_mangle)]
pub extern "C" fn coplace_set_priority(thread: Record, wanted: c_int) -> c_int {
    let Some(wanted) = priority(wanted) else { return libc::EINVAL };
    thread.entity.set_priority(wanted);
    0
}

/// A value of a key, destroyed as its maker wants.
struct Value {
    value: *mut c_void,
    destroy: Option<extern "C" fn(*mut c_void)>,
}

impl Drop for Value {
    fn drop(&mut self) {
        if let Some(destroy) = self.destroy.filter(|_| !self.value.is_null()) {
            destroy(self.value);
        }
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn coplace_key_make() -> usize {
    Key::new().0
}

#[unsafe(no_mangle)]
pub extern "C" fn coplace_key_set(
    key: usize,
    value: *mut c_void,
    destroy: Option<extern "C" fn(*mut c_void)>,
) {
    Key(key).set(Box::new(Value { value, destroy }));
}

#[unsafe(no_mangle)]
pub extern "C" fn coplace_key_get(key: usize) -> *mut c_void {
    Key(key).get(|value: &Value| value.value).unwrap_or(std::ptr::null_mut())
}

/// # Safety
///
/// `name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coplace_bubble_make(name: *const c_char) -> Box<Bubble> {
    // SAFETY: as promised.
    Box::new(unsafe { text(name) }.map_or_else(Bubble::new, Bubble::named))
}

#[unsafe(no_mangle)]
pub extern "C" fn coplace_bubble_free(bubble: Option<Box<Bubble>>) {
    drop(bubble);
}

#[unsafe(no_mangle)]
pub extern "C" fn coplace_bubble_insert(bubble: &Bubble, thread: Record) -> c_int {
    code(bubble.insert_record(thread))
}

#[unsafe(no_mangle)]
pub extern "C" fn coplace_bubble_insert_bubble(bubble: &Bubble, inner: &Bubble) -> c_int {
    code(bubble.insert_bubble(inner))
}

#[unsafe(no_mangle)]
pub extern "C" fn coplace_bubble_remove(thread: Record) {
    runtime::remove_record(thread);
}

#[unsafe(no_mangle)]
pub extern "C" fn coplace_bubble_remove_bubble(inner: &Bubble) {
    inner.remove();
}

#[unsafe(no_mangle)]
pub extern "C" fn coplace_bubble_wake(bubble: &Bubble) {
    bubble.wake();
}

#[unsafe(no_mangle)]
pub extern "C" fn coplace_bubble_join(bubble: &Bubble) {
    bubble.join();
}

#[unsafe(no_mangle)]
pub extern "C" fn coplace_bubble_close(bubble: &Bubble) -> c_int {
    if bubble.close() { 0 } else { libc::EAGAIN }
}

#[unsafe(no_mangle)]
pub extern "C" fn coplace_bubble_set_priority(bubble: &Bubble, wanted: c_int) -> c_int {
    let Some(wanted) = priority(wanted) else { return libc::EINVAL };
    bubble.priority(wanted);
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn coplace_bubble_burst_level(bubble: &Bubble, level: c_int) -> c_int {
    let level = match level {
        0 => Level::Node,
        1 => Level::Package,
        2 => Level::Numa,
        3 => Level::Llc,
        4 => Level::Group,
        5 => Level::Core,
        6 => Level::Pu,
        _ => return libc::EINVAL,
    };
    bubble.burst_level(level);
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn coplace_bubble_burst_processors(bubble: &Bubble, count: usize) {
    bubble.burst_processors(count);
}

#[unsafe(no_mangle)]
pub extern "C" fn coplace_bubble_elastic(bubble: &Bubble, fewest: usize, most: usize) -> c_int {
    if most < fewest {
        return libc::EINVAL;
    }
    bubble.elastic(fewest, most);
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn coplace_bubble_memory(bubble: &Bubble, node: u32) {
    bubble.memory(node);
}

#[unsafe(no_mangle)]
pub extern "C" fn coplace_bubble_slice_ns(bubble: &Bubble, ns: u64) {
    bubble.slice_ns(ns);
}

#[unsafe(no_mangle)]
pub extern "C" fn coplace_bubble_preempt(bubble: &Bubble, preempt: c_int) {
    bubble.preempt(preempt != 0);
}

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

#[unsafe(no_mangle)]
pub extern "C" fn coplace_processors() -> usize {
    crate::processors()
}

#[unsafe(no_mangle)]
pub extern "C" fn coplace_processor() -> usize {
    crate::processor()
}

/// # Safety
///
/// `processors` has `count` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coplace_set_processors(processors: *const usize, count: usize) -> c_int {
    if count == 0 {
        return libc::EINVAL;
    }
    // SAFETY: as promised.
    let wanted = unsafe { std::slice::from_raw_parts(processors, count) };
    if crate::set_processors(wanted) { 0 } else { libc::EINVAL }
}

/// # Safety
///
/// `scheduler` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coplace_use_scheduler(scheduler: *const c_char) -> c_int {
    // SAFETY: as promised.
    match unsafe { text(scheduler) }.and_then(schedulers::by_name) {
        Some(scheduler) => {
            crate::use_scheduler(scheduler);
            0
        }
        None => libc::EINVAL,
    }
}

/// # Safety
///
/// `text` has `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coplace_placement(text: *mut c_char, size: usize) -> usize {
    let placement = crate::placement();
    if size > 0 {
        let count = placement.len().min(size - 1);
        // SAFETY: as promised.
        unsafe {
            text.copy_from_nonoverlapping(placement.as_ptr().cast(), count);
            *text.add(count) = 0;
        }
    }
    placement.len()
}
