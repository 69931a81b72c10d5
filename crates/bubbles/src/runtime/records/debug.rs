//! What debuggers need to find the threads of a program (`scripts/gdb-bubbles.py`), whether it was built with
//! descriptions of its types or not: where the records are, and what lies where in them.

use std::mem::offset_of;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::thread::Thread;
use crate::hierarchy::Entity;
use crate::runtime::switching::context::Context;

/// Records that were made together, which is for good.
#[repr(C)]
pub struct Batch {
    next: *const Batch,
    records: *const Thread,
    count: usize,
}

/// The batch that was made last.
#[unsafe(no_mangle)]
pub static COPLACE_BUBBLES_BATCHES: AtomicPtr<Batch> = AtomicPtr::new(std::ptr::null_mut());

/// Its version, the bytes of a record, and offsets in it: number (0: not in use), place, bubble around it,
/// name (address and bytes; address 0: none), saved stack, frame and base register, where it goes on.
#[unsafe(no_mangle)]
pub static COPLACE_BUBBLES_LAYOUT: [usize; 10] = [
    1,
    size_of::<Thread>(),
    offset_of!(Thread, number),
    Entity::PLACE,
    Entity::HOLDER,
    Thread::NAME,
    offset_of!(Thread, context) + Context::OFFSETS[0],
    offset_of!(Thread, context) + Context::OFFSETS[1],
    offset_of!(Thread, context) + Context::OFFSETS[2],
    offset_of!(Thread, context) + Context::OFFSETS[3],
];

/// Lets debuggers know of new records.
pub(crate) fn made(records: &'static [Thread]) {
    let next = COPLACE_BUBBLES_BATCHES.load(Ordering::Acquire);
    let batch = Batch { next, records: records.as_ptr(), count: records.len() };
    // Also keeps the layout in the program: nothing else asks for it.
    std::hint::black_box(&COPLACE_BUBBLES_LAYOUT);
    // Records are made under a lock.
    COPLACE_BUBBLES_BATCHES.store(Box::into_raw(Box::new(batch)), Ordering::Release);
}
