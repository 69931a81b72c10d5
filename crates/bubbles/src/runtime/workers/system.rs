//! What parking takes from Linux: fences by `membarrier`, and futexes.

use std::time::Duration;

use crate::parking::System;
use crate::runtime::switching::fence;
use crate::sync::AtomicU32;

pub(crate) struct Linux;

impl System for Linux {
    #[inline]
    fn light(&self) {
        fence::light();
    }

    fn heavy(&self) {
        fence::heavy();
    }

    fn wait(&self, word: &AtomicU32, value: u32, patience: Option<Duration>) {
        let time = patience.map(|patience| libc::timespec {
            tv_sec: patience.as_secs() as libc::time_t,
            tv_nsec: patience.subsec_nanos().into(),
        });
        let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let how = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: the word and the time outlive the call.
        unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), how, value, time) };
    }

    fn wake(&self, word: &AtomicU32) {
        let how = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: the word outlives the call.
        unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), how, 1) };
    }
}
