//! The runtime: the hierarchy's lists with workers that run what they take.
//!
//! In rooms, each of which uses those before it alone: `switching` (stacks and what changes them), `records` (what
//! there is to know of threads and bubbles), `workers` (who runs them, sleeps and wakes), `threads` (what programs
//! have); and here what puts them together, and follows a coplace node.

mod node;
mod page;
mod records;
mod switching;
mod threads;
mod workers;

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use topology::{CpuSet, Machine};

use crate::hierarchy::{Hierarchy, Levels, Lists as WhichLists, Scheduler};
use crate::schedulers;
use crate::trace::{EntityId, What};
use node::Node;
use records::thread;
use switching::fence;
use threads::life;
use workers::affinity;
use workers::pool::{Lists, Pool};
use workers::recorder::Recorder;
use workers::status::Status;
use workers::worker::{self, Worker};

pub(crate) use records::thread::Thread;
pub(crate) use threads::foreign;
pub(crate) use threads::handle::{remove_record, wake_record};
pub(crate) use threads::life::detach;
pub(crate) use threads::local::Key;
pub(crate) use threads::park::unpark_record;
pub(crate) use threads::sync::RawMutex;
pub(crate) use workers::worker::current;

pub use threads::bubble::Bubble;
pub use threads::channel::{Receiver, Sender, channel};
pub use threads::handle::{Builder, JoinError, JoinHandle, ThreadId, spawn};
pub use threads::join::join;
pub use threads::local::Local;
pub use threads::park::park;
pub use threads::pause::{aside, cancellation_point, sleep, yield_now, yield_to};
pub use threads::sync::{Barrier, Condvar, Mutex, MutexGuard, Semaphore};
pub use threads::tree::placement;

/// On what and how threads are scheduled.
#[derive(Clone)]
pub struct Config {
    /// The machine; what this is run on, unless it is set.
    pub machine: Option<Machine>,
    /// The processors to use, by the kernel's numbers; what this process may use, unless it is set.
    pub processors: Option<CpuSet>,
    /// One worker is bound to each processor. Not on a machine that was set: it need not be this one.
    pub bind: bool,
    /// Which levels of the machine have a list of their own.
    pub lists: WhichLists,
    /// Decides where threads and bubbles go, until [`use_scheduler`] names another.
    pub scheduler: &'static dyn Scheduler,
    /// Where what happens is written when the run is over (see `trace`); the file that
    /// `COPLACE_BUBBLES_TRACE` names, unless it is set. Nothing is recorded where neither is.
    pub trace: Option<PathBuf>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            machine: None,
            processors: None,
            bind: true,
            lists: WhichLists::Distinct,
            scheduler: &schedulers::Burst,
            trace: None,
        }
    }
}

/// Why nothing was run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// `run` was called by a thread of a run.
    #[error("run is not called from within a thread of another run: spawn there instead")]
    Inside,
}

/// Runs `main` as the first of our threads, on workers of which the calling kernel thread is one, and
/// comes back when it and all others have ended.
///
/// # Errors
///
/// When called from one of our own threads.
///
/// # Panics
///
/// With what `main` panicked with.
pub fn run<R: Send>(config: &Config, main: impl FnOnce() -> R + Send) -> Result<R, RunError> {
    if worker::is_inside() {
        return Err(RunError::Inside);
    }
    fence::prepare();
    let before = affinity::get();
    let machine = config.machine.clone().unwrap_or_else(|| Machine::discover().machine);
    let bind = config.bind && config.machine.is_none();
    // Who names processors, or leaves them to the kernel, does not follow.
    let node = (bind && config.processors.is_none()).then(Node::find).flatten();
    let processors = match (&config.processors, &config.machine) {
        (Some(processors), _) => processors.clone(),
        (None, None) => node.as_ref().map_or_else(|| before.clone(), |node| node.widest(&before)),
        (None, Some(machine)) => machine.all_cpus().clone(),
    };
    let levels = Levels::new(&machine, &processors, config.lists);
    let trace = config.trace.clone().or_else(|| std::env::var_os("COPLACE_BUBBLES_TRACE").map(PathBuf::from));
    let workers = Worker::make(levels.width(), life::main);
    let statuses = workers.iter().map(Worker::status).collect();
    let pool = Pool::new(&levels, statuses, trace.map(|path| Recorder::new(path, levels.width())));
    // Kept for good: helpers and stale handles may still look at it. It is a few kilobytes a run.
    let lists: &'static Lists = Box::leak(Box::new(Hierarchy::new(levels, config.scheduler, pool)));

    let mut outcome = None;
    {
        let outcome = &mut outcome;
        let work = move || {
            *outcome = Some(std::panic::catch_unwind(std::panic::AssertUnwindSafe(main)));
            lists.world.close();
        };
        begin(lists, &workers[0], work);
    }
    std::thread::scope(|scope| {
        if let Some(node) = &node {
            // Before this kernel thread is bound: the new one's mask is to be that of the program's place.
            let named = std::thread::Builder::new().name("bubbles-node".into()).stack_size(128 * 1024);
            // Without it the kernel has the workers share the CPUs that are left.
            let _ = named.spawn_scoped(scope, || node.follow(lists));
        }
        let mut started = 1;
        for worker in &workers[1..] {
            let cpu = lists.levels().cpu(worker.number);
            let named = std::thread::Builder::new().name(format!("bubbles-{cpu}"));
            let made = named.spawn_scoped(scope, move || {
                if bind {
                    affinity::set(&CpuSet::from_cpus(&[cpu]));
                }
                worker.work(lists);
            });
            if made.is_err() {
                break;
            }
            started += 1;
        }
        if started < lists.levels().width() {
            // Where the system has no more kernel threads, those that there are do all of it.
            lists.world.are_there(lists, started);
        }
        if bind {
            affinity::set(&CpuSet::from_cpus(&[lists.levels().cpu(0)]));
        }
        workers[0].work(lists);
        if let Some(node) = &node {
            node.close();
        }
        if bind {
            // What the node left to the program at the start is no choice: where it may be now, the node says.
            affinity::set(&node.as_ref().map_or_else(|| before.clone(), |node| node.widest(&before)));
        }
    });
    lists.world.clock.close();
    lists.world.helpers.close();
    if let Some(recorder) = &lists.world.recorder {
        let whole = lists.levels().width() == machine.pu_count();
        let machine = if whole { machine.to_synthetic() } else { None };
        recorder.write(machine, lists.levels(), config.scheduler.name());
    }
    match outcome.expect("it is over when the main function has returned") {
        Ok(result) => Ok(result),
        Err(payload) => std::panic::resume_unwind(payload),
    }
}

/// Makes the first thread, by the hands of a worker that does not run yet.
fn begin<F: FnOnce() + Send>(lists: &'static Lists, worker: &Worker, work: F) {
    let first = worker.new_thread();
    first.entry.set(thread::enter::<F, ()>);
    first.fate.store(thread::DETACHED, Ordering::Relaxed);
    // SAFETY: nobody else knows it yet. What `work` borrows outlives all threads, which `run` waits for.
    unsafe {
        first.store(work);
        first.set_name(Some("main".into()));
    }
    lists.world.note(|| What::Made(first.trace_id(), first.entity.priority()));
    if let Some(recorder) = &lists.world.recorder {
        recorder.name(EntityId::Thread(first.id_number()), "main");
    }
    first.wake(lists, 0);
}

/// Runs on these processors only from now on, by their position in the machine's tree; those that are
/// not the machine's are left out. What runs on others goes back as soon as it comes to the runtime, or
/// is interrupted where its bubble allows that; what is queued there goes up to a unit of which a
/// processor is left. Of these the ones are used that a node leaves to the program. False, and nothing
/// changes, if none would be left.
pub fn set_processors(wanted: &[usize]) -> bool {
    let worker = worker::enter();
    let lists = worker.lists();
    let some = wanted.iter().any(|&at| at < lists.levels().width());
    if some {
        lists.world.want(lists, &|at| wanted.contains(&at));
    }
    worker::leave();
    some
}

/// How many processors the runtime has, used or not.
pub fn processors() -> usize {
    let width = worker::enter().lists().levels().width();
    worker::leave();
    width
}

/// The processor that runs the calling thread now, by its position in the machine's tree.
pub fn processor() -> usize {
    let number = worker::enter().number;
    worker::leave();
    number
}

/// Has another scheduler decide from now on. What is queued is placed anew by it, as far as it is in no
/// bubble of which something runs; what runs or waits comes under it when it is queued the next time.
pub fn use_scheduler(scheduler: &'static dyn Scheduler) {
    let worker = worker::enter();
    worker.lists().exchange(0, scheduler, worker.number);
    worker::leave();
}

/// What a runtime has done so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// Threads made, the first one included.
    pub created: u64,
    /// Threads that have ended, joined or not.
    pub ended: u64,
    /// Switches from one thread to another, or from none to one.
    pub switches: u64,
}

/// Summed over all processors.
pub fn statistics() -> Statistics {
    let worker = worker::enter();
    let workers = &worker.lists().world.workers;
    let sum = |counter: fn(&Status) -> u64| workers.iter().map(|worker| counter(worker)).sum();
    let statistics = Statistics {
        ended: sum(|worker| worker.ended.load(Ordering::Acquire)),
        created: sum(|worker| worker.created.load(Ordering::Acquire)),
        switches: sum(|worker| worker.switches.load(Ordering::Relaxed)),
    };
    worker::leave();
    statistics
}
