//! Two pieces of work that may run side by side: a thread is made of the second where a processor wants one.
//!
//! Whoever calls `join` while a
//! processor has nothing to do makes a thread of what it offered first, which is the most work where work is
//! divided again and again (lazy task creation: Mohr, Kranz and Halstead 1991; that the owner does it when others
//! are idle: Acar, Charguéraud and Rainey 2013).

use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;

use super::handle::Builder;
use super::life::when_ended;
use crate::runtime::records::offers;
use crate::runtime::records::thread::{self, Outcome, Thread};
use crate::runtime::workers::worker;

type Offer = offers::Offer<Thread>;

/// With the work itself. The offer is the first field: its address is this one's.
#[repr(C)]
struct Second<B> {
    offer: Offer,
    work: ManuallyDrop<B>,
}

/// # Safety
///
/// The offer is that of a `Second<B>` whose work is there; nobody uses that again.
unsafe fn start<B, R>(offer: *const Offer) -> &'static Thread
where
    B: FnOnce() -> R,
{
    // SAFETY: as promised.
    let work = unsafe { ptr::read(&raw const (*offer.cast::<Second<B>>()).work) };
    Builder::new().make(thread::enter::<B, R>, ManuallyDrop::into_inner(work), 0)
}

/// Does `a` and `b`, side by side if a processor is free, and comes back with both results.
///
/// Where none is free it costs little more than two calls: `b` is called when `a` has ended. A processor that
/// becomes idle while `a` runs gets `b` when this thread comes to a `join` the next time; so it is for work that is
/// divided again and again. Work that waits for other work, and coarse work, is for [`spawn`](crate::spawn).
///
/// ```
/// use coplace_bubbles::{Config, join, run};
/// fn fib(n: u64) -> u64 {
///     if n < 2 { return n }
///     let (a, b) = join(|| fib(n - 1), || fib(n - 2));
///     a + b
/// }
/// assert_eq!(run(&Config::default(), || fib(20)).unwrap(), 6765);
/// ```
///
/// # Panics
///
/// With what `a` panicked with, else with what `b` did. If `a` panics, `b` may have run or not.
#[inline]
pub fn join<A, B, RA, RB>(a: A, b: B) -> (RA, RB)
where
    A: FnOnce() -> RA + Send,
    B: FnOnce() -> RB + Send,
    RA: Send,
    RB: Send,
{
    let (me, wanted) = worker::current_thread();
    let second = Second { offer: Offer::new(start::<B, RB>), work: ManuallyDrop::new(b) };
    me.offers.push(&second.offer);
    if wanted {
        me.offers.start_oldest();
    }
    // What `a` panics with goes on only when nobody uses what `b` borrows.
    let first = catch_unwind(AssertUnwindSafe(a));
    let Some(thread) = second.offer.thread.get() else {
        me.offers.pop(&second.offer);
        let b = ManuallyDrop::into_inner(second.work);
        return match first {
            Ok(first) => (first, b()),
            Err(payload) => resume_unwind(payload),
        };
    };
    // SAFETY: it has ended, and nobody else knows it.
    let second = when_ended(thread, || unsafe { thread.take::<Outcome<RB>>() });
    match (first, second) {
        (Ok(first), Ok(second)) => (first, second),
        (Err(payload), _) | (_, Err(payload)) => resume_unwind(payload),
    }
}
