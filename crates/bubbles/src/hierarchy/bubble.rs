//! A bubble: who belongs together, and what its maker wishes for it.

use std::ptr;

use topology::Level;

use super::chain::{Chain, Family};
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
    /// Where it lets its members out; a level overrides `fewest` and `most`.
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
    /// What lists know of it. The first field, so that both have one address.
    pub entity: Entity,
    members: Lock<Members>,
}

pub(super) struct Members {
    row: Chain<Family>,
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
    /// Makes an empty bubble with default wishes that nobody has woken. `priority`: 0 to 15.
    pub fn new(priority: u8) -> Bubble {
        Bubble {
            entity: Entity::new(Kind::Bubble, priority),
            members: Lock::new(Members {
                row: Chain::new(),
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

    /// A copy of its wishes, taken under its lock.
    pub fn wishes(&self) -> Wishes {
        self.lock().wishes
    }

    /// Replaces all of its wishes. They count from the next time on that it is placed, bursts or closes.
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
        unsafe { self.row.push_back(entity) };
        self.threads += usize::from(entity.kind() == Kind::Thread);
    }

    #[inline]
    pub fn unlink(&mut self, entity: &Entity) {
        // SAFETY: the bubble's lock is held, and `entity` is in this bubble.
        unsafe { self.row.unlink(entity) };
        self.threads -= usize::from(entity.kind() == Kind::Thread);
    }

    /// The members in the order in which they came.
    #[inline]
    pub fn iter<'a>(&self) -> impl Iterator<Item = &'a Entity> + use<'a> {
        self.row.iter()
    }

    pub fn is_empty(&self) -> bool {
        self.row.is_empty()
    }
}
