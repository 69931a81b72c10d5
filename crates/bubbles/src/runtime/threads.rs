//! Threads as programs have them.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::bubble::Bubble;
use super::pool::Job;
use super::thread::{self, CANCELLED, DETACHED, FINISHED, FOREIGN, Outcome, RUNNING, Thread};
use super::worker;
use crate::hierarchy::InsertError;
use crate::trace::What;

/// How a thread is to be made.
#[derive(Clone, Debug, Default)]
pub struct Builder<'a> {
    name: Option<&'a str>,
    priority: Option<u8>,
    stack_bytes: usize,
    rounds: bool,
    dormant: bool,
    bubble: Option<&'a Bubble>,
}

impl<'a> Builder<'a> {
    pub fn new() -> Builder<'a> {
        Builder::default()
    }

    /// What reports call it.
    pub fn name(mut self, name: &'a str) -> Self {
        self.name = Some(name);
        self
    }

    /// 0 to 15, the highest first; 7 unless it is set.
    pub fn priority(mut self, priority: u8) -> Self {
        self.priority = Some(priority);
        self
    }

    /// Bytes of stack, where 60 KiB might not do.
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_bytes = bytes;
        self
    }

    /// It may change how numbers are rounded (`fesetround`, MXCSR, FPCR). Others keep what is usual: a thread
    /// that changes it without having said so hands it on to whoever runs after it, which builds with
    /// debug assertions notice.
    pub fn own_rounding(mut self) -> Self {
        self.rounds = true;
        self
    }

    /// It does not start before it is woken, by itself or with the bubble into which it is put.
    pub fn dormant(mut self) -> Self {
        self.dormant = true;
        self
    }

    /// It is put into this bubble and starts when that lets it out.
    pub fn inside(mut self, bubble: &'a Bubble) -> Self {
        self.bubble = Some(bubble);
        self
    }

    /// Makes the thread. Its stack is mapped when it runs for the first time.
    ///
    /// # Panics
    ///
    /// Outside threads of [`run`](crate::run).
    #[inline]
    pub fn spawn<F, T>(self, work: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let record = self.make(thread::enter::<F, T>, work, 0);
        JoinHandle { record, outcome: PhantomData }
    }

    #[inline]
    pub(crate) fn make<F>(self, entry: unsafe fn(&Thread), work: F, flags: u8) -> &'static Thread {
        let worker = worker::enter();
        let thread = worker.new_thread();
        thread.entry.set(entry);
        // SAFETY: nobody else knows it yet.
        unsafe {
            thread.store(work);
            if self.name.is_some() {
                thread.set_name(self.name.map(Into::into));
            }
        }
        if flags != 0 {
            thread.flags.store(flags, Ordering::Relaxed);
        }
        if self.stack_bytes > 0 {
            thread.stack_bytes.set(self.stack_bytes);
        }
        if self.rounds {
            thread.context.set_rounds(true);
        }
        if let Some(priority) = self.priority {
            thread.entity.set_priority(priority);
        }
        worker.note(|| What::Made(thread.who(), thread.entity.priority()));
        if let (Some(name), Some(recorder)) = (self.name, &worker.lists().world.recorder) {
            recorder.name(thread.who(), name);
        }
        match self.bubble {
            Some(bubble) => {
                worker.note(|| What::Insert(thread.who(), bubble.shared().number()));
                let inserted = worker.lists().insert(&bubble.shared().bubble, &thread.entity);
                debug_assert!(inserted.is_ok(), "a new thread is in no bubble");
            }
            None if self.dormant => {}
            None => {
                worker.note(|| What::Wake(thread.who()));
                worker.lists().start(&thread.entity, worker.number);
            }
        }
        worker::leave();
        thread
    }
}

/// Makes a thread that starts at once.
#[inline]
pub fn spawn<F, T>(work: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    Builder::new().spawn(work)
}

/// Why a thread left no result.
pub enum JoinError {
    /// What it panicked with.
    Panicked(Box<dyn Any + Send>),
    /// It was cancelled.
    Cancelled,
}

impl fmt::Debug for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            JoinError::Panicked(_) => "Panicked",
            JoinError::Cancelled => "Cancelled",
        })
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            JoinError::Panicked(_) => "the thread panicked",
            JoinError::Cancelled => "the thread was cancelled",
        })
    }
}

impl std::error::Error for JoinError {}

/// What a cancelled thread unwinds with.
struct Cancelled;

/// A thread that can be joined. Dropping it lets the thread go on by itself.
pub struct JoinHandle<T> {
    record: &'static Thread,
    outcome: PhantomData<fn() -> T>,
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinHandle({})", self.record.name().unwrap_or("without a name"))
    }
}

impl<T> JoinHandle<T> {
    pub(crate) fn record(&self) -> &'static Thread {
        self.record
    }

    /// By which others can name it.
    pub fn id(&self) -> ThreadId {
        self.record.id()
    }

    /// Waits for its end and takes what it returned.
    #[inline]
    pub fn join(self) -> Result<T, JoinError> {
        let record = ManuallyDrop::new(self).record;
        // SAFETY: it has ended, and the handle, of which there is one, is used up.
        let outcome = when_ended(record, || unsafe { record.take::<Outcome<T>>() });
        outcome.map_err(|payload| match payload.is::<Cancelled>() {
            true => JoinError::Cancelled,
            false => JoinError::Panicked(payload),
        })
    }

    pub fn is_finished(&self) -> bool {
        self.record.fate.load(Ordering::Acquire) == FINISHED
    }

    /// Starts a dormant thread.
    pub fn wake(&self) {
        wake_record(self.record);
    }

    /// Takes it out of the bubble around it.
    pub fn remove(&self) {
        remove_record(self.record);
    }

    /// Moves it from the bubble around it into another one.
    pub fn move_into(&self, bubble: &Bubble) -> Result<(), InsertError> {
        self.remove();
        bubble.insert(self)
    }

    /// Counts from the next time on that it is queued.
    pub fn set_priority(&self, priority: u8) {
        self.record.set_priority(priority);
    }

    /// Wants it to end: it does when it comes to [`yield_now`], [`sleep`] or [`cancellation_point`] the
    /// next time, by unwinding. A thread that waits notices after it was woken.
    pub fn cancel(&self) {
        self.record.cancel();
    }
}

pub(crate) fn wake_record(thread: &Thread) {
    let worker = worker::enter();
    thread.wake(worker.lists(), worker.number);
    worker::leave();
}

pub(crate) fn remove_record(thread: &Thread) {
    let worker = worker::enter();
    worker.note(|| What::Remove(thread.who()));
    worker.lists().remove(&thread.entity);
    worker::leave();
}

impl<T> Drop for JoinHandle<T> {
    fn drop(&mut self) {
        detach::<T>(self.record);
    }
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
                worker::run_here(worker, me, thread);
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
                    worker.note(|| What::Wake(me.who()));
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
        thread::give_back(std::iter::once(thread));
    }
}

/// Names a thread; says nothing about whether it still runs.
#[derive(Clone, Copy)]
pub struct ThreadId {
    record: &'static Thread,
    number: u64,
}

impl PartialEq for ThreadId {
    fn eq(&self, other: &ThreadId) -> bool {
        self.number == other.number
    }
}

impl Eq for ThreadId {}

impl fmt::Debug for ThreadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ThreadId({})", self.number)
    }
}

impl Thread {
    pub fn id(&'static self) -> ThreadId {
        ThreadId { record: self, number: self.id_number() }
    }

    /// Wants it to end at its next cancellation point.
    pub fn cancel(&self) {
        self.flags.fetch_or(CANCELLED, Ordering::Relaxed);
    }
}

impl ThreadId {
    /// The thread that runs.
    pub fn current() -> ThreadId {
        worker::current().id()
    }

    fn record(&self) -> Option<&'static Thread> {
        (self.record.id_number() == self.number).then_some(self.record)
    }
}

/// Lets others run that are at least as urgent. A cancellation point.
#[inline]
pub fn yield_now() {
    let worker = worker::enter();
    let thread = worker.thread();
    worker.give_way().leave();
    if thread.flags.load(Ordering::Relaxed) & CANCELLED != 0 {
        end_cancelled();
    }
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
        _ => worker.give_way(),
    };
    here.leave();
    cancellation_point();
}

/// Ends the running thread, by unwinding, if it was cancelled.
#[inline]
pub fn cancellation_point() {
    if worker::is_cancelled() {
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

/// Threads of the C interface: they return an address, and their frames are left rather than unwound.
pub(crate) mod foreign {
    use std::ffi::c_void;

    use super::{Builder, FOREIGN, Outcome, Thread, thread, when_ended, worker};

    /// What a cancelled thread returns.
    pub const CANCELLED: usize = usize::MAX;

    pub type Work = extern "C" fn(*mut c_void) -> *mut c_void;

    pub fn make(builder: Builder<'_>, work: Work, argument: usize) -> &'static Thread {
        let work = move || work(argument as *mut c_void) as usize;
        fn entry<F: FnOnce() -> usize>(_: &F) -> unsafe fn(&Thread) {
            thread::enter::<F, usize>
        }
        builder.make(entry(&work), work, FOREIGN)
    }

    /// Ends the running thread with this result.
    pub fn end(thread: &'static Thread, result: usize) -> ! {
        thread.set_outcome(Outcome::Ok(result));
        worker::finish(thread)
    }

    /// Waits for the end of a thread of which the caller has the handle.
    pub fn join(thread: &'static Thread) -> usize {
        // SAFETY: it has ended, and the handle is used up.
        when_ended(thread, || unsafe { thread.take::<Outcome<usize>>() }).unwrap_or(CANCELLED)
    }
}

/// Waits so long without a processor. A cancellation point.
pub fn sleep(duration: Duration) {
    let worker = worker::enter();
    let thread = worker.thread();
    let lists = worker.lists();
    lists.world.clock.start(lists);
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
    lists.world.helpers.submit(lists, Job { call, argument: (&raw mut waiting).cast(), thread });
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
