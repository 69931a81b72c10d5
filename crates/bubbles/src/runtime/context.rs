//! The switch between two threads on one processor.

use std::arch::naked_asm;
use std::cell::Cell;
use std::mem::offset_of;
use std::ptr;
use std::sync::atomic::{AtomicU8, Ordering};

/// Where a thread that does not run goes on.
#[repr(C)]
pub(crate) struct Context {
    stack: Cell<*mut u8>,
    /// Not 0 from the moment that a processor goes on with it until its registers are saved again.
    /// Others may find a thread on a list before that; they wait here.
    busy: AtomicU8,
}

impl Context {
    pub const fn new() -> Context {
        Context { stack: Cell::new(ptr::null_mut()), busy: AtomicU8::new(0) }
    }

    /// Whether it has a stack with a place to go on from.
    #[inline]
    pub fn is_prepared(&self) -> bool {
        !self.stack.get().is_null()
    }

    #[inline]
    pub fn forget(&self) {
        self.stack.set(ptr::null_mut());
    }

    /// Waits until no processor runs on it any more.
    #[inline]
    pub fn wait_until_left(&self) {
        let mut turn = 0;
        while self.busy.load(Ordering::Acquire) != 0 {
            crate::sync::pause(turn);
            turn += 1;
        }
    }

    /// Lets it begin with `begin(argument)` on the stack that ends at `top`.
    ///
    /// # Safety
    ///
    /// `top` is aligned to 16 bytes and ends a stack that nobody uses. `begin` never returns.
    pub unsafe fn prepare(&self, top: *mut u8, begin: extern "C" fn(usize) -> !, argument: usize) {
        // SAFETY: the caller's stack has room for the first frame.
        unsafe { self.stack.set(first_frame(top, begin, argument)) };
    }
}

/// x87 control word and MXCSR as the ABI wants them at the start of a program.
#[cfg(target_arch = "x86_64")]
const FLOATS: u64 = 0x037f << 32 | 0x1f80;

#[cfg(target_arch = "x86_64")]
unsafe fn first_frame(top: *mut u8, begin: extern "C" fn(usize) -> !, argument: usize) -> *mut u8 {
    let start: unsafe extern "C" fn() = start;
    // As `switch` leaves a stack: control words, r15 to rbx, rbp, where to return to; above that a
    // word that keeps the stack aligned at the call in `start`.
    let frame = [FLOATS as usize, 0, 0, begin as usize, argument, 0, 0, start as usize, 0, 0];
    // SAFETY: the caller's stack has room.
    unsafe {
        let at = top.cast::<usize>().sub(frame.len());
        at.copy_from_nonoverlapping(frame.as_ptr(), frame.len());
        at.cast()
    }
}

/// Calls `begin` (r13) with `argument` (r12). Where unwinders end.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn start() {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_undefined rip",
        "mov rdi, r12",
        "xor ebp, ebp",
        "call r13",
        "ud2",
        ".cfi_endproc",
    )
}

/// Saves what runs now in `from` and goes on with `to`, once nobody runs on that any more. Between the
/// two, when `from` may be running elsewhere already, a signal finds the stack whose saved end lies at
/// `between`: that of the worker, which only this kernel thread uses.
///
/// # Safety
///
/// `from` is what runs now, `to` was prepared or saved and is in the caller's hands, and `between` is the
/// `stack` of the worker's own context.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn switch(from: *const Context, to: *const Context, between: *const Context) {
    naked_asm!(
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "sub rsp, 8",
        "stmxcsr [rsp]",
        "fnstcw [rsp + 4]",
        "mov r8d, [rsp]",
        "movzx r9d, word ptr [rsp + 4]",
        "mov [rdi + {stack}], rsp",
        "mov rsp, [rdx + {stack}]",
        // All stores before it are seen before it (TSO).
        "mov byte ptr [rdi + {busy}], 0",
        "2:",
        "cmp byte ptr [rsi + {busy}], 0",
        "jne 3f",
        "mov byte ptr [rsi + {busy}], 1",
        "mov rsp, [rsi + {stack}]",
        // Control words are hardly ever unlike; the low bits of MXCSR are no control bits.
        "xor r8d, [rsp]",
        "test r8d, 0xffc0",
        "jne 4f",
        "cmp r9w, [rsp + 4]",
        "jne 4f",
        "5:",
        "add rsp, 8",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
        "3:",
        "pause",
        "jmp 2b",
        "4:",
        "ldmxcsr [rsp]",
        "fldcw [rsp + 4]",
        "jmp 5b",
        stack = const offset_of!(Context, stack),
        busy = const offset_of!(Context, busy),
    )
}

#[cfg(target_arch = "aarch64")]
unsafe fn first_frame(top: *mut u8, begin: extern "C" fn(usize) -> !, argument: usize) -> *mut u8 {
    let start: unsafe extern "C" fn() = start;
    // As `switch` leaves a stack: x19 to x30, d8 to d15, FPCR.
    let mut frame = [0_usize; 22];
    frame[0] = argument;
    frame[1] = begin as usize;
    frame[11] = start as usize;
    // SAFETY: the caller's stack has room.
    unsafe {
        let at = top.cast::<usize>().sub(frame.len());
        at.copy_from_nonoverlapping(frame.as_ptr(), frame.len());
        at.cast()
    }
}

/// Calls `begin` (x20) with `argument` (x19). Where unwinders end.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
unsafe extern "C" fn start() {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_undefined x30",
        "mov x0, x19",
        "mov x29, xzr",
        "mov x30, xzr",
        "blr x20",
        "brk #1",
        ".cfi_endproc",
    )
}

/// See the other architecture's.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn switch(from: *const Context, to: *const Context, between: *const Context) {
    naked_asm!(
        "sub sp, sp, #176",
        "stp x19, x20, [sp]",
        "stp x21, x22, [sp, #16]",
        "stp x23, x24, [sp, #32]",
        "stp x25, x26, [sp, #48]",
        "stp x27, x28, [sp, #64]",
        "stp x29, x30, [sp, #80]",
        "stp d8, d9, [sp, #96]",
        "stp d10, d11, [sp, #112]",
        "stp d12, d13, [sp, #128]",
        "stp d14, d15, [sp, #144]",
        "mrs x12, fpcr",
        "str x12, [sp, #160]",
        "mov x9, sp",
        "str x9, [x0, #{stack}]",
        "ldr x9, [x2, #{stack}]",
        "mov sp, x9",
        "add x10, x0, #{busy}",
        "stlrb wzr, [x10]",
        "add x10, x1, #{busy}",
        "2:",
        "ldarb w11, [x10]",
        "cbnz w11, 3f",
        "mov w11, #1",
        "strb w11, [x10]",
        "ldr x9, [x1, #{stack}]",
        "mov sp, x9",
        "ldr x9, [sp, #160]",
        "cmp x9, x12",
        "b.eq 4f",
        "msr fpcr, x9",
        "4:",
        "ldp x19, x20, [sp]",
        "ldp x21, x22, [sp, #16]",
        "ldp x23, x24, [sp, #32]",
        "ldp x25, x26, [sp, #48]",
        "ldp x27, x28, [sp, #64]",
        "ldp x29, x30, [sp, #80]",
        "ldp d8, d9, [sp, #96]",
        "ldp d10, d11, [sp, #112]",
        "ldp d12, d13, [sp, #128]",
        "ldp d14, d15, [sp, #144]",
        "add sp, sp, #176",
        "ret",
        "3:",
        "yield",
        "b 2b",
        stack = const offset_of!(Context, stack),
        busy = const offset_of!(Context, busy),
    )
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("coplace-bubbles switches threads on x86-64 and AArch64 only");

#[cfg(test)]
mod tests {
    use super::*;

    struct Two {
        outer: Context,
        inner: Context,
        log: Cell<u32>,
    }

    extern "C" fn inner(two: usize) -> ! {
        // SAFETY: the test passes its own `Two`, which outlives this.
        let two = unsafe { &*(two as *const Two) };
        let mut floats = 1.5_f64;
        loop {
            floats *= 2.0;
            two.log.set(two.log.get() * 10 + floats as u32);
            // SAFETY: `inner` is what runs, and `outer` was saved by the switch that brought us here.
            unsafe { switch(&two.inner, &two.outer, &two.outer) };
        }
    }

    #[test]
    fn two_contexts_take_turns_and_keep_what_they_had() {
        let mut stack = vec![0_u128; 4096];
        let top = stack.as_mut_ptr_range().end.cast::<u8>();
        let two = Two { outer: Context::new(), inner: Context::new(), log: Cell::new(0) };
        // SAFETY: the stack is ours and aligned; `inner` never returns.
        unsafe { two.inner.prepare(top, inner, &raw const two as usize) };
        for expected in [3, 36, 372] {
            // SAFETY: `outer` is what runs; `inner` is prepared or saved.
            unsafe { switch(&two.outer, &two.inner, &two.outer) };
            assert_eq!(two.log.get(), expected);
        }
    }
}
