//! CPU masks of threads, and of whole process trees.
//!
//! `sched_setaffinity` knows only threads, and a new thread inherits the mask of the one that made
//! it. So a tree is scanned and set again until two scans agree, and what each thread had before is
//! remembered in [`Masks`].

mod chosen;
mod masks;

use std::io;

use topology::{CpuSet, MAX_CPUS};

use crate::error::{Error, Result};
use crate::procfs::Tid;

pub use chosen::Chosen;
pub use masks::{Changed, Masks, Outcome, Own, Said, set_all};

const BITS: usize = libc::c_ulong::BITS as usize;

fn call_error(call: &'static str, tid: Tid) -> Error {
    Error::Call { call, subject: format!("thread {tid}"), source: io::Error::last_os_error() }
}

/// The mask of a thread (0: the calling one). Unlike `cpu_set_t` it is not limited to 1,024 CPUs.
pub fn get(tid: Tid) -> Result<CpuSet> {
    // The kernel refuses a buffer shorter than its own masks, whose length it does not tell.
    let mut words = vec![0 as libc::c_ulong; 1024 / BITS];
    loop {
        // SAFETY: the buffer is `size_of_val` bytes long and outlives the call, which fills at most
        // that many bytes of it.
        let length = unsafe {
            libc::syscall(
                libc::SYS_sched_getaffinity,
                tid as libc::pid_t,
                size_of_val(words.as_slice()),
                words.as_mut_ptr(),
            )
        };
        if length >= 0 {
            break;
        }
        if io::Error::last_os_error().raw_os_error() != Some(libc::EINVAL)
            || words.len() * BITS >= MAX_CPUS as usize
        {
            return Err(call_error("sched_getaffinity", tid));
        }
        words.resize(words.len() * 2, 0);
    }
    let cpus = (0..words.len() * BITS).filter(|cpu| words[cpu / BITS] >> (cpu % BITS) & 1 == 1);
    Ok(cpus.map(|cpu| cpu as u32).collect())
}

/// Sets the mask of a thread (0: the calling one). The kernel leaves out CPUs that are offline or
/// outside the thread's cpuset and refuses (EINVAL) what is empty then.
pub fn set(tid: Tid, mask: &CpuSet) -> Result<()> {
    let length = mask.iter().last().map_or(0, |cpu| cpu as usize / BITS + 1);
    let mut words = vec![0 as libc::c_ulong; length.max(1)];
    for cpu in mask.iter() {
        words[cpu as usize / BITS] |= 1 << (cpu as usize % BITS);
    }
    // SAFETY: the buffer is `size_of_val` bytes long, outlives the call and is only read.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_sched_setaffinity,
            tid as libc::pid_t,
            size_of_val(words.as_slice()),
            words.as_ptr(),
        )
    };
    if rc == 0 { Ok(()) } else { Err(call_error("sched_setaffinity", tid)) }
}

/// More CPUs than all but a few machines have.
const ALL_CPUS: u32 = 1024;

/// Has a thread follow its cpuset again. A mask that somebody sets stays in force when a cpuset is widened (since
/// Linux 6.2); one of all CPUs does as the mask of a thread does that nobody ever set.
pub fn follow_cpuset(tid: Tid) -> Result<()> {
    set(tid, &CpuSet::first(ALL_CPUS))
}
