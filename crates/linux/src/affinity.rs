//! CPU masks of threads, and of whole process trees.
//!
//! `sched_setaffinity` knows only threads, and a new thread inherits the mask of the one that made
//! it. So a tree is scanned and set again until two scans agree, and what each thread had before is
//! remembered in [`Masks`].

mod chosen;
mod masks;

use std::io;

use topology::CpuSet;

use crate::error::{Error, Result};
use crate::host;
use crate::procfs::Tid;

pub use chosen::Chosen;
pub use masks::{Changed, Masks, Outcome, Own, Stated, set_all};

fn call_error(call: &'static str, tid: Tid, source: io::Error) -> Error {
    Error::call(call, format!("thread {tid}"), source)
}

/// The mask of a thread (0: the calling one). Unlike `cpu_set_t` it is not limited to 1,024 CPUs.
pub fn get(tid: Tid) -> Result<CpuSet> {
    host::with(|host| host.affinity(tid)).map_err(|error| call_error("sched_getaffinity", tid, error))
}

/// Sets the mask of a thread (0: the calling one). The kernel leaves out CPUs that are offline or
/// outside the thread's cpuset and refuses (EINVAL) what is empty then.
pub fn set(tid: Tid, mask: &CpuSet) -> Result<()> {
    host::with(|host| host.set_affinity(tid, mask))
        .map_err(|error| call_error("sched_setaffinity", tid, error))
}

/// More CPUs than all but a few machines have.
const ALL_CPUS: u32 = 1024;

/// Has a thread follow its cpuset again. A mask that somebody sets stays in force when a cpuset is widened (since
/// Linux 6.2); one of all CPUs does as the mask of a thread does that nobody ever set.
pub fn follow_cpuset(tid: Tid) -> Result<()> {
    set(tid, &CpuSet::first(ALL_CPUS))
}
