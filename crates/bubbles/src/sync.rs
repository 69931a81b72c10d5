//! The atomics of the shared structures: the hardware's, or shuttle's where schedules are tried out.

#[cfg(not(feature = "shuttle"))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicUsize, Ordering};

#[cfg(feature = "shuttle")]
pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicUsize, Ordering};

/// A moment of waiting for another processor, the `turn`th in a row.
#[cfg(not(feature = "shuttle"))]
pub(crate) fn pause(turn: u32) {
    // The holder of a lock may be off its processor, where there are more workers than processors.
    if turn % 64 == 63 {
        std::thread::yield_now();
    } else {
        std::hint::spin_loop();
    }
}

#[cfg(feature = "shuttle")]
pub(crate) fn pause(_turn: u32) {
    shuttle::thread::yield_now();
}
