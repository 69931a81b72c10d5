//! The machine tree: what a machine is made of, which of it may be used, and into which equal
//! partitions it can be cut.

mod cpuset;
mod machine;

pub use cpuset::{CpuSet, MAX_CPUS, ParseCpuSetError};
pub use machine::{Level, Machine, Object, Shape};
