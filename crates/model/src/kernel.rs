//! The state of the modelled machine, and how it goes on by itself.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use linux::page;
use rustix::process::Signal;
use topology::CpuSet;
use workload::Random;

use crate::files::{self, Files};
use crate::groups::{ALL, Groups, Hierarchy};
use crate::process::{Op, Process, Program, Script, Thread};

/// The first process.
pub const INIT: u32 = 1;
/// Numbers of processes are given from here on, and again after so many.
const FIRST_PID: u32 = 300;
/// A team that has fewer CPUs than threads which spin for each other goes on at this speed, in thousandths.
const SQUEEZED_MILLI: u64 = 20;
/// One whose group runs only where others leave a CPU idle.
const IDLE_MILLI: u64 = 100;
pub(crate) const TICK_NS: u64 = 10_000_000;

/// What one of coplace's processes did to the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// A signal was sent, by kill(2) or tgkill(2).
    Signalled {
        /// The process, also where one of its threads was named.
        to: u32,
        /// Any; all but SIGSTOP and SIGCONT end a process.
        signal: Signal,
        /// Whether it stood, stopped by a signal.
        stood: bool,
        /// Whether the kernel kept a stop for it that shows that somebody else wants it to stand.
        kept: bool,
    },
    /// A thread's affinity mask was set.
    Masked {
        /// Its process.
        pid: u32,
        /// The thread; the same as `pid` for the first one.
        tid: u32,
        /// As asked for; it may have CPUs that its cpuset lacks.
        mask: CpuSet,
        /// What the process, by any of its threads, could use before.
        had: CpuSet,
    },
    /// A process was moved into a group (`cgroup.procs`).
    Moved {
        /// The process, of which all threads move.
        pid: u32,
        /// The group's directory.
        group: PathBuf,
    },
    /// A group was frozen, or is not any more (`cgroup.freeze`, `freezer.state`).
    Froze {
        /// The group's directory.
        group: PathBuf,
        /// `false`: it was thawed.
        on: bool,
    },
    /// A group was made to run only where others leave a CPU idle, or is not any more (`cpu.idle`).
    Idled {
        /// The group's directory.
        group: PathBuf,
        /// `false`: it runs like others again.
        on: bool,
    },
    /// A group was confined to CPUs (`cpuset.cpus`).
    Confined {
        /// The group's directory.
        group: PathBuf,
        /// As written; empty: those of the group above (version 2).
        cpus: CpuSet,
    },
    /// A guard was started, which has this pid.
    StartedGuard(u32),
    /// A group was created: its directory.
    MadeGroup(PathBuf),
    /// A group was removed: its directory.
    RemovedGroup(PathBuf),
    /// A file was created or overwritten, or another one was renamed to this path.
    Wrote(PathBuf),
    /// A file was removed; what goes with a whole tree is not told.
    Removed(PathBuf),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    Resume {
        task: u64,
        version: u64,
    },
    Program {
        pid: u32,
        start_ticks: u64,
        version: u64,
    },
    /// Something that the test has planned.
    Planned(u64),
}

/// How the machine behaves.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Online CPUs, by `os_index`.
    pub cpus: CpuSet,
    /// The control group hierarchies that are mounted, if any.
    pub mounted: Vec<Hierarchy>,
    /// Whether threads keep their masks when their cpuset changes (since Linux 6.2).
    pub keeps_masks: bool,
    /// Numbers of processes come round again after so many.
    pub pids: u32,
    /// The user of coplace and its programs.
    pub uid: u32,
}

/// The state of a modelled machine: clock, processes, control groups and files.
#[derive(Debug)]
pub struct Kernel {
    /// The machine's clock, which begins at one second.
    pub now_ns: u64,
    /// As it was described to [`Kernel::new`].
    pub machine: Machine,
    /// By pid; zombies stay until they are reaped.
    pub processes: BTreeMap<u32, Process>,
    /// The control groups, with what was written to them.
    pub groups: Groups,
    pub(crate) files: Files,
    /// Draws how long calls take.
    pub random: Random,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    sequence: u64,
    next_pid: u32,
    /// Programs that have done all their work, by number.
    pub finished: BTreeMap<u32, u64>,
    /// What was found to be wrong, once.
    pub violation: Option<String>,
    pub(crate) layout: BTreeMap<&'static str, usize>,
}

impl Kernel {
    /// A machine that has init, and no files but the directories `/run`, `/tmp` and `/home`.
    pub fn new(machine: Machine, seed: u64) -> Kernel {
        let mut kernel = Kernel {
            // Nothing starts at nought.
            now_ns: 1_000_000_000,
            groups: Groups::new(&machine.mounted, &machine.cpus),
            processes: BTreeMap::new(),
            files: Files::default(),
            random: Random::for_purpose(seed, "kernel"),
            events: BinaryHeap::new(),
            sequence: 0,
            next_pid: FIRST_PID,
            finished: BTreeMap::new(),
            violation: None,
            layout: page::layout().into_iter().collect(),
            machine,
        };
        let init = kernel.plain(INIT, 0, "init");
        kernel.processes.insert(INIT, init);
        for directory in ["/run", "/tmp", "/home"] {
            kernel.files.create_directory(Path::new(directory), 0, 0o755).expect("nothing is there yet");
        }
        kernel
    }

    fn plain(&self, pid: u32, ppid: u32, name: &str) -> Process {
        let uid = if pid == INIT { 0 } else { self.machine.uid };
        let start_ticks = self.now_ns / TICK_NS;
        let thread = Thread { start_ticks, mask: self.machine.cpus.clone(), run_ns: 0, wait_ns: 0 };
        Process {
            pid,
            start_ticks,
            ppid,
            uid,
            name: name.to_owned(),
            exe: PathBuf::from("/usr/bin").join(name),
            arguments: vec![name.to_owned()],
            environment: Vec::new(),
            nice: 0,
            group_leader: pid,
            session: 100,
            threads: [(pid, thread)].into(),
            stopped: false,
            stopped_by: 0,
            stop_is_pending: false,
            stops_pending_for: BTreeSet::new(),
            stop_is_untaken: false,
            stood_until_ns: 0,
            zombie: false,
            to_die: None,
            groups: self.groups.mounted().iter().map(|mounted| (*mounted, "/".to_owned())).collect(),
            app: None,
            program: None,
            page: None,
            generation: 0,
            is_waited_for: false,
        }
    }

    pub(crate) fn free_pid(&mut self) -> u32 {
        let is_taken = |kernel: &Kernel, pid: u32| {
            kernel.processes.values().any(|process| process.pid == pid || process.threads.contains_key(&pid))
        };
        loop {
            let pid = self.next_pid;
            self.next_pid = if pid + 1 >= FIRST_PID + self.machine.pids { FIRST_PID } else { pid + 1 };
            if !is_taken(self, pid) {
                return pid;
            }
        }
    }

    /// A process that nothing runs in yet.
    pub fn start(&mut self, ppid: u32, name: &str) -> u32 {
        let pid = self.free_pid();
        let mut process = self.plain(pid, ppid, name);
        if let Some(parent) = self.processes.get(&ppid) {
            process.groups = parent.groups.clone();
            let mask = parent.threads.get(&ppid).map(|thread| thread.mask.clone());
            process.threads.values_mut().for_each(|thread| thread.mask = mask.clone().unwrap_or_default());
            process.session = parent.session;
        }
        self.processes.insert(pid, process);
        pid
    }

    /// Another thread of a process that runs nothing of the model.
    pub fn start_thread(&mut self, pid: u32) -> u32 {
        let tid = self.free_pid();
        let thread = Thread {
            start_ticks: self.now_ns / TICK_NS,
            mask: self.machine.cpus.clone(),
            run_ns: 0,
            wait_ns: 0,
        };
        if let Some(process) = self.processes.get_mut(&pid) {
            process.threads.insert(tid, thread);
        }
        tid
    }

    pub(crate) fn plan(&mut self, at_ns: u64, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((at_ns.max(self.now_ns), self.sequence, event)));
    }

    pub(crate) fn next_event_ns(&self) -> Option<u64> {
        self.events.peek().map(|Reverse((at_ns, ..))| *at_ns)
    }

    pub(crate) fn pop_event(&mut self, until_ns: u64) -> Option<Event> {
        if self.next_event_ns()? > until_ns {
            return None;
        }
        let Reverse((at_ns, _, event)) = self.events.pop()?;
        self.now_ns = self.now_ns.max(at_ns);
        Some(event)
    }

    // ---- what threads may use ----

    fn cpuset_of(&self, process: &Process) -> CpuSet {
        let in_group =
            |hierarchy| process.groups.get(&hierarchy).map(|g| self.groups.effective_cpus(hierarchy, g));
        let all = [Hierarchy::Cpuset, Hierarchy::V2].into_iter().filter_map(in_group);
        all.fold(self.machine.cpus.clone(), |cpus, own| cpus.intersection(&own))
    }

    /// What a thread may really use.
    pub fn effective(&self, process: &Process, thread: &Thread) -> CpuSet {
        let cpuset = self.cpuset_of(process);
        let both = thread.mask.intersection(&cpuset);
        if both.is_empty() { cpuset } else { both }
    }

    pub(crate) fn find_thread(&self, tid: u32) -> Option<(&Process, &Thread)> {
        let living = self.processes.values().filter(|process| !process.zombie);
        living.into_iter().find_map(|process| Some((process, process.threads.get(&tid)?)))
    }

    /// As sched_setaffinity(2) does; returns the pid of the thread's process. `ESRCH` where no such thread
    /// lives, `EINVAL` where its cpuset has none of these CPUs.
    pub fn set_mask(&mut self, tid: u32, mask: &CpuSet) -> Result<u32, i32> {
        let (process, _) = self.find_thread(tid).ok_or(libc::ESRCH)?;
        let pid = process.pid;
        if mask.intersection(&self.cpuset_of(process)).is_empty() {
            return Err(libc::EINVAL);
        }
        let threads = &mut self.processes.get_mut(&pid).expect("just found").threads;
        threads.get_mut(&tid).expect("just found").mask = mask.clone();
        self.touch(pid);
        Ok(pid)
    }

    /// Whether a group in which it stands, or one above, is frozen.
    pub fn is_frozen(&self, process: &Process) -> bool {
        let frozen = |(hierarchy, group): (&Hierarchy, &String)| self.groups.is_frozen(*hierarchy, group);
        process.groups.iter().any(frozen)
    }

    /// Whether `cpu.idle` is set for a group in which it stands, or one above.
    pub fn is_idle(&self, process: &Process) -> bool {
        let idle = |(hierarchy, group): (&Hierarchy, &String)| self.groups.is_idle(*hierarchy, group);
        process.groups.iter().any(idle)
    }

    /// Whether a signal has stopped it, or it is frozen.
    pub fn stands_still(&self, process: &Process) -> bool {
        process.stopped || self.is_frozen(process)
    }

    /// Every CPU that a thread of the process may use.
    pub fn cpus_of(&self, process: &Process) -> CpuSet {
        process
            .threads
            .values()
            .fold(CpuSet::new(), |all, thread| all.union(&self.effective(process, thread)))
    }

    // ---- programs ----

    fn speed(&self, process: &Process) -> u64 {
        let Some(program) = &process.program else { return 0 };
        let computes = matches!(program.now, Some(Op::Serial { .. } | Op::Region { .. }));
        match program.now {
            _ if process.zombie || self.stands_still(process) && program.now != Some(Op::Wait) => 0,
            Some(Op::Region { .. })
                if !program.passive && self.cpus_of(process).len() < program.team as usize =>
            {
                SQUEEZED_MILLI
            }
            Some(_) if computes && self.is_idle(process) => IDLE_MILLI,
            Some(_) => 1000,
            None => 0,
        }
    }

    /// Something about the process has changed: it goes on at the speed that it has now.
    pub fn touch(&mut self, pid: u32) {
        let Some(process) = self.processes.get(&pid) else { return };
        let speed = self.speed(process);
        let (now_ns, start_ticks) = (self.now_ns, process.start_ticks);
        let process = self.processes.get_mut(&pid).expect("just found");
        let Some(program) = &mut process.program else { return };
        let (elapsed_ns, had_milli) = (now_ns - program.since_ns, program.speed_milli);
        let done_ns = elapsed_ns * had_milli / 1000;
        let busy_ns = done_ns.min(program.left_ns);
        program.left_ns -= busy_ns;
        program.since_ns = now_ns;
        program.speed_milli = speed;
        program.version += 1;
        let computes = match program.now {
            Some(Op::Serial { .. }) => 1,
            Some(Op::Region { .. }) => program.team as usize,
            _ => 0,
        };
        // Who spins for others that have no CPU, or has one only when nobody else wants it, wants one all the time.
        let wait_ns = match had_milli {
            0 | 1000 => 0,
            milli => (busy_ns * 1000 / milli).min(elapsed_ns) - busy_ns,
        };
        for thread in process.threads.values_mut().take(computes) {
            thread.run_ns += busy_ns;
            thread.wait_ns += wait_ns;
        }
        let (left_ns, version, waits) = (program.left_ns, program.version, program.now == Some(Op::Wait));
        if speed > 0 && !waits {
            let at_ns = now_ns + (left_ns * 1000).div_ceil(speed);
            self.plan(at_ns, Event::Program { pid, start_ticks, version });
        }
    }

    /// All whose groups have changed.
    pub(crate) fn touch_all(&mut self) {
        let pids: Vec<u32> = self
            .processes
            .values()
            .filter(|process| process.program.is_some())
            .map(|process| process.pid)
            .collect();
        pids.into_iter().for_each(|pid| self.touch(pid));
    }

    /// A process begins to run a program.
    pub fn execute(&mut self, pid: u32, script: Script, preloaded: bool, passive: bool) {
        let Some(process) = self.processes.get(&pid) else { return };
        let procs = self.cpus_of(process).len() as u32;
        let process = self.processes.get_mut(&pid).expect("just found");
        process.program =
            Some(Program { script, preloaded, passive, procs, since_ns: self.now_ns, ..Program::default() });
        self.make_page(pid);
        self.next_op(pid);
    }

    pub(crate) fn on_program(&mut self, pid: u32, start_ticks: u64, version: u64) {
        let current = self.processes.get(&pid).filter(|process| process.start_ticks == start_ticks);
        if current
            .and_then(|process| process.program.as_ref())
            .is_none_or(|program| program.version != version)
        {
            return;
        }
        self.touch(pid);
        let program = self.processes.get(&pid).and_then(|process| process.program.as_ref());
        if program.is_some_and(|program| program.left_ns == 0) {
            self.end_op(pid);
            self.next_op(pid);
        }
    }

    fn end_op(&mut self, pid: u32) {
        let now_ns = self.now_ns;
        let Some(process) = self.processes.get(&pid) else { return };
        let Some(program) = &process.program else { return };
        if let (Some(Op::Region { .. }), Some(words)) = (&program.now, &process.page) {
            let lane = self.layout["lane"];
            let team = program.team;
            words[lane / 8].store(u64::from(team), Ordering::SeqCst);
            words[lane / 8 + 2].store(now_ns, Ordering::SeqCst);
        }
    }

    pub(crate) fn next_op(&mut self, pid: u32) {
        loop {
            let Some(process) = self.processes.get_mut(&pid) else { return };
            let Some(program) = &mut process.program else { return };
            let Some(op) = program.script.pop_front() else {
                program.now = None;
                return self.exit(pid, true);
            };
            program.now = Some(op.clone());
            program.left_ns = 0;
            program.since_ns = self.now_ns;
            match op {
                Op::Serial { ns } | Op::Sleep { ns } => {
                    program.left_ns = ns;
                    program.team = 0;
                    return self.touch(pid);
                }
                Op::Region { ns, wide } => {
                    program.left_ns = ns;
                    self.enter_region(pid, wide);
                    return self.touch(pid);
                }
                Op::Fork(script) => self.fork(pid, script),
                Op::Wait => {
                    let has_children =
                        self.processes.values().any(|other| other.ppid == pid && !other.zombie);
                    if has_children {
                        return self.touch(pid);
                    }
                    self.reap_children(pid);
                }
                Op::Exec { name } => {
                    process.exe = PathBuf::from("/usr/bin").join(&name);
                    process.arguments = vec![name.clone()];
                    process.name = name;
                    process.generation += 1;
                    process.threads.retain(|tid, _| *tid == pid);
                    self.make_page(pid);
                }
                Op::Daemonise => {
                    let script = std::mem::take(&mut program.script);
                    self.fork(pid, script);
                    return self.exit(pid, false);
                }
                Op::Restrict(cpus) => {
                    let tids: Vec<u32> = process.threads.keys().copied().collect();
                    for tid in tids {
                        // Refused where none of them is in its cpuset.
                        let _ = self.set_mask(tid, &cpus);
                    }
                }
                Op::BindFirst(cpus) => drop(self.set_mask(pid, &cpus)),
                Op::StopSelf => {
                    process.stopped = true;
                    process.stopped_by = pid;
                    program.left_ns = 1;
                    return self.touch(pid);
                }
            }
        }
    }

    fn fork(&mut self, pid: u32, script: Script) {
        let child = self.free_pid();
        let now_ns = self.now_ns;
        let Some(parent) = self.processes.get(&pid) else { return };
        let mut process = parent.clone();
        let mask = parent.threads.get(&pid).map(|thread| thread.mask.clone()).unwrap_or_default();
        process.pid = child;
        process.start_ticks = now_ns / TICK_NS;
        process.ppid = pid;
        process.threads =
            [(child, Thread { start_ticks: process.start_ticks, mask, run_ns: 0, wait_ns: 0 })].into();
        process.generation = 0;
        process.page = None;
        process.is_waited_for = false;
        if let Some(program) = &mut process.program {
            program.script = script;
            program.now = None;
            program.team = 0;
            program.since_ns = now_ns;
        }
        self.processes.insert(child, process);
        self.make_page(child);
        self.next_op(child);
    }

    // ---- groups ----

    pub(crate) fn move_to(&mut self, pid: u32, hierarchy: Hierarchy, group: &str) -> Result<(), i32> {
        let keeps = self.machine.keeps_masks;
        let process = self.processes.get(&pid).filter(|process| !process.zombie).ok_or(libc::ESRCH)?;
        let before = self.cpuset_of(process);
        let process = self.processes.get_mut(&pid).expect("just found");
        process.groups.insert(hierarchy, group.to_owned());
        let is_cpuset = matches!(hierarchy, Hierarchy::Cpuset | Hierarchy::V2);
        if is_cpuset && !keeps {
            let cpuset = self.cpuset_of(&self.processes[&pid]);
            if hierarchy == Hierarchy::Cpuset || cpuset != before {
                let process = self.processes.get_mut(&pid).expect("just found");
                process.threads.values_mut().for_each(|thread| thread.mask = cpuset.clone());
            }
        }
        self.touch(pid);
        Ok(())
    }

    /// Whether somebody lives in a group or below it.
    pub(crate) fn is_populated(&self, hierarchy: Hierarchy, group: &str) -> bool {
        let within = |process: &Process| {
            let below = process.groups.get(&hierarchy).and_then(|own| own.strip_prefix(group));
            // Every path is below the top, which ends in its slash itself.
            !process.zombie
                && below.is_some_and(|rest| group == "/" || rest.is_empty() || rest.starts_with('/'))
        };
        self.processes.values().any(within)
    }

    pub(crate) fn members(&self, hierarchy: Hierarchy, group: &str) -> Vec<u32> {
        let here = |process: &&Process| {
            !process.zombie && process.groups.get(&hierarchy).is_some_and(|own| own == group)
        };
        self.processes.values().filter(here).map(|process| process.pid).collect()
    }

    /// A cpuset lost CPUs: before Linux 6.2 masks are what the cpuset has.
    pub(crate) fn after_confining(&mut self, hierarchy: Hierarchy, group: &str) {
        if !self.machine.keeps_masks {
            let inside = |own: &String| own == group || own.starts_with(&format!("{group}/"));
            let pids: Vec<u32> = self
                .processes
                .values()
                .filter(|process| process.groups.get(&hierarchy).is_some_and(inside))
                .map(|process| process.pid)
                .collect();
            for pid in pids {
                let cpuset = self.cpuset_of(&self.processes[&pid]);
                let process = self.processes.get_mut(&pid).expect("just found");
                process.threads.values_mut().for_each(|thread| thread.mask = cpuset.clone());
            }
        }
        self.touch_all();
    }

    /// The processes of a program, by its number.
    pub fn of_app(&self, app: u32) -> impl Iterator<Item = &Process> {
        self.processes.values().filter(move |process| process.app == Some(app) && !process.zombie)
    }

    /// Keeps a violation with its time, if it is the first; [`run_until`](crate::World::run_until) ends then.
    pub fn report_violation(&mut self, what: String) {
        let at_ms = self.now_ns / 1_000_000;
        self.violation.get_or_insert(format!("at {at_ms} ms: {what}"));
    }

    /// Files of a directory and below, for questions about what is left behind.
    pub fn files_below(&self, directory: &Path) -> Vec<PathBuf> {
        self.files.paths_below(directory)
    }

    /// What a file outside of `/proc` and control groups contains; `None` where there is none.
    pub fn file(&self, path: &Path) -> Option<Vec<u8>> {
        self.files.content(path).ok().map(|content| files::bytes_of(&content))
    }

    /// The groups in which a process stands, by their directories.
    pub fn group_paths(&self, process: &Process) -> Vec<PathBuf> {
        let path = |hierarchy: &Hierarchy| {
            let group = process.groups.get(hierarchy)?;
            Some(PathBuf::from(hierarchy.mount()).join(group.trim_start_matches('/')))
        };
        ALL.iter().filter_map(path).collect()
    }
}

/// Something that takes turns between computing alone and in teams.
pub fn phases(regions: u64, region_ns: u64, serial_ns: u64, wide: u32) -> Script {
    let mut script = VecDeque::new();
    for _ in 0..regions {
        script.push_back(Op::Serial { ns: serial_ns });
        script.push_back(Op::Region { ns: region_ns, wide });
    }
    script
}

/// The words of a page, as the tests read them.
pub type Words = Arc<[AtomicU64]>;
