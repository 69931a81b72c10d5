//! The live actuator: makes the machine what the plan says, and decides nothing.
//!
//! A change takes effect in an order that harms nobody. A program that is to become narrower is
//! first asked for a smaller team; its CPUs are taken only when that team runs. A program that is
//! to become wider first gets the CPUs. One whose runtime has not read its CPU mask yet keeps the
//! full mask: what a program sees at start is the widest that it may ever get.

mod managed;
mod settle;

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use linux::affinity::Chosen;
use linux::{Root, unmanaged};
use plan::{Plan, Speedup};
use protocol::{Account, AppRecord, AppStatus, MemoryMoves};
use topology::CpuSet;
use workload::{AppId, Demand};

use crate::account::{Ledger, Standing};
use crate::before::Before;
use crate::clock::{Clock, ClockStats, Members};
use crate::follow::Follower;
use crate::home::Home;
use crate::identity;
use crate::mechanism::{Harness, Mechanisms};
use crate::rates::{self, Beside, Rates};
use crate::registry::Registry;
use crate::resizing::Analyst;
use crate::restore;
use crate::rotor::Rotation;
use crate::service::{Occupant, Scene};
use crate::watch::{Nature, Watch};

pub use managed::Managed;
use managed::rebind;

/// Why a program is not resized whose threads keep CPUs of their own.
const EACH_BOUND: &str = "its threads are bound to CPUs one by one, by the program or by who started it";

/// Looks in a row that must find a program stopped before somebody else counts as having done it.
const STOPPED_LOOKS: u32 = 2;

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
    warnings: Vec<String>,
}

/// What somebody other than the scheduler did to a program.
pub enum ByOthers {
    Stopped(AppId),
    Continued(AppId),
    Ended(AppId),
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
            warnings: Vec::new(),
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

    pub fn clock_stats(&self) -> ClockStats {
        self.clock.stats()
    }

    pub fn take_warnings(&mut self) -> Vec<String> {
        for (app, failure) in self.clock.stats().failures {
            self.warnings.push(format!("{app} could not be stopped or let go: {failure}"));
        }
        std::mem::take(&mut self.warnings)
    }

    /// Takes a program in; it runs on (or is held) as before.
    pub fn take(&mut self, record: AppRecord, now_ns: u64) {
        let watch = Watch::new(&record, now_ns, &self.analyst, &self.root);
        let harness = self.harness_for(&record);
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
            user_stopped: false,
            yields: false,
            released: false,
            let_go: record.started,
            stopped_looks: 0,
            unplaced: None,
            chosen: Chosen::Nothing,
            chosen_told: Chosen::Nothing,
            record,
        };
        self.apps.insert(managed.record.id.clone(), managed);
    }

    fn harness_for(&mut self, record: &AppRecord) -> Option<Harness> {
        let mechanisms = self.mechanisms.as_ref()?;
        if !record.original_cpus.is_empty() && !record.original_cpus.intersects(&self.allowed) {
            self.warnings.push(format!(
                "{} runs unmanaged: it may use the CPUs {} only, and {} are shared out here",
                record.id, record.original_cpus, self.allowed
            ));
            return None;
        }
        // What was undone before now is known to us.
        self.registry.was_set_free(&record.id);
        let process = identity::to_linux(record.process);
        let members = linux::procfs::tree(process.pid, &self.root).unwrap_or_else(|_| vec![process]);
        let keep = |traces: &_| self.registry.write_traces(&record.id, traces).map_err(io::Error::other);
        let before = match record.terms.attached {
            true => Before::look(&members, &self.root).map(Some).map_err(io::Error::other),
            false => Ok(None),
        };
        let taken = before.and_then(|before| {
            Harness::take(mechanisms, record.id.as_str(), &members, before, &record.original_cpus, keep)
        });
        match taken {
            Ok(harness) => Some(harness),
            Err(error) => {
                self.warnings.push(format!("{} runs unmanaged: {error}", record.id));
                None
            }
        }
    }

    /// Takes those programs in anew that somebody has set free meanwhile, and tells which; the plan
    /// stays.
    pub fn take_back(&mut self, home: &Home) -> Vec<AppId> {
        let ids: Vec<AppId> = self.apps.keys().filter(|id| self.registry.was_set_free(id)).cloned().collect();
        if ids.is_empty() {
            return ids;
        }
        // Handles on groups that are gone are not to be turned any more.
        self.clock.set(Rotation::new(None), Members::new(), BTreeSet::new());
        for id in ids.clone() {
            let record = self.apps[&id].record.clone();
            restore::set_free(&record, &self.root, home);
            let harness = self.harness_for(&record);
            let managed = self.apps.get_mut(&id).expect("none was removed");
            managed.harness = harness;
            managed.placed = record.original_cpus;
            // The processes that belong to it are told to the new harness at the next look.
            managed.sight = None;
            if let Err(error) = managed.watch.set_target(0) {
                self.warnings.push(format!("{id}: {error}"));
            }
            if managed.user_stopped {
                self.user_stopped(&id, true);
            }
        }
        self.settle();
        self.turn_wheels();
        ids
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

    /// `passive`: why its waiting was made passive, if it was.
    pub fn was_let_go(&mut self, app: &AppId, passive: Option<String>) {
        if let Some(managed) = self.apps.get_mut(app) {
            managed.let_go = true;
            managed.watch.made_passive |= passive.is_some();
            managed.record.terms.passive = passive.or(managed.record.terms.passive.take());
        }
    }

    /// Another `run` than the one on record looks after it.
    pub fn guarded_by(&mut self, app: &AppId, guardian: protocol::ProcessId) {
        let Some(managed) = self.apps.get_mut(app) else { return };
        managed.record.guardian = guardian;
        if let Err(error) = self.registry.write(&managed.record) {
            self.warnings.push(error.to_string());
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
                self.warnings.push(error.to_string());
            }
        }
        self.turn_wheels();
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
        }
        if let Some(harness) = &mut managed.harness {
            harness.traces_mut().user_stopped = stopped;
            if let Err(error) = self.registry.write_traces(app, harness.traces()) {
                self.warnings.push(error.to_string());
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

    /// Looks at every program; returns what others did to them meanwhile.
    pub fn look(&mut self, now_ns: u64) -> Vec<ByOthers> {
        let mut news = Vec::new();
        let stats = self.clock.stats();
        let running: BTreeSet<AppId> =
            self.apps.values().filter(|m| m.record.started).map(|m| m.record.id.clone()).collect();
        let sharing = rates::sharing(self.plan.tree.as_ref());
        let company = rates::company(self.plan.tree.as_ref());
        let names: BTreeMap<AppId, AppId> =
            self.apps.iter().map(|(app, managed)| (app.clone(), managed.program())).collect();
        for (app, managed) in &mut self.apps {
            if !managed.record.started {
                continue;
            }
            let known = (managed.watch.members().to_vec(), managed.watch.outsiders().clone());
            let mut sight = managed.watch.look(now_ns, stats.still_ns.get(app).copied().unwrap_or(0));
            let (members, outsiders) = (managed.watch.members(), managed.watch.outsiders());
            if let Some(harness) = &mut managed.harness
                && (known.0 != members || known.1 != *outsiders || managed.sight.is_none())
                && let Err(error) =
                    harness.update(&managed.watch.insiders(), outsiders, &managed.record.original_cpus)
            {
                self.warnings.push(format!("{app}: {error}"));
            }
            if let Some(harness) = &managed.harness {
                harness.free_late(&managed.watch.insiders());
            }
            let keep = |traces: &_| self.registry.write_traces(app, traces).map_err(io::Error::other);
            if let Err(error) = managed.look_at_masks(keep) {
                self.warnings.push(format!("{app}: {error}"));
            }
            if managed.chosen.is_each() && matches!(sight.nature, Nature::Resizable | Nature::Stays(_)) {
                sight.nature = Nature::Rigid(EACH_BOUND.into());
            }
            if managed.record.terms.rebind {
                let original = &managed.record.original_cpus;
                managed.newcomers |= rebind(&managed.watch.insiders(), &managed.placed, original, &self.root);
            }
            // What a launcher starts was born outside of every place.
            managed.newcomers |= known.0 != managed.watch.members() && !managed.watch.outsiders().is_empty();
            let ours = self.clock.stands_still(app);
            managed.stopped_looks = if sight.stopped && !ours { managed.stopped_looks + 1 } else { 0 };
            if sight.ended {
                news.push(ByOthers::Ended(app.clone()));
            } else if managed.stopped_looks == STOPPED_LOOKS && !managed.user_stopped {
                news.push(ByOthers::Stopped(app.clone()));
            } else if managed.user_stopped && !sight.stopped {
                news.push(ByOthers::Continued(app.clone()));
            }
            let neighbours: BTreeSet<AppId> = running.iter().filter(|other| *other != app).cloned().collect();
            let full = sight.told.unwrap_or(0);
            managed.ledger.write_up(
                now_ns,
                &Standing {
                    place: &managed.placed,
                    in_turn_ns: stats.in_turn_ns.get(app).copied().unwrap_or(0),
                    turns: stats.turns.get(app).copied().unwrap_or(0),
                    alone: neighbours.is_empty()
                        && full > 0
                        && sight.team == Some(full)
                        && !managed.user_stopped,
                    neighbours: &neighbours,
                    regions: sight.regions,
                    cpu_time_ns: sight.cpu_time_ns,
                },
            );
            managed.sight = Some(sight);
            let others = company.get(app).map(|others| others.iter().collect::<Vec<_>>());
            let beside = match others.as_deref() {
                Some([]) => Beside::Nobody,
                Some([other]) => names.get(*other).cloned().map_or(Beside::Several, Beside::One),
                _ => Beside::Several,
            };
            if self.follower.is_moving(app) {
                // What it does meanwhile belongs neither to the old place nor to the new one.
                managed.rates.moved();
            }
            managed.learn_speed(!self.settling && !sharing.contains(app), beside);
        }
        news
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
            Err(error) => self.warnings.push(error.to_string()),
        }
    }

    /// A sample counts programs by position; one that came or went makes the old one useless.
    pub fn members_changed(&mut self) {
        self.before = None;
    }

    pub fn status(&self, now_ns: u64) -> Vec<AppStatus> {
        let status = |(id, managed): (&AppId, &Managed)| {
            let sight = managed.sight.as_ref();
            let state = match () {
                () if self.plan.waiting.contains(id) => "waiting",
                () if managed.user_stopped => "suspended",
                () if managed.yields => "yielding",
                () if !managed.record.started || !managed.settled() => "starting",
                () => "running",
            };
            AppStatus {
                id: id.clone(),
                pid: managed.record.process.pid,
                uid: managed.record.uid,
                command: managed.record.command.clone(),
                state: state.to_owned(),
                place: managed.placed.clone(),
                threads: managed.wish.as_ref().map_or(0, |wish| wish.1),
                team: sight.and_then(|sight| sight.team),
                rigid: sight.and_then(|sight| match &sight.nature {
                    Nature::Rigid(why) | Nature::Stays(why) => Some(why.clone()),
                    _ => None,
                }),
                resizing: sight.and_then(|sight| sight.finding.clone()),
                attached: managed.record.terms.attached,
                waiting: managed.waiting(),
                waits_for: None,
                speedup: managed.speedup.clone(),
                memory: MemoryMoves { brought: managed.rates.brought(), ..self.follower.figures(id) },
                bubbles: managed.watch.bubbles(),
                account: managed.ledger.read(now_ns),
            }
        };
        self.apps.iter().map(status).collect()
    }
}
