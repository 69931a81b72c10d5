//! Stacks: mapped in batches, each with a guard below it, kept for the next thread.

use std::io;
use std::ptr;
use std::sync::Mutex;

/// Address space of a stack and the guard below it.
pub(crate) const SIZE: usize = 128 * 1024;
pub(crate) const GUARD: usize = 4096;
/// What every thread finds free when it begins, also one that begins on the stack of another.
pub(crate) const ROOM: usize = 60 * 1024;
const BATCH: usize = 32;

/// A stack by its lowest address, where the guard is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stack {
    pub lowest: *mut u8,
    pub bytes: usize,
    /// What ThreadSanitizer knows it by.
    #[cfg(sanitizer = "thread")]
    pub fiber: *mut std::ffi::c_void,
}

// SAFETY: it is an address; who holds it is the only one to use it.
unsafe impl Send for Stack {}

impl Stack {
    pub const NONE: Stack = Stack::at(ptr::null_mut(), 0);

    pub const fn at(lowest: *mut u8, bytes: usize) -> Stack {
        Stack {
            lowest,
            bytes,
            #[cfg(sanitizer = "thread")]
            fiber: ptr::null_mut(),
        }
    }

    /// The lowest address above the guard.
    #[cfg(sanitizer = "address")]
    pub fn floor(self) -> *mut u8 {
        // SAFETY: within the stack.
        unsafe { self.lowest.add(GUARD) }
    }

    /// Its end, where it begins to fill. Stacks lie a power of two apart; ends that did so, too, would
    /// all compete for the same lines of the cache.
    #[inline]
    pub fn top(self) -> *mut u8 {
        let shift = (self.lowest as usize / SIZE * 5 % 32) * 64;
        // SAFETY: the shift is far less than the stack.
        unsafe { self.lowest.add(self.bytes - shift) }
    }

    /// Bytes between the end of the caller's frame and the guard; 0 where the caller is not on this stack.
    #[inline]
    pub fn room(self) -> usize {
        let mark = 0_u8;
        let above = std::hint::black_box(&raw const mark as usize).wrapping_sub(self.lowest as usize + GUARD);
        if above < self.bytes { above } else { 0 }
    }

    pub fn guards(self, address: usize) -> bool {
        (self.lowest as usize..self.lowest as usize + GUARD).contains(&address)
    }

    #[inline]
    pub fn is_common(self) -> bool {
        self.bytes == SIZE
    }
}

/// Those of the common size that no worker has in its hands.
static SPARE: Mutex<Vec<Stack>> = Mutex::new(Vec::new());

/// Adds up to `count` stacks to `stacks`, at least one.
pub(crate) fn refill(stacks: &mut Vec<Stack>, count: usize) -> io::Result<()> {
    let mut spare = SPARE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if spare.is_empty() {
        let lowest = map(BATCH * SIZE)?;
        // SAFETY: within the mapping.
        let all = (0..BATCH).map(|at| Stack::at(unsafe { lowest.add(at * SIZE) }, SIZE));
        for stack in all.rev() {
            guard(stack)?;
            spare.push(stack);
        }
    }
    let from = spare.len().saturating_sub(count);
    stacks.extend(spare.drain(from..));
    Ok(())
}

/// Takes stacks back that a worker has too many of.
pub(crate) fn recycle(stacks: impl Iterator<Item = Stack>) {
    SPARE.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).extend(stacks);
}

/// A stack of an unusual size. It goes back with `unmap`.
pub(crate) fn own(bytes: usize) -> io::Result<Stack> {
    let bytes = bytes.next_multiple_of(GUARD) + GUARD;
    let stack = Stack::at(map(bytes)?, bytes);
    guard(stack)?;
    Ok(stack)
}

pub(crate) fn unmap(stack: Stack) {
    // SAFETY: it came from `own`, and nobody uses it any more.
    unsafe { libc::munmap(stack.lowest.cast(), stack.bytes) };
}

fn map(bytes: usize) -> io::Result<*mut u8> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping.
    let at = unsafe { libc::mmap(ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(at.cast()) }
}

/// Linux 6.13: touching the page is a fault, and the mapping stays one.
const MADV_GUARD_INSTALL: i32 = 102;

/// Makes the lowest page a guard. Where the kernel can only do that by splitting the mapping, a
/// process is limited to `vm.max_map_count` pieces, which makes half as many stacks.
fn guard(stack: Stack) -> io::Result<()> {
    // SAFETY: the page is the stack's own, and not in use yet.
    let done = unsafe {
        libc::madvise(stack.lowest.cast(), GUARD, MADV_GUARD_INSTALL) == 0
            || libc::mprotect(stack.lowest.cast(), GUARD, libc::PROT_NONE) == 0
    };
    if done { Ok(()) } else { Err(io::Error::last_os_error()) }
}
