//! Who runs when: coplace's processes as coroutines, the machine's own events, and what a test has planned.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use linux::host;

use crate::kernel::{Act, Event, Kernel, Machine};
use crate::sockets::Sockets;

/// Room for a thread of coplace.
const STACK_BYTES: usize = 512 << 10;

/// When a thread goes on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wake {
    At(u64),
    /// Then, or when something has come for its process.
    Poll(u64),
    /// Its process is killed here.
    Killed,
}

type Yields = Yielder<(), Wake>;

struct Task {
    pid: u32,
    is_main: bool,
    coroutine: Coroutine<(), Wake, ()>,
    yielder: *const Yields,
    version: u64,
    polls: bool,
}

/// Told of each act of coplace's processes once it is done; an error is a violation.
pub type Observer = Box<dyn FnMut(&Kernel, u32, &Act) -> Result<(), String>>;
/// What a test has planned for a certain time.
pub type Planned = Box<dyn FnOnce(&Rc<World>)>;
/// What a process or thread of coplace runs, until it ends.
pub type Body = Box<dyn FnOnce()>;
/// What a guard does for a home.
pub type GuardBody = Rc<dyn Fn(PathBuf) -> Body>;

/// What is to happen to a process of coplace at one of its next calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is killed where that call begins.
    Killed,
    /// It gets no CPU for so long.
    Stalled(u64),
}

/// A modelled machine, and who runs on it.
pub struct World {
    /// The machine's state. Calls of coplace's processes borrow it: nobody keeps it borrowed while they run.
    pub kernel: RefCell<Kernel>,
    pub(crate) sockets: RefCell<Sockets>,
    tasks: RefCell<BTreeMap<u64, Task>>,
    next_task: Cell<u64>,
    /// The thread that runs, its process, and how it is suspended.
    current: Cell<Option<(u64, u32)>>,
    yielder: Cell<*const Yields>,
    /// What is dropped belongs to a process that is dead: its calls reach nothing.
    unwinding: Cell<bool>,
    faults: RefCell<BTreeMap<u32, (u64, Fault)>>,
    paused_until: RefCell<BTreeMap<u32, u64>>,
    planned: RefCell<BTreeMap<u64, Planned>>,
    observer: RefCell<Option<Observer>>,
    guard_body: RefCell<Option<GuardBody>>,
    /// Until then nothing can be written to files.
    pub disk_full_until_ns: Cell<u64>,
    stood_still_ns: Cell<u64>,
    /// Until when the machine is slow, and how long a call takes there at most.
    slow: Cell<(u64, u64)>,
    calls: Cell<u64>,
    stacks: RefCell<Vec<DefaultStack>>,
    /// Threads of a process that is dead, which are to be dropped.
    dead_tasks: RefCell<Vec<Task>>,
}

thread_local! {
    static CURRENT: RefCell<Option<Rc<World>>> = const { RefCell::new(None) };
}

/// The world in which this thread lives.
pub(crate) fn here() -> Option<Rc<World>> {
    CURRENT.try_with(|world| world.borrow().clone()).ok().flatten()
}

impl World {
    /// A world in which nothing has happened yet; the seed decides how long calls take.
    pub fn new(machine: Machine, seed: u64) -> Rc<World> {
        Rc::new(World {
            kernel: RefCell::new(Kernel::new(machine, seed)),
            sockets: RefCell::default(),
            tasks: RefCell::default(),
            next_task: Cell::new(1),
            current: Cell::new(None),
            yielder: Cell::new(std::ptr::null()),
            unwinding: Cell::new(false),
            faults: RefCell::default(),
            paused_until: RefCell::default(),
            planned: RefCell::default(),
            observer: RefCell::default(),
            guard_body: RefCell::default(),
            disk_full_until_ns: Cell::new(0),
            stood_still_ns: Cell::new(0),
            slow: Cell::new((0, 0)),
            calls: Cell::new(0),
            stacks: RefCell::default(),
            dead_tasks: RefCell::default(),
        })
    }

    /// From now on this thread lives in this world.
    pub fn enter(self: &Rc<World>) {
        CURRENT.with(|current| *current.borrow_mut() = Some(Rc::clone(self)));
        host::enter(Some(Rc::new(crate::host::ModelHost)));
    }

    /// This thread lives on its machine again; what still runs in the world is dropped.
    pub fn leave(self: &Rc<World>) {
        let pids: BTreeSet<u32> = self.tasks.borrow().values().map(|task| task.pid).collect();
        pids.into_iter().for_each(|pid| self.unwind(pid));
        host::enter(None);
        CURRENT.with(|current| *current.borrow_mut() = None);
    }

    /// From now on this observer, in place of an earlier one, is told of each act.
    pub fn observe(&self, observer: Observer) {
        *self.observer.borrow_mut() = Some(observer);
    }

    /// Says what guards run; before that coplace cannot start any (`ENOENT`).
    pub fn on_start_guard(&self, body: GuardBody) {
        *self.guard_body.borrow_mut() = Some(body);
    }

    pub(crate) fn guard(&self, home: &Path) -> Option<Body> {
        let body = self.guard_body.borrow().clone();
        body.map(|body| body(home.to_owned()))
    }

    /// Something that happens at this time, from outside.
    pub fn plan(&self, at_ns: u64, act: Planned) {
        let number = self.next_task.replace(self.next_task.get() + 1);
        self.planned.borrow_mut().insert(number, act);
        self.kernel.borrow_mut().plan(at_ns, Event::Planned(number));
    }

    /// At which of its calls from now on something befalls a process.
    pub fn inject(&self, pid: u32, calls: u64, fault: Fault) {
        self.faults.borrow_mut().insert(pid, (calls.max(1), fault));
    }

    /// How many calls were made so far.
    pub fn calls(&self) -> u64 {
        self.calls.get()
    }

    /// A process of coplace, which runs `body`.
    pub fn start_process(&self, ppid: u32, body: Body) -> u32 {
        let pid = self.kernel.borrow_mut().start(ppid, "coplace");
        self.start_task(pid, true, body);
        pid
    }

    pub(crate) fn start_task(&self, pid: u32, is_main: bool, body: Body) -> u64 {
        let number = self.next_task.replace(self.next_task.get() + 1);
        let stack = self.stacks.borrow_mut().pop();
        let stack = stack.unwrap_or_else(|| DefaultStack::new(STACK_BYTES).expect("there is memory"));
        let coroutine = Coroutine::with_stack(stack, move |yielder: &Yields, ()| {
            let world = here().expect("it runs in a world");
            world.yielder.set(yielder);
            body();
        });
        let task = Task { pid, is_main, coroutine, yielder: std::ptr::null(), version: 0, polls: false };
        self.tasks.borrow_mut().insert(number, task);
        let at_ns = self.kernel.borrow().now_ns;
        self.kernel.borrow_mut().plan(at_ns, Event::Resume { task: number, version: 0 });
        number
    }

    pub(crate) fn has_task(&self, number: u64) -> bool {
        self.tasks.borrow().contains_key(&number) || self.current.get().is_some_and(|(own, _)| own == number)
    }

    /// The process that makes the present call; `None`: the test itself.
    pub(crate) fn caller(&self) -> Option<u32> {
        self.current.get().map(|(_, pid)| pid)
    }

    pub(crate) fn is_unwinding(&self) -> bool {
        self.unwinding.get()
    }

    /// The machine has so much else to do for so long that each call of coplace's processes takes up to `call_ns`.
    pub fn slow_down(&self, ns: u64, call_ns: u64) {
        self.slow.set((self.now_ns() + ns, call_ns));
    }

    fn is_slow(&self) -> bool {
        self.was_slow(0)
    }

    /// Whether it is, or was so short a time ago.
    pub fn was_slow(&self, ago_ns: u64) -> bool {
        let until_ns = self.slow.get().0;
        until_ns > 0 && self.now_ns() < until_ns + ago_ns
    }

    /// Where a call of the running thread begins: it takes time, others may run first, and its process may be killed.
    pub(crate) fn call(&self) {
        let Some((_, pid)) = self.current.get().filter(|_| !self.unwinding.get()) else { return };
        self.calls.set(self.calls.get() + 1);
        let due = {
            let mut kernel = self.kernel.borrow_mut();
            let cost_ns = match kernel.random.below(64) {
                0 => 2_000 + kernel.random.below(200_000),
                _ => 200 + kernel.random.below(2_000),
            };
            kernel.now_ns += cost_ns;
            let now_ns = kernel.now_ns;
            kernel.next_event_ns().is_some_and(|at_ns| at_ns <= now_ns)
        };
        match self.due_fault(pid) {
            Some(Fault::Killed) => self.suspend(Wake::Killed),
            Some(Fault::Stalled(ns)) => {
                let until_ns = self.now_ns() + ns;
                self.paused_until.borrow_mut().insert(pid, until_ns);
                self.suspend(Wake::At(until_ns));
            }
            None if self.is_slow() => {
                let call_ns = self.kernel.borrow_mut().random.below(self.slow.get().1 + 1);
                self.suspend(Wake::At(self.now_ns() + call_ns));
            }
            None if due => self.suspend(Wake::At(self.now_ns())),
            None => {}
        }
    }

    fn due_fault(&self, pid: u32) -> Option<Fault> {
        let mut faults = self.faults.borrow_mut();
        let (calls, fault) = faults.get_mut(&pid)?;
        *calls -= 1;
        let fault = (*calls == 0).then_some(*fault)?;
        faults.remove(&pid);
        Some(fault)
    }

    /// Time of the machine's clock, which begins at one second.
    pub fn now_ns(&self) -> u64 {
        self.kernel.borrow().now_ns
    }

    pub(crate) fn suspend(&self, wake: Wake) {
        if self.current.get().is_none() || self.unwinding.get() {
            return;
        }
        // SAFETY: the yielder belongs to the coroutine that runs now (it was set when that was resumed), on whose
        // stack we are; it lives as long as that stack.
        unsafe { (*self.yielder.get()).suspend(wake) };
    }

    /// Whoever waits for something to come for this process goes on.
    pub(crate) fn poke(&self, pid: u32) {
        let mut due = Vec::new();
        for (number, task) in self.tasks.borrow_mut().iter_mut() {
            if task.pid == pid && task.polls {
                task.polls = false;
                task.version += 1;
                due.push((*number, task.version));
            }
        }
        let mut kernel = self.kernel.borrow_mut();
        for (task, version) in due {
            let at_ns = kernel.now_ns + 1_000;
            kernel.plan(at_ns, Event::Resume { task, version });
        }
    }

    pub(crate) fn acted(&self, act: Act) {
        let Some(by) = self.caller() else { return };
        let mut observer = self.observer.borrow_mut().take();
        if let Some(observer) = &mut observer {
            let found = observer(&self.kernel.borrow(), by, &act);
            if let Err(what) = found {
                self.kernel.borrow_mut().report_violation(what);
            }
        }
        *self.observer.borrow_mut() = observer;
    }

    /// A process of coplace is killed now.
    pub fn kill(&self, pid: u32) {
        self.unwind(pid);
        self.kernel.borrow_mut().exit(pid, false);
    }

    /// Whether a process of coplace runs.
    pub fn runs(&self, pid: u32) -> bool {
        self.tasks.borrow().values().any(|task| task.pid == pid)
    }

    /// Whether it runs and is not kept from running.
    pub fn acts(&self, pid: u32) -> bool {
        let paused = self.paused_until.borrow().get(&pid).copied().unwrap_or(0);
        self.runs(pid) && paused <= self.now_ns()
    }

    fn unwind(&self, pid: u32) {
        let dead: Vec<u64> = self
            .tasks
            .borrow()
            .iter()
            .filter(|(_, task)| task.pid == pid)
            .map(|(number, _)| *number)
            .collect();
        for number in dead {
            let task = self.tasks.borrow_mut().remove(&number);
            self.dead_tasks.borrow_mut().extend(task);
        }
        let before = (self.current.replace(None), self.unwinding.replace(true));
        while self.unwind_one() {}
        self.current.set(before.0);
        self.unwinding.set(before.1);
        self.faults.borrow_mut().remove(&pid);
        self.paused_until.borrow_mut().remove(&pid);
        self.kernel.borrow_mut().files.release_all(pid);
        let others = self.sockets.borrow_mut().close_all(pid);
        others.into_iter().for_each(|other| self.poke(other));
    }

    /// Drops one thread of a process that is dead; `false`: there is none.
    pub(crate) fn unwind_one(&self) -> bool {
        let dead = self.dead_tasks.borrow_mut().pop();
        let any = dead.is_some();
        drop(dead);
        any
    }

    /// For how long the machine has stood still so far.
    pub fn stood_still_ns(&self) -> u64 {
        self.stood_still_ns.get()
    }

    /// The machine stands still for so long, as a virtual one may: nobody runs, and the clock goes on.
    pub fn stand_still(&self, ns: u64) {
        self.stood_still_ns.set(self.stood_still_ns.get() + ns);
        let mut kernel = self.kernel.borrow_mut();
        let pids: Vec<u32> = kernel.processes.keys().copied().collect();
        pids.iter().for_each(|pid| kernel.touch(*pid));
        kernel.now_ns += ns;
        for process in kernel.processes.values_mut() {
            if let Some(program) = &mut process.program {
                program.since_ns += ns;
            }
        }
        pids.iter().for_each(|pid| kernel.touch(*pid));
    }

    /// Lets everything happen until then, or until something is found to be wrong. `after` is asked after each event.
    pub fn run_until(self: &Rc<World>, until_ns: u64, mut after: impl FnMut(&World)) {
        while self.kernel.borrow().violation.is_none() {
            let event = self.kernel.borrow_mut().pop_event(until_ns);
            let Some(event) = event else {
                let mut kernel = self.kernel.borrow_mut();
                kernel.now_ns = kernel.now_ns.max(until_ns);
                return;
            };
            match event {
                Event::Resume { task, version } => self.resume(task, version),
                Event::Program { pid, start_ticks, version } => {
                    self.kernel.borrow_mut().on_program(pid, start_ticks, version);
                }
                Event::Planned(number) => {
                    let act = self.planned.borrow_mut().remove(&number);
                    if let Some(act) = act {
                        act(self);
                    }
                }
            }
            after(self);
        }
    }

    fn resume(&self, number: u64, version: u64) {
        let is_due = self.tasks.borrow().get(&number).is_some_and(|task| task.version == version);
        if !is_due {
            return;
        }
        let Some(mut task) = self.tasks.borrow_mut().remove(&number) else { return };
        let paused = self.paused_until.borrow().get(&task.pid).copied();
        if let Some(until_ns) = paused.filter(|until_ns| *until_ns > self.now_ns()) {
            self.kernel.borrow_mut().plan(until_ns, Event::Resume { task: number, version });
            self.tasks.borrow_mut().insert(number, task);
            return;
        }
        task.polls = false;
        task.version += 1;
        self.current.set(Some((number, task.pid)));
        self.yielder.set(task.yielder);
        let result = task.coroutine.resume(());
        task.yielder = self.yielder.get();
        self.current.set(None);
        let (pid, is_main) = (task.pid, task.is_main);
        let at_ns = match result {
            CoroutineResult::Yield(Wake::At(at_ns)) => at_ns,
            CoroutineResult::Yield(Wake::Poll(at_ns)) => {
                task.polls = true;
                at_ns
            }
            CoroutineResult::Yield(Wake::Killed) => {
                self.tasks.borrow_mut().insert(number, task);
                return self.kill(pid);
            }
            CoroutineResult::Return(()) => {
                self.stacks.borrow_mut().push(task.coroutine.into_stack());
                if is_main {
                    self.kill(pid);
                }
                return;
            }
        };
        let version = task.version;
        self.tasks.borrow_mut().insert(number, task);
        self.kernel.borrow_mut().plan(at_ns, Event::Resume { task: number, version });
    }
}
