//! Telling who has overflowed its stack.

use std::cell::Cell;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::{Once, OnceLock};

use super::status;
use crate::runtime::switching::stack;

const HANDLER_STACK: usize = 64 * 1024;

static READY: Once = Once::new();
/// What handled such signals before us, and does for what is none of ours.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

thread_local! {
    static OLD: Cell<Option<(libc::stack_t, *mut c_void)>> = const { Cell::new(None) };
}

/// Gives this kernel thread a stack for the handler: the overflowed one has no room.
pub(crate) fn own_stack() {
    READY.call_once(|| {
        // SAFETY: the handler is of the kind announced.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            let mut before = MaybeUninit::zeroed();
            action.sa_sigaction = on_fault as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            if libc::sigaction(libc::SIGSEGV, &action, before.as_mut_ptr()) == 0 {
                let _ = BEFORE.set(before.assume_init());
            }
        }
    });
    // SAFETY: a new mapping, which stays until `leave_stack`.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let at = libc::mmap(ptr::null_mut(), HANDLER_STACK, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        if at == libc::MAP_FAILED {
            return;
        }
        let stack = libc::stack_t { ss_sp: at, ss_flags: 0, ss_size: HANDLER_STACK };
        let mut old = MaybeUninit::zeroed();
        libc::sigaltstack(&stack, old.as_mut_ptr());
        OLD.with(|cell| cell.set(Some((old.assume_init(), at))));
    }
}

/// Gives this kernel thread back what it had.
pub(crate) fn leave_stack() {
    if let Some((old, at)) = OLD.with(Cell::take) {
        // SAFETY: what was there before is restored before ours goes.
        unsafe {
            libc::sigaltstack(&old, ptr::null_mut());
            libc::munmap(at, HANDLER_STACK);
        }
    }
}

unsafe extern "C" fn on_fault(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a description of the fault.
    let address = unsafe { (*info).si_addr() } as usize;
    if let Some(worker) = status::here()
        && let Some(thread) = worker.runs()
        && thread.stack.get().guards(address)
    {
        let mut text = [0_u8; 256];
        let mut at = 0;
        let mut put = |piece: &str| {
            let count = piece.len().min(text.len() - at);
            text[at..at + count].copy_from_slice(&piece.as_bytes()[..count]);
            at += count;
        };
        put("coplace-bubbles: thread '");
        put(thread.name().unwrap_or("(without a name)"));
        put("' has overflowed its stack of ");
        let mut digits = [0_u8; 20];
        let bytes = thread.stack.get().bytes - stack::GUARD;
        put(decimal(bytes / 1024, &mut digits));
        put(" KiB; give it a larger one (Builder::stack_size)\n");
        // SAFETY: writing and aborting may be done in a handler.
        unsafe {
            libc::write(2, text.as_ptr().cast(), at);
            libc::abort();
        }
    }
    let Some(before) = BEFORE.get() else { return };
    // SAFETY: whoever set the handler before said of which kind it is. With the default in place the
    // fault comes again and ends the program.
    unsafe {
        if before.sa_sigaction == libc::SIG_DFL || before.sa_sigaction == libc::SIG_IGN {
            libc::signal(signal, libc::SIG_DFL);
        } else if before.sa_flags & libc::SA_SIGINFO != 0 {
            type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut c_void);
            std::mem::transmute::<usize, Handler>(before.sa_sigaction)(signal, info, context);
        } else {
            std::mem::transmute::<usize, extern "C" fn(i32)>(before.sa_sigaction)(signal);
        }
    }
}

/// A number as text without allocating.
fn decimal(mut number: usize, digits: &mut [u8; 20]) -> &str {
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    std::str::from_utf8(&digits[at..]).unwrap_or("?")
}
