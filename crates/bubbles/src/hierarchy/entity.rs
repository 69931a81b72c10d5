//! What lies on run lists: threads and bubbles alike.

use std::cell::{Cell, UnsafeCell};
use std::ptr;

use super::bubble::Bubble;
use crate::sync::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, Ordering};

/// Priorities are 0 to 15, 15 before all others.
pub const PRIORITIES: usize = 16;
/// What threads and bubbles have unless they are told.
pub const PRIORITY: u8 = 7;

fn clamped(priority: u8) -> u8 {
    priority.min(PRIORITIES as u8 - 1)
}

/// What an entity stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A thread, which a processor runs.
    Thread,
    /// A [`Bubble`], of which the entity is the first field.
    Bubble,
}

/// Where an entity is. Whoever may change it holds what `Place` names: the list's lock, the lock of
/// the bubble around it, or the entity itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Not woken yet, blocked, or ended.
    Nowhere,
    /// On the list of this unit.
    Queued(usize),
    /// Ready, in a closed bubble.
    Inside,
    /// A thread that this processor runs, or a bubble that is being moved.
    Active {
        /// The one that runs the thread; 0 for what is only being moved.
        processor: usize,
        /// The bubble around it is closing, and waits for it to come home.
        recalled: bool,
    },
    /// A bubble that has burst on this unit.
    Burst(usize),
}

const NOWHERE: u32 = 0;
const QUEUED: u32 = 1;
const INSIDE: u32 = 2;
const ACTIVE: u32 = 3;
const BURST: u32 = 4;
const TAG: u32 = 7;
/// The bubble around it is closing: it is to come home as soon as it lets go of its processor.
const RECALLED: u32 = 8;
const SHIFT: u32 = 4;

impl Place {
    #[inline(always)]
    fn encode(self) -> u32 {
        match self {
            Place::Nowhere => NOWHERE,
            Place::Queued(unit) => QUEUED | (unit as u32) << SHIFT,
            Place::Inside => INSIDE,
            Place::Active { processor, recalled: false } => ACTIVE | (processor as u32) << SHIFT,
            Place::Active { processor, recalled: true } => ACTIVE | RECALLED | (processor as u32) << SHIFT,
            Place::Burst(unit) => BURST | (unit as u32) << SHIFT,
        }
    }

    #[inline(always)]
    fn decode(code: u32) -> Place {
        let number = (code >> SHIFT) as usize;
        match code & TAG {
            QUEUED => Place::Queued(number),
            INSIDE => Place::Inside,
            ACTIVE => Place::Active { processor: number, recalled: code & RECALLED != 0 },
            BURST => Place::Burst(number),
            _ => Place::Nowhere,
        }
    }
}

/// A thread or bubble, as far as lists are concerned. It is the first field of what it stands for, so
/// that its address is that one's address.
#[repr(C)]
pub struct Entity {
    place: AtomicU32,
    /// The unit on whose list it was last, and where a thread goes back to.
    home: AtomicU32,
    priority: AtomicU8,
    /// Nobody has woken it yet.
    fresh: AtomicBool,
    /// A thread that may be recalled while it runs: it was queued or let out as a member of its bubble.
    /// Written by whoever has it in its hands.
    adopted: AtomicBool,
    kind: Kind,
    /// The priority under which it was queued, and its neighbours there, both under the list's lock.
    pub(super) queued_as: Cell<u8>,
    pub(super) links: UnsafeCell<Links>,
    /// The bubble around it.
    holder: AtomicPtr<Bubble>,
    /// Under the lock of `holder`.
    pub(super) siblings: UnsafeCell<Links>,
}

#[derive(Clone, Copy)]
pub(super) struct Links {
    pub next: *const Entity,
    pub previous: *const Entity,
}

impl Links {
    const NONE: Links = Links { next: ptr::null(), previous: ptr::null() };
}

// SAFETY: links are only touched under the locks named above; the rest is atomic.
unsafe impl Sync for Entity {}
// SAFETY: as above.
unsafe impl Send for Entity {}

const NO_HOME: u32 = u32::MAX;

impl Entity {
    /// Where its place is, and the bubble around it, for debuggers.
    #[cfg(not(feature = "shuttle"))]
    pub(crate) const PLACE: usize = std::mem::offset_of!(Entity, place);
    #[cfg(not(feature = "shuttle"))]
    pub(crate) const HOLDER: usize = std::mem::offset_of!(Entity, holder);

    /// Makes one that is nowhere, in no bubble, and that nobody has woken. `priority`: 0 to 15; more counts as 15.
    pub fn new(kind: Kind, priority: u8) -> Entity {
        let priority = clamped(priority);
        Entity {
            place: AtomicU32::new(NOWHERE),
            home: AtomicU32::new(NO_HOME),
            priority: AtomicU8::new(priority),
            fresh: AtomicBool::new(true),
            adopted: AtomicBool::new(false),
            kind,
            queued_as: Cell::new(priority),
            links: UnsafeCell::new(Links::NONE),
            holder: AtomicPtr::new(ptr::null_mut()),
            siblings: UnsafeCell::new(Links::NONE),
        }
    }

    /// Whether it is a thread or a bubble, which never changes.
    #[inline]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Where it is now; certain only for whoever holds what the place names.
    #[inline]
    pub fn place(&self) -> Place {
        Place::decode(self.place.load(Ordering::Acquire))
    }

    /// Whether the bubble around it waits for it to let go of its processor.
    #[inline]
    pub fn recalled(&self) -> bool {
        self.place.load(Ordering::Relaxed) & RECALLED != 0
    }

    #[inline(always)]
    pub(super) fn set_place(&self, place: Place) {
        self.place.store(place.encode(), Ordering::Release);
    }

    /// Whether it was at `from` and is at `to` now.
    #[inline(always)]
    pub(super) fn step(&self, from: Place, to: Place) -> bool {
        self.place.compare_exchange(from.encode(), to.encode(), Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// The unit it belongs to, if it has been on a list.
    #[inline]
    pub fn home(&self) -> Option<usize> {
        let home = self.home.load(Ordering::Relaxed);
        (home != NO_HOME).then_some(home as usize)
    }

    #[inline]
    pub(crate) fn set_home(&self, unit: usize) {
        self.home.store(unit as u32, Ordering::Relaxed);
    }

    /// 0 to 15, 15 before all others: the one under which it is queued the next time.
    #[inline]
    pub fn priority(&self) -> u8 {
        self.priority.load(Ordering::Relaxed)
    }

    /// From the next time on that it is queued.
    pub fn set_priority(&self, priority: u8) {
        self.priority.store(clamped(priority), Ordering::Relaxed);
    }

    /// Whether it has neither been woken nor put into a bubble yet.
    #[inline]
    pub fn is_fresh(&self) -> bool {
        self.fresh.load(Ordering::Relaxed)
    }

    /// Nobody else knows it yet, or it was woken before.
    #[inline]
    pub(super) fn set_woken(&self) {
        self.fresh.store(false, Ordering::Relaxed);
    }

    /// True for the one of those who wake it for the first time that may do so.
    #[inline]
    pub(super) fn claim(&self) -> bool {
        self.is_fresh() && self.fresh.swap(false, Ordering::AcqRel)
    }

    #[inline]
    pub(super) fn is_adopted(&self) -> bool {
        self.adopted.load(Ordering::Relaxed)
    }

    /// It is about to be queued by the caller, who has it in its hands.
    #[inline(always)]
    pub(super) fn adopt(&self) {
        self.adopted.store(!self.holder.load(Ordering::Relaxed).is_null(), Ordering::Relaxed);
    }

    /// As `step`, for the one who has it in its hands. Only what is active and adopted, or a bubble, can be
    /// changed by another at the same time.
    #[inline(always)]
    pub(super) fn step_own(&self, from: Place, to: Place) -> bool {
        let active = matches!(from, Place::Active { .. });
        if active && (self.is_adopted() || self.kind == Kind::Bubble) {
            return self.step(from, to);
        }
        let there = self.place.load(Ordering::Relaxed) == from.encode();
        if there {
            self.set_place(to);
        }
        there
    }

    /// The bubble around it, null where it is in none. It may leave at any time unless that bubble is locked.
    #[inline]
    pub fn holder(&self) -> *mut Bubble {
        self.holder.load(Ordering::Acquire)
    }

    /// Makes it a member, if it is none of another bubble.
    pub(super) fn join(&self, bubble: *mut Bubble) -> bool {
        self.holder.compare_exchange(ptr::null_mut(), bubble, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// It leaves its bubble, whose lock the caller holds.
    #[inline]
    pub(super) fn leave(&self) {
        self.holder.store(ptr::null_mut(), Ordering::Release);
    }

    /// As new, for a thread whose memory is used again. Nobody else may know it.
    #[inline]
    pub(crate) fn renew(&self, priority: u8) {
        self.place.store(NOWHERE, Ordering::Relaxed);
        self.home.store(NO_HOME, Ordering::Relaxed);
        self.priority.store(priority, Ordering::Relaxed);
        self.fresh.store(true, Ordering::Relaxed);
        self.adopted.store(false, Ordering::Relaxed);
        self.holder.store(ptr::null_mut(), Ordering::Relaxed);
    }

    /// Taken off its processor's hands without a list, by a thread that is handed a processor directly.
    #[inline]
    pub(crate) fn activate(&self, processor: usize) {
        self.set_place(Place::Active { processor, recalled: false });
    }
}
