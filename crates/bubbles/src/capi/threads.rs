//! Threads.

use std::ffi::{c_char, c_int, c_void};
use std::time::Duration;

use super::{Address, Record, priority, text};
use crate::runtime::{self, Builder, Key, foreign};

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
pub extern "C" fn coplace_own_rounding(thread: Record) {
    thread.context.set_rounds(true);
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
    runtime::cancellation_point();
}

#[unsafe(no_mangle)]
pub extern "C" fn coplace_exit(result: *mut c_void) -> ! {
    foreign::end(runtime::current(), result as usize)
}

#[unsafe(no_mangle)]
pub extern "C" fn coplace_yield() {
    runtime::yield_now();
}

#[unsafe(no_mangle)]
pub extern "C" fn coplace_yield_to(thread: Record) {
    runtime::yield_to(thread.id());
}

#[unsafe(no_mangle)]
pub extern "C" fn coplace_self() -> Record {
    runtime::current()
}

#[unsafe(no_mangle)]
pub extern "C" fn coplace_park() {
    runtime::park();
}

#[unsafe(no_mangle)]
pub extern "C" fn coplace_unpark(thread: Record) {
    runtime::unpark_record(thread);
}

#[unsafe(no_mangle)]
pub extern "C" fn coplace_sleep_ns(ns: u64) {
    runtime::sleep(Duration::from_nanos(ns));
}

#[unsafe(no_mangle)]
pub extern "C" fn coplace_aside(work: extern "C" fn(*mut c_void), argument: *mut c_void) {
    let argument = Address(argument);
    runtime::aside(move || work(argument.get()));
}

#[unsafe(no_mangle)]
pub extern "C" fn coplace_set_priority(thread: Record, wanted: c_int) -> c_int {
    let Some(wanted) = priority(wanted) else { return libc::EINVAL };
    thread.set_priority(wanted);
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
