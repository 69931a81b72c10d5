//! What others may see of a worker, and ask of it.

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, Ordering};

use super::here;
use crate::parking::Parking;
use crate::runtime::records::thread::Thread;

/// The signal by which a worker is asked to look. Ignored by programs that know nothing of it.
pub(crate) const SIGNAL: i32 = libc::SIGURG;

#[repr(C, align(128))]
pub(crate) struct Status {
    /// It is in the runtime, where nothing may interrupt it. Only its own kernel thread uses it.
    inside: AtomicBool,
    /// Its processor may not be used now: what it runs goes back as soon as it can.
    pub retired: AtomicBool,
    pub number: usize,
    /// The thread that runs. Only its own kernel thread changes it; placing and the node's thread look.
    current: AtomicPtr<Thread>,
    /// Written by the worker only.
    pub created: AtomicU64,
    pub ended: AtomicU64,
    pub switches: AtomicU64,
    /// The kernel's number of its thread; 0 while it has none.
    pub kernel_thread: AtomicI32,
    pub parking: Parking,
}

/// The status of this kernel thread's worker, if it is one, for signal handlers and whoever is not sure.
pub(crate) fn here() -> Option<&'static Status> {
    // SAFETY: workers live as long as their kernel threads run.
    unsafe { here::get().as_ref() }
}

impl Status {
    pub fn new(number: usize) -> Status {
        Status {
            inside: AtomicBool::new(true),
            retired: AtomicBool::new(false),
            number,
            current: AtomicPtr::new(ptr::null_mut()),
            created: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            switches: AtomicU64::new(0),
            kernel_thread: AtomicI32::new(0),
            parking: Parking::default(),
        }
    }

    /// By its own kernel thread.
    #[inline(always)]
    pub fn set_inside(&self, inside: bool) {
        self.inside.store(inside, Ordering::Relaxed);
    }

    /// By its own kernel thread.
    #[inline]
    pub fn set_current(&self, thread: *const Thread) {
        self.current.store(thread.cast_mut(), Ordering::Release);
    }

    /// Counts one more, by its own kernel thread.
    #[inline]
    pub fn count(counter: &AtomicU64) {
        counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// The thread that runs, if one does.
    pub fn runs(&self) -> Option<&'static Thread> {
        // SAFETY: records are never freed.
        unsafe { self.current.load(Ordering::Acquire).as_ref() }
    }

    /// The thread that runs.
    #[inline]
    pub fn thread(&self) -> &'static Thread {
        let thread = self.current.load(Ordering::Relaxed);
        debug_assert!(!thread.is_null(), "a worker without a thread is in its own loop");
        // SAFETY: records are never freed.
        unsafe { &*thread }
    }

    /// Whether its processor is used, or will be until what it runs comes to the runtime.
    pub fn is_in_use(&self) -> bool {
        !self.retired.load(Ordering::SeqCst) || self.runs().is_some()
    }

    /// Whether it is in the runtime, or runs nothing of ours.
    pub fn is_inside(&self) -> bool {
        self.inside.load(Ordering::Relaxed) || self.runs().is_none()
    }

    /// Has the worker look whether what it runs is to give way.
    pub fn interrupt(&self) {
        let kernel_thread = self.kernel_thread.load(Ordering::Acquire);
        if kernel_thread != 0 {
            // SAFETY: numbers only; a thread that has ended meanwhile is an error that changes nothing.
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), kernel_thread, SIGNAL) };
        }
    }
}
