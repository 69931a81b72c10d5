//! On which CPUs kernel threads may run.

use topology::CpuSet;

/// The processors that the calling kernel thread may use.
pub(crate) fn get() -> CpuSet {
    // SAFETY: the set is written by the call.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set);
        set
    };
    // SAFETY: below the set's size.
    (0..libc::CPU_SETSIZE as u32).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu as usize, &set) }).collect()
}

/// Where it is refused, the kernel chooses: slower, not wrong.
pub(crate) fn set(cpus: &CpuSet) {
    set_of(0, cpus);
}

/// Of a kernel thread of this process. Not by the C library's function: the preload library takes that for the
/// user's own choice of CPUs.
pub(crate) fn set_of(kernel_thread: i32, cpus: &CpuSet) {
    // SAFETY: the set is a value of our own, and CPUs are below its size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        for cpu in cpus.iter().filter(|&cpu| cpu < libc::CPU_SETSIZE as u32) {
            libc::CPU_SET(cpu as usize, &mut set);
        }
        let bytes = size_of::<libc::cpu_set_t>();
        libc::syscall(libc::SYS_sched_setaffinity, kernel_thread, bytes, std::ptr::from_ref(&set));
    }
}
