//! The machine tree: what a machine is made of, which of it may be used, and into which equal
//! partitions it can be cut.

pub mod allowance;
mod cpuset;
mod discover;
mod hwloc;
mod machine;
mod shapes;
mod synthetic;
mod sysfs;

pub use allowance::{Allowance, AllowanceError, Withheld, usable};
pub use cpuset::{CpuSet, MAX_CPUS, ParseCpuSetError};
pub use discover::{Discovery, MachineError};
pub use machine::{Cache, CpuKind, Distances, FULL_CAPACITY, Group, Level, Machine, Object};
pub use shapes::Shape;
pub use synthetic::SyntheticError;
