//! Watches one program from outside: who belongs to it, how many of its threads run, whether it
//! can be resized, how far it has come. Reads pages and /proc; changes nothing but the team size
//! that it is asked to wish for.

mod footprint;
mod patience;
mod teams;

use std::collections::{BTreeMap, BTreeSet};

use linux::affinity::Said;
use linux::binary::Binary;
use linux::memory::Resident;
use linux::page::{PAGES_VARIABLE, PageDir, PageName};
use linux::protection::{self, Reason};
use linux::{Process, Root, procfs};
use protocol::AppRecord;
use regions::Finding;
use workload::Malleability;

use crate::identity;
use crate::rates::{Beside, Moment};
use crate::resizing::Analyst;
use footprint::Footprint;
use patience::PATIENCE_NS;
use teams::Teams;

/// A thread that wants the CPU for more than this share of an interval counts as running.
const BUSY_SHARE: f64 = 0.3;
/// A thread beside another of its process counts once it has wanted the CPU for so long in all: libraries'
/// threads spin when they are made and then sleep, those of OpenBLAS for 2^28 cycles.
const SPUN_NS: u64 = 150_000_000;
/// Threads looked at one by one; of a program with more, all are taken to run.
const MOST_THREADS: usize = 256;
/// How long a program without an OpenMP runtime is given to show one before it counts as having
/// none. Loading a runtime later is noticed too, and changes the verdict.
const SETTLE_NS: u64 = 250_000_000;
/// Shortest time that a program must have been let run for its threads' share of CPU to be judged.
const JUDGE_NS: u64 = 90_000_000;
/// How often a program is looked at for what changes seldom.
const SELDOM_NS: u64 = 1_000_000_000;

/// What a program is, as far as it has shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Nature {
    /// Nothing known yet.
    Starting,
    /// An OpenMP program that follows the team size it is asked for.
    Resizable,
    /// A resizable one that has stayed in one parallel region for so long, with more threads than it was
    /// asked to have, that it counts as rigid until it enters another; the reason, for people.
    Stays(String),
    /// It runs the threads that it runs; the reason, for people.
    Rigid(String),
    /// No parallel runtime that we know, and no more than one busy thread so far.
    Serial,
}

#[derive(Clone, Debug)]
pub struct Sight {
    pub nature: Nature,
    /// What was found about whether its teams may be resized.
    pub finding: Option<Finding>,
    /// Threads that run together now, or did last; `None` before there were any.
    pub team: Option<u32>,
    /// Greatest number of threads that it can use: what its runtimes told it.
    pub told: Option<u32>,
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
    /// Processes that were looked at for being launchers, while they may still execute another program.
    examined: BTreeMap<Process, u64>,
    /// Wish in force, for pages that appear later.
    target: u32,
    declared_rigid: bool,
    /// It was running when it came: its directory of pages may serve other programs, too, and its
    /// place on a terminal is somebody else's doing.
    attached: bool,
    /// How long it was let run so far, by the looks; and when that was, and how long its turns had kept
    /// it from running then.
    let_run_ns: u64,
    looked_ns: u64,
    looked_still_ns: u64,
    /// Run and wait time of each thread at the last judgement.
    wanted: BTreeMap<(u32, u32), u64>,
    judged_ns: u64,
    /// How long it had been kept from running then.
    judged_still_ns: u64,
    /// Busy threads of processes without a team that we see: at the last judgement, and at most.
    /// Busy threads of processes without a runtime that we know …
    busy: u32,
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
        Watch {
            process,
            started_ns: now_ns,
            members: procfs::tree_fast(&[process], root).unwrap_or_else(|_| vec![process]),
            pages: PageDir::open_of(&record.pages, record.uid),
            teams: Teams::default(),
            outsiders: BTreeSet::new(),
            examined: BTreeMap::new(),
            target: 0,
            declared_rigid: record.demand.malleability == Malleability::Rigid,
            made_passive: record.terms.passive.is_some(),
            attached: record.terms.attached,
            let_run_ns: 0,
            looked_ns: now_ns,
            looked_still_ns: 0,
            wanted: BTreeMap::new(),
            judged_ns: now_ns,
            judged_still_ns: 0,
            busy: 0,
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
        self.judged_ns = now_ns;
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
        // Who came running may have no pages.
        if self.target != threads && !self.pages.path().as_os_str().is_empty() {
            self.target = threads;
            if !self.attached {
                self.pages.set_default(threads, self.declared_rigid)?;
            }
        }
        self.spread();
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

    /// Threads that its teams have together when they obey.
    pub fn told_to_have(&self) -> u32 {
        self.teams.told_to_have()
    }

    /// Whether a runtime read its CPU mask already, so that narrowing it now loses nothing later.
    pub fn has_runtime(&self) -> bool {
        self.teams.has_runtime()
    }

    /// Takes up pages that appeared.
    pub fn look_for_pages(&mut self) {
        let only = self.attached.then_some(self.members.as_slice());
        self.teams.look_for_pages(&self.pages, only, &self.members, &self.root);
        self.spread();
    }

    /// What its processes say of their threads' CPUs.
    pub fn say_of_cpus(&self) -> BTreeMap<Process, Said> {
        self.teams.say_of_cpus()
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
    fn examine(&mut self, now_ns: u64) {
        self.examined.retain(|process, _| self.members.contains(process));
        for &process in &self.members {
            let due_ns = self.examined.get(&process).copied().unwrap_or(0);
            if now_ns < due_ns {
                continue;
            }
            let first = due_ns == 0;
            let pause_ns = if first || self.outsiders.contains(&process) { 0 } else { SELDOM_NS };
            self.examined.insert(process, (now_ns + pause_ns).max(1));
            match protection::is_launcher(process, &self.root) {
                true => self.outsiders.insert(process),
                false => self.outsiders.remove(&process),
            };
        }
        self.outsiders.retain(|process| self.members.contains(process));
    }

    /// The whole picture. `still_ns` is how long its turns have kept it from running so far: of that
    /// time it could want nothing.
    pub fn look(&mut self, now_ns: u64, still_ns: u64) -> Sight {
        if let Ok(members) = procfs::tree_fast(&self.members, &self.root) {
            self.members = members;
        }
        self.examine(now_ns);
        let stats: Vec<_> = self.members.iter().filter_map(|process| process.stat(&self.root).ok()).collect();
        let stopped = !stats.is_empty() && stats.iter().all(procfs::Stat::is_stopped);
        let passed_ns = now_ns.saturating_sub(self.looked_ns);
        let still_now_ns = still_ns.saturating_sub(self.looked_still_ns);
        (self.looked_ns, self.looked_still_ns) = (now_ns, still_ns);
        if !stopped {
            self.let_run_ns += passed_ns.saturating_sub(still_now_ns);
        }
        self.teams.look(&self.members, now_ns, self.let_run_ns, &self.analyst, &self.root);
        self.look_for_pages();
        // A runtime that we know tells its threads itself, once it runs any.
        let foreign = self.teams.has_foreign_runtime();
        let insiders = self.insiders();
        let (seen, unseen): (Vec<Process>, Vec<Process>) =
            insiders.into_iter().partition(|process| !foreign && self.teams.has(*process));
        let silent: Vec<Process> =
            seen.into_iter().filter(|process| self.teams.is_silent(*process)).collect();
        if unseen.is_empty() {
            self.busy = 0;
        }
        self.silent.retain(|process, _| silent.contains(process));
        let passed_ns = now_ns.saturating_sub(self.judged_ns);
        let ran_ns = passed_ns.saturating_sub(still_ns.saturating_sub(self.judged_still_ns));
        if ran_ns >= JUDGE_NS && (passed_ns >= SELDOM_NS || !unseen.is_empty() || !silent.is_empty()) {
            (self.judged_ns, self.judged_still_ns) = (now_ns, still_ns);
            if now_ns >= self.reasons_at_ns {
                self.reasons_at_ns = now_ns + SELDOM_NS;
                self.look_for_reasons();
            }
            self.judge(now_ns, ran_ns, &unseen, &silent);
        }
        if now_ns >= self.memory_at_ns {
            // Soon at first: a short program ends before anybody looks twice.
            let age_ns = now_ns.saturating_sub(self.started_ns);
            self.memory_at_ns = now_ns + age_ns.clamp(JUDGE_NS, SELDOM_NS);
            self.footprint.look(&self.members, now_ns, &self.root);
        }
        let runtime = self.has_runtime();
        if self.passive.is_none() && (runtime || now_ns.saturating_sub(self.started_ns) > SETTLE_NS) {
            // Ranks poll for messages whatever their launcher's environment says of OpenMP.
            let passive = |process: &Process| waits_passively(process.pid, &self.root);
            let unsure = self.made_passive || !self.outsiders.is_empty();
            self.passive = Some(!unsure && self.members.first().is_some_and(passive));
        }
        let told = self.teams.told(now_ns).map(|told| told + self.busy);
        Sight {
            nature: self.nature(runtime, now_ns),
            finding: self.teams.finding().cloned(),
            team: match runtime {
                true if self.teams.has_foreign_runtime() => {
                    self.teams.last_team(now_ns).map(|team| team.max(self.most_busy))
                }
                true => {
                    let silent = Some(self.most_silent).filter(|threads| *threads > 1);
                    self.teams.last_team(now_ns).or(silent).map(|team| team + self.busy)
                }
                false => (self.most_busy > 0).then_some(self.most_busy),
            },
            told,
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

    /// One whose processes come and go, or that loads more while it runs, stays what it was while that is
    /// looked at: those have all their threads until then.
    fn nature(&mut self, runtime: bool, now_ns: u64) -> Nature {
        let nature = self.nature_now(runtime, now_ns);
        self.was_resizable = nature == Nature::Resizable;
        nature
    }

    fn nature_now(&self, runtime: bool, now_ns: u64) -> Nature {
        if self.declared_rigid {
            return Nature::Rigid("it was declared rigid".into());
        }
        if runtime {
            if self.teams.is_uncertain() {
                return Nature::Rigid(
                    "which of its processes a page of the preload library belongs to cannot be told (namespaces)"
                        .into(),
                );
            }
            if let Some(reason) = self.teams.rigid() {
                return Nature::Rigid(reason.sentence().into());
            }
            // Until one of them enters a region.
            if self.most_silent > 1 && self.teams.regions() == 0 {
                return Nature::Rigid(format!(
                    "it ran {} threads, none of them in parallel regions of its OpenMP runtime",
                    self.most_silent
                ));
            }
            if let Some(Finding::Rigid(obstacle)) = self.teams.finding() {
                return Nature::Rigid(obstacle.sentence());
            }
            if self.teams.stays() {
                return Nature::Stays(format!(
                    "it has stayed in one parallel region for {} s after it was asked for a narrower team",
                    PATIENCE_NS / 1_000_000_000
                ));
            }
            if self.teams.may_resize() || self.was_resizable {
                return Nature::Resizable;
            }
            // Its code is being looked at.
            if self.teams.regions() > 0 {
                return Nature::Starting;
            }
        }
        match self.most_busy {
            0 | 1 if now_ns.saturating_sub(self.started_ns) < SETTLE_NS => Nature::Starting,
            0 | 1 => Nature::Serial,
            threads => {
                let why =
                    self.unheard.as_deref().unwrap_or("none of them from an OpenMP runtime that we know");
                Nature::Rigid(format!("it ran {threads} threads, {why}"))
            }
        }
    }

    /// How it stands, for its rates; `own_cpus` and `beside` as there.
    pub fn moment(&self, own_cpus: u32, beside: Beside) -> Moment {
        match self.teams.regions_by_size() {
            Some(regions) => Moment { let_run_ns: self.let_run_ns, own_cpus, beside, regions },
            None => Moment::default(),
        }
    }

    /// Memory of all its processes: now, and the most that was ever seen.
    pub fn memory(&self) -> Resident {
        self.footprint.memory()
    }

    /// Looks whether any process must not be stopped.
    fn look_for_reasons(&mut self) {
        let insiders = self.insiders();
        let reasons = insiders.iter().find_map(|process| protection::protected_own(*process, &self.root));
        self.protected = reasons.map(|reason| reason.sentence());
        let in_foreground =
            |process: &Process| protection::protected(*process, &self.root) == Some(Reason::ForegroundJob);
        // The shell waits for the launcher of a job, which nothing stops, not for its ranks.
        let launched = self.outsiders.contains(&self.process);
        self.foreground = self.attached && !launched && self.members.iter().any(in_foreground);
    }

    /// Counts the threads that want a CPU.
    fn judge(&mut self, now_ns: u64, ran_ns: u64, unseen: &[Process], silent: &[Process]) {
        let mut wanted = BTreeMap::new();
        let mut busiest = (0, None);
        let least_ns = ran_ns as f64 * BUSY_SHARE;
        self.busy = 0;
        for process in unseen {
            let busy = self.busy_threads(*process, least_ns, &mut wanted);
            self.busy += busy;
            busiest = busiest.max((busy, Some(process.pid)));
        }
        for process in silent {
            let busy = self.busy_threads(*process, least_ns, &mut wanted);
            let most = self.silent.entry(*process).or_default();
            *most = busy.max(*most);
        }
        self.most_silent = self.most_silent.max(self.silent());
        self.wanted = wanted;
        self.most_busy = self.most_busy.max(self.busy);
        if let (2.., Some(pid)) = busiest
            && self.unheard.is_none()
            && now_ns >= self.unheard_at_ns
        {
            self.unheard_at_ns = now_ns + SELDOM_NS;
            self.unheard = why_unheard(pid, &self.root);
        }
    }

    fn silent(&self) -> u32 {
        self.silent.values().sum()
    }

    /// Its threads that wanted a CPU for at least so long since they were last looked at; `wanted` takes up
    /// what they wanted so far.
    fn busy_threads(&self, process: Process, least_ns: f64, wanted: &mut BTreeMap<(u32, u32), u64>) -> u32 {
        let Ok(threads) = procfs::threads(process.pid, &self.root) else { return 0 };
        if threads.len() > MOST_THREADS {
            return threads.len() as u32;
        }
        let (mut busy, mut spun) = (0, 0);
        for tid in threads {
            let Ok(time) = procfs::task_runtime_ns(process.pid, tid, &self.root) else { continue };
            let total = time.run_ns + time.wait_ns;
            let before = self.wanted.get(&(process.pid, tid)).copied();
            if total.saturating_sub(before.unwrap_or(total)) as f64 > least_ns {
                busy += 1;
                spun += u32::from(total >= SPUN_NS);
            }
            wanted.insert((process.pid, tid), total);
        }
        spun.max(busy.min(1))
    }
}

/// Why a process that runs has made no page, if that can be seen from outside.
fn why_unheard(pid: u32, root: &Root) -> Option<String> {
    let file = procfs::exe(pid, root).ok().and_then(|path| Binary::read(&path).ok());
    if let Some(obstacle) = file.and_then(|file| file.obstacle) {
        return Some(format!("without the preload library: {obstacle}"));
    }
    let variables = procfs::environ(pid, root).ok()?;
    let has = |name: &str| variables.iter().any(|(variable, _)| variable == name);
    let why = match () {
        () if !has(PAGES_VARIABLE) => "its environment was cleared on the way",
        () if !has("LD_PRELOAD") => "it was given none, or took it out of LD_PRELOAD",
        () => return None,
    };
    Some(format!("without the preload library: {why}"))
}

/// Whether a program's environment makes its idle threads sleep.
fn waits_passively(pid: u32, root: &Root) -> bool {
    let Ok(variables) = procfs::environ(pid, root) else { return false };
    let is = |name: &str, value: &str| {
        variables.iter().any(|(n, v)| n == name && v.to_string_lossy().trim().eq_ignore_ascii_case(value))
    };
    is("OMP_WAIT_POLICY", "passive") || is("GOMP_SPINCOUNT", "0")
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};
    use std::time::{Duration, Instant};

    use super::*;

    fn becomes(command: &mut Command, expected: impl Fn(Option<String>) -> bool) -> bool {
        let mut child: Child = command.spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        // While it executes, its file and environment are seen half changed.
        let mut as_expected = false;
        while !as_expected && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
            let executed = procfs::exe(child.id(), &Root::live()).is_ok_and(|exe| exe.ends_with("sleep"));
            as_expected = executed && expected(why_unheard(child.id(), &Root::live()));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        as_expected
    }

    #[test]
    fn a_program_that_the_library_did_not_reach_is_told_from_outside() {
        let mut whole = Command::new("sleep");
        whole.arg("100").env("LD_PRELOAD", "").env(PAGES_VARIABLE, "/nowhere");
        assert!(becomes(&mut whole, |why| why.is_none()));
        let mut without = Command::new("sleep");
        without.arg("100").env_remove("LD_PRELOAD").env(PAGES_VARIABLE, "/nowhere");
        assert!(becomes(&mut without, |why| why.is_some_and(|why| why.contains("LD_PRELOAD"))));
        let mut cleared = Command::new("env");
        cleared.args(["-i", "sleep", "100"]).env("LD_PRELOAD", "").env(PAGES_VARIABLE, "/nowhere");
        assert!(becomes(&mut cleared, |why| why.is_some_and(|why| why.contains("cleared"))));
    }
}
