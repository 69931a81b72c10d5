//! Waiting until another thread says so, by the thread's own name and nothing else: what other ways of waiting can
//! be made of.

use std::sync::atomic::Ordering;

use super::handle::{JoinHandle, ThreadId};
use super::pause::end_if_cancelled;
use super::wait;
use crate::runtime::records::thread::{NO_PERMIT, PARKED, PERMIT, Thread};
use crate::runtime::workers::worker::{self, Worker};
use crate::trace::What;

/// Waits until the thread is unparked ([`ThreadId::unpark`]); comes back at once if that has happened since it
/// parked the last time. What was written before it was unparked is seen afterwards. A cancellation point.
///
/// As `std::thread::park` it may come back without that (an `unpark` that names a thread which ends at that moment may
/// meet another one, made in its place): look again whether what is waited for is there.
#[inline]
pub fn park() {
    let worker = worker::enter();
    let thread = worker.thread();
    // Only the thread itself takes its permit.
    if thread.permit.load(Ordering::Relaxed) == PERMIT {
        thread.permit.swap(NO_PERMIT, Ordering::Acquire);
        worker.leave();
    } else {
        wait_for_permit(worker, thread).leave();
    }
    end_if_cancelled(thread);
}

#[inline]
fn wait_for_permit(worker: &'static Worker, thread: &Thread) -> &'static Worker {
    // Whoever finds it parked wakes it, and so it has to wait by then, as far as the lists know.
    worker.block(thread);
    let parked = thread.permit.compare_exchange(NO_PERMIT, PARKED, Ordering::AcqRel, Ordering::Relaxed);
    if parked.is_ok() {
        return worker.switch_away(thread);
    }
    thread.permit.swap(NO_PERMIT, Ordering::Acquire);
    worker.note(|| What::Wake(thread.trace_id()));
    thread.entity.activate(worker.number);
    worker
}

/// Lets a thread that has not been given up pass its `park`, the one in which it waits or the next one.
#[inline]
pub(crate) fn unpark_record(thread: &Thread) {
    let worker = worker::enter();
    give_permit(worker, thread);
    worker.leave();
}

#[inline]
fn give_permit(worker: &Worker, thread: &Thread) {
    // A permit that is there is written again, so that the thread sees what was written before either.
    let next = |permit| Some(if permit == PARKED { NO_PERMIT } else { PERMIT });
    let before = thread.permit.fetch_update(Ordering::AcqRel, Ordering::Relaxed, next);
    if before == Ok(PARKED) {
        wait::wake(worker, thread);
    }
}

impl ThreadId {
    /// Lets the thread come back from [`park`](crate::park), or pass it the next time; once, however often it is
    /// called before. Nothing happens where it has ended.
    #[inline]
    pub fn unpark(&self) {
        let worker = worker::enter();
        if let Some(thread) = self.record() {
            give_permit(worker, thread);
        }
        worker.leave();
    }
}

impl<T> JoinHandle<T> {
    /// See [`ThreadId::unpark`].
    #[inline]
    pub fn unpark(&self) {
        unpark_record(self.record);
    }
}
