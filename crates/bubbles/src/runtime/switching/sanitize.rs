//! Telling AddressSanitizer and ThreadSanitizer of switches, where this is built for one of them (`build.rs`
//! sees that); nothing at all elsewhere.
//!
//! To ThreadSanitizer a stack with what runs on it is a fiber; a thread that begins on the stack of another
//! goes on with that one's. AddressSanitizer wants to know on which stack it is, and forgets what the one
//! before left on it.

use super::stack::Stack;

#[cfg(sanitizer = "address")]
mod inner {
    use std::ffi::c_void;
    use std::ptr;

    use super::Stack;

    unsafe extern "C" {
        fn __sanitizer_start_switch_fiber(kept: *mut *mut c_void, lowest: *const c_void, bytes: usize);
        fn __sanitizer_finish_switch_fiber(kept: *mut c_void, from: *mut *const c_void, bytes: *mut usize);
        fn __asan_unpoison_memory_region(at: *const c_void, bytes: usize);
    }

    /// What it keeps for a stack that is left.
    pub struct Left(*mut c_void);

    pub fn leave(to: Stack, comes_back: bool) -> Left {
        if comes_back { leave_for_now(to) } else { leave_for_good(to) }
    }

    #[inline(never)]
    fn leave_for_now(to: Stack) -> Left {
        let mut kept = ptr::null_mut();
        // SAFETY: the stack is the one that is switched to next.
        unsafe { __sanitizer_start_switch_fiber(&raw mut kept, to.lowest.cast(), to.bytes) };
        Left(kept)
    }

    /// Without a variable that has an address: these it keeps elsewhere, and they are gone after this.
    #[inline(never)]
    fn leave_for_good(to: Stack) -> Left {
        // SAFETY: as above.
        unsafe { __sanitizer_start_switch_fiber(ptr::null_mut(), to.lowest.cast(), to.bytes) };
        Left(ptr::null_mut())
    }

    pub fn arrive(left: Option<Left>) {
        let kept = left.map_or(ptr::null_mut(), |left| left.0);
        // SAFETY: it is what this stack was left with, or null for a new one.
        unsafe { __sanitizer_finish_switch_fiber(kept, ptr::null_mut(), ptr::null_mut()) };
    }

    pub fn begin(stack: Stack) -> Stack {
        // SAFETY: the stack is nobody's now; its guard is left alone.
        unsafe {
            __asan_unpoison_memory_region(
                stack.floor().cast(),
                stack.bytes - crate::runtime::switching::stack::GUARD,
            )
        };
        stack
    }

    /// The stack of this kernel thread.
    pub fn own() -> Stack {
        // SAFETY: the attributes are written by the first call and given back by the last.
        unsafe {
            let mut attributes = std::mem::zeroed();
            let (mut lowest, mut bytes) = (ptr::null_mut(), 0);
            if libc::pthread_getattr_np(libc::pthread_self(), &mut attributes) == 0 {
                libc::pthread_attr_getstack(&attributes, &mut lowest, &mut bytes);
                libc::pthread_attr_destroy(&mut attributes);
            }
            Stack::at(lowest.cast(), bytes)
        }
    }
}

#[cfg(sanitizer = "thread")]
mod inner {
    use std::ffi::c_void;

    use super::Stack;

    unsafe extern "C" {
        fn __tsan_get_current_fiber() -> *mut c_void;
        fn __tsan_create_fiber(flags: u32) -> *mut c_void;
        fn __tsan_destroy_fiber(fiber: *mut c_void);
        fn __tsan_switch_to_fiber(fiber: *mut c_void, flags: u32);
    }

    pub struct Left;

    #[inline(always)]
    pub fn leave(to: Stack, _comes_back: bool) -> Left {
        // SAFETY: the fiber is that of the stack that is switched to next.
        unsafe { __tsan_switch_to_fiber(to.fiber, 0) };
        Left
    }

    pub fn arrive(_left: Option<Left>) {}

    pub fn begin(mut stack: Stack) -> Stack {
        // SAFETY: who ran on the stack before has left it, and so the fiber.
        unsafe {
            if !stack.fiber.is_null() {
                __tsan_destroy_fiber(stack.fiber);
            }
            stack.fiber = __tsan_create_fiber(0);
        }
        stack
    }

    pub fn own() -> Stack {
        // SAFETY: it takes nothing.
        Stack { fiber: unsafe { __tsan_get_current_fiber() }, ..Stack::NONE }
    }
}

#[cfg(not(any(sanitizer = "address", sanitizer = "thread")))]
mod inner {
    use super::Stack;

    pub struct Left;

    #[inline(always)]
    pub fn leave(_to: Stack, _comes_back: bool) -> Left {
        Left
    }

    #[inline(always)]
    pub fn arrive(_left: Option<Left>) {}

    #[inline(always)]
    pub fn begin(stack: Stack) -> Stack {
        stack
    }

    #[inline(always)]
    pub fn own() -> Stack {
        Stack::NONE
    }
}

/// Whether a thread may begin on the stack that the one before it is about to leave: fibers end only when
/// they have been left.
pub(crate) const MAY_BE_SPENT: bool = cfg!(not(sanitizer = "thread"));

/// Before a switch to this stack, from one that is come back to or not; and after it, on the stack that it
/// came to, with what it was left with, if it was.
pub(crate) use inner::{arrive, leave};
/// A stack for a thread that is about to begin on it, and that of the calling kernel thread.
pub(crate) use inner::{begin, own};
