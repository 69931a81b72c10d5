//! The machine tree: what a machine is made of, which of it may be used, and into which equal
//! partitions it can be cut.

mod cpuset;
mod machine;
mod shapes;
mod synthetic;

pub use cpuset::{CpuSet, MAX_CPUS, ParseCpuSetError};
pub use machine::{Cache, CpuKind, Distances, FULL_CAPACITY, Group, Level, Machine, Object};
pub use shapes::Shape;
pub use synthetic::SyntheticError;
