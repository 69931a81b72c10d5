//! The scheduler's loop: messages and observations in, events to the engine, plans to the actuator.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use engine::{Actuator, Engine, Event};
use linux::clock::{now_ns, process_cpu_ns, raise_priority};
use linux::{Root, procfs};
use plan::{App, TurnMode};
use policy::Settings;
use protocol::{AppRecord, FromScheduler, Role, Status, ToScheduler};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use topology::{CpuSet, Machine};
use workload::{AppId, Malleability};

use crate::guard::{self, GuardHandle};
use crate::home::{Home, SchedulerLock};
use crate::identity;
use crate::lease::{self, Lease};
use crate::live::{ByOthers, Live};
use crate::mechanism::{Mechanisms, PlacementChoice, TurnsChoice};
use crate::registry::Registry;
use crate::restore;
use crate::server::{Incoming, PeerId, Server};
use crate::watch::Nature;

/// While a program is on its way to another width.
const SETTLING_NS: u64 = 1_000_000;
/// How often programs are looked at while one of them is new, and otherwise.
const LOOK_NS: u64 = 25_000_000;
const LOOK_SELDOM_NS: u64 = 100_000_000;
/// How long a program is new: what it is shows in its first regions.
const NEW_NS: u64 = 1_000_000_000;
/// How often the use by unmanaged programs and the load are sampled.
const SAMPLE_NS: u64 = 250_000_000;
/// How often the limits of our own group and mask are read again.
const ALLOWANCE_NS: u64 = 1_000_000_000;
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
    /// Only these CPUs.
    pub cpus: Option<CpuSet>,
    /// Where events and plans are recorded, a JSON line each.
    pub trace: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            policy: "TA+".into(),
            settings: Settings::default(),
            placement: PlacementChoice::Auto,
            turns: TurnsChoice::Auto,
            cpus: None,
            trace: None,
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
    stopper: Stopper,
    began_ns: u64,
    yielded: bool,
    allowance: Option<topology::Allowance>,
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
        let allowance = allowance(options.cpus.as_ref(), &root)?;
        let registry = Registry::new(&home);
        let live = Live::new(registry.clone(), mechanisms, &allowance.allowed, root)?;
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
            stopper: Stopper { stop: Arc::default(), wake: Arc::new(wake) },
            began_ns: now_ns(),
            yielded: false,
            allowance: None,
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
                events.extend(self.take_in(record));
            } else {
                drop(report);
                self.registry.remove(&record.id);
            }
        }
        let kept: Vec<PathBuf> = self.live.apps().values().map(|app| app.record.pages.clone()).collect();
        self.home.sweep_pages(|path| kept.iter().any(|page| page == path));
        self.decide(events);
    }

    /// Runs until it is stopped or a daemon takes over; then every program is free.
    pub fn run(mut self) -> Ended {
        let _ = raise_priority();
        let (mut look_at, mut sample_at, mut guard_at) = (0, 0, 0);
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
            self.lease.beat(now);
            let mut events = Vec::new();
            for (peer, incoming) in self.server.pump() {
                events.extend(self.hear(peer, incoming));
            }
            if now >= look_at {
                look_at = now + if self.live.has_new(now, NEW_NS) { LOOK_NS } else { LOOK_SELDOM_NS };
                events.extend(self.look(now));
            }
            if now >= guard_at
                && let Some(guard) = &mut self.guard
            {
                guard_at = now + lease::BEAT_NS;
                guard.check();
            }
            if now >= sample_at && !self.live.apps().is_empty() {
                sample_at = now + SAMPLE_NS;
                events.extend(self.sample());
            }
            if self.engine.wake_at_ns().is_some_and(|at| self.began_ns + at <= now) {
                events.push(Event::Wake);
            }
            self.decide(events);
            settling = self.live.settle();
        }
        self.end()
    }

    fn end(mut self) -> Ended {
        self.live.let_all_go();
        let records: Vec<AppRecord> = self.live.apps().values().map(|app| app.record.clone()).collect();
        for record in &records {
            restore::set_free(record, &Root::live(), &self.home);
        }
        if self.yielded { Ended::Yielded } else { Ended::Stopped }
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
        if step.plan != before {
            self.note(format!("plan: {}", step.plan));
            for line in &step.report.lines {
                self.note(format!("  {line}"));
            }
        }
        if self.role != Role::Observer
            && step.plan != before
            && let Err(error) = self.live.carry_out(&step.plan, &step.change)
        {
            self.note(format!("the plan could not be carried out: {error}"));
        }
        let warnings = self.live.take_warnings();
        warnings.into_iter().for_each(|warning| self.note(warning));
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
            if let Some(peer) = self.owners.get(&id) {
                self.live.was_let_go(&id);
                self.server.send(*peer, &FromScheduler::Start { id });
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

    fn take_in(&mut self, record: AppRecord) -> Option<Event> {
        let now = now_ns();
        let arrived_ns = record.arrived_ns.max(self.began_ns) - self.began_ns;
        let app = App {
            id: record.id.clone(),
            arrived_ns,
            demand: record.demand.clone(),
            team: None,
            waits_passively: false,
            stoppable: true,
            suspended: false,
            within: None,
        };
        self.note(format!("{} comes: {}", record.id, record.command.join(" ")));
        self.live.take(record, now);
        self.live.members_changed();
        Some(Event::Arrived(app))
    }

    fn hear(&mut self, peer: PeerId, incoming: Incoming) -> Vec<Event> {
        let message = match incoming {
            Incoming::Message(message) => message,
            Incoming::Gone => {
                // Its programs live on under this scheduler; the guard looks after them now.
                self.owners.retain(|_, owner| *owner != peer);
                return Vec::new();
            }
        };
        let now = now_ns();
        match message {
            ToScheduler::Hello { .. } => Vec::new(),
            ToScheduler::Register { record } => self.register(peer, record),
            ToScheduler::Started { id } if self.owns(peer, &id) => {
                self.live.started(&id, now);
                Vec::new()
            }
            ToScheduler::Ended { id } if self.owns(peer, &id) => {
                // Descendants that outlive the root stay under the scheduler until they end too.
                self.live.look(now);
                let account = self.live.account(&id, now).unwrap_or_default();
                self.server.send(peer, &FromScheduler::Account { account });
                self.owners.remove(&id);
                self.leave_if_ended(&id)
            }
            ToScheduler::Suspend { id } if self.owns(peer, &id) => {
                self.live.user_stopped(&id, true);
                self.server.send(peer, &FromScheduler::Done);
                vec![Event::Suspend(id)]
            }
            ToScheduler::Resume { id } if self.owns(peer, &id) => {
                self.live.user_stopped(&id, false);
                self.server.send(peer, &FromScheduler::Done);
                vec![Event::Resume(id)]
            }
            ToScheduler::Release { id } if self.owns(peer, &id) => {
                self.live.release(&id);
                self.server.send(peer, &FromScheduler::Done);
                Vec::new()
            }
            ToScheduler::Status => {
                let status = self.status(now);
                self.server.send(peer, &FromScheduler::Status { status });
                Vec::new()
            }
            ToScheduler::Explain { id } => {
                let lines = self.explain(id.as_ref());
                let answer = match id {
                    Some(id) if lines.is_empty() => FromScheduler::Refused {
                        why: format!("no program {id} is or was here lately; coplace status names them"),
                    },
                    _ => FromScheduler::Explanation { lines },
                };
                self.server.send(peer, &answer);
                Vec::new()
            }
            ToScheduler::GetPolicy => {
                self.tell_policy(peer);
                Vec::new()
            }
            ToScheduler::SetPolicy { policy, settings } => self.set_policy(peer, &policy, settings),
            ToScheduler::Yield => {
                if self.role == Role::Leader && self.may_command(peer) {
                    self.yielded = true;
                    self.server.send(peer, &FromScheduler::Done);
                } else {
                    let why = "a daemon schedules here already; stop it first".to_owned();
                    self.server.send(peer, &FromScheduler::Refused { why });
                }
                Vec::new()
            }
            ToScheduler::Started { id }
            | ToScheduler::Ended { id }
            | ToScheduler::Suspend { id }
            | ToScheduler::Resume { id }
            | ToScheduler::Release { id } => {
                let why = format!("{id} is not a program of yours here");
                self.server.send(peer, &FromScheduler::Refused { why });
                Vec::new()
            }
        }
    }

    fn owns(&self, peer: PeerId, id: &AppId) -> bool {
        self.owners.get(id) == Some(&peer)
    }

    /// Whether a peer may change what concerns everybody.
    fn may_command(&self, peer: PeerId) -> bool {
        let own = rustix::process::geteuid().as_raw();
        self.server.uid(peer).is_some_and(|uid| uid == 0 || uid == own)
    }

    fn register(&mut self, peer: PeerId, mut record: AppRecord) -> Vec<Event> {
        let uid = self.server.uid(peer).unwrap_or(u32::MAX);
        let process = identity::to_linux(record.process);
        let theirs =
            procfs::status(process.pid, &Root::live()).is_ok_and(|status| uid == 0 || status.uid == uid);
        if !theirs || !process.is_same(&Root::live()) {
            let why = format!("process {} is gone, or not yours", process.pid);
            self.server.send(peer, &FromScheduler::Refused { why });
            return Vec::new();
        }
        record.uid = uid;
        if uid != rustix::process::geteuid().as_raw() {
            // A page is shared memory that its owner can cut short under our hands. Other users'
            // programs are placed and take turns, but are not resized.
            record.pages = PathBuf::new();
        }
        let asked = record.id.clone();
        let known = self.live.apps().values().find(|app| app.record.process == record.process);
        let known = known.map(|app| app.record.id.clone());
        let environment = || {
            let pairs = self.engine.policy().launch_environment();
            pairs.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
        };
        let environment: BTreeMap<String, String> = environment();
        if let Some(id) = known {
            // Its `run` has come back to a scheduler that adopted the program already.
            self.owners.insert(id.clone(), peer);
            self.live.guarded_by(&id, record.guardian);
            self.server.send(peer, &FromScheduler::Registered { asked, id, environment });
            self.let_go();
            return Vec::new();
        }
        record.id = unique(&asked, |id| self.live.apps().contains_key(id));
        if let Err(error) = self.registry.write(&record) {
            let why = error.to_string();
            self.server.send(peer, &FromScheduler::Refused { why });
            return Vec::new();
        }
        let id = record.id.clone();
        self.owners.insert(id.clone(), peer);
        self.server.send(peer, &FromScheduler::Registered { asked, id, environment });
        self.take_in(record).into_iter().collect()
    }

    /// Looks at all programs and turns what changed into events.
    fn look(&mut self, now: u64) -> Vec<Event> {
        let mut events = Vec::new();
        for news in self.live.look(now) {
            match news {
                ByOthers::Stopped(id) => {
                    self.note(format!("{id} was stopped by somebody else; it leaves the rotation"));
                    self.live.user_stopped(&id, true);
                    events.push(Event::Suspend(id));
                }
                ByOthers::Continued(id) => {
                    self.live.user_stopped(&id, false);
                    events.push(Event::Resume(id));
                }
                // While its `run` lives it says so itself, and asks for the account first.
                ByOthers::Ended(id) if !self.owners.contains_key(&id) => {
                    events.extend(self.leave_if_ended(&id))
                }
                ByOthers::Ended(_) => {}
            }
        }
        let snapshot = self.engine.snapshot(now - self.began_ns);
        for known in &snapshot.apps {
            let Some(app) = self.live.apps().get(&known.id) else { continue };
            let Some(sight) = &app.sight else { continue };
            let mut seen = known.clone();
            seen.demand = app.record.demand.clone();
            match &sight.nature {
                Nature::Rigid(_) => {
                    seen.demand.malleability = Malleability::Rigid;
                    // The widest team it ever ran is the place that it needs.
                    let width = sight.team.max(known.team);
                    seen.demand.max_threads = app.record.demand.max_threads.or(width);
                    seen.team = width;
                }
                Nature::Resizable => {
                    let told = sight.told;
                    seen.demand.max_threads = app.record.demand.max_threads.min(told).or(told);
                    // A team on its way to the wish is no news; the actuator waits for it itself.
                    seen.team =
                        sight.team.map(|team| known.team.unwrap_or(team).max(team).min(told.unwrap_or(team)));
                }
                Nature::Starting | Nature::Serial => {}
            }
            seen.waits_passively = sight.waits_passively;
            seen.stoppable = sight.protected.is_none() && app.has_harness();
            if seen != *known {
                events.push(Event::Observed(seen));
            }
        }
        events
    }

    fn leave_if_ended(&mut self, id: &AppId) -> Vec<Event> {
        let lives = self.live.apps().get(id).is_some_and(|app| app.sight.as_ref().is_some_and(|s| !s.ended));
        let rooted = self.live.apps().get(id).is_some_and(|app| identity::lives(app.record.process));
        if lives || rooted {
            return Vec::new();
        }
        let Some(app) = self.live.apps().get(id) else { return Vec::new() };
        let record = app.record.clone();
        self.live.forget(id, now_ns());
        restore::set_free(&record, &Root::live(), &self.home);
        self.registry.remove(id);
        restore::remove_pages(&record);
        self.live.members_changed();
        self.note(format!("{id} has ended"));
        vec![Event::Left(id.clone())]
    }

    /// What the machine and its other users leave to us.
    fn sample(&mut self) -> Vec<Event> {
        let unmanaged = self.live.sample_unmanaged().clone();
        let mut events = Vec::new();
        let now = now_ns();
        if now >= self.allowance_at_ns {
            self.allowance_at_ns = now + ALLOWANCE_NS;
            // What could be read last holds while it cannot be read.
            self.allowance =
                allowance(self.options.cpus.as_ref(), &Root::live()).ok().or(self.allowance.take());
        }
        let snapshot = self.engine.snapshot(now - self.began_ns);
        if let Some(allowance) = &self.allowance {
            let (usable, reasons) =
                topology::usable(&allowance.allowed, allowance.quota_milli_cpus, &unmanaged, &self.machine);
            let usable = steady(&snapshot.usable, usable, &allowance.allowed, &unmanaged);
            if snapshot.usable != usable || snapshot.allowed != allowance.allowed {
                let allowed = allowance.allowed.clone();
                reasons.into_iter().for_each(|reason| self.note(reason));
                events.push(Event::Machine { allowed, usable });
            }
        }
        if let Ok(load) = procfs::loadavg(&Root::live()) {
            let average_15min_milli = (load.fifteen_minutes * 1000.0) as u64;
            if average_15min_milli.abs_diff(snapshot.load_average_15min_milli) >= LOAD_STEP_MILLI {
                events.push(Event::Load { average_15min_milli });
            }
        }
        events
    }

    fn set_policy(&mut self, peer: PeerId, name: &str, settings: Option<serde_json::Value>) -> Vec<Event> {
        if !self.may_command(peer) {
            let why = "only root or the user of this scheduler may set its policy".to_owned();
            self.server.send(peer, &FromScheduler::Refused { why });
            return Vec::new();
        }
        let mut options = self.options.clone();
        if let Some(settings) = settings {
            match serde_json::from_value(settings) {
                Ok(settings) => options.settings = settings,
                Err(error) => {
                    let why = format!("these are no settings of a policy: {error}");
                    self.server.send(peer, &FromScheduler::Refused { why });
                    return Vec::new();
                }
            }
        }
        options.policy = name.to_owned();
        let settings = settings_for(&options, self.live.mechanisms());
        match policy::by_name(name, &settings) {
            Ok(policy) => {
                self.engine.set_settings(settings);
                self.note(format!("policy: {}", policy.name()));
                self.options = options;
                let (letters, words) = (policy.letters().to_owned(), policy.words().to_owned());
                self.server.send(peer, &FromScheduler::Policy { letters, words });
                vec![Event::Policy(policy)]
            }
            Err(error) => {
                self.server.send(peer, &FromScheduler::Refused { why: error.to_string() });
                Vec::new()
            }
        }
    }

    fn tell_policy(&mut self, peer: PeerId) {
        let policy = self.engine.policy();
        let (letters, words) = (policy.letters().to_owned(), policy.words().to_owned());
        self.server.send(peer, &FromScheduler::Policy { letters, words });
    }

    /// Empty for a program that nobody knows.
    fn explain(&self, id: Option<&AppId>) -> Vec<String> {
        let concerns = |line: &&String| id.is_none_or(|id| line.contains(id.as_str()));
        let mut lines: Vec<String> = self.history.iter().filter(concerns).cloned().collect();
        if id.is_some_and(|id| lines.is_empty() && !self.live.apps().contains_key(id)) {
            return lines;
        }
        let report = self.engine.report();
        lines.push(format!("now: {}", self.engine.plan()));
        lines.extend(report.lines.iter().map(|line| format!("  {line}")));
        if let Some(why) = id.and_then(|id| report.moves.get(id)) {
            lines.push(format!("  it was moved: {why}"));
        }
        lines
    }

    fn status(&self, now: u64) -> Status {
        let stats = self.live.clock_stats();
        let mut lateness = stats.lateness_ns;
        lateness.sort_unstable();
        let at = |share: f64| lateness.get((lateness.len() as f64 * share) as usize).copied().unwrap_or(0);
        let snapshot = self.engine.snapshot(now - self.began_ns);
        let mechanisms = self.live.mechanisms();
        Status {
            pid: std::process::id(),
            role: self.role,
            policy: self.engine.policy().name(),
            plan: self.engine.plan().to_string(),
            allowed: snapshot.allowed,
            usable: snapshot.usable,
            placement: mechanisms.map_or("none: observing".into(), Mechanisms::placement_words),
            turns: mechanisms.map_or("none: observing".into(), Mechanisms::turns_words),
            report: self.engine.report().lines.clone(),
            apps: self.live.status(now),
            switches: stats.switches,
            jitter_median_ns: at(0.5),
            jitter_p95_ns: at(0.95),
            cpu_time_ns: process_cpu_ns(),
            uptime_ns: now - self.began_ns,
        }
    }
}

/// Keeps the CPUs that are used already where others of the same number are no freer: unmanaged
/// programs that roam must not make managed ones roam too.
fn steady(
    current: &CpuSet,
    proposed: CpuSet,
    allowed: &CpuSet,
    unmanaged: &linux::unmanaged::MilliCpus,
) -> CpuSet {
    const WORTH_A_MOVE_MILLI: u32 = 400;
    let taken = |cpus: &CpuSet| cpus.iter().filter_map(|cpu| unmanaged.get(&cpu)).sum::<u32>();
    let same = current.len() == proposed.len() && current.is_subset(allowed);
    if same && taken(current) <= taken(&proposed) + WORTH_A_MOVE_MILLI { current.clone() } else { proposed }
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

fn allowance(cpus: Option<&CpuSet>, root: &Root) -> io::Result<topology::Allowance> {
    let affinity = linux::affinity::get(rustix::process::getpid().as_raw_nonzero().get() as u32)
        .map_err(|error| io::Error::other(error.to_string()))?;
    topology::Allowance::read(&root.base, &affinity, cpus).map_err(io::Error::other)
}

/// `cg`, or `cg.2`, `cg.3` … where that is taken.
fn unique(asked: &AppId, taken: impl Fn(&AppId) -> bool) -> AppId {
    if !taken(asked) {
        return asked.clone();
    }
    let numbered = |number: u32| {
        let stem: String = asked.as_str().chars().take(56).collect();
        AppId::new(&format!("{stem}.{number}")).expect("a name with a number is a name")
    };
    (2..).map(numbered).find(|id| !taken(id)).expect("there are more numbers than programs")
}
