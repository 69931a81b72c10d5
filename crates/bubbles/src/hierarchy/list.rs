//! One run list: first come, first served within a priority.

use std::ptr;

use super::entity::{Entity, Kind, Links, PRIORITIES, Place};
use crate::lock::{Guard, Lock};
use crate::sync::{AtomicU32, Ordering};

/// The list of one unit. Every list has a cache line pair of its own: those that look past an empty
/// list only read its hint, which stays in their caches as long as nobody queues there.
#[repr(align(128))]
pub(crate) struct List {
    /// Bit p is set while something of priority p is queued. Written under the lock, read without.
    hint: AtomicU32,
    queues: Lock<Queues>,
}

pub(crate) struct Queues {
    /// Closed lists take nothing: their processors were taken away.
    pub open: bool,
    ends: [(*const Entity, *const Entity); PRIORITIES],
}

pub(crate) struct Held<'a> {
    hint: &'a AtomicU32,
    queues: Guard<'a, Queues>,
}

impl List {
    pub fn new() -> List {
        let ends = [(ptr::null(), ptr::null()); PRIORITIES];
        List { hint: AtomicU32::new(0), queues: Lock::new(Queues { open: true, ends }) }
    }

    /// One more than the highest priority queued, 0 where the list looks empty.
    #[inline]
    pub fn urgency(&self) -> u32 {
        u32::BITS - self.hint.load(Ordering::Relaxed).leading_zeros()
    }

    #[inline]
    pub fn lock(&self) -> Held<'_> {
        Held { hint: &self.hint, queues: self.queues.lock() }
    }
}

impl Held<'_> {
    #[inline]
    pub fn is_open(&self) -> bool {
        self.queues.open
    }

    pub fn set_open(&mut self, open: bool) {
        self.queues.open = open;
    }

    /// Behind all others of its priority. Its place is the caller's to set.
    #[inline]
    pub fn push_back(&mut self, entity: &Entity) {
        let priority = entity.priority();
        let end = &mut self.queues.ends[usize::from(priority)];
        // SAFETY: the list's lock is held, and `entity` is on no list.
        unsafe {
            let links = &mut *entity.links.get();
            links.priority = priority;
            links.next = ptr::null();
            links.previous = end.1;
            match end.1.is_null() {
                true => end.0 = entity,
                false => (*(*end.1).links.get()).next = entity,
            }
        }
        end.1 = entity;
        self.mark(priority);
    }

    /// Before all others of its priority.
    pub fn push_front(&mut self, entity: &Entity) {
        let priority = entity.priority();
        let end = &mut self.queues.ends[usize::from(priority)];
        // SAFETY: as in `push_back`.
        unsafe {
            let links = &mut *entity.links.get();
            links.priority = priority;
            links.previous = ptr::null();
            links.next = end.0;
            match end.0.is_null() {
                true => end.1 = entity,
                false => (*(*end.0).links.get()).previous = entity,
            }
        }
        end.0 = entity;
        self.mark(priority);
    }

    #[inline]
    fn mark(&self, priority: u8) {
        let hint = self.hint.load(Ordering::Relaxed);
        self.hint.store(hint | 1 << priority, Ordering::Relaxed);
    }

    /// Takes the first of the highest priority.
    #[inline]
    pub fn pop(&mut self) -> Option<*const Entity> {
        let hint = self.hint.load(Ordering::Relaxed);
        let priority = hint.checked_ilog2()?;
        let end = &mut self.queues.ends[priority as usize];
        let first = end.0;
        // SAFETY: the list's lock is held, and a marked queue is not empty.
        unsafe {
            end.0 = (*(*first).links.get()).next;
            match end.0.is_null() {
                true => {
                    end.1 = ptr::null();
                    self.hint.store(hint & !(1 << priority), Ordering::Relaxed);
                }
                false => (*(*end.0).links.get()).previous = ptr::null(),
            }
        }
        Some(first)
    }

    /// Takes one that is on this list.
    #[inline]
    pub fn unlink(&mut self, entity: &Entity) {
        // SAFETY: the list's lock is held, and `entity` is on this list.
        unsafe {
            let Links { next, previous, priority } = *entity.links.get();
            let end = &mut self.queues.ends[usize::from(priority)];
            match previous.is_null() {
                true => end.0 = next,
                false => (*(*previous).links.get()).next = next,
            }
            match next.is_null() {
                true => end.1 = previous,
                false => (*(*next).links.get()).previous = previous,
            }
            if end.0.is_null() {
                let hint = self.hint.load(Ordering::Relaxed);
                self.hint.store(hint & !(1 << priority), Ordering::Relaxed);
            }
        }
    }

    /// What is queued, in the order in which it will be taken.
    pub fn iter(&self) -> impl Iterator<Item = *const Entity> + '_ {
        self.queues.ends.iter().rev().flat_map(|&(first, _)| {
            let mut at = first;
            std::iter::from_fn(move || {
                let entity = (!at.is_null()).then_some(at)?;
                // SAFETY: the list's lock is held, so that its links stand still.
                at = unsafe { (*(*entity).links.get()).next };
                Some(entity)
            })
        })
    }

    /// The first of a kind.
    pub fn first(&self, kind: Kind) -> Option<*const Entity> {
        // SAFETY: what is on the list is alive.
        self.iter().find(|&entity| unsafe { (*entity).kind() } == kind)
    }

    /// Takes all of it out, in order.
    pub fn drain(&mut self) -> Vec<*const Entity> {
        std::iter::from_fn(|| {
            let entity = self.pop()?;
            // SAFETY: it was on the list a moment ago, whose lock is held.
            unsafe { (*entity).set_place(Place::Active { processor: 0, recalled: false }) };
            Some(entity)
        })
        .collect()
    }
}
