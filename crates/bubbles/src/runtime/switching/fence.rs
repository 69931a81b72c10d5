//! Order between a store and a later load of two processors that look at each other, where one of them
//! hardly ever looks: the rare side has the kernel put a barrier on all the others.

use std::sync::atomic::{AtomicBool, Ordering, compiler_fence, fence};

static BY_KERNEL: AtomicBool = AtomicBool::new(false);

const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;
const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: `membarrier` takes numbers only.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// To be called before the first worker starts.
pub(crate) fn prepare() {
    if membarrier(REGISTER_PRIVATE_EXPEDITED) {
        BY_KERNEL.store(true, Ordering::SeqCst);
    }
}

/// The side of those that do it all the time.
#[inline]
pub(crate) fn light() {
    if BY_KERNEL.load(Ordering::Relaxed) {
        compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}

/// The side of those that do it hardly ever.
pub(crate) fn heavy() {
    if !BY_KERNEL.load(Ordering::Relaxed) || !membarrier(PRIVATE_EXPEDITED) {
        fence(Ordering::SeqCst);
    }
}
