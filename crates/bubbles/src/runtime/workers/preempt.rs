//! Interrupting a thread that does not come to the runtime by itself.
//!
//! A signal makes the thread give way from within the handler; the interrupted state stays on its own
//! stack. That is only done where it cannot harm: not in the runtime, and only while the program's own
//! code runs, not the C library's, which holds locks of the kernel thread (`malloc`). Who is not
//! interrupted for that is reminded a little later.

use std::ffi::c_void;
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::status::{self, SIGNAL};
use super::worker;

const PIECES: usize = 8;

/// Where the program's own code lies: pairs of first and last address.
static CODE: [AtomicUsize; 2 * PIECES] = [const { AtomicUsize::new(0) }; 2 * PIECES];
static READY: Once = Once::new();

unsafe extern "C" {
    // The linker's marks around `enter`, `leave` and `is_inside`, where a thread may hold the address of a
    // worker that it is not on any more after an interruption.
    #[link_name = "__start_bubbles_enter"]
    static FIRST: u8;
    #[link_name = "__stop_bubbles_enter"]
    static LAST: u8;
}

/// To be called before the first signal is sent.
pub(crate) fn prepare() {
    READY.call_once(|| {
        // SAFETY: the callback only looks at what it is given; the handler is of the kind announced.
        unsafe {
            libc::dl_iterate_phdr(Some(note_code), std::ptr::null_mut());
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_signal as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_NODEFER;
            libc::sigaction(SIGNAL, &action, std::ptr::null_mut());
        }
    });
}

/// Only the first object: the program itself.
unsafe extern "C" fn note_code(info: *mut libc::dl_phdr_info, _: usize, _: *mut c_void) -> i32 {
    // SAFETY: the dynamic linker passes a description of an object.
    let (info, headers) = unsafe {
        let info = &*info;
        (info, std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()))
    };
    let code = headers.iter().filter(|header| header.p_type == libc::PT_LOAD && header.p_flags & 1 != 0);
    for (header, ends) in code.zip(CODE.chunks(2)) {
        let first = (info.dlpi_addr + header.p_vaddr) as usize;
        ends[1].store(first + header.p_memsz as usize, Ordering::Relaxed);
        ends[0].store(first, Ordering::Release);
    }
    1
}

fn is_own_code(address: usize) -> bool {
    let within = |ends: &[AtomicUsize]| {
        (ends[0].load(Ordering::Acquire)..ends[1].load(Ordering::Relaxed)).contains(&address)
    };
    let (first, last) = (&raw const FIRST as usize, &raw const LAST as usize);
    CODE.chunks(2).any(within) && !(first..last).contains(&address)
}

#[cfg(target_arch = "x86_64")]
fn interrupted(context: &libc::ucontext_t) -> usize {
    context.uc_mcontext.gregs[libc::REG_RIP as usize] as usize
}

#[cfg(target_arch = "aarch64")]
fn interrupted(context: &libc::ucontext_t) -> usize {
    context.uc_mcontext.pc as usize
}

unsafe extern "C" fn on_signal(_: i32, _: *mut libc::siginfo_t, context: *mut c_void) {
    let Some(status) = status::here() else { return };
    // SAFETY: the kernel passes the interrupted state.
    let at = interrupted(unsafe { &*context.cast::<libc::ucontext_t>() });
    if status.is_inside() || !is_own_code(at) {
        return;
    }
    let worker = worker::enter();
    let thread = worker.thread();
    // SAFETY: the memory of bubbles stays that of bubbles; we are outside of all its locks.
    let wanted = unsafe { thread.entity.holder().as_ref() }.is_some_and(|bubble| bubble.wishes().preempt);
    if wanted {
        // SAFETY: `errno` is the kernel thread's, which may be another one afterwards.
        let errno = unsafe { *libc::__errno_location() };
        worker.yield_processor();
        set_errno(errno);
    }
    worker::leave();
}

/// Not inlined: where `errno` lies depends on the kernel thread.
#[inline(never)]
fn set_errno(errno: i32) {
    // SAFETY: it is this kernel thread's.
    unsafe { *libc::__errno_location() = errno };
}
