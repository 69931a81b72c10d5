//! The values of which each thread has its own, by the number of their key.

use std::any::Any;
use std::cell::Cell;
use std::ptr;

type All = Vec<Option<Box<dyn Any>>>;

/// Those of one thread, made when it is first given one. Only that thread uses them.
pub(crate) struct Values(Cell<*mut All>);

impl Values {
    pub const fn new() -> Values {
        Values(Cell::new(ptr::null_mut()))
    }

    /// The value of this key. It stays where it is until it is replaced, or all are dropped.
    ///
    /// # Safety
    ///
    /// They are those of the thread that runs.
    #[inline]
    pub unsafe fn get(&self, key: usize) -> Option<*const dyn Any> {
        // SAFETY: only the thread itself uses its values; a value stays where its box is when the vector grows.
        let all = unsafe { self.0.get().as_ref() }?;
        Some(&raw const **all.get(key)?.as_ref()?)
    }

    /// Gives it a value; the one that it had comes back, to be dropped when nothing is borrowed any more.
    ///
    /// # Safety
    ///
    /// As for `get`.
    #[must_use = "dropping it may come back here"]
    pub unsafe fn set(&self, key: usize, value: Box<dyn Any>) -> Option<Box<dyn Any>> {
        if self.0.get().is_null() {
            self.0.set(Box::into_raw(Box::default()));
        }
        // SAFETY: only the thread itself uses its values, and nothing of them is borrowed for longer than a call.
        let all = unsafe { &mut *self.0.get() };
        if all.len() <= key {
            all.resize_with(key + 1, || None);
        }
        all[key].replace(value)
    }

    /// Drops them at the thread's end, by the thread itself.
    #[inline]
    pub fn drop_all(&self) {
        // Values may make others when they are dropped, a few times.
        for _ in 0..4 {
            let previous = self.0.replace(ptr::null_mut());
            if previous.is_null() {
                return;
            }
            // SAFETY: it came from `Box::into_raw`.
            drop(unsafe { Box::from_raw(previous) });
        }
    }
}
