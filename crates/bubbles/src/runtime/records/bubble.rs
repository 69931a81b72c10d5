//! A bubble's record: what the runtime adds to that of the hierarchy.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::thread::Thread;
use super::waiters::Waiters;
use crate::hierarchy::{self, Entity, Hierarchy, PRIORITY, World};
use crate::lock::Lock;
use crate::trace::EntityId;

/// A bubble with what the runtime adds to it. Never freed: see [`hierarchy::Bubble`].
#[repr(C)]
pub(crate) struct Shared {
    pub bubble: hierarchy::Bubble,
    number: AtomicU64,
    /// Somebody waits for it to be over.
    waited_for: AtomicBool,
    /// Nobody has it any more: it goes when it is over.
    dropped: AtomicBool,
    pub joiners: Lock<Waiters>,
    name: UnsafeCell<Option<Box<str>>>,
}

// SAFETY: the name is set by the maker before others know the bubble; the rest is locked or atomic.
unsafe impl Sync for Shared {}

/// All that were ever made.
struct Known {
    all: Vec<&'static Shared>,
    /// Those that nobody has.
    spare: Vec<&'static Shared>,
}

static KNOWN: Mutex<Known> = Mutex::new(Known { all: Vec::new(), spare: Vec::new() });
static NUMBER: AtomicU64 = AtomicU64::new(1);

impl Shared {
    pub fn acquire(name: Option<&str>) -> &'static Shared {
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let shared = match known.spare.pop() {
            Some(shared) => shared,
            None => {
                let shared: &'static Shared = Box::leak(Box::new(Shared {
                    bubble: hierarchy::Bubble::new(PRIORITY),
                    number: AtomicU64::new(0),
                    waited_for: AtomicBool::new(false),
                    dropped: AtomicBool::new(false),
                    joiners: Lock::new(Waiters::new()),
                    name: UnsafeCell::new(None),
                }));
                known.all.push(shared);
                shared
            }
        };
        // SAFETY: nobody has it, and who goes through all of them holds the lock.
        unsafe { *shared.name.get() = name.map(Into::into) };
        drop(known);
        shared.bubble.renew();
        shared.number.store(NUMBER.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        shared.waited_for.store(false, Ordering::Relaxed);
        shared.dropped.store(false, Ordering::Relaxed);
        shared
    }

    pub fn number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }

    pub fn trace_id(&self) -> EntityId {
        EntityId::Bubble(self.number())
    }

    /// # Safety
    ///
    /// `bubble` is one of the runtime's.
    pub unsafe fn of(bubble: &hierarchy::Bubble) -> &'static Shared {
        // SAFETY: it is the first field, and never freed.
        unsafe { &*std::ptr::from_ref(bubble).cast::<Shared>() }
    }

    pub fn name(&self) -> Option<&str> {
        // SAFETY: it is set before others know the bubble, or under the lock that they hold.
        unsafe { (*self.name.get()).as_deref() }
    }

    /// # Safety
    ///
    /// `entity` is that of a bubble of the runtime.
    pub unsafe fn of_entity(entity: &Entity) -> &'static Shared {
        // SAFETY: an entity is the first field of what it stands for.
        unsafe { Shared::of(&*std::ptr::from_ref(entity).cast()) }
    }

    /// Somebody is about to look whether it is over, and to wait among `joiners` if not.
    pub fn will_be_waited_for(&self) {
        self.waited_for.store(true, Ordering::SeqCst);
    }

    /// Its last thread has ended, or that of a bubble in it: whoever waits looks again, woken by `wake`.
    pub fn notify<W: World>(&'static self, lists: &Hierarchy<W>, wake: impl Fn(&Thread)) {
        if self.waited_for.load(Ordering::Acquire) {
            loop {
                let waiter = self.joiners.lock().pop();
                let Some(thread) = waiter else { break };
                wake(thread);
            }
        }
        if self.dropped.load(Ordering::Acquire) {
            self.go(lists);
        }
    }

    /// Nobody has it any more: it goes when it is empty.
    pub fn release<W: World>(&'static self, lists: &Hierarchy<W>) {
        self.dropped.store(true, Ordering::Release);
        self.go(lists);
    }

    /// The same where the run is over and no list is left.
    pub fn release_outside(&self) {
        self.number.store(0, Ordering::Relaxed);
    }

    /// Takes the memory back of a bubble that nobody has any more, if it is empty.
    fn go<W: World>(&'static self, lists: &Hierarchy<W>) {
        if lists.is_empty(&self.bubble) && self.dropped.swap(false, Ordering::AcqRel) {
            self.number.store(0, Ordering::Relaxed);
            lists.retire(&self.bubble);
            KNOWN.lock().unwrap_or_else(PoisonError::into_inner).spare.push(self);
        }
    }

    /// Those that have not gone, by the order in which they were made, with number and what they are called.
    pub fn living() -> Vec<(&'static Shared, u64, String)> {
        let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let living = known.all.iter().filter(|shared| shared.number() != 0);
        let described = |shared: &&'static Shared| {
            let number = shared.number();
            (*shared, number, shared.name().map_or_else(|| format!("bubble {number}"), str::to_owned))
        };
        let mut found: Vec<_> = living.map(described).collect();
        drop(known);
        found.sort_by_key(|(_, number, _)| *number);
        found
    }
}
