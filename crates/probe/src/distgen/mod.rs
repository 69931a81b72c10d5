//! DistGen: memory accesses whose stack reuse distances are exactly those that were asked for
//! (after Weidendorfer and Breitbart: Detailed Characterization of HPC Applications for Co-Scheduling,
//! COSH 2016, section 4).
//!
//! # How the distances come about
//!
//! A block of memory as large as the largest distance has its lines in some order. A *pass* over a
//! distance of n lines reads the first n lines of that order, each once. Between two reads of a line lie
//! the rest of the earlier pass that read it and, of whatever passes came since, only lines that stand
//! before it in the order, which the later pass reads again before it comes to the line. So the depth
//! of an access is the length of the last pass that read its line, and every pass over n lines brings
//! exactly n accesses of depth n, whatever passes lie between. A mixture needs nothing more than passes
//! in the right proportion: of each distance a share of the accesses divided by its length. The paper's
//! tool alternates between a block and a part of it; this is why that works, and for any number of
//! distances.
//!
//! Properties: `every_pass_brings_its_length_as_depth` and `mixtures_come_out_as_asked_for` here, and
//! the same in the real accesses, seen by the reuse tool, in `tests/tests/reuse.rs`.
//!
//! # What is read
//!
//! One load a line, of its first bytes: 8, 32 or 64 of them, as the processor allows and as measures
//! fastest ([`Width`]). Streaming passes read in the order of addresses. Pseudo-random ones follow a
//! linear congruential sequence, so that nothing can be fetched ahead; linked ones follow pointers in
//! the lines themselves, each of which must have come before the next can be asked for.

mod memory;
mod mixture;
mod run;
mod schedule;
mod walk;

pub use mixture::{Mixture, MixtureError, Share};
pub use run::{DistGen, Interval, Settings, Spent, StartError};
pub use walk::{Order, Width};
