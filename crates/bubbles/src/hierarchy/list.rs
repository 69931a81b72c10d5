//! One run list: first come, first served within a priority.

use super::chain::{Chain, Queue};
use super::entity::{Entity, Kind, PRIORITIES, Place};
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
    rows: [Chain<Queue>; PRIORITIES],
}

pub(crate) struct Held<'a> {
    hint: &'a AtomicU32,
    queues: Guard<'a, Queues>,
}

impl List {
    pub fn new() -> List {
        let rows = std::array::from_fn(|_| Chain::new());
        List { hint: AtomicU32::new(0), queues: Lock::new(Queues { open: true, rows }) }
    }

    /// Bit p is set where something of priority p seems to be queued.
    #[inline]
    pub fn hint(&self) -> u32 {
        self.hint.load(Ordering::Relaxed)
    }

    /// One more than the highest priority queued, 0 where the list looks empty.
    #[inline]
    pub fn urgency(&self) -> u32 {
        urgency(self.hint())
    }

    #[inline]
    pub fn lock(&self) -> Held<'_> {
        Held { hint: &self.hint, queues: self.queues.lock() }
    }
}

/// One more than the highest priority of a hint, 0 where it has none.
#[inline]
pub(crate) fn urgency(hint: u32) -> u32 {
    u32::BITS - hint.leading_zeros()
}

impl Held<'_> {
    #[inline]
    pub fn is_open(&self) -> bool {
        self.queues.open
    }

    pub fn set_open(&mut self, open: bool) {
        self.queues.open = open;
    }

    /// The row of the priority that an entity has now, under which it is queued from here on.
    #[inline(always)]
    fn row(&mut self, entity: &Entity) -> &mut Chain<Queue> {
        let priority = entity.priority();
        entity.queued_as.set(priority);
        let hint = self.hint.load(Ordering::Relaxed);
        if hint & 1 << priority == 0 {
            self.hint.store(hint | 1 << priority, Ordering::Relaxed);
        }
        &mut self.queues.rows[usize::from(priority)]
    }

    /// Behind all others of its priority. Its place is the caller's to set.
    #[inline(always)]
    pub fn push_back(&mut self, entity: &Entity) {
        // SAFETY: the list's lock is held, and `entity` is on no list.
        unsafe { self.row(entity).push_back(entity) };
    }

    /// Before all others of its priority.
    pub fn push_front(&mut self, entity: &Entity) {
        // SAFETY: as in `push_back`.
        unsafe { self.row(entity).push_front(entity) };
    }

    /// What `pop` would take.
    #[inline(always)]
    pub fn head(&self) -> Option<*const Entity> {
        let priority = self.hint.load(Ordering::Relaxed).checked_ilog2()?;
        Some(self.queues.rows[priority as usize].first)
    }

    /// Takes the head, which there is, and puts `entity` behind those of its priority. Where both have the same,
    /// the hint stays as it is: whoever looks next need not wait for it.
    #[inline(always)]
    pub fn exchange(&mut self, head: &Entity, entity: &Entity) {
        let priority = entity.priority();
        if head.queued_as.get() == priority {
            entity.queued_as.set(priority);
            // SAFETY: the list's lock is held, `entity` is on no list, and the row has the head.
            unsafe { self.queues.rows[usize::from(priority)].exchange(entity) };
        } else {
            self.push_back(entity);
            self.unlink(head);
        }
    }

    /// Takes the first of the highest priority.
    #[inline]
    pub fn pop(&mut self) -> Option<*const Entity> {
        let head = self.head()?;
        // SAFETY: what is on the list is alive.
        self.unlink(unsafe { &*head });
        Some(head)
    }

    /// Takes one that is on this list.
    #[inline(always)]
    pub fn unlink(&mut self, entity: &Entity) {
        let priority = entity.queued_as.get();
        let row = &mut self.queues.rows[usize::from(priority)];
        // SAFETY: the list's lock is held, and `entity` is on this list.
        unsafe { row.unlink(entity) };
        if row.is_empty() {
            let hint = self.hint.load(Ordering::Relaxed);
            self.hint.store(hint & !(1 << priority), Ordering::Relaxed);
        }
    }

    /// What is queued, in the order in which it will be taken.
    pub fn iter(&self) -> impl Iterator<Item = *const Entity> + '_ {
        self.queues.rows.iter().rev().flat_map(|row| row.iter().map(std::ptr::from_ref))
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
