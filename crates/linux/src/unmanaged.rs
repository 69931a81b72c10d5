//! How much of each CPU is used by programs that nobody put under our care.
//!
//! What a CPU was busy (`/proc/stat`) less what the managed programs used of it. The kernel tells
//! a program's CPU time exactly but not on which CPU it was spent, so it is spread over the
//! program's place in proportion to what is unexplained there; narrow places first, because they
//! leave least choice. Scanning every thread of the machine instead would cost more than it tells.

use std::collections::BTreeMap;

use topology::CpuSet;

use crate::clock;
use crate::error::Result;
use crate::procfs::{self, CpuTimes, Process};
use crate::root::Root;

/// One managed program at the time of a sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Managed {
    /// CPU time of its whole process tree so far.
    pub cpu_ns: u64,
    /// The CPUs (`os_index`) that it may use.
    pub place: CpuSet,
}

/// The CPU time used so far, as read at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// Of each CPU of the machine, since boot.
    pub cpus: CpuTimes,
    /// By the caller's own numbers.
    pub managed: BTreeMap<u64, Managed>,
}

/// Thousandths of a CPU by CPU (`os_index`).
pub type MilliCpus = BTreeMap<u32, u32>;

/// Takes a sample: `managed` gives each program's number, members and place.
pub fn sample<'a>(
    managed: impl IntoIterator<Item = (u64, &'a [Process], &'a CpuSet)>,
    root: &Root,
) -> Result<Sample> {
    let cpus = procfs::cpu_times(root)?;
    let of = |(id, members, place): (u64, &[Process], &CpuSet)| {
        let cpu_ns = procfs::tree_cpu_time_ns(members, root);
        (id, Managed { cpu_ns, place: place.clone() })
    };
    let managed = managed.into_iter().map(of).collect();
    Ok(Sample { at_ns: clock::now_ns(), cpus, managed })
}

/// What unmanaged programs used of each CPU between two samples. A program counts if it is in both;
/// its place is the later one's. The counters behind it advance in ticks (10 ms): sample a second
/// apart and smooth.
pub fn usage_between(before: &Sample, after: &Sample) -> MilliCpus {
    let interval_ns = after.at_ns.saturating_sub(before.at_ns);
    if interval_ns == 0 {
        return MilliCpus::new();
    }
    let tick_ns = 1_000_000_000 / procfs::ticks_per_second();
    let mut unexplained_ns: BTreeMap<u32, u64> = BTreeMap::new();
    for (cpu, now) in &after.cpus.cpus {
        let Some(then) = before.cpus.cpus.get(cpu) else { continue };
        // Who is nice has CPUs only as long as nobody else wants them.
        let counts = |ticks: &procfs::CpuTicks| ticks.busy_ticks.saturating_sub(ticks.nice_ticks);
        let busy_ns = counts(now).saturating_sub(counts(then)) * tick_ns;
        unexplained_ns.insert(*cpu, busy_ns.min(interval_ns));
    }
    let mut used: Vec<(u64, &CpuSet)> = after
        .managed
        .iter()
        .filter_map(|(id, now)| {
            let then = before.managed.get(id)?;
            Some((now.cpu_ns.saturating_sub(then.cpu_ns), &now.place))
        })
        .collect();
    used.sort_by_key(|(_, place)| place.len());
    for (used_ns, place) in used {
        let total_ns: u64 = place.iter().filter_map(|cpu| unexplained_ns.get(&cpu)).sum();
        if total_ns == 0 {
            continue;
        }
        let spread_ns = used_ns.min(total_ns);
        for cpu in place.iter() {
            if let Some(rest_ns) = unexplained_ns.get_mut(&cpu) {
                *rest_ns -= (u128::from(*rest_ns) * u128::from(spread_ns) / u128::from(total_ns)) as u64;
            }
        }
    }
    let milli = |rest_ns: u64| (u128::from(rest_ns) * 1_000 / u128::from(interval_ns)) as u32;
    unexplained_ns.into_iter().map(|(cpu, rest_ns)| (cpu, milli(rest_ns))).collect()
}

/// Two samples closer than this tell no share: a tick of 10 ms is too large a part of the time between them.
const SHORTEST_SHARE_NS: u64 = 200_000_000;

/// The share (0 to 1) of the time of these CPUs that was taken between two samples by others than the managed programs:
/// by unmanaged ones, nice or not, and by the hypervisor for other machines. `None`: the samples are less than 0.2 s
/// apart.
pub fn usage_share_between(before: &Sample, after: &Sample, cpus: &CpuSet) -> Option<f64> {
    let passed_ns = after.at_ns.saturating_sub(before.at_ns);
    let capacity_ns = passed_ns.saturating_mul(cpus.len() as u64);
    if passed_ns < SHORTEST_SHARE_NS || capacity_ns == 0 {
        return None;
    }
    let taken_ticks = |sample: &Sample| -> u64 {
        let ours = sample.cpus.cpus.iter().filter(|(cpu, _)| cpus.contains(**cpu));
        ours.map(|(_, ticks)| ticks.busy_ticks + ticks.stolen_ticks).sum()
    };
    let managed_ns = |sample: &Sample| -> u64 { sample.managed.values().map(|managed| managed.cpu_ns).sum() };
    let tick_ns = 1_000_000_000 / procfs::ticks_per_second();
    let taken_ns = taken_ticks(after).saturating_sub(taken_ticks(before)) * tick_ns;
    let others_ns = taken_ns.saturating_sub(managed_ns(after).saturating_sub(managed_ns(before)));
    Some((others_ns as f64 / capacity_ns as f64).min(1.0))
}

/// Exponential smoothing: after `time_constant_ns` a step has come through to 63%. CPUs that are
/// new start at what they show; those that are gone are left out.
pub fn smooth(
    previous: &MilliCpus,
    current: &MilliCpus,
    elapsed_ns: u64,
    time_constant_ns: u64,
) -> MilliCpus {
    let weight = 1.0 - (-(elapsed_ns as f64) / time_constant_ns.max(1) as f64).exp();
    let smoothed = |(cpu, now): (&u32, &u32)| {
        let Some(then) = previous.get(cpu) else { return (*cpu, *now) };
        let step = (f64::from(*now) - f64::from(*then)) * weight;
        // Away from zero, so that the rest of a step comes through too instead of being rounded off.
        let step = if step < 0.0 { step.floor() } else { step.ceil() };
        (*cpu, (i64::from(*then) + step as i64).clamp(0, i64::from(u32::MAX)) as u32)
    };
    current.iter().map(smoothed).collect()
}
