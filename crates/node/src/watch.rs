//! Watches one program from outside: who belongs to it, how many of its threads run, whether it
//! can be resized, how far it has come. Reads pages and /proc; changes nothing but the team size
//! that it is asked to wish for.

use std::collections::BTreeMap;
use std::path::Path;

use linux::page::{Page, PageDir, RigidReason, state};
use linux::{Process, Root, procfs, protection};

/// A thread that wants the CPU for more than this share of an interval counts as running.
const BUSY_SHARE: f64 = 0.3;
/// Threads looked at one by one; of a program with more, all are taken to run.
const MOST_THREADS: usize = 256;
/// How long a program without an OpenMP runtime is given to show one before it counts as having
/// none. Loading a runtime later is noticed too, and changes the verdict.
const SETTLE_NS: u64 = 250_000_000;
/// Shortest interval over which the share of CPU that threads want is judged.
const JUDGE_NS: u64 = 90_000_000;
/// How often a program whose threads need no judging is looked at for the rest.
const SELDOM_NS: u64 = 1_000_000_000;

/// What a program is, as far as it has shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Nature {
    /// Nothing known yet.
    Starting,
    /// An OpenMP program that follows the team size it is asked for.
    Resizable,
    /// It runs the threads that it runs; the reason, for people.
    Rigid(String),
    /// No parallel runtime that we know, and no more than one busy thread so far.
    Serial,
}

#[derive(Clone, Debug)]
pub struct Sight {
    pub nature: Nature,
    /// Threads that run together now, or did last; `None` before there were any.
    pub team: Option<u32>,
    /// Greatest team that it can use: what its runtime told it.
    pub told: Option<u32>,
    pub regions: u64,
    pub cpu_time_ns: u64,
    /// Stands stopped by a signal, all of it.
    pub stopped: bool,
    pub waits_passively: bool,
    /// Why it must not be stopped, if so.
    pub protected: Option<String>,
    /// Nothing of it lives any more.
    pub ended: bool,
}

pub struct Watch {
    started_ns: u64,
    members: Vec<Process>,
    pages: PageDir,
    open: BTreeMap<u32, Page>,
    /// Wish in force, for pages that appear later.
    target: u32,
    declared_rigid: bool,
    /// Run and wait time of each thread at the last judgement.
    wanted: BTreeMap<(u32, u32), u64>,
    judged_ns: u64,
    most_busy: u32,
    passive: Option<bool>,
    protected: Option<String>,
    root: Root,
}

impl Watch {
    pub fn new(process: Process, pages: &Path, declared_rigid: bool, now_ns: u64, root: &Root) -> Watch {
        Watch {
            started_ns: now_ns,
            members: vec![process],
            pages: PageDir::open(pages),
            open: BTreeMap::new(),
            target: 0,
            declared_rigid,
            wanted: BTreeMap::new(),
            judged_ns: now_ns,
            most_busy: 0,
            passive: None,
            protected: None,
            root: root.clone(),
        }
    }

    /// The program was executed only now.
    pub fn restart(&mut self, now_ns: u64) {
        self.started_ns = now_ns;
        self.judged_ns = now_ns;
    }

    pub fn started_ns(&self) -> u64 {
        self.started_ns
    }

    pub fn members(&self) -> &[Process] {
        &self.members
    }

    /// Wishes for teams of `threads` in the whole program; 0 takes the wish back.
    pub fn set_target(&mut self, threads: u32) -> Result<(), linux::Error> {
        // Another user's program has no pages that we would touch.
        if self.target != threads && !self.pages.path().as_os_str().is_empty() {
            self.target = threads;
            self.pages.set_default(threads, self.declared_rigid)?;
        }
        self.spread();
        Ok(())
    }

    /// Divides the wish among the processes that run parallel regions.
    fn spread(&mut self) {
        let teams = self.open.values().filter(|page| page.has(state::RUNTIME_INITIALISED)).count().max(1);
        let each = if self.target == 0 { 0 } else { (self.target / teams as u32).max(1) };
        for page in self.open.values() {
            if page.target() != each {
                page.set_target(each);
            }
        }
    }

    /// Threads that may run at this moment, cheaply: for the short while in which a program is
    /// expected to shrink. `None` where only a look tells.
    pub fn threads_now(&self) -> Option<u32> {
        let runtimes = self.open.values().filter(|page| page.has(state::RUNTIME_INITIALISED));
        let threads = |page: &Page| match page.has(state::SPINS_LONG) {
            true => page.team(),
            false => page.running(),
        };
        let teams: Vec<u32> = runtimes.map(|page| threads(page).max(1)).collect();
        (!teams.is_empty()).then(|| teams.iter().sum())
    }

    /// Threads of the latest teams, whether they run now or wait.
    fn last_team(&self) -> Option<u32> {
        let runtimes = self.open.values().filter(|page| page.has(state::RUNTIME_INITIALISED));
        runtimes.map(|page| page.team().max(1)).reduce(|a, b| a + b)
    }

    /// Whether a runtime read its CPU mask already, so that narrowing it now loses nothing later.
    pub fn has_runtime(&self) -> bool {
        self.open.values().any(|page| page.has(state::RUNTIME_INITIALISED))
    }

    pub fn regions(&self) -> u64 {
        self.open.values().map(Page::regions).sum()
    }

    /// Takes up pages that appeared. Known ones stay open: exec keeps file and mapping, and a page
    /// whose process has ended still holds its last figures.
    pub fn look_for_pages(&mut self) {
        let Ok(entries) = std::fs::read_dir(self.pages.path()) else { return };
        let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let new: Vec<u32> = pids.filter(|pid| !self.open.contains_key(pid)).collect();
        for pid in new {
            // One that cannot be read yet is being made.
            if let Ok(Some(page)) = self.pages.page(pid) {
                self.open.insert(pid, page);
            }
        }
        self.spread();
    }

    /// The whole picture.
    pub fn look(&mut self, now_ns: u64) -> Sight {
        if let Ok(members) = procfs::tree_fast(&self.members, &self.root) {
            self.members = members;
        }
        self.look_for_pages();
        // A runtime that we know tells its threads itself.
        let known = self.has_runtime() && !self.has_foreign_runtime();
        if now_ns.saturating_sub(self.judged_ns) >= if known { SELDOM_NS } else { JUDGE_NS } {
            self.judge(now_ns, !known);
        }
        let stats: Vec<_> = self.members.iter().filter_map(|process| process.stat(&self.root).ok()).collect();
        let runtime = self.has_runtime();
        if self.passive.is_none() && (runtime || now_ns.saturating_sub(self.started_ns) > SETTLE_NS) {
            self.passive =
                Some(self.members.first().is_some_and(|process| waits_passively(process.pid, &self.root)));
        }
        let told = self.open.values().map(Page::told).max().filter(|&told| told > 0);
        Sight {
            nature: self.nature(runtime, now_ns),
            team: match runtime {
                true => self.last_team().filter(|_| self.regions() > 0).map(|team| team.max(self.foreign())),
                false => (self.most_busy > 0).then_some(self.most_busy),
            },
            told,
            regions: self.regions(),
            cpu_time_ns: procfs::tree_cpu_time_ns(&self.members, &self.root),
            stopped: !stats.is_empty() && stats.iter().all(procfs::Stat::is_stopped),
            waits_passively: self.passive.unwrap_or(false),
            protected: self.protected.clone(),
            ended: stats.is_empty(),
        }
    }

    /// Busy threads of a program whose OpenMP side is rigid for a reason outside our library.
    fn foreign(&self) -> u32 {
        if self.has_foreign_runtime() { self.most_busy } else { 0 }
    }

    fn has_foreign_runtime(&self) -> bool {
        self.open.values().any(|page| page.rigid().contains(&RigidReason::RuntimeUnknown))
    }

    fn nature(&self, runtime: bool, now_ns: u64) -> Nature {
        if self.declared_rigid {
            return Nature::Rigid("it was declared rigid".into());
        }
        if runtime {
            let reason = self.open.values().flat_map(Page::rigid).next();
            return reason.map_or(Nature::Resizable, |reason| Nature::Rigid(reason.sentence().into()));
        }
        match self.most_busy {
            0 | 1 if now_ns.saturating_sub(self.started_ns) < SETTLE_NS => Nature::Starting,
            0 | 1 => Nature::Serial,
            threads => {
                Nature::Rigid(format!("it ran {threads} threads without an OpenMP runtime that we know"))
            }
        }
    }

    /// Counts the threads that want a CPU, and looks whether any process must not be stopped.
    fn judge(&mut self, now_ns: u64, threads: bool) {
        let passed = now_ns.saturating_sub(self.judged_ns) as f64;
        self.judged_ns = now_ns;
        self.protected = self
            .members
            .iter()
            .find_map(|process| protection::protected_own(*process, &self.root))
            .map(|r| r.sentence());
        if !threads {
            return;
        }
        let mut wanted = BTreeMap::new();
        let mut busy = 0;
        for process in &self.members {
            let Ok(threads) = procfs::threads(process.pid, &self.root) else { continue };
            if threads.len() > MOST_THREADS {
                busy += threads.len() as u32;
                continue;
            }
            for tid in threads {
                let Ok(time) = procfs::task_runtime_ns(process.pid, tid, &self.root) else { continue };
                let total = time.run_ns + time.wait_ns;
                let before = self.wanted.get(&(process.pid, tid)).copied();
                if total.saturating_sub(before.unwrap_or(total)) as f64 > passed * BUSY_SHARE {
                    busy += 1;
                }
                wanted.insert((process.pid, tid), total);
            }
        }
        self.wanted = wanted;
        self.most_busy = self.most_busy.max(busy);
    }
}

/// Whether a program's environment makes its idle threads sleep.
fn waits_passively(pid: u32, root: &Root) -> bool {
    let Ok(variables) = procfs::environ(pid, root) else { return false };
    let is = |name: &str, value: &str| {
        variables.iter().any(|(n, v)| n == name && v.to_string_lossy().trim().eq_ignore_ascii_case(value))
    };
    is("OMP_WAIT_POLICY", "passive") || is("GOMP_SPINCOUNT", "0")
}
