//! Workers: the kernel threads that run ours, one on each processor.

use std::cell::Cell;
use std::mem::offset_of;
use std::ops::Deref;
use std::ptr;
use std::sync::atomic::Ordering;

use super::here;
use super::kept::Kept;
use super::overflow;
use super::pool::Lists;
use super::status::Status;
use crate::hierarchy::Yielded;
use crate::runtime::records::thread::Thread;
use crate::runtime::switching::context::{Context, switch};
use crate::runtime::switching::sanitize;
use crate::runtime::switching::stack::Stack;
use crate::trace::What;

/// Every so many looks a worker takes from far away first (see `Hierarchy::next`).
const FAR: u32 = 64;
/// Looks for work before a worker sleeps.
const SEARCHES: u32 = 100;

/// Where every thread begins that has a stack of its own, with the address of its record.
pub(crate) type Begin = extern "C" fn(usize) -> !;

/// A worker: its status, and what only its own kernel thread uses.
#[repr(C)]
pub(crate) struct Worker {
    /// The first field, so that its address is the worker's.
    status: Status,
    lists: Cell<*const Lists>,
    idle: Context,
    /// The kernel thread's stack, as far as sanitizers want to know.
    own: Cell<Stack>,
    searches: Cell<u32>,
    begin: Begin,
    kept: Kept,
}

// SAFETY: cells are the worker's own kernel thread's; the rest is atomic.
unsafe impl Sync for Worker {}
// SAFETY: it is handed to its kernel thread once.
unsafe impl Send for Worker {}

impl Deref for Worker {
    type Target = Status;
    #[inline(always)]
    fn deref(&self) -> &Status {
        &self.status
    }
}

/// Enters the runtime: from here to `leave` the thread stays on this worker and nothing interrupts it.
/// Not inlined: signals know by its address whether a thread holds a worker's before it has entered (`preempt`).
#[inline(never)]
#[unsafe(link_section = "bubbles_enter")]
pub(crate) fn enter() -> &'static Worker {
    let here = here::get();
    if here.is_null() {
        outside();
    }
    // SAFETY: it is a worker's status, and workers live as long as their kernel threads run.
    let worker = unsafe { &*here.cast::<Worker>() };
    worker.status.set_inside(true);
    worker
}

#[cold]
fn outside() -> ! {
    panic!("this only works in threads of coplace_bubbles::run");
}

/// Leaves the runtime, on whichever worker the thread is now.
#[inline(never)]
#[unsafe(link_section = "bubbles_enter")]
pub(crate) fn leave() {
    let here = here::get();
    // SAFETY: as in `enter`, which found it not to be null.
    unsafe { (*here).set_inside(false) };
}

/// Whether the caller is one of our threads.
#[inline(never)]
#[unsafe(link_section = "bubbles_enter")]
pub(crate) fn is_inside() -> bool {
    let here = here::get();
    // SAFETY: as in `enter`.
    !here.is_null() && unsafe { (*here).runs() }.is_some()
}

/// The thread that runs, and whether a processor has nothing to do.
#[inline(never)]
#[unsafe(link_section = "bubbles_enter")]
pub(crate) fn current_thread() -> (&'static Thread, bool) {
    let here = here::get();
    if here.is_null() {
        outside();
    }
    // SAFETY: as in `enter`.
    let worker = unsafe { &*here.cast::<Worker>() };
    (worker.thread(), worker.lists().world.has_sleepers())
}

/// Records what one of our threads does, where that is wanted.
pub(crate) fn note(what: impl FnOnce() -> What) {
    if is_inside() {
        enter().lists().world.note(what);
        leave();
    }
}

/// The thread that runs.
pub(crate) fn current() -> &'static Thread {
    let thread = enter().thread();
    leave();
    thread
}

impl Worker {
    /// One for each processor, kept for good: stale handles may still look at them.
    pub fn make(count: usize, begin: Begin) -> &'static [Worker] {
        let new = |number| Worker {
            status: Status::new(number),
            lists: Cell::new(ptr::null()),
            idle: Context::new(),
            own: Cell::new(Stack::NONE),
            searches: Cell::new(0),
            begin,
            kept: Kept::new(),
        };
        (0..count).map(new).collect::<Vec<_>>().leak()
    }

    /// What all may see of it.
    pub fn status(&self) -> &Status {
        &self.status
    }

    /// Leaves the runtime as `leave` does, where it is known on which worker the thread is.
    #[inline(always)]
    pub fn leave(&self) {
        self.set_inside(false);
    }

    /// The worker that this is the context of, on its kernel thread.
    ///
    /// # Safety
    ///
    /// It is a worker's.
    #[inline(always)]
    unsafe fn of(idle: *const Context) -> &'static Worker {
        // SAFETY: workers live as long as their kernel threads run.
        unsafe { &*idle.byte_sub(offset_of!(Worker, idle)).cast() }
    }

    #[inline]
    pub fn lists(&self) -> &'static Lists {
        // SAFETY: set before the worker runs; the lists live until all workers have ended.
        unsafe { &*self.lists.get() }
    }

    #[inline]
    fn far(&self) -> bool {
        let searches = self.searches.get().wrapping_add(1);
        self.searches.set(searches);
        searches.is_multiple_of(FAR)
    }

    /// A record for a new thread, which only the caller knows.
    #[inline]
    pub fn new_thread(&self) -> &'static Thread {
        let thread = self.kept.acquire_thread();
        Status::count(&self.created);
        thread.renew(self.created.load(Ordering::Relaxed) << 12 | self.number as u64);
        thread
    }

    /// Takes the record of a thread back that has ended and that nobody knows any more.
    #[inline]
    pub fn old_thread(&self, thread: &'static Thread) {
        thread.retire();
        self.kept.release_thread(thread);
    }

    /// Takes the stack of the running thread, which ends on it.
    #[inline]
    pub fn spend_stack(&self, thread: &Thread) {
        self.kept.spend_stack(thread.stack.replace(Stack::NONE));
    }

    /// Gives a thread a stack on which it begins.
    #[inline]
    fn prepare(&self, thread: &Thread) {
        let stack = sanitize::begin(self.kept.acquire_stack(thread.stack_bytes.get()));
        thread.stack.set(stack);
        // SAFETY: the stack is nobody else's, and its top is aligned.
        unsafe { thread.context.prepare(stack.top(), self.begin, ptr::from_ref(thread) as usize) };
    }

    /// Goes on with `to`, which is in our hands. Comes back when `from` is gone on with, with the worker
    /// that does so.
    #[inline(always)]
    pub fn switch_to(&'static self, from: &Thread, to: &Thread) -> &'static Worker {
        self.note(|| What::Run(to.id_number()));
        if ptr::eq(from, to) {
            return self;
        }
        from.check_rounding();
        if !to.context.is_prepared() {
            self.prepare(to);
        }
        self.set_current(to);
        Status::count(&self.switches);
        let left = sanitize::leave(to.stack.get(), from.stack.get() != Stack::NONE);
        // SAFETY: `from` runs, `to` is in our hands, and `idle` is saved while a thread runs. Who comes back
        // was switched to by a worker, with its own context.
        let here = unsafe { Worker::of(switch(&from.context, &to.context, &self.idle)) };
        sanitize::arrive(Some(left));
        here
    }

    /// Goes on with whatever is next, `from` being queued or waiting.
    #[inline]
    pub fn switch_away(&'static self, from: &Thread) -> &'static Worker {
        match self.lists().next(self.number, self.far()) {
            // SAFETY: lists of the runtime hold its threads.
            Some(next) => self.switch_to(from, unsafe { Thread::of(next) }),
            None => self.switch_to_idle(from),
        }
    }

    fn switch_to_idle(&'static self, from: &Thread) -> &'static Worker {
        self.note(|| What::Idle);
        from.check_rounding();
        self.set_current(ptr::null());
        let left = sanitize::leave(self.own.get(), from.stack.get() != Stack::NONE);
        // SAFETY: `from` runs, and `idle` is saved while a thread runs. As in `switch_to`.
        let here = unsafe { Worker::of(switch(&from.context, &self.idle, &self.idle)) };
        sanitize::arrive(Some(left));
        here
    }

    #[inline]
    pub fn note(&self, what: impl FnOnce() -> What) {
        self.lists().world.note(what);
    }

    /// The running thread is about to wait for something (see `Hierarchy::block`).
    #[inline]
    pub fn block(&self, thread: &Thread) {
        self.note(|| What::Block);
        self.lists().block(&thread.entity, self.number);
    }

    /// The running thread lets others run that are at least as urgent. Comes back with the worker that it
    /// is on then.
    #[inline(always)]
    pub fn yield_processor(&'static self) -> &'static Worker {
        let thread = self.thread();
        self.note(|| What::Yield);
        if self.retired.load(Ordering::Relaxed) {
            self.lists().requeue(&thread.entity, self.number);
            return self.switch_to_idle(thread);
        }
        match self.lists().yield_processor(&thread.entity, self.number, self.far()) {
            Yielded::Stay => self,
            // SAFETY: lists of the runtime hold its threads.
            Yielded::Next(next) => self.switch_to(thread, unsafe { Thread::of(next) }),
            Yielded::Nothing => self.switch_to_idle(thread),
        }
    }

    /// The worker's own loop, on its kernel thread's stack, until all threads have ended.
    pub fn work(&'static self, lists: &'static Lists) {
        self.lists.set(lists);
        here::set(ptr::from_ref(self).cast());
        overflow::own_stack();
        self.own.set(sanitize::own());
        // SAFETY: `gettid` takes nothing.
        self.kernel_thread.store(unsafe { libc::gettid() }, Ordering::Release);
        let mut searches = 0;
        while !lists.world.is_over() {
            if self.retired.load(Ordering::Acquire) {
                lists.world.rest(self);
                continue;
            }
            let found = lists.next(self.number, self.far()).or_else(|| lists.steal(self.number));
            if let Some(thread) = found {
                // SAFETY: lists of the runtime hold its threads.
                let thread = unsafe { Thread::of(thread) };
                if !thread.context.is_prepared() {
                    self.prepare(thread);
                }
                self.set_current(thread);
                self.note(|| What::Run(thread.id_number()));
                Status::count(&self.switches);
                let left = sanitize::leave(thread.stack.get(), true);
                // SAFETY: the worker's own loop runs, and the thread is in our hands.
                unsafe { switch(&self.idle, &thread.context, &self.idle) };
                sanitize::arrive(Some(left));
                searches = 0;
                continue;
            }
            searches += 1;
            if searches < SEARCHES {
                std::hint::spin_loop();
                continue;
            }
            searches = 0;
            lists.world.end_if_over();
            lists.world.sleep(lists, self);
        }
        self.kernel_thread.store(0, Ordering::Release);
        here::set(ptr::null());
        self.kept.release_all();
        overflow::leave_stack();
    }

    /// Whether a thread that was waiting may go on here at once, without a list.
    #[inline]
    pub fn may_go_on(&self, thread: &Thread) -> bool {
        self.lists().may_hand(&thread.entity, self.number) && !self.retired.load(Ordering::Relaxed)
    }
}
