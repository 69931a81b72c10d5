//! What a thread offers to whoever is idle: work that becomes a thread where a processor wants one (`join`).
//!
//! What is offered lies on the stack of the thread that offers it, in a chain that only this thread touches, so
//! that nothing is locked and nothing shared is written where nobody wants it.

use std::cell::Cell;
use std::ptr;

/// A second piece of work that nobody has begun, or the thread that it has become.
pub(crate) struct Offer<T: 'static> {
    older: Cell<*const Offer<T>>,
    newer: Cell<*const Offer<T>>,
    pub thread: Cell<Option<&'static T>>,
    /// Makes the thread.
    start: unsafe fn(*const Offer<T>) -> &'static T,
}

impl<T> Offer<T> {
    #[inline]
    pub const fn new(start: unsafe fn(*const Offer<T>) -> &'static T) -> Offer<T> {
        Offer { older: Cell::new(ptr::null()), newer: Cell::new(ptr::null()), thread: Cell::new(None), start }
    }
}

/// What a thread has offered and nobody has taken.
pub(crate) struct Offers<T: 'static> {
    oldest: Cell<*const Offer<T>>,
    newest: Cell<*const Offer<T>>,
}

impl<T> Offers<T> {
    pub const fn new() -> Offers<T> {
        Offers { oldest: Cell::new(ptr::null()), newest: Cell::new(ptr::null()) }
    }

    #[inline]
    pub fn push(&self, offer: &Offer<T>) {
        let newest = self.newest.replace(offer);
        offer.older.set(newest);
        // SAFETY: what is in the chain lies on this thread's stack, below the caller.
        match unsafe { newest.as_ref() } {
            None => self.oldest.set(offer),
            Some(newest) => newest.newer.set(offer),
        }
    }

    /// Takes the newest back, which is `offer`: those that came after it were taken back before.
    #[inline]
    pub fn pop(&self, offer: &Offer<T>) {
        debug_assert!(ptr::eq(self.newest.get(), offer));
        self.newest.set(offer.older.get());
        // SAFETY: as in `push`.
        match unsafe { offer.older.get().as_ref() } {
            None => self.oldest.set(ptr::null()),
            Some(older) => older.newer.set(ptr::null()),
        }
    }

    /// Makes a thread of the oldest.
    #[cold]
    pub fn start_oldest(&self) {
        // SAFETY: as in `push`.
        let Some(oldest) = (unsafe { self.oldest.get().as_ref() }) else { return };
        self.oldest.set(oldest.newer.get());
        // SAFETY: as in `push`.
        match unsafe { oldest.newer.get().as_ref() } {
            None => self.newest.set(ptr::null()),
            Some(newer) => newer.older.set(ptr::null()),
        }
        // SAFETY: it was in the chain, and so its work is there.
        oldest.thread.set(Some(unsafe { (oldest.start)(oldest) }));
    }
}
