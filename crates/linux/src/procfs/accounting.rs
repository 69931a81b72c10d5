//! Who used how much CPU time.

use std::collections::BTreeMap;

use super::{Process, Stat, Tid, dir};
use crate::clock;
use crate::error::{Error, Result};
use crate::root::{Root, read};

/// One CPU's time since boot in clock ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTicks {
    /// Everything but idle, waiting for I/O, and time stolen by a hypervisor: no program of this
    /// machine used that, so it must not look like one.
    pub busy_ticks: u64,
    /// Of these: by programs with a nice value above 0.
    pub nice_ticks: u64,
    /// In which it had something to run and the hypervisor ran another machine.
    pub stolen_ticks: u64,
}

/// `/proc/stat`'s lines by CPU (`os_index`); offline CPUs are missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// By `os_index`.
    pub cpus: BTreeMap<u32, CpuTicks>,
}

/// Reads `/proc/stat`; fails where it has no line for any CPU, or one with fewer than four numbers.
pub fn cpu_times(root: &Root) -> Result<CpuTimes> {
    let path = root.proc.join("stat");
    let mut cpus = BTreeMap::new();
    for line in read(&path)?.lines() {
        let Some(rest) = line.strip_prefix("cpu") else { continue };
        let mut fields = rest.split_ascii_whitespace();
        // The line "cpu  …" is the sum over all CPUs.
        let Some(Ok(cpu)) = (!rest.starts_with(' ')).then(|| fields.next().unwrap_or("").parse::<u32>())
        else {
            continue;
        };
        // user nice system idle iowait irq softirq steal; guest times are part of user's.
        let ticks: Vec<u64> = fields
            .take(8)
            .map(|field| field.parse().map_err(|e| Error::parse(&path, line, e)))
            .collect::<Result<_>>()?;
        if ticks.len() < 4 {
            return Err(Error::parse(&path, line, "at least four numbers are expected"));
        }
        let idle_ticks = ticks[3] + ticks.get(4).unwrap_or(&0);
        let busy_ticks = ticks.iter().take(7).sum::<u64>() - idle_ticks;
        let stolen_ticks = ticks.get(7).copied().unwrap_or(0);
        cpus.insert(cpu, CpuTicks { busy_ticks, nice_ticks: ticks[1], stolen_ticks });
    }
    if cpus.is_empty() {
        return Err(Error::parse(path, "", "it has no line for any CPU"));
    }
    Ok(CpuTimes { cpus })
}

/// `/proc/loadavg`: an average, fading exponentially, of the number of threads that run, are ready to run or
/// wait uninterruptibly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadAverage {
    /// With a time constant of fifteen minutes.
    pub fifteen_minutes: f64,
}

/// Reads `/proc/loadavg`; fails where it does not look like `0.20 0.18 0.12 1/80 11206`.
pub fn loadavg(root: &Root) -> Result<LoadAverage> {
    let path = root.proc.join("loadavg");
    let text = read(&path)?;
    let wrong = || Error::parse(&path, &text, "expected for example 0.20 0.18 0.12 1/80 11206");
    let fields: Vec<&str> = text.split_ascii_whitespace().collect();
    let [one, five, fifteen, counts, ..] = fields[..] else { return Err(wrong()) };
    let number = |text: &str| text.parse::<f64>().map_err(|_| wrong());
    let (runnable, threads) = counts.split_once('/').ok_or_else(wrong)?;
    for count in [runnable, threads] {
        count.parse::<u32>().map_err(|_| wrong())?;
    }
    let [_, _, fifteen_minutes] = [number(one)?, number(five)?, number(fifteen)?];
    Ok(LoadAverage { fifteen_minutes })
}

/// A thread's `schedstat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskRuntime {
    /// Time it ran on a CPU.
    pub run_ns: u64,
    /// Time it was ready but another thread ran.
    pub wait_ns: u64,
}

/// How long a thread ran and waited, in nanoseconds (CONFIG_SCHED_INFO; zeros without it).
pub fn task_runtime_ns(pid: u32, tid: Tid, root: &Root) -> Result<TaskRuntime> {
    let path = dir(pid, root).join("task").join(tid.to_string()).join("schedstat");
    let text = read(&path)?;
    let mut fields = text.split_ascii_whitespace().map(str::parse::<u64>);
    match (fields.next(), fields.next(), fields.next()) {
        // The third says how many times it was given a CPU.
        (Some(Ok(run_ns)), Some(Ok(wait_ns)), Some(Ok(_))) => Ok(TaskRuntime { run_ns, wait_ns }),
        _ => Err(Error::parse(path, &text, "three numbers are expected")),
    }
}

/// The unit of every `…_ticks`; 100 on all common kernels.
pub fn ticks_per_second() -> u64 {
    // SAFETY: sysconf only looks up a number.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    u64::try_from(ticks).ok().filter(|ticks| *ticks > 0).unwrap_or(100)
}

fn ticks_to_ns(ticks: u64) -> u64 {
    (u128::from(ticks) * 1_000_000_000 / u128::from(ticks_per_second())) as u64
}

/// CPU time of a process, ended threads included, in nanoseconds: exact on the live machine, in
/// ticks below another root. Children are not included.
pub fn cpu_time_ns(process: Process, root: &Root) -> Result<u64> {
    let stat = process.stat(root)?;
    Ok(own_ns(&stat, root))
}

fn own_ns(stat: &Stat, root: &Root) -> u64 {
    let exact = if root.is_live() { clock::cpu_ns_of(stat.pid) } else { None };
    exact.unwrap_or_else(|| ticks_to_ns(stat.utime_ticks + stat.stime_ticks))
}

/// CPU time of all members of a process tree and of the children that they have waited for, in
/// nanoseconds. Ended members whose parent never waited for them are lost to it, so the sum can
/// fall: take differences saturating.
pub fn tree_cpu_time_ns(members: &[Process], root: &Root) -> u64 {
    let time_ns = |stat: Stat| own_ns(&stat, root) + ticks_to_ns(stat.cutime_ticks + stat.cstime_ticks);
    members.iter().filter_map(|process| process.stat(root).ok()).map(time_ns).sum()
}
