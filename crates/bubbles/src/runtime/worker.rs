//! Workers: the kernel threads that run ours, one on each processor.

use std::cell::{Cell, UnsafeCell};
use std::mem::offset_of;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, Ordering};

use super::context::{Context, switch};
use super::pool::{Lists, Parking};
use super::stack::{self, Stack};
use super::thread::{self, CANCELLED, DETACHED, FINISHED, RUNNING, Thread};
use super::{local, overflow, sanitize};
use crate::hierarchy::Way;
use crate::trace::What;

/// Every so many looks a worker takes from far away first (see `Hierarchy::next`).
const FAR: u32 = 64;
/// Stacks and records that a worker keeps for itself; half of them go when it has more.
const KEPT: usize = 256;
const TAKEN: usize = 64;
/// Looks for work before a worker sleeps.
const LOOKS: u32 = 100;

#[repr(C, align(128))]
pub(crate) struct Worker {
    /// It is in the runtime, where nothing may interrupt it. Only its own kernel thread uses it.
    inside: AtomicBool,
    /// Its processor may not be used now: what it runs goes back as soon as it can.
    pub retired: AtomicBool,
    pub number: usize,
    lists: Cell<*const Lists>,
    /// The thread that runs. Only its own kernel thread changes it; placing and the node's thread look.
    current: AtomicPtr<Thread>,
    idle: Context,
    /// The kernel thread's stack, as far as sanitizers want to know.
    own: Cell<Stack>,
    looks: Cell<u32>,
    /// The stack of the thread that ended last: it may still be on it.
    spent: Cell<Stack>,
    stacks: UnsafeCell<Vec<Stack>>,
    threads: UnsafeCell<Vec<&'static Thread>>,
    /// Written by the worker only.
    pub created: AtomicU64,
    pub ended: AtomicU64,
    pub switches: AtomicU64,
    /// The kernel's number of its thread; 0 while it has none.
    pub kernel_thread: AtomicI32,
    pub parking: Parking,
}

// SAFETY: cells are the worker's own kernel thread's; the rest is atomic.
unsafe impl Sync for Worker {}
// SAFETY: it is handed to its kernel thread once.
unsafe impl Send for Worker {}

thread_local! {
    static WORKER: Cell<*const Worker> = const { Cell::new(ptr::null()) };
}

/// The worker of this kernel thread, if it is one, for the signal handler.
pub(crate) fn here() -> Option<&'static Worker> {
    // SAFETY: workers live as long as their kernel threads run.
    unsafe { WORKER.with(Cell::get).as_ref() }
}

/// Enters the runtime: from here to `leave` the thread stays on this worker and nothing interrupts it.
/// Not inlined, as a thread may come back from a switch on another kernel thread, whose variable it is
/// that is wanted then.
#[inline(never)]
#[unsafe(link_section = "bubbles_enter")]
pub(crate) fn enter() -> &'static Worker {
    let worker = WORKER.with(Cell::get);
    if worker.is_null() {
        outside();
    }
    // SAFETY: workers live as long as their kernel threads run.
    let worker = unsafe { &*worker };
    worker.inside.store(true, Ordering::Relaxed);
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
    let worker = WORKER.with(Cell::get);
    // SAFETY: as in `enter`, which found it not to be null.
    unsafe { (*worker).leave() };
}

/// Whether the caller is one of our threads.
#[inline(never)]
#[unsafe(link_section = "bubbles_enter")]
pub(crate) fn is_inside() -> bool {
    let worker = WORKER.with(Cell::get);
    // SAFETY: as in `enter`.
    !worker.is_null() && unsafe { (*worker).runs() }.is_some()
}

/// The thread that runs, and whether a processor has nothing to do.
#[inline(never)]
#[unsafe(link_section = "bubbles_enter")]
pub(crate) fn look() -> (&'static Thread, bool) {
    let worker = WORKER.with(Cell::get);
    if worker.is_null() {
        outside();
    }
    // SAFETY: as in `enter`.
    let worker = unsafe { &*worker };
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
    pub fn new(number: usize) -> Worker {
        Worker {
            inside: AtomicBool::new(true),
            retired: AtomicBool::new(false),
            number,
            lists: Cell::new(ptr::null()),
            current: AtomicPtr::new(ptr::null_mut()),
            idle: Context::new(),
            own: Cell::new(Stack::NONE),
            looks: Cell::new(0),
            spent: Cell::new(Stack::NONE),
            stacks: UnsafeCell::new(Vec::with_capacity(2 * KEPT)),
            threads: UnsafeCell::new(Vec::with_capacity(2 * KEPT)),
            created: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            switches: AtomicU64::new(0),
            kernel_thread: AtomicI32::new(0),
            parking: Parking::default(),
        }
    }

    /// Leaves the runtime as `leave` does, where it is known on which worker the thread is.
    #[inline(always)]
    pub fn leave(&self) {
        self.inside.store(false, Ordering::Relaxed);
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

    /// The thread that runs, if one does.
    pub fn runs(&self) -> Option<&'static Thread> {
        // SAFETY: records are never freed.
        unsafe { self.current.load(Ordering::Acquire).as_ref() }
    }

    #[inline]
    fn set_current(&self, thread: *const Thread) {
        self.current.store(thread.cast_mut(), Ordering::Release);
    }

    /// Whether its processor is used, or will be until what it runs comes to the runtime.
    pub fn is_in_use(&self) -> bool {
        !self.retired.load(Ordering::SeqCst) || self.runs().is_some()
    }

    /// Whether it is in the runtime, or runs nothing of ours.
    pub fn is_inside(&self) -> bool {
        self.inside.load(Ordering::Relaxed) || self.runs().is_none()
    }

    /// The thread that runs.
    #[inline]
    pub fn thread(&self) -> &'static Thread {
        let thread = self.current.load(Ordering::Relaxed);
        debug_assert!(!thread.is_null(), "a worker without a thread is in its own loop");
        // SAFETY: records are never freed.
        unsafe { &*thread }
    }

    #[inline]
    fn far(&self) -> bool {
        let looks = self.looks.get().wrapping_add(1);
        self.looks.set(looks);
        looks.is_multiple_of(FAR)
    }

    #[inline]
    fn count(counter: &AtomicU64) {
        counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// A record for a new thread, which only the caller knows.
    #[inline]
    pub fn new_thread(&self) -> &'static Thread {
        // SAFETY: only this kernel thread uses it, and not twice at a time.
        let threads = unsafe { &mut *self.threads.get() };
        let thread = threads.pop().unwrap_or_else(|| {
            thread::refill(threads, TAKEN);
            threads.pop().expect("it was refilled")
        });
        Worker::count(&self.created);
        thread.renew(self.created.load(Ordering::Relaxed) << 12 | self.number as u64);
        thread
    }

    /// Takes the record of a thread back that has ended and that nobody knows any more.
    #[inline]
    pub fn old_thread(&self, thread: &'static Thread) {
        thread.retire();
        // SAFETY: as in `new_thread`.
        let threads = unsafe { &mut *self.threads.get() };
        if threads.len() >= 2 * KEPT {
            thread::give_back(threads.drain(..KEPT));
        }
        threads.push(thread);
    }

    /// Takes a stack back that is not in use any more.
    #[inline]
    fn old_stack(&self, stack: Stack) {
        if stack.is_common() {
            // SAFETY: as in `new_thread`.
            let stacks = unsafe { &mut *self.stacks.get() };
            if stacks.len() >= 2 * KEPT {
                stack::give_back(stacks.drain(..KEPT));
            }
            stacks.push(stack);
        } else if stack != Stack::NONE {
            stack::unmap(stack);
        }
    }

    #[cold]
    fn refill(&self, stacks: &mut Vec<Stack>) {
        if let Err(error) = stack::refill(stacks, TAKEN) {
            no_stack(stack::SIZE, &error);
        }
    }

    /// Gives a thread a stack on which it begins.
    #[inline]
    fn prepare(&self, thread: &Thread) {
        let stack = match thread.stack_bytes.get() {
            // Warm yet, and done with: who ended on it is left for good by the switch that comes now.
            0 if self.spent.get().is_common() && sanitize::MAY_BE_SPENT => self.spent.replace(Stack::NONE),
            0 => {
                // SAFETY: as in `new_thread`.
                let stacks = unsafe { &mut *self.stacks.get() };
                if stacks.is_empty() {
                    self.refill(stacks);
                }
                stacks.pop().expect("it was refilled")
            }
            bytes => stack::own(bytes).unwrap_or_else(|error| no_stack(bytes, &error)),
        };
        let stack = sanitize::begin(stack);
        thread.stack.set(stack);
        // SAFETY: the stack is nobody else's, and its top is aligned.
        unsafe { thread.context.prepare(stack.top(), main, ptr::from_ref(thread) as usize) };
    }

    /// Goes on with `to`, which is in our hands. Comes back when `from` is gone on with, with the worker
    /// that does so.
    #[inline(always)]
    pub fn switch_to(&'static self, from: &Thread, to: &Thread) -> &'static Worker {
        self.note(|| What::Run(to.id_number()));
        if ptr::eq(from, to) {
            return self;
        }
        from.keeps_its_word();
        if !to.context.is_prepared() {
            self.prepare(to);
        }
        self.set_current(to);
        Worker::count(&self.switches);
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
        from.keeps_its_word();
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
    pub fn give_way(&'static self) -> &'static Worker {
        let thread = self.thread();
        self.note(|| What::Yield);
        if self.retired.load(Ordering::Relaxed) {
            self.lists().requeue(&thread.entity, self.number);
            return self.switch_to_idle(thread);
        }
        match self.lists().give_way(&thread.entity, self.number, self.far()) {
            Way::Stay => self,
            // SAFETY: lists of the runtime hold its threads.
            Way::Next(next) => self.switch_to(thread, unsafe { Thread::of(next) }),
            Way::Nothing => self.switch_to_idle(thread),
        }
    }

    /// The worker's own loop, on its kernel thread's stack, until all threads have ended.
    pub fn work(&'static self, lists: &'static Lists) {
        self.lists.set(lists);
        WORKER.with(|worker| worker.set(self));
        overflow::own_stack();
        self.own.set(sanitize::own());
        // SAFETY: `gettid` takes nothing.
        self.kernel_thread.store(unsafe { libc::gettid() }, Ordering::Release);
        let mut looks = 0;
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
                Worker::count(&self.switches);
                let left = sanitize::leave(thread.stack.get(), true);
                // SAFETY: the worker's own loop runs, and the thread is in our hands.
                unsafe { switch(&self.idle, &thread.context, &self.idle) };
                sanitize::arrive(Some(left));
                looks = 0;
                continue;
            }
            looks += 1;
            if looks < LOOKS {
                std::hint::spin_loop();
                continue;
            }
            looks = 0;
            lists.world.end_if_over();
            lists.world.sleep(lists, self);
        }
        self.kernel_thread.store(0, Ordering::Release);
        WORKER.with(|worker| worker.set(ptr::null()));
        // SAFETY: as in `new_thread`; no thread of ours is left that could use them.
        unsafe {
            thread::give_back((*self.threads.get()).drain(..));
            self.old_stack(self.spent.replace(Stack::NONE));
            stack::give_back((*self.stacks.get()).drain(..));
        }
        overflow::leave_stack();
    }

    /// Whether a thread that was waiting may go on here at once, without a list.
    #[inline]
    fn may_go_on(&self, thread: &Thread) -> bool {
        self.lists().may_hand(&thread.entity, self.number) && !self.retired.load(Ordering::Relaxed)
    }

    /// Ends the running thread, whose outcome is stored, or dropped where nobody will ask for it.
    fn end(&'static self, thread: &'static Thread, fate: usize) -> ! {
        let lists = self.lists();
        lists.finish(&thread.entity);
        // It is on its stack yet: that goes to the next one but one, or to a thread that begins right now.
        self.old_stack(self.spent.replace(thread.stack.replace(Stack::NONE)));
        Worker::count(&self.ended);
        // SAFETY: anything else is the address of the thread that joins, which waits for this.
        let joiner = (fate > FINISHED).then(|| unsafe { &*(fate as *const Thread) });
        if let Some(joiner) = joiner {
            self.note(|| What::Wake(joiner.who()));
        }
        self.note(|| What::End);
        match joiner {
            Some(joiner) if self.may_go_on(joiner) => {
                joiner.entity.activate(self.number);
                self.switch_to(thread, joiner);
            }
            Some(joiner) => lists.wake(&joiner.entity, self.number),
            None if fate == DETACHED => self.old_thread(thread),
            None => {}
        }
        self.switch_away(thread);
        unreachable!("nobody goes on with a thread that has ended");
    }
}

/// Runs a thread that has not begun and is in our hands as a call, on the stack of `joiner`, which runs and
/// has been blocked to wait for it. If it has to wait itself, it is switched away from like any other, stack
/// and all, and comes back here on whichever worker goes on with it.
#[inline]
pub(crate) fn run_here(worker: &'static Worker, joiner: &Thread, thread: &'static Thread) {
    thread.stack.set(joiner.stack.get());
    thread.context.begin_here();
    worker.set_current(thread);
    worker.note(|| What::Run(thread.id_number()));
    leave();
    // SAFETY: its maker stored what the entry wants.
    unsafe { thread.entry.get()(thread) };
    local::drop_all(&thread.locals);
    let worker = enter();
    let lists = worker.lists();
    lists.finish(&thread.entity);
    worker.note(|| What::Wake(joiner.who()));
    worker.note(|| What::End);
    thread.stack.set(Stack::NONE);
    thread.context.end_here();
    Worker::count(&worker.ended);
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
extern "C" fn main(thread: usize) -> ! {
    sanitize::arrive(None);
    leave();
    // SAFETY: `prepare` passed a record.
    let thread = unsafe { &*(thread as *const Thread) };
    // SAFETY: its maker stored what the entry wants.
    unsafe { thread.entry.get()(thread) };
    finish(thread)
}

/// What is left to do when a thread's work is done.
pub(crate) fn finish(thread: &'static Thread) -> ! {
    local::drop_all(&thread.locals);
    let worker = enter();
    let fate = match thread.fate.load(Ordering::Acquire) {
        // From here on who joins it waits until it has left its stack.
        RUNNING => thread.fate.swap(FINISHED, Ordering::AcqRel),
        // Nobody changes it any more.
        settled => settled,
    };
    if fate != DETACHED {
        worker.end(thread, fate)
    }
    // Nobody joins it; what it left is dropped here, where it may do what threads may.
    leave();
    // SAFETY: the outcome is there, and nobody else takes it.
    unsafe { thread.entry.get()(thread) };
    enter().end(thread, fate)
}

/// Whether somebody wants the running thread to end.
pub(crate) fn is_cancelled() -> bool {
    current().flags.load(Ordering::Relaxed) & CANCELLED != 0
}

fn no_stack(bytes: usize, error: &std::io::Error) -> ! {
    eprintln!(
        "coplace-bubbles: no stack of {bytes} bytes for another thread: {error}. Threads that have begun keep \
         their stacks; let fewer begin at a time, raise vm.max_map_count if it is reached, or give more memory."
    );
    std::process::abort()
}
