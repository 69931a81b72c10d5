//! What this process was given by whoever started it, as far as the Rust runtime changes it before
//! `main`: it ignores SIGPIPE and opens /dev/null for closed standard descriptors. A program under
//! coplace is to find things as they were, so they are noted before the runtime begins.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

static PIPE_IGNORED: AtomicBool = AtomicBool::new(false);
/// Bit n: descriptor n was closed.
static CLOSED: AtomicU8 = AtomicU8::new(0);
/// Bit n - 1: signal n was blocked.
static BLOCKED: AtomicU64 = AtomicU64::new(0);

#[used]
#[unsafe(link_section = ".init_array")]
static NOTE: extern "C" fn() = note;

extern "C" fn note() {
    PIPE_IGNORED.store(is_ignored(libc::SIGPIPE), Ordering::Relaxed);
    for fd in 0..3 {
        // SAFETY: F_GETFD takes no pointer.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
            CLOSED.fetch_or(1 << fd, Ordering::Relaxed);
        }
    }
    let mut mask = empty_mask();
    // SAFETY: a null new mask changes nothing; `mask` is valid for the write.
    unsafe { libc::sigprocmask(libc::SIG_BLOCK, std::ptr::null(), &mut mask) };
    for signal in 1..=64 {
        // SAFETY: `mask` was initialised above.
        if unsafe { libc::sigismember(&mask, signal) } == 1 {
            BLOCKED.fetch_or(1 << (signal - 1), Ordering::Relaxed);
        }
    }
}

fn empty_mask() -> libc::sigset_t {
    // SAFETY: a sigset_t is plain bits, and sigemptyset initialises them all.
    unsafe {
        let mut mask = std::mem::zeroed();
        libc::sigemptyset(&mut mask);
        mask
    }
}

fn is_ignored(signal: i32) -> bool {
    // SAFETY: a null action only asks; zeroed is a valid sigaction to be overwritten.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut action) == 0 && action.sa_sigaction == libc::SIG_IGN
    }
}

pub fn pipe_was_ignored() -> bool {
    PIPE_IGNORED.load(Ordering::Relaxed)
}

pub fn was_closed(fd: i32) -> bool {
    CLOSED.load(Ordering::Relaxed) & (1 << fd) != 0
}

/// The signal mask at the start.
pub fn mask() -> libc::sigset_t {
    let mut mask = empty_mask();
    let blocked = BLOCKED.load(Ordering::Relaxed);
    for signal in (1..=64).filter(|signal| blocked >> (signal - 1) & 1 == 1) {
        // SAFETY: `mask` is initialised; the two numbers that the C library keeps are refused.
        unsafe { libc::sigaddset(&mut mask, signal) };
    }
    mask
}

/// Children of who ignores SIGCHLD leave no status behind. Returns whether that was so.
pub fn reset_child_signal() -> bool {
    let ignored = is_ignored(libc::SIGCHLD);
    if ignored {
        // SAFETY: the default disposition involves no code of ours.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    }
    ignored
}
