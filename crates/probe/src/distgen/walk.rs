//! The loops that read: one load a line, and nothing else that touches memory.
//!
//! Streams are written in assembly on x86-64, because no compiler emits a wide load whose result nobody
//! wants. The other loops keep all that they need in registers once they are optimised; the reuse tool
//! shows that (`tests/tests/reuse.rs`).

use std::fmt;
use std::str::FromStr;

use workload::Random;

use super::memory::Block;
use super::schedule::Pass;

/// How lines follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// By address.
    Stream,
    /// In a pseudo-random sequence; each read is independent of the others.
    Random,
    /// By pointers in the lines themselves, in random order: the next read cannot begin before the last
    /// one has ended.
    Linked,
}

impl FromStr for Order {
    type Err = String;

    fn from_str(text: &str) -> Result<Order, String> {
        match text {
            "stream" => Ok(Order::Stream),
            "random" => Ok(Order::Random),
            "linked" => Ok(Order::Linked),
            other => Err(format!("'{other}' is no order of accesses (stream, random, linked)")),
        }
    }
}

/// Bytes of a line that one load takes, in streams. All bring the whole line; what is fastest depends on
/// the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// A general-purpose register, which every processor has.
    Bytes8,
    /// AVX2.
    Bytes32,
    /// AVX-512.
    Bytes64,
}

impl Width {
    /// Those that this processor (or whatever stands for it, such as Valgrind) has.
    pub fn available() -> Vec<Width> {
        #[allow(unused_mut)]
        let mut widths = vec![Width::Bytes8];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") {
                widths.push(Width::Bytes32);
            }
            if is_x86_feature_detected!("avx512f") {
                widths.push(Width::Bytes64);
            }
        }
        widths
    }
}

impl fmt::Display for Width {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Width::Bytes8 => "8 bytes a load",
            Width::Bytes32 => "32 bytes a load (AVX2)",
            Width::Bytes64 => "64 bytes a load (AVX-512)",
        })
    }
}

/// A sequence x → factor · x + 1 modulo a power of two visits every number once (Hull and Dobell 1962:
/// an odd constant, and a factor of 1 modulo 4); numbers beyond the block are passed over. The factor is
/// one of those that L'Ecuyer found good (Tables of Linear Congruential Generators, 1999).
const FACTOR: u64 = 2_862_933_555_777_941_757;

/// Where a walk stands, and how it goes on.
pub(crate) struct Walk {
    block: Block,
    order: Order,
    width: Width,
    /// Line that comes next in a random or linked pass that was cut.
    at: u64,
}

impl Walk {
    /// `lines` are at least those of the longest pass; linked orders are drawn from `seed`. `Interrupted` where
    /// `stop` says so on the way.
    pub(crate) fn new(
        lines: u64,
        order: Order,
        width: Width,
        seed: u64,
        stop: &dyn Fn() -> bool,
    ) -> std::io::Result<Walk> {
        let lines = usize::try_from(lines).map_err(|_| std::io::ErrorKind::OutOfMemory)?;
        let block = Block::new(lines, stop)?;
        if order == Order::Linked {
            link(&block, seed);
        }
        Ok(Walk { block, order, width, at: 0 })
    }

    pub(crate) fn set_width(&mut self, width: Width) {
        self.width = width;
    }

    /// Reads a pass. Passes that go on from where another was cut come right after it.
    pub(crate) fn read(&mut self, pass: Pass) {
        let lines = self.block.lines() as u64;
        assert!(pass.from < pass.to && pass.to <= lines, "{pass:?} of {lines} lines");
        // What is needed for a repetition stays in registers: short passes are repeated very often, and what
        // else they read would have distances of its own.
        let (count, from_start) = (pass.to - pass.from, pass.from == 0);
        let first = self.block.line(0);
        match self.order {
            Order::Stream => {
                let first = self.block.line(pass.from as usize);
                let width = self.width;
                if count <= FEW {
                    // SAFETY: the lines from `from` to `to` lie in the block (asserted above).
                    return unsafe { few(first, count, pass.repeat) };
                }
                for _ in 0..pass.repeat {
                    // SAFETY: the lines from `from` to `to` lie in the block (asserted above), and the
                    // processor has this width (`Width::available`).
                    unsafe { stream(first, count as usize, width) }
                }
            }
            Order::Random => {
                let mask = lines.next_power_of_two() - 1;
                let mut at = self.at;
                for _ in 0..pass.repeat {
                    let start = if from_start { 0 } else { at };
                    // SAFETY: only lines below `lines` are read.
                    at = unsafe { random(first, start, count, mask, lines) };
                }
                self.at = at;
            }
            Order::Linked => {
                let mut at = self.at;
                for _ in 0..pass.repeat {
                    let start = if from_start { first } else { at as *const u64 };
                    // SAFETY: `link` made every line's first number the address of a line of this block.
                    at = unsafe { linked(start, count) };
                }
                self.at = at;
            }
        }
    }
}

/// Every line's first number becomes the address of the line after it, in a random cycle over all
/// (Sattolo 1986).
fn link(block: &Block, seed: u64) {
    let mut random = Random::for_purpose(seed, "distgen order");
    let mut order: Vec<u32> = (0..block.lines() as u32).collect();
    // The first line stays first: passes begin there.
    for last in (2..order.len()).rev() {
        order.swap(last, 1 + random.below(last as u64) as usize);
    }
    for (index, &line) in order.iter().enumerate() {
        let next = order[(index + 1) % order.len()];
        block.set(line as usize, block.line(next as usize) as u64);
    }
}

/// Streams of so few lines are repeated without anything in memory in between: four more accesses a
/// repetition would be a distance of their own.
const FEW: u64 = 128;

/// Reads `lines` lines `repeat` times; both are above 0.
///
/// # Safety
/// `lines` lines of 64 bytes from `first` on can be read.
#[inline(always)]
unsafe fn few(first: *const u64, lines: u64, repeat: u64) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: only lines of the range are read; flags and the named registers are all that changes.
    unsafe {
        std::arch::asm!(
            "2:",
            "mov {at}, {first}",
            "mov {left}, {lines}",
            "3:",
            "mov {line}, [{at}]",
            "add {at}, 64",
            "dec {left}",
            "jnz 3b",
            "dec {repeat}",
            "jnz 2b",
            first = in(reg) first,
            lines = in(reg) lines,
            repeat = inout(reg) repeat => _,
            at = out(reg) _,
            left = out(reg) _,
            line = out(reg) _,
            options(nostack, readonly)
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    for _ in 0..repeat {
        // SAFETY: within the range that the caller vouches for.
        unsafe { stream(first, lines as usize, Width::Bytes8) }
    }
}

/// # Safety
/// `lines` lines of 64 bytes from `first` on can be read, and the processor has instructions for `width`.
#[inline(always)]
unsafe fn stream(first: *const u64, lines: usize, width: Width) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::asm;
        let (mut at, steps, rest) = (first, lines / 8, lines % 8);
        // Eight lines a step, each into a register of its own, the rest one by one with the narrowest load.
        // What translates programs (Valgrind) may leave out a load whose register is overwritten before a
        // jump.
        macro_rules! walk {
            ($load:literal, $([$offset:literal, $register:expr, $clobbered:tt]),+) => {
                asm!(
                    "2:",
                    $(concat!($load, " ", $register, ", [{at} + ", $offset, "]"),)+
                    "add {at}, 512",
                    "dec {steps}",
                    "jnz 2b",
                    at = inout(reg) at,
                    steps = inout(reg) steps => _,
                    $(out($clobbered) _,)+
                    options(nostack, readonly)
                )
            };
        }
        macro_rules! vectors {
            ($load:literal, $kind:literal) => {
                walk!(
                    $load,
                    [0, concat!($kind, "0"), "xmm0"],
                    [64, concat!($kind, "1"), "xmm1"],
                    [128, concat!($kind, "2"), "xmm2"],
                    [192, concat!($kind, "3"), "xmm3"],
                    [256, concat!($kind, "4"), "xmm4"],
                    [320, concat!($kind, "5"), "xmm5"],
                    [384, concat!($kind, "6"), "xmm6"],
                    [448, concat!($kind, "7"), "xmm7"]
                )
            };
        }
        if steps > 0 {
            // SAFETY: `steps` times eight lines are read from `at` on; flags and the named registers are
            // all that changes.
            unsafe {
                match width {
                    Width::Bytes8 => walk!(
                        "mov",
                        [0, "rax", "rax"],
                        [64, "rcx", "rcx"],
                        [128, "rdx", "rdx"],
                        [192, "rsi", "rsi"],
                        [256, "rdi", "rdi"],
                        [320, "r8", "r8"],
                        [384, "r9", "r9"],
                        [448, "r10", "r10"]
                    ),
                    Width::Bytes32 => vectors!("vmovdqa", "ymm"),
                    Width::Bytes64 => vectors!("vmovdqa64", "zmm"),
                }
            }
        }
        if rest > 0 {
            // SAFETY: the last lines of the range.
            unsafe {
                asm!(
                    "2:",
                    "mov {line}, [{at}]",
                    "add {at}, 64",
                    "dec {rest}",
                    "jnz 2b",
                    at = inout(reg) at => _,
                    rest = inout(reg) rest => _,
                    line = out(reg) _,
                    options(nostack, readonly)
                );
            }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = width;
        for line in 0..lines {
            // SAFETY: within the range that the caller vouches for.
            unsafe { first.wrapping_add(line * 8).read_volatile() };
        }
    }
}

/// Reads `count` lines of the sequence from `at` on; returns where it goes on.
///
/// # Safety
/// `lines` lines from `first` on can be read; `mask` + 1 is a power of two, at least `lines`.
#[inline(always)]
unsafe fn random(first: *const u64, mut at: u64, count: u64, mask: u64, lines: u64) -> u64 {
    for _ in 0..count {
        // SAFETY: `at` is below `lines`: it is 0, or comes from the loop below.
        unsafe { first.wrapping_add(at as usize * 8).read_volatile() };
        loop {
            at = at.wrapping_mul(FACTOR).wrapping_add(1) & mask;
            if at < lines {
                break;
            }
        }
    }
    at
}

/// Follows `count` pointers; returns the last one.
///
/// # Safety
/// From `at` on every line begins with the address of another that does.
#[inline(always)]
unsafe fn linked(mut at: *const u64, count: u64) -> u64 {
    for _ in 0..count {
        // SAFETY: the caller vouches for it.
        at = unsafe { at.read_volatile() } as *const u64;
    }
    at as u64
}
