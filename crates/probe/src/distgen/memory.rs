//! A block of memory whose lines are read.

use std::io;
use std::num::NonZeroUsize;
use std::ptr::NonNull;

use reuse::LINE_BYTES;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Lines touched between two looks whether to go on: a fraction of a millisecond.
const TOUCHED: usize = 1 << 13;

/// Lines of memory of its own, all of them touched, in large pages where the system gives them.
pub(crate) struct Block {
    at: NonNull<u64>,
    lines: NonZeroUsize,
}

// SAFETY: the block is memory of its own; whoever has it may use it from any thread.
unsafe impl Send for Block {}

impl Block {
    /// `Interrupted` where `stop` says so before all lines are touched.
    pub(crate) fn new(lines: usize, stop: &dyn Fn() -> bool) -> io::Result<Block> {
        let lines = NonZeroUsize::new(lines.max(1)).expect("at least one");
        let bytes = lines.get() * LINE_BYTES as usize;
        // SAFETY: a new private mapping anywhere touches nothing that is there.
        let at = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?;
        // SAFETY: it is the mapping just made, and nothing is in it yet. Without large pages it works, too.
        let _ = unsafe { madvise(at, bytes, Advice::LinuxHugepage) };
        let block = Block { at: NonNull::new(at.cast()).expect("a mapping is not at 0"), lines };
        // The same page of zeros would stand for everything that is only read.
        for from in (0..lines.get()).step_by(TOUCHED) {
            if stop() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            (from..lines.get().min(from + TOUCHED)).for_each(|line| block.set(line, 1));
        }
        Ok(block)
    }

    pub(crate) fn lines(&self) -> usize {
        self.lines.get()
    }

    /// The first bytes of a line.
    pub(crate) fn line(&self, line: usize) -> *const u64 {
        assert!(line < self.lines());
        self.at.as_ptr().wrapping_add(line * LINE_BYTES as usize / 8)
    }

    /// Writes a line's first number.
    pub(crate) fn set(&self, line: usize, value: u64) {
        // SAFETY: `line` is within the mapping (checked there), and nobody else reads or writes it now:
        // the block is written only while it is prepared, by the one who has it.
        unsafe { self.line(line).cast_mut().write_volatile(value) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: the mapping of this length was made in `new`, and nobody has a pointer into it any
        // longer. It cannot fail for a mapping that is there.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), self.lines.get() * LINE_BYTES as usize) };
    }
}
