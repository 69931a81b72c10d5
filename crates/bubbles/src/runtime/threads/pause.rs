//! Letting others run, and being told to end.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::foreign;
use super::handle::ThreadId;
use super::life::Cancelled;
use crate::runtime::records::thread::{CANCELLED, FOREIGN, Thread};
use crate::runtime::workers::helpers::Job;
use crate::runtime::workers::{pool, worker};

/// Lets others run that are at least as urgent. A cancellation point.
#[inline]
pub fn yield_now() {
    let worker = worker::enter();
    let thread = worker.thread();
    worker.yield_processor().leave();
    end_if_cancelled(thread);
}

/// Lets a certain thread run next on this processor, if it waits for one that it may have here;
/// otherwise as [`yield_now`].
pub fn yield_to(other: ThreadId) {
    let worker = worker::enter();
    let thread = worker.thread();
    let lists = worker.lists();
    let here = match other.record() {
        Some(next) if !std::ptr::eq(next, thread) && lists.take(&next.entity, worker.number) => {
            lists.requeue(&thread.entity, worker.number);
            worker.switch_to(thread, next)
        }
        _ => worker.yield_processor(),
    };
    here.leave();
    cancellation_point();
}

/// Ends the running thread, by unwinding, if it was cancelled.
#[inline]
pub fn cancellation_point() {
    end_if_cancelled(worker::current());
}

/// The same, by who knows the running thread already.
#[inline]
pub(super) fn end_if_cancelled(thread: &Thread) {
    if thread.flags.load(Ordering::Relaxed) & CANCELLED != 0 {
        end_cancelled();
    }
}

#[cold]
fn end_cancelled() {
    let thread = worker::current();
    if thread.flags.load(Ordering::Relaxed) & FOREIGN != 0 {
        foreign::end(thread, foreign::CANCELLED);
    }
    if !std::thread::panicking() {
        thread.flags.fetch_and(!CANCELLED, Ordering::Relaxed);
        std::panic::resume_unwind(Box::new(Cancelled));
    }
}

/// Waits so long without a processor. A cancellation point.
pub fn sleep(duration: Duration) {
    let worker = worker::enter();
    let thread = worker.thread();
    let lists = worker.lists();
    pool::start_clock(lists);
    worker.block(thread);
    lists.world.clock.wake_at(Instant::now() + duration, thread);
    worker.switch_away(thread).leave();
    cancellation_point();
}

/// Does something that may block the kernel thread on another one, while this processor runs other
/// threads: a system call that waits, or code that takes locks of the kernel thread for long.
pub fn aside<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    struct Call<F, R> {
        work: Option<F>,
        result: Option<std::thread::Result<R>>,
    }
    unsafe fn call<F: FnOnce() -> R, R>(argument: *mut ()) {
        // SAFETY: it is the call on the stack of the thread that waits.
        let call = unsafe { &mut *argument.cast::<Call<F, R>>() };
        let work = call.work.take().expect("it is called once");
        call.result = Some(std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)));
    }
    fn erased<F: FnOnce() -> R, R>(_: &Call<F, R>) -> unsafe fn(*mut ()) {
        call::<F, R>
    }
    let mut waiting = Call { work: Some(work), result: None };
    let call = erased(&waiting);
    let worker = worker::enter();
    let thread = worker.thread();
    let lists = worker.lists();
    worker.block(thread);
    let job = Job { call, argument: (&raw mut waiting).cast(), thread };
    lists.world.helpers.submit(job, |thread| thread.wake(lists, 0));
    worker.switch_away(thread).leave();
    // Written by the helper through the address that it was given.
    // SAFETY: the helper is done with it.
    let result = unsafe { (&raw mut waiting.result).read_volatile() };
    std::mem::forget(waiting);
    match result.expect("the helper has called it") {
        Ok(result) => result,
        Err(payload) => std::panic::resume_unwind(payload),
    }
}
