//! Bubbles.

use std::ffi::{c_char, c_int};

use topology::Level;

use super::{Record, priority, text};
use crate::hierarchy::InsertError;
use crate::runtime::{self, Bubble};

fn code(result: Result<(), InsertError>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(InsertError::HasHolder) => libc::EBUSY,
        Err(InsertError::Circle) => libc::ELOOP,
    }
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
