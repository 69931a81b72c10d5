//! The scheduler's loop: messages and observations in, events to the engine, plans to the actuator.

mod admission;
mod allowed;
mod attach;
mod begin;
mod chosen;
mod decide;
mod nice;
mod observe;
mod options;
mod requests;
mod shown;
mod timers;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use engine::{Engine, Event, MemoryRoom};
use linux::Root;
use linux::clock::{now_ns, raise_priority};
use linux::host::{self, Lock};
use protocol::{AppRecord, FromScheduler, HistoryEntry, News, Role};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use workload::AppId;

use admission::Pending;
use options::settings_for;
pub use options::{Options, StartError};
use timers::Timers;

use crate::adopt::Adopter;
use crate::guard::{self, GuardHandle};
use crate::home::{Home, LOCK_PATIENCE_NS, SchedulerLock};
use crate::identity;
use crate::lease::{self, Lease};
use crate::live::Live;
use crate::mechanism::Mechanisms;
use crate::observed::Observed;
use crate::registry::Registry;
use crate::remember::Remembered;
use crate::resizing::Analyst;
use crate::restore;
use crate::server::{PeerId, Server};
use crate::service::Service;

/// How often programs are sampled at most, while there are several, and one alone, which nobody waits for.
const SAMPLE_APPS_NS: u64 = 25_000_000;
const SAMPLE_APPS_SETTLED_NS: u64 = 100_000_000;
const SAMPLE_APPS_ALONE_NS: u64 = 500_000_000;
/// How often the use by unmanaged programs and the load are sampled.
const SAMPLE_MACHINE_NS: u64 = 250_000_000;
/// The same while no program is managed, so that the first one does not come where others compute.
const SAMPLE_MACHINE_IDLE_NS: u64 = 1_000_000_000;
/// How often what the kernel allows is read again.
const ALLOWANCE_NS: u64 = 1_000_000_000;
/// How often programs are looked for that a rule of the configuration means.
const ADOPT_NS: u64 = 1_000_000_000;
/// A load average that moved by less is no news: nobody's threads follow it.
const LOAD_STEP_MILLI: u64 = 50;
/// For how long a scheduler waits for whoever sets its programs free: on a busy machine that takes long, and what both
/// do at once is nobody's plan. Who hangs in it is not waited for any longer.
const LONG_PATIENCE_NS: u64 = 2_000_000_000;
/// How often in a row programs are taken in again that others have set free.
const MOST_READOPTIONS: usize = 3;
/// Entries of history that `explain` can go back to.
const HISTORY: usize = 200;

/// Ends a scheduler from another thread or from a signal handler.
#[derive(Clone)]
pub struct Stopper {
    stop: Arc<AtomicBool>,
    wake: Arc<std::os::fd::OwnedFd>,
}

impl Stopper {
    /// Has [`Scheduler::run`] come back soon; does not wait for that.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        // The loop looks again within its tick even if this could not be written.
        let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
    }
}

/// Why `run` came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// A [`Stopper`] ended it.
    Stopped,
    /// A daemon takes over.
    Yielded,
}

/// A scheduler with all that it knows; [`Scheduler::run`] is its loop.
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
    /// Which peer stands for which program; a program without one has lost its `run`.
    owners: BTreeMap<AppId, PeerId>,
    history: VecDeque<HistoryEntry>,
    adopter: Adopter,
    /// Programs that are held and not admitted yet, and the memory that there was for them last.
    pending: Pending,
    room: MemoryRoom,
    remembered: Remembered,
    observed: Observed,
    /// Who reads what is recorded.
    readers: Vec<requests::Reader>,
    services: Vec<Box<dyn Service>>,
    stopper: Stopper,
    began_ns: u64,
    yielded: bool,
    /// Programs may have been set free that are not taken back yet: somebody had the lock of them for too long, and
    /// what it did shows when it has done it, or their groups were removed.
    to_readopt: bool,
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
        let machine = Arc::new(host::with(|host| host.machine()));
        let allowance = allowed::machine_allowance(options.cpus.as_ref())?;
        let registry = Registry::new(&home);
        let remembered = options.remembered.clone().unwrap_or_else(|| home.remembered());
        let analyst = Analyst::start(Some(remembered.with_file_name("regions.json")), &root);
        let live = Live::new(registry.clone(), mechanisms, &allowance.allowed, analyst, root)?;
        let mut engine =
            Engine::new(Arc::clone(&machine), allowance.allowed.clone(), allowance.allowed.clone(), policy)
                .with_settings(settings)
                .observing(role == Role::Observer);
        if let Some(path) = &options.trace {
            let file = std::fs::File::create(path)
                .map_err(|error| StartError::Trace { path: path.clone(), error })?;
            engine.record_to(Box::new(io::BufWriter::new(file)));
        }
        let lease = Lease::acquire(&home)?;
        let guard = match role {
            Role::Observer => None,
            _ => Some(guard::ensure(&home).map_err(StartError::Guard)?),
        };
        let server = Server::bind(home.clone(), role, options.group)?;
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
            owners: BTreeMap::new(),
            history: VecDeque::new(),
            adopter,
            pending: Pending::default(),
            room: MemoryRoom::default(),
            remembered,
            observed,
            readers: Vec::new(),
            services: Vec::new(),
            stopper: Stopper { stop: Arc::default(), wake: Arc::new(wake) },
            began_ns: now_ns(),
            yielded: false,
            to_readopt: false,
            allowance: None,
            paid_milli_cpus: None,
            allowance_at_ns: 0,
            home,
            _lock: lock,
        };
        scheduler.adopt();
        Ok(scheduler)
    }

    /// A handle that ends this scheduler from another thread; its clones do the same.
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
            Err(error) => return self.note_failed(None, error),
        };
        for file in &listing.unreadable {
            self.registry.set_aside(file);
            self.note_damage(file.recovered.as_ref(), file);
        }
        let was_lost = listing.unreadable.iter().any(|file| file.recovered.is_none());
        let mut events = Vec::new();
        let until_ns = now_ns() + LONG_PATIENCE_NS;
        for record in listing.records {
            // A guard may be about it still, and its user just stop it.
            let _lock = self.lock_programs(until_ns);
            if let Some(damage) = self.registry.traces_damage(&record.id) {
                self.note_damage(Some(&record.id), &damage);
            }
            let report = match broken!(AdoptedAsTheyAre) {
                true => restore::Report::default(),
                false => restore::set_free(&record, &Root::live(), &self.home),
            };
            if identity::is_alive(record.process) {
                if let Err(error) = self.registry.write_missing(&record, &listing.unreadable) {
                    self.note_failed(Some(&record.id), error);
                }
                events.extend(match record.started {
                    true => self.begin_managing(record),
                    false => self.enter(record),
                });
            } else {
                drop(report);
                self.registry.remove(&record.id);
            }
        }
        self.registry.sweep();
        self.set_strays_free(was_lost, until_ns);
        let kept: Vec<PathBuf> = self.live.apps().values().map(|app| app.record.pages.clone()).collect();
        self.home.sweep_pages(|path| kept.iter().any(|page| page == path));
        self.decide(events);
        // The later ones may have brought CPUs that the earlier ones are to leave alone.
        let events = self.allow(None, false);
        self.decide(events);
    }

    /// What a program is shows in its first regions, and ever less is new about it as it grows older.
    fn sample_pause_ns(&self, now_ns: u64) -> u64 {
        if self.live.needs_sample() {
            return 0;
        }
        let settled_ns =
            if self.live.apps().len() <= 1 { SAMPLE_APPS_ALONE_NS } else { SAMPLE_APPS_SETTLED_NS };
        (self.live.youngest_ns(now_ns) / 2).clamp(SAMPLE_APPS_NS, settled_ns)
    }

    /// Runs until it is stopped or a daemon takes over; then every program is free.
    pub fn run(mut self) -> Ended {
        let _ = raise_priority();
        let mut due = Timers::default();
        let mut settling = false;
        while !self.stopper.stop.load(Ordering::Acquire) && !self.yielded {
            let now = now_ns();
            let sample_at = (!self.live.apps().is_empty()).then(|| due.sample_apps.at_ns());
            let wake_at = self.engine.wake_at_ns().map(|at| self.began_ns + at);
            self.wait(timers::wait_until(now, settling, sample_at, wake_at).saturating_sub(now));
            let now = now_ns();
            self.lease.beat();
            let mut events = Vec::new();
            if self.lease.was_late() && !broken!(NobodyReadopted) {
                events.extend(self.readopt(now + LONG_PATIENCE_NS));
            } else if self.to_readopt {
                events.extend(self.readopt(now));
            }
            for (peer, incoming) in self.server.pump() {
                events.extend(self.handle(peer, incoming));
            }
            if due.sample_apps.is_due(now, self.sample_pause_ns(now)) {
                events.extend(self.sample_apps(now));
                self.update_services();
            }
            if let Some(guard) = self.guard.as_mut().filter(|_| due.guard.is_due(now, lease::BEAT_NS)) {
                guard.check();
            }
            let idle = self.live.apps().is_empty();
            if due.sample_machine.is_due(now, if idle { SAMPLE_MACHINE_IDLE_NS } else { SAMPLE_MACHINE_NS }) {
                events.extend(self.sample_machine());
            }
            if due.pending.is_due(now, SAMPLE_MACHINE_NS) {
                events.extend(self.admit_pending());
            }
            if due.adopt.is_due(now, ADOPT_NS) {
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

    /// Whoever sets free or takes in has this, so that no two do it to one program at once. It is waited for until then.
    fn lock_programs(&mut self, until_ns: u64) -> Option<Box<dyn Lock>> {
        self.lease.beat();
        let lock = self.home.lock_programs_until(until_ns, || self.lease.beat());
        self.to_readopt |= lock.is_none();
        lock
    }

    /// It did not act for so long that the guard may have set programs free, or still be about it.
    fn readopt(&mut self, until_ns: u64) -> Vec<Event> {
        self.to_readopt = false;
        let _lock = self.lock_programs(until_ns);
        let mut events = Vec::new();
        for _ in 0..MOST_READOPTIONS {
            for (id, was_stopped) in self.live.readopt(&self.home, || self.lease.beat()) {
                self.note(News::SetFree { app: id.clone() });
                events.extend(was_stopped.then_some(Event::Suspend(id)));
            }
            // Who does not act for long here either finds programs set free again.
            if !self.live.is_anybody_set_free() {
                break;
            }
        }
        self.note_failures();
        self.lease.beat();
        events
    }

    fn end(mut self) -> Ended {
        self.server.stop_listening();
        self.send_accounts();
        self.live.set_all_free();
        self.live.note_stops_by_others();
        let records: Vec<(AppRecord, restore::Known)> =
            self.live.apps().values().map(|app| (app.record.clone(), app.known())).collect();
        // For all of them together, as in `restore::set_all_free`.
        let until_ns = now_ns() + LOCK_PATIENCE_NS;
        for (record, known) in records {
            let _lock = self.lock_programs(until_ns);
            let report = restore::set_free_knowing(&record, known, &Root::live(), &self.home);
            if report.problems.is_empty() {
                self.registry.note_nobody_stopped(&record.id);
            }
        }
        // We may have written about programs that a guard had forgotten meanwhile.
        self.registry.sweep();
        if self.yielded { Ended::Yielded } else { Ended::Stopped }
    }

    /// Those whose programs run on keep what was written up about them until now.
    fn send_accounts(&mut self) {
        let now = now_ns();
        self.live.sample(now);
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
        host::with(|host| host.poll(&mut fds, at_most_ns));
    }
}
