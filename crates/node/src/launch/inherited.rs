//! What this process was given by whoever started it, as far as the Rust runtime changes it before
//! `main`: it ignores SIGPIPE and opens /dev/null for closed standard descriptors. A program under
//! coplace is to find things as they were, so they are noted before the runtime begins.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Bit n - 1: signal n was ignored.
static IGNORED: AtomicU64 = AtomicU64::new(0);
/// Bit n: descriptor n was closed.
static CLOSED: AtomicU8 = AtomicU8::new(0);
/// Bit n - 1: signal n was blocked.
static BLOCKED: AtomicU64 = AtomicU64::new(0);

#[used]
#[unsafe(link_section = ".init_array")]
static NOTE: extern "C" fn() = note;

extern "C" fn note() {
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
        if is_ignored(signal) {
            IGNORED.fetch_or(1 << (signal - 1), Ordering::Relaxed);
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

/// Whether this process was started with the signal ignored, as by `nohup` or in the background of a script.
pub fn was_ignored(signal: i32) -> bool {
    (1..=64).contains(&signal) && IGNORED.load(Ordering::Relaxed) >> (signal - 1) & 1 == 1
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
