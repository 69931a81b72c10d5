//! A row of entities, linked through themselves.

use std::marker::PhantomData;
use std::ptr;

use super::entity::{Entity, Links};

/// Which of an entity's links a row goes by.
pub(super) trait Row {
    fn links(entity: &Entity) -> *mut Links;
}

/// What lies on a list; the members of a bubble.
pub(super) struct Queue;
pub(super) struct Family;

impl Row for Queue {
    #[inline]
    fn links(entity: &Entity) -> *mut Links {
        entity.links.get()
    }
}

impl Row for Family {
    #[inline]
    fn links(entity: &Entity) -> *mut Links {
        entity.siblings.get()
    }
}

/// The ends of a row; null where it is empty. Whoever has it holds the lock under which its entities'
/// links are.
pub(super) struct Chain<R> {
    pub first: *const Entity,
    pub last: *const Entity,
    row: PhantomData<R>,
}

impl<R: Row> Chain<R> {
    pub fn new() -> Chain<R> {
        Chain { first: ptr::null(), last: ptr::null(), row: PhantomData }
    }

    pub fn is_empty(&self) -> bool {
        self.first.is_null()
    }

    /// # Safety
    ///
    /// `entity` is in no row of this kind, and outlives its time in this one.
    #[inline]
    pub unsafe fn push_back(&mut self, entity: &Entity) {
        // SAFETY: as promised; the last one is the neighbour of none.
        unsafe { self.insert(entity, self.last, ptr::null()) };
    }

    /// # Safety
    ///
    /// As for `push_back`.
    #[inline]
    pub unsafe fn push_front(&mut self, entity: &Entity) {
        // SAFETY: as promised; the first one is the neighbour of none.
        unsafe { self.insert(entity, ptr::null(), self.first) };
    }

    /// # Safety
    ///
    /// As for `push_back`; `previous` and `next` are neighbours, or null at the ends.
    #[inline]
    unsafe fn insert(&mut self, entity: &Entity, previous: *const Entity, next: *const Entity) {
        // SAFETY: the row's lock is held, and what is in it is alive.
        unsafe {
            *R::links(entity) = Links { next, previous };
            match previous.as_ref() {
                None => self.first = entity,
                Some(previous) => (*R::links(previous)).next = entity,
            }
            match next.as_ref() {
                None => self.last = entity,
                Some(next) => (*R::links(next)).previous = entity,
            }
        }
    }

    /// # Safety
    ///
    /// `entity` is in this row.
    #[inline]
    pub unsafe fn unlink(&mut self, entity: &Entity) {
        // SAFETY: the row's lock is held, and what is in it is alive.
        unsafe {
            let Links { next, previous } = *R::links(entity);
            match previous.as_ref() {
                None => self.first = next,
                Some(previous) => (*R::links(previous)).next = next,
            }
            match next.as_ref() {
                None => self.last = previous,
                Some(next) => (*R::links(next)).previous = previous,
            }
        }
    }

    /// Puts one behind the last and takes the first, of which there is one.
    ///
    /// # Safety
    ///
    /// As for `push_back`; the row is not empty.
    #[inline(always)]
    pub unsafe fn exchange(&mut self, entity: &Entity) {
        // SAFETY: the row's lock is held, and what is in it is alive. Who is first has one behind it by
        // then.
        unsafe {
            *R::links(entity) = Links { next: ptr::null(), previous: self.last };
            (*R::links(&*self.last)).next = entity;
            self.last = entity;
            self.first = (*R::links(&*self.first)).next;
            (*R::links(&*self.first)).previous = ptr::null();
        }
    }

    /// From the first to the last. The row's lock is held for as long.
    #[inline]
    pub fn iter<'a>(&self) -> impl Iterator<Item = &'a Entity> + use<'a, R> {
        let mut at = self.first;
        std::iter::from_fn(move || {
            // SAFETY: what is in a row is alive, and leaves it before it ends.
            let entity = unsafe { at.as_ref() }?;
            // SAFETY: the row's lock is held.
            at = unsafe { (*R::links(entity)).next };
            Some(entity)
        })
    }
}
