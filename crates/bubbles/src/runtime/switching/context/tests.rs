use std::arch::asm;

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

/// Has numbers cut off rather than rounded.
extern "C" fn cuts(two: usize) -> ! {
    // SAFETY: the test passes its own `Two`, which outlives this.
    let two = unsafe { &*(two as *const Two) };
    set_rounding(true);
    loop {
        two.log.set(tenth());
        // SAFETY: as in `inner`.
        unsafe { switch(&two.inner, &two.outer, &two.outer) };
    }
}

#[cfg(target_arch = "x86_64")]
fn set_rounding(cut: bool) {
    let word: u32 = if cut { 0x1f80 | 3 << 13 } else { 0x1f80 };
    // SAFETY: the word is one that the register takes.
    unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const word) };
}

#[cfg(target_arch = "aarch64")]
fn set_rounding(cut: bool) {
    let word: u64 = if cut { 3 << 22 } else { 0 };
    // SAFETY: as above.
    unsafe { asm!("msr fpcr, {}", in(reg) word) };
}

/// The last bits of a tenth, which is rounded up by the usual rules.
fn tenth() -> u32 {
    (std::hint::black_box(1.0_f64) / std::hint::black_box(10.0)).to_bits() as u32 & 0xff
}

#[test]
fn each_context_keeps_its_rounding_mode() {
    let mut stack = vec![0_u128; 4096];
    let top = stack.as_mut_ptr_range().end.cast::<u8>();
    let two = Two { outer: Context::new(), inner: Context::new(), log: Cell::new(0) };
    two.inner.set_rounds(true);
    let usual = tenth();
    // SAFETY: the stack is ours and aligned; `cuts` never returns.
    unsafe { two.inner.prepare(top, cuts, &raw const two as usize) };
    for _ in 0..3 {
        // SAFETY: `outer` is what runs; `inner` is prepared or saved.
        unsafe { switch(&two.outer, &two.inner, &two.outer) };
        assert_eq!((tenth(), two.log.get()), (usual, usual - 1));
    }
    set_rounding(false);
}

#[test]
fn two_contexts_alternate_and_keep_their_registers() {
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
