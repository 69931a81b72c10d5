//! The life of a thread: where it begins and ends, and who waits for that.

use std::sync::atomic::Ordering;

use crate::runtime::records::spare;
use crate::runtime::records::thread::{DETACHED, FINISHED, Outcome, RUNNING, Thread};
use crate::runtime::switching::sanitize;
use crate::runtime::switching::stack::Stack;
use crate::runtime::workers::status::Status;
use crate::runtime::workers::worker::{self, Worker};
use crate::trace::What;

/// What a cancelled thread unwinds with.
pub(super) struct Cancelled;

/// Runs a thread that has not begun and is in our hands as a call, on the stack of `joiner`, which runs and
/// has been blocked to wait for it. If it has to wait itself, it is switched away from like any other, stack
/// and all, and comes back here on whichever worker goes on with it.
#[inline]
fn run_here(worker: &'static Worker, joiner: &Thread, thread: &'static Thread) {
    thread.stack.set(joiner.stack.get());
    thread.context.begin_here();
    worker.set_current(thread);
    worker.note(|| What::Run(thread.id_number()));
    worker::leave();
    // SAFETY: its maker stored what the entry wants.
    unsafe { thread.entry.get()(thread) };
    thread.values.drop_all();
    let worker = worker::enter();
    let lists = worker.lists();
    lists.finish(&thread.entity);
    worker.note(|| What::Wake(joiner.trace_id()));
    worker.note(|| What::End);
    thread.stack.set(Stack::NONE);
    thread.context.end_here();
    Status::count(&worker.ended);
    worker.set_current(joiner);
    if worker.may_go_on(joiner) {
        worker.note(|| What::Run(joiner.id_number()));
        joiner.entity.activate(worker.number);
    } else {
        lists.wake(&joiner.entity, worker.number);
        worker.switch_away(joiner);
    }
}

/// Where every thread begins that has a stack of its own.
pub(crate) extern "C" fn main(thread: usize) -> ! {
    sanitize::arrive(None);
    worker::leave();
    // SAFETY: `prepare` passed a record.
    let thread = unsafe { &*(thread as *const Thread) };
    // SAFETY: its maker stored what the entry wants.
    unsafe { thread.entry.get()(thread) };
    finish(thread)
}

/// What is left to do when a thread's work is done.
pub(crate) fn finish(thread: &'static Thread) -> ! {
    thread.values.drop_all();
    let worker = worker::enter();
    let fate = match thread.fate.load(Ordering::Acquire) {
        // From here on who joins it waits until it has left its stack.
        RUNNING => thread.fate.swap(FINISHED, Ordering::AcqRel),
        // Nobody changes it any more.
        settled => settled,
    };
    if fate != DETACHED {
        end(worker, thread, fate)
    }
    // Nobody joins it; what it left is dropped here, where it may do what threads may.
    worker::leave();
    // SAFETY: the outcome is there, and nobody else takes it.
    unsafe { thread.entry.get()(thread) };
    end(worker::enter(), thread, fate)
}

/// Ends the running thread, whose outcome is stored, or dropped where nobody will ask for it.
fn end(worker: &'static Worker, thread: &'static Thread, fate: usize) -> ! {
    let lists = worker.lists();
    lists.finish(&thread.entity);
    worker.spend_stack(thread);
    Status::count(&worker.ended);
    // SAFETY: anything else is the address of the thread that joins, which waits for this.
    let joiner = (fate > FINISHED).then(|| unsafe { &*(fate as *const Thread) });
    if let Some(joiner) = joiner {
        worker.note(|| What::Wake(joiner.trace_id()));
    }
    worker.note(|| What::End);
    match joiner {
        Some(joiner) if worker.may_go_on(joiner) => {
            joiner.entity.activate(worker.number);
            worker.switch_to(thread, joiner);
        }
        Some(joiner) => lists.wake(&joiner.entity, worker.number),
        None if fate == DETACHED => worker.old_thread(thread),
        None => {}
    }
    worker.switch_away(thread);
    unreachable!("nobody goes on with a thread that has ended");
}

/// Gives up the handle of a thread that leaves a `T`.
pub(crate) fn detach<T>(thread: &'static Thread) {
    let detached = thread.fate.compare_exchange(RUNNING, DETACHED, Ordering::AcqRel, Ordering::Acquire);
    if detached.is_err() {
        thread.context.wait_until_left();
        // SAFETY: it has ended, and nobody else has a handle.
        drop(unsafe { thread.take::<Outcome<T>>() });
        recycle(thread);
    }
}

/// Waits until a thread of which the caller has the handle has ended and left its stack, does something
/// with what it left, and gives its record back.
#[inline]
pub(crate) fn when_ended<R>(thread: &'static Thread, then: impl FnOnce() -> R) -> R {
    if !worker::is_inside() {
        // The run is over, and so all its threads have ended.
        let result = then();
        recycle(thread);
        return result;
    }
    let mut worker = worker::enter();
    if thread.fate.load(Ordering::Acquire) != FINISHED {
        let me = worker.thread();
        let lists = worker.lists();
        if lists.take(&thread.entity, worker.number) {
            // It is in our hands, and so it does not end meanwhile.
            worker.block(me);
            if thread.may_begin_on(me.stack.get()) {
                run_here(worker, me, thread);
            } else {
                thread.fate.store(std::ptr::from_ref(me) as usize, Ordering::Release);
                worker.switch_to(me, thread);
            }
        } else {
            worker.block(me);
            let me_too = std::ptr::from_ref(me) as usize;
            let joins = thread.fate.compare_exchange(RUNNING, me_too, Ordering::AcqRel, Ordering::Acquire);
            match joins {
                Ok(_) => {
                    worker.switch_away(me);
                }
                Err(_) => {
                    worker.note(|| What::Wake(me.trace_id()));
                    me.entity.activate(worker.number);
                }
            }
        }
        worker = worker::enter();
    }
    thread.context.wait_until_left();
    let result = then();
    worker.old_thread(thread);
    worker::leave();
    result
}

/// Gives the record of a thread back that has ended and whose outcome was taken.
#[inline]
pub(crate) fn recycle(thread: &'static Thread) {
    if worker::is_inside() {
        worker::enter().old_thread(thread);
        worker::leave();
    } else {
        thread.retire();
        spare::recycle(std::iter::once(thread));
    }
}
