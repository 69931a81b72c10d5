//! Takes threads of one program that queue for the same CPU apart.
//!
//! While a group is in `cpu.idle` its threads weigh next to nothing, and the kernel's load balancer
//! may leave them all on one CPU. When the group counts again they queue there behind each other,
//! and threads that spin for each other never sleep, so that no wake-up places them anew: two
//! threads of a short parallel region then take a scheduler's slice for each step. Moving a queued
//! thread to a CPU on which no other of them runs mends that at once.

use crate::affinity;
use crate::procfs::{self, Process, Tid};
use crate::root::Root;
use topology::CpuSet;

/// Programs with more threads than this are left to the kernel: looking at each thread takes some
/// ten microseconds, and whoever calls this stands between two gangs.
const MOST_THREADS: usize = 64;

/// Moves runnable threads of these processes that share a CPU to CPUs of their masks on which none
/// of the others is, and returns how many were moved. Masks are afterwards what they were; while a
/// thread is moved, for some microseconds, it is bound to its new CPU.
pub fn spread(processes: &[Process], root: &Root) -> usize {
    let mut occupied = CpuSet::new();
    let mut queued: Vec<(Process, Tid)> = Vec::new();
    let mut count = 0;
    for process in processes {
        let threads = procfs::threads(process.pid, root).unwrap_or_default();
        count += threads.len();
        if count > MOST_THREADS {
            return 0;
        }
        let running = threads.into_iter().filter_map(|tid| {
            let stat = procfs::thread_stat(process.pid, tid, root).ok()?;
            (stat.state == 'R').then_some((tid, stat.processor))
        });
        for (tid, cpu) in running {
            match occupied.contains(cpu) {
                true => queued.push((*process, tid)),
                false => occupied.insert(cpu),
            }
        }
    }
    let mut moved = 0;
    for (process, tid) in queued.into_iter().filter(|(process, _)| process.is_same(root)) {
        let Ok(mask) = affinity::get(tid) else { continue };
        let Some(free) = mask.difference(&occupied).lowest() else { continue };
        occupied.insert(free);
        if move_to(process, tid, free, &mask, root).is_some() {
            moved += 1;
        }
    }
    moved
}

fn move_to(process: Process, tid: Tid, cpu: u32, mask: &CpuSet, root: &Root) -> Option<()> {
    let bound = CpuSet::from_cpus(&[cpu]);
    let before = procfs::threads(process.pid, root).ok()?;
    affinity::set(tid, &bound).ok()?;
    let restored = restore_mask(tid, mask);
    // A thread that it made in between has inherited the one CPU.
    for new in procfs::threads(process.pid, root).unwrap_or_default() {
        if !before.contains(&new) && affinity::get(new).is_ok_and(|its| its == bound) {
            restore_mask(new, mask);
        }
    }
    restored
}

/// The exact mask is only set where it is narrower than the cpuset, which the thread follows otherwise.
fn restore_mask(tid: Tid, mask: &CpuSet) -> Option<()> {
    affinity::follow_cpuset(tid).ok()?;
    match affinity::get(tid) {
        Ok(now) if now == *mask => Some(()),
        _ => affinity::set(tid, mask).ok(),
    }
}
