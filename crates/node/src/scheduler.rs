//! The scheduler's loop: messages and observations in, events to the engine, plans to the actuator.

mod admission;
mod allowed;
mod attach;
mod begin;
mod chosen;
mod nice;
mod observe;
mod requests;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use engine::{Actuator, Engine, Event};
use linux::Root;
use linux::clock::{now_ns, raise_priority};
use plan::{App, TurnMode};
use policy::Settings;
use protocol::{AppRecord, FromScheduler, Role};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use topology::{CpuSet, Machine};
use workload::AppId;

use crate::adopt::{Adopter, Rule};
use crate::guard::{self, GuardHandle};
use crate::home::{Home, SchedulerLock};
use crate::identity;
use crate::lease::{self, Lease};
use crate::live::Live;
use crate::mechanism::{Mechanisms, PlacementChoice, TurnsChoice};
use crate::observed::Observed;
use crate::registry::Registry;
use crate::remember::Remembered;
use crate::resizing::Analyst;
use crate::restore;
use crate::server::{PeerId, Server};
use crate::service::Service;

/// While a program is on its way to another width.
const SETTLING_NS: u64 = 1_000_000;
/// How often programs are looked at at most, while there are several, and one alone, which nobody
/// waits for.
const LOOK_NS: u64 = 25_000_000;
const LOOK_SELDOM_NS: u64 = 100_000_000;
const LOOK_ALONE_NS: u64 = 500_000_000;
/// How often the use by unmanaged programs and the load are sampled.
const SAMPLE_NS: u64 = 250_000_000;
/// The same while no program is managed, so that the first one does not come where others compute.
const SAMPLE_IDLE_NS: u64 = 1_000_000_000;
/// How often what the kernel allows is read again.
const ALLOWANCE_NS: u64 = 1_000_000_000;
/// How often programs are looked for that a rule of the configuration means.
const ADOPT_NS: u64 = 1_000_000_000;
/// A load average that moved by less is no news: nobody's threads follow it.
const LOAD_STEP_MILLI: u64 = 50;
/// Lines of history that `explain` can go back to.
const HISTORY: usize = 200;

/// How a scheduler is to be.
#[derive(Clone, Debug)]
pub struct Options {
    /// Letters or words of the policy.
    pub policy: String,
    pub settings: Settings,
    pub placement: PlacementChoice,
    pub turns: TurnsChoice,
    /// Whether CPUs that unmanaged programs keep busy are left to them.
    pub leave_unmanaged: bool,
    /// Only these CPUs.
    pub cpus: Option<CpuSet>,
    /// Where events and plans are recorded, a JSON line each.
    pub trace: Option<PathBuf>,
    /// Which programs are taken in that start without `coplace run`.
    pub adopt: Vec<Rule>,
    /// Where it is written what programs turned out to be, and beside it what their neighbours cost them, if
    /// not in the home.
    pub remembered: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            policy: "TA".into(),
            settings: Settings::default(),
            placement: PlacementChoice::Auto,
            turns: TurnsChoice::Auto,
            leave_unmanaged: true,
            cpus: None,
            trace: None,
            adopt: Vec::new(),
            remembered: None,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Policy(#[from] policy::UnknownPolicy),
    #[error(transparent)]
    Mechanism(#[from] crate::mechanism::NotToBeHad),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("{0}")]
    Other(String),
}

/// Ends a scheduler from another thread or from a signal handler.
#[derive(Clone)]
pub struct Stopper {
    stop: Arc<AtomicBool>,
    wake: Arc<std::os::fd::OwnedFd>,
}

impl Stopper {
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        // The loop looks again within its tick even if this could not be written.
        let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
    }
}

/// Why `run` came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Stopped,
    /// A daemon takes over.
    Yielded,
}

pub struct Scheduler {
    home: Home,
    role: Role,
    options: Options,
    registry: Registry,
    server: Server,
    lease: Lease,
    guard: Option<GuardHandle>,
    engine: Engine,
    live: Live,
    machine: Arc<Machine>,
    /// Which peer stands for which program; a program without one has lost its `run`.
    owners: BTreeMap<AppId, PeerId>,
    history: VecDeque<String>,
    adopter: Adopter,
    gate: admission::Gate,
    remembered: Remembered,
    observed: Observed,
    /// Who reads what is recorded.
    readers: Vec<requests::Reader>,
    services: Vec<Box<dyn Service>>,
    stopper: Stopper,
    began_ns: u64,
    yielded: bool,
    allowance: Option<topology::Allowance>,
    /// The CPU time that all programs have together.
    paid_milli_cpus: Option<u32>,
    allowance_at_ns: u64,
    /// Dropped last: who takes the lock next finds everything in order.
    _lock: SchedulerLock,
}

impl Scheduler {
    /// Takes over the programs of an earlier scheduler and begins to listen.
    pub fn start(
        home: Home,
        lock: SchedulerLock,
        role: Role,
        options: Options,
    ) -> Result<Scheduler, StartError> {
        let root = Root::live();
        let mechanisms = match role {
            Role::Observer => None,
            _ => Some(Mechanisms::choose(options.placement, options.turns, &home.group_name(), &root)?),
        };
        let settings = settings_for(&options, mechanisms.as_ref());
        let policy = policy::by_name(&options.policy, &settings)?;
        let machine = Arc::new(Machine::discover().machine);
        let allowance = allowed::for_all(options.cpus.as_ref(), &root)?;
        let registry = Registry::new(&home);
        let remembered = options.remembered.clone().unwrap_or_else(|| home.remembered());
        let analyst = Analyst::start(Some(remembered.with_file_name("regions.json")), &root);
        let live = Live::new(registry.clone(), mechanisms, &allowance.allowed, analyst, root)?;
        let mut engine =
            Engine::new(Arc::clone(&machine), allowance.allowed.clone(), allowance.allowed.clone(), policy)
                .with_settings(settings);
        if let Some(path) = &options.trace {
            let file = std::fs::File::create(path).map_err(|error| {
                StartError::Other(format!("cannot record to {}: {error}", path.display()))
            })?;
            engine.record_to(Box::new(io::BufWriter::new(file)));
        }
        let lease = Lease::take(&home).map_err(|error| StartError::Other(error.to_string()))?;
        let guard = match role {
            Role::Observer => None,
            _ => Some(guard::ensure(&home).map_err(|error| StartError::Other(error.to_string()))?),
        };
        let server = Server::bind(home.clone(), role)?;
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).map_err(io::Error::from)?;
        let observed = Observed::at(remembered.with_file_name("observed.jsonl"));
        let remembered = Remembered::at(remembered);
        let adopter = Adopter::new(options.adopt.clone());
        let mut scheduler = Scheduler {
            role,
            options,
            registry,
            server,
            lease,
            guard,
            engine,
            live,
            machine,
            owners: BTreeMap::new(),
            history: VecDeque::new(),
            adopter,
            gate: Default::default(),
            remembered,
            observed,
            readers: Vec::new(),
            services: Vec::new(),
            stopper: Stopper { stop: Arc::default(), wake: Arc::new(wake) },
            began_ns: now_ns(),
            yielded: false,
            allowance: None,
            paid_milli_cpus: None,
            allowance_at_ns: 0,
            home,
            _lock: lock,
        };
        scheduler.adopt();
        Ok(scheduler)
    }

    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Has this run beside the scheduler, for as long as that runs.
    pub fn with_service(mut self, service: Box<dyn Service>) -> Scheduler {
        self.services.push(service);
        self
    }

    fn withdraw_services(&mut self) {
        self.services.iter_mut().for_each(|service| service.withdraw());
    }

    /// Programs of an earlier scheduler that still live are set free, whatever was done to them,
    /// and taken in anew.
    fn adopt(&mut self) {
        let listing = match self.registry.list() {
            Ok(listing) => listing,
            Err(error) => return self.note(error.to_string()),
        };
        for (path, why) in listing.skipped {
            self.note(format!("{}: {why}; skipped", path.display()));
        }
        let mut events = Vec::new();
        for record in listing.records {
            let report = restore::set_free(&record, &Root::live(), &self.home);
            if identity::lives(record.process) {
                events.extend(match record.started {
                    true => self.take_in(record),
                    false => self.enter(record),
                });
            } else {
                drop(report);
                self.registry.remove(&record.id);
            }
        }
        let kept: Vec<PathBuf> = self.live.apps().values().map(|app| app.record.pages.clone()).collect();
        self.home.sweep_pages(|path| kept.iter().any(|page| page == path));
        self.decide(events);
        // The later ones may have brought CPUs that the earlier ones are to leave alone.
        let events = self.allow(None, false);
        self.decide(events);
    }

    /// What a program is shows in its first regions, and ever less is new about it as it grows older.
    fn between_looks(&self, now_ns: u64) -> u64 {
        let settled_ns = if self.live.apps().len() <= 1 { LOOK_ALONE_NS } else { LOOK_SELDOM_NS };
        (self.live.youngest_ns(now_ns) / 2).clamp(LOOK_NS, settled_ns)
    }

    /// Runs until it is stopped or a daemon takes over; then every program is free.
    pub fn run(mut self) -> Ended {
        let _ = raise_priority();
        let (mut look_at, mut sample_at, mut guard_at, mut adopt_at, mut gate_at) = (0, 0, 0, 0, 0);
        let mut settling = false;
        while !self.stopper.stop.load(Ordering::Acquire) && !self.yielded {
            let now = now_ns();
            let idle = self.live.apps().is_empty();
            let mut until = now + lease::BEAT_NS;
            if settling {
                until = now + SETTLING_NS;
            } else if !idle {
                until = until.min(look_at);
            }
            if let Some(wake_at) = self.engine.wake_at_ns() {
                until = until.min(self.began_ns + wake_at);
            }
            self.wait(until.min(now + lease::BEAT_NS).saturating_sub(now));
            let now = now_ns();
            self.lease.beat();
            if self.lease.was_late() {
                self.take_back();
            }
            let mut events = Vec::new();
            for (peer, incoming) in self.server.pump() {
                events.extend(self.hear(peer, incoming));
            }
            let pause_ns = self.between_looks(now);
            if now >= look_at || now + pause_ns < look_at {
                look_at = now + pause_ns;
                events.extend(self.look(now));
                self.show_services();
            }
            if now >= guard_at
                && let Some(guard) = &mut self.guard
            {
                guard_at = now + lease::BEAT_NS;
                guard.check();
            }
            let pause_ns = if self.live.apps().is_empty() { SAMPLE_IDLE_NS } else { SAMPLE_NS };
            if now >= sample_at || now + pause_ns < sample_at {
                sample_at = now + pause_ns;
                events.extend(self.sample());
            }
            if now >= gate_at {
                gate_at = now + SAMPLE_NS;
                events.extend(self.look_at_gate());
            }
            if now >= adopt_at {
                adopt_at = now + ADOPT_NS;
                events.extend(self.adopt_by_rules());
            }
            if self.engine.wake_at_ns().is_some_and(|at| self.began_ns + at <= now) {
                events.push(Event::Wake);
            }
            self.decide(events);
            settling = self.live.settle();
        }
        self.end()
    }

    /// It did not act for so long that the guard may have set programs free, or still be about it.
    fn take_back(&mut self) {
        let _lock = loop {
            self.lease.beat();
            match self.home.lock_programs() {
                Ok(None) => linux::clock::sleep_until(now_ns() + restore::LOCKED_NS),
                other => break other,
            };
        };
        for id in self.live.take_back(&self.home) {
            self.note(format!("{id} was set free while this scheduler did not act; it is taken in anew"));
        }
        for warning in self.live.take_warnings() {
            self.note(warning);
        }
        // While the programs are locked the guard does nothing, however long that took.
        self.lease.beat();
        self.lease.was_late();
    }

    fn end(mut self) -> Ended {
        self.server.close_door();
        self.hand_out_accounts();
        self.live.let_all_go();
        let records: Vec<AppRecord> = self.live.apps().values().map(|app| app.record.clone()).collect();
        for record in &records {
            restore::set_free(record, &Root::live(), &self.home);
        }
        if self.yielded { Ended::Yielded } else { Ended::Stopped }
    }

    /// Those whose programs run on keep what was written up about them until now.
    fn hand_out_accounts(&mut self) {
        let now = now_ns();
        self.live.look(now);
        for (id, peer) in &self.owners {
            if let Some(account) = self.live.account(id, now) {
                self.server.send(*peer, &FromScheduler::Account { account });
            }
        }
    }

    /// Waits for a message, for the stopper, or for the time.
    fn wait(&self, at_most_ns: u64) {
        let mut fds = vec![PollFd::new(&*self.stopper.wake, PollFlags::IN)];
        let server_fds = self.server.fds();
        fds.extend(server_fds.iter().map(|(fd, writes)| {
            PollFd::from_borrowed_fd(
                *fd,
                if *writes { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN },
            )
        }));
        let timeout = rustix::event::Timespec {
            tv_sec: (at_most_ns / 1_000_000_000) as i64,
            tv_nsec: (at_most_ns % 1_000_000_000) as _,
        };
        // An interrupted or failed poll only means looking a little earlier.
        let _ = poll(&mut fds, Some(&timeout));
    }

    /// Lets the engine decide on these events and carries its plan out.
    fn decide(&mut self, events: Vec<Event>) {
        if events.is_empty() {
            return;
        }
        let now = now_ns();
        let before = self.engine.plan().clone();
        let step = self.engine.handle_all(now - self.began_ns, events);
        for violation in &step.rejected {
            self.note(format!("a plan was refused and not carried out: {violation}"));
        }
        if *step.plan != before {
            self.withdraw_services();
            self.note(format!("plan: {}", step.plan));
            for line in &step.report.lines {
                self.note(format!("  {line}"));
            }
        }
        if self.role != Role::Observer
            && *step.plan != before
            && let Err(error) = self.live.carry_out(&step.plan, &step.change)
        {
            self.note(format!("the plan could not be carried out: {error}"));
        }
        let warnings = self.live.take_warnings();
        warnings.into_iter().for_each(|warning| self.note(warning));
        self.tell_readers();
        self.let_go();
    }

    /// Programs that the plan does not make wait are let go.
    fn let_go(&mut self) {
        let waiting = match self.role {
            Role::Observer => Default::default(),
            _ => self.engine.plan().waiting.clone(),
        };
        let ready = self.live.apps().values().filter(|app| !app.record.started && !app.let_go());
        let ready: Vec<AppId> =
            ready.map(|app| app.record.id.clone()).filter(|id| !waiting.contains(id)).collect();
        for id in ready {
            if let Some(peer) = self.owners.get(&id).copied() {
                let start = self.start_word(id);
                self.server.send(peer, &start);
            }
        }
    }

    fn note(&mut self, line: String) {
        if self.history.len() == HISTORY {
            self.history.pop_front();
        }
        let at_s = (now_ns() - self.began_ns) as f64 / 1e9;
        self.history.push_back(format!("{at_s:9.3} s  {line}"));
    }

    fn take_in(&mut self, mut record: AppRecord) -> Vec<Event> {
        let now = now_ns();
        let arrived_ns = record.arrived_ns.max(self.began_ns) - self.began_ns;
        let mut events = self.allow(Some(&record), true);
        let allowed = self.live.allowed().clone();
        let recalled = self.remembered.recall(&record.terms.key);
        let expected_bytes = record.terms.memory_bytes.or(recalled.peak_bytes);
        let mut expected = begin::as_remembered(&record.demand, recalled.rigid);
        if let Some(demand) = &expected {
            let width = demand.max_threads.unwrap_or(1);
            self.note(format!(
                "{} is expected to run {width} threads that cannot be resized, as last time",
                record.id
            ));
        }
        let mut app = App {
            demand: expected.clone().unwrap_or_else(|| record.demand.clone()),
            speedup: recalled.speedup.clone(),
            within: allowed::within(&record.original_cpus, &allowed),
            ..App::new(record.id.clone(), arrived_ns)
        };
        expected = self.narrow(&mut record, &mut app).or(expected);
        if let Some(threads) = record.terms.threads {
            let asked = || begin::as_asked(&record.id, threads, allowed.len() as u32);
            self.note(record.terms.narrow.clone().unwrap_or_else(asked));
        }
        self.note(format!("{} comes: {}", record.id, record.command.join(" ")));
        let id = record.id.clone();
        self.live.take(record, now);
        self.live.expect(&id, expected, expected_bytes, recalled.speedup);
        self.live.members_changed();
        events.push(Event::Arrived(app));
        events
    }
}

/// The settings as the mechanism at hand can keep them.
fn settings_for(options: &Options, mechanisms: Option<&Mechanisms>) -> Settings {
    let mut settings = options.settings.clone();
    if options.turns == TurnsChoice::Idle {
        settings.turn_mode = TurnMode::Filling;
    }
    if let Some(mechanisms) = mechanisms {
        settings.min_slice_ns = settings.min_slice_ns.max(mechanisms.shortest_slice_ns(settings.turn_mode));
        settings.slice_ns = settings.slice_ns.max(settings.min_slice_ns);
    }
    settings
}
