//! A thread's record: all of it that is not its stack.

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::mem::{MaybeUninit, align_of, offset_of, size_of};
use std::ptr;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};

use super::offers::Offers;
use crate::hierarchy::{Entity, Kind, PRIORITY};
use crate::runtime::switching::context::Context;
use crate::runtime::switching::stack::{self, Stack};
use crate::runtime::switching::values::Values;
use crate::trace::EntityId;

/// Bytes for what a thread is to do, and later for what came of it; what is larger is boxed.
const SPACE: usize = 96;

/// What `fate` says; anything else is the address of the thread that joins it.
pub(crate) const RUNNING: usize = 0;
pub(crate) const DETACHED: usize = 1;
pub(crate) const FINISHED: usize = 2;

/// `flags`: somebody wants it to end.
pub(crate) const CANCELLED: u8 = 1;
/// `flags`: it was made by the C interface, whose frames are not unwound.
pub(crate) const FOREIGN: u8 = 2;

/// `permit`: its next `park` waits.
pub(crate) const NO_PERMIT: u8 = 0;
/// `permit`: its next `park` does not wait.
pub(crate) const PERMIT: u8 = 1;
/// `permit`: it waits in `park`, and is queued nowhere.
pub(crate) const PARKED: u8 = 2;

/// Records are never freed, so that a stale address still leads to a record, whose number tells
/// that it is another's.
#[repr(C, align(64))]
pub(crate) struct Thread {
    pub entity: Entity,
    pub context: Context,
    pub fate: AtomicUsize,
    /// In a list of waiting threads.
    pub next: Cell<*const Thread>,
    /// What whoever woke it hands over.
    pub handed: Cell<usize>,
    pub stack: Cell<Stack>,
    /// 0 for the common size.
    pub stack_bytes: Cell<usize>,
    pub entry: Cell<unsafe fn(&Thread)>,
    pub number: AtomicU64,
    pub flags: AtomicU8,
    /// Whether it may pass `park`.
    pub permit: AtomicU8,
    pub values: Values,
    /// What it offers to whoever is idle.
    pub offers: Offers<Thread>,
    name: UnsafeCell<Option<Box<str>>>,
    space: UnsafeCell<MaybeUninit<Space>>,
}

#[repr(C, align(16))]
struct Space([u8; SPACE]);

// SAFETY: cells are only used by whoever has the thread in its hands: its maker until it is woken, the
// processor that runs it, the one that joins it after its end, or under the lock of the list it waits in.
unsafe impl Sync for Thread {}

unsafe fn nothing(_: &Thread) {}

impl Thread {
    /// Where its name is, for debuggers.
    pub const NAME: usize = offset_of!(Thread, name);

    pub(super) fn new() -> Thread {
        Thread {
            entity: Entity::new(Kind::Thread, PRIORITY),
            context: Context::new(),
            fate: AtomicUsize::new(RUNNING),
            next: Cell::new(ptr::null()),
            handed: Cell::new(0),
            stack: Cell::new(Stack::NONE),
            stack_bytes: Cell::new(0),
            entry: Cell::new(nothing),
            number: AtomicU64::new(0),
            flags: AtomicU8::new(0),
            permit: AtomicU8::new(NO_PERMIT),
            values: Values::new(),
            offers: Offers::new(),
            name: UnsafeCell::new(None),
            space: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    /// As new. The caller is the only one who knows it.
    #[inline]
    pub fn renew(&self, number: u64) {
        self.entity.renew(PRIORITY);
        self.context.forget();
        self.context.set_rounds(false);
        self.fate.store(RUNNING, Ordering::Relaxed);
        self.stack_bytes.set(0);
        self.number.store(number, Ordering::Relaxed);
        self.flags.store(0, Ordering::Relaxed);
        self.permit.store(NO_PERMIT, Ordering::Relaxed);
    }

    /// Who changes how numbers are rounded without having said so is found out where that costs nothing.
    #[inline]
    pub fn check_rounding(&self) {
        #[cfg(debug_assertions)]
        assert!(
            self.context.rounds_as_stated(),
            "thread '{}' has changed how numbers are rounded: say so when it is made (own_rounding)",
            self.name().unwrap_or("without a name")
        );
    }

    /// Whether it has not begun and may do so on the stack that the caller is on. Threads of the C interface
    /// may not: they end by leaving their frames, and the caller's are below these.
    #[inline]
    pub fn may_begin_on(&self, stack: Stack) -> bool {
        let wanted = self.stack_bytes.get().max(stack::ROOM);
        !self.context.is_prepared()
            && !self.context.rounds()
            && self.flags.load(Ordering::Relaxed) & FOREIGN == 0
            && stack.room() >= wanted
    }

    /// # Safety
    ///
    /// `entity` is that of a thread.
    #[inline]
    pub unsafe fn of(entity: *const Entity) -> &'static Thread {
        // SAFETY: an entity is the first field of what it stands for, and records are never freed.
        unsafe { &*entity.cast::<Thread>() }
    }

    /// It has ended and nobody knows it any more.
    pub fn retire(&self) {
        // SAFETY: the caller is the last who knew it.
        unsafe { self.set_name(None) };
        self.number.store(0, Ordering::Relaxed);
    }

    /// The number that no other thread of the run has.
    #[inline]
    pub fn id_number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }

    pub fn trace_id(&self) -> EntityId {
        EntityId::Thread(self.id_number())
    }

    /// By the thread itself, at its end.
    #[inline]
    pub fn set_outcome<T>(&self, outcome: Outcome<T>) {
        // SAFETY: the thread took its work out at its beginning.
        unsafe { self.store(outcome) };
        self.entry.set(forget::<T>);
    }

    pub fn name(&self) -> Option<&str> {
        // SAFETY: names are given before a thread is woken, and taken after its end.
        unsafe { (*self.name.get()).as_deref() }
    }

    /// # Safety
    ///
    /// The thread is in the caller's hands: not woken yet, or ended.
    #[inline]
    pub unsafe fn set_name(&self, name: Option<Box<str>>) {
        // SAFETY: the caller is the only one who uses it.
        unsafe {
            if name.is_some() || (*self.name.get()).is_some() {
                *self.name.get() = name;
            }
        }
    }

    /// # Safety
    ///
    /// The thread is in the caller's hands, and what was stored before was taken.
    #[inline]
    pub unsafe fn store<V>(&self, value: V) {
        let space = self.space.get();
        // SAFETY: what fits is written where nothing is, and boxed otherwise.
        unsafe {
            match fits::<V>() {
                true => space.cast::<V>().write(value),
                false => space.cast::<*mut V>().write(Box::into_raw(Box::new(value))),
            }
        }
    }

    /// # Safety
    ///
    /// The thread is in the caller's hands, and a `V` was stored and not taken yet.
    #[inline]
    pub unsafe fn take<V>(&self) -> V {
        let space = self.space.get();
        // SAFETY: as promised.
        unsafe {
            match fits::<V>() {
                true => space.cast::<V>().read(),
                false => *Box::from_raw(space.cast::<*mut V>().read()),
            }
        }
    }
}

#[inline]
const fn fits<V>() -> bool {
    size_of::<V>() <= SPACE && align_of::<V>() <= 16
}

/// What a thread left behind: its result, or what it panicked with.
pub(crate) type Outcome<T> = Result<T, Box<dyn Any + Send>>;

/// The entry of a thread that runs an `F`.
///
/// # Safety
///
/// An `F` was stored in the thread, which runs now.
pub(crate) unsafe fn enter<F: FnOnce() -> T, T>(thread: &Thread) {
    // SAFETY: the thread runs, and the `F` is there.
    unsafe {
        let work: F = thread.take();
        thread.set_outcome(std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)));
    }
}

/// Drops the outcome of a thread that nobody joins.
unsafe fn forget<T>(thread: &Thread) {
    // SAFETY: `enter` stored it and nobody took it, as the thread is detached.
    drop(unsafe { thread.take::<Outcome<T>>() });
}
