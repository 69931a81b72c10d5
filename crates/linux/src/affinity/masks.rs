//! The masks of one program's threads: which are ours, and which the program chose.
//!
//! A program may bind its threads whenever it likes: by any call, from any of its processes, after it has
//! asked which CPUs there are. The kernel grants that as long as the program's cpuset holds one of the CPUs
//! asked for, and a mask that we gave before stands in nobody's way. So a choice needs nobody's help to
//! succeed; it is found here, at the next look, by a mask that is not the one we gave, and then it counts:
//! where all threads chose the same CPUs the program is placed within these; where they chose one by one
//! each keeps exactly what it chose, whatever the place is.
//!
//! Two masks are no choices. All that the program could use at its start or more means "anywhere". And one
//! that we gave earlier is mostly what a library read, bound itself to one CPU after the other to look at
//! the machine, and set back: since Linux 6.2 such a mask stays in force, and the thread would never get
//! more than the place of that moment. The preload library knows which of its threads chose (`Stated`) and
//! what they were told; of a process without it a mask of earlier counts as set back for a while after the
//! place has changed.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use topology::CpuSet;

use super::{Chosen, get, set};
use crate::clock;
use crate::error::{Error, Result};
use crate::procfs::{self, Process, Tid};
use crate::protection;
use crate::root::Root;

/// More rounds than any tree needs that is not a fork bomb.
const MAX_ROUNDS: u32 = 32;

/// Threads of a process that are looked at again and again; of one with more, the first.
const MOST_THREADS: usize = 1024;

/// For so long after a change of place threads may still set back what they read before. They may have
/// stood still in between.
const LATE_NS: u64 = 3_000_000_000;

/// What one thread had, and what it got.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    process: Process,
    /// The thread; its start time tells it from a later one with the same id.
    thread: Process,
    /// What it had before us, or chose itself since then.
    own: CpuSet,
    /// What it was last seen to have: given by us, or chosen.
    ours: CpuSet,
    /// Whether its own mask was seen more than once: libraries that look at the machine bind themselves
    /// to each CPU for a moment.
    #[serde(default)]
    lasts: bool,
}

/// What a process says of its threads' CPUs, through the preload library.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stated {
    /// It binds its threads to CPUs of its place, and anew when that changes: no choice of CPUs.
    pub follows_place: bool,
    /// It has chosen CPUs by calls, ...
    pub chooses: bool,
    /// ... and for these threads.
    pub chose: BTreeSet<Tid>,
}

/// A mask that is the program's own, to be given back when the program is set free.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Own {
    /// The process whose threads have it.
    pub process: Process,
    /// `None`: all threads of the process of which nothing else is said.
    pub thread: Option<Process>,
    /// The mask to be given back, which may be the same as one that we gave.
    pub cpus: CpuSet,
}

/// The masks that threads had before they were confined, and those that they chose since.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<Entry>", into = "Vec<Entry>")]
pub struct Masks {
    entries: BTreeMap<(Process, Process), Entry>,
    /// All that the program could use when it came; empty: not known yet.
    original: CpuSet,
    /// Where it was placed last.
    place: Option<CpuSet>,
    /// Every mask that was given to any thread.
    assigned: BTreeSet<CpuSet>,
    late_until_ns: u64,
    stated: BTreeMap<Process, Stated>,
    chosen: Chosen,
}

impl From<Vec<Entry>> for Masks {
    fn from(entries: Vec<Entry>) -> Self {
        let entries = entries.into_iter().map(|entry| ((entry.process, entry.thread), entry));
        Masks { entries: entries.collect(), ..Masks::default() }
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
    /// The process to which the thread belongs.
    pub process: Process,
    /// The thread.
    pub tid: Tid,
    /// The mask that we gave it, or that it was last seen to choose.
    pub ours: CpuSet,
    /// The mask that it was found with.
    pub now: CpuSet,
}

/// What setting or restoring the masks of a tree came to.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The members of the tree, newly found ones included.
    pub processes: Vec<Process>,
    /// Threads that were found, each counted once, including those in `failed`.
    pub threads: usize,
    /// Scans of the tree that were made: 1 … 32.
    pub rounds: u32,
    /// Whether the last two scans agreed: no thread was left out.
    pub settled: bool,
    /// Threads that chose a mask themselves since we last set it; it counts as theirs from now on.
    pub changed: Vec<Changed>,
    /// Threads that could not be set, with the reason.
    pub failed: Vec<(Tid, Error)>,
}

/// What is known of a thread whose mask is read anew.
struct Reading<'a> {
    now: &'a CpuSet,
    entry: Option<&'a Entry>,
    /// Who made it, where it is new.
    maker: Maker<'a>,
    /// What its process says; `None`: nothing is heard from it.
    stated: Option<&'a Stated>,
    tid: Tid,
}

/// From whom a new thread has its mask, if it has not chosen one.
#[derive(Clone, Copy)]
enum Maker<'a> {
    /// From the first thread of its process, or of the one that started it, or of the program.
    Thread(&'a Entry),
    /// From a launcher, which stands in no place: what it gave is the thread's own, even where we give the same to others.
    Launcher,
    Unknown,
}

impl<'a> Maker<'a> {
    fn thread(self) -> Option<&'a Entry> {
        match self {
            Maker::Thread(entry) => Some(entry),
            Maker::Launcher | Maker::Unknown => None,
        }
    }
}

impl Masks {
    /// Of a program that could use these CPUs when it came.
    pub fn of(original: CpuSet) -> Masks {
        Masks { original, ..Masks::default() }
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
                    let (own, ours) = (mask.clone(), mask);
                    let entry = Entry { process: *process, thread, own, ours, lasts: true };
                    self.entries.entry((*process, thread)).or_insert(entry);
                }
            }
        }
        if self.original.is_empty() {
            self.entries.values().for_each(|entry| self.original.add_all(&entry.own));
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

    /// Looks what masks these processes' threads have, cheaply, and what they chose. Returns whether any
    /// has a mask that its place does not give it, and that it did not choose.
    pub fn sample(&mut self, processes: &[Process], stated: BTreeMap<Process, Stated>, root: &Root) -> bool {
        self.stated = stated;
        if self.entries.is_empty() {
            // Before we gave any, every mask is a thread's own, even one that is what it is to get.
            self.remember(processes, root);
        }
        let (mut alive, mut strayed) = (BTreeSet::new(), false);
        for process in processes {
            for tid in procfs::threads(process.pid, root).unwrap_or_default().into_iter().take(MOST_THREADS) {
                let Ok(now) = get(tid) else { continue };
                let key = match self.known(*process, tid) {
                    Some(entry) if entry.ours == now => (*process, entry.thread),
                    _ => match procfs::thread_stat(process.pid, tid, root) {
                        Ok(stat) => (*process, stat.process()),
                        Err(_) => continue,
                    },
                };
                alive.insert(key);
                let entry = self.entry_of(key, now, processes, root);
                strayed |= self.place.as_ref().is_some_and(|place| self.target(&entry, place) != entry.ours);
                self.entries.insert(key, entry);
            }
        }
        self.entries.retain(|key, _| alive.contains(key));
        self.chosen = self.choices(root);
        strayed
    }

    /// What the program's threads chose, as last looked at.
    pub fn chosen(&self) -> &Chosen {
        &self.chosen
    }

    /// Where it was placed last.
    pub fn place(&self) -> Option<&CpuSet> {
        self.place.as_ref()
    }

    /// The masks of the program's own that could be taken for ours by who only knows the places.
    pub fn own(&self) -> Vec<Own> {
        let mistaken_for_ours = |entry: &&Entry| match &self.chosen {
            Chosen::Nothing => false,
            Chosen::Same(_) => entry.thread == entry.process,
            Chosen::Each { .. } => self.assigned.contains(&entry.own),
        };
        let whole = matches!(self.chosen, Chosen::Same(_));
        let own = |entry: &Entry| Own {
            process: entry.process,
            thread: (!whole).then_some(entry.thread),
            cpus: entry.own.clone(),
        };
        self.entries
            .values()
            .filter(|entry| self.is_lasting(entry))
            .filter(mistaken_for_ours)
            .map(own)
            .collect()
    }

    fn known(&self, process: Process, tid: Tid) -> Option<&Entry> {
        let [from, to] = [0, u64::MAX].map(|start_time_ticks| Process { pid: tid, start_time_ticks });
        self.entries.range((process, from)..=(process, to)).next_back().map(|(_, entry)| entry)
    }

    /// The thread as it stands with this mask.
    fn entry_of(
        &self,
        (process, thread): (Process, Process),
        now: CpuSet,
        processes: &[Process],
        root: &Root,
    ) -> Entry {
        let entry = self.entries.get(&(process, thread));
        let maker = match entry {
            Some(_) => Maker::Unknown,
            None => self.find_maker(process, &now, processes, root),
        };
        let stated = self.stated.get(&process);
        let own = self.own_of(&Reading { now: &now, entry, maker, stated, tid: thread.pid });
        let lasts = entry.or(maker.thread()).is_some_and(|before| before.own == own);
        Entry { process, thread, own, ours: now, lasts }
    }

    /// From whom a new thread has its mask.
    fn find_maker(&self, process: Process, now: &CpuSet, processes: &[Process], root: &Root) -> Maker<'_> {
        let first = |process: Process| self.entries.get(&(process, process));
        if let Some(own) = first(process) {
            return Maker::Thread(own);
        }
        let parent = procfs::stat(process.pid, root).ok().map(|stat| stat.ppid);
        let of_parent =
            processes.iter().filter(|other| Some(other.pid) == parent).find_map(|other| first(*other));
        if let Some(of_parent) = of_parent {
            return Maker::Thread(of_parent);
        }
        // Asked only where it could be taken for a mask of ours.
        let could_be_ours = self.place.as_ref() == Some(now) || self.assigned.contains(now);
        let parent = parent.filter(|_| could_be_ours).and_then(|pid| Process::of(pid, root).ok());
        if parent.is_some_and(|parent| protection::is_launcher(parent, root)) {
            return Maker::Launcher;
        }
        processes.iter().find_map(|other| first(*other)).map_or(Maker::Unknown, Maker::Thread)
    }

    /// What a thread's own mask is, now that it is seen with this one.
    fn own_of(&self, reading: &Reading<'_>) -> CpuSet {
        let before = reading.entry.or(reading.maker.thread());
        let was_assigned = before.is_some_and(|before| before.ours == *reading.now);
        let chose = reading.stated.is_some_and(|stated| stated.chose.contains(&reading.tid));
        match before {
            _ if matches!(reading.maker, Maker::Launcher) => reading.now.clone(),
            // Unchanged, or born with what its maker has; or with what all are about to get.
            Some(before)
                if was_assigned || reading.entry.is_none() && self.place.as_ref() == Some(reading.now) =>
            {
                // It chose what it had already.
                if chose && !self.is_choice(&before.own) { reading.now.clone() } else { before.own.clone() }
            }
            _ if !self.assigned.contains(reading.now) => reading.now.clone(),
            _ if reading.stated.is_some_and(|stated| chose || stated.chooses || stated.follows_place) => {
                reading.now.clone()
            }
            // A mask of ours. Without the library it may be chosen all the same.
            _ if reading.stated.is_none() && clock::now_ns() >= self.late_until_ns => reading.now.clone(),
            Some(before) => before.own.clone(),
            None => self.original.clone(),
        }
    }

    /// Whether a mask says more than "anywhere".
    fn is_choice(&self, own: &CpuSet) -> bool {
        !self.original.is_subset(own)
    }

    fn follows_place(&self, process: Process) -> bool {
        self.stated.get(&process).is_some_and(|stated| stated.follows_place)
    }

    /// Whether the thread's own mask is a choice that lasts.
    fn is_lasting(&self, entry: &Entry) -> bool {
        entry.lasts && self.is_choice(&entry.own) && !self.follows_place(entry.process)
    }

    fn choices(&self, root: &Root) -> Chosen {
        if !self.entries.values().any(|entry| self.is_lasting(entry)) {
            return Chosen::Nothing;
        }
        let mut threads: BTreeMap<Process, u32> = BTreeMap::new();
        self.entries.keys().for_each(|(process, _)| *threads.entry(*process).or_default() += 1);
        // What a script starts chooses; its shell only waits for that.
        let waits = |process: &Process| threads[process] == 1 && protection::is_script_shell(*process, root);
        let counted = self.entries.values().filter(|entry| !self.follows_place(entry.process));
        let counted = counted.filter(|entry| self.is_lasting(entry) || !self.is_choice(&entry.own));
        Chosen::of(counted.filter_map(|entry| match self.is_lasting(entry) {
            true => Some(Some(&entry.own)),
            false => (!waits(&entry.process)).then_some(None),
        }))
    }

    /// The mask that a thread is to have in a place.
    fn target(&self, entry: &Entry, place: &CpuSet) -> CpuSet {
        let both = entry.own.intersection(place);
        let alike = matches!(&self.chosen, Chosen::Same(cpus) if *cpus == entry.own);
        match both.is_empty() {
            _ if self.follows_place(entry.process) || !self.is_choice(&entry.own) => {
                if both.is_empty() {
                    place.clone()
                } else {
                    both
                }
            }
            false if alike => both,
            // Never outside of what it chose, and bound one by one never elsewhere than there.
            _ => entry.own.clone(),
        }
    }

    /// `mask: None` restores.
    fn apply(&mut self, processes: &[Process], mask: Option<&CpuSet>, root: &Root) -> Result<Outcome> {
        if self.entries.is_empty() {
            self.remember(&procfs::tree_fast(processes, root)?, root);
            self.chosen = self.choices(root);
        }
        if let Some(mask) = mask
            && self.place.as_ref() != Some(mask)
        {
            self.late_until_ns = clock::now_ns() + LATE_NS;
            self.place = Some(mask.clone());
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
                        self.apply_thread((process, thread), mask, processes, root, &mut outcome);
                    }
                }
            }
        }
        outcome.threads = done.len();
        Ok(outcome)
    }

    fn apply_thread(
        &mut self,
        key: (Process, Process),
        mask: Option<&CpuSet>,
        seeds: &[Process],
        root: &Root,
        outcome: &mut Outcome,
    ) {
        let tid = key.1.pid;
        let Ok(now) = get(tid) else { return };
        if let Some(entry) = self.entries.get(&key).filter(|entry| entry.ours != now) {
            let (process, ours) = (key.0, entry.ours.clone());
            outcome.changed.push(Changed { process, tid, ours, now: now.clone() });
        }
        let mut entry = self.entry_of(key, now, seeds, root);
        let target = mask.map_or_else(|| entry.own.clone(), |place| self.target(&entry, place));
        if target != entry.ours
            && let Err(error) = set(tid, &target)
        {
            if !error.is_gone() {
                outcome.failed.push((tid, error));
            }
            return;
        }
        if mask.is_some()
            && let Ok(ours) = get(tid)
        {
            if ours != entry.own {
                self.assigned.insert(ours.clone());
            }
            entry.ours = ours;
            self.entries.insert(key, entry);
        }
    }
}

/// Confines all threads of these processes and their descendants to `mask`, again and again until
/// a scan finds none that was not set, and remembers in `masks` what they had.
///
/// Where all threads chose the same CPUs, before or since, they get what of these lies in `mask`; where
/// they chose one by one, or nothing of their choice lies there, they keep what they chose.
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
