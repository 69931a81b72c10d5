//! One program under the live actuator.

use std::ffi::OsStr;

use linux::affinity::{Chosen, Stated};
use linux::{Process, Root, affinity, procfs};
use plan::Speedup;
use protocol::AppRecord;
use topology::CpuSet;
use workload::{AppId, Demand, Malleability, WaitPolicy};

use crate::account::Ledger;
use crate::error::Result;
use crate::identity;
use crate::mechanism::{Harness, Keep};
use crate::rates::{self, Beside, Pair, Rates};
use crate::remember::Learned;
use crate::restore::Known;
use crate::watch::{Nature, Observation, Watch};

/// Where a program is to be, and with how many threads; 0: as many as it likes.
pub(super) type Wish = (CpuSet, u32);

/// One program under this scheduler.
pub struct Managed {
    pub record: AppRecord,
    pub(super) harness: Option<Harness>,
    pub(super) watch: Watch,
    pub observation: Option<Observation>,
    pub(super) ledger: Ledger,
    pub(super) rates: Rates,
    /// How its speed grows with its threads: as its rates say, or as they did last time.
    pub speedup: Option<Speedup>,
    pub(super) wish: Option<Wish>,
    /// Where its threads may run at the moment.
    pub(super) placed: CpuSet,
    /// Processes came that may not be placed yet.
    pub(super) newcomers: bool,
    /// What it is taken for until it shows what it is; `None`: what its user says.
    pub expected: Option<Demand>,
    /// Memory that it is expected to need at most.
    pub expected_bytes: Option<u64>,
    /// Its user, or somebody else who is not us, stopped it.
    pub user_stopped: bool,
    /// It takes what more important programs leave, outside of every plan.
    pub(super) yields: bool,
    /// It is to die: nothing stops it any more.
    pub(super) terminating: bool,
    /// Nothing makes it wait any more before its first instruction.
    pub(super) may_start: bool,
    /// Its `run` was told to execute it.
    pub(super) let_go: bool,
    pub(super) stopped_samples: u32,
    /// Most threads that ran when it was looked at.
    pub(super) widest: u32,
    /// More run now, and nobody plans with them yet.
    pub(super) outgrew: bool,
    /// Where it could not be placed the last time, and what the kernel answered; said once.
    pub(super) unplaced: Option<(CpuSet, Option<i32>)>,
    /// What its threads chose of CPUs for themselves.
    pub chosen: Chosen,
    /// The same as people were told last.
    pub chosen_reported: Chosen,
}

impl Managed {
    /// Whether the clock may stop it.
    pub(super) fn may_take_turns(&self) -> bool {
        let by_user = self.user_stopped || self.yields;
        self.record.started && !by_user && !self.terminating && self.harness.is_some()
    }

    pub fn yields(&self) -> bool {
        self.yields
    }

    /// Where it is to be now. Of one that its user has stopped no plan says anything: what an earlier one wished may
    /// be for what the program was taken for then.
    pub(super) fn wanted(&self) -> Option<Wish> {
        match () {
            () if self.user_stopped => None,
            () if self.yields => Some((self.record.original_cpus.clone(), 0)),
            () => self.wish.clone(),
        }
    }

    /// Whether its `run` is to be told to execute it.
    pub fn is_awaiting_start(&self) -> bool {
        self.may_start && !self.let_go
    }

    pub fn has_harness(&self) -> bool {
        self.harness.is_some()
    }

    /// What whoever sets it free may not find on record.
    pub fn known(&self) -> Known {
        let groups = self.harness.as_ref().map(|harness| harness.traces().groups.clone());
        let by_signal = self.harness.as_ref().filter(|harness| harness.stops_by_signal());
        let none_stopped = by_signal.is_some_and(|harness| !harness.has_stopped_any());
        Known { groups: groups.unwrap_or_default(), user_stopped: self.user_stopped, none_stopped }
    }

    /// Memory of all its processes, as last seen.
    pub fn resident_bytes(&self) -> u64 {
        self.watch.memory().now_bytes
    }

    /// What its runtimes were told about waiting, and why.
    pub fn waiting(&self) -> Option<String> {
        let terms = &self.record.terms;
        match (&terms.passive, terms.waiting) {
            (Some(why), _) => Some(format!("passively: {why}")),
            (None, WaitPolicy::Passive) => Some("passively, as asked".into()),
            (None, WaitPolicy::Active) => Some("actively, as asked".into()),
            (None, WaitPolicy::Auto | WaitPolicy::AsIs) => None,
        }
    }

    /// What it turned out to be.
    pub fn learned(&self) -> Learned {
        let width = self.observation.as_ref().and_then(|observation| observation.team);
        let rigid = match self.observation.as_ref().map(|observation| &observation.nature) {
            // One that its user declared so has shown nothing; one that was told how many threads to have,
            // not how many it has otherwise.
            _ if self.record.demand.malleability == Malleability::Rigid => None,
            Some(Nature::Rigid(_)) if self.record.terms.threads.is_some() => None,
            Some(Nature::Rigid(_)) => width.map(Some),
            Some(Nature::Resizable | Nature::StuckInRegion(_) | Nature::Serial) => Some(None),
            _ => None,
        };
        Learned { rigid, peak_bytes: self.watch.memory().peak_bytes, speedup: self.rates.speedup() }
    }

    /// What it is called where its runs are one program.
    pub fn program(&self) -> AppId {
        identity::name_of(OsStr::new(self.record.command.first().map_or("", String::as_str)))
    }

    /// What its neighbours cost it, as far as its rates tell.
    pub fn neighbours(&self) -> Vec<Pair> {
        self.rates.neighbour_costs()
    }

    /// Finds out what its threads chose of CPUs, and keeps those in its place that chose nothing.
    pub(super) fn sample_masks(&mut self, keep: impl Keep) -> Result<()> {
        let Some(harness) = &mut self.harness else { return Ok(()) };
        let insiders = self.watch.insiders();
        let mut stated = self.watch.stated_cpus();
        if self.record.terms.rebind {
            // What its launcher binds is undone, and no choice of the program's.
            let follows = || Stated { follows_place: true, ..Stated::default() };
            stated.extend(insiders.iter().map(|process| (*process, follows())));
        }
        if let Some(chosen) = harness.sample_masks(&insiders, stated, keep)? {
            self.chosen = chosen;
        }
        Ok(())
    }

    /// Takes its rate into account; `undisturbed`: where it is to be it shares no CPU with anybody.
    pub(super) fn learn_speed(&mut self, undisturbed: bool, beside: Beside) {
        let resizable =
            self.observation.as_ref().is_some_and(|observation| observation.nature == Nature::Resizable);
        let in_place = self.wish.as_ref().is_some_and(|(place, _)| *place == self.placed);
        let own_cpus = match undisturbed && resizable && in_place && !self.user_stopped && !self.yields {
            true => self.placed.len() as u32,
            false => 0,
        };
        self.rates.sample(self.watch.moment(own_cpus, beside));
        self.speedup = rates::settled(self.speedup.as_ref(), self.rates.speedup());
    }

    /// Where its threads may run at the moment.
    pub fn placed(&self) -> &CpuSet {
        &self.placed
    }

    /// Its processes as last seen.
    pub fn members(&self) -> &[Process] {
        self.watch.members()
    }

    /// Puts on record that its user has stopped it, where that is not there yet: on a full disk it may take a while.
    pub(super) fn record_stop(&mut self, keep: impl Keep) -> Result<()> {
        match &mut self.harness {
            Some(harness) if self.user_stopped && !harness.traces().user_stopped => {
                harness.record(keep, |traces| traces.user_stopped = true)
            }
            _ => Ok(()),
        }
    }

    /// Whether all of it stands, stopped by signals, now.
    pub(super) fn is_stopped(&self, root: &Root) -> bool {
        let mut stats = self.members().iter().filter_map(|process| process.stat(root).ok()).peekable();
        stats.peek().is_some() && stats.all(|stat| stat.is_stopped())
    }

    /// Whether its turns are taken by signals.
    pub fn stops_by_signal(&self) -> bool {
        self.harness.as_ref().is_some_and(Harness::stops_by_signal)
    }

    /// Whether it has shown what it is: a team, or for long enough that it has none.
    pub(super) fn is_known(&self) -> bool {
        self.observation.as_ref().is_some_and(|observation| observation.nature != Nature::Starting)
    }
}

/// Undoes what a launcher bound threads to; within its place a program's threads are free again. A rank
/// may be seen before its launcher binds it, and whoever was bound while its place was no wider than
/// that shows it only when the place grows: so this is looked for again and again. Returns whether
/// there was any, which may have to be placed anew.
pub fn rebind(processes: &[Process], place: &CpuSet, original: &CpuSet, root: &Root) -> bool {
    let mut any = false;
    for process in processes {
        for tid in procfs::threads(process.pid, root).unwrap_or_default() {
            let bound = affinity::get(tid).is_ok_and(|mask| mask != *place && mask.is_subset(place));
            if bound {
                // It ends, or stays bound: nothing is lost but what was asked for.
                any |= affinity::set(tid, original).is_ok();
            }
        }
    }
    any
}
