//! Processes and threads as `/proc` shows them.
//!
//! Everything here races with the programs it looks at: a process that ends between two reads is
//! left out or reported as gone ([`Error::is_gone`]), never guessed.

mod accounting;
mod tree;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use topology::CpuSet;

use crate::error::{Error, Result};
use crate::host;
use crate::root::{Root, read, read_bytes};

pub use accounting::{
    CpuTicks, CpuTimes, LoadAverage, TaskRuntime, cpu_time_ns, cpu_times, loadavg, task_runtime_ns,
    ticks_per_second, tree_cpu_time_ns,
};
pub use tree::{all, children, tree, tree_fast, tree_with, with_variable};

/// A thread's kernel id; of a process's first thread it equals the pid.
pub type Tid = u32;

/// A process, not merely a pid: pids are used again, and acting on a reused one would hit a
/// stranger. The start time (clock ticks since boot, `/proc/PID/stat` field 22) tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Process {
    /// Its number in our own PID namespace, unless it is said otherwise.
    pub pid: u32,
    /// Of the process, not of the program in it: exec leaves it as it is.
    pub start_time_ticks: u64,
}

impl Process {
    /// The process that has this pid now.
    pub fn of(pid: u32, root: &Root) -> Result<Process> {
        Ok(Process { pid, start_time_ticks: stat(pid, root)?.start_time_ticks })
    }

    /// The calling process.
    pub fn own(root: &Root) -> Result<Process> {
        Process::of(own_pid(root)?, root)
    }

    /// Whether the pid still means this process, ended but unreaped ones included.
    pub fn is_same(&self, root: &Root) -> bool {
        self.stat(root).is_ok()
    }

    /// Whether it still runs: the same process, and not a zombie.
    pub fn is_alive(&self, root: &Root) -> bool {
        self.stat(root).is_ok_and(|stat| !stat.has_ended())
    }

    /// Its [`Stat`]; [`Error::Gone`] where the pid means nothing or another process by now.
    pub fn stat(&self, root: &Root) -> Result<Stat> {
        match stat(self.pid, root) {
            Ok(stat) if stat.start_time_ticks == self.start_time_ticks => Ok(stat),
            Ok(_) => Err(Error::Gone(*self)),
            Err(error) if error.is_gone() => Err(Error::Gone(*self)),
            Err(error) => Err(error),
        }
    }
}

/// The fields of `/proc/PID/stat` (proc(5)) that we use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Field 1; of a thread ([`thread_stat`]) its own id.
    pub pid: u32,
    /// The command's name, cut to 15 bytes by the kernel.
    pub comm: String,
    /// R running, S sleeping, D uninterruptible, T stopped, t traced stop, Z zombie, …
    pub state: char,
    /// Its parent's pid (field 4); 0 where it has none in this PID namespace.
    pub ppid: u32,
    /// Its process group (field 5), which has the number of its leader.
    pub pgrp: i32,
    /// Its session (field 6), which has the number of its leader; 0 for kernel threads, and where the leader
    /// is not in this PID namespace.
    session: i32,
    /// The controlling terminal's device number; 0 without one.
    pub tty_nr: i32,
    /// The foreground process group of that terminal; −1 without one.
    pub tpgid: i32,
    /// The kernel's `PF_…` bits (field 9).
    flags: u64,
    /// CPU time in user mode (field 14); of a process, all of its threads, ended ones included.
    pub utime_ticks: u64,
    /// CPU time in the kernel (field 15), counted likewise.
    pub stime_ticks: u64,
    /// CPU time of children that ended and were waited for.
    pub cutime_ticks: u64,
    /// CPU time of the same children in the kernel (field 17).
    pub cstime_ticks: u64,
    /// From −20 to 19, the lower the more CPU time (field 19); of a process, that of its first thread.
    pub nice: i32,
    /// Threads of the whole process (field 20).
    pub num_threads: u32,
    /// When it was started, since boot (field 22).
    pub start_time_ticks: u64,
    /// The CPU (`os_index`) it last ran on.
    pub processor: u32,
}

impl Stat {
    /// Whether its flags have the kernel's `PF_KTHREAD`.
    pub fn is_kernel_thread(&self) -> bool {
        const PF_KTHREAD: u64 = 0x0020_0000;
        self.flags & PF_KTHREAD != 0
    }

    /// Whether its session has its pid as number; never so of a kernel thread.
    pub fn is_session_leader(&self) -> bool {
        self.session > 0 && self.session as u32 == self.pid
    }

    /// Whether a signal has stopped it (state T); a tracer's stop (t) does not count.
    pub fn is_stopped(&self) -> bool {
        self.state == 'T'
    }

    /// Whether it is a zombie or dead (state Z, X or x).
    pub fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }

    /// Its pid and start time, which tell it from a later process with that pid.
    pub fn process(&self) -> Process {
        Process { pid: self.pid, start_time_ticks: self.start_time_ticks }
    }

    fn parse(path: &Path, text: &str) -> Result<Stat> {
        // The name stands in parentheses and may itself hold parentheses and blanks.
        let outside = || Error::parse(path, text, "no command name in parentheses");
        let (head, tail) = text.rsplit_once(')').ok_or_else(outside)?;
        let (pid, comm) = head.split_once('(').ok_or_else(outside)?;
        let fields: Vec<&str> = tail.split_ascii_whitespace().collect();
        // proc(5) counts from 1 and the state is field 3.
        let field = |number: usize| {
            fields
                .get(number - 3)
                .copied()
                .ok_or_else(|| Error::parse(path, text, format!("field {number} is missing")))
        };
        fn parse<T: std::str::FromStr<Err: std::fmt::Display>>(path: &Path, text: &str) -> Result<T> {
            text.parse().map_err(|e| Error::parse(path, text, e))
        }
        Ok(Stat {
            pid: parse(path, pid.trim())?,
            comm: comm.to_owned(),
            state: field(3)?.chars().next().unwrap_or('?'),
            ppid: parse(path, field(4)?)?,
            pgrp: parse(path, field(5)?)?,
            session: parse(path, field(6)?)?,
            tty_nr: parse(path, field(7)?)?,
            tpgid: parse(path, field(8)?)?,
            flags: parse(path, field(9)?)?,
            utime_ticks: parse(path, field(14)?)?,
            stime_ticks: parse(path, field(15)?)?,
            // The kernel prints these two signed.
            cutime_ticks: parse::<i64>(path, field(16)?)?.max(0) as u64,
            cstime_ticks: parse::<i64>(path, field(17)?)?.max(0) as u64,
            nice: parse(path, field(19)?)?,
            num_threads: parse(path, field(20)?)?,
            start_time_ticks: parse(path, field(22)?)?,
            processor: parse(path, field(39)?)?,
        })
    }
}

/// The fields of `/proc/PID/status` that we use. Signal sets have bit n−1 for signal n.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The process to which it belongs; another number than its own for a thread.
    pub tgid: u32,
    /// The real user (first number of `Uid`).
    pub uid: u32,
    /// The user whose rights it has (second number of `Uid`).
    pub effective_uid: u32,
    /// The process that traces it (a debugger, strace); 0 for none.
    pub tracer_pid: u32,
    /// Its number in each PID namespace that it is in, from /proc's to its own; empty before Linux 4.1.
    pub namespace_pids: Vec<u32>,
    /// Its affinity mask within its cpuset (`Cpus_allowed_list`), by `os_index`; of a process, that of its
    /// first thread.
    pub cpus_allowed: CpuSet,
    /// `SigPnd` and `ShdPnd`; of a process, the former is its first thread's.
    pub pending: Pending,
    /// Signals that the thread holds back (`SigBlk`); of a process, its first thread.
    pub sig_blocked: u64,
    /// Signals that do nothing to the process (`SigIgn`).
    pub sig_ignored: u64,
    /// Signals for which the process has a handler (`SigCgt`).
    pub sig_caught: u64,
}

/// The pid of the calling process as this root's `/proc` sees it.
pub fn own_pid(root: &Root) -> Result<u32> {
    let path = root.proc.join("self");
    let target =
        host::with(|host| host.read_link(&path)).map_err(|e| Error::io("read the link", &path, e))?;
    let target = target.to_string_lossy();
    target.parse().map_err(|e| Error::parse(path, &target, e))
}

/// The number of the PID namespace that every machine begins with.
pub const FIRST_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

/// The number of the PID namespace in which a process is. It is used again when the last process in there has
/// ended. Readable for one's own processes and by root.
pub fn pid_namespace(pid: u32, root: &Root) -> Result<u64> {
    let path = dir(pid, root).join("ns/pid");
    let target =
        host::with(|host| host.read_link(&path)).map_err(|e| Error::io("read the link", &path, e))?;
    let target = target.to_string_lossy();
    let number = target.strip_prefix("pid:[").and_then(|rest| rest.strip_suffix(']'));
    number
        .and_then(|number| number.parse().ok())
        .ok_or_else(|| Error::parse(&path, &target, "expected for example pid:[4026531836]"))
}

pub(crate) fn dir(pid: u32, root: &Root) -> PathBuf {
    root.proc.join(pid.to_string())
}

/// What `/proc/PID/stat` says of a process. The kernel shows the state of the first thread there; where that one has
/// ended alone (`pthread_exit` in `main`), `state` is that of a thread which goes on.
pub fn stat(pid: u32, root: &Root) -> Result<Stat> {
    let path = dir(pid, root).join("stat");
    let stat = Stat::parse(&path, &read(&path)?)?;
    if !stat.has_ended() || stat.num_threads < 2 {
        return Ok(stat);
    }
    let others = threads(pid, root).unwrap_or_default().into_iter();
    let mut others = others.filter_map(|tid| thread_stat(pid, tid, root).ok());
    let state = others.find(|thread| !thread.has_ended()).map_or(stat.state, |thread| thread.state);
    Ok(Stat { state, ..stat })
}

/// What `/proc/PID/task/TID/stat` says of a thread: its own state, CPU time and last CPU.
pub fn thread_stat(pid: u32, tid: Tid, root: &Root) -> Result<Stat> {
    let path = dir(pid, root).join("task").join(tid.to_string()).join("stat");
    Stat::parse(&path, &read(&path)?)
}

/// The threads of a process, in ascending order.
pub fn threads(pid: u32, root: &Root) -> Result<Vec<Tid>> {
    numbered(&dir(pid, root).join("task"))
}

pub(crate) fn numbered(path: &Path) -> Result<Vec<u32>> {
    let error = |e| Error::io("list", path, e);
    let mut numbers = Vec::new();
    for entry in host::with(|host| host.names(path)).map_err(error)? {
        numbers.extend(entry.name.to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// Reads `/proc/PID/status`; fails where it has no `Uid` line or a field cannot be understood, and once the
/// process is gone ([`Error::is_gone`]).
pub fn status(pid: u32, root: &Root) -> Result<Status> {
    read_status(dir(pid, root).join("status"))
}

/// Signals that a thread has not taken note of yet, a bit each, from 1 on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    /// Sent to the thread itself.
    pub own: u64,
    /// Sent to its process.
    pub shared: u64,
}

impl Pending {
    /// Pending in either way, with bit n−1 for signal n.
    pub fn any(self) -> u64 {
        self.own | self.shared
    }
}

/// What `/proc/PID/task/TID/status` says is pending for a thread and for its process.
pub fn pending(pid: u32, tid: Tid, root: &Root) -> Result<Pending> {
    Ok(read_status(dir(pid, root).join("task").join(tid.to_string()).join("status"))?.pending)
}

fn read_status(path: PathBuf) -> Result<Status> {
    let text = read(&path)?;
    let mut status = Status::default();
    let mut found_uid = false;
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else { continue };
        let value = value.trim();
        let wrong = |why: String| Error::parse(&path, line, why);
        let number = |text: &str| text.parse::<u32>().map_err(|e| wrong(e.to_string()));
        let mask = || u64::from_str_radix(value, 16).map_err(|e| wrong(e.to_string()));
        match key {
            "Uid" => {
                let mut ids = value.split_ascii_whitespace();
                let mut next =
                    || ids.next().ok_or_else(|| wrong("two ids expected".to_owned())).and_then(number);
                status.uid = next()?;
                status.effective_uid = next()?;
                found_uid = true;
            }
            "Tgid" => status.tgid = number(value)?,
            "NSpid" => {
                status.namespace_pids = value.split_ascii_whitespace().map(number).collect::<Result<_>>()?;
            }
            "TracerPid" => status.tracer_pid = number(value)?,
            "Cpus_allowed_list" => status.cpus_allowed = value.parse().map_err(|e| wrong(format!("{e}")))?,
            "SigPnd" => status.pending.own = mask()?,
            "ShdPnd" => status.pending.shared = mask()?,
            "SigBlk" => status.sig_blocked = mask()?,
            "SigIgn" => status.sig_ignored = mask()?,
            "SigCgt" => status.sig_caught = mask()?,
            _ => {}
        }
    }
    if !found_uid {
        return Err(Error::parse(path, &text, "there is no Uid line"));
    }
    Ok(status)
}

/// The environment that the process started with; entries without `=` are left out.
pub fn environ(pid: u32, root: &Root) -> Result<Vec<(OsString, OsString)>> {
    let bytes = read_bytes(&dir(pid, root).join("environ"))?;
    let pair = |entry: &[u8]| {
        let equals = entry.iter().position(|&byte| byte == b'=')?;
        let (name, value) = (&entry[..equals], &entry[equals + 1..]);
        Some((OsString::from_vec(name.to_vec()), OsString::from_vec(value.to_vec())))
    };
    Ok(bytes.split(|&byte| byte == 0).filter_map(pair).collect())
}

/// The arguments, the program's name first; empty for kernel threads and zombies.
pub fn cmdline(pid: u32, root: &Root) -> Result<Vec<OsString>> {
    let bytes = read_bytes(&dir(pid, root).join("cmdline"))?;
    let bytes = bytes.strip_suffix(&[0]).unwrap_or(&bytes);
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    Ok(bytes.split(|&byte| byte == 0).map(|part| OsString::from_vec(part.to_vec())).collect())
}

/// The program's file. Readable for one's own processes and by root.
pub fn exe(pid: u32, root: &Root) -> Result<PathBuf> {
    let path = dir(pid, root).join("exe");
    host::with(|host| host.read_link(&path)).map_err(|e| Error::io("read the link", path, e))
}
