//! One module a kernel interface. Each reads and writes below an injected [`Root`], so that tests
//! and recordings stand in for a machine; every error names its path; what a kernel or a user's
//! rights do not offer is a value ([`Absent`]: what, why, remedy), never a panic.
//!
//! Nothing here decides anything: who may run where is the policies' business.
//!
//! A process is always a [`procfs::Process`], a pid together with the time it started, because a
//! pid alone may by now belong to somebody else.

pub mod affinity;
pub mod binary;
pub mod capabilities;
pub mod cgroup;
pub mod cgroup1;
pub mod cgroup2;
pub mod clock;
mod error;
pub mod groups;
pub mod host;
pub mod job;
pub mod mapped;
pub mod memory;
pub mod numa;
pub mod page;
pub mod perf;
pub mod pidfd;
pub mod procfs;
pub mod protection;
pub mod resctrl;
mod root;
pub mod signals;
pub mod spread;
mod switch;
pub mod unmanaged;

pub use error::{Absent, Error, Result};
pub use procfs::{Process, Tid};
pub use root::Root;
pub use switch::Switch;
