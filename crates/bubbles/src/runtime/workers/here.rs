//! The status of this kernel thread's worker.
//!
//! A variable of each kernel thread, as `thread_local!` makes them, but for two things. It is reached without a call
//! where the library is a shared one, too: its place is known when the program starts (the TLS model "initial exec",
//! which Rust does not offer for single variables), and programs in C enter the runtime as cheaply as those in Rust.
//! And it is read anew each time: a thread of ours may come back from a switch on another kernel thread.

use std::arch::{asm, global_asm};

use super::status::Status;

global_asm!(
    ".pushsection .tbss.coplace_bubbles_here,\"awT\",%nobits",
    ".p2align 3",
    ".globl coplace_bubbles_here",
    ".hidden coplace_bubbles_here",
    ".type coplace_bubbles_here, %object",
    ".size coplace_bubbles_here, 8",
    "coplace_bubbles_here:",
    ".zero 8",
    ".popsection",
);

/// Where this kernel thread has the variable. Not to be kept across a switch.
#[inline(always)]
fn address() -> *mut *const Status {
    let address;
    // SAFETY: it adds up the thread's own pointer and the variable's distance from it.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!(
            "mov {0}, qword ptr fs:[0]",
            "add {0}, qword ptr [rip + coplace_bubbles_here@GOTTPOFF]",
            out(reg) address,
            options(nostack, readonly),
        );
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!(
            "adrp {0}, :gottprel:coplace_bubbles_here",
            "ldr {0}, [{0}, :gottprel_lo12:coplace_bubbles_here]",
            "mrs {1}, tpidr_el0",
            "add {0}, {1}, {0}",
            out(reg) address,
            out(reg) _,
            options(nostack, readonly, preserves_flags),
        );
    }
    address
}

/// Null where the kernel thread is no worker.
#[inline(always)]
pub(super) fn get() -> *const Status {
    // SAFETY: only this kernel thread uses its variable, which lives as long as it does.
    unsafe { address().read() }
}

pub(super) fn set(status: *const Status) {
    // SAFETY: as in `get`.
    unsafe { address().write(status) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kernel_thread_has_a_status_of_its_own() {
        let status = Status::new(3);
        set(&raw const status);
        let other = std::thread::spawn(|| get().is_null()).join().expect("it does not panic");
        assert!(other && std::ptr::eq(get(), &raw const status));
        set(std::ptr::null());
        assert!(get().is_null());
    }
}
