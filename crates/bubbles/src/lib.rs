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
#[cfg(not(feature = "shuttle"))]
mod runtime;
pub mod schedulers;
mod sync;

#[cfg(not(feature = "shuttle"))]
pub use runtime::*;
