//! `/proc` as text.

use std::fmt::Write;

use rustix::process::Signal;

use crate::groups::ALL;
use crate::kernel::Kernel;
use crate::process::{Op, Process, Thread};

fn state(kernel: &Kernel, process: &Process, is_first: bool) -> char {
    if process.zombie {
        return 'Z';
    }
    if process.stopped {
        return 'T';
    }
    let Some(program) = &process.program else { return 'S' };
    let computes = match program.now {
        Some(Op::Serial { .. }) => is_first,
        Some(Op::Region { .. }) => true,
        _ => false,
    };
    match computes && !kernel.is_frozen(process) {
        true => 'R',
        false => 'S',
    }
}

fn stat(kernel: &Kernel, process: &Process, tid: u32, thread: &Thread) -> String {
    let state = state(kernel, process, tid == process.pid);
    let ticks = thread.run_ns / 10_000_000;
    let processor = kernel.effective(process, thread).lowest().unwrap_or(0);
    format!(
        "{tid} ({}) {state} {} {} {} 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 {} {} 0 {} 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 17 {processor} 0 0 0 0 0\n",
        process.name,
        process.ppid,
        process.group_leader,
        process.session,
        process.nice,
        if process.zombie { 1 } else { process.threads.len() },
        thread.start_ticks,
    )
}

fn status(kernel: &Kernel, process: &Process, tid: u32, thread: &Thread) -> String {
    let uid = process.uid;
    let bit = |signal: Signal| 1_u64 << (signal.as_raw() - 1);
    let stop = |pending: bool| if pending { bit(Signal::STOP) } else { 0 };
    let shared = process.to_die.map_or(0, bit) | stop(process.stop_is_pending);
    let own = stop(process.stops_pending_for.contains(&tid));
    format!(
        "Name:\t{}\nTgid:\t{}\nPid:\t{tid}\nPPid:\t{}\nTracerPid:\t0\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nNSpid:\t{tid}\nVmHWM:\t1024 kB\nVmRSS:\t1024 kB\nRssAnon:\t512 kB\nSigPnd:\t{own:016x}\nShdPnd:\t{shared:016x}\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\nSigCgt:\t0000000000000000\nCpus_allowed_list:\t{}\n",
        process.name,
        process.pid,
        process.ppid,
        kernel.effective(process, thread),
    )
}

fn membership(kernel: &Kernel, process: &Process) -> String {
    let mut text = String::new();
    for (number, hierarchy) in ALL.iter().filter(|one| kernel.groups.mounted().contains(one)).enumerate() {
        let group = process.groups.get(hierarchy).map_or("/", String::as_str);
        let number = if hierarchy.controller().is_empty() { 0 } else { number + 1 };
        let _ = writeln!(text, "{number}:{}:{group}", hierarchy.controller());
    }
    text
}

fn mounts(kernel: &Kernel) -> String {
    let mut text = String::from("20 1 8:1 / / rw - ext4 /dev/sda1 rw\n");
    for (number, hierarchy) in kernel.groups.mounted().iter().enumerate() {
        let id = 30 + number;
        let kind = match hierarchy.controller() {
            "" => "cgroup2 cgroup2 rw".to_owned(),
            controller => format!("cgroup cgroup rw,{controller}"),
        };
        let _ = writeln!(text, "{id} 20 0:{id} / {} rw - {kind}", hierarchy.mount());
    }
    text
}

/// Time that each CPU was busy: that of the threads, on the lowest CPUs that they may use.
fn cpu_times(kernel: &Kernel) -> String {
    let cpus: Vec<u32> = kernel.machine.cpus.iter().collect();
    let total = kernel.now_ns / 10_000_000;
    let mut text = format!("cpu  0 0 0 {} 0 0 0 0 0 0\n", total * cpus.len() as u64);
    for cpu in cpus {
        let _ = writeln!(text, "cpu{cpu} 0 0 0 {total} 0 0 0 0 0 0");
    }
    text
}

/// A file below `/proc`; `own`: the process that reads. `None`: there is none.
pub(crate) fn read(kernel: &Kernel, own: u32, parts: &[&str]) -> Option<Vec<u8>> {
    let text = match parts {
        ["self", rest @ ..] => {
            let pid = own.to_string();
            let parts: Vec<&str> = std::iter::once(pid.as_str()).chain(rest.iter().copied()).collect();
            return read(kernel, own, &parts);
        }
        ["stat"] => cpu_times(kernel),
        ["loadavg"] => format!("0.00 0.00 0.00 1/{} 1\n", kernel.processes.len()),
        ["meminfo"] => "MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\n".to_owned(),
        [pid, rest @ ..] => {
            let process = kernel.processes.get(&pid.parse().ok()?)?;
            let own_thread = process.threads.get(&process.pid)?;
            match rest {
                ["stat"] => stat(kernel, process, process.pid, own_thread),
                ["status"] => status(kernel, process, process.pid, own_thread),
                ["mountinfo"] => mounts(kernel),
                ["cgroup"] => membership(kernel, process),
                ["cmdline"] => process.arguments.iter().map(|word| format!("{word}\0")).collect(),
                ["environ"] => {
                    process.environment.iter().map(|(name, value)| format!("{name}={value}\0")).collect()
                }
                ["task", tid, rest @ ..] => {
                    let tid: u32 = tid.parse().ok()?;
                    let thread = process.threads.get(&tid)?;
                    match rest {
                        ["stat"] => stat(kernel, process, tid, thread),
                        ["status"] => status(kernel, process, tid, thread),
                        ["cgroup"] => membership(kernel, process),
                        ["schedstat"] => format!("{} {} 1\n", thread.run_ns, thread.wait_ns),
                        ["children"] => {
                            let is_first = tid == process.pid;
                            let children = kernel
                                .processes
                                .values()
                                .filter(|child| is_first && child.ppid == process.pid);
                            children.map(|child| format!("{} ", child.pid)).collect()
                        }
                        _ => return None,
                    }
                }
                _ => return None,
            }
        }
        [] => return None,
    };
    Some(text.into_bytes())
}

pub(crate) fn link(kernel: &Kernel, own: u32, parts: &[&str]) -> Option<String> {
    match parts {
        ["self"] => Some(own.to_string()),
        [pid, rest @ ..] => {
            let process = kernel.processes.get(&pid.parse().ok()?)?;
            match rest {
                ["ns", "pid"] => Some("pid:[4026531836]".to_owned()),
                ["exe"] if !process.zombie => Some(process.exe.display().to_string()),
                ["cwd"] if !process.zombie => Some("/home".to_owned()),
                _ => None,
            }
        }
        [] => None,
    }
}

pub(crate) fn names(kernel: &Kernel, parts: &[&str]) -> Option<Vec<String>> {
    match parts {
        [] => Some(kernel.processes.keys().map(u32::to_string).chain(["stat".to_owned()]).collect()),
        [pid, "task"] => {
            let process = kernel.processes.get(&pid.parse().ok()?)?;
            Some(process.threads.keys().map(u32::to_string).collect())
        }
        _ => None,
    }
}

pub(crate) fn exists(kernel: &Kernel, own: u32, parts: &[&str]) -> bool {
    match parts {
        [pid] if pid.parse::<u32>().is_ok_and(|pid| kernel.processes.contains_key(&pid)) => true,
        [pid, "task", tid] => {
            let process = pid.parse::<u32>().ok().and_then(|pid| kernel.processes.get(&pid));
            tid.parse::<u32>()
                .is_ok_and(|tid| process.is_some_and(|process| process.threads.contains_key(&tid)))
        }
        parts => names(kernel, parts).is_some() || read(kernel, own, parts).is_some(),
    }
}
