//! CPU masks of threads, and of whole process trees.
//!
//! `sched_setaffinity` knows only threads, and a new thread inherits the mask of the one that made
//! it. So a tree is scanned and set again until two scans agree, and what each thread had before is
//! remembered in [`Masks`], a value that a guard can keep on disk and restore from.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use serde::{Deserialize, Serialize};
use topology::{CpuSet, MAX_CPUS};

use crate::error::{Error, Result};
use crate::procfs::{self, Process, Tid};
use crate::root::Root;

const BITS: usize = libc::c_ulong::BITS as usize;

/// More rounds than any tree needs that is not a fork bomb.
const MAX_ROUNDS: u32 = 32;

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

/// What one thread had, and what it got.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    process: Process,
    /// The thread; its start time tells it from a later one with the same id.
    thread: Process,
    /// What it had before us, or chose itself since then.
    own: CpuSet,
    /// What we last gave it, as read back.
    ours: CpuSet,
}

/// The masks that threads had before they were confined.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<Entry>", into = "Vec<Entry>")]
pub struct Masks {
    entries: BTreeMap<(Process, Process), Entry>,
}

impl From<Vec<Entry>> for Masks {
    fn from(entries: Vec<Entry>) -> Self {
        Masks { entries: entries.into_iter().map(|entry| ((entry.process, entry.thread), entry)).collect() }
    }
}

impl From<Masks> for Vec<Entry> {
    fn from(masks: Masks) -> Self {
        masks.entries.into_values().collect()
    }
}

/// A thread that set its own mask after we had set it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    pub process: Process,
    pub tid: Tid,
    pub ours: CpuSet,
    pub now: CpuSet,
}

/// What setting or restoring the masks of a tree came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The members of the tree, newly found ones included.
    pub processes: Vec<Process>,
    pub threads: usize,
    pub rounds: u32,
    /// Whether the last two scans agreed: no thread was left out.
    pub settled: bool,
    /// Threads that chose a mask themselves since we last set it; it counts as theirs from now on.
    pub changed: Vec<Changed>,
    /// Threads that could not be set, with the reason.
    pub failed: Vec<(Tid, String)>,
}

impl Masks {
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The processes of which masks are remembered.
    pub fn processes(&self) -> Vec<Process> {
        let processes: BTreeSet<Process> = self.entries.keys().map(|key| key.0).collect();
        processes.into_iter().collect()
    }

    /// Notes what every thread has now, without changing it, for something else that will change
    /// it (moving into a cpuset, before Linux 6.2, forgets masks).
    pub fn remember(&mut self, processes: &[Process], root: &Root) {
        for process in processes {
            for thread in live_threads(*process, root) {
                if let Ok(mask) = get(thread.pid) {
                    let entry = Entry { process: *process, thread, own: mask.clone(), ours: mask };
                    self.entries.entry((*process, thread)).or_insert(entry);
                }
            }
        }
    }

    /// Forgets what has ended.
    pub fn prune(&mut self, root: &Root) {
        self.entries.retain(|_, entry| {
            procfs::thread_stat(entry.process.pid, entry.thread.pid, root)
                .is_ok_and(|stat| stat.process() == entry.thread)
        });
    }

    /// The threads whose mask is not the one that we gave them.
    pub fn changed_by_others(&self) -> Vec<Changed> {
        let changed = |entry: &Entry| {
            let now = get(entry.thread.pid).ok()?;
            (now != entry.ours).then(|| Changed {
                process: entry.process,
                tid: entry.thread.pid,
                ours: entry.ours.clone(),
                now,
            })
        };
        self.entries.values().filter_map(changed).collect()
    }

    /// Gives every thread of the remembered processes and their descendants back what it had, but
    /// leaves those alone that chose a mask themselves since. Threads that we never saw have
    /// inherited a mask of ours and get what their process's first thread had.
    pub fn restore(&mut self, root: &Root) -> Result<Outcome> {
        let processes = self.processes();
        let outcome = self.apply(&processes, None, root)?;
        self.entries.clear();
        Ok(outcome)
    }

    /// What the process's first thread had before us: the best guess for threads and children that
    /// appeared later.
    fn inherited(&self, process: Process, parent_first: &[Process]) -> Option<&Entry> {
        let first = |process: Process| self.entries.get(&(process, process));
        first(process).or_else(|| parent_first.iter().find_map(|process| first(*process)))
    }

    /// `mask: None` restores.
    fn apply(&mut self, processes: &[Process], mask: Option<&CpuSet>, root: &Root) -> Result<Outcome> {
        if self.entries.is_empty() {
            // Before we gave any, every mask is a thread's own, even one that is what it is to get.
            self.remember(&procfs::tree_fast(processes, root)?, root);
        }
        let mut outcome = Outcome { processes: processes.to_vec(), ..Outcome::default() };
        let mut done: BTreeSet<Process> = BTreeSet::new();
        while outcome.rounds < MAX_ROUNDS && !outcome.settled {
            outcome.rounds += 1;
            outcome.processes = procfs::tree_fast(&outcome.processes, root)?;
            outcome.settled = true;
            for process in outcome.processes.clone() {
                for thread in live_threads(process, root) {
                    if done.insert(thread) {
                        outcome.settled = false;
                        self.apply_thread(process, thread, mask, processes, &mut outcome);
                    }
                }
            }
        }
        outcome.threads = done.len();
        Ok(outcome)
    }

    fn apply_thread(
        &mut self,
        process: Process,
        thread: Process,
        mask: Option<&CpuSet>,
        seeds: &[Process],
        outcome: &mut Outcome,
    ) {
        let tid = thread.pid;
        let Ok(now) = get(tid) else { return };
        let own = match (self.entries.get(&(process, thread)), self.inherited(process, seeds)) {
            (Some(entry), _) if entry.ours == now => entry.own.clone(),
            (Some(entry), _) => {
                let (ours, now) = (entry.ours.clone(), now.clone());
                outcome.changed.push(Changed { process, tid, ours, now: now.clone() });
                now
            }
            // Unseen so far: born of a thread that had our mask already, or not yet.
            (None, Some(first)) if mask == Some(&now) || first.ours == now => first.own.clone(),
            (None, _) => now.clone(),
        };
        let target = match mask {
            None => own.clone(),
            // Threads that a runtime bound one by one keep their order within the new place.
            Some(mask) => {
                Some(own.intersection(mask)).filter(|both| !both.is_empty()).unwrap_or(mask.clone())
            }
        };
        if target != now
            && let Err(error) = set(tid, &target)
        {
            if !error.is_gone() {
                outcome.failed.push((tid, error.to_string()));
            }
            return;
        }
        if mask.is_some()
            && let Ok(ours) = get(tid)
        {
            self.entries.insert((process, thread), Entry { process, thread, own, ours });
        }
    }
}

/// Confines all threads of these processes and their descendants to `mask`, again and again until
/// a scan finds none that was not set, and remembers in `masks` what they had.
///
/// A thread that had a narrower mask of its own, or chose one since, keeps the part of it that lies
/// in `mask`, if any; it is never widened beyond its own mask.
pub fn set_all(processes: &[Process], mask: &CpuSet, masks: &mut Masks, root: &Root) -> Result<Outcome> {
    masks.apply(processes, Some(mask), root)
}

/// The threads of a process with their start times; none if it has ended meanwhile.
fn live_threads(process: Process, root: &Root) -> Vec<Process> {
    if !process.is_same(root) {
        return Vec::new();
    }
    let tids = procfs::threads(process.pid, root).unwrap_or_default();
    let stats = tids.into_iter().filter_map(|tid| procfs::thread_stat(process.pid, tid, root).ok());
    stats.filter(|stat| !stat.has_ended()).map(|stat| stat.process()).collect()
}
