//! A bubble: who belongs together, and what its maker wishes for it.

use std::ptr;

use topology::Level;

use super::entity::{Entity, Kind, PRIORITY};
use crate::lock::{Guard, Lock};

/// Where a bubble lets its members out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum BurstAt {
    /// On the smallest unit that has a processor for each of its threads.
    #[default]
    Fitting,
    /// On a unit of this level, or the nearest narrower one that the machine has.
    Level(Level),
    /// On the smallest unit that has at least so many processors.
    Processors(usize),
}

/// What the maker of a bubble wishes for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wishes {
    pub burst: BurstAt,
    /// It bursts on a unit with at least so many processors, where there is one …
    pub fewest: usize,
    /// … and with no more than so many.
    pub most: usize,
    /// The NUMA node, by the kernel's number, on which its data are.
    pub memory: Option<u32>,
    /// It closes again so many nanoseconds after it has burst; 0: it stays as it is.
    pub slice_ns: u64,
    /// Its threads may be interrupted by a signal when they are to come home.
    pub preempt: bool,
}

impl Default for Wishes {
    fn default() -> Wishes {
        Wishes {
            burst: BurstAt::Fitting,
            fewest: 1,
            most: usize::MAX,
            memory: None,
            slice_ns: 0,
            preempt: false,
        }
    }
}

/// A bubble. Its memory is never used for anything else as long as the hierarchy lives, so that
/// whoever still knows its address finds a lock there, under which it can look whether it is meant.
#[repr(C)]
pub struct Bubble {
    pub entity: Entity,
    members: Lock<Members>,
}

pub(super) struct Members {
    first: *const Entity,
    last: *const Entity,
    /// Threads directly in it that have not ended.
    pub threads: usize,
    /// It has burst and calls its members home.
    pub closing: bool,
    /// The bubble around it waits for it to have closed.
    pub awaited: bool,
    /// Members that it waits for while it is closing.
    pub out: usize,
    /// The unit where it was put when it was woken or placed: it comes back there.
    pub origin: Option<usize>,
    pub wishes: Wishes,
}

impl Bubble {
    pub fn new(priority: u8) -> Bubble {
        Bubble {
            entity: Entity::new(Kind::Bubble, priority),
            members: Lock::new(Members {
                first: ptr::null(),
                last: ptr::null(),
                threads: 0,
                closing: false,
                awaited: false,
                out: 0,
                origin: None,
                wishes: Wishes::default(),
            }),
        }
    }

    /// As new, for a bubble whose memory is used again. It is empty and on no list.
    pub(crate) fn renew(&self) {
        let mut members = self.lock();
        self.entity.renew(PRIORITY);
        members.origin = None;
        members.wishes = Wishes::default();
    }

    #[inline]
    pub(super) fn lock(&self) -> Guard<'_, Members> {
        self.members.lock()
    }

    pub fn wishes(&self) -> Wishes {
        self.lock().wishes
    }

    pub fn set_wishes(&self, wishes: Wishes) {
        self.lock().wishes = wishes;
    }

    /// The address by which lists know it.
    #[inline]
    pub(super) fn address(&self) -> *mut Bubble {
        ptr::from_ref(self).cast_mut()
    }

    /// # Safety
    ///
    /// `entity` is that of a bubble.
    #[inline]
    pub(super) unsafe fn of<'a>(entity: *const Entity) -> &'a Bubble {
        // SAFETY: an entity is the first field of what it stands for.
        unsafe { &*entity.cast::<Bubble>() }
    }
}

impl Members {
    #[inline]
    pub fn link(&mut self, entity: &Entity) {
        // SAFETY: the bubble's lock is held, and `entity` is in no bubble.
        unsafe {
            let siblings = &mut *entity.siblings.get();
            siblings.next = ptr::null();
            siblings.previous = self.last;
            match self.last.is_null() {
                true => self.first = entity,
                false => (*(*self.last).siblings.get()).next = entity,
            }
        }
        self.last = entity;
        self.threads += usize::from(entity.kind() == Kind::Thread);
    }

    #[inline]
    pub fn unlink(&mut self, entity: &Entity) {
        // SAFETY: the bubble's lock is held, and `entity` is in this bubble.
        unsafe {
            let siblings = *entity.siblings.get();
            match siblings.previous.is_null() {
                true => self.first = siblings.next,
                false => (*(*siblings.previous).siblings.get()).next = siblings.next,
            }
            match siblings.next.is_null() {
                true => self.last = siblings.previous,
                false => (*(*siblings.next).siblings.get()).previous = siblings.previous,
            }
        }
        self.threads -= usize::from(entity.kind() == Kind::Thread);
    }

    /// The members in the order in which they came.
    #[inline]
    pub fn iter<'a>(&self) -> impl Iterator<Item = &'a Entity> + use<'a> {
        let mut at = self.first;
        std::iter::from_fn(move || {
            // SAFETY: the bubble's lock is held by whoever has `self`; members leave before they end.
            let entity = unsafe { at.as_ref() }?;
            // SAFETY: as above.
            at = unsafe { (*entity.siblings.get()).next };
            Some(entity)
        })
    }

    pub fn is_empty(&self) -> bool {
        self.first.is_null()
    }
}
