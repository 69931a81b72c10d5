//! Stack reuse distances and what follows from them.
//!
//! The *depth* of an access is where its line is found in the stack of all lines, most recent first:
//! the number of distinct lines touched since the last access to this one, itself included. A line
//! that is read twice in a row has depth 1, a walk round and round an array of n lines has depth n,
//! and a first touch has none. A fully associative cache of n lines with LRU replacement hits exactly
//! the accesses whose depth is at most n (Bennett and Kruskal 1975; Mattson and others 1970).
//!
//! [`Exact`] finds every depth; [`Shards`] looks at a sample of the lines and says how far off it may
//! be. Both fill a [`Histogram`], whose integral is the miss-ratio curve. [`Report`] is what the
//! measuring tool (`reuse-tool/`) writes. Addresses come in as numbers of 64-byte lines.

mod exact;
mod histogram;
mod report;
mod shards;
mod slots;

pub use exact::Exact;
pub use histogram::{CurvePoint, Histogram, Row};
pub use report::{Ended, Part, Report, ReportError, Sampling, Scope};
pub use shards::{Estimate, Rate, Shards, sample_hash};

/// Bytes of a line; what an address is divided by before it comes in here.
pub const LINE_BYTES: u64 = 64;

/// Tells the processor that this will be needed soon.
#[inline]
fn fetch<T>(what: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of a reference's address reads nothing that the program could see, and the
    // address is valid.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch(std::ptr::from_ref(what).cast(), _MM_HINT_T0);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = what;
}
