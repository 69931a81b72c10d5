//! Coplace's own processes in the model: a daemon, guards, and a `coplace run` for each program.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use linux::clock::now_ns;
use linux::host;
use linux::page::PAGES_VARIABLE;
use model::World;
use model::world::Body;
use protocol::{AppRecord, FromScheduler, ProcessId, Role, Terms};
use rustix::process::Signal;
use topology::CpuSet;
use workload::{AppId, Demand, WaitPolicy};

use super::scene::{Kind, Scene};
use crate::home::Home;
use crate::identity;
use crate::join::{Membership, take_over};
use crate::resizing::TOLERANT_VARIABLE;
use crate::scheduler::{Options, Scheduler, Stopper};

pub const HOME: &str = "/run/coplace";
const WAKE_NS: u64 = 20_000_000;

/// Who a process of coplace is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Daemon,
    Guard,
    Run(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserAct {
    Stop,
    Continue,
    Terminate,
}

/// What is true of a program, whatever coplace believes.
#[derive(Clone, Debug, Default)]
pub struct Truth {
    pub run: Option<u32>,
    pub process: Option<ProcessId>,
    pub held: bool,
    pub started: bool,
    /// Its user has stopped it, and its `run` has seen to it that it stands.
    pub user_stopped: bool,
    /// He did so by hand (`kill -STOP`), so that no `run` knows of it: when, and under which holder of the lease.
    pub by_hand: Option<(u64, u64)>,
    /// Its user, or somebody, has ended it.
    pub doomed_at_ns: Option<u64>,
    /// The same by its `run`, which has had it released first.
    pub released: bool,
    pub wishes: VecDeque<UserAct>,
    /// What it could use when it came.
    pub original: CpuSet,
    /// It may do what it likes with its masks.
    pub chooses: bool,
}

/// Everything that the parts of one run share.
pub struct Stage {
    pub scene: Scene,
    pub world: Rc<World>,
    pub parts: RefCell<BTreeMap<u32, Part>>,
    pub truths: RefCell<Vec<Truth>>,
    pub stopper: RefCell<Option<Stopper>>,
    pub daemon: Cell<Option<u32>>,
    /// The shell from which everything is started.
    pub shell: Cell<u32>,
    /// When somebody took the lease last.
    pub lease_acquired_ns: Cell<u64>,
    /// Each act is printed.
    pub shows: bool,
}

impl Stage {
    pub fn part(&self, pid: u32) -> Option<Part> {
        self.parts.borrow().get(&pid).copied()
    }

    /// Whether this process is the `run` of the program still: its number may be another one's by now.
    pub fn is_run(&self, pid: u32, app: usize) -> bool {
        self.world.runs(pid) && self.part(pid) == Some(Part::Run(app))
    }

    pub fn options(&self) -> Options {
        let mut options = Options {
            policy: self.scene.policy.to_owned(),
            placement: self.scene.placement,
            turns: self.scene.turns,
            leave_unmanaged: false,
            remembered: Some(PathBuf::from(HOME).join("remembered.json")),
            ..Options::default()
        };
        if self.shows {
            // Beside what is printed: what each scheduler saw and decided.
            let file = format!("coplace-explored-{}.jsonl", host::own_pid());
            options.trace = Some(std::env::temp_dir().join(file));
        }
        options.settings.slice_ns = self.scene.slice_ms * 1_000_000;
        options
    }

    pub fn start_daemon(self: &Rc<Stage>) {
        let stage = Rc::clone(self);
        let body: Body = Box::new(move || {
            let Ok(home) = Home::at(Path::new(HOME)) else { return };
            let Ok(lock) = take_over(&home, Role::Daemon) else { return };
            if let Ok(scheduler) = Scheduler::start(home, lock, Role::Daemon, stage.options()) {
                *stage.stopper.borrow_mut() = Some(scheduler.stopper());
                scheduler.run();
            }
        });
        let pid = self.world.start_process(self.shell.get(), body);
        self.parts.borrow_mut().insert(pid, Part::Daemon);
        self.daemon.set(Some(pid));
    }

    pub fn start_guards(self: &Rc<Stage>) {
        self.world.on_start_guard(Rc::new(|home: PathBuf| -> Body {
            Box::new(move || {
                if let Some(home) = Home::find_existing(&home) {
                    let _ = crate::guard::run(&home);
                }
            })
        }));
    }

    pub fn start_run(self: &Rc<Stage>, number: usize) {
        let stage = Rc::clone(self);
        let pid = self.world.start_process(self.shell.get(), Box::new(move || Run::new(stage, number).run()));
        self.parts.borrow_mut().insert(pid, Part::Run(number));
        self.truths.borrow_mut()[number].run = Some(pid);
    }

    pub fn print(&self, what: impl FnOnce() -> String) {
        if self.shows {
            self.print_at(self.world.now_ns(), what);
        }
    }

    pub fn print_at(&self, now_ns: u64, what: impl FnOnce() -> String) {
        eprintln!("{:>10.3} ms: {}", now_ns as f64 / 1e6, what());
    }

    pub fn next_wish(&self, number: usize) -> Option<UserAct> {
        self.truth(number, |truth| truth.wishes.pop_front())
    }

    fn truth<T>(&self, number: usize, of: impl FnOnce(&mut Truth) -> T) -> T {
        of(&mut self.truths.borrow_mut()[number])
    }

    /// A held program whose `run` is gone starts by itself.
    pub fn start_orphans(&self) {
        for number in 0..self.scene.programs.len() {
            let run = self.truth(number, |truth| truth.run.filter(|_| truth.held && !truth.started));
            if run.is_some_and(|run| !self.world.runs(run)) {
                self.execute(number);
            }
        }
    }

    /// The program executes now.
    fn execute(&self, number: usize) {
        let plan = &self.scene.programs[number];
        let Some(process) = self.truth(number, |truth| {
            truth.started = true;
            truth.process
        }) else {
            return;
        };
        let preloaded = plan.kind != Kind::Foreign && plan.kind != Kind::Serial;
        // Who binds all its threads to one CPU would spin there for ever, by its own choice.
        let passive = matches!(plan.kind, Kind::Passive | Kind::Choosing);
        self.print(|| format!("p{number} executes in process {}", process.pid));
        let mut kernel = self.world.kernel.borrow_mut();
        let is_it = |own: &model::Process| identity::from_linux(own.identity()) == process && !own.zombie;
        if kernel.processes.get(&process.pid).is_some_and(is_it) {
            // As the child does between fork and exec (`launch::child`).
            let original = self.truth(number, |truth| truth.original.clone());
            let first = kernel.processes[&process.pid].threads.get(&process.pid);
            if first.is_some_and(|thread| !thread.mask.is_subset(&original)) {
                let _ = kernel.set_mask(process.pid, &original);
            }
            kernel.execute(process.pid, plan.script.clone(), preloaded, passive);
        }
    }
}

/// One `coplace run`.
struct Run {
    stage: Rc<Stage>,
    number: usize,
    process: ProcessId,
    member: Option<Membership>,
    name: AppId,
    may_start: bool,
    started: bool,
}

impl Run {
    fn new(stage: Rc<Stage>, number: usize) -> Run {
        let plan = stage.scene.programs[number].clone();
        let process = {
            let mut kernel = stage.world.kernel.borrow_mut();
            let pid = kernel.start(host::own_pid(), &plan.name(number));
            let process = kernel.processes.get_mut(&pid).expect("just started");
            process.app = Some(number as u32);
            process.nice = plan.nice;
            process.is_waited_for = true;
            if !plan.mask.is_empty() {
                process.threads.values_mut().for_each(|thread| thread.mask = plan.mask.clone());
            }
            if matches!(plan.kind, Kind::Resizable | Kind::Passive | Kind::Executing | Kind::Forking) {
                process.environment.push((TOLERANT_VARIABLE.to_owned(), "1".to_owned()));
            }
            if plan.kind == Kind::Passive {
                process.environment.push(("OMP_WAIT_POLICY".to_owned(), "passive".to_owned()));
            }
            process.environment.push(("LD_PRELOAD".to_owned(), "/usr/lib/libcoplace.so".to_owned()));
            identity::from_linux(process.identity())
        };
        // Before the first call, in which it may be killed.
        stage.truth(number, |truth| {
            truth.process = Some(process);
            truth.held = true;
            truth.chooses = plan.kind == Kind::Choosing;
        });
        let original = linux::affinity::get(process.pid).unwrap_or_default();
        stage.truth(number, |truth| truth.original = original);
        let name = AppId::new(&format!("p{number}")).expect("a name");
        Run { stage, number, process, member: None, name, may_start: true, started: false }
    }

    fn run(mut self) {
        self.join();
        loop {
            self.handle_messages();
            if self.may_start && !self.started {
                self.started = true;
                self.stage.execute(self.number);
                if let Some(member) = &mut self.member {
                    member.report_started(&self.name);
                }
            }
            if !identity::is_alive(self.process) {
                break;
            }
            while let Some(wish) = self.stage.next_wish(self.number) {
                self.obey(wish);
            }
            let now = now_ns();
            let wakes_ns = self.member.as_ref().and_then(Membership::wake_at_ns).unwrap_or(u64::MAX);
            let left_ns = wakes_ns.min(now + WAKE_NS).saturating_sub(now);
            host::with(|host| host.poll(&mut [], left_ns));
        }
        self.stage.print(|| format!("the run of p{} ends", self.number));
        if let Some(member) = &mut self.member {
            member.report_ended(&self.name);
        }
        self.stage.world.kernel.borrow_mut().reap(self.process.pid);
    }

    /// Where that fails the program runs without coplace.
    fn join(&mut self) {
        let number = self.number;
        self.stage.print(|| format!("the run of p{number}, process {}, begins", host::own_pid()));
        let Ok(home) = Home::at(Path::new(HOME)) else { return };
        let mut member = match Membership::new(home, Some(self.stage.options())) {
            Ok(member) => member,
            Err(error) => return self.stage.print(|| format!("p{number} finds nobody: {error}")),
        };
        let Ok(pages) = member.home().create_pages(self.process) else { return };
        let record = self.record(&pages);
        let name = match member.register_until_accepted(&record) {
            Ok((name, _)) => name,
            Err(error) => return self.stage.print(|| format!("nobody takes p{number}: {error}")),
        };
        if let Some(process) = self.stage.world.kernel.borrow_mut().processes.get_mut(&self.process.pid) {
            process.environment.push((PAGES_VARIABLE.to_owned(), pages.display().to_string()));
        }
        self.stage.print(|| format!("p{number} is taken as {name}"));
        self.name = name;
        self.may_start = false;
        self.member = Some(member);
    }

    fn record(&self, pages: &Path) -> AppRecord {
        AppRecord {
            id: self.name.clone(),
            uid: host::own_uid(),
            process: self.process,
            guardian: identity::own(),
            command: vec![self.stage.scene.programs[self.number].name(self.number)],
            directory: "/home".into(),
            pages: pages.to_owned(),
            original_cpus: linux::affinity::get(self.process.pid).unwrap_or_default(),
            demand: Demand::default(),
            arrived_ns: now_ns(),
            started: false,
            terms: Terms { waiting: WaitPolicy::AsIs, ..Terms::default() },
        }
    }

    fn handle_messages(&mut self) {
        let Some(member) = &mut self.member else { return };
        for message in member.pump() {
            self.stage.print(|| format!("the run of p{} hears {message:?}", self.number));
            match message {
                FromScheduler::Start { id, .. } if id == self.name => self.may_start = true,
                FromScheduler::Released { id, .. } if id == self.name => self.may_start = true,
                _ => {}
            }
        }
        self.may_start |= member.is_abandoned();
    }

    /// As the user's terminal would.
    fn signal(&self, signal: Signal) {
        let mut kernel = self.stage.world.kernel.borrow_mut();
        let group: Vec<u32> = kernel.of_app(self.number as u32).map(|process| process.pid).collect();
        let user = self.stage.shell.get();
        for pid in group {
            let _ = kernel.signal(user, pid, signal);
        }
    }

    fn obey(&mut self, wish: UserAct) {
        self.stage.print(|| format!("the user of p{}: {wish:?}", self.number));
        match wish {
            UserAct::Stop => {
                self.signal(Signal::STOP);
                if let Some(member) = &mut self.member {
                    member.suspend(&self.name);
                }
                // It stood still by turns when the signal came: once nobody holds it any more it is sent again.
                self.signal(Signal::STOP);
                self.stage.truth(self.number, |truth| truth.user_stopped = true);
                if let Some(member) = &mut self.member {
                    member.step_down();
                }
            }
            UserAct::Continue => {
                self.stage.truth(self.number, |truth| truth.user_stopped = false);
                self.signal(Signal::CONT);
                if let Some(member) = &mut self.member {
                    member.resume(&self.name);
                }
            }
            UserAct::Terminate => {
                if let Some(member) = &mut self.member {
                    member.report_terminating(&self.name);
                }
                let now_ns = now_ns();
                self.stage.truth(self.number, |truth| {
                    truth.released |= truth.doomed_at_ns.is_none();
                    truth.doomed_at_ns.get_or_insert(now_ns);
                    truth.user_stopped = false;
                });
                self.signal(Signal::TERM);
                self.signal(Signal::CONT);
            }
        }
    }
}
