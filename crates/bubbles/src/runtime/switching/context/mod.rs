//! The switch between two threads on one processor.

use std::arch::{asm, naked_asm};
use std::cell::Cell;
use std::mem::offset_of;
use std::ptr;
use std::sync::atomic::{AtomicU8, Ordering};

/// Where a thread that does not run goes on. Debuggers read it, too (`scripts/gdb-bubbles.py`).
#[repr(C)]
pub(crate) struct Context {
    stack: Cell<*mut u8>,
    /// The two registers that the compiler does not let us declare as changed: rbp and rbx, x29 and x19.
    frame: Cell<usize>,
    base: Cell<usize>,
    resume: Cell<usize>,
    /// How the thread wants numbers rounded: x87 control word and MXCSR, FPCR. As usual, unless `rounds`:
    /// reading these registers takes longer than all else that a switch does.
    floats: Cell<u64>,
    rounds: Cell<bool>,
    /// Not 0 from the moment that a processor goes on with it until its registers are saved again.
    /// Others may find a thread on a list before that; they wait here.
    busy: AtomicU8,
}

impl Context {
    /// Where stack, frame, base and resume are, for debuggers.
    pub const OFFSETS: [usize; 4] = [
        offset_of!(Context, stack),
        offset_of!(Context, frame),
        offset_of!(Context, base),
        offset_of!(Context, resume),
    ];

    pub const fn new() -> Context {
        Context {
            stack: Cell::new(ptr::null_mut()),
            frame: Cell::new(0),
            base: Cell::new(0),
            resume: Cell::new(0),
            floats: Cell::new(USUAL),
            rounds: Cell::new(false),
            busy: AtomicU8::new(0),
        }
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

    /// Whether it may round numbers in a way of its own. To be said before it begins.
    #[inline]
    pub fn set_rounds(&self, rounds: bool) {
        self.rounds.set(rounds);
    }

    #[inline]
    pub fn rounds(&self) -> bool {
        self.rounds.get()
    }

    /// Whether what runs now, of which this is the context, rounds as it said that it would.
    #[cfg(debug_assertions)]
    pub fn rounds_as_stated(&self) -> bool {
        self.rounds() || rounding() == USUAL
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

    /// It runs from now on without having been switched to, on the stack that the caller is on.
    #[inline]
    pub fn begin_here(&self) {
        self.busy.store(1, Ordering::Relaxed);
        // Any address will do until it is saved: who finds the thread on a list waits for that.
        self.stack.set(ptr::from_ref(self).cast_mut().cast());
    }

    /// It has ended on the stack that the caller is on.
    #[inline]
    pub fn end_here(&self) {
        self.forget();
        self.busy.store(0, Ordering::Release);
    }

    /// Lets it begin with `begin(argument)` on the stack that ends at `top`.
    ///
    /// # Safety
    ///
    /// `top` is aligned to 16 bytes and ends a stack that nobody uses. `begin` never returns.
    #[inline]
    pub unsafe fn prepare(&self, top: *mut u8, begin: extern "C" fn(usize) -> !, argument: usize) {
        let start: unsafe extern "C" fn() = start;
        self.stack.set(top);
        self.frame.set(begin as usize);
        self.base.set(argument);
        self.resume.set(start as usize);
        self.floats.set(USUAL);
    }
}

/// x87 control word and MXCSR as the ABI wants them at the start of a program; FPCR.
#[cfg(target_arch = "x86_64")]
const USUAL: u64 = 0x037f << 32 | 0x1f80;
#[cfg(target_arch = "aarch64")]
const USUAL: u64 = 0;

/// How numbers are rounded now. The low bits of MXCSR tell what has happened, and control nothing.
#[cfg(all(debug_assertions, target_arch = "x86_64"))]
fn rounding() -> u64 {
    let mut words = [0_u32; 2];
    // SAFETY: the two are written where there is room.
    unsafe { asm!("stmxcsr [{0}]", "fnstcw [{0} + 4]", in(reg) words.as_mut_ptr(), options(nostack)) };
    u64::from(words[1] & 0xffff) << 32 | u64::from(words[0] & 0xffc0)
}

#[cfg(all(debug_assertions, target_arch = "aarch64"))]
fn rounding() -> u64 {
    let word: u64;
    // SAFETY: it reads a register.
    unsafe { asm!("mrs {}, fpcr", out(reg) word, options(nomem, nostack)) };
    word
}

/// Calls `begin` with `argument`, which a prepared context has in its two registers. Where unwinders end.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn start() {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_undefined rip",
        "mov rdi, rbx",
        "mov rax, rbp",
        "xor ebp, ebp",
        "call rax",
        "ud2",
        ".cfi_endproc",
    )
}

/// See the other architecture's.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
unsafe extern "C" fn start() {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_undefined x30",
        "mov x0, x19",
        "mov x9, x29",
        "mov x29, xzr",
        "mov x30, xzr",
        "blr x9",
        "brk #1",
        ".cfi_endproc",
    )
}

/// Saves what runs now in `from` and goes on with `to`, once nobody runs on that any more. Between the
/// two, when `from` may be running elsewhere already, a signal finds the stack whose saved end lies at
/// `between`: that of the worker, which only this kernel thread uses.
///
/// Comes back, when somebody goes on with `from`, with the `between` of that one.
///
/// Part of the caller's code, so that the compiler saves what it still needs and nothing else, and each
/// place that switches has a jump of its own, which processors predict.
///
/// # Safety
///
/// `from` is what runs now, `to` was prepared or saved and is in the caller's hands, and `between` is the
/// worker's own context.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) unsafe fn switch(
    from: *const Context,
    to: *const Context,
    mut between: *const Context,
) -> *const Context {
    // SAFETY: as promised; all registers are saved or declared as changed.
    unsafe {
        asm!(
            "lea rax, [rip + 6f]",
            "mov [rdi + {resume}], rax",
            "mov [rdi + {frame}], rbp",
            "mov [rdi + {base}], rbx",
            "mov [rdi + {stack}], rsp",
            "movzx r8d, byte ptr [rdi + {rounds}]",
            "test r8d, r8d",
            "jne 7f",
            "8:",
            "mov rsp, [rdx + {stack}]",
            // All stores before it are seen before it (TSO).
            "mov byte ptr [rdi + {busy}], 0",
            "2:",
            "cmp byte ptr [rsi + {busy}], 0",
            "jne 3f",
            "mov byte ptr [rsi + {busy}], 1",
            "or r8b, [rsi + {rounds}]",
            "jne 4f",
            "5:",
            "mov rbp, [rsi + {frame}]",
            "mov rbx, [rsi + {base}]",
            "mov rsp, [rsi + {stack}]",
            "jmp qword ptr [rsi + {resume}]",
            "3:",
            "pause",
            "jmp 2b",
            "4:",
            "ldmxcsr [rsi + {floats}]",
            "fldcw [rsi + {floats} + 4]",
            "jmp 5b",
            "7:",
            "stmxcsr [rdi + {floats}]",
            "fnstcw [rdi + {floats} + 4]",
            "jmp 8b",
            "6:",
            stack = const offset_of!(Context, stack),
            frame = const offset_of!(Context, frame),
            base = const offset_of!(Context, base),
            resume = const offset_of!(Context, resume),
            floats = const offset_of!(Context, floats),
            rounds = const offset_of!(Context, rounds),
            busy = const offset_of!(Context, busy),
            inout("rdi") from => _,
            inout("rsi") to => _,
            inout("rdx") between,
            out("r12") _,
            out("r13") _,
            out("r14") _,
            out("r15") _,
            clobber_abi("sysv64"),
        );
    }
    between
}

/// See the other architecture's.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub(crate) unsafe fn switch(
    from: *const Context,
    to: *const Context,
    mut between: *const Context,
) -> *const Context {
    // SAFETY: as promised; all registers are saved or declared as changed.
    unsafe {
        asm!(
            "adr x9, 6f",
            "str x9, [x0, #{resume}]",
            "stp x29, x19, [x0, #{frame}]",
            "mov x9, sp",
            "str x9, [x0, #{stack}]",
            "ldrb w12, [x0, #{rounds}]",
            "cbnz w12, 7f",
            "8:",
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
            "ldrb w11, [x1, #{rounds}]",
            "orr w12, w12, w11",
            "cbnz w12, 4f",
            "5:",
            "ldp x29, x19, [x1, #{frame}]",
            "ldr x9, [x1, #{stack}]",
            "mov sp, x9",
            "ldr x9, [x1, #{resume}]",
            "br x9",
            "3:",
            "yield",
            "b 2b",
            "4:",
            "ldr x9, [x1, #{floats}]",
            "msr fpcr, x9",
            "b 5b",
            "7:",
            "mrs x9, fpcr",
            "str x9, [x0, #{floats}]",
            "b 8b",
            "6:",
            stack = const offset_of!(Context, stack),
            frame = const offset_of!(Context, frame),
            resume = const offset_of!(Context, resume),
            floats = const offset_of!(Context, floats),
            rounds = const offset_of!(Context, rounds),
            busy = const offset_of!(Context, busy),
            inout("x0") from => _,
            inout("x1") to => _,
            inout("x2") between,
            out("x20") _,
            out("x21") _,
            out("x22") _,
            out("x23") _,
            out("x24") _,
            out("x25") _,
            out("x26") _,
            out("x27") _,
            out("x28") _,
            // Of v8 to v15 a call keeps the lower halves.
            out("v8") _,
            out("v9") _,
            out("v10") _,
            out("v11") _,
            out("v12") _,
            out("v13") _,
            out("v14") _,
            out("v15") _,
            clobber_abi("C"),
        );
    }
    between
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("coplace-bubbles switches threads on x86-64 and AArch64 only");

#[cfg(test)]
mod tests;
