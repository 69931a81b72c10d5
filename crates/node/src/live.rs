//! The live actuator: makes the machine what the plan says, and decides nothing.
//!
//! A change takes effect in an order that harms nobody. A program that is to become narrower is
//! first asked for a smaller team; its CPUs are taken only when that team runs. A program that is
//! to become wider first gets the CPUs. One whose runtime has not read its CPU mask yet keeps the
//! full mask: what a program sees at start is the widest that it may ever get.

mod intake;
mod managed;
mod sample;
mod settle;
mod status;
mod steps;

use std::collections::BTreeMap;
use std::io;

use linux::{Root, unmanaged};
use plan::{Plan, Speedup};
use protocol::Account;
use topology::CpuSet;
use workload::{AppId, Demand};

use crate::clock::{Clock, ClockStats};
use crate::error::Error;
use crate::follow::Follower;
use crate::identity;
use crate::mechanism::Mechanisms;
use crate::registry::Registry;
use crate::resizing::Analyst;
use crate::restore::Known;
use crate::service::{Occupant, Scene};

pub use managed::Managed;
pub use sample::ExternalChange;

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
            team: app.observation.as_ref().and_then(|observation| observation.team),
        };
        let at_rest = |app: &Managed| app.record.started && app.is_known() && !app.user_stopped;
        Scene {
            usable: usable.clone(),
            programs: self.apps.values().map(occupant).collect(),
            settled: !self.settling && self.plan.waiting.is_empty() && self.apps.values().all(at_rest),
        }
    }

    /// Whether a look at the programs would show what a plan has to know before CPUs are taken.
    pub fn needs_sample(&self) -> bool {
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

    pub fn set_expected(
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

    pub fn choice_was_reported(&mut self, app: &AppId) {
        if let Some(managed) = self.apps.get_mut(app) {
            managed.chosen_reported = managed.chosen.clone();
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

    pub fn mark_let_go(&mut self, app: &AppId) {
        if let Some(managed) = self.apps.get_mut(app) {
            managed.let_go = true;
        }
    }

    /// Its `run` has not executed it, and waits to be told so.
    pub fn mark_held(&mut self, app: &AppId) {
        if let Some(managed) = self.apps.get_mut(app) {
            managed.let_go = false;
        }
    }

    /// Another `run` than the one on record looks after it.
    pub fn set_guardian(&mut self, app: &AppId, guardian: protocol::ProcessId) {
        let Some(managed) = self.apps.get_mut(app) else { return };
        managed.record.guardian = guardian;
        if let Err(error) = self.registry.write(&managed.record) {
            self.failures.push(Failure::of(app, error));
        }
    }

    /// It was let go and executed.
    pub fn mark_started(&mut self, app: &AppId, now_ns: u64) {
        let Some(managed) = self.apps.get_mut(app) else { return };
        if !managed.record.started {
            managed.record.started = true;
            managed.ledger.mark_started(now_ns);
            managed.watch.restart(now_ns);
            if let Err(error) = self.registry.write(&managed.record) {
                self.failures.push(Failure::of(app, error));
            }
        }
        // As above.
        let _ = self.turn_wheels();
    }

    /// Its user stopped it: it leaves the rotation.
    pub fn mark_user_stopped(&mut self, app: &AppId) {
        let Some(managed) = self.apps.get_mut(app) else { return };
        managed.user_stopped = true;
        managed.stopped_samples = 0;
        self.clock.release(app);
        if let Err(error) = managed.record_stop(|traces| self.registry.write_traces(app, traces)) {
            self.failures.push(Failure::of(app, error));
        }
    }

    /// Its user continued it: it joins the rotation again; whether it does. Not where that cannot be put on record:
    /// what the clock stopped then nobody would continue after us.
    pub fn mark_user_continued(&mut self, app: &AppId) -> bool {
        let Some(managed) = self.apps.get_mut(app) else { return false };
        if let Some(harness) = &mut managed.harness {
            let keep = |traces: &_| self.registry.write_traces(app, traces);
            if let Err(error) = harness.record(keep, |traces| traces.user_stopped = false) {
                self.failures.push(Failure::of(app, error));
                return false;
            }
        }
        managed.user_stopped = false;
        // Alive a while after a terminating signal: it is one of the programs again.
        managed.terminating = false;
        managed.stopped_samples = 0;
        true
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
    pub fn mark_terminating(&mut self, app: &AppId) {
        if let Some(managed) = self.apps.get_mut(app) {
            managed.terminating = true;
            self.clock.release(app);
        }
    }

    /// Puts on record whom somebody else has stopped, of those whom the clock keeps from running no more: who sets
    /// them free is to leave them so.
    pub fn note_stops_by_others(&mut self) {
        let ids: Vec<AppId> = self.apps.keys().cloned().collect();
        ids.iter().for_each(|app| self.note_stop_by_others(app));
    }

    fn note_stop_by_others(&mut self, app: &AppId) {
        let Some(managed) = self.apps.get(app) else { return };
        if !managed.user_stopped && managed.stops_by_signal() && managed.is_stopped(&self.root) {
            self.mark_user_stopped(app);
        }
    }

    /// It has ended, or is released, and is to be set free; what is known of it.
    pub fn forget(&mut self, app: &AppId) -> Known {
        self.clock.release(app);
        self.note_stop_by_others(app);
        self.follower.forget(app);
        self.apps.remove(app).map(|managed| managed.known()).unwrap_or_default()
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
                    let now = unmanaged::usage_between(before, &sample);
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
