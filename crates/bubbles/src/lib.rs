//! Threads that say who belongs together.
//!
//! A program puts its threads into bubbles, nested as it likes; a scheduler maps that tree onto the
//! tree of the machine while it runs (Thibault, *A Flexible Thread Scheduler for Hierarchical
//! Multiprocessor Machines*, COSET 2005). `docs/bubbles.md` is the way in.

#[cfg(not(feature = "shuttle"))]
mod capi;
// Only the runtime uses memory again, and hands processors on.
#[cfg_attr(feature = "shuttle", allow(dead_code))]
pub mod hierarchy;
mod lock;
pub mod model;
// For the tests that try it out in shuttle's schedules.
#[cfg(not(feature = "shuttle"))]
mod parking;
#[cfg(feature = "shuttle")]
pub mod parking;
#[cfg(not(feature = "shuttle"))]
mod runtime;
pub mod schedulers;
mod sync;
pub mod trace;

#[cfg(not(feature = "shuttle"))]
pub use runtime::*;
