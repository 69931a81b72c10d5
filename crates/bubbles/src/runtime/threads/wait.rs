//! Having the running thread wait, and others go on.

use crate::lock::{Guard, Lock};
use crate::runtime::records::thread::Thread;
use crate::runtime::records::waiters::Waiters;
use crate::runtime::workers::worker::{self, Worker};

/// Has the running thread wait in a list that is part of what `guard` locks; comes back when it was
/// taken out and woken. To be called between `enter` and `leave`.
pub(crate) fn wait<T>(
    worker: &'static Worker,
    mut guard: Guard<'_, T>,
    list: impl FnOnce(&mut T) -> &mut Waiters,
) {
    let thread = worker.thread();
    worker.block(thread);
    list(&mut guard).push(thread);
    drop(guard);
    worker.switch_away(thread);
}

/// Something that is guarded by a lock whose holder is in the runtime, so that nothing interrupts it.
pub(crate) fn with<T, R>(lock: &Lock<T>, f: impl FnOnce(&'static Worker, Guard<'_, T>) -> R) -> R {
    let worker = worker::enter();
    let result = f(worker, lock.lock());
    worker::leave();
    result
}

/// Wakes a thread that was taken out of a list.
pub(crate) fn wake(worker: &Worker, thread: &Thread) {
    thread.wake(worker.lists(), worker.number);
}
