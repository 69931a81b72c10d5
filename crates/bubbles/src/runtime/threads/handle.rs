//! Threads as programs have them.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::sync::atomic::Ordering;

use super::bubble::Bubble;
use super::life::{Cancelled, detach, when_ended};
use crate::hierarchy::InsertError;
use crate::runtime::records::thread::{self, CANCELLED, FINISHED, Outcome, Thread};
use crate::runtime::workers::worker;
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
    /// A thread without a name that starts at once, in no bubble, with priority 7.
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
        worker.note(|| What::Made(thread.trace_id(), thread.entity.priority()));
        if let (Some(name), Some(recorder)) = (self.name, &worker.lists().world.recorder) {
            recorder.name(thread.trace_id(), name);
        }
        match self.bubble {
            Some(bubble) => {
                worker.note(|| What::Insert(thread.trace_id(), bubble.shared().number()));
                let inserted = worker.lists().insert(&bubble.shared().bubble, &thread.entity);
                debug_assert!(inserted.is_ok(), "a new thread is in no bubble");
            }
            None if self.dormant => {}
            None => {
                worker.note(|| What::Wake(thread.trace_id()));
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

/// A thread that can be joined. Dropping it lets the thread go on by itself.
pub struct JoinHandle<T> {
    pub(super) record: &'static Thread,
    outcome: PhantomData<fn() -> T>,
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinHandle({})", self.record.name().unwrap_or("without a name"))
    }
}

impl<T> JoinHandle<T> {
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

    /// Whether its work is over, in whatever way; does not wait for that.
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

    /// Wants it to end: it does when it comes to [`yield_now`](crate::yield_now), [`sleep`](crate::sleep), [`park`](crate::park) or
    /// [`cancellation_point`](crate::cancellation_point) the next time, by unwinding. A thread that waits notices after it was woken.
    pub fn cancel(&self) {
        self.record.cancel();
    }
}

impl Bubble {
    /// Puts a thread into it.
    pub fn insert<T>(&self, thread: &JoinHandle<T>) -> Result<(), InsertError> {
        self.insert_record(thread.record)
    }
}

pub(crate) fn wake_record(thread: &Thread) {
    let worker = worker::enter();
    thread.wake(worker.lists(), worker.number);
    worker::leave();
}

pub(crate) fn remove_record(thread: &Thread) {
    let worker = worker::enter();
    worker.note(|| What::Remove(thread.trace_id()));
    worker.lists().remove(&thread.entity);
    worker::leave();
}

impl<T> Drop for JoinHandle<T> {
    fn drop(&mut self) {
        detach::<T>(self.record);
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

    /// Counts from the next time on that it is queued.
    pub fn set_priority(&self, priority: u8) {
        self.entity.set_priority(priority);
        worker::note(|| What::Priority(self.trace_id(), priority));
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

    pub(super) fn record(&self) -> Option<&'static Thread> {
        (self.record.id_number() == self.number).then_some(self.record)
    }
}
