//! The live actuator: makes the machine what the plan says, and decides nothing.
//!
//! A change takes effect in an order that harms nobody. A program that is to become narrower is
//! first asked for a smaller team; its CPUs are taken only when that team runs. A program that is
//! to become wider first gets the CPUs. One whose runtime has not read its CPU mask yet keeps the
//! full mask: what a program sees at start is the widest that it may ever get.

mod look;
mod managed;
mod settle;
mod status;
mod steps;

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use linux::affinity::Chosen;
use linux::{Root, unmanaged};
use plan::{Plan, Speedup};
use protocol::{Account, AppRecord};
use topology::CpuSet;
use workload::{AppId, Demand};

use crate::account::Ledger;
use crate::before::Before;
use crate::clock::{Clock, ClockStats, Members};
use crate::error::Error;
use crate::follow::Follower;
use crate::home::Home;
use crate::identity;
use crate::mechanism::{Harness, Mechanisms};
use crate::rates::Rates;
use crate::registry::{Registry, Traces};
use crate::resizing::Analyst;
use crate::restore;
use crate::rotor::Rotation;
use crate::service::{Occupant, Scene};
use crate::watch::{Nature, Watch};

pub use look::ByOthers;
pub use managed::Managed;

pub struct Live {
    registry: Registry,
    root: Root,
    /// `None`: observe only, touch nothing.
    mechanisms: Option<Mechanisms>,
    clock: Clock,
    analyst: Analyst,
    follower: Follower,
    apps: BTreeMap<AppId, Managed>,
    plan: Plan,
    /// Whether somebody was on the way to another team or place when that was last looked at.
    settling: bool,
    /// The CPUs that programs and scheduler may use.
    allowed: CpuSet,
    before: Option<unmanaged::Sample>,
    unmanaged: unmanaged::MilliCpus,
    /// What went wrong since it was last asked for.
    failures: Vec<Failure>,
}

/// A mechanism that failed, or something that could not be read or written; the program runs on.
#[derive(Debug)]
pub struct Failure {
    pub app: Option<AppId>,
    pub error: Error,
}

/// Not everything of a plan could be carried out; the failures say what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotWhole;

impl Failure {
    fn of(app: &AppId, error: impl Into<Error>) -> Failure {
        Failure { app: Some(app.clone()), error: error.into() }
    }
}

impl Live {
    pub fn new(
        registry: Registry,
        mechanisms: Option<Mechanisms>,
        allowed: &CpuSet,
        analyst: Analyst,
        root: Root,
    ) -> io::Result<Live> {
        Ok(Live {
            follower: Follower::start(&root),
            registry,
            root,
            mechanisms,
            clock: Clock::start()?,
            analyst,
            apps: BTreeMap::new(),
            plan: Plan::default(),
            settling: false,
            allowed: allowed.clone(),
            before: None,
            unmanaged: unmanaged::MilliCpus::new(),
            failures: Vec::new(),
        })
    }

    pub fn mechanisms(&self) -> Option<&Mechanisms> {
        self.mechanisms.as_ref()
    }

    pub fn apps(&self) -> &BTreeMap<AppId, Managed> {
        &self.apps
    }

    /// The CPUs that there are to share out.
    pub fn allowed(&self) -> &CpuSet {
        &self.allowed
    }

    pub fn allow(&mut self, allowed: &CpuSet) {
        self.allowed = allowed.clone();
    }

    /// What unmanaged programs use of each CPU, as last sampled.
    pub fn unmanaged(&self) -> &unmanaged::MilliCpus {
        &self.unmanaged
    }

    /// For how long the program that was let go last has run; nothing while one is still held.
    pub fn youngest_ns(&self, now_ns: u64) -> u64 {
        let age = |app: &Managed| match app.record.started {
            true => now_ns.saturating_sub(app.watch.started_ns()),
            false => 0,
        };
        self.apps.values().map(age).min().unwrap_or(u64::MAX)
    }

    /// What stands here, for services; `usable` as in the snapshot.
    pub fn scene(&self, usable: &CpuSet) -> Scene {
        let occupant = |app: &Managed| Occupant {
            record: app.record.clone(),
            place: app.placed.clone(),
            team: app.sight.as_ref().and_then(|sight| sight.team),
        };
        let serial = |app: &Managed| app.sight.as_ref().is_some_and(|sight| sight.nature == Nature::Serial);
        let at_rest =
            |app: &Managed| app.record.started && (app.settled() || serial(app)) && !app.user_stopped;
        Scene {
            usable: usable.clone(),
            programs: self.apps.values().map(occupant).collect(),
            settled: !self.settling && self.plan.waiting.is_empty() && self.apps.values().all(at_rest),
        }
    }

    /// Whether a look at the programs would show what a plan has to know before CPUs are taken.
    pub fn awaits_look(&self) -> bool {
        self.apps.values().any(|app| app.outgrew)
    }

    pub fn clock_stats(&self) -> ClockStats {
        self.clock.stats()
    }

    pub fn take_failures(&mut self) -> Vec<Failure> {
        for (app, failure) in self.clock.stats().failures {
            self.failures.push(Failure::of(&app, Error::NotTurned(failure)));
        }
        std::mem::take(&mut self.failures)
    }

    /// Takes a program in; it runs on (or is held, or stands as its user has stopped it) as before.
    pub fn take(&mut self, record: AppRecord, now_ns: u64) {
        let watch = Watch::new(&record, now_ns, &self.analyst, &self.root);
        // A scheduler before us may have known that.
        let user_stopped = self.registry.traces(&record.id).user_stopped;
        let harness = self.harness_for(&record, user_stopped);
        let mut ledger = Ledger::new(record.id.clone(), record.arrived_ns);
        if record.started {
            ledger.started(now_ns);
        }
        let managed = Managed {
            placed: record.original_cpus.clone(),
            newcomers: false,
            harness,
            watch,
            sight: None,
            ledger,
            rates: Rates::default(),
            speedup: None,
            wish: None,
            expected: None,
            expected_bytes: None,
            user_stopped,
            yields: false,
            released: false,
            may_start: record.started,
            let_go: record.started,
            stopped_looks: 0,
            widest: 0,
            outgrew: false,
            unplaced: None,
            chosen: Chosen::Nothing,
            chosen_told: Chosen::Nothing,
            record,
        };
        self.apps.insert(managed.record.id.clone(), managed);
    }

    fn harness_for(&mut self, record: &AppRecord, user_stopped: bool) -> Option<Harness> {
        let mechanisms = self.mechanisms.as_ref()?;
        if !record.original_cpus.is_empty() && !record.original_cpus.intersects(&self.allowed) {
            let (its, shared_out) = (record.original_cpus.clone(), self.allowed.clone());
            self.failures.push(Failure::of(&record.id, Error::ElsewhereOnly { its, shared_out }));
            return None;
        }
        // What was undone before now is known to us.
        self.registry.was_set_free(&record.id);
        let process = identity::to_linux(record.process);
        let members = linux::procfs::tree(process.pid, &self.root).unwrap_or_else(|_| vec![process]);
        let keep = |traces: &_| self.registry.write_traces(&record.id, traces);
        let before = match record.terms.attached {
            true => Before::look(&members, &self.root).map(Some).map_err(Error::from),
            false => Ok(None),
        };
        let taken = before.and_then(|before| {
            let traces = Traces { user_stopped, before, ..Traces::default() };
            Harness::take(mechanisms, record.id.as_str(), &members, traces, &record.original_cpus, keep)
        });
        match taken {
            Ok(harness) => Some(harness),
            Err(error) => {
                self.failures.push(Failure::of(&record.id, Error::Unmanaged(Box::new(error))));
                None
            }
        }
    }

    /// Takes those programs in anew that somebody has set free meanwhile, and tells which, each with whether its user
    /// has stopped it unseen; the plan stays.
    pub fn take_back(&mut self, home: &Home, beat: impl Fn()) -> Vec<(AppId, bool)> {
        let ids: Vec<AppId> = self.apps.keys().filter(|id| self.registry.was_set_free(id)).cloned().collect();
        if ids.is_empty() {
            return Vec::new();
        }
        // Handles on groups that are gone are not to be turned any more.
        self.clock.set(Rotation::new(None), Members::new(), BTreeSet::new());
        let mut back = Vec::new();
        for id in ids {
            beat();
            let (record, known) = (self.apps[&id].record.clone(), self.apps[&id].user_stopped);
            // Its `run` may have said so to nobody.
            let user_stopped = known || self.registry.traces(&id).user_stopped;
            restore::set_free(&record, &self.root, home);
            let harness = self.harness_for(&record, user_stopped);
            let managed = self.apps.get_mut(&id).expect("none was removed");
            managed.harness = harness;
            managed.placed = record.original_cpus;
            // The processes that belong to it are told to the new harness at the next look.
            managed.sight = None;
            managed.user_stopped = user_stopped;
            if let Err(error) = managed.watch.set_target(0) {
                self.failures.push(Failure::of(&id, error));
            }
            back.push((id, user_stopped && !known));
        }
        self.settle();
        // What fails here is among the failures, and done again with the next plan.
        let _ = self.turn_wheels();
        back
    }

    pub fn expect(
        &mut self,
        app: &AppId,
        demand: Option<Demand>,
        bytes: Option<u64>,
        speedup: Option<Speedup>,
    ) {
        if let Some(managed) = self.apps.get_mut(app) {
            (managed.expected, managed.expected_bytes, managed.speedup) = (demand, bytes, speedup);
        }
    }

    pub fn told_of_choice(&mut self, app: &AppId) {
        if let Some(managed) = self.apps.get_mut(app) {
            managed.chosen_told = managed.chosen.clone();
        }
    }

    /// Its `run` may execute it; `passive`: why its waiting is made passive, if it is.
    pub fn may_start(&mut self, app: &AppId, passive: Option<String>) {
        if let Some(managed) = self.apps.get_mut(app) {
            managed.may_start = true;
            managed.watch.made_passive |= passive.is_some();
            managed.record.terms.passive = passive.or(managed.record.terms.passive.take());
        }
    }

    pub fn was_let_go(&mut self, app: &AppId) {
        if let Some(managed) = self.apps.get_mut(app) {
            managed.let_go = true;
        }
    }

    /// Its `run` has not executed it, and waits to be told so.
    pub fn is_held_again(&mut self, app: &AppId) {
        if let Some(managed) = self.apps.get_mut(app) {
            managed.let_go = false;
        }
    }

    /// Another `run` than the one on record looks after it.
    pub fn guarded_by(&mut self, app: &AppId, guardian: protocol::ProcessId) {
        let Some(managed) = self.apps.get_mut(app) else { return };
        managed.record.guardian = guardian;
        if let Err(error) = self.registry.write(&managed.record) {
            self.failures.push(Failure::of(app, error));
        }
    }

    /// It was let go and executed.
    pub fn started(&mut self, app: &AppId, now_ns: u64) {
        let Some(managed) = self.apps.get_mut(app) else { return };
        if !managed.record.started {
            managed.record.started = true;
            managed.ledger.started(now_ns);
            managed.watch.restart(now_ns);
            if let Err(error) = self.registry.write(&managed.record) {
                self.failures.push(Failure::of(app, error));
            }
        }
        // As above.
        let _ = self.turn_wheels();
    }

    /// Its user stopped or continued it: it leaves the rotation, or joins it again.
    pub fn user_stopped(&mut self, app: &AppId, stopped: bool) {
        let Some(managed) = self.apps.get_mut(app) else { return };
        managed.user_stopped = stopped;
        // Continued, or alive a while after a terminating signal: it is one of the programs again.
        managed.released &= stopped;
        managed.stopped_looks = 0;
        if stopped {
            self.clock.leave(app);
        } else {
            self.registry.note_stopped(app, false);
        }
        if let Some(harness) = &mut managed.harness {
            harness.traces_mut().user_stopped = stopped;
            if let Err(error) = self.registry.write_traces(app, harness.traces()) {
                self.failures.push(Failure::of(app, error));
            }
        }
    }

    /// It takes what others leave from now on, or has its part again; whether that is new.
    pub fn set_yields(&mut self, app: &AppId, yields: bool) -> bool {
        let Some(managed) = self.apps.get_mut(app).filter(|managed| managed.yields != yields) else {
            return false;
        };
        managed.yields = yields;
        if yields {
            self.clock.release(app);
        }
        true
    }

    /// A signal that ends it is on its way.
    pub fn release(&mut self, app: &AppId) {
        if let Some(managed) = self.apps.get_mut(app) {
            managed.released = true;
            self.clock.release(app);
        }
    }

    /// It has ended, or is given back: everything of it is undone.
    pub fn forget(&mut self, app: &AppId, now_ns: u64) -> Option<Account> {
        self.clock.release(app);
        self.follower.forget(app);
        let managed = self.apps.remove(app)?;
        Some(managed.ledger.read(now_ns))
    }

    pub fn account(&self, app: &AppId, now_ns: u64) -> Option<Account> {
        Some(self.apps.get(app)?.ledger.read(now_ns))
    }

    /// What unmanaged programs use of each CPU, smoothed; call it a few times a second.
    pub fn sample_unmanaged(&mut self) {
        const SMOOTHING_NS: u64 = 500_000_000;
        let managed = self.apps.values().enumerate();
        let managed = managed.map(|(at, app)| (at as u64, app.watch.members(), &app.placed));
        // For the scheduler itself no CPU is left free.
        let own = [identity::to_linux(identity::own())];
        let own = (u64::MAX, &own[..], &self.allowed);
        match unmanaged::sample(managed.chain([own]), &self.root) {
            Ok(sample) => {
                if let Some(before) = &self.before {
                    let now = unmanaged::between(before, &sample);
                    let passed = sample.at_ns.saturating_sub(before.at_ns);
                    self.unmanaged = unmanaged::smooth(&self.unmanaged, &now, passed, SMOOTHING_NS);
                }
                self.before = Some(sample);
            }
            Err(error) => self.failures.push(Failure { app: None, error: error.into() }),
        }
    }

    /// A sample counts programs by position; one that came or went makes the old one useless.
    pub fn members_changed(&mut self) {
        self.before = None;
    }
}
