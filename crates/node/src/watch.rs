//! Watches one program from outside: who belongs to it, how many of its threads run, whether it
//! can be resized, how far it has come. Reads pages and /proc; changes nothing but the team size
//! that it is asked to wish for.

mod footprint;
mod let_run;
mod member;
mod nature;
mod patience;
mod teams;
mod threads;

use std::collections::{BTreeMap, BTreeSet};

use linux::affinity::Stated;
use linux::memory::Resident;
use linux::page::{PageDir, PageName};
use linux::protection::{self, Reason};
use linux::{Process, Root, procfs};
use protocol::AppRecord;
use regions::Finding;
use workload::Malleability;

use crate::identity;
use crate::rates::{Beside, Moment};
use crate::resizing::Analyst;
use footprint::Footprint;
use let_run::LetRun;
pub use nature::Nature;
use teams::Teams;

/// How long a program without an OpenMP runtime is given to show one before it counts as having
/// none. Loading a runtime later is noticed too, and changes the verdict.
const SETTLE_NS: u64 = 250_000_000;
/// Shortest time that a program must have been let run for its threads' share of CPU to be judged.
const JUDGE_NS: u64 = 90_000_000;
/// How often a program is looked at for what changes seldom.
const SELDOM_NS: u64 = 1_000_000_000;

#[derive(Clone, Debug)]
pub struct Observation {
    pub nature: Nature,
    /// What was found about whether its teams may be resized.
    pub finding: Option<Finding>,
    /// Threads that run together now, or did last; `None` before there were any.
    pub team: Option<u32>,
    /// Greatest number of threads that its runtimes would give it in one team.
    pub max_team: Option<u32>,
    /// Fewest threads that it can be made to have: one in each process that runs teams, and those
    /// that run beside them.
    pub fewest: u32,
    pub regions: u64,
    pub cpu_time_ns: u64,
    /// Stands stopped by a signal, all of it.
    pub stopped: bool,
    pub waits_passively: bool,
    /// Why it must not be stopped, if so.
    pub protected: Option<String>,
    /// It came running and is the foreground job of a terminal: signals must not stop it.
    pub foreground: bool,
    /// Nothing of it lives any more.
    pub ended: bool,
}

pub struct Watch {
    /// The topmost one.
    process: Process,
    started_ns: u64,
    members: Vec<Process>,
    pages: PageDir,
    teams: Teams,
    /// Launchers in its tree: they wait for what they launched, and are never touched.
    outsiders: BTreeSet<Process>,
    /// The topmost one is to execute a launcher: it is one of these even before it does.
    begins_as_launcher: bool,
    /// Processes that were looked at for being launchers, while they may still execute another program.
    examined: BTreeMap<Process, u64>,
    /// Wish in force, for pages that appear later.
    target: u32,
    /// The same as processes find it that start now; `None`: it was not written yet.
    default_target: Option<u32>,
    declared_rigid: bool,
    /// It was running when it came: its directory of pages may serve other programs, too, and its
    /// place on a terminal is somebody else's doing.
    attached: bool,
    let_run: LetRun,
    /// Run and wait time of each thread at the last judgement.
    wanted: BTreeMap<(u32, u32), u64>,
    judged_ns: u64,
    /// How long it had been let run then.
    judged_run_ns: u64,
    /// Busy threads of processes without a team that we see: at the last judgement, and at most.
    /// Busy threads of processes without a runtime that we know …
    busy: u32,
    /// … those of all processes that show no team and may be about to sleep …
    unproven: u32,
    most_busy: u32,
    /// … and the most in each of those whose runtime has not run any region: ranks of an MPI program that loads
    /// OpenMP and does not use it, libraries with threads of their own beside it. They take turns at
    /// computing, so that one look does not show them all.
    silent: BTreeMap<Process, u32>,
    most_silent: u32,
    footprint: Footprint,
    memory_at_ns: u64,
    /// Why a program with several busy threads shows no page, once that was looked into.
    unheard: Option<String>,
    /// When that is looked into again; its binary is read for it.
    unheard_at_ns: u64,
    passive: Option<bool>,
    /// The scheduler told it to wait passively. Whether it listens nobody knows: it is given no fewer
    /// CPUs for that.
    pub made_passive: bool,
    protected: Option<String>,
    foreground: bool,
    /// When its processes are next asked what forbids to stop them.
    reasons_at_ns: u64,
    was_resizable: bool,
    analyst: Analyst,
    root: Root,
}

impl Watch {
    pub fn new(record: &AppRecord, now_ns: u64, analyst: &Analyst, root: &Root) -> Watch {
        let process = identity::to_linux(record.process);
        let begins_as_launcher = record.is_launcher_to_be();
        Watch {
            process,
            started_ns: now_ns,
            members: procfs::tree_fast(&[process], root).unwrap_or_else(|_| vec![process]),
            pages: PageDir::open_of(&record.pages, record.uid),
            teams: Teams::default(),
            outsiders: begins_as_launcher.then_some(process).into_iter().collect(),
            begins_as_launcher,
            examined: BTreeMap::new(),
            target: 0,
            default_target: Some(0),
            declared_rigid: record.demand.malleability == Malleability::Rigid,
            made_passive: record.terms.passive.is_some(),
            attached: record.terms.attached,
            let_run: LetRun::since(now_ns),
            wanted: BTreeMap::new(),
            judged_ns: now_ns,
            judged_run_ns: 0,
            busy: 0,
            unproven: 0,
            most_busy: 0,
            silent: BTreeMap::new(),
            most_silent: 0,
            footprint: Footprint::default(),
            memory_at_ns: 0,
            unheard: None,
            unheard_at_ns: 0,
            passive: None,
            protected: None,
            foreground: false,
            reasons_at_ns: 0,
            was_resizable: false,
            analyst: analyst.clone(),
            root: root.clone(),
        }
    }

    /// The program was executed only now.
    pub fn restart(&mut self, now_ns: u64) {
        self.started_ns = now_ns;
        (self.judged_ns, self.judged_run_ns) = (now_ns, self.let_run.total_ns());
    }

    pub fn started_ns(&self) -> u64 {
        self.started_ns
    }

    pub fn members(&self) -> &[Process] {
        &self.members
    }

    /// The bubbles that its processes told of, for people.
    pub fn bubbles(&self) -> String {
        self.members
            .iter()
            .filter_map(|member| self.pages.bubbles(PageName::of(member.pid, &self.root)))
            .collect()
    }

    /// Wishes for teams of `threads` in the whole program; 0 takes the wish back.
    pub fn set_target(&mut self, threads: u32) -> Result<(), linux::Error> {
        self.target = threads;
        // Teams that run are asked whatever becomes of those that are to come.
        self.spread();
        if self.default_target == Some(threads) || self.attached || self.pages.path().as_os_str().is_empty() {
            return Ok(());
        }
        self.pages.set_default(threads, self.declared_rigid)?;
        self.default_target = Some(threads);
        Ok(())
    }

    /// Divides the wish among the processes that run parallel regions.
    fn spread(&mut self) {
        self.teams.spread(self.target, self.busy, linux::clock::now_ns());
    }

    /// Threads that may run at this moment, cheaply: for the short while in which a program is
    /// expected to shrink. `None` where only a look tells.
    pub fn threads_now(&self) -> Option<u32> {
        self.teams.threads_now()
    }

    /// Threads that it is asked to have; 0: as many as it likes.
    pub fn target(&self) -> u32 {
        self.target
    }

    /// Threads that its teams have together when they obey.
    pub fn asked_team(&self) -> u32 {
        self.teams.asked_team()
    }

    /// Whether a runtime read its CPU mask already, so that narrowing it now loses nothing later.
    pub fn has_runtime(&self) -> bool {
        self.teams.has_runtime()
    }

    /// Takes up pages that appeared.
    pub fn scan_pages(&mut self) {
        let only = self.attached.then_some(self.members.as_slice());
        self.teams.scan_pages(&self.pages, only, &self.members, &self.root);
        self.spread();
    }

    /// What its processes say of their threads' CPUs.
    pub fn stated_cpus(&self) -> BTreeMap<Process, Stated> {
        self.teams.stated_cpus()
    }

    /// Its processes without the launchers: those that are placed and take turns.
    pub fn insiders(&self) -> Vec<Process> {
        self.members.iter().filter(|process| !self.outsiders.contains(process)).copied().collect()
    }

    pub fn outsiders(&self) -> &BTreeSet<Process> {
        &self.outsiders
    }

    /// Tells launchers from the rest. A process may execute another program at any time, and mostly
    /// does so soon.
    fn find_launchers(&mut self, now_ns: u64) {
        self.examined.retain(|process, _| self.members.contains(process));
        for &process in &self.members {
            let due_ns = self.examined.get(&process).copied().unwrap_or(0);
            if now_ns < due_ns {
                continue;
            }
            let first = due_ns == 0;
            let pause_ns = if first || self.outsiders.contains(&process) { 0 } else { SELDOM_NS };
            self.examined.insert(process, (now_ns + pause_ns).max(1));
            let is_to_be = self.begins_as_launcher
                && process == self.process
                && protection::is_ours(process, &self.root);
            match is_to_be || protection::is_launcher(process, &self.root) {
                true => self.outsiders.insert(process),
                false => self.outsiders.remove(&process),
            };
        }
        self.outsiders.retain(|process| self.members.contains(process));
    }

    /// The whole picture. `still_ns` is how long its turns have kept it from running so far: of that
    /// time it could want nothing. `out_of_turn`: whether they do so now, or did since the look began.
    pub fn sample(&mut self, now_ns: u64, still_ns: u64, out_of_turn: impl Fn() -> bool) -> Observation {
        if let Ok(members) = procfs::tree_fast(&self.members, &self.root) {
            self.members = members;
        }
        self.find_launchers(now_ns);
        let stats: Vec<_> = self.members.iter().filter_map(|process| process.stat(&self.root).ok()).collect();
        let stopped = !stats.is_empty() && stats.iter().all(procfs::Stat::is_stopped);
        self.let_run.sample(now_ns, still_ns, stopped && !out_of_turn());
        let let_run_ns = self.let_run.total_ns();
        self.teams.sample(&self.members, now_ns, let_run_ns, &self.analyst, &self.root);
        self.scan_pages();
        // A runtime that we know tells its threads itself, once it runs any.
        let foreign = self.teams.has_foreign_runtime();
        let insiders = self.insiders();
        let (with_page, without_page): (Vec<Process>, Vec<Process>) =
            insiders.into_iter().partition(|process| !foreign && self.teams.has(*process));
        let silent: Vec<Process> =
            with_page.into_iter().filter(|process| self.teams.is_silent(*process)).collect();
        if without_page.is_empty() {
            self.busy = 0;
        }
        if without_page.is_empty() && silent.is_empty() {
            self.unproven = 0;
        }
        self.silent.retain(|process, _| silent.contains(process));
        let passed_ns = now_ns.saturating_sub(self.judged_ns);
        let ran_ns = let_run_ns - self.judged_run_ns;
        if ran_ns >= JUDGE_NS && (passed_ns >= SELDOM_NS || !without_page.is_empty() || !silent.is_empty()) {
            (self.judged_ns, self.judged_run_ns) = (now_ns, let_run_ns);
            if now_ns >= self.reasons_at_ns {
                self.reasons_at_ns = now_ns + SELDOM_NS;
                self.sample_protection();
            }
            self.judge(now_ns, ran_ns, &without_page, &silent);
        }
        if now_ns >= self.memory_at_ns {
            // Soon at first: a short program ends before anybody looks twice.
            let age_ns = now_ns.saturating_sub(self.started_ns);
            self.memory_at_ns = now_ns + age_ns.clamp(JUDGE_NS, SELDOM_NS);
            self.footprint.sample(&self.members, now_ns, &self.root);
        }
        let runtime = self.has_runtime();
        if self.passive.is_none() && (runtime || now_ns.saturating_sub(self.started_ns) > SETTLE_NS) {
            // Ranks poll for messages whatever their launcher's environment says of OpenMP.
            let passive = |process: &Process| waits_passively(process.pid, &self.root);
            let unsure = self.made_passive || !self.outsiders.is_empty();
            self.passive = Some(!unsure && self.members.first().is_some_and(passive));
        }
        let max_team = self.teams.max_team(now_ns).map(|threads| threads + self.busy);
        Observation {
            nature: self.nature(runtime, now_ns),
            finding: self.teams.finding().cloned(),
            team: self.team(runtime, now_ns),
            max_team,
            fewest: (self.teams.active(now_ns) + self.busy + self.silent()).max(1),
            regions: self.teams.regions(),
            cpu_time_ns: procfs::tree_cpu_time_ns(&self.members, &self.root),
            stopped,
            waits_passively: self.passive.unwrap_or(false),
            protected: self.protected.clone(),
            foreground: self.foreground,
            ended: stats.is_empty(),
        }
    }

    /// Threads that run as a team, or may: who is about to sleep keeps his CPU until he does.
    fn team(&self, runtime: bool, now_ns: u64) -> Option<u32> {
        let busy = self.most_busy.max(self.busy + self.unproven);
        match runtime {
            true if self.teams.has_foreign_runtime() => {
                self.teams.last_team(now_ns).map(|team| team.max(busy))
            }
            true => {
                let silent = self.most_silent.max(self.silent() + self.unproven);
                let silent = Some(silent).filter(|threads| *threads > 1);
                self.teams.last_team(now_ns).or(silent).map(|team| team + self.busy)
            }
            false => (busy > 0).then_some(busy),
        }
    }

    /// How it stands, for its rates; `own_cpus` and `beside` as there.
    pub fn moment(&self, own_cpus: u32, beside: Beside) -> Moment {
        match self.teams.regions_by_size() {
            Some(regions) => Moment { let_run_ns: self.let_run.total_ns(), own_cpus, beside, regions },
            None => Moment::default(),
        }
    }

    /// Memory of all its processes: now, and the most that was ever seen.
    pub fn memory(&self) -> Resident {
        self.footprint.memory()
    }

    /// Looks whether any process must not be stopped.
    fn sample_protection(&mut self) {
        let insiders = self.insiders();
        let reasons = insiders.iter().find_map(|process| protection::protected_own(*process, &self.root));
        self.protected = reasons.map(|reason| reason.sentence());
        let in_foreground =
            |process: &Process| protection::protected(*process, &self.root) == Some(Reason::ForegroundJob);
        // The shell waits for the launcher of a job, which nothing stops, not for its ranks.
        let launched = self.outsiders.contains(&self.process);
        self.foreground = self.attached && !launched && self.members.iter().any(in_foreground);
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
